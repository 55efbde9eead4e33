"""Whole attempts of all parties over a relay in this process: results, privacy, resume."""

import json
import time

import pandas as pd
import pytest

from vfsl.deploy.attempt import common_start
from vfsl.deploy.job import load_shared_job
from vfsl.errors import ConfigError, PeerFailed, ProtocolError, Unauthentic
from vfsl.estimators import XGB
from vfsl.record import RunRecord


def test_results_are_those_of_the_same_run_in_memory(world, kit):
    _, errors = world.attempt()
    assert errors == {}
    predicted = kit.assert_same_as_in_memory(world.read(), world.results, world.folder / "plans")
    aligned = pd.read_csv(world.results("C") / "aligned.csv")
    assert list(predicted["id"]) == list(aligned["id"])
    assert len(aligned) == 110
    for party in "ABCK":
        status = world.kept(party).status()
        assert (status.state, status.finished_steps) == ("finished", 2)
        assert not world.kept(party).state.exists()


def test_trees_predict_their_training_rows_without_a_message(world, kit):
    """The label holder has these scores; the predictions are those of the same run in memory."""
    text = (
        kit.align
        + """
[[steps]]
do = "train"
model = "xgb"
label = ["C", "y"]
n_estimators = 3
max_depth = 2
"""
    )
    _, errors = world.attempt(job=text)
    assert errors == {}
    model = XGB(n_estimators=3, max_depth=2)
    plans = world.folder / "plans"
    fed, model = kit.fitted_in_memory(world.read(), world.results, plans, model)
    came = pd.read_csv(world.results("C") / "predictions-2.csv")["probability"]
    assert list(came) == model.predict_proba(fed)[:, 1].tolist()
    assert came.nunique() > 2
    messages = {
        flow.message for party in "BC" for flow in RunRecord.load(world.results(party)).ledger
    }
    assert "best" in messages
    assert "reached" not in messages
    # Nothing that a prediction on shares would need: none was made.
    assert not messages & {"paths", "total scores"}


def test_each_party_has_its_own_results_and_its_own_ledger(world):
    world.attempt()
    assert not (world.results("B") / "predictions-2.csv").exists()
    assert {path.name for path in (world.results("B") / "parties").iterdir()} == {"B"}
    assert {path.name for path in world.results("K").iterdir()} == {"record.json"}
    for party in "ABCK":
        record = RunRecord.load(world.results(party))
        assert {flow.sender for flow in record.ledger} == {party}
        assert set(record.parties) <= {party}
        played = {"A": [], "K": ["train logistic", "predict logistic"]}
        whole = ["align", "train logistic", "predict logistic"]
        assert [step.name for step in record.steps] == ["agreement", *played.get(party, whole)]
        words = " ".join(record.steps[0].notes)
        assert "Submitted by C; agreed to by A, B, C, K." in words
        assert "training scores" in words


def test_reliable_positives_are_those_of_the_same_run_in_memory(world, kit):
    _, errors = world.attempt(job=kit.job + kit.pu)
    assert errors == {}
    kit.assert_same_positives(world.read(), world.results, world.folder / "plans")
    assert [path.name for path in world.results("A").iterdir()] == ["record.json"]
    record = RunRecord.load(world.results("A"))
    assert {flow.receiver for flow in record.ledger if flow.step == "mark"} == {"C"}


def test_ids_of_strangers_are_delivered_only_with_the_consent_of_all(world, kit):
    job = kit.job + kit.pu + 'consent = ["B", "C"]\n'
    _, errors = world.attempt(job=job)
    assert "'B' has not allowed the disclosure 'strangers'" in world.kept("C").status().sentence
    assert "'C' has not allowed the disclosure 'strangers'" in world.kept("C").status().sentence
    assert set(errors) == set("ABCK")
    for party in "BC":
        text = kit.party_text(party).replace('"tree partitions"', '"strangers"')
        world.write_party(party, text)
    _, errors = world.attempt(number=2)
    assert errors == {}
    received = pd.read_csv(world.results("A") / "reliable-positives-3.csv")
    kept = pd.read_csv(world.results("C") / "reliable-positives-3.csv")
    assert list(received["id"]) == list(kept["id"])
    assert not set(received["id"]) & set(world.read()["A"]["id"])


