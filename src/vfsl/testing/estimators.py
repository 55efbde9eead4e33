"""What every federated estimator must do: checks for the author of one, run on all of ours.

Each check takes an :class:`EstimatorCase` and raises AssertionError where the estimator breaks the
contract. ``ESTIMATOR_CHECKS`` names them all. Parties run in this process, without encryption where
the case names no scheme::

    case = EstimatorCase(lambda: MyTrees(n_estimators=2))

    @pytest.mark.parametrize("check", ESTIMATOR_CHECKS.values(), ids=ESTIMATOR_CHECKS.keys())
    def test_contract(check):
        check(case)
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vfsl.align import RowPlan, RowShare
from vfsl.data import Kind, PartyTable
from vfsl.errors import ConfigError
from vfsl.federation import Federation
from vfsl.testing.claims import (
    require,
    require_refusal,
    require_same_frames,
    require_untouched_randomness,
)
from vfsl.values import Array

__all__ = ["ESTIMATOR_CHECKS", "EstimatorCase"]

# Writes a fitted model into a folder, and reads it back.
Saved = Callable[[Any, Path], Any]
LABEL = HOLDER, GOAL = "C", "goal"
KEYS = "K"
# Classes in the order of their names, from little to much of what causes them; none: numbers.
TARGETS: dict[str, tuple[str, ...]] = {
    "two classes": ("ill-of-c", "well-of-c"),
    "three classes": ("ill-of-c", "so-so-of-c", "well-of-c"),
    "numbers": (),
}
# Names that can be told from everything that a share or a message has of its own.
COLUMNS = {
    "C": ("c-height", "c-weight", "c-town"),
    "B": ("b-income", "b-visits", "b-hobby", "b-debt"),
}
# The same columns in the same order, in the hands of others.
MOVED = {"C": (*COLUMNS["C"], "b-income", "b-visits"), "B": ("b-hobby", "b-debt")}
THREE = {"C": COLUMNS["C"], "B": ("b-income", "b-visits"), "D": ("b-hobby", "b-debt")}


def pooled_columns(rows: int, seed: int = 0) -> tuple[pd.DataFrame, Array]:
    """All parties' columns side by side, some cells missing, and a number that they cause."""
    source = np.random.default_rng(seed)
    common = source.normal(size=rows)
    town = source.choice(["c-north", "c-south", "c-west"], rows)
    hobby = source.choice(["b-chess", "b-rowing", "b-stamps"], rows, p=[0.5, 0.3, 0.2])
    numbers = {
        name: np.round(common + source.normal(size=rows), 6)
        for name in ("c-height", "c-weight", "b-income", "b-debt")
    }
    visits = source.integers(0, 5, rows)
    cause = 1.5 * numbers["c-height"] + 2.0 * numbers["b-income"] - numbers["b-debt"]
    cause = cause + 1.5 * (town == "c-north") + 1.5 * (hobby == "b-rowing") + 0.5 * visits
    frame = pd.DataFrame({**numbers, "b-visits": visits, "c-town": town, "b-hobby": hobby})
    frame["c-weight"] = frame["c-weight"].mask(source.random(rows) < 0.1)
    frame["b-hobby"] = frame["b-hobby"].mask(source.random(rows) < 0.1)
    order = [name for party in ("C", "B") for name in COLUMNS[party]]
    return frame[order], np.asarray(cause + 0.5 * source.normal(size=rows))


class Trial(Federation):
    """A federation of a check; ``results`` are what the parties ended the last step with."""

    results: dict[str, Any]

    def play(self, *given: Any, **more: Any) -> dict[str, Any]:
        self.results = super().play(*given, **more)
        return self.results


