"""The broker's process: an observer of the metadata log that hosts partitions.

Start:
1. lock the directories, check their cluster and node, read and remove the clean shutdown file;
2. follow the metadata log as an observer, and listen;
3. register with a new incarnation id, and wait until the registration is in the image;
4. open the logs, apply the image, and only then ask to be unfenced.

Stop, on SIGTERM or SIGINT: controlled shutdown (the controller moves leaderships and removes this
broker from the ISRs), flush and close all logs, write the clean shutdown file. A failure ends the
process with a one-line message and a nonzero exit status, and without that file.
"""

from __future__ import annotations

import asyncio
import logging

from quorate.broker.alter_partition_manager import AlterPartitionManager
from quorate.broker.authorizer import BrokerAuthorizer, broker_authorizer
from quorate.broker.checkpoints import take_clean_shutdown, write_clean_shutdown
from quorate.broker.config import BrokerConfig
from quorate.broker.forwarding import ForwardingService
from quorate.broker.lifecycle import Lifecycle, LifecycleError, supported_features
from quorate.broker.metadata_view import MetadataView
from quorate.broker.metrics import broker_samples
from quorate.broker.replica_manager import ReplicaManager
from quorate.broker.service import PartitionService
from quorate.common.features import KRAFT_VERSION
from quorate.log.config import LogConfig
from quorate.log.meta_properties import random_uuid
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.metadata_version import SUPPORTED
from quorate.metadata.requests import RegisterBroker
from quorate.process.component import Component, running
from quorate.process.node import BATCH_BYTES_MAX, MetadataReplica, raft_config
from quorate.process.run import run_node, tune_for_serving
from quorate.process.server import NodeServer
from quorate.process.shutdown import Shutdown
from quorate.process.storage import Storage, open_storage
from quorate.process.telemetry import NodeTelemetry
from quorate.raft import outputs as out
from quorate.raft.types import SUPPORTED_KRAFT_VERSION
from quorate.rpc.cancellation import cancel_tasks
from quorate.rpc.client.partition_client import BrokerConnections
from quorate.rpc.metadata_client import MetadataClient
from quorate.rpc.server.partition_servicer import PartitionServicer
from quorate.rpc.wire.limits import ServerLimits, format_address
from quorate.rpc.wire.partition_values import PartitionKey
from quorate.runtime.metadata_loader import MetadataLoader
from quorate.telemetry.logs import NodeContext

LOGGER = logging.getLogger("quorate.broker")

SECURITY_PROTOCOLS = {False: 0, True: 1}
"""Kafka's numbers: PLAINTEXT, SSL."""


def run_broker(config: BrokerConfig) -> int:
    """Run until SIGTERM or SIGINT; return the exit status."""
    return run_node(
        config,
        lambda context, shutdown: Broker(config, context, shutdown).run(),
        (LifecycleError,),
    )


