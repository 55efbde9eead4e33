"""BFV in slots: sums without rotations, errors along two products, and what the key holder sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vfsl.crypto import PrefixSums
from vfsl.crypto.bfv_array import BFVArray
from vfsl.crypto.packing import move_sum
from vfsl.crypto.ring import SLOT_DEGREE, SLOTS, STATISTICAL_BITS, get_ring
from vfsl.errors import ConfigError, CryptoError, ProtocolError
from vfsl.testing.scheme_case import SchemeCase
from vfsl.values import Array, Ciphertext

# A ring that fits on paper: X^8 + 1 mod 17, whose roots are the odd powers of 3.
N, T = 8, 17
ROOTS = [pow(3, power, T) for power in range(1, 16, 2)]


def interpolated(values: list[int]) -> list[int]:
    """The polynomial mod X^8 + 1 and 17 with these values at the roots."""
    inverse = pow(N, -1, T)
    return [
        sum(value * pow(root, -at, T) for value, root in zip(values, ROOTS, strict=True))
        * inverse
        % T
        for at in range(N)
    ]


def multiplied(a: list[int], b: list[int]) -> list[int]:
    out = [0] * N
    for i, one in enumerate(a):
        for j, two in enumerate(b):
            out[(i + j) % N] += one * two if i + j < N else -one * two
    return [value % T for value in out]


residue = st.integers(0, T - 1)
eight = st.lists(residue, min_size=N, max_size=N)


@given(eight, eight)
def test_the_sum_over_slots_is_the_last_coefficient(a: list[int], b: list[int]) -> None:
    plain = move_sum(np.array(interpolated(b), dtype=np.uint64), T)
    product = multiplied(interpolated(a), plain.tolist())
    assert product[-1] == sum(x * y for x, y in zip(a, b, strict=True)) % T


def test_slots_multiply_where_polynomials_do() -> None:
    """Against a polynomial that is known: X takes another root's value in every slot."""
    ring = get_ring(SLOTS)
    x = np.zeros(SLOT_DEGREE, dtype=np.uint64)
    x[1] = 1
    slots = [int(slot) for slot in ring.to_slots(x)]
    assert len(set(slots)) == SLOT_DEGREE
    assert all(pow(slot, SLOT_DEGREE, ring.t) == ring.t - 1 for slot in slots[::997])
    squares = np.array([slot * slot % ring.t for slot in slots], dtype=np.uint64)
    assert np.flatnonzero(ring.from_slots(squares)).tolist() == [2]


def products(case: SchemeCase, rows: int) -> tuple[BFVArray, BFVArray, BFVArray, BFVArray]:
    """Fresh, multiplied, received, and summed by whoever received it."""
    fresh: Any = case.send(case.values(rows))
    product = fresh * case.values(rows, limit=2**10)
    received: Any = case.public.load(product.to_wire())
    return fresh, product, received, received.inner(case.values(rows, 2, limit=2**10))


def test_slot_error_is_below_its_bound(bfv: SchemeCase, error_bits: Callable[[Any], Any]) -> None:
    rows = 20_000
    fresh, product, received, sums = products(bfv, rows)
    plain = bfv.values(rows)
    for array in (
        fresh,
        fresh + fresh - plain,
        fresh * -1000,
        product,
        product + product,
        product * plain,
        product.inner(bfv.values(rows, 1, limit=2**10)),
        fresh.sum_by(np.arange(rows) % 2, 2),
        received,
        received + plain,
        received * plain,
        received + product,
        sums,
        sums * 7 + sums,
        bfv.public.load(sums.to_wire()),
    ):
        spare, promised = error_bits(array)
        assert spare >= promised - 1
    # Worst cases, but not empty ones: N errors with random signs stay far below their sum.
    for array in (product, sums):
        spare, promised = error_bits(array)
        assert spare < promised + 20


def test_slots_that_leave_are_drowned(bfv: SchemeCase, error_bits: Callable[[Any], Any]) -> None:
    fresh, product, received, sums = products(bfv, 20_000)
    ring = product._ring
    sent = len(product.raws) * SLOT_DEGREE
    assert product.own > 2**80
    assert 1 << ring.onward.flood_bits >= product.own * sent << STATISTICAL_BITS
    assert received._limbs == ring.onward.limbs
    assert received.own == 0
    # The flood is there: 2^157 less the 120 bits of the primes that went.
    measured = ring.modulus(received._limbs).bit_length() - ring.t.bit_length() - 1
    assert abs(measured - error_bits(received).spare - (157 - 120)) <= 2
    hidden = sums.own * ring.drop_factor(sums._limbs) * sums.size
    assert 1 << ring.last.flood_bits >= hidden << STATISTICAL_BITS
    # What has no room for another product after all leaves by the last exit.
    twice: Any = bfv.public.load((product * bfv.values(20_000, limit=2**10)).to_wire())
    assert twice._limbs == ring.last.limbs
    with pytest.raises(CryptoError, match="no room"):
        twice * np.ones(20_000, dtype=np.int64)
    with pytest.raises(CryptoError, match="no room"):
        twice.inner(np.ones((20_000, 1), dtype=np.int64))
    assert fresh.own == 0


def test_a_third_slot_product_is_refused_before_work(bfv: SchemeCase) -> None:
    _, product, received, _ = products(bfv, 10)
    ones = np.ones(10, dtype=np.int64)
    with pytest.raises(ConfigError, match="flooding"):
        (received * ones) * ones
    with pytest.raises(ConfigError, match="flooding"):
        (product * ones * ones).inner(ones[:, None])


