"""vfsl budget: what peers have seen, for people and for programs."""

import json
import sys

import pytest

from vfsl.cli.main import main
from vfsl.deploy.budget import Hidden, KeptBudget, RunBudget
from vfsl.deploy.submit import status_lines


@pytest.fixture
def call(monkeypatch, capsys):
    """Run a command; its exit code and what it printed."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["vfsl", "budget", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out, printed.err

    return run


@pytest.fixture
def folder(tmp_path):
    """The folders of a shop, that showed something, and a bank, that showed nothing."""
    for party in ("shop", "bank"):
        (tmp_path / party).mkdir()
        (tmp_path / party / "party.toml").write_text(f'party = "{party}"\n')
    hidden = {"columns": Hidden(("basket", "visits"), 1000), "label": Hidden(("y",), 1000)}
    for run in ("one", "two"):
        made = RunBudget(KeptBudget(tmp_path / "shop"), "shop", run, "t", b"k", 0.6, hidden)
        made.charge("bank", "total scores", 500, "columns", None)
    made.charge("bank", "gradients", 60, "label", None)
    return tmp_path


def test_a_table_for_each_party_folder(call, folder):
    code, printed, _ = call("--folder", folder)
    assert code == 0
    lines = [line.split() for line in printed.splitlines() if line.startswith("bank")]
    assert [line[:-1] for line in lines] == [
        ["bank", "basket,", "visits", "1,000", "1,200", "83%", "0.0", "2"],
        ["bank", "y", "60", "600", "10%", "0.0", "1"],
    ]
    assert "bank: nobody has seen an exact number of this party yet." in printed
    code, printed, _ = call("--folder", folder / "shop")
    assert "nobody" not in printed


def test_as_json(call, folder):
    code, printed, _ = call("--folder", folder / "shop", "--json")
    assert code == 0
    (lines,) = json.loads(printed).values()
    assert [(line["peer"], line["columns"], line["seen"], line["limit"]) for line in lines] == [
        ("bank", ["basket", "visits"], 1000, 1200),
        ("bank", ["y"], 60, 600),
    ]


def test_a_folder_without_a_party_is_one_sentence(call, tmp_path):
    for place in (tmp_path, tmp_path / "nowhere"):
        code, _, words = call("--folder", place)
        assert code == 2
        assert "is not the folder of a party and has none in it" in words
        assert words.count("\n") == 1


def test_the_status_of_a_party_mentions_a_budget_that_is_nearly_used_up(folder):
    (line,) = status_lines(folder / "shop")
    assert "bank has seen 83%" in line
    assert status_lines(folder / "bank") == []