@dataclass(eq=False)
class EstimatorCase:
    """An estimator to be checked: ``fit(fed, label, weights)``, ``decision_function(fed)``,
    ``predict(fed)``, of a classifier ``predict_proba(fed)``, and ``shares_`` by party.

    Parameters
    ----------
    make : callable
        Makes a fresh, unfitted estimator with settings small enough to fit many times.
    target : {"two classes", "three classes", "numbers"}
    draws : bool
        Whether training draws at random. Where it does not, neither the seed nor the order of rows
        may matter.
    weights : bool
        Whether ``fit`` takes row weights.
    tolerance : float
        How far answers may differ, as a fraction of their deviation, where only rounding differs:
        other parties hold a column, rows come in another order.
    left_out : float, optional
        The same for rows with a weight of 0 against rows that are not there. None: they differ,
        since encodings are learned from all rows.
    saved : callable, optional
        ``saved(model, folder)`` writes a fitted model and returns what it reads back.
    schemes : list of (str, int)
        Schemes and their security under which shares must be those of the plain one, bit for bit.
    rows : int
    """

    make: Callable[[], Any]
    _: KW_ONLY
    target: str = "two classes"
    draws: bool = False
    weights: bool = True
    tolerance: float = 0.0
    left_out: float | None = None
    saved: Saved | None = None
    schemes: Sequence[tuple[str, int]] = ()
    rows: int = 200

    def __post_init__(self) -> None:
        if self.target not in TARGETS:
            raise ConfigError(
                f"The target parameter of EstimatorCase must be one of {', '.join(TARGETS)}. "
                f"Got {self.target!r} instead."
            )
        self.classes = TARGETS[self.target]
        self.frame, cause = pooled_columns(self.rows)
        self.goal = np.array((10 * cause + 40).tolist(), dtype=object)
        if self.classes:
            edges = np.quantile(cause, np.linspace(0.0, 1.0, len(self.classes) + 1)[1:-1] ** 0.7)
            self.goal = np.array(self.classes, dtype=object)[np.searchsorted(edges, cause)]

    def other_goal(self, value: Any) -> Any:
        """Another class, or a number far off."""
        if not self.classes:
            return value + 25.0
        return self.classes[self.classes.index(value) - 1]

    def trial(
        self,
        *,
        frame: pd.DataFrame | None = None,
        goal: Array | None = None,
        columns: Mapping[str, Sequence[str]] = COLUMNS,
        rows: Array | None = None,
        seed: int = 0,
        scheme: tuple[str, int] = ("plain", 128),
    ) -> Trial:
        """A federation of the case, where some of it may differ: who has which columns, which rows
        take part in which order."""
        frame = self.frame if frame is None else frame
        ids = [f"person-{row}" for row in range(len(frame))]
        tables = {
            party: PartyTable.from_frame(frame[list(names)].assign(id=ids), party=party, id="id")
            for party, names in columns.items()
        }
        # Beside the checks of tables: a label that cannot be used is the estimator's to refuse.
        own, values = tables[HOLDER], pd.Series(self.goal if goal is None else goal, dtype=object)
        kinds = {**own.kinds, GOAL: Kind.LABEL}
        tables[HOLDER] = replace(own, frame=own.frame.assign(**{GOAL: values}), kinds=kinds)
        made = Trial(tables, scheme=scheme[0], security=scheme[1], seed=seed, keep_views=True)
        chosen, none = np.arange(len(frame)) if rows is None else rows, np.zeros(0, dtype=np.int64)
        made.plan = RowPlan({party: RowShare(party, "plan", chosen, none) for party in tables})
        return made

    def fit(self, trial: Trial, weights: Array | None = None) -> Any:
        if weights is None:
            return self.make().fit(trial, label=LABEL)
        return self.make().fit(trial, label=LABEL, weights=weights)

    def answer(self, model: Any, trial: Trial) -> Array:
        """Probabilities, or numbers in units of the target."""
        found = model.predict_proba(trial) if self.classes else model.predict(trial)
        return np.asarray(found, dtype=np.float64)

    @cached_property
    def fitted(self) -> Any:
        """Fitted once: checks may score with it, and not fit it again."""
        return self.fit(self.trial())

    @cached_property
    def answers(self) -> Array:
        return self.answer(self.fitted, self.trial())

    def shares(self, model: Any) -> dict[str, dict[str, Any]]:
        return {party: share.to_dict() for party, share in model.shares_.items()}


# ---- checks --------------------------------------------------------------------------------------


# A fresh model may know the scores of its training rows, where a loaded one opens them, rounded.
ROUNDED = 1e-5


