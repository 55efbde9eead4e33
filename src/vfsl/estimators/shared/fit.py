"""A party's sides of training and scoring a linear model on shares.

Holds   the label holder: columns and label; each feature holder: columns; the dealer: seeds.
Learns  the label holder: later, the total score of each row that is predicted (scoring.py). Nobody
        learns weights, but all a power of two above the sum of their squares; with
        ``weights="own"`` instead each party the weights of its own columns. Feature holders also
        learn which aligned rows have a label; all learn how many rows, columns and classes there
        are, and where rows have weights a power of two above the largest one, whose mean is 1. What
        else crosses is uniformly random, see crypto/session.py.

Own weights tell about the other side's columns and labels, and with one feature holder they turn a
total score into that party's part of it: they must be asked for.
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
from vfsl.estimators.shared import logistic as shared_logistic
from vfsl.estimators.shared.algebra import BITS, whiten, whiten_with_constant
from vfsl.estimators.shared.least_squares import (
    LeastSquaresPlan,
    fit_least_squares,
    fit_orthogonal,
)
from vfsl.estimators.shared.logistic import fit_logistic
from vfsl.estimators.shared.logistic_plan import WEIGHT_BITS, LogisticPlan
from vfsl.estimators.shared.scoring import (
    LINEAR,
    LOGISTIC,
    Accuracy,
    check_rows,
    find_cells,
    find_reach,
    settle,
)
from vfsl.estimators.shared.true_loss import Truth
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
    "size of weights": Disclosure(
        Masked, "a power of two above the sum of all squared weights, of white columns"
    ),
}
SCORE: Disclosures = {
    **shares.DISCLOSURES,
    "sizes": Disclosure(
        dict,
        "how many rows and columns the sender has, and a power of two, in quarters, above the norm "
        "of every row, those of the training included; what is known of the model",
    ),
    "total scores": Disclosure(Masked, "the total score of each row, to the label holder"),
}

_SCORE_BITS = 24
_SCORE_BOUND = 1 << 50


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
    accuracy : Accuracy
        What the model wants of its scores.
    rounds, stop_reason
        What is known of the training, as in a share of a model.
    """

    weights: Mapping[str, Shared]
    back: Floats | None
    bits: int
    accuracy: Accuracy
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

    def keep(self, session: Session, columns: Floats | None, label_holder: str) -> dict[str, Any]:
        """This party's pieces, for its share of the model; ``columns`` are its training rows'."""
        settled = settle(session, self.weights, self.bits, self.accuracy, label_holder)
        if columns is None or self.back is None:
            return {}
        pieces = {party: one.piece.tolist() for party, one in settled.pieces.items()}
        models = next(iter(self.weights.values())).shape[1]
        cells = find_cells(columns, self.back, constant=session.me == label_holder)
        state = {"pieces": pieces, "back": self.back.tolist(), "models": models}
        return state | {"power": settled.power, "reach": find_reach(cells)}


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
        turn = whiten_with_constant if session.me == holder else whiten
        white = {session.me: turn(columns, l2)}
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
    return SharedWeights(weights, white[session.me].back if white else None, BITS, LINEAR)


def solve_one_side(
    session: Session, columns: Floats | None, target: Floats | None, holder: str, l2: float
) -> SharedWeights:
    """The same where one feature holder has all columns and rows count alike.

    Its white columns, centred, are orthogonal to each other and to the constant: their weights are
    their mean products with the target, and no equations are left to solve.

    Parameters
    ----------
    columns : array or None
        Of the feature holder, the last one constant; of the label holder the constant alone.
    target : array (rows, targets)
        Of mean 0 and standard deviation 1; at the label holder only.
    """
    own: dict[str, int] = {}
    white = None
    if columns is not None:
        own = {"rows": len(columns), "columns": 1}
        back = np.ones((1, 1))
        if session.me != holder:
            white = whiten_with_constant(columns, l2)
            back = white.back[:, :-1]
            own["columns"] = back.shape[1]
    if target is not None:
        own["targets"] = target.shape[1]
    sizes = session.agree(own)
    rows, targets = check_rows(sizes), sizes[holder]["targets"]
    counts = {party: sizes[party]["columns"] for party in session.parties}
    plan = LeastSquaresPlan(rows, counts, holder, targets)
    weights = fit_orthogonal(
        session, None if white is None else white.columns[:, :-1], target, plan
    )
    return SharedWeights(weights, None if columns is None else back, BITS, LINEAR)


def solve_logistic(
    session: Session,
    columns: Floats | None,
    target: Floats | None,
    row_weights: Floats | None,
    holder: str,
    check: Callable[[Mapping[str, int], int], None],
    *,
    softmax: bool,
    truth: Truth | None = None,
    **settings: Any,
) -> SharedWeights:
    """One party's side of logistic regression; ``settings`` are those of `LogisticPlan`.

    ``softmax`` is known to the label holder: whether the outputs are classes of one label; and
    ``truth``, by which the loss is judged.
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
    found = fit_logistic(
        session, {session.me: columns}, target, row_weights, plan=plan, truth=truth
    )
    rounds: list[dict[str, Any]] = [{"round": number + 1} for number in range(found.rounds)]
    if found.losses:
        rounds = [{**one, "loss": loss} for one, loss in zip(rounds, found.losses, strict=True)]
    back = found.back.get(session.me)
    return SharedWeights(
        found.weights, back, WEIGHT_BITS, LOGISTIC, tuple(rounds), found.stop_reason
    )


def _find_peak(row_weights: Floats) -> int:
    """Row weights are at most 2 to this power."""
    return max(math.ceil(math.log2(row_weights.max())), 0)


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
