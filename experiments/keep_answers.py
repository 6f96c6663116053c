#!/usr/bin/env python3
"""Keeps the answers behind an experiment's figures, and makes the tables of its README from them.

    keep_answers.py keep RUN FOLDER       write FOLDER/answers.csv.gz, answers.json and curve.csv
    keep_answers.py fidelity RUN FOLDER   write FOLDER/fidelity.csv.gz of a run that measured it
    keep_answers.py variance RUN FOLDER   write FOLDER/variance.csv.gz of a run that measured it
    keep_answers.py prompts RUN FOLDER    write FOLDER/prompts.csv, what each prefill has read
    keep_answers.py tables [FILE.md...]   write the marked tables anew [of every file that has any]
    keep_answers.py tables --check ...    name the files that would change, and return 1
    keep_answers.py table FOLDER QUERY    print one table, of a query as the marks have it

RUN is a folder that `allot run` or `allot export` has written.
README.md of this folder says what the files hold and how a table is marked.
Differences in the tables have intervals of this script's own, by the normal law over questions.
Those of `allot top` and `allot compare` are by bootstrap.
Draws at equal fidelity have intervals by bootstrap over questions, seeded.
"""
import argparse
import collections
import csv
import functools
import gzip
import io
import json
import pathlib
import re
import shutil
import sys

from kept_tables import Fault, Kept, KeptSums, profile_table, read_rows, table

FOLDER = pathlib.Path(__file__).resolve().parent
COLUMNS = ("question", "task", "method", "prefill", "budget", "schedule", "version", "repeat",
           "score", "tokens", "expected", "text")
# What is summed over a question, by measure; the first divides what is measured everywhere.
SUMS = {"fidelity": ("steps", "agreed", "divergence", "states", "relative_error", "squared_error",
                     "draws", "unique_rows", "dense_rows", "cosine", "exceeded"),
        "variance": ("positions", "variance", "closed_form_positions", "closed_form", "states",
                     "unique_rows")}
# What prefills have read, by cell. curve.csv has the share of keys and values together.
PROMPT_SUMS = ("key_bytes", "value_bytes", "dense_bytes")
KEPT_FILES = ("answers.csv.gz", "fidelity.csv.gz", "variance.csv.gz")
LONGEST_TEXT = 2000  # bytes, as core/evaluation/answers.h
# Of export.json's model: what says which model and which questions gave the answers.
DIGESTS = ("architecture", "parameters", "weights_sha256", "model_sha256", "dataset_sha256")
# Files beside the experiments' READMEs that have marked tables.
DOCUMENTS = ("docs/learning.md", "docs/shared-draws.md")
MARK = re.compile(r"<!-- figures\s+(\{.*?\})\s*-->\n((?:\|[^\n]*\n)*)", re.S)


# ---- Keeping.

def whole_or_marked(answer):
    """Returns the text, with a mark where the longest kept length has left out its middle.

    None if it was cut shorter than that, for want of room.
    """
    text, end = answer["text"], answer.get("end", "")
    if answer["left_out"] == "0":
        return text
    if len((text + end).encode()) < LONGEST_TEXT - 8:  # both ends are whole characters
        return None
    return f"{text}\n... {answer['left_out']} bytes are left out ...\n{end}"


def cells_of(curve):
    """Returns what curve.csv has: of a learned schedule that is the newest version alone."""
    return {(row["prefill"], row["method"].rpartition(" + ")[2], row["schedule"],
             row["version"], row["total_budget"]) for row in read_rows(curve, open)}


def answer_rows(lines, tasks, cells):
    """Returns the rows of answers.csv.gz, ordered. `lines` are those of evaluations.jsonl."""
    rows, expected = [], {}
    for line in lines:
        result = json.loads(line)
        unit = result["unit"]
        cell = (unit["prefill"] or "dense", unit["method"], unit["schedule_name"],
                unit["policy_version"], unit["total_budget"])
        if unit["measure"] != "accuracy" or cell not in cells:
            continue
        texts = {}
        for answer in result.get("answers", {}).get("answers", []):
            question = answer["question"]
            text = whole_or_marked(answer)
            if text is None or "0" != answer["expected_left_out"]:
                raise Fault(f"{unit['unit_id']}: question {question} has a text that was cut short:"
                            " run it with a smaller spec.evaluation.chunkQuestions")
            texts[question] = text
            expected[question] = json.dumps(answer["expected"], ensure_ascii=False)
        for score in result["scores"]:
            question = score["question"]
            rows.append((question, *cell[:3], *map(int, cell[3:]), unit["repeat"],
                         tasks[score["task"]], score["score"], score["tokens"],
                         texts.get(question)))
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


def published(run):
    """Returns the schedules that a run has learned, with what a confirmation found of each."""
    return [{"total_budget": line["total_budget"],
             "schedule": " ".join(map(str, line["learned_schedule"])),
             **({name: line[name] for name in ("rival", "price_share")}
                if line.get("price_share") else {}),
             **({"published": line["published"]} if line.get("published") else {}),
             **({name: line["claim"][name] for name in ("mean", "low", "questions")}
                if line["claim"] else {})}
            for line in json.loads((run / "policy.json").read_text())["frontier"]]


