"""Trees on shares where only the best candidate is shown: the trees of plain, and nothing else."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.estimators.trees.test_tree_shared_sums import TASKS, TWO, Died, same_as_plain, spoil
from tests.estimators.trees.tree_cases import (
    FOUR,
    SHARES,
    classes,
    parts_of,
    scores,
    splits,
    table_of,
    tables,
    train,
    train_with,
)
from vfsl.channel import Transcript, run_together, wire
from vfsl.crypto.fixed import fold
from vfsl.crypto.shares import Session
from vfsl.errors import ProtocolError
from vfsl.estimators import LGB, XGB, RandomForest, Roles
from vfsl.estimators.trees import protocol
from vfsl.estimators.trees.binning import Bins, Histograms
from vfsl.estimators.trees.judging import (
    EDGES,
    PLACE_BITS,
    Size,
    count_row_bits,
    count_sum_bits,
    make_judges,
    make_table,
    rate_splits,
)
from vfsl.estimators.trees.shared_best import PairBest
from vfsl.estimators.trees.shared_sums import join_pairs
from vfsl.estimators.trees.splits import FOLD_BITS, Candidates, Penalty, compute_gains

# ---- judging in small integers ------------------------------------------------------------------


def make_judge(g, h, penalty, rows):
    """Of one node."""
    return make_judges(g, h, np.array([len(g)]), penalty, rows)


def rate(judge, left):
    """How good splits of one node are, by the sums on their left."""
    return rate_splits(fold(left, FOLD_BITS)[None], judge.marks)[0]


@st.composite
def nodes(draw):
    """(g, h) of a node's rows, a penalty, and which rows go left by many splits."""
    rows = draw(st.integers(2, 300))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    h = draw(st.sampled_from([np.ones(rows), rng.random(rows), rng.random(rows) ** 8]))
    g = rng.normal(size=rows) * draw(st.sampled_from([1.0, 1e-6, 1e6]))
    g = g + draw(st.sampled_from([0.0, 5.0])) * h
    penalty = Penalty(*draw(st.sampled_from([(1.0, 0.0, 1.0), (0.0, 0.0, 1e-3), (0.0, 0.0, 1.0)])))
    left = rng.random((200, rows)) < rng.random((200, 1))
    return g, h, penalty, left


@settings(max_examples=80, deadline=None)
@given(case=nodes())
def test_sums_stay_in_their_bounds(case):
    g, h, penalty, left = case
    judge = make_judge(g, h, penalty, 20_000)
    sums, (less, plus, _, shift) = left @ judge.values, judge.marks[0]
    assert np.abs(judge.values).max() < 1 << count_row_bits(20_000)
    assert np.abs(sums[:, 0] - less).max() < 1 << count_sum_bits(20_000)
    place = (sums[:, 1] << shift) + plus
    assert place.min() >= 0
    assert place.max() < 1 << PLACE_BITS


def test_ratings_are_gains_but_for_a_few_percent():
    rng = np.random.default_rng(0)
    rows = 5_000
    x = rng.normal(size=(rows, 30))
    h = rng.random(rows) * 0.25
    g = h * rng.normal(size=rows) + 0.02 * x[:, 0]
    judge = make_judge(g, h, Penalty(), rows)
    left = np.concatenate(
        [
            x[:, at] < np.quantile(x, q, axis=0)[at]
            for at in range(30)
            for q in (0.05, 0.3, 0.5, 0.9)
        ]
    ).reshape(-1, rows)
    exact = np.stack([left @ g, left @ h], axis=1)
    whole = np.broadcast_to([g.sum(), h.sum()], exact.shape)
    gains = compute_gains(exact, whole, np.ones_like(exact), Penalty())
    found = judge.gain(rate(judge, left @ judge.values))
    large = gains > 0.2 * gains.max()
    np.testing.assert_allclose(found[large], gains[large], rtol=0.1)


