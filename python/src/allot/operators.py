"""The operators of ``torch.ops.allot``, with the types and checks that people want.

Everything is a pure function of its arguments, the same bits as allot's worker has for the same
numbers: a row's draws are those of (seed, sequence, step, layer, head). On a GPU an operator launches
on the current stream and returns; it can be captured in a CUDA graph. What is wrong is a
``ValueError`` of one sentence.

Sources: the methods of "Stochastic Sparse Attention for Memory-Bound Inference" (SANTA) and its
relatives, as kernels/README.md of allot has them.
"""

from __future__ import annotations

import os
from operator import index
from pathlib import Path
from typing import NamedTuple, Optional, Sequence, Union

import torch

__all__ = [
    "Cache",
    "Workspace",
    "append_kv",
    "decode_attention",
    "make_cache",
    "mean_values",
    "method_needs",
    "prefill_attend",
    "prefill_select",
    "words",
]


def _load() -> None:
    path = os.environ.get("ALLOT_TORCH_LIBRARY") or Path(__file__).with_name("libtorch_allot.so")
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        raise ImportError(
            f"{path} does not load into PyTorch {torch.__version__} ({error}): it was built against "
            "another one, or not at all; run pip install ./python again"
        ) from error


_load()
_ops = torch.ops.allot


class Cache(NamedTuple):
    """Keys and values of one layer, by pages. What it was not made with is an empty tensor.

    The memory is plain tensors: copy a page of ``p`` to ``q`` by ``t[q] = t[p]`` in each of them.
    """

    keys: torch.Tensor
    """[pages, kv_heads, page_size, head_dim]"""
    values: torch.Tensor
    """the same"""
    codes: torch.Tensor
    """uint8 [pages, kv_heads, page_size / 16, 2 * bits * head_dim]: the keys' shadow"""
    scales: torch.Tensor
    """float32 [pages, kv_heads, page_size]"""
    mean_keys: torch.Tensor
    """float32 [pages, kv_heads, head_dim]"""
    bounds: torch.Tensor
    """of the cache's dtype [pages, kv_heads, page_size / 16, 2, head_dim]: for quest"""
    value_sums: torch.Tensor
    """float64 [pages, kv_heads, 2, head_dim]: for mean_values and weights=centred"""


class Workspace:
    """Scratch memory of one device. One step at a time; on the CPU, calls from several threads wait.

    On the CPU it has ``threads`` threads and makes room for itself. On a GPU, plan before a step: a
    plan grows memory and may wait for the device, and graphs captured before it grew are of no use
    (``moves`` has risen). All its steps there are on one stream, and it is kept as long as a graph
    that was captured with it: another stream's steps would write to the same memory.
    """

    def __init__(self, device: Union[str, torch.device] = "cpu", threads: int = 1) -> None:
        device = torch.device(device)
        if device.type == "cuda" and not torch.cuda.is_available():
            raise ValueError(f"allot: there is no GPU for a workspace on {device}: this PyTorch sees none")
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        if device.type == "cpu":
            device = torch.device("cpu")  # and not cpu:0, which no tensor is on
        self.device, self._threads = device, threads
        self.number: int = _ops.make_workspace(device, threads)

    def __reduce__(self) -> tuple[type, tuple[torch.device, int]]:
        return Workspace, (self.device, self._threads)  # a copy has memory of its own, without plans

    def __del__(self) -> None:
        number = getattr(self, "number", None)
        if number is not None and _ops is not None:  # not while Python ends
            _ops.free_workspace(number)

    def plan_decode(
        self,
        cache: Sequence[torch.Tensor],
        method: str,
        *,
        rows: int,
        heads: int,
        max_length: int,
        max_budget: int = 0,
        statistics: bool = False,
    ) -> None:
        """Room for steps of at most these sizes.

        max_length: keys of a row. max_budget: draws a head, of rows that draw (budget < length).
        """
        _ops.plan_decode(
            self.number,
            cache,
            method,
            rows=rows,
            heads=heads,
            max_length=max_length,
            max_budget=max_budget,
            statistics=statistics,
        )

    def plan_prefill(
        self, cache: Sequence[torch.Tensor], method: str, *, heads: int, count: int, keys: int
    ) -> None:
        """Room for chunks of ``count`` queries of prompts of ``keys`` positions."""
        _ops.plan_prefill(self.number, cache, method, heads=heads, count=count, keys=keys)

    @property
    def moves(self) -> int:
        """How often its memory on a GPU has moved."""
        return _ops.workspace_moves(self.number)

    def check(self) -> None:
        """Waits for the current stream; raises RuntimeError with what a GPU saw to be wrong."""
        why = _ops.failure(self.number)
        if why:
            raise RuntimeError(f"allot: {why}")


