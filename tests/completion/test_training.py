"""The training loop: progress, early stop, checkpoints that resume exactly, threads."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from tests.completion.gen_cases import TINY, mixed_frame, rng, tiny
from vfsl.completion import deep, find
from vfsl.completion.training import Training, train_networks
from vfsl.errors import ConfigError, StoreError
from vfsl.parallel import using_threads


class Scripted(Training):
    """A training whose held-out losses are given; its one weight counts the steps."""

    def __init__(self, held):
        self.networks = nn.ModuleDict({"one": nn.Linear(1, 1, bias=False)})
        nn.init.zeros_(self.networks["one"].weight)
        self.optimisers = {}
        self.held = iter(held)
        self.batches = []

    def step(self, rows):
        self.batches.append(rows)
        with torch.no_grad():
            self.networks["one"].weight += 1
        return {"loss": torch.tensor(2.0)}

    def validate(self):
        return next(self.held)


def run(task, rows=10, **budget):
    settings = {"epochs": 6, "batch_size": 5, **budget}
    return train_networks(task, rows, torch.Generator(), name="toy", **settings)


def test_every_epoch_visits_every_row_once():
    task = Scripted([])
    history = run(task, rows=11, epochs=2)
    assert len(task.batches) == 4
    for first in (0, 2):
        seen = torch.cat(task.batches[first : first + 2])
        assert sorted(seen.tolist()) == list(range(11))
    assert history.stop_reason == "all 2 epochs"
    assert history.losses == [{"loss": 2.0}] * 2


def test_early_stop_keeps_the_best_weights():
    task = Scripted([5.0, 3.0, 4.0, 3.5, 1.0])
    history = run(task, patience=2)
    assert history.stop_reason == "no better held-out loss for 2 epochs"
    assert len(history.losses) == 4
    assert task.networks["one"].weight.item() == 4.0  # after the second epoch of two steps


def test_progress_is_an_event_per_epoch():
    heard = []
    run(Scripted([]), epochs=3, on_event=heard.append)
    assert [(e.step, e.stage, e.done, e.total) for e in heard] == [
        ("toy", "epoch", n, 3) for n in (1, 2, 3)
    ]
    assert heard[0].losses == {"loss": 2.0}


def test_a_loss_that_is_not_finite_ends_training():
    class Diverging(Scripted):
        def step(self, rows):
            return {"loss": torch.tensor(float("nan"))}

    with pytest.raises(ConfigError, match="Training diverged: the loss 'loss'"):
        run(Diverging([]))


class Crash(Exception):
    """Stands for a power cut."""


@pytest.mark.parametrize("name", ["tvae", "ctgan", "tablegan", "tabddpm", "gain"])
def test_a_broken_training_resumes_to_the_same_model(name, tmp_path):
    settings = {"epochs": 23, "batch_size": 60}
    if name == "gain":
        settings |= {"patience": 50}
    frame = mixed_frame()
    whole = tiny(name, **settings).fit(frame, rng())

    def crash(event):
        if event.done == 15:
            raise Crash

    with pytest.raises(Crash):
        tiny(name, **settings, checkpoint=tmp_path / "kept", on_event=crash).fit(frame, rng())
    assert (tmp_path / "kept.training").exists()
    heard = []
    resumed = tiny(
        name, **settings, checkpoint=tmp_path / "kept", on_event=lambda e: heard.append(e.done)
    ).fit(frame, rng())
    assert heard[0] == 11  # checkpoints are kept every ten epochs
    for key, value in whole.arrays().items():
        np.testing.assert_array_equal(value, resumed.arrays()[key], err_msg=key)
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    def crash(event):
        if event.done == 12:
            raise Crash

    settings = {**TINY["vae"], "epochs": 20, "checkpoint": tmp_path / "kept"}
    with pytest.raises(Crash):
        find("vae")(**settings, on_event=crash).fit(mixed_frame(), rng())
    with pytest.raises(StoreError, match="kept by another job"):
        find("vae")(**settings).fit(mixed_frame(seed=1), rng())
    with pytest.raises(StoreError, match="kept by another job"):
        find("vae")(**{**settings, "rate": 0.5}).fit(mixed_frame(), rng())


def test_threads_are_put_back_by_the_last_user():
    before = torch.get_num_threads()
    first, second = using_threads(1), using_threads(1)
    first.__enter__()
    second.__enter__()
    assert torch.get_num_threads() == 1
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert torch.get_num_threads() == before


def test_early_stop_of_a_generator_holds_rows_out():
    model = tiny("tvae", epochs=200, patience=2).fit(mixed_frame(), rng())
    assert "no better held-out loss" in model.history_.stop_reason
    assert all("held out" in losses for losses in model.history_.losses)
    assert isinstance(model.sample(3, rng()), pd.DataFrame)


def test_many_rows_go_through_a_network_in_parts(monkeypatch):
    monkeypatch.setattr(deep, "SAMPLE_ROWS", 4)
    seen = []

    def double(rows):
        seen.append(len(rows))
        return 2 * rows

    rows = torch.arange(10.0)[:, None]
    assert torch.equal(deep.in_parts(double, rows), 2 * rows)
    assert seen == [4, 4, 2]