def test_light_sides_are_no_good():
    h = np.ones(100)
    g = np.r_[np.full(5, -10.0), np.full(95, 1.0)]
    splits_at = np.arange(1, 100)
    left = np.arange(100) < splits_at[:, None]
    for least in (1.0, 6.0, 20.0, 50.0):
        judge = make_judge(g, h, Penalty(0.0, 0.0, least), 100)
        rated = rate(judge, left @ judge.values)
        heavy = (splits_at >= least) & (splits_at <= 100 - least)
        assert (rated[heavy] > 0).all()
        assert not rated[(splits_at < 0.95 * least) | (splits_at > 100 - 0.95 * least)].any()
    judge = make_judge(g, h, Penalty(0.0, 0.0, 51.0), 100)
    assert not rate(judge, left @ np.ones((100, 2)).astype(int)).any()


def test_a_node_is_judged_alike_alone_and_among_others():
    rng = np.random.default_rng(1)
    lengths = np.array([40, 1, 7, 300, 2])
    g, h = rng.normal(size=(2, lengths.sum()))
    together = make_judges(g, h**2, lengths, Penalty(), 1_000)
    ends = np.cumsum(lengths)[:-1]
    for at, (first, second) in enumerate(zip(np.split(g, ends), np.split(h**2, ends), strict=True)):
        alone = make_judge(first, second, Penalty(), 1_000)
        assert (alone.folded == together.split()[at]).all()
        assert (alone.marks[0] == together.marks[at]).all()
        assert alone.gain(np.array([1000]))[0] == together.gain(np.full(5, 1000))[at]


