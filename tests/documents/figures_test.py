#!/usr/bin/env python3
"""Holds the tables of experiments with kept answers to these answers.

    figures_test.py SOURCE      the checkout

tests/worker/kept_answers_test.cpp grades the answers again.
"""
import contextlib
import csv
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
    "smollm2-layer-budget", "smollm2-niah", "smollm2-prefill",
}
MOST_NOT_KEPT = 3
# Folders without figures of ours: their models have not been run.
NOT_RUN = {"deepseek-r1-distill-qwen-7b-layer-budget", "llama31-8b-layer-budget",
           "llama31-8b-prefill-128k", "llama31-8b-ruler-32k"}

INTERVAL = re.compile(r"^\|.*\[[-+]?\d\.\d+, [-+]?\d\.\d+\]")


def unmarked(text):
    """Returns the rows with an interval that stand in no marked table."""
    return [line for line in keeper.MARK.sub("", text).splitlines() if INTERVAL.match(line)]


class KeptFigures(unittest.TestCase):

    def test_the_marked_tables_are_what_the_answers_give(self):
        self.assertTrue(keeper.kept_folders())
        for file in keeper.marked_files():
            with self.subTest(file=str(file.relative_to(ROOT))):
                text = file.read_text()
                self.assertRegex(text, keeper.MARK)
                written = keeper.with_tables(file)
                stale = [line for line, fresh in zip(text.splitlines(), written.splitlines())
                         if line != fresh]
                self.assertEqual([], stale, f"run experiments/keep_answers.py tables {file}")
                self.assertEqual(text, written)

    def test_every_interval_of_a_kept_experiment_is_in_a_marked_table(self):
        for folder in keeper.kept_folders():
            with self.subTest(folder=folder.name):
                self.assertEqual([], unmarked((folder / "README.md").read_text()))
        self.assertEqual(1, len(unmarked("| a | 0.500 [0.400, 0.600] |\n| b | 0.5 |\n")))

    def test_answers_are_kept_unless_a_shrinking_list_says_so(self):
        folders = {file.parent.name for file in (ROOT / "experiments").glob("*/experiment.yaml")}
        kept = {folder.name for folder in keeper.kept_folders()}
        self.assertEqual(NOT_KEPT | NOT_RUN, folders - kept,
                         "a new experiment keeps its answers (experiments/README.md); a folder that"
                         " has them is taken off NOT_KEPT, and MOST_NOT_KEPT goes down")
        self.assertEqual(MOST_NOT_KEPT, len(NOT_KEPT))

    def test_the_keys_and_values_of_prompts_are_the_bytes_of_curve_csv(self):
        files = [*(ROOT / "experiments").glob("*/prompts.csv")]
        self.assertTrue(files)
        for file in files:
            with self.subTest(folder=file.parent.name):
                for key, row in keeper.Kept(file.parent).cells.items():
                    self.assertAlmostEqual(float(row["prefill_bytes_share"]),
                                           (row["prefill_keys"] + row["prefill_values"]) / 2,
                                           9, key)

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


class Shares(unittest.TestCase):
    """Tables over shares of bytes, of which 10 % buys no uniform schedule."""

    def table(self, *rows):
        kept = keeper.Kept.__new__(keeper.Kept)
        kept.cells = {
            ("dense", "m", schedule, budget):
                {"accuracy": "0.5", "ci_low": "0.25", "ci_high": "0.75"}
            for schedule, budget in (("measured", 10), ("uniform", 20), ("measured", 20),
                                     ("uniform", 40))}
        return keeper.table(kept, {"shares": [10, 20], "rows": list(rows)}).splitlines()[2:]

    def test_a_share_without_a_uniform_schedule_has_none(self):
        cell = "0.500 [0.250, 0.750]"
        self.assertEqual([f"| `m` | none | {cell} |", f"| `m`, measured | {cell} | {cell} |"],
                         self.table("m", "m, measured"))

    def test_a_cell_that_is_not_there_is_a_fault(self):
        for name in ("n", "m, learned", "p + m"):
            with self.subTest(name=name), self.assertRaises(keeper.Fault):
                self.table(name)
        kept = keeper.Kept.__new__(keeper.Kept)
        kept.cells = {("dense", "m", "uniform", 20): {}}
        for budget in (10, 20):  # lost, and there
            self.assertFalse(kept.lacks_uniform("m", budget))
        with self.assertRaises(keeper.Fault):
            keeper.table(kept, {"shares": [10], "rows": ["m"]})


