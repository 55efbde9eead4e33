"""The experiments of the papers: what can be set, what stands beside what, and quick forms."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from benchmarks import cells
from benchmarks.paper import PAPERS, describe_settings, run_paper
from benchmarks.paper.common import average, find_data, put_beside
from benchmarks.paper.registry import change_sizes
from benchmarks.paper.sizes import FULL, QUICK, FedpsgSizes, RisaSizes
from benchmarks.table import Outcome
from tests.benchmark.test_bench_stable import steady
from vfsl.cli import main
from vfsl.data import make_parties
from vfsl.errors import ConfigError, DataError


def test_every_experiment_has_both_forms_of_the_same_kind():
    assert set(PAPERS) == set(FULL) == set(QUICK)
    for name, full in FULL.items():
        assert type(full) is type(QUICK[name])
        assert "seeds=" in describe_settings(name)
        assert len(QUICK[name].seeds) == 1  # tables of the papers have several


def test_sizes_are_set_by_name_and_kind():
    sizes = RisaSizes()
    assert change_sizes("x", sizes, "rows=50000").rows == 50_000
    assert change_sizes("x", sizes, "overlaps=0.1, 0.3").overlaps == (0.1, 0.3)
    assert change_sizes("x", sizes, "methods=VFL,RISA paper").methods == ("VFL", "RISA paper")
    assert change_sizes("x", FedpsgSizes(), "missing=0.3").missing == 0.3
    for change, words in {
        "rows=many": "must give rows a whole number. Got 'many'",
        "overlaps=a,b": "must give overlaps values separated by commas, each a number",
        "row=3": "did you mean 'rows'?",
        "rows": "must be NAME=VALUE with a name of data, rows",
    }.items():
        with pytest.raises(ConfigError) as caught:
            change_sizes("risa-table1", sizes, change)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)


def test_unknown_experiments_and_absent_data_are_one_sentence():
    with pytest.raises(ConfigError, match="did you mean 'risa-sweeps'"):
        run_paper("risa-sweep")
    notes: list[str] = []
    assert find_data(("digits", "nothing"), notes) == ["digits"]
    assert "nothing was left out" in notes[0]
    with pytest.raises(DataError, match="None of the data sets nothing is here"):
        find_data(("nothing",), notes)


def test_means_over_seeds_and_the_papers_figure():
    row = average([{"both": 80.0, "x": None}, {"both": 84.0, "x": 3.0}], ("both", "x"))
    assert row == {"both": 82.0, "both ±": 2.0, "x": 3.0, "x ±": None}
    assert put_beside(row, 85.5, "both")["ours − paper"] == -3.5
    assert put_beside(row, None, "both")["ours − paper"] is None


def test_time_left():
    assert cells.describe_left(10, 2, 4) == ", about 10 s left"
    assert cells.describe_left(600, 1, 3) == ", about 20.0 min left"
    assert cells.describe_left(7200, 1, 2) == ", about 2.0 h left"
    assert cells.describe_left(7200, 2, 2) == ""


def test_the_command(tmp_path, monkeypatch, capsys):
    asked = {}

    def run(name, **how):
        asked.update(how, name=name)
        return Outcome(
            name, "A toy", [{"method": "ours", "both": 1.5}], ["a note"], command="paper"
        )

    monkeypatch.setattr("benchmarks.paper.run_paper", run)
    words = ["run", "fedpsg", "--quick", "--set", "tau=0.4", "--seeds", "2", "--workers", "2"]
    for arguments in (["list"], [*words, "--out", str(tmp_path)]):
        monkeypatch.setattr("sys.argv", ["vfsl", "paper", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code == 0
    assert asked.pop("say")
    assert asked == {
        "name": "fedpsg",
        "quick": True,
        "changes": ["tau=0.4"],
        "seeds": 2,
        "workers": 2,
    }
    printed = capsys.readouterr().out
    assert "RISA's table II: Criteo" in printed
    assert "overlaps=0.01,0.1" in printed
    assert "vfsl paper run fedpsg" in (tmp_path / "fedpsg.md").read_text()


# ---- what is measured ----------------------------------------------------------------------------


def test_points_of_m_and_t_are_a_line_along_each():
    from benchmarks.paper.vfpu import make_base, points

    sizes = replace(FULL["vfpu-bases"], outers=(1, 5), many_rounds=(5, 20), outer=3, rounds=20)
    assert points(sizes, "bank") == [(1, 20), (3, 5), (3, 20), (5, 20)]
    assert points(replace(sizes, curves=("census",)), "bank") == [(3, 20)]
    assert make_base("xgb", 4).n_estimators == 4
    assert make_base("xgb", 0) == "xgb"


def test_the_printed_tables_are_whole():
    pytest.importorskip("torch")
    from benchmarks.paper.risa import PRINTED, PRINTED_ABLATION, printed
    from benchmarks.rivals import RIVALS

    for data, rows in PRINTED.items():
        assert set(rows) == {*RIVALS, "RISA paper"}
        assert all(len(figures) == 6 for figures in rows.values())
        # The ablation's ends are the tables' columns of 10 %.
        ends = list(PRINTED_ABLATION[data].values())
        assert (ends[0], ends[-1]) == (rows["VFL"][1], rows["RISA paper"][1])
    assert printed("criteo", "FedCVT", 0.5, False) == 76.51
    assert printed("criteo", "FedCVT", 0.15, False) is None
    assert printed("digits", "FedCVT", 0.5, False) is None
    assert printed("cifar10", "IMP", 0.1, True) == 82.19


def test_label_noise_changes_exactly_its_fraction():
    pytest.importorskip("torch")
    from benchmarks.paper.risa_sweeps import flip

    labels = np.arange(100) % 5
    labels[90:] = -1
    flipped = flip(labels, 5, 0.4, np.random.default_rng(0))
    assert (flipped != labels).sum() == 36
    assert (flipped[90:] == -1).all()
    assert flipped[:90].min() >= 0
    assert flipped.max() < 5


def test_a_setting_at_a_time():
    from benchmarks.paper.fedpsg import case_of, methods, sweeps

    sizes = QUICK["fedpsg-sweeps"]
    settings = list(sweeps(sizes))
    assert [what for what, _, _ in settings[:2]] == ["by tau", "by tau"]
    usual = case_of(sizes, "x", 0, low=("gain",))
    for _, _, change in settings:
        case = case_of(sizes, "x", 0, **change)
        different = [name for name in vars(case) if getattr(case, name) != getattr(usual, name)]
        assert len(different) <= 1
    names = [value for _, value, _ in methods(QUICK["fedpsg"])]
    assert len(names) == 1 + 9 + 5  # the mean, the nine, five ensembles


def test_columns_are_judged_by_hand():
    from benchmarks.paper.fedpsg_measures import encode_together
    from vfsl.data import Kind

    train = pd.DataFrame({"n": [1.0, None], "c": ["x", "y"]})
    test = pd.DataFrame({"n": [2.0, 3.0], "c": ["y", "new"]})
    kinds = {"n": Kind.NUMERIC, "c": Kind.CATEGORICAL}
    first, second, categories = encode_together(train, test, kinds)
    assert categories == [False, True]
    np.testing.assert_array_equal(first, [[1, 0], [np.nan, 1]])
    np.testing.assert_array_equal(second, [[2, 1], [3, np.nan]])


def test_the_claim_is_judged_by_ranks():
    pytest.importorskip("torch")
    from benchmarks.paper.generators import NINE, judge_claim, rank_methods

    order = sorted(NINE, key=lambda name: name not in ("VF-GAIN", "TabDDPM, mean of draws"))
    rows = [
        {"data": "d", "method": name, "RMSE": place, "accuracy": -place}
        for place, name in enumerate([*order, "mean/mode"])
    ]
    ranks = rank_methods(rows)
    assert [row["mean rank"] for row in ranks] == list(range(1, 10))
    assert judge_claim(ranks).endswith("the claim holds here.")
    turned = [row | {"RMSE": -row["RMSE"], "accuracy": -row["accuracy"]} for row in rows]
    assert "does NOT hold" in judge_claim(rank_methods(turned))


# ---- tables of one's own -------------------------------------------------------------------------


@pytest.fixture
def own_tables(tmp_path):
    made = make_parties(300, rng=np.random.default_rng(0), overlap=0.6, missing=0.0)
    files = {}
    for party, table in made.tables.items():
        files[party] = tmp_path / f"{party}.csv"
        table.to_csv(files[party], index=False)
    return made, files


def test_a_case_of_two_tables_has_common_rows_first_and_holds_some_out(own_tables):
    pytest.importorskip("torch")
    from benchmarks.paper.own_tables import TablesCase, make_case

    made, files = own_tables
    named = tuple((party, str(path)) for party, path in files.items())
    case = TablesCase(named, (("id",), ("id",)), made.label, "VFL", 0, 2, 0.2)
    found = make_case(case)
    common = made.tables["A"].merge(made.tables["B"], on="id")
    labelled = common[made.label].notna().sum()
    judged = round(0.2 * labelled)
    assert len(found.truth) == judged
    assert found.problem.overlap == len(common) - judged
    rows = [len(view.inputs) for view in found.problem.views]
    assert rows == [len(made.tables[party]) - judged for party in "AB"]
    assert (found.truth >= 0).all()


@pytest.mark.slow
def test_rivals_run_on_tables_of_ones_own(own_tables, tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch")
    made, files = own_tables
    base = ["--id", "id", "--label", f"A={made.label}", "--seeds", "1", "--epochs", "2"]
    words = [word for party, path in files.items() for word in ("--party", f"{party}={path}")]
    chosen = ["--method", "FedCVT", "--method", "RISA plus", "--out", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", ["vfsl", "paper", "rivals", *words, *base, *chosen])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 0
    table = pd.read_csv(tmp_path / "out" / "rivals.csv")
    assert table["method"].tolist() == ["FedCVT", "RISA plus"]
    assert table["both"].between(30, 100).all()
    for more, told in {
        ("--method", "FedCTV"): "must be one of 'Local', 'VFL'",
        ("--held-out", "0.01"): "20 to judge by",
    }.items():
        monkeypatch.setattr("sys.argv", ["vfsl", "paper", "rivals", *words, *base, *more])
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code == 2
        assert told in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["vfpu-bases", "risa-table3", "risa-sweeps"])
def test_quick_forms_are_stable(name, monkeypatch, tmp_path):
    pytest.importorskip("torch")
    monkeypatch.setenv("VFSL_BENCH_CACHE", str(tmp_path))
    first, second = (run_paper(name, quick=True) for _ in range(2))
    one, two = (json.dumps([steady(row) for row in each.rows]) for each in (first, second))
    assert one == two
    first.save(tmp_path)
    written = {path.suffix for path in tmp_path.iterdir()}
    assert {".csv", ".tex", ".svg", ".md", ".json"} <= written
    assert not list(tmp_path.glob("*/*.json"))  # nothing of a quick form is kept


@pytest.mark.slow
def test_a_full_form_goes_on_after_an_interruption(monkeypatch, tmp_path):
    pytest.importorskip("torch")
    monkeypatch.setenv("VFSL_BENCH_CACHE", str(tmp_path))
    small = ["data=digits", "rows=120", "judged=100", "epochs=1", "overlaps=0.2"]
    said: list[str] = []

    def stop(text: str) -> None:
        said.append(text)
        if "done, 1 of 2" in text:
            raise KeyboardInterrupt

    run = {"changes": [*small, "methods=Local,VFL"], "seeds": 1}
    with pytest.raises(KeyboardInterrupt):
        run_paper("risa-table1", **run, say=stop)
    assert "left" in said[-1]
    said.clear()
    outcome = run_paper("risa-table1", **run, say=said.append)
    assert any("1 of 1" in text for text in said)  # the other one was kept
    assert [row["method"] for row in outcome.rows] == ["Local", "VFL"]
