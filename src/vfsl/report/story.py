"""The run in a few sentences: what was done, what came of it, what left whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vfsl.report import filling
from vfsl.report.blocks import Verdict
from vfsl.report.words import counted, is_number, listed, number, percent, readable_bytes, seconds

Run = Mapping[str, Any]
Step = Mapping[str, Any]

# Kinds of protection under which a receiver learns nothing but sizes.
HIDDEN = ("ciphertext", "masked", "sealed ids")


@dataclass(frozen=True)
class Point:
    """A sentence of the story and the section that tells more."""

    title: str
    text: str
    section: str


def story(run: Run) -> list[Point]:
    """One point for each stage of the run."""
    steps = run["steps"]
    points = [_parties(run)]
    points += [_aligned(step) for step in _named(steps, "align")]
    points += [_found(step) for step in _named(steps, "vfpu")]
    points += [_completed(step) for step in _named(steps, "completion") if step["details"]]
    trained = [step for step in steps if step["name"].startswith("train ")]
    if trained:
        points.append(_trained(trained))
    points.append(_sent(run))
    return points


def verdicts(run: Run) -> list[Verdict]:
    """The sentences at the top: what the comparison of ways and the evaluations say."""
    found = []
    for step in run["steps"]:
        details = step["details"]
        if step["name"] == "downstream":
            found += filling.verdicts(details)
        if step["name"] == "evaluate" and details.get("verdict"):
            found.append(Verdict(str(details["verdict"]), filling.judged_tone(details)))
    return found


def cautions(run: Run) -> list[str]:
    """What a reader must know before anything else on the page."""
    found = []
    if _is_plain(run):
        found.append(
            "This run used the scheme “plain”: what is called ciphertext was not encrypted. It is "
            "for trying things out on one machine."
        )
    if any(step["name"] == "train risa" for step in run["steps"]):
        found.append(
            "This run trained RISA, whose gradients tell the other parties the labels of the rows "
            "that they train on."
        )
    return found


def _is_plain(run: Run) -> bool:
    schemes = {str(step["settings"].get("scheme", "")) for step in run["steps"]}
    return run["scheme"] == "plain" or "plain" in schemes


def _named(steps: Sequence[Step], name: str) -> list[Step]:
    return [step for step in steps if step["name"] == name]


def _parties(run: Run) -> Point:
    tables = [
        f"{one['party']} ({counted(one['rows'], 'row')}, {counted(one['columns'], 'column')})"
        for one in run["parties"]
    ]
    total = seconds(sum(step["seconds"] for step in run["steps"] if is_number(step["seconds"])))
    text = (
        f"{listed(tables) or 'No party'} took part; {counted(len(run['steps']), 'step')}, {total}."
    )
    return Point("Parties", text, "repeat")


def _aligned(step: Step) -> Point:
    parties = step["settings"].get("parties") or ["the parties"]
    text = f"{listed(parties)} have {counted(step['metrics'].get('overlap', 0), 'row')} in common."
    return Point("Aligned", text, "alignment")


def _found(step: Step) -> Point:
    metrics = step["metrics"]
    text = (
        f"{counted(metrics.get('reliable positives', 0), 'reliable positive')} among "
        f"{counted(metrics.get('unlabelled', 0), 'unlabelled row')}"
    )
    if is_number(metrics.get("oob score")):
        text += (
            f"; a known positive that was held out ranks above an unlabelled row in "
            f"{percent(metrics['oob score'])} of all pairs"
        )
    return Point("Positives", text + ".", "positives")


def _completed(step: Step) -> Point:
    details = step["details"]
    verdicts = details.get("verdicts") or {}
    words = {"use": "to use", "use with care": "to use with care"}
    said = [f"{number(count)} {words.get(name, name)}" for name, count in verdicts.items() if count]
    text = (
        f"{counted(len(details.get('quality') or []), 'column')} of {details.get('missing')} for "
        f"{counted(details.get('rows', 0), 'row')} of {details.get('given')}: {listed(said)}."
    )
    return Point("Completed", text, "completion")


def _trained(steps: Sequence[Step]) -> Point:
    names = list(dict.fromkeys(step["name"].removeprefix("train ") for step in steps))
    text = f"{listed(names)}."
    left = sum(
        step["metrics"].get("left", 0) for step in steps if is_number(step["metrics"].get("left"))
    )
    if left:
        text += f" {counted(left, 'doubtful row')} left the training set."
    return Point("Trained", text, "training")


def _sent(run: Run) -> Point:
    total = sum(line["bytes"] for line in run["ledger"])
    if not total:
        return Point("Sent", "Nothing left a party.", "ledger")
    hidden = sum(line["bytes"] for line in run["ledger"] if line["protection"] in HIDDEN)
    plain = {
        (line["step"], line["message"])
        for line in run["ledger"]
        if line["protection"] not in HIDDEN
    }
    how = (
        "what a real scheme encrypts, masks or seals"
        if _is_plain(run)
        else "encrypted, masked or sealed"
    )
    text = f"{readable_bytes(total)} left the parties, {percent(hidden / total)} of it {how}"
    text += (
        f"; the ledger says what the other {counted(len(plain), 'kind')} of message told."
        if plain
        else "."
    )
    return Point("Sent", text, "ledger")
