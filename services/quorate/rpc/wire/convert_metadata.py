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

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.metadata import requests as r
from quorate.raft.errors import ViolationError
from quorate.raft.messages import CurrentLeader
from quorate.rpc import fields as f
from quorate.rpc.wire.codec import NO_LEADER, Codec, MessageCodec, Rules, TypeConversion
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
        Endpoint: TypeConversion(
            lambda endpoint: f.endpoints_to_wire((endpoint,))[0],
            lambda message: f.endpoints_from_wire((message,))[0],
        ),
        VersionRange: TypeConversion(f.range_to_wire, f.range_from_wire),
    }
)


def _codec(method: RpcMethod, request_type: type, response_type: type) -> Codec:
    requests: MessageCodec[Any, Any] = MessageCodec(request_type, method.request, RULES)
    responses: MessageCodec[Any, Any] = MessageCodec(response_type, method.response, RULES)

    def encode_request(request: Any, timeout_ms: int) -> Message:
        message: Any = requests.encode(request)
        message.timeout_ms = timeout_ms
        return message  # type: ignore[no-any-return]  # of the generic class

    def decode_request(message: Any) -> tuple[Any, int]:
        """The request, and how long it may take in milliseconds. Raises ViolationError."""
        timeout_ms = message.timeout_ms if message.HasField("timeout_ms") else TIMEOUT_MS
        if timeout_ms <= 0:
            raise ViolationError(f"timeout_ms is {timeout_ms}")
        return requests.decode(message), min(timeout_ms, TIMEOUT_MS_MAX)

    def encode_answer(answer: MetadataAnswer) -> Message:
        message: Any = method.response()
        if isinstance(answer.response, r.Refused):
            refused = answer.response
            answer = MetadataAnswer(refused.error, answer.leader, None, refused.message)
        elif answer.response is not None:
            message = responses.encode(answer.response)
        message.error_code = f.error_to_wire(answer.error)
        message.error_message = answer.message
        message.current_leader.CopyFrom(f.leader_to_wire(answer.leader))
        return message  # type: ignore[no-any-return]

    def decode_answer(message: Any) -> MetadataAnswer:
        error, leader, text = f.answer_from_wire(message)
        response = responses.decode(message) if error is ErrorCode.NONE else None
        return MetadataAnswer(error, leader, response, text)

    return Codec(method, encode_request, decode_request, encode_answer, decode_answer, refusal)


def refusal(error: ErrorCode, text: str) -> MetadataAnswer:
    """The answer to a request that failed before the controller got it."""
    return MetadataAnswer(error, NO_LEADER, message=text)


METADATA_CODECS: dict[type, Codec] = {
    values[0]: _codec(method, *values)
    for method in RPC_METHODS.values()
    if method.is_metadata and (values := method.values) is not None
}
"""The codec of every method, by its request class. Requests are encoded with a timeout in
milliseconds, and decoded with the time that they may take; responses are `MetadataAnswer`s.
"""
