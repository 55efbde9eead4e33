"""Tables and runners that the tests of completion share."""

from functools import partial

import numpy as np
import pandas as pd

import vfsl
from vfsl.channel import run_together
from vfsl.data import PartyTable
from vfsl.estimators import Roles
from vfsl.parts import Part

PLAIN = Roles("B", ("A",), "K", "plain")


def frames(common=120, rest=80, seed=0, strong=2.0):
    """A's frame for all rows, B's true frame for all rows; the first ``common`` are common."""
    rng = np.random.default_rng(seed)
    rows = common + rest
    hidden = rng.normal(size=(rows, 2))
    a = pd.DataFrame(hidden @ rng.normal(size=(2, 3)) + 0.3 * rng.normal(size=(rows, 3)))
    a.columns = [f"a{j}" for j in range(3)]
    a["a-group"] = rng.choice(["left", "right"], rows)
    b = pd.DataFrame(
        {
            "income": np.round(strong * hidden[:, 0] * 100 + 1000 + 30 * rng.normal(size=rows), 2),
            "visits": np.clip(np.rint(5 + 2 * hidden[:, 1] + rng.normal(size=rows)), 0, 20).astype(
                np.int64
            ),
            "colour": np.where(hidden[:, 0] + 0.3 * rng.normal(size=rows) > 0, "red", "blue"),
            "noise": rng.normal(size=rows),
        }
    )
    label = (hidden.sum(axis=1) + rng.normal(size=rows) > 0).astype(int)
    ids = [f"person-{row}" for row in range(rows)]
    a.insert(0, "id", ids)
    b.insert(0, "id", ids)
    return a, b, label


def parts(a, b, common=120):
    """Both parties' parts; B has the common rows only."""
    tables = {
        "A": PartyTable.from_frame(a, party="A", id="id"),
        "B": PartyTable.from_frame(b.iloc[:common], party="B", id="id"),
    }
    rows = np.arange(len(a))
    return {
        "A": Part(tables["A"], rows[:common], rest=rows[common:]),
        "B": Part(tables["B"], rows[:common]),
    }


def run(model, both, columns, roles=PLAIN, seed=0, own=None, **how):
    """A role of completion at all parties; what the missing party has afterwards."""
    jobs = {}
    for party in roles.everyone:
        more = {"columns": columns, **(own or {})} if party == "B" else {}
        jobs[party] = partial(
            model.train,
            part=both.get(party),
            roles=roles,
            rng=np.random.default_rng(seed),
            **more,
        )
    return run_together(jobs, **how)["B"]


def federation(common=120, rest=80, seed=0, scheme="plain", on="memory"):
    """An aligned federation of two parties, and B's truth by id."""
    a, b, label = frames(common, rest, seed)
    a["y"] = label
    tables = {"A": a, "B": b.iloc[:common]}
    fed = vfsl.simulate(tables, id="id", labels={"A": "y"}, scheme=scheme, seed=seed, on=on)
    fed.align("A", "B", protocol="ecdh")
    return fed, b.set_index("id")
