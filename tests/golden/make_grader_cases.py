#!/usr/bin/env python3
"""Writes grader_cases.json: answers, what is expected, and the score that the published graders of
LongBench (v1) and InfiniteBench give. They are run as they are, from checkouts of both repositories,
in an environment with `pip install rouge rouge-score fuzzywuzzy python-Levenshtein` (1.0.1, 0.1.2,
0.18.0 and 0.27.5 were used; rapidfuzz 3.14.6 has the last word on fuzz.ratio):

    python3 make_grader_cases.py LONGBENCH/LongBench INFINITEBENCH/src > grader_cases.json

Left out are answers on which a published grader ends with an exception, and those whose likeness
lies between two whole percents to the rounding of doubles.
"""

import json
import random
import sys
import types

from rapidfuzz.distance import LCSseq
from rouge_score import rouge_scorer

sys.setrecursionlimit(100000)  # the package `rouge` recurses by words
for name in ("jieba", "evaluate", "tqdm", "args"):  # needed by what is not run here
    sys.modules[name] = types.ModuleType(name)
sys.modules["tqdm"].tqdm = None
sys.modules["args"].parse_args = None


class Rouge:
    """The metric `rouge` of the package `evaluate`, of which this is the part that counts."""

    def compute(self, predictions, references, use_aggregator):
        scorer = rouge_scorer.RougeScorer(["rougeLsum"])
        return {
            "rougeLsum": [
                scorer.score(reference, prediction)["rougeLsum"].fmeasure
                for prediction, reference in zip(predictions, references)
            ]
        }


sys.modules["evaluate"].load = lambda name: Rouge()
sys.path[:0] = sys.argv[1:3]
import compute_scores  # noqa: E402
import metrics  # noqa: E402

LINE = ("f1-line", "rouge-l-line", "longbench-class")
LONGBENCH = {
    "f1": metrics.qa_f1_score,
    "f1-line": metrics.qa_f1_score,
    "rouge-l": metrics.rouge_score,
    "rouge-l-line": metrics.rouge_score,
    "longbench-code": metrics.code_sim_score,
    "longbench-class": metrics.classification_score,
    "longbench-count": metrics.count_score,
    "longbench-paragraph": metrics.retrieval_score,
}
INFINITEBENCH = {
    "infinitebench-number": "passkey",
    "infinitebench-word": "kv_retrieval",
    "infinitebench-name": "longdialogue_qa_eng",
    "infinitebench-choice": "longbook_choice_eng",
    "infinitebench-debug": "code_debug",
    "infinitebench-run": "code_run",
    "infinitebench-find": "math_find",
}
NUMBERS = ("infinitebench-run", "infinitebench-find")


def score(grader, answers, completion, classes):
    if grader in LONGBENCH:
        given = completion.lstrip("\n").split("\n")[0] if grader in LINE else completion
        return max(LONGBENCH[grader](given, answer, all_classes=classes) for answer in answers)
    if grader == "rouge-lsum":
        return max(compute_scores.get_score_one_longbook_sum_eng(completion, answer, "")
                   for answer in answers)
    if grader == "infinitebench-word":
        label = answers[0]
    elif grader in NUMBERS:
        label = json.loads(answers[0])
    else:
        label = answers
    return compute_scores.get_score_one(completion, label, INFINITEBENCH[grader], "yarn-mistral")


def is_between(answers, completion):
    """Whether fuzz.ratio depends on how a half is rounded."""
    lines = [line for line in completion.lstrip("\n").split("\n")
             if not any(mark in line for mark in ("`", "#", "//"))]
    line = lines[0] if lines else ""
    ratios = [200 * LCSseq.similarity(line, answer) / max(len(line) + len(answer), 1)
              for answer in answers]
    return any(abs(ratio % 1 - 0.5) < 1e-9 for ratio in ratios)


WORDS = ("the a an cat dog sat on mat. ran, away; The Cat! U.S. 12 1,200 it's its caf\u00e9 "
         "\u201cquoted\u201d na\u00efve \u00c9t\u00e9 a-b one two. three\nfour five\n six").split(" ")

