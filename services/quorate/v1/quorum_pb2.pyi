from quorate.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UpgradeType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UPGRADE_TYPE_UNSPECIFIED: _ClassVar[UpgradeType]
    UPGRADE: _ClassVar[UpgradeType]
    SAFE_DOWNGRADE: _ClassVar[UpgradeType]
    UNSAFE_DOWNGRADE: _ClassVar[UpgradeType]

class FormatMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FORMAT_MODE_UNSPECIFIED: _ClassVar[FormatMode]
    STANDALONE: _ClassVar[FormatMode]
    INITIAL_CONTROLLERS: _ClassVar[FormatMode]
    NO_INITIAL_CONTROLLERS: _ClassVar[FormatMode]
UPGRADE_TYPE_UNSPECIFIED: UpgradeType
UPGRADE: UpgradeType
SAFE_DOWNGRADE: UpgradeType
UNSAFE_DOWNGRADE: UpgradeType
FORMAT_MODE_UNSPECIFIED: FormatMode
STANDALONE: FormatMode
INITIAL_CONTROLLERS: FormatMode
NO_INITIAL_CONTROLLERS: FormatMode

class DescribeQuorumRequest(_message.Message):
    __slots__ = ("cluster_id",)
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    def __init__(self, cluster_id: _Optional[str] = ...) -> None: ...

class ReplicaState(_message.Message):
    __slots__ = ("replica", "log_end_offset", "last_fetch_timestamp_ms", "last_caught_up_timestamp_ms", "endpoints")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_FETCH_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_CAUGHT_UP_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    replica: _common_pb2.ReplicaKey
    log_end_offset: int
    last_fetch_timestamp_ms: int
    last_caught_up_timestamp_ms: int
    endpoints: _containers.RepeatedCompositeFieldContainer[_common_pb2.Endpoint]
    def __init__(self, replica: _Optional[_Union[_common_pb2.ReplicaKey, _Mapping]] = ..., log_end_offset: _Optional[int] = ..., last_fetch_timestamp_ms: _Optional[int] = ..., last_caught_up_timestamp_ms: _Optional[int] = ..., endpoints: _Optional[_Iterable[_Union[_common_pb2.Endpoint, _Mapping]]] = ...) -> None: ...

class DescribeQuorumResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "current_leader", "high_watermark", "kraft_version", "voters", "observers", "voter_set", "committed_voters")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    KRAFT_VERSION_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    OBSERVERS_FIELD_NUMBER: _ClassVar[int]
    VOTER_SET_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_VOTERS_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    current_leader: _common_pb2.CurrentLeader
    high_watermark: int
    kraft_version: int
    voters: _containers.RepeatedCompositeFieldContainer[ReplicaState]
    observers: _containers.RepeatedCompositeFieldContainer[ReplicaState]
    voter_set: _containers.RepeatedCompositeFieldContainer[_common_pb2.Voter]
    committed_voters: _containers.RepeatedCompositeFieldContainer[_common_pb2.Voter]
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., current_leader: _Optional[_Union[_common_pb2.CurrentLeader, _Mapping]] = ..., high_watermark: _Optional[int] = ..., kraft_version: _Optional[int] = ..., voters: _Optional[_Iterable[_Union[ReplicaState, _Mapping]]] = ..., observers: _Optional[_Iterable[_Union[ReplicaState, _Mapping]]] = ..., voter_set: _Optional[_Iterable[_Union[_common_pb2.Voter, _Mapping]]] = ..., committed_voters: _Optional[_Iterable[_Union[_common_pb2.Voter, _Mapping]]] = ...) -> None: ...

class AddVoterRequest(_message.Message):
    __slots__ = ("cluster_id", "voter", "endpoints", "timeout_ms", "ack_when_committed")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    ACK_WHEN_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    voter: _common_pb2.ReplicaKey
    endpoints: _containers.RepeatedCompositeFieldContainer[_common_pb2.Endpoint]
    timeout_ms: int
    ack_when_committed: bool
    def __init__(self, cluster_id: _Optional[str] = ..., voter: _Optional[_Union[_common_pb2.ReplicaKey, _Mapping]] = ..., endpoints: _Optional[_Iterable[_Union[_common_pb2.Endpoint, _Mapping]]] = ..., timeout_ms: _Optional[int] = ..., ack_when_committed: bool = ...) -> None: ...

class AddVoterResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "current_leader")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    current_leader: _common_pb2.CurrentLeader
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., current_leader: _Optional[_Union[_common_pb2.CurrentLeader, _Mapping]] = ...) -> None: ...

class RemoveVoterRequest(_message.Message):
    __slots__ = ("cluster_id", "voter", "timeout_ms", "force")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    voter: _common_pb2.ReplicaKey
    timeout_ms: int
    force: bool
    def __init__(self, cluster_id: _Optional[str] = ..., voter: _Optional[_Union[_common_pb2.ReplicaKey, _Mapping]] = ..., timeout_ms: _Optional[int] = ..., force: bool = ...) -> None: ...

class RemoveVoterResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "current_leader")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    current_leader: _common_pb2.CurrentLeader
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., current_leader: _Optional[_Union[_common_pb2.CurrentLeader, _Mapping]] = ...) -> None: ...

class TransferLeadershipRequest(_message.Message):
    __slots__ = ("cluster_id", "target", "timeout_ms")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    target: _common_pb2.ReplicaKey
    timeout_ms: int
    def __init__(self, cluster_id: _Optional[str] = ..., target: _Optional[_Union[_common_pb2.ReplicaKey, _Mapping]] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class TransferLeadershipResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "current_leader")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    current_leader: _common_pb2.CurrentLeader
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., current_leader: _Optional[_Union[_common_pb2.CurrentLeader, _Mapping]] = ...) -> None: ...

class DescribeFeaturesRequest(_message.Message):
    __slots__ = ("cluster_id",)
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    def __init__(self, cluster_id: _Optional[str] = ...) -> None: ...

class Feature(_message.Message):
    __slots__ = ("name", "supported", "finalized_level")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUPPORTED_FIELD_NUMBER: _ClassVar[int]
    FINALIZED_LEVEL_FIELD_NUMBER: _ClassVar[int]
    name: str
    supported: _common_pb2.VersionRange
    finalized_level: int
    def __init__(self, name: _Optional[str] = ..., supported: _Optional[_Union[_common_pb2.VersionRange, _Mapping]] = ..., finalized_level: _Optional[int] = ...) -> None: ...

class DescribeFeaturesResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "current_leader", "features", "finalized_features_epoch")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    FINALIZED_FEATURES_EPOCH_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    current_leader: _common_pb2.CurrentLeader
    features: _containers.RepeatedCompositeFieldContainer[Feature]
    finalized_features_epoch: int
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., current_leader: _Optional[_Union[_common_pb2.CurrentLeader, _Mapping]] = ..., features: _Optional[_Iterable[_Union[Feature, _Mapping]]] = ..., finalized_features_epoch: _Optional[int] = ...) -> None: ...

class UpdateFeaturesRequest(_message.Message):
    __slots__ = ("cluster_id", "feature", "level", "upgrade_type", "validate_only", "timeout_ms")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    FEATURE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    UPGRADE_TYPE_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    feature: str
    level: int
    upgrade_type: UpgradeType
    validate_only: bool
    timeout_ms: int
    def __init__(self, cluster_id: _Optional[str] = ..., feature: _Optional[str] = ..., level: _Optional[int] = ..., upgrade_type: _Optional[_Union[UpgradeType, str]] = ..., validate_only: bool = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class UpdateFeaturesResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "current_leader")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    current_leader: _common_pb2.CurrentLeader
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., current_leader: _Optional[_Union[_common_pb2.CurrentLeader, _Mapping]] = ...) -> None: ...

class FormatRequest(_message.Message):
    __slots__ = ("cluster_id", "mode", "initial_controllers", "directory_id")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    INITIAL_CONTROLLERS_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    mode: FormatMode
    initial_controllers: _containers.RepeatedCompositeFieldContainer[_common_pb2.Voter]
    directory_id: bytes
    def __init__(self, cluster_id: _Optional[str] = ..., mode: _Optional[_Union[FormatMode, str]] = ..., initial_controllers: _Optional[_Iterable[_Union[_common_pb2.Voter, _Mapping]]] = ..., directory_id: _Optional[bytes] = ...) -> None: ...

class FormatResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "cluster_id", "directory_id")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    cluster_id: str
    directory_id: bytes
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., cluster_id: _Optional[str] = ..., directory_id: _Optional[bytes] = ...) -> None: ...

class NodeStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NodeStatusResponse(_message.Message):
    __slots__ = ("node_id", "cluster_id", "directory_id", "formatted", "state", "epoch", "leader_id", "high_watermark", "log_end_offset", "log_start_offset", "is_voter", "ready", "version", "pid", "frames_port")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    FORMATTED_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    IS_VOTER_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    FRAMES_PORT_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    cluster_id: str
    directory_id: bytes
    formatted: bool
    state: str
    epoch: int
    leader_id: int
    high_watermark: int
    log_end_offset: int
    log_start_offset: int
    is_voter: bool
    ready: bool
    version: str
    pid: int
    frames_port: int
    def __init__(self, node_id: _Optional[int] = ..., cluster_id: _Optional[str] = ..., directory_id: _Optional[bytes] = ..., formatted: bool = ..., state: _Optional[str] = ..., epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., high_watermark: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., is_voter: bool = ..., ready: bool = ..., version: _Optional[str] = ..., pid: _Optional[int] = ..., frames_port: _Optional[int] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...

class PackedRecords(_message.Message):
    __slots__ = ("keys", "key_sizes", "values", "value_sizes")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    KEY_SIZES_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    VALUE_SIZES_FIELD_NUMBER: _ClassVar[int]
    keys: bytes
    key_sizes: _containers.RepeatedScalarFieldContainer[int]
    values: bytes
    value_sizes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, keys: _Optional[bytes] = ..., key_sizes: _Optional[_Iterable[int]] = ..., values: _Optional[bytes] = ..., value_sizes: _Optional[_Iterable[int]] = ...) -> None: ...

