"""vfsl align: the files it writes, odd ids, refusals, and going on after an interruption."""

import os
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from vfsl.cli import main


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["vfsl", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


def write(folder, name, ids, column="customer_id", **more):
    frame = pd.DataFrame({column: ids, **more})
    frame.to_csv(folder / name, index=False)


def align(monkeypatch, folder, *more, out="out"):
    given = ["--party", f"A={folder / 'a.csv'}", "--party", f"B={folder / 'b.csv'}"]
    return run(monkeypatch, "align", *given, "--out", folder / out, "--security", "112", *more)


def aligned(folder, party, out="out"):
    return pd.read_csv(folder / out / "parties" / party / "aligned.csv", dtype=str)


@pytest.mark.parametrize("protocol", ["blind-rsa", "ecdh"])
def test_aligned_files(protocol, tmp_path, monkeypatch, capsys):
    write(tmp_path, "a.csv", [f"w{i:04}" for i in range(60)], x=range(60))
    write(tmp_path, "b.csv", [f"w{i:04}" for i in range(20, 90)], y=["odd, text"] * 70)
    assert align(monkeypatch, tmp_path, "--id", "customer_id", "--protocol", protocol) == 0
    assert "40 common rows" in capsys.readouterr().out
    a, b = aligned(tmp_path, "A"), aligned(tmp_path, "B")
    assert a["customer_id"].tolist() == b["customer_id"].tolist()
    assert set(a["customer_id"]) == {f"w{i:04}" for i in range(20, 60)}
    assert (a["row in the file"].astype(int) == a["customer_id"].str[1:].astype(int) + 1).all()
    record = (tmp_path / "out/record.json").read_text()
    assert "w0021" not in record


def test_dirty_ids(tmp_path, monkeypatch, capsys):
    write(tmp_path, "a.csv", [" Anna", "BOB", "007", None, "BOB"])
    write(tmp_path, "b.csv", ["anna", "bob ", "7", "eve"], column="client")
    ids = ["--id", "A=customer_id", "--id", "B=client", "--protocol", "ecdh"]
    assert align(monkeypatch, tmp_path, *ids) == 2
    message = capsys.readouterr().err
    assert "1" in message
    assert "Anna" not in message
    more = ["--duplicates", "first", "--empty", "drop", "--case", "lower", "--numbers", "integer"]
    assert align(monkeypatch, tmp_path, *ids, *more) == 0
    assert sorted(aligned(tmp_path, "B")["client"]) == ["7", "anna", "bob "]


def test_composite_ids_of_three_parties(tmp_path, monkeypatch):
    for name, start in (("a", 0), ("b", 5), ("c", 10)):
        frame = pd.DataFrame({"day": range(start, start + 20), "zip": "01234"})
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    third = ["--party", f"C={tmp_path / 'c.csv'}", "--id", "day,zip", "--protocol", "ecdh"]
    assert align(monkeypatch, tmp_path, *third) == 0
    rows = aligned(tmp_path, "C")
    assert sorted(rows["day"].astype(int)) == list(range(10, 20))
    assert set(rows["zip"]) == {"01234"}


REFUSALS = {
    "no such column": (["--id", "nobody"], "'nobody'"),
    "no such protocol": (["--id", "customer_id", "--protocol", "telepathy"], "telepathy"),
    "weak keys": (["--id", "customer_id", "--security", "80"], "80"),
    "hub elsewhere": (["--id", "customer_id", "--hub", "Q"], "hub must be one of"),
    "too small": (["--id", "customer_id", "--minimum", "50", "--protocol", "ecdh"], "at least 50"),
    "over the cap": (["--id", "customer_id", "--cap", "5", "--protocol", "ecdh"], "--cap"),
    "one id only": (["--id", "A=customer_id"], "says nothing about party 'B'"),
    "strange party": (["--id", "A=x", "--id", "B=x", "--id", "Z=x"], "'Z', which has no --party"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_are_one_sentence(case, tmp_path, monkeypatch, capsys):
    write(tmp_path, "a.csv", [f"p{i}" for i in range(10)])
    write(tmp_path, "b.csv", [f"p{i}" for i in range(10)])
    options, words = REFUSALS[case]
    assert align(monkeypatch, tmp_path, *options) in (1, 2)
    printed = capsys.readouterr().err
    assert words in printed
    assert printed.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", [["--cap", "5"], []])
def test_a_list_over_the_cap_is_refused_in_words_of_the_option_and_leaves_nothing(
    options, tmp_path, monkeypatch, capsys
):
    write(tmp_path, "a.csv", [f"p{i}" for i in range(3)])
    write(tmp_path, "b.csv", [f"p{i}" for i in range(10)])
    common = ["--id", "customer_id", "--protocol", "ecdh"]
    assert align(monkeypatch, tmp_path, *common, *options) == 2
    printed = capsys.readouterr().err
    assert f"may ask about {5 if options else '9 (3 × the own list)'}" in printed
    assert "--cap" in printed
    assert not (tmp_path / "out.state").exists()
    assert align(monkeypatch, tmp_path, *common, "--cap", "10") == 0


def test_a_grown_list_costs_only_its_new_ids(tmp_path, monkeypatch):
    write(tmp_path, "a.csv", [f"p{i}" for i in range(200)])
    write(tmp_path, "b.csv", [f"p{i}" for i in range(100, 300)])
    state = ["--id", "customer_id", "--state", tmp_path / "kept"]
    assert align(monkeypatch, tmp_path, *state) == 0
    write(tmp_path, "b.csv", [f"p{i}" for i in range(50, 300)])
    assert align(monkeypatch, tmp_path, *state, out="second") == 0
    assert len(aligned(tmp_path, "A", "second")) == 150
    blinded = [
        flow["bytes"]
        for name in ("out", "second")
        for step in pd.read_json(tmp_path / name / "record.json", typ="series")["steps"]
        for flow in step["flows"]
        if flow["message"] == "blinded"
    ]
    assert blinded[1] < blinded[0] / 3  # 50 new ids instead of 200


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_alignment_goes_on(signal_number, tmp_path, monkeypatch):
    """Kill it while the server signs or the client asks; the next run has less to do."""
    write(tmp_path, "a.csv", [f"p{i}" for i in range(6000)])
    write(tmp_path, "b.csv", [f"p{i}" for i in range(2000, 8000)])
    command = [sys.executable, "-m", "vfsl.cli", "align", "--id", "customer_id"]
    command += ["--party", f"A={tmp_path / 'a.csv'}", "--party", f"B={tmp_path / 'b.csv'}"]
    command += ["--security", "112", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    state = tmp_path / "out.state"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if any(path.name.startswith("values-") for path in state.rglob("*.npz")):
            break  # the client has kept a finished batch
        time.sleep(0.05)
    assert process.poll() is None, "it was finished before it could be interrupted"
    os.kill(process.pid, signal_number)
    _, message = process.communicate(timeout=60)
    assert process.returncode == (130 if signal_number == signal.SIGINT else -signal.SIGKILL)
    if signal_number == signal.SIGINT:
        assert "goes on from there" in " ".join(message.split())
    assert not (tmp_path / "out").exists()
    assert align(monkeypatch, tmp_path, "--id", "customer_id") == 0
    assert len(aligned(tmp_path, "A")) == 4000
    flows = pd.read_json(tmp_path / "out" / "record.json", typ="series")["steps"][0]["flows"]
    asked = sum(flow["bytes"] for flow in flows if flow["message"] == "blinded") / 256
    assert asked < 5500  # of 6,000: the rest was kept


def test_count_tells_how_many_and_writes_no_ids(tmp_path, monkeypatch, capsys):
    write(tmp_path, "a.csv", [f"p{i}" for i in range(60)])
    write(tmp_path, "b.csv", [f"p{i}" for i in range(25, 90)])
    assert align(monkeypatch, tmp_path, "--id", "customer_id", "--count") == 0
    assert "35 common ids; nobody learned which" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"record.json", "report.html"}
