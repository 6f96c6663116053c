"""The operators against exact attention, against each other on both devices, and against torch.compile;
and what hostile arguments get. Runs on the CPU, and on a GPU where PyTorch has one."""

import torch

import allot
from devices import DEVICES, HEADS, KV_HEADS, Filled
from outcomes import refusal, skip

LENGTHS = [700, 33, 0, 1500]
SAMPLED = ["santa", "s2anta-strat", "s2anta-sys", "s2anta-prop", "s2anta-flash", "s2anta-q4", "top-k"]


def test_dense_is_exact_attention():
    for device in DEVICES:
        for head_dim in (64, 128):
            filled = Filled(device, LENGTHS, head_dim)
            filled.plan("dense")
            statistics = torch.zeros(len(LENGTHS), 7, dtype=torch.int64, device=device)
            out, lse = allot.decode_attention(
                *filled.arguments(filled.words(-1, -1, -1, -1)),
                "dense",
                filled.workspace,
                statistics=statistics,
                with_lse=True,
            )
            filled.workspace.check()
            error = (out.double() - filled.dense()).abs().max().item()
            assert error < (1e-5 if device == "cpu" else 2e-3), (device, head_dim, error)
            assert lse.shape == (len(LENGTHS), HEADS)
            assert statistics[:, 0].tolist() == [n * HEADS for n in LENGTHS]
            assert statistics[:, 6].tolist() == statistics[:, 4].add(statistics[:, 5]).tolist()


def test_draws_depend_on_the_row_alone():
    """Equal seeds give equal bits, whatever stands beside a row; other seeds, steps, sequences and
    layers give other draws."""
    for device in DEVICES:
        filled = Filled(device, LENGTHS, shadow_bits=4)
        for method in SAMPLED:
            filled.plan(method)
            budgets = filled.words(8, 8, 8, 8)

            def run(rows=slice(None), **options):
                arguments = [
                    x[rows].contiguous() if i != 1 else x
                    for i, x in enumerate(filled.arguments(budgets))
                ]
                return allot.decode_attention(*arguments, method, filled.workspace, **options)[0]

            first = run(seed=2**64 - 1, layer=3)
            assert torch.equal(first, run(seed=2**64 - 1, layer=3)), (device, method)
            assert torch.equal(first[3:], run(slice(3, 4), seed=2**64 - 1, layer=3))
            if method != "top-k":
                assert not torch.equal(first, run(seed=5, layer=3)), (device, method)
                assert not torch.equal(first, run(seed=2**64 - 1, layer=4)), (device, method)
            filled.workspace.check()


def test_the_mean_over_seeds_is_exact_attention():
    """The unbiased methods, within 5 standard errors of a mean of 400: each of the 1024 channels
    errs with a probability below 1e-6."""
    for device in DEVICES:
        filled = Filled(device, [200], shadow_bits=4)
        exact = filled.dense()
        grouped = ["s2anta-sys draws=group weights=exact"] if device == "cpu" else []
        for method in ["santa", "s2anta-sys", "s2anta-flash", *grouped]:
            filled.plan(method)
            draws = torch.stack(
                [
                    allot.decode_attention(
                        *filled.arguments(filled.words(16)), method, filled.workspace, seed=seed
                    )[0].double()
                    for seed in range(400)
                ]
            )
            error = draws.std(0) / 400**0.5
            assert ((draws.mean(0) - exact).abs() < 5 * error + 1e-3).all(), (device, method)


def test_budgets_by_head_and_silent_heads():
    for device in DEVICES:
        filled = Filled(device, [300], value_sums=True)
        filled.plan("s2anta-sys")
        budgets = filled.words(0, -1, 4, 0, 8, -1, 0, 16).view(1, HEADS)
        means = allot.mean_values(filled.cache, filled.page_table, filled.lengths)
        expected = filled.values[0].double().mean(0)
        assert (means[0].double() - expected).abs().max() < 1e-5
        out, _ = allot.decode_attention(
            *filled.arguments(budgets), "s2anta-sys", filled.workspace, zero_budget_values=means
        )
        filled.workspace.check()
        silent = torch.zeros(1, 7, dtype=torch.int64, device=device)
        allot.decode_attention(
            *filled.arguments(filled.words(0)), "s2anta-sys", filled.workspace, statistics=silent
        )
        assert silent[0, :3].tolist() + silent[0, 4:6].tolist() == [0] * 5
        assert torch.equal(out[0, 0], means[0, 0]) and torch.equal(out[0, 6], means[0, 1])
        exact = filled.dense()
        assert (out[0, 1].double() - exact[0, 1]).abs().max() < 2e-3
        assert (out[0, 4].double() - exact[0, 4]).abs().max() > 1e-3


