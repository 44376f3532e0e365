"""Registers a controller and the features that it supports in the log, once per process.

It sends RegisterController to the active controller as soon as the finalized metadata.version
supports registrations and the image holds none of this process: at the first start after an
upgrade, and again after each restart, with a new incarnation id. A quorum without metadata gets no
record. The registration limits the levels to which features can be upgraded, and states whether the
migration from ZooKeeper is enabled on this controller.

Source: KIP-919, "Controller Registration"; KIP-866, "Migration Trigger"; Kafka's
ControllerRegistrationManager.
"""

from __future__ import annotations

import asyncio
import logging

from quorate.bridge.peers.registration import register_over_kafka
from quorate.bridge.requests.replication import bridge_endpoint
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import KRAFT_VERSION
from quorate.controller.config import ControllerConfig
from quorate.controller.leader_client import leader_client
from quorate.log.meta_properties import random_uuid
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.metadata_version import CONTROLLER_REGISTRATION, SUPPORTED
from quorate.metadata.requests import (
    ControllerFeature,
    RegisterController,
    RegisterControllerResponse,
)
from quorate.process.extension import NodeComponents
from quorate.raft.types import SUPPORTED_KRAFT_VERSION
from quorate.rpc.cancellation import cancel_tasks
from quorate.rpc.errors import RpcError
from quorate.rpc.metadata_client import MetadataClient
from quorate.runtime.tasks import supervise

LOGGER = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 5_000
RETRY_MIN_S = 0.5
RETRY_MAX_S = 30.0
COMMITTED_S = 1.0
"""How long after the response the record may take to reach this node's image, seconds."""


class Registration:
    """The registration of one controller.

    Start it when the node listens, and stop it before the node ends.
    """

    def __init__(self, components: NodeComponents[ControllerConfig]) -> None:
        self._components = components
        self._incarnation = random_uuid()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._components.loader.add_listener(self._image_changed)
        self._task = supervise(self._run(), "controller-registration", self._components.driver.fail)

    async def stop(self) -> None:
        await cancel_tasks(self._task)

    def _image_changed(self, _image: MetadataImage, changes: MetadataDelta) -> None:
        if changes.features or changes.controllers:
            self._changed.set()

    def is_wanted(self) -> bool:
        """Whether the log lacks a registration of this process and can hold one."""
        image = self._components.loader.image
        if image.features.metadata_version < CONTROLLER_REGISTRATION or image.in_transaction:
            return False
        registered = image.cluster.controllers.get(self._components.config.node_id)
        return registered is None or registered.incarnation_id != self._incarnation

    async def _run(self) -> None:
        pause_s = RETRY_MIN_S
        while True:
            if not self.is_wanted():
                self._changed.clear()
                await self._changed.wait()
                pause_s = RETRY_MIN_S
                continue
            refused = await self._try()
            if refused:
                LOGGER.warning("this controller is not registered yet: %s", refused)
            await asyncio.sleep(pause_s if refused else COMMITTED_S)
            pause_s = min(2 * pause_s, RETRY_MAX_S)

    async def _try(self) -> str:
        """Send the registration. Returns why it failed, or "" if it succeeded."""
        try:
            answer = await self._ask()
        except RpcError as error:
            return str(error)
        except Exception as error:
            LOGGER.exception("registration failed")
            return f"{type(error).__name__}: {error}"
        if answer.error is ErrorCode.NONE:
            LOGGER.info("registered the features that this controller supports")
            return ""
        return f"{answer.error.name}: {answer.message}"

    async def _ask(self) -> RegisterControllerResponse:
        metadata = self._components.metadata
        if metadata.is_active:
            answer = await metadata.handle(self.request(), REQUEST_TIMEOUT_MS)
            if isinstance(answer.response, RegisterControllerResponse):
                return answer.response
            return RegisterControllerResponse(error=answer.error, message=answer.message)
        leaders = self._components.driver.node.current_leader.endpoints
        client = None
        if not self._speaks_kafka_only(leaders):
            client = leader_client(
                self._components, MetadataClient, request_timeout_ms=REQUEST_TIMEOUT_MS
            )
        if client is None:
            return await self._ask_over_kafka()
        async with client:
            response = await client.ask(self.request())
        assert isinstance(response, RegisterControllerResponse), type(response)
        return response

    def _speaks_kafka_only(self, endpoints: tuple[Endpoint, ...]) -> bool:
        """Whether a leader with these endpoints has none for gRPC, as far as is known."""
        config, voters = self._components.config, self._components.driver.node.voters
        if not endpoints or not config.kafka.serves_voters:
            return False
        found = {config.grpc_endpoint(each, voters).name for each in endpoints}
        return found == {config.kafka.name}

    async def _ask_over_kafka(self) -> RegisterControllerResponse:
        """Register with a leader that has no gRPC listener."""
        config = self._components.config
        leader = self._components.driver.node.current_leader
        endpoint = bridge_endpoint(leader.endpoints, config.peer_listener)
        if endpoint is None:
            return RegisterControllerResponse(
                error=ErrorCode.NOT_CONTROLLER, message="no leader is known"
            )
        tls = None if config.kafka_tls is None else config.kafka_tls.mutual
        timeout_s = REQUEST_TIMEOUT_MS / 1000
        return await register_over_kafka(endpoint, tls, self.request(), timeout_s)

    def request(self) -> RegisterController:
        config = self._components.config
        supported = SUPPORTED | {KRAFT_VERSION: SUPPORTED_KRAFT_VERSION}
        return RegisterController(
            config.node_id,
            self._incarnation,
            config.endpoints,
            tuple(ControllerFeature(name, levels) for name, levels in sorted(supported.items())),
            tuple(int(config.is_encrypted(each.name)) for each in config.endpoints),
            config.migration.enabled,
        )
