"""The next version is applied in the middle of a run: it goes on, and every update verifies."""
import re
import unittest

from harness import kube, machines, manifests, report, volume
from harness.experiment import Experiment

COMPONENTS = ("worker", "aggregator", "store")
IMAGES = ("worker", "aggregator", "redis")


def tag_images():
    """The present images under the next version's tag, on every node."""
    for node in kube.get_json("get", "nodes")["items"]:
        for image in IMAGES:
            present = f"localhost/allot-{image}"
            machines.script("in-node.sh", machines.number(node["metadata"]["name"]), "ctr", "-n",
                            "k8s.io", "images", "tag", "--force", f"{present}:0.1.0",
                            f"{present}:next")


def next_version():
    """The experiment of stories/faults.yaml as the next version has it: other tags, another label. What
    differs in the images is up to who loads them."""
    objects = manifests.faults(("--tag", "next"))
    for each in objects:
        # Not in templates: a volume claim's cannot change.
        each["metadata"]["labels"]["app.kubernetes.io/version"] = "next"
    return objects


@unittest.skipUnless(machines.available(), "needs the test cluster's own scripts")
class Upgrade(unittest.TestCase):
    """One story: the tests run in the order of their names."""

    @classmethod
    def setUpClass(cls):
        volume.renew()
        tag_images()
        cls.experiment = Experiment(manifests.faults())
        cls.next = Experiment(next_version())
        cls.experiment.apply()
        try:
            cls.experiment.wait_version(1, 480)
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.experiment.delete()

    def versions(self):
        """The tags of its pods' images, those on their way out included."""
        # By their specs: a node that knows an image under two tags may tell either.
        return {each.data["spec"]["containers"][0]["image"].rpartition(":")[2]
                for each in self.experiment.pods()}

    def test_1_the_next_version_is_applied_while_workers_hold_results(self):
        x = self.experiment
        x.scale(3)
        x.wait_ready("worker", 3)
        kube.until("every worker has pushed an episode", lambda: sorted(
            each["episodes"] > 0 for each in x.status()["workers"]) == [True] * 3, 120)
        before, run = x.version(), x.status()["run_id"]
        watch = report.Stopwatch()
        self.next.apply()
        kube.until("only pods of the next version", lambda: self.versions() == {"next"}, 400)
        watch.note("next version applied to all pods replaced")
        for component, count in zip(COMPONENTS, (3, 1, 1)):
            for pod in x.wait_ready(component, count):
                self.assertEqual(pod.restarts, 0, pod.why())
        now = x.version()
        self.assertGreaterEqual(now, before)
        x.wait_version(now + 2)
        watch.note("next version applied to next update")
        status = x.status()
        self.assertEqual(status["run_id"], run)
        self.assertEqual(status["edit_refused"], "")

    def test_2_the_run_ends_right(self):
        x = self.experiment
        kube.until("workers of one build", lambda: x.status()["other_builds"] == "", 60)
        last = x.version() + 50
        x.edit(lambda text: re.sub(r"maxUpdates: \d+", f"maxUpdates: {last}", text))
        x.nudge("aggregator")
        x.wait_finished(900)
        status = x.status()
        self.assertEqual(sum(status["refused"].values()), 0, status["refusals"])
        said = x.said("verify")
        self.assertIn(f"verified: {status['version']} updates", said)
        report.note("after the next version was applied", said.strip())
