"""Experiments as objects, in a namespace, with the operator that runs them."""
import os
import pathlib
import subprocess
import threading
import unittest

import yaml

from harness import kube, volume
from harness.manifests import REGISTRY

SOURCE = pathlib.Path(__file__).resolve().parents[4]
ALLOT = os.environ["ALLOT"]
OPERATOR = ("-n", "allot-system")


def allot(*arguments, timeout=180):
    done = subprocess.run([ALLOT, *arguments], text=True, timeout=timeout, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise kube.KubectlError(f"allot {arguments[0]}: {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def experiment(name, **keys):
    """That of the short learning story, under a name; keys: PATH=VALUE with __ for a dot."""
    file = SOURCE / "tests/e2e/kubernetes/stories/learning-short.yaml"
    made = yaml.safe_load(file.read_text())
    made["metadata"]["name"] = name
    # Short prompts and small updates: these stories are of objects. Two nodes share two cores.
    made["spec"]["task"].update(contextTokens=256, heldOutQuestions=16)
    made["spec"]["rollout"]["questionsPerEpisode"] = 4
    made["spec"]["update"]["episodesPerUpdate"] = 5
    made["spec"]["evaluation"]["budgets"] = [8]
    made["spec"]["cluster"] = {"resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}}
    for path, value in keys.items():
        *parents, last = path.split("__")
        at = made["spec"]
        for parent in parents:
            at = at.setdefault(parent, {})
        at[last] = value
    return yaml.safe_dump(made)


def operator_objects():
    """What installs the operator, with its images from where they are."""
    objects = kube.render(SOURCE / "k8s/operator")
    if kube.server_version() < (1, 25):
        # Such servers do not know the rules, or refuse to read them.
        rest = [each for each in objects if each["kind"] != "CustomResourceDefinition"]
        objects = rest + [yaml.safe_load(allot("crd", "--without-rules"))]
    if REGISTRY:
        deployment = next(each for each in objects if each["kind"] == "Deployment")
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        container["image"] = REGISTRY + "/" + container["image"].rpartition("/")[2]
        container["args"].append(f"--registry={REGISTRY}")
    return sorted(objects, key=lambda each: each["kind"] != "Namespace")


class Watch:
    """The lines of `kubectl get allotexp NAME -w`, which is begun again where it ends, as a person does;
    of equal lines one after the other the first."""

    def __init__(self, namespace, name):
        self.command = ["kubectl", "-n", namespace, "get", "allotexp", name, "-w", "--no-headers"]
        self.lines = []
        self.over = threading.Event()
        self.process = None
        self.thread = threading.Thread(target=self.read)

    def read(self):
        while not self.over.is_set():
            self.process = subprocess.Popen(self.command, text=True, stdout=subprocess.PIPE,
                                            stderr=subprocess.DEVNULL)
            for line in self.process.stdout:
                fields = line.split()[:-1]  # without its age
                if fields and (not self.lines or self.lines[-1] != fields):
                    self.lines.append(fields)
                    print("   ", " ".join(fields), flush=True)
            self.process.wait()
            self.over.wait(1)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.process.terminate()
        self.thread.join()


class Operated(unittest.TestCase):
    NAMESPACE = "team"
    VOLUMES = 2  # one for each experiment

    @classmethod
    def setUpClass(cls):
        for number in range(cls.VOLUMES):
            volume.renew(f"{cls.NAMESPACE}-{number}")
        kube.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(operator_objects()))
        kube.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": cls.NAMESPACE}}))
        kube.kubectl("wait", "--for=condition=Established", "crd/experiments.allot.dev",
                     "--timeout=60s")
        kube.kubectl(*OPERATOR, "rollout", "status", "deploy/allot-operator", "--timeout=120s")

    @classmethod
    def tearDownClass(cls):
        cls.kubectl("delete", "experiments.allot.dev", "--all", "--timeout=100s")
        kube.kubectl("delete", "namespace", cls.NAMESPACE, "allot-system", "--timeout=180s",
                     timeout=200)
        kube.kubectl("delete", "crd/experiments.allot.dev", "--timeout=60s")

    @classmethod
    def kubectl(cls, *arguments, **options):
        return kube.kubectl("-n", cls.NAMESPACE, *arguments, **options)

    def apply(self, name, **keys):
        self.kubectl("apply", "-f", "-", stdin=experiment(name, **keys))

    def of(self, name):
        found = kube.get_json("-n", self.NAMESPACE, "get", f"experiments.allot.dev/{name}")
        status = found.setdefault("status", {})
        status.setdefault("workers", {"ready": 0})
        status.setdefault("progress", "0/0")
        return found

    def updates(self, name):
        return int(self.of(name)["status"]["progress"].split("/")[0])

    def condition(self, name, kind):
        conditions = self.of(name)["status"].get("conditions", [])
        return next((each for each in conditions if each["type"] == kind),
                    {"reason": "", "message": ""})

    def pods(self, name, component):
        selector = f"allot.dev/experiment={name},app.kubernetes.io/component={component}"
        return kube.get_json("-n", self.NAMESPACE, "get", "pods", "-l", selector)["items"]

    def events(self):
        """Reasons of those about experiments."""
        return {each["reason"] for each in
                kube.get_json("-n", self.NAMESPACE, "get", "events")["items"]
                if each["involvedObject"]["kind"] == "Experiment"}
