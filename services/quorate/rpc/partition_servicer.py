"""The Partition service: messages in, values to the handler, its answers out.

Rules, as in `servicers`: what violates the protocol is answered with INVALID_REQUEST and the
reason; what a handler raises is logged and answered with UNKNOWN_SERVER_ERROR. Many batches of one
Produce stream are under way at once, as `answered_stream` has it.
"""
# ruff: noqa: N802 - the methods have the names of the proto

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, Protocol

import grpc.aio

from quorate.raft.errors import ErrorCode, ViolationError
from quorate.rpc import partition_convert as convert
from quorate.rpc.answered_stream import AnsweredStream, Running
from quorate.rpc.channels import EOF
from quorate.rpc.limits import ServerLimits
from quorate.rpc.partition_values import (
    Located,
    PartitionFetch,
    PartitionFetchResponse,
    PartitionKey,
    PartitionOffsets,
    ProduceRequest,
    ProduceResponse,
    ProducerIdentity,
)
from quorate.rpc.refusals import ReadableOnly, Refusals
from quorate.v1 import partition_pb2, partition_pb2_grpc

LOGGER = logging.getLogger(__name__)
REFUSALS = Refusals(LOGGER)

Context = grpc.aio.ServicerContext[Any, Any]
PARTITION_SERVICE: str = partition_pb2.DESCRIPTOR.services_by_name["Partition"].full_name


class FetchSession(Protocol):
    """One Fetch stream: it remembers what its requests said."""

    async def fetch(self, request: PartitionFetch) -> PartitionFetchResponse:
        """Answer when there is news, or `max_wait_ms` has passed."""
        ...

    def close(self) -> None: ...


class PartitionHandler(Protocol):
    """What a broker does for the servicer."""

    async def produce(self, request: ProduceRequest) -> ProduceResponse: ...

    def open_session(self) -> FetchSession: ...

    async def list_offsets(self, key: PartitionKey) -> PartitionOffsets: ...

    async def locate(self, topics: Sequence[str]) -> Located: ...

    async def init_producer_id(self) -> ProducerIdentity: ...


def _failed(what: str, context: Context, error: Exception) -> tuple[ErrorCode, str]:
    if isinstance(error, ViolationError):
        REFUSALS.say(what, context.peer(), error)
        return ErrorCode.INVALID_REQUEST, str(error)
    LOGGER.exception("%s from %s failed", what, context.peer())
    return ErrorCode.UNKNOWN_SERVER_ERROR, f"internal error: {type(error).__name__}"


class PartitionServicer(partition_pb2_grpc.PartitionServicer):
    """Producers, readers and follower brokers. `running` are batches under way."""

    def __init__(self, handler: PartitionHandler, limits: ServerLimits) -> None:
        self._handler = handler
        self._limits = limits
        self.running: Running = set()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve on a server that has not been started."""
        # The generated function is not typed.
        partition_pb2_grpc.add_PartitionServicer_to_server(  # type: ignore[no-untyped-call]
            self, ReadableOnly(server)
        )

    async def Produce(
        self, _requests: AsyncIterator[partition_pb2.ProduceRequest], context: Context
    ) -> None:
        def begin(
            message: partition_pb2.ProduceRequest,
        ) -> tuple[int, Coroutine[Any, Any, partition_pb2.ProduceResponse]]:
            return len(message.records), self._produce(message, context)

        await AnsweredStream(context, self._limits, self.running, begin).serve()

    async def _produce(
        self, message: partition_pb2.ProduceRequest, context: Context
    ) -> partition_pb2.ProduceResponse:
        try:
            response = await self._handler.produce(convert.decode_produce_request(message))
        except Exception as error:
            code, text = _failed("Produce", context, error)
            response = ProduceResponse(code, message=text)
        return convert.encode_produce_response(message.correlation_id, response)

    async def Fetch(
        self, _requests: AsyncIterator[partition_pb2.PartitionFetchRequest], context: Context
    ) -> None:
        session = self._handler.open_session()
        try:
            while (message := await context.read()) is not EOF:
                try:
                    response = await session.fetch(convert.decode_fetch(message))
                except Exception as error:
                    code, text = _failed("Fetch", context, error)
                    response = PartitionFetchResponse(code, message=text)
                await context.write(convert.encode_fetched(response))
        finally:
            session.close()

    async def ListOffsets(
        self, request: partition_pb2.ListOffsetsRequest, context: Context
    ) -> partition_pb2.ListOffsetsResponse:
        try:
            key = convert.key_from_wire(request.partition)
            return convert.encode_offsets(await self._handler.list_offsets(key))
        except Exception as error:
            code, text = _failed("ListOffsets", context, error)
            return convert.encode_offsets(PartitionOffsets(code, message=text))

    async def Locate(
        self, request: partition_pb2.LocateRequest, context: Context
    ) -> partition_pb2.LocateResponse:
        try:
            return convert.encode_located(await self._handler.locate(tuple(request.topics)))
        except Exception as error:
            code, text = _failed("Locate", context, error)
            return convert.encode_located(Located(code, message=text))

    async def InitProducerId(
        self, _request: partition_pb2.InitProducerIdRequest, context: Context
    ) -> partition_pb2.InitProducerIdResponse:
        try:
            return convert.encode_identity(await self._handler.init_producer_id())
        except Exception as error:
            code, text = _failed("InitProducerId", context, error)
            return convert.encode_identity(ProducerIdentity(code, message=text))
