"""Linear and ridge regression across parties, by the four steps of vertical federated learning.

Holds   the label holder: columns and the target; each feature holder: columns; the key holder:
        the secret key, no data.
Learns  a feature holder: its own gradient in each round, which rows have a known label, the common
        step lengths. The label holder: its own gradient, the loss, five sums a round of each
        feature holder, and when it predicts, the total score of each row. The key holder:
        uniformly masked numbers, the number of columns of each party and of rounds.

Each round (1) uses the key that the key holder made for this run; (2) feature holders send
encrypted scores, the label holder returns the encrypted residual r = Σ scores − y; (3) every party
forms its encrypted gradient Xᵀr (the label holder also ⟨r, y⟩, which completes the loss), masks it
and sends it to the key holder; (4) the key holder returns the masked values, each party unmasks
and moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.crypto import EncryptedArray, KeyHolder, PublicKey, scheme
from vfsl.crypto.fixed import decode, encode
from vfsl.data import Encoder
from vfsl.errors import ConfigError, DataError, ProtocolError
from vfsl.estimators.base import Federated, Part, Roles, Rows, Share
from vfsl.estimators.descent import Block, Floats, Integers, Step, Terms, Width, choose_step
from vfsl.values import Aggregate, Array, Ciphertext, Disclosure, Disclosures, Masked

_NOTHING = "nothing without the secret key"

TRAINING: Disclosures = {
    "public key": Disclosure(dict, "the public key of this run"),
    "labelled rows": Disclosure(np.ndarray, "which aligned rows have a known label"),
    "columns": Disclosure(int, "how many encoded columns the sender has"),
    "scores": Disclosure(Ciphertext, _NOTHING),
    "residual": Disclosure(Ciphertext, _NOTHING),
    "gradient": Disclosure(Ciphertext, "uniformly masked sums"),
    "opened gradient": Disclosure(Masked, "the receiver's own gradient, after it removes its mask"),
    "gain": Disclosure(Aggregate, "how much the sender's columns can still explain, one number"),
    "terms": Disclosure(Aggregate, "five sums over all rows: curvature and fit of the round"),
    "step": Disclosure(Aggregate, "the common step length"),
    "another round": Disclosure(bool, "whether training goes on"),
}
SCORING: Disclosures = {
    "public key": Disclosure(dict, "the public key of this run"),
    "rows": Disclosure(int, "how many rows are scored"),
    "scores": Disclosure(Ciphertext, _NOTHING),
    "total": Disclosure(Ciphertext, "uniformly masked scores"),
    "opened total": Disclosure(Masked, "the total score of each row, to the label holder"),
}
DISCLOSURES = TRAINING | SCORING

_SCORE_BITS = 24  # scores of a prediction are not summed over rows, so their width is fixed
_SCORE_BOUND = 1 << 50


@dataclass
class LinearRegression:
    """Least squares or ridge regression over the aligned rows of several parties.

    Parameters
    ----------
    l2 : float
        Ridge penalty: minimises ½‖Xw − y‖²/N + ½ l2 ‖w‖² on standardised columns and target.
    max_rounds : int
        Most rounds of training.
    tolerance : float
        Training stops when the predictions would change by no more than about this share of what
        the columns explain.
    rows_per_column : int
        Refuse to train on fewer rows than this many times the widest party's columns: a party with
        as many columns as rows could solve its gradients for the residuals.

    Attributes
    ----------
    shares_ : dict of Share
        Each party's part of the model.
    n_rounds_ : int
    stop_reason_ : str
    """

    l2: float = 0.0
    max_rounds: int = 100
    tolerance: float = 1e-7
    rows_per_column: int = 10

    def fit(self, fed: Federated, label: tuple[str, str]) -> LinearRegression:
        """Train on all aligned rows of a federation whose label is known.

        Parameters
        ----------
        fed : Federation
        label : (party, column)
        """
        self._check()
        roles = fed.roles(label[0])
        parts = fed.parts(label)
        jobs = {
            party: partial(
                self.train, part=parts.get(party), role=roles, scheme=(fed.scheme, fed.security)
            )
            for party in roles.everyone
        }
        settings = {
            "model": "linear",
            "label": list(label),
            "l2": self.l2,
            "scheme": fed.scheme,
            "security": fed.security,
        }
        shares, report = fed.run("train linear", jobs, settings)
        self.shares_: dict[str, Share] = {
            party: share for party, share in shares.items() if share is not None
        }
        held = self.shares_[roles.label_holder]
        self.n_rounds_ = len(held.rounds)
        self.stop_reason_ = held.stop_reason
        self._label = label
        # The target is standardised, so twice the loss is the unexplained share of its variance.
        metrics = {"training_r2": 1 - 2 * held.rounds[-1]["loss"]}
        report(metrics=metrics, rounds=held.rounds, stop_reason=held.stop_reason, notes=held.notes)
        return self

    def predict(self, fed: Federated) -> Array:
        """Predictions for the aligned rows, in the common order, in units of the target."""
        if not hasattr(self, "shares_"):
            raise ConfigError("LinearRegression is not fitted yet: call fit first.")
        roles = fed.roles(self._label[0])
        parts = fed.parts(self._label)
        jobs = {
            party: partial(
                self.score,
                part=parts.get(party),
                share=self.shares_.get(party),
                role=roles,
                scheme=(fed.scheme, fed.security),
            )
            for party in roles.everyone
        }
        answers, report = fed.run("predict linear", jobs, {"model": "linear", "scheme": fed.scheme})
        report()
        return np.asarray(answers[roles.label_holder])

    def train(
        self, channel: Channel, part: Part | None, *, role: Roles, scheme: tuple[str, int]
    ) -> Share | None:
        """One party's side of training; None for the key holder, who has no part."""
        channel = channel.within("linear", TRAINING)
        if channel.me == role.key_holder:
            train_key_holder(channel, role, scheme, self.max_rounds)
            return None
        if part is None:
            raise ConfigError(f"Party {channel.me!r} needs a part of the data to train on.")
        key = _receive_key(channel, role, scheme)
        if channel.me == role.label_holder:
            return train_label_holder(channel, part, role, key, self)
        return train_feature_holder(channel, part, role, key, self)

    def score(
        self,
        channel: Channel,
        part: Part | None,
        share: Share | None,
        *,
        role: Roles,
        scheme: tuple[str, int],
    ) -> Array | None:
        """One party's side of prediction; the answer only at the label holder."""
        channel = channel.within("linear", SCORING)
        if channel.me == role.key_holder:
            score_key_holder(channel, role, scheme)
            return None
        if part is None or share is None:
            raise ConfigError(f"Party {channel.me!r} needs data and its share of the model.")
        key = _receive_key(channel, role, scheme)
        if channel.me == role.label_holder:
            return score_label_holder(channel, part, share, role, key)
        score_feature_holder(channel, part, share, role, key)
        return None

    def _check(self) -> None:
        for name, least in (("l2", 0.0), ("max_rounds", 1), ("tolerance", 0.0)):
            if not getattr(self, name) >= least:
                raise ConfigError(
                    f"The {name} parameter of LinearRegression must be at least {least}. "
                    f"Got {getattr(self, name)!r} instead."
                )


