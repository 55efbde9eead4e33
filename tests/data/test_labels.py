"""Undeclared labels: which names and columns look like one, and when somebody is asked."""

import numpy as np
import pandas as pd
import pytest

from vfsl.data import PartyTable, check_labels
from vfsl.data.labels import is_label_name
from vfsl.errors import ConfigError


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


def table(party="A", label=None, **columns):
    frame = pd.DataFrame({"id": [f"p{i}" for i in range(6)], **columns})
    return PartyTable.from_frame(frame, party=party, id="id", label=label)


def churning(**how):
    return table(age=np.arange(6.0), churn=["yes", "no", None, "no", "yes", "no"], **how)


def test_an_undeclared_label_is_asked_about_in_one_sentence():
    words = (
        "Column 'churn' of A looks like a label, which must never be a feature; say "
        "labels={'A': 'churn'}, or labels={'A': None} if it is an ordinary column."
    )
    with pytest.raises(ConfigError) as caught:
        check_labels({"A": churning(), "B": table("B", x=np.arange(6))})
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
    shared = {"A": churning(), "B": table("B", Churn=[0, 1, 0, 1, 0, 1])}
    check_labels(shared)  # both have it, so it is no label of one of them
    other = {"A": churning(), "B": table("B", x=np.arange(6))}
    check_labels(other, ["B"])  # A's columns are not used


def test_label_must_be_a_column_or_false():
    assert churning(label="churn").labels == ["churn"]
    assert not churning(label="churn").no_label
    assert churning(label=False).no_label
    assert churning(label=False).features == ["age", "churn"]
