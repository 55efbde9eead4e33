"""Trees on shares, sums shown: the trees of plain, in an order that only their owner knows."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.estimators.trees.tree_cases import (
    FOUR,
    SHARES,
    classes,
    parts_of,
    splits,
    table_of,
    tables,
    train,
    train_with,
)
from vfsl.channel import Transcript, run_together, wire
from vfsl.crypto.session import absent
from vfsl.crypto.words import to_signed
from vfsl.errors import ProtocolError
from vfsl.estimators import XGB, RandomForest, Roles
from vfsl.estimators.trees import protocol
from vfsl.estimators.trees.binning import Bins, Histograms
from vfsl.estimators.trees.shared_sums import WIDTH, PairSums, Runs, add_runs, join_pairs
from vfsl.estimators.trees.splits import Candidates, row_limit

TWO = Roles("C", ("B", "D"), "K", "shares")
TASKS = {"two classes": 2, "three classes": 3, "numbers": 0}


def plainly(roles):
    return Roles(roles.label_holder, roles.feature_holders, roles.key_holder, "plain")


def same_as_plain(model, parts, roles=SHARES, **how):
    """The shares of a training on shares, which must be those of a plain one."""
    shared, plain = train(model, parts, roles, **how), train(model, parts, plainly(roles))
    for party in roles.data_holders:
        assert shared[party].state == plain[party].state
        assert shared[party].rounds == plain[party].rounds
    assert (shared["C"].scores == plain["C"].scores).all()
    assert shared["K"] is None
    return shared


# ---- runs of bins -------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    bins=st.integers(2, 9),
    categories=st.sampled_from(["one-vs-rest", "sorted"]),
    missing=st.sampled_from([0.0, 0.2]),
)
def test_runs_add_up_to_the_sums_of_candidates(seed, bins, categories, missing):
    made, _ = tables(rows=60, seed=seed, missing=missing)
    cut = Bins.fit(made["B"], bins, categories)
    codes, candidates = cut.transform(made["B"]), Candidates.of(cut)
    values = np.random.default_rng(seed).integers(-1000, 1000, size=(60, 2))
    cells = Histograms(codes, cut.width)
    sums = [cells.add_up([np.arange(60)], [each])[0, 0].reshape(1, -1) for each in values.T]
    expected = np.stack([candidates.sum_left(each) for each in sums], axis=-1)
    runs = Runs.of(candidates)
    words = (runs.find(codes).T @ values)[None].view(np.uint64)
    assert (add_runs(words, runs.parts).view(np.int64) == expected).all()


def test_a_column_without_gaps_needs_a_run_less_than_it_has_bins():
    made, _ = tables(rows=200, missing=0.0)
    cut = Bins.fit(made["B"], 8, "sorted")
    assert len(Runs.of(Candidates.of(cut))) == sum(column.size - 1 for column in cut.columns)
    made, _ = tables(rows=200, missing=0.2)
    cut = Bins.fit(made["B"], 8, "sorted")
    gaps = sum(column.missing for column in cut.columns)
    runs = sum(column.size - 1 for column in cut.columns) + 2 * gaps
    assert len(Runs.of(Candidates.of(cut))) == runs
    assert len(Candidates.of(cut)) > runs


# ---- sums and the shuffle -----------------------------------------------------------------------

ROWS, NODES = 120, 5


def sum_and_shuffle(channel, made, values, seen=None):
    """One party's side of summing and showing nodes of all rows; what it ends with."""
    cut = Bins.fit(made["B"], 6, "one-vs-rest")
    codes, candidates = cut.transform(made["B"]), Candidates.of(cut)
    channel = channel.within("trees", protocol.DISCLOSURES)
    with join_pairs(channel, SHARES, None) as sessions:
        if channel.me == "B":
            pair = PairSums.begin(sessions["B"], codes=codes, candidates=candidates)
            words, order = pair.shuffle(pair.sum(NODES))
            pair.show(words, np.ones(order.shape, dtype=bool) if seen is None else seen)
            return words, order
        if channel.me == "C":
            pair = PairSums.begin(sessions["B"], rows=ROWS, plain_columns=2 * NODES)
            words = pair.sum(NODES, lambda some: values[:, 2 * some.start : 2 * some.stop])
            words, order = pair.shuffle(words)
            assert not order.size
            return words, pair.read(words)
        pair = PairSums.begin(sessions["B"])
        pair.sum(NODES)
        return pair.shuffle(absent((NODES, pair.shape[0], 2)))


