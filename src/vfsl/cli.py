"""The command line: the only module that prints."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated, NoReturn

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from vfsl import __version__, store
from vfsl.align import Limits, Normalise
from vfsl.benchmark import EXPERIMENTS, run_experiment
from vfsl.benchmark.table import cell
from vfsl.data import make_parties, write_table
from vfsl.deploy.commands import deploy_app
from vfsl.errors import ConfigError, InputError, VfslError
from vfsl.federation import Event, Federation
from vfsl.job import (
    align_files,
    load_job,
    predict_files,
    pu_files,
    run_job,
    train_files,
    unfinished,
)
from vfsl.record import FILE_NAME, RunRecord
from vfsl.report import readable_bytes, summarise, write_page

app = typer.Typer(
    help="Vertical federated semi-supervised learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


app.add_typer(deploy_app(lambda text: out.print(text, markup=False, soft_wrap=True)), name="deploy")


def _version(asked: bool) -> None:
    if asked:
        out.print(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Vertical federated semi-supervised learning."""


@app.command()
def run(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    to: Annotated[
        Path | None,
        typer.Option("--out", help="A new folder for the results; runs/JOB by default."),
    ] = None,
) -> None:
    """Run a job with every party on this machine."""
    folder = to or _free(Path("runs") / job.stem)
    loaded = load_job(job)
    try:
        with _Bar() as bar:
            fed = run_job(loaded, job.parent, folder, bar.event)
    except KeyboardInterrupt:
        _interrupted(unfinished(folder))
    _print_summary(fed, folder)


