"""The demo: all steps, encrypted, with a report to open and inputs to run again."""

import json

import pytest

from tests.job_cases import vfsl
from vfsl.job import load_job
from vfsl.job.demo import write_demo
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
    for name in ("align", "vfpu", "vfpu-m", "train logistic", "train risa", "evaluate"):
        assert name in names
    assert record.scheme == "auto"
    schemes = {step.settings["scheme"] for step in record.steps if "scheme" in step.settings}
    assert "plain" not in schemes
    assert record.steps[0].settings["protocol"] == "blind-rsa"
    page = json.loads((out / "parties/shop/metrics-7.json").read_text())
    assert page["test rows"] > 50
    assert load_job(out / "inputs/job.toml").run.security == 128
    assert "<html" in (out / "report.html").read_text()


def test_without_torch_the_demo_says_so_and_goes_on(tmp_path, monkeypatch, capsys):
    """The tables are enough to see it: the job has no RISA step then."""
    ran = []
    monkeypatch.setattr("vfsl.job.demo.has_torch", lambda: False)
    monkeypatch.setattr("vfsl.job.run_job", lambda job, *rest: ran.append(job))
    monkeypatch.setattr("vfsl.cli.demo.print_summary", lambda *what: None)
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
