"""Every scheme keeps the public contract, agrees with every other, and the contract has teeth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from vfsl.crypto import make_scheme
from vfsl.crypto.plain import Plain, PlainArray, PlainMask
from vfsl.errors import BoundExceeded
from vfsl.testing.scheme_openings import (
    check_altered,
    check_masks_uniform,
    check_prefix_sums,
    check_rerandomised,
    check_sum_bounds,
    check_sums_hide,
)
from vfsl.testing.schemes import (
    SCHEME_CHECKS,
    SchemeCase,
    check_bounds,
    check_product_bounds,
    check_products,
    check_products_hide,
    check_products_travel,
    check_scheme,
    check_sum_by,
    check_take,
)
from vfsl.values import Array


@pytest.mark.parametrize("check", SCHEME_CHECKS, ids=lambda check: check.__name__)
def test_contract(check: Callable[[SchemeCase], None], case: SchemeCase) -> None:
    check(case)


@pytest.mark.slow
def test_contract_of_paillier_at_full_size() -> None:
    check_scheme(lambda: make_scheme("paillier"))


def test_check_scheme_runs_everything() -> None:
    check_scheme(Plain)


class Claims(Plain):
    """Says that it hides, and does not."""

    hides = True


def test_contract_sees_that_ciphertexts_repeat() -> None:
    with pytest.raises(AssertionError, match="re-randomisation"):
        check_rerandomised(SchemeCase(Claims()))
    with pytest.raises(AssertionError, match="re-randomisation"):
        check_products_hide(SchemeCase(Claims()))


@pytest.mark.parametrize(
    ("method", "broken", "check"),
    [
        (
            "_sum_by",
            lambda self, grouping, shape, bound: self._make(self.values[: shape[0]], bound),
            check_sum_by,
        ),
        ("_check_next", lambda self, bound, operation: bound, check_bounds),
        ("_check_next", lambda self, bound, operation: bound, check_product_bounds),
        (
            "_multiply",
            lambda self, values, bound: self._make(self.values * values[::-1], bound),
            check_products,
        ),
        (
            "_rerandomise",
            lambda self: {"values": np.clip(self.values.reshape(-1), -(2**22), 2**22)},
            check_products_travel,
        ),
        (
            "_mask",
            lambda self: (
                {"values": self.values.reshape(-1).astype(np.uint64) + np.uint64(1)},
                PlainMask(self.key, self.shape, self.bound, np.ones(self.size, dtype=np.uint64)),
            ),
            check_masks_uniform,
        ),
        (
            "_mask_sums",
            lambda self, sums, shown, bound: self._hide(
                sums.add_up(self.values.reshape(-1)), (len(sums),), bound
            ),
            check_sums_hide,
        ),
        (
            "_mask_sums",
            lambda self, sums, shown, bound: self._hide(
                np.sort(sums.add_up(self.values.reshape(-1))[shown]), (len(shown),), bound
            ),
            check_prefix_sums,
        ),
        ("_bound_groups", lambda self, sums, *rest: sums, check_sum_bounds),
        ("_take", lambda self, rows: self._make(self.values[rows[::-1]], self.bound), check_take),
    ],
)
def test_contract_sees_a_broken_scheme(
    method: str, broken: Any, check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlainArray, method, broken)
    with pytest.raises((AssertionError, BoundExceeded)):
        check(SchemeCase(Plain()))


def test_contract_sees_unchecked_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vfsl.crypto.wire.check_header", lambda *given: None)
    with pytest.raises(AssertionError):
        check_altered(SchemeCase(Plain()))


few = settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
small = st.integers(-(2**20), 2**20)


@few
@given(
    values=hnp.arrays(
        np.int64, hnp.array_shapes(min_dims=1, max_dims=2, max_side=6), elements=small
    ),
    data=st.data(),
    use=st.sampled_from(["any", "inner", "sum_by"]),
)
def test_homomorphism(case: SchemeCase, values: Array, data: st.DataObject, use: Any) -> None:
    rows = len(values)
    columns = data.draw(hnp.arrays(np.int64, (rows, 3), elements=st.integers(-(2**16), 2**16)))
    groups = data.draw(hnp.arrays(np.int64, rows, elements=st.integers(-1, 3)))
    factor = data.draw(st.integers(-100, 100))
    x = case.send(values, use)
    case.check(x.inner(columns) * factor, values.T @ columns * factor)
    sums = np.zeros((4, *values.shape[1:]), dtype=np.int64)
    np.add.at(sums, groups[groups >= 0], values[groups >= 0])
    case.check(x.sum_by(groups, 4) - sums, np.zeros_like(sums))
