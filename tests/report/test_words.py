"""Numbers and names as people read them."""

import pytest

from vfsl.report.words import (
    describe_stop,
    shorten,
    write_bound,
    write_count,
    write_list,
    write_moment,
    write_number,
    write_percent,
    write_rounded,
    write_seconds,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1234567, "1,234,567"),
        (0.0, "0.000"),
        (0.12345, "0.123"),
        (-0.5, "−0.500"),
        (1.0, "1.00"),
        (12.345, "12.35"),
        (123.456, "123.5"),
        (12345.6, "12,346"),
        (1e9, "1e+09"),
        (1e-7, "1e-07"),
        (float("nan"), "–"),
        (float("-inf"), "–"),
        (None, "–"),
        (True, "True"),
        ("text", "text"),
    ],
)
def test_number(value, text):
    assert write_number(value) == text


def test_other_words():
    assert [write_bound(v) for v in (5000.0, 0.25, -3.0)] == ["5,000", "0.25", "−3"]
    assert write_percent(0.123) == "12 %"
    assert write_percent(None) == "–"
    assert [write_seconds(v) for v in (0.5, 45, 200, 7500)] == [
        "0.50 s",
        "45 s",
        "3 min 20 s",
        "2 h 5 min",
    ]
    assert write_count(1, "row") == "1 row"
    assert write_count(2000, "row") == "2,000 rows"
    assert [write_list(names) for names in ([], ["A"], ["A", "B", "C"])] == ["", "A", "A, B and C"]
    assert shorten("abcdef", 4) == "abc…"
    assert write_moment("2026-11-16T02:22:11+00:00") == "2026-11-16 02:22 UTC"
    assert write_moment("today") == "today"


def test_values_in_text_have_three_significant_digits():
    assert [write_rounded(value) for value in (None, 0.00012345, 3, "x", True)] == [
        "",
        "0.000123",
        "3",
        "x",
        "True",
    ]


def test_codes_of_stop_reasons_are_explained_and_others_quoted():
    assert describe_stop("outer") == "all iterations done"
    assert describe_stop("tolerance") == "converged"
    assert "maximum number of rounds" in describe_stop("max_rounds")
    assert describe_stop("8 epochs done") == "8 epochs done"
