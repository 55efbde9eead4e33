"""VFPU-M across parties: the papers' loop, equal to a pooled one, under every scheme."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from tests.completion.psg_cases import PLAIN, frames, parts, run
from vfsl.channel import Transcript, run_together
from vfsl.completion.bases import BASES, Pair, RidgeBase, make_pair, prepare_given
from vfsl.completion.crossfit import CrossFit
from vfsl.completion.pseudo_labels import ALL_MOVED, ALL_ROUNDS, NOBODY, STOPPED
from vfsl.completion.tasks import places_of
from vfsl.completion.vfpum import VFPUM
from vfsl.errors import ConfigError
from vfsl.estimators import XGB, LogisticRegression, Roles
from vfsl.parts import Part
from vfsl.store import Checkpoints

EXACT = Pair(RidgeBase(tolerance=1e-9, max_rounds=200))
SMALL_TREES = Pair(
    XGB(task="regression", n_estimators=5, max_depth=2), XGB(n_estimators=5, max_depth=2)
)


def pooled_loop(both, y, alpha, k, rounds, l2=0.01):
    """The papers' loop with scikit-learn on pooled rows, written from the paper, not from ours."""
    part, _ = prepare_given(both["A"], EXACT)
    table = part.table.take(part.all_rows)
    matrix, common = table.frame.to_numpy(), len(part.rows)
    labelled = {row: y[row] for row in range(common)}
    unlabelled = list(range(common, len(matrix)))
    log, taken = [], {}
    for number in range(1, rounds + 1):
        rows = sorted(labelled)
        # Columns are standardised over the rows that the model is shown.
        shown = matrix[:common] if number == 1 else matrix
        scaled = (matrix - shown.mean(axis=0)) / shown.std(axis=0)
        model = Ridge(alpha=l2 * len(rows)).fit(scaled[rows], [labelled[row] for row in rows])
        guess = model.predict(scaled[unlabelled])
        sure = 1 - np.abs(guess - guess.mean()) / guess.std()
        inside = [place for place in range(len(unlabelled)) if sure[place] >= alpha]
        inside.sort(key=lambda place: -sure[place])
        chosen = inside[: int(np.ceil(k * len(inside)))]
        log.append((len(unlabelled), len(inside), len(chosen)))
        for place in chosen:
            row = unlabelled[place]
            labelled[row] = guess[place]
            taken[row - common] = (number, guess[place], sure[place])
        unlabelled = [row for row in unlabelled if row not in labelled]
        if not chosen or not unlabelled:
            break
    return log, taken


def test_the_federated_loop_is_the_pooled_one():
    a, b, _ = frames()
    both = parts(a, b)
    model = VFPUM(base=EXACT, alpha=0.7, k=0.25, rounds=4)
    found = run(model, both, ["income"]).found["income"]
    log, taken = pooled_loop(both, b["income"].to_numpy(), 0.7, 0.25, 4)
    assert [(r["waiting"], r["confident"], r["chosen"]) for r in found.rounds] == log
    assert np.flatnonzero(found.moved).tolist() == sorted(taken)
    for row, (number, value, sure) in taken.items():
        assert found.round[row] == number
        assert found.labels[row] == pytest.approx(value, rel=1e-4)
        assert found.confidence[row] == pytest.approx(sure, abs=1e-3)


def test_columns_train_together_as_they_do_alone():
    a, b, _ = frames()
    both = parts(a, b)
    model = VFPUM(base=EXACT, rounds=3)
    together = run(model, both, ["income", "visits", "noise"])
    assert together.groups == [["income", "visits", "noise"]]
    for name in ("income", "visits", "noise"):
        alone = run(model, both, [name]).found[name]
        one = together.found[name]
        assert one.round.tolist() == alone.round.tolist()
        np.testing.assert_allclose(one.values, alone.values, rtol=1e-4)


@pytest.mark.parametrize(
    ("scheme", "security"), [pytest.param("paillier", 112, marks=pytest.mark.slow), ("bfv", 128)]
)
def test_encrypted_equals_plain(scheme, security):
    a, b, _ = frames(common=60, rest=20)
    both = parts(a, b, 60)
    model = VFPUM(base=Pair(RidgeBase(max_rounds=3)), rounds=2)
    columns = ["income", "colour"]
    plain = run(model, both, columns).found
    hidden = run(model, both, columns, Roles("B", ("A",), "K", scheme, security)).found
    for name in columns:
        assert (hidden[name].values == plain[name].values).all()
        assert hidden[name].rounds == plain[name].rounds
        assert hidden[name].confidence.tolist() == plain[name].confidence.tolist()


