"""A saved VF-GAIN: each party's share in its own folder, cell for cell the same, faults named."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from tests.completion.gen_cases import A, B, federation
from vfsl.completion import VFGAIN, load, save
from vfsl.completion.registry import load_share, save_shares
from vfsl.errors import ConfigError, StoreError


def tiny(**changes):
    return VFGAIN(**{"epochs": 2, "batch_size": 60, "width": 8, "embedding": 3, **changes})


@pytest.fixture(scope="module")
def fed():
    return federation(150)[0]


@pytest.fixture(scope="module")
def model(fed):
    return tiny().fit(fed)


@pytest.fixture
def folder(model, tmp_path):
    save(model, tmp_path)
    return tmp_path


def share_page(folder, party):
    return folder / "parties" / party / "completion-share.json"


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def fresh():
    """The same rows and the same learning randomness."""
    return federation(150)[0]


def test_saved_and_loaded_completes_cell_for_cell(model, folder):
    done, again = model.complete(fresh()), load(folder).complete(fresh())
    for part in ("values", "means", "spread", "confidence", "filled"):
        pd.testing.assert_frame_equal(getattr(done, part), getattr(again, part))
    pd.testing.assert_frame_equal(done.probabilities["kind"], again.probabilities["kind"])


def test_where_numbers_are_cut_stays_with_the_party(model, folder):
    for party, count in (("A", 2), ("B", 0)):  # B's numbers are all hidden here
        share = load_share(folder, party)
        knots = share.arrays["pieces.knots"]
        assert knots.shape == (count, 13)
        np.testing.assert_array_equal(knots, model.shares_[party].arrays["pieces.knots"])
    assert "knots" not in (folder / "completion.json").read_text()


def test_the_loaded_model_knows_its_settings_and_how_training_went(fed, tmp_path):
    model = tiny(known=["kind"]).fit(fed)
    save(model, tmp_path, "other")
    loaded = load(tmp_path, "other", threads=2)
    assert loaded == tiny(known=["kind"], threads=2)
    assert loaded.parties_ == ("A", "B")
    assert loaded.rounds_ == model.rounds_
    assert loaded.stop_reason_ == model.stop_reason_


def test_each_party_keeps_only_its_own(folder):
    found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*"))
    assert found == [
        "completion.json",
        "parties/A/completion-share.json",
        "parties/A/completion-share.npz",
        "parties/B/completion-share.json",
        "parties/B/completion-share.npz",
    ]
    at_a, at_b = (share_page(folder, party).read_text() for party in ("A", "B"))
    for columns, mine, other in ((A, at_a, at_b), (B, at_b, at_a)):
        for column in columns:
            assert f'"name": "{column}"' in mine
            assert f'"name": "{column}"' not in other


def test_the_public_page_names_no_column(fed, tmp_path):
    save(tiny(known=["kind"]).fit(fed), tmp_path)
    public = (tmp_path / "completion.json").read_text()
    assert '"width": 8' in public
    for column in (*A, *B):
        assert f'"{column}"' not in public


def test_a_party_reads_and_writes_its_own_share_alone(model, folder, tmp_path):
    shutil.rmtree(folder / "parties" / "A")
    (folder / "completion.json").unlink()
    mine = load_share(folder, "B")
    assert mine.role == "filler"
    assert mine == model.shares_["B"]
    assert mine.to_page() == model.shares_["B"].to_page()
    for key, value in model.shares_["B"].arrays.items():
        np.testing.assert_array_equal(mine.arrays[key], value)
    save_shares({"B": mine}, tmp_path / "copy")
    assert sorted(path.name for path in (tmp_path / "copy" / "parties").iterdir()) == ["B"]


def test_what_is_not_fitted_is_not_saved(tmp_path):
    with pytest.raises(ConfigError, match="VFGAIN is not fitted yet: call fit first"):
        save(tiny(), tmp_path)


PAGES = [
    ("{", "is damaged: it is not JSON"),
    ("[]", "it is not a share of VF-GAIN"),
    ('{"format": 1}', "it is not a share of VF-GAIN"),
    ('{"format": 9}', "has format 9; expected 1"),
]


@pytest.mark.parametrize(("text", "sentence"), PAGES)
def test_a_damaged_page_of_a_share(folder, text, sentence):
    share_page(folder, "A").write_text(text)
    with pytest.raises(StoreError, match=sentence):
        load(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"role": "filler"},  # with the state of the other role
        {"role": "relay"},
        {"state": None},
        {"state": {"encoder": {}, "rounds": 2}},
        {"arrays": None},
    ],
    ids=str,
)
def test_a_changed_page_of_a_share(folder, change):
    edit(share_page(folder, "A"), **change)
    with pytest.raises(StoreError, match=r"damaged|does not belong") as caught:
        load_share(folder, "A")
    assert "completion-share" in str(caught.value)


def test_a_foreign_share(folder):
    shutil.copytree(folder / "parties" / "A", folder / "parties" / "Z")
    with pytest.raises(StoreError, match="is the share of 'A', not of 'Z'"):
        load_share(folder, "Z")
    edit(share_page(folder, "B"), method="xgb")
    with pytest.raises(StoreError, match="is a share of 'xgb'; expected 'vfgain'"):
        load(folder)


def test_weights_of_another_training(fed, folder, tmp_path):
    other = tmp_path / "other"
    save(tiny(rate=0.01).fit(fed), other)
    arrays = share_page(folder, "B").with_suffix(".npz")
    shutil.copy(share_page(other, "B").with_suffix(".npz"), arrays)
    with pytest.raises(StoreError, match="does not belong to completion-share"):
        load(folder)
    content = bytearray(arrays.read_bytes())
    content[len(content) // 2] ^= 255
    arrays.write_bytes(content)
    with pytest.raises(StoreError, match=r"completion-share\.npz is damaged"):
        load(folder)
    arrays.unlink()
    with pytest.raises(StoreError, match=r"completion-share\.npz does not exist"):
        load(folder)


def test_a_public_page_that_does_not_fit_the_shares(folder):
    page = folder / "completion.json"
    whole = json.loads(page.read_text())
    for change in ({"width": 9}, {"pieces": 3}):
        edit(page, settings=whole["settings"] | change)
        with pytest.raises(StoreError, match="networks of another shape than its settings say"):
            load(folder)
    for change in ({"parties": ["A"]}, {"parties": 3}, {"settings": {"depth": 3}}):
        page.write_text(json.dumps(whole | change))
        with pytest.raises(StoreError, match="it is not a saved completion method"):
            load(folder)