def test_a_gpu_gives_what_the_cpu_gives():
    if "cuda" not in DEVICES:
        return
    for method in ["dense"] + SAMPLED:
        here, there = (
            Filled(device, LENGTHS, 128, dtype=torch.bfloat16, shadow_bits=4)
            for device in ("cpu", "cuda")
        )
        outs = []
        for filled in (here, there):
            filled.plan(method)
            budgets = filled.words(*[-1 if method == "dense" else 32] * 4)
            outs.append(
                allot.decode_attention(*filled.arguments(budgets), method, filled.workspace)[0].cpu()
            )
        exact = here.dense()
        apart = (outs[0] - outs[1]).norm() / exact.norm()
        sampled = (outs[0] - exact).norm() / exact.norm()
        # Draws differ where a weight that decides is within float16's rounding (cuda_decode.h).
        assert apart < (2e-3 if method == "dense" else max(2e-3, 0.5 * sampled)), (method, apart)
        codes = [f.cache.codes.cpu() for f in (here, there)]
        assert torch.equal(*codes)


def prompt(device, count=150, **parts):
    filled = Filled(device, [count], **parts)
    generator = torch.Generator().manual_seed(2)
    queries = torch.randn(count, HEADS, filled.head_dim, generator=generator).to(device)
    return filled, queries, filled.page_table[0].contiguous()


def test_a_page_that_is_copied_is_the_page():
    """t[q] = t[p] in each of a cache's tensors copies a page, bounds of 16 bits included."""
    for dtype in (torch.float32, torch.bfloat16):
        cache = allot.make_cache(8, 2, 16, 64, dtype=dtype, bounds=True)
        assert cache.bounds.dtype == dtype
        workspace = allot.Workspace("cpu")
        table = torch.tensor([[1, 2, 3]], dtype=torch.int32)
        keys = torch.randn(1, 48, 2, 64, generator=torch.Generator().manual_seed(3))
        allot.append_kv(keys, keys, cache, table, torch.zeros(1, dtype=torch.int32), workspace)
        for tensor in cache:
            if tensor.numel():
                tensor[5] = tensor[1]
                tensor[6] = tensor[2]
        query = torch.randn(1, 4, 64, generator=torch.Generator().manual_seed(4))

        def out(pages):
            one = torch.tensor([48], dtype=torch.int32)
            zero = torch.zeros(1, dtype=torch.int32)
            return allot.decode_attention(
                query, cache, torch.tensor([pages], dtype=torch.int32), one,
                torch.tensor([16], dtype=torch.int32), zero, zero, "quest", workspace)[0]

        assert torch.equal(out([1, 2, 3]), out([5, 6, 3])), dtype


