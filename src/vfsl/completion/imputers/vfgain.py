"""VF-GAIN as users call it: the roles of protocol.py, arranged for a federation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, ClassVar, Self

from vfsl.channel import Channel
from vfsl.completion.base import Completed
from vfsl.completion.fedpsg import check_pair
from vfsl.completion.imputers.protocol import (
    complete_embedder,
    complete_filler,
    train_embedder,
    train_filler,
)
from vfsl.completion.imputers.shares import EmbedderShare, FillerShare
from vfsl.completion.imputers.split import Plan
from vfsl.data import PartyTable, check_labels
from vfsl.data.checks import check_count, check_fraction
from vfsl.errors import ConfigError, DataError
from vfsl.federation import Federation


@dataclass(kw_only=True)
class VFGAIN:
    """GAIN across two parties: complete one party's columns for rows that only the other has.

    Parameters
    ----------
    epochs, batch_size : int
        Passes over the aligned rows, and rows whose embeddings are sent at a time.
    patience : int
        A tenth of the aligned rows only judges; training stops when their loss has not fallen
        for so many epochs.
    embedding : int
        Numbers that the giving party sends for each row; more help more and tell more.
    pieces : int
        Pieces, cut at quantiles, as which each party's network also sees each of its numbers; where
        they are cut stays with the party. 0 switches them off.
    width : int
        Of hidden layers.
    rate, decay : float
        Learning rate and weight decay of Adam at both parties.
    hint, adversarial : float
        As in GAIN.
    known : list of str
        Columns of the completed party that it will have for the rows to complete, such as those
        completed before; all others are hidden together in training.
    threads : int
        Threads of PyTorch.

    Attributes
    ----------
    shares_ : dict by party
        Each party's networks.
    rounds_ : tuple of dict
        The held-out loss of each epoch.
    stop_reason_ : str
    """

    name: ClassVar[str] = "vfgain"

    epochs: int = 100
    batch_size: int = 256
    patience: int = 15
    embedding: int = 16
    pieces: int = 12
    width: int = 128
    rate: float = 1e-3
    decay: float = 1e-5
    hint: float = 0.9
    adversarial: float = 0.01
    known: Sequence[str] = ()
    threads: int = 1

    def fit(self, fed: Federation, given: str = "A", missing: str = "B") -> Self:
        """Train on the aligned rows.

        Parameters
        ----------
        fed : Federation
            Aligned.
        given : str
            The party whose columns help.
        missing : str
            The party whose columns will be completed.
        """
        plan = self._plan()
        for party in (given, missing):
            if party not in fed.tables:
                raise ConfigError(
                    f"VF-GAIN was asked for party {party!r}; known are {', '.join(fed.tables)}."
                )
        check_labels(fed.tables, (given, missing))
        tables = {p: fed.tables[p].take(fed.share(p).overlap) for p in (given, missing)}
        roles: dict[str, Callable[[Channel], Any]] = {
            given: partial(
                train_embedder,
                table=tables[given],
                imputer=missing,
                plan=plan,
                rng=fed.private_rng(given, "vfgain"),
            ),
            missing: partial(
                train_filler,
                table=tables[missing],
                embedder=given,
                plan=plan,
                rng=fed.private_rng(missing, "vfgain"),
                known=tuple(self.known),
            ),
        }
        settings = {"given": given, "missing": missing, **asdict(plan), "known": list(self.known)}
        shares, report = fed.run("train vfgain", roles, settings)
        self._take(shares[given], shares[missing], given, missing)
        report(rounds=self.rounds_, stop_reason=self.stop_reason_)
        return self

    def complete(self, fed: Federation, preliminary: PartyTable | None = None) -> Completed:
        """The completed party's columns for the other's remaining rows, in that party's order.

        Parameters
        ----------
        fed : Federation
        preliminary : PartyTable, optional
            What the completed party already has of these rows: its columns, in this order.
        """
        if not hasattr(self, "shares_"):
            raise ConfigError("VFGAIN is not fitted yet: call fit first.")
        given, missing = self.parties_
        check_pair(given, missing, fed.sites[given].standing.aligned)
        rest = fed.tables[given].take(fed.share(given).rest)
        if not len(rest):
            raise DataError(f"Party {given!r} has no rows beyond the aligned ones to complete.")
        plan = self._plan()
        roles: dict[str, Callable[[Channel], Any]] = {
            given: partial(
                complete_embedder, table=rest, share=self.shares_[given], imputer=missing, plan=plan
            ),
            missing: partial(
                complete_filler,
                share=self.shares_[missing],
                embedder=given,
                plan=plan,
                rng=fed.private_rng(missing, "vfgain complete"),
                preliminary=preliminary,
            ),
        }
        results, report = fed.run("complete vfgain", roles, {"given": given, "missing": missing})
        report(metrics={"rows": len(rest)})
        done: Completed = results[missing]
        return done

    def settings(self) -> dict[str, Any]:
        """What both parties know of the model, as JSON values.

        Names of known columns are the completed party's and stand in its share; threads belong to
        the machine.
        """
        private = ("known", "threads")
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in private}

    def restore(self, shares: Mapping[str, EmbedderShare | FillerShare], where: str) -> None:
        """Take up the shares of both parties, which must fit the settings."""
        plan = self._plan()
        by_role = {share.role: (party, share) for party, share in shares.items()}
        (given, embedder), (missing, filler) = by_role["embedder"], by_role["filler"]
        if not isinstance(embedder, EmbedderShare) or not isinstance(filler, FillerShare):
            raise TypeError("the shares of VF-GAIN")
        for share in (embedder, filler):
            share.check(plan, where)
        self.known = list(filler.known)
        self._take(embedder, filler, given, missing)

    def _take(self, embedder: EmbedderShare, filler: FillerShare, given: str, missing: str) -> None:
        self.shares_: dict[str, Any] = {given: embedder, missing: filler}
        self.parties_ = (given, missing)
        self.rounds_, self.stop_reason_ = filler.rounds, filler.stop_reason

    def _plan(self) -> Plan:
        for name in ("epochs", "batch_size", "patience", "embedding", "width", "threads"):
            check_count("VFGAIN", name, getattr(self, name), 1)
        check_count("VFGAIN", "pieces", self.pieces, 0)
        check_fraction("VFGAIN", "hint", self.hint)
        return Plan(**{field.name: getattr(self, field.name) for field in fields(Plan)})
