"""From which probability on a row is called positive: a number, or a rule that rows decide.

A rule that is judged on the rows that it learned from flatters itself. So the threshold to use is
chosen on all rows at hand, and its figures come from fifths of them: each fifth is judged at the
threshold that the other four choose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from vfsl.errors import ConfigError
from vfsl.estimators import Estimator
from vfsl.estimators.base import THRESHOLD
from vfsl.federation import Federation
from vfsl.model_selection.figures import Flags, count_outcomes, is_positive, rate_outcomes
from vfsl.params import check_params, documented, param, params_of
from vfsl.parts import ModelShare
from vfsl.values import Array, Floats

_FIFTHS = 5
_GRID = np.round(np.arange(0.05, 1.0, 0.05), 2)


@documented
@dataclass(frozen=True)
class Rule:
    """How the threshold of a model of two classes is found; exactly one of these.

    "Positive" is the second class, the one whose probability predictions show.
    """

    at: float | None = param(
        None, "The threshold itself; a number instead of a table means this.", ge=0, le=1
    )
    cost: float | None = param(
        None,
        "The cheapest threshold, where a missed positive costs this many times a false alarm.",
        gt=0,
    )
    precision: float | None = param(
        None,
        "The threshold that finds the most positives while at least this fraction of the flagged "
        "rows is positive.",
        gt=0,
        le=1,
    )
    top: float | None = param(
        None,
        "The threshold that flags this fraction of rows, those with the highest scores; from 1 on, "
        "this many of the rows that are predicted.",
        gt=0,
    )

    @classmethod
    def read(cls, value: Any) -> Rule:
        """A rule from a number or a table; ConfigError with one sentence for anything else."""
        table = value if isinstance(value, Mapping) else {"at": value}
        known = list(params_of(cls))
        for name in table:
            if name not in known:
                raise ConfigError(
                    f"The threshold must be a number, or a table with one of {', '.join(known)}. "
                    f"Got {name!r} instead."
                )
        rule = cls(**table)
        check_params(rule, where="the threshold")
        if len(rule._given) != 1:
            raise ConfigError(
                f"The threshold must have exactly one of {', '.join(known)}. Got "
                f"{' and '.join(rule._given) or 'none'} instead."
            )
        return rule

    @property
    def _given(self) -> list[str]:
        return [name for name, value in asdict(self).items() if value is not None]

    def __str__(self) -> str:
        (name,) = self._given
        return f"{name} = {getattr(self, name):g}"

    def out_of(self, rows: int) -> Rule:
        """The same rule where a number of top rows is the fraction that it is of so many rows."""
        if self.top is None or self.top < 1:
            return self
        return Rule(top=min(self.top / max(rows, 1), 1.0))

    def choose(self, positive: Flags, scores: Floats) -> float:
        """The threshold: rows are flagged whose score is at least that."""
        if self.at is not None:
            return self.at
        limits, hits, alarms = count_by_threshold(positive, scores)
        flagged = hits + alarms
        if self.cost is not None:
            return float(limits[(alarms + self.cost * (hits[-1] - hits)).argmin()])
        if self.precision is not None:
            rates = np.divide(hits, flagged, out=np.zeros(len(hits)), where=flagged > 0)
            good = np.flatnonzero(rates >= self.precision)
            return float(limits[good[-1] if len(good) else rates.argmax()])
        wanted = (self.top or 0.0) * len(scores)
        return float(limits[np.abs(flagged - wanted).argmin()])

    def flag_honestly(self, positive: Flags, scores: Floats, rng: np.random.Generator) -> Flags:
        """Which rows are flagged, each at the threshold that the other four fifths choose."""
        flagged = np.zeros(len(scores), dtype=bool)
        part = np.empty(len(scores), dtype=np.int64)
        for group in (positive, ~positive):  # each class evenly
            part[rng.permutation(np.flatnonzero(group))] = np.arange(group.sum()) % _FIFTHS
        for number in range(_FIFTHS):
            mine = part == number
            flagged[mine] = scores[mine] >= self.choose(positive[~mine], scores[~mine])
        return flagged


DEFAULT = Rule(at=0.5)


def count_by_threshold(positive: Flags, scores: Floats) -> tuple[Floats, Floats, Floats]:
    """Every threshold that flags another set of rows, from the highest, with hits and alarms.

    The first one flags no row, the last one all. A threshold lies midway between two scores.
    """
    if not len(scores):
        return np.array([0.5]), np.zeros(1), np.zeros(1)
    order = np.argsort(-scores, kind="stable")
    ordered, up = scores[order], np.cumsum(positive[order])
    ends = np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)
    values = ordered[ends]
    middles = (values[:-1] + values[1:]) / 2
    middles = np.where(middles > values[1:], middles, values[:-1])
    nobody = np.nextafter(max(1.0, values[0]), np.inf) if values[0] >= 1 else (values[0] + 1) / 2
    limits = np.concatenate([[nobody], middles, [min(values[-1], 0.0)]])
    hits = np.concatenate([[0], up[ends]]).astype(np.float64)
    alarms = np.concatenate([[0], ends + 1]) - hits
    return limits, hits, alarms


def list_thresholds(
    positive: Flags, scores: Floats, chosen: float, cost: float | None = None
) -> list[dict[str, Any]]:
    """A line per threshold in steps of 0.05 and for the chosen one: counts, rates, and the cost."""
    lines = []
    for limit in sorted({*_GRID.tolist(), chosen}):
        counts = count_outcomes(positive, scores >= limit)
        line: dict[str, Any] = {"threshold": limit, "chosen": limit == chosen}
        line |= {**counts, **rate_outcomes(counts)}
        if cost is not None:
            line["cost"] = counts["false alarms"] + cost * counts["misses"]
        lines.append(line)
    return lines


def fit_threshold(
    share: ModelShare, rule: Rule, positive: Flags, scores: Floats, predicted: int, rows: str
) -> ModelShare:
    """The label holder's share with the threshold that a rule chooses, for later predictions.

    Parameters
    ----------
    positive, scores : arrays
        Of the rows that choose.
    predicted : int
        How many rows a number of top ones is out of.
    rows : str
        Which rows choose: "held-out rows".
    """
    inner = rule.out_of(predicted)
    kept: dict[str, Any] = {"value": inner.choose(positive, scores), "rule": str(rule)}
    kept["terms"] = {name: getattr(inner, name) for name in inner._given}
    kept["rows"] = "" if rule.at is not None else f"{len(scores):,} {rows}"
    return replace(share, state={**share.state, THRESHOLD: kept})


def tell_threshold(share: ModelShare, column: str) -> str:
    """From which probability on a model predicts its second class, and why; empty without one."""
    kept = share.state.get(THRESHOLD)
    if kept is None:
        return ""
    name = share.state["classes"][1]
    text = f"Predicted is {column} = {name} from probability {kept['value']:.3g} on"
    return text + (
        f": {kept['rule']}, chosen on {kept['rows']}." if kept["rows"] else ", as given."
    )


def choose_threshold(
    model: Estimator,
    fed: Federation,
    *,
    at: float | None = None,
    cost: float | None = None,
    precision: float | None = None,
    top: float | None = None,
) -> dict[str, float]:
    """Give a fitted model of two classes a threshold, chosen on the aligned rows of ``fed``.

    Use rows that the model was not trained on. From then on `predict` and `score` go by it, and
    `save_model` saves it with the label holder's share.

    Parameters
    ----------
    model : Estimator
        Fitted.
    fed : Federation
    at, cost, precision, top
        One of them, as in `Rule`.

    Returns
    -------
    dict
        The threshold; the confusion matrix, precision and recall, each fifth of the rows judged at
        the threshold that the others choose.
    """
    given = {"at": at, "cost": cost, "precision": precision, "top": top}
    rule = Rule.read({name: value for name, value in given.items() if value is not None})
    held = model.held_share
    check_two_classes(held.state.get("classes"))
    chances = model.predict_proba(fed)[:, 1]
    target = np.asarray(fed.parts(model.label_)[model.label_[0]].target)
    known = ~pd.isna(target)
    positive, scores = is_positive(target[known], model.classes_), chances[known]
    if not len(scores):
        raise ConfigError("There is no row with a known label to choose a threshold on.")
    fitted = fit_threshold(held, rule, positive, scores, len(chances), "rows")
    model.shares_[model.label_[0]] = fitted
    rng, inner = fed.private_rng(model.label_[0], "threshold"), rule.out_of(len(chances))
    counts = count_outcomes(positive, inner.flag_honestly(positive, scores, rng))
    return {"threshold": fitted.state[THRESHOLD]["value"], **counts, **rate_outcomes(counts)}


def check_two_classes(classes: Array | None) -> None:
    """Refuse a threshold where there is nothing that it could divide."""
    if classes is None or len(classes) != 2:
        what = "numbers" if classes is None else f"{len(classes)} classes"
        raise ConfigError(f"A threshold is for a label with two classes. Got {what} instead.")
