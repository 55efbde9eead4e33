"""Do known positives look like unlabelled rows of the same score? A check on how P was picked.

Pure functions over the label holder's own table. What other parties hold is not compared, since
that would tell them who is marked.

Everything in VFPU assumes that the known positives are a random sample of all positives. Then they
look like the best rows of U in every column, once both have the same scores. A column in which they
do not was perhaps a reason for picking them, or the model misses something there. The check finds
strong biases that the model cannot follow. One that it follows well shows nowhere, because then the
best rows of U are simply those that look like the known ones. No check can prove the assumption.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from vfsl.data import Kind, PartyTable
from vfsl.pu.bags import Booleans
from vfsl.values import Floats, Integers

STRATA = 10
_REPEATS = 40
# Sizes, and multiples of chance, that were not seen with positives that were picked at random.
_LARGE = {Kind.NUMERIC: 0.25, Kind.CATEGORICAL: 0.12}
_BEYOND_CHANCE = 3.5


@dataclass(frozen=True)
class Difference:
    """How a column differs between known positives and unlabelled rows of the same scores.

    ``size`` is the difference of mean ranks in standard deviations (numeric) or half the sum of
    absolute differences of frequencies (categorical). ``chance`` is what picking at random reaches
    in one of twenty cases; ``large`` says whether it is a reason to warn.
    """

    column: str
    size: float
    chance: float
    large: bool


def compare_columns(
    table: PartyTable, known: Booleans, scores: Floats, rng: np.random.Generator
) -> tuple[Difference, ...]:
    """Every feature column, largest difference first.

    ``scores`` are held-out logits of the known positives and logits of the unlabelled rows, on one
    scale.
    """
    strata = find_strata(known, scores)
    sides = [match_weights(known, strata)]
    sides += [match_weights(_shuffle(known, strata, rng), strata) for _ in range(_REPEATS)]
    weights = np.stack(sides)
    found = []
    for name in table.features:
        kind = table.kinds[name]
        sums = np.abs(weights @ as_numbers(table, name))
        sizes = sums.sum(axis=1) * (0.5 if kind is Kind.CATEGORICAL else 1.0)
        size, chance = float(sizes[0]), float(np.quantile(sizes[1:], 0.95))
        large = size > _LARGE.get(kind, 1.0) and size > _BEYOND_CHANCE * chance
        found.append(Difference(name, size, chance, large))
    return tuple(sorted(found, key=lambda one: -one.size))


def find_strata(known: Booleans, scores: Floats) -> Integers:
    """Which tenth of the known positives' scores a row falls into."""
    edges = np.quantile(scores[known], np.linspace(0, 1, STRATA + 1)[1:-1])
    return np.searchsorted(edges, scores).astype(np.int64)


def match_weights(known: Booleans, strata: Integers) -> Floats:
    """Weights under which a column sums to its mean among positives less that of the matched rows.

    The unlabelled rows of a stratum weigh together what its positives weigh; a stratum in which one
    side has no row does not count.
    """
    p = np.bincount(strata[known], minlength=STRATA).astype(np.float64)
    u = np.bincount(strata[~known], minlength=STRATA)
    p = np.where(u > 0, p, 0.0)
    fraction = p / max(p.sum(), 1.0)
    one = np.divide(fraction, p, out=np.zeros(STRATA), where=p > 0)
    other = np.divide(fraction, u, out=np.zeros(STRATA), where=u > 0)
    return np.asarray(np.where(known, one[strata], -other[strata]))


def as_numbers(table: PartyTable, name: str) -> Floats:
    """A column as numbers: standardised ranks, or an indicator for each category."""
    values = table.column(name)
    if table.kinds[name] is Kind.CATEGORICAL:
        return np.asarray(pd.get_dummies(values.astype(object), dtype=float, dummy_na=True))
    ranks = values.rank().to_numpy(dtype=np.float64, na_value=np.nan)
    ranks = ranks - np.nanmean(ranks) if len(ranks) and not np.isnan(ranks).all() else ranks * 0
    ranks = np.nan_to_num(ranks)
    return np.asarray(ranks / (ranks.std() or 1.0))[:, None]


def warn_of(columns: Sequence[Difference]) -> list[str]:
    """A warning that names the columns with large differences, if there are any."""
    names = [repr(one.column) for one in columns if one.large]
    if not names:
        return []
    return [
        f"Known positives differ from unlabelled rows of the same score in {', '.join(names)}: "
        "they may not be a random sample of all positives, and then ranking, prior and "
        "probabilities are wrong. Only the label holder's own columns were compared."
    ]


def _shuffle(known: Booleans, strata: Integers, rng: np.random.Generator) -> Booleans:
    """The same number of positives in each stratum, picked at random."""
    order = np.lexsort((rng.random(len(known)), strata))
    fixed = np.lexsort((~known, strata))  # positives first within each stratum
    picked = np.zeros(len(known), dtype=bool)
    picked[order] = known[fixed]
    return picked
