"""Runs in MLflow, read back through MLflow's own client."""

import json
import os
import tempfile

import allot
from outcomes import skip

EXPORT = os.path.join(os.path.dirname(__file__), "..", "golden", "verify", "exact-5")


def without_mlflow():
    for name in ("pandas", "mlflow", "sqlalchemy"):
        try:
            __import__(name)
        except ImportError:
            return skip(f"{name} is not installed: pip install mlflow pandas") or True
    return False


class Tracking:
    """A fresh MLflow in a folder: its database and its artifacts."""

    def __enter__(self):
        from mlflow import MlflowClient

        self.folder = tempfile.TemporaryDirectory()
        self.uri = f"sqlite:///{self.folder.name}/mlflow.db"
        self.client = MlflowClient(self.uri)
        self.client.create_experiment("golden", f"file://{self.folder.name}/artifacts")
        return self

    def __exit__(self, *error):
        self.folder.cleanup()

    def log(self, folder):
        logged = allot.log_to_mlflow(folder, self.uri)
        return logged, self.client.get_run(logged.run_id)

    def history(self, run, name):
        metrics = self.client.get_metric_history(run.info.run_id, name)
        return [(one.step, one.value) for one in sorted(metrics, key=lambda one: one.step)]

    def write(self, files):
        folder = os.path.join(self.folder.name, f"run{len(os.listdir(self.folder.name))}")
        os.makedirs(folder)
        for name, content in files.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(content)
        return folder


def test_a_run_is_read_back():
    if without_mlflow():
        return
    with Tracking() as tracking:
        files = {}
        for name in ("export.json", "history.jsonl", "evaluations.jsonl"):
            with open(os.path.join(EXPORT, name), encoding="utf-8") as file:
                files[name] = file.read()
        header = json.loads(files["export.json"])
        header["desired"] = "finished"
        files["export.json"] = json.dumps(header)
        logged, run = tracking.log(tracking.write(files))
        assert logged.artifacts == 0 and logged.params == len(run.data.params)
        updates = allot.read_run(EXPORT).updates
        for name, column in (("reward", "mean_reward"), ("lag_updates", "mean_lag_updates"),
                             ("effective_sample_size_ratio", "effective_sample_size_ratio"),
                             ("step_kl_nats", "step_kl_nats"), ("gradient_norm", "gradient_norm"),
                             ("entropy_nats", "entropy_nats")):
            assert tracking.history(run, name) == list(zip(updates["version"], updates[column]))
        results = [json.loads(line) for line in files["evaluations.jsonl"].splitlines()]
        scores = {}
        for result in results:
            unit = result["unit"]
            key = f"{unit['schedule_name']}.{unit['method']}.B{unit['total_budget']}"
            cell = scores.setdefault((key, int(unit["policy_version"])), [])
            cell.extend(one["score"] for one in result["scores"])
        cells = {}
        for (key, version), cell in scores.items():
            assert len(cell) == 40
            cells.setdefault(key, []).append((version, sum(cell) / 40))
        assert sorted(cells) == ["learned.s2anta-sys.B16", "learned.s2anta-sys.B8"]
        for key, expected in cells.items():
            found = tracking.history(run, f"accuracy.{key}")
            assert [step for step, _ in found] == [step for step, _ in sorted(expected)]
            for (_, value), (_, mean) in zip(found, sorted(expected)):
                assert abs(value - mean) < 1e-12, key
            for (_, low), (_, high) in zip(tracking.history(run, f"accuracy_low.{key}"),
                                           tracking.history(run, f"accuracy_high.{key}")):
                assert 0 <= low < high <= 1
        tags = {name: run.data.tags[f"allot.{name}"]
                for name in ("run_id", "experiment", "state", "episodes", "build")}
        assert tags == {"run_id": header["run_id"], "experiment": header["experiment"]["name"],
                        "state": "finished", "episodes": str(header["state"]["episodes"]),
                        "build": header["build"]}
        assert run.info.run_name == tags["run_id"] and run.info.status == "FINISHED"
        assert run.info.start_time == int(header["started_unix_ms"])


