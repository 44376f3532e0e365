"""The interface through which a server authorizes calls; the runtime implements it.

A server without an authorizer serves every caller that TLS accepts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import grpc.aio

from quorate.common.error_codes import ErrorCode
from quorate.metadata.authorizer import Operation
from quorate.metadata.requests import Refused
from quorate.raft.messages import CurrentLeader
from quorate.rpc.principals import Caller
from quorate.rpc.wire.convert_metadata import MetadataAnswer
from quorate.rpc.wire.methods import RpcMethod

Context = grpc.aio.ServicerContext[Any, Any]


class Denial(NamedTuple):
    """Why a call is rejected, as its response reports it."""

    error: ErrorCode
    message: str


def _unchanged(response: Any) -> Any:
    return response


@dataclass(frozen=True, slots=True)
class AuthorizationResult:
    """The result of authorizing a metadata request."""

    request: Any
    """The parts that the caller may request."""
    answer: Any = None
    """The complete response if no part is left."""
    finish: Callable[[Any], Any] = _unchanged
    """Adds the errors of the rejected parts to the response."""


class CallAuthorizer(Protocol):
    """Authorizes calls. `name` is the RPC's name in `methods.RPC_METHODS`. Nothing here blocks."""

    def caller(self, context: Context) -> Caller:
        """Identify the caller, once per call or stream."""
        ...

    def refusal(self, caller: Caller, name: str, request: object = None) -> Denial | None:
        """Why a call is rejected as a whole, None if it is not.

        request: None if it has not been read yet; checks that depend on it are then skipped.
        """
        ...

    def authorize(self, caller: Caller, name: str, request: Any) -> Denial | AuthorizationResult:
        """Authorize a metadata request, of which single parts may be rejected."""
        ...


class PartitionAuthorizer(Protocol):
    """Authorizes calls of a broker's Partition service. Nothing here blocks."""

    def caller(self, context: Context) -> Caller:
        """See `CallAuthorizer.caller`."""
        ...

    def partition_refusal(self, caller: Caller, rpc: RpcMethod) -> Denial | None:
        """Why a call of one of `methods.PARTITION_METHODS` is rejected before its request is read.

        The caller then may not do this to any topic.
        """
        ...

    def follower_refusal(self, caller: Caller, node: int) -> Denial | None:
        """Why a Fetch in the name of the follower `node` is rejected, None if it is not."""
        ...

    def refused_topic(self, caller: Caller, operation: Operation, topic_id: str) -> ErrorCode:
        """Why a caller may not do this to a topic, NONE if it may."""
        ...

    def may_describe(self, caller: Caller, topic: str) -> bool:
        """Whether a caller may know that a topic of this name exists."""
        ...


async def answer_authorized(
    authorized: Denial | AuthorizationResult,
    leader: CurrentLeader,
    handle: Callable[[Any], Awaitable[MetadataAnswer]],
) -> MetadataAnswer:
    """The response to a metadata request, as far as the authorizer authorizes it.

    handle: answers the authorized parts. leader: named in responses that do not come from `handle`.
    """
    if isinstance(authorized, Denial):
        return MetadataAnswer(authorized.error, leader, message=authorized.message)
    if authorized.answer is not None:
        return MetadataAnswer(ErrorCode.NONE, leader, authorized.answer)
    answer = await handle(authorized.request)
    if answer.response is None or isinstance(answer.response, Refused):
        return answer
    return replace(answer, response=authorized.finish(answer.response))


class RequestContext:
    """The caller of one call, identified once, and its authorizer."""

    __slots__ = ("_authorizer", "_caller")

    def __init__(self, authorizer: CallAuthorizer, caller: Caller) -> None:
        self._authorizer = authorizer
        self._caller = caller

    @classmethod
    def of(cls, authorizer: CallAuthorizer | None, context: Context) -> RequestContext | None:
        """None without an authorizer: every caller may then call every method."""
        return None if authorizer is None else cls(authorizer, authorizer.caller(context))

    def refusal(self, name: str, request: object = None) -> Denial | None:
        return self._authorizer.refusal(self._caller, name, request)

    def authorize(self, name: str, request: Any) -> Denial | AuthorizationResult:
        return self._authorizer.authorize(self._caller, name, request)
