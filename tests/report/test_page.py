"""The report page: complete, self-contained, and safe with any name."""

import re

from vfsl.record import Flow, PartyFacts, RunRecord, StepRecord
from vfsl.report import readable_bytes, render, summarise

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
            settings={"l2": 0.1},
            seconds=1.5,
            metrics={"training_r2": 0.51234},
            rounds=({"round": 1, "loss": 0.25},),
            stop_reason="converged",
            notes=("a note",),
            flows=(
                Flow("train", EVIL, "B", "residual", "ciphertext", 3, 1234, "nothing"),
                Flow("train", "B", EVIL, "columns", "plain", 1, 50, "how many columns"),
            ),
        ),
    ),
    versions={"python": "3.11"},
)


def test_page_has_every_section_and_escapes_names():
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


def test_page_loads_nothing_from_elsewhere():
    assert not re.search(r"(src|href)\s*=|@import|url\(", render(RECORD))


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
