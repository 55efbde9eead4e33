"""Numbers and names as people read them."""

import pytest

from vfsl.report.words import (
    bound,
    counted,
    listed,
    number,
    percent,
    rounded,
    seconds,
    shorten,
    when,
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
    assert number(value) == text


def test_other_words():
    assert [bound(v) for v in (5000.0, 0.25, -3.0)] == ["5,000", "0.25", "−3"]
    assert percent(0.123) == "12 %"
    assert percent(None) == "–"
    assert [seconds(v) for v in (0.5, 45, 200, 7500)] == [
        "0.50 s",
        "45 s",
        "3 min 20 s",
        "2 h 5 min",
    ]
    assert counted(1, "row") == "1 row"
    assert counted(2000, "row") == "2,000 rows"
    assert [listed(names) for names in ([], ["A"], ["A", "B", "C"])] == ["", "A", "A, B and C"]
    assert shorten("abcdef", 4) == "abc…"
    assert when("2026-11-16T02:22:11+00:00") == "2026-11-16 02:22 UTC"
    assert when("today") == "today"


def test_values_in_text_have_three_significant_digits():
    assert [rounded(value) for value in (None, 0.00012345, 3, "x", True)] == [
        "",
        "0.000123",
        "3",
        "x",
        "True",
    ]
