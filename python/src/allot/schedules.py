"""Schedules: how many value rows each layer's heads read, as a run learned them."""

from __future__ import annotations

import json
import os
from typing import Optional, Sequence, Union

__all__ = [
    "entries_per_layer",
    "evaluation_sequence",
    "layer_budgets",
    "read_schedule",
    "rollout_sequence",
]

EVERYTHING = (1 << 32) - 1
"""The budget of exact attention."""


def read_schedule(
    path: Union[str, "os.PathLike[str]"], total_budget: Optional[int] = None
) -> list[int]:
    """The learned schedule of a run: draws per head and step, an entry a layer (or a KV head or head
    of each layer, layer by layer).

    path: policy.json, or the folder of the run that holds it. total_budget: which of the budgets that
    the run learned for; by default the run's own.

    Source: ``allot run`` and ``allot export`` write the file. ValueError says what it has instead.
    """
    path = os.fspath(path)
    if os.path.isdir(path):
        path = os.path.join(path, "policy.json")
    with open(path, encoding="utf-8") as file:
        policy = json.load(file)
    learned = {}
    if isinstance(policy, dict):
        for row in policy.get("frontier") or []:
            learned[row["total_budget"]] = row["learned_schedule"]
        if policy.get("learned_schedule"):
            learned[policy["total_budget"]] = policy["learned_schedule"]
    if not learned:
        raise ValueError(
            f"allot: {path} holds no learned schedule: it is the policy.json of a run with an update"
        )
    if total_budget is None:
        total_budget = policy["total_budget"] if policy["total_budget"] in learned else min(learned)
    if total_budget not in learned:
        raise ValueError(
            f"allot: {path} has schedules for the total budgets "
            f"{', '.join(map(str, sorted(learned)))}, not for {total_budget}"
        )
    return [int(draws) for draws in learned[total_budget]]


def entries_per_layer(entries: int, layers: int, kv_heads: int, heads: int) -> int:
    """1, kv_heads or heads; ValueError where a schedule is another model's."""
    for each in (1, kv_heads, heads):
        if entries == layers * each:
            return each
    raise ValueError(
        f"allot: a schedule of {entries} entries does not fit the model's {layers} layers of {heads} "
        f"heads over {kv_heads} KV heads: write one for each layer, for each KV head or for each head"
    )


def layer_budgets(
    schedule: Sequence[int], layer: int, layers: int, kv_heads: int, heads: int
) -> list[int]:
    """What the heads of a layer draw: one number, or one a head."""
    each = entries_per_layer(len(schedule), layers, kv_heads, heads)
    if each == 1:
        return [schedule[layer]]
    # Query heads of a KV head are neighbours.
    return [schedule[layer * each + head * each // heads] for head in range(heads)]


# The names of rows that allot's worker draws by (core/learning/questions.h); its seed is spec.seed where
# spec.repetition is 0.


def rollout_sequence(ticket: int, questions: int, index: int) -> int:
    """Of an episode: its ticket, spec.rollout.questionsPerEpisode and the question's place in it."""
    return (ticket * questions + index) & 0x7FFFFFFF


def evaluation_sequence(question: int, repeat: int = 0) -> int:
    """Of a held-out question, the same for every method, schedule and budget."""
    return 1 << 31 | repeat << 20 | question
