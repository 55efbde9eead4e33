"""RISA as people call it: learning, absent parties, records, ablations, and refusals."""

import json
import subprocess
import sys
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import pytest

import vfsl
import vfsl.align
import vfsl.evidence
from vfsl.channel import run_together
from vfsl.errors import ConfigError, DataError
from vfsl.estimators import ModelShare
from vfsl.evidence import CNN, RISA
from vfsl.evidence.switches import PAPER, Switches, switches_of
from vfsl.progress import Event

torch = pytest.importorskip("torch")
SHORT = {"epochs": 6, "batch_size": 32, "self_steps": 40}


@pytest.fixture(scope="module")
def fitted(cases):
    fed = cases.federation(cases.frames(rows=300, overlap=100), overlap=100)
    return fed, RISA(**SHORT).fit(fed, cases.label)


def test_it_learns_and_answers_like_a_classifier(fitted):
    fed, risa = fitted
    chances = risa.predict_proba(fed)
    assert chances.shape == (100, 2)
    assert chances.sum(axis=1) == pytest.approx(1)
    assert risa.score(fed) > 0.85
    assert set(risa.predict(fed)) <= set(risa.classes_)
    doubt = risa.uncertainty(fed)
    assert ((doubt > 0) & (doubt < 1)).all()


def test_shares_and_records_are_plain_json(fitted):
    fed, risa = fitted
    json.dumps(asdict(fed.record))
    again = replace(risa)
    again.label_ = risa.label_
    again.shares_ = {
        party: ModelShare(**json.loads(json.dumps(share.to_dict())))
        for party, share in risa.shares_.items()
    }
    assert np.array_equal(again.predict_proba(fed), risa.predict_proba(fed))
    # Each party keeps its own weights only.
    assert "trust" not in risa.shares_["B"].state


def test_every_row_of_the_label_holder_in_the_order_of_its_table(cases):
    made = cases.frames(rows=120, overlap=40)
    fed = cases.federation(made, overlap=40)
    risa = RISA(**SHORT).fit(fed, cases.label)
    order = np.random.default_rng(0).permutation(len(made["A"]))
    mixed = made | {"A": made["A"].iloc[order].reset_index(drop=True)}
    other = cases.federation(mixed, overlap=40)
    places = np.argsort(order)
    share = other.plan["A"]
    shares = dict(other.plan.shares)
    shares["A"] = type(share)("A", "test", places[:40], np.sort(places[40:]))
    other.plan = vfsl.align.RowPlan(shares)
    assert risa.predict_proba(other) == pytest.approx(risa.predict_proba(fed), abs=1e-6)
    everyone = risa.predict_proba(other, rows="all")
    assert everyone[places] == pytest.approx(risa.predict_proba(fed, rows="all"), abs=1e-6)
    assert 0 <= risa.score(other, rows="all") <= 1


@pytest.mark.parametrize("absent", ["vacuous", "mean"])
def test_an_offline_party_is_absent_and_the_record_says_how(cases, absent):
    fed = cases.federation()
    switches = {"absent": absent, "discount": False}
    risa = RISA(switches=switches, **SHORT).fit(fed, cases.label)
    with_all = risa.predict_proba(fed)
    alone = risa.predict_proba(fed, offline=["B"])
    assert not np.allclose(with_all, alone)
    assert not fed.transcript.entries  # nobody was asked
    step = fed.record.steps[-1]
    assert step.settings["offline"] == ["B"]
    assert step.settings["absent"] == absent
    # Own rows are answered as if the others were offline.
    every = risa.predict_proba(fed, rows="all")
    offline = risa.predict_proba(fed, rows="all", offline=["B"])
    assert every[60:] == pytest.approx(offline[60:])
    if absent == "vacuous":
        assert risa.shares_["A"].state["fills"] == {"A": [0.0, 0.0], "B": [0.0, 0.0]}


def test_the_record_says_who_left_when_and_why(cases):
    fed = cases.federation()
    risa = RISA(variant="paper", tau_0=0.1, **SHORT).fit(fed, cases.label)
    step = next(step for step in fed.record.steps if step.name == "train risa")
    checks = [line for line in step.rounds if "limit" in line]
    assert [line["epoch"] for line in checks] == [2, 4]
    assert checks[0]["limit"] == pytest.approx(0.1 ** (2 / 6))
    gone = risa.removed_
    assert len(gone) == sum(len(line["left rows"]) for line in checks) > 0
    assert (gone["score"] > gone["limit"]).all()
    assert step.metrics["left"] == len(gone)
    assert step.rounds[2]["rows"] == step.rounds[1]["rows"] - len(checks[0]["left rows"])
    assert step.settings["switches"]["absent"] == "mean"
    assert "got one" in step.notes[0]


def test_plus_keeps_truly_labelled_rows(cases):
    fed = cases.federation()
    switches = {"discount": False}
    risa = RISA(protect="none", tau_0=0.001, tau_p=0.5, switches=switches, **SHORT).fit(
        fed, cases.label
    )
    assert set(risa.removed_["label"]) == {"pseudo"}
    assert set(risa.removed_["of"]) == {"B"}


