"""The small pieces of RISA alone: rows, columns, encoders, removal, pseudo labels, trust."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfsl.data import PartyTable
from vfsl.errors import ConfigError, DataError, StoreError
from vfsl.evidence import CNN, MLP
from vfsl.evidence.columns import MatrixColumns, MixedColumns, PixelColumns, columns_from
from vfsl.evidence.encoders import Custom, build_network, mean_row, recipe_for
from vfsl.evidence.member import Learning
from vfsl.evidence.opinion import opinion_of
from vfsl.evidence.removal import Watch, left_table, threshold
from vfsl.evidence.rows import UNKNOWN, Universe, class_codes, codes_in, deal
from vfsl.evidence.selftrain import pseudo_labels, self_trained
from vfsl.evidence.switches import PAPER, switches_of
from vfsl.evidence.trust import choose_trust, first_trust, known_share, plausible

torch = pytest.importorskip("torch")


def table(**columns):
    frame = pd.DataFrame(columns)
    frame.insert(0, "id", [f"p{i}" for i in range(len(frame))])
    return PartyTable.from_frame(frame, party="B", id="id")


# ---- rates ---------------------------------------------------------------------------------------


@given(epochs=st.integers(1, 40), steps=st.integers(1, 50))
def test_epochs_learn_as_much_as_steps_of_a_falling_rate(epochs, steps):
    learning = Learning(epochs=epochs, learning_rate=0.5)
    by_epoch = np.mean([learning.rate(epoch) for epoch in range(epochs)])
    place = (np.arange(epochs * steps) + 0.5) / (epochs * steps)
    assert by_epoch == pytest.approx(np.mean(0.25 * (1 + np.cos(np.pi * place))))


def test_the_rate_is_that_of_the_middle_of_an_epoch():
    learning = Learning(epochs=2, learning_rate=1.0)
    assert learning.rate(0) == pytest.approx(0.5 + 0.5 * 2**-0.5)
    assert learning.rate(1) == pytest.approx(0.5 - 0.5 * 2**-0.5)


# ---- rows ----------------------------------------------------------------------------------------


def test_rows_are_counted_over_all_parties():
    universe = Universe(("A", "B", "C"), 3, {"A": 2, "B": 0, "C": 2})
    rows = np.arange(universe.total)
    assert universe.total == 7
    assert universe.local("A", rows).tolist() == [0, 1, 2, 3, 4, -1, -1]
    assert universe.local("B", rows).tolist() == [0, 1, 2, -1, -1, -1, -1]
    assert universe.local("C", rows).tolist() == [0, 1, 2, -1, -1, 3, 4]
    assert [universe.whose(row) for row in (2, 3, 4, 5)] == ["overlap", "A", "A", "C"]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 60), st.integers(1, 20), st.integers(0, 5))
def test_dealing_gives_every_row_once_in_even_batches(rows, size, seed):
    batches = deal(np.arange(rows), size, np.random.default_rng(seed))
    dealt = np.concatenate([np.zeros(0, int), *batches])
    assert sorted(dealt.tolist()) == list(range(rows))
    sizes = [len(batch) for batch in batches]
    assert not sizes or (max(sizes) <= size and max(sizes) - min(sizes) <= 1)


def test_labels_become_numbers_and_unknown_ones_stay_unknown():
    classes, codes = class_codes("A", np.array(["no", None], object), np.array(["yes"], object))
    assert classes == ["no", "yes"]
    assert codes.tolist() == [0, UNKNOWN, 1]
    assert codes_in("A", np.array(["yes", None], object), classes).tolist() == [1, UNKNOWN]
    with pytest.raises(DataError, match="1 labels of party 'A' are not among the 2 classes"):
        codes_in("A", np.array(["maybe"], object), classes)


def test_one_class_or_no_overlap_label_is_one_sentence():
    with pytest.raises(DataError, match="at least two classes among the labels of party 'A'"):
        class_codes("A", np.array([1, 1], object), np.array([], object))
    with pytest.raises(DataError, match="no label on any of its 1 overlap rows"):
        class_codes("A", np.array([None], object), np.array([0, 1], object))


# ---- columns and encoders ------------------------------------------------------------------------


def test_numbers_become_ranks_and_categories_codes():
    made = table(
        x=[1.0, 2.0, 4.0, 1e9, None, 2.0, 2.0, 1.0],
        k=["a", "a", "a", "a", "b", "c", "c", None],
        same=[1.0] * 8,
    )
    columns = MixedColumns.fit(made)
    arrays = columns.arrays(made)
    assert (columns.width, columns.levels) == (2, (2,))  # x and where it is missing; a or other
    assert arrays.codes[:, 0].tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
    assert arrays.numbers[:, 1].tolist() == [0, 0, 0, 0, 1, 0, 0, 0]
    assert arrays.numbers[4, 0] == 0
    assert np.abs(arrays.numbers).max() < 5  # a huge value is only the largest
    again = columns_from(columns.to_dict()).arrays(made)
    assert np.array_equal(again.numbers, arrays.numbers)
    unseen = columns.arrays(table(x=[-5.0], k=["z"], same=[0.0]))
    assert unseen.codes[0, 0] == 0
    assert unseen.numbers[0, 0] == arrays.numbers[:4, 0].min()


@pytest.mark.parametrize("kind", [PixelColumns, MatrixColumns])
def test_columns_survive_saving(kind):
    made = table(x=[0.0, 255.0, 3.0], y=[1.0, 2.0, 3.0])
    columns = kind.fit(made)
    again = columns_from(columns.to_dict())
    assert np.array_equal(again.arrays(made).numbers, columns.arrays(made).numbers)


def test_damaged_or_unfit_columns_are_refused():
    with pytest.raises(StoreError, match="damaged"):
        columns_from({"kind": "mixed"})
    with pytest.raises(DataError, match="no column with two different values"):
        MixedColumns.fit(table(x=[1.0, 1.0]))
    with pytest.raises(DataError, match="must be a numeric pixel"):
        PixelColumns.fit(table(k=["a", "b"]))
    with pytest.raises(DataError, match="missing pixels"):
        PixelColumns.fit(table(k=[1.0, None]))


def test_the_mean_row_is_the_mean_embedding():
    from vfsl.evidence.member import as_inputs
    from vfsl.evidence.networks import MixedBody

    made = table(x=np.arange(12.0), k=list("aaaabbbbcccc"), m=list("uuuuuuuuvvvv"))
    columns = MixedColumns.fit(made)
    rows = as_inputs(columns.arrays(made))
    body = MixedBody(columns.width, columns.levels, MLP(), np.random.default_rng(0))
    seen = []
    body.layers = torch.nn.Module()
    body.layers.forward = lambda x: seen.append(x) or x
    body(rows)
    body(mean_row(rows, columns.levels))
    assert torch.allclose(seen[0].mean(dim=0), seen[1][0], atol=1e-6)


def test_networks_come_from_the_given_generator_alone():
    made = table(x=np.arange(12.0), k=list("aaaabbbbcccc"))
    columns = MixedColumns.fit(made)
    first, again, other = (
        build_network(MLP(), columns, 3, np.random.default_rng(seed)).state_dict()
        for seed in (1, 1, 2)
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["1.weight"], other["1.weight"])


@pytest.mark.parametrize("shape", [(8, 9), (3, 16, 8)])
def test_a_cnn_reads_pictures(shape):
    from vfsl.evidence.encoders import Inputs

    count = int(np.prod(shape))
    columns = PixelColumns(tuple(f"p{i}" for i in range(count)), 0.0, 1.0)
    network = build_network(CNN(shape, 4), columns, 5, np.random.default_rng(0))
    rows = Inputs(torch.zeros(7, count), torch.zeros(7, 0, dtype=torch.int64))
    assert network(rows).shape == (7, 5)


def test_unfit_encoders_are_one_sentence():
    columns = PixelColumns(("a",) * 70, 0.0, 1.0)
    rng = np.random.default_rng(0)
    with pytest.raises(ConfigError, match="product is the number of columns, 70 at party 'B'"):
        build_network(CNN((8, 8)), columns, 2, rng, "B")
    with pytest.raises(ConfigError, match="height and width of at least 8"):
        build_network(CNN((7, 10)), columns, 2, rng, "B")
    wrong = torch.nn.Linear(70, 3)
    with pytest.raises(ConfigError, match="party 'B' must return 2 numbers a row"):
        build_network(Custom(wrong), columns, 2, rng, "B")
    with pytest.raises(ConfigError, match="must accept rows of 70 numbers"):
        build_network(Custom(torch.nn.Linear(9, 2)), columns, 2, rng, "B")
    with pytest.raises(ConfigError, match="encoder parameter of RISA"):
        recipe_for("lstm", "B")
    with pytest.raises(ConfigError, match="for party 'B'"):
        recipe_for({"A": "mlp"}, "B")


# ---- removal, pseudo labels, trust ---------------------------------------------------------------


def test_the_limit_falls_from_one_to_its_final_value():
    assert threshold(0.3, 0, 10) == 1
    assert threshold(0.3, 10, 10) == pytest.approx(0.3)
    assert threshold(0.25, 5, 10) == pytest.approx(0.5)


def test_rows_leave_by_their_average_over_the_last_epochs():
    may = np.array([True, True, True, False, True])
    watch = Watch(np.array([0, 1, 2, 3]), 5, may, final=0.25, every=2, epochs=4)
    watch.see(np.arange(4), np.array([0.2, 0.9, 0.4, 0.9]))
    assert watch.end_epoch(1) is None
    watch.see(np.arange(4), np.array([0.2, 0.3, 0.5, 0.9]))
    leaving = watch.end_epoch(2)  # limit 0.5; averages 0.2, 0.6, 0.45, and 0.9, who may not
    assert leaving.rows.tolist() == [1]
    assert leaving.scores.tolist() == [0.6]
    assert watch.rows.tolist() == [0, 2, 3]
    watch.see(np.array([0]), np.array([0.4]))
    assert watch.averages[:2] == pytest.approx([0.8 / 3, 0.6])
    universe = Universe(("A", "B"), 1, {"A": 0, "B": 4})
    lines = left_table(watch.left, np.array([True, False, True, True, True]), universe)
    why = {"epoch": 2, "score": 0.6, "limit": 0.5, "label": "pseudo"}
    assert lines == [{"row": 1, "of": "B", **why}]
    again = Watch(np.array([0]), 5, may, 0.25, 2, 4)
    again.load_arrays(watch.to_arrays())
    assert again.rows.tolist() == watch.rows.tolist()
    assert left_table(again.left, np.zeros(5, bool), universe)[0]["row"] == 1
    assert watch.end_epoch(4) is None  # after the last epoch nobody needs to leave


def test_pseudo_labels_by_hand():
    scores = [np.array([[1.0, 0.0], [0.2, 0.0]]), np.array([[1.5, 0.0], [0.0, 0.1]])]
    chances = self_trained(scores)
    assert chances[0, 0] == pytest.approx(1 / (1 + np.exp(-2.5)))
    assert pseudo_labels(chances, 0.9).tolist() == [0, UNKNOWN]
    assert pseudo_labels(chances, 0.5).tolist() == [0, 0]


def _opinions(labels, right, rng, strength=8.0, classes=3):
    """Opinions of a party that is right about that share of rows."""
    said = np.where(rng.random(len(labels)) < right, labels, rng.integers(0, classes, len(labels)))
    return opinion_of(strength * np.eye(classes)[said])


def test_a_party_that_hurts_is_discounted_and_one_that_helps_is_not():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    good, also = _opinions(labels, 0.9, rng), _opinions(labels, 0.85, rng)
    noise = _opinions(labels, 0.0, rng)
    assert choose_trust([good, also], labels) == [1.0, 1.0]
    trust = choose_trust([good, noise], labels)
    assert trust[0] == 1.0
    assert trust[1] <= 0.25
    turned = choose_trust([noise, good], labels)
    assert turned[1] == 1.0
    assert turned[0] <= 0.25
    four = choose_trust([good, noise, also, noise], labels)
    assert four[0] == 1.0
    assert max(four[1], four[3]) < four[2]


def test_trust_in_another_party_must_be_earned_by_more_than_a_few_rows():
    rng = np.random.default_rng(0)
    labels = np.array([0, 1])
    trust = choose_trust([_opinions(labels, 1.0, rng), _opinions(labels, 1.0, rng)], labels)
    assert trust == [1.0, 0.5]


def test_trust_begins_with_what_a_party_knows_alone():
    labels = np.array([0, 1])
    # b = (1/2, 0), u = 1/2: plausible 1 against 1/2, and 4/5 against 1/5 at temperature 1/2.
    said = opinion_of(np.array([[2.0, 0.0], [0.0, 2.0]]))
    share = 1 - np.log(5 / 4) / np.log(2)
    assert known_share(said, labels) == pytest.approx(share)
    silent = opinion_of(np.zeros((2, 2)))
    assert known_share(silent, labels) == pytest.approx(0)
    assert known_share(said, labels[::-1]) == 0
    # Two rows of the twelve that count: a sixth of twice the share beyond a quarter.
    begin = first_trust([silent, said, silent], labels)
    assert begin == pytest.approx([1.0, 0.25 + share / 3, 0.25])


def test_plausibility_by_hand():
    # b = (1/2, 0), u = 1/2 and b = (0, 1/3), u = 2/3: plausible 1·2/3 against 1/2·1.
    said = [opinion_of(np.array([[2.0, 0.0]])), opinion_of(np.array([[0.0, 1.0]]))]
    assert plausible(said, [1.0, 1.0])[0] == pytest.approx([4 / 7, 3 / 7])
    assert plausible(said, [1.0, 0.0])[0] == pytest.approx([2 / 3, 1 / 3])


def test_switches_are_named_and_checked():
    assert switches_of("paper", None) == PAPER
    assert switches_of("plus", {"self_train": False}).self_train is False
    with pytest.raises(ConfigError, match="switches parameter of RISA must name some of impute"):
        switches_of("plus", {"self_trian": False})
    with pytest.raises(ConfigError, match="variant parameter of RISA"):
        switches_of("best", None)
    with pytest.raises(ConfigError, match="absent switch parameter of RISA"):
        switches_of("plus", {"absent": "zero"})
