"""Experiments as objects: applied, scaled, waited for and deleted, while operators are killed and
the API server is."""
import json
import pathlib
import subprocess
import tempfile
import time
import unittest

from harness import kube, machines, report
from harness.operated import ALLOT, OPERATOR, SOURCE, Operated, Watch, allot, experiment

NAME = "recall-layer-budget"
AUTOSCALER = {"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
              "metadata": {"name": NAME},
              "spec": {"scaleTargetRef": {"apiVersion": "allot.dev/v1alpha1", "kind": "Experiment",
                                          "name": NAME},
                       "minReplicas": 1, "maxReplicas": 3, "targetCPUUtilizationPercentage": 20}}


# As tests/e2e/run_test.cpp has them for a laptop.
MISTAKES = ({"polcy": {}}, {"policy__totalBudget": "eight"}, {"policy__totalBudget": 0},
            {"policy__minPerLayer": 2}, {"policy__minPerLayer": 1}, {"update__learningRate": "fast"},
            {"attention__decode": "s2anta-syz"}, {"evaluation__schedules": [[1, 2]]},
            {"model__chatTemplate": "qwen2"}, {"task__contextTokens": 16},
            {"task__contextTokens": 9000}, {"model__path": "experiments/models/recall-8m"})


def said_on_a_laptop(text):
    """The sentence of `allot run`, from the key on that it names."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "experiment.yaml")
        file.write_text(text)
        done = subprocess.run([ALLOT, "run", str(file), "--dir", folder + "/run"], cwd=SOURCE,
                              text=True, capture_output=True, timeout=120, check=False)
    assert done.returncode == 64, done.stderr
    return done.stderr.strip().splitlines()[-1].partition("spec.")[2]


class Operator(Operated):
    VOLUMES = 3

    def kill_operator(self):
        kube.kubectl(*OPERATOR, "delete", "pods", "--all", "--grace-period=0", "--force")

    def workers(self, name):
        """That the object asks for."""
        return self.of(name)["spec"]["cluster"].get("workers", 1)

    def scaled_by_an_autoscaler(self):
        try:
            kube.kubectl("get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes")
        except kube.KubectlError:
            print("    no metrics, so no autoscaler")
            return
        watch = report.Stopwatch()
        self.kubectl("apply", "-f", "-", stdin=json.dumps(AUTOSCALER))
        kube.until("workers that the autoscaler asks for", lambda: self.workers(NAME) == 3, 240)
        kube.until("as many pods", lambda: len(self.pods(NAME, "worker")) == 3, 60)
        watch.note("from an autoscaler to three workers")
        # It would go on; the story does.
        self.kubectl("delete", "hpa", NAME)

    def without_an_api_server(self):
        if not machines.available():
            return
        before = self.updates(NAME)
        machines.kill_api_server()
        time.sleep(15)
        machines.start_again()
        watch = report.Stopwatch()
        kube.until("updates after the API server was away", lambda: self.updates(NAME) > before, 240)
        watch.note("from the API server's return to news in the status")

    def ended_by_an_edit(self):
        """Updates after which the run ends from now on: ten more than it has made, 40 at least. It
        stands still meanwhile, since an edit is in force only seconds later."""
        run = ("--context", "current", "--namespace", self.NAMESPACE, "--experiment", NAME)
        allot("pause", *run)
        kube.until("a pause", lambda: self.of(NAME)["status"]["state"] == "paused", 60)
        # What workers had in hand may make some more.
        end = max(self.updates(NAME) + 10, 40)
        self.apply(NAME, update__maxUpdates=end, evaluation__everyUpdates=10)
        kube.until("the edit", lambda: self.of(NAME)["status"]["progress"].endswith(f"/{end}"), 120)
        allot("resume", *run)
        return end

    def test_1_a_life(self):
        watch = report.Stopwatch()
        # More than any machine makes before all of the story has been seen.
        self.apply(NAME, update__maxUpdates=100000, evaluation__everyUpdates=10)
        with Watch(self.NAMESPACE, NAME) as seen:
            kube.until("a worker that works",
                       lambda: self.of(NAME)["status"]["workers"]["ready"] == 1, 240)
            watch.note("from apply to a worker that works")
            self.assertEqual(self.condition(NAME, "Accepted")["reason"], "Valid")
            self.kubectl("scale", f"allotexp/{NAME}", "--replicas=2")
            kube.until("two workers", lambda: len(self.pods(NAME, "worker")) == 2, 60)
            self.kill_operator()
            kube.until("updates in the status", lambda: self.updates(NAME) > 0, 240)
            self.scaled_by_an_autoscaler()
            self.without_an_api_server()
            end = self.ended_by_an_edit()
            self.kill_operator()
            self.kubectl("wait", "--for=condition=Complete", f"allotexp/{NAME}", "--timeout=900s",
                         timeout=920)
            watch.note("from apply to Complete")
            kube.until("no workers any more", lambda: not self.pods(NAME, "worker"), 180)
        # Updates and accuracy moved before somebody's eyes.
        updates = [line[2] for line in seen.lines if len(line) > 2]
        self.assertGreaterEqual(len(set(updates)), 4, seen.lines)
        self.assertGreaterEqual(len({line[4] for line in seen.lines if len(line) > 5}), 2, seen.lines)
        line = self.kubectl("get", "allotexp", NAME, "--no-headers").split()
        self.assertIn(f"{end}/{end}", line)
        self.assertIn("finished", line)
        self.assertLessEqual({"Started", "Scaled", "Evaluated", "Completed"}, self.events())
        report.note("an experiment's line in kubectl get", " ".join(line))
        with tempfile.TemporaryDirectory() as folder:
            allot("export", "--context", "current", "--namespace", self.NAMESPACE, "--experiment",
                  NAME, "--out", folder + "/run")
            self.assertIn(f"{end} updates", allot("verify", folder + "/run"))

    def test_2_mistakes_are_said_and_mended(self):
        with self.assertRaises(kube.KubectlError) as refused:
            self.apply("bad", policy__totalBudget=0)
        self.assertIn("spec.policy.totalBudget", str(refused.exception))
        # What no schema can say.
        self.apply("bad", attention__decode="s2anta-syz")
        kube.until("the sentence", lambda: "spec.attention.decode" in
                   self.condition("bad", "Accepted")["message"], 30)
        self.assertFalse(self.pods("bad", "store"))
        # What only a worker can see.
        self.apply("bad", model__path="experiments/models/recall-8m")
        kube.until("the worker's last words", lambda: "there is no folder" in
                   self.condition("bad", "Progressing")["message"], 180)
        self.assertEqual(self.condition("bad", "Progressing")["reason"], "WorkerFailed")
        self.apply("bad", update__maxUpdates=100000)  # it goes on in the tests below
        kube.until("an update", lambda: self.of("bad")["status"].get("startedAt"), 240)
        if kube.server_version() >= (1, 25):
            # From now on the API server itself knows that this would be another run.
            with self.assertRaisesRegex(kube.KubectlError, "spec.seed cannot change.*allot fork"):
                self.apply("bad", seed=2, update__maxUpdates=100000)

    def test_3_every_mistake_is_said_as_on_a_laptop(self):
        by_schema = 0
        for keys in MISTAKES:
            with self.subTest(keys):
                said = said_on_a_laptop(experiment("slip", **keys))
                try:
                    self.apply("slip", **keys)
                except kube.KubectlError as refused:
                    # The schema's own words, of the same key.
                    self.assertIn(next(iter(keys)).split("__")[-1], str(refused))
                    by_schema += 1
                    continue
                # A new one: an old one that failed is started again only after minutes.
                for each in self.pods("slip", "worker"):
                    self.kubectl("delete", "pod", each["metadata"]["name"], "--wait=false",
                                 "--ignore-not-found")
                kube.until(f"of {keys} the sentence {said}", lambda: any(
                    said in self.condition("slip", kind)["message"]
                    for kind in ("Accepted", "Progressing")), 180)
        report.note("mistakes that the schema refuses, of all", f"{by_schema} of {len(MISTAKES)}")
        self.assertFalse(self.of("slip")["status"].get("startedAt"))
        self.kubectl("delete", "allotexp", "slip", "--timeout=60s")

    def test_4_two_share_a_namespace_and_one_goes(self):
        self.kubectl("delete", "allotexp", NAME, "--timeout=60s")
        kube.until("nothing of it", lambda: not self.pods(NAME, "store"), 120)
        self.assertTrue(self.pods("bad", "store"))
        claims = kube.get_json("-n", self.NAMESPACE, "get", "pvc")["items"]
        names = {each["metadata"]["name"] for each in claims}
        self.assertIn(f"data-{NAME}-redis-0", names)  # the run itself

    def test_5_kueues_label_and_suspension(self):
        """As Kueue does it: what it queues has its label, and what it suspends has no pods."""
        def suspended(value):
            self.kubectl("patch", "allotexp", "bad", "--type=merge", "-p",
                         json.dumps({"spec": {"cluster": {"suspend": value, "queue": "gpus"}}}))
        suspended(True)
        kube.until("no workers", lambda: not self.pods("bad", "worker"), 180)
        kube.until("the reason", lambda: self.condition("bad", "Progressing")["reason"] ==
                   "Suspended", 30)
        self.assertTrue(self.pods("bad", "store"))
        suspended(False)
        pods = kube.until("workers again", lambda: self.pods("bad", "worker"), 60)
        self.assertEqual(pods[0]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "gpus")


if __name__ == "__main__":
    unittest.main()
