"""The client of the metadata controller, for administrators and for brokers.

Rules:
1. Every call ends: with the response, or with a `ClientError` once its timeout has passed.
2. A node that is not the active controller names the leader, and the client goes there
   (`routing.LeaderSearch`); it keeps searching while there is none.
3. Reads are retried freely. A change is retried after a broken connection: executing it twice has
   the same result, or fails with an error that says so (TOPIC_ALREADY_EXISTS, …). `Asked.repeated`
   tells whether an earlier attempt may have been executed. AllocateProducerIds loses a block at
   worst.

Source: KIP-919 (admin clients at controllers), KIP-590 (forwarding); tenacity for the pauses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from quorate.raft.errors import ErrorCode, MisuseError, ViolationError
from quorate.raft.messages import CurrentLeader
from quorate.rpc.client.channels import Channels
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.client.routing import NOT_LEADER, Address, LeaderSearch, Route
from quorate.rpc.errors import AdminError, TransportError, TransportKind
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.convert_metadata import METHODS, MetadataAnswer, Method
from quorate.rpc.wire.limits import ChannelLimits, parse_address

ANSWER_SLACK_MS = 500
"""How much longer than the server a client waits: the server's timeout error is more precise."""

ATTEMPT_MS_MAX = 30_000
"""How long to wait for one node before trying another, if the call's timeout is longer."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A response, the leader, and whether an earlier attempt may also have been executed."""

    response: Any
    leader: CurrentLeader
    repeated: bool = False


class MetadataClient:
    """A client of one cluster's metadata. Use it as an asynchronous context manager, or `close` it.

    bootstrap: `host:port` of some controllers. request_timeout_ms: the default timeout of a call.
    """

    def __init__(
        self,
        bootstrap: Sequence[str],
        *,
        tls: TlsConfig | None = None,
        request_timeout_ms: int = 30_000,
        client_id: str = "quorate-metadata-client",
        limits: ChannelLimits | None = None,
    ) -> None:
        if not bootstrap:
            raise MisuseError("a client needs the address of at least one node")
        self.request_timeout_ms = request_timeout_ms
        self._limits = limits or ChannelLimits()
        self._channels = Channels(tls, self._limits, client_id, notices_silence=True)
        self._bootstrap = tuple(bootstrap)
        self._tls = tls
        self._search = LeaderSearch(Route([parse_address(text) for text in bootstrap]))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._channels.close()

    def learn(self, leader: CurrentLeader) -> None:
        """Learn the leader from another source; it is tried first unless it is outdated."""
        self._search.route.learn(leader)

    def quorum_client(self) -> QuorumClient:
        """A client of the quorum itself, at the same addresses; the caller closes it."""
        return QuorumClient(
            self._bootstrap, tls=self._tls, request_timeout_ms=self.request_timeout_ms
        )

    async def ask(self, request: Any, *, timeout_ms: int | None = None) -> Any:
        """The response to one of the requests in `convert_metadata.METHODS`.

        Raises AdminError if the request is rejected as a whole or times out; NoLeaderError,
        UnreachableError. The response holds the outcome for each topic, resource, ….
        """
        return (await self.ask_whole(request, timeout_ms=timeout_ms)).response

    async def ask_whole(self, request: Any, *, timeout_ms: int | None = None) -> Asked:
        """Like `ask`, but also returns the leader and whether an earlier attempt may have run."""
        method = METHODS.get(type(request))
        if method is None:
            raise MisuseError(
                f"{type(request).__name__} is not a request to the metadata controller"
            )
        timeout_ms = timeout_ms or self.request_timeout_ms
        repeated = False

        async def call(address: Address, left_ms: float) -> MetadataAnswer:
            nonlocal repeated
            attempt_ms = max(1, min(int(left_ms), ATTEMPT_MS_MAX))
            try:
                answer = await self._unary(address, method, request, attempt_ms)
            except TransportError as error:
                repeated = repeated or not error.nothing_done
                raise
            # A controller that lost leadership while it handled the request adds a message.
            repeated = repeated or (answer.error in NOT_LEADER and answer.message != "")
            return answer

        try:
            answer = await self._search.ask(call, timeout_ms, may_repeat=method.rpc.is_repeatable)
        except TransportError as error:
            text = f"no answer within {timeout_ms} ms ({error})"
            raise AdminError(ErrorCode.REQUEST_TIMED_OUT, text) from None
        if answer.error is not ErrorCode.NONE:
            raise AdminError(answer.error, answer.message)
        return Asked(answer.response, answer.leader, repeated)

    async def _unary(
        self, address: Address, method: Method, request: Any, timeout_ms: int
    ) -> MetadataAnswer:
        with self._channels.use(*address) as link:
            connect_ms = min(timeout_ms, self._limits.connect_timeout_ms)
            await self._channels.connected(link, connect_ms)
            answer = await self._channels.unary(
                link,
                method.rpc.path,
                method.encode_request(request, timeout_ms),
                method.response_message,
                timeout_ms + ANSWER_SLACK_MS,
            )
            try:
                return method.decode_answer(answer)
            except ViolationError as error:
                raise TransportError(TransportKind.FAILED, link.address, str(error)) from None
