"""FlashInfer's attention (peer.py), planned outside of what is timed, run in a CUDA graph.

Decode: BatchDecodeWithPagedKVCacheWrapper on tensor cores. Pages are of page_size keys, in random
order, as ours are. A way is how keys lie in a page: "HND", head by head as in our caches, or "NHD",
key by key.
A prompt: single_prefill_with_kv_cache and the ragged wrapper over contiguous keys, and the paged
wrapper over such pages, by FlashAttention-3 on Hopper and by what FlashInfer chooses elsewhere.
Outputs have the type of queries.
"""

WORKSPACE_BYTES = 256 << 20


def measure_step(torch, want):
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


def measure_prompt(torch, want):
    import flashinfer

    rows, keys, dim, page = want["rows"], want["keys"], want["dim"], want["page_size"]
    heads, kv_heads = want["heads"], want["kv_heads"]
    dtype, copies = element(torch, want), copies_for(want)
    backend = "fa3" if torch.cuda.get_device_capability()[0] == 9 else "auto"
    each = -(-keys // page)  # pages of a row

    def indices(*numbers):
        return torch.tensor(numbers, device="cuda", dtype=torch.int32)

    starts = indices(*range(0, rows * keys + 1, keys))
    page_starts = indices(*range(0, rows * each + 1, each))
    last = indices(*[keys - (each - 1) * page] * rows)
    query = torch.randn(rows * keys, heads, dim, device="cuda", dtype=dtype)
    out = torch.empty_like(query)
    workspace = torch.empty(WORKSPACE_BYTES, device="cuda", dtype=torch.uint8)
    # Contiguous ways take a row's keys from the front of its pages' memory.
    pools = [torch.randn(copies * rows * each * page, kv_heads, dim, device="cuda", dtype=dtype)
             for _ in range(2)]
    contiguous = [pool.view(copies, -1, kv_heads, dim)[:, :rows * keys] for pool in pools]
    places = torch.randperm(copies * rows * each, device="cuda").to(torch.int32)
    places = places.view(copies, rows * each)

    def single():
        return steps_of(torch, lambda copy: flashinfer.single_prefill_with_kv_cache(
            query, contiguous[0][copy], contiguous[1][copy], causal=True, backend=backend), copies)

    def ragged():
        wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD", backend=backend)
        wrapper.plan(starts, starts, heads, kv_heads, dim, causal=True, q_data_type=dtype,
                     kv_data_type=dtype)
        return steps_of(torch, lambda copy: wrapper.run(
            query, contiguous[0][copy], contiguous[1][copy], out=out), copies)

    def paged(layout):
        shape = (kv_heads, page, dim) if layout == "HND" else (page, kv_heads, dim)
        cache = tuple(pool.view(-1, *shape) for pool in pools)
        wrappers = []
        for copy in range(copies):
            wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
                workspace, layout, backend=backend)
            wrapper.plan(starts, page_starts, places[copy], last, heads, kv_heads, dim, page,
                         causal=True, q_data_type=dtype, kv_data_type=dtype)
            wrappers.append(wrapper)
        return steps_of(torch, lambda copy: wrappers[copy].run(query, cache, out=out), copies)

    ways = {"ragged": ragged, "paged HND": lambda: paged("HND"), "paged NHD": lambda: paged("NHD")}
    if rows == 1:
        ways["single"] = single
    return fastest(torch, want, {name + " " + backend: make for name, make in ways.items()})


def measure(torch, want):
    return (measure_prompt if want["phase"] == "prefill" else measure_step)(torch, want)


def start(torch):
    import flashinfer

    return "FlashInfer " + flashinfer.__version__, measure


serve(start)
