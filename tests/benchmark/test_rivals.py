"""The rivals: each one's own loss by hand, that it matters, and that all of them run."""

import math

import numpy as np
import pytest
from sklearn.datasets import load_digits

from benchmarks.rivals import RIVALS, rival
from vfsl.errors import ConfigError
from vfsl.evidence.rows import UNKNOWN

torch = pytest.importorskip("torch")

from benchmarks.rivals import (  # noqa: E402
    fedcvt,
    fewshot,
    local_vfl,
    random_match,
    sfhtl,
    simclr,
    ssl_vfl,
    vfl,
)
from benchmarks.rivals.harness import Batches, Problem, View  # noqa: E402
from vfsl.evidence import CNN, MLP  # noqa: E402
from vfsl.evidence.encoders import Arrays, PixelColumns  # noqa: E402
from vfsl.evidence.networks import Inputs, Learning, as_inputs  # noqa: E402


def digits(rows=600, overlap=120, epochs=3):
    """Left and right halves of digits; B's own rows are of other people than A's."""
    data = load_digits()
    pictures = ((data.images - 8) / 6).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(pictures))
    first = order[:rows]
    second = np.concatenate([first[:overlap], order[rows : 2 * rows - overlap]])
    test = order[-400:]
    columns = PixelColumns(tuple(f"p{i}" for i in range(32)), 0.0, 1.0)

    def half(numbers, place):
        cells = pictures[numbers][:, :, 4 * place : 4 * place + 4].reshape(-1, 32)
        return as_inputs(Arrays(cells, np.zeros((len(cells), 0), np.int64)))

    views = tuple(
        View(half(numbers, place), MLP(), columns) for place, numbers in enumerate((first, second))
    )
    learning = Learning(epochs=epochs, batch_size=64)
    problem = Problem(views, overlap, data.target[first].astype(np.int64), 10, learning)
    return problem, (half(test, 0), half(test, 1)), data.target[test]


@pytest.fixture(scope="module")
def problem():
    return digits()


def right(fitted, test, truth):
    return (fitted(*test).argmax(axis=1) == truth).mean()


@pytest.mark.parametrize("name", RIVALS)
def test_every_rival_learns_and_answers_also_when_a_party_is_absent(problem, name):
    problem, test, truth = problem
    fitted = rival(name)(problem, np.random.default_rng(0))
    for given in (test, (test[0], None), (None, test[1])):
        chances = fitted(*given)
        assert chances.shape == (400, 10)
        assert chances.sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert right(fitted, test, truth) > 0.3
    again = rival(name)(problem, np.random.default_rng(0))
    assert np.array_equal(again(*test), fitted(*test))


def test_an_unknown_rival_is_refused():
    with pytest.raises(ConfigError, match="must be one of 'Local', 'VFL'"):
        rival("Global")


def test_batches_go_round_and_give_every_row_equally_often():
    batches = Batches(np.arange(6), 4, np.random.default_rng(0))
    drawn = np.concatenate([batches.next() for _ in range(3)])
    assert np.bincount(drawn).tolist() == [2] * 6


def test_the_budget_is_that_of_local(problem):
    assert problem[0].steps == 3 * 10
    labels = problem[0].labels.copy()
    labels[100:400] = UNKNOWN
    fewer = Problem(problem[0].views, 120, labels, 10, problem[0].learning)
    assert fewer.labelled("overlap").tolist() == list(range(100))
    assert fewer.labelled("own").tolist() == list(range(400, 600))


# ---- each one's own loss -------------------------------------------------------------------------


def test_vfl_sees_overlap_rows_only(problem):
    problem, test, _ = problem
    labels = problem.labels.copy()
    labels[problem.overlap :] = 0
    other = Problem(problem.views, problem.overlap, labels, 10, problem.learning)
    answers = [vfl.fit(p, np.random.default_rng(0))(*test) for p in (problem, other)]
    assert np.array_equal(*answers)


def test_local_vfl_puts_zeros_where_b_is_absent(problem):
    rows = Inputs(torch.ones(2, 3), torch.ones(2, 1, dtype=torch.int64))
    changed = local_vfl.put_zeros(rows, np.array([False, True]))
    assert changed.numbers.tolist() == [[1, 1, 1], [0, 0, 0]]
    assert changed.codes.tolist() == [[1], [0]]
    problem, test, _ = problem
    plain = vfl.fit(problem, np.random.default_rng(0))(*test)
    assert not np.allclose(plain, local_vfl.fit(problem, np.random.default_rng(0))(*test))


