"""Party names become folders: what is not a plain name is refused wherever one enters."""

import numpy as np
import pandas as pd
import pytest

import vfsl as package
from tests.job_cases import vfsl
from vfsl.data import PartyTable
from vfsl.deploy.config import Project, checked
from vfsl.errors import ConfigError
from vfsl.federation import Federation
from vfsl.job import load_job
from vfsl.job.schema import SharedJob, check

WRONG = ["../../x", "a/b", "..", ".", "", " ", "a b", "-a", "_a", "x" * 64, "Ä", "a\n", "a.b", "/x"]
RULE = "1 to 63 letters, digits, - and _, the first a letter or digit"


def frames(*names):
    return {
        name: pd.DataFrame({"id": [f"p{i}" for i in range(80)], f"x{place}": np.arange(80.0)})
        for place, name in enumerate(names)
    }


@pytest.mark.parametrize("name", WRONG)
def test_python_refuses(name):
    for made in (
        lambda: package.simulate(frames("A", name)),
        lambda: package.simulate(frames("A", "B"), key_holder=name),
        lambda: Federation({"A": table("A"), name: table("B")}),
        lambda: Federation({"A": table("A"), "B": table("B")}, key_holder=name),
    ):
        with pytest.raises(ConfigError) as caught:
            made()
        assert RULE in str(caught.value)
        assert repr(name)[:60] in str(caught.value)


def table(name):
    return PartyTable.from_frame(frames("A")["A"], party=name, id="id")


@pytest.mark.parametrize("name", ["A", "bank-2", "9_lives", "x" * 63])
def test_plain_names_pass(name):
    assert set(package.simulate(frames("other", name)).tables) == {"other", name}


JOB = """
[run]
key_holder = "{keys}"
[parties.A]
table = "A.csv"
id = "id"
[parties."{other}"]
table = "A.csv"
id = "id"
[[steps]]
do = "align"
"""


@pytest.mark.parametrize(("other", "keys"), [("../../x", "K"), ("B", "../../x"), ("B", "K K")])
def test_jobs_refuse_and_write_nothing(other, keys, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "one" / "two"
    folder.mkdir(parents=True)
    frames("A")["A"].to_csv(folder / "A.csv", index=False)
    (folder / "job.toml").write_text(JOB.format(other=other, keys=keys))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match=RULE):
        load_job(folder / "job.toml")
    assert vfsl(monkeypatch, "run", folder / "job.toml", "--out", folder / "out") == 2
    assert RULE in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("command", ["align", "train", "pu", "complete", "predict", "init"])
def test_commands_refuse_and_write_nothing(command, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "one" / "two"
    folder.mkdir(parents=True)
    frames("A")["A"].to_csv(folder / "a.csv", index=False)
    before = sorted(tmp_path.rglob("*"))
    files = [f"A={folder / 'a.csv'}", f"../../x={folder / 'a.csv'}"]
    more = {
        "train": ["--label", "A=x0", "--model", "linear"],
        "pu": ["--positives", "../../x", "--label-holder", "A"],
        "complete": ["--given", "A", "--missing", "../../x"],
        "predict": [folder],
    }.get(command, [])
    if command != "init":
        more = [*more, "--id", "id"]
        files = [part for file in files for part in ("--party", file)]
    assert vfsl(monkeypatch, command, *files, *more, "--out", folder / "out") == 2
    printed = capsys.readouterr().err
    assert RULE in printed
    assert printed.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_deployments_refuse():
    relay = {"host": "h", "port": 1, "admin_port": 2}
    content = {"name": "p", "relay": relay, "parties": ["A", "B"], "submitters": ["A"]}
    checked(Project, content)
    for change in (
        {"parties": ["A", "../../x"]},
        {"key_holder": "a b"},
        {"parties": ["A", "relay"]},
    ):
        with pytest.raises(ConfigError, match=RULE):
            checked(Project, content | change)
    job = {"parties": ["A", "B"], "steps": [{"do": "align"}]}
    check(job, SharedJob)
    for change in ({"parties": ["A", "../../x"]}, {"run": {"key_holder": "../../x"}}):
        with pytest.raises(ConfigError, match=RULE):
            check(job | change, SharedJob)
