"""Parties whose vfsl do not work together, jobs that one cannot read, and a full disk."""

import errno

import pytest

from vfsl.deploy import attempt as attempts
from vfsl.deploy import runs
from vfsl.deploy.versions import OtherVersions, Versions, _read, check_versions
from vfsl.errors import ProtocolError


def test_versions_that_do_not_work_together_are_named_with_who_must_upgrade():
    check_versions({"A": Versions("0.1.0", 1), "B": Versions("0.1.7", 1)})
    old, new = Versions("0.1.0", 1), Versions("0.2.0", 2)
    with pytest.raises(OtherVersions) as caught:
        check_versions({"A": old, "B": new, "C": old})
    assert str(caught.value) == (
        "'A' has vfsl 0.1.0 (messages of version 1); 'B' has vfsl 0.2.0 (messages of version 2); "
        "'C' has vfsl 0.1.0 (messages of version 1). Must upgrade to vfsl 0.2.0: 'A', 'C'."
    )


@pytest.mark.parametrize("frame", [b"", b"[]", b"{}", b'{"vfsl": "x", "wire": 1}', b" " * 2000])
def test_what_is_no_version_is_refused(frame):
    with pytest.raises(ProtocolError, match="'B' did not say which vfsl"):
        _read("B", frame)


def test_a_later_version_may_say_more():
    frame = b'{"vfsl": "3.1.4", "wire": 9, "more": []}'
    assert _read("B", frame) == Versions("3.1.4", 9)


def test_all_parties_of_a_run_name_the_versions(world, monkeypatch):
    told = attempts.exchange_versions

    def exchange(transport, timeout):
        found = told(transport, timeout)
        return found | {"B": Versions("0.0.9", 1)}

    monkeypatch.setattr(attempts, "exchange_versions", exchange)
    _, errors = world.attempt()
    assert set(errors) == set("ABCK")
    for party in "ABCK":
        assert "Must upgrade to vfsl" in world.kept(party).status().sentence
        assert not world.kept(party).state.exists()


def test_a_job_that_one_party_cannot_read_is_refused_by_name(world, monkeypatch):
    received = attempts._receive_job

    def receive(talk, facts, kept):
        job = received(talk, facts, kept)
        return "has vfsl 0.1.0, which cannot read the job of 'C': x" if talk.me == "B" else job

    monkeypatch.setattr(attempts, "_receive_job", receive)
    world.attempt()
    status = world.kept("C").status()
    assert status.state == "refused"
    assert "'B' has vfsl 0.1.0, which cannot read the job of 'C'" in status.sentence
    assert world.kept("B").status().state == "refused"


@pytest.mark.parametrize("when", ["at the start", "after a step"])
def test_a_full_disk_is_named_at_all_sites_and_the_run_goes_on_with_space(world, monkeypatch, when):
    """Nothing can be written in B's folder, but for what its spare room allows."""
    place, full = str(world.site("B")), [when == "at the start"]
    written = runs.write_json
    kept = runs.RunFolder.keep

    def write(path, value):
        if full[0] and place in str(path) and (path.parent / "spare").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        if full[0] and place in str(path) and when == "at the start":
            raise OSError(errno.ENOSPC, "No space left on device")
        written(path, value)

    def keep(self, job, number, records, standing):
        if full[0] and place in str(self.path):
            raise OSError(errno.ENOSPC, "No space left on device")
        full[0] = full[0] or number == 1
        kept(self, job, number, records, standing)

    monkeypatch.setattr(runs, "write_json", write)
    monkeypatch.setattr(runs.RunFolder, "keep", keep)
    world.attempt()
    for party in "ACK":
        status = world.kept(party).status()
        assert (status.state, status.party) in [("failed", "B"), ("failed", "the relay or B")]
        assert "no space left in its runs folder" in status.sentence
    if when == "after a step":
        assert "No space left in" in world.kept("B").status().sentence
    empty = [
        path for path in world.site("B").rglob("*") if path.is_file() and not path.stat().st_size
    ]
    assert empty == []
    monkeypatch.undo()
    _, errors = world.attempt(number=2)
    assert errors == {}
    assert not list(world.site("B").rglob("spare"))
