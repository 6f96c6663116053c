"""allot's attention for models of transformers.

    attention = allot.attention(model, method="s2anta-sys", schedule="runs/latest")
    model.generate(**inputs, past_key_values=attention.cache())

transformers hands an attention function queries, keys and values, and keeps the keys in a cache of its
own. allot's live in pages with shadows and sums beside them, so the cache is allot's, too, and has to
be given to ``generate``: transformers makes caches of its own kinds only. Draws are those of allot's
worker: (seed, sequence, step, layer, head), the prompt is read before step 1, and each token that is
fed after it is a step.
"""

from __future__ import annotations

import os
from typing import Any, Optional, Sequence, Union

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface

from allot.operators import method_needs, words
from allot.paged_cache import Observer, PagedCache, PagedLayer
from allot.schedules import EVERYTHING, layer_budgets, read_schedule, refuse_other_model

__all__ = ["Attention", "attention"]


def attention(
    model: PreTrainedModel,
    method: str = "dense",
    schedule: Union[None, str, "os.PathLike[str]", Sequence[int]] = None,
    *,
    total_budget: Optional[int] = None,
    any_model: bool = False,
    prefill: str = "dense",
    prefill_schedule: Optional[Sequence[int]] = None,
    zero_reads: str = "off",
    seed: int = 0,
    dtype: Optional[torch.dtype] = None,
    page_size: int = 16,
    threads: int = 1,
) -> "Attention":
    """Makes ``model`` attend by allot; ``generate`` then wants ``past_key_values=attention.cache()``.

    method: of decode, as an experiment file says it ("s2anta-sys", "vattention epsilon=0.1").
    schedule: draws per head and step, an entry a layer, a KV head or a head of each layer; or a run's
    policy.json or folder, of which ``total_budget`` says which schedule; one that was made for another
    model is refused unless ``any_model`` is true. Methods that need no budget go without. prefill: how a prompt is read, by "dense" or a method of prompts; under "dense" the
    first chunk is PyTorch's scaled_dot_product_attention. prefill_schedule: draws per head and position,
    of such a method that draws; none: as many as there are keys. zero_reads: what a layer or head without
    draws gives: "off" zeros, "mean-value" the mean of the values so far, "window" attention to the
    newest 64 keys (on the CPU). dtype: of the cache; float32 on the CPU unless the model is bfloat16,
    on a GPU bfloat16, or float16 for such a model. threads: of the CPU.

    ValueError: a method, schedule or model that allot does not have.
    """
    return Attention(
        model,
        method,
        schedule,
        total_budget,
        any_model,
        prefill,
        prefill_schedule,
        zero_reads,
        seed,
        dtype,
        page_size,
        threads,
    )


class Attention:
    """A model's method and schedule. ``attention()`` makes it."""

    def __init__(
        self,
        model: PreTrainedModel,
        method: str,
        schedule: Union[None, str, "os.PathLike[str]", Sequence[int]],
        total_budget: Optional[int],
        any_model: bool,
        prefill: str,
        prefill_schedule: Optional[Sequence[int]],
        zero_reads: str,
        seed: int,
        dtype: Optional[torch.dtype],
        page_size: int,
        threads: int,
    ) -> None:
        if zero_reads not in ("off", "mean-value", "window"):
            raise ValueError(f"allot: zero_reads is off, mean-value or window, not {zero_reads}")
        config = model.config.get_text_config(decoder=True)
        kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
        if kinds:
            raise ValueError(
                f"allot: the model has layers of {', '.join(sorted(kinds))}, which allot does not compute"
            )
        self.device: torch.device = model.device
        self.layers: int = config.num_hidden_layers
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = getattr(config, "num_key_value_heads", None) or self.heads
        self.head_dim: int = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.method, self.prefill = method, prefill
        self.zero_reads, self.seed = zero_reads, seed
        self.page_size, self.threads = page_size, threads
        self.dtype = dtype or _cache_dtype(model)
        self.shadow_bits, self.bounds, value_sums = method_needs(method)
        self.value_sums: bool = value_sums or zero_reads == "mean-value"
        if isinstance(schedule, (str, os.PathLike)):
            if not any_model:
                refuse_other_model(
                    schedule, model.name_or_path, self.layers, self.heads, self.kv_heads
                )
            schedule = read_schedule(schedule, total_budget)
        elif total_budget is not None:
            raise ValueError("allot: total_budget chooses among the schedules of a policy.json")
        self.schedule = list(schedule) if schedule is not None else [EVERYTHING] * self.layers
        self.prefill_schedule = list(prefill_schedule or [EVERYTHING] * self.layers)
        for one in (self.schedule, self.prefill_schedule):
            layer_budgets(one, 0, self.layers, self.kv_heads, self.heads)  # refuses
            words(one)  # so does this
        if page_size < 1:
            raise ValueError(f"allot: page_size = {page_size} is not from 1 on")
        AttentionInterface.register("allot", _attend)
        AttentionMaskInterface.register("allot", _mask)
        model.set_attn_implementation("allot")

    def cache(
        self,
        sequences: Optional[Sequence[int]] = None,
        *,
        statistics: bool = False,
        observer: Optional[Observer] = None,
    ) -> "PagedCache":
        """Keys and values of one batch: for one call of ``generate``, or several that go on.

        sequences: 32-bit names of the rows' draws; 0, 1, 2, .. by default. allot's worker has
        those of ``allot.evaluation_sequence`` and ``allot.rollout_sequence``. statistics: what
        is read is counted, for ``PagedCache.reads``.
        """
        return PagedCache(self, sequences, statistics, observer)


def _cache_dtype(model: PreTrainedModel) -> torch.dtype:
    if model.device.type == "cuda":
        return torch.float16 if model.dtype == torch.float16 else torch.bfloat16
    return torch.bfloat16 if model.dtype == torch.bfloat16 else torch.float32


def _mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    *args: Any,
    attention_mask: Optional[torch.Tensor] = None,
    **kwargs: Any,
) -> Optional[torch.Tensor]:
    """What transformers hands to the attention function: the mask of padding as it is."""
    return attention_mask


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Optional[torch.Tensor],
    scaling: Optional[float] = None,
    dropout: float = 0.0,
    sliding_window: Optional[int] = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """allot's attention function in transformers' interface."""
    layer: Optional[PagedLayer] = getattr(key, "allot_layer", None)
    if layer is None:
        raise ValueError(
            "allot: the model attends by allot, but its cache is not allot's: pass "
            "past_key_values=attention.cache()"
        )
    if dropout:
        raise ValueError("allot: there is no dropout in decode: model.eval()")
    for name in ("softcap", "s_aux", "position_bias"):
        if kwargs.get(name) is not None:
            raise ValueError(f"allot: the model's attention has {name}, which allot's has not")
    out = layer.attend(query, key, value, attention_mask, scaling, sliding_window or 0)
    return out, None
