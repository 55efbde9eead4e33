"""The architecture page is true: its layers, packages and arrows are those of the code."""

import ast
import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "vfsl"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PICTURE = ElementTree.parse(ROOT / "docs" / "pictures" / "architecture.svg").getroot()
SVG = "{http://www.w3.org/2000/svg}"


def contract_layers():
    """The lines of the import contract, top first, each a set of packages."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(one["layers"] for one in contracts["contracts"] if one["type"] == "layers")
    return [set(re.findall(r"\w+", line)) for line in layers]


def page_layers():
    (block,) = re.findall(r"^```layers\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return [set(re.findall(r"\w+", line)) for line in block.splitlines()]


def packages():
    return sorted(name for line in contract_layers() for name in line)


def table_rows(*heads):
    """The cells of the table of the page that has these heads."""
    _, _, after = PAGE.partition(f"| {' | '.join(heads)} |\n")
    lines = after.split("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def picture_arrows():
    drawn = (path for path in PICTURE.iter(f"{SVG}path") if path.get("data-from"))
    return [(path.get("data-from"), path.get("data-to")) for path in drawn]


def imports_of(package):
    """The packages of vfsl that a package or module imports, also inside functions."""
    folder = PACKAGE / package
    files = sorted(folder.rglob("*.py")) if folder.is_dir() else [PACKAGE / f"{package}.py"]
    found = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            found |= {name.split(".")[1] for name in names if name.startswith("vfsl.")}
    return found - {package}


def test_layers_are_those_of_the_import_contract():
    assert page_layers() == contract_layers()


def test_every_package_is_in_the_contract():
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    beside = {"__init__", "__main__", "__pycache__", "testing"}  # testing checks all others
    assert sorted(there - beside) == packages()


def test_every_package_has_a_line():
    assert sorted(cells[0].strip("`") for cells in table_rows("package", "what it does")) == (
        packages()
    )


def test_the_picture_names_every_package_once():
    named = [text.text for text in PICTURE.iter(f"{SVG}text") if text.get("class") == "package"]
    assert sorted(named) == packages()


def test_the_arrows_of_the_picture_are_explained():
    listed = [(cells[0].strip("`"), cells[1].strip("`")) for cells in table_rows(*_FLOWS)]
    assert sorted(listed) == sorted(picture_arrows())


_FLOWS = ("from", "to", "what")


@pytest.mark.parametrize(("upper", "lower"), picture_arrows())
def test_arrows_are_imports_and_point_downwards(upper, lower):
    places = {name: place for place, line in enumerate(contract_layers()) for name in line}
    assert places[upper] < places[lower]
    assert lower in imports_of(upper)


def test_files_that_the_page_names_exist():
    for name in re.findall(r"`([a-z_]+/[a-z_]+\.py)`", PAGE):
        assert (PACKAGE / name).exists() or (ROOT / name).exists(), name
