#!/usr/bin/env python3
"""Writes metaspace_cases.json: small BPE tokenizers with byte fallback, as Llama-2's and Mistral's
are, and what Hugging Face's `tokenizers` makes of texts with them (0.23 was used):

    python3 make_metaspace_cases.py > metaspace_cases.json

The form of the file is that of make_tokenizer_cases.py, whose texts these are as well.
"""

import argparse
import json
import random

from make_tokenizer_cases import CORPUS, family_texts, random_text
from tokenizers import Tokenizer, models, normalizers, trainers

MARK = "\u2581"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
PREPEND = {"type": "Prepend", "prepend": MARK}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": split}


def sequence(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


def variants():
    """Name -> (normalizer, pre_tokenizer, whether decoding strips a space)."""
    return {
        "llama2": (sequence(PREPEND, REPLACE), None, True),
        "replace-alone": (REPLACE, None, False),
        "mistral": (None, metaspace("first", False), True),
        "always": (None, metaspace("always", True), True),
        "never": (None, metaspace("never", True), False),
    }


def train(merges):
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]
    )
    special = ["<unk>", "<s>", "</s>"] + BYTES
    trainer = trainers.BpeTrainer(
        vocab_size=len(special) + merges, show_progress=False, special_tokens=special,
        max_token_length=8, limit_alphabet=60,
    )
    tokenizer.train_from_iterator([part for text in CORPUS for part in text.split(",")], trainer)
    return json.loads(tokenizer.to_str())["model"]


def file_of(model, normalizer, pre_tokenizer, strips):
    decoders = [
        {"type": "Replace", "pattern": {"String": MARK}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ] + ([STRIP] if strips else [])
    added = [
        {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for i, content in enumerate(("<unk>", "<s>", "</s>"))
    ]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": decoders}, "model": model,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--texts", type=int, default=60)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    model = train(200)
    fixed = ["", " ", "  ", "the rain", " the rain", "  the  rain  ", "<s>the rain", "<s> the",
             "a</s>b</s> c", f"{MARK}the", "漢字🙂é", "\n\n", "e\u0301\u0302", "1234567", "\u2028"]
    cases = []
    for name, variant in variants().items():
        file = file_of(model, *variant)
        tokenizer = Tokenizer.from_str(json.dumps(file))
        texts = fixed + [random_text(rng) for _ in range(args.texts)]
        if name in ("llama2", "mistral"):
            texts += family_texts(args.seed)
        results = []
        for text in texts:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            results.append([text, ids, tokenizer.decode(ids)])
        del file["model"]
        cases.append({"name": name, "tokenizer": file, "texts": results})
    print(json.dumps({"model": model, "cases": cases}, ensure_ascii=False, separators=(",", ":")))


if __name__ == "__main__":
    main()
