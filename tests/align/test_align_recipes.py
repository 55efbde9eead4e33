"""Ids written in many ways: days, telephone numbers, prefixes."""

import pytest

from vfsl.align import Normalise, prepare_ids
from vfsl.align.recipes import write_day, write_phone
from vfsl.errors import ConfigError

SAME = [
    ("2026-03-31", "31.3.2026", {"recipe": "date"}),
    ("20260331", "31/03/2026", {"recipe": "date"}),
    ("2026-03-31", "3/31/2026", {"recipe": "us-date"}),
    ("2026-03-31T10:00:00", "31.03.2026", {"recipe": "date"}),
    ("+49 (0)170 12 34", "0049-170-1234", {"recipe": "phone"}),
    ("0170/1234", "+49 170 1234", {"recipe": "phone", "country": "49"}),
    ("AB 12-34", "1234", {"recipe": "digits"}),
    (" cust-7", "7", {"prefix": "CUST-", "case": "fold"}),
    ("CUST-007", "7", {"prefix": "CUST-", "numbers": "integer"}),
]


@pytest.mark.parametrize(("one", "other", "options"), SAME, ids=str)
def test_spellings_of_one_id(one, other, options):
    how = Normalise(**options)
    first, second = (prepare_ids("A", [text], normalise=how) for text in (one, other))
    assert first.digests.tobytes() == second.digests.tobytes()
    plain = [prepare_ids("A", [text]).digests.tobytes() for text in (one, other)]
    assert plain[0] != plain[1]


def test_what_is_no_day_or_number_stays_apart():
    assert write_day("31.13.2026") == "31.13.2026"
    assert write_day("anna") == "anna"
    assert write_phone("0170 1234") == "01701234"


def test_a_recipe_for_each_id_column():
    how = Normalise(recipe=["date", "phone"], country="49")
    one = prepare_ids("A", ["31.3.2026"], ["0170 1"], normalise=how)
    other = prepare_ids("A", ["2026-03-31"], ["+49 1701"], normalise=how)
    assert one.digests.tobytes() == other.digests.tobytes()
    with pytest.raises(ConfigError, match="one recipe for each of 1 id columns"):
        prepare_ids("A", ["31.3.2026"], normalise=how)


@pytest.mark.parametrize("options", [{"recipe": "roman"}, {"recipe": ["roman"]}, {"country": "DE"}])
def test_unknown_recipes_are_refused(options):
    with pytest.raises(ConfigError, match="of Normalise must be"):
        Normalise(**options)