@app.command()
def align(
    party: Annotated[
        list[str], typer.Option("--party", help="NAME=FILE, once per party; the last one asks.")
    ],
    id: Annotated[
        list[str],
        typer.Option("--id", help="The id column, or NAME=COLUMN; commas join composite ids."),
    ],
    to: Annotated[Path, typer.Option("--out", help="A new folder for the results.")],
    protocol: Annotated[str, typer.Option(help="blind-rsa or ecdh.")] = "blind-rsa",
    security: Annotated[int, typer.Option(help="128, or 112 for 2048-bit RSA keys.")] = 128,
    hub: Annotated[str | None, typer.Option(help="The party that asks the others.")] = None,
    strip: Annotated[bool, typer.Option(help="Ignore white space around ids.")] = True,
    case: Annotated[str, typer.Option(help="keep, lower or fold.")] = "keep",
    unicode: Annotated[str, typer.Option(help="NFC, NFKC or none.")] = "NFC",
    numbers: Annotated[str, typer.Option(help="text: 007 ≠ 7; integer: 007 = 7.")] = "text",
    duplicates: Annotated[str, typer.Option(help="error, or first: keep the first row.")] = "error",
    empty: Annotated[str, typer.Option(help="error, or drop: leave such rows out.")] = "error",
    minimum: Annotated[int, typer.Option(help="Fewest common rows.")] = 1,
    cap: Annotated[
        int, typer.Option(help="Ids that a peer may ask about in 30 days.")
    ] = 10_000_000,
    state: Annotated[
        Path | None,
        typer.Option(help="Private folder to resume from and re-align with; OUT.state by default."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Repeat the row order; by default it is secret.")
    ] = None,
) -> None:
    """Find the rows that parties have in common, privately; resumes after an interruption."""
    files = {name: Path(path) for name, path in _pairs("--party", party).items()}
    kept = state or to.with_name(f"{to.name}.state")
    try:
        with _Bar() as bar:
            fed = align_files(
                files,
                _id_columns(id, list(files)),
                to,
                protocol=protocol,
                security=security,
                hub=hub,
                normalise=Normalise(strip=strip, case=case, unicode=unicode, numbers=numbers),  # type: ignore[arg-type]
                duplicates=duplicates,
                empty=empty,  # type: ignore[arg-type]
                limits=Limits(asked=cap, minimum=minimum),
                state=kept,
                seed=seed,
                on_event=bar.event,
            )
    except KeyboardInterrupt:
        _interrupted(kept)
    _print_summary(fed, to)
    out.print(f"Kept for the next alignment (private: keys and values): {kept}", markup=False)


_PARTY = Annotated[list[str], typer.Option("--party", help="NAME=FILE, once per party.")]
_ID = Annotated[
    list[str], typer.Option("--id", help="The id column, or NAME=COLUMN; commas join composites.")
]
_OUT = Annotated[Path, typer.Option("--out", help="A new folder for the results.")]
_PROTOCOL = Annotated[str, typer.Option(help="Alignment by blind-rsa or ecdh.")]
_SCHEME = Annotated[str, typer.Option(help="auto, bfv, paillier or plain.")]


@app.command()
def train(
    party: _PARTY,
    id: _ID,
    label: Annotated[str, typer.Option(help="NAME=COLUMN: who holds the label.")],
    model: Annotated[str, typer.Option(help="linear, logistic, rf, gbdt, xgb or lgb.")],
    to: _OUT,
    l2: Annotated[float | None, typer.Option(help="Penalty of squared weights.")] = None,
    refine: Annotated[
        int | None, typer.Option(help="logistic: how often the label holder sees total scores.")
    ] = None,
    class_weight: Annotated[str | None, typer.Option(help="logistic: balanced.")] = None,
    max_rounds: Annotated[int | None, typer.Option(help="Most rounds.")] = None,
    solver: Annotated[str | None, typer.Option(help="linear: rounds or one-shot.")] = None,
    task: Annotated[str | None, typer.Option(help="trees: classes or regression.")] = None,
    n_estimators: Annotated[int | None, typer.Option(help="trees: how many.")] = None,
    max_depth: Annotated[int | None, typer.Option(help="trees: how deep.")] = None,
    max_leaves: Annotated[int | None, typer.Option(help="lgb: leaves a tree.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="boosted trees.")] = None,
    keys: Annotated[
        str | None, typer.Option(help="trees: key-holder, or label-holder for two parties alone.")
    ] = None,
    protocol: _PROTOCOL = "blind-rsa",
    scheme: _SCHEME = "auto",
    seed: int = 0,
) -> None:
    """Align tables and train a model on the rows in common."""
    files = {name: Path(path) for name, path in _pairs("--party", party).items()}
    ((holder, column),) = _pairs("--label", [label]).items()
    given = {
        "l2": l2,
        "refine": refine,
        "class_weight": class_weight,
        "max_rounds": max_rounds,
        "solver": solver,
        "task": task,
        "n_estimators": n_estimators,
        "max_depth": max_depth,
        "max_leaves": max_leaves,
        "learning_rate": learning_rate,
        "keys": keys,
    }
    step = {name: value for name, value in given.items() if value is not None}
    with _Bar() as bar:
        fed = train_files(
            files,
            _id_columns(id, list(files)),
            {"model": model, "label": [holder, column], **step},
            to,
            protocol=protocol,
            scheme=scheme,
            seed=seed,
            on_event=bar.event,
        )
    _print_summary(fed, to)


@app.command()
def pu(
    party: _PARTY,
    id: _ID,
    positives: Annotated[str, typer.Option(help="The party whose ids are known positives.")],
    label_holder: Annotated[str, typer.Option(help="The party that receives marks and scores.")],
    to: _OUT,
    base: Annotated[str, typer.Option(help="lr, rf, gbdt, xgb or lgb.")] = "lr",
    rounds: Annotated[int | None, typer.Option(help="Bags an iteration.")] = None,
    outer: Annotated[int | None, typer.Option(help="Iterations.")] = None,
    promote: Annotated[
        float | None, typer.Option(help="Share of unlabelled rows promoted an iteration.")
    ] = None,
    preset: Annotated[str, typer.Option(help="default, or seed: the paper's loop.")] = "default",
    row_lists: Annotated[
        str | None, typer.Option(help="hidden, or seed: feature holders learn who is positive.")
    ] = None,
    consent: Annotated[
        list[str] | None,
        typer.Option(help="A party that agrees to deliver the result to the positive holder."),
    ] = None,
    protocol: _PROTOCOL = "blind-rsa",
    scheme: _SCHEME = "auto",
    seed: int = 0,
) -> None:
    """Find reliable positives where only positives and unlabelled rows are known."""
    files = {name: Path(path) for name, path in _pairs("--party", party).items()}
    given = {
        "positives": positives,
        "label_holder": label_holder,
        "base": base,
        "rounds": rounds,
        "outer": outer,
        "promote": promote,
        "preset": preset,
        "row_lists": row_lists,
        "consent": consent or [],
        "protocol": protocol,
    }
    step = {name: value for name, value in given.items() if value is not None}
    try:
        with _Bar() as bar:
            fed = pu_files(
                files,
                _id_columns(id, list(files)),
                step,
                to,
                scheme=scheme,
                seed=seed,
                on_event=bar.event,
            )
    except KeyboardInterrupt:
        _interrupted(unfinished(to))
    _print_summary(fed, to)


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a run that trained a model.")],
    party: _PARTY,
    id: _ID,
    to: _OUT,
    model: Annotated[str | None, typer.Option(help="Which model, if there are several.")] = None,
    protocol: _PROTOCOL = "blind-rsa",
    scheme: _SCHEME = "auto",
    seed: int = 0,
) -> None:
    """Score new rows with a trained model; the answer goes to the label holder."""
    files = {name: Path(path) for name, path in _pairs("--party", party).items()}
    with _Bar() as bar:
        fed = predict_files(
            run,
            files,
            _id_columns(id, list(files)),
            to,
            model=model,
            protocol=protocol,
            scheme=scheme,
            seed=seed,
            on_event=bar.event,
        )
    _print_summary(fed, to)


@app.command()
def demo(
    to: Annotated[
        Path | None, typer.Option("--out", help="A new folder; demo-run by default.")
    ] = None,
) -> None:
    """Run the story on made-up tables, encrypted, and write a report to open."""
    folder = to or _free(Path("demo-run"))
    made = make_parties(rows=600, rng=np.random.default_rng(7), overlap=0.5)
    with tempfile.TemporaryDirectory() as name:
        for party, table in made.tables.items():
            write_table(table, Path(name) / f"{party}.csv")
        store.write_text(Path(name) / "job.toml", _demo_job())
        loaded = load_job(Path(name) / "job.toml")
        with _Bar() as bar:
            fed = run_job(loaded, Path(name), folder, bar.event)
        inputs = folder / "inputs"
        inputs.mkdir()
        for path in Path(name).iterdir():
            store.write_bytes(inputs / path.name, path.read_bytes())
    _print_summary(fed, folder)
    out.print(f"Run it again with:  vfsl run {inputs / 'job.toml'}")


@app.command()
def ledger(folder: Annotated[Path, typer.Argument(help="A folder with a run record.")]) -> None:
    """Print who sent what to whom, how protected, how many bytes, and what it reveals."""
    summary = summarise([_record(folder)])["runs"][0]
    out.print(f"Ledger of run {summary['run']}: what left each party, and what it reveals")
    table = Table(box=None, pad_edge=False, show_header=False)
    for style in ("left", "left", "right", "left", "left"):
        table.add_column(justify=style)
    step = None
    for line in summary["ledger"]:
        if line["step"] != step:
            step = line["step"]
            table.add_row(end_section=True)
            table.add_row(f"[bold]{escape(step)}[/bold]")
        table.add_row(
            escape(f"{line['sender']} → {line['receiver']}"),
            escape(f"{line['message']} ×{line['messages']}"),
            line["size"],
            line["protection"],
            escape(line["fact"]),
        )
    out.print(table)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A folder with a run record.")],
    to: Annotated[
        Path | None, typer.Option("--out", help="The page; report.html in the folder by default.")
    ] = None,
) -> None:
    """Write the report page of a run."""
    path = to or folder / "report.html"
    write_page(_record(folder), path)
    out.print(f"Report: {path}")


bench = typer.Typer(help="Experiments and timings.", no_args_is_help=True)
app.add_typer(bench, name="bench")


@bench.command("list")
def bench_list() -> None:
    """Name the experiments."""
    for name, (_, text) in EXPERIMENTS.items():
        out.print(f"{name:12} {text}", markup=False)


@bench.command("run")
def bench_run(
    name: Annotated[str, typer.Argument(help="An experiment, or all.")],
    quick: Annotated[bool, typer.Option("--quick", help="A small form: two minutes.")] = False,
    to: Annotated[Path, typer.Option("--out", help="Folder for the tables.")] = Path("runs")
    / "bench",
) -> None:
    """Run an experiment and write its table as JSON, CSV and Markdown."""
    for chosen in EXPERIMENTS if name == "all" else [name]:
        outcome = run_experiment(
            chosen, quick=quick, say=lambda text: err.print(text, markup=False)
        )
        outcome.save(to)
        table = Table(title=outcome.title, title_justify="left")
        for column in outcome.columns():
            table.add_column(escape(column), overflow="fold")
        for row in outcome.rows:
            table.add_row(*(escape(cell(row.get(column))) for column in outcome.columns()))
        out.print(table)
        for note in outcome.notes:
            out.print(f"- {note}", markup=False, soft_wrap=True)
        out.print(f"Tables: {to / chosen}.md, .csv, .json", markup=False)


def main() -> None:
    """Entry point: one sentence and a non-zero exit code for whatever went wrong."""
    try:
        app()
    except InputError as error:
        err.print(f"vfsl: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(2)
    except VfslError as error:
        err.print(f"vfsl: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        err.print("vfsl: interrupted; nothing was written.", style="red")
        sys.exit(130)


def _interrupted(kept: Path) -> NoReturn:
    text = f"vfsl: interrupted; finished work is in {kept}, the same command goes on from there."
    err.print(text, style="red", markup=False, soft_wrap=True)
    sys.exit(130)


class _Bar:
    """Progress of the steps on standard error, if a person is watching."""

    def __init__(self) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=err,
            transient=True,
            disable=not err.is_terminal,
        )
        self._task = self._progress.add_task("reading", total=None)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def event(self, event: Event) -> None:
        self._progress.update(
            self._task,
            description=f"{event.step}: {event.stage}",
            completed=event.done,
            total=event.total,
        )


def _print_summary(fed: Federation, folder: Path) -> None:
    for step in summarise([fed.record])["runs"][0]["steps"]:
        facts = [f"{name} {cell(value)}" for name, value in step["metrics"].items()]
        facts += [f"{len(step['rounds'])} rounds"] if step["rounds"] else []
        facts += [f"stopped: {step['stop_reason']}"] if step["stop_reason"] else []
        facts += [f"{step['messages']} messages", readable_bytes(step["bytes"])]
        line = f"{step['name']}: {', '.join(facts)} in {step['seconds']:.1f} s"
        out.print(line, markup=False, soft_wrap=True)
        for note in step["notes"]:
            out.print(f"  note: {note}", markup=False)
    out.print(f"Results: {folder}", markup=False)
    out.print(f"Report:  {folder / 'report.html'}", markup=False)


def _pairs(option: str, values: list[str]) -> dict[str, str]:
    """NAME=VALUE options as a dict."""
    pairs: dict[str, str] = {}
    for value in values:
        name, equals, rest = value.partition("=")
        if not (name and equals and rest):
            raise ConfigError(f"{option} must be NAME=VALUE. Got {value!r} instead.")
        if name in pairs:
            raise ConfigError(f"{option} names {name!r} twice.")
        pairs[name] = rest
    return pairs


def _id_columns(values: list[str], parties: list[str]) -> dict[str, str | list[str]]:
    """The id columns of each party: one --id for all, or NAME=COLUMN for each."""
    if len(values) == 1 and "=" not in values[0]:
        columns = dict.fromkeys(parties, values[0])
    else:
        columns = _pairs("--id", values)
    for party in parties:
        if party not in columns:
            raise ConfigError(f"--id says nothing about party {party!r}; add --id {party}=COLUMN.")
    unknown = [name for name in columns if name not in parties]
    if unknown:
        raise ConfigError(f"--id names party {unknown[0]!r}, which has no --party.")
    return {
        party: column.split(",") if "," in column else column for party, column in columns.items()
    }


def _record(folder: Path) -> RunRecord:
    if not (folder / FILE_NAME).exists():
        raise ConfigError(
            f"There is no run record in {folder}; expected the --out folder of a run."
        )
    return RunRecord.load(folder)


def _free(folder: Path) -> Path:
    """The folder, or the first of folder-2, folder-3 … that does not exist yet."""
    number, candidate = 1, folder
    while candidate.exists():
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate


def _demo_job() -> str:
    return """\
# The thinnest whole story: two tables, aligned, one federated model, a record and a report.
[run]
seed = 7
scheme = "auto"

[parties.A]
table = "A.csv"
id = "id"
label = "defaulted"

[parties.B]
table = "B.csv"
id = "id"

[[steps]]
do = "align"
protocol = "blind-rsa"

[[steps]]
do = "train"
model = "logistic"
label = ["A", "defaulted"]
"""


if __name__ == "__main__":
    main()