def _number(workspace: Union[Workspace, int]) -> int:
    return workspace.number if isinstance(workspace, Workspace) else workspace


def _signed(seed: int) -> int:
    """64 unsigned bits as PyTorch's integers have them."""
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"allot: seed = {seed} is not from 0 to 2^64 - 1")
    return seed - (1 << 64) if seed >= 1 << 63 else seed


def words(
    values: Sequence[int], device: Union[str, torch.device] = "cpu"
) -> torch.Tensor:
    """Numbers 0 .. 2^32 - 1 as the int32 tensor of the same bits, which budgets, sequences and steps
    are. A budget of 2^32 - 1, or -1, is every key."""
    signed = []
    for value in values:
        try:
            number = index(value)
        except TypeError:
            number = -2
        if not -1 <= number < 1 << 32:
            raise ValueError(f"allot: {value!r} is no whole number from 0 to 4294967295")
        signed.append(number - (1 << 32) if number >= 1 << 31 else number)
    return torch.tensor(signed, dtype=torch.int32, device=device)


def method_needs(method: str) -> tuple[int, bool, bool]:
    """What a cache holds for a method of decode: ``shadow_bits``, ``bounds`` and ``value_sums`` of make_cache."""
    bits, bounds, value_sums = _ops.method_needs(method)
    return bits, bounds, value_sums


def make_cache(
    pages: int,
    kv_heads: int,
    page_size: int,
    head_dim: int,
    *,
    dtype: torch.dtype = torch.float32,
    device: Union[str, torch.device] = "cpu",
    shadow_bits: int = 0,
    bounds: bool = False,
    value_sums: bool = False,
) -> Cache:
    """A cache of one layer, zeros.

    dtype: float32 or bfloat16 on the CPU, bfloat16 or float16 on a GPU (head_dim 64 or 128 there,
    page_size a power of two from 16 on). shadow_bits: 4 for s2anta-q4 (3, 8: on the CPU). bounds:
    for quest. value_sums: for mean_values and weights=centred.
    """
    return Cache(
        *_ops.make_cache(
            pages,
            kv_heads,
            page_size,
            head_dim,
            dtype=dtype,
            device=torch.device(device),
            shadow_bits=shadow_bits,
            bounds=bounds,
            value_sums=value_sums,
        )
    )


def append_kv(
    keys: torch.Tensor,
    values: torch.Tensor,
    cache: Sequence[torch.Tensor],
    page_table: torch.Tensor,
    starts: torch.Tensor,
    workspace: Union[Workspace, int],
) -> None:
    """Writes keys and values, float32 [rows, count, kv_heads, head_dim], into the positions from
    ``starts`` (int32 [rows]) on, with shadows, bounds and sums. page_table: int32 [rows, max_pages].

    Positions are appended in order. The append that begins at position 0 sets the sequence's mean key.
    """
    _ops.append_kv(keys, values, cache, page_table, starts, _number(workspace))


