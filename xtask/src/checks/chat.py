"""chat.py ADDRESS: OpenAI's own client talks with `examples/chat` as a server."""

import sys
import threading

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0, timeout=120)
MESSAGES = [{"role": "user", "content": "The memory of the device"}]


def ask(**more):
    options = {"model": "any", "messages": MESSAGES, "max_tokens": 16, "temperature": 0, **more}
    return client.chat.completions.create(**options)


def text_of(pieces):
    return "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)


whole = ask()
said = whole.choices[0].message.content
assert said and whole.choices[0].finish_reason in ("length", "stop"), whole
assert 0 < whole.usage.completion_tokens <= 16, whole.usage
assert text_of(ask(stream=True)) == said, "piece by piece it is another answer"

# A stop text ends the answer and is no part of it.
stop = said[5:8]
before = said[: said.index(stop)]
stopped = ask(stop=stop).choices[0]
assert (stopped.message.content, stopped.finish_reason) == (before, "stop"), stopped
pieces = list(ask(stop=["no such text", stop], stream=True, stream_options={"include_usage": True}))
assert text_of(pieces) == before, pieces
assert pieces[-2].choices[0].finish_reason == "stop" and pieces[-1].usage.total_tokens > 1, pieces
assert ask(max_completion_tokens=2).usage.completion_tokens <= 2

# Several at once, and one that goes away in the middle.
answers = []
threads = [threading.Thread(target=lambda: answers.append(text_of(ask(stream=True)))) for _ in range(4)]
for thread in threads:
    thread.start()
gone = ask(stream=True, max_tokens=90)
next(gone)
gone.close()
for thread in threads:
    thread.join()
assert answers == [said] * 4, answers

for wrong in (
    {"messages": [{"role": "user", "content": "far too long " * 500}]},
    {"temperature": -1},
    {"messages": "no list"},
    {"n": 2},
    {"logprobs": True},
    {"stop": ["too", "many", "texts", "are", "here"]},
):
    try:
        ask(**wrong)
    except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
        assert str(error), error
    else:
        raise AssertionError(f"{wrong} was answered")
assert ask().choices[0].message.content == said, "it answers as before"
assert client.models.list().data, "it names its model"
print("the client was answered")
