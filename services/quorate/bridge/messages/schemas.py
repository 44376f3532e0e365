"""Kafka's messages as bytes and back, in the versions that Kafka 3.9 to 4.3 use.

Rules:
1. Messages are kio's classes, looked up by API key and version. Their fields have the names of
   Kafka's schemas in snake case. `make` builds a message and omits fields that its version lacks.
   Requests in `_READERS` are decoded to Quorate's own values instead, and `Encoded` is a response
   whose body is bytes already.
2. Anything that cannot be decoded raises `BadMessageError`: truncated, unknown or malformed bytes.
   So does a request with more than `items_max` array items, before any object is created from it.
3. Tagged fields that kio does not know are skipped: later releases may add them to a version.
4. As elsewhere in Quorate, UUIDs are text and errors are `ErrorCode`.

Source: Kafka's protocol guide; KIP-482 (flexible versions), KIP-511 (ApiVersions).
"""

from __future__ import annotations

import datetime
import io
import struct
import sys
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from kio.index import load_entity_module, load_payload_module
from kio.schema.errors import ErrorCode as KafkaError
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from quorate.bridge.messages.bounds import TruncatedError, Walk
from quorate.bridge.messages.extensions import EXTENDED
from quorate.bridge.messages.fetch_messages import TOPIC_IDS_SINCE, read_log_fetch
from quorate.bridge.messages.heartbeat_messages import read_heartbeat
from quorate.bridge.messages.isr_messages import read_isr_change
from quorate.bridge.messages.zookeeper_messages import MESSAGES
from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import ZERO_UUID, uuid_from_bytes, uuid_to_bytes
from quorate.rpc.errors import BadMessageError

FETCH: Final = 1
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
DESCRIBE_ACLS: Final = 29
CREATE_ACLS: Final = 30
DELETE_ACLS: Final = 31
DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
SASL_AUTHENTICATE: Final = 36
CREATE_PARTITIONS: Final = 37
CREATE_DELEGATION_TOKEN: Final = 38
RENEW_DELEGATION_TOKEN: Final = 39
EXPIRE_DELEGATION_TOKEN: Final = 40
DESCRIBE_DELEGATION_TOKEN: Final = 41
ELECT_LEADERS: Final = 43
INCREMENTAL_ALTER_CONFIGS: Final = 44
ALTER_PARTITION_REASSIGNMENTS: Final = 45
LIST_PARTITION_REASSIGNMENTS: Final = 46
ALTER_CLIENT_QUOTAS: Final = 49
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = 50
ALTER_USER_SCRAM_CREDENTIALS: Final = 51
VOTE: Final = 52
BEGIN_QUORUM_EPOCH: Final = 53
END_QUORUM_EPOCH: Final = 54
DESCRIBE_QUORUM: Final = 55
ALTER_PARTITION: Final = 56
UPDATE_FEATURES: Final = 57
ENVELOPE: Final = 58
FETCH_SNAPSHOT: Final = 59
DESCRIBE_CLUSTER: Final = 60
BROKER_REGISTRATION: Final = 62
BROKER_HEARTBEAT: Final = 63
UNREGISTER_BROKER: Final = 64
ALLOCATE_PRODUCER_IDS: Final = 67
CONTROLLER_REGISTRATION: Final = 70
ASSIGN_REPLICAS_TO_DIRS: Final = 73
ADD_RAFT_VOTER: Final = 80
REMOVE_RAFT_VOTER: Final = 81
UPDATE_RAFT_VOTER: Final = 82

Served = dict[int, tuple[int, int]]
"""API key to the lowest and highest version that a listener serves."""

