#!/usr/bin/env python3
"""Writes recall_states.bin: queries, keys and values that recall-7m's attention sees while it
answers held-out questions. Run in an environment with `pip install numpy tokenizers`:

    python3 make_recall_states.py ../../experiments/models/recall-7m recall_states.bin

The model is run in float32 by the few lines below, checked against the checkpoint's golden.json.
Tokens up to the question's end are the prompt; each further token of the right answer is a decode
step, whose query sees all keys so far, its own included.

The file, little-endian: the 8 bytes "QKV-bf16", uint32 number of blocks; for each block
  uint32 layer, steps, keys, heads, kv_heads, head_dim
  float32 queries [steps, heads, head_dim], positions already applied; step t sees the first
          keys - steps + 1 + t keys; scores are q.k / sqrt(head_dim)
  bfloat16 keys [kv_heads, keys, head_dim], then values, the same
"""
import json
import random
import struct
import sys

import numpy as np
from tokenizers import Tokenizer

sys.dont_write_bytecode = True

# (task, generator seed, words, layers). Odd seeds are those of held-out questions.
WANTED = [
    ("niah", 1000001, 330, (0, 3)),
    ("freq", 1000003, 260, (1, 5)),
    ("multi", 1000005, 330, (6,)),
]
STEPS = 4


def load_weights(path):
    raw = open(path, "rb").read()
    size = struct.unpack("<Q", raw[:8])[0]
    weights = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "BF16", name
        begin, end = entry["data_offsets"]
        bits = np.frombuffer(raw[8 + size + begin:8 + size + end], "<u2").astype("<u4") << 16
        weights[name] = bits.view("<f4").reshape(entry["shape"])
    return weights


def to_bfloat16(x):
    bits = np.ascontiguousarray(x, "<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


class Model:
    def __init__(self, folder):
        self.c = json.load(open(folder + "/config.json"))
        self.w = load_weights(folder + "/model.safetensors")

    def norm(self, x, name):
        scale = np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(self.c["rms_norm_eps"]))
        return x / scale * self.w[name + ".weight"]

    def heads(self, x, name, rotate):
        dim = self.c["head_dim"]
        y = (x @ self.w[name + ".weight"].T).reshape(len(x), -1, dim).transpose(1, 0, 2)
        if not rotate:
            return y
        rates = self.c["rope_theta"] ** (-np.arange(0, dim, 2) / dim)
        angles = np.arange(len(x))[:, None] * np.concatenate([rates, rates])
        turned = np.concatenate([-y[..., dim // 2:], y[..., :dim // 2]], -1)
        return (y * np.cos(angles) + turned * np.sin(angles)).astype(np.float32)

    def run(self, ids):
        """Logits [tokens, vocab] and (q, k, v), each [heads, tokens, head_dim], of every layer."""
        x = self.w["model.embed_tokens.weight"][ids]
        states = []
        future = np.triu(np.full((len(ids), len(ids)), -np.inf, np.float32), 1)
        for layer in range(self.c["num_hidden_layers"]):
            name = f"model.layers.{layer}."
            y = self.norm(x, name + "input_layernorm")
            q = self.heads(y, name + "self_attn.q_proj", True)
            k = self.heads(y, name + "self_attn.k_proj", True)
            v = self.heads(y, name + "self_attn.v_proj", False)
            states.append((q, k, v))
            group = len(q) // len(k)
            s = q @ np.repeat(k, group, 0).transpose(0, 2, 1) / np.sqrt(self.c["head_dim"]) + future
            a = np.exp(s - s.max(-1, keepdims=True))
            a = (a / a.sum(-1, keepdims=True)).astype(np.float32)
            o = (a @ np.repeat(v, group, 0)).transpose(1, 0, 2).reshape(len(ids), -1)
            x = x + o @ self.w[name + "self_attn.o_proj.weight"].T
            y = self.norm(x, name + "post_attention_layernorm")
            gate = y @ self.w[name + "mlp.gate_proj.weight"].T
            up = y @ self.w[name + "mlp.up_proj.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ self.w[name + "mlp.down_proj.weight"].T
        return self.norm(x, "model.norm") @ self.w["model.embed_tokens.weight"].T, states


def question(suite, task, seed, words):
    r = random.Random(seed)
    context, questions = (suite.make_freq if task == "freq" else suite.make)(r, words)
    asked = next(q for q in questions if q[2] == task)
    return context + suite.q_text(asked[0]), suite.a_text(asked[1])


def main(folder, path):
    sys.path.insert(0, folder)
    import recall_suite
    model = Model(folder)
    for case in json.load(open(folder + "/golden.json"))["logits"]:
        check(model, case)
    tokenizer = Tokenizer.from_file(folder + "/tokenizer.json")
    blocks = []
    for task, seed, words, layers in WANTED:
        prompt, answer = question(recall_suite, task, seed, words)
        head = [model.c["bos_token_id"]] + tokenizer.encode(prompt, add_special_tokens=False).ids
        ids = head + tokenizer.encode(answer, add_special_tokens=False).ids[:STEPS]
        logits, states = model.run(ids)
        right = (logits[len(head) - 1:-1].argmax(-1) == ids[len(head):]).sum()
        print(f"{task}: {len(head)} prompt tokens, {right} of {STEPS} answer tokens right")
        for layer in layers:
            q, k, v = states[layer]
            blocks.append(
                struct.pack("<6I", layer, STEPS, len(ids), len(q), len(k), q.shape[-1])
                + q[:, -STEPS:].transpose(1, 0, 2).astype("<f4").tobytes()
                + to_bfloat16(k).tobytes() + to_bfloat16(v).tobytes())
            s = (q[:, -1:] @ np.repeat(k, len(q) // len(k), 0).transpose(0, 2, 1))[:, 0] / 8
            a = np.exp(s - s.max(-1, keepdims=True))
            a /= a.sum(-1, keepdims=True)
            print(f"  layer {layer}: 1/sum a^2 per head", np.round(1 / (a * a).sum(-1), 1))
    with open(path, "wb") as out:
        out.write(b"QKV-bf16" + struct.pack("<I", len(blocks)) + b"".join(blocks))


def check(model, case):
    logits = model.run(case["prompt_ids"])[0][-1]
    worst = np.abs(logits[:8] - np.array(case["last_logits_first8"], np.float32)).max()
    assert worst < 2e-3 and logits.argmax() == case["argmax"], (case["task"], worst)


if __name__ == "__main__":
    main(*sys.argv[1:])
