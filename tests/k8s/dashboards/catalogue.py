"""The catalogue of metrics, as `allot metrics` prints it, and what is wrong with a query by it."""
import pathlib
import re
import subprocess

# What a scrape adds: Prometheus's own, and what the operator's monitors add in a cluster.
SCRAPE_LABELS = {"experiment", "run_id", "instance", "job", "namespace", "pod", "container", "endpoint"}
# Metrics of a scrape itself.
SCRAPE_METRICS = {"up"}
NAME = re.compile(r"\ballot_\w+")
RECORDED = re.compile(r"\ballot:\w+:\w+")
RULES = pathlib.Path(__file__).resolve().parents[3] / "k8s/prometheus/rules.yaml"
SUFFIXES = {"_bucket": {"le"}, "_sum": set(), "_count": set()}


class Catalogue:
    def __init__(self, allot):
        text = subprocess.run([allot, "metrics"], capture_output=True, text=True, check=True).stdout
        rows = [[cell.strip().strip("`") for cell in line.strip("| \n").split(" | ")]
                for line in text.splitlines() if line.startswith("| `")]
        self.kinds = {name: kind for name, kind, *_ in rows}
        self.labels = {row[0]: set(re.findall(r"\w+", row[3])) for row in rows}
        self.help = {row[0]: row[4] for row in rows}

    def labels_of(self, name):
        """The labels that the series `name` has; None if there is no such series. A histogram has
        no series of its own name, and nothing else has its suffixes."""
        if name in self.kinds and self.kinds[name] != "histogram":
            return self.labels[name] | SCRAPE_LABELS
        for suffix, more in SUFFIXES.items():
            base = name.removesuffix(suffix)
            if base != name and self.kinds.get(base) == "histogram":
                return self.labels[base] | SCRAPE_LABELS | more
        return None

    def mistakes(self, query):
        """Names and labels in a PromQL query that do not exist, as sentences."""
        found = [f"there is no series {name}" for name in NAME.findall(query)
                 if self.labels_of(name) is None]
        recorded = set(re.findall(r"- record: (\S+)", RULES.read_text()))
        found += [f"nobody records {name}" for name in RECORDED.findall(query)
                  if name not in recorded]
        for name, matchers in re.findall(r"\b(allot_\w+)\{([^}]*)\}", query):
            for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", matchers):
                if label not in (self.labels_of(name) or {label}):
                    found.append(f"{name} has no label {label}")
        # Labels that the query makes itself, by their quoted name.
        made = set(re.findall(r'(?:label_replace|label_join|count_values)\b.*?"(\w+)"', query))
        made |= set(re.findall(r', "(\w+)", "', query))
        for labels, inside in groupings(query):
            known = set(made)
            for name in NAME.findall(inside):
                known |= self.labels_of(name) or set()
            if any(name in re.findall(r"\w+", inside) for name in SCRAPE_METRICS):
                known |= SCRAPE_LABELS
            found += [f"nothing in {inside} has a label {label}" for label in labels
                      if label not in known]
        return found


def groupings(query):
    """Of every `by (labels) (expression)` the labels and the expression."""
    for match in re.finditer(r"\bby \(([^)]*)\) ?\(", query):
        depth, end = 1, match.end()
        while depth and end < len(query):
            depth += {"(": 1, ")": -1}.get(query[end], 0)
            end += 1
        yield re.findall(r"\w+", match[1]), query[match.end():end - 1]