SERVED: Final[Served] = {
    FETCH: (4, 18),
    SASL_HANDSHAKE: (0, 1),
    API_VERSIONS: (0, 4),
    CREATE_TOPICS: (2, 7),
    DELETE_TOPICS: (1, 6),
    DESCRIBE_ACLS: (1, 3),
    CREATE_ACLS: (1, 3),
    DELETE_ACLS: (1, 3),
    DESCRIBE_CONFIGS: (1, 4),
    ALTER_CONFIGS: (0, 2),
    SASL_AUTHENTICATE: (0, 2),
    CREATE_PARTITIONS: (0, 3),
    CREATE_DELEGATION_TOKEN: (1, 3),
    RENEW_DELEGATION_TOKEN: (1, 2),
    EXPIRE_DELEGATION_TOKEN: (1, 2),
    DESCRIBE_DELEGATION_TOKEN: (1, 3),
    ELECT_LEADERS: (0, 2),
    INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ALTER_CLIENT_QUOTAS: (0, 1),
    DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    VOTE: (0, 2),
    BEGIN_QUORUM_EPOCH: (0, 1),
    END_QUORUM_EPOCH: (0, 1),
    DESCRIBE_QUORUM: (0, 2),
    ALTER_PARTITION: (2, 3),
    UPDATE_FEATURES: (0, 2),
    ENVELOPE: (0, 0),
    FETCH_SNAPSHOT: (0, 1),
    DESCRIBE_CLUSTER: (0, 2),
    BROKER_REGISTRATION: (0, 4),
    BROKER_HEARTBEAT: (0, 2),
    UNREGISTER_BROKER: (0, 0),
    ALLOCATE_PRODUCER_IDS: (0, 0),
    CONTROLLER_REGISTRATION: (0, 0),
    ASSIGN_REPLICAS_TO_DIRS: (0, 0),
    ADD_RAFT_VOTER: (0, 1),
    REMOVE_RAFT_VOTER: (0, 0),
    UPDATE_RAFT_VOTER: (0, 0),
}
"""The requests that the listener for Kafka's brokers serves."""

VOTERS_APIS: Final = frozenset({VOTE, BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH, UPDATE_RAFT_VOTER})
"""Only voters send these: served if `quorate.peer.protocol` is kafka."""

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_HEADER: Final = struct.Struct(">hhih")
HEAD_BYTES: Final = 8
"""API key, version and correlation id, with which every request begins."""

ITEMS_MAX: Final = 20_000
ISR_ITEMS_MAX: Final = 200_000
"""AlterPartition may contain every partition that a broker leads, about five items each."""
DESCRIBED_ITEMS_MAX: Final = 1_000
"""The response to DescribeConfigs has dozens of configs, with their synonyms, for each item."""

_ITEMS_MAX: Final = {ALTER_PARTITION: ISR_ITEMS_MAX, DESCRIBE_CONFIGS: DESCRIBED_ITEMS_MAX}


_READERS: Final[dict[int, tuple[int, Callable[[Walk, int], Any]]]] = {
    FETCH: (TOPIC_IDS_SINCE, read_log_fetch),
    ALTER_PARTITION: (2, read_isr_change),
    BROKER_HEARTBEAT: (0, read_heartbeat),
}
"""By API key, the requests that become Quorate's own values: since which version, and the reader
(rule 1).
"""


class Call(NamedTuple):
    """A request with its header."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str
    body: Any
    """The object of kio, or the value of `_READERS`. None for a version that is not served, or if
    only the header has been read.
    """


@dataclass(frozen=True, slots=True)
class Encoded:
    """A response whose body is encoded."""

    kind: Any
    """The class of the response in kio."""
    body: bytes
    error_code: int = 0
    """The error of the whole response."""
    has_header: bool = False
    """Whether `body` begins with the response's header, which saves a copy of a large one."""


def items_max(api_key: int) -> int:
    """The most items that the arrays of a request may have in total."""
    return _ITEMS_MAX.get(api_key, ITEMS_MAX)


def read_head(frame: bytes, apis: Served = SERVED) -> Call:
    """Read a request's header without the client id. apis: the served ones.

    Raises BadMessageError if the request is not served. An unknown version of ApiVersions is
    accepted, since it gets a response.
    """
    if len(frame) < HEAD_BYTES:
        raise BadMessageError(f"a truncated request of {len(frame)} bytes")
    api_key = int.from_bytes(frame[0:2], "big", signed=True)
    version = int.from_bytes(frame[2:4], "big", signed=True)
    served = apis.get(api_key)
    if served is None:
        raise BadMessageError(f"a request with API key {api_key}, which is not served here")
    if not is_served(api_key, version, apis) and api_key != API_VERSIONS:
        raise BadMessageError(f"version {version} of API {api_key}: not one of {served}")
    return Call(api_key, version, int.from_bytes(frame[4:8], "big", signed=True), "", None)


def is_served(api_key: int, version: int, apis: Served = SERVED) -> bool:
    low, high = apis[api_key]
    return low <= version <= high


