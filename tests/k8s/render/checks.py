"""What must hold of a rendering. Each check yields sentences about what does not;
manifests_test.py runs all of them on every rendering, and shows for each that it finds what it is
for."""
import base64
import hashlib
import re
from urllib.parse import parse_qs, urlsplit

import yaml

import flows
import schema
from rendering import (flags_of, labels_of, mounted, ports_of, quantity, selects, template_labels,
                       title)

PROGRAMS = {"allot-worker": "allot-worker", "allot-worker-cuda": "allot-worker",
            "allot-aggregator": "allot-aggregator", "allot-redis": None}
USER = 65532
RESTRICTED_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral",
                      "persistentVolumeClaim", "projected", "secret"}
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


@check
def valid_by_the_schema(rendering):
    for item in rendering.objects:
        for problem in schema.problems(item, rendering.components):
            yield f"{title(item)}: {problem}"


@check
def names_are_the_experiments(rendering):
    seen = set()
    for item in rendering.objects:
        name = item["metadata"]["name"]
        key = item["kind"], name
        if key in seen:
            yield f"{title(item)} is there twice"
        seen.add(key)
        # Services and pods have 63; the latter add to their workload's name.
        longest = {"Deployment": 52, "StatefulSet": 52, "Service": 63}.get(item["kind"], 253)
        if len(name) > longest:
            yield f"{title(item)} has too long a name"
        if item["kind"] == "Namespace":
            if name != rendering.namespace or "namespace" not in rendering.components:
                yield f"the namespace is {name} and not {rendering.namespace}"
            continue
        # A guest says nothing of where it is: `kubectl -n` does.
        if item["metadata"].get("namespace") != rendering.namespace:
            yield f"{title(item)} is not in the namespace {rendering.namespace}"
        if not name.startswith(rendering.experiment + "-"):
            yield f"{title(item)} does not start with {rendering.experiment}-"


@check
def labels_are_complete(rendering):
    expected = {"allot.dev/experiment": rendering.experiment, "app.kubernetes.io/name": "allot",
                "app.kubernetes.io/instance": rendering.experiment,
                "app.kubernetes.io/part-of": "allot",
                "app.kubernetes.io/managed-by": "allot"}
    version = {"app.kubernetes.io/version": rendering.source.version}
    for item in rendering.objects:
        described = [(title(item), labels_of(item), expected | version)]
        if item in rendering.pod_owners():
            described.append((f"the pods of {title(item)}", template_labels(item), expected))
        for what, labels, wanted in described:
            for key, value in wanted.items():
                if labels.get(key) != value:
                    yield f"{what}: label {key} is {labels.get(key)} and not {value}"
            if not labels.get("app.kubernetes.io/component"):
                yield f"{what} has no component"


@check
def nothing_that_cannot_change_names_a_version(rendering):
    def fixed(item):
        spec = item.get("spec", {})
        yield spec.get("selector", {})
        yield spec.get("podSelector", {})
        yield spec.get("volumeClaimTemplates", [])
        # A new version replaces the pods whose image it changes, and no others.
        yield spec.get("template", {}).get("metadata", {})
        yield [rule for direction in ("ingress", "egress") for rule in spec.get(direction, [])]
    for item in rendering.objects:
        if any("app.kubernetes.io/version" in str(part) for part in fixed(item)):
            yield f"{title(item)} selects by version"


@check
def selectors_match(rendering):
    workloads = rendering.workloads()
    for workload in workloads:
        if not selects(workload["spec"]["selector"], template_labels(workload)):
            yield f"{title(workload)} does not select its own pods"
    for item in rendering.of("Service", "PodDisruptionBudget", "PodMonitor", "ServiceMonitor"):
        selector = item["spec"]["selector"]
        candidates = [template_labels(workload) for workload in workloads]
        if item["kind"] == "Service":
            selector = {"matchLabels": selector}
        if item["kind"] == "ServiceMonitor":
            candidates = [labels_of(service) for service in rendering.of("Service")]
        hits = [labels for labels in candidates if selects(selector, labels)]
        component = labels_of(item)["app.kubernetes.io/component"]
        if [labels["app.kubernetes.io/component"] for labels in hits] != [component]:
            yield f"{title(item)} selects {len(hits)} and not the {component}"


