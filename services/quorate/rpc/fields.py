"""Converts the parts that messages share.

Rules:
1. Received data is untrusted: ids, epochs and offsets must not be negative, ports must be valid,
   UUIDs must have 16 bytes. Other values raise `ViolationError`, whose text names the field and the
   value.
2. `None` is written as an absent field or an empty UUID. Sixteen zero bytes are also read as
   `None`.
3. An unknown error code becomes UNKNOWN_SERVER_ERROR.
4. Keys, endpoints and leaders are the same in every message, so their encoded form is cached. A
   caller puts it into a message, which copies it, and does not modify it.

Source: KIP-853, "RPCs"; proto/quorate/v1/common.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Protocol

from google.protobuf.message import Message

from quorate.common.endpoints import PORT_MAX, Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import LEVEL_MAX, VersionRange
from quorate.common.identifiers import (
    UUID_BYTES,
    ZERO_UUID,
    DirectoryId,
    uuid_from_bytes,
    uuid_to_bytes,
)
from quorate.raft.errors import MisuseError, ViolationError
from quorate.raft.messages import CurrentLeader
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from quorate.v1 import common_pb2 as pb

ENDPOINTS_MAX = 8
ENDPOINT_CHARS_MAX = 255
"""For an endpoint's name and for its host: a DNS name has at most 253."""
WRITTEN_MAX = 1_024
VOTERS_MAX = 1_024
CACHED_UUIDS_MAX = 1_024

_ERRORS = {int(code): code for code in ErrorCode}


def error_from_wire(number: int) -> ErrorCode:
    return _ERRORS.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)


def error_to_wire(code: ErrorCode) -> pb.ErrorCode:
    return int(code)  # type: ignore[return-value]  # an open enum: a number in memory


def natural(value: int, what: str) -> int:
    """Check that an id, an epoch, an offset or a position is not negative."""
    if value < 0:
        raise ViolationError(f"{what} is {value}, which is negative")
    return value


def required(message: Message, field: str) -> None:
    """Reject a message that lacks a required field."""
    if not message.HasField(field):
        raise ViolationError(f"{message.DESCRIPTOR.name}.{field} is missing")


# --- UUIDs ----------------------------------------------------------------------------------------


@lru_cache(maxsize=CACHED_UUIDS_MAX)
def directory_to_wire(directory_id: DirectoryId | None) -> bytes:
    if directory_id is None or directory_id == ZERO_UUID:
        return b""
    try:
        return uuid_to_bytes(directory_id)
    except ValueError as error:
        raise MisuseError(f"directory id: {error}") from None


@lru_cache(maxsize=CACHED_UUIDS_MAX)
def directory_from_wire(raw: bytes) -> DirectoryId | None:
    if not raw:
        return None
    if len(raw) != UUID_BYTES:
        raise ViolationError(f"a directory id has {UUID_BYTES} bytes, not {len(raw)}")
    text = uuid_from_bytes(raw)
    return None if text == ZERO_UUID else text


# --- replicas -------------------------------------------------------------------------------------


def key_to_wire(key: ReplicaKey) -> pb.ReplicaKey:
    # Not cached by the key itself, whose hash is its id: callers could force collisions.
    return _key_to_wire(key.id, key.directory_id)


@lru_cache(maxsize=WRITTEN_MAX)
def _key_to_wire(replica_id: int, directory_id: DirectoryId | None) -> pb.ReplicaKey:
    return pb.ReplicaKey(id=replica_id, directory_id=directory_to_wire(directory_id))


def key_from_wire(message: pb.ReplicaKey) -> ReplicaKey:
    if message.id < 0:
        raise ViolationError(f"a replica id is {message.id}, which is negative")
    return ReplicaKey(message.id, directory_from_wire(message.directory_id))


@lru_cache(maxsize=WRITTEN_MAX)
def endpoints_to_wire(endpoints: tuple[Endpoint, ...]) -> tuple[pb.Endpoint, ...]:
    return tuple(pb.Endpoint(name=e.name, host=e.host, port=e.port) for e in endpoints)


