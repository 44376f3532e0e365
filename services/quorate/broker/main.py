"""The broker's process: an observer of the metadata log that hosts partitions.

Start:
1. lock the directories, check whose they are, take the note of the last clean stop;
2. follow the metadata log as an observer, and listen;
3. register with a new incarnation id, and wait until the registration is in the image;
4. open the logs, apply what the image says, and only then ask to be unfenced.

End, on SIGTERM or SIGINT: controlled shutdown (the controller moves leaderships and takes this
broker out of the ISRs), flush and close all logs, leave the note of a clean stop. What goes wrong
ends the process with one line and an exit status that is not 0, and without that note.

QUORATE_TEST_UNSAFE_ISR=1 takes KIP-841's checks away on the leader's side (`PartitionConfig`), for
tests that show what they are good for.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import uvloop

from quorate.broker.checkpoints import take_clean_shutdown, write_clean_shutdown
from quorate.broker.config import BrokerConfig
from quorate.broker.forwarding import ForwardingService
from quorate.broker.lifecycle import Lifecycle, LifecycleError, supported_features
from quorate.broker.metadata_view import MetadataView
from quorate.broker.proposals import IsrProposals
from quorate.broker.replica_manager import ReplicaManager
from quorate.broker.service import PartitionService
from quorate.log.errors import LogError
from quorate.log.lock import DirectoryLock
from quorate.log.meta_properties import MetaProperties, ensure_directory_id, random_uuid
from quorate.log.metadata_log import LogConfig, MetadataLog, partition_directory
from quorate.log.quorum_state import QuorumStateFile
from quorate.log.recovery import log_recovery
from quorate.metadata.image import Changes, MetadataImage
from quorate.metadata.levels import KRAFT_VERSION, SUPPORTED
from quorate.metadata.requests import RegisterBroker
from quorate.raft import InitialState, LogState, RaftConfig, RaftNode
from quorate.raft import outputs as out
from quorate.raft.errors import RaftError
from quorate.raft.types import SUPPORTED_KRAFT_VERSION, Endpoint, ReplicaKey
from quorate.records.errors import RecordsError
from quorate.rpc.errors import RpcError
from quorate.rpc.limits import ServerLimits, format_address
from quorate.rpc.metadata_client import MetadataClient
from quorate.rpc.partition_client import BrokerConnections
from quorate.rpc.partition_servicer import PartitionServicer
from quorate.rpc.partition_values import PartitionKey
from quorate.rpc.server import RpcServer, start_server
from quorate.rpc.transport import PeerTransport
from quorate.runtime.clock import Clock
from quorate.runtime.collection import collect_briefly
from quorate.runtime.driver import RaftDriver
from quorate.runtime.memory import return_large_buffers
from quorate.runtime.metadata_loader import MetadataLoader
from quorate.runtime.outbound import Outbound
from quorate.runtime.snapshots import SnapshotPolicy, Snapshotter
from quorate.runtime.tasks import supervise
from quorate.runtime.threads import switch_soon

LOGGER = logging.getLogger("quorate.broker")

METADATA_BATCH_BYTES_MAX = 8 * 1024 * 1024
HEALTH_PERIOD_S = 0.1
UNSAFE_VARIABLE = "QUORATE_TEST_UNSAFE_ISR"
SECURITY_PROTOCOLS = {False: 0, True: 1}
"""Kafka's numbers: PLAINTEXT, SSL."""


class BrokerError(Exception):
    """Why the process cannot run; one line for the person who started it."""


def run_broker(config: BrokerConfig) -> int:
    """Run until SIGTERM or SIGINT; the exit status."""
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format=f"%(asctime)s %(levelname)s [broker {config.node_id}] %(message)s",
    )
    return_large_buffers()
    try:
        return uvloop.run(Broker(config).run())
    except (
        BrokerError,
        LifecycleError,
        LogError,
        RecordsError,
        RaftError,
        RpcError,
    ) as error:
        print(f"quorate: error: {error}", file=sys.stderr)
        return 1


