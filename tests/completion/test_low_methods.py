"""Low methods as people ask for them: names, settings, ensembles, and what is refused."""

from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

import vfsl
from tests.completion.psg_cases import federation
from vfsl.completion.ensembles import Ensemble
from vfsl.completion.fedpsg import FedPSG
from vfsl.completion.low_methods import read_low
from vfsl.completion.simple import GeneratorCompleter, HotDeck, MeanMode
from vfsl.errors import ConfigError


def test_a_name_or_a_table_of_settings():
    assert isinstance(read_low("hot-deck")(), HotDeck)
    made = read_low({"method": "hot-deck", "neighbours": 3})()
    assert made == HotDeck(neighbours=3)
    assert read_low({"method": "hot-deck", "neighbours": 3}).describe() == {
        "method": "hot-deck",
        "neighbours": 3,
    }
    own = read_low(lambda: MeanMode())
    assert isinstance(own(), MeanMode)
    assert own.label == "own method"


def test_generators_get_their_settings_and_those_of_their_wrapper():
    pytest.importorskip("torch")
    made = read_low({"method": "ctabgan", "epochs": 3, "self_attention": True, "draws": 4})()
    assert isinstance(made, GeneratorCompleter)
    assert (made.draws, made.generator.epochs, made.generator.self_attention) == (4, 3, True)


def test_an_ensemble_of_names_and_tables():
    chosen = read_low({"ensemble": ["mean", {"method": "hot-deck", "neighbours": 2}], "how": "row"})
    made = chosen()
    assert isinstance(made, Ensemble)
    assert made.how == "row"
    assert chosen.label == "mean + hot-deck by row"
    assert chosen.members[1]() == HotDeck(neighbours=2)
    assert read_low({"ensemble": ["mean"]}).how == "stacking"
    assert read_low({"ensemble": ["mean"], "how": "stack"}).how == "stacking"
    assert not chosen.joint


def test_what_runs_between_the_parties_is_known_by_its_place():
    pytest.importorskip("torch")
    low = {"ensemble": ["vfgain", "mean", {"method": "vfgain", "epochs": 2}]}
    chosen = read_low(low).told(["x"], lambda one: one)
    assert [one.settings for one in chosen.protocols] == [{}, {"epochs": 2}]
    assert [member().place for member in (chosen.members[0], chosen.members[2])] == [0, 1]
    with pytest.raises(ConfigError, match="runs between parties"):
        read_low("vfgain")()


def test_methods_are_told_which_columns_will_be_missing():
    pytest.importorskip("torch")
    for name, setting in (("gain", "blocks"), ("vgain", "blocks")):
        made = read_low(name).told(["x", "y"])()
        assert getattr(made, setting) == [["x", "y"]]
    assert read_low("tabddpm").told(["x", "y"])().generator.hide == ["x", "y"]
    (member,) = read_low({"ensemble": ["gain"]}).told(["x"])().makers(["x"])
    assert member().blocks == [["x"]]


@pytest.mark.parametrize(
    ("low", "text"),
    [
        ({"method": "gian"}, "did you mean 'gain'?"),
        ({"epochs": 3}, "with a method, one of 'mean'"),
        ({"method": "hot-deck", "neighbors": 3}, "did you mean 'neighbours'?"),
        ({"method": "hot-deck", "neighbours": 0}, "as neighbours a whole number of at least 1"),
        ({"ensemble": []}, "must have a list of methods"),
        ({"ensemble": "gain"}, "must have a list of methods"),
        ({"ensemble": ["mean"], "how": "stackin"}, "did you mean 'stacking'?"),
        ({"ensemble": ["mean"], "epochs": 3}, "settings belong to its methods"),
        ({"ensemble": [{"ensemble": ["mean"]}]}, "no ensemble within an ensemble"),
    ],
)
def test_mistakes_are_named(low, text):
    with pytest.raises(ConfigError) as error:
        FedPSG(low=low).resolve()
    assert text in str(error.value)


def test_what_the_route_decides_is_not_asked_for():
    pytest.importorskip("torch")
    for name, setting in (("vfgain", "known"), ("tabddpm", "hide"), ("gain", "blocks")):
        with pytest.raises(ConfigError, match=f"a setting '{setting}', which it does not have"):
            FedPSG(low={"method": name, setting: ["x"]}).resolve()


class Told(MeanMode):
    """A completer of the user's own that notes what it is told and shown."""

    heard: ClassVar[list] = []

    def expect_missing(self, columns):
        Told.heard.append(list(columns))


def test_a_completer_of_ones_own_is_told_too():
    Told.heard.clear()
    fed, _ = federation(common=100, rest=30)
    FedPSG(tau=0.5, low=Told, folds=2, shift="none").fit_complete(fed)
    assert Told.heard
    assert set(map(tuple, Told.heard)) == {("visits", "colour", "noise")}


