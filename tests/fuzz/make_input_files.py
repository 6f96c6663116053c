#!/usr/bin/env python3
"""Writes fuzz-input-files_seed_corpus.zip: small experiment files, questions, notes of a run and edits of an
export, whole and damaged, from which fuzz-input-files starts. The first byte says which it is
(input_files.h).

    python3 tests/fuzz/make_input_files.py
"""
import json
import struct

import pack

RUN = "01M7YCD2AZVZVPGCPCSFDWQWNZ"
EXPERIMENT = """apiVersion: allot.dev/v1alpha1
kind: Experiment
metadata: {name: fuzz}
spec:
  model: {path: none}
  task: {suite: recall, tasks: [niah, multi]}
  policy: {totalBudget: 8}
"""
MORE = """  seed: 7
  attention: {decode: "s2anta-sys"}
  update: {episodesPerUpdate: 10, optimizer: adam, learningRate: "0.05"}
  staleness: {mode: truncated-is, rhoBar: "1"}
  evaluation:
    everyUpdates: 25
    budgets: [8, 16]
    schedules: [uniform, learned, [3, 5, 0, 0, 0, 0, 0, 0], {oneHot: {base: 2}}]
    methods: [dense, vattention epsilon=0.1 delta=0.1]
    measures: [accuracy, fidelity tile=256]
  stop: {goal: "", maxWorkerHours: "0.5"}
"""


def deep(levels=9000):
    return "[" * levels + "]" * levels


def lines(*objects):
    return "".join(json.dumps(o, ensure_ascii=False) + "\n" for o in objects)


def edit(at, gone, come):
    return struct.pack("<IBB", at, gone, len(come)) + come


def files():
    yield "accepted-experiment", "e", EXPERIMENT
    yield "accepted-learns", "e", EXPERIMENT + "  update: {maxUpdates: 40}\n"
    yield "refused-keys", "e", EXPERIMENT + MORE
    yield "refused-range", "e", EXPERIMENT.replace("totalBudget: 8", "totalBudget: 0")
    yield "refused-alias", "e", EXPERIMENT.replace("none", "&a none") + "  seed: *a\n"
    yield "refused-deep-yaml", "e", EXPERIMENT + "  seed: " + deep() + "\n"
    yield "refused-tab", "e", EXPERIMENT + "\tseed: 1\n"
    profile = {"kind": "sale-profile", "weightsSha256": "0a" * 32, "queryBlock": 64, "keyBlock": 32,
               "theta": 0.4, "tau": [[0.008, 0.000125], [0, 5e-1]], "error": [[0.1, 0.2], [0, 1]]}
    yield "accepted-profile", "p", json.dumps(profile, indent=1)
    yield "accepted-profile-experiment", "e", (
        EXPERIMENT + "  attention: {prefill: sale tau=profile, prefillProfile: '"
        + json.dumps(profile) + "'}\n")
    yield "refused-profile-range", "p", json.dumps({**profile, "tau": [[0.5, 1]]})
    yield "refused-profile-ragged", "p", json.dumps({**profile, "tau": [[0.5, 0], [0.5]]})
    yield "refused-profile-deep", "p", '{"tau": ' + deep() + "}"
    yield "accepted-own", "q", lines({"prompt": "a?", "answers": ["b", 3]},
                                     {"prompt": "\u6f22\U0001F642", "answers": -1.5e300})
    yield "accepted-gsm8k", "q", lines({"question": "1 + 1?", "answer": "2 it is\n#### 1,002"})
    yield "accepted-mmlu-array", "q", json.dumps(
        [{"question": "q", "choices": ["a", "b", "", "d"], "answer": 3}], indent=1)
    yield "accepted-longbench", "q", lines({
        "context": "long", "question": "q", "choice_A": "a", "choice_B": "b", "choice_C": "c",
        "choice_D": "d", "answer": "C"})
    yield "accepted-humaneval", "q", lines({
        "prompt": "def f():\n", "entry_point": "f", "test": "def check(c):\n    assert c() == 1"})
    yield "accepted-ruler", "q", lines({"input": "x\nQuestion: y", "outputs": ["z"],
                                        "answer_prefix": " A:"})
    yield "accepted-longbench-v1", "b", lines(
        {"context": "c. d", "input": "i", "answers": ["Paragraph 3", " x"], "length": 2,
         "dataset": "qasper", "all_classes": None})
    yield "accepted-classes", "b", lines({"context": "c", "input": "City", "answers": "City",
                                          "all_classes": ["City", "C", "\u00c9"]})
    yield "accepted-infinitebench", "b", lines(
        {"id": 1, "context": "c", "input": "The largest number of: func_1(-2)", "answer": ["b"],
         "options": ["a", "b", "c", "d"]})
    yield "refused-benchmark", "b", lines({"context": "c", "input": "", "answers": [[]]})
    yield "refused-deep-benchmark", "b", '{"context": "c", "answers": ' + deep() + "}"
    yield "refused-deep-question", "q", '{"prompt": "p", "answers": ' + deep() + "}"
    yield "refused-array", "q", "[" + json.dumps({"prompt": "p", "answers": 1}) + ",\n"
    yield "accepted-csv", "m", 'q,1,2,3,4,A\r\n"a ""b""\nc",1,2,3,,D\n'
    yield "refused-csv", "m", 'q,1,2,3,4,A\nq,"1,2,3,4,A\n'
    yield "accepted-note", "r", json.dumps({"run_id": RUN, "experiment_file": "e.yaml",
                                            "set": ["spec.seed=2"], "model": ""})
    yield "refused-note", "r", json.dumps({"run_id": "../.."})
    yield "refused-deep-note", "r", '{"run_id": "' + RUN + '", "set": ' + deep() + "}"
    for kind, name in (("x", "export"), ("h", "history"), ("v", "evaluations")):
        yield f"accepted-{name}", kind, b""
        yield f"accepted-{name}-blank", kind, edit(1, 0, b" ")
        yield f"refused-{name}-cut", kind, edit(40, 255, b"")
        yield f"refused-{name}-deep", kind, b"".join(
            edit(1, 0, b'"a": ' + b"[" * 100 if i == 0 else b"[" * 100) for i in range(2))
        yield f"refused-{name}-key", kind, edit(1, 0, b'"unknown": 1,')
    # In the run's id.
    yield "refused-export-control", "x", edit(40, 0, b"\0\6m[[[[[")


def main():
    inputs = {}
    for name, kind, content in files():
        bytes_of = content.encode() if isinstance(content, str) else content
        inputs[name] = kind.encode() + bytes_of
    pack.pack(inputs, "fuzz-input-files")


if __name__ == "__main__":
    main()
