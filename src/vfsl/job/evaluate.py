"""Judge trained models on held-out rows, beside what the label holder can do alone.

Every party scores the held-out rows of its own table by its share of each model; the label holder
gets the scores and judges them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vfsl.data import write_table
from vfsl.errors import ConfigError, DataError
from vfsl.estimators.base import THRESHOLD
from vfsl.job.alone import order_chances, predict_alone, rank_by_marks
from vfsl.job.judging import AUC, Floats, Scores, measures_for
from vfsl.job.verdict import Question, Way, ask, ask_all, give_headline
from vfsl.model_selection.figures import (
    count_outcomes,
    describe_residuals,
    describe_scores,
    rate_outcomes,
)
from vfsl.model_selection.thresholds import DEFAULT, Rule, list_thresholds
from vfsl.parts import ModelShare, Part
from vfsl.values import Array

Tell = Callable[[str, int, int], None]  # a stage, how much of it is done, of how much
_FEWEST_FOR_RANKING = 20


def judge(
    label: tuple[str, str],
    test: Part,
    train: Part,
    answers: Mapping[str, tuple[Array, Array | None]],
    bootstrap: int,
    level: float,
    rng: np.random.Generator,
    ways: Mapping[str, Way] | None = None,
    tell: Tell | None = None,
    cuts: Mapping[str, Cut] | None = None,
    bands: int = 10,
) -> dict[str, Any]:
    """Metrics of models of one label and of baselines, as plain values.

    Parameters
    ----------
    label : (party, column)
    test, train : Part
        The label holder's rows: held out; and all others, also those of no other party.
    answers : mapping of name to (answer, classes)
        For the test rows: numbers and None, or probabilities and the classes they are of.
    bootstrap : int
        How many samples.
    level : float
        Of the intervals.
    ways : mapping of name to Way
        How each model was trained; on common rows by default.
    tell : callable, optional
        Hears how far it is.
    cuts : mapping of name to Cut
        Models with a threshold of their own.
    bands : int
        How many score bands.
    """
    holder, column = label
    numbers = {classes is None for _, classes in answers.values()}
    if len(numbers) > 1:
        raise ConfigError(
            f"Models of label {column!r} predict numbers and classes; evaluate them in steps of "
            "their own."
        )
    truth = np.asarray(test.target)
    known = ~pd.isna(truth)
    if known.sum() < 2:
        raise DataError(
            f"Label {column!r} of party {holder} is known in {int(known.sum())} of {len(truth)} "
            "rows held out for testing; at least 2 are needed."
        )
    taught = np.concatenate([np.asarray(train.target), np.asarray(train.rest_target)])
    own, taught = train.all_rows[~pd.isna(taught)], taught[~pd.isna(taught)]
    classes = None if numbers == {True} else sorted({*taught.tolist(), *truth[known].tolist()})
    judged = {
        name: _in_common_order(answer, given, classes)[known]
        for name, (answer, given) in answers.items()
    }
    if tell is not None:
        tell("models of own columns", 0, 1)
    alone = predict_alone(
        train.table, own, _to_codes(taught, classes), test.rows[known], classes, rng
    )
    measures = measures_for(None if classes is None else len(classes))
    heard = None if tell is None else (lambda done, total: tell("bootstrap samples", done, total))
    codes = _to_codes(truth[known], classes)
    scores = Scores(
        codes,
        {**judged, **alone},
        measures,
        bootstrap,
        level,
        rng,
        heard,
    )
    lines = [
        {"model": name, "measure": measure, **asdict(scores.interval(name, measure))}
        for name in (*judged, *alone)
        for measure in measures
    ]
    ways = ways or {name: Way(name, "common") for name in judged}
    # Which baseline is best is seen on the same rows, in its favour.
    questions = ask_all(scores, ways, list(alone), measures[0], int(known.sum()))
    verdict, tone = give_headline(questions, scores, holder, measures[0])
    return {
        "label": [holder, column],
        "rows": "held out",
        "test rows": int(known.sum()),
        "classes": None if classes is None else [_to_plain(name) for name in classes],
        "metrics": lines,
        "gains": compare_with_alone(scores, list(judged), list(alone), measures),
        "questions": [one.to_plain() for one in questions],
        "verdict": verdict,
        "tone": tone,
        "figures": {
            name: describe_answer(codes, answer, classes, (cuts or {}).get(name, Cut()), bands, rng)
            for name, answer in judged.items()
        },
    }


@dataclass(frozen=True)
class Cut:
    """The threshold of a model, the rule that chose it, and on which rows."""

    value: float = 0.5
    rule: Rule = DEFAULT
    name: str = str(DEFAULT)
    rows: str = ""

    @classmethod
    def of(cls, share: ModelShare) -> Cut:
        """The threshold that the label holder's share has, or one half."""
        kept = share.state.get(THRESHOLD)
        if kept is None:
            return cls()
        return cls(kept["value"], Rule(**kept["terms"]), kept["rule"], kept["rows"])


