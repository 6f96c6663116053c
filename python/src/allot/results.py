"""A run's results as data frames, and its curve as the picture that allot drew.

A run's folder holds them once it has ended or been exported (``allot run``, ``allot export``):
export.json, history.jsonl, evaluations.jsonl, and where a report was written curve.csv and policy.json.
Needs pandas: ``pip install ./python[results]``.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional, Union

from allot.schedules import learned_schedules

if TYPE_CHECKING:
    import pandas

__all__ = ["Run", "read_run"]


@dataclass(frozen=True)
class Run:
    """What ``read_run`` gives.

    updates: a row an update: version, mean_reward (0..1), mean_lag_updates, effective_sample_size_ratio,
    step_kl_nats, entropy_nats, gradient_norm, episodes, committed (UTC).
    episodes: a row an episode: ticket, consumed_by_version, policy_version, reward, seconds, worker,
    device, schedule (reads, a tuple).
    evaluations: a row a cell of the newest version that has it: method, schedule, total_budget (reads
    per head and token over all layers), task ("all" beside each), n (questions), accuracy, ci_low and
    ci_high (95 %), interval (how these were computed), version, prefill, and the other columns of
    curve.csv where there is one.
    answers: a row an answered question: method, schedule, total_budget, version, repeat, prefill (the
    method that read the prompt), question, task (its number), score (0..1), tokens.
    schedules: a row an entry of a learned schedule: total_budget, entry (of a layer, KV head or head,
    layer by layer), reads.
    """

    folder: str
    run_id: str
    experiment: str
    updates: "pandas.DataFrame"
    episodes: "pandas.DataFrame"
    evaluations: "pandas.DataFrame"
    answers: "pandas.DataFrame"
    schedules: "pandas.DataFrame"

    def curve_svg(self) -> Optional[str]:
        """Accuracy against the total budget with 95 % intervals: the text of curve.svg, where there
        is one. ``allot plot`` draws others of curve.csv."""
        path = os.path.join(self.folder, "curve.svg")
        if not os.path.exists(path):
            return None
        with open(path, encoding="utf-8") as file:
            return file.read()

    # What a notebook shows of a run.
    _repr_svg_ = curve_svg


def read_run(folder: Union[str, "os.PathLike[str]"]) -> Run:
    """Reads the folder of a run that has ended, or of an export.

    ValueError: a folder that holds no such files (a run that goes on: ``allot export`` writes them).
    """
    import pandas

    folder = os.fspath(folder)
    path = os.path.join(folder, "export.json")
    if not os.path.exists(path):
        raise ValueError(
            f"allot: {folder} holds no export.json: it is the folder of a run that has ended, or what "
            "allot export writes"
        )
    with open(path, encoding="utf-8") as file, _as_written(path):
        header = json.load(file)
        run_id, experiment = header.get("run_id", ""), header.get("experiment", {}).get("name", "")
    updates, episodes = _history(folder)
    answers = pandas.DataFrame(
        _answers(folder),
        columns=[
            "method", "schedule", "total_budget", "version", "repeat", "prefill", "question", "task",
            "score", "tokens",
        ],
    )
    curve = os.path.join(folder, "curve.csv")
    evaluations = _table(curve) if os.path.exists(curve) else _cells(answers)
    return Run(
        folder=folder,
        run_id=run_id,
        experiment=experiment,
        updates=updates,
        episodes=episodes,
        evaluations=evaluations,
        answers=answers,
        schedules=pandas.DataFrame(
            list(_schedules(folder)), columns=["total_budget", "entry", "reads"]
        ),
    )


@contextmanager
def _as_written(place: str) -> Iterator[None]:
    """What a damaged file leads to, as one sentence that names it."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"allot: {place} is not as allot export writes it: {error!r}") from error


def _lines(folder: str, name: str, read: Callable[[dict[str, Any]], None]) -> None:
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            with _as_written(f"{path}, line {number},"):
                read(json.loads(line))


def _table(path: str) -> "pandas.DataFrame":
    import pandas

    with _as_written(path):
        frame = pandas.read_csv(path)
        for name in ("method", "schedule", "total_budget", "accuracy", "task"):
            frame[name]  # there
        return frame


# 64-bit numbers are strings in the files, and what is 0 may be left out.
_NUMBERS = (
    "mean_reward",
    "mean_lag_updates",
    "effective_sample_size_ratio",
    "step_kl_nats",
    "entropy_nats",
    "gradient_norm",
)


