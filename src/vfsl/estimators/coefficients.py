"""What a linear model's weights say of one party's columns, in the units of its table."""

from __future__ import annotations

import numpy as np
import pandas as pd

from vfsl.data import Encoder
from vfsl.data.codes import NumericCode
from vfsl.errors import ConfigError
from vfsl.parts import ModelShare
from vfsl.values import Floats

INTERCEPT = "intercept"


def own_weights(share: ModelShare) -> Floats:
    """A party's weights of its own standardised columns, (columns, models)."""
    if "weights" not in share.state:
        raise ConfigError(
            f"Party {share.party!r} has no weights, since they stay shared: fit the model with "
            "weights='own' to give each party the weights of its own columns."
        )
    weights = np.asarray(share.state["weights"], dtype=np.float64)
    return weights.reshape(-1, share.state["models"])


def read_coefficients(share: ModelShare, held: ModelShare | None = None) -> pd.DataFrame:
    """How much one unit more of each column adds to the score, by a party's own share.

    A category counts against the average row. The label holder's intercept is the score of a row
    that is average in all columns of all parties. Scores are log-odds of classes. Of numbers they
    are in units of the label where its deviation is known, at the label holder, else in deviations.

    Parameters
    ----------
    share : ModelShare
    held : ModelShare, optional
        The label holder's share, where it is at hand.
    """
    weights, encoder = own_weights(share), Encoder.from_dict(share.state["encoder"])
    units = [
        code.deviation if isinstance(code, NumericCode) else 1.0
        for code in encoder.codes_
        for _ in code.names
    ]
    names, known = list(encoder.names), share.state if held is None else held.state
    scale, mean = known.get("scale", 1.0), known.get("mean", 0.0)
    if len(weights) > len(names):
        names, units = [*names, INTERCEPT], [*units, 1.0]
    values = weights / np.asarray(units)[:, None] * np.asarray(scale)
    if names[-1:] == [INTERCEPT] and len(weights) > len(encoder.names):
        values[-1] += np.asarray(mean)
    classes = known.get("classes", [])
    outputs = classes if len(classes) == values.shape[1] else range(values.shape[1])
    columns = ["coefficient"] if values.shape[1] == 1 else list(outputs)
    return pd.DataFrame(values, index=pd.Index(names, name="column"), columns=columns)
