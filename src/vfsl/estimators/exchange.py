"""What roles of linear protocols say to each other: checked numbers, arrays and masked requests."""

from __future__ import annotations

import numpy as np

from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.crypto import EncryptedArray, PublicKey, SecretKey, scheme
from vfsl.errors import ProtocolError
from vfsl.estimators.descent import Floats, Integers
from vfsl.parts import Roles
from vfsl.values import Aggregate, Ciphertext, Masked

MOST = 10**6  # columns, models


def send_fresh_key(channel: Channel, roles: Roles) -> SecretKey:
    """Make a key for this run; every data holder gets the public one."""
    public, secret = scheme(roles.scheme, roles.security).generate()
    for party in roles.data_holders:
        channel.send(party, "public key", public.to_wire())
    return secret


def receive_key(channel: Channel, roles: Roles) -> PublicKey:
    """The public key of this run, which every data holder waits for first."""
    return scheme(roles.scheme, roles.security).load_public(
        channel.receive(roles.key_holder, "public key")
    )


def open_masked(channel: Channel, roles: Roles, requests: list[EncryptedArray]) -> list[Integers]:
    """Steps 3 and 4: mask, let the key holder open, unmask."""
    if not requests:
        return []
    masked = [request.masked() for request in requests]
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


def bundled(arrays: list[EncryptedArray]) -> Ciphertext:
    """Several arrays as one message."""
    return Ciphertext([array.to_wire().payload for array in arrays])


def unbundled(value: Ciphertext, sender: str) -> list[Ciphertext]:
    """The arrays of one message."""
    if not isinstance(value.payload, list):
        raise ProtocolError(f"Party {sender!r} sent one ciphertext; expected a list.", sender)
    return [Ciphertext(part) for part in value.payload]


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


def numbers_of(value: Aggregate, sender: str, name: str, shape: tuple[int, ...]) -> Floats:
    return np.array(
        expect_array(value.payload, sender=sender, name=name, holds="float", shape=shape)
    )


def announced(channel: Channel, sender: str, name: str, low: int, high: int) -> int:
    return expect_integer(
        channel.receive(sender, name), sender=sender, name=name, low=low, high=high
    )
