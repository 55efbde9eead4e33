"""Tasks between the missing party, who leads, and the given party: fit a model, then score rows.

Holds   the label holder (the missing party): the columns to be predicted, for common rows only; the
        feature holder (the given party): its columns for common and remaining rows; the key holder:
        the secret key, no data.
Learns  the label holder: how many remaining rows there are, and beyond what the base estimator
        shows (see its file) one prediction for each scored row, column and task. The feature
        holder: what the base shows it, and how many tasks there are; for held-out scores of a
        linear base how many cells of each target are known, in twentieths. Which rows train a
        model (the folds of a cross-fit of trees, remaining rows with a pseudo-label) enters as
        encrypted row weights only. The key holder: what the base shows it, uniformly masked
        numbers, how many rows and models there are.

Common rows come first in both parties' order, so "common" and "all" need no list of rows.

Held-out scores of a linear base need no model of a part of the rows. Without row i ridge regression
predicts y_i + a_i (x_i·w + b − y_i) for it, where a = 1/(1 − h) and
h_i = (1/n) (1 + x_i·(XᵀX/n + l2)⁻¹ x_i) is the row's leverage, which only the given party can
compute. So no gradient of a part is ever opened: two of those differ by sums over a few rows, from
which the given party could solve for the targets. The given party sends a and a ∘ Xw under
encryption; the missing party adds a ∘ (b − y) to the second. Where cells of a target are unknown,
only a fraction c of the rows has trained: h becomes h/c.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.completion.bases import Pair, make_context
from vfsl.completion.columns import Target, make_target, merge_rare
from vfsl.crypto import KeyHolder
from vfsl.crypto.fixed import decode, encode
from vfsl.data import PartyTable
from vfsl.draws import draw_by_number
from vfsl.errors import ConfigError, ProtocolError
from vfsl.estimators.base import Estimator
from vfsl.estimators.exchange import (
    MOST,
    MOST_ROWS,
    load_array,
    receive_count,
    receive_key,
    send_fresh_key,
)
from vfsl.estimators.linear import encode_columns
from vfsl.lead import Follower, Leader, disclose_orders
from vfsl.parts import ModelShare, Part, Roles
from vfsl.store import Checkpoints
from vfsl.values import (
    Array,
    Booleans,
    Ciphertext,
    Disclosure,
    Disclosures,
    Floats,
    Integers,
    Masked,
)

# What is predicted; the rows that train: the common ones, or all; the rows that are scored: the
# remaining ones, the common ones by a base that knows their scores, or, of a linear one, held out.
NUMBERS, CLASSES = "numbers", "classes"
COMMON, ALL, REST, HELD_OUT = "common", "all", "rest", "held out"

DISCLOSURES: Disclosures = {
    "rows": Disclosure(int, "how many rows the sender has that are not common"),
    "columns": Disclosure(int, "how many columns the sender brings to its models"),
    "finished": Disclosure(int, "how many models of groups of columns the sender has"),
    **disclose_orders(
        "whether numbers or classes are predicted next, whether common or all rows train, and "
        "whether common or remaining rows are scored: the leader then has a prediction for "
        "each of them"
    ),
}
HELD_OUT_DISCLOSURES: Disclosures = {
    "public key": Disclosure(dict, "the public key of this run"),
    "rows": Disclosure(int, "how many rows take part"),
    "models": Disclosure(int, "how many models there are"),
    "known shares": Disclosure(
        np.ndarray, "which fraction of the cells of each nameless target is known, in twentieths"
    ),
    "factors": Disclosure(Ciphertext, "nothing without the secret key"),
    "scaled scores": Disclosure(Ciphertext, "nothing without the secret key"),
    "held out": Disclosure(Ciphertext, "uniformly masked predictions"),
    "opened held out": Disclosure(
        Masked,
        "for each common row and target the prediction of a model that did not see the row, to the "
        "missing party",
    ),
}


def places_of(rows: str, common: int, others: int) -> Integers:
    """Places of these rows in the order of common rows, then the others."""
    if rows == ALL:
        return np.arange(common + others)
    return np.arange(common, common + others) if rows == REST else np.arange(common)


def has_scores(base: Estimator, train: str, score: str) -> bool:
    """Whether the scored rows are training rows of a base that knows their scores anyway."""
    return (train == ALL or train == score == COMMON) and base.knows_training_scores


def load_marks(kept: Checkpoints) -> dict[int, int]:
    """By group of columns, how many tasks a party had done when it last kept that group."""
    return {group: int(kept.load(f"group-{group}")["tasks"]) for group in kept.numbers("group")}


# ---- the missing party --------------------------------------------------------------------------


class Fitting:
    """The missing party's side of all tasks.

    Parameters
    ----------
    channel : Channel
    pair : Pair
    roles : Roles
    rng : numpy.random.Generator
    common : int
        How many rows are common.
    kept : Checkpoints
        Finished groups of columns.

    Attributes
    ----------
    others, columns : int
        How many remaining rows, and columns in its models, the given party has.
    """

    def __init__(
        self,
        channel: Channel,
        pair: Pair,
        roles: Roles,
        rng: np.random.Generator,
        common: int,
        kept: Checkpoints,
    ) -> None:
        self.pair, self.common = pair, common
        self._me, self._roles, self._kept = channel.me, roles, kept
        given = roles.feature_holders[0]
        self.others, self.columns = (
            receive_count(channel, given, name, 0, MOST_ROWS) for name in ("rows", "columns")
        )
        marks = load_marks(kept)
        followers = roles.feature_holders
        self._leader = Leader(channel, followers, [roles.key_holder], list(marks.values()))
        self._done = [group for group, tasks in marks.items() if tasks <= self._leader.resumed]
        # What is drawn for a task depends on its number, so a run that goes on draws the same.
        self._random = draw_by_number(rng)

    def own_columns(
        self, context: PartyTable | None = None, without: Sequence[str] = ()
    ) -> PartyTable:
        """The missing party's own columns for all rows: preliminary ones, or none."""
        return make_context(self._me, self.pair, self.common + self.others, context, without)

    def make_targets(self, common: PartyTable, columns: Sequence[str]) -> list[Target]:
        """Columns as the base may predict them; those whose values are too rare are left out.

        Of a linear base the given party sees sums of its rows by value: a value that few rows have
        is predicted together with others, or not at all.
        """
        targets = [make_target(common, name) for name in columns]
        if not self.pair.linear:
            return targets
        least = math.ceil(self.pair.rare_rows * self.columns)
        return [one for target in targets if (one := merge_rare(target, least)) is not None]

    def load_group(self, group: int) -> Any:
        """What was kept of a group that all parties have finished; None if they have not."""
        return self._kept.load(f"group-{group}") if group in self._done else None

    def save_group(self, group: int, content: Mapping[str, Any]) -> None:
        """Keep a group that is finished."""
        self._kept.save(f"group-{group}", {**content, "tasks": self._leader.number})

    def fit(
        self,
        table: PartyTable,
        target: Array,
        weights: Floats | None,
        *,
        classes: bool,
        train: str,
        score: str,
        group: int,
    ) -> tuple[ModelShare, Array]:
        """Train on some rows and score others.

        Parameters
        ----------
        table : PartyTable
            The leader's own columns for all rows, common ones first.
        target, weights
            Of all rows; those outside ``train`` are not used.
        group : int
            Whose model this is: the last one of a group is its result.

        Returns
        -------
        share : ModelShare
        scores : array
            Of the scored rows, as the base gives them; of held-out rows in units of the target.
        """
        base, rng = self.pair.of(classes=classes), self._random(self._leader.number)
        kind = CLASSES if classes else NUMBERS
        here = self._leader.order(kind, train=train, score=score, group=group)
        trained = places_of(train, self.common, self.others)
        part = Part(table, trained, target[trained], None if weights is None else weights[trained])
        share = base.train(here, part, roles=self._roles, rng=rng)
        if share is None:
            raise ConfigError("The base of VFPU-M gave the label holder no share of the model.")
        if score == HELD_OUT:
            known = np.ones(target[trained].shape, dtype=bool) if weights is None else weights > 0
            return share, hold_out_missing(
                here, target[trained], known[: len(trained)], share, self._roles
            )
        scored = places_of(score, self.common, self.others)
        if has_scores(base, train, score):
            return share, base.training_scores(share)[scored]
        if not len(scored):
            return share, np.zeros((0, 1))
        answer = base.score_rows(here.within("ask"), Part(table, scored), share, roles=self._roles)
        return share, np.asarray(answer)

    def end(self) -> None:
        """Tell the others that all is done."""
        self._leader.end()


