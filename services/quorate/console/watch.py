"""Polls the quorum once a second, keeps its state, and executes the changes users confirm."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.console.cluster import ClusterSnapshot, IsrSummary
from quorate.console.state import NO_CHANGES, QuorumSnapshot, QuorumState, place_of, replica_name
from quorate.console.topics import ConfigRow, broker_configs
from quorate.metadata.image.configs import ConfigResourceType
from quorate.metadata.requests import (
    ConfigResource,
    DescribeCluster,
    DescribeConfigs,
    DescribeTopics,
    ResourceConfigs,
    TopicDescription,
    TopicRef,
)
from quorate.raft.errors import MisuseError
from quorate.raft.types import ReplicaKey
from quorate.rpc.client.quorum_client import ClientError, QuorumClient, UnreachableError
from quorate.rpc.errors import AdminError
from quorate.rpc.metadata_client import MetadataClient
from quorate.rpc.software import grpc_endpoints
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.values import NodeStatus

PERIOD_S = 1.0
ANSWER_WITHIN_S = 1.5
"""A controller that takes longer than this counts as silent in this poll."""
PARTITIONS_SHOWN = 100
CONFIGS_FOR_S = 2.0


class Watch:
    """Observes one quorum and the cluster that it serves.

    `state` and `isr_summary` change only between awaits of `run`. Without `allow_changes`, all
    changes are rejected.
    """

    def __init__(
        self, bootstrap: Sequence[str], tls: TlsConfig | None, *, allow_changes: bool
    ) -> None:
        self.state = QuorumState()
        self.isr_summary = IsrSummary()
        self.cluster_id = ""
        self.allows_changes = allow_changes
        self._bootstrap = tuple(bootstrap)
        self._looks = QuorumClient(bootstrap, tls=tls, request_timeout_ms=2_000)
        self._changes = QuorumClient(bootstrap, tls=tls, request_timeout_ms=30_000)
        self._metadata = MetadataClient(bootstrap, tls=tls, request_timeout_ms=2_000)
        self._configs: list[ConfigRow] = []
        self._configs_at = -math.inf
        self._configs_lock = asyncio.Lock()
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after each poll. Returns a function that removes the listener."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def run(self) -> None:
        """Poll the quorum and the cluster until cancelled.

        Two independent tasks do this: the cluster is unavailable without a leader, and the quorum's
        state must not wait for it.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(self._look_at_quorum))
            group.create_task(self._repeat(self._look_at_cluster))

    async def _repeat(self, look: Callable[[], Awaitable[None]]) -> None:
        while True:
            started = time.monotonic()
            await look()
            await asyncio.sleep(max(0.1, PERIOD_S - (time.monotonic() - started)))

    async def close(self) -> None:
        await self._looks.close()
        await self._changes.close()
        await self._metadata.close()

    async def _look_at_quorum(self) -> None:
        self.state.apply(await self._look())
        for listener in list(self._listeners):
            listener()

    async def _look(self) -> QuorumSnapshot:
        view, is_leaders = None, False
        try:
            description = await self._looks.describe_quorum()
            self.cluster_id = description.cluster_id
            view, is_leaders = description.response, description.is_leaders_view
        except ClientError:
            pass
        nodes, silent = await self._statuses()
        confirm_ms = await self._confirm() if is_leaders else None
        now_ms = time.time_ns() // 1_000_000
        return QuorumSnapshot(
            now_ms,
            view,
            is_leaders,
            nodes,
            silent,
            confirm_ms,
            self.isr_summary.controllers,
            frozenset(broker.id for broker in self.isr_summary.brokers),
        )

    async def _look_at_cluster(self) -> None:
        """Fetch the brokers and the next page of partitions; without a leader, record the error."""
        cluster = page = None
        error = ""
        try:
            cluster = await self._metadata.ask(DescribeCluster())
            if cluster.topic_count:
                page = await self._metadata.ask(self.isr_summary.want())
        except ClientError as reason:
            error = str(reason)
        self.isr_summary.apply(ClusterSnapshot(time.time_ns() // 1_000_000, cluster, page, error))

    async def _statuses(self) -> tuple[dict[str, NodeStatus], dict[str, str]]:
        """Return the status of each controller that answers and why others do not, by address."""
        places = set(self._bootstrap)
        voters = (voter.endpoints for voter in self.state.voters)
        places |= {place_of((endpoint,)) for endpoint in grpc_endpoints(voters)}
        nodes: dict[str, NodeStatus] = {}
        silent: dict[str, str] = {}

        async def ask(place: str) -> None:
            try:
                async with asyncio.timeout(ANSWER_WITHIN_S):
                    nodes[place] = await self._looks.node_status(place)
            except TimeoutError:
                silent[place] = "no answer"
            except UnreachableError as error:
                silent[place] = error.attempts.get(place, str(error))
            except ClientError as error:
                silent[place] = str(error)

        await asyncio.gather(*(ask(place) for place in places))
        return nodes, silent

    async def _confirm(self) -> float | None:
        """Measure a linearizable read, in which a majority confirms the leader, milliseconds."""
        end = self.state.high_watermark
        if end is None:
            return None
        started = time.perf_counter()
        try:
            async for _ in self._looks.read(end, linearizable=True, max_records=1):
                break
        except ClientError:
            return None
        return (time.perf_counter() - started) * 1000

    # --- on request -------------------------------------------------------------------------------

    async def topic(self, name: str, first: int) -> TopicDescription:
        """Describe a topic: `PARTITIONS_SHOWN` partitions from number `first` on.

        Raises ClientError. A topic that is unknown or hidden from the console has an error.
        """
        request = DescribeTopics((TopicRef(name),), (name, first), PARTITIONS_SHOWN)
        found = (await self._metadata.ask(request)).topics
        # A topic that the console may not see is left out of all pages but the first one.
        hidden = TopicDescription(name, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return cast(TopicDescription, found[0]) if found else hidden

    async def broker_configs(self) -> list[ConfigRow]:
        """Return the dynamic configs of brokers. Raises ClientError.

        Pages that are open at the same time share a response for `CONFIGS_FOR_S`.
        """
        async with self._configs_lock:
            if time.monotonic() - self._configs_at > CONFIGS_FOR_S:
                self._configs = broker_configs(await self._describe_broker_configs())
                self._configs_at = time.monotonic()
            return self._configs

    async def _describe_broker_configs(self) -> tuple[ResourceConfigs, ...]:
        request = DescribeConfigs(all_of_type=ConfigResourceType.BROKER)
        found = cast(tuple[ResourceConfigs, ...], (await self._metadata.ask(request)).resources)
        if not found:
            # Configs that the console may not see are left out, unless they are asked for by name.
            defaults = DescribeConfigs((ConfigResource(ConfigResourceType.BROKER, ""),))
            for named in (await self._metadata.ask(defaults)).resources:
                if named.error is not ErrorCode.NONE:
                    raise AdminError(named.error, named.message)
        return found

    # --- changes ----------------------------------------------------------------------------------

    async def add(self, key: ReplicaKey, host: str, port: int) -> str:
        """Make a replica a voter. Returns a message for the user."""
        endpoints = [Endpoint("CONTROLLER", host, port)]
        await self._for_changes().add_voter(key, endpoints)
        return f"{replica_name(key)} is now a voter"

    async def remove(self, key: ReplicaKey) -> str:
        await self._for_changes().remove_voter(key)
        return f"{replica_name(key)} is no longer a voter"

    async def transfer(self, key: ReplicaKey) -> str:
        await self._for_changes().transfer_leadership(key)
        return f"controller {key.id} is now the leader"

    def _for_changes(self) -> QuorumClient:
        """Return the client for changes, whose errors the caller shows. Raises MisuseError."""
        if not self.allows_changes:
            raise MisuseError("this console is read-only: start it with --allow-changes")
        if self.state.leader is None:
            raise MisuseError(NO_CHANGES)
        return self._changes
