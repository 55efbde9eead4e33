"""Trees: what each party sees, by changing cells and labels and planting markers."""

from dataclasses import replace

import numpy as np
import pytest

from tests.estimators.trees.tree_cases import (
    BFV,
    PAILLIER,
    PLAIN,
    classes,
    parts_of,
    scores,
    splits,
    table_of,
    tables,
    train,
    train_with,
)
from vfsl.channel import Transcript, wire
from vfsl.crypto import make_scheme
from vfsl.crypto.fixed import unfold
from vfsl.draws import draw_announced_seed
from vfsl.errors import ProtocolError, QueryRefused
from vfsl.estimators import GBDT, LGB, XGB, RandomForest, Roles
from vfsl.estimators.trees import protocol, scoring, shared_scoring
from vfsl.estimators.trees.binning import Bins
from vfsl.estimators.trees.boosting import Boosting, draw_subsample
from vfsl.estimators.trees.forest import Bagging, draw_bootstrap
from vfsl.estimators.trees.splits import FOLD_BITS, find_sides
from vfsl.values import Ciphertext, Masked

ROWS = 240
SMALL = XGB(n_estimators=2, max_depth=3, max_bins=8, task="regression", candidates="sums")
# What changes from run to run: keys, what lies under them, and a party's own shuffled numbers.
RANDOM = ("ciphertext", "masked")
# What the label holder tells a feature holder in the clear.
TO_B = ("setup", "trees", "chosen", "partition", "keep")


def views(made, target, model=SMALL, roles=PLAIN, weights=None):
    transcript = Transcript(keep_views=True)
    parts = parts_of(made, target, weights)
    shares = train(model, parts, roles, transcript=transcript)
    scores(model, parts, shares, roles, transcript=transcript)
    return transcript


def seen_by(transcript, party):
    """(sender, name, kind, size, value) of all that a party got, by sender in their order."""
    mine = [sight for sight in transcript.sights if sight.receiver == party]
    return [
        (s.sender, s.name, s.kind, len(s.body), wire.decode(s.body)[1])
        for s in sorted(mine, key=lambda sight: sight.sender)
    ]


def readable(transcript, party, until=None):
    """The same without what is random in every run; up to the first message of a name."""
    lines = []
    for sender, name, kind, size, value in seen_by(transcript, party):
        message = name.rsplit("/", 1)[-1]
        if message == until:
            break
        if message in ("public key", "seed"):
            continue
        if message == "chosen":  # handles stand for the receiver's own random order
            value = {key: each.tolist() for key, each in value.items() if key != "handles"}
        elif kind in RANDOM:
            value = None
        lines.append((sender, name, kind, size, repr(value)))
    return lines


def opened_by_label_holder(transcript, roles=PLAIN):
    """(g, h) as integers of every candidate of every node, from nothing but C's view."""
    came = {}
    for _, name, _, _, value in seen_by(transcript, "C"):
        came.setdefault(name.rsplit("/", 1)[-1], []).append((name, value))
    key = make_scheme(roles.scheme, roles.security).load_public(came["public key"][0][1])
    nodes = []
    for (_, masks), (_, answers) in zip(came["masks"], came["opened"], strict=True):
        pairs = zip(masks.payload["masks"], answers.payload, strict=True)
        folded = [key.load_mask(Masked(mask)).remove(Masked(answer)) for mask, answer in pairs]
        sums = unfold(np.concatenate(folded), 2, FOLD_BITS)
        nodes += np.split(sums, np.cumsum(masks.payload["shown"])[:-1])
    return nodes


# ---- a feature holder ----


@pytest.mark.parametrize("roles", [PLAIN, PAILLIER, BFV], ids=lambda roles: roles.scheme)
def test_before_the_first_split_a_feature_holder_sees_nothing_of_labels_and_weights(roles):
    made, target = tables(rows=60)
    model = XGB(n_estimators=1, max_depth=1, max_bins=4, candidates="sums")
    label = classes(target)
    other = label.copy()
    other[7] = 1 - other[7]
    bag = np.ones(60)
    bag[:30] = 0.0
    first = readable(views(made, label, model, roles), "B", until="chosen")
    assert any(name.endswith("gradients") for _, name, *_ in first)
    for second in (
        views(made, other, model, roles),
        views(made, label, model, roles, weights=bag),
        views(made, 1 - label, model, roles),
    ):
        assert readable(second, "B", until="chosen") == first


