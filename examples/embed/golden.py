"""Golden values for the tests: what PyTorch makes of a few texts with the same files.

    pip install torch safetensors tokenizers numpy
    python golden.py FOLDER-OF-THE-MODEL

writes golden/texts.json (the texts and their tokens) and golden/embeddings.f32 (a row of 384 floats a text,
little-endian). The encoder is written plainly, as the paper has it, and computed in double precision, so that
it is nobody's kernel that is compared with.
"""

import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer

LONGEST = 256

TEXTS = [
    "A tensor is a view of a storage.",
    "The cat sat on the mat.",
    "How do I give memory back to the driver?",
    "Returns the number of bytes that are free, or an error if the device is lost.",
    "hello",
    "HELLO",
    "",
    " \t\n ",
    ".",
    "?!… — «»",
    "Ein Gedächtnis wie ein Sieb: Größe, Straße, naïve façade, Ångström.",
    "Память видеокарты закончилась.",
    "メモリが足りません。",
    "内存不足",
    "مرحبا بالعالم",
    "👩‍🚀🚀 to the 🌕, e\u0301 is one letter",
    "zero\u200bwidth\u00a0space\u00adhyphen\u0000null",
    "fn main() { println!(\"{:?}\", vec![1u8; 1 << 20].iter().map(|x| x ^ 0xff).sum::<u8>()); }",
    "a" * 99,
    "a" * 101,
    "An unbroken line of words makes for a long sentence, which goes on, " * 3,
    # One token less than the model takes, as many, one more, and far more.
    "word " * (LONGEST - 3),
    "word " * (LONGEST - 2),
    "word " * (LONGEST - 1),
    "The budget is a hard limit: what has no room is put out, moved, or refused with a reason. " * 40,
]


def encode(weights, config, ids):
    """The embedding of one text, without padding and so without a mask."""

    def linear(x, name):
        return F.linear(x, weights[name + ".weight"], weights[name + ".bias"])

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], weights[name + ".weight"], weights[name + ".bias"], config["layer_norm_eps"])

    heads = config["num_attention_heads"]
    length = len(ids)
    x = weights["embeddings.word_embeddings.weight"][ids]
    x = x + weights["embeddings.position_embeddings.weight"][:length]
    x = x + weights["embeddings.token_type_embeddings.weight"][0]
    x = norm(x, "embeddings.LayerNorm")
    for layer in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{layer}."

        def split(t):
            return t.view(length, heads, -1).transpose(0, 1)

        q, k, v = (split(linear(x, at + "attention.self." + name)) for name in ("query", "key", "value"))
        scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        mixed = (scores.softmax(-1) @ v).transpose(0, 1).reshape(length, -1)
        x = norm(x + linear(mixed, at + "attention.output.dense"), at + "attention.output.LayerNorm")
        wide = F.gelu(linear(x, at + "intermediate.dense"))
        x = norm(x + linear(wide, at + "output.dense"), at + "output.LayerNorm")
    return F.normalize(x.mean(0), dim=0)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    config = json.loads((folder / "config.json").read_text())
    weights = {name: t.double() for name, t in load_file(folder / "model.safetensors").items() if t.is_floating_point()}
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)
    golden = pathlib.Path(__file__).parent / "golden"
    golden.mkdir(exist_ok=True)
    texts, rows = [], []
    with torch.no_grad():
        for text in TEXTS:
            ids = tokenizer.encode(text).ids
            texts.append({"text": text, "tokens": ids})
            rows.append(encode(weights, config, torch.tensor(ids)))
    lines = ",\n".join(json.dumps(text) for text in texts)
    (golden / "texts.json").write_text(f"[\n{lines}\n]\n")
    (golden / "embeddings.f32").write_bytes(torch.stack(rows).float().numpy().astype("<f4").tobytes())
    print(f"{len(texts)} texts by PyTorch {torch.__version__}; tokens: {[len(text['tokens']) for text in texts]}")


if __name__ == "__main__":
    main()
