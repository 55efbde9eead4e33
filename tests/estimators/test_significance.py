"""Tests of independence: their p-values by hand and between parties, and the choice among many."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tests.estimators.test_association import (
    PLAIN,
    SHARES,
    deviate,
    frames,
    hidden_bytes,
    parts_of,
    reference_matrix,
    run,
    shape_of,
)
from vfsl.channel import Transcript
from vfsl.channel.wire import decode
from vfsl.data import Kind
from vfsl.errors import ProtocolError
from vfsl.estimators import Association, association
from vfsl.estimators.measures import orthonormalise
from vfsl.estimators.significance import choose_significant, count_independent, find_p_values


def test_columns_that_repeat_are_worth_one():
    column = np.array([[3.0], [-1.0], [-2.0]]) / np.sqrt(14)
    other = np.array([[0.0], [2.0], [-2.0]]) / np.sqrt(8)
    assert count_independent(np.hstack([column, column, column])) == (3, pytest.approx(1.0))
    apart = np.hstack([column, np.cross(column.ravel(), other.ravel())[:, None]])
    apart[:, 1] /= np.linalg.norm(apart[:, 1])
    assert count_independent(apart) == (2, pytest.approx(2.0))
    assert count_independent(np.zeros((3, 2))) == (0, 0.0)
    assert find_p_values(np.zeros(2), np.ones(2), 10, 0, 0.0).tolist() == [1.0, 1.0]


def test_a_single_pair_has_the_p_value_of_its_textbook_test():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 300))
    y = y + 0.15 * x
    group = pd.Series(rng.choice(list("uvw"), 300))
    spaces = {
        "x": orthonormalise(pd.Series(x), Kind.NUMERIC),
        "y": orthonormalise(pd.Series(y), Kind.NUMERIC),
        "group": orthonormalise(group, Kind.CATEGORICAL),
    }

    def p_value(given, missing):
        total, worth = count_independent(spaces[given])
        explained = np.array([(spaces[given].T @ spaces[missing]) ** 2]).sum()
        width = spaces[missing].shape[1]
        return find_p_values(np.array([explained]), np.array([width]), 300, total, worth)[0]

    assert p_value("x", "y") == pytest.approx(stats.spearmanr(x, y).pvalue, rel=0.1)
    by_group = [y[group == level] for level in "uvw"]
    assert p_value("group", "y") == pytest.approx(stats.kruskal(*by_group).pvalue, rel=1e-6)
    assert p_value("y", "group") == pytest.approx(p_value("group", "y"), rel=1e-9)


def test_p_values_of_independent_columns_are_uniform_however_the_given_ones_hang_together():
    rng = np.random.default_rng(1)
    common = rng.normal(size=(200, 1))
    given = np.hstack(
        [orthonormalise(pd.Series(c), Kind.NUMERIC) for c in (common + rng.normal(size=(200, 6))).T]
    )
    total, worth = count_independent(given)
    assert total == 6
    assert 1.5 < worth < 5
    found = []
    for _ in range(600):
        own = orthonormalise(pd.Series(rng.choice(list("pqr"), 200)), Kind.CATEGORICAL)
        explained = ((given.T @ own) ** 2).sum()
        found.append(find_p_values(np.array([explained]), np.array([2]), 200, total, worth)[0])
    assert stats.kstest(found, "uniform").pvalue > 0.01
    # Counted as six independent columns, too many would pass: what G is for.
    naive = [stats.chi2.sf(stats.chi2.isf(p, 2 * worth) * total / worth, 2 * total) for p in found]
    assert stats.kstest(naive, "uniform").pvalue < 1e-3


def test_the_choice_is_that_of_benjamini_and_hochberg():
    rng = np.random.default_rng(2)
    for _ in range(200):
        values = rng.random(8) ** rng.integers(1, 6)
        chosen, cut = choose_significant(values)
        expected = stats.false_discovery_control(values) <= 0.05
        assert chosen.tolist() == expected.tolist()
        assert (values[chosen] <= cut).all()
        assert (values[~chosen] > cut).all()
    assert choose_significant(np.array([]))[0].tolist() == []


@pytest.mark.parametrize("roles", [PLAIN, SHARES], ids=["encrypted", "shares"])
@pytest.mark.parametrize("aggregate", ["mean", "max"])
def test_a_threshold_is_compared_with_the_unrounded_number(roles, aggregate):
    a, b = frames()
    exact = getattr(reference_matrix(a, b), aggregate)(axis=0)
    # Just below and just above the number of one column: both round to the same.
    place = int(np.argsort(exact)[-2])
    for threshold, passes in ((exact[place] - 2e-4, True), (exact[place] + 2e-4, False)):
        how = Association(aggregate, above=float(threshold))
        found = run(parts_of(a, b), how, roles)["B"]
        assert found["above"].tolist() == (exact > threshold).tolist()
        assert found["above"].iloc[place] == passes
        np.testing.assert_allclose(found["strength"], np.round(exact, 2), atol=1e-9)


def test_a_number_that_equals_the_threshold_is_not_above_it():
    ranks = np.arange(40.0)
    a = pd.DataFrame({"x": ranks, "flat": np.tile([0.0, 1.0, 1.0, 0.0], 10)})
    b = pd.DataFrame({"y": ranks})
    exact = reference_matrix(a, b).mean(axis=0)
    assert exact.tolist() == [0.5]  # 1 and 0
    for roles in (PLAIN, SHARES):
        how = Association(above=0.5, rows_per_column=2)
        assert run(parts_of(a, b), how, roles)["B"]["above"].tolist() == [False]


def test_both_protocols_find_the_same_p_values():
    a, b = frames()
    b["alone"] = np.random.default_rng(5).normal(size=len(b))
    how = Association(test=True)
    plain, shared = (run(parts_of(a, b), how, roles)["B"] for roles in (PLAIN, SHARES))
    np.testing.assert_allclose(plain["p"], shared["p"], rtol=0.02, atol=1e-12)
    chosen = set(plain.index[choose_significant(plain["p"])[0]])
    assert {"income", "children", "job"} <= chosen
    assert not {"alone", "one"} & chosen


def seen_with(a, b, how, roles=SHARES):
    transcript = Transcript(keep_views=True)
    run(parts_of(a, b), how, roles, transcript=transcript)
    return transcript


def test_on_shares_a_threshold_and_a_test_show_the_given_party_nothing():
    """The same sizes, other cells: A and the dealer see the same but for random words."""
    a, b = frames()
    rng = np.random.default_rng(9)
    other = pd.DataFrame({name: rng.normal(size=200) for name in ("v", "w", "x", "y")})
    other["z"] = rng.choice(list("pqrst"), 200)  # 8 derived columns, as b has
    how = Association(above=0.3, test=True)
    before, after = (seen_with(a, each, how) for each in (b, other))
    for party in "AK":
        assert shape_of(before, party) == shape_of(after, party)
    assert deviate(hidden_bytes(before, "A")) < 6
    # The control: what B sees in clear of A differs with A's cells.
    changed = a.assign(visits=a["age"])
    assert worth_in(before) != worth_in(seen_with(changed, b, how))


def worth_in(transcript):
    return [decode(s.body)[1] for s in transcript.sights if s.name.endswith("worth")]


@pytest.mark.parametrize("roles", [PLAIN, SHARES], ids=["encrypted", "shares"])
def test_the_missing_party_learns_a_bit_a_number_and_what_the_columns_are_worth(roles):
    a, b = frames()
    transcript = seen_with(a, b, Association(above=0.3, test=True), roles)
    told = {
        s.name.rpartition("/")[2] for s in transcript.sights if (s.sender, s.receiver) == ("A", "B")
    }
    results = {"strengths", "above", "explained", "worth"}
    assert told - {"masked", "sizes"} == results
    ((worth,),) = [worth_in(transcript)]
    assert worth == {"columns": 4, "worth": round(worth["worth"], 1)}
    shown = [one.numbers for one in transcript.releases if one.sender == "A"]
    assert shown == [len(b.columns)] * 3


def test_a_worth_that_no_table_has_is_refused(monkeypatch):
    def lie(channel, to, columns):
        channel.send(to, "worth", {"columns": 2, "worth": 9.0})

    monkeypatch.setattr(association, "_send_worth", lie)
    a, b = frames()
    with pytest.raises(ProtocolError, match="number of columns that none has"):
        run(parts_of(a, b), Association(test=True), SHARES)
