"""An experiment at full size: applied, watched, ended, its results collected."""
import json
import os
import tempfile
import unittest

from harness import kube, machines, manifests, report, volume
from harness.experiment import Experiment

SHORT = "ALLOT_SHORT" in os.environ
UPDATES = 20 if SHORT else 150
SIZE = "short" if SHORT else "full size"
STORY = "learning-short" if SHORT else "learning"


class Learning(unittest.TestCase):
    """One story: the tests run in the order of their names."""

    @classmethod
    def setUpClass(cls):
        volume.renew()
        cls.experiment = Experiment(manifests.story(STORY))
        cls.since_apply = report.Stopwatch()
        cls.experiment.apply()

    @classmethod
    def tearDownClass(cls):
        cls.experiment.delete()

    def test_1_it_begins(self):
        x = self.experiment
        x.wait_ready("store", 1)
        x.wait_ready("aggregator", 1)
        self.since_apply.note("apply to aggregator ready")
        x.scale(2)
        x.wait_ready("worker", 2)
        self.since_apply.note("apply to two workers ready")
        x.wait_version(1)
        self.since_apply.note(f"{SIZE}: apply to first update, with its first evaluation")

    def test_2_applied_again_it_keeps_its_workers(self):
        self.experiment.apply()
        self.assertEqual(len(self.experiment.wait_ready("worker", 2)), 2)
        scale = self.experiment.kubectl("get", f"deploy/{self.experiment.name}-worker",
                                        "-o", "jsonpath={.spec.replicas}")
        self.assertEqual(scale, "2")

    def test_3_every_process_answers(self):
        x = self.experiment
        for pod in x.ready("worker") + x.ready("aggregator"):
            with self.subTest(pod.name), kube.forwarded(x.namespace, f"pod/{pod.name}") as at:
                self.assertEqual(kube.fetch(at, "/livez")[0], 200)
                self.assertEqual(kube.fetch(at, "/readyz")[0], 200)
                status, kind, text = kube.fetch(at, "/metrics")
                self.assertEqual((status, kind), (200, "text/plain; version=0.0.4; charset=utf-8"))
                metrics = kube.Metrics(text)
                self.assertEqual(metrics.get("allot_build_info"), 1)
                self.assertGreater(metrics.get("allot_redis_commands_total", outcome="ok"), 0)
        with kube.forwarded(x.namespace, f"svc/{x.name}-aggregator") as at:
            self.assertIn("<title>", kube.fetch(at, "/")[2])
            view = json.loads(kube.fetch(at, "/api/run")[2])
            self.assertIsInstance(view, dict)

    def test_4_no_process_can_do_more_than_it_must(self):
        for pod in self.experiment.pods():
            with self.subTest(pod.name):
                self.pod_is_restricted(pod.data["spec"])
                if machines.available():
                    container = pod.containers[0]["containerID"]
                    self.process_is_restricted(machines.process_of(pod.node, container))

    def pod_is_restricted(self, spec):
        self.assertIs(spec["automountServiceAccountToken"], False)
        for container in spec["containers"]:
            mounts = [each["mountPath"] for each in container.get("volumeMounts", [])]
            self.assertNotIn("/var/run/secrets/kubernetes.io/serviceaccount", mounts)
            for kind in ("requests", "limits"):
                self.assertLessEqual({"cpu", "memory"}, container["resources"][kind].keys())

    def process_is_restricted(self, process):
        status = process.status()
        self.assertEqual(status["Uid"].split(), ["65532"] * 4)
        self.assertEqual(int(status["CapEff"], 16), 0)
        self.assertEqual(int(status["CapBnd"], 16), 0)
        self.assertEqual(status["NoNewPrivs"], "1")
        self.assertEqual(status["Seccomp"], "2")  # a filter
        self.assertIn("ro", process.mount_options("/"))

    def test_5_it_learns_as_on_a_laptop(self):
        x = self.experiment
        x.wait_finished(1200)
        self.since_apply.note(f"{SIZE}: apply to end")
        summary = self.summary()
        self.assertEqual(summary["updates"], UPDATES)
        cells = {(each["schedule"], each["total_budget"]): each for each in summary["evaluations"]}
        learned, uniform, twice = (cells[key] for key in
                                   (("learned", 8), ("uniform", 8), ("uniform", 16)))
        for name, cell in (("uniform", uniform), ("learned", learned), ("uniform", twice)):
            report.note(f"{SIZE}: accuracy, {name} schedule of {cell['total_budget']}",
                        f"{cell['accuracy']:.3f} {cell['ci95']}")
        if SHORT:
            return  # run_test.LearnsWhereToSpendTheBudget holds the claim in every run
        self.assertGreaterEqual(learned["accuracy"], uniform["accuracy"] + 0.10)
        self.assertGreater(learned["ci95"][0], uniform["ci95"][1])
        self.assertGreaterEqual(learned["ci95"][1], twice["accuracy"])

    def summary(self):
        x = self.experiment

        def served():
            with kube.forwarded(x.namespace, f"svc/{x.name}-aggregator") as at:
                return json.loads(kube.fetch(at, "/report/summary.json")[2])
        return kube.until("summary.json", served, 60)

    def test_6_its_export_verifies(self):
        x = self.experiment
        with tempfile.TemporaryDirectory() as folder:
            x.said("export", "--out", folder)
            self.assertIn(f"{UPDATES} updates, {10 * UPDATES} results", x.said("verify", folder, reach=False))
        restarts = {each.name: each.restarts for each in x.pods() if each.restarts}
        self.assertEqual(restarts, {}, "containers were started again")

    def test_7_deleted_nothing_is_left(self):
        x = self.experiment
        watch = report.Stopwatch()
        x.delete()
        watch.note("kubectl delete")
        left = kube.get_json("get", "namespaces,clusterroles,clusterrolebindings",
                             "-l", f"allot.dev/experiment={x.name}")["items"]
        self.assertEqual(left, [])
