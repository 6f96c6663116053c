#!/usr/bin/env python3
"""Keeps the answers behind an experiment's figures, and makes the tables of its README from them.

    keep_answers.py keep RUN FOLDER       write FOLDER/answers.csv.gz, answers.json and curve.csv
    keep_answers.py fidelity RUN FOLDER   write FOLDER/fidelity.csv.gz of a run that measured it
    keep_answers.py tables [FILE.md...]   write the marked tables anew [of every file that has any]
    keep_answers.py tables --check ...    name the files that would change, and return 1
    keep_answers.py table FOLDER QUERY    print one table, of a query as the marks have it

RUN is a folder that `allot run` or `allot export` has written.
README.md of this folder says what the files hold and how a table is marked.
Differences in the tables have intervals of this script's own, by the normal law over questions.
Those of `allot top` and `allot compare` are by bootstrap.
Draws at equal fidelity have intervals by bootstrap over questions, seeded.
tests/worker/kept_answers_test.cpp grades the answers again and holds curve.csv to them.
"""
import argparse
import collections
import copy
import csv
import functools
import gzip
import io
import json
import math
import pathlib
import random
import re
import shutil
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
COLUMNS = ("question", "task", "method", "prefill", "budget", "schedule", "version", "repeat",
           "score", "tokens", "expected", "text")
FIDELITY_COLUMNS = ("question", "task", "method", "budget", "steps", "agreed", "divergence",
                    "states", "relative_error", "squared_error", "draws", "unique_rows",
                    "dense_rows")
# What is summed over a question, and what it is divided by.
FIDELITY = {"divergence": ("divergence", "steps"), "relative error": ("relative_error", "states"),
            "agreement": ("agreed", "steps"), "squared error": ("squared_error", "states")}
RESAMPLES = 500
# Of export.json's model: what says which model and which questions gave the answers.
DIGESTS = ("architecture", "parameters", "weights_sha256", "model_sha256", "dataset_sha256")
# Columns of a prefill's table, each of a column of curve.csv; empty where there is no such figure.
PREFILL = {"computed": ("prefill_density", 100, " %"), "first token": ("prefill_seconds", 1000, " ms"),
           "selection": ("prefill_selection_seconds", 1000, " ms"),
           "mass kept": ("prefill_kept_mass", 100, " %"),
           "least mass": ("prefill_least_kept_mass", 100, " %")}
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


def write_table(file, rows):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    # Without a time and a name: equal answers give equal bytes.
    file.write_bytes(gzip.compress(text.getvalue().encode(), 9, mtime=0))


def keep(run, folder):
    exported = json.loads((run / "export.json").read_text())
    with open(run / "evaluations.jsonl", encoding="utf-8") as lines:
        rows = list(answer_rows(lines, exported["experiment_in_force"]["spec"]["task"]["tasks"]))
    write_table(folder / "answers.csv.gz", [COLUMNS, *rows])
    model = {name: exported["model"][name] for name in DIGESTS if exported["model"].get(name)}
    (folder / "answers.json").write_text(json.dumps(
        {"model": model, "answers": len(rows), "texts": sum(bool(row[-1]) for row in rows),
         "build": exported["build"]}, indent=2) + "\n")
    shutil.copyfile(run / "curve.csv", folder / "curve.csv")


def fidelity_rows(lines, tasks):
    """Returns the rows of fidelity.csv.gz, ordered. `lines` are those of evaluations.jsonl.

    Results are sums by task, so that a chunk may have one question of a task at most.
    """
    rows = []
    for line in lines:
        result = json.loads(line)
        unit = result["unit"]
        if unit["measure"] != "fidelity":
            continue
        if unit["question_count"] > len(tasks):
            raise Fault(f"{unit['unit_id']}: has {unit['question_count']} questions of"
                        f" {len(tasks)} tasks: run it with spec.evaluation.chunkQuestions"
                        f" {len(tasks)} or less")
        sums = collections.defaultdict(collections.Counter)
        for cell in (*result.get("agreement", []), *result.get("fidelity", [])):
            for column in FIDELITY_COLUMNS[4:]:
                sums[cell["task"]][column] += float(cell.get(column, 0))
        first = unit["first_question"]
        for question in range(first, first + unit["question_count"]):
            task = question % len(tasks)  # as questions are chosen: of all tasks in turn
            if not sums[task]["steps"]:
                continue  # an answer of one token, which is the prefill's
            rows.append((question, tasks[task], unit["method"], int(unit["total_budget"]),
                         *(f"{sums[task][column]:.9g}" for column in FIDELITY_COLUMNS[4:])))
    rows.sort(key=lambda row: row[:4])
    return rows


