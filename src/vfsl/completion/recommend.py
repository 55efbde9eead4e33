"""Which way to train with completed columns: judged on held-out common rows, and blended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.special import expit, log_softmax, softmax

from vfsl.channel import Channel, run_together
from vfsl.completion.bases import of_model
from vfsl.completion.columns import filled_by_baseline
from vfsl.completion.comparing import comparison
from vfsl.completion.completed import Completion, whole_table
from vfsl.completion.downstream import WAYS, Downstream, Trained, Way, label_of
from vfsl.completion.ensembles import blank
from vfsl.completion.selection import Floats
from vfsl.completion.sides import Side
from vfsl.data import PartyTable
from vfsl.errors import ConfigError
from vfsl.estimators.trees import XGB, TreeModel
from vfsl.parts import Part, Roles, Rows, places_in_training, scores_with_kept
from vfsl.values import Array

# How strongly blend weights are drawn to their start, in rows' worth of loss: a few hundred common
# rows cannot tell ways apart that differ by a hundredth of AUC, and the mean of several is safe.
PULL = 20.0


@dataclass(eq=False)
class Advice:
    """What to train, and by how much it is better.

    Attributes
    ----------
    table : DataFrame
        For each way, and for the blend: its score on held-out common rows, its loss, the error of
        the loss beside the best way, and its weight in the blend.
    weights : Series
        The blend.
    measure : str
        "AUC", "accuracy" or "R²".
    gain : float
        Score of the blend above the label holder's own columns alone.
    text : str
        The same as a sentence.
    """

    table: pd.DataFrame
    weights: pd.Series[float]
    measure: str
    gain: float
    text: str
    label: tuple[str, str]
    model: Downstream
    trained: Mapping[str, Mapping[str, Trained]]
    classes: Array | None

    def predict(self, fed: Any, way: str | None = None) -> Floats:
        """Scores of the aligned rows of a federation: both parties have these rows.

        Of rows that the ways were trained on the label holder has the scores: only others are
        asked.

        Parameters
        ----------
        fed : Federation
            Aligned; the same parties and columns.
        way : str, optional
            One way instead of the blend.

        Returns
        -------
        array (rows,) or (rows, classes)
            The probability of the second class, of each of several classes, or the expected number.
        """
        given = self.label[0]
        missing = next(party for party in self.trained if party != given)
        roles = _roles(fed, given, missing)
        weights = self.weights if way is None else pd.Series({way: 1.0})
        chosen = {str(name): float(weight) for name, weight in weights.items() if weight > 0}
        names = list(chosen)
        parts = {
            party: Part(fed.tables[party], fed.share(party).overlap) for party in (given, missing)
        }
        places = {name: self._places(name, parts) for name in names}
        new = np.any([each < 0 for each in places.values()], axis=0)
        jobs: dict[str, Callable[[Channel], Any]] = {}
        for party in roles.everyone if new.any() else ():
            part = None
            if party in parts:
                part = Part(parts[party].table, parts[party].rows[new])
            mine = self.trained.get(party, {})
            jobs[party] = partial(
                self.model.score_rows, part=part, trained=mine, roles=roles, ways=names
            )
        settings = {"ways": names, "new rows": int(new.sum())}
        answers, report = fed.run("predict downstream", jobs, settings)
        report()
        found = answers.get(given, {})
        scores = {
            name: self._with_kept(name, np.where(new, -1, places[name]), found.get(name))
            for name in names
        }
        return self._answer(sum(chosen[name] * scores[name] for name in names))

    def predict_alone(self, table: PartyTable) -> Floats:
        """For rows that only the label holder has: by its own columns, without any message.

        Completed columns are functions of these columns, so they would add nothing here.

        Returns
        -------
        array
            As of `predict`.
        """
        given = self.label[0]
        part = Part(table, np.arange(len(table), dtype=np.int64))
        names = [way.name for way in self.model.ways if way.fill is None]
        job = partial(
            self.model.score_rows,
            part=part,
            trained=self.trained[given],
            roles=Roles(given, (), f"no key beside {given}"),
            ways=names,
        )
        return self._answer(run_together({given: job})[given][names[0]])

    def _places(self, name: str, parts: Mapping[str, Part]) -> Rows:
        """Where in the training of a way each row was, −1 for a new one."""
        shares = {
            party: ways[name].share
            for party, ways in self.trained.items()
            if party in parts and name in ways
        }
        present = {party: share for party, share in shares.items() if share is not None}
        taking_part = {party: parts[party] for party in present}
        return places_in_training(present, taking_part, self.label[0])

    def _with_kept(self, name: str, places: Rows, answer: Floats | None) -> Floats:
        """Scores of all rows by a way's model of all rows."""
        held = self.trained[self.label[0]][name].share
        if held is None:
            raise ConfigError(f"The way {name!r} was not trained.")
        kept = None if held.scores is None else of_model(held.scores, held, -1)
        return scores_with_kept(replace(held, scores=kept), places, answer)

    def _answer(self, scores: Any) -> Floats:
        found = np.asarray(scores, dtype=np.float64)
        if self.classes is None:
            return found[:, 0]
        if len(self.classes) == 2:
            return np.asarray(expit(found[:, 0]))
        return np.asarray(softmax(found, axis=1))


