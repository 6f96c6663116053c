#!/usr/bin/env python3
"""Every query of every dashboard, put to a real Prometheus that scraped a real run.

live_test.py ALLOT FOLDER: `./run monitor`'s script watches, `allot run` runs a small experiment
with two workers, and once it has ended each query is executed as Grafana would, for the time in
which the run was alive.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import time
import unittest
import urllib.parse
import urllib.request

from dashboards_test import DASHBOARDS, ROOT, panels

ALLOT, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
EXPERIMENT = "recall-layer-budget"
SMALL = ("spec.policy.totalBudgets=[8,32]", "spec.update.maxUpdates=16", "spec.evaluation.everyUpdates=4",
         "spec.evaluation.budgets=[8,32]", "spec.evaluation.methods=[dense,s2anta-sys,santa]",
         "spec.evaluation.prefills=[dense,skip-softmax threshold=0.1]",
         "spec.task.contextTokens=256", "spec.task.heldOutQuestions=64",
         "spec.task.trainQuestions=64")
# As Grafana computes it: four scrapes, and what a step is at least.
RATE_INTERVAL = "5s"


class Prometheus:
    def __init__(self, runs, folder):
        script = ROOT / "k8s/prometheus/monitor.sh"
        self.process = subprocess.Popen([script, runs, folder], stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().split()[1]
        wait_for(lambda: self.ready(), 30, "Prometheus to be ready")

    def ready(self):
        try:
            return urllib.request.urlopen(f"{self.url}/-/ready").status == 200
        except OSError:
            return False

    def get(self, path, **parameters):
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}"
        try:
            answer = urllib.request.urlopen(url)
        except urllib.error.HTTPError as error:
            answer = error
        answer = json.load(answer)
        if answer["status"] != "success":
            raise AssertionError(f"{parameters}: {answer['error']}")
        return answer["data"]

    def end(self):
        self.process.terminate()
        self.process.communicate(timeout=30)
        return self.process.returncode


def wait_for(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s for {what}")
        time.sleep(0.2)


class LiveTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(FOLDER, ignore_errors=True)
        runs = FOLDER / "runs"
        runs.mkdir(parents=True)
        cls.prometheus = Prometheus(runs, FOLDER / "monitor")
        cls.addClassCleanup(cls.prometheus.end)
        cls.begin = time.time()
        with open(FOLDER / "run.log", "w") as log:
            file = ROOT / f"experiments/{EXPERIMENT}/experiment.yaml"
            subprocess.run([ALLOT, "run", file, "--dir", runs / "one", "--workers", "2",
                            *(word for key in SMALL for word in ("--set", key))],
                           check=True, stdout=log, stderr=log, timeout=300)
        # The last second in which workers learned, and before the aggregator went.
        query = "sum(rate(allot_worker_episodes_total[5s])) > 0 and on () count(allot_leader)"
        learning = cls.prometheus.get("query_range", start=cls.begin, end=time.time(), step=1,
                                      query=query)
        cls.end = max(float(when) for series in learning["result"] for when, _ in series["values"])

    def variables(self, dashboard):
        """What the dashboard's variables come to, found as Grafana finds them."""
        values = {"__rate_interval": RATE_INTERVAL, "__interval": "1s",
                  "__range": f"{round(self.end - self.begin)}s"}
        for variable in dashboard["templating"]["list"]:
            if variable["type"] != "query":
                continue
            values_of = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
            selector, label = values_of.groups()
            options = self.prometheus.get(f"label/{label}/values", start=self.begin, end=self.end,
                                          **{"match[]": self.filled(selector, values)})
            if variable["name"] == "namespace":  # there is none here, and All is chosen
                self.assertEqual((options, variable["allValue"]), ([], ".*"))
                options = [variable["allValue"]]
            self.assertTrue(options, f"variable {variable['name']} has no values")
            values[variable["name"]] = options[0]
        self.assertEqual(values["experiment"], EXPERIMENT)
        return values

    @staticmethod
    def filled(query, values):
        return re.sub(r"\$(\w+)", lambda name: values[name[1]], query)

    def ask(self, query, instant):
        if instant:
            result = self.prometheus.get("query", query=query, time=self.end)["result"]
            return [(series["metric"], [float(series["value"][1])]) for series in result]
        result = self.prometheus.get("query_range", query=query, start=self.begin, end=self.end,
                                     step=1)["result"]
        return [(series["metric"], [float(v) for _, v in series["values"]]) for series in result]

    def numbers(self, result):
        return [value for _, values in result for value in values if value == value]

    def test_every_query_of_every_panel_returns_data(self):
        for name, dashboard in DASHBOARDS.items():
            values = self.variables(dashboard)
            for panel in panels(dashboard):
                for target in panel["targets"]:
                    with self.subTest(name, panel=panel["title"], target=target["refId"]):
                        result = self.ask(self.filled(target["expr"], values), target["instant"])
                        self.assertTrue(self.numbers(result), target["expr"])
                        if target["format"] == "table":
                            continue
                        for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                            for labels, _ in result:
                                self.assertTrue(labels.get(label), f"no {label} in {labels}")

    def test_tables_and_charts_have_the_columns_that_they_are_made_of(self):
        for name, dashboard in DASHBOARDS.items():
            values = self.variables(dashboard)
            for panel in panels(dashboard):
                steps = {step["id"]: step["options"] for step in panel["transformations"]}
                if "convertFieldType" not in steps:
                    continue
                [number] = steps["convertFieldType"]["conversions"]
                parts = steps.get("partitionByValues", {"fields": []})["fields"]
                for labels, _ in self.ask(self.filled(panel["targets"][0]["expr"], values), True):
                    with self.subTest(name, panel=panel["title"], labels=labels):
                        float(labels[number["targetField"]])
                        self.assertTrue(all(labels[part] for part in parts))

    def test_accuracy_chart_shows_schedules_methods_intervals_and_dense(self):
        board = DASHBOARDS["experiment"]
        [chart] = [panel for panel in panels(board)
                   if panel["title"] == "Held-out accuracy against total budget"]
        query = self.filled(chart["targets"][0]["expr"], self.variables(board))
        points = {(labels["series"], labels["total_budget"]): value[0]
                  for labels, value in self.ask(query, True)}
        for budget in ("8", "32"):
            for method in ("s2anta-sys", "santa"):
                for schedule in ("uniform", "learned"):
                    curve = f"{schedule} {method}"
                    low, mean, high = (points[curve + end, budget] for end in (" low", "", " high"))
                    self.assertTrue(0 <= low <= mean <= high <= 1)
            self.assertEqual(points["dense", budget], points["dense", "8"])

    def test_annotations_mark_updates_and_states(self):
        for annotation in DASHBOARDS["experiment"]["annotations"]["list"]:
            query = self.filled(annotation["expr"], self.variables(DASHBOARDS["experiment"]))
            self.assertTrue(self.ask(query, False), annotation["name"])

    def test_figures_agree_with_the_run(self):
        [(_, [version])] = self.ask("max(allot_policy_version)", True)
        self.assertTrue(1 <= version <= 16)
        draws = [value[0] for _, value in self.ask("allot_policy_layer_reads", True)]
        self.assertEqual(len(draws), 8)
        self.assertEqual(sum(draws), 8)

    def test_rules_are_loaded_and_none_cries(self):
        groups = self.prometheus.get("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        written = (ROOT / "k8s/prometheus/rules.yaml").read_text()
        self.assertEqual(len(rules), written.count("- alert:") + written.count("- record:"))
        for rule in rules:
            self.assertEqual(rule["health"], "ok", rule["name"])
        for rule in (rule for rule in rules if rule["type"] == "alerting"):
            self.assertNotEqual(rule["state"], "firing", rule["name"])

    def test_ended_processes_are_no_targets_any_more(self):
        wait_for(lambda: not self.prometheus.get("targets")["activeTargets"], 30, "targets to go")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
