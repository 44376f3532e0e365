"""The controller process: one directory, one raft node, one gRPC server.

Start: 1. lock the directory, 2. read meta.properties and check who this is, 3. let `prepare` apply
what was staged for this start (`quorate recover --at-restart`), 4. recover the log and
quorum-state, 5. listen, 6. run. End, on SIGTERM or SIGINT: hand over leadership, answer what is
parked, close the log with its clean-shutdown marker, release the lock. What goes wrong ends the
process with one line and an exit status that is not 0.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import random
import secrets
import signal
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import uvloop

from quorate.controller.bootstrap import BootstrapError, metadata_version_max, read_bootstrap
from quorate.controller.companion import Accompany, GatedService, Parts
from quorate.controller.config import ConfigError, ControllerConfig
from quorate.controller.registration import Registration
from quorate.controller.security import node_gate, server_limits
from quorate.controller.telemetry import STARTING, ControllerTelemetry
from quorate.controller.unformatted import UnformattedNode
from quorate.log.errors import LogError
from quorate.log.lock import DirectoryLock
from quorate.log.meta_properties import (
    META_PROPERTIES_FILE,
    MetaProperties,
    ensure_directory_id,
)
from quorate.log.metadata_log import LogConfig, MetadataLog, partition_directory
from quorate.log.quorum_state import REMOVED_MARKER, QuorumStateFile
from quorate.log.recovery import log_recovery
from quorate.metadata.controller import ControllerSettings, MetadataController
from quorate.raft import InitialState, LogState, RaftConfig, RaftNode
from quorate.raft import outputs as out
from quorate.raft.errors import RaftError
from quorate.raft.types import ReplicaKey
from quorate.records.errors import RecordsError
from quorate.rpc.errors import RpcError
from quorate.rpc.handler import NodeHandler
from quorate.rpc.server import RpcServer, start_server
from quorate.rpc.tls import TlsConfig
from quorate.rpc.transport import PeerTransport
from quorate.runtime.clock import Clock
from quorate.runtime.collection import collect_briefly
from quorate.runtime.consistency import ConsistencyChecker
from quorate.runtime.driver import RaftDriver
from quorate.runtime.memory import return_large_buffers
from quorate.runtime.metadata_loader import MetadataLoader
from quorate.runtime.metadata_service import MetadataService
from quorate.runtime.outbound import Outbound
from quorate.runtime.service import NodeService
from quorate.runtime.snapshots import SnapshotPolicy, Snapshotter
from quorate.runtime.tasks import supervise
from quorate.runtime.threads import switch_soon
from quorate.telemetry import logs
from quorate.telemetry.extra import TelemetryError
from quorate.telemetry.logs import NodeContext

LOGGER = logging.getLogger("quorate.controller")

BATCH_BYTES_MAX = 8 * 1024 * 1024
SHUTDOWN_TIMEOUT_S = 3.0
"""How long a leader that stops waits for the voters to hear of it, seconds."""

UNSAFE_ISR_VARIABLE = "QUORATE_TEST_UNSAFE_ISR"
"""Tests set it to see what KIP-841's checks are good for: without them records are lost."""


class ControllerError(Exception):
    """Why the process cannot run; one line for the person who started it."""


ENDINGS = (ControllerError, LogError, RecordsError, RaftError, RpcError, TelemetryError)
"""What ends the process with one line."""


Prepare = Callable[[Path], str]
"""Called with the locked directory before its log is opened; what it did as one line, or ""."""


def run_controller(
    config: ControllerConfig, prepare: Prepare | None = None, accompany: Accompany | None = None
) -> int:
    """Run until SIGTERM or SIGINT; return the exit status. accompany: makes what lives beside the
    node.
    """
    context = logs.configure(config.node_id, config.log_format)
    return_large_buffers()
    try:
        return uvloop.run(Controller(config, context, prepare, accompany).run())
    except ENDINGS as error:
        print(f"quorate: error: {error}", file=sys.stderr)
        return 1


