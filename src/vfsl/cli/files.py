"""Single steps on CSV and Parquet files: align, pu, complete, train, predict."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from vfsl.cli.options import (
    Ids,
    Labels,
    NoLabels,
    Out,
    Parties,
    Protocol,
    Quiet,
    Scheme,
    Shown,
    files_of,
    id_columns,
    interrupted,
    labels_of,
    pairs,
    progress,
)
from vfsl.cli.progress import Display, Form
from vfsl.cli.screen import out, print_summary
from vfsl.errors import ConfigError, LimitReached


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (align, train, pu, complete, predict):
        app.command()(command)


def align(
    party: Annotated[
        list[str], typer.Option("--party", help="NAME=FILE, once per party; the last one asks.")
    ],
    id: Annotated[
        list[str],
        typer.Option("--id", help="The id column, or NAME=COLUMN; commas join composite ids."),
    ],
    to: Out,
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
        int | None,
        typer.Option(help="Ids that a peer may ask in 30 days; by default 3 × the asked list."),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Private folder to resume from and re-align with; OUT.state by default."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Repeat the row order; by default it is secret.")
    ] = None,
    quiet: Quiet = False,
    shown: Shown = Form.BAR,
) -> None:
    """Find the rows that parties have in common, privately; resumes after an interruption."""
    from vfsl.align import Limits, Normalise
    from vfsl.job import align_files

    files = files_of(party)
    kept = state or to.with_name(f"{to.name}.state")
    fresh = not kept.exists()
    try:
        with progress(quiet, shown) as bar:
            fed = align_files(
                files,
                id_columns(id, list(files)),
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
        interrupted(kept)
    except LimitReached as error:
        if fresh:
            shutil.rmtree(kept, ignore_errors=True)
        raise ConfigError(f"{error} Here that is --cap.") from None
    print_summary(fed, to)
    out.print(f"Kept for the next alignment (private: keys and values): {kept}", markup=False)


def train(
    party: Parties,
    id: Ids,
    label: Annotated[
        list[str],
        typer.Option(help="NAME=COLUMN: what to predict; once more where others have a label."),
    ],
    model: Annotated[str, typer.Option(help="linear, logistic, rf, gbdt, xgb, lgb or risa.")],
    to: Out,
    no_label: NoLabels = None,
    l2: Annotated[float | None, typer.Option(help="Penalty of squared weights.")] = None,
    refine: Annotated[
        int | None, typer.Option(help="logistic: how often the label holder sees total scores.")
    ] = None,
    rare_rows_per_column: Annotated[
        float | None,
        typer.Option(help="linear, logistic: least rows of a rare class for each column."),
    ] = None,
    class_weight: Annotated[str | None, typer.Option(help="logistic: balanced.")] = None,
    max_rounds: Annotated[int | None, typer.Option(help="Most rounds.")] = None,
    solver: Annotated[str | None, typer.Option(help="linear: rounds or one-shot.")] = None,
    task: Annotated[str | None, typer.Option(help="trees: classes or regression.")] = None,
    n_estimators: Annotated[int | None, typer.Option(help="trees: how many.")] = None,
    max_depth: Annotated[int | None, typer.Option(help="trees: how deep.")] = None,
    max_leaves: Annotated[int | None, typer.Option(help="lgb: leaves a tree.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="boosted trees, RISA.")] = None,
    keys: Annotated[
        str | None, typer.Option(help="trees: key-holder, or label-holder for two parties alone.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="risa: how many.")] = None,
    variant: Annotated[str | None, typer.Option(help="risa: plus or paper.")] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(help="risa: label-disclosure; it tells the other parties training labels."),
    ] = None,
    protocol: Protocol = "blind-rsa",
    scheme: Scheme = "auto",
    seed: int = 0,
    quiet: Quiet = False,
    shown: Shown = Form.BAR,
) -> None:
    """Align tables and train a model on the rows in common; RISA on all rows."""
    holder, column = next(iter(pairs("--label", label).items()))
    if model == "risa" and not accept:
        raise ConfigError(
            "RISA's gradients tell the other parties the labels of the rows that they train on; "
            "say --accept label-disclosure if they may know them."
        )
    step = {
        "do": "train",
        "model": model,
        "accept": accept or [],
        "label": [holder, column],
        "l2": l2,
        "refine": refine,
        "rare_rows_per_column": rare_rows_per_column,
        "class_weight": class_weight,
        "max_rounds": max_rounds,
        "solver": solver,
        "task": task,
        "n_estimators": n_estimators,
        "max_depth": max_depth,
        "max_leaves": max_leaves,
        "learning_rate": learning_rate,
        "keys": keys,
        "epochs": epochs,
        "variant": variant,
    }
    shared = {"protocol": protocol, "scheme": scheme, "seed": seed}
    _run(party, id, step, to, (label, no_label), shared, progress(quiet, shown))


def pu(
    party: Parties,
    id: Ids,
    positives: Annotated[str, typer.Option(help="The party whose ids are known positives.")],
    label_holder: Annotated[str, typer.Option(help="The party that receives marks and scores.")],
    to: Out,
    label: Labels = None,
    no_label: NoLabels = None,
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
    protocol: Protocol = "blind-rsa",
    scheme: Scheme = "auto",
    seed: int = 0,
    quiet: Quiet = False,
    shown: Shown = Form.BAR,
) -> None:
    """Find reliable positives where only positives and unlabelled rows are known."""
    step = {
        "do": "pu",
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
    shared = {"protocol": protocol, "scheme": scheme, "seed": seed}
    _run(party, id, step, to, (label, no_label), shared, progress(quiet, shown))


def complete(
    party: Parties,
    id: Ids,
    given: Annotated[str, typer.Option(help="The party whose remaining rows are completed.")],
    missing: Annotated[str, typer.Option(help="The party whose columns they lack.")],
    to: Out,
    label: Labels = None,
    no_label: NoLabels = None,
    advise: Annotated[
        bool, typer.Option("--advise", help="Advice on training the given party's --label.")
    ] = False,
    tau: Annotated[
        str | None, typer.Option(help="Route by association above this, or auto; else by skill.")
    ] = None,
    low: Annotated[str, typer.Option(help="Method of columns that A cannot predict.")] = "auto",
    method: Annotated[
        list[str] | None, typer.Option(help="A local method that --low auto tries as well.")
    ] = None,
    base: Annotated[
        list[str] | None, typer.Option(help="linear, rf, gbdt, xgb or lgb; several: the best.")
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="Least confidence of a pseudo-label.")] = None,
    k: Annotated[float | None, typer.Option(help="Share of the confident taken a round.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Most rounds of self-training.")] = None,
    confidence: Annotated[str | None, typer.Option(help="spread or seed.")] = None,
    context: Annotated[str | None, typer.Option(help="none or preliminary.")] = None,
    remainder: Annotated[str, typer.Option(help="predict, leave, or a local method.")] = "predict",
    aggregate: Annotated[str | None, typer.Option(help="mean, max or top-k.")] = None,
    shrink: Annotated[
        bool | None, typer.Option(help="Draw predictions towards the mean as rows ask for.")
    ] = None,
    folds: Annotated[int | None, typer.Option(help="Parts of the cross-fit.")] = None,
    miss: Annotated[float | None, typer.Option(help="What intervals may leave out.")] = None,
    shift: Annotated[str | None, typer.Option(help="auto or none.")] = None,
    preset: Annotated[str, typer.Option(help="default, or seed: the papers' rules.")] = "default",
    protocol: Protocol = "blind-rsa",
    scheme: Scheme = "auto",
    seed: int = 0,
    quiet: Quiet = False,
    shown: Shown = Form.BAR,
) -> None:
    """Complete one party's columns for rows that only another one has, and judge the result."""
    step = {
        "do": "complete",
        "given": given,
        "missing": missing,
        "label": _advised(label, given) if advise else None,
        "tau": _number_or_text(tau),
        "low": low,
        "methods": method or [],
        "base": (base[0] if len(base) == 1 else base) if base else "linear",
        "alpha": alpha,
        "k": k,
        "rounds": rounds,
        "confidence": confidence,
        "context": context,
        "remainder": remainder,
        "aggregate": aggregate,
        "shrink": shrink,
        "folds": folds,
        "miss": miss,
        "shift": shift,
        "preset": preset,
    }
    shared = {"protocol": protocol, "scheme": scheme, "seed": seed}
    _run(party, id, step, to, (label, no_label), shared, progress(quiet, shown))