def test_pseudo_labels_need_enough_rows_to_judge_them_by(cases):
    fed = cases.federation()  # 60 overlap rows: 9 held out
    risa = RISA(**SHORT).fit(fed, cases.label)
    assert risa.n_pseudo_ == 0
    assert "No pseudo labels: 9 held-out rows" in fed.record.steps[-1].notes[0]
    judged = RISA(protect="none", held_out=0.4, tau_p=0.5, **SHORT).fit(fed, cases.label)
    assert judged.n_pseudo_ > 0
    needed = RISA(protect="none", own_labels=False, tau_p=0.5, **SHORT).fit(fed, cases.label)
    assert needed.n_pseudo_ > 0


def test_unlabelled_own_rows_can_be_asked_for(cases):
    fed = cases.federation()
    switches = {"discount": False}
    known = RISA(protect="none", switches=switches, **SHORT).fit(fed, cases.label)
    hidden = RISA(protect="none", switches=switches, own_labels=False, tau_p=0.5, **SHORT).fit(
        fed, cases.label
    )
    assert hidden.n_pseudo_ == 200  # the own rows of both parties, 100 each
    assert known.n_pseudo_ <= 100


def test_ablations_switch_parts_off(cases):
    fed = cases.federation()
    rows = {}
    for name, switches in {
        "none": {"impute": False, "self_train": False, "evidential": False},
        "IMP": {"self_train": False, "evidential": False},
        "IMP + ST": {"evidential": False},
        "all": {},
    }.items():
        risa = RISA(protect="none", variant="paper", switches=switches, tau_p=0.5, **SHORT).fit(
            fed, cases.label
        )
        rows[name] = risa.shares_["A"].rounds[0]["rows"]
        assert risa.score(fed) > 0.7
        assert risa.predict_proba(fed).sum(axis=1) == pytest.approx(1)
    assert rows == {"none": 60, "IMP": 160, "IMP + ST": 260, "all": 260}


def test_sizes_of_the_default_network_are_parameters(cases):
    fed = cases.federation()
    sized = RISA(hidden=[8], embedding=2, **SHORT).fit(fed, cases.label)
    recipe = RISA(encoder=vfsl.evidence.MLP((8,), 2), **SHORT).fit(cases.federation(), cases.label)
    assert sized.shares_ == recipe.shares_


def test_three_parties_and_a_network_of_ones_own(cases):
    made = cases.frames(parties=("A", "B", "C"), classes=3)
    fed = cases.federation(made)
    module = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    before = module[0].weight.clone()
    encoder = {"A": "mlp", "B": module, "C": "mlp"}
    risa = RISA(encoder=encoder, **SHORT).fit(fed, cases.label)
    assert torch.equal(module[0].weight, before)
    assert risa.score(fed) > 0.7
    assert set(risa.trust_) == {"A", "B", "C"}
    assert max(risa.trust_.values()) == 1.0


def test_without_a_row_to_judge_by_others_have_a_quarter_of_the_trust(cases):
    fed = cases.federation(overlap=3)
    risa = RISA(protect="none", epochs=1, self_steps=2).fit(fed, cases.label)
    assert risa.trust_ == {"A": 1.0, "B": 0.25}


def test_progress_is_told(cases):
    heard = []
    fed = cases.federation()
    RISA(**SHORT).fit(fed, cases.label, on_event=heard.append)
    epochs = [event for event in heard if event.stage.startswith("epoch")]
    assert epochs == [Event("train risa", f"epoch {n}", n, 6) for n in range(1, 7)]
    assert (heard[0].stage, heard[-1].stage) == ("start", "end")
    assert {"loss", "rows", "uncertainty"} <= set(fed.record.steps[-1].rounds[0])


def test_parties_divide_the_threads_of_the_machine(cases):
    before, seen = torch.get_num_threads(), set()
    torch.set_num_threads(4)
    try:

        def listen(event):
            if event.stage.startswith("epoch"):
                seen.add(torch.get_num_threads())

        RISA(**SHORT).fit(cases.federation(), cases.label, on_event=listen)
        assert (seen, torch.get_num_threads()) == ({2}, 4)
    finally:
        torch.set_num_threads(before)


def test_each_party_plays_its_side_from_its_own_site_alone(cases):
    """What deployments do: no federation, no other party's table, any thread number."""
    made = cases.frames()
    fed = cases.federation(made)
    risa = RISA(**SHORT).fit(fed, cases.label)
    alone = cases.federation(made).sites
    model = RISA(**SHORT)
    players = {
        party: partial(_play, partial(model.learn, site, label=cases.label))
        for party, site in alone.items()
    }
    shares = run_together(players, sealed=True)
    assert shares["K"] is None  # the key holder has no part in it
    assert shares["B"] == risa.shares_["B"]
    assert [outcome.name for outcome in alone["B"].outcomes] == ["train risa"]
    assert not alone["B"].outcomes[0].metrics  # trust and pseudo labels are the label holder's
    assert set(alone["A"].outcomes[0].metrics) >= {"left", "pseudo labels", "trust in B"}
    players = {
        party: partial(_play, partial(model.answer, site, label=cases.label, share=shares[party]))
        for party, site in alone.items()
    }
    opinions = run_together(players, sealed=True)
    assert (opinions["B"], opinions["K"]) == (None, None)
    assert np.array_equal(opinions["A"], risa.decision_function(fed))


