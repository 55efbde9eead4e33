"""Protocols by name, with their facts; one of another package is found by its entry point."""

import sys

import pytest

import vfsl
from vfsl.align import PROTOCOLS, Alignment, align, prepare_ids
from vfsl.errors import ConfigError

# No protection at all: both sides know the key, so a client could hash guesses by itself.
TOY = """
import hmac
from pathlib import Path

import numpy as np

from vfsl.align import BadElement, PsiProtocol
from vfsl.align.ids import map_rows
from vfsl.store import write_bytes


class ToyKey:
    name, batch, width = "toy", 8, 32

    def __init__(self, secret=b"a key that everybody knows"):
        self.public = secret

    @classmethod
    def generate(cls, security=128):
        return cls()

    @classmethod
    def load(cls, path):
        return cls(Path(path).read_bytes())

    def save(self, path):
        write_bytes(path, self.public)

    def check_security(self, security):
        pass

    def proof(self):
        return b""

    def answer(self, elements):
        return self.values(elements)

    def values(self, digests):
        return map_rows(lambda row: hmac.digest(self.public, row, "sha256"), digests, 32)


class ToyClient:
    batch, width = ToyKey.batch, ToyKey.width

    def __init__(self, public, proof, security, pool):
        if proof:
            raise BadElement("sent a proof that a toy has no use for")

    def blind(self, digests):
        return np.array(digests), None

    def values(self, digests, answers, secret):
        return answers


PROTOCOL = PsiProtocol("toy", "a keyed hash", ToyKey, ToyClient, security=(128,))
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A package with one file and one entry point, as pip would have installed it."""
    (tmp_path / "toy_psi.py").write_text(TOY)
    about = tmp_path / "toy_psi-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-psi\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[vfsl.psi]\ntoy = toy_psi:PROTOCOL\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "toy"
    sys.modules.pop("toy_psi", None)


def test_our_protocols_declare_their_facts():
    assert PROTOCOLS.names() == ["blind-rsa", "ecdh", "aided"]
    for name in PROTOCOLS.names():
        protocol = PROTOCOLS.find(name)
        assert protocol.name == name
        assert protocol.helped == (protocol.server is None)
        assert protocol.helped or protocol.server.name == name
        assert protocol.security[0] == 128
        assert set(protocol.ids_per_second) == set(protocol.security)


def test_an_unknown_protocol_or_level_is_one_sentence():
    with pytest.raises(ConfigError, match=r"no alignment protocol 'ecd'; did you mean 'ecdh'\?"):
        Alignment(protocol="ecd")
    with pytest.raises(ConfigError, match=r"of ecdh must be 128 or 112\. Got 100 instead"):
        Alignment(protocol="ecdh", security=100)


def test_a_protocol_of_another_package_aligns(toy, tmp_path):
    assert PROTOCOLS.names() == ["blind-rsa", "ecdh", "aided", "toy"]
    ids = {"A": prepare_ids("A", range(30)), "B": prepare_ids("B", range(20, 60))}
    how = {party: Alignment(protocol=toy, state=tmp_path / party) for party in ids}
    for _ in range(2):  # the second time from kept values
        plan = align(ids, how=how)
        assert sorted(plan["A"].overlap) == list(range(20, 30))
        assert (plan["A"].overlap == plan["B"].overlap + 20).all()
    with pytest.raises(ConfigError, match=r"of toy must be 128\. Got 112 instead"):
        Alignment(protocol=toy, security=112)


def test_a_federation_takes_it_by_name_and_the_report_says_so(toy, tmp_path):
    import pandas as pd

    tables = {
        party: pd.DataFrame({"id": [f"p{n}" for n in people], party.lower(): list(people)})
        for party, people in {"A": range(30), "B": range(20, 60)}.items()
    }
    fed = vfsl.simulate(tables, seed=1)
    fed.align(protocol=toy)
    assert len(fed.plan.overlap) == 10
    assert "found by a keyed hash" in fed.report(tmp_path / "page.html").read_text()
