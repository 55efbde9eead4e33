"""Words, products in limbs, packed bytes and angles, beside Python's own integers."""

from decimal import Decimal, getcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from vfsl.crypto import words
from vfsl.crypto.words import (
    find_waves,
    lowest,
    matmul,
    pack,
    pack_bits,
    to_signed,
    to_words,
    unpack,
    unpack_bits,
)
from vfsl.errors import ConfigError

WIDTHS = (32, 40, 48, 56, 64)
LARGEST = 2**64 - 1


def numbers(array):
    """An array as Python integers, which do not overflow."""
    return np.asarray(array).astype(object)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), st.sampled_from(WIDTHS))
def test_signed_values_are_those_between_the_halves(values, width):
    got = to_signed(to_words(np.array(values, dtype=np.int64)), width)
    half = 1 << (width - 1)
    assert [int(one) for one in got] == [(one + half) % (2 * half) - half for one in values]


@pytest.mark.parametrize("what", [0.5, np.ones(2), np.array(["1"]), [1.0, 2.0], 1j])
def test_numbers_that_are_not_integers_are_refused(what):
    """A fraction would be cut off without a word."""
    with pytest.raises(ConfigError, match="integers"):
        to_words(what)


@pytest.mark.parametrize("what", [[], np.zeros(0), True, np.uint8(3), [np.int32(-1)]])
def test_all_integers_are_words(what):
    assert to_words(what).dtype == np.uint64


# ---- products ------------------------------------------------------------------------------------


def product(a, b, width):
    return (numbers(a) @ numbers(b)) % (1 << width)


@given(st.data(), st.sampled_from(WIDTHS))
def test_short_products_are_those_of_integers(data, width):
    n, m, k = (data.draw(st.integers(0, 5)) for _ in range(3))
    a = data.draw(arrays(np.uint64, (n, m)))
    b = data.draw(arrays(np.uint64, (m, k)))
    assert (numbers(matmul(a, b, width) & lowest(width)) == product(a, b, width)).all()


@pytest.mark.parametrize("width", range(8, 65, 8))
@pytest.mark.parametrize("fill", ["ones", "uniform"])
def test_products_in_limbs_are_those_of_integers(width, fill, monkeypatch):
    """All bits set is the worst case of the floats in between; lengths around the chunks."""
    monkeypatch.setattr(words, "_NAIVE", 0)
    rng = np.random.default_rng(width)
    for rows, inner, columns in [(1, 1, 4), (3, 511, 4), (2, 513, 5), (4, 1030, 7)]:
        if fill == "ones":
            a = np.full((rows, inner), LARGEST, dtype=np.uint64)
            b = np.full((inner, columns), LARGEST, dtype=np.uint64)
        else:
            a = rng.integers(0, LARGEST, (rows, inner), dtype=np.uint64, endpoint=True)
            b = rng.integers(0, LARGEST, (inner, columns), dtype=np.uint64, endpoint=True)
        got = numbers(matmul(a, b, width) & lowest(width))
        assert (got == product(a, b, width)).all()
        back = matmul(b.T, a.T, width) & lowest(width)  # not contiguous
        assert rows < 4 or (numbers(back.T) == got).all()


@pytest.mark.parametrize("width", WIDTHS)
def test_limbs_are_short_enough_for_exact_floats(width):
    """The largest sum that a float has to hold, of the limbs that the product chooses."""
    count = next(n for n in (2, 3, 4) if n == 4 or words._chunk_bits(width, n) >= 9)
    limb, rows = -(-width // count), 1 << words._chunk_bits(width, count)
    assert limb * count >= width
    assert rows >= 512
    assert ((1 << limb) - 1) ** 2 * rows <= 2**53


@pytest.mark.parametrize("width", WIDTHS)
def test_a_large_product_goes_through_limbs_and_is_exact(width):
    rng = np.random.default_rng(0)
    a = rng.integers(0, LARGEST, (60, 1500), dtype=np.uint64, endpoint=True)
    b = rng.integers(0, LARGEST, (1500, 60), dtype=np.uint64, endpoint=True)
    assert a.size * 60 >= words._NAIVE
    places = [(0, 0), (59, 59), (17, 42)]
    got = matmul(a, b, width) & lowest(width)
    for i, j in places:
        assert int(got[i, j]) == sum(map(int.__mul__, a[i].tolist(), b[:, j].tolist())) % (
            1 << width
        )
    assert (got == (a @ b) & lowest(width)).all()  # numpy's own loop, which wraps at 2^64


# ---- bytes ---------------------------------------------------------------------------------------


@given(arrays(np.uint64, array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)), st.data())
def test_bytes_bring_back_the_lowest_bits(values, data):
    width = data.draw(st.sampled_from(range(8, 65, 8)))
    content = pack(values, width)
    assert content.dtype == np.uint8
    assert len(content) == values.size * width // 8
    back = unpack(content, width, values.shape)
    assert back.shape == values.shape
    assert (back == values & lowest(width)).all()


