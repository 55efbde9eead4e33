"""VFPU on small federations: against pooled references, encrypted, in all its forms."""

from dataclasses import replace
from importlib.metadata import EntryPoint

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from tests.pu.pu_cases import Centroids, federation, people
from vfsl import registry
from vfsl.channel import Transcript, wire
from vfsl.crypto.bfv import BFV
from vfsl.data import Encoder
from vfsl.draws import PrivateSeed
from vfsl.errors import InputError
from vfsl.estimators import LinearRegression, LogisticRegression
from vfsl.estimators.trees import GBDT, LGB, XGB, RandomForest
from vfsl.params import params_of
from vfsl.progress import Event
from vfsl.pu import REASONS, VFPU, BagLogistic
from vfsl.pu.bags import average_votes, make_batch
from vfsl.pu.bases import cut_part, find_limits
from vfsl.pu.training import BagTrainer

FAST = {"rounds": 4, "folds": 4}


class Forgetful(Centroids):
    """It would need a score of each row and bag."""

    knows_training_scores = False


LR = BagLogistic(max_rounds=30)


def logits(pu):
    return np.asarray(pu.shares_["C"].state["logits"])


def fitted(known=None, frames=None, scheme="plain", **how):
    made, positive, found = people()
    frames, known = frames or made, found if known is None else known
    fed = federation(frames, known, scheme)
    return VFPU(**({**FAST, "base": LR} | how)).fit(fed), fed, positive, known


def pooled_logits(frames, known, fed, l2=0.01, **sizes):
    """PU bagging of our own in one place: closed-form least squares on the same draws."""
    parts = [cut_part(part, find_limits(part, 3.0)) for part in _parts(fed)]
    columns = [Encoder(missing="impute").fit_transform(part.table).matrix for part in parts]
    matrix = np.hstack(columns)
    matrix = np.column_stack([matrix - matrix.mean(axis=0), np.ones(len(matrix))])
    # The same generators as the label holder's: words for tasks, then draws.
    rng = PrivateSeed.of_simulation("C", fed.seed).rng("vfpu")
    rng.integers(0, 1 << 32, 4)
    draws = np.random.default_rng(rng.integers(0, 1 << 62, 2))
    nobody = np.zeros(len(known), dtype=bool)
    batch = make_batch(known, nobody, ~known, rng=draws, **sizes)
    scores = []
    penalty = 4 * l2 * len(matrix) * np.eye(matrix.shape[1])
    penalty[-1, -1] = 0
    for weights in batch.weights.T:
        v = weights / weights.mean()
        gram = matrix.T @ (v[:, None] * matrix) + penalty
        scores.append(matrix @ np.linalg.solve(gram, matrix.T @ (v * (4 * known - 2))))
    return average_votes(np.stack(scores, axis=1), batch.voters)[~known]


def _parts(fed):
    from vfsl.estimators import Part

    return [Part(fed.tables[party], fed.share(party).overlap) for party in ("B", "C")]


def test_federated_equals_pooled_bagging_of_our_own():
    frames, _, known = people()
    pu, fed, _, _ = fitted(base=replace(LR, label_noise=0.0))
    expected = pooled_logits(frames, known, fed, bags=4, folds=4)
    np.testing.assert_allclose(logits(pu), expected, atol=2e-3)
    assert spearmanr(logits(pu), expected)[0] > 0.9999


def test_where_columns_are_does_not_matter():
    frames, _, _ = people()
    moved = {
        "B": frames["B"][["id", "b0"]],
        "C": pd.concat([frames["C"], frames["B"][["b1", "b2", "B-group"]]], axis=1),
    }
    np.testing.assert_allclose(logits(fitted()[0]), logits(fitted(frames=moved)[0]), atol=2e-3)


def test_several_feature_holders():
    frames, _, _ = people()
    parted = {
        "B": frames["B"][["id", "b0"]],
        "D": frames["B"][["id", "b1", "b2", "B-group"]],
        "C": frames["C"],
    }
    np.testing.assert_allclose(logits(fitted()[0]), logits(fitted(frames=parted)[0]), atol=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "base"),
    [
        ("paillier", BagLogistic(max_rounds=2, protocol="rounds")),
        ("bfv", BagLogistic(max_rounds=2, protocol="rounds")),
        ("bfv", XGB(n_estimators=2, max_depth=2)),
    ],
    ids=["lr paillier", "lr bfv", "xgb bfv"],
)
def test_encrypted_equals_plain(scheme, base):
    frames, _, known = people(rows=120)
    how = {"base": base, "rounds": 2, "frames": frames, "known": known}
    plain, encrypted = (fitted(scheme=name, **how)[0] for name in ("plain", scheme))
    np.testing.assert_array_equal(logits(plain), logits(encrypted))
    pd.testing.assert_series_equal(plain.reliable_positives_, encrypted.reliable_positives_)


