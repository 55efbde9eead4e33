"""Tables, federations and a tree-like base that the tests of VFPU share."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from vfsl.align import RowPlan, RowShare
from vfsl.data import PartyTable
from vfsl.estimators import Estimator, ModelShare
from vfsl.federation import Federation
from vfsl.values import Aggregate, Disclosure


def people(rows=400, seed=0, share=0.3, labelled=0.4):
    """Columns of B and C, who is positive, and who of them is known."""
    rng = np.random.default_rng(seed)
    positive = rng.random(rows) < share
    shift = np.where(positive, 1.0, -0.4)[:, None]
    ids = [f"person-{i}" for i in range(rows)]
    frames = {}
    for party, names in (("B", ["b0", "b1", "b2"]), ("C", ["c0", "c1"])):
        numbers = shift * rng.uniform(0.5, 1.2, len(names)) + rng.normal(size=(rows, len(names)))
        frames[party] = pd.DataFrame(numbers, columns=names)
        frames[party][f"{party}-group"] = np.where(rng.random(rows) < 0.5, "x", "y")
        frames[party]["id"] = ids
    known = positive & (rng.random(rows) < labelled)
    return frames, positive, known


def federation(frames, known, scheme="plain", **how):
    """Aligned and marked beforehand, in the order of the tables."""
    ids = next(iter(frames.values()))["id"]
    tables = {"A": pd.DataFrame({"id": [*ids[known], "stranger"]}), **frames}
    made = {
        party: PartyTable.from_frame(frame, party=party, id="id") for party, frame in tables.items()
    }
    fed = Federation(made, scheme=scheme, security=112, **how)
    rows, nobody = np.arange(len(ids)), np.empty(0, dtype=np.int64)
    marks = np.where(known, 1, -1).astype(np.int8)
    fed.plan = RowPlan(
        {p: RowShare(p, "plan", rows, nobody, marks if p == "C" else None) for p in frames}
    )
    return fed


@dataclass
class Centroids(Estimator):
    """A stand-in for trees: weighted class means; the label holder knows all training scores."""

    name = "centroids"
    predicts = "classes"
    scores_are = "logit"
    knows_training_scores = True
    DISCLOSURES: ClassVar = {"columns": Disclosure(Aggregate, "all columns: a test")}

    def train(self, channel, part, *, roles, rng=None, kept=None):
        columns = self._columns(channel, part, roles)
        if columns is None:
            return None if part is None else ModelShare(channel.me, self.name, {})
        weights = np.asarray(part.weights, dtype=float)
        positive = np.asarray(part.target) == 1
        slopes = [self._slope(columns, positive, w) for w in weights.T]
        state = {"slopes": [s.tolist() for s in slopes]}
        return ModelShare(channel.me, self.name, state, scores=self._scores(columns, slopes))

    def score_rows(self, channel, part, share, *, roles):
        columns = self._columns(channel, part, roles)
        return None if columns is None else self._scores(columns, share.state["slopes"])

    def _columns(self, channel, part, roles):
        channel = channel.within(self.name, self.DISCLOSURES)
        if channel.me == roles.key_holder:
            return None
        own = part.table.take(part.rows).frame.select_dtypes("number").to_numpy()
        if channel.me != roles.label_holder:
            channel.send(roles.label_holder, "columns", Aggregate(own))
            return None
        theirs = [channel.receive(party, "columns").payload for party in roles.feature_holders]
        return np.hstack([own, *theirs])

    def _slope(self, columns, positive, weights):
        means = [np.average(columns, axis=0, weights=weights * side) for side in
                 (positive, ~positive)]  # fmt: skip
        slope = means[0] - means[1]
        return np.append(slope, -slope @ (means[0] + means[1]) / 2)

    def _scores(self, columns, slopes):
        ones = np.ones((len(columns), 1))
        return np.hstack([columns, ones]) @ np.asarray(slopes).T
