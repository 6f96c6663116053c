"""NetworkPolicies, enforced: what a network plugin does with them, as rules of nftables in the test
cluster's nodes. The policies are read from the API server as they stand there, with every pod's
address, again and again while the context lasts."""
import contextlib
import subprocess
import threading

from harness import kube, machines

TABLE = "allot_policies"


def selects(selector, labels):
    """A label selector (matchLabels, matchExpressions) on labels."""
    if not all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for expression in selector.get("matchExpressions", []):
        value, values = labels.get(expression["key"]), expression.get("values", [])
        holds = {"In": value in values, "NotIn": value not in values, "Exists": value is not None,
                 "DoesNotExist": value is None}[expression["operator"]]
        if not holds:
            return False
    return True


class Place:
    """Something with an address: a pod, or the cluster's DNS server, which here is none."""

    def __init__(self, namespace, space_labels, labels, address, ports):
        self.namespace, self.space_labels, self.labels = namespace, space_labels, labels
        self.address, self.ports = address, ports


def labels_of(item):
    return item["metadata"].get("labels", {})


def places():
    spaces = {each["metadata"]["name"]: labels_of(each)
              for each in kube.get_json("get", "namespaces")["items"]}
    found = []
    for pod in kube.get_json("get", "pods", "-A")["items"]:
        status = pod["status"]
        if not status.get("podIP") or status["phase"] in ("Succeeded", "Failed"):
            continue
        namespace = pod["metadata"]["namespace"]
        ports = {port["name"]: port["containerPort"] for container in pod["spec"]["containers"]
                 for port in container.get("ports", []) if "name" in port}
        found.append(Place(namespace, spaces.get(namespace, {}), labels_of(pod), status["podIP"],
                           ports))
    for subset in kube.get_json("-n", "kube-system", "get", "endpoints", "kube-dns")["subsets"]:
        for address in subset["addresses"]:
            found.append(Place("kube-system", spaces["kube-system"], {"k8s-app": "kube-dns"},
                               address["ip"], {}))
    return found


def is_peer(entry, policy, place):
    if "namespaceSelector" in entry:
        if not selects(entry["namespaceSelector"], place.space_labels):
            return False
    elif place.namespace != policy["metadata"]["namespace"]:
        return False
    return selects(entry.get("podSelector", {}), place.labels)


def port_rules(rule, place):
    """nftables' words for the ports of a rule, on their way to a place."""
    if "ports" not in rule:
        return [""]
    words = []
    for entry in rule["ports"]:
        port = entry["port"] if isinstance(entry["port"], int) else place.ports.get(entry["port"])
        if port:
            words.append(f"{entry.get('protocol', 'TCP').lower()} dport {port} ")
    return words


def rules_of(direction, policies, everybody):
    """(the isolated, rules that let through) of Egress or Ingress."""
    isolated, passes = set(), []
    for policy in policies:
        spec = policy["spec"]
        if direction not in spec["policyTypes"]:
            continue
        for place in everybody:
            if (place.namespace != policy["metadata"]["namespace"] or
                    not selects(spec["podSelector"], place.labels)):
                continue
            isolated.add(place.address)
            for rule in spec.get(direction.lower()) or []:
                peers = rule.get("from" if direction == "Ingress" else "to", [])
                for entry in peers:
                    if "ipBlock" in entry:
                        continue  # of what is not here: NodeLocal DNSCache
                    for other in everybody:
                        if not is_peer(entry, policy, other):
                            continue
                        source, target = ((other, place) if direction == "Ingress" else
                                          (place, other))
                        passes += [f"ip saddr {source.address} ip daddr {target.address} {words}return"
                                   for words in port_rules(rule, target)]
                assert peers, f"{policy['metadata']['name']} lets everybody through"
    return isolated, sorted(set(passes))


def ruleset():
    everybody = places()
    policies = kube.get_json("get", "networkpolicies", "-A")["items"]
    chains, jumps = [], []
    for direction, field in (("Egress", "saddr"), ("Ingress", "daddr")):
        isolated, passes = rules_of(direction, policies, everybody)
        name = direction.lower()
        chains.append(f"chain {name} {{\n" + "".join(f"{each}\n" for each in passes) +
                      "counter drop\n}\n")
        if isolated:
            jumps.append(f"ip {field} {{ {', '.join(sorted(isolated))} }} jump {name}\n")
    # A Service's address has become a pod's by then. What comes from the node itself, a kubelet's
    # probe, passes neither.
    hooks = "".join(f"chain {hook} {{ type filter hook {hook} priority 10; policy accept;\n"
                    f"ct state established,related accept\n{''.join(jumps)}}}\n"
                    for hook in ("forward", "input"))
    return (f"table inet {TABLE}\ndelete table inet {TABLE}\n"
            f"table inet {TABLE} {{\n{''.join(chains)}{hooks}}}\n")


def in_node(number, *command, stdin=None):
    done = subprocess.run([f"{machines.SCRIPTS}/in-node.sh", number, *command], input=stdin,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} in node{number}: {done.stdout.strip()}")
    return done.stdout


@contextlib.contextmanager
def enforced(numbers=("1", "2")):
    """While it lasts, pods reach what the policies allow and nothing else."""
    over, failures, loaded = threading.Event(), [], []

    def load():
        text = ruleset()
        if loaded[-1:] == [text]:
            return
        for number in numbers:
            in_node(number, "nft", "-f", "-", stdin=text)
        loaded.append(text)

    def follow():
        while not over.wait(0.5):
            try:
                load()
            except (kube.KubectlError, ValueError):
                continue  # the API server is away
            except AssertionError as error:
                failures.append(error)
                return
    load()
    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for number in numbers:
            in_node(number, "nft", "delete", "table", "inet", TABLE)
    if failures:
        raise failures[0]


def dropped():
    """Packets that the rules have dropped since they last changed, on all nodes."""
    total = 0
    for number in ("1", "2"):
        for line in in_node(number, "nft", "list", "table", "inet", TABLE).splitlines():
            words = line.split()
            if words[:2] == ["counter", "packets"]:
                total += int(words[2])
    return total
