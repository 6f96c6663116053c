"""What peers in Python have in common: README.md says what they are asked and what they answer.

Started as `python3 -c THIS + the peer's own script`, which ends with serve(start).

Each of a peer's ways is timed shortly, the fastest one at full length: median of CUDA events around
a replayed graph (around the call where it cannot be captured). Copies of keys and values take turns,
so that at least flush_bytes are read between two uses of a key.
"""
import json
import sys
import warnings
from contextlib import nullcontext


def say(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def first_line(error):
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def element(torch, want):
    return torch.float16 if want["element"] == "fp16" else torch.bfloat16


def copies_for(want):
    bytes_read = 2 * want["rows"] * want["kv_heads"] * want["keys"] * want["dim"] * 2
    flush = want["flush_bytes"]
    return 1 if bytes_read >= flush else 1 + -(-flush // bytes_read)


def steps_of(torch, call, copies, context=nullcontext):
    """One callable a copy, and whether they are graphs. Raises what the call raises."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), context():
        for copy in range(copies):
            call(copy)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graphs = []
    try:
        for copy in range(copies):
            graph = torch.cuda.CUDAGraph()
            # Not torch.cuda.graph(), which collects garbage each time.
            with torch.cuda.stream(side), context():
                graph.capture_begin()
                try:
                    call(copy)
                finally:
                    graph.capture_end()
            graphs.append(graph)
        return [graph.replay for graph in graphs], True
    except RuntimeError:
        torch.cuda.synchronize()

    def eager(copy):
        with context():
            call(copy)

    return [lambda copy=copy: eager(copy) for copy in range(copies)], False


def times(torch, steps, warm_up, samples):
    """Ascending milliseconds. Steps wait behind a pause, so that the host is ahead of them."""
    begin = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    found = []
    for i in range(warm_up + samples):
        torch.cuda._sleep(200000)  # clock cycles: 0.1 ms
        begin.record()
        steps[i % len(steps)]()
        end.record()
        end.synchronize()
        if i >= warm_up:
            found.append(begin.elapsed_time(end))
    return sorted(found)


def fastest(torch, want, ways):
    """The answer, from {way: what makes its steps}."""
    told, best = {}, None
    for way, make in ways.items():
        try:
            steps, graph = make()
            told[way] = times(torch, steps, 3, 7)[3]
        except (RuntimeError, TypeError, ValueError) as error:
            told[way] = first_line(error)
            continue
        if best is None or told[way] < told[best[0]]:
            best = (way, steps, graph)
        del steps
    if best is None:
        return {"error": "nothing takes this shape: " + json.dumps(told)}
    way, steps, graph = best
    found = times(torch, steps, want["warm_up"], want["samples"])
    last = len(found) - 1
    return {"ms": found[last // 2], "p10": found[last // 10], "p90": found[last * 9 // 10],
            "way": way, "graph": graph, "copies": len(steps), "ways": told}


def serve(start, phases=("decode", "prefill")):
    """start(torch) gives the version and measure(torch, want); phases: what it measures."""
    warnings.simplefilter("ignore")
    try:
        import torch
        version, measure = start(torch)
    except ModuleNotFoundError as error:
        package = {"flashinfer": "flashinfer-python"}.get(error.name, error.name)
        return say({"unavailable": first_line(error) + ": pip install " + package +
                    ", or --python with one that has it"})
    except Exception as error:  # whatever keeps it from being there
        return say({"unavailable": first_line(error)})
    if not torch.cuda.is_available():
        return say({"unavailable": "torch " + torch.__version__ + " sees no CUDA device"})
    say({"version": version, "device": torch.cuda.get_device_name(0)})
    for line in sys.stdin:
        want = json.loads(line)
        try:
            with torch.no_grad():
                answer = (measure(torch, want) if want["phase"] in phases
                          else {"error": "it measures no " + want["phase"]})
        except Exception as error:  # too little memory among others
            answer = {"error": first_line(error)}
        torch.cuda.empty_cache()
        say(answer)
