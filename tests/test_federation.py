"""The federation: the whole thin story, what it records, and what it refuses."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression as PooledLeastSquares

import vfsl
from vfsl import federation
from vfsl.errors import ConfigError, DataError, InputError
from vfsl.federation import Federation
from vfsl.record import RunRecord


def two_tables(rows=160, common=110, seed=0):
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(rows, 4)) + rng.normal(size=(rows, 1))
    ids = np.array([f"c{i:04}" for i in range(rows)])
    target = numbers @ [1.0, -2.0, 0.5, 1.5] + rng.normal(size=rows)
    a = pd.DataFrame({"id": ids, "age": numbers[:, 0], "income": numbers[:, 1], "y": target})
    b = pd.DataFrame({"id": ids, "visits": numbers[:, 2], "basket": numbers[:, 3]})
    extra = (rows - common) // 2
    a, b = a.iloc[: rows - extra], b.iloc[extra:]
    return a.sample(frac=1, random_state=1), b.sample(frac=1, random_state=2)


def simulated(**settings):
    a, b = two_tables()
    settings = {"scheme": "plain", "security": 112, "labels": {"A": "y"}} | settings
    return vfsl.simulate({"A": a, "B": b}, id="id", **settings), a, b


def story(**settings):
    fed, a, b = simulated(**settings)
    fed.align(protocol="ecdh")
    model = vfsl.estimators.LinearRegression().fit(fed, label=("A", "y"))
    return fed, a, b, model, model.predict(fed)


def test_the_thin_story_equals_pooled_least_squares():
    fed, a, b, _, predicted = story()
    joined = a.merge(b, on="id").set_index("id")
    columns = ["age", "income", "visits", "basket"]
    pooled = PooledLeastSquares().fit(joined[columns], joined["y"])
    ids = fed.tables["A"].ids[fed.plan["A"].overlap]
    assert len(fed.plan.overlap) == len(joined) == 110
    expected = pooled.predict(joined.loc[ids, columns])
    assert np.abs(predicted - expected).max() < 1e-3 * expected.std()


@pytest.mark.parametrize("protocol", ["blind-rsa", "ecdh"])
def test_alignment_pairs_the_same_people(protocol):
    fed, a, b = simulated()
    plan = fed.align("A", "B", protocol=protocol)
    names = [fed.tables[party].ids[plan[party].overlap] for party in ("A", "B")]
    assert (names[0] == names[1]).all()
    assert set(names[0]) == set(a["id"]) & set(b["id"])
    assert len(plan["A"].rest) == len(a) - len(names[0])


def test_a_seed_repeats_the_run_and_another_does_not():
    first, second, other = story(), story(), story(seed=1)
    assert (first[4] == second[4]).all()
    assert (first[0].plan["A"].overlap == second[0].plan["A"].overlap).all()
    assert not (first[0].plan["A"].overlap == other[0].plan["A"].overlap).all()


def test_threads_and_processes_give_the_same_result():
    assert (story()[4] == story(on="processes")[4]).all()


def test_marks_of_known_positives():
    a, b = two_tables()
    c = b.rename(columns={"visits": "v", "basket": "w"})
    positives = pd.DataFrame({"id": [*a["id"].iloc[:20], "stranger-1", "stranger-2"]})
    fed = vfsl.simulate({"A": positives, "B": a, "C": c}, scheme="plain", security=112)
    fed.align("B", "C", protocol="ecdh")
    plan = fed.mark(positives="A", label_holder="C", protocol="ecdh")
    ids = fed.tables["C"].ids[plan["C"].overlap]
    expected = np.where(np.isin(ids, positives["id"]), 1, -1)
    assert (plan["C"].marks == expected).all()
    assert plan["B"].marks is None
    step = fed.record.steps[-1]
    assert step.metrics["marked"] == int((expected == 1).sum())
    assert {flow.receiver for flow in step.flows if flow.sender == "C"} == {"A"}


def test_ledger_and_record_say_what_left_whom(tmp_path):
    fed, *_ = story()
    lines = fed.ledger
    assert list(lines["step"].unique()) == ["align", "train linear", "predict linear"]
    sent = lines[(lines["message"] == "masked") & (lines["step"] == "train linear")]
    sent = sent[sent["sender"] == "B"].iloc[0]
    assert (sent["receiver"], sent["kind"]) == ("A", "masked")
    assert sent["bytes"] > 0
    assert "nothing" in sent["fact"]
    fed.record.save(tmp_path)
    loaded = RunRecord.load(tmp_path)
    assert loaded == fed.record
    assert loaded.steps[1].stop_reason == "solved"
    assert loaded.steps[2].metrics["r2"] > 0.5


def test_the_record_holds_no_data(tmp_path):
    """Neither ids nor names of columns nor values; fingerprints differ from run to run."""
    fed, a, _, _, _ = story()
    text = json.dumps(json.loads(fed.record.save(tmp_path).read_text()))
    for secret in (a["id"].iloc[0], "income", "basket", str(a["age"].iloc[0])[:8]):
        assert secret not in text
    again = simulated()[0]
    assert fed.record.parties["A"].fingerprint != again.record.parties["A"].fingerprint


def test_events_tell_the_progress():
    events = []
    fed, *_ = simulated(on_event=events.append)
    fed.align(protocol="ecdh")
    assert (events[0].step, events[0].stage) == ("align", "start")
    assert any(event.total for event in events)
    assert events[-1].stage == "end"


def test_an_unaligned_federation_cannot_train():
    with pytest.raises(ConfigError, match="not aligned yet"):
        vfsl.estimators.LinearRegression().fit(simulated()[0], label=("A", "y"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scheme": "rot13"}, "scheme must be one of"),
        ({"on": "moon"}, "no channel 'moon'. Known are memory, processes"),
        ({"key_holder": "A"}, "A is reserved for the key holder"),
        ({"labels": {"Z": "y"}}, "party 'Z', which has no table"),
        ({"labels": {"A": "target"}}, "target"),
        ({"kinds": {"B": {"visit": "numeric"}}}, "visit"),
    ],
)
def test_wrong_settings_are_one_sentence(change, words):
    with pytest.raises(InputError, match=words) as caught:
        simulated(**change)
    assert "\n" not in str(caught.value)


def test_wrong_parties_are_named():
    fed, a, _ = simulated()
    with pytest.raises(ConfigError, match="'Z'"):
        fed.align("A", "Z")
    with pytest.raises(ConfigError, match="two or more different"):
        fed.align("A", "A")
    with pytest.raises(ConfigError, match="hub must be one of"):
        fed.align("A", "B", hub="K")
    with pytest.raises(ConfigError, match="Two parties are needed"):
        vfsl.simulate({"A": a})
    fed.align(protocol="ecdh")
    with pytest.raises(ConfigError, match="label holder must be aligned"):
        fed.mark(positives="A", label_holder="B")
    with pytest.raises(ConfigError, match="'Q'"):
        fed.roles("Q")


def test_no_common_row_is_one_sentence():
    a, b = two_tables()
    b["id"] = "x" + b["id"]
    fed = vfsl.simulate({"A": a, "B": b}, security=112)
    with pytest.raises(DataError, match="0 rows"):
        fed.align(protocol="ecdh")
    assert fed.plan is None


def test_a_text_target_is_refused():
    a, b = two_tables()
    a["y"] = "high"
    fed = vfsl.simulate({"A": a, "B": b}, labels={"A": "y"}, scheme="plain", security=112)
    fed.align(protocol="ecdh")
    with pytest.raises(DataError, match=r"label of party 'A'.*expected numbers"):
        vfsl.estimators.LinearRegression().fit(fed, label=("A", "y"))


def test_other_formats_can_be_registered(tmp_path, monkeypatch):
    monkeypatch.setattr(federation, "_renderers", dict(federation._renderers))
    federation.register_renderer(".txt", lambda record, path: path.write_text(record.run))
    fed, *_ = simulated()
    assert fed.report(tmp_path / "page.txt").read_text() == fed.record.run


def test_reports_need_a_known_format(tmp_path):
    fed, *_ = simulated()
    with pytest.raises(ConfigError, match=r"'\.docx'"):
        fed.report(tmp_path / "page.docx")
    assert isinstance(fed, Federation)
    assert list(tmp_path.iterdir()) == []