def recommend(
    completion: Completion,
    fed: Any,
    given: str,
    missing: str,
    *,
    label: str | None = None,
    base: TreeModel | None = None,
    folds: int = 5,
    ways: Sequence[Way] = WAYS,
) -> Advice:
    """Train every way, judge them on held-out common rows, and blend them.

    Parameters
    ----------
    completion : Completion
    fed : Federation
    given, missing : str
    label : str, optional
        The given party's label; its only one by default.
    base : tree model, optional
        What is trained; small boosted trees by default.
    folds : int
    ways : sequence of Way

    Returns
    -------
    Advice
    """
    table = fed.tables[given]
    column = _label_column(table, label, missing, fed)
    share = fed.share(given)
    side = Side(table, share.overlap, share.rest)
    target, task = label_of(table, column, side.rows)
    model = Downstream(_base(base, task), ways, folds)
    roles = _roles(fed, given, missing)
    theirs = fed.share(missing).overlap
    own: dict[str, dict[str, Any]] = {
        given: {"side": side, "target": target},
        missing: {
            "side": Side(completion.common, np.arange(len(theirs)), np.empty(0, dtype=np.int64)),
            "tables": fills(completion, fed.private_rng(missing, "draws")),
            "confidence": completion.row_confidence.to_numpy(),
        },
    }
    jobs: dict[str, Callable[[Channel], Any]] = {
        party: partial(
            model.train,
            roles=roles,
            rng=fed.private_rng(party, "downstream"),
            **own.get(party, {"side": None}),
        )
        for party in roles.everyone
    }
    settings = {"label": [given, column], "model": model.base.name, "folds": folds}
    settings |= {"ways": [way.name for way in ways], "scheme": roles.scheme}
    trained, report = fed.run("downstream", jobs, settings)
    advice = judged(trained, model, target[: len(side.overlap)], task, (given, column), missing)
    report(
        metrics={name: float(score) for name, score in advice.table["score"].items()},
        details=_compared(advice, trained[given], target[: len(side.overlap)], missing),
    )
    return advice


def _compared(
    advice: Advice, trained: Mapping[str, Trained], truth: Array, missing: str
) -> dict[str, Any]:
    """All ways with bounds, for the report."""
    held = {name: one.held for name, one in trained.items() if one.held is not None}
    weights = advice.weights
    blend = sum(weights[name] * held[name] for name in held if weights[name] > 0)
    classes = advice.classes
    codes = truth.astype(float) if classes is None else np.searchsorted(classes, truth)
    by_fill = {way.fill: way.name for way in reversed(advice.model.ways) if way.rest}
    found = comparison(
        {**held, "blend": np.asarray(blend)},
        codes,
        None if classes is None else len(classes),
        alone=by_fill.get(None),
        missing=by_fill.get("nothing"),
        completed=by_fill.get("gated", by_fill.get("completed")),
        best="blend",
        measure=advice.measure,
        parties=(advice.label[0], missing),
    )
    shares = {str(name): float(weight) for name, weight in weights.items()}
    return found | {"weights": shares, "advice": advice.text}