def keep_fidelity(run, folder):
    exported = json.loads((run / "export.json").read_text())
    with open(run / "evaluations.jsonl", encoding="utf-8") as lines:
        rows = fidelity_rows(lines, exported["experiment_in_force"]["spec"]["task"]["tasks"])
    write_table(folder / "fidelity.csv.gz", [FIDELITY_COLUMNS, *rows])


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

    def lacks_uniform(self, name, budget):
        """Returns True if the budget has other schedules of the method, and others have uniform."""
        prefill, _, method = name.rpartition(" + ")
        cells = [(schedule, reads) for before, decode, schedule, reads in self.cells
                 if (before, decode) == (prefill or "dense", method)]
        return (("uniform", budget) not in cells
                and any(schedule == "uniform" for schedule, _ in cells)
                and any(reads == budget for _, reads in cells))

    def accuracy(self, key):
        row = self.cells[key]
        return (f"{float(row['accuracy']):.3f} [{float(row['ci_low']):.3f}, "
                f"{float(row['ci_high']):.3f}]")

    def mean_difference(self, key, other):
        """Returns the mean over questions of the difference, and its standard error."""
        mine, others = self.scores[key], self.scores[other]
        if mine.keys() != others.keys():
            raise Fault(f"{key} and {other} have other questions")
        differences = [mean(mine[question]) - mean(others[question]) for question in mine]
        middle = mean(differences)
        squares = sum((value - middle) ** 2 for value in differences)
        return middle, math.sqrt(squares / (len(differences) - 1) / len(differences))

    def difference(self, key, other):
        """Returns the difference with 95 % by the normal law."""
        middle, error = self.mean_difference(key, other)
        return f"{middle:+.3f} [{middle - 1.96 * error:+.3f}, {middle + 1.96 * error:+.3f}]"

    def bound(self, key, other):
        """Returns the difference with its one-sided lower bound, 95 % by the normal law."""
        middle, error = self.mean_difference(key, other)
        return f"{middle:+.3f}, above {middle - 1.645 * error:+.3f}"

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


