"""A controller: one directory, one raft node, one gRPC server.

`run_controller` runs it as a process, `quorate.embedded` within the program of a user. What is only
a process's (signals, logging, tuning of the interpreter) is in `process.run`.

Startup: 1. read meta.properties and check it against the configuration, 2. lock the directory,
3. let `prepare` apply the change staged for this start (`quorate recover --at-restart`), 4. recover
the log and quorum-state, 5. listen, 6. run. Shutdown: hand over leadership, answer parked requests,
close the log with its clean-shutdown marker, release the lock. A failure ends with a NodeError.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from quorate.controller.bootstrap import BootstrapError, read_bootstrap
from quorate.controller.config import ControllerConfig
from quorate.controller.formatting import FormatError, format_directory
from quorate.controller.kafka.listener import (
    KafkaListener,
    listener_samples,
    node_service,
    peers_factory,
)
from quorate.controller.registration import Registration
from quorate.controller.security import node_authorizer, server_limits
from quorate.controller.topic.listener import TopicListener
from quorate.controller.unformatted import UnformattedNode
from quorate.log.meta_properties import META_PROPERTIES_FILE, MetaProperties
from quorate.metadata.controller import MetadataController
from quorate.process.component import Component, running
from quorate.process.extension import ExtensionFactory, NodeComponents, refusal_of
from quorate.process.node import BATCH_BYTES_MAX, MetadataReplica, raft_config
from quorate.process.run import run_node, tune_for_serving
from quorate.process.server import NodeServer
from quorate.process.shutdown import NodeError, Shutdown
from quorate.process.storage import Storage, open_storage
from quorate.process.telemetry import NodeTelemetry
from quorate.raft import outputs as out
from quorate.raft.types import VoterSet
from quorate.rpc.server.framed_appends import FramedAppends
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.limits import format_address
from quorate.rpc.wire.values import FormatMode
from quorate.runtime.application_service import ApplicationService
from quorate.runtime.authorizer import NodeAuthorizer
from quorate.runtime.consistency import ConsistencyChecker
from quorate.runtime.election_log import ElectionLog
from quorate.runtime.metadata_events import MetadataEvents
from quorate.runtime.metadata_loader import MetadataLoader
from quorate.runtime.metadata_service import MetadataService
from quorate.runtime.service import NodeService
from quorate.runtime.voter_watch import VoterWatch
from quorate.runtime.watchers import WatchHub, WatchLimits
from quorate.telemetry.logs import NodeContext

LOGGER = logging.getLogger("quorate.controller")

SHUTDOWN_TIMEOUT_S = 3.0
"""How long a stopping leader waits until the voters are notified, seconds."""

Prepare = Callable[[Path], str]
"""Called with the locked directory before its log is opened. Returns one line that says what it
did, or "".
"""


def run_controller(
    config: ControllerConfig,
    prepare: Prepare | None = None,
    extension_factories: Sequence[ExtensionFactory[ControllerConfig]] = (),
) -> int:
    """Run until SIGTERM or SIGINT; return the exit status."""

    def run(context: NodeContext, shutdown: Shutdown) -> Coroutine[Any, Any, None]:
        return Controller(
            config,
            context,
            shutdown,
            prepare,
            extension_factories,
            on_serving=tune_for_serving,
        ).run()

    return run_node(config, run)


class Controller:
    """One controller, from the start of `run` until it returns, which `shutdown` requests.

    on_serving: called once the controller serves.
    """

    def __init__(
        self,
        config: ControllerConfig,
        context: NodeContext,
        shutdown: Shutdown,
        prepare: Prepare | None = None,
        extension_factories: Sequence[ExtensionFactory[ControllerConfig]] = (),
        *,
        on_serving: Callable[[], None],
    ) -> None:
        self._config = config
        self._context = context
        self._prepare = prepare
        self._extension_factories = extension_factories
        self._on_serving = on_serving
        self._shutdown = shutdown
        self._telemetry = NodeTelemetry(config, watches_connections=True)
        self._authorizer = node_authorizer(config)
        self._tls = None if config.tls is None else config.tls.mutual
        self._server = _server(config, self._tls, self._authorizer)

    async def run(self) -> None:
        """Serve until a shutdown is requested. Raises NodeError and the others of `ENDINGS`."""
        try:
            await self._telemetry.start()
            await self._live()
        finally:
            await self._server.close()
            await self._telemetry.stop()

    async def _live(self) -> None:
        config = self._config
        directory = config.metadata_log_dir
        is_formatted = (directory / META_PROPERTIES_FILE).exists()
        if config.unformatted_format and not is_formatted:
            await asyncio.to_thread(_format, config)
        elif config.unformatted_wait and not is_formatted and not await self._wait_for_format():
            return
        with open_storage(
            config, (directory,), config.log, self._shutdown, self._apply_staged
        ) as storage:
            await self._serve(storage)
        self._shutdown.raise_failure()
        LOGGER.info("stopped")

    async def _wait_for_format(self) -> bool:
        """Serve Format until the node is formatted (True), or the process must stop (False)."""
        node = UnformattedNode(self._config)
        self._telemetry.waits_for = "this node is not formatted and waits for Format"
        await self._listen(node)
        security = self._config.security
        who = ", ".join((*security.format_principals, *security.super_users))
        LOGGER.warning(
            "%s is not formatted: waiting for Format over gRPC from %s",
            self._config.metadata_log_dir,
            who or "nobody (set quorate.format.principals)",
        )
        stop = self._shutdown.requested
        waiting = {asyncio.create_task(e.wait()) for e in (node.formatted, stop)}
        _, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        if stop.is_set():
            await self._server.stop()
        self._telemetry.waits_for = ""
        return not stop.is_set()

    def _apply_staged(self) -> None:
        directory = self._config.metadata_log_dir
        if self._prepare is not None and (line := self._prepare(directory)):
            LOGGER.warning("%s", line)

    async def _listen(self, handler: NodeService | UnformattedNode) -> None:
        await self._server.listen(handler)
        self._telemetry.connections = self._server.connections

    async def _serve(self, storage: Storage) -> None:
        config, meta = self._config, storage.meta
        elections = ElectionLog()
        node = MetadataReplica(
            config,
            storage,
            raft_config(config, meta),
            self._shutdown,
            self._context,
            tls=self._tls,
            on_role=elections.role_changed,
            policy=config.snapshots,
            traces=self._telemetry.traces(),
            peers=peers_factory(config),
        )
        driver, loader = node.driver, node.loader
        elections.bind(driver)
        _warn_without_grpc_endpoint(config, driver.node.voters)
        self._shutdown.add_listener(lambda error: driver.resign(f"the replica failed: {error}"))
        controller = _metadata_controller(config, meta, storage.log.recovered.end_offset)
        metadata = MetadataService(loader, controller, batch_bytes_max=BATCH_BYTES_MAX)
        metadata.bind(driver)
        _log_events(config, loader, metadata, controller)
        if self._authorizer is not None:
            self._authorizer.follow(loader, node.voter_ids)
        shared = NodeComponents(
            config,
            meta.cluster_id,
            driver,
            loader,
            node.snapshotter,
            metadata,
            self._tls,
            self._shutdown.fail,
            self._authorizer,
            ApplicationService(driver, loader, metadata),
        )
        extensions = [factory(shared) for factory in self._extension_factories]
        refuses = partial(refusal_of, extensions)
        service = node_service(
            shared,
            batch_bytes_max=BATCH_BYTES_MAX,
            is_ready=lambda: node.is_attached,
            refuses=refuses,
            watch_limits=WatchLimits.of(config.security.watchers_max, server_limits(config)),
        )
        listener = self._kafka_listener(shared, refuses, service)
        topic = None if config.topic.listener is None else TopicListener(shared, service.appends)
        watchers = service.watchers
        _notify(node, metadata, watchers)
        await self._listen(service)
        LOGGER.info("directory %s, cluster %s", meta.directory_id, meta.cluster_id)
        checker = ConsistencyChecker(driver, node.transport, config.consistency_check_interval_ms)
        components = (
            *node.components(),
            Component("metadata", stop=metadata.close),
            *(() if listener is None else (Component.of("Kafka listener", listener),)),
            *(() if topic is None else (Component.of("topic listener", topic),)),
            *(Component.of("extension", each) for each in extensions),
            self._server.component(),
            Component("watchers", lambda: watchers.start(self._shutdown.fail), watchers.stop),
            Component("leadership", stop=lambda: driver.hand_over(SHUTDOWN_TIMEOUT_S)),
            Component.of("voter watch", VoterWatch(driver, elections)),
            Component.of("registration", Registration(shared)),
            Component.of("consistency check", checker),
            self._server.health(lambda: node.is_attached, self._shutdown),
        )
        async with running(components):
            self._telemetry.watch(
                driver,
                lambda: chain(
                    watchers.samples(),
                    listener_samples(listener),
                    *(each.samples() for each in extensions),
                ),
            )
            self._on_serving()
            await self._shutdown.requested.wait()
            LOGGER.info("stopping")

    def _kafka_listener(
        self,
        components: NodeComponents[ControllerConfig],
        refuses: Callable[[object], str],
        service: NodeService,
    ) -> KafkaListener | None:
        """The listener for Kafka's brokers, where `service` also takes appends; None without."""
        config = self._config
        if config.kafka.name is None:
            return None
        limits, note = server_limits(config), self._server.note_streamed
        appends = FramedAppends(config.node_id, service, limits, self._authorizer, note)
        listener = KafkaListener(components, refuses, appends)
        service.frames_port = lambda: listener.frames_port
        return listener