def selectors_of(item):
    """All that an object selects pods of its own namespace by."""
    spec = item.get("spec", {})
    if item["kind"] == "Service":
        yield {"matchLabels": spec["selector"]}
    elif "selector" in spec:
        yield spec["selector"]
    if item["kind"] == "NetworkPolicy":
        yield spec["podSelector"]
        for side, direction in (("from", "ingress"), ("to", "egress")):
            for rule in spec.get(direction, []):
                for peer in rule.get(side, []):
                    if "namespaceSelector" not in peer and "podSelector" in peer:
                        yield peer["podSelector"]


@check
def nobody_else_is_selected(rendering):
    """Not the pods of another experiment in the namespace, and no stranger that looks like one."""
    for item in rendering.objects:
        for selector in selectors_of(item):
            for owner in rendering.pod_owners() + rendering.of("Service"):
                own = labels_of(owner) if owner["kind"] == "Service" else template_labels(owner)
                other = {**own, "allot.dev/experiment": "other", "app.kubernetes.io/instance": "other"}
                bare = {key: value for key, value in own.items() if "instance" not in key and
                        not key.startswith("allot.dev/")}
                if selects(selector, other) or selects(selector, bare):
                    yield f"{title(item)} selects pods like {title(owner)} that are not its own"


@check
def autoscalers_know_what_may_go(rendering):
    for workload in rendering.workloads():
        component = labels_of(workload)["app.kubernetes.io/component"]
        annotations = workload["spec"]["template"]["metadata"].get("annotations", {})
        expected = "false" if component == "store" else "true"
        if annotations.get("cluster-autoscaler.kubernetes.io/safe-to-evict") != expected:
            yield f"{title(workload)}: an autoscaler is not told {expected}"


@check
def ports_exist(rendering):
    for workload, container in rendering.containers():
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            port = container.get(probe, {}).get("httpGet", {}).get("port")
            if port is not None and port not in ports_of(workload):
                yield f"{title(workload)}: {probe} asks port {port}, which is not there"
    for service in rendering.of("Service"):
        for workload in rendering.workloads():
            if selects({"matchLabels": service["spec"]["selector"]}, template_labels(workload)):
                for port in service["spec"]["ports"]:
                    if ports_of(workload).get(port["targetPort"]) != port["port"]:
                        yield f"{title(service)}: port {port['name']} leads nowhere"
    for monitor in rendering.of("PodMonitor", "ServiceMonitor"):
        for endpoint in monitor["spec"].get("endpoints", []) + \
                monitor["spec"].get("podMetricsEndpoints", []):
            if endpoint["port"] != "metrics":
                yield f"{title(monitor)} scrapes port {endpoint['port']}"


@check
def what_is_referred_to_exists(rendering):
    for workload in rendering.pod_owners():
        spec = workload["spec"]["template"]["spec"]
        account = spec.get("serviceAccountName")
        if workload["kind"] != "Job" and not rendering.find("ServiceAccount", account):
            yield f"{title(workload)}: no ServiceAccount {account}"
        for volume in spec.get("volumes", []):
            for kind, field, name in (("ConfigMap", "configMap", "name"),
                                      ("Secret", "secret", "secretName")):
                if field in volume:
                    held = rendering.find(kind, volume[field][name])
                    keys = {item["key"] for item in volume[field].get("items", [])}
                    if not held:
                        yield f"{title(workload)}: no {kind} {volume[field][name]}"
                    elif not keys <= held["data"].keys():
                        missing = ", ".join(sorted(keys - held["data"].keys()))
                        yield f"{title(workload)}: {kind} {volume[field][name]} lacks {missing}"
            claim = volume.get("persistentVolumeClaim", {}).get("claimName", "models")
            # Those of spec.cluster.models and results are the user's own.
            if claim not in ("models", "results") and not rendering.find("PersistentVolumeClaim", claim):
                yield f"{title(workload)}: no PersistentVolumeClaim {claim}"
    for item in rendering.of("StatefulSet"):
        if not rendering.find("Service", item["spec"]["serviceName"]):
            yield f"{title(item)}: no Service {item['spec']['serviceName']}"
    for workload, container in rendering.containers():
        spec = workload["spec"]
        names = {volume["name"] for volume in spec["template"]["spec"].get("volumes", [])}
        names |= {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])}
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in names:
                yield f"{title(workload)}: no volume {mount['name']}"


