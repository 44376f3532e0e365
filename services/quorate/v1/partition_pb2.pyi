from quorate.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PartitionKey(_message.Message):
    __slots__ = ("topic_id", "index")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    index: int
    def __init__(self, topic_id: _Optional[bytes] = ..., index: _Optional[int] = ...) -> None: ...

class ProduceRequest(_message.Message):
    __slots__ = ("correlation_id", "partition", "records", "acks_all", "timeout_ms")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    ACKS_ALL_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    partition: PartitionKey
    records: bytes
    acks_all: bool
    timeout_ms: int
    def __init__(self, correlation_id: _Optional[int] = ..., partition: _Optional[_Union[PartitionKey, _Mapping]] = ..., records: _Optional[bytes] = ..., acks_all: bool = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class ProduceResponse(_message.Message):
    __slots__ = ("correlation_id", "error_code", "error_message", "base_offset", "leader_id", "leader_epoch")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    error_code: _common_pb2.ErrorCode
    error_message: str
    base_offset: int
    leader_id: int
    leader_epoch: int
    def __init__(self, correlation_id: _Optional[int] = ..., error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., base_offset: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class FetchPosition(_message.Message):
    __slots__ = ("partition", "leader_epoch", "offset", "last_epoch", "max_bytes")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    partition: PartitionKey
    leader_epoch: int
    offset: int
    last_epoch: int
    max_bytes: int
    def __init__(self, partition: _Optional[_Union[PartitionKey, _Mapping]] = ..., leader_epoch: _Optional[int] = ..., offset: _Optional[int] = ..., last_epoch: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class PartitionFetchRequest(_message.Message):
    __slots__ = ("replica_id", "broker_epoch", "max_wait_ms", "max_bytes", "positions", "forgotten")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    replica_id: int
    broker_epoch: int
    max_wait_ms: int
    max_bytes: int
    positions: _containers.RepeatedCompositeFieldContainer[FetchPosition]
    forgotten: _containers.RepeatedCompositeFieldContainer[PartitionKey]
    def __init__(self, replica_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., max_bytes: _Optional[int] = ..., positions: _Optional[_Iterable[_Union[FetchPosition, _Mapping]]] = ..., forgotten: _Optional[_Iterable[_Union[PartitionKey, _Mapping]]] = ...) -> None: ...

class FetchedPartition(_message.Message):
    __slots__ = ("partition", "error_code", "leader_id", "leader_epoch", "high_watermark", "log_start", "log_end", "diverging", "records")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    DIVERGING_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    partition: PartitionKey
    error_code: _common_pb2.ErrorCode
    leader_id: int
    leader_epoch: int
    high_watermark: int
    log_start: int
    log_end: int
    diverging: _common_pb2.OffsetAndEpoch
    records: bytes
    def __init__(self, partition: _Optional[_Union[PartitionKey, _Mapping]] = ..., error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., log_start: _Optional[int] = ..., log_end: _Optional[int] = ..., diverging: _Optional[_Union[_common_pb2.OffsetAndEpoch, _Mapping]] = ..., records: _Optional[bytes] = ...) -> None: ...

class PartitionFetchResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "partitions")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    partitions: _containers.RepeatedCompositeFieldContainer[FetchedPartition]
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[FetchedPartition, _Mapping]]] = ...) -> None: ...

class ListOffsetsRequest(_message.Message):
    __slots__ = ("partition",)
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    partition: PartitionKey
    def __init__(self, partition: _Optional[_Union[PartitionKey, _Mapping]] = ...) -> None: ...

class ListOffsetsResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "log_start", "high_watermark", "log_end", "leader_id", "leader_epoch")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    log_start: int
    high_watermark: int
    log_end: int
    leader_id: int
    leader_epoch: int
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., log_start: _Optional[int] = ..., high_watermark: _Optional[int] = ..., log_end: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class LocateRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class LocatedBroker(_message.Message):
    __slots__ = ("id", "endpoints", "rack", "fenced", "in_controlled_shutdown", "epoch")
    ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    IN_CONTROLLED_SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    id: int
    endpoints: _containers.RepeatedCompositeFieldContainer[_common_pb2.Endpoint]
    rack: str
    fenced: bool
    in_controlled_shutdown: bool
    epoch: int
    def __init__(self, id: _Optional[int] = ..., endpoints: _Optional[_Iterable[_Union[_common_pb2.Endpoint, _Mapping]]] = ..., rack: _Optional[str] = ..., fenced: bool = ..., in_controlled_shutdown: bool = ..., epoch: _Optional[int] = ...) -> None: ...

class LocatedPartition(_message.Message):
    __slots__ = ("index", "leader_id", "leader_epoch", "replicas", "isr")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    index: int
    leader_id: int
    leader_epoch: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    isr: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, index: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., isr: _Optional[_Iterable[int]] = ...) -> None: ...

class LocatedTopic(_message.Message):
    __slots__ = ("error_code", "name", "topic_id", "partitions")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    name: str
    topic_id: bytes
    partitions: _containers.RepeatedCompositeFieldContainer[LocatedPartition]
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., name: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[_Union[LocatedPartition, _Mapping]]] = ...) -> None: ...

class LocateResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "brokers", "topics", "metadata_offset")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    brokers: _containers.RepeatedCompositeFieldContainer[LocatedBroker]
    topics: _containers.RepeatedCompositeFieldContainer[LocatedTopic]
    metadata_offset: int
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., brokers: _Optional[_Iterable[_Union[LocatedBroker, _Mapping]]] = ..., topics: _Optional[_Iterable[_Union[LocatedTopic, _Mapping]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class InitProducerIdRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InitProducerIdResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "producer_id", "producer_epoch")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    producer_id: int
    producer_epoch: int
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ...) -> None: ...
