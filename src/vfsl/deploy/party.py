"""The party of an engine job: what NVFlare builds at each site from a submitted run."""

from __future__ import annotations

import os
from pathlib import Path

from vfsl.channel.flare import Station
from vfsl.channel.relayed import RelayedTransport, session_name
from vfsl.deploy.attempt import Announced, take_part
from vfsl.deploy.config import FOLDER_VARIABLE


class Party(Station):
    """A party's work in one attempt of a run; its folder comes from the site that was started.

    Parameters
    ----------
    run, attempt, leader, parties, job
        The name and number of the attempt, who submitted it, who takes part, and the job's hash.
    secure : bool
        NVFlare's own encryption below ours.
    """

    def __init__(
        self,
        run: str,
        attempt: int,
        leader: str,
        parties: list[str],
        job: str,
        secure: bool = True,
    ) -> None:
        super().__init__()
        self._facts = Announced(run, attempt, leader, tuple(parties), job)
        self.secure = secure

    def work(self) -> None:
        take_part(self._facts, self.me, Path(os.environ[FOLDER_VARIABLE]), self._open)

    def _open(self, peers: tuple[str, ...]) -> RelayedTransport:
        facts = self._facts
        return self.open(session_name(facts.run, facts.attempt, facts.job), peers)
