"""Training over a channel equals training one network in one process, and resumes exactly."""

import json
from functools import partial

import numpy as np
import pytest

from vfsl.channel import run_together
from vfsl.errors import ChannelError, ProtocolError, StoreError
from vfsl.evidence import RISA
from vfsl.evidence.opinion import evidence_of, fuse, losses, opinion_of
from vfsl.evidence.rows import Universe, deal
from vfsl.lead import Leader
from vfsl.store import Checkpoints

torch = pytest.importorskip("torch")

# One stage on labelled rows only, so that a plain loop can repeat it.
PLAIN = {"self_train": False, "discount": False}


def weights(share):
    return json.dumps(share.state["weights"], sort_keys=True)


def one_process(risa, fed, label):
    """The same training as one graph: every party's network under one loss, one backward pass.

    The federation must be as it was before training: draws are not repeated.
    """
    from vfsl.evidence.encoders import MixedColumns, recipe_for
    from vfsl.evidence.networks import as_inputs, build_network, mean_row

    parts = fed.parts(label)
    parts = {party: parts[party] for party in risa.shares_["A"].state["parties"]}
    course = risa._course("A")
    switches, learning = course.switches, course.learning
    networks, inputs, fills, rngs = {}, {}, {}, {}
    for party, part in parts.items():
        rngs[party] = fed.private_rng(party, "RISA")
        table = part.table.take(part.all_rows)
        columns = MixedColumns.fit(table)
        made = [build_network(recipe_for("mlp", party), columns, 2, rngs[party]) for _ in range(2)]
        networks[party] = made[1]
        inputs[party] = as_inputs(columns.arrays(table))
        fills[party] = mean_row(inputs[party].take(np.arange(len(part.rows))), columns.levels)
    universe = Universe(
        tuple(parts), len(parts["A"].rows), {party: len(part.rest) for party, part in parts.items()}
    )
    labels = np.concatenate([parts["A"].target, parts["A"].rest_target]).astype(np.int64)
    optimisers = {
        party: torch.optim.AdamW(network.parameters(), weight_decay=learning.weight_decay)
        for party, network in networks.items()
    }
    seed = int(rngs["A"].integers(1 << 62))
    rows = np.arange(len(labels))
    for epoch in range(1, learning.epochs + 1):
        for batch in deal(rows, learning.batch_size, np.random.default_rng([seed, 2, epoch])):
            opinions, present = [], []
            for party, network in networks.items():
                local = universe.local(party, batch)
                said = evidence_of(network(inputs[party].take(np.maximum(local, 0)))).double()
                here = torch.as_tensor(local >= 0)[:, None]
                absent = torch.zeros_like(said)
                if switches.absent == "mean":
                    absent = evidence_of(network(fills[party])).double().expand_as(said)
                opinions.append(opinion_of(torch.where(here, said, absent)))
                present.append(here[:, 0])
            truth = torch.as_tensor(labels[batch])
            loss = losses(fuse(opinions, switches.fusion), truth).mean()
            for opinion, here in zip(opinions, present, strict=True):
                loss = loss + switches.party_loss * (losses(opinion, truth) * here).mean()
            for optimiser in optimisers.values():
                optimiser.zero_grad()
            loss.backward()
            for party, optimiser in optimisers.items():
                if switches.absent == "mean" or (universe.local(party, batch) >= 0).any():
                    optimiser.param_groups[0]["lr"] = learning.rate(epoch - 1)
                    optimiser.step()
    return networks


@pytest.mark.parametrize("variant", ["paper", "plus"])
@pytest.mark.parametrize("parties", [("A", "B"), ("A", "B", "C")], ids=["two", "three"])
def test_the_channel_changes_nothing(cases, variant, parties):
    made = cases.frames(parties=parties)
    risa = RISA(
        protect="none",
        variant=variant,
        switches=PLAIN | {"removal": "none"},
        epochs=3,
        batch_size=32,
    )
    risa.fit(cases.federation(made), cases.label)
    networks = one_process(risa, cases.federation(made), cases.label)
    from vfsl.evidence.networks import restore_weights

    for party, network in networks.items():
        expected = {name: value.clone() for name, value in network.state_dict().items()}
        restore_weights(network, risa.shares_[party].state["weights"])
        for name, value in network.state_dict().items():
            assert torch.allclose(value, expected[name], rtol=1e-4, atol=1e-5), (party, name)


@pytest.mark.slow
def test_identical_in_memory_and_in_processes(cases):
    made = cases.frames()
    kept = []
    for on in ("memory", "processes"):
        fed = cases.federation(made, on=on)
        risa = RISA(protect="none", epochs=2, batch_size=32, self_steps=10).fit(fed, cases.label)
        answers = risa.predict_proba(cases.federation(made))
        kept.append(({p: weights(s) for p, s in risa.shares_.items()}, answers.tolist()))
    assert kept[0] == kept[1]


def test_the_seed_repeats_a_run_and_another_does_not(cases):
    made = cases.frames()
    fits = [
        RISA(protect="none", epochs=2, self_steps=10).fit(
            cases.federation(made, seed=seed), cases.label
        )
        for seed in (0, 0, 1)
    ]
    first, again, other = ({p: weights(s) for p, s in fit.shares_.items()} for fit in fits)
    assert first == again
    assert first["B"] != other["B"]


