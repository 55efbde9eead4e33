"""The commands and files of docs/deploy.md, run as they stand there, on one machine."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("nvflare")

from vfsl.deploy.engine import stop
from vfsl.deploy.submit import wait_for

pytestmark = [
    pytest.mark.network,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("page"),
]
PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"
SITES = ("relay", "keys", "registry", "shop", "bank")


def blocks(language):
    """The code blocks of the page in one language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), flags=re.S)


def two_free_ports():
    """A port that is free together with the next one."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


class Reader:
    """A person who follows the page in a folder of a new machine."""

    def __init__(self, folder):
        self.folder = folder
        self.port = str(two_free_ports())
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = os.environ | {"PATH": path}

    def text(self, block):
        return block.replace("relay.example.org", "localhost").replace("8002", self.port)

    def run(self, block, **names):
        for line in self.text(block).strip().splitlines():
            for name, value in names.items():
                line = line.replace(name, value)
            done = subprocess.run(
                line,
                shell=True,
                cwd=self.folder,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
            yield done.stdout

    def start(self, line):
        return subprocess.Popen(
            line.split(),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def fill_in(self, template):
        """The party files: the bank's as on the page, the others by what the page says of them."""
        rng = np.random.default_rng(0)
        ids = np.array([f"c{number:05d}" for number in range(400)])
        age, income = rng.normal(40, 10, 400), rng.normal(3000, 500, 400)
        late = (age < 35) & (rng.random(400) < 0.8)
        basket = income / 100 + rng.normal(0, 3, 400)
        bank = pd.DataFrame({"customer_id": ids, "age": age, "income": income, "defaulted": late})
        shop = pd.DataFrame({"customer_id": ids[:320], "basket": basket[:320]})
        registry = pd.DataFrame({"customer_id": ids[late][::2], "since": 2020})
        bank.to_csv(self.folder / "bank" / "customers.csv", index=False)
        shop.to_csv(self.folder / "shop" / "customers.csv", index=False)
        registry.to_csv(self.folder / "registry" / "customers.csv", index=False)
        columns = {"bank": '"age", "income"', "shop": '"basket"', "registry": '"since"'}
        parties = SITES[1:]
        pins = {name: (self.folder / name / "pin.txt").read_text().strip() for name in parties}
        for name in parties:
            text = template.replace('"age", "income"', columns.get(name, ""))
            # One or two columns have nothing to hide behind: here all agree to show them.
            text = text.replace("numbers = 0.6", "numbers = 100.0")
            text = text.replace('party = "bank"', f'party = "{name}"')
            if name != "bank":
                text = re.sub(r"label = .*\n", "", text)
            if name == "keys":
                text = re.sub(r"\[table\].*?\n\n", "", text, flags=re.S)
                text = text.replace('role = "data"', 'role = "key holder"')
            text = re.sub(r'\w+ = "PIN-OF-\w+"\n', "", text)
            peers = [f'{peer} = "{pin}"\n' for peer, pin in pins.items() if peer != name]
            head, tail = re.split(r"(?<=\[peers\]).*\n", text)
            (self.folder / name / "party.toml").write_text(f"{head}\n{''.join(peers)}{tail}")


def test_the_page_works_as_written(tmp_path):
    init, request, sign, join, start, use = blocks("sh")
    party, job = blocks("toml")
    reader = Reader(tmp_path)
    said = "".join(reader.run(init))
    assert "Never leaves here" in said
    shutil.copy(tmp_path / "authority" / "project.toml", tmp_path)
    assert "".join(reader.run(request)).count("your pin") == 4
    (tmp_path / "incoming").mkdir()
    named = re.findall(r"`([^`]+\.request\.zip)`", PAGE.read_text())
    named = [one for one in named if "NAME" not in one and "*" not in one]
    named += [f"{name}/requests/kit/{name}.request.zip" for name in ("keys", "registry", "shop")]
    for one in named:
        shutil.copy(tmp_path / reader.text(one), tmp_path / "incoming")
    assert len(named) == 6
    list(reader.run(sign))
    shutil.copytree(tmp_path / "authority" / "signed", tmp_path / "from-authority")
    list(reader.run(join))
    reader.fill_in(party)
    (tmp_path / "job.toml").write_text(job)
    running = {}
    try:
        for line in start.strip().splitlines():
            site = line.split()[-1]
            running[site] = reader.start(line)
            if site == "relay":
                wait_for_port(int(reader.port))
        use_the_run(reader, use)
    finally:
        for site, process in running.items():
            stop(process, tmp_path / site / "kit", grace=2.0)
    assert tuple(running) == SITES
    check_files(tmp_path)


def wait_for_port(port):
    deadline = time.monotonic() + 90
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < deadline, "the relay does not listen"
        time.sleep(0.2)


def use_the_run(reader, block):
    submit, status, fetch, report = block.strip().splitlines()
    (said,) = reader.run(submit)
    run = said.split("Run: ")[1].split()[0]
    ended = wait_for(reader.folder / "bank", run, 1200)
    assert ended.state == "finished", ended
    for line in (status, fetch, report):
        (said,) = reader.run(line, RUN=run)
    assert wait_for(reader.folder / "shop", run, 60).state == "finished"
    (said,) = reader.run(fetch.replace("bank", "shop").replace("results", "at-shop"), RUN=run)
    assert "completed-3.csv" in said


def check_files(folder):
    """The files that the page names are where it says, and only there."""
    bank = {path.name for path in (folder / "results").rglob("*")}
    shop = {path.name for path in (folder / "at-shop").rglob("*")}
    assert {"record.json", "aligned.csv", "plan", "model-4-share.json"} <= bank & shop
    own = {"predictions-4.csv", "pu-scores-2.csv", "reliable-positives-2.csv", "remaining-3.csv"}
    assert own <= bank
    assert not own & shop
    made = {"completed-3.csv", "provenance-3.csv", "quality-3.csv"}
    assert made <= shop
    assert not made & bank
    kept = {path.name for path in (folder / "shop" / "alignment").iterdir()}
    kept |= {path.name for path in (folder / "bank" / "alignment").iterdir()}
    for pattern in ("own-values-", "values-", "last-list-"):
        assert any(name.startswith(pattern) and name.endswith(".npz") for name in kept), kept
    assert "questions.json" in kept
    for path in ("authority/authority/rootCA.key", "bank/seal.key", "bank/fingerprint.key"):
        assert (folder / path).exists()
    assert list((folder / "bank" / "kit" / "startup").glob("*.key"))
    assert (folder / "bank" / "submit" / "startup" / "client.key").exists()
    mentioned = Path(folder / "results" / "remaining-3.csv").read_text()
    assert len(mentioned.splitlines()) == 81