class Controller:
    """One controller. `run` is its whole life."""

    def __init__(
        self,
        config: ControllerConfig,
        context: NodeContext,
        prepare: Prepare | None = None,
        accompany: Accompany | None = None,
    ) -> None:
        self._config = config
        self._context = context
        self._prepare = prepare
        self._accompany = accompany
        self._telemetry = ControllerTelemetry(config)
        self._stop = asyncio.Event()
        self._failure: BaseException | None = None
        self._driver: RaftDriver | None = None
        self._server: RpcServer | None = None
        self._gate = node_gate(config)

    async def run(self) -> int:
        try:
            await self._telemetry.start()
            return await self._live()
        finally:
            await self._telemetry.stop()

    async def _live(self) -> int:
        config = self._config
        directory = config.metadata_log_dir
        tls = _tls(config)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        waits = config.unformatted_wait and not (directory / META_PROPERTIES_FILE).exists()
        if waits and not await self._wait_for_format(tls):
            return 0
        meta = self._identify(directory)
        with DirectoryLock(directory):
            if self._prepare is not None and (line := self._prepare(directory)):
                LOGGER.warning("%s", line)
            log = self._open_log(loop)
            try:
                await self._serve(meta, log, tls)
            finally:
                log.close()
        if self._failure is not None:
            raise ControllerError(str(self._failure))
        LOGGER.info("stopped")
        return 0

    async def _wait_for_format(self, tls: TlsConfig | None) -> bool:
        """Serve Format until it was done (True), or the process is told to stop (False)."""
        node = UnformattedNode(self._config)
        self._telemetry.why_not_running = "this node is not formatted and waits for Format"
        await self._listen(node, tls)
        LOGGER.warning(
            "%s is not formatted: waiting for Format over gRPC", self._config.metadata_log_dir
        )
        waiting = {asyncio.create_task(e.wait()) for e in (node.formatted, self._stop)}
        _, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        if self._stop.is_set() and self._server is not None:
            await self._server.stop()
        self._telemetry.why_not_running = STARTING
        return not self._stop.is_set()

    async def _listen(self, handler: NodeHandler, tls: TlsConfig | None) -> None:
        """Start the server, or let another handler answer on the one that runs."""
        if self._server is not None:
            self._server.use(handler)
            return
        listeners = self._config.grpc_listeners
        secure = [f"{each.host}:{each.port}" for each in listeners if each.tls]
        plain = [f"{each.host}:{each.port}" for each in listeners if not each.tls]
        self._server = await start_server(
            secure,
            handler,
            tls,
            server_limits(self._config),
            plaintext=plain,
            traced=self._config.trace_sample_ratio > 0,
            gate=self._gate,
        )
        LOGGER.info("node %d listens on %s", self._config.node_id, ", ".join(secure + plain))

    def _identify(self, directory: Path) -> MetaProperties:
        """Who the directory says this is; it must agree with the configuration."""
        config = self._config
        meta = MetaProperties.read(directory)
        meta.check(directory, config.node_id, config.cluster_id, config.source)
        if meta.directory_id is None:
            meta = ensure_directory_id(directory)
            LOGGER.info("gave the directory %s the id %s", directory, meta.directory_id)
        return meta

    def _open_log(self, loop: asyncio.AbstractEventLoop) -> MetadataLog:
        config = self._config

        def on_durable(ticket: int) -> None:
            loop.call_soon_threadsafe(self._durable, ticket)

        def on_failure(error: BaseException) -> None:
            loop.call_soon_threadsafe(self._fail, error)

        return MetadataLog.open(
            config.metadata_log_dir,
            LogConfig(
                segment_bytes_max=config.segment_bytes_max,
                retention_bytes=config.retention_bytes_max,
                retention_ms=config.retention_ms_max,
                batch_bytes_max=BATCH_BYTES_MAX,
            ),
            on_durable=on_durable,
            on_failure=on_failure,
        )

    async def _serve(self, meta: MetaProperties, log: MetadataLog, tls: TlsConfig | None) -> None:
        config = self._config
        clock = Clock()
        metadata_directory = partition_directory(config.metadata_log_dir)
        quorum_state = QuorumStateFile(metadata_directory)
        marker = metadata_directory / REMOVED_MARKER
        initial = _initial_state(log, quorum_state, removed=marker.exists())
        log_recovery(log.recovered)
        node = RaftNode(_raft_config(config, meta), initial, random.Random(), clock.now_ms())  # noqa: S311
        transport = PeerTransport(meta.cluster_id, tls, is_encrypted=config.is_encrypted)
        loader = MetadataLoader(log, on_fatal=self._fail)
        controller = _metadata_controller(config, meta, log.recovered.end_offset)
        metadata = MetadataService(loader, controller, batch_bytes_max=BATCH_BYTES_MAX)
        driver = self._driver = RaftDriver(
            node,
            log,
            quorum_state,
            Outbound(transport),
            clock,
            on_fatal=self._fail,
            on_committed=loader.committed,
            on_role=self._role_changed,
            traces=self._telemetry.traces(),
            on_voters=lambda change: _remember_removal(marker, change),
            on_leadership=metadata.leadership,
        )
        metadata.bind(driver)
        if self._gate is not None:
            self._gate.follow(loader, lambda: [voter.id for voter in node.voters])
        parts = Parts(
            config, meta.cluster_id, driver, loader, metadata, tls, self._fail, self._gate
        )
        companion = None if self._accompany is None else self._accompany(parts)
        serve = NodeService if companion is None else functools.partial(GatedService, companion)
        service = serve(
            driver,
            batch_bytes_max=BATCH_BYTES_MAX,
            is_ready=self._is_ready,
            metadata=metadata,
        )
        await self._listen(service, tls)
        LOGGER.info("directory %s, cluster %s", meta.directory_id, meta.cluster_id)
        policy = SnapshotPolicy(config.snapshot_interval_bytes_max, config.snapshot_interval_ms_max)
        background = (
            Registration(parts),
            Snapshotter(driver, policy, loader),
            ConsistencyChecker(driver, transport, config.consistency_check_interval_ms),
        )
        self._context.position = lambda: (node.epoch, node.core.log.end_offset)
        if companion is not None:
            companion.start()
        loader.start()
        driver.start()
        self._telemetry.watch(driver, None if companion is None else companion.samples)
        for each in background:
            each.start()
        health = supervise(self._report_health(), "health", driver.fail)
        # What was loaded stays: collecting it again and again costs commits their latency.
        collect_briefly()
        switch_soon()
        await self._stop.wait()
        LOGGER.info("stopping")
        health.cancel()
        for each in background:
            await each.stop()
        await driver.hand_over(SHUTDOWN_TIMEOUT_S)
        if self._server is not None:
            await self._server.stop()
        if companion is not None:
            await companion.stop()
        await metadata.close()
        await loader.stop()
        await driver.close()

    # --- callbacks --------------------------------------------------------------------------------

    def _durable(self, ticket: int) -> None:
        if self._driver is not None:
            self._driver.durable(ticket)

    def _fail(self, error: BaseException) -> None:
        """The disk failed or an invariant broke: let another lead, and end."""
        if self._failure is None:
            self._failure = error
            if self._driver is not None:
                self._driver.resign(f"the replica fails: {error}")
        self._stop.set()

    def _role_changed(self, change: out.RoleChanged) -> None:
        leader = "unknown" if change.leader_id is None else change.leader_id
        LOGGER.info(
            "%s in epoch %d, leader %s: %s", change.role.value, change.epoch, leader, change.reason
        )

    def _is_ready(self) -> bool:
        """Whether this member does its part: it leads, or a leader answers its fetches."""
        return self._driver is not None and self._driver.node.is_attached

    async def _report_health(self) -> None:
        """Keep grpc.health.v1 true; it speaks of this member only."""
        assert self._server is not None, "the server is started first"
        serving: bool | None = None
        while True:
            if self._is_ready() is not serving:
                serving = self._is_ready()
                await self._server.set_serving(serving)
            await asyncio.sleep(0.1)


