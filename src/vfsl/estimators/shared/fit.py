"""A party's sides of training and scoring a linear model on shares.

Holds   the label holder: columns and label; each feature holder: columns; the dealer: seeds.
Learns  each party: the weights of its own columns, and later the label holder the total score of
        each row that is predicted. With ``weights="shared"`` nobody learns weights. Feature holders
        also learn which aligned rows have a label; all learn how many rows, columns and classes
        there are, and where rows have weights a power of two above the largest one, whose mean is
        1. What else crosses is uniformly random, see crypto/session.py.

With one feature holder a total score also tells that party's part of it, and weights tell about the
other side's columns and labels: they are the result that was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from vfsl.channel import Channel
from vfsl.crypto import shares
from vfsl.crypto.fixed import decode, encode
from vfsl.crypto.shares import Session, Shared
from vfsl.errors import ProtocolError
from vfsl.estimators.shared import logistic as shared_logistic
from vfsl.estimators.shared.algebra import BITS, whiten
from vfsl.estimators.shared.least_squares import LeastSquaresPlan, fit_least_squares
from vfsl.estimators.shared.logistic import fit_logistic
from vfsl.estimators.shared.logistic_plan import WEIGHT_BITS, LogisticPlan
from vfsl.parts import Roles
from vfsl.values import Disclosure, Disclosures, Floats, Masked

FIT: Disclosures = {
    **shares.DISCLOSURES,
    "sizes": Disclosure(
        dict,
        "how many rows and columns the sender has; of the label holder also how many outputs or "
        "classes there are, and a power of two above its largest row weight",
    ),
    **shared_logistic.DISCLOSURES,
    "own weights": Disclosure(Masked, "the weights of the receiver's own columns"),
}
SCORE: Disclosures = {
    **shares.DISCLOSURES,
    "total scores": Disclosure(Masked, "the total score of each row, to the label holder"),
}

_SCORE_BITS = 24
_SCORE_BOUND = 1 << 50
_COLUMN_BITS = 14  # of columns that are multiplied by weights nobody knows


@contextmanager
def join(
    channel: Channel, roles: Roles, rng: np.random.Generator | None, speaks: Disclosures
) -> Iterator[Session]:
    """A session of a step's data holders, with its key holder as the dealer."""
    channel = channel.within("on shares", speaks)
    hide = roles.scheme != "plain"
    with Session.join(channel, roles.data_holders, roles.key_holder, hide=hide, rng=rng) as session:
        yield session


@dataclass(frozen=True, eq=False)
class SharedWeights:
    """Weights of all parties' columns, in shares.

    Attributes
    ----------
    weights : mapping
        By party: of its own coordinates, (coordinates, models).
    back : array or None
        This party's columns have the weights ``back @`` those of its coordinates.
    bits : int
        Behind the point.
    rounds, stop_reason
        What is known of the training, as in a share of a model.
    """

    weights: Mapping[str, Shared]
    back: Floats | None
    bits: int
    rounds: tuple[Mapping[str, Any], ...] = ()
    stop_reason: str = "solved"

    def open_own(self, session: Session, label_holder: str) -> Floats | None:
        """Let each party see the weights of its own columns; this party's."""
        mine = None
        about = ("columns", "label") if session.me == label_holder else ("columns",)
        for party, weights in self.weights.items():
            opened = weights.open(party, name="own weights", about=about)
            mine = opened if opened is not None else mine
        return None if mine is None else self.back @ decode(mine, self.bits)

    def to_state(self) -> dict[str, Any]:
        """This party's pieces, for its share of the model."""
        pieces = {party: one.piece.tolist() for party, one in self.weights.items()}
        models = next(iter(self.weights.values())).shape[1]
        back = [] if self.back is None else self.back.tolist()
        return {"pieces": pieces, "back": back, "bits": self.bits, "models": models}


def solve_least_squares(
    session: Session,
    columns: Floats | None,
    target: Floats | None,
    row_weights: Floats | None,
    holder: str,
    l2: float,
    check: Callable[[Mapping[str, int], int], None],
) -> SharedWeights:
    """One party's side of least squares; columns and target are None at the dealer.

    ``check`` refuses numbers of columns and rows, before any column crosses.
    """
    own: dict[str, int] = {}
    white = {}
    if columns is not None:
        free = [columns.shape[1] - 1] if session.me == holder else []
        white = {session.me: whiten(columns, l2, free=free)}
        own = {"rows": len(columns), "columns": white[session.me].columns.shape[1]}
    if target is not None:
        own["targets"] = target.shape[1]
    if row_weights is not None:
        own["peak"] = _find_peak(row_weights)
    sizes = session.agree(own)
    rows = check_rows(sizes)
    counts = {party: sizes[party]["columns"] for party in session.parties}
    check({party: size - (party == holder) for party, size in counts.items()}, rows)
    facts = sizes[holder]
    plan = LeastSquaresPlan(rows, counts, holder, facts["targets"], facts.get("peak"))
    weights = fit_least_squares(session, white, target, row_weights, plan)
    return SharedWeights(weights, white[session.me].back if white else None, BITS)


