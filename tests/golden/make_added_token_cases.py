#!/usr/bin/env python3
"""Writes added_token_cases.json: tokenizers of metaspace_cases.json and tokenizer_cases.json with
added tokens of every kind, and what Hugging Face's `tokenizers` makes of texts with them (0.23 was
used):

    python3 make_added_token_cases.py > added_token_cases.json

A case names the file and the case that its tokenizer is of; `added_tokens` take the place of those.
"""

import json
import pathlib
import random

from tokenizers import Tokenizer

FOLDER = pathlib.Path(__file__).parent
BASES = {
    "tokenizer_cases.json": ("gpt2", "qwen2-nfc"),
    "metaspace_cases.json": ("llama2", "replace-alone", "mistral", "always"),
}
# Content, special, and what is not false of the rest.
TOKENS = [
    ("[INST]", False, {"normalized"}),
    ("[/INST]", False, {"normalized"}),
    ("<left>", True, {"lstrip"}),
    ("<right>", True, {"rstrip"}),
    ("<both>", False, {"lstrip", "rstrip"}),
    ("<soft>", False, {"lstrip", "rstrip", "normalized"}),
    ("word", False, {"single_word"}),
    ("town", False, {"single_word", "normalized"}),
    ("the town", False, {"normalized"}),
    (" it", False, set()),
    ("cafe\u0301", False, {"normalized"}),
]
FRAGMENTS = [token for token, _, _ in TOKENS] * 2 + [
    " ", " ", "  ", "\n", "\t", "\u00a0", "\u1680", "\u2003", "\u2028", "\u3000", "\u180e", "\u200b", "\u200d",
    "\u2581", "the", "s", "_", "1", "\u00bd", "\u2167", "\u24d0", "\u0301", "\u00e9", "\u6f22", "\u203f", "-", ".",
    "\U0001f642", "hello", "caf\u00e9",
]  # fmt: skip
FIXED = [
    "[INST] hello [/INST]", "a[INST]hello[/INST]", "[INST][/INST]", " [INST]  hello\n[/INST] ",
    "a <left> b", "a  <left>  b", "a <right> b", "<right>  it", "a <both> <both> b", "<both>", "  <both>  ",
    "\n<soft>\n", "a \n<soft>\n b", "word words sword word.word word", "wordword", "the town", "town towns",
    "caf\u00e9 cafe\u0301 cafe", "word\u0301 \u6f22word \u24d0word \u00bdword word\u200d",
]  # fmt: skip


def added(size):
    keys = ("single_word", "lstrip", "rstrip", "normalized")
    return [
        {"id": size + i, "content": content, **{key: key in rest for key in keys}, "special": special}
        for i, (content, special, rest) in enumerate(TOKENS)
    ]


def main():
    rng = random.Random(11)
    cases = []
    for name, bases in BASES.items():
        golden = json.loads((FOLDER / name).read_text())
        for case in golden["cases"]:
            if case["name"] not in bases:
                continue
            model = {**golden["model"], **{k: v for k, v in case["tokenizer"].get("model", {}).items() if k == "ignore_merges"}}
            tokens = added(1 + max(model["vocab"].values()))
            tokenizer = Tokenizer.from_str(json.dumps({**case["tokenizer"], "model": model, "added_tokens": tokens}))
            texts = FIXED + ["".join(rng.choices(FRAGMENTS, k=rng.randint(2, 7))) for _ in range(80)]
            results = [[text, tokenizer.encode(text, add_special_tokens=False).ids] for text in texts]
            cases.append({"file": name, "case": case["name"], "added_tokens": tokens, "texts": results})
    print(json.dumps(cases, ensure_ascii=False, separators=(",", ":")).replace('{"file"', '\n{"file"'))


if __name__ == "__main__":
    main()
