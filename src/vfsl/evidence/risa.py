"""RISA: evidential vertical learning that uses every row of every party."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from vfsl.channel import Channel
from vfsl.data import check_labels
from vfsl.data.aggregates import histogram
from vfsl.data.checks import check_choice, check_count, check_share
from vfsl.errors import ConfigError
from vfsl.evidence.deep import need_torch
from vfsl.evidence.encoders import CNN, recipe_for
from vfsl.evidence.opinion import EVIDENCE_FORMS, Opinion, probability
from vfsl.evidence.rows import UNKNOWN, WholePart, codes_in, whole_parts
from vfsl.evidence.switches import Switches, switches_of
from vfsl.federation import Federation
from vfsl.parallel import using_threads
from vfsl.parts import ModelShare, Roles
from vfsl.values import Array

if TYPE_CHECKING:
    from vfsl.evidence.course import Settings

_ROWS = ("overlap", "all")
_RECORDED = (
    "variant",
    "epochs",
    "batch_size",
    "learning_rate",
    "weight_decay",
    "evidence",
    "tau_p",
    "tau_0",
    "every",
    "self_steps",
    "held_out",
    "own_labels",
)


@dataclass
class RISA:
    """Reliable imputed-sample assisted vertical learning, by evidence.

    Each party maps its columns to evidence over the classes; the label holder fuses the parties'
    opinions. Rows that only one party has take part too: an absent party says nothing, or what it
    says of its mean row, and rows without a label may get one from a self-training model. Rows that
    stay doubtful leave.

    Parameters
    ----------
    variant : {"plus", "paper"}
        Ours, or the paper to the letter.
    switches : dict, optional
        Changes to the variant's switches, such as ``{"self_train": False}``; see `Switches`.
    encoder : "mlp", MLP, CNN, torch module, or dict of those by party
        The network of a party. A module of your own gets standardised numbers and one-hot
        categories, and returns one number for each class; its first weights are its own.
    epochs, batch_size, learning_rate, weight_decay
        AdamW with half a cosine.
    evidence : {"exp", "softplus", "relu"}
        How outputs become evidence.
    tau_p : float
        The least probability of a pseudo label.
    tau_0 : float
        The limit of the score by which rows leave, after the last epoch; it begins at 1.
    every : int
        Rows leave after every that many epochs.
    self_steps : int
        Steps of the self-training model.
    held_out : float
        The share of labelled overlap rows by which parties are judged, where they are.
    own_labels : bool
        Whether labels of the label holder's own rows are used.
    device : str
        A torch device.
    checkpoints : dict of party to folder, optional
        Where parties keep their unfinished training; fitting again goes on from there.
    checkpoint_every : int
        After how many epochs they do.
    on_event : callable, optional
        Hears a dict after each epoch, where the label holder runs in this process.

    Attributes
    ----------
    classes_ : array
    shares_ : dict of ModelShare
    trust_ : dict of str to float
        How far each party's opinion counts.
    removed_ : DataFrame
        Rows that left: their nameless number, whose they are ("overlap", or the party that alone
        has them), epoch, score, limit, and whether the label was true.
    n_pseudo_ : int
        Rows with a pseudo label.

    Examples
    --------
    >>> risa = RISA(epochs=10).fit(fed, label=("A", "y"))  # doctest: +SKIP
    >>> risa.predict_proba(fed), risa.uncertainty(fed)  # doctest: +SKIP
    """

    variant: str = "plus"
    switches: Mapping[str, Any] | None = None
    encoder: Any = "mlp"
    epochs: int = 30
    batch_size: int = 128
    learning_rate: float = 2e-3
    weight_decay: float = 1e-4
    evidence: str = "exp"
    tau_p: float = 0.9
    tau_0: float = 0.3
    every: int = 2
    self_steps: int = 300
    held_out: float = 0.15
    own_labels: bool = True
    device: str = "cpu"
    checkpoints: Mapping[str, Path | str] | None = None
    checkpoint_every: int = 5
    on_event: Callable[[dict[str, Any]], None] | None = None

    # ---- what users call ----------------------------------------------------------------------

    def fit(self, fed: Federation, label: tuple[str, str]) -> Self:
        """Train on all rows of an aligned federation.

        Parameters
        ----------
        fed : Federation
        label : (party, column)
            Cells without a value are unknown labels.
        """
        need_torch("RISA")
        self._check()
        roles = fed.roles(label[0], "linear")
        parts = whole_parts(fed, label)
        check_labels(fed.tables, parts, target=label)
        for party in parts:
            recipe_for(self.encoder, party)
        jobs = {
            party: partial(
                self.train,
                part=parts[party],
                roles=roles,
                rng=fed.private_rng(party, "RISA"),
                threads=_thread_share(len(parts)),
            )
            for party in roles.data_holders
        }
        shares, report = fed.run("train risa", jobs, self._settings(label))
        self.shares_: dict[str, ModelShare] = shares
        self.label_ = label
        held = self.shares_[label[0]]
        metrics: dict[str, Any] = {"pseudo labels": self.n_pseudo_, "left": len(held.state["left"])}
        metrics |= {f"trust in {party}": level for party, level in self.trust_.items()}
        details = {
            "doubts": held.state["doubts"],
            "own rows": held.state["own rows"],
            "trust": self.trust_,
        }
        report(
            metrics=metrics,
            rounds=held.rounds,
            stop_reason=held.stop_reason,
            notes=held.notes,
            details=details,
        )
        return self

    def predict_proba(
        self, fed: Federation, *, rows: str = "overlap", offline: Sequence[str] = ()
    ) -> Array:
        """Class probabilities, in the order of ``classes_``.

        Parameters
        ----------
        fed : Federation
            That of training or another one with the same columns, aligned.
        rows : {"overlap", "all"}
            Overlap rows in the common order; or every row of the label holder that was in the
            alignment, in the order of its table, the other parties being absent for its own rows.
        offline : sequence of str
            Parties that do not take part: absent for every row.
        """
        return self._answers(fed, rows, offline)[0]

    def predict(
        self, fed: Federation, *, rows: str = "overlap", offline: Sequence[str] = ()
    ) -> Array:
        """The most probable class of each row."""
        chances = self.predict_proba(fed, rows=rows, offline=offline)
        return np.asarray(self.classes_[chances.argmax(axis=1)])

    def uncertainty(
        self, fed: Federation, *, rows: str = "overlap", offline: Sequence[str] = ()
    ) -> Array:
        """The uncertainty of the fused opinion of each row: ignorance and conflict."""
        return self._answers(fed, rows, offline)[1]

    def score(
        self, fed: Federation, *, rows: str = "overlap", offline: Sequence[str] = ()
    ) -> float:
        """The share of rows with a known label that are predicted right."""
        guessed = self.predict_proba(fed, rows=rows, offline=offline).argmax(axis=1)
        party = self.label_[0]
        part = whole_parts(fed, self.label_)[party]
        target = np.concatenate([np.asarray(part.target), np.asarray(part.own_target)])
        order = _answered(part, rows)
        codes = codes_in(party, target[order], self.classes_.tolist())
        known = codes != UNKNOWN
        if not known.any():
            raise ConfigError("There is no row with a known label to score.")
        return float((guessed == codes)[known].mean())

    @property
    def classes_(self) -> Array:
        return np.asarray(self._held().state["classes"])

    @property
    def trust_(self) -> dict[str, float]:
        return dict(self._held().state["trust"])

    @property
    def n_pseudo_(self) -> int:
        return int(self._held().state["pseudo labels"])

    @property
    def removed_(self) -> pd.DataFrame:
        columns = ["row", "of", "epoch", "score", "limit", "label"]
        return pd.DataFrame(self._held().state["left"], columns=columns)

    # ---- what every party runs ----------------------------------------------------------------

    def train(
        self,
        channel: Channel,
        part: WholePart,
        *,
        roles: Roles,
        rng: np.random.Generator,
        threads: int = 1,
    ) -> ModelShare:
        """One party's side of training, on that many threads of PyTorch."""
        need_torch("RISA")
        from vfsl.evidence import roles as sides

        side = sides.Side(
            part,
            recipe_for(self.encoder, channel.me),
            self._course(roles.label_holder),
            rng,
            self.own_labels,
            (self.checkpoints or {}).get(channel.me),
            self.checkpoint_every,
        )
        with using_threads(threads):
            if channel.me == roles.label_holder:
                return sides.train_label_holder(channel, side, roles, self.on_event)
            return sides.train_feature_holder(channel, side, roles)

    def score_rows(
        self,
        channel: Channel,
        part: WholePart,
        share: ModelShare,
        *,
        roles: Roles,
        offline: Sequence[str] = (),
    ) -> Array | None:
        """One party's side of prediction: beliefs and uncertainty, only at the label holder."""
        need_torch("RISA")
        from vfsl.evidence import roles as sides

        settings = self._course(roles.label_holder)
        recipe = recipe_for(self.encoder, channel.me)
        member = sides.restored(part, recipe, settings, share)
        if channel.me != roles.label_holder:
            sides.answer_opinions(channel, member, roles)
            return None
        asked = [party for party in roles.feature_holders if party not in offline]
        counts = (len(part.rows), len(part.own))
        return sides.ask_opinions(channel, member, counts, share, settings, asked)

    # ---- internals ----------------------------------------------------------------------------

    def _answers(self, fed: Federation, rows: str, offline: Sequence[str]) -> tuple[Array, Array]:
        """Probabilities and uncertainties of the rows asked for."""
        need_torch("RISA")
        self._held()
        check_choice("RISA", "rows", rows, _ROWS)
        roles = fed.roles(self.label_[0], "linear")
        for party in offline:
            if party not in roles.feature_holders:
                raise ConfigError(
                    "The offline parameter of RISA must name parties without the label, "
                    f"{', '.join(roles.feature_holders)}. Got {party!r} instead."
                )
        parts = whole_parts(fed, self.label_)
        jobs = {
            party: partial(
                self.score_rows,
                part=parts[party],
                share=self.shares_[party],
                roles=roles,
                offline=tuple(offline),
            )
            for party in roles.data_holders
            if party not in offline
        }
        switches = self._switched(self.label_[0])
        settings = {
            "model": "risa",
            "rows": rows,
            "offline": list(offline),
            "absent": switches.absent,
        }
        answers, report = fed.run("predict risa", jobs, settings)
        masses = answers[self.label_[0]][_answered(parts[self.label_[0]], rows)]
        opinion = Opinion(masses[:, :-1], masses[:, -1])
        report(details={"rows": len(masses), "uncertainty": histogram(masses[:, -1])})
        # Without opinions the masses are softmax probabilities already.
        chances = probability(opinion) if switches.evidential else opinion.belief
        return np.asarray(chances), np.asarray(opinion.uncertainty)

    def _held(self) -> ModelShare:
        if not hasattr(self, "shares_"):
            raise ConfigError("RISA is not fitted yet: call fit first.")
        return self.shares_[self.label_[0]]

    def _course(self, label_holder: str) -> Settings:
        from vfsl.evidence.course import Settings
        from vfsl.evidence.member import Learning

        learning = Learning(
            self.epochs, self.batch_size, self.learning_rate, self.weight_decay, self.device
        )
        return Settings(
            self._switched(label_holder),
            learning,
            self.evidence,
            self.tau_p,
            self.tau_0,
            self.every,
            self.self_steps,
            self.held_out,
        )

    def _switched(self, label_holder: str) -> Switches:
        """The switches; plus has other ones for pictures, by the label holder's network."""
        recipe = recipe_for(self.encoder, label_holder)
        return switches_of(self.variant, self.switches, isinstance(recipe, CNN))

    def _settings(self, label: tuple[str, str]) -> dict[str, Any]:
        """For the run record."""
        chosen = {name: getattr(self, name) for name in _RECORDED}
        switches = asdict(self._switched(label[0]))
        return {"model": "risa", "label": list(label), **chosen, "switches": switches}

    def _check(self) -> None:
        switches_of(self.variant, self.switches)
        check_choice("RISA", "evidence", self.evidence, EVIDENCE_FORMS)
        for name in ("epochs", "batch_size", "every", "self_steps", "checkpoint_every"):
            check_count("RISA", name, getattr(self, name), 1)
        for name in ("tau_p", "tau_0", "held_out"):
            check_share("RISA", name, getattr(self, name))
        if not self.tau_0 > 0:
            raise ConfigError(
                f"The tau_0 parameter of RISA must be above 0. Got {self.tau_0!r} instead."
            )
        if not self.learning_rate > 0:
            raise ConfigError(
                f"The learning_rate parameter of RISA must be above 0. "
                f"Got {self.learning_rate!r} instead."
            )

    def __getstate__(self) -> dict[str, Any]:
        # A listener may not pickle, and another process could not reach it anyway.
        return {**self.__dict__, "on_event": None}


def _answered(part: WholePart, rows: str) -> Array:
    """The places of the rows asked for, in the order asked for, among overlap and own rows."""
    if rows == "overlap":
        return np.arange(len(part.rows))
    return np.argsort(part.all_rows, kind="stable")


def _thread_share(parties: int) -> int:
    """Threads of PyTorch for each of the parties, which all compute on this machine.

    Parties that use all cores at once crowd each other out.
    """
    import torch

    return max(1, torch.get_num_threads() // parties)