def test_tables_have_their_bits_and_their_edges():
    for edge, cells in enumerate(EDGES):
        table = make_table(edge)
        assert table.max() < 128
        assert not table[:cells].any()
        assert not table[len(table) - cells :].any()
        assert (table == table[::-1]).all()
        assert table[len(table) // 2] == 22


# ---- one feature holder's best candidates -------------------------------------------------------

ROWS, NODES = 90, 4


def find_best(channel, made, judges, values, use):
    """One party's side of finding the best candidates of nodes of all rows."""
    cut = Bins.fit(made["B"], 6, "one-vs-rest")
    codes, candidates = cut.transform(made["B"]), Candidates.of(cut)
    sizes = [judge.sizes[0] for judge in judges]
    channel = channel.within("trees", protocol.DISCLOSURES)
    with join_pairs(channel, SHARES, None) as sessions:
        if channel.me == "B":
            pair = PairBest.begin(sessions["B"], codes=codes, candidates=candidates)
            rating, number = pair.find(NODES, sizes, use)
        elif channel.me == "C":
            pair = PairBest.begin(sessions["B"], rows=ROWS, plain_columns=2 * NODES)
            shifts = np.array([judge.marks[0, :2] * [-1, 1] for judge in judges])
            rating, number = pair.find(
                NODES, sizes, use, lambda some: values[:, 2 * some.start : 2 * some.stop], shifts
            )
        else:
            pair = PairBest.begin(sessions["B"])
            rating, number = pair.find(NODES)
        shown = pair.show_rating(rating)
        which = pair.show_number(number)
        inside = np.tile(np.arange(ROWS) % 3 == 0, (2, 1))
        left = np.stack([codes[:, 0] < 2, codes[:, 1] < 3])
        mine = {"C": {"inside": inside}, "B": {"left": left}}.get(channel.me, {})
        return shown, which, pair.show_sides(2, **mine), inside & left


def play_best(seed=0, transcript=None):
    made, target = tables(rows=ROWS, seed=seed, missing=0.2)
    rng = np.random.default_rng(seed)
    judges = [
        make_judge(target + rng.normal(size=ROWS), rng.random(ROWS), Penalty(), ROWS)
        for _ in range(NODES)
    ]
    values = np.concatenate([judge.values for judge in judges], axis=1)
    cut = Bins.fit(made["B"], 6, "one-vs-rest")
    candidates = Candidates.of(cut)
    use = rng.random((NODES, len(candidates))) < 0.7
    use[-1] = False
    play = partial(find_best, made=made, judges=judges, values=values, use=use)
    found = run_together(dict.fromkeys("BCK", play), transcript=transcript or Transcript())
    sums = Histograms(cut.transform(made["B"]), cut.width).sums(
        [np.arange(ROWS)] * NODES, [judge.folded for judge in judges]
    )
    left = candidates.sum_left(sums.reshape(NODES, -1))
    marks = np.concatenate([judge.marks for judge in judges])
    return found, np.where(use, rate_splits(left, marks), 0)


@pytest.mark.parametrize("seed", range(3))
def test_the_best_candidate_is_found_and_ties_go_to_the_lowest(seed):
    found, ratings = play_best(seed)
    shown, nothing, sides, expected = found["C"]
    assert nothing is None
    assert (shown == ratings.max(axis=1)).all()
    assert shown[:-1].min() > 0
    assert shown[-1] == 0
    hidden, numbers, none, _ = found["B"]
    assert hidden is None
    assert none is None
    assert (numbers == ratings.argmax(axis=1)).all()
    assert (sides == expected).all()
    assert found["K"][:3] == (None, None, None)


def share_of_ones():
    """Of all bits that cross masked or dealt, and how many there are."""
    ones, size = 0, 0
    transcript = Transcript(keep_views=True)
    play_best(transcript=transcript)
    for sight in transcript.sights:
        if sight.name.rsplit("/", 1)[-1] in ("masked", "dealt"):
            content = wire.decode(sight.body)[1].payload
            ones += int(np.unpackbits(content).sum())
            size += 8 * len(content)
    return ones / size, size


def test_what_crosses_is_uniform(monkeypatch):
    """Bits that cross look like coin flips; without masks they do not."""
    share, size = share_of_ones()
    assert size > 100_000
    # Seven deviations of a fair coin, and half a byte of padding for each message.
    assert abs(share - 0.5) < 7 * 0.5 / np.sqrt(size) + 0.003
    monkeypatch.setattr(Session, "join", partial(Session.join, hide=False))
    share, _ = share_of_ones()
    assert share < 0.4


# ---- the trees of plain -------------------------------------------------------------------------


@pytest.mark.parametrize("name", FOUR)
@pytest.mark.parametrize("task", TASKS)
def test_trees_on_shares_are_the_plain_ones(name, task):
    made, target = tables(rows=160, missing=0.2)
    count = TASKS[task]
    label = classes(target, count) if count else target
    kind = "classes" if count else "regression"
    categories = "sorted" if count == 3 else "one-vs-rest"
    model = FOUR[name](n_estimators=2, task=kind, categories=categories)
    shared = same_as_plain(model, parts_of(made, label))
    assert {party for party, *_ in splits(shared).values()} == {"B", "C"}


@pytest.mark.parametrize("name", FOUR)
def test_two_feature_holders(name):
    made, target = tables(rows=200, parties=("B", "D"), seed=4)
    shared = same_as_plain(FOUR[name](n_estimators=2), parts_of(made, classes(target)), TWO)
    assert {party for party, *_ in splits(shared).values()} == {"B", "C", "D"}


def test_row_weights_of_several_models():
    made, target = tables(rows=140)
    weights = np.random.default_rng(1).integers(0, 3, size=(140, 3)).astype(float)
    model = XGB(n_estimators=2, max_depth=3)
    same_as_plain(model, parts_of(made, classes(target), weights))


def test_no_order_of_rows_matters():
    """Rounding carries errors from row to row: in the order of ids, not in that of tables."""
    made, target = tables(rows=400)
    label, model = classes(target), XGB(n_estimators=1, max_depth=4)
    order = np.random.default_rng(0).permutation(400)
    turned = {party: table.take(order) for party, table in made.items()}
    found = [
        train(model, parts_of(*each)) for each in ((made, label), (turned, np.take(label, order)))
    ]
    first, second = (shares["C"].state["trees"][0] for shares in found)
    assert splits(found[0]) == splits(found[1])
    assert first["gain"] == second["gain"]
    assert len(splits(found[0])) > 8


def test_ties_go_to_the_lowest_column():
    made, target = tables(rows=150)
    x = made["B"].frame["B0"]
    copies = table_of(x.to_frame("a").assign(b=x * 2, c=x), "B")
    parts = parts_of({"C": table_of(x.to_frame() * 0, "C"), "B": copies}, target)
    found = splits(same_as_plain(XGB(n_estimators=1, max_depth=3, task="regression"), parts))
    assert {column for _, column, _, _ in found.values()} == {0}


def test_a_feature_holder_without_columns_only_follows():
    made, target = tables(rows=100, parties=("B", "D"))
    made["B"] = table_of(made["B"].frame[["B0"]] * 0, "B")
    shared = same_as_plain(XGB(n_estimators=2, max_depth=2), parts_of(made, classes(target)), TWO)
    assert {party for party, *_ in splits(shared).values()} == {"C", "D"}


def test_no_feature_holder_and_no_depth():
    made, target = tables(rows=80)
    alone = {"C": made["C"]}
    share = train(XGB(n_estimators=2), parts_of(alone, target > 0), Roles("C", (), "K", "shares"))
    plain = train(XGB(n_estimators=2), parts_of(alone, target > 0), Roles("C", (), "K", "plain"))
    assert share["C"].state == plain["C"].state
    same_as_plain(XGB(n_estimators=2, max_depth=0), parts_of(made, classes(target)))


def test_early_stopping_and_deep_leaves():
    made, target = tables(rows=200)
    settings = {"n_estimators": 6, "learning_rate": 1.0, "validation": 0.3, "patience": 2}
    same_as_plain(LGB(**settings, max_leaves=9), parts_of(made, classes(target)))


def test_columns_by_node_and_three_feature_holders():
    made, target = tables(rows=120, parties=("B", "D", "E"))
    model = RandomForest(n_estimators=2, together=2, max_depth=3, columns=0.3)
    roles = Roles("C", ("B", "D", "E"), "K", "shares")
    same_as_plain(model, parts_of(made, classes(target)), roles)


# ---- what crosses -------------------------------------------------------------------------------


def watch(model, parts, roles=SHARES):
    transcript = Transcript(keep_views=True)
    train(model, parts, roles, transcript=transcript)
    return transcript


def test_who_gets_what():
    made, target = tables(rows=120, parties=("B", "D"))
    transcript = watch(XGB(n_estimators=2, max_depth=3), parts_of(made, classes(target)), TWO)
    got = {(e.sender, e.receiver, e.message) for e in transcript.entries}
    for party in "BD":
        assert {name for sender, to, name in got if (sender, to) == ("C", party)} == {
            *("sizes", "setup", "trees", "size classes", "answer", "masked"),
            *("chosen", "chosen candidates", "next", "keep"),
        }
        assert {name for sender, to, name in got if (sender, to) == (party, "C")} == {
            *("sizes", "runs", "columns", "finished", "masked", "best")
        }
        assert {name for sender, to, name in got if (sender, to) == (party, "K")} == {"sizes"}
    assert {name for sender, to, name in got if (sender, to) == ("C", "K")} == {
        *("sizes", "trees", "nodes", "won")
    }
    assert not {entry for entry in got if set(entry[:2]) == {"B", "D"}}


def test_a_feature_holder_gets_no_bit_of_any_rows_side():
    """All that it gets in the clear is the same, whichever rows go where: labels of two rows that
    are alike in weight are swapped, and only masked words change."""
    made, target = tables(rows=80)
    label = classes(target)
    one, two = np.flatnonzero(label == 0)[0], np.flatnonzero(label == 1)[0]
    other = label.copy()
    other[[one, two]] = other[[two, one]]
    told = []
    for each in (label, other):
        transcript = watch(XGB(n_estimators=1, max_depth=1), parts_of(made, each))
        told.append(
            [
                (sight.name, repr(wire.decode(sight.body)[1]))
                for sight in sorted(transcript.sights, key=lambda sight: sight.name)
                if sight.receiver == "B"
                and sight.kind != "masked"
                and sight.name.rsplit("/", 1)[-1] not in ("seed", "chosen")
            ]
        )
    assert told[0] == told[1]


def test_size_classes_are_all_that_tells_of_a_nodes_rows():
    made, target = tables(rows=120)
    transcript = watch(XGB(n_estimators=1, max_depth=3), parts_of(made, classes(target)))
    clear = [
        wire.decode(sight.body)[1]
        for sight in transcript.sights
        if sight.receiver == "B" and sight.name.endswith("size classes")
    ]
    assert clear
    for each in clear:
        assert (each[:, 0] < len(EDGES)).all()
        assert each.shape[1] == len(Size.__dataclass_fields__)


# ---- faults -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("party", "message", "at"), [("C", "trees", 5), ("B", "best", 4)])
def test_a_training_goes_on_after_a_party_died(party, message, at, tmp_path):
    made, target = tables(rows=100)
    parts = parts_of(made, classes(target))
    model, left = XGB(n_estimators=4, max_depth=2), [at]

    def dying(name, value):
        left[0] -= name == message
        if left[0] < 0:
            raise Died
        return value

    with pytest.raises(Died):
        train_with(party, dying, model, parts, SHARES, keep=tmp_path)
    resumed, whole = train(model, parts, SHARES, keep=tmp_path), train(model, parts)
    assert resumed["C"].state == whole["C"].state
    assert resumed["B"].state == whole["B"].state


def other_nodes(value):
    return value | {"nodes": value["nodes"] + [0, 40]} if len(value["nodes"]) else value


@pytest.mark.parametrize(
    ("party", "message", "how", "says"),
    [
        ("B", "runs", lambda runs: runs + 1000, "candidates of no known runs"),
        ("C", "size classes", lambda sizes: sizes + 50, "size classes that there are not"),
        ("C", "chosen", other_nodes, "a split that was not offered"),
        ("C", "next", lambda value: value | {"more": 7}, "more"),
        ("C", "won", lambda count: -1, "'C'"),
    ],
)
def test_what_does_not_fit_is_refused(party, message, how, says):
    made, target = tables(rows=80)
    parts = parts_of(made, classes(target))
    model = XGB(n_estimators=1, max_depth=2)
    with pytest.raises(ProtocolError, match=says):
        train_with(party, spoil(message, how), model, parts, SHARES)


# ---- small tables -------------------------------------------------------------------------------


def test_a_small_table_is_fitted_as_well_as_by_xgboost():
    """Friedman's function on 300 rows with some noise; the same settings, other bins."""
    xgboost = pytest.importorskip("xgboost")
    ratios = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x = rng.random((900, 6))
        y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2
        y = y + 10 * x[:, 3] + 5 * x[:, 4] + rng.normal(size=900)
        columns = [f"x{at}" for at in range(6)]
        frames = {
            "C": table_of(pd.DataFrame(x[:300, ::2], columns=columns[::2]), "C"),
            "B": table_of(pd.DataFrame(x[:300, 1::2], columns=columns[1::2]), "B"),
        }
        new = {
            "C": table_of(pd.DataFrame(x[300:, ::2], columns=columns[::2]), "C"),
            "B": table_of(pd.DataFrame(x[300:, 1::2], columns=columns[1::2]), "B"),
        }
        model = XGB(n_estimators=30, max_depth=4, task="regression", learning_rate=0.2)
        shares = train(model, parts_of(frames, y[:300]))
        ours = scores(model, parts_of(new, y[300:]), shares)[:, 0]
        peer = xgboost.XGBRegressor(
            n_estimators=30,
            max_depth=4,
            learning_rate=0.2,
            max_bin=32,
            tree_method="hist",
            n_jobs=1,
        ).fit(x[:300], y[:300])
        theirs = peer.predict(x[300:])
        ratios.append(np.sqrt(((ours - y[300:]) ** 2).mean() / ((theirs - y[300:]) ** 2).mean()))
    assert np.mean(ratios) < 1.03, ratios
