"""What a party does in a run between organisations: handshake, consent, steps, results.

Holds   every party: its own folder and table; the leader: the job, which it has submitted.
Learns  everybody: the job, who agreed, who had finished what. The leader: why a party refused.
        The relay: the names of run and parties, and a salted hash of the job.
Nothing about the data leaves a party before all have agreed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from vfsl.channel import Attempt, Channel, Transcript, seal
from vfsl.channel.transport import Transport
from vfsl.data import PartyTable
from vfsl.deploy.budget import KeptBudget
from vfsl.deploy.config import PartyFile, load_party, seal_key
from vfsl.deploy.consent import agreement, refusals
from vfsl.deploy.job import opened_job
from vfsl.deploy.runs import Refused, RunFolder
from vfsl.deploy.showing import announced_refusals, budget_of, fingerprint_of
from vfsl.deploy.versions import check_versions, exchange_versions
from vfsl.draws import SYSTEM, PrivateSeed
from vfsl.errors import ConfigError, ProtocolError
from vfsl.job.play import play
from vfsl.job.schema import SharedJob, TestSection
from vfsl.job.steps import Step
from vfsl.record import PartyFacts, RunRecord, StepRecord, versions
from vfsl.rows import split_off_marks
from vfsl.site import AlignmentTerms, Site, Terms, TestRows, make_records
from vfsl.store import read_json, write_json
from vfsl.values import Disclosure, Disclosures

_FINGERPRINT_KEY = "fingerprint.key"

DISCLOSURES: Disclosures = {
    "job": Disclosure(str, "the job: its steps and settings"),
    "answer": Disclosure(
        dict, "whether the sender agrees, why not, and which steps it has finished before"
    ),
    "start": Disclosure(dict, "from which step on all go on, or that the job is refused"),
}


@dataclass(frozen=True)
class Announced:
    """What the engine job says of a run before the parties talk to each other."""

    run: str
    attempt: int
    leader: str
    parties: tuple[str, ...]
    job: str  # its hash


class Ending(Transport, Protocol):
    """A transport that says how a party's work ended, and hears of others at once."""

    on_failure: Callable[[str, str], None] | None

    def progress(self) -> None: ...

    def close(self) -> None: ...

    def abandon(self, error: BaseException) -> None: ...


def take_part(
    facts: Announced, me: str, folder: Path, open_transport: Callable[[tuple[str, ...]], Ending]
) -> None:
    """One party's side of a whole attempt; how it ends stands in the party's own folder."""
    kept = RunFolder(folder, facts.run)
    # Opened first: a party that cannot even begin, as on a full disk, can tell the others why.
    transport = open_transport(tuple(party for party in facts.parties if party != me))
    transport.on_failure = kept.note_failure
    try:
        kept.begin(facts.attempt, facts.job)
        _run_steps(facts, folder, kept, transport)
        kept.prepare()
        transport.close()
    except Refused as error:
        kept.fail(error)
        transport.close()  # nothing has failed: all know, and all end here
        raise
    except BaseException as error:
        with suppress(OSError):  # on a full disk the others are told all the same
            kept.fail(error)
        transport.abandon(error)
        raise
    kept.note("finished", "The run has ended well.")
    kept.publish()


def _run_steps(facts: Announced, folder: Path, kept: RunFolder, transport: Ending) -> None:
    mine = load_party(folder)
    if mine.party != transport.me:
        raise ConfigError(f"{folder} is the folder of {mine.party!r}, not of {transport.me!r}.")
    check_versions(exchange_versions(transport, mine.limits.seconds))
    attempt = Attempt(facts.run, facts.attempt, bytes.fromhex(facts.job))
    sealed = seal(transport, seal_key(folder), mine.pins(), attempt, mine.limits.seconds)
    transcript = Transcript()
    channel = Channel(sealed, transcript, timeout=mine.limits.seconds)
    talk = channel.within("agreement", DISCLOSURES)
    job = _receive_job(talk, facts, kept)
    if isinstance(job, str):
        answer = {"agrees": False, "reasons": [f"{mine.party!r} {job}"], "finished": 0, "plan": ""}
        _agree(talk, facts, None, answer)
        raise Refused(job)
    reasons, table, test = refusals(mine, job, facts.leader), None, None
    done = kept.finished_steps(facts.job)
    if not reasons and mine.role == "data":
        table = mine.read_table(folder)
        reasons = _missing_columns(mine.party, table, job)
        reasons += announced_refusals(mine, job, table, KeptBudget(folder), done)
    if not reasons and job.test is not None:
        table, test = _test_rows(mine.party, table, job.test)
    answer = {"agrees": not reasons, "reasons": reasons, "finished": done}
    answer["plan"] = kept.standing(facts.job, done).get("plan", "")
    start = _agree(talk, facts, job, answer)
    terms = Terms(
        tuple(job.parties), job.run.key_holder, job.run.scheme, job.run.security, job.run.seed
    )
    site = Site(
        mine.party,
        terms,
        PrivateSeed.kept_in(kept.private_seed, mine.party),
        table,
        alignment=AlignmentTerms(
            mine.alignment_limits(),
            folder / "alignment",
            lasting=True,
            id_options={
                "normalise": job.ids.normalise(),
                "duplicates": "error" if mine.table is None else mine.table.duplicates,
            },
        ),
        results=kept.state / "work",
        pages=kept.state / "work",
        test=test,
        on_event=lambda event: transport.progress(),  # others wait while long work goes on
    )
    kept.forget_from(facts.job, start + 1, done)
    records = kept.records(facts.job, start)
    if start:
        site.load_standing(kept.state / f"standing-{start}", kept.standing(facts.job, start))
    else:
        records = [_agreement_record(job, facts, transcript)]
    kept.finished = start
    for number, step in enumerate(job.steps, start=1):
        if number > start:
            site.number, site.folder = number, kept.state / f"step-{number}"
            records += _play_step(site, mine, folder, sealed, step, facts.run, job.run.seconds)
            standing = site.save_standing(kept.state / f"standing-{number}")
            kept.keep(facts.job, number, records, standing)
            kept.finished = number
            kept.note("running", f"Step {number} of {len(job.steps)} has ended.")
    _write_record(site, folder, facts, records)


