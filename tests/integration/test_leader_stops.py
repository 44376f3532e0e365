"""SIGTERM to the leader under load: it hands over, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

from quorate.cli.demo import until
from quorate.cli.local_cluster import LocalCluster
from quorate.cli.workload import Workload
from quorate.rpc.client import QuorumClient

from tests.integration.support import assert_clean

ROUNDS = 2
GAP_MAX_S = 5.0
"""Far above what is measured: this is no measurement, and others use the machine."""


async def test_a_leader_that_is_told_to_stop_hands_over(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "cluster")
    cluster.create([1, 2, 3])
    admin = QuorumClient(cluster.addresses)
    load = Workload(cluster.addresses, callers=4, pause_s=0.02)
    gaps_ms: list[float] = []
    try:
        cluster.start()
        await until(cluster, admin, lambda d: len(d.voters) == 3)
        await load.start()
        await cluster.poll(0.5)
        for _ in range(ROUNDS):
            described = await until(cluster, admin, lambda d: d.leader.id is not None)
            leader, epoch = described.leader.id, described.leader.epoch
            assert leader is not None
            load.measure()
            await asyncio.to_thread(cluster.stop, [leader])
            assert cluster.processes[leader].returncode == 0
            after = await until(cluster, admin, lambda d, old=epoch: d.leader.epoch > old)
            assert after.leader.id != leader
            await cluster.poll(0.3)
            gaps_ms.append(load.longest_gap_s * 1000)
            log = cluster.nodes[leader].log_file.read_text()
            assert f"resigned in epoch {epoch}, leader unknown: shutting down" in log
            assert log.rstrip().endswith("stopped")
            assert_clean(log)
            violations = await load.verify()
            assert not violations, [str(violation) for violation in violations[:5]]
            cluster.start([leader])
            await until(
                cluster,
                admin,
                lambda d: all(s.log_end_offset >= d.high_watermark for s in d.voters),
            )
        successors = [node.log_file.read_text() for node in cluster.nodes.values()]
        assert any("preferred successor of the leader that resigned" in log for log in successors)
    finally:
        await load.stop()
        await admin.close()
        await asyncio.to_thread(cluster.stop)
    print(
        f"\nleader stopped {ROUNDS} times: longest gap of {load.acknowledged_count} appends "
        f"{', '.join(f'{gap:.0f}' for gap in gaps_ms)} ms; {load.unknown_count} unknown, none lost"
    )
    assert load.acknowledged_count > 100
    assert max(gaps_ms) < GAP_MAX_S * 1000