def describe_answer(
    truth: Array,
    answer: Floats,
    classes: Sequence[Any] | None,
    cut: Cut,
    bands: int,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """What is read off one model's answers: bands, confusion, residuals, whatever fits.

    ``truth`` are numbers or codes of classes. A rule's confusion is that of `flag_honestly`.
    """
    if classes is None:
        return describe_residuals(truth, answer, bands)
    if len(classes) != 2:
        codes = np.ravel_multi_index((truth, answer.argmax(axis=1)), (len(classes),) * 2)
        counts = np.bincount(codes, minlength=len(classes) ** 2).reshape(len(classes), -1)
        return {"rows": len(truth), "confusion": counts.tolist()}
    positive, scores = truth == 1, answer[:, 1]
    counted = count_outcomes(positive, cut.rule.flag_honestly(positive, scores, rng))
    threshold = {"value": cut.value, "rule": cut.name, "rows": cut.rows}
    return {
        **describe_scores(positive, scores, bands),
        "threshold": {**threshold, **counted, **rate_outcomes(counted)},
        "thresholds": list_thresholds(positive, scores, cut.value, cut.rule.cost),
    }


def write_figures(figures: Mapping[str, Mapping[str, Any]], folder: Path, ending: str) -> None:
    """Score bands and thresholds of all models, each a table; none where there are no bands.

    ``ending`` is the number of the step and the form of the file: "3.csv".
    """
    for name in ("bands", "thresholds"):
        lines = [
            {"model": model, **line} for model, one in figures.items() for line in one.get(name, [])
        ]
        if lines:
            write_table(pd.DataFrame(lines), folder / f"{name}-{ending}")


def compare_with_alone(
    scores: Scores, names: Sequence[str], alone: Sequence[str], measures: Sequence[str]
) -> list[dict[str, Any]]:
    """Each model's gain over the best baseline, by measure."""
    gains = []
    for measure in measures:
        best = scores.best(alone, measure)
        gains += [
            {
                "model": name,
                "measure": measure,
                "over": best,
                **asdict(scores.gain(name, best, measure)),
            }
            for name in names
        ]
    return gains


def judge_ranking(
    part: Part,
    places: Array,
    ranking: Floats,
    marked: Array,
    bootstrap: int,
    level: float,
    rng: np.random.Generator,
) -> Question | None:
    """Whether VFPU ranks the hidden positives better than own columns do from the same marks.

    VFPU learns from no label, so every unmarked row whose label is known can judge it. The positive
    class is the one that most marked rows have. None where too few rows are known.

    Parameters
    ----------
    part : Part
        The label holder's common rows.
    places : array of int
        Those of them that VFPU scored.
    ranking : array
        Its scores.
    marked : array of bool
        Which common rows are known positives.
    """
    target = np.asarray(part.target, dtype=object)
    known = ~pd.isna(target)
    of_marked = pd.Series(target[marked & known])
    if of_marked.empty or len(set(target[known])) != 2:
        return None
    positive = of_marked.mode().iloc[0]
    own = rank_by_marks(part.table, part.rows, marked)
    usable = known[places]
    truth = (target[places] == positive)[usable].astype(np.int64)
    if own is None or min(truth.sum(), (1 - truth).sum()) < _FEWEST_FOR_RANKING:
        return None
    answers = {
        name: np.column_stack([1 - values, values])
        for name, values in (
            ("VFPU", ranking[usable]),
            ("own columns with the same marks", own[places][usable]),
        )
    }
    scores = Scores(truth, answers, (AUC,), bootstrap, level, rng)
    asks, (about, over) = "Does VFPU find hidden positives better?", list(answers)
    return ask(asks, scores, about, over, AUC, len(truth), "unmarked")


def _in_common_order(answer: Array, given: Array | None, classes: Sequence[Any] | None) -> Floats:
    if classes is None or given is None:
        return np.asarray(answer, dtype=np.float64)
    places = [list(classes).index(name) for name in given.tolist()]
    return order_chances(answer, places, len(classes))


def _to_codes(labels: Array, classes: Sequence[Any] | None) -> Array:
    if classes is None:
        return labels.astype(np.float64)
    codes = {name: code for code, name in enumerate(classes)}
    return np.array([codes[name] for name in labels.tolist()], dtype=np.int64)


def _to_plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