def test_prompts_by_blocks():
    for device in DEVICES:
        filled, queries, table = prompt(device)
        k, v = (
            x.repeat_interleave(HEADS // KV_HEADS, 1).transpose(0, 1)
            for x in (filled.keys[0], filled.values[0])
        )
        scores = queries.transpose(0, 1) @ k.transpose(1, 2) / 8
        scores += torch.full((150, 150), -float("inf"), device=device).triu(1)
        exact = torch.softmax(scores, -1) @ v
        # Thresholds and shares that keep everything.
        for method in (
            "dense",
            "skip-softmax threshold=1e-12",
            "sale tau=1e-06",
            "sample-attention alphaColumn=1 alphaSlash=1",
            "sampled-blocks",
            *(["sampled-rows"] if device == "cpu" else []),
        ):
            filled.workspace.plan_prefill(filled.cache, method, heads=HEADS, count=150, keys=150)
            listed = method.split()[0] in ("sale", "sample-attention")
            outs = []
            for first, end in ((0, 64), (64, 150)):
                part, blocks = queries[first:end].contiguous(), None
                if listed:
                    blocks = allot.prefill_select(
                        part, filled.cache, table, first, method, filled.workspace
                    )
                outs.append(
                    allot.prefill_attend(
                        part, filled.cache, table, first, method, filled.workspace, blocks=blocks
                    )[0]
                )
            filled.workspace.check()
            error = (torch.cat(outs).transpose(0, 1) - exact).abs().max().item()
            assert error < (1e-5 if device == "cpu" else 2e-2), (device, method, error)


def test_prompts_query_by_query():
    filled, queries, table = prompt("cpu", 40)
    out, _ = allot.prefill_attend(
        queries, filled.cache, table, 0, "s2anta-sys", filled.workspace,
        budgets=filled.words(*[1000] * HEADS),
    )
    dense, _ = allot.prefill_attend(queries, filled.cache, table, 0, "dense", filled.workspace)
    assert (out - dense).abs().max() < 1e-5


def calls(device):
    """Each operator with arguments that it takes."""
    ops = torch.ops.allot
    filled = Filled(device, [70, 33], shadow_bits=4, value_sums=True)
    filled.plan("s2anta-sys")
    statistics = torch.zeros(2, 7, dtype=torch.int64, device=device)
    keys = torch.randn(2, 3, KV_HEADS, 64, device=device)
    number = filled.workspace.number
    yield ops.append_kv.default, (
        keys, keys.clone(), list(filled.cache), filled.page_table, filled.lengths - 3, number
    ), {}
    yield ops.mean_values.default, (list(filled.cache), filled.page_table, filled.lengths), {}
    arguments = list(filled.arguments(filled.words(4, 4)))
    arguments[1] = list(filled.cache)
    yield ops.decode_attention.default, (*arguments, "s2anta-sys", number), {
        "statistics": statistics, "layer": 2, "seed": 9
    }
    one, queries, table = prompt(device, 70)
    one.workspace.plan_prefill(one.cache, "sale", heads=HEADS, count=70, keys=70)
    place = (queries, list(one.cache), table, 0, "sale", one.workspace.number)
    yield ops.prefill_select.default, place, {}
    yield ops.prefill_attend.default, place, {"blocks": ops.prefill_select(*place)}
    yield filled, one, None  # kept alive until here


def test_opcheck():
    """Schemas say what is written, and sizes without data are those with it (symbolic ones, too)."""
    if not hasattr(torch.library, "opcheck"):
        return skip("torch.library.opcheck needs PyTorch 2.4")
    for device in DEVICES:
        for operator, arguments, options in calls(device):
            if options is not None:
                torch.library.opcheck(operator, arguments, options)


def test_compiled_code_gives_the_same():
    if not hasattr(torch.library, "opcheck"):
        return skip("operators in torch.compile need PyTorch 2.4")
    filled = Filled("cpu", [70, 33])
    number = filled.workspace.number

    def step(queries, cache, page_table, lengths, budgets, sequences, steps, statistics):
        out, lse = torch.ops.allot.decode_attention(
            queries * 2, cache, page_table, lengths, budgets, sequences, steps, "s2anta-sys", number,
            statistics=statistics, with_lse=True,
        )
        return out + lse.unsqueeze(-1)

    arguments = list(filled.arguments(filled.words(8, 8)))
    arguments[1] = list(filled.cache)
    counts = [torch.zeros(2, 7, dtype=torch.int64) for _ in range(2)]
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(*arguments, counts[0]), step(*arguments, counts[1]))
    assert torch.equal(*counts) and counts[0][0, 0] == 8 * HEADS