class Keeping(unittest.TestCase):
    """A run of two questions, asked twice."""

    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)
        self.run = pathlib.Path(self.place.name)
        self.left_out, self.text, self.end = "0", "a,\n\"b\"", ""
        self.version = "2"
        (self.run / "policy.json").write_text('{"frontier": []}')
        (self.run / "curve.csv").write_text("method,prefill,schedule,version,total_budget\n"
                                            "santa,dense,learned,2,8\n")
        (self.run / "export.json").write_text(json.dumps({
            "experiment_in_force": {"spec": {"task": {"tasks": ["niah", "freq"]}}},
            "model": {"weights_sha256": "ab", "dataset_sha256": "cd"}, "build": "allot 0.1.0"}))

    def unit(self, repeat, second):
        unit = {"unit_id": "u", "policy_version": self.version, "method": "santa", "prefill": "",
                "schedule_name": "learned", "total_budget": "8", "repeat": repeat,
                "measure": "accuracy"}
        answer = {"question": 1, "text": self.text, "left_out": self.left_out, "end": self.end,
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
            ["0,niah,santa,dense,8,learned,2,0,1,3,,", "0,niah,santa,dense,8,learned,2,1,1,3,,",
             '1,freq,santa,dense,8,learned,2,0,1,4,"[""b""]",',
             '1,freq,santa,dense,8,learned,2,1,0.5,4,,"""a,\\n\\""b\\"""""'],
            gzip.decompress(data).decode().splitlines()[1:])

    def test_of_a_learned_schedule_the_version_of_curve_csv_is_kept(self):
        newest, self.version = self.unit(0, 1), "1"
        self.assertEqual(self.kept(newest), self.kept(self.unit(0, 0.5), newest))

    def test_what_a_run_has_learned_is_kept(self):
        claim = {"mean": 0.25, "low": 0.125, "high": 0.5, "questions": 40}
        (self.run / "policy.json").write_text(json.dumps({"frontier": [
            {"total_budget": 8, "learned_schedule": [6, 2], "claim": claim},
            {"total_budget": 16, "learned_schedule": [8, 8], "claim": None}]}))
        self.assertEqual(
            [{"total_budget": 8, "schedule": "6 2", "mean": 0.25, "low": 0.125, "questions": 40},
             {"total_budget": 16, "schedule": "8 8"}], self.kept(self.unit(0, 1))[1]["published"])

    def test_what_prefills_read_is_summed_by_cell(self):
        def unit(method, measure="accuracy"):
            return json.dumps({
                "unit": {"prefill": "sale", "method": method, "schedule_name": "adaptive",
                         "total_budget": "0", "measure": measure},
                "prefill": {"key_bytes": "6", "value_bytes": "3", "dense_bytes": "20"}})
        (self.run / "evaluations.jsonl").write_text("\n".join(
            [unit("dense"), unit("santa"), unit("dense"), unit("dense", "fidelity")]))
        keeper.keep_prompts(self.run, self.run)
        self.assertEqual("prefill,method,schedule,budget,key_bytes,value_bytes,dense_bytes\n"
                         "sale,dense,adaptive,0,12,6,40\nsale,santa,adaptive,0,6,3,20\n",
                         (self.run / "prompts.csv").read_text())

    def test_a_text_that_was_cut_short_is_refused(self):
        self.left_out = "7"
        with self.assertRaisesRegex(keeper.Fault, "question 1 has a text that was cut short"):
            self.kept(self.unit(0, 0.5))

    def test_a_text_over_the_longest_length_has_a_mark_in_its_middle(self):
        self.left_out, self.text, self.end = "7", "a" * 500, "b" * 1500
        text = gzip.decompress(self.kept(self.unit(0, 0.5))[0]).decode()
        self.assertIn("aa\\n... 7 bytes are left out ...\\nbb", text)


