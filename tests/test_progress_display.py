"""Progress: what is told of a run, how fast it goes, and how it looks to a program."""

import io
import json

from vfsl.cli.progress import Bar, Form, Lines, Pace, display
from vfsl.progress import Event, Watch


class Clock:
    """Time that passes when told."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_pace_is_measured_within_a_stage():
    clock = Clock()
    pace = Pace(clock)
    assert pace.after(Event("align", "B signs", 0, 100)) == (None, None)
    clock.now += 4.0
    assert pace.after(Event("align", "B signs", 20, 100)) == (5.0, 16.0)
    clock.now += 1.0
    assert pace.after(Event("align", "C asks", 3, 10)) == (None, None)


def test_rounds_without_a_known_end_have_a_rate_only():
    clock = Clock()
    pace = Pace(clock)
    pace.after(Event("train logistic", "round 1", 1))
    clock.now += 2.0
    assert pace.after(Event("train logistic", "round 5", 5)) == (2.0, None)
    assert pace.after(Event("train risa", "epoch 1", 1, 9)) == (None, None)


def test_rounds_within_a_column_do_not_disturb_the_pace_of_columns():
    clock = Clock()
    pace = Pace(clock)
    pace.after(Event("vfpu-m", "age", 0, 4))
    pace.after(Event("vfpu-m", "piece 1, round 1", 1))
    clock.now += 10.0
    assert pace.after(Event("vfpu-m", "income", 1, 4)) == (0.1, 30.0)


def test_each_event_is_one_line_of_json():
    clock, written = Clock(), io.StringIO()
    with Lines(written.write, clock) as lines:
        lines.event(Event("cross-fit", "größe\n", 0, 4))
        clock.now += 0.5
        lines.event(Event("cross-fit", "größe\n", 1, 4))
    first, second = map(json.loads, written.getvalue().splitlines())
    assert first["stage"] == "größe\n"
    assert first["rate"] is None
    assert (second["seconds"], second["rate"], second["remaining"]) == (0.5, 2.0, 1.5)


def test_messages_tell_rounds_tasks_and_trees_once_each():
    heard = []
    watch = Watch(heard.append)
    watch(Event("train xgb", "start", total=7))
    watch(Event("train xgb", "start", total=7))  # by another party
    for name in (
        "xgb/public key",
        "xgb/trees 0/level 0/offers",
        "xgb/trees 0/level 1/offers",
        "xgb/trees 1/level 0/offers",
    ):
        watch(name)
    watch(Event("train xgb", "end"))
    watch(Event("train xgb", "end"))
    watch("xgb/trees 2/level 0/offers")
    assert heard == [
        Event("train xgb", "start"),
        Event("train xgb", "trees 1", 1, 7),
        Event("train xgb", "trees 2", 2, 7),
        Event("train xgb", "end"),
    ]
    heard.clear()
    watch(Event("vfpu-m", "start"))
    watch("vfpu-m/task 2/linear/fit/stage 0/round 4/residual")
    watch(Event("vfpu-m", "age", 1, 4))
    assert heard[1:] == [Event("vfpu-m", "task 3, round 5", 3, None), Event("vfpu-m", "age", 1, 4)]


def test_bars_take_any_event():
    for form in (Form.BAR, Form.NONE):
        shown = display(form)
        assert isinstance(shown, Bar)
        with shown as bar:
            bar.event(Event("align", "[red]B[/red]", 5, 3))
            bar.event(Event("train", "round 3", 3))


def test_where_nobody_watches_each_finished_step_is_a_line(capfd):
    """Standard error is no terminal here, as under nohup."""
    with display(Form.BAR) as bar:
        bar.event(Event("align", "start"))
        bar.event(Event("align", "B signs", 5, 9))
        bar.event(Event("align", "end"))
    with display(Form.NONE) as quiet:
        quiet.event(Event("train", "start"))
        quiet.event(Event("train", "end"))
    written = capfd.readouterr().err
    assert written.splitlines() == ["align: done in 0.0 s"]
