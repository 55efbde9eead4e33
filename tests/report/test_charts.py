"""Charts: places computed by hand, tips and tables that say the same, any input drawn."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfsl.report.charts import (
    Bar,
    Dot,
    Series,
    draw_bars,
    draw_dots,
    draw_histogram,
    draw_levels,
    draw_lines,
)
from vfsl.report.svg import Scale, label_ticks, place_ticks, tag, widen

EVIL = "<script>alert(\"1\")</script> & 'x'"


def drawn(chart):
    """The picture, which must be well-formed."""
    return ElementTree.fromstring(str(chart.svg))


def tips(chart):
    return [
        mark.find("title").text for mark in drawn(chart).iter("g") if mark.get("class") == "mark"
    ]


def test_tags_escape_and_keep_a_tenth():
    assert tag("text", "<b>", x=1.26, class_="a", text_anchor='"') == (
        '<text x="1.3" class="a" text-anchor="&#34;">&lt;b&gt;</text>'
    )
    assert tag("g", tag("b", "&"), y=2.0) == '<g y="2"><b>&amp;</b></g>'


def test_scale_and_ticks():
    across = Scale(10.0, 20.0, 0.0, 100.0)
    assert across(12.5) == 25.0
    assert Scale(1.0, 1.0, 0.0, 100.0)(1.0) == 50.0
    assert place_ticks(0.0, 1.0) == [0.0, 0.5, 1.0]
    assert place_ticks(0.0, 1.0, 6) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert place_ticks(3.0, 3.0) == [3.0]
    assert label_ticks([0.8, 0.85]) == ["0.80", "0.85"]
    assert label_ticks([0.0, 20_000.0]) == ["0", "20k"]
    assert label_ticks([-1.0, 0.0]) == ["−1", "0"]
    assert widen([2.0, 2.0]) == (1.8, 2.2)
    assert widen([]) == (0.0, 1.0)


@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e12))
def test_ticks_are_few_and_inside(low, width):
    found = place_ticks(low, low + width)
    assert len(found) <= 5
    assert all(
        low - 1e-6 * (abs(low) + width) <= v <= low + width * (1 + 1e-6) + 1e-6 for v in found
    )


def test_a_line_passes_through_its_points():
    chart = draw_lines(
        "T", [Series("s", [(0, 0), (1, 1)])], x="x", y="y", x_range=(0, 1), y_range=(0, 1)
    )
    curve = next(one for one in drawn(chart).iter("path") if one.get("class") == "curve s1")
    assert curve.get("d") == "M46.0 180.0L368.0 10.0"
    assert chart.rows == [("s", "0", "0"), ("s", "1", "1")]
    assert tips(chart) == ["s: y 0 at x 0", "s: y 1 at x 1"]


def test_bars_are_as_long_as_their_parts():
    chart = draw_bars(
        "T", [Bar("a", [("x", 30, 1), ("y", 10, 2)]), Bar("b", [("x", 20, 1)])], x="n"
    )
    boxes = [float(one.get("width")) for one in drawn(chart).iter("rect")]
    assert boxes[0] == pytest.approx(3 * boxes[1], rel=0.01)
    assert boxes[2] == pytest.approx(2 * boxes[1], rel=0.01)
    assert chart.rows == [("a", "x", "30"), ("a", "y", "10"), ("b", "x", "20")]


def test_a_histogram_names_its_open_bins():
    chart = draw_histogram("T", [1.0, 2.0], {"real": [10, 20, 10], "made": [0, 40, 0]}, x="v")
    assert tips(chart) == [
        "below 1: real 25.0 % (10); made 0.0 % (0)",
        "1 to 2: real 50.0 % (20); made 100.0 % (40)",
        "2 and more: real 25.0 % (10); made 0.0 % (0)",
    ]
    assert chart.head == ("v", "real", "made")
    assert [row[0] for row in chart.rows] == ["below 1", "1 to 2", "2 and more"]


def test_wider_bins_are_lower():
    chart = draw_histogram("T", [1.0, 2.0, 4.0], {"g": [0, 20, 20, 0]}, x="v")
    area = next(one for one in drawn(chart).iter("path") if "area" in one.get("class"))
    heights = [150.0 - float(pair.split()[1]) for pair in area.get("d")[1:].split("L")]
    assert heights[3] == pytest.approx(2 * heights[5], abs=0.11)


def test_dots_have_intervals_and_a_rule():
    chart = draw_dots("T", [Dot("a", 1.0, 0.5, 1.5, more="9 cells")], x="v", rule=("zero", 0.0))
    assert tips(chart) == ["a: 1.00 (0.500 to 1.50); 9 cells"]
    whisker = next(one for one in drawn(chart).iter("path") if "whisker" in one.get("class"))
    left, right = (float(pair.split()[0]) for pair in whisker.get("d")[1:].split("L"))
    dot = next(drawn(chart).iter("circle"))
    assert float(dot.get("cx")) == pytest.approx((left + right) / 2, abs=0.1)


@pytest.mark.parametrize(
    "chart",
    [
        draw_lines(
            EVIL, [Series(EVIL, [(1.0, 2.0), (2.0, 3.0)])], x=EVIL, y=EVIL, rule=(EVIL, 2.0)
        ),
        draw_bars(EVIL, [Bar(EVIL, [(EVIL, 1.0, 1)])], x=EVIL),
        draw_histogram(EVIL, [1.0], {EVIL: [10, 10]}, x=EVIL),
        draw_levels(EVIL, [EVIL], {EVIL: [10]}),
        draw_dots(EVIL, [Dot(EVIL, 1.0, 0.0, 2.0, more=EVIL)], x=EVIL, rule=(EVIL, 0.0)),
    ],
    ids=["line", "bars", "histogram", "levels", "dots"],
)
def test_names_are_escaped(chart):
    assert "<script>" not in chart.svg
    assert EVIL in drawn(chart).get("aria-label")


def test_a_tip_has_the_whole_name():
    name = "a very long name of a column " * 5
    chart = draw_dots("T", [Dot(name, 1.0)], x="v")
    assert name in tips(chart)[0]
    assert all(len(one.text) < 60 for one in drawn(chart).iter("text"))


nan = float("nan")


@pytest.mark.parametrize(
    "chart",
    [
        draw_lines("T", [], x="x", y="y"),
        draw_lines("T", [Series("s", [(1.0, nan), (nan, 1.0)])], x="x", y="y"),
        draw_lines("T", [Series("s", [(1.0, 5.0)])], x="x", y="y"),
        draw_bars("T", [], x="n"),
        draw_bars("T", [Bar("a", [("x", nan, 1), ("y", 0, 1), ("z", -1, 1)])], x="n"),
        draw_histogram("T", [], {"g": [30]}, x="v"),
        draw_histogram("T", [0.0], {"g": [0, 0]}, x="v"),
        draw_levels("T", [], {"g": []}),
        draw_dots("T", [], x="v"),
        draw_dots("T", [Dot("a", nan), Dot("b", 1.0, nan, 2.0), Dot("c", 1.0, None, None)], x="v"),
    ],
)
def test_odd_numbers_are_drawn_without_them(chart):
    assert drawn(chart).tag == "svg"
    assert not re.search(r"nan|inf", str(chart.svg))