@given(
    arrays(np.uint8, array_shapes(min_dims=0, min_side=0, max_side=5), elements=st.integers(0, 1))
)
def test_eight_bits_are_a_byte(bits):
    content = pack_bits(bits)
    assert len(content) == -(-bits.size // 8)
    assert (unpack_bits(content, bits.shape) == bits).all()


def test_bytes_are_little_endian():
    """Written down: parties on other machines must read the same."""
    assert pack(np.array([0x0102030405060708], dtype=np.uint64), 40).tolist() == [8, 7, 6, 5, 4]


# ---- angles --------------------------------------------------------------------------------------

getcontext().prec = 50
TWO_PI = 2 * Decimal("3.14159265358979323846264338327950288419716939937511")


def wave(turns):
    """Sine and cosine of ``turns`` circles by their series, to 45 digits."""
    angle = TWO_PI * (turns - turns.to_integral_value())  # within half a circle
    term, parts = Decimal(1), [Decimal(0), Decimal(0)]
    for number in range(80):
        parts[number % 2] += -term if number % 4 >= 2 else term
        term = term * angle / (number + 1)
    return parts[1], parts[0]


@pytest.mark.parametrize("width", WIDTHS)
def test_waves_are_sines_to_thirteen_digits(width):
    rng = np.random.default_rng(width)
    circle = 1 << width
    picked = [0, 1, 2, circle // 8, circle // 4, circle // 2, 3 * circle // 4, circle - 1]
    picked += [(circle >> 12) * 5 - 1, (circle >> 12) * 5, (circle >> 12) * 4095 + 1]
    picked += [int(word) for word in rng.integers(0, circle - 1, 60, dtype=np.uint64)]
    frequencies = (1, 3, 7, 21, 63)
    found = find_waves(np.array(picked, dtype=np.uint64), width, frequencies)
    assert len(found) == len(frequencies)
    for frequency, (sines, cosines) in zip(frequencies, found, strict=True):
        for word, sine, cosine in zip(picked, sines, cosines, strict=True):
            true_sine, true_cosine = wave(Decimal(frequency * word) / Decimal(circle))
            assert abs(Decimal(float(sine)) - true_sine) < Decimal("1e-13")
            assert abs(Decimal(float(cosine)) - true_cosine) < Decimal("1e-13")


def test_only_the_lowest_bits_are_an_angle():
    word = np.array([12345], dtype=np.uint64)
    ((low, _),) = find_waves(word, 32, (1,))
    ((high, _),) = find_waves(word + np.uint64(7 << 32), 32, (1,))
    assert low == high


def test_waves_are_the_same_on_every_machine():
    """Digits that were written down once: a library that rounds otherwise would change them."""
    angles = np.array([1, 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03], dtype=np.uint64)
    found = find_waves(angles, 64, (1, 9))
    assert [[one.hex() for one in part.tolist()] for pair in found for part in pair] == WRITTEN


WRITTEN = [
    ["0x1.921fb54442d18p-62", "-0x1.59d9dd253cc11p-1", "-0x1.d0660baf458f3p-1"],
    ["0x1.0000000000000p+0", "-0x1.798869e0de834p-1", "0x1.af2cbf4532743p-2"],
    ["0x1.c463abeccb2bbp-59", "-0x1.86b6b91fea8d0p-2", "0x1.6f90164dbc31ep-1"],
    ["0x1.0000000000000p+0", "-0x1.d943d21ba12e8p-1", "-0x1.646dcc2cc50dep-1"],
]
