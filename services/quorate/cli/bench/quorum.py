"""The quorum to measure: a new one, or one that runs already."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from quorate.cli.bench.load import ClientAccess
from quorate.cli.local.local_cluster import LocalCluster
from quorate.cli.output import CommandError
from quorate.raft.messages import DescribeQuorumResponse
from quorate.rpc.client.quorum_client import ClientError
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.values import NodeStatus

FORM_TIMEOUT_S = 60.0
CATCH_UP_TIMEOUT_S = 600.0
POLL_S = 0.005


class BenchQuorum:
    """The quorum under load. `cluster` is None if the quorum ran already."""

    def __init__(
        self, bootstrap: Sequence[str], cluster: LocalCluster | None, access: ClientAccess
    ) -> None:
        self.bootstrap = list(bootstrap)
        self.cluster = cluster
        self.access = access
        self.client = access.client(bootstrap)

    @property
    def own(self) -> LocalCluster:
        """The quorum's processes and files. Only workloads that need a new quorum use them."""
        assert self.cluster is not None, "the command refuses such workloads on a running quorum"
        return self.cluster

    async def until(
        self, condition: Callable[[DescribeQuorumResponse], bool], what: str, timeout_s: float
    ) -> DescribeQuorumResponse:
        """Poll until the leader's response meets `condition`. Raises CommandError on timeout."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                view = await self.client.describe_quorum()
            except ClientError:
                await asyncio.sleep(0.05)
                continue
            if view.is_leaders_view and condition(view.response):
                return view.response
            if self.cluster is not None:
                self.cluster.check_running()
            await asyncio.sleep(0.05)
        raise CommandError(f"timed out after {timeout_s:.0f} s while waiting for {what}")

    async def leader(self) -> int:
        """Return the leader's id. Raises CommandError on timeout."""
        view = await self.until(lambda _: True, "a leader", FORM_TIMEOUT_S)
        assert view.leader.id is not None, "this is the leader's own view"
        return view.leader.id

    async def leader_address(self) -> str:
        view = await self.until(lambda _: True, "a leader", FORM_TIMEOUT_S)
        endpoint = next(v for v in view.voter_set if v.id == view.leader.id).endpoints[0]
        return f"{endpoint.host}:{endpoint.port}"

    async def a_follower(self) -> int:
        leader = await self.leader()
        return next(node_id for node_id in self.own.nodes if node_id != leader)

    async def status(self, node_id: int) -> NodeStatus | None:
        """Return a controller's status; None if it does not answer."""
        try:
            return await self.client.node_status(self.own.nodes[node_id].address)
        except ClientError:
            return None

    async def until_holds(self, node_id: int, end_offset: int) -> None:
        """Poll until a controller's high watermark reaches `end_offset`. Raises CommandError."""
        deadline = time.monotonic() + CATCH_UP_TIMEOUT_S
        while time.monotonic() < deadline:
            status = await self.status(node_id)
            if status is not None and status.high_watermark >= end_offset:
                return
            await asyncio.sleep(POLL_S)
        raise CommandError(
            f"controller {node_id} did not catch up within {CATCH_UP_TIMEOUT_S:.0f} s"
        )

    async def until_all_caught_up(self) -> None:
        """Poll until the log of every voter reaches the high watermark. Raises CommandError."""

        def caught_up(view: DescribeQuorumResponse) -> bool:
            ends = [each.log_end_offset for each in view.voters]
            count = len(self.own.nodes) if self.cluster is not None else len(ends)
            return len(ends) == count and min(ends) >= max(view.high_watermark, 0)

        await self.until(caught_up, "all voters to catch up", FORM_TIMEOUT_S)


@asynccontextmanager
async def quorum_of_its_own(
    voters: int, parent: Path | None, peer_protocol: str, access: ClientAccess
) -> AsyncIterator[BenchQuorum]:
    """Run a quorum of `voters` new controllers on loopback; kill and delete them afterwards.

    peer_protocol: see `LocalCluster`. access: controllers and clients use its TLS files.
    """
    folder = Path(tempfile.mkdtemp(prefix="quorate-bench-", dir=parent))
    cluster = LocalCluster(
        folder / "cluster",
        kafka_listener=True,
        peer_protocol=peer_protocol,
        controller_settings=_tls_settings(access.tls),
    )
    try:
        cluster.create(range(1, voters + 1))
        cluster.start()
        quorum = BenchQuorum(cluster.addresses, cluster, access)
        try:
            await quorum.until(
                lambda view: len(view.voters) == voters, f"{voters} voters", FORM_TIMEOUT_S
            )
            yield quorum
        finally:
            await quorum.client.close()
    finally:
        await asyncio.to_thread(end_all, cluster)
        shutil.rmtree(folder, ignore_errors=True)


def _tls_settings(tls: TlsConfig | None) -> dict[str, object]:
    if tls is None:
        return {}
    return {
        "listener.security.protocol.map": "CONTROLLER:SSL,KAFKA:SSL",
        "ssl.certificate.location": tls.certificate,
        "ssl.key.location": tls.key,
        "ssl.ca.location": tls.ca,
    }


def end_all(cluster: LocalCluster) -> None:
    """Kill all controllers of a quorum."""
    for node_id in cluster.running:
        cluster.kill(node_id)


@asynccontextmanager
async def running_quorum(
    bootstrap: Sequence[str], access: ClientAccess
) -> AsyncIterator[BenchQuorum]:
    """Yield a quorum that runs already. None of its processes is stopped."""
    quorum = BenchQuorum(bootstrap, None, access)
    try:
        yield quorum
    finally:
        await quorum.client.close()
