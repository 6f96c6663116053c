#!/usr/bin/env python3
"""Writes tokenizer_cases.json: small byte-level BPE tokenizers and what Hugging Face's `tokenizers`
makes of texts with them. Run in an environment with `pip install tokenizers` (0.23 was used):

    python3 make_tokenizer_cases.py > tokenizer_cases.json

A larger check by hand:

    python3 make_tokenizer_cases.py --seed 1 --texts 5000 > /tmp/large.json
    ALLOT_TOKENIZER_CASES=/tmp/large.json build/dev/bin/tokenizer_test
"""

import argparse
import json
import random

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

CORPUS = [
    "the rain in the town, the train is on the other line: it's raining, isn't it? We'll see",
    "  return the value\n    if (value == 1234) {\n\n\t\tthrow error;\n  }\r\n",
    "THE OTHER LINE; they're there, I'd've thought. 2024-11-20 10:33:07",
    "ein schöner Tag für Käse, déjà vu, naïve café, 漢字かな交じり文, привет мир, 🙂🙂",
]
FRAGMENTS = CORPUS + [
    "the",
    " the",
    "'s",
    "'S",
    "'ſ",
    "'ll",
    "'LL",
    "'Ve",
    "12345",
    "१२३",
    "Ⅷ½²",
    " ",
    "  ",
    "    ",
    "\n",
    "\r\n",
    "\t",
    "\u00a0",
    "\u0085",
    "\u2028",
    "\u3000",
    "\u180e",
    "\u200b",
    "é",
    "e\u0301",
    "ß",
    "İ",
    "漢字",
    "🙂",
    "👩‍👩‍👧",
    "!",
    "?!",
    "...",
    "_",
    "a",
    "in",
    "on",
    "re",
    "<",
    "<|",
    "<|eot|>",
    "<|eot|><|eot|>",
    "<|eo",
    "<tool>",
    "<tool>s",
    "\0",
    "\x7f",
    "\ufeff",
    "\U0010ffff",
    "\ue000",
    "-",
    " -",
    "#",
]


def byte_level(use_regex, prefix=False):
    return {
        "type": "ByteLevel",
        "add_prefix_space": prefix,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def split(kind, pattern, behavior, invert=False):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def variants():
    """Name -> (pre_tokenizer, ignore_merges, merges as strings)."""
    plain = byte_level(False)
    result = {
        "llama3": (sequence(split("Regex", LLAMA3, "Isolated"), plain), True, True),
        "qwen2": (sequence(split("Regex", QWEN2, "Isolated"), plain), False, False),
        "gpt2": (byte_level(True), False, True),
        "gpt2-prefix": (byte_level(True, True), False, True),
        "digits": (
            sequence({"type": "Digits", "individual_digits": True}, byte_level(True)),
            False,
            False,
        ),
        "digit-runs": (
            sequence({"type": "Digits", "individual_digits": False}, byte_level(True, True)),
            False,
            False,
        ),
        "string": (
            sequence(
                split("String", " ", "MergedWithNext"), split("String", ".", "Isolated"), plain
            ),
            False,
            False,
        ),
        "empty-matches": (sequence(split("Regex", r"\d*", "Isolated"), plain), False, False),
        "lines": (
            sequence(split("Regex", r"^\s+|\s+$|[^\s\d]+.", "Isolated"), plain),
            False,
            False,
        ),
        "whole": (plain, False, False),
    }
    for behavior in ("Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"):
        for invert in (False, True):
            steps = sequence(split("Regex", r"\s|in|[\p{P}\p{S}]", behavior, invert), plain)
            result[f"{behavior}-{invert}"] = (steps, False, False)
    return result


def train(merges):
    """One vocabulary for all variants: the byte alphabet, then what BPE finds in the corpus."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=256 + merges,
        show_progress=False,
        max_token_length=8,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator([word for text in CORPUS for word in text.split(",")], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    # A token that no merge makes: only ignore_merges can find it.
    model["vocab"]["Ġrains"] = len(model["vocab"])
    return model


def file_of(model, pre_tokenizer, ignore_merges, as_strings):
    size = len(model["vocab"])
    tokens = [
        ("<|eot|>", True, False),
        ("<|eot|><|eot|>", True, False),
        ("<tool>", False, False),
        ("<tool>s", False, True),
        ("?!", False, True),
    ]
    added = [
        {
            "id": size + i,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": normalized,
            "special": special,
        }
        for i, (content, special, normalized) in enumerate(tokens)
    ]
    merges = [" ".join(pair) for pair in model["merges"]] if as_strings else model["merges"]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": byte_level(True),
        "model": {**model, "ignore_merges": ignore_merges, "merges": merges},
    }


def random_text(rng):
    parts = []
    for _ in range(rng.randint(1, 8)):
        kind = rng.random()
        if kind < 0.6:
            parts.append(rng.choice(FRAGMENTS))
        elif kind < 0.8:
            text = rng.choice(CORPUS)
            start = rng.randrange(len(text))
            parts.append(text[start : start + rng.randint(1, 20)])
        else:
            parts.append(rng.choice("  \n\tabcinrtehsT019.,'é") * rng.randint(1, 6))
    return "".join(parts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--texts", type=int, default=10)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    model = train(160)
    fixed = ["", " rains", "it rains", " \u180e x", "'ſ'S"]
    cases = []
    for name, variant in variants().items():
        file = file_of(model, *variant)
        tokenizer = Tokenizer.from_str(json.dumps(file))
        texts = fixed + [random_text(rng) for _ in range(args.texts)]
        results = [[t, tokenizer.encode(t, add_special_tokens=False).ids] for t in texts]
        file["model"] = {
            "ignore_merges": file["model"]["ignore_merges"],
            "merges_as_strings": variant[2],
        }
        cases.append({"name": name, "tokenizer": file, "texts": results})
    print("{")
    print(f' "model": {json.dumps(model)},')
    print(' "cases": [')
    for i, case in enumerate(cases):
        texts = ",\n    ".join(json.dumps(text, separators=(",", ":")) for text in case["texts"])
        print(f'  {{"name": "{case["name"]}",')
        print(f'   "tokenizer": {json.dumps(case["tokenizer"])},')
        print(f'   "texts": [\n    {texts}]}}' + ("," if i + 1 < len(cases) else ""))
    print(" ]\n}")


if __name__ == "__main__":
    main()
