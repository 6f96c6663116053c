"""What only a GPU has: graphs, streams, and the agreement of a replayed step with a launched one."""

import torch

import allot
from devices import DEVICES, HEADS, KV_HEADS, Filled
from outcomes import skip


def test_a_captured_step_replays_with_other_lengths():
    """Keys are appended and attended to in one graph; lengths, steps, budgets and queries then change
    in place. Each replay has the bits of a launched step."""
    if "cuda" not in DEVICES:
        return skip("needs a GPU, and a PyTorch for CUDA")
    for method in ("dense", "s2anta-sys", "s2anta-q4", "top-k", "vattention epsilon=0.2"):
        once, again = (Filled("cuda", [700, 33, 1500], shadow_bits=4, seed=3) for _ in range(2))
        starts = again.lengths.clone()
        lengths = starts + 1
        steps, sequences = again.words(1, 1, 1), again.words(4, 2**31 + 5, 9)
        budgets = again.words(*[-1 if method == "dense" else 16] * 3)
        keys, values = (torch.zeros(3, 1, KV_HEADS, 64, device="cuda") for _ in range(2))
        for filled in (once, again):
            filled.plan(method, statistics=False)

        def step(filled):
            allot.append_kv(keys, values, filled.cache, filled.page_table, starts, filled.workspace)
            return allot.decode_attention(
                filled.queries, filled.cache, filled.page_table, lengths, budgets, sequences, steps,
                method, filled.workspace, layer=1, seed=11, with_lse=True,
            )

        # A step before, as kernels are loaded by their first launch: position by position anew.
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            step(again)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out, lse = step(again)
        moves = again.workspace.moves
        generator = torch.Generator().manual_seed(8)
        for number in range(20):
            fresh = torch.randn(2, 3, 1, KV_HEADS, 64, generator=generator).cuda()
            keys.copy_(fresh[0])
            values.copy_(fresh[1])
            again.queries.copy_(torch.randn(3, HEADS, 64, generator=generator).cuda())
            once.queries.copy_(again.queries)
            graph.replay()
            launched, launched_lse = step(once)
            assert torch.equal(out, launched) and torch.equal(lse, launched_lse), (method, number)
            starts += 1
            lengths += 1
            steps += 1
        again.workspace.check()
        assert again.workspace.moves == moves


def test_steps_run_on_the_current_stream():
    if "cuda" not in DEVICES:
        return skip("needs a GPU, and a PyTorch for CUDA")
    filled = Filled("cuda", [1500])
    filled.plan("dense")
    stream, arguments = torch.cuda.Stream(), filled.arguments(filled.words(-1))
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        out, _ = allot.decode_attention(*arguments, "dense", filled.workspace)
        event = torch.cuda.Event()
        event.record()
    # Behind the sleep of its own stream, and nobody waited for it.
    assert not event.query()
    stream.synchronize()
    assert (out.double() - filled.dense()).abs().max() < 2e-3
