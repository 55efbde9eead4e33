"""A mistake in any field of a job is one sentence: where, what came, what was expected."""

import copy
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfsl.errors import ConfigError
from vfsl.job.schema import PartySection, RunSection, TestSection, check
from vfsl.job.steps import fields_of, models

DOCS = Path(__file__).parent.parent / "docs" / "jobs.md"
OWN = {"table": "own.csv", "id": "id"}
TELLS = "label-disclosure"
ALIGN = {"do": "align", "parties": ["B", "C"]}
STEPS = {
    "align": [ALIGN],
    "count": [{"do": "count"}],
    "pu": [ALIGN, {"do": "pu", "positives": "A", "label_holder": "C"}],
    "complete": [ALIGN, {"do": "complete", "given": "C", "missing": "B", "label": "y"}],
    "train": [ALIGN, {"do": "train", "model": "xgb", "label": ["C", "y"]}],
    "evaluate": [
        ALIGN,
        {"do": "train", "model": "xgb", "label": ["C", "y"]},
        {"do": "evaluate"},
    ],
}
SECTIONS = {"run": RunSection, "parties.C": PartySection, "test": TestSection}
# No field takes any of these: a table in place of a value, a number or text out of all bounds.
JUNK = st.one_of(
    st.just({"wrong": {"deeper": 1}}),
    st.floats(max_value=-1e6, allow_nan=False, allow_infinity=False),
    st.lists(st.just({"wrong": 1}), min_size=1, max_size=2),
)
PLACES = [(section, name) for section, model in SECTIONS.items() for name in model.model_fields]
PLACES += [(do, name) for do in STEPS if do != "train" for name in fields_of(do)]
PLACES += [("train", name) for name in {n: 0 for m in models() for n in fields_of("train", m)}]


def job(*steps):
    parties = {name: dict(OWN) for name in "ABC"}
    return {"run": {}, "parties": parties, "test": {"share": 0.2}, "steps": list(steps)}


def placed(section, field, value):
    """A job that is right but for one field, and how a sentence names that field."""
    content = copy.deepcopy(job(*STEPS.get(section, [ALIGN])))
    if section in STEPS:
        number = len(content["steps"]) - 1
        step = content["steps"][number]
        if section == "train" and field not in step and field not in ("rows", "accept"):
            step["model"] = next(m for m in models() if field in fields_of("train", m))
        step[field] = value
        return content, f"step {number + 1}: {field}"
    if section == "test":
        content["test"] = {field: value}
        return content, f"test.{field}"
    target = content["parties"]["C"] if section == "parties.C" else content["run"]
    target[field] = value
    return content, f"{section}.{field}"


def refused(content):
    with pytest.raises(ConfigError) as caught:
        check(content)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith((".", "?"))
    return text


def test_the_jobs_without_a_mistake_are_accepted():
    for steps in STEPS.values():
        assert len(check(job(*steps)).steps) == len(steps)


@pytest.mark.parametrize(("section", "field"), PLACES)
@settings(max_examples=8)
@given(value=JUNK)
def test_a_wrong_value_is_named_with_its_place_and_what_was_expected(section, field, value):
    if field in ("kinds", "switches") and isinstance(value, dict):
        value = 3
    content, where = placed(section, field, value)
    text = refused(content)
    assert where in text
    assert "must be" in text or "is not a known field" in text
    shown = repr(value)[:80]
    assert shown in text or repr({"wrong": 1}) in text or "deeper" in text or "wrong" in text


