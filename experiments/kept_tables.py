"""Makes the tables of the experiments' READMEs from kept answers and from kept sums.

keep_answers.py, which keeps them, says whose the intervals are.
"""
import collections
import copy
import csv
import functools
import gzip
import json
import math
import random
import re

# What a table may name: a sum, what it is divided by, and how the quotient is printed.
MEANS = {"divergence": ("divergence", "steps", "#.3g"), "agreement": ("agreed", "steps", ".1%"),
         "relative error": ("relative_error", "states", "#.3g"),
         "squared error": ("squared_error", "states", "#.3g"),
         "cosine": ("cosine", "states", ".3f"), "exceeded": ("exceeded", "states", ".2%"),
         "value rows": ("unique_rows", "dense_rows", ".1%"),
         "distinct rows": ("unique_rows", "states", ".1f"),
         "variance": ("variance", "positions", "#.3g"),
         "closed form": ("closed_form", "closed_form_positions", "#.3g")}
# Of curve.csv and prompts.csv, by what a table names them.
PREFILL_COLUMNS = {"prefill values": "prefill_values", "prefill keys": "prefill_keys",
                   "prefill bytes": "prefill_bytes_share", "density": "prefill_density",
                   "mass kept": "prefill_kept_mass", "least kept": "prefill_least_kept_mass"}
RESAMPLES = 500
# Student's t at 95 %, one-sided, by the number of runs.
STUDENT = {2: 6.314, 3: 2.920, 4: 2.353, 5: 2.132}
# Columns of a prefill's table, each of a column of curve.csv; empty where there is no such figure.
PREFILL = {"computed": ("prefill_density", 100, " %"), "first token": ("prefill_seconds", 1000, " ms"),
           "selection": ("prefill_selection_seconds", 1000, " ms"),
           "mass kept": ("prefill_kept_mass", 100, " %"),
           "least mass": ("prefill_least_kept_mass", 100, " %")}


class Fault(Exception):
    """A file is not what it should be."""


