"""Sums and counts of held-out errors: the missing party reads no row's error or score from them."""

import numpy as np

from tests.attacks.completion_views import Words, federation, people
from vfsl.completion.bases import make_pair
from vfsl.completion.calibration import draw_errors
from vfsl.completion.fedpsg import FedPSG
from vfsl.completion.shared_roles import Prepared
from vfsl.completion.tasks import residual_factors

ROWS = 400
CHANCE = 4.0  # standard errors
SUMS = {"errors of numbers", "errors of classes", "errors by prediction", "rows within"}


def held_out(fed, values):
    """The errors that are hidden, from both parties' tables in one place."""
    given = Prepared.of(fed.sites["A"].part(), make_pair("linear")).turn(make_pair("linear"))
    inside = values - values.mean(axis=0)
    leverage = (given.columns**2).sum(axis=1, keepdims=True) / len(inside)
    fitted = given.columns @ (given.columns.T @ inside / len(inside))
    return residual_factors(leverage, 1.0) * (fitted - inside)


def within(codes, *columns):
    """Columns without their mean over the rows of each class, which B was told."""
    return [
        column - np.array([column[codes == code].mean() for code in np.unique(codes)])[codes]
        for column in columns
    ]


def test_what_is_opened_tells_no_row(monkeypatch):
    words = Words(monkeypatch)
    a, b = people(ROWS, columns=8, rest=300)
    fed = federation(a, b, ROWS, scheme="auto", seed=1)
    done = FedPSG(tau=0.0).fit_complete(fed)
    opened = {name for party, name, _ in words.opened if party == "B"}
    assert opened == SUMS | {"predictions", "strengths", "above"}
    count = sum(values.size for _, name, values in words.opened if name in SUMS)
    assert count < ROWS / 2  # of three columns: no more than half a number per row
    limit = CHANCE / np.sqrt(ROWS)

    # What B makes of all it was told are its drawn errors and scores.
    income = done.columns["income"]
    errors = held_out(fed, income.target.filled[:, None])[:, 0]
    drawn = income.fold.predicted - income.target.filled
    beyond = income.target.filled - income.fold.baseline
    left = [one - beyond * (one @ beyond) / (beyond @ beyond) for one in (errors, drawn)]
    assert abs(np.corrcoef(*left)[0, 1]) < limit
    married = done.columns["married"]
    hot = married.target.numbers(married.target.filled)
    scores = (held_out(fed, hot) + hot)[:, 0]
    both = within(married.target.grouped, scores, married.fold.scores[:, 0])
    assert abs(np.corrcoef(*both)[0, 1]) < limit

    # The control: the same with sums over few rows, as a protocol without a limit would open them.
    parts = np.arange(ROWS) // 2
    sums = [np.bincount(parts, weights=errors * other) for other in (errors, beyond)]
    known, rng = np.ones(ROWS, dtype=bool), np.random.default_rng(0)
    read = draw_errors(*sums, beyond, known, parts, rng)
    read = read - beyond * (read @ beyond) / (beyond @ beyond)
    assert abs(np.corrcoef(np.abs(left[0]), np.abs(read))[0, 1]) > 0.5


def test_sums_of_classes_are_over_ten_rows_at_least(monkeypatch):
    """Even where a class has few rows, or a party asks for many parts."""
    seen = []
    from vfsl.completion import shared_errors

    ask = shared_errors._ask_classes

    def listen(s, sizes, missing, error):
        if missing is not None:
            seen.extend((codes, missing.known) for codes in missing.codes.values())
        return ask(s, sizes, missing, error)

    monkeypatch.setattr(shared_errors, "_ask_classes", listen)
    a, b = people(120, columns=5, rest=150)
    b["sex"] = np.where(np.arange(len(b)) % 9 == 0, "x", b["sex"])  # 14 of 120 rows
    FedPSG(tau=0.0).fit_complete(federation(a, b, 120, scheme="auto", seed=1))
    assert seen
    for codes, _ in seen:
        counts = np.bincount(codes)
        assert counts[counts > 0].min() >= 10
