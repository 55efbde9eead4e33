"""The parties' sides of cross-fit and VFPU-M on shares, around the protocols of shared_fit.py.

Holds, learns: as in shared_fit.py. The missing party leads, and keeps what is finished.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from vfsl.channel import Channel
from vfsl.completion.bases import Components, Pair, prepare_given
from vfsl.completion.calibration import ClassScale
from vfsl.completion.class_sums import LEAST_OF_CLASS
from vfsl.completion.columns import Fold, Target, make_target, merge_rare
from vfsl.completion.shared_errors import Errors, add_up_errors, keep_better, open_sums
from vfsl.completion.shared_fit import (
    DISCLOSURES,
    FARTHEST_BITS,
    Given,
    Missing,
    Sizes,
    add_constant,
    count_twentieths,
    draw_in_rows,
    open_predictions,
    turn_columns,
)
from vfsl.completion.shared_limits import Judging, find_limits
from vfsl.completion.shared_rounds import Choice, block_sizes, draw_blocks, self_train
from vfsl.completion.tasks import NUMBERS, load_marks
from vfsl.crypto.shares import Session, Shared
from vfsl.data import PartyTable
from vfsl.errors import ConfigError
from vfsl.estimators.linear import encode_columns, fit_encoder
from vfsl.lead import Follower, Leader
from vfsl.parts import ModelShare, Part, Roles
from vfsl.store import Checkpoints
from vfsl.values import Booleans, Floats, Integers

SCHEME = "shares"
# Errors are added up by at most so many parts, of so many rows at least.
_MOST_PARTS, _ROWS_PER_PART = 20, 50
# No score reaches that.
_FARTHEST_CUT = 2.0**FARTHEST_BITS

T = TypeVar("T")


def on_shares(pair: Pair, roles: Roles) -> bool:
    return pair.linear and roles.scheme == SCHEME


# ---- the missing party --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Posed:
    """Columns of the missing party as targets with mean 0; ``places`` are those of each column."""

    values: Floats
    known: Booleans
    means: Floats
    scales: Floats
    places: Sequence[Integers]
    classes: Sequence[int]

    @classmethod
    def of(cls, targets: Sequence[Target]) -> Posed:
        """Numbers in deviations; of a category the indicators of its classes but the first."""
        blocks, known, means, scales = [], [], [], []
        places: list[Integers] = []
        for target in targets:
            block = target.numbers(target.filled)
            cells = block[target.known]
            scale = np.ones(block.shape[1])
            if not target.classes:
                scale = np.maximum(cells.std(axis=0), 1e-300)
            mean = cells.mean(axis=0)
            blocks.append(np.where(target.known[:, None], (block - mean) / scale, 0.0))
            known.append(np.tile(target.known[:, None], (1, block.shape[1])))
            start = sum(len(at) for at in places)
            places.append(np.arange(start, start + block.shape[1]))
            means.append(mean)
            scales.append(scale)
        return cls(
            np.hstack(blocks),
            np.hstack(known),
            np.concatenate(means),
            np.concatenate(scales),
            places,
            [target.width + 1 if target.classes else 0 for target in targets],
        )


def cut_classes(
    targets: Sequence[Target], folds: Mapping[str, Fold], alpha: float
) -> tuple[Floats, Floats]:
    """Maps and cuts of all categories, for `Missing`: who surely belongs to which class.

    A row does where the linear score of the class says so with probability α: by a logistic model
    of that score on the held-out rows, or, where there are none, as a probability itself. A class
    whose own score does not tell it, as one between two others, gets no pseudo-labels.
    """
    categories = [target for target in targets if target.classes]
    blocks, cuts = [], []
    for target in categories:
        means = target.numbers(target.filled)[target.known].mean(axis=0)
        fold = folds.get(target.name)
        scores = None if fold is None else fold.scores
        # The first class has what the scores of the others leave, in a map of length 1.
        size = np.sqrt(target.width)
        block = np.column_stack([np.full(target.width, -1.0 / size), np.eye(target.width)])
        for group, slope in enumerate(block.T):
            cut = alpha if group else (alpha - 1.0) / size
            if scores is not None:
                mine = (target.grouped == group)[target.known].astype(np.int64)
                cut = ClassScale.fit(scores[target.known] @ slope[:, None], mine, 2).reaches(alpha)
            cuts.append(cut - float(slope @ means))
        blocks.append(block)
    rows, columns = (sum(block.shape[axis] for block in blocks) for axis in (0, 1))
    maps, row, column = np.zeros((rows, columns)), 0, 0
    for block in blocks:
        maps[row : row + len(block), column : column + block.shape[1]] = block
        row, column = row + len(block), column + block.shape[1]
    return maps, np.clip(cuts, -_FARTHEST_CUT, _FARTHEST_CUT)


def make_shared_targets(common: PartyTable, columns: Sequence[str]) -> list[Target]:
    """Columns as a linear model on shares may predict them.

    Nothing of a value's rows is opened, so a number may have rare values; rare classes are
    predicted together, since nothing could be learned of each.
    """
    made = []
    for name in columns:
        target = make_target(common, name)
        merged = merge_rare(target, LEAST_OF_CLASS) if target.classes else target
        if merged is not None:
            made.append(merged)
    return made


def count_parts(rows: int, folds: int) -> int:
    """By how many parts errors are added up: more parts tell better how sure a skill is."""
    return max(folds, min(_MOST_PARTS, rows // _ROWS_PER_PART))


class SharedLead:
    """The missing party's side: it orders exchanges on shares, or goes on from finished ones."""

    def __init__(
        self, channel: Channel, roles: Roles, kept: Checkpoints, followers: Sequence[str] = ()
    ) -> None:
        self._roles, self._kept = roles, kept
        forgetful = [p for p in roles.everyone[1:] if p not in followers]
        marks = load_marks(kept)
        self._leader = Leader(channel, followers, forgetful, list(marks.values()))
        # Where nobody else keeps anything, the leader alone knows what is finished.
        done = self._leader.resumed if followers else max(marks.values(), default=0)
        self._done = [group for group, tasks in marks.items() if tasks <= done]

    def load(self, targets: Sequence[Target]) -> Any:
        """What was kept of these columns, if all parties have finished them."""
        content = self._kept.load("group-0") if 0 in self._done else {}
        return content if content.get("columns") == [one.name for one in targets] else None

    def order(self) -> Channel:
        return self._leader.order(NUMBERS).within(SCHEME, DISCLOSURES)

    def keep(self, targets: Sequence[Target], content: dict[str, Any]) -> None:
        names = [one.name for one in targets]
        self._kept.save("group-0", {**content, "columns": names, "tasks": self._leader.number})

    def end(self) -> None:
        self._leader.end()


