"""Schedules: how many value rows each layer's heads read, as a run learned them."""

from __future__ import annotations

import hashlib
import json
import os
from operator import index
from typing import Optional, Sequence, Union

__all__ = [
    "entries_per_layer",
    "evaluation_sequence",
    "layer_budgets",
    "learned_schedules",
    "read_schedule",
    "refuse_other_model",
    "rollout_sequence",
    "weights_digest",
]

EVERYTHING = (1 << 32) - 1
"""The budget of exact attention."""


def read_schedule(
    path: Union[str, "os.PathLike[str]"], total_budget: Optional[int] = None
) -> list[int]:
    """The learned schedule of a run: reads per head and step, an entry a layer (or a KV head or head
    of each layer, layer by layer).

    path: policy.json, or the folder of the run that holds it. total_budget: which of the budgets that
    the run learned for; by default the run's own. A schedule that nothing has confirmed is the run's
    best guess: ``published`` in policy.json then says uniform or measured, and not learned. It is
    null where a price buys no uniform schedule and no layer is measured yet.

    Source: ``allot run`` and ``allot export`` write the file. ValueError says what it has instead.
    """
    path = _file(path)
    learned, own = learned_schedules(path)
    if not learned:
        raise ValueError(
            f"allot: {path} holds no learned schedule: it is the policy.json of a run with an update"
        )
    if total_budget is None:
        total_budget = own if own in learned else min(learned)
    if total_budget not in learned:
        raise ValueError(
            f"allot: {path} has schedules for the total budgets "
            f"{', '.join(map(str, sorted(learned)))}, not for {total_budget}"
        )
    return learned[total_budget]


def _file(path: Union[str, "os.PathLike[str]"]) -> str:
    path = os.fspath(path)
    return os.path.join(path, "policy.json") if os.path.isdir(path) else path


def refuse_other_model(
    path: Union[str, "os.PathLike[str]"], folder: str, layers: int, heads: int, kv_heads: int
) -> None:
    """ValueError where a policy.json was made for another model than the one with these numbers, whose
    weights are in ``folder`` if that is a folder.

    A model is known by the SHA-256 of its weights as allot's worker takes it (of the safetensors, by name,
    one after the other); where policy or folder has none, by its layers and heads. A policy of an earlier
    build, which names no model, is taken.
    """
    path = _file(path)
    with open(path, encoding="utf-8") as file:
        try:
            made_for = (json.load(file) or {}).get("model") or {}
            numbers = [made_for.get(name) for name in ("layers", "heads", "kv_heads")]
            digest = made_for.get("weights_sha256")
        except (AttributeError, ValueError) as error:
            raise ValueError(
                f"allot: {path} is no policy.json as allot run or allot export writes it: {error!r}"
            ) from error
    own = weights_digest(folder) if digest else None
    differs = None
    if digest and own:
        if digest != own:
            differs = f"the SHA-256 of its weights is {digest[:12]}, this model's {own[:12]}"
    else:
        for what, number, here in zip(
            ("layers", "heads", "KV heads"), numbers, (layers, heads, kv_heads)
        ):
            if number is not None and number != here and differs is None:
                differs = f"it has {number} {what}, this model {here}"
    if differs:
        raise ValueError(
            f"allot: {path} was made for another model: {differs}; any_model=True takes it all the same"
        )


def weights_digest(folder: str) -> Optional[str]:
    """The SHA-256 of a folder's safetensors; None where it has none."""
    names = ["model.safetensors"]
    index_file = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(os.path.join(folder, names[0])):
        if not os.path.exists(index_file):
            return None
        with open(index_file, encoding="utf-8") as file:
            names = sorted(set(json.load(file)["weight_map"].values()))
    digest = hashlib.sha256()
    for name in names:
        with open(os.path.join(folder, name), "rb") as weights:
            while block := weights.read(1 << 24):
                digest.update(block)
    return digest.hexdigest()


def learned_schedules(path: str) -> tuple[dict[int, list[int]], Optional[int]]:
    """The schedules of a policy.json by total budget, and the run's own total budget."""
    with open(path, encoding="utf-8") as file:
        try:
            policy = json.load(file)
            if not isinstance(policy, dict):
                return {}, None
            rows = list(policy.get("frontier") or [])
            if policy.get("learned_schedule"):
                rows.append(policy)
            learned = {
                index(row["total_budget"]): [_draws(entry) for entry in row["learned_schedule"]]
                for row in rows
            }
            return learned, policy.get("total_budget")
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"allot: {path} is no policy.json as allot run or allot export writes it: {error!r}"
            ) from error


def _draws(entry: int) -> int:
    if not 0 <= index(entry) <= EVERYTHING:
        raise ValueError(f"{entry} is not from 0 to {EVERYTHING}")
    return index(entry)


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
