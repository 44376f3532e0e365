"""Requests that this controller forwards to a leader that speaks Kafka's protocol only: Kafka's.

Clients over gRPC cannot ask such a leader themselves. A request goes to it in an envelope, in the
name of its caller, whom this controller has authorized before.

Rules:
1. Only a voter whose endpoints are all of the listener for Kafka's protocol is such a leader.
2. A request is sent once, on a connection of its own, to the leader that is known when it arrives.
   A leader answers it or rejects it; no node forwards it again, because the listener for Kafka's
   protocol never forwards. After a change of leader the client repeats it.
3. Envelopes let the leader authorize the caller by its own rules, apply its quotas, and log its
   name. They need no rights but CLUSTER_ACTION, which every voter's principal has. Without a
   principal, the caller is anonymous.
4. Nothing was done if the request was not sent. If it was sent and the response is missing, or says
   that the leader has lost leadership, it may be executed: the error then has a message.
5. `read_index`: a leader of Kafka never says that a majority has confirmed it, and a Fetch that it
   has answered may be older than the read. But records that it appends, and a majority stores,
   after the read began, prove that no later leader had committed anything when the read began.
   (a) The leader says how far its log reaches, and its epoch. Everything that was committed before
   the read began is below that end. (b) The record at that end is awaited. If it was appended in
   the same epoch, the read ends after it. Otherwise the leader has changed, and (a) follows again.
   Kafka's idle leader appends a NoOpRecord every metadata.max.idle.interval.ms; with 0, such a read
   may time out.

Source: KIP-590 "Envelope"; KIP-835 (NoOpRecord); Ongaro 6.4 (reads).
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

from quorate.bridge.messages import leader_messages as lm
from quorate.bridge.messages import schemas as s
from quorate.bridge.messages.peer_messages import error_of
from quorate.bridge.peers.client import CLIENT_ID, KafkaClient, KafkaClientError
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.metadata.authorizer import ANONYMOUS
from quorate.metadata.managers.controller_context import RefusedError
from quorate.raft import messages as m
from quorate.raft.types import VoterSet
from quorate.rpc.errors import BadMessageError
from quorate.rpc.principals import Caller
from quorate.rpc.tls import TlsConfig
from quorate.runtime.driver import RaftDriver
from quorate.runtime.metadata_loader import MetadataLoader

CONNECT_S: Final = 2.0
FORWARDED_MAX: Final = 32
"""Requests that wait for the leader at the same time, each on its own connection."""
RETRY_S: Final = 0.1
"""The pause before a read asks again who leads."""
NO_ADDRESS: Final = bytes(4)
"""Of a caller that has none, in an envelope."""

Resolve = Callable[[Endpoint, VoterSet], Endpoint]
"""Where gRPC is spoken by the controller that has an endpoint; the same endpoint if nowhere."""


@dataclass(frozen=True, slots=True)
class KafkaLeader:
    """The leader of an epoch, and its endpoint for Kafka's protocol."""

    id: int
    epoch: int
    endpoint: Endpoint

    @property
    def current(self) -> m.CurrentLeader:
        """The leader in responses over gRPC, without its endpoint, which clients cannot use."""
        return m.CurrentLeader(self.epoch, self.id)

    def __str__(self) -> str:
        return f"Kafka's controller {self.id}, the leader of epoch {self.epoch},"


@dataclass(frozen=True, slots=True)
class _Encoded:
    """A request in one version."""

    api_key: int
    version: int
    body: bytes
    """The encoded body."""


