"""Encrypted products: exact on shares, within the noise bound, uniform to whoever opens them."""

import math
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfsl.channel import Transcript, run_together
from vfsl.crypto import products, products_kernel, products_ring, shares
from vfsl.crypto.products import Encrypted, bit_products
from vfsl.crypto.products_kernel import (
    Answer,
    Bound,
    ColumnKey,
    EncryptedMatrix,
    Layout,
    apply_corrections,
    cut_digits,
    join_digits,
    plan_columns,
    split_mask,
    split_opened,
)
from vfsl.crypto.products_ring import DEGREE, MODULUS, MODULUS_BITS
from vfsl.crypto.shares import Session
from vfsl.errors import BoundExceeded, ConfigError, InputError, PeerFailed, ProtocolError

SPOKEN = {**shares.DISCLOSURES, **products.DISCLOSURES}


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def draw(rng, rows, columns, bits):
    return rng.integers(1 - (1 << bits), 1 << bits, (rows, columns))


def run_kernel(x, p, bits, plain_bits, layout=None):
    """The two sides without a channel: key, layout, product, opened words, mask."""
    rows = len(x)
    plain = Bound.of(rows, plain_bits)
    values = Bound.of(rows, bits)
    layout = layout or plan_columns(rows, x.shape[1], values, plain, p.shape[1])
    product = layout.plan(plain)
    key = ColumnKey(layout)
    answer, mask = EncryptedMatrix(layout, *key.encrypt(x)).multiply(p, product)
    return layout, product, key.open(answer, product), mask


def correct(layout, product, opened, mask):
    """What the pieces add up to, with products of bits in the clear."""
    words, bits = split_opened(opened, layout, product)
    other_words, other_bits = split_mask(mask, layout, product)
    both = (bits & other_bits).astype(np.uint64)
    whole = apply_corrections(words + other_words, both, layout)
    return join_digits(whole, product).view(np.int64)


def measure_noise(x, p, layout, product, opened, mask):
    k = product.wire_bits
    exact = (x.astype(float).T @ cut_digits(p, product).astype(float)).astype(np.int64)
    whole = opened - mask - (to_words(exact) << u(k - layout.scale_bits))
    return (whole << u(64 - k)).view(np.int64) >> (64 - k)


def to_words(values):
    return np.asarray(values, dtype=np.int64).view(np.uint64)


def u(number):
    return np.uint64(number)


# ---- the ring ------------------------------------------------------------------------------------


def test_the_modulus_is_what_the_tables_allow():
    import gmpy2

    assert gmpy2.is_prime(MODULUS)
    assert MODULUS.bit_length() == MODULUS_BITS == 53
    assert (MODULUS - 1) % (1 << products_ring.MAX_SCALE_BITS) == 0
    assert products_ring.get_small_ring().context.parameters_set()


def test_the_ring_multiplies_polynomials(rng):
    ring = products_ring.get_small_ring()
    factor = ring.load_factor(products_ring.expand_residues(b"seed", 1)[0])
    one, some = np.zeros((1, DEGREE), dtype=np.int64), draw(rng, 2, DEGREE, 6)
    one[0, 0] = 1
    multiplier = ring.add_products([(ring.transform(one), factor)])[0].astype(object)
    products_ = ring.add_products([(ring.transform(some), factor)])
    long = np.convolve(multiplier, some[1].astype(object))
    expected = long[:DEGREE] - np.append(long[DEGREE:], 0)
    assert (expected % MODULUS == products_[1]).all()


