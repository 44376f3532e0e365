"""Producer sessions for Kafka's producers, which ask any broker for one.

The leader opens them. Every other controller forwards the request over gRPC in its own name, for
which its CLUSTER_ACTION suffices.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from quorate.common.error_codes import ErrorCode
from quorate.controller.config import ControllerConfig
from quorate.controller.leader_client import leader_client
from quorate.process.extension import NodeComponents
from quorate.rpc.client.session_client import SessionClient
from quorate.rpc.errors import AdminError, ClientError
from quorate.rpc.wire.values import OpenProducerRequest, OpenProducerResponse
from quorate.telemetry.limited_log import LimitedLog

LOGGER = logging.getLogger(__name__)

FORWARDED_MAX = 32
"""Requests that are forwarded at a time; others wait."""
FORWARD_TIMEOUT_MS = 5_000
"""How long the leader may take. Without a leader, clients ask again."""
LOG_INTERVAL_S = 60.0


class SessionOpener:
    """Opens sessions on the leader."""

    def __init__(self, components: NodeComponents[ControllerConfig]) -> None:
        self._components = components
        self._slots = asyncio.Semaphore(FORWARDED_MAX)
        self._refusals = LimitedLog(LOGGER, interval_s=LOG_INTERVAL_S)

    async def open(self, request: OpenProducerRequest) -> OpenProducerResponse:
        """The response of the leader; NOT_LEADER_OR_FOLLOWER if there is none."""
        applications = self._components.applications
        assert applications is not None, "a controller can lead"
        if self._components.driver.node.is_leader:
            return await applications.open_session(request)
        try:
            async with asyncio.timeout(request.timeout_ms / 1000):
                await self._slots.acquire()
        except TimeoutError:
            leader = self._components.driver.node.current_leader
            return OpenProducerResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader)
        try:
            if self._components.driver.node.is_leader:  # by now
                return await applications.open_session(request)
            return await self._forward(request)
        finally:
            self._slots.release()

    async def _forward(self, request: OpenProducerRequest) -> OpenProducerResponse:
        leader = self._components.driver.node.current_leader
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        client = leader_client(self._components, SessionClient)
        if client is None:
            return OpenProducerResponse(error, leader)
        try:
            async with client:
                return await client.open(replace(request, timeout_ms=FORWARD_TIMEOUT_MS))
        except AdminError as failed:
            self._refusals.warning(
                failed.code,
                "the leader rejects a producer session that a client of this controller asks for: "
                "%s: %s",
                failed.code.name,
                failed.message,
            )
            return OpenProducerResponse(failed.code, leader, failed.message)
        except ClientError as failed:
            return OpenProducerResponse(error, leader, str(failed))
