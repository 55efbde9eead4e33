"""Made-up parties with known truth: a bank, a shop, a hospital and the people they share.

Every column is a monotone picture of a normal score. Scores mix two factors that all parties
share, two of the party's own, and a little randomness; ``dependence`` is the fraction of the common
part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

from vfsl.data.checks import check_choice, check_count, check_fraction, check_rng
from vfsl.data.split import (
    REMAINDERS,
    draw_fresh_ids,
    hide_cells,
    punch_holes,
    split_vertically,
)
from vfsl.errors import ConfigError
from vfsl.values import Array

LABEL = "defaulted"
_NUMERIC_RANDOM = 0.03
_CATEGORY_RANDOM = 0.2
_LABEL_RANDOM = 0.5

Picture = Callable[[Array], Array]


def _whole(centre: float, spread: float, low: float, high: float) -> Picture:
    return lambda z: np.clip(np.rint(centre + spread * z), low, high).astype(np.int64)


def _skewed(log_mean: float, log_spread: float) -> Picture:
    return lambda z: np.round(np.exp(log_mean + log_spread * z), 2)


def _counts(log_mean: float, log_spread: float) -> Picture:
    return lambda z: np.floor(np.exp(log_mean + log_spread * z)).astype(np.int64)


def _fraction(steepness: float) -> Picture:
    return lambda z: np.round(expit(steepness * z), 4)


def _symmetric(centre: float, spread: float) -> Picture:
    return lambda z: np.round(centre + spread * z, 2)


_NUMBERS: dict[str, dict[str, Picture]] = {
    "bank": {
        "age": _whole(45, 14, 18, 95),
        "income": _skewed(10.3, 0.5),
        "balance": _symmetric(2500, 3000),
        "card_use": _fraction(1.2),
        "transfers_a_month": _counts(2.6, 0.6),
        "loan": _skewed(8.5, 0.9),
    },
    "shop": {
        "basket_value": _skewed(3.6, 0.5),
        "visits_a_year": _counts(3.2, 0.7),
        "returned_share": _fraction(0.9),
        "days_since_visit": _counts(3.5, 0.8),
        "discount_share": _fraction(1.1),
        "satisfaction": _symmetric(6.5, 1.2),
    },
    "hospital": {
        "blood_pressure": _whole(128, 16, 70, 230),
        "body_mass": _symmetric(26, 4),
        "glucose": _skewed(4.6, 0.2),
        "nights": _counts(2.3, 0.9),
        "exercise_share": _fraction(1.0),
        "pulse": _whole(72, 11, 35, 190),
    },
}
_CATEGORIES: dict[str, dict[str, list[Any]]] = {
    "bank": {
        "employment": ["employed", "retired", "self-employed", "student"],
        "owns_home": [False, True],
        "region": ["centre", "east", "north", "south", "west"],
    },
    "shop": {
        "department": ["clothes", "food", "garden", "media", "sports"],
        "member": [False, True],
        "channel": ["app", "branch", "web"],
    },
    "hospital": {
        "clinic": ["cardiology", "general", "orthopaedics", "surgery"],
        "smoker": [False, True],
        "insurance": ["basic", "full", "private"],
    },
}


@dataclass(frozen=True, eq=False)
class Synthetic:
    """Made-up tables and the truth behind them.

    Attributes
    ----------
    tables : dict of str to DataFrame
        What the parties hold: an ``id`` column, features with missing cells, and at A the label;
        or at A only the ids of known positives.
    truth : DataFrame
        Everybody, complete: ``id``, all features, the label.
    label : str
        The label's column name.
    columns : dict of str to list of str
        The features of each party.
    overlap : integer array
        The rows of ``truth`` that every feature holder has.
    rows : dict of str to Series
        By party: id to the row number in ``truth``.
    """

    tables: dict[str, pd.DataFrame]
    truth: pd.DataFrame
    label: str
    columns: dict[str, list[str]]
    overlap: Array
    rows: dict[str, pd.Series[Any]]


def make_parties(
    rows: int = 1000,
    parties: int = 2,
    *,
    rng: np.random.Generator,
    overlap: float = 0.5,
    dependence: float = 0.6,
    missing: float = 0.05,
    positives: float = 0.2,
    numeric: int = 6,
    categorical: int = 3,
    labelled: float = 1.0,
    known_positives: float = 0.5,
    label_as: str | None = None,
    remainders: str = "disjoint",
) -> Synthetic:
    """Make tables of two or three parties about partly the same people.

    Parameters
    ----------
    rows : int
        How many people there are in all.
    parties : {2, 3}
        Two: A (bank) holds the label, B (shop). Three: A holds ids of known positives only, B
        (bank) and C (shop) features; or with ``label_as="column"`` A, B and C (hospital) all hold
        features, and A the label.
    rng : numpy.random.Generator
    overlap : float
        The fraction of people whom every feature holder knows.
    dependence : float
        Roughly the fraction of a party's numeric variation that the others' columns explain, when
        they have five numeric columns or more: 0 is independent, 1 nearly determined.
    missing : float
        The fraction of feature cells that are missing at random.
    positives : float
        The fraction of people with label 1.
    numeric, categorical : int
        How many columns of each kind a party has.
    labelled : float
        The fraction of A's rows whose label is known; the others are missing.
    known_positives : float
        The fraction of the positives whose ids A holds, if A holds positives.
    label_as : {None, "column", "positives"}
        How A holds the label; None: a column with two parties, positives with three.
    remainders : {"disjoint", "all"}
        As in :func:`split_vertically`.

    Returns
    -------
    Synthetic
    """
    where = "make_parties"
    check_rng(where, rng)
    check_count(where, "rows", rows, 10)
    check_count(where, "numeric", numeric, 1)
    check_count(where, "categorical", categorical, 0)
    fractions = {"overlap": overlap, "dependence": dependence, "missing": missing}
    fractions |= {"positives": positives, "labelled": labelled, "known_positives": known_positives}
    for name, value in fractions.items():
        check_fraction(where, name, value)
    check_choice(where, "remainders", remainders, REMAINDERS)
    holders = _choose_holders(parties, label_as)
    truth, columns = _make_people(rows, holders, numeric, categorical, dependence, positives, rng)
    held = {party: list(names) for party, names in columns.items()}
    if "A" in held:
        held["A"].append(LABEL)
    dealt = split_vertically(truth, held, id="id", overlap=overlap, remainders=remainders, rng=rng)
    tables, known = {}, dealt.truth
    if "A" not in held:
        positive = np.flatnonzero(truth[LABEL].to_numpy() == 1)
        chosen = rng.permutation(positive)[: max(1, round(known_positives * len(positive)))]
        tables["A"] = truth[["id"]].iloc[chosen].reset_index(drop=True)
        known = {"A": pd.Series(chosen, index=pd.Index(tables["A"]["id"]), name="row"), **known}
    for party, table in dealt.tables.items():
        tables[party] = punch_holes(table, columns[party], missing, rng)
    if "A" in held:
        unknown = rng.random(len(tables["A"])) >= labelled
        tables["A"][LABEL] = hide_cells(tables["A"][LABEL], unknown)
    return Synthetic(tables, truth, LABEL, columns, dealt.overlap, known)


def _choose_holders(parties: int, label_as: str | None) -> dict[str, str]:
    """Party to trade, for the parties that hold features."""
    if parties not in (2, 3):
        raise ConfigError(
            f"The parties parameter of make_parties must be 2 or 3. Got {parties!r} instead."
        )
    way = label_as or ("column" if parties == 2 else "positives")
    check_choice("make_parties", "label_as", way, ("column", "positives"))
    if way == "positives":
        if parties == 2:
            raise ConfigError(
                "The label_as parameter of make_parties must be 'column' with two parties. "
                "Got 'positives' instead; use parties=3."
            )
        return {"B": "bank", "C": "shop"}
    return dict(zip("ABC"[:parties], ("bank", "shop", "hospital"), strict=False))


def _make_people(
    rows: int,
    holders: dict[str, str],
    numeric: int,
    categorical: int,
    dependence: float,
    positives: float,
    rng: np.random.Generator,
) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    """The complete table of everybody, and who holds which of its columns."""
    common = rng.standard_normal((rows, 2))
    content: dict[str, Any] = {"id": draw_fresh_ids(rows, rng, set()).tolist()}
    columns: dict[str, list[str]] = {}
    risks = []
    for party, trade in holders.items():
        own = rng.standard_normal((rows, 2))
        scores, slopes = _draw_scores(common, own, numeric, dependence, _NUMERIC_RANDOM, rng)
        risks.append(_standardise(scores @ slopes))
        made: dict[str, Any] = {}
        for place, (name, picture) in enumerate(_pick(_NUMBERS[trade], numeric)):
            made[name] = picture(scores[:, place])
        for name, levels in _pick(_CATEGORIES[trade], categorical):
            many, _ = _draw_scores(common, own, len(levels), dependence, _CATEGORY_RANDOM, rng)
            made[name] = np.array(levels)[many.argmax(axis=1)].tolist()
        content |= made
        columns[party] = list(made)
    risk = np.sum(risks, axis=0) + 0.3 * risks[0] * risks[1]
    risk = risk + _LABEL_RANDOM * rng.logistic(size=rows)
    count = min(max(round(positives * rows), 1), rows - 1)
    label = np.zeros(rows, dtype=np.int64)
    label[np.argsort(-risk, kind="stable")[:count]] = 1
    return pd.DataFrame({**content, LABEL: label}), columns


def _draw_scores(
    common: Array,
    own: Array,
    count: int,
    dependence: float,
    random: float,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Standard normal scores of ``count`` columns, and their slopes on the first factors.

    The loadings go round the circle, once for the common factors and twice for the own ones, so
    that from five columns on the four factors can be told apart.
    """
    turn = 2 * np.pi * np.arange(count) / count
    first = turn + rng.uniform(0, 2 * np.pi)
    second = 2 * turn + rng.uniform(0, 2 * np.pi)
    shared = common @ np.array([np.cos(first), np.sin(first)])
    private = own @ np.array([np.cos(second), np.sin(second)])
    signal = np.sqrt(dependence) * shared + np.sqrt(1 - dependence) * private
    scores = np.sqrt(1 - random) * signal + np.sqrt(random) * rng.standard_normal(signal.shape)
    return scores, np.cos(first) + np.cos(second)


def _standardise(values: Array) -> Array:
    spread = float(values.std())
    return np.asarray((values - values.mean()) / (spread if spread > 0 else 1.0))


def _pick(pool: dict[str, Any], count: int) -> list[tuple[str, Any]]:
    """The first ``count`` columns of a pool; past its end they repeat as name_2, name_3."""
    names = list(pool)
    picked = []
    for place in range(count):
        again, which = divmod(place, len(names))
        name = names[which]
        picked.append((name if not again else f"{name}_{again + 1}", pool[name]))
    return picked
