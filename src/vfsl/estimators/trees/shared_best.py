"""The best of a feature holder's candidates on shares, and the sides of rows at it.

Holds   a feature holder: columns, a key of its own; the label holder: (g, h) of all rows, the rows
        of every node, the feature holder's runs of bins under that key; the dealer: seeds.
Learns  the label holder: for each node how good the best candidate is, and if it is chosen, to
        which side the rows of that node go. The feature holder: which nodes are looked at, with the
        size class of each, and which of its candidates splits which of them; no row of any node.
        The dealer: how many rows, runs, candidates, nodes and splits there are.

For each node the label holder multiplies the encrypted runs (shared_sums.py) by r and h of its
rows, small integers (judging.py). So both have pieces of R and t of each candidate, without
anything to be shortened. |R| times an entry of the table of t is how good it is:

- t is opened with a mask. The dealer deals its mask's cell as 256 bits of which one is 1, so both
  can look up pieces of the bits of the entry, for the cell and for the one below; a comparison says
  which it is.
- R is opened with a mask, too. A comparison gives its sign. Sign and bits of the entry are opened
  with masks, and the dealer deals products of all masks: then |R| times the entry is linear.

Candidates, each with its number to settle ties, are then shuffled so that nobody knows their order,
and the largest is found (crypto/ordering.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vfsl.channel import expect_array
from vfsl.crypto.choosing import show_chosen_bits
from vfsl.crypto.comparing import multiply_terms
from vfsl.crypto.ordering import (
    deal_top,
    find_largest,
    find_less,
    hide,
    negate,
    shuffle,
)
from vfsl.crypto.session import Mask, absent
from vfsl.crypto.shares import Session, Shared
from vfsl.crypto.words import Bits, Words, lowest
from vfsl.errors import ProtocolError
from vfsl.estimators.trees.judging import (
    CELL_BITS,
    EDGES,
    MOST_SHIFT,
    PLACE_BITS,
    TABLE_BITS,
    Size,
    count_row_bits,
    count_sum_bits,
    make_table,
)
from vfsl.estimators.trees.shared_sums import NONE, PairSums, Runs, add_runs
from vfsl.estimators.trees.splits import Candidates
from vfsl.values import Array, Integers

_LOW = PLACE_BITS - CELL_BITS


@dataclass(frozen=True)
class Layout:
    """How a feature holder's runs make candidates, and in which column each candidate is."""

    parts: Array
    column: Array

    @classmethod
    def of(cls, candidates: Candidates) -> Layout:
        return cls(Runs.of(candidates).parts, candidates.column)

    def to_wire(self) -> Integers:
        return np.column_stack([self.parts, self.column]).astype(np.int64)

    @classmethod
    def from_wire(cls, value: object, sender: str, shape: tuple[int, int], columns: int) -> Layout:
        runs, candidates = shape
        rows = expect_array(
            value, sender=sender, name="runs", holds="integer", shape=(candidates, 3)
        )
        parts, column = rows[:, :2], rows[:, 2]
        known = (parts >= NONE).all() and (parts < runs).all() and (parts[:, 0] != NONE).all()
        if not known or (column < 0).any() or (column >= columns).any():
            raise ProtocolError(f"Party {sender!r} has candidates of no known runs.", sender)
        return cls(parts, column)


