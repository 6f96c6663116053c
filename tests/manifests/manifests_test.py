#!/usr/bin/env python3
"""Renders every experiment with every combination of components and holds it to checks.py; breaks
a rendering in many ways and sees each found.

    manifests_test.py SOURCE PROGRAMS      the checkout; the folder with the programs
"""
import copy
import os
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

import checks
from breakages import BREAKAGES
from rendering import COMBINATIONS, COMPONENTS, Source, profile_of

SOURCE = None


def problems(rendering, check):
    return list(check(rendering))


class Manifests(unittest.TestCase):
    def test_every_experiment_with_every_combination_of_components(self):
        self.assertGreaterEqual(len(SOURCE.experiments), 7)
        for experiment in SOURCE.experiments:
            for components in COMBINATIONS:
                rendering = SOURCE.render(experiment, components)
                for check in checks.CHECKS:
                    with self.subTest(experiment=experiment, components=components,
                                      check=check.__name__):
                        self.assertEqual(problems(rendering, check), [])

    def test_every_paper_with_the_components_that_it_names(self):
        # Their kustomizations differ in the name alone (below), so that one rendering says all.
        self.assertGreaterEqual(len(SOURCE.papers), 14)
        for experiment in SOURCE.papers:
            rendering = SOURCE.render(experiment)
            self.assertIn("models", rendering.components)
            for check in checks.CHECKS:
                with self.subTest(experiment=experiment, check=check.__name__):
                    self.assertEqual(problems(rendering, check), [])

    def test_every_experiment_is_one_that_workers_take(self):
        for experiment in SOURCE.experiments + SOURCE.papers:
            # The copy, where a profile stands for one that is not here.
            file = SOURCE.folder / SOURCE.home_of(experiment) / "experiment.yaml"
            check = ("allot-worker", "--check", str(file), "--kv-memory", "64")
            if experiment.startswith("recall-"):
                SOURCE.run(*check)
                continue
            # The model is not here, which is looked for once all else has been found good.
            with self.assertRaisesRegex(AssertionError, "spec.model.path: there is no folder or"):
                SOURCE.run(*check, "--model", "/nowhere")

    def test_the_readme_shows_what_works(self):
        plain, more = re.findall(r"(?s)```yaml\n(.*?)```", (SOURCE.root / "k8s/README.md").read_text())
        for name in SOURCE.experiments + SOURCE.papers:
            file = SOURCE.root / SOURCE.home_of(name) / "kustomization.yaml"
            expected = plain.replace("NAME", name)
            if name in SOURCE.papers:
                expected = expected.replace("../../k8s", "../../../k8s")
            # A file that the experiment names lies beside it, in the same ConfigMap.
            profile = profile_of((file.parent / "experiment.yaml").read_text())
            if profile:
                expected = expected.replace("[experiment.yaml]", f"[experiment.yaml, {profile}]")
            # Those of large models add components and a patch at its end.
            self.assertTrue(file.read_text().startswith(expected), name)
        rendering = SOURCE.render(SOURCE.experiments[0], more=more)
        worker, store = rendering.workload("worker"), rendering.workload("store")
        spec = worker["spec"]["template"]["spec"]
        container = spec["containers"][0]
        self.assertTrue(container["image"].startswith("registry.example.org/team/allot-worker-cuda@"))
        self.assertEqual(container["resources"]["limits"],
                         {"cpu": "4", "memory": "32Gi", "nvidia.com/gpu": "1"})
        self.assertIn({"name": "KV_MEMORY_MIB", "value": "16384"}, container["env"])
        self.assertEqual(len(container["volumeMounts"]), len(spec["volumes"]))
        claim = store["spec"]["volumeClaimTemplates"][0]["spec"]
        self.assertEqual((claim["storageClassName"], claim["resources"]["requests"]["storage"]),
                         ("fast-ssd", "10Gi"))

    def test_two_experiments_share_nothing(self):
        def names(experiment):
            return {(item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"])
                    for item in SOURCE.render(experiment, COMPONENTS).objects}
        first, second = SOURCE.experiments[:2]
        self.assertEqual(names(first) & names(second), set())

    def test_new_accounts_restart_who_uses_them_and_an_edit_restarts_nobody(self):
        def templates(rendering):
            return {labels["app.kubernetes.io/component"]: item["spec"]["template"]
                    for item in rendering.workloads()
                    for labels in [item["metadata"]["labels"]]}
        experiment = SOURCE.experiments[0]
        before = templates(SOURCE.render(experiment))
        file = SOURCE.folder / "experiments" / experiment / "experiment.yaml"
        file.write_text(file.read_text() + "# an edit\n")
        self.assertEqual(templates(SOURCE.render(experiment)), before)
        shutil.copy(SOURCE.root / "experiments" / experiment / "experiment.yaml", file)
        password = SOURCE.folder / "k8s/base/accounts/worker.password"
        kept = password.read_text()
        password.write_text("another\n")
        after = templates(SOURCE.render(experiment))
        password.write_text(kept)
        for component, template in before.items():
            self.assertNotEqual(after[component], template, component)


class Breakages(unittest.TestCase):
    """Without these a check that finds nothing would look like manifests without faults."""

    def test_each_is_found(self):
        whole = SOURCE.render(SOURCE.experiments[0], COMPONENTS)
        for name, (breakage, check) in BREAKAGES.items():
            with self.subTest(breakage=name):
                broken = copy.copy(whole)
                broken.objects = copy.deepcopy(whole.objects)
                breakage(broken)
                self.assertNotEqual(broken.objects, whole.objects, "breaks nothing")
                found = set(problems(broken, check)) - set(problems(whole, check))
                self.assertTrue(found, f"{check.__name__} is blind")

    def test_every_check_has_one(self):
        self.assertEqual({check for _, check in BREAKAGES.values()}, set(checks.CHECKS))


def main():
    global SOURCE
    root, programs = map(pathlib.Path, sys.argv[1:3])
    if not shutil.which("kubectl"):
        print("manifests_test: skipped, kubectl (1.27 or newer) is not in PATH; Debian 12 has none")
        # Where a missing tool must not pass for success (.ci/run), it is a fault.
        sys.exit(1 if os.environ.get("ALLOT_CI") else 77)
    with tempfile.TemporaryDirectory() as folder:
        SOURCE = Source(root, programs.resolve(), pathlib.Path(folder))
        result = unittest.main(argv=sys.argv[:1] + sys.argv[3:], exit=False).result
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
