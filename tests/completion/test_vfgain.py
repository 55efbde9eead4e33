"""VF-GAIN: equal to one network in one process, what crosses, and what it refuses."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from tests.completion.gen_cases import A, B, block_frame, federation, party, rng
from vfsl.channel import Transcript, run_together, wire
from vfsl.completion import VFGAIN
from vfsl.completion.imputers import vfgain
from vfsl.completion.imputers.halves import Embedder, Filler
from vfsl.completion.training import arrays_of
from vfsl.data import PartyTable
from vfsl.draws import draw_announced_seed
from vfsl.errors import ConfigError, DataError, ProtocolError, StoreError
from vfsl.parallel import using_threads
from vfsl.parts import Part, Roles
from vfsl.store import Checkpoints

PLAN = VFGAIN(epochs=3, batch_size=40, width=16, embedding=4)
ROLES = Roles("B", ("A",), "K")


def tables(rows=120, seed=0):
    frame, _, _ = block_frame(rows, seed)
    return party(frame[A], "A"), party(frame[B], "B")


def train(given, missing, plan=PLAN, transcript=None, on="memory"):
    players = {"A": player(given, plan, 1), "B": player(missing, plan, 2)}
    return run_together(players, transcript=transcript, on=on)


def player(table, plan, seed, **more):
    part = Part(table, np.arange(len(table)))
    return partial(plan.train, part=part, roles=ROLES, rng=rng(seed), **more)


def one_process(given, missing, plan):
    """The same networks as one graph: gradients flow through the embedding by autograd alone."""
    with using_threads(1):
        embedder = Embedder.learn(plan, given, rng(1))
        source = rng(2)
        filler = Filler.learn(plan, missing, source)
        order = torch.Generator().manual_seed(draw_announced_seed(source))
        inputs, rows = embedder.inputs(given), filler.rows(missing)
        held = len(given) // 10
        batches = round((len(given) - held) / plan.batch_size)
        best, kept = None, None
        for _ in range(plan.epochs):
            shuffled = torch.randperm(len(given) - held, generator=order)
            for batch in shuffled.tensor_split(batches):
                vectors: Tensor = embedder.embed(inputs[held + batch])
                losses = filler.losses(rows.take(held + batch), vectors)
                optimisers = [embedder.optimisers["embedder"], filler.optimisers["generator"]]
                for optimiser in optimisers:
                    optimiser.zero_grad(set_to_none=True)
                (losses["cells"] + losses["adversarial"]).backward()
                for optimiser in optimisers:
                    optimiser.step()
            with torch.no_grad():
                score, _ = filler.judge(rows.take(slice(held)), embedder.embed(inputs[:held]))
            if best is None or score < best:
                best = score
                kept = [
                    {k: v.copy() for k, v in arrays_of(part).items()}
                    for part in (embedder.networks, filler.networks)
                ]
        return kept


@pytest.mark.parametrize("pieces", [0, 12])
def test_two_parties_train_the_network_of_one_process(pieces):
    given, missing = tables()
    plan = replace(PLAN, pieces=pieces)
    shares = train(given, missing, plan)
    for share, expected in zip(
        (shares["A"], shares["B"]), one_process(given, missing, plan), strict=True
    ):
        found = share.arrays
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-6, err_msg=key)


def test_same_seed_same_networks_and_no_global_seeding():
    given, missing = tables()
    torch.manual_seed(0)
    state = torch.get_rng_state()
    one, two = train(given, missing), train(given, missing)
    assert torch.equal(state, torch.get_rng_state())
    for party_name in ("A", "B"):
        first, second = (run[party_name].arrays for run in (one, two))
        for key in first:
            np.testing.assert_array_equal(first[key], second[key])


class Crash(Exception):
    """Stands for a power cut."""


@pytest.mark.parametrize("lost", [False, True], ids=["both kept it", "one lost its last"])
def test_a_broken_training_goes_on_to_the_same_networks(tmp_path, lost):
    given, missing = tables()
    plan = replace(PLAN, epochs=23, patience=30)
    whole = train(given, missing, plan)
    kept = {party: Checkpoints(tmp_path / party, "training") for party in "AB"}

    def attempt(on_event):
        return run_together(
            {
                "A": player(given, plan, 1, kept=kept["A"]),
                "B": player(missing, plan, 2, kept=kept["B"], on_event=on_event),
            }
        )

    def crash(event):
        if event.done == 21:
            raise Crash

    with pytest.raises(Crash):
        attempt(crash)
    assert kept["A"].numbers("epoch") == kept["B"].numbers("epoch") == [10, 20]
    if lost:
        kept["A"].forget("epoch-20")
    heard = []
    resumed = attempt(heard.append)
    assert heard[0].done == (11 if lost else 21)
    for name in "AB":
        assert resumed[name] == whole[name]
        for key, value in whole[name].arrays.items():
            np.testing.assert_array_equal(value, resumed[name].arrays[key], err_msg=key)


def test_checkpoints_of_another_training_are_refused(tmp_path):
    given, missing = tables()
    plan = replace(PLAN, epochs=10)
    for job in ("one", "other"):
        kept = [Checkpoints(tmp_path / party, job) for party in "AB"]
        players = {
            "A": player(given, plan, 1, kept=kept[0]),
            "B": player(missing, plan, 2, kept=kept[1]),
        }
        if job == "one":
            run_together(players)
        else:
            with pytest.raises(StoreError, match="kept by another job"):
                run_together(players)


def test_parties_with_other_settings_notice_it():
    given, missing = tables()
    plan = replace(PLAN, epochs=30, rate=0.0, patience=30)
    players = {
        "A": player(given, replace(plan, patience=1), 1),
        "B": player(missing, plan, 2),
    }
    with pytest.raises(ProtocolError, match="give both parties the same settings"):
        run_together(players)


def test_each_side_completes_from_its_channel_alone():
    fed, truth = federation(100)
    model = VFGAIN(epochs=2, batch_size=50, width=8).fit(fed)
    sites = {name: fed.share(name) for name in "AB"}
    players = {
        name: partial(
            model.complete_rows,
            part=Part(fed.tables[name], sites[name].overlap, rest=sites[name].rest),
            share=model.shares_[name],
            roles=ROLES,
            rng=fed.sites[name].private.rng("vfgain complete"),
        )
        for name in "AB"
    }
    done = run_together(players)
    assert done["A"] is None
    assert len(done["B"].values) == len(truth)
    pd.testing.assert_frame_equal(done["B"].means, model.complete(fed).means)


def test_only_declared_messages_cross_and_only_those_shapes():
    given, missing = tables()
    transcript = Transcript(keep_views=True)
    train(given, missing, transcript=transcript)
    kinds = {(e.sender, e.message) for e in transcript.entries}
    assert kinds == {
        ("A", "rows"),
        ("B", "rows"),
        ("B", "order seed"),
        ("A", "kept"),
        ("B", "resume"),
        ("A", "embedding"),
        ("B", "gradient"),
        ("B", "verdict"),
    }
    for sight in transcript.sights:
        if sight.name.endswith(("embedding", "gradient")):
            _, value = wire.decode(sight.body)
            assert value.shape[1] == PLAN.embedding
            assert value.dtype == np.float32


def test_no_column_of_a_crosses():
    """Planted numbers appear in no message, neither as they are nor standardised."""
    given, missing = tables()
    marker = np.array([12345.671875, -9876.54296875])
    frame = given.frame.copy()
    frame.loc[[3, 30], "a1"] = marker
    given = party(frame, "A")
    transcript = Transcript(keep_views=True)
    share = train(given, missing, transcript=transcript)["A"]
    encoded = Embedder.learn(PLAN, given, rng(1)).inputs(given).numpy()[[3, 30], 0]
    # The planted numbers are the largest and the smallest: A's own knots end in them.
    ends = share.arrays["pieces.knots"][0, [-1, 0]]
    np.testing.assert_array_equal(ends, encoded)
    secrets = [
        value.astype(kind).tobytes() for value in (marker, encoded) for kind in ("<f4", "<f8")
    ]
    pieces = [part for text in secrets for part in (text[: len(text) // 2], text[len(text) // 2 :])]
    seen = [sight.body for sight in transcript.sights if sight.receiver == "B"]
    assert len(seen) > 5
    for body in seen:
        for piece in pieces:
            assert piece not in body


def test_the_pieces_of_each_party():
    given, missing = tables()
    for pieces in (0, 5):
        plan = replace(PLAN, pieces=pieces)
        embedder = Embedder.learn(plan, given, rng(1))
        assert embedder.inputs(given).shape[1] == 2 + 2 + 2 * pieces
        assert embedder.networks["embedder"][0].in_features == 2 + 2 + 2 * pieces
        # b1, b2, two kinds; the mask; the embedding. Numbers that are always hidden have no pieces.
        for known, count in ((), 0), (("kind",), 0), (("b2",), pieces):
            filler = Filler.learn(replace(plan, known=known), missing, rng(2))
            assert filler.networks["generator"][0].in_features == 4 + 3 + PLAN.embedding + count
    knots = filler.networks["pieces"].knots
    column = missing.column("b2").to_numpy(dtype=float)
    cuts = np.quantile((column - column.mean()) / column.std(), np.linspace(0, 1, 6))
    np.testing.assert_allclose(knots[0].numpy(), cuts, atol=1e-5)


def test_the_generator_sees_the_pieces_of_known_numbers():
    _, missing = tables()
    filler = Filler.learn(replace(PLAN, known=("b2",)), missing, rng(2))
    seen = []
    filler.networks["generator"].register_forward_pre_hook(lambda _, inputs: seen.append(*inputs))
    rows, vectors = filler.rows(missing), torch.zeros(len(missing), PLAN.embedding)
    for known in (rows.known, torch.zeros_like(rows.known)):
        filler.fill(rows, known, vectors)
    expected = filler.networks["pieces"](rows.values[:, [1]], torch.ones(len(missing), 1))
    assert torch.equal(seen[0][:, -PLAN.pieces :], expected)
    assert not seen[1][:, -PLAN.pieces :].any()


def test_pieces_change_the_fill():
    fed, _ = federation(100)
    filled = []
    for pieces in (0, 12):
        model = VFGAIN(epochs=2, batch_size=50, width=8, pieces=pieces).fit(federation(100)[0])
        filled.append(model.complete(fed).means)
    assert not filled[0].equals(filled[1])


def test_a_cell_of_b_is_seen_by_a_only_through_gradients_and_verdicts():
    given, missing = tables()
    frame = missing.frame.copy()
    frame.loc[50, "b1"] += 1.0
    views = []
    for table in (missing, party(frame, "B")):
        transcript = Transcript(keep_views=True)
        train(given, table, PLAN, transcript)
        views.append(
            [
                (s.name, s.body)
                for s in transcript.sights
                if s.receiver == "A" and not s.name.endswith(("gradient", "verdict"))
            ]
        )
    assert views[0] == views[1]
    assert [name for name, _ in views[0]] == ["vfgain/rows", "vfgain/order seed", "vfgain/resume"]


def test_disclosures_say_what_embedding_and_gradient_tell():
    assert "guess the sender's columns" in vfgain.DISCLOSURES["embedding"].fact
    assert "hidden values" in vfgain.DISCLOSURES["gradient"].fact


def test_missing_columns_are_completed_from_the_others():
    fed, truth = federation(500)
    model = VFGAIN(epochs=60, batch_size=50, width=32).fit(fed)
    done = model.complete(fed)
    assert list(done.values.columns) == B
    assert len(done.values) == len(truth)
    gap = done.means["b1"] - truth["b1"]
    assert np.sqrt((gap**2).mean()) / truth["b1"].std() < 0.5
    assert (done.values["kind"] == truth["kind"]).mean() > 0.8
    assert str(done.values["b2"].dtype) == "int64"
    spread = done.spread["b1"].iloc[0]
    assert spread == pytest.approx(np.sqrt((gap**2).mean()), rel=0.5)
    steps = [step.name for step in fed.record.steps]
    assert steps == ["train vfgain", "complete vfgain"]
    facts = {flow.message: flow.fact for flow in fed.record.ledger}
    assert "may guess" in facts["embedding"]
    assert fed.record.steps[0].stop_reason == model.stop_reason_
    assert len(model.rounds_) == len(fed.record.steps[0].rounds)


def test_columns_that_b_already_has_are_used():
    fed, truth = federation(400)
    frame = truth[B].copy().astype({"b2": "Int64"})
    frame["b1"], frame["b2"] = np.nan, pd.NA
    preliminary = PartyTable("B", np.arange(len(frame)), frame, dict(fed.tables["B"].kinds))
    model = VFGAIN(epochs=30, batch_size=50, width=32, known=["kind"]).fit(fed)
    done = model.complete(fed, preliminary)
    assert done.values["kind"].tolist() == truth["kind"].tolist()
    assert done.values["b1"].notna().all()
    with pytest.raises(DataError, match="preliminary values for 3 rows"):
        model.complete(fed, preliminary.take([0, 1, 2]))


@pytest.mark.slow
def test_processes_give_the_same_networks():
    given, missing = tables()
    here, apart = train(given, missing), train(given, missing, on="processes")
    for name in ("A", "B"):
        one, two = (run[name].arrays for run in (here, apart))
        for key in one:
            np.testing.assert_allclose(one[key], two[key], rtol=1e-6, atol=1e-7)


def test_bad_input_is_one_sentence():
    fed, _ = federation(60)
    with pytest.raises(ConfigError, match="call fit first"):
        VFGAIN().complete(fed)
    with pytest.raises(ConfigError, match="asked for party 'Z'"):
        VFGAIN().fit(fed, given="Z")
    with pytest.raises(ConfigError, match="epochs parameter of VFGAIN"):
        VFGAIN(epochs=0).fit(fed)
    with pytest.raises(ConfigError, match="pieces parameter of VFGAIN"):
        VFGAIN(pieces=-1).fit(fed)
    with pytest.raises(DataError, match="must be some of its own, but not all"):
        VFGAIN(known=B).fit(fed)
    with pytest.raises(DataError, match="must be some of its own, but not all"):
        VFGAIN(known=["a1"]).fit(fed)
    given, missing = tables()
    with pytest.raises(DataError, match="the same aligned rows at both parties"):
        train(given, missing.take(np.arange(100)))
    with pytest.raises(DataError, match="at least 20"):
        train(given.take(np.arange(10)), missing.take(np.arange(10)))


def test_a_wrong_embedding_is_refused():
    _, missing = tables()

    def stranger(channel):
        inner = channel.within("vfgain", vfgain.DISCLOSURES)
        inner.send("B", "rows", 120)
        inner.receive("B", "rows")
        inner.receive("B", "order seed")
        inner.send("B", "kept", [])
        inner.receive("B", "resume")
        scope = inner.within("epoch 0")
        scope.send("B", "embedding", np.zeros((3, 4), dtype=np.float32))
        scope.receive("B", "gradient")

    with pytest.raises(ProtocolError, match="'embedding' with shape"):
        run_together({"A": stranger, "B": player(missing, PLAN, 2)})
