"""GAIN, VGAIN and generators as completers: block masking, results, saving, refusals."""

import numpy as np
import pandas as pd
import pytest
import torch

from tests.completion.gen_cases import IMPUTERS, block_frame, mixed_frame, rng, tiny
from vfsl.completion import GeneratorCompleter, completer, find, load, save
from vfsl.completion.imputers.gain import Patterns
from vfsl.errors import ConfigError, DataError


def error(done, frame, hidden):
    """Standardised error of b1, and the share of right kinds."""
    gap = done.means["b1"].to_numpy()[hidden] - frame["b1"].to_numpy()[hidden]
    right = done.values["kind"].to_numpy()[hidden] == frame["kind"].to_numpy()[hidden]
    return float(np.sqrt((gap**2).mean()) / frame["b1"].std()), float(right.mean())


def test_patterns_are_those_of_the_table():
    observed = np.array([[1, 1, 1], [1, 0, 0], [1, 0, 0], [0, 1, 1], [0, 0, 0]], dtype=bool)
    patterns = Patterns.of_table(observed)
    assert patterns.hidden.tolist() == [[False, True, True], [True, False, False]]
    assert patterns.chances.tolist() == pytest.approx([2 / 3, 1 / 3])
    drawn = patterns.draw(9_000, 3, torch.Generator().manual_seed(0))
    assert drawn[:, 0].float().mean().item() == pytest.approx(1 / 3, abs=0.02)
    assert (drawn[:, 1] == ~drawn[:, 0]).all()


def test_without_missing_cells_each_row_hides_a_share_of_its_own():
    patterns = Patterns.of_table(np.ones((4, 5), dtype=bool))
    drawn = patterns.draw(4_000, 5, torch.Generator().manual_seed(0)).float()
    assert drawn.mean().item() == pytest.approx(0.5, abs=0.02)
    # Shares differ between rows: the variance of their sums exceeds the binomial one of 1.25.
    assert drawn.sum(1).var().item() > 2.0


def test_named_blocks():
    patterns = Patterns.named([["b"], ["b", "c"]], ["a", "b", "c"], "GAIN")
    assert patterns.hidden.tolist() == [[False, True, False], [False, True, True]]
    with pytest.raises(ConfigError, match="blocks parameter of GAIN"):
        Patterns.named([["z"]], ["a"], "GAIN")


@pytest.mark.parametrize("name", IMPUTERS)
def test_known_cells_stay_and_missing_ones_are_filled_in_type(name):
    frame, holes, hidden = block_frame()
    done = tiny(name).fit(holes, rng()).complete(holes, rng(1))
    known = np.setdiff1d(np.arange(len(frame)), hidden)
    for column in frame:
        assert done.values[column].notna().all()
        assert done.values[column].iloc[known].tolist() == frame[column].iloc[known].tolist()
    assert done.filled["b1"].sum() == len(hidden)
    assert str(done.values["b2"].dtype) == "Int64"
    assert done.probabilities["kind"].sum(axis=1).to_numpy() == pytest.approx(1.0)
    assert (done.spread["b1"].iloc[hidden] > 0).all()
    assert (done.spread["b1"].iloc[known] == 0).all()
    assert done.confidence.to_numpy().min() >= 0
    assert done.confidence.to_numpy().max() <= 1


@pytest.mark.parametrize("name", IMPUTERS)
def test_same_seed_same_fill_and_saved_models_fill_the_same(name, tmp_path):
    _, holes, _ = block_frame(200)
    torch.manual_seed(0)
    state = torch.get_rng_state()
    model = tiny(name).fit(holes, rng(4))
    done = model.complete(holes, rng(5))
    assert torch.equal(state, torch.get_rng_state())
    again = tiny(name).fit(holes, rng(4)).complete(holes, rng(5))
    pd.testing.assert_frame_equal(done.means, again.means)
    save(model, tmp_path)
    loaded = load(tmp_path).complete(holes, rng(5))
    pd.testing.assert_frame_equal(done.means, loaded.means)
    pd.testing.assert_frame_equal(done.spread, loaded.spread)


