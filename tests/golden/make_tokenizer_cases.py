#!/usr/bin/env python3
"""Writes tokenizer_cases.json: small byte-level BPE tokenizers and what Hugging Face's `tokenizers`
makes of texts with them, 200 and more for each of three families of models. Run in an environment
with `pip install tokenizers` (0.23 was used):

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
# Llama-3, Qwen2, SmolLM2.
FAMILIES = ("llama3", "qwen2-nfc", "smollm2")
# Bytes that SmolLM2's vocabulary lacks.
LACKED = [0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100)]
LACKING_TEXTS = ["\x04", "a\x04b", "t\x04he", " \x1dthe", "\U00040000\U000bffff", "the\x16\x16 in"]
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

# What every family of tokenizers is held to, beside random texts: code, digits, scripts without
# spaces, emoji (joined and with skin tones), combining marks in and out of their canonical order,
# runs of white space, special tokens inside text.
FAMILY_TEXTS = [
    "def f(x):\n    return x ** 2  # square\n",
    "for (int i = 0; i < 10; ++i) {\n\ta[i] += b[i];\n}",
    "if a != b and c == d: print('the')",
    "#include <vector>\nint main() { return 0; }",
    "SELECT * FROM the WHERE line >= 12;",
    "x=lambda y:y[::-1]",
    '{"the": [1, 2.5, -3e-7], "in": null}',
    "<div class=\"line\">it&apos;s</div>",
    "git commit -m 'the line' && echo $?",
    "https://a.example/the?in=1&on=2#re",
    "C:\\town\\rain.txt",
    "/* the */ // in",
    "camelCaseThe snake_case_the SCREAMING_THE",
    "a+b-c*d/e%f^g&h|i~j",
    "```\nthe\n```",
    "0", "7", "12", "123", "1234", "12345", "123456", "1234567", "12345678901234567890",
    " 1", " 12 345 6789", "3.14159", "-1,234,567.89", "1e-10", "0x1F", "2024-11-20T10:33:07Z",
    "the1", "1the", "the 1 2 3in", "v1.2.3", "50%", "$9.99", "#1", "٣٤٥٦", "१२३४५", "１２３４", "Ⅷ", "½ ²³",
    "漢字", "漢字かな交じり文です。", "你好，世界！", "한국어 텍스트", "ไทย", "日本語 the 日本",
    "中文123中文", "「漢字」", "。。。", "カタカナー", "ｶﾀｶﾅ",
    "привет, мир", "Ελληνικά", "עברית", "العربية", "हिन्दी", "தமிழ்", "ქართული", "Tiếng Việt",
    "🙂", "🙂🙂 🙂", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "❤️", "the🙂in", "☃︎", "1️⃣2️⃣", "👩‍",
    "e\u0301", "e\u0301e\u0301 caf\u00e9 cafe\u0301", "a\u0323\u0302", "a\u0302\u0323", "\u1ea5\u0323",
    "o\u0308ffnen", "\u0301the", " \u0301 the", "n\u0303o", "\u212b \u2126 \u00c5", "\u1100\u1161\u11a8",
    "\u1100\u1161", "\uac00\u11a8", "\u0958", "\u0915\u093c", "\u2adc", "\ufb01 \ufb2a", "\u0344", "\u09c7\u09be",
    "q\u0307\u0323", "Z\u0334\u0351\u0328a\u0335", "\u1e9b\u0323", "1\u0301", "\u0340\u0341", "\uf900 \u2f800",
    "ſ\u0307", "don\u2019t \u2018the\u2019", "in\u0301", "'\u0301s", "\u03b1\u0345\u0301",
    " ", "  ", "   the", "    the", "the    ", "the     in", " " * 16, " " * 17 + "the", " the ",
    "\t", "\tthe", "\t\tthe\t", "the\t in", " \t \t", "\n", "\n\n", "\n\n\n the", "the\n", "the\n\n  in\n",
    "\r\n", "the\r\n\r\nin", " \n the", "\n \n", "the \n", "\u00a0the", "\u3000the", "\u2003 \u2003", "\v\fthe",
    "\u200bthe\u200d", "\ufeffthe",
    "<|eot|>", "<|eot|>the", "the<|eot|>", "the <|eot|> in", "<|eot|>\n\nthe", "a<|eot|><|eot|>b", "<|eot|",
    "<|eot|><tool>", "<tool>the", "the<tool>s?!", "é?!", "e\u0301?!", "<|EOT|>", "\u0301<|eot|>\u0301",
    "it's, I'll, we'd, they've; IT'S I'LL", "'tis the 'in'", "re're", "the-in_on re.in", "(the)[in]{on}",
    "...", "?!?!", "--", "the—in", "“the”", "a\u0000b", "ÀÉÎõü", "ﬀ", "The THE tHe",
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
    """Name -> (pre_tokenizer, ignore_merges, merges as strings[, normalizer])."""
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
    result["qwen2-nfc"] = (*result["qwen2"], {"type": "NFC"})
    result["smollm2"] = result["digits"]
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


def file_of(model, pre_tokenizer, ignore_merges, as_strings, normalizer=None):
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
        "normalizer": normalizer,
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


def lacking(model):
    """Without the tokens of LACKED, whose ids other tokens have that no text becomes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    alphabet = {byte: chr(byte) for byte in plain}
    alphabet.update({byte: chr(256 + i) for i, byte in enumerate(others)})
    renamed = {alphabet[byte]: f"<lacks {byte:02x}>" for byte in LACKED}
    return {renamed.get(token, token): id for token, id in model["vocab"].items()}, renamed


def family_texts(seed):
    rng = random.Random(seed)
    return FAMILY_TEXTS + [random_text(rng) for _ in range(210 - len(FAMILY_TEXTS))]


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
        vocab, renamed = lacking(model) if name == "smollm2" else (model["vocab"], {})
        file = file_of({**model, "vocab": vocab}, *variant)
        tokenizer = Tokenizer.from_str(json.dumps(file))
        texts = fixed + [random_text(rng) for _ in range(args.texts)]
        if name in FAMILIES:
            texts += family_texts(args.seed)
        if renamed:
            texts += LACKING_TEXTS
        results = [[t, tokenizer.encode(t, add_special_tokens=False).ids] for t in texts]
        file["model"] = {
            "ignore_merges": file["model"]["ignore_merges"],
            "merges_as_strings": variant[2],
            **({"renamed": renamed} if renamed else {}),
        }
        cases.append({"name": name, "tokenizer": file, "texts": results})
    print("{")
    print(f' "model": {json.dumps(model)},')
    print(' "cases": [')
    for i, case in enumerate(cases):
        texts = ",\n    ".join(json.dumps(text, ensure_ascii=False, separators=(",", ":")) for text in case["texts"])
        print(f'  {{"name": "{case["name"]}",')
        print(f'   "tokenizer": {json.dumps(case["tokenizer"])},')
        print(f'   "texts": [\n    {texts}]}}' + ("," if i + 1 < len(cases) else ""))
    print(" ]\n}")


if __name__ == "__main__":
    main()
