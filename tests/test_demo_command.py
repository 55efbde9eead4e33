"""The demo: all steps, encrypted, with a report to open and inputs to run again."""

import json
from types import SimpleNamespace

import pytest

from tests.job_cases import vfsl
from vfsl.cli.demo import tell_manager
from vfsl.job import load_job
from vfsl.job.demo import write_demo
from vfsl.job.estimates import estimate
from vfsl.job.run import read_tables
from vfsl.record import RunRecord


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demo_tells_the_whole_story_encrypted(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch")
    out = tmp_path / "demo"
    assert vfsl(monkeypatch, "demo", "--out", out, "--quiet") == 0
    printed = capsys.readouterr().out
    assert "Report:" in printed
    record = RunRecord.load(out)
    names = [step.name for step in record.steps]
    for name in ("align", "vfpu", "completion", "train logistic", "train risa", "evaluate"):
        assert name in names
    assert record.scheme == "auto"
    schemes = {step.settings["scheme"] for step in record.steps if "scheme" in step.settings}
    assert "plain" not in schemes
    assert record.steps[0].settings["protocol"] == "ecdh"
    page = json.loads((out / "parties/shop/metrics-7.json").read_text())
    assert page["test rows"] > 1000
    verdicts = {one["about"]: one["verdict"] for one in page["questions"]}
    assert set(verdicts) == {"bank and shop", "with completed rows", "risa", "VFPU"}
    assert "cannot tell" not in verdicts.values()
    assert sum(flow.bytes for flow in record.ledger) < 30e6
    assert "1. Use “bank and shop”: held-out AUC" in printed
    assert "3. office, bank and shop exchanged" in printed
    assert f"The page to show: {out / 'report.html'}" in printed
    assert load_job(out / "inputs/job.toml").run.security == 128
    assert "<html" in (out / "report.html").read_text()


def test_three_sentences_for_a_manager():
    question = {"about": "with it", "verdict": "does not help"}
    details = {"verdict": "Use “this”.", "questions": [question, question | {"verdict": "odd"}]}
    steps = [SimpleNamespace(name="evaluate", details=details)]
    record = SimpleNamespace(ledger=[SimpleNamespace(bytes=2_500_000)])
    fed = SimpleNamespace(steps=steps, record=record, tables={"A": 0, "B": 0})
    first, second, third = tell_manager(fed)
    assert first == "1. Use “this”."
    assert "“with it” does not help and “with it” cannot be judged yet" in second
    assert third.startswith("3. A and B exchanged 2.5 MB in all")
    assert tell_manager(SimpleNamespace(steps=[])) == []


def test_the_page_is_opened_on_demand(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("vfsl.job.run_job", lambda job, *rest: None)
    monkeypatch.setattr("vfsl.cli.demo.print_summary", lambda *what: None)
    monkeypatch.setattr("vfsl.cli.demo.tell_manager", lambda fed: [])
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert vfsl(monkeypatch, "demo", "--out", tmp_path / "demo") == 0
    assert opened == []
    assert vfsl(monkeypatch, "demo", "--out", tmp_path / "two", "--open") == 0
    assert opened == [(tmp_path / "two/report.html").as_uri()]


def test_every_step_of_the_demo_is_estimated(tmp_path):
    job = load_job(write_demo(tmp_path, risa=True))
    tables, _ = read_tables(job, tmp_path)
    found = [estimate(number, job, tables) for number in range(1, len(job.steps) + 1)]
    assert all(one.seconds is not None and one.bytes is not None for one in found)
    assert 10e6 < sum(one.bytes for one in found) < 40e6  # its ledger: 19 MB
    assert found[0].on_the_line == found[0].bytes / 2.5e6


def test_without_torch_the_demo_says_so_and_goes_on(tmp_path, monkeypatch, capsys):
    """The tables are enough to see it: the job has no RISA step then."""
    ran = []
    monkeypatch.setattr("vfsl.job.demo.has_torch", lambda: False)
    monkeypatch.setattr("vfsl.job.run_job", lambda job, *rest: ran.append(job))
    monkeypatch.setattr("vfsl.cli.demo.print_summary", lambda *what: None)
    monkeypatch.setattr("vfsl.cli.demo.tell_manager", lambda fed: [])
    assert vfsl(monkeypatch, "demo", "--out", tmp_path / "demo") == 0
    printed = capsys.readouterr().out
    assert "PyTorch is not installed, so the demo leaves RISA out" in printed
    assert [step.do for step in ran[0].steps] == [
        "align",
        "pu",
        "complete",
        "train",
        "train",
        "evaluate",
    ]
    assert (tmp_path / "demo/inputs/shop.csv").exists()


def test_the_tables_of_the_demo_are_the_same_each_time(tmp_path):
    one, two = (write_demo(tmp_path / name, risa=True) for name in ("one", "two"))
    for path in one.parent.iterdir():
        assert path.read_bytes() == (two.parent / path.name).read_bytes()
    assert load_job(one).steps[-2].model == "risa"
