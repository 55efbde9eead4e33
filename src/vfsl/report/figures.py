"""What is read off a model's held-out scores: lift, calibration, KS, confusion and residuals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vfsl.report.blocks import Block, Cell, Figures, Heading, Table, Text, make_cell
from vfsl.report.charts import Chart, Series, draw_histogram, draw_lines
from vfsl.report.words import is_number, write_count, write_number, write_percent

Model = Mapping[str, Any]
_MOST_CURVES = 5  # colours


def tell_figure(name: str, one: Model) -> str:
    """A model of two classes, or of numbers, in a line; empty where there is nothing to say."""
    if "R²" in one:
        text = f"{name}: R² {write_number(one['R²'])}"
        return f"{text}, mean residual {write_number(one['mean residual'])}"
    if "threshold" not in one:
        return ""
    cut = one["threshold"]
    return (
        f"{name}: KS {write_number(one['KS'])}, Gini {write_number(one['Gini'])}; from probability "
        f"{cut['value']:.3g} on ({_name_rule(cut)}) it flags {write_percent(cut['flagged'])} of "
        f"rows, {write_percent(cut['precision'])} of them rightly, and finds "
        f"{write_percent(cut['recall'])} of the positives"
    )


def _name_rule(cut: Model) -> str:
    return str(cut["rule"]) if cut.get("rows") else "not chosen by data"


def describe_figures(details: Mapping[str, Any]) -> list[Block]:
    """Charts that compare all models, then each model's own."""
    figures: Mapping[str, Model] = details.get("figures") or {}
    rows = write_count(details.get("test rows"), "held-out row")
    two = {name: one for name, one in figures.items() if "threshold" in one}
    blocks: list[Block] = []
    if two:
        blocks += [Heading(f"Scores of {rows}"), Figures(_compare(two))]
    for name, one in figures.items():
        if "threshold" in one:
            classes = details.get("classes") or ["no", "yes"]
            blocks += _describe_cut(name, one, [str(each) for each in classes], rows)
        elif "confusion" in one:
            classes = [str(each) for each in details.get("classes") or []]
            blocks.append(_tabulate_confusion(name, one["confusion"], classes, rows))
        elif one.get("bands"):
            blocks.append(Heading(f"{name}: residuals of {rows}"))
            blocks.append(Figures(_draw_residuals(one)))
    return blocks


def _compare(models: Mapping[str, Model]) -> list[Chart]:
    """Lift and calibration, a curve per model."""
    shown = list(models.items())[:_MOST_CURVES]
    gains, rates = [], []
    for tone, (name, one) in enumerate(shown, start=1):
        bands = one["bands"]
        points = [(0.0, 0.0), *((band["rows so far"], band["captured"]) for band in bands)]
        gains.append(Series(name, points, tone))
        rates.append(Series(name, [(band["expected"], band["rate"]) for band in bands], tone))
    more = f" The first {_MOST_CURVES} models." if len(models) > _MOST_CURVES else ""
    best = ", ".join(
        f"{name} {write_number(one['bands'][0]['lift'])}" for name, one in shown if one["bands"]
    )
    whole: dict[str, Any] = {"x_range": (0.0, 1.0), "y_range": (0.0, 1.0), "percents": True}
    return [
        draw_lines(
            "Lift: positives found from the top",
            gains,
            x="rows taken, highest scores first",
            y="positives found",
            diagonal="rows taken by chance",
            note=f"The dotted line is chance. Lift of the highest band: {best}.{more}",
            **whole,
        ),
        draw_lines(
            "Calibration: do probabilities come true?",
            rates,
            x="mean probability of a band",
            y="positives in it",
            diagonal="as predicted",
            note="On the dotted line a probability of 30 % comes true in 30 % of rows; above it "
            f"the model is too low, below it too high.{more}",
            **whole,
        ),
    ]