def test_an_ensemble_is_judged_by_weights_of_other_rows():
    """Each method is trained once per fold, however the answers are combined."""
    made = []

    class Counted(HotDeck):
        def fit(self, table, rng):
            made.append(len(table))
            return super().fit(table, rng)

    fed, _ = federation(common=100, rest=30)
    low = lambda: Ensemble([Counted, "mean"], how="stacking")  # noqa: E731
    done = FedPSG(tau=0.5, low=low, folds=4, shift="none").fit_complete(fed)
    assert sorted(made) == [75, 75, 75, 75, 100]
    # A random donor is useless, so stacking leans on the mean: far better than the donor alone.
    assert done.quality.loc["noise", "skill"] > -0.2


def gaussian(rows=400, rest=500):
    rng = np.random.default_rng(7)
    mixing = np.array([[1.0, 0.6, 0.3], [0.0, 0.8, -0.5], [0.0, 0.0, 0.8]])
    a = pd.DataFrame(rng.normal(size=(rows + rest, 2)), columns=["a0", "a1"])
    b = pd.DataFrame(rng.normal(size=(rows + rest, 3)) @ mixing, columns=["x", "y", "z"])
    a["id"] = b["id"] = [f"p{n}" for n in range(rows + rest)]
    return a, b


def check_width(low, draws=True):
    a, b = gaussian()
    tables = {"A": a, "B": b.iloc[:400]}
    fed = vfsl.simulate(tables, id="id", labels={"A": None, "B": None}, scheme="plain")
    fed.align("A", "B", protocol="ecdh")
    fill = "draw" if draws else "mean"
    how = FedPSG(tau=0.9, low=low, low_fill=fill, folds=2, shift="none")
    done = how.fit_complete(fed)
    truth = b.iloc[400:]
    ratios = done.table.std() / truth[["x", "y", "z"]].std()
    return done, ratios, truth


@pytest.mark.parametrize("low", ["mean", "hot-deck", {"ensemble": ["mean", "hot-deck"]}])
def test_drawn_columns_are_as_wide_as_the_truth(low):
    done, ratios, truth = check_width(low)
    assert (ratios - 1).abs().max() < 0.15
    # What is measured and bounded is still the mean: intervals do not move with the draws.
    inside = [
        truth[name].between(done.intervals[name]["low"].min(), done.intervals[name]["high"].max())
        for name in "xyz"
    ]
    assert np.mean(inside) > 0.8
    drawn = done.table.corr().to_numpy()
    assert np.abs(drawn - truth[["x", "y", "z"]].corr().to_numpy()).max() < 0.2


def test_means_are_narrower():
    _, ratios, _ = check_width("mean", draws=False)
    assert ratios.max() < 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    "low",
    [
        {"method": "tabddpm", "epochs": 200, "batch_size": 100},
        {"method": "gain", "epochs": 10},
        {"method": "vgain", "epochs": 10},
        {"method": "vfgain", "epochs": 10},
        {"method": "vae", "epochs": 60},
        {"method": "tvae", "epochs": 60},
        {"method": "ctgan", "epochs": 20},
        {"method": "tablegan", "epochs": 20},
        {"method": "ctabgan", "epochs": 5},
    ],
    ids=lambda low: low["method"],
)
def test_networks_draw_columns_as_wide_as_the_truth(low):
    """By draws of their own, or else by means with held-out errors, which a note says."""
    pytest.importorskip("torch")
    done, ratios, _ = check_width(low)
    assert (ratios - 1).abs().max() < 0.15, ratios
    if low["method"] in ("tabddpm", "gain", "vgain", "vfgain"):
        assert not any("draws of column" in note for note in done.notes)


def test_draws_that_are_too_narrow_are_said_and_not_used():
    class Narrow(HotDeck):
        def draw(self, table, rng):
            made = super().draw(table, rng)
            return made * 0.5

    done, ratios, truth = check_width(Narrow)
    assert (ratios - 1).abs().max() < 0.15
    # The errors of all numbers are those of one row, so that columns still belong together.
    drawn = done.table.corr().to_numpy()
    assert np.abs(drawn - truth[["x", "y", "z"]].corr().to_numpy()).max() < 0.25
    said = [note for note in done.notes if "by Narrow deviate 0." in note]
    assert len(said) == 3
    assert "means with held-out errors instead" in said[0]


def test_drawn_categories_follow_their_frequencies():
    fed, _ = federation(common=200, rest=400)
    done = FedPSG(tau=1.0, low="mean", low_fill="draw", folds=2, shift="none").fit_complete(fed)
    known = (fed.tables["B"].frame["colour"] == "red").mean()
    assert (done.table["colour"] == "red").mean() == pytest.approx(known, abs=0.1)
