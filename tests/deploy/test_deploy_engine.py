"""What is written for the engine, and the commands; without starting anything."""

import json
import sys

import pytest
import typer
from typer.testing import CliRunner

from vfsl.cli.deploy import deploy_app
from vfsl.deploy import engine, provision
from vfsl.errors import ConfigError, StoreError
from vfsl.store import read_json, write_json


def test_an_engine_job_ships_no_code_and_says_nothing_about_the_work(tmp_path):
    facts = {"run": "r", "attempt": 1, "leader": "C", "parties": ["B", "C"], "job": "00"}
    made = engine.write_job(tmp_path, "vfsl-r", ["B", "C"], engine.PARTY_CLASS, facts, 60.0)
    files = {str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()}
    assert files == {
        "meta.json",
        "app/config/config_fed_server.json",
        "app/config/config_fed_client.json",
    }
    (party,) = read_json(made / "app/config/config_fed_client.json")["components"]
    assert party == {"id": "party", "path": "vfsl.deploy.party.Party", "args": facts}
    meta = read_json(made / "meta.json")
    assert meta["min_clients"] == 2
    assert meta["mandatory_clients"] == ["B", "C"]


def test_a_kit_is_made_strict(tmp_path):
    local = tmp_path / "kit" / "local"
    resources = {
        "class_allow_list": ["nvflare."],
        "allow_log_streaming": True,
        "snapshot_persistor": {"args": {"storage": {"args": {"root_dir": "/tmp/shared"}}}},
        "components": [
            {"id": "job_manager", "args": {"uri_root": "/tmp/shared"}},
            {"id": "log_receiver"},
            {"id": "site_log_streamer"},
            {"id": "process_launcher"},
        ],
    }
    write_json(local / "resources.json.default", resources)
    write_json(local / "log_config.json.default", {"loggers": {"root": {"level": "INFO"}}})
    engine.make_strict(tmp_path / "kit", tmp_path / "storage")
    strict = read_json(local / "resources.json")
    assert strict["allow_log_streaming"] is False
    assert [part["id"] for part in strict["components"]] == ["job_manager", "process_launcher"]
    assert "/tmp/shared" not in json.dumps(strict)
    assert "nvflare." not in strict["class_allow_list"]
    assert engine.PARTY_CLASS in strict["class_allow_list"]
    logs = read_json(local / "log_config.json")["loggers"]
    assert [one["level"] for one in logs.values()] == ["INFO", "WARNING"]
    permissions = read_json(local / "authorization.json")["permissions"]
    for role, rights in permissions.items():
        assert rights["byoc"] == "none", role
        assert rights["shell_commands"] == "none", role
        assert (rights["submit_job"] == "any") is (role == "lead")


def test_without_the_engine_one_sentence_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(engine.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'vfsl\[deploy\]'"):
        engine.tool("cert", "init")
    with pytest.raises(ConfigError, match=r"pip install 'vfsl\[deploy\]'"):
        engine.start(tmp_path, tmp_path / "log", {})


def test_importing_deployments_does_not_import_the_engine():
    code = "import sys, vfsl.deploy; sys.exit('nvflare' in sys.modules)"
    assert engine.subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture
def call():
    said = []
    app = typer.Typer()
    app.add_typer(deploy_app(said.append), name="deploy")

    def run(*arguments):
        said.clear()
        words = ["deploy", *map(str, arguments)]
        outcome = CliRunner().invoke(app, words, catch_exceptions=False, standalone_mode=False)
        assert outcome.exit_code == 0
        return list(said)

    return run


def test_commands_without_an_engine(call, world, tmp_path):
    assert call("status", world.site("B")) == ["No runs yet."]
    world.attempt()
    (line,) = call("status", world.site("B"))
    assert line == "run-1 attempt 1: finished; The run has ended well."
    assert "record.json" in call(
        "fetch", "run-1", "--from", world.site("B"), "--out", tmp_path / "o"
    )
    with pytest.raises(ConfigError, match="either a job file or --resume"):
        call("submit", "--from", world.site("C"))
    with pytest.raises(ConfigError, match="does not exist"):
        call("submit", tmp_path / "no.toml", "--from", world.site("C"))
    with pytest.raises(StoreError, match="does not exist"):
        call("status", world.site("B"), "run-9")


def test_provisioning_by_commands(call, tmp_path):
    pytest.importorskip("nvflare")
    authority, bank = tmp_path / "authority", tmp_path / "bank"
    parties = ["--party", "bank", "--party", "shop", "--submitter", "bank"]
    said = call("init", "loans", "--relay", "localhost:8002", *parties, "--out", authority)
    assert said[1].startswith("Read out to everybody: SHA256:")
    said = call("request", authority / "project.toml", "--as", "bank", "--out", bank)
    requests = [line.rsplit(" ", 1)[1] for line in said if "Send to the authority" in line]
    assert len(requests) == 2
    said = call("sign", *requests, "--authority", authority)
    signed = [line.rsplit(" ", 1)[1] for line in said]
    assert call("join", bank, *signed) == [f"Ready: vfsl deploy start {bank}"]
    assert (bank / "kit" / "startup" / "sub_start.sh").exists()
    assert not [path for path in authority.rglob("*.key") if path.name != "rootCA.key"]
    with pytest.raises(ConfigError, match="not empty"):
        call("request", authority / "project.toml", "--as", "bank", "--out", bank)
    with pytest.raises(ConfigError, match="no site 'hotel'"):
        call("request", authority / "project.toml", "--as", "hotel", "--out", tmp_path / "h")


def test_a_kit_signed_by_another_authority_is_not_joined(tmp_path):
    pytest.importorskip("nvflare")
    from vfsl.deploy.config import Address, Project

    project = Project(
        name="loans",
        relay=Address(host="localhost", port=8002, admin_port=8003),
        parties=["bank", "shop"],
        submitters=["bank"],
    )
    for name in ("one", "two"):
        provision.init_project(project, tmp_path / name)
    asked = provision.request_site(tmp_path / "one" / "project.toml", "shop", tmp_path / "shop")
    signed = provision.sign_requests(tmp_path / "two", asked)
    with pytest.raises(engine.EngineError, match=r"(?i)fingerprint"):
        provision.join_site(tmp_path / "shop", signed)
