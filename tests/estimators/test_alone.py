"""Rows that nobody but the label holder has: its own model, and predictions of all rows."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression as Sklearn
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score

import vfsl
from vfsl.data import PartyTable
from vfsl.errors import ConfigError, DataError
from vfsl.estimators import LinearRegression, LogisticRegression, load_model, save_model
from vfsl.estimators.alone import fit_alone, score_alone, to_separate_logits


def frames(rows=400, common=250, label="yes"):
    """A knows half of what matters, B the other half of its first rows."""
    rng = np.random.default_rng(3)
    own, other = rng.normal(size=(rows, 2)), rng.normal(size=(rows, 2))
    score = own[:, 0] + other[:, 0] + 0.3 * rng.normal(size=rows)
    values = {
        "yes": np.where(score > 0, "yes", "no"),
        "kind": np.array(["a", "b", "c"])[np.digitize(score, [-0.7, 0.7])],
        "debt": 5 * score + 100,
    }
    ids = [f"p{i}" for i in range(rows)]
    a = pd.DataFrame({"id": ids, "age": own[:, 0], "rent": own[:, 1], label: values[label]})
    b = pd.DataFrame({"id": ids, "visits": other[:, 0], "clicks": other[:, 1]})[:common]
    return {"A": a, "B": b}


def aligned(made, label=None):
    labels = {"A": label} if label else None
    fed = vfsl.simulate(made, labels=labels, scheme="plain")
    fed.align(protocol="ecdh")
    return fed


@pytest.fixture(scope="module", params=["yes", "kind", "debt"])
def fitted(request):
    label = request.param
    fed = aligned(frames(label=label), label)
    kind = LinearRegression if label == "debt" else LogisticRegression
    return kind().fit(fed, label=("A", label)), fed, label


def table_of(columns, target):
    frame = pd.DataFrame(columns, columns=["x", "z"]).assign(
        id=[f"i{k}" for k in range(len(target))]
    )
    return PartyTable.from_frame(frame, party="A", id="id")


def test_the_own_model_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(300, 2)) * [2.0, 0.1] + [5.0, 0.0]
    table = table_of(columns, columns)
    rows = np.arange(200)
    standard = (columns - columns[:200].mean(axis=0)) / columns[:200].std(axis=0)
    codes = (columns[:, 0] + rng.normal(size=300) > 5).astype(float)
    made = fit_alone(table, rows, codes[:200], classes=2, l2=1e-2)
    other = Sklearn(C=1 / (1e-2 * 200), tol=1e-8).fit(standard[:200], codes[:200])
    found = score_alone(made, table, np.arange(200, 300))[:, 0]
    np.testing.assert_allclose(found, other.decision_function(standard[200:]), atol=2e-3)
    number = columns @ [1.0, 30.0]
    made = fit_alone(table, rows, number[:200], classes=None, l2=1e-2)
    other = Ridge(alpha=1e-2 * 200).fit(standard[:200], number[:200])
    found = score_alone(made, table, np.arange(200, 300))[:, 0]
    np.testing.assert_allclose(found, other.predict(standard[200:]), rtol=1e-6)
    assert made["quality"]["R²"] > 0.99


def test_its_figure_is_that_of_rows_it_did_not_see():
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(300, 2))
    table = table_of(noise, noise)
    made = fit_alone(table, np.arange(300), (rng.random(300) < 0.5).astype(float), classes=2)
    assert 0.4 < made["quality"]["AUC"] < 0.6  # nothing to learn, and it says so
    few = fit_alone(table, np.arange(12), np.arange(12) % 2.0, classes=2)
    assert few["quality"] == {}


def test_a_chance_counts_for_both_classes():
    table = table_of(np.zeros((50, 2)), np.zeros(50))
    made = fit_alone(table, np.arange(50), np.full(50, 0.3), classes=2)
    score = score_alone(made, table, np.arange(1))[0, 0]
    assert 1 / (1 + np.exp(-score)) == pytest.approx(0.3, abs=1e-3)


def test_separate_logits_have_the_same_chances():
    scores = np.array([[1.0, 0.0, -2.0], [50.0, 0.0, -50.0]])
    chances = 1 / (1 + np.exp(-to_separate_logits(scores)))
    wanted = np.exp(scores - scores.max(axis=1, keepdims=True))
    np.testing.assert_allclose(chances, wanted / wanted.sum(axis=1, keepdims=True), atol=1e-8)


def test_all_rows_say_how_they_were_scored(fitted):
    model, fed, label = fitted
    frame = model.predict_frame(fed, rows="all")
    assert list(frame["id"]) == list(fed.tables["A"].ids)
    assert list(frame["scored_by"]) == ["joint"] * 250 + ["own columns"] * 150
    joint = model.predict_frame(fed).set_index("id")["predicted"]
    every = frame.set_index("id")["predicted"]
    if label == "debt":
        np.testing.assert_allclose(every[joint.index], joint)
        assert np.corrcoef(every[250:], frames(label=label)["A"]["debt"][250:])[0, 1] > 0.5
    else:
        assert (every[joint.index] == joint).all()
        assert (every.to_numpy() == frames(label=label)["A"][label].to_numpy())[250:].mean() > 0.5


def test_training_says_what_own_columns_are_worth(fitted):
    _, fed, label = fitted
    name = {"yes": "AUC", "kind": "accuracy", "debt": "R²"}[label]
    train = next(step for step in fed.steps if step.name.startswith("train"))
    value = train.metrics[f"own columns, cross-validated {name}"]
    assert {"AUC": 0.7, "accuracy": 0.45, "R²": 0.3}[name] < value < 0.95
    assert not any("own columns" in flow.message for flow in train.flows)  # no message for it


def test_new_tables_need_no_label_and_nobody_else_where_all_rows_are_own(fitted, tmp_path):
    model, fed, label = fitted
    save_model(model, tmp_path)
    loaded = load_model(tmp_path)
    made = frames(label=label)
    new = aligned({"A": made["A"].drop(columns=label), "B": made["B"]})
    assert len(loaded.predict(new)) == 250
    table = PartyTable.from_frame(made["A"].drop(columns=label), party="A", id="id")
    alone = loaded.predict_frame(vfsl.Federation.of_one(table))
    assert set(alone["scored_by"]) == {"own columns"}
    both = model.predict_frame(fed, rows="all")
    value = "predicted" if label == "debt" else "probability"
    np.testing.assert_allclose(alone[value][250:], both[value][250:])
    with pytest.raises(DataError, match="has no column"):
        type(model)().fit(new, label=("A", label))


def test_own_columns_help_less_than_all():
    fed = aligned(frames(), "yes")
    model = LogisticRegression().fit(fed, label=("A", "yes"))
    truth = (frames()["A"]["yes"] == "yes").to_numpy()[fed.plan["A"].overlap]
    joint = roc_auc_score(truth, model.predict_proba(fed)[:, 1])
    alone = roc_auc_score(truth, model.predict_proba(fed, offline=["B"])[:, 1])
    assert joint > alone + 0.1


def test_who_cannot_predict_alone_says_why():
    fed = aligned(frames(), "yes")
    weights = np.ones((250, 2))
    several = LogisticRegression().fit(fed, label=("A", "yes"), weights=weights)
    with pytest.raises(ConfigError, match="no model of the columns of 'A' alone"):
        several.predict(fed, rows="all")


def test_linear_models_need_all_partners_or_none():
    model = LinearRegression()
    model.shares_, model.label_ = {"C": None, "B": None, "D": None}, ("C", "y")
    with pytest.raises(ConfigError, match="with all parties of its training, or by the columns"):
        model.find_offline(["C", "B", "D"], ["B"])
    with pytest.raises(ConfigError, match="trained with party 'D', whose rows are not there"):
        model.find_offline(["C", "B"], [])


def test_a_training_that_converged_says_so():
    fed = aligned(frames(), "yes")
    model = LogisticRegression().fit(fed, label=("A", "yes"))
    assert model.stop_reason_ == "tolerance"
    assert model.n_rounds_ < model.max_rounds
    assert (
        LogisticRegression(max_rounds=1).fit(fed, label=("A", "yes")).stop_reason_ == "max_rounds"
    )
