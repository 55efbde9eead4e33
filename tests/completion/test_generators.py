"""What every generator must do: repeat, save, meet conditions, refuse; and its parts are real."""

import numpy as np
import pandas as pd
import pytest
import torch

from tests.completion.gen_cases import GENERATORS, joint_law, mixed_frame, rng, tiny
from vfsl.completion import find, load, quality, save
from vfsl.errors import ConfigError, DataError, StoreError


@pytest.fixture(scope="module")
def fitted():
    return {name: tiny(name).fit(mixed_frame(), rng()) for name in GENERATORS}


@pytest.mark.parametrize("name", GENERATORS)
def test_samples_have_the_types_bounds_and_categories_of_the_table(fitted, name):
    frame = mixed_frame()
    made = fitted[name].sample(300, rng(1))
    assert len(made) == 300
    assert list(made.columns) == list(frame.columns)
    assert [str(made[c].dtype) for c in made] == [str(frame[c].dtype) for c in frame]
    assert set(made["colour"]) <= {"red", "green", "blue"}
    assert made["gain"].between(frame["gain"].min(), frame["gain"].max()).all()
    assert (made["fixed"] == 5).all()
    assert made["gain"].nunique() > 1


@pytest.mark.parametrize("name", GENERATORS)
def test_same_seed_same_samples_and_the_global_generator_is_not_touched(name):
    torch.manual_seed(1)
    np.random.seed(1)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    one = tiny(name).fit(mixed_frame(), rng(5)).sample(40, rng(6))
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()
    torch.manual_seed(2)
    model = tiny(name).fit(mixed_frame(), rng(5))
    pd.testing.assert_frame_equal(one, model.sample(40, rng(6)))
    assert not one.equals(model.sample(40, rng(7)))
    assert not one.equals(tiny(name).fit(mixed_frame(), rng(8)).sample(40, rng(6)))


@pytest.mark.parametrize("name", GENERATORS)
def test_a_saved_model_samples_the_same(fitted, name, tmp_path):
    save(fitted[name], tmp_path, name)
    again = load(tmp_path, name, threads=1)
    assert type(again) is type(fitted[name])
    pd.testing.assert_frame_equal(fitted[name].sample(50, rng(3)), again.sample(50, rng(3)))
    given = {"colour": "red"}
    pd.testing.assert_frame_equal(
        fitted[name].sample(20, rng(3), given), again.sample(20, rng(3), given)
    )


def test_damaged_and_foreign_files_are_refused(fitted, tmp_path):
    save(fitted["vae"], tmp_path)
    page = tmp_path / "completion.json"
    page.write_text(page.read_text().replace('"width": 16', '"width": 17'))
    with pytest.raises(StoreError, match="another shape"):
        load(tmp_path)
    page.write_text("{}")
    with pytest.raises(StoreError, match="not a saved completion method"):
        load(tmp_path)
    with pytest.raises(StoreError, match="does not exist"):
        load(tmp_path, "other")
    with pytest.raises(ConfigError, match="Only generators and imputers"):
        save(find("mean")(), tmp_path)


@pytest.mark.parametrize("name", GENERATORS)
def test_given_cells_come_back_and_free_ones_are_made(fitted, name):
    given = pd.DataFrame({"colour": ["red", None, "blue"] * 10, "size": [1.5, 2.25, None] * 10})
    made = fitted[name].sample(30, rng(), given)
    assert (made["colour"][0::3] == "red").all()
    assert (made["colour"][2::3] == "blue").all()
    assert (made["size"][0::3] == 1.5).all()
    assert (made["size"][1::3] == 2.25).all()
    assert made["colour"].notna().all()
    single = fitted[name].sample(4, rng(), {"gain": 17, "flag": True})
    assert single["gain"].tolist() == [17] * 4
    assert single["flag"].tolist() == [True] * 4


@pytest.mark.parametrize("name", GENERATORS)
def test_bad_input_is_one_sentence(fitted, name):
    model = fitted[name]
    with pytest.raises(DataError, match="has learned no column 'age' to be given"):
        model.sample(2, rng(), {"age": 3})
    with pytest.raises(DataError, match="category that was not in the training table"):
        model.sample(2, rng(), {"colour": "mauve"})
    with pytest.raises(DataError, match="must be numeric"):
        model.sample(2, rng(), {"size": "large"})
    with pytest.raises(DataError, match="must have 2 rows"):
        model.sample(2, rng(), pd.DataFrame({"size": [1.0]}))
    with pytest.raises(DataError, match="dict of column to value or a table"):
        model.sample(2, rng(), [1])
    with pytest.raises(DataError, match="at least 0"):
        model.sample(-1, rng())
    with pytest.raises(ConfigError, match="numpy Generator"):
        model.sample(2, 0)
    assert model.sample(0, rng()).shape == (0, 5)
    with pytest.raises(ConfigError, match="call fit first"):
        tiny(name).sample(2, rng())
    with pytest.raises(DataError, match="has no rows"):
        tiny(name).fit(mixed_frame().iloc[:0], rng())
    with pytest.raises(DataError, match="only constant columns"):
        tiny(name).fit(mixed_frame()[["fixed"]], rng())
    with pytest.raises(ConfigError, match="epochs parameter"):
        tiny(name, epochs=0).fit(mixed_frame(), rng())
    with pytest.raises(ConfigError, match="rng parameter"):
        tiny(name).fit(mixed_frame(), None)


