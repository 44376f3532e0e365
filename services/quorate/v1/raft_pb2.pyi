from quorate.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class VoteRequest(_message.Message):
    __slots__ = ("cluster_id", "epoch", "candidate", "voter", "last_epoch", "last_offset", "pre_vote")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    LAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    epoch: int
    candidate: _common_pb2.ReplicaKey
    voter: _common_pb2.ReplicaKey
    last_epoch: int
    last_offset: int
    pre_vote: bool
    def __init__(self, cluster_id: _Optional[str] = ..., epoch: _Optional[int] = ..., candidate: _Optional[_Union[_common_pb2.ReplicaKey, _Mapping]] = ..., voter: _Optional[_Union[_common_pb2.ReplicaKey, _Mapping]] = ..., last_epoch: _Optional[int] = ..., last_offset: _Optional[int] = ..., pre_vote: bool = ...) -> None: ...

class VoteResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "current_leader", "vote_granted", "granted_if_all")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    VOTE_GRANTED_FIELD_NUMBER: _ClassVar[int]
    GRANTED_IF_ALL_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    current_leader: _common_pb2.CurrentLeader
    vote_granted: bool
    granted_if_all: bool
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., current_leader: _Optional[_Union[_common_pb2.CurrentLeader, _Mapping]] = ..., vote_granted: bool = ..., granted_if_all: bool = ...) -> None: ...

class BeginQuorumEpochRequest(_message.Message):
    __slots__ = ("cluster_id", "epoch", "leader", "leader_endpoints", "voter")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    epoch: int
    leader: _common_pb2.ReplicaKey
    leader_endpoints: _containers.RepeatedCompositeFieldContainer[_common_pb2.Endpoint]
    voter: _common_pb2.ReplicaKey
    def __init__(self, cluster_id: _Optional[str] = ..., epoch: _Optional[int] = ..., leader: _Optional[_Union[_common_pb2.ReplicaKey, _Mapping]] = ..., leader_endpoints: _Optional[_Iterable[_Union[_common_pb2.Endpoint, _Mapping]]] = ..., voter: _Optional[_Union[_common_pb2.ReplicaKey, _Mapping]] = ...) -> None: ...

class BeginQuorumEpochResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "current_leader")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    current_leader: _common_pb2.CurrentLeader
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., current_leader: _Optional[_Union[_common_pb2.CurrentLeader, _Mapping]] = ...) -> None: ...

class EndQuorumEpochRequest(_message.Message):
    __slots__ = ("cluster_id", "epoch", "leader", "preferred_candidates", "leader_endpoints")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    epoch: int
    leader: _common_pb2.ReplicaKey
    preferred_candidates: _containers.RepeatedCompositeFieldContainer[_common_pb2.ReplicaKey]
    leader_endpoints: _containers.RepeatedCompositeFieldContainer[_common_pb2.Endpoint]
    def __init__(self, cluster_id: _Optional[str] = ..., epoch: _Optional[int] = ..., leader: _Optional[_Union[_common_pb2.ReplicaKey, _Mapping]] = ..., preferred_candidates: _Optional[_Iterable[_Union[_common_pb2.ReplicaKey, _Mapping]]] = ..., leader_endpoints: _Optional[_Iterable[_Union[_common_pb2.Endpoint, _Mapping]]] = ...) -> None: ...

class EndQuorumEpochResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "current_leader")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    current_leader: _common_pb2.CurrentLeader
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., current_leader: _Optional[_Union[_common_pb2.CurrentLeader, _Mapping]] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("cluster_id", "replica", "epoch", "offset", "last_epoch", "high_watermark", "max_wait_ms", "max_bytes", "read_round", "endpoints", "incarnation")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    READ_ROUND_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    replica: _common_pb2.ReplicaKey
    epoch: int
    offset: int
    last_epoch: int
    high_watermark: int
    max_wait_ms: int
    max_bytes: int
    read_round: int
    endpoints: _containers.RepeatedCompositeFieldContainer[_common_pb2.Endpoint]
    incarnation: int
    def __init__(self, cluster_id: _Optional[str] = ..., replica: _Optional[_Union[_common_pb2.ReplicaKey, _Mapping]] = ..., epoch: _Optional[int] = ..., offset: _Optional[int] = ..., last_epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., max_bytes: _Optional[int] = ..., read_round: _Optional[int] = ..., endpoints: _Optional[_Iterable[_Union[_common_pb2.Endpoint, _Mapping]]] = ..., incarnation: _Optional[int] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "current_leader", "high_watermark", "log_start_offset", "diverging", "snapshot_id", "records_from", "read_round", "records", "traces", "acknowledged")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DIVERGING_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FROM_FIELD_NUMBER: _ClassVar[int]
    READ_ROUND_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    TRACES_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    current_leader: _common_pb2.CurrentLeader
    high_watermark: int
    log_start_offset: int
    diverging: _common_pb2.OffsetAndEpoch
    snapshot_id: _common_pb2.OffsetAndEpoch
    records_from: int
    read_round: int
    records: bytes
    traces: _containers.RepeatedCompositeFieldContainer[RecordTrace]
    acknowledged: _common_pb2.OffsetAndEpoch
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., current_leader: _Optional[_Union[_common_pb2.CurrentLeader, _Mapping]] = ..., high_watermark: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., diverging: _Optional[_Union[_common_pb2.OffsetAndEpoch, _Mapping]] = ..., snapshot_id: _Optional[_Union[_common_pb2.OffsetAndEpoch, _Mapping]] = ..., records_from: _Optional[int] = ..., read_round: _Optional[int] = ..., records: _Optional[bytes] = ..., traces: _Optional[_Iterable[_Union[RecordTrace, _Mapping]]] = ..., acknowledged: _Optional[_Union[_common_pb2.OffsetAndEpoch, _Mapping]] = ...) -> None: ...

