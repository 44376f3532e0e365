"""Serves the calls of Raft and Quorum: decodes requests, calls the handler, encodes responses.

Every call passes these steps before its request is decoded. On a stream, steps 3 and 4 apply to
every message:

1. The call waits for its turn (`throttle`), unless the method is exempt.
2. A node that is not formatted ends the call with FAILED_PRECONDITION, unless the method needs no
   storage. So does a node of another cluster than the one that the call names (`cluster_check`).
3. The authorizer authorizes the caller for the method. If it rejects the call, the response carries
   the error; NodeStatus, whose response has no error field, ends with PERMISSION_DENIED.
4. A request that exceeds the limits of its method (`intake`) is answered with INVALID_REQUEST.

Then the request is decoded, and the authorizer authorizes its content. Rules for what follows:

5. A request that violates the protocol is answered with INVALID_REQUEST and the reason.
6. An exception of a handler is logged with the call and its sender, and answered with
   UNKNOWN_SERVER_ERROR. It never ends the server.

Source: proto/quorate/v1/raft.proto, quorum.proto.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from dataclasses import replace
from functools import partial
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from quorate.common.error_codes import ErrorCode
from quorate.raft.errors import ViolationError
from quorate.raft.messages import FetchRequest, FetchResponse
from quorate.rpc.client.channels import EOF
from quorate.rpc.server.append_handler import AppendHandler
from quorate.rpc.server.arrivals import Arrivals
from quorate.rpc.server.authorizer import CallAuthorizer, Context, RequestContext
from quorate.rpc.server.cluster_check import check_cluster
from quorate.rpc.server.handler import (
    CallHandler,
    CallingHandler,
    MetadataHandler,
    NodeHandler,
    RaftHandler,
)
from quorate.rpc.server.intake import read_request
from quorate.rpc.server.records_answer import encode_with_records
from quorate.rpc.server.request_validation import RejectionLog
from quorate.rpc.server.response_memory import (
    SMALL_ROOM_BYTES,
    UNCOUNTED_BYTES,
    MemoryReservation,
    NoRoomError,
    ResponseMemory,
)
from quorate.rpc.server.server_stream import Running, ServerStream, StreamReads, begun
from quorate.rpc.server.throttle import RECORDS_BYTES, RequestThrottle
from quorate.rpc.server.watch_stream import (
    DeniedError,
    ResponseStream,
    StreamEndedError,
    encode_chunk,
)
from quorate.rpc.wire import convert
from quorate.rpc.wire.codec import Codec
from quorate.rpc.wire.codecs import CODECS
from quorate.rpc.wire.limits import LONE_FETCH_BYTES_MAX, SNAPSHOT_PIECE_BYTES_MAX, ServerLimits
from quorate.rpc.wire.methods import RPC_METHODS, RpcMethod
from quorate.rpc.wire.values import Buffer, ReadRequest
from quorate.v1 import raft_pb2

LOGGER = logging.getLogger(__name__)
REJECTIONS = RejectionLog(LOGGER)

Behavior = Callable[[Any, Context], Any]
Handle = Callable[[Any], Awaitable[Any]]

RESPONSE_ROOM_BYTES = 64 * 1024
"""Upper bound of a FetchResponse's size beyond its records."""

NOT_FORMATTED = "this node is not formatted: it serves Format and NodeStatus only"
NO_METADATA = "this node is not formatted, or serves no metadata"


