"""Many writers while the leader is killed again and again: an own count beside the checker's."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from quorate.cli.local.workload import Workload
from quorate.rpc.client.quorum_client import QuorumClient

from tests.attacks.conftest import MakeQuorum

pytestmark = pytest.mark.timeout(180)

CALLERS = 64
KILLS = 5
BETWEEN_S = 2.0
DOWN_S = 1.0


async def test_nothing_is_lost_while_leaders_are_killed(make_quorum: MakeQuorum) -> None:
    quorum = await make_quorum()
    load = Workload(quorum.addresses, callers=CALLERS, pause_s=0.0)
    await load.start()
    for _ in range(KILLS):
        await asyncio.sleep(BETWEEN_S)
        leader, epoch = await quorum.leader()
        leader.kill()
        await asyncio.sleep(DOWN_S)
        leader.start()
        await quorum.leader(epoch)
        await quorum.whole()
    violations = await load.verify()
    assert not violations, [str(violation) for violation in violations[:5]]
    await load.stop()
    async with QuorumClient(quorum.addresses) as client:
        seen = Counter(
            [
                bytes(record.value or b"")
                async for record in client.read(0, linearizable=True)
                if record.key is not None
            ]
        )
    assert load.acknowledged_count > KILLS * CALLERS
    assert len(seen) >= load.acknowledged_count
    assert max(seen.values()) == 1
    for node in quorum.nodes.values():
        assert "Traceback" not in node.said(), node.said()
