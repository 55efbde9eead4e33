"""What notebooks show: short tables in HTML, without private values, and progress."""

import io

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import vfsl
from vfsl.errors import ConfigError
from vfsl.estimators import XGB, LogisticRegression
from vfsl.progress import Event
from vfsl.showing import show_table


@pytest.fixture(scope="module")
def fed():
    rng = np.random.default_rng(0)
    ids, numbers = [f"person-{i}" for i in range(90)], rng.normal(size=(90, 2))
    a = pd.DataFrame({"id": ids, "age": numbers[:, 0], "late": np.where(numbers.sum(1) > 0, 1, 0)})
    b = pd.DataFrame({"id": ids, "<b>visits": numbers[:, 1] + 7777})[:60]
    fed = vfsl.simulate({"A": a, "B": b}, labels={"A": "late"}, scheme="plain")
    fed.align(protocol="ecdh")
    return fed


def test_texts_are_escaped_and_counts_have_separators():
    html = show_table("a & b", ["<i>"], [["<script>"], [12345], [True]])
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "12,345" in html
    assert "a &amp; b" in html


def test_a_federation_and_its_plan_show_sizes(fed):
    html = fed._repr_html_()
    assert "<td>A</td><td>90</td><td>2</td><td>60</td>" in html
    assert "<td>B</td><td>60</td><td>1</td><td>60</td>" in html
    plan = fed.plan._repr_html_()
    assert "<td>A</td><td>60</td><td>30</td>" in plan
    assert "person-" not in html + plan


def test_models_show_settings_and_how_training_ended(fed):
    fresh = XGB(n_estimators=3)
    assert "XGB, not fitted" in fresh._repr_html_()
    assert "<td>n_estimators</td><td>3</td>" in fresh._repr_html_()
    fitted = LogisticRegression().fit(fed, label=("A", "late"))
    html = fitted._repr_html_()
    assert "<td>label</td><td>late of A</td>" in html
    assert "<td>parties</td><td>A, B</td>" in html
    assert "person-" not in html
    assert "7777" not in html
    assert "VFPU, not fitted" in vfsl.VFPU()._repr_html_()


def test_a_completion_shows_columns_without_cells(fed):
    done = vfsl.FedPSG().fit_complete(fed, given="A", missing="B")
    html = done._repr_html_()
    assert "Completion of 30 rows" in html
    assert "&lt;b&gt;visits" in html
    assert "person-" not in html
    assert "777" not in html
    assert len(html) < 600


def test_the_ledger_is_a_table_without_ids(fed):
    html = fed.ledger._repr_html_()
    assert "align" in html
    assert "person-" not in html


def test_progress_is_shown_through_on_event(fed):
    written = io.StringIO()
    shown = vfsl.show_progress(Console(file=written, force_terminal=False))
    heard = vfsl.simulate(dict(fed.tables), scheme="plain", on_event=shown)
    heard.align(protocol="ecdh")
    assert [line.split(":")[0] for line in written.getvalue().splitlines()] == ["align"]


def test_a_bar_is_drawn_for_those_who_watch_and_goes_when_a_step_fails(fed):
    written = io.StringIO()
    shown = vfsl.show_progress(Console(file=written, force_terminal=True, width=120))
    shown(Event("train xgb", "start"))
    shown(Event("train xgb", "trees 2", 2, 7))
    shown(Event("train xgb", "end"))
    assert "train xgb" in written.getvalue()
    events = []
    other = vfsl.simulate(dict(fed.tables), scheme="plain", on_event=events.append)
    with pytest.raises(ConfigError):
        other.play(_fail)
    assert [event.stage for event in events] == ["start", "failed"]


def _fail(site, channel):
    site.tell("train", "start")
    raise ConfigError("no")
