"""What the cluster tests do before they need a cluster: options, objects, images.

    harness_test.py ALLOT      the program
"""
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
REGISTRY = "registry.example.org/team"
os.environ.update(ALLOT=str(pathlib.Path(sys.argv.pop(1)).resolve()), ALLOT_IMAGES=REGISTRY)
sys.path.insert(0, str(HERE))
from harness import kube, manifests, operated  # noqa: E402


def run(*options, **environment):
    """(exit status, what was said) of `run`."""
    done = subprocess.run([HERE / "run", *options], text=True, capture_output=True, timeout=60,
                          env={**os.environ, "ALLOT_IMAGES": "", **environment}, check=False)
    return done.returncode, done.stdout + done.stderr


def containers(objects):
    return [container for each in objects if each["kind"] in ("Deployment", "StatefulSet")
            for container in each["spec"]["template"]["spec"]["containers"]]


class Options(unittest.TestCase):
    def test_without_a_cluster_it_is_skipped(self):
        status, said = run(ALLOT_TESTCLUSTER="/nowhere")
        self.assertEqual(status, 77)
        self.assertIn("skipped: no test cluster in /nowhere; see README.md for --kubeconfig", said)

    def test_images_need_a_kubeconfig(self):
        for options in (("--images", REGISTRY), ("--load", "true")):
            self.assertEqual(run(*options), (64, "run: --images and --load go with --kubeconfig\n"))

    @unittest.skipUnless(shutil.which("kubectl") or "ALLOT_CI" in os.environ,
                         "needs kubectl (Debian package kubernetes-client)")
    def test_a_cluster_that_does_not_answer_is_named(self):
        status, said = run("--kubeconfig", "/dev/null", "test_objects")
        self.assertEqual(status, 69)
        self.assertIn("the cluster of /dev/null does not answer", said)


class Objects(unittest.TestCase):
    def test_every_story_is_small_and_takes_its_images_from_the_registry(self):
        for file in manifests.STORIES.glob("*.yaml"):
            with self.subTest(file.stem):
                found = containers(manifests.story(file.stem))
                self.assertEqual(len(found), 3)
                for each in found:
                    self.assertIn(each["resources"]["requests"]["cpu"], ("50m", "100m"))
                    self.assertTrue(each["image"].startswith(REGISTRY + "/allot-"))

    def test_four_workers_share_two_cores(self):
        limits = [each["resources"]["limits"]["cpu"] for each in containers(manifests.faults())
                  if each["name"] == "worker"]
        self.assertEqual(limits, ["400m"])

    @unittest.skipUnless(shutil.which("kubectl") or "ALLOT_CI" in os.environ,
                         "needs kubectl (Debian package kubernetes-client)")
    def test_the_operator_comes_from_the_registry_and_passes_it_on(self):
        kube.server_version = lambda: (1, 36)
        objects = operated.operator_objects()
        self.assertEqual(objects[0]["kind"], "Namespace")
        container, = containers(objects)
        self.assertTrue(container["image"].startswith(REGISTRY + "/allot-operator"))
        self.assertIn(f"--registry={REGISTRY}", container["args"])


if __name__ == "__main__":
    unittest.main()