def test_training_leaves_torchs_global_generator_alone(cases):
    state = torch.random.get_rng_state()
    RISA(protect="none", epochs=1, self_steps=5).fit(cases.federation(), cases.label)
    assert torch.equal(state, torch.random.get_rng_state())


def test_only_declared_messages_cross_and_no_column_does(cases):
    fed = cases.federation()
    RISA(protect="none", epochs=2, self_steps=10, switches={"discount": False}).fit(
        fed, cases.label
    )
    flows = {(flow.sender, flow.message) for flow in fed.transcript.flows("train risa")}
    assert flows == {
        ("B", "own rows"),
        ("A", "classes"),
        ("B", "kept"),
        ("A", "resume"),
        ("A", "order"),
        ("A", "rows"),
        ("B", "scores"),
        ("B", "evidence"),
        ("A", "gradient of scores"),
        ("A", "gradient of evidence"),
    }
    facts = fed.ledger.set_index("message")["fact"]
    assert "labels" in facts["gradient of evidence"]


def test_a_label_changes_no_message_of_the_passive_party_before_its_gradients(cases):
    from vfsl.federation import Federation

    views = []
    for flip in (False, True):
        made = cases.frames()
        if flip:
            made["A"].loc[0, "y"] = 1 - made["A"].loc[0, "y"]
        fed = cases.federation(made)
        fed = Federation(fed.tables, keep_views=True)
        fed.plan = cases.plan_for(made, 60)
        RISA(protect="none", epochs=1, self_steps=5, batch_size=512).fit(fed, cases.label)
        seen = [sight for sight in fed.transcript.sights if sight.receiver == "B"]
        views.append([(sight.name, sight.body) for sight in seen])
    before = [next(i for i, (name, _) in enumerate(view) if "gradient" in name) for view in views]
    assert views[0][: before[0]] == views[1][: before[1]]
    assert views[0][before[0]] != views[1][before[1]]


class _Crash(Exception):
    pass


def test_an_unfinished_training_goes_on_from_its_checkpoints(cases, tmp_path):
    made = cases.frames()

    def fitted(folder, stop_at=None, **changes):
        def listen(event):
            if event.stage == f"epoch {stop_at}":
                raise _Crash

        folders = {party: tmp_path / folder / party for party in made}
        risa = RISA(
            protect="none", epochs=6, batch_size=32, self_steps=10, checkpoint_every=2, **changes
        )
        return risa.fit(cases.federation(made), cases.label, state=folders, on_event=listen)

    whole = fitted("whole")
    with pytest.raises(_Crash):
        fitted("broken", stop_at=5)
    assert sorted(
        path.name for path in (tmp_path / "broken" / "B" / "risa" / "epochs").iterdir()
    ) == [
        "epoch-2.json",
        "epoch-2.npz",
        "epoch-4.json",
        "epoch-4.npz",
    ]
    with pytest.raises(StoreError, match="was kept by another job"):
        fitted("broken", learning_rate=0.1)
    resumed = fitted("broken")
    for party in made:
        assert weights(whole.shares_[party]) == weights(resumed.shares_[party])
        assert not list((tmp_path / "broken" / party).iterdir())
    assert whole.shares_["A"].rounds == resumed.shares_["A"].rounds


def _obey(channel):
    """Passive party with one network."""
    from vfsl.evidence import protocol
    from vfsl.evidence.encoders import Arrays
    from vfsl.evidence.networks import Learning, Member, NumbersOnly, as_inputs

    inputs = as_inputs(Arrays(np.zeros((4, 2), np.float32), np.zeros((4, 0), np.int64)))
    network = NumbersOnly(torch.nn.Linear(2, 2))
    member = Member(network, inputs, 2, (), "exp", Learning())
    channel = channel.within("risa", protocol.DISCLOSURES)
    protocol.obey_orders(channel, "A", {"evidence": member}, Checkpoints(None))


def _order(channel, order, rows):
    """Label holder that orders one thing."""
    from vfsl.evidence import protocol

    here = Leader(channel.within("risa", protocol.DISCLOSURES), ["B"]).order(**order)
    if rows is not None:
        here.send("B", "rows", rows)


def _rows(rows, ends):
    return {"rows": np.array(rows, np.int64), "ends": np.array(ends, np.int64)}


ANSWER = {"do": "answer", "stage": "evidence"}


@pytest.mark.parametrize(
    ("order", "rows", "says"),
    [
        ({"do": "dance"}, None, "does not know"),
        ({"do": "answer", "stage": "nothing"}, None, "does not know"),
        ({"do": "train", "stage": "evidence", "rate": "fast"}, None, "does not know"),
        ({"do": "keep", "epoch": "last"}, None, "does not know"),
        (ANSWER, _rows([4], [1]), "not among the 4"),
        (ANSWER, {"rows": [0], "ends": np.array([1])}, "expected an array"),
        ({**ANSWER, "do": "train"}, _rows([0, 1, 2], [2]), "do not fit"),
    ],
)
def test_wrong_orders_are_refused(order, rows, says):
    roles = {"A": partial(_order, order=order, rows=rows), "B": _obey}
    with pytest.raises((ProtocolError, ChannelError), match=says):
        run_together(roles)
