#!/usr/bin/env python3
"""The bill of materials of an image, made of a root with real Debian packages.

    sbom_test.py SOURCE
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
PACKAGES = ["libc6", "libhiredis0.14", "libstdc++6"] if pathlib.Path("/usr/share/doc/libhiredis0.14").exists() \
    else ["libc6", "libstdc++6"]


def make_root(root):
    for name in PACKAGES:
        described = root / "var/lib/dpkg/status.d" / name
        described.parent.mkdir(parents=True, exist_ok=True)
        described.write_text(subprocess.run(["dpkg-query", "-s", name], check=True, capture_output=True,
                                            text=True).stdout)
        notice = root / "usr/share/doc" / name / "copyright"
        notice.parent.mkdir(parents=True)
        shutil.copy(f"/usr/share/doc/{name}/copyright", notice)
    model = root / "opt/allot/experiments/models/m/model.safetensors"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"weights")


def sbom(root, *build_packages):
    return subprocess.run([SOURCE / "k8s/images/sbom.py", "worker", "0.1.0", "abc", root, *build_packages],
                          capture_output=True, text=True)


class Bill(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        make_root(self.root)

    def test_names_every_package_its_version_and_where_it_is(self):
        bill = json.loads(sbom(self.root, "nlohmann-json3-dev").stdout)
        self.assertEqual("CycloneDX", bill["bomFormat"])
        self.assertEqual("abc", bill["metadata"]["component"]["properties"][0]["value"])
        found = {component["name"]: component for component in bill["components"]}
        self.assertEqual({*PACKAGES, "nlohmann-json3-dev", "opt/allot/experiments/models/m/model.safetensors"},
                         set(found))
        for name in [*PACKAGES, "nlohmann-json3-dev"]:
            version = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", name], check=True,
                                     capture_output=True, text=True).stdout
            self.assertEqual(version, found[name]["version"])
            self.assertTrue(found[name]["purl"].startswith(f"pkg:deb/debian/{name}@"), found[name]["purl"])
            use = "compiled into the programs" if name == "nlohmann-json3-dev" else "file in the image"
            self.assertEqual(use, found[name]["properties"][0]["value"])
        self.assertIn({"license": {"name": "Expat"}}, found["nlohmann-json3-dev"]["licenses"])
        self.assertEqual(64, len(found["opt/allot/experiments/models/m/model.safetensors"]["hashes"][0]["content"]))
        references = [component["bom-ref"] for component in bill["components"]]
        self.assertEqual(len(references), len(set(references)))
        self.assertEqual(references, bill["dependencies"][0]["dependsOn"])

    def test_is_the_same_for_the_same_image_and_another_for_another(self):
        first = sbom(self.root).stdout
        self.assertEqual(first, sbom(self.root).stdout)
        (self.root / "opt/allot/experiments/models/m/model.safetensors").write_bytes(b"others")
        other = sbom(self.root).stdout
        self.assertNotEqual(json.loads(first)["serialNumber"], json.loads(other)["serialNumber"])

    def test_refuses_a_package_that_is_not_installed(self):
        refused = sbom(self.root, "no-such-package")
        self.assertEqual(1, refused.returncode)
        self.assertIn("no-such-package is not installed", refused.stderr)
        self.assertEqual("", refused.stdout)


if __name__ == "__main__":
    unittest.main()
