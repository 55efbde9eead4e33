"""Every registered completer and generator keeps the public contract, which has teeth."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch

from tests.completion.gen_cases import GENERATORS, IMPUTERS, TINY, tiny
from vfsl.completion import HotDeck, MeanMode, available, completer, load, save
from vfsl.errors import DataError
from vfsl.testing.completers import COMPLETER_CHECKS
from vfsl.testing.completion_case import CompleterCase, GeneratorCase
from vfsl.testing.generators import GENERATOR_CHECKS


def saved(model, folder):
    save(model, folder)
    return load(folder)


@cache
def completer_case(name):
    if name == "near hot-deck":
        return CompleterCase(lambda: HotDeck(neighbours=3))
    if name in GENERATORS:
        return CompleterCase(lambda: completer(name, **TINY[name], draws=3))
    if name in IMPUTERS:
        return CompleterCase(lambda: completer(name, **TINY[name]), saved=saved)
    return CompleterCase(lambda: completer(name), draws=name != "mean")


@cache
def generator_case(name):
    return GeneratorCase(lambda: tiny(name), saved=saved)


COMPLETERS = ("mean", "hot-deck", "near hot-deck", *IMPUTERS, *GENERATORS)


def test_every_registered_method_is_here():
    assert {*available("completer"), *available("generator")} <= {*COMPLETERS}
    assert available("generator") == list(GENERATORS)


@pytest.mark.parametrize("check", COMPLETER_CHECKS)
@pytest.mark.parametrize("name", COMPLETERS)
def test_completer_keeps_the_contract(name, check):
    COMPLETER_CHECKS[check](completer_case(name))


@pytest.mark.parametrize("check", GENERATOR_CHECKS)
@pytest.mark.parametrize("name", GENERATORS)
def test_generator_keeps_the_contract(name, check):
    GENERATOR_CHECKS[check](generator_case(name))


# ---- completers that break it --------------------------------------------------------------------


class Broken(MeanMode):
    """The mean, with a change of its answer."""

    def complete(self, table, rng):
        return self.spoil(super().complete(table, rng), rng)


class Smoothing(Broken):
    """Moves cells that were known."""

    def spoil(self, done, rng):
        done.values["size"] = done.values["size"] * 0.9
        return done


class Sorting(Broken):
    """Gives rows in an order of its own."""

    def spoil(self, done, rng):
        done.values[:] = done.values.sort_values("whole").to_numpy()
        return done


class Loosening(Broken):
    """Forgets that numbers were whole."""

    def spoil(self, done, rng):
        done.values["count"] = done.values["count"].astype(float)
        return done


class Inventing(Broken):
    """Fills in a category that nobody has."""

    def spoil(self, done, rng):
        done.values.loc[done.filled["colour"], "colour"] = "ultraviolet"
        return done


class Overshooting(Broken):
    """Fills in numbers beyond all known ones."""

    def spoil(self, done, rng):
        done.values.loc[done.filled["size"], "size"] = 1e6
        return done


class Stopping(Broken):
    """Leaves the last rows as they are."""

    def spoil(self, done, rng):
        missing = done.filled["size"] & (done.filled.index > 60)
        done.values.loc[missing, "size"] = np.nan
        return done


class Boasting(Broken):
    """Is sure of everything, and of nothing in particular."""

    def spoil(self, done, rng):
        done.probabilities["colour"] *= 2
        return done


class Seeding(MeanMode):
    """Makes the whole program repeat."""

    def fit(self, table, rng):
        np.random.seed(0)
        return super().fit(table, rng)


class SeedingTorch(MeanMode):
    def complete(self, table, rng):
        torch.manual_seed(0)
        return super().complete(table, rng)


class Changing(MeanMode):
    """Fills its argument as well."""

    def complete(self, table, rng):
        done = super().complete(table, rng)
        if isinstance(table, pd.DataFrame):
            table["size"] = done.values["size"].to_numpy()
        return done


class Wilful(HotDeck):
    """Draws by chance of its own."""

    def complete(self, table, rng):
        return super().complete(table, np.random.default_rng())


class Deaf(HotDeck):
    """Draws the same for every seed."""

    def complete(self, table, rng):
        return super().complete(table, np.random.default_rng(0))


class Rash(MeanMode):
    """Does not look before it takes a column."""

    def complete(self, table, rng):
        for name in table.columns if isinstance(table, pd.DataFrame) else ():
            if name not in ("size", "count", "colour", "whole", "grade", "flag", "fixed"):
                raise KeyError(name)
        return super().complete(table, rng)


class Patient(MeanMode):
    """Completes nothing at all without complaint."""

    def complete(self, table, rng):
        return super().complete(self.kept if not len(table) else table, rng)

    def fit(self, table, rng):
        self.kept = table
        return super().fit(table, rng)


class Rude(MeanMode):
    """Refuses in one word."""

    def fit(self, table, rng):
        try:
            return super().fit(table, rng)
        except DataError:
            raise DataError("Bad!") from None


BROKEN = [
    (Smoothing, "keeps_known_cells"),
    (Smoothing, "returns_whole_tables_as_they_are"),
    (Sorting, "keeps_known_cells"),
    (Sorting, "keeps_the_order_of_rows"),
    (Loosening, "keeps_types"),
    (Inventing, "fills_with_known_categories"),
    (Overshooting, "fills_within_bounds"),
    (Overshooting, "says_how_sure_it_is"),
    (Stopping, "leaves_nothing_missing"),
    (Boasting, "says_how_sure_it_is"),
    (Seeding, "leaves_global_randomness_alone"),
    (SeedingTorch, "leaves_global_randomness_alone"),
    (Changing, "leaves_the_table_alone"),
    (Wilful, "repeats"),
    (Deaf, "draws_by_the_seed"),
    (Rash, "refuses_bad_input"),
    (Patient, "refuses_bad_input"),
    (Rude, "refuses_bad_input"),
]


@pytest.mark.parametrize(("kind", "check"), BROKEN)
def test_the_contract_sees_a_broken_completer(kind, check):
    draws = issubclass(kind, HotDeck)
    with pytest.raises(AssertionError):
        COMPLETER_CHECKS[check](CompleterCase(kind, draws=draws))


def test_the_contract_sees_a_method_that_draws_and_says_that_it_does_not():
    with pytest.raises(AssertionError, match="the seed matters"):
        COMPLETER_CHECKS["draws_by_the_seed"](CompleterCase(HotDeck, draws=False))


def test_the_contract_sees_what_is_lost_on_disk():
    def forgetful(model, folder):
        again = saved(model, folder)
        again.spread_ = {}
        return again

    case = completer_case("gain")
    with pytest.raises(AssertionError, match="completes otherwise"):
        COMPLETER_CHECKS["saves_and_loads"](CompleterCase(case.make, saved=forgetful))


# ---- generators that break it --------------------------------------------------------------------


class Urn:
    """Draws rows of the table: right in all but conditions, which it only writes over."""

    def fit(self, table, rng):
        self.table = table
        return self

    def sample(self, n, rng, given=None):
        made = self.table.iloc[rng.integers(0, len(self.table), n)].reset_index(drop=True)
        for name, value in (given if isinstance(given, dict) else {}).items():
            made[name] = pd.Series([value] * n, dtype=made[name].dtype)
        return made


class Unheeding(Urn):
    def sample(self, n, rng, given=None):
        return super().sample(n, rng)


class Repeating(Urn):
    def sample(self, n, rng, given=None):
        return super().sample(n, np.random.default_rng(0), given)


class Short(Urn):
    def sample(self, n, rng, given=None):
        return super().sample(max(n - 1, 0), rng, given)


class Global(Urn):
    def sample(self, n, rng, given=None):
        return super().sample(n, np.random.default_rng(np.random.randint(9)), given)


class Doubling(Urn):
    def sample(self, n, rng, given=None):
        made = super().sample(n, rng, given)
        return made.assign(size=made["size"] * 2)


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        (Unheeding, "meets_conditions"),
        (Repeating, "draws_by_the_seed"),
        (Repeating, "fills_what_is_free"),
        (Short, "makes_the_rows_asked_for"),
        (Global, "leaves_global_randomness_alone"),
        (Doubling, "stays_within_bounds"),
        (Urn, "refuses_bad_input"),
        (Urn, "refuses_bad_conditions"),
    ],
)
def test_the_contract_sees_a_broken_generator(kind, check):
    with pytest.raises(AssertionError):
        GENERATOR_CHECKS[check](GeneratorCase(kind))


@pytest.mark.parametrize(
    "check", ["makes_the_rows_asked_for", "keeps_types", "stays_within_bounds", "repeats"]
)
def test_the_urn_is_right_where_it_should_be(check):
    GENERATOR_CHECKS[check](GeneratorCase(Urn))
