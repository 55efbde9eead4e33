"""A party's side of VFPU tasks on shares: train all models of a task, score new rows.

Holds, learns: as in shared_bags.py; of new rows the label holder learns the mean score over the
models that make up the result. A data holder's share of the model is a piece of all weights:
uniform words, of no use without those of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vfsl.channel import Channel
from vfsl.crypto.shares import Session, Shared
from vfsl.crypto.words import to_words
from vfsl.errors import ConfigError, ProtocolError
from vfsl.estimators.base import scale_weights
from vfsl.estimators.linear import LogisticRegression, encode_columns, fit_encoder
from vfsl.parts import ModelShare, Part, Roles
from vfsl.pu.bag_plan import FeatureWords, LabelWords, Plan, find_directions, scale_rows
from vfsl.pu.bags import Booleans
from vfsl.pu.bases import BagLogistic, cut_part, find_limits
from vfsl.pu.shared_bags import (
    DISCLOSURES,
    SCORE_DISCLOSURES,
    SUMS,
    TOTALS,
    score_privately,
    train_models,
)
from vfsl.values import Floats


@dataclass(frozen=True, eq=False)
class TrainedPiece:
    """What a data holder has of a finished task; ``sums`` are the label holder's."""

    share: ModelShare
    sums: Floats | None


def train_side(
    channel: Channel,
    part: Part | None,
    base: LogisticRegression,
    roles: Roles,
    rng: np.random.Generator,
    voters: Booleans | None = None,
) -> TrainedPiece | None:
    """One party's side of a task; None at the dealer, who has no part.

    The label holder's part has marks 0 and 1 as target and row weights for all models. ``rng`` are
    private draws, which round.
    """
    here = channel.within("bags", DISCLOSURES)
    hide = roles.scheme != "plain"
    with Session.join(here, roles.data_holders, roles.key_holder, hide=hide, rng=rng) as session:
        if part is None:
            plan = _agree(session, roles, base, {})
            weights, sums = train_models(session, plan, {}, None)
            sums.open(roles.label_holder, name=SUMS)
            return None
        limits = find_limits(part, base.cut) if isinstance(base, BagLogistic) else {}
        part = cut_part(part, limits)
        state, columns = fit_encoder(part, part.rows)
        directions = find_directions(columns)
        sizes = {"rows": len(columns), "columns": columns.shape[1]}
        sizes["directions"] = directions.shape[1]
        row_weights = None
        if channel.me == roles.label_holder:
            row_weights = scale_weights(part.weights, len(columns))
            sizes["models"] = row_weights.shape[1]
        plan = _agree(session, roles, base, sizes)
        scaled = scale_rows(columns, directions, plan, channel.me)
        features, label = {}, None
        if row_weights is None:
            features[channel.me] = FeatureWords.of(scaled, plan, rng)
        else:
            positive, votes = np.asarray(part.target) == 1, np.asarray(voters)
            label = LabelWords.of(scaled, positive, row_weights, votes, plan, rng)
        weights, sums = train_models(session, plan, features, label)
        opened = sums.open(roles.label_holder, name=SUMS, about=("columns",))
    state |= {
        "limits": limits,
        "directions": directions.tolist(),
        "columns of parties": dict(plan.columns),
        "directions of parties": dict(plan.directions),
        "models": plan.models,
        "pieces": weights.piece.view(np.int64).tolist(),
    }
    known = None if opened is None else opened / 2.0 ** sum(plan.score_bits)
    return TrainedPiece(ModelShare(channel.me, base.name, state), known)


def score_side(
    channel: Channel,
    part: Part | None,
    share: ModelShare | None,
    base: LogisticRegression,
    roles: Roles,
    models: int,
) -> Floats | None:
    """One party's side of scoring new rows: at the label holder the mean of the first models."""
    here = channel.within("bags", SCORE_DISCLOSURES)
    hide = roles.scheme != "plain"
    with Session.join(here, roles.data_holders, roles.key_holder, hide=hide) as session:
        if part is None or share is None:
            plan = _agree(session, roles, base, {})
            pieces, scored = np.zeros((1, plan.size + plan.own), dtype=np.int64), {}
        else:
            state = share.state
            if "pieces" not in state:
                raise ConfigError(
                    f"The model of party {channel.me!r} was not trained on shares; predict with "
                    "the scheme that it was trained with."
                )
            shape = len(state["centres"]), state["directions of parties"][channel.me]
            directions = np.asarray(state["directions"], dtype=np.float64).reshape(shape)
            sizes = {"rows": len(part.rows), "columns": shape[0], "directions": shape[1]}
            sizes["models"] = state["models"]
            plan = _agree(session, roles, base, sizes)
            if plan.columns != state["columns of parties"]:
                raise ConfigError(
                    f"Party {channel.me!r} has a share of another model than the others."
                )
            columns = encode_columns(cut_part(part, state["limits"]), share)
            scaled = scale_rows(columns, directions, plan, channel.me)
            if channel.me == roles.label_holder:
                scaled = np.column_stack([scaled, np.ones(len(scaled))])
            scored = {channel.me: np.rint(scaled * 2.0 ** plan.score_bits[0]).astype(np.int64)}
            pieces = np.asarray(state["pieces"], dtype=np.int64)[:models].sum(axis=0)[None]
        weights = Shared(session, to_words(pieces))
        scores = score_privately(session, plan, weights, scored, slice(plan.rows))
        opened = scores.open(roles.label_holder, name=TOTALS, about=("columns",))
    return None if opened is None else opened / models / 2.0 ** sum(plan.score_bits)


def _agree(
    session: Session, roles: Roles, base: LogisticRegression, sizes: Mapping[str, int]
) -> Plan:
    """The plan of a task, by the sizes that all data holders tell."""
    told: Mapping[str, Mapping[str, Any]] = session.agree(sizes)
    names = {"rows", "columns", "directions"}
    for party, found in told.items():
        if not names <= set(found) or found["directions"] > found["columns"]:
            raise ProtocolError(f"Party {party!r} did not tell its sizes.", party)
        if found["rows"] != told[roles.label_holder]["rows"]:
            raise ProtocolError(
                f"Party {party!r} has {found['rows']} rows, party {roles.label_holder!r} has "
                f"{told[roles.label_holder]['rows']}.",
                party,
            )
    if "models" not in told[roles.label_holder]:
        raise ProtocolError(
            f"Party {roles.label_holder!r} did not tell its sizes.", roles.label_holder
        )
    return Plan(
        roles.label_holder,
        told[roles.label_holder]["rows"],
        told[roles.label_holder]["models"],
        {party: found["columns"] for party, found in told.items()},
        {party: found["directions"] for party, found in told.items()},
        base.l2,
    )
