"""A malicious feature holder gives unit vectors as columns and reads residuals row by row.

In the protocol "rounds"; test_weights_to_labels.py has what is left of it on shares.
"""

import numpy as np
import pytest

from tests.attacks.linear_views import LABEL, federation, label_sums, watch
from tests.estimators.linear_cases import LinearInRounds, LogisticInRounds
from vfsl.errors import DataError
from vfsl.estimators import linear

ROWS = 600


def attack(model, asked, monkeypatch, share=0.4):
    """B's answer for the rows that it asks about, and their labels."""
    rng = np.random.default_rng(3)
    label = (rng.random(ROWS) < share).astype(int)
    fed = federation({"B": rng.normal(size=(ROWS, 2)), "C": rng.normal(size=(ROWS, 2))}, label)
    encode = linear.fit_encoder

    def lie(part, rows, missing=None):
        state, columns = encode(part, rows, missing)
        return state, np.eye(ROWS)[:, asked] if part.table.party == "B" else columns

    with monkeypatch.context() as patch, watch(monkeypatch) as seen:
        patch.setattr(linear, "fit_encoder", lie)
        model.fit(fed, LABEL)
    # The residual of a row at score 0 is −t = ±2 of a class, of either sign of a number.
    return label_sums(seen["B"])[0] > 0, label[asked] == 1


def test_exact_gradients_read_a_row_for_each_column(monkeypatch):
    """The control: one row of each ten in one run, so all of them in ten."""
    asked = np.arange(0, ROWS, 10)
    model = LogisticInRounds(
        refine=0, max_rounds=1, rare_rows_per_column=0, label_noise=0.0, tolerance=0.0
    )
    guess, truth = attack(model, asked, monkeypatch)
    assert (guess == truth).all()


@pytest.mark.parametrize("kind", [LogisticInRounds, LinearInRounds])
def test_more_rows_than_one_in_ten_are_refused(kind, monkeypatch):
    with pytest.raises(DataError, match="would reveal single rows"):
        attack(kind(max_rounds=1), np.arange(0, ROWS, 9), monkeypatch)


@pytest.mark.parametrize("kind", [LogisticInRounds, LinearInRounds])
def test_fewer_rare_rows_than_two_per_column_are_refused(kind, monkeypatch):
    with pytest.raises(DataError, match="which rows these are"):
        attack(kind(max_rounds=1), np.arange(0, ROWS, 10), monkeypatch, share=0.15)


def test_labels_hidden_in_one_column_are_not_read(monkeypatch):
    """Powers of two in one column would spell the labels of a whole group; noise blurs them."""
    found = {}
    for noise in (0.0, LogisticInRounds().label_noise):
        model = LogisticInRounds(refine=0, max_rounds=1, rare_rows_per_column=0, label_noise=noise)
        guess, truth = spell(model, monkeypatch)
        found[noise] = (guess == truth).mean()
    assert found.pop(0.0) == 1.0
    assert max(found.values()) < 0.85


def spell(model, monkeypatch, group=12, columns=50):
    """All 600 labels from 50 columns: each holds 1, 2, 4 … for the rows of its group."""
    rng = np.random.default_rng(4)
    label = rng.permutation(np.arange(ROWS) % 2)
    fed = federation({"B": rng.normal(size=(ROWS, 2)), "C": rng.normal(size=(ROWS, 2))}, label)
    encode = linear.fit_encoder
    powers = 2.0 ** np.arange(group) / 2**group
    chosen = np.kron(np.eye(columns), powers[:, None])

    def lie(part, rows, missing=None):
        state, own = encode(part, rows, missing)
        return state, chosen if part.table.party == "B" else own

    with monkeypatch.context() as patch, watch(monkeypatch) as seen:
        patch.setattr(linear, "fit_encoder", lie)
        model.fit(fed, LABEL)
    # Σ (y − ½) x of each group, so y spells a number in binary.
    sums = label_sums(seen["B"])[0] * 2**group + (2**group - 1) / 2
    numbers = np.clip(np.rint(sums), 0, 2**group - 1).astype(int)
    bits = (numbers[:, None] >> np.arange(group)) & 1
    return bits.ravel(), label