def _close(case: EstimatorCase, one: Array, other: Array, sentence: str, far: float = -1) -> None:
    """Equal up to the tolerance of the case, or ``far``."""
    require(one.shape == other.shape, f"{sentence} Shapes are {one.shape} and {other.shape}.")
    allowed = (case.tolerance if far < 0 else far) * max(float(np.std(one)), 1e-12)
    gap = float(np.max(np.abs(one - other), initial=0.0))
    require(gap <= allowed, f"{sentence} The largest gap is {gap:.3g}; allowed is {allowed:.3g}.")


def learns(case: EstimatorCase) -> None:
    """Answers for training rows go with the target, and columns of every party matter."""
    answers = case.answers
    require(len(answers) == len(case.goal), "There must be one answer for each row.")
    require(bool(np.isfinite(answers).all()), "Answers must be finite numbers.")
    if case.classes:
        require(
            answers.shape[1] == len(case.classes) and bool(np.allclose(answers.sum(axis=1), 1.0)),
            "Probabilities must be a column for each class that add up to 1.",
        )
        goal, found = (case.goal == case.classes[-1]).astype(float), answers[:, -1]
    else:
        goal, found = case.goal.astype(float), answers
    require(
        float(np.std(found)) > 0 and float(np.corrcoef(found, goal)[0, 1]) > 0.5,
        "Answers for the rows of training must correlate with their targets by more than 0.5.",
    )
    shuffled = case.frame.copy()
    names = list(COLUMNS["B"])
    shuffled[names] = shuffled[names].sample(frac=1.0, random_state=0).to_numpy()
    other = case.answer(case.fitted, case.trial(frame=shuffled.astype(case.frame.dtypes)))
    require(not np.allclose(other, answers), "What the feature holder has does not matter.")


def repeats(case: EstimatorCase) -> None:
    """The same seed gives the same shares and answers; another seed others, if training draws."""
    again = case.fit(case.trial())
    require(case.shares(case.fitted) == case.shares(again), "Two fits with one seed differ.")
    _close(case, case.answers, case.answer(case.fitted, case.trial()), "Answers differ.", 0.0)
    other = case.shares(case.fit(case.trial(seed=1)))
    if case.draws:
        require(other != case.shares(again), "Two seeds give the same shares; they are not used.")
    else:
        require(other == case.shares(again), "Training does not draw, but the seed matters.")


def minds_no_owner(case: EstimatorCase) -> None:
    """Answers are the same whoever holds a column: with another cut, and with a third party."""
    for columns in (MOVED, THREE):
        trial = case.trial(columns=columns)
        found = case.answer(case.fit(trial), trial)
        _close(case, case.answers, found, f"With columns at {', '.join(columns)} answers differ.")


def minds_no_scheme(case: EstimatorCase) -> None:
    """Shares are the same under encryption as without, bit for bit."""
    for scheme in case.schemes:
        found = case.shares(case.fit(case.trial(scheme=scheme)))
        require(found == case.shares(case.fitted), f"Under {scheme[0]!r} other shares are learned.")


def follows_rows(case: EstimatorCase) -> None:
    """A row's answer does not depend on which others are asked for, or in which order."""
    order = np.random.default_rng(4).permutation(len(case.goal))[:70]
    found = case.answer(case.fitted, case.trial(rows=order))
    _close(case, case.answers[order], found, "Other rows in another order have other answers.")


def minds_no_order_of_training(case: EstimatorCase) -> None:
    """Where training does not draw, the common order of rows does not matter."""
    if case.draws:
        return
    order = np.random.default_rng(5).permutation(len(case.goal))
    model = case.fit(case.trial(rows=order))
    found = case.answer(model, case.trial())
    _close(case, case.answers, found, "Trained on rows in another order, answers differ.")


