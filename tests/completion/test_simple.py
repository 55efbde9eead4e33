"""Mean and mode, and hot-deck, by hand."""

import numpy as np
import pandas as pd
import pytest

from vfsl.completion import HotDeck, MeanMode
from vfsl.errors import ConfigError, DataError


def table():
    return pd.DataFrame(
        {
            "x": [1, 2, 6, None, None],
            "w": [0.5, 0.5, 1.5, 2.5, 2.5],
            "c": ["a", "a", "b", None, "b"],
        }
    ).astype({"x": "Int64"})


def rng(seed=0):
    return np.random.default_rng(seed)


def test_mean_and_mode_by_hand():
    done = MeanMode().fit(table(), rng()).complete(table(), rng())
    assert done.values["x"].tolist() == [1, 2, 6, 3, 3]
    assert str(done.values["x"].dtype) == "Int64"
    assert done.means["x"].tolist() == [1, 2, 6, 3, 3]
    assert done.values["c"].tolist() == ["a", "a", "b", "a", "b"]
    assert done.probabilities["c"].iloc[3].tolist() == [0.5, 0.5]
    assert done.probabilities["c"].iloc[2].tolist() == [0.0, 1.0]
    deviation = np.std([1, 2, 6])
    assert done.spread["x"].tolist() == pytest.approx([0, 0, 0, deviation, deviation])
    assert done.confidence["x"].tolist() == [1, 1, 1, 0, 0]
    assert done.confidence["c"].tolist() == [1, 1, 1, 0.5, 1]
    assert done.filled.to_numpy().sum() == 3


def test_a_number_without_any_value_stays_missing_and_keeps_its_column():
    empty = table().assign(x=pd.array([None] * 5, dtype="Int64"))
    done = MeanMode().fit(empty, rng()).complete(empty, rng())
    assert list(done.values) == ["x", "w", "c"]
    assert done.values["x"].isna().all()
    assert done.means["x"].isna().all()
    assert done.spread["x"].isna().all()


def test_hot_deck_takes_whole_blocks_from_one_donor():
    source = pd.DataFrame({"k": range(40), "p": range(40), "q": range(40)}).astype(float)
    source.loc[20:, ["p", "q"]] = np.nan
    done = HotDeck().fit(source, rng()).complete(source, rng(1))
    filled = done.values.iloc[20:]
    assert (filled["p"] == filled["q"]).all()
    assert filled["p"].nunique() > 5
    assert set(filled["p"]) <= set(range(20))
    again = HotDeck().fit(source, rng()).complete(source, rng(1))
    pd.testing.assert_frame_equal(done.values, again.values)
    assert np.isnan(done.confidence["p"].iloc[20:]).all()


def test_hot_deck_among_neighbours():
    source = pd.DataFrame({"k": [0.0, 1.0, 10.0, 11.0, 10.5], "v": [1.0, 1.0, 9.0, 9.0, np.nan]})
    done = HotDeck(neighbours=2).fit(source, rng()).complete(source, rng())
    assert done.values["v"].iloc[4] == 9.0


def test_hot_deck_without_a_donor_says_so():
    source = pd.DataFrame({"p": [1.0, np.nan], "q": [np.nan, 2.0]})
    both = pd.DataFrame({"p": [np.nan], "q": [np.nan]})
    with pytest.raises(DataError, match="no donor row"):
        HotDeck().fit(source, rng()).complete(both, rng())


@pytest.mark.parametrize("method", [MeanMode(), HotDeck()])
def test_completers_refuse_what_they_cannot_do(method):
    with pytest.raises(ConfigError, match="call fit first"):
        method.complete(table(), rng())
    with pytest.raises(DataError, match="has no rows"):
        method.fit(table().iloc[:0], rng())
    with pytest.raises(ConfigError, match="numpy Generator"):
        method.fit(table(), 0)
    method.fit(table(), rng())
    with pytest.raises(DataError, match="'z' was not in the table"):
        method.complete(table().assign(z=1.0), rng())