TEXTS = [
    ["Paris", "paris."], ["Paris", "The answer is Paris."], ["Paris", "Paris, France"],
    ["Paris", "London"], ["Paris", ""], ["Paris", " \n"], ["the", "the"], ["the cat", "a cat"],
    ["the cat", "cats"], ["an apple a day", "apple, day"], ["A", "a"], ["its", "it's"],
    ["1,200", "1200"], ["caf\u00e9", "CAF\u00c9"], ["th\u00e9", "the"], ["a\u00e9", "\u00e9"],
    ["a \u201cb\u201d", "\u201cb\u201d"], ["x\u00a0y", "x y"], ["a\u0301b", "b"],
    ["word word word", "word"], ["word", "word word word"], ["yes", "Yes\nQuestion: no"],
    ["yes", "\n\nyes\nno"], ["\u65e5\u672c \u8a9e", "\u65e5\u672c"], ["a\u3000b", "b"],
    ["the-cat", "thecat"], ["_a_", "a"], ["b", "\u2014a b"], ["x\u2028y", "y x"],
    ["St. Mary", "st mary"], ["one. two. three", "three. two. one"], ["one.", "one"],
    ["one two three four", "one three"], ["one two three four", "four three two one"],
    ["a b c. d e f", "a x c. d y f"], ["a b. a c", "a b c"], [" . . ", "a"], ["a", " . "],
    [". .", ". ."], ["...", "a"], ["a\nb\nc", "a b c"], ["a b c", "a\nb\nc"],
    ["a b\nc d", "c d\na b"], ["x y z x y z", "x y\nz x"], ["Dog's life", "dog s life"],
    ["b a b a b", "a b a"], ["p q r s t", "p r t\nq s"], ["\n\n", "a"], ["\u0130x", "i x"],
]


def texts(grader, randoms):
    for reference, completion in TEXTS:
        if reference.strip("\n"):
            yield grader, [reference], completion, []
    yield grader, ["Paris", "the city of Paris"], "the city of Paris", []
    yield grader, ["yes", "no"], "no", []
    for _ in range(randoms):
        text = [" ".join(random.choices(WORDS, k=random.randint(1, 14))) for _ in range(3)]
        yield grader, text[:random.randint(1, 2)], text[2], []


def codes():
    grader = "longbench-code"
    right = "        return self.items[index]"
    for completion in [
            right, right + "\n", "\n\n" + right, right.strip(), "return self.items[i]", "",
            "```python\n" + right, "# first\n" + right, "// first\n" + right, "x\n" + right,
            right + "  # why", "`x`", "    pass", "\t" + right.strip(), "return", right * 3, " ",
            "\n", "return self.items[index]\nreturn", "RETURN SELF.ITEMS[INDEX]", "])xedni[smeti",
            "        return self.items[index:]", "return None", "if x:", "caf\u00e9", "'''", "a / b",
            "\r\n" + right, "                ", "self.items", "index", "http://x\nindex", "#"]:
        yield grader, [right], completion, []
    yield grader, ["caf\u00e9 \u65e5\u672c"], "cafe \u65e5\u672c", []
    yield grader, ["abc", "abd"], "abd", []
    for _ in range(30):
        yield (grader, ["".join(random.choices("ab(x) =", k=random.randint(1, 30)))],
               "".join(random.choices("ab(x) =", k=random.randint(1, 30))), [])


def classes():
    grader = "longbench-class"
    some = ["Animal", "City", "Country", "Other location", "Group or organization of persons",
            "Other entity", "Date", "Individual", "Definition of something", "Individual or group"]
    for answer, completion in [
            ("City", "City"), ("City", "Type: City"), ("City", "City\nType: Date"), ("City", "Date"),
            ("City", "City or Country"), ("City", "city"), ("City", ""), ("City", "\n\nCity"),
            ("City", "\n City"), ("City", "Other location, City, Date"), ("Date", "City\nDate"),
            ("Individual or group", "Individual or group"), ("Individual", "Individual or group"),
            ("Individual or group", "Individual"), ("Individual or group", "Individual, City"),
            ("Other entity", "Other location"), ("Other entity", "Other entity"),
            ("Other entity", "Other entity; Other location; Animal"), ("Animal", "Animals"),
            ("Definition of something", "Definition of something"), ("Country", "Countryside"),
            ("Date", "Type: Date\n"), ("Date", "Dat"), ("City", "CityCity"), ("City", "City City"),
            ("Date", "DateCityAnimal"), ("Nothing", "Nothing"), ("City", " "), ("City", "x" * 99),
            ("Group or organization of persons", "Group or organization of persons")]:
        yield grader, [answer], completion, some
    nested = ["a", "ab", "abc", "abcd", "b", "x"]
    for answer, completion in [("abcd", "abcd"), ("abcd", "abcd x"), ("abc", "abcd"), ("x", "abcdx"),
                               ("ab", "ab"), ("a", "ab"), ("abc", "abc b")]:
        yield grader, [answer], completion, nested
    yield grader, ["City", "Date"], "Date and City", some
    yield grader, ["City"], "City", []


