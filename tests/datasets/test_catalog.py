"""The catalog: built-in sets, the data folder, downloads, and each published set's traps."""

from __future__ import annotations

import urllib.error
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets

from vfsl.data import Kind, PartyTable
from vfsl.datasets import available, card, cards, catalog, load
from vfsl.datasets.sources import open_cifar10
from vfsl.errors import ConfigError, DataError

BUILT_IN = {
    "breast_cancer": (569, 30, "binary"),
    "diabetes": (442, 10, "regression"),
    "wine": (178, 13, "multiclass"),
    "iris": (150, 4, "multiclass"),
    "digits": (1797, 64, "multiclass"),
}


def test_every_set_has_a_card():
    everything = [*BUILT_IN, *REAL]
    assert sorted(cards().index) == sorted(everything)
    for name in cards().index:
        one = card(name)
        assert one.terms
        assert one.cite
        assert one.get.startswith("Nothing: " if name in BUILT_IN else "Put ")


def test_the_card_names_the_files_that_are_missed(folder: Path):
    assert available() == list(BUILT_IN)
    for name in set(REAL) - set(available(network=True)):
        with pytest.raises(DataError, match="in the data folder") as caught:
            load(name)
        first = str(caught.value).split(" needs ")[1].split(" ")[0]
        assert card(name).get.startswith(f"Put {first}")


def test_an_unknown_card_names_the_known():
    with pytest.raises(ConfigError, match="no data set 'titanic'; the names are breast_cancer"):
        card("titanic")


def needs(name: str) -> None:
    if name not in available():
        pytest.skip(f"the files of {name} are not here")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VFSL_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_sets(name: str):
    found = load(name)
    rows, features, task = BUILT_IN[name]
    assert found.frame.shape == (rows, features + 1)
    assert (found.name, found.label, found.task) == (name, "target", task)
    assert found.kinds[found.label] is Kind.LABEL
    frame = found.frame.assign(id=range(rows))
    table = PartyTable.from_frame(frame, party="A", id="id", kinds=found.kinds)
    assert len(table.features) == features


def test_names_that_load_here(folder: Path):
    assert available() == list(BUILT_IN)
    assert available(network=True) == [*BUILT_IN, "census", "bank", "credit"]
    (folder / "mnist").mkdir()
    (folder / "mnist" / "mnist.npz").write_bytes(b"")
    assert available() == [*BUILT_IN, "mnist"]


def test_an_unknown_name_lists_the_known():
    with pytest.raises(
        ConfigError, match=r"no data set 'titanic'; the names are .*census.*cifar10"
    ):
        load("titanic")


@pytest.mark.parametrize("name", ["fate-breast", "criteo", "mnist", "cifar10"])
def test_absent_files_are_named(folder: Path, name: str):
    with pytest.raises(DataError, match=rf"'{name}' needs .*{name.split('-')[0]}/.*VFSL_DATA"):
        load(name)


def test_a_wrong_folder_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VFSL_DATA", "/nowhere/at/all")
    with pytest.raises(DataError, match=r"VFSL_DATA must name a folder. Got '/nowhere/at/all'"):
        load("mnist")


def test_the_folder_is_found_beside_a_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("VFSL_DATA", raising=False)
    data = tmp_path / "shared" / "data"
    (data / "credit").mkdir(parents=True)
    (data / "credit" / "UCI_Credit_Card.csv").write_text("x\n")
    inside = tmp_path / "checkout" / "src"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    assert catalog.find_data_folder() == data


@pytest.mark.parametrize("name", ["census", "bank", "credit"])
@pytest.mark.parametrize("error", [urllib.error.URLError("no route"), ValueError("gone")])
def test_no_network_is_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: Exception
):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fail)
    with pytest.raises(
        DataError, match=rf"'{name}' is not in a data folder.*{type(error).__name__}"
    ):
        load(name)


def openml(monkeypatch: pytest.MonkeyPatch, data: pd.DataFrame, target: list[str]) -> list[object]:
    asked: list[object] = []

    def fetch(name: str, *, version: int, as_frame: bool) -> SimpleNamespace:
        asked.append((name, version, as_frame))
        return SimpleNamespace(data=data, target=pd.Series(target, dtype="category"))

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    return asked


def test_census_from_openml(folder: Path, monkeypatch: pytest.MonkeyPatch):
    names = "age workclass fnlwgt education education-num marital-status occupation relationship"
    columns = [*names.split(), "race", "sex", "capital-gain", "capital-loss", "hours", "country"]
    data = pd.DataFrame([[30] * 14, [31] * 14], columns=columns)
    data["workclass"] = pd.Categorical(["Private", None])
    asked = openml(monkeypatch, data, ["<=50K", ">50K"])
    found = load("census")
    assert asked == [("adult", 2, True)]
    assert found.frame["label"].tolist() == ["<=50K", ">50K"]
    assert found.frame["workclass"].isna().tolist() == [False, True]
    assert found.kinds["native-country"] is Kind.NUMERIC
    assert load("census", raw=True).frame["workclass"].tolist() == ["Private", "?"]


