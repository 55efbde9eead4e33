"""The evaluate step of a job: trained models on held-out rows, beside what the holder can alone."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from vfsl import store
from vfsl.errors import ConfigError, DataError
from vfsl.federation import Federation
from vfsl.job.baselines import baselines, in_order
from vfsl.job.metrics import BETTER, Bootstrap, Floats, measures_for
from vfsl.job.models import AnyModel, predicts_numbers, take_up_model
from vfsl.job.schema import EvaluateStep
from vfsl.job.work import Work
from vfsl.record import StepRecord
from vfsl.values import Array


def evaluate(work: Work, step: EvaluateStep) -> None:
    """Judge each label's models together; write metrics at the label holder and in the record."""
    by_label: dict[tuple[str, str], dict[str, AnyModel]] = {}
    for number in step.models or work.job.trained_before(work.number):
        model = take_up_model(work.results, f"model-{number}")
        named = getattr(model, "name", "risa")
        by_label.setdefault(model.label_, {})[f"{named} (step {number})"] = model
    for place, (label, models) in enumerate(by_label.items()):
        started = time.perf_counter()
        page = judge(work, step, label, models)
        suffix = f"{work.number}" if not place else f"{work.number}-{place + 1}"
        store.write_json(work.party_folder(label[0]) / f"metrics-{suffix}.json", page)
        lines = page["metrics"]
        work.fed.adopt(
            StepRecord(
                "evaluate",
                {"label": list(label), "bootstrap": step.bootstrap, "level": step.level},
                time.perf_counter() - started,
                metrics={f"{line['measure']} of {line['model']}": line["value"] for line in lines},
                notes=(page["verdict"],),
                details={"metrics": lines, "gains": page["gains"], "verdict": page["verdict"]},
            )
        )


def judge(
    work: Work, step: EvaluateStep, label: tuple[str, str], models: Mapping[str, AnyModel]
) -> dict[str, Any]:
    """Metrics of models of one label and of baselines, as plain values."""
    holder = label[0]
    numbers = {predicts_numbers(model) for model in models.values()}
    if len(numbers) > 1:
        raise ConfigError(
            f"Models of label {label[1]!r} predict numbers and classes; evaluate them in steps of "
            "their own."
        )
    testing = work.testing([holder])
    truth = _labels(testing, label, testing.share(holder).overlap)
    known = ~pd.isna(truth)
    if known.sum() < 2:
        raise DataError(
            f"Label {label[1]!r} of party {holder} is known in {int(known.sum())} of {len(truth)} "
            "rows held out for testing; at least 2 are needed."
        )
    share = work.training.share(holder)
    own = np.concatenate([share.overlap, share.rest])
    taught = _labels(work.fed, label, own)
    own, taught = own[~pd.isna(taught)], taught[~pd.isna(taught)]
    classes = None if numbers == {True} else sorted({*taught.tolist(), *truth[known].tolist()})
    answers = {name: _answer(model, work, classes)[known] for name, model in models.items()}
    table = work.fed.parts(label)[holder].table
    rows = testing.share(holder).overlap[known]
    coded = _coded(taught, classes)
    rng = work.fed.private_rng(holder, f"evaluate {work.number}")
    alone = baselines(table, own, coded, rows, classes, rng)
    boot = Bootstrap(_coded(truth[known], classes), step.bootstrap, step.level, rng)
    measures = measures_for(None if classes is None else len(classes))
    lines, gains = compared(boot, measures, answers, alone)
    return {
        "label": list(label),
        "test rows": int(known.sum()),
        "classes": None if classes is None else [_plain(name) for name in classes],
        "metrics": lines,
        "gains": gains,
        "verdict": verdict(gains, holder, step.level),
    }


def compared(
    boot: Bootstrap,
    measures: Sequence[str],
    answers: Mapping[str, Floats],
    alone: Mapping[str, Floats],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A line for each model and measure; and each model's gain over the best baseline.

    Which baseline is best is seen on the same rows, in its favour.
    """
    lines = [
        {"model": name, "measure": measure, **asdict(boot.interval(measure, answer))}
        for name, answer in {**answers, **alone}.items()
        for measure in measures
    ]
    gains = []
    for measure in measures:
        values = {
            line["model"]: BETTER[measure] * line["value"]
            for line in lines
            if line["measure"] == measure and line["model"] in alone
        }
        best = max(values, key=lambda name: values[name])
        gains += [
            {
                "model": name,
                "measure": measure,
                "over": best,
                **asdict(boot.gain(measure, answer, alone[best])),
            }
            for name, answer in answers.items()
        ]
    return lines, gains


def verdict(gains: Sequence[Mapping[str, Any]], holder: str, level: float) -> str:
    """The best model beside the best that the holder can do alone, in a sentence."""
    first = gains[0]["measure"]
    best = max((line for line in gains if line["measure"] == first), key=lambda line: line["value"])
    bounds = f"{level:.0%} of bootstrap samples: {best['low']:+.3f} to {best['high']:+.3f}"
    said = f"{best['model']}: {first} better by {best['value']:.3f} than {best['over']} ({bounds})"
    if best["value"] <= 0:
        said = (
            f"No model is better than {best['over']}: {first} of {best['model']} worse by "
            f"{-best['value']:.3f} ({bounds})"
        )
        return f"{said}; use what {holder} has alone."
    if best["low"] <= 0:
        return f"{said}; the held-out rows cannot tell whether that is chance."
    return f"{said}."


def _labels(fed: Federation, label: tuple[str, str], rows: Array) -> Array:
    cells = fed.tables[label[0]].column(label[1]).iloc[rows]
    return np.array(cells.astype(object).where(cells.notna(), None), dtype=object)


def _coded(labels: Array, classes: Sequence[Any] | None) -> Array:
    if classes is None:
        return labels.astype(np.float64)
    codes = {name: code for code, name in enumerate(classes)}
    return np.array([codes[name] for name in labels.tolist()], dtype=np.int64)


def _answer(model: AnyModel, work: Work, classes: Sequence[Any] | None) -> Floats:
    fed = work.testing([party for party in _aligned(work) if party in model.shares_])
    if classes is None:
        return np.asarray(model.predict(fed), dtype=np.float64)
    places = [list(classes).index(name) for name in model.classes_.tolist()]
    return in_order(model.predict_proba(fed), places, len(classes))


def _aligned(work: Work) -> tuple[str, ...]:
    return () if work.fed.plan is None else work.fed.plan.parties


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
