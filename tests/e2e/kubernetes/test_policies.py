"""NetworkPolicies in force: two experiments and strangers in one namespace do not notice each other,
and all of it works as without."""
import json
import os
import shutil
import unittest

from harness import kube, machines, policies, report
from harness.operated import Operated

FIRST, SECOND = "recall-a", "recall-b"


def pod(name, labels, port=None):
    """One that tries addresses, and answers at a port if it is given one."""
    command = f"mkdir -p /tmp/www && exec httpd -f -p {port} -h /tmp/www" if port else "exec sleep 3600"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
            "spec": {"terminationGracePeriodSeconds": 0, "enableServiceLinks": False,
                     "automountServiceAccountToken": False,
                     "containers": [{"name": "busybox", "image": "localhost/busybox:1",
                                     "command": ["sh", "-c", command]}]}}


@unittest.skipUnless(machines.available() and (shutil.which("nft") or "ALLOT_CI" in os.environ),
                     "needs the test cluster's own scripts, and nft (Debian package nftables)")
class Policies(Operated):
    NAMESPACE = "team-policies"

    def start_strangers(self):
        """What is somebody else's, and a pod with all of a worker's labels: as the policies see it
        it is one, and it has a shell."""
        labels = dict(self.pods(FIRST, "worker")[0]["metadata"]["labels"])
        del labels["pod-template-hash"]  # else it would be taken for a spare worker
        for each in (pod("server", {}, 8080), pod("stranger", {}), pod("lookalike", labels, 9464)):
            self.kubectl("apply", "-f", "-", stdin=json.dumps(each))
        for name in ("server", "stranger", "lookalike"):
            self.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")

    def address(self, name):
        status = kube.get_json("-n", self.NAMESPACE, "get", "pod", name)["status"]
        return status["podIP"]

    def store(self, name):
        return self.pods(name, "store")[0]["status"]["podIP"]

    def reaches(self, source, address, port):
        try:
            # Connects, and ends.
            self.kubectl("exec", source, "--", "nc", "-w", "3", address, str(port), "-e", "/bin/true")
            return True
        except kube.KubectlError as error:
            if "exit code 1" not in str(error):
                raise
            return False

    def flows(self):
        """{who to whom: whether it is let through}"""
        worker = next(each["status"]["podIP"] for each in self.pods(SECOND, "worker")
                      if each["status"].get("podIP"))
        targets = {"its redis": (self.store(FIRST), 6379), "the other's redis": (self.store(SECOND), 6379),
                   "the other's worker": (worker, 9464), "server": (self.address("server"), 8080)}
        found = {(source, name): self.reaches(source, *target)
                 for source in ("lookalike", "stranger") for name, target in targets.items()}
        found["stranger", "lookalike"] = self.reaches("stranger", self.address("lookalike"), 9464)
        return found

    def test_1_nobody_notices_the_others(self):
        for name in (FIRST, SECOND):
            self.apply(name, update__maxUpdates=100000)
        for name in (FIRST, SECOND):
            kube.until(f"updates of {name}", lambda each=name: self.updates(each) > 0, 300)
        self.start_strangers()
        # Else a network that is broken would pass for one that is enforced.
        self.assertEqual({flow for flow, passes in self.flows().items() if not passes}, set())
        with policies.enforced():
            self.assertEqual({flow for flow, passes in self.flows().items() if passes},
                             {("lookalike", "its redis"), ("stranger", "server")})
            before = {name: self.updates(name) for name in (FIRST, SECOND)}
            dropped = policies.dropped()
            # What has to be found anew works, too: names, the store, the aggregator's answers.
            for component in ("worker", "aggregator"):
                for each in self.pods(FIRST, component):
                    if each["metadata"]["name"] != "lookalike":
                        self.kubectl("delete", "pod", each["metadata"]["name"], "--wait=false")
            for name in (FIRST, SECOND):
                kube.until(f"more updates of {name}",
                           lambda each=name: self.updates(each) > before[each] + 1, 400)
            report.note("packets that the policies dropped", dropped)
            for name in (FIRST, SECOND):
                self.assertEqual(self.condition(name, "Progressing")["reason"], "Running")


if __name__ == "__main__":
    unittest.main()
