"""The log-loss of training rows on shares: one number per point is opened, to the label holder.

Holds   every data holder: its summand of each score, or a piece of it; the label holder also the
        label and the row weights. The dealer: seeds.
Learns  the label holder: the loss at each point. Everybody: whether a score is beyond what the
        series covers, a bit each time the series is made longer.

log Σ exp(s_k) is put together two scores at a time,

    log(exp(a) + exp(b)) = ½ (a + b) + log(2 cosh(½ (a − b))),

whose last term is a series of waves of a − b (sigmoid.py), here to 1e-8. Of two classes the first
has the score 0. The training itself uses a rougher series, and surrogates: neither is shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vfsl.crypto import shares
from vfsl.crypto.fixed import encode
from vfsl.crypto.shares import Session, Shared, concatenate
from vfsl.crypto.together import Cut, cut_all, decide_all
from vfsl.errors import BoundExceeded
from vfsl.estimators.shared.scoring import check_rows
from vfsl.estimators.shared.sigmoid import SigmoidSeries, from_numbers, make_series, to_numbers
from vfsl.values import Disclosure, Disclosures, Floats, Masked

LOSS = Disclosure(Masked, "the log-loss of the training rows at one point, if it was asked for")
DISCLOSURES: Disclosures = {
    **shares.DISCLOSURES,
    "sizes": Disclosure(
        dict, "how many rows, rounds and outputs there are, and how large row weights can be"
    ),
    "loss": LOSS,
}

SCORE_BITS = 24  # behind the point of scores and of log Σ exp
_ERROR = 1e-8  # of the series, per row
_TURN_BITS = 48
_WAVE_BITS = _COEFFICIENT_BITS = 24
_SHORTEST_REACH, _LONGEST_REACH = 16, 256  # differences of scores; powers of two
_TOGETHER = 1 << 18  # scores that are worked on at once: waves have hundreds of bytes for each


@dataclass(frozen=True)
class LossPlan:
    """What all know: rows, outputs per row, whether these are classes that exclude each other.

    Row weights, whose mean is 1, are at most 2^peak; without it there are none.
    """

    rows: int
    outputs: int
    softmax: bool
    label_holder: str
    peak: int | None = None

    @property
    def models(self) -> int:
        """Losses whose mean is shown: one, if the outputs are classes."""
        return 1 if self.softmax else self.outputs

    @property
    def weight_bits(self) -> int:
        """Of row weights: what 64 bits leave beside scores below 2^9 and the sum over rows."""
        if self.peak is None:
            return 0
        return min(20, 54 - SCORE_BITS - (self.rows * self.models).bit_length())


@dataclass(frozen=True, eq=False)
class Truth:
    """The label holder's own: which output is right, (rows, outputs), and row weights or None."""

    hot: Floats
    row_weights: Floats | None

    def weigh(self, plan: LossPlan) -> Floats:
        """What log Σ exp and each score count in the loss, in the order of `_stack`."""
        weights = np.ones((plan.rows, plan.models))
        if self.row_weights is not None:
            weights = weights * self.row_weights[:, : plan.models]
        right = -weights * self.hot
        return np.concatenate([weights.ravel(), (right.T if plan.softmax else right).ravel()])