@pytest.mark.parametrize("base", ["rf", "gbdt", "xgb", "lgb"])
def test_tree_bases_by_name(base):
    pu, fed, positive, known = fitted(base=base, rounds=2)
    assert roc_auc_score(positive[~known], pu.scores_) > 0.7
    assert roc_auc_score(positive, pu.predict_proba(fed)[:, 1]) > 0.8


def test_it_finds_hidden_positives():
    pu, _, positive, known = fitted(**{"rounds": 20})
    rows = np.flatnonzero(~known)
    assert pu.scores_.index.tolist() == [f"person-{row}" for row in rows]
    assert pu.scores_.between(0, 1).all()
    assert roc_auc_score(positive[rows], pu.scores_) > 0.8
    assert spearmanr(pu.scores_, logits(pu))[0] == pytest.approx(1.0)
    best = pu.reliable_positives_
    assert set(best.index) <= set(pu.scores_.index)
    assert best.is_monotonic_decreasing
    assert best.min() >= pu.scores_.drop(best.index).max()
    assert positive[best.index.str.removeprefix("person-").astype(int)].mean() > 0.6
    assert pu.prior_.low <= pu.prior_.value <= pu.prior_.high
    assert 0.5 < pu.oob_score_ < 1
    assert pu.stop_reason_ == "outer"
    assert set(pu.columns_["column"]) == {"c0", "c1", "C-group"}


def test_the_same_seed_gives_the_same_answer():
    one, two = fitted()[0], fitted()[0]
    pd.testing.assert_series_equal(one.scores_, two.scores_)


def test_new_rows_are_scored():
    pu, fed, _, known = fitted(rounds=8)
    again = pu.predict_proba(fed)
    np.testing.assert_allclose(again.sum(axis=1), 1)
    # Old rows: all bags instead of those that they are out of, so nearly the same order.
    assert spearmanr(again[~known, 1], pu.scores_)[0] > 0.99
    frames, fresh, _ = people(seed=5)
    fed = federation(frames, fresh)
    assert roc_auc_score(fresh, pu.predict_proba(fed)[:, 1]) > 0.8
    step = fed.record.steps[-1]
    assert step.name == "predict vfpu"
    # A mean over bags is formed at home: one total for each row leaves.
    assert [e.message for e in fed.transcript.entries].count("total scores") == 1


def test_iterations_promote_and_say_why_they_ended():
    pu, _, _, known = fitted(outer=3, promote=0.05)
    history = pu.history_
    assert history["iteration"].tolist() == list(range(1, len(history) + 1))
    assert history["positives"].iloc[0] == known.sum()
    np.testing.assert_array_equal(history["positives"].diff()[1:], history["promoted"].iloc[:-1])
    np.testing.assert_array_equal(history["unlabelled"].diff()[1:], -history["promoted"].iloc[:-1])
    assert len(pu.reliable_positives_) == history["promoted"].sum()
    assert pu.stop_reason_ in REASONS
    assert len(pu.scores_) == (~known).sum()
    assert pu.scores_.notna().all()


def test_row_lists_give_the_same_bags():
    """The same rows and weights; only statistics of columns come from other rows."""
    hidden, listed = fitted()[0], fitted(row_lists="told")[0]
    assert spearmanr(hidden.scores_, listed.scores_)[0] > 0.97


def test_the_preset_of_the_published_loop():
    pu, fed, positive, known = fitted(preset="paper", outer=2, rounds=3)
    assert fed.record.steps[-1].settings["spies"]
    assert pu.history_["pseudo-negatives from"].iloc[0] < (~known).sum()
    assert roc_auc_score(positive[~known], pu.scores_) > 0.75
    assert roc_auc_score(positive, pu.predict_proba(fed)[:, 1]) > 0.75
    facts = fed.ledger.query("step == 'vfpu' and receiver == 'B'")["fact"]
    assert "which rows are the positives P: membership is told" in set(facts)


