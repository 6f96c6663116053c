#!/usr/bin/env python3
"""Writes the README of this folder and of each folder in it from papers.yaml and */paper.yaml.

    make_readme.py           write what changed
    make_readme.py --check   name what would change, and return 1 if anything would

A README holds the text between `<!-- papers: begin -->` or `<!-- paper: begin -->` and its end.
Needs PyYAML.
"""
import argparse
import pathlib
import shlex
import sys

import yaml

FOLDER = pathlib.Path(__file__).resolve().parent

KEYS = {  # of a paper.yaml: type, and whether it is required
    "paper": (str, True),    # key of papers.yaml
    "items": (list, True),   # "Table 4"; the folder is called after the first
    "shows": (str, True),    # what they are about
    "model": (str, True),
    "data": (str, True),
    "exact": (list, True),     # settings that the paper states and the experiment has
    "chosen": (list, False),   # settings that the paper leaves open
    "differs": (list, False),  # settings that are not the paper's
    "ours": (str, False),      # folder with figures of ours, from the repository's root
    "runs": (list, False),     # at least one; none here means one run of experiment.yaml
}
RUN_KEYS = {"title": (str, True), "folder": (str, False), "options": (list, False),
            "set": (list, False)}
SOURCE_KEYS = {"key": (str, True), "title": (str, True), "source": (str, True),
               "without": (list, False)}
WITHOUT_KEYS = {"items": (list, True), "why": (str, True)}

# Parameters in billions, layers, heads of keys, channels of a head: config.json of each model.
MODELS = {
    "Llama-3.1-8B-Instruct": (8.03, 32, 8, 128),
    "DeepSeek-R1-Distill-Llama-8B": (8.03, 32, 8, 128),
    "DeepSeek-R1-Distill-Qwen-7B": (7.62, 28, 4, 128),
    "Mistral-7B-Instruct-v0.3": (7.25, 32, 8, 128),
    "Qwen2.5-32B-Instruct": (32.8, 64, 8, 128),
    "Yi-9B-200K": (8.83, 48, 4, 128),
}
GPUS = (16, 24, 40, 48, 80, 141)  # GiB of the cards that there are
CPU_BYTES = 8  # a parameter, in float32: the weights and what the products pack of them

HEADER = ("folder", "tables and figures", "model", "data", "settings", "can be run on",
          "figures of ours")


class Fault(Exception):
    """A file of the folder is not what it should be."""


def checked(fields, keys, place):
    """Returns the fields with the defaults of absent ones."""
    if not isinstance(fields, dict):
        raise Fault(f"{place}: is no map of keys")
    for key in fields:
        if key not in keys:
            raise Fault(f'{place}: "{key}" is not one of {", ".join(keys)}')
    for key, (kind, required) in keys.items():
        value = fields.get(key, kind())
        if type(value) is not kind or required and not value:
            raise Fault(f"{place}: {key}: required, as {'a list' if kind is list else 'a text'}")
    return {key: fields.get(key, kind()) for key, (kind, _) in keys.items()}


def slug(paper, item):
    """Returns "santa-table-04" for "Table 4" of "santa"."""
    words = (word.zfill(2) if word.isdigit() else word.lower() for word in item.split())
    return "-".join((paper, *words))


def read(folder):
    """Returns (sources, experiments by name). Raises Fault."""
    document = yaml.safe_load((folder / "papers.yaml").read_text())
    sources, places = [], {}

    def take(paper, items, place):
        for item in items:
            first = places.setdefault(slug(paper, item), place)
            if first is not place:
                raise Fault(f"{item} of {paper} is in {first[0]} and in {place[0]}")

    for fields in document["papers"]:
        source = checked(fields, SOURCE_KEYS, "papers.yaml")
        source["without"] = [checked(one, WITHOUT_KEYS, "papers.yaml: without")
                             for one in source["without"]]
        for one in source["without"]:
            take(source["key"], one["items"], ("papers.yaml",))
        sources.append(source)
    experiments = {}
    for file in sorted(folder.glob("*/paper.yaml")):
        name, place = file.parent.name, f"{file.parent.name}/paper.yaml"
        one = checked(yaml.safe_load(file.read_text()), KEYS, place)
        one["name"] = name
        if one["paper"] not in [source["key"] for source in sources]:
            raise Fault(f"{place}: paper: papers.yaml has no {one['paper']}")
        if slug(one["paper"], one["items"][0]) != name:
            raise Fault(f"{place}: the folder of {one['items'][0]} of {one['paper']} is called "
                        f"{slug(one['paper'], one['items'][0])}")
        if len(set(one["items"])) != len(one["items"]):
            raise Fault(f"{place}: items: one is there twice")
        take(one["paper"], one["items"], (name,))
        one["runs"] = [checked(run, RUN_KEYS, f"{place}: runs")
                       for run in one["runs"] or [{"title": "all of it"}]]
        for run in one["runs"]:
            run["folder"] = run["folder"] or name
            if not (folder / run["folder"] / "experiment.yaml").exists():
                raise Fault(f"{place}: runs: there is no {run['folder']}/experiment.yaml")
        experiments[name] = one
    return sources, experiments


