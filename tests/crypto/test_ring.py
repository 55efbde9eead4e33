"""Error bounds and floodings against numbers worked out by hand, and residues mod t."""

from __future__ import annotations

import gmpy2
import numpy as np
import pytest
from scipy import stats

from vfsl.crypto import PrefixSums
from vfsl.crypto.bfv import MAX_MODULUS_BITS, make_parameters
from vfsl.crypto.ring import (
    SLOT_PRIME,
    SLOTS,
    ErrorBounds,
    Exit,
    Parameters,
    get_ring,
    needed_bits,
    shift_left,
)


def test_small_numbers_by_hand() -> None:
    """N = 4, t = 2, q = 101 · 103 · 107, special prime 5."""
    bounds = ErrorBounds(4, 2, (101, 103, 107), 5)
    assert bounds.fresh_error == 21 * 9 // 5 + 1 + 2 + 1
    assert bounds.limit(2) == 101 * 103 // 16
    assert bounds.drop_factor(1) == 103 * 107
    assert bounds.drop_factor(1, 2) == 103
    assert bounds.switched_error(1000, 2) == 1000 // 107 + 5
    assert bounds.switched_error(1000, 1, 2) == 1000 // 103 + 5
    assert bounds.cover_error(6) == 64 + bounds.fresh_error + 1
    assert bounds.slot_norm == 4
    assert bounds.flood_bits(Exit(50, 1), 3) == 50
    assert bounds.flood_bits(Exit(50, 1), 2) == 50 - 7
    assert needed_bits(3, 10) == 40 + 5
    assert needed_bits(4, 8) == 40 + 5
    assert bounds.drowns(Exit(52, 1), 3, 2, 10)
    assert not bounds.drowns(Exit(51, 1), 3, 2, 10)
    # q / (64 t) = 8696: 2^13 fits; at one limb 3 · (8192 // 11021 + 5) > 101 / 16.
    assert bounds.last == Exit(13, 2)
    assert bounds.onward == bounds.last


@pytest.mark.parametrize(
    "params", [SLOTS, make_parameters(58, (60, 60, 60))], ids=["slots", "packed"]
)
def test_parameters_are_within_the_standard(params: Parameters) -> None:
    ring = get_ring(params)
    whole = ring.modulus(ring.top) * ring.special
    assert whole.bit_length() <= {8192: 218, 16384: 438}[params.degree]
    assert MAX_MODULUS_BITS[params.degree] == {8192: 218, 16384: 438}[params.degree]


def test_slots_have_a_prime_of_their_own() -> None:
    ring = get_ring(SLOTS)
    assert gmpy2.is_prime(SLOT_PRIME)
    assert SLOT_PRIME % (2 * 16384) == 1
    assert min(*ring.primes, ring.special) > SLOT_PRIME
    assert (SLOT_PRIME - 1) // 2 >= 2**59 - 2**23


def test_two_products_with_two_floodings_fit_the_slot_ring() -> None:
    """The chain of a weighted residual: fresh, a product, leaves, a product, leaves."""
    ring = get_ring(SLOTS)
    product = 16384 * (SLOT_PRIME // 2)
    first = 8194 * 5 * product  # five parties' scores
    onward, last = ring.onward, ring.last
    models_and_rows = 20 * -(-1_000_000 // 16384)
    assert first * models_and_rows * 16384 * 2**40 <= 2**onward.flood_bits
    received = (
        2 ** ((2**onward.flood_bits + first) // ring.drop_factor(onward.limbs) + 16386).bit_length()
    )
    second = received * product * -(-1_000_000 // 16384)
    models_and_columns = 20 * 500
    assert (
        second * ring.drop_factor(onward.limbs) * models_and_columns * 2**40 <= 2**last.flood_bits
    )
    assert 7 * 2**last.flood_bits <= ring.limit(ring.top)
    assert ring.levels == (6, 4, 2)


def test_packed_rows_have_no_room_after_leaving() -> None:
    ring = get_ring(make_parameters(58, (60, 60, 60)))
    assert ring.onward == ring.last == Exit(115, 2)


def test_residues_of_a_prime_are_uniform_and_repeat_from_a_seed() -> None:
    """65,537 takes 17 bits, of which half are refused."""
    ring = get_ring(Parameters(8192, 65537, (60, 60, 60)))
    drawn = ring.draw(40_000)
    assert drawn.max() < 65537
    counts = np.bincount(drawn.astype(np.int64) * 16 // 65537, minlength=16)
    assert stats.chisquare(counts).pvalue > 1e-7
    seeded = ring.expand(b"seed", 5000)
    assert len(seeded) == 5000
    assert seeded.max() < 65537
    assert seeded[:100].tolist() == ring.expand(b"seed", 100).tolist()
    assert seeded[:100].tolist() != ring.expand(b"other", 100).tolist()


def test_arithmetic_of_residues() -> None:
    for params in (SLOTS, make_parameters(58, (60, 60, 60))):
        ring = get_ring(params)
        t = ring.t
        values = np.array([0, 1, -1, (t - 1) // 2, -((t - 1) // 2)])
        residues = ring.reduce(values)
        assert residues.tolist() == [int(value) % t for value in values]
        assert ring.centre(residues).tolist() == values.tolist()
        a, b = np.array([3, 0, t - 1, t - 1]), np.array([5, t - 1, t - 1, 1])
        a, b = a.astype(np.uint64), b.astype(np.uint64)
        assert ring.minus(a, b).tolist() == [t - 2, 1, 0, t - 2]
        assert ring.plus(a, b).tolist() == [8, t - 1, t - 2, 0]
        sums = PrefixSums([0, 1, 2], [4, 3, 2], [-1, 0, 3])  # type: ignore[arg-type]
        flat = [int(value) for value in a]
        expected = [sum(flat) % t, sum(flat[1:3] + flat[:1]) % t, flat[3]]
        assert ring.add_up(sums, a).tolist() == expected


def test_shift_left() -> None:
    values = np.array([0, 1, SLOT_PRIME - 1, SLOT_PRIME // 2, 2**59 + 12345])
    for bits in (1, 14, 30):
        expected = [int(value) * 2**bits % SLOT_PRIME for value in values]
        assert shift_left(values, bits, SLOT_PRIME).tolist() == expected