class Kept:
    """The answers and curve.csv of one run, or of several that have asked other questions.

    Only the questions of `task` count, unless it is "all".
    """

    def __init__(self, *folders, task="all"):
        rows = collections.defaultdict(list)  # by (prefill, method, schedule, budget)
        # Scores by cell and question, in the order of repeats.
        self.scores = collections.defaultdict(lambda: collections.defaultdict(list))
        for run, folder in enumerate(folders):
            for row in read_rows(folder / "curve.csv", open):
                if row["task"] == task:
                    # A task's line has no column prefill.
                    prefill, _, decode = row["method"].rpartition(" + ")
                    rows[self.key(prefill or "dense", decode, row["schedule"],
                                  row["total_budget"])].append(row)
            for row in read_rows(folder / "answers.csv.gz", gzip.open):
                if task in ("all", row["task"]):
                    key = self.key(row["prefill"], row["method"], row["schedule"], row["budget"])
                    self.scores[key][run, row["question"]].append(float(row["score"]))
        self.other = self  # whose cells are subtracted
        # By (prefill, method, schedule, budget): the row of curve.csv, or the runs' mean.
        self.cells = {key: found[0] if len(folders) == 1 else self.pooled(key, found)
                      for key, found in rows.items() if len(found) == len(folders)}
        prompts = folders[0] / "prompts.csv"
        for row in read_rows(prompts, open) if len(folders) == 1 and prompts.exists() else ():
            key = self.key(row["prefill"], row["method"], row["schedule"], row["budget"])
            dense = float(row["dense_bytes"]) / 2  # half are keys', half are values'
            self.cells[key] = {**self.cells[key], "prefill_keys": float(row["key_bytes"]) / dense,
                               "prefill_values": float(row["value_bytes"]) / dense}

    def pooled(self, key, rows):
        """Returns the means of the runs' rows, with 95 % by the normal law over questions."""
        row = {column: mean([float(row[column]) for row in rows])
               for column in ("kv_bytes_share", "key_share", "prefill_bytes_share")}
        middle, error = mean_and_error([mean(scores) for scores in self.scores[key].values()])
        return {**row, "accuracy": middle, "ci_low": middle - 1.96 * error,
                "ci_high": middle + 1.96 * error}

    def against(self, other):
        """Returns this, with differences from runs that have asked the same questions."""
        compared = copy.copy(self)
        compared.other = other
        return compared

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
        mine, others = self.scores[key], self.other.scores[other]
        if mine.keys() != others.keys():
            raise Fault(f"{key} and {other} have other questions")
        return mean_and_error([mean(mine[question]) - mean(others[question])
                               for question in mine])

    def difference(self, key, other):
        """Returns the difference with 95 % by the normal law."""
        middle, error = self.mean_difference(key, other)
        return f"{middle:+.3f} [{middle - 1.96 * error:+.3f}, {middle + 1.96 * error:+.3f}]"

    def bound(self, key, other):
        """Returns the difference with its one-sided lower bound, 95 % by the normal law."""
        middle, error = self.mean_difference(key, other)
        return f"{middle:+.3f}, above {middle - 1.645 * error:+.3f}"

    def by_holm(self, pairs):
        """Returns the differences with probabilities by Holm's rule: normal law, both sides."""
        found = [self.mean_difference(*pair) for pair in pairs]
        plain = [math.erfc(abs(middle) / error / 2 ** 0.5) if error else 1 for middle, error in found]
        cells, least = [""] * len(found), 0
        for rank, i in enumerate(sorted(range(len(found)), key=plain.__getitem__)):
            least = max(least, min(1, (len(found) - rank) * plain[i]))
            cells[i] = (f"{found[i][0]:+.3f}, "
                        + ("p < 0.001" if least < 0.001 else f"p = {least:.3f}"))
        return cells

    def by_repeat(self, key, other):
        """Returns the least and the largest difference of a repeat."""
        def repeats(scores):
            return [mean(values) for values in zip(*scores.values())]
        differences = [a - b for a, b in zip(repeats(self.scores[key]),
                                             repeats(self.other.scores[other]))]
        return f"{min(differences):+.3f} to {max(differences):+.3f}"

    def run_differences(self, key, other):
        def runs(scores):
            by_run = collections.defaultdict(list)
            for (run, _), repeats in scores.items():
                by_run[run].append(mean(repeats))
            return [mean(values) for values in by_run.values()]
        return [a - b for a, b in zip(runs(self.scores[key]), runs(self.other.scores[other]))]

    def by_run(self, key, other):
        """Returns the least and the largest difference of a run."""
        differences = self.run_differences(key, other)
        return f"{min(differences):+.3f} to {max(differences):+.3f}"

    def over_runs(self, key, other):
        """Returns the difference with its one-sided lower bound, 95 % by Student's t over runs."""
        differences = self.run_differences(key, other)
        middle, error = mean_and_error(differences)
        return f"{middle:+.3f}, above {middle - STUDENT[len(differences)] * error:+.3f}"

    def share(self, key, column):
        """Returns what was read over what dense attention reads, or a prefill keeps, in per cent."""
        row = self.cells[key]
        if column in PREFILL_COLUMNS:
            share = row.get(PREFILL_COLUMNS[column])
            if share is None:
                raise Fault(f"{key} has no {column!r}: keep_answers.py prompts writes it")
        else:
            decode, keys = float(row["kv_bytes_share"]), float(row["key_share"])
            share = {"bytes": decode, "keys": keys, "value rows": 2 * decode - keys}[column]
        return f"{100 * float(share):.1f} %" if share != "" else ""