def test_random_match_pairs_strangers_outside_the_overlap_only():
    others = np.array([7, 8, 9])
    rng = np.random.default_rng(0)
    paired = random_match.partners(np.array([0, 5, 3, 6]), 4, others, rng)
    assert paired[[0, 2]].tolist() == [0, 3]
    assert set(paired[[1, 3]]) <= {7, 8, 9}
    drawn = [random_match.partners(np.array([5] * 8), 4, others, rng).tolist() for _ in range(2)]
    assert drawn[0] != drawn[1]


def test_contrast_by_hand():
    # Two rows with views along the axes: twins are alike (1), all others at right angles (0).
    first = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    expected = -math.log(math.e / (math.e + 2))
    assert ssl_vfl.contrast(first, first, 1.0).item() == pytest.approx(expected, rel=1e-6)
    # Twins at right angles, a stranger alike: −log of 1 / (1 + 1 + e²) at temperature ½.
    turned = first.flip(0)
    crossed = -math.log(1 / (2 + math.e**2))
    assert ssl_vfl.contrast(first, turned, 0.5).item() == pytest.approx(crossed, rel=1e-6)


def test_simclr_crops_mirrors_and_recolours():
    rng = np.random.default_rng(0)
    ramp = torch.arange(8.0).expand(400, 3, 6, 8).clone()  # grows from left to right
    cut = simclr.crop(ramp, rng)
    assert cut.shape == ramp.shape
    assert cut.min() >= 0
    assert cut.max() <= 7  # only what the picture has
    slope = cut[:, 0, 0, -1] - cut[:, 0, 0, 0]
    assert 0.4 < (slope < 0).double().mean() < 0.6  # mirrored
    span = slope.abs() / 7  # of the width; the area is 20 to 100 %
    assert span.max() > 0.9
    assert span.min() < 0.5
    flat = torch.full((400, 3, 4, 4), 0.5)
    flat[:, 0] = 0.9
    changed = simclr.recolour(flat, rng)
    grey = (changed.std(dim=1) < 1e-6).all(dim=(1, 2)).double().mean()
    assert 0.1 < grey < 0.3
    same = (changed == flat).all(dim=(1, 2, 3)).double().mean()
    assert 0.1 < same < 0.25  # four of five are changed, four of five keep colours
    assert torch.allclose(simclr.recolour(flat[:, :1], rng).std(dim=(2, 3)), torch.zeros(400, 1))


def test_a_turn_of_the_hue_keeps_luma_and_a_whole_turn_everything():
    pictures = torch.rand(5, 3, 2, 2, dtype=torch.float64)
    some = torch.linspace(-0.1, 0.1, 5, dtype=torch.float64)[:, None, None, None]
    luma = torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)
    turned = simclr.turn_hue(pictures, some)
    both = [torch.einsum("c,nchw->nhw", luma, one) for one in (pictures, turned)]
    assert torch.allclose(*both, atol=1e-6)
    assert not torch.allclose(pictures, turned, atol=0.01)
    assert torch.allclose(simclr.turn_hue(pictures, some * 0 + 1), pictures, atol=1e-6)


def test_pictures_are_distorted_by_simclr():
    rng = np.random.default_rng(0)
    columns = PixelColumns(tuple(f"p{i}" for i in range(64)), 0.5, 0.3)
    cells = rng.normal(size=(2, 24, 64)).astype(np.float32)
    views = tuple(
        View(as_inputs(Arrays(one, np.zeros((24, 0), np.int64))), CNN((8, 8), 4), columns)
        for one in cells
    )
    labels, learning = rng.integers(0, 2, 24), Learning(epochs=1, batch_size=12)
    problem = Problem(views, 12, labels, 2, learning)
    chances = ssl_vfl.fit(problem, rng)(views[0].inputs, views[1].inputs)
    assert chances.shape == (24, 2)