class Differences(unittest.TestCase):

    def test_twice_takes_the_other_methods_cell_at_two_times_the_reads(self):
        kept = keeper.Kept(ROOT / "experiments/recall-shared-draws")
        pair = ["s2anta-sys draws=group", "s2anta-sys"]
        lines = keeper.table(kept, {"reads": [8], "layers": 8, "rows": [
            [*pair, "twice"], [*pair, "twice, bound"]]}).splitlines()[2:]
        key, other = kept.find(pair[0], 8), kept.find(pair[1], 16)
        label = "`s2anta-sys draws=group` less `s2anta-sys` at 2 S"
        self.assertEqual(f"| {label} | {kept.difference(key, other)} |", lines[0])
        self.assertEqual(f"| {label} | {kept.bound(key, other)} |", lines[1])
        middle, error = kept.mean_difference(key, other)
        self.assertEqual(f"{middle:+.3f}, above {middle - 1.645 * error:+.3f}",
                         kept.bound(key, other))


    def test_a_column_may_name_the_reads_of_the_other_cell(self):
        kept = keeper.Kept(ROOT / "experiments/recall-shared-draws")
        lines = keeper.table(kept, {"columns": ["over s2anta-sys @ 16"],
                                    "rows": [["s2anta-sys", 8], ["s2anta-sys", 16]]}).splitlines()
        key, other = kept.find("s2anta-sys", 8), kept.find("s2anta-sys", 16)
        self.assertEqual([f"| `s2anta-sys`, 8 reads | {kept.difference(key, other)} |",
                          "| `s2anta-sys`, 16 reads | |"], lines[2:])


class Profiles(unittest.TestCase):

    def test_a_row_has_a_profiles_thresholds_and_errors(self):
        with tempfile.TemporaryDirectory() as place:
            (pathlib.Path(place) / "sale.json").write_text(json.dumps({
                "tau": [[0.5, 0.25], [0.125, 0.5]], "error": [[1, 2], [3, 4]],
                "output": [[10, 20], [30, 40]], "sparsity": [[0, 0.5], [0.5, 0.5]]}))
            query = {"profiles": ["sale.json"], "beyond": 3}
            self.assertEqual(
                ["| | tau | largest error | mean error | mean output | heads from 3 on |"
                 " blocks left out |", "| --- | --- | --- | --- | --- | --- | --- |",
                 "| `sale.json` | 0.125 to 0.5 | 4.00 | 2.50 | 25.0 | 2 | 37.5 % |"],
                keeper.answered(query, pathlib.Path(place)).splitlines())


