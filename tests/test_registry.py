"""Entries by name: ours, those of other packages, and one sentence for each mistake."""

import sys

import pytest

from vfsl.errors import ConfigError
from vfsl.registry import Registry, find_plugins

COUNTERS = {"ordered": "collections:OrderedDict", "count": "collections:Counter"}


@pytest.fixture
def outsider(install):
    install("toy_counters", "class Zero:\n    pass\n", "vfsl.toys", zero="Zero", count="Zero")
    install("toy_deep", "import torch.nothing_of_that_name\n", "vfsl.toys", deep="Deep")
    install("toy_broken", "import toy_missing\n", "vfsl.toys", broken="Nothing")


def _toys():
    return Registry(what="kind of counter", group="vfsl.toys", builtin=COUNTERS)


def test_ours_are_listed_in_their_order_and_found():
    from collections import Counter

    toys = _toys()
    assert toys.names() == ["ordered", "count"]
    assert list(toys) == toys.names()
    assert "count" in toys
    assert "zero" not in toys
    assert toys.find("count") is Counter
    assert toys.get("zero") is None


def test_entries_of_others_come_last_and_are_imported_on_first_use(outsider):
    toys = _toys()
    assert toys.names() == ["ordered", "count", "broken", "deep", "zero"]
    assert "zero" in toys
    assert "toy_counters" not in sys.modules
    assert toys.find("zero").__name__ == "Zero"
    assert list(find_plugins("vfsl.toys")) == ["broken", "count", "deep", "zero"]


def test_a_name_of_ours_stays_ours(outsider):
    assert _toys().find("count").__name__ == "Counter"


def test_an_unknown_name_is_one_sentence_with_a_hint(outsider):
    with pytest.raises(ConfigError) as refused:
        _toys().find("zeroo")
    assert str(refused.value) == (
        "There is no kind of counter 'zeroo'; did you mean 'zero'? "
        "Known are ordered, count, broken, deep, zero."
    )
    with pytest.raises(ConfigError, match=r"no kind of counter 'xyz'\. Known are ordered"):
        _toys().find("xyz")


def test_missing_pytorch_names_the_extra_and_other_missing_modules_stay_visible(
    outsider, monkeypatch
):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigError, match=r"Counter 'deep' needs PyTorch, .*vfsl\[deep\]"):
        _toys().find("deep")
    with pytest.raises(ModuleNotFoundError, match="toy_missing"):
        _toys().find("broken")
