"""Association across parties: the textbook measures, the same everywhere, and who sees what."""

import random
import time
from collections import Counter
from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata, spearmanr
from scipy.stats.contingency import association as contingency_association

import vfsl
from vfsl.channel import Transcript, run_together
from vfsl.channel.wire import decode
from vfsl.data import Kind, PartyTable
from vfsl.errors import ConfigError, DataError, ProtocolError
from vfsl.estimators import Part, Roles, association
from vfsl.estimators.association import (
    DISCLOSURES,
    SHARED,
    Association,
)
from vfsl.estimators.measures import (
    aggregate_strengths,
    centre_ranks,
    derive,
    measure_strength,
    merge_small_groups,
    orthonormalise,
    rank_bound,
)
from vfsl.values import Aggregate

PLAIN = Roles("B", ("A",), "K", "plain")
PAILLIER = Roles("B", ("A",), "K", "paillier", 112)
BFV = Roles("B", ("A",), "K", "bfv")
SHARES = Roles("B", ("A",), "K", "shares")
NUMERIC, CATEGORICAL = Kind.NUMERIC, Kind.CATEGORICAL


def frames(rows=200, seed=0):
    """Columns of all kinds at both parties, with ties, missing cells, rare and constant values."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=rows)
    a = pd.DataFrame(
        {
            "age": common + rng.normal(size=rows),
            "visits": np.round(2 * common + rng.normal(size=rows)),
            "city": np.array(["u", "v", "w"])[np.digitize(common + rng.normal(size=rows), [-1, 1])],
            "same": 1.0,
        }
    )
    b = pd.DataFrame(
        {
            "income": common**3 + rng.normal(size=rows),
            "children": np.round(common + rng.normal(size=rows)),
            "job": np.array(["p", "q", "r", "s"])[np.digitize(common, [-1.5, 0, 1.5])],
            "one": "always",
            "flag": np.where(common + rng.normal(size=rows) > 0, "yes", "no"),
        }
    )
    a.loc[rng.choice(rows, 20, replace=False), "visits"] = np.nan
    b.loc[rng.choice(rows, 30, replace=False), "children"] = np.nan
    b.loc[rng.choice(rows, 25, replace=False), "job"] = None
    b.loc[rng.choice(rows, 3, replace=False), "job"] = "rare"
    b.loc[rng.choice(rows, 4, replace=False), "job"] = "rarer"
    return a, b


def parts_of(a, b, rows=None):
    rows = np.arange(len(a)) if rows is None else rows
    made = {}
    for party, frame in (("A", a), ("B", b)):
        table = PartyTable.from_frame(frame.assign(id=range(len(frame))), party=party, id="id")
        made[party] = Part(table, rows)
    return made


def run(parts, model=None, roles=PLAIN, **how):
    model = model or Association()
    jobs = {
        party: partial(model.train, part=parts.get(party), roles=roles) for party in roles.everyone
    }
    return run_together(jobs, **how)


@pytest.fixture
def same_order(monkeypatch):
    """Secret orders repeat, so that what two runs show can be compared."""

    def repeat():
        monkeypatch.setattr(association, "_protecting", random.Random(5))

    repeat()
    return repeat


# ---- the measures, in other words than the code's ------------------------------------------------


def filled_ranks(column):
    ranks = np.full(len(column), np.nan)
    seen = column.notna().to_numpy()
    ranks[seen] = rankdata(column[seen])
    return np.where(seen, ranks, ranks[seen].mean())


def merged_names(column):
    names = ["missing" if pd.isna(cell) else str(cell) for cell in column]
    sizes = Counter(names)
    names = [name if sizes[name] >= 10 else "other" for name in names]
    sizes = Counter(names)
    if 0 < sizes["other"] < 10 and len(sizes) > 1:
        del sizes["other"]
        smallest = min(sorted(sizes), key=lambda name: sizes[name])
        names = [smallest if name == "other" else name for name in names]
    return np.array(names)


def is_text(column):
    return not pd.api.types.is_numeric_dtype(column)


def reference(x, y):
    if not is_text(x) and not is_text(y):
        x, y = filled_ranks(x), filled_ranks(y)
        return 0.0 if x.std() == 0 or y.std() == 0 else abs(np.corrcoef(x, y)[0, 1])
    if is_text(x) and is_text(y):
        table = pd.crosstab(merged_names(x), merged_names(y)).to_numpy()
        return contingency_association(table, method="cramer") if min(table.shape) > 1 else 0.0
    groups, ranks = (x, y) if is_text(x) else (y, x)
    groups, ranks = merged_names(groups), filled_ranks(ranks)
    if ranks.std() == 0:
        return 0.0
    means = pd.Series(ranks).groupby(groups).transform("mean")
    return float(np.sqrt(means.var(ddof=0) / ranks.var()))


def reference_matrix(a, b):
    return np.array([[reference(a[x], b[y]) for y in b] for x in a])


def between(x, y):
    """The measure of two columns by the code under test, from its derived columns."""
    one, two = (derive(column, CATEGORICAL if is_text(column) else NUMERIC) for column in (x, y))
    products = one.columns.T.astype(np.int64) @ two.columns.astype(np.int64)
    return measure_strength(products, one.profile, two.profile, len(x))


@pytest.mark.parametrize("ties", [False, True])
def test_spearman_equals_scipy(ties):
    rng = np.random.default_rng(1)
    x = rng.normal(size=500)
    y = -(x**3) + rng.normal(size=500)
    if ties:
        x, y = np.round(x), np.round(y)
    expected = abs(spearmanr(x, y).statistic)
    assert between(pd.Series(x), pd.Series(y)) == pytest.approx(expected, abs=1e-12)


def test_every_pair_of_kinds_equals_the_textbook():
    a, b = frames()
    for x in a:
        for y in b:
            expected = reference(a[x], b[y])
            assert between(a[x], b[y]) == pytest.approx(expected, abs=1e-9)
            assert between(b[y], a[x]) == pytest.approx(expected, abs=1e-9)


def test_perfect_association_is_one_and_none_is_zero():
    x = pd.Series(np.repeat(np.arange(4.0), 25))
    text = x.map({0.0: "c", 1.0: "a", 2.0: "d", 3.0: "b"})
    for pair in ((x, x), (x, -x), (x, text), (text, text)):
        assert between(*pair) == pytest.approx(1.0, abs=1e-12)
    other = pd.Series(["m", "n", "m", "n", "o"] * 20)
    assert between(text, other) == 0.0  # each group holds the same mixture: exactly nothing
    assert between(x, other) == 0.0


@given(st.lists(st.one_of(st.none(), st.integers(-5, 5)), min_size=1, max_size=60))
def test_ranks_are_scipys_doubled_and_centred(cells):
    column = pd.Series(cells, dtype="Int64")
    seen = column.notna().to_numpy()
    ranks = centre_ranks(pd.factorize(column, sort=True)[0])
    expected = np.zeros(len(cells))
    if seen.any():
        expected[seen] = 2 * rankdata(column[seen].to_numpy(dtype=float)) - (seen.sum() + 1)
    assert (ranks == expected).all()
    assert ranks.sum() == 0
    assert np.abs(ranks).max() <= rank_bound(len(cells))


@given(st.lists(st.integers(-1, 8), min_size=1, max_size=120))
@settings(max_examples=60)
def test_no_group_is_small(codes):
    codes = np.array(codes)
    groups = merge_small_groups(codes)
    sizes = np.bincount(groups)
    assert (sizes > 0).all()
    assert len(sizes) == 1 or sizes.min() >= 10
    # Merging only merges: equal cells stay together, large groups apart.
    assert len(set(zip(codes.tolist(), groups.tolist(), strict=True))) == len(set(codes.tolist()))
    large = [code for code, size in Counter(codes.tolist()).items() if size >= 10]
    assert len({int(groups[codes == code][0]) for code in large}) == len(large)


def test_small_groups_become_one_or_join_the_smallest():
    codes = np.repeat([0, 1, 2, 3], [30, 12, 6, 5])
    assert np.bincount(merge_small_groups(codes)).tolist() == [30, 12, 11]
    codes = np.repeat([0, 1, 2, -1], [30, 12, 3, 2])
    assert sorted(np.bincount(merge_small_groups(codes))) == [17, 30]


def test_large_whole_numbers_are_not_taken_for_ties():
    base = 2**60
    column = pd.Series([base, base + 1, base + 2], dtype="int64")
    assert derive(column, NUMERIC).columns[:, 0].tolist() == [-2, 0, 2]


def test_many_rows_are_coarsened_by_a_public_rule():
    rows = 270_000
    rng = np.random.default_rng(2)
    x = pd.Series(rng.normal(size=rows))
    y = pd.Series(np.round(x + rng.normal(size=rows)))
    for column in (x, y):
        largest = int(np.abs(derive(column, NUMERIC).columns).max())
        assert largest <= rank_bound(rows) < rows
    text = y.map(lambda value: "low" if value < -1 else "high" if value > 1 else "middle")
    assert between(x, y) == pytest.approx(abs(spearmanr(x, y).statistic), abs=1e-5)
    # Coarse ranks need not add up to zero; a small group must not pay for it.
    rare = pd.Series(np.where(np.arange(rows) < 12, "a few", "the rest"))
    for names in (text, rare):
        for numbers in (x, y):
            assert between(numbers, names) == pytest.approx(reference(numbers, names), abs=1e-5)
    for count in (1, 10, 10**5, 2**18, 2**20, 10**9):
        assert count * rank_bound(count) ** 2 <= 2**56


def test_aggregates():
    matrix = np.array([[0.2, 0.9], [0.8, 0.3], [0.5, 0.3]])
    np.testing.assert_allclose(aggregate_strengths(matrix, "mean", 3), [0.5, 0.5])
    np.testing.assert_allclose(aggregate_strengths(matrix, "max", 3), [0.8, 0.9])
    np.testing.assert_allclose(aggregate_strengths(matrix, "top-k", 2), [0.65, 0.6])
    np.testing.assert_allclose(aggregate_strengths(matrix, "top-k", 7), [0.5, 0.5])


# ---- between parties -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "combine"),
    [
        (Association(), lambda m: m.mean(axis=0)),
        (Association("max", decimals=3), lambda m: m.max(axis=0)),
        (Association("top-k", k=2), lambda m: np.sort(m, axis=0)[-2:].mean(axis=0)),
    ],
)
def test_the_parties_find_what_pooled_tables_show(model, combine):
    a, b = frames()
    rows = np.random.default_rng(3).permutation(200)[:160]
    results = run(parts_of(a, b, rows), model)
    expected = reference_matrix(a.iloc[rows], b.iloc[rows])
    assert list(results["B"].index) == list(b.columns)
    np.testing.assert_array_equal(results["B"], np.round(combine(expected), model.decimals))
    assert results["B"]["one"] == 0.0
    assert results["B"]["income"] > 0.2
    # The feature holder has the same numbers, by its own names and in an order that it ignores.
    seen = results["A"]
    assert list(seen.index) == list(a.columns)
    np.testing.assert_allclose(np.sort(seen, axis=1), np.sort(expected, axis=1), atol=1e-9)
    assert results["K"] is None


def test_all_schemes_agree_bit_for_bit(same_order):
    a, b = frames(rows=120)
    outcomes = []
    for roles in (PLAIN, PAILLIER, BFV):
        same_order()
        outcomes.append(run(parts_of(a, b), roles=roles))
    for other in outcomes[1:]:
        assert (other["A"].to_numpy() == outcomes[0]["A"].to_numpy()).all()
        assert (other["B"] == outcomes[0]["B"]).all()


def test_secret_orders_do_not_show_in_the_result():
    a, b = frames()
    outcomes = [run(parts_of(a, b)) for _ in range(5)]
    first = np.sort(outcomes[0]["A"].to_numpy(), axis=1)
    for other in outcomes[1:]:
        assert (other["B"] == outcomes[0]["B"]).all()
        assert (np.sort(other["A"].to_numpy(), axis=1) == first).all()


@pytest.mark.parametrize("roles", [PLAIN, BFV])
def test_rows_in_several_messages_give_the_same(roles, same_order, monkeypatch):
    a, b = frames()
    whole = run(parts_of(a, b), roles=roles)
    same_order()
    monkeypatch.setattr(association, "_CHUNK_CELLS", 300)
    transcript = Transcript()
    cut = run(parts_of(a, b), roles=roles, transcript=transcript)
    assert sum(entry.message == "derived columns" for entry in transcript.entries) > 3
    assert (cut["A"].to_numpy() == whole["A"].to_numpy()).all()


def test_parties_as_processes():
    a, b = frames()
    apart = run(parts_of(a, b), roles=SHARES, on="processes")
    assert (apart["B"] == run(parts_of(a, b), roles=SHARES)["B"]).all()


def test_a_federation_measures_and_records():
    a, b = frames()
    ids = [f"p{i}" for i in range(200)]
    tables = {
        "A": a.assign(id=ids, target=np.arange(200) % 2).iloc[:180],
        "B": b.assign(id=ids).iloc[10:].sample(frac=1, random_state=1),
        "C": pd.DataFrame({"id": ids, "more": range(200)}),
    }
    fed = vfsl.simulate(tables, id="id", labels={"A": "target"}, scheme="plain")
    with pytest.raises(ConfigError, match="align"):
        Association().measure(fed)
    fed.align(protocol="ecdh")
    found = Association("max").measure(fed, given="A", missing="B")
    expected = reference_matrix(a.iloc[10:180], b.iloc[10:180]).max(axis=0)
    np.testing.assert_array_equal(found, np.round(expected, 2))
    assert list(found.index) == list(b.columns)
    ledger = fed.ledger[fed.ledger["step"] == "association"]
    assert set(ledger["message"]) == set(DISCLOSURES) - {"above", "explained", "worth"}
    assert set(ledger["sender"]) | set(ledger["receiver"]) == {"A", "B", "K"}
    assert fed.record.steps[-1].settings["aggregate"] == "max"
    for given_party in ("B", "nobody"):
        with pytest.raises(ConfigError, match=r"The given parameter of measure .*'B'"):
            Association().measure(fed, given=given_party, missing="B")


# ---- who sees what -------------------------------------------------------------------------------


def views(a, b, roles=PLAIN):
    transcript = Transcript(keep_views=True)
    results = run(parts_of(a, b), roles=roles, transcript=transcript)
    return transcript, results


def readable(transcript, party):
    """All names and sizes, and the content of what is not hidden; keys are new in every run."""
    return [
        (s.sender, s.name, s.kind, len(s.body), s.body if s.kind in ("plain", "aggregate") else b"")
        for s in sorted(transcript.sights, key=lambda sight: sight.sender)
        if s.receiver == party and not s.name.endswith("public key")
    ]


def test_every_message_has_its_declared_kind():
    transcript, _ = views(*frames())
    for entry in transcript.entries:
        assert entry.kind == getattr(DISCLOSURES[entry.message].type, "kind", "plain")
    raw = {(e.sender, e.receiver, e.message) for e in transcript.entries if e.kind == "plain"}
    assert raw == {
        ("K", "A", "public key"),
        ("K", "B", "public key"),
        ("B", "K", "rows"),
        ("B", "K", "columns"),
        ("A", "K", "columns"),
        ("B", "A", "groups"),
    }


def test_the_label_holder_sees_the_rounded_numbers_and_no_more(same_order):
    a, b = frames()
    before, first = views(a, b)
    assert {(s.sender, s.name) for s in before.sights if s.receiver == "B"} == {
        ("K", "association/public key"),
        ("A", "association/strengths"),
    }
    ordered = a["age"].rank()
    changed = a.copy()
    changed.loc[ordered == 80, "age"], changed.loc[ordered == 82, "age"] = (
        float(a["age"][ordered == 82].iloc[0]),
        float(a["age"][ordered == 80].iloc[0]),
    )
    same_order()
    after, second = views(changed, b)
    assert not (first["A"].to_numpy() == second["A"].to_numpy()).all()
    assert (first["B"] == second["B"]).all()
    assert readable(before, "B") == readable(after, "B")


@pytest.mark.parametrize("roles", [PLAIN, BFV])
@pytest.mark.parametrize("party", ["A", "B"])
def test_the_key_holder_sees_nothing_of_a_cell(party, roles, same_order):
    tables = dict(zip("AB", frames(), strict=True))
    before, _ = views(*tables.values(), roles)
    frame = tables[party].copy()
    frame.loc[7, frame.columns[0]] += 3.0
    same_order()
    after, _ = views(*{**tables, party: frame}.values(), roles)
    assert readable(before, "K") == readable(after, "K")


def test_the_feature_holder_sees_no_name_no_category_and_no_value(same_order):
    a, b = frames()
    before, _ = views(a, b)
    marked = b.rename(columns={name: f"MARKER-{name}" for name in b.columns})
    for name in ("job", "one", "flag"):
        marked[f"MARKER-{name}"] = "MARKER-" + marked[f"MARKER-{name}"]
    # A monotone change of numbers: other values, the same ranks.
    marked["MARKER-income"] = 1e6 + 7 * marked["MARKER-income"]
    same_order()
    after, _ = views(a, marked)
    assert readable(before, "A") == readable(after, "A")
    cell = np.float64(marked["MARKER-income"].iloc[5]).tobytes()
    for sight in after.sights:
        assert b"MARKER" not in sight.body
        assert cell not in sight.body


def test_columns_and_groups_arrive_in_ever_new_orders():
    a, b = frames()
    b = b[["job", "flag", "income"]]
    orders, sizes = set(), set()
    for _ in range(20):
        transcript, _ = views(a, b)
        sent = {s.name: s.body for s in transcript.sights if s.receiver == "A"}
        orders.add(sent["association/groups"])
        sizes.add(sent["association/lengths"])
    assert len(orders) > 1
    assert len(sizes) > len(orders)  # groups move within their column, too


# ---- faults --------------------------------------------------------------------------------------


def test_no_common_rows_are_refused():
    with pytest.raises(DataError, match="no rows in common"):
        run(parts_of(*frames(), rows=np.array([], dtype=np.int64)))


@pytest.mark.parametrize("party", ["A", "B"])
def test_a_party_without_columns_is_refused(party):
    parts = parts_of(*frames())
    frame = pd.DataFrame({"id": range(200), "y": np.arange(200) % 2})
    table = PartyTable.from_frame(frame, party=party, id="id", label="y")
    with pytest.raises(DataError, match=f"Party '{party}' has no columns besides"):
        run({**parts, party: Part(table, np.arange(200))})


def test_constant_columns_only_are_defined():
    a, b = frames()
    results = run(parts_of(a, b[["one"]].assign(two=2.0)), roles=BFV)
    assert results["B"].to_dict() == {"one": 0.0, "two": 0.0}
    assert (run(parts_of(a[["same"]], b), roles=BFV)["B"] == 0.0).all()


def test_a_column_without_any_common_value_goes_with_nothing():
    a, b = frames()
    b.loc[:150, "income"] = np.nan
    b.loc[:150, "flag"] = None
    found = run(parts_of(a, b, np.arange(150)))["B"]
    assert found["income"] == found["flag"] == 0.0


def test_few_rows_are_refused_by_the_feature_holder_and_by_the_key_holder():
    a, b = frames(rows=40)
    cautious = Association(rows_per_column=15)
    message = r"Party 'A' has 4 derived columns .* only 40 common rows; at least 60"
    parts = parts_of(a, b)
    for careful in "AK":
        jobs = {
            party: partial(
                (cautious if party == careful else Association(rows_per_column=2)).train,
                part=parts.get(party),
                roles=PLAIN,
            )
            for party in "ABK"
        }
        with pytest.raises(DataError, match=message):
            run_together(jobs)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("aggregate", "median"),
        ("k", 0),
        ("decimals", 9),
        ("decimals", True),
        ("rows_per_column", 1),
    ],
)
def test_parameters_are_checked(name, value):
    with pytest.raises(ConfigError, match=f"The {name} parameter of Association must be"):
        run(parts_of(*frames()), Association(**{name: value}))


def test_roles_are_checked():
    parts = parts_of(*frames())
    with pytest.raises(ConfigError, match="Got 2 feature holders"):
        run(parts, roles=Roles("B", ("A", "C"), "K", "plain"))
    with pytest.raises(ConfigError, match="'A' needs a part"):
        run({"B": parts["B"]})


@pytest.mark.parametrize(
    ("groups", "lengths", "message"),
    [
        ([0, 1], [4, 4], "numbers of groups"),
        ([0, 500], [4, 4], "numbers of groups"),
        ([], [], "numbers of groups"),
        ([0, 2], [4], "expected 2"),
        ([0, 2], [-4, 20], "lengths that no column has"),
        ([0, 2], [4, 200], "lengths that no column has"),
    ],
)
def test_impossible_profiles_name_their_sender(groups, lengths, message):
    def impostor(channel):
        channel = channel.within("association", DISCLOSURES)
        channel.receive("K", "public key")
        channel.send("K", "rows", 200)
        channel.send("K", "columns", 2)
        channel.send("A", "groups", np.array(groups, dtype=np.int64))
        channel.send("A", "lengths", Aggregate(np.array(lengths, dtype=np.int64)))
        channel.receive("A", "strengths")

    parts = parts_of(*frames())
    honest = {p: partial(Association().train, part=parts.get(p), roles=PLAIN) for p in "AK"}
    with pytest.raises(ProtocolError, match=f"'B' sent .*{message}") as caught:
        run_together({**honest, "B": impostor})
    assert caught.value.party == "B"


def test_impossible_strengths_name_their_sender():
    def impostor(channel):
        channel = channel.within("association", DISCLOSURES)
        channel.receive("K", "public key")
        channel.send("K", "columns", 5)
        channel.receive("B", "groups")
        channel.receive("B", "lengths")
        channel.within("block 0").receive("B", "derived columns")
        channel.send("B", "strengths", Aggregate(np.array([0.2, 0.3, 1.2, 0.0, 0.1])))
        channel.receive("B", "groups")  # which never comes: B has stopped

    parts = parts_of(*frames())
    honest = {p: partial(Association().train, part=parts.get(p), roles=PLAIN) for p in "BK"}
    with pytest.raises(ProtocolError, match="'A' sent strengths outside 0 to 1"):
        run_together({**honest, "A": impostor})


def test_encrypted_columns_of_another_length_name_their_sender():
    a, b = frames()
    parts = {"A": parts_of(a, b)["A"], "B": parts_of(a, b, np.arange(150))["B"]}
    with pytest.raises(ProtocolError, match=r"'B' sent encrypted columns \(150, .*\(200, "):
        run(parts)


# ---- on shares -----------------------------------------------------------------------------------


def kinds_of_tables():
    a, b = frames()
    numbers = a[["age", "visits", "same"]], b[["income", "children", "flag", "one"]]
    return {"mixed": (a, b), "numbers given": (numbers[0], b), "one dimension": numbers}


@pytest.mark.parametrize("tables", ["mixed", "numbers given", "one dimension"])
@pytest.mark.parametrize(
    ("model", "combine"),
    [
        (Association(), lambda m: m.mean(axis=0)),
        (Association("max", decimals=3), lambda m: m.max(axis=0)),
        (Association("top-k", k=2, decimals=4), lambda m: np.sort(m, axis=0)[-2:].mean(axis=0)),
        (Association("top-k", k=9, decimals=0), lambda m: m.mean(axis=0)),
    ],
)
def test_on_shares_the_missing_party_finds_the_textbook_and_the_others_nothing(
    model, combine, tables
):
    a, b = kinds_of_tables()[tables]
    rows = np.random.default_rng(3).permutation(200)[:160]
    results = run(parts_of(a, b, rows), model, SHARES)
    expected = combine(reference_matrix(a.iloc[rows], b.iloc[rows]))
    assert list(results["B"].index) == list(b.columns)
    unit = 10.0**-model.decimals
    # Half a unit by rounding, and what strengths.py states: 1.5 % of a unit and some 2^-18.
    assert np.abs(results["B"] - expected).max() < 0.515 * unit + 2e-5
    assert (results["B"].to_numpy() == np.round(results["B"], model.decimals)).all()
    assert results["B"]["one"] == 0.0
    assert results["A"] is None
    assert results["K"] is None


def test_on_shares_and_under_encryption_the_numbers_are_the_same():
    a, b = frames(rows=120)
    for model in (Association(), Association("max"), Association("top-k", k=2)):
        assert (run(parts_of(a, b), model, SHARES)["B"] == run(parts_of(a, b), model)["B"]).all()


@pytest.mark.parametrize("rows", [12, 60, 1000])
def test_orthonormal_columns_span_what_ranks_and_groups_say(rows):
    a, b = frames(rows=max(rows, 60))
    for frame in (a.iloc[:rows], b.iloc[:rows]):
        for name, column in frame.items():
            space = orthonormalise(column, CATEGORICAL if is_text(column) else NUMERIC)
            if not is_text(column):
                ranks = filled_ranks(column)
                centred = ranks - ranks.mean()
                length = np.linalg.norm(centred)
                expected = centred / length if length else centred
                np.testing.assert_allclose(space[:, 0], expected, atol=1e-12)
                continue
            groups = merged_names(column)
            count = len(set(groups))
            assert space.shape == (rows, max(count - 1, 1)), name
            if count > 1:
                np.testing.assert_allclose(space.T @ space, np.eye(count - 1), atol=1e-12)
            np.testing.assert_allclose(space.sum(axis=0), 0.0, atol=1e-10)
            for group in set(groups):
                assert np.ptp(space[groups == group], axis=0).max() == 0.0


def test_many_rows_on_shares_cost_no_precision():
    """Cells of unit columns are small then; rounding must not hurt ties, halves or rare groups."""
    rows = 150_000
    rng = np.random.default_rng(2)
    x = rng.normal(size=rows)
    near = pd.Series(x + rng.normal(size=rows))
    b = pd.DataFrame(
        {
            "ties": near.round(),
            "half": np.where(near > 0, "yes", "no"),
            "rare": np.where(near < near.nsmallest(200).max(), "a few", "the rest"),
        }
    )
    a = pd.DataFrame({"x": x})
    found = run(parts_of(a, b), Association(decimals=4), SHARES)["B"]
    assert np.abs(found - reference_matrix(a, b)[0]).max() < 0.6e-4


def test_two_of_three_aligned_parties_compare_on_shares(monkeypatch):
    monkeypatch.setattr("vfsl.site.choose_scheme", lambda work, asked="auto": "shares")
    a, b = frames()
    ids = [f"p{i}" for i in range(200)]
    tables = {
        "A": a.assign(id=ids, target=np.arange(200) % 2).iloc[:180],
        "B": b.assign(id=ids).iloc[10:].sample(frac=1, random_state=1),
        "C": pd.DataFrame({"id": ids, "more": range(200)}),
    }
    fed = vfsl.simulate(tables, id="id", labels={"A": "target"})
    fed.align(protocol="ecdh")
    found = Association("max").measure(fed, given="A", missing="B")
    expected = reference_matrix(a.iloc[10:180], b.iloc[10:180]).max(axis=0)
    np.testing.assert_array_equal(found, np.round(expected, 2))
    ledger = fed.ledger[fed.ledger["step"] == "association"]
    assert set(ledger["sender"]) | set(ledger["receiver"]) == {"A", "B", "K"}
    assert set(ledger["message"]) == set(SHARED) - {
        "announced",
        "goes on",
        "decision",
        "above",
        "explained",
        "worth",
    }
    assert fed.record.steps[-1].settings["scheme"] == "shares"


def hidden_bytes(transcript, party):
    """The content of all masked messages that a party received, without names and lengths."""
    bodies = [
        decode(s.body)[1].payload
        for s in transcript.sights
        if s.receiver == party and s.kind == "masked"
    ]
    return np.concatenate(bodies)


def deviate(content):
    """How many standard deviations counts of byte values are away from those of uniform bytes."""
    expected = len(content) / 256
    chi = ((np.bincount(content, minlength=256) - expected) ** 2 / expected).sum()
    return abs(chi - 255) / np.sqrt(2 * 255)


def test_on_shares_the_given_party_and_the_dealer_see_sizes_and_uniform_words():
    """The same sizes, other cells and kinds: what A sees differs in nothing but random words."""
    a, b = frames()
    before, _ = views(a, b, SHARES)
    rng = np.random.default_rng(9)
    # 8 derived columns as before, of kinds that are distributed otherwise.
    assert {"derived": 8, "columns": 5, "rows": 200} in sizes_of(before, "B")
    other = pd.DataFrame({name: rng.normal(size=200) for name in ("v", "w", "x", "y")})
    other["z"] = rng.choice(list("pqrst"), 200)
    after, _ = views(a, other, SHARES)
    for party in "AK":
        assert shape_of(before, party) == shape_of(after, party)
    assert {s.name for s in before.sights if s.receiver == "K"} == {"association/sizes"}
    assert {s.name for s in before.sights if s.receiver == "A"} == {
        f"association/{name}" for name in ("seed", "sizes", "masked", "dealt")
    }
    for transcript in (before, after):
        assert deviate(hidden_bytes(transcript, "A")) < 6


def sizes_of(transcript, sender):
    return [
        decode(s.body)[1] for s in transcript.sights if s.sender == sender and "sizes" in s.name
    ]


def shape_of(transcript, party):
    """Names, lengths and readable content; seeds are new in every run."""
    return [
        (s.sender, s.name, s.kind, len(s.body), s.body if s.name.endswith("sizes") else b"")
        for s in sorted(transcript.sights, key=lambda sight: sight.sender)
        if s.receiver == party
    ]


def test_on_shares_words_without_masks_would_be_noticed(monkeypatch):
    monkeypatch.setattr(association.Session, "join", partial(association.Session.join, hide=False))
    transcript, _ = views(*frames(), SHARES)
    assert deviate(hidden_bytes(transcript, "A")) > 100


def test_on_shares_the_missing_party_learns_one_number_per_column():
    a, b = frames()
    transcript, results = views(a, b, SHARES)
    (opened,) = [s for s in transcript.sights if s.name.endswith("strengths")]
    assert (opened.sender, opened.receiver, opened.kind) == ("A", "B", "masked")
    assert len(decode(opened.body)[1].payload) == 2 * len(b.columns)  # two bytes each
    (shown,) = transcript.releases
    assert (shown.sender, shown.receiver, shown.about) == ("A", "B", "columns")
    assert shown.numbers == len(b.columns)
    assert deviate(hidden_bytes(transcript, "B")) < 6
    # Another value of A that leaves the rounded numbers as they are changes nothing readable.
    changed = a.copy()
    ordered = a["age"].rank()
    one, two = (int(np.flatnonzero(ordered == place)[0]) for place in (80, 82))
    changed.loc[[one, two], "age"] = a.loc[[two, one], "age"].to_numpy()
    again, second = views(changed, b, SHARES)
    assert (results["B"] == second["B"]).all()
    assert shape_of(transcript, "B") == shape_of(again, "B")


def test_on_shares_few_rows_are_no_danger():
    """Nobody sees products, so there is nothing to solve for cells."""
    a, b = frames(rows=40)
    found = run(parts_of(a, b), Association("max", rows_per_column=15), SHARES)["B"]
    np.testing.assert_allclose(found, reference_matrix(a, b).max(axis=0), atol=0.0052)


def test_on_shares_other_rows_or_impossible_sizes_are_refused():
    a, b = frames()
    parts = {"A": parts_of(a, b)["A"], "B": parts_of(a, b, np.arange(150))["B"]}
    with pytest.raises(ProtocolError, match="200 rows, party 'B' 150"):
        run(parts, roles=SHARES)

    def impostor(channel, sizes):
        channel = channel.within("association", SHARED)
        channel.receive("K", "seed")
        for party in "BK":
            channel.send(party, "sizes", sizes)
        channel.receive("B", "sizes")
        channel.receive("B", "masked")

    honest = {
        p: partial(Association().train, part=parts_of(a, b).get(p), roles=SHARES) for p in "BK"
    }
    for sizes, message in (
        ({"rows": 200, "columns": 4, "derived": 3}, "sizes that no table has"),
        ({"rows": 200, "columns": 0, "derived": 3}, "sizes that no table has"),
        ({"rows": 200, "columns": 4}, "other sizes than expected"),
        ({"rows": 200, "columns": 4, "derived": 5, "cells": 1}, "other sizes than expected"),
    ):
        with pytest.raises(ProtocolError, match=f"'A' sent {message}") as caught:
            run_together({**honest, "A": partial(impostor, sizes=sizes)})
        assert caught.value.party == "A"


@pytest.mark.slow
def test_twenty_by_twenty_columns_take_a_core_second():
    """The goal of the design is 1; other work on this machine also shows in these numbers."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(10_000, 1))
    a, b = (pd.DataFrame(common + rng.normal(size=(10_000, 20))).add_prefix(name) for name in "ab")
    parts = parts_of(a, b)
    run(parts, roles=BFV)  # SEAL's tables are made once a process
    start = time.process_time()
    found = run(parts, roles=BFV)["B"]
    spent = time.process_time() - start
    expected = np.abs(spearmanr(a, b).statistic[:20, 20:]).mean(axis=0)
    np.testing.assert_array_equal(found, np.round(expected, 2))
    assert spent < 2.0


