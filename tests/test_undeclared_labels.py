"""Labels are declared once and never a feature: in commands, jobs, drafts and in Python."""

import numpy as np
import pandas as pd
import pytest

import vfsl as package
from tests.job_cases import vfsl
from vfsl.data import PartyTable
from vfsl.errors import ConfigError
from vfsl.estimators import LogisticRegression
from vfsl.estimators.association import Association
from vfsl.estimators.trees import XGB
from vfsl.job import load_job
from vfsl.job.run import read_tables

ROWS = 240


@pytest.fixture
def frames():
    rng = np.random.default_rng(0)
    ids = [f"p{i}" for i in range(ROWS)]
    shared = rng.normal(size=ROWS)
    a = pd.DataFrame({"id": ids, "age": shared + rng.normal(size=ROWS)})
    a["churn"] = (shared + rng.normal(size=ROWS) > 0).astype(int)
    b = pd.DataFrame({"id": ids, "spend": shared + rng.normal(size=ROWS)})
    b["visits"] = rng.normal(size=ROWS)
    return {"A": a, "B": b.iloc[:150], "P": pd.DataFrame({"id": ids[:40]})}


@pytest.fixture
def folder(tmp_path, frames):
    for party, frame in frames.items():
        frame.to_csv(tmp_path / f"{party}.csv", index=False)
    return tmp_path


def run(monkeypatch, folder, command, *more, parties="AB"):
    files = [part for p in parties for part in ("--party", f"{p}={folder / p}.csv")]
    shared = ("--id", "id", "--out", folder / "out", "--protocol", "ecdh", "--scheme", "plain")
    return vfsl(monkeypatch, command, *files, *shared, *more)


COMPLETE = ("--given", "A", "--missing", "B", "--rounds", "2", "--folds", "2")
PU = ("--positives", "P", "--label-holder", "B", "--rounds", "2")
ASKED = (
    "vfsl: Column 'churn' of A looks like a label, which must never be a feature; say --label "
    "A=churn, or --no-label A if it is an ordinary column.\n"
)


@pytest.mark.parametrize(
    ("command", "more", "parties"),
    [
        ("complete", COMPLETE, "AB"),
        ("pu", PU, "ABP"),
        ("train", ("--label", "B=visits", "--model", "linear"), "AB"),
    ],
)
def test_commands_stop_and_ask(command, more, parties, folder, monkeypatch, capsys):
    before = sorted(folder.iterdir())
    assert run(monkeypatch, folder, command, *more, parties=parties) == 2
    assert capsys.readouterr().err == ASKED
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("said", [("--label", "A=churn"), ("--no-label", "A")], ids=" ".join)
def test_an_answer_is_enough(said, folder, monkeypatch):
    assert run(monkeypatch, folder, "complete", *COMPLETE, *said) == 0
    assert run(monkeypatch, folder, "pu", *PU, *said, "--out", folder / "pu", parties="ABP") == 0


def test_a_label_that_is_trained_needs_no_other_word(folder, monkeypatch):
    more = ("--label", "A=churn", "--model", "logistic", "--max-rounds", "3")
    assert run(monkeypatch, folder, "train", *more) == 0


def test_init_asks_and_writes_the_answer(folder, monkeypatch, capsys):
    files = (folder / "A.csv", folder / "B.csv", "--out", folder / "job.toml")
    assert vfsl(monkeypatch, "init", *files) == 2
    assert capsys.readouterr().err == ASKED
    assert not (folder / "job.toml").exists()
    assert vfsl(monkeypatch, "init", *files, "--no-label", "A") == 0
    job = load_job(folder / "job.toml")
    assert job.parties["A"].label is False
    read_tables(job, folder)
    (folder / "job.toml").unlink()
    assert vfsl(monkeypatch, "init", *files, "--label", "churn") == 0
    assert load_job(folder / "job.toml").parties["A"].label == "churn"


JOB = """
[run]
scheme = "plain"
[parties.A]
table = "A.csv"
id = "id"
{said}
[parties.B]
table = "B.csv"
id = "id"
[[steps]]
do = "align"
protocol = "ecdh"
[[steps]]
do = "complete"
given = "A"
missing = "B"
{more}
"""
TRAIN = """
[[steps]]
do = "train"
model = "logistic"
label = ["A", "churn"]
"""


def job_of(folder, said="", more=""):
    path = folder / "job.toml"
    path.write_text(JOB.format(said=said, more=more))
    return path


def test_a_job_stops_and_asks(folder, monkeypatch, capsys):
    path = job_of(folder)
    for more in ((), ("--dry-run",)):
        assert vfsl(monkeypatch, "run", path, "--out", folder / "out", *more) == 2
        printed = capsys.readouterr().err
        assert 'write label = "churn" under [parties.A], or label = false if it is' in printed
    assert not list(folder.glob("out*"))


def test_what_one_step_calls_a_label_is_one_in_all(folder):
    tables, _ = read_tables(load_job(job_of(folder, more=TRAIN)), folder)
    assert tables["A"].labels == ["churn"]
    tables, _ = read_tables(load_job(job_of(folder, more='label = "churn"')), folder)
    assert tables["A"].labels == ["churn"]
    tables, _ = read_tables(load_job(job_of(folder, 'label = "age"', TRAIN)), folder)
    assert tables["A"].labels == ["age", "churn"]
    assert not tables["A"].features
    tables, _ = read_tables(load_job(job_of(folder, "label = false")), folder)
    assert tables["A"].features == ["age", "churn"]


@pytest.mark.parametrize(
    ("said", "more", "words"),
    [
        ("label = true", "", "parties.A.label must be a column, or false where no column is a"),
        ("label = 3", "", "parties.A.label must be a column, or false"),
        ("label = false", TRAIN, "names 'churn' of A, but parties.A.label is false"),
        ("label = false", 'label = "age"', "names 'age' of A, but parties.A.label is false"),
    ],
)
def test_wrong_declarations_are_one_sentence(said, more, words, folder):
    with pytest.raises(ConfigError) as caught:
        load_job(job_of(folder, said, more))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "learn",
    [
        lambda fed: package.FedPSG().fit_complete(fed, "A", "B"),
        lambda fed: LogisticRegression().fit(fed, label=("B", "visits")),
        lambda fed: XGB().fit(fed, label=("B", "visits")),
        lambda fed: Association().measure(fed, "A", "B"),
        lambda fed: package.VFPU().fit(fed, positives="P", label_holder="B"),
    ],
    ids=["complete", "linear", "trees", "association", "vfpu"],
)
def test_python_refuses_before_anything_is_sent(learn, frames):
    fed = package.simulate(frames, scheme="plain")
    fed.align("A", "B", protocol="ecdh")
    fed.mark(positives="P", label_holder="B", protocol="ecdh")
    with pytest.raises(ConfigError, match=r"labels=\{'A': 'churn'\}, or labels=\{'A': None\}"):
        learn(fed)
    assert [step.name for step in fed.steps] == ["align", "mark"]


@pytest.mark.parametrize("said", ["churn", None])
@pytest.mark.parametrize("made", [False, True], ids=["frame", "table"])
def test_python_goes_on_with_an_answer(said, made, frames):
    if made:
        frames["A"] = PartyTable.from_frame(frames["A"], party="A", id="id")
    fed = package.simulate(frames, labels={"A": said}, scheme="plain")
    fed.align("A", "B", protocol="ecdh")
    assert fed.tables["A"].features == (["age"] if said else ["age", "churn"])
    assert len(Association().measure(fed, "A", "B")) == 2
