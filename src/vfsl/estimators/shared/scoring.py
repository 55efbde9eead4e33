"""Scores of rows under weights that nobody knows.

Holds   each data holder: columns, and its pieces of all weights; the dealer: seeds.
Learns  the label holder: the total score of each row. All, once after training: a power of two
        above the sum of all squared weights in white columns. All, per prediction: how many rows
        there are, and where a row lies further out than every training row of its party, how far,
        by quarters of a power of two. What else crosses is uniformly random, see crypto/session.py.

A party's cells cross once, masked. So the words are as narrow as the scores permit:

    1 sign + log2(largest score) + bits of cells + bits of weights.

No score is larger than the norm of all weights times the norm of the row's cells (Cauchy and
Schwarz); bits of cells and weights follow from the error that is wanted. Rounding to b bits is off
by 2^-b / √12, so rounded weights move the scores by spread · √columns / (√12 · 2^b), where spread
is the root mean square of white cells, and rounded cells move them by norm / (√12 · 2^b).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vfsl.crypto.fixed import decode, encode
from vfsl.crypto.shares import Session, Shared, concatenate
from vfsl.crypto.together import Cut, cut_all
from vfsl.crypto.words import WIDEST
from vfsl.errors import BoundExceeded, ProtocolError
from vfsl.values import Floats

# The sum of squared weights is compared with these powers of two. In it and in the norms of rows
# the constant cell counts as if it were this, and its weight is smaller: it is not far out.
LOWEST, HIGHEST = -14, 13
_CONSTANT = 16
_SQUARED_BITS = 16  # of weights that are squared, at most
_STEPS = 4  # of a power of two, in norms of rows
_MOST_BITS = 40
_BLUR_ROOM = 256  # for noise of several times the norm, and to compare with a limit


@dataclass(frozen=True)
class Accuracy:
    """What a model wants of its scores.

    Attributes
    ----------
    error : float
        The deviation of a score from that of exact weights and cells; of small scores, this part of
        their own deviation.
    spread : int
        The root mean square of white cells; the value of the constant one.
    """

    error: float
    spread: int


# Logits that are off by 1/64 raise the mean loss by at most ½ · ¼ · 2^-12 = 3e-5: a hundredth of
# the half percent that is promised, where the loss is 0.6. Numbers come within 1e-4 of their
# deviation, also in a row that lies four times as far out as most: that is five times its error,
# which one in a million rows exceeds.
LOGISTIC = Accuracy(2.0**-6, 2)
LINEAR = Accuracy(5e-6, 1)


@dataclass(frozen=True)
class ScoreBits:
    """Bits behind the point."""

    cells: int
    weights: int

    @classmethod
    def choose(cls, accuracy: Accuracy, columns: int, norm: float) -> ScoreBits:
        """The fewest bits that give the accuracy, for so many columns and weights of that norm."""
        error = accuracy.error * min(1.0, accuracy.spread * norm)
        found = []
        for weights in range(1, _MOST_BITS):
            off = accuracy.spread * math.sqrt(columns / 12) / 2.0**weights
            if off < error:
                rest = math.sqrt(error**2 - off**2)
                cells = max(math.ceil(math.log2(norm / math.sqrt(12) / rest)), 1)
                found.append(cls(cells, weights))
        return min(found, key=lambda bits: bits.cells + bits.weights)

    def find_width(self, columns: int, norm: float, reach: float) -> int:
        """The width that holds every score of rows whose cells have norms up to ``reach``."""
        extra = math.sqrt(columns) / 2  # of rounding
        largest = (norm + extra / 2.0**self.weights) * (reach + extra / 2.0**self.cells)
        width = 1 + max(math.ceil(math.log2(largest) + self.cells + self.weights), 7)
        if width > WIDEST:
            raise BoundExceeded(
                f"Scores could need {width} bits, {WIDEST} are there: a row lies too far out."
            )
        return width


# ---- after training ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Settled:
    """Weights for scoring: fewer bits, and how large they are together.

    Attributes
    ----------
    pieces : mapping
        By party: this party's piece of the weights of its coordinates, (coordinates, models).
    power : int
        The sum of all squared weights is below 2^power.
    """

    pieces: Mapping[str, Shared]
    power: int


def settle(
    session: Session, weights: Mapping[str, Shared], bits: int, accuracy: Accuracy, holder: str
) -> Settled:
    """Shorten weights that have ``bits`` behind the point; the label holder's last is constant."""
    flat = concatenate([one.reshape(-1) for one in weights.values()])
    scales = {party: np.full(one.shape, _CONSTANT) for party, one in weights.items()}
    scales[holder][-1] = accuracy.spread
    fewer = min(bits, _SQUARED_BITS)
    rough = flat.truncate(bits - fewer) if fewer < bits else flat
    scaled = np.concatenate([one.ravel() for one in scales.values()]) * rough
    squares = scaled.reshape(1, flat.size) @ scaled.reshape(flat.size, 1)
    powers = range(LOWEST, HIGHEST)
    limits = np.array([_CONSTANT**2 << (power + 2 * fewer) for power in powers])
    # How many bits are needed depends on the sum: all that could be are made in the same rounds.
    columns = sum(one.shape[0] for one in weights.values())
    needed = [ScoreBits.choose(accuracy, columns, 2.0 ** (power / 2)).weights for power in powers]
    lengths = sorted({min(one, bits - 1) for one in needed})
    below, *short = cut_all(
        [
            Cut.sign(squares.reshape(1) - limits),
            *(Cut.truncate(flat, bits - length) for length in lengths),
        ]
    )
    opened = (-below).open(name="size of weights")
    if opened is None:  # the dealer does not need to know
        return Settled({}, 0)
    count = int(opened.sum())
    if not count:
        raise BoundExceeded("The weights of this model are too large to be kept in shares.")
    wanted = needed[-count]
    length = min(wanted, bits - 1)
    flat = (1 << (wanted - length)) * short[lengths.index(length)]
    ends = np.cumsum([one.size for one in weights.values()])
    return Settled(
        {
            party: flat[end - one.size : end].reshape(*one.shape)
            for (party, one), end in zip(weights.items(), ends, strict=True)
        },
        powers[-count],
    )