def _history(folder: str) -> tuple["pandas.DataFrame", "pandas.DataFrame"]:
    import pandas

    updates: list[dict[str, Any]] = []
    episodes: list[dict[str, Any]] = []

    def read(record: dict[str, Any]) -> None:
        version, results = int(record.get("version", 0)), record.get("results", [])
        update: dict[str, float] = {"version": version}
        update.update({name: float(record.get(name, 0)) for name in _NUMBERS})
        update["episodes"] = len(results)
        update["committed"] = int(record.get("committed_unix_ms", 0))
        updates.append(update)
        for result in results:
            episodes.append(
                {
                    "ticket": int(result.get("ticket", 0)),
                    "consumed_by_version": version,
                    "policy_version": int(result.get("policy_version", 0)),
                    "reward": float(result.get("reward", 0)),
                    "seconds": float(result.get("seconds", 0)),
                    "worker": result.get("worker", ""),
                    "device": result.get("device", ""),
                    "schedule": tuple(result.get("schedule", ())),
                }
            )

    _lines(folder, "history.jsonl", read)
    frame = pandas.DataFrame(updates, columns=["version", *_NUMBERS, "episodes", "committed"])
    frame["committed"] = pandas.to_datetime(frame["committed"], unit="ms", utc=True)
    columns = [
        "ticket", "consumed_by_version", "policy_version", "reward", "seconds", "worker", "device",
        "schedule",
    ]
    return frame, pandas.DataFrame(episodes, columns=columns)


def _answers(folder: str) -> list[tuple[Any, ...]]:
    answers: list[tuple[Any, ...]] = []

    def read(result: dict[str, Any]) -> None:
        unit = result["unit"]
        if unit.get("measure", "accuracy") not in ("", "accuracy"):
            return
        cell = (
            unit.get("method", ""),
            unit.get("schedule_name", ""),
            int(unit.get("total_budget", 0)),
            int(unit.get("policy_version", 0)),
            int(unit.get("repeat", 0)),
            unit.get("prefill") or "dense",
        )
        for score in result.get("scores", []):
            answers.append(
                (
                    *cell,
                    int(score.get("question", 0)),
                    int(score.get("task", 0)),
                    float(score.get("score", 0)),
                    int(score.get("tokens", 0)),
                )
            )

    _lines(folder, "evaluations.jsonl", read)
    return answers


def _cells(answers: "pandas.DataFrame", every_version: bool = False) -> "pandas.DataFrame":
    """Cells, of the newest version alone or of every one, with Wilson's interval, which for scores
    between 0 and 1 is conservative."""
    import pandas

    rows = []
    cell_names = ["method", "schedule", "prefill", "total_budget"]
    newest = answers.groupby(cell_names)["version"].transform("max")
    now = answers if every_version else answers[answers["version"] == newest]
    # A question counts once, with the mean of its repeats.
    each = now.groupby([*cell_names, "version", "question"], as_index=False)["score"].mean()
    for key, cell in each.groupby([*cell_names, "version"]):
        method, schedule, prefill, total, version = key
        low, high = _wilson95(cell["score"].sum(), len(cell))
        mean = cell["score"].mean()
        rows.append(
            (method, schedule, total, len(cell), mean, low, high, version, "all", prefill, "wilson")
        )
    return pandas.DataFrame(
        rows,
        columns=[
            "method", "schedule", "total_budget", "n", "accuracy", "ci_low", "ci_high", "version",
            "task", "prefill", "interval",
        ],
    )


def _wilson95(total: float, n: int) -> tuple[float, float]:
    """Wilson's score interval, 95 %, for the mean of n scores in 0..1 (core/evaluation/score_statistics.h)."""
    if n == 0:
        return 0.0, 1.0
    z = 1.959963984540054
    p, shrink = total / n, 1 + z * z / n
    centre = (p + z * z / (2 * n)) / shrink
    half = z / shrink * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def _schedules(folder: str) -> Iterator[tuple[int, int, int]]:
    path = os.path.join(folder, "policy.json")
    if not os.path.exists(path):
        return
    learned, _ = learned_schedules(path)
    for total, schedule in sorted(learned.items()):
        for entry, reads in enumerate(schedule):
            yield total, entry, reads
