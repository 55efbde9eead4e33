"""PartyTable: what it takes, what it refuses, and that no error quotes an id."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from vfsl.data import Kind, PartyTable, inspect
from vfsl.errors import ConfigError, DataError, InputError

SECRET = "id-9371-secret"


def base(**columns: object) -> pd.DataFrame:
    return pd.DataFrame({"id": ["a", "b", "c"], **columns})


def make(frame: pd.DataFrame, **options: object) -> PartyTable:
    return PartyTable.from_frame(frame, **{"party": "A", "id": "id", **options})


def test_kinds_are_inferred_from_types():
    table = make(
        base(
            whole=[1, 2, 3],
            decimal=[1.5, None, 2.0],
            truth=[True, False, True],
            text=["x", None, "y"],
            category=pd.Categorical(["u", "v", "u"]),
            y=[0, 1, None],
        ),
        label="y",
    )
    assert table.kinds == {
        "whole": "numeric",
        "decimal": "numeric",
        "truth": "categorical",
        "text": "categorical",
        "category": "categorical",
        "y": "label",
    }
    assert table.features == ["whole", "decimal", "truth", "text", "category"]
    assert table.labels == ["y"]
    assert table.columns == [*table.features, "y"]
    assert len(table) == 3
    assert table.column("y").isna().tolist() == [False, False, True]


def test_declared_kinds_win():
    frame = base(code=[1, 2, 1], size=["1", "2.5", None], flag=[True, False, True])
    table = make(frame, kinds={"code": "categorical", "size": Kind.NUMERIC, "flag": "numeric"})
    assert table.kinds == {"code": "categorical", "size": "numeric", "flag": "numeric"}
    assert table.column("code").tolist() == [1, 2, 1]
    assert table.column("size").tolist()[:2] == [1.0, 2.5]
    assert table.column("flag").tolist() == [1, 0, 1]


def test_a_declared_kind_of_the_label_says_how_to_read_it():
    table = make(base(y=["1", "2", "x"]), kinds={"y": "categorical"}, label="y")
    assert table.kinds["y"] is Kind.LABEL
    assert make(base(y=["1", "2", "3"]), kinds={"y": "label"}).labels == ["y"]


def test_python_objects_become_typed_columns():
    table = make(
        base(
            whole=pd.Series([1, None, 3], dtype=object),
            truth=pd.Series([True, None, False], dtype=object),
            both=pd.Series([1, 2.5, None], dtype=object),
            money=pd.Series([Decimal("1.5"), Decimal("2"), None], dtype=object),
            text=pd.Series(["é", None, "z"], dtype=object),
        )
    )
    assert [str(table.frame[name].dtype) for name in ("whole", "truth", "both", "money")] == [
        "Int64",
        "boolean",
        "float64",
        "float64",
    ]
    assert table.column("text").dropna().tolist() == ["é", "z"]
    assert table.column("whole").dropna().tolist() == [1, 3]


def test_mixed_types_need_a_declaration():
    frame = base(mix=pd.Series([1, "a", 2.5], dtype=object))
    with pytest.raises(DataError, match=r"'mix' of party A mixes 2 numbers with 1 cell") as caught:
        make(frame)
    assert "categorical" in str(caught.value)
    declared = make(frame, kinds={"mix": "categorical"})
    assert declared.column("mix").tolist() == ["1", "a", "2.5"]


def test_text_in_a_declared_number_is_counted():
    frame = base(size=["1", "tall", "?"])
    with pytest.raises(DataError, match=r"'size' of party A is declared numeric, but 2 cells of 3"):
        make(frame, kinds={"size": "numeric"})
    mixed = base(size=pd.Series([1, "tall", 3.5], dtype=object))
    with pytest.raises(DataError, match=r"but 1 cell of 3 is not"):
        make(mixed, kinds={"size": "numeric"})


@pytest.mark.parametrize(
    "values",
    [
        pd.to_datetime(["2020-01-01", "2020-01-02", None]),
        pd.to_timedelta([1, 2, 3]),
        pd.Series([datetime.date(2020, 1, 1)] * 3, dtype=object),
        ["2020-01-01", "2020-01-02", None],
        ["2020-01-01T10:00:00", "2020-01-02 11:00", None],
        pd.Categorical(pd.to_datetime(["2020-01-01", "2020-01-02", None])),
    ],
)
def test_dates_are_refused_with_advice(values: object):
    with pytest.raises(DataError, match=r"'day' of party A holds dates.*say dates = 'days'"):
        make(base(day=values))


def test_dates_as_text_may_be_declared_categorical():
    table = make(base(day=["2020-01-01", "2020-01-02", None]), kinds={"day": "categorical"})
    assert table.kinds["day"] is Kind.CATEGORICAL


def test_bins_of_pandas_cut_become_text():
    table = make(base(bin=pd.cut([1.0, 5.0, 9.0], [0, 4, 10])))
    assert table.column("bin").astype(str).tolist() == ["(0, 4]", "(4, 10]", "(4, 10]"]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([None, None, None], "has no value in any row"),
        ([np.nan] * 3, "has no value in any row"),
        ([1.0, np.inf, -np.inf], "has 2 infinite cells among 3"),
        ([1j, 2j, 3j], "Got complex cells"),
        (pd.Series([b"a", b"b", b"c"], dtype=object), "Got bytes cells"),
        (pd.Series([2**70, 1, 2], dtype=object), "beyond 64 bits"),
        (["1,5", "2,25", None], "decimal comma"),
    ],
)
def test_unusable_columns_are_refused_by_name(values: object, says: str):
    with pytest.raises(DataError, match=says) as caught:
        make(base(bad=values))
    assert "'bad' of party A" in str(caught.value)


def test_a_label_may_be_wholly_unknown_but_not_infinite():
    assert make(base(y=[None, None, None]), label="y").column("y").isna().all()
    with pytest.raises(DataError, match=r"Label 'y' of party A has 1 infinite cell"):
        make(base(y=[1.0, np.inf, None]), label="y")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"id": "key"}, r"no id column 'key'; its columns are 'id', 'x'"),
        ({"kinds": {"z": "numeric"}}, r"no declared column 'z'"),
        ({"label": "z"}, r"no label 'z'"),
        ({"kinds": {"id": "numeric"}}, r"'id' of party A is its id"),
        ({"label": "id"}, r"'id' of party A is its id"),
        ({"kinds": {"x": "number"}}, r"must be one of 'numeric'.*Got 'number'"),
        ({"duplicates": "last"}, r"duplicates parameter.*Got 'last' instead"),
        ({"id": []}, r"must be one column name"),
        ({"id": ["id", "id"]}, r"must be one column name"),
        ({"party": " "}, r"name of a party must be a text"),
    ],
)
def test_wrong_names_are_refused(options: dict[str, object], says: str):
    with pytest.raises(InputError, match=says):
        make(base(x=[1, 2, 3]), **options)


def test_column_names_must_be_text_and_unique():
    with pytest.raises(DataError, match="more than one column named 'x'"):
        make(pd.DataFrame([["a", 1, 2]], columns=["id", "x", "x"]))
    with pytest.raises(DataError, match=r"2 columns whose name is empty or not a text"):
        make(pd.DataFrame([["a", 1, 2]], columns=["id", 0, " "]))
    with pytest.raises(DataError, match=r"or an Arrow table\. Got list instead"):
        make([1, 2])  # type: ignore[arg-type]


def test_an_empty_table_is_refused_and_one_without_columns_is_not():
    with pytest.raises(DataError, match="party A has no rows"):
        make(base(x=[1, 2, 3]).iloc[:0])
    positives = make(base())
    assert positives.columns == []
    assert len(positives) == 3


@pytest.mark.parametrize(
    "ids",
    [
        [SECRET, SECRET, "x"],
        [SECRET, "", "x"],
        [SECRET, None, "  "],
        pd.Series([SECRET, 1.5, "x"], dtype=object),
        pd.Series([SECRET, b"x", "y"], dtype=object),
    ],
)
def test_no_error_quotes_an_id(ids: object):
    with pytest.raises(DataError) as caught:
        make(pd.DataFrame({"id": ids, "x": [1, 2, 3]}))
    assert "secret" not in str(caught.value)
    assert "party A" in str(caught.value)


def test_errors_about_ids_count():
    with pytest.raises(DataError, match=r"2 rows of 4 that repeat an id"):
        make(pd.DataFrame({"id": ["a", "b", "a", "a"], "x": range(4)}))
    with pytest.raises(DataError, match=r"'id' of party A is empty in 2 rows of 3"):
        make(pd.DataFrame({"id": ["a", None, " "], "x": range(3)}))


def test_the_first_of_a_repeated_id_can_be_kept():
    frame = pd.DataFrame({"id": ["a", "b", "a"], "x": [1, 2, 3]})
    table = make(frame, duplicates="first")
    assert table.ids.tolist() == ["a", "b"]
    assert table.column("x").tolist() == [1, 2]
    assert [(note.what, note.count) for note in inspect(table)] == [("duplicate ids", 1)]


def test_ids_are_text_with_their_zeros():
    assert make(pd.DataFrame({"id": ["007", "7"]})).ids.tolist() == ["007", "7"]
    assert make(pd.DataFrame({"id": [12, 7]})).ids.tolist() == ["12", "7"]
    nullable = pd.Series([10**18 + 1, 7], dtype="Int64")
    assert make(pd.DataFrame({"id": nullable})).ids.tolist() == ["1000000000000000001", "7"]
    assert make(pd.DataFrame({"id": pd.Categorical(["u", "v"])})).ids.tolist() == ["u", "v"]


@pytest.mark.parametrize("ids", [[1.0, 2.0, None], pd.Series([1.0, "b", "c"], dtype=object)])
def test_decimal_ids_are_refused_with_advice(ids: object):
    with pytest.raises(DataError, match=r"decimal numbers.*read the ids as text"):
        make(pd.DataFrame({"id": ids}))


def test_truth_values_are_no_ids():
    with pytest.raises(DataError, match=r"must hold text or whole numbers. Got bool instead"):
        make(pd.DataFrame({"id": [True, False]}))


def test_composite_ids_join_unambiguously():
    frame = pd.DataFrame({"p": ["a", "ab"], "q": ["bc", "c"], "n": [1, 1], "x": [1, 2]})
    table = make(frame, id=["p", "q", "n"])
    assert len(set(table.ids)) == 2
    assert table.to_frame().to_dict("list") == {
        "p": ["a", "ab"],
        "q": ["bc", "c"],
        "n": ["1", "1"],
        "x": [1, 2],
    }
    frame.loc[0, "p"] = "a\x1fb"
    with pytest.raises(DataError, match=r"'p' of party A has 1 value with the unit separator"):
        make(frame, id=["p", "q"])
    frame.loc[0, "p"] = None
    with pytest.raises(DataError, match=r"'p' of party A is empty in 1 row of 2"):
        make(frame, id=["p", "q"])


def test_an_index_named_as_the_id_is_taken():
    frame = base(x=[1, 2, 3]).set_index("id")
    assert make(frame).ids.tolist() == ["a", "b", "c"]


def test_take_keeps_the_given_order():
    table = make(base(x=[1, 2, 3], y=["u", None, "v"]))
    taken = table.take([2, 0])
    assert taken.ids.tolist() == ["c", "a"]
    assert taken.frame.index.tolist() == [0, 1]
    assert taken.column("x").tolist() == [3, 1]
    assert len(table.take([])) == 0
    assert table.take(np.array([1])).column("y").isna().all()


@pytest.mark.parametrize("rows", [[3], [-1], [True, False, True], [[0]], [0.5]])
def test_take_refuses_what_is_not_row_numbers(rows: list[object]):
    with pytest.raises(DataError, match="rows to take from party A"):
        make(base(x=[1, 2, 3])).take(rows)


def test_columns_come_and_go():
    table = make(base(x=[1, 2, 3]))
    more = table.with_column("z", ["u", "v", None], "categorical").with_column(
        "y", [0, 1, 0], "label"
    )
    assert more.kinds == {"x": "numeric", "z": "categorical", "y": "label"}
    assert table.columns == ["x"]
    replaced = more.with_column("x", pd.Series([7, 8, 9], index=[5, 6, 7]), "numeric")
    assert replaced.columns == ["x", "z", "y"]
    assert replaced.column("x").tolist() == [7, 8, 9]
    assert more.without("z").columns == ["x", "y"]
    assert more.without(["x", "y"]).columns == ["z"]
    with pytest.raises(DataError, match=r"no column 'w'; its columns are 'x'"):
        table.without("w")
    with pytest.raises(DataError, match=r"no column 'w'"):
        table.column("w")
    with pytest.raises(DataError, match=r"'z' of party A must have 3 cells. Got 1"):
        table.with_column("z", [1], "numeric")
    with pytest.raises(DataError, match="is its id"):
        table.with_column("id", [1, 2, 3], "numeric")


def test_a_table_does_not_change_behind_its_back():
    frame = base(x=[1, 2, 3])
    table = make(frame)
    frame.loc[0, "x"] = 99
    assert table.column("x").tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="read-only"):
        table.ids[0] = "z"
    with pytest.raises(AttributeError):
        table.party = "B"  # type: ignore[misc]


def test_its_text_shows_no_id():
    frame = pd.DataFrame({"id": [SECRET, "b"], "x": [1, 2]})
    assert repr(make(frame)) == "PartyTable('A', 2 rows, 1 feature, 0 labels)"


def test_parts_that_do_not_fit_are_refused():
    with pytest.raises(DataError, match="one id per row"):
        PartyTable("A", np.array(["a"], dtype=object), pd.DataFrame({"x": [1, 2]}), {})


def test_config_errors_are_input_errors():
    with pytest.raises(ConfigError):
        make(base(), duplicates="no")