def solve_logistic(
    session: Session,
    columns: Floats | None,
    target: Floats | None,
    row_weights: Floats | None,
    holder: str,
    check: Callable[[Mapping[str, int], int], None],
    *,
    softmax: bool,
    **settings: Any,
) -> SharedWeights:
    """One party's side of logistic regression; ``settings`` are those of `LogisticPlan`.

    ``softmax`` is known to the label holder: whether the outputs are classes of one label.
    """
    own: dict[str, int] = {}
    if columns is not None:
        own = {"rows": len(columns), "columns": columns.shape[1]}
    if target is not None:
        own |= {"outputs": target.shape[1], "softmax": int(softmax)}
    if row_weights is not None:
        own["peak"] = _find_peak(row_weights)
    sizes = session.agree(own)
    rows = check_rows(sizes)
    counts = {party: sizes[party]["columns"] for party in session.parties}
    check({party: size - (party == holder) for party, size in counts.items()}, rows)
    facts = sizes[holder]
    plan = LogisticPlan(
        rows,
        counts,
        holder,
        outputs=facts["outputs"],
        peak=facts.get("peak"),
        softmax=bool(facts["softmax"]),
        **settings,
    )
    found = fit_logistic(session, {session.me: columns}, target, row_weights, plan=plan)
    rounds: list[dict[str, Any]] = [{"round": number + 1} for number in range(found.rounds)]
    if found.losses:
        rounds = [{**one, "loss": loss} for one, loss in zip(rounds, found.losses, strict=False)]
    back = found.back.get(session.me)
    return SharedWeights(found.weights, back, WEIGHT_BITS, tuple(rounds), found.stop_reason)


def _find_peak(row_weights: Floats) -> int:
    """Row weights are at most 2 to this power."""
    return max(math.ceil(math.log2(row_weights.max())), 0)


def check_rows(sizes: Mapping[str, Mapping[str, int]]) -> int:
    """How many rows all parties have; ProtocolError if they do not agree."""
    rows = {party: one["rows"] for party, one in sizes.items()}
    if len(set(rows.values())) != 1:
        raise ProtocolError(f"The parties have different numbers of rows: {rows}.")
    return next(iter(rows.values()))


# ---- total scores --------------------------------------------------------------------------------


def open_scores(session: Session, scores: Floats | None, label_holder: str) -> Floats | None:
    """The sum of all parties' scores of each row, at the label holder."""
    own = {} if scores is None else {"rows": len(scores), "models": scores.shape[1]}
    sizes = session.agree(own)
    shape = (check_rows(sizes), sizes[label_holder]["models"])
    total = session.zeros(shape)
    for party in session.parties:
        mine = None
        if scores is not None and party == session.me:
            mine = encode(scores, _SCORE_BITS, bound=_SCORE_BOUND)
        total = total + session.share(party, mine, shape)
    opened = total.open(label_holder, name="total scores", about=("columns",))
    return None if opened is None else decode(opened, _SCORE_BITS)


def open_shared_scores(
    session: Session, columns: Floats | None, state: Mapping[str, Any], label_holder: str
) -> Floats | None:
    """The same where nobody knows the weights."""
    own: dict[str, int] = {}
    if columns is not None:
        columns = columns @ np.asarray(state["back"])
        own = {"rows": len(columns), "columns": columns.shape[1]}
        own |= {"models": state["models"], "bits": state["bits"]}
    sizes = session.agree(own)
    rows, models = check_rows(sizes), sizes[label_holder]["models"]
    terms = []
    for party in session.parties:
        size = sizes[party]["columns"]
        mine = None
        if columns is not None and party == session.me:
            mine = encode(columns, _COLUMN_BITS)
        piece = np.zeros((size, models), dtype=np.uint64)
        if columns is not None:
            piece = np.asarray(state["pieces"][party], dtype=np.uint64).reshape(size, models)
        terms.append((session.private(party, mine, (rows, size)), Shared(session, piece)))
    parts = session.products(terms)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    opened = total.open(label_holder, name="total scores", about=("columns",))
    bits = _COLUMN_BITS + sizes[label_holder]["bits"]
    return None if opened is None else decode(opened, bits)