SMALL = {
    "lr": BagLogistic(),
    "rf": RandomForest(n_estimators=2, max_depth=2),
    "gbdt": GBDT(n_estimators=2, max_depth=2),
    "xgb": XGB(n_estimators=2, max_depth=2),
    "lgb": LGB(n_estimators=2, max_depth=2),
}


@pytest.mark.parametrize("base", SMALL)
def test_the_paper_does_all_iterations(base):
    """However stable the ranking is and however few hidden positives are estimated."""
    frames, positive, _ = people(rows=160)
    known = positive & (np.arange(160) % 8 > 0)  # hardly a positive is hidden
    how = {"base": SMALL[base], "rounds": 2, "folds": 2, "promote": 0.1, "outer": 4}
    pu, fed, _, _ = fitted(known, frames, preset="paper", **how)
    assert pu.history_["iteration"].tolist() == [1, 2, 3, 4]
    assert pu.stop_reason_ == "outer"
    assert len(pu.reliable_positives_) == pu.history_["promoted"].sum() > 30
    early = fitted(known, frames, preset="paper", stop="early", **how)[0]
    assert len(early.history_) < 4
    told = {e.fact for e in fed.transcript.entries if e.receiver == "B"}
    assert sum("membership is told" in fact for fact in told) == 3


@pytest.mark.slow
@pytest.mark.parametrize("base", SMALL)
def test_the_paper_with_every_base_by_name(base):
    pu, _, positive, known = fitted(preset="paper", base=base, rounds=3)
    assert pu.history_["iteration"].tolist() == [1, 2, 3]
    assert roc_auc_score(positive[~known], pu.oob_mean_) > 0.75


def test_it_ends_where_nobody_is_left_to_draw():
    pu = fitted(preset="paper", promote=1.0, outer=5)[0]
    assert (len(pu.history_), pu.stop_reason_) == (1, "empty")


def test_the_word_seed_still_does():
    old, new = VFPU(preset="seed"), VFPU(preset="paper")
    assert old.settings() == new.settings()
    assert old.asks() == new.asks()
    assert VFPU(row_lists="seed").settings()["row_lists"] == "told"
    old.check()
    pd.testing.assert_series_equal(
        *(fitted(row_lists=word, rounds=2)[0].scores_ for word in ("seed", "told"))
    )


def test_raw_scores_are_mean_probabilities_of_the_bags_that_a_row_is_not_in(monkeypatch):
    """By hand from what each bag said, as the paper defines the out-of-bag score."""
    batches, said = [], []
    train = BagTrainer.train

    def make(*rows, **how):
        batches.append(make_batch(*rows, **how))
        return batches[-1]

    def remember(self, target, weights, voters, listed):
        done = train(self, target, weights, voters, listed)
        said.append(np.asarray(done.scores)[:, 0])
        return done

    monkeypatch.setattr("vfsl.pu.search.make_batch", make)
    monkeypatch.setattr(BagTrainer, "train", remember)
    pu, _, _, known = fitted(row_lists="told")
    (batch,), scores = batches, np.stack(said[:4], axis=1)
    out = (batch.weights[:, :4] == 0) & ~known[:, None]  # O = U − N
    free = out.any(axis=1)
    expected = [expit(scores[row, out[row]]).mean() for row in np.flatnonzero(free)]
    raw = pu.oob_mean_.to_numpy()[free[~known]]
    np.testing.assert_allclose(raw, expected, atol=1e-12)
    assert spearmanr(pu.oob_mean_, pu.scores_)[0] == pytest.approx(1.0)
    assert pu.oob_mean_.index.equals(pu.scores_.index)


def test_rows_per_column_count_where_something_is_opened():
    """A bag has fewer rows than ten per column: on shares none of its sums is opened."""
    frames, _, known = people(rows=200)
    rng = np.random.default_rng(0)
    frames["B"] = frames["B"].assign(**{f"n{i}": rng.normal(size=200) for i in range(12)})
    assert 2 * known.sum() < 10 * 17
    how = {"preset": "paper", "outer": 2, "spies": False, "rounds": 2, "folds": 2}
    pu = fitted(known, frames, base="lr", **how)[0]
    assert len(pu.history_) == 2
    rounds = BagLogistic(protocol="rounds", rare_rows_per_column=0)
    with pytest.raises(InputError, match="at least 170 are needed, or its gradients would"):
        fitted(known, frames, base=rounds, **how)
    # Bags that nobody is told of are weights of all rows: the gradients are sums over these.
    hidden = how | {"row_lists": "hidden"}
    assert len(fitted(known, frames, base=rounds, **hidden)[0].history_) == 2


