"""Small federations that the tests of RISA share."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import vfsl
from vfsl.align import RowPlan, RowShare


def frames(rows=160, overlap=60, parties=("A", "B"), classes=2, seed=0, own=None):
    """Tables of numbers and a category about the same thing; A has the label y."""
    rng = np.random.default_rng(seed)
    made = {}
    label = rng.integers(0, classes, rows)
    shared = np.arange(overlap)
    for place, party in enumerate(parties):
        own_rows = rows - overlap if own is None else own[party]
        chosen = np.concatenate([shared, overlap + np.arange(own_rows)])
        codes = label[chosen]
        centre = rng.normal(size=(classes, 3))
        frame = pd.DataFrame(
            1.5 * centre[codes] + rng.normal(size=(len(codes), 3)),
            columns=[f"{party}{j}" for j in range(3)],
        )
        frame[f"{party}-kind"] = np.where(
            rng.random(len(codes)) < 0.7, codes, rng.integers(0, classes, len(codes))
        ).astype(str)
        names = [f"p{i}" for i in shared] + [f"{party}-only-{i}" for i in range(own_rows)]
        frame.insert(0, "id", names)
        if place == 0:
            frame["y"] = codes
        made[party] = frame
    return made


def plan_for(made, overlap):
    """The row plan without an alignment: the first rows are the overlap."""
    shares = {
        party: RowShare(
            party,
            "test",
            np.arange(overlap, dtype=np.int64),
            np.arange(overlap, len(frame), dtype=np.int64),
        )
        for party, frame in made.items()
    }
    return RowPlan(shares)


def federation(made=None, overlap=60, seed=0, **options):
    made = frames(overlap=overlap) if made is None else made
    fed = vfsl.simulate(made, labels={"A": "y"}, seed=seed, **options)
    fed.plan = plan_for(made, overlap)
    return fed


@pytest.fixture(scope="session")
def cases():
    return SimpleNamespace(
        frames=frames, plan_for=plan_for, federation=federation, label=("A", "y")
    )
