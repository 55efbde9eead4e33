"""BFV: errors stay under their derived bound, flooding covers them, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vfsl.crypto import PrefixSums, make_scheme
from vfsl.crypto.bfv import BFVPublicKey, make_parameters
from vfsl.crypto.bfv_array import BFVArray
from vfsl.crypto.bfv_opening import Shelf, Tickets
from vfsl.crypto.ring import (
    DEGREE,
    SLOTS,
    STATISTICAL_BITS,
    Parameters,
    get_ring,
    reduce_digits,
)
from vfsl.crypto.work import using_workers
from vfsl.errors import ConfigError, CryptoError, KeyMismatch, ProtocolError
from vfsl.testing.scheme_case import damage_fields
from vfsl.testing.schemes import SchemeCase
from vfsl.values import Ciphertext


def test_error_is_below_its_bound(bfv: SchemeCase, error_bits: Callable[[Any], Any]) -> None:
    values, columns = bfv.values(3000, 2), bfv.values(3000, 3, limit=2**15)
    groups = bfv.rng.integers(0, 5, size=3000)
    fresh = bfv.send(values, "inner")
    received = bfv.public.load(fresh.inner(columns).to_wire())
    for array in (
        fresh,
        fresh + fresh - values,
        fresh * 1000,
        # SEAL lifts a negative constant to t − c, which would multiply the error by t.
        fresh * -1000,
        -received,
        fresh.inner(columns),
        fresh.inner(columns) * 7 + fresh.inner(columns),
        fresh.sum_by(groups, 5),
        received,
        received + 1,
    ):
        # SEAL rounds its budget down to whole bits.
        spare, promised = error_bits(array)
        assert spare >= promised - 1
    # The bound is a worst case, but not an empty one.
    spare, promised = error_bits(fresh)
    assert spare < promised + 12


def test_what_leaves_is_drowned(bfv: SchemeCase, error_bits: Callable[[Any], Any]) -> None:
    result = bfv.send(bfv.values(2000), "inner").inner(bfv.values(2000, 20, limit=2**15))
    assert isinstance(result, BFVArray)
    ring = result.key.packed.ring
    bits, low = ring.last.flood_bits, ring.last.limbs
    sent = len(result.raws) * DEGREE
    assert 1 << bits >= result.own * sent << STATISTICAL_BITS
    received = bfv.public.load(result.to_wire())
    assert received._limbs == low  # type: ignore[attr-defined]
    # What is left tells the size of the flood, not of the error under it.
    flood = math.log2(ring.modulus(low)) - math.log2(2 * ring.t) - error_bits(received).spare
    assert abs(flood - (bits - math.log2(ring.drop_factor(low)))) <= 2


@pytest.mark.parametrize(
    ("params", "way"),
    [(make_parameters(58, (60, 60, 60)), "last"), (SLOTS, "onward"), (SLOTS, "last")],
)
def test_flood_is_uniform_and_centred(params: Parameters, way: str) -> None:
    ring = get_ring(params)
    bits = getattr(ring, way).flood_bits
    raw = np.zeros((2, len(ring.primes), ring.degree), dtype=np.uint64)
    flooded = ring.flood(raw, bits)
    assert not flooded[1].any()
    q = ring.modulus(len(ring.primes))
    weights = [q // p * pow(q // p, -1, p) for p in ring.primes]
    top = 1 << bits
    values = []
    for coefficients in flooded[0].T[:2000].tolist():
        value = sum(c * w for c, w in zip(coefficients, weights, strict=True)) % q
        values.append(value - q if value > q // 2 else value)
    assert max(values) < top
    assert min(values) >= -top
    assert max(values) > top * 0.99
    assert min(values) < -top * 0.99
    assert abs(sum(value / top for value in values)) < 6 * math.sqrt(2000 / 3)


@given(st.lists(st.integers(0, 2**30 - 1), min_size=1, max_size=6), st.sampled_from([18, 40, 60]))
def test_reduce_digits(digits: list[int], bits: int) -> None:
    prime = {18: 147457, 40: 1099511480321, 60: 1152921504606830593}[bits]
    value = 0
    for digit in digits:
        value = (value << 30) + digit
    columns = np.array(digits, dtype=np.uint64)[:, None]
    assert reduce_digits(columns, prime).tolist() == [value % prime]


def test_cross_terms_do_not_leave(bfv: SchemeCase) -> None:
    """Unwanted coefficients of a result are uniform, also for one who can decrypt."""
    public = bfv.public
    assert isinstance(public, BFVPublicKey)
    result = bfv.send(np.ones(500, dtype=np.int64), "inner").inner(
        np.ones((500, 2), dtype=np.int64)
    )
    received = public.load(result.to_wire())
    assert isinstance(received, BFVArray)
    decryptor = bfv.secret._decryptors[DEGREE]  # type: ignore[attr-defined]
    inside = public.packed.ring.from_plain(
        decryptor.decrypt(public.packed.ring.to_seal(result.raws[0]))
    )  # type: ignore[attr-defined]
    outside = public.packed.ring.from_plain(
        decryptor.decrypt(public.packed.ring.to_seal(received.raws[0]))
    )
    assert np.count_nonzero(inside > 1000) < 2000
    small = np.count_nonzero((outside < 2**40) | (outside > public.packed.ring.t - 2**40))
    assert small <= 2 + 20


def test_unsafe_parameters_are_refused() -> None:
    with pytest.raises(ConfigError, match="128"):
        make_scheme("bfv", security=80)
    assert make_scheme("bfv", security=112).security == 128
    with pytest.raises(ConfigError, match="218"):
        make_scheme("bfv", modulus_bits=(60, 60, 60, 30))
    with pytest.raises(ConfigError, match="flood"):
        make_scheme("bfv", modulus_bits=(60, 60))
    with pytest.raises(ConfigError, match="plain_bits"):
        make_scheme("bfv", plain_bits=60)


def test_other_parameters_work() -> None:
    case = SchemeCase(make_scheme("bfv", plain_bits=27, modulus_bits=(60, 60)))
    values, columns = case.values(300, 3, limit=2**6), case.values(300, 4, limit=2**6)
    case.check(case.send(values, "inner").inner(columns), values.T @ columns)
    other = SchemeCase(make_scheme("bfv", modulus_bits=(60, 60, 60, 18)))
    case_values = other.values(50, limit=1)
    wide = other.values(50, 2, limit=2**45)
    other.check(other.send(case_values, "inner").inner(wide), case_values @ wide)
    with pytest.raises(KeyMismatch, match="parameters"):
        case.scheme.load_public(other.public.to_wire())


def test_an_error_that_cannot_be_drowned_is_refused_before_work(bfv: SchemeCase) -> None:
    bits = bfv.send(bfv.values(50, limit=1), "inner")
    with pytest.raises(ConfigError, match="flooding"):
        bits.inner(np.full((50, 2), 2**50))


def test_private_rows_that_left_have_no_room_for_products(bfv: SchemeCase) -> None:
    x = bfv.send(bfv.values(20), "inner") + bfv.values(20)
    received = bfv.public.load(x.to_wire())
    with pytest.raises(CryptoError, match="no room"):
        received.inner(np.ones((20, 1), dtype=np.int64))
    # Sums of ciphertexts alone keep it.
    y = bfv.send(bfv.values(20), "inner")
    passed_on = bfv.public.load((y + y).to_wire())
    bfv.check(
        passed_on.inner(np.ones((20, 1), dtype=np.int64)),
        bfv.secret.decrypt(y).sum(keepdims=True) * 2,
    )


def test_nothing_and_itself(bfv: SchemeCase) -> None:
    """What SEAL would call transparent."""
    values = bfv.values(30)
    x = bfv.send(values, "inner")
    bfv.check(x - x, values * 0)
    bfv.check((x - x) * 5 + 1, values * 0 + 1)
    bfv.check((x * 0).inner(np.ones((30, 1), dtype=np.int64)), np.array([0]))
    zero = bfv.public.encrypt(np.zeros(4, dtype=np.int64))
    bfv.check(zero * 2**200, np.zeros(4, dtype=np.int64))
    huge = np.array([[2**100]] * 4, dtype=object)
    bfv.check(zero.inner(huge), np.array([0]))


def test_results_combine_across_a_hop(bfv: SchemeCase) -> None:
    values, columns = bfv.values(40), bfv.values(40, 3, limit=2**10)
    x = bfv.send(values, "inner")
    received = bfv.public.load(x.inner(columns).to_wire())
    bfv.check(received + x.inner(columns), 2 * (values @ columns))
    bfv.check(x.inner(columns) - received, 0 * (values @ columns))
    bfv.check(-received, -(values @ columns))


def test_ciphertexts_out_of_range_are_refused(bfv: SchemeCase) -> None:
    payload = bfv.public.encrypt([1]).to_wire().payload
    numbers = payload["numbers"].copy()
    numbers[0, 1, 0, 5] = 2**63
    with pytest.raises(ProtocolError, match="range"):
        bfv.public.load(Ciphertext(payload | {"numbers": numbers}))
    key = bfv.public.to_wire()
    for name in ("public", "slots"):
        for byte in (b"\xff", b"\0"):
            with pytest.raises(KeyMismatch, match="valid"):
                bfv.scheme.load_public(key | {name: byte * len(key[name])})


@pytest.mark.slow
def test_bfv_worker_processes_agree(bfv: SchemeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vfsl.crypto.work.WORTH_SECONDS", 0.0)
    values, columns = bfv.values(3000, 3), bfv.values(3000, 9, limit=2**10)
    groups = bfv.rng.integers(-1, 4, size=(3000, 6))
    with using_workers(2):
        for use in ("any", "inner"):
            x = bfv.public.encrypt(values, use=use)  # type: ignore[arg-type]
            bfv.check(x.inner(columns), values.T @ columns)
            expected = np.zeros((6, 4, 3), dtype=np.int64)
            for feature, column in enumerate(groups.T):
                np.add.at(expected[feature], column[column >= 0], values[column >= 0])
            bfv.check(x.sum_by_many(groups, 4), expected)


def histogram(values: Any, codes: Any, n: int) -> Any:
    sums = np.zeros((codes.shape[1], n), dtype=np.int64)
    for feature, column in enumerate(codes.T):
        np.add.at(sums[feature], column, values)
    return sums


class Node:
    """Rows, their encrypted histogram, and the same in numpy."""

    def __init__(self, case: SchemeCase, rows: int, codes: Any = None, values: Any = None) -> None:
        self.values = case.values(rows) if values is None else values
        self.codes = case.rng.integers(0, 8, size=(rows, 6)) if codes is None else codes
        self.array = case.send(self.values, "sum_by").sum_by_many(self.codes, 8)
        self.expected = histogram(self.values, self.codes, 8)

    def part(self, case: SchemeCase, rows: int) -> Node:
        return Node(case, rows, self.codes[:rows], self.values[:rows])


PREFIXES = PrefixSums(
    np.repeat(np.arange(0, 48, 8), 7), np.arange(48)[np.arange(48) % 8 > 0], [-1] * 42
)  # type: ignore[arg-type]


def test_sums_combine_whatever_their_rows(bfv: SchemeCase) -> None:
    whole = Node(bfv, 1500)
    part = whole.part(bfv, 130)
    assert len(whole.array.raws) == len(part.array.raws)  # type: ignore[attr-defined]
    rest = whole.array.without(part.array)
    bfv.check(rest, whole.expected - part.expected)


def test_a_difference_of_opened_sums_needs_no_ciphertext(bfv: SchemeCase) -> None:
    whole = Node(bfv, 700)
    part = whole.part(bfv, 300)
    unopened = whole.array.without(part.array)
    assert "second" in unopened.mask(PREFIXES)[0].payload
    for node in (whole, part):
        request, mask = node.array.mask(PREFIXES)
        opened = mask.remove(bfv.secret.open(request, (6, 8)))
        np.testing.assert_array_equal(opened, PREFIXES.add_up(node.expected.reshape(-1)))
    rest = whole.array.without(part.array)
    request, mask = rest.mask(PREFIXES, np.arange(42) % 2 == 0)
    assert set(request.payload) & {"first", "second"} == set()
    opened = mask.remove(bfv.secret.open(request, (6, 8)))
    expected = PREFIXES.add_up((whole.expected - part.expected).reshape(-1))
    np.testing.assert_array_equal(opened, expected[::2])
    for bad in damage_fields(request.payload):
        with pytest.raises((ProtocolError, KeyMismatch)):
            mask.remove(bfv.secret.open(Ciphertext(bad), (6, 8)))
    with pytest.raises(ProtocolError):
        bfv.secret.open(request, (6, 9))
    # Other answers about the same bins hide behind other numbers.
    again, other = rest.mask(PREFIXES)
    answers = [bfv.secret.open(r, (6, 8)).payload["residues"] for r in (request, again)]
    assert not set(answers[0].tolist()) & set(answers[1].tolist())
    np.testing.assert_array_equal(other.remove(bfv.secret.open(again, (6, 8))), expected)


def test_what_was_not_opened_here_cannot_be_subtracted(bfv: SchemeCase) -> None:
    whole = Node(bfv, 100)
    part = whole.part(bfv, 40)
    whole.array.mask(PREFIXES)
    part.array.mask(PREFIXES)
    request, _ = whole.array.without(part.array).mask(PREFIXES)
    with pytest.raises(ProtocolError, match="in the order"):
        bfv.secret.open(request, (6, 8))


def test_old_requests_are_forgotten_on_both_sides(
    bfv: SchemeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vfsl.crypto.bfv_opening.KEPT_VALUES", 48 * 6)
    whole = Node(bfv, 100)
    part = whole.part(bfv, 40)
    expected = PREFIXES.add_up((whole.expected - part.expected).reshape(-1))
    for node in (whole, part):
        bfv.secret.open(node.array.mask(PREFIXES)[0], (6, 8))
    for short in (True, True, True, False, False):
        request, mask = whole.array.without(part.array).mask(PREFIXES)
        assert ("less" in request.payload) == short
        np.testing.assert_array_equal(mask.remove(bfv.secret.open(request, (6, 8))), expected)


def test_a_shelf_keeps_the_newest_of_each_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vfsl.crypto.bfv_opening.KEPT_VALUES", 5)
    monkeypatch.setattr("vfsl.crypto.bfv_opening.KEPT_OWNERS", 2)
    shelf, ours, theirs, more = Shelf(), Tickets(), Tickets(), Tickets()
    first, second, third = (ours.issue(np.arange(2)) for _ in range(3))
    other = theirs.issue(np.arange(3))
    for ticket in (first, second, other, third):
        shelf.keep(ticket.name, ticket.masks)
    assert shelf.get(second.name) is second.masks
    assert shelf.get(other.name) is other.masks
    with pytest.raises(ProtocolError, match="not opened here"):
        shelf.get(first.name)
    assert ours.is_kept(third)
    assert not ours.is_kept(first)
    assert not ours.is_kept(other)
    with pytest.raises(ProtocolError, match="At most 2"):
        shelf.keep(more.issue(np.arange(1)).name, np.arange(1))


def test_the_key_holder_sees_uniform_bins(bfv: SchemeCase) -> None:
    """Also the bins behind the sums, and also of a difference, which is all it ever opens."""
    opened = []
    for rows in (np.zeros(64, dtype=np.int64), np.full(64, 2**50)):
        node = Node(bfv, 64, values=rows)
        half = node.part(bfv, 32)
        for array in (node.array, half.array, node.array.without(half.array)):
            request, _ = array.mask(PREFIXES)
            bfv.secret.open(request, (6, 8))
            opened.append(bfv.secret._shelves[DEGREE].get(request.payload["ticket"]))  # type: ignore[attr-defined]
    for bins in opened:
        assert len(np.unique(bins)) == 48
        # 58 bits: a value below 2^46 comes once in 4,096 draws, if it is uniform.
        assert np.count_nonzero((bins < 2**46) | (bins > 2**58 - 2**46)) < 6
    high = np.concatenate(opened) >> np.uint64(54)
    assert stats.chisquare(np.bincount(high.astype(np.int64), minlength=16)).pvalue > 1e-7


def test_a_request_holds_no_other_coefficients(bfv: SchemeCase) -> None:
    """Of the first half only what is wanted leaves; decrypting gives rubbish elsewhere."""
    node = Node(bfv, 500)
    array: Any = node.array
    payload = array.mask()[0].payload
    ring = array.key.packed.ring
    low = ring.last.limbs
    assert payload["first"].shape == (low, 48)
    assert payload["second"].shape == (2, low, DEGREE)
    raw = np.zeros((2, low, DEGREE), dtype=np.uint64)
    raw[1] = payload["second"][0]
    inside = ring.from_plain(bfv.secret._decryptors[DEGREE].decrypt(ring.to_seal(raw)))  # type: ignore[attr-defined]
    small = np.count_nonzero((inside < 2**40) | (inside > ring.t - 2**40))
    assert small <= 20


def test_rows_cannot_be_taken_out_of_a_ciphertext(bfv: SchemeCase) -> None:
    with pytest.raises(CryptoError, match="encrypt the rows again"):
        bfv.public.encrypt([1, 2, 3]).take([0])
