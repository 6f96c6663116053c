"""Where the data of tensors may begin. Every tensor that an operator takes is given from addresses
between 16 bytes: either the result has the bits of before, or one sentence names the tensor, before
anything is launched. Last of the files, since a fault of a GPU would end CUDA in the process."""

import torch

import allot
from devices import DEVICES, HEADS, KV_HEADS, Filled
from outcomes import refusal
from test_operators import prompt

# What kernels of a GPU load 16 bytes at once of (kernels/cuda/alignment.h).
LOADED_AT_ONCE = {"queries", "keys", "values", "codes", "scales", "bounds"}


def shifted(tensor, by):
    """A copy whose data begin `by` bytes behind a multiple of 16."""
    size = tensor.numel() * tensor.element_size()
    if tensor.device.type == "cpu":
        memory = bytearray(size + 32)
        room = torch.frombuffer(memory, dtype=torch.uint8)
    else:
        room = torch.zeros(size + 32, dtype=torch.uint8, device=tensor.device)
    begin = -room.data_ptr() % 16 + by
    room[begin : begin + size] = tensor.contiguous().view(-1).view(torch.uint8)
    if tensor.device.type == "cpu":
        made = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=begin)
        made = made.view_as(tensor)
    else:
        storage = room.untyped_storage()[begin : begin + size]
        made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        made.set_(storage, 0, tensor.size(), tensor.contiguous().stride())
    assert made.data_ptr() % 16 == by
    return made


class Call:
    """An operator's call: run(cache, others) gives what it makes and writes; `others` are the
    tensors beside the cache, by their names in sentences."""

    def __init__(self, name, filled, run, others, loads=LOADED_AT_ONCE):
        self.name, self.filled, self.run, self.loads = name, filled, run, loads
        self.parts = [part for part in allot.Cache._fields if getattr(filled.cache, part).numel()]
        self.tensors = {**{part: getattr(filled.cache, part) for part in self.parts}, **others}

    def label(self, name):
        return f"the cache's {name}" if name in self.parts else name

    def made(self, change=None, by=0):
        """With fresh copies, one of which begins elsewhere."""
        tensors = {
            name: shifted(tensor, by) if name == change else tensor.clone()
            for name, tensor in self.tensors.items()
        }
        cache = self.filled.cache._replace(**{part: tensors.pop(part) for part in self.parts})
        made = self.run(cache, tensors)
        self.filled.workspace.check()
        return [tensor.cpu() for tensor in made]


def decodes(device):
    filled = Filled(device, [70, 33], shadow_bits=4, bounds=True, value_sums=True)
    generator = torch.Generator().manual_seed(3)
    rows = dict(zip(("lengths", "budgets", "sequences", "steps"), filled.arguments(None)[3:]))
    rows["budgets"] = filled.words(*[0, 4, 100, 8] * 4).view(2, HEADS)
    others = {
        "queries": filled.queries,
        "page_table": filled.page_table,
        **rows,
        "bias": torch.rand(2, 75, generator=generator).to(device),
        "zero_budget_values": torch.rand(2, KV_HEADS, 64, generator=generator).to(device),
        "statistics": torch.zeros(2, 7, dtype=torch.int64, device=device),
    }
    if device == "cpu":
        others["drawn"] = torch.zeros(HEADS, 2, dtype=torch.int64)
    methods = ("dense", "s2anta-sys", "s2anta-flash", "s2anta-q4", "top-k", "quest", "bernoulli")
    for method in methods:

        def run(cache, given, method=method):
            filled.plan(method)
            given = dict(given)
            order = ("page_table", "lengths", "budgets", "sequences", "steps")
            written = [given[name] for name in ("statistics", "drawn") if name in given]
            made = allot.decode_attention(
                given.pop("queries"), cache, *[given.pop(name) for name in order], method,
                filled.workspace, with_lse=True, seed=5, **given,
            )
            return [*made, *written]

        yield Call(f"decode_attention, {method}", filled, run, others)


def appends(device):
    filled = Filled(device, [70, 33], shadow_bits=4, bounds=True, value_sums=True)
    generator = torch.Generator().manual_seed(4)
    keys, values = torch.rand(2, 2, 3, KV_HEADS, 64, generator=generator).to(device)

    # The cache has keys and values, too: those that are new have names of their own.
    def append(cache, given):
        allot.append_kv(
            given["new keys"], given["new values"], cache, given["page_table"], given["starts"],
            filled.workspace,
        )
        return list(cache)

    others = {
        "new keys": keys,
        "new values": values,
        "page_table": filled.page_table,
        "starts": filled.lengths,
    }
    yield Call("append_kv", filled, append, others)

    def means(cache, given):
        return [allot.mean_values(cache, given["page_table"], given["lengths"])]

    rest = {"page_table": filled.page_table, "lengths": filled.lengths}
    yield Call("mean_values", filled, means, rest, loads=set())


def prefills(device):
    methods = ("sale tau=profile", "sample-attention", "dense", "skip-softmax", "sampled-blocks")
    for method in methods:
        filled, queries, table = prompt(device, 70)
        filled.workspace.plan_prefill(filled.cache, method, heads=HEADS, count=70, keys=70)
        others = {"queries": queries, "page_table": table}
        lists = method.split()[0] in ("sale", "sample-attention")
        if lists:
            taus = {"tau": torch.full((HEADS,), 0.1, device=device)} if "sale" in method else {}

            def select(cache, given, method=method, filled=filled):
                given = dict(given)
                queries, table = given.pop("queries"), given.pop("page_table")
                space = filled.workspace
                return [allot.prefill_select(queries, cache, table, 0, method, space, **given)]

            chosen = Call(f"prefill_select, {method}", filled, select, {**others, **taus})
            yield chosen
            others["blocks"] = chosen.made()[0].to(device)
        if method == "sampled-blocks":
            others["budgets"] = filled.words(*range(1, HEADS + 1))

        def attend(cache, given, method=method, filled=filled):
            given = dict(given)
            queries, table = given.pop("queries"), given.pop("page_table")
            return allot.prefill_attend(
                queries, cache, table, 0, method, filled.workspace, with_lse=True, **given
            )

        yield Call(f"prefill_attend, {method}", filled, attend, others)


def test_tensors_that_begin_between_16_bytes():
    for device in DEVICES:
        for calls in (decodes, appends, prefills):
            for call in calls(device):
                expected = call.made()
                for name, tensor in call.tensors.items():
                    for by in (1, 2, 4, 8):
                        expect_safe(call, device, name, tensor.element_size(), by, expected)


def expect_safe(call, device, name, size, by, expected):
    what = f"{call.name} on {device}: {name}, {by} bytes behind a multiple of 16,"
    at_once = device != "cpu" and name in call.loads
    if by % size == 0 and not at_once:
        try:
            made = call.made(name, by)
        except (ValueError, RuntimeError) as error:
            raise AssertionError(f"{what} was not taken: {error}") from error
        assert all(torch.equal(*both) for both in zip(made, expected)), f"{what} changed the result"
        return
    sentence = refusal(lambda: call.made(name, by), what)
    label = call.label(name).replace("new ", "")
    assert sentence.startswith(f"allot: the data of {label} begin at"), (what, sentence)
    multiple = "16" if by % size == 0 else f"an element's {size} bytes"
    assert f"no multiple of {multiple}" in sentence, (what, sentence)