@pytest.mark.parametrize(("section", "field"), PLACES)
@given(data=st.data())
def test_an_unknown_field_is_named_with_the_nearest_one(section, field, data):
    place = data.draw(st.integers(0, len(field) - 1))
    typo = field[:place] + field[place] + field[place:]
    content, where = placed(section, field, "x")
    path = where.removesuffix(field)
    if section in STEPS:
        step = content["steps"][-1]
        step[typo] = step.pop(field)
        step.update(STEPS[section][-1])
    elif section == "test":
        content["test"] = {"share": 0.2, typo: 1}
    else:
        target = content["parties"]["C"] if section == "parties.C" else content["run"]
        target.pop(field)
        target.update(OWN if section == "parties.C" else {}, **{typo: 1})
    text = refused(content)
    assert f"{path}{typo} is not a known field" in text
    assert "did you mean" in text or "known are" in text


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([{"do": "trian"}], "step 1: do must be one of 'align', 'pu', 'complete', 'train'"),
        ([{"do": "trian"}], "Got 'trian' instead; did you mean 'train'?"),
        ([{}], "step 1: do is missing; it must be one of 'align'"),
        ([{"do": "align", "parties": ["B"]}], "must name two or more different parties"),
        ([{"do": "align", "parties": ["B", "Cc"]}], "names party 'Cc', which has no table"),
        (STEPS["train"][1:], "step 1 must come after an align step"),
        (
            [ALIGN, {"do": "complete", "given": "C", "missing": "B", "low": "gian"}],
            "Got 'gian' instead; did you mean 'gain'?",
        ),
        (
            [ALIGN, {"do": "complete", "given": "C", "missing": "B", "low": {"method": "gian"}}],
            "Got 'gian' instead; did you mean 'gain'?",
        ),
        (
            [ALIGN, {"do": "complete", "given": "C", "missing": "B", "tau": "atuo"}],
            "step 2: tau must be a number from 0 to 1 or one of 'auto', 'significance'. Got "
            "'atuo' instead; did you mean",
        ),
        (
            [ALIGN, {"do": "complete", "given": "C", "missing": "C"}],
            "step 2: missing must be another party than given. Got 'C' instead.",
        ),
        (
            [ALIGN, {"do": "complete", "given": "A", "missing": "C"}],
            "step 2: given must be an aligned party. Got 'A' instead.",
        ),
        (
            [ALIGN, {"do": "train", "model": "xgb", "label": ["C", "y"], "rows": "completed"}],
            "step 2: rows must be 'common' where no complete step comes before",
        ),
        (
            [
                ALIGN,
                {"do": "complete", "given": "C", "missing": "B"},
                {"do": "train", "model": "xgb", "label": ["B", "y"], "rows": "completed"},
            ],
            "step 3: label must be at 'C', the given party of the complete step",
        ),
        (
            [ALIGN, {"do": "train", "model": "risa", "label": ["C", "y"], "rows": "completed"}],
            "step 2: rows must be 'common' with model = 'risa'",
        ),
        (
            [ALIGN, {"do": "train", "model": "risa", "label": ["C", "y"], "l2": 0.1}],
            "step 2: l2 belongs to model = 'linear' or 'logistic'",
        ),
        (
            [
                ALIGN,
                {
                    "do": "train",
                    "model": "risa",
                    "label": ["C", "y"],
                    "switches": {"self_trian": False},
                },
            ],
            "Got 'self_trian' instead; did you mean 'self_train'?",
        ),
        (
            [ALIGN, {"do": "train", "model": "risa", "label": ["C", "y"], "protect": "none"}],
            "step 2: accept must be ['label-disclosure'] with model = 'risa' and protect = 'none'",
        ),
        (
            [ALIGN, {"do": "train", "model": "risa", "label": ["C", "y"], "accept": [TELLS]}],
            "step 2: accept must be left out with model = 'risa'",
        ),
        ([ALIGN, {"do": "evaluate"}], "step 2 must come after a train step"),
        (
            [*STEPS["train"], {"do": "evaluate", "models": [1]}],
            "step 3: models must be numbers of train steps since the last alignment: 2",
        ),
    ],
)
def test_steps_that_do_not_fit_together(steps, words):
    assert words in refused(job(*steps))


def test_evaluation_needs_rows_and_rows_are_told_in_one_way():
    content = job(*STEPS["evaluate"])
    del content["test"]
    assert "add a [test] section" in refused(content)
    content["test"] = {}
    assert "test must have either share or column. Got neither" in refused(content)
    content["test"] = {"share": 0.2, "column": ["C", "t"]}
    assert "Got both" in refused(content)
    content["test"] = {"column": ["Q", "t"]}
    assert "test.column names party 'Q'" in refused(content)


def test_the_key_holder_has_no_table():
    content = job(ALIGN)
    content["run"] = {"key_holder": "A"}
    assert "A is reserved for the key holder" in refused(content)


def test_the_job_of_the_docs_is_a_job():
    blocks = re.findall(r"```toml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    steps = check(tomllib.loads("\n".join(blocks))).steps
    assert [step.do for step in steps] == [
        "align",
        "count",
        "pu",
        "complete",
        "train",
        "train",
        "evaluate",
    ]


def test_the_docs_name_every_field():
    text = DOCS.read_text() + DOCS.with_name("parameters.md").read_text()
    for do, name in PLACES:
        assert re.search(rf"\b{name}\b", text), f"{do}.{name}"
