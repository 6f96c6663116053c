#!/usr/bin/env python3
"""The alert rules of k8s/prometheus/rules.yaml, by promtool, and that none is without its tests."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import yaml

HERE = pathlib.Path(__file__).resolve().parent
RULES = HERE.parents[2] / "k8s/prometheus/rules.yaml"
README = RULES.parent / "README.md"


RUN = "namespace, experiment, run_id"


def rules():
    spec = yaml.safe_load(RULES.read_text())["spec"]
    return [rule for group in spec["groups"] for rule in group["rules"]]


def alerts():
    return [rule for rule in rules() if "alert" in rule]


def of_run(series, namespace, run_id):
    """The input series of a case as those of one run of experiment "same"."""
    more = f'experiment="same",run_id="{run_id}"'
    more += f',namespace="{namespace}"' if namespace else ""
    name = re.sub(r'experiment="[^"]*"', more, series["series"])
    return {**series, "series": name}


def experiments_in(case):
    return {re.search(r'experiment="([^"]*)"', series["series"])[1]
            for series in case["input_series"]}


def healthy_runs(written, alert, sick):
    """Every experiment of a near miss, as a case that says nothing when the sick one is looked at."""
    [expected] = [case for case in sick["alert_rule_test"] if case["exp_alerts"]][:1]
    for test in written["tests"]:
        if not test["name"].startswith(f"{alert} does not fire "):
            continue
        if test["interval"] != sick["interval"]:
            continue
        for name in sorted(experiments_in(test)):
            series = [one for one in test["input_series"] if f'experiment="{name}"' in one["series"]]
            yield {"name": f"{alert} {sick['name']} {name}", "interval": sick["interval"],
                   "input_series": series,
                   "alert_rule_test": [{**expected, "exp_alerts": []}]}


def two_runs(sick, healthy, spaces):
    """A case of two runs of one name: one as in the case `sick`, the other as in `healthy`."""
    [expected] = [test for test in sick["alert_rule_test"] if test["exp_alerts"]][:1]
    alert = expected["exp_alerts"][0]
    name = alert["exp_labels"]["experiment"]
    labels = {**alert["exp_labels"], "experiment": "same", "run_id": "01B"}
    if spaces[1]:
        labels["namespace"] = spaces[1]
    texts = {key: text.replace(name, "same") for key, text in alert["exp_annotations"].items()}
    mine = [one for one in sick["input_series"] if f'experiment="{name}"' in one["series"]]
    return {"name": f"two runs {spaces}: {sick['name']}", "interval": sick["interval"],
            "input_series": [of_run(one, spaces[0], "01A") for one in healthy["input_series"]]
                            + [of_run(one, spaces[1], "01B") for one in mine],
            "alert_rule_test": [{**expected, "exp_alerts": [{"exp_labels": labels,
                                                             "exp_annotations": texts}]}]}


def anchors(markdown):
    """The names that headings have as link targets: lower case, spaces as hyphens, no marks."""
    headings = re.findall(r"^#+ (.*)$", markdown, re.M)
    return {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}


class RulesTest(unittest.TestCase):
    def run_promtool(self, *command, cases=None):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            spec = yaml.safe_load(RULES.read_text())["spec"]
            (folder / "rules.yaml").write_text(yaml.safe_dump(spec))
            text = yaml.safe_dump(cases) if cases else (HERE / "rules_test.yaml").read_text()
            (folder / "rules_test.yaml").write_text(text)
            return subprocess.run(["promtool", *command], cwd=folder, capture_output=True,
                                  text=True)

    def promtool(self, *command, cases=None):
        done = self.run_promtool(*command, cases=cases)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_rules_are_valid(self):
        self.promtool("check", "rules", "--lint=all", "--lint-fatal", "rules.yaml")

    def test_every_case_comes_out_as_written(self):
        self.promtool("test", "rules", "rules_test.yaml")

    def test_two_runs_of_one_name_are_two(self):
        """A healthy run says nothing of a sick one of its name, in its own namespace or another."""
        # As text: YAML takes "0x60" for a number.
        written = yaml.load((HERE / "rules_test.yaml").read_text(), yaml.BaseLoader)
        pairs = []
        for sick in written["tests"]:
            alert, how = re.match(r"(\w+) (fires|does not fire) ", sick["name"]).groups()
            if how == "fires":
                pairs += [(alert, sick, one) for one in healthy_runs(written, alert, sick)]
        alone = {**written, "tests": [healthy for _, _, healthy in pairs]}
        said = self.run_promtool("test", "rules", "rules_test.yaml", cases=alone)
        said = said.stdout + said.stderr
        chosen = {}
        for alert, sick, healthy in pairs:
            if healthy["name"] not in said:
                chosen.setdefault(alert, (sick, healthy))
        self.assertEqual(set(chosen), {rule["alert"] for rule in alerts()})
        made = [two_runs(*pair, spaces) for pair in chosen.values()
                for spaces in (("alice", "bob"), ("same", "same"), ("", ""))]
        self.promtool("test", "rules", "rules_test.yaml", cases={**written, "tests": made})

    def test_every_alert_has_a_case_that_fires_and_one_that_does_not(self):
        fires, silent = set(), set()
        for test in yaml.safe_load((HERE / "rules_test.yaml").read_text())["tests"]:
            alert, says_fires = re.match(r"(\w+) (fires|does not fire) ", test["name"]).groups()
            cases = test["alert_rule_test"]
            self.assertEqual({case["alertname"] for case in cases}, {alert}, test["name"])
            expected = [alert for case in cases for alert in case["exp_alerts"]]
            self.assertEqual(bool(expected), says_fires == "fires", test["name"])
            (fires if expected else silent).add(alert)
        names = {rule["alert"] for rule in alerts()}
        self.assertEqual(fires, names)
        self.assertEqual(silent, names)

    def test_every_alert_says_what_it_is_and_what_to_do(self):
        runbooks = anchors(README.read_text())
        names = [rule["alert"] for rule in alerts()]
        self.assertEqual(len(names), len(set(names)))
        for rule in alerts():
            with self.subTest(rule["alert"]):
                self.assertRegex(rule["alert"], r"^Allot[A-Z]")
                self.assertIn(rule["labels"]["severity"], {"info", "warning", "critical"})
                # By nothing less than the run.
                self.assertRegex(rule["expr"], rf"by \({RUN}|allot:\w+:\w+")
                self.assertNotRegex(rule["expr"], rf"(by|on) \((?!{RUN})")
                annotations = rule["annotations"]
                self.assertEqual(set(annotations), {"summary", "description", "runbook_url"})
                self.assertIn("{{ $labels.experiment }}", annotations["summary"])
                self.assertEqual(annotations["runbook_url"],
                                 "README.md#" + rule["alert"].lower())
                self.assertIn(rule["alert"].lower(), runbooks)

    def test_recorded_series_are_by_run_and_used_by_alerts_and_panels_alike(self):
        recorded = [rule for rule in rules() if "record" in rule]
        expressions = "".join(rule["expr"] for rule in alerts())
        for rule in recorded:
            with self.subTest(rule["record"]):
                self.assertRegex(rule["record"], r"^allot:[a-z_]+:[a-z0-9_]+$")
                self.assertIn(f"by ({RUN}", rule["expr"])
                self.assertIn(rule["record"], expressions)
        names = {rule["record"] for rule in recorded}
        drawn = "".join(path.read_text() for path in (RULES.parents[1] / "grafana").glob("*.json"))
        for name in re.findall(r"allot:\w+:\w+", expressions + drawn):
            self.assertIn(name, names)

    @unittest.skipUnless(shutil.which("kubectl") or "ALLOT_CI" in os.environ,
                         "needs kubectl (Debian package kubernetes-client)")
    def test_the_links_to_runbooks_begin_where_one_line_says(self):
        annotations = yaml.safe_load(RULES.read_text())["metadata"]["annotations"]
        base = annotations["allot.dev/runbooks"]
        self.assertRegex(base, r"^https://")
        made = subprocess.run(["kubectl", "kustomize", RULES.parent], capture_output=True,
                              text=True, check=True).stdout
        [rendered] = yaml.safe_load_all(made)
        links = [rule["annotations"]["runbook_url"] for group in rendered["spec"]["groups"]
                 for rule in group["rules"] if "alert" in rule]
        self.assertEqual(links, [f"{base}#{rule['alert'].lower()}" for rule in alerts()])


if __name__ == "__main__":
    unittest.main()