def weighs_rows(case: EstimatorCase) -> None:
    """Rows without weight have no say; weights count relative to their mean; they do matter."""
    if not case.weights:
        return
    source = np.random.default_rng(6)
    weights = source.uniform(0.5, 2.0, len(case.goal)) * (source.random(len(case.goal)) < 0.7)
    found = case.answer(case.fit(case.trial(), weights), case.trial())
    changed = case.goal.copy()
    for row in np.flatnonzero(weights == 0):
        changed[row] = case.other_goal(changed[row])
    other = case.answer(case.fit(case.trial(goal=changed), weights), case.trial())
    _close(case, found, other, "The label of a row without weight matters.")
    other = case.answer(case.fit(case.trial(), 4 * weights), case.trial())
    _close(case, found, other, "Four times all weights give other answers.")
    require(not np.allclose(found, case.answers), "Row weights change nothing.")
    ones = case.answer(case.fit(case.trial(), np.ones(len(case.goal))), case.trial())
    _close(case, case.answers, ones, "Weights of 1 give other answers than none.")
    if case.left_out is not None:
        # Missing cells are imputed by what all rows have, with weight or without.
        whole, rows = case.frame.ffill().bfill(), np.flatnonzero(weights)
        asked = case.trial(frame=whole)
        found = case.answer(case.fit(asked, weights), asked)
        model = case.fit(case.trial(frame=whole, rows=rows), weights[rows])
        sentence = "Rows without weight are not as rows that are not there."
        _close(case, found, case.answer(model, asked), sentence, case.left_out)


def takes_rows_without_a_label(case: EstimatorCase) -> None:
    """Rows whose label is unknown take part, have no say, and get an answer."""
    unknown = case.goal.copy()
    unknown[::3] = None
    trial = case.trial(goal=unknown)
    found = case.answer(case.fit(trial), trial)
    require(
        len(found) == len(unknown) and bool(np.isfinite(found).all()),
        "Rows without a label must get answers as well.",
    )


def answers_for_new_rows(case: EstimatorCase) -> None:
    """Categories and missing cells that training did not have are no reason to fail."""
    frame = case.frame.copy()
    frame.loc[:20, "b-hobby"] = "b-flying"
    frame.loc[10:30, "c-town"] = None
    frame.loc[15:40, "b-income"] = np.nan
    found = case.answer(case.fitted, case.trial(frame=frame))
    require(bool(np.isfinite(found).all()), "Rows with odd cells must get answers as well.")
    _close(case, case.answers[41:], found[41:], "Odd cells of some rows change other rows.")