def polynomials_seen(case: SchemeCase, request: Ciphertext) -> Array:
    """All that the key holder could compute from a request for slots."""
    payload = request.payload
    low, count = payload["second"].shape[1], len(payload["second"])
    assert payload["first"].shape == (low, count * SLOT_DEGREE)
    raws = np.zeros((count, 2, low, SLOT_DEGREE), dtype=np.uint64)
    raws[:, 0] = payload["first"].reshape(low, count, SLOT_DEGREE).transpose(1, 0, 2)
    raws[:, 1] = payload["second"]
    ring, decryptor = get_ring(SLOTS), case.secret._decryptors[SLOT_DEGREE]  # type: ignore[attr-defined]
    return np.stack([ring.from_plain(decryptor.decrypt(ring.to_seal(raw))) for raw in raws])


def test_the_key_holder_sees_uniform_slots(bfv: SchemeCase) -> None:
    """In all slots, used or not, and in all coefficients, whatever the values and factors are."""
    ring = get_ring(SLOTS)
    for value, factor in ((0, 0), (2**40, 1), (-(2**28), 2**28)):
        array = bfv.send(np.full(300, value)) * np.full(300, factor)
        request, mask = array.mask()
        (coefficients,) = polynomials_seen(bfv, request)
        for seen in (coefficients, ring.to_slots(coefficients)):
            assert len(np.unique(seen)) == SLOT_DEGREE
            for digits in (seen >> np.uint64(56), seen & np.uint64(15)):
                counts = np.bincount(digits.astype(np.int64), minlength=16)
                assert stats.chisquare(counts).pvalue > 1e-7
        answer = bfv.secret.open(request, (300,))
        assert answer.payload["residues"].shape == (300,)
        assert (mask.remove(answer) == value * factor).all()


def test_a_sum_over_slots_is_all_that_leaves(bfv: SchemeCase) -> None:
    """One coefficient of the first half for each sum; its residue is uniform."""
    seen = []
    for value in (0, 2**28):
        rows = bfv.send(np.full(20, value)) * np.full(20, 2**20)
        sums = rows.inner(np.ones((20, 10), dtype=np.int64))
        for _ in range(4):
            request, mask = sums.mask()
            assert request.payload["first"].shape == (2, 10)
            answer = bfv.secret.open(request, (10,))
            assert (mask.remove(answer) == 20 * value * 2**20).all()
            seen.append(answer.payload["residues"])
    residues = np.concatenate(seen)
    assert len(np.unique(residues)) == 80
    counts = np.bincount((residues >> np.uint64(57)).astype(np.int64), minlength=8)
    assert stats.chisquare(counts).pvalue > 1e-7


def test_other_coefficients_of_a_sent_sum_are_uniform(bfv: SchemeCase) -> None:
    result: Any = bfv.send(np.ones(500, dtype=np.int64)).inner(np.ones((500, 1), dtype=np.int64))
    received: Any = bfv.public.load(result.to_wire())
    ring, decryptor = received._ring, bfv.secret._decryptors[SLOT_DEGREE]  # type: ignore[attr-defined]
    outside = ring.from_plain(decryptor.decrypt(ring.to_seal(received.raws[0])))
    assert outside[-1] == 500
    counts = np.bincount((outside[:-1] >> np.uint64(56)).astype(np.int64), minlength=16)
    assert stats.chisquare(counts).pvalue > 1e-7


def test_layouts_of_the_other_ring_are_refused(bfv: SchemeCase) -> None:
    slots = bfv.public.encrypt([1, 2, 3]).to_wire().payload
    packed = bfv.public.encrypt([1, 2, 3], use="inner").to_wire().payload
    sums = bfv.public.encrypt([1, 2, 3]).inner(np.ones((3, 1), dtype=np.int64)).to_wire().payload
    for bad in (
        slots | {"use": "inner"},
        slots | {"use": "result"},
        slots | {"kind": "rows"},
        slots | {"degree": 8192},
        packed | {"use": "any"},
        packed | {"kind": "slots"},
        packed | {"degree": 16384},
        packed | {"bound": (2**58).to_bytes(8, "big")},
        sums | {"kb": 2},
        sums | {"use": "any"},
    ):
        with pytest.raises(ProtocolError):
            bfv.public.load(Ciphertext(bad))


def test_prefix_sums_over_slots_and_their_sums(bfv: SchemeCase) -> None:
    values = np.array([2**55, 2**55, -5, 7])
    x = bfv.send(values)
    asked = PrefixSums([0, 1, 0], [2, 4, 0], [-1, 0, 3])  # type: ignore[arg-type]
    request, mask = x.mask(asked)
    opened = mask.remove(bfv.secret.open(request, (4,)))
    assert opened.tolist() == [2**56, 2**56 + 2, 7]
    whole, part = x.sum_by([0, 1, 0, 1], 2), x.sum_by([0, 1, -1, -1], 2)
    last = PrefixSums([0, 0], [1, 2], [-1, -1])  # type: ignore[arg-type]
    for array in (whole, part):
        bfv.secret.open(array.mask(last)[0], (2,))
    request, mask = whole.without(part).mask(last)
    assert "less" in request.payload
    assert mask.remove(bfv.secret.open(request, (2,))).tolist() == [-5, 2]
    with pytest.raises(ProtocolError):
        bfv.secret.open(Ciphertext(request.payload | {"degree": 8192}), (2,))