def _format(config: ControllerConfig) -> None:
    """Format the directories as a new replica. Raises NodeError, LogError."""
    assert config.cluster_id is not None, "the configuration was checked"
    mode = FormatMode.NO_INITIAL_CONTROLLERS
    try:
        done = format_directory(config, config.cluster_id, mode)
    except (FormatError, OSError) as error:
        raise NodeError(f"cannot format {config.metadata_log_dir}: {error}") from error
    LOGGER.info("formatted %s: directory %s", config.metadata_log_dir, done.directory_id)


def _server(
    config: ControllerConfig, tls: TlsConfig | None, authorizer: NodeAuthorizer | None
) -> NodeServer:
    listeners = [(format_address(e.host, e.port), e.tls) for e in config.grpc_listeners]
    return NodeServer(config, listeners, tls, authorizer, server_limits(config))


def _notify(node: MetadataReplica, metadata: MetadataService, watchers: WatchHub) -> None:
    """Let the node notify the metadata service and the watchers of its changes."""

    def on_leadership(change: out.LeadershipAcquired | out.LeadershipLost) -> None:
        metadata.leadership(change)
        watchers.leadership(change)

    node.on_leadership = on_leadership
    node.on_committed = watchers.advanced


def _warn_without_grpc_endpoint(config: ControllerConfig, voters: VoterSet) -> None:
    """Warn of voters whose gRPC endpoints are unknown."""
    if len(unknown := config.without_grpc_endpoint(voters)):
        LOGGER.warning(
            "the log knows the voters %s only by %s, the listener for Kafka's brokers: name the "
            "addresses of their first listener in controller.quorum.voters, or no leader can be "
            "elected",
            unknown,
            config.kafka.name,
        )


def _log_events(
    config: ControllerConfig,
    loader: MetadataLoader,
    metadata: MetadataService,
    controller: MetadataController,
) -> None:
    """Log changes of brokers and topics while this node is the active controller."""
    events = MetadataEvents(
        lambda: metadata.is_active, controller.is_silent, config.metadata.session_timeout_ms
    )
    loader.add_listener(events.changed)


def _metadata_controller(
    config: ControllerConfig, meta: MetaProperties, end_offset: int
) -> MetadataController:
    """Build the metadata controller. Raises NodeError.

    end_offset: the log end offset. An unusable bootstrap checkpoint matters only if the log is
    empty.
    """
    try:
        formatted_with = read_bootstrap(config)
    except BootstrapError as error:
        if end_offset == 0:
            raise NodeError(str(error)) from error
        formatted_with = ()
    return MetadataController(
        lambda: uuid.uuid4().bytes,
        config.metadata,
        cluster_id=meta.cluster_id,
        formatted_with=formatted_with,
        wall_ms=lambda: time.time_ns() // 1_000_000,
        node_id=config.node_id,
    )
