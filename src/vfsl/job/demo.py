"""The demo: made-up tables of three parties, and one job that goes through all steps on them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from vfsl import store
from vfsl.data import make_parties, write_table

LABEL = "defaulted"
_SEED = 7
_ROWS = 4000
_OVERLAP = 0.8  # so many common rows that what is held out decides
_KNOWN = 0.7  # the share of the shop's customers whose outcome it knows

_JOB = """\
# Three parties about partly the same people. Nobody shows a table to anybody.
[run]
seed = 7
scheme = "auto"            # encrypted, 128-bit security

[parties.office]           # ids of people who are known to have defaulted, nothing else
table = "office.csv"
id = "id"

[parties.bank]
table = "bank.csv"
id = "id"

[parties.shop]             # knows the outcome of some of its customers
table = "shop.csv"
id = "id"
label = "defaulted"

[test]
share = 0.8                # common rows that no model learns from: enough to be sure

[[steps]]                  # 1: who is a customer of both?
do = "align"
parties = ["bank", "shop"]
protocol = "ecdh"

[[steps]]                  # 2: who else is like the people on the office's list?
do = "pu"
positives = "office"
label_holder = "shop"
rounds = 10

[[steps]]                  # 3: the bank's columns for customers that only the shop has
do = "complete"
given = "shop"
missing = "bank"

[[steps]]                  # 4: a model of the common rows
do = "train"
model = "logistic"
name = "bank and shop"
label = ["shop", "defaulted"]
refine = 1

[[steps]]                  # 5: the same with completed rows, as far as they are trusted
do = "train"
model = "logistic"
name = "with completed rows"
label = ["shop", "defaulted"]
rows = "completed"
refine = 1
"""

_RISA = """
[[steps]]                  # 6: RISA: all rows of both, trusting only what is reliable
do = "train"
model = "risa"
label = ["shop", "defaulted"]
epochs = 15
"""

_END = """
[[steps]]                  # what it is worth on the rows held out, beside the shop's own columns
do = "evaluate"
"""


def has_torch() -> bool:
    """Whether RISA can take part."""
    return find_spec("torch") is not None


def write_demo(folder: Path, *, risa: bool) -> Path:
    """Write the tables and the job; the path of the job."""
    for party, table in demo_tables().items():
        write_table(table, folder / f"{party}.csv")
    path = folder / "job.toml"
    store.write_text(path, _JOB + (_RISA if risa else "") + _END)
    return path


def demo_tables() -> dict[str, pd.DataFrame]:
    """Ids of known positives, a bank's and a shop's customers; the shop knows some outcomes."""
    rng = np.random.default_rng(_SEED)
    made = make_parties(
        rows=_ROWS, parties=3, overlap=_OVERLAP, positives=0.3, numeric=4, categorical=1, rng=rng
    )
    shop = made.tables["C"]
    outcome = shop["id"].map(made.truth.set_index("id")[made.label]).map({0: "no", 1: "yes"})
    shop[LABEL] = outcome.mask(rng.random(len(shop)) >= _KNOWN)
    return {"office": made.tables["A"], "bank": made.tables["B"], "shop": shop}
