#!/usr/bin/env python3
"""Writes what `allot` prints into the documents, the CRD and k8s/examples: what ./run tables calls.

  make_tables.py build/release/bin/allot

Tests compare each of them with what the code says."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = "k8s/examples/recall-layer-budget.yaml"
# The command, its document, and the marks of the tables that it prints.
TABLES = [
    ("help -o markdown", "docs/reference/commands.md", ["commands"]),
    ("keys", "docs/reference/experiment-file.md", ["keys"]),
    ("methods -o markdown", "docs/reference/methods.md", ["methods", "method parameters"]),
    ("tasks -o markdown", "docs/reference/tasks.md", ["tasks", "graders"]),
    ("models -o markdown", "docs/models.md", ["models", "chat templates"]),
    ("metrics -o markdown", "k8s/README.md", ["metrics"]),
]


def write(name, text):
    path = ROOT / name
    if path.read_text() != text:
        path.write_text(text)
        print("renewed", name)


def between(text, mark, table):
    pattern = re.compile(rf"(<!-- {mark}: begin -->\n+).*?(\n+<!-- {mark}: end -->)", re.DOTALL)
    return pattern.sub(lambda found: found[1] + table.strip("\n") + found[2], text)


def main(allot):
    def said(command):
        return subprocess.run([allot, *command.split()], cwd=ROOT, check=True, capture_output=True, text=True).stdout

    for command, document, marks in TABLES:
        tables = said(command).split("\n\n", 1) if len(marks) > 1 else [said(command)]
        text = (ROOT / document).read_text()
        for mark, table in zip(marks, tables, strict=True):
            text = between(text, mark, table)
        write(document, text)
    write("k8s/operator/crd.yaml", said("crd"))
    comments = re.match(r"(#.*\n)*", (ROOT / EXAMPLE).read_text())[0]
    write(EXAMPLE, comments + said("render experiments/recall-layer-budget/experiment.yaml --no-accounts"))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(str(pathlib.Path(sys.argv[1]).resolve()))
