"""Ids: normalisation, composite ids, dirty lists, no id in an error; byte rows against sets."""

import hashlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfsl.align import Normalise, prepare_ids
from vfsl.align.ids import count_repeats, draw_secret_order, find_rows, mark_first, to_rows
from vfsl.errors import ConfigError, DataError


def digest_of(*parts: str) -> bytes:
    """The digest of one id as it is specified, written a second time."""
    content = b"vfsl-id-v1" + len(parts).to_bytes(2, "little")
    for part in parts:
        content += len(part.encode()).to_bytes(4, "little") + part.encode()
    return hashlib.sha256(content).digest()


def same(left, right, **options) -> bool:
    """Whether two ids count as the same person."""
    how = Normalise(**options)
    first = prepare_ids("A", [left], normalise=how)
    second = prepare_ids("A", [right], normalise=how)
    return first.digests.tobytes() == second.digests.tobytes()


@pytest.mark.parametrize(
    ("left", "right", "options", "expected"),
    [
        (" x ", "x", {}, True),
        (" x ", "x", {"strip": False}, False),
        ("\u00e9", "e\u0301", {}, True),
        ("\u00e9", "e\u0301", {"unicode": "none"}, False),
        ("１２", "12", {}, False),
        ("１２", "12", {"unicode": "NFKC"}, True),
        ("Ann", "ann", {}, False),
        ("Ann", "ANN", {"case": "lower"}, True),
        ("Straße", "STRASSE", {"case": "lower"}, False),
        ("Straße", "STRASSE", {"case": "fold"}, True),
        ("007", "7", {}, False),
        ("007", "7", {"numbers": "integer"}, True),
        ("+7", "7", {"numbers": "integer"}, True),
        ("-07", "-7", {"numbers": "integer"}, True),
        ("-0", "0", {"numbers": "integer"}, True),
        ("0x7", "7", {"numbers": "integer"}, False),
        ("12-34.5 ", "12345", {"remove": "-. "}, True),
        (7, "7", {}, True),
        (np.int64(7), "7", {}, True),
        (7.0, "7", {"numbers": "integer"}, True),
    ],
)
def test_which_ids_are_the_same(left, right, options, expected):
    assert same(left, right, **options) is expected


def test_digest_of_a_list_is_that_of_each_id():
    ids = prepare_ids("A", ["b", "ä", "c"])
    assert [row.tobytes() for row in ids.digests] == [digest_of(text) for text in ("b", "ä", "c")]


composite = st.lists(st.text(min_size=1), min_size=1, max_size=4)


@given(composite, composite)
def test_composite_ids_are_joined_unambiguously(left, right):
    plain = Normalise(strip=False, unicode="none")
    first, second = (
        prepare_ids("A", *([part] for part in parts), normalise=plain).digests.tobytes()
        for parts in (left, right)
    )
    assert (first == second) == (left == right)
    assert first == digest_of(*left)


def test_composite_columns():
    ids = prepare_ids("A", ["ab", "a"], ["c", "bc"])
    assert ids.digests[0].tobytes() == digest_of("ab", "c")
    assert ids.digests[1].tobytes() == digest_of("a", "bc")


def test_a_composite_id_with_an_empty_part_is_empty():
    ids = prepare_ids("A", ["a", "b"], ["x", ""], empty="drop")
    assert (len(ids), ids.empty) == (1, 1)


@pytest.mark.parametrize(
    "column",
    [
        ["a", None, "b"],
        ["a", float("nan"), "b"],
        ["a", "  ", "b"],
        pd.Series(["a", None, "b"]),
        pd.Series(["a", pd.NA, "b"], dtype="string"),
        pd.Series(["a", pd.NaT, "b"], dtype=object),
    ],
)
def test_missing_ids_are_counted_and_refused(column):
    with pytest.raises(DataError, match=r"'A' has 1 empty or missing ids among 3"):
        prepare_ids("A", column)
    ids = prepare_ids("A", column, empty="drop")
    assert ids.rows.tolist() == [0, 2]
    assert (ids.total, ids.empty, ids.duplicates) == (3, 1, 0)


