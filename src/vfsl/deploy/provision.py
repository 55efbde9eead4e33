"""Certificates without a place that has all keys: each site makes its own, the authority signs.

init     the authority makes its root key and the public project file
request  a site makes its private keys in its own folder, and a request without them
sign     the authority turns a request into a certificate
join     the site puts certificate and key together into its start-up kit
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from vfsl.deploy.config import (
    KIT_FOLDER,
    PARTY_FILE,
    RELAY_NAME,
    SUBMIT_FOLDER,
    Address,
    Project,
    load_project,
    make_seal_key,
    party_template,
)
from vfsl.deploy.engine import EngineError, make_strict, require_engine, tool
from vfsl.errors import ConfigError
from vfsl.store import read_json, write_text

PROJECT_FILE = "project.toml"
_CA, _PROFILE, _SIGNED, _REQUESTS = "authority", "profile.yaml", "signed", "requests"


def init_project(project: Project, folder: Path) -> Project:
    """Make the authority's root key and project.toml, which goes to everybody.

    Parameters
    ----------
    project : Project
        Without the authority's fingerprint.
    folder : Path
        The authority's own folder; only project.toml leaves it.
    """
    require_engine()
    _check_new(folder)
    write_text(folder / _PROFILE, _profile(project))
    tool("cert", "init", "--profile", folder / _PROFILE, "-o", folder / _CA)
    fingerprint = str(read_json(folder / _CA / "ca.json")["rootCA_fingerprint"])
    project = project.model_copy(update={"authority": fingerprint})
    write_text(folder / PROJECT_FILE, project.to_toml())
    return project


def request_site(project_file: Path, name: str, folder: Path) -> list[Path]:
    """Make a site's keys and party.toml in its own folder; returns the requests to send away."""
    project = load_project(project_file)
    if name != RELAY_NAME and name not in project.everyone:
        known = ", ".join([*project.everyone, RELAY_NAME])
        raise ConfigError(f"The project has no site {name!r}; its sites are {known}.")
    require_engine()
    _check_new(folder)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    role = {RELAY_NAME: "relay", project.key_holder: "key holder"}.get(name, "data")
    shutil.copyfile(project_file, folder / PROJECT_FILE)
    write_text(folder / PARTY_FILE, party_template(project, name, role))
    if role != "relay":
        write_text(folder / "pin.txt", make_seal_key(folder) + "\n")
    sites = {KIT_FOLDER: _site(project, name)}
    if name in project.submitters:
        sites[SUBMIT_FOLDER] = _submitter(project, name)
    requests = []
    for purpose, (who, text) in sites.items():
        place = folder / _REQUESTS / purpose
        write_text(folder / _REQUESTS / f"{purpose}.yaml", text)
        tool("cert", "request", "-p", folder / _REQUESTS / f"{purpose}.yaml", "--out", place)
        requests.append(place / f"{who}.request.zip")
    return requests


def sign_requests(folder: Path, requests: list[Path]) -> list[Path]:
    """Sign requests in the authority's folder; returns the files to send back."""
    signed = []
    for request in requests:
        out = folder / _SIGNED / request.name.replace(".request.zip", ".signed.zip")
        out.parent.mkdir(parents=True, exist_ok=True)
        tool(
            *("cert", "approve", request, "-c", folder / _CA),
            *("--profile", folder / _PROFILE, "--out", out),
        )
        signed.append(out)
    return signed


def join_site(folder: Path, signed: list[Path], extra_classes: tuple[str, ...] = ()) -> None:
    """Build a site's start-up kits from what the authority signed and the keys that stayed here."""
    project = load_project(folder / PROJECT_FILE)
    if not project.authority:
        raise ConfigError(f"{folder / PROJECT_FILE} has no fingerprint of the authority.")
    for file in signed:
        who = file.name.removesuffix(".signed.zip")
        purpose = SUBMIT_FOLDER if "@" in who else KIT_FOLDER
        place = folder / _REQUESTS / purpose
        if not (place / f"{who}.key").exists():
            raise ConfigError(f"{file} was signed for {who!r}, who has not asked from {folder}.")
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            tool(
                *("package", file, "--request-dir", place, "-w", scratch),
                *("--fingerprint", project.authority),
            )
            made = list(Path(scratch).glob(f"{project.name}/prod_*/{who}"))
            if len(made) != 1:
                raise EngineError(f"nvflare package made no start-up kit from {file}.")
            shutil.rmtree(folder / purpose, ignore_errors=True)
            shutil.move(made[0], folder / purpose)
        if purpose == KIT_FOLDER:
            make_strict(folder / KIT_FOLDER, folder / "storage", extra_classes)


def submitter_name(project: str, party: str) -> str:
    """The user name under which a party submits jobs; the engine wants an address."""
    return f"{party}@{project}.vfsl"


def address(text: str) -> Address:
    """HOST:PORT, or HOST:PORT:ADMIN-PORT; by default the admin port is the next one."""
    parts = text.split(":")
    if len(parts) not in (2, 3) or not parts[0] or not all(p.isdigit() for p in parts[1:]):
        raise ConfigError(f"The relay must be HOST:PORT. Got {text!r} instead.")
    port = int(parts[1])
    return Address(host=parts[0], port=port, admin_port=int(parts[2]) if parts[2:] else port + 1)


def _check_new(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"The folder {folder} exists and is not empty; choose another name.")


def _profile(project: Project) -> str:
    relay = project.relay
    return (
        f"name: {project.name}\nscheme: grpc\nconnection_security: mtls\n"
        f"server:\n  host: {relay.host}\n  fed_learn_port: {relay.port}\n"
        f"  admin_port: {relay.admin_port}\n"
    )


def _site(project: Project, name: str) -> tuple[str, str]:
    relay = project.relay
    if name == RELAY_NAME:
        ports = f"    fed_learn_port: {relay.port}\n    admin_port: {relay.admin_port}\n"
        return relay.host, _participant(project, relay.host, "server", RELAY_NAME, ports)
    return name, _participant(project, name, "client", name)


def _submitter(project: Project, name: str) -> tuple[str, str]:
    who = submitter_name(project.name, name)
    return who, _participant(project, who, "admin", name, "    role: lead\n")


def _participant(project: Project, name: str, kind: str, org: str, more: str = "") -> str:
    org = org.replace("-", "_")
    return (
        f"name: {project.name}\nparticipants:\n"
        f"  - name: {name}\n    type: {kind}\n    org: {org}\n{more}"
    )