def test_bank_from_openml(folder: Path, monkeypatch: pytest.MonkeyPatch):
    data = pd.DataFrame([[1] * 16, [2] * 16], columns=[f"V{place}" for place in range(1, 17)])
    data["V14"] = [-1, 5]
    asked = openml(monkeypatch, data, ["1", "2"])
    found = load("bank")
    assert asked == [("bank-marketing", 1, True)]
    by_age = found.frame.set_index("age")
    assert by_age["y"].to_dict() == {1: "no", 2: "yes"}
    assert by_age["pdays"].isna().to_dict() == {1: True, 2: False}
    assert "duration" not in found.frame
    assert any("older bank-full" in note for note in found.notes)


def test_credit_from_openml(folder: Path, monkeypatch: pytest.MonkeyPatch):
    data = pd.DataFrame([[1] * 23, [2] * 23], columns=[f"x{place}" for place in range(1, 24)])
    data["x2"] = pd.Categorical(["1", "2"])
    openml(monkeypatch, data, ["0", "1"])
    found = load("credit")
    assert found.frame[found.label].tolist() == [0, 1]
    assert found.frame["SEX"].tolist() == [1, 2]
    assert found.kinds["SEX"] is Kind.CATEGORICAL
    openml(monkeypatch, data.iloc[:, :20], ["0", "1"])
    with pytest.raises(DataError, match=r"must have 23 features\. Got 20 instead"):
        load("credit")


def test_bank_file_traps(folder: Path):
    rows = [f'{age};"a";{age * 10};{999 if age % 2 else 3};"no"' for age in range(20, 60)]
    (folder / "bank").mkdir()
    lines = ['"age";"job";"duration";"pdays";"y"', *rows]
    (folder / "bank" / "bank-additional-full.csv").write_text("\n".join(lines))
    found = load("bank")
    assert list(found.frame.columns) == ["age", "job", "pdays", "y"]
    assert found.frame["pdays"].isna().sum() == 20
    assert found.frame["age"].tolist() != list(range(20, 60))
    assert sorted(found.frame["age"]) == list(range(20, 60))
    pd.testing.assert_frame_equal(found.frame, load("bank").frame)
    raw = load("bank", raw=True)
    assert raw.frame["age"].tolist() == list(range(20, 60))
    assert (raw.frame["pdays"] == 999).sum() == 20
    assert "duration" in raw.frame


def test_census_file_traps(folder: Path):
    row = "39, ?, 77516, Bachelors, 13, a, b, c, d, e, 2174, 0, 40, f, <=50K"
    (folder / "census").mkdir()
    (folder / "census" / "adult.data").write_text(row + "\n\n")
    (folder / "census" / "adult.test").write_text("|1x3 Cross validator\n" + row + ".\n")
    found = load("census")
    assert found.frame["label"].tolist() == ["<=50K", "<=50K"]
    assert found.part is not None
    assert found.part.tolist() == ["train", "test"]
    assert found.frame["workclass"].isna().all()
    assert load("census", raw=True).frame["workclass"].tolist() == ["?", "?"]


def test_fate_splits_are_joined_by_id(folder: Path):
    (folder / "fate").mkdir()
    stem = folder / "fate" / "breast_hetero"
    Path(f"{stem}_guest.csv").write_text("id,y,x0,void\n03,1,0.5,\n1,0,0.25,\n2,1,0.75,\n")
    Path(f"{stem}_host.csv").write_text("id,x0,z\n1,10,5\n4,40,6\n03,30,7\n")
    found = load("fate-breast")
    assert found.tables["guest"].ids.tolist() == ["03", "1", "2"]
    assert found.tables["host"].party == "host"
    assert found.frame.to_dict("list") == {
        "guest_x0": [0.5, 0.25],
        "host_x0": [30, 10],
        "z": [7, 5],
        "y": [1, 0],
    }
    assert found.notes == ("Column 'void' of guest is empty and left out.",)


def test_damaged_pictures_are_one_sentence(folder: Path):
    (folder / "mnist").mkdir()
    (folder / "mnist" / "mnist.npz").write_bytes(b"not a zip")
    with pytest.raises(DataError, match=r"mnist.npz is damaged"):
        load("mnist")


def test_pictures_are_read_on_first_use(folder: Path):
    (folder / "mnist").mkdir()
    path = folder / "mnist" / "mnist.npz"
    pixels = np.arange(5 * 28 * 28, dtype=np.uint8).reshape(5, 28, 28)
    np.savez(path, x_train=pixels[:3], y_train=[1, 2, 3], x_test=pixels[3:], y_test=[4, 5])
    found = load("mnist")
    assert found.frame["label"].tolist() == [1, 2, 3, 4, 5]
    assert found.part is not None
    assert found.part.tolist() == ["train"] * 3 + ["test"] * 2
    assert found.images is not None
    assert found.images.shape == (5, 28, 28)
    np.testing.assert_array_equal(found.images[[4, 0]], pixels[[4, 0]])
    np.testing.assert_array_equal(found.images[3], pixels[3])
    np.testing.assert_array_equal(found.images[1:3], pixels[1:3])
    assert found.images[[]].shape == (0, 28, 28)


