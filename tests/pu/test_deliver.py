"""Delivery of reliable positives: any ids, many ids, and messages that are not ids."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from vfsl.channel import run_together
from vfsl.draws import PrivateSeed
from vfsl.errors import ProtocolError
from vfsl.pu.deliver import DISCLOSURES, deliver_side
from vfsl.site import Site, Standing, Terms


def side(party, **own):
    """A party's side of a delivery from C to A, to which B and C agree."""
    terms, standing = Terms(("A", "B", "C"), scheme="plain"), Standing(aligned=("B", "C"))
    site = Site(party, terms, PrivateSeed.of_simulation(party, 0), standing=standing)
    return partial(deliver_side, site, positives="A", label_holder="C", consent=("B", "C"), **own)


def delivered(ids):
    reliable = pd.Series(np.linspace(1, 0, len(ids)), index=pd.Index(ids, dtype=object))
    sides = {"A": side("A"), "B": side("B"), "C": side("C", reliable=reliable), "K": side("K")}
    results = run_together(sides)
    assert [results[party] for party in "BCK"] == [None] * 3
    return results["A"]


@pytest.mark.parametrize(
    "ids",
    [[], ["a"], ["", "Zoë 木 😀", "x\ny", "=1+1"], [f"{i:x}" for i in range(100_000)]],
    ids=["none", "one", "odd", "many short ones"],
)
def test_ids_arrive_as_they_were(ids):
    received = delivered(ids)
    assert list(received.index) == ids
    assert received.tolist() == np.linspace(1, 0, len(ids)).tolist()


def lengths(*numbers):
    return np.array(numbers, dtype=np.int64)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, "expected an array"),
        ({"ids": ["a", "b"], "lengths": lengths(1, 1)}, "without ids"),
        ({"ids": b"ab", "lengths": lengths(1)}, "without ids"),
        ({"ids": b"ab", "lengths": lengths(3, -1)}, "without ids"),
        ({"ids": b"ab", "lengths": lengths(2**62, 2**62, 2**62, 2**62, 2)}, "without ids"),
        ({"ids": b"ab", "lengths": np.array([2**64 - 1, 3], dtype=np.uint64)}, "without ids"),
        ({"ids": b"\xff\xff", "lengths": lengths(1, 1)}, "not text"),
        ({"ids": b"ab", "lengths": lengths(1, 1), "scores": np.zeros(3)}, "shape"),
    ],
)
def test_what_is_not_a_list_of_ids_is_refused_and_names_its_sender(content, words):
    def label_holder(channel):
        channel = channel.within("deliver", DISCLOSURES)
        channel.send("A", "reliable positives", content)

    with pytest.raises(ProtocolError, match=words) as caught:
        run_together({"A": side("A"), "C": label_holder})
    assert caught.value.party == "C"
