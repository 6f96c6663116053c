"""PyTorch's scaled_dot_product_attention on decode shapes: allot-cuda-bench's peer.

Started by allot-cuda-bench as `python3 -c THIS`, with which it shares a GPU and a protocol. Says
one JSON line when it is up: {"torch": ..., "device": ...} or {"unavailable": why}. Then, for each
line on stdin
  {"rows", "keys", "heads", "kv_heads", "dim", "element", "flush_bytes", "warm_up", "samples"}
one line on stdout: {"ms", "p10", "p90", "way", "graph", "copies", "ways": {way: ms or why not}},
or {"error": why}. Ends with its stdin. With "causal": true a row's queries are as many as its keys,
each of which looks at those up to its own: a prompt.

A way is a backend and how the heads of a group come to it: "gqa", queries [rows, heads, 1, dim] with
enable_gqa; "grouped", the same product with a group's heads as the queries of one KV head,
[rows, kv_heads, group, dim]. Keys and values are contiguous, [rows, kv_heads, keys, dim]. Each way
is timed shortly, the fastest one at full length: median of CUDA events around a replayed graph
(around the call where it cannot be captured). Copies of keys and values take turns, so that at
least flush_bytes are read between two uses of a key.
"""
import json
import sys
import warnings


def say(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def first_line(error):
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def backends(torch):
    """Name and context maker of each."""
    from contextlib import nullcontext

    found = {"default": nullcontext}
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError:
        return found
    for name, member in (("flash", "FLASH_ATTENTION"), ("efficient", "EFFICIENT_ATTENTION"),
                         ("cudnn", "CUDNN_ATTENTION")):
        if hasattr(SDPBackend, member):
            backend = getattr(SDPBackend, member)
            found[name] = lambda backend=backend: sdpa_kernel(backend)
    return found


class Shape:
    def __init__(self, torch, want):
        self.torch = torch
        dtype = torch.float16 if want["element"] == "fp16" else torch.bfloat16
        rows, keys, dim = want["rows"], want["keys"], want["dim"]
        heads, kv_heads = want["heads"], want["kv_heads"]
        bytes_read = 2 * rows * kv_heads * keys * dim * 2
        flush = want["flush_bytes"]
        self.copies = 1 if bytes_read >= flush else 1 + -(-flush // bytes_read)
        self.keys = [torch.randn(rows, kv_heads, keys, dim, device="cuda", dtype=dtype)
                     for _ in range(self.copies)]
        self.values = [torch.randn_like(k) for k in self.keys]
        self.causal = want.get("causal", False)
        count = keys if self.causal else 1
        query = torch.randn(rows, heads, count, dim, device="cuda", dtype=dtype)
        self.queries = {"gqa": query}
        if not self.causal:
            self.queries["grouped"] = query.view(rows, kv_heads, heads // kv_heads, dim)

    def call(self, kind, copy):
        options = {"enable_gqa": True} if kind == "gqa" else {}
        options["is_causal"] = self.causal
        return self.torch.nn.functional.scaled_dot_product_attention(
            self.queries[kind], self.keys[copy], self.values[copy], **options)

    def steps(self, kind, context):
        """One callable a copy, and whether they are graphs. Raises what the backend raises."""
        torch = self.torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), context():
            for copy in range(self.copies):
                self.call(kind, copy)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graphs = []
        try:
            for copy in range(self.copies):
                graph = torch.cuda.CUDAGraph()
                # Not torch.cuda.graph(), which collects garbage each time.
                with torch.cuda.stream(side), context():
                    graph.capture_begin()
                    try:
                        self.call(kind, copy)
                    finally:
                        graph.capture_end()
                graphs.append(graph)
            return [graph.replay for graph in graphs], True
        except RuntimeError:
            torch.cuda.synchronize()

        def eager(copy):
            with context():
                self.call(kind, copy)

        return [lambda copy=copy: eager(copy) for copy in range(self.copies)], False

    def times(self, steps, warm_up, samples):
        """Ascending milliseconds. Steps wait behind a pause, so that the host is ahead of them."""
        torch = self.torch
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        found = []
        for i in range(warm_up + samples):
            torch.cuda._sleep(200000)  # clock cycles: 0.1 ms
            begin.record()
            steps[i % self.copies]()
            end.record()
            end.synchronize()
            if i >= warm_up:
                found.append(begin.elapsed_time(end))
        return sorted(found)


def measure(torch, want):
    shape = Shape(torch, want)
    ways, best = {}, None
    for name, context in backends(torch).items():
        for kind in shape.queries:
            way = name + " " + kind
            try:
                steps, graph = shape.steps(kind, context)
                ways[way] = shape.times(steps, 3, 7)[3]
            except (RuntimeError, TypeError) as error:
                ways[way] = first_line(error)
                continue
            if best is None or ways[way] < ways[best[0]]:
                best = (way, steps, graph)
            del steps
    if best is None:
        return {"error": "no backend takes this shape: " + json.dumps(ways)}
    way, steps, graph = best
    times = shape.times(steps, want["warm_up"], want["samples"])
    last = len(times) - 1
    return {"ms": times[last // 2], "p10": times[last // 10], "p90": times[last * 9 // 10],
            "way": way, "graph": graph, "copies": shape.copies, "ways": ways}


def main():
    warnings.simplefilter("ignore")
    try:
        import torch
    except ImportError as error:
        return say({"unavailable": first_line(error)})
    if not torch.cuda.is_available():
        return say({"unavailable": "torch " + torch.__version__ + " sees no CUDA device"})
    say({"torch": torch.__version__, "device": torch.cuda.get_device_name(0)})
    for line in sys.stdin:
        try:
            with torch.no_grad():
                answer = measure(torch, json.loads(line))
        except RuntimeError as error:  # too little memory among others
            answer = {"error": first_line(error)}
        torch.cuda.empty_cache()
        say(answer)


main()