class Broker:
    """One broker. `run` is its whole life."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._stop = asyncio.Event()
        self._failure: BaseException | None = None
        self._driver: RaftDriver | None = None
        self._lifecycle: Lifecycle | None = None
        self._manager: ReplicaManager | None = None
        self._view = MetadataView(config.node_id)

    async def run(self) -> int:
        config = self._config
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        directories = tuple(dict.fromkeys((config.metadata_log_dir, *config.log_dirs)))
        metas = [self._identify(directory) for directory in directories]
        with ExitStack() as locks:
            for directory in directories:
                locks.enter_context(DirectoryLock(directory))
            previous_epoch = take_clean_shutdown(config.log_dirs)
            log = self._open_metadata_log(loop)
            try:
                by_path = dict(zip(directories, metas, strict=True))
                ids = tuple(str(by_path[path].directory_id) for path in config.log_dirs)
                await self._serve(metas[0], log, ids, previous_epoch)
            finally:
                log.close()
        if self._failure is not None:
            raise BrokerError(str(self._failure))
        LOGGER.info("stopped")
        return 0

    def _identify(self, directory: Path) -> MetaProperties:
        config = self._config
        meta = MetaProperties.read(directory)
        meta.check(directory, config.node_id, config.cluster_id, config.source)
        return ensure_directory_id(directory)

    def _open_metadata_log(self, loop: asyncio.AbstractEventLoop) -> MetadataLog:
        def on_durable(ticket: int) -> None:
            loop.call_soon_threadsafe(self._durable, ticket)

        def on_failure(error: BaseException) -> None:
            loop.call_soon_threadsafe(self._fail, error)

        return MetadataLog.open(
            self._config.metadata_log_dir,
            LogConfig(batch_bytes_max=METADATA_BATCH_BYTES_MAX),
            on_durable=on_durable,
            on_failure=on_failure,
        )

    async def _serve(
        self,
        meta: MetaProperties,
        log: MetadataLog,
        log_dir_ids: tuple[str, ...],
        previous_epoch: int,
    ) -> None:
        config = self._config
        clock = Clock()
        loader = MetadataLoader(log, on_fatal=self._fail)
        driver = self._driver = self._observer(meta, log, clock, loader)
        client = MetadataClient(
            [format_address(host, port) for host, port in config.bootstrap_servers],
            tls=config.tls if config.is_encrypted(config.controller_listener) else None,
            client_id=f"quorate-broker/{config.node_id}",
        )
        lifecycle = self._lifecycle = Lifecycle(
            self._registration(meta.cluster_id, log_dir_ids, previous_epoch),
            client,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            session_timeout_ms=config.session_timeout_ms,
            registration_timeout_ms=config.registration_timeout_ms,
            metadata_offset=lambda: loader.offset - 1,
            fail=self._fail,
        )
        proposals = IsrProposals(
            config.node_id,
            client,
            broker_epoch=lambda: lifecycle.broker_epoch,
            fail=self._fail,
        )
        is_tls = config.is_encrypted(config.endpoints[0].name)
        connections = BrokerConnections(
            config.tls if is_tls else None, f"quorate-replica/{config.node_id}"
        )
        manager = self._manager = ReplicaManager(
            config,
            clock,
            self._view,
            proposals,
            connections,
            fail=self._fail,
            unsafe_isr=os.environ.get(UNSAFE_VARIABLE, "") == "1",
        )
        loader.add_listener(self._metadata_changed)
        partitions = PartitionServicer(
            PartitionService(manager, self._view, client), ServerLimits()
        )
        node = ForwardingService(
            driver, client, batch_bytes_max=METADATA_BATCH_BYTES_MAX, is_ready=self._is_ready
        )
        server = await self._listen(node, partitions)
        snapshotter = Snapshotter(driver, SnapshotPolicy(), loader)
        driver.start()
        loader.start()
        snapshotter.start()
        health = supervise(self._report_health(server), "health", self._fail)
        try:
            if await self._begin(lifecycle, loader, manager, proposals, previous_epoch):
                collect_briefly()
                switch_soon()
                await self._stop.wait()
                await self._leave(lifecycle)
        finally:
            LOGGER.info("stopping")
            health.cancel()
            await lifecycle.stop()
            await proposals.stop()
            await server.stop()
            await manager.stop()
            await snapshotter.stop()
            await loader.stop()
            await driver.close()
            await connections.close()
            await client.close()
        if self._failure is None and lifecycle.broker_epoch >= 0:
            write_clean_shutdown(config.log_dirs, lifecycle.broker_epoch)

    async def _begin(
        self,
        lifecycle: Lifecycle,
        loader: MetadataLoader,
        manager: ReplicaManager,
        proposals: IsrProposals,
        previous_epoch: int,
    ) -> bool:
        """Steps 3 and 4 of the start; False when the process was told to stop meanwhile."""

        async def begin() -> None:
            epoch = await lifecycle.register()
            kind = "clean" if previous_epoch >= 0 else "unclean or first"
            LOGGER.info("registered with epoch %d (%s start)", epoch, kind)
            lifecycle.start()
            await loader.reached(epoch + 1)
            proposals.start()
            manager.start(epoch)
            await manager.settled()
            lifecycle.ready = True
            lifecycle.hurry()

        beginning = asyncio.create_task(begin())
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait((beginning, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not beginning.done():
            beginning.cancel()
            await asyncio.gather(beginning, return_exceptions=True)
            return False
        beginning.result()
        return True

    async def _leave(self, lifecycle: Lifecycle) -> None:
        """Controlled shutdown, if there is still something to leave in order."""
        config = self._config
        if self._failure is not None or not config.controlled_shutdown:
            return
        LOGGER.info("asks the controller for a controlled shutdown")
        if await lifecycle.shut_down(config.controlled_shutdown_timeout_ms):
            LOGGER.info("may shut down")
        else:
            LOGGER.warning(
                "no controlled shutdown within %d ms: stops all the same",
                config.controlled_shutdown_timeout_ms,
            )

    # --- parts ------------------------------------------------------------------------------------

    def _observer(
        self, meta: MetaProperties, log: MetadataLog, clock: Clock, loader: MetadataLoader
    ) -> RaftDriver:
        config = self._config
        quorum_state = QuorumStateFile(partition_directory(config.metadata_log_dir))
        recovered = log.recovered
        log_recovery(recovered)
        epochs = tuple((entry.epoch, entry.offset) for entry in recovered.epochs)
        state = LogState(recovered.start, recovered.end_offset, epochs, recovered.latest_snapshot)
        initial = InitialState(
            quorum_state.read(),
            state,
            recovered.voters,
            recovered.kraft_versions,
            required_end=recovered.required_end,
        )
        node = RaftNode(
            self._raft_config(meta),
            initial,
            random.Random(),  # noqa: S311 - spreads timers
            clock.now_ms(),
        )
        transport = PeerTransport(meta.cluster_id, config.tls, is_encrypted=config.is_encrypted)
        return RaftDriver(
            node,
            log,
            quorum_state,
            Outbound(transport),
            clock,
            on_fatal=self._fail,
            on_committed=loader.committed,
            on_role=self._role_changed,
        )

    def _raft_config(self, meta: MetaProperties) -> RaftConfig:
        config = self._config
        bootstrap = tuple(
            Endpoint(config.controller_listener, host, port)
            for host, port in config.bootstrap_servers
        )
        return RaftConfig(
            meta.cluster_id,
            ReplicaKey(config.node_id, meta.directory_id),
            config.endpoints,
            bootstrap=bootstrap,
            static_voters=config.static_voters,
            can_vote=False,
            incarnation=secrets.randbits(64),
            fetch_timeout_ms=config.raft_fetch_timeout_ms,
            request_timeout_ms=config.raft_request_timeout_ms,
            retry_backoff_ms=config.raft_retry_backoff_ms,
        )

    def _registration(
        self, cluster_id: str, log_dir_ids: tuple[str, ...], previous_epoch: int
    ) -> RegisterBroker:
        config = self._config
        return RegisterBroker(
            broker_id=config.node_id,
            incarnation_id=random_uuid(),
            endpoints=config.endpoints,
            cluster_id=cluster_id,
            rack=config.rack,
            log_dirs=log_dir_ids,
            features=supported_features(SUPPORTED | {KRAFT_VERSION: SUPPORTED_KRAFT_VERSION}),
            security_protocols=tuple(
                SECURITY_PROTOCOLS[config.is_encrypted(e.name)] for e in config.endpoints
            ),
            previous_epoch=previous_epoch,
        )

    async def _listen(self, node: ForwardingService, partitions: PartitionServicer) -> RpcServer:
        config = self._config
        pairs = tuple(zip(config.listen, config.endpoints, strict=True))
        secure = [address for address, e in pairs if config.is_encrypted(e.name)]
        plain = [address for address, e in pairs if not config.is_encrypted(e.name)]
        server = await start_server(
            secure, node, config.tls, plaintext=plain, also=partitions.add_to
        )
        LOGGER.info("broker %d listens on %s", config.node_id, ", ".join(secure + plain))
        return server

    # --- callbacks --------------------------------------------------------------------------------

    def _metadata_changed(self, image: MetadataImage, changes: Changes) -> None:
        self._view.follow(image, changes)
        manager = self._manager
        if manager is None:
            return
        if changes.brokers:
            manager.brokers_changed()
        if changes.configs:
            manager.configs_changed()
        keys = [PartitionKey(topic_id, index) for topic_id, index in changes.partitions]
        if changes.topics_deleted or changes.topics_created:
            keys += [key for key in manager.replicas if not self._view.has_topic(key.topic_id)]
        manager.partitions_changed(keys)

    def _durable(self, ticket: int) -> None:
        if self._driver is not None:
            self._driver.durable(ticket)

    def _fail(self, error: BaseException) -> None:
        """The disk failed, or the broker has no place in the cluster any more: end."""
        if self._failure is None:
            self._failure = error
            LOGGER.critical("the broker stops: %s", error)
        self._stop.set()

    def _role_changed(self, change: out.RoleChanged) -> None:
        leader = "unknown" if change.leader_id is None else change.leader_id
        LOGGER.info("the controllers' epoch %d, leader %s", change.epoch, leader)

    def _is_ready(self) -> bool:
        """Whether this broker does its part: it is unfenced, and hears from the quorum."""
        return (
            self._lifecycle is not None
            and self._lifecycle.unfenced.is_set()
            and self._driver is not None
            and self._driver.node.is_attached
        )

    async def _report_health(self, server: RpcServer) -> None:
        serving: bool | None = None
        while True:
            if self._is_ready() is not serving:
                serving = self._is_ready()
                await server.set_serving(serving)
            await asyncio.sleep(HEALTH_PERIOD_S)
