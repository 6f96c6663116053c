"""Draws, outputs and schedules against tests/golden/draws.json, which the C++ tests hold allot's worker
and kernels to: the operators give the same bits, and a model of transformers draws the same keys."""

import hashlib
import json
import os
import struct

import torch

import allot
from allot.schedules import layer_budgets
from test_generation import AutoModelForCausalLM, NO_TRANSFORMERS, RECALL, answer, recall
from outcomes import skip

GOLDEN = os.path.join(os.path.dirname(__file__), "..", "golden")


def golden():
    with open(os.path.join(GOLDEN, "draws.json"), encoding="utf-8") as file:
        return json.load(file)


def floats(data, at, count, dtype, size):
    """So many numbers of `size` bytes from a file's as float32, and where they end."""
    raw = bytearray(data[at : at + count * size])
    return torch.frombuffer(raw, dtype=dtype).float(), at + len(raw)


def recall_states():
    """tests/golden/recall_states.bin as its maker describes it: queries [steps, heads, head_dim], keys
    and values [keys, kv_heads, head_dim]."""
    with open(os.path.join(GOLDEN, "recall_states.bin"), "rb") as file:
        data = file.read()
    assert data[:8] == b"QKV-bf16"
    count, at, blocks = struct.unpack_from("<I", data, 8)[0], 12, []
    for _ in range(count):
        layer, steps, keys, heads, kv_heads, width = struct.unpack_from("<6I", data, at)
        at += 24
        queries, at = floats(data, at, steps * heads * width, torch.float32, 4)
        k, at = floats(data, at, kv_heads * keys * width, torch.bfloat16, 2)
        v, at = floats(data, at, kv_heads * keys * width, torch.bfloat16, 2)
        k, v = (x.view(kv_heads, keys, width).transpose(0, 1).contiguous() for x in (k, v))
        blocks.append((queries.view(steps, heads, width), k, v))
    assert at == len(data)
    return blocks


def keys_of(bits):
    """[heads, words] of bits as each head's keys."""
    return [
        [
            64 * word + bit
            for word, value in enumerate(head)
            for bit in range(64)
            if value >> bit & 1
        ]
        for head in bits.tolist()
    ]


def digest(tensor):
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()


def test_operators_have_the_bits_of_the_kernels():
    file, states = golden(), recall_states()
    assert len(file["kernel_steps"]) == 60
    for block, (queries, keys, values) in enumerate(states):
        pages = -(-len(keys) // 16)
        workspace = allot.Workspace("cpu")
        cache = allot.make_cache(pages, 2, 16, 64, shadow_bits=4, bounds=True)
        table = torch.arange(pages, dtype=torch.int32)[None]
        allot.append_kv(keys[None], values[None], cache, table, allot.words([0]), workspace)
        for one in (one for one in file["kernel_steps"] if one["block"] == block):
            step = one["recorded_step"]
            length = len(keys) - len(queries) + 1 + step
            drawn = torch.zeros(8, length // 64 + 1, dtype=torch.int64)
            out, _ = allot.decode_attention(
                queries[step][None].contiguous(), cache, table, allot.words([length]),
                allot.words([one["budget"]]), allot.words([one["sequence"]]),
                allot.words([one["step"]]), one["method"], workspace, layer=one["layer"],
                seed=file["seed"], drawn=drawn,
            )
            assert digest(out) == one["out_sha256"], one
            assert digest(drawn) == one["rows_sha256"], one
            if "rows" in one:
                assert keys_of(drawn) == one["rows"], one


def test_schedules_are_applied_as_the_worker_does():
    for one in golden()["schedules"]:
        sizes = one["layers"], one["kv_heads"], one["heads"]
        budgets = [layer_budgets(one["schedule"], layer, *sizes) for layer in range(one["layers"])]
        assert budgets == one["budgets"]


def test_rows_are_named_as_the_worker_does():
    for one in golden()["sequences"]:
        rollout = allot.rollout_sequence(one["ticket"], one["count"], one["index"])
        assert rollout == one["rollout"]
        assert allot.evaluation_sequence(one["question"], one["repeat"]) == one["evaluation"]


def test_a_model_of_transformers_draws_the_workers_keys():
    """The same question, seed, sequence and schedule. Queries and keys are PyTorch's products here and
    others in the worker, good to some 1e-6: a draw falls on another key where a threshold is that
    close, once in some 10^5. So all tokens and 999 of 1000 sets of keys are the same; on the machine
    that the file was made on all were."""
    if AutoModelForCausalLM is None:
        return skip(NO_TRANSFORMERS)
    file, model = golden(), recall("cpu")
    with open(os.path.join(RECALL, "golden.json"), encoding="utf-8") as prompts:
        ids = torch.tensor([json.load(prompts)["logits"][0]["prompt_ids"]])
    for one in file["answers"]:
        seen = {}

        def observe(layer, step, drawn):
            seen[layer, step] = keys_of(drawn)

        attention = allot.attention(model, one["method"], one["schedule"], seed=file["seed"])
        cache = attention.cache([one["sequence"]], observer=observe)
        out = answer(model, ids, len(one["tokens"]), past_key_values=cache)
        assert out[0, ids.shape[1]:].tolist() == one["tokens"], one["method"]
        pairs = [
            (ours, theirs)
            for entry in one["steps"]
            for ours, theirs in zip(seen[entry["layer"], entry["step"]], entry["rows"])
        ]
        same = sum(ours == theirs for ours, theirs in pairs)
        print(f"{one['method']}: {same} of {len(pairs)} sets of keys are the worker's")
        assert same >= 0.999 * len(pairs)
        assert len(pairs) == (0 if one["method"] == "dense" else 7 * 8 * 8)
