"""Cross-fit and VFPU-M on shares, beside the same by rounds in the open."""

from collections import Counter
from functools import partial

import numpy as np
import pandas as pd
import pytest

from tests.completion.psg_cases import frames, parts, run
from vfsl.channel import Transcript, run_together
from vfsl.completion.bases import Pair, RidgeBase
from vfsl.completion.columns import make_target, shrink, skill
from vfsl.completion.crossfit import CrossFit
from vfsl.completion.shared_roles import Posed, count_parts, cut_classes, make_shared_targets
from vfsl.completion.vfpum import VFPUM
from vfsl.data import PartyTable
from vfsl.errors import ConfigError
from vfsl.estimators import Roles
from vfsl.parts import Part
from vfsl.store import Checkpoints

SHARES = Roles("B", ("A",), "K", "shares")
EXACT = Pair(RidgeBase(tolerance=1e-9, max_rounds=200))
COLUMNS = ["income", "visits", "noise", "gaps", "colour", "size"]


def tables(common=200, rest=120, seed=0):
    a, b, _ = frames(common, rest, seed)
    b["size"] = pd.cut(b["income"], [-1e9, 900, 1100, 1e9], labels=["s", "m", "l"]).astype(str)
    b["gaps"] = b["visits"].astype(float)
    b.loc[::4, "gaps"] = np.nan
    return parts(a, b, common), b.iloc[common:]


@pytest.fixture(scope="module")
def case():
    both, truth = tables()
    model = CrossFit(EXACT, spread=True)
    return both, truth, run(model, both, COLUMNS), run(model, both, COLUMNS, SHARES)


def test_numbers_have_the_skill_of_held_out_predictions(case):
    _, _, opened, shared = case
    for name in ("income", "visits", "noise", "gaps"):
        value, error = skill(shared[name])
        assert value == pytest.approx(skill(opened[name])[0], abs=2e-3)
        assert error == pytest.approx(skill(opened[name])[1], rel=0.8)
        fraction = shrink(shared[name], 5)[1]
        assert fraction == pytest.approx(shrink(opened[name], 5)[1], abs=2e-3)
        errors = shared[name].predicted - shared[name].target.filled
        assert shared[name].errors.expected(np.zeros(1)) == pytest.approx(
            np.sqrt(2 / np.pi * (errors[shared[name].target.known] ** 2).mean()), rel=1e-6
        )


def test_categories_have_about_that_skill(case):
    _, _, opened, shared = case
    for name in ("colour", "size"):
        # Linear scores are not yet probabilities: no better, and not much worse.
        assert -0.2 < skill(shared[name])[0] - skill(opened[name])[0] < 0.03
        np.testing.assert_allclose(shared[name].chances.sum(axis=1), 1)


def test_single_rows_are_not_those_of_the_model(case):
    _, _, opened, shared = case
    for name in ("income", "visits"):
        beyond = opened[name].target.filled - opened[name].baseline  # which the missing party has
        rows = []
        for fold in (opened[name], shared[name]):
            errors = fold.predicted - fold.target.filled
            rows.append(errors - beyond * (errors @ beyond) / (beyond @ beyond))
        assert abs(np.corrcoef(*rows)[0, 1]) < 4 / np.sqrt(len(beyond))
        assert shared[name].drawn


@pytest.mark.parametrize("how", [{}, {"rounds": 3}, {"rounds": 3, "confidence": "spread"}])
def test_completed_cells_are_as_good(case, how):
    both, truth, opened, shared = case
    base = "linear" if how else EXACT
    direct = run(VFPUM(base, **how), both, COLUMNS, own={"folds": opened}).found
    hidden = run(VFPUM(base, **how), both, COLUMNS, SHARES, own={"folds": shared}).found
    for name in COLUMNS:
        one, other = direct[name], hidden[name]
        if one.target.classes:
            hot = (truth[name].to_numpy()[:, None] == np.array(one.target.levels)).astype(float)
            losses = [((found.chances - hot) ** 2).sum(axis=1).mean() for found in (one, other)]
            assert losses[1] <= losses[0] + 0.03
        else:
            np.testing.assert_allclose(other.values, one.values, atol=0.05 * one.target.deviation)
    if not how:
        income = direct["income"]
        np.testing.assert_allclose(
            hidden["income"].values, income.values, atol=3e-4 * income.target.deviation
        )


@pytest.mark.parametrize("rounds", [1, 4])
def test_nothing_but_sums_and_last_predictions_is_opened(case, rounds):
    both, *_ = case
    transcript = Transcript()
    folds = run(CrossFit(), both, COLUMNS, SHARES, transcript=transcript)
    own = {"folds": folds}
    run(VFPUM(rounds=rounds), both, COLUMNS, SHARES, own=own, transcript=transcript)
    told = [e for e in transcript.entries if e.message not in ("masked", "dealt", "seed")]
    to_b = {e.message for e in told if e.receiver == "B"}
    sums = {"errors of numbers", "errors of classes", "rows within", "errors by prediction"}
    sums |= {"change of errors"} if rounds > 1 else set()
    assert to_b == {"sizes", "predictions", "kept"} | sums
    assert {e.message for e in told if e.receiver == "A"} == {"sizes", "order", "resume"}
    assert {e.message for e in told if e.receiver == "K"} == {"sizes", "order", "resume"}
    assert [e.message for e in told].count("predictions") == 1
    shown = Counter()
    for release in transcript.releases:
        shown[release.sender, release.receiver, release.what] += release.numbers
    numbers, parts_ = 4, count_parts(200, 5)
    again = 1 if rounds == 1 else 2  # of the last models, too
    expected = {
        ("A", "B", "errors of numbers"): again * 2 * parts_ * numbers,
        ("A", "B", "errors of classes"): again * ((2 * 2 + 1) + (2 * 6 + 4)),
        ("A", "B", "predictions"): 120 * 7,
        ("A", "B", "errors by prediction"): 3 * numbers,
        ("A", "B", "rows within"): 6 * numbers + (3 + 6) * 2,
    }
    if rounds > 1:
        expected["A", "B", "change of errors"] = parts_ * len(COLUMNS)
    assert shown == expected


