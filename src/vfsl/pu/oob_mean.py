"""One out-of-bag sum of scores for each row, formed under encryption: no single bag's is opened.

Holds   every data holder: columns and its weights of all models; the label holder also which models
        vote for a row; the key holder: the secret key, no data.
Learns  the label holder: for each row the sum of its voters' total scores; with one feature holder
        that is also the other's part of it. Feature holders: nothing, not even who votes. The key
        holder: uniformly masked numbers, how many rows there are.

T scores of a row would be T linear combinations of the other party's columns: with as many bags as
columns its whole table up to a linear map. So the feature holders send encrypted scores of all
models, the label holder multiplies them by its private votes and adds up over the models.
"""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np

from vfsl.channel import Channel
from vfsl.crypto import EncryptedArray, KeyHolder, PublicKey
from vfsl.crypto.fixed import decode, encode
from vfsl.data import Encoder
from vfsl.errors import ProtocolError
from vfsl.estimators.exchange import (
    bundle,
    load_array,
    receive_count,
    receive_key,
    send_fresh_key,
    unbundle,
)
from vfsl.parts import ModelShare, Part, Roles
from vfsl.pu.bags import Booleans
from vfsl.pu.bases import cut_part
from vfsl.values import Ciphertext, Disclosure, Disclosures, Floats, Integers, Masked

DISCLOSURES: Disclosures = {
    "public key": Disclosure(dict, "the public key of this run"),
    "rows": Disclosure(int, "how many rows take part"),
    "bag scores": Disclosure(Ciphertext, "nothing without the secret key"),
    "sum": Disclosure(Ciphertext, "uniformly masked sums of scores"),
    "opened sum": Disclosure(
        Masked, "one out-of-bag sum of total scores for each row, to the label holder"
    ),
}

SCORE_BITS = 24
# Scores stay below 2^16; their sums over a thousand models fit every scheme.
_BOUND = 1 << 40


def sum_key_holder(channel: Channel, roles: Roles) -> None:
    """Make a fresh key and open one masked sum for each row."""
    secret = send_fresh_key(channel, roles)
    rows = receive_count(channel, roles.label_holder, "rows", 1, 1 << 40)
    holder = KeyHolder(secret, {"sum": (rows,)})
    request = channel.receive(roles.label_holder, "sum")
    channel.send(roles.label_holder, "opened sum", holder.open("sum", request))


def sum_feature_holder(channel: Channel, part: Part, share: ModelShare, roles: Roles) -> None:
    key = receive_key(channel, roles)
    scores = fine_scores(own_scores(part, share))
    arrays = [key.encrypt(column, bound=_BOUND) for column in scores.T]
    channel.release(roles.label_holder, "out-of-bag sums", len(scores))
    channel.send(roles.label_holder, "bag scores", bundle(arrays))


def sum_label_holder(
    channel: Channel, part: Part, share: ModelShare, voters: Booleans, roles: Roles
) -> Floats:
    """For each row the sum of its voters' total scores."""
    key = receive_key(channel, roles)
    channel.send(roles.key_holder, "rows", len(voters))
    own = fine_scores(own_scores(part, share, constant=True))
    theirs = [_receive_scores(channel, party, key, own.shape) for party in roles.feature_holders]
    chosen = np.flatnonzero(voters.any(axis=0))
    products = (
        reduce(add, (arrays[model] for arrays in theirs)) * voters[:, model].astype(np.int64)
        for model in chosen
    )
    total = reduce(add, products) + (own * voters).sum(axis=1)
    request, mask = total.masked()
    channel.send(roles.key_holder, "sum", request)
    return decode(mask.remove(channel.receive(roles.key_holder, "opened sum")), SCORE_BITS)


def own_scores(part: Part, share: ModelShare, constant: bool = False) -> Floats:
    """A party's summand of the scores of a linear share, (rows, models)."""
    part = cut_part(part, share.state.get("limits", {}))
    encoder = Encoder.from_dict(share.state["encoder"])
    columns = encoder.transform(part.table.take(part.rows)).matrix
    columns = columns - np.asarray(share.state["centres"], dtype=np.float64)
    if constant:
        columns = np.column_stack([columns, np.ones(len(columns))])
    weights = np.asarray(share.state["weights"], dtype=np.float64)
    return np.asarray(columns @ weights.reshape(columns.shape[1], share.state["models"]))


def fine_scores(scores: Floats) -> Integers:
    return encode(scores, SCORE_BITS, bound=_BOUND)


def _receive_scores(
    channel: Channel, party: str, key: PublicKey, shape: tuple[int, ...]
) -> list[EncryptedArray]:
    came = unbundle(channel.receive(party, "bag scores"), party)
    rows, models = shape
    if len(came) != models:
        raise ProtocolError(
            f"Party {party!r} sent scores of {len(came)} models; expected {models}.", party
        )
    return [load_array(key, one, party, (rows,)) for one in came]
