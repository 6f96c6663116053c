#!/usr/bin/env python3
"""The alert rules of k8s/prometheus/rules.yaml, by promtool, and that none is without its tests."""
import pathlib
import re
import subprocess
import tempfile
import unittest

import yaml

HERE = pathlib.Path(__file__).resolve().parent
RULES = HERE.parents[1] / "k8s/prometheus/rules.yaml"
README = RULES.parent / "README.md"


def alerts():
    spec = yaml.safe_load(RULES.read_text())["spec"]
    return [rule for group in spec["groups"] for rule in group["rules"]]


def anchors(markdown):
    """The names that headings have as link targets: lower case, spaces as hyphens, no marks."""
    headings = re.findall(r"^#+ (.*)$", markdown, re.M)
    return {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}


class RulesTest(unittest.TestCase):
    def promtool(self, *command):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            spec = yaml.safe_load(RULES.read_text())["spec"]
            (folder / "rules.yaml").write_text(yaml.safe_dump(spec))
            (folder / "rules_test.yaml").write_text((HERE / "rules_test.yaml").read_text())
            done = subprocess.run(["promtool", *command], cwd=folder, capture_output=True,
                                  text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_rules_are_valid(self):
        self.promtool("check", "rules", "--lint=all", "--lint-fatal", "rules.yaml")

    def test_every_case_comes_out_as_written(self):
        self.promtool("test", "rules", "rules_test.yaml")

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
                self.assertIn("by (experiment", rule["expr"])
                annotations = rule["annotations"]
                self.assertEqual(set(annotations), {"summary", "description", "runbook_url"})
                self.assertIn("{{ $labels.experiment }}", annotations["summary"])
                self.assertEqual(annotations["runbook_url"],
                                 "k8s/prometheus/README.md#" + rule["alert"].lower())
                self.assertIn(rule["alert"].lower(), runbooks)


if __name__ == "__main__":
    unittest.main()
