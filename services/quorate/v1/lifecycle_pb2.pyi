from quorate.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BrokerFeature(_message.Message):
    __slots__ = ("name", "supported")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUPPORTED_FIELD_NUMBER: _ClassVar[int]
    name: str
    supported: _common_pb2.VersionRange
    def __init__(self, name: _Optional[str] = ..., supported: _Optional[_Union[_common_pb2.VersionRange, _Mapping]] = ...) -> None: ...

class RegisterBrokerRequest(_message.Message):
    __slots__ = ("timeout_ms", "cluster_id", "broker_id", "incarnation_id", "endpoints", "rack", "log_dirs", "features", "security_protocols", "previous_epoch", "is_migrating_zk_broker")
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    SECURITY_PROTOCOLS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_MIGRATING_ZK_BROKER_FIELD_NUMBER: _ClassVar[int]
    timeout_ms: int
    cluster_id: str
    broker_id: int
    incarnation_id: bytes
    endpoints: _containers.RepeatedCompositeFieldContainer[_common_pb2.Endpoint]
    rack: str
    log_dirs: _containers.RepeatedScalarFieldContainer[bytes]
    features: _containers.RepeatedCompositeFieldContainer[BrokerFeature]
    security_protocols: _containers.RepeatedScalarFieldContainer[int]
    previous_epoch: int
    is_migrating_zk_broker: bool
    def __init__(self, timeout_ms: _Optional[int] = ..., cluster_id: _Optional[str] = ..., broker_id: _Optional[int] = ..., incarnation_id: _Optional[bytes] = ..., endpoints: _Optional[_Iterable[_Union[_common_pb2.Endpoint, _Mapping]]] = ..., rack: _Optional[str] = ..., log_dirs: _Optional[_Iterable[bytes]] = ..., features: _Optional[_Iterable[_Union[BrokerFeature, _Mapping]]] = ..., security_protocols: _Optional[_Iterable[int]] = ..., previous_epoch: _Optional[int] = ..., is_migrating_zk_broker: bool = ...) -> None: ...

class RegisterBrokerResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "current_leader", "broker_epoch", "error", "message")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    current_leader: _common_pb2.CurrentLeader
    broker_epoch: int
    error: _common_pb2.ErrorCode
    message: str
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., current_leader: _Optional[_Union[_common_pb2.CurrentLeader, _Mapping]] = ..., broker_epoch: _Optional[int] = ..., error: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., message: _Optional[str] = ...) -> None: ...

class DirectoryList(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, values: _Optional[_Iterable[bytes]] = ...) -> None: ...

class BrokerHeartbeatRequest(_message.Message):
    __slots__ = ("timeout_ms", "broker_id", "broker_epoch", "metadata_offset", "want_fence", "want_shutdown", "offline_log_dirs", "cordoned_log_dirs")
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WANT_FENCE_FIELD_NUMBER: _ClassVar[int]
    WANT_SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    CORDONED_LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    timeout_ms: int
    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool
    want_shutdown: bool
    offline_log_dirs: _containers.RepeatedScalarFieldContainer[bytes]
    cordoned_log_dirs: DirectoryList
    def __init__(self, timeout_ms: _Optional[int] = ..., broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., metadata_offset: _Optional[int] = ..., want_fence: bool = ..., want_shutdown: bool = ..., offline_log_dirs: _Optional[_Iterable[bytes]] = ..., cordoned_log_dirs: _Optional[_Union[DirectoryList, _Mapping]] = ...) -> None: ...

class BrokerHeartbeatResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "current_leader", "caught_up", "is_fenced", "in_controlled_shutdown", "should_shut_down", "error", "message")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    IS_FENCED_FIELD_NUMBER: _ClassVar[int]
    IN_CONTROLLED_SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    SHOULD_SHUT_DOWN_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    current_leader: _common_pb2.CurrentLeader
    caught_up: bool
    is_fenced: bool
    in_controlled_shutdown: bool
    should_shut_down: bool
    error: _common_pb2.ErrorCode
    message: str
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., current_leader: _Optional[_Union[_common_pb2.CurrentLeader, _Mapping]] = ..., caught_up: bool = ..., is_fenced: bool = ..., in_controlled_shutdown: bool = ..., should_shut_down: bool = ..., error: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., message: _Optional[str] = ...) -> None: ...

