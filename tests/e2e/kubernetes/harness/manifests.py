"""An experiment's objects: what `allot render` prints, and what a folder of overlays/ makes of it."""
import atexit
import functools
import os
import pathlib
import shutil
import subprocess
import tempfile

import yaml

from harness import kube

SOURCE = pathlib.Path(__file__).resolve().parents[4]
OVERLAYS = SOURCE / "tests/e2e/kubernetes/overlays"
ALLOT = os.environ.get("ALLOT", "allot")
DEMO = SOURCE / "experiments/recall-layer-budget/experiment.yaml"


@functools.cache
def scratch():
    """A folder for passwords and for overlays with what they are overlays of; gone at the end."""
    folder = tempfile.mkdtemp(prefix="allot-manifests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return pathlib.Path(folder)


@functools.cache
def images():
    """Registry and tag that `./run images push` wrote, or those of `./run images`."""
    release = yaml.safe_load((SOURCE / "k8s/components/release/kustomization.yaml").read_text())
    worker = next(each for each in release["images"] if each["name"] == "allot-worker")
    return "--registry", worker["newName"].rpartition("/")[0], "--tag", worker["newTag"]


def text_of(file, components=(), namespace=None):
    command = [ALLOT, "render", str(file), *images(), "--accounts", str(scratch() / "accounts")]
    for name in components:
        command += ["--component", name]
    if namespace:
        command += ["--namespace", namespace]
    done = subprocess.run(command, cwd=SOURCE, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def rendered(file=DEMO, components=(), namespace=None):
    """The objects of an experiment file."""
    return [each for each in yaml.safe_load_all(text_of(file, components, namespace)) if each]


def own(*components):
    """Those of the demo in the namespace of its own name."""
    return rendered(DEMO, ("namespace", *components), DEMO.parent.name)


@functools.cache
def prepared():
    """overlays/, with an all.yaml beside each experiment.yaml."""
    folder = scratch() / "overlays"
    shutil.copytree(OVERLAYS, folder)
    for file in folder.glob("*/experiment.yaml"):
        file.with_name("all.yaml").write_text(text_of(file, ["namespace"], DEMO.parent.name))
    return folder


def overlay(name):
    """The objects of a folder of overlays/."""
    return kube.render(prepared() / name)