def _play(side, channel):
    return side(channel=channel)


def test_a_party_that_was_not_aligned_sends_nothing(cases):
    made = cases.frames(parties=("A", "B", "C"))
    fed = vfsl.simulate(made, labels={"A": "y"}, seed=0)
    fed.plan = cases.plan_for({party: made[party] for party in "AB"}, 60)
    shares = fed.play(partial(RISA(**SHORT).learn, label=cases.label))
    assert [party for party, share in shares.items() if share is None] == ["C", "K"]
    assert {entry.sender for entry in fed.transcript.entries} == {"A", "B", "K"}


def test_row_weights_are_refused(cases):
    with pytest.raises(ConfigError, match="RISA takes no row weights"):
        RISA(**SHORT).fit(cases.federation(), cases.label, np.ones(60))


def test_refusals_are_one_sentence(cases, fitted):
    fed, risa = fitted
    with pytest.raises(ConfigError, match="not fitted yet"):
        RISA().predict_proba(fed)
    with pytest.raises(ConfigError, match="rows parameter must be"):
        risa.predict_proba(fed, rows="some")
    with pytest.raises(ConfigError, match=r"offline parameter of RISA .* Got 'A' instead"):
        risa.predict_proba(fed, offline=["A"])
    wrong = {"epochs": 0, "tau_p": 2.0, "tau_0": 0.0, "evidence": "tanh", "hidden": (8, 0)}
    for name, value in {**wrong, "variant": "best", "embedding": 0, "switches": 3}.items():
        with pytest.raises(ConfigError, match=f"The {name} parameter of RISA"):
            RISA(**{name: value}).fit(fed, cases.label)
    with pytest.raises(ConfigError, match="The learning_rate parameter of RISA"):
        RISA(learning_rate=0).fit(fed, cases.label)
    with pytest.raises(ConfigError, match="The hidden parameter of RISA must name at least one"):
        RISA(hidden=()).fit(fed, cases.label)
    with pytest.raises(DataError, match="must be a numeric pixel for a CNN"):
        RISA(encoder=CNN((28, 14))).fit(fed, cases.label)


def test_a_wrong_output_width_is_one_sentence(cases):
    with pytest.raises(ConfigError, match="party 'B' must return 2 numbers a row"):
        RISA(encoder={"A": "mlp", "B": torch.nn.Linear(5, 4)}, protect="none").fit(
            cases.federation(), cases.label
        )


def test_unusable_data_are_one_sentence(cases):
    made = cases.frames(overlap=0)
    with pytest.raises(DataError, match="The parties 'A', 'B' have no row in common"):
        RISA(**SHORT).fit(cases.federation(made, overlap=0), cases.label)
    made = cases.frames()
    made["A"]["y"] = 1
    with pytest.raises(DataError, match="at least two classes"):
        RISA(**SHORT).fit(cases.federation(made), cases.label)
    made = cases.frames()
    made["B"] = made["B"][["id"]]
    with pytest.raises(DataError, match="Party 'B' has no columns to learn from"):
        RISA(**SHORT).fit(cases.federation(made), cases.label)


def test_a_new_class_at_scoring_is_one_sentence(cases, fitted):
    _, risa = fitted
    made = cases.frames(rows=300, overlap=100)
    made["A"].loc[0, "y"] = 7
    with pytest.raises(DataError, match="not among the 2 classes"):
        risa.score(cases.federation(made, overlap=100))


def test_without_torch_everything_imports_and_fitting_says_so():
    code = (
        "import sys, vfsl.evidence\n"
        "assert 'torch' not in sys.modules\n"
        "vfsl.evidence.risa.find_spec = lambda name: None\n"
        "try: vfsl.evidence.RISA().fit(None, ('A', 'y'))\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (
        "ConfigError RISA needs PyTorch, which is not installed; install it with "
        "pip install 'vfsl[deep]'."
    )


def test_switches_are_named_and_checked():
    assert switches_of("paper", None) == PAPER == Switches()
    assert switches_of("plus", {"self_train": False}).self_train is False
    with pytest.raises(ConfigError, match="switches parameter of RISA must name some of impute"):
        switches_of("plus", {"self_trian": False})
    with pytest.raises(ConfigError, match="variant parameter of RISA"):
        switches_of("best", None)
    with pytest.raises(ConfigError, match="absent parameter of RISA's switches must be one of"):
        switches_of("plus", {"absent": "zero"})
