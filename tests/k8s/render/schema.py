"""Holds objects to the API's schema: no unknown field, no wrong type, nothing required is missing.
The schema is that of Kubernetes 1.22, from which the models in Debian's python3-kubernetes are
made."""
import kubernetes.client

# apiVersion and kind: these, all of them in Kubernetes 1.20, ...
BASE = {("v1", "ServiceAccount"), ("v1", "ConfigMap"), ("v1", "Secret"),
        ("v1", "Service"), ("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"),
        ("networking.k8s.io/v1", "NetworkPolicy")}
# ... and with a component these. Of the Prometheus operator's kinds: the fields used.
ADDED = {"disruption-budget": {("policy/v1", "PodDisruptionBudget")}, "gpu": set(), "models": set(),
         "smollm2": {("v1", "PersistentVolumeClaim"), ("batch/v1", "Job")},
         "namespace": {("v1", "Namespace")}, "results": {("batch/v1", "Job")}, "tls": set(),
         "monitoring": {("monitoring.coreos.com/v1", kind)
                        for kind in ("PodMonitor", "ServiceMonitor", "PrometheusRule")}}
CUSTOM = {"PodMonitor": {"selector", "podMetricsEndpoints"},
          "ServiceMonitor": {"selector", "endpoints"}, "PrometheusRule": {"groups"}}
SIMPLE = {"str": str, "int": int, "bool": bool, "float": (int, float)}


def problems(item, components):
    known = BASE.union(*(ADDED[name] for name in components))
    kind = item["kind"]
    if (item["apiVersion"], kind) not in known:
        yield f"{item['apiVersion']} {kind} is not among what clusters are asked for"
    elif kind in CUSTOM:
        if set(item["spec"]) != CUSTOM[kind]:
            yield f"{kind}: spec has {sorted(item['spec'])}, not {sorted(CUSTOM[kind])}"
        yield from of_type(item["metadata"], "V1ObjectMeta", f"{kind}.metadata")
    else:
        yield from of_type(item, f"V1{kind}", kind)


def of_type(value, name, path):
    if name.startswith("list["):
        yield from of_list(value, name[5:-1], path)
    elif name.startswith("dict("):
        yield from of_dict(value, name.split(", ", 1)[1][:-1], path)
    elif name in SIMPLE:
        if not isinstance(value, SIMPLE[name]) or isinstance(value, bool) != (name == "bool"):
            yield f"{path}: {value!r} is no {name}"
    elif name != "object":  # a number or a string
        yield from of_model(value, getattr(kubernetes.client, name), path)
    elif not isinstance(value, (int, str)):
        yield f"{path}: {value!r} is neither a number nor a string"


def of_list(value, name, path):
    if not isinstance(value, list):
        yield f"{path}: {value!r} is no list"
        return
    for i, element in enumerate(value):
        yield from of_type(element, name, f"{path}[{i}]")


def of_dict(value, name, path):
    if not isinstance(value, dict):
        yield f"{path}: {value!r} is no map"
        return
    for key, element in value.items():
        yield from of_type(element, name, f"{path}.{key}")


def of_model(value, model, path):
    if not isinstance(value, dict):
        yield f"{path}: {value!r} is no object"
        return
    attributes = {field: attribute for attribute, field in model.attribute_map.items()}
    for field in value.keys() - attributes.keys():
        yield f"{path}: there is no field {field}"
    fields = {field: element for field, element in value.items() if field in attributes}
    try:
        model(**{attributes[field]: element for field, element in fields.items()})
    except ValueError as error:  # something required is missing
        yield f"{path}: {error}"
    for field, element in fields.items():
        yield from of_type(element, model.openapi_types[attributes[field]], f"{path}.{field}")
