"""What all parties of a training know beforehand, and what their messages reveal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vfsl.estimators.trees.candidates import LEAST_ROWS
from vfsl.parts import Roles
from vfsl.values import Ciphertext, Disclosure, Disclosures, Masked

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
    "gradients": Disclosure(Ciphertext, _NOTHING),
    "histograms": Disclosure(Ciphertext, "uniformly masked sums"),
    "masks": Disclosure(
        Masked,
        "with the answer of the key's holder: sums of (g, h) over at least ten rows for each "
        "nameless, shuffled candidate",
    ),
    "opened": Disclosure(Masked, "nothing without the mask"),
    "chosen": Disclosure(dict, "which of the receiver's candidates split which nodes"),
    "sides": Disclosure(np.ndarray, "to which side of the sender's splits the rows of a node go"),
    "partition": Disclosure(dict, "the shape of the trees, and to which side each row goes"),
    "keep": Disclosure(int, "how many rounds of trees the model keeps"),
}

# How gradients are encrypted and summed. "tree": once a tree; sums node by node, of the smaller
# child. "node": again at every level, ordered by node, as a scheme that packs many rows into a
# ciphertext sums blocks of rows, which must lie together. "level": once for all trees that grow
# together; all nodes of a level in one array, where adding costs less than handling many arrays.
PACKING_FOR = {"plain": "level", "paillier": "tree", "bfv": "node"}


@dataclass(frozen=True)
class Program:
    """How trees grow.

    Parameters
    ----------
    max_depth : int
    max_leaves : int or None
        If given, the leaf with the largest gain is split first, until there are so many.
    bins : int
    categories : {"one-vs-rest", "sorted"}
    columns_by_tree, columns_by_node : float
        Share of all parties' columns that a tree, or a node, may use; 0: the square root of their
        number.
    least_rows : int
        Least rows of every bin and side, at least ten.
    packing : {"tree", "node", "level"}
    keys : {"key-holder", "label-holder"}
    """

    max_depth: int
    max_leaves: int | None = None
    bins: int = 32
    categories: str = "one-vs-rest"
    columns_by_tree: float = 1.0
    columns_by_node: float = 1.0
    least_rows: int = LEAST_ROWS
    packing: str = "tree"
    keys: str = "key-holder"

    def keeper(self, roles: Roles) -> str:
        """Who holds the secret key."""
        return roles.key_holder if self.keys == "key-holder" else roles.label_holder

    def requests(self, nodes: int, columns: int, width: int) -> dict[str, tuple[int, int]]:
        """Name and shape of all sums that a feature holder may let the key holder open."""
        if self.packing == "level":
            return {"0": (columns, nodes * width)}
        return {str(at): (columns, width) for at in range(nodes)}
