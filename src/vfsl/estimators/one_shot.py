"""Least squares in one exchange: the normal equations themselves, at the price of what they show.

Holds   as in least_squares.py, with one feature holder B and equal row weights.
Learns  B: the cross products of its columns with the label holder's nameless columns and targets,
        and the inverse of the label holder's Gram matrix: how all of those columns go together.
        The label holder: one number per column and model. The key holder: uniformly masked
        numbers.

B forms ⟨Enc(x_C), x_B⟩ and ⟨Enc(y), x_B⟩, solves the Schur complement for its own weights and sends
back what they contribute to the label holder's equations.
"""

from __future__ import annotations

import numpy as np

from vfsl.channel import Channel, expect_array
from vfsl.crypto import KeyHolder, PublicKey
from vfsl.crypto.fixed import decode, encode
from vfsl.errors import BoundExceeded, DataError, ProtocolError
from vfsl.estimators.descent import Program
from vfsl.estimators.exchange import MOST, receive_count, send_fresh_key
from vfsl.estimators.least_squares import Problems, Solution
from vfsl.parts import Roles
from vfsl.values import Aggregate, Ciphertext, Disclosure, Disclosures, Floats, Masked

DISCLOSURES: Disclosures = {
    "public key": Disclosure(dict, "the public key of this run"),
    "columns": Disclosure(int, "how many encoded columns the sender has"),
    "models": Disclosure(int, "how many models are trained together"),
    "encrypted columns": Disclosure(Ciphertext, "nothing without the secret key"),
    "cross products": Disclosure(Ciphertext, "uniformly masked sums"),
    "opened cross products": Disclosure(
        Masked, "how the receiver's columns go with the label holder's nameless columns and targets"
    ),
    "equations": Disclosure(
        Aggregate, "the inverse Gram matrix of the label holder's nameless columns"
    ),
    "contribution": Disclosure(Aggregate, "one number for each of the receiver's columns"),
}

_VALUE_RANGE = 8  # |standardised value| < 2^8
_CAPACITY = 56
_RANK_CUT = 1e-10


def width(rows: int) -> int:
    """Bits after the binary point of both factors, so that their sums stay within the space."""
    return (_CAPACITY - _VALUE_RANGE - int(np.ceil(np.log2(max(rows, 2))))) // 2


def solve_key_holder(channel: Channel, roles: Roles) -> None:
    """Make a key and open one masked matrix of the announced size."""
    secret = send_fresh_key(channel, roles)
    (party,) = roles.feature_holders
    columns = receive_count(channel, roles.label_holder, "columns", 1, MOST)
    models = receive_count(channel, roles.label_holder, "models", 1, MOST)
    theirs = receive_count(channel, party, "columns", 0, MOST)
    if theirs:
        holder = KeyHolder(secret, {"cross products": (columns + models, theirs)})
        answer = holder.open("cross products", channel.receive(party, "cross products"))
        channel.send(party, "opened cross products", answer)


