"""Conversion and processing of Kafka's requests and responses.

An `Exchange` converts the messages of one API; the tables are in `lifecycle` and `forwarding`.
Every request gets a response in its own version, also when Quorate cannot represent the request or
rejects it as a whole.

Source: Kafka's ControllerApis.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from quorate.bridge.messages import schemas as s
from quorate.bridge.requests.quotas import MutationQuotas
from quorate.common.error_codes import ErrorCode
from quorate.metadata.requests import Refused
from quorate.rpc.principals import Caller
from quorate.rpc.wire.convert_metadata import TIMEOUT_MS, TIMEOUT_MS_MAX, MetadataAnswer

Ask = Callable[[Any, int, Caller], Awaitable[MetadataAnswer]]
"""Passes a request to the metadata controller, with its timeout in ms and its caller."""

Fail = Callable[[Any, ErrorCode, str], Any]
"""Builds the response to a request that is rejected as a whole, from its error and message."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """The conversions of one API."""

    read: Callable[[Any], Any]
    """Converts a decoded body to a request; raises RefusedCallError."""
    write: Callable[[Any, Any], Any]
    """Converts a response to a message, given the module with the classes of its version."""
    fail: Fail


class RefusedCallError(Exception):
    """Quorate cannot represent this request; the message is for the client. request: passed to
    `Exchange.fail` in its place.
    """

    def __init__(self, error: ErrorCode, text: str, request: Any = None) -> None:
        super().__init__(text)
        self.error = error
        self.request = request


class NotControllerError(Exception):
    """This node is not the active controller. response: the NOT_CONTROLLER response."""

    def __init__(self, response: Any) -> None:
        super().__init__()
        self.response = response


def in_one(response_type: type) -> Fail:
    """A `Fail` for a response type with a single top-level error."""

    def fail(_request: object, error: ErrorCode, text: str) -> Any:
        return response_type(error=error, message=text)

    return fail


async def answer_bare(
    exchange: Exchange, call: s.Call, ask: Ask, caller: Caller, quotas: MutationQuotas
) -> Any:
    """The response to a request without an envelope."""
    try:
        return await answer(exchange, call, ask, caller, quotas)
    except NotControllerError as error:
        return error.response


async def answer(
    exchange: Exchange, call: s.Call, ask: Ask, caller: Caller, quotas: MutationQuotas
) -> Any:
    """Process a request and return its response. Raises NotControllerError."""
    module = s.response_module(call.api_key, call.version)
    try:
        request = exchange.read(call.body)
    except RefusedCallError as error:
        return exchange.write(module, exchange.fail(error.request, error.error, str(error)))
    quota = quotas.of(call, caller)
    if quota is not None:
        request = replace(request, mutation_quota=quota)
    answered = await ask(request, _timeout_ms(call.body), caller)
    if answered.error is ErrorCode.NOT_CONTROLLER:
        failed = exchange.fail(request, ErrorCode.NOT_CONTROLLER, "")
        raise NotControllerError(exchange.write(module, failed))
    response = answered.response
    if answered.error is not ErrorCode.NONE:
        response = exchange.fail(request, answered.error, answered.message)
    elif isinstance(response, Refused):
        response = exchange.fail(request, response.error, response.message)
    written = exchange.write(module, response)
    if quota is not None:
        written = replace(written, throttle_time=s.milliseconds(quota.throttle_ms))
    return written


def _timeout_ms(body: Any) -> int:
    """The client's timeout, limited to `TIMEOUT_MS_MAX`; the default if the request has none."""
    wanted = getattr(body, "timeout", None)
    count = TIMEOUT_MS if wanted is None else wanted // s.milliseconds(1)
    return min(max(1, count), TIMEOUT_MS_MAX)