def open_losses(
    session: Session, scores: Sequence[Shared], truth: Truth | None, plan: LossPlan
) -> list[float]:
    """The mean log-loss at each point, at the label holder; nothing elsewhere.

    ``scores`` are (rows, outputs) with `SCORE_BITS`, one per point.
    """
    count = plan.rows * (plan.models + plan.outputs)
    own = None if truth is None else np.rint(truth.weigh(plan) * 2.0**plan.weight_bits)
    weights = session.private(
        plan.label_holder, None if own is None else own.astype(np.int64)[None], (1, count)
    )
    found: list[float] = []
    size = max(1, _TOGETHER // (plan.rows * plan.outputs))
    for start in range(0, len(scores), size):
        stacked = _stack(session, scores[start : start + size], plan)
        reach = _SHORTEST_REACH
        while (logs := _add_exponentials(session, stacked, reach, plan)) is None:
            reach *= 2
            if reach > _LONGEST_REACH:
                raise BoundExceeded(
                    f"The loss cannot be shown: scores of two classes differ by more than "
                    f"{_LONGEST_REACH}; raise the l2 penalty, or switch show_loss off."
                )
        points = stacked.shape[-1]
        terms = concatenate([logs, stacked.reshape(-1, points)])
        opened = (weights @ terms).open(plan.label_holder, name="loss", about=("columns",))
        if opened is not None:
            scale = plan.rows * plan.models * 2.0 ** (SCORE_BITS + plan.weight_bits)
            found += (opened[0] / scale).tolist()
    return found


def _stack(session: Session, scores: Sequence[Shared], plan: LossPlan) -> Shared:
    """(classes, rows · models, points): of a softmax all classes, else the second one."""
    columns = [(one.T if plan.softmax else one).reshape(-1, 1) for one in scores]
    classes = plan.outputs if plan.softmax else 1
    return concatenate(columns, axis=1).reshape(classes, -1, len(scores))


def _add_exponentials(
    session: Session, scores: Shared, reach: int, plan: LossPlan
) -> Shared | None:
    """log Σ exp of the classes' scores; None if a difference of two is beyond the reach."""
    turns = math.floor(2.0 ** (_TURN_BITS - SCORE_BITS) / (2 * (reach - math.log(_ERROR))))
    series = _announce(session, 2.0 ** (_TURN_BITS - SCORE_BITS) / turns, plan.label_holder)
    classes = list(range(scores.shape[0]))
    total = scores[classes.pop(0)] if plan.softmax else session.zeros(scores.shape[1:])
    low = _WAVE_BITS + _COEFFICIENT_BITS - SCORE_BITS
    beyond = []
    for number in classes:
        gap = total - scores[number]
        waves = session.waves(
            [],
            series.frequencies,
            period=_TURN_BITS,
            bits=_WAVE_BITS,
            width=64,
            plus=turns * gap,
        )
        bend = waves.sum(_COEFFICIENT_BITS, cosines=series.loss.tolist())
        bend = bend + round(series.constant * 2.0 ** (low + SCORE_BITS))
        twice = (1 << low) * (total + scores[number]) + 2 * bend
        # The second is 0 within reach.
        total, out = cut_all(
            [Cut.truncate(twice, low + 1), Cut.truncate(gap, SCORE_BITS + reach.bit_length())]
        )
        beyond.append(out.reshape(out.size))
    out = count_nonzero(concatenate(beyond))
    (sides,) = cut_all([Cut.sign(concatenate([out, -out]))])
    return None if decide_all(session, -(sides[:1] + sides[1:]))[0] else total


def _announce(session: Session, period: float, owner: str) -> SigmoidSeries:
    numbers = session.announce(owner, to_numbers(make_series(period, _ERROR)))
    return from_numbers(period, numbers)


def count_nonzero(beyond: Shared) -> Shared:
    """A sum that is 0 if all are 0; where signs differ, terms hardly ever cancel."""
    number = np.arange(beyond.size, dtype=np.int64)
    counts = 1 + (40503 * number + 30011 * (number >> 16)) % 65521  # a number of its own for each
    terms: Shared = counts * beyond.reshape(beyond.size)
    return terms.reshape(1, beyond.size).sum(1)


# ---- where each party knows its own weights ------------------------------------------------------


def open_losses_of(
    session: Session,
    columns: Floats | None,
    path: Sequence[Floats],
    truth: Truth | None,
    label_holder: str,
    softmax: bool = False,
) -> list[float]:
    """The losses of weights that each party has of its own columns, one per round.

    ``softmax`` is known to the label holder: whether the outputs are classes of one label.
    """
    own: dict[str, int] = {}
    if columns is not None:
        own = {"rows": len(columns), "points": len(path), "outputs": path[0].shape[1]}
    if truth is not None:
        own["softmax"] = int(softmax)
        if truth.row_weights is not None:
            own["peak"] = max(math.ceil(math.log2(truth.row_weights.max())), 0)
    sizes = session.agree(own)
    facts = sizes[label_holder]
    rows, outputs = check_rows(sizes), facts["outputs"]
    plan = LossPlan(rows, outputs, bool(facts["softmax"]), label_holder, facts.get("peak"))
    points = []
    for number in range(facts["points"]):
        total = session.zeros((rows, outputs))
        for party in session.parties:
            mine = None
            if columns is not None and party == session.me:
                mine = encode(columns @ path[number], SCORE_BITS, bound=1 << 40)
            total = total + session.share(party, mine, (rows, outputs))
        points.append(total)
    return open_losses(session, points, truth, plan)
