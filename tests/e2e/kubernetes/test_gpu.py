"""spec.cluster.gpus: workers go where nvidia.com/gpu is offered, and wait where none is."""
import unittest

from harness import kube, machines, manifests, volume
from harness.experiment import Experiment


@unittest.skipUnless(machines.available(), "needs a node that can pretend to have GPUs")
class Gpu(unittest.TestCase):
    def test_workers_go_where_gpus_are(self):
        volume.renew()
        x = Experiment(manifests.own(options=("--set", "spec.cluster.gpus=1")))
        machines.pretend_gpus("node2", 0)
        x.apply()
        try:
            kube.until("the worker finds no GPU", lambda: self.unschedulable(x), 60)
            machines.pretend_gpus("node2", 2)
            x.scale(3)
            kube.until("a worker for each GPU, both on node2",
                       lambda: sorted(each.node for each in x.pods("worker")) ==
                       ["", "node2", "node2"], 60)
            for pod in x.pods("worker"):
                container = pod.data["spec"]["containers"][0]
                self.assertEqual(container["resources"]["limits"]["nvidia.com/gpu"], "1")
                self.assertIn("allot-worker-cuda:", container["image"])
        finally:
            x.delete()
            machines.pretend_gpus("node2", 0)

    @staticmethod
    def unschedulable(x):
        """Says whether a pod waits for a GPU. A pod that no scheduler has seen has no conditions."""
        return any(each.get("reason") == "Unschedulable" and "nvidia.com/gpu" in each["message"]
                   for pod in x.pods("worker")
                   for each in pod.data["status"].get("conditions", []))
