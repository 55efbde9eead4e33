"""Which way to train with completed columns: judged on held-out common rows, and blended.

Holds, learns: as in downstream.py. All comparing is local at the given party, who holds the label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, softmax

from vfsl.channel import Channel, run_together
from vfsl.completion.bases import scores_of_model
from vfsl.completion.comparing import (
    blend_weights,
    compare_ways,
    measure_score,
    row_losses,
    start_weights,
)
from vfsl.completion.completed import Completion
from vfsl.completion.downstream import WAYS, Downstream, Task, Trained, Way, make_fills, read_label
from vfsl.data import PartyTable
from vfsl.errors import ConfigError
from vfsl.estimators.trees import XGB, TreeModel
from vfsl.federation import Federation
from vfsl.parts import Part, Roles, Rows, places_in_training, scores_with_kept
from vfsl.site import Site
from vfsl.values import Array, Floats

_SMALL_TREES = XGB(n_estimators=60, max_depth=4, learning_rate=0.08)


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
    trained : dict by party, then by way
        The models; at the label holder its own shares only, in a simulation those of both.
    """

    table: pd.DataFrame
    weights: pd.Series[float]
    measure: str
    gain: float
    text: str
    label: tuple[str, str]
    model: Downstream
    trained: dict[str, dict[str, Trained]]
    classes: Array | None

    def predict(self, fed: Federation, way: str | None = None) -> Floats:
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
        weights = self.weights if way is None else pd.Series({way: 1.0})
        chosen = {str(name): float(weight) for name, weight in weights.items() if weight > 0}
        parts = {
            party: Part(fed.tables[party], fed.share(party).overlap) for party in (given, missing)
        }
        places = {name: self._places(name, parts) for name in chosen}
        new = np.any([each < 0 for each in places.values()], axis=0)
        own = {
            party: {"part": replace(part, rows=part.rows[new]), "trained": self.trained[party]}
            for party, part in parts.items()
        }
        ask = partial(
            score_ways,
            model=self.model,
            given=given,
            missing=missing,
            ways=list(chosen),
            new=int(new.sum()),
        )
        found = fed.play(ask, own=own)[given]
        scores = {
            name: self._with_kept(name, np.where(new, -1, places[name]), found.get(name))
            for name in chosen
        }
        return self._answer(sum(chosen[name] * scores[name] for name in chosen))

    def predict_alone(self, table: PartyTable) -> Floats:
        """For rows that only the label holder has: by its own columns, without any message.

        Completed columns are functions of these columns, so they would add nothing here.

        Returns
        -------
        array
            As of `predict`.
        """
        given = self.label[0]
        names = [way.name for way in self.model.ways if way.fill is None]
        job = partial(
            self.model.score_rows,
            part=Part(table, np.arange(len(table), dtype=np.int64)),
            trained=self.trained[given],
            roles=Roles(given, (), f"no key beside {given}"),
            ways=names,
        )
        return self._answer(run_together({given: job})[given][names[0]])

    def _places(self, name: str, parts: Mapping[str, Part]) -> Rows:
        """Where in the training of a way each row was, −1 for a new one."""
        shares = {
            party: share
            for party, ways in self.trained.items()
            if name in ways and (share := ways[name].share) is not None
        }
        taking_part = {party: parts[party] for party in shares}
        return places_in_training(shares, taking_part, self.label[0])

    def _with_kept(self, name: str, places: Rows, answer: Floats | None) -> Floats:
        """Scores of all rows by a way's model of all rows."""
        held = self.trained[self.label[0]][name].share
        if held is None:
            raise ConfigError(f"The way {name!r} was not trained.")
        kept = None if held.scores is None else scores_of_model(held.scores, held, -1)
        return scores_with_kept(replace(held, scores=kept), places, answer)

    def _answer(self, scores: Any) -> Floats:
        found = np.asarray(scores, dtype=np.float64)
        if self.classes is None:
            return found[:, 0]
        if len(self.classes) == 2:
            return np.asarray(expit(found[:, 0]))
        return np.asarray(softmax(found, axis=1))


# ---- training and scoring the ways, party by party ----------------------------------------------


