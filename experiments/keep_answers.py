#!/usr/bin/env python3
"""Keeps the answers behind an experiment's figures, and makes the tables of its README from them.

    keep_answers.py keep RUN FOLDER       write FOLDER/answers.csv.gz, answers.json and curve.csv
    keep_answers.py tables [FILE.md...]   write the marked tables anew [of every file that has any]
    keep_answers.py tables --check ...    name the files that would change, and return 1

RUN is a folder that `allot run` or `allot export` has written.
README.md of this folder says what the files hold and how a table is marked.
Differences in the tables have intervals of this script's own, by the normal law over questions.
Those of `allot top` and `allot compare` are by bootstrap.
tests/worker/kept_answers_test.cpp grades the answers again and holds curve.csv to them.
"""
import argparse
import collections
import csv
import functools
import gzip
import io
import json
import math
import pathlib
import re
import shutil
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
COLUMNS = ("question", "task", "method", "prefill", "budget", "schedule", "version", "repeat",
           "score", "tokens", "expected", "text")
# Of export.json's model: what says which model and which questions gave the answers.
DIGESTS = ("architecture", "parameters", "weights_sha256", "model_sha256", "dataset_sha256")
# Files beside the experiments' READMEs that have marked tables.
DOCUMENTS = ("docs/shared-draws.md",)
MARK = re.compile(r"<!-- figures\s+(\{.*?\})\s*-->\n((?:\|[^\n]*\n)*)", re.S)


class Fault(Exception):
    """A file is not what it should be."""


# ---- Keeping.

def answer_rows(lines, tasks):
    """Returns the rows of answers.csv.gz, ordered. `lines` are those of evaluations.jsonl."""
    rows, expected = [], {}
    for line in lines:
        result = json.loads(line)
        unit = result["unit"]
        if unit["measure"] != "accuracy":
            continue
        texts = {}
        for answer in result.get("answers", {}).get("answers", []):
            question = answer["question"]
            if "0" != answer["left_out"] or "0" != answer["expected_left_out"]:
                raise Fault(f"{unit['unit_id']}: question {question} has a text that was cut short:"
                            " run it with a smaller spec.evaluation.chunkQuestions")
            texts[question] = answer["text"]
            expected[question] = json.dumps(answer["expected"], ensure_ascii=False)
        for score in result["scores"]:
            question = score["question"]
            rows.append((question, unit["prefill"] or "dense", unit["method"],
                         unit["schedule_name"], int(unit["policy_version"]),
                         int(unit["total_budget"]), unit["repeat"], tasks[score["task"]],
                         score["score"], score["tokens"], texts.get(question)))
    rows.sort(key=lambda row: row[:7])
    last = None
    for (question, prefill, method, schedule, version, budget, repeat, task, score, tokens,
         text) in rows:
        # Once a question: a table of its own would be a second file.
        right = expected.get(question, "") if question != last else ""
        last = question
        yield (question, task, method, prefill, budget, schedule, version, repeat, f"{score:.17g}",
               tokens, right, "" if text is None else json.dumps(text, ensure_ascii=False))


def keep(run, folder):
    exported = json.loads((run / "export.json").read_text())
    with open(run / "evaluations.jsonl", encoding="utf-8") as lines:
        rows = list(answer_rows(lines, exported["experiment_in_force"]["spec"]["task"]["tasks"]))
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows([COLUMNS, *rows])
    # Without a time and a name: equal answers give equal bytes.
    (folder / "answers.csv.gz").write_bytes(gzip.compress(table.getvalue().encode(), 9, mtime=0))
    model = {name: exported["model"][name] for name in DIGESTS if exported["model"].get(name)}
    (folder / "answers.json").write_text(json.dumps(
        {"model": model, "answers": len(rows), "texts": sum(bool(row[-1]) for row in rows),
         "build": exported["build"]}, indent=2) + "\n")
    shutil.copyfile(run / "curve.csv", folder / "curve.csv")


# ---- Tables.

