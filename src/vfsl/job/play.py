"""The steps of a job as one party plays them: the same code on one machine and between companies.

``play(step, site, channel)`` reads nothing but the party's own site and what the channel brings. It
leaves what the party may have in ``site.results`` and adds to the party's record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vfsl import rows, store
from vfsl.channel import Channel
from vfsl.completion.completed import Completion
from vfsl.completion.downstream import completed_site, load_completed_rows, save_completed_rows
from vfsl.completion.recommend import Advice, advise
from vfsl.data import FILE_ROW, write_table
from vfsl.errors import ConfigError
from vfsl.estimators import XGB, Answer, Estimator, load_share, save_page, save_share
from vfsl.estimators.alone import JOINT, OWN_COLUMNS
from vfsl.estimators.trees import TreeModel
from vfsl.job.completion_files import write_advice, write_completion
from vfsl.job.evaluate import Cut, judge, judge_ranking, write_figures
from vfsl.job.judging import measure_answer, measures_for
from vfsl.job.steps import (
    AlignStep,
    CompleteTerms,
    CountStep,
    EvaluateStep,
    PuTerms,
    Step,
    TrainStep,
)
from vfsl.job.verdict import Question, Way
from vfsl.model_selection.figures import is_positive
from vfsl.model_selection.thresholds import (
    Rule,
    check_two_classes,
    fit_threshold,
    tell_threshold,
)
from vfsl.parts import ModelShare, Part, labels_of
from vfsl.pu import deliver_side, raw_scores_of, reliable_of, scores_alone, scores_of
from vfsl.site import Site
from vfsl.values import Array


def play(step: Step, site: Site, channel: Channel) -> Any:
    """Play this party's side of a step of a job."""
    return PLAYS[step.do](step, site, channel)


# ---- align --------------------------------------------------------------------------------------


def play_align(step: AlignStep, site: Site, channel: Channel) -> None:
    """Find the common rows, keep them, and hold rows out for testing."""
    parties = step.parties or step.place.parties
    share = rows.align(
        site, channel.within("align"), parties, step.protocol, hide_sizes=step.hide_sizes
    )
    if share is not None:
        if site.alignment.lasting:  # between organisations a party keeps its own part of the plan
            share.save(_results(site) / "plan", site.ids())
        write_aligned(site, _results(site))
    if site.test is not None:
        rows.hold_out(site, channel.within("hold out"), site.test)


def play_count(step: CountStep, site: Site, channel: Channel) -> None:
    """Count the common ids; the party's record has the number."""
    parties = step.parties or step.place.parties
    rows.count_common(site, channel.within("count"), parties, hide_sizes=step.hide_sizes)


def write_aligned(site: Site, folder: Path) -> None:
    """The party's own ids of the common rows, in the common order."""
    table = site.own_table().take(site.rows().overlap)
    frame = table.to_frame()
    kept = [*table.id_columns, *([FILE_ROW] if FILE_ROW in frame else [])]
    write_table(frame[kept], folder / f"aligned{site.form}")


# ---- find reliable positives --------------------------------------------------------------------


def play_pu(step: PuTerms, site: Site, channel: Channel) -> None:
    """Mark, learn, write scores at the label holder and, with consent, at the positive holder."""
    method, holder = step.method(), step.label_holder
    rows.mark(site, channel.within("mark"), step.positives, holder, step.protocol)
    share = method.learn(site, channel.within("train"), step.positives, holder)
    reliable = None
    if share is not None:
        save_share(share, _pages(site), f"vfpu-{site.number}")
        if site.me == holder:
            reliable = reliable_of(share, site)
            scores = scores_of(share, site)
            more: dict[str, pd.Series[Any]] = {"oob_mean": raw_scores_of(share, site)}
            if step.all_rows:
                alone = scores_alone(share, site)
                more["scored_by"] = pd.Series([JOINT] * len(scores) + [OWN_COLUMNS] * len(alone))
                more["oob_mean"] = more["oob_mean"].reindex([*scores.index, *alone.index])
                scores = pd.concat([scores, alone])
            _write_scores(site, "pu-scores", scores, more)
            _write_scores(site, "reliable-positives", reliable)
    if step.consent:
        received = deliver_side(
            site, channel.within("deliver"), step.positives, holder, step.consent, reliable
        )
        if received is not None:
            _write_scores(site, "reliable-positives", received, foreign=["id"])