def test_a_run_goes_on_from_what_is_finished(case, tmp_path):
    both, *_ = case
    names = ["income", "colour"]

    def again(model, columns):
        kept = {party: Checkpoints(tmp_path / model.name / party, "job") for party in "AB"}
        jobs = {}
        for party in SHARES.everyone:
            more = {"columns": columns} if party == "B" else {}
            more |= {"kept": kept[party]} if party in kept else {}
            rng = np.random.default_rng(0)
            jobs[party] = partial(model.train, part=both.get(party), roles=SHARES, rng=rng, **more)
        transcript = Transcript()
        done = run_together(jobs, transcript=transcript)
        return done, sum(e.message == "masked" for e in transcript.entries)

    for model in (CrossFit(), VFPUM(rounds=2)):
        (first, sent), (second, none) = again(model, names), again(model, names)
        assert sent > 0
        assert none == 0
        one, two = (
            done["B"] if model.name == "cross-fit" else done["B"].found for done in (first, second)
        )
        for name in names:
            assert repr(one[name].to_dict()) == repr(two[name].to_dict())
        _, other = again(model, names[:1])  # not what was kept
        assert other > 0
    assert again(VFPUM(rounds=2), names[:1])[0]["A"].shares.keys() == {0}


def test_new_rows_are_predicted_by_kept_pieces(case):
    both, *_ = case
    model = VFPUM(rounds=2)
    jobs = {
        party: partial(
            model.train,
            part=both.get(party),
            roles=SHARES,
            rng=np.random.default_rng(0),
            **({"columns": COLUMNS} if party == "B" else {}),
        )
        for party in SHARES.everyone
    }
    outcomes = run_together(jobs)
    rows = Part(both["A"].table, both["A"].rest[:30])
    asked = {
        party: partial(
            model.score_rows,
            part=rows if party == "A" else None,
            share=outcomes[party],
            roles=SHARES,
        )
        for party in SHARES.everyone
    }
    transcript = Transcript()
    answers = run_together(asked, transcript=transcript)["B"]
    for name, found in outcomes["B"].found.items():
        expected = found.chances if found.target.classes else found.predicted
        np.testing.assert_allclose(answers[name], expected[:30], rtol=1e-9, atol=1e-12)
    assert sum(e.bytes for e in transcript.entries) < 20_000


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"context": "preliminary"}, "The context parameter of VFPUM needs the rounds in the open"),
        ({"stop": lambda rounds: True}, "The stop parameter of VFPUM needs the rounds in the open"),
        ({"alpha": 0.5, "rounds": 2}, "must be above 0.5 for categories on shares"),
    ],
)
def test_what_needs_rounds_in_the_open_is_refused(case, how, text):
    with pytest.raises(ConfigError, match=text):
        run(VFPUM(**how), case[0], ["colour"], SHARES)


# ---- pieces -------------------------------------------------------------------------------------


def test_targets_have_mean_0_and_say_where_they_are(case):
    table = case[0]["B"].table
    targets = [make_target(table, name) for name in ("gaps", "size")]
    posed = Posed.of(targets)
    assert [at.tolist() for at in posed.places] == [[0], [1, 2]]
    assert posed.classes == [0, 3]
    known = targets[0].known
    assert posed.values[~known, 0].tolist() == [0.0] * int((~known).sum())
    assert posed.values[known, 0].std() == pytest.approx(1)
    np.testing.assert_allclose(posed.values.mean(axis=0), 0, atol=1e-12)
    restored = posed.values * posed.scales + posed.means
    np.testing.assert_allclose(restored[known, 0], targets[0].filled[known])


def test_rare_classes_are_predicted_together_and_rare_numbers_as_they_are(case):
    table = case[0]["B"].table.take(np.arange(200))
    letters = np.array(["a"] * 150 + ["b"] * 44 + ["c"] * 3 + ["d"] * 3)
    flag = (np.arange(200) < 3).astype(float)
    frame = table.frame.assign(letters=letters, flag=flag, id=table.ids)
    wide = PartyTable.from_frame(frame, party="B", id="id")
    letters, flag = make_shared_targets(wide, ["letters", "flag"])
    assert letters.width == 1  # b, c and d against a
    assert flag.width == 1


def test_cuts_without_a_scale_are_linear_probabilities(case):
    table = case[0]["B"].table
    target = make_target(table, "size")
    maps, cuts = cut_classes([target], {}, 0.8)
    means = target.numbers(target.filled).mean(axis=0)
    rng = np.random.default_rng(0)
    scores = rng.uniform(-0.2, 1.2, size=(200, 2))
    every = np.column_stack([1 - scores.sum(axis=1), scores])
    np.testing.assert_array_equal((scores - means) @ maps >= cuts, every >= 0.8)


def test_cuts_by_held_out_scores_are_as_sure_as_asked(case):
    fold = case[3]["size"]
    maps, cuts = cut_classes([fold.target], case[3], 0.8)
    means = fold.target.numbers(fold.target.filled).mean(axis=0)
    sure = (fold.scores - means) @ maps >= cuts
    right = np.eye(3, dtype=bool)[fold.target.grouped]
    assert sure.any(axis=0).sum() == 2  # the one in the middle has no score of its own
    assert right[sure].mean() > 0.8
    assert (sure.sum(axis=1) <= 1).all()