class KeptFidelity:
    """The sums of fidelity.csv.gz by question."""

    def __init__(self, folder):
        # [value, divisor] by what is measured, method, budget and question.
        self.sums = {name: collections.defaultdict(dict) for name in FIDELITY}
        with gzip.open(folder / "fidelity.csv.gz", "rt", newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                for name, (value, divisor) in FIDELITY.items():
                    self.sums[name][row["method"], int(row["budget"])][int(row["question"])] = (
                        float(row[value]), float(row[divisor]))
        self.questions = self.common({method for method, _ in self.sums["divergence"]})

    def common(self, methods):
        """Returns the questions that each cell of the methods has.

        A run that was ended early has cells without the last questions.
        """
        cells = [set(cell) for (method, _), cell in self.sums["divergence"].items()
                 if method in methods]
        questions = sorted(set.intersection(*cells)) if cells else []
        if not questions:
            raise Fault("fidelity.csv.gz has no question that each cell of "
                        + ", ".join(sorted(methods)) + " has")
        return questions

    def of(self, methods):
        """Returns the sums for tables of these methods, over the questions that they share."""
        narrowed = copy.copy(self)
        narrowed.questions = self.common(methods)
        return narrowed

    def curve(self, measure, method):
        """Returns (budget, [value by question], [divisor by question]), budgets ascending."""
        cells = sorted((budget, cell) for (name, budget), cell in self.sums[measure].items()
                       if name == method)
        if not cells:
            raise Fault(f"fidelity.csv.gz has no method {method!r}")
        return [(budget, *zip(*(cell[question] for question in self.questions)))
                for budget, cell in cells]

    @staticmethod
    def means(curve, times):
        """Returns (budget, mean) with question i counted times[i] times."""
        return [(budget, sum(map(float.__mul__, values, times)) /
                 sum(map(float.__mul__, divisors, times))) for budget, values, divisors in curve]

    def mean(self, measure, method, budget):
        every = [1.0] * len(self.questions)
        for reads, value in self.means(self.curve(measure, method), every):
            if reads == budget:
                return value
        raise Fault(f"fidelity.csv.gz has no {budget} reads of {method!r}")

    @staticmethod
    def budget_at(means, target):
        """Returns the budget whose mean is `target`, by logarithms between neighbours.

        0 if the smallest budget is below it already, infinity if no budget comes down to it.
        """
        for i, (budget, value) in enumerate(means):
            if value <= target:
                if i == 0:
                    return 0.0 if value < target else float(budget)
                if value <= 0:
                    return float(budget)
                above, high = means[i - 1]
                part = math.log(high / target) / math.log(high / value)
                return above * (budget / above) ** part
        return math.inf

    @functools.cache
    def ratios(self, measure, method, other, most):
        """Returns the ratio at each budget of `other` up to `most`, and its resampled values."""
        curve, others = ([cell for cell in self.curve(measure, name) if cell[0] <= most]
                         for name in (method, other))
        draw, count = random.Random(1), len(self.questions)
        found = []
        for sample in range(1 + RESAMPLES):
            times = [1.0] * count
            if sample > 0:
                times = [0.0] * count
                for _ in range(count):
                    times[draw.randrange(count)] += 1
            means = self.means(curve, times)
            found.append({budget: self.budget_at(means, value) / budget
                          for budget, value in self.means(others, times)})
        ends = {budget: (curve[0][0] / budget, curve[-1][0] / budget) for budget in found[0]}
        return found[0], found[1:], ends

    def ratio(self, measure, method, other, budget, most):
        """Returns the share of draws of `other` with which `method` has its mean, with 95 %."""
        middle, samples, ends = self.ratios(measure, method, other, most)
        if budget not in middle:
            raise Fault(f"fidelity.csv.gz has no {budget} reads of {other!r}")
        low, high = ends[budget]

        def text(value):
            if value == 0:
                return f"below {low:.2f}"
            return f"above {high:.2f}" if value == math.inf else f"{value:.2f}"
        first, last = inner([sample[budget] for sample in samples])
        return f"{text(middle[budget])} [{text(first)}, {text(last)}]"

    def mean_ratio(self, measure, method, other, budgets, most):
        """Returns the geometric mean of the ratios at `budgets`, with 95 %.

        A ratio beyond the measured budgets counts as the ratio at the last of them.
        """
        middle, samples, ends = self.ratios(measure, method, other, most)

        def over(ratios):
            return math.exp(mean([math.log(min(max(ratios[budget], ends[budget][0]),
                                               ends[budget][1])) for budget in budgets]))
        first, last = inner([over(sample) for sample in samples])
        return f"{over(middle):.2f} [{first:.2f}, {last:.2f}]"


def inner(samples):
    """Returns the ends of the middle 95 %."""
    ordered = sorted(samples)
    return ordered[int(0.025 * len(ordered))], ordered[int(0.975 * len(ordered))]


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
    if column in PREFILL:
        name, times, unit = PREFILL[column]
        value = float(kept.cells[key][name] or 0)
        return f"{times * value:.{0 if unit == ' ms' else 1}f}{unit}" if value else ""
    return kept.share(key, column)


def fidelity_line(kept, query, row):
    measure = query["fidelity"]
    if isinstance(row, str):
        means = [kept.mean(measure, row, reads) for reads in query["reads"]]
        return [label(row), *(f"{value:.1%}" if measure == "agreement" else f"{value:#.3g}"
                              for value in means)]
    name, other = row
    most = query.get("most", math.inf)
    cells = [kept.ratio(measure, name, other, reads, most) for reads in query["reads"]]
    if "mean" in query:
        cells.append(kept.mean_ratio(measure, name, other, query["mean"], most))
    return [f"{label(name)} as {label(other)}", *cells]


def table(kept, query):
    """Returns the lines of a table.

    {"reads": [8, 16], "layers": 8, "rows": [...]}: a column for each total budget, named by S.
        A row is "METHOD", or [METHOD, OTHER] for a difference, or [METHOD, OTHER, HOW].
        HOW is "repeats"; "twice", where OTHER has twice the reads; or "twice, bound", with the
        one-sided lower bound of that difference.
        "cells" is a column of the other form, "accuracy" unless it is given.
    {"shares": [10, 15], "rows": [...]}: the same for budgets that are shares of dense attention's
        bytes. A uniform row is "none" where the share buys no uniform schedule.
    {"fidelity": "divergence", "reads": [...], "layers": 8, "rows": [...]}: the means of
        fidelity.csv.gz. A row is "METHOD", or [METHOD, OTHER] for the share of OTHER's draws with
        which METHOD has the same mean, over the budgets up to "most". With "mean": [...] such
        a row ends with the geometric mean over these reads. Questions are those that every cell of
        the table's methods has.
    {"columns": ["accuracy", "over dense"], "rows": [["METHOD", 8], "METHOD"]}: a row for each cell,
        with its reads if the method has a budget.
    """
    lines = []
    if "fidelity" in query:
        kept = kept.of({name for row in query["rows"]
                        for name in ([row] if isinstance(row, str) else row)})
    if "reads" in query or "shares" in query:
        budgets = query.get("shares") or query["reads"]
        if "shares" in query:
            lines.append(["", *(f"{share} %" for share in budgets)])
        else:
            layers = query.get("layers", 1)
            head = [f"{reads / layers:g}" for reads in budgets]
            lines.append(["", ("S = " if layers > 1 else "reads = ") + head[0], *head[1:]])
        if "mean" in query:
            lines[0].append("mean")
        for row in query["rows"] if "fidelity" in query else ():
            line = fidelity_line(kept, query, row)
            lines.append(line + [""] * (len(lines[0]) - len(line)))

        def find(name, budget):
            if "shares" in query and kept.lacks_uniform(name, budget):
                return None
            return kept.find(name, budget)

        for row in query["rows"] if "fidelity" not in query else ():
            name, *other = [row] if isinstance(row, str) else row
            keys = [find(name, budget) for budget in budgets]
            if not other:
                cells = [cell_text(kept, query.get("cells", "accuracy"), key) if key else "none"
                         for key in keys]
                lines.append([label(name), *cells])
                continue
            compare, times, at = {
                "": (kept.difference, 1, ""), "repeats": (kept.by_repeat, 1, ""),
                "twice": (kept.difference, 2, " at 2 S"),
                "twice, bound": (kept.bound, 2, " at 2 S")}["".join(other[1:])]
            others = [find(other[0], times * budget) for budget in budgets]
            cells = [compare(key, against) if key and against else "none"
                     for key, against in zip(keys, others)]
            lines.append([f"{label(name)} less {label(other[0])}{at}", *cells])
    else:
        lines.append(["", *query["columns"]])
        for row in query["rows"]:
            name, reads = (row, 0) if isinstance(row, str) else row
            key = kept.find(name, reads)
            first = label(name) + (f", {reads} reads" if reads else "")
            lines.append([first, *(cell_text(kept, column, key) for column in query["columns"])])
    lines.insert(1, ["---"] * len(lines[0]))
    text = "".join("| " + " | ".join(line) + " |\n" for line in lines)
    return re.sub(r"\|  (?=\|)", "| ", text)


@functools.cache
def kept_of(kind, folder):
    return kind(folder)


def answered(query, folder):
    """Returns the table of a query to a folder."""
    return table(kept_of(KeptFidelity if "fidelity" in query else Kept, folder), query)


def with_tables(file):
    """Returns the text of a Markdown file with the marked tables as they should be."""
    def marked(match):
        query = json.loads(match[1])
        folder = FOLDER / query["of"] if "of" in query else file.resolve().parent
        return match[0][:match.start(2) - match.start()] + answered(query, folder)
    return MARK.sub(marked, file.read_text())


def marked_files():
    """Returns the files with marked tables: READMEs of folders with answers, and DOCUMENTS."""
    return [*sorted(file.with_name("README.md") for file in FOLDER.glob("*/answers.csv.gz")),
            *(FOLDER.parent / name for name in DOCUMENTS)]


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("keep", "fidelity"):
        keeping = verbs.add_parser(verb)
        keeping.add_argument("run", type=pathlib.Path)
        keeping.add_argument("folder", type=pathlib.Path)
    one = verbs.add_parser("table")
    one.add_argument("folder", type=pathlib.Path)
    one.add_argument("query", type=json.loads)
    tables = verbs.add_parser("tables")
    tables.add_argument("--check", action="store_true")
    tables.add_argument("files", nargs="*", type=pathlib.Path)
    options = parser.parse_args(arguments)
    try:
        if options.verb in ("keep", "fidelity"):
            (keep if options.verb == "keep" else keep_fidelity)(options.run, options.folder)
            return 0
        if options.verb == "table":
            print(answered(options.query, options.folder), end="")
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