@check
def images_are_of_this_version(rendering):
    gpu = "gpu" in rendering.components
    for workload, container in rendering.containers():
        if container["name"] == "fetch":
            if container["image"] != "python:3.12-slim":
                yield f"{title(workload)}: {container['image']} is not what it is written for"
            continue
        host, _, rest = container["image"].partition("/")
        name, _, tag = rest.partition(":")
        if host != "localhost" or name not in PROGRAMS:
            yield f"{title(workload)}: {container['image']} is not made by ./run images"
        elif not (rendering.source.root / f"k8s/images/{name[6:]}.Containerfile").is_file():
            yield f"{title(workload)}: {name} has no Containerfile"
        if tag != rendering.source.version:
            yield f"{title(workload)}: {tag} is not the version {rendering.source.version}"
        if container.get("imagePullPolicy") != "IfNotPresent":
            yield f"{title(workload)} pulls its image at every start"
        if (name == "allot-worker-cuda") != (gpu and container["name"] == "worker"):
            yield f"{title(workload)}: {name} does not go with components {rendering.components}"


@check
def pods_are_restricted(rendering):
    """The restricted Pod Security Standard, and beyond it: one user, a root nobody writes to."""
    for namespace in rendering.of("Namespace"):
        for mode in ("enforce", "audit", "warn"):
            if labels_of(namespace).get(f"pod-security.kubernetes.io/{mode}") != "restricted":
                yield f"the namespace does not {mode} the restricted standard"
    for workload in rendering.pod_owners():
        spec = workload["spec"]["template"]["spec"]
        context = spec.get("securityContext", {})
        for field in ("hostNetwork", "hostPID", "hostIPC"):
            if spec.get(field):
                yield f"{title(workload)} has {field}"
        for volume in spec.get("volumes", []):
            if not volume.keys() - {"name"} <= RESTRICTED_VOLUMES:
                yield f"{title(workload)}: volume {volume['name']} is of a forbidden type"
        if (context.get("runAsUser"), context.get("runAsGroup")) != (USER, USER) or \
                context.get("runAsNonRoot") is not True:
            yield f"{title(workload)} may run as another user than {USER}"
        if context.get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield f"{title(workload)} has no seccomp profile"
        if context.get("fsGroup") != USER:
            yield f"{title(workload)} cannot read its account or write to its volume"
        if "sysctls" in context or "seLinuxOptions" in context or "windowsOptions" in context:
            yield f"{title(workload)} sets what needs rights"
    for workload, container in rendering.containers():
        context = container.get("securityContext", {})
        if context != {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                       "capabilities": {"drop": ["ALL"]}}:
            yield f"{title(workload)}: container {container['name']} has rights: {context}"
        if any("hostPort" in port for port in container.get("ports", [])):
            yield f"{title(workload)} takes a port of its node"


@check
def no_pod_speaks_to_the_api(rendering):
    for account in rendering.of("ServiceAccount"):
        if account.get("automountServiceAccountToken") is not False:
            yield f"{title(account)} gives its token away"
    for workload in rendering.pod_owners():
        spec = workload["spec"]["template"]["spec"]
        if spec.get("automountServiceAccountToken") is not False:
            yield f"{title(workload)} mounts a token"
        if spec.get("enableServiceLinks") is not False:
            yield f"{title(workload)} has other services' addresses in its environment"
    for item in rendering.of("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"):
        yield f"{title(item)} gives rights that nobody needs"


@check
def resources_are_bounded(rendering):
    for workload, container in rendering.containers():
        resources = container.get("resources", {})
        for name in ("cpu", "memory"):
            least = resources.get("requests", {}).get(name)
            most = resources.get("limits", {}).get(name)
            if least is None or most is None or quantity(least) > quantity(most):
                yield f"{title(workload)}: {name} from {least} to {most}"
    container = rendering.workload("store")["spec"]["template"]["spec"]["containers"][0]
    conf = next(item["data"]["redis.conf"] for item in rendering.of("ConfigMap")
                if "redis.conf" in item["data"])
    limit = quantity(container["resources"]["limits"]["memory"])
    maxmemory = int(re.search(r"(?m)^maxmemory (\d+)mb$", conf).group(1)) * 2**20
    if maxmemory != limit * 0.75:
        yield f"maxmemory is {maxmemory / limit:.2f} of the store's limit and not 0.75"
    container = rendering.workload("worker")["spec"]["template"]["spec"]["containers"][0]
    limit = quantity(container["resources"]["limits"]["memory"])
    mib = next((entry["value"] for entry in container["env"] if entry["name"] == "KV_MEMORY_MIB"),
               None)
    if flags_of(container).get("--kv-memory") != "$(KV_MEMORY_MIB)" or not mib or \
            int(mib) * 2**20 > limit / 2:
        yield "keys and values may fill more than half of a worker's memory"
    if ("nvidia.com/gpu" in container["resources"]["limits"]) != ("gpu" in rendering.components):
        yield f"a worker's limits {container['resources']['limits']} do not go with the components"


