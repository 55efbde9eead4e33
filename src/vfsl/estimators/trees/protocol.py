"""What all parties of a training of trees know beforehand, and what its messages reveal.

A side is one bit of one cell: 32 of them are one number. Sums of candidates are two numbers each.
There are far more of both than cells, so most follow from others: all that they could tell in the
end is the party's *binned* columns, log2(codes) bits for each cell. That is what counts against its
budget, before the first tree, and once for the same binned rows, however many trees are grown on
them. It is an upper bound that a training of many trees comes near: whoever agrees to trees agrees
to show bins.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vfsl.channel import Channel
from vfsl.crypto import Scheme
from vfsl.parts import Roles
from vfsl.values import Array, Ciphertext, Disclosure, Disclosures, Masked

_NOTHING = "nothing without the secret key"

DISCLOSURES: Disclosures = {
    "public key": Disclosure(dict, "the public key of this run"),
    "columns": Disclosure(np.ndarray, "how many columns the sender has, and bins of the longest"),
    "finished": Disclosure(int, "how many rounds of trees an earlier attempt had finished"),
    "setup": Disclosure(
        dict, "how many columns there are in all; the seed that chooses among them"
    ),
    "trees": Disclosure(int, "how many trees are grown together next"),
    "nodes": Disclosure(int, "how many nodes are looked at next"),
    "sums": Disclosure(int, "for how many of them rows are summed"),
    "gradients": Disclosure(Ciphertext, _NOTHING),
    "histograms": Disclosure(Ciphertext, "uniformly masked sums"),
    "masks": Disclosure(
        Masked,
        "with the answer of the key's holder: sums of (g, h) over at least ten rows for each "
        "nameless, shuffled candidate",
    ),
    "opened": Disclosure(Masked, "nothing without the mask"),
    "chosen": Disclosure(dict, "which of the receiver's candidates split which nodes"),
    "size classes": Disclosure(
        np.ndarray,
        "in which of 18 size classes the weight of each node lies, and of 10 its largest row",
    ),
    "order": Disclosure(np.ndarray, "plain only: all rows in the order of the sender's ids"),
    "judged": Disclosure(
        dict, "plain only: small integers of (g, h) of the rows of the nodes that are looked at"
    ),
    "best": Disclosure(np.ndarray, "how good the sender's best candidate of each node is"),
    "won": Disclosure(int, "how many nodes one feature holder's candidates split"),
    "next": Disclosure(dict, "which nodes are looked at next, and which stay leaves"),
    "sides": Disclosure(np.ndarray, "to which side of the sender's splits the rows of a node go"),
    "partition": Disclosure(dict, "the shape of the trees, and to which side each row goes"),
    "keep": Disclosure(int, "how many rounds of trees the model keeps"),
}

LEAST_ROWS = 10  # of every bin and side that others see
MOST_TREES, MOST_NODES = 1 << 16, 1 << 24
MOST_COLUMNS, MOST_ROUNDS = 1 << 20, 1 << 40
NO_MORE = -1  # no further level; 0: a level that splits leaves which were looked at before
BITS = 32  # of one number


# How gradients are encrypted and summed. "tree": once per tree; sums node by node, of the smaller
# child. "node": again at every level, ordered by node, as a scheme that packs many rows into a
# ciphertext sums blocks of rows, which must lie together. "level", where nothing is hidden: once
# for all trees that grow together; all nodes of a level in one array.
def choose_packing(scheme: type[Scheme]) -> str:
    """What packing="auto" means under a scheme."""
    if scheme.rows_together:
        return "node"
    return "tree" if scheme.hides else "level"


@dataclass(frozen=True)
class Growth:
    """How trees grow.

    Parameters
    ----------
    max_depth : int
    max_leaves : int or None
        If given, the leaf with the largest gain is split first, until there are so many.
    columns_by_tree, columns_by_node : float
        Fraction of all parties' columns that a tree, or a node, may use; 0: the square root of
        their number.
    block_dropout : float
        Fraction of rows that are treated as if a feature holder had no block for them.
    least_rows : int
        Fewest rows of every side; if sums are shown, of every bin too, and at least ten.
    packing : {"tree", "node", "level"}
    keys : {"key-holder", "label-holder"}
    on_shares : bool
        Whether sums are formed in shares of the data holders; then nothing is packed, and the key
        holder deals.
    best : bool
        Whether splits are judged in small integers (judging.py): on shares the label holder then
        learns of the best candidates only, and feature holders no rows of nodes.
    """

    max_depth: int
    max_leaves: int | None = None
    columns_by_tree: float = 1.0
    columns_by_node: float = 1.0
    block_dropout: float = 0.0
    least_rows: int = LEAST_ROWS
    packing: str = "tree"
    keys: str = "key-holder"
    on_shares: bool = False
    best: bool = False

    @property
    def hides(self) -> bool:
        """Whether feature holders learn no rows of nodes, and the label holder no sums."""
        return self.on_shares and self.best

    def count_sums(self, rows: int) -> int:
        """For how many nodes of a tree rows are summed, at most: the root, one child per split.

        Where splits are judged in small integers, both children of a split.
        """
        by_depth = 1 << max(self.max_depth - 1, 0)
        by_rows = max(rows // (2 * self.least_rows), 1)
        most = min(by_depth, by_rows, self.max_leaves or by_depth)
        return 2 * most if self.best else most

    @property
    def sends_each_level(self) -> bool:
        """Whether what is summed is encrypted anew at each level, for the rows of its nodes."""
        return self.packing == "node"

    def secret_holder(self, roles: Roles) -> str:
        """Who holds the secret key."""
        return roles.key_holder if self.keys == "key-holder" else roles.label_holder

    def requests(self, nodes: int, columns: int, width: int) -> list[tuple[int, int]]:
        """The shapes of all sums that a feature holder may let the key holder open."""
        if self.packing == "level":
            return [(columns, nodes * width)]
        return [(columns, width)] * nodes

    @property
    def samples_columns(self) -> bool:
        """Whether trees or nodes may use some of the columns only."""
        return min(self.columns_by_tree, self.columns_by_node) < 1

    def choose_columns(self, seed: int, columns: int, tree: int, node: int) -> Array:
        """Which of all parties' columns a node of a tree may use; everybody draws the same."""
        chosen = np.ones(columns, dtype=bool)
        if self.columns_by_tree < 1:
            chosen &= draw_columns(columns, self.columns_by_tree, (seed, tree))
        if self.columns_by_node < 1:
            allowed = np.flatnonzero(chosen)
            fraction = self.columns_by_node or 1 / np.sqrt(max(columns, 1))
            picked = draw_columns(len(allowed), fraction, (seed, tree, node))
            chosen = np.zeros(columns, dtype=bool)
            chosen[allowed[picked]] = True
        return chosen


def draw_columns(count: int, fraction: float, seed: tuple[int, ...]) -> Array:
    """A fraction of the columns, at least one."""
    wanted = min(max(1, round(fraction * count)), count)
    chosen = np.zeros(count, dtype=bool)
    if count:
        chosen[np.random.default_rng(seed).choice(count, size=wanted, replace=False)] = True
    return chosen


# ---- what counts against a party's budget --------------------------------------------------------


def count_sides(sides: Sequence[Array]) -> int:
    """Sides of rows as numbers, rounded up."""
    return -(-sum(len(each) for each in sides) // BITS)


def count_binned(rows: int, columns: int, width: int) -> int:
    """Numbers that binned columns hold, rounded up."""
    return math.ceil(rows * columns * math.log2(max(width, 2)) / BITS)


def release_binned(channel: Channel, to: str, codes: Array, width: int) -> None:
    """Count all that trees on these codes could show a peer, unless it was counted before."""
    rows, columns = codes.shape
    digest = hashlib.sha256(f"{rows} {columns} {codes.dtype}".encode())
    digest.update(codes.tobytes())
    new = count_binned(rows, columns, width)
    channel.release(to, "binned columns", 0, new=new, once=digest.digest())