# ---- training: the three roles side by side ------------------------------------------------------


def train_key_holder(
    channel: Channel, roles: Roles, scheme_name: tuple[str, int], max_rounds: int
) -> None:
    """Make a key, then answer one masked gradient a party and round, of the announced size."""
    public, secret = scheme(*scheme_name).generate()
    for party in roles.data_holders:
        channel.send(party, "public key", public.to_wire())
    sizes = {
        party: expect_integer(
            channel.receive(party, "columns"), sender=party, name="columns", low=0, high=10**6
        )
        for party in roles.data_holders
    }
    asking = [party for party, size in sizes.items() if size]
    all_rounds = [f"round {number}" for number in range(max_rounds + 1)]
    holder = KeyHolder(secret, {f"{r}/{p}": (sizes[p],) for r in all_rounds for p in asking})
    for name in all_rounds:
        here = channel.within(name)
        for party in asking:
            answer = holder.open(f"{name}/{party}", here.receive(party, "gradient"))
            here.send(party, "opened gradient", answer)
        if not here.receive(roles.label_holder, "another round"):
            return


def train_feature_holder(
    channel: Channel, part: Part, roles: Roles, key: PublicKey, settings: LinearRegression
) -> Share:
    """Send encrypted scores, get the encrypted residual, learn one's own gradient."""
    label_holder = roles.label_holder
    known = expect_array(
        channel.receive(label_holder, "labelled rows"),
        sender=label_holder,
        name="labelled rows",
        holds="boolean",
        shape=(len(part.rows),),
    )
    model, columns = _encode_columns(part, part.rows[known])
    _announce(channel, roles, columns.shape[1])
    width = Width.for_rows(len(columns))
    block = Block(columns, np.full(columns.shape[1], settings.l2), width)
    for number in range(settings.max_rounds + 1):
        here = channel.within(f"round {number}")
        scores = key.encrypt(block.scores(), use="inner", bound=width.score_bound)
        here.send(label_holder, "scores", scores.to_wire())
        residual = _load(key, here.receive(label_holder, "residual"), label_holder, len(columns))
        sums = _gradient(here, roles, residual, block.columns)
        if number == 0:
            here.send(label_holder, "gain", Aggregate(block.begin(sums)))
        else:
            here.send(label_holder, "terms", Aggregate(np.array(block.measure(sums))))
            step = _read_step(here.receive(label_holder, "step"), label_holder)
            block.move(step)
            if step.last:
                break
    return Share(channel.me, "linear", model | {"weights": block.weights.tolist()})


