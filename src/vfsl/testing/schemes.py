"""Contract of a homomorphic scheme, for vfsl's own schemes and for anybody else's.

    @pytest.mark.parametrize("check", SCHEME_CHECKS, ids=lambda check: check.__name__)
    def test_contract(check, case):          # case = SchemeCase(MyScheme()), made once
        check(case)

``check_scheme(MyScheme)`` goes through all of them. Every check compares with numpy integers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import isqrt

import numpy as np

from vfsl.crypto import EncryptedArray, Grouping, Scheme
from vfsl.errors import BoundExceeded, CryptoError, InputError
from vfsl.testing.claims import require
from vfsl.testing.scheme_case import (
    USES,
    SchemeCase,
    find_blob,
    require_error,
    sum_by,
    sum_by_many,
)
from vfsl.testing.scheme_openings import OPENING_CHECKS

__all__ = ["SCHEME_CHECKS", "SchemeCase", "check_scheme"]


def check_scheme(make: Callable[[], Scheme], *, seed: int = 0) -> None:
    """Run every check on one scheme; raises AssertionError at the first that fails."""
    case = SchemeCase(make(), seed=seed)
    for check in SCHEME_CHECKS:
        check(case)


def check_round_trip(case: SchemeCase) -> None:
    for shape in ((), (1,), (7,), (3, 4), (2, 3, 2)):
        values = case.values(*shape)
        for use in USES:
            array = case.public.encrypt(values, use=use)
            np.testing.assert_array_equal(case.secret.decrypt(array), values)
            case.check(array, values)
    for dtype in (np.int8, np.uint8, np.int32, np.uint64):
        case.check(case.public.encrypt(np.array([0, 1, 100], dtype=dtype)), np.array([0, 1, 100]))
    case.check(case.public.encrypt(np.array([5, -3], dtype=object)), np.array([5, -3]))


def check_extremes(case: SchemeCase) -> None:
    """The whole signed range works, up to the last integer."""
    top = case.public.capacity
    values = np.array([top, -top, 0, 1, -1], dtype=object)
    array = case.public.encrypt(values)
    case.check(array, values.astype(np.int64 if top < 2**63 else object))
    case.check(array - 0, values.astype(np.int64 if top < 2**63 else object))


def check_sums(case: SchemeCase) -> None:
    for shape in ((5,), (4, 3)):
        a, b = case.values(*shape), case.values(*shape)
        for use in USES:
            x, y = case.send(a, use), case.send(b, use)
            case.check(x + y, a + b)
            case.check(x - y, a - b)
            case.check(x + b, a + b)
            case.check(b + x, a + b)
            case.check(x - b, a - b)
            case.check(b - x, b - a)
            case.check(x + 3, a + 3)
            case.check(3 - x, 3 - a)
            case.check(-x, -a)
            case.check(x.without(y) + y, a)


def check_inner(case: SchemeCase) -> None:
    for use in USES:
        for _ in range(3):
            rows, k, d = (int(case.rng.integers(1, top)) for top in (50, 4, 8))
            columns = case.values(rows, d, limit=2**15)
            one, many = case.values(rows), case.values(rows, k)
            case.check(case.send(one, use).inner(columns), one @ columns)
            case.check(case.send(many, use).inner(columns), many.T @ columns)
    values = case.values(4)
    zeros = np.zeros((4, 3), dtype=np.int64)
    case.check(case.send(values).inner(zeros), np.zeros(3, dtype=np.int64))


def check_inner_results(case: SchemeCase) -> None:
    """Sums add, scale and combine like any other array."""
    columns = case.values(12, 5, limit=2**12)
    more = case.values(12, 5, limit=2**12)
    for use in USES:
        for values in (case.values(12), case.values(12, 3)):
            x = case.send(values, use)
            plain = values.T @ columns
            shift = case.values(*plain.shape)
            result = x.inner(columns)
            case.check(result + x.inner(more), plain + values.T @ more)
            case.check((result * -3) - shift, plain * -3 - shift)
            # A sum that another party sends on keeps its layout.
            case.check(case.public.load(result.to_wire()) + shift, plain + shift)


def check_sum_by(case: SchemeCase) -> None:
    for use in USES:
        for _ in range(3):
            rows, k, n = (int(case.rng.integers(1, top)) for top in (50, 4, 8))
            # −1 is a row that counts nowhere; some groups stay empty.
            groups = case.rng.integers(-1, n, size=rows)
            one, many = case.values(rows), case.values(rows, k)
            case.check(case.send(one, use).sum_by(groups, n), sum_by(one, groups, n))
            case.check(case.send(many, use).sum_by(groups, n), sum_by(many, groups, n))
    nowhere = np.full(4, -1)
    case.check(case.send(case.values(4)).sum_by(nowhere, 2), np.zeros(2, dtype=np.int64))


def check_sum_by_many(case: SchemeCase) -> None:
    for use in USES:
        groups = case.rng.integers(-1, 3, size=(40, 5))
        for values in (case.values(40), case.values(40, 2)):
            expected = sum_by_many(values, groups, 3)
            x = case.send(values, use)
            case.check(x.sum_by_many(groups, 3), expected)
            often = Grouping(groups, 3, again=True)
            for _ in range(2):
                case.check(x.sum_by_many(often, 3), expected)
            case.check((x + x).sum_by_many(often, 3), 2 * expected)
            part = np.where(np.arange(40)[:, None] < 20, groups, -1)
            rest = np.where(np.arange(40)[:, None] < 20, -1, groups)
            left = x.sum_by_many(groups, 3).without(x.sum_by_many(part, 3))
            case.check(left, sum_by_many(values, rest, 3))


def check_products(case: SchemeCase) -> None:
    """Products by a number, and element by element."""
    for shape in ((5,), (3, 2)):
        a, b = case.values(*shape), case.values(*shape, limit=2**10)
        for use in USES:
            for factor in (0, 1, -1, 7, -(2**15)):
                case.check(case.send(a, use) * factor, a * factor)
        x = case.send(a)
        if case.scheme.elementwise:
            case.check(x * b, a * b)
            case.check(b * x, a * b)
            case.check(x * (b * 0), a * 0)
            require_error(InputError, operator.mul, x, b[:-1])
        else:
            require_error(CryptoError, operator.mul, x, b)
        require_error(CryptoError, operator.mul, case.send(a, "inner"), b)


def check_products_travel(case: SchemeCase) -> None:
    """A product that was received is worked on once more: added, multiplied, summed, sent on."""
    if not case.scheme.elementwise:
        return
    columns = case.values(6, 3, limit=2**10)
    groups = np.array([0, 1, 1, -1, 0, 2])
    for shape in ((6,), (6, 2)):
        a, more = case.values(*shape), case.values(*shape)
        b, c = case.values(*shape, limit=2**10), case.values(*shape, limit=2**10)
        product, expected = (case.send(a) - case.send(more)) * b, (a - more) * b
        case.check(product + c, expected + c)
        case.check(product.inner(columns), expected.T @ columns)
        received = case.public.load(product.to_wire())
        case.check(received, expected)
        case.check(received * c, expected * c)
        case.check(received.inner(columns), expected.T @ columns)
        case.check(received.sum_by(groups, 3), sum_by(expected, groups, 3))
        # What this party still has and what it receives combine.
        case.check(received + product, 2 * expected)
        case.check((received - c).inner(columns) * 3, (expected - c).T @ columns * 3)
        # Sent on as it is, it can still be summed by the next one.
        passed_on = case.peer.load((received + received).to_wire())
        case.check(passed_on.inner(columns), 2 * expected.T @ columns)


def check_products_hide(case: SchemeCase) -> None:
    """A product leaves in another form each time, also where its factors are zeros and ones."""
    if not case.scheme.elementwise or not case.scheme.hides:
        return
    received = case.send(case.values(4))
    came = find_blob(received.to_wire().payload)
    for factors in (np.zeros(4, dtype=np.int64), np.ones(4, dtype=np.int64)):
        forms = {find_blob((received * factors).to_wire().payload) for _ in range(2)}
        fresh = len(forms) == 2 and came not in forms
        require(fresh, "a product left without re-randomisation")


def check_product_bounds(case: SchemeCase) -> None:
    """Products and their sums are exact up to the last integer, and one more is refused."""
    if not case.scheme.elementwise:
        return
    capacity = case.public.encrypt([1]).capacity
    reach = min(capacity, 2**61 - 1)
    root = isqrt(reach)
    x = case.send(np.array([root, -root, 1]))
    factors = np.array([root, root, -root])
    product = case.public.encrypt(np.array([root, -root, 1])) * factors
    case.check(product, factors * [root, -root, 1])
    require_error(BoundExceeded, operator.mul, x, np.array([0, 0, capacity], dtype=object))
    full = case.public.encrypt(np.array([case.public.capacity, 0], dtype=object))
    past = capacity // case.public.capacity + 1
    require_error(BoundExceeded, operator.mul, full, np.array([past, 0]))
    require_error(BoundExceeded, operator.mul, full, np.array([0, -past]))
    parts = case.public.encrypt(np.full(12, reach // 12)) * np.tile([1, -1, 1], 4)
    signs = np.tile([1, -1, 1], 4)[:, None]
    case.check(parts.inner(signs), np.array([reach // 12 * 12]))
    if reach == capacity:
        require_error(BoundExceeded, parts.inner, 2 * signs)


def check_bounds(case: SchemeCase) -> None:
    """What could leave the plaintext space raises before it is computed."""
    top = case.public.capacity
    full, half = (_fill(case, parts) for parts in (1, 2))
    for call in (
        lambda: case.public.encrypt(np.array([top + 1], dtype=object)),
        lambda: case.public.encrypt(np.array([3]), bound=2),
        lambda: case.public.encrypt(np.array([3]), bound=top + 1),
        lambda: full + 1,
        lambda: full - np.array([0, 1]),
        lambda: half + half,
        lambda: half - half,
        lambda: half * 2,
        lambda: half * -2,
        lambda: half.inner(np.array([[1], [-1]])),
        lambda: half.sum_by(np.array([0, 0]), 1),
        lambda: half.sum_by_many(np.array([[0, 0], [1, 0]]), 2),
        lambda: half.to_wire(bound=half.bound - 1),
        lambda: half.to_wire(bound=half.capacity + 1),
    ):
        require_error(BoundExceeded, call)
    case.check(half.sum_by(np.array([0, 1]), 2), case.secret.decrypt(half))


def _fill(case: SchemeCase, parts: int) -> EncryptedArray:
    """All that its layout can hold, or just more than half of it."""
    held = case.public.encrypt(np.array([case.public.capacity // 2, 1], dtype=object))
    wanted = held.capacity // parts + (parts > 1)
    return held + np.array([wanted - case.public.capacity // 2, 0], dtype=object)


def check_take(case: SchemeCase) -> None:
    """Rows by position, or a refusal that says what to do."""
    for use in USES:
        for values in (case.values(7), case.values(7, 3), case.values(7, 2, 2)):
            array = case.send(values, use)
            for rows in (np.array([3]), np.array([6, 0, 6, 2])):
                try:
                    taken = array.take(rows)
                except CryptoError as error:
                    told = case.scheme.rows_together and "encrypt the rows again" in str(error)
                    require(told, "a refusal must say what to do instead")
                    continue
                case.check(taken, values[rows])
            for bad in ([7], [-1], [], [[0]], 0):
                require_error(InputError, array.take, bad)


def check_wrong_types(case: SchemeCase) -> None:
    array = case.public.encrypt(case.values(3))
    for call in (
        lambda: case.public.encrypt(np.array([1.0])),
        lambda: case.public.encrypt(np.array([True])),
        lambda: case.public.encrypt(["1"]),
        lambda: case.public.encrypt(np.array([1, 2.5], dtype=object)),
        lambda: case.public.encrypt(np.array([], dtype=np.int64)),
        lambda: case.public.encrypt([1], use="sums"),  # type: ignore[arg-type]
        lambda: array + 1.5,
        lambda: array * 0.5,
        lambda: array + np.array([1, 2]),
        lambda: array + case.public.encrypt([1, 2]),
        lambda: array.inner(np.ones((3, 2))),
        lambda: array.inner(np.ones(3, dtype=np.int64)),
        lambda: array.inner(np.ones((2, 2), dtype=np.int64)),
        lambda: array.sum_by(np.array([0, 1]), 2),
        lambda: array.sum_by(np.array([0, 1, 2]), 2),
        lambda: array.sum_by(np.array([0, 1, -2]), 2),
        lambda: array.sum_by(np.array([0.0, 1.0, 1.0]), 2),
        lambda: array.sum_by_many(np.array([0, 1, 0]), 2),
    ):
        require_error(InputError, call)
    cube = case.public.encrypt(case.values(2, 2, 2))
    require_error(CryptoError, lambda: cube.inner(np.ones((2, 2), dtype=np.int64)))


SCHEME_CHECKS: tuple[Callable[[SchemeCase], None], ...] = (
    check_round_trip,
    check_extremes,
    check_sums,
    check_inner,
    check_inner_results,
    check_sum_by,
    check_sum_by_many,
    check_products,
    check_products_travel,
    check_products_hide,
    check_product_bounds,
    check_bounds,
    check_take,
    check_wrong_types,
    *OPENING_CHECKS,
)
