"""Metadata: the controllers as brokers, and the topic with its leader."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from typing import Any

from quorate.bridge.listener.connections import KafkaConnection
from quorate.bridge.messages import schemas as s
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.metadata.authorizer import Operation
from quorate.telemetry.limited_log import LimitedLog
from quorate.topic.access import PARTITION, UNKNOWN, TopicAccess
from quorate.topic.apis import METADATA

LOGGER = logging.getLogger(__name__)

LOG_INTERVAL_S = 60.0


class Describing:
    """Answers Metadata, on any node."""

    def __init__(self, access: TopicAccess) -> None:
        self._access = access
        self._unknown = LimitedLog(LOGGER, interval_s=LOG_INTERVAL_S)

    async def answer(self, call: s.Call, connection: KafkaConnection) -> Any:
        module = s.response_module(METADATA, call.version)
        brokers = dict(self._brokers())
        asked = call.body.topics
        is_for_all = asked is None or (call.version == 0 and not asked)
        may_see = self._access.allows(connection, Operation.DESCRIBE)
        names = [self._access.settings.name] if may_see else []
        if not is_for_all:
            names = list(dict.fromkeys(each.name for each in asked))
        leader_id = self._access.raft.node.current_leader.id
        if leader_id is not None and leader_id not in brokers:
            self._unknown.warning(
                leader_id,
                "controller %d leads, but has no listener %s: producers and consumers wait for "
                "another leader",
                leader_id,
                self._access.settings.listening.name,
            )
            leader_id = None
        return s.answer(
            module,
            brokers=tuple(
                s.make(module.MetadataResponseBroker, node_id=key, host=e.host, port=e.port)
                for key, e in brokers.items()
            ),
            cluster_id=self._access.settings.cluster_id,
            controller_id=UNKNOWN if leader_id is None else leader_id,
            topics=tuple(self._topic(module, name, may_see, leader_id, brokers) for name in names),
        )

    def _brokers(self) -> Iterator[tuple[int, Endpoint]]:
        """The voters that have this listener, and this node."""
        yield self._access.settings.node_id, self._access.settings.endpoint
        listener = self._access.settings.listening.name
        for voter in self._access.raft.node.voters:
            for endpoint in voter.endpoints:
                if endpoint.name == listener:
                    yield voter.id, endpoint

    def _topic(
        self, module: Any, name: str, may_see: bool, leader_id: int | None, brokers: Collection[int]
    ) -> Any:
        error = ErrorCode.NONE
        partitions: tuple[Any, ...] = ()
        if not may_see:
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif name != self._access.settings.name:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            is_led = leader_id is not None
            replicas = tuple(voter.id for voter in self._access.raft.node.voters)
            partition = s.make(
                module.MetadataResponsePartition,
                error_code=s.error_field(
                    ErrorCode.NONE if is_led else ErrorCode.LEADER_NOT_AVAILABLE
                ),
                partition_index=PARTITION,
                leader_id=leader_id if is_led else UNKNOWN,
                leader_epoch=self._access.raft.node.epoch,
                replica_nodes=replicas,
                isr_nodes=replicas,
                offline_replicas=tuple(each for each in replicas if each not in brokers),
            )
            partitions = (partition,)
        return s.make(
            module.MetadataResponseTopic,
            error_code=s.error_field(error),
            name=name,
            is_internal=False,
            partitions=partitions,
        )