def endpoints_from_wire(messages: Sequence[pb.Endpoint]) -> tuple[Endpoint, ...]:
    if not messages:  # the usual case, and on the path of each Fetch
        return ()
    endpoints = tuple(Endpoint(m.name, m.host, m.port) for m in messages)
    if len(endpoints) > ENDPOINTS_MAX:
        raise ViolationError(f"{len(endpoints)} endpoints: at most {ENDPOINTS_MAX} are allowed")
    for endpoint in endpoints:
        if len(endpoint.name) > ENDPOINT_CHARS_MAX or len(endpoint.host) > ENDPOINT_CHARS_MAX:
            raise ViolationError(
                f"an endpoint's name has {len(endpoint.name)} characters and its host "
                f"{len(endpoint.host)}: at most {ENDPOINT_CHARS_MAX} are allowed"
            )
        if not 1 <= endpoint.port <= PORT_MAX:
            raise ViolationError(
                f"the port of endpoint {endpoint.name!r} is {endpoint.port}, not 1 to {PORT_MAX}"
            )
        if not endpoint.host:
            raise ViolationError(f"the host of endpoint {endpoint.name!r} is empty")
    return endpoints


def range_to_wire(versions: VersionRange) -> pb.VersionRange:
    return pb.VersionRange(min=versions.min, max=versions.max)


def range_from_wire(message: pb.VersionRange) -> VersionRange:
    if not 0 <= message.min <= message.max <= LEVEL_MAX:
        raise ViolationError(f"{message.min} to {message.max} is not a range of levels")
    return VersionRange(message.min, message.max)


def voter_to_wire(voter: Voter) -> pb.Voter:
    return pb.Voter(
        key=key_to_wire(voter.key),
        endpoints=endpoints_to_wire(voter.endpoints),
        kraft_version=range_to_wire(voter.kraft_version),
    )


def voter_from_wire(message: pb.Voter) -> Voter:
    required(message, "key")
    return Voter(
        key_from_wire(message.key),
        endpoints_from_wire(message.endpoints),
        range_from_wire(message.kraft_version),
    )


def voters_to_wire(voters: Iterable[Voter]) -> list[pb.Voter]:
    return [voter_to_wire(voter) for voter in voters]


def voters_from_wire(messages: Iterable[pb.Voter]) -> tuple[Voter, ...]:
    voters = tuple(voter_from_wire(message) for message in messages)
    if len(voters) > VOTERS_MAX:
        raise ViolationError(f"{len(voters)} voters: at most {VOTERS_MAX} are allowed")
    return voters


def voter_set_from_wire(messages: Iterable[pb.Voter]) -> VoterSet:
    try:
        return VoterSet(voters_from_wire(messages))
    except ValueError as error:
        raise ViolationError(str(error)) from None


# --- positions ------------------------------------------------------------------------------------


def position_to_wire(position: OffsetAndEpoch | None) -> pb.OffsetAndEpoch | None:
    if position is None:
        return None
    return pb.OffsetAndEpoch(offset=position.offset, epoch=position.epoch)


def position_from_wire(message: pb.OffsetAndEpoch, what: str) -> OffsetAndEpoch:
    return OffsetAndEpoch(
        natural(message.offset, f"the offset of {what}"),
        natural(message.epoch, f"the epoch of {what}"),
    )


def known(offset: int) -> int | None:
    """An offset or a time for an optional field: -1 means "unknown" and is not written."""
    return offset if offset >= 0 else None


@lru_cache(maxsize=WRITTEN_MAX)
def leader_to_wire(leader: CurrentLeader) -> pb.CurrentLeader:
    return pb.CurrentLeader(
        epoch=leader.epoch, id=leader.id, endpoints=endpoints_to_wire(leader.endpoints)
    )


def leader_from_wire(message: pb.CurrentLeader) -> CurrentLeader:
    """An absent message is epoch 0 without a leader, which no replica prefers to its own view."""
    leader_id = message.id if message.HasField("id") and message.id >= 0 else None
    return CurrentLeader(
        natural(message.epoch, "the epoch of the current leader"),
        leader_id,
        endpoints_from_wire(message.endpoints),
    )


# --- answers --------------------------------------------------------------------------------------


class ResponseMessage(Protocol):
    """The fields that every response message has."""

    @property
    def error_code(self) -> pb.ErrorCode: ...
    @property
    def error_message(self) -> str: ...
    @property
    def current_leader(self) -> pb.CurrentLeader: ...


class HasHighWatermark(Protocol):
    @property
    def high_watermark(self) -> int: ...


def answer_from_wire(message: ResponseMessage) -> tuple[ErrorCode, CurrentLeader, str]:
    return (
        error_from_wire(message.error_code),
        leader_from_wire(message.current_leader),
        message.error_message,
    )


def high_watermark_from_wire(message: HasHighWatermark) -> int:
    """The high watermark, -1 if it is absent. A present one must not be negative."""
    if not message.HasField("high_watermark"):  # type: ignore[attr-defined]
        return -1
    return natural(message.high_watermark, "the high watermark")