class UnregisterBrokerRequest(_message.Message):
    __slots__ = ("timeout_ms", "broker_id")
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    timeout_ms: int
    broker_id: int
    def __init__(self, timeout_ms: _Optional[int] = ..., broker_id: _Optional[int] = ...) -> None: ...

class UnregisterBrokerResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "current_leader", "error", "message")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    current_leader: _common_pb2.CurrentLeader
    error: _common_pb2.ErrorCode
    message: str
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., current_leader: _Optional[_Union[_common_pb2.CurrentLeader, _Mapping]] = ..., error: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., message: _Optional[str] = ...) -> None: ...

class IsrMember(_message.Message):
    __slots__ = ("id", "broker_epoch")
    ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    id: int
    broker_epoch: int
    def __init__(self, id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class PartitionProposal(_message.Message):
    __slots__ = ("partition", "leader_epoch", "partition_epoch", "isr", "leader_recovery_state")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    LEADER_RECOVERY_STATE_FIELD_NUMBER: _ClassVar[int]
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: _containers.RepeatedCompositeFieldContainer[IsrMember]
    leader_recovery_state: int
    def __init__(self, partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., isr: _Optional[_Iterable[_Union[IsrMember, _Mapping]]] = ..., leader_recovery_state: _Optional[int] = ...) -> None: ...

class TopicProposals(_message.Message):
    __slots__ = ("partitions", "topic_id", "topic_name")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_NAME_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionProposal]
    topic_id: bytes
    topic_name: str
    def __init__(self, partitions: _Optional[_Iterable[_Union[PartitionProposal, _Mapping]]] = ..., topic_id: _Optional[bytes] = ..., topic_name: _Optional[str] = ...) -> None: ...

class AlterPartitionRequest(_message.Message):
    __slots__ = ("timeout_ms", "broker_id", "broker_epoch", "topics", "version")
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    timeout_ms: int
    broker_id: int
    broker_epoch: int
    topics: _containers.RepeatedCompositeFieldContainer[TopicProposals]
    version: int
    def __init__(self, timeout_ms: _Optional[int] = ..., broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[TopicProposals, _Mapping]]] = ..., version: _Optional[int] = ...) -> None: ...

class AlteredPartition(_message.Message):
    __slots__ = ("partition", "error", "leader", "leader_epoch", "isr", "partition_epoch", "leader_recovery_state")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_RECOVERY_STATE_FIELD_NUMBER: _ClassVar[int]
    partition: int
    error: _common_pb2.ErrorCode
    leader: int
    leader_epoch: int
    isr: _containers.RepeatedScalarFieldContainer[int]
    partition_epoch: int
    leader_recovery_state: int
    def __init__(self, partition: _Optional[int] = ..., error: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., isr: _Optional[_Iterable[int]] = ..., partition_epoch: _Optional[int] = ..., leader_recovery_state: _Optional[int] = ...) -> None: ...

class AlteredTopic(_message.Message):
    __slots__ = ("partitions", "topic_id", "topic_name")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_NAME_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[AlteredPartition]
    topic_id: bytes
    topic_name: str
    def __init__(self, partitions: _Optional[_Iterable[_Union[AlteredPartition, _Mapping]]] = ..., topic_id: _Optional[bytes] = ..., topic_name: _Optional[str] = ...) -> None: ...

class AlterPartitionResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "current_leader", "topics", "error", "message")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    current_leader: _common_pb2.CurrentLeader
    topics: _containers.RepeatedCompositeFieldContainer[AlteredTopic]
    error: _common_pb2.ErrorCode
    message: str
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., current_leader: _Optional[_Union[_common_pb2.CurrentLeader, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[AlteredTopic, _Mapping]]] = ..., error: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., message: _Optional[str] = ...) -> None: ...