@pytest.mark.parametrize(
    "model", [SMALL, LGB(n_estimators=2, max_leaves=5, task="regression", candidates="sums")]
)
def test_a_feature_holder_sees_no_gradient_and_no_leaf_value(model):
    """A target 1,024 times as large has other gradients and leaves, and the same trees: all that
    a feature holder can read is the same, to the byte."""
    made, target = tables(rows=ROWS)
    one, two = views(made, target, model), views(made, target * 1024, model)
    assert readable(one, "B") == readable(two, "B")
    assert readable(one, "K") == readable(two, "K")


def test_a_feature_holder_gets_whole_numbers_only():
    made, target = tables(rows=ROWS)

    def parts_in(value):
        if isinstance(value, dict):
            for each in value.values():
                yield from parts_in(each)
        else:
            yield value

    names = set()
    for sender, name, kind, _, value in seen_by(views(made, target), "B"):
        message = name.rsplit("/", 1)[-1]
        names.add((sender, message))
        if kind in RANDOM or message in ("public key", "seed"):
            continue
        for part in parts_in(value):
            assert np.asarray(part).dtype.kind in "iu", message
    assert names == {
        ("K", "public key"),
        ("C", "setup"),
        ("C", "trees"),
        ("C", "gradients"),
        ("C", "chosen"),
        ("C", "partition"),
        ("C", "keep"),
        ("K", "seed"),
        ("C", "paths"),
        ("C", "announced"),
        ("C", "sizes"),
        ("C", "masked"),
        ("K", "dealt"),
    }


@pytest.mark.parametrize(
    "model",
    [
        XGB(n_estimators=1, subsample=0.5),
        GBDT(n_estimators=1, subsample=0.5),
        RandomForest(n_estimators=1),
    ],
    ids=lambda model: model.name,
)
def test_a_feature_holder_cannot_draw_the_bag_again(model, monkeypatch):
    """It is told a seed, for columns; the rows must not follow from it."""
    made, target = tables(rows=ROWS)
    bags = []
    for kind in (Boosting, Bagging):
        real = kind.set_goals

        def spy(self, fitted, number, rng, real=real):
            made = real(self, fitted, number, rng)
            bags.extend(goal.second > 0 for goal in made)
            return made

        monkeypatch.setattr(kind, "set_goals", spy)
    seen = {
        name.rsplit("/", 1)[-1]: v
        for _, name, _, _, v in seen_by(views(made, classes(target), model), "B")
    }
    seed = seen["setup"]["seed"]
    assert seed == draw_announced_seed(np.random.default_rng(0))  # a hash of C's stream
    for guess in ([seed, 0], [seed], seed, [seed, 1]):
        drawn = draw_subsample(ROWS, 0.5, np.random.default_rng(guess))
        times = draw_bootstrap(np.ones((ROWS, 1)), np.random.default_rng(guess))[:, 0] > 0
        assert not np.array_equal(drawn, bags[0])
        assert not np.array_equal(times, bags[0])
    assert 0.3 < bags[0].mean() < 0.8


# ---- the label holder ----


def test_markers_never_cross():
    """Names, categories, ids, cells and edges stay at home, even without encryption."""
    made, target = tables(rows=ROWS)
    frame = made["B"].frame.rename(columns={"B0": "MARKER-COLUMN", "B-group": "MARKER-GROUP"})
    frame["MARKER-GROUP"] = frame["MARKER-GROUP"].replace({"x": "MARKER-CATEGORY"})
    made["B"] = table_of(frame, "B")
    transcript = views(made, target)
    edges = [
        edge
        for column in Bins.fit(made["B"], SMALL.max_bins, "one-vs-rest").columns
        for edge in column.edges
    ]
    numbers = [np.float64(number).tobytes() for number in [*edges, *frame["MARKER-COLUMN"]]]
    assert len(numbers) > ROWS
    assert len(transcript.sights) > 20
    for sight in transcript.sights:
        if sight.name.endswith("public key"):
            continue
        for marker in (b"MARKER", b"person-"):
            assert marker not in sight.body
        if sight.sender == "B":
            assert not any(number in sight.body for number in numbers)