@pytest.mark.parametrize("row_lists", ["hidden", "told"])
def test_a_base_that_shows_training_scores(row_lists):
    pu, fed, positive, known = fitted(base=Centroids(), row_lists=row_lists, rounds=6)
    assert roc_auc_score(positive[~known], pu.scores_) > 0.8
    assert roc_auc_score(positive, pu.predict_proba(fed)[:, 1]) > 0.8
    assert pu.prior_.value < 0.9
    assert not any(e.message == "bag scores" for e in fed.transcript.entries)


def test_a_classifier_of_another_package_is_a_base_by_name(monkeypatch):
    entry = EntryPoint("centroids", "tests.pu.pu_cases:Centroids", "vfsl.estimators")
    monkeypatch.setattr(registry, "find_plugins", lambda group: {entry.name: entry})
    named, given = (fitted(base=base)[0] for base in ("centroids", Centroids()))
    pd.testing.assert_series_equal(named.scores_, given.scores_)


def test_both_ways_of_lists_agree_for_such_a_base():
    hidden, listed = (
        fitted(base=Centroids(), row_lists=how, rounds=6)[0] for how in ("hidden", "told")
    )
    np.testing.assert_allclose(logits(hidden), logits(listed), atol=1e-9)


def test_truth_enters_nothing():
    """A label column of the label holder, true or shuffled, changes no reliable positive."""
    frames, positive, known = people()
    answers = []
    for seed in (0, 1):
        label = np.random.default_rng(seed).permutation(positive) if seed else positive
        fed = federation(frames, known)
        table = fed.tables["C"].with_column("truth", label.astype(int), "label")
        fed = fed.with_rows(fed.plan, {"C": table})
        answers.append(VFPU(base=LR, **FAST).fit(fed).reliable_positives_)
    pd.testing.assert_series_equal(*answers)


def test_marks_are_made_if_missing():
    frames, _, known = people()
    fed = federation(frames, known)
    fed.align("B", "C", protocol="ecdh")
    VFPU(base=LR, **FAST).fit(fed)
    assert [step.name for step in fed.record.steps] == ["align", "mark", "vfpu"]
    assert (fed.plan["C"].marks == 1).sum() == known.sum()


@pytest.mark.parametrize("seed", range(6))
def test_few_positives_are_never_all_scored_alike(seed):
    """Ten known positives and many columns: models of few against all of U knew them by heart."""
    frames, _, known = people(rows=300, seed=seed, labelled=0.12)
    rng = np.random.default_rng(seed)
    frames["B"] = frames["B"].assign(**{f"n{i}": rng.normal(size=300) for i in range(20)})
    how = {"base": "lr", "rounds": 10, "folds": 5, "rare_rows_per_column": 0}
    pu, fed, _, _ = fitted(known=known, frames=frames, **how)
    assert spearmanr(logits(pu), pu.scores_)[0] == pytest.approx(1.0)
    assert pu.scores_.nunique() == len(pu.scores_)
    assert np.ptp(pu.predict_proba(fed)[:, 1]) > 0.01
    told = any("no better than chance" in text for text in pu.warnings_)
    assert told == (pu.oob_score_ <= 0.5)


def test_a_model_at_chance_says_so():
    frames, _, known = people()
    for frame in frames.values():
        for name in frame.columns.drop("id"):
            frame[name] = np.random.default_rng(1).permutation(frame[name])
    told = [
        fitted(known=np.roll(known, turn), frames=frames, **FAST)[0] for turn in (0, 3, 5, 9, 12)
    ]
    low = [pu for pu in told if pu.oob_score_ <= 0.5]
    assert low  # chance goes both ways
    for pu in low:
        assert any("no better than chance" in text for text in pu.warnings_)
        assert spearmanr(logits(pu), pu.scores_)[0] == pytest.approx(1.0)


def bags_in(events):
    return [event for event in events if event.stage.endswith("bags")]


