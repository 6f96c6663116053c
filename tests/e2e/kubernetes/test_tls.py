"""spec.cluster.tls: pods speak TLS to Redis, in both ways into a cluster; a renewed certificate takes
effect, and one for another name is refused with a sentence."""
import json
import pathlib
import subprocess
import tempfile
import unittest

import yaml

from harness import kube, manifests, report
from harness.operated import Operated, allot, experiment

SECRET = "store-tls"
TLS = {"cluster__tls": {"secret": SECRET}, "cluster__workers": 1, "update__maxUpdates": 100000}


class Tls(Operated):
    NAMESPACE = "team-tls"
    VOLUMES = 3

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.renew_certificate()

    @classmethod
    def renew_certificate(cls):
        """As docs/cluster.md says."""
        with tempfile.TemporaryDirectory() as folder:
            names = "subjectAltName=DNS:operated-redis,DNS:rendered-redis"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:3072", "-nodes", "-days", "365",
                            "-subj", "/CN=allot", "-addext", names, "-keyout", "tls.key",
                            "-out", "tls.crt"], cwd=folder, check=True, capture_output=True)
            files = [f"--from-file={key}={folder}/{file}" for key, file in
                     (("ca.crt", "tls.crt"), ("tls.crt", "tls.crt"), ("tls.key", "tls.key"))]
            made = cls.kubectl("create", "secret", "generic", SECRET, "--type=kubernetes.io/tls",
                               *files, "--dry-run=client", "-o", "yaml")
            cls.kubectl("apply", "-f", "-", stdin=made)

    def status(self, name):
        """Through kubectl, over TLS."""
        return json.loads(allot("status", "--json", "--context", "current", "--namespace",
                                self.NAMESPACE, "--experiment", name))

    def redis_cli(self, name, *arguments):
        try:
            return self.kubectl("exec", f"{name}-redis-0", "--", "redis-cli", *arguments, "ping")
        except kube.KubectlError as error:
            return str(error)

    def restarts(self, name, component):
        return [each["status"]["containerStatuses"][0]["restartCount"]
                for each in self.pods(name, component)]

    def test_1_through_the_operator(self):
        watch = report.Stopwatch()
        self.apply("operated", **TLS)
        kube.until("updates", lambda: self.updates("operated") >= 2, 300)
        watch.note("with TLS: from apply to the second update")
        self.assertGreaterEqual(self.status("operated")["version"], 2)
        self.assertIn("NOAUTH", self.redis_cli("operated", "--tls", "--insecure"))
        self.assertNotIn("NOAUTH", self.redis_cli("operated"))

    def test_2_a_renewed_certificate(self):
        before = self.updates("operated")
        self.renew_certificate()
        watch = report.Stopwatch()
        kube.until("Redis started again", lambda: self.restarts("operated", "store") == [1], 300)
        watch.note("from a renewed certificate to Redis with it")
        kube.until("updates", lambda: self.updates("operated") >= before + 2, 240)
        self.assertEqual(self.restarts("operated", "worker"), [0])
        self.assertGreaterEqual(self.status("operated")["version"], before + 2)

    def test_3_with_allot_render(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "experiment.yaml")
            file.write_text(experiment("rendered", **TLS))
            objects = manifests.rendered(file, namespace=self.NAMESPACE)
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))
        kube.until("updates", lambda: self.status("rendered")["version"] >= 2, 300)
        self.kubectl("delete", "-f", "-", "--timeout=180s", stdin=yaml.safe_dump_all(objects))

    def test_4_another_name_is_refused_with_a_sentence(self):
        self.apply("stranger", **TLS)
        kube.until("the sentence", lambda: "shows a certificate that is not for stranger-redis" in
                   self.kubectl("logs", "deploy/stranger-aggregator"), 240)


if __name__ == "__main__":
    unittest.main()
