"""Scheme checks of what leaves a party: messages, masks, prefix sums, and masks handed on."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

from vfsl.crypto import EncryptedArray, Mask, PrefixSums
from vfsl.errors import BoundExceeded, CryptoError, InputError, KeyMismatch, ProtocolError
from vfsl.testing.claims import require
from vfsl.testing.scheme_case import (
    USES,
    SchemeCase,
    damage_fields,
    find_blob,
    require_error,
    sum_by,
    sum_by_many,
)
from vfsl.values import Array, Ciphertext, Masked

REFUSED = (ProtocolError, KeyMismatch)
# A correct scheme fails a randomness check once in ten million times.
RARE = 1e-7


def check_wire(case: SchemeCase) -> None:
    """Messages hold wire data only, and no bound tighter than a power of two."""
    values = np.array([[5, -900], [17, 3]])
    array = case.public.encrypt(values)
    message = array.to_wire()
    require(isinstance(message, Ciphertext), "to_wire must return a Ciphertext")
    received = case.peer.load(message)
    require(received.bound == 1023 and received.shape == (2, 2), f"{received}, not 1023 and (2, 2)")
    require(case.peer.load(array.to_wire(bound=5000)).bound == 5000, "a stated bound must arrive")
    request, mask = array.mask()
    answer = case.secret.open(request, array.shape)
    types = isinstance(request, Ciphertext) and isinstance(answer, Masked)
    require(types, "mask and open must return Ciphertext and Masked")
    for payload in (message.payload, request.payload, answer.payload, case.public.to_wire()):
        for name, value in payload.items():
            plain = type(value) in (int, str, bytes)
            numbers = isinstance(value, np.ndarray) and not value.dtype.hasobject
            require(plain or numbers, f"{name!r} is {type(value).__name__}, not wire data")
    require("bound" not in request.payload, "a masked request must not carry a bound")
    np.testing.assert_array_equal(mask.remove(answer), values)


def check_key_wire(case: SchemeCase) -> None:
    """Public keys travel and are checked; secret keys and masks cannot even be copied."""
    fingerprint, text = case.public.fingerprint, repr(case.secret)
    kept = case.peer.fingerprint == fingerprint and len(fingerprint) == 64
    require(kept, "a loaded key must keep its fingerprint")
    require(case.other.fingerprint != fingerprint, "two keys must differ")
    named = case.scheme.name in text and len(text) <= 100
    require(named, "the repr of a secret key must name it and tell no more")
    _, mask = case.public.encrypt([1]).mask()
    for private in (case.secret, mask):
        require_error(CryptoError, copy.deepcopy, private)
        require_error(CryptoError, pickle.dumps, private)
    for bad in damage_fields(case.public.to_wire()):
        require_error(REFUSED, case.scheme.load_public, bad)


def check_rerandomised(case: SchemeCase) -> None:
    """Nothing leaves twice in one form, and equal values look different."""
    values = np.zeros(4, dtype=np.int64)
    columns = np.ones((4, 2), dtype=np.int64)
    fresh = case.public.encrypt(values)
    for array in (fresh, fresh + 0, fresh * 1, fresh.inner(columns), fresh.sum_by([0, 0, 1, 1], 2)):
        first, second = (find_blob(array.to_wire().payload) for _ in range(2))
        differ = first != second or not case.scheme.hides
        require(differ, "an array left twice without re-randomisation")
        first, second = (find_blob(array.mask()[0].payload) for _ in range(2))
        require(first != second, "two masked requests are equal")
    one, two = (find_blob(case.public.encrypt(values).to_wire().payload) for _ in range(2))
    require(one != two or not case.scheme.hides, "two encryptions of one value are equal")


def check_foreign_key(case: SchemeCase) -> None:
    ours, theirs = case.public.encrypt([1, 2]), case.other.encrypt([1, 2])
    for call in (
        lambda: case.public.load(theirs.to_wire()),
        lambda: case.secret.decrypt(theirs),
        lambda: case.secret.open(theirs.mask()[0], (2,)),
        lambda: ours + theirs,
        lambda: ours - theirs,
        lambda: ours.without(theirs),
        lambda: ours.mask()[1].remove(case.other_secret.open(theirs.mask()[0], (2,))),
    ):
        require_error(KeyMismatch, call)


def check_altered(case: SchemeCase) -> None:
    """A damaged message raises; it never becomes an array of other values."""
    for use in USES:
        array = case.public.encrypt(np.array([[3, -4], [5, 6], [7, 8]]), use=use)
        for bad in damage_fields(array.to_wire().payload):
            require_error(REFUSED, case.public.load, Ciphertext(bad))
        request, mask = array.mask()

        def ask(payload: dict[str, Any], mask: Mask = mask) -> Array:
            return mask.remove(case.secret.open(Ciphertext(payload), (3, 2)))

        for bad in damage_fields(request.payload):
            require_error(REFUSED, ask, bad)
        for bad in damage_fields(case.secret.open(request, (3, 2)).payload):
            require_error(REFUSED, mask.remove, Masked(bad))
    array = case.public.encrypt(np.arange(40))
    request, _ = array.mask()
    for call in (
        lambda: case.public.load(request),
        lambda: case.secret.open(array.to_wire(), (40,)),
        lambda: case.public.load(Masked(array.to_wire().payload)),  # type: ignore[arg-type]
        lambda: case.public.load(array.to_wire().payload),
        lambda: case.public.load(Ciphertext(b"")),
    ):
        require_error(ProtocolError, call)


def check_declared_shape(case: SchemeCase) -> None:
    """A request never makes the key holder decrypt more than the declared shape holds."""
    request, _ = case.public.encrypt(case.values(40, 2)).mask()
    require_error(ProtocolError, lambda: case.secret.open(request, (1,)))


def check_masks_uniform(case: SchemeCase) -> None:
    """Answers look alike whatever they hide: low digits uniform, high digits independent."""
    large = min(case.public.capacity, 2**61 - 1)
    samples = []
    for values in (np.zeros(4, dtype=np.int64), np.full(4, large)):
        array = case.public.encrypt(values)
        samples.append(_collect_answers(case, 240, array))
    _require_alike(samples)


def check_prefix_sums(case: SchemeCase) -> None:
    """Prefix sums are those of numpy, in their order, and only the shown ones come out."""
    for use in USES:
        values, codes = case.values(40), case.rng.integers(-1, 5, size=(40, 3))
        expected = sum_by_many(values, codes, 5)
        sums = case.send(values, use).sum_by_many(codes, 5)
        for count in (1, 20, 60):
            _check_opening(case, sums, expected, draw_sums(case, 15, count))
        _check_opening(case, case.send(values, use), values, draw_sums(case, 40, 7))
    whole = case.send(values, "sum_by").sum_by(codes[:, 0], 5)
    request, mask = whole.mask(make_sums((0, 5, -1), (3, 3, -1)), np.zeros(2, dtype=bool))
    nothing = mask.remove(case.secret.open(request, (5,)))
    require(nothing.shape == (0,), "a mask that shows nothing must give nothing")


def check_sibling_sums(case: SchemeCase) -> None:
    """Differences open like any array, whether or not their parts were opened before."""
    values = case.values(200)
    codes = case.rng.integers(-1, 4, size=(200, 2))
    node = case.rng.integers(0, 4, size=200)

    def grow(rows: Array) -> tuple[EncryptedArray, Array]:
        sums = case.send(values[rows], "sum_by").sum_by_many(codes[rows], 4)
        return sums, sum_by_many(values[rows], codes[rows], 4)

    asked = draw_sums(case, 8, 12)
    for opened_first in (True, False):
        whole, whole_sums = grow(node >= 0)
        part, part_sums = grow(node >= 2)
        if opened_first:
            _check_opening(case, whole, whole_sums, asked)
            _check_opening(case, part, part_sums, asked)
        rest, rest_sums = whole.without(part), whole_sums - part_sums
        _check_opening(case, rest, rest_sums, asked)
        # What is left is a parent in its turn.
        child, child_sums = grow(node == 1)
        _check_opening(case, child, child_sums, asked)
        last = rest.without(child)
        _check_opening(case, last, rest_sums - child_sums, asked)
        _check_opening(case, last, rest_sums - child_sums, asked)
        case.check(last, rest_sums - child_sums)


def check_sum_bounds(case: SchemeCase) -> None:
    """A sum over different groups of one grouping is bounded by all rows, others bin by bin."""
    capacity = min(case.public.capacity, 2**61 - 1)
    rows = 12
    top = capacity // rows
    values = np.full(rows, top)
    codes = np.stack([np.arange(rows) % 4, np.arange(rows) % 3], axis=1)
    sums = case.public.encrypt(values, use="sum_by").sum_by_many(codes, 4)
    flat = sum_by_many(values, codes, 4).reshape(-1)
    # A whole grouping reaches the capacity; bin by bin it could have passed it.
    inside = make_sums((0, 4, -1), (0, 3, 3), (4, 7, -1), (1, 1, 2))
    request, mask = sums.mask(inside)
    opened = mask.remove(case.secret.open(request, sums.shape))
    np.testing.assert_array_equal(opened, inside.add_up(flat))
    require(mask.bound == top * rows, f"a bound of {mask.bound} instead of {top * rows}")
    if case.public.capacity == capacity:
        for across in ((0, 5, -1), (0, 4, 3), (0, 4, 5), (2, 7, -1)):
            require_error(BoundExceeded, sums.mask, make_sums(across))
        require_error(BoundExceeded, (sums * 1 + 0).mask, inside)
        part = case.public.encrypt(values, use="sum_by").sum_by_many(codes, 4)
        sums.without(part).mask(inside)


def check_sum_requests(case: SchemeCase) -> None:
    """A damaged request for sums raises, and none makes the key holder open more than it may."""
    sums = case.send(case.values(30), "sum_by").sum_by(case.rng.integers(0, 6, size=30), 6)
    asked = make_sums((0, 4, 5), (1, 6, -1), (2, 2, 0))
    request, mask = sums.mask(asked)

    def ask(payload: dict[str, object]) -> Array:
        return mask.remove(case.secret.open(Ciphertext(payload), (6,)))

    for bad in damage_fields(request.payload):
        require_error(REFUSED, ask, bad)
    wide = case.send(case.values(60), "sum_by").sum_by(np.arange(60), 60)
    many = wide.mask(draw_sums(case, 60, 240))[0]
    require_error(ProtocolError, lambda: case.secret.open(many, (1,)))
    for call in (
        lambda: sums.mask(draw_sums(case, 6, 25)),
        lambda: sums.mask(make_sums((0, 7, -1))),
        lambda: sums.mask(make_sums((3, 2, -1))),
        lambda: sums.mask(make_sums((0, 1, 6))),
        lambda: sums.mask(make_sums((-1, 1, -2))),
        lambda: sums.mask(asked, np.array([True])),
        lambda: sums.mask(asked, np.array([1, 0, 1])),
        lambda: sums.mask(shown=np.array([True])),
    ):
        require_error(InputError, call)


def check_masks_travel(case: SchemeCase) -> None:
    """A mask that was handed on takes off the same; a damaged one is refused."""
    values = case.values(9, 2)
    array = case.send(values)
    sums = case.send(values[:, 0], "sum_by").sum_by(np.arange(9) % 5, 5)
    flat = sum_by(values[:, 0], np.arange(9) % 5, 5)
    asked = draw_sums(case, 5, 9)
    shown = np.arange(9) % 3 < 2
    for request, mask, shape, expected in (
        (*array.mask(), (9, 2), values),
        (*sums.mask(asked, shown), (5,), asked.add_up(flat)[shown]),
    ):
        message = mask.to_wire()
        require(isinstance(message, Masked), "a mask must travel as Masked")
        answer = case.secret.open(request, shape)
        for held in (mask, case.public.load_mask(message)):
            np.testing.assert_array_equal(held.remove(answer), expected)
            require_error(CryptoError, pickle.dumps, held)
            require_error(CryptoError, copy.deepcopy, held)

        def use(payload: dict[str, object], answer: Masked = answer) -> Array:
            return case.public.load_mask(Masked(payload)).remove(answer)

        for bad in damage_fields(message.payload):
            require_error(REFUSED, use, bad)
        require_error(ProtocolError, case.public.load_mask, answer)
        require_error(ProtocolError, mask.remove, message)
        require_error(KeyMismatch, case.other.load_mask, message)


def check_sums_hide(case: SchemeCase) -> None:
    """The key holder sees the same whatever is shown; a mask holds nothing of what is not."""
    sums = case.send(case.values(50), "sum_by").sum_by(np.arange(50) % 8, 8)
    asked = draw_sums(case, 8, 12)
    first, second = np.arange(12) < 3, np.arange(12) >= 9
    requests, masks = zip(*(sums.mask(asked, flags) for flags in (first, second)), strict=True)
    shapes = [
        {name: getattr(value, "shape", len(str(type(value)))) for name, value in r.payload.items()}
        for r in requests
    ]
    require(shapes[0] == shapes[1], "a request tells which sums are shown")
    for mask in masks:
        for name, value in mask.to_wire().payload.items():
            more = isinstance(value, np.ndarray) and len(value) > 3
            require(not more, f"{name!r} of a mask holds more than what is shown")
    one, two = (
        {row.tobytes() for row in sums.mask(asked)[1].to_wire().payload["numbers"]}
        for _ in range(2)
    )
    require(not one & two, "two masks of the same values share numbers")
    samples = []
    large = min(case.public.capacity, 2**61 - 1) // 9
    for fill, flags in ((0, first), (large, second)):
        array = case.public.encrypt(np.full(8, fill), use="sum_by").sum_by(np.arange(8), 8)
        samples.append(_collect_answers(case, 160, array, asked, flags))
    _require_alike(samples)


def make_sums(*places: tuple[int, int, int]) -> PrefixSums:
    """Prefix sums by (start, stop, extra)."""
    return PrefixSums(*np.array(places).T)


def draw_sums(case: SchemeCase, size: int, count: int) -> PrefixSums:
    """Random prefix sums over ``size`` values."""
    ends = np.sort(case.rng.integers(0, size, size=(2, count), endpoint=True), axis=0)
    return PrefixSums(ends[0], ends[1], case.rng.integers(-1, size, size=count))


def _check_opening(
    case: SchemeCase, array: EncryptedArray, expected: Array, sums: PrefixSums
) -> None:
    wanted = sums.add_up(expected.reshape(-1))
    some = case.rng.random(len(sums)) < 0.6
    for shown in (None, some):
        request, mask = array.mask(sums, shown)
        opened = case.peer.load_mask(mask.to_wire()).remove(case.secret.open(request, array.shape))
        np.testing.assert_array_equal(opened, wanted if shown is None else wanted[shown])


def _collect_answers(case: SchemeCase, count: int, array: EncryptedArray, *asked: Any) -> Array:
    """At least ``count`` masked residues as rows of big-endian bytes, whatever they came in."""
    rows: list[Array] = []
    while sum(map(len, rows)) < count:  # packing may put many values into one residue
        request, _ = array.mask(*asked)
        for value in case.secret.open(request, array.shape).payload.values():
            if isinstance(value, np.ndarray):
                wide = value if value.dtype == np.uint8 else value.astype(">u8").reshape(-1, 1)
                rows.append(wide.view(np.uint8).reshape(len(wide), -1))
    return np.concatenate(rows)


def _require_alike(samples: list[Array]) -> None:
    """Byte rows whose low digits are uniform and whose high ones do not tell samples apart."""
    for sample in samples:
        counts = np.bincount(sample[:, -1] & 15, minlength=16)
        pvalue = stats.chisquare(counts).pvalue
        require(pvalue >= RARE, f"low bits of masked values are not uniform (p = {pvalue:.1e})")
    for column in (0, 1, -1):
        table = np.stack([np.bincount(part[:, column] >> 1, minlength=128) for part in samples])
        table = table.reshape(2, 16, 8).sum(axis=2)
        table = table[:, table.sum(axis=0) > 0]
        if table.shape[1] > 1:
            pvalue = stats.chi2_contingency(table).pvalue
            require(pvalue >= RARE, f"masked values depend on what they hide (p = {pvalue:.1e})")


OPENING_CHECKS: tuple[Callable[[SchemeCase], None], ...] = (
    check_wire,
    check_key_wire,
    check_rerandomised,
    check_foreign_key,
    check_altered,
    check_declared_shape,
    check_masks_uniform,
    check_prefix_sums,
    check_sibling_sums,
    check_sum_bounds,
    check_sum_requests,
    check_masks_travel,
    check_sums_hide,
)