def test_progress_and_messages():
    events = []
    frames, _, known = people()
    fed = federation(frames, known)
    VFPU(rounds=20).fit(fed, on_event=events.append)
    assert [events[0], events[-1]] == [Event("vfpu", "start"), Event("vfpu", "end")]
    assert bags_in(events) == [Event("vfpu", "iteration 1 of 1, bags", 20, 20)]
    assert len(fed.transcript.entries) < 200
    events.clear()
    VFPU(base=LR, row_lists="told", **FAST).fit(fed, on_event=events.append)
    assert [event.done for event in bags_in(events)] == [1, 2, 3, 4, 4, 4, 4, 4]


@pytest.mark.slow
def test_on_processes_as_in_memory():
    frames, _, known = people(rows=200)
    answers = [
        VFPU(base=LR, **FAST).fit(federation(frames, known, on=on)).scores_
        for on in ("memory", "processes")
    ]
    pd.testing.assert_series_equal(*answers)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"base": "lgbm"}, "did you mean 'lgb'"),
        ({"base": LinearRegression()}, "LinearRegression instead, which has none"),
        ({"base": BagLogistic(refine=2)}, "refine parameter .* must be 0"),
        ({"base": Forgetful()}, "must be logistic regression or know its training scores. Got"),
        ({"base": 5}, "base parameter of VFPU must be text or Estimator. Got 5"),
        ({"preset": "best"}, "preset parameter of VFPU must be one of"),
        ({"row_lists": "open"}, "row_lists parameter of VFPU must be one of"),
        ({"outer": 0}, "outer parameter of VFPU must be a whole number of at least 1"),
        ({"rounds": 2.5}, "rounds parameter of VFPU must be a whole number"),
        ({"folds": 1}, "folds parameter of VFPU must be a whole number of at least 2"),
        ({"promote": 1.5}, "promote parameter of VFPU must be a number from 0 to 1"),
        ({"spy_share": -1}, "spy_share parameter of VFPU"),
    ],
)
def test_wrong_parameters_are_one_sentence(change, words):
    with pytest.raises(InputError, match=words) as caught:
        fitted(**change)
    assert "\n" not in str(caught.value)


def test_nobody_known_is_told_before_any_work():
    frames, _, known = people()
    fed = federation(frames, known & ~known)
    with pytest.raises(InputError, match="None of the 400 aligned rows"):
        VFPU().fit(fed)
    assert not fed.record.steps


def test_a_scheme_without_products_is_refused(monkeypatch):
    monkeypatch.setattr(BFV, "elementwise", False)
    with pytest.raises(InputError, match="element-wise products, which 'bfv' has not"):
        fitted(scheme="bfv")


@pytest.mark.parametrize(
    ("how", "asked", "numbers"),
    [
        ({}, [], 1),
        ({"rare_rows_per_column": 1}, [], 1),
        ({"rare_rows_per_column": 0.5}, [], 1),
        ({"base": "xgb"}, ["tree partitions"], 0),
        ({"base": "rf", "preset": "paper"}, ["row lists", "tree partitions"], 0),
        ({"row_lists": "hidden", "preset": "paper"}, [], 1),
    ],
)
def test_it_says_what_it_shows(how, asked, numbers):
    method = VFPU(**how)
    output = ("output", "reliable positives")
    assert method.asks() == (*[("disclosure", name) for name in asked], output)
    assert method.asks(deliver=True)[-2:] == (("disclosure", "strangers"), output)
    assert method.numbers_per_row() == numbers


def test_in_rounds_it_says_more():
    names = [name for _, name in VFPU(rare_rows_per_column=0.5).asks(scheme="bfv")]
    assert names == ["gradients", "rare labels", "reliable positives"]
    rounds = VFPU(base=BagLogistic(protocol="rounds"))
    assert [name for _, name in rounds.asks()] == ["gradients", "reliable positives"]


def test_the_record_has_every_parameter_with_the_preset_filled_in():
    _, fed, _, known = fitted(preset="paper", row_lists="hidden", spies=False, outer=1)
    step = fed.record.steps[-1]
    settings = {"outer": 1, "promote": 0.02, "row_lists": "hidden", "spies": False}
    assert settings.items() <= step.settings.items()
    assert set(params_of(VFPU)) <= set(step.settings)
    assert step.settings["positives"] == "A"
    assert step.metrics["unlabelled"] == (~known).sum()
    assert step.details["known positives"] == known.sum()
    assert len(step.rounds) == 1


def test_unfitted():
    with pytest.raises(InputError, match="call fit first"):
        VFPU().predict_proba(federation(*people()[::2]))


