"""The key holder answers what the job declared, once, and counts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from vfsl.crypto import KeyHolder, PrefixSums
from vfsl.errors import KeyMismatch, QueryRefused
from vfsl.testing.schemes import SchemeCase


def test_each_declared_name_once(case: SchemeCase) -> None:
    holder = KeyHolder(case.secret, {"round 1/gradient": (3,), "round 2/gradient": (3,)})
    values = case.values(3)
    request, mask = case.send(values).mask()
    np.testing.assert_array_equal(mask.remove(holder.open("round 1/gradient", request)), values)
    with pytest.raises(QueryRefused, match="already"):
        holder.open("round 1/gradient", request)
    with pytest.raises(QueryRefused, match="no request named"):
        holder.open("round 3/gradient", request)
    assert (holder.queries, holder.refused) == (1, 2)
    assert holder.left == {"round 2/gradient"}


def test_another_shape_is_refused(case: SchemeCase) -> None:
    holder = KeyHolder(case.secret, {"loss": (1,)})
    request, _ = case.send(case.values(40, 2)).mask()
    with pytest.raises(QueryRefused, match="shape"):
        holder.open("loss", request, (40, 2))
    with pytest.raises(QueryRefused, match="shape"):
        holder.open("loss", request)
    assert holder.left == {"loss"}
    assert (holder.queries, holder.refused) == (0, 2)
    honest, mask = case.send(np.array([5])).mask()
    assert mask.remove(holder.open("loss", honest)).tolist() == [5]


def test_a_foreign_key_does_not_use_a_name_up(case: SchemeCase) -> None:
    holder = KeyHolder(case.secret, {"loss": (1,)})
    request, _ = case.other.encrypt([5]).mask()
    with pytest.raises(KeyMismatch):
        holder.open("loss", request)
    assert holder.left == {"loss"}


def test_answers_of_an_earlier_attempt_count(plain: SchemeCase) -> None:
    first = KeyHolder(plain.secret, {"a": (1,), "b": (1,)})
    first.open("a", plain.public.encrypt([1]).mask()[0])
    second = KeyHolder(plain.secret, {"a": (1,), "b": (1,)}, answered=first.answered)
    assert second.queries == 1
    with pytest.raises(QueryRefused, match="already"):
        second.open("a", plain.public.encrypt([1]).mask()[0])


def test_two_threads_get_one_answer(plain: SchemeCase) -> None:
    holder = KeyHolder(plain.secret, {"a": (1,)})
    request, _ = plain.public.encrypt([1]).mask()

    def ask(_: int) -> bool:
        try:
            holder.open("a", request)
        except QueryRefused:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(ask, range(40))) == 1


def test_answers_are_still_masked(plain: SchemeCase) -> None:
    holder = KeyHolder(plain.secret, {"a": (200,)})
    request, _ = plain.send(np.zeros(200, dtype=np.int64)).mask()
    answer = holder.open("a", request).payload["values"]
    assert len(np.unique(answer)) == 200


def test_prefix_sums_are_opened_by_the_shape_of_their_bins(case: SchemeCase) -> None:
    holder = KeyHolder(case.secret, {"node 1": (2, 4), "node 2": (2, 3)})
    values, codes = case.values(20), case.rng.integers(0, 4, size=(20, 2))
    sums = case.send(values, "sum_by").sum_by_many(codes, 4)
    asked = PrefixSums(np.array([0, 4, 4]), np.array([2, 7, 5]), np.array([3, -1, 7]))
    request, mask = sums.mask(asked, np.array([True, False, True]))
    opened = mask.remove(holder.open("node 1", request))
    first, second = codes.T
    expected = [values[first != 2].sum(), values[(second == 0) | (second == 3)].sum()]
    assert opened.tolist() == expected
    with pytest.raises(QueryRefused, match="already"):
        holder.open("node 1", request)
    wide = case.send(case.values(100), "sum_by").sum_by(np.arange(100), 100)
    starts = np.arange(100).repeat(4)
    many = PrefixSums(starts, starts, starts)
    with pytest.raises(QueryRefused, match="shape"):
        holder.open("node 2", wide.mask(many)[0], (100,))