class KeptSums:
    """The sums of fidelity.csv.gz or variance.csv.gz by question."""

    def __init__(self, folder, measure="fidelity"):
        self.file = f"{measure}.csv.gz"
        # [value, divisor] by what is measured, method, budget and question.
        self.sums = {name: collections.defaultdict(dict) for name in MEANS}
        for row in read_rows(folder / self.file, gzip.open):
            for name, (value, divisor, _) in MEANS.items():
                if value in row and divisor in row:
                    self.sums[name][row["method"], int(row["budget"])][int(row["question"])] = (
                        float(row[value]), float(row[divisor]))
        self.questions = self.common({method for method, _ in self.cells()})

    def cells(self):
        """Returns the questions of each cell: every measurement counts rows."""
        return self.sums["distinct rows"]

    def common(self, methods):
        """Returns the questions that each cell of the methods has.

        A run that was ended early has cells without the last questions.
        """
        cells = [set(cell) for (method, _), cell in self.cells().items()
                 if method in methods]
        questions = sorted(set.intersection(*cells)) if cells else []
        if not questions:
            raise Fault(f"{self.file} has no question that each cell of "
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
            raise Fault(f"{self.file} has no method {method!r}")
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
        raise Fault(f"{self.file} has no {budget} reads of {method!r}")

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
            raise Fault(f"{self.file} has no {budget} reads of {other!r}")
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


def mean_and_error(values):
    """Returns the mean and its standard error."""
    middle = mean(values)
    squares = sum((value - middle) ** 2 for value in values)
    return middle, math.sqrt(squares / (len(values) - 1) / len(values))


def read_rows(file, opener):
    with opener(file, "rt", newline="", encoding="utf-8") as text:
        yield from csv.DictReader(text)


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
        name, _, reads = column[len("over "):].partition(" @ ")
        other = kept.find(name, int(reads or key[3]))
        return "" if other == key else kept.difference(key, other)
    if column in PREFILL:
        name, times, unit = PREFILL[column]
        value = float(kept.cells[key][name] or 0)
        return f"{times * value:.{0 if unit == ' ms' else 1}f}{unit}" if value else ""
    return kept.share(key, column)


def sum_text(kept, measure, method, reads):
    return f"{kept.mean(measure, method, reads):{MEANS[measure][2]}}".replace("%", " %")


def sums_line(kept, query, row):
    """Returns the cells of a row of {"reads": ...} of sums."""
    measure = query.get("fidelity") or query["variance"]
    if isinstance(row, str):
        method, _, other = row.partition(": ")
        measure = other or measure
        text = [sum_text(kept, measure, method, reads) for reads in query["reads"]]
        if "slope" in query:
            means = [kept.mean(measure, method, reads) for reads in query["reads"]]
            text.append(f"{slope(query['reads'], means):.2f}")
        return [label(method) + (f": {other}" if other else ""), *text]
    name, other = row
    most = query.get("most", math.inf)
    cells = [kept.ratio(measure, name, other, reads, most) for reads in query["reads"]]
    if "mean" in query:
        cells.append(kept.mean_ratio(measure, name, other, query["mean"], most))
    return [f"{label(name)} as {label(other)}", *cells]


def slope(reads, means):
    """Returns the slope of the least-squares line of log mean over log reads."""
    x, y = [math.log(value) for value in reads], [math.log(value) for value in means]
    return (sum((a - mean(x)) * (b - mean(y)) for a, b in zip(x, y))
            / sum((a - mean(x)) ** 2 for a in x))


def column_lines(kept, query):
    """Returns the lines of a table of {"columns": ...}: a row for each cell."""
    lines = [["", *query["columns"]]]
    for row in query["rows"]:
        name, reads = (row, 0) if isinstance(row, str) else row
        if isinstance(kept, KeptSums):
            cells = [sum_text(kept, column, name, reads) for column in query["columns"]]
        else:
            key = kept.find(name, reads)
            cells = [cell_text(kept, column, key) for column in query["columns"]]
        lines.append([label(name) + (f", {reads} reads" if reads else ""), *cells])
    return lines


def budget_head(query):
    if "shares" in query:
        head = ["", *(f"{share} %" for share in query["shares"])]
    else:
        layers = query.get("layers", 1)
        first, *others = [f"{reads / layers:g}" for reads in query["reads"]]
        head = ["", ("S = " if layers > 1 else "reads = ") + first, *others]
    return head + [name for name in ("mean", "slope") if name in query]


def budget_line(kept, query, row):
    """Returns the cells of a row of {"reads": ...} or {"shares": ...}."""
    budgets = query.get("shares") or query["reads"]

    def find(of, name, budget):
        if "shares" in query and of.lacks_uniform(name, budget):
            return None
        return of.find(name, budget)

    name, *other = [row] if isinstance(row, str) else row
    keys = [find(kept, name, budget) for budget in budgets]
    if not other:
        return [label(name), *(cell_text(kept, query.get("cells", "accuracy"), key)
                               if key else "none" for key in keys)]
    if other[1:] == ["holm"]:
        others = [find(kept.other, other[0], budget) for budget in budgets]
        return [f"{label(name)} less {label(other[0])}", *kept.by_holm([*zip(keys, others)])]
    compare, times, at = {
        "": (kept.difference, 1, ""), "bound": (kept.bound, 1, ""),
        "repeats": (kept.by_repeat, 1, ""), "runs": (kept.by_run, 1, ""),
        "runs, bound": (kept.over_runs, 1, ""),
        "twice": (kept.difference, 2, " at 2 S"),
        "twice, bound": (kept.bound, 2, " at 2 S")}["".join(other[1:])]
    others = [find(kept.other, other[0], times * budget) for budget in budgets]
    return [f"{label(name)} less {label(other[0])}{at}",
            *(compare(key, against) if key and against else "none"
              for key, against in zip(keys, others))]


def profile_table(folder, query):
    """Returns the lines of a table of SALE's profiles, which hold a threshold and an error a head.

    {"profiles": ["sale-profile.json", ...], "beyond": 4}: a row for each file.
    """
    lines = [["", "tau", "largest error", "mean error", "mean output",
              f"heads from {query['beyond']} on", "blocks left out"]]
    for name in query["profiles"]:
        profile = json.loads((folder / name).read_text())
        tau, error, output, left_out = (sum(profile[values], [])
                                        for values in ("tau", "error", "output", "sparsity"))
        lines.append([f"`{name}`", " to ".join(f"{value:g}" for value in sorted({min(tau), max(tau)})),
                      f"{max(error):.2f}", f"{mean(error):.2f}", f"{mean(output):.1f}",
                      str(sum(value >= query["beyond"] for value in error)),
                      f"{mean(left_out):.1%}".replace("%", " %")])
    return joined(lines)


def table(kept, query):
    """Returns the lines of a table.

    {"reads": [8, 16], "layers": 8, "rows": [...]}: a column for each total budget, named by S.
        A row is "METHOD", or [METHOD, OTHER] for a difference, or [METHOD, OTHER, HOW].
        HOW is "bound", with the one-sided lower bound; "repeats" or "runs", the least and largest
        difference of one; "runs, bound", the bound over runs; "twice", where OTHER has twice the
        reads; "twice, bound"; or "holm", with the probability by Holm's rule over the row.
        "cells" is a column of the other form, "accuracy" unless it is given.
    {"shares": [10, 15], "rows": [...]}: the same for budgets that are shares of dense attention's
        bytes. A uniform row is "none" where the share buys no uniform schedule.
    {"fidelity": "divergence", "reads": [...], "layers": 8, "rows": [...]}: the means of
        fidelity.csv.gz. A row is "METHOD", or [METHOD, OTHER] for the share of OTHER's draws with
        which METHOD has the same mean, over the budgets up to "most". With "mean": [...] such
        a row ends with the geometric mean over these reads. Questions are those that every cell of
        the table's methods has.
    {"variance": "variance", ...}: the same of variance.csv.gz. A row of either may name another
        mean: "METHOD: closed form". With "slope": true the columns end with the log-log slope.
    {"columns": ["accuracy", "over dense"], "rows": [["METHOD", 8], "METHOD"]}: a row for each cell,
        with its reads if the method has a budget. "over METHOD @ 8" is over the cell of 8 reads.
        With "fidelity" or "variance" columns are means of that file.
    """
    if isinstance(kept, KeptSums):
        kept = kept.of({name.partition(": ")[0] for row in query["rows"]
                        for name in ([row] if isinstance(row, str) else row)
                        if isinstance(name, str)})
    if "columns" in query:
        lines = column_lines(kept, query)
    else:
        line_of = sums_line if isinstance(kept, KeptSums) else budget_line
        lines = [budget_head(query), *(line_of(kept, query, row) for row in query["rows"])]
        lines = [line + [""] * (len(lines[0]) - len(line)) for line in lines]
    return joined(lines)


def joined(lines):
    """Returns the text of a table whose first line is its head."""
    lines.insert(1, ["---"] * len(lines[0]))
    text = "".join("| " + " | ".join(line) + " |\n" for line in lines)
    return re.sub(r"\|  (?=\|)", "| ", text)