def play_sums(seed=0, seen=None, transcript=None):
    made, _ = tables(rows=ROWS, seed=seed)
    most = row_limit(ROWS)
    values = np.random.default_rng(seed).integers(-most, most + 1, size=(ROWS, 2 * NODES))
    play = partial(sum_and_shuffle, made=made, values=values, seen=seen)
    found = run_together(dict.fromkeys("BCK", play), transcript=transcript or Transcript())
    cut = Bins.fit(made["B"], 6, "one-vs-rest")
    by_node = values.reshape(ROWS, NODES, 2).swapaxes(0, 1)
    histograms, everyone = (
        Histograms(cut.transform(made["B"]), cut.width),
        [np.arange(ROWS)] * NODES,
    )
    each = [histograms.add_up(everyone, by_node[:, :, place])[:, 0] for place in range(2)]
    sums = np.stack(each, axis=-1)
    return found, Candidates.of(cut).sum_left(sums.reshape(NODES, -1, 2))


def test_shown_sums_are_the_candidates_in_the_owners_order():
    found, expected = play_sums()
    (words, order), (own, shown) = found["B"], found["C"]
    assert (
        to_signed(words + own, WIDTH) == np.take_along_axis(expected, order[..., None], 1)
    ).all()
    for node, sums in enumerate(shown):
        assert (sums == expected[node][order[node]]).all()
    assert (order == found["K"][1]).all()
    assert len({tuple(each) for each in order}) == NODES
    assert (np.sort(order, axis=1) == np.arange(order.shape[1])).all()


def test_only_what_may_be_seen_is_shown():
    _, expected = play_sums()
    seen = np.random.default_rng(1).random(expected.shape[:2]) < 0.3
    found, _ = play_sums(seen=seen)
    order = found["B"][1]
    for node, sums in enumerate(found["C"][1]):
        assert (sums == expected[node][order[node][seen[node]]]).all()


def test_words_on_their_own_are_uniform():
    """Neither side's words tell of sums: each bit is set in half of them."""
    found, _ = play_sums()
    for words in (found["B"][0], found["C"][0]):
        bits = (words.reshape(-1, 1) >> np.arange(WIDTH, dtype=np.uint64)) & np.uint64(1)
        spread = abs(bits.mean(axis=0) - 0.5) / (0.5 / np.sqrt(len(bits)))
        assert spread.max() < 5


def test_chunks_of_nodes_give_the_same_sums(monkeypatch):
    monkeypatch.setattr("vfsl.estimators.trees.shared_sums._CELLS_AT_ONCE", 4 * ROWS)
    found, expected = play_sums()
    (words, order), (own, _) = found["B"], found["C"]
    assert (
        to_signed(words + own, WIDTH) == np.take_along_axis(expected, order[..., None], 1)
    ).all()


# ---- the trees of plain -------------------------------------------------------------------------


@pytest.mark.parametrize("name", FOUR)
def test_trees_on_shares_are_the_plain_ones(name):
    made, target = tables(rows=160, missing=0.2)
    model = FOUR[name](n_estimators=2, candidates="sums")
    shared = same_as_plain(model, parts_of(made, classes(target)))
    assert {party for party, *_ in splits(shared).values()} == {"B", "C"}


def test_two_feature_holders_one_of_them_without_columns():
    made, target = tables(rows=100, parties=("B", "D"))
    made["B"] = table_of(made["B"].frame[["B0"]] * 0, "B")
    model = XGB(n_estimators=2, max_depth=2, candidates="sums")
    shared = same_as_plain(model, parts_of(made, classes(target)), TWO)
    assert {party for party, *_ in splits(shared).values()} == {"C", "D"}


# ---- what crosses -------------------------------------------------------------------------------


def test_bins_cross_once_and_the_dealer_gets_sizes_only():
    made, target = tables(rows=120)
    sent = {}
    for trees in (1, 4):
        transcript = Transcript(keep_views=True)
        train(
            XGB(n_estimators=trees, max_depth=3, candidates="sums"),
            parts_of(made, classes(target)),
            SHARES,
            transcript=transcript,
        )
        names = [(e.sender, e.receiver, e.message) for e in transcript.entries]
        assert names.count(("B", "C", "columns")) == 1
        to_dealer = {(sender, name) for sender, receiver, name in names if receiver == "K"}
        assert to_dealer == {
            *((party, "sizes") for party in "BC"),
            ("B", "runs"),
            *(("C", name) for name in ("trees", "nodes", "sums")),
        }
        sent[trees] = sum(entry.bytes for entry in transcript.entries)
    # Each further tree costs little beside what crosses once.
    assert sent[4] < 2 * sent[1]