def moved_within_its_bin(made):
    """B's table with one cell changed that falls into the same bin as before."""
    frame = made["B"].frame.copy()
    bins = Bins.fit(made["B"], SMALL.max_bins, "one-vs-rest")
    before = bins.transform(made["B"])
    frame.loc[7, "B0"] += 1e-9
    changed = table_of(frame, "B")
    after = Bins.fit(changed, SMALL.max_bins, "one-vs-rest").transform(changed)
    assert (before == after).all()
    return {**made, "B": changed}


def test_a_cell_that_keeps_its_bin_shows_nowhere():
    made, target = tables(rows=ROWS)
    one, two = views(made, target), views(moved_within_its_bin(made), target)
    for party in ("C", "K"):
        assert readable(one, party) == readable(two, party)
    sums = [[sorted(map(tuple, node)) for node in opened_by_label_holder(v)] for v in (one, two)]
    assert sums[0] == sums[1]


@pytest.mark.parametrize("roles", [PLAIN, PAILLIER, BFV], ids=lambda roles: roles.scheme)
def test_every_sum_that_the_label_holder_opens_is_over_ten_rows(roles):
    """With squared loss and equal weights h counts rows, so C's own view tells how many."""
    rows = 150
    made, target = tables(rows=rows, missing=0.1)
    model = XGB(n_estimators=1, max_depth=3, max_bins=16, task="regression", candidates="sums")
    transcript = views(made, target, model, roles)
    nodes = opened_by_label_holder(transcript, roles)
    step = ((1 << (FOLD_BITS - 1)) - 1) // rows
    assert len(nodes) >= 5
    sizes = [len(node) for node in nodes]
    assert max(sizes) > 10
    for node in nodes:
        counts, rest = np.divmod(node[:, 1], step)
        assert not rest.any()
        assert (counts >= 10).all()
        assert (counts <= rows - 10).all()


