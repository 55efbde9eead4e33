"""What gradients count as: that later rounds add nothing is checked against their rank."""

import numpy as np
import pytest

from tests.estimators.linear_cases import (
    LinearInRounds,
    LogisticInRounds,
    classes,
    parts_of,
    tables,
    train,
)
from vfsl.channel import Channel, Transcript
from vfsl.estimators.descent import Problem
from vfsl.estimators.privacy import GradientCount, count_new, release_sums
from vfsl.pu.bases import BagLogistic


class Silent:
    me, peers = "C", ("B",)


@pytest.mark.parametrize("most", [0, 7, 30, 1000])
def test_messages_add_up_to_all_of_them_or_to_what_they_can_tell(most):
    added = [count_new(number, 4, most) for number in range(10)]
    assert sum(added) == min(40, most)
    assert added == sorted(added, reverse=True)


def released(problem, weighted, own, theirs, rounds):
    transcript = Transcript()
    channel = Channel(Silent(), transcript)
    count = GradientCount.of(problem.targets, weighted, own + 1)
    for number in range(rounds):
        count.release(channel, "B", theirs, number)
    return {line.about: (line.numbers, line.counted) for line in transcript.shown("s")}


@pytest.mark.parametrize("weighted", [False, True])
def test_no_descent_shows_more_than_its_products(weighted):
    """Gradients at many points are linear in the products, of the rank that is counted."""
    rng = np.random.default_rng(0)
    rows, own, theirs, points = 200, 4, 3, 60
    x_b, x_c = rng.normal(size=(rows, theirs)), rng.normal(size=(rows, own))
    x_b, y = x_b - x_b.mean(axis=0), rng.normal(size=rows)
    v = rng.uniform(0.1, 3, rows) if weighted else np.ones(rows)
    with_y = x_b.T @ (v * y)
    with_c = x_b.T @ (v[:, None] * x_c)
    with_one = x_b.T @ v
    with_b = x_b.T @ (v[:, None] * x_b)
    above = np.triu_indices(theirs)
    products = np.concatenate([with_y, with_c.ravel(), with_one, with_b[above]])
    lines, gradients = [], []
    for _ in range(points):
        w_b, w_c, one = rng.normal(size=theirs), rng.normal(size=own), rng.normal()
        gradients.append(x_b.T @ (v * (x_b @ w_b + x_c @ w_c + one - y)))
        for j in range(theirs):
            mine = np.eye(theirs)[j]
            pairs = np.outer(mine, w_b) + np.outer(w_b, mine) - np.diag(mine * w_b)
            lines.append(
                np.concatenate([-mine, np.outer(mine, w_c).ravel(), one * mine, pairs[above]])
            )
    lines = np.array(lines)
    np.testing.assert_allclose(lines @ products, np.concatenate(gradients))
    if not weighted:  # B knows its own Gram matrix, and that its columns are centred
        lines = lines[:, : theirs * (own + 1)]
    counted = released(Problem(y[:, None], v[:, None]), weighted, own, theirs, points)
    assert np.linalg.matrix_rank(lines) == sum(new for _, new in counted.values())
    assert counted["label"][0] == points * theirs


def test_models_with_one_target_count_once_and_classes_each():
    target = np.tile(np.arange(6.0)[:, None] % 2, (1, 5))
    bags = released(Problem(target, np.ones((6, 5))), True, 2, 3, 1)
    assert bags["label"] == (15, 3)
    classes_of_three = released(Problem(np.eye(6)[:, :3], np.ones((6, 3))), True, 2, 3, 1)
    assert classes_of_three["label"] == (9, 9)


def test_the_label_holders_own_gradients_count_for_the_feature_holder():
    transcript = Transcript()
    channel = Channel(Silent(), transcript)
    for number in range(5):
        release_sums(channel, "B", 2, (3, 4), number)
    (line,) = transcript.shown("s")
    assert line.numbers == 2 * (5 * 4 + 1 + 4 * 3)
    assert line.counted == 2 * (3 * 4 + 1 + 4 * 3)
    nothing = Transcript()
    release_sums(Channel(Silent(), nothing), "B", 2, (0, 4), 1)
    assert nothing.shown("s")[0].numbers == 0


@pytest.mark.parametrize(
    ("model", "looks"),
    [
        (LinearInRounds(max_rounds=4), 0),
        (LogisticInRounds(refine=2, max_rounds=9), 2),
        (BagLogistic(max_rounds=4, protocol="rounds"), 0),
    ],
)
def test_a_training_says_what_it_shows(model, looks):
    made, target = tables()
    target = target if model.name == "linear" else classes(target)
    transcript = Transcript()
    shares = train(model, parts_of(made, target), transcript=transcript)
    shown = {(line.sender, line.what, line.about): line for line in transcript.shown("train")}
    columns = len(shares["B"].state["weights"])
    gradients = len([e for e in transcript.entries if e.name.endswith("residual")])
    assert shown["C", "gradients", "label"].numbers == gradients * columns
    if looks:
        assert shown["B", "total scores", "columns"].numbers == looks * len(target)
    else:
        assert ("B", "total scores", "columns") not in shown