def fills(completion: Completion, rng: np.random.Generator) -> dict[str, PartyTable]:
    """The missing party's columns for all rows, by what remaining rows carry."""
    names = list(completion.columns)
    completed = whole_table(completion, names)
    others = len(completion.ids)
    means = {
        name: filled_by_baseline(column.target, others, completion.folds, "low", "mean")
        for name, column in completion.columns.items()
    }
    draws = {name: column.drawn(rng) for name, column in completion.columns.items()}
    mean, drawn = (
        whole_table(replace(completion, columns=columns), names) for columns in (means, draws)
    )
    common = len(completion.common)
    weak = [name for name, column in completion.columns.items() if not column.helps]
    return {
        "completed": completed,
        "mean": mean,
        "drawn": drawn,
        "nothing": _without(completed, common, names),
        "gated": _without(completed, common, weak),
    }


def judged(
    trained: Mapping[str, Mapping[str, Trained]],
    model: Downstream,
    truth: Array,
    task: str,
    label: tuple[str, str],
    missing: str,
) -> Advice:
    """Compare the ways on held-out common rows."""
    given = label[0]
    held = {name: one.held for name, one in trained[given].items() if one.held is not None}
    classes = None if task == "regression" else np.unique(truth)
    codes = truth.astype(float) if classes is None else np.searchsorted(classes, truth)
    parts = [way.name for way in model.ways if way.blends and way.name in held]
    scores = np.stack([held[name] for name in parts])
    start = start_weights([way for way in model.ways if way.name in parts])
    weights = blend_weights(scores, codes, classes is not None, start)
    blended = np.tensordot(weights, scores, axes=1)
    every = {**held, "blend": blended}
    losses = {name: row_losses(one, codes, classes is not None) for name, one in every.items()}
    best = min(held, key=lambda name: float(losses[name].mean()))
    measure = _measure_name(classes)
    table = pd.DataFrame(
        {
            "score": {name: _measured(one, codes, classes) for name, one in every.items()},
            "loss": {name: float(loss.mean()) for name, loss in losses.items()},
            "loss above the best": {
                name: float((loss - losses[best]).mean()) for name, loss in losses.items()
            },
            "error": {
                name: float((loss - losses[best]).std(ddof=1) / np.sqrt(len(loss)))
                for name, loss in losses.items()
            },
        }
    )
    named = pd.Series(weights, index=parts, name="weight").reindex(list(held), fill_value=0.0)
    table["weight"] = named.reindex(table.index)
    alone = next((way.name for way in model.ways if way.fill is None), None)
    scored = table["score"].astype(float)
    gain = float(scored["blend"] - scored[alone]) if alone is not None else float("nan")
    shares = {party: trained[party] for party in (given, missing)}
    text = _sentence(table, named, measure, gain, given, missing)
    return Advice(table, named, measure, gain, text, label, model, shares, classes)


def start_weights(ways: Sequence[Way]) -> Floats:
    """Equal weights, but ways that fill by the same means share one: they err together."""
    family = ["completed" if way.fill == "gated" else way.fill for way in ways]
    sizes = np.array([family.count(name) for name in family], dtype=np.float64)
    return np.asarray(1.0 / (sizes * len(set(family))))


