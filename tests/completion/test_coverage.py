"""Intervals, sets and skill of completion on shares on public tables, beside rounds in the open."""

import numpy as np
import pytest

import vfsl
from benchmarks.complete_cells import Case, judged_column, prepare
from vfsl.completion.fedpsg import FedPSG


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bank", "census", "credit"])
@pytest.mark.parametrize("seed", [0, 1])
def test_public_tables_are_covered_and_as_good_as_in_the_open(name, seed):
    hidden = prepare(Case(name, 0.2, seed, 4000, 10))
    lines = {}
    for protocol, scheme in (("shares", "auto"), ("rounds", "plain")):
        fed = vfsl.simulate(
            dict(hidden.train.tables), scheme=scheme, seed=seed, labels={"A": hidden.label}
        )
        fed.plan = hidden.train.plan
        done = FedPSG(low="direct", protocol=protocol).fit_complete(fed)
        lines[protocol] = {
            column: judged_column(one, done, hidden.truth)
            for column, one in done.columns.items()
            if hidden.truth.column(column).notna().sum() > 500  # fewer would not tell
        }
    for kind in ("numeric", "categorical"):
        found = [one["coverage"] for one in lines["shares"].values() if one["kind"] == kind]
        assert not found or 0.87 < np.mean(found) < 0.935, (kind, found)
    for column, one in lines["shares"].items():
        # 800 counted rows, some columns of which nine tenths have one value.
        assert 0.85 < one["coverage"] < 0.97, (column, one["coverage"])
        other = lines["rounds"][column]["skill"]
        assert one["skill"] > other - max(0.05 * other, 0.025), column
