"""FedPSG as the paper has it: VFPU-M above τ, a generator or imputer below, nothing else."""

import numpy as np
import pandas as pd
import pytest

import vfsl
from tests.completion.psg_cases import federation, frames
from vfsl.completion.fedpsg import FedPSG

# Two rounds of self-training: what a round does is tested elsewhere.
PAPER = {"preset": "paper", "rounds": 2, "folds": 2, "shift": "none"}
TINY = {
    "ctgan": {"epochs": 2, "batch_size": 50, "draws": 2},
    "tablegan": {"epochs": 2, "batch_size": 50, "draws": 2},
    "ctabgan": {"epochs": 2, "batch_size": 50, "draws": 2, "self_attention": True},
    "vae": {"epochs": 2, "draws": 2},
    "tvae": {"epochs": 2, "draws": 2},
    "tabddpm": {"epochs": 2, "steps": 10, "width": 32, "draws": 2},
    "gain": {"epochs": 3, "width": 16},
    "vgain": {"epochs": 3, "width": 16, "draws": 2},
    "vfgain": {"epochs": 3, "width": 16},
}


def check_both_branches(low, label):
    a, b, _ = frames(common=100, rest=40, seed=2)
    tables = {"A": a.drop(columns="a-group"), "B": b.iloc[:100]}
    fed = vfsl.simulate(tables, id="id", labels={"A": None, "B": None}, scheme="plain")
    fed.align("A", "B", protocol="ecdh")
    done = FedPSG(low=low, **PAPER).fit_complete(fed)
    routes = {route.column: (route.route, route.measure) for route in done.routes}
    # By the mean over A's three columns income and visits pass τ = 0.5, colour and noise do not.
    assert routes == {
        "income": ("high", 0.59),
        "visits": ("high", 0.62),
        "colour": ("low", 0.45),
        "noise": ("low", 0.02),
    }
    models = {name: column.model for name, column in done.columns.items()}
    assert models["income"] == models["visits"] == "vfpu-m linear"
    assert models["colour"] == models["noise"] == label
    assert done.table.notna().all(axis=None)
    steps = [step.name for step in fed.steps]
    assert "direct model" not in steps
    assert steps[1:4] == ["association", "cross-fit", "vfpu-m"]
    # Nothing is learned between the parties about columns that are completed locally.
    cross_fit = next(step for step in fed.steps if step.name == "cross-fit")
    assert set(cross_fit.metrics) == {"income", "visits"}
    assert ("vf-gain" in steps) == ("vfgain" in str(low))
    return fed, done


def test_both_branches_run():
    pytest.importorskip("torch")
    low = {"method": "tabddpm", **TINY["tabddpm"]}
    fed, done = check_both_branches(low, "tabddpm")
    settings = next(step for step in fed.steps if step.name == "vfpu-m").settings
    assert settings["low"] == low
    assert (settings["confidence"], settings["context"]) == ("paper", "preliminary")
    assert not any("aggregate" in note for note in done.notes)


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_any_of_the_nine_is_a_low_method(name):
    pytest.importorskip("torch")
    check_both_branches({"method": name, **TINY[name]}, name)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["vote", "weighted", "stacking", "column", "row"])
def test_an_ensemble_is_a_low_method(how):
    pytest.importorskip("torch")
    members = [{"method": name, **TINY[name]} for name in ("tabddpm", "vfgain")]
    _, done = check_both_branches({"ensemble": members, "how": how}, f"tabddpm + vfgain by {how}")
    assert set(done.probabilities["colour"].columns) == {"red", "blue"}


def test_the_old_word_still_does():
    old = FedPSG(preset="seed", confidence="seed", low="mean").resolve()
    new = FedPSG(preset="paper", confidence="paper", low="mean").resolve()
    assert old == new
    assert "seed" not in (FedPSG.__doc__ or "")


def test_the_unrounded_association_decides():
    a, b, _ = frames(common=100, rest=40)
    tables = {"A": a.drop(columns=["a2", "a-group"]), "B": b.iloc[:100]}
    fed = vfsl.simulate(tables, id="id", labels={"A": None, "B": None}, scheme="plain")
    fed.align("A", "B", protocol="ecdh")
    ranks = [frame.iloc[:100].rank() for frame in (a[["a0", "a1"]], b[["income"]])]
    exact = float(np.mean([abs(ranks[0][c].corr(ranks[1]["income"])) for c in ("a0", "a1")]))
    rounded = round(exact, 2)
    assert abs(exact - rounded) > 1e-4
    # τ between the exact and the rounded number: by the rounded one the column would go elsewhere.
    tau = (exact + rounded) / 2
    how = FedPSG(tau=tau, low="mean", folds=2, shift="none")
    route = next(one for one in how.fit_complete(fed).routes if one.column == "income")
    assert (route.route == "high") == (exact > tau) != (rounded > tau)
    assert route.measure == rounded


def test_no_column_above_tau_is_said():
    fed, _ = federation(common=100, rest=40)
    done = FedPSG(low="hot-deck", **PAPER | {"tau": 0.9}).fit_complete(fed)
    assert {route.route for route in done.routes} == {"low"}
    (note,) = (note for note in done.notes if "τ" in note)
    assert "above τ = 0.9" in note
    assert "aggregate='max'" in note
    assert [step.name for step in fed.steps] == ["align", "association", "completion"]
    strongest = FedPSG(low="hot-deck", aggregate="max", **PAPER | {"tau": 0.99}).fit_complete(fed)
    (note,) = (note for note in strongest.notes if "τ" in note)
    assert "aggregate" not in note


@pytest.mark.parametrize("scheme", ["plain", "auto"])
def test_routing_by_significance(scheme):
    fed, _ = federation(common=150, rest=40, scheme=scheme)
    how = FedPSG(tau="significance", low="mean", folds=2, shift="none")
    done = how.fit_complete(fed)
    routes = {route.column: route for route in done.routes}
    assert {name for name, one in routes.items() if one.route == "high"} == {
        "income",
        "visits",
        "colour",
    }
    assert {one.by for one in routes.values()} == {"significance"}
    assert routes["noise"].measure > routes["noise"].threshold == pytest.approx(0.05 * 3 / 4)
    assert routes["income"].measure < 1e-6
    assert ("disclosure", "associations") in how.asks()


def test_nothing_significant_is_said():
    rng = np.random.default_rng(3)
    a = pd.DataFrame({"id": [str(n) for n in range(120)], "a": rng.normal(size=120)})
    b = pd.DataFrame({"id": a["id"][:80], "x": rng.normal(size=80), "y": rng.normal(size=80)})
    fed = vfsl.simulate({"A": a, "B": b}, scheme="plain", labels={"A": None, "B": None})
    fed.align("A", "B", protocol="ecdh")
    done = FedPSG(tau="significance", low="mean", shift="none").fit_complete(fed)
    assert any("significantly associated" in note for note in done.notes)