def test_duplicates_after_normalisation_are_counted_and_refused():
    column = ["x", "y", " x", "x ", "z"]
    with pytest.raises(DataError, match=r"'B' has 2 ids that repeat"):
        prepare_ids("B", column)
    ids = prepare_ids("B", column, duplicates="first")
    assert ids.rows.tolist() == [0, 1, 4]
    assert ids.duplicates == 2


def test_integer_columns_with_gaps_as_pandas_reads_them():
    column = pd.Series([1, None, 3])  # pandas makes these floats
    with pytest.raises(DataError, match="decimal numbers"):
        prepare_ids("A", column, empty="drop")
    ids = prepare_ids("A", column, empty="drop", normalise=Normalise(numbers="integer"))
    assert ids.digests[1].tobytes() == digest_of("3")


@pytest.mark.parametrize("bad", [True, 1.5, b"x", object(), ("a",)])
def test_other_types_are_refused(bad):
    with pytest.raises(DataError, match="The id column of party 'A'"):
        prepare_ids("A", [bad], normalise=Normalise(numbers="integer"))


def test_a_series_is_read_by_position_whatever_its_index():
    series = pd.Series(["a", "b", "c"], index=[2.0, 0.0, 1.0])
    assert prepare_ids("A", series).digests[0].tobytes() == digest_of("a")


def test_long_lists_cross_chunk_borders():
    column = np.arange(70_000)
    ids = prepare_ids("A", column)
    assert len(ids) == 70_000
    assert ids.digests[-1].tobytes() == digest_of("69999")


def test_empty_list():
    ids = prepare_ids("A", [])
    assert (len(ids), ids.total, ids.digests.shape) == (0, 0, (0, 32))


def test_errors_never_quote_an_id():
    secret = "marker-4711"
    for column in ([secret, secret], [secret, None], [secret, 1.5]):
        with pytest.raises(DataError) as caught:
            prepare_ids("A", column)
        assert secret not in str(caught.value)


@pytest.mark.parametrize(
    "options", [{"case": "upper"}, {"unicode": "NFD"}, {"numbers": "float"}, {"remove": None}]
)
def test_unknown_options_are_refused(options):
    with pytest.raises(ConfigError, match="of Normalise must be"):
        Normalise(**options)


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(DataError, match="id columns of one length"):
        prepare_ids("A", ["a"], ["b", "c"])


def test_taken_rows_follow_the_order_asked_for():
    ids = prepare_ids("A", ["a", "", "c", "d"], empty="drop")
    chosen = ids.take_rows(np.array([3, 0]))
    assert [row.tobytes() for row in chosen.digests] == [digest_of("d"), digest_of("a")]
    with pytest.raises(DataError, match="no id that takes part"):
        ids.take_rows(np.array([1]))


def test_fingerprint_is_keyed_and_sees_ids_and_order():
    first, second = prepare_ids("A", ["a", "b"]), prepare_ids("A", ["b", "a"])
    assert first.fingerprint(b"k") == prepare_ids("A", ["a", "b"]).fingerprint(b"k")
    assert first.fingerprint(b"k") != first.fingerprint(b"l")
    assert first.fingerprint(b"k") != second.fingerprint(b"k")


# Byte rows

# Few different bytes, zeros among them, so that repeats and trailing zeros are common.
rows = st.lists(st.binary(min_size=3, max_size=3).map(lambda b: bytes(x % 3 for x in b)))


@given(rows, rows)
def test_find_equals_a_dictionary(wanted, among):
    among = list(dict.fromkeys(among))
    places = {row: place for place, row in enumerate(among)}
    found = find_rows(to_rows(b"".join(wanted), 3), to_rows(b"".join(among), 3))
    assert found.tolist() == [places.get(row, -1) for row in wanted]


@given(rows)
def test_repeats_equal_a_set(values):
    values = [row[:1] * 8 + row for row in values]  # starts of eight bytes that often coincide
    array = to_rows(b"".join(values), 11)
    assert count_repeats(array) == len(values) - len(set(values))
    first = mark_first(array)
    assert [v for v, keep in zip(values, first, strict=True) if keep] == list(dict.fromkeys(values))


def test_secret_order_is_a_fresh_permutation():
    first, second = draw_secret_order(1000), draw_secret_order(1000)
    assert sorted(first.tolist()) == list(range(1000))
    assert not np.array_equal(first, second)
    assert abs(np.corrcoef(np.arange(1000), first)[0, 1]) < 0.2
