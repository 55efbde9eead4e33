"""Rows with flipped pseudo labels leave, truly labelled rows stay, and accuracy holds better."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

torch = pytest.importorskip("torch")

from benchmarks.rivals.harness import Problem, View  # noqa: E402
from benchmarks.rivals.together import Together  # noqa: E402
from vfsl.evidence import MLP, PAPER, PLUS_TABLES, RISA, course  # noqa: E402
from vfsl.evidence.course import Course  # noqa: E402
from vfsl.evidence.encoders import Arrays, PixelColumns  # noqa: E402
from vfsl.evidence.networks import Learning, as_inputs  # noqa: E402
from vfsl.evidence.rows import UNKNOWN, deal, pseudo_labels  # noqa: E402


def digits(seed, rows=700, overlap=100):
    data = load_digits()
    pictures = ((data.images - 8) / 6).astype(np.float32)
    order = np.random.default_rng(seed).permutation(len(pictures))
    first, test = order[:rows], order[-500:]
    second = np.concatenate([first[:overlap], order[rows : 2 * rows - overlap]])[:rows]
    columns = PixelColumns(tuple(f"p{i}" for i in range(32)), 0.0, 1.0)

    def half(numbers, place):
        cells = pictures[numbers][:, :, 4 * place : 4 * place + 4].reshape(-1, 32)
        return as_inputs(Arrays(cells, np.zeros((len(cells), 0), np.int64)))

    views = tuple(View(half(n, place), MLP(), columns) for place, n in enumerate((first, second)))
    learning = Learning(epochs=20, batch_size=64)
    # No labels outside the overlap, so that pseudo labels matter.
    labels = np.where(np.arange(rows) < overlap, data.target[first], UNKNOWN).astype(np.int64)
    problem = Problem(views, overlap, labels, 10, learning)
    return problem, (half(test, 0), half(test, 1)), data.target[test]


def flip_labels(monkeypatch, fraction, seed=0):
    """Make that fraction of pseudo labels wrong on purpose; returns who was flipped."""
    flipped = {}

    def labels(chances, least):
        given = pseudo_labels(chances, least)
        rng = np.random.default_rng(seed)
        wrong = rng.random(len(given)) < fraction
        flipped["rows"] = wrong[given >= 0]
        other = (given + rng.integers(1, 10, len(given))) % 10
        return np.where(wrong & (given >= 0), other, given)

    monkeypatch.setattr(course, "pseudo_labels", labels)
    return flipped


def accuracy(switches, problem, test, truth):
    model = Together(Course(RISA(tau_p=0.4), switches, problem.learning))
    fitted = model.fit(problem, np.random.default_rng(0))
    return (fitted(*test).argmax(axis=1) == truth).mean(), model.learned_


def test_steps_are_the_same_whatever_rows_take_part():
    """The paper's ablation without IMP has few of the rows, and as many steps."""
    problem, _, _ = digits(0, rows=300)
    learning = Learning(epochs=2, batch_size=50)
    problem = replace(problem, labels=np.arange(300) % 10, learning=learning)
    for impute, turns in ((True, 1), (False, 3)):  # over 300 rows, and over 100
        switches = replace(PAPER, impute=impute, self_train=False, evidential=False)
        plan = Course(RISA(), switches, learning, steps=12)
        together = Together(plan)
        together.fit(problem, np.random.default_rng(0))
        rows = [line["rows"] for line in together.learned_.rounds]
        assert [turns * count for count in rows] == [300, 300]  # two epochs of six steps
        assert plan.spend_steps(rows[0]).turns == turns
    batches = deal(np.arange(100), 50, np.random.default_rng(0), turns=3)
    assert [len(set(batch)) for batch in batches] == [50] * 6
    assert np.bincount(np.concatenate(batches)).tolist() == [3] * 100


@pytest.mark.slow
def test_flipped_pseudo_labels_are_found_and_hurt_less(monkeypatch):
    falls = {"plus": [], "IMP + ST": []}
    separation = []
    # Pseudo labels at full weight, so that flipping them can hurt both alike.
    variants = {
        "plus": replace(PLUS_TABLES, pseudo_weight=1.0),
        "IMP + ST": replace(PAPER, evidential=False),
    }
    for seed in range(2):
        problem, test, truth = digits(seed)
        for name, switches in variants.items():
            found = {}
            for fraction in (0.0, 0.3):
                flipped = flip_labels(monkeypatch, fraction)
                found[fraction], learned = accuracy(switches, problem, test, truth)
                if name == "plus" and fraction:
                    pseudo = ~learned.labelled & (learned.labels >= 0)
                    separation.append(roc_auc_score(flipped["rows"], learned.scores[pseudo]))
                    assert {line["label"] for line in learned.left} == {"pseudo"}
                    gone = np.array([line["row"] for line in learned.left])
                    wrong = np.zeros(len(pseudo), bool)
                    wrong[np.flatnonzero(pseudo)] = flipped["rows"]
                    assert wrong[gone].mean() > 0.8  # chance would be 0.3
            falls[name].append(found[0.0] - found[0.3])
    assert min(separation) > 0.9
    assert np.mean(falls["plus"]) < np.mean(falls["IMP + ST"])
