"""Sections of the page on alignment, positives and training, from the steps of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vfsl.align import PROTOCOLS
from vfsl.report.blocks import (
    Block,
    Cards,
    Figures,
    Heading,
    Notes,
    Section,
    Table,
    Text,
    make_cell,
)
from vfsl.report.charts import Bar, Chart, Series, draw_bars, draw_histogram, draw_lines
from vfsl.report.telling import figures_of, name_of, predictions_of, tell_columns, tell_figures
from vfsl.report.words import (
    NOTHING,
    describe_stop,
    is_number,
    write_count,
    write_list,
    write_number,
    write_percent,
)

Step = Mapping[str, Any]

_PLACES = ("epoch", "iteration", "tree", "round")


# ---- alignment ------------------------------------------------------------------------------


def describe_alignment(steps: Sequence[Step]) -> Section | None:
    """Who shares how many rows with whom."""
    chosen = [step for step in steps if step["name"] in ("align", "mark")]
    if not chosen:
        return None
    blocks: list[Block] = []
    for step in chosen:
        metrics = step["metrics"]
        rests = {
            name.removeprefix("rest of "): value
            for name, value in metrics.items()
            if name.startswith("rest of ") and is_number(value)
        }
        if step["name"] == "align" and rests:
            blocks += _describe_common(step, metrics.get("overlap", 0), rests)
        if "marked" in metrics:
            who = step["settings"].get("positives", "The positive holder")
            marked = write_number(metrics["marked"])
            blocks.append(Text(f"{who} knows {marked} of the common rows as positives."))
        blocks += _list_notes(step)
    return Section("alignment", "Alignment", "Which rows the parties have in common.", blocks)


def _describe_common(step: Step, overlap: int, rests: Mapping[str, float]) -> list[Block]:
    lines = [
        Bar(party, [("in common", overlap, 1), ("its own", rest, 3)])
        for party, rest in rests.items()
    ]
    fractions = [
        f"{write_percent(overlap / (overlap + rest))} of {party}'s rows"
        for party, rest in rests.items()
        if overlap + rest
    ]
    text = f"The parties have {write_count(overlap, 'row')} in common"
    text += f": {write_list(fractions)}. " if fractions else ". "
    text += f"The common ids were found by {_name_protocol(step)}; all other ids stayed hidden."
    return [Figures([draw_bars("Rows of each party", lines, x="rows")]), Text(text)]


def _name_protocol(step: Step) -> str:
    """What people call the protocol; its plain name where its package is not installed here."""
    name = str(step["settings"].get("protocol", "private set intersection"))
    known = PROTOCOLS.get(name)
    return name if known is None else known.about


def _list_notes(step: Step) -> list[Block]:
    return [Notes(step["notes"])] if step["notes"] else []


# ---- positives ------------------------------------------------------------------------------


def describe_positives(steps: Sequence[Step]) -> Section | None:
    """What VFPU found, and how far to trust it."""
    chosen = [step for step in steps if step["name"] == "vfpu"]
    if not chosen:
        return None
    blocks: list[Block] = []
    for step in chosen:
        metrics, details = step["metrics"], step["details"]
        low, high = (write_percent(metrics.get(f"prior {end}")) for end in ("low", "high"))
        cards = [
            ("reliable positives", write_number(metrics.get("reliable positives")), "rows chosen"),
            ("unlabelled rows", write_number(metrics.get("unlabelled")), "to choose from"),
            (
                "ranking",
                write_percent(metrics.get("oob score")),
                "of pairs rank a held-out positive above an unlabelled row",
            ),
            (
                "estimated positives",
                write_percent(metrics.get("prior value")),
                f"of the unlabelled rows, between {low} and {high}",
            ),
        ]
        blocks.append(Cards([card for card in cards if card[1] != NOTHING]))
        charts = [*_draw_capture(details), *_draw_scores(details)]
        if charts:
            blocks.append(Figures(charts))
        if step["rounds"]:
            blocks.append(_tabulate_rounds(step))
        if step["stop_reason"]:
            reason = describe_stop(step["stop_reason"])
            blocks.append(Text(f"How it ended: {reason}."))
        blocks += _tabulate_columns(details)
        blocks += _list_notes(step)
    for step in steps:
        if step["name"] == "deliver":
            count = write_count(step["metrics"].get("reliable positives", 0), "reliable positive")
            blocks.append(Text(f"{count} went to {step['settings'].get('to')}, with consent."))
    lead = "Unlabelled rows that are most likely positive (VFPU)."
    return Section("positives", "Positives found", lead, blocks)


def _draw_capture(details: Mapping[str, Any]) -> list[Chart]:
    curve = details.get("curve") or []
    if len(curve) < 2:
        return []
    found, among = curve[-1]
    points = [(one / among, part / found) for part, one in curve]
    return [
        draw_lines(
            "Ranking: known positives that were held out",
            [Series("held-out positives found", points)],
            x="unlabelled rows taken from the top",
            y="positives found",
            x_range=(0.0, 1.0),
            y_range=(0.0, 1.0),
            diagonal="a ranking by chance",
            percents=True,
            note="The steeper the start, the better the ranking; the dotted line is chance. Each "
            "step stands for ten rows or more.",
        )
    ]


def _draw_scores(details: Mapping[str, Any]) -> list[Chart]:
    found = details.get("scores") or {}
    if not found.get("counts"):
        return []
    groups = dict(zip(found["groups"], found["counts"], strict=True))
    x, note = "how likely the row is positive", "Each group adds up to 100 % of its own rows."
    return [draw_histogram("Scores of unlabelled rows", found["edges"], groups, x=x, note=note)]


def _tabulate_rounds(step: Step) -> Table:
    """All rounds as a table; lists, which name rows, are not shown."""
    names = [
        name
        for name in dict.fromkeys(key for one in step["rounds"] for key in one)
        if not any(isinstance(one.get(name), list | dict) for one in step["rounds"])
    ]
    rows = [[make_cell(one.get(name)) for name in names] for one in step["rounds"]]
    caption = "After each iteration the best rows join the positives."
    return Table("rounds", caption, names, rows, "Iterations")


def _tabulate_columns(details: Mapping[str, Any]) -> list[Block]:
    found = details.get("columns") or []
    if not found:
        return []
    rows = [
        [
            make_cell(one["column"]),
            make_cell(one["size"]),
            make_cell(one["chance"]),
            make_cell("differs", "bad") if one["large"] else make_cell("as expected", "good"),
        ]
        for one in found
    ]
    caption = (
        "Known positives beside unlabelled rows of the same score, by the label holder's columns. "
        "A large difference means that the known ones may not be a random sample."
    )
    head = ("column", "difference", "by chance up to", "")
    return [Table("columns", caption, head, rows, "Are the known positives a fair sample?")]


# ---- training -------------------------------------------------------------------------------


def describe_training(steps: Sequence[Step]) -> Section | None:
    """Curves of every model, and how sure it is."""
    chosen = [step for step in steps if step["name"].startswith("train ")]
    if not chosen:
        return None
    blocks: list[Block] = []
    for step in chosen:
        blocks.append(Heading(name_of(step)))
        predictions = predictions_of(step, steps)
        cards = [
            (_name_metric(name), write_number(value), "")
            for name, value in step["metrics"].items()
            if not isinstance(value, list | dict)
        ]
        blocks += [Cards(cards)] if cards else []
        charts = [*_draw_curves(step), *_draw_kept(step), *_draw_doubts(step["details"])]
        charts += [
            chart for later in predictions[:1] for chart in _draw_uncertainty(later["details"])
        ]
        blocks += [Figures(charts)] if charts else []
        words = [tell_figures(figures_of(step, steps))]
        words += [describe_stop(step["stop_reason"])] if step["stop_reason"] else []
        said = "; ".join(word for word in words if word)
        if said:
            blocks.append(Text(f"{said[:1].upper()}{said[1:]}."))
        blocks += [Text(text) for text in tell_columns(step)]
        blocks += _show_tables(step["details"])
        blocks += _list_notes(step)
        blocks += [block for later in predictions[:1] for block in _list_notes(later)]
    lead = "How the models learned. Scores on training rows flatter; the next section does not."
    return Section("training", "Training", lead, blocks)


def _show_tables(details: Mapping[str, Any]) -> list[Block]:
    """What parties may read in their shares of a model: bins and points of a scorecard."""
    return [
        Table(
            f"{kind}{name.removeprefix('tables')}",
            f"The {kind} of columns{name.removeprefix('tables')}.",
            table["head"],
            [[make_cell("" if cell is None else cell) for cell in line] for line in table["rows"]],
            f"{kind.capitalize()}{name.removeprefix('tables')}",
        )
        for name, tables in details.items()
        if name.startswith("tables of ")
        for kind, table in tables.items()
    ]


def _name_metric(name: str) -> str:
    return {"left": "rows removed"}.get(name, name.replace("_", " "))


def _draw_curves(step: Step) -> list[Chart]:
    """A curve for the loss, the objective and the uncertainty, where rounds have them.

    Stages minimise different objectives, so each has a curve of its own.
    """
    rounds = step["rounds"]
    place = next((name for name in _PLACES if rounds and name in rounds[0]), "round")
    charts = []
    for what, tone in (("loss", 1), ("objective", 1), ("uncertainty", 2)):
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
            note = "" if len(curves) == 1 else "Each stage minimises an objective of its own."
            if what == "objective":
                note = f"{note} It is not the loss: a quadratic stands for that.".strip()
            title = f"{what.capitalize()} by {place}"
            charts.append(draw_lines(title, series, x=place, y=what, note=note))
    return charts


def _draw_kept(step: Step) -> list[Chart]:
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
    series = [Series("kept", kept, 1), Series("removed so far", left, 2)]
    note = "Rows that stay doubtful leave the training set."
    return [draw_lines("Rows kept and removed", series, x="epoch", y="rows", note=note)]


def _draw_doubts(details: Mapping[str, Any]) -> list[Chart]:
    found = details.get("doubts") or {}
    if not found.get("counts"):
        return []
    groups = dict(zip(found["groups"], found["counts"], strict=True))
    return [
        draw_histogram("Doubt about the training rows", found["edges"], groups, x=found["score"])
    ]


def _draw_uncertainty(details: Mapping[str, Any]) -> list[Chart]:
    found = details.get("uncertainty") or {}
    if not found.get("counts"):
        return []
    title = f"Uncertainty of {write_count(details.get('rows', 0), 'prediction')}"
    groups, x = {"predicted rows": found["counts"][0]}, "uncertainty of the fused opinion"
    return [draw_histogram(title, found["edges"], groups, x=x, tones=(2,))]