def test_trees_label_rows_and_repeat_with_the_seed():
    a, b, _ = frames()
    both = parts(a, b)
    model = VFPUM(base=SMALL_TREES, rounds=2)
    first, again = (run(model, both, ["income", "colour"]).found for _ in range(2))
    for name in ("income", "colour"):
        assert first[name].values.tolist() == again[name].values.tolist()
        assert first[name].moved.any()
    truth = b["colour"].to_numpy()[120:]
    levels = np.array(first["colour"].target.levels)
    assert (levels[first["colour"].values.astype(int)] == truth).mean() > 0.75


def test_classes_of_three():
    a, b, _ = frames()
    b["size"] = pd.cut(b["income"], [-1e9, 900, 1100, 1e9], labels=["s", "m", "l"]).astype(str)
    found = run(VFPUM(rounds=3), parts(a, b), ["size"]).found["size"]
    assert found.chances.shape == (80, 3)
    np.testing.assert_allclose(found.chances.sum(axis=1), 1)
    moved = found.moved
    assert (found.confidence[moved] >= 0.8).all()
    guess = np.array(found.target.levels)[found.values.astype(int)]
    assert (guess == b["size"].to_numpy()[120:]).mean() > 0.6


def test_rounds_end_for_each_reason():
    a, b, _ = frames()
    both = parts(a, b)
    everybody = run(VFPUM(alpha=0.0, k=1.0, rounds=30), both, ["colour"]).found["colour"]
    assert everybody.stop_reason == ALL_MOVED
    assert len(everybody.rounds) == 1
    folds = run(CrossFit(), both, ["colour"])
    nobody = run(VFPUM(alpha=1.0, rounds=5), both, ["colour"], own={"folds": folds}).found["colour"]
    assert nobody.stop_reason == NOBODY
    assert len(nobody.rounds) == 1
    assert not nobody.moved.any()
    assert not np.isnan(nobody.values).any()  # the remainder is predicted
    short = run(VFPUM(alpha=0.5, rounds=2), both, ["colour"]).found["colour"]
    assert short.stop_reason == ALL_ROUNDS
    rule = run(
        VFPUM(alpha=0.5, rounds=9, stop=lambda rounds: len(rounds) == 3), both, ["colour"]
    ).found["colour"]
    assert rule.stop_reason == STOPPED
    assert len(rule.rounds) == 3


def test_preliminary_columns_take_part_but_never_the_target():
    a, b, _ = frames()
    b["copy"] = b["income"] * 2
    both = parts(a, b)
    names = ["income", "copy", "visits", "colour", "noise"]
    whole = both["B"].table
    context = whole.take(np.concatenate([np.arange(120), np.zeros(80, dtype=int)]))
    own = {"context": context}
    with_copy = run(
        VFPUM(base=EXACT, context="preliminary", rounds=1), both, ["income"], own=own
    ).found["income"]
    # The exact copy, which is the same in all remaining rows, takes over most of the model.
    assert with_copy.predicted.std() < 0.2 * b["income"].std()
    alone = context.without([name for name in names if name != "income"])
    without = run(
        VFPUM(base=EXACT, context="preliminary", rounds=1), both, ["income"], own={"context": alone}
    ).found["income"]
    plain = run(VFPUM(base=EXACT, rounds=1), both, ["income"]).found["income"]
    np.testing.assert_allclose(without.predicted, plain.predicted, rtol=1e-6)
    assert plain.predicted.std() > 0.6 * b["income"].std()


def test_missing_cells_of_the_target_do_not_train():
    a, b, _ = frames()
    holed = b.copy()
    holed.loc[:29, "income"] = np.nan
    kept = parts(a.iloc[30:], b.iloc[30:], 90)
    found = run(VFPUM(base=EXACT, rounds=1), parts(a, holed), ["income"]).found["income"]
    reference = run(VFPUM(base=EXACT, rounds=1), kept, ["income"]).found["income"]
    assert np.corrcoef(found.predicted, reference.predicted)[0, 1] > 0.999
    wild = holed.copy()
    wild.loc[:29, "noise"] = 1e6
    again = run(VFPUM(base=EXACT, rounds=1), parts(a, wild), ["income"]).found["income"]
    np.testing.assert_allclose(found.predicted, again.predicted)


