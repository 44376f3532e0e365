"""What the tests wait for before they kill a leader, and after they have started it again."""

from __future__ import annotations

from quorate.cli.local.demo import until
from quorate.cli.local.local_cluster import LocalCluster
from quorate.rpc.client.quorum_client import QuorumClient


async def leader_of(cluster: LocalCluster, admin: QuorumClient) -> int:
    """The leader's id, once there is a leader."""
    described = await until(cluster, admin, lambda d: d.leader.id is not None)
    assert described.leader.id is not None
    return described.leader.id


async def caught_up(cluster: LocalCluster, admin: QuorumClient) -> None:
    """Wait until every voter has what is committed."""
    await until(
        cluster, admin, lambda d: all(s.log_end_offset >= d.high_watermark for s in d.voters)
    )