def make_tables(rows, columns, groups=0):
    """Related columns at both parties; every second one has groups, if asked for."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(rows, 1))
    frames = [
        pd.DataFrame(common + rng.normal(size=(rows, columns))).add_prefix(name) for name in "ab"
    ]
    for frame in frames if groups else ():
        for name in frame.columns[::2]:
            frame[name] = "g" + pd.qcut(frame[name], groups, labels=False).astype(str)
    return frames


# Measured: 2.1 MB and 15 rounds; 0.14 and 15; 0.69 and 49. Small tables pay bytes for rounds.
@pytest.mark.parametrize(
    ("rows", "columns", "groups", "megabytes", "rounds"),
    [(10_000, 20, 0, 2.2, 16), (750, 10, 0, 0.15, 16), (750, 10, 5, 0.72, 52)],
)
def test_on_shares_a_comparison_costs_five_bytes_per_cell(rows, columns, groups, megabytes, rounds):
    a, b = make_tables(rows, columns, groups)
    transcript = Transcript()
    found = run(parts_of(a, b), roles=SHARES, transcript=transcript)["B"]
    expected = run(parts_of(a, b), roles=PLAIN)["B"]
    assert np.abs(found - expected).max() < 0.011
    assert sum(entry.bytes for entry in transcript.entries) < megabytes * 1e6
    assert sum((e.sender, e.receiver) == ("A", "B") for e in transcript.entries) <= rounds
