"""The bridge of one controller: its listener, and its messages to brokers in ZooKeeper mode.

What it needs of its node it is given: who answers requests for metadata (`handle`), and the driver
for the log. It listens from `open` to `close`; whether that is now, the migration decides.

Source: KIP-866.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from quorate.bridge import schemas as s
from quorate.bridge.exchange import answer_bare
from quorate.bridge.forwarding import FORWARDED, answer_envelope, envelope_response
from quorate.bridge.lifecycle import LIFECYCLE
from quorate.bridge.propagation import Propagation
from quorate.bridge.replication import Replication, respond
from quorate.bridge.server import BridgeServer, Connection
from quorate.raft.errors import ErrorCode
from quorate.raft.messages import DescribeQuorumRequest, DescribeQuorumResponse
from quorate.rpc.convert_metadata import METHODS, MetadataAnswer
from quorate.rpc.gate import Gate, Refusal, answer_admitted
from quorate.rpc.principals import Caller
from quorate.runtime.driver import RaftDriver

LOGGER = logging.getLogger(__name__)

BARE = LIFECYCLE | FORWARDED
"""What is answered without an envelope."""

Handle = Callable[[Any, int], Awaitable[MetadataAnswer]]
"""Gives a request to the metadata controller, with its time in ms."""


@dataclass(frozen=True, slots=True)
class BridgeSettings:
    """node_id, cluster_id: this controller's. listener: the name of the endpoints that brokers
    dial; host, port: where it listens. broker_listener: the brokers' listener to dial, None for
    their first that is PLAINTEXT.
    """

    node_id: int
    cluster_id: str
    listener: str
    host: str
    port: int
    broker_listener: str | None = None


class Bridge:
    """gate: who may ask what; None for everybody everything."""

    def __init__(
        self,
        settings: BridgeSettings,
        raft: RaftDriver,
        handle: Handle,
        gate: Gate | None = None,
    ) -> None:
        self.propagation = Propagation(settings.node_id, settings.broker_listener)
        self._settings = settings
        self._raft = raft
        self._handle = handle
        self._gate = gate
        self._replication = Replication(raft, settings.cluster_id, settings.listener)
        self._server: BridgeServer | None = None

    @property
    def is_open(self) -> bool:
        return self._server is not None

    async def open(self) -> None:
        """Listen, unless it does already. OSError."""
        if self._server is not None:
            return
        settings = self._settings
        self._server = server = BridgeServer(self._answer)
        await server.start(settings.host, settings.port)
        LOGGER.info(
            "bridge: listens for Kafka's brokers on %s:%d",
            settings.host or "*",
            settings.port,
        )

    async def close(self) -> None:
        """Listen and tell no longer."""
        await self.propagation.silence()
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    # --- requests ---------------------------------------------------------------------------------

    async def _answer(self, call: s.Call, connection: Connection) -> Any:
        caller = Caller(host=connection.host)
        if call.api_key in (s.FETCH, s.FETCH_SNAPSHOT):
            return await self._replicate(call, connection, caller)
        if call.api_key == s.ENVELOPE:
            refused = self._refusal(caller, "RegisterBroker", call.body)
            if refused is not None:
                return envelope_response(call.version, refused.error)
            return await answer_envelope(call, self._ask)
        return await answer_bare(BARE[call.api_key], call, self._ask, caller)

    async def _replicate(self, call: s.Call, connection: Connection, caller: Caller) -> Any:
        is_fetch = call.api_key == s.FETCH
        refused = self._refusal(caller, "Fetch" if is_fetch else "FetchSnapshot", call.body)
        if refused is not None:
            return respond(call, refused.error)
        if is_fetch:
            return await self._replication.fetch(call, connection)
        return await self._replication.fetch_snapshot(call)

    def _refusal(self, caller: Caller, name: str, request: Any) -> Refusal | None:
        return None if self._gate is None else self._gate.refusal(caller, name, request)

    async def _ask(self, request: Any, timeout_ms: int, caller: Caller) -> MetadataAnswer:
        """What `rpc.metadata_servicers` does with a request that came over gRPC."""
        if isinstance(request, DescribeQuorumRequest):
            return await self._describe_quorum(request, caller)
        if self._gate is None:
            return await self._handle(request, timeout_ms)
        return await answer_admitted(
            self._gate.admit(caller, METHODS[type(request)].name, request),
            self._raft.node.current_leader,
            lambda admitted: self._handle(admitted, timeout_ms),
        )

    async def _describe_quorum(
        self, request: DescribeQuorumRequest, caller: Caller
    ) -> MetadataAnswer:
        leader = self._raft.node.current_leader
        refused = self._refusal(caller, "DescribeQuorum", request)
        if refused is not None:
            return MetadataAnswer(refused.error, leader, message=refused.message)
        response, _ = await self._raft.ask(request)
        assert isinstance(response, DescribeQuorumResponse), type(response)
        if response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return MetadataAnswer(ErrorCode.NOT_CONTROLLER, leader)
        return MetadataAnswer(ErrorCode.NONE, leader, response)
