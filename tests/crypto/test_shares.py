"""Programs on shares give, bit for bit, what one place gives, and what Python's integers give."""

import math
import threading
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.crypto.share_cases import (
    DEALER,
    NAMES,
    SPEAKS,
    Exact,
    join_arrays,
    run_plain,
    run_program,
)
from vfsl.channel import Transcript, count_rounds, run_together
from vfsl.crypto import words
from vfsl.crypto.shares import Session, concatenate
from vfsl.errors import BoundExceeded, ConfigError

WIDTHS = (32, 40, 48, 56, 64)
ROWS, COLUMNS, TARGETS = 3, 2, 2


def open_all(arrays, to=None):
    return [one.open(to, name="result") for one in arrays]


def shares_of(session, data, shapes, widths=None):
    """One shared array per holder."""
    return [
        session.share(party, data.get(party), shape, (widths or {}).get(party, 64))
        for party, shape in shapes.items()
    ]


# ---- random programs -----------------------------------------------------------------------------


def perform(values, matrices, line):
    """One line of a program, on shared arrays or on exact ones."""
    match line:
        case "add", i, j:
            return values[i] + values[j]
        case "subtract", i, j:
            return values[i] - values[j]
        case "public", i, number, array:
            return (values[i] * number - array + 1) * array - values[i]
        case "negate", i:
            return 5 - (-values[i])
        case "times", i, j:
            return values[i] * values[j]
        case "product", i, j:
            return values[i] @ values[j]
        case "turned", i, j:
            return values[i].T @ values[j]
        case "batch", i, j, k:
            both = join_arrays([values[i].reshape(1, *values[i].shape), values[j][None]])
            return (both @ values[k])[1] + (both @ values[k])[0]
        case "truncate", i, bits:
            return values[i].truncate(bits)
        case "below zero", i:
            sign = values[i].below_zero()
            return sign if isinstance(sign, Exact) else replace(sign, bound=None)  # may wrap again
        case "narrow", i, width:
            return values[i].narrow(width)
        case "slice", i, rows, columns:
            return values[i][rows, columns]
        case "sum", i, axis:
            summed = values[i].sum(axis)
            return summed.reshape(*[1 if k == axis else s for k, s in enumerate(values[i].shape)])
        case "join", i, j, axis:
            return join_arrays([values[i], values[j]], axis)
        case "private", p, columns, i:
            return matrices[p][:, columns] @ values[i]
        case "private turned", p, columns, i:
            return matrices[p][:, columns].T @ values[i]
        case "private both", p, q:
            return matrices[p].T @ matrices[q]


NUMBERS = st.integers(-20, 20) | st.builds(
    lambda power, near, sign: sign * ((1 << power) + near),
    st.integers(0, 61),
    st.integers(-2, 2),
    st.sampled_from([-1, 1]),
)


def draw_integers(draw, *shape):
    count = math.prod(shape)
    numbers = draw(st.lists(NUMBERS, min_size=count, max_size=count))
    return np.array(numbers, dtype=np.int64).reshape(shape)


@st.composite
def programs(draw, most=8):
    """Parties, their data, widths, the lines of a program, and what each line should give."""
    parties = NAMES[: draw(st.integers(2, 4))]
    data = {
        party: {
            f"matrix {party}": draw_integers(draw, ROWS, COLUMNS),
            f"array {party}": draw_integers(draw, COLUMNS, TARGETS),
        }
        for party in parties
    }
    widths = {party: draw(st.tuples(*[st.sampled_from(WIDTHS)] * 2)) for party in parties}
    values = [Exact(data[p][f"array {p}"], widths[p][0]) for p in parties]
    matrices = [Exact(data[p][f"matrix {p}"], widths[p][1]) for p in parties]
    lines = []
    for _ in range(draw(st.integers(1, most))):
        line = draw(lines_for(values, matrices))
        lines.append(line)
        values.append(perform(values, matrices, line))
    return parties, data, widths, lines, values


