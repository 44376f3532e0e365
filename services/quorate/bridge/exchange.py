"""A request in Kafka's form and its answer: how a kind is read and written, and the way of all.

An `Exchange` says it of one API; the tables are in `lifecycle` and `forwarding`. Whatever becomes
of a request, its answer has the form that its version has for that: where Quorate has no form for
the request, and where it was refused as a whole, too.

Source: Kafka's ControllerApis.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from quorate.bridge import schemas as s
from quorate.metadata.requests import Refused
from quorate.raft.errors import ErrorCode
from quorate.rpc.convert_metadata import TIMEOUT_MS, TIMEOUT_MS_MAX, MetadataAnswer
from quorate.rpc.principals import Caller

Ask = Callable[[Any, int, Caller], Awaitable[MetadataAnswer]]
"""Gives a request to the metadata controller: within so many ms, for whom."""

Fail = Callable[[Any, ErrorCode, str], Any]
"""The response to a request that was refused as a whole, and why."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """read: the body as a request; RefusedCallError. write: the response, of the classes of a
    version.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], Any]
    fail: Fail


class RefusedCallError(Exception):
    """A request that Quorate has no form for; its text is for the client. request: what stands for
    it where the answer is made.
    """

    def __init__(self, error: ErrorCode, text: str, request: Any = None) -> None:
        super().__init__(text)
        self.error = error
        self.request = request


class NotControllerError(Exception):
    """Another node is to be asked. response: what says so in the request's own form."""

    def __init__(self, response: Any) -> None:
        super().__init__()
        self.response = response


def in_one(response_type: type) -> Fail:
    """For a response that has one error, of everything."""

    def fail(_request: object, error: ErrorCode, text: str) -> Any:
        return response_type(error=error, message=text)

    return fail


async def answer_bare(exchange: Exchange, call: s.Call, ask: Ask, caller: Caller) -> Any:
    """The response to a request that came without an envelope."""
    try:
        return await answer(exchange, call, ask, caller)
    except NotControllerError as error:
        return error.response


async def answer(exchange: Exchange, call: s.Call, ask: Ask, caller: Caller) -> Any:
    """The response. NotControllerError."""
    module = s.response_module(call.api_key, call.version)
    try:
        request = exchange.read(call.body)
    except RefusedCallError as error:
        return exchange.write(module, exchange.fail(error.request, error.error, str(error)))
    answered = await ask(request, _timeout_ms(call.body), caller)
    if answered.error is ErrorCode.NOT_CONTROLLER:
        failed = exchange.fail(request, ErrorCode.NOT_CONTROLLER, "")
        raise NotControllerError(exchange.write(module, failed))
    response = answered.response
    if answered.error is not ErrorCode.NONE:
        response = exchange.fail(request, answered.error, answered.message)
    elif isinstance(response, Refused):
        response = exchange.fail(request, response.error, response.message)
    return exchange.write(module, response)


def _timeout_ms(body: Any) -> int:
    """How long the client waits; the default where the request does not say."""
    wanted = getattr(body, "timeout", None)
    count = TIMEOUT_MS if wanted is None else wanted // s.milliseconds(1)
    return min(max(1, count), TIMEOUT_MS_MAX)
