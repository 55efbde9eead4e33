"""plain = paillier = bfv, bit for bit, through a whole exchange."""

from __future__ import annotations

import numpy as np
import pytest

from vfsl.crypto import SCHEME_FOR, SCHEMES
from vfsl.crypto.fixed import encode, shift
from vfsl.testing.schemes import SchemeCase


def exchange(case: SchemeCase) -> list[list[int]]:
    rng = np.random.default_rng(3)
    residual = encode(rng.normal(size=120), 20)
    columns = encode(rng.normal(size=(120, 6)), 16)
    received = case.sent(residual, "inner")
    gradient = case.opened(received.inner(columns) + columns.sum(axis=0))
    bins = rng.integers(-1, 5, size=(120, 3))
    sums = case.opened(case.sent(residual, "sum_by").sum_by_many(bins, 5) * -3)
    weights = encode(rng.uniform(0, 2, size=120), 10)
    weighted = case.public.load((case.sent(residual) * weights).to_wire())
    slopes = case.opened(weighted.inner(columns))
    votes = case.opened(case.sent(residual) * (weights > 2**10).astype(np.int64) + weights)
    return [shift(gradient, 16).tolist(), *sums.tolist(), slopes.tolist(), votes.tolist()]


def test_schemes_agree(plain: SchemeCase, paillier: SchemeCase, bfv: SchemeCase) -> None:
    expected = exchange(plain)
    assert exchange(paillier) == expected
    assert exchange(bfv) == expected


@pytest.mark.parametrize("task", SCHEME_FOR)
def test_auto_never_means_plain(task: str) -> None:
    assert SCHEME_FOR[task] in set(SCHEMES) - {"plain"}
