"""A small job with all steps, for the tests of jobs."""

import numpy as np
import pytest

from vfsl.cli import main
from vfsl.data import make_parties, write_table

HEAD = """
[run]
seed = 3
scheme = "plain"
[parties.A]
table = "A.csv"
id = "id"
[parties.B]
table = "B.parquet"
id = "id"
[parties.C]
table = "C.csv"
id = "id"
label = "late"
[test]
share = 0.25
[[steps]]
do = "align"
parties = ["B", "C"]
protocol = "ecdh"
"""
PU = """
[[steps]]
do = "pu"
positives = "A"
label_holder = "C"
protocol = "ecdh"
rounds = 2
folds = 2
"""
COMPLETE = """
[[steps]]
do = "complete"
given = "C"
missing = "B"
label = "late"
advice_trees = 2
rounds = 2
"""
TRAIN = """
[[steps]]
do = "train"
model = "xgb"
label = ["C", "late"]
rows = "completed"
n_estimators = 2
max_depth = 2
"""
RISA = """
[[steps]]
do = "train"
model = "risa"
label = ["C", "late"]
epochs = 12
self_steps = 10
hidden = [8]
"""
EVALUATE = """
[[steps]]
do = "evaluate"
subsets = true
bootstrap = 100
"""


def tables(rows=240, seed=4):
    """Known positives (A), a bank with numbers and categories (B), a shop with a label (C)."""
    made = make_parties(
        rows=rows,
        parties=3,
        overlap=0.6,
        positives=0.35,
        numeric=2,
        categorical=2,
        rng=np.random.default_rng(seed),
    )
    found = dict(made.tables)
    truth = made.truth.set_index("id")[made.label]
    found["C"]["late"] = found["C"]["id"].map(truth).map({0: "no", 1: "yes"})
    return found


def write_case(folder, text):
    """The tables and the job in a folder."""
    found = tables()
    write_table(found["A"], folder / "A.csv")
    write_table(found["B"], folder / "B.parquet")
    write_table(found["C"], folder / "C.csv")
    (folder / "job.toml").write_text(text)
    return found


def vfsl(monkeypatch, *arguments):
    """Run the command line in this process; its exit code."""
    monkeypatch.setattr("sys.argv", ["vfsl", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


def files_below(folder):
    """Every file with its bytes, but for what names the run and its times."""
    skipped = ("record.json", "report.html")
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in skipped
    }
