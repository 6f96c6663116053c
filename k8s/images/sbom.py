#!/usr/bin/env python3
"""Writes the bill of materials of an image as CycloneDX 1.5 JSON; `./run images` calls it.

    sbom.py NAME VERSION COMMIT ROOT BUILD_PACKAGE... > allot-NAME.cdx.json

ROOT is the image's file system. Components are
- allot itself, with the commit;
- each Debian package with a file in the image (var/lib/dpkg/status.d): version, source, licences of its copyright file;
- each BUILD_PACKAGE, a Debian package of this machine that is compiled into the programs (headers, static libraries);
- each model and each library without a package (CUDA's runtime), with its SHA-256.
The same image gives the same bytes: no time, and a serial number from the content.
"""
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import uuid


def fields(text):
    """The one-line fields of a package's description."""
    return dict(re.findall(r"^([A-Za-z-]+): (.+)$", text, re.M))


def licences(copyright_text):
    """Short names of the licences in a machine-readable copyright file; none for another one."""
    if not copyright_text.startswith("Format:"):
        return []
    names = re.findall(r"^License: *(\S.*)$", copyright_text, re.M)
    return sorted({name.strip() for name in names})


def package(description, copyright_text, scope):
    about = fields(description)
    name, version = about["Package"], about["Version"]
    source = about.get("Source", name)
    component = {
        "type": "library",
        "bom-ref": f"deb:{name}",
        "name": name,
        "version": version,
        "purl": f"pkg:deb/debian/{name}@{version.replace('+', '%2B')}?arch={about.get('Architecture', 'all')}",
        "properties": [{"name": "allot:use", "value": scope}, {"name": "debian:source", "value": source}],
    }
    if "Maintainer" in about:
        component["supplier"] = {"name": about["Maintainer"]}
    found = licences(copyright_text)
    if found:
        component["licenses"] = [{"license": {"name": name}} for name in found]
    return component


def installed(name):
    done = subprocess.run(["dpkg-query", "-s", name], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"sbom.py: {name} is not installed on this machine: the programs cannot be made of it")
    return done.stdout


def read(path):
    return path.read_text(errors="replace") if path.exists() else ""


def file_component(path, root, kind):
    return {
        "type": kind,
        "bom-ref": f"file:{path.relative_to(root)}",
        "name": str(path.relative_to(root)),
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}],
    }


def bill(name, version, commit, root, build_packages):
    components = []
    for described in sorted((root / "var/lib/dpkg/status.d").iterdir()):
        about = fields(described.read_text())
        components.append(package(described.read_text(),
                                  read(root / "usr/share/doc" / about["Package"] / "copyright"), "file in the image"))
    for built_with in sorted(build_packages):
        components.append(package(installed(built_with),
                                  read(pathlib.Path("/usr/share/doc") / built_with / "copyright"),
                                  "compiled into the programs"))
    for model in sorted(root.glob("opt/allot/experiments/models/**/*")):
        if model.is_file():
            components.append(file_component(model, root, "machine-learning-model"
                                             if model.suffix == ".safetensors" else "data"))
    for runtime in sorted(root.glob("usr/lib/*/libcudart.so.*")):
        if not runtime.is_symlink():
            components.append(file_component(runtime, root, "library"))
    allot = {
        "type": "application",
        "bom-ref": "allot",
        "name": f"allot-{name}",
        "version": version,
        "properties": [{"name": "allot:commit", "value": commit}],
    }
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": allot},
        "components": components,
        "dependencies": [{"ref": "allot", "dependsOn": [component["bom-ref"] for component in components]}],
    }
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    document["serialNumber"] = f"urn:uuid:{uuid.UUID(digest[:32])}"
    return document


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__.strip())
    name, version, commit, root = sys.argv[1:5]
    json.dump(bill(name, version, commit, pathlib.Path(root), sys.argv[5:]), sys.stdout, indent=1, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
