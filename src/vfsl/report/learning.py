"""Sections of the page on alignment, positives and training, from the steps of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vfsl.align import PROTOCOLS
from vfsl.report.blocks import Block, Cards, Figures, Heading, Notes, Section, Table, Text, cell
from vfsl.report.charts import Bar, Chart, Series, bars, histogram, line
from vfsl.report.words import counted, is_number, listed, number, percent

Step = Mapping[str, Any]

_WHY = {
    "outer": "all iterations were done",
    "hidden": "the promoted rows reach half of the positives that are estimated to be hidden",
    "stable": "the ranking did not change any more",
    "sizes": "one more batch would leave fewer unlabelled rows than positives",
}
_PLACES = ("epoch", "iteration", "tree", "round")


def alignment(steps: Sequence[Step]) -> Section | None:
    """Who shares how many rows with whom."""
    chosen = [step for step in steps if step["name"] in ("align", "mark")]
    if not chosen:
        return None
    blocks: list[Block] = []
    for step in chosen:
        metrics = step["metrics"]
        overlap = metrics.get("overlap", 0)
        rests = _by_party(metrics, "rest of ")
        if step["name"] == "align" and rests:
            lines = [
                Bar(party, [("in common", overlap, 1), ("its own", rest, 3)])
                for party, rest in rests.items()
            ]
            blocks.append(Figures([bars("Rows of each party", lines, x="rows")]))
            shares = [
                f"{percent(overlap / (overlap + rest))} of {party}'s"
                for party, rest in rests.items()
                if overlap + rest
            ]
            blocks.append(
                Text(
                    f"{counted(overlap, 'row')} are in common: {listed(shares)} rows. Which they "
                    f"are was found by {_protocol(step)}; ids that are not in common stayed hidden."
                )
            )
        if "marked" in metrics:
            who = step["settings"].get("positives", "The positive holder")
            blocks.append(
                Text(f"{who} knows {number(metrics['marked'])} of the common rows as positives.")
            )
        blocks += _notes(step)
    return Section("alignment", "Alignment", "Which rows the parties have in common.", blocks)


def positives(steps: Sequence[Step]) -> Section | None:
    """What VFPU found, and how far to trust it."""
    chosen = [step for step in steps if step["name"] == "vfpu"]
    if not chosen:
        return None
    blocks: list[Block] = []
    for step in chosen:
        metrics, details = step["metrics"], step["details"]
        cards = [
            ("reliable positives", number(metrics.get("reliable positives")), "rows chosen"),
            ("unlabelled rows", number(metrics.get("unlabelled")), "to choose from"),
            (
                "ranking",
                percent(metrics.get("oob score")),
                "of pairs: a held-out positive above an unlabelled row",
            ),
            (
                "positive share",
                percent(metrics.get("prior value")),
                f"estimated, {percent(metrics.get('prior low'))} to "
                f"{percent(metrics.get('prior high'))} of unlabelled rows",
            ),
        ]
        blocks.append(Cards([card for card in cards if card[1] != "–"]))
        charts = [*_capture(details), *_scores(details)]
        if charts:
            blocks.append(Figures(charts))
        if step["rounds"]:
            blocks.append(_rounds(step, "After each iteration the best rows join the positives."))
        if step["stop_reason"]:
            why = _WHY.get(step["stop_reason"], step["stop_reason"])
            blocks.append(Text(f"It ended because {why}."))
        blocks += _columns(details)
        blocks += _notes(step)
    for step in steps:
        if step["name"] == "deliver":
            count = counted(step["metrics"].get("reliable positives", 0), "reliable positive")
            blocks.append(Text(f"{count} went to {step['settings'].get('to')}, with consent."))
    lead = "Unlabelled rows that are most likely positive (VFPU)."
    return Section("positives", "Positives found", lead, blocks)


def training(steps: Sequence[Step]) -> Section | None:
    """Curves of every model, and how sure it is."""
    chosen = [step for step in steps if step["name"].startswith("train ")]
    if not chosen:
        return None
    blocks: list[Block] = []
    for step in chosen:
        model = step["name"].removeprefix("train ")
        blocks.append(Heading(model))
        blocks += _training_cards(step)
        charts = [*_curves(step), *_kept(step), *_doubts(step["details"])]
        for later in steps:
            if later["name"] == f"predict {model}":
                charts += _uncertainty(later["details"])
        if charts:
            blocks.append(Figures(charts))
        words = [f"Ended: {step['stop_reason'].replace('_', ' ')}."] if step["stop_reason"] else []
        for later in steps:
            if later["name"] == f"predict {model}" and later["metrics"]:
                said = [f"{name} {number(value)}" for name, value in later["metrics"].items()]
                words.append(f"On the rows that it was asked to predict: {listed(said)}.")
        if words:
            blocks.append(Text(" ".join(dict.fromkeys(words))))
        blocks += _notes(step)
    lead = "How the models learned. Scores on training rows flatter; the next section does not."
    return Section("training", "Training", lead, blocks)


# ---- pieces ---------------------------------------------------------------------------------


def _protocol(step: Step) -> str:
    """How people call the protocol; by its name where its package is not installed here."""
    name = str(step["settings"].get("protocol", "private set intersection"))
    known = PROTOCOLS.get(name)
    return name if known is None else known.about


def _by_party(metrics: Mapping[str, Any], start: str) -> dict[str, Any]:
    return {
        name.removeprefix(start): value
        for name, value in metrics.items()
        if name.startswith(start) and is_number(value)
    }


def _notes(step: Step) -> list[Block]:
    return [Notes(step["notes"])] if step["notes"] else []


def _capture(details: Mapping[str, Any]) -> list[Chart]:
    curve = details.get("curve") or []
    if len(curve) < 2:
        return []
    found, among = curve[-1]
    points = [(one / among, part / found) for part, one in curve]
    return [
        line(
            "Ranking: known positives that were held out",
            [Series("held-out positives found", points)],
            x="unlabelled rows taken from the top",
            y="positives found",
            x_range=(0.0, 1.0),
            y_range=(0.0, 1.0),
            diagonal="a ranking by chance",
            percents=True,
            note="The steeper it starts, the better the ranking; the dotted line is chance. Every "
            "step is ten rows or more.",
        )
    ]


def _scores(details: Mapping[str, Any]) -> list[Chart]:
    found = details.get("scores") or {}
    if not found.get("counts"):
        return []
    groups = dict(zip(found["groups"], found["counts"], strict=True))
    return [
        histogram(
            "Scores of unlabelled rows",
            found["edges"],
            groups,
            x="how likely the row is positive",
            note="Each group as shares of its own rows.",
        )
    ]


def _columns(details: Mapping[str, Any]) -> list[Block]:
    found = details.get("columns") or []
    if not found:
        return []
    rows = [
        [
            cell(one["column"]),
            cell(one["size"]),
            cell(one["chance"]),
            cell("differs" if one["large"] else "as expected", "bad" if one["large"] else "good"),
        ]
        for one in found
    ]
    caption = (
        "Known positives beside unlabelled rows of the same score, by the label holder's columns. "
        "A large difference means that the known ones may not be a random sample."
    )
    head = ("column", "difference", "by chance up to", "")
    return [Table("columns", caption, head, rows, "Are the known positives a fair sample?")]


def _rounds(step: Step, caption: str) -> Table:
    """All rounds as a table; lists, which name rows, are not shown."""
    names = [
        name
        for name in dict.fromkeys(key for one in step["rounds"] for key in one)
        if not any(isinstance(one.get(name), list | dict) for one in step["rounds"])
    ]
    rows = [[cell(one.get(name)) for name in names] for one in step["rounds"]]
    return Table("rounds", caption, names, rows, "Iterations")


def _training_cards(step: Step) -> list[Block]:
    cards = [
        (name.replace("_", " "), number(value), "")
        for name, value in step["metrics"].items()
        if not isinstance(value, list | dict)
    ]
    return [Cards(cards)] if cards else []


def _curves(step: Step) -> list[Chart]:
    """A curve for the loss and one for the uncertainty, where rounds have them.

    Stages minimise different losses, so each has a curve of its own.
    """
    rounds = step["rounds"]
    place = next((name for name in _PLACES if rounds and name in rounds[0]), "round")
    charts = []
    for what, tone in (("loss", 1), ("uncertainty", 2)):
        curves: dict[str, list[tuple[float, float]]] = {}
        for at, one in enumerate(rounds):
            value = one.get(what)
            if is_number(value):
                name = f"stage {one['stage']}" if "stage" in one else what
                curves.setdefault(name, []).append((at + 1.0, value))
        if sum(map(len, curves.values())) > 1:
            tones = [tone] if len(curves) == 1 else list(range(1, 6))
            series = [
                Series(name, points, tones[at % len(tones)])
                for at, (name, points) in enumerate(curves.items())
            ]
            note = "" if len(curves) == 1 else "Each stage minimises a loss of its own."
            title = f"{what.capitalize()} by {place}"
            charts.append(line(title, series, x=place, y=what, note=note))
    return charts


def _kept(step: Step) -> list[Chart]:
    rounds = step["rounds"]
    kept = [
        (one.get("epoch", at + 1.0), one["kept"]) for at, one in enumerate(rounds) if "kept" in one
    ]
    if len(kept) < 2:
        return []
    gone = 0
    left: list[tuple[float, float]] = []
    for one in rounds:
        gone += one.get("left with a true label", 0) + one.get("left with a pseudo label", 0)
        left.append((one.get("epoch", len(left) + 1.0), gone))
    return [
        line(
            "Rows kept and removed",
            [Series("kept", kept, 1), Series("removed so far", left, 2)],
            x="epoch",
            y="rows",
            note="Rows that stay doubtful leave the training set.",
        )
    ]


def _doubts(details: Mapping[str, Any]) -> list[Chart]:
    found = details.get("doubts") or {}
    if not found.get("counts"):
        return []
    groups = dict(zip(found["groups"], found["counts"], strict=True))
    return [histogram("Doubt of training rows", found["edges"], groups, x=found["score"])]


def _uncertainty(details: Mapping[str, Any]) -> list[Chart]:
    found = details.get("uncertainty") or {}
    if not found.get("counts"):
        return []
    title = f"Uncertainty of {counted(details.get('rows', 0), 'prediction')}"
    groups = {"predicted rows": found["counts"][0]}
    return [
        histogram(title, found["edges"], groups, x="uncertainty of the fused opinion", tones=(2,))
    ]
