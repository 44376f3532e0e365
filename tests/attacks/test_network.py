"""Faults of the network between real controllers: who leads meanwhile, and what clients see.

One quorum behind proxies serves all tests; each leaves it whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from quorate.rpc.client.quorum_client import QuorumClient

from tests.soak.load import Load
from tests.soak.network import OUTSIDE, Impairment, Network
from tests.soak.nodes import FaultyNode, FaultyQuorum

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]

IDS = (1, 2, 3)
SOME = 100
FETCH_TIMEOUT_S = 4.0
"""Longer than a busy machine stalls: with one voter cut off, a stall of any other one elects."""
ELECTION_S = 15.0
"""Within which another leads: three times the fetch and the election timeout."""
CUT_S = 5.5
"""The voter that is cut off stands meanwhile."""
UNDISTURBED_S = 4.0
LOSS_ROUNDS = 5
"""Of CUT_S: a slow machine sends few messages, and 2 of 100 get lost."""


@dataclass(slots=True)
class Lab:
    quorum: FaultyQuorum
    network: Network
    load: Load

    async def roles(self) -> tuple[FaultyNode, int, list[FaultyNode]]:
        """The leader, its epoch, and the followers."""
        leader, epoch = await self.quorum.leader()
        return leader, epoch, [node for node in self.quorum.nodes.values() if node is not leader]

    async def another_leads(self, leader: FaultyNode, epoch: int) -> None:
        """Another is elected, as the nodes themselves say, and appends succeed."""
        ids = [node for node in self.quorum.nodes.values() if node is not leader]
        async with QuorumClient([node.address for node in ids]) as client:
            deadline = asyncio.get_running_loop().time() + ELECTION_S
            while True:
                described = await client.describe_quorum()
                found = described.response.leader
                if described.is_leaders_view and found.epoch > epoch and found.id != leader.id:
                    return
                assert asyncio.get_running_loop().time() < deadline, f"{found} after {epoch}"
                await asyncio.sleep(0.1)

    async def stays(self, leader: FaultyNode, epoch: int) -> None:
        """The leader has led all the time."""
        now, epoch_now = await self.quorum.leader()
        assert (now.id, epoch_now) == (leader.id, epoch)

    def gap_s(self) -> float:
        return self.load.writes.longest_gap_s


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lab]:
    """The quorum and its clients; at the end the whole history is checked."""
    network = Network(1)
    settings = {"controller.quorum.fetch.timeout.ms": int(FETCH_TIMEOUT_S * 1000)}
    folder = tmp_path_factory.mktemp("network")
    quorum = FaultyQuorum(folder, None, IDS, network=network, **settings)
    try:
        await quorum.start()
        load = Load(quorum.addresses)
        await load.start()
        yield Lab(quorum, network, load)
        violations = await load.verify()
        assert not violations, [str(violation) for violation in violations[:5]]
        assert load.read_count > 0
    finally:
        await quorum.close()


@pytest_asyncio.fixture(loop_scope="module")
async def lab(running: Lab) -> AsyncIterator[Lab]:
    """The same, whole before and after the test, with a gap that is measured anew."""
    await running.quorum.whole()
    await running.load.progress(SOME)
    running.load.writes.measure()
    yield running
    running.network.heal()
    await running.quorum.whole()
    await running.load.progress(SOME)
    assert not running.load.history.violations


@pytest.mark.parametrize("clients", [False, True], ids=["peers", "peers-and-clients"])
async def test_a_leader_whose_messages_arrive_nowhere_is_replaced(lab: Lab, clients: bool) -> None:
    leader, epoch, others = await lab.roles()
    ends = [node.id for node in others] + [OUTSIDE] * clients
    lab.network.cut(lab.network.between([leader.id], ends))
    await lab.another_leads(leader, epoch)
    await lab.load.progress(SOME)


async def test_a_leader_that_hears_nothing_is_replaced(lab: Lab) -> None:
    leader, epoch, others = await lab.roles()
    lab.network.cut(lab.network.between([node.id for node in others], [leader.id]))
    await lab.another_leads(leader, epoch)
    await lab.load.progress(SOME)


async def test_a_leader_that_neither_peers_nor_clients_reach_loses_nothing(lab: Lab) -> None:
    leader, epoch, others = await lab.roles()
    ends = [*(node.id for node in others), OUTSIDE]
    lab.network.cut(lab.network.between(ends, [leader.id]))
    await lab.another_leads(leader, epoch)
    await asyncio.sleep(CUT_S)


async def test_an_isolated_leader_is_replaced_and_follows(lab: Lab) -> None:
    leader, epoch, _ = await lab.roles()
    lab.network.cut(lab.network.around(leader.id))
    await lab.another_leads(leader, epoch)
    await lab.load.progress(SOME)
    now, epoch = await lab.quorum.leader(epoch)
    lab.network.heal()
    await lab.quorum.whole()
    await lab.stays(now, epoch)


@pytest.mark.parametrize("way", ["deaf", "mute", "isolated"])
async def test_a_follower_that_is_cut_off_disturbs_nobody(lab: Lab, way: str) -> None:
    leader, epoch, [victim, _] = await lab.roles()
    pairs = lab.network.around(victim.id)
    if way == "deaf":
        pairs = [pair for pair in pairs if pair[1] == victim.id]
    elif way == "mute":
        pairs = [pair for pair in pairs if pair[0] == victim.id]
    lab.network.cut(pairs)
    await asyncio.sleep(CUT_S)
    lab.network.heal()
    await lab.quorum.whole()
    assert lab.gap_s() < UNDISTURBED_S
    await lab.stays(leader, epoch)


async def test_a_follower_that_comes_and_goes_disturbs_nobody(lab: Lab) -> None:
    leader, epoch, [victim, _] = await lab.roles()
    for _ in range(4):
        lab.network.cut(lab.network.around(victim.id))
        await asyncio.sleep(0.7)
        lab.network.heal()
        await asyncio.sleep(0.7)
    await lab.quorum.whole()
    assert lab.gap_s() < UNDISTURBED_S
    await lab.stays(leader, epoch)


async def test_a_leader_that_comes_and_goes_loses_nothing(lab: Lab) -> None:
    leader, _, _ = await lab.roles()
    for _ in range(5):
        lab.network.cut(lab.network.between([leader.id]))
        await asyncio.sleep(0.7)
        lab.network.heal()
        await asyncio.sleep(0.7)
    await lab.load.progress(SOME)


async def test_two_followers_that_do_not_reach_each_other_disturb_nobody(lab: Lab) -> None:
    leader, epoch, others = await lab.roles()
    lab.network.cut(lab.network.between([node.id for node in others], [n.id for n in others]))
    await asyncio.sleep(CUT_S)
    assert lab.gap_s() < UNDISTURBED_S
    await lab.stays(leader, epoch)


async def test_connections_that_are_reset_again_and_again(lab: Lab) -> None:
    for _ in range(6):
        assert lab.network.reset(lab.network.between(IDS)) > 0
        await asyncio.sleep(0.5)
    await lab.load.progress(SOME)
    assert lab.gap_s() < ELECTION_S


async def test_half_open_connections_are_given_up(lab: Lab) -> None:
    leader, _, _ = await lab.roles()
    assert lab.network.lose(lab.network.around(leader.id)) > 0
    await lab.load.progress(SOME)
    assert lab.gap_s() < ELECTION_S


async def test_delay_and_loss_cause_no_elections(lab: Lab) -> None:
    leader, epoch, _ = await lab.roles()
    poor = Impairment(delay_s=0.03, jitter_s=0.03, loss=0.02)
    lab.network.shape(lab.network.between(IDS), poor)
    before = lab.network.count("lost")
    for _ in range(LOSS_ROUNDS):
        await asyncio.sleep(CUT_S)
        if lab.network.count("lost") > before:
            break
    else:
        pytest.fail("nothing was lost")
    await lab.load.progress(1)
    await lab.stays(leader, epoch)
