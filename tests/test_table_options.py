"""Options on tables and ids: the same names in commands, jobs and Python, with the same effect."""

import inspect
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest

from tests.job_cases import vfsl
from vfsl.align import Normalise
from vfsl.cli.tables import IDS, READING, TableOptions
from vfsl.data import read_table
from vfsl.deploy.config import TableSection
from vfsl.errors import ConfigError
from vfsl.job.schema import PartySection
from vfsl.job.tables import IdSection, Reading

ROWS = 120


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    signal = rng.normal(size=ROWS)
    a = pd.DataFrame(
        {
            "phone": [f"+49 170 {place:05}" for place in range(ROWS)],
            "joined": [f"{1 + place % 28}.3.2020" for place in range(ROWS)],
            "amount": [f"{value:.2f}".replace(".", ",") for value in signal],
            "note": [f"note {place}" for place in range(ROWS)],
            "churn": np.where(signal + 0.3 * rng.normal(size=ROWS) > 0, "YES", "no"),
        }
    )
    a.loc[::2, "churn"] = a.loc[::2, "churn"].str.lower() + " "
    b = pd.DataFrame(
        {
            "tel": [f"0170-{place:05}" for place in range(ROWS)],
            "visits": [*map(str, rng.integers(0, 9, ROWS - 1)), "NA"],
        }
    )
    a.to_csv(tmp_path / "a.csv", index=False, sep=";")
    b.to_csv(tmp_path / "b.csv", index=False)
    return tmp_path


def given(folder):
    """The options that make sense of these files."""
    return [
        *("--party", f"A={folder / 'a.csv'}", "--party", f"B={folder / 'b.csv'}"),
        *("--id", "A=phone", "--id", "B=tel", "--recipe", "phone", "--country", "49"),
        *("--decimal", "A=,", "--drop", "A=note", "--dates", "A=joined:both"),
        *("--fold", "A=churn", "--missing-values", "B=NA", "--kinds", "B=visits:categorical"),
    ]


def test_the_names_are_the_same_everywhere():
    reading = set(Reading.model_fields)
    assert set(READING) == reading
    assert reading <= set(inspect.signature(read_table).parameters)
    assert reading <= set(PartySection.model_fields)
    assert reading <= set(TableSection.model_fields)
    assert set(IDS) == set(IdSection.model_fields) == {one.name for one in fields(Normalise)}
    defaults = {one.name: one.default for one in fields(Normalise)}
    assert {name: default for name, (_, default, _) in IDS.items()} == defaults


def test_training_on_messy_files(folder, monkeypatch, capsys):
    more = ["--label", "A=churn", "--model", "logistic", "--scheme", "plain", "--quiet"]
    more += ["--rows-per-column", "1", "--rare-rows-per-column", "0", "--test", "0.4"]
    call = ["train", *given(folder), *more]
    assert vfsl(monkeypatch, *call, "--out", folder / "run") == 0, capsys.readouterr().err
    assert "120 common rows" in capsys.readouterr().out
    written = pd.read_csv(folder / "run/parties/A/predictions-2.csv", dtype=str)
    assert list(written) == ["phone", "probability", "predicted", "rows"]
    assert set(written["predicted"]) == {"yes", "no"}
    assert written["rows"].value_counts().to_dict() == {"training": 72, "held-out": 48}
    assert (
        vfsl(monkeypatch, "predict", folder / "run", *given(folder), "--out", folder / "new") == 0
    )


def test_aligning_with_recipes(folder, monkeypatch, capsys):
    call = ["align", *given(folder), "--out", folder / "out", "--quiet"]
    assert vfsl(monkeypatch, *call) == 0
    assert "120 common rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--drop", "note"), "--drop must be PARTY=COLUMN. Got 'note' instead"),
        (("--kinds", "A=visits"), "--kinds must be PARTY=COLUMN:KIND. Got 'visits' instead"),
        (("--dates", "A=weeks"), "parties.A.dates must be 'days', 'parts' or 'both'"),
        (("--decimal", ";"), "decimal must be '.' or ','"),
        (("--case", "upper"), "ids.case must be 'keep', 'lower' or 'fold'"),
        (("--recipe", "roman"), "The recipe parameter of Normalise must be"),
    ],
    ids=str,
)
def test_mistakes_are_one_sentence(options, words, folder, monkeypatch, capsys):
    files = [f"--party={name.upper()}={folder / name}.csv" for name in "ab"]
    ids = ["--id", "A=phone", "--id", "B=tel"]
    assert vfsl(monkeypatch, "align", *files, *ids, "--out", folder / "x", *options) == 2
    printed = capsys.readouterr().err
    assert words in printed
    assert printed.count("\n") == 1


def test_values_for_all_parties_and_for_one():
    options = TableOptions({"decimal": [","], "encoding": ["A=cp1252"], "dates": ["B=days"]})
    assert options.sections(["A", "B"]) == {
        "A": {"decimal": ",", "encoding": "cp1252"},
        "B": {"decimal": ",", "dates": "days"},
    }
    both = TableOptions({"dates": ["A=x:days", "A=y:parts"], "drop": ["A=p,q", "A=r"]})
    assert both.sections(["A"]) == {
        "A": {"dates": {"x": "days", "y": "parts"}, "drop": ["p", "q", "r"]}
    }
    with pytest.raises(ConfigError, match="--dates must be one word"):
        TableOptions({"dates": ["A=days", "A=y:parts"]}).sections(["A"])
