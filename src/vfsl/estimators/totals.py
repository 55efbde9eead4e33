"""Total scores of rows, added up under encryption so that only their sum is ever opened.

Holds   every data holder: columns and weights; the key holder: the secret key, no data.
Learns  the label holder: the total score of each row and model; with one feature holder that is
        also the other's score. Feature holders: nothing. The key holder: uniformly masked numbers.
"""

from __future__ import annotations

from vfsl.channel import Channel
from vfsl.crypto import KeyHolder, PublicKey
from vfsl.crypto.fixed import decode, encode
from vfsl.estimators.descent import Floats, Integers
from vfsl.estimators.exchange import MOST, announced, load_array, send_fresh_key
from vfsl.parts import Roles
from vfsl.values import Ciphertext, Disclosure, Disclosures, Masked

DISCLOSURES: Disclosures = {
    "public key": Disclosure(dict, "the public key of this run"),
    "rows": Disclosure(int, "how many rows take part"),
    "models": Disclosure(int, "how many models there are"),
    "scores": Disclosure(Ciphertext, "nothing without the secret key"),
    "total": Disclosure(Ciphertext, "uniformly masked scores"),
    "opened total": Disclosure(Masked, "the total score of each row, to the label holder"),
}

# Scores are not summed over rows here, so their width is fixed.
SCORE_BITS = 24
SCORE_BOUND = 1 << 50


def score_key_holder(channel: Channel, roles: Roles) -> None:
    """Make a fresh key and open one masked array of total scores."""
    secret = send_fresh_key(channel, roles)
    rows = announced(channel, roles.label_holder, "rows", 1, 1 << 40)
    models = announced(channel, roles.label_holder, "models", 1, MOST)
    holder = KeyHolder(secret, {"total": (rows, models)})
    request = channel.receive(roles.label_holder, "total")
    channel.send(roles.label_holder, "opened total", holder.open("total", request))


def score_feature_holder(
    channel: Channel, columns: Floats, weights: Floats, roles: Roles, key: PublicKey
) -> None:
    scores = key.encrypt(fine_scores(columns, weights), use="add", bound=SCORE_BOUND)
    channel.release(roles.label_holder, "total scores", len(columns) * weights.shape[1])
    channel.send(roles.label_holder, "scores", scores.to_wire())


def score_label_holder(
    channel: Channel, columns: Floats, weights: Floats, roles: Roles, key: PublicKey
) -> Floats:
    """The total score of each row and model."""
    channel.send(roles.key_holder, "rows", len(columns))
    channel.send(roles.key_holder, "models", weights.shape[1])
    return open_total(channel, roles, key, fine_scores(columns, weights))


def open_total(channel: Channel, roles: Roles, key: PublicKey, own: Integers) -> Floats:
    """Add up all scores under encryption, so that only their total is ever opened."""
    total = key.encrypt(own, use="add", bound=SCORE_BOUND)
    for party in roles.feature_holders:
        total = total + load_array(key, channel.receive(party, "scores"), party, own.shape)
    request, mask = total.masked()
    channel.send(roles.key_holder, "total", request)
    return decode(mask.remove(channel.receive(roles.key_holder, "opened total")), SCORE_BITS)


def fine_scores(columns: Floats, weights: Floats, noise: Floats | float = 0.0) -> Integers:
    return encode(columns @ weights + noise, SCORE_BITS, bound=SCORE_BOUND)
