"""Results of runs as data frames, from an export and a folder with a report."""

import hashlib
import json
import os
import tempfile

import allot
from outcomes import refusal, skip

EXPORT = os.path.join(os.path.dirname(__file__), "..", "golden", "verify", "exact-5")


def without_pandas():
    try:
        import pandas  # noqa: F401
    except ImportError:
        return skip("pandas is not installed: pip install pandas") or True
    return False


def test_an_export_is_read():
    if without_pandas():
        return
    run = allot.read_run(EXPORT)
    assert run.experiment == "small" and len(run.run_id) == 26
    assert run.updates["version"].tolist() == list(range(1, 9))
    assert (run.updates["episodes"] == 3).all() and len(run.episodes) == 24
    assert str(run.updates["committed"].dt.tz) == "UTC"
    assert (run.episodes["schedule"].map(sum) == 8).all()
    for version, part in run.episodes.groupby("consumed_by_version"):
        mean = run.updates.set_index("version")["mean_reward"][version]
        assert abs(part["reward"].mean() - mean) < 1e-12
    assert len(run.answers) > 0
    cells = run.evaluations.set_index(["schedule", "total_budget"])
    for place, part in run.answers.groupby(["schedule", "total_budget"]):
        cell = cells.loc[place]
        assert cell["n"] == len(part) and cell["accuracy"] == part["score"].mean()
        assert 0 <= cell["ci_low"] <= cell["accuracy"] <= cell["ci_high"] <= 1
        assert cell["interval"] == "wilson"


def test_wilsons_interval_is_the_tables():
    from allot.results import _wilson95

    # What summary.json of a run had for 7 of 16 and 1 of 16.
    for right, low, high in ((7, 0.23098652405492354, 0.6682144360118811),
                             (1, 0.01111934476464252, 0.28328737570298945)):
        ours = _wilson95(right, 16)
        assert abs(ours[0] - low) < 1e-9 and abs(ours[1] - high) < 1e-9


def test_a_reports_table_and_schedules_are_taken():
    if without_pandas():
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (
            ("export.json", json.dumps({"run_id": "R", "experiment": {"name": "x"}})),
            ("curve.csv", "method,schedule,total_budget,n,accuracy,ci_low,ci_high,version,task\n"
                          "dense,dense,0,9,0.9,0.8,0.95,0,all\n"
                          "s2anta-sys,learned,8,9,0.5,0.4,0.6,3,all\n"
                          "s2anta-sys,learned,16,9,0.7,0.6,0.8,3,all\n"),
            ("policy.json", json.dumps({"total_budget": 8, "learned_schedule": [5, 3], "frontier": [
                {"total_budget": 16, "learned_schedule": [9, 7]}]})),
        ):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        run = allot.read_run(folder)
        assert run.schedules.values.tolist() == [[8, 0, 5], [8, 1, 3], [16, 0, 9], [16, 1, 7]]
        assert len(run.updates) == len(run.episodes) == len(run.answers) == 0
        assert run.evaluations["accuracy"].tolist() == [0.9, 0.5, 0.7]
        assert run.curve_svg() is None
        with open(os.path.join(folder, "curve.svg"), "w", encoding="utf-8") as file:
            file.write("<svg/>")
        assert run.curve_svg() == run._repr_svg_() == "<svg/>"


def test_cells_of_different_prompts_are_different_cells():
    if without_pandas():
        return
    with tempfile.TemporaryDirectory() as folder:
        lines = [
            {"unit": {"method": "dense", "schedule_name": "uniform", "total_budget": 8, "prefill": prefill},
             "scores": [{"question": q, "score": score} for q in range(20)]}
            for prefill, score in (("", 1), ("sale", 0))
        ]
        for name, text in (("export.json", "{}"), ("evaluations.jsonl", "\n".join(map(json.dumps, lines)))):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        run = allot.read_run(folder)
        cells = run.evaluations[["prefill", "n", "accuracy"]].values.tolist()
        assert sorted(cells) == [["dense", 20, 1.0], ["sale", 20, 0.0]], cells


