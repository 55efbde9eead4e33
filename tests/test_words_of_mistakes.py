"""Mistakes as a person says them."""

import pytest

from tests.job_cases import vfsl
from vfsl.errors import ConfigError
from vfsl.job.schema import check

TABLE = {"table": "a.csv", "id": "id"}
ALIGN = {"do": "align"}
TRAIN = {"do": "train", "model": "logistic", "label": ["A", "y"]}


def job(*steps, parties="AB", **more):
    return {"parties": {name: TABLE for name in parties}, "steps": [ALIGN, *steps], **more}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (job(parties="A"), "Two parties are needed; only A was given."),
        (job(parties=""), "Two parties are needed; only none was given."),
        (job({**TRAIN, "label": "y"}), "step 2: label must be [party, column]. Got 'y' instead."),
        (job({**TRAIN, "label": ["y"]}), "step 2: label must be [party, column]."),
        (job({**TRAIN, "label": ["A", "y", 3]}), "step 2: label must be [party, column]."),
        (job(test={"column": "y"}), "test.column must be [party, column]."),
        (job(parties="AK"), "K is reserved for the key holder, who has no table; rename the party"),
        (
            job({**TRAIN, "name": "one"}, {**TRAIN, "name": "one"}),
            "step 2: name 'one' is that of two steps.",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mistakes_in_a_job(content, words):
    with pytest.raises(ConfigError) as caught:
        check(content)
    assert str(caught.value).startswith(words)


def test_models_are_called_by_their_rows_or_steps():
    complete = {"do": "complete", "given": "A", "missing": "B"}
    made = check(
        job(
            complete,
            TRAIN,
            {**TRAIN, "rows": "completed"},
            {**TRAIN, "model": "xgb"},
            {**TRAIN, "model": "xgb"},
            {**TRAIN, "name": "mine"},
        )
    )
    assert [step.place.name for step in made.steps[2:]] == [
        "logistic",
        "logistic with completed rows",
        "xgb (step 5)",
        "xgb (step 6)",
        "mine",
    ]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (("predict", "nope", "--party", "A=a.csv", "--id", "id"), "There is no run in nope."),
        (("ledger", "nope"), "There is no run in nope"),
        (("align", "--party", "A", "--id", "id"), "--party must be PARTY=FILE"),
        (
            ("train", "--party", "A=a.csv", "--id", "id", "--model", "xgb", "--label", "y"),
            "--label must be PARTY=COLUMN. Got 'y' instead.",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mistakes_on_the_command_line(call, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    out = [] if call[0] == "ledger" else ["--out", "out"]
    assert vfsl(monkeypatch, *call, *out) == 2
    printed = capsys.readouterr().err
    assert words in printed
    assert printed.count("\n") == 1