class KeyOffset(_message.Message):
    __slots__ = ("key", "offset")
    KEY_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    offset: int
    def __init__(self, key: _Optional[bytes] = ..., offset: _Optional[int] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("correlation_id", "records", "timeout_ms", "trace_parent", "packed", "expected_last_offset", "expected_key_offsets", "checked", "producer_id", "producer_epoch", "base_sequence")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    TRACE_PARENT_FIELD_NUMBER: _ClassVar[int]
    PACKED_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_KEY_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    CHECKED_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BASE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    records: _containers.RepeatedCompositeFieldContainer[Record]
    timeout_ms: int
    trace_parent: str
    packed: PackedRecords
    expected_last_offset: int
    expected_key_offsets: _containers.RepeatedCompositeFieldContainer[KeyOffset]
    checked: PackedRecords
    producer_id: int
    producer_epoch: int
    base_sequence: int
    def __init__(self, correlation_id: _Optional[int] = ..., records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ..., timeout_ms: _Optional[int] = ..., trace_parent: _Optional[str] = ..., packed: _Optional[_Union[PackedRecords, _Mapping]] = ..., expected_last_offset: _Optional[int] = ..., expected_key_offsets: _Optional[_Iterable[_Union[KeyOffset, _Mapping]]] = ..., checked: _Optional[_Union[PackedRecords, _Mapping]] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., base_sequence: _Optional[int] = ...) -> None: ...

class OpenFramesRequest(_message.Message):
    __slots__ = ("cluster_id",)
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    def __init__(self, cluster_id: _Optional[str] = ...) -> None: ...

class FramesOpened(_message.Message):
    __slots__ = ("error_code", "error_message", "cluster_id", "node_id")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    cluster_id: str
    node_id: int
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., cluster_id: _Optional[str] = ..., node_id: _Optional[int] = ...) -> None: ...

class AppendResponse(_message.Message):
    __slots__ = ("correlation_id", "error_code", "error_message", "base_offset", "epoch", "current_leader", "last_offset", "key_offsets")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    KEY_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    error_code: _common_pb2.ErrorCode
    error_message: str
    base_offset: int
    epoch: int
    current_leader: _common_pb2.CurrentLeader
    last_offset: int
    key_offsets: _containers.RepeatedCompositeFieldContainer[KeyOffset]
    def __init__(self, correlation_id: _Optional[int] = ..., error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., base_offset: _Optional[int] = ..., epoch: _Optional[int] = ..., current_leader: _Optional[_Union[_common_pb2.CurrentLeader, _Mapping]] = ..., last_offset: _Optional[int] = ..., key_offsets: _Optional[_Iterable[_Union[KeyOffset, _Mapping]]] = ...) -> None: ...

class OpenProducerRequest(_message.Message):
    __slots__ = ("cluster_id", "expiration_ms", "timeout_ms")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    EXPIRATION_MS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    expiration_ms: int
    timeout_ms: int
    def __init__(self, cluster_id: _Optional[str] = ..., expiration_ms: _Optional[int] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class OpenProducerResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "current_leader", "producer_id", "producer_epoch")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    current_leader: _common_pb2.CurrentLeader
    producer_id: int
    producer_epoch: int
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., current_leader: _Optional[_Union[_common_pb2.CurrentLeader, _Mapping]] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("from_offset", "max_records", "linearizable", "include_control", "timeout_ms", "follow")
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_RECORDS_FIELD_NUMBER: _ClassVar[int]
    LINEARIZABLE_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_CONTROL_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    from_offset: int
    max_records: int
    linearizable: bool
    include_control: bool
    timeout_ms: int
    follow: bool
    def __init__(self, from_offset: _Optional[int] = ..., max_records: _Optional[int] = ..., linearizable: bool = ..., include_control: bool = ..., timeout_ms: _Optional[int] = ..., follow: bool = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "current_leader", "high_watermark", "read_offset", "log_start_offset", "snapshot_id", "records", "last", "next_offset")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    READ_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    current_leader: _common_pb2.CurrentLeader
    high_watermark: int
    read_offset: int
    log_start_offset: int
    snapshot_id: _common_pb2.OffsetAndEpoch
    records: bytes
    last: bool
    next_offset: int
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., current_leader: _Optional[_Union[_common_pb2.CurrentLeader, _Mapping]] = ..., high_watermark: _Optional[int] = ..., read_offset: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., snapshot_id: _Optional[_Union[_common_pb2.OffsetAndEpoch, _Mapping]] = ..., records: _Optional[bytes] = ..., last: bool = ..., next_offset: _Optional[int] = ...) -> None: ...