def test_hostile_arguments_get_a_sentence():
    for device in DEVICES:
        filled = Filled(device, [70, 33], shadow_bits=4)
        filled.plan("s2anta-sys")
        good = list(filled.arguments(filled.words(4, 4)))
        names = ["queries", "cache", "page_table", "lengths", "budgets", "sequences", "steps"]

        def decode(method="s2anta-sys", workspace=filled.workspace, options={}, **changed):
            arguments = [changed.get(name, value) for name, value in zip(names, good)]
            return refusal(
                lambda: allot.decode_attention(*arguments, method, workspace, **options),
                f"decode_attention with other {[*changed, *options] or [method, workspace]} on {device}",
            )

        queries = filled.queries
        assert "queries is float64, but float32" in decode(queries=queries.double())
        assert "has the sizes [2, 8, 32]" in decode(queries=queries[..., :32].contiguous())
        strided = torch.zeros(2, 8, 128, device=device)[..., ::2]
        assert "not contiguous" in decode(queries=strided)
        assert "no multiple of the cache's 2 KV heads" in decode(queries=queries[:, :7].contiguous())
        assert "lengths is int64" in decode(lengths=filled.lengths.long())
        assert "lengths has the sizes [1]" in decode(lengths=filled.lengths[:1])
        assert "budgets is float32" in decode(budgets=torch.ones(2, device=device))
        assert "page_table has the sizes [2]" in decode(page_table=filled.lengths)
        assert "make_cache" in decode(cache=list(filled.cache)[:3])
        swapped = list(filled.cache)
        swapped[1] = swapped[1].double()
        assert "the cache's values" in decode(cache=swapped)
        cut = list(filled.cache)
        cut[2] = cut[2][..., :100].contiguous()
        assert "shadow" in decode(cache=cut)
        assert "no workspace 123456" in decode(workspace=123456)
        assert "method \"nonsense\": no such method" in decode(method="nonsense")
        assert "layer = " in decode(options={"layer": 70000})
        assert "layer = -1" in decode(options={"layer": -1})
        assert "window = -1" in decode(options={"window": -1})
        assert "statistics has the sizes" in decode(
            options={"statistics": torch.zeros(2, 6, dtype=torch.int64, device=device)}
        )
        assert "zero_budget_values" in decode(options={"zero_budget_values": torch.zeros(3, device=device)})
        assert "bias is missing" not in decode(options={"bias": torch.zeros(1, device=device)})
        assert "seed" in decode(options={"seed": 2**64})
        if device == "cpu":
            assert "page_table[0]" in decode(page_table=filled.page_table + 1000)
            assert "lengths[0] = -5" in decode(lengths=filled.lengths * 0 - 5)
            assert "beyond the page table" in decode(lengths=filled.lengths + 2**30)
            assert "not finite" in decode(queries=queries * float("nan"))
            assert "drawn has 1 words" in decode(
                options={"drawn": torch.zeros(HEADS, 1, dtype=torch.int64)}
            )
        else:
            assert "is on cpu" in decode(queries=queries.cpu())
            assert "is on cpu" in decode(workspace=allot.Workspace("cpu"))
            assert "planned" in decode(method="top-k")
            # What the host cannot see, the device tells afterwards.
            allot.decode_attention(
                *good[:2], filled.page_table + 10**6, *good[3:], "s2anta-sys", filled.workspace
            )
            assert "outside the pool" in refusal(filled.workspace.check)
        keys = torch.zeros(2, 3, KV_HEADS, 64, device=device)

        def append(keys=keys, values=keys, starts=filled.lengths):
            return refusal(
                lambda: allot.append_kv(
                    keys, values, filled.cache, filled.page_table, starts, filled.workspace
                )
            )

        assert "keys is float16" in append(keys=keys.half())
        assert "values has the sizes" in append(values=keys[:, :2].contiguous())
        assert "starts is int64" in append(starts=filled.lengths.long())
        if device == "cpu":
            assert "starts" in append(starts=filled.lengths * 0 - 1)
            assert "not finite" in append(keys=keys / 0)
        one, q, table = prompt(device, 70)
        one.workspace.plan_prefill(one.cache, "sale", heads=HEADS, count=70, keys=70)
        space = one.workspace

        def attend(method="sale", first=0, blocks=None):
            return refusal(
                lambda: allot.prefill_attend(q, one.cache, table, first, method, space, blocks=blocks)
            )

        assert "pass blocks" in attend()
        assert "blocks has the sizes [1]" in attend(blocks=one.lengths)
        assert "takes no blocks" in attend("dense", blocks=one.lengths)
        assert "beyond the page table" in attend("dense", first=10**6)
        assert "first = -1" in attend("dense", first=-1)
        assert "chooses no blocks" in refusal(
            lambda: allot.prefill_select(q, one.cache, table, 0, "dense", space)
        )
    assert "head_dim = 20" in refusal(lambda: allot.make_cache(1, 1, 16, 20))
    assert "pages = 0" in refusal(lambda: allot.make_cache(0, 1, 16, 64))
    assert "shadow_bits = 5" in refusal(lambda: allot.make_cache(1, 1, 16, 64, shadow_bits=5))
    assert "page_size = 8" in refusal(lambda: allot.make_cache(1, 1, 8, 64, shadow_bits=4))
    assert "threads = 0" in refusal(lambda: allot.Workspace("cpu", threads=0))
