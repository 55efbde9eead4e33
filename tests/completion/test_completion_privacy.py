"""Completion: what each party sees, by planting markers and changing cells."""

from functools import partial

import numpy as np
import pytest

from tests.completion.psg_cases import PLAIN, frames, parts, run
from vfsl.channel import Transcript, run_together
from vfsl.completion.bases import Pair, RidgeBase
from vfsl.completion.calibration import MeasureShift
from vfsl.completion.crossfit import CrossFit
from vfsl.completion.vfpum import VFPUM
from vfsl.estimators import Roles

# A fixed number of steps: how many are needed may depend on the data, and is visible.
FIXED = Pair(RidgeBase(max_rounds=2, tolerance=0.0))
BFV = Roles("B", ("A",), "K", "bfv")


def views(a, b, model, columns=("income", "colour"), roles=PLAIN):
    transcript = Transcript(keep_views=True)
    run(model, parts(a, b), list(columns), roles, transcript=transcript)
    return transcript


def readable(transcript, party, without=()):
    """Names and sizes of what a party receives, and the content of what is not hidden."""
    return [
        (s.sender, s.name, s.kind, len(s.body), s.body if s.kind in ("plain", "aggregate") else b"")
        for s in sorted(transcript.sights, key=lambda sight: sight.sender)
        if s.receiver == party
        and not s.name.endswith("public key")
        and not s.name.endswith(tuple(without))
    ]


@pytest.mark.parametrize("model", [VFPUM(base=FIXED, rounds=3), CrossFit(FIXED, folds=3)])
def test_markers_never_cross(model):
    """Names, categories, ids and telling numbers stay at home, even without encryption."""
    a, b, _ = frames()
    a = a.rename(columns={"a0": "MARKER-GIVEN"}).replace({"left": "MARKER-LEFT"})
    b = b.rename(columns={"income": "MARKER-MISSING"}).replace({"red": "MARKER-RED"})
    cells = [np.float64(a["a1"].iloc[3]), np.float64(b["noise"].iloc[5]), a["a1"].iloc[150]]
    transcript = views(a, b, model, ("MARKER-MISSING", "colour", "noise"))
    for sight in transcript.sights:
        for marker in (b"MARKER", b"person-", *(np.float64(cell).tobytes() for cell in cells)):
            assert marker not in sight.body


@pytest.mark.parametrize("column", ["income", "colour"])
def test_the_given_party_reads_nothing_of_a_cell_but_steps(column):
    """Not of the other's cell, nor which of its own rows got a pseudo-label."""
    a, b, _ = frames()
    other = b.copy()
    other.loc[4, column] = b[column].iloc[4] + 40 if column == "income" else "red"
    assert other[column].iloc[4] != b[column].iloc[4]
    model = VFPUM(base=FIXED, rounds=3)
    one, two = views(a, b, model), views(a, other, model)
    hidden = ("/step",)  # common step lengths: declared, and an aggregate over all rows
    assert readable(one, "A", hidden) == readable(two, "A", hidden)


def test_the_key_holder_reads_nothing_of_any_cell():
    a, b, _ = frames()
    other_a, other_b = a.copy(), b.copy()
    other_a.loc[150, "a1"] += 3.0
    other_b.loc[7, "income"] += 50.0
    model = VFPUM(base=FIXED, rounds=3)
    first = readable(views(a, b, model), "K")
    assert first == readable(views(other_a, b, model), "K")
    assert first == readable(views(a, other_b, model), "K")


def test_the_missing_party_reads_predictions_only():
    """A cell of a remaining row changes nothing that B can read, before the total is opened."""
    a, b, _ = frames()
    other = a.copy()
    other.loc[150, "a1"] += 0.5
    model = CrossFit(FIXED, folds=3)
    # Its own principal components change with all of A's rows: keep them all, as they are few.
    one, two = (views(table, b, model, ("income",), BFV) for table in (a, other))
    plain = [line for line in readable(one, "B") if line[2] == "plain"]
    assert plain == [line for line in readable(two, "B") if line[2] == "plain"]


def test_the_missing_party_learns_only_declared_kinds():
    a, b, _ = frames()
    transcript = views(a, b, VFPUM(base=FIXED, rounds=2))
    plain = {(e.sender, e.receiver, e.message) for e in transcript.entries if e.kind == "plain"}
    from_given = {
        message for sender, receiver, message in plain if (sender, receiver) == ("A", "B")
    }
    assert from_given == {"rows", "kept", "columns"}
    facts = {entry.message: entry.fact for entry in transcript.entries}
    assert "prediction for each" in facts["order"]


def test_rows_that_do_not_differ_are_not_described():
    a, b, _ = frames(common=120, rest=80)
    transcript = Transcript(keep_views=True)
    both = parts(a, b)
    shift = _shift(both, transcript)
    assert shift.common is None
    assert max(entry.bytes for entry in transcript.entries) < 100


def test_rows_that_differ_are_described_by_two_digits():
    a, b, _ = frames(common=120, rest=80)
    a.loc[120:, "a0"] += 3.0
    shift = _shift(parts(a, b), Transcript())
    assert shift.auc > 0.8
    assert len(shift.common) == 120
    assert len(shift.rest) == 80
    assert np.median(shift.rest) > np.median(shift.common)
    digits = [f"{value:.6g}".replace(".", "").strip("0") for value in shift.rest]
    assert max(map(len, digits)) <= 2


def _shift(both, transcript):
    jobs = {
        party: partial(
            MeasureShift().train,
            part=both.get(party),
            roles=PLAIN,
            rng=np.random.default_rng(0),
        )
        for party in PLAIN.everyone
    }
    return run_together(jobs, transcript=transcript)["B"]
