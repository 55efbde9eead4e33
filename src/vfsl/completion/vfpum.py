"""VFPU-M: predict the other party's columns from one's own, and learn from confident predictions.

Holds   the missing party: its columns for common rows; the given party: its columns for common and
        remaining rows; the key holder: the secret key, no data.
Learns  the missing party: in each round predictions of its own columns for the given party's
        remaining rows, one per column (per class but one of a category). Of a linear base they are
        linear combinations of the given party's columns: as many of them as the given party has
        columns show its table up to a linear map. The given party: nothing beyond what the base
        shows it. See tasks.py.

On shares (shared_rounds.py) rounds are hidden: the missing party sees the predictions of the last
model, once. Each round then looks at a random fraction k of the remaining rows, drawn by the given
party, no row twice, and all confident ones among them get a pseudo-label, where the papers take the
most confident fraction k of all. A pseudo-label is no result: all cells are the last model's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from vfsl.channel import Channel, expect_integer
from vfsl.completion.bases import (
    Components,
    Pair,
    as_chances,
    make_context,
    make_pair,
    prepare_given,
)
from vfsl.completion.calibration import ClassScale
from vfsl.completion.columns import Fold, Target
from vfsl.completion.pseudo_labels import (
    ALL_MOVED,
    NO_BETTER,
    NOBODY,
    STOPPED,
    ColumnModels,
    Found,
    spread_confidence,
    value_confidence,
)
from vfsl.completion.shared_judging import Fraction, Judgement, Question
from vfsl.completion.shared_roles import (
    SharedLead,
    cut_classes,
    find_predictions,
    follow_predictions,
    make_shared_targets,
    on_shares,
    score_on_shares,
)
from vfsl.completion.shared_rounds import Choice
from vfsl.completion.tasks import (
    ALL,
    CLASSES,
    COMMON,
    DISCLOSURES,
    NUMBERS,
    REST,
    Fitting,
    follow,
)
from vfsl.data import PartyTable
from vfsl.errors import ConfigError, DataError, ProtocolError
from vfsl.lead import Follower, Leader
from vfsl.params import check_params, documented, param
from vfsl.parts import ModelShare, Part, Roles
from vfsl.store import Checkpoints
from vfsl.values import Array, Floats

# Hears which columns come next, how many are done, and of how many.
TellColumns = Callable[[str, int, int], None]
# True ends the loop of a column: its rounds so far, the last one last.
Stop = Callable[[Sequence[Mapping[str, Any]]], bool]

_MOST = 1 << 40
# By at least so many parts of the rows it is judged whether rounds pay.
_FOLDS = 5


@documented
@dataclass
class VFPUM:
    """Self-training across parties for columns that one of them lacks."""

    name: ClassVar[str] = "vfpu-m"

    base: str | Pair = param(
        "linear",
        "The federated estimator: linear, rf, gbdt, xgb, lgb or a Pair. A linear base trains all "
        "columns in the same rounds.",
    )
    alpha: float = param(0.8, "Least confidence of a pseudo-label (α).", ge=0, le=1)
    k: float = param(
        0.1, "The fraction of the confident rows that a round takes, rounded up.", gt=0, le=1
    )
    rounds: int = param(
        1,
        "Maximum number of rounds (T); 1 is a direct model of the common rows. Every further round "
        "shows the missing party one more prediction per remaining row and column.",
        ge=1,
    )
    confidence: Literal["paper", "spread"] = param(
        "paper",
        "For numbers: 1 − |ŷ − μ|/σ as in the papers ('paper'), which favours predictions near the "
        "mean, or how small an error is to be expected of the prediction ('spread'). Categories "
        "use their largest probability.",
        formerly={"seed": "paper"},
    )
    miss: float = param(
        0.1,
        "On shares: the fraction of truth that intervals and class sets may leave out.",
        gt=0,
        lt=1,
    )
    context: Literal["none", "preliminary"] = param(
        "none",
        "Whether the missing party's other columns take part, on remaining rows by a first fill.",
    )
    stop: Stop | None = param(
        None,
        "A further rule: gets a column's rounds so far and says whether to end.",
        option=False,
    )

    def train(
        self,
        channel: Channel,
        part: Part | None,
        *,
        roles: Roles,
        rng: np.random.Generator,
        columns: Sequence[str] = (),
        context: PartyTable | None = None,
        folds: Mapping[str, Fold] | None = None,
        kept: Checkpoints | None = None,
        tell: TellColumns | None = None,
        fraction: Fraction | None = None,
    ) -> ColumnModels:
        """One party's side.

        Parameters
        ----------
        part : Part or None
            The party's table and rows; None at the key holder.
        columns : sequence of str
            At the missing party: the columns to predict.
        context : PartyTable, optional
            At the missing party: its columns for all rows, those of remaining rows preliminary.
        folds : mapping of column to Fold, optional
            At the missing party: what it learned from held-out rows. How large an error to expect
            of a number, and how linear scores of a category become probabilities; without a fold
            they count as probabilities themselves.
        kept : Checkpoints, optional
            Where this party keeps finished groups of columns, to go on from after a failure.
        tell : callable, optional
            At the missing party: hears which columns are next, how many are done, of how many.
        fraction : callable, optional
            At the missing party, on shares: which part of a model's predictions will be given, by
            its fold; the rest is the mean. Intervals are those of what is given.
        """
        check_params(self)
        pair = make_pair(self.base)
        channel = channel.within(self.name, DISCLOSURES)
        kept = Checkpoints(None) if kept is None else kept
        if on_shares(pair, roles):
            return self._train_on_shares(
                channel, pair, part, roles, rng, columns, folds or {}, kept, tell, fraction
            )
        if channel.me == roles.label_holder:
            if part is None:
                raise ConfigError(f"Party {channel.me!r} needs its table to complete it.")
            fitting = Fitting(channel, pair, roles, rng, len(part.rows), kept)
            return self._lead(fitting, part, columns, context, folds or {}, tell)
        components = None
        if part is not None:
            part, components = prepare_given(part, pair)
        shares = follow(channel, pair, part, roles, rng, kept)
        return ColumnModels(shares=shares, components=components)

    # ---- on shares --------------------------------------------------------------------------

    def _train_on_shares(
        self,
        channel: Channel,
        pair: Pair,
        part: Part | None,
        roles: Roles,
        rng: np.random.Generator,
        columns: Sequence[str],
        folds: Mapping[str, Fold],
        kept: Checkpoints,
        tell: TellColumns | None,
        fraction: Fraction | None,
    ) -> ColumnModels:
        for name, given in (("context", self.context != "none"), ("stop", self.stop is not None)):
            if given:
                raise ConfigError(
                    f"The {name} parameter of VFPUM needs the rounds in the open: use scheme='bfv'."
                )
        choice = Choice(self.alpha, self.confidence == "spread")
        if channel.me != roles.label_holder:
            shares, components = follow_predictions(
                channel, pair, part, roles, kept, rng, choice, self.k, self.rounds
            )
            return ColumnModels(shares=shares, components=components)
        if part is None:
            raise ConfigError(f"Party {channel.me!r} needs its table to complete it.")
        targets = make_shared_targets(part.table.take(part.rows), columns)
        if tell is not None and targets:
            tell(name_columns([one.name for one in targets]), 0, len(targets))
        lead = SharedLead(channel, roles, kept, roles.feature_holders)
        content = lead.load(targets)
        if content is None and targets:
            content = self._predict_on_shares(lead, roles, targets, choice, folds, fraction, rng)
            lead.keep(targets, content)
        lead.end()
        done = ColumnModels(groups=[[one.name for one in targets]] if targets else [])
        if content is not None:
            done.shares[0] = ModelShare.from_dict(content["share"])
            done.found = {
                one.name: Found.from_dict(line, one, _scale_of(line, one, folds.get(one.name)))
                for line, one in zip(content["found"], targets, strict=True)
            }
        return done

    def _predict_on_shares(
        self,
        lead: SharedLead,
        roles: Roles,
        targets: Sequence[Target],
        choice: Choice,
        folds: Mapping[str, Fold],
        fraction: Fraction | None,
        rng: np.random.Generator,
    ) -> dict[str, Any]:
        """All rounds of all columns; what was found, and this party's share."""
        if self.rounds > 1 and self.alpha <= 0.5 and any(one.classes for one in targets):
            raise ConfigError(
                "The alpha parameter of VFPUM must be above 0.5 for categories on shares, so that "
                f"a row has one class. Got {self.alpha} instead."
            )
        known = [folds.get(one.name) for one in targets]
        halves = {
            i: fold.halves for i, fold in enumerate(known) if fold and fold.halves is not None
        }
        judged = all(fold and (fold.chances is None or fold.halves is not None) for fold in known)
        question = Question.pose(targets, _FOLDS, rng, halves)
        posed = question.posed
        maps, cuts = cut_classes(targets, folds, self.alpha)
        sure = np.zeros(len(posed.means), dtype=bool)
        for target, at in zip(targets, posed.places, strict=True):
            fold = folds.get(target.name)
            if fold is not None and fold.errors is not None:
                expected = fold.errors.expected(target.filled[:1])
                sure[at] = spread_confidence(expected, target.deviation) >= self.alpha
        asked = replace(question.missing(), sure=sure, maps=maps, cuts=cuts)
        judgement = Judgement(question, folds, self.miss, fraction, rng) if judged else None
        judge = None if judgement is None else judgement.begin
        made = find_predictions(
            lead.order(), roles, asked, posed.classes, choice, self.k, self.rounds, judge
        )
        if judgement is not None:
            folds = judgement.folds
        values = made.scores * posed.scales + posed.means
        state = {"means": posed.means.tolist(), "scales": posed.scales.tolist()}
        found = []
        for number, (target, at) in enumerate(zip(targets, posed.places, strict=True)):
            half, inside = None, None
            if made.judging is not None and judgement is not None:
                half, inside = judgement.end(made.judging, number, values[:, at])
            fold = folds.get(target.name)
            one = Found.start(target, len(values), None if fold is None else fold.scale)
            answer = one.chances_of(values[:, at]) if target.classes else values[:, at]
            self._take_answer(one, answer, fold)
            if judgement is not None:
                one.half, one.inside, one.fold = half, inside, fold
            if made.better is not None and not made.better[number]:
                one.stop_reason = NO_BETTER
            found.append(one)
        return {
            "found": [one.to_dict() for one in found],
            "share": replace(made.share, state={**made.share.state, **state}).to_dict(),
        }

    # ---- by rounds in the open ----------------------------------------------------------------

    def _lead(
        self,
        fitting: Fitting,
        part: Part,
        columns: Sequence[str],
        context: PartyTable | None,
        folds: Mapping[str, Fold],
        tell: TellColumns | None,
    ) -> ColumnModels:
        targets = fitting.make_targets(part.table.take(part.rows), columns)
        by_name = {target.name: target for target in targets}
        too_rare = sorted(set(columns) - set(by_name))
        if too_rare:
            raise DataError(
                f"Columns {', '.join(map(repr, too_rare))} of party {part.table.party} have values "
                f"in too few common rows for a linear model of {fitting.columns} columns, whose "
                "gradients could tell the other party which rows these are; use trees, or complete "
                "them locally."
            )
        groups = group_columns(targets, fitting.pair, together=self.context == "none")
        done = ColumnModels(groups=groups)
        scales = {name: fold.scale for name, fold in folds.items()}
        for number, names in enumerate(groups):
            if tell is not None:
                tell(name_columns(names), len(done.found), len(targets))
            group = [by_name[name] for name in names]
            content = fitting.load_group(number)
            if content is None:
                found, share = self._train_group(fitting, group, context, folds, number)
                content = {"found": [one.to_dict() for one in found], "share": share.to_dict()}
                fitting.save_group(number, content)
            else:
                found = [
                    Found.from_dict(line, target, scales.get(target.name))
                    for line, target in zip(content["found"], group, strict=True)
                ]
                share = ModelShare.from_dict(content["share"])
            done.shares[number] = share
            done.found |= {one.target.name: one for one in found}
        fitting.end()
        return done

    def _train_group(
        self,
        fitting: Fitting,
        group: Sequence[Target],
        context: PartyTable | None,
        folds: Mapping[str, Fold],
        number: int,
    ) -> tuple[list[Found], ModelShare]:
        """All rounds of columns that train together."""
        pair, own = fitting.pair, None if self.context == "none" else context
        table = fitting.own_columns(own, [target.name for target in group])
        if own is not None and pair.linear:
            table = Components.fit(table, fitting.common).transform(table)
        scales = {name: fold.scale for name, fold in folds.items()}
        found = [Found.start(one, fitting.others, scales.get(one.name)) for one in group]
        open_ = list(found)
        for turn in range(1, self.rounds + 1):
            moved = any(one.moved.any() for one in found)
            target, weights = pose_targets(found, linear=pair.linear)
            share, scores = fitting.fit(
                table,
                target,
                weights if moved or (weights[: fitting.common] != 1).any() else None,
                classes=group[0].classes and not pair.linear,
                train=ALL if moved else COMMON,
                score=REST,
                group=number,
            )
            for one, answer in zip(found, answers_of(pair, share, scores, found), strict=True):
                if one in open_:
                    self._take_answer(one, answer, folds.get(one.target.name))
            open_ = [one for one in open_ if not self._ends(one, turn)]
            if not open_:
                break
        return found, share

    def _take_answer(self, one: Found, answer: Floats, fold: Fold | None) -> None:
        """The round of one column: how sure its predictions are, and who gets a pseudo-label."""
        waiting = one.waiting
        if one.chances is not None:
            guess = answer.argmax(axis=1).astype(np.float64)
            one.chances[waiting] = answer[waiting]
            sure = answer.max(axis=1)[waiting]
        else:
            guess = answer[:, 0]
            if self.confidence == "spread" and fold is not None and fold.errors is not None:
                expected = fold.errors.expected(guess)
                sure = spread_confidence(expected, one.target.deviation)[waiting]
            else:
                sure = value_confidence(guess[waiting])
        one.take_round(guess, sure, self.alpha, self.k)

    def _ends(self, one: Found, turn: int) -> bool:
        if not len(one.waiting):
            one.stop_reason = ALL_MOVED
        elif not one.rounds[-1]["chosen"]:
            # The same model on the same rows would choose nobody again.
            one.stop_reason = NOBODY
        elif self.stop is not None and self.stop(one.rounds):
            one.stop_reason = STOPPED
        else:
            return turn >= self.rounds
        return True

    def score_rows(
        self, channel: Channel, part: Part | None, share: ColumnModels, *, roles: Roles
    ) -> dict[str, Floats]:
        """One party's side of predicting new rows of the given party.

        Parameters
        ----------
        part : Part or None
            At the given party the new rows; None elsewhere.
        share : ColumnModels
            What this party has from training; the key holder's is empty.

        Returns
        -------
        dict by column
            At the missing party: numbers (rows,) or probabilities (rows, classes), by the last
            model of each column.
        """
        check_params(self)
        if self.context != "none":
            raise ConfigError(
                "VFPUM can predict new rows only with context='none': the missing party has no "
                "columns for them."
            )
        pair = make_pair(self.base)
        channel = channel.within(self.name, DISCLOSURES)
        if on_shares(pair, roles):
            return self._score_on_shares(channel, part, share, roles)
        if channel.me == roles.label_holder:
            return self._ask(channel, pair, share, roles)
        if part is not None:
            table = part.table.take(part.rows)
            table = table if share.components is None else share.components.transform(table)
            part = Part(table, np.arange(len(table), dtype=np.int64))
            channel.send(roles.label_holder, "rows", len(table))
            channel.send(roles.label_holder, "finished", len(share.shares))
        for _, here, order in Follower(channel, roles.label_holder):
            mine = share.shares.get(order.get("group", -1))
            if part is not None and mine is None:
                raise ProtocolError(
                    f"Party {roles.label_holder!r} ordered unknown work.", roles.label_holder
                )
            base = pair.of(classes=order.get("do") == CLASSES)
            base.score_rows(here, part, mine, roles=roles)
        return {}

    def _score_on_shares(
        self, channel: Channel, part: Part | None, share: ColumnModels, roles: Roles
    ) -> dict[str, Floats]:
        if part is not None:
            table = part.table.take(part.rows)
            table = table if share.components is None else share.components.transform(table)
            part = Part(table, np.arange(len(table), dtype=np.int64))
        mine = share.shares.get(0)
        scores = score_on_shares(channel, part, mine, roles)
        answers: dict[str, Floats] = {}
        if scores is None or mine is None:
            return answers
        means, scales = (np.asarray(mine.state[name]) for name in ("means", "scales"))
        values, start = scores * scales + means, 0
        for one in share.found.values():
            block = values[:, start : start + one.target.width]
            answers[one.target.name] = (
                one.chances_of(block) if one.target.classes else np.asarray(block[:, 0])
            )
            start += one.target.width
        return answers

    def _ask(
        self, channel: Channel, pair: Pair, share: ColumnModels, roles: Roles
    ) -> dict[str, Floats]:
        given = roles.feature_holders[0]
        rows, models = (
            expect_integer(channel.receive(given, name), sender=given, name=name, low=0, high=_MOST)
            for name in ("rows", "finished")
        )
        if models != len(share.groups):
            raise ProtocolError(
                f"Party {given!r} has {models} models; expected {len(share.groups)}.", given
            )
        leader = Leader(channel, (), (given, roles.key_holder))
        part = Part(make_context(channel.me, pair, rows), np.arange(rows, dtype=np.int64))
        answers: dict[str, Floats] = {}
        for group, names in enumerate(share.groups):
            found = [share.found[name] for name in names]
            classes = found[0].target.classes and not pair.linear
            here = leader.order(CLASSES if classes else NUMBERS, group=group)
            mine = share.shares[group]
            scores = pair.of(classes=classes).score_rows(here, part, mine, roles=roles)
            blocks = answers_of(pair, mine, np.asarray(scores), found)
            for one, answer in zip(found, blocks, strict=True):
                answers[one.target.name] = answer if one.target.classes else answer[:, 0]
        leader.end()
        return answers


