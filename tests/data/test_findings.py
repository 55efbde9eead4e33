"""Findings where they belong, none on an ordinary table; and which columns look like a label."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd
import pytest

from vfsl.data import PartyTable, check_labels, inspect
from vfsl.data.findings import is_label_name
from vfsl.errors import ConfigError


def table(
    label: str | Literal[False] | None = None, party: str = "A", **columns: object
) -> PartyTable:
    rows = len(next(iter(columns.values())))  # type: ignore[arg-type]
    frame = pd.DataFrame({"id": [f"p{row}" for row in range(rows)], **columns})
    return PartyTable.from_frame(frame, party=party, id="id", label=label)


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


# Labels that nobody declared


@pytest.mark.parametrize(
    "name",
    [
        *("label", "Target", "y", "Y", "outcome", "class", "churn", "fraud", "converted"),
        *("is_fraud", "isActive", "IS_OPEN", "was-late", "customer_churned", "loanDefault"),
        *("default.payment.next.month", "Class Label", "y1", "creditDEFAULT", "response_2024"),
    ],
)
def test_names_that_labels_have(name):
    assert is_label_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("age", "sex", "married", "island", "is", "history", "classic", "yearly", "classes_taken"),
        *("targeted_ads", "defaults", "years", "responsible", "housing", "has_car", "yes", "wasp"),
    ],
)
def test_names_that_ordinary_columns_have(name):
    assert not is_label_name(name)


def churning(**how):
    return table(age=np.arange(6.0), churn=["yes", "no", None, "no", "yes", "no"], **how)


def test_an_undeclared_label_is_asked_about_in_one_sentence():
    words = (
        "Column 'churn' of A looks like a label, which must never be a feature; say "
        "labels={'A': 'churn'}, or labels={'A': None} if it is an ordinary column."
    )
    with pytest.raises(ConfigError) as caught:
        check_labels({"A": churning(), "B": table(party="B", x=np.arange(6))})
    assert str(caught.value) == words
    with pytest.raises(ConfigError, match="a feature; write it if it is"):
        check_labels({"A": churning()}, ask=lambda party, column: "write it")


def test_nobody_is_asked_who_has_spoken():
    check_labels({"A": churning(label="churn")})
    check_labels({"A": churning(label=False)})
    check_labels({"A": churning(label="age")})
    check_labels({"A": churning()}, target=("A", "churn"))
    with pytest.raises(ConfigError):
        check_labels({"A": churning()}, target=("B", "churn"))
    # What was said stays with the table.
    said = churning(label=False)
    check_labels({"A": said.take([0, 1, 2, 3]).without(["age"])})


def test_nobody_is_asked_about_other_columns():
    check_labels({"A": table(churn=["a", "b", "c", "a", "b", "c"])})  # three values
    check_labels({"A": table(churn=[1, 1, 1, 1, 1, 1])})  # one
    check_labels({"A": table(married=[0, 1, 0, 1, 0, 1])})
    shared = {"A": churning(), "B": table(party="B", Churn=[0, 1, 0, 1, 0, 1])}
    check_labels(shared)  # both have it, so it is no label of one of them
    other = {"A": churning(), "B": table(party="B", x=np.arange(6))}
    check_labels(other, ["B"])  # A's columns are not used


def test_label_must_be_a_column_or_false():
    assert churning(label="churn").labels == ["churn"]
    assert not churning(label="churn").no_label
    assert churning(label=False).no_label
    assert churning(label=False).features == ["age", "churn"]