def read_call(frame: bytes, apis: Served = SERVED) -> Call:
    """Decode the request in a frame. apis: the served ones. Raises BadMessageError."""
    head = read_head(frame, apis)
    if not is_served(head.api_key, head.version, apis):
        return head
    kind = request_type(head.api_key, head.version)
    limit = items_max(head.api_key)
    since, reader = _READERS.get(head.api_key, (0, None))
    if reader is None or head.version < since:
        header, body = _read_message(kind, frame, limit)
    else:
        walk = Walk(frame, HEAD_BYTES, limit)
        try:
            client_id = walk.take(max(0, walk.number(2))).decode()
            if kind.__header_schema__.__flexible__:
                walk.skip_tagged()
            return head._replace(client_id=client_id, body=reader(walk, head.version))
        except ValueError as error:
            raise _bad(_name(kind), error) from error
    return head._replace(client_id=header.client_id or "", body=body)


def check_start(start: bytes, apis: Served = SERVED) -> None:
    """Raise BadMessageError if these bytes begin a request that is served, but with too many items
    or against its schema. apis: the served ones.
    """
    api_key = int.from_bytes(start[0:2], "big", signed=True)
    version = int.from_bytes(start[2:4], "big", signed=True)
    if api_key not in apis or not is_served(api_key, version, apis):
        return
    kind = request_type(api_key, version)
    walk = Walk(start, 0, items_max(api_key))
    try:
        walk.over(kind.__header_schema__)
        walk.over(kind)
    except TruncatedError:
        pass  # what is wrong with the rest is found when it has arrived
    except ValueError as error:
        raise BadMessageError(f"{_name(kind)}: {error}") from None


def read_response(api_key: int, version: int, frame: bytes) -> tuple[int, Any]:
    """Decode the correlation id and body of a response. Raises BadMessageError."""
    header, body = _read_message(response_type(api_key, version), frame)
    return header.correlation_id, body


def read_principal(data: bytes) -> tuple[str, bool]:
    """Decode the principal in an envelope: `User:name`, and whether it used a delegation token.

    Raises BadMessageError.
    """
    if data[:2] != b"\0\0":
        raise BadMessageError(f"unsupported version {data[:2].hex()} of a principal")
    (found,) = _read(Walk(data[2:], 0, ITEMS_MAX), (principal_type(),), "a principal")
    return f"{found.type_}:{found.name}", found.token_authenticated


def write_principal(principal: str, *, used_token: bool = False) -> bytes:
    """Encode a principal such as `User:name` for an envelope."""
    kind, _, name = principal.partition(":")
    found = principal_type()(type_=kind, name=name, token_authenticated=used_token)
    return b"\0\0" + write(found)


def write_response(correlation_id: int, body: Any) -> bytes:
    """Encode a response with its header."""
    if not isinstance(body, Encoded):
        return response_header(correlation_id, body) + write(body)
    if body.has_header:
        return body.body
    return response_header(correlation_id, body.kind) + body.body


def response_header(correlation_id: int, kind: Any) -> bytes:
    """Encode the header of a response of kio's class `kind`."""
    header = correlation_id.to_bytes(4, "big", signed=True)
    return header + b"\0" if kind.__header_schema__.__flexible__ else header


def write_header(api_key: int, version: int, correlation_id: int, client_id: str) -> bytes:
    """Encode a request's header, which precedes its body."""
    name = client_id.encode()
    header = _HEADER.pack(api_key, version, correlation_id, len(name)) + name
    flexible = request_type(api_key, version).__header_schema__.__flexible__
    return header + b"\0" if flexible else header


def write(*parts: Any) -> bytes:
    """Encode messages, or parts of one, in order."""
    buffer = io.BytesIO()
    for part in parts:
        if isinstance(part, Encoded):
            buffer.write(part.body)
        else:
            entity_writer(type(part))(buffer, part)
    return buffer.getvalue()


def load(api_key: int) -> None:
    """Load the newest classes of an API with their codecs, which takes 10 ms. The first message
    loads them otherwise.
    """
    version = SERVED[api_key][1]
    for kind in (request_type(api_key, version), response_type(api_key, version)):
        for part in (kind.__header_schema__, kind):
            entity_reader(part)
            entity_writer(part)


def _name(kind: Any) -> str:
    return f"API {kind.__api_key__} version {kind.__version__}"


