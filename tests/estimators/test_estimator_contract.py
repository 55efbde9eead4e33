"""Every estimator keeps the public contract, which has teeth."""

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest

from tests.estimators.linear_cases import LinearInRounds, LogisticInRounds
from vfsl.errors import VfslError
from vfsl.estimators import (
    GBDT,
    LGB,
    XGB,
    LinearRegression,
    LogisticRegression,
    RandomForest,
    Scorecard,
    load_model,
    save_model,
)
from vfsl.testing.estimators import ESTIMATOR_CHECKS, EstimatorCase
from vfsl.values import Disclosure


def saved(model, folder):
    save_model(model, folder)
    return load_model(folder)


EXACT = {"look_noise": 0.0, "label_noise": 0.0}
ROUNDED = {"tolerance": 1e-9}  # sums of leaves in another order
# Fixed point: about the precision to which linear models are solved.
LINEAR = {"tolerance": 1e-5, "target": "numbers"}
MAKERS = {
    "linear": (LinearRegression, {"tolerance": 1e-3, "target": "numbers", "left_out": 1e-3}),
    "linear in rounds": (LinearInRounds, {**LINEAR, "left_out": 1e-5}),
    "ridge in rounds": (partial(LinearInRounds, l2=0.1), LINEAR),
    # Rounding and the point where it stops depend on how columns are dealt out to parties.
    "logistic": (LogisticRegression, {"tolerance": 2e-2}),
    # Stages are left when they are nearly solved: answers differ by what is left.
    "logistic in rounds": (partial(LogisticInRounds, max_rounds=200, **EXACT), {"tolerance": 1e-2}),
    "logistic with noise": (LogisticInRounds, {"tolerance": 1e-2, "draws": True}),
    "logistic of degree one": (
        partial(LogisticInRounds, refine=0, max_rounds=100, tolerance=1e-7, **EXACT),
        {"tolerance": 1e-5},
    ),
    # Columns of few rows are cut the more coarsely the more of them a party has.
    "scorecard": (
        partial(Scorecard, least_information=0.0, label_noise=0.0),
        {"tolerance": 2e-2, "weights": False, "rows": 500},
    ),
    "rf": (partial(RandomForest, n_estimators=3, together=2, max_depth=3), {"draws": True}),
    "rf of numbers": (
        partial(RandomForest, n_estimators=2, max_depth=3, task="regression"),
        {"draws": True, "target": "numbers"},
    ),
    "gbdt": (partial(GBDT, n_estimators=2, max_depth=3), ROUNDED),
    "xgb": (partial(XGB, n_estimators=2, max_depth=3), ROUNDED),
    "xgb that draws": (
        partial(XGB, n_estimators=2, max_depth=3, subsample=0.8, colsample=0.7),
        {"draws": True},
    ),
    "xgb of numbers": (
        partial(XGB, n_estimators=2, max_depth=3, task="regression"),
        {**ROUNDED, "target": "numbers"},
    ),
    "logistic of three": (
        partial(LogisticInRounds, refine=0, max_rounds=100, tolerance=1e-7, **EXACT),
        {"tolerance": 1e-5, "target": "three classes"},
    ),
    "xgb of three": (
        partial(XGB, n_estimators=2, max_depth=3),
        {**ROUNDED, "target": "three classes"},
    ),
    "lgb": (partial(LGB, n_estimators=2, max_leaves=6, max_depth=3), ROUNDED),
    "lgb that draws": (
        partial(LGB, n_estimators=2, max_leaves=6, goss=True, top=0.4, other=0.3),
        {"draws": True},
    ),
}


@cache
def case_of(name):
    make, how = MAKERS[name]
    return EstimatorCase(make, saved=saved, **how)


@pytest.mark.parametrize("check", ESTIMATOR_CHECKS)
@pytest.mark.parametrize("name", MAKERS)
def test_estimator_keeps_the_contract(name, check):
    ESTIMATOR_CHECKS[check](case_of(name))


