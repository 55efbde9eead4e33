"""Base estimators of VFPU: their names, what their scores are, and how scores become votes."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
from scipy.special import expit

from vfsl.channel import Channel
from vfsl.crypto import scheme
from vfsl.data import Kind
from vfsl.errors import ConfigError
from vfsl.estimators.base import NOTHING_KEPT, Estimator
from vfsl.estimators.descent import Program, Width
from vfsl.estimators.linear import LinearModel, LogisticRegression
from vfsl.estimators.privacy import Rarest, find_rarest_class
from vfsl.parts import ModelShare, Part, Roles
from vfsl.pu.bags import Booleans, mean_votes
from vfsl.pu.calibration import finite_logit
from vfsl.store import Checkpoints
from vfsl.values import Array, Floats

# Import paths, so that trees load only when they are used.
BASES = {
    "lr": "vfsl.pu.bases:BagLogistic",
    "rf": "vfsl.estimators.trees:RandomForest",
    "gbdt": "vfsl.estimators.trees:GBDT",
    "xgb": "vfsl.estimators.trees:XGB",
    "lgb": "vfsl.estimators.trees:LGB",
}
# The rule of ten rows a leaf counts all rows, in the bag or not; of those that are in it LightGBM
# asks for twenty, which weigh 5 where both classes are even.
IN_BAGS = {"lgb": {"min_child_weight": 5.0}}


# One that knows its training scores gives the label holder the score of every training row, (rows,
# models), without a message; of another the label holder learns sums over bags only.
Base = Estimator


@dataclass
class BagLogistic(LogisticRegression):
    """Logistic regression for bags: no score is shown in training, and rows may weigh a lot.

    In a bag few rows count: a positive weighs as much as all rows over those of the bag. The number
    of rounds is fixed, so that it says nothing about the rows that count. Few rows also let a
    single extreme cell decide, so numbers are cut ``cut`` standard deviations from their mean.
    Known positives are few by nature: one for each column of the widest feature holder is asked for
    where it could solve its gradients for them, not two; docs/pu.md has the experiment.
    """

    l2: float = 0.01
    refine: int = 0
    max_rounds: int = 10
    tolerance: float = 0.0
    cut: float = 3.0
    rare_rows_per_column: float = 1.0

    def train(
        self,
        channel: Channel,
        part: Part | None,
        *,
        roles: Roles,
        rng: np.random.Generator | None = None,
        kept: Checkpoints = NOTHING_KEPT,
    ) -> ModelShare | None:
        limits = {} if part is None else column_limits(part, self.cut)
        cut = None if part is None else cut_part(part, limits)
        share = super().train(channel, cut, roles=roles, rng=rng, kept=kept)
        return None if share is None else replace(share, state={**share.state, "limits": limits})

    def score_rows(
        self, channel: Channel, part: Part | None, share: ModelShare | None, *, roles: Roles
    ) -> Array | None:
        if part is not None and share is not None:
            part = cut_part(part, share.state["limits"])
        return super().score_rows(channel, part, share, roles=roles)

    def _find_rarest(self, codes: Array, classes: Array, weights: Floats) -> Rarest:
        """Known positives; who stands against them in a bag is drawn anew, and hides nobody."""
        return find_rarest_class(
            codes, classes, np.where(codes[:, None] == codes.max(), weights, 0.0)
        )

    def _program(self, weighted: bool = False) -> Program:
        program = super()._program(weighted)
        fields = {name: getattr(program, name) for name in Program.__dataclass_fields__}
        return _HeavyRows(**fields)


def column_limits(part: Part, cut: float) -> dict[str, list[float]]:
    """Where each numeric column is cut, by the party's own rows of the part."""
    table, limits = part.table, {}
    for name in table.features:
        if table.kinds[name] is Kind.NUMERIC:
            values = table.column(name).iloc[part.rows].to_numpy(dtype=np.float64, na_value=np.nan)
            if not np.isnan(values).all():
                centre, reach = np.nanmean(values), cut * np.nanstd(values)
                limits[name] = [float(centre - reach), float(centre + reach)]
    return limits


def cut_part(part: Part, limits: Mapping[str, Sequence[float]]) -> Part:
    """The part with numbers beyond the limits set to them."""
    frame = part.table.frame
    changed = {
        name: frame[name].astype(np.float64).clip(low, high) for name, (low, high) in limits.items()
    }
    return replace(part, table=replace(part.table, frame=frame.assign(**changed)))


