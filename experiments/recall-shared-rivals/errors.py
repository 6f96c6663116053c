#!/usr/bin/env python3
"""Errors of ways to read rows for the query heads of a KV head, on the recorded states of recall-7m.

    errors.py [STATES]      default: tests/golden/recall_states.bin; a minute of one core; needs numpy

Each line has the error of a head's output, |o - dense| / |dense|: the root of its mean square over heads,
steps, layers and 200 draws, for each number of rows that a KV head reads in the mean.
The scale of each way is set state by state so that the numbers of distinct rows agree.
"""
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROWS = (4, 8, 16, 32)
DRAWS = 200


def blocks(path):
    """Yields queries [steps, heads, d], keys and values [kv heads, keys, d] of each layer and question."""
    data = path.read_bytes()
    if data[:8] != b"QKV-bf16":
        sys.exit(f"errors.py: {path} is no file of recorded states")
    at = 12
    for _ in range(int.from_bytes(data[8:12], "little")):
        _, steps, keys, heads, kv_heads, width = np.frombuffer(data, "<u4", 6, at)
        at += 24
        queries = np.frombuffer(data, "<f4", steps * heads * width, at).reshape(steps, heads, width)
        at += queries.nbytes
        pools = []
        for _ in range(2):
            bits = np.frombuffer(data, "<u2", keys * kv_heads * width, at)
            at += bits.nbytes
            pools.append((bits.astype("<u4") << 16).view("<f4").reshape(kv_heads, keys, width).astype(float))
        yield queries.astype(float), *pools


def states(path):
    """Yields attentions [heads of a group, keys] and values [keys, d] of each step and KV head."""
    for queries, keys, values in blocks(path):
        steps, heads, width = queries.shape
        group = heads // len(keys)
        for step in range(steps):
            n = keys.shape[1] - steps + 1 + step
            for kv in range(len(keys)):
                scores = queries[step, kv * group:(kv + 1) * group] @ keys[kv, :n].T / np.sqrt(width)
                weights = np.exp(scores - scores.max(axis=1, keepdims=True))
                yield weights / weights.sum(axis=1, keepdims=True), values[kv, :n]


def systematic(p, draws, random):
    """Returns how often each of `draws` systematic draws takes a row, for each of DRAWS offsets."""
    ends = np.cumsum(p) / p.sum() * draws
    places = np.floor(ends[None, :] + random.random((DRAWS, 1)))
    return np.diff(places, axis=1, prepend=np.floor(places[:, :1] * 0 + 0))


def drawn(attention, of_head, draws, random):
    """Systematic draws of groups of heads: of_head[h] is the group of head h. Weights [DRAWS, heads, keys]."""
    weights = np.zeros((DRAWS, *attention.shape))
    for group in set(of_head):
        heads = [h for h, of in enumerate(of_head) if of == group]
        p = attention[heads].mean(axis=0)
        total = max(1, round(draws * len(heads)))
        counts = systematic(p, total, random)
        for h in heads:
            weights[:, h] = counts * (attention[h] / np.maximum(p, 1e-300)) / total
    return weights


def poisson(attention, scale, random, union):
    """Coordinated Poisson draws: a row has one random number, which all heads compare with their probability.
    union: a head uses each row that is read for any head."""
    q = np.minimum(1, scale * attention)
    if union:
        q = np.broadcast_to(q.max(axis=0), q.shape)
    taken = random.random((DRAWS, 1, attention.shape[1])) < q[None]
    return taken * (attention / np.maximum(q, 1e-300))[None]


def largest(attention, rows):
    kept = np.zeros(attention.shape[1])
    kept[np.argsort(-attention.mean(axis=0), kind="stable")[:max(1, round(rows))]] = 1
    return (attention * kept)[None]


def distinct(weights):
    return (weights.any(axis=1)).sum(axis=1).mean()


def at_rows(make, target):
    """Returns make(scale) of the scale whose number of distinct rows is nearest to `target`."""
    low, high, best = 0.02, 4096.0, None
    for _ in range(14):
        middle = np.sqrt(low * high)
        weights = make(middle)
        rows = distinct(weights)
        if best is None or abs(rows - target) < abs(best[0] - target):
            best = (rows, weights)
        low, high = (middle, high) if rows < target else (low, middle)
    return best[1]


def main():
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests/golden/recall_states.bin"
    random = np.random.default_rng(1)
    ways = {
        "own draws": lambda a: lambda s: drawn(a, range(len(a)), s, random),
        "draws of two heads": lambda a: lambda s: drawn(a, [h // 2 for h in range(len(a))], s, random),
        "draws of all heads": lambda a: lambda s: drawn(a, [0] * len(a), s, random),
        "coordinated Poisson": lambda a: lambda s: poisson(a, s, random, False),
        "coordinated Poisson, rows of all": lambda a: lambda s: poisson(a, s, random, True),
        "heaviest rows of all": lambda a: lambda s: largest(a, s),
    }
    errors = {(way, self, rows): [] for way in ways for self in (False, True) for rows in ROWS}
    read = {(way, rows): [] for way in ways for rows in ROWS}
    for attention, values in states(path):
        dense = attention @ values
        for way, make in ways.items():
            for rows in ROWS:
                weights = at_rows(make(attention), rows)
                read[way, rows].append(distinct(weights))
                for self in (False, True):
                    sums = np.maximum(weights.sum(axis=2, keepdims=True), 1e-300) if self else 1
                    out = (weights / sums) @ values
                    error = ((out - dense) ** 2).sum(axis=2) / (dense ** 2).sum(axis=1)
                    errors[way, self, rows].append(error.mean())
    print("| rows of a KV head | " + " | ".join(map(str, ROWS)) + " |\n|" + " --- |" * (len(ROWS) + 1))
    for way in ways:
        for self in (False, True):
            # Own draws have weights of 1 / S, whose sum is 1; top-k renormalises.
            alone = way in ("own draws", "heaviest rows of all")
            if alone and not self:
                continue
            cells = [f"{np.sqrt(np.mean(errors[way, self, rows])):.2f}" for rows in ROWS]
            name = way + ("" if alone else ", self-normalised" if self else ", exact weights")
            print(f"| {name} | " + " | ".join(cells) + " |")
    print(f"\n{len(next(iter(read.values())))} states; rows read, in the mean:")
    for way in ways:
        print(f"  {way}: " + ", ".join(f"{np.mean(read[way, rows]):.1f}" for rows in ROWS))


if __name__ == "__main__":
    main()