class SeveralRuns(unittest.TestCase):
    """Two runs, each with two questions of its own."""

    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folders = []
        for run, scores in enumerate(((1, 1), (0, 1))):
            folder = pathlib.Path(place.name) / str(run)
            folder.mkdir()
            self.folders.append(folder)
            columns = ("method", "prefill", "schedule", "total_budget", "task", "accuracy", "ci_low",
                       "ci_high", "kv_bytes_share", "key_share", "prefill_bytes_share")
            cells = [("m", "dense", schedule, 8, "all", 0, 0, 0, 0.25 * (run + 1), 1, 1)
                     for schedule in ("uniform", "learned")]
            with open(folder / "curve.csv", "w", encoding="utf-8") as file:
                csv.writer(file).writerows([columns, *cells])
            keeper.write_table(folder / "answers.csv.gz", [keeper.COLUMNS, *(
                (question, "niah", "m", "dense", 8, schedule, 0, 0, score, 1, "", "")
                for question in (0, 1) for schedule, score in (
                    ("uniform", 0), ("learned", scores[question])))])

    def test_a_cell_is_that_of_all_questions_of_all_runs(self):
        kept = keeper.Kept(*self.folders)
        lines = keeper.table(kept, {"reads": [8], "rows": [
            "m, learned", ["m, learned", "m"], ["m, learned", "m", "runs"],
            ["m, learned", "m", "bound"], ["m, learned", "m", "runs, bound"]]}).splitlines()[2:]
        # Of 1, 1, 0, 1: the mean's standard error is a quarter.
        self.assertEqual(["| `m`, learned | 0.750 [0.260, 1.240] |",
                          "| `m`, learned less `m` | +0.750 [+0.260, +1.240] |",
                          "| `m`, learned less `m` | +0.500 to +1.000 |",
                          "| `m`, learned less `m` | +0.750, above +0.339 |",
                          # Of 1 and 0.5: a quarter, too, and 6.314 of it with one degree of freedom.
                          "| `m`, learned less `m` | +0.750, above -0.829 |"], lines)
        self.assertEqual("37.5 %", kept.share(kept.find("m", 8), "bytes"))

    def test_a_table_of_one_task_has_its_questions_alone(self):
        folder = self.folders[0]
        with open(folder / "curve.csv", "a", encoding="utf-8") as file:
            file.writelines(f"m,,{schedule},8,freq,{accuracy},0.25,0.75,,,\n"
                            for schedule, accuracy in (("uniform", 0), ("learned", 0.5)))
        keeper.write_table(folder / "answers.csv.gz", [keeper.COLUMNS, *(
            (question, ("niah", "freq")[question % 2], "m", "dense", 8, schedule, 0, 0,
             int(schedule == "learned" and question != 3), 1, "", "")
            for question in range(4) for schedule in ("uniform", "learned"))])
        query = {"reads": [8], "task": "freq", "rows": ["m, learned", ["m, learned", "m"]]}
        # Of 1 and 0: a half is the mean's standard error, too.
        self.assertEqual(["| `m`, learned | 0.500 [0.250, 0.750] |",
                          "| `m`, learned less `m` | +0.500 [-0.480, +1.480] |"],
                         keeper.answered(query, folder).splitlines()[2:])

    def test_runs_are_set_against_others_of_the_same_questions(self):
        kept = keeper.Kept(*self.folders)
        swapped = keeper.Kept(*reversed(self.folders))  # 0, 1, 1, 1 less 1, 1, 0, 1
        lines = keeper.table(swapped.against(kept), {"reads": [8], "rows": [
            ["m, learned", "m, learned"], ["m, learned", "m, learned", "runs"]]}).splitlines()[2:]
        self.assertEqual(["| `m`, learned less `m`, learned | +0.000 [-0.800, +0.800] |",
                          "| `m`, learned less `m`, learned | -0.500 to +0.500 |"], lines)

    def test_probabilities_are_those_of_holms_rule(self):
        kept = keeper.Kept(*self.folders)
        found = {"a": (0.196, 0.1), "b": (-0.3, 0.1), "c": (0.1, 0.1), "d": (0, 0), "e": (1, 0.1)}
        kept.mean_difference = lambda key, _: found[key]
        # Plain: 0.050, 0.0027, 0.317, 1 and less than 1e-22; of five.
        self.assertEqual(["+0.196, p = 0.150", "-0.300, p = 0.011", "+0.100, p = 0.635",
                          "+0.000, p = 1.000", "+1.000, p < 0.001"],
                         kept.by_holm([(key, None) for key in found]))

    def test_a_cell_that_a_run_lacks_is_a_fault(self):
        file = self.folders[1] / "curve.csv"
        file.write_text("".join(file.read_text().splitlines(True)[:2]))
        with self.assertRaises(keeper.Fault):
            keeper.Kept(*self.folders).find("m, learned", 8)


