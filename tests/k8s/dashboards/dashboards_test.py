#!/usr/bin/env python3
"""Dashboards, rules and documents against the catalogue of metrics; the dashboards' own JSON.

dashboards_test.py ALLOT
"""
import json
import pathlib
import re
import subprocess
import sys
import unittest

import yaml

from catalogue import NAME, RECORDED, Catalogue

ROOT = pathlib.Path(__file__).resolve().parents[3]
GRAFANA = ROOT / "k8s/grafana"
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(GRAFANA.glob("*.json"))}
BUILT_IN = {"__rate_interval", "__range", "__interval"}


def panels(dashboard):
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries(dashboard):
    """Every query with where it stands: panels, annotations, and what variables ask for."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield f"{panel['title']} {target['refId']}", target["expr"]
    for annotation in dashboard["annotations"]["list"]:
        yield f"annotation {annotation['name']}", annotation["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield f"variable {variable['name']}", variable["query"]["query"]


class NamesTest(unittest.TestCase):
    catalogue = None

    @classmethod
    def setUpClass(cls):
        cls.catalogue = Catalogue(sys.argv[1])

    def test_catalogue_is_read(self):
        self.assertGreater(len(self.catalogue.kinds), 40)
        self.assertLessEqual(set(self.catalogue.kinds.values()), {"counter", "gauge", "histogram"})
        self.assertEqual(self.catalogue.labels["allot_result_age_seconds"], {"stage"})
        for name, text in self.catalogue.help.items():
            self.assertTrue(text, name)

    def test_mistakes_are_seen(self):
        good = 'sum by (le, stage) (rate(allot_result_age_seconds_bucket{experiment="e"}[5m]))'
        self.assertEqual(self.catalogue.mistakes(good), [])
        for bad in ("allot_none", "allot_result_age_seconds", "allot_leader_bucket",
                    'allot_leader{stage="queued"}', "sum by (stage) (allot_leader)",
                    "sum by (le) (allot_result_age_seconds_sum)",
                    "sum by (experiment) (allot_leader) + max by (state) (allot_leader)"):
            self.assertEqual(len(self.catalogue.mistakes(bad)), 1, bad)

    def test_dashboards_name_what_exists(self):
        for name, dashboard in DASHBOARDS.items():
            for where, query in queries(dashboard):
                with self.subTest(name, where=where):
                    self.assertEqual(self.catalogue.mistakes(query), [])
                    self.assertTrue(NAME.search(query) or RECORDED.search(query))

    def test_descriptions_name_the_metrics_of_their_queries(self):
        for name, dashboard in DASHBOARDS.items():
            for panel in panels(dashboard):
                with self.subTest(name, panel=panel["title"]):
                    named = set(NAME.findall(panel["description"]))
                    self.assertLessEqual(named, set(self.catalogue.kinds))
                    for target in panel["targets"]:
                        for series in NAME.findall(target["expr"]):
                            self.assertTrue(any(series.startswith(metric) for metric in named))

    def test_rules_name_what_exists(self):
        spec = yaml.safe_load((ROOT / "k8s/prometheus/rules.yaml").read_text())["spec"]
        for rule in (rule for group in spec["groups"] for rule in group["rules"]):
            with self.subTest(rule.get("alert", rule.get("record"))):
                self.assertEqual(self.catalogue.mistakes(rule["expr"]), [])

    def test_documents_name_what_exists(self):
        files = [path for path in ROOT.rglob("*.md") if "build" not in path.relative_to(ROOT).parts]
        self.assertGreater(len(files), 10)
        # A document may speak of a histogram by its own name.
        allowed = {f"there is no series {name}" for name in self.catalogue.kinds}
        seen = set()
        for path in files:
            for line in path.read_text().splitlines():
                seen.update(NAME.findall(line))
                self.assertEqual(set(self.catalogue.mistakes(line)) - allowed, set(), path)
        self.assertIn("allot_update_duration_seconds", seen)

    def test_every_metric_is_drawn_or_watched(self):
        text = "".join(query for board in DASHBOARDS.values() for _, query in queries(board))
        text += (ROOT / "k8s/prometheus/rules.yaml").read_text()
        used = {self.catalogue.kinds.get(name, "") and name or
                re.sub("_(bucket|sum|count)$", "", name) for name in NAME.findall(text)}
        self.assertEqual(set(self.catalogue.kinds) - used, set())


class JsonTest(unittest.TestCase):
    def test_files_are_what_the_script_writes(self):
        script = GRAFANA / "make_dashboards.py"
        done = subprocess.run([sys.executable, "-B", script, "--check"], capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_dashboards_and_their_names(self):
        self.assertEqual(set(DASHBOARDS), {"experiment", "fleet", "compare"})
        for name, dashboard in DASHBOARDS.items():
            self.assertEqual(dashboard["uid"], f"allot-{name}")
            self.assertIsNone(dashboard["id"])
            self.assertEqual(dashboard["tags"], ["allot"])
            self.assertEqual(dashboard["links"][0]["tags"], ["allot"])

    def test_panels_lie_on_the_grid_without_overlaps(self):
        for name, dashboard in DASHBOARDS.items():
            taken = {}
            for panel in dashboard["panels"]:
                place = panel["gridPos"]
                self.assertLessEqual(place["x"] + place["w"], 24, panel["title"])
                self.assertGreaterEqual(place["w"], 3, panel["title"])
                for x in range(place["x"], place["x"] + place["w"]):
                    for y in range(place["y"], place["y"] + place["h"]):
                        self.assertNotIn((x, y), taken, f"{name}: {panel['title']}")
                        taken[x, y] = panel["title"]
            bottom = max(y for _, y in taken) + 1
            self.assertEqual(len(taken), 24 * bottom, f"{name}: a hole")
            ids = [panel["id"] for panel in dashboard["panels"]]
            self.assertEqual(ids, list(range(1, len(ids) + 1)))

    def test_panels_say_what_they_show(self):
        for panel in (panel for dashboard in DASHBOARDS.values() for panel in panels(dashboard)):
            with self.subTest(panel["title"]):
                self.assertTrue(panel["title"])
                self.assertRegex(panel["description"],
                                 r"^[A-Z0-9].*\. Metrics?: `allot_\w+`(, `allot_\w+`)*\.$")
                self.assertTrue(panel["fieldConfig"]["defaults"]["unit"])

    def test_queries_use_the_variables(self):
        for name, dashboard in DASHBOARDS.items():
            known = {v["name"] for v in dashboard["templating"]["list"]} | BUILT_IN
            self.assertIn("datasource", known)
            for panel in panels(dashboard):
                refs = [target["refId"] for target in panel["targets"]]
                self.assertEqual(len(refs), len(set(refs)))
                for target in panel["targets"]:
                    with self.subTest(name, panel=panel["title"], target=target["refId"]):
                        self.check_target(target, known)

    def check_target(self, target, known):
        self.assertEqual(target["datasource"]["uid"], "${datasource}")
        self.assertNotEqual(target["instant"], target["range"])
        # Each selector is of the runs chosen, so that two runs of one name are two.
        run = 'namespace=~"$namespace", experiment=~"$experiment", run_id=~"$run"'
        selectors = re.findall(r"\ballot[_:][\w:]+\{([^}]*)\}", target["expr"])
        self.assertTrue(selectors)
        for selector in selectors:
            self.assertIn(run, selector)
        self.assertNotRegex(target["expr"], r"\ballot_\w+(?![\w{:])")
        self.assertLessEqual(set(re.findall(r"\$(\w+)", target["expr"])), known)
        # A fixed window shows nothing at one scrape interval and lies at another.
        self.assertNotRegex(target["expr"], r"(rate|increase|changes)\([^()]*\[\d")

    def test_config_maps_hold_every_dashboard(self):
        made = yaml.safe_load((GRAFANA / "kustomization.yaml").read_text())
        files = [file for entry in made["configMapGenerator"] for file in entry["files"]]
        self.assertEqual(sorted(files), [f"{name}.json" for name in sorted(DASHBOARDS)])
        self.assertEqual(len(made["configMapGenerator"]), len(files))
        options = made["generatorOptions"]
        rules = yaml.safe_load((ROOT / "k8s/prometheus/rules.yaml").read_text())
        project = (ROOT / "CMakeLists.txt").read_text()
        version = re.search(r"project\(allot VERSION ([\d.]+)", project)
        for labels in (options["labels"], rules["metadata"]["labels"]):
            self.assertEqual(labels["app.kubernetes.io/version"], version[1])
        self.assertEqual(options["labels"]["grafana_dashboard"], "1")
        self.assertTrue(options["disableNameSuffixHash"])
        # kubectl apply keeps a whole object once more in an annotation, of 256 KiB at most.
        for file in files:
            self.assertLess((GRAFANA / file).stat().st_size, 200_000)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
