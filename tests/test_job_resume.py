"""A job that is interrupted anywhere goes on to the same results."""

import numpy as np
import pytest

from job_cases import COMPLETE, EVALUATE, HEAD, PU, RISA, TRAIN, files_below, vfsl, write_case
from vfsl.channel.transcript import Transcript

# Without advice, which trains many trees: that takes the slow test's time.
QUICK = HEAD + PU + COMPLETE.replace('label = "late"\nadvice_trees = 2\n', "") + TRAIN + EVALUATE
ALL = HEAD + PU + COMPLETE + TRAIN + RISA + EVALUATE


class Interrupter:
    """Counts messages, and stops the run at one of them as Ctrl-C would."""

    def __init__(self, monkeypatch):
        self.count, self.at = 0, None
        real = Transcript.note_sent

        def sent(transcript, *what, **more):
            self.count += 1
            if self.count == self.at:
                raise KeyboardInterrupt
            return real(transcript, *what, **more)

        monkeypatch.setattr(Transcript, "note_sent", sent)


def run(monkeypatch, folder, out):
    return vfsl(monkeypatch, "run", folder / "job.toml", "--out", folder / out, "--quiet")


def interrupted_everywhere(monkeypatch, folder, points, seed):
    """Run undisturbed, then stop at random messages again and again, each time going on."""
    stop = Interrupter(monkeypatch)
    assert run(monkeypatch, folder, "whole") == 0
    whole, total = files_below(folder / "whole"), stop.count
    assert len(whole) > 8
    for place in np.sort(np.random.default_rng(seed).choice(total, points, replace=False)):
        stop.count, stop.at = 0, int(place) + 1
        assert run(monkeypatch, folder, "out") == 130
        assert not (folder / "out").exists()
        assert (folder / "out.unfinished").is_dir()
        stop.count, stop.at = 0, None
        assert run(monkeypatch, folder, "out") == 0
        assert files_below(folder / "out") == whole
        assert not (folder / "out.unfinished").exists()
        (folder / "out").rename(folder / f"out-{place}")


def test_three_interruptions_lead_to_the_same_files(tmp_path, monkeypatch):
    write_case(tmp_path, QUICK)
    interrupted_everywhere(monkeypatch, tmp_path, 3, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twelve_interruptions_of_all_steps_lead_to_the_same_files(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    write_case(tmp_path, ALL)
    interrupted_everywhere(monkeypatch, tmp_path, 12, seed=2)


def test_finished_steps_are_not_done_again(tmp_path, monkeypatch):
    """Stopped in the last training, the second attempt sends little more than what was left."""
    write_case(tmp_path, QUICK)
    stop = Interrupter(monkeypatch)
    assert run(monkeypatch, tmp_path, "whole") == 0
    whole, total = files_below(tmp_path / "whole"), stop.count
    stop.count, stop.at = 0, total - 5
    assert run(monkeypatch, tmp_path, "out") == 130
    stop.count, stop.at = 0, None
    assert run(monkeypatch, tmp_path, "out") == 0
    assert stop.count < total / 10
    assert files_below(tmp_path / "out") == whole


def test_another_job_does_not_take_over_unfinished_work(tmp_path, monkeypatch, capsys):
    """What was kept stays until it is deleted."""
    write_case(tmp_path, QUICK)
    stop = Interrupter(monkeypatch)
    stop.at = 200
    assert run(monkeypatch, tmp_path, "out") == 130
    assert "goes on from there" in capsys.readouterr().err
    text = (tmp_path / "job.toml").read_text()
    (tmp_path / "job.toml").write_text(text.replace("seed = 3", "seed = 5"))
    assert run(monkeypatch, tmp_path, "out") == 1
    assert "another job or of other tables" in capsys.readouterr().err
    assert (tmp_path / "out.unfinished").is_dir()