def test_a_run_goes_on_from_finished_columns(tmp_path):
    a, b, _ = frames()
    b.loc[3, "colour"] = None  # columns with unknown cells train apart
    both, model, columns = parts(a, b), VFPUM(rounds=2), ["income", "colour"]
    whole = run(model, both, columns).found

    def again(stop_after):
        kept = {party: Checkpoints(tmp_path / party, "job") for party in "AB"}
        jobs = {}
        for party in PLAIN.everyone:
            more = {"columns": columns[:stop_after]} if party == "B" else {}
            if party in kept:
                more["kept"] = kept[party]
            jobs[party] = partial(
                model.train,
                part=both.get(party),
                roles=PLAIN,
                rng=np.random.default_rng(0),
                **more,
            )
        transcript = Transcript()
        return run_together(jobs, transcript=transcript)["B"], transcript

    _, first = again(1)
    second, rest = again(2)
    assert second.found["income"].values.tolist() == whole["income"].values.tolist()
    assert second.found["income"].rounds == whole["income"].rounds
    assert trained_tasks(first) == {"task 0", "task 1"}
    assert trained_tasks(rest) == {"task 2", "task 3"}


def trained_tasks(transcript):
    return {e.name.split("/")[1] for e in transcript.entries if "/linear/" in e.name}


@pytest.mark.parametrize("base", ["linear", SMALL_TREES], ids=["linear", "trees"])
def test_new_rows_are_predicted_by_the_kept_shares(base):
    a, b, _ = frames(common=120, rest=80)
    both = parts(a, b)
    model = VFPUM(base=base, rounds=1)
    columns = ["income", "visits", "colour"]
    jobs = {
        party: partial(
            model.train,
            part=both.get(party),
            roles=PLAIN,
            rng=np.random.default_rng(0),
            **({"columns": columns} if party == "B" else {}),
        )
        for party in PLAIN.everyone
    }
    outcomes = run_together(jobs)
    rest = Part(both["A"].table, both["A"].rest)
    asked = {
        party: partial(
            model.score_rows,
            part=rest if party == "A" else None,
            share=outcomes[party],
            roles=PLAIN,
        )
        for party in PLAIN.everyone
    }
    answers = run_together(asked)["B"]
    found = outcomes["B"].found
    np.testing.assert_allclose(answers["income"], found["income"].predicted, rtol=1e-6)
    np.testing.assert_allclose(answers["visits"], found["visits"].predicted, rtol=1e-6)
    np.testing.assert_allclose(answers["colour"], found["colour"].chances, atol=1e-6)
    with pytest.raises(ConfigError, match="only with context='none'"):
        replace(model, context="preliminary").score_rows(None, None, outcomes["A"], roles=PLAIN)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"alpha": 1.2}, "The alpha parameter of VFPUM must be a number from 0 to 1"),
        ({"k": 0}, "The k parameter of VFPUM must be a number above 0 and at most 1"),
        ({"rounds": 0}, "The rounds parameter of VFPUM must be a whole number of at least 1"),
        ({"confidence": "sure"}, "The confidence parameter of VFPUM must be one of"),
        ({"context": "all"}, "The context parameter of VFPUM must be one of"),
        ({"base": "xgboost"}, "did you mean 'xgb'"),
    ],
)
def test_bad_parameters(settings, text):
    with pytest.raises(ConfigError, match=text):
        VFPUM(**settings).train(None, None, roles=PLAIN, rng=None)


def test_every_named_base_has_both_kinds():
    for name in BASES:
        pair = make_pair(name)
        assert pair.linear == (name == "linear") == (pair.classes is None)
        assert pair.work == ("linear" if name == "linear" else "trees")


def test_pairs_that_would_show_more_are_refused():
    with pytest.raises(ConfigError, match="must have no estimator for classes"):
        make_pair(Pair(RidgeBase(), LogisticRegression()))
    with pytest.raises(ConfigError, match="know the scores of their training rows"):
        make_pair(Pair(LogisticRegression(), LogisticRegression()))


def test_common_rows_come_first():
    assert places_of("common", 7, 2).tolist() == list(range(7))
    assert places_of("rest", 7, 2).tolist() == [7, 8]
    assert places_of("all", 7, 2).tolist() == list(range(9))
