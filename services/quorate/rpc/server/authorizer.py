"""The interface through which a server authorizes calls; the runtime implements it.

A server without a gate serves every caller that TLS accepts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import grpc.aio

from quorate.metadata.authorizer import Operation
from quorate.metadata.requests import Refused
from quorate.raft.errors import ErrorCode
from quorate.raft.messages import CurrentLeader
from quorate.rpc.principals import Caller
from quorate.rpc.wire.convert_metadata import MetadataAnswer
from quorate.rpc.wire.methods import RpcMethod

Context = grpc.aio.ServicerContext[Any, Any]


class Refusal(NamedTuple):
    """Why a call is rejected, as its response reports it."""

    error: ErrorCode
    message: str


def _unchanged(response: Any) -> Any:
    return response


@dataclass(frozen=True, slots=True)
class Admission:
    """The result of authorizing a metadata request.

    request: the parts that the caller may request. answer: the complete response if no part is
    left. finish: adds the errors of the rejected parts to the response.
    """

    request: Any
    answer: Any = None
    finish: Callable[[Any], Any] = _unchanged


class Gate(Protocol):
    """Authorizes calls. `name` is the RPC's name in `methods.RPC_METHODS`. Nothing here blocks."""

    def caller(self, context: Context) -> Caller:
        """Identify the caller, once per call or stream."""
        ...

    def refusal(self, caller: Caller, name: str, request: object = None) -> Refusal | None:
        """Why a call is rejected as a whole, None if it is not.

        request: None if it has not been read yet; checks that depend on it are then skipped.
        """
        ...

    def admit(self, caller: Caller, name: str, request: Any) -> Refusal | Admission:
        """Authorize a metadata request, of which single parts may be rejected."""
        ...


class PartitionGate(Protocol):
    """Authorizes calls of a broker's Partition service. Nothing here blocks."""

    def caller(self, context: Context) -> Caller:
        """See `Gate.caller`."""
        ...

    def partition_refusal(self, caller: Caller, rpc: RpcMethod) -> Refusal | None:
        """Why a call of one of `methods.PARTITION_METHODS` is rejected before its request is read.

        The caller then may not do this to any topic.
        """
        ...

    def follower_refusal(self, caller: Caller, node: int) -> Refusal | None:
        """Why a Fetch in the name of the follower `node` is rejected, None if it is not."""
        ...

    def refused_topic(self, caller: Caller, operation: Operation, topic_id: str) -> ErrorCode:
        """Why a caller may not do this to a topic, NONE if it may."""
        ...

    def may_describe(self, caller: Caller, topic: str) -> bool:
        """Whether a caller may know that a topic of this name exists."""
        ...


async def answer_admitted(
    admitted: Refusal | Admission,
    leader: CurrentLeader,
    handle: Callable[[Any], Awaitable[MetadataAnswer]],
) -> MetadataAnswer:
    """The response to a metadata request, as far as the gate authorizes it.

    handle: answers the authorized parts. leader: named in responses that do not come from `handle`.
    """
    if isinstance(admitted, Refusal):
        return MetadataAnswer(admitted.error, leader, message=admitted.message)
    if admitted.answer is not None:
        return MetadataAnswer(ErrorCode.NONE, leader, admitted.answer)
    answer = await handle(admitted.request)
    if answer.response is None or isinstance(answer.response, Refused):
        return answer
    return replace(answer, response=admitted.finish(answer.response))


class Asker:
    """The caller of one call, identified once, and its gate."""

    __slots__ = ("_caller", "_gate")

    def __init__(self, gate: Gate, context: Context) -> None:
        self._gate = gate
        self._caller = gate.caller(context)

    @classmethod
    def of(cls, gate: Gate | None, context: Context) -> Asker | None:
        """None without a gate: every caller may then call every method."""
        return None if gate is None else cls(gate, context)

    def refusal(self, name: str, request: object = None) -> Refusal | None:
        return self._gate.refusal(self._caller, name, request)

    def admit(self, name: str, request: Any) -> Refusal | Admission:
        return self._gate.admit(self._caller, name, request)