def test_a_second_export_replaces_the_first():
    if without_mlflow():
        return
    with Tracking() as tracking:
        first, _ = tracking.log(EXPORT)
        second, _ = tracking.log(EXPORT)
        runs = tracking.client.search_runs([second.experiment_id])
        assert [run.info.run_id for run in runs] == [second.run_id] != [first.run_id]


def test_every_version_repeats_and_the_report():
    if without_mlflow():
        return
    header = {
        "run_id": "R", "experiment": {"name": "golden"}, "started_unix_ms": "1000",
        "desired": "running", "build": "abc",
        "experiment_in_force": {"spec": {"task": {"held_out_questions": 2}, "seed": "3",
                                         "stop": {"max_worker_hours": 0.5}}},
    }

    def answers(version, schedule, scores, repeat=0, **unit):
        return {
            "unit": {"method": "a/b c=1", "schedule_name": schedule, "total_budget": "8",
                     "policy_version": str(version), "repeat": repeat, **unit},
            "scores": [{"question": q, "score": score} for q, score in enumerate(scores)],
            "counts": {"key_bytes": "3", "value_bytes": "1", "dense_bytes": "8"},
        }
    lines = [
        answers(1, "learned", [0, 1]), answers(1, "learned", [1, 1], 1),
        answers(2, "learned", [0.25, 0.5]), answers(2, "learned", [0.5, 0.75], 1),
        answers(3, "learned", [1]),  # not complete: a question and a repeat lack
        answers(0, "uniform", [1, 1], prefill="sale"),
        {"unit": {"measure": "fidelity"}},
    ]
    curve = ("method,schedule,total_budget,n,accuracy,ci_low,ci_high,version,task,kv_bytes_share,prefill,"
             "interval\n"
             "a/b c=1,learned,8,2,0.5,0.3,0.7,2,all,0.5,dense,bootstrap\n"
             "a/b c=1,learned,8,2,0.9,0.8,1,2,niah,,dense,wilson\n")
    with Tracking() as tracking:
        logged, run = tracking.log(tracking.write({
            "export.json": json.dumps(header), "curve.csv": curve, "report.html": "r",
            "experiment.yaml": "e", "export.csv": "no artifact",
            "evaluations.jsonl": "\n".join(map(json.dumps, lines))}))
        names = {artifact.path for artifact in tracking.client.list_artifacts(run.info.run_id)}
        assert names == {"report.html", "curve.csv", "experiment.yaml"} and logged.artifacts == 3
        [accuracy, other] = sorted(name for name in run.data.metrics if name.startswith("accuracy."))
        assert accuracy.startswith("accuracy.learned.a_b_c_1_") and accuracy.endswith(".B8")
        assert other.startswith("accuracy.uniform.sale___a_b_c_1_")
        assert tracking.history(run, accuracy) == [(1, 0.75), (2, 0.5)]
        low = accuracy.replace("accuracy", "accuracy_low")
        assert tracking.history(run, low)[1] == (2, 0.3)  # curve.csv's, by bootstrap
        share = accuracy.replace("accuracy", "kv_bytes_share")
        assert tracking.history(run, share) == [(1, 0.5), (2, 0.5)]
        assert run.data.params == {"spec.task.heldOutQuestions": "2", "spec.seed": "3",
                                   "spec.stop.maxWorkerHours": "0.5"}
        assert run.data.tags["allot.state"] == "exported" and run.info.status == "RUNNING"
        assert run.data.tags["allot.build"] == "abc"
        assert run.data.tags["allot.intervals"] == "bootstrap, wilson"


def test_names_of_mlflow_stay_apart():
    from allot.mlflow_export import metric_name

    for plain in ("s2anta-sys", "spec.policy.totalBudget"):
        assert metric_name(plain) == plain
    texts = ["../../etc", "a/b", "a\\b", "a b", "a=b", "..", ".", "", "a..b", "\udcff", "x" * 3000,
             "x" * 3001, "skip-softmax threshold=0.1 + top-k", "é"]
    names = [metric_name(text) for text in texts]
    assert len(set(names)) == len(texts)
    for name in names:
        assert len(name) <= 100 and ".." not in name and not name.startswith(".")
        assert all(c.isascii() and (c.isalnum() or c in "_.-") for c in name), name
