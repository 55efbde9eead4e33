"""Tables and runners that the tests of trees share."""

from functools import partial

import numpy as np
import pandas as pd

from vfsl.channel import run_together
from vfsl.data import PartyTable
from vfsl.estimators import GBDT, LGB, XGB, Part, RandomForest, Roles
from vfsl.store import Checkpoints

PLAIN = Roles("C", ("B",), "K", "plain")
PAILLIER = Roles("C", ("B",), "K", "paillier", 112)
BFV = Roles("C", ("B",), "K", "bfv")
SHARES = Roles("C", ("B",), "K", "shares")
ALONE = Roles("C", (), "K", "plain")

# Small forms of the four strategies; every way of drawing at random is in one of them.
FOUR = {
    "rf": partial(RandomForest, n_estimators=4, together=2, max_depth=4),
    "gbdt": partial(GBDT, n_estimators=3, subsample=0.8),
    "xgb": partial(XGB, n_estimators=3, max_depth=3, colsample=0.7),
    "lgb": partial(LGB, n_estimators=3, max_leaves=6, goss=True, top=0.4, other=0.3),
}


def frames(rows=300, parties=("B",), seed=0, missing=0.15):
    """Feature frames of C and of other parties in one row order, and a score they cause."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=rows)
    made, target = {}, rng.normal(size=rows)
    for party in ("C", *parties):
        numbers = common[:, None] + rng.normal(size=(rows, 3))
        frame = pd.DataFrame(numbers, columns=[f"{party}{j}" for j in range(3)])
        frame[f"{party}2"] = np.round(frame[f"{party}2"] * 2)  # few values, many ties
        group = rng.choice(["x", "y", "z", "w"], rows, p=[0.4, 0.3, 0.25, 0.05])
        target = target + numbers[:, 0] * 1.5 + (numbers[:, 1] > 0.5) * 2 + (group == "y") * 1.5
        frame[f"{party}-group"] = group
        for name in (f"{party}1", f"{party}-group"):
            frame[name] = frame[name].mask(rng.random(rows) < missing)
        made[party] = frame
    return made, np.asarray(target)


def table_of(frame, party):
    named = frame.assign(id=[f"person-{i}" for i in range(len(frame))])
    return PartyTable.from_frame(named, party=party, id="id")


def tables(rows=300, parties=("B",), seed=0, missing=0.15):
    made, target = frames(rows, parties, seed, missing)
    return {party: table_of(frame, party) for party, frame in made.items()}, target


def pooled(made):
    """One table with all columns, in the order of the parties."""
    return table_of(pd.concat([table.frame for table in made.values()], axis=1), "C")


def classes(target, count=2):
    """The target cut into classes of unequal size."""
    edges = np.quantile(target, np.linspace(0, 1, count + 1)[1:-1] ** 0.7)
    return np.searchsorted(edges, target)


def parts_of(made, target, weights=None):
    rows = np.arange(len(target))
    return {
        party: Part(table, rows, np.asarray(target), weights) if party == "C" else Part(table, rows)
        for party, table in made.items()
    }


def kept_by(party, folder):
    """Where a party keeps finished rounds."""
    return Checkpoints(None if folder is None else folder / party, party)


def train(model, parts, roles=PLAIN, seed=0, keep=None, **how):
    jobs = {
        party: partial(
            model.train,
            part=parts.get(party),
            roles=roles,
            rng=np.random.default_rng(seed),
            kept=kept_by(party, keep),
        )
        for party in players(model, roles)
    }
    return run_together(jobs, **how)


def players(model, roles):
    """Who takes part: the key holder, too, unless there is nobody to hide something from."""
    both = roles.feature_holders and model.keys == "key-holder"
    return roles.everyone if both else roles.data_holders


def scores(model, parts, shares, roles=PLAIN, **how):
    jobs = {
        party: partial(
            model.score_rows, part=parts.get(party), share=shares.get(party), roles=roles
        )
        for party in players(model, roles)
    }
    return run_together(jobs, **how)[roles.label_holder]


def close(one, other):
    """Whether scores are the same but for the rounding of words that are added on shares.

    Small models here have at most a hundred trees; their scores lie within a few units.
    """
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-6, atol=2e-5)


def alone(model, made, target, weights=None, seed=0):
    """The label holder's share of the same model on one pooled table."""
    parts = {"C": Part(pooled(made), np.arange(len(target)), np.asarray(target), weights)}
    return train(model, parts, ALONE, seed)["C"], parts


def shape(share, at=slice(None)):
    """Trees without who owns their splits: what must not depend on where columns are."""
    return [
        {name: tree[name] for name in ("left", "value", "gain")}
        for tree in share.state["trees"][at]
    ]


def splits(shares):
    """Whose column divides each node of each tree, at which code, and where missing cells go."""
    found = {}
    for at, tree in enumerate(shares["C"].state["trees"]):
        for node, column, code, missing in tree["rules"]:
            found[at, node] = ("C", column, code, missing)
    for party, share in shares.items():
        if party != "C" and share is not None:
            for at, node, column, code, missing in share.state["rules"]:
                found[at, node] = (party, column, code, missing)
    return found


def grow(model, frame, target, **more):
    """One party's trees on a small frame, and the scores of its rows."""
    made = {"C": table_of(frame, "C")}
    parts = parts_of(made, target, more.get("weights"))
    share = train(model, parts, ALONE)["C"]
    return share, scores(model, parts, {"C": share}, ALONE)


class Meddler:
    """A channel that changes what its party sends, or lets the party die while it sends."""

    def __init__(self, channel, change):
        self._channel, self._change = channel, change
        self.me, self.peers, self.scope = channel.me, channel.peers, channel.scope

    def send(self, to, name, value):
        self._channel.send(to, name, self._change(name, value))

    def receive(self, sender, name):
        return self._channel.receive(sender, name)

    def release(self, to, what, numbers, **more):
        self._channel.release(to, what, numbers, **more)

    def note_opened(self, name, values):
        self._channel.note_opened(name, values)

    def within(self, scope, speaks=None):
        return Meddler(self._channel.within(scope, speaks), self._change)


def train_with(meddling, change, model, parts, roles=PLAIN, seed=0, keep=None):
    """A training in which one party does not do as it should."""

    def job(channel, party):
        on = Meddler(channel, change) if party == meddling else channel
        rng, kept = np.random.default_rng(seed), kept_by(party, keep)
        return model.train(on, parts.get(party), roles=roles, rng=rng, kept=kept)

    return run_together({party: partial(job, party=party) for party in roles.everyone})
