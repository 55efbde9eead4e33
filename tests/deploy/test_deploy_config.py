"""Project and party files: what they accept, and the sentences with which they refuse."""

import tomllib

import pytest

from vfsl.deploy.config import (
    PartyFile,
    Project,
    load_party,
    load_project,
    make_seal_key,
    party_template,
    seal_key,
)
from vfsl.deploy.provision import address, submitter_name
from vfsl.deploy.sites import check_site
from vfsl.errors import ConfigError, DataError, StoreError


def project(**changes):
    content = {
        "name": "loans",
        "relay": {"host": "relay.example", "port": 8002, "admin_port": 8003},
        "parties": ["bank", "shop"],
        "key_holder": "keys",
        "submitters": ["bank"],
    }
    return Project.model_validate(content | changes)


def test_a_project_file_reads_as_it_was_written(tmp_path):
    made = project(authority="SHA256:AB")
    (tmp_path / "project.toml").write_text(made.to_toml())
    assert load_project(tmp_path / "project.toml") == made
    assert made.everyone == ("bank", "shop", "keys")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"parties": ["bank"]}, "at least 2"),
        ({"parties": ["bank", "a b"]}, "'a b'"),
        ({"parties": ["bank", "relay"]}, "'relay'"),
        ({"parties": ["bank", "keys"]}, "a name of their own"),
        ({"submitters": ["nobody"]}, "'nobody'"),
        ({"more": 1}, "more"),
    ],
)
def test_a_project_that_cannot_be_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        project(**changes)


@pytest.mark.parametrize("role", ["data", "key holder", "relay"])
def test_the_template_of_a_party_file_is_one(role):
    text = party_template(project(), "bank", role)
    made = PartyFile.model_validate(tomllib.loads(text))
    assert (made.party, made.role) == ("bank", role)
    assert set(made.peers) == (set() if role == "relay" else {"shop", "keys"})
    assert made.allow.disclosures == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('party = "A"', "a data party needs a \\[table\\] section"),
        (
            'party = "K"\nrole = "key holder"\n[table]\npath = "x"\nid = "i"\ncolumns = ["c"]',
            "no table",
        ),
        ('party = "K"\nrole = "boss"', "role must be"),
        ('party = "K"\nrole = "key holder"\n[allow]\noutputs = ["gossip"]', "'gossip'"),
        ('party = "K"\nrole = "key holder"\nsecret = 1', "secret is not a known field"),
        ("role =", "not valid TOML"),
        ('role = "relay"', "party is missing"),
    ],
)
def test_mistakes_in_a_party_file_are_one_sentence(tmp_path, text, words):
    (tmp_path / "party.toml").write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_party(tmp_path)


def test_only_allowed_columns_are_read(world):
    table = load_party(world.site("C")).read_table(world.site("C"))
    assert sorted(table.columns) == ["MARKER-c1", "MARKER-c2", "y"]
    text = (world.site("C") / "party.toml").read_text().replace('"MARKER-c2"', '"MARKER-c9"')
    (world.site("C") / "party.toml").write_text(text)
    with pytest.raises(DataError, match="MARKER-c9"):
        load_party(world.site("C")).read_table(world.site("C"))


@pytest.mark.parametrize(
    ("columns", "said", "features"),
    [
        (["age", "churn"], "", None),
        (["age", "churn"], "label = false", ["age", "churn"]),
        (["age", "churn"], 'label = "churn"', ["age"]),
        (["age"], 'label = "churn"', ["age"]),
        (["age"], "", ["age"]),  # a column that no run sees is nobody's business
    ],
)
def test_a_party_asks_about_its_own_undeclared_label(tmp_path, columns, said, features):
    (tmp_path / "table.csv").write_text("id,age,churn\na,31,yes\nb,47,no\nc,22,\n")
    (tmp_path / "party.toml").write_text(
        f'party = "A"\n[table]\npath = "table.csv"\nid = "id"\ncolumns = {columns}\n{said}\n'
    )
    mine = load_party(tmp_path)
    if features is None:
        words = r'write label = "churn" under \[table\] in party.toml, or label = false if it is'
        with pytest.raises(ConfigError, match=words):
            mine.read_table(tmp_path)
    else:
        assert mine.read_table(tmp_path).features == features


def test_pins_and_keys_belong_together(tmp_path, world):
    pin = make_seal_key(tmp_path)
    assert seal_key(tmp_path).public_key().public_bytes_raw().hex() == pin
    assert (tmp_path / "seal.key").stat().st_mode & 0o077 == 0
    (tmp_path / "seal.key").write_text("no key")
    with pytest.raises(StoreError, match="damaged"):
        seal_key(tmp_path)
    world.write_party("B", pins={"C": "PIN-OF-C"})
    with pytest.raises(ConfigError, match="The pin of 'C'"):
        check_site(world.site("B"))


def test_a_site_says_what_it_is_set_up_as(world):
    assert check_site(world.site("C")) == "C with 120 rows and 3 columns"
    assert check_site(world.site("K")) == "K, the key holder"


def test_addresses_and_user_names():
    assert address("localhost:8002").admin_port == 8003
    assert address("r.example:8002:9000").admin_port == 9000
    assert submitter_name("loans", "bank") == "bank@loans.vfsl"
    for text in ("localhost", "localhost:x", ":8002", "a:1:2:3"):
        with pytest.raises(ConfigError, match="HOST:PORT"):
            address(text)
