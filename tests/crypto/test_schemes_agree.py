"""plain = paillier = bfv, bit for bit, through a whole exchange."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from vfsl.crypto import SCHEMES, Work, choose_scheme
from vfsl.crypto.fixed import encode, shift
from vfsl.testing.schemes import SchemeCase


def exchange(case: SchemeCase) -> list[list[int]]:
    rng = np.random.default_rng(3)
    residual = encode(rng.normal(size=120), 20)
    columns = encode(rng.normal(size=(120, 6)), 16)
    received = case.send(residual, "inner")
    gradient = case.open(received.inner(columns) + columns.sum(axis=0))
    bins = rng.integers(-1, 5, size=(120, 3))
    sums = case.open(case.send(residual, "sum_by").sum_by_many(bins, 5) * -3)
    weights = encode(rng.uniform(0, 2, size=120), 10)
    weighted = case.public.load((case.send(residual) * weights).to_wire())
    slopes = case.open(weighted.inner(columns))
    votes = case.open(case.send(residual) * (weights > 2**10).astype(np.int64) + weights)
    return [shift(gradient, 16).tolist(), *sums.tolist(), slopes.tolist(), votes.tolist()]


def test_schemes_agree(plain: SchemeCase, paillier: SchemeCase, bfv: SchemeCase) -> None:
    expected = exchange(plain)
    assert exchange(paillier) == expected
    assert exchange(bfv) == expected


EXPECTED = {
    "linear": "shares",
    "linear rounds": "bfv",
    "linear rounds of many": "bfv",
    "association": "shares",
    "trees": "shares",
    "trees without a key holder": "paillier",
}


@pytest.mark.parametrize("work", get_args(Work))
def test_auto_never_means_plain(work: str) -> None:
    assert choose_scheme(work) in set(SCHEMES) - {"plain"}
    assert choose_scheme(work) == EXPECTED[work]
