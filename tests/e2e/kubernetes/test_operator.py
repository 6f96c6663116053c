"""Experiments as objects: applied, scaled, waited for and deleted, while operators are killed."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import yaml

from harness import kube, report, volume

SOURCE = pathlib.Path(__file__).resolve().parents[3]
ALLOT = os.environ["ALLOT"]
NAMESPACE = "team"
OPERATOR = ("-n", "allot-system")
NAME = "recall-layer-budget"


def allot(*arguments, timeout=180):
    done = subprocess.run([ALLOT, *arguments], text=True, timeout=timeout, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise kube.KubectlError(f"allot {arguments[0]}: {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def experiment(name, **keys):
    """That of the short learning story, under a name; keys: PATH=VALUE with __ for a dot."""
    file = SOURCE / "tests/e2e/kubernetes/overlays/learning-short/experiment.yaml"
    made = yaml.safe_load(file.read_text())
    made["metadata"]["name"] = name
    # Two nodes share one machine of two cores.
    made["spec"]["cluster"] = {"resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}}
    for path, value in keys.items():
        *parents, last = path.split("__")
        at = made["spec"]
        for parent in parents:
            at = at.setdefault(parent, {})
        at[last] = value
    return yaml.safe_dump(made)


def kubectl(*arguments, **options):
    return kube.kubectl("-n", NAMESPACE, *arguments, **options)


def of(name):
    found = kube.get_json("-n", NAMESPACE, "get", f"experiments.allot.dev/{name}")
    status = found.setdefault("status", {})
    status.setdefault("workers", {"ready": 0})
    status.setdefault("progress", "0/20")
    return found


def condition(name, kind):
    conditions = of(name).get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == kind),
                {"reason": "", "message": ""})


def pods(name, component):
    selector = f"allot.dev/experiment={name},app.kubernetes.io/component={component}"
    return kube.get_json("-n", NAMESPACE, "get", "pods", "-l", selector)["items"]


class Operator(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for name in ("allot-one", "allot-two"):  # a volume for each experiment
            volume.renew(name)
        objects = kube.render(SOURCE / "k8s/operator")
        if kube.server_version() < (1, 25):
            # Such servers do not know the rules, or refuse to read them.
            rest = [each for each in objects if each["kind"] != "CustomResourceDefinition"]
            objects = rest + [yaml.safe_load(allot("crd", "--without-rules"))]
        objects.sort(key=lambda each: each["kind"] != "Namespace")
        kube.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(objects))
        kube.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}))
        kube.kubectl("wait", "--for=condition=Established", "crd/experiments.allot.dev",
                     "--timeout=60s")
        kube.kubectl(*OPERATOR, "rollout", "status", "deploy/allot-operator", "--timeout=120s")

    @classmethod
    def tearDownClass(cls):
        kubectl("delete", "experiments.allot.dev", "--all", "--timeout=100s")
        kube.kubectl("delete", "namespace", NAMESPACE, "allot-system", "--timeout=180s",
                     timeout=200)
        kube.kubectl("delete", "crd/experiments.allot.dev", "--timeout=60s")

    def kill_operator(self):
        kube.kubectl(*OPERATOR, "delete", "pods", "--all", "--grace-period=0", "--force")

    def test_1_a_life(self):
        kubectl("apply", "-f", "-", stdin=experiment(NAME))
        kube.until("a worker that works", lambda: of(NAME)["status"]["workers"]["ready"] == 1, 180)
        self.assertEqual(condition(NAME, "Accepted")["reason"], "Valid")
        kubectl("scale", f"exp/{NAME}", "--replicas=2")
        kube.until("two workers", lambda: len(pods(NAME, "worker")) == 2, 60)
        self.kill_operator()
        kube.until("updates in the status",
                   lambda: of(NAME)["status"]["progress"] not in ("0/20", "20/20"), 240)
        self.kill_operator()
        kubectl("wait", "--for=condition=Complete", f"exp/{NAME}", "--timeout=400s", timeout=420)
        kube.until("no workers any more", lambda: not pods(NAME, "worker"), 180)
        line = kubectl("get", "exp", NAME, "--no-headers").split()
        self.assertIn("20/20", line)
        self.assertIn("finished", line)
        events = kubectl("get", "events", "-o", "json")
        reasons = {each["reason"] for each in json.loads(events)["items"]
                   if each["involvedObject"]["kind"] == "Experiment"}
        self.assertLessEqual({"Started", "Scaled", "Completed"}, reasons)
        report.note("an experiment's line in kubectl get", " ".join(line))
        with tempfile.TemporaryDirectory() as folder:
            allot("export", "--context", "current", "--namespace", NAMESPACE, "--experiment", NAME,
                  "--out", folder + "/run")
            self.assertIn("20 updates", allot("verify", folder + "/run"))

    def test_2_mistakes_are_said_and_mended(self):
        with self.assertRaises(kube.KubectlError) as refused:
            kubectl("apply", "-f", "-", stdin=experiment("bad", policy__totalBudget=0))
        self.assertIn("spec.policy.totalBudget", str(refused.exception))
        # What no schema can say.
        kubectl("apply", "-f", "-", stdin=experiment("bad", attention__decode="s2anta-syz"))
        kube.until("the sentence",
                   lambda: "spec.attention.decode" in condition("bad", "Accepted")["message"], 30)
        self.assertFalse(pods("bad", "store"))
        # What only a worker can see.
        kubectl("apply", "-f", "-",
                stdin=experiment("bad", model__path="experiments/models/recall-8m"))
        kube.until("the worker's last words",
                   lambda: "there is no folder" in condition("bad", "Progressing")["message"], 180)
        self.assertEqual(condition("bad", "Progressing")["reason"], "WorkerFailed")
        kubectl("apply", "-f", "-", stdin=experiment("bad"))
        kube.until("an update", lambda: of("bad")["status"].get("startedAt"), 240)

    def test_3_two_share_a_namespace_and_one_goes(self):
        kubectl("delete", "exp", NAME, "--timeout=60s")
        kube.until("nothing of it", lambda: not pods(NAME, "store"), 120)
        self.assertTrue(pods("bad", "store"))
        claims = kube.get_json("-n", NAMESPACE, "get", "pvc")["items"]
        names = {each["metadata"]["name"] for each in claims}
        self.assertIn(f"data-{NAME}-redis-0", names)  # the run itself
        kubectl("patch", "exp", "bad", "--type=merge", "-p",
                json.dumps({"spec": {"cluster": {"suspend": True}}}))
        kube.until("no workers", lambda: not pods("bad", "worker"), 180)
        self.assertEqual(condition("bad", "Progressing")["reason"], "Suspended")


if __name__ == "__main__":
    unittest.main()
