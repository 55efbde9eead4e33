"""The one-shot solver: the same model as rounds, and what it shows."""

import numpy as np
import pytest

from tests.estimators.linear_cases import (
    BFV,
    PAILLIER,
    PLAIN,
    LinearInRounds,
    LogisticInRounds,
    classes,
    fitted,
    parts_of,
    tables,
    train,
)
from vfsl.channel import Transcript
from vfsl.errors import BoundExceeded, ConfigError, DataError
from vfsl.estimators import Roles
from vfsl.estimators.one_shot import DISCLOSURES, width


@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_equals_the_solution_by_rounds(l2):
    made, target = tables()
    parts = parts_of(made, np.column_stack([target, target**2]))
    _, rounds = fitted(LinearInRounds(l2=l2), parts)
    shares, once = fitted(LinearInRounds(l2=l2, solver="one-shot"), parts)
    np.testing.assert_allclose(once, rounds, atol=1e-5)
    assert shares["C"].stop_reason == "solved"


def test_logistic_of_degree_one():
    made, target = tables()
    parts = parts_of(made, classes(target))
    settings = {"refine": 0, "tolerance": 1e-7, "max_rounds": 100}
    _, rounds = fitted(LogisticInRounds(**settings), parts)
    _, once = fitted(LogisticInRounds(**settings, solver="one-shot"), parts)
    np.testing.assert_allclose(once, rounds, atol=1e-5)


def test_same_under_every_scheme_bit_for_bit():
    made, target = tables(rows=130)
    parts, model = parts_of(made, target), LinearInRounds(solver="one-shot")
    plain = train(model, parts, PLAIN)
    for roles in (PAILLIER, BFV):
        shares = train(model, parts, roles)
        assert shares["B"].state == plain["B"].state
        assert shares["C"].state == plain["C"].state


def test_a_party_without_columns():
    made, target = tables()
    made["B"] = made["B"].without(made["B"].columns)
    _, rounds = fitted(LinearInRounds(), parts_of(made, target))
    _, once = fitted(LinearInRounds(solver="one-shot"), parts_of(made, target))
    np.testing.assert_allclose(once, rounds, atol=1e-5)


def test_the_ledger_says_what_it_shows():
    made, target = tables()
    transcript = Transcript()
    train(LinearInRounds(solver="one-shot"), parts_of(made, target), transcript=transcript)
    facts = {(e.sender, e.receiver, e.message): e.fact for e in transcript.entries}
    assert "nameless columns" in facts["K", "B", "opened cross products"]
    assert "Gram" in facts["C", "B", "equations"]
    assert facts["B", "C", "contribution"] == DISCLOSURES["contribution"].fact
    assert len(transcript.entries) <= 12


def test_what_it_cannot_do_is_refused():
    made, target = tables(parties=("B", "D"))
    with pytest.raises(ConfigError, match="exactly one feature holder"):
        train(
            LinearInRounds(solver="one-shot"),
            parts_of(made, target),
            Roles("C", ("B", "D"), "K", "plain"),
        )
    made, target = tables()
    with pytest.raises(ConfigError, match="refine=0"):
        train(LogisticInRounds(solver="one-shot"), parts_of(made, classes(target)))
    with pytest.raises(ConfigError, match="one of 'rounds', 'one-shot'"):
        train(LinearInRounds(solver="magic"), parts_of(made, target))
    weighted = parts_of(made, target, weights=np.linspace(1, 2, 240))
    with pytest.raises(DataError, match="equal row weights"):
        train(LinearInRounds(solver="one-shot"), weighted)
    few, target = tables(rows=40)
    with pytest.raises(DataError, match="at least 60 are needed"):
        train(LinearInRounds(solver="one-shot"), parts_of(few, target))


def test_extreme_values_are_refused():
    made, _ = tables(rows=70_000)
    target = np.zeros(70_000)
    target[0] = 1.0  # 264 standard deviations
    with pytest.raises(BoundExceeded, match="256 standard deviations"):
        train(LinearInRounds(solver="one-shot", rare_rows_per_column=0), parts_of(made, target))
    assert width(70_000) == 15