def counts():
    for answer, completion in [
            ("5", "5"), ("5", "5."), ("5", "The answer is 5"), ("5", "5 of 12"), ("5", "12 of 5"),
            ("5", "55"), ("5", "05"), ("5", ""), ("5", "five"), ("5", "5 5 5"), ("5", "5, 6, 7"),
            ("5", "-5"), ("5", "5.0"), ("5", "0.5"), ("5", "1,5"), ("12", "12"), ("12", "1 2"),
            ("12", "x12y"), ("12", "12\n13"), ("12", "Paragraph 12"), ("5", "6"), ("5", "\n5\n"),
            ("0", "0"), ("0", "00"), ("17", "17 17 18"), ("5", "5th"), ("5", "5%"), ("5", "$5"),
            ("1000", "1,000"), ("1000", "1000"), ("5", "\u0665"), ("5", "\u00b2 5")]:
        if not any(c.isdecimal() and not c.isascii() for c in completion):
            yield "longbench-count", [answer], completion, []
            yield "longbench-paragraph", ["Paragraph " + answer], completion, []
    yield "longbench-count", ["5", "6"], "6 7", []
    yield "longbench-paragraph", ["See Paragraph 3, not Paragraph 4"], "Paragraph 3", []
    yield "longbench-paragraph", ["Paragraph x Paragraph 4"], "4 or 5", []


def retrievals():
    for answer, completion in [
            ("71432", "71432"), ("71432", " 71432."), ("71432", "The key is 71432"), ("71432", ""),
            ("71432", "71433"), ("71432", "1 71432"), ("71432", "71432 1"), ("71432", "071432"),
            ("71432", "714 32"), ("71432", "7,1432"), ("71432", "x71432y"), ("71432", "-71432"),
            ("71432", "71432.0"), ("71432", "none"), ("71432", "\n71432"), ("71432", "7143271432"),
            ("0007", "0007"), ("0007", "7"), ("71432", "71432\n5"), ("71432", "**71432**"),
            ("71432", "\"71432\""), ("71432", "a1b71432"), ("5", "5"), ("5", "55"), ("5", "5.5"),
            ("5", "5-5"), ("5", "(5)"), ("5", "[5]"), ("5", "five"), ("5", "\t5"), ("5", "#5"),
            ("5", "5%")]:
        yield "infinitebench-number", [answer], completion, []
    key = "cb59052b-9128-4979-9c0e-e1de4adcf73b"
    for completion in [
            key, '"' + key + '"', key + ".", "{" + key + "}", "'" + key + "'", key.upper(), "",
            "The value is " + key, "value:" + key, key + "x", "x" + key, key + "," + key, key[:-1],
            key + "\n" + "x", '{"k": "' + key + '"}', key.replace("-", " "), key + "!", key + "?",
            "(" + key + ")", "`" + key + "`", "-" + key, key + ";", key + "/", key + "\t5",
            key + "\u00a0x", "\n" + key, "  " + key + "  ", "x\n" + key, "=" + key, "none",
            "[" + key + "]", key + "...", "<" + key + ">"]:
        yield "infinitebench-word", [key], completion, []
    for answer, completion in [
            ("ACE", "ACE"), ("ACE", "ace"), ("ACE", " Ace."), ("ACE", "It is Ace!"), ("ACE", "PACE"),
            ("ACE", "Ace's"), ("ACE", "ACE VENTURA"), ("ACE", "ace-high"), ("ACE", "\"Ace\""),
            ("ACE", ""), ("ACE", "Melissa"), ("ACE", "Melissa\nAce"), ("ACE", "Ace:"), ("ACE", "A.C.E"),
            ("ACE VENTURA", "ACE VENTURA"), ("ACE", "(Ace)"), ("ACE", "Ace?"), ("ACE", "{Ace}"),
            ("ACE", "ace,melissa"), ("ACE", "ace/melissa"), ("ACE", "ACES"), ("ACE", "A CE"),
            ("MRS", "Mrs. Smith"), ("SMITH", "Mrs. Smith"), ("JO", "jo"), ("JO", "Jo Jo"), ("JO", "Joe"),
            ("JO", "\njo\n"), ("JO", "jo\u00a0x"), ("R2", "r2"), ("R2", "r-2"), ("O'NEILL", "O'Neill")]:
        yield "infinitebench-name", [answer], completion, []