@check
def probes_are_there(rendering):
    for workload, container in rendering.containers():
        if container["name"] == "redis":
            if not {"livenessProbe", "readinessProbe"} <= container.keys():
                yield f"{title(workload)} has no probes"
            if container["livenessProbe"] == container["readinessProbe"]:
                yield f"{title(workload)}: not ready is not dead"
            for probe in ("livenessProbe", "readinessProbe"):
                command = " ".join(container[probe]["exec"]["command"])
                if ("redis-cli --tls" in command) != ("tls" in rendering.components):
                    yield f"{title(workload)}: its {probe} speaks otherwise than it listens"
        elif workload["kind"] != "Job":
            paths = {probe: container[probe].get("httpGet", {}).get("path")
                     for probe in ("startupProbe", "livenessProbe", "readinessProbe")
                     if probe in container}
            expected = {"livenessProbe": "/livez", "readinessProbe": "/readyz"}
            # /startedz is 503 while a model is being loaded, /livez is not; who loads nothing has
            # started when it answers.
            if container["name"] == "worker":
                expected["startupProbe"] = "/startedz"
            if paths != expected:
                yield f"{title(workload)}: probes {paths} and not {expected}"
            startup = container.get("startupProbe", {})
            seconds = startup.get("periodSeconds", 10) * startup.get("failureThreshold", 3)
            wanted = 3600 if "models" in rendering.components else 600
            if startup and seconds != wanted:
                yield f"{title(workload)} has {seconds} s to load its model and not {wanted}"
        if container.get("terminationMessagePolicy") != "FallbackToLogsOnError":
            yield f"{title(workload)} may end without a word"