def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a run that trained a model.")],
    party: Parties,
    id: Ids,
    to: Out,
    model: Annotated[str | None, typer.Option(help="Which model, if there are several.")] = None,
    protocol: Protocol = "blind-rsa",
    scheme: Scheme = "auto",
    seed: int = 0,
    quiet: Quiet = False,
    shown: Shown = Form.BAR,
) -> None:
    """Score new rows with a trained model; the answer goes to the label holder."""
    from vfsl.job import predict_files

    files = files_of(party)
    with progress(quiet, shown) as bar:
        fed = predict_files(
            run,
            files,
            id_columns(id, list(files)),
            to,
            model=model,
            protocol=protocol,
            scheme=scheme,
            seed=seed,
            on_event=bar.event,
        )
    print_summary(fed, to)


def _run(
    party: list[str],
    id: list[str],
    step: Mapping[str, Any],
    to: Path,
    labels: tuple[list[str] | None, list[str] | None],
    shared: Mapping[str, Any],
    bar: Display,
) -> None:
    """Align and do one step; options that were not given are left to the step."""
    from vfsl.job import step_files, unfinished

    files = files_of(party)
    given = {name: value for name, value in step.items() if value is not None}
    try:
        with bar:
            fed = step_files(
                files,
                id_columns(id, list(files)),
                given,
                to,
                labels=labels_of(*labels, files),
                **shared,
                on_event=bar.event,
            )
    except KeyboardInterrupt:
        interrupted(unfinished(to))
    print_summary(fed, to)


def _advised(label: list[str] | None, given: str) -> str:
    """The label that advice is on."""
    found = pairs("--label", label or []).get(given)
    if found is None:
        raise ConfigError(f"--advise needs the label of the given party: --label {given}=COLUMN.")
    return found


def _number_or_text(value: str | None) -> float | str | None:
    try:
        return None if value is None else float(value)
    except ValueError:
        return value
