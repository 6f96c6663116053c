"""One experiment in the cluster: its objects, its processes, what `allot` says of it."""
import json
import os
import subprocess
import time

import yaml

from harness import kube

ALLOT = os.environ.get("ALLOT", "allot")
LABEL = "allot.dev/experiment"


class Pod:
    def __init__(self, data):
        self.data = data
        self.name = data["metadata"]["name"]
        self.uid = data["metadata"]["uid"]
        self.labels = data["metadata"]["labels"]
        self.component = self.labels.get("app.kubernetes.io/component", "")
        self.node = data["spec"].get("nodeName", "")
        self.leaving = "deletionTimestamp" in data["metadata"]
        status = data.get("status", {})
        self.phase = status.get("phase")
        self.containers = status.get("containerStatuses", [])
        self.ready = not self.leaving and any(
            each["type"] == "Ready" and each["status"] == "True"
            for each in status.get("conditions", []))
        self.restarts = sum(each["restartCount"] for each in self.containers)

    def why(self):
        """What the pod and its containers wait for or died of, for messages."""
        states = [each.get("state") for each in self.containers]
        last = [each["lastState"] for each in self.containers if each.get("lastState")]
        return f"{self.name} on {self.node}: {self.phase} {states} {last}"


class Experiment:
    """The experiment that the objects are of, in the namespace of its own name."""

    def __init__(self, objects):
        self.text = yaml.safe_dump_all(objects)
        namespaces = [each["metadata"]["name"] for each in objects
                      if each["kind"] == "Namespace"]
        assert len(namespaces) == 1, f"{namespaces} instead of one namespace"
        self.namespace = self.name = namespaces[0]

    # --- objects
    def apply(self):
        return kube.kubectl("apply", "-f", "-", stdin=self.text)

    def delete(self):
        # The workers first: having seen them leave, Kubernetes 1.20 looks at the namespace again
        # only after half of their 120 s of grace.
        found = kube.get_json("get", "deployments", "-A", "-l", f"{LABEL}={self.name}")["items"]
        if found:
            self.scale(0)
            kube.until("no workers", lambda: not self.pods("worker"), 150)
        return kube.kubectl("delete", "-f", "-", "--ignore-not-found", "--timeout=180s",
                            stdin=self.text, timeout=200)

    def kubectl(self, *arguments, **options):
        return kube.kubectl("-n", self.namespace, *arguments, **options)

    def scale(self, workers):
        self.kubectl("scale", f"deploy/{self.name}-worker", f"--replicas={workers}")

    def lone_worker(self, option):
        """A worker of its own, with another --NAME=VALUE, that no Deployment brings back; its name."""
        template = self.ready("worker")[0].data
        spec = template["spec"]
        name = option.partition("=")[0] + "="
        container = spec["containers"][0]
        container["args"] = [option if each.startswith(name) else each
                             for each in container["args"]]
        for field in ("nodeName", "serviceAccount"):
            spec.pop(field, None)
        labels = {key: value for key, value in template["metadata"]["labels"].items()
                  if key != "pod-template-hash"}
        name = f"{self.name}-lone-worker"
        pod = {"apiVersion": "v1", "kind": "Pod", "spec": spec,
               "metadata": {"name": name, "labels": labels}}
        self.kubectl("create", "-f", "-", stdin=json.dumps(pod))
        return name

    def edit(self, change):
        """Edits the experiment's file in its ConfigMap, as `kubectl edit` does."""
        name = f"{self.name}-experiment"
        text = kube.get_json("-n", self.namespace, "get", "configmap", name)["data"]
        edited = change(text["experiment.yaml"])
        assert edited != text["experiment.yaml"], "the edit changes nothing"
        patch = json.dumps({"data": {"experiment.yaml": edited}})
        self.kubectl("patch", "configmap", name, "--type=merge", "-p", patch)

    # --- pods
    def pods(self, component=None):
        selector = f"{LABEL}={self.name}"
        if component:
            selector += f",app.kubernetes.io/component={component}"
        found = kube.get_json("-n", self.namespace, "get", "pods", "-l", selector)
        return [Pod(each) for each in found["items"]]

    def ready(self, component):
        """Its ready pods that are not on their way out."""
        return [each for each in self.pods(component) if each.ready]

    def wait_ready(self, component, count, seconds=180):
        def as_many():
            pods = self.ready(component)
            return pods if len(pods) == count else None
        try:
            return kube.until(f"{count} ready pods of {component}", as_many, seconds)
        except AssertionError as error:
            states = "; ".join(each.why() for each in self.pods(component))
            raise AssertionError(f"{error} ({states})") from None

    def restarts(self, component):
        """How often each pod's containers were started again, by the pod's uid."""
        return {each.uid: each.restarts for each in self.pods(component)}

    def fetch(self, pod, path):
        with kube.forwarded(self.namespace, f"pod/{pod.name}") as address:
            return kube.fetch(address, path)

    def metrics(self, pod):
        return kube.Metrics(self.fetch(pod, "/metrics")[2])

    # --- the run, by the allot command
    def allot(self, command, *arguments, reach=True, timeout=180):
        """Runs `allot COMMAND`; reach: on the run in the cluster, through kubectl."""
        way = ["--context", "-", "--experiment", self.name] if reach else []
        return subprocess.run([ALLOT, command, *arguments, *way], text=True, timeout=timeout,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)

    def said(self, command, *arguments, **options):
        done = self.allot(command, *arguments, **options)
        if done.returncode != 0:
            raise kube.KubectlError(f"allot {command}: {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def status(self):
        return json.loads(self.said("status", "--json"))

    def version(self):
        return self.status()["version"]

    def wait_version(self, version, seconds=360):
        def reached():
            now = self.version()
            return now if now >= version else None
        return kube.until(f"update {version}", reached, seconds, every=0.2)

    def wait_finished(self, seconds=300):
        return kube.until("the run's end", lambda: self.status()["state"] == "finished", seconds)

    def nudge(self, component):
        """A changed pod makes its kubelet bring mounted files up to date now, not in a minute."""
        for pod in self.pods(component):
            self.kubectl("annotate", "pod", pod.name, "--overwrite",
                         f"allot.dev/nudged={time.time():.0f}")