class RecordTrace(_message.Message):
    __slots__ = ("offset", "trace_parent")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TRACE_PARENT_FIELD_NUMBER: _ClassVar[int]
    offset: int
    trace_parent: str
    def __init__(self, offset: _Optional[int] = ..., trace_parent: _Optional[str] = ...) -> None: ...

class FetchSnapshotRequest(_message.Message):
    __slots__ = ("cluster_id", "replica", "epoch", "snapshot_id", "position", "max_bytes")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    replica: _common_pb2.ReplicaKey
    epoch: int
    snapshot_id: _common_pb2.OffsetAndEpoch
    position: int
    max_bytes: int
    def __init__(self, cluster_id: _Optional[str] = ..., replica: _Optional[_Union[_common_pb2.ReplicaKey, _Mapping]] = ..., epoch: _Optional[int] = ..., snapshot_id: _Optional[_Union[_common_pb2.OffsetAndEpoch, _Mapping]] = ..., position: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class FetchSnapshotResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "current_leader", "snapshot_id", "size", "position", "data")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    current_leader: _common_pb2.CurrentLeader
    snapshot_id: _common_pb2.OffsetAndEpoch
    size: int
    position: int
    data: bytes
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., current_leader: _Optional[_Union[_common_pb2.CurrentLeader, _Mapping]] = ..., snapshot_id: _Optional[_Union[_common_pb2.OffsetAndEpoch, _Mapping]] = ..., size: _Optional[int] = ..., position: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class UpdateVoterRequest(_message.Message):
    __slots__ = ("cluster_id", "epoch", "voter")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    epoch: int
    voter: _common_pb2.Voter
    def __init__(self, cluster_id: _Optional[str] = ..., epoch: _Optional[int] = ..., voter: _Optional[_Union[_common_pb2.Voter, _Mapping]] = ...) -> None: ...

class UpdateVoterResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "current_leader")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    current_leader: _common_pb2.CurrentLeader
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., current_leader: _Optional[_Union[_common_pb2.CurrentLeader, _Mapping]] = ...) -> None: ...

class ApiVersionsRequest(_message.Message):
    __slots__ = ("cluster_id",)
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    def __init__(self, cluster_id: _Optional[str] = ...) -> None: ...

class ApiVersionsResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "replica", "kraft_version")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    KRAFT_VERSION_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    replica: _common_pb2.ReplicaKey
    kraft_version: _common_pb2.VersionRange
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., replica: _Optional[_Union[_common_pb2.ReplicaKey, _Mapping]] = ..., kraft_version: _Optional[_Union[_common_pb2.VersionRange, _Mapping]] = ...) -> None: ...

class ChecksumLogRequest(_message.Message):
    __slots__ = ("cluster_id", "replica", "voter", "start_offset", "end_offset")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    replica: _common_pb2.ReplicaKey
    voter: _common_pb2.ReplicaKey
    start_offset: int
    end_offset: int
    def __init__(self, cluster_id: _Optional[str] = ..., replica: _Optional[_Union[_common_pb2.ReplicaKey, _Mapping]] = ..., voter: _Optional[_Union[_common_pb2.ReplicaKey, _Mapping]] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class ChecksumLogResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "crc", "size")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    crc: int
    size: int
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., crc: _Optional[int] = ..., size: _Optional[int] = ...) -> None: ...