def test_jpeg_pictures_need_pillow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("vfsl.datasets.sources.importlib.import_module", absent)
    with pytest.raises(DataError, match="need Pillow to decode; install it"):
        open_cifar10(tmp_path / "c.npz", 3)[0]


def test_jpeg_pictures_are_cut_at_their_offsets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A stand-in for Pillow shows which bytes each row decodes."""

    class Picture:
        def __init__(self, content: bytes) -> None:
            self.value = content[0] * 10 + len(content)

        def convert(self, mode: str) -> np.ndarray:
            assert mode == "RGB"
            return np.full((32, 32, 3), self.value, dtype=np.uint8)

    stand_in = SimpleNamespace(open=lambda file: Picture(file.read()))
    monkeypatch.setattr("vfsl.datasets.sources.importlib.import_module", lambda name: stand_in)
    path = tmp_path / "c.npz"
    train, test = np.array([1, 1, 2], np.uint8), np.array([3, 3, 3], np.uint8)
    np.savez(path, jpg_train=train, off_train=[0, 2, 3], jpg_test=test, off_test=[0, 3])
    images = open_cifar10(path, 3)
    assert images[:].shape == (3, 32, 32, 3)
    assert images[[2, 0, 1]][:, 0, 0, 0].tolist() == [33, 12, 21]
    assert images[[]].shape == (0, 32, 32, 3)


REAL = {
    "census": (48842, 15, "binary", 2),
    "bank": (41188, 20, "binary", 2),
    "credit": (30000, 24, "binary", 2),
    "fate-breast": (569, 31, "binary", 2),
    "fate-default_credit": (30000, 24, "binary", 2),
    "fate-vehicle": (846, 19, "multiclass", 4),
    "fate-student": (395, 14, "regression", None),
    "fate-motor": (800, 12, "regression", None),
    "fate-dvisits": (5190, 13, "count", None),
    "fate-ionosphere": (351, 34, "binary", 2),
    "criteo": (8000, 40, "binary", 2),
    "mnist": (70000, 1, "multiclass", 10),
    "cifar10": (60000, 1, "multiclass", 10),
}


@pytest.mark.data
@pytest.mark.parametrize("name", REAL)
def test_real_sets_have_the_published_shape(name: str):
    needs(name)
    found = load(name)
    rows, columns, task, classes = REAL[name]
    assert found.frame.shape == (rows, columns)
    assert found.task == task
    assert list(found.kinds) == list(found.frame.columns)
    if classes is not None:
        assert found.frame[found.label].nunique() == classes
    frame = found.frame.assign(row_id=range(rows))
    table = PartyTable.from_frame(frame, party="A", id="row_id", kinds=found.kinds)
    assert table.labels == [found.label]


@pytest.mark.data
@pytest.mark.parametrize("name", [name for name in REAL if name.startswith("fate-")])
def test_real_vertical_splits(name: str):
    needs(name)
    found = load(name)
    guest, host = found.tables["guest"], found.tables["host"]
    assert set(guest.ids) == set(host.ids)
    assert guest.labels == [found.label]
    assert host.labels == []
    assert len(guest.features) + len(host.features) + 1 == found.frame.shape[1]
    assert guest.column(found.label).tolist() == found.frame[found.label].tolist()


@pytest.mark.data
def test_real_pooled_join_is_by_id():
    needs("fate-breast")
    found = load("fate-breast")
    host = found.tables["host"]
    rows = pd.Index(host.ids).get_indexer(found.tables["guest"].ids)
    np.testing.assert_array_equal(found.frame["host_x0"], host.take(rows).column("x0"))


@pytest.mark.data
def test_real_census_and_criteo_caveats():
    needs("census")
    needs("criteo")
    census = load("census")
    assert census.part is not None
    assert (census.part == "train").sum() == 32561
    assert set(census.frame["label"]) == {"<=50K", ">50K"}
    assert census.frame["workclass"].isna().sum() == 2799
    assert not census.frame.isin(["?"]).any(axis=None)
    criteo = load("criteo")
    assert criteo.part is not None
    assert [(criteo.part == part).sum() for part in ("train", "dev", "test")] == [7200, 409, 391]
    assert [criteo.kinds[name] for name in ("I1", "C26")] == ["numeric", "categorical"]
    assert criteo.frame["C1"].str.len().eq(8).all()


@pytest.mark.data
def test_real_pictures():
    needs("mnist")
    mnist = load("mnist")
    assert mnist.images is not None
    assert mnist.images[:10].shape == (10, 28, 28)
    assert mnist.images[69999].dtype == np.uint8
    needs("cifar10")
    pytest.importorskip("PIL", reason="decoding JPEG needs Pillow")
    cifar = load("cifar10")
    assert cifar.images is not None
    assert cifar.images[[0, 59999]].shape == (2, 32, 32, 3)
