"""Scheme checks of products: by a number, element by element, and once more after a journey."""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import isqrt

import numpy as np

from vfsl.errors import BoundExceeded, CryptoError, InputError
from vfsl.testing.scheme_case import USES, SchemeCase, blob, raises


def check_products(case: SchemeCase) -> None:
    for shape in ((5,), (3, 2)):
        a, b = case.values(*shape), case.values(*shape, limit=2**10)
        for use in USES:
            for factor in (0, 1, -1, 7, -(2**15)):
                case.same(case.sent(a, use) * factor, a * factor)
        x = case.sent(a)
        if case.scheme.elementwise:
            case.same(x * b, a * b)
            case.same(b * x, a * b)
            case.same(x * (b * 0), a * 0)
            raises(InputError, operator.mul, x, b[:-1])
        else:
            raises(CryptoError, operator.mul, x, b)
        packed = case.sent(a, "inner")
        raises(CryptoError, operator.mul, packed, b)


def check_products_travel(case: SchemeCase) -> None:
    """A product that was received is worked on once more: added, multiplied, summed, sent on."""
    if not case.scheme.elementwise:
        return
    columns = case.values(6, 3, limit=2**10)
    groups = np.array([0, 1, 1, -1, 0, 2])
    for shape in ((6,), (6, 2)):
        a, more = case.values(*shape), case.values(*shape)
        b, c = case.values(*shape, limit=2**10), case.values(*shape, limit=2**10)
        product, expected = (case.sent(a) - case.sent(more)) * b, (a - more) * b
        case.same(product + c, expected + c)
        case.same(product.inner(columns), expected.T @ columns)
        received = case.public.load(product.to_wire())
        case.same(received, expected)
        case.same(received * c, expected * c)
        case.same(received.inner(columns), expected.T @ columns)
        sums = np.zeros((3, *shape[1:]), dtype=np.int64)
        np.add.at(sums, groups[groups >= 0], expected[groups >= 0])
        case.same(received.sum_by(groups, 3), sums)
        # What this party still has and what it receives combine.
        case.same(received + product, 2 * expected)
        case.same((received - c).inner(columns) * 3, (expected - c).T @ columns * 3)
        # Sent on as it is, it can still be summed by the next one.
        passed_on = case.peer.load((received + received).to_wire())
        case.same(passed_on.inner(columns), 2 * expected.T @ columns)


def check_products_hide(case: SchemeCase) -> None:
    """A product leaves in another form each time, also where its factors are zeros and ones."""
    if not case.scheme.elementwise or not case.scheme.hides:
        return
    received = case.sent(case.values(4))
    came = blob(received.to_wire().payload)
    for factors in (np.zeros(4, dtype=np.int64), np.ones(4, dtype=np.int64)):
        forms = {blob((received * factors).to_wire().payload) for _ in range(2)}
        if len(forms) < 2 or came in forms:
            raise AssertionError("a product left without re-randomisation")


def check_product_bounds(case: SchemeCase) -> None:
    """Products and their sums are exact up to the last integer, and one more is refused."""
    if not case.scheme.elementwise:
        return
    capacity = case.public.encrypt([1]).capacity
    reach = min(capacity, 2**61 - 1)
    root = isqrt(reach)
    x = case.sent(np.array([root, -root, 1]))
    factors = np.array([root, root, -root])
    case.same(case.public.encrypt(np.array([root, -root, 1])) * factors, factors * [root, -root, 1])
    raises(BoundExceeded, operator.mul, x, np.array([0, 0, capacity], dtype=object))
    full = case.public.encrypt(np.array([case.public.capacity, 0], dtype=object))
    past = capacity // case.public.capacity + 1
    raises(BoundExceeded, operator.mul, full, np.array([past, 0]))
    raises(BoundExceeded, operator.mul, full, np.array([0, -past]))
    parts = case.public.encrypt(np.full(12, reach // 12)) * np.tile([1, -1, 1], 4)
    signs = np.tile([1, -1, 1], 4)[:, None]
    case.same(parts.inner(signs), np.array([reach // 12 * 12]))
    if reach == capacity:
        raises(BoundExceeded, parts.inner, 2 * signs)


PRODUCT_CHECKS: tuple[Callable[[SchemeCase], None], ...] = (
    check_products,
    check_products_travel,
    check_products_hide,
    check_product_bounds,
)
