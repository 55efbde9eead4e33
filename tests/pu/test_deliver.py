"""Delivery of reliable positives: any ids, many ids, and messages that are not ids."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from vfsl.channel import run_together
from vfsl.errors import ProtocolError
from vfsl.parts import Roles
from vfsl.pu import deliver

ROLES = Roles("C", ("B",), "K", "plain")


def delivered(ids):
    reliable = pd.Series(np.linspace(1, 0, len(ids)), index=pd.Index(ids, dtype=object))
    return run_together(
        {
            "A": partial(deliver.deliver_positive_holder, roles=ROLES),
            "B": partial(deliver.deliver_feature_holder, roles=ROLES, agrees=True),
            "C": partial(
                deliver.deliver_label_holder,
                roles=ROLES,
                receiver="A",
                reliable=reliable,
                agrees=True,
            ),
        }
    )["A"]


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
        channel = channel.within("deliver", deliver.DISCLOSURES)
        channel.send("A", "reliable positives", content)

    roles = {"A": partial(deliver.deliver_positive_holder, roles=ROLES), "C": label_holder}
    with pytest.raises(ProtocolError, match=words) as caught:
        run_together(roles)
    assert caught.value.party == "C"