def test_sfhtl_maps_by_hand():
    double = torch.nn.Linear(1, 1, bias=False)
    same = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        double.weight.fill_(2.0)
        same.weight.fill_(1.0)
    features = [torch.tensor([[1.0], [2.0]]), torch.tensor([[2.0], [5.0]])]
    # There: (2 − 2)², (4 − 5)²: mean ½. Back: (2 − 1)², (5 − 2)²: mean 5.
    assert sfhtl.map_loss(torch.nn.ModuleList([double, same]), features).item() == 5.5
    rows = Inputs(torch.tensor([[0.5]]), torch.tensor([[2, 0]]))
    assert sfhtl.flat(rows, (3, 2)).tolist() == [[0.5, 0, 0, 1, 1, 0]]


def test_fedcvt_attention_and_losses_by_hand():
    queries = torch.tensor([[1.0, 0.0]])
    keys = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    # Scores 1/√2 and 0; raised to 1/T = 2: weights e^{√2} and 1.
    weight = math.exp(math.sqrt(2)) / (math.exp(math.sqrt(2)) + 1)
    found = fedcvt.attend(queries, keys, torch.tensor([[1.0], [0.0]]))
    assert found.item() == pytest.approx(weight, rel=1e-6)
    swapped = fedcvt.attend(keys, keys, torch.tensor([[1.0], [5.0]]), not_itself=True)
    assert swapped.tolist() == [[5.0], [1.0]]
    views = fedcvt.Views(torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[3.0, 0.0]] * 2))
    # U Cᵀ = [[3, 3], [0, 0]]: norm √18, over two rows.
    assert fedcvt.orthogonality(views).item() == pytest.approx(math.sqrt(18) / 2)
    # Two rows of different classes that may only look at each other find the wrong label …
    both = fedcvt.Views(keys, keys)
    hot = torch.eye(2)
    assert fedcvt.label_estimates(both, both, hot).item() == pytest.approx(-2 * math.log(1e-9))
    # … and of the same class the right one.
    assert fedcvt.label_estimates(both, both, torch.tensor([[1.0, 0.0]] * 2)).item() == 0


def test_fewshot_gradients_cluster_by_label_and_agreement_by_hand():
    rng = np.random.default_rng(0)
    features = torch.as_tensor(rng.normal(0, 0.1, (40, 4))).float()
    other = torch.as_tensor(rng.normal(0, 0.1, (40, 4))).float()
    truth = torch.as_tensor(np.arange(40) % 4)
    head = torch.nn.Linear(8, 4)
    with torch.no_grad():
        head.weight.copy_(torch.as_tensor(rng.normal(0, 0.3, (4, 8))))
        head.bias.zero_()
    gradient = fewshot.summed_gradient(features, other, head, truth)
    scores = head(torch.cat([other, features], dim=1)).detach()
    by_hand = (torch.softmax(scores, 1) - torch.eye(4)[truth]) @ head.weight[:, 4:]
    assert gradient == pytest.approx(by_hand.detach().numpy(), abs=1e-6)
    found = fewshot.clusters(gradient, 4, rng)
    assert all(len(set(found[np.arange(40) % 4 == k])) == 1 for k in range(4))
    # Only the first row's weak view is sure (0.95 ≥ 0.85); its strong view is at ½.
    weak = torch.log(torch.tensor([[0.95, 0.05], [0.6, 0.4]]))
    strong = torch.zeros(2, 2)
    assert fewshot.agreement(weak, strong).item() == pytest.approx(math.log(2) / 2)


@pytest.mark.parametrize(
    ("full", "without"),
    [
        (ssl_vfl.fit, lambda p, rng: ssl_vfl.fit_after(p, rng, 0)),
        (sfhtl.fit, lambda p, rng: sfhtl.fit_weighted(p, rng, 0.0, 0.0)),
        (fedcvt.fit, lambda p, rng: fedcvt.fit_weighted(p, rng, fedcvt.Weights(0, 0, 0, 0))),
        (fewshot.fit, lambda p, rng: fewshot.fit_weighted(p, rng, 0.0)),
    ],
    ids=["SSL", "SFHTL", "FedCVT", "few-shot"],
)
def test_leaving_its_own_loss_out_changes_the_result(problem, full, without):
    problem, test, _ = problem
    answers = [fit(problem, np.random.default_rng(0))(*test) for fit in (full, without)]
    assert np.abs(answers[0] - answers[1]).max() > 0.01
