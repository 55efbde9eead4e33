"""Attack: a client goes through a block of guessed numbers and learns who is a customer.

The server has 800 customers with numbers from a block of 10,000. The client follows the protocol
with a list of all of them. Nothing in a set intersection tells guesses from customers; a cap limits
how many there are.
"""

from functools import partial

import numpy as np
import pytest

from vfsl.align import Alignment, CurveKey, Limits, intersect_client, intersect_server, prepare_ids
from vfsl.channel import run_together
from vfsl.errors import LimitReached

BLOCK = [f"+86 139 0000 {number:04d}" for number in range(10_000)]


@pytest.fixture(scope="module")
def customers():
    return sorted(np.random.default_rng(7).choice(BLOCK, 800, replace=False).tolist())


def probe(guesses, customers, state, key, limits):
    """The guesses that the client knows to be customers after one alignment."""
    server = Alignment(protocol="ecdh", key=key, limits=limits, state=state, lasting=True)
    roles = {
        "attacker": partial(
            intersect_client,
            server="server",
            ids=prepare_ids("attacker", guesses),
            how=Alignment(protocol="ecdh", limits=Limits(minimum=0)),
        ),
        "server": partial(
            intersect_server, client="attacker", ids=prepare_ids("server", customers), how=server
        ),
    }
    found = run_together(roles)["attacker"]
    return {guesses[row] for row in found.numbers}


def test_a_block_of_guesses_is_refused(customers, tmp_path):
    with pytest.raises(LimitReached, match=r"may ask about 2400 \(3 × the own list\)"):
        probe(BLOCK, customers, tmp_path, CurveKey.generate(), Limits())


def test_small_parts_of_the_block_add_up_to_the_same_cap(customers, tmp_path):
    """Each part under the cap, a new key in each run as well: 2,400 ids in all, then no more."""
    found = set()
    for start in range(0, 2_400, 1_200):
        part = BLOCK[start : start + 1_200]
        found |= probe(part, customers, tmp_path, CurveKey.generate(), Limits())
    assert found == set(customers) & set(BLOCK[:2_400])
    with pytest.raises(LimitReached, match="asked about 2400"):
        probe(BLOCK[2_400:2_401], customers, tmp_path, CurveKey.generate(), Limits())
    assert len(found) < 0.3 * len(customers)


def test_the_same_attack_finds_every_customer_where_the_cap_is_raised(customers, tmp_path):
    limits = Limits(asked=len(BLOCK))
    found = probe(BLOCK, customers, tmp_path, CurveKey.generate(), limits)
    assert found == set(customers)
    assert len(found) == 800
