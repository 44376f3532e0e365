"""The requests and responses of Metadata and BrokerLifecycle, as messages and as values.

The messages mirror the values of `metadata.requests` (see `codec`). Around them: a request may say
how long the controller may take; an answer says whether the controller took the request, and whom
the answering node takes for the active controller.

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
from quorate.rpc.codec import Form, MessageCodec, Rules
from quorate.rpc.methods import RPC_METHODS, RpcMethod

TIMEOUT_MS = 30_000
"""How long the controller may take for a request that does not say."""
TIMEOUT_MS_MAX = 10 * 60_000


@dataclass(frozen=True, slots=True)
class MetadataAnswer:
    """What a request came to. `response` is there if `error` is NONE.

    NOT_CONTROLLER without a message: nothing was done. With one, and with REQUEST_TIMED_OUT, it may
    still be done.
    """

    error: ErrorCode
    leader: CurrentLeader
    response: Any = None
    message: str = ""


def _endpoint_to_wire(endpoint: Endpoint) -> Message:
    return f.endpoints_to_wire((endpoint,))[0]


def _endpoint_from_wire(message: Any) -> Endpoint:
    return f.endpoints_from_wire((message,))[0]


RULES = Rules(
    {
        Endpoint: Form(_endpoint_to_wire, _endpoint_from_wire),
        VersionRange: Form(f.range_to_wire, f.range_from_wire),
    }
)


class Method:
    """How the request and the answer of one method are read and written."""

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
        """The request, and how long it may take. ViolationError."""
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
        """ViolationError."""
        error, leader, text = f.answer_from_wire(message)
        response = self._response.decode(message) if error is ErrorCode.NONE else None
        return MetadataAnswer(error, leader, response, text)


METHODS: dict[type, Method] = {
    values[0]: Method(rpc, *values)
    for rpc in RPC_METHODS.values()
    if rpc.is_metadata and (values := rpc.values) is not None
}
"""Every method, by the class of its requests."""
