"""Kept values: found again, bound to a key, private, never half written, and no id in the file."""

import os
import stat

import numpy as np
import pytest

from vfsl.align import SignatureCache, prepare_ids
from vfsl.align.byterows import rows_of
from vfsl.align.state import PartyState, keyed_hashes
from vfsl.errors import StoreError


def some(count: int):
    return rows_of(os.urandom(32 * count), 32)


def test_values_are_found_again(tmp_path):
    path, digests, values = tmp_path / "kept.npz", some(10), some(10)
    cache = SignatureCache(path, "key 1")
    cache.add(digests[:6], values[:6])
    cache.add(digests[6:9], values[6:9])
    cache.save()
    again = SignatureCache(path, "key 1")
    known, found = again.lookup(digests[::-1])
    assert len(again) == 9
    assert known.tolist() == [False] + [True] * 9
    assert np.array_equal(found, values[:9][::-1])
    again.add(digests[9:], values[9:])
    again.save()
    assert SignatureCache(path, "key 1").lookup(digests)[0].all()


def test_values_of_another_key_are_not_used(tmp_path):
    path, digests = tmp_path / "kept.npz", some(3)
    cache = SignatureCache(path, "key 1")
    cache.add(digests, some(3))
    cache.save()
    other = SignatureCache(path, "key 2")
    assert not other.lookup(digests)[0].any()


def test_the_file_is_private_and_names_nobody(tmp_path):
    path, ids, values = tmp_path / "kept.npz", prepare_ids("A", ["marker-4711"]), some(1)
    cache = SignatureCache(path, "key 1")
    cache.add(ids.digests, values)
    cache.save()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = path.read_bytes()
    assert b"marker-4711" not in content
    assert ids.digests.tobytes() not in content
    assert values.tobytes() in content


def test_without_a_file_nothing_is_kept():
    cache = SignatureCache(None, "key")
    cache.add(some(2), some(2))
    cache.save()
    assert len(cache) == 0


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "kept.npz"
    path.write_bytes(b"nonsense")
    with pytest.raises(StoreError, match="damaged"):
        SignatureCache(path, "key")
    with path.open("wb") as file:
        np.savez(file, handles=np.zeros((2, 16), np.uint8))
    with pytest.raises(StoreError, match="damaged"):
        SignatureCache(path, "key")


def test_long_runs_are_saved_on_the_way(tmp_path, monkeypatch):
    path, clock = tmp_path / "kept.npz", [0.0]
    monkeypatch.setattr("vfsl.align.state.time.monotonic", lambda: clock[0])
    cache = SignatureCache(path, "key")
    cache.add(some(1), some(1))
    assert not path.exists()
    clock[0] = 21.0
    cache.add(some(1), some(1))
    assert len(SignatureCache(path, "key")) == 2


def test_keyed_hashes_depend_on_the_key():
    digests = some(4)
    assert np.array_equal(keyed_hashes(digests, b"a", 16), keyed_hashes(digests, b"a", 16))
    assert not np.array_equal(keyed_hashes(digests, b"a", 16), keyed_hashes(digests, b"b", 16))


def test_odd_party_names_stay_inside_the_folder(tmp_path):
    state = PartyState(tmp_path)
    assert state.list_record("../x/y").parent == tmp_path
    assert PartyState(None).question_record() is None