def _initial_state(
    log: MetadataLog, quorum_state: QuorumStateFile, *, removed: bool
) -> InitialState:
    """What recovery found, as the protocol wants it."""
    recovered = log.recovered
    # RecoveredLog names an epoch by the offset at which it starts.
    epochs = tuple((entry.epoch, entry.offset) for entry in recovered.epochs)
    state = LogState(recovered.start, recovered.end_offset, epochs, recovered.latest_snapshot)
    election = quorum_state.read()
    quorum_state.check(election, recovered.last_epoch)
    return InitialState(
        election,
        state,
        recovered.voters,
        recovered.kraft_versions,
        removed,
        recovered.required_end,
    )


def _remember_removal(marker: Path, change: out.VotersChanged) -> None:
    LOGGER.info("voters %s from offset %d", change.voters, change.offset)
    if change.removed_self and not change.is_voter:
        marker.touch()
    elif change.is_voter:
        marker.unlink(missing_ok=True)


def _raft_config(config: ControllerConfig, meta: MetaProperties) -> RaftConfig:
    return RaftConfig(
        meta.cluster_id,
        ReplicaKey(config.node_id, meta.directory_id),
        config.endpoints,
        bootstrap=config.bootstrap_endpoints,
        static_voters=config.static_voters,
        auto_join=config.auto_join,
        incarnation=secrets.randbits(64),
        election_timeout_ms=config.election_timeout_ms,
        election_backoff_max_ms=config.election_backoff_max_ms,
        fetch_timeout_ms=config.fetch_timeout_ms,
        request_timeout_ms=config.request_timeout_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        fetch_bytes_max=config.fetch_bytes_max,
        snapshot_chunk_bytes_max=config.snapshot_chunk_bytes_max,
    )


def _metadata_controller(
    config: ControllerConfig, meta: MetaProperties, end_offset: int
) -> MetadataController:
    """end_offset: of the log; what it was formatted with matters while it is empty."""
    try:
        formatted_with = read_bootstrap(config)
    except BootstrapError as error:
        if end_offset == 0:
            raise ControllerError(str(error)) from error
        formatted_with = ()
    settings = ControllerSettings(
        session_timeout_ms=config.broker_session_timeout_ms,
        idle_interval_ms=config.idle_interval_ms_max,
        num_partitions=config.num_partitions,
        default_replication_factor=config.default_replication_factor,
        leader_imbalance_check_interval_ms=config.leader_imbalance_check_interval_s * 1000,
        metadata_version_max=metadata_version_max(config),
    )
    is_unsafe = bool(os.environ.get(UNSAFE_ISR_VARIABLE))
    if is_unsafe:
        LOGGER.warning("%s is set: any replica may enter an ISR", UNSAFE_ISR_VARIABLE)
    return MetadataController(
        lambda: uuid.uuid4().bytes,
        settings,
        cluster_id=meta.cluster_id,
        formatted_with=formatted_with,
        enforce_eligibility=not is_unsafe,
    )


def _tls(config: ControllerConfig) -> TlsConfig | None:
    files = config.tls
    if files is None:
        return None
    if files.ca is None:
        raise ConfigError(
            f"{config.source}: ssl.ca.location is not set: controllers check each other"
        )
    return TlsConfig(files.certificate, files.key, files.ca)


__all__ = ["Controller", "ControllerError", "run_controller"]
