"""Ensembles: combining rules by hand, and block-masked judging of completers."""

import numpy as np
import pandas as pd
import pytest

from vfsl.completion.ensembles import (
    Ensemble,
    choose_by_row,
    held_out,
    stack_weights,
    vote,
    weigh_by_error,
)
from vfsl.completion.simple import HotDeck, MeanMode
from vfsl.data import PartyTable
from vfsl.errors import ConfigError


def test_votes_are_counted():
    codes = np.array([[0, 1, 2], [0, 1, 1], [1, 1, 0]])
    shares = vote(codes, 3)
    np.testing.assert_allclose(shares, [[2 / 3, 1 / 3, 0], [0, 1, 0], [1 / 3, 1 / 3, 1 / 3]])
    np.testing.assert_allclose(vote(codes, 3, np.array([1.0, 1.0, 2.0]))[0], [0.5, 0.5, 0])


def test_means_weigh_the_inverse_error():
    answers = np.array([[1.0, 2.0], [4.0, 8.0]])
    np.testing.assert_allclose(weigh_by_error(answers, np.array([1.0, 2.0])), [2.0, 4.0])
    np.testing.assert_allclose(weigh_by_error(answers, np.array([0.0, 2.0])), [1.0, 2.0], rtol=1e-6)


def test_stacking_finds_the_true_mixture():
    rng = np.random.default_rng(0)
    answers = rng.normal(size=(3, 4000))
    truth = 0.7 * answers[0] + 0.3 * answers[1]
    found = stack_weights(answers, truth, ridge=1e-6)
    np.testing.assert_allclose(found, [0.7, 0.3, 0.0], atol=0.02)
    equal = stack_weights(answers, truth, ridge=1e9)
    np.testing.assert_allclose(equal, [1 / 3] * 3, atol=1e-3)


def test_the_best_method_near_each_row():
    points = np.array([[0.0], [0.1], [5.0], [5.1]])
    errors = np.array([[0.0, 0.0, 9.0, 9.0], [1.0, 1.0, 1.0, 1.0]])
    chosen = choose_by_row(errors, points, np.array([[0.05], [5.05]]), neighbours=2)
    assert chosen.tolist() == [0, 1]
    assert choose_by_row(errors, np.zeros((4, 0)), np.zeros((2, 0))).tolist() == [1, 1]


def table(rows=80):
    rng = np.random.default_rng(1)
    x = rng.normal(size=rows)
    frame = pd.DataFrame(
        {
            "x": x,
            "y": 3 * x + 0.1 * rng.normal(size=rows),
            "c": np.where(x > 0.5, "up", "down"),
        }
    )
    frame.insert(0, "id", [str(row) for row in range(rows)])
    return PartyTable.from_frame(frame, party="B", id="id")


def test_held_out_answers_hide_the_whole_block():
    known = table()
    answers = held_out(MeanMode, known, ["y", "c"], 4, np.random.default_rng(0))
    assert set(answers) == {"y", "c"}
    assert answers["c"].shape == (80, 2)
    # Every held-out mean comes from the other rows, so it is not the mean of all.
    means = np.unique(answers["y"][:, 0].round(9))
    assert len(means) == 4
    assert known.column("y").mean() not in means


@pytest.mark.parametrize("how", ["vote", "weighted", "stacking", "column", "row"])
def test_ensembles_complete_what_is_missing(how):
    known = table()
    asked = known.take(np.arange(10))
    frame = asked.frame.assign(y=np.nan, c=pd.Series([None] * 10, dtype=object))
    asked = PartyTable(asked.party, asked.ids, frame, asked.kinds)
    near = Ensemble([MeanMode, lambda: HotDeck(neighbours=3)], how=how)
    done = near.fit(known, np.random.default_rng(0)).complete(asked, np.random.default_rng(0))
    assert done.values["y"].notna().all()
    assert done.values["c"].isin(["up", "down"]).all()
    assert done.values["x"].tolist() == known.frame["x"].iloc[:10].tolist()
    np.testing.assert_allclose(near.weights_.sum(), 1)
    if how in ("stacking", "column", "row"):
        assert near.weights_["y"].idxmax() != "MeanMode"
        error = (done.means["y"] - known.frame["y"].iloc[:10]).abs().mean()
        assert error < known.frame["y"].std() / 2


def test_the_old_name_of_stacking_still_does():
    known = table()
    asked = known.frame.assign(y=np.nan).iloc[:10]
    answers = [
        Ensemble(["mean", "hot-deck"], how=how)
        .fit(known.frame, np.random.default_rng(0))
        .complete(asked, np.random.default_rng(0))
        for how in ("stack", "stacking")
    ]
    pd.testing.assert_frame_equal(answers[0].means, answers[1].means)


def test_bad_parameters():
    with pytest.raises(ConfigError, match="The how parameter of Ensemble must be one of"):
        Ensemble(how="best").fit(table(), np.random.default_rng(0))
    with pytest.raises(ConfigError, match="must name at least one method"):
        Ensemble(methods=[]).fit(table(), np.random.default_rng(0))
    with pytest.raises(ConfigError, match="not fitted yet"):
        Ensemble().complete(table(), np.random.default_rng(0))
