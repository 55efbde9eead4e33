"""Tables and settings that the tests of generators and imputers share."""

import numpy as np
import pandas as pd

from vfsl.align import RowPlan, RowShare
from vfsl.completion import find
from vfsl.data import PartyTable
from vfsl.federation import simulate

GENERATORS = ("ctgan", "tablegan", "ctabgan", "vae", "tvae", "tabddpm")
IMPUTERS = ("gain", "vgain")

# Small enough that one fit takes well under a second.
TINY = {
    "ctgan": {"epochs": 2, "batch_size": 60, "width": 16, "latent": 8},
    "tablegan": {"epochs": 2, "batch_size": 60, "channels": 4, "latent": 8},
    "ctabgan": {"epochs": 2, "batch_size": 60, "channels": 4, "latent": 8},
    "vae": {"epochs": 2, "batch_size": 60, "width": 16, "latent": 4},
    "tvae": {"epochs": 2, "batch_size": 60, "width": 16, "latent": 4},
    "tabddpm": {"epochs": 2, "batch_size": 60, "width": 16, "steps": 8, "embedding": 8},
    "gain": {"epochs": 3, "batch_size": 60, "width": 16},
    "vgain": {"epochs": 3, "batch_size": 60, "width": 16, "latent": 4, "draws": 3},
}


def rng(seed=0):
    return np.random.default_rng(seed)


def tiny(name, **changes):
    return find(name)(**{**TINY[name], **changes})


def mixed_frame(rows=120, seed=0):
    """Numbers, whole numbers with many zeros, categories, missing cells, a constant column."""
    source = rng(seed)
    colour = source.choice(["red", "green", "blue"], rows, p=[0.6, 0.3, 0.1])
    size = np.round((colour == "red") * 3 + source.normal(size=rows), 3)
    size[::7] = np.nan
    gain = np.where(source.random(rows) < 0.6, 0, source.integers(1, 900, rows))
    return pd.DataFrame(
        {
            "size": size,
            "gain": gain,
            "colour": colour,
            "flag": source.random(rows) < 0.4,
            "fixed": 5,
        }
    )


def joint_law(rows, seed):
    """Two columns with a known joint law: x is normal around a centre that c names."""
    source = rng(seed)
    c = source.choice(["a", "b", "c"], size=rows, p=[0.5, 0.3, 0.2])
    centre = pd.Series(c).map({"a": -3.0, "b": 0.0, "c": 4.0}).to_numpy()
    return pd.DataFrame({"x": centre + 0.5 * source.normal(size=rows), "c": c})


def block_frame(rows=400, seed=0, share=0.4):
    """Columns of A, and a block of B that depends on them and is missing for some rows."""
    source = rng(seed)
    a1, a2 = source.normal(size=(2, rows))
    kind = np.where(a1 + 0.3 * source.normal(size=rows) > 0, "up", "down")
    frame = pd.DataFrame(
        {
            "a1": a1,
            "a2": a2,
            "b1": a1 - a2 + 0.3 * source.normal(size=rows),
            "b2": np.rint(10 * a2 + source.normal(size=rows)).astype(int),
            "kind": kind,
        }
    )
    hidden = source.permutation(rows)[: round(share * rows)]
    holes = frame.copy().astype({"b2": "Int64"})
    holes.loc[hidden, ["b1", "b2", "kind"]] = None
    holes["b1"] = holes["b1"].astype(float)
    return frame, holes, np.sort(hidden)


# Columns of A, which help, and of B, which are completed.
A, B = ["a1", "a2"], ["b1", "b2", "kind"]


def party(frame, name):
    return PartyTable.from_frame(frame.assign(id=np.arange(len(frame))), party=name, id="id")


def federation(rows=300, seed=0, on="memory"):
    """An aligned federation whose B lacks some of A's rows, and the truth about these rows."""
    frame, _, hidden = block_frame(rows, seed)
    known = np.setdiff1d(np.arange(rows), hidden)
    fed = simulate(
        {
            "A": party(frame[A], "A"),
            "B": party(frame[B].iloc[known].reset_index(drop=True), "B"),
        },
        seed=seed,
        on=on,
    )
    nobody = np.empty(0, dtype=np.int64)
    fed.plan = RowPlan(
        {
            "A": RowShare("A", "plan", known, hidden),
            "B": RowShare("B", "plan", np.arange(len(known)), nobody),
        }
    )
    return fed, frame.iloc[hidden].reset_index(drop=True)
