"""SIGTERM to the leader under load: it hands over, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import time

from quorate.cli.local.workload import Workload
from quorate.linearizability import HistoryChecker, Violation
from quorate.raft.messages import DescribeQuorumResponse
from quorate.rpc.client.quorum_client import QuorumClient

from tests.integration.support import Quorum, assert_clean
from tests.processes import POLL_S, WAIT_S

NAME = "handover"
ROUNDS = 2
LOAD_S = 0.5
GAP_MAX_S = 5.0
"""Far above what is measured: this is no measurement, and others use the machine."""


async def test_a_leader_that_is_told_to_stop_hands_over(quorum: Quorum) -> None:
    addresses = quorum.addresses.split(",")
    load = Workload(addresses, callers=4, pause_s=0.02, name=NAME)
    gaps_ms: list[float] = []
    async with QuorumClient(addresses) as admin:
        described = await leader_after(admin, 0)
        await load.start()
        try:
            for _ in range(ROUNDS):
                load.measure()
                described = await _stop_leader(quorum, admin, described)
                await asyncio.sleep(LOAD_S)
                gaps_ms.append(load.longest_gap_s * 1000)
        finally:
            await load.stop()
        violations = await verify(load.history, admin)
        assert not violations, [str(violation) for violation in violations[:5]]
    said = [node.said() for node in quorum.nodes.values()]
    assert any("preferred successor of the leader that resigned" in log for log in said)
    print(
        f"\nleader stopped {ROUNDS} times: longest gap of {load.acknowledged_count} appends "
        f"{', '.join(f'{gap:.0f}' for gap in gaps_ms)} ms; {load.unknown_count} unknown, none lost"
    )
    assert load.acknowledged_count > 50
    assert max(gaps_ms) < GAP_MAX_S * 1000


async def _stop_leader(
    quorum: Quorum, admin: QuorumClient, described: DescribeQuorumResponse
) -> DescribeQuorumResponse:
    """Stop it, see who leads instead, start it again."""
    assert described.leader.id is not None
    node, epoch = quorum.nodes[described.leader.id], described.leader.epoch
    assert await asyncio.to_thread(node.stop) == 0
    after = await leader_after(admin, epoch)
    assert after.leader.id != node.id
    log = node.said()
    assert f"resigned in epoch {epoch}, leader unknown: shutting down" in log
    assert log.rstrip().endswith("stopped")
    assert_clean(log)
    node.start()
    await asyncio.to_thread(node.wait_said, "follower in epoch")
    return await leader_after(admin, epoch)


async def verify(history: HistoryChecker[str], client: QuorumClient) -> list[Violation]:
    """Like `Workload.verify`, in a log that holds other tests' records too."""
    token = history.begin_read()
    records = [record async for record in client.read(0, linearizable=True)]
    values = [(record.offset, bytes(record.value or b"")) for record in records]
    prefix = f"{NAME}-".encode()
    committed = [(offset, value.decode()) for offset, value in values if value.startswith(prefix)]
    history.read(token, records[-1].offset + 1, committed)
    return history.verify(committed)


async def leader_after(admin: QuorumClient, epoch: int) -> DescribeQuorumResponse:
    """The view of a leader of a later epoch."""
    deadline = time.monotonic() + WAIT_S
    while True:
        description = await admin.describe_quorum()
        if description.is_leaders_view and description.response.leader.epoch > epoch:
            return description.response
        assert time.monotonic() < deadline, description
        await asyncio.sleep(POLL_S)
