"""The first screen of the page: what was asked and helped, who learned what, what was sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vfsl.report import filling
from vfsl.report.blocks import Verdict
from vfsl.report.words import (
    is_number,
    readable_bytes,
    write_count,
    write_list,
    write_percent,
    write_seconds,
)

Run = Mapping[str, Any]
# Kinds of protection under which a receiver learns nothing but sizes.
_HIDDEN = ("ciphertext", "masked", "sealed ids")
_MOST_LEARNED = 3


@dataclass(frozen=True)
class Point:
    """A sentence or a few, and the section that tells more; each has a tone."""

    title: str
    texts: tuple[tuple[str, str], ...]
    section: str


def name_run(run: Run) -> str:
    """Who took part."""
    return write_list([one["party"] for one in run["parties"]]) or "Nobody"


def tell_first(run: Run) -> list[Point]:
    """The points of the first screen."""
    helped = _tell_helped(run)
    return [
        Point("Asked", ((_tell_asked(run), ""),), "repeat"),
        *([Point("Helped", helped, "gain")] if helped else []),
        Point("Learned", ((_tell_learned(run), ""),), "ledger"),
        Point("Sent", ((_tell_sent(run), ""),), "ledger"),
    ]


def _tell_asked(run: Run) -> str:
    tables = [
        f"{one['party']} ({write_count(one['rows'], 'row')}, "
        f"{write_count(one['columns'], 'column')})"
        for one in run["parties"]
    ]
    total = sum(step["seconds"] for step in run["steps"] if is_number(step["seconds"]))
    text = (
        f"{write_list(tables) or 'No party'} took part. The run had "
        f"{write_count(len(run['steps']), 'step')} and took {write_seconds(total)}."
    )
    aligned = [step for step in run["steps"] if step["name"] == "align"]
    if aligned:
        parties = write_list(aligned[-1]["settings"].get("parties") or ["The parties"])
        common = write_count(aligned[-1]["metrics"].get("overlap", 0), "row")
        text = f"{parties} have {common} in common. {text}"
    for step in run["steps"]:
        label = step["settings"].get("label")
        if step["name"] == "evaluate" and isinstance(label, list) and len(label) == 2:
            text = f"Can {label[0]} predict “{label[1]}” better with the others' columns? {text}"
            break
    return text


def _tell_helped(run: Run) -> tuple[tuple[str, str], ...]:
    """The answers of the last evaluation, each in the colour of its verdict."""
    tones = {"helps": "good", "hurts": "bad", "does not help": "bad"}
    found: list[Mapping[str, Any]] = []
    for step in run["steps"]:
        if step["name"] == "evaluate":
            found = step["details"].get("questions") or []
    # Which two are compared stands in the section on gain.
    return tuple(
        (str(one["text"]).partition(", “")[0].rstrip(".") + ".", tones.get(one["verdict"], "warn"))
        for one in found
    )


def _tell_learned(run: Run) -> str:
    """How many exact numbers each party saw of another's rows, the most first."""
    sums: dict[tuple[str, str], int] = {}
    for line in run["shown"]:
        pair = (line["receiver"], line["sender"])
        sums[pair] = sums.get(pair, 0) + line["counted"]
    found = sorted(((count, pair) for pair, count in sums.items() if count), reverse=True)
    told = [
        f"{receiver} saw {write_count(count, 'exact number')} about the rows of {sender}"
        for count, (receiver, sender) in found[:_MOST_LEARNED]
    ]
    if not told:
        return "Nobody saw an exact number about the rows of another party."
    more = (
        f", and {write_count(len(found) - _MOST_LEARNED, 'pair')} more"
        if len(found) > _MOST_LEARNED
        else ""
    )
    return f"{'; '.join(told)}{more}. The ledger says which numbers."


def _tell_sent(run: Run) -> str:
    total = sum(line["bytes"] for line in run["ledger"])
    if not total:
        return "Nothing left any party."
    hidden = sum(line["bytes"] for line in run["ledger"] if line["protection"] in _HIDDEN)
    how = "a real scheme would encrypt, mask or seal"
    how = how if is_plain(run) else "was encrypted, masked or sealed"
    by_party: dict[str, int] = {}
    for line in run["ledger"]:
        by_party[line["sender"]] = by_party.get(line["sender"], 0) + line["bytes"]
    each = [f"{party} {readable_bytes(count)}" for party, count in by_party.items()]
    return (
        f"{readable_bytes(total)} left the parties ({', '.join(each)}); "
        f"{write_percent(hidden / total)} of it {how}."
    )


def collect_verdicts(run: Run) -> list[Verdict]:
    """The sentences at the top: what the comparison of ways and the evaluations say."""
    found = []
    for step in run["steps"]:
        details = step["details"]
        if step["name"] == "downstream":
            found += filling.list_verdicts(details)
        if step["name"] == "evaluate" and details.get("verdict"):
            found.append(filling.make_verdict(details))
    return found


def collect_cautions(run: Run) -> list[str]:
    """What a reader must know before anything else on the page."""
    found = []
    if is_plain(run):
        found.append(
            "This run used the scheme “plain”: what is called ciphertext was not encrypted. Use it "
            "only to try things out on one machine."
        )
    if any(_tells_labels(step) for step in run["steps"]):
        found.append(
            "This run trained RISA, whose gradients tell the other parties the labels of the rows "
            "that they train on."
        )
    return found


def _tells_labels(step: Mapping[str, Any]) -> bool:
    settings = step["settings"]  # of a run of earlier releases they know no protection
    exact = settings.get("label_epsilon") is None
    return step["name"] == "train risa" and settings.get("protect", "none") == "none" and exact


def is_plain(run: Run) -> bool:
    """Whether anything was sent without encryption by choice."""
    schemes = {str(step["settings"].get("scheme", "")) for step in run["steps"]}
    return run["scheme"] == "plain" or "plain" in schemes
