"""What steps leave for the report: plain JSON of aggregates, without ids or values of rows."""

import json

import numpy as np
import pandas as pd
import pytest

import vfsl
from vfsl.record import RunRecord
from vfsl.report import render


@pytest.fixture(scope="module")
def run():
    """Every method in one small federation, whose cells are numbers with many digits."""
    rng = np.random.default_rng(5)
    rows = 420
    z = rng.normal(size=(rows, 2))
    ids = [f"person-{row:04d}" for row in range(rows)]
    a = pd.DataFrame({"id": ids, "a": z[:, 0] + 0.3 * rng.normal(size=rows), "b": z[:, 1]})
    a["y"] = (z.sum(axis=1) + rng.normal(size=rows) > 0).astype(int)
    b = pd.DataFrame(
        {"id": ids, "c": z[:, 0] + 0.3 * rng.normal(size=rows), "d": rng.normal(size=rows)}
    )
    b["e"] = np.where(z[:, 1] > 1.9, "rare kind", np.where(z[:, 0] > 0, "one kind", "other kind"))
    positives = a.loc[a["y"] == 1, ["id"]].iloc[::3].reset_index(drop=True)
    tables = {"A": a.iloc[:330], "B": b.iloc[np.r_[:200, 330:420]].reset_index(drop=True)}
    fed = vfsl.simulate({**tables, "P": positives}, labels={"A": "y"}, scheme="plain", seed=1)
    fed.align("A", "B", protocol="ecdh")
    fed.mark(positives="P", label_holder="A", protocol="ecdh")
    vfsl.VFPU(rounds=5).fit(fed, positives="P", label_holder="A")
    done = vfsl.FedPSG(rounds=3).fit_complete(fed, given="A", missing="B")
    done.recommend(folds=2, base=vfsl.estimators.XGB(n_estimators=3, max_depth=2))
    risa = vfsl.RISA(protect="none", epochs=3, variant="paper", tau_0=0.4, self_steps=10).fit(
        fed, ("A", "y")
    )
    risa.predict_proba(fed, rows="all")
    return fed, tables, ids


def counts_in(value, name=""):
    """All lists of counts in details."""
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from counts_in(inside, key)
    elif isinstance(value, list):
        if name == "counts":
            yield from (number for line in value for number in line)
        for inside in value:
            yield from counts_in(inside)


def test_steps_say_what_the_page_draws(run):
    fed, _, _ = run
    found = {step.name: set(step.details) for step in fed.steps if step.details}
    assert found["vfpu"] >= {"curve", "scores", "columns"}
    assert found["completion"] >= {"routing", "quality", "distributions", "confidence"}
    assert found["downstream"] >= {"ways", "verdicts", "measure"}
    assert found["train risa"] >= {"doubts"}
    assert found["predict risa"] >= {"uncertainty"}


def test_details_are_plain_json_and_come_back(run, tmp_path):
    fed, _, _ = run
    for step in fed.steps:
        assert json.loads(json.dumps(step.details, allow_nan=False)) == step.details, step.name
    fed.record.save(tmp_path)
    again = RunRecord.load(tmp_path)
    assert [step.details for step in again.steps] == [step.details for step in fed.steps]
    assert render(again) == render(fed.record)


def test_no_id_and_no_value_of_a_row_is_in_them(run):
    fed, tables, ids = run
    told = " ".join(json.dumps(step.details) for step in fed.steps)
    page = render(fed.record)
    assert not [name for name in ids if name in told or name in page]
    for table in tables.values():
        for column in table.select_dtypes("float"):
            assert not [value for value in table[column] if repr(float(value)) in told]
    assert "one kind" in told or "other kind" in told
    assert "rare kind" not in told  # fewer than ten rows have it


def test_no_count_is_small(run):
    fed, _, _ = run
    counts = [number for step in fed.steps for number in counts_in(dict(step.details))]
    assert len(counts) > 50
    assert all(number == 0 or number >= 10 for number in counts)
    curve = np.array(next(step for step in fed.steps if step.name == "vfpu").details["curve"])
    assert (np.diff(curve, axis=0) >= 10).all()


def test_the_page_of_that_run_has_every_section(run):
    fed, _, _ = run
    page = render(fed.record)
    for section in ("alignment", "positives", "completion", "training", "gain"):
        assert f'<section id="{section}"' in page


def test_records_without_details_load(run, tmp_path):
    fed, _, _ = run
    path = fed.record.save(tmp_path)
    content = json.loads(path.read_text())
    for step in content["steps"]:
        del step["details"]
    path.write_text(json.dumps(content))
    assert all(step.details == {} for step in RunRecord.load(tmp_path).steps)
    assert "At a glance" in render(RunRecord.load(tmp_path))