# ---- the given party and the key holder ---------------------------------------------------------


def follow(
    channel: Channel,
    pair: Pair,
    part: Part | None,
    roles: Roles,
    rng: np.random.Generator,
    kept: Checkpoints,
) -> dict[int, ModelShare]:
    """The given party's or the key holder's side of all tasks: its last share of each group."""
    leader, shares = roles.label_holder, {}
    marks: dict[int, int] = {}
    if part is not None:
        channel.send(leader, "rows", len(part.rest))
        channel.send(leader, "columns", len(part.table.features))
        marks = load_marks(kept)
    orders = Follower(channel, leader, None if part is None else list(marks.values()))
    for group, tasks in marks.items():
        if tasks <= orders.resumed:
            shares[group] = ModelShare.from_dict(kept.load(f"group-{group}")["share"])
    random = draw_by_number(rng)
    for number, here, order in orders:
        base, train, score, group = _read_order(order, pair, leader)
        mine = _take(part, train)
        share = base.train(here, mine, roles=roles, rng=random(number))
        if score == HELD_OUT and mine is not None and share is not None:
            hold_out_given(here, mine, share, pair.penalty, roles)
        elif score == HELD_OUT:
            hold_out_key_holder(here, roles)
        elif not has_scores(base, train, score) and (part is None or len(part.rest)):
            base.score_rows(here.within("ask"), _take(part, score), share, roles=roles)
        if part is not None and share is not None:
            shares[group] = share
            kept.save(f"group-{group}", {"share": share.to_dict(), "tasks": number + 1})
    return shares


