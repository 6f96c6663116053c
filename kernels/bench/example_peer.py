"""The least that a peer is (README.md): what a copy of a step's keys and values in the host's memory takes.

    allot-bench decode gpu --peers kernels/bench/example_peer.py --try-peers --rows 1 4 --keys 4096
"""
import json
import sys
import time


def answer(want):
    if want["phase"] != "decode":
        return {"error": "it measures decode alone"}
    # Keys and values, 16 bits each.
    source = bytearray(2 * want["rows"] * want["keys"] * want["kv_heads"] * want["dim"] * 2)
    milliseconds = []
    for _ in range(want["warm_up"] + want["samples"]):
        begin = time.perf_counter()
        bytes(source)
        milliseconds.append(1e3 * (time.perf_counter() - begin))
    milliseconds = sorted(milliseconds[want["warm_up"]:])
    return {"ms": milliseconds[len(milliseconds) // 2], "way": "bytes()"}


print(json.dumps({"version": "a copy in the host's memory"}), flush=True)
for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
