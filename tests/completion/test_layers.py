"""Numbers as pieces between quantiles: by hand, by property, and in the imputers' networks."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.completion.gen_cases import IMPUTERS, block_frame, rng, tiny
from vfsl.completion.layers import Pieces
from vfsl.completion.training import arrays_of, load_arrays
from vfsl.errors import ConfigError

numbers = st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=60)


def learned(values, pieces, known=None):
    column = torch.tensor(values, dtype=torch.float32)[:, None]
    made = Pieces(1, pieces)
    made.learn(column, torch.ones_like(column) if known is None else torch.tensor(known)[:, None])
    return made


def test_shares_by_hand():
    made = Pieces(2, 2)
    made.knots.copy_(torch.tensor([[0.0, 1.0, 3.0], [10.0, 20.0, 30.0]]))
    values = torch.tensor([[-1.0, 10.0], [0.5, 25.0], [2.0, 20.0], [9.0, 12.0]])
    known = torch.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    assert made.width == 4
    expected = [[0, 0, 0, 0], [0.5, 0, 1, 0.5], [1, 0.5, 0, 0], [1, 1, 0.2, 0]]
    torch.testing.assert_close(made(values, known), torch.tensor(expected))


def test_knots_are_the_distinct_quantiles_of_known_values():
    made = learned([0.0] * 6 + [1.0, 2.0, 3.0, 4.0], 4)
    # Quartiles by interpolation: 0, 0, 0, 1.75, 4; the pieces that are left over have no width.
    assert made.knots.tolist() == [[0.0, 1.75, 4.0, 4.0, 4.0]]
    shares = made(torch.tensor([[0.0], [1.75], [9.0]]), torch.ones(3, 1))
    assert shares.tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0]]
    half = learned([0.0, 99.0, 2.0], 2, known=[1.0, 0.0, 1.0])
    assert half.knots.tolist() == [[0.0, 1.0, 2.0]]


@pytest.mark.parametrize("values", [[7.0], [7.0] * 5])
def test_a_number_without_spread_has_no_pieces(values):
    for known in ([1.0] * len(values), [0.0] * len(values)):
        made = learned(values, 3, known)
        assert made(torch.tensor([[6.0], [8.0]]), torch.ones(2, 1)).tolist() == [[0.0] * 3] * 2


@settings(max_examples=60, deadline=None)
@given(numbers, st.integers(1, 20))
def test_pieces_rise_and_add_up_to_the_number(values, pieces):
    made = learned(values, pieces)
    low, high = min(values), max(values)
    asked = torch.linspace(low - 1, high + 1, 50)[:, None]
    shares = made(asked, torch.ones_like(asked))
    assert shares.min() >= 0
    assert shares.max() <= 1
    assert (shares.diff(dim=0) >= 0).all()
    # A piece begins to fill when the one before is full.
    widths = made.knots.diff(dim=1)[0]
    kept = shares[:, widths > 0]
    assert ((kept[:, 1:] == 0) | (kept[:, :-1] == 1)).all()
    total = made.knots[0, 0] + shares @ widths
    torch.testing.assert_close(total, asked[:, 0].clamp(low, high), rtol=1e-4, atol=1e-2)
    assert not made(asked, torch.zeros_like(asked)).any()


def test_knots_are_kept_with_the_weights():
    made = learned([1.0, 2.0, 5.0], 2)
    other = Pieces(1, 2)
    load_arrays(other, arrays_of(made), "a test")
    assert torch.equal(other.knots, made.knots)
    assert not list(made.parameters())


def test_no_pieces_are_no_inputs_and_keep_nothing_of_the_data():
    made = learned([1.0, 2.0], 0)
    assert made.width == 0
    assert made(torch.ones(3, 1), torch.ones(3, 1)).shape == (3, 0)
    assert made.knots.numel() == 0


@pytest.mark.parametrize(("name", "first"), [("gain", "generator"), ("vgain", "encoder")])
def test_imputers_see_them_and_can_do_without(name, first):
    _, holes, _ = block_frame(200)
    book, model = (tiny(name, pieces=pieces).fit(holes, rng()) for pieces in (0, 5))
    plain = book.layout_.width + len(holes.columns)
    assert book.networks_[first][0].in_features == plain
    assert model.networks_[first][0].in_features == plain + 5 * book.layout_.scalars
    knots = model.networks_["pieces"].knots
    assert knots.shape == (4, 6)
    assert (knots.diff(dim=1) > 0).all()
    one, two = (made.complete(holes, rng(1)).means for made in (book, model))
    assert not one.equals(two)


@pytest.mark.parametrize("name", IMPUTERS)
def test_they_are_learned_from_training_rows_alone(name):
    _, holes, hidden = block_frame(200)
    moved = holes.copy()
    moved.loc[hidden, "a1"] = np.linspace(-0.1, 0.1, len(hidden))
    # Standardised by all rows, cut by those that can be learned from.
    models = [tiny(name).fit(frame, rng()) for frame in (holes, moved)]
    cuts = []
    for model, frame in zip(models, (holes, moved), strict=True):
        knots = model.networks_["pieces"].knots[0].double().numpy()
        cuts.append(knots * frame["a1"].std(ddof=0) + frame["a1"].mean())
    np.testing.assert_allclose(*cuts, atol=1e-5)


@pytest.mark.parametrize("name", IMPUTERS)
@pytest.mark.parametrize("pieces", [-1, 2.5, True])
def test_a_wrong_number_is_refused(name, pieces):
    _, holes, _ = block_frame(60)
    with pytest.raises(ConfigError, match=r"pieces parameter of V?GAIN must be a whole number"):
        tiny(name, pieces=pieces).fit(holes, rng())
