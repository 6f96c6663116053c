"""Who may speak with whom: NetworkPolicies as a cluster's network reads them, for every pair of
pods."""
from rendering import labels_of, ports_of, selects, template_labels

OUTSIDE = {"stranger": {}, "prometheus": {"allot.dev/monitoring": "true"},
           "dns": {"kubernetes.io/metadata.name": "kube-system"}}


def pods(rendering):
    """name -> (namespace's labels, pod's labels, {port's name: number}, is of the experiment).
    Those outside carry the workers' labels, so that only their namespace tells them from workers."""
    namespace = labels_of(rendering.of("Namespace")[0])
    found = {template_labels(workload)["app.kubernetes.io/component"]:
             (namespace, template_labels(workload), ports_of(workload), True)
             for workload in rendering.workloads()}
    worker = found["worker"][1]
    for name, labels in OUTSIDE.items():
        found[name] = (labels, worker, {"dns": 53} if name == "dns" else {"web": 80}, False)
    # A pod in the experiment's namespace that is nobody's.
    found["intruder"] = (namespace, {}, {"web": 80}, True)
    return found


def allowed(rendering):
    """{(from, to, port's name)}"""
    everybody = pods(rendering)
    policies = rendering.of("NetworkPolicy")
    return {(source, target, port)
            for source, one in everybody.items() for target, other in everybody.items()
            if source != target and (one[3] or other[3])
            for port, number in other[2].items()
            if passes(policies, "Egress", one, other, port, number) and
            passes(policies, "Ingress", other, one, port, number)}


def passes(policies, direction, pod, peer, port, number):
    """What the policies of one end say. Outside there are none."""
    if not pod[3]:
        return True
    mine = [policy["spec"] for policy in policies
            if direction in policy["spec"]["policyTypes"] and
            selects(policy["spec"]["podSelector"], pod[1])]
    rules = [rule for spec in mine for rule in spec.get(direction.lower(), [])]
    return not mine or any(rule_allows(rule, direction, peer, pod[0], port, number)
                           for rule in rules)


def rule_allows(rule, direction, peer, namespace, port, number):
    peers = rule.get("from" if direction == "Ingress" else "to", [])
    ports = [entry["port"] for entry in rule.get("ports", []) if entry.get("protocol") == "TCP"]
    return ((not peers or any(peer_matches(entry, peer, namespace) for entry in peers)) and
            ("ports" not in rule or port in ports or number in ports))


def peer_matches(entry, peer, namespace):
    if "ipBlock" in entry:
        return False  # pods have no addresses here
    if "namespaceSelector" in entry:
        if not selects(entry["namespaceSelector"], peer[0]):
            return False
    elif peer[0] != namespace:
        return False
    return selects(entry.get("podSelector", {}), peer[1])
