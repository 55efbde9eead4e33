"""Reliable positives go to the positive holder, if everybody whose rows they are has agreed.

Holds   the label holder: ids and scores of the reliable positives; every data holder: whether it
        agrees; the positive holder: ids of the positives that it knew before.
Learns  the positive holder: ids of people whom it may not know, and how likely each is positive.
        The label holder: who agreed. Feature holders: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from vfsl.channel import Channel, expect_array
from vfsl.errors import ConfigError, ProtocolError
from vfsl.site import Site
from vfsl.values import Disclosure, Disclosures

DISCLOSURES: Disclosures = {
    "consent": Disclosure(bool, "whether the sender agrees to the delivery"),
    "reliable positives": Disclosure(
        dict,
        "ids of people whom the receiver may not know, and how likely each of them is positive",
    ),
}


def deliver_side(
    site: Site,
    channel: Channel,
    positives: str,
    label_holder: str,
    consent: Sequence[str],
    reliable: pd.Series[float] | None = None,
) -> pd.Series[float] | None:
    """One party's whole side of the delivery; the positive holder gets scores by id.

    Parameters
    ----------
    site : Site
    channel : Channel
    positives, label_holder : str
    consent : sequence of str
        The parties that agree; each says so for itself.
    reliable : Series, optional
        The label holder's reliable positives.
    """
    roles, agrees = site.roles(label_holder), site.me in consent
    if site.me not in (positives, *roles.data_holders):
        return None
    with site.records("deliver", channel, {"to": positives, "consent": sorted(consent)}) as outcome:
        channel = channel.within("deliver", DISCLOSURES)
        if site.me in roles.feature_holders:
            channel.send(label_holder, "consent", agrees)
            return None
        if reliable is None:
            reliable = _receive_reliable(channel, label_holder)
        else:
            answers = {site.me: agrees}
            answers |= {party: channel.receive(party, "consent") for party in roles.feature_holders}
            _send_reliable(channel, positives, reliable, answers)
        outcome.metrics = {"reliable positives": len(reliable)}
    return reliable if site.me == positives else None


def _send_reliable(
    channel: Channel, receiver: str, reliable: pd.Series[float], answers: Mapping[str, bool]
) -> None:
    """Send ids and scores, unless somebody has not agreed."""
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


def _receive_reliable(channel: Channel, sender: str) -> pd.Series[float]:
    """Scores by id."""
    name = "reliable positives"
    content = channel.receive(sender, name)
    ids = _read_ids(content, sender)
    scores = expect_array(
        content.get("scores"), sender=sender, name=name, holds="float", shape=(len(ids),)
    )
    return pd.Series(np.asarray(scores), index=pd.Index(ids, name="id", dtype=object), name="score")


def _read_ids(content: dict[str, Any], sender: str) -> list[str]:
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