def _write_scores(
    site: Site,
    name: str,
    scores: pd.Series[Any],
    more: Mapping[str, pd.Series[Any]] | None = None,
    foreign: Sequence[str] = (),
) -> None:
    columns = {"score": scores, **(more or {})}
    frame = pd.DataFrame({name: column.to_numpy() for name, column in columns.items()})
    frame.insert(0, "id", scores.index.to_numpy())
    write_table(frame, _results(site) / f"{name}-{site.number}{site.form}", foreign=foreign)


# ---- complete -----------------------------------------------------------------------------------


def play_complete(step: CompleteTerms, site: Site, channel: Channel) -> Completion | None:
    """Complete columns, write them at the missing party, and advice at the given one."""
    if site.me not in (step.given, step.missing) and not site.holds_keys:
        return None
    training = rows.for_training(site)
    done: Completion | None = step.method().play(
        training, channel.within("complete"), step.given, step.missing
    )
    if done is not None:
        write_completion(done, _results(site), site.number, site.suffix)
        save_completed_rows(done, _completed(site, site.number))
    if site.me == step.given and site.alignment.lasting:
        _write_remaining(training)  # on one machine completed rows have their ids
    if step.label is not None:
        base = None
        if step.advice_trees is not None:
            base = XGB(n_estimators=step.advice_trees, max_depth=4, learning_rate=0.08)
        advice = advise(
            training,
            channel.within("advice"),
            step.given,
            step.missing,
            done,
            label=step.label,
            base=base,
        )
        if isinstance(advice, Advice):
            write_advice(advice, _results(site), site.number)
    return done


def _write_remaining(site: Site) -> None:
    """Whose rows the numbers stand for: known at the given party only."""
    table = site.own_table().take(site.rows().rest)
    frame = table.to_frame()[list(table.id_columns)]
    frame.insert(0, "row", np.arange(len(frame)))
    write_table(frame, _results(site) / f"remaining-{site.number}{site.form}")


# ---- train --------------------------------------------------------------------------------------


def play_train(step: TrainStep, site: Site, channel: Channel) -> None:
    """Train, keep this party's share, and predict the aligned rows at the label holder."""
    model, label, name = step.estimator(), step.label, f"model-{site.number}"
    training, weights = rows.for_training(site), None
    if step.rows == "completed" and step.place.completed is not None:
        number, given, missing = step.place.completed
        kept = None
        if site.me == missing:
            kept = load_completed_rows(_completed(site, number), missing)
        training, weights = completed_site(
            training, channel.within("completed rows"), given, missing, kept
        )
    share, before = None, len(site.outcomes)
    if _takes_part(site, model.needs_key_holder):
        share = model.learn(
            training,
            channel.within("train"),
            label,
            weights=weights,
            weighted=step.rows == "completed",
        )
    if share is not None:
        save_share(share, _pages(site), name)
        save_page(model, label, site.roles(label[0]).data_holders, _pages(site), name)
        tables = model.list_tables(share)
        if site.standing.held_out is not None:
            tables |= model.compare_rows(share, _own_part(rows.for_testing(site), label))
        for kind, frame in tables.items():
            write_table(frame, _results(site) / f"{kind}-{site.number}{site.form}")
        if tables:
            site.outcomes[-1].details = {f"tables of {site.me}": _to_plain(tables)}
        _tell_columns(site, model, share)
    places = None
    if model.knows_training_scores and site.standing.rows is not None:
        # Nobody is asked for rows whose scores the training has shown.
        places = np.full(len(site.rows().overlap), -1)
        learned = rows.training_places(site)
        places[learned] = np.arange(len(learned))
    elif model.knows_training_scores and site.test is None:
        places = np.zeros(0, dtype=np.int64)  # the key holder, too, knows that no row is new
    path = _results(site) / f"predictions-{site.number}{site.form}"
    predict_to_file(
        site,
        channel.within("predict"),
        model,
        label,
        path,
        share,
        places,
        True,
        "all" if step.all_rows else "overlap",
        rule=step.rule,
    )
    for outcome in site.outcomes[before:]:
        outcome.settings = {**outcome.settings, "name": step.place.name, "rows": step.way.rows}


