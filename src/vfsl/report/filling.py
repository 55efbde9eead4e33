"""Sections of the page on completion and on what it is worth, from the steps of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vfsl.report.blocks import (
    Block,
    Cards,
    Cell,
    Figures,
    Heading,
    Notes,
    Section,
    Table,
    Text,
    Verdict,
    cell,
)
from vfsl.report.charts import Chart, Dot, Series, dots, histogram, levels, line
from vfsl.report.words import counted, is_number, number, percent

Step = Mapping[str, Any]

# A chart with more names than that is a smear; a curve takes its place.
_MOST_NAMES = 40
_TONES = {"use": "good", "use with care": "warn", "no better than mean": "bad"}
_REAL, _MADE = "known cells", "completed cells"


def completion(steps: Sequence[Step]) -> Section | None:
    """Where each column went, how good it is, and how it looks."""
    chosen = [step for step in steps if step["name"] == "completion" and step["details"]]
    if not chosen:
        return None
    blocks: list[Block] = []
    for step in chosen:
        details = step["details"]
        verdicts = details.get("verdicts") or {}
        blocks.append(
            Cards(
                [
                    ("columns", number(len(details.get("quality") or [])), "completed"),
                    ("rows", number(details.get("rows")), f"that {details.get('missing')} lacks"),
                    ("to use", number(verdicts.get("use")), "columns clearly better than a mean"),
                    ("with care", number(verdicts.get("use with care")), "columns a little better"),
                    (
                        "no better",
                        number(verdicts.get("no better than mean")),
                        "columns: their mean says as much",
                    ),
                ]
            )
        )
        charts = [*_routing(details), *_confidence(details)]
        if charts:
            blocks.append(Figures(charts))
        blocks += _quality(details)
        shapes = [chart for one in details.get("distributions") or [] for chart in _shape(one)]
        if shapes:
            blocks.append(Heading("Known and completed cells, column by column"))
            blocks.append(
                Text(
                    "Completed cells are best guesses, so they are narrower than the known ones; a "
                    "shape that is shifted, not just narrower, is a reason to look. Bins stand for "
                    "ten rows or more."
                )
            )
            left = len(details.get("quality") or []) - len(details["distributions"])
            blocks.append(Figures(shapes, folded=f"{len(shapes) - 12} more columns"))
            if left > 0:
                blocks.append(Text(f"{counted(left, 'further column')} are in the table only."))
        blocks += _moved(steps)
        blocks += [Notes(step["notes"])] if step["notes"] else []
    lead = "Columns that one party lacks for the rows that only the other one has (FedPSG)."
    return Section("completion", "Completion", lead, blocks)


def gain(steps: Sequence[Step]) -> Section | None:
    """Whether all this helps, against doing without."""
    blocks: list[Block] = []
    for step in steps:
        details = step["details"]
        if step["name"] == "downstream" and details.get("ways"):
            blocks += _ways(details)
        if step["name"] == "evaluate" and details.get("metrics"):
            blocks += _measured(details)
    if not blocks:
        return None
    return Section("gain", "Gain", "What it is worth, against doing without.", blocks)


def tone_of(low: Any, high: Any) -> str:
    """What the bounds of a gain say."""
    if is_number(low) and low > 0:
        return "good"
    return "bad" if is_number(high) and high < 0 else "open"


def verdicts(details: Mapping[str, Any]) -> list[Verdict]:
    """What a comparison of ways says, each sentence in the colour of its bounds."""
    return [
        Verdict(one["text"], tone_of(one.get("low"), one.get("high")))
        for one in details.get("verdicts") or []
    ]


def judged_tone(details: Mapping[str, Any]) -> str:
    """What the gains of an evaluation say, by the best model on the first measure."""
    gains = [one for one in details.get("gains") or [] if is_number(one.get("value"))]
    gains = [one for one in gains if one["measure"] == gains[0]["measure"]]
    if not gains:
        return "open"
    best = max(gains, key=lambda one: one["value"])
    return tone_of(best.get("low"), best.get("high"))


def advised(details: Mapping[str, Any]) -> Mapping[str, Any]:
    """The line of the way that is advised: the blend, else the last one."""
    ways = details["ways"]
    return next((one for one in ways if one["way"] == "blend"), ways[-1])


# ---- completion -----------------------------------------------------------------------------


def _routing(details: Mapping[str, Any]) -> list[Chart]:
    routes = [
        one
        for one in details.get("routing") or []
        if one["by"] in ("association", "skill") and is_number(one["measure"])
    ]
    if not routes:
        return []
    routes = sorted(routes, key=lambda one: -one["measure"])
    by_skill = routes[0]["by"] == "skill"
    measure = "skill: share of the mean's squared error removed" if by_skill else "association μ"
    title = "Routing by skill" if by_skill else "Routing: association μ against τ"
    threshold = routes[0]["threshold"]
    rule = (
        ("0: no better than the mean", 0.0) if by_skill else (f"τ = {number(threshold)}", threshold)
    )
    note = (
        "Columns that the other party's data predict go to the federated model, the rest are "
        "completed locally."
    )
    if len(routes) > _MOST_NAMES:
        points = [(place + 1.0, one["measure"]) for place, one in enumerate(routes)]
        series = [Series("columns, best first", points)]
        return [line(title, series, x="column, best first", y="measure", rule=rule, note=note)]
    lines = [
        Dot(
            one["column"],
            one["measure"],
            tone=1 if one["route"] == "high" else 2,
            more="federated model" if one["route"] == "high" else "local",
        )
        for one in routes
    ]
    legend = (("federated model", 1), ("local", 2))
    return [dots(title, lines, x=measure, rule=rule, legend=legend, note=note)]


def _confidence(details: Mapping[str, Any]) -> list[Chart]:
    found = details.get("confidence") or []
    if not found:
        return []
    lines = [
        Dot(
            f"round {one['round']}" if one["round"] != "0" else "no pseudo-label",
            one["mean"],
            one["low"],
            one["high"],
            1 if one["round"] != "0" else 2,
            counted(one["cells"], "cell"),
        )
        for one in found
    ]
    note = "Mean and middle half of the cells that each round labelled; later rounds are less sure."
    return [dots("Confidence by round", lines, x="confidence", note=note)]


def _quality(details: Mapping[str, Any]) -> list[Block]:
    found = details.get("quality") or []
    if not found:
        return []
    head = "column,kind,route,model,skill,± error,RMSE / dev.,accuracy,shape,coverage,verdict"
    rows = [_quality_row(one) for one in found]
    rows += [_baseline_row(one) for one in details.get("baselines") or []]
    caption = (
        "Quality on common rows that the models did not see. Skill 0 is the mean (mode) and 1 is "
        "perfect; the last lines are means over columns, beside mean fill and hot-deck, a random "
        "known cell. Coverage is of intervals that promise 90 % unless set otherwise."
    )
    return [Table("quality", caption, head.split(","), rows)]


def _quality_row(one: Mapping[str, Any]) -> list[Cell]:
    verdict = one.get("verdict", "")
    skill = one.get("skill")
    worse = is_number(skill) and skill < 0
    constant = one.get("route") == "constant"
    return [
        cell(one["column"]),
        cell(one.get("kind")),
        cell(one.get("route")),
        cell(one.get("model")),
        cell(
            skill, "bad" if worse else "", min(max(skill, 0.0), 1.0) if is_number(skill) else None
        ),
        cell(one.get("skill error")),
        cell(one.get("rmse / deviation")),
        cell(one.get("accuracy")),
        cell(one.get("shape")),
        Cell(percent(one.get("coverage")), numeric=True),
        cell("constant" if constant else verdict, "" if constant else _TONES.get(verdict, "")),
    ]


def _baseline_row(one: Mapping[str, Any]) -> list[Cell]:
    named = "mean of this run" if one["method"] == "this run" else one["method"]
    blank = cell("")
    values = [
        cell(one.get(name) if name in one else "")
        for name in ("skill", "rmse / deviation", "accuracy", "shape")
    ]
    line = [cell(named), blank, blank, blank, values[0], blank, *values[1:], blank, blank]
    return [Cell(part.text, "base", part.bar, part.numeric) for part in line]


def _shape(one: Mapping[str, Any]) -> list[Chart]:
    counts = one.get("counts")
    if not counts:
        return []
    groups = dict(zip((_REAL, _MADE), counts, strict=True))
    if "levels" in one:
        return [levels(one["column"], one["levels"], groups)]
    return [histogram(one["column"], one["edges"], groups, x=one["column"])]


def _moved(steps: Sequence[Step]) -> list[Block]:
    found = [step["metrics"] for step in steps if step["name"] == "shift"]
    values = [one.get("auc of common against remaining rows") for one in found]
    values = [value for value in values if is_number(value)]
    if not values:
        return []
    said = "hardly differ" if values[-1] < 0.6 else "differ, so intervals were weighed"
    return [
        Text(
            f"Common and remaining rows {said}: a model tells them apart with AUC {values[-1]:.2f}."
        )
    ]


# ---- gain -----------------------------------------------------------------------------------


def _ways(details: Mapping[str, Any]) -> list[Block]:
    measure, ways = details["measure"], details["ways"]
    best = advised(details)
    blocks: list[Block] = []
    blocks += verdicts(details)
    if details.get("advice"):
        blocks.append(Text(details["advice"]))
    alone = next((one for one in ways if "gain" not in one), None)
    order = sorted(ways, key=lambda one: one["score"] if is_number(one["score"]) else -1e9)[::-1]
    lines = [
        Dot(one["way"], one["score"], one["low"], one["high"], 3 if one is best else 1)
        for one in order
    ]
    rule = (f"{alone['way']}: {number(alone['score'])}", alone["score"]) if alone else None
    charts = [dots(f"Held-out {measure} of each way", lines, x=measure, rule=rule)]
    gains = [one for one in order if "gain" in one]
    if gains and alone:
        lines = [
            Dot(one["way"], one["gain"], one["gain low"], one["gain high"], 3 if one is best else 1)
            for one in gains
        ]
        title = f"Gain over {alone['way']}"
        rule = ("no gain", 0.0)
        note = "Intervals of gains are narrower than those of scores: the rows are the same."
        charts.append(dots(title, lines, x=f"{measure} gained", rule=rule, note=note))
    blocks.append(Figures(charts))
    weights = details.get("weights") or {}
    rows = [
        [
            cell(one["way"]),
            cell(one["score"]),
            cell(_range(one, "low", "high")),
            cell(one.get("gain", "")),
            cell(_range(one, "gain low", "gain high")),
            Cell(percent(weights[one["way"]]) if one["way"] in weights else "", numeric=True),
        ]
        for one in order
    ]
    caption = f"By {number(details.get('rows'))} held-out common rows; intervals hold 95 %."
    head = ("way to train", measure, "interval", "gain", "interval", "in the blend")
    blocks.append(Table("ways", caption, head, rows))
    return blocks


def _measured(details: Mapping[str, Any]) -> list[Block]:
    found = details["metrics"]
    blocks: list[Block] = [Heading("Evaluation")]
    if details.get("verdict"):
        blocks.append(Verdict(str(details["verdict"]), judged_tone(details)))
    charts = []
    for measure in dict.fromkeys(str(one["measure"]) for one in found):
        lines = [
            Dot(str(one["model"]), one["value"], one.get("low"), one.get("high"))
            for one in found
            if str(one["measure"]) == measure
        ]
        charts.append(dots(measure, lines, x=measure))
    gains = details.get("gains") or []
    for measure, over in dict.fromkeys((one["measure"], one["over"]) for one in gains):
        lines = [
            Dot(str(one["model"]), one["value"], one.get("low"), one.get("high"), 3)
            for one in gains
            if (one["measure"], one["over"]) == (measure, over)
        ]
        title = f"{measure}: better than {over} by"
        charts.append(dots(title, lines, x=f"better by, {measure}", rule=("no better", 0.0)))
    blocks.append(Figures(charts))
    rows = [
        [
            cell(str(one["model"])),
            cell(str(one["measure"])),
            cell(one["value"]),
            cell(_range(one, "low", "high")),
        ]
        for one in found
    ]
    blocks.append(
        Table("evaluation", "All measures.", ("model", "measure", "value", "interval"), rows)
    )
    return blocks


def _range(one: Mapping[str, Any], low: str, high: str) -> str:
    if not is_number(one.get(low)) or not is_number(one.get(high)):
        return ""
    return f"{number(one[low])} to {number(one[high])}"
