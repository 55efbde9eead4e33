"""Scheme checks of what is opened: masks, sums over runs, and masks that are handed on."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
from scipy import stats

from vfsl.crypto.opening import Mask
from vfsl.crypto.runs import Runs
from vfsl.crypto.scheme import EncryptedArray
from vfsl.errors import BoundExceeded, CryptoError, InputError, KeyMismatch, ProtocolError
from vfsl.testing.scheme_case import USES, SchemeCase, damages, likely, raises, residues, sums_by
from vfsl.values import Array, Ciphertext, Masked


def check_declared_shape(case: SchemeCase) -> None:
    """A request never makes the key holder decrypt more than the declared shape holds."""
    request, _ = case.public.encrypt(case.values(40, 2)).masked()
    raises(ProtocolError, lambda: case.secret.open(request, (1,)))


def check_masks_uniform(case: SchemeCase) -> None:
    """Answers look alike whatever they hide: low digits uniform, high digits independent."""
    size = 4
    large = min(case.public.capacity, 2**61 - 1)
    messages = (np.zeros(size, dtype=np.int64), np.full(size, large))
    samples = []
    for values in messages:
        array = case.public.encrypt(values)
        answers: list[Array] = []
        while sum(map(len, answers)) < 240:  # packing may put many values into one residue
            request, _ = array.masked()
            answers += residues(case.secret.open(request, (size,)).payload)
        samples.append(np.concatenate(answers))
    _alike(samples)


def check_runs(case: SchemeCase) -> None:
    """Sums over runs are those of numpy, in their order, and only the shown ones come out."""
    for use in USES:
        values, codes = case.values(40), case.rng.integers(-1, 5, size=(40, 3))
        expected = np.stack([sums_by(values, column, 5) for column in codes.T])
        sums = case.sent(values, use).sum_by_many(codes, 5)
        for count in (1, 20, 60):
            _opens(case, sums, expected, random_runs(case, 15, count))
        _opens(case, case.sent(values, use), values, random_runs(case, 40, 7))
    whole = case.sent(values, "sum_by").sum_by(codes[:, 0], 5)
    none = Runs([0, 3], [5, 3], [-1, -1])  # type: ignore[arg-type]
    request, mask = whole.masked(none, np.zeros(2, dtype=bool))
    if mask.remove(case.secret.open(request, (5,))).shape != (0,):
        raise AssertionError("a mask that shows nothing must give nothing")


def check_sibling_runs(case: SchemeCase) -> None:
    """Differences open like any array, whether or not their parts were opened before."""
    values = case.values(200)
    codes = case.rng.integers(-1, 4, size=(200, 2))
    node = case.rng.integers(0, 4, size=200)

    def grown(rows: Array) -> tuple[EncryptedArray, Array]:
        sums = case.sent(values[rows], "sum_by").sum_by_many(codes[rows], 4)
        return sums, np.stack([sums_by(values[rows], column, 4) for column in codes[rows].T])

    runs = random_runs(case, 8, 12)
    for opened_first in (True, False):
        whole, whole_sums = grown(node >= 0)
        part, part_sums = grown(node >= 2)
        if opened_first:
            _opens(case, whole, whole_sums, runs)
            _opens(case, part, part_sums, runs)
        rest, rest_sums = whole.without(part), whole_sums - part_sums
        _opens(case, rest, rest_sums, runs)
        # What is left is a parent in its turn.
        child, child_sums = grown(node == 1)
        _opens(case, child, child_sums, runs)
        last = rest.without(child)
        _opens(case, last, rest_sums - child_sums, runs)
        _opens(case, last, rest_sums - child_sums, runs)
        case.same(last, rest_sums - child_sums)


def check_run_bounds(case: SchemeCase) -> None:
    """A run over different groups of one grouping is bounded by all rows, others bin by bin."""
    capacity = min(case.public.capacity, 2**61 - 1)
    rows = 12
    top = capacity // rows
    values = np.full(rows, top)
    codes = np.stack([np.arange(rows) % 4, np.arange(rows) % 3], axis=1)
    sums = case.public.encrypt(values, use="sum_by").sum_by_many(codes, 4)
    flat = np.stack([sums_by(values, column, 4) for column in codes.T]).reshape(-1)
    # A whole grouping reaches the capacity; bin by bin it could have passed it.
    inside = Runs([0, 0, 4, 1], [4, 3, 7, 1], [-1, 3, -1, 2])  # type: ignore[arg-type]
    request, mask = sums.masked(inside)
    opened = mask.remove(case.secret.open(request, sums.shape))
    np.testing.assert_array_equal(opened, inside.of(flat))
    if mask.bound != top * rows:
        raise AssertionError(f"a bound of {mask.bound} instead of {top * rows}")
    if case.public.capacity == capacity:
        for start, stop, extra in ((0, 5, -1), (0, 4, 3), (0, 4, 5), (2, 7, -1)):
            across = Runs([start], [stop], [extra])  # type: ignore[arg-type]
            raises(BoundExceeded, sums.masked, across)
        raises(BoundExceeded, (sums * 1 + 0).masked, inside)
        part = case.public.encrypt(values, use="sum_by").sum_by_many(codes, 4)
        sums.without(part).masked(inside)


def check_run_requests(case: SchemeCase) -> None:
    """A damaged request for runs raises, and none makes the key holder open more than it may."""
    sums = case.sent(case.values(30), "sum_by").sum_by(case.rng.integers(0, 6, size=30), 6)
    runs = Runs([0, 1, 2], [4, 6, 2], [5, -1, 0])  # type: ignore[arg-type]
    request, mask = sums.masked(runs)

    def asked(payload: dict[str, object]) -> Array:
        return mask.remove(case.secret.open(Ciphertext(payload), (6,)))

    for bad in damages(request.payload):
        raises((ProtocolError, KeyMismatch), asked, bad)
    wide = case.sent(case.values(60), "sum_by").sum_by(np.arange(60), 60)
    many = wide.masked(random_runs(case, 60, 240))[0]
    raises(ProtocolError, lambda: case.secret.open(many, (1,)))
    for call in (
        lambda: sums.masked(random_runs(case, 6, 25)),
        lambda: sums.masked(Runs([0], [7], [-1])),  # type: ignore[arg-type]
        lambda: sums.masked(Runs([3], [2], [-1])),  # type: ignore[arg-type]
        lambda: sums.masked(Runs([0], [1], [6])),  # type: ignore[arg-type]
        lambda: sums.masked(Runs([-1], [1], [-2])),  # type: ignore[arg-type]
        lambda: sums.masked(runs, np.array([True])),
        lambda: sums.masked(runs, np.array([1, 0, 1])),
        lambda: sums.masked(shown=np.array([True])),
    ):
        raises(InputError, call)


def check_masks_travel(case: SchemeCase) -> None:
    """A mask that was handed on takes off the same; a damaged one is refused."""
    values = case.values(9, 2)
    array = case.sent(values)
    sums = case.sent(values[:, 0], "sum_by").sum_by(np.arange(9) % 5, 5)
    flat = sums_by(values[:, 0], np.arange(9) % 5, 5)
    runs = random_runs(case, 5, 9)
    shown = np.arange(9) % 3 < 2
    for request, mask, shape, expected in (
        (*array.masked(), (9, 2), values),
        (*sums.masked(runs, shown), (5,), runs.of(flat)[shown]),
    ):
        message = mask.to_wire()
        if not isinstance(message, Masked):
            raise AssertionError("a mask must travel as Masked")
        answer = case.secret.open(request, shape)
        for held in (mask, case.public.load_mask(message)):
            np.testing.assert_array_equal(held.remove(answer), expected)
            raises(CryptoError, pickle.dumps, held)
            raises(CryptoError, copy.deepcopy, held)

        def used(payload: dict[str, object], answer: Masked = answer) -> Array:
            return case.public.load_mask(Masked(payload)).remove(answer)

        for bad in damages(message.payload):
            raises((ProtocolError, KeyMismatch), used, bad)
        raises(ProtocolError, case.public.load_mask, answer)
        raises(ProtocolError, mask.remove, message)
        raises(KeyMismatch, case.other.load_mask, message)


def check_runs_hide(case: SchemeCase) -> None:
    """The key holder sees the same whatever is shown; a mask holds nothing of what is not."""
    values = case.values(50)
    sums = case.sent(values, "sum_by").sum_by(np.arange(50) % 8, 8)
    runs = random_runs(case, 8, 12)
    first, second = np.arange(12) < 3, np.arange(12) >= 9
    requests, masks = zip(*(sums.masked(runs, flags) for flags in (first, second)), strict=True)
    shapes = [
        {name: getattr(value, "shape", len(str(type(value)))) for name, value in r.payload.items()}
        for r in requests
    ]
    if shapes[0] != shapes[1]:
        raise AssertionError("a request tells which runs are shown")
    for mask in masks:
        for name, value in mask.to_wire().payload.items():
            if isinstance(value, np.ndarray) and len(value) > 3:
                raise AssertionError(f"{name!r} of a mask holds more than what is shown")
    again = [_numbers(sums.masked(runs)[1]) for _ in range(2)]
    if again[0] & again[1]:
        raise AssertionError("two masks of the same values share numbers")
    samples = []
    large = min(case.public.capacity, 2**61 - 1) // 9
    for fill, flags in ((0, first), (large, second)):
        array = case.public.encrypt(np.full(8, fill), use="sum_by").sum_by(np.arange(8), 8)
        answers: list[Array] = []
        while sum(map(len, answers)) < 160:
            request, _ = array.masked(runs, flags)
            answers += residues(case.secret.open(request, (8,)).payload)
        samples.append(np.concatenate(answers))
    _alike(samples)


def check_take(case: SchemeCase) -> None:
    """Rows by position, or a refusal that says what to do."""
    for use in USES:
        for values in (case.values(7), case.values(7, 3), case.values(7, 2, 2)):
            array = case.sent(values, use)
            for rows in (np.array([3]), np.array([6, 0, 6, 2])):
                try:
                    taken = array.take(rows)
                except CryptoError as error:
                    if "encrypt the rows again" not in str(error):
                        raise AssertionError("a refusal must say what to do instead") from error
                    continue
                case.same(taken, values[rows])
            for bad in ([7], [-1], [], [[0]], 0):
                raises(InputError, array.take, bad)


def random_runs(case: SchemeCase, size: int, count: int) -> Runs:
    ends = np.sort(case.rng.integers(0, size, size=(2, count), endpoint=True), axis=0)
    return Runs(ends[0], ends[1], case.rng.integers(-1, size, size=count))


def _opens(case: SchemeCase, array: EncryptedArray, expected: Array, runs: Runs) -> None:
    flat = expected.reshape(-1)
    shown = case.rng.random(len(runs)) < 0.6
    for flags in (None, shown):
        request, mask = array.masked(runs, flags)
        wanted = runs.of(flat) if flags is None else runs.of(flat)[flags]
        opened = case.peer.load_mask(mask.to_wire()).remove(case.secret.open(request, array.shape))
        np.testing.assert_array_equal(opened, wanted)


def _numbers(mask: Mask) -> set[bytes]:
    return {row.tobytes() for row in mask.to_wire().payload["numbers"]}


def _alike(samples: list[Array]) -> None:
    """Byte rows whose low digits are uniform and whose high ones do not tell samples apart."""
    for sample in samples:
        counts = np.bincount(sample[:, -1] & 15, minlength=16)
        likely(stats.chisquare(counts).pvalue, "low bits of masked values are not uniform")
    for column in (0, 1, -1):
        table = np.stack([np.bincount(part[:, column] >> 1, minlength=128) for part in samples])
        table = table.reshape(2, 16, 8).sum(axis=2)
        table = table[:, table.sum(axis=0) > 0]
        if table.shape[1] > 1:
            pvalue = stats.chi2_contingency(table).pvalue
            likely(pvalue, "masked values depend on what they hide")


OPENING_CHECKS: tuple[Callable[[SchemeCase], None], ...] = (
    check_declared_shape,
    check_masks_uniform,
    check_runs,
    check_sibling_runs,
    check_run_bounds,
    check_run_requests,
    check_masks_travel,
    check_runs_hide,
    check_take,
)
