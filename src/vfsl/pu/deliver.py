"""Reliable positives go to the positive holder, if everybody whose rows they are has agreed.

Holds   the label holder: ids and scores of the reliable positives; every data holder: whether it
        agrees; the positive holder: ids of the positives that it knew before.
Learns  the positive holder: ids of people whom it may not know, and how likely each is positive.
        The label holder: who agreed. Feature holders: nothing.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from vfsl.channel import Channel, expect_array
from vfsl.errors import ConfigError, ProtocolError
from vfsl.parts import Roles
from vfsl.values import Disclosure, Disclosures

DISCLOSURES: Disclosures = {
    "consent": Disclosure(bool, "whether the sender agrees to the delivery"),
    "reliable positives": Disclosure(
        dict,
        "ids of people whom the receiver may not know, and how likely each of them is positive",
    ),
}


def deliver_feature_holder(channel: Channel, roles: Roles, agrees: bool) -> None:
    """Say whether the ids of common rows may go to the positive holder."""
    channel.within("deliver", DISCLOSURES).send(roles.label_holder, "consent", agrees)


def deliver_label_holder(
    channel: Channel, roles: Roles, receiver: str, reliable: pd.Series[float], agrees: bool
) -> None:
    """Send ids and scores, unless somebody has not agreed."""
    channel = channel.within("deliver", DISCLOSURES)
    answers = {channel.me: agrees}
    for party in roles.feature_holders:
        answers[party] = channel.receive(party, "consent")
    for party, agreed in answers.items():
        if not agreed:
            raise ConfigError(
                f"Party {party!r} has not agreed that reliable positives go to {receiver!r}, who "
                "would receive ids of strangers; nothing was sent. Name it in consent once it does."
            )
    # One block of bytes: a list of many short texts is larger to read than a message may be.
    ids = [str(one).encode() for one in reliable.index]
    content = {
        "ids": b"".join(ids),
        "lengths": np.array([len(one) for one in ids], dtype=np.int64),
        "scores": reliable.to_numpy(float),
    }
    channel.send(receiver, "reliable positives", content)


def deliver_positive_holder(channel: Channel, roles: Roles) -> pd.Series[float]:
    """Receive the reliable positives: scores by id."""
    sender = roles.label_holder
    content = channel.within("deliver", DISCLOSURES).receive(sender, "reliable positives")
    ids = _ids(content, sender)
    scores = expect_array(
        content.get("scores"),
        sender=sender,
        name="reliable positives",
        holds="float",
        shape=(len(ids),),
    )
    return pd.Series(np.asarray(scores), index=pd.Index(ids, name="id", dtype=object), name="score")


def _ids(content: dict[str, Any], sender: str) -> list[str]:
    """The ids of the block, each with its length."""
    block: Any = content.get("ids")
    lengths = expect_array(
        content.get("lengths"),
        sender=sender,
        name="reliable positives",
        holds="integer",
        shape=(None,),
    )
    size = len(block) if isinstance(block, bytes) else -1
    if ((lengths < 0) | (lengths > size)).any() or lengths.sum(dtype=np.int64) != size:
        raise ProtocolError(f"Party {sender!r} sent reliable positives without ids.", sender)
    cuts = [0, *np.cumsum(lengths, dtype=np.int64).tolist()]
    try:
        return [block[start:end].decode() for start, end in pairwise(cuts)]
    except UnicodeDecodeError:
        raise ProtocolError(f"Party {sender!r} sent ids that are not text.", sender) from None
