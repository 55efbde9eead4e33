"""The low route by VF-GAIN: between the parties, judged out of fold, going on after a failure."""

import numpy as np
import pandas as pd
import pytest

from tests.completion.psg_cases import federation
from vfsl.channel.transcript import Transcript
from vfsl.completion.fedpsg import FedPSG
from vfsl.completion.network_route import COMPLETE, FIT
from vfsl.errors import ProtocolError
from vfsl.lead import Leader

pytest.importorskip("torch")
# Only income is predicted; all other columns are left to the network.
HOW = FedPSG(tau=0.5, low="vfgain", folds=2, shift="none")


@pytest.fixture(scope="module")
def case():
    fed, truth = federation(common=100, rest=40)
    return fed, truth, HOW.fit_complete(fed)


def test_low_columns_are_completed_between_the_parties(case):
    fed, _, done = case
    low = [name for name, column in done.columns.items() if column.route == "low"]
    assert {"visits", "noise"} <= set(low)
    assert {done.columns[name].model for name in low} == {"vfgain"}
    assert done.table[low].notna().all().all()
    step = next(step for step in fed.steps if step.name == "vf-gain")
    assert list(step.metrics) == low
    told = {(flow.sender, flow.receiver, flow.message) for flow in step.flows}
    assert {("A", "B", "embedding"), ("B", "A", "gradient"), ("B", "A", "order")} <= told
    assert not any("K" in (flow.sender, flow.receiver) for flow in step.flows)


def test_it_is_judged_on_rows_that_it_did_not_see(case):
    _, truth, done = case
    quality = done.quality
    assert quality.loc["visits", "skill"] > 0.2
    assert quality.loc["noise", "skill"] < 0.2
    hidden = truth.loc[done.table.index, "visits"]
    error = ((done.table["visits"] - hidden) ** 2).mean() ** 0.5
    assert quality.loc["visits", "rmse"] == pytest.approx(error, rel=0.5)


def test_an_interrupted_network_goes_on(case, tmp_path, monkeypatch):
    _, _, whole = case
    state = {party: tmp_path / party for party in "AB"}
    real, gradients = Transcript.note_sent, []

    def sent(transcript, sender, receiver, name, *what, **more):
        gradients.append(name.endswith("gradient"))
        if sum(gradients) == 60:
            raise KeyboardInterrupt
        return real(transcript, sender, receiver, name, *what, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Transcript, "note_sent", sent)
        with pytest.raises(KeyboardInterrupt):
            HOW.fit_complete(federation(common=100, rest=40)[0], state=state)
    assert any("network" in str(path) for path in tmp_path.rglob("*.json"))
    done = HOW.fit_complete(federation(common=100, rest=40)[0], state=state)
    pd.testing.assert_frame_equal(done.table, whole.table)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("do", "change", "words"),
    [
        (FIT, {"do": COMPLETE}, "asks a network that was not trained"),
        (FIT, {"do": "everything"}, "ordered unknown work"),
        (COMPLETE, {"rows": np.array([999])}, "ordered unknown work"),
    ],
)
def test_orders_that_make_no_sense_are_refused(monkeypatch, do, change, words):
    original = Leader.order

    def order(self, done, **facts):
        if done != do:
            return original(self, done, **facts)
        return original(self, **{"do": done, **facts, **change})

    monkeypatch.setattr(Leader, "order", order)
    with pytest.raises(ProtocolError, match=words):
        HOW.fit_complete(federation(common=60, rest=20)[0])
