"""Tables and runners that the tests of linear models share."""

from functools import partial

import numpy as np
import pandas as pd

from vfsl.channel import run_together
from vfsl.data import PartyTable
from vfsl.estimators import LinearRegression, LogisticRegression, Part, Roles

# The models as the literature trains them, with gradients and scores opened.
LinearInRounds = partial(LinearRegression, protocol="rounds")
LogisticInRounds = partial(LogisticRegression, protocol="rounds")

PLAIN = Roles("C", ("B",), "K", "plain")
PAILLIER = Roles("C", ("B",), "K", "paillier", 112)
BFV = Roles("C", ("B",), "K", "bfv")
# Without noise, logistic regression is the pooled one.
EXACT = {"look_noise": 0.0, "label_noise": 0.0}


def tables(rows=240, parties=("B",), seed=0):
    """Feature tables of the parties and of C, a target, all in the same row order."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(rows, 2))
    ids = [f"person-{i}" for i in range(rows)]
    made, target = {}, rng.normal(size=rows)
    for party in (*parties, "C"):
        numbers = common @ rng.normal(size=(2, 3)) + rng.normal(size=(rows, 3))
        frame = pd.DataFrame(numbers, columns=[f"{party}{j}" for j in range(3)])
        frame[f"{party}-group"] = rng.choice(["x", "y", "z"], rows)
        target = target + numbers @ rng.normal(size=3) + (frame[f"{party}-group"] == "y")
        frame["id"] = ids
        made[party] = PartyTable.from_frame(frame, party=party, id="id")
    return made, np.asarray(target) * 3 + 40


def classes(target, count=2):
    """The target cut into classes of unequal size."""
    edges = np.quantile(target, np.linspace(0, 1, count + 1)[1:-1] ** 0.7)
    return np.searchsorted(edges, target)


def parts_of(made, target, rows=None, weights=None):
    rows = np.arange(len(target)) if rows is None else rows
    return {
        party: Part(table, rows, target, weights) if party == "C" else Part(table, rows)
        for party, table in made.items()
    }


def train(model, parts, roles=PLAIN, seed=0, **how):
    """With a private generator for each party, the same in every run with the same seed."""
    jobs = {
        party: partial(
            model.train,
            part=parts.get(party),
            roles=roles,
            rng=np.random.default_rng([seed, *party.encode()]),
        )
        for party in roles.everyone
    }
    return run_together(jobs, **how)


def scores(model, parts, shares, roles=PLAIN, **how):
    jobs = {
        party: partial(model.score_rows, part=parts.get(party), share=shares[party], roles=roles)
        for party in roles.everyone
    }
    return run_together(jobs, **how)[roles.label_holder]


def fitted(model, parts, roles=PLAIN):
    """Shares and scores of the training rows."""
    shares = train(model, parts, roles)
    return shares, scores(model, parts, shares, roles)


def in_units(values, share):
    """Scores of a linear regression in units of the target."""
    return (values * share.state["scale"] + share.state["mean"])[:, 0]


def pooled_matrix(made):
    """All columns side by side: standardised numbers and centred indicators, as parties encode."""
    frames = [pd.get_dummies(table.frame, dtype=float) for table in made.values()]
    frame = pd.concat(frames, axis=1)
    matrix = frame.to_numpy()
    numeric = np.array(["_" not in name for name in frame.columns])
    scale = np.where(numeric, matrix.std(axis=0), 1.0)
    return (matrix - matrix.mean(axis=0)) / scale
