#!/usr/bin/env python3
"""Holds the tables of experiments with kept answers to these answers.

    figures_test.py SOURCE      the checkout

tests/worker/kept_answers_test.cpp grades the answers again.
"""
import contextlib
import gzip
import io
import json
import pathlib
import re
import sys
import tempfile
import unittest

import checks

ROOT = None
keeper = None  # experiments/keep_answers.py

# Folders whose README has figures of runs that left no answers. A folder leaves the list when it is
# measured again; none may join it.
NOT_KEPT = {
    "qwen25-1-5b-gsm8k", "qwen25-1-5b-layer-budget", "qwen25-1-5b-mmlu-transfer",
    "qwen25-1-5b-one-hot", "qwen25-1-5b-prefill-32k", "qwen25-1-5b-prefill-8k",
    "qwen25-1-5b-ruler-32k", "qwen25-1-5b-ruler-8k", "recall-bernoulli", "recall-budget-sweep",
    "recall-fidelity", "recall-layer-budget", "recall-one-hot",
    "recall-prefill", "recall-prefill-bytes", "recall-prefill-sampling", "recall-sale",
    "recall-variance", "recall-vattention", "smollm2-layer-budget", "smollm2-niah",
    "smollm2-prefill",
}
MOST_NOT_KEPT = 22
# Folders without figures of ours: their models have not been run.
NOT_RUN = {"deepseek-r1-distill-qwen-7b-layer-budget", "llama31-8b-layer-budget",
           "llama31-8b-prefill-128k", "llama31-8b-ruler-32k"}

INTERVAL = re.compile(r"^\|.*\[[-+]?\d\.\d+, [-+]?\d\.\d+\]")


def unmarked(text):
    """Returns the rows with an interval that stand in no marked table."""
    return [line for line in keeper.MARK.sub("", text).splitlines() if INTERVAL.match(line)]


class KeptFigures(unittest.TestCase):

    def folders(self):
        return sorted(file.parent for file in (ROOT / "experiments").glob("*/answers.csv.gz"))

    def test_the_marked_tables_are_what_the_answers_give(self):
        self.assertTrue(self.folders())
        for file in keeper.marked_files():
            with self.subTest(file=str(file.relative_to(ROOT))):
                text = file.read_text()
                self.assertRegex(text, keeper.MARK)
                stale = [line for line, fresh in zip(text.splitlines(),
                                                     keeper.with_tables(file).splitlines())
                         if line != fresh]
                self.assertEqual([], stale, f"run experiments/keep_answers.py tables {file}")
                self.assertEqual(text, keeper.with_tables(file))

    def test_every_interval_of_a_kept_experiment_is_in_a_marked_table(self):
        for folder in self.folders():
            with self.subTest(folder=folder.name):
                self.assertEqual([], unmarked((folder / "README.md").read_text()))
        self.assertEqual(1, len(unmarked("| a | 0.500 [0.400, 0.600] |\n| b | 0.5 |\n")))

    def test_answers_are_kept_unless_a_shrinking_list_says_so(self):
        folders = {file.parent.name for file in (ROOT / "experiments").glob("*/experiment.yaml")}
        kept = {folder.name for folder in self.folders()}
        self.assertEqual(NOT_KEPT | NOT_RUN, folders - kept,
                         "a new experiment keeps its answers (experiments/README.md); a folder that"
                         " has them is taken off NOT_KEPT, and MOST_NOT_KEPT goes down")
        self.assertEqual(MOST_NOT_KEPT, len(NOT_KEPT))

    def test_a_table_that_differs_in_one_digit_is_found(self):
        folder = ROOT / "experiments/recall-shared-draws"
        text = (folder / "README.md").read_text()
        digit = re.search(r"^\| `.*?\| \d\.\d\d(\d)", text, re.M)
        other = str((int(digit[1]) + 1) % 10)
        with tempfile.TemporaryDirectory() as place:
            copy = pathlib.Path(place)
            for name in ("curve.csv", "answers.csv.gz"):
                (copy / name).symlink_to(folder / name)
            (copy / "README.md").write_text(text[:digit.start(1)] + other + text[digit.end(1):])
            self.assertEqual(text, keeper.with_tables(copy / "README.md"))
            with contextlib.redirect_stdout(io.StringIO()) as named:
                self.assertEqual(1, keeper.main(["tables", "--check", str(copy / "README.md")]))
            self.assertEqual(f"{copy}/README.md\n", named.getvalue())


class Keeping(unittest.TestCase):
    """A run of two questions, asked twice."""

    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)
        self.run = pathlib.Path(self.place.name)
        self.left_out = "0"
        (self.run / "curve.csv").write_text("method\n")
        (self.run / "export.json").write_text(json.dumps({
            "experiment_in_force": {"spec": {"task": {"tasks": ["niah", "freq"]}}},
            "model": {"weights_sha256": "ab", "dataset_sha256": "cd"}, "build": "allot 0.1.0"}))

    def unit(self, repeat, second):
        unit = {"unit_id": "u", "policy_version": "0", "method": "santa", "prefill": "",
                "schedule_name": "uniform", "total_budget": "8", "repeat": repeat,
                "measure": "accuracy"}
        answer = {"question": 1, "text": "a,\n\"b\"", "left_out": self.left_out,
                  "expected": ["b"], "expected_left_out": "0"}
        return json.dumps({"unit": unit, "answers": {"answers": [answer] if second < 1 else []},
                           "scores": [{"question": 0, "score": 1, "tokens": 3, "task": 0},
                                      {"question": 1, "score": second, "tokens": 4, "task": 1}]})

    def kept(self, *lines):
        (self.run / "evaluations.jsonl").write_text("\n".join(lines) + "\n")
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.run))
        keeper.keep(self.run, folder)
        return (folder / "answers.csv.gz").read_bytes(), json.loads((folder / "answers.json").read_text())

    def test_equal_answers_in_any_order_give_equal_bytes(self):
        units = [self.unit(0, 1), self.unit(1, 0.5)]
        data, about = self.kept(*units)
        self.assertEqual((data, about), self.kept(*reversed(units)))
        self.assertEqual({"answers": 4, "texts": 1, "build": "allot 0.1.0",
                          "model": {"weights_sha256": "ab", "dataset_sha256": "cd"}}, about)
        self.assertEqual(
            ["0,niah,santa,dense,8,uniform,0,0,1,3,,", "0,niah,santa,dense,8,uniform,0,1,1,3,,",
             '1,freq,santa,dense,8,uniform,0,0,1,4,"[""b""]",',
             '1,freq,santa,dense,8,uniform,0,1,0.5,4,,"""a,\\n\\""b\\"""""'],
            gzip.decompress(data).decode().splitlines()[1:])

    def test_a_text_that_was_cut_short_is_refused(self):
        self.left_out = "7"
        with self.assertRaisesRegex(keeper.Fault, "question 1 has a text that was cut short"):
            self.kept(self.unit(0, 0.5))


if __name__ == "__main__":
    ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
    keeper = checks.load_script(ROOT / "experiments/keep_answers.py")
    unittest.main()