def _read_order(
    order: Mapping[str, Any], pair: Pair, leader: str
) -> tuple[Estimator, str, str, int]:
    """The estimator, the rows that train, those that are scored, and the group of an order."""
    kind, train, score = (order.get(name) for name in ("do", "train", "score"))
    if kind not in (NUMBERS, CLASSES) or (kind == CLASSES and pair.classes is None):
        raise ProtocolError(f"Party {leader!r} ordered unknown work.", leader)
    allowed = (REST, HELD_OUT) if pair.linear else (REST, COMMON)
    if train not in (COMMON, ALL) or score not in allowed:
        raise ProtocolError(f"Party {leader!r} ordered rows in no readable form.", leader)
    group = expect_integer(order.get("group"), sender=leader, name="group", low=0, high=MOST_ROWS)
    return pair.of(classes=kind == CLASSES), train, score, group


def _take(part: Part | None, rows: str) -> Part | None:
    if part is None:
        return None
    return Part(part.table, part.all_rows[places_of(rows, len(part.rows), len(part.rest))])


# ---- held-out scores of a linear base -----------------------------------------------------------

# A row that decides its own prediction would be moved without bound.
_MOST_FACTOR = 16.0
_FACTOR_BITS, _TARGET_BITS = 22, 22
_BITS = _FACTOR_BITS + _TARGET_BITS
_FACTOR_BOUND = int(_MOST_FACTOR) << _FACTOR_BITS
# Scores and targets stay below 2^7 units of the target's deviation.
_SCORE_BOUND = int(_MOST_FACTOR) << (7 + _BITS)
_STEPS = 20


