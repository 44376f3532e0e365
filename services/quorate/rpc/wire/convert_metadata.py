"""Converts the requests and responses of Metadata and BrokerLifecycle.

The messages mirror the values of `metadata.requests` (see `codec`). In addition, a request may
limit the controller's time, and a response says whether the controller accepted the request, and
which node the responding node considers the active controller.

Source: proto/quorate/v1/metadata.proto, lifecycle.proto.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from quorate.metadata import requests as r
from quorate.raft.errors import ErrorCode, ViolationError
from quorate.raft.messages import CurrentLeader
from quorate.raft.types import Endpoint, VersionRange
from quorate.rpc import fields as f
from quorate.rpc.wire.codec import Form, MessageCodec, Rules
from quorate.rpc.wire.methods import RPC_METHODS, RpcMethod

TIMEOUT_MS = 30_000
"""How long the controller may take for a request without a timeout."""
TIMEOUT_MS_MAX = 10 * 60_000


@dataclass(frozen=True, slots=True)
class MetadataAnswer:
    """The outcome of a request. `response` is set if `error` is NONE.

    NOT_CONTROLLER without a message: nothing was done. NOT_CONTROLLER with a message, or
    REQUEST_TIMED_OUT: the request may still be executed.
    """

    error: ErrorCode
    leader: CurrentLeader
    response: Any = None
    message: str = ""


RULES = Rules(
    {
        Endpoint: Form(
            lambda endpoint: f.endpoints_to_wire((endpoint,))[0],
            lambda message: f.endpoints_from_wire((message,))[0],
        ),
        VersionRange: Form(f.range_to_wire, f.range_from_wire),
    }
)


class Method:
    """The conversions of one method's request and response."""

    def __init__(self, rpc: RpcMethod, request_type: type, response_type: type) -> None:
        self.rpc = rpc
        self.name = rpc.name
        self.request_type = request_type
        self.response_type = response_type
        self.request_message: type[Message] = rpc.request
        self.response_message: type[Message] = rpc.response
        self._request: MessageCodec[Any, Any] = MessageCodec(request_type, rpc.request, RULES)
        self._response: MessageCodec[Any, Any] = MessageCodec(response_type, rpc.response, RULES)

    def encode_request(self, request: Any, timeout_ms: int) -> Message:
        message = self._request.encode(request)
        message.timeout_ms = timeout_ms
        return message  # type: ignore[no-any-return]  # of the generic class

    def decode_request(self, message: Any) -> tuple[Any, int]:
        """The request, and how long it may take in milliseconds. Raises ViolationError."""
        timeout_ms = message.timeout_ms if message.HasField("timeout_ms") else TIMEOUT_MS
        if timeout_ms <= 0:
            raise ViolationError(f"timeout_ms is {timeout_ms}")
        return self._request.decode(message), min(timeout_ms, TIMEOUT_MS_MAX)

    def encode_answer(self, answer: MetadataAnswer) -> Message:
        message = self.response_message()
        if isinstance(answer.response, r.Refused):
            refused = answer.response
            answer = MetadataAnswer(refused.error, answer.leader, None, refused.message)
        elif answer.response is not None:
            message = self._response.encode(answer.response)
        message.error_code = f.error_to_wire(answer.error)  # type: ignore[attr-defined]
        message.error_message = answer.message  # type: ignore[attr-defined]
        message.current_leader.CopyFrom(f.leader_to_wire(answer.leader))  # type: ignore[attr-defined]
        return message

    def decode_answer(self, message: Any) -> MetadataAnswer:
        """Decode a response. Raises ViolationError."""
        error, leader, text = f.answer_from_wire(message)
        response = self._response.decode(message) if error is ErrorCode.NONE else None
        return MetadataAnswer(error, leader, response, text)


METHODS: dict[type, Method] = {
    values[0]: Method(rpc, *values)
    for rpc in RPC_METHODS.values()
    if rpc.is_metadata and (values := rpc.values) is not None
}
"""Every method, by its request class."""
