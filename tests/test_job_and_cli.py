"""Jobs and the command line: the story by files, and every mistake as one sentence."""

import json

import numpy as np
import pandas as pd
import pytest

from vfsl.cli import main
from vfsl.errors import ConfigError
from vfsl.estimators import LinearRegression
from vfsl.job import load_job

JOB = """
[run]
seed = 3
scheme = "plain"
security = 112

[parties.A]
table = "a.csv"
id = "customer"
label = "spend"

[parties.B]
table = "b.parquet"
id = "client"

[[steps]]
do = "align"
protocol = "ecdh"

[[steps]]
do = "train"
model = "linear"
label = ["A", "spend"]
"""


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    ids = [f"{i:05}" for i in range(90)]
    a = pd.DataFrame({"customer": ids, "age": rng.normal(size=90), "spend": rng.normal(size=90)})
    b = pd.DataFrame({"client": ids, "visits": rng.normal(size=90), "kind": ["x", "y"] * 45})
    a.iloc[:70].to_csv(tmp_path / "a.csv", index=False)
    b.iloc[10:].to_parquet(tmp_path / "b.parquet")
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path


def vfsl(monkeypatch, *arguments):
    """Run the command line in this process; its exit code."""
    monkeypatch.setattr("sys.argv", ["vfsl", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


def test_run_ledger_and_report(folder, monkeypatch, capsys):
    out = folder / "out"
    assert vfsl(monkeypatch, "run", folder / "job.toml", "--out", out) == 0
    assert "60 common rows" in capsys.readouterr().out
    predictions = pd.read_csv(out / "parties/A/predictions-2.csv", dtype={"customer": str})
    assert list(predictions) == ["customer", "predicted", "rows"]
    assert len(predictions) == 60
    assert predictions["customer"].str.len().eq(5).all()  # leading zeros survive
    assert sorted(path.name for path in (out / "parties/B").iterdir()) == [
        "aligned.csv",
        "model-2-share.json",
    ]
    assert json.loads((out / "record.json").read_text())["seed"] == 3

    assert vfsl(monkeypatch, "ledger", out) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for words in ("B → A", "masked ×", "total scores", "sealed ids", "how many rows and columns"):
        assert words in printed
    # B's scores of 60 rows, in the prediction only.
    assert "predict linear B → A total scores columns 60 60" in printed

    page = folder / "page.html"
    assert vfsl(monkeypatch, "report", out, "--out", page) == 0
    assert "Ledger" in page.read_text()
    assert '<td data-name="numbers" class="number">60</td>' in page.read_text()


def test_the_same_job_gives_the_same_files(folder, monkeypatch):
    for name in ("one", "two"):
        assert vfsl(monkeypatch, "run", folder / "job.toml", "--out", folder / name) == 0
    for name in ("A/predictions-2.csv", "A/aligned.csv", "B/model-2-share.json"):
        assert (folder / "one/parties" / name).read_bytes() == (
            folder / "two/parties" / name
        ).read_bytes()


def break_table(folder, change):
    frame = pd.read_csv(folder / "a.csv", dtype={"customer": str})
    change(frame).to_csv(folder / "a.csv", index=False)


BAD_TABLES = {
    "duplicate ids": (lambda f: pd.concat([f, f.head(3)]), "3"),
    "empty table": (lambda f: f.head(0), "has no rows"),
    "all-missing column": (lambda f: f.assign(age=np.nan), "'age'"),
    "non-finite numbers": (lambda f: f.assign(age=[np.inf] + [1.0] * 69), "'age'"),
    "mixed types": (lambda f: f.assign(age=["old"] + [1] * 69), "'age'"),
    "missing ids": (lambda f: f.assign(customer=[None, *f["customer"][1:]]), "1"),
    "unknown id column": (lambda f: f.rename(columns={"customer": "id"}), "'customer'"),
    "unknown label": (lambda f: f.drop(columns="spend"), "'spend'"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_tables_are_one_sentence(case, folder, monkeypatch, capsys):
    change, words = BAD_TABLES[case]
    break_table(folder, change)
    before = sorted(path.name for path in folder.iterdir())
    assert vfsl(monkeypatch, "run", folder / "job.toml", "--out", folder / "out") == 2
    printed = capsys.readouterr().err
    assert printed.startswith("vfsl: ")
    assert printed.count("\n") == 1
    assert words in printed
    assert "00001" not in printed  # no id is quoted
    assert sorted(path.name for path in folder.iterdir()) == before


BAD_JOBS = {
    "missing table": ('"a.csv"', '"no.csv"', "no.csv"),
    "unknown scheme": (
        '"plain"',
        '"plian"',
        "run.scheme must be one of 'auto', 'plain', 'shares', 'paillier'",
    ),
    "unknown party in a step": ('label = ["A"', 'label = ["Q"', "party 'Q', which has no table"),
    "unknown label column": ('["A", "spend"]', '["A", "spent"]', "spent"),
    "unknown field": ("seed = 3", "sed = 3", "run.sed is not a known field; did you mean 'seed'?"),
    "unknown step": ('do = "train"', 'do = "dance"', "step 2: do must be one of"),
    "no step": ('do = "train"\n', "", "step 2: do is missing"),
    "unknown model": (
        '"linear"',
        '"cubic"',
        "'scorecard', 'risa'. Got 'cubic'",
    ),
    "text for a number": ("seed = 3", 'seed = "3"', "run.seed must be integer. Got '3' instead"),
    "negative rounds": (
        'model = "linear"',
        'model = "linear"\nmax_rounds = 0',
        "must be a whole number of at least 1",
    ),
    "field of another model": (
        'model = "linear"',
        'model = "linear"\nrefine = 2',
        "refine belongs to model = 'logistic'",
    ),
    "missing field": ('id = "client"', "", "parties.B.id is missing"),
    "unknown kind": (
        'id = "client"',
        'id = "client"\nkinds = {visits = "wide"}',
        "parties.B.kinds.visits must be 'numeric' or 'categorical'",
    ),
    "broken TOML": ("[run]", "[run", "not valid TOML"),
}


@pytest.mark.parametrize("case", BAD_JOBS)
def test_bad_jobs_are_one_sentence(case, folder, monkeypatch, capsys):
    old, new, words = BAD_JOBS[case]
    assert old in JOB
    (folder / "job.toml").write_text(JOB.replace(old, new, 1))
    before = sorted(path.name for path in folder.iterdir())
    assert vfsl(monkeypatch, "run", folder / "job.toml", "--out", folder / "out") == 2
    printed = capsys.readouterr().err
    assert words in printed
    assert printed.count("\n") == 1
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_missing_job_file(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        load_job(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="is a folder"):
        load_job(tmp_path)


def test_earlier_results_are_never_overwritten(folder, monkeypatch, capsys):
    (folder / "out").mkdir()
    (folder / "out" / "precious.txt").write_text("mine")
    assert vfsl(monkeypatch, "run", folder / "job.toml", "--out", folder / "out") == 2
    assert "not empty" in capsys.readouterr().err
    assert (folder / "out" / "precious.txt").read_text() == "mine"


def test_a_folder_without_a_record(tmp_path, monkeypatch, capsys):
    for command in ("ledger", "report"):
        assert vfsl(monkeypatch, command, tmp_path) == 2
        assert "There is no run in" in capsys.readouterr().err


def test_a_damaged_record(tmp_path, monkeypatch, capsys):
    (tmp_path / "record.json").write_text('{"format": 1}')
    assert vfsl(monkeypatch, "ledger", tmp_path) == 1
    assert "damaged" in capsys.readouterr().err


def test_version(monkeypatch, capsys):
    assert vfsl(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.strip() == "0.1.0"


def test_an_interrupted_job_goes_on_from_its_alignment(folder, monkeypatch, capsys):
    """The second attempt takes up the alignment and ends as an undisturbed run does."""
    assert vfsl(monkeypatch, "run", folder / "job.toml", "--out", folder / "whole") == 0
    learn = LinearRegression.learn

    def interrupted(*arguments, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(LinearRegression, "learn", interrupted)
    assert vfsl(monkeypatch, "run", folder / "job.toml", "--out", folder / "out") == 130
    assert "goes on from there" in capsys.readouterr().err
    assert not (folder / "out").exists()
    kept = folder / "out.unfinished"
    (first,) = json.loads((kept / "step-1.json").read_text())["value"]["steps"]

    monkeypatch.setattr(LinearRegression, "learn", learn)
    assert vfsl(monkeypatch, "run", folder / "job.toml", "--out", folder / "out") == 0
    record = json.loads((folder / "out" / "record.json").read_text())
    assert record["steps"][0] == first  # to the second: it was not aligned again
    assert not kept.exists()
    for name in ("A/predictions-2.csv", "A/aligned.csv", "B/model-2-share.json"):
        one, two = (folder / out / "parties" / name for out in ("whole", "out"))
        assert one.read_bytes() == two.read_bytes()


def test_another_job_or_changed_ids_do_not_go_on(folder, monkeypatch, capsys):
    def interrupted(*arguments, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(LinearRegression, "learn", interrupted)
    assert vfsl(monkeypatch, "run", folder / "job.toml", "--out", folder / "out") == 130
    before = (folder / "a.csv").read_bytes()
    break_table(folder, lambda f: f.iloc[::-1])
    capsys.readouterr()
    assert vfsl(monkeypatch, "run", folder / "job.toml", "--out", folder / "out") == 1
    assert "another job or of other tables" in capsys.readouterr().err
    (folder / "a.csv").write_bytes(before)
    (folder / "job.toml").write_text(JOB.replace("seed = 3", "seed = 4"))
    assert vfsl(monkeypatch, "run", folder / "job.toml", "--out", folder / "out") == 1
    assert "another job" in capsys.readouterr().err