def experiment_of(folder, run):
    """Returns the run's experiment: its folder's file with what the run sets."""
    document = yaml.safe_load((folder / run["folder"] / "experiment.yaml").read_text())
    for setting in run["set"]:
        path, _, value = setting.partition("=")
        *parents, key = path.split(".")
        fields = document
        for parent in parents:
            fields = fields.setdefault(parent, {})
        fields[key] = yaml.safe_load(value)
    return document


def machine_of(experiment):
    """Returns ("CPU" or "GPU", GiB) that a worker of the experiment needs at least."""
    model = experiment["spec"]["model"]
    billions, layers, heads, channels = MODELS[model["path"].rpartition("/")[2]]
    if model.get("device") != "cuda":
        return "CPU", round(billions * 1e9 * CPU_BYTES / 2**30)
    task = experiment["spec"]["task"]
    tokens = task["contextTokens"] + task.get("maxNewTokens", 0)
    held = billions * 1e9 * 2 + tokens * layers * heads * channels * 2 * 2
    # 15 % for activations and the driver.
    return "GPU", next(size for size in GPUS if held * 1.15 <= size * 2**30)


def can_be_run_on(folder, one):
    """Returns "CPU of 60 GiB (2 runs), GPU of 24 GiB (1 run); download of 15 GB"."""
    needs, models = {}, set()
    for run in one["runs"]:
        experiment = experiment_of(folder, run)
        device, size = machine_of(experiment)
        most, runs = needs.get(device, (0, 0))
        needs[device] = max(most, size), runs + 1
        models.add(experiment["spec"]["model"]["path"].rpartition("/")[2])

    def cell(device):
        size, runs = needs[device]
        text = f"{device} of {size} GiB"
        return text if len(needs) == 1 else f"{text} ({runs} run{'s' * (runs > 1)})"
    download = round(sum(MODELS[model][0] * 2 for model in models))
    return f"{', '.join(cell(device) for device in sorted(needs))}; download of {download} GB"


def settings(one):
    """Returns how many settings are not the paper's, and how many the paper leaves open."""
    chosen = f", {len(one['chosen'])} chosen" if one["chosen"] else ""
    return f"{len(one['differs']) or 'none'} differ{chosen}"


def row(*cells):
    return f"| {' | '.join(cells)} |\n"


def list_text(folder, sources, experiments):
    """Returns the part of README.md between its marks."""
    parts = []
    for source in sources:
        parts.append(f"## {source['title']}\n\n{source['source']}.\n")
        rows = [row(f"[{one['name']}]({one['name']})", ", ".join(one["items"]), one["model"],
                    one["data"], settings(one), can_be_run_on(folder, one),
                    f"[{one['ours']}](../../{one['ours']})" if one["ours"] else "none")
                for one in experiments.values() if one["paper"] == source["key"]]
        if rows:
            parts.append(row(*HEADER) + row(*["---"] * len(HEADER)) + "".join(rows))
        if source["without"]:
            parts.append(row("without an experiment", "why") + row("---", "---") + "".join(
                row(", ".join(one["items"]), one["why"]) for one in source["without"]))
    return "\n".join(parts)


def command(run):
    words = ["allot", "run", f"experiments/papers/{run['folder']}/experiment.yaml",
             *run["options"], *(word for text in run["set"] for word in ("--set", text))]
    return " ".join(shlex.quote(word) if set(word) & set(" []{}*") else word for word in words)


def folder_text(folder, one):
    """Returns the part of a folder's README.md between its marks."""
    text = (f"{one['shows']}.\n\n- **Model**: {one['model']}\n- **Data**: {one['data']}\n"
            f"- **Can be run on**: {can_be_run_on(folder, one)}\n")
    for key, title in (("exact", "As the paper has it"),
                       ("chosen", "Chosen, since the paper leaves it open"),
                       ("differs", "Not as the paper has it")):
        if one[key]:
            text += f"\n**{title}**\n" + "".join(f"- {point}\n" for point in one[key])
    runs = "".join(f"# {run['title']}\n{command(run)}\n" for run in one["runs"])
    return f"{text}\n**Runs**\n\n```\n{runs}```\n"


def replaced(text, mark, part):
    """Returns the text with the part between the marks of that name."""
    begin, end = f"<!-- {mark}: begin -->\n", f"<!-- {mark}: end -->"
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise Fault(f"a README has no {begin.strip()} with its end")
    return head + begin + part + end + tail


def readmes(folder):
    """Returns the text that each README should have, by file."""
    sources, experiments = read(folder)
    texts = {folder / "README.md": ("papers", list_text(folder, sources, experiments))}
    for name, one in experiments.items():
        texts[folder / name / "README.md"] = ("paper", folder_text(folder, one))
    return {file: replaced(file.read_text(), *part) for file, part in texts.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    changed = [(file, text) for file, text in readmes(FOLDER).items() if file.read_text() != text]
    for file, text in changed:
        print(file)
        if not check:
            file.write_text(text)
    return int(check and bool(changed))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Fault as fault:
        sys.exit(f"make_readme.py: {fault}")
