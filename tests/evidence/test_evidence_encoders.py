"""How columns become arrays, and which recipe an encoder parameter means."""

import numpy as np
import pandas as pd
import pytest

from vfsl.data import PartyTable
from vfsl.errors import ConfigError, DataError, StoreError
from vfsl.evidence.encoders import (
    MatrixColumns,
    MixedColumns,
    PixelColumns,
    columns_from,
    recipe_for,
)


def table(**columns):
    frame = pd.DataFrame(columns)
    frame.insert(0, "id", [f"p{i}" for i in range(len(frame))])
    return PartyTable.from_frame(frame, party="B", id="id")


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


def test_unknown_encoders_are_one_sentence():
    with pytest.raises(ConfigError, match="encoder parameter of RISA"):
        recipe_for("lstm", "B")
    with pytest.raises(ConfigError, match="for party 'B'"):
        recipe_for({"A": "mlp"}, "B")
