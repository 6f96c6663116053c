#!/usr/bin/env python3
"""Holds experiment files to the schema that an API server has from k8s/operator/crd.yaml: every
experiment of this repository is valid, and files with faults are not.

    crd_test.py SOURCE
"""
import copy
import pathlib
import sys
import unittest

import jsonschema
import yaml

ROOT = pathlib.Path(sys.argv.pop(1))
CRD = yaml.safe_load((ROOT / "k8s/operator/crd.yaml").read_text())
VERSION = CRD["spec"]["versions"][0]
# Kubernetes' own part of an object, which the API server checks without the CRD.
ENVELOPE = {"apiVersion", "kind", "metadata"}


def strict(schema):
    """The schema as `kubectl apply` reads it: what it does not name is refused, not dropped."""
    schema = {key: value for key, value in schema.items() if key != "default"}
    if schema.pop("x-kubernetes-int-or-string", False):
        schema["type"] = ["integer", "string"]
    # Patterns are for the texts among them, as in Kubernetes; jsonschema does so too.
    if "properties" in schema:
        schema["properties"] = {key: strict(each) for key, each in schema["properties"].items()}
        schema.setdefault("additionalProperties", False)
    if isinstance(schema.get("additionalProperties"), dict):
        schema["additionalProperties"] = strict(schema["additionalProperties"])
    if "items" in schema:
        schema["items"] = strict(schema["items"])
    return schema


SCHEMA = strict(VERSION["schema"]["openAPIV3Schema"])
SCHEMA["properties"]["metadata"]["additionalProperties"] = True
EXAMPLE = "experiments/recall-layer-budget/experiment.yaml"


def problems(experiment):
    validator = jsonschema.Draft4Validator(SCHEMA)
    return [f"{'.'.join(map(str, each.absolute_path))}: {each.message}"
            for each in validator.iter_errors(experiment)]


def changed(path, value):
    """The example with one key set; a value of None removes it."""
    experiment = yaml.safe_load((ROOT / EXAMPLE).read_text())
    *sections, key = path.split(".")
    section = experiment
    for name in sections:
        section = section.setdefault(name, {})
    if value is None:
        del section[key]
    else:
        section[key] = value
    return experiment


