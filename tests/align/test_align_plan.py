"""Row plans: saved, loaded, bound to a list, and consistent between parties."""

import json
import stat

import numpy as np
import pytest

from vfsl.align import RowPlan, RowShare, prepare_ids
from vfsl.align.plan import find_rest
from vfsl.errors import DataError, StoreError


@pytest.fixture
def ids():
    return {
        "B": prepare_ids("B", ["x", "b", "y", "z"]),
        "C": prepare_ids("C", ["y", "c", "x"]),
    }


@pytest.fixture
def plan():
    marks = np.array([1, -1], dtype=np.int8)
    return RowPlan(
        {
            "B": RowShare("B", "p", np.array([2, 0]), np.array([1, 3])),
            "C": RowShare("C", "p", np.array([0, 2]), np.array([1]), marks),
        }
    )


def test_what_a_plan_shows(plan):
    assert len(plan.overlap) == 2
    assert plan.parties == ("B", "C")
    assert plan["B"].rest.tolist() == [1, 3]
    assert plan.counts() == {"overlap": 2, "rest": {"B": 2, "C": 1}, "marked": 1}
    with pytest.raises(DataError, match="no party 'D'"):
        plan["D"]


def test_a_plan_is_loaded_as_it_was_saved(plan, ids, tmp_path):
    plan.save(tmp_path, ids)
    again = RowPlan.load(tmp_path, ids)
    for party in plan.parties:
        assert np.array_equal(again[party].overlap, plan[party].overlap)
        assert np.array_equal(again[party].rest, plan[party].rest)
    assert again["B"].marks is None
    assert again["C"].marks.tolist() == [1, -1]
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "other", [["x", "b", "y"], ["b", "x", "y", "z"], ["x", "b", "y", "w"], ["X", "b", "y", "z"]]
)
def test_a_plan_of_another_list_does_not_load(plan, ids, tmp_path, other):
    plan.save(tmp_path, ids)
    with pytest.raises(StoreError, match="another id list of 'B'"):
        RowShare.load(tmp_path, "B", prepare_ids("B", other))


def test_a_damaged_or_mixed_plan_does_not_load(plan, ids, tmp_path):
    plan.save(tmp_path, ids)
    header, numbers = tmp_path / "rows-B.json", tmp_path / "rows-B.npz"
    good = numbers.read_bytes()
    numbers.write_bytes((tmp_path / "rows-C.npz").read_bytes())
    with pytest.raises(StoreError, match="does not belong"):
        RowShare.load(tmp_path, "B", ids["B"])
    numbers.write_bytes(good)
    content = json.loads(header.read_text())
    for change in ({"version": 2}, {"party": "C"}, {"secret": "zz"}):
        header.write_text(json.dumps({**content, **change}))
        with pytest.raises(StoreError):
            RowShare.load(tmp_path, "B", ids["B"])
    numbers.unlink()
    header.write_text(json.dumps(content))
    with pytest.raises(StoreError, match="missing"):
        RowShare.load(tmp_path, "B", ids["B"])


def test_the_files_hold_no_id_and_no_digest(plan, tmp_path):
    ids = {
        "B": prepare_ids("B", ["marker-1", "marker-2", "marker-3", "marker-4"]),
        "C": prepare_ids("C", ["marker-1", "marker-5", "marker-2"]),
    }
    plan.save(tmp_path, ids)
    for path in tmp_path.iterdir():
        content = path.read_bytes()
        assert b"marker" not in content
        assert ids["B"].digests[0].tobytes() not in content
        assert ids["B"].digests[0].tobytes().hex().encode() not in content


def test_shares_of_two_plans_do_not_mix(plan):
    for other in (
        RowShare("C", "q", np.array([0, 2]), np.array([1])),
        RowShare("C", "p", np.array([0]), np.array([1, 2])),
    ):
        with pytest.raises(DataError, match="not of one row plan"):
            RowPlan({"B": plan["B"], "C": other})


@pytest.mark.parametrize("marks", [[1], [1, 0], [2, -1]])
def test_impossible_marks_are_refused(plan, marks):
    with pytest.raises(DataError, match="must be"):
        plan["B"].with_marks(np.array(marks))


def test_rest_leaves_out_overlap_and_dropped_rows():
    ids = prepare_ids("A", ["a", "", "b", "a", "c"], duplicates="first", empty="drop")
    assert find_rest(ids, np.array([2])).tolist() == [0, 4]
