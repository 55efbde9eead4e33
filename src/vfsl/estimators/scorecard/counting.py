"""Positives in the bins of a feature holder's columns, on shares.

Holds   the label holder: which rows are positive, a key of its own. The feature holder: columns in
        fine bins. The dealer, who is the key holder: seeds.
Learns  the feature holder: for each of its bins how many rows of it are positive, rounded to a
        multiple of four, where every bin has at least ten rows of each class; and so where bins
        end. The label holder, the dealer: how many columns there are, and into how many fine bins
        they are cut. What else crosses is uniformly random or under the label holder's key
        (crypto/products.py).

Fine bins are summed under the label holder's key. For every run of neighbours one shared bit says
whether it has enough rows of both classes; from these bits follows where bins end, from the left
(`bins.find_ends`). An end that is none is opened as 0, like the positives before it.

Counts are rounded so that no two of them, of one run or of two runs whose rows differ by a few,
are exact equations for single labels. There are at least two rows of the rarer class per fine bin
of all columns, as many as logistic regression asks for per weight (privacy.py).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vfsl.crypto import products, shares
from vfsl.crypto.products import Encrypted
from vfsl.crypto.shares import Session, Shared, concatenate
from vfsl.crypto.together import Cut, cut_all
from vfsl.errors import DataError, ProtocolError
from vfsl.estimators.privacy import RARE_ROWS_PER_COLUMN
from vfsl.estimators.scorecard.bins import FINE_BINS, LEAST
from vfsl.values import Disclosure, Disclosures, Integers, Masked

DISCLOSURES: Disclosures = {
    **shares.DISCLOSURES,
    **products.DISCLOSURES,
    "positives": Disclosure(
        Masked,
        "how many rows of each bin of the receiver's own columns are positive, in fours; every bin "
        "has at least ten rows of each class",
    ),
}

STEP_BITS = 2  # counts are opened in steps of 2 to this power
STEP = 1 << STEP_BITS
_CELLS_AT_ONCE = 1 << 23
_MOST_COLUMNS = 1 << 16
_LEAST_WIDTH = 3  # two fine bins, and one of missing cells

# Gives the feature holder's cells for a number of fine bins: the place of each cell in the order in
# which neighbours may be joined, (rows, columns), all below that number.
Cells = Callable[[int], Integers]


def plan_fine_bins(columns: int, target: Integers) -> int:
    """Into how many fine bins each column is cut at most, that of missing cells among them.

    ``target`` has labels 0 and 1.
    """
    rarer = int(min(target.sum(), len(target) - target.sum()))
    if rarer < 2 * LEAST:
        raise DataError(
            f"A scorecard needs at least {2 * LEAST} rows of each class with a known label; there "
            f"are {rarer} of the rarer one."
        )
    width = min(int(rarer / (RARE_ROWS_PER_COLUMN * columns)), FINE_BINS + 1)
    if width < _LEAST_WIDTH:
        raise DataError(
            f"{columns} columns of one party are too many to bin with {rarer} rows of the rarer "
            f"class; there must be {_LEAST_WIDTH * RARE_ROWS_PER_COLUMN:g} per column."
        )
    return width


def count_positives(
    session: Session,
    holder: str,
    owner: str,
    *,
    target: Integers | None = None,
    columns: int = 0,
    cells: Cells | None = None,
) -> Integers | None:
    """At the feature holder: positives before each end of a bin, 0 where no bin ends.

    Parameters
    ----------
    holder, owner : str
        The label holder and the feature holder.
    target : array of 0 and 1
        At the label holder.
    columns, cells
        At the feature holder.

    Returns
    -------
    array (columns, fine bins) or None
        In steps of `STEP`. The last end is that of the column.
    """
    told = session.agree(
        {"rows": len(target), "columns": 0} if target is not None else {"columns": columns}
    )
    rows, count = told[holder]["rows"], told[owner]["columns"]
    if not 0 < count <= _MOST_COLUMNS:
        raise ProtocolError(f"Party {owner!r} has {count} columns to bin.", owner)
    planned = None if target is None else np.array([plan_fine_bins(count, target)])
    (width,) = (int(one) for one in session.announce(holder, planned))
    if not _LEAST_WIDTH <= width <= FINE_BINS + 1:
        raise ProtocolError(f"Party {holder!r} wants {width} fine bins.", holder)
    places = None if cells is None else cells(width)
    bits = rows.bit_length() + 4
    found = _sum_positives(session, holder, owner, target, places, (rows, count, width), bits)
    counts = None if places is None else _count_rows(places, width)
    all_rows = session.share(owner, counts, (count, width), bits, bound=rows)
    opened = _find_ends(found, all_rows, rows).open(owner, name="positives", about=("label",))
    return None if opened is None else opened << STEP_BITS


def round_counts(counts: Integers) -> Integers:
    """To the nearest step, as counts are opened; halves go up."""
    return (counts + STEP // 2) // STEP * STEP


def _count_rows(places: Integers, width: int) -> Integers:
    return np.stack([np.bincount(column, minlength=width) for column in places.T]).astype(np.int64)


def _sum_positives(
    session: Session,
    holder: str,
    owner: str,
    target: Integers | None,
    places: Integers | None,
    shape: tuple[int, int, int],
    bits: int,
) -> Shared:
    """The positives of each fine bin, (columns, fine bins)."""
    rows, count, width = shape
    encrypted = Encrypted.features(
        session,
        holder,
        None if target is None else target[:, None],
        (rows, 1),
        1,
        plain_bits=1,
        plain_columns=count * width,
    )
    made = []
    step = max(_CELLS_AT_ONCE // (rows * width), 1)
    for start in range(0, count, step):
        some = min(step, count - start)
        hot = None
        if places is not None:
            chosen = places[:, start : start + some, None]
            hot = (chosen == np.arange(width)).reshape(rows, -1).astype(np.int64)
        made.append(encrypted.times(owner, hot, some * width, 1, width=bits).reshape(some, width))
    return concatenate(made).limit(rows)


def _find_ends(positives: Shared, rows: Shared, most: int) -> Shared:
    """Positives before each end in steps, 0 where no bin ends; (columns, fine bins)."""
    count, width = positives.shape
    found, others = _accumulate(positives, most), _accumulate(rows - positives, most)
    low, high = np.triu_indices(width + 1, 1)  # runs of neighbours: after bin low, up to bin high
    place = np.full((width + 1, width + 1), -1)
    place[low, high] = np.arange(len(low))
    *signs, steps = cut_all(
        [
            *(
                Cut(margin, margin.width - 2, 0, margin.width)
                for margin in (
                    (one[:, high] - one[:, low]).limit(most) - LEAST for one in (found, others)
                )
            ),
            Cut.truncate(found[:, 1:], STEP_BITS, found.width),
        ]
    )
    enough = (1 + signs[0]) * (1 + signs[1])  # 1 where a run has enough rows of both classes
    # The first end after each place, for runs that begin there: where enough turns to 1.
    reached: list[Shared] = []
    for end in range(1, width):
        turns = [enough[:, place[start, end]] for start in range(end)]
        turns = [
            one - enough[:, place[start, end - 1]] if end - 1 > start else one
            for start, one in enumerate(turns)
        ]
        here = turns[0].reshape(count, 1)
        if reached:
            before = concatenate(reached, axis=1)
            after = concatenate([one.reshape(count, 1) for one in turns[1:]], axis=1)
            here = here + (before * after).sum(axis=1).reshape(count, 1)
        reached.append(here)
    ends = concatenate(reached, axis=1) * enough[:, place[np.arange(1, width), width]]
    return concatenate([ends * steps[:, :-1], steps[:, -1:]], axis=1)


def _accumulate(values: Shared, most: int) -> Shared:
    """Sums of everything before each place, from none to all."""
    return values.map(
        lambda piece: np.pad(np.cumsum(piece, axis=1, dtype=np.uint64), ((0, 0), (1, 0)))
    ).limit(most)
