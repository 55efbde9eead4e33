"""The doctor: what it finds in messy files, what mends it, and that the mended files run."""

import tomllib

import numpy as np
import pandas as pd
import pytest

from tests.job_cases import vfsl
from vfsl.align.overlap import best_overlap, compare_ids
from vfsl.data.examine import common_prefix, find_leaks, guess_encoding
from vfsl.data.table import PartyTable
from vfsl.errors import ConfigError, DataError
from vfsl.job import load_job
from vfsl.job.doctor import examine_files, prescribe

ROWS = 300


@pytest.fixture
def messy(tmp_path):
    """A bank and a shop whose files nothing fits: ids, dates, marks, codes, spellings, a leak."""
    rng = np.random.default_rng(0)
    late = rng.random(ROWS) < 0.3
    numbers = rng.permutation(10 * ROWS)[:ROWS]
    bank = pd.DataFrame(
        {
            "customer_id": [f"CUST-{number:06}" for number in numbers],
            "SEX": rng.integers(1, 3, ROWS),
            "EDUCATION": rng.integers(1, 5, ROWS),
            "limit": [f"{value:,}" for value in 100 * rng.integers(10, 90, ROWS)],
            "joined": [f"{day}.3.20{year}" for day, year in rng.integers(10, 28, (ROWS, 2))],
            "income": rng.normal(size=ROWS) + late,
            "nothing": "",
            "same": 7,
            "note": [f"note {place}" for place in range(ROWS)],
            "collected": np.where(late, rng.uniform(1, 9, ROWS), 0.0),
            "default": [f"{'yes' if one else 'no'}{' ' * (n % 2)}" for n, one in enumerate(late)],
        }
    )
    bank.loc[3, "default"] = bank.loc[3, "default"].upper()
    shop = pd.DataFrame(
        {
            "client": numbers,
            "basket": [f"{value:.2f}".replace(".", ",") for value in rng.normal(size=ROWS)],
            "visits": [*map(str, rng.integers(0, 9, ROWS - 1)), "NA"],
            "age": [*map(str, rng.integers(0, 9, ROWS - 1)), "old"],
        }
    ).iloc[50:]
    bank.to_csv(tmp_path / "bank.csv", index=False)
    shop.to_csv(tmp_path / "shop.csv", index=False, sep=";", encoding="cp1252")
    return tmp_path


def test_it_finds_what_is_wrong_and_says_what_mends_it(messy):
    files = {name: messy / f"{name}.csv" for name in ("bank", "shop")}
    checkup = examine_files(files)
    assert checkup.ids == {"bank": "customer_id", "shop": "client"}
    found = {(remark.party, remark.what): remark.columns for remark in checkup.remarks}
    assert found == {
        ("bank", "empty"): ("nothing",),
        ("bank", "dates"): ("joined",),
        ("bank", "thousands ,"): ("limit",),
        ("bank", "codes"): ("EDUCATION",),
        ("bank", "constant"): ("same",),
        ("bank", "id-like"): ("note",),
        ("bank", "label"): ("default",),
        ("bank", "spellings"): ("default",),
        ("bank", "leak"): ("collected",),
        ("shop", "decimal comma"): ("basket",),
        ("shop", "marks"): ("visits",),
        ("shop", "mixed"): ("age",),
    }
    assert (checkup.overlaps[0].common, checkup.best.common) == (0, 250)
    assert checkup.best.options["prefix"] == "CUST-"
    text = prescribe(checkup)
    written = tomllib.loads(text)
    assert written["parties"]["bank"]["drop"] == ["nothing", "same", "note"]
    assert written["parties"]["shop"]["missing_values"] == ["NA"]
    quoted = {*pd.read_csv(files["bank"])["customer_id"], "note 7"}
    assert not any(word in text for word in quoted)


