"""inspect(): every finding where it belongs, and none on an ordinary table."""

from __future__ import annotations

import numpy as np
import pandas as pd

from vfsl.data import PartyTable, inspect


def table(label: str | None = None, **columns: object) -> PartyTable:
    rows = len(next(iter(columns.values())))  # type: ignore[arg-type]
    frame = pd.DataFrame({"id": [f"p{row}" for row in range(rows)], **columns})
    return PartyTable.from_frame(frame, party="A", id="id", label=label)


def codes(of: PartyTable) -> set[tuple[str | None, str]]:
    return {(finding.column, finding.what) for finding in inspect(of)}


def test_an_ordinary_table_has_no_findings():
    rng = np.random.default_rng(0)
    plain = table(
        x=rng.normal(size=200), n=rng.integers(9, size=200), c=rng.choice(list("uv"), 200)
    )
    assert inspect(plain) == []


def test_constant_and_mostly_missing_columns():
    found = table(one=[1] * 10, gap=[1.0, 2.0] + [None] * 8, fine=range(10))
    assert codes(found) == {("one", "constant"), ("gap", "mostly missing")}
    by_column = {finding.column: finding for finding in inspect(found)}
    assert by_column["gap"].count == 8
    assert str(by_column["gap"]) == "Column 'gap' of party A lacks 80% of its cells."
    assert codes_with(found, 0.9) == {("one", "constant")}


def codes_with(of: PartyTable, share: float) -> set[tuple[str | None, str]]:
    return {(finding.column, finding.what) for finding in inspect(of, mostly_missing=share)}


def test_columns_that_look_like_ids():
    rng = np.random.default_rng(0)
    found = table(
        account=1000 + rng.permutation(200),
        name=[f"n{row}" for row in range(200)],
        many=[f"m{row % 120}" for row in range(200)],
        amount=rng.normal(size=200),
    )
    assert codes(found) == {
        ("account", "id-like"),
        ("name", "id-like"),
        ("many", "many categories"),
    }


def test_unknown_and_single_labels():
    found = table(label="y", x=[1.0, 2.0, 3.0], y=[1, None, 1])
    assert codes(found) == {("y", "unknown labels"), ("y", "constant")}
    assert {finding.count for finding in inspect(found)} == {1, 2}


def test_padded_ids_are_counted_and_not_quoted():
    frame = pd.DataFrame({"id": ["secret ", "b", " c"], "x": [1, 2, 3]})
    (finding,) = inspect(PartyTable.from_frame(frame, party="A", id="id"))
    assert (finding.what, finding.count) == ("padded ids", 2)
    assert "secret" not in str(finding)
