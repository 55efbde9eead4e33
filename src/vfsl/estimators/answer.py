"""What a model says of rows, at the label holder, and as the columns of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from vfsl.data import PartyTable
from vfsl.parts import Rows
from vfsl.values import Array


@dataclass(frozen=True, eq=False)
class Answer:
    """What a model says of rows, at the label holder.

    Attributes
    ----------
    rows : array of int
        The rows of its table.
    values : array (rows,) or (rows, classes)
        Numbers, or probabilities.
    classes : array or None
        None: numbers.
    more : mapping of name to array
        Further columns of a file of predictions.
    """

    rows: Rows
    values: Array
    classes: Array | None = None
    more: Mapping[str, Array] = field(default_factory=dict)

    def to_frame(self, table: PartyTable, column: str) -> pd.DataFrame:
        """The label holder's ids of the rows, and what the model says of each.

        Numbers are ``predicted``. Of classes there are ``probability``, that of the second of two
        classes or of the predicted one of several, which all have columns of their own, and
        ``predicted``, the most probable one. ``column`` is the label's name.
        """
        chosen = table.take(self.rows)
        named = chosen.to_frame()[list(chosen.id_columns)].reset_index(drop=True)
        if self.classes is None:
            return named.assign(predicted=self.values, **self.more)
        most, several = self.values.argmax(axis=1), len(self.classes) > 2
        found: dict[str, Array] = {
            "probability": self.values.max(axis=1) if several else self.values[:, 1],
            "predicted": self.classes[most],
        }
        if several:
            each = zip(self.classes, self.values.T, strict=True)
            found |= {f"p({column}={name})": np.asarray(chances) for name, chances in each}
        return named.assign(**found, **self.more)
