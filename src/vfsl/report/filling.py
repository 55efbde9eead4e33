"""Sections of the page on completion and on what it is worth, from the steps of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
    make_cell,
)
from vfsl.report.charts import (
    Chart,
    Dot,
    Series,
    draw_dots,
    draw_histogram,
    draw_levels,
    draw_lines,
)
from vfsl.report.figures import describe_figures
from vfsl.report.words import is_number, write_count, write_number, write_percent

Step = Mapping[str, Any]

# A chart with more names than that is a smear; a curve takes its place.
_MOST_NAMES = 40
_TONES = {"use": "good", "use with care": "warn", "no better than mean": "bad"}
_REAL, _MADE = "known cells", "completed cells"


# ---- completion -----------------------------------------------------------------------------


def describe_completion(steps: Sequence[Step]) -> Section | None:
    """Where each column went, how good it is, and how it looks."""
    chosen = [step for step in steps if step["name"] == "completion" and step["details"]]
    if not chosen:
        return None
    blocks: list[Block] = []
    for step in chosen:
        details = step["details"]
        verdicts = details.get("verdicts") or {}
        columns = len(details.get("quality") or [])
        use, care, bad = (write_number(verdicts.get(name)) for name in _TONES)
        cards = [
            ("columns", write_number(columns), "completed"),
            ("rows", write_number(details.get("rows")), f"that {details.get('missing')} lacks"),
            ("to use", use, "columns that are clearly better than a mean"),
            ("with care", care, "columns that are a little better"),
            ("no better", bad, "columns whose mean says as much"),
        ]
        blocks.append(Cards(cards))
        charts = [*_draw_routing(details), *_draw_confidence(details)]
        blocks += [Figures(charts)] if charts else []
        blocks += _tabulate_quality(details)
        blocks += _show_shapes(details, columns)
        blocks += _describe_shift(steps)
        blocks += [Notes(step["notes"])] if step["notes"] else []
    lead = "Columns that one party lacks for the rows that only the other one has (FedPSG)."
    return Section("completion", "Completion", lead, blocks)


def _draw_routing(details: Mapping[str, Any]) -> list[Chart]:
    routes = [
        one
        for one in details.get("routing") or []
        if one["by"] in ("association", "skill") and is_number(one["measure"])
    ]
    if not routes:
        return []
    routes = sorted(routes, key=lambda one: -one["measure"])
    if routes[0]["by"] == "skill":
        title, measure = "Routing by skill", "skill: fraction of the mean's squared error removed"
        rule = ("0: no better than the mean", 0.0)
    else:
        title, measure = "Routing: association μ against τ", "association μ"
        rule = (f"τ = {write_number(routes[0]['threshold'])}", routes[0]["threshold"])
    note = (
        "Columns that the other party's data predict go to the federated model; the others are "
        "completed locally."
    )
    if len(routes) > _MOST_NAMES:
        points = [(place + 1.0, one["measure"]) for place, one in enumerate(routes)]
        series = [Series("columns, best first", points)]
        return [
            draw_lines(title, series, x="column, best first", y="measure", rule=rule, note=note)
        ]
    federated, local = ("federated model", 1), ("local", 2)
    lines = []
    for one in routes:
        name, tone = federated if one["route"] == "high" else local
        lines.append(Dot(one["column"], one["measure"], tone=tone, more=name))
    return [draw_dots(title, lines, x=measure, rule=rule, legend=(federated, local), note=note)]


def _draw_confidence(details: Mapping[str, Any]) -> list[Chart]:
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
            write_count(one["cells"], "cell"),
        )
        for one in found
    ]
    note = (
        "The mean and the middle half of the cells that each round labelled; later rounds are less "
        "sure."
    )
    return [draw_dots("Confidence by round", lines, x="confidence", note=note)]


def _tabulate_quality(details: Mapping[str, Any]) -> list[Block]:
    found = details.get("quality") or []
    if not found:
        return []
    head = "column,kind,route,model,skill,± error,RMSE / dev.,accuracy,shape,coverage,verdict"
    rows = [_list_quality(one) for one in found]
    rows += [_list_baseline(one) for one in details.get("baselines") or []]
    caption = (
        "Quality on common rows that the models did not see. A skill of 0 is that of the mean (or "
        "mode), 1 is perfect. The last lines are means over columns, beside filling in the mean "
        "and hot-deck, a random known cell. Coverage is that of intervals that promise 90 % unless "
        "set otherwise."
    )
    return [Table("quality", caption, head.split(","), rows)]


def _list_quality(one: Mapping[str, Any]) -> list[Cell]:
    verdict, skill = one.get("verdict", ""), one.get("skill")
    tone = _TONES.get(verdict, "")
    if one.get("route") == "constant":
        verdict, tone = "constant", ""
    bar = min(max(skill, 0.0), 1.0) if is_number(skill) else None
    return [
        *(make_cell(one.get(name)) for name in ("column", "kind", "route", "model")),
        make_cell(skill, "bad" if is_number(skill) and skill < 0 else "", bar),
        *(
            make_cell(one.get(name))
            for name in ("skill error", "rmse / deviation", "accuracy", "shape")
        ),
        Cell(write_percent(one.get("coverage")), numeric=True),
        make_cell(verdict, tone),
    ]


def _list_baseline(one: Mapping[str, Any]) -> list[Cell]:
    name = "mean of this run" if one["method"] == "this run" else one["method"]
    skill, *others = (
        one.get(name, "") for name in ("skill", "rmse / deviation", "accuracy", "shape")
    )
    values = (name, "", "", "", skill, "", *others, "", "")
    return [replace(make_cell(value), tone="base") for value in values]


def _show_shapes(details: Mapping[str, Any], columns: int) -> list[Block]:
    """Known beside completed cells of every column that has enough rows to show."""
    shapes = []
    for one in details.get("distributions") or []:
        if one.get("counts"):
            groups = dict(zip((_REAL, _MADE), one["counts"], strict=True))
            if "levels" in one:
                shapes.append(draw_levels(one["column"], one["levels"], groups))
            else:
                shapes.append(draw_histogram(one["column"], one["edges"], groups, x=one["column"]))
    if not shapes:
        return []
    text = (
        "Completed cells are best guesses, so they are narrower than the known ones; a shape that "
        "is shifted, not just narrower, is a reason to look. Each bin stands for ten rows or more."
    )
    folded = write_count(len(shapes) - 12, "more column")
    blocks: list[Block] = [Heading("Known and completed cells, column by column")]
    blocks += [Text(text), Figures(shapes, folded=folded)]
    left = columns - len(details["distributions"])
    if left > 0:
        are = "is" if left == 1 else "are"
        blocks.append(Text(f"{write_count(left, 'further column')} {are} in the table only."))
    return blocks


def _describe_shift(steps: Sequence[Step]) -> list[Block]:
    found = [step["metrics"] for step in steps if step["name"] == "shift"]
    values = [one.get("auc of common against remaining rows") for one in found]
    values = [value for value in values if is_number(value)]
    if not values:
        return []
    how = "hardly differ" if values[-1] < 0.6 else "differ, so intervals were weighted"
    text = f"Common and remaining rows {how}: a model tells them apart with AUC {values[-1]:.2f}."
    return [Text(text)]


# ---- gain -----------------------------------------------------------------------------------


def describe_gain(steps: Sequence[Step]) -> Section | None:
    """Whether all this helps, against doing without."""
    blocks: list[Block] = []
    for step in steps:
        details = step["details"]
        if step["name"] == "downstream" and details.get("ways"):
            blocks += _compare_ways(details)
        if step["name"] == "evaluate" and details.get("metrics"):
            blocks += _describe_evaluation(details)
    if not blocks:
        return None
    return Section("gain", "Gain", "What it is worth, compared with doing without.", blocks)


def list_verdicts(details: Mapping[str, Any]) -> list[Verdict]:
    """What a comparison of ways says, each sentence in the colour of its bounds."""
    return [
        Verdict(one["text"], judge_bounds(one.get("low"), one.get("high")))
        for one in details.get("verdicts") or []
    ]


def make_verdict(details: Mapping[str, Any]) -> Verdict:
    """The headline of an evaluation; what comes after its first sentence stands below."""
    text, mark, more = str(details["verdict"]).partition(". ")
    tones = {"helps": "good", "hurts": "bad", "does not help": "bad", "cannot tell": "open"}
    tone = tones.get(str(details.get("tone")), judge_gains(details))
    return Verdict(text + ("." if mark else ""), tone, more)


def judge_gains(details: Mapping[str, Any]) -> str:
    """What the gains of an evaluation say, by the best model on the first measure."""
    gains = [one for one in details.get("gains") or [] if is_number(one.get("value"))]
    gains = [one for one in gains if one["measure"] == gains[0]["measure"]]
    if not gains:
        return "open"
    best = max(gains, key=lambda one: one["value"])
    return judge_bounds(best.get("low"), best.get("high"))


def judge_bounds(low: Any, high: Any) -> str:
    """What the bounds of a gain say: good, bad or open."""
    if is_number(low) and low > 0:
        return "good"
    return "bad" if is_number(high) and high < 0 else "open"


def _compare_ways(details: Mapping[str, Any]) -> list[Block]:
    measure, ways = details["measure"], details["ways"]
    # What is advised: the blend, else the last one.
    best = next((one for one in ways if one["way"] == "blend"), ways[-1])
    blocks: list[Block] = [*list_verdicts(details)]
    if details.get("advice"):
        blocks.append(Text(details["advice"]))
    alone = next((one for one in ways if "gain" not in one), None)
    order = sorted(ways, key=lambda one: one["score"] if is_number(one["score"]) else -1e9)[::-1]
    lines = [
        Dot(one["way"], one["score"], one["low"], one["high"], 3 if one is best else 1)
        for one in order
    ]
    rule = (f"{alone['way']}: {write_number(alone['score'])}", alone["score"]) if alone else None
    charts = [draw_dots(f"Held-out {measure} of each way", lines, x=measure, rule=rule)]
    gains = [one for one in order if "gain" in one]
    if gains and alone:
        lines = [
            Dot(one["way"], one["gain"], one["gain low"], one["gain high"], 3 if one is best else 1)
            for one in gains
        ]
        note = "Intervals of gains are narrower than those of scores: the rows are the same."
        title, rule = f"Gain over {alone['way']}", ("no gain", 0.0)
        charts.append(draw_dots(title, lines, x=f"{measure} gained", rule=rule, note=note))
    blocks.append(Figures(charts))
    weights = details.get("weights") or {}
    rows = [
        [
            make_cell(one["way"]),
            make_cell(one["score"]),
            make_cell(_write_range(one, "low", "high")),
            make_cell(one.get("gain", "")),
            make_cell(_write_range(one, "gain low", "gain high")),
            Cell(write_percent(weights[one["way"]]) if one["way"] in weights else "", numeric=True),
        ]
        for one in order
    ]
    held_out = write_count(details.get("rows"), "held-out common row")
    caption = f"Measured on {held_out}, with 95 % intervals."
    head = ("way to train", measure, "interval", "gain", "interval", "in the blend")
    return [*blocks, Table("ways", caption, head, rows)]


def _describe_evaluation(details: Mapping[str, Any]) -> list[Block]:
    found = details["metrics"]
    rows = details.get("test rows")
    heading = f"Evaluation on {write_count(rows, 'held-out row')}" if rows else "Evaluation"
    blocks: list[Block] = [Heading(heading)]
    blocks += [Text(str(one["text"])) for one in details.get("questions") or []]
    charts = []
    for measure in dict.fromkeys(str(one["measure"]) for one in found):
        lines = [
            Dot(str(one["model"]), one["value"], one.get("low"), one.get("high"))
            for one in found
            if str(one["measure"]) == measure
        ]
        charts.append(draw_dots(measure, lines, x=measure))
    gains = details.get("gains") or []
    for measure, over in dict.fromkeys((one["measure"], one["over"]) for one in gains):
        lines = [
            Dot(str(one["model"]), one["value"], one.get("low"), one.get("high"), 3)
            for one in gains
            if (one["measure"], one["over"]) == (measure, over)
        ]
        title, x = f"{measure}: how much better than {over}", f"better by, {measure}"
        charts.append(draw_dots(title, lines, x=x, rule=("no better", 0.0)))
    # The first measure is what the verdict is about: its two charts are shown, others folded.
    first = str(found[0]["measure"])
    charts.sort(key=lambda chart: chart.title.partition(":")[0] != first)
    blocks.append(Figures(charts, shown=2, folded="other measures"))
    rows = [
        [
            make_cell(str(one["model"])),
            make_cell(str(one["measure"])),
            make_cell(one["value"]),
            make_cell(_write_range(one, "low", "high")),
        ]
        for one in found
    ]
    head = ("model", "measure", "value", "interval")
    return [*blocks, Table("evaluation", "All measures.", head, rows), *describe_figures(details)]


def _write_range(one: Mapping[str, Any], low: str, high: str) -> str:
    if not is_number(one.get(low)) or not is_number(one.get(high)):
        return ""
    return f"{write_number(one[low])} to {write_number(one[high])}"