def train_label_holder(
    channel: Channel, part: Part, roles: Roles, key: PublicKey, settings: LinearRegression
) -> Share:
    """Form the encrypted residual, sum everybody's terms and choose the step."""
    target, known = _known_target(channel.me, part.target)
    for party in roles.feature_holders:
        channel.send(party, "labelled rows", known)
    model, columns = _encode_columns(part, part.rows[known])
    mean, scale = float(target.mean()), float(target.std())
    scale = scale if scale > 0 else 1.0
    width = Width.for_rows(len(target))
    standard = (target - mean) / scale
    wanted = encode(standard, width.scores, bound=width.score_bound)
    wanted_column = encode(standard, width.columns)
    _announce(channel, roles, columns.shape[1] + 1)  # one more for ⟨r, y⟩
    _check_sizes(channel, roles, columns, settings)
    # Columns and target are centred over the same rows, so the intercept is the target's mean.
    block = Block(columns, np.full(columns.shape[1], settings.l2), width)
    rounds: list[Mapping[str, Any]] = []
    gain = first_gain = 0.0
    reason = "max_rounds"
    for number in range(settings.max_rounds + 1):
        here = channel.within(f"round {number}")
        residual = _collect_residual(here, roles, key, block.scores() - wanted, width)
        sums = _gradient(here, roles, residual, np.column_stack([block.columns, wanted_column]))
        if number == 0:
            gains = [here.receive(party, "gain").payload for party in roles.feature_holders]
            gain = first_gain = block.begin(sums[:-1]) + sum(map(float, gains))
            here.send(roles.key_holder, "another round", True)
            continue
        terms = [block.measure(sums[:-1]), *_receive_terms(here, roles)]
        step, gain, stop = choose_step(terms, gain, first_gain, settings.tolerance)
        loss = _loss(terms, sums[-1], len(target), width)
        penalty = 0.5 * sum(term.penalty for term in terms)
        rounds.append({"round": number, "loss": loss, "penalty": penalty, "gain": gain})
        reason = stop or reason
        step = step._replace(last=stop is not None or number == settings.max_rounds)
        for party in roles.feature_holders:
            here.send(party, "step", Aggregate([step.length, step.turn, step.last]))
        here.send(roles.key_holder, "another round", not step.last)
        block.move(step)
        if step.last:
            break
    model |= {"weights": block.weights.tolist(), "mean": mean, "scale": scale}
    return Share(channel.me, "linear", model, tuple(rounds), reason)


# ---- prediction ----------------------------------------------------------------------------------


def score_key_holder(channel: Channel, roles: Roles, scheme_name: tuple[str, int]) -> None:
    """Make a fresh key and open one masked vector of total scores."""
    public, secret = scheme(*scheme_name).generate()
    for party in roles.data_holders:
        channel.send(party, "public key", public.to_wire())
    rows = expect_integer(
        channel.receive(roles.label_holder, "rows"),
        sender=roles.label_holder,
        name="rows",
        low=1,
        high=1 << 40,
    )
    holder = KeyHolder(secret, {"total": (rows,)})
    total = channel.receive(roles.label_holder, "total")
    channel.send(roles.label_holder, "opened total", holder.open("total", total))


def score_feature_holder(
    channel: Channel, part: Part, share: Share, roles: Roles, key: PublicKey
) -> None:
    scores = key.encrypt(_local_scores(part, share), use="any", bound=_SCORE_BOUND)
    channel.send(roles.label_holder, "scores", scores.to_wire())


def score_label_holder(
    channel: Channel, part: Part, share: Share, roles: Roles, key: PublicKey
) -> Array:
    """Add up all scores under encryption, so that only their total is ever opened."""
    own = _local_scores(part, share)
    total = key.encrypt(own, use="any", bound=_SCORE_BOUND)
    for party in roles.feature_holders:
        total = total + _load(key, channel.receive(party, "scores"), party, len(own))
    request, mask = total.masked()
    channel.send(roles.key_holder, "rows", len(own))
    channel.send(roles.key_holder, "total", request)
    opened = mask.remove(channel.receive(roles.key_holder, "opened total"))
    standard: Floats = decode(opened, _SCORE_BITS)
    return standard * float(share.state["scale"]) + float(share.state["mean"])


# ---- small pieces --------------------------------------------------------------------------------


def _receive_key(channel: Channel, roles: Roles, scheme_name: tuple[str, int]) -> PublicKey:
    return scheme(*scheme_name).load_public(channel.receive(roles.key_holder, "public key"))


