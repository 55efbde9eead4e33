"""Rows for a later training: what each party has, what is told, and what is kept."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from tests.completion.psg_cases import federation
from vfsl.completion.downstream import (
    completed_site,
    load_completed_rows,
    row_weights,
    save_completed_rows,
)
from vfsl.completion.fedpsg import FedPSG
from vfsl.estimators import XGB


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    fed, _ = federation(common=120, rest=50)
    done = FedPSG().fit_complete(fed)
    folder = tmp_path_factory.mktemp("rows")
    save_completed_rows(done, folder)
    return fed, done, load_completed_rows(folder, "B")


def test_what_is_kept_is_read_back(case):
    _, done, rows = case
    assert rows.table.party == "B"
    assert list(rows.table.features) == list(done.table.columns)
    assert rows.table.frame["income"].iloc[:120].tolist() == done.common.frame["income"].tolist()
    below = rows.table.frame.iloc[120:].reset_index(drop=True)
    pd.testing.assert_frame_equal(
        below, done.table.reset_index(drop=True), check_dtype=False, check_categorical=False
    )
    assert rows.confidence.tolist() == done.row_confidence.tolist()


def test_weights_by_hand():
    assert row_weights(2, np.array([0.0, 0.5, 2.0])).tolist() == [1, 1, 0.1, 0.55, 1]


def test_each_party_has_common_and_completed_rows(case):
    fed, done, rows = case
    play = partial(completed_site, given="A", missing="B")
    played = fed.play(play, own={"B": {"rows": rows}})
    (given, weights), (missing, nothing), (keys, _) = (played[party] for party in "ABK")
    share = fed.share("A")
    assert given.rows().overlap.tolist() == [*share.overlap, *share.rest]
    assert given.table is fed.tables["A"]
    assert missing.rows().overlap.tolist() == list(range(170))
    assert missing.table is rows.table
    assert nothing is None
    assert keys is fed.sites["K"]
    np.testing.assert_allclose(weights[:120], 1)
    told = np.round(np.clip(done.row_confidence, 0, 1), 1)
    np.testing.assert_allclose(weights[120:], 0.1 + 0.9 * told)
    step = fed.steps[-1]
    assert (step.name, step.metrics) == ("confidence of completed rows", {"completed rows": 50})
    assert {(flow.sender, flow.receiver, flow.message) for flow in step.flows} == {
        ("B", "A", "confidence")
    }


def learn(site, channel, rows=None):
    """A training on completed rows as one party plays it, wherever it is."""
    here, weights = completed_site(site, channel.within("rows"), "A", "B", rows)
    model = XGB(n_estimators=2, max_depth=2)
    return model.learn(here, channel.within("train"), ("A", "y"), weights=weights, weighted=True)


def test_a_model_learns_from_completed_rows(case):
    fed, _, rows = case
    shares = fed.play(learn, own={"B": {"rows": rows}})
    assert len(shares["A"].scores) == 170
    assert shares["B"] is not None
    assert shares["K"] is None