CHOICE = ["A tall ship", "B"]
DEBUG = ["read_line", "C"]


def choices():
    for completion in [
            "B", "b", "A", "B.", " B", "B. A tall ship", "Because", "A tall ship", " A tall ship ",
            "", "\n", "The answer is B", "The answer is: B", "the answer is:B", "answer: B",
            "answer is", "answer is:", "answer is A", "my option is B", "option is A", "(B)", "(A)",
            "I choose B", "I choose A or B", "I choose AB", "it is BC", "\"B\"", "**B**", "e B",
            "the answer is A tall ship", "the answer is a tall ship", "none", "x A", "x\nB", "Answer: B",
            "Answer: A B", "C", "D", "d B", "the right answer is  B", "so, B.", "\u00e9 B", "answer is \u00e9",
            "the answer:\u00a0B"]:
        yield "infinitebench-choice", CHOICE, completion, []
    for completion in [
            "C", "C.", "C:", "C. read_line", "c.", " C.", "B.", "The answer is: C", "answer is: read_line",
            "is: C", "is: B", "is:", "is:C", "answer: C", "The correct option is: C", "correct option is: B",
            "read_line", "", "The answer is C", "The correct option is: Option C",
            "the correct option is:\nC", "option is: `read_line`", "is: 'C'", "this is: read_lines",
            "**C**", "- C", "is: - C", "is:  C", "is: x C", "The function is: read", "this: C", "C)",
            "answer:\u00e9C", "is: C is: B", "this is: B, the answer is: C", "Option C."]:
        yield "infinitebench-debug", DEBUG, completion, []


def numbers():
    for answer, completion in [
            ("5", "5"), ("5", "The value is 5"), ("5", "5."), ("5", "5 x"), ("5", "x 5"), ("5", "05"),
            ("5", "+5"), ("-5", "-5"), ("5", "-5"), ("-5", "- 5"), ("5", "`5`"), ("5", "\"5\""),
            ("5", "x=5"), ("5", "x: 5"), ("5", "x:5"), ("5", ""), ("5", "five"), ("5", "5.0"),
            ("0", "5.0"), ("5", "6\n5"), ("5", "5\n6"), ("1000", "1_000"), ("1000", "1,000"),
            ("1000", "1__000"), ("1000", "_1000"), ("1000", "1000_"), ("5", "**5**"), ("5", "'5'"),
            ("0", "-0"), ("0", "000"), ("-5", "-05"), ("123456789012345678901234567890",
                                                        "123456789012345678901234567890"),
            ("5", "+-5"), ("5", "\u00a05\u00a0")]:
        yield "infinitebench-run", [answer], completion, []
    for answer, completion in [
            ("5", "5"), ("5", "The largest is 5"), ("5", "5 6"), ("6", "5 6"), ("5", "55"), ("5", "05"),
            ("5", ""), ("5", "five"), ("5", "-5"), ("5", "5."), ("5", "5,6"), ("5", "x5"), ("5", "\n5"),
            ("1234", "1234"), ("1234", "1,234"), ("12.5", "12.5"), ("12.5", "12.50"), ("12.5", "12"),
            ("12.5", "12.5.5"), ("12.0", "12"), ("12.0", "12.0"), ("12.5", "x 12.5"), ("0.5", ".5"),
            ("0.5", "0.5"), ("5.0", "5."), ("5", "(5)"), ("5", "five 5"), ("5", "5 5"), ("5", "5%"),
            ("0", "0"), ("0", "00"), ("90", "\t90"), ("90", "9 0"),
            ("12345678901234567890", "12345678901234567890")]:
        yield "infinitebench-find", [answer], completion, []


def cases():
    yield from texts("f1", 40)
    yield from texts("f1-line", 10)
    yield from texts("rouge-l", 60)
    yield from texts("rouge-l-line", 10)
    yield from texts("rouge-lsum", 60)
    for part in (codes, classes, counts, retrievals, choices, numbers):
        yield from part()


def main():
    random.seed(23)
    rows = []
    for grader, answers, completion, classes_ in cases():
        if grader == "longbench-code" and is_between(answers, completion):
            continue
        try:
            value = float(score(grader, answers, completion, classes_))
        except Exception as refused:  # noqa: BLE001
            print(f"left out: {grader} {answers} {completion!r}: {refused}", file=sys.stderr)
            continue
        rows.append([grader, answers, classes_, completion, value])
    print("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]")


if __name__ == "__main__":
    main()