def find_errors(channel: Channel, roles: Roles, missing: Missing, classes: Sequence[int]) -> Errors:
    """The missing party's side of a cross-fit: sums of errors."""
    told = {"parts": int(missing.parts.max()) + 1}
    with Session.join(channel, roles.data_holders, roles.key_holder) as s:
        sizes = _agree(s, roles, _tell_targets(missing, told, classes))
        return _there(add_up_errors(s, sizes, None, missing))


@dataclass(frozen=True, eq=False)
class Predicted:
    """What the missing party has after VFPU-M, and its piece of the models.

    ``better``: which columns self-training improved, where there were rounds; ``judging``: what
    errors stay within, where that was asked.
    """

    scores: Floats  # (remaining rows, targets)
    share: ModelShare
    better: Booleans | None = None
    judging: Judging | None = None


# Makes what judges the last models of their predictions and, if these are not the first ones, of
# the sums of their errors; also of the mean leverage of common rows.
Judge = Callable[[Floats, Errors | None, float], Judging]


def find_predictions(
    channel: Channel,
    roles: Roles,
    missing: Missing,
    classes: Sequence[int],
    choice: Choice,
    fraction: float,
    rounds: int,
    judge: Judge | None = None,
) -> Predicted:
    """The missing party's side of VFPU-M."""
    parts = int(missing.parts.max(initial=0)) + 1 if judge is not None else 1
    told = {"parts": parts, "judged": int(judge is not None)}
    with Session.join(channel, roles.data_holders, roles.key_holder) as s:
        sizes = _agree(s, roles, _tell_targets(missing, told, classes))
        blocks = block_sizes(sizes.rest, fraction, rounds)
        made = predict(s, sizes, None, missing, blocks, choice, judge)
    share = ModelShare(channel.me, SCHEME, {"piece": made.weights.piece.tolist()})
    return Predicted(_there(made.scores), share, made.better, made.judging)


@dataclass(frozen=True, eq=False)
class _Made:
    weights: Shared
    scores: Floats | None
    better: Booleans | None
    judging: Judging | None


def predict(
    s: Session,
    sizes: Sizes,
    given: Given | None,
    missing: Missing | None,
    blocks: Sequence[int],
    choice: Choice,
    judge: Judge | None = None,
) -> _Made:
    """Models of all columns, self-trained where that pays, and what their predictions are worth.

    The program that all parties run. Whether self-training pays is asked where errors are judged.
    """
    before, weights = self_train(s, sizes, given, missing, blocks, choice)
    better, sums, judging = None, None, None
    if sizes.judged and blocks:
        weights, errors, better = keep_better(s, sizes, given, missing, before, weights)
        sums = open_sums(s, sizes, missing, errors)
    scores = open_predictions(s, sizes, given and given.rest, sizes.rest, weights)
    if sizes.judged:
        leverage = sizes.columns / sizes.rows
        if judge is not None and scores is not None:
            judging = judge(scores, sums, leverage)
        find_limits(s, sizes, given, missing, weights, judging)
    return _Made(weights, scores, better, judging)


def _tell_targets(missing: Missing, told: dict[str, int], classes: Sequence[int]) -> dict[str, int]:
    lists = {"known": count_twentieths(missing.known), "classes": classes}
    each = {f"{name} {i}": n for name, values in lists.items() for i, n in enumerate(values)}
    return {"rows": len(missing.values), "columns": len(classes), **told, **each}