def answers_the_label_holder_only(case: EstimatorCase) -> None:
    """Shares are of the parties with data, each its own; scores come out at the label holder."""
    old, new = np.split(np.arange(len(case.goal)), [3 * len(case.goal) // 4])
    trial = case.trial(rows=old)
    model = case.fit(trial)
    require(
        set(model.shares_) == set(COLUMNS) and trial.results.get(KEYS) is None,
        f"Shares must be of {set(COLUMNS)}, none of the key holder. Got {set(model.shares_)}.",
    )
    for party, share in model.shares_.items():
        require(share.party == party, f"The share of {party!r} says that it is {share.party!r}'s.")
    trial = case.trial(rows=new)
    model.decision_function(trial)
    others = [party for party, found in trial.results.items() if found is not None]
    require(others == [HOLDER], f"Scores came out at {others}; expected {HOLDER!r} only.")


def keeps_columns_at_home(case: EstimatorCase) -> None:
    """No share or message has another party's column names, categories, ids, labels or cells."""
    old, new = np.split(np.arange(len(case.goal)), [3 * len(case.goal) // 4])
    trial, asked = case.trial(rows=old), case.trial(rows=new)
    model = case.fit(trial)
    model.decision_function(asked)
    for party, content in case.shares(model).items():
        text = json.dumps(content)
        foreign = _words(trial, *(other for other in COLUMNS if other != party))
        foreign += ["person-", *(() if party == HOLDER else (LABEL[1], *case.classes))]
        found = [word for word in foreign if word in text]
        require(not found, f"The share of {party!r} holds {found[:3]} of another party.")
    secrets = [word.encode() for word in (*_words(trial, "C", "B"), "person-", *case.classes)]
    for party in COLUMNS:
        for name in trial.tables[party].features:
            cells = case.frame[name]
            if cells.dtype == np.float64:
                known = cells.dropna().iloc[:20]
                secrets += [
                    np.array(cell, kind).tobytes() for cell in known for kind in ("<d", ">d")
                ]
    for sight in (*trial.transcript.sights, *asked.transcript.sights):
        crossed = [secret for secret in secrets if secret in sight.body]
        require(not crossed, f"Message {sight.name!r} of {sight.sender!r} carries {crossed[:3]}.")


def _words(trial: Trial, *parties: str) -> list[str]:
    """Column names, categories and decimal numbers of parties, as text."""
    words = []
    for party in parties:
        for name in trial.tables[party].features:
            cells = trial.tables[party].column(name).dropna()
            words.append(name)
            if cells.dtype == np.float64:
                words += [repr(float(cell)) for cell in cells]
            elif cells.dtype.kind not in "iu":  # small whole numbers are everywhere
                words += sorted(set(cells))
    return words


def leaves_the_world_alone(case: EstimatorCase) -> None:
    """Neither tables nor weights nor global generators change."""
    trial, weights = case.trial(), np.linspace(0.5, 2.0, len(case.goal))
    before = {party: table.frame.copy(deep=True) for party, table in trial.tables.items()}
    given = weights.copy()
    model = case.make()
    with require_untouched_randomness():
        model.fit(trial, label=LABEL, **({"weights": given} if case.weights else {}))
        case.answer(model, trial)
    for party, frame in before.items():
        require_same_frames(
            frame, trial.tables[party].frame, f"The table of {party!r} has changed."
        )
    require(bool((weights == given).all()), "Row weights have been changed.")


def saves_and_loads(case: EstimatorCase) -> None:
    """Shares are plain JSON values; what is read back answers as what was written."""
    for party, share in case.shares(case.fitted).items():
        again = json.loads(json.dumps(share))
        require(again == share, f"The share of {party!r} is not made of JSON values.")
    if case.saved is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        loaded = case.saved(case.fitted, Path(folder))
    require(loaded is not case.fitted, "Loading must make a model anew.")
    require(case.shares(loaded) == case.shares(case.fitted), "The loaded shares differ.")
    found = case.answer(loaded, case.trial())
    far = max(case.tolerance, ROUNDED)
    _close(case, case.answers, found, "The loaded model answers otherwise.", far)


def refuses_bad_input(case: EstimatorCase) -> None:
    """What cannot be used is refused in a sentence, not by an error from deep inside."""
    rows = len(case.goal)
    require_refusal("nothing fitted", lambda: case.make().decision_function(case.trial()))
    require_refusal("nothing fitted", lambda: case.answer(case.make(), case.trial()))
    unknown = np.full(rows, None, dtype=object)
    require_refusal("no known label", lambda: case.fit(case.trial(goal=unknown)))
    unknown[0] = case.goal[0]
    require_refusal("one known label", lambda: case.fit(case.trial(goal=unknown)))
    if case.classes:
        same = np.full(rows, case.classes[0], dtype=object)
        require_refusal("one class only", lambda: case.fit(case.trial(goal=same)))
    else:
        words = np.full(rows, "tall", dtype=object)
        require_refusal("words for numbers", lambda: case.fit(case.trial(goal=words)))


def refuses_bad_weights(case: EstimatorCase) -> None:
    """Weights must be finite numbers of at least 0 for all rows, above 0 for some with a label."""
    if not case.weights:
        return
    rows = len(case.goal)
    bad = {
        "a negative weight": np.where(np.arange(rows) == 3, -1.0, 1.0),
        "a weight that is not a number": np.where(np.arange(rows) == 3, np.nan, 1.0),
        "an infinite weight": np.where(np.arange(rows) == 3, np.inf, 1.0),
        "weights that are all 0": np.zeros(rows),
        "too few weights": np.ones(rows - 1),
        "words for weights": np.full(rows, "much"),
    }
    for what, weights in bad.items():
        require_refusal(what, partial(case.fit, case.trial(), weights))
    unknown = case.goal.copy()
    unknown[::2] = None
    weights = np.where(np.arange(rows) % 2 == 0, 1.0, 0.0)
    require_refusal(
        "weight on rows without a label only", partial(case.fit, case.trial(goal=unknown), weights)
    )


ESTIMATOR_CHECKS: dict[str, Callable[[EstimatorCase], None]] = {
    check.__name__: check
    for check in (
        learns,
        repeats,
        minds_no_owner,
        minds_no_scheme,
        follows_rows,
        minds_no_order_of_training,
        weighs_rows,
        takes_rows_without_a_label,
        answers_for_new_rows,
        answers_the_label_holder_only,
        keeps_columns_at_home,
        leaves_the_world_alone,
        saves_and_loads,
        refuses_bad_input,
        refuses_bad_weights,
    )
}
