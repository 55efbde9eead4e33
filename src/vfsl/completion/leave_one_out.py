"""Held-out predictions of a linear model without training it again: leave one out.

Holds   the given party: its columns X of the common rows and their weights w in a trained model;
        the missing party: the targets y and the intercept b; the key holder: the secret key.
Learns  the missing party: for each common row and model the prediction of the model that did not
        see that row. The given party: how many cells of each target are known, in twentieths. The
        key holder: uniformly masked numbers, how many rows and models there are.

Without row i ridge regression predicts y_i + a_i (x_i·w + b − y_i) for it, where a = 1/(1 − h) and
h_i = (1/n) (1 + x_i·(XᵀX/n + l2)⁻¹ x_i) is the row's leverage, which only the given party can
compute. So no model of a part of the rows is ever trained, and no gradient of one is opened: two of
those differ by sums over a few rows, from which the given party could solve for the targets. The
given party sends a and a ∘ Xw under encryption; the missing party adds a ∘ (b − y) to the second.
Where cells of a target are unknown, only a share c of the rows has trained: h becomes h/c.
"""

from __future__ import annotations

import numpy as np

from vfsl.channel import Channel, expect_array
from vfsl.completion.selection import Booleans, Floats
from vfsl.crypto import KeyHolder
from vfsl.crypto.fixed import decode, encode
from vfsl.estimators.exchange import MOST, load_array, receive_count, receive_key, send_fresh_key
from vfsl.estimators.linear import encode_columns
from vfsl.parts import ModelShare, Part, Roles
from vfsl.values import Ciphertext, Disclosure, Disclosures, Masked

DISCLOSURES: Disclosures = {
    "public key": Disclosure(dict, "the public key of this run"),
    "rows": Disclosure(int, "how many rows take part"),
    "models": Disclosure(int, "how many models there are"),
    "known shares": Disclosure(
        np.ndarray, "which share of the cells of each nameless target is known, in twentieths"
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


def residual_factors(leverage: Floats, share: float) -> Floats:
    """a: how many times larger the error of a row is where it did not train."""
    left_out = np.maximum(1.0 - leverage / share, 1.0 / _MOST_FACTOR)
    return np.asarray(1.0 / left_out)


def known_shares(known: Booleans) -> Floats:
    """Which share of each target's cells is known, in twentieths, at least one of them."""
    return np.asarray(np.maximum(np.round(known.mean(axis=0) * _STEPS), 1) / _STEPS)


def hold_out_key_holder(channel: Channel, roles: Roles) -> None:
    """Make a fresh key and open one masked array of predictions."""
    secret = send_fresh_key(channel, roles)
    rows = receive_count(channel, roles.label_holder, "rows", 1, 1 << 40)
    models = receive_count(channel, roles.label_holder, "models", 1, MOST)
    holder = KeyHolder(secret, {"held out": (rows * models,)})
    request = channel.receive(roles.label_holder, "held out")
    channel.send(roles.label_holder, "opened held out", holder.open("held out", request))


def hold_out_given(
    channel: Channel, part: Part, share: ModelShare, l2: float, roles: Roles
) -> None:
    """The given party's factors and scores of the rows that the model was trained on."""
    key = receive_key(channel, roles)
    columns = encode_columns(part, share)
    weights = np.asarray(share.state["weights"], dtype=np.float64)
    weights = weights.reshape(columns.shape[1], share.state["models"])
    shares = expect_array(
        channel.receive(roles.label_holder, "known shares"),
        sender=roles.label_holder,
        name="known shares",
        holds="float",
        shape=(weights.shape[1],),
    )
    leverage = leverages(columns, l2)
    factors = np.column_stack([residual_factors(leverage, max(c, 1 / _STEPS)) for c in shares])
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
    key = receive_key(channel, roles)
    given = roles.feature_holders[0]
    rows, models = targets.shape
    channel.send(roles.key_holder, "rows", rows)
    channel.send(roles.key_holder, "models", models)
    channel.send(given, "known shares", known_shares(known))
    mean, scale = (np.asarray(share.state[name]) for name in ("mean", "scale"))
    intercept = np.asarray(share.state["weights"], dtype=np.float64).reshape(-1, models)[-1]
    units = (targets - mean) / scale
    size = (rows * models,)
    factors = load_array(key, channel.receive(given, "factors"), given, size)
    scores = load_array(key, channel.receive(given, "scaled scores"), given, size)
    own = encode(intercept - units, _TARGET_BITS).ravel()
    request, mask = (factors * own + scores).masked()
    channel.send(roles.key_holder, "held out", request)
    opened = mask.remove(channel.receive(roles.key_holder, "opened held out"))
    moved = decode(np.asarray(opened).reshape(rows, models), _BITS)
    return np.asarray((units + moved) * scale + mean)