class Crd(unittest.TestCase):
    def test_every_experiment_file_is_valid(self):
        files = sorted(ROOT.glob("experiments/**/experiment.yaml"))
        self.assertGreaterEqual(len(files), 35)
        for file in files:
            with self.subTest(file.parent.name):
                experiment = yaml.safe_load(file.read_text())
                self.assertEqual(problems(experiment), [])
                self.assertEqual(experiment["apiVersion"],
                                 f"{CRD['spec']['group']}/{VERSION['name']}")
                self.assertEqual(experiment["kind"], CRD["spec"]["names"]["kind"])

    def test_what_only_a_cluster_knows_is_valid(self):
        for value in ({}, {"workers": 0}, {"gpus": 8, "kvMemory": "40Gi", "suspend": True},
                      {"resources": {"limits": {"cpu": 4, "nvidia.com/mig-1g.10gb": "1"}}},
                      {"resources": {"requests": {"cpu": ".5", "memory": "1e9"}}},
                      {"models": {"claim": "models", "mountPath": "/models"}, "queue": "gpus"},
                      {"tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute"}]},
                      {"nodeSelector": {"a/b": "c"}, "image": {"registry": "localhost", "tag": ""}},
                      {"whenFinished": "keep", "results": {"claim": "results"},
                       "tls": {"secret": "store-tls"}}):
            with self.subTest(value):
                self.assertEqual(problems(changed("spec.cluster", value)), [])

    def test_values_that_a_file_may_write_in_two_ways_are_valid(self):
        for path, value in (("spec.update.learningRate", 0.05), ("spec.update.learningRate", "0.05"),
                            ("spec.stop.goal", ""), ("spec.stop.goal", 1),
                            ("spec.evaluation.schedules", ["uniform", [1, 2, 3]]),
                            ("spec.task.path", ""), ("spec.update", {})):
            with self.subTest(path=path, value=value):
                self.assertEqual(problems(changed(path, value)), [])

    def test_a_file_with_a_fault_is_refused(self):
        for path, value in (
                ("spec.policy.totalBudget", 0), ("spec.policy.totalBudget", 1000001),
                ("spec.policy.totalBuget", 8), ("spec.policy.totalBudget", "eight"),
                ("spec.polcy", {}), ("spec.task.suite", "x"), ("spec.task.tasks", []),
                ("spec.evaluation.budgets", [0]), ("spec.evaluation.budgets", 8),
                ("spec.evaluation.budgets", list(range(1, 66))),
                ("spec.update.optimizer", "sdg"),
                ("spec.policy.zeroReads", False), ("spec.model.path", ""), ("spec.model.path", None),
                ("spec.model", None), ("metadata.name", "70b-sweep"), ("metadata.name", "a" * 51),
                ("spec.cluster.workers", -1), ("spec.cluster.worker", 1),
                ("spec.cluster.kvMemory", "40 GiB"), ("spec.cluster.whenFinished", "stay"),
                ("spec.cluster.models", {"claim": "A"}), ("spec.cluster.suspend", "yes"),
                ("spec.cluster.tolerations", [{"key": "a", "operator": "In"}]),
                # What YAML 1.1 makes of a plain value, and quotes of a number: allot refuses these
                # texts by name (Spec.WhatTwoReadersReadDifferentlyIsRefused).
                ("spec.policy.totalBudget", "8"), ("spec.model.path", 1.1),
                ("spec.cluster.suspend", "true"), ("spec.cluster.nodeSelector", {"gpu": True}),
                ("spec.cluster.kvMemory", 0.5), ("spec.cluster.models", {"claim": "a..b"}),
                ("spec.cluster.models", {"claim": "m", "mountPath": "/m/../etc"})):
            with self.subTest(path=path, value=value):
                self.assertNotEqual(problems(changed(path, value)), [])

    def test_a_status_is_valid_as_the_operator_writes_it(self):
        status = {"observedGeneration": 1, "runId": "01M", "startedAt": "2026-11-24T10:00:00Z",
                  "state": "running", "progress": "117/150", "reward": "0.71", "lag": "3",
                  "best": {"accuracy": "0.71", "ci95": "[0.67, 0.75]", "uniform": "0.35",
                           "version": 50, "schedule": "learned"},
                  "workers": {"desired": 6, "pods": 4, "ready": 4, "text": "4/6",
                              "selector": "allot.dev/experiment=x"},
                  "conditions": [{"type": "Progressing", "status": "True", "reason": "Running",
                                  "message": "", "observedGeneration": 1,
                                  "lastTransitionTime": "2026-11-24T10:00:00Z"}]}
        self.assertEqual(problems(changed("status", status)), [])
        self.assertNotEqual(problems(changed("status", {"phase": "Running"})), [])

    def test_the_paths_of_scale_and_columns_are_in_the_schema(self):
        scale = VERSION["subresources"]["scale"]
        paths = [scale["specReplicasPath"], scale["statusReplicasPath"],
                 scale["labelSelectorPath"]]
        paths += [column["jsonPath"].split("[")[0] for column in VERSION["additionalPrinterColumns"]
                  if not column["jsonPath"].startswith(".metadata")]
        for path in paths:
            schema = VERSION["schema"]["openAPIV3Schema"]
            for key in path.strip(".").split("."):
                self.assertIn(key, schema["properties"], path)
                schema = schema["properties"][key]
        cluster = VERSION["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["cluster"]
        # /scale answers an error where the path is absent.
        self.assertEqual(cluster["default"], {})
        self.assertEqual(cluster["properties"]["workers"]["default"], 1)

    def test_every_fixed_key_has_a_rule_and_no_live_one(self):
        rules = VERSION["schema"]["openAPIV3Schema"]["x-kubernetes-validations"]
        named = [rule["message"].split(" cannot change")[0] for rule in rules]
        self.assertEqual(len(named), len(set(named)))
        for path in ("spec.seed", "spec.update", "spec.model.path", "spec.evaluation.budgets"):
            self.assertIn(path, named)
        for path in ("spec.update.maxUpdates", "spec.cluster.workers", "spec.stop.goal"):
            self.assertNotIn(path, named)
        for rule in rules:
            self.assertIn("!has(oldSelf.status.startedAt)", rule["rule"])
            self.assertIn("begin another run from this one with `allot fork`", rule["message"])

    def test_a_broken_schema_would_be_seen(self):
        broken = copy.deepcopy(SCHEMA)
        del broken["properties"]["spec"]["properties"]["policy"]
        validator = jsonschema.Draft4Validator(broken)
        self.assertTrue(list(validator.iter_errors(yaml.safe_load((ROOT / EXAMPLE).read_text()))))


if __name__ == "__main__":
    unittest.main()
