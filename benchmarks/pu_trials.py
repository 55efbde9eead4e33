"""The trials of the PU experiment: rows, known positives, and how parties hold them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from vfsl.align import RowPlan, RowShare
from vfsl.data import Encoder, PartyTable, halves
from vfsl.datasets import Dataset, load
from vfsl.federation import Federation
from vfsl.pu.bags import Booleans
from vfsl.values import Floats


@dataclass(frozen=True, eq=False)
class Trial:
    """One trial: rows and known positives; the truth is for metrics and the oracle only."""

    name: str
    train: pd.DataFrame
    test: pd.DataFrame
    truth: Booleans
    test_truth: Booleans
    known: Booleans
    labelled: float
    seed: int

    @property
    def hidden(self) -> Booleans:
        """Which of the unlabelled rows are truly positive."""
        return self.truth[~self.known]


def dataset(name: str) -> Dataset:
    """A set by name; bank as published also has the duration of the call."""
    return load("bank", raw=True) if name == "bank with duration" else load(name)


def trial(
    name: str, data: Dataset, rows: int, labelled: float, seed: int, biased: str = ""
) -> Trial:
    """Shuffle, split into training and test rows, and mark a fraction of the positives.

    The rarer class is positive. ``biased``: high values of the first numeric column of that party
    are e⁴ times as likely to be known as low ones, instead of all alike.
    """
    frame = data.frame.sample(frac=1, random_state=seed).reset_index(drop=True)
    label = frame[data.label]
    truth = (label == label.value_counts().idxmin()).to_numpy(dtype=bool)
    frame = frame.drop(columns=[data.label])
    cut = min(rows, len(frame) // 2)
    positives = np.flatnonzero(truth[:cut])
    chance = np.ones(len(positives))
    if biased:
        own = halves(list(frame.columns))["BC".index(biased)]
        column = frame[own].select_dtypes("number").columns[0]
        chance = np.exp(4 * frame[column][:cut].rank(pct=True).to_numpy()[positives])
    rng = np.random.default_rng(seed)
    count = max(round(labelled * len(positives)), 2)
    known = np.zeros(cut, dtype=bool)
    known[rng.choice(positives, count, replace=False, p=chance / chance.sum())] = True
    test = frame[cut : 2 * cut].reset_index(drop=True)
    truths = truth[:cut], truth[cut : 2 * cut]
    return Trial(name, frame[:cut], test, *truths, known, labelled, seed)


def federation(
    frame: pd.DataFrame,
    known: Booleans | None,
    seed: int,
    how: str = "plain",
    parties: str = "BC",
) -> Federation:
    """B holds the first half of the columns, C the second half and the marks; aligned.

    With more ``parties`` than two each holds as many columns; C is the last.
    """
    ids = np.arange(len(frame)).astype(str)
    marks = np.where(np.zeros(len(frame), bool) if known is None else known, 1, -1)
    names = list(frame.columns)
    cuts = np.linspace(0, len(names), len(parties) + 1).round().astype(int)
    parts = [names[low:high] for low, high in pairwise(cuts)]
    columns = dict(zip(parties, halves(names) if len(parties) == 2 else parts, strict=True))
    tables = {
        party: PartyTable.from_frame(frame[names].assign(id=ids), party=party, id="id", label=False)
        for party, names in columns.items()
    }
    fed = Federation(tables, scheme=how, seed=seed)
    rows, nobody = np.arange(len(frame)), np.empty(0, dtype=np.int64)
    fed.plan = RowPlan(
        {
            party: RowShare(
                party, "all", rows, nobody, marks.astype(np.int8) if party == "C" else None
            )
            for party in tables
        }
    )
    return fed


def matrices(one: Trial) -> tuple[Floats, Floats]:
    """All columns in one place, encoded as a party would."""
    tables = [
        PartyTable.from_frame(
            frame.assign(id=np.arange(len(frame)).astype(str)), party="all", id="id"
        )
        for frame in (one.train, one.test)
    ]
    encoder = Encoder(missing="impute").fit(tables[0])
    return encoder.transform(tables[0]).matrix, encoder.transform(tables[1]).matrix
