"""A job with all steps: what each party finds in its folder, and that it is what the API gives."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.job_cases import COMPLETE, EVALUATE, HEAD, PU, RISA, TRAIN, files_below, vfsl, write_case
from vfsl.data import read_table
from vfsl.estimators import XGB, load_model
from vfsl.job import load_job, preview, run_job
from vfsl.record import RunRecord

ALL = HEAD + PU + COMPLETE + TRAIN + RISA + EVALUATE


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("job")
    found = write_case(folder, ALL)
    events = []
    fed = run_job(load_job(folder / "job.toml"), folder, folder / "out", events.append)
    return folder, found, fed, events


def test_every_party_finds_its_own_results(case):
    folder = case[0]
    by_party = {
        party: {path.name for path in (folder / "out/parties" / party).iterdir()} for party in "BC"
    }
    shares = {"vfpu-2-share.json", "model-4-share.json", "model-5-share.json"}
    assert by_party["B"] == shares | {
        "aligned.csv",
        "completed-3.parquet",
        "importances-4.csv",
        "provenance-3.parquet",
        "quality-3.csv",
        "verdicts-3.json",
    }
    assert by_party["C"] == shares | {
        "advice-3.json",
        "advice-3.txt",
        "aligned.csv",
        "bands-6.csv",
        "importances-4.csv",
        "metrics-6.json",
        "parties-4.csv",
        "predictions-4.csv",
        "predictions-5.csv",
        "pu-scores-2.csv",
        "reliable-positives-2.csv",
        "thresholds-6.csv",
    }
    assert not (folder / "out/parties/A").exists()
    assert not (folder / "out.unfinished").exists()


def test_completed_columns_have_the_types_units_and_names_of_the_table(case):
    folder, found, _, _ = case
    real = found["B"]
    done = pd.read_parquet(folder / "out/parties/B/completed-3.parquet")
    assert list(done) == list(real)
    aligned = set(pd.read_csv(folder / "out/parties/C/aligned.csv", dtype=str)["id"])
    assert set(done["id"]) == set(found["C"]["id"]) - aligned
    for name in real.columns.drop("id"):
        if pd.api.types.is_bool_dtype(real[name].dtype):
            assert pd.api.types.is_bool_dtype(done[name].dtype)
        elif pd.api.types.is_integer_dtype(real[name].dtype):
            assert pd.api.types.is_integer_dtype(done[name].dtype)
        if pd.api.types.is_numeric_dtype(real[name].dtype):
            assert done[name].between(real[name].min(), real[name].max()).all()
        else:
            assert set(done[name]) <= set(real[name].dropna())


def test_every_cell_has_its_provenance(case):
    folder = case[0]
    done = pd.read_parquet(folder / "out/parties/B/completed-3.parquet").set_index("id")
    cells = pd.read_parquet(folder / "out/parties/B/provenance-3.parquet")
    named = ["id", "column", "route", "model", "round", "confidence", "low", "high", "probability"]
    assert list(cells) == named
    assert len(cells) == done.size
    numbers = [name for name in done if not set(done[name]) <= {True, False}]
    numbers = [name for name in numbers if pd.api.types.is_numeric_dtype(done[name])]
    is_number = cells["column"].isin(numbers)
    assert cells.loc[is_number, ["low", "high"]].notna().all(axis=None)
    assert cells.loc[~is_number, "probability"].between(0, 1).all()
    assert cells.loc[is_number, "probability"].isna().all()
    one = cells[cells["column"] == numbers[0]].set_index("id")
    inside = done[numbers[0]].astype(float).between(one["low"] - 1, one["high"] + 1)
    assert inside.all()  # whole numbers are rounded


def test_quality_verdicts_and_advice(case):
    folder = case[0]
    quality = pd.read_csv(folder / "out/parties/B/quality-3.csv")
    assert list(quality)[:2] == ["column", "route"]
    verdicts = json.loads((folder / "out/parties/B/verdicts-3.json").read_text())
    assert dict(zip(quality["column"], quality["verdict"], strict=True)) == verdicts["columns"]
    assert set(verdicts["columns"].values()) <= {"use", "use with care", "no better than mean"}
    advice = json.loads((folder / "out/parties/C/advice-3.json").read_text())
    ways = {line["way"] for line in advice["ways"]}
    assert {"common rows only", "own columns only", "completed, weighted", "blend"} <= ways
    assert (folder / "out/parties/C/advice-3.txt").read_text().strip() == advice["text"]


def test_no_model_learns_from_rows_that_are_held_out(case):
    folder, _, fed, _ = case
    common = len(fed.plan.overlap)
    test = round(0.25 * common)
    by_name = {step.name: step for step in fed.steps}
    assert by_name["confidence of completed rows"].metrics["completed rows"] > 0
    public = json.loads((folder / "out/parties/C/metrics-6.json").read_text())
    assert public["test rows"] == test
    quality = pd.read_csv(folder / "out/parties/B/quality-3.csv")
    assert quality["rows"].max() <= common - test


def test_only_rows_held_out_are_asked_after_training(case):
    """Of all other common rows the label holder has the scores of training."""
    test = round(0.25 * len(case[2].plan.overlap))
    asked = [step.settings for step in case[2].steps if step.name == "predict xgb"]
    # The predictions of the train step, then the evaluation, with B and without.
    assert [one["new rows"] for one in asked] == [test, test, test]
    assert [one.get("offline") for one in asked] == [None, None, ["B"]]


def test_metrics_are_those_of_predictions_on_the_rows_held_out(case):
    """Computed again from the predictions of all aligned rows and the truth."""
    from sklearn.metrics import roc_auc_score

    folder, found, fed, _ = case
    page = json.loads((folder / "out/parties/C/metrics-6.json").read_text())
    ids = pd.read_csv(folder / "out/parties/C/aligned.csv", dtype=str)["id"]
    drawn = np.sort(fed.rng("test rows").permutation(len(ids))[: page["test rows"]])
    held = ids[drawn]
    said = pd.read_csv(folder / "out/parties/C/predictions-4.csv", dtype={"id": str})
    chances = said.set_index("id")["probability"][held]
    truth = found["C"].set_index("id")["late"][held]
    line = next(m for m in page["metrics"] if m["model"] == "xgb with completed rows")
    assert line["measure"] == "AUC"
    assert line["value"] == pytest.approx(roc_auc_score(truth == "yes", chances))
    assert line["low"] <= line["value"] <= line["high"]
    models = [line["model"] for line in page["metrics"] if line["measure"] == "AUC"]
    assert models == [
        "xgb with completed rows",
        "xgb with completed rows without B",
        "risa",
        "risa without B",
        "own columns, boosted trees",
        "own columns, linear",
        "prior, no columns",
    ]
    assert page["metrics"][-3]["value"] == 0.5


def test_the_record_has_the_metrics_and_the_verdict(case):
    folder = case[0]
    record = RunRecord.load(folder / "out")
    last = record.steps[-1]
    page = json.loads((folder / "out/parties/C/metrics-6.json").read_text())
    assert last.name == "evaluate"
    assert last.details["metrics"] == page["metrics"]
    assert last.details["verdict"] == page["verdict"] == last.notes[0]
    assert last.metrics["held-out AUC of xgb with completed rows"] == page["metrics"][0]["value"]
    assert "late" not in json.dumps(last.details)


def test_a_saved_risa_predicts_as_it_did(case):
    folder, found, fed, _ = case
    model = load_model(folder / "out", "model-5")
    assert model.label_ == ("C", "late")
    written = pd.read_csv(folder / "out/parties/C/predictions-5.csv", dtype={"id": str})
    assert len(written) == len(found["C"])  # RISA answers for rows that only C has, too
    assert written["scored_by"].eq("joint").sum() == len(fed.plan.overlap)
    test = round(0.25 * len(fed.plan.overlap))
    assert written["rows"].value_counts()["held-out"] == test
    assert not written.loc[written["scored_by"] == "own columns", "rows"].eq("held-out").any()
    np.testing.assert_allclose(written["probability"], model.predict_proba(fed, rows="all")[:, 1])
    np.testing.assert_allclose(written["uncertainty"], model.uncertainty(fed, rows="all"))


def test_saved_models_of_a_job_score_new_files(case, tmp_path, monkeypatch, capsys):
    folder = case[0]
    files = ["--party", f"B={folder / 'B.parquet'}", "--party", f"C={folder / 'C.csv'}"]
    options = [*files, "--id", "id", "--protocol", "ecdh", "--scheme", "plain"]
    for name in ("model-4", "model-5"):
        out = tmp_path / name
        code = vfsl(monkeypatch, "predict", folder / "out", *options, "--model", name, "--out", out)
        assert code == 0, capsys.readouterr().err
        new = pd.read_csv(out / "parties/C/predictions.csv", dtype={"id": str}).set_index("id")
        number = name[-1]
        old = pd.read_csv(folder / f"out/parties/C/predictions-{number}.csv", dtype={"id": str})
        assert set(new.pop("rows")) == {"new"}  # another run does not know what it learned from
        old = old.drop(columns="rows").set_index("id")
        pd.testing.assert_frame_equal(new.sort_index(), old.sort_index(), check_exact=False)


def test_events_name_columns_epochs_and_rounds(case):
    found, events = case[1], case[3]
    columns = [event for event in events if event.step == "cross-fit" and event.total]
    assert {event.total for event in columns} == {found["B"].shape[1] - 1}
    assert all(event.stage.split(" and ")[0] in found["B"].columns for event in columns)
    epochs = [event.done for event in events if event.step == "train risa" and event.total == 12]
    assert epochs == list(range(1, 13))
    trees = [event for event in events if event.step == "train xgb" and event.total == 2]
    assert [event.done for event in trees][:1] == [1]
    assert any("bags" in event.stage for event in events)


def test_a_dry_run_names_what_the_run_reveals(case):
    folder, _, fed, _ = case
    seen = preview(load_job(folder / "job.toml"), folder)
    real = {
        (step.name, flow.sender, flow.receiver, flow.message, flow.fact)
        for step in fed.steps
        for flow in step.flows
    }
    told = {(r.step, r.sender, r.receiver, r.message, r.fact) for r in seen.reveals}
    # A column that only a direct model of one round predicts sends what VFPU-M sends.
    direct = {("vfpu-m", *line[1:]) for line in real if line[0] == "direct model"}
    assert {line for line in real if line[0] != "direct model"} <= told
    assert direct <= told
    assert [step.do for step in seen.steps] == [
        "align",
        "pu",
        "complete",
        "train",
        "train",
        "evaluate",
    ]
    assert seen.sizes["C"] == (len(fed.tables["C"]), len(fed.tables["C"].columns))


def test_a_dry_run_writes_nothing(case, tmp_path, monkeypatch, capsys):
    write_case(tmp_path, HEAD + TRAIN.replace('rows = "completed"\n', ""))
    before = files_below(tmp_path)
    assert vfsl(monkeypatch, "run", tmp_path / "job.toml", "--dry-run", "--out", "x") == 0
    printed = capsys.readouterr().out
    assert "Nothing was written." in printed
    assert "B → C: tags" in printed
    assert "about 1 s" in printed
    assert files_below(tmp_path) == before


def test_progress_as_json_lines(tmp_path, monkeypatch, capfd):
    write_case(tmp_path, HEAD + TRAIN.replace('rows = "completed"\n', ""))
    arguments = ("run", tmp_path / "job.toml", "--out", tmp_path / "out", "--progress", "json")
    assert vfsl(monkeypatch, *arguments) == 0
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert len(lines) > 5
    for line in lines:
        keys = ["seconds", "step", "stage", "done", "total", "rate", "remaining"]
        assert list(line) == keys
    assert [line["seconds"] for line in lines] == sorted(line["seconds"] for line in lines)
    assert {line["step"] for line in lines} == {"align", "train xgb", "predict xgb"}


def test_a_quiet_run_says_nothing_on_the_way(tmp_path, monkeypatch, capfd):
    write_case(tmp_path, HEAD)
    assert vfsl(monkeypatch, "run", tmp_path / "job.toml", "--out", tmp_path / "o", "--quiet") == 0
    assert capfd.readouterr().err == ""


def test_rows_for_testing_by_a_column(tmp_path):
    """The marks are no feature, the other party learns them, and those rows are judged."""
    text = HEAD.replace("share = 0.25", 'column = ["C", "held"]')
    found = write_case(tmp_path, text + TRAIN.replace('rows = "completed"\n', "") + EVALUATE)
    shop = pd.read_csv(tmp_path / "C.csv", dtype={"id": str})
    shop["held"] = np.arange(len(shop)) % 3 == 0
    shop.to_csv(tmp_path / "C.csv", index=False)
    fed = run_job(load_job(tmp_path / "job.toml"), tmp_path, tmp_path / "out")
    aligned = pd.read_csv(tmp_path / "out/parties/C/aligned.csv", dtype=str)["id"]
    marked = set(shop.loc[shop["held"], "id"]) & set(aligned)
    page = json.loads((tmp_path / "out/parties/C/metrics-3.json").read_text())
    assert page["test rows"] == len(marked)
    assert "held" not in fed.tables["C"].columns
    told = next(step for step in fed.steps if step.name == "hold out")
    assert [(flow.sender, flow.receiver, flow.message) for flow in told.flows] == [
        ("C", "B", "test rows")
    ]
    assert len(found["C"]) == len(shop)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("share = 0.25", "share = 0.01", "have 144 rows in common, so 1 would be held out"),
        ("share = 0.25", 'column = ["C", "late"]', "must say which rows are for testing"),
        ("share = 0.25", 'column = ["C", "gone"]', "has no column 'gone'"),
    ],
)
def test_rows_that_cannot_be_held_out(old, new, words, tmp_path, monkeypatch, capsys):
    text = HEAD.replace(old, new) + TRAIN.replace('rows = "completed"\n', "") + EVALUATE
    write_case(tmp_path, text)
    if "late" in new:
        shop = pd.read_csv(tmp_path / "C.csv", dtype=str).assign(late="maybe")
        shop.to_csv(tmp_path / "C.csv", index=False)
    before = files_below(tmp_path)
    assert vfsl(monkeypatch, "run", tmp_path / "job.toml", "--out", tmp_path / "out") == 2
    assert words in capsys.readouterr().err
    assert files_below(tmp_path) == before


def test_risa_without_torch_is_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("vfsl.evidence.risa.find_spec", lambda name: None)
    write_case(tmp_path, HEAD + RISA)
    call = ("run", tmp_path / "job.toml", "--out", tmp_path / "out", "--quiet")
    assert vfsl(monkeypatch, *call) == 2
    printed = capsys.readouterr().err
    assert "RISA needs PyTorch" in printed
    assert printed.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_completed_rows_are_trained_on_with_weights(case, monkeypatch):
    """The model of step 4 saw common training rows and completed ones; the latter count less."""
    folder, _, fed, _ = case
    seen = {}
    learn = XGB.learn

    def spied(self, site, channel, label, *, weights=None, weighted=False):
        assert weighted
        seen[site.me] = weights
        return learn(self, site, channel, label, weights=weights, weighted=weighted)

    monkeypatch.setattr(XGB, "learn", spied)
    text = HEAD + COMPLETE.replace('label = "late"\nadvice_trees = 2\n', "") + TRAIN
    (folder / "short.toml").write_text(text)
    run_job(load_job(folder / "short.toml"), folder, folder / "short")
    common = len(fed.plan.overlap) - round(0.25 * len(fed.plan.overlap))
    weights = seen.pop("C")
    assert set(seen.values()) == {None}  # nobody else is given them
    assert (weights[:common] == 1).all()
    rest = weights[common:]
    assert len(rest) == len(fed.share("C").rest)
    assert ((rest >= 0.1) & (rest <= 1.0)).all()
    assert rest.min() < 1.0
    whole = read_table(folder / "short/parties/B/completed-2.parquet", party="B", id="id")
    assert len(whole) == len(rest)