class Broker:
    """One broker. `run` starts, serves and stops it."""

    def __init__(self, config: BrokerConfig, context: NodeContext, shutdown: Shutdown) -> None:
        self._config = config
        self._context = context
        self._shutdown = shutdown
        self._authorizer = broker_authorizer(config)
        self._telemetry = NodeTelemetry(config)
        self._server = _server(config, self._authorizer)
        self._manager: ReplicaManager | None = None
        self._view = MetadataView(config.node_id)
        self._previous_epoch = -1

    async def run(self) -> None:
        try:
            await self._telemetry.start()
            await self._live()
        finally:
            await self._telemetry.stop()

    async def _live(self) -> None:
        config = self._config
        directories = tuple(dict.fromkeys((config.metadata_log_dir, *config.log_dirs)))
        with open_storage(
            config, directories, LogConfig(), self._shutdown, self._take_clean_shutdown
        ) as storage:
            by_path = dict(zip(directories, storage.metas, strict=True))
            ids = tuple(str(by_path[path].directory_id) for path in config.log_dirs)
            await self._serve(storage, ids)
        self._shutdown.raise_failure()
        LOGGER.info("stopped")

    def _take_clean_shutdown(self) -> None:
        self._previous_epoch = take_clean_shutdown(self._config.log_dirs)

    async def _serve(self, storage: Storage, log_dir_ids: tuple[str, ...]) -> None:
        config, fail = self._config, self._shutdown.fail
        node = MetadataReplica(
            config,
            storage,
            raft_config(config, storage.meta),
            self._shutdown,
            self._context,
            tls=config.tls,
            on_role=_log_leader,
            traces=self._telemetry.traces(),
        )
        client = MetadataClient(
            [format_address(host, port) for host, port in config.bootstrap_servers],
            tls=config.tls if config.is_encrypted(config.controller_listener) else None,
            client_id=f"quorate-broker/{config.node_id}",
            cluster_id=storage.meta.cluster_id,
        )
        registration = self._registration(storage.meta.cluster_id, log_dir_ids)
        lifecycle = self._lifecycle(registration, client, node)
        alter_partition_manager = AlterPartitionManager(
            config.node_id, client, broker_epoch=lambda: lifecycle.broker_epoch, fail=fail
        )
        is_tls = config.is_encrypted(config.endpoints[0].name)
        connections = BrokerConnections(
            config.tls if is_tls else None, f"quorate-replica/{config.node_id}"
        )
        manager = self._manager = ReplicaManager(
            config,
            node.clock,
            self._view,
            alter_partition_manager,
            connections,
            fail=fail,
        )
        node.loader.add_listener(self._metadata_changed)
        if self._authorizer is not None:
            self._authorizer.follow(node.loader, node.voter_ids)

        def is_ready() -> bool:
            """Whether this broker is in service: it is unfenced and attached to the quorum."""
            return node.is_attached and not lifecycle.why_fenced

        partitions = PartitionServicer(
            PartitionService(manager, self._view, client, node.driver.traces),
            ServerLimits(),
            self._authorizer,
        )
        self._server.bound(partitions.response_memory)
        service = ForwardingService(
            node.driver, client, batch_bytes_max=BATCH_BYTES_MAX, is_ready=is_ready
        )
        await self._server.listen(service, partitions.add_to)
        components = (
            Component("client", stop=client.close),
            Component("connections", stop=connections.close),
            *node.components(),
            Component("replicas", stop=manager.stop),
            self._server.component(),
            Component("partitions", stop=partitions.stop),
            Component("proposals", stop=alter_partition_manager.stop),
            Component("lifecycle", stop=lifecycle.stop),
            self._server.health(is_ready, self._shutdown),
        )
        async with running(components):
            self._telemetry.watch(
                node.driver,
                lambda: broker_samples(lifecycle, manager),
                lambda: lifecycle.why_fenced,
            )
            try:
                if await self._begin(lifecycle, node.loader, manager, alter_partition_manager):
                    tune_for_serving()
                    await self._shutdown.requested.wait()
                    await self._leave(lifecycle)
            finally:
                LOGGER.info("stopping")
        if self._shutdown.failure is None and lifecycle.broker_epoch >= 0:
            write_clean_shutdown(config.log_dirs, lifecycle.broker_epoch)

    def _lifecycle(
        self, registration: RegisterBroker, client: MetadataClient, node: MetadataReplica
    ) -> Lifecycle:
        config = self._config
        return Lifecycle(
            registration,
            client,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            session_timeout_ms=config.metadata.session_timeout_ms,
            registration_timeout_ms=config.registration_timeout_ms,
            metadata_offset=lambda: node.loader.offset - 1,
            fail=self._shutdown.fail,
        )

    async def _begin(
        self,
        lifecycle: Lifecycle,
        loader: MetadataLoader,
        manager: ReplicaManager,
        alter_partition_manager: AlterPartitionManager,
    ) -> bool:
        """Run steps 3 and 4 of the start; False if a shutdown was requested meanwhile."""

        async def begin() -> None:
            epoch = await lifecycle.register()
            kind = "clean" if self._previous_epoch >= 0 else "unclean or first"
            LOGGER.info("registered with epoch %d (%s start)", epoch, kind)
            lifecycle.start()
            await loader.reached(epoch + 1)
            alter_partition_manager.start()
            manager.start(epoch)
            await manager.settled()
            lifecycle.ready = True
            lifecycle.hurry()

        beginning = asyncio.create_task(begin())
        stopping = asyncio.create_task(self._shutdown.requested.wait())
        await asyncio.wait((beginning, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not beginning.done():
            await cancel_tasks(beginning)
            return False
        beginning.result()
        return True

    async def _leave(self, lifecycle: Lifecycle) -> None:
        """Run a controlled shutdown, unless it is disabled or the broker has failed."""
        config = self._config
        if self._shutdown.failure is not None or not config.controlled_shutdown:
            return
        LOGGER.info("requesting a controlled shutdown from the controller")
        if await lifecycle.shut_down(config.controlled_shutdown_timeout_ms):
            LOGGER.info("controlled shutdown granted")
        else:
            LOGGER.warning(
                "controlled shutdown not granted within %d ms: stopping anyway",
                config.controlled_shutdown_timeout_ms,
            )

    def _registration(self, cluster_id: str, log_dir_ids: tuple[str, ...]) -> RegisterBroker:
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
            previous_epoch=self._previous_epoch,
        )

    def _metadata_changed(self, image: MetadataImage, changes: MetadataDelta) -> None:
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


def _server(config: BrokerConfig, authorizer: BrokerAuthorizer | None) -> NodeServer:
    listeners = [
        (address, config.is_encrypted(endpoint.name))
        for address, endpoint in zip(config.listen, config.endpoints, strict=True)
    ]
    return NodeServer(config, listeners, config.tls, authorizer)


def _log_leader(change: out.RoleChanged) -> None:
    leader = "unknown" if change.leader_id is None else change.leader_id
    LOGGER.info("controller quorum: epoch %d, leader %s", change.epoch, leader)