class Kept:
    """An experiment's answers and curve.csv."""

    def __init__(self, folder):
        self.cells = {}  # (prefill, method, schedule, budget): row of curve.csv
        with open(folder / "curve.csv", newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["task"] == "all":
                    decode = row["method"].rpartition(" + ")[2]
                    self.cells[self.key(row["prefill"], decode, row["schedule"],
                                        row["total_budget"])] = row
        # Scores by cell and question, in the order of repeats.
        self.scores = collections.defaultdict(lambda: collections.defaultdict(list))
        with gzip.open(folder / "answers.csv.gz", "rt", newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                key = self.key(row["prefill"], row["method"], row["schedule"], row["budget"])
                self.scores[key][row["question"]].append(float(row["score"]))

    @staticmethod
    def key(prefill, method, schedule, budget):
        return prefill, method, schedule, int(budget)

    def find(self, name, budget):
        """Returns the key of a cell: "METHOD", "PREFILL + METHOD", "METHOD, SCHEDULE".

        Without a schedule it is uniform, or none for methods that have none.
        """
        prefill, _, method = name.rpartition(" + ")
        method, _, schedule = method.partition(", ")
        known = (("uniform", budget), ("adaptive", 0), ("dense", 0))
        for schedule, reads in ((schedule, budget),) if schedule else known:
            key = self.key(prefill or "dense", method, schedule, reads)
            if key in self.cells:
                return key
        raise Fault(f"curve.csv has no cell {name!r} with {budget} reads")

    def has(self, method, schedule, budget):
        return self.key("dense", method, schedule, budget) in self.cells

    def accuracy(self, key):
        row = self.cells[key]
        return (f"{float(row['accuracy']):.3f} [{float(row['ci_low']):.3f}, "
                f"{float(row['ci_high']):.3f}]")

    def difference(self, key, other):
        """Returns the mean over questions of the difference, 95 % by the normal law."""
        mine, others = self.scores[key], self.scores[other]
        if mine.keys() != others.keys():
            raise Fault(f"{key} and {other} have other questions")
        differences = [mean(mine[question]) - mean(others[question]) for question in mine]
        middle = mean(differences)
        squares = sum((value - middle) ** 2 for value in differences)
        margin = 1.96 * math.sqrt(squares / (len(differences) - 1) / len(differences))
        return f"{middle:+.3f} [{middle - margin:+.3f}, {middle + margin:+.3f}]"

    def by_repeat(self, key, other):
        """Returns the least and the largest difference of a repeat."""
        def repeats(cell):
            return [mean(scores) for scores in zip(*self.scores[cell].values())]
        differences = [a - b for a, b in zip(repeats(key), repeats(other))]
        return f"{min(differences):+.3f} to {max(differences):+.3f}"

    def share(self, key, column):
        """Returns what was read over what dense attention reads, in per cent."""
        row = self.cells[key]
        decode, keys = float(row["kv_bytes_share"]), float(row["key_share"])
        share = {"bytes": decode, "value rows": 2 * decode - keys,
                 "prefill bytes": float(row["prefill_bytes_share"])}[column]
        return f"{100 * share:.1f} %"


def mean(values):
    return sum(values) / len(values)


def label(name):
    method, comma, schedule = name.partition(", ")
    return f"`{method}`{comma}{schedule}"


def cell_text(kept, column, key):
    if column == "accuracy":
        return kept.accuracy(key)
    if column == "mean":
        return f"{float(kept.cells[key]['accuracy']):.3f}"
    if column == "sd of repeats":
        return f"{float(kept.cells[key]['repeat_sd']):.3f}"
    if column.startswith("over "):
        other = kept.find(column[len("over "):], key[3])
        return "" if other == key else kept.difference(key, other)
    return kept.share(key, column)


def table(kept, query):
    """Returns the lines of a table.

    {"reads": [8, 16], "layers": 8, "rows": [...]}: a column for each total budget, named by S.
        A row is "METHOD", or [METHOD, OTHER] for a difference, or [METHOD, OTHER, "repeats"].
        "cells" is a column of the other form, "accuracy" unless it is given.
    {"shares": [10, 15], "rows": [...]}: the same for budgets that are shares of dense attention's
        bytes. A uniform row is "none" where the share buys no uniform schedule.
    {"columns": ["accuracy", "over dense"], "rows": [["METHOD", 8], "METHOD"]}: a row for each cell,
        with its reads if the method has a budget.
    """
    lines = []
    if "reads" in query or "shares" in query:
        budgets = query.get("shares") or query["reads"]
        if "shares" in query:
            lines.append(["", *(f"{share} %" for share in budgets)])
        else:
            layers = query.get("layers", 1)
            head = [f"{reads / layers:g}" for reads in budgets]
            lines.append(["", ("S = " if layers > 1 else "reads = ") + head[0], *head[1:]])

        def find(name, budget):
            if "shares" in query and "," not in name and not kept.has(name, "uniform", budget):
                return None
            return kept.find(name, budget)

        for row in query["rows"]:
            name, *other = [row] if isinstance(row, str) else row
            keys = [find(name, budget) for budget in budgets]
            if not other:
                cells = [cell_text(kept, query.get("cells", "accuracy"), key) if key else "none"
                         for key in keys]
                lines.append([label(name), *cells])
                continue
            compare = kept.by_repeat if other[1:] == ["repeats"] else kept.difference
            others = [find(other[0], budget) for budget in budgets]
            cells = [compare(key, against) if key and against else "none"
                     for key, against in zip(keys, others)]
            lines.append([f"{label(name)} less {label(other[0])}", *cells])
    else:
        lines.append(["", *query["columns"]])
        for row in query["rows"]:
            name, reads = (row, 0) if isinstance(row, str) else row
            key = kept.find(name, reads)
            first = label(name) + (f", {reads} reads" if reads else "")
            lines.append([first, *(cell_text(kept, column, key) for column in query["columns"])])
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join("| " + " | ".join(line) + " |\n" for line in lines).replace("|  |", "| |")


def with_tables(file, kept_of=functools.cache(Kept)):
    """Returns the text of a Markdown file with the marked tables as they should be."""
    def marked(match):
        query = json.loads(match[1])
        kept = kept_of(FOLDER / query["of"] if "of" in query else file.resolve().parent)
        return match[0][:match.start(2) - match.start()] + table(kept, query)
    return MARK.sub(marked, file.read_text())


def marked_files():
    """Returns the files with marked tables: READMEs of folders with answers, and DOCUMENTS."""
    return [*sorted(file.with_name("README.md") for file in FOLDER.glob("*/answers.csv.gz")),
            *(FOLDER.parent / name for name in DOCUMENTS)]


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    keeping = verbs.add_parser("keep")
    keeping.add_argument("run", type=pathlib.Path)
    keeping.add_argument("folder", type=pathlib.Path)
    tables = verbs.add_parser("tables")
    tables.add_argument("--check", action="store_true")
    tables.add_argument("files", nargs="*", type=pathlib.Path)
    options = parser.parse_args(arguments)
    try:
        if options.verb == "keep":
            keep(options.run, options.folder)
            return 0
        stale = 0
        for file in options.files or marked_files():
            text = with_tables(file)
            if text == file.read_text():
                continue
            stale += 1
            print(file)
            if not options.check:
                file.write_text(text)
        return 1 if options.check and stale else 0
    except Fault as fault:
        print(f"keep_answers.py: {fault}", file=sys.stderr)
        return 65


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
