"""Scorecards beside pooled ones, what parties learn of them, and as files."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import vfsl
from tests.job_cases import vfsl as command
from vfsl.data import PartyTable
from vfsl.deploy.config import DISCLOSURES
from vfsl.errors import ConfigError, DataError
from vfsl.estimators import Scorecard
from vfsl.estimators.scorecard.binning import BinTerms, bin_alone, evidence_of
from vfsl.estimators.scorecard.model import read_bins
from vfsl.job.steps import make_step

LABEL = ("bank", "late")
BANK, SHOP = ["income", "age"], ["debt", "visits", "noise", "town"]


def people(rows=1500, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"id": [f"r{row}" for row in range(rows)]})
    for name in ("income", "age", "debt", "noise"):
        frame[name] = rng.normal(size=rows)
    frame["visits"], frame["town"] = rng.integers(0, 4, rows), rng.choice(["n", "s", "w"], rows)
    cause = frame["income"] + 0.8 * frame["debt"] + 0.5 * frame["age"] ** 2 + (frame["town"] == "n")
    frame["late"] = np.where(rng.random(rows) < 1 / (1 + np.exp(1 - cause)), "yes", "no")
    frame.loc[::11, "debt"] = np.nan
    return frame


def join(frame, bank=BANK, shop=SHOP, **more):
    tables = {"bank": frame[["id", *bank, "late"]], "shop": frame[["id", *shop]]}
    fed = vfsl.simulate(tables, labels={"bank": "late"}, **more)
    fed.align(protocol="ecdh")
    return fed


@pytest.fixture(scope="module")
def fed():
    return join(people())


@pytest.fixture(scope="module")
def model(fed):
    return Scorecard().fit(fed, LABEL)


def test_it_is_the_pooled_scorecard(fed, model):
    train, new = people(), people(seed=1)
    target = (train["late"] == "yes").to_numpy().astype(np.int64)
    whole, asked = (
        PartyTable.from_frame(one.drop(columns="late"), party="all", id="id", label=False)
        for one in (train, new)
    )
    columns = [one for one in bin_alone(whole, target, BinTerms()) if one.information >= 0.02]
    pooled = LogisticRegression(C=np.inf).fit(evidence_of(whole, columns), target)
    later = join(new)
    order = later.plan["bank"].overlap
    expected = pooled.decision_function(evidence_of(asked, columns))[order]
    scores = model.decision_function(later)[:, 0]
    assert np.corrcoef(scores, expected)[0, 1] > 0.99
    truth = (new["late"] == "yes").to_numpy()[order]
    assert abs(roc_auc_score(truth, scores) - roc_auc_score(truth, expected)) < 0.01


def test_points_of_bins_add_up_to_those_of_rows(fed, model):
    cards, part = model.cards_, fed.parts(LABEL)
    total = np.full(len(part["bank"].rows), cards["bank"]["points"].iloc[0])
    for party, share in model.shares_.items():
        table = part[party].table.take(part[party].rows)
        points = model.find_points(share)
        for column, own in zip(read_bins(share), points, strict=True):
            total += own[column.find_bins(table.column(column.name))]
    scores = model.decision_function(fed)
    np.testing.assert_allclose(total, model.to_points(scores)[:, 0], atol=0.01)
    # 600 points stand for 50 negatives per positive, and 20 more for twice as many.
    odds = -np.log([50.0, 100.0])
    np.testing.assert_allclose(model.to_points(odds), [600, 620])


def test_each_party_sees_its_own_columns_and_bins_of_ten_rows_of_each_class(model):
    for party, names in (("bank", BANK), ("shop", SHOP)):
        card = model.cards_[party].iloc[1 if party == "bank" else 0 :]
        assert set(card["column"]) <= set(names)
        assert "visits" not in set(card["column"])  # says nothing
        assert (card["positives"] >= 8).all()  # ten and more, in fours
        assert (card["rows"] - card["positives"] >= 8).all()
        assert (card["positives"] % 4 == 0).all()
    values = model.information_["shop"]
    assert len(values) == len(SHOP)
    assert values == sorted(values, reverse=True)


def test_a_label_holder_without_columns_and_weights_that_stay_shared():
    fed = join(people(), bank=[], shop=[*SHOP, *BANK], scheme="plain")
    model = Scorecard(weights="shared").fit(fed, LABEL)
    assert "points" not in model.cards_["shop"]
    assert "weights" not in model.shares_["shop"].state
    own = Scorecard(label_noise=0.0).fit(fed, LABEL)
    pair = [one.decision_function(fed)[:, 0] for one in (model, own)]
    assert np.corrcoef(*pair)[0, 1] > 0.999


def test_selection_leaves_out_what_others_say_better():
    frame = people()
    frame["noise"] = frame["income"] + 0.05 * frame["noise"]
    fed = join(frame, scheme="plain")
    every = Scorecard(label_noise=0.0).fit(fed, LABEL)
    some = Scorecard(label_noise=0.0, most_correlated=0.8, stepwise=True).fit(fed, LABEL)
    names = [
        {*one.cards_["bank"]["column"], *one.cards_["shop"]["column"]} for one in (every, some)
    ]
    assert {"income", "noise"} <= names[0]
    assert len({"income", "noise"} & names[1]) == 1
    assert "debt" in names[1]


def test_consent_is_asked_for_what_is_learned():
    asked = [name for _, name in Scorecard().asks()]
    assert asked == ["own weights", "label rates"]
    more = [name for _, name in Scorecard(stepwise=True, weights="shared").asks()]
    assert more == ["label rates", "correlations"]
    assert {*asked, *more} <= set(DISCLOSURES)


def test_what_cannot_be_done_is_said():
    frame = people(rows=300)
    with pytest.raises(ConfigError, match="takes no row weights"):
        Scorecard().fit(join(frame, scheme="plain"), LABEL, weights=np.ones(300))
    three = frame.assign(late=np.resize(["a", "b", "c"], 300))
    with pytest.raises(DataError, match="two classes; that of party 'bank' has 3"):
        Scorecard().fit(join(three, scheme="plain"), LABEL)
    with pytest.raises(ConfigError, match="computes on shares"):
        Scorecard(protocol="rounds").check()
    with pytest.raises(ConfigError, match="scheme='bfv'"):
        Scorecard().fit(join(frame, scheme="bfv"), LABEL)
    content = {"do": "train", "model": "scorecard", "label": list(LABEL), "rows": "completed"}
    with pytest.raises(ConfigError, match="takes no row weights"):
        make_step(content, "Step 1")


def test_cards_and_points_as_files_and_on_the_page(tmp_path, monkeypatch):
    frame, files = people(), []
    for name, columns in (("bank", [*BANK, "late"]), ("shop", SHOP)):
        frame[["id", *columns]].to_csv(tmp_path / f"{name}.csv", index=False)
        files += ["--party", f"{name}={tmp_path / name}.csv"]
    given = [*files, "--id", "id", "--scheme", "plain", "--protocol", "ecdh"]
    more = ["--label", "bank=late", "--model", "scorecard", "--out", tmp_path / "run"]
    assert command(monkeypatch, "train", *given, *more) == 0
    own = tmp_path / "run/parties"
    for party, names in (("bank", BANK), ("shop", SHOP)):
        card = pd.read_csv(own / party / "scorecard-2.csv")
        assert {*card["column"]} <= {*names, "(base)"}
        assert list(card)[-1] == "points"
        index = pd.read_csv(own / party / "stability-2.csv")
        assert set(index["rows"]) == {300}
        assert index["stability index"].between(0, 0.25).all()
    points = pd.read_csv(own / "bank/predictions-2.csv")
    assert points["points"].corr(points["probability"], method="spearman") < -0.999
    page = (tmp_path / "run/report.html").read_text()
    assert "Scorecard of bank" in page
    assert "Stability of shop" in page
    assert command(monkeypatch, "predict", tmp_path / "run", *given, "--out", tmp_path / "s") == 0
    assert (pd.read_csv(tmp_path / "s/parties/shop/stability.csv")["rows"] == 1500).all()