def _receive_job(talk: Channel, facts: Announced, kept: RunFolder) -> SharedJob | str:
    """The job: from the own folder at the leader, from the leader at everybody else.

    A sentence instead, if this version of vfsl cannot read it.
    """
    if talk.me == facts.leader:
        content = read_json(kept.path / "job.json")
        if content["attempt"] != facts.attempt or content["hash"] != facts.job:
            raise ProtocolError(
                f"Run {facts.run!r} was not submitted here as attempt {facts.attempt}."
            )
        text = str(content["text"])
        for peer in talk.peers:
            talk.send(peer, "job", text)
    else:
        text = talk.receive(facts.leader, "job")
    return opened_job(text, facts.job, facts.leader)


def _agree(talk: Channel, facts: Announced, job: SharedJob | None, answer: dict[str, Any]) -> int:
    """Everybody's answer, and the last step that all have finished; Refused if one disagrees."""
    if talk.me != facts.leader:
        talk.send(facts.leader, "answer", answer)
        start = talk.receive(facts.leader, "start")
        if answer["reasons"]:
            raise Refused(" ".join(answer["reasons"]))
        if start["refused"]:
            raise Refused(f"The job was refused by {', '.join(map(str, start['refused']))}.")
        return int(start["finished"])
    answers = {facts.leader: answer}
    for peer in talk.peers:
        answers[peer] = talk.receive(peer, "answer")
    refused = [party for party, one in answers.items() if one["agrees"] is not True]
    finished = 0 if job is None or refused else common_start(job, answers)
    for peer in talk.peers:
        talk.send(peer, "start", {"finished": finished, "refused": refused})
    if refused:
        reasons = [str(text) for party in refused for text in answers[party]["reasons"]]
        raise Refused(" ".join(reasons))
    return finished


def common_start(job: SharedJob, answers: dict[str, dict[str, Any]]) -> int:
    """How many steps all parties have finished, with the same row plan; else none."""
    finished = min(int(answer["finished"]) for answer in answers.values())
    aligned = job.aligned_before(finished + 1)
    plans = {str(answers[party]["plan"]) for party in aligned}
    return finished if len(plans) == 1 and plans != {""} else 0


def _missing_columns(me: str, table: PartyTable, job: SharedJob) -> list[str]:
    """Columns that the job wants of this party and its table does not have."""
    wanted = set(job.labels_in_steps(me))
    if job.test is not None and job.test.column is not None and job.test.column[0] == me:
        wanted.add(job.test.column[1])
    return [f"{me!r} has no column {name!r}." for name in sorted(wanted - set(table.columns))]


def _test_rows(
    me: str, table: PartyTable | None, test: TestSection
) -> tuple[PartyTable | None, TestRows]:
    """Which rows the job holds out, as far as this party knows it; marks are no feature."""
    if test.column is None:
        return table, TestRows(test.share)
    if table is None or test.column[0] != me:
        return table, TestRows(party=test.column[0])
    return split_off_marks(table, test.column[1])


def _play_step(
    site: Site,
    mine: PartyFile,
    folder: Path,
    sealed: Transport,
    step: Step,
    run: str,
    seconds: float,
) -> list[StepRecord]:
    """Play a step over a channel with a transcript of its own, within the party's budget."""
    transcript, site.outcomes = Transcript(), []
    budget = None  # without a table there is nothing to show
    if site.table is not None:
        budget = budget_of(site, mine, folder, step, run, _fingerprint_key(folder))
    channel = Channel(sealed, transcript, timeout=seconds, budget=budget)
    play(step, site, channel.within(f"step {site.number}"))
    return make_records(site.outcomes, transcript)


def _agreement_record(job: SharedJob, facts: Announced, transcript: Transcript) -> StepRecord:
    agreed = ", ".join(job.everyone)
    notes = (f"Submitted by {facts.leader}; agreed to by {agreed}.", *agreement(job))
    settings = {"leader": facts.leader, "parties": list(job.everyone), "job": facts.job}
    return StepRecord("agreement", settings, 0.0, notes=notes, flows=transcript.flows("agreement"))


def _write_record(site: Site, folder: Path, facts: Announced, records: list[StepRecord]) -> None:
    """The party's own record of the run: what left it, and what it may tell about its own data."""
    own = {}
    if site.table is not None:
        print_of_data = fingerprint_of(site.table, _fingerprint_key(folder))
        own = {site.me: PartyFacts(len(site.table), len(site.table.columns), print_of_data)}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    terms = site.terms
    record = RunRecord(
        facts.run, now, terms.seed, terms.scheme, own, tuple(records), versions(), SYSTEM
    )
    record.save(site.pages or folder)


def _fingerprint_key(folder: Path) -> bytes:
    """The party's own key for fingerprints of its data, kept so that runs can be compared."""
    path = folder / _FINGERPRINT_KEY
    if not path.exists():
        write_json(path, os.urandom(32).hex())
        path.chmod(0o600)
    return bytes.fromhex(read_json(path))