@pytest.mark.parametrize("name", IMPUTERS)
def test_a_hidden_block_is_learned(name):
    frame, holes, hidden = block_frame(500)
    model = find(name)(epochs=40, batch_size=50, patience=None, width=32).fit(holes, rng())
    found = error(model.complete(holes, rng(1)), frame, hidden)
    assert found[0] < 0.5
    assert found[1] > 0.8


def test_the_textbook_cannot_learn_a_block():
    frame, holes, hidden = block_frame(500)
    book = find("gain")(
        epochs=40,
        batch_size=50,
        width=32,
        masking="cell",
        scaling="minmax",
        pieces=0,
        adversarial=1.0,
        patience=None,
    ).fit(holes, rng())
    assert error(book.complete(holes, rng(1)), frame, hidden)[0] > 0.8


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("gain", {"adversarial": 0.0}),
        ("gain", {"adversarial": 3.0}),
        ("gain", {"reconstruction": 1.0, "masking": "cell"}),
        ("gain", {"hint": 0.1}),
        ("gain", {"masking": "cell"}),
        ("gain", {"scaling": "minmax"}),
        ("gain", {"pieces": 0}),
        ("vgain", {"adversarial": 0.0}),
        ("vgain", {"divergence": 0.0}),
        ("vgain", {"hint": 0.1}),
        ("vgain", {"masking": "cell"}),
        ("vgain", {"pieces": 0}),
    ],
    ids=str,
)
def test_every_part_changes_the_fill(name, change):
    _, holes, _ = block_frame(200)
    one = tiny(name).fit(holes, rng()).complete(holes, rng(1))
    two = tiny(name, **change).fit(holes, rng()).complete(holes, rng(1))
    assert not one.means.equals(two.means)


def test_the_variance_of_vgain_is_one_of_draws():
    _, holes, _ = block_frame(200)
    model = tiny("vgain", draws=1).fit(holes, rng())
    one, two = (model.complete(holes, rng(seed)).means["b1"] for seed in (1, 2))
    assert not one.equals(two)


def test_blocks_can_be_named_where_the_table_shows_none():
    frame, holes, hidden = block_frame(600)
    complete = frame.drop(index=hidden).reset_index(drop=True).astype({"b2": "Int64"})
    model = find("gain")(epochs=60, batch_size=60, width=32, blocks=[["b1", "b2", "kind"]]).fit(
        complete, rng()
    )
    assert error(model.complete(holes, rng(1)), frame, hidden)[0] < 0.5


@pytest.mark.parametrize("name", IMPUTERS)
def test_bad_input_is_one_sentence(name):
    _, holes, _ = block_frame(60)
    model = tiny(name)
    with pytest.raises(ConfigError, match="call fit first"):
        model.complete(holes, rng())
    with pytest.raises(DataError, match="has no rows"):
        model.fit(holes.iloc[:0], rng())
    with pytest.raises(ConfigError, match="masking parameter"):
        tiny(name, masking="row").fit(holes, rng())
    with pytest.raises(ConfigError, match="hint parameter"):
        tiny(name, hint=2).fit(holes, rng())
    with pytest.raises(DataError, match="only constant columns"):
        model.fit(pd.DataFrame({"x": [1.0, 1.0, 1.0]}), rng())
    nothing = holes.copy()
    nothing.loc[1:, ["b1", "b2", "kind"]] = None
    with pytest.raises(DataError, match="at least two rows"):
        model.fit(nothing, rng())
    model.fit(holes, rng())
    with pytest.raises(DataError, match="'z' was not in the table"):
        model.complete(holes.assign(z=1.0), rng())