def sees_before_the_first_split(label, weights=None):
    """(sender, name, kind, size) of what B receives, and the clear values in it."""
    made, _ = tables(rows=60)
    transcript = Transcript(keep_views=True)
    model = XGB(n_estimators=1, max_depth=1, max_bins=4, candidates="sums")
    train(model, parts_of(made, label, weights), SHARES, transcript=transcript)
    lines = []
    for sight in sorted(transcript.sights, key=lambda sight: sight.sender):
        message = sight.name.rsplit("/", 1)[-1]
        if sight.receiver == "B":
            if message == "chosen":
                break
            hidden = sight.kind == "masked" or message == "seed"
            value = None if hidden else repr(wire.decode(sight.body)[1])
            lines.append((sight.sender, sight.name, sight.kind, len(sight.body), value))
    return lines


def test_before_the_first_split_a_feature_holder_sees_nothing_of_labels_and_weights():
    _, target = tables(rows=60)
    label, bag = classes(target), np.ones(60)
    bag[:30] = 0.0
    first = sees_before_the_first_split(label)
    assert [name for _, name, *_ in first if name.endswith("answer")]
    assert sees_before_the_first_split(1 - label) == first
    assert sees_before_the_first_split(label, bag) == first


def test_every_sum_that_the_label_holder_sees_is_over_ten_rows(monkeypatch):
    """With squared loss and equal weights h counts rows."""
    rows, seen, read = 150, [], PairSums.read

    def look(self, words):
        shown = read(self, words)
        seen.extend(shown)
        return shown

    monkeypatch.setattr(PairSums, "read", look)
    made, target = tables(rows=rows, missing=0.1)
    model = XGB(n_estimators=1, max_depth=3, max_bins=16, task="regression", candidates="sums")
    train(model, parts_of(made, target), SHARES)
    assert len(seen) >= 5
    assert max(map(len, seen)) > 10
    for sums in seen:
        counts, rest = np.divmod(sums[:, 1], row_limit(rows))
        assert not rest.any()
        assert (counts >= 10).all()
        assert (counts <= rows - 10).all()


@pytest.mark.parametrize("kind", [XGB, RandomForest])
def test_the_key_of_the_columns_is_fresh_in_each_training(kind):
    made, target = tables(rows=80)
    came = []
    for _ in range(2):
        transcript = Transcript(keep_views=True)
        train(
            kind(n_estimators=1, max_depth=2),
            parts_of(made, classes(target)),
            SHARES,
            transcript=transcript,
        )
        came += [sight.body for sight in transcript.sights if sight.name.endswith("/columns")]
    assert len(came) == 2
    assert came[0] != came[1]


# ---- faults -------------------------------------------------------------------------------------


class Died(Exception):
    """What the test lets a party die of."""


@pytest.mark.parametrize(("party", "message", "at"), [("C", "trees", 5), ("B", "shown", 4)])
def test_a_training_goes_on_with_fresh_keys_after_a_party_died(party, message, at, tmp_path):
    made, target = tables(rows=120)
    parts = parts_of(made, classes(target))
    model, left = XGB(n_estimators=4, max_depth=2, candidates="sums"), [at]

    def dying(name, value):
        left[0] -= name == message
        if left[0] < 0:
            raise Died
        return value

    with pytest.raises(Died):
        train_with(party, dying, model, parts, SHARES, keep=tmp_path)
    kept = sorted(path.name for path in (tmp_path / "C" / "rounds").glob("round-*.json"))
    assert 1 <= len(kept) < 4
    resumed = train(model, parts, SHARES, keep=tmp_path)
    whole = train(model, parts)
    assert resumed["C"].state == whole["C"].state
    assert resumed["B"].state == whole["B"].state


def spoil(message, how):
    def change(name, value):
        return how(value) if name == message else value

    return change


def more_seen(value):
    value.payload["seen"] = np.full_like(value.payload["seen"], 255)
    return value


@pytest.mark.parametrize(
    ("party", "message", "how", "says"),
    [
        ("B", "shown", more_seen, "shows other sums than it says"),
        ("B", "runs", lambda parts: parts + 1000, "candidates of no known runs"),
        ("B", "runs", lambda parts: parts[:-1], "'B'"),
        ("C", "sizes", lambda sizes: sizes | {"rows": 7}, "7 rows"),
        ("C", "sums", lambda sums: -1, "'C'"),
    ],
)
def test_what_does_not_fit_is_refused(party, message, how, says):
    made, target = tables(rows=80)
    parts = parts_of(made, classes(target))
    model = XGB(n_estimators=1, max_depth=2, candidates="sums")
    with pytest.raises(ProtocolError, match=says):
        train_with(party, spoil(message, how), model, parts, SHARES)