def test_what_is_left_of_a_node_is_over_ten_rows_too():
    """C knows the total of each node, and so what a candidate sends to the right."""
    rows = 150
    made, target = tables(rows=rows, missing=0.1)
    model = XGB(n_estimators=1, max_depth=3, max_bins=16, task="regression", candidates="sums")
    transcript = Transcript(keep_views=True)
    shares = train(model, parts_of(made, target), transcript=transcript)
    followed = rows_of_nodes(made, shares)
    wanted = [(0, 0)]
    for _, name, _, _, value in seen_by(transcript, "B"):
        if name.endswith("partition"):
            wanted += [tuple(pair) for pair in value["wanted"].tolist()]
    step = ((1 << (FOLD_BITS - 1)) - 1) // rows
    opened = opened_by_label_holder(transcript)
    assert len(wanted) >= 5
    for (_, node), sums in zip(wanted, opened, strict=True):
        assert (len(followed[node]) - sums[:, 1] // step >= 10).all()


def rows_of_nodes(made, shares):
    """The rows of each node of the first tree, followed by the parties' own rules."""
    tree = shares["C"].state["trees"][0]
    found = {party: Bins.from_dict(shares[party].state["bins"]) for party in ("B", "C")}
    codes = {party: bins.transform(made[party]) for party, bins in found.items()}
    rules = {node: rule for (at, node), rule in splits(shares).items() if at == 0}
    rows = {0: np.arange(len(made["C"]))}
    for node in range(len(tree["owner"])):
        if node in rules:
            party, *rule = rules[node]
            left = find_sides(found[party], rule, codes[party], rows[node])
            rows[tree["left"][node]] = rows[node][left]
            rows[tree["left"][node] + 1] = rows[node][~left]
    return rows


def test_the_order_of_candidates_is_drawn_anew_for_each_node():
    """Two models on the same weights have the same root; its candidates come in another order."""
    made, target = tables(rows=ROWS)
    model = XGB(n_estimators=1, max_depth=1, task="regression", candidates="sums")
    runs = [
        opened_by_label_holder(views(made, target, model, weights=np.ones((ROWS, 2))))
        for _ in range(2)
    ]
    roots = [node.tolist() for run in runs for node in run]
    assert len(roots) == 4
    assert all(sorted(root) == sorted(roots[0]) for root in roots)
    assert len({str(root) for root in roots}) == 4


def test_sides_cover_all_rows_of_the_node_in_the_bag_or_not():
    made, target = tables(rows=ROWS)
    made["C"] = table_of(made["C"].frame[["C0"]] * 0, "C")
    model = XGB(n_estimators=1, max_depth=1, task="regression", candidates="sums")
    weights = np.ones(ROWS)
    weights[: ROWS // 2] = 0.0
    transcript = Transcript(keep_views=True)
    parts = parts_of(made, target, weights)
    shares = train(model, parts, transcript=transcript)
    (bits,) = (v for _, name, _, _, v in seen_by(transcript, "C") if name.endswith("sides"))
    ((_, *rule),) = splits(shares).values()
    bins = Bins.from_dict(shares["B"].state["bins"])
    codes = bins.transform(made["B"])
    left = find_sides(bins, rule, codes, np.arange(len(codes)))
    assert np.unpackbits(bits, count=ROWS).astype(bool).tolist() == left.tolist()
    assert len(bits) == ROWS // 8


def test_without_a_key_holder_sides_are_asked_for_rows_that_come_to_a_split():
    """One question and one answer a level, for all trees together, of just these rows."""
    made, target = tables(rows=ROWS)
    parts, model = parts_of(made, target), replace(SMALL, keys="label-holder")
    shares = train(model, parts)
    transcript = Transcript(keep_views=True)
    scores(model, parts, shares, transcript=transcript)
    talk = [(entry.sender, entry.receiver, entry.message) for entry in transcript.entries]
    levels = len(talk) // 2
    assert talk == [("C", "B", "reached"), ("B", "C", "sides")] * levels
    assert 1 < levels <= SMALL.max_depth
    questions = [value for *_, value in seen_by(transcript, "B")]
    answers = [value for *_, value in seen_by(transcript, "C")]
    asked = {}
    for question, answer in zip(questions, answers, strict=True):
        rows = np.unpackbits(question["rows"], count=len(question["nodes"]) * ROWS)
        rows = rows.reshape(-1, ROWS).astype(bool)
        assert len(answer) == (rows.sum() + 7) // 8
        nodes = map(tuple, question["nodes"].tolist())
        asked |= dict(zip(nodes, rows, strict=True))
    own = [node for node, (party, *_) in splits(shares).items() if party == "B"]
    assert set(asked) == set(own)
    followed = rows_of_nodes(made, shares)
    for at, node in own:
        if at == 0:
            assert np.flatnonzero(asked[at, node]).tolist() == followed[node].tolist()


# ---- the key holder ----


def test_the_key_holder_sees_nothing_of_a_label_or_a_weight_at_the_root():
    made, target = tables(rows=ROWS)
    other, heavier = target.copy(), np.ones(ROWS)
    other[3] += 5
    heavier[5] = 2.0
    model = XGB(n_estimators=1, max_depth=1, task="regression", candidates="sums")
    one = readable(views(made, target, model), "K")
    assert {line[1].rsplit("/", 1)[-1] for line in one} == {
        "columns",
        "nodes",
        "trees",
        "histograms",
        "sizes",
        "announced",
    }
    for two in (views(made, other, model), views(made, target, model, weights=heavier)):
        assert readable(two, "K") == one


def test_the_key_holder_opens_uniform_numbers():
    made, target = tables(rows=ROWS)
    values = [
        part["values"]
        for _, name, _, _, value in seen_by(views(made, target), "K")
        if name.endswith("histograms")
        for part in value.payload
    ]
    numbers = np.concatenate(values)
    assert len(numbers) > 200
    for bits in (59, 0):  # the highest and the lowest three of 62
        counts = np.bincount(((numbers >> np.uint64(bits)) & np.uint64(7)).astype(int), minlength=8)
        expected = len(numbers) / 8
        assert ((counts - expected) ** 2 / expected).sum() < 40  # p < 1e-5 beyond this


def test_the_key_holder_answers_no_more_nodes_than_were_announced():
    made, target = tables(rows=60)

    def ask_twice(name, value):
        return Ciphertext(value.payload * 2) if name == "histograms" else value

    with pytest.raises(QueryRefused, match="declares no request named '1'"):
        train_with("B", ask_twice, SMALL, parts_of(made, target))


# ---- what all see ----


@pytest.mark.parametrize("keys", ["key-holder", "label-holder"])
def test_every_message_has_its_declared_kind(keys):
    made, target = tables(rows=100)
    model = XGB(n_estimators=1, max_depth=2, task="regression", keys=keys, candidates="sums")
    transcript = views(made, target, model)
    more = shared_scoring if keys == "key-holder" else scoring
    declared = protocol.DISCLOSURES | more.DISCLOSURES
    for entry in transcript.entries:
        assert entry.kind == getattr(declared[entry.message].type, "kind", "plain")
    raw = {(e.sender, e.receiver, e.message) for e in transcript.entries if e.kind == "plain"}
    to_b = {("C", "B", name) for name in TO_B}
    from_b = {("B", "C", name) for name in ("columns", "finished", "sides")}
    with_key_holder = {
        *(("C", "B", name) for name in ("paths", "announced", "sizes")),
        *(("C", "K", name) for name in ("announced", "sizes")),
        *(("B", name, "sizes") for name in ("C", "K")),
        *(("K", name, "seed") for name in ("B", "C")),
        ("K", "B", "public key"),
        ("K", "C", "public key"),
        ("B", "K", "columns"),
        ("C", "K", "trees"),
        ("C", "K", "nodes"),
    }
    without = {("C", "B", "public key"), ("C", "B", "reached")}
    assert raw == to_b | from_b | (with_key_holder if keys == "key-holder" else without)


def test_two_feature_holders_see_nothing_of_each_other_but_rows():
    made, target = tables(rows=ROWS, parties=("B", "D"))
    roles = Roles("C", ("B", "D"), "K", "plain")
    transcript = views(made, target, roles=roles)
    among = [e for e in transcript.entries if {e.sender, e.receiver} == {"B", "D"}]
    assert {e.message for e in among} == {"sizes", "masked"}
    frame = made["D"].frame.rename(columns={"D0": "MARKER"})
    marked = {**made, "D": table_of(frame, "D")}
    for sight in views(marked, target, roles=roles).sights:
        assert b"MARKER" not in sight.body


# ---- parties that do not keep to it ----


def test_a_split_that_was_not_offered_is_refused():
    made, target = tables(rows=100)

    def elsewhere(name, value):
        return value | {"handles": value["handles"] + 10**6} if name == "chosen" else value

    with pytest.raises(ProtocolError, match="'C' chose a split that was not offered"):
        train_with("C", elsewhere, SMALL, parts_of(made, target))


def test_a_node_that_is_not_open_is_refused():
    made, target = tables(rows=100)

    def elsewhere(name, value):
        return value | {"wanted": np.array([[0, 77]])} if name == "partition" else value

    with pytest.raises(ProtocolError, match=r"'C' names the node \(0, 77\), which is not open"):
        train_with("C", elsewhere, SMALL, parts_of(made, target))


def test_a_short_bitmap_is_refused():
    made, target = tables(rows=100)

    def shorter(name, value):
        return value[:-1] if name == "sides" else value

    with pytest.raises(ProtocolError, match="'B' sent a bitmap of"):
        train_with("B", shorter, SMALL, parts_of(made, target))


def test_a_node_without_an_answer_is_refused():
    made, target = tables(rows=100)

    def none(name, value):
        return Masked(value.payload | {"masks": []}) if name == "masks" else value

    with pytest.raises(ProtocolError, match="'B' did not answer 1 requests"):
        train_with("B", none, SMALL, parts_of(made, target))


@pytest.mark.parametrize(
    ("message", "change", "match"),
    [
        ("order", lambda value: value * 0, "an order that has not each row once"),
        ("judged", lambda value: value | {"marks": value["marks"] + 500}, "that there are not"),
        ("judged", lambda value: value | {"values": value["values"][1:]}, "judged"),
    ],
)
def test_judges_that_cannot_be_are_refused(message, change, match):
    """Under plain, where the best candidates are looked for."""
    made, target = tables(rows=100)

    def changed(name, value):
        return change(value) if name == message else value

    with pytest.raises(ProtocolError, match=match):
        train_with("C", changed, replace(SMALL, candidates="best"), parts_of(made, target))