ENCRYPTED = {
    "linear": (partial(LinearInRounds, max_rounds=3), {"target": "numbers"}),
    "logistic": (partial(LogisticInRounds, refine=1, max_rounds=4), {"draws": True}),
    "xgb": (partial(XGB, n_estimators=1, max_depth=2), {}),
    "rf": (partial(RandomForest, n_estimators=2, max_depth=2), {"draws": True}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ENCRYPTED)
def test_estimator_is_the_same_encrypted(name):
    make, how = ENCRYPTED[name]
    schemes = [("bfv", 128), ("paillier", 112)]
    ESTIMATOR_CHECKS["minds_no_scheme"](EstimatorCase(make, schemes=schemes, **how))


# ---- estimators that break it --------------------------------------------------------------------


class Careless(LinearRegression):
    """Ignores row weights."""

    def fit(self, fed, label, weights=None):
        return super().fit(fed, label)


class Lonely(LinearRegression):
    """The label holder's own columns are enough for it."""

    def train(self, channel, part, **how):
        share = super().train(channel, part, **how)
        if channel.me == "B":
            weights = np.zeros_like(share.state["weights"]).tolist()
            return replace(share, state={**share.state, "weights": weights})
        return share


class Curious(LinearRegression):
    """Parties in one process tell each other what their columns are called."""

    told = ()

    def train(self, channel, part, **how):
        if channel.me == "B":
            Curious.told = part.table.features
        share = super().train(channel, part, **how)
        if channel.me == "C":
            return replace(share, state={**share.state, "names": [*Curious.told]})
        return share


GOSSIP = {"aside": Disclosure(np.ndarray, "what should not be told")}


class Loud(LinearRegression):
    """Sends its cells along, declared and all."""

    def train(self, channel, part, **how):
        aside = channel.within("aside", GOSSIP)
        if channel.me == "B":
            aside.send("C", "aside", part.table.frame["b-income"].to_numpy())
        elif channel.me == "C":
            aside.receive("B", "aside")
        return super().train(channel, part, **how)


class Generous(LinearRegression):
    """Everybody gets the answer."""

    def score_rows(self, channel, part, share, **how):
        found = super().score_rows(channel, part, share, **how)
        return np.zeros(3) if channel.me == "B" else found


class Sorted(LinearRegression):
    """Gives the answers from the smallest to the largest."""

    def predict(self, fed):
        return np.sort(super().predict(fed))


class Levelling(LinearRegression):
    """Its answers depend on who else is asked for."""

    def predict(self, fed):
        found = super().predict(fed)
        return found - found.mean() + 40


class Noisy(LinearRegression):
    """Adds chance of its own."""

    def train(self, channel, part, **how):
        share = super().train(channel, part, **how)
        if share is None:
            return None
        weights = np.array(share.state["weights"]) + 1e-6 * np.random.default_rng().normal()
        return replace(share, state={**share.state, "weights": weights.tolist()})


class Seeding(LinearRegression):
    def fit(self, fed, label, weights=None):
        np.random.seed(0)
        return super().fit(fed, label, weights)


class Constant(LinearRegression):
    def predict(self, fed):
        return np.full(len(super().predict(fed)), 40.0)


class Greedy(LinearRegression):
    """Writes over the weights that it was given."""

    def fit(self, fed, label, weights=None):
        if weights is not None:
            weights /= weights.max()
        return super().fit(fed, label, weights)


class Rough(LinearRegression):
    """Lets an error from deep inside through."""

    def fit(self, fed, label, weights=None):
        try:
            return super().fit(fed, label, weights)
        except VfslError as error:
            raise ValueError(str(error)) from None


class Wary(LinearRegression):
    """Learns less where it is encrypted."""

    def train(self, channel, part, *, roles, **how):
        rounds = self.max_rounds if roles.scheme == "plain" else 1
        return LinearRegression(max_rounds=rounds).train(channel, part, roles=roles, **how)


@pytest.mark.slow
def test_the_contract_sees_that_a_scheme_matters():
    case = EstimatorCase(Wary, schemes=[("bfv", 128)], **LINEAR)
    with pytest.raises(AssertionError, match="other shares are learned"):
        ESTIMATOR_CHECKS["minds_no_scheme"](case)


BROKEN = [
    (Careless, "weighs_rows"),
    (Careless, "refuses_bad_weights"),
    (Lonely, "minds_no_owner"),
    (Lonely, "learns"),
    (Curious, "keeps_columns_at_home"),
    (Loud, "keeps_columns_at_home"),
    (Generous, "answers_the_label_holder_only"),
    (Sorted, "follows_rows"),
    (Levelling, "follows_rows"),
    (Levelling, "answers_for_new_rows"),
    (Noisy, "repeats"),
    (Seeding, "leaves_the_world_alone"),
    (Constant, "learns"),
    (Greedy, "leaves_the_world_alone"),
    (Rough, "refuses_bad_input"),
    (Rough, "refuses_bad_weights"),
]


MORE = {kind: {"weights": "own"} for kind in (Lonely, Noisy)}  # these meddle with weights


@pytest.mark.parametrize(("kind", "check"), BROKEN)
def test_the_contract_sees_a_broken_estimator(kind, check):
    with pytest.raises(AssertionError):
        ESTIMATOR_CHECKS[check](EstimatorCase(partial(kind, **MORE.get(kind, {})), **LINEAR))


def test_the_contract_sees_what_is_lost_on_disk():
    def forgetful(model, folder):
        again = saved(model, folder)
        share = again.shares_["C"]
        again.shares_["C"] = replace(share, state={**share.state, "mean": [0.0]})
        return again

    with pytest.raises(AssertionError, match="loaded shares differ"):
        ESTIMATOR_CHECKS["saves_and_loads"](
            EstimatorCase(LinearRegression, saved=forgetful, **LINEAR)
        )


def test_the_contract_sees_a_claim_about_draws_that_is_not_so():
    make, _ = MAKERS["xgb that draws"]
    with pytest.raises(AssertionError, match="the seed matters"):
        ESTIMATOR_CHECKS["repeats"](EstimatorCase(make, draws=False))
    with pytest.raises(AssertionError, match="in another order"):
        ESTIMATOR_CHECKS["minds_no_order_of_training"](EstimatorCase(make, draws=False))
