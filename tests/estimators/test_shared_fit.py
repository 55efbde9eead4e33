"""Linear models on shares as users meet them: the default, its result, its bytes, its refusals."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

import vfsl
from vfsl.errors import ConfigError, DataError
from vfsl.estimators import LinearRegression
from vfsl.estimators.saved import load_model, save_model

ROWS = 300


def tables(parties=("B", "C"), rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    factors, made = rng.normal(size=(rows, 2)), {}
    for party, size in zip(parties, (4, 3, 2), strict=False):
        columns = factors @ rng.normal(size=(2, size)) + rng.normal(size=(rows, size))
        names = [f"{party.lower()}{i}" for i in range(size)]
        made[party] = pd.DataFrame(columns, columns=names).assign(id=np.arange(rows))
    signal = made["B"]["b0"] - made["C"]["c1"] + (made["D"]["d0"] if "D" in made else 0)
    made["C"]["y"] = 5 + 3 * signal + rng.normal(size=rows)
    return made


def align(parties=("B", "C"), scheme="auto", **options):
    fed = vfsl.simulate(tables(parties, **options), id="id", seed=0, scheme=scheme)
    fed.align(*parties, protocol="ecdh")
    return fed


def predict_pooled(parties, l2=1e-3):
    """In units of the label, by the rows' ids."""
    frames = tables(parties)
    x = np.hstack([frames[p].drop(columns=["id", "y"], errors="ignore") for p in parties])
    y = frames["C"]["y"].to_numpy()
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    return Ridge(alpha=l2 * len(y)).fit(x, (y - y.mean()) / y.std()).predict(x) * y.std() + y.mean()


def step_of(fed, name):
    (found,) = [step for step in fed.record.steps if step.name == name]
    return found


@pytest.mark.parametrize("parties", [("B", "C"), ("B", "C", "D")])
@pytest.mark.parametrize("weights", ["own", "shared"])
def test_predictions_are_those_of_the_pooled_tables(parties, weights):
    fed = align(parties)
    model = LinearRegression(l2=1e-3, weights=weights).fit(fed, ("C", "y"))
    order = fed.tables["C"].ids[fed.share("C").overlap].astype(int)
    pooled = predict_pooled(parties)[order]
    assert np.abs(model.predict(fed) - pooled).max() < 1e-3 * pooled.std()
    assert step_of(fed, "train linear").settings["scheme"] == "shares"
    known = ["weights" in model.shares_[party].state for party in parties]
    assert known == [weights == "own"] * len(parties)


def test_only_the_result_is_opened():
    fed = align()
    LinearRegression().fit(fed, ("C", "y")).predict(fed)
    trained, asked = step_of(fed, "train linear"), step_of(fed, "predict linear")
    assert private_messages(trained) == {("B", "labelled rows"), *SIZE}
    assert {flow.message for flow in trained.flows if flow.receiver == "K"} == {"sizes"}
    assert not trained.shown
    assert private_messages(asked) == {("C", "total scores")}
    assert {one.what: one.numbers for one in asked.shown} == {"total scores": ROWS}


# A power of two above the sum of squared weights, so that scores fit into their words.
SIZE = {("B", "size of weights"), ("C", "size of weights")}


def private_messages(step):
    facts = {(flow.receiver, flow.message) for flow in step.flows}
    return {(to, name) for to, name in facts if name not in ("seed", "sizes", "masked", "dealt")}


def test_own_weights_are_opened_if_asked_for_and_counted():
    fed = align()
    model = LinearRegression(weights="own").fit(fed, ("C", "y"))
    model.predict(fed)
    trained, asked = step_of(fed, "train linear"), step_of(fed, "predict linear")
    wanted = {("B", "labelled rows"), ("B", "own weights"), ("C", "own weights")}
    assert private_messages(trained) == wanted
    shown = {(one.receiver, one.what, one.about): one.numbers for one in trained.shown}
    assert shown == {
        ("B", "own weights", "columns"): 4,
        ("B", "own weights", "label"): 4,
        ("C", "own weights", "columns"): 4,
    }
    assert {party: one.shape for party, one in model.weights_.items()} == {"B": (4, 1), "C": (4, 1)}
    assert sum(flow.bytes for flow in asked.flows) < 10 * ROWS + 2000