@st.composite
def lines_for(draw, values, matrices):
    """A line that fits the shapes and, where it has to be small, the size of what there is."""

    def pick(*choices):
        return draw(st.sampled_from(choices))

    i, p = pick(*range(len(values))), pick(*range(len(matrices)))
    one, columns = values[i], slice(pick(0, 1), None)
    same = [j for j, other in enumerate(values) if other.shape == one.shape]
    right = [j for j, other in enumerate(values) if other.shape[0] == one.shape[1]]
    below = [j for j, other in enumerate(values) if other.shape[0] == one.shape[0]]
    room = (1 << (one.width - 2)) - 1 - one.largest
    fits = {
        "add": lambda: (i, pick(*same)),
        "subtract": lambda: (i, pick(*same)),
        "public": lambda: (i, draw(NUMBERS), draw_integers(draw, *one.shape)),
        "negate": lambda: (i,),
        "times": lambda: (i, pick(*same)),
        "turned": lambda: (i, pick(*below)),
        "narrow": lambda: (i, pick(*WIDTHS)),
        "slice": lambda: (i, slice(pick(*range(one.shape[0])), None), slice(None, None, -1)),
        "sum": lambda: (i, pick(0, 1)),
        "join": lambda: (i, pick(*same), pick(0, 1)),
        "private both": lambda: (p, pick(*range(len(matrices)))),
    }
    if right:
        fits["product"] = lambda: (i, pick(*right))
        fits["batch"] = lambda: (i, pick(*same), pick(*right))
    if one.shape[0] == matrices[p][:, columns].shape[1]:
        fits["private"] = lambda: (p, columns, i)
    if one.shape[0] == ROWS:
        fits["private turned"] = lambda: (p, columns, i)
    if room >= 0:
        fits["below zero"] = lambda: (i,)
    if room >= 1:
        most = min(room.bit_length(), one.width - 2)  # 2^(bits − 1) still fits
        bits = st.sampled_from([1, 20, 21, 24, 25, most]) | st.integers(1, most)
        fits["truncate"] = lambda: (i, min(draw(bits), most))
    name = pick(*sorted(fits))
    return name, *fits[name]()


def follow(parties, widths, lines):
    """The program: share everything, follow the lines, open all that came out."""

    def program(session, held):
        values = [
            session.share(p, held.get(f"array {p}"), (COLUMNS, TARGETS), widths[p][0])
            for p in parties
        ]
        matrices = [
            session.private(p, held.get(f"matrix {p}"), (ROWS, COLUMNS), widths[p][1])
            for p in parties
        ]
        for line in lines:
            values.append(perform(values, matrices, line))
        return open_all(values)

    return program


def check_program(case, hide=True):
    parties, data, widths, lines, wanted = case
    program = follow(parties, widths, lines)
    results = run_program(program, parties, data, hide)
    assert results[DEALER] == [None] * len(wanted)
    for found in (run_plain(program, data), *(results[party] for party in parties)):
        for got, exact in zip(found, wanted, strict=True):
            assert got.dtype == np.int64
            assert (got.astype(object) == exact.values).all()


@settings(max_examples=25)
@given(programs())
def test_random_programs_are_exact(case):
    check_program(case)


@settings(max_examples=10)
@given(programs())
def test_programs_without_masks_are_exact_too(case):
    check_program(case, hide=False)


@pytest.mark.slow
@settings(max_examples=400)
@given(programs(most=16))
def test_many_long_random_programs_are_exact(case):
    check_program(case)