@given(st.integers(1, 64), st.integers(0, 300), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_words_of_any_width_come_back(bits, count, seed):
    words = np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64) >> u(64 - bits)
    packed = products_ring.pack_words(words, bits)
    assert len(packed) == -(-count * bits // 8)
    assert (products_ring.unpack_words(packed, (count,), bits) == words).all()


@pytest.mark.parametrize("bits", [12, 39, 52])
def test_the_modulus_is_switched_by_exact_rounding(bits, rng):
    residues = np.append(rng.integers(0, MODULUS, 2000), [0, MODULUS - 1, MODULUS // 2])
    expected = [(2 * int(r) * 2**bits + MODULUS) // (2 * MODULUS) % 2**bits for r in residues]
    assert products_ring.switch_modulus(residues, bits).tolist() == expected


def test_sums_are_exact_beyond_what_a_float_holds(rng):
    # 2^27 · 40,000 · 2^20 is far above 2^53: only sums in pieces are right.
    words = rng.integers(0, MODULUS, (40_000, 2)).astype(np.uint64) | u((1 << 27) - 1)
    words = np.minimum(words, u(MODULUS - 1))
    small = rng.integers(1 << 19, 1 << 20, (40_000, 2))
    exact = words.astype(object).T @ small.astype(object)
    assert (products_ring.sum_modulo(words, small, 1 << 20) == exact % MODULUS).all()
    assert (products_ring.sum_modulo_sparse(words, small, 1 << 20) == exact % MODULUS).all()
    assert (products_ring.sum_wrapping(words, small, 1 << 20) == exact % 2**64).all()


@pytest.mark.parametrize("share", [0.0, 0.05, 0.4, 1.0])
@pytest.mark.parametrize("columns", [1, 2, 5])
def test_few_used_rows_give_the_same_sums(share, columns, rng):
    words = rng.integers(0, MODULUS, size=(300, 4)).astype(np.uint64)
    small = rng.integers(-9, 10, size=(300, columns))
    for pair in range(0, columns, 2):
        small[rng.random(300) >= share, pair : pair + 2] = 0
    found = products_ring.sum_modulo_sparse(words, small, 9)
    assert (found == products_ring.sum_modulo(words, small, 9)).all()


def test_draws_have_the_stated_distributions():
    errors = products_ring.draw_errors((100_000,))
    assert np.abs(errors).max() <= products_ring.COINS
    assert abs(errors.mean()) < 0.06
    assert errors.var() == pytest.approx(products_ring.ERROR_VARIANCE, rel=0.03)
    counts = np.bincount(products_ring.draw_ternary((90_000,)) + 1, minlength=3)
    assert np.abs(counts - 30_000).max() < 900


# ---- the kernel ----------------------------------------------------------------------------------


@given(
    rows=st.integers(1, 5000),
    columns=st.integers(1, 18),
    plain_columns=st.integers(1, 20),
    bits=st.integers(1, 10),
    plain_bits=st.integers(1, 12),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=25, deadline=None)
def test_products_are_exact(rows, columns, plain_columns, bits, plain_bits, seed):
    rng = np.random.default_rng(seed)
    x, p = draw(rng, rows, columns, bits), draw(rng, rows, plain_columns, plain_bits)
    layout, product, opened, mask = run_kernel(x, p, bits, plain_bits)
    assert (correct(layout, product, opened, mask) == x.T @ p).all()


@pytest.mark.parametrize("packing", products_kernel.PACKINGS)
def test_packed_columns_are_exact_at_the_largest_values(packing):
    rows = 700
    x, p = np.full((rows, 3), -63), np.full((rows, 5), 255)
    x[:, 1], p[:, 2] = 63, -255
    layout = Layout(rows, 3, Bound.of(rows, 6), 26, packing)
    layout, product, opened, mask = run_kernel(x, p, 6, 8, layout)
    assert (correct(layout, product, opened, mask) == x.T @ p).all()


@pytest.mark.parametrize("digits", range(2, 6))
def test_digits_are_small_and_add_up(digits, rng):
    plain = Bound.of(100, 12)
    base_bits, digit = products_kernel._cut(plain, digits, 100)
    product = products_kernel.Product(digits, base_bits, digit, 40)
    p = draw(rng, 100, 3, 12)
    p[0] = [plain.largest, -plain.largest, 0]
    cut = cut_digits(p, product)
    assert np.abs(cut).max() <= digit.largest
    assert (join_digits(to_words(cut), product).view(np.int64) == p).all()


@pytest.mark.parametrize("broken", ["carry", "wrap"])
def test_both_corrections_are_needed(broken, rng):
    x, p = draw(rng, 500, 10, 6), draw(rng, 500, 40, 6)
    layout, product, opened, mask = run_kernel(x, p, 6, 6)
    words, bits = split_opened(opened, layout, product)
    other_words, other_bits = split_mask(mask, layout, product)
    both = (bits & other_bits).astype(np.uint64)
    assert (apply_corrections(words + other_words, both, layout).view(np.int64) == x.T @ p).all()
    both[("carry", "wrap").index(broken)] = 0
    wrong = apply_corrections(words + other_words, both, layout).view(np.int64) != x.T @ p
    assert 0.15 < wrong.mean() < 0.35  # the offsets are a quarter of their moduli


def test_noise_stays_within_its_bound_and_near_its_prediction(rng):
    rows, bits, plain_bits = 6000, 6, 6
    x, p = draw(rng, rows, 24, bits), draw(rng, rows, 100, plain_bits)
    # Wire moduli near q keep the errors of the columns, small ones show the rounding only.
    for scale_bits, wide in ((27, 51), (27, 37)):
        layout = Layout(rows, 24, Bound.of(rows, bits), scale_bits)
        product = products_kernel.Product(1, 0, Bound.of(rows, plain_bits), wide)
        key = ColumnKey(layout)
        answer, mask = EncryptedMatrix(layout, *key.encrypt(x)).multiply(p, product)
        noise = measure_noise(x, p, layout, product, key.open(answer, product), mask)
        bound = layout.bound_noise(product.digit, wide)
        assert np.abs(noise).max() < bound
        shrink = 2.0**wide / MODULUS
        # ‖p‖² + ‖u‖² of errors, e1 and rounding times the ternary secret, with their variances.
        columns = shrink**2 * 10.5 * ((p.astype(float) ** 2).sum(axis=0).mean() + DEGREE * 2 / 3)
        secret = DEGREE * 2 / 3 * (shrink**2 * 10.5 + 1 / 12)
        predicted = math.sqrt(columns + secret + 1 / 12)
        assert noise.std() == pytest.approx(predicted, rel=0.1)
        assert predicted < bound / products_kernel.DEVIATIONS


def test_too_much_noise_for_the_wire_gives_wrong_values(rng):
    x, p = draw(rng, 500, 10, 6), draw(rng, 500, 40, 6)
    values = Bound.of(500, 6)
    layout = Layout(500, 10, values, 24)
    for low, wrong in ((10, False), (5, True)):
        product = products_kernel.Product(1, 0, values, layout.scale_bits + low)
        assert (layout.bound_noise(values, product.wire_bits) >= 2 ** (low - 2)) == wrong
        key = ColumnKey(layout)
        answer, mask = EncryptedMatrix(layout, *key.encrypt(x)).multiply(p, product)
        found = correct(layout, product, key.open(answer, product), mask)
        assert (found != x.T @ p).any() == wrong


def assert_uniform(words, bits):
    """Every bit is balanced, and the upper four together are."""
    ones = [((words >> u(bit)) & u(1)).mean() for bit in range(bits)]
    assert np.abs(np.array(ones) - 0.5).max() < 5.5 * 0.5 / math.sqrt(words.size)
    sixteenths = np.bincount((words >> u(bits - 4)).astype(int).ravel(), minlength=16)
    expected = words.size / 16
    assert ((sixteenths - expected) ** 2 / expected).sum() < 55  # 15 degrees: 2 in 10^6


@pytest.mark.parametrize("value", [0, 63])
def test_what_the_owner_sees_and_opens_is_uniform_whatever_the_product_is(value):
    rows = 300
    x, p = np.full((rows, 20), value), np.full((rows, 300), value)
    values = Bound.of(rows, 6)
    layout = plan_columns(rows, 20, values, values, 300)
    product = layout.plan(values)
    key = ColumnKey(layout)
    answer, _ = EncryptedMatrix(layout, *key.encrypt(x)).multiply(p, product)
    for words in (answer.first, answer.second, key.open(answer, product)):
        assert_uniform(words, product.wire_bits)


def test_the_second_half_is_drawn_anew_for_each_answer(rng):
    x, p = draw(rng, 50, 2, 6), np.repeat(draw(rng, 50, 1, 6), 2, axis=1)
    values = Bound.of(50, 6)
    layout = Layout(50, 2, values, 20)
    product = layout.plan(values)
    matrix = EncryptedMatrix(layout, *ColumnKey(layout).encrypt(x))
    first, second = (matrix.multiply(p, product)[0] for _ in range(2))
    rows = np.concatenate([first.second, second.second]).astype(float)
    close = np.corrcoef(rows) - np.eye(4)
    assert np.abs(close).max() < 6 / math.sqrt(DEGREE)


def test_encrypted_columns_look_uniform_and_hide_their_scale():
    x = np.full((3000, 4), 63)
    values = Bound.of(3000, 6)
    layout = plan_columns(3000, 4, values, values)
    _, words = ColumnKey(layout).encrypt(x)
    assert words.shape == (3000 + DEGREE, 4)
    assert words.mean() / MODULUS == pytest.approx(0.5, abs=5 * 0.29 / math.sqrt(words.size))


# ---- what fits -----------------------------------------------------------------------------------


def test_more_bits_take_more_digits_until_nothing_fits():
    values, small = Bound.of(30_000, 8), Bound.of(30_000, 5)
    layout = plan_columns(30_000, 10, values, small)
    digits = [layout.plan(Bound.of(30_000, bits)).digits for bits in (5, 8, 10, 16)]
    assert digits == sorted(digits)
    assert digits[0] == 1
    assert digits[-1] > 1
    with pytest.raises(BoundExceeded, match="no room for noise"):
        plan_columns(10_000_000, 1, Bound.of(10_000_000, 20), small)


def test_planned_products_meet_both_conditions():
    for rows in (10, 1000, 30_000, 200_000):
        for bits in (1, 6, 10):
            for plain_bits in (4, 8, 12):
                values, plain = Bound.of(rows, bits), Bound.of(rows, plain_bits)
                layout = plan_columns(rows, 5, values, plain, 50)
                product = layout.plan(plain)
                t, k = layout.scale_bits, product.wire_bits
                assert rows * values.largest * product.digit.largest < 2 ** (t - 2)
                assert layout.bound_noise(product.digit, k) < 2 ** (k - t - 2)
                assert t <= products_ring.MAX_SCALE_BITS
                assert k <= products_kernel.MAX_WIRE_BITS


def test_a_stated_norm_leaves_room_for_wider_columns():
    rows = 30_000
    values = Bound.of(rows, 8)
    normed = Bound.of(rows, 8, norm=64 * math.sqrt(rows))
    plain = Bound.of(rows, 11, norm=2.0**15)
    wide, narrow = (plan_columns(rows, 10, one, plain).plan(plain) for one in (values, normed))
    assert narrow.digits <= wide.digits
    assert plan_columns(rows, 10, normed, plain).plan(Bound.of(rows, 11)).digits > narrow.digits


def read_bound(rows, cell):
    bits, *norm = cell.split(", ")
    return Bound.of(rows, int(bits), int(norm[0][:-2]) * math.sqrt(rows) if norm else None)


def test_the_page_shows_what_is_planned():
    page = (Path(__file__).parents[2] / "docs" / "security-products.md").read_text()
    lines = re.findall(r"^\| ([\d,]+) × (\d+) \| (.*) \|$", page, re.MULTILINE)
    assert len(lines) > 5
    for rows, columns, rest in lines:
        x, p, plain_columns, *shown = rest.split(" | ")
        values, plain = (read_bound(int(rows.replace(",", "")), cell) for cell in (x, p))
        layout = plan_columns(
            int(rows.replace(",", "")), int(columns), values, plain, int(plain_columns)
        )
        product = layout.plan(plain)
        sizes = (
            layout.count_columns_bytes(),
            layout.count_answer_bytes(product, int(plain_columns)),
        )
        numbers = (product.digits, layout.packing, layout.scale_bits, product.wire_bits)
        assert shown == [*map(str, numbers), *(f"{size / 1e6:.2f}" for size in sizes)]


def test_values_beyond_their_bounds_are_refused():
    bound = Bound.of(100, 6, norm=100.0)
    bound.check(np.full((100, 1), 10), "x")
    with pytest.raises(BoundExceeded, match="at most 63"):
        bound.check(np.full((1, 1), 64), "x")
    with pytest.raises(BoundExceeded, match="2-norms"):
        bound.check(np.full((100, 1), 11), "x")
    with pytest.raises(InputError, match="1 to 30 bits"):
        Bound.of(100, 0)
    with pytest.raises(InputError, match="at least 1"):
        Bound.of(100, 6, norm=float("nan"))
    with pytest.raises(InputError, match="at least one row"):
        plan_columns(0, 1, bound, bound)


def test_messages_of_another_shape_are_refused(rng):
    values = Bound.of(50, 6)
    layout = Layout(50, 2, values, 20)
    seed, words = ColumnKey(layout).encrypt(draw(rng, 50, 2, 6))
    with pytest.raises(ProtocolError, match="announced shape"):
        EncryptedMatrix(layout, seed, words[:-1])
    with pytest.raises(ProtocolError, match="residues"):
        EncryptedMatrix(layout, seed, words | u(1 << 53))
    with pytest.raises(ProtocolError, match="bytes"):
        Answer.from_bytes(np.zeros(7, dtype=np.uint8), layout, layout.plan(values), 1)


# ---- through sessions ----------------------------------------------------------------------------


def play(channel, protocol, tables, parties):
    with Session.join(channel.within("products", SPOKEN), parties, "K") as session:
        return protocol(session, tables.get(channel.me))


def run(protocol, tables, transcript=None):
    """Pieces of the result of a protocol, by party."""
    parties = tuple(tables)
    role = partial(play, protocol=protocol, tables=tables, parties=parties)
    done = run_together(dict.fromkeys((*parties, "K"), role), transcript=transcript, timeout=60)
    return {party: done[party] for party in parties}


def multiply_twice(session, table, shape, columns):
    """B's columns times C's, then times D's if there is one; the second time in digits."""
    x, p = table if isinstance(table, tuple) else (table, table)
    encrypted = Encrypted.features(session, "B", x, shape, 6, plain_columns=columns)
    first = encrypted.times("C", p, columns, 8)
    second = encrypted.times("D" if "D" in session.parties else "C", p, columns, 20)
    return first.piece, second.piece, first.bound


@pytest.mark.parametrize("parties", ["BC", "CB", "BCD", "DCB"])
@pytest.mark.parametrize("rows", [40, 2100])
def test_shares_add_up_to_the_exact_products(parties, rows, rng):
    tables = {party: draw(rng, rows, 3 if party == "B" else 4, 6) for party in parties}
    protocol = partial(multiply_twice, shape=(rows, 3), columns=4)
    done = run(protocol, tables)
    for at, holder in enumerate(["C", "D" if "D" in parties else "C"]):
        total = sum(done[party][at] for party in parties).view(np.int64)
        assert (total == tables["B"].T @ tables[holder]).all()
        for party in parties:  # no piece is small: each alone is a random word
            assert np.abs(done[party][at].view(np.int64)).max() > 2**50
    assert done["B"][2] == rows * 63 * 255


def test_one_place_gives_the_same_integers(rng):
    x, p = draw(rng, 90, 3, 6), draw(rng, 90, 4, 6)
    first, second, _ = multiply_twice(Session.plain(), (x, p), (90, 3), 4)
    assert (first.view(np.int64) == x.T @ p).all()
    assert (second == first).all()


def test_a_rehearsal_refuses_what_does_not_fit():
    rehearsal = Session.rehearse(("B", "C"))
    encrypted = Encrypted.features(rehearsal, "B", None, (1000, 3), 8)
    assert encrypted.times("C", None, 2, 10).shape == (3, 2)
    with pytest.raises(BoundExceeded):
        Encrypted.features(rehearsal, "B", None, (10**7, 3), 20)


def times_itself(session, table, rows):
    encrypted = Encrypted.features(session, "B", table, (rows, 2), 6)
    return encrypted.times("B", table, 2, 6).piece


def test_an_owner_multiplies_its_own_columns_alone(rng):
    tables = {"B": draw(rng, 30, 2, 6), "C": None}
    done = run(partial(times_itself, rows=30), tables)
    assert (done["B"].view(np.int64) == tables["B"].T @ tables["B"]).all()
    assert not done["C"].any()


def bits_only(session, table, shape):
    return bit_products(session, "B", table, "C", table, shape).piece


@pytest.mark.parametrize("parties", ["BC", "CDB"])
def test_products_of_private_bits(parties, rng):
    tables = {party: rng.integers(0, 2, (5, 9), dtype=np.uint8) for party in parties}
    done = run(partial(bits_only, shape=(5, 9)), tables)
    total = sum(done[party] for party in parties)
    assert (total == tables["B"] & tables["C"]).all()


def test_the_bytes_are_those_promised(rng):
    rows, columns, plain_columns = 2500, 3, 20
    tables = {"B": draw(rng, rows, columns, 6), "C": draw(rng, rows, plain_columns, 6)}
    transcript = Transcript()
    run(partial(multiply_twice, shape=(rows, columns), columns=plain_columns), tables, transcript)
    layout = plan_columns(rows, columns, Bound.of(rows, 6), Bound.of(rows, 8), plain_columns)
    sent = [(entry.message, entry.bytes) for entry in transcript.entries]
    assert all(entry.receiver != "K" for entry in transcript.entries)
    (upload,) = [size for name, size in sent if name == "columns"]
    answers = [size for name, size in sent if name == "answer"]
    plans = [layout.plan(Bound.of(rows, bits)) for bits in (8, 20)]
    expected = [layout.count_answer_bytes(plan, plain_columns) for plan in plans]
    frame = 200  # names, sizes, the frame's header
    assert 0 <= upload - layout.count_columns_bytes() < frame
    assert all(0 <= came - said < frame for came, said in zip(answers, expected, strict=True))
    # Two bits per value and direction, and two dealt words per value, nothing else.
    values = sum(plan.digits * plain_columns * columns for plan in plans)
    dealt = sum(size for name, size in sent if name == "dealt")
    masked = sum(size for name, size in sent if name == "masked")
    assert 0 <= dealt - 16 * values < frame
    assert 0 <= masked - 4 * values // 8 < 4 * frame


def send_too_large(session, table):
    return Encrypted.features(session, "B", table, (10, 1), 3)


def test_values_that_do_not_fit_are_not_sent():
    with pytest.raises((BoundExceeded, PeerFailed), match=r"at most 7|'B'"):
        run(send_too_large, {"B": np.full((10, 1), 8), "C": None})
    with pytest.raises((ConfigError, PeerFailed), match=r"shape \(10, 1\)|'B'"):
        run(send_too_large, {"B": np.full((9, 1), 1), "C": None})


# ---- slow ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_no_product_in_a_million_is_wrong(rng):
    """Fresh keys, shapes at the edge of what fits, also with all values at their bounds."""
    checked, worst = 0, 0.0
    shapes = [(3000, 300, 300, 6, 6), (700, 300, 400, 8, 8), (9000, 200, 200, 7, 10)] * 5
    for run, (rows, columns, plain_columns, bits, plain_bits) in enumerate(shapes):
        extreme = (1 << bits) - 1
        x = (
            draw(rng, rows, columns, bits)
            if run % 2
            else rng.choice([-extreme, extreme], (rows, columns))
        )
        p = draw(rng, rows, plain_columns, plain_bits)
        layout, product, opened, mask = run_kernel(x, p, bits, plain_bits)
        truth = (x.astype(float).T @ p.astype(float)).astype(np.int64)  # below 2^53: exact
        assert (correct(layout, product, opened, mask) == truth).all()
        noise = measure_noise(x, p, layout, product, opened, mask)
        bound = layout.bound_noise(product.digit, product.wire_bits)
        worst = max(worst, np.abs(noise).max() / bound)
        checked += truth.size
    assert checked > 10**6
    assert worst < 0.6  # events of 2^-20 lie near 5 of the bound's 9.5 deviations