def _read_message(kind: Any, frame: bytes, items_max: int = sys.maxsize) -> list[Any]:
    """Decode the header and body of a message. Raises BadMessageError.

    items_max: unlimited for responses to this node's own requests.
    """
    return _read(Walk(frame, 0, items_max), (kind.__header_schema__, kind), _name(kind))


def _read(walk: Walk, kinds: tuple[Any, ...], what: str) -> list[Any]:
    """Decode the consecutive values with which the walk's data begins. Raises BadMessageError.

    what: the name of the message in a BadMessageError.
    """
    found, at = [], 0
    try:
        for kind in kinds:
            walk.over(kind)
        known = walk.known
        for kind in kinds:
            part, size = entity_reader(kind)(known, at)
            found.append(part)
            at += size
    except Exception as error:
        raise _bad(what, error) from error
    return found


def _bad(what: str, error: Exception) -> BadMessageError:
    name = type(error).__name__
    return BadMessageError(f"{what}: {name}: {error}" if str(error) else f"{what}: {name}")


# --- classes --------------------------------------------------------------------------------------


@cache
def request_module(api_key: int, version: int) -> Any:
    """The classes of a request, including nested ones."""
    if api_key in MESSAGES:
        return MESSAGES[api_key][0]
    return load_payload_module(api_key, version, EntityType.request)


@cache
def response_module(api_key: int, version: int) -> Any:
    """The classes of a response, including nested ones."""
    if api_key in MESSAGES:
        return MESSAGES[api_key][1]
    return load_payload_module(api_key, version, EntityType.response)


def request_type(api_key: int, version: int) -> Any:
    return _main(request_module(api_key, version))


def response_type(api_key: int, version: int) -> Any:
    return _main(response_module(api_key, version))


@cache
def principal_type() -> Any:
    """The class of the principal in an envelope, which follows two bytes of version."""
    return load_entity_module("default_principal_data", 0, EntityType.data).DefaultPrincipalData


@cache
def _main(module: Any) -> Any:
    """The class of the whole message: the only one in its module that is not nested. Quorate's own
    class if it has one (`extensions`).
    """
    (found,) = (
        each
        for each in vars(module).values()
        if getattr(each, "__type__", None) in (EntityType.request, EntityType.response)
        and each.__module__ == module.__name__
    )
    return EXTENDED.get(found, found)


def make(kind: Any, **fields: Any) -> Any:
    """Build a message or part of one, without the fields that its version lacks."""
    known = kind.__dataclass_fields__
    return kind(**{name: value for name, value in fields.items() if name in known})


def answer(module: Any, **fields: Any) -> Any:
    """Build a response with `make`. Its throttle time is always 0."""
    return make(_main(module), throttle_time=milliseconds(), **fields)


# --- fields ---------------------------------------------------------------------------------------


@cache
def error_field(error: ErrorCode) -> KafkaError:
    return KafkaError(int(error))


def code_field(code: int) -> KafkaError:
    """A code of Kafka's, also one that Quorate has no name for."""
    return KafkaError(code)


def error_fields(error: ErrorCode, message: str = "") -> dict[str, Any]:
    """The two error fields of a message or part of one."""
    return {"error_code": error_field(error), "error_message": message or None}


def outcome(part: Any) -> dict[str, Any]:
    """The two error fields for a response, or part of one, of `metadata.requests`."""
    return error_fields(part.error, part.message)


def spoken(part: Any) -> dict[str, Any]:
    """The same where Kafka's success has an empty text rather than none."""
    return {"error_code": error_field(part.error), "error_message": part.message}


@cache
def milliseconds(count: int = 0) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=count)


def moment(count_ms: int) -> datetime.datetime:
    """A time in milliseconds since 1970, as kio represents it."""
    return _EPOCH + datetime.timedelta(milliseconds=count_ms)


def uuid_field(text: str) -> uuid.UUID | None:
    """A UUID as kio represents it. None stands for the zero UUID."""
    return None if text == ZERO_UUID or not text else uuid.UUID(bytes=uuid_to_bytes(text))


def uuid_texts(values: Iterable[uuid.UUID | None]) -> tuple[str, ...]:
    return tuple(map(uuid_text, values))


def uuid_text(value: uuid.UUID | None) -> str:
    return ZERO_UUID if value is None else uuid_from_bytes(value.bytes)