@pytest.mark.parametrize("name", ["ctgan", "tablegan", "ctabgan"])
def test_gans_have_no_early_stop(name):
    with pytest.raises(ConfigError, match="patience parameter"):
        tiny(name, patience=3).fit(mixed_frame(), rng())


@pytest.mark.parametrize("name", ["vae", "tvae", "tabddpm"])
def test_conditions_can_be_left_out_of_training(name):
    model = tiny(name, conditional=False).fit(mixed_frame(), rng())
    with pytest.raises(ConfigError, match="conditional=False"):
        model.sample(3, rng(), {"colour": "red"})


# Each part switched off, and what it is.
PARTS = [
    ("ctgan", {"penalty": 0.0}),
    ("ctgan", {"pac": 1}),
    ("ctgan", {"conditional": False}),
    ("ctgan", {"log_frequency": False}),
    ("ctgan", {"temperature": 2.0}),
    ("ctgan", {"modes": 1}),
    ("tvae", {"learned_noise": False}),
    ("tvae", {"weight": 0.5}),
    ("vae", {"deviation": 1.0}),
    ("tablegan", {"information": 0.0}),
    ("tablegan", {"classification": 0.0}),
    ("tablegan", {"generator_steps": 1}),
    ("tablegan", {"memory": 0.99}),
    ("tablegan", {"target": "flag"}),
    ("tablegan", {"slack_mean": 100.0, "slack_deviation": 100.0}),
    ("ctabgan", {"information": 0.0}),
    ("ctabgan", {"classification": 0.0}),
    ("ctabgan", {"special": None}),
    ("ctabgan", {"self_attention": True}),
    ("tabddpm", {"schedule": "linear"}),
    ("tabddpm", {"average": 0.0}),
    ("tabddpm", {"sample_steps": 4}),
    ("tabddpm", {"hide": ["size", "gain"]}),
]


@pytest.mark.parametrize(("name", "change"), PARTS, ids=lambda part: str(part))
def test_every_part_changes_the_samples(fitted, name, change):
    frame = mixed_frame().drop(columns="fixed")
    target = {"target": "colour"} if name in ("tablegan", "ctabgan") else {}
    settings = {**target, **change}
    one = tiny(name, **target).fit(frame, rng()).sample(200, rng(1))
    two = tiny(name, **settings).fit(frame, rng()).sample(200, rng(1))
    assert not one.equals(two)


def test_special_values_are_choices_of_ctabgan():
    model = tiny("ctabgan").fit(mixed_frame(), rng())
    columns = {coding.code.name: coding for coding in model.encoder_.columns_}
    assert columns["gain"].special == (0.0,)


def test_wrong_settings_are_one_sentence():
    cases = [
        ("tablegan", {"target": "age"}, "target parameter of TableGAN"),
        ("ctabgan", {"target": "size"}, "target parameter of CTABGAN"),
        ("tabddpm", {"hide": ["age"]}, "hide parameter of TabDDPM"),
        ("tabddpm", {"sample_steps": 99}, "sample_steps parameter"),
        ("tabddpm", {"schedule": "square"}, "schedule parameter"),
        ("ctgan", {"pac": 0}, "pac parameter of CTGAN"),
        ("tvae", {"latent": "many"}, "latent parameter of TVAE"),
    ]
    for name, change, sentence in cases:
        with pytest.raises(ConfigError, match=sentence):
            tiny(name, **change).fit(mixed_frame(), rng())


def test_a_row_that_no_square_holds_is_refused():
    wide = pd.DataFrame({f"c{i}": [str(j) for j in range(40)] for i in range(60)})
    with pytest.raises(DataError, match="convolutions here take at most"):
        tiny("ctabgan", modes=1).fit(wide, rng())


# Settings that learn the toy law in some seconds; all beat independent columns by far.
LEARN = {
    "ctgan": {"epochs": 60, "batch_size": 50},
    "tablegan": {"epochs": 30, "batch_size": 50, "channels": 16},
    "ctabgan": {"epochs": 40, "batch_size": 50, "channels": 8, "rate": 3e-3},
    "vae": {"epochs": 120, "batch_size": 100},
    "tvae": {"epochs": 120, "batch_size": 100},
    "tabddpm": {"epochs": 80, "batch_size": 100, "width": 64},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GENERATORS)
def test_the_joint_law_is_learned(name):
    train, test = joint_law(1_000, 0), joint_law(1_000, 1)
    source = rng(2)
    alone = train.apply(lambda column: source.permutation(column.to_numpy()))
    apart = quality(test, alone).pair
    model = find(name)(**LEARN[name]).fit(train, rng(3))
    found = quality(test, model.sample(1_000, rng(4)))
    assert found.pair > apart + 0.1
    high = model.sample(300, rng(5), {"c": "c"})["x"].mean()
    low = model.sample(300, rng(5), {"c": "a"})["x"].mean()
    assert high > low + 3  # the law says 7
