"""An experiment's manifests as `allot render` makes them, and the ways to look into them."""
import base64
import copy
import itertools
import pathlib
import re
import shutil
import subprocess

import yaml

# What a rendering is asked for: components, and these by spec.cluster.
SETTINGS = {"gpu": "spec.cluster.gpus=1",
            "models": "spec.cluster.models={claim: models, mountPath: /models}",
            "tls": "spec.cluster.tls.secret=store-tls"}
# The user's own Secret, as cert-manager writes it.
TLS = {"metadata": {"name": "store-tls"}, "data": {"ca.crt": "", "tls.crt": "", "tls.key": ""}}
COMPONENTS = ("gpu", "disruption-budget", "monitoring", "namespace")
COMBINATIONS = [chosen for size in range(len(COMPONENTS) + 1)
                for chosen in itertools.combinations(COMPONENTS, size)]


def profile_of(experiment):
    """The file that an experiment's text names beside it, if any."""
    profile = re.search(r"prefillProfile: (\S+?)[,}\s]", experiment)
    return profile and profile[1]


class Source:
    """A copy of experiments/ with accounts, so that the checkout stays as it is."""

    def __init__(self, root, programs, folder):
        self.root, self.programs, self.folder = root, programs, folder
        shutil.copytree(root / "experiments", folder / "experiments",
                        ignore=shutil.ignore_patterns("models"))
        self.accounts = folder / "accounts"
        self.run("allot", "acl", "--out", str(self.accounts))
        self.version = re.search(r"project\(allot VERSION ([0-9.]+)",
                                 (root / "CMakeLists.txt").read_text()).group(1)
        # Those that want no components come first.
        self.experiments = sorted((file.parent.name
                                   for file in folder.glob("experiments/*/experiment.yaml")),
                                  key=lambda name: (not name.startswith("recall-"), name))
        self.papers = sorted(file.parent.name
                             for file in folder.glob("experiments/papers/*/experiment.yaml"))
        # A profile that an experiment names is of a model, and made before it is applied: another's
        # stands in for it here.
        for paper in self.papers:
            home = folder / self.home_of(paper)
            profile = profile_of((home / "experiment.yaml").read_text())
            if profile:
                shutil.copy(root / "experiments/recall-sale/sale-profile.json", home / profile)
        self.help = {}

    def run(self, program, *arguments):
        done = subprocess.run([self.programs / program, *arguments], cwd=self.root,
                              capture_output=True, text=True)
        if done.returncode:
            raise AssertionError(f"{program} {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def home_of(self, experiment):
        """Its folder, from the checkout's root."""
        home = pathlib.Path("experiments")
        return home / "papers" / experiment if experiment in self.papers else home / experiment

    def options_of(self, *command):
        """What the --help of a program, or of one of its commands, lists."""
        if command not in self.help:
            self.help[command] = set(re.findall(r"(?m)^ +(?:-\w,)?(--[\w-]+)",
                                                self.run(*command, "--help")))
        return self.help[command]

    def combinations_for(self, experiment):
        """Combinations of components that are worth a rendering: all of them for one experiment of
        those that want the same components, and for the others the least and the most."""
        alike = [name for name in self.experiments
                 if self.components_of(name) == self.components_of(experiment)]
        return COMBINATIONS if alike[0] == experiment else [(), COMPONENTS]

    def components_of(self, experiment, more=()):
        """Those that the experiment's model wants, and these."""
        file = self.folder / self.home_of(experiment) / "experiment.yaml"
        model = yaml.safe_load(file.read_text())["spec"]["model"]
        named = []
        if model["path"].startswith("/models/"):
            named = ["gpu", "models"] if model.get("device") == "cuda" else ["models"]
        elif "smollm2" in model["path"]:
            named = ["smollm2"]
        return tuple(named) + tuple(name for name in more if name not in named)

    def render(self, experiment, components=(), namespace=None, options=()):
        """What `allot render` prints. The component `namespace` wants one, which is the
        experiment's."""
        chosen = self.components_of(experiment, components)
        if "namespace" in chosen:
            namespace = namespace or experiment
        options = list(options) or ["--accounts", str(self.accounts)]
        if namespace:
            options += ["--namespace", namespace]
        for name in chosen:
            options += ["--set", SETTINGS[name]] if name in SETTINGS else ["--component", name]
        file = self.folder / self.home_of(experiment) / "experiment.yaml"
        return Rendering(self, experiment, chosen, namespace,
                         self.run("allot", "render", str(file), *options))

    def with_export(self, rendering):
        """With the Job that the operator makes of an experiment that is deleted."""
        worker = rendering.workload("worker")["spec"]["selector"]["matchLabels"]
        labels = ", ".join(f"{key}: {value}" for key, value in worker.items()
                           if key != "app.kubernetes.io/component")
        text = (self.root / "k8s/base/export.yaml").read_text()
        text = text.replace("$NAME", rendering.experiment).replace("$LABELS", labels)
        made = [item for item in yaml.safe_load_all(text) if item]
        for item in made:
            item["metadata"]["labels"]["app.kubernetes.io/version"] = self.version
            if rendering.namespace:
                item["metadata"]["namespace"] = rendering.namespace
        container = made[0]["spec"]["template"]["spec"]["containers"][0]
        container["image"] = f"localhost/{container['image']}:{self.version}"
        rendering.objects += made
        rendering.components += ("results",)
        return rendering


class Rendering:
    """The objects of one experiment. Plain dictionaries; checks only read them."""

    def __init__(self, source, experiment, components, namespace, text):
        self.source, self.experiment, self.components = source, experiment, components
        self.namespace = namespace
        self.objects = [item for item in yaml.safe_load_all(text) if item]

    def by_name(self):
        """{(kind, name): object}, Secrets with their content."""
        found = {(item["kind"], item["metadata"]["name"]): copy.deepcopy(item)
                 for item in self.objects}
        for item in found.values():
            if item["kind"] == "Secret":  # long base64 has line breaks, or has none
                item["data"] = {key: base64.b64decode(value) for key, value in item["data"].items()}
        return found

    def of(self, *kinds):
        return [item for item in self.objects if item["kind"] in kinds]

    def find(self, kind, name):
        if "tls" in self.components and (kind, name) == ("Secret", "store-tls"):
            return TLS
        return next((item for item in self.of(kind) if item["metadata"]["name"] == name), None)

    def workload(self, component):
        """The Deployment or StatefulSet of worker, aggregator or store."""
        return next(item for item in self.workloads()
                    if labels_of(item)["app.kubernetes.io/component"] == component)

    def workloads(self):
        return self.of("Deployment", "StatefulSet")

    def pod_owners(self):
        """All that makes pods."""
        return self.of("Deployment", "StatefulSet", "Job")

    def containers(self):
        """(workload, container) of every container."""
        for workload in self.pod_owners():
            spec = workload["spec"]["template"]["spec"]
            for container in spec["containers"] + spec.get("initContainers", []):
                yield workload, container


def title(item):
    return f"{item['kind']} {item['metadata']['name']}"


def labels_of(item):
    return item["metadata"].get("labels", {})


def template_labels(workload):
    return labels_of(workload["spec"]["template"])


def ports_of(workload):
    return {port["name"]: port["containerPort"]
            for container in workload["spec"]["template"]["spec"]["containers"]
            for port in container.get("ports", [])}


def selects(selector, labels):
    """A Kubernetes label selector (matchLabels, matchExpressions) on labels."""
    if not all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for expression in selector.get("matchExpressions", []):
        value, values = labels.get(expression["key"]), expression.get("values", [])
        holds = {"In": value in values, "NotIn": value not in values, "Exists": value is not None,
                 "DoesNotExist": value is None}[expression["operator"]]
        if not holds:
            return False
    return True


def quantity(text):
    """"250m" -> 0.25, "512Mi" -> 536870912.0"""
    number, unit = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text)).groups()
    scale = {"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
    return float(number) * scale[unit]


def flags_of(container):
    """{"--port": "9464", "--stay": None, ...}"""
    return dict((argument.split("=", 1) + [None])[:2] for argument in container.get("args", [])
                if argument.startswith("--"))


def mounted(workload, container, rendering):
    """What the container finds below its mounts of ConfigMaps and Secrets: {path: content}."""
    volumes = {volume["name"]: volume
               for volume in workload["spec"]["template"]["spec"].get("volumes", [])}
    files = {}
    for mount in container.get("volumeMounts", []):
        volume = volumes.get(mount["name"], {})
        for kind, field, name in (("ConfigMap", "configMap", "name"),
                                  ("Secret", "secret", "secretName")):
            if field not in volume:
                continue
            held = (rendering.find(kind, volume[field][name]) or {}).get("data", {})
            items = volume[field].get("items", [{"key": key, "path": key} for key in held])
            for item in items:
                if item["key"] in held:
                    files[str(pathlib.PurePath(mount["mountPath"]) / item["path"])] = \
                        held[item["key"]]
    return files
