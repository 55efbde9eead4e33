"""What single terms of generators and imputers do: each switched off, at its default, and at 1.

On made-up tables that no other table of results uses. An imputer fills a block of columns of rows
that it has not seen; CTAB-GAN makes up a table. Every seed has a table, a model and draws of its
own, and is used with all values of a term, so that differences are paired.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks.table import Outcome
from vfsl.completion import CTABGAN, completer, quality
from vfsl.data import make_parties

LEVEL = 0.05  # of the two-sided t-test of paired differences
_HIDDEN = 5  # columns of the block


@dataclass(frozen=True)
class Term:
    """A term: whose it is, the setting, its values, the default among them."""

    method: str
    setting: str
    values: tuple[Any, ...]
    default: Any


TERMS = (
    Term("gain", "adversarial", (0.0, 0.01, 1.0), 0.01),
    Term("vgain", "adversarial", (0.0, 0.01, 1.0), 0.01),
    Term("vgain", "divergence", (0.0, 0.01, 1.0), 0.01),
    Term("ctabgan", "self_attention", (False, True), False),
)


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    rows: int
    seeds: int
    settings: Mapping[str, Mapping[str, Any]]


FULL = Sizes(1200, 8, {"ctabgan": {"epochs": 30, "batch_size": 200, "channels": 8}})
QUICK = Sizes(
    200,
    2,
    {
        "gain": {"epochs": 5},
        "vgain": {"epochs": 5},
        "ctabgan": {"epochs": 2, "batch_size": 50, "channels": 4},
    },
)


def run(quick: bool = False, say: Callable[[str], None] = lambda text: None) -> Outcome:
    """All terms."""
    sizes, rows = QUICK if quick else FULL, []
    for term in TERMS:
        found: dict[Any, pd.DataFrame] = {}
        for value in term.values:
            say(f"{term.method} with {term.setting} = {value}")
            lines = [_measure(term, value, seed, sizes) for seed in range(sizes.seeds)]
            found[value] = pd.DataFrame(lines)
        rows += [_summarise(term, value, found) for value in term.values]
    notes = [
        f"Means over {sizes.seeds} made-up tables of {sizes.rows} rows, ± standard errors of the "
        "paired differences to the default. Width is the deviation of filled cells over that of "
        "the truth, averaged over columns.",
    ]
    return Outcome("ablation", "Terms of generators and imputers", rows, notes)


def _measure(term: Term, value: Any, seed: int, sizes: Sizes) -> dict[str, float]:
    made = make_parties(rows=sizes.rows, rng=np.random.default_rng(1000 + seed), missing=0.0)
    table = made.truth[made.columns["B"]]
    settings = {**sizes.settings.get(term.method, {}), term.setting: value}
    rng, before = np.random.default_rng(seed), time.process_time()
    if term.method == "ctabgan":
        rows = CTABGAN(**settings).fit(table, rng).sample(len(table), rng)
        judged = quality(table, rows)
        line = {"shape": float(judged.shape), "pair": float(judged.pair)}
    else:
        line = _complete(table, completer(term.method, **settings), rng)
    return line | {"core-s": time.process_time() - before}


def _complete(table: pd.DataFrame, model: Any, rng: np.random.Generator) -> dict[str, float]:
    """Errors of a hidden block in the second half of the rows."""
    hidden = list(table.columns[-_HIDDEN:])
    half = len(table) // 2
    known, truth = table.iloc[:half], table.iloc[half:].reset_index(drop=True)
    model.expect_missing(hidden)
    asked = truth.copy()
    for name in hidden:
        asked[name] = pd.Series([None] * len(truth), dtype=object)
    done = model.fit(known.reset_index(drop=True), rng).complete(_typed(asked, table), rng)
    numbers = [name for name in hidden if name in done.means]
    errors = [
        np.sqrt(((done.means[n] - truth[n].astype(float)) ** 2).mean()) / known[n].std()
        for n in numbers
    ]
    right = [(done.values[n] == truth[n]).mean() for n in hidden if n not in numbers]
    widths = [done.means[n].std() / truth[n].astype(float).std() for n in numbers]
    line = {"rmse / deviation": float(np.mean(errors)), "width": float(np.mean(widths))}
    return line | ({"accuracy": float(np.mean(right))} if right else {})


def _typed(asked: pd.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    """Blank columns in a type that can lack values."""
    return asked.assign(
        **{
            str(name): asked[name].astype(float)
            for name in asked
            if pd.api.types.is_numeric_dtype(like[name].dtype) and like[name].dtype != bool
        }
    )


def _summarise(term: Term, value: Any, found: Mapping[Any, pd.DataFrame]) -> dict[str, Any]:
    """Means, and how far they are from the default's."""
    here, base = found[value], found[term.default]
    line: dict[str, Any] = {
        "what": f"{term.method}: {term.setting}",
        "value": f"{value}{' (default)' if value == term.default else ''}",
    }
    differs = []
    for name in here.columns:
        line[name] = float(here[name].mean())
        if name == "core-s" or value == term.default:
            continue
        gap = here[name] - base[name]
        error = float(gap.std(ddof=1) / np.sqrt(len(gap)))
        line[f"{name}: difference"] = f"{gap.mean():+.3f} ± {error:.3f}"
        if abs(gap.mean()) > stats.t.isf(LEVEL / 2, len(gap) - 1) * error:
            differs.append(name)
    line["differs in"] = ", ".join(differs) or ("" if value == term.default else "nothing")
    return line