def _announce(channel: Channel, roles: Roles, columns: int) -> None:
    """Fix the size of one's requests before the first one."""
    channel.send(roles.key_holder, "columns", columns)
    if channel.me != roles.label_holder:
        channel.send(roles.label_holder, "columns", columns)


def _gradient(
    channel: Channel, roles: Roles, residual: EncryptedArray, columns: Integers
) -> Integers:
    """Steps 3 and 4: the sums of the residual with one's own columns."""
    if columns.shape[1] == 0:
        return np.zeros(0, dtype=np.int64)
    request, mask = residual.inner(columns).masked()
    channel.send(roles.key_holder, "gradient", request)
    return np.asarray(mask.remove(channel.receive(roles.key_holder, "opened gradient")))


def _collect_residual(
    channel: Channel, roles: Roles, key: PublicKey, own: Integers, width: Width
) -> EncryptedArray:
    """Step 2 at the label holder: Σ scores − y under encryption, back to all feature holders."""
    residual = key.encrypt(own, use="inner", bound=2 * width.score_bound)
    for party in roles.feature_holders:
        residual = residual + _load(key, channel.receive(party, "scores"), party, len(own))
    for party in roles.feature_holders:
        channel.send(party, "residual", residual.to_wire())
    return residual


def _load(key: PublicKey, value: Ciphertext, sender: str, rows: int) -> EncryptedArray:
    loaded = key.load(value)
    if loaded.shape != (rows,):
        raise ProtocolError(
            f"Party {sender!r} sent {loaded.shape} encrypted values; expected {rows}.", sender
        )
    return loaded


def _receive_terms(channel: Channel, roles: Roles) -> list[Terms]:
    terms = []
    for party in roles.feature_holders:
        value = channel.receive(party, "terms").payload
        numbers = expect_array(
            value, sender=party, name="terms", holds="float", shape=(len(Terms._fields),)
        )
        terms.append(Terms(*map(float, numbers)))
    return terms


def _read_step(value: Aggregate, sender: str) -> Step:
    match value.payload:
        case [float() as length, float() as turn, bool() as last]:
            return Step(length, turn, last)
    raise ProtocolError(f"Party {sender!r} sent a step of an unknown form.", sender)


def _loss(terms: list[Terms], residual_target: int, rows: int, width: Width) -> float:
    """½‖r‖²/N at the trial point, with ‖r‖² = Σ weights·gradient − ⟨r, y⟩."""
    product = float(residual_target) / 2.0 ** (width.scores + width.columns) / rows
    return 0.5 * (sum(term.fit for term in terms) - product)


def _known_target(party: str, target: Array | None) -> tuple[Floats, Array]:
    if target is None:
        raise ConfigError(f"Party {party!r} holds the label but was given no target.")
    values = np.asarray(target, dtype=np.float64)
    known = ~np.isnan(values)
    if known.sum() < 2:
        raise DataError(
            f"Party {party!r} has {int(known.sum())} aligned rows with a known label; "
            "at least 2 are needed."
        )
    return values[known], known


def _check_sizes(
    channel: Channel, roles: Roles, columns: Floats, settings: LinearRegression
) -> None:
    sizes = {channel.me: columns.shape[1]}
    for party in roles.feature_holders:
        sizes[party] = expect_integer(
            channel.receive(party, "columns"), sender=party, name="columns", low=0, high=10**6
        )
    widest = max(sizes, key=lambda party: sizes[party])
    needed = settings.rows_per_column * sizes[widest]
    if len(columns) < needed:
        raise DataError(
            f"Party {widest!r} has {sizes[widest]} encoded columns but there are only "
            f"{len(columns)} labelled aligned rows; at least {needed} are needed, or its gradients "
            "would reveal single rows. Use fewer columns or more rows."
        )


def _encode_columns(part: Part, rows: Rows) -> tuple[dict[str, Any], Floats]:
    """The party's columns, standardised and centred, and the state that repeats it for new rows."""
    table = part.table.take(rows)
    encoder = Encoder(missing="impute").fit(table)
    matrix = encoder.transform(table).matrix
    centres = matrix.mean(axis=0)
    return {"encoder": encoder.to_dict(), "centres": centres.tolist()}, matrix - centres


def _local_scores(part: Part, share: Share) -> Integers:
    encoder = Encoder.from_dict(share.state["encoder"])
    matrix = encoder.transform(part.table.take(part.rows)).matrix
    centred = matrix - np.asarray(share.state["centres"], dtype=np.float64)
    scores = centred @ np.asarray(share.state["weights"], dtype=np.float64)
    return encode(scores, _SCORE_BITS, bound=_SCORE_BOUND)