def find_cells(columns: Floats, back: Floats, constant: bool) -> Floats:
    """White cells of a party's columns, without the constant ones at a label holder's end."""
    cells = columns @ back
    return np.asarray(cells[:, :-1] if constant else cells)


def find_reach(cells: Floats) -> int:
    """No row's norm is larger than 2 to this power, in quarters."""
    largest = float(np.sqrt((cells**2).sum(axis=1)).max(initial=0.0))
    return math.ceil(_STEPS * math.log2(max(largest, 1.0)))


# ---- prediction ----------------------------------------------------------------------------------


def open_shared_scores(
    session: Session,
    columns: Floats | None,
    state: Mapping[str, Any],
    accuracy: Accuracy,
    label_holder: str,
    *,
    blur: Blur | None = None,
) -> Floats | None:
    """The total score of each row, at the label holder.

    ``columns`` are this party's, with the constant one at the label holder; ``state`` is what it
    kept of the training. All parties say whether scores are blurred.
    """
    own: dict[str, int] = {}
    cells = None
    if columns is not None:
        cells = find_cells(columns, np.asarray(state["back"]), session.me == label_holder)
        furthest = max(find_reach(cells), state["reach"])
        own = {"rows": len(cells), "columns": cells.shape[1], "reach": furthest}
        own |= {"models": state["models"], "power": state["power"] - LOWEST}
    sizes = session.agree(own)
    facts, parties = sizes[label_holder], session.parties
    rows, models = check_rows(sizes), facts["models"]
    norm = 2.0 ** ((facts["power"] + LOWEST) / 2)
    total = 1 + sum(sizes[party]["columns"] for party in parties)
    bits = ScoreBits.choose(accuracy, total, norm)
    squares = [4.0 ** (sizes[party]["reach"] / _STEPS) for party in parties]
    reach = math.sqrt(_CONSTANT**2 + sum(squares))
    width = bits.find_width(total, norm, reach if blur is None else reach * _BLUR_ROOM)
    shapes = {party: (rows, sizes[party]["columns"]) for party in parties}
    mine = {} if cells is None else {session.me: encode(cells, bits.cells)}
    sent = session.privates(mine, shapes, width)
    counts = {party: size + (party == label_holder) for party, (_, size) in shapes.items()}
    pieces = _read_pieces(session, state, counts, models)
    scores = session.sum_products(
        [(sent[party], pieces[party][: shapes[party][1]]) for party in parties]
    )
    constant = (accuracy.spread << bits.cells) * pieces[label_holder][-1:]
    scores, behind = scores + constant, bits.cells + bits.weights
    if blur is not None:
        unit = 2.0 ** ((sizes[blur.owner]["power"] + LOWEST) / 2) / math.sqrt(models)
        scores = blur_scores(session, scores, blur, unit * 2.0**behind)
    about = ("columns",) if blur is None else ()  # blurred ones were released as such
    opened = scores.open(label_holder, name="total scores", about=about)
    return None if opened is None else decode(opened, behind)


@dataclass(frozen=True, eq=False)
class Blur:
    """Scores that are kept within a limit and get one feature holder's noise.

    Both are in units of the norm of all weights over √models, which bounds the root mean square of
    scores: white columns have second moments of at most 1.

    Attributes
    ----------
    owner : str
    limit : float
    noise : array (rows, models) or None
        At its owner only.
    """

    owner: str
    limit: float
    noise: Floats | None = None


def blur_scores(session: Session, scores: Shared, blur: Blur, scale: float) -> Shared:
    """Shares of min(max(score, −limit), limit) + noise; ``scale`` is what one unit is there."""
    limit = round(blur.limit * scale)
    above, below = (-one for one in cut_all([Cut.sign(limit - scores), Cut.sign(scores + limit)]))
    held = scores + above * (limit - scores) - below * (scores + limit)
    noise = None if blur.noise is None else np.rint(blur.noise * scale).astype(np.int64)
    return held + session.share(blur.owner, noise, scores.shape, scores.width)


def _read_pieces(
    session: Session, state: Mapping[str, Any], counts: Mapping[str, int], models: int
) -> dict[str, Shared]:
    """This party's pieces of every party's weights; none at the dealer."""
    found = {}
    for party, columns in counts.items():
        piece = np.zeros((columns, models), dtype=np.uint64)
        if session.holds:
            piece = np.asarray(state["pieces"][party], dtype=np.uint64).reshape(columns, models)
        found[party] = Shared(session, piece)
    return found


def check_rows(sizes: Mapping[str, Mapping[str, int]]) -> int:
    """How many rows all parties have; ProtocolError if they do not agree."""
    rows = {party: one["rows"] for party, one in sizes.items()}
    if len(set(rows.values())) != 1:
        raise ProtocolError(f"The parties have different numbers of rows: {rows}.")
    return next(iter(rows.values()))
