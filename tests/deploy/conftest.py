"""Three parties and a key holder in folders of their own, and a relay inside this process."""

import hashlib
import json
import shutil
import threading
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from vfsl.channel.relayed import RelayedTransport, Unreachable, session_name
from vfsl.completion.fedpsg import FedPSG
from vfsl.deploy.attempt import Announced, take_part
from vfsl.deploy.config import make_seal_key
from vfsl.deploy.job import job_hash, load_shared_job, sealed_text
from vfsl.deploy.runs import RunFolder
from vfsl.draws import PrivateSeed
from vfsl.estimators import LogisticRegression
from vfsl.federation import simulate
from vfsl.pu import VFPU
from vfsl.store import write_json

PARTIES = ("A", "B", "C", "K")
ALLOW = """
[allow]
submitters = ["C"]
steps = ["align", "train", "pu", "complete"]
disclosures = ["training scores", "gradients", "repeated predictions",
  "tree partitions", "associations", "row differences"]
outputs = ["predictions", "reliable positives", "completed columns"]
[limits]
asked = 1000
numbers = 50.0
minimum = 20
seconds = 100.0
"""
TABLES = {
    "A": '[table]\npath = "table.csv"\nid = "id"\ncolumns = ["since"]\n',
    "B": '[table]\npath = "table.csv"\nid = "id"\ncolumns = ["MARKER-b1", "MARKER-b2"]\n',
    "C": '[table]\npath = "table.csv"\nid = "id"\ncolumns = ["MARKER-c1", "MARKER-c2"]\n'
    'label = "y"\n',
}
ALIGN = """
parties = ["A", "B", "C"]
[run]
seed = 5
seconds = 100
[[steps]]
do = "align"
parties = ["B", "C"]
protocol = "ecdh"
"""
JOB = (
    ALIGN
    + """
[[steps]]
do = "train"
model = "logistic"
label = ["C", "y"]
refine = 1
protocol = "rounds"
"""
)
PU = """
[[steps]]
do = "pu"
positives = "A"
label_holder = "C"
protocol = "ecdh"
rounds = 3
"""
COMPLETE = """
[[steps]]
do = "complete"
given = "C"
missing = "B"
rounds = 3
"""


@pytest.fixture(autouse=True)
def repeat_dealt_words(monkeypatch):
    """The dealer's seeds follow from where they are used, so that runs can be compared."""
    monkeypatch.setattr(
        "vfsl.crypto.session.draw_seed",
        lambda purpose: hashlib.sha256(purpose.encode()).digest(),
    )


def make_tables(rows=130, seed=3):
    """B and C share most people; A knows some of the positives."""
    rng = np.random.default_rng(seed)
    ids = np.array([f"MARKER-ID-{i:05d}" for i in range(rows)])
    z = rng.normal(size=(rows, 4))
    y = np.where(z[:, 0] + z[:, 2] + 0.3 * rng.normal(size=rows) > 0.3, "MARKER-YES", "MARKER-NO")
    z[:, :2] += z[:, [3, 2]]  # B's columns follow from C's, half of them
    known = (y == "MARKER-YES") & (np.arange(rows) % 3 == 0)
    some = rng.permutation(rows)
    tables = {
        "A": pd.DataFrame({"id": ids[known], "since": np.arange(known.sum())}),
        "B": pd.DataFrame({"id": ids, "MARKER-b1": z[:, 0], "MARKER-b2": z[:, 1]}).iloc[some[:-10]],
        "C": pd.DataFrame({"id": ids, "MARKER-c1": z[:, 2], "MARKER-c2": z[:, 3], "y": y}).iloc[
            some[10:][::-1]
        ],
    }
    return {party: frame.assign(unused="MARKER-UNUSED") for party, frame in tables.items()}


def party_text(party, allow=ALLOW):
    role = "key holder" if party == "K" else "data"
    return f'party = "{party}"\nrole = "{role}"\n{TABLES.get(party, "")}{allow}'


class Engine:
    """Hands envelopes over in this process; ``meddle`` may change them, ``gone`` loses a party."""

    def __init__(self, parties, meddle=None):
        self.meddle = meddle
        self.gone = set()
        self.seen = []
        self._transports = {}
        self._opened = threading.Barrier(len(parties), timeout=30)

    def open(self, me, session, peers):
        made = RelayedTransport(
            me, peers, session, partial(self._carry, me), self._probe, bool_true
        )
        self._transports[me] = made
        self._opened.wait()
        return made

    def _carry(self, me, peer, envelope, seconds):
        self._probe(peer)
        self._probe(me)
        self.seen.append((me, peer, bytes(envelope)))
        if self.meddle is not None:
            envelope = self.meddle(me, peer, bytes(envelope))
        self._transports[peer].accept(me, envelope)

    def _probe(self, peer):
        if peer in self.gone:
            raise Unreachable(gone=True)


def bool_true():
    return True


