"""Whether columns are associated at all: a test of independence, and its control for many columns.

Every given column is a space of centred functions with orthonormal columns Q (measures.py), a
missing column likewise R. If the missing column is independent of all given ones, every entry of
√(n − 1) QᵀR is close to a standard normal variable; entries of one column of R have the covariance
G = QᵀQ, those of different columns of R are independent. So

    (n − 1) ‖QᵀR‖²  is about  Σ λ χ²(d),  λ the eigenvalues of G, d the columns of R,

which has mean d·tr G and variance 2d·tr G². The p-value is that of c·χ²(ν) with the same mean and
variance (Satterthwaite): c = tr G² / tr G, ν = d (tr G)² / tr G². Assumed are rows drawn
independently, and enough of them that sums over rows are about normal: groups have 10 rows or more.
Dependence among the given columns needs no assumption, since G measures it. For numbers the test
sees monotone dependence, as Spearman's ρ does.
"""

from __future__ import annotations

import numpy as np

from vfsl.values import Array, Booleans, Floats, Integers

LEVEL = 0.05


def count_independent(columns: Floats) -> tuple[int, float]:
    """tr G, and (tr G)² / tr G²: how many columns there are, and how many they are worth."""
    squares = (columns.T @ columns) ** 2
    total = round(float(np.sqrt(np.diag(squares)).sum()))
    return total, total**2 / float(squares.sum()) if total else 0.0


def find_p_values(
    explained: Floats, dimensions: Integers, rows: int, total: int, worth: float
) -> Floats:
    """The p-value of each missing column from its ‖QᵀR‖²; 1 where nothing is to be compared."""
    from scipy.stats import chi2

    if not total or not worth:
        return np.ones(len(explained))
    scale = total / worth  # tr G² / tr G
    return np.asarray(chi2.sf((rows - 1) * explained / scale, dimensions * worth))


def choose_significant(p_values: Array, level: float = LEVEL) -> tuple[Booleans, float]:
    """Benjamini and Hochberg's choice, and the largest p-value that it would still take.

    Among the chosen columns the expected fraction of independent ones is at most ``level``, if the
    tests are independent or positively dependent.
    """
    values = np.asarray(p_values, dtype=np.float64)
    limits = level * np.arange(1, len(values) + 1) / max(len(values), 1)
    passing = np.flatnonzero(np.sort(values) <= limits)
    cut = float(limits[passing[-1]]) if len(passing) else float(level / max(len(values), 1))
    return values <= cut if len(passing) else np.zeros(len(values), dtype=bool), cut