class HandlerRef:
    """The current handler of requests, and the authorizer that authorizes them.

    The handler changes once in a process's life: when the node has been formatted.
    """

    def __init__(
        self,
        handler: NodeHandler,
        authorizer: CallAuthorizer | None,
        request_throttle: RequestThrottle,
        response_memory: ResponseMemory | None = None,
        arrivals: Arrivals | None = None,
        *,
        watch_memory: ResponseMemory | None = None,
    ) -> None:
        self.authorizer = authorizer
        self.request_throttle = request_throttle
        self.response_memory = response_memory or ResponseMemory(small_bytes_max=SMALL_ROOM_BYTES)
        self.watch_memory = ResponseMemory() if watch_memory is None else watch_memory
        self.arrivals = Arrivals() if arrivals is None else arrivals
        self.use(handler)

    def use(self, handler: NodeHandler) -> None:
        self.handler = handler
        # Checked once: isinstance with a protocol inspects each method, too slow for every call.
        self._raft = handler if isinstance(handler, RaftHandler) else None
        self._metadata = handler if isinstance(handler, MetadataHandler) else None
        self._calling = handler if isinstance(handler, CallingHandler) else None

    def request_context(self, context: Context) -> RequestContext | None:
        """The caller and its authorizer; None without an authorizer."""
        return RequestContext.of(self.authorizer, context)

    async def enter(self, method: RpcMethod, context: Context, data: bytes = b"") -> None:
        """Perform steps 1 and 2, which may end the call. data: its only message."""
        self.arrivals.add(context.peer(), len(data))
        if method.takes_turn:
            await self.request_throttle.wait(context)
        if method.needs_storage:
            if self._raft is None:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, NOT_FORMATTED)
            await check_cluster(context, self.raft.cluster_id, method.name)

    async def keep(self, context: Context, answer: Message) -> None:
        """Hold room for a call's response until the client has read it; may end the call."""
        size = answer.ByteSize()
        if size > UNCOUNTED_BYTES:
            held = self.response_memory.hold(context.peer())
            context.add_done_callback(_releases(held))
            try:
                await held.settle(size, is_owned=True)
            except NoRoomError as error:
                # Not RESOURCE_EXHAUSTED, which promises that the call was not executed.
                await context.abort(grpc.StatusCode.ABORTED, str(error))

    @property
    def raft(self) -> RaftHandler:
        """The running node's handler; valid after `enter`."""
        return self._raft  # type: ignore[return-value]

    def raft_for(self, context: Context) -> RaftHandler | CallHandler:
        """The running node's handler of this call; valid after `enter`."""
        return self.raft if self._calling is None else self._calling.for_call(context)

    async def metadata(
        self, method: RpcMethod, context: Context, data: bytes
    ) -> MetadataHandler | CallHandler:
        """The metadata handler, after steps 1 and 2; ends the call if there is none."""
        self.arrivals.add(context.peer(), len(data))
        await self.request_throttle.wait(context)
        if self._metadata is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, NO_METADATA)
        await check_cluster(context, self._metadata.cluster_id, method.name)
        return self._metadata if self._calling is None else self._calling.for_call(context)


def failure(method: RpcMethod, context: Context, error: Exception) -> tuple[ErrorCode, str]:
    """The error and message that answer an exception (rules 5 and 6)."""
    return REJECTIONS.failure(method.name, context.peer(), error)


async def _admitted(codec: Codec, data: bytes, request_context: RequestContext | None) -> Any:
    """The decoded request, authorized and within its limits (steps 3 and 4).

    Raises DeniedError, ViolationError, DecodeError.
    """
    name = codec.method.name
    if request_context is not None and (refused := request_context.refusal(name)) is not None:
        raise DeniedError(refused)
    request = await read_request(codec.method, data, codec.decode_request)
    if (
        request_context is not None
        and (refused := request_context.refusal(name, request)) is not None
    ):
        raise DeniedError(refused)
    return request


async def _answer(
    codec: Codec,
    data: bytes,
    context: Context,
    request_context: RequestContext | None,
    handle: Handle,
) -> Message:
    """Handle one request, for methods whose responses have an error field."""
    try:
        return codec.encode_response(await handle(await _admitted(codec, data, request_context)))
    except Exception as error:
        return codec.encode_response(_refused(codec, context, error))


def _refused(codec: Codec, context: Context, error: Exception) -> Any:
    """The response to a request that failed.

    Re-raises DecodeError, which becomes the status of the call.
    """
    assert codec.refuse is not None
    if isinstance(error, DecodeError):
        raise error
    if isinstance(error, DeniedError):
        return codec.refuse(*error.refusal)
    return codec.refuse(*failure(codec.method, context, error))


