"""A run in MLflow: settings as params, updates and evaluations as metrics, the report as artifacts.

    python3 -m allot.mlflow_export RUN [--uri URI]

RUN is the folder of a run that has ended, or what ``allot export`` writes. URI is MLflow's tracking
URI; without it MLFLOW_TRACKING_URI or MLflow's own default. Needs mlflow (mlflow-skinny is enough
with a server) and pandas: ``pip install ./python[mlflow]``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Iterator, Optional, Union

from allot.results import _as_written, _cells, _lines, read_run

if TYPE_CHECKING:
    import pandas
    from allot.results import Run

__all__ = ["Logged", "log_to_mlflow"]

_LONGEST_NAME = 100
_LONGEST_PARAM = 5000  # MLflow refuses params of more than 6000
_UPDATE_METRICS = {
    "reward": "mean_reward",
    "lag_updates": "mean_lag_updates",
    "effective_sample_size_ratio": "effective_sample_size_ratio",
    "step_kl_nats": "step_kl_nats",
    "gradient_norm": "gradient_norm",
    "entropy_nats": "entropy_nats",
}
_CELL_METRICS = {
    "accuracy": "accuracy",
    "accuracy_low": "ci_low",
    "accuracy_high": "ci_high",
    "kv_bytes_share": "kv_bytes_share",
}
_CELL = ["method", "schedule", "prefill", "total_budget", "version"]
_ARTIFACTS = (
    "report.html", "curve.csv", "curve.svg", "policy.json", "summary.json", "fidelity.csv",
    "variance.csv", "experiment.yaml",
)


@dataclass(frozen=True)
class Logged:
    """What ``log_to_mlflow`` gives: ids of MLflow's, and counts (metrics: names)."""

    experiment_id: str
    run_id: str
    params: int
    metrics: int
    artifacts: int


def log_to_mlflow(
    folder: Union[str, "os.PathLike[str]"], tracking_uri: Optional[str] = None
) -> Logged:
    """Writes the run in ``folder`` to MLflow, in place of an earlier copy of the same run.

    MLflow's experiment has the name of allot's, and the run that of allot's run id. Steps of metrics
    are updates; their times are when the update was made.
    ValueError: a folder that holds no run (see ``read_run``).
    """
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag

    run = read_run(folder)
    kinds = sorted(set(run.evaluations["interval"].dropna())) if "interval" in run.evaluations else []
    path = os.path.join(run.folder, "export.json")
    with open(path, encoding="utf-8") as file, _as_written(path):
        header = json.load(file)
        started = int(header.get("started_unix_ms", 0))
        spec = (header.get("experiment_in_force") or header["experiment"])["spec"]
        questions = int(spec["task"].get("held_out_questions", 0))
        params = dict(_settings(spec, "spec"))
        desired = header.get("desired", "running")
        tags = {
            "allot.run_id": run.run_id,
            "allot.experiment": run.experiment,
            "allot.state": "exported" if desired == "running" else desired,
            "allot.build": header.get("build", ""),
            "allot.intervals": ", ".join(kinds),
            "allot.episodes": str(header.get("state", {}).get("episodes", 0)),
            "mlflow.source.name": "allot",
            "mlflow.source.type": "LOCAL",
            "mlflow.user": "allot",
        }
    times = dict(zip(run.updates["version"], _milliseconds(run.updates["committed"])))
    reads, evaluated = _reads(run.folder)
    metrics = [
        *_of_updates(run, times),
        *_of_cells(_evaluations(run, questions, reads), times, started),
    ]

    client = MlflowClient(tracking_uri)
    name = run.experiment[:_LONGEST_NAME]
    experiment = client.get_experiment_by_name(name)
    experiment_id = experiment.experiment_id if experiment else client.create_experiment(name)
    earlier = client.search_runs([experiment_id], f"tags.`allot.run_id` = '{run.run_id}'")
    made = client.create_run(experiment_id, start_time=started, run_name=run.run_id, tags=tags)
    run_id = made.info.run_id
    for some in _batches(list(params.items()), 100):
        client.log_batch(run_id, params=[Param(key, value) for key, value in some])
    for some in _batches(metrics, 1000):
        client.log_batch(run_id, metrics=[Metric(*one) for one in some])
    artifacts = 0
    for file_name in _ARTIFACTS:
        if os.path.exists(os.path.join(run.folder, file_name)):
            client.log_artifact(run_id, os.path.join(run.folder, file_name))
            artifacts += 1
    if desired in ("finished", "stopped"):
        status = "FINISHED" if desired == "finished" else "KILLED"
        client.set_terminated(run_id, status, max([started, evaluated, *times.values()]))
    # The new one is whole.
    for one in earlier:
        client.delete_run(one.info.run_id)
    return Logged(experiment_id, run_id, len(params), len({one[0] for one in metrics}), artifacts)


def metric_name(text: str) -> str:
    """Text as a part of a name of MLflow's: letters, digits, '_', '-' and '.', at most 100 of them;
    two texts give two names."""
    name = re.sub(r"(?<=\.)\.|^\.|[^\w.-]", "_", text, flags=re.ASCII)
    if name == text and 0 < len(text) <= _LONGEST_NAME:
        return name
    # What was replaced or cut may have been all that told two of them apart.
    tail = "_" + hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:6]
    return name[: _LONGEST_NAME - len(tail)] + tail