def solve_label_holder(
    channel: Channel,
    columns: Floats,
    problems: Problems,
    roles: Roles,
    key: PublicKey,
    program: Program,
) -> Solution:
    """Send encrypted columns and targets, get back what B's columns explain, solve the rest."""
    (party,) = roles.feature_holders
    rows, size = columns.shape
    problem = problems.pose_problem(0, np.zeros((rows, 0)))
    models = problem.targets.shape[1]
    channel.send(roles.key_holder, "columns", size)
    channel.send(roles.key_holder, "models", models)
    theirs = receive_count(channel, party, "columns", 0, MOST)
    program.check_sizes({channel.me: size - 1, party: theirs}, channel.me, rows, problems.rarest)
    penalty = program.l2 / problem.size
    if not np.allclose(penalty, penalty[0]) or np.ptp(problem.weights) > 0:
        raise DataError("The one-shot solver needs equal row weights; use solver='rounds'.")
    bits = width(rows)
    sent = encode(np.hstack([columns, problem.targets]), bits)
    bound = 1 << (_VALUE_RANGE + bits)
    if np.abs(sent).max() > bound:
        raise BoundExceeded(
            f"A value is more than {2**_VALUE_RANGE} standard deviations from the mean; check for "
            "extreme values, or use solver='rounds'."
        )
    encrypted = key.encrypt(sent, use="inner", bound=bound)
    # The constant column's products are known: columns are centred.
    shown = (size - 1) * size // 2 + (size - 1) * theirs
    channel.release(party, "cross products and Gram matrix", shown)
    channel.release(party, "cross products", models * (theirs + size), about="label")
    channel.send(party, "encrypted columns", encrypted.to_wire())
    own_penalty = np.full(size, penalty[0])
    own_penalty[-1] = 0.0  # the intercept
    inverse = np.linalg.pinv(columns.T @ columns / rows + np.diag(own_penalty), rcond=_RANK_CUT)
    own = columns.T @ problem.targets / rows
    equations = {"inverse": inverse, "solution": inverse @ own, "penalty": float(penalty[0])}
    channel.send(party, "equations", Aggregate(equations))
    contribution = expect_array(
        channel.receive(party, "contribution").payload,
        sender=party,
        name="contribution",
        holds="float",
        shape=(size, models),
    )
    weights = inverse @ (own - contribution)
    return Solution(weights, [weights], ({"stage": 0, "round": 1},), "solved")


def solve_feature_holder(
    channel: Channel, columns: Floats, roles: Roles, key: PublicKey
) -> Solution:
    """Form the cross products, solve for one's own weights, return their contribution."""
    leader = roles.label_holder
    rows, size = columns.shape
    for party in (roles.key_holder, leader):
        channel.send(party, "columns", size)
    bits = width(rows)
    encrypted = key.load(channel.receive(leader, "encrypted columns"))
    if len(encrypted.shape) != 2 or encrypted.shape[0] != rows:
        raise ProtocolError(
            f"Party {leader!r} sent encrypted columns of shape {encrypted.shape}; expected {rows} "
            "rows.",
            leader,
        )
    if size:
        request, mask = encrypted.inner(encode(columns, bits)).mask()
        channel.send(roles.key_holder, "cross products", request)
        opened = mask.remove(channel.receive(roles.key_holder, "opened cross products"))
        channel.note_opened("cross products", opened)
        products = decode(opened, 2 * bits) / rows
    else:
        products = np.zeros((encrypted.shape[1], 0))
    inverse, solution, penalty = _read_equations(
        channel.receive(leader, "equations"), leader, encrypted.shape[1]
    )
    cross, own = products[: len(inverse)], products[len(inverse) :].T
    gram = columns.T @ columns / rows + penalty * np.eye(size)
    schur = gram - cross.T @ inverse @ cross
    weights = np.linalg.pinv(schur, rcond=_RANK_CUT) @ (own - cross.T @ solution)
    channel.release(leader, "contribution", cross.shape[0] * weights.shape[1])
    channel.send(leader, "contribution", Aggregate(cross @ weights))
    return Solution(weights, [weights])


def _read_equations(value: Aggregate, sender: str, both: int) -> tuple[Floats, Floats, float]:
    """The label holder's side of the normal equations, checked against each other."""
    match value.payload:
        case {"inverse": inverse, "solution": solution, "penalty": float(penalty)}:
            inverse = expect_array(
                inverse, sender=sender, name="equations", holds="float", shape=(None, None)
            )
            shape = (len(inverse), both - len(inverse))
            solution = expect_array(
                solution, sender=sender, name="equations", holds="float", shape=shape
            )
            if inverse.shape == (len(inverse), len(inverse)) and shape[1] > 0:
                return inverse, solution, penalty
    raise ProtocolError(f"Party {sender!r} sent equations of an unknown form.", sender)
