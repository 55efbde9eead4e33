"""VFPU goes on from the last finished task; what is kept holds no keys and belongs to one job."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.pu.pu_cases import Centroids, federation, people
from vfsl.errors import StoreError
from vfsl.pu import VFPU, BagLogistic

HOW = {"rounds": 3, "folds": 4, "outer": 2, "promote": 0.01}
BASES = {
    "lr": BagLogistic(max_rounds=4),
    "trees": Centroids(),
    "other lr": BagLogistic(max_rounds=5),
}


class Stop(Exception):
    pass


def run(tmp_path, base, row_lists, stop_at=None, **how):
    frames, _, known = people()
    fed = federation(frames, known)
    state = {party: tmp_path / party for party in ("B", "C")}
    count = 0

    def hear(event):
        nonlocal count
        count += event.stage.endswith("bags")
        if count == stop_at:
            raise Stop

    model = VFPU(base=BASES[base], row_lists=row_lists, **(HOW | how))
    model.fit(fed, state=state, on_event=hear)
    return model, fed


@pytest.mark.parametrize("base", ["lr", "trees"])
@pytest.mark.parametrize(("row_lists", "stop_at"), [("hidden", 2), ("told", 9)])
def test_a_resumed_run_is_the_same(tmp_path, base, row_lists, stop_at):
    whole, fed = run(tmp_path / "whole", base, row_lists)
    messages = len(fed.transcript.entries)
    with pytest.raises(Stop):
        run(tmp_path / "parts", base, row_lists, stop_at)
    assert any((tmp_path / "parts" / "B").iterdir())
    resumed, fed = run(tmp_path / "parts", base, row_lists)
    pd.testing.assert_series_equal(whole.scores_, resumed.scores_)
    pd.testing.assert_frame_equal(whole.history_, resumed.history_)
    np.testing.assert_array_equal(*(m.predict_proba(fed) for m in (whole, resumed)))
    # Some work was left out, and nothing is left behind.
    assert 0 < len(run(tmp_path / "other", base, row_lists)[1].transcript.entries) == messages
    assert not any((tmp_path / "parts" / "B").iterdir())


def test_a_resumed_run_does_less(tmp_path):
    with pytest.raises(Stop):
        run(tmp_path, "lr", "hidden", stop_at=2)
    _, fed = run(tmp_path, "lr", "hidden")
    trained = {e.name.split("/")[1] for e in fed.transcript.entries if "/bags/" in e.name}
    assert trained == set()  # both iterations were finished before the stop
    with pytest.raises(Stop):
        run(tmp_path, "lr", "hidden", stop_at=1)
    _, fed = run(tmp_path, "lr", "hidden")
    trained = {e.name.split("/")[1] for e in fed.transcript.entries if "/bags/" in e.name}
    assert trained == {"task 1"}


def test_a_party_that_kept_less_decides(tmp_path):
    with pytest.raises(Stop):
        run(tmp_path, "lr", "hidden", stop_at=2)
    (tmp_path / "B" / "vfpu" / "task-1.json").unlink()
    _, fed = run(tmp_path, "lr", "hidden")
    trained = {e.name.split("/")[1] for e in fed.transcript.entries if "/bags/" in e.name}
    assert trained == {"task 1"}


def test_what_is_kept_holds_no_secret_and_no_other_party(tmp_path):
    with pytest.raises(Stop):
        run(tmp_path, "lr", "hidden", stop_at=2)
    files = {party: tmp_path / party / "vfpu" / "task-0.json" for party in "BC"}
    kept = {party: json.loads(path.read_text())["value"] for party, path in files.items()}
    assert [set(value) for value in kept.values()] == [{"share"}] * 2
    assert "person-" not in str(kept)
    assert "c0" not in str(kept["B"])
    assert "b0" not in str(kept["C"])


def test_another_job_does_not_go_on_from_it(tmp_path):
    with pytest.raises(Stop):
        run(tmp_path, "lr", "hidden", stop_at=1)
    with pytest.raises(StoreError, match="another job"):
        run(tmp_path, "lr", "hidden", rounds=4)
    with pytest.raises(StoreError, match="another job"):
        run(tmp_path, "trees", "hidden")
    with pytest.raises(StoreError, match="another job"):
        run(tmp_path, "other lr", "hidden")
