"""Coefficient packing: layouts against polynomials multiplied by definition."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfsl.crypto.packing import ColumnPlains, GroupPlains, Layout, choose_layout, choose_packing
from vfsl.values import Array

VECTORS = json.loads((Path(__file__).parent / "vectors" / "packing.json").read_text())
DEGREE = 32


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: f"{case['ka']}x{case['kb']}")
def test_vectors(case: dict[str, list[list[int]]]) -> None:
    left, right = np.array(case["left"]), np.array(case["right"])
    rows = Layout("rows", left.shape[1], case["ka"], case["kb"], case["degree"])  # type: ignore[arg-type]
    polynomials = np.zeros((rows.count(left.shape), DEGREE), dtype=np.int64)
    polynomials[rows.places(left.shape)] = left
    assert polynomials.tolist() == [case["encrypted"]]
    plain = ColumnPlains(rows, right).block(0)
    assert np.pad(plain[0], (0, DEGREE - plain.shape[1])).tolist() == case["plain"]
    results = replace(rows, kind="inner")
    shape = (left.shape[1], right.shape[1])
    assert np.array([case["product"]])[results.places(shape)].tolist() == case["inner"]


def multiplied(a: Array, b: Array) -> Array:
    full = np.convolve(a, np.pad(b, (0, DEGREE - len(b))))
    low, high = full[:DEGREE], full[DEGREE:]
    return low - np.pad(high, (0, DEGREE - len(high)))


@given(st.data())
def test_any_layout_gives_inner_products(data: st.DataObject) -> None:
    ka, kb = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    k, d, rows = (
        data.draw(st.integers(ka, 6)),
        data.draw(st.integers(1, 6)),
        data.draw(st.integers(1, 40)),
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    left, right = rng.integers(-9, 9, size=(rows, k)), rng.integers(-9, 9, size=(rows, d))
    layout = Layout("rows", k, ka, kb, DEGREE)
    assert layout.fits(left.shape)
    encrypted = np.zeros((layout.count(left.shape), DEGREE), dtype=np.int64)
    encrypted[layout.places(left.shape)] = left
    plains = ColumnPlains(layout, right)
    blocks = -(-rows // layout.block)
    results = replace(layout, kind="inner")
    out = np.zeros((results.count((k, d)), DEGREE), dtype=np.int64)
    norm = 0
    for block in range(blocks):
        for group, plain in enumerate(plains.block(block)):
            for column in range(len(encrypted) // blocks):
                product = multiplied(encrypted[column * blocks + block], plain)
                out[column * plains.groups + group] += product
    for group in range(plains.groups):
        norm = max(norm, sum(int(np.abs(plains.block(b)[group]).sum()) for b in range(blocks)))
    np.testing.assert_array_equal(out[results.places((k, d))], left.T @ right)
    assert plains.norm() == norm


def test_group_plains_are_columns_of_zeros_and_ones() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(-1, 3, size=(21, 4))
    dense = np.zeros((21, 12), dtype=np.int64)
    for feature in range(4):
        for group in range(3):
            dense[:, feature * 3 + group] = codes[:, feature] == group
    layout = Layout("rows", 0, 1, 4, DEGREE)
    ours, reference = GroupPlains(layout, codes, 3), ColumnPlains(layout, dense)
    assert ours.groups == reference.groups
    assert ours.norm() == reference.norm()
    for block in range(3):
        np.testing.assert_array_equal(ours.block(block), reference.block(block))


def test_layouts_that_no_array_has() -> None:
    assert not Layout("rows", 0, 1, 0, DEGREE).fits((3,))
    assert not Layout("rows", 0, 2, 1, DEGREE).fits((3,))
    assert not Layout("rows", 2, 1, 64, DEGREE).fits((3, 2))
    assert not Layout("rows", 3, 1, 1, DEGREE).fits((3, 2))
    assert not Layout("inner", 0, 1, 1, DEGREE).fits((3, 2))
    assert not Layout("sums", 2, 1, 1, DEGREE).fits((2,))
    assert Layout("sums", 2, 1, 1, DEGREE).fits((4, 3, 2))


def test_layout_follows_the_work() -> None:
    assert choose_packing(10_000, 1, 20, 8192) == (1, 4)
    ka, kb = choose_packing(10_000, 20, 20, 8192)
    assert ka * kb >= 8
    # Trees subtract sums over few rows from sums over many.
    degrees = (8192, 16384)
    assert choose_layout((100_000,), "sum_by", *degrees) == choose_layout((3,), "sum_by", *degrees)
    assert choose_layout((5, 5, 5), "inner", *degrees).kb == 1
    assert choose_layout((9, 2), "add", *degrees) == Layout("rows", 2, 1, 1, 8192)
    assert choose_layout((9, 2), "any", *degrees) == Layout("slots", 2, 1, 1, 16384)


def test_slots_are_sent_whole_and_hold_rows() -> None:
    layout = Layout("slots", 2, 1, 1, DEGREE)
    assert layout.fits((40, 2))
    assert not layout.fits((40, 3))
    assert not layout.fits((40,))
    assert not Layout("slots", 2, 2, 1, DEGREE).fits((40, 2))
    polynomial, exponent = layout.sent_places((40, 2))
    assert layout.count((40, 2)) == 4
    pairs = set(zip(polynomial.tolist(), exponent.tolist(), strict=True))
    assert pairs == {(p, e) for p in range(4) for e in range(DEGREE)}
    place = [place[35, 1] for place in layout.places((40, 2))]
    assert place == [3, 35 - DEGREE]
