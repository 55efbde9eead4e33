"""Sums over bags under encryption: the right rows and models, by every scheme."""

from functools import partial

import numpy as np
import pytest

from tests.pu.pu_cases import people
from vfsl.channel import Transcript, run_together
from vfsl.crypto import SCHEMES
from vfsl.data import Encoder, PartyTable
from vfsl.errors import ProtocolError
from vfsl.estimators import ModelShare, Part, Roles
from vfsl.pu import training

ROWS, MODELS = 60, 5


def parts_and_shares(parties):
    """Parts, and shares with made-up weights; the label holder's also have a constant."""
    frames, _, _ = people(rows=ROWS)
    rng = np.random.default_rng(0)
    parts, shares = {}, {}
    for party in parties:
        frame = frames["C" if party == "C" else "B"]
        table = PartyTable.from_frame(frame, party=party, id="id")
        encoder = Encoder(missing="impute").fit(table)
        width = encoder.transform(table).matrix.shape[1]
        weights = rng.normal(size=(width + (party == "C"), MODELS))
        state = {"encoder": encoder.to_dict(), "centres": [0.0] * width, "models": MODELS}
        parts[party] = Part(table, np.arange(ROWS))
        shares[party] = ModelShare(party, "logistic", state | {"weights": weights.tolist()})
    return parts, shares


def run(roles, voters, transcript=None, change=lambda share: share):
    parts, shares = parts_and_shares(roles.data_holders)

    def label_holder(channel):
        here = channel.within("sum", training.SUM_DISCLOSURES)
        return training.sum_label_holder(here, parts["C"], shares["C"], voters, roles)

    def feature_holder(channel, party):
        here = channel.within("sum", training.SUM_DISCLOSURES)
        training.sum_feature_holder(here, parts[party], change(shares[party]), roles)

    def key_holder(channel):
        training.sum_key_holder(channel.within("sum", training.SUM_DISCLOSURES), roles)

    jobs = {party: partial(feature_holder, party=party) for party in roles.feature_holders}
    jobs |= {"C": label_holder, "K": key_holder}
    sums = run_together(jobs, transcript=transcript)["C"]
    alone = [
        training.score_columns(parts[party], shares[party], constant=party == "C")
        for party in roles.data_holders
    ]
    return sums, (np.sum(alone, axis=0) * voters).sum(axis=1)


@pytest.fixture
def voters():
    made = np.random.default_rng(1).random((ROWS, MODELS)) < 0.5
    made[:3], made[:, 2] = False, False  # rows and a model that nobody asks about
    return made


@pytest.mark.parametrize("name", [name for name in SCHEMES if SCHEMES.find(name).encrypts])
def test_sums_of_voters(name, voters):
    security = 112 if name == "paillier" else 128
    sums, expected = run(Roles("C", ("B",), "K", name, security), voters)
    np.testing.assert_allclose(sums, expected, atol=1e-6)
    assert (sums[:3] == 0).all()


def test_two_feature_holders_in_any_order(voters):
    sums, expected = run(Roles("C", ("B", "D"), "K", "plain"), voters)
    np.testing.assert_allclose(sums, expected, atol=1e-6)


def test_messages(voters):
    transcript = Transcript()
    run(Roles("C", ("B",), "K", "plain"), voters, transcript)
    seen = [(e.sender, e.receiver, e.message, e.kind) for e in transcript.entries]
    assert len(seen) == 6
    assert ("B", "C", "bag scores", "ciphertext") in seen
    assert ("C", "K", "sum", "ciphertext") in seen
    assert ("K", "C", "opened sum", "masked") in seen


def test_a_share_with_other_models_is_refused(voters):
    def fewer(share):
        weights = np.asarray(share.state["weights"])[:, :3]
        return ModelShare(
            "B", "logistic", {**share.state, "weights": weights.tolist(), "models": 3}
        )

    with pytest.raises(ProtocolError, match="scores of 3 models; expected 5"):
        run(Roles("C", ("B",), "K", "plain"), voters, change=fewer)