def _tell_columns(site: Site, model: Estimator, share: ModelShare) -> None:
    """What a party learned of its own columns goes to its file; the record says that it is there.

    Names of categories may tell of single rows, so the record has none.
    """
    told, table = model.tell_columns(share)
    details: dict[str, Any] = {}
    if table is not None:
        name = f"{told}-{site.number}{site.form}"
        write_table(table.reset_index(), _results(site) / name)
        details[f"file of {site.me}"] = name
    elif told:
        details["no columns"] = told
    if rated := model.rate_parties(share):
        frame = pd.DataFrame({"party": list(rated), "importance": list(rated.values())})
        write_table(frame, _results(site) / f"parties-{site.number}{site.form}")
        details["importance of parties"] = rated
    site.outcomes[-1].details = {**site.outcomes[-1].details, **details}


def _to_plain(tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """Tables as JSON values, for the page."""
    return {
        name: {"head": list(frame), "rows": cells.where(frame.notna(), None).to_numpy().tolist()}
        for name, frame in tables.items()
        for cells in [frame.astype(object)]
    }


def predict_to_file(
    site: Site,
    channel: Channel,
    model: Estimator,
    label: tuple[str, str],
    path: Path,
    share: ModelShare | None = None,
    places: Array | None = None,
    fresh: bool = False,
    rows: str = "overlap",
    offline: Sequence[str] = (),
    rule: Rule | None = None,
) -> None:
    """Predict the aligned rows, and write them with their ids at the label holder.

    ``fresh`` says that the model was trained in this run, on the rows that are not held out;
    ``rows`` and ``offline`` are those of `Estimator.decision_function`. A ``rule`` chooses the
    model's threshold first, on held-out rows if there are any.
    """
    if not _takes_part(site, model.scores_need_key_holder):
        return
    answer = model.answer_all(
        site, channel, label, share=share, places=places, rows=rows, offline=offline
    )
    if answer is None or share is None:
        return
    trained = model.learned_from_rest(share) if fresh else None
    kinds = name_rows(site, answer, label, trained=trained)
    target = labels_of(site.own_table(), label[1], answer.rows) if fresh else None
    if "scored_by" in answer.more and not model.uses_all_rows:  # figures are of the joint model
        judged = np.where(answer.more["scored_by"] == OWN_COLUMNS, NEW, kinds)
    else:
        judged = kinds
    if rule is not None and target is not None:
        share = _fit_threshold(share, rule, answer, target, judged)
        save_share(share, _pages(site), f"model-{site.number}")
    frame = answer.to_frame(site.own_table(), label[1])
    if answer.classes is not None:
        frame["predicted"] = model.pick_classes(share, answer.values)
    frame.insert(list(frame.columns).index("predicted") + 1, "rows", kinds)
    write_table(frame, path)
    if target is not None:
        site.outcomes[-1].metrics = measure_rows(answer, target, judged)
    told = tell_threshold(share, label[1])
    site.outcomes[-1].notes = (*site.outcomes[-1].notes, *([told] if told else []))


def _fit_threshold(
    share: ModelShare, rule: Rule, answer: Answer, target: Array, kinds: Array
) -> ModelShare:
    """The share with a threshold that held-out rows choose; training rows where none are."""
    classes = answer.classes
    check_two_classes(classes)
    known = ~pd.isna(target)
    which = HELD_OUT if (known & (kinds == HELD_OUT)).any() else TRAINING
    chosen = known & (kinds == which)
    positive = is_positive(target[chosen], np.asarray(classes))
    scores = answer.values[chosen, 1]
    return fit_threshold(share, rule, positive, scores, len(answer.rows), f"{which} rows")


def explain_to_file(
    site: Site,
    channel: Channel,
    model: TreeModel,
    label: tuple[str, str],
    folder: Path,
    share: ModelShare | None = None,
    party: str | None = None,
) -> None:
    """Write what moves scores, with ids, at the party that it is for: see `TreeModel.explain`."""
    frame = model.explain_rows(site, channel, label, share=share, party=party)
    if frame is None:
        return
    frame.columns = [
        ": ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in frame
    ]
    table = site.own_table().take(site.rows().overlap)
    ids = table.to_frame()[list(table.id_columns)].reset_index(drop=True)
    name = f"{'contributions' if party is None else 'column-contributions'}{site.form}"
    write_table(pd.concat([ids, frame.add_prefix("adds ")], axis=1), folder / site.me / name)


TRAINING, HELD_OUT, NEW = "training", "held-out", "new"


def name_rows(site: Site, answer: Answer, label: tuple[str, str], trained: bool | None) -> Array:
    """For each answered row: did the model learn from it, was it held out, or is it new?

    Parameters
    ----------
    trained : bool or None
        Whether rows that only the label holder has were learned from too; None: the model comes
        from another run.
    """
    found = np.full(len(answer.rows), NEW, dtype=object)
    if trained is None:
        return found
    share, table = site.rows(), site.own_table()
    known = table.column(label[1]).notna().to_numpy()
    kinds = np.full(len(table), NEW, dtype=object)
    kinds[share.overlap] = np.where(known[share.overlap], TRAINING, NEW)
    if trained:
        kinds[share.rest] = np.where(known[share.rest], TRAINING, NEW)
    if site.standing.held_out is not None:
        kinds[share.overlap[site.standing.held_out]] = HELD_OUT
    return np.asarray(kinds[answer.rows])


def measure_rows(answer: Answer, target: Array, kinds: Array) -> dict[str, float]:
    """The first measure of each kind of rows: "training AUC", "held-out AUC"."""
    found = {}
    classes = None if answer.classes is None else list(answer.classes)
    (measure, *_) = measures_for(None if classes is None else len(classes))
    for kind in (HELD_OUT, TRAINING):
        chosen = (kinds == kind) & ~pd.isna(target)
        if classes is not None:
            chosen &= np.isin(target.astype(str), [str(name) for name in classes])
        if chosen.sum() < 2:
            continue
        truth = target[chosen]
        codes = (
            truth.astype(np.float64)
            if classes is None
            else np.array([classes.index(one) for one in truth.tolist()])
        )
        value = measure_answer(measure, codes, answer.values[chosen])
        if np.isfinite(value):
            found[f"{kind} {measure}"] = value
    return found


def _takes_part(site: Site, with_key_holder: bool) -> bool:
    return site.me in site.standing.aligned or (site.holds_keys and with_key_holder)


# ---- evaluate -----------------------------------------------------------------------------------


def play_evaluate(step: EvaluateStep, site: Site, channel: Channel) -> None:
    """Score held-out rows by each model; the label holder judges each label's models together."""
    testing = rows.for_testing(site)
    by_label: dict[tuple[str, str], dict[str, Answer]] = {}
    ways: dict[str, Way] = {}
    cuts: dict[str, Cut] = {}
    for number, trained in step.place.trained.items():
        if step.models is not None and number not in step.models:
            continue
        model, label, share = trained.estimator(), trained.label, None
        if not _takes_part(site, model.scores_need_key_holder):
            continue
        if site.table is not None:
            share = load_share(_pages(site), site.me, f"model-{number}")
        before = len(site.outcomes)
        absences: list[tuple[str, ...]] = [()]
        if step.subsets and model.predicts_without:
            absences = site.roles(label[0]).list_absences()
        for at, offline in enumerate(absences):
            here = channel.within(f"model {number}" if not at else f"model {number} subset {at}")
            scores = model.answer(testing, here, label, share=share, offline=offline)
            if scores is not None and share is not None:
                name = trained.place.name
                name += f" without {' and '.join(offline)}" if offline else ""
                by_label.setdefault(label, {})[name] = model.interpret(testing, share, scores)
                cuts[name] = Cut.of(share)
                if not offline:
                    ways[name] = trained.way
        for outcome in site.outcomes[before:]:
            outcome.settings = {
                **outcome.settings,
                "name": trained.place.name,
                "for": "evaluate",
            }
            outcome.metrics = {}  # the evaluation has them, with bounds
    for place, (label, answers) in enumerate(by_label.items()):
        here = channel.within(f"label {place + 1}")
        page = _judge(step, site, here, label, answers, ways, cuts)
        suffix = f"{site.number}" if not place else f"{site.number}-{place + 1}"
        write_figures(page["figures"], _results(site), f"{suffix}{site.form}")
        store.write_json(_results(site) / f"metrics-{suffix}.json", page)


def _judge(
    step: EvaluateStep,
    site: Site,
    channel: Channel,
    label: tuple[str, str],
    answers: Mapping[str, Answer],
    ways: Mapping[str, Way],
    cuts: Mapping[str, Cut],
) -> dict[str, Any]:
    """The label holder's own work: metrics of all models of one label, and a verdict."""
    settings = {"label": list(label), "bootstrap": step.bootstrap, "level": step.level}
    rng = site.private_rng(f"evaluate {site.number}")

    def tell(stage: str, done: int, total: int) -> None:
        site.tell("evaluate", stage, done, total)

    with site.records("evaluate", channel, settings) as outcome:
        page = judge(
            label,
            _own_part(rows.for_testing(site), label),
            _own_part(rows.for_training(site), label),
            {name: (one.values, one.classes) for name, one in answers.items()},
            step.bootstrap,
            step.level,
            rng,
            {name: ways[name] for name in answers if name in ways},
            tell,
            cuts,
            step.bands,
        )
        found = _judge_ranking(step, site, label, rng)
        if found is not None:
            page["questions"].append(found.to_plain())
        outcome.metrics = {
            f"held-out {line['measure']} of {line['model']}": line["value"]
            for line in page["metrics"]
        }
        outcome.notes = (page["verdict"],)
        names = ("metrics", "gains", "questions", "verdict", "tone", "test rows", "classes")
        outcome.details = {name: page[name] for name in names}
        outcome.details["figures"] = {  # a line of thresholds may stand for a single row
            name: {key: value for key, value in one.items() if key != "thresholds"}
            for name, one in page["figures"].items()
        }
    return page


def _judge_ranking(
    step: EvaluateStep, site: Site, label: tuple[str, str], rng: np.random.Generator
) -> Question | None:
    """What VFPU's ranking is worth, if it was this party that got it."""
    if step.place.marked is None or step.place.marked[1] != site.me:
        return None
    share = load_share(_pages(site), site.me, f"vfpu-{step.place.marked[0]}")
    marks = site.rows().marks
    if marks is None:
        return None
    places = np.asarray(share.state["unlabelled rows"], dtype=np.int64)
    ranking = np.asarray(share.state["probabilities"], dtype=np.float64)
    part = _own_part(site, label)
    return judge_ranking(part, places, ranking, marks == 1, step.bootstrap, step.level, rng)


def _own_part(site: Site, label: tuple[str, str]) -> Part:
    part = site.part(label)
    if part is None:
        raise ConfigError(f"Party {site.me!r} was not aligned, but the step needs its rows.")
    return part


# ---- folders ------------------------------------------------------------------------------------


def _results(site: Site) -> Path:
    if site.results is None:
        raise ConfigError(f"Party {site.me!r} has no folder for its results.")
    return site.results


def _pages(site: Site) -> Path:
    if site.pages is None:
        raise ConfigError(f"Party {site.me!r} has no folder for pages on models.")
    return site.pages


def _completed(site: Site, number: int) -> Path:
    """Where a party keeps the rows that step ``number`` completed, for later steps."""
    if site.folder is None:
        raise ConfigError(f"Party {site.me!r} has no folder for unfinished work.")
    return site.folder.parent / f"completed-{number}"


PLAYS: dict[str, Callable[[Any, Site, Channel], Any]] = {
    "count": play_count,
    "align": play_align,
    "pu": play_pu,
    "complete": play_complete,
    "train": play_train,
    "evaluate": play_evaluate,
}