class Fidelity(unittest.TestCase):
    """Own draws have a divergence of 1 / S, shared draws one of 1 / (2 S)."""

    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)
        self.run = pathlib.Path(self.place.name)
        (self.run / "export.json").write_text(json.dumps(
            {"experiment_in_force": {"spec": {"task": {"tasks": ["niah", "freq"]}}}}))

    @staticmethod
    def unit(method, budget, first=0, questions=2):
        divergence = (0.5 if "group" in method else 1) / budget
        return {"unit": {"unit_id": "u", "method": method, "total_budget": str(budget),
                         "measure": "fidelity", "first_question": first,
                         "question_count": questions},
                "agreement": [{"task": task, "steps": str(2 + task), "agreed": "2",
                               "divergence": divergence * (2 + task)} for task in (0, 1)],
                "fidelity": [{"task": task, "layer": layer, "states": "4", "relative_error": 2,
                              "squared_error": 1, "draws": "4", "unique_rows": "3",
                              "dense_rows": "9"} for task in (0, 1) for layer in (0, 1)]}

    def kept(self, units):
        lines = "".join(json.dumps(unit) + "\n" for unit in units)
        (self.run / "evaluations.jsonl").write_text(lines)
        keeper.keep_sums(self.run, self.run, "fidelity")
        return keeper.KeptSums(self.run)

    def units(self):
        return [self.unit(method, budget, first)
                for method in ("santa", "santa draws=group") for budget in (2, 4, 8, 16)
                for first in (0, 2, 4)]

    def test_a_line_has_one_questions_sums_over_layers(self):
        self.kept([self.unit("santa", 8, first=2), {"unit": {"measure": "accuracy"}}])
        lines = gzip.decompress((self.run / "fidelity.csv.gz").read_bytes()).decode().splitlines()
        self.assertEqual(["2,niah,santa,8,2,2,0.25,8,4,2,8,6,18,0,0",
                          "3,freq,santa,8,3,2,0.375,8,4,2,8,6,18,0,0"], lines[1:])

    def test_sums_of_several_questions_are_refused(self):
        with self.assertRaisesRegex(keeper.Fault, "chunkQuestions 2 or less"):
            self.kept([self.unit("santa", 8, questions=4)])

    def test_variance_has_slopes_and_closed_forms(self):
        units = [{"unit": {"unit_id": "u", "method": "santa", "total_budget": budget,
                           "measure": "variance", "first_question": 0, "question_count": 2},
                  "fidelity": [{"task": task, "layer": 0, "states": "4", "unique_rows": "6",
                                "positions": "4", "variance": 8 / budget,
                                "closed_form_positions": "2", "closed_form": 4 / budget}
                               for task in (0, 1)]} for budget in (2, 4, 8)]
        (self.run / "evaluations.jsonl").write_text("".join(json.dumps(u) + "\n" for u in units))
        keeper.keep_sums(self.run, self.run, "variance")
        lines = keeper.table(keeper.KeptSums(self.run, "variance"), {
            "variance": "variance", "layers": 2, "reads": [2, 4, 8], "slope": True,
            "rows": ["santa", "santa: closed form", "santa: distinct rows"]}).splitlines()
        self.assertEqual(["| | S = 1 | 2 | 4 | slope |", "| --- | --- | --- | --- | --- |",
                          "| `santa` | 1.00 | 0.500 | 0.250 | -1.00 |",
                          "| `santa`: closed form | 1.00 | 0.500 | 0.250 | -1.00 |",
                          "| `santa`: distinct rows | 1.5 | 1.5 | 1.5 | 0.00 |"], lines)

    def test_half_the_draws_have_the_same_divergence(self):
        kept = self.kept(self.units())
        self.assertEqual(0.125, kept.mean("divergence", "santa", 8))
        lines = keeper.table(kept, {
            "fidelity": "divergence", "layers": 2, "reads": [2, 8, 16], "mean": [16],
            "rows": [["santa draws=group", "santa"]]}).splitlines()
        self.assertEqual("| | S = 1 | 4 | 8 | mean |", lines[0])
        self.assertEqual("| `santa draws=group` as `santa` | below 1.00 [below 1.00, below 1.00] |"
                         " 0.50 [0.50, 0.50] | 0.50 [0.50, 0.50] | 0.50 [0.50, 0.50] |", lines[2])
        self.assertEqual("2.00 [2.00, 2.00]",
                         kept.ratio("divergence", "santa", "santa draws=group", 4, 16))
        self.assertEqual("above 1.00 [above 1.00, above 1.00]",
                         kept.ratio("divergence", "santa", "santa draws=group", 16, 16))

    def test_columns_are_means_of_a_cell(self):
        lines = keeper.table(self.kept(self.units()), {
            "fidelity": "divergence", "columns": ["divergence", "value rows"],
            "rows": [["santa", 8], ["santa draws=group", 16]]}).splitlines()
        self.assertEqual(["| | divergence | value rows |", "| --- | --- | --- |",
                          "| `santa`, 8 reads | 0.125 | 33.3 % |",
                          "| `santa draws=group`, 16 reads | 0.0312 | 33.3 % |"], lines)

    def test_questions_that_a_cell_lacks_are_left_out(self):
        units = [unit for unit in self.units() if unit["unit"]["first_question"] < 4
                 or unit["unit"]["method"] == "santa"]
        kept = self.kept(units)
        self.assertEqual([0, 1, 2, 3], kept.questions)
        self.assertEqual([0, 1, 2, 3, 4, 5], kept.of({"santa"}).questions)
        with self.assertRaisesRegex(keeper.Fault, "has no question"):
            kept.of({"top-k"})

    def test_budgets_between_two_are_found_by_logarithms(self):
        means = [(2, 0.5), (4, 0.25), (8, 0.0)]
        for target, budget in ((0.6, 0), (0.5, 2), (0.25, 4), (0.5 ** 1.5, 2 ** 1.5), (0, 8)):
            self.assertAlmostEqual(budget, keeper.KeptSums.budget_at(means, target))
        self.assertEqual(float("inf"), keeper.KeptSums.budget_at(means[:2], 0.2))


if __name__ == "__main__":
    ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
    sys.path.insert(0, str(ROOT / "experiments"))  # which keep_answers.py imports from
    keeper = checks.load_script(ROOT / "experiments/keep_answers.py")
    unittest.main()
