"""Base estimators of VFPU: which there are, and how their scores become votes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np
from scipy.special import expit

from vfsl.channel import Channel
from vfsl.crypto import make_scheme
from vfsl.data import Kind
from vfsl.errors import ConfigError
from vfsl.estimators.base import NOTHING_KEPT, Estimator
from vfsl.estimators.descent import Program, Width
from vfsl.estimators.linear import LogisticRegression
from vfsl.estimators.privacy import Rarest, find_rarest_class
from vfsl.params import documented, param
from vfsl.parts import ModelShare, Part, Roles
from vfsl.pu.bags import Booleans, average_votes
from vfsl.pu.prior import Calibration, finite_logit
from vfsl.registry import Registry
from vfsl.store import Checkpoints
from vfsl.values import Array, Floats

# Classifiers of other packages are bases too, by the names of their entry points.
BASES: Registry[type[Estimator]] = Registry(
    "base of VFPU",
    "vfsl.estimators",
    {
        "lr": "vfsl.pu.bases:BagLogistic",
        "rf": "vfsl.estimators.trees:RandomForest",
        "gbdt": "vfsl.estimators.trees:GBDT",
        "xgb": "vfsl.estimators.trees:XGB",
        "lgb": "vfsl.estimators.trees:LGB",
    },
)
# Schemes under which linear bases compute on shares; "plain" does so without masks.
SHARES = ("shares", "plain")
# The rule of ten rows per leaf counts all rows, in the bag or not. Of those in the bag, LightGBM
# asks for twenty, which weigh 5 where both classes are even.
IN_BAGS = {"lgb": {"min_child_weight": 5.0}}


@documented
@dataclass(kw_only=True)
class BagLogistic(LogisticRegression):
    """Logistic regression for bags: no score is shown in training, and rows may weigh a lot.

    Few rows count in a bag, so that a single extreme cell could decide: extreme numbers are cut. On
    shares all bags are trained in one exchange, and nobody learns weights.

    In the protocol "rounds" the rows that count have large weights, and the number of rounds is
    fixed, so that it says nothing about these rows. Known positives are few by nature, so one per
    column of the widest feature holder is enough, not two; docs/pu.md has the experiment on what
    that party could solve its gradients for.
    """

    l2: float = 0.01
    refine: int = 0
    max_rounds: int = 10
    tolerance: float = 0.0
    rare_rows_per_column: float = 1.0
    cut: float = param(
        3.0, "Numbers are cut this many standard deviations from their column's mean.", gt=0
    )

    def train(
        self,
        channel: Channel,
        part: Part | None,
        *,
        roles: Roles,
        rng: np.random.Generator | None = None,
        kept: Checkpoints = NOTHING_KEPT,
    ) -> ModelShare | None:
        limits = {} if part is None else find_limits(part, self.cut)
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
        return _HeavyRows(**vars(super()._program(weighted)))


def find_limits(part: Part, cut: float) -> dict[str, list[float]]:
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
        less = _MORE_BITS // (3 if usual.row_weights else 2)
        return replace(
            usual,
            columns=usual.columns - less,
            scores=usual.scores - less,
            row_weights=usual.row_weights - less if usual.row_weights else 0,
            row_weight_range=usual.row_weight_range + _MORE_BITS,
        )


# Row weights up to 2^12 times the average, instead of 2^6; divisible by two and by three.
_MORE_BITS = 6


# ---- which bases can be used ---------------------------------------------------------------------


def make_base(base: str | Estimator) -> Estimator:
    """The base of that name, or the given one, if its scores are usable."""
    made = BASES.find(base)(**IN_BAGS.get(base, {})) if isinstance(base, str) else base
    if made.predicts != "classes":
        raise ConfigError(
            "The base parameter of VFPU must be an estimator whose scores are logits or "
            f"probabilities. Got {type(made).__name__} instead, which has none; use one of "
            f"{', '.join(BASES.names())}."
        )
    if made.knows_training_scores:
        return made
    if not isinstance(made, LogisticRegression):
        raise ConfigError(
            "The base parameter of VFPU must be logistic regression or know its training scores. "
            f"Got {type(made).__name__} instead."
        )
    if made.refine > 0:
        raise ConfigError(
            "The refine parameter of a logistic base of VFPU must be 0: it would show the label "
            f"holder a score of every row and bag. Got {made.refine!r} instead."
        )
    return made


def fits_on_shares(base: Estimator) -> TypeGuard[LogisticRegression]:
    """Whether bags of this base can be trained on shares, if the run's scheme does that."""
    if not isinstance(base, LogisticRegression):
        return False
    return base.protocol != "rounds" and base.solver == "rounds"


def on_shares(base: Estimator, roles: Roles) -> TypeGuard[LogisticRegression]:
    """Whether all models of a task are trained on shares, in one exchange."""
    if not fits_on_shares(base):
        return False
    if base.protocol == "shares" and roles.scheme not in SHARES:
        raise ConfigError(
            f"protocol='shares' encrypts nothing; the run names scheme={roles.scheme!r}. Use "
            "scheme='auto', or protocol='rounds'."
        )
    return roles.scheme in SHARES


def check_scheme(base: Estimator, roles: Roles) -> None:
    """Refuse a scheme that would only fail in the middle of a search."""
    if on_shares(base, roles):
        return
    if not (base.knows_training_scores or make_scheme(roles.scheme, roles.security).elementwise):
        raise ConfigError(
            f"A linear base of VFPU needs a scheme with element-wise products, which "
            f"{roles.scheme!r} has not; use scheme 'auto' or 'paillier'."
        )


# ---- how scores become votes ---------------------------------------------------------------------


# Bags vote by probability, as in the paper, wherever scores of single bags are shown: by bases that
# know their training scores, and of listed rows. Else only the sum of logits is opened.


def to_votes(base: Estimator, scores: Floats) -> Floats:
    """The probabilities that shown scores stand for."""
    return np.asarray(expit(scores)) if base.scores_are == "logit" else scores


def average_logits(base: Estimator, scores: Floats, voters: Booleans) -> Floats:
    """The logit of each row's mean probability by its voters; NaN for a row without one."""
    return finite_logit(average_votes(to_votes(base, scores), voters))


def to_probabilities(
    base: Estimator, members: Sequence[Array], calibration: Calibration, shown: bool
) -> Array:
    """How likely rows are positive, (rows, 1), by the scores of all members' models.

    ``shown`` says whether the calibration is of mean probabilities, or of mean logits.
    """
    votes = [to_votes(base, scores) if shown else scores for scores in members]
    means = np.asarray(sum(each.sum(axis=1) for each in votes))
    means = means / sum(each.shape[1] for each in votes)
    return calibration.of_all(finite_logit(means) if shown else means)[:, None]


def average_models(share: ModelShare, count: int) -> ModelShare:
    """A linear share with one model: the mean of the first ones, whose score is their mean."""
    weights = np.asarray(share.state["weights"], dtype=np.float64)
    weights = weights.reshape(-1, share.state["models"])[:, :count].mean(axis=1, keepdims=True)
    return replace(share, state={**share.state, "weights": weights.tolist(), "models": 1})
