#!/usr/bin/env python3
"""What decode_attention takes on a GPU as a PyTorch operator, measured as allot-bench measures the
kernels: one captured step, caches in turn so that none is in the L2 cache, 10 replays that are not
counted and 40 that are, median. Beside it the time of a launch on the host.

    python tests/python/overhead.py --bench build/cuda/bin/allot-bench
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time

import torch

import allot

HEADS, KV_HEADS, HEAD_DIM, PAGE = 32, 8, 128, 16


def measure(rows, keys, method, budget, copies):
    pages = keys // PAGE
    workspace = allot.Workspace("cuda")
    cache = allot.make_cache(
        copies * rows * pages, KV_HEADS, PAGE, HEAD_DIM, dtype=torch.bfloat16, device="cuda",
        shadow_bits=4,
    )
    order = torch.randperm(copies * rows * pages).to(torch.int32).cuda()
    tables = order.view(copies, rows, pages).contiguous()
    for copy in range(copies):
        for row in range(rows):
            fresh = torch.randn(2, 1, keys, KV_HEADS, HEAD_DIM, device="cuda")
            start = torch.zeros(1, dtype=torch.int32, device="cuda")
            allot.append_kv(fresh[0], fresh[1], cache, tables[copy, row : row + 1], start, workspace)
    queries = torch.randn(rows, HEADS, HEAD_DIM, device="cuda")
    table, lengths = tables[0].clone(), torch.full((rows,), keys, dtype=torch.int32, device="cuda")
    budgets, steps = allot.words([budget] * rows, "cuda"), allot.words([0] * rows, "cuda")
    sequences = allot.words(range(rows), "cuda")
    workspace.plan_decode(
        cache, method, rows=rows, heads=HEADS, max_length=keys,
        max_budget=budget if budget < keys else 1,
    )

    def step():
        return allot.decode_attention(
            queries, cache, table, lengths, budgets, sequences, steps, method, workspace, seed=1
        )

    step()
    workspace.check()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    times = []
    for number in range(50):
        table.copy_(tables[number % copies])
        steps.fill_(number)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(100_000)  # longer than the host takes to queue what follows
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    workspace.check()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(200):
        step()
    host = (time.perf_counter() - begin) / 200
    torch.cuda.synchronize()
    return statistics.median(times[10:]) * 1e3, host * 1e6


def bench(path, rows, keys, methods, budget):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run(
            [path, "decode", "gpu", "--rows", str(rows), "--keys", str(keys), "--budgets", str(budget), "--scores",
             "gaussian", "--no-sdpa", "--json", file.name, "--methods", *methods],
            check=True, stdout=subprocess.DEVNULL,
        )
        return json.load(open(file.name))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bench", help="allot-bench, to stand beside it")
    parser.add_argument("--shapes", nargs="+", default=["1x8192", "4x32768", "16x32768"])
    options = parser.parse_args()
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__)
    methods, budget = ["dense", "s2anta-sys", "s2anta-q4"], 128
    for shape in options.shapes:
        rows, keys = map(int, shape.split("x"))
        bytes_each = rows * keys * KV_HEADS * HEAD_DIM * 4
        copies = max(2, int(1e9 / bytes_each) + 1)
        if options.bench:
            report = bench(options.bench, rows, keys, methods, budget)
            for figure in report["shapes"][0]["figures"]:
                print(f"{rows} rows of {keys} keys, {figure['method']} {figure['budget']}: "
                      f"{1e3 * figure['milliseconds']:.2f} us by {options.bench}")
        for method in methods:
            draws = keys if method == "dense" else budget
            gpu, host = measure(rows, keys, method, draws, copies)
            print(f"{rows} rows of {keys} keys, {method}: {gpu:.2f} us a replay, {host:.1f} us a launch")


if __name__ == "__main__":
    main()
