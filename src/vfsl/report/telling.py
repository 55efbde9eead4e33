"""Each step of a run in a line, as a person says it; for the console and for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vfsl.report.words import (
    describe_stop,
    is_number,
    readable_bytes,
    write_count,
    write_list,
    write_number,
    write_percent,
    write_rounded,
    write_seconds,
)

Step = Mapping[str, Any]
_PLAIN = {"auc": "AUC", "accuracy": "accuracy", "r2": "R²", "rmse": "RMSE"}
# Parts of other steps, which have no line of their own.
_PARTS = ("direct model", "shift", "confidence of completed rows", "hold out")


def tell_run(steps: Sequence[Step]) -> list[str]:
    """A line for each step that people know of."""
    found = [tell_step(step, steps) for step in steps]
    return [line for line in found if line]


def tell_step(step: Step, steps: Sequence[Step] = ()) -> str:
    """One step as a line; empty for parts of other steps."""
    name, metrics = step["name"], step["metrics"]
    settings = step["settings"]
    if name in _PARTS or settings.get("for") == "evaluate":
        return ""
    if name.startswith("predict ") and _trained(step, steps):
        return ""  # its figures are in the line of the training
    if name == "align":
        text = _tell_align(step)
    elif name == "count":
        text = f"{write_count(metrics.get('common ids', 0), 'common id')}; nobody learned which"
    elif name == "mark":
        marked = write_count(metrics.get("marked", 0), "common row")
        text = f"Marked: {settings.get('positives')} knows {marked} as positive"
    elif name == "vfpu":
        text = tell_positives(step)
    elif name == "cross-fit":
        text = "Cross-validated on common rows: " + tell_explained(metrics)
    elif name == "completion":
        text = tell_completed(step)
    elif name.startswith("train "):
        text = _tell_training(step, steps)
    elif name.startswith("predict "):
        found = {f"{_PLAIN.get(key, key)}": value for key, value in metrics.items()}
        told = f": {tell_figures(found)} where the label is known" if tell_figures(found) else ""
        text = f"Predicted by {name_of(step)}{told}"
    elif name == "evaluate":
        rows = write_count(step["details"].get("test rows", 0), "held-out row")
        text = f"Evaluated on {rows}"
    else:
        facts = [f"{key} {write_rounded(value)}" for key, value in metrics.items()]
        text = f"{name[:1].upper()}{name[1:]}" + (f": {', '.join(facts)}" if facts else "")
    return f"{text} ({_cost(step)})"


def _cost(step: Step) -> str:
    cost = write_seconds(step["seconds"])
    return f"{cost}, {readable_bytes(step['bytes'])}" if step["messages"] else cost


def _tell_align(step: Step) -> str:
    metrics, parties = step["metrics"], step["settings"].get("parties") or []
    text = f"Aligned {write_list(parties)}: {write_count(metrics.get('overlap', 0), 'common row')}"
    rests = {
        name.removeprefix("rest of "): count
        for name, count in metrics.items()
        if name.startswith("rest of ")
    }
    own = [f"{party} has {write_number(count)} more" for party, count in rests.items()]
    return text + (f"; {write_list(own)}" if own else "")


def tell_notes(step: Step) -> list[str]:
    """What is to be known of a step; an evaluation's is its headline, told elsewhere."""
    if step["name"] == "evaluate":
        return []
    # That the rounds which were asked for were done is no news.
    return [note for note in step["notes"] if not note.endswith("ended by: all rounds.")]


def tell_columns(step: Step) -> list[str]:
    """What a training says of columns: whose matter how much, and who has which file of them."""
    details = step["details"]
    rated = details.get("importance of parties") or {}
    parts = [f"{party} {write_percent(value)}" for party, value in rated.items()]
    told = [f"Importance by party: {write_list(parts)}."] if parts else []
    files = {
        name.removeprefix("file of "): file
        for name, file in details.items()
        if name.startswith("file of ")
    }
    owners = [f"{party} ({file})" for party, file in files.items()]
    if owners:
        what = next(iter(files.values())).partition("-")[0].capitalize()
        told.append(f"{what} of its own columns are in the folder of {write_list(owners)}.")
    return told + ([details["no columns"]] if "no columns" in details else [])


