"""Positives by bin on shares beside a loop in one place, and what crosses for it."""

import itertools
from functools import partial

import numpy as np
import pytest

from vfsl.channel import Transcript, run_together
from vfsl.crypto.shares import Session
from vfsl.errors import DataError
from vfsl.estimators.scorecard.bins import FINE_BINS, LEAST, find_ends
from vfsl.estimators.scorecard.counting import (
    DISCLOSURES,
    count_positives,
    plan_fine_bins,
    round_counts,
)

HOLDER, OWNER, DEALER = "bank", "shop", "K"


def play(channel, target, draw, columns, hide):
    inner = channel.within("count", DISCLOSURES)
    with Session.join(inner, (HOLDER, OWNER), DEALER, hide=hide) as session:
        if channel.me == HOLDER:
            return count_positives(session, HOLDER, OWNER, target=target)
        if channel.me == OWNER:
            return count_positives(session, HOLDER, OWNER, columns=columns, cells=draw)
        return count_positives(session, HOLDER, OWNER)


def count(target, draw, columns, hide=True, transcript=None):
    role = partial(play, target=target, draw=draw, columns=columns, hide=hide)
    roles = dict.fromkeys((HOLDER, OWNER, DEALER), role)
    return run_together(roles, transcript=transcript or Transcript(), timeout=60)


def make_case(rows, columns, seed):
    rng = np.random.default_rng(seed)
    chance = rng.dirichlet(np.full(FINE_BINS, 0.7), columns)
    # Some columns go with the label, and some bins are nearly pure or empty.
    target = (rng.random(rows) < 0.3).astype(np.int64)

    def draw(width):
        p = chance[:, :width] + 1e-9
        own = [rng.choice(p.shape[1], rows, p=line / line.sum()) for line in p]
        places = np.stack(own, axis=1)
        places[target == 1, 0] = np.minimum(places[target == 1, 0], 2)
        drawn.append(places)
        return places

    drawn = []
    return target, draw, drawn


def expect(target, places, width):
    """The same by looking at everything."""
    lines = []
    for column in places.T:
        rows = np.bincount(column, minlength=width)
        positives = np.bincount(column[target == 1], minlength=width)
        ends, before = find_ends(rows, positives), np.cumsum(positives)
        line = np.zeros(width, dtype=np.int64)
        for end in ends:
            line[end - 1] = round_counts(before[end - 1])
        lines.append(line)
    return np.array(lines)


@pytest.mark.parametrize(
    ("hide", "rows", "columns", "seed"),
    [(True, 300, 2, 0), (True, 1000, 5, 1), *((False, 400, 3, seed) for seed in range(2, 8))],
)
def test_counts_on_shares_are_those_of_a_loop(hide, rows, columns, seed):
    target, draw, drawn = make_case(rows, columns, seed)
    found = count(target, draw, columns, hide)
    width = plan_fine_bins(columns, target)
    opened = np.asarray(found[OWNER])
    np.testing.assert_array_equal(opened, expect(target, drawn[0], width))
    assert found[HOLDER] is None
    assert found[DEALER] is None
    for line, column in zip(opened, drawn[0].T, strict=True):
        ends = [0, *(np.flatnonzero(line[:-1]) + 1), width]
        for start, end in itertools.pairwise(ends):
            inside = target[(column >= start) & (column < end)]
            assert min(inside.sum(), len(inside) - inside.sum()) >= LEAST


def test_only_declared_values_cross_and_counts_go_to_their_owner():
    target, draw, _ = make_case(300, 2, 0)
    transcript = Transcript()
    count(target, draw, 2, transcript=transcript)
    opened = [entry for entry in transcript.entries if entry.name.endswith("positives")]
    assert opened
    assert {entry.receiver for entry in opened} == {OWNER}


def test_few_rows_are_cut_coarsely_or_not_at_all():
    target = np.repeat([0, 1], [500, 60])
    assert plan_fine_bins(1, target) == FINE_BINS + 1
    assert plan_fine_bins(5, target) == 6
    assert plan_fine_bins(10, target) == 3
    with pytest.raises(DataError, match=r"11 columns of one party are too many .* 6 per column"):
        plan_fine_bins(11, target)
    with pytest.raises(DataError, match="at least 20 rows of each class"):
        plan_fine_bins(1, np.repeat([0, 1], [500, 19]))