def test_other_folders_are_refused():
    if without_pandas():
        return
    with tempfile.TemporaryDirectory() as folder:
        assert "holds no export.json" in refusal(lambda: allot.read_run(folder))
        path = os.path.join(folder, "policy.json")
        for text in ('{"total_budget": 8, "learned_schedule": []}', "[]"):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            assert "holds no learned schedule" in refusal(lambda: allot.read_schedule(folder))


RECALL = os.path.join(os.path.dirname(__file__), "..", "..", "experiments", "models", "recall-7m")


def test_policies_of_other_models_are_refused():
    """By the digest of the weights where both have one, else by layers and heads."""
    from allot.schedules import refuse_other_model, weights_digest

    own = weights_digest(RECALL)
    with tempfile.TemporaryDirectory() as folder:
        assert weights_digest(folder) is None

        def said(made_for, weights=RECALL):
            with open(os.path.join(folder, "policy.json"), "w", encoding="utf-8") as file:
                json.dump({"total_budget": 8, "learned_schedule": [1] * 8, **made_for}, file)
            try:
                refuse_other_model(folder, weights, 8, 8, 4)
            except ValueError as error:
                return str(error)
            return None

        numbers = {"layers": 8, "heads": 8, "kv_heads": 4}
        assert said({}) is None and said({"model": None}) is None  # of an earlier build
        assert said({"model": {**numbers, "weights_sha256": own}}) is None
        assert said({"model": {"layers": 9, "weights_sha256": own}}) is None  # the weights decide
        assert f"is {'0' * 12}, this model's {own[:12]}; any_model=True takes it all the same" in said(
            {"model": {**numbers, "weights_sha256": "0" * 64}}
        )
        assert said({"model": {**numbers, "weights_sha256": "0" * 64}}, "some/name") is None
        assert "was made for another model: it has 2 KV heads, this model 4" in said(
            {"model": {**numbers, "kv_heads": 2}}
        )
        assert "is no policy.json" in said({"model": 5})
        # A model in several files, by their names.
        for name, text in (("b.safetensors", b"second"), ("a.safetensors", b"first "),
                           ("model.safetensors.index.json",
                            b'{"weight_map": {"x": "b.safetensors", "y": "a.safetensors"}}')):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(text)
        assert weights_digest(folder) == hashlib.sha256(b"first second").hexdigest()


def test_damaged_files_get_a_sentence_with_their_name():
    if without_pandas():
        return
    policies = ("", "nope", '{"learned_schedule": [1]}', '{"total_budget": 8, "learned_schedule": "abc"}',
                '{"total_budget": 8, "learned_schedule": [null]}',
                '{"total_budget": 8, "learned_schedule": [1.5, 2]}',
                '{"total_budget": 8, "learned_schedule": [-2]}',
                '{"total_budget": 8, "frontier": [{}]}', '{"total_budget": 8, "frontier": [1]}',
                '{"total_budget": 8, "frontier": 5}')
    runs = (("export.json", "[]"), ("export.json", "nope"), ("export.json", '{"experiment": 5}'),
            ("history.jsonl", "[]"), ("history.jsonl", '{"version": "x"}'),
            ("history.jsonl", '{"version": 1, "results": [{"schedule": 5}]}'),
            ("evaluations.jsonl", "{}"), ("evaluations.jsonl", '{"unit": 5}'),
            ("evaluations.jsonl", '{"unit": {}, "scores": [5]}'), ("curve.csv", ""),
            ("curve.csv", "no,such\n1,2\n"), *(("policy.json", text) for text in policies))
    for name, text in runs:
        with tempfile.TemporaryDirectory() as folder:
            for file_name, content in (("export.json", "{}"), (name, text)):
                with open(os.path.join(folder, file_name), "w", encoding="utf-8") as file:
                    file.write(content)
            sentence = refusal(lambda: allot.read_run(folder))
            assert os.path.join(folder, name) in sentence, (name, text, sentence)
            if name == "policy.json":
                sentence = refusal(lambda: allot.read_schedule(folder))
                assert os.path.join(folder, name) in sentence, (text, sentence)
