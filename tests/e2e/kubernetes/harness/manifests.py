"""An experiment's objects: what `allot render` prints, made small enough for two nodes that share a
machine of two cores."""
import atexit
import functools
import os
import pathlib
import shutil
import subprocess
import tempfile

import yaml

SOURCE = pathlib.Path(__file__).resolve().parents[4]
STORIES = SOURCE / "tests/e2e/kubernetes/stories"
ALLOT = os.environ.get("ALLOT", "allot")
REGISTRY = os.environ.get("ALLOT_IMAGES", "")  # --images of run
DEMO = SOURCE / "experiments/recall-layer-budget/experiment.yaml"


@functools.cache
def scratch():
    """A folder for passwords; gone at the end."""
    folder = tempfile.mkdtemp(prefix="allot-manifests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return pathlib.Path(folder)


def rendered(file=DEMO, components=(), namespace=None, options=()):
    """The objects of an experiment file."""
    command = [ALLOT, "render", str(file), "--accounts", str(scratch() / "accounts"), *options]
    if REGISTRY:
        command += ["--registry", REGISTRY]
    for name in components:
        command += ["--component", name]
    if namespace:
        command += ["--namespace", namespace]
    done = subprocess.run(command, cwd=SOURCE, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: {done.stderr.strip()}")
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def own(*components, options=()):
    """Those of the demo in the namespace of its own name."""
    return rendered(DEMO, ("namespace", *components), DEMO.parent.name, options)


def story(name, worker_cpu="1", options=()):
    """The objects of an experiment of stories/, with few resources for each pod."""
    objects = rendered(STORIES / f"{name}.yaml", ("namespace",), DEMO.parent.name, options)
    for each in objects:
        if each["kind"] not in ("Deployment", "StatefulSet"):
            continue
        least, most = {"cpu": "50m", "memory": "64Mi"}, {"cpu": "1", "memory": "512Mi"}
        if each["metadata"]["labels"]["app.kubernetes.io/component"] == "worker":
            least, most = {"cpu": "100m", "memory": "256Mi"}, {"cpu": worker_cpu, "memory": "2Gi"}
        container = each["spec"]["template"]["spec"]["containers"][0]
        container["resources"] = {"requests": least, "limits": most}
    return objects


def faults(options=()):
    """Each of four workers has a fixed share of two cores, so that throughput follows their number."""
    return story("faults", "400m", options)
