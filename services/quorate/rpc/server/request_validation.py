"""Rejects requests that cannot be decoded, and limits the log lines about rejected requests.

Rules:
1. Bytes that are not a message of their method end the call with INVALID_ARGUMENT, whatever the
   method. gRPC by itself would answer UNKNOWN and log a stack trace for each.
2. The log has a line for each rejection while they are few (see `telemetry.limited_log`): all peers
   together have `BURST` lines at once, and `LINES_PER_SECOND` in the long run.
3. Two cases are not errors of the server: a client leaves while gRPC sends it a response, and the
   process ends before gRPC has ended a call. gRPC by itself would log a stack trace for each.
4. A call that the node itself cancels, because it stops, ends with CANCELLED. gRPC by itself would
   send no status, and the client would wait until the process ends.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from quorate.common.error_codes import ErrorCode
from quorate.raft.errors import ViolationError
from quorate.telemetry.limited_log import LimitedLog

LOGGER = logging.getLogger(__name__)

GRPC_LOGGER = logging.getLogger("grpc._cython.cygrpc")

STOPPING = "the node is stopping"

LINES_PER_SECOND = 5.0
BURST = 50

Context = grpc.aio.ServicerContext[Any, Any]
Behavior = Callable[[Any, Context], Any]


class RejectionLog:
    """Logs rejections (rule 2)."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._log = LimitedLog(logger, burst=BURST, interval_s=1 / LINES_PER_SECOND, clock=clock)

    def say(self, what: str, whom: str, why: object) -> None:
        """Log one rejection: the method, the peer, the reason."""
        self._log.warning(None, "rejected %s from %s: %s", what, whom, why)

    def failure(self, what: str, whom: str, error: Exception) -> tuple[ErrorCode, str]:
        """Log an exception of a call; return the error and the message that answer it.

        A ViolationError is a rejection, and any other exception a failure of the server.
        """
        if isinstance(error, ViolationError):
            self.say(what, whom, error)
            return ErrorCode.INVALID_REQUEST, str(error)
        self._logger.error("%s from %s failed", what, whom, exc_info=error)
        return ErrorCode.UNKNOWN_SERVER_ERROR, f"internal error: {type(error).__name__}"


def is_reported(record: logging.LogRecord) -> bool:
    """A log filter: whether to keep a record of gRPC's own logger (rule 3)."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, grpc.aio.InternalError | asyncio.CancelledError)


class _Unreadable:
    """Stands for a request that could not be decoded."""

    __slots__ = ("error",)

    def __init__(self, error: DecodeError) -> None:
        self.error = error


class DecodeErrorInterceptor:
    """Wraps a server while services are added: their methods get only decodable requests.

    bytes_max: of a request that gRPC decodes. Methods that take bytes have their own limits.
    """

    def __init__(self, server: grpc.aio.Server, bytes_max: int | None = None) -> None:
        self._server: Any = server  # the stubs lack add_registered_method_handlers
        self._guard = _Guard(RejectionLog(LOGGER), bytes_max)
        GRPC_LOGGER.addFilter(is_reported)

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        """See `grpc.aio.Server`."""
        self._server.add_generic_rpc_handlers(
            tuple(_GuardedService(handler, self._guard) for handler in handlers)
        )

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """See `grpc.aio.Server`."""
        guarded = {name: self._guard.method(name, each) for name, each in handlers.items()}
        self._server.add_registered_method_handlers(service, guarded)


class _GuardedService(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """The methods of one service, each wrapped once."""

    def __init__(self, handler: Any, guard: _Guard) -> None:
        self._handler = handler
        self._guard = guard
        self._methods: dict[str, Any] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        name = handler_call_details.method
        found = self._methods.get(name)
        if found is None:
            method = self._handler.service(handler_call_details)
            if method is None:
                return None  # not cached: any caller can choose the name
            found = self._methods[name] = self._guard.method(name.rpartition("/")[2], method)
        return found


class _Guard:
    """Wraps a method so that it never sees a request that cannot be decoded."""

    def __init__(self, refusals: RejectionLog, bytes_max: int | None) -> None:
        self._rejections = refusals
        self._bytes_max = bytes_max

    def method(self, name: str, method: Any) -> Any:
        behavior = (
            method.unary_unary or method.unary_stream or method.stream_unary or method.stream_stream
        )
        wrap = self._giving if inspect.isasyncgenfunction(behavior) else self._serving
        serve = wrap(name, behavior)
        decode = method.request_deserializer
        if decode is not None and self._bytes_max is not None:
            decode = _bounded(decode, self._bytes_max)
        if method.request_streaming:
            # A stream's messages are decoded as they are read, which raises the error.
            field = "stream_stream" if method.response_streaming else "stream_unary"
            return method._replace(**{field: serve}, request_deserializer=decode)
        field = "unary_stream" if method.response_streaming else "unary_unary"
        lenient = None if decode is None else _lenient(decode)
        return method._replace(**{field: serve}, request_deserializer=lenient)

    def _serving(self, name: str, behavior: Behavior) -> Behavior:
        async def serve(request: Any, context: Context) -> Any:
            try:
                if isinstance(request, _Unreadable):
                    raise request.error
                return await behavior(request, context)
            except DecodeError as error:
                await self._refuse(name, context, error)
            except NotImplementedError:
                # Generated base classes raise this for methods that a library does not implement.
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{name} is not served")
            except asyncio.CancelledError:
                if _is_cancelled_by_grpc():
                    raise
                await context.abort(grpc.StatusCode.CANCELLED, STOPPING)

        return serve

    def _giving(self, name: str, behavior: Behavior) -> Behavior:
        async def give(request: Any, context: Context) -> AsyncIterator[Any]:
            try:
                if isinstance(request, _Unreadable):
                    raise request.error
                async for response in behavior(request, context):
                    yield response
            except DecodeError as error:
                await self._refuse(name, context, error)
            except asyncio.CancelledError:
                if _is_cancelled_by_grpc():
                    raise
                await context.abort(grpc.StatusCode.CANCELLED, STOPPING)

        return give

    async def _refuse(self, name: str, context: Context, error: DecodeError) -> None:
        self._rejections.say(name, context.peer(), error)
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{name}: {error}")


def _is_cancelled_by_grpc() -> bool:
    """Whether the call's task was cancelled: the client left. See rule 4 for the other case."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _bounded(decode: Callable[[bytes], Any], bytes_max: int) -> Callable[[bytes], Any]:
    def deserialize(data: bytes) -> Any:
        if len(data) > bytes_max:
            raise DecodeError(f"a request of {len(data)} bytes: the limit is {bytes_max}")
        return decode(data)

    return deserialize


def _lenient(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def deserialize(data: bytes) -> Any:
        try:
            return decode(data)
        except DecodeError as error:
            return _Unreadable(error)

    return deserialize
