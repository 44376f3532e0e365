"""A broker's service for administrators: it forwards metadata requests to the active controller.

Like any observer, a broker answers quorum requests with the leader's address. It forwards metadata
requests under its own identity and returns the controller's response. With an authorizer
(`broker.authorizer`), it forwards only requests that the caller is authorized to make. Requests
that nodes send about themselves are not forwarded, because the broker would impersonate those
nodes.

Source: KIP-590 (forwarding), KIP-853 (`--bootstrap-server`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quorate.common.error_codes import ErrorCode
from quorate.metadata.requests import (
    AllocateProducerIds,
    AlterPartition,
    AssignReplicasToDirs,
    BrokerHeartbeat,
    RegisterBroker,
    RegisterController,
)
from quorate.rpc.errors import AdminError, ClientError
from quorate.rpc.metadata_client import MetadataClient
from quorate.rpc.wire.convert_metadata import MetadataAnswer
from quorate.runtime.driver import RaftDriver
from quorate.runtime.service import NodeService

OF_NODES = (
    AllocateProducerIds,
    AlterPartition,
    AssignReplicasToDirs,
    BrokerHeartbeat,
    RegisterBroker,
    RegisterController,
)


class ForwardingService(NodeService):
    """`NodeService` of an observer that also serves Metadata."""

    def __init__(
        self,
        driver: RaftDriver,
        client: MetadataClient,
        *,
        batch_bytes_max: int,
        is_ready: Callable[[], bool],
    ) -> None:
        super().__init__(driver, batch_bytes_max=batch_bytes_max, is_ready=is_ready)
        self._client = client
        self._node = driver.node

    async def metadata(self, request: Any, timeout_ms: int) -> MetadataAnswer:
        """Return the active controller's answer; see
        `rpc.server.metadata_servicers.MetadataHandler`.
        """
        leader = self._node.current_leader
        if isinstance(request, OF_NODES):
            text = (
                "brokers do not forward this request: nodes send it to the controllers themselves"
            )
            return MetadataAnswer(ErrorCode.INVALID_REQUEST, leader, message=text)
        self._client.learn(leader)
        try:
            asked = await self._client.ask_whole(request, timeout_ms=timeout_ms)
        except AdminError as error:
            return MetadataAnswer(error.code, leader, message=error.message)
        except ClientError as error:
            return MetadataAnswer(ErrorCode.REQUEST_TIMED_OUT, leader, message=str(error))
        return MetadataAnswer(ErrorCode.NONE, asked.leader, asked.response)