@dataclass(frozen=True)
class _HeavyRows(Program):
    """A training whose fixed-point widths give precision away for larger row weights."""

    def width(self, rows: int, stage: int, roles: Roles) -> Width:
        usual = super().width(rows, stage, roles)
        shares = 3 if usual.row_weights else 2
        less = _MORE_BITS // shares
        return replace(
            usual,
            columns=usual.columns - less,
            scores=usual.scores - less,
            row_weights=usual.row_weights - less if usual.row_weights else 0,
            row_weight_range=usual.row_weight_range + _MORE_BITS,
        )


# Row weights up to 2^12 times the average, instead of 2^6; divisible by two and by three.
_MORE_BITS = 6


def make_base(base: str | Base) -> Base:
    """The base of that name, or the given one if its scores are usable."""
    if isinstance(base, str):
        if base not in BASES:
            near = difflib.get_close_matches(base, BASES, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise ConfigError(
                f"The base parameter of VFPU must be one of {', '.join(BASES)} or an estimator. "
                f"Got {base!r} instead{hint}"
            )
        module, name = BASES[base].split(":")
        made: Base = getattr(import_module(module), name)(**IN_BAGS.get(base, {}))
        return made
    if not isinstance(base, Estimator) or base.scores_are not in ("logit", "probability"):
        raise ConfigError(
            "The base parameter of VFPU must be an estimator whose scores are logits or "
            f"probabilities. Got {type(base).__name__} instead, which has none; use one of "
            f"{', '.join(BASES)}."
        )
    return base


def knows_training_scores(base: Base) -> bool:
    """Whether the label holder has every training row's score anyway."""
    return base.knows_training_scores


def training_scores(base: Any, share: ModelShare) -> Floats:
    return np.asarray(base.training_scores(share), dtype=np.float64)


def work_of(base: Base, feature_holders: int) -> str:
    """The kind of work that picks the scheme where it was left to "auto"."""
    if knows_training_scores(base):
        return "trees"
    return "linear" if feature_holders == 1 else "linear of many"


def check_base(base: Base, roles: Roles) -> None:
    """Refuse what would only fail in the middle of a run, or show more than it should."""
    if knows_training_scores(base):
        return
    if not isinstance(base, LinearModel):
        raise ConfigError(
            "The base parameter of VFPU must be a linear model or have a training_scores method. "
            f"Got {type(base).__name__} instead."
        )
    if getattr(base, "refine", 0) > 0:
        raise ConfigError(
            "The refine parameter of a logistic base of VFPU must be 0: it would show the label "
            f"holder a score of every row and bag. Got {getattr(base, 'refine', 0)!r} instead."
        )
    if not scheme(roles.scheme, roles.security).elementwise:
        raise ConfigError(
            f"A linear base of VFPU needs a scheme with element-wise products, which "
            f"{roles.scheme!r} has not; use scheme 'auto' or 'paillier'."
        )


def votes(base: Base, scores: Floats) -> Floats:
    """What is averaged over bags: probabilities of trees, logits of linear models."""
    return np.asarray(expit(scores)) if _votes_by_probability(base) and _logits(base) else scores


def mean_as_logit(base: Base, means: Floats) -> Floats:
    """The average of votes as a logit, whatever was averaged."""
    return means if _logits(base) and not _votes_by_probability(base) else finite_logit(means)


def mean_logits(base: Base, scores: Floats, voters: Booleans) -> Floats:
    """One logit for each row from the scores of its voters; NaN for a row without one."""
    return mean_as_logit(base, mean_votes(votes(base, scores), voters))


def first_models(share: ModelShare, count: int) -> ModelShare:
    """A linear share with one model: the mean of the first ones, whose score is their mean."""
    weights = np.asarray(share.state["weights"], dtype=np.float64)
    weights = weights.reshape(-1, share.state["models"])[:, :count].mean(axis=1, keepdims=True)
    return replace(share, state={**share.state, "weights": weights.tolist(), "models": 1})


def _logits(base: Base) -> bool:
    return base.scores_are == "logit"


def _votes_by_probability(base: Base) -> bool:
    return knows_training_scores(base)