def recommend(
    completion: Completion,
    fed: Federation,
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
    if label is None and not fed.tables[given].labels and fed.tables[missing].labels:
        raise ConfigError(
            f"recommend judges ways to use {given}'s remaining rows, so it needs a label at "
            f"{given}; only {missing} has one, and for common rows only: train on those."
        )
    options: dict[str, Any] = {"label": label, "base": base, "folds": folds, "ways": ways}
    own = {missing: {"completion": replace(completion, adviser=None)}}
    found = fed.play(partial(advise, given=given, missing=missing, **options), own=own)
    advice: Advice = found[given]
    advice.trained[missing] = found[missing]
    return advice


def advise(
    site: Site,
    channel: Channel,
    given: str,
    missing: str,
    completion: Completion | None = None,
    *,
    label: str | None = None,
    base: TreeModel | None = None,
    folds: int = 5,
    ways: Sequence[Way] = WAYS,
) -> Advice | dict[str, Trained] | None:
    """One party's side of `recommend`.

    Parameters
    ----------
    completion : Completion, optional
        At the missing party.

    Returns
    -------
    Advice, dict or None
        At the given party the advice, at the missing party its models by way.
    """
    roles = _make_roles(site, given, missing)
    if site.me not in roles.everyone:
        return None
    model = Downstream(base or _SMALL_TREES, ways, folds)
    settings: dict[str, Any] = {"model": model.base.name, "folds": folds}
    settings |= {"ways": [way.name for way in ways], "scheme": roles.scheme}
    if site.me == given:
        table, share = site.own_table(), site.rows()
        column = _find_label(table, label)
        rows, common = np.concatenate([share.overlap, share.rest]), len(share.overlap)
        target, task = read_label(table, column, rows)
        model = replace(model, base=_with_task(model.base, task))
        part = site.part((given, column))
        if part is not None:
            part = replace(part, target=target[:common], rest_target=target[common:])
        settings = {"label": [given, column], **settings}
        with site.records("downstream", channel, settings) as outcome:
            rng = site.private_rng("downstream")
            trained = model.train(channel, part, roles=roles, rng=rng)
            advice, comparison = judge_ways(
                trained, model, target[:common], task, (given, column), missing
            )
            scores = advice.table["score"]
            outcome.metrics = {str(name): float(score) for name, score in scores.items()}
            outcome.details = comparison
        return advice
    more: dict[str, Any] = {}
    part = None
    if site.me == missing:
        if completion is None:
            raise ConfigError(f"Party {missing!r} needs its completion to advise on it.")
        common = len(completion.common)
        part = Part(completion.common, np.arange(common, dtype=np.int64))
        more["fills"] = make_fills(completion, site.private_rng("draws"))
        more["confidence"] = completion.row_confidence.to_numpy()
    with site.records("downstream", channel, settings):
        rng = site.private_rng("downstream")
        trained = model.train(channel, part, roles=roles, rng=rng, **more)
    return trained if site.me == missing else None


def score_ways(
    site: Site,
    channel: Channel,
    model: Downstream,
    given: str,
    missing: str,
    ways: Sequence[str],
    new: int,
    part: Part | None = None,
    trained: Mapping[str, Trained] | None = None,
) -> dict[str, Floats]:
    """One party's side of scoring new rows by some ways; the scores at the given party."""
    roles = _make_roles(site, given, missing)
    if site.me not in roles.everyone:
        return {}
    with site.records("predict downstream", channel, {"ways": list(ways), "new rows": new}):
        if not new:
            return {}
        return model.score_rows(channel, part, trained or {}, roles=roles, ways=ways)


def _make_roles(site: Site, given: str, missing: str) -> Roles:
    return replace(site.roles(given, "trees"), feature_holders=(missing,))


def _with_task(base: TreeModel, task: Task) -> TreeModel:
    """The model for that kind of label; only the label holder knows it, and only it needs to."""
    if base.scores_are != "logit" and base.task != "regression" and task != "regression":
        raise ConfigError(
            "The base parameter of recommend must be boosted trees, whose scores blend as logits. "
            f"Got {type(base).__name__} instead."
        )
    return replace(base, task=task)


def _find_label(table: PartyTable, label: str | None) -> str:
    if label is not None and label in table.columns:
        return label
    if label is None and len(table.labels) == 1:
        return table.labels[0]
    raise ConfigError(
        f"The label parameter of recommend must be a column of party {table.party}: "
        f"{', '.join(table.labels) or 'it has no label'}. Got {label!r} instead."
    )


# ---- judging and blending -----------------------------------------------------------------------


def judge_ways(
    trained: dict[str, Trained],
    model: Downstream,
    truth: Array,
    task: Task,
    label: tuple[str, str],
    missing: str,
) -> tuple[Advice, dict[str, Any]]:
    """The advice from held-out scores of common rows, and what the report shows of all ways."""
    given = label[0]
    held = {name: one.held for name, one in trained.items() if one.held is not None}
    classes = None if task == "regression" else np.unique(truth)
    codes = truth.astype(float) if classes is None else np.searchsorted(classes, truth)
    parts = [way for way in model.ways if way.blends and way.name in held]
    scores = np.stack([held[way.name] for way in parts])
    weights = blend_weights(scores, codes, classes is not None, start_weights(parts))
    every = {**held, "blend": np.tensordot(weights, scores, axes=1)}
    losses = {name: row_losses(one, codes, classes is not None) for name, one in every.items()}
    best = min(held, key=lambda name: float(losses[name].mean()))
    measure = "R²" if classes is None else ("AUC" if len(classes) == 2 else "accuracy")
    table = pd.DataFrame(
        {
            "score": {name: measure_score(one, codes, classes) for name, one in every.items()},
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
    named = pd.Series(weights, index=[way.name for way in parts], name="weight")
    named = named.reindex(list(held), fill_value=0.0)
    table["weight"] = named.reindex(table.index)
    alone = next((way.name for way in model.ways if way.fill is None), None)
    scored = table["score"].astype(float)
    gain = float(scored["blend"] - scored[alone]) if alone is not None else float("nan")
    text = _advise_in_words(table, named, measure, gain, given, missing)
    advice = Advice(table, named, measure, gain, text, label, model, {given: trained}, classes)
    by_fill = {way.fill: way.name for way in reversed(model.ways) if way.rest}
    blend = sum(named[name] * held[name] for name in held if named[name] > 0)
    comparison = compare_ways(
        {**held, "blend": np.asarray(blend)},
        codes,
        None if classes is None else len(classes),
        alone=by_fill.get(None),
        missing=by_fill.get("nothing"),
        completed=by_fill.get("gated", by_fill.get("completed")),
        best="blend",
        measure=measure,
        parties=(given, missing),
    )
    comparison["weights"] = {str(name): float(weight) for name, weight in named.items()}
    return advice, comparison | {"advice": text}


def _advise_in_words(
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