# ---- truncation and signs ------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", [2, 3])
def test_truncation_is_exact_to_its_last_value(width, count):
    """All numbers of bits; halves round up, also below zero."""
    rng = np.random.default_rng(width)
    parties, wanted, data = NAMES[:count], [], {"A": {}}
    for bits in range(1, width - 1):
        half = 1 << (bits - 1)
        edge = (1 << (width - 2)) - 1 - half
        few = [0, 1, -1, half, half - 1, -half, -half - 1, 3 * half, -3 * half, edge, -edge]
        few += [2 * half - 1, -2 * half, *rng.integers(-edge, edge, 6, endpoint=True).tolist()]
        values = np.array([one for one in few if abs(one) <= edge], dtype=np.int64)
        wanted.append([(int(one) + half) >> bits for one in values])
        data["A"][bits] = values
    data["B"] = {bits: values[::-1] for bits, values in data["A"].items()}

    def program(session, held):
        found = []
        for bits, values in data["A"].items():
            # The value lies with nobody: A has its values and B's added, B takes them off again.
            v = session.share("A", held.get(bits), values.shape, width)
            w = session.share("B", held.get(bits), values.shape, width)
            found.append((v + w - w).truncate(bits))
        return open_all(found)

    results = run_program(program, parties, data)
    for party in parties:
        assert [one.tolist() for one in results[party]] == wanted


