"""model.py FOLDER: checks the checksums of the model's files, and removes wrong ones."""

import hashlib
import pathlib
import sys

FILES = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
}

wrong = []
for name, expected in FILES.items():
    file = pathlib.Path(sys.argv[1], name)
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != expected:
        file.unlink()
        wrong.append(f"{name} is {found}, and should be {expected}")
sys.exit("\n".join(wrong) or None)
