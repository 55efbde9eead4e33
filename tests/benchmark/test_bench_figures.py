"""Figures and LaTeX of an outcome."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from benchmarks.figures import Line, Panels, figure, panels_of
from benchmarks.table import Outcome

ROWS = [
    {"set": "a", "known": 0.1, "method": "VFPU lr", "AUC": 0.9, "±": 0.01},
    {"set": "a", "known": 0.1, "method": "<naive>", "AUC": 0.8, "±": None},
    {"set": "b", "known": 0.1, "method": "VFPU lr", "AUC": 0.7, "±": 0.02},
    {"set": "b", "known": 0.1, "method": "broken", "AUC": float("nan")},
    {"set": "speed", "core-s": 3.0},
]
BY_SET = Panels("AUC", ("method",), ("set", "known"), "±")


def test_rows_fall_into_panels():
    assert panels_of(ROWS, BY_SET) == {
        "a, 10% known": [Line("VFPU lr", 0.9, 0.01), Line("<naive>", 0.8, 0.0)],
        "b, 10% known": [Line("VFPU lr", 0.7, 0.02)],
    }


def test_columns_can_be_the_lines():
    rows = [{"data": "x", "one": 1.0, "two": 2, "true": True}]
    found = panels_of(rows, Panels(("one", "two", "true", "absent"), by=("data",)))
    assert found == {"x": [Line("one", 1.0, 0.0), Line("two", 2.0, 0.0)]}


def test_the_picture_is_valid_and_escaped():
    drawn = figure("T & U", ROWS, [BY_SET, Panels("core-s", ("set",))])
    root = ElementTree.fromstring(drawn)
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f".//{space}circle")) == 4
    assert root.findall(f".//{space}circle[@class='ours']")
    texts = [one.text for one in root.findall(f".//{space}text")]
    assert "<naive>" in texts
    assert "T & U · a, 10% known" in texts
    # The larger value lies further to the right.
    first, second = (float(one.get("cx")) for one in root.findall(f".//{space}circle")[:2])
    assert first > second


def test_nothing_to_draw():
    assert figure("T", ROWS, []) == ""
    assert figure("T", [], [BY_SET]) == ""


def test_an_outcome_is_saved_in_every_form(tmp_path):
    outcome = Outcome("pu", "A title", ROWS, ["a note"], [BY_SET])
    outcome.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "pu.json", "pu.csv", "pu.md", "pu.tex", "pu.svg"
    }  # fmt: skip
    latex = (tmp_path / "pu.tex").read_text()
    assert latex.startswith("\\begin{tabular}{llllll}\n\\toprule\nset & known & method & AUC")
    assert "$\\pm$" in latex
    assert Outcome("x", "T", [{"a_b": "5 % & more"}]).latex().splitlines()[4] == r"5 \% \& more \\"


def test_rows_about_different_things_have_tables_of_their_own():
    rows = [
        {"what": "time", "s": 1.0, "AUC": None},
        {"what": "quality", "AUC": 0.5},
        {"what": "time", "s": 2.0},
    ]
    outcome = Outcome("x", "T", rows)
    assert [(columns, len(of)) for columns, of in outcome.tables()] == [
        (["what", "s"], 2),
        (["what", "AUC"], 1),
    ]
    page = outcome.markdown()
    assert "| what | s |\n| --- | --- |\n| time | 1 |\n| time | 2 |\n\n| what | AUC |" in page
    assert outcome.latex().count("\\begin{tabular}") == 2
