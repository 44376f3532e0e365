"""How a client opens a connection for appends in frames.

It begins like a request of Kafka's protocol that no server knows, because the listener for Kafka's
nodes serves both.

Source: proto/quorate/v1/quorum.proto, OpenFramesRequest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from quorate.common.error_codes import ErrorCode
from quorate.raft.errors import ViolationError
from quorate.rpc.fields import error_from_wire, error_to_wire
from quorate.v1 import quorum_pb2

OPENING: Final = b"\xff\xf0\x00\x00"
"""The API key -16 in version 0."""
OPENING_BYTES_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class FramesOpened:
    """The node's answer to the first frame. cluster_id, node_id: its own."""

    error: ErrorCode
    message: str = ""
    cluster_id: str = ""
    node_id: int = -1


def is_opening(frame: bytes) -> bool:
    """Whether this frame opens a connection for appends."""
    return frame.startswith(OPENING)


def encode_opening(cluster_id: str) -> bytes:
    """The first frame of a client of that cluster, which may be empty."""
    return OPENING + quorum_pb2.OpenFramesRequest(cluster_id=cluster_id).SerializeToString()


def decode_opening(frame: bytes) -> str:
    """The cluster id in a client's first frame. Raises ViolationError."""
    if len(frame) > OPENING_BYTES_MAX:
        raise ViolationError(
            f"{len(frame)} bytes to open a connection, at most {OPENING_BYTES_MAX}"
        )
    try:
        return quorum_pb2.OpenFramesRequest.FromString(frame[len(OPENING) :]).cluster_id
    except DecodeError as error:
        raise ViolationError(f"OpenFramesRequest: {error}") from None


def encode_opened(opened: FramesOpened) -> bytes:
    return quorum_pb2.FramesOpened(
        error_code=error_to_wire(opened.error),
        error_message=opened.message,
        cluster_id=opened.cluster_id,
        node_id=opened.node_id,
    ).SerializeToString()


def decode_opened(frame: bytes) -> FramesOpened:
    """The node's answer. Raises ViolationError."""
    try:
        message = quorum_pb2.FramesOpened.FromString(frame)
    except DecodeError as error:
        raise ViolationError(f"FramesOpened: {error}") from None
    error_code = error_from_wire(message.error_code)
    return FramesOpened(error_code, message.error_message, message.cluster_id, message.node_id)
