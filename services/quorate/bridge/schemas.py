"""Kafka's messages as bytes and back, in the versions that brokers of Kafka 3.9 speak.

Rules:
1. Messages are kio's classes, got by API key and version: their fields have the names of Kafka's
   schemas in snake case. `make` builds one and leaves out what a version has no field for.
2. Whatever does not decode is a `BadMessageError`, be it short, unknown or nonsense, and so is a
   request with more items in its arrays than `items_max` says, before an object is made of it.
3. UUIDs are text here as everywhere in Quorate, and errors are `ErrorCode`.

Source: Kafka's protocol guide; KIP-482 (flexible versions), KIP-511 (ApiVersions).
"""

from __future__ import annotations

import datetime
import io
import uuid
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from kio.index import load_entity_module, load_payload_module
from kio.schema.errors import ErrorCode as KafkaError
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from quorate.bridge.bounds import check_items
from quorate.raft.errors import ErrorCode
from quorate.raft.types import ZERO_UUID
from quorate.records.primitives import uuid_from_bytes, uuid_to_bytes

FETCH: Final = 1
LEADER_AND_ISR: Final = 4
STOP_REPLICA: Final = 5
UPDATE_METADATA: Final = 6
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
CREATE_ACLS: Final = 30
DELETE_ACLS: Final = 31
CREATE_PARTITIONS: Final = 37
ELECT_LEADERS: Final = 43
INCREMENTAL_ALTER_CONFIGS: Final = 44
ALTER_PARTITION_REASSIGNMENTS: Final = 45
LIST_PARTITION_REASSIGNMENTS: Final = 46
ALTER_CLIENT_QUOTAS: Final = 49
ALTER_USER_SCRAM_CREDENTIALS: Final = 51
DESCRIBE_QUORUM: Final = 55
ALTER_PARTITION: Final = 56
UPDATE_FEATURES: Final = 57
ENVELOPE: Final = 58
FETCH_SNAPSHOT: Final = 59
BROKER_REGISTRATION: Final = 62
BROKER_HEARTBEAT: Final = 63
UNREGISTER_BROKER: Final = 64
ALLOCATE_PRODUCER_IDS: Final = 67
ASSIGN_REPLICAS_TO_DIRS: Final = 73

SERVED: Final[dict[int, tuple[int, int]]] = {
    FETCH: (17, 17),
    API_VERSIONS: (0, 4),
    CREATE_TOPICS: (2, 7),
    DELETE_TOPICS: (1, 6),
    CREATE_ACLS: (1, 3),
    DELETE_ACLS: (1, 3),
    CREATE_PARTITIONS: (0, 3),
    ELECT_LEADERS: (0, 2),
    INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ALTER_PARTITION_REASSIGNMENTS: (0, 0),
    LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ALTER_CLIENT_QUOTAS: (0, 1),
    ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    DESCRIBE_QUORUM: (0, 2),
    ALTER_PARTITION: (3, 3),
    UPDATE_FEATURES: (0, 1),
    ENVELOPE: (0, 0),
    FETCH_SNAPSHOT: (1, 1),
    BROKER_REGISTRATION: (4, 4),
    BROKER_HEARTBEAT: (1, 1),
    UNREGISTER_BROKER: (0, 0),
    ALLOCATE_PRODUCER_IDS: (0, 0),
    ASSIGN_REPLICAS_TO_DIRS: (0, 0),
}
"""What a controller of the bridge answers: API key to its lowest and highest version."""

ITEMS_MAX: Final = 20_000
ISR_ITEMS_MAX: Final = 200_000
"""AlterPartition tells of every partition that a broker leads, about five items each."""

SENT: Final[dict[int, int]] = {LEADER_AND_ISR: 7, STOP_REPLICA: 4, UPDATE_METADATA: 8}
"""What it sends to brokers, and in which version: the first that names a KRaft controller."""


class BadMessageError(Exception):
    """Bytes that are no message of those served here."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request with its header. body: kio's; None for a version that is not served, and where
    only the header has been read.
    """

    api_key: int
    version: int
    correlation_id: int
    client_id: str
    body: Any


def items_max(api_key: int) -> int:
    """How many items the arrays of a request may have together."""
    return ISR_ITEMS_MAX if api_key == ALTER_PARTITION else ITEMS_MAX


def read_head(frame: bytes) -> Call:
    """A request without its body and the client's id. BadMessageError where it is not served; an
    unknown version of ApiVersions is.
    """
    if len(frame) < 8:
        raise BadMessageError(f"a request of {len(frame)} bytes")
    api_key = int.from_bytes(frame[0:2], "big", signed=True)
    version = int.from_bytes(frame[2:4], "big", signed=True)
    served = SERVED.get(api_key)
    if served is None:
        raise BadMessageError(f"a request with API key {api_key}, which is not served here")
    if not is_served(api_key, version) and api_key != API_VERSIONS:
        raise BadMessageError(f"version {version} of API {api_key}: not one of {served}")
    return Call(api_key, version, int.from_bytes(frame[4:8], "big", signed=True), "", None)


