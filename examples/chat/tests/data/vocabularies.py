"""vocabularies.py: vocabularies in files of GGUF, and what the libraries that made them make of texts.

    pip install tokenizers==0.23.3 sentencepiece gguf==0.19.0
    python vocabularies.py

`bytes.gguf` has pairs of bytes as GPT-2 and Llama 3 have them, by Hugging Face's tokenizers. `pieces.gguf` has
pieces with scores as Llama 2 has them, by SentencePiece. Both learn from the documentation of this repository.
"""

import io
import json
import pathlib
import re

import gguf
import sentencepiece
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

FOLDER = pathlib.Path(__file__).parent
ROOT = FOLDER.parents[3]
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<|begin|>", "<|end|>"]
TEXTS = [
    "A tensor is a view of a storage.",
    "hello",
    "",
    " two  spaces,\n\nand lines\t",
    "It's the host's 12345 bytes; we'll see.",
    "Größe, naïve, Память, 内存不足, 👩‍🚀",
    "<|begin|>What is a slab?<|end|>",
    "fn main() { println!(\"{:?}\", 1u8 << 3); }",
]


def write(name, kind, tokens, types, **more):
    writer = gguf.GGUFWriter(FOLDER / name, "llama")
    writer.add_tokenizer_model(kind)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    for key, value in more.items():
        getattr(writer, f"add_{key}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def fragments(pieces, text):
    """As llama.cpp does, and as files of Llama 2 by `transformers`: what is between special tokens is a text."""
    parts = re.split("(" + "|".join(map(re.escape, SPECIAL)) + ")", text)
    ids = [[pieces.piece_to_id(part)] if part in SPECIAL else pieces.encode(part) for part in parts if part]
    return sum(ids, [])


def main():
    pages = [page.read_text() for page in sorted((ROOT / "docs" / "design").glob("*.md"))]
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"), level])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(pages, trainer)
    described = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(described["vocab"], key=described["vocab"].get)
    merges = [" ".join(pair) for pair in described["merges"]]
    types = [3 if token in SPECIAL else 1 for token in tokens]
    write("bytes.gguf", "gpt2", tokens, types, tokenizer_pre="llama-bpe", token_merges=merges)

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter("\n".join(pages).split("\n")),
        model_writer=model,
        model_type="bpe",
        vocab_size=600,
        byte_fallback=True,
        user_defined_symbols=SPECIAL,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(pieces.get_piece_size())
    kinds = [(pieces.is_unknown, 2), (pieces.is_control, 3), (pieces.is_byte, 6)]
    kind = lambda id: next((kind for test, kind in kinds if test(id)), 4 if pieces.id_to_piece(id) in SPECIAL else 1)
    write(
        "pieces.gguf",
        "llama",
        [pieces.id_to_piece(id) for id in ids],
        [kind(id) for id in ids],
        token_scores=[pieces.get_score(id) for id in ids],
    )
    expected = dict(
        texts=TEXTS,
        bytes=[tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS],
        pieces=[fragments(pieces, text) for text in TEXTS],
    )
    (FOLDER / "vocabularies.json").write_text(json.dumps(expected) + "\n")


main()