def leverages(columns: Floats, l2: float) -> Floats:
    """h of ridge regression on centred columns with an intercept that is not penalised."""
    rows = len(columns)
    gram = columns.T @ columns / rows + l2 * np.eye(columns.shape[1])
    return np.asarray((1.0 + (columns * (columns @ np.linalg.pinv(gram))).sum(axis=1)) / rows)


def residual_factors(leverage: Floats, fraction: float) -> Floats:
    """a: how many times larger the error of a row is where it did not train."""
    left_out = np.maximum(1.0 - leverage / fraction, 1.0 / _MOST_FACTOR)
    return np.asarray(1.0 / left_out)


def known_fractions(known: Booleans) -> Floats:
    """Which fraction of each target's cells is known, in twentieths, at least one of them."""
    return np.asarray(np.maximum(np.round(known.mean(axis=0) * _STEPS), 1) / _STEPS)


def hold_out_key_holder(channel: Channel, roles: Roles) -> None:
    """Make a fresh key and open one masked array of predictions."""
    channel = channel.within("held out", HELD_OUT_DISCLOSURES)
    secret = send_fresh_key(channel, roles)
    rows = receive_count(channel, roles.label_holder, "rows", 1, MOST_ROWS)
    models = receive_count(channel, roles.label_holder, "models", 1, MOST)
    holder = KeyHolder(secret, {"held out": (rows * models,)})
    request = channel.receive(roles.label_holder, "held out")
    channel.send(roles.label_holder, "opened held out", holder.open("held out", request))


def hold_out_given(
    channel: Channel, part: Part, share: ModelShare, l2: float, roles: Roles
) -> None:
    """The given party's factors and scores of the rows that the model was trained on."""
    channel = channel.within("held out", HELD_OUT_DISCLOSURES)
    key = receive_key(channel, roles)
    columns = encode_columns(part, share)
    weights = np.asarray(share.state["weights"], dtype=np.float64)
    weights = weights.reshape(columns.shape[1], share.state["models"])
    fractions = expect_array(
        channel.receive(roles.label_holder, "known shares"),
        sender=roles.label_holder,
        name="known shares",
        holds="float",
        shape=(weights.shape[1],),
    )
    leverage = leverages(columns, l2)
    factors = np.column_stack([residual_factors(leverage, max(c, 1 / _STEPS)) for c in fractions])
    channel.release(roles.label_holder, "held-out predictions", factors.size)
    for name, values, bits, bound in (
        ("factors", factors, _FACTOR_BITS, _FACTOR_BOUND),
        ("scaled scores", factors * (columns @ weights), _BITS, _SCORE_BOUND),
    ):
        hidden = key.encrypt(encode(values, bits, bound=bound).ravel(), bound=bound)
        channel.send(roles.label_holder, name, hidden.to_wire())


def hold_out_missing(
    channel: Channel, targets: Floats, known: Booleans, share: ModelShare, roles: Roles
) -> Floats:
    """Held-out predictions of the targets, (rows, models), in their units."""
    channel = channel.within("held out", HELD_OUT_DISCLOSURES)
    key = receive_key(channel, roles)
    given = roles.feature_holders[0]
    rows, models = targets.shape
    channel.send(roles.key_holder, "rows", rows)
    channel.send(roles.key_holder, "models", models)
    channel.send(given, "known shares", known_fractions(known))
    mean, scale = (np.asarray(share.state[name]) for name in ("mean", "scale"))
    intercept = np.asarray(share.state["weights"], dtype=np.float64).reshape(-1, models)[-1]
    units = (targets - mean) / scale
    size = (rows * models,)
    factors = load_array(key, channel.receive(given, "factors"), given, size)
    scores = load_array(key, channel.receive(given, "scaled scores"), given, size)
    own = encode(intercept - units, _TARGET_BITS).ravel()
    request, mask = (factors * own + scores).mask()
    channel.send(roles.key_holder, "held out", request)
    opened = mask.remove(channel.receive(roles.key_holder, "opened held out"))
    channel.note_opened("held-out predictions", opened)
    moved = decode(np.asarray(opened).reshape(rows, models), _BITS)
    return np.asarray((units + moved) * scale + mean)