def test_delivered_ids_are_no_formulas_at_their_receiver(world, kit):
    for party, table in world.tables.items():
        ids = '=HYPERLINK("' + table["id"] + '")'
        table.assign(id=ids).to_csv(world.site(party) / "table.csv", index=False)
    for party in "BC":
        text = kit.party_text(party).replace('"tree partitions"', '"strangers"')
        world.write_party(party, text)
    _, errors = world.attempt(job=kit.align + kit.pu + 'consent = ["B", "C"]\n')
    assert errors == {}
    kept = pd.read_csv(world.results("C") / "reliable-positives-2.csv")
    received = pd.read_csv(world.results("A") / "reliable-positives-2.csv")
    assert kept["id"].str.startswith("=HYPERLINK").all()  # its own ids
    assert len(kept)
    assert list(received["id"]) == list("'" + kept["id"])


def test_nothing_planted_reaches_the_relay(world):
    engine, errors = world.attempt()
    assert errors == {}
    carried = b"\n".join(envelope for _, _, envelope in engine.seen)
    assert len(engine.seen) > 50
    for marker in (b"MARKER", b"logistic", b"labelled rows", b"public key"):
        assert marker not in carried
    assert "MARKER" in (world.results("C") / "predictions-2.csv").read_text()


def test_a_job_that_asks_for_more_is_refused_before_any_data_is_sent(world):
    strict = world.site("B").joinpath("party.toml").read_text().replace('"training scores", ', "")
    world.site("B").joinpath("party.toml").write_text(strict)
    engine, errors = world.attempt()
    assert set(errors) == set("ABCK")
    sentence = world.kept("C").status().sentence
    assert "Step 2" in sentence
    assert "'B' has not allowed the disclosure 'training scores'" in sentence
    assert world.kept("C").status().state == "refused"
    assert "refused by B" in world.kept("K").status().sentence
    # Twelve versions, handshakes, the job, answers and the notes of the end: nothing of a step.
    assert not (world.site("B") / "alignment").exists()
    assert not (world.site("C") / "alignment").exists()
    assert len(engine.seen) < 62


def test_a_label_that_is_not_there_is_refused_at_once(world):
    world.tables["C"].drop(columns="y").to_csv(world.site("C") / "table.csv", index=False)
    _, errors = world.attempt()
    assert "'y'" in world.kept("C").status().sentence
    assert world.kept("C").status().state in ("refused", "failed")
    assert set(errors) == set("ABCK")


def test_a_key_that_was_not_pinned_is_refused_and_named(world):
    world.write_party("B", pins={"C": world.pins["A"]})
    _, errors = world.attempt()
    refused = [error for error in errors.values() if isinstance(error, Unauthentic)]
    assert refused
    assert {error.party for error in refused} <= {"B", "C"}
    assert all("handshake" in str(error) for error in refused)


def test_an_attempt_is_never_taken_twice(world):
    _, errors = world.attempt(number=2)
    assert errors == {}
    for number in (1, 2):
        _, errors = world.attempt(number=number)
        assert all(isinstance(error, ProtocolError) for error in errors.values())
        assert "was seen here" in str(errors["B"])


def test_a_leader_that_did_not_submit_the_run_stops_it(world):
    """A relay that makes up a run gets nothing but handshakes."""
    world.attempt()
    _, errors = world.attempt(
        run="made-up", leader="B", job=(world.folder / "job.toml").read_text()
    )
    assert "'C' takes no jobs of 'B'" in world.kept("C", "made-up").status().sentence
    assert set(errors) == set("ABCK")


def test_a_long_list_is_signed_without_breaking_the_deadline(world, kit, monkeypatch):
    """The server signs all of its own ids before its first answer; the job waits 2 s at most."""
    from vfsl.align import intersect
    from vfsl.align.blind_rsa import RsaKey
    from vfsl.channel import relayed

    monkeypatch.setattr(relayed, "_WORKING_EVERY", 0.1)
    monkeypatch.setattr(intersect, "_OWN_BATCHES", 1)
    monkeypatch.setattr(RsaKey, "batch", 10)
    original = RsaKey.values

    def slow(self, digests):
        time.sleep(0.3)
        return original(self, digests)

    monkeypatch.setattr(RsaKey, "values", slow)
    job = kit.align.replace('"ecdh"', '"blind-rsa"').replace("seconds = 100", "seconds = 2")
    _, errors = world.attempt(job=job)
    assert errors == {}
    step = RunRecord.load(world.results("B")).steps[-1]
    assert step.seconds > 3


