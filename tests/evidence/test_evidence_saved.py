"""A fitted RISA on disk: the same answers, each share in its own folder, and every refusal."""

import json

import numpy as np
import pytest

import vfsl
from vfsl.data import make_parties
from vfsl.errors import ConfigError, StoreError
from vfsl.estimators import load_model, save_model
from vfsl.evidence import MLP, RISA

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def fitted():
    made = make_parties(rows=150, overlap=0.6, rng=np.random.default_rng(0), numeric=2)
    fed = vfsl.simulate(made.tables, id="id", labels={"A": made.label}, scheme="plain", seed=1)
    fed.align("A", "B", protocol="ecdh")
    encoder = {"A": MLP(hidden=(8,), embedding=2), "B": "mlp"}
    switches = {"self_train": False, "absent": "mean"}
    model = RISA(epochs=2, encoder=encoder, switches=switches)
    return fed, model.fit(fed, label=("A", made.label))


def test_it_answers_as_before(fitted, tmp_path):
    fed, model = fitted
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    assert again.label_ == model.label_
    assert again.encoder == {"A": MLP(hidden=(8,), embedding=2), "B": MLP()}
    for rows in ("overlap", "all"):
        expected, found = (one.predict_proba(fed, rows=rows) for one in (model, again))
        np.testing.assert_array_equal(found, expected)
    assert again.trust_ == model.trust_
    np.testing.assert_array_equal(
        again.uncertainty(fed, offline=["B"]), model.uncertainty(fed, offline=["B"])
    )


def test_files_of_older_versions_still_load(fitted, tmp_path):
    """They had the recipes of networks beside the settings, and sizes of networks only there."""
    fed, model = fitted
    save_model(model, tmp_path)
    page = json.loads((tmp_path / "model.json").read_text())
    page["encoders"] = page["settings"].pop("encoder")
    for name in ("hidden", "embedding"):
        del page["settings"][name]
    (tmp_path / "model.json").write_text(json.dumps(page))
    np.testing.assert_array_equal(load_model(tmp_path).predict(fed), model.predict(fed))


def test_each_share_is_in_its_own_folder(fitted, tmp_path):
    fed, model = fitted
    save_model(model, tmp_path, "model-3")
    names = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert names == [
        "model-3.json",
        "parties/A/model-3-share.json",
        "parties/B/model-3-share.json",
    ]
    theirs = (tmp_path / "parties/B/model-3-share.json").read_text()
    assert not any(f'"{name}"' in theirs for name in fed.tables["A"].columns)
    public = (tmp_path / "model-3.json").read_text()
    assert not any(name in public for name in fed.tables["B"].columns)


def test_what_cannot_be_saved_or_loaded_is_one_sentence(fitted, tmp_path):
    _, model = fitted
    with pytest.raises(ConfigError, match="not fitted"):
        save_model(RISA(), tmp_path)
    own = RISA(encoder=torch.nn.Linear(3, 2))
    own.shares_, own.label_ = model.shares_, model.label_
    with pytest.raises(ConfigError, match="torch module of your own"):
        save_model(own, tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(StoreError, match="does not exist"):
        load_model(tmp_path)
    save_model(model, tmp_path)
    page = json.loads((tmp_path / "model.json").read_text())
    for change, words in (
        ({"format": 99}, "has format 99"),
        ({"model": "xgb"}, "not a saved model"),
        ({"settings": {"epoch": 3}}, "not a saved model"),
        ({"settings": {**page["settings"], "encoder": "cnn"}}, "not a saved model"),
        ({"settings": {**page["settings"], "encoder": {"A": {"kind": "?"}}}}, "not a saved model"),
    ):
        (tmp_path / "model.json").write_text(json.dumps(page | change))
        with pytest.raises(StoreError, match=words):
            load_model(tmp_path)