def _scale_of(line: Mapping[str, Any], target: Target, fold: Fold | None) -> ClassScale | None:
    """How scores of a category become probabilities: by the last model's fold, if there is one."""
    if line["fold"] is not None:
        fold = Fold.from_dict(line["fold"], target)
    return None if fold is None else fold.scale


def group_columns(
    targets: Sequence[Target], pair: Pair, *, together: bool = True
) -> list[list[str]]:
    """Which columns train in the same rounds: all of a linear base, else each alone.

    Those with unknown cells apart: they have row weights, which cost the others.
    """
    if not pair.linear or not together:
        return [[target.name] for target in targets]
    whole = [target.name for target in targets if target.known.all()]
    holed = [target.name for target in targets if not target.known.all()]
    return [group for group in (whole, holed) if group]


def name_columns(names: Sequence[str]) -> str:
    """Columns that train together, in few words."""
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]


def pose_targets(found: Sequence[Found], *, linear: bool) -> tuple[Any, Floats]:
    """Targets and row weights of D_L over all rows; what is not in D_L weighs nothing."""
    columns, weights = [], []
    for one in found:
        values = np.where(one.moved, one.labels, one.target.filler)
        column = np.concatenate([one.target.filled, values])
        weight = np.concatenate([one.target.known, one.moved]).astype(np.float64)
        columns.append(one.target.numbers(column) if linear else column)
        weights.append(np.tile(weight[:, None], (1, one.target.width if linear else 1)))
    if linear:
        return np.hstack(columns), np.hstack(weights)
    # Trees take one target at a time, without a second axis.
    (target,) = columns
    return target.astype(np.int64) if found[0].target.classes else target, np.hstack(weights)


def answers_of(
    pair: Pair, share: ModelShare, scores: Array, found: Sequence[Found]
) -> list[Floats]:
    """Predictions of columns that trained together: numbers (rows, 1), or probabilities."""
    if pair.linear:
        edges = np.cumsum([one.target.width for one in found])
        blocks = np.split(pair.numbers.to_values(share, scores), edges[:-1], axis=1)
        return [
            one.chances_of(block) if one.target.classes else block
            for one, block in zip(found, blocks, strict=True)
        ]
    (one,) = found
    base = pair.of(classes=one.target.classes)
    if one.target.classes:
        return [as_chances(base, share, scores, len(one.target.levels))]
    return [base.to_values(share, scores)]
