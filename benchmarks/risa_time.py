"""What the channel costs RISA: one epoch over it and in one process, and peak memory."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.memory import PeakMemory
from benchmarks.risa_data import Task, make_case, party_tables, require, split_rows
from benchmarks.rivals.harness import Problem
from vfsl.align import RowPlan, RowShare
from vfsl.data import Kind
from vfsl.datasets import load
from vfsl.evidence import RISA
from vfsl.evidence.networks import build_network
from vfsl.evidence.opinion import evidence_of, fuse, losses, opinion_of
from vfsl.evidence.rows import deal
from vfsl.federation import Federation
from vfsl.progress import Event

TASKS = {
    "census": Task("census", 10_000, 100, epochs=5),
    "mnist": Task("mnist", 2_000, 100, epochs=5, width=8),
    "digits": Task("digits", 700, 100, epochs=5),
}
OVERLAP = 0.5
TURNS = 3  # the best of each counts
# One stage, with every row labelled: the same work in both cases.
_SWITCHES = {"self_train": False, "discount": False, "removal": "none", "repeats": 1}


def overhead(name: str) -> dict[str, Any]:
    """Seconds of an epoch with and without a channel in turns, bytes per epoch, peak memory."""
    task = TASKS[name]
    require(task)
    channels, alones = [], []
    problem = make_case(task, OVERLAP, 0).problem
    with PeakMemory() as memory:
        for _ in range(TURNS):
            channel, megabytes = channel_epoch(task)
            channels.append(channel)
            alones.append(one_graph_epoch(problem))
    channel, alone = min(channels), min(alones)
    return {
        "what": "one epoch",
        "data": name,
        "overlap": f"{OVERLAP:.0%}",
        "epoch over a channel, s": channel,
        "epoch in one graph, s": alone,
        "ratio": channel / alone,
        "MB per epoch": megabytes,
        "peak MB": memory.megabytes,
    }


def channel_epoch(task: Task) -> tuple[float, float]:
    """The median epoch of RISA over a memory channel, and how many megabytes it sends."""
    content = load(task.data)
    train, _ = split_rows(content, task, 0, np.random.default_rng(0))
    tables, recipe = party_tables(content, train, task)
    labels = content.frame[content.label].iloc[train].astype(str).to_numpy()
    first = tables[0].with_column("label", labels, Kind.LABEL)
    aligned = round(OVERLAP * len(train))
    shares = {
        party: RowShare(
            party,
            "bench",
            np.arange(aligned, dtype=np.int64),
            np.arange(aligned, len(train), dtype=np.int64),
        )
        for party in "AB"
    }
    fed = Federation({"A": first, "B": tables[1]})
    fed.plan = RowPlan(shares)
    stamps: list[float] = []
    risa = RISA(
        encoder=recipe,
        switches=_SWITCHES,
        epochs=task.epochs,
        batch_size=task.batch_size,
    )

    def listen(event: Event) -> None:
        if event.stage.startswith("epoch"):
            stamps.append(time.perf_counter())

    risa.fit(fed, ("A", "label"), on_event=listen)
    sent = sum(entry.bytes for entry in fed.transcript.entries)
    return float(np.median(np.diff(stamps))), sent / 1e6 / task.epochs


def one_graph_epoch(problem: Problem) -> float:
    """The median epoch of the same networks under one loss, one backward pass, one optimiser."""
    import torch

    rng = np.random.default_rng(0)
    networks = [
        build_network(view.recipe, view.columns, problem.classes, rng) for view in problem.views
    ]
    parameters = [weight for network in networks for weight in network.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=problem.learning.learning_rate, fused=True)
    stamps = [time.perf_counter()]
    for _ in range(problem.learning.epochs):
        for batch in deal(problem.labelled(), problem.learning.batch_size, rng):
            both = batch < problem.overlap
            first = evidence_of(networks[0](problem.views[0].inputs.take(batch))).double()
            said = evidence_of(networks[1](problem.views[1].inputs.take(batch[both]))).double()
            second = torch.zeros_like(first)
            second[torch.as_tensor(both)] = said
            opinions = [opinion_of(first), opinion_of(second)]
            truth = torch.as_tensor(problem.labels[batch])
            loss = losses(fuse(opinions, "symmetric"), truth).mean()
            loss = loss + losses(opinions[0], truth).mean()
            loss = loss + (losses(opinions[1], truth) * torch.as_tensor(both)).mean()
            optimiser.zero_grad()
            torch.autograd.backward([loss])
            optimiser.step()
        stamps.append(time.perf_counter())
    return float(np.median(np.diff(stamps)))