def test_an_unseen_category_is_kept_and_not_learned_from():
    _, holes, hidden = block_frame(200)
    model = tiny("gain").fit(holes, rng())
    changed = holes.copy()
    seen = np.setdiff1d(np.arange(200), hidden)[0]
    changed.loc[seen, "kind"] = "sideways"
    assert model.complete(changed, rng()).values["kind"].iloc[seen] == "sideways"


@pytest.mark.parametrize("name", ["tvae", "tabddpm", "ctgan"])
def test_a_generator_completes_by_draws(name):
    frame, holes, hidden = block_frame(200)
    model = GeneratorCompleter(tiny(name), draws=4).fit(holes, rng())
    done = model.complete(holes, rng(1))
    known = np.setdiff1d(np.arange(200), hidden)
    for column in frame:
        assert done.values[column].notna().all()
        assert done.values[column].iloc[known].tolist() == frame[column].iloc[known].tolist()
    assert str(done.values["b2"].dtype) == "Int64"
    quarters = done.probabilities["kind"].iloc[hidden].to_numpy() * 4
    assert quarters == pytest.approx(np.rint(quarters))
    assert (done.spread["b1"].iloc[hidden] > 0).any()
    drawn = model.draw(holes, rng(1))
    assert drawn.notna().all().all()
    assert drawn["b1"].iloc[known].tolist() == frame["b1"].iloc[known].tolist()
    pd.testing.assert_frame_equal(drawn, model.draw(holes, rng(1)))
    assert drawn["b1"].iloc[hidden].std() > done.means["b1"].iloc[hidden].std()


def test_means_and_spread_are_those_of_the_samples():
    class Counting:
        """Its samples for a row are 0, 1, 2, 3 and a, a, a, b."""

        def fit(self, table, rng):
            return self

        def sample(self, n, rng, given):
            number = np.repeat(np.arange(4.0), n // 4)
            return pd.DataFrame({"x": number, "c": np.where(number < 3, "a", "b")})

    frame = pd.DataFrame({"x": np.arange(30.0), "c": ["a", "b"] * 15})
    frame.loc[28:, "x"] = np.nan
    frame.loc[28:, "c"] = None
    done = GeneratorCompleter(Counting(), draws=4).fit(frame, rng()).complete(frame, rng())
    assert done.means["x"].iloc[28:].tolist() == [1.5, 1.5]
    assert done.spread["x"].iloc[28:].tolist() == pytest.approx([np.std([0, 1, 2, 3])] * 2)
    assert done.probabilities["c"].iloc[29].tolist() == [0.75, 0.25]
    assert done.values["c"].iloc[28:].tolist() == ["a", "a"]
    assert done.confidence["c"].iloc[28] == 0.75


def test_a_category_of_incomplete_rows_only_is_kept_and_not_given():
    frame = pd.DataFrame({"x": np.arange(30.0), "c": ["a", "b"] * 15})
    frame.loc[29, "x"], frame.loc[29, "c"] = np.nan, "rare"
    model = GeneratorCompleter(tiny("vae"), draws=2).fit(frame, rng())
    done = model.complete(frame, rng())
    assert done.values["c"].iloc[29] == "rare"
    assert done.values["x"].notna().all()


def test_the_adapter_refuses():
    with pytest.raises(DataError, match="GAIN also learns from incomplete"):
        completer("tvae").fit(mixed_frame(20), rng())
    with pytest.raises(ConfigError, match="draws parameter"):
        completer("tvae", draws=0).fit(mixed_frame(), rng())
    with pytest.raises(ConfigError, match="call fit first"):
        completer("tvae").complete(mixed_frame(), rng())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tvae", "vae", "tabddpm"])
def test_conditional_means_beat_the_mean(name):
    frame, holes, hidden = block_frame(1_000)
    settings = {"tvae": {"epochs": 150}, "vae": {"epochs": 150}, "tabddpm": {"epochs": 80}}[name]
    model = completer(name, batch_size=100, draws=10, **settings).fit(holes, rng())
    found = error(model.complete(holes, rng(1)), frame, hidden)
    assert found[0] < 0.8
    assert found[1] > 0.7
