"""Files appear whole or not at all."""

import numpy as np
import pytest

from vfsl import store
from vfsl.errors import StoreError


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "deep" / "file.bin"
    store.write_bytes(path, b"old")

    def fail_half_way():
        with store.replacing(path) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert path.read_bytes() == b"old"
    assert [p.name for p in path.parent.iterdir()] == ["file.bin"]


def test_json_and_arrays_round_trip(tmp_path):
    value = {"ü": [1, 2.5, None]}
    store.write_json(tmp_path / "a.json", value)
    assert store.read_json(tmp_path / "a.json") == value
    store.write_arrays(tmp_path / "a.npz", {"x": np.arange(3), "names": np.array(["ä"])})
    arrays = store.read_arrays(tmp_path / "a.npz")
    assert arrays["x"].tolist() == [0, 1, 2]
    assert arrays["names"].tolist() == ["ä"]


def test_damage_and_objects_are_refused(tmp_path):
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "bad.npz").write_bytes(b"PK nonsense")
    with pytest.raises(StoreError, match="not JSON"):
        store.read_json(tmp_path / "bad.json")
    with pytest.raises(StoreError, match="damaged"):
        store.read_arrays(tmp_path / "bad.npz")
    for read in (store.read_json, store.read_arrays):
        with pytest.raises(StoreError, match="does not exist"):
            read(tmp_path / "none")
    with pytest.raises(StoreError, match="Python objects"):
        store.write_arrays(tmp_path / "o.npz", {"o": np.array([object()])})
    assert not (tmp_path / "o.npz").exists()


def test_checkpoints_belong_to_one_job(tmp_path):
    first = store.Checkpoints(tmp_path / "kept", "job one")
    assert first.load("step-1") is None
    first.save("step-1", {"rows": 3})
    assert store.Checkpoints(tmp_path / "kept", "job one").load("step-1") == {"rows": 3}
    with pytest.raises(StoreError, match="another job"):
        store.Checkpoints(tmp_path / "kept", "job two").load("step-1")
    (tmp_path / "kept" / "step-1.json").write_text("[1]")
    with pytest.raises(StoreError, match="damaged"):
        first.load("step-1")
    first.clear()
    assert not (tmp_path / "kept").exists()
    first.clear()


def test_without_a_folder_nothing_is_kept(tmp_path):
    nothing = store.Checkpoints(None, "job")
    nothing.save("a", 1, {"x": np.arange(2)})
    assert nothing.load("a") is None
    assert nothing.numbers("round") == []
    assert nothing.within("part").load("a") is None
    nothing.forget("a")
    nothing.clear()
    with pytest.raises(StoreError, match="Nothing is kept"):
        nothing.load_arrays("a")


def test_arrays_are_kept_beside_a_value_and_numbered(tmp_path):
    kept = store.Checkpoints(tmp_path, {"bags": 3}, np.arange(4), b"x")
    for number in (2, 10, 1):
        kept.save(f"round-{number}", {"n": number}, {"x": np.arange(number)})
    assert kept.numbers("round") == [1, 2, 10]
    assert kept.load_arrays("round-2")["x"].tolist() == [0, 1]
    kept.forget("round-2")
    assert kept.numbers("round") == [1, 10]
    assert not (tmp_path / "round-2.npz").exists()


@pytest.mark.parametrize(
    "other", [({"bags": 4}, np.arange(4)), ({"bags": 3}, np.arange(4.0)), ({"bags": 3},)]
)
def test_other_facts_are_another_job(tmp_path, other):
    store.Checkpoints(tmp_path, {"bags": 3}, np.arange(4)).save("a", 1)
    with pytest.raises(StoreError, match="another job"):
        store.Checkpoints(tmp_path, *other).load("a")
    part = store.Checkpoints(tmp_path, {"bags": 3}, np.arange(4)).within("a part", "more")
    part.save("b", 2)
    assert (tmp_path / "a-part" / "b.json").exists()