def is_served(api_key: int, version: int) -> bool:
    low, high = SERVED[api_key]
    return low <= version <= high


def read_call(frame: bytes) -> Call:
    """A request as it came in a frame. BadMessageError."""
    head = read_head(frame)
    if not is_served(head.api_key, head.version):
        return head
    kind = request_type(head.api_key, head.version)
    header, body = _read_message(kind, frame, items_max(head.api_key))
    return replace(head, client_id=header.client_id or "", body=body)


def read_response(api_key: int, version: int, frame: bytes) -> tuple[int, Any]:
    """The correlation id and body of a response. BadMessageError."""
    header, body = _read_message(response_type(api_key, version), frame)
    return header.correlation_id, body


def read_principal(data: bytes) -> str:
    """The principal in an envelope, as Kafka writes it: `User:name`. BadMessageError."""
    if data[:2] != b"\0\0":
        raise BadMessageError(f"a principal of version {data[:2].hex()}")
    (found,), _ = _read(data, 2, (principal_type(),), "a principal")
    return f"{found.type_}:{found.name}"


def write_response(correlation_id: int, body: Any) -> bytes:
    """A response with its header."""
    return write(body.__header_schema__(correlation_id=correlation_id), body)


def write_header(api_key: int, version: int, correlation_id: int, client_id: str) -> bytes:
    """A request's header, to stand before its body."""
    header = request_type(api_key, version).__header_schema__(
        request_api_key=api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return write(header)


def write(*parts: Any) -> bytes:
    """Messages, or parts of one, one after the other."""
    buffer = io.BytesIO()
    for part in parts:
        entity_writer(type(part))(buffer, part)
    return buffer.getvalue()


def _read_message(kind: Any, frame: bytes, items_max: int | None = None) -> list[Any]:
    """The header and body of a message of this class. items_max: None for what this node has asked
    for. BadMessageError.
    """
    what = f"API {kind.__api_key__} version {kind.__version__}"
    (header,), at = _read(frame, 0, (kind.__header_schema__,), what)
    if items_max is not None:
        try:
            check_items(kind, frame, at, items_max)
        except ValueError as error:
            raise BadMessageError(f"{what}: {error}") from None
    (body,), _ = _read(frame, at, (kind,), what)
    return [header, body]


def _read(data: bytes, at: int, kinds: tuple[Any, ...], what: str) -> tuple[list[Any], int]:
    """What stands there, one after the other, and where it ends. BadMessageError, which says `what`
    it was to be.
    """
    found = []
    try:
        for kind in kinds:
            part, size = entity_reader(kind)(data, at)
            found.append(part)
            at += size
    except Exception as error:
        raise BadMessageError(f"{what}: {_reason(error)}") from error
    return found, at


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


# --- classes --------------------------------------------------------------------------------------


@cache
def request_module(api_key: int, version: int) -> Any:
    """The classes of a request, the nested ones too."""
    return load_payload_module(api_key, version, EntityType.request)


@cache
def response_module(api_key: int, version: int) -> Any:
    """The classes of a response, the nested ones too."""
    return load_payload_module(api_key, version, EntityType.response)


def request_type(api_key: int, version: int) -> Any:
    return _main(request_module(api_key, version))


def response_type(api_key: int, version: int) -> Any:
    return _main(response_module(api_key, version))


@cache
def principal_type() -> Any:
    """The principal of an envelope, behind its version."""
    return load_entity_module("default_principal_data", 0, EntityType.data).DefaultPrincipalData


@cache
def _main(module: Any) -> Any:
    """The class of the whole message: the one of its module that is not nested."""
    (found,) = (
        each
        for each in vars(module).values()
        if getattr(each, "__type__", None) in (EntityType.request, EntityType.response)
        and each.__module__ == module.__name__
    )
    return found


def make(kind: Any, **fields: Any) -> Any:
    """A message or part of one, without the fields that its version does not have."""
    known = kind.__dataclass_fields__
    return kind(**{name: value for name, value in fields.items() if name in known})


def answer(module: Any, **fields: Any) -> Any:
    """The response of these classes, as `make` makes it; nobody is throttled."""
    return make(_main(module), throttle_time=milliseconds(), **fields)


# --- fields ---------------------------------------------------------------------------------------


@cache
def error_field(error: ErrorCode) -> KafkaError:
    return KafkaError(int(error))


def error_fields(error: ErrorCode, message: str = "") -> dict[str, Any]:
    """Both fields that say what came of something."""
    return {"error_code": error_field(error), "error_message": message or None}


def outcome(part: Any) -> dict[str, Any]:
    """The same of a response or part of one in Quorate's form."""
    return error_fields(part.error, part.message)


@cache
def milliseconds(count: int = 0) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=count)


def uuid_field(text: str) -> uuid.UUID | None:
    """None is how kio spells the zero UUID."""
    return None if text == ZERO_UUID or not text else uuid.UUID(bytes=uuid_to_bytes(text))


def uuid_text(value: uuid.UUID | None) -> str:
    return ZERO_UUID if value is None else uuid_from_bytes(value.bytes)
