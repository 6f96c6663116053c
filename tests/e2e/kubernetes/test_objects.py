"""What an API server says of the manifests: that it takes every one, and what it keeps out."""
import unittest

import yaml

from harness import kube, manifests, report
from harness.manifests import SOURCE

# Kinds of the Prometheus operator, which the cluster need not have.
FOREIGN = {"PodMonitor", "ServiceMonitor", "PrometheusRule"}


def too_new(each, version):
    """PodDisruptionBudgets of policy/v1 came with 1.21."""
    return each["apiVersion"] == "policy/v1" and version < (1, 21)


class Objects(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.namespaces = set()

    @classmethod
    def tearDownClass(cls):
        if cls.namespaces:
            kube.kubectl("delete", "namespace", *cls.namespaces, "--timeout=100s")

    def namespace(self, objects):
        """What the objects are to be in is there in earnest: a dry run wants it. A guest is put into
        one of the test's own."""
        guest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "allot-objects"}}
        space = next((each for each in objects if each["kind"] == "Namespace"), guest)
        name = space["metadata"]["name"]
        if name not in self.namespaces:
            self.namespaces.add(name)
            kube.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(space))
            kube.until("the namespace's service account",
                       lambda: kube.kubectl("-n", name, "get", "serviceaccount", "default"), 60)
        return name

    def accepted(self, objects):
        version = kube.server_version()
        rest = [each for each in objects if each["kind"] != "Namespace"
                and each["kind"] not in FOREIGN and not too_new(each, version)]
        name = self.namespace(objects)
        kube.kubectl("-n", name, "apply", "--dry-run=server", "-f", "-",
                     stdin=yaml.safe_dump_all(rest))
        return len(rest)

    def test_every_experiment_is_accepted(self):
        count = 0
        files = sorted(SOURCE.glob("experiments/*/experiment.yaml"))
        self.assertGreaterEqual(len(files), 7)
        for file in files:
            with self.subTest(file.parent.name):
                count += self.accepted(manifests.rendered(file))
        report.note("objects that the API server accepts", count)

    def test_every_component_is_accepted(self):
        for component in sorted(SOURCE.glob("k8s/components/*.yaml")):
            if component.stem != "namespace":  # is there in all of them
                with self.subTest(component.stem):
                    self.accepted(manifests.own(component.stem))

    def test_the_namespace_keeps_a_privileged_pod_out(self):
        if kube.server_version() < (1, 23):
            self.skipTest("needs Kubernetes 1.23, which brought Pod Security admission")
        name = self.namespace(manifests.own())
        with self.assertRaisesRegex(kube.KubectlError, 'violates PodSecurity "restricted'):
            kube.kubectl("-n", name, "run", "privileged", "--image=localhost/busybox:1",
                         "--privileged")
        # What has no privilege, but could ask for it, is kept out, too.
        with self.assertRaisesRegex(kube.KubectlError, "allowPrivilegeEscalation"):
            kube.kubectl("-n", name, "run", "plain", "--image=localhost/busybox:1")
