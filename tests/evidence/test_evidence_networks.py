"""Networks of RISA alone: their layers, their first weights, and the rate at which they learn."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfsl.data import PartyTable
from vfsl.errors import ConfigError
from vfsl.evidence import CNN, MLP
from vfsl.evidence.encoders import Custom, MixedColumns, PixelColumns

torch = pytest.importorskip("torch")

from vfsl.evidence.networks import (  # noqa: E402
    Inputs,
    Learning,
    MixedBody,
    as_inputs,
    build_network,
    mean_row,
)


def table(**columns):
    frame = pd.DataFrame(columns)
    frame.insert(0, "id", [f"p{i}" for i in range(len(frame))])
    return PartyTable.from_frame(frame, party="B", id="id")


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


def test_the_mean_row_is_the_mean_embedding():
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