class Servicer:
    """The methods of Raft and Quorum.

    `running` holds the appends in flight, which outlive their streams. `reads` ends the streams.
    """

    def __init__(self, handler_ref: HandlerRef, limits: ServerLimits) -> None:
        self._handler_ref = handler_ref
        self._limits = limits
        self.running: Running = set()
        self.reads = StreamReads()
        fetch = CODECS["Fetch"]
        refuse_fetch = fetch.refuse
        assert refuse_fetch is not None
        # A handler returns a fetch's response together with its records.
        fetch = replace(fetch, refuse=lambda error, text: (refuse_fetch(error, text), ()))
        self._lone_fetch = replace(fetch, decode_request=_decode_lone_fetch)
        self._fetch_of_stream = replace(fetch, method=RPC_METHODS["FetchStream"])

        special: dict[str, Behavior] = {
            "Fetch": self._fetch_alone,
            "FetchStream": self._stream_fetches,
            "FetchSnapshot": self._fetch_snapshot,
            "Format": self._unary(CODECS["Format"], lambda _: handler_ref.handler.format),
            "NodeStatus": self._node_status,
            "Append": self._append,
            "AppendStream": self._stream_appends,
            "Read": self._read,
        }
        handled = {
            name: self._unary(codec, lambda context: handler_ref.raft_for(context).handle)
            for name, codec in CODECS.items()
            if name not in special
        }
        self.behaviors: Mapping[str, Behavior] = handled | special
        """By method name. Each takes the request's bytes; those of client streams read the call."""

    def _unary(self, codec: Codec, handle: Callable[[Context], Handle]) -> Behavior:
        """A unary method. handle: returns the call's handler, after `HandlerRef.enter`."""
        method, request_throttle = codec.method, self._handler_ref.request_throttle

        async def serve(data: bytes, context: Context) -> Message:
            await self._handler_ref.enter(method, context, data)
            answer = await _answer(
                codec, data, context, self._handler_ref.request_context(context), handle(context)
            )
            if method.takes_turn:
                request_throttle.charge(context, answer.ByteSize(), asked_bytes=len(data))
            await self._handler_ref.keep(context, answer)
            return answer

        return serve

    async def _fetch_alone(self, data: bytes, context: Context) -> bytes:
        codec, handler_ref = self._lone_fetch, self._handler_ref
        await handler_ref.enter(codec.method, context, data)
        held = handler_ref.response_memory.hold(context.peer())
        context.add_done_callback(_releases(held))
        answer = await self._answer_fetch(
            codec, data, context, handler_ref.request_context(context), held
        )
        handler_ref.request_throttle.charge(context, len(answer), call_bytes=RECORDS_BYTES)
        return answer

    async def _answer_fetch(
        self,
        codec: Codec,
        data: bytes,
        context: Context,
        request_context: RequestContext | None,
        held: MemoryReservation,
    ) -> bytes:
        try:
            request = await _admitted(codec, data, request_context)
            response, records = await self._fetch_within(held, request)
        except Exception as error:
            response, records = _refused(codec, context, error)
        return await self._encode_fetched(response, records)

    async def _fetch_within(
        self, held: MemoryReservation, request: FetchRequest
    ) -> tuple[FetchResponse, Sequence[Buffer]]:
        """The handler's response, within the room of `held`.

        A fetch of records that exist reserves room first. A parked fetch takes room once its
        records have arrived.
        """
        handler = self._handler_ref.raft
        if request.offset < handler.end_offset:
            await held.reserve()
        response, records = await handler.fetch(request)
        await held.settle(sum(map(len, records)))
        return response, records

    async def _stream_fetches(self, _requests: AsyncIterator[bytes], context: Context) -> None:
        """Serve one fetch at a time: read, handle, respond."""
        codec = self._fetch_of_stream
        await self._handler_ref.enter(codec.method, context)
        request_context, response_memory, peer = (
            self._handler_ref.request_context(context),
            self._handler_ref.response_memory,
            context.peer(),
        )
        with response_memory.hold(peer) as held:
            while (data := await self.reads.next(context)) is not EOF:
                self._handler_ref.arrivals.add(peer, len(data))
                await context.write(
                    await self._answer_fetch(codec, data, context, request_context, held)
                )
                held.release()

    async def _encode_fetched(self, response: FetchResponse, records: Sequence[Buffer]) -> bytes:
        size = sum(map(len, records))
        limit = self._limits.message_bytes_max - RESPONSE_ROOM_BYTES
        if size > limit:
            # Sending it would break the stream on every retry; an error reaches the follower.
            text = f"{size} bytes of records in one response: the limit is {limit}"
            LOGGER.error("a fetch at offset %s: %s", response.records_from, text)
            response = FetchResponse(ErrorCode.MESSAGE_TOO_LARGE, response.leader, message=text)
            records = ()
        return await encode_with_records(
            convert.encode_fetch_response(response), "records", records
        )

    async def _fetch_snapshot(self, data: bytes, context: Context) -> AsyncIterator[Message]:
        codec = CODECS["FetchSnapshot"]
        await self._handler_ref.enter(codec.method, context, data)
        with self._handler_ref.response_memory.hold(context.peer()) as held:
            try:
                request = await _admitted(codec, data, self._handler_ref.request_context(context))
                await held.reserve()
                response = await self._handler_ref.raft.fetch_snapshot(request)
                await held.settle(len(response.data))
            except Exception as error:
                response = _refused(codec, context, error)
            pieces = memoryview(response.data)
            for start in range(0, max(1, len(pieces)), SNAPSHOT_PIECE_BYTES_MAX):
                piece = bytes(pieces[start : start + SNAPSHOT_PIECE_BYTES_MAX])
                yield codec.encode_response(
                    replace(response, position=response.position + start, data=piece)
                )

    async def _node_status(self, data: bytes, context: Context) -> Message:
        codec = CODECS["NodeStatus"]
        await self._handler_ref.enter(codec.method, context, data)
        request_context = self._handler_ref.request_context(context)
        if (
            request_context is not None
            and (refused := request_context.refusal(codec.method.name)) is not None
        ):
            text = f"{refused.error.name} {refused.message}".rstrip()
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, text)
        try:
            await read_request(codec.method, data, codec.decode_request)
            return codec.encode_response(await self._handler_ref.handler.node_status())
        except DecodeError:
            raise
        except ViolationError as error:
            code, text = grpc.StatusCode.INVALID_ARGUMENT, failure(codec.method, context, error)[1]
        except Exception as error:
            code, text = grpc.StatusCode.INTERNAL, failure(codec.method, context, error)[1]
        await context.abort(code, text)
        raise AssertionError("abort raises")

    async def _append(self, data: bytes, context: Context) -> Message:
        _, work = await (await self._appends("Append", context, data)).begin(data)
        answer = await asyncio.shield(begun(self.running, work))
        self._handler_ref.request_throttle.charge(context, answer.ByteSize(), asked_bytes=len(data))
        return answer

    async def _stream_appends(self, _requests: AsyncIterator[bytes], context: Context) -> None:
        appends = await self._appends("AppendStream", context)
        arrivals, request_throttle, peer = (
            self._handler_ref.arrivals,
            self._handler_ref.request_throttle,
            context.peer(),
        )

        async def begin(data: bytes) -> tuple[int, Coroutine[Any, Any, Message]]:
            arrivals.add(peer, len(data))
            request_throttle.note_streamed()
            return await appends.begin(data)

        read = partial(self.reads.next, context)
        await ServerStream(context, self._limits, self.running, begin, read=read).serve()

    async def _appends(self, name: str, context: Context, data: bytes = b"") -> AppendHandler:
        method = RPC_METHODS[name]
        await self._handler_ref.enter(method, context, data)
        request_context, limit = (
            self._handler_ref.request_context(context),
            self._limits.batch_bytes_max,
        )
        return AppendHandler(self._handler_ref.raft, context, method, limit, request_context)

    async def _read(self, data: bytes, context: Context) -> AsyncIterator[Message | bytes]:
        codec = CODECS["Read"]
        await self._handler_ref.enter(codec.method, context, data)
        request_context = self._handler_ref.request_context(context)
        try:
            request = await _admitted(codec, data, request_context)
            if request.follow:
                await self._follow(request, context, request_context)
                return
            with self._handler_ref.response_memory.hold(context.peer()) as held:
                async for chunk in self._handler_ref.raft.read(request, held.reserve):
                    await held.settle(len(chunk.records))
                    yield await encode_chunk(chunk)
            return
        except Exception as error:
            final = _refused(codec, context, error)
        yield codec.encode_response(final)

    async def _follow(
        self, request: ReadRequest, context: Context, request_context: RequestContext | None
    ) -> None:
        stream = ResponseStream(context, request_context, self._handler_ref.watch_memory)
        try:
            await self._handler_ref.raft.follow(request, stream)
        except StreamEndedError as error:
            LOGGER.debug("%s has gone: %s", stream.peer, error.__cause__)
        finally:
            stream.close()


def _releases(held: MemoryReservation) -> Any:
    """A callback for the end of a call, when the client has read the response or is gone."""
    return lambda _: held.release()


def _decode_lone_fetch(message: raft_pb2.FetchRequest) -> FetchRequest:
    wanted = message.max_bytes if message.HasField("max_bytes") else LONE_FETCH_BYTES_MAX
    message.max_bytes = min(wanted, LONE_FETCH_BYTES_MAX)
    return convert.decode_fetch_request(message)