class AllocateProducerIdsRequest(_message.Message):
    __slots__ = ("timeout_ms", "broker_id", "broker_epoch")
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    timeout_ms: int
    broker_id: int
    broker_epoch: int
    def __init__(self, timeout_ms: _Optional[int] = ..., broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class AllocateProducerIdsResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "current_leader", "start", "count", "error", "message")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    current_leader: _common_pb2.CurrentLeader
    start: int
    count: int
    error: _common_pb2.ErrorCode
    message: str
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., current_leader: _Optional[_Union[_common_pb2.CurrentLeader, _Mapping]] = ..., start: _Optional[int] = ..., count: _Optional[int] = ..., error: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., message: _Optional[str] = ...) -> None: ...

class ReplicaAssignment(_message.Message):
    __slots__ = ("directory_id", "topic_id", "partition")
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    directory_id: bytes
    topic_id: bytes
    partition: int
    def __init__(self, directory_id: _Optional[bytes] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ...) -> None: ...

class AssignReplicasToDirsRequest(_message.Message):
    __slots__ = ("timeout_ms", "broker_id", "broker_epoch", "replicas")
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    timeout_ms: int
    broker_id: int
    broker_epoch: int
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaAssignment]
    def __init__(self, timeout_ms: _Optional[int] = ..., broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[ReplicaAssignment, _Mapping]]] = ...) -> None: ...

class AssignedReplica(_message.Message):
    __slots__ = ("directory_id", "topic_id", "partition", "error")
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    directory_id: bytes
    topic_id: bytes
    partition: int
    error: _common_pb2.ErrorCode
    def __init__(self, directory_id: _Optional[bytes] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., error: _Optional[_Union[_common_pb2.ErrorCode, str]] = ...) -> None: ...

class AssignReplicasToDirsResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "current_leader", "replicas", "error", "message")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    current_leader: _common_pb2.CurrentLeader
    replicas: _containers.RepeatedCompositeFieldContainer[AssignedReplica]
    error: _common_pb2.ErrorCode
    message: str
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., current_leader: _Optional[_Union[_common_pb2.CurrentLeader, _Mapping]] = ..., replicas: _Optional[_Iterable[_Union[AssignedReplica, _Mapping]]] = ..., error: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., message: _Optional[str] = ...) -> None: ...

class ControllerFeature(_message.Message):
    __slots__ = ("name", "supported")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUPPORTED_FIELD_NUMBER: _ClassVar[int]
    name: str
    supported: _common_pb2.VersionRange
    def __init__(self, name: _Optional[str] = ..., supported: _Optional[_Union[_common_pb2.VersionRange, _Mapping]] = ...) -> None: ...

class RegisterControllerRequest(_message.Message):
    __slots__ = ("timeout_ms", "controller_id", "incarnation_id", "endpoints", "features", "security_protocols", "zk_migration_ready")
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    SECURITY_PROTOCOLS_FIELD_NUMBER: _ClassVar[int]
    ZK_MIGRATION_READY_FIELD_NUMBER: _ClassVar[int]
    timeout_ms: int
    controller_id: int
    incarnation_id: bytes
    endpoints: _containers.RepeatedCompositeFieldContainer[_common_pb2.Endpoint]
    features: _containers.RepeatedCompositeFieldContainer[ControllerFeature]
    security_protocols: _containers.RepeatedScalarFieldContainer[int]
    zk_migration_ready: bool
    def __init__(self, timeout_ms: _Optional[int] = ..., controller_id: _Optional[int] = ..., incarnation_id: _Optional[bytes] = ..., endpoints: _Optional[_Iterable[_Union[_common_pb2.Endpoint, _Mapping]]] = ..., features: _Optional[_Iterable[_Union[ControllerFeature, _Mapping]]] = ..., security_protocols: _Optional[_Iterable[int]] = ..., zk_migration_ready: bool = ...) -> None: ...

class RegisterControllerResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "current_leader", "error", "message")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error_code: _common_pb2.ErrorCode
    error_message: str
    current_leader: _common_pb2.CurrentLeader
    error: _common_pb2.ErrorCode
    message: str
    def __init__(self, error_code: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., current_leader: _Optional[_Union[_common_pb2.CurrentLeader, _Mapping]] = ..., error: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., message: _Optional[str] = ...) -> None: ...
