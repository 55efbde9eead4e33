"""VFPU: what each party sees when another known positive, and what the ledger says."""

import numpy as np
import pytest

from tests.pu.pu_cases import federation, people
from vfsl.pu import VFPU, BagLogistic

# Step lengths of the descent are sums over all rows and models; see docs/pu.md.
SUMS = ("/step", "/terms")


def views(known, scheme="auto", **how):
    """The opened messages of a run; its frames are the same whoever is known."""
    fed = federation(people()[0], known, scheme, keep_views=True)
    VFPU(**({"rounds": 4, "folds": 4} | how)).fit(fed)
    return fed.transcript


def readable(transcript, party):
    """All names, kinds and sizes that a party sees, and the content of what is not hidden."""
    return [
        (s.sender, s.name, s.kind, len(s.body), s.body if s.kind in ("plain", "aggregate") else b"")
        for s in sorted(transcript.sights, key=lambda sight: sight.sender)
        if s.receiver == party and not s.name.endswith(("public key", *SUMS))
    ]


def others():
    """Other positives of the same number, and another number of them."""
    known = people()[2]
    rolled = np.roll(known, 7)
    fewer = known.copy()
    fewer[np.flatnonzero(known)[::3]] = False
    return known, [rolled, fewer]


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"spies": True},
        {"outer": 2, "promote": 0.01},
        {"scheme": "plain", "base": BagLogistic(protocol="rounds")},
    ],
    ids=str,
)
@pytest.mark.parametrize("party", ["B", "K"])
def test_views_do_not_change_with_the_known_positives(how, party):
    known, changed = others()
    before = readable(views(known, **how), party)
    assert len(before) > (10 if party == "B" else 3)
    for after in changed:
        assert readable(views(after, **how), party) == before


def test_row_lists_tell_who_is_known():
    known, _ = others()
    transcript = views(known, row_lists="told")
    lists = [s for s in transcript.sights if s.receiver == "B" and s.name.endswith("/positives")]
    assert any(np.flatnonzero(known).tobytes() in s.body for s in lists)
    facts = {e.fact for e in transcript.entries if e.receiver == "B"}
    assert "which rows are the positives P: membership is told" in facts


def test_the_label_holder_opens_one_sum_for_each_row():
    transcript = views(others()[0])
    opened = [s for s in transcript.sights if s.name.endswith("out-of-bag sums")]
    assert [s.receiver for s in opened] == ["C"]
    # 400 numbers of 5 bytes and a header, not 400 for each of eight models.
    assert 400 * 5 <= len(opened[0].body) < 2 * 400 * 5
    (told,) = [r for r in transcript.releases if r.what == "out-of-bag sums"]
    assert (told.sender, told.receiver, told.numbers) == ("B", "C", 400)


def test_on_shares_nothing_else_is_opened():
    """All that data holders say beyond sizes and orders is masked; the dealer hears sizes only."""
    entries = views(others()[0], spies=True, outer=2, promote=0.01).entries
    said = {e.message for e in entries if e.sender != "K" and "/bags/" in e.name}
    assert said == {"sizes", "masked", "out-of-bag sums"}
    assert {e.message for e in entries if e.receiver == "K"} == {"resume", "order", "sizes"}


def test_in_rounds_the_label_holder_opens_one_sum_for_each_row():
    transcript = views(others()[0], "plain", base=BagLogistic(protocol="rounds"))
    opened = [s for s in transcript.sights if s.receiver == "C" and s.name.endswith("opened sum")]
    assert len(opened) == 1
    assert 400 * 8 <= len(opened[0].body) < 2 * 400 * 8
    assert not any(e.message == "opened total" for e in transcript.entries)


def test_ids_and_names_never_cross():
    """Not even where the scheme hides nothing."""
    for sight in views(others()[0], "plain").sights:
        for marker in (b"person-", b"B-group", b"C-group"):
            assert marker not in sight.body