def _settings(node: Any, path: str) -> Iterator[tuple[str, str]]:
    """("spec.policy.totalBudget", "8") for each leaf, named as in an experiment file."""
    if isinstance(node, dict):
        for key, child in node.items():
            words = key.split("_")
            yield from _settings(child, f"{path}.{words[0]}" + "".join(map(str.title, words[1:])))
    else:
        text = node if isinstance(node, str) else json.dumps(node, separators=(",", ":"))
        yield metric_name(path), text[:_LONGEST_PARAM]


def _milliseconds(times: "pandas.Series") -> list[int]:
    return [round(time.timestamp() * 1000) for time in times]


def _of_updates(run: "Run", times: dict[int, int]) -> Iterator[tuple[str, float, int, int]]:
    """(name, value, time in ms, step) of each update."""
    for update in run.updates.to_dict("records"):
        for name, column in _UPDATE_METRICS.items():
            if math.isfinite(update[column]):
                yield name, update[column], times[update["version"]], update["version"]


def _of_cells(
    cells: "pandas.DataFrame", times: dict[int, int], started: int
) -> Iterator[tuple[str, float, int, int]]:
    for cell in cells.to_dict("records"):
        method, version = cell["method"], int(cell["version"])
        if cell["prefill"] != "dense":
            method = f"{cell['prefill']} + {method}"
        place = f"{metric_name(cell['schedule'])}.{metric_name(method)}.B{cell['total_budget']}"
        for name, column in _CELL_METRICS.items():
            if math.isfinite(cell[column]):
                yield f"{name}.{place}", cell[column], times.get(version, started), version


def _evaluations(run: "Run", questions: int, reads: "pandas.Series") -> "pandas.DataFrame":
    """A row a complete cell of every version. What curve.csv has of it comes from there: its
    intervals are bootstraps where a score is neither 0 nor 1."""
    sizes = run.answers.groupby(_CELL)
    asked = sizes["question"].transform("nunique")
    whole = sizes["question"].transform("size") == asked * (sizes["repeat"].transform("max") + 1)
    cells = _cells(run.answers[whole & (asked == questions)], every_version=True)
    cells = cells.join(reads, on=_CELL)
    columns = [name for name in _CELL_METRICS.values() if name in run.evaluations]
    if not os.path.exists(os.path.join(run.folder, "curve.csv")):
        return cells
    table = run.evaluations[run.evaluations["task"] == "all"]
    table = table.assign(prefill=table.get("prefill", "dense")).fillna({"prefill": "dense"})
    exact = table.set_index(_CELL)[columns]
    cells = cells.set_index(_CELL)
    cells.update(exact[~exact.index.duplicated()])
    return cells.reset_index()


def _reads(folder: str) -> tuple["pandas.Series", int]:
    """Bytes of keys and values that each cell read, over those that dense attention reads; and when
    the last answer came, in ms."""
    import pandas

    sums: dict[tuple[Any, ...], list[int]] = {}
    last = 0

    def read(result: dict[str, Any]) -> None:
        nonlocal last
        unit, counts = result["unit"], result.get("counts", {})
        last = max(last, int(result.get("finished_unix_ms", 0)))
        cell = (
            unit.get("method", ""),
            unit.get("schedule_name", ""),
            unit.get("prefill") or "dense",
            int(unit.get("total_budget", 0)),
            int(unit.get("policy_version", 0)),
        )
        total = sums.setdefault(cell, [0, 0])
        total[0] += int(counts.get("key_bytes", 0)) + int(counts.get("value_bytes", 0))
        total[1] += int(counts.get("dense_bytes", 0))

    _lines(folder, "evaluations.jsonl", read)
    shares = {cell: done / dense for cell, (done, dense) in sums.items() if dense > 0}
    index = pandas.MultiIndex.from_tuples(list(shares), names=_CELL) if shares else (
        pandas.MultiIndex.from_arrays([[]] * len(_CELL), names=_CELL))
    shares_of = pandas.Series(list(shares.values()), index=index, name="kv_bytes_share", dtype=float)
    return shares_of, last


def _batches(items: list[Any], size: int) -> Iterator[list[Any]]:
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python3 -m allot.mlflow_export",
        description="Write runs to MLflow, each in place of an earlier copy of itself.",
    )
    parser.add_argument("run", nargs="+", help="folder of a run that has ended, or of an export")
    parser.add_argument("--uri", help="MLflow's tracking URI [MLFLOW_TRACKING_URI, or its default]")
    options = parser.parse_args()
    try:
        for folder in options.run:
            done = log_to_mlflow(folder, options.uri)
            print(
                f"{folder}: run {done.run_id} of MLflow's experiment {done.experiment_id}, "
                f"{done.params} params, {done.metrics} metrics, {done.artifacts} artifacts"
            )
    except ImportError as error:
        sys.exit(f"allot: {error.name} is not installed: pip install mlflow pandas")
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
