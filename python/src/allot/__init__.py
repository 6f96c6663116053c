"""allot for PyTorch: decode attention with few KV-cache reads.

- ``decode_attention``, ``append_kv``, ``mean_values``, ``prefill_select``, ``prefill_attend``,
  ``make_cache``, ``Workspace``: the kernels, over tensors in pages (``allot.operators``).
- ``attention``: a model of transformers decodes with a method and a learned schedule
  (``allot.generation``).
- ``read_schedule``: the schedule of a run's policy.json; ``evaluation_sequence``,
  ``rollout_sequence``: the names of a worker's rows (``allot.schedules``).
- ``read_run``: a run's results as data frames and a picture (``allot.results``).
- ``log_to_mlflow``: a run as one of MLflow's (``allot.mlflow_export``).

Each part is imported when it is first used: results need no PyTorch, and operators no transformers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from allot.generation import Attention, attention
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
    from allot.mlflow_export import Logged, log_to_mlflow
    from allot.paged_cache import PagedCache
    from allot.results import Run, read_run
    from allot.schedules import evaluation_sequence, read_schedule, rollout_sequence

_HOMES = {
    "Attention": "generation",
    "PagedCache": "paged_cache",
    "attention": "generation",
    "Cache": "operators",
    "Workspace": "operators",
    "append_kv": "operators",
    "decode_attention": "operators",
    "evaluation_sequence": "schedules",
    "make_cache": "operators",
    "mean_values": "operators",
    "prefill_attend": "operators",
    "prefill_select": "operators",
    "words": "operators",
    "Logged": "mlflow_export",
    "log_to_mlflow": "mlflow_export",
    "Run": "results",
    "read_run": "results",
    "read_schedule": "schedules",
    "rollout_sequence": "schedules",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'allot' has no attribute {name!r}")
    return getattr(importlib.import_module(f"allot.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