def keep(run, folder):
    exported = json.loads((run / "export.json").read_text())
    with open(run / "evaluations.jsonl", encoding="utf-8") as lines:
        rows = list(answer_rows(lines, exported["experiment_in_force"]["spec"]["task"]["tasks"],
                                cells_of(run / "curve.csv")))
    write_table(folder / "answers.csv.gz", [COLUMNS, *rows])
    model = {name: exported["model"][name] for name in DIGESTS if exported["model"].get(name)}
    about = {"model": model, "answers": len(rows), "texts": sum(bool(row[-1]) for row in rows),
             "build": exported["build"]}
    if learned := published(run):
        about["published"] = learned
    (folder / "answers.json").write_text(json.dumps(about, indent=2) + "\n")
    shutil.copyfile(run / "curve.csv", folder / "curve.csv")


def sum_rows(lines, tasks, measure):
    """Returns the rows of fidelity.csv.gz or variance.csv.gz, ordered.

    `lines` are those of evaluations.jsonl.
    Results are sums by task, so that a chunk may have one question of a task at most.
    """
    rows, columns = [], SUMS[measure]
    for line in lines:
        result = json.loads(line)
        unit = result["unit"]
        if unit["measure"] != measure:
            continue
        if unit["question_count"] > len(tasks):
            raise Fault(f"{unit['unit_id']}: has {unit['question_count']} questions of"
                        f" {len(tasks)} tasks: run it with spec.evaluation.chunkQuestions"
                        f" {len(tasks)} or less")
        sums = collections.defaultdict(collections.Counter)
        for cell in (*result.get("agreement", []), *result.get("fidelity", [])):
            for column in columns:
                sums[cell["task"]][column] += float(cell.get(column, 0))
        first = unit["first_question"]
        for question in range(first, first + unit["question_count"]):
            task = question % len(tasks)  # as questions are chosen: of all tasks in turn
            if not sums[task][columns[0]]:
                continue  # an answer of one token, which is the prefill's
            rows.append((question, tasks[task], unit["method"], int(unit["total_budget"]),
                         *(f"{sums[task][column]:.9g}" for column in columns)))
    rows.sort(key=lambda row: row[:4])
    return rows


def keep_sums(run, folder, measure):
    exported = json.loads((run / "export.json").read_text())
    with open(run / "evaluations.jsonl", encoding="utf-8") as lines:
        rows = sum_rows(lines, exported["experiment_in_force"]["spec"]["task"]["tasks"], measure)
    write_table(folder / f"{measure}.csv.gz",
                [("question", "task", "method", "budget", *SUMS[measure]), *rows])


def keep_prompts(run, folder):
    cells = collections.defaultdict(collections.Counter)
    with open(run / "evaluations.jsonl", encoding="utf-8") as lines:
        for result in map(json.loads, lines):
            unit = result["unit"]
            if unit["measure"] == "accuracy":
                cells[unit["prefill"] or "dense", unit["method"], unit["schedule_name"],
                      int(unit["total_budget"])].update(
                          {name: int(result["prefill"][name]) for name in PROMPT_SUMS})
    with open(folder / "prompts.csv", "w", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [("prefill", "method", "schedule", "budget", *PROMPT_SUMS),
             *((*cell, *(sums[name] for name in PROMPT_SUMS))
               for cell, sums in sorted(cells.items()))])


# ---- Tables, which kept_tables.py makes.

@functools.cache
def kept_of(kind, *arguments, **named):
    return kind(*arguments, **named)


def answered(query, folder):
    """Returns the table of a query to a folder, or to its folders "runs" together.

    What is subtracted is of the folders "against", if they are named.
    With "task" a table is of one task's questions.
    """
    if "profiles" in query:
        return profile_table(folder, query)
    for measure in ("fidelity", "variance"):
        if measure in query:
            return table(kept_of(KeptSums, folder, measure), query)
    task = query.get("task", "all")
    kept = kept_of(Kept, *(folder / run for run in query.get("runs", ["."])), task=task)
    if "against" in query:
        kept = kept.against(kept_of(Kept, *(folder / run for run in query["against"]), task=task))
    return table(kept, query)


def with_tables(file):
    """Returns the text of a Markdown file with the marked tables as they should be."""
    def marked(match):
        query = json.loads(match[1])
        folder = FOLDER / query["of"] if "of" in query else file.resolve().parent
        return match[0][:match.start(2) - match.start()] + answered(query, folder)
    return MARK.sub(marked, file.read_text())


def kept_folders():
    """Returns the experiments with kept answers, of one run or of several in folders of theirs."""
    return sorted({FOLDER / file.relative_to(FOLDER).parts[0] for name in KEPT_FILES
                   for place in ("*", "*/*") for file in FOLDER.glob(f"{place}/{name}")})


def marked_files():
    """Returns the files with marked tables: READMEs of folders with answers, and DOCUMENTS."""
    return [*(folder / "README.md" for folder in kept_folders()),
            *(FOLDER.parent / name for name in DOCUMENTS)]


def write_tables(files, only_check):
    """Writes and names the files whose tables are stale. Returns 1 if it was only to name them."""
    stale = [file for file in files if with_tables(file) != file.read_text()]
    for file in stale:
        print(file)
        if not only_check:
            file.write_text(with_tables(file))
    return 1 if only_check and stale else 0


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("keep", "prompts", *SUMS):
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
        if options.verb == "keep":
            keep(options.run, options.folder)
        elif options.verb == "prompts":
            keep_prompts(options.run, options.folder)
        elif options.verb in SUMS:
            keep_sums(options.run, options.folder, options.verb)
        elif options.verb == "table":
            print(answered(options.query, options.folder), end="")
        else:
            return write_tables(options.files or marked_files(), options.check)
        return 0
    except Fault as fault:
        print(f"keep_answers.py: {fault}", file=sys.stderr)
        return 65


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
