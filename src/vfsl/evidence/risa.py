"""RISA: evidential vertical learning that uses every row of every party."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd

from vfsl.channel import Channel
from vfsl.data import check_labels
from vfsl.data.aggregates import histogram
from vfsl.errors import ConfigError, DataError
from vfsl.estimators.answer import Answer
from vfsl.estimators.base import NOTHING_KEPT, Ask, Estimator
from vfsl.evidence.encoders import CNN, MLP, Recipe, load_recipe, recipe_for, save_recipe
from vfsl.evidence.opinion import EvidenceForm, Opinion, probability
from vfsl.evidence.rows import check_overlap
from vfsl.evidence.switches import Switches, switches_of
from vfsl.federation import Federation
from vfsl.parallel import using_threads
from vfsl.params import documented, param, settings_of
from vfsl.parts import ModelShare, Part, Roles
from vfsl.progress import OnEvent
from vfsl.site import Site
from vfsl.store import Checkpoints
from vfsl.values import Array

if TYPE_CHECKING:
    from vfsl.evidence.blurring import Blurring
    from vfsl.evidence.course import Course
    from vfsl.evidence.protocol import Side


def need_torch(what: str) -> None:
    """Refuse in one sentence where torch, which is an extra, is not installed."""
    if find_spec("torch") is None:
        raise ConfigError(
            f"{what} needs PyTorch, which is not installed; install it with "
            "pip install 'vfsl[deep]'."
        )


@documented
@dataclass
class RISA(Estimator):
    """Reliable imputed-sample assisted vertical learning, by evidence.

    Each party maps its columns to evidence over the classes; the label holder fuses the parties'
    opinions. Rows that only one party has take part too: an absent party says nothing, or what it
    says of its mean row, and rows without a label may get one from a self-training model. Rows that
    stay doubtful leave. Networks learn by AdamW.

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

    name = "risa"
    predicts = "classes"
    scores_are = "probability"
    keeps_checkpoints = True
    uses_all_rows = True
    needs_torch = True
    predicts_without = True

    protect: Literal["labels", "both", "none"] = param(
        "labels",
        "'labels': feature holders see nothing that depends on labels; their evidence comes from "
        "heads on shares over features that are learned without labels. 'both': their evidence "
        "also gets noise. 'none': their networks learn from gradients, which tell them the labels.",
    )
    evidence_noise: float = param(
        1.5,
        "Of protect='both': the deviation of the noise on evidence, in units of what bounds the "
        "deviation of the evidence itself.",
        gt=0,
        le=20,
    )
    features: int = param(
        64,
        "Unless protect='none': how many features a feature holder's head reads at most.",
        ge=1,
        le=256,
    )
    label_epsilon: float | None = param(
        None,
        "Of protect='none': labels enter the training by randomised response, so that each is "
        "differentially private with this ε. Without it they enter as they are.",
        gt=0,
    )
    variant: Literal["plus", "paper"] = param("plus", "Our variant, or the paper to the letter.")
    switches: Mapping[str, Any] | None = param(
        None, "Changes to the variant's switches, such as {'self_train': False}; see Switches."
    )
    encoder: Any = param(
        "mlp",
        "The network of a party: 'mlp', an MLP, a CNN or a torch module, or a dict of those by "
        "party. A module of your own gets standardised numbers and one-hot categories, and returns "
        "one number for each class; its first weights are its own.",
        option=False,
    )
    epochs: int = param(30, "How often training goes over all rows.", ge=1)
    batch_size: int = param(128, "Rows per batch.", ge=1)
    learning_rate: float = param(
        2e-3, "The rate at which networks begin to learn; it falls along half a cosine.", gt=0, le=1
    )
    weight_decay: float = param(1e-4, "The weight decay of AdamW.", ge=0)
    evidence: EvidenceForm = param("exp", "How outputs of networks become evidence.")
    tau_p: float = param(0.9, "The lowest probability of a pseudo label.", ge=0, le=1)
    tau_0: float = param(
        0.3,
        "Rows leave whose score is above a limit, which falls from 1 to this value.",
        gt=0,
        le=1,
    )
    every: int = param(2, "Number of epochs from one removal of rows to the next.", ge=1)
    self_steps: int = param(300, "Number of steps of the self-training model.", ge=1)
    held_out: float = param(
        0.15,
        "The fraction of labelled overlap rows that the variant 'plus' keeps from training to "
        "judge the parties.",
        ge=0,
        le=1,
    )
    own_labels: bool = param(
        True, "Whether labels of rows that only the label holder has are used."
    )
    hidden: tuple[int, ...] = param(MLP.hidden, "Widths of the layers of an 'mlp'.", ge=1)
    embedding: int = param(
        MLP.embedding, "How many numbers stand for one category in an 'mlp'.", ge=1
    )
    device: str = param("cpu", "The torch device on which networks compute.")
    checkpoint_every: int = param(
        5, "Number of epochs from one checkpoint to the next.", ge=1, option=False
    )

    # ---- what it says of itself ---------------------------------------------------------------

    @property
    def needs_key_holder(self) -> bool:
        return self.protect != "none"

    @property
    def scores_need_key_holder(self) -> bool:
        return self.protect != "none"

    @property
    def discloses_labels(self) -> bool:
        return self.protect == "none" and self.label_epsilon is None

    def asks(self, scheme: str = "auto") -> tuple[Ask, ...]:
        if self.protect == "both":
            return (("disclosure", "noisy evidence"),)
        if self.protect == "labels":
            return (("disclosure", "evidence"),)
        labels = "training labels" if self.label_epsilon is None else "noisy labels"
        return ("disclosure", labels), ("disclosure", "evidence")

    def numbers_per_row(self) -> int:
        # Of two classes. A head speaks once in training and once in a prediction; a network gives
        # evidence for each class in every epoch too, and rows that leave show less.
        return {"none": 2 * (self.epochs + 1), "labels": 2, "both": 0}[self.protect]

    def check(self) -> None:
        """Refuse parameters that cannot be used."""
        super().check()
        switches_of(self.variant, self.switches)
        if self.label_epsilon is not None and self.protect != "none":
            raise ConfigError(
                "The label_epsilon parameter of RISA needs protect='none': otherwise nothing that "
                f"depends on labels is shown. Got protect={self.protect!r} instead."
            )
        if not self.hidden:
            raise ConfigError("The hidden parameter of RISA must name at least one layer.")

    def saved_settings(self, parties: Sequence[str]) -> dict[str, Any]:
        """The parameters that make the same model again; where it runs is not one of them."""
        settings = settings_of(self)
        del settings["device"]
        settings["encoder"] = {p: save_recipe(self._recipe(p), p) for p in parties}
        return settings

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The model whose `saved_settings` these are."""
        recipes = {party: load_recipe(content) for party, content in settings["encoder"].items()}
        return cls(**{**settings, "encoder": recipes})

    # ---- what users call ----------------------------------------------------------------------

    def fit(
        self,
        fed: Federation,
        label: tuple[str, str],
        weights: Array | None = None,
        *,
        state: Mapping[str, Path | str] | None = None,
        on_event: OnEvent | None = None,
    ) -> Self:
        """Train on all rows of an aligned federation.

        Parameters
        ----------
        fed : Federation
        label : (party, column)
            Cells without a value are unknown labels.
        weights : None
            RISA weighs rows by itself.
        state : mapping of party to folder, optional
            Where parties keep their unfinished training; fitting again goes on from there.
        on_event : callable, optional
            Hears of each epoch.
        """
        need_torch("RISA")
        import torch

        self.check()
        roles = fed.roles(label[0])
        parties = roles.data_holders
        fed.tables[label[0]].column(label[1])  # refused where there is no such column
        check_labels(fed.tables, parties, target=label)
        for party in parties:
            self._recipe(party)
        # All parties compute on this machine: if each used all cores, they would be in the way.
        threads = max(1, torch.get_num_threads() // len(parties))
        play = partial(replace(self).learn, label=label, weighted=weights is not None)
        keeping = fed.keeping(state, on_event)
        shares = keeping.play(partial(play, threads=threads), parties=self._players(roles))
        self.shares_ = {party: share for party, share in shares.items() if share is not None}
        self.label_ = label
        return self

    def decision_function(
        self, fed: Federation, *, rows: str = "overlap", offline: Sequence[str] = ()
    ) -> Array:
        """The fused opinion of each row: belief in each class and, last, the uncertainty.

        The parameters are those of `predict_proba`.
        """
        self.check_fitted()
        roles = fed.roles(self.label_[0])
        offline = self.find_offline(roles.data_holders, offline, rows)
        parties = self._players(roles.without(offline))
        model = replace(self)  # without the shares: each party is given its own
        opinions = fed.play(
            partial(model.answer, label=self.label_, rows=rows, offline=offline),
            own={p: {"share": share} for p, share in self.shares_.items() if p in parties},
            parties=parties,
        )
        return np.asarray(opinions[self.label_[0]])

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
            alignment, in the order of its table. For rows that it has alone the others are absent.
        offline : sequence of str
            Parties that do not take part: absent for every row.
        """
        opinions = self.decision_function(fed, rows=rows, offline=offline)
        return self.to_probabilities(self.held_share, opinions)

    def predict(
        self, fed: Federation, *, rows: str = "overlap", offline: Sequence[str] = ()
    ) -> Array:
        """The most probable class of each row."""
        opinions = self.decision_function(fed, rows=rows, offline=offline)
        return self.to_predictions(self.held_share, opinions)

    def uncertainty(
        self, fed: Federation, *, rows: str = "overlap", offline: Sequence[str] = ()
    ) -> Array:
        """The uncertainty of the fused opinion of each row: ignorance and conflict."""
        return self.decision_function(fed, rows=rows, offline=offline)[:, -1]

    @property
    def trust_(self) -> dict[str, float]:
        return dict(self.held_share.state["trust"])

    @property
    def n_pseudo_(self) -> int:
        return int(self.held_share.state["pseudo labels"])

    @property
    def removed_(self) -> pd.DataFrame:
        columns = ["row", "of", "epoch", "score", "limit", "label"]
        return pd.DataFrame(self.held_share.state["left"], columns=columns)

    # ---- what every party plays ---------------------------------------------------------------

    def learn(
        self,
        site: Site,
        channel: Channel,
        label: tuple[str, str],
        *,
        weights: Array | None = None,
        weighted: bool = False,
        threads: int = 1,
    ) -> ModelShare | None:
        """One party's whole side of training, on that many threads of PyTorch.

        None at a party that has no part in it. There are no row weights.
        """
        if weighted:
            raise ConfigError("RISA takes no row weights: it weighs rows by itself.")
        part, roles = site.part(label), site.roles(label[0])
        if site.me not in self._players(roles):
            return None
        need_torch("RISA")
        step = f"train {self.name}"
        with site.records(step, channel, self._settings(label)) as outcome, using_threads(threads):
            share = self.train(
                channel,
                part,
                roles=roles,
                rng=site.private_rng("RISA"),
                kept=site.checkpoints(self.name),
                tell=lambda epoch: site.tell(step, f"epoch {epoch}", epoch, self.epochs),
            )
            if share is not None and site.me == label[0]:
                state, trust = share.state, share.state["trust"].items()
                outcome.rounds, outcome.stop_reason = share.rounds, share.stop_reason
                outcome.notes = share.notes
                outcome.metrics = {
                    "pseudo labels": state["pseudo labels"],
                    "left": len(state["left"]),
                    **{f"trust in {party}": level for party, level in trust},
                }
                outcome.details = {name: state[name] for name in ("doubts", "own rows", "trust")}
        return share

    def train(
        self,
        channel: Channel,
        part: Part | None,
        *,
        roles: Roles,
        rng: np.random.Generator | None = None,
        kept: Checkpoints = NOTHING_KEPT,
        tell: Callable[[int], None] | None = None,
    ) -> ModelShare | None:
        """One party's side of training; ``tell`` hears at the label holder of each epoch."""
        from vfsl.evidence import protected, protocol

        rng = np.random.default_rng() if rng is None else rng
        if self.protect != "none":
            protected.check_scheme(roles)
        if part is None:
            speaks = self._within(channel)
            protected.deal_training(speaks, roles, rng, self._blurring())
            return None
        check_overlap(roles.data_holders, len(part.rows))
        if not part.table.features:
            raise DataError(f"Party {channel.me!r} has no columns to learn from.")
        side = self._side(channel, part, roles)
        facts = (settings_of(self), asdict(side.course.switches), repr(side.recipe))
        epochs = kept.within("epochs", *facts, rng.bit_generator.state)
        if channel.me == roles.label_holder:
            lead = protocol.lead_training if self.protect == "none" else protected.lead_training
            share = lead(side, roles, rng, epochs, self.own_labels, tell)
        elif self.protect == "none":
            share = protocol.follow_training(side, roles, rng, epochs)
        else:
            share = protected.follow_training(side, roles, rng, epochs, self.features)
        kept.clear()
        return share

    def answer(
        self,
        site: Site,
        channel: Channel,
        label: tuple[str, str],
        *,
        share: ModelShare | None = None,
        places: Array | None = None,
        rows: str = "overlap",
        offline: Sequence[str] = (),
    ) -> Array | None:
        """One party's whole side of a prediction: the opinions at the label holder.

        ``rows`` and ``offline`` are those of `predict_proba`; ``places`` do not matter, since no
        opinions of training rows are kept.
        """
        part, roles = site.part(label), site.roles(label[0]).without(offline)
        if site.me not in self._players(roles):
            return None
        absent = self._switches(label[0]).absent
        settings = {"model": self.name, "rows": rows, "offline": list(offline), "absent": absent}
        with site.records(f"predict {self.name}", channel, settings) as outcome:
            opinions = self.score_rows(
                channel, part, share, roles=roles, rows=rows, offline=offline
            )
            if opinions is not None:
                doubt = histogram(opinions[:, -1])
                outcome.details = {"rows": len(opinions), "uncertainty": doubt}
        return opinions

    def score_rows(
        self,
        channel: Channel,
        part: Part | None,
        share: ModelShare | None,
        *,
        roles: Roles,
        rows: str = "overlap",
        offline: Sequence[str] = (),
    ) -> Array | None:
        """One party's side of scoring; the opinions of rows at the label holder, None elsewhere."""
        need_torch("RISA")
        from vfsl.evidence import protected, protocol

        open_way = self.protect == "none"
        if not open_way:
            protected.check_scheme(roles)
        if part is None or share is None:
            if channel.me == roles.key_holder:
                protected.deal_heads(self._within(channel), roles, self._blurring())
            return None
        side = self._side(channel, part, roles)
        if channel.me != roles.label_holder:
            (protocol.say_opinions if open_way else protected.say_head)(side, share, roles)
            return None
        hear = partial(protocol.hear_opinion, side)
        if not open_way:
            hear = partial(protected.hear_head, side, share, roles)
        return protocol.fuse_opinions(side, share, hear, offline)[_places(part, rows)]

    def answer_all(
        self,
        site: Site,
        channel: Channel,
        label: tuple[str, str],
        *,
        share: ModelShare | None = None,
        places: Array | None = None,
        rows: str = "all",
        offline: Sequence[str] = (),
    ) -> Answer | None:
        """Of all rows of the label holder: it knows what to do without the others."""
        opinions = self.answer(site, channel, label, share=share, rows="all", offline=offline)
        if opinions is None or share is None:
            return None
        return self.interpret(site, share, opinions, rows="all", offline=offline)

    def interpret(
        self,
        site: Site,
        share: ModelShare,
        scores: Array,
        *,
        rows: str = "overlap",
        offline: Sequence[str] = (),
    ) -> Answer:
        """With the uncertainty of each row."""
        answer = super().interpret(site, share, scores, rows=rows, offline=offline)
        return replace(answer, more={"uncertainty": scores[:, -1], **answer.more})

    def check_alone(self, share: ModelShare) -> None:
        """It can: an absent party says nothing, or what it says of its mean row."""

    # ---- how opinions become predictions, at the label holder ---------------------------------

    def to_probabilities(self, share: ModelShare, scores: Array) -> Array:
        """Class probabilities of opinions; without opinions they are probabilities already."""
        opinion = Opinion(scores[:, :-1], scores[:, -1])
        evidential = self._switches(share.party).evidential
        return np.asarray(probability(opinion) if evidential else opinion.belief)

    def to_predictions(self, share: ModelShare, scores: Array) -> Array:
        """The most probable classes."""
        return self.pick_classes(share, self.to_probabilities(share, scores))

    # ---- internals ----------------------------------------------------------------------------

    def _recipe(self, party: str) -> Recipe:
        return recipe_for(self.encoder, party, MLP(tuple(self.hidden), self.embedding))

    def _switches(self, label_holder: str) -> Switches:
        """The switches; plus has other ones for pictures, by the label holder's network."""
        pictures = isinstance(self._recipe(label_holder), CNN)
        return switches_of(self.variant, self.switches, pictures)

    def _side(self, channel: Channel, part: Part, roles: Roles) -> Side:
        from vfsl.evidence import protocol

        course, recipe = self._course(roles.label_holder), self._recipe(channel.me)
        return protocol.Side(self._within(channel), part, recipe, course, self._blurring())

    def _within(self, channel: Channel) -> Channel:
        """The channel, speaking what the level of protection says."""
        from vfsl.evidence import protected, protocol

        way = protocol if self.protect == "none" else protected
        return channel.within(self.name, way.DISCLOSURES)

    def _players(self, roles: Roles) -> tuple[str, ...]:
        """Who takes part; the dealer where somebody's head is asked."""
        dealt = self.protect != "none" and roles.feature_holders
        return roles.everyone if dealt else roles.data_holders

    def _blurring(self) -> Blurring | None:
        from vfsl.evidence.blurring import Blurring

        return Blurring(self.evidence_noise) if self.protect == "both" else None

    def _course(self, label_holder: str) -> Course:
        from vfsl.evidence.course import Course
        from vfsl.evidence.networks import Learning

        learning = Learning(
            self.epochs, self.batch_size, self.learning_rate, self.weight_decay, self.device
        )
        return Course(self, self._switches(label_holder), learning)

    def _settings(self, label: tuple[str, str]) -> dict[str, Any]:
        """For the run record."""
        chosen = settings_of(self)
        for name in ("hidden", "embedding", "device"):
            del chosen[name]
        switches = asdict(self._switches(label[0]))
        return {"model": self.name, "label": list(label), **chosen, "switches": switches}


def _places(part: Part, rows: str) -> Array:
    """The places of the rows asked for, in the order asked for, among overlap and other rows."""
    if rows == "overlap":
        return np.arange(len(part.rows))
    return np.argsort(part.all_rows, kind="stable")
