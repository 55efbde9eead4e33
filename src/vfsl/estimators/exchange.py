"""What the parties of linear protocols say to each other: keys, checked messages, total scores.

Total scores of rows are added up under encryption, so that only their sum is ever opened:

Holds   every data holder: columns and weights; the key holder: the secret key, no data.
Learns  the label holder: the total score of each row and model; with one feature holder that is
        also the other's score. Feature holders: nothing. The key holder: uniformly masked numbers.
"""

from __future__ import annotations

import numpy as np

from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.crypto import EncryptedArray, KeyHolder, PublicKey, SecretKey, make_scheme
from vfsl.crypto.fixed import decode, encode
from vfsl.errors import ProtocolError
from vfsl.parts import Roles
from vfsl.values import (
    Ciphertext,
    Disclosure,
    Disclosures,
    Floats,
    Integers,
    Masked,
)

TOTALS: Disclosures = {
    "public key": Disclosure(dict, "the public key of this run"),
    "rows": Disclosure(int, "how many rows take part"),
    "models": Disclosure(int, "how many models there are"),
    "scores": Disclosure(Ciphertext, "nothing without the secret key"),
    "total": Disclosure(Ciphertext, "uniformly masked scores"),
    "opened total": Disclosure(Masked, "the total score of each row, to the label holder"),
}

MOST = 10**6  # columns, models
MOST_ROWS = 1 << 40
# Total scores are not summed over rows, so their width is fixed.
SCORE_BITS = 24
SCORE_BOUND = 1 << 50


# ---- keys ----------------------------------------------------------------------------------------


def send_fresh_key(channel: Channel, roles: Roles) -> SecretKey:
    """Make a key for this run; every data holder gets the public one."""
    public, secret = make_scheme(roles.scheme, roles.security).generate()
    for party in roles.data_holders:
        channel.send(party, "public key", public.to_wire())
    return secret


def receive_key(channel: Channel, roles: Roles) -> PublicKey:
    """The public key of this run, which every data holder waits for first."""
    return make_scheme(roles.scheme, roles.security).load_public(
        channel.receive(roles.key_holder, "public key")
    )


# ---- checked messages ----------------------------------------------------------------------------


def receive_count(channel: Channel, sender: str, name: str, low: int, high: int) -> int:
    """A whole number that a peer announces, which must lie between ``low`` and ``high``."""
    return expect_integer(
        channel.receive(sender, name), sender=sender, name=name, low=low, high=high
    )


def receive_numbers(channel: Channel, sender: str, name: str, shape: tuple[int, ...]) -> Floats:
    """Aggregates that a peer sent, in that shape."""
    came = channel.receive(sender, name).payload
    return np.array(expect_array(came, sender=sender, name=name, holds="float", shape=shape))


def load_array(
    key: PublicKey, value: Ciphertext, sender: str, shape: tuple[int, ...]
) -> EncryptedArray:
    """An encrypted array that a peer sent, which must have that shape."""
    loaded = key.load(value)
    if loaded.shape != shape:
        raise ProtocolError(
            f"Party {sender!r} sent encrypted values of shape {loaded.shape}; expected {shape}.",
            sender,
        )
    return loaded


def bundle(arrays: list[EncryptedArray]) -> Ciphertext:
    """Several arrays as one message."""
    return Ciphertext([array.to_wire().payload for array in arrays])


def unbundle(value: Ciphertext, sender: str) -> list[Ciphertext]:
    """The arrays of one message."""
    if not isinstance(value.payload, list):
        raise ProtocolError(f"Party {sender!r} sent one ciphertext; expected a list.", sender)
    return [Ciphertext(part) for part in value.payload]


def open_masked(channel: Channel, roles: Roles, requests: list[EncryptedArray]) -> list[Integers]:
    """Mask gradients, let the key holder open them, remove the masks."""
    if not requests:
        return []
    masked = [request.mask() for request in requests]
    channel.send(
        roles.key_holder, "gradient", Ciphertext([request.payload for request, _ in masked])
    )
    answers = channel.receive(roles.key_holder, "opened gradient").payload
    if not isinstance(answers, list) or len(answers) != len(masked):
        raise ProtocolError(
            f"Party {roles.key_holder!r} did not answer each of {len(masked)} requests.",
            roles.key_holder,
        )
    return [
        np.asarray(mask.remove(Masked(answer)))
        for (_, mask), answer in zip(masked, answers, strict=True)
    ]


# ---- total scores --------------------------------------------------------------------------------


def score_key_holder(channel: Channel, roles: Roles) -> None:
    """Make a fresh key and open one masked array of total scores."""
    secret = send_fresh_key(channel, roles)
    rows = receive_count(channel, roles.label_holder, "rows", 1, MOST_ROWS)
    models = receive_count(channel, roles.label_holder, "models", 1, MOST)
    holder = KeyHolder(secret, {"total": (rows, models)})
    request = channel.receive(roles.label_holder, "total")
    channel.send(roles.label_holder, "opened total", holder.open("total", request))


def score_feature_holder(
    channel: Channel, columns: Floats, weights: Floats, roles: Roles, key: PublicKey
) -> None:
    """Send one's own scores, encrypted."""
    scores = key.encrypt(encode_scores(columns, weights), use="add", bound=SCORE_BOUND)
    channel.release(roles.label_holder, "total scores", len(columns) * weights.shape[1])
    channel.send(roles.label_holder, "scores", scores.to_wire())


def score_label_holder(
    channel: Channel, columns: Floats, weights: Floats, roles: Roles, key: PublicKey
) -> Floats:
    """The total score of each row and model."""
    channel.send(roles.key_holder, "rows", len(columns))
    channel.send(roles.key_holder, "models", weights.shape[1])
    return open_total(channel, roles, key, encode_scores(columns, weights))


def open_total(channel: Channel, roles: Roles, key: PublicKey, own: Integers) -> Floats:
    """Add up all parties' scores under encryption and let the key holder open the total."""
    total = key.encrypt(own, use="add", bound=SCORE_BOUND)
    for party in roles.feature_holders:
        total = total + load_array(key, channel.receive(party, "scores"), party, own.shape)
    request, mask = total.mask()
    channel.send(roles.key_holder, "total", request)
    opened = decode(mask.remove(channel.receive(roles.key_holder, "opened total")), SCORE_BITS)
    channel.note_opened("total scores", opened)
    return opened


def encode_scores(columns: Floats, weights: Floats, noise: Floats | float = 0.0) -> Integers:
    """One party's scores in fixed point, at the width of total scores."""
    return encode(columns @ weights + noise, SCORE_BITS, bound=SCORE_BOUND)
