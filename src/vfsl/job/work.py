"""What a step of a job works with: the federation, its training and test rows, its folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from vfsl.errors import DataError
from vfsl.federation import Federation
from vfsl.job.holdout import Marked, only_test, without_test
from vfsl.job.schema import Job
from vfsl.progress import OnEvent
from vfsl.values import Array


@dataclass
class Work:
    """A job under way.

    Attributes
    ----------
    job : Job
    fed : Federation
        With all rows.
    results : Path
        What becomes the output folder.
    unfinished : Path
        Where unfinished work is kept.
    marked : Marked or None
        Which rows are for testing, where a column says so.
    number : int
        Of the step, from 1.
    test : array of int or None
        Places in the common order that are held out, once rows are aligned.
    """

    job: Job
    fed: Federation
    results: Path
    unfinished: Path
    on_event: OnEvent | None = None
    marked: Marked | None = None
    number: int = 0
    test: Array | None = None

    @property
    def training(self) -> Federation:
        """The federation without the rows that are held out."""
        if self.test is None or self.fed.plan is None:
            return self.fed
        return self.fed.with_rows(without_test(self.fed.plan, self.test, self.marked))

    def testing(self, parties: Sequence[str]) -> Federation:
        """These parties with nothing but the rows that are held out."""
        if self.test is None or self.fed.plan is None:
            raise DataError("There are no rows to evaluate on: the job holds none out.")
        return self.fed.with_rows(only_test(self.fed.plan, self.test, parties))

    def party_folder(self, party: str) -> Path:
        """Where a party's results go."""
        return self.results / "parties" / party

    def state(self, what: str) -> dict[str, Path | str]:
        """Where each party keeps the unfinished work of this step."""
        folder = self.unfinished / f"step-{self.number}"
        return {party: folder / quote(party, safe="") / what for party in self.fed.tables}

    @property
    def listener(self) -> OnEvent | None:
        """Hears how far a role is; only roles in this process can tell."""
        return self.on_event if self.job.run.channel == "memory" else None
