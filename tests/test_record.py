"""Run records: loading what was saved, refusing what was not."""

import json
from dataclasses import replace

import pytest

from vfsl.errors import StoreError
from vfsl.record import Flow, PartyFacts, RunRecord, Shown, StepRecord, fingerprint, versions

FLOW = Flow("train", "A", "B", "residual", "ciphertext", 3, 900, "nothing")
RECORD = RunRecord(
    run="r",
    created="2026-01-01T00:00:00+00:00",
    seed=1,
    scheme="plain",
    parties={"A": PartyFacts(3, 2, "ab")},
    steps=(
        StepRecord(
            "train", {"l2": 0.1}, 1.5, {"r2": 0.5}, ({"round": 1},), "converged", ("n",), (FLOW,)
        ),
    ),
    versions=versions(),
)


def test_round_trip(tmp_path):
    RECORD.save(tmp_path)
    assert RunRecord.load(tmp_path) == RECORD
    assert RunRecord.load(tmp_path).ledger == (FLOW,)


def test_a_record_of_before_loads_without_what_was_shown(tmp_path):
    RECORD.save(tmp_path)
    path = tmp_path / "record.json"
    content = json.loads(path.read_text())
    for step in content["steps"]:
        assert step.pop("shown") == []
    path.write_text(json.dumps(content))
    assert RunRecord.load(tmp_path) == RECORD


def test_what_was_shown_is_kept(tmp_path):
    line = Shown("train", "B", "A", "total scores", "columns", 30, 20)
    step = replace(RECORD.steps[0], shown=(line,))
    replace(RECORD, steps=(step,)).save(tmp_path)
    assert RunRecord.load(tmp_path).shown == (line,)


@pytest.mark.parametrize(
    "content", ["[]", '{"format": 2}', '{"format": 1}', '{"format": 1, "steps": [{"name": 1}]}']
)
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "record.json").write_text(content)
    with pytest.raises(StoreError, match=r"record\.json"):
        RunRecord.load(tmp_path)


def test_versions_name_what_matters():
    assert {"python", "vfsl", "numpy"} <= set(versions())


def test_fingerprints_are_keyed_and_unambiguous():
    assert fingerprint(b"k", b"ab", b"c") == fingerprint(b"k", b"ab", b"c")
    assert fingerprint(b"k", b"ab", b"c") != fingerprint(b"k", b"a", b"bc")
    assert fingerprint(b"k", b"ab") != fingerprint(b"other", b"ab")
    assert json.dumps(fingerprint(b"k"))