# ---- the given party and the dealer -------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Prepared:
    """The given party's columns for a linear model, and what repeats them for new rows."""

    columns: Floats
    rest: Floats
    state: dict[str, Any]
    components: Components | None

    @classmethod
    def of(cls, part: Part, pair: Pair) -> Prepared:
        part, components = prepare_given(part, pair)
        state, columns = fit_encoder(part, part.rows)
        share = ModelShare(part.table.party, SCHEME, state)
        rest = encode_columns(Part(part.table, part.rest), share)
        return cls(columns, rest, state, components)

    def turn(self, pair: Pair, blocks: Sequence[Integers] = ()) -> Given:
        return turn_columns(self.columns, self.rest, pair.penalty, blocks)


def follow_errors(
    channel: Channel, pair: Pair, part: Part | None, roles: Roles, rng: np.random.Generator
) -> None:
    """The given party's or the dealer's side of a cross-fit."""
    given = None if part is None else Prepared.of(part, pair).turn(pair)
    for _, here, _ in Follower(channel, roles.label_holder):
        inner = here.within(SCHEME, DISCLOSURES)
        with Session.join(inner, roles.data_holders, roles.key_holder, rng=rng) as s:
            sizes = _agree(s, roles, _tell_columns(given))
            add_up_errors(s, sizes, given, None)


def follow_predictions(
    channel: Channel,
    pair: Pair,
    part: Part | None,
    roles: Roles,
    kept: Checkpoints,
    rng: np.random.Generator,
    choice: Choice,
    fraction: float,
    rounds: int,
) -> tuple[dict[int, ModelShare], Components | None]:
    """The given party's or the dealer's side of VFPU-M: its piece, and its components."""
    shares: dict[int, ModelShare] = {}
    given, prepared, marks = None, None, {}
    if part is not None:
        prepared = Prepared.of(part, pair)
        given = prepared.turn(pair, draw_blocks(len(part.rest), fraction, rounds, rng))
        marks = load_marks(kept)
    orders = Follower(channel, roles.label_holder, None if part is None else list(marks.values()))
    if orders.resumed and part is not None:
        shares[0] = ModelShare.from_dict(kept.load("group-0")["share"])
    for number, here, _ in orders:
        inner = here.within(SCHEME, DISCLOSURES)
        with Session.join(inner, roles.data_holders, roles.key_holder, rng=rng) as s:
            sizes = _agree(s, roles, _tell_columns(given))
            blocks = block_sizes(sizes.rest, fraction, rounds)
            weights = predict(s, sizes, given, None, blocks, choice).weights
        if prepared is not None and given is not None:
            state = prepared.state | {
                "turn": given.turn.tolist(),
                "piece": weights.piece.tolist(),
            }
            shares[0] = ModelShare(channel.me, SCHEME, state)
            kept.save("group-0", {"share": shares[0].to_dict(), "tasks": number + 1})
    return shares, None if prepared is None else prepared.components


def _tell_columns(given: Given | None) -> dict[str, int] | None:
    if given is None:
        return None
    rows, columns = given.columns.shape
    return {"rows": rows, "rest": len(given.rest), "columns": columns, "reach": given.reach}


def _agree(s: Session, roles: Roles, told: dict[str, int] | None) -> Sizes:
    return Sizes.of(s.agree(told), roles.feature_holders[0], roles.label_holder)


def _there(values: T | None) -> T:
    if values is None:
        raise ConfigError("Only the missing party has the result of a computation on shares.")
    return values


# ---- new rows -----------------------------------------------------------------------------------


def score_on_shares(
    channel: Channel, part: Part | None, share: ModelShare | None, roles: Roles
) -> Floats | None:
    """One party's side of predicting new rows of the given party; the answer at the missing one."""
    given, missing = roles.feature_holders[0], roles.label_holder
    rows, told, mine = None, None, None
    if share is not None:
        mine = np.array(share.state["piece"], dtype=np.uint64)
        told = {"columns": mine.shape[0], "targets": mine.shape[1]}
    if part is not None and share is not None:
        turn = np.asarray(share.state["turn"], dtype=np.float64)
        rows = add_constant(draw_in_rows(encode_columns(part, share) @ turn))
        told = {**(told or {}), "rows": len(rows)}
    inner = channel.within(SCHEME, DISCLOSURES)
    with Session.join(inner, roles.data_holders, roles.key_holder) as s:
        sizes = s.agree(told)
        shape = (sizes[given]["columns"], sizes[given]["targets"])
        weights = _restore(s, given, mine, shape) + _restore(s, missing, mine, shape)
        plan = Sizes(given, missing, 0, 0, shape[0], 1, ())
        return open_predictions(s, plan, rows, sizes[given]["rows"], weights)


def _restore(s: Session, owner: str, piece: Any, shape: tuple[int, int]) -> Shared:
    """A kept piece of weights as what its owner brings."""
    values = None if piece is None else piece.view(np.int64)
    return s.share(owner, values if s.me == owner else None, shape)