@dataclass(frozen=True, eq=False)
class PairBest:
    """One side of finding a feature holder's best candidates with the label holder.

    The label holder, the feature holder and the dealer run the same steps.
    """

    pair: PairSums
    rows: int
    layout: Layout | None  # None at the dealer

    @classmethod
    def begin(
        cls,
        session: Session,
        *,
        codes: Array | None = None,
        candidates: Candidates | None = None,
        rows: int = 0,
        plain_columns: int = 0,
    ) -> PairBest:
        """As `PairSums.begin`; the label holder learns the layout of candidates."""
        pair = PairSums.begin(
            session,
            codes=codes,
            candidates=candidates,
            rows=rows,
            plain_columns=plain_columns,
            row_bits=count_row_bits,
        )
        leader, layout = session.parties[0], None
        if pair.shape[0] and session.me == pair.owner and candidates is not None:
            layout = Layout.of(candidates)
            session.link.send(leader, "runs", layout.to_wire())
        elif pair.shape[0] and session.me == leader:
            came = session.link.receive(pair.owner, "runs")
            layout = Layout.from_wire(came, pair.owner, pair.shape, pair.columns)
        return cls(pair, pair.rows, layout)

    @property
    def session(self) -> Session:
        return self.pair.session

    @property
    def columns(self) -> int:
        return self.pair.columns

    @property
    def has_candidates(self) -> bool:
        return self.pair.shape[1] > 0

    # ---- the best candidates --------------------------------------------------------------------

    def find(
        self,
        nodes: int,
        sizes: Sequence[Size] = (),
        use: Array | None = None,
        make: Callable[[slice], Integers] | None = None,
        shifts: Integers | None = None,
    ) -> tuple[Words, Words]:
        """Pieces of how good the best candidate of each node is, and of its number; (nodes,).

        Parameters
        ----------
        sizes : sequence of Size
            Of each node, at both holders.
        use : boolean array (nodes, candidates)
            Which candidates may split which node, at both holders.
        make : callable
            At the label holder: r and h of all rows for some nodes, (rows, 2 · nodes).
        shifts : integer array (nodes, 2)
            At the label holder: what is added to sums of r and, after their shift, of h.
        """
        session, rows = self.session, self.rows
        candidates, width = self.pair.shape[1], self._width
        words = self.pair.sum(nodes, make, width)
        strength, place = self._read(words, sizes, use, shifts)
        rated = _rate(session, strength, place, sizes, count_sum_bits(rows), width)
        number = session.share(
            self.pair.owner,
            np.broadcast_to(np.arange(candidates)[::-1], rated.shape)
            if session.me == self.pair.owner
            else None,
            rated.shape,
        ).piece
        mixed = shuffle(session, np.stack([rated, number], axis=2), width)
        keys = (mixed[:, :, 0] << np.uint64(self._tie_bits)) + mixed[:, :, 1]
        at = find_largest(session, keys, self._key_bits)
        best = np.take_along_axis(mixed, at[:, None, None], axis=1)[:, 0]
        return best[:, 0], best[:, 1]

    def _read(
        self,
        words: Words,
        sizes: Sequence[Size],
        use: Array | None,
        shifts: Integers | None,
    ) -> tuple[Words, Words]:
        """Pieces of R and of t of all candidates, (nodes, candidates)."""
        if self.layout is None or use is None:
            shape = (len(words), self.pair.shape[1])
            return absent(shape), absent(shape)
        sums = add_runs(words, self.layout.parts)
        scale = np.array([size.shift for size in sizes], dtype=np.uint64)[:, None]
        strength, place = sums[:, :, 0], sums[:, :, 1] << scale
        if shifts is not None:
            added = shifts.astype(np.int64).view(np.uint64)
            strength, place = strength + added[:, :1], place + added[:, 1:]
        # At 0 the table has 0: a candidate that may not be used is no good.
        return strength, np.where(use, place, np.uint64(0))

    @property
    def _tie_bits(self) -> int:
        return max(self.pair.shape[1] - 1, 1).bit_length()

    @property
    def _key_bits(self) -> int:
        return count_sum_bits(self.rows) + TABLE_BITS + self._tie_bits

    @property
    def _width(self) -> int:
        return -(-(self._key_bits + 1) // 8) * 8

    def show_rating(self, piece: Words) -> Integers | None:
        """How good the best candidates are, at the label holder."""
        return self._share(piece).open(self.session.parties[0], name="best")

    def show_number(self, piece: Words) -> Integers | None:
        """Which candidates are the best ones, at the feature holder."""
        opened = self._share(piece).open(self.pair.owner, name="chosen candidates")
        return None if opened is None else self.pair.shape[1] - 1 - opened

    def _share(self, piece: Words) -> Shared:
        return Shared(self.session, piece, self._width)

    # ---- sides ----------------------------------------------------------------------------------

    def show_sides(
        self, nodes: int, inside: Array | None = None, left: Array | None = None
    ) -> Bits | None:
        """Which rows of its nodes go left, at the label holder; (nodes, rows)."""
        return show_chosen_bits(self.session, (nodes, self.rows), inside, left)


def read_sizes(value: object, sender: str, nodes: int) -> list[Size]:
    """Size classes of nodes, checked."""
    rows = expect_array(value, sender=sender, name="look", holds="integer", shape=(nodes, 2))
    if (rows < 0).any() or (rows > [len(EDGES) - 1, MOST_SHIFT]).any():
        raise ProtocolError(f"Party {sender!r} sent size classes that there are not.", sender)
    return [Size(int(edge), int(shift)) for edge, shift in rows]


# ---- how good candidates are ---------------------------------------------------------------------


def _rate(
    session: Session,
    strength: Words,
    place: Words,
    sizes: Sequence[Size],
    bits: int,
    width: int,
) -> Words:
    """Pieces of |R| times the entry of t, from pieces of R, below 2^bits in size, and of t."""
    shape = strength.shape
    strong, there = session.draw(shape), session.draw(shape)
    shown, at = session.reveal([(strength, width, strong), (place, PLACE_BITS, there)])
    raised = (shown + np.uint64(1 << bits)) & lowest(bits + 1)
    top = deal_top(session, strong, bits)
    less, below = find_less(
        session,
        [
            (raised & lowest(bits), lambda: hide(strong) & lowest(bits), bits, 3),
            (at & lowest(_LOW), lambda: hide(there) & lowest(_LOW), _LOW, 4),
        ],
    )
    negative = negate(session, raised, bits) ^ top ^ less
    entry = _look_up(session, at, there, below, sizes)
    return _multiply(session, shown, strong, np.concatenate([negative[None], entry]), width)


def _look_up(session: Session, at: Words, there: Mask, below: Bits, sizes: Sequence[Size]) -> Bits:
    """Pieces of the bits of the entries of t, (bits, nodes, candidates).

    ``at`` is t with a mask, ``below`` whether the cell is one lower than its high bits say.
    """
    cells, shape = 1 << CELL_BITS, at.shape

    def mark() -> Bits:
        high = (hide(there) >> np.uint64(_LOW)) & lowest(CELL_BITS)
        return np.asarray(np.arange(cells, dtype=np.uint64) == high[..., None], dtype=np.uint8)

    marks = session.deal_bits((*shape, cells), mark)
    if not session.holds:
        pair = np.zeros((2, TABLE_BITS, *shape), dtype=np.uint8)
    else:
        high = (at >> np.uint64(_LOW)).astype(np.int64)[..., None]
        turned = np.take_along_axis(marks, (high - np.arange(cells)) % cells, axis=2)
        pair = np.stack([_read_bits(turned[node], size) for node, size in enumerate(sizes)], axis=2)
    here, lower = pair
    factors = np.concatenate([below[None], here ^ lower])
    terms = [(0, bit + 1) for bit in range(TABLE_BITS)]
    (change,) = multiply_terms(session, [(factors, terms)])
    return np.asarray(here ^ np.stack(change))


def _read_bits(marks: Bits, size: Size) -> Bits:
    """Bits of the entry of the marked cell and of the one below, (2, bits, candidates)."""
    table = make_table(size.edge)
    both = np.stack([table, np.roll(table, 1)])
    bits = (both[:, None, :] >> np.arange(TABLE_BITS)[:, None]) & 1
    flat = bits.reshape(2 * TABLE_BITS, -1).astype(np.float32)
    counts = flat @ marks.T.astype(np.float32)  # at most 256 ones: exact
    odd: Bits = (counts.astype(np.int64) & 1).astype(np.uint8)
    return odd.reshape(2, TABLE_BITS, -1)


def _multiply(session: Session, shown: Words, strong: Mask, bits: Bits, width: int) -> Words:
    """Pieces of R times the number of these bits, with the sign of the first bit.

    With bits b = β + m without carry and R = E + ρ, β and E are known to both holders. The sign is
    (1 − 2 β) (1 − 2 m), a bit β + (1 − 2 β) m; so the product is linear in dealt products of masks.
    """
    shape = shown.shape
    mask = session.draw_bits(bits.shape)

    def multiply_masks() -> Words:
        known = mask.parity.astype(np.uint64)
        known[0] = np.uint64(1) - np.uint64(2) * known[0]
        known[1:] *= known[0]
        return np.stack([known, known * strong.total])

    dealt = session.deal((2, len(bits), *shape), multiply_masks, width)
    if not session.holds:
        return absent(shape)
    opened = session.reveal_bits(bits, mask).astype(np.uint64)
    flip = np.uint64(1) - np.uint64(2) * opened
    signed = shown * dealt[0] + dealt[1]  # of R times the sign, and times each masked bit
    total = np.zeros(shape, dtype=np.uint64)
    for bit in range(1, len(bits)):
        total += (opened[bit] * signed[0] + flip[bit] * signed[bit]) << np.uint64(bit - 1)
    return np.asarray(flip[0] * total)


def keep_columns(layout: Layout, chosen: Sequence[Array], offset: int) -> Array:
    """Which candidates stand on columns that each node may use, (nodes, candidates)."""
    each = [use[offset + layout.column] for use in chosen]
    return np.array(each, dtype=bool).reshape(len(chosen), len(layout.column))
