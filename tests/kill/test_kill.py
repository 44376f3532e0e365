"""kill -9 of one of three controllers under load, again and again, each in its turn, with either
protocol between the controllers.

Rounds alternate between the leader and a named controller. After each round the whole log is read,
linearizably, and checked against all that the writers were told; the figures are printed. The log's
beginning is in snapshots only.
"""

from __future__ import annotations

import asyncio
import os
import statistics
from pathlib import Path

import pytest
from quorate.cli.local.demo import SNAPSHOTS, until
from quorate.cli.local.local_cluster import LocalCluster
from quorate.cli.local.workload import Workload
from quorate.controller.kafka.settings import KAFKA, PEER_PROTOCOLS
from quorate.rpc.client.quorum_client import QuorumClient

from tests.kill.leaders import caught_up, leader_of

BROKEN_KAFKA = "(Kafka's protocol at "
"""What a follower says of its connection to a leader that was killed."""
ROUNDS = int(os.environ.get("QUORATE_KILL_ROUNDS", "20"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("protocol", PEER_PROTOCOLS)
async def test_nothing_acknowledged_is_lost(tmp_path: Path, protocol: str) -> None:
    cluster = LocalCluster(
        tmp_path / "cluster", peer_protocol=protocol, controller_settings=SNAPSHOTS
    )
    cluster.create([1, 2, 3])
    admin = QuorumClient(cluster.addresses)
    load = Workload(cluster.addresses, callers=8, pause_s=0.004)
    leader_gaps: list[float] = []
    follower_gaps: list[float] = []
    try:
        cluster.start()
        await until(cluster, admin, lambda d: len(d.voters) == 3)
        await load.start()
        for number in range(ROUNDS):
            leader = await leader_of(cluster, admin)
            victim = leader if number % 2 == 0 else number % 3 + 1
            load.measure()
            await cluster.poll(0.3)
            cluster.kill(victim)
            await cluster.poll(1.0)
            cluster.start([victim])
            await caught_up(cluster, admin)
            gap_ms = load.longest_gap_s * 1000
            (leader_gaps if victim == leader else follower_gaps).append(gap_ms)
            violations = await load.verify()
            assert not violations, [str(violation) for violation in violations[:5]]
            print(
                f"round {number + 1:2}: killed {victim}{' (leader)' if victim == leader else ''}, "
                f"longest gap {gap_ms:.0f} ms, {load.acknowledged_count} acknowledged, "
                f"{load.unknown_count} unknown, all there, none doubled"
            )
    finally:
        await load.stop()
        await admin.close()
        await asyncio.to_thread(cluster.stop)
    for name, gaps in (("leader", leader_gaps), ("follower", follower_gaps)):
        if gaps:
            print(
                f"{protocol}: {name} killed {len(gaps)} times: longest gap "
                f"median {statistics.median(gaps):.0f} ms, max {max(gaps):.0f} ms"
            )
    said = {node.id: node.log_file.read_text() for node in cluster.nodes.values()}
    for node_id, text in said.items():
        assert "the log starts at " in text, f"{node_id} dropped no segment"
    assert (BROKEN_KAFKA in "".join(said.values())) is (protocol == KAFKA)
    assert load.acknowledged_count > ROUNDS * 100
    assert leader_gaps
