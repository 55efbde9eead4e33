"""The experiment behind the least number of rare rows per column, on made-up tables.

``python tests/attacks/rare_labels.py [SECONDS] [NOISE]`` prints the table of docs/security.md: how
many of the rare labels an attacker reads from the first gradient, by rare rows per column.
"""

import sys
import time

import numpy as np
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from vfsl.audit.solvers import read_out, solve_labels

KINDS = ("gaussian", "mixed", "one-hot")
SIZES = ((200, 5), (200, 20), (600, 20), (1000, 60), (2000, 60))
SHARES = (0.25, 0.5, 1.0, 2.0, 5.0)
BITS = 19  # after the binary point of a column, as a run on a thousand rows has it


def make_columns(kind, rows, size, rng):
    """Encoded columns as a feature holder has them: standardised numbers, centred indicators."""
    numbers = rng.normal(size=(rows, size))
    if kind == "mixed":
        half = size // 2
        numbers[:, :half] = rng.random((rows, half)) < rng.uniform(0.1, 0.5, half)
    if kind == "one-hot":
        groups = [np.eye(k)[rng.integers(0, k, rows)] for k in rng.integers(2, 7, size)]
        numbers = np.hstack(groups)[:, :size]
    numbers = numbers - numbers.mean(axis=0)
    if kind != "one-hot":
        numbers = numbers / numbers.std(axis=0)
    return np.round(numbers * 2**BITS) / 2**BITS


def measure(kind, rows, size, positives, *, noise=0.0, seconds=60.0, seed=0):
    """The share of rare labels that are read by solving and by the readout, and its AUC."""
    rng = np.random.default_rng([seed, rows, size, positives])
    columns = make_columns(kind, rows, size, rng)
    label = np.zeros(rows, dtype=bool)
    label[rng.permutation(rows)[:positives]] = True
    sums = columns.T @ (label + noise * rng.normal(size=rows))
    slack = max(1e-5, 2.5 * noise * np.sqrt(rows) * columns.std(axis=0).max())
    solved = solve_labels(columns, sums, positives, slack=slack, seconds=seconds)
    scores = read_out(columns, sums)
    best = np.argsort(-scores)[:positives]
    return {
        "solved": float(label[solved].mean()),
        "readout": float(label[best].mean()),
        "auc": float(roc_auc_score(label, scores)),
        "expected auc": float(norm.cdf(np.sqrt(size / (2 * positives * (1 - positives / rows))))),
        "chance": positives / rows,
    }


def main(seconds=60.0, noise=0.0):
    names = ("solved", "readout", "chance", "auc", "expected auc")
    print(f"time limit {seconds:g} s, label noise {noise:g}")
    print("| columns | rows | d | rare | rare per d |", " | ".join(names), "| s |")
    print("|" + "---|" * (6 + len(names)))
    for rows, size in SIZES:
        for share in SHARES:
            for kind in KINDS:
                positives = max(round(share * size), 2)
                begun = time.perf_counter()
                found = measure(kind, rows, size, positives, noise=noise, seconds=seconds)
                spent = time.perf_counter() - begun
                figures = " | ".join(f"{found[name]:.2f}" for name in names)
                print(
                    f"| {kind} | {rows} | {size} | {positives} | {share:g} | {figures} "
                    f"| {spent:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main(*(float(value) for value in sys.argv[1:]))
