"""Commands on tables of any form, results as Parquet, and refusals before any cryptography."""

import gzip

import duckdb
import numpy as np
import pandas as pd
import pytest

from vfsl.cli import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    ids, numbers = [f"{i:04}" for i in range(120)], rng.normal(size=(120, 2))
    label = np.where(numbers.sum(axis=1) > 0, "yes", "no")
    a = pd.DataFrame({"id": ids, "age": numbers[:, 0], "churn": label})
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(a.to_csv(index=False).encode()))
    b = pd.DataFrame({"id": ids[:100], "visits": numbers[:100, 1]})
    b[::-1].to_excel(tmp_path / "b.xlsx", index=False)
    with duckdb.connect(str(tmp_path / "b.db")) as database:
        database.register("frame", b)
        database.execute("CREATE TABLE shop AS SELECT * FROM frame")
    b.to_csv(tmp_path / "b.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["vfsl", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


QUERY = "duckdb:///b.db?sql=SELECT * FROM shop WHERE visits // 1 IS NOT NULL"


def given(b):
    return ["--party", "A=a.csv.gz", "--party", f"B={b}", "--id", "id"]


def test_train_and_predict_on_other_forms_with_results_in_parquet(folder, monkeypatch):
    more = ["--scheme", "plain", "--results", "parquet"]
    start = ["train", *given("b.xlsx"), "--label", "A=churn", "--model", "logistic", *more]
    assert run(monkeypatch, *start, "--out", "run") == 0
    trained = pd.read_parquet("run/parties/A/predictions-2.parquet")
    assert list(trained) == ["id", "probability", "predicted", "rows"]
    assert len(pd.read_parquet("run/parties/B/aligned.parquet")) == 100
    assert not list((folder / "run").rglob("*.csv"))
    scored = [*given(QUERY), *more, "--all-rows", "--out", "scored"]
    assert run(monkeypatch, "predict", "run", *scored) == 0
    found = pd.read_parquet("scored/parties/A/predictions.parquet")
    assert found["scored_by"].value_counts().to_dict() == {"joint": 100, "own columns": 20}
    known = trained.set_index("id")["probability"]
    # Predictions on shares are rounded anew each time.
    np.testing.assert_allclose(found.set_index("id")["probability"][known.index], known, atol=1e-3)


def test_align_and_doctor_read_them_too(folder, monkeypatch, capsys):
    options = [*given(QUERY), "--results", "parquet", "--out", "out"]
    assert run(monkeypatch, "align", *options) == 0
    assert len(pd.read_parquet("out/parties/A/aligned.parquet")) == 100
    capsys.readouterr()
    assert run(monkeypatch, "doctor", "A=a.csv.gz", "B=b.xlsx") == 0
    assert "100" in capsys.readouterr().out
    assert run(monkeypatch, "align", *options[:-1], "out2", "--results", "xml") == 2
    assert "--results must be csv or parquet. Got 'xml' instead." in capsys.readouterr().err


def test_a_job_reads_queries_and_writes_parquet(folder, monkeypatch):
    (folder / "jobs").mkdir()
    (folder / "jobs/job.toml").write_text(
        f"""
        [run]
        scheme = "plain"
        results = "parquet"
        [parties.A]
        table = "../a.csv.gz"
        id = "id"
        label = "churn"
        [parties.B]
        table = "{QUERY.replace("b.db", "../b.db")}"
        id = "id"
        [[steps]]
        do = "align"
        """
    )
    assert run(monkeypatch, "run", "jobs/job.toml", "--out", "out") == 0
    assert len(pd.read_parquet("out/parties/B/aligned.parquet")) == 100


@pytest.mark.parametrize("command", ["align", "predict"])
def test_no_common_ids_are_told_before_any_cryptography(command, folder, monkeypatch, capsys):
    model = ["--label", "A=churn", "--model", "logistic", "--scheme", "plain", "--out", "run"]
    if command == "predict":
        assert run(monkeypatch, "train", *given("b.csv"), *model) == 0
    other = pd.read_csv("b.csv", dtype={"id": str}).assign(id=lambda t: "c" + t["id"])
    other.to_csv("other.csv", index=False)
    monkeypatch.setattr("vfsl.federation.run_together", _nobody)
    start = [command, *(["run"] if command == "predict" else [])]
    assert run(monkeypatch, *start, *given("other.csv"), "--out", "out") == 2
    written = capsys.readouterr().err
    assert "A and B have no id in common as they are compared" in written
    assert not (folder / "out").exists()
    assert not (folder / "out.state").exists()


def _nobody(*_, **__):
    raise AssertionError("a protocol was begun")


@pytest.mark.parametrize("command", ["align", "train"])
def test_repeated_ids_name_the_option(command, folder, monkeypatch, capsys):
    twice = pd.read_csv("b.csv", dtype=str)
    pd.concat([twice, twice[:3]]).to_csv("twice.csv", index=False)
    more = ["--label", "A=churn", "--model", "logistic"] if command == "train" else []
    start = [command, *given("twice.csv"), *more, "--out", "out"]
    assert run(monkeypatch, *start) == 2
    written = " ".join(capsys.readouterr().err.split())
    assert "3 rows of 103 that repeat an id" in written
    assert "keep the first of each with --duplicates first." in written
    if command == "align":
        assert run(monkeypatch, *start, "--duplicates", "first") == 0