class Dies:
    """Loses a party when it has sent so many envelopes, as a kill of its process would."""

    def __init__(self, engine, party, after):
        self.engine, self.party, self.after, self.count = engine, party, after, 0

    def __call__(self, me, peer, envelope):
        self.count += me == self.party
        if self.count >= self.after:
            self.engine.gone.add(self.party)
        return envelope


@pytest.fixture
def impatient(monkeypatch):
    from vfsl.channel import relayed

    monkeypatch.setattr(relayed, "_PROBE_EVERY", 0.05)
    monkeypatch.setattr(relayed, "_GONE_SECONDS", 0.2)


@pytest.mark.parametrize("victim", ["B", "C", "K"])
def test_a_run_goes_on_after_a_crash_and_ends_as_if_nothing_had_happened(
    world, kit, impatient, victim
):
    engine = world.engine()
    engine.meddle = Dies(engine, victim, {"B": 32, "C": 45, "K": 12}[victim])
    _, errors = world.attempt(engine=engine)
    others = [party for party in "ABCK" if party != victim]
    for party in others:
        assert world.kept(party).status().state == "failed"
        assert world.kept(party).status().party == victim
        assert not world.results(party).exists()
    assert isinstance(errors["A"], PeerFailed)
    plan = (world.kept("C").state / "standing-1" / "rows-C.npz").read_bytes()
    _, errors = world.attempt(number=2)
    assert errors == {}
    assert (world.results("C") / "plan" / "rows-C.npz").read_bytes() == plan
    kit.assert_same_as_in_memory(world.read(), world.results, world.folder / "plans")
    names = [step.name for step in RunRecord.load(world.results("C")).steps]
    assert names == ["agreement", "align", "train logistic", "predict logistic"]


def test_the_common_start_is_the_last_step_of_all_with_one_plan(world):
    job = load_shared_job(world.folder / "job.toml")
    answers = {party: {"finished": 2, "plan": "p" if party in "BC" else ""} for party in "ABCK"}
    assert common_start(job, answers) == 2
    answers["K"]["finished"] = 1
    assert common_start(job, answers) == 1
    answers["B"]["plan"] = "another"
    assert common_start(job, answers) == 0
    answers["B"]["plan"] = answers["C"]["plan"] = ""
    assert common_start(job, answers) == 0
    answers["A"]["finished"] = 0
    assert common_start(job, answers) == 0


def test_private_draws_come_from_a_seed_that_stays_at_its_party(world, kit):
    """Drawn when a run begins, kept over attempts, different at each party and in each run."""
    assert world.attempt(job=kit.align + kit.pu)[1] == {}
    assert world.attempt(run="run-2", job=kit.align + kit.pu)[1] == {}
    seeds = [
        json.loads(world.kept(party, run).private_seed.read_text())["words"]
        for party in "BCK"
        for run in ("run-1", "run-2")
    ]
    assert len({tuple(words) for words in seeds}) == 6
    for party in "BC":
        record = RunRecord.load(world.results(party))
        assert record.private_draws == "from the operating system, at each party"
    scores = [
        pd.read_csv(world.results("C", run) / "pu-scores-2.csv", index_col="id")["score"]
        for run in ("run-1", "run-2")
    ]
    assert scores[0].to_dict() != scores[1].to_dict()


def test_a_job_that_fixes_private_draws_is_refused(world, kit):
    path = world.folder / "fixed.toml"
    path.write_text(kit.job.replace("seed = 5", 'seed = 5\nprivate_draws = "seed"'))
    with pytest.raises(ConfigError, match="repeat what the others hide"):
        load_shared_job(path)
    path.write_text(kit.job.replace("seed = 5", 'seed = 5\nprivate_draws = "system"'))
    assert load_shared_job(path).run.seed == 5
