"""Each step as a person says it."""

import pytest

from vfsl.report.story import tell_first
from vfsl.report.telling import figures_of, tell_explained, tell_notes, tell_run, tell_step


def step(name, metrics=(), settings=(), **more):
    plain = {"seconds": 1.0, "messages": 0, "bytes": 0, "rounds": [], "stop_reason": None}
    plain |= {"notes": [], "details": {}}
    return {"name": name, "metrics": dict(metrics), "settings": dict(settings), **plain, **more}


def test_a_training_says_which_rows_its_figures_are_of():
    named = {"name": "with it"}
    train = step("train logistic", settings=named, stop_reason="tolerance", rounds=[1, 2])
    told = {"held-out AUC": 0.942, "training AUC": 0.916}
    predicted = step("predict logistic", told, named)
    judged = step("predict logistic", {"auc": 0.9}, {**named, "for": "evaluate"})
    other = step("predict logistic", {"held-out AUC": 0.1}, {"name": "another"})
    steps = [train, other, predicted, judged]
    assert figures_of(train, steps) == told
    assert tell_run(steps) == [
        "Trained with it: held-out AUC 0.942; training AUC 0.916; converged after 2 rounds "
        "(1.00 s)",
        "Predicted by another: held-out AUC 0.100 where the label is known (1.00 s)",
    ]


@pytest.mark.parametrize(
    ("asked", "name"), [(0, "training AUC"), (7, "AUC of predicted rows")], ids=str
)
def test_figures_of_runs_in_python_say_it_too(asked, name):
    train = step("train xgb")
    steps = [train, step("predict xgb", {"auc": 0.9}, {"new rows": asked})]
    assert figures_of(train, steps) == {name: 0.9}


def test_lines_of_other_steps():
    align = step("align", {"overlap": 1, "rest of A": 2_000}, {"parties": ["A", "B"]})
    align |= {"messages": 1, "bytes": 1500}
    assert tell_step(align) == "Aligned A and B: 1 common row; A has 2,000 more (1.00 s, 1.5 kB)"
    assert tell_explained({"PAY_0": 0.064, "x": -0.1}) == (
        "PAY_0: 6 % of variance explained; x: 0 % of variance explained"
    )
    risa = step("train risa", {"left": 2}, stop_reason="15 epochs done", rounds=[1] * 15)
    assert tell_step(risa) == "Trained risa: 2 rows removed; 15 epochs done (1.00 s)"
    assert tell_step(step("vfpu", {"reliable positives": 1, "unlabelled": 9})).startswith(
        "VFPU found 1 reliable positive among 9 unlabelled rows"
    )
    assert tell_step(step("shift", {"auc": 0.5})) == ""
    notes = ["5 columns ended by: all rounds.", "beware"]
    assert tell_notes(step("direct model", notes=notes)) == ["beware"]
    assert tell_notes(step("evaluate", notes=notes)) == []


def test_the_first_screen_says_what_was_asked_helped_learned_and_sent():
    question = {"text": "Do completed rows help? No: AUC +0.001, “a” beside “b”.", "verdict": "odd"}
    shown = {"receiver": "A", "sender": "B", "counted": 7}
    run = {
        "parties": [{"party": "A", "rows": 5, "columns": 1}],
        "steps": [
            step("align", {"overlap": 3}, {"parties": ["A", "B"]}),
            step("evaluate", settings={"label": ["A", "y"]}, details={"questions": [question]}),
        ],
        "shown": [shown, shown],
        "ledger": [{"bytes": 2_000_000, "protection": "masked", "sender": "A"}],
        "scheme": "auto",
    }
    points = {point.title: point.texts for point in tell_first(run)}
    assert list(points) == ["Asked", "Helped", "Learned", "Sent"]
    assert points["Asked"][0][0].startswith("Can A predict “y” better with the others' columns?")
    assert points["Helped"] == (("Do completed rows help? No: AUC +0.001.", "warn"),)
    assert "A saw 14 exact numbers about the rows of B" in points["Learned"][0][0]
    assert points["Sent"][0][0].startswith("2.0 MB left the parties (A 2.0 MB); 100 %")
