"""A cache of transformers in allot's pages, and the attention of its layers. ``allot.generation`` is
where it begins; ``Attention.cache()`` makes one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence

import torch
from transformers.cache_utils import Cache as TransformersCache
from transformers.cache_utils import CacheLayerMixin

from allot.operators import (
    Cache,
    Workspace,
    append_kv,
    decode_attention,
    make_cache,
    mean_values,
    prefill_attend,
    prefill_select,
    words,
)
from allot.schedules import layer_budgets

if TYPE_CHECKING:
    from allot.generation import Attention

__all__ = ["Observer", "PagedCache", "PagedLayer"]

STATISTICS = (
    "draws",
    "unique_rows",
    "group_rows",
    "dense_rows",
    "key_bytes",
    "value_bytes",
    "dense_bytes",
)
WINDOW = 64  # keys of zeroReads: window, as the experiment file has it
PLANNED_KEYS = 4096  # plans on a GPU grow by so many
LISTED = ("sample-attention", "sale")  # methods of prompts that choose blocks first

# Called on the CPU after the attention of a layer in a step, where the batch is one row: layer, step,
# and int64 [heads, words], a bit for each value row that a head read.
Observer = Callable[[int, int, torch.Tensor], None]


class PagedCache(TransformersCache):
    """A cache of transformers whose keys and values are in allot's pages. Rows may differ in length:
    what padding on the left the attention mask of the prompt names is not kept."""

    def __init__(
        self,
        owner: "Attention",
        sequences: Optional[Sequence[int]],
        statistics: bool,
        observer: Optional[Observer],
    ) -> None:
        super().__init__(layers=[PagedLayer(self, layer) for layer in range(owner.layers)])
        self.owner = owner
        self.workspace = Workspace(owner.device, owner.threads)
        self._sequences = None if sequences is None else list(sequences)
        self._counts_reads, self._observer = statistics, observer
        self._statistics: Optional[torch.Tensor] = None
        self._rows = 0
        self._pages = 0  # of a row
        self._planned = (0, 0)  # which workspace, and keys of a row
        # Positions that came, padding included; of those the prompt's; and each row's padding.
        self._seen = self._prompt = 0
        self._padding: list[int] = []
        self._answering = False

    def reads(self) -> dict[str, int]:
        """What decode steps drew and read so far, summed over rows, layers and heads: rows of values
        and bytes, beside those of exact attention (``dense_rows``, ``dense_bytes``)."""
        if self._statistics is None:
            return {}
        return dict(zip(STATISTICS, self._statistics.sum(0).tolist()))

    def check(self) -> None:
        """Waits for the device; RuntimeError with what a GPU saw to be wrong."""
        self.workspace.check()

    # --- what layers share ---

    def _begin_batch(self, rows: int, mask: Optional[torch.Tensor]) -> None:
        owner, device = self.owner, self.owner.device
        self._rows = rows
        self._padding = [0] * rows if mask is None else _padding_of(mask)
        names = list(range(rows)) if self._sequences is None else self._sequences
        if len(names) != rows:
            raise ValueError(
                f"allot: the cache has names for {len(names)} rows, but the batch has {rows}: "
                "attention.cache(sequences=[one a row])"
            )
        if self._observer is not None and (rows != 1 or device.type != "cpu"):
            raise ValueError("allot: an observer sees batches of one row, on the CPU")
        self.sequences = words(names, device)
        self._names = names
        self._budgets = [self._budgets_of(layer, rows) for layer in range(owner.layers)]
        if self._counts_reads:
            self._statistics = torch.zeros(rows, 7, dtype=torch.int64, device=device)

    def _budgets_of(self, layer: int, rows: int) -> torch.Tensor:
        owner = self.owner
        each = layer_budgets(owner.schedule, layer, owner.layers, owner.kv_heads, owner.heads)
        budgets = words(each, owner.device)
        return budgets.repeat(rows) if len(each) == 1 else budgets.repeat(rows, 1)

    def _begin(self, count: int) -> None:
        """The positions of this forward pass, once for all layers."""
        self._seen += count
        device = self.owner.device
        ends = [self._seen - padding for padding in self._padding]
        self.page_size = self.owner.page_size
        pages = -(-max(ends) // self.page_size)
        if pages > self._pages:
            self._pages = max(pages, 2 * self._pages)
            # Page p of row r is p * rows + r, so that more of them do not move those that are there.
            table = torch.arange(self._pages * self._rows, dtype=torch.int32, device=device)
            self.page_table = table.view(self._pages, self._rows).t().contiguous()
        if self._seen == count:
            self.lengths = words(ends, device)
            self.steps = words([0] * self._rows, device)
        else:
            # On the device, which then waits for nobody.
            self.starts = self.lengths
            self.lengths = self.lengths + count
        if self._prompt and count == 1:
            self._answering = True
            self.steps = self.steps + 1
        if not self._answering:
            self._prompt = self._seen

    def _plan(self, cache: Cache, length: int) -> None:
        number, planned = self._planned
        # A copy of this cache has a workspace of its own.
        if number != self.workspace.number:
            planned = 0
        if self.owner.device.type != "cuda" or length <= planned:
            return
        owner = self.owner
        planned = -(-length // PLANNED_KEYS) * PLANNED_KEYS
        self._planned = self.workspace.number, planned
        drawn = [draws for draws in owner.schedule if draws < planned]
        self.workspace.plan_decode(
            cache,
            owner.method,
            rows=self._rows,
            heads=owner.heads,
            max_length=planned,
            max_budget=max(drawn, default=0),
            statistics=self._counts_reads,
        )


class PagedLayer(CacheLayerMixin):
    """One layer of a PagedCache: what transformers asks of it, and its attention."""

    is_sliding = False

    def __init__(self, cache: PagedCache, layer: int) -> None:
        super().__init__()
        self._all, self._layer = cache, layer
        self._seen = 0
        self.is_initialized = True
        self.pages: Optional[Cache] = None

    # --- transformers' side ---

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        pass

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        # The attention function gets these two and nothing of the cache.
        key_states.allot_layer = self  # type: ignore[attr-defined]
        return key_states, value_states

    def get_seq_length(self) -> int:
        return self._seen

    def get_max_length(self) -> int:
        return -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._seen + query_length, 0

    def reset(self) -> None:
        raise NotImplementedError("allot: a cache is of one batch: attention.cache() makes another")

    def crop(self, tokens_to_remove: int) -> None:
        raise NotImplementedError("allot: what is in a cache stays there: no assisted decoding")

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        raise NotImplementedError("allot: rows of a cache keep their places: no beam search")

    def batch_repeat_interleave(self, repeats: int) -> None:
        raise NotImplementedError("allot: a cache keeps its rows: copy.deepcopy makes another of them")

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        raise NotImplementedError("allot: a cache keeps its rows: copy.deepcopy makes another of them")

    # --- attention ---

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: Optional[torch.Tensor],
        scale: Optional[float],
        window: int,
    ) -> torch.Tensor:
        """query [rows, heads, count, head_dim], key and value [rows, kv_heads, count, head_dim]:
        [rows, count, heads, head_dim]."""
        shared = self._all
        rows, count = query.shape[0], query.shape[2]
        if self._seen == shared._seen:
            if self._seen == 0:
                shared._begin_batch(rows, mask)
            shared._begin(count)
        if rows != shared._rows or self._seen + count != shared._seen:
            raise ValueError("allot: the cache is of another batch: attention.cache() makes one")
        first = self._seen
        self._seen += count
        self._make_room()
        if not shared._answering:
            out = self._read_prompt(query, key, value, first, scale, window)
        elif count == 1:
            out = self._step(query, key, value, scale, window)
        else:
            raise ValueError(
                f"allot: {count} tokens came at once after the answer had begun: feed them one by one"
            )
        return out.to(query.dtype)

    def _make_room(self) -> None:
        shared, owner = self._all, self._all.owner
        pages = shared._pages * shared._rows
        if self.pages is None or self.pages.keys.shape[0] < pages:
            room = make_cache(
                pages,
                owner.kv_heads,
                owner.page_size,
                owner.head_dim,
                dtype=owner.dtype,
                device=owner.device,
                shadow_bits=owner.shadow_bits,
                bounds=owner.bounds,
                value_sums=owner.value_sums,
            )
            for old, new in zip(self.pages or (), room):
                new[: old.shape[0]] = old
            self.pages = room
        if self._layer == 0:
            shared._plan(self.pages, shared._pages * owner.page_size)

    def _step(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: Optional[float],
        window: int,
    ) -> torch.Tensor:
        shared, owner, pages = self._all, self._all.owner, self.pages
        assert pages is not None
        append_kv(
            _float(key.transpose(1, 2)),
            _float(value.transpose(1, 2)),
            pages,
            shared.page_table,
            shared.starts,
            shared.workspace,
        )
        idle = None
        if owner.zero_reads == "mean-value":
            idle = mean_values(pages, shared.page_table, shared.lengths)
        drawn = None
        if shared._observer is not None:
            bits = shared._seen // 64 + 1
            drawn = torch.zeros(owner.heads, bits, dtype=torch.int64)
        out, _ = decode_attention(
            _float(query.squeeze(2)),
            pages,
            shared.page_table,
            shared.lengths,
            shared._budgets[self._layer],
            shared.sequences,
            shared.steps,
            owner.method,
            shared.workspace,
            layer=self._layer,
            seed=owner.seed,
            scale=scale,
            window=window,
            zero_budget_values=idle,
            zero_budget_window=WINDOW if owner.zero_reads == "window" else 0,
            statistics=shared._statistics,
            drawn=drawn,
        )
        if drawn is not None and shared._observer is not None:
            shared._observer(self._layer, shared._seen - shared._prompt, drawn)
        return out.unsqueeze(1)

    def _read_prompt(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        first: int,
        scale: Optional[float],
        window: int,
    ) -> torch.Tensor:
        shared = self._all
        rows, heads, count, head_dim = query.shape
        out = query.new_zeros(rows, count, heads, head_dim)
        for row in range(rows):
            # Padding is at the beginning of the first chunk.
            skipped = min(max(shared._padding[row] - first, 0), count)
            if skipped == count:
                continue
            one = [x[row : row + 1, :, skipped:] for x in (query, key, value)]
            position = first + skipped - shared._padding[row]
            out[row, skipped:] = self._read_row(row, position, one, scale, window)
        return out

    def _read_row(
        self,
        row: int,
        first: int,
        states: list[torch.Tensor],
        scale: Optional[float],
        window: int,
    ) -> torch.Tensor:
        """A row's chunk from position ``first`` on: [count, heads, head_dim]."""
        shared, owner, pages = self._all, self._all.owner, self.pages
        assert pages is not None
        query, key, value = states
        table = shared.page_table[row : row + 1]
        start = words([first], owner.device)
        append_kv(
            _float(key.transpose(1, 2)),
            _float(value.transpose(1, 2)),
            pages,
            table,
            start,
            shared.workspace,
        )
        count = query.shape[2]
        if owner.prefill == "dense" and first == 0 and not 0 < window < count:
            attended = torch.nn.functional.scaled_dot_product_attention(
                query, key, value, is_causal=True, scale=scale, enable_gqa=True
            )
            return attended[0].transpose(0, 1)
        queries = _float(query[0].transpose(0, 1))
        shared.workspace.plan_prefill(
            pages, owner.prefill, heads=owner.heads, count=count, keys=first + count
        )
        blocks = None
        if owner.prefill.split()[0] in LISTED:
            blocks = prefill_select(
                queries, pages, table[0], first, owner.prefill, shared.workspace, scale=scale,
                window=window,
            )
        out, _ = prefill_attend(
            queries, pages, table[0], first, owner.prefill, shared.workspace, blocks=blocks,
            scale=scale, window=window, layer=self._layer, seed=owner.seed,
            sequence=shared._names[row], budgets=self._prompt_budgets(),
            zero_budget_window=WINDOW if owner.zero_reads == "window" else 0,
            zero_budget_means=owner.zero_reads == "mean-value",
        )
        return out

    def _prompt_budgets(self) -> torch.Tensor:
        owner = self._all.owner
        each = layer_budgets(
            owner.prefill_schedule, self._layer, owner.layers, owner.kv_heads, owner.heads
        )
        return words(each * owner.heads if len(each) == 1 else each, owner.device)


def _float(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float().contiguous()


def _padding_of(mask: torch.Tensor) -> list[int]:
    """Positions that the mask [rows, count] leaves out at the beginning of each row."""
    if mask.dim() != 2:
        raise ValueError(
            f"allot: an attention mask is [rows, positions], not of {mask.dim()} dimensions"
        )
    kept = mask.bool().int()
    padding = (kept.cumsum(1) == 0).sum(1)
    if not torch.equal(kept.sum(1) + padding, torch.full_like(padding, mask.shape[1])):
        raise ValueError("allot: the attention mask has a gap: prompts are padded on the left")
    for row in (kept.sum(1) == 0).nonzero().flatten().tolist():
        raise ValueError(f"allot: row {row} of the attention mask keeps no position")
    return padding.tolist()
