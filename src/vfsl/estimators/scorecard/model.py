"""A scorecard: logistic regression on weights of evidence, told in points.

Holds   every data holder: columns; the label holder: the label; the dealer: seeds.
Learns  what binning.py says, and what logistic regression with weights of one's own says; where
        columns are selected, what selecting.py says.

    points of a row = base + Σ points of its bins,    points = offset − factor · log-odds
    factor = double_odds / ln 2,    offset = base_points − factor · ln(base_odds)

Each party knows the points of its own columns; the label holder also the base.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from vfsl.channel import Channel, expect_array
from vfsl.crypto.shares import Session
from vfsl.data import PartyTable
from vfsl.errors import ConfigError, DataError
from vfsl.estimators.answer import Answer
from vfsl.estimators.base import NOTHING_KEPT, Ask
from vfsl.estimators.linear import LogisticRegression, encode_columns
from vfsl.estimators.scorecard import selecting
from vfsl.estimators.scorecard.binning import (
    Binned,
    BinTerms,
    bin_columns,
    evidence_of,
    to_evidence,
)
from vfsl.estimators.scorecard.bins import FINE_BINS, LEAST, BinnedColumn, find_stability
from vfsl.params import documented, param
from vfsl.parts import ModelShare, Part, Roles
from vfsl.site import Site
from vfsl.store import Checkpoints
from vfsl.values import Array, Floats


@documented
@dataclass(kw_only=True)
class Scorecard(LogisticRegression):
    """A scorecard over the aligned rows of several parties, for a label with two classes.

    Attributes
    ----------
    cards_ : dict of DataFrame
        By party: bins, weights of evidence and points of its own columns.
    information_ : dict of list
        By feature holder: information values of its nameless columns, largest first.
    classes_, shares_, n_rounds_, stop_reason_
        As in LogisticRegression.
    """

    name = "scorecard"

    takes_weights = False

    weights: Literal["auto", "shared", "own"] = "own"
    bins: int = param(8, "Bins per column at most.", ge=2, le=FINE_BINS)
    least_fraction: float = param(
        0.05, "The fewest rows of a bin, as a fraction of all rows.", ge=0, lt=0.5
    )
    monotone: bool = param(
        True,
        "Whether the fraction of positives may only rise, or only fall, along a column with an "
        "order.",
    )
    least_information: float = param(
        0.02,
        "Columns with a smaller information value are left out; 0.02 is what textbooks call "
        "useless. A party's best column always stays.",
        ge=0,
    )
    most_correlated: float | None = param(
        None,
        "Of two columns, whoever has them, that correlate by more than this, the weaker one is "
        "left out. The label holder sees rounded correlations of nameless columns for it.",
        gt=0,
        le=1,
    )
    stepwise: bool = param(
        False,
        "Whether columns are selected by stepwise regression: they enter below p = 0.05 and leave "
        "above 0.1. The label holder sees rounded correlations of nameless columns for it.",
    )
    base_points: float = param(600.0, "Points of a row with the base odds.", ge=0)
    base_odds: float = param(50.0, "Negatives per positive at the base points.", gt=0)
    double_odds: float = param(20.0, "Points that double the odds.", gt=0)

    def check(self) -> None:
        super().check()
        if self._names_rounds:
            raise ConfigError(
                "A scorecard computes on shares; protocol='rounds' and solver='one-shot' do not."
            )

    @property
    def _selects(self) -> bool:
        return self.stepwise or self.most_correlated is not None

    def asks(self, scheme: str = "auto") -> tuple[Ask, ...]:
        asked = [*super().asks(scheme), ("disclosure", "label rates")]
        if self._selects:
            asked.append(("disclosure", "correlations"))
        return tuple(asked)

    # ---- a party's sides ------------------------------------------------------------------------

    def train(
        self,
        channel: Channel,
        part: Part | None,
        *,
        roles: Roles,
        rng: np.random.Generator | None = None,
        kept: Checkpoints = NOTHING_KEPT,
    ) -> ModelShare | None:
        """One party's side of training: bins, selection, weights."""
        self.check()
        if not self._on_shares(roles):
            raise ConfigError(
                f"A scorecard computes on shares, but the run has scheme={roles.scheme!r}; use "
                "scheme='auto'."
            )
        if part is not None and part.weights is not None:
            raise ConfigError("A scorecard counts rows by bin; it takes no row weights.")
        inner = channel.within(self.name)
        terms = BinTerms(self.bins, self.least_fraction, self.monotone)
        binned = bin_columns(inner, part, roles, terms, rng)
        binned = self._choose(inner, part, binned, roles, rng)
        ready = None if part is None or binned is None else to_evidence(part, binned.columns)
        share = super().train(channel, ready, roles=roles, rng=rng, kept=kept)
        if share is None or binned is None:
            return None
        state: dict[str, Any] = {"bins": [column.to_dict() for column in binned.columns]}
        if binned.target is not None:
            state["information"] = binned.information
        return replace(share, state={**share.state, **state})

    def _choose(
        self, channel: Channel, part: Part | None, binned: Binned | None, roles: Roles, rng: Any
    ) -> Binned | None:
        """Leave out columns that say little and, if asked for, those that others say better."""
        if binned is not None:
            cut = [column for column in binned.columns if len(column.woe) > 1]
            if not cut and channel.me != roles.label_holder:
                raise DataError(
                    f"No column of party {channel.me!r} can be cut into two bins with "
                    f"{LEAST} rows of each class."
                )
            best = max((column.information for column in cut), default=0.0)
            least = min(self.least_information, best)
            binned = replace(binned, columns=[one for one in cut if one.information >= least])
        if not self._selects:
            return binned
        channel = channel.within("selection", selecting.DISCLOSURES)
        holder, cells = roles.label_holder, None
        if binned is not None and part is not None:
            cells = evidence_of(part.table.take(binned.rows), binned.columns)
            if binned.target is not None:
                cells = np.column_stack([cells, binned.target])
        hide = roles.scheme != "plain"
        with Session.join(
            channel, roles.data_holders, roles.key_holder, hide=hide, rng=rng
        ) as session:
            found = selecting.open_correlations(session, holder, cells)
        if binned is None:
            return None
        if found is not None:
            return self._tell_choice(channel, binned, *found)
        came = channel.receive(holder, "kept")
        own = expect_array(
            came, sender=holder, name="kept", holds="boolean", shape=(len(binned.columns),)
        )
        return replace(binned, columns=_pick(binned.columns, own))

    def _tell_choice(
        self, channel: Channel, binned: Binned, correlations: Floats, counts: Mapping[str, int]
    ) -> Binned:
        """The label holder chooses, and tells each feature holder about its own columns."""
        chosen = list(range(sum(counts.values())))
        if self.most_correlated is not None:
            chosen = selecting.drop_correlated(correlations, self.most_correlated)
        if self.stepwise:
            chosen = selecting.select_stepwise(correlations, len(binned.rows), chosen)
        keeps, ends = (
            np.isin(np.arange(sum(counts.values())), chosen),
            np.cumsum([*counts.values()]),
        )
        told = dict(zip(counts, np.split(keeps, ends[:-1]), strict=True))
        for party, own in told.items():
            if party != channel.me and not own.any():
                raise DataError(
                    f"No column of party {party!r} is left after the selection: train without it, "
                    "or select less."
                )
        for party in counts:
            if party != channel.me:
                channel.send(party, "kept", told[party])
        return replace(binned, columns=_pick(binned.columns, told[channel.me]))

    def score_rows(
        self, channel: Channel, part: Part | None, share: ModelShare | None, *, roles: Roles
    ) -> Array | None:
        """One party's side of scoring, on weights of evidence."""
        if part is not None and share is not None:
            part = self._weigh(part, share)
        return super().score_rows(channel, part, share, roles=roles)

    def _weigh(self, part: Part, share: ModelShare) -> Part:
        """A part's rows with weights of evidence in place of cells."""
        table = part.table.take(part.rows)
        own = Part(table, np.arange(len(table)), part.target, part.weights)
        return to_evidence(own, read_bins(share))

    # ---- points ---------------------------------------------------------------------------------

    @property
    def factor(self) -> float:
        """Points per unit of log-odds."""
        return self.double_odds / math.log(2)

    @property
    def cards_(self) -> dict[str, pd.DataFrame]:
        self.check_fitted()
        return {party: self.make_card(share) for party, share in self.shares_.items()}

    @property
    def information_(self) -> dict[str, list[float]]:
        return dict(self.held_share.state["information"])

    def to_points(self, scores: Array) -> Array:
        """Points of rows by their scores, which are log-odds of the second class."""
        offset = self.base_points - self.factor * math.log(self.base_odds)
        return np.asarray(offset - self.factor * np.asarray(scores))

    def make_card(self, share: ModelShare) -> pd.DataFrame:
        """A party's own part of the scorecard; points only where it has weights of its own."""
        columns = read_bins(share)
        added = self.find_points(share)
        lines = []
        if added is not None and "classes" in share.state:
            intercept = np.asarray(share.state["weights"]).reshape(-1)[-1]
            base = float(self.to_points(intercept))
            lines.append({"column": "(base)", "bin": "", "points": base})
        for place, column in enumerate(columns):
            for number, words in enumerate(column.describe()):
                rows, positives = column.rows[number], column.positives[number]
                line: dict[str, Any] = {"column": column.name, "bin": words}
                line |= {"rows": rows, "positives": positives, "rate": positives / rows}
                line |= {"woe": column.woe[number], "information": column.information}
                if added is not None:
                    line["points"] = float(added[place][number])
                lines.append(line)
        order = ["column", "bin", "rows", "positives", "rate", "woe", "information", "points"]
        frame = pd.DataFrame(lines, columns=order if added is not None else order[:-1])
        return frame.astype({"rows": "Int64", "positives": "Int64"})

    def find_points(self, share: ModelShare) -> list[Floats] | None:
        """The points of each bin of each column; None where weights stay shared."""
        if "weights" not in share.state:
            return None
        columns = read_bins(share)
        weights = np.asarray(share.state["weights"]).reshape(-1)[: len(columns)]
        longest = max(len(column.woe) for column in columns)
        cells = {column.name: np.resize(np.asarray(column.woe), longest) for column in columns}
        encoded = encode_columns(_part_of(cells, share.party), share)
        points = -self.factor * encoded * weights
        return [points[: len(column.woe), place] for place, column in enumerate(columns)]

    def list_tables(self, share: ModelShare) -> dict[str, pd.DataFrame]:
        return {"scorecard": self.make_card(share)}

    def compare_rows(self, share: ModelShare, part: Part) -> dict[str, pd.DataFrame]:
        """The stability index of each of a party's columns, whose bins are those of the card."""
        table, lines = part.table.take(part.rows), []
        for column in read_bins(share):
            places = column.find_bins(table.column(column.name))
            now = np.bincount(places[places >= 0], minlength=len(column.rows))
            index = find_stability(np.array(column.rows), now)
            lines.append({"column": column.name, "stability index": index, "rows": len(table)})
        return {"stability": pd.DataFrame(lines, columns=["column", "stability index", "rows"])}

    def interpret(
        self,
        site: Site,
        share: ModelShare,
        scores: Array,
        *,
        rows: str = "overlap",
        offline: Sequence[str] = (),
    ) -> Answer:
        """Probabilities, and the points of each row."""
        answer = super().interpret(site, share, scores, rows=rows, offline=offline)
        return replace(answer, more={**answer.more, "points": self.to_points(scores)[:, 0]})


def read_bins(share: ModelShare) -> list[BinnedColumn]:
    """The bins of a party's share of a scorecard."""
    return [BinnedColumn.from_dict(one) for one in share.state["bins"]]


def _pick(columns: list[BinnedColumn], kept: Array) -> list[BinnedColumn]:
    return [one for one, stays in zip(columns, kept, strict=True) if stays]


def _part_of(cells: Mapping[str, Floats], party: str) -> Part:
    """A table of the bins themselves, a row for each."""
    frame = pd.DataFrame({"bin": [str(row) for row in range(len(next(iter(cells.values()))))]})
    table = PartyTable.from_frame(frame.assign(**cells), party=party, id="bin", label=False)
    return Part(table, np.arange(len(table)))
