"""PyTorch's scaled_dot_product_attention (peer.py).

A way is a backend and how the heads of a group come to it: "gqa", queries [rows, heads, 1, dim] with
enable_gqa; "grouped", the same product with a group's heads as the queries of one KV head,
[rows, kv_heads, group, dim]. Keys and values are contiguous, [rows, kv_heads, keys, dim]. Of a
prompt a row's queries are as many as its keys, each of which looks at those up to its own.
"""


def backends(torch):
    """Name and context maker of each."""
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


def measure(torch, want):
    rows, keys, dim = want["rows"], want["keys"], want["dim"]
    heads, kv_heads = want["heads"], want["kv_heads"]
    dtype, causal = element(torch, want), want["phase"] == "prefill"
    copies = copies_for(want)
    all_keys = [torch.randn(rows, kv_heads, keys, dim, device="cuda", dtype=dtype)
                for _ in range(copies)]
    all_values = [torch.randn_like(k) for k in all_keys]
    query = torch.randn(rows, heads, keys if causal else 1, dim, device="cuda", dtype=dtype)
    queries = {"gqa": query}
    if not causal:
        queries["grouped"] = query.view(rows, kv_heads, heads // kv_heads, dim)

    def call(kind, copy):
        options = {"enable_gqa": True} if kind == "gqa" else {}
        return torch.nn.functional.scaled_dot_product_attention(
            queries[kind], all_keys[copy], all_values[copy], is_causal=causal, **options)

    def maker(kind, context):
        return lambda: steps_of(torch, lambda copy: call(kind, copy), copies, context)

    return fastest(torch, want, {name + " " + kind: maker(kind, context)
                                 for name, context in backends(torch).items() for kind in queries})


serve(lambda torch: ("PyTorch " + torch.__version__, measure))