def test_the_command_prints_it_and_init_writes_it_into_a_job(messy, monkeypatch, capsys):
    files = [f"{name}={messy / name}.csv" for name in ("bank", "shop")]
    assert vfsl(monkeypatch, "doctor", *files) == 0
    printed = capsys.readouterr().out
    for words in (
        "bank: bank.csv, 300 rows, 10 columns beside the id",
        "id: customer_id (text of 11 characters)",
        "! 'joined' holds dates.  → dates = \"days\"",
        "? 'EDUCATION' looks like codes written as numbers.",
        "? 'default' spells the same value in several ways, such as yes and YES.",
        "'collected' alone nearly says the label 'default'",
        '250  case = "fold", numbers = "integer", prefix = "CUST-"  ← use this',
    ):
        assert words in printed
    job = messy / "job.toml"
    more = ("--label", "default", "--drop", "bank=collected", "--out", job)
    assert vfsl(monkeypatch, "init", *files, *more) == 0
    printed = capsys.readouterr().out
    assert "250 ids in common, compared with case" in printed
    assert "collected" not in printed
    loaded = load_job(job)
    assert loaded.parties["bank"].fold == ["default"]
    assert "collected" in loaded.parties["bank"].drop


def test_a_run_begins_with_what_people_should_have_looked_at(messy, monkeypatch, capsys):
    files = [f"{name}={messy / name}.csv" for name in ("bank", "shop")]
    job = messy / "job.toml"
    assert vfsl(monkeypatch, "init", *files, "--label", "default", "--out", job) == 0
    capsys.readouterr()

    def stop(*_):
        raise ConfigError("enough")

    monkeypatch.setattr("vfsl.job.run_job", stop)
    assert vfsl(monkeypatch, "run", job, "--out", messy / "out") == 2
    printed = capsys.readouterr().out
    assert "note on bank: 'collected' alone nearly says the label 'default'" in printed
    assert "EDUCATION" not in printed  # init has mended it
    assert vfsl(monkeypatch, "run", job, "--out", messy / "out", "--quiet") == 2
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_the_job_that_init_writes_for_messy_files_runs(messy, monkeypatch, capsys):
    files = [f"{name}={messy / name}.csv" for name in ("bank", "shop")]
    job = messy / "job.toml"
    more = ("--label", "default", "--drop", "bank=collected", "--out", job)
    assert vfsl(monkeypatch, "init", *files, *more) == 0
    job.write_text(job.read_text().replace('"auto"', '"plain"'))
    assert vfsl(monkeypatch, "run", job, "--out", messy / "out", "--quiet") == 0
    assert "on 50 held-out rows" in capsys.readouterr().out


def test_a_tidy_file_needs_nothing(tmp_path, monkeypatch, capsys):
    for name, start in (("a", 0), ("b", 20)):
        frame = pd.DataFrame({"id": range(start, start + 60), name: np.arange(60) / 7})
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    assert vfsl(monkeypatch, "doctor", tmp_path / "a.csv", tmp_path / "b.csv") == 0
    printed = capsys.readouterr().out
    assert "Nothing to mend." in printed
    assert "40  as written" in printed


def test_repeated_and_empty_ids(tmp_path):
    frame = pd.DataFrame({"id": ["a", "b", "b", ""] + [f"c{n}" for n in range(60)], "x": 1.5})
    frame.to_csv(tmp_path / "a.csv", index=False)
    found = examine_files({"A": tmp_path / "a.csv"}, {"A": "id"}).remarks
    texts = {remark.what: remark.text for remark in found}
    assert texts["duplicate ids"] == "1 row of 64 with an id that an earlier row has."
    assert texts["empty ids"].startswith("1 row of 64 without an id")


NONE, ALL = 0, 3


@pytest.mark.parametrize(
    ("one", "other", "options"),
    [
        (["a", "b", "c"], ["A", "B", "C"], {"case": "fold"}),
        (["007", "08", "1"], ["7", "8", "1"], {"numbers": "integer"}),
        (["a-1", "b-2", "c-3"], ["A1", "b 2", "C.3"], {"case": "fold", "remove": "-_./ "}),
        (["2020-01-31", "2020-02-01", "x"], ["31.1.2020", "1.2.2020", "x"], {"recipe": "date"}),
        (["+49 1 2", "+49 1 3", "+49 1 4"], ["004912", "004913", "004914"], {"recipe": "phone"}),
        (["a", "b", "c"], [" a", "b ", "c"], {}),
    ],
    ids=str,
)
def test_the_simplest_way_that_finds_all_is_best(one, other, options):
    assert best_overlap(compare_ids({"A": [one], "B": [other]})).options == options


