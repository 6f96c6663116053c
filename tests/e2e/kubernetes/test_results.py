"""spec.cluster.results: an experiment that is deleted goes once its run is in the claim."""
import json
import os
import unittest

import yaml

from harness import kube, machines, report, volume
from harness.operated import Operated, allot, experiment

NAME = "keeper"
CLAIM = "results"


class Results(Operated):
    NAMESPACE = "team-results"

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        kube.kubectl("delete", "persistentvolume", f"{cls.NAMESPACE}-kept", "--ignore-not-found")

    def finalizers(self, name):
        return self.of(name)["metadata"].get("finalizers", [])

    def gone(self, name):
        return not self.kubectl("get", "allotexp", name, "--ignore-not-found", "-o", "name").strip()

    def test_1_a_run_is_exported_before_it_goes(self):
        self.apply(NAME, cluster__results={"claim": CLAIM}, cluster__workers=1)
        kube.until("updates", lambda: self.updates(NAME) >= 2, 300)
        self.assertEqual(self.finalizers(NAME), ["allot.dev/results"])
        self.assertEqual(self.condition(NAME, "Exported")["reason"], "NotDeleted")
        run = self.of(NAME)["status"]["runId"]
        self.kubectl("delete", "allotexp", NAME, "--wait=false")
        kube.until("no workers", lambda: not self.pods(NAME, "worker"), 180)
        # There is no such claim yet, and the object says that it waits for it.
        kube.until("the reason", lambda: self.condition(NAME, "Exported")["reason"] ==
                   "Unschedulable", 60)
        self.assertRegex(self.condition(NAME, "Progressing")["message"],
                         f'(?s)persistentvolumeclaim "{CLAIM}" not found.*'
                         "take spec.cluster.results away")
        report.note("while it waits for a claim", self.condition(NAME, "Exported")["message"])
        volume.renew(f"{self.NAMESPACE}-kept", (self.NAMESPACE, CLAIM))
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM},
            "spec": {"accessModes": ["ReadWriteOnce"],
                     "resources": {"requests": {"storage": "1Gi"}}}}))
        watch = report.Stopwatch()
        kube.until("its end", lambda: self.gone(NAME), 180)
        watch.note("from a claim to a run in it")
        kube.until("nothing of it", lambda: not self.pods(NAME, "store"), 120)
        self.assertIn("Exported", self.events())
        if machines.available():
            folder = volume.folder(f"{self.NAMESPACE}-kept") / NAME / run
            self.assertIn("updates", allot("verify", str(folder)))
            report.note("exported", sorted(os.listdir(folder)))

    def test_2_who_wants_no_results_any_more_takes_them_out(self):
        self.apply("other", cluster__results={"claim": "nowhere"}, cluster__workers=1)
        kube.until("an update", lambda: self.of("other")["status"].get("startedAt"), 300)
        self.kubectl("delete", "allotexp", "other", "--wait=false")
        kube.until("what it waits for", lambda: self.condition("other", "Exported")["reason"] ==
                   "Unschedulable", 240)
        self.kubectl("patch", "allotexp", "other", "--type=merge", "-p",
                     json.dumps({"spec": {"cluster": {"results": None}}}))
        kube.until("its end", lambda: self.gone("other"), 60)

    def test_3_a_namespace_that_is_deleted_is_not_held_up(self):
        name = self.NAMESPACE + "-ends"
        kube.kubectl("create", "namespace", name)
        volume.renew(f"{name}-0")
        kube.kubectl("-n", name, "apply", "-f", "-",
                     stdin=experiment("third", cluster__results={"claim": "nowhere"}))

        def begun():
            found = kube.get_json("-n", name, "get", "experiments.allot.dev/third")
            return found.get("status", {}).get("startedAt")
        kube.until("an update", begun, 300)
        watch = report.Stopwatch()
        kube.kubectl("delete", "namespace", name, "--timeout=280s", timeout=300)
        watch.note("to delete a namespace with results that nobody can export")


if __name__ == "__main__":
    unittest.main()