def test_shared_weights_say_how_to_get_coefficients():
    model = LinearRegression().fit(align(), ("C", "y"))
    with pytest.raises(ConfigError, match="fit the model with weights='own'"):
        model.weights_  # noqa: B018


def test_a_seed_repeats_a_simulation_and_rounds_agree():
    first, again = (LinearRegression().fit(align(), ("C", "y")) for _ in range(2))
    assert first.shares_ == again.shares_
    fed = align()
    rounds = LinearRegression(protocol="rounds").fit(fed, ("C", "y"))
    assert step_of(fed, "train linear").settings["scheme"] == "bfv"
    fed = align()
    shared = first.predict(fed)
    assert np.abs(rounds.predict(fed) - shared).max() < 1e-3 * shared.std()


def test_plain_computes_the_same_integers():
    hidden = LinearRegression(weights="own").fit(align(), ("C", "y"))
    plain = LinearRegression(weights="own").fit(align(scheme="plain"), ("C", "y"))
    for party in ("B", "C"):
        assert plain.shares_[party].state["weights"] == hidden.shares_[party].state["weights"]


def test_shared_weights_work_without_masks_too():
    fed = align(scheme="plain")
    shared = LinearRegression().fit(fed, ("C", "y")).predict(fed)
    own = LinearRegression(weights="own").fit(fed, ("C", "y")).predict(fed)
    np.testing.assert_allclose(shared, own, rtol=0, atol=1e-4 * own.std())


def test_row_weights_are_hidden_and_count():
    """Rows that weigh twice are rows that are there twice; B learns a power of two above 2."""
    given = np.where(np.arange(ROWS) % 3, 0.5, 2.0)
    fed = align()
    order = fed.tables["C"].ids[fed.share("C").overlap].astype(int)
    model = LinearRegression(l2=1e-3).fit(fed, ("C", "y"), weights=given[order])
    frames = tables(("B", "C"))
    x = np.hstack([frames[p].drop(columns=["id", "y"], errors="ignore") for p in ("B", "C")])
    y, x = frames["C"]["y"].to_numpy(), (x - x.mean(axis=0)) / x.std(axis=0)
    pooled = Ridge(alpha=1e-3 * given.sum()).fit(x, y, sample_weight=given).predict(x)[order]
    assert np.abs(model.predict(fed) - pooled).max() < 1e-3 * pooled.std()
    assert private_messages(step_of(fed, "train linear")) == {("B", "labelled rows"), *SIZE}


@pytest.mark.parametrize("weights", ["own", "shared"])
def test_a_saved_model_predicts_the_same(weights, tmp_path):
    fed = align()
    model = LinearRegression(weights=weights).fit(fed, ("C", "y"))
    save_model(model, tmp_path)
    loaded = load_model(tmp_path)
    np.testing.assert_allclose(loaded.predict(fed), model.predict(fed), rtol=0, atol=1e-6)


def test_what_shares_cannot_do_is_said():
    with pytest.raises(ConfigError, match="protocol='shares' needs a computation on shares"):
        LinearRegression(protocol="shares").fit(align(scheme="bfv"), ("C", "y"))
    with pytest.raises(ConfigError, match="weights='shared' needs a computation on shares, but"):
        LinearRegression(weights="shared").fit(align(scheme="bfv"), ("C", "y"))
    for wrong in ({"protocol": "rounds"}, {"solver": "one-shot"}):
        with pytest.raises(ConfigError, match="weights='shared' needs a computation on shares;"):
            LinearRegression(weights="shared", **wrong).fit(align(), ("C", "y"))
    with pytest.raises(ConfigError, match="Scheme 'shares' cannot do this step"):
        LinearRegression(protocol="rounds").fit(align(scheme="shares"), ("C", "y"))
    with pytest.raises(DataError, match="its weights would reveal single rows"):
        LinearRegression(weights="own").fit(align(rows=30), ("C", "y"))
    shared = LinearRegression().fit(align(rows=30), ("C", "y"))
    assert shared.stop_reason_ == "solved"
