"""FlashInfer's decode attention over pages (peer.py): BatchDecodeWithPagedKVCacheWrapper on tensor
cores, planned outside of what is timed, run in a CUDA graph.

Pages are of page_size keys, in random order, as ours are. A way is how keys lie in a page: "HND",
head by head as in our caches, or "NHD", key by key.
"""

WORKSPACE_BYTES = 256 << 20


def measure(torch, want):
    import flashinfer

    rows, dim, page = want["rows"], want["dim"], want["page_size"]
    heads, kv_heads = want["heads"], want["kv_heads"]
    dtype, copies = element(torch, want), copies_for(want)
    each = -(-want["keys"] // page)  # pages of a row
    pools = [torch.randn(copies * rows * each, page * kv_heads * dim, device="cuda", dtype=dtype)
             for _ in range(2)]
    places = torch.randperm(copies * rows * each, device="cuda").to(torch.int32)
    places = places.view(copies, rows * each)
    ends = torch.arange(0, rows * each + 1, each, device="cuda", dtype=torch.int32)
    last = torch.full((rows,), want["keys"] - (each - 1) * page, device="cuda", dtype=torch.int32)
    query = torch.randn(rows, heads, dim, device="cuda", dtype=dtype)
    out = torch.empty_like(query)
    workspace = torch.empty(WORKSPACE_BYTES, device="cuda", dtype=torch.uint8)

    def make(layout):
        page_shape = (kv_heads, page, dim) if layout == "HND" else (page, kv_heads, dim)
        cache = tuple(pool.view(-1, *page_shape) for pool in pools)
        wrappers = []
        for copy in range(copies):
            wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
                workspace, layout, use_cuda_graph=True, use_tensor_cores=True,
                paged_kv_indptr_buffer=ends.clone(), paged_kv_indices_buffer=places[copy].clone(),
                paged_kv_last_page_len_buffer=last.clone())
            wrapper.plan(ends, places[copy], last, heads, kv_heads, dim, page, q_data_type=dtype,
                         kv_data_type=dtype)
            wrappers.append(wrapper)
        return steps_of(torch, lambda copy: wrappers[copy].run(query, cache, out=out), copies)

    return fastest(torch, want, {layout: lambda layout=layout: make(layout)
                                 for layout in ("HND", "NHD")})


def start(torch):
    import flashinfer

    return "FlashInfer " + flashinfer.__version__, measure


serve(start, phases=("decode",))
