"""What a server asks before it does anything for a caller; the runtime implements it.

A server without a gate lets everybody in whom TLS let in.
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
from quorate.rpc.convert_metadata import MetadataAnswer
from quorate.rpc.methods import RpcMethod
from quorate.rpc.principals import Caller

Context = grpc.aio.ServicerContext[Any, Any]


class Refusal(NamedTuple):
    """Why a call is not served, as its response says it."""

    error: ErrorCode
    message: str


def _unchanged(response: Any) -> Any:
    return response


@dataclass(frozen=True, slots=True)
class Admission:
    """request: the parts of it that the caller may ask for. answer: the whole response where none
    is left. finish: adds to the response what was said of the parts that are left out.
    """

    request: Any
    answer: Any = None
    finish: Callable[[Any], Any] = _unchanged


class Gate(Protocol):
    """`name`: the method's, as in `methods.RPC_METHODS`. Nothing here waits."""

    def caller(self, context: Context) -> Caller:
        """Who is at the other end: once a call, also of a stream."""
        ...

    def refusal(self, caller: Caller, name: str, request: object = None) -> Refusal | None:
        """Whether a call is refused as a whole. request: None while it has not been read, which
        leaves out what depends on it.
        """
        ...

    def admit(self, caller: Caller, name: str, request: Any) -> Refusal | Admission:
        """The same for a request for metadata, of which parts may be refused."""
        ...


class PartitionGate(Protocol):
    """What a broker asks before it does anything with a topic's records. Nothing here waits."""

    def caller(self, context: Context) -> Caller:
        """As `Gate` has it."""
        ...

    def partition_refusal(self, caller: Caller, rpc: RpcMethod) -> Refusal | None:
        """Whether a call of a method of `methods.PARTITION_METHODS` is refused before its request
        is read: its caller may not do this to any topic.
        """
        ...

    def follower_refusal(self, caller: Caller, node: int) -> Refusal | None:
        """Whether a Fetch in the name of a follower is refused."""
        ...

    def refused_topic(self, caller: Caller, operation: Operation, topic_id: str) -> ErrorCode:
        """Why a caller may not do this to a topic, NONE if it may."""
        ...

    def may_describe(self, caller: Caller, topic: str) -> bool:
        """Whether a caller may know of a topic, by its name."""
        ...


async def answer_admitted(
    admitted: Refusal | Admission,
    leader: CurrentLeader,
    handle: Callable[[Any], Awaitable[MetadataAnswer]],
) -> MetadataAnswer:
    """The answer to a request for metadata as far as a gate allows it. handle: answers what of the
    request is admitted. leader: named where it is not asked.
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
    """Who makes a call, before a gate: found out once a call."""

    __slots__ = ("_caller", "_gate")

    def __init__(self, gate: Gate, context: Context) -> None:
        self._gate = gate
        self._caller = gate.caller(context)

    @classmethod
    def of(cls, gate: Gate | None, context: Context) -> Asker | None:
        """None where everybody may ask everything."""
        return None if gate is None else cls(gate, context)

    def refusal(self, name: str, request: object = None) -> Refusal | None:
        return self._gate.refusal(self._caller, name, request)

    def admit(self, name: str, request: Any) -> Refusal | Admission:
        return self._gate.admit(self._caller, name, request)