@pytest.mark.parametrize("width", WIDTHS)
def test_signs_are_right_at_zero_and_at_the_extremes(width):
    edge = (1 << (width - 2)) - 1
    values = np.array([0, 1, -1, edge, -edge, -edge - 1, edge // 2, -edge // 3])

    def program(session, held):
        v = session.share("A", held.get("v"), values.shape, width)
        return v.below_zero().open("B", name="result")

    results = run_program(program, NAMES, {"A": {"v": values}})
    assert results["B"].tolist() == (values < 0).astype(int).tolist()
    assert results["A"] is None


def test_all_truncations_of_a_short_word_and_all_masks():
    """Every mask occurs among so many: 2^16 copies of values of eight bits."""
    values = np.repeat(np.arange(-60, 60, 7), 2000)

    def program(session, held):
        v = session.share("B", held.get("v"), values.shape, 8)
        return v.truncate(3).open(name="result"), v.below_zero().open(name="result")

    results = run_program(program, ("A", "B"), {"B": {"v": values}})
    assert (results["A"][0] == (values + 4) >> 3).all()
    assert (results["A"][1] == (values < 0)).all()


# ---- large products ------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [40, 64])
def test_large_products_go_through_limbs(width):
    rng = np.random.default_rng(width)
    a, b = rng.integers(-(2**62), 2**62, (2, 40, 3000))
    assert a.size * 40 >= words._NAIVE

    def program(session, held):
        x = session.private("A", held.get("a"), (40, 3000), width)
        y = session.private("B", held.get("b"), (40, 3000), width)
        w = session.share("B", held.get("b"), (40, 3000), width)
        return open_all([x @ y.T, x @ w.T, y @ session.share("A", held.get("a"), (40, 3000)).T])

    results = run_program(program, ("A", "B"), {"A": {"a": a}, "B": {"b": b}})
    wrapped = words.to_signed((a @ b.T).view(np.uint64), width)
    exact = Exact(a[:2].astype(object) @ b[:2].astype(object).T, width).values
    assert (wrapped[:2, :2] == exact).all()
    for party in ("A", "B"):
        for got, wanted in zip(results[party], [wrapped, wrapped, wrapped.T], strict=True):
            assert (got == wanted).all()


@pytest.mark.parametrize("count", [2, 3, 4])
def test_several_products_in_one_round(count):
    """Vectors and matrices of all owners, of several widths, some owners more than once."""
    rng, parties = np.random.default_rng(count), NAMES[:count]
    data = {
        p: {f"x {p}": rng.integers(-99, 99, (5, 3)), f"v {p}": rng.integers(-99, 99, 3)}
        for p in parties
    }

    def program(session, held):
        x = [session.private(p, held.get(f"x {p}"), (5, 3), 40) for p in parties]
        v = [session.share(p, held.get(f"v {p}"), (3,), 48) for p in parties]
        pairs = [
            (x[0], v[1]),
            (x[1], v[0]),
            (x[0][:, :2], v[0][:2]),
            (x[-1].T, v[1][[0, 1, 2, 0, 1]]),
        ]
        products = session.products(pairs)
        assert {one.width for one in products} == {40}
        return open_all(products)

    x, v = ([data[p][f"{name} {p}"] for p in parties] for name in "xv")
    wanted = [x[0] @ v[1], x[1] @ v[0], x[0][:, :2] @ v[0][:2], x[-1].T @ v[1][[0, 1, 2, 0, 1]]]
    for found in (
        run_plain(program, data),
        *(run_program(program, parties, data)[p] for p in parties),
    ):
        for got, right in zip(found, wanted, strict=True):
            assert (got == right).all()


def test_a_factor_is_used_again_at_another_width():
    def program(session, held):
        v = session.share("A", held.get("v"), (1,))
        w = [session.share("B", held.get("w"), (1,), width) for width in (64, 40, 64, 40)]
        return open_all([v * one for one in w])

    data = {"A": {"v": np.array([3 << 38])}, "B": {"w": np.array([1 << 2])}}
    for found in (run_plain(program, data), run_program(program, ("A", "B"), data)["B"]):
        assert [int(one[0]) for one in found] == [3 << 40, 0, 3 << 40, 0]


def test_single_numbers_are_shared_too():
    """Inner products, sums and single cells, whose words overflow without a warning."""

    def program(session, held):
        v = session.share("A", held.get("v"), (3,))
        w = session.share("B", held.get("w"), (3,))
        inner, cell = v @ w, w[1]
        return open_all(
            [inner, inner * cell - v.sum(0), (inner - cell).truncate(2), cell.below_zero(), -cell]
        )

    data = {"A": {"v": np.array([-1, 2, 3])}, "B": {"w": np.array([5, -7, 11])}}
    for found in (run_plain(program, data), run_program(program, ("A", "B"), data)["A"]):
        assert [int(one) for one in found] == [14, -102, 5, 1, 7]


def test_arrays_without_cells():
    def program(session, held):
        v = session.share("A", held.get("v"), (0, 2))
        x = session.private("B", held.get("v"), (0, 2))
        return open_all([v * v, v.T @ v, v.truncate(3), v.below_zero(), x.T @ v])

    empty = {"v": np.zeros((0, 2), dtype=np.int64)}
    results = run_program(program, ("A", "B"), {"A": empty, "B": empty})
    assert [one.shape for one in results["B"]] == [(0, 2), (2, 2), (0, 2), (0, 2), (2, 2)]
    assert all((one == 0).all() for one in results["B"])


# ---- waves ---------------------------------------------------------------------------------------

FREQUENCIES = (1, 3, 9, 21)
SINES, COSINES = (0.61, -0.2, 0.053, -0.009), (0.0, 0.4, 1.25, -3.5)


def waving(parties, period, bits, width, seen=None):
    """The sum of all parties' X @ v as an angle, and two sums of its waves."""

    def program(session, held):
        if session.me == DEALER:
            session.angles = []
        terms = [
            (
                session.private(p, held.get(f"x {p}"), (20, 3), period),
                session.share(p, held.get(f"v {p}"), (3, 2), 64),
            )
            for p in parties
        ]
        waves = session.waves(terms, FREQUENCIES, period=period, bits=bits, width=width)
        sums = [
            waves.sum(bits, sines=SINES, cosines=COSINES),
            waves.sum(bits, sines=SINES),
        ]
        if seen is not None:
            seen.extend(one.bound for one in sums)
        opened = open_all(sums)
        return session.angles if session.me == DEALER else opened

    return program


def wave_data(parties, rng):
    return {
        p: {
            f"x {p}": rng.integers(-(2**20), 2**20, (20, 3)),
            f"v {p}": rng.integers(-(2**40), 2**40, (3, 2)),
        }
        for p in parties
    }


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize(("period", "bits", "width"), [(32, 14, 48), (40, 20, 56), (64, 14, 40)])
def test_waves_are_those_of_one_place_and_close_to_the_sine(count, period, bits, width):
    parties = NAMES[:count]
    data = wave_data(parties, np.random.default_rng(count))
    bounds = []
    program = waving(parties, period, bits, width, bounds)
    results = run_program(program, parties, data)
    plain = run_plain(program, data, results[DEALER])
    exact = sum(data[p][f"x {p}"].astype(object) @ data[p][f"v {p}"].astype(object) for p in data)
    angle = 2 * np.pi * ((exact % (1 << period)).astype(float) / 2.0**period)
    for k, cosines in enumerate([COSINES, (0.0,) * 4]):
        for party in parties:
            assert (results[party][k] == plain[k]).all()
        real, error = np.zeros(angle.shape), 1e-12
        for f, a, b in zip(FREQUENCIES, SINES, cosines, strict=True):
            real += a * np.sin(f * angle) + b * np.cos(f * angle)
            # Both factors of a pair are rounded: half a unit each, in two coordinates.
            error += np.sqrt(0.5) * (1 + math.hypot(a, b) + 2.0**-bits) * 2.0**-bits
        assert np.abs(plain[k] / 4.0**bits - real).max() < error
        sizes = [math.hypot(a, b) for a, b in zip(SINES, cosines, strict=True)]
        assert np.abs(plain[k]).max() <= bounds[k]
        assert bounds[k] <= sum(sizes) * 4**bits + sum(r + 1 for r in sizes) * 2**bits + 8


def test_waves_without_masks_are_close_to_those_with():
    """Without masks the dealer deals sin 0 and cos 0, which need no rounding."""
    data = wave_data(("A", "B"), np.random.default_rng(0))
    program = waving(("A", "B"), 40, 14, 48)
    open_one = run_program(program, ("A", "B"), data, hide=False)["A"]
    hidden = run_program(program, ("A", "B"), data)["A"]
    assert (open_one[0] == run_plain(program, data)[0]).all()
    assert 0 < np.abs(open_one[0] - hidden[0]).max() < 8 * 2**14


def test_waves_refuse_what_they_cannot_do():
    session = Session.plain()
    v = session.share("A", np.array([1, 2]), (2,))
    x = session.private("A", np.ones((2, 2), dtype=np.int64), (2, 2), 40)
    for frequencies in [(1, 2), (3, 1), (1, 1), (-1, 3)]:
        with pytest.raises(ConfigError, match="odd and rising"):
            session.waves([(x, v)], frequencies, period=40, bits=14, width=48)
    with pytest.raises(ConfigError, match="48 bits"):
        session.waves([(x, v)], (1,), period=48, bits=14, width=48)
    with pytest.raises(ConfigError, match="from 8 to 64 bits"):
        session.waves([(x, v)], (1,), period=7, bits=14, width=48)
    waves = session.waves([(x, v)], (1,), period=40, bits=14, width=32)
    with pytest.raises(BoundExceeded):
        waves.sum(14, sines=(9.0,))  # 9 · 2^28 does not fit into 32 bits


# ---- bounds, before anything is sent -------------------------------------------------------------


def test_a_rehearsal_finds_an_overflow_without_values():
    def program(session, rows):
        x = session.private("A", None, (rows, 2), 48, bound=1 << 16)
        y = session.private("B", None, (rows, 2), 48, bound=1 << 16)
        gram = x.T @ y
        gram = (gram - 5) * 3 + concatenate([gram[:1], gram[1:]])
        w = session.waves([(x, session.zeros((2,)))], (1,), period=48, bits=14, width=48)
        assert session.decide(gram.below_zero()[0, 0]) is False
        assert gram.truncate(4).open(name="result") is None
        assert w.sum(14, sines=[1.0]).open("A", name="result") is None
        return gram.bound

    rehearsal = Session.rehearse(("A", "B"))
    assert program(rehearsal, 1000) == 4 * 1000 * 2**32 + 15
    with pytest.raises(BoundExceeded, match="48 bits"):
        program(rehearsal, 10_000)


@pytest.mark.parametrize(
    "grow",
    [
        lambda v: v + v,
        lambda v: v + 2**46,
        lambda v: 2 * v,
        lambda v: -2 * v,
        lambda v: v * v,
        lambda v: v.T @ v,
        lambda v: v.sum(0),
        lambda v: v.narrow(40),
        lambda v: v.truncate(4),
        lambda v: (v - 1).below_zero(),
    ],
)
def test_what_could_overflow_is_refused(grow):
    session = Session.rehearse(("A", "B"))
    v = session.share("A", None, (2, 2), 48, bound=2**46)
    grow(v.limit(2))
    with pytest.raises(BoundExceeded):
        grow(v)


def test_the_smallest_integer_is_a_large_one():
    v = Session.plain().share("A", np.array([1]), (1,), bound=1)
    with pytest.raises(BoundExceeded):
        np.array(-(2**63)) * v


def test_an_owner_keeps_its_bound():
    session = Session.plain()
    for make in (session.share, session.private):
        make("A", np.array([[-100]]), (1, 1), 48, bound=100)
        with pytest.raises(BoundExceeded, match="'A' goes beyond its bound, 100") as caught:
            make("A", np.array([[-101]]), (1, 1), 48, bound=100)
        assert "101" not in str(caught.value)


@pytest.mark.parametrize("width", [0, 7, 65, 72])
def test_other_widths_are_refused(width):
    session = Session.plain()
    for make in (session.share, session.private):
        with pytest.raises(ConfigError, match="from 8 to 64 bits"):
            make("A", np.array([[1]]), (1, 1), width)


@pytest.mark.parametrize("bits", [-1, 47, 48])
def test_other_truncations_are_refused(bits):
    v = Session.plain().share("A", np.array([1]), (1,), 48)
    with pytest.raises(ConfigError, match="cannot be shortened"):
        v.truncate(bits)


def test_an_owner_must_give_its_array():
    session = Session.plain()
    for values in (None, np.array([1, 2])):
        with pytest.raises(ConfigError, match=r"must give its array of shape \(3,\)"):
            session.share("A", values, (3,))
    with pytest.raises(ConfigError, match="integers"):
        session.share("A", np.array([0.5]), (1,))
    with pytest.raises(ConfigError, match="integers"):
        session.zeros((1,)) + 0.5


# ---- who takes part ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parties", "dealer", "match"),
    [
        (("A",), "K", "at least two"),
        (("A", "K"), "K", "must have no data"),
        (("A", "A"), "K", "takes part once"),
        (("B", "C"), "D", "'A' takes no part"),
    ],
)
def test_sessions_that_would_protect_nobody_are_refused(parties, dealer, match):
    def play(channel):
        with Session.join(channel.within("x", SPEAKS), parties, dealer):
            raise AssertionError("this must not begin")

    with pytest.raises(ConfigError, match=match):
        run_together({"A": play})


def test_a_party_may_have_any_name():
    """Also that of the session in one place, of old."""

    def program(session, held):
        v = session.share("everyone", held.get("v"), (1,))
        return (v * session.share("B", held.get("w"), (1,))).open("B", name="result")

    data = {"everyone": {"v": np.array([6])}, "B": {"w": np.array([7])}}
    assert run_program(program, ("everyone", "B"), data)["B"] == [42]


def test_sizes_numbers_and_decisions_reach_the_dealer_too():
    """Also after it has dealt words that others need before they can answer."""

    def program(session, held):
        sizes = session.agree({"rows": len(held["v"])} if held else None)
        v = session.share("A", held.get("v"), (3,))
        low = (v * session.share("B", held.get("v"), (3,))).open("A", name="result")
        told = session.announce("A", None if low is None else low * 0.5)
        again = session.agree({"rows": int(told[0])} if held else None)
        steps = 0
        while session.decide((v - 2 + steps)[1].below_zero()):
            steps += 1
        return sizes, again, told.tolist(), steps

    data = {"A": {"v": np.array([2, 0, 3])}, "B": {"v": np.array([4, 5, 6])}}
    results = run_program(program, ("A", "B"), data)
    three, four = {"rows": 3}, {"rows": 4}
    wanted = ({"A": three, "B": three}, {"A": four, "B": four}, [4.0, 0.0, 9.0], 2)
    assert all(result == wanted for result in results.values())


def test_the_dealer_may_leave_before_the_others_begin():
    """Its words are sent ahead, as long as it has nothing to decide."""
    gone = threading.Event()
    values = np.arange(-30, 30)

    def program(session, held):
        assert session.deals or gone.wait(10)
        v = session.share("A", held.get("v"), (60,))
        return (v * v).truncate(3).open("B", name="result")

    def deal(channel):
        with Session.join(channel.within("step 1", SPEAKS), ("A", "B"), DEALER) as session:
            program(session, {})
        gone.set()

    results = run_program(program, ("A", "B"), {"A": {"v": values}}, replace={DEALER: deal})
    assert (results["B"] == (values**2 + 4) >> 3).all()


def test_opened_numbers_are_counted_where_data_are_shown():
    def program(session, held):
        v = session.share("A", held.get("v"), (7,))
        v.open("B", name="result", about=("columns", "label"))
        (v + 1).open(name="result", about=("columns",))

    transcript = Transcript()
    run_program(program, NAMES[:3], {"A": {"v": np.arange(7)}}, transcript=transcript)
    to_b = {(p, "B", about, 7): 1 for p in "AC" for about in ("columns", "label")}
    to_all = {(p, q, "columns", 7): 1 for p in "ABC" for q in "ABC" if p != q}
    counted = Counter((r.sender, r.receiver, r.about, r.counted) for r in transcript.releases)
    assert counted == Counter(to_b) + Counter(to_all)


def square(session, held):
    """A program that another process can find."""
    v = session.share("A", held.get("v"), (3,))
    return (v * v).open("B", name="result")


@pytest.mark.slow
def test_parties_in_their_own_processes_behind_seals():
    data = {"A": {"v": np.array([1, -2, 3])}}
    results = run_program(square, ("A", "B"), data, on="processes", sealed=True)
    assert results["B"].tolist() == [1, 4, 9]


# ---- rounds --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "rounds"),
    [
        (lambda s, x, v, w: v + 3 * w, 0),
        (lambda s, x, v, w: v * w, 1),
        (lambda s, x, v, w: v @ w, 1),
        (lambda s, x, v, w: x @ v, 1),
        (lambda s, x, v, w: concatenate(s.products([(x, v), (x.T, w)])), 1),
        (lambda s, x, v, w: x.T @ x, 0),
        (lambda s, x, v, w: v.truncate(20), 3),
        (lambda s, x, v, w: v.truncate(24), 3),
        (lambda s, x, v, w: v.truncate(25), 3),
        (lambda s, x, v, w: v.below_zero(), 4),
        (lambda s, x, v, w: s.waves([(x, v)], (1,), period=32, bits=9, width=32).sum(9), 2),
    ],
)
def test_rounds_of_an_operation(step, rounds):
    """Beside three: the seeds, the private matrix, the opening."""
    transcript = Transcript()
    square = np.ones((2, 2), dtype=np.int64)

    def program(session, held):
        x = session.private("A", held.get("v"), (2, 2))
        v = session.share("A", held.get("v"), (2, 2))
        w = session.share("B", held.get("v"), (2, 2))
        return step(session, x, v, w).open(name="result")

    run_program(
        program, ("A", "B"), {"A": {"v": square}, "B": {"v": square}}, transcript=transcript
    )
    assert count_rounds(transcript) == rounds + 3


def test_a_factor_that_is_used_again_crosses_once():
    def program(session, held, again):
        v = session.share("A", held.get("v"), (50,))
        w = session.share("B", held.get("v"), (50,))
        for _ in range(again):
            w = v * w
        return w.open(name="result")

    sizes = []
    for again in (1, 2, 3):
        transcript = Transcript()
        data = {party: {"v": np.full(50, 2)} for party in "AB"}
        results = run_program(
            lambda s, held, again=again: program(s, held, again),
            ("A", "B"),
            data,
            transcript=transcript,
        )
        assert (results["A"] == 2 ** (again + 1)).all()
        sizes.append(
            sum(e.bytes for e in transcript.entries if (e.sender, e.receiver) == ("A", "B"))
        )
    assert 400 <= sizes[1] - sizes[0] == sizes[2] - sizes[1] < 500
