"""Which cells are hidden while an imputer learns: whole blocks as they go missing, or cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vfsl.completion.layers import uniform
from vfsl.errors import ConfigError
from vfsl.values import Array

MASKINGS = ("block", "cell")


@dataclass(frozen=True, eq=False)
class Patterns:
    """Sets of columns that go missing together, and how often each does.

    ``hidden`` is (patterns, columns); empty where columns are drawn anew for each row.
    """

    hidden: Array
    chances: Array

    @classmethod
    def of_table(cls, observed: Array) -> Patterns:
        """The missing sets of a table's rows; sets that leave nothing known do not count."""
        missing = ~observed
        usable = missing[missing.any(axis=1) & ~missing.all(axis=1)]
        if not len(usable):
            return cls(np.zeros((0, observed.shape[1]), dtype=bool), np.zeros(0))
        hidden, counts = np.unique(usable, axis=0, return_counts=True)
        return cls(hidden, counts / counts.sum())

    @classmethod
    def named(cls, blocks: Sequence[Sequence[str]], columns: Sequence[str], where: str) -> Patterns:
        """Sets given by name, equally often."""
        for block in blocks:
            unknown = [name for name in block if name not in columns]
            if isinstance(block, str) or unknown or not block:
                raise ConfigError(
                    f"The blocks parameter of {where} must be lists of columns of the table. "
                    f"Got {block!r} instead."
                )
        hidden = np.array([np.isin(columns, block) for block in blocks])
        return cls(hidden, np.full(len(hidden), 1 / len(hidden)))

    def draw(self, rows: int, columns: int, source: torch.Generator) -> Tensor:
        """Which cells to hide, (rows, columns)."""
        if not len(self.hidden):
            # Nothing tells what will be missing: each row hides with a share of its own.
            return uniform((rows, columns), source) < uniform((rows, 1), source)
        ends = torch.from_numpy(np.cumsum(self.chances))
        which = torch.searchsorted(ends, uniform((rows,), source).double(), right=True)
        return torch.from_numpy(self.hidden)[which.clamp(max=len(self.hidden) - 1)]
