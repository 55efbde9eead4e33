"""Contract of a homomorphic scheme, for vfsl's own schemes and for anybody else's.

    @pytest.mark.parametrize("check", SCHEME_CHECKS, ids=lambda check: check.__name__)
    def test_contract(check, case):          # case = SchemeCase(MyScheme()), made once
        check(case)

``check_scheme(MyScheme)`` runs all of them in turn. Every check compares with numpy integers.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from vfsl.crypto.grouping import Grouping
from vfsl.crypto.opening import Mask
from vfsl.crypto.scheme import EncryptedArray, Scheme
from vfsl.errors import (
    BoundExceeded,
    CryptoError,
    InputError,
    KeyMismatch,
    ProtocolError,
)
from vfsl.testing.scheme_case import USES, SchemeCase, blob, damaged, damages, raises, sums_by
from vfsl.testing.scheme_openings import OPENING_CHECKS
from vfsl.testing.scheme_products import PRODUCT_CHECKS
from vfsl.values import Array, Ciphertext, Masked

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
            case.same(array, values)
    for dtype in (np.int8, np.uint8, np.int32, np.uint64):
        case.same(case.public.encrypt(np.array([0, 1, 100], dtype=dtype)), np.array([0, 1, 100]))
    case.same(case.public.encrypt(np.array([5, -3], dtype=object)), np.array([5, -3]))


def check_extremes(case: SchemeCase) -> None:
    """The whole signed range works, up to the last integer."""
    top = case.public.capacity
    values = np.array([top, -top, 0, 1, -1], dtype=object)
    array = case.public.encrypt(values)
    case.same(array, values.astype(np.int64 if top < 2**63 else object))
    case.same(array - 0, values.astype(np.int64 if top < 2**63 else object))


def check_sums(case: SchemeCase) -> None:
    for shape in ((5,), (4, 3)):
        a, b = case.values(*shape), case.values(*shape)
        for use in USES:
            x, y = case.sent(a, use), case.sent(b, use)
            case.same(x + y, a + b)
            case.same(x - y, a - b)
            case.same(x + b, a + b)
            case.same(b + x, a + b)
            case.same(x - b, a - b)
            case.same(b - x, b - a)
            case.same(x + 3, a + 3)
            case.same(3 - x, 3 - a)
            case.same(-x, -a)
            case.same(x.without(y) + y, a)


def check_inner(case: SchemeCase) -> None:
    for use in USES:
        for _ in range(3):
            rows, k, d = (int(case.rng.integers(1, top)) for top in (50, 4, 8))
            columns = case.values(rows, d, limit=2**15)
            one, many = case.values(rows), case.values(rows, k)
            case.same(case.sent(one, use).inner(columns), one @ columns)
            case.same(case.sent(many, use).inner(columns), many.T @ columns)
    values = case.values(4)
    zeros = np.zeros((4, 3), dtype=np.int64)
    case.same(case.sent(values).inner(zeros), np.zeros(3, dtype=np.int64))


def check_inner_results(case: SchemeCase) -> None:
    """Sums add, scale and combine like any other array."""
    columns = case.values(12, 5, limit=2**12)
    more = case.values(12, 5, limit=2**12)
    for use in USES:
        for values in (case.values(12), case.values(12, 3)):
            x = case.sent(values, use)
            plain = values.T @ columns
            shift = case.values(*plain.shape)
            result = x.inner(columns)
            case.same(result + x.inner(more), plain + values.T @ more)
            case.same((result * -3) - shift, plain * -3 - shift)
            # A sum that another party sends on keeps its layout.
            case.same(case.public.load(result.to_wire()) + shift, plain + shift)


def check_sum_by(case: SchemeCase) -> None:
    for use in USES:
        for _ in range(3):
            rows, k, n = (int(case.rng.integers(1, top)) for top in (50, 4, 8))
            # −1 is a row that counts nowhere; some groups stay empty.
            groups = case.rng.integers(-1, n, size=rows)
            one, many = case.values(rows), case.values(rows, k)
            case.same(case.sent(one, use).sum_by(groups, n), sums_by(one, groups, n))
            case.same(case.sent(many, use).sum_by(groups, n), sums_by(many, groups, n))
    nowhere = np.full(4, -1)
    case.same(case.sent(case.values(4)).sum_by(nowhere, 2), np.zeros(2, dtype=np.int64))


def check_sum_by_many(case: SchemeCase) -> None:
    for use in USES:
        groups = case.rng.integers(-1, 3, size=(40, 5))
        for values in (case.values(40), case.values(40, 2)):
            expected = np.stack([sums_by(values, column, 3) for column in groups.T])
            x = case.sent(values, use)
            case.same(x.sum_by_many(groups, 3), expected)
            often = Grouping(groups, 3, again=True)
            for _ in range(2):
                case.same(x.sum_by_many(often, 3), expected)
            case.same((x + x).sum_by_many(often, 3), 2 * expected)
            part = np.where(np.arange(40)[:, None] < 20, groups, -1)
            rest = np.where(np.arange(40)[:, None] < 20, -1, groups)
            left = x.sum_by_many(groups, 3).without(x.sum_by_many(part, 3))
            case.same(left, np.stack([sums_by(values, column, 3) for column in rest.T]))


def check_bounds(case: SchemeCase) -> None:
    """What could leave the plaintext space raises before it is computed."""
    top = case.public.capacity
    full, half = (_near(case, share) for share in (1, 2))
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
        raises(BoundExceeded, call)
    case.same(half.sum_by(np.array([0, 1]), 2), case.secret.decrypt(half))


def _near(case: SchemeCase, share: int) -> EncryptedArray:
    """All that its layout can hold, or just more than half of it."""
    held = case.public.encrypt(np.array([case.public.capacity // 2, 1], dtype=object))
    wanted = held.capacity // share + (share > 1)
    return held + np.array([wanted - case.public.capacity // 2, 0], dtype=object)


def check_wire(case: SchemeCase) -> None:
    """Messages hold wire data only, and no bound tighter than a power of two."""
    values = np.array([[5, -900], [17, 3]])
    array = case.public.encrypt(values)
    message = array.to_wire()
    if not isinstance(message, Ciphertext):
        raise AssertionError("to_wire must return a Ciphertext")
    received = case.peer.load(message)
    if received.bound != 1023 or received.shape != (2, 2):
        raise AssertionError(f"{received} instead of shape (2, 2) with bound 1023")
    if case.peer.load(array.to_wire(bound=5000)).bound != 5000:
        raise AssertionError("a stated bound must arrive")
    request, mask = array.masked()
    answer = case.secret.open(request, array.shape)
    if not isinstance(request, Ciphertext) or not isinstance(answer, Masked):
        raise AssertionError("masked and open must return Ciphertext and Masked")
    for payload in (message.payload, request.payload, answer.payload, case.public.to_wire()):
        for name, value in payload.items():
            plain = type(value) in (int, str, bytes) or isinstance(value, np.ndarray)
            if not plain or (isinstance(value, np.ndarray) and value.dtype.hasobject):
                raise AssertionError(f"{name!r} is {type(value).__name__}, not wire data")
    if "bound" in request.payload:
        raise AssertionError("a masked request must not carry a bound")
    np.testing.assert_array_equal(mask.remove(answer), values)


def check_key_wire(case: SchemeCase) -> None:
    """Public keys travel and are checked; secret keys and masks cannot even be copied."""
    wire = case.public.to_wire()
    if case.peer.fingerprint != case.public.fingerprint or len(case.public.fingerprint) != 64:
        raise AssertionError("a loaded key must keep its fingerprint")
    if case.other.fingerprint == case.public.fingerprint:
        raise AssertionError("two keys must differ")
    if case.scheme.name not in repr(case.secret) or len(repr(case.secret)) > 100:
        raise AssertionError("the repr of a secret key must name it and tell no more")
    _, mask = case.public.encrypt([1]).masked()
    for private in (case.secret, mask):
        raises(CryptoError, copy.deepcopy, private)
        raises(CryptoError, pickle.dumps, private)
    for name, value in wire.items():
        rest = {key: kept for key, kept in wire.items() if key != name}
        raises((ProtocolError, KeyMismatch), case.scheme.load_public, rest)
        for bad in damaged(value):
            altered = wire | {name: bad}
            raises(
                (ProtocolError, KeyMismatch),
                case.scheme.load_public,
                altered,
            )


def check_rerandomised(case: SchemeCase) -> None:
    """Nothing leaves twice in one form, and equal values look different."""
    values = np.zeros(4, dtype=np.int64)
    columns = np.ones((4, 2), dtype=np.int64)
    fresh = case.public.encrypt(values)
    for array in (fresh, fresh + 0, fresh * 1, fresh.inner(columns), fresh.sum_by([0, 0, 1, 1], 2)):
        first, second = (blob(array.to_wire().payload) for _ in range(2))
        if case.scheme.hides and first == second:
            raise AssertionError("an array left twice without re-randomisation")
        first, second = (blob(array.masked()[0].payload) for _ in range(2))
        if first == second:
            raise AssertionError("two masked requests are equal")
    one, two = (blob(case.public.encrypt(values).to_wire().payload) for _ in range(2))
    if case.scheme.hides and one == two:
        raise AssertionError("two encryptions of one value are equal")


def check_foreign_key(case: SchemeCase) -> None:
    ours, theirs = case.public.encrypt([1, 2]), case.other.encrypt([1, 2])
    for call in (
        lambda: case.public.load(theirs.to_wire()),
        lambda: case.secret.decrypt(theirs),
        lambda: case.secret.open(theirs.masked()[0], (2,)),
        lambda: ours + theirs,
        lambda: ours - theirs,
        lambda: ours.without(theirs),
        lambda: ours.masked()[1].remove(case.other_secret.open(theirs.masked()[0], (2,))),
    ):
        raises(KeyMismatch, call)


def check_altered(case: SchemeCase) -> None:
    """A damaged message raises; it never becomes an array of other values."""
    for use in USES:
        array = case.public.encrypt(np.array([[3, -4], [5, 6], [7, 8]]), use=use)
        message = array.to_wire().payload
        for bad in damages(message):
            raises((ProtocolError, KeyMismatch), case.public.load, Ciphertext(bad))
        request, mask = array.masked()

        def asked(payload: dict[str, Any], mask: Mask = mask) -> Array:
            return mask.remove(case.secret.open(Ciphertext(payload), (3, 2)))

        for bad in damages(request.payload):
            raises((ProtocolError, KeyMismatch), asked, bad)
        answer = case.secret.open(request, (3, 2)).payload
        for bad in damages(answer):
            raises(
                (ProtocolError, KeyMismatch),
                mask.remove,
                Masked(bad),
            )
    array = case.public.encrypt(np.arange(40))
    request, _ = array.masked()
    for call in (
        lambda: case.public.load(request),
        lambda: case.secret.open(array.to_wire(), (40,)),
        lambda: case.public.load(Masked(array.to_wire().payload)),  # type: ignore[arg-type]
        lambda: case.public.load(array.to_wire().payload),
        lambda: case.public.load(Ciphertext(b"")),
    ):
        raises(ProtocolError, call)


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
        raises(InputError, call)
    cube = case.public.encrypt(case.values(2, 2, 2))
    raises(CryptoError, lambda: cube.inner(np.ones((2, 2), dtype=np.int64)))


SCHEME_CHECKS: tuple[Callable[[SchemeCase], None], ...] = (
    check_round_trip,
    check_extremes,
    check_sums,
    check_inner,
    check_inner_results,
    check_sum_by,
    check_sum_by_many,
    check_bounds,
    check_wire,
    check_key_wire,
    check_rerandomised,
    check_foreign_key,
    check_altered,
    check_wrong_types,
    *PRODUCT_CHECKS,
    *OPENING_CHECKS,
)
