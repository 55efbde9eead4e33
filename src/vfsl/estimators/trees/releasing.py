"""What a training of trees counts as in a party's budget.

A side is one bit of one cell: 32 of them are one number. Sums of candidates are two numbers each.
There are far more of both than cells, so most follow from others: all that they could tell in the
end is the party's *binned* columns, log2(codes) bits for each cell. That is what is counted, before
the first tree, and once for the same binned rows, however many trees are grown on them. It is an
upper bound that a training of many trees comes near: whoever agrees to trees agrees to show bins.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

from vfsl.channel import Channel
from vfsl.values import Array

BITS = 32  # of one number


def side_numbers(sides: Sequence[Array]) -> int:
    """Sides of rows as numbers, rounded up."""
    return -(-sum(len(each) for each in sides) // BITS)


def binned_numbers(rows: int, columns: int, width: int) -> int:
    """Numbers that binned columns hold, rounded up."""
    return math.ceil(rows * columns * math.log2(max(width, 2)) / BITS)


def release_binned(channel: Channel, to: str, codes: Array, width: int) -> None:
    """Count all that trees on these codes could show a peer, unless it was counted before."""
    rows, columns = codes.shape
    digest = hashlib.sha256(f"{rows} {columns} {codes.dtype}".encode())
    digest.update(codes.tobytes())
    new = binned_numbers(rows, columns, width)
    channel.release(to, "binned columns", 0, new=new, once=digest.digest())
