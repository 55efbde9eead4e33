"""`vfsl audit`: closed doors are green, doors that a job opens on purpose are red at their line."""

import json

import pytest

from tests.job_cases import HEAD, PU, RISA, vfsl, write_case
from vfsl.audit import PROBES

LOGISTIC = '\n[[steps]]\ndo = "train"\nmodel = "logistic"\nlabel = ["C", "late"]\n'
ROUNDS = LOGISTIC + 'protocol = "rounds"\n'
TOLD = PU + 'row_lists = "told"\n'
OPEN_RISA = RISA + 'protect = "none"\naccept = ["label-disclosure"]\n'


def audit(monkeypatch, folder, steps, *options):
    """The exit code of an audit and what it found, by probe, attacker and target."""
    write_case(folder, HEAD + steps)
    code = vfsl(monkeypatch, "audit", folder / "job.toml", "--out", folder / "out", "-q", *options)
    found = json.loads((folder / "out" / "audit.json").read_text())
    return code, found


def marks(found, probe):
    return {
        (one["attacker"], one["target"]): one["mark"]
        for one in found["findings"]
        if one["probe"] == probe
    }


def only(*probes):
    return [part for probe in probes for part in ("--probe", probe)]


def test_training_on_shares_opens_nothing_to_a_feature_holder(monkeypatch, tmp_path, capsys):
    code, found = audit(monkeypatch, tmp_path, LOGISTIC)
    assert code == 0
    assert found["mark"] in ("green", "amber")
    for probe in ("labels", "exact-cells", "seed-replay", "score-rank", "view-budget"):
        assert marks(found, probe).get(("B", "C"), "green") == "green"
    assert set(marks(found, "seed-replay").values()) == {"green"}
    assert all(control["passed"] for one in found["findings"] for control in one["controls"])
    assert {control["kind"] for one in found["findings"] for control in one["controls"]} == {
        "positive",
        "negative",
    }
    printed = capsys.readouterr().out
    assert "all controls passed" in printed
    page = (tmp_path / "out" / "report.html").read_text()
    assert "What each party could compute of another" in page
    assert not list((tmp_path / "out").glob("parties"))


def test_amber_fails_where_it_is_asked_for(monkeypatch, tmp_path):
    options = [*only("view-budget"), "--fail-on", "amber"]
    code, found = audit(monkeypatch, tmp_path, LOGISTIC, *options)
    assert found["mark"] == "amber"
    assert code == 3


def test_opened_gradients_are_red(monkeypatch, tmp_path):
    code, found = audit(monkeypatch, tmp_path, ROUNDS, *only("view-budget"))
    assert code == 3
    red = [one for one in found["findings"] if one["mark"] == "red"]
    assert any("gradients" in one["line"] and one["attacker"] == "B" for one in red)


def test_told_lists_of_rows_are_red_and_hidden_ones_green(monkeypatch, tmp_path, capsys):
    for name, steps, wanted in (("told", TOLD, 3), ("hidden", PU, 0)):
        folder = tmp_path / name
        folder.mkdir()
        code, found = audit(monkeypatch, folder, steps, *only("positives"))
        assert code == wanted
        assert marks(found, "positives") == {("B", "C"): "red" if wanted else "green"}
    printed = capsys.readouterr().out
    assert "vfpu: C → B: positives" in printed
    assert 'row_lists = "hidden"' in printed


def test_gradients_of_evidence_are_red(monkeypatch, tmp_path):
    pytest.importorskip("torch")
    code, found = audit(monkeypatch, tmp_path, OPEN_RISA, *only("labels"))
    assert code == 3
    (one,) = (one for one in found["findings"] if one["mark"] == "red")
    assert (one["attacker"], one["target"]) == ("B", "C")
    assert "gradient of evidence" in one["line"]
    assert one["value"] > 0.9


def test_probes_are_named_and_left_out(monkeypatch, tmp_path):
    code, found = audit(monkeypatch, tmp_path, LOGISTIC, *only("seed-replay", "psi-probing"))
    assert (code, set(found["probes"])) == (0, {"seed-replay", "psi-probing"})


def test_unknown_probes_are_refused(monkeypatch, tmp_path, capsys):
    write_case(tmp_path, HEAD + LOGISTIC)
    job, out = tmp_path / "job.toml", tmp_path / "out"
    assert vfsl(monkeypatch, "audit", job, "--out", out, "-q", "--probe", "guess") == 2
    assert "no probe 'guess'" in " ".join(capsys.readouterr().err.split())
    every = [part for probe in PROBES for part in ("--skip", probe)]
    assert vfsl(monkeypatch, "audit", job, "--out", out, "-q", *every) == 2
    assert not out.exists()
