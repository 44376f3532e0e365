"""The services Metadata and BrokerLifecycle: every method reads, handles and answers alike.

What a method is, `convert_metadata.METHODS` says: one entry a method. The rules of `servicers` hold
here too: what violates the protocol is INVALID_REQUEST with the reason; what a handler raises is
logged and answered with UNKNOWN_SERVER_ERROR.

Source: proto/quorate/v1/metadata.proto, lifecycle.proto.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol, runtime_checkable

import grpc
import grpc.aio

from quorate.raft.errors import ErrorCode, ViolationError
from quorate.raft.messages import CurrentLeader
from quorate.rpc.convert_metadata import METHODS, MetadataAnswer, Method
from quorate.rpc.gate import Gate, answer_admitted
from quorate.rpc.refusals import Refusals
from quorate.rpc.throttle import Turns

LOGGER = logging.getLogger(__name__)
REFUSALS = Refusals(LOGGER)

NO_LEADER = CurrentLeader(0)
NOT_SERVED = "this node is not formatted, or serves no metadata"

Context = grpc.aio.ServicerContext[Any, Any]


@runtime_checkable
class MetadataHandler(Protocol):
    """A node that answers requests for metadata, or tells who does."""

    async def metadata(self, request: Any, timeout_ms: int) -> MetadataAnswer:
        """The answer to one of the requests in `METHODS`, within `timeout_ms`."""
        ...


class MetadataSlot:
    """Who handles requests now; a node that is formatted later changes it."""

    def __init__(self, gate: Gate | None, turns: Turns) -> None:
        self.gate = gate
        self.turns = turns
        self._handler: MetadataHandler | None = None

    def use(self, handler: object) -> None:
        """Let `handler` answer if it can."""
        self._handler = handler if isinstance(handler, MetadataHandler) else None

    async def handler(self, context: Context) -> MetadataHandler:
        """Who answers, in turn where the server is busy, or the end of the call."""
        await self.turns.wait(context)
        if self._handler is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, NOT_SERVED)
        return self._handler


def add_metadata_services(server: grpc.aio.Server, slot: MetadataSlot) -> tuple[str, ...]:
    """Add both services to a server that has not been started; their names."""
    services = tuple(dict.fromkeys(method.service for method in METHODS.values()))
    for service in services:
        handlers = {
            method.name: grpc.unary_unary_rpc_method_handler(
                _serve(slot, method),
                request_deserializer=method.request_message.FromString,
                response_serializer=method.response_message.SerializeToString,
            )
            for method in METHODS.values()
            if method.service == service
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    return services


def _serve(slot: MetadataSlot, method: Method) -> Callable[[Any, Context], Awaitable[Any]]:
    async def serve(message: Any, context: Context) -> Any:
        handler = await slot.handler(context)
        answer = await _answer(slot, method, handler, message, context)
        slot.turns.charge(context, answer)
        return answer

    return serve


async def _answer(
    slot: MetadataSlot, method: Method, handler: MetadataHandler, message: Any, context: Context
) -> Any:
    try:
        request, timeout_ms = method.decode_request(message)
        if slot.gate is None:
            answer = await handler.metadata(request, timeout_ms)
        else:
            caller = slot.gate.caller(context)
            answer = await answer_admitted(
                slot.gate.admit(caller, method.name, request),
                NO_LEADER,
                partial(handler.metadata, timeout_ms=timeout_ms),
            )
        return method.encode_answer(answer)
    except ViolationError as error:
        REFUSALS.say(method.name, context.peer(), error)
        refused = MetadataAnswer(ErrorCode.INVALID_REQUEST, NO_LEADER, message=str(error))
    except Exception as error:
        LOGGER.exception("%s from %s failed", method.name, context.peer())
        text = f"internal error: {type(error).__name__}"
        refused = MetadataAnswer(ErrorCode.UNKNOWN_SERVER_ERROR, NO_LEADER, message=text)
    return method.encode_answer(refused)
