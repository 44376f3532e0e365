"""The Partition service: decodes requests, calls the handler, encodes responses.

Rules, as in `servicers`: the authorizer authorizes the caller for the method before a request is
decoded, and its content afterwards. A request that is too large or violates the protocol is
answered with INVALID_REQUEST and the reason. An exception of a handler is logged and answered with
UNKNOWN_SERVER_ERROR. One Produce stream may have many batches in flight (see `server_stream`).

Without an authorizer every caller may do everything. A Fetch in the name of a follower acknowledges
records, so it requires a different permission than a reader's (`methods.FOLLOWER_FETCH`).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import NO_NODE
from quorate.raft.errors import ViolationError
from quorate.rpc.client.channels import EOF
from quorate.rpc.principals import Caller
from quorate.rpc.server.authorizer import Context, Denial, PartitionAuthorizer
from quorate.rpc.server.grpc_server import method_handler
from quorate.rpc.server.intake import read_request
from quorate.rpc.server.request_validation import DecodeErrorInterceptor, RejectionLog
from quorate.rpc.server.response_memory import (
    SMALL_ROOM_BYTES,
    MemoryReservation,
    ResponseMemory,
)
from quorate.rpc.server.server_stream import Running, ServerStream, StreamReads
from quorate.rpc.wire import partition_convert as convert
from quorate.rpc.wire.convert_append import correlation_id_of
from quorate.rpc.wire.limits import ServerLimits
from quorate.rpc.wire.methods import PARTITION_METHODS, PARTITION_SERVICE, RpcMethod
from quorate.rpc.wire.partition_values import (
    Located,
    LocatedTopic,
    PartitionFetch,
    PartitionFetchResponse,
    PartitionKey,
    PartitionOffsets,
    ProduceRequest,
    ProduceResponse,
    ProducerIdentity,
)
from quorate.v1 import partition_pb2

FETCH_ROOM_BYTES = 96 * 1024 * 1024
"""For the records of fetch responses: a broker has more readers than a controller, and slower ones.
"""
FETCH_STALLED_S = 10.0
"""A reader that takes a response more slowly gives way to readers that wait."""

REJECTIONS = RejectionLog(logging.getLogger(__name__))

_PRODUCE, _FETCH, _LIST_OFFSETS, _LOCATE, _INIT = (
    PARTITION_METHODS[name]
    for name in ("Produce", "Fetch", "ListOffsets", "Locate", "InitProducerId")
)


class FetchSession(Protocol):
    """One Fetch stream, with the state that its requests have set."""

    async def fetch(
        self, request: PartitionFetch, room: MemoryReservation
    ) -> PartitionFetchResponse:
        """Answer when there is news, or `max_wait_ms` has passed.

        room: reserved for the records before they are read.
        """
        ...

    def close(self) -> None: ...


class PartitionHandler(Protocol):
    """The operations that a broker implements for the servicer."""

    async def produce(self, request: ProduceRequest) -> ProduceResponse: ...

    def open_session(self, refuse: Callable[[str], ErrorCode]) -> FetchSession:
        """Open a session.

        refuse: the error of a reader that may not read the topic with this id now, NONE if it may.
        """
        ...

    async def list_offsets(self, key: PartitionKey) -> PartitionOffsets: ...

    async def locate(self, topics: Sequence[str]) -> Located: ...

    async def init_producer_id(self) -> ProducerIdentity: ...


class _PartitionContext:
    """The caller of one call, identified once, and its authorizer."""

    def __init__(self, authorizer: PartitionAuthorizer | None, context: Context) -> None:
        self._authorizer = authorizer
        self._caller = Caller() if authorizer is None else authorizer.caller(context)

    def refusal(self, rpc: RpcMethod) -> Denial | None:
        return (
            None
            if self._authorizer is None
            else self._authorizer.partition_refusal(self._caller, rpc)
        )

    def follower_refusal(self, node: int) -> Denial | None:
        return (
            None
            if self._authorizer is None
            else self._authorizer.follower_refusal(self._caller, node)
        )

    def refused_topic(self, rpc: RpcMethod, topic_id: str) -> ErrorCode:
        if self._authorizer is None:
            return ErrorCode.NONE
        return self._authorizer.refused_topic(self._caller, rpc.operation, topic_id)

    def visible(self, located: Located, asked: Sequence[str]) -> Located:
        """Drop the topics that the caller may not describe; those it named get an error."""
        if self._authorizer is None:
            return located
        failed = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        found = []
        for topic in located.topics:
            if self._authorizer.may_describe(self._caller, topic.name):
                found.append(topic)
            elif asked:
                found.append(LocatedTopic(topic.name, failed))
        return replace(located, topics=tuple(found))


class PartitionServicer:
    """Serves producers, readers and follower brokers.

    `running` holds the batches in flight. `response_memory`: of fetch responses; it bounds them
    once its `end` is set.
    """

    def __init__(
        self,
        handler: PartitionHandler,
        limits: ServerLimits,
        authorizer: PartitionAuthorizer | None = None,
    ) -> None:
        self._handler = handler
        self._limits = limits
        self._authorizer = authorizer
        self.response_memory = ResponseMemory(
            FETCH_ROOM_BYTES, small_bytes_max=SMALL_ROOM_BYTES, stalled_s=FETCH_STALLED_S
        )
        self.running: Running = set()
        self._reads = StreamReads()
        self.behaviors: Mapping[str, Callable[[Any, Context], Any]] = {
            "Produce": self._stream_batches,
            "Fetch": self._stream_fetches,
            "ListOffsets": self._unary(
                _LIST_OFFSETS, self._offsets, PartitionOffsets, convert.OFFSETS.encode
            ),
            "Locate": self._unary(_LOCATE, self._located, Located, convert.LOCATED.encode),
            "InitProducerId": self._unary(
                _INIT, self._identity, ProducerIdentity, convert.IDENTITY.encode
            ),
        }
        assert self.behaviors.keys() == PARTITION_METHODS.keys()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the service with a server that has not been started."""
        handlers = {
            name: method_handler(PARTITION_METHODS[name], behavior)
            for name, behavior in self.behaviors.items()
        }
        DecodeErrorInterceptor(server).add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(PARTITION_SERVICE, handlers),)
        )

    async def stop(self) -> None:
        """End the streams, after the responses to what is in progress."""
        await self._reads.end()

    # --- batches ----------------------------------------------------------------------------------

    async def _stream_batches(self, _requests: AsyncIterator[bytes], context: Context) -> None:
        request_context = _PartitionContext(self._authorizer, context)

        async def begin(
            data: bytes,
        ) -> tuple[int, Coroutine[Any, Any, partition_pb2.ProduceResponse]]:
            number, request = await self._read_batch(data, context, request_context)
            return len(data), self._produce(number, request, context)

        read = partial(self._reads.next, context)
        await ServerStream(context, self._limits, self.running, begin, read=read).serve()

    async def _read_batch(
        self, data: bytes, context: Context, request_context: _PartitionContext
    ) -> tuple[int, ProduceRequest | ProduceResponse]:
        """The correlation id, and the request or its rejection. Raises DecodeError."""
        if (refused := request_context.refusal(_PRODUCE)) is not None:
            return correlation_id_of(data), ProduceResponse(refused.error, message=refused.message)
        try:
            number, request = await read_request(_PRODUCE, data, _decode_produce)
        except ViolationError as error:
            code, text = REJECTIONS.failure("Produce", context.peer(), error)
            return correlation_id_of(data), ProduceResponse(code, message=text)
        failed = request_context.refused_topic(_PRODUCE, request.partition.topic_id)
        return number, request if failed is ErrorCode.NONE else ProduceResponse(failed)

    async def _produce(
        self, number: int, request: ProduceRequest | ProduceResponse, context: Context
    ) -> partition_pb2.ProduceResponse:
        if isinstance(request, ProduceResponse):
            return convert.encode_produce_response(number, request)
        try:
            response = await self._handler.produce(request)
        except Exception as error:
            code, text = REJECTIONS.failure("Produce", context.peer(), error)
            response = ProduceResponse(code, message=text)
        return convert.encode_produce_response(number, response)

    # --- fetches ----------------------------------------------------------------------------------

    async def _stream_fetches(self, _requests: AsyncIterator[bytes], context: Context) -> None:
        request_context = _PartitionContext(self._authorizer, context)
        session = self._handler.open_session(
            lambda topic: request_context.refused_topic(_FETCH, topic)
        )
        try:
            while (data := await self._reads.next(context)) is not EOF:
                with self.response_memory.hold(context.peer()) as room:
                    await context.write(
                        await self._fetched(data, session, context, request_context, room)
                    )
        finally:
            session.close()

    async def _fetched(
        self,
        data: bytes,
        session: FetchSession,
        context: Context,
        request_context: _PartitionContext,
        room: MemoryReservation,
    ) -> partition_pb2.PartitionFetchResponse:
        response = await self._answered(data, session, context, request_context, room)
        await room.settle(sum(len(part) for each in response.partitions for part in each.records))
        return convert.encode_fetched(response)

    async def _answered(
        self,
        data: bytes,
        session: FetchSession,
        context: Context,
        request_context: _PartitionContext,
        room: MemoryReservation,
    ) -> PartitionFetchResponse:
        refused = request_context.refusal(_FETCH)
        if refused is not None:
            return PartitionFetchResponse(refused.error, message=refused.message)
        try:
            request = await read_request(_FETCH, data, convert.decode_fetch)
            if request.replica_id != NO_NODE:
                refused = request_context.follower_refusal(request.replica_id)
            if refused is not None:
                return PartitionFetchResponse(refused.error, message=refused.message)
            return await session.fetch(request, room)
        except DecodeError:
            raise
        except Exception as error:
            code, text = REJECTIONS.failure("Fetch", context.peer(), error)
            return PartitionFetchResponse(code, message=text)

    # --- one request, one answer ------------------------------------------------------------------

    async def _offsets(
        self, message: partition_pb2.ListOffsetsRequest, request_context: _PartitionContext
    ) -> PartitionOffsets:
        key = convert.key_from_wire(message.partition)
        failed = request_context.refused_topic(_LIST_OFFSETS, key.topic_id)
        if failed is not ErrorCode.NONE:
            return PartitionOffsets(failed)
        return await self._handler.list_offsets(key)

    async def _located(
        self, message: partition_pb2.LocateRequest, request_context: _PartitionContext
    ) -> Located:
        asked = tuple(message.topics)
        return request_context.visible(await self._handler.locate(asked), asked)

    async def _identity(
        self, _message: Any, _request_context: _PartitionContext
    ) -> ProducerIdentity:
        return await self._handler.init_producer_id()

    def _unary(
        self,
        rpc: RpcMethod,
        handle: Callable[[Any, _PartitionContext], Coroutine[Any, Any, Any]],
        refuse: Callable[..., Any],
        encode: Callable[[Any], Message],
    ) -> Callable[[bytes, Context], Coroutine[Any, Any, Message]]:
        """The behavior of a method. refuse: builds a response from an error and its message."""

        async def answer(data: bytes, context: Context) -> Any:
            request_context = _PartitionContext(self._authorizer, context)
            if (refused := request_context.refusal(rpc)) is not None:
                return refuse(refused.error, message=refused.message)
            try:
                return await handle(await read_request(rpc, data, _as_it_is), request_context)
            except DecodeError:
                raise
            except Exception as error:
                code, text = REJECTIONS.failure(rpc.name, context.peer(), error)
                return refuse(code, message=text)

        async def behave(data: bytes, context: Context) -> Message:
            return encode(await answer(data, context))

        return behave


def _as_it_is(message: Any) -> Any:
    return message


def _decode_produce(message: partition_pb2.ProduceRequest) -> tuple[int, ProduceRequest]:
    return message.correlation_id, convert.decode_produce_request(message)
