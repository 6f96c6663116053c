"""Who may speak with whom: NetworkPolicies as a cluster's network reads them, for every pair of
pods of one or more experiments in one namespace, of strangers in it, and of pods outside."""
from dataclasses import dataclass

from rendering import labels_of, ports_of, selects, template_labels

WEB = {"web": 80}


@dataclass
class Pod:
    namespace: str
    namespace_labels: dict
    labels: dict
    ports: dict  # name -> number
    is_ours: bool = False  # of an experiment


def world(renderings):
    """name -> Pod. Names of an experiment's pods begin with its own where there are several."""
    found = {}
    for rendering in renderings:
        start = f"{rendering.experiment}/" if len(renderings) > 1 else ""
        for owner in rendering.pod_owners():
            labels = template_labels(owner)
            name = start + labels["app.kubernetes.io/component"]
            found[name] = Pod("ours", {}, labels, ports_of(owner), True)
    worker = next(pod.labels for name, pod in found.items() if name.endswith("worker"))
    # Those outside carry a worker's labels, so that only their namespace tells them from workers.
    found["stranger"] = Pod("far", {}, worker, WEB)
    found["index"] = Pod("far", {}, {}, {"https": 443})
    found["prometheus"] = Pod("monitoring", {"allot.dev/monitoring": "true"}, worker, WEB)
    found["dns"] = Pod("kube-system", {"kubernetes.io/metadata.name": "kube-system"}, worker,
                       {"dns": 53})
    # Before Kubernetes 1.21 namespaces had no label of their own.
    found["old-dns"] = Pod("kube-system", {}, {"k8s-app": "kube-dns"}, {"dns": 53})
    # In the experiments' namespace, and nobody's: one like a worker of something else.
    found["neighbour"] = Pod("ours", {}, {}, WEB)
    found["lookalike"] = Pod("ours", {}, {"app.kubernetes.io/component": "worker",
                                          "app.kubernetes.io/name": "other"}, {"metrics": 9464})
    return found


def allowed(*renderings):
    """{(from, to, port's name)}, without what goes on between pods outside."""
    everybody = world(renderings)
    policies = [policy["spec"] for rendering in renderings for policy in
                rendering.of("NetworkPolicy")]
    return {(source, target, port)
            for source, one in everybody.items() for target, other in everybody.items()
            if source != target and "ours" in (one.namespace, other.namespace)
            for port, number in other.ports.items()
            if passes(policies, "Egress", one, other, port, number) and
            passes(policies, "Ingress", other, one, port, number)}


def expected(*renderings):
    """The flows that there are to be: a few of each experiment, and all between those who have
    nothing to do with it."""
    found = set()
    everybody = world(renderings)
    for source, one in everybody.items():
        for target, other in everybody.items():
            strangers = not one.is_ours and not other.is_ours
            if source != target and strangers and "ours" in (one.namespace, other.namespace):
                found |= {(source, target, port) for port in other.ports}
    for rendering in renderings:
        start = f"{rendering.experiment}/" if len(renderings) > 1 else ""
        for pod in ("worker", "aggregator"):
            found |= {(start + pod, start + "store", "redis"), (start + pod, "dns", "dns"),
                      (start + pod, "old-dns", "dns"), ("prometheus", start + pod, "metrics")}
        if "smollm2" in rendering.components:
            found |= {(start + "fetch", "dns", "dns"), (start + "fetch", "old-dns", "dns"),
                      (start + "fetch", "index", "https")}
        if "results" in rendering.components:
            found |= {(start + "export", start + "store", "redis"),
                      (start + "export", "dns", "dns"), (start + "export", "old-dns", "dns")}
    return found


def passes(policies, direction, pod, peer, port, number):
    """What the policies of one end say. They are all in the experiments' namespace."""
    if pod.namespace != "ours":
        return True
    mine = [spec for spec in policies if direction in spec["policyTypes"] and
            selects(spec["podSelector"], pod.labels)]
    rules = [rule for spec in mine for rule in spec.get(direction.lower(), [])]
    return not mine or any(rule_allows(rule, direction, peer, port, number) for rule in rules)


def rule_allows(rule, direction, peer, port, number):
    peers = rule.get("from" if direction == "Ingress" else "to", [])
    ports = [entry["port"] for entry in rule.get("ports", []) if entry.get("protocol") == "TCP"]
    return ((not peers or any(peer_matches(entry, peer) for entry in peers)) and
            ("ports" not in rule or port in ports or number in ports))


def peer_matches(entry, peer):
    if "ipBlock" in entry:
        return False  # pods have no addresses here
    if "namespaceSelector" in entry:
        if not selects(entry["namespaceSelector"], peer.namespace_labels):
            return False
    elif peer.namespace != "ours":
        return False
    return selects(entry.get("podSelector", {}), peer.labels)