class LeaderRequests:
    """Sends requests to a leader that speaks Kafka's protocol only.

    listener: the name of the endpoints that speak Kafka's protocol. tls: of connections to them,
    None without. resolve: see `Resolve`.
    """

    def __init__(
        self,
        driver: RaftDriver,
        loader: MetadataLoader,
        *,
        listener: str,
        tls: TlsConfig | None,
        resolve: Resolve,
    ) -> None:
        self._driver = driver
        self._loader = loader
        self._listener = listener
        self._tls = tls
        self._resolve = resolve
        self._room = asyncio.Semaphore(FORWARDED_MAX)

    def leader(self) -> KafkaLeader | None:
        """The leader if it speaks Kafka's protocol only (rule 1); None if it speaks gRPC, is not
        known, or is this node.
        """
        node = self._driver.node
        leader, voters = node.current_leader, node.voters
        if node.is_leader or leader.id is None or voters.get(leader.id) is None:
            return None
        if not leader.endpoints or any(e.name != self._listener for e in leader.endpoints):
            return None
        endpoint = leader.endpoints[0]
        if self._resolve(endpoint, voters).name != self._listener:
            return None
        return KafkaLeader(leader.id, leader.epoch, endpoint)

    async def forward(
        self, leader: KafkaLeader, request: Any, timeout_ms: int, caller: Caller
    ) -> Any:
        """The leader's response to a request in `leader_messages.CONVERSIONS`.

        Raises RefusedError if there is none. NOT_CONTROLLER without a message: nothing was done.
        NOT_CONTROLLER with a message, or REQUEST_TIMED_OUT: the request may be executed. Any other
        error: the leader has rejected it.
        """
        return await self._ask(leader, request, timeout_ms, caller)

    async def _ask(
        self, leader: KafkaLeader, request: Any, timeout_ms: int, caller: Caller | None
    ) -> Any:
        """Send a request. caller: None for this controller itself, without an envelope."""
        conversion = lm.CONVERSIONS[type(request)]
        is_sent = False
        try:
            async with asyncio.timeout(timeout_ms / 1000), self._room, AsyncExitStack() as stack:
                client = await self._connect(stack, leader, timeout_ms)
                version = _version(leader, client, conversion.api_key, lm.since(request))
                # Thousands of topics take a quarter of a second.
                body = await asyncio.to_thread(conversion.write, request, version, timeout_ms)
                encoded = _Encoded(conversion.api_key, version, body)
                is_sent = True
                answered = await _call(client, leader, encoded, caller)
                return await asyncio.to_thread(conversion.read, request, answered)
        except lm.UnwritableError as error:
            raise RefusedError(ErrorCode.INVALID_REQUEST, str(error)) from None
        except TimeoutError:
            if not is_sent:
                raise RefusedError(ErrorCode.NOT_CONTROLLER) from None
            text = f"{leader} did not answer within {timeout_ms} ms"
            raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, text) from None
        except KafkaClientError as error:
            text = f"no response of {leader} which may have executed the request: {error}"
            raise RefusedError(ErrorCode.NOT_CONTROLLER, text if is_sent else "") from None

    async def _connect(
        self, stack: AsyncExitStack, leader: KafkaLeader, timeout_ms: int
    ) -> KafkaClient:
        place = leader.endpoint.host, leader.endpoint.port
        client = KafkaClient(place, self._tls, timeout_ms / 1000)
        async with asyncio.timeout(CONNECT_S):
            return await stack.enter_async_context(client)

    # --- reads ------------------------------------------------------------------------------------

    async def read_index(self, timeout_ms: int) -> m.ReadIndexResponse:
        """An offset up to which a read is linearizable; everything before it is replayed (rule 5).

        NOT_LEADER_OR_FOLLOWER if no leader of Kafka's is known, or the known one does not answer.
        """
        leader = self.leader()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while leader is not None:
                    epoch, end_offset = await self._leaders_end(leader, timeout_ms)
                    await self._loader.reached(end_offset + 1)
                    if self._epoch_of(end_offset) == epoch:
                        return m.ReadIndexResponse(ErrorCode.NONE, leader.current, end_offset + 1)
                    await asyncio.sleep(RETRY_S)
                    leader = self.leader()
        except TimeoutError:
            assert leader is not None, "only a known leader is awaited"
            text = (
                f"{leader} appended no record within {timeout_ms} ms, which would prove that it "
                "leads (metadata.max.idle.interval.ms)"
            )
            return m.ReadIndexResponse(ErrorCode.REQUEST_TIMED_OUT, leader.current, message=text)
        except RefusedError as failed:
            assert leader is not None, "only a known leader is asked"
            error = failed.error
            if error is ErrorCode.NOT_CONTROLLER:
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return m.ReadIndexResponse(error, leader.current, message=failed.message)
        leading = self._driver.node.current_leader
        return m.ReadIndexResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, leading)

    async def _leaders_end(self, leader: KafkaLeader, timeout_ms: int) -> tuple[int, int]:
        """The leader's epoch and log end offset. Raises RefusedError."""
        view = await self._ask(leader, m.DescribeQuorumRequest(""), timeout_ms, None)
        if view.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            text = (
                f"{leader} does not tell this controller how far its log reaches: give the "
                "controller's principal DESCRIBE on the cluster, or make it a super user"
            )
            raise RefusedError(view.error, text)
        ends = [each.log_end_offset for each in view.voters if each.replica.id == leader.id]
        if view.error is not ErrorCode.NONE or view.leader.id != leader.id or not ends:
            raise RefusedError(ErrorCode.NOT_CONTROLLER)
        return view.leader.epoch, max(*ends, view.high_watermark)

    def _epoch_of(self, offset: int) -> int | None:
        """The epoch of a record; None if only a snapshot has it."""
        node = self._driver.node
        return node.epoch_before(offset + 1) if node.core.log.start.offset <= offset else None


def _version(leader: KafkaLeader, client: KafkaClient, api_key: int, since: int) -> int:
    """The highest version that both sides know. Raises RefusedError if that is too low."""
    low, high = client.versions.get(api_key, (0, -1))
    version = min(high, s.SERVED[api_key][1])
    if version < max(low, since):
        text = f"{leader} does not serve API {api_key} in version {max(low, since)}"
        raise RefusedError(ErrorCode.UNSUPPORTED_VERSION, text)
    return version


async def _call(
    client: KafkaClient, leader: KafkaLeader, request: _Encoded, caller: Caller | None
) -> Any:
    """The body of the response. Raises RefusedError, KafkaClientError."""
    api_key, version = request.api_key, request.version
    if caller is None:
        return await client.ask_encoded(api_key, version, request.body)
    answer = await client.ask(
        s.ENVELOPE,
        0,
        request_data=s.write_header(api_key, version, 0, CLIENT_ID) + request.body,
        request_principal=s.write_principal(
            caller.principal or ANONYMOUS, used_token=caller.used_token
        ),
        client_host_address=_address(caller.host),
    )
    error = error_of(answer.error_code)
    if error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        text = (
            f"{leader} accepts no forwarded requests from this controller: give the controller's "
            "principal CLUSTER_ACTION on the cluster"
        )
        raise RefusedError(error, text)
    if error is ErrorCode.NOT_CONTROLLER:
        raise RefusedError(error, f"{leader} has lost leadership")
    if error is ErrorCode.NONE and answer.response_data is None:
        error = ErrorCode.UNKNOWN_SERVER_ERROR
    if error is not ErrorCode.NONE:
        raise RefusedError(error, f"{leader} rejects the forwarded request")
    try:
        data = answer.response_data
        return (await asyncio.to_thread(s.read_response, api_key, version, data))[1]
    except BadMessageError as broken:
        raise KafkaClientError(str(broken)) from None


def _address(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return NO_ADDRESS