def _describe_cut(name: str, one: Model, classes: Sequence[str], rows: str) -> list[Block]:
    """One model of two classes: KS, confusion at its threshold, score bands."""
    cut, bands = one["threshold"], one["bands"]
    said = tell_figure(name, one).removeprefix(f"{name}: ")
    blocks: list[Block] = [Heading(f"{name}: scores and threshold"), Text(f"{said}.")]
    blocks += [Figures([_draw_ks(one, classes)])] if len(bands) > 1 else []
    counts = [
        [cut["rightly left"], cut["false alarms"]],
        [cut["misses"], cut["hits"]],
    ]
    where = f"{rows}, threshold {cut['value']:.3g}"
    if cut.get("rows"):
        where += (
            f", chosen for {cut['rule']} on {cut['rows']}; each fifth is judged at the threshold "
            "that the other four choose"
        )
    blocks.append(_tabulate_confusion(name, counts, classes, where))
    head = ("score", "rows", "positives", "expected", "rate", "found so far", "lift")
    lines = [
        [
            make_cell(f"{write_number(band['from'])} to {write_number(band['to'])}"),
            make_cell(band["rows"]),
            make_cell(band["positives"]),
            *(
                Cell(write_percent(band[key], 1), numeric=True)
                for key in ("expected", "rate", "captured")
            ),
            make_cell(band["lift"]),
        ]
        for band in bands
    ]
    caption = f"{name}: score bands of {rows}, highest first."
    blocks.append(Table("bands", caption, head, lines, "Score bands"))
    return blocks


def _draw_ks(one: Model, classes: Sequence[str]) -> Chart:
    """How the scores of both classes add up, from the lowest band."""
    bands = list(reversed(one["bands"]))
    positives = sum(band["positives"] for band in bands)
    others = sum(band["rows"] for band in bands) - positives
    up, down = 0, 0
    yes, no = [(0.0, 0.0)], [(0.0, 0.0)]
    for band in bands:
        up, down = up + band["positives"], down + band["rows"] - band["positives"]
        yes.append((band["to"], up / max(positives, 1)))
        no.append((band["to"], down / max(others, 1)))
    return draw_lines(
        f"KS {write_number(one['KS'])}: how far apart the classes are",
        [Series(classes[0], no, 2), Series(classes[1], yes, 1)],
        x="probability",
        y="rows with at most that",
        x_range=(0.0, 1.0),
        y_range=(0.0, 1.0),
        percents=True,
        note=f"KS is the largest distance between the curves, at {write_number(one['KS at'])}; "
        f"Gini {write_number(one['Gini'])}.",
    )


def _tabulate_confusion(
    name: str, counts: Sequence[Sequence[int]], classes: Sequence[str], where: str
) -> Table:
    total = max(sum(map(sum, counts)), 1)
    rows = [
        [
            make_cell(f"is {label}"),
            *(
                make_cell(count, "good" if at == place else "", count / total)
                for at, count in enumerate(line)
            ),
        ]
        for place, (label, line) in enumerate(zip(classes, counts, strict=True))
    ]
    head = ("", *(f"predicted {label}" for label in classes))
    return Table("confusion", f"{name}: confusion on {where}.", head, rows)


def _draw_residuals(one: Model) -> list[Chart]:
    bands = one["bands"]
    series = [
        Series(name, [(band["expected"], band[key]) for band in bands], tone)
        for name, key, tone in (
            ("mean", "mean residual", 1),
            ("10 % are below", "10 %", 2),
            ("90 % are below", "90 %", 3),
        )
    ]
    note = (
        f"R² {write_number(one['R²'])}. A mean that leaves 0 means predictions that are off there; "
        "lines that spread mean less certain ones."
    )
    charts = [
        draw_lines(
            "Residuals by prediction",
            series,
            x="predicted",
            y="truth less prediction",
            rule=("no error", 0.0),
            note=note,
        )
    ]
    found = one.get("histogram") or {}
    if found.get("counts") and is_number(one.get("mean residual")):
        groups = {"rows": found["counts"][0]}
        charts.append(
            draw_histogram("Residuals", found["edges"], groups, x="truth less prediction")
        )
    return charts
