"""The report page: complete, self-contained, and safe with any name, number and size."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from vfsl.record import Flow, PartyFacts, RunRecord, StepRecord
from vfsl.report import readable_bytes, render, summarise, write_page

EVIL = "<script>alert(1)</script>"
RECORD = RunRecord(
    run="r1",
    created="2026-01-01T00:00:00+00:00",
    seed=1,
    scheme="paillier",
    parties={EVIL: PartyFacts(10, 2, "ab"), "B": PartyFacts(20, 3, "cd")},
    steps=(
        StepRecord(
            name="train",
            settings={"l2": 0.1, EVIL: EVIL},
            seconds=1.5,
            metrics={"training_r2": 0.51234, EVIL: EVIL},
            rounds=({"round": 1, "loss": 0.25},),
            stop_reason="converged",
            notes=("a note", EVIL),
            flows=(
                Flow("train", EVIL, "B", "residual", "ciphertext", 3, 1234, "nothing"),
                Flow("train", "B", EVIL, "columns", "plain", 1, 50, EVIL),
            ),
        ),
    ),
    versions={"python": "3.11"},
)
ALWAYS = ["story", "ledger", "time", "steps", "repeat"]
ALL = ["story", "alignment", "positives", "completion", "training", "gain", *ALWAYS[1:]]
VOID = {"meta", "input", "br", "hr"}


class Reader(HTMLParser):
    """Ids of sections, and whether every tag is closed in order."""

    def __init__(self, page):
        super().__init__()
        self.open, self.sections, self.ids, self.scripts = [], [], [], 0
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.scripts += tag == "script"
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "section":
            self.sections.append(found["id"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_page_has_what_any_run_has_and_escapes_names():
    page = render(RECORD)
    for words in (
        "At a glance",
        "Steps",
        "Ledger",
        "To repeat it",
        "converged",
        "a note",
        "1.2 kB",
    ):
        assert words in page
    assert EVIL not in page
    assert "&lt;script&gt;" in page
    assert Reader(page).sections == ALWAYS


def test_page_loads_nothing_from_elsewhere(record):
    for page in (render(RECORD), render(record())):
        assert not re.search(r"\ssrc\s*=|href\s*=\s*\"[^#]|@import|url\(|https?://", page)


def test_every_section_of_a_full_run(record):
    page = render(record())
    reader = Reader(page)
    assert reader.sections == ALL
    assert len(reader.ids) == len(set(reader.ids))
    for words in (
        "have 300 rows in common",
        "15 reliable positives among 250 unlabelled rows",
        "a warning of vfpu",
        "Routing by skill",
        "hot-deck",
        "a note of completion",
        "Rows kept and removed",
        "Learning with Shop adds 0.050.",
        "risa: AUC better by 0.010",
        "AUC: how much better than alone",
    ):
        assert words in page, words
    # A worse than mean column is in red, and rows that left are counted, not named.
    assert '<span class="mark-bad">no better than mean</span>' in page
    assert "left rows" not in page


def test_links_lead_somewhere(record):
    page = render(record())
    targets = set(re.findall(r'href="#([^"]+)"', page))
    assert targets <= set(Reader(page).ids)


def test_a_run_without_steps_or_parties():
    empty = RunRecord("r", "now", 0, "auto", {}, (), {})
    page = render(empty)
    assert Reader(page).sections == ALWAYS
    assert "No message left any party" in page
    assert "No party took part. The run had 0 steps" in page


def test_hostile_and_long_names(record):
    page = render(record(name=lambda place: f"{EVIL} {place} " + "long" * 60))
    reader = Reader(page)
    assert reader.sections == ALL
    assert reader.scripts == 1  # ours
    assert EVIL not in page


@pytest.mark.parametrize("columns", [0, 1])
def test_few_columns(record, columns):
    assert Reader(render(record(columns))).sections == ALL


def test_a_thousand_columns(record):
    page = render(record(1000))
    assert Reader(page).sections == ALL
    assert "column, best first" in page  # a curve in place of a thousand dots
    assert page.count('<svg class="chart"') < 100
    assert "940 further columns are in the table only" in page
    assert len(page) < 3_000_000


def test_missing_numbers_are_dashes(record):
    made = record()
    nothing = float("nan")
    step = StepRecord("train x", {}, nothing, {"auc": nothing}, ({"round": 1, "loss": nothing},))
    page = render(replace(made, steps=(*made.steps, step)))
    body = page[page.index("<main>") : page.index("</main>")]
    assert not re.search(r"\bnan\b", body)
    assert "<dd>–</dd>" in body


def test_details_of_another_shape_are_left_out(record):
    """Old records have none, and a step may have found nothing to show."""
    made = record()
    bare = tuple(replace(step, details={}) for step in made.steps)
    reader = Reader(render(replace(made, steps=bare)))
    assert reader.sections == ["story", "alignment", "positives", "training", *ALWAYS[1:]]


def test_plain_runs_say_so(record):
    assert "was not encrypted" not in render(record())
    assert "was not encrypted" in render(replace(record(), scheme="plain"))


def test_summary_sums_by_party_and_protection():
    run = summarise([RECORD])["runs"][0]
    assert [(line["party"], line["kind"], line["bytes"]) for line in run["sent"]] == [
        (EVIL, "ciphertext", 1234),
        ("B", "plain", 50),
    ]
    assert run["steps"][0]["messages"] == 4


def test_readable_bytes():
    sizes = [0, 999, 1000, 12_345, 4_000_000, 5_500_000_000]
    assert [readable_bytes(n) for n in sizes] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "12.3 kB",
        "4.0 MB",
        "5.5 GB",
    ]


def test_the_page_says_where_private_draws_came_from(tmp_path):
    write_page(replace(RECORD, private_draws="fixed by the simulation's seed"), tmp_path / "p.html")
    text = (tmp_path / "p.html").read_text()
    assert "Private draws of this run: fixed by the simulation&#39;s seed." in text
