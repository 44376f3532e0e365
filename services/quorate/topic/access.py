"""Who may use the topic, and whether this node serves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quorate.bridge.listener.connections import KafkaConnection
from quorate.bridge.listener.listening import ListenerSettings
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.metadata.authorizer import Operation, Resource, ResourceType
from quorate.raft.roles import Leader
from quorate.runtime.authorizer import NodeAuthorizer
from quorate.runtime.driver import RaftDriver

PARTITION: Final = 0
"""The only partition of the topic."""
UNKNOWN: Final = -1
"""Of a node, an epoch, an offset or a time."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The configuration of the topic."""

    name: str
    node_id: int
    """The node id of this controller."""
    cluster_id: str
    endpoint: Endpoint
    """The advertised endpoint of this controller's listener."""
    session_expiration_ms: int
    """The expiration of producer sessions."""
    listening: ListenerSettings


class TopicAccess:
    """The checks of every request. authorizer: None accepts all callers."""

    def __init__(
        self, settings: TopicSettings, raft: RaftDriver, authorizer: NodeAuthorizer | None
    ) -> None:
        self.settings = settings
        self.raft = raft
        self._authorizer = authorizer
        self._resource = Resource(ResourceType.TOPIC, settings.name)

    def allows(self, connection: KafkaConnection, operation: Operation) -> bool:
        """Whether the caller may perform an operation on the topic."""
        authorizer = self._authorizer
        return authorizer is None or authorizer.allows(connection.caller, operation, self._resource)

    def fault(
        self, connection: KafkaConnection, operation: Operation, topic: str, index: int
    ) -> ErrorCode:
        """Why the caller cannot use a partition, NONE if it can."""
        if not self.allows(connection, operation):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if (topic, index) != (self.settings.name, PARTITION):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    def leader_fault(self, epoch: int) -> ErrorCode:
        """Why this node does not serve a request that is for the leader, NONE if it does.

        epoch: the one that the client knows, UNKNOWN for none.
        """
        node = self.raft.node
        if epoch not in (UNKNOWN, node.epoch):
            is_old = epoch < node.epoch
            return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if node.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    @property
    def is_new_leader(self) -> bool:
        """Whether this leader may not know all that is committed: nothing of its epoch is yet."""
        node = self.raft.node
        role = node.core.role
        return isinstance(role, Leader) and role.epoch_start_offset >= node.high_watermark
