"""What the README and the docs show is what the package does: blocks run, links lead somewhere.

Python blocks run in order, in a folder of their own, the blocks of one page in one namespace.
Commands are parsed by the command line itself, and on some pages run on made-up files. TOML
blocks load.
"""

import pkgutil
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import typer.main
from typer.core import TyperCommand

import vfsl.cli
from vfsl.data import make_parties
from vfsl.job import load_job

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "README.zh.md", *sorted(DOCS.rglob("*.md"))]
# Blocks may be indented, as in a list.
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
# These take more than a few seconds.
SLOW = {"README.md", "README.zh.md", "docs/complete.md", "docs/extending.md", "docs/generators.md"}
# On these pages commands run, in order; elsewhere they are the same, or need companies or hours.
RUN = ("README.md", "docs/align.md")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> list[str]:
    found = []
    for indent, language, content in FENCE.findall(page.read_text()):
        if language in languages:
            lines = [line.removeprefix(indent) for line in content.splitlines()]
            found.append("\n".join(lines) + "\n")
    return found


def commands(page: Path) -> list[list[str]]:
    """The words of every vfsl command in the shell blocks of a page."""
    lines = "".join(blocks(page, "", "sh")).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith("vfsl ")]


def pages(*which, slow=()):
    return [
        pytest.param(
            page, id=name_of(page), marks=pytest.mark.slow if name_of(page) in slow else ()
        )
        for page in PAGES
        if any(blocks(page, language) for language in which)
    ]


@pytest.mark.parametrize("page", pages("python", slow=SLOW))
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "docs"}
    for number, block in enumerate(blocks(page, "python"), start=1):
        exec(compile(block, f"{name_of(page)} block {number}", "exec"), namespace)


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name_of)
def test_commands_parse(page, monkeypatch):
    heard = []
    monkeypatch.setattr(TyperCommand, "invoke", lambda self, context: heard.append(context.params))
    command = typer.main.get_command(vfsl.cli.app)
    for words in commands(page):
        done = None
        try:
            command.main(words[1:], prog_name="vfsl", standalone_mode=False)
        except Exception as error:
            done = error
        assert done is None, f"{name_of(page)}: {' '.join(words)}: {done!r} {done}"
    assert len(heard) == len(commands(page))


@pytest.mark.slow
@pytest.mark.timeout(900)  # whole encrypted runs, one after the other
@pytest.mark.parametrize("page", [ROOT / name for name in RUN], ids=name_of)
def test_commands_run(page, tmp_path):
    write_files(tmp_path, page)
    assert commands(page)
    for words in commands(page):
        done = subprocess.run(
            [sys.executable, "-c", "from vfsl.cli import main; main()", *words[1:]],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"


def write_files(folder: Path, page: Path) -> None:
    """The files that the commands of the pages name, small and made up."""
    used = {word for words in commands(page) for word in words}
    key = "customer_id" if "customer_id" in used else "id"
    made = make_parties(
        rows=150,
        parties=3,
        label_as="column",
        overlap=0.9,
        missing=0.0,
        numeric=3,
        categorical=0,
        rng=np.random.default_rng(0),
    )
    bank, shop, hospital = made.tables.values()
    positives = bank[bank[made.label] == 1][["id"]]
    files = {
        "a": bank.rename(columns={made.label: "churn"}),
        "b": shop,
        "c": hospital,
        "known": positives.iloc[::2],
        "new_a": bank.drop(columns=made.label),
        "new_b": shop,
        "bank": bank.assign(postcode=1000 + np.arange(len(bank)) % 3),
        "shop": shop,
    }
    for name, table in files.items():
        own = "customer_id" if name in ("bank", "shop") else key
        table.rename(columns={"id": own}).to_csv(folder / f"{name}.csv", index=False)
    if "run" in used and "init" not in used:
        (folder / "job.toml").write_text(jobs(page)[0])


@pytest.mark.parametrize("page", pages("toml"))
def test_toml_blocks_load(page, tmp_path):
    for block in blocks(page, "toml"):
        tomllib.loads(block)
    for job in jobs(page):
        (tmp_path / "job.toml").write_text(job)
        assert load_job(tmp_path / "job.toml").steps


def jobs(page: Path) -> list[str]:
    """The jobs of a page; one may be shown in several blocks, its tables first."""
    found: list[str] = []
    begun = ""
    for block in blocks(page, "toml"):
        content = tomllib.loads(block)
        if begun or "parties" in content or "steps" in content:
            begun += block
        if "steps" in content:
            found.append(begun)
            begun = ""
    assert not begun, f"{name_of(page)} shows a job without steps"
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_make_targets_exist(page):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    asked = re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.MULTILINE)
    assert set(asked) <= set(targets)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    text = FENCE.sub("", page.read_text())
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)]*)?\)", text):
        if target.startswith("http"):
            continue
        file = page.parent / target if target else page
        assert file.exists(), f"{name_of(page)} links to {target}"
        if anchor and file.suffix == ".md":
            assert anchor[1:] in anchors(file), f"{name_of(page)} links to {target}{anchor}"


def anchors(page: Path) -> set[str]:
    """The headings of a page as anchors."""
    titles = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", sorted((DOCS / "api").glob("*.md")), ids=name_of)
def test_names_of_the_reference_exist(page):
    for path in re.findall(r"^::: ([\w.]+)", page.read_text(), re.MULTILINE):
        pkgutil.resolve_name(path)


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text().split("\nnav:")[1]
    for page in sorted(DOCS.rglob("*.md")):
        assert page.relative_to(DOCS).as_posix() in navigation, f"add {page.name} to mkdocs.yml"


def test_every_benchmark_page_is_in_its_index():
    index = (DOCS / "benchmarks" / "index.md").read_text()
    for page in sorted((DOCS / "benchmarks").glob("*.md")):
        if page.stem != "index":
            assert f"]({page.name})" in index, f"add {page.name} to docs/benchmarks/index.md"


def test_every_command_has_a_line():
    listed = (DOCS / "commands.md").read_text()
    app = typer.main.get_command(vfsl.cli.app)
    for command in app.list_commands(None):
        assert f"| `vfsl {command}` |" in listed, f"add vfsl {command} to docs/commands.md"


def test_the_glossary_is_in_order():
    lines = (DOCS / "glossary.md").read_text().split("|---|---|\n")[1].splitlines()
    words = [line.split("|")[1].strip().lower() for line in lines]
    assert words == sorted(words)


def test_every_data_set_is_on_its_page():
    text = (DOCS / "datasets.md").read_text()
    for name in vfsl.datasets.cards().index:
        assert f"`{name}`" in text


def test_pictures_are_readable_in_the_dark_and_say_what_they_show():
    pictures = sorted((DOCS / "pictures").glob("*.svg"))
    used = "".join(page.read_text() for page in PAGES)
    assert len(pictures) == 7
    for picture in pictures:
        content = picture.read_text()
        assert "prefers-color-scheme: dark" in content
        assert "<title" in content
        assert "<desc" in content
        assert picture.name in used


@pytest.mark.slow
def test_the_site_builds(tmp_path):
    pytest.importorskip("mkdocs", reason="needs the docs extra")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    api = tmp_path / "site" / "api"
    assert "RISA" in (api / "evidence" / "index.html").read_text()
    assert "Number of trees" in (api / "estimators" / "index.html").read_text()
