"""The lines of Python in README.md and docs/python.md, run as they stand there."""

import contextlib
import io
import json
import os
import re
import sys
import tempfile

import allot  # noqa: F401
from test_generation import AutoModelForCausalLM, NO_TRANSFORMERS
from outcomes import skip

SOURCE = os.path.join(os.path.dirname(__file__), "..", "..")


def blocks(name):
    with open(os.path.join(SOURCE, name), encoding="utf-8") as file:
        return re.findall(r"^```python\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)


def run(code, folder):
    """What it prints, run in that folder."""
    here, path, said = os.getcwd(), list(sys.path), io.StringIO()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(said):
            exec(compile(code, "the lines", "exec"), {})  # noqa: S102
    finally:
        os.chdir(here)
        sys.path[:] = path
    return said.getvalue()


def test_the_readmes_lines_answer_under_a_learned_schedule():
    if AutoModelForCausalLM is None:
        return skip(NO_TRANSFORMERS)
    code = [block for block in blocks("README.md") if "allot.attention" in block]
    assert len(code) == 1 and len([line for line in code[0].splitlines() if line]) <= 15
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.abspath(os.path.join(SOURCE, "experiments")), f"{folder}/experiments")
        os.makedirs(f"{folder}/runs/latest")
        with open(f"{folder}/runs/latest/policy.json", "w", encoding="utf-8") as file:
            json.dump({"total_budget": 8, "learned_schedule": [3, 2, 0, 0, 3, 0, 0, 0]}, file)
        said = run(code[0], folder)
    right = said.rsplit("and right is ", 1)[1].strip()
    assert f"Answer: {right}" in said, said


def test_the_operators_lines_give_an_output():
    code = [block for block in blocks("docs/python.md") if "make_cache" in block]
    assert len(code) == 1
    run(code[0] + "assert out.shape == (1, 32, 128) and out.isfinite().all()\n", ".")