def test_a_way_that_unites_people_is_not_chosen():
    one, other = [f"a{n}" for n in range(300)], [f"b{n}" for n in range(300)]
    one += [f"c{n}" for n in range(300)]  # by digits alone a7 and c7 are one
    found = best_overlap(compare_ids({"A": [one], "B": [other]}))
    assert found.common == 0


def test_leaks_are_found_and_honest_columns_are_not():
    rng = np.random.default_rng(1)
    y = rng.random(400) < 0.5
    frame = pd.DataFrame(
        {
            "id": range(400),
            "y": np.where(y, "a", "b"),
            "code": np.where(y, "won", rng.choice(["lost", "open"], 400)),
            "own": [f"name {place}" for place in range(400)],  # one category per row says nothing
            "good": y + 0.5 * rng.normal(size=400),
            "less": -1.0 * y,
        }
    )
    table = PartyTable.from_frame(frame, party="A", id="id", label="y")
    assert [name for name, _ in find_leaks(table, "y")] == ["code", "less"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252", "gb18030"])
def test_encodings(encoding, tmp_path):
    text = "id,名字\n1,客户一号\n2,普通客户\n" if encoding == "gb18030" else "id,größe\n1,Käse\n"
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    assert guess_encoding(tmp_path / "t.csv") == encoding
    checkup = examine_files({"A": tmp_path / "t.csv"}, {"A": "id"})
    fixes = [remark.fix for remark in checkup.remarks if remark.what == "encoding"]
    assert fixes == ([] if encoding == "utf-8" else [{"encoding": encoding}])
    assert checkup.patients["A"].table.columns == [text.split("\n")[0].split(",")[1]]


def test_a_prefix_is_one_that_nearly_all_ids_have():
    import pyarrow as pa

    assert common_prefix(pa.array(["C-1", "C-2", "C-33"])) == "C-"
    assert common_prefix(pa.array(["C-1", "D-2", "E-33"])) == ""
    assert common_prefix(pa.array(["1", "2"])) == ""


JOB = """
[parties.A]
table = "a.csv"
id = "id"
label = "y"
[parties.B]
table = "b.csv"
id = "id"
{more}
[[steps]]
do = "align"
[[steps]]
do = "train"
model = "logistic"
label = ["A", "y"]
"""


@pytest.mark.parametrize(
    ("ids", "labels", "more", "words"),
    [
        ("c{}", ["n", "y"], "", r"no id in common .* with case = \"fold\" they would have 60"),
        ("d7777{}", ["n", "y"], "", r"no id in common .* vfsl doctor"),
        ("C{}", ["n", "n"], "", "A and B have 60 rows in common, and label 'y' of A has the same"),
        ("C{}", ["", ""], "", "and label 'y' of A is known in 0 of them"),
        ("C{}", ["n", "y"], "[test]\nshare = 0.1", "so 6 would be held out for testing; at least"),
    ],
    ids=str,
)
def test_too_little_in_common_is_said_before_any_work(
    ids, labels, more, words, tmp_path, monkeypatch, capsys
):
    from vfsl.job import run_job

    rows = 60
    a = {"id": [f"C{n}" for n in range(rows)], "x": np.arange(rows) / 7, "y": labels * 30}
    b = {"id": [ids.format(n) for n in range(rows)], "z": np.arange(rows) % 7}
    pd.DataFrame(a).to_csv(tmp_path / "a.csv", index=False)
    pd.DataFrame(b).to_csv(tmp_path / "b.csv", index=False)
    (tmp_path / "job.toml").write_text(JOB.format(more=more))
    monkeypatch.setattr("vfsl.job.run.federation_of", lambda *_: pytest.fail("work was begun"))
    with pytest.raises(DataError, match=words):
        run_job(load_job(tmp_path / "job.toml"), tmp_path, tmp_path / "out")
    assert not list(tmp_path.glob("out*"))
