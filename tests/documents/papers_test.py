#!/usr/bin/env python3
"""Holds experiments/papers to its papers.yaml and paper.yaml files.

    papers_test.py SOURCE      the checkout

tests/core/paper_runs_test.cpp parses the experiment of every run.
"""
import pathlib
import re
import sys
import tempfile
import unittest

import checks
import yaml

ROOT = None
maker = None  # experiments/papers/make_readme.py


def numbers_in(text):
    """"2, 4, ..., 256" doubles in between."""
    numbers, doubles = [], False
    for word in text.split(","):
        if word.strip() == "...":
            doubles = True
            continue
        while doubles and numbers[-1] * 2 < int(word):
            numbers.append(numbers[-1] * 2)
        numbers.append(int(word))
    return numbers


class ShippedPapers(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = ROOT / "experiments/papers"
        self.sources, self.experiments = maker.read(self.folder)
        self.readme = (self.folder / "README.md").read_text()

    def test_the_readmes_are_what_the_script_makes(self):
        for file, text in maker.readmes(self.folder).items():
            with self.subTest(file=file):
                self.assertEqual(file.read_text(), text, "run experiments/papers/make_readme.py")

    def test_every_folder_is_listed_and_every_experiment_named_exists(self):
        self.assertGreaterEqual(len(self.experiments), 14)
        folders = {file.parent.name for file in self.folder.glob("*/experiment.yaml")}
        self.assertEqual(folders, set(self.experiments))
        for one in self.experiments.values():
            with self.subTest(folder=one["name"]):
                self.assertEqual(one["name"], one["runs"][0]["folder"])
                self.assertIn(f"[{one['name']}]({one['name']})", self.readme)
                for run in one["runs"]:
                    self.assertTrue((self.folder / run["folder"] / "experiment.yaml").exists())
        named = re.findall(r"[^\w/-]((?:recall|santa|sale|sampleattention|vattention)-[a-z0-9-]+)",
                           "".join(left["why"] for source in self.sources
                                   for left in source["without"]))
        self.assertGreater(len(named), 2)
        for name in named:
            with self.subTest(name=name):
                self.assertTrue((self.folder / name).exists() or (self.folder.parent / name).exists())

    def test_models_and_data_of_each_run_are_named(self):
        for one in self.experiments.values():
            for run in one["runs"]:
                with self.subTest(folder=one["name"], run=run["title"]):
                    spec = maker.experiment_of(self.folder, run)["spec"]
                    path = spec["model"]["path"]
                    self.assertTrue(path.startswith("/models/"))
                    self.assertIn(path.removeprefix("/models/"), one["model"])
                    self.assertIn("`" + path, self.readme)
                    self.assertIn("`" + spec["task"].get("path", ""), self.readme)
                    # A paper's float32 is that of keys and values as well.
                    if spec["model"].get("dtype") == "float32":
                        self.assertEqual("float32", spec["model"]["kvDtype"])

    def test_budgets_are_the_draws_of_a_layer_that_their_lines_name(self):
        line = re.compile(r"budgets: \[([0-9, ]+)\]  # over ([0-9]+) layers: [Sk] = ([0-9., ]+)\n")
        budgets = 0
        for name in self.experiments:
            with self.subTest(folder=name):
                text = (self.folder / name / "experiment.yaml").read_text()
                found = line.search(text)
                self.assertEqual(" budgets: " in text, found is not None)
                if not found:
                    continue
                model = yaml.safe_load(text)["spec"]["model"]["path"].rpartition("/")[2]
                layers = int(found[2])
                self.assertEqual(maker.MODELS[model][1], layers)
                draws = numbers_in(found[3])
                self.assertEqual(numbers_in(found[1]), [layers * count for count in draws])
                budgets += len(draws)
        self.assertGreater(budgets, 40)

    def test_figures_of_ours_are_there_or_it_is_said_that_there_are_none(self):
        for name, one in self.experiments.items():
            with self.subTest(folder=name):
                readme = (self.folder / name / "README.md").read_text()
                self.assertEqual(f"# {name}", readme.splitlines()[0])
                self.assertIn("\n## What the paper reports\n", readme)
                ours = readme.partition("\n## Figures of ours\n\n")[2]
                self.assertTrue(ours)
                self.assertEqual(not one["ours"], ours.startswith("None"))
                if one["ours"]:
                    self.assertTrue((ROOT / one["ours"]).exists())
                    self.assertIn(f"(../../../{one['ours']})", ours)

    def test_no_numbered_table_is_forgotten(self):
        places = [(one["paper"], one["items"]) for one in self.experiments.values()]
        places += [(source["key"], left["items"])
                   for source in self.sources for left in source["without"]]
        slugs = {maker.slug(paper, item) for paper, items in places for item in items}
        for paper, kind, first, last in (("santa", "Table", 1, 30), ("santa", "Figure", 1, 10),
                                         ("sampleattention", "Table", 2, 6),
                                         ("sale", "Table", 1, 3)):
            for number in range(first, last + 1):
                self.assertIn(maker.slug(paper, f"{kind} {number}"), slugs)

    def test_only_folders_without_a_difference_say_as_written(self):
        exact = {name for name, one in self.experiments.items() if not one["differs"]}
        files = [file for file in (ROOT / "experiments").rglob("*")
                 if file.suffix in (".md", ".yaml")]
        self.assertGreater(len(files), 80)
        for file in files:
            if file.parent.name not in exact:
                with self.subTest(file=file):
                    self.assertNotIn("as written", " ".join(file.read_text().lower().split()))

    def test_the_machine_follows_from_dtype_device_and_length(self):
        def machine(model, tokens):
            return maker.machine_of({"spec": {"model": {"path": "/models/Yi-9B-200K", **model},
                                              "task": {"contextTokens": tokens}}})
        self.assertEqual(("GPU", 24), machine({"device": "cuda"}, 4096))
        self.assertEqual(("GPU", 40), machine({"device": "cuda"}, 131072))
        self.assertEqual(("CPU", 66), machine({"device": "auto", "dtype": "float32"}, 512))


class Faults(unittest.TestCase):
    """A folder with one paper and one experiment, and one fault at a time."""

    FILES = {
        "papers.yaml": "papers:\n- key: x\n  title: X\n  source: somewhere\n  without:\n"
                       "  - {items: [Figure 1], why: a drawing}\n",
        "README.md": "<!-- papers: begin -->\n<!-- papers: end -->\n",
        "x-table-04/paper.yaml":
            "paper: x\nitems: [Table 4, Table 12]\nshows: something\nmodel: M\ndata: D\n"
            "exact: [all]\nruns:\n- {title: one, options: [--workers=1], set: [spec.seed=2]}\n"
            "- {title: two, set: [spec.model.device=auto]}\n",
        "x-table-04/experiment.yaml":
            "spec: {model: {path: /models/Yi-9B-200K, device: cuda}, task: {contextTokens: 512}}\n",
        "x-table-04/README.md": "# x\n<!-- paper: begin -->\n<!-- paper: end -->\ntail\n",
    }

    def made(self, old="", new=""):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in self.FILES.items():
                (root / name).parent.mkdir(exist_ok=True)
                (root / name).write_text(text.replace(old, new) if old else text)
            return {str(file.relative_to(root)): text
                    for file, text in maker.readmes(root).items()}

    def test_what_is_made(self):
        made = self.made("exact: [all]", "exact: [all]\nchosen: [this]\ndiffers: [that]")
        self.assertIn("| [x-table-04](x-table-04) | Table 4, Table 12 | M | D | 1 differ, 1 chosen "
                      "| CPU of 66 GiB (1 run), GPU of 24 GiB (1 run); download of 18 GB | none |\n",
                      made["README.md"])
        self.assertIn("| Figure 1 | a drawing |\n", made["README.md"])
        self.assertIn("| none differ |", self.made()["README.md"])
        one = made["x-table-04/README.md"]
        self.assertIn("\n**Not as the paper has it**\n- that\n", one)
        self.assertIn("# one\nallot run experiments/papers/x-table-04/experiment.yaml --workers=1 "
                      "--set spec.seed=2\n", one)
        self.assertTrue(one.startswith("# x\n") and one.endswith("end -->\ntail\n"))

    def test_what_is_wrong_is_named(self):
        for old, new, message in (
                ("data: D", "date: D", 'x-table-04/paper.yaml: "date" is not one of'),
                ("data: D", "data: [D]", "data: required, as a text"),
                ("exact: [all]", "exact: []", "exact: required, as a list"),
                ("paper: x", "paper: y", "papers.yaml has no y"),
                ("Table 4, ", "Table 5, ", "is called x-table-05"),
                ("Table 12", "Table 4", "one is there twice"),
                ("Figure 1", "Table 12", "is in papers.yaml and in x-table-04"),
                ("title: one", "title: one, folder: other", "there is no other/experiment.yaml"),
                ("set: [spec.seed", "sets: [spec.seed", 'runs: "sets" is not one of'),
                ("<!-- papers: begin", "<!-- paper: begin", "has no <!-- papers: begin -->")):
            with self.subTest(new=new), self.assertRaises(maker.Fault) as raised:
                self.made(old, new)
            self.assertIn(message, str(raised.exception))


if __name__ == "__main__":
    ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
    maker = checks.load_script(ROOT / "experiments/papers/make_readme.py")
    unittest.main()