class World:
    """The folders of all parties, and attempts of runs over the engine above."""

    def __init__(self, folder):
        self.folder = folder
        self.tables = make_tables()
        pins = {}
        for party in PARTIES:
            self.site(party).mkdir()
            pins[party] = make_seal_key(self.site(party))
            if party in self.tables:
                self.tables[party].to_csv(self.site(party) / "table.csv", index=False)
        self.pins = pins
        for party in PARTIES:
            self.write_party(party)
        (folder / "job.toml").write_text(JOB)
        self.texts = {}

    def site(self, party):
        return self.folder / party

    def write_party(self, party, text=None, pins=None):
        pins = {**self.pins, **(pins or {})}
        peers = [f'{peer} = "{pin}"' for peer, pin in pins.items() if peer != party]
        text = party_text(party) if text is None else text
        (self.site(party) / "party.toml").write_text("\n".join([text, "[peers]", *peers, ""]))

    def kept(self, party, run="run-1"):
        return RunFolder(self.site(party), run)

    def attempt(self, number=1, run="run-1", job=None, engine=None, leader="C", works=None):
        """One attempt with all parties; returns the engine, and errors by party."""
        if run not in self.texts:
            path = self.folder / "job.toml"
            if job is not None:
                path.write_text(job)
            self.texts[run] = sealed_text(load_shared_job(path))
        text = self.texts[run]
        content = {"text": text, "hash": job_hash(text), "attempt": number}
        write_json(self.kept(leader, run).path / "job.json", content)
        facts = Announced(run, number, leader, PARTIES, job_hash(text))
        engine = engine or Engine(PARTIES)
        errors = {}

        def work(party):
            try:
                opened = partial(engine.open, party, session_name(run, number))
                with (works or {}).get(party, _nothing)():
                    take_part(facts, party, self.site(party), opened)
            except BaseException as error:
                errors[party] = error

        threads = [threading.Thread(target=work, args=(party,), daemon=True) for party in PARTIES]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive(), "a party did not end"
        return engine, errors

    def read(self):
        return {party: pd.read_csv(self.site(party) / "table.csv") for party in self.tables}

    def engine(self):
        return Engine(PARTIES)

    def results(self, party, run="run-1"):
        return self.kept(party, run).results


def private_seeds(results):
    """The private seeds that the parties kept of a run, to repeat it in memory."""
    return {
        party: PrivateSeed.kept_in(results(party).parent / "private.json", party)
        for party in PARTIES
    }


def fitted_in_memory(tables, results, scratch, model, seed=5):
    """The same training in memory, on the row plan of a deployment; its federation and model."""
    frames = {party: tables[party].drop(columns="unused") for party in ("B", "C")}
    fed = simulate(frames, labels={"C": "y"}, seed=seed, private=private_seeds(results))
    for party in ("B", "C"):
        shutil.copytree(results(party) / "plan", scratch / party)
    fed.load_plan(scratch)
    return fed, model.fit(fed, label=("C", "y"))


def assert_same_as_in_memory(tables, results, scratch, **settings):
    """A deployment's shares and predictions are those of the same run in memory, bit for bit."""
    model = LogisticRegression(refine=1, protocol="rounds", **settings)
    fed, model = fitted_in_memory(tables, results, scratch, model)
    for party in ("B", "C"):
        path = results(party) / "parties" / party / "model-2-share.json"
        mine = json.loads(path.read_text())["state"]
        assert mine == json.loads(json.dumps(model.shares_[party].state))
    predicted = pd.read_csv(results("C") / "predictions-2.csv")
    chances = model.predict_proba(fed)[:, 1]
    assert list(predicted["probability"]) == [float(repr(one)) for one in chances.tolist()]
    return predicted


def assert_same_positives(tables, results, scratch, number=3, **settings):
    """Scores of VFPU in a deployment are those of the same run in memory, bit for bit."""
    frames = {party: table.drop(columns="unused") for party, table in tables.items()}
    fed = simulate(frames, labels={"C": "y"}, seed=5, private=private_seeds(results))
    for party in ("B", "C"):
        shutil.copytree(results(party) / "plan", scratch / party)
    fed.load_plan(scratch, "B", "C")
    fed.mark(positives="A", label_holder="C", protocol="ecdh")
    method = VFPU(rounds=3, **settings).fit(fed, positives="A", label_holder="C")
    scores = pd.read_csv(results("C") / f"pu-scores-{number}.csv", index_col="id")["score"]
    assert scores.to_dict() == method.scores_.to_dict()
    reliable = pd.read_csv(results("C") / f"reliable-positives-{number}.csv")
    assert list(reliable["id"]) == list(method.reliable_positives_.index)
    assert len(scores) > 20


def assert_same_completion(tables, results, scratch, number, settings):
    """Completed cells at B are those of the same run in memory, by nameless row number."""
    frames = {party: tables[party].drop(columns="unused") for party in ("B", "C")}
    fed = simulate(frames, labels={"C": "y"}, seed=5, private=private_seeds(results))
    for party in ("B", "C"):
        shutil.copytree(results(party) / "plan", scratch / party)
    fed.load_plan(scratch)
    done = FedPSG(**settings).fit_complete(fed, given="C", missing="B")
    made = pd.read_csv(results("B") / f"completed-{number}.csv")
    assert list(made.pop("row")) == list(range(len(done.table)))
    pd.testing.assert_frame_equal(made, done.table.reset_index(drop=True), check_exact=True)
    remaining = pd.read_csv(results("C") / f"remaining-{number}.csv")
    assert list(remaining["id"]) == list(done.table.index)
    assert not (results("C") / f"completed-{number}.csv").exists()
    cells = pd.read_csv(results("B") / f"provenance-{number}.csv")
    for column in made:
        lines = cells[cells["column"] == column]
        assert list(lines["row"]) == list(range(len(done.table)))
        for what in ("route", "model", "round", "confidence"):
            assert lines[what].tolist() == done.provenance[(column, what)].tolist()
    return done


class _nothing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture(scope="session")
def kit():
    """What the tests of real deployments share with those inside this process."""
    return SimpleNamespace(
        tables=make_tables,
        party_text=party_text,
        align=ALIGN,
        private_seeds=private_seeds,
        job=JOB,
        pu=PU,
        complete=COMPLETE,
        fitted_in_memory=fitted_in_memory,
        assert_same_completion=assert_same_completion,
        assert_same_positives=assert_same_positives,
        assert_same_as_in_memory=assert_same_as_in_memory,
    )