def mean_values(
    cache: Sequence[torch.Tensor], page_table: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """Means of all values of each row, float32 [rows, kv_heads, head_dim], of sums that the cache
    keeps: ``zero_budget_values`` for zeroReads: mean-value."""
    return _ops.mean_values(cache, page_table, lengths)


def decode_attention(
    queries: torch.Tensor,
    cache: Sequence[torch.Tensor],
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    budgets: torch.Tensor,
    sequences: torch.Tensor,
    steps: torch.Tensor,
    method: str,
    workspace: Union[Workspace, int],
    *,
    layer: int = 0,
    seed: int = 0,
    scale: Optional[float] = None,
    window: int = 0,
    bias: Optional[torch.Tensor] = None,
    zero_budget_values: Optional[torch.Tensor] = None,
    zero_budget_window: int = 0,
    statistics: Optional[torch.Tensor] = None,
    drawn: Optional[torch.Tensor] = None,
    with_lse: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One decode step of one layer: ``(out, lse)``, float32 [rows, heads, head_dim], [rows, heads].

    lse is the log of the softmax's denominator where with_lse asks for it (a head without draws then
    reads its keys for it), else an empty tensor.

    queries: float32 [rows, heads, head_dim], positions applied. page_table: int32 [rows, max_pages].
    lengths: int32 [rows], this step's key included. budgets: words [rows], or [rows, heads] for a
    budget a head; 0 gives zeros (or zero_budget_values, zero_budget_window), as many as keys or more gives exact
    attention. sequences, steps: words [rows], the names of the draws. method: as an experiment file
    says, "s2anta-sys", "vattention epsilon=0.1". scale: 1 / sqrt(head_dim) by default. window: keys
    that a row attends to, its newest; 0: all. bias: float32 [rows, n], added to scores.
    zero_budget_values: float32 [rows, kv_heads, head_dim]. statistics: int64 [rows, 7], added to: draws,
    unique_rows, group_rows, dense_rows, key_bytes, value_bytes, dense_bytes. drawn: int64
    [heads, words], on the CPU: bits of the value rows that each head read, of rows of one sequence.
    """
    return _ops.decode_attention(
        queries,
        cache,
        page_table,
        lengths,
        budgets,
        sequences,
        steps,
        method,
        _number(workspace),
        layer=layer,
        seed=_signed(seed),
        scale=scale,
        window=window,
        bias=bias,
        zero_budget_values=zero_budget_values,
        zero_budget_window=zero_budget_window,
        statistics=statistics,
        drawn=drawn,
        with_lse=with_lse,
    )


def prefill_select(
    queries: torch.Tensor,
    cache: Sequence[torch.Tensor],
    page_table: torch.Tensor,
    first: int,
    method: str,
    workspace: Union[Workspace, int],
    *,
    scale: Optional[float] = None,
    window: int = 0,
    tau: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    """The blocks of keys that a prompt's queries attend to, by sample-attention or sale: int32
    [heads, blocks of queries, words], a bit a block of keys.

    queries: float32 [count, heads, head_dim] at positions from ``first`` on, whose keys are in the
    cache. page_table: int32 [max_pages]. tau: float32 [heads], SALE's thresholds.
    """
    return _ops.prefill_select(
        queries, cache, page_table, first, method, _number(workspace), scale=scale, window=window,
        tau=tau,
    )


def prefill_attend(
    queries: torch.Tensor,
    cache: Sequence[torch.Tensor],
    page_table: torch.Tensor,
    first: int,
    method: str,
    workspace: Union[Workspace, int],
    *,
    blocks: Optional[torch.Tensor] = None,
    scale: Optional[float] = None,
    window: int = 0,
    layer: int = 0,
    seed: int = 0,
    sequence: int = 0,
    budgets: Optional[torch.Tensor] = None,
    zero_budget_window: int = 0,
    zero_budget_means: bool = False,
    with_lse: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of a prompt's queries: ``(out, lse)``, float32 [count, heads, head_dim],
    [count, heads]; lse as in decode_attention.

    Arguments as in prefill_select. method: "dense", "skip-softmax", "sampled-blocks", with
    ``blocks`` "sample-attention" and "sale"; on the CPU any method of decode that reads prompts,
    query by query. budgets: words [heads], of methods that draw; none: as many as there are keys.
    """
    return _ops.prefill_attend(
        queries, cache, page_table, first, method, _number(workspace), blocks=blocks, scale=scale,
        window=window, layer=layer, seed=_signed(seed), sequence=sequence, budgets=budgets,
        zero_budget_window=zero_budget_window, zero_budget_means=zero_budget_means, with_lse=with_lse,
    )
