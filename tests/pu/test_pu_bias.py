"""Columns in which known positives differ from unlabelled rows: pure functions, known truth."""

import numpy as np
import pandas as pd
import pytest

from vfsl.data import PartyTable
from vfsl.pu import bias


def picked(biased, rows=6000, seed=0):
    """A table, who is marked and scores that know nothing of the column "reason"."""
    rng = np.random.default_rng(seed)
    positive = rng.random(rows) < 0.3
    reason = rng.normal(size=rows)
    chance = 0.3 if not biased else 0.9 * (reason > 0.6)
    known = positive & (rng.random(rows) < chance)
    scores = np.where(positive, 1.0, -1.0) + rng.normal(size=rows)
    frame = pd.DataFrame({"reason": reason, "same": rng.normal(size=rows)})
    frame["group"] = np.where(reason > 0.6, "high", "low") if biased else rng.choice(["x"], rows)
    frame.loc[3, "same"] = np.nan
    frame["id"] = np.arange(rows).astype(str)
    return PartyTable.from_frame(frame, party="C", id="id"), known, scores


def test_a_column_that_decided_who_is_known_is_named():
    found = bias.compare_columns(*picked(True), np.random.default_rng(0))
    assert [one.column for one in found if one.large] == ["reason", "group"]
    (text,) = bias.warn_of(found)
    assert "'reason', 'group'" in text
    assert "random sample" in text


def test_random_positives_pass():
    found = bias.compare_columns(*picked(False), np.random.default_rng(0))
    assert {one.column for one in found} == {"reason", "same", "group"}
    assert bias.warn_of(found) == []


def test_matching_weights_compare_within_strata():
    known = np.array([True, False, False, True, False, True])
    strata = np.array([0, 0, 0, 1, 1, 2])  # nobody to match in the last
    weights = bias.match_weights(known, strata)
    assert weights.tolist() == pytest.approx([0.5, -0.25, -0.25, 0.5, -0.5, 0.0])
    column = np.array([4.0, 1.0, 3.0, 10.0, 6.0, 99.0])
    assert weights @ column == pytest.approx(((4 - 2) + (10 - 6)) / 2)
