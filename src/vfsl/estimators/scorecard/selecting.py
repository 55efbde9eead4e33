"""Which columns a scorecard keeps: by correlations with each other and with the label.

Holds   each data holder: columns as weights of evidence; the label holder: also the label.
Learns  the label holder: correlations, to three decimals, of all parties' nameless columns and of
        the label. Each feature holder: which of its columns are kept. What else crosses is
        uniformly random (crypto/session.py).

Columns are divided by their norm over all rows, so that products of theirs are correlations, and
nothing has to be divided on shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement

import numpy as np
from scipy.special import stdtr

from vfsl.crypto import shares
from vfsl.crypto.fixed import encode
from vfsl.crypto.shares import Session, Shared, concatenate
from vfsl.errors import ProtocolError
from vfsl.estimators.shared.scoring import check_rows
from vfsl.values import Disclosure, Disclosures, Floats, Masked

DISCLOSURES: Disclosures = {
    **shares.DISCLOSURES,
    "correlations": Disclosure(
        Masked,
        "correlations, to three decimals, of nameless columns of all parties and of the label, to "
        "the label holder",
    ),
    "kept": Disclosure(np.ndarray, "which of the receiver's own columns the scorecard keeps"),
}

_CELL_BITS = 24
_OPENED_BITS = 10
_WIDTH = 16
_MOST_COLUMNS = 1 << 12
_ENTER, _LEAVE = 0.05, 0.1  # p-values of classical stepwise regression


# ---- on shares -----------------------------------------------------------------------------------


def open_correlations(
    session: Session, holder: str, columns: Floats | None
) -> tuple[Floats, dict[str, int]] | None:
    """All correlations at the label holder, of columns party by party and last of the label.

    With them comes how many columns each party has, the label not among them.

    ``session.parties`` begin with the label holder, whose last column is the label.
    """
    own = {} if columns is None else {"rows": len(columns), "columns": columns.shape[1]}
    sizes = session.agree(own)
    rows = check_rows(sizes)
    counts = {party: sizes[party]["columns"] for party in session.parties}
    if sum(counts.values()) > _MOST_COLUMNS:
        raise ProtocolError(f"{sum(counts.values())} columns are too many to compare.")
    mine = {}
    if columns is not None:
        mine = {session.me: encode(_divide_by_norms(columns), _CELL_BITS)}
    shapes = {party: (rows, count) for party, count in counts.items()}
    sent = session.privates(mine, shapes)
    pairs = combinations_with_replacement(session.parties, 2)
    blocks = {(one, other): sent[one].T @ sent[other] for one, other in pairs}
    blocks |= {(other, one): block.T for (one, other), block in blocks.items() if one != other}
    lines = [
        concatenate([blocks[one, other] for other in session.parties], axis=1)
        for one in session.parties
    ]
    matrix = concatenate(lines).limit(1 << (2 * _CELL_BITS + 1))
    rounded: Shared = matrix.truncate(2 * _CELL_BITS - _OPENED_BITS).narrow(_WIDTH)
    opened = rounded.open(holder, name="correlations", about=("columns",))
    if opened is None:
        return None
    label = counts[holder] - 1  # the last column of the first party
    order = [*(place for place in range(len(opened)) if place != label), label]
    return opened[np.ix_(order, order)] / 2.0**_OPENED_BITS, {**counts, holder: label}


def _divide_by_norms(columns: Floats) -> Floats:
    centred = columns - columns.mean(axis=0)
    norms = np.sqrt((centred**2).sum(axis=0))
    return np.asarray(centred / np.where(norms > 0, norms, 1.0))


# ---- choices, from correlations ------------------------------------------------------------------


def drop_correlated(correlations: Floats, most: float) -> list[int]:
    """The columns to keep so that no two of them correlate by more than ``most``.

    The last line is the label's: of two columns the one that goes less with it is dropped.
    """
    strength = np.abs(correlations[-1, :-1])
    kept: list[int] = []
    for column in np.argsort(-strength, kind="stable"):
        if all(abs(correlations[column, other]) <= most for other in kept):
            kept.append(int(column))
    return sorted(kept)


def select_stepwise(correlations: Floats, rows: int, among: Sequence[int]) -> list[int]:
    """Columns by stepwise regression of the label: enter below p = 0.05, leave above 0.1."""
    kept: list[int] = []
    for _ in range(2 * len(among)):  # a column can come and go, but not for ever
        others = [column for column in among if column not in kept]
        chances = [find_p_values(correlations, rows, [*kept, column])[-1] for column in others]
        if not chances or min(chances) >= _ENTER:
            break
        kept.append(others[int(np.argmin(chances))])
        while True:
            own = find_p_values(correlations, rows, kept)
            if own.max() <= _LEAVE:
                break
            kept.pop(int(own.argmax()))
    return sorted(kept)


def find_p_values(correlations: Floats, rows: int, columns: Sequence[int]) -> Floats:
    """Of each column's weight in a least-squares fit of the label by these columns."""
    chosen = list(columns)
    inner = np.linalg.pinv(correlations[np.ix_(chosen, chosen)])
    weights = inner @ correlations[chosen, -1]
    free = max(rows - len(chosen) - 1, 1)
    unexplained = max(1.0 - float(weights @ correlations[chosen, -1]), 1e-12)
    errors = np.sqrt(np.maximum(unexplained / free * np.diag(inner), 1e-300))
    return np.asarray(2 * stdtr(free, -np.abs(weights / errors)))
