"""Kafka's requests to brokers in ZooKeeper mode, which kio no longer has, as kio's kind of classes.

Kafka removed them in 4.0. Each is declared in the one version that is sent: the first one that
names a KRaft controller. Field names are those of Kafka's schemas in snake case, types those of
kio; kio encodes and decodes the classes like its own.

Source: KIP-866 "Controller RPCs"; Kafka 3.9's LeaderAndIsr, StopReplica and UpdateMetadata.
"""

# kio reads the types of fields at run time: annotations must not be strings.

import dataclasses
import types
import uuid
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.static.constants import EntityType
from kio.static.primitive import i16

LEADER_AND_ISR: Final = 4
STOP_REPLICA: Final = 5
UPDATE_METADATA: Final = 6

VERSIONS: Final[dict[int, int]] = {LEADER_AND_ISR: 7, STOP_REPLICA: 4, UPDATE_METADATA: 8}
"""The version of each request, by its API key."""

_PYTHON_TYPES: Final[dict[str, Any]] = {
    "bool": bool,
    "int8": int,
    "int16": int,
    "int32": int,
    "int64": int,
    "string": str,
    "uuid": uuid.UUID | None,
    "error_code": ErrorCode,
}

_Field = tuple[str, Any, dataclasses.Field[Any]]


def _value(name: str, kafka_type: str, **metadata: Any) -> _Field:
    default: dict[str, Any] = {"default": 0} if "tag" in metadata else {}
    details = {"kafka_type": kafka_type, **metadata}
    return name, _PYTHON_TYPES[kafka_type], dataclasses.field(metadata=details, **default)


def _int32s(name: str) -> _Field:
    return name, tuple[int, ...], dataclasses.field(metadata={"kafka_type": "int32"})


def _items(name: str, kind: Any) -> _Field:
    return name, tuple[kind, ...], dataclasses.field()


class _Message(types.ModuleType):
    """The classes of one message as attributes, like a module of kio."""

    def __init__(self, name: str, api_key: int, entity_type: EntityType) -> None:
        super().__init__(f"{__name__}.{name}")
        self._api_key = api_key
        self._type = entity_type

    def add(self, name: str, *fields: _Field) -> type:
        """Declare a class: the whole message if it has the message's name, else a part of it."""
        is_request = self._type is EntityType.request
        is_whole = self.__name__.endswith(f".{name}")
        kind = dataclasses.make_dataclass(
            name,
            fields,
            frozen=True,
            slots=True,
            kw_only=True,
            namespace={
                "__type__": self._type if is_whole else EntityType.nested,
                "__version__": i16(VERSIONS[self._api_key]),
                "__flexible__": True,
                "__api_key__": i16(self._api_key),
                "__header_schema__": RequestHeader if is_request else ResponseHeader,
            },
        )
        # `make_dataclass` sets the caller's module from Python 3.12 on.
        kind.__module__ = self.__name__
        setattr(self, name, kind)
        return kind


def _controller() -> tuple[_Field, ...]:
    """The fields with which each request begins: its sender, and the receiver's epoch."""
    return (
        _value("controller_id", "int32"),
        _value("is_k_raft_controller", "bool"),
        _value("controller_epoch", "int32"),
        _value("broker_epoch", "int64"),
    )


def _leader_and_isr() -> tuple[_Message, _Message]:
    request = _Message("LeaderAndIsrRequest", LEADER_AND_ISR, EntityType.request)
    partition = request.add(
        "LeaderAndIsrPartitionState",
        _value("partition_index", "int32"),
        _value("controller_epoch", "int32"),
        _value("leader", "int32"),
        _value("leader_epoch", "int32"),
        _int32s("isr"),
        _value("partition_epoch", "int32"),
        _int32s("replicas"),
        _int32s("adding_replicas"),
        _int32s("removing_replicas"),
        _value("is_new", "bool"),
        _value("leader_recovery_state", "int8"),
    )
    topic = request.add(
        "LeaderAndIsrTopicState",
        _value("topic_name", "string"),
        _value("topic_id", "uuid"),
        _items("partition_states", partition),
    )
    leader = request.add(
        "LeaderAndIsrLiveLeader",
        _value("broker_id", "int32"),
        _value("host_name", "string"),
        _value("port", "int32"),
    )
    request.add(
        "LeaderAndIsrRequest",
        *_controller(),
        _value("type_", "int8"),
        _items("topic_states", topic),
        _items("live_leaders", leader),
    )
    response = _Message("LeaderAndIsrResponse", LEADER_AND_ISR, EntityType.response)
    error = response.add(
        "LeaderAndIsrPartitionError",
        _value("partition_index", "int32"),
        _value("error_code", "error_code"),
    )
    errors = response.add(
        "LeaderAndIsrTopicError", _value("topic_id", "uuid"), _items("partition_errors", error)
    )
    response.add(
        "LeaderAndIsrResponse", _value("error_code", "error_code"), _items("topics", errors)
    )
    return request, response


def _stop_replica() -> tuple[_Message, _Message]:
    request = _Message("StopReplicaRequest", STOP_REPLICA, EntityType.request)
    partition = request.add(
        "StopReplicaPartitionState",
        _value("partition_index", "int32"),
        _value("leader_epoch", "int32"),
        _value("delete_partition", "bool"),
    )
    topic = request.add(
        "StopReplicaTopicState",
        _value("topic_name", "string"),
        _items("partition_states", partition),
    )
    request.add("StopReplicaRequest", *_controller(), _items("topic_states", topic))
    response = _Message("StopReplicaResponse", STOP_REPLICA, EntityType.response)
    error = response.add(
        "StopReplicaPartitionError",
        _value("topic_name", "string"),
        _value("partition_index", "int32"),
        _value("error_code", "error_code"),
    )
    response.add(
        "StopReplicaResponse", _value("error_code", "error_code"), _items("partition_errors", error)
    )
    return request, response


def _update_metadata() -> tuple[_Message, _Message]:
    request = _Message("UpdateMetadataRequest", UPDATE_METADATA, EntityType.request)
    partition = request.add(
        "UpdateMetadataPartitionState",
        _value("partition_index", "int32"),
        _value("controller_epoch", "int32"),
        _value("leader", "int32"),
        _value("leader_epoch", "int32"),
        _int32s("isr"),
        _value("zk_version", "int32"),
        _int32s("replicas"),
        _int32s("offline_replicas"),
    )
    topic = request.add(
        "UpdateMetadataTopicState",
        _value("topic_name", "string"),
        _value("topic_id", "uuid"),
        _items("partition_states", partition),
    )
    endpoint = request.add(
        "UpdateMetadataEndpoint",
        _value("port", "int32"),
        _value("host", "string"),
        _value("listener", "string"),
        _value("security_protocol", "int16"),
    )
    broker = request.add(
        "UpdateMetadataBroker",
        _value("id_", "int32"),
        _items("endpoints", endpoint),
        ("rack", str | None, dataclasses.field(metadata={"kafka_type": "string"})),
    )
    request.add(
        "UpdateMetadataRequest",
        *_controller(),
        _items("topic_states", topic),
        _items("live_brokers", broker),
        _value("type_", "int8", tag=0),
    )
    response = _Message("UpdateMetadataResponse", UPDATE_METADATA, EntityType.response)
    response.add("UpdateMetadataResponse", _value("error_code", "error_code"))
    return request, response


MESSAGES: Final[dict[int, tuple[_Message, _Message]]] = {
    LEADER_AND_ISR: _leader_and_isr(),
    STOP_REPLICA: _stop_replica(),
    UPDATE_METADATA: _update_metadata(),
}
"""By API key: the classes of the request and of the response."""
