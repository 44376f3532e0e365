"""The common base of the clients that send their requests to the current leader.

Owns a client's channels and its knowledge of the leader. `routing` defines how the leader is found
and what is retried.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

from google.protobuf.message import Message

from quorate.common.error_codes import ErrorCode
from quorate.raft.errors import MisuseError, ViolationError
from quorate.rpc.client.channels import Channels
from quorate.rpc.client.cluster import Cluster
from quorate.rpc.client.routing import (
    NOT_LEADER,
    Address,
    Call,
    LeaderSearch,
    NodeResponse,
    Route,
)
from quorate.rpc.errors import AdminError, TransportError, TransportKind
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.limits import ChannelLimits, parse_address
from quorate.rpc.wire.methods import RpcMethod

if TYPE_CHECKING:
    from quorate.telemetry.tracing import Tracing

ANSWER_SLACK_MS = 500
"""How much longer than the server a client waits: the server's timeout error is more precise."""


def timeout_or(timeout_ms: int | None, default_ms: int) -> int:
    """The timeout of a call. MisuseError unless it is positive."""
    if timeout_ms is None:
        return default_ms
    if timeout_ms <= 0:
        raise MisuseError(f"a timeout of {timeout_ms} ms: it must be positive")
    return timeout_ms


class LeaderResponse(NodeResponse, Protocol):
    """A response with an error message."""

    @property
    def message(self) -> str: ...


R = TypeVar("R", bound=LeaderResponse)
T = TypeVar("T")


class AsyncClosing(ABC):
    """An asynchronous context manager that calls `close` at its end."""

    @abstractmethod
    async def close(self) -> None:
        """Close all connections."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


@dataclass(kw_only=True, eq=False, repr=False)
class LeaderClient(AsyncClosing):
    """A client of one quorum. Use it as an asynchronous context manager, or call `close`."""

    bootstrap: Sequence[str] = field(kw_only=False)
    """`host:port` of some nodes."""
    tls: TlsConfig | None = None
    request_timeout_ms: int = 30_000
    """The default timeout of a call; every timeout is positive."""
    client_id: str = "quorate-client"
    """The user agent that the client sends."""
    limits: ChannelLimits | None = None
    tracing: Tracing | None = None
    cluster_id: str = ""
    """Nodes of other clusters reject the client's calls, and it goes on to other addresses;
    AdminError with the code INCONSISTENT_CLUSTER_ID if all are such nodes. By default, the cluster
    is that of the node that answers first.
    """

    TIMEOUT_ADVICE: ClassVar[str] = ""
    """Follows the error of a request without a response."""

    def __post_init__(self) -> None:
        if not self.bootstrap:
            raise MisuseError("a client needs the address of at least one node")
        timeout_or(self.request_timeout_ms, 0)
        limits = self.limits or ChannelLimits()
        self._cluster = Cluster(self.cluster_id)
        self._channels = Channels(
            self.tls, limits, self.client_id, notices_silence=True, cluster=self._cluster
        )
        self._route = Route([parse_address(text) for text in self.bootstrap])
        self._search = LeaderSearch(self._route)

    async def close(self) -> None:
        """Close all connections."""
        await self._channels.close()

    async def call_node(
        self,
        address: Address,
        method: RpcMethod,
        message: Message,
        decode: Callable[[Any], T],
        timeout_ms: float,
        *,
        slack_ms: int = 0,
    ) -> T:
        """Make one call to one node. Raises TransportError, also for an invalid response.

        slack_ms: how much longer the response of a connected node may take.
        """
        name = f"quorate.{method.name}"
        span = self.tracing and self.tracing.calling(name, {"server.port": address[1]})
        with span or nullcontext(), self._channels.use(*address) as link:
            await self._channels.connected(link, timeout_ms)
            answer = await self._channels.unary(
                link, method.path, message, method.response, timeout_ms + slack_ms
            )
            try:
                return decode(answer)
            except ViolationError as error:
                raise TransportError(TransportKind.FAILED, link.address, str(error)) from None

    async def ask_leader(
        self, method: RpcMethod, call: Call[R], timeout_ms: int | None
    ) -> tuple[R, bool]:
        """The leader's response, and whether an earlier attempt may have been executed.

        Raises AdminError if the last attempt got no response, NoLeaderError, UnreachableError.
        """
        may_be_done = False

        async def attempt(address: Address, left_ms: float) -> R:
            nonlocal may_be_done
            try:
                answer = await call(address, left_ms)
            except TransportError as error:
                may_be_done = may_be_done or not error.nothing_done
                raise
            # A leader that lost leadership while it handled the request adds a message.
            may_be_done = may_be_done or (answer.error in NOT_LEADER and answer.message != "")
            return answer

        timeout_ms = timeout_or(timeout_ms, self.request_timeout_ms)
        try:
            answer = await self._search.ask(attempt, timeout_ms, may_repeat=method.is_repeatable)
        except TransportError as error:
            text = f"no answer within {timeout_ms} ms ({error}){self.TIMEOUT_ADVICE}"
            raise AdminError(ErrorCode.REQUEST_TIMED_OUT, text) from None
        return answer, may_be_done