def tell_positives(step: Step) -> str:
    """What VFPU found."""
    metrics = step["metrics"]
    text = (
        f"VFPU found {write_count(metrics.get('reliable positives', 0), 'reliable positive')} "
        f"among {write_count(metrics.get('unlabelled', 0), 'unlabelled row')}"
    )
    if is_number(metrics.get("oob score")):
        text += (
            "; a known positive that was held out ranks above an unlabelled row in "
            f"{write_percent(metrics['oob score'])} of all pairs"
        )
    return text


def tell_explained(metrics: Mapping[str, Any], most: int = 8) -> str:
    """How much of each column the other party's columns explain."""
    shown = [
        f"{name}: {write_percent(max(value, 0.0))} of variance explained"
        for name, value in metrics.items()
        if is_number(value)
    ]
    more = f" and {len(shown) - most} more columns" if len(shown) > most else ""
    return "; ".join(shown[:most]) + more


def tell_completed(step: Step) -> str:
    """How many columns are worth how much."""
    details = step["details"]
    names = {
        "use": "to use",
        "use with care": "to use with care",
        "no better than mean": "no better than the mean",
    }
    verdicts = details.get("verdicts") or {}
    found = [
        f"{write_number(count)} {names.get(name, name)}"
        for name, count in verdicts.items()
        if count
    ]
    columns = len(details.get("quality") or []) or step["metrics"].get("columns", 0)
    rows = details.get("rows", step["metrics"].get("rows", 0))
    text = (
        f"Completed {write_count(columns, 'column')} of {details.get('missing')} for "
        f"{write_count(rows, 'row')} of {details.get('given')}"
    )
    return f"{text}: {write_list(found)}" if found else text


def name_of(step: Step) -> str:
    """What a trained model is called."""
    name = step["settings"].get("name") or step["name"].removeprefix("train ")
    return str(name).removeprefix("predict ")


def predictions_of(step: Step, steps: Sequence[Step]) -> list[Step]:
    """The predictions of a trained model, without those that only an evaluation asked for."""
    return [
        later
        for later in steps
        if later["settings"].get("for") != "evaluate" and _is_prediction(later, step)
    ]


def figures_of(step: Step, steps: Sequence[Step]) -> dict[str, float]:
    """The figures of a model, each named with its rows, held-out ones first."""
    for later in predictions_of(step, steps):
        asked = later["settings"].get("new rows")
        found = {}
        for name, value in later["metrics"].items():
            if name in _PLAIN:  # of a run in Python, which holds nothing out by itself
                kind = "training " if asked == 0 else ""
                name = f"{kind}{_PLAIN[name]}" if kind else f"{_PLAIN[name]} of predicted rows"
            found[name] = value
        return found
    return {}


def tell_figures(figures: Mapping[str, float]) -> str:
    """Held-out AUC 0.942; training AUC 0.916."""
    return "; ".join(f"{name} {value:.3f}" for name, value in figures.items() if is_number(value))


def _tell_training(step: Step, steps: Sequence[Step]) -> str:
    text = f"Trained {name_of(step)}"
    facts = [tell_figures(figures_of(step, steps))]
    left = step["metrics"].get("left")
    if is_number(left) and left:
        facts.append(f"{write_count(left, 'row')} removed")
    if step["stop_reason"]:
        reason = describe_stop(step["stop_reason"])
        counted = any(letter.isdigit() for letter in reason)  # it says how many already
        rounds = write_count(len(step["rounds"]), "round") if step["rounds"] else ""
        facts.append(f"{reason} after {rounds}" if rounds and not counted else reason)
    return ": ".join([text, "; ".join(fact for fact in facts if fact)])


def _trained(step: Step, steps: Sequence[Step]) -> bool:
    return any(
        other["name"].startswith("train ") and _is_prediction(step, other) for other in steps
    )


def _is_prediction(step: Step, trained: Step) -> bool:
    """Whether a step predicts with the model of another one."""
    model = trained["name"].removeprefix("train ")
    same = step["settings"].get("name") == trained["settings"].get("name")
    return bool(step["name"] == f"predict {model}" and same)
