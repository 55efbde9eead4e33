"""Gradients of parts of the rows: the given party solves them for binary columns of the other.

Sums over all rows and sums over all rows but a few differ by sums over these few: as many exact
equations as the given party has columns, for so few bits that a mixed-integer program finds them.
"""

from functools import partial

import numpy as np
import pytest

from tests.attacks.completion_views import Opened, Words, federation, people
from vfsl.audit.solvers import solve_for_bits
from vfsl.channel import run_together
from vfsl.completion.bases import RidgeBase, make_pair, prepare_given
from vfsl.completion.fedpsg import FedPSG
from vfsl.estimators.descent import Width
from vfsl.parts import Part, Roles

ROLES = Roles("B", ("A",), "K", "plain")
CHANCE = 3.0  # standard errors of a guess


def bits_of(b, column, rows):
    """1 for the rarer value: the more frequent one follows from it and is not predicted."""
    cells = b[column].to_numpy()[rows]
    values, counts = np.unique(cells, return_counts=True)
    return (cells == values[counts.argmin()]).astype(int)


def own_columns(table, rows):
    """A's columns as its models take them: standardised over the rows that train."""
    matrix = table.frame.to_numpy(float)[rows]
    matrix = (matrix - matrix.mean(axis=0)) / matrix.std(axis=0)
    return matrix - matrix.mean(axis=0)


def sums_of_bits(gradient, bits, rows):
    """XᵀU from A's first gradient of a column; the attacker is told how many bits are set."""
    share = bits.mean()
    width = Width.for_rows(rows, score_range=7)
    return -gradient / 2.0**width.sums * np.sqrt(share * (1 - share))


def right(found, bits):
    return 0.0 if found is None else float((found == bits).mean())


def chance_level(bits, guess):
    """The majority class, or what A's own model says of the column, with room for luck."""
    best = max(bits.mean(), 1 - bits.mean(), (guess == bits).mean())
    return best + CHANCE * np.sqrt(0.25 / len(bits))


def best_reader(words, bits):
    """How many bits the best single column of numbers that A was sent gets right, by its sign."""
    columns = words.columns("A", len(bits))
    guesses = columns > np.median(columns, axis=0)
    hits = (guesses == bits[:, None].astype(bool)).mean(axis=0)
    return len(hits), np.maximum(hits, 1 - hits).max()


@pytest.mark.parametrize("rounds", [1, 4])
def test_on_shares_the_given_party_is_shown_nothing(monkeypatch, rounds):
    words = Words(monkeypatch)
    rows = 300
    a, b = people(rows)
    fed = federation(a, b, rows, scheme="auto")
    FedPSG(tau=0.0, rounds=rounds, confidence="paper").fit_complete(fed)
    assert {party for party, *_ in words.opened} == {"B"}  # no sum, no gradient, nothing else
    for column in ("married", "sex"):
        bits = bits_of(b, column, fed.plan["B"].overlap)
        tried, right_share = best_reader(words, bits)
        luck = np.sqrt(2 * np.log(2 * tried)) + 1.5  # the best of so many guesses at random
        assert tried > 100
        assert right_share <= max(0.5, 1 - bits.mean()) + luck * np.sqrt(0.25 / rows)


def test_without_masks_the_same_messages_are_the_columns(monkeypatch):
    """The control: the attacker reads what it is sent, where nothing hides it."""
    words = Words(monkeypatch, hide=False)
    rows = 300
    a, b = people(rows)
    fed = federation(a, b, rows, scheme="auto")
    FedPSG(tau=0.0).fit_complete(fed)
    for column in ("married", "sex"):
        bits = bits_of(b, column, fed.plan["B"].overlap)
        columns = words.columns("A", rows)
        halves = columns > (columns.min(axis=0) + columns.max(axis=0)) / 2
        assert (halves == bits[:, None]).all(axis=0).any()


@pytest.mark.parametrize(
    ("rows", "seconds"),
    [
        (150, 6.0),
        pytest.param(300, 60.0, marks=pytest.mark.slow),
        pytest.param(600, 60.0, marks=pytest.mark.slow),
    ],
)
def test_the_given_party_reads_no_binary_column(monkeypatch, rows, seconds):
    opened = Opened(monkeypatch)
    a, b = people(rows)
    fed = federation(a, b, rows)
    FedPSG(tau=0.0).fit_complete(fed)  # every column is predicted
    seen = opened.gradients_of("A")
    # Differences between gradients of one column would be sums over fewer rows: there are none.
    firsts = [values[0][0] for scope, values in seen if scope.endswith("round 0/")]
    assert len(firsts) == 2
    np.testing.assert_array_equal(*firsts)
    places = fed.plan["B"].overlap
    mine, _ = prepare_given(fed.sites["A"].part(), make_pair("linear"))
    matrix = own_columns(mine.table, mine.rows)
    for number, column in enumerate(("married", "sex")):
        bits = bits_of(b, column, places)
        sums = sums_of_bits(seen[0][1][0][number], bits, rows)
        np.testing.assert_allclose(sums, matrix.T @ bits, atol=1e-3)  # the view is what it is
        slopes = np.linalg.lstsq(matrix.T @ matrix, sums, rcond=None)[0]
        guess = (matrix @ slopes > np.quantile(matrix @ slopes, 1 - bits.mean())).astype(int)
        found = solve_for_bits(matrix, sums, seconds)
        assert right(found, bits) <= chance_level(bits, guess)


def test_opened_gradients_of_parts_give_binary_columns_away(monkeypatch):
    """The control: with models of all rows but a part, as a cross-fit would train them."""
    opened = Opened(monkeypatch)
    rows, parts = 150, 5
    a, b = people(rows)
    fed = federation(a, b, rows)
    tables, places = fed.tables, {p: fed.plan[p].overlap for p in "AB"}
    bits = bits_of(b, "sex", places["B"])
    everybody = np.arange(rows)
    folds = everybody % parts

    def first_sums(kept):
        """Σ x·u over some rows in A's own units, from the gradient that A sees when they train."""
        opened.gradients.clear()
        nothing = tables["B"].without(tables["B"].columns)
        jobs = {
            party: partial(RidgeBase(protocol="rounds").train, part=part, roles=ROLES)
            for party, part in {
                "A": Part(tables["A"], places["A"][kept]),
                "B": Part(nothing, places["B"][kept], target=bits[kept].astype(float)),
                "K": None,
            }.items()
        }
        run_together(jobs)
        gradient = opened.gradients_of("A")[0][1][0][0]
        raw = tables["A"].frame.to_numpy(float)[places["A"][kept]]
        sums = sums_of_bits(gradient, bits[kept], len(kept))
        return raw.std(axis=0) * sums + raw.mean(axis=0) * bits[kept].sum()

    whole = first_sums(everybody)
    for part in (0, 3):
        inside = everybody[folds == part]
        raw = tables["A"].frame.to_numpy(float)[places["A"][inside]]
        found = solve_for_bits(raw, whole - first_sums(everybody[folds != part]), 30.0)
        assert right(found, bits[inside]) == 1.0
