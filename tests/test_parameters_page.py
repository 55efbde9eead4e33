"""docs/parameters.md says what the methods declare; VFSL_WRITE_PAGES=1 writes it anew."""

import inspect
import os
import re
from importlib import import_module
from pathlib import Path

import pytest

from vfsl.completion import METHODS
from vfsl.estimators import ESTIMATORS
from vfsl.params import describe_type, params_of

PAGE = Path(__file__).parent.parent / "docs" / "parameters.md"
SECTIONS = {
    "Alignment": ["vfsl.align:Alignment", "vfsl.align:Limits"],
    "Estimators": [
        "vfsl.estimators:LinearRegression",
        "vfsl.estimators:LogisticRegression",
        "vfsl.estimators:RandomForest",
        "vfsl.estimators:GBDT",
        "vfsl.estimators:XGB",
        "vfsl.estimators:LGB",
        "vfsl.estimators:Scorecard",
        "vfsl.evidence:RISA",
        "vfsl.estimators:Association",
    ],
    "Choosing": ["vfsl.model_selection:GridSearch", "vfsl.model_selection:Rule"],
    "Reliable positives": ["vfsl.pu:VFPU", "vfsl.pu:BagLogistic"],
    "Completion": ["vfsl.completion.fedpsg:FedPSG", "vfsl.completion.vfpum:VFPUM"],
    "Generators and imputers": [
        "vfsl.completion:HotDeck",
        "vfsl.completion:CTGAN",
        "vfsl.completion:TableGAN",
        "vfsl.completion:CTABGAN",
        "vfsl.completion:VAE",
        "vfsl.completion:TVAE",
        "vfsl.completion:TabDDPM",
        "vfsl.completion:GAIN",
        "vfsl.completion:VGAIN",
        "vfsl.completion:VFGAIN",
        "vfsl.completion.ensembles:Ensemble",
    ],
}
OPENING = """# Parameters

Every parameter of every method, as the classes declare it. The same declarations check values, fill
docstrings and `--help`, and are the fields of [job steps](jobs.md). *Python only* marks parameters
that take Python objects and are not in job files.

This page is generated. To write it anew:
`VFSL_WRITE_PAGES=1 python -m pytest tests/test_parameters_page.py`
"""


def find(path):
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def render(sections):
    """The page: a table per class."""
    parts = [OPENING]
    for title, paths in sections.items():
        parts.append(f"## {title}\n")
        parts += [describe_class(find(path)) for path in paths]
    return "\n".join(parts)


def describe_class(method):
    """A heading, what the class is, and a line per parameter."""
    about = inspect.cleandoc(method.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    lines = [f"### {method.__name__}", about, ""]
    declared = params_of(method).values()
    if declared:
        lines += ["| parameter | type | default | meaning |", "|---|---|---|---|"]
    for one in declared:
        meaning = one.help if one.option else f"{one.help} *Python only.*"
        kind = describe_type(one).partition(" of [")[0]  # a callable, whatever it takes
        cells = [f"`{one.name}`", kind, describe_default(one.default), meaning]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join([*lines, ""])


def describe_default(value):
    if value is None:
        return "none"
    if isinstance(value, bool | int | float | str | tuple):
        return f"`{value!r}`"
    return f"`{type(value).__name__}()`"


def test_the_page_says_what_the_methods_declare():
    pytest.importorskip("torch")
    page = render(SECTIONS)
    if os.environ.get("VFSL_WRITE_PAGES"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page


def test_every_method_of_ours_is_on_the_page():
    listed = {path for paths in SECTIONS.values() for path in paths}
    names = {path.partition(":")[2] for path in listed}
    estimators = {ESTIMATORS.find(name).__name__ for name in ESTIMATORS.names()}
    completers = {path.partition(":")[2] for path, _ in METHODS.values()} - {"MeanMode"}
    assert estimators | completers <= names


def test_every_parameter_has_a_sentence():
    pytest.importorskip("torch")
    for paths in SECTIONS.values():
        for path in paths:
            for one in params_of(find(path)).values():
                assert one.help.strip().endswith("."), f"{path}: {one.name}: {one.help!r}"
                assert not re.match("[a-z]", one.help), f"{path}: {one.name}: {one.help!r}"