def test_a_plain_logistic_regression_is_a_base():
    pu, _, positive, known = fitted(base=LogisticRegression(refine=0, rare_rows_per_column=1))
    assert roc_auc_score(positive[~known], pu.scores_) > 0.75


def test_delivery_needs_consent():
    pu, fed, _, _ = fitted()
    with pytest.raises(InputError, match="Party 'B' has not agreed"):
        pu.deliver(fed, consent=("C",))
    assert not any(e.message == "reliable positives" for e in fed.transcript.entries)
    with pytest.raises(InputError, match="Party 'C' has not agreed"):
        pu.deliver(fed)
    with pytest.raises(InputError, match="must name parties that hold columns"):
        pu.deliver(fed, consent=("B", "C", "Z"))
    received = pu.deliver(fed, consent=("B", "C"))
    pd.testing.assert_series_equal(received, pu.reliable_positives_, check_index_type=False)
    sent = {(e.sender, e.receiver, e.message) for e in fed.transcript.entries}
    assert sent == {("B", "C", "consent"), ("C", "A", "reliable positives")}
    assert "ids of people" in fed.ledger.iloc[-1]["fact"]


def test_transcript_is_declared():
    _, fed, _, _ = fitted()
    assert isinstance(fed.transcript, Transcript)
    assert {e.receiver for e in fed.transcript.entries if e.message == "out-of-bag sums"} == {"C"}
    fed = fitted(base=replace(LR, protocol="rounds"))[1]
    assert {e.kind for e in fed.transcript.entries if e.message == "bag scores"} == {"ciphertext"}
    assert {e.receiver for e in fed.transcript.entries if e.message == "opened sum"} == {"C"}


# ---- rows whose scores are known ----


@pytest.mark.parametrize("row_lists", ["hidden", "told"])
def test_over_trees_the_training_rows_are_predicted_without_a_message(row_lists):
    frames, _, known = people(rows=200)
    fed = federation(frames, known)
    trees = XGB(n_estimators=2, max_depth=2)
    pu = VFPU(base=trees, row_lists=row_lists, rounds=3, folds=2).fit(fed)
    found = pu.predict_proba(fed)
    assert not fed.transcript.entries
    assert fed.steps[-1].settings["new rows"] == 0
    # The same shares, as if they had been read from files: they know nothing of training rows.
    pu.shares_ = {
        party: replace(share, scores=None, seen=None) for party, share in pu.shares_.items()
    }
    assert pu.predict_proba(fed) == pytest.approx(found, abs=1e-5)
    assert "total scores" in {entry.message for entry in fed.transcript.entries}


def test_listed_training_rows_are_not_asked():
    """Spies are scored by a model that some of its own rows are scored by too."""
    frames, _, known = people(rows=200)
    fed = federation(frames, known, keep_views=True)
    trees = XGB(n_estimators=6, max_depth=3)
    VFPU(base=trees, preset="paper", outer=1, rounds=3, folds=2).fit(fed)
    tasks = {}
    for _, name, body in fed.transcript.view("B"):
        scope, _, message = name.rpartition("/")
        task = next((part for part in scope.split("/") if part.startswith("task")), "")
        tasks.setdefault(task, {}).setdefault(message, wire.decode(body)[1])
    asked = 0
    for lists in tasks.values():
        if "paths" in lists:
            train = np.union1d(lists["positives"], lists["pseudo-negatives"])
            new = len(np.setdiff1d(lists["out-of-bag"], train))
            assert lists["sizes"] == {"rows": new}
            asked += 1
    assert asked >= 3


def test_few_known_positives_per_column_are_refused_unless_one_says_so():
    """Their sum is nearly opened: few of them against many columns could be solved for."""
    frames, positive, _ = people(rows=200)
    known = np.zeros(200, dtype=bool)
    known[np.flatnonzero(positive)[:5]] = True
    rounds = BagLogistic(protocol="rounds")
    with pytest.raises(InputError, match="its gradients could tell it which rows these are"):
        fitted(known=known, frames=frames, base=rounds)
    assert len(fitted(known=known, frames=frames, base=rounds, rare_rows_per_column=0.5)[0].scores_)
    # On shares no gradient is opened, so that any number will do.
    assert len(fitted(known=known, frames=frames, base="lr")[0].scores_)
    with pytest.raises(InputError, match="rare_rows_per_column parameter of VFPU is for base 'lr'"):
        VFPU(base="rf", rare_rows_per_column=0.5).fit(federation(frames, known))