@check
def scaling_and_endings(rendering):
    worker, aggregator, store = map(rendering.workload, ("worker", "aggregator", "store"))
    if "replicas" in worker["spec"]:
        yield "the worker has replicas: applying again would undo kubectl scale"
    if aggregator["spec"].get("replicas") != 1 or store["spec"].get("replicas") != 1:
        yield "aggregator and store are one each"
    if aggregator["spec"]["strategy"] != {"type": "Recreate"}:
        yield "two aggregators may meet"
    container = worker["spec"]["template"]["spec"]["containers"][0]
    grace = float(next((entry["value"] for entry in container["env"]
                        if entry["name"] == "GRACE_SECONDS"), "inf"))
    if flags_of(container).get("--grace") != "$(GRACE_SECONDS)":
        yield "a worker's grace is not what its environment says"
    if grace + 10 > worker["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]:
        yield "a worker is killed before its grace is over"
    budgets = {labels_of(item)["app.kubernetes.io/component"]: item["spec"]
               for item in rendering.of("PodDisruptionBudget")}
    expected = {"worker", "store"} if "disruption-budget" in rendering.components else set()
    if budgets.keys() != expected:
        yield f"disruption budgets for {sorted(budgets)} and not for {sorted(expected)}"


@check
def only_the_named_flows(rendering):
    expected = flows.expected(rendering)
    found = flows.allowed(rendering)
    for flow in sorted(found ^ expected):
        yield f"flow {' -> '.join(flow)} {'is open' if flow in found else 'is closed'}"
    for policy in rendering.of("NetworkPolicy"):
        if "dns" in policy["metadata"]["name"]:
            ports = {entry["protocol"] for rule in policy["spec"]["egress"]
                     for entry in rule["ports"]}
            if ports != {"TCP", "UDP"}:
                yield f"{title(policy)} leaves DNS {ports}"


@check
def arguments_are_the_programs_own(rendering):
    for workload, container in rendering.containers():
        program = PROGRAMS.get(container["image"].split("/")[-1].split(":")[0])
        if not program:
            continue
        flags = flags_of(container)
        command = container.get("command", [program])
        if missing := flags.keys() - rendering.source.options_of(*command):
            yield f"{' '.join(command)} knows no {', '.join(sorted(missing))}"
        if len(flags) != len(container["args"]):
            yield f"{title(workload)}: an argument is no option"
        environment = {entry["name"] for entry in container.get("env", [])}
        for name in re.findall(r"\$\((\w+)\)", " ".join(container["args"])):
            if name not in environment:
                yield f"{title(workload)}: $({name}) is not set"
        if workload["kind"] == "Job":
            continue  # serves nothing, and ends with what it printed
        if ports_of(workload).get("metrics") != int(flags.get("--port") or 0):
            yield f"{title(workload)} does not listen at its port"
        if "ALLOT_TERMINATION_LOG" not in environment:
            yield f"{title(workload)} does not say why it ends"


@check
def the_store_is_found(rendering):
    """Host, port, user and password file in the arguments are those of this rendering."""
    tls = "tls" in rendering.components
    accounts = next(iter(rendering.of("Secret")))["data"]
    users = re.findall(r"(?m)^user (\w+) on", base64.b64decode(accounts["users.acl"]).decode())
    for workload, container in rendering.containers():
        files = mounted(workload, container, rendering)
        if workload["kind"] == "Job" and "--redis" not in flags_of(container):
            needed = []  # has no business with the store
        elif container["name"] == "redis":
            needed = [container["args"][0]]
            conf = files.get(needed[0], "")
            needed += re.findall(r"(?m)^(?:aclfile|tls-cert-file|tls-key-file) (\S+)$", conf)
            probe = " ".join(container["readinessProbe"]["exec"]["command"])
            needed += re.findall(r"<(\S+)", probe)
            if len(needed) != (5 if tls else 3):
                yield "the store has no users, or no certificate"
            if re.findall(r"(?m)^(?:tls-)?port \d+$", conf) != \
                    (["port 0", "tls-port 6379"] if tls else ["port 6379"]):
                yield "the store listens otherwise than its clients ask"
            paths = [mount["mountPath"] for mount in container["volumeMounts"]]
            if re.findall(r"(?m)^dir (\S+)$", conf) != ["/data"] or "/data" not in paths:
                yield "the store writes where nothing stays"
        else:
            label = template_labels(workload)["allot.dev/experiment"]
            url = urlsplit(flags_of(container)["--redis"].replace("$(ALLOT_EXPERIMENT)", label))
            options = parse_qs(url.query)
            needed = options.get("password-file", ["none"]) + options.get("ca", [])
            if url.scheme != ("rediss" if tls else "redis") or len(needed) != (2 if tls else 1):
                yield f"{title(workload)}: {url.scheme} with {needed} is not how the store listens"
            if url.username not in users:
                yield f"{title(workload)}: the store has no user {url.username}"
            if needed[0].split("/")[-1] != f"{url.username}.password":
                yield f"{title(workload)}: {needed[0]} is not {url.username}'s"
            service = rendering.find("Service", url.hostname)
            if not service or service["spec"]["ports"][0]["port"] != url.port:
                yield f"{title(workload)}: no Service {url.hostname} with port {url.port}"
        for path in needed:
            if path not in files:
                yield f"{title(workload)}: there is no {path} in its pods"
        for path in files:
            if path.endswith((".password", ".crt", ".key")) and path not in needed:
                yield f"{title(workload)} sees {path}, which is not its own"


@check
def another_configuration_replaces_the_store(rendering):
    pods = rendering.workload("store")["spec"]["template"]
    conf = rendering.find("ConfigMap", f"{rendering.experiment}-redis")["data"]["redis.conf"]
    if pods["metadata"]["annotations"].get("allot.dev/redis-conf") != \
            hashlib.sha256(conf.encode()).hexdigest()[:10]:
        yield "another redis.conf would not reach Redis: its pods are not stamped with a digest of it"


@check
def the_experiment_is_the_file(rendering):
    config = rendering.find("ConfigMap", f"{rendering.experiment}-experiment")
    if not config:
        yield "the ConfigMap has another name: edits would not reach the running aggregator"
        return
    text = config["data"]["experiment.yaml"]
    source = rendering.source
    file = source.root / source.home_of(rendering.experiment) / "experiment.yaml"
    if text != file.read_text():
        yield "the ConfigMap does not hold the file"
    name = yaml.safe_load(text)["metadata"]["name"]
    if name != rendering.experiment:
        yield f"experiment.yaml names {name}"
    aggregator = rendering.workload("aggregator")
    container = aggregator["spec"]["template"]["spec"]["containers"][0]
    if mounted(aggregator, container, rendering).get(flags_of(container)["--experiment"]) != text:
        yield "the aggregator does not read it"
