"""What is at the edge of the operators: sizes beyond memory, tensors without data, gradients, threads,
processes that fork, shapes that change under torch.compile."""

import os
import resource
import signal
import threading
import traceback

import torch

import allot
from devices import HEADS, KV_HEADS, Filled
from outcomes import refusal, skip
from test_operators import prompt


def step(filled, method="s2anta-sys", budget=4, workspace=None, **options):
    rows = len(filled.lengths)
    return allot.decode_attention(
        *filled.arguments(filled.words(*[budget] * rows)), method, workspace or filled.workspace,
        **options,
    )[0]


def in_a_child(check, more_bytes=None):
    """Runs it in a process that is forked, with so much more memory than is taken, and ends it."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            if more_bytes is not None:
                with open("/proc/self/statm", encoding="ascii") as file:
                    taken = int(file.read().split()[0]) * resource.getpagesize()
                most = resource.getrlimit(resource.RLIMIT_AS)[1]
                resource.setrlimit(resource.RLIMIT_AS, (taken + more_bytes, most))
            check()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_sizes_beyond_memory_get_a_sentence():
    filled = Filled("cpu", [70])
    exact = step(filled)

    def check():
        def plan(**sizes):
            sizes = {"rows": 1, "heads": HEADS, "max_length": 100, **sizes}
            return refusal(lambda: filled.workspace.plan_decode(filled.cache, "dense", **sizes))

        assert "no memory" in plan(max_length=2**31 - 1)
        assert "no memory" in plan(max_length=2**30)
        assert "no memory" in plan(heads=2**30)
        assert "no memory" in plan(heads=2**31 - 2, max_length=2**31 - 1)
        assert "no memory" in refusal(lambda: allot.make_cache(2**31 - 1, 2**31 - 1, 16, 64))
        assert "no memory" in refusal(lambda: allot.make_cache(2**31 - 1, 8, 16, 1024))
        assert "no memory" in refusal(lambda: allot.make_cache(2**20, 8, 16, 64))
        # And the workspace is as good as before.
        assert torch.equal(step(filled), exact)

    # A kernel may lend more than there is, and end whoever takes it.
    in_a_child(check, more_bytes=2**30)


def test_tensors_without_data_are_not_mixed_with_others():
    filled = Filled("cpu", [70], shadow_bits=4, value_sums=True)
    meta = [tensor.to("meta") for tensor in filled.cache]
    arguments = list(filled.arguments(filled.words(4)))
    arguments[1] = meta
    sentence = refusal(
        lambda: allot.decode_attention(*arguments, "s2anta-sys", filled.workspace)
    )
    assert "queries is on cpu, but the cache is on meta" in sentence
    if torch.__version__.startswith("1."):
        return  # PyTorch itself refuses the others
    keys = torch.zeros(1, 1, KV_HEADS, 64)
    assert "keys is on cpu" in refusal(
        lambda: allot.append_kv(
            keys, keys, meta, filled.page_table, filled.lengths, filled.workspace
        )
    )
    assert "lengths is on cpu" in refusal(
        lambda: allot.mean_values(meta, filled.page_table, filled.lengths)
    )
    one, queries, table = prompt("cpu", 70)
    for call in (allot.prefill_select, allot.prefill_attend):
        assert "queries is on cpu" in refusal(
            lambda: call(queries, [t.to("meta") for t in one.cache], table, 0, "sale", one.workspace)
        )


def test_there_are_no_gradients_and_it_is_said():
    filled = Filled("cpu", [70])
    exact = step(filled)
    filled.queries.requires_grad_()
    out = step(filled)
    assert torch.equal(out, exact)
    assert "derivative for allot::decode_attention is not implemented" in refusal(
        lambda: out.sum().backward()
    )
    with torch.no_grad():
        assert not step(filled).requires_grad
    one, queries, table = prompt("cpu", 70)
    attended, _ = allot.prefill_attend(
        queries.requires_grad_(), one.cache, table, 0, "dense", one.workspace
    )
    assert "allot::prefill_attend is not implemented" in refusal(lambda: attended.sum().backward())


def test_words_are_those_of_32_bits():
    assert allot.words([0, 1, 2**31, 2**32 - 1, -1]).tolist() == [0, 1, -(2**31), -1, -1]
    for wrong in (2**32, -2, -(2**40), 1.5, "8", None):
        assert "0 to 4294967295" in refusal(lambda: allot.words([3, wrong]))


def test_methods_are_named_in_one_line():
    filled = Filled("cpu", [70])
    for text in ("no\nsuch", "no\0such", "no\x1bsuch", "x" * 100_000):
        sentence = refusal(lambda: step(filled, text))
        assert "no such method; there are dense" in sentence and len(sentence) < 1000, sentence[:200]


def test_threads_share_a_workspace():
    filled = Filled("cpu", [700, 33, 70], shadow_bits=4)
    filled.workspace = allot.Workspace("cpu", threads=2)
    methods = ("dense", "s2anta-sys", "s2anta-q4", "top-k")
    alone = {method: step(filled, method) for method in methods}
    wrong = []

    def work():
        for _ in range(50):
            wrong.extend(m for m in methods if not torch.equal(step(filled, m), alone[m]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_forked_process_has_threads_of_its_own():
    filled = Filled("cpu", [3000] * 4)
    filled.workspace = allot.Workspace("cpu", threads=2)
    exact = step(filled, "dense")

    def check():
        assert torch.equal(step(filled, "dense"), exact)
        del filled.workspace

    in_a_child(check)
    assert torch.equal(step(filled, "dense"), exact)


def test_more_threads_than_there_may_be_get_a_sentence():
    def check():
        assert "may not have 1024 threads" in refusal(lambda: allot.Workspace("cpu", threads=1024))

    in_a_child(check, more_bytes=2**29)  # the stacks of a thousand threads do not fit


def test_compiled_shapes_may_change():
    if not hasattr(torch.library, "opcheck"):
        return skip("operators in torch.compile need PyTorch 2.4")
    filled, ops = Filled("cpu", [70, 33, 50]), torch.ops.allot
    number = filled.workspace.number

    def decode(queries, cache, *rest):
        return ops.decode_attention(queries * 2, cache, *rest, "s2anta-sys", number)[0] + 1

    compiled = torch.compile(decode, backend="aot_eager", fullgraph=True, dynamic=True)
    with torch.no_grad():
        for rows in (3, 1, 2):
            queries, cache, *rest = filled.arguments(filled.words(4, 4, 4))
            rest = [tensor[:rows].contiguous() for tensor in rest]
            arguments = queries[:rows].contiguous(), list(cache), *rest
            assert torch.equal(compiled(*arguments), decode(*arguments))

    one, queries, table = prompt("cpu", 150)
    number = one.workspace.number

    def read(queries, cache, table, first):
        place = queries, cache, table, first, "sale", number
        return ops.prefill_attend(*place, blocks=ops.prefill_select(*place))[0]

    compiled = torch.compile(read, backend="aot_eager", fullgraph=True, dynamic=True)
    for first, end in ((0, 64), (64, 150), (10, 77)):
        arguments = queries[first:end].contiguous(), list(one.cache), table, first
        assert torch.equal(compiled(*arguments), read(*arguments))