def blend_weights(
    scores: Floats, codes: Array, classes: bool, start: Floats, pull: float = PULL
) -> Floats:
    """Weights of ways, adding up to 1, with the least held-out loss of their blended scores.

    Drawn to the start by ``pull`` rows' worth of loss.
    """
    from scipy.optimize import minimize

    count = len(scores)
    scale = 1.0 if classes else max(float(np.var(codes)), 1e-300)

    def loss(weights: Floats) -> float:
        blended = np.tensordot(weights, scores, axes=1)
        total = float(row_losses(blended, codes, classes).sum()) / scale
        return total + pull * float(((weights - start) ** 2).sum())

    found = minimize(
        loss,
        start,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * count,
        constraints={"type": "eq", "fun": lambda weights: weights.sum() - 1.0},
    )
    weights = np.where(found.x < 1e-3, 0.0, found.x)
    return np.asarray(weights / weights.sum())


def row_losses(scores: Floats, codes: Array, classes: bool) -> Floats:
    """−log of the true class's probability, or the squared error, of each row."""
    if not classes:
        return np.asarray((scores[:, 0] - codes) ** 2)
    if scores.shape[1] == 1:
        sign = np.where(codes == 1, -1.0, 1.0)
        return np.asarray(np.logaddexp(0.0, sign * scores[:, 0]))
    return np.asarray(-log_softmax(scores, axis=1)[np.arange(len(codes)), codes.astype(np.int64)])


def _roles(fed: Any, given: str, missing: str) -> Roles:
    roles: Roles = fed.roles(given, "trees")
    return replace(roles, feature_holders=(missing,))


def _base(base: TreeModel | None, task: Literal["classes", "regression"]) -> TreeModel:
    if base is None:
        return XGB(task=task, n_estimators=60, max_depth=4, learning_rate=0.08)
    if base.scores_are != "logit" and base.task != "regression" and task != "regression":
        raise ConfigError(
            "The base parameter of recommend must be boosted trees, whose scores blend as logits. "
            f"Got {type(base).__name__} instead."
        )
    return replace(base, task=task)


def _label_column(table: PartyTable, label: str | None, missing: str, fed: Any) -> str:
    if label is not None and label in table.columns:
        return label
    if label is None and len(table.labels) == 1:
        return table.labels[0]
    if label is None and fed.tables[missing].labels:
        raise ConfigError(
            f"recommend judges ways to use {table.party}'s remaining rows, so it needs a label at "
            f"{table.party}; only {missing} has one, and for common rows only: train on those."
        )
    raise ConfigError(
        f"The label parameter of recommend must be a column of party {table.party}: "
        f"{', '.join(table.labels) or 'it has no label'}. Got {label!r} instead."
    )


def _without(table: PartyTable, common: int, names: Sequence[str]) -> PartyTable:
    """The table with these columns missing on remaining rows."""
    frame = table.frame.copy()
    for name in names:
        rest = blank(frame[name], len(frame) - common)
        known = frame[name].iloc[:common].astype(rest.dtype)
        frame[name] = pd.concat([known, rest], ignore_index=True)
    return PartyTable(table.party, table.ids, frame, dict(table.kinds))


def _measure_name(classes: Array | None) -> str:
    if classes is None:
        return "R²"
    return "AUC" if len(classes) == 2 else "accuracy"


def _measured(scores: Floats, codes: Array, classes: Array | None) -> float:
    from sklearn.metrics import r2_score, roc_auc_score

    if classes is None:
        return float(r2_score(codes, scores[:, 0]))
    if len(classes) == 2:
        return float(roc_auc_score(codes, scores[:, 0]))
    return float((scores.argmax(axis=1) == codes).mean())


def _sentence(
    table: pd.DataFrame,
    weights: pd.Series[float],
    measure: str,
    gain: float,
    given: str,
    missing: str,
) -> str:
    used = weights[weights > 0].sort_values(ascending=False)
    listed = ", ".join(f"{name} ({weight:.0%})" for name, weight in used.items())
    adds = f"add {gain:.3f} to" if gain > 0 else "do not add to"
    return (
        f"Blend {listed}: held-out {measure} {table['score']['blend']:.3f}. {missing}'s "
        f"columns {adds} what {given}'s own columns give. For rows that "
        f"{missing} does not have, use {given}'s own columns only."
    )
