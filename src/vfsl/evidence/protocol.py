"""RISA's messages: passive parties say evidence and get its gradient back.

Holds   the label holder: columns and labels; every other party: columns of its own.
Learns  the label holder: the other parties' evidence (and, for pseudo labels, class scores) of each
        row that takes part, and how many rows they have alone. The others: which of their rows take
        part in each pass, hence which got a pseudo label and which left, and gradients from which
        most training labels can be read (attack.py). No columns, no features, no ids cross, and the
        rows of one party stay nameless to the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vfsl.channel import Channel, expect_array
from vfsl.errors import ProtocolError
from vfsl.evidence.course import STAGES
from vfsl.evidence.keeping import Folder
from vfsl.evidence.member import Floats, Member
from vfsl.evidence.rows import Numbers
from vfsl.evidence.training import Local, taking_part
from vfsl.values import Disclosure, Disclosures

_LABELS = "the training labels of most rows, to a receiver that looks for them"
DISCLOSURES: Disclosures = {
    "presence": Disclosure(
        dict, "how many rows only the sender has, and which epochs it has kept from before"
    ),
    "terms": Disclosure(dict, "the number of classes, and the epoch to resume from"),
    "task": Disclosure(
        dict,
        "which of the receiver's rows take part in a pass or a prediction: which have a label or a "
        "pseudo label, and which have left",
    ),
    "evidence": Disclosure(np.ndarray, "the sender's evidence for each class, row by row"),
    "scores": Disclosure(np.ndarray, "the sender's self-training scores of each class, by row"),
    "gradient of evidence": Disclosure(np.ndarray, _LABELS),
    "gradient of scores": Disclosure(np.ndarray, _LABELS),
}
_SAYS = dict(zip(STAGES, ("scores", "evidence"), strict=True))


class Remote:
    """A passive party's network, as the label holder sees it over its channel."""

    def __init__(self, channel: Channel, party: str, stage: str, classes: int) -> None:
        self._channel, self._party, self._stage = channel, party, stage
        self._says = _SAYS[stage]
        self._classes = classes
        self._sizes: list[int] = []

    def plan(self, rate: float, batches: Sequence[Numbers], with_fill: bool) -> None:
        work = taking_part(batches, with_fill)
        self._sizes = [len(rows) + with_fill for rows in work][::-1]
        rows = np.concatenate([np.zeros(0, dtype=np.int64), *work])
        ends = np.cumsum([len(batch) for batch in work], dtype=np.int64)
        self._task(do="train", rate=rate, rows=rows, ends=ends, fill=with_fill)

    def outputs(self) -> Floats:
        return self._receive(self._sizes.pop())

    def learn(self, gradient: Floats) -> None:
        what = f"gradient of {self._says}"
        self._channel.release(self._party, what, gradient.size, about="label")
        self._channel.send(self._party, what, gradient)

    def answer(self, rows: Numbers, with_fill: bool) -> Floats:
        self._task(do="answer", rows=rows, fill=with_fill)
        return self._receive(len(rows) + with_fill)

    def _task(self, **task: Any) -> None:
        self._channel.send(self._party, "task", {"stage": self._stage, **task})

    def _receive(self, rows: int) -> Floats:
        return expect_array(
            self._channel.receive(self._party, self._says),
            sender=self._party,
            name=self._says,
            holds="float",
            shape=(rows, self._classes),
        )


def end(channel: Channel, parties: Sequence[str]) -> None:
    """Tell the passive parties that there is nothing more to do."""
    for party in parties:
        channel.send(party, "task", {"do": "end"})


def keep(channel: Channel, parties: Sequence[str], epoch: int) -> None:
    """Ask the passive parties to keep their networks as they are after this epoch."""
    for party in parties:
        channel.send(party, "task", {"do": "keep", "epoch": epoch})


def serve(
    channel: Channel, asker: str, members: Mapping[str, Member], folder: Folder | None = None
) -> None:
    """A passive party: do what the label holder asks until it says that this is the end."""
    while True:
        task = channel.receive(asker, "task")
        if task.get("do") == "end":
            return
        if task.get("do") == "keep" and isinstance(task.get("epoch"), int):
            if folder is not None:
                folder.save(task["epoch"], members["evidence"].to_arrays())
            continue
        known = task.get("do") in ("train", "answer") and task.get("stage") in members
        if not known or not isinstance(task.get("rate", 0.0), float):
            raise ProtocolError(f"Party {asker!r} sent a task that RISA does not know.", asker)
        member = members[task["stage"]]
        says = _SAYS[task["stage"]]
        rows = _rows(task.get("rows"), len(member.inputs), asker)
        fill = bool(task.get("fill"))
        if task["do"] == "answer":
            said = member.answer(rows, fill)
            channel.release(asker, says, said.size)
            channel.send(asker, says, said)
            continue
        local = Local(member)
        local.plan(task.get("rate", 0.0), _cut(rows, task.get("ends"), asker), fill)
        while local.unfinished:
            said = local.outputs()
            channel.release(asker, says, said.size)
            channel.send(asker, says, said)
            gradient = expect_array(
                channel.receive(asker, f"gradient of {says}"),
                sender=asker,
                name=f"gradient of {says}",
                holds="float",
                shape=said.shape,
            )
            local.learn(gradient)


def _rows(rows: Any, count: int, asker: str) -> Numbers:
    checked = expect_array(rows, sender=asker, name="task", holds="integer", shape=(None,))
    if len(checked) and not (checked.min() >= 0 and checked.max() < count):
        raise ProtocolError(
            f"Party {asker!r} asked for rows that are not among the {count} of this party.", asker
        )
    return checked.astype(np.int64)


def _cut(rows: Numbers, ends: Any, asker: str) -> list[Numbers]:
    """The rows of each batch."""
    checked = expect_array(ends, sender=asker, name="task", holds="integer", shape=(None,))
    if not len(checked):
        return []
    if (np.diff(checked) < 0).any() or checked[-1] != len(rows) or checked[0] < 0:
        raise ProtocolError(f"Party {asker!r} sent batches that do not fit their rows.", asker)
    return np.split(rows, checked[:-1])
