"""Nodes' own requests: registration, heartbeats, ISR changes, producer ids, directories.

Each message is converted to the request of `metadata.requests` that the gRPC service uses as well,
and the response is converted back. A node that is not the active controller responds with
NOT_CONTROLLER; brokers find the leader with their Fetches.

Fields that an earlier version lacks have the values that they have in Kafka.

Source: KIP-631, KIP-730, KIP-841, KIP-858, KIP-903, KIP-1066; KIP-866 "Broker Registration";
KIP-919 "Controller Registration".
"""

from __future__ import annotations

from typing import Any, Final

from quorate.bridge.messages import schemas as s
from quorate.bridge.messages.heartbeat_messages import write_heartbeat_answer
from quorate.bridge.messages.isr_messages import write_isr_changed
from quorate.bridge.requests.exchange import Exchange, in_one
from quorate.common.endpoints import Endpoint
from quorate.common.features import VersionRange
from quorate.metadata import requests as r
from quorate.metadata.requests.common import NO_EPOCH


def decode_registration(body: Any) -> r.RegisterBroker:
    return r.RegisterBroker(
        broker_id=body.broker_id,
        incarnation_id=s.uuid_text(body.incarnation_id),
        endpoints=tuple(Endpoint(e.name, e.host, e.port) for e in body.listeners),
        cluster_id=body.cluster_id,
        rack=body.rack,
        log_dirs=s.uuid_texts(getattr(body, "log_dirs", ())),
        features=tuple(
            r.BrokerFeature(f.name, VersionRange(f.min_supported_version, f.max_supported_version))
            for f in body.features
        ),
        security_protocols=tuple(e.security_protocol for e in body.listeners),
        previous_epoch=getattr(body, "previous_broker_epoch", NO_EPOCH),
        is_migrating_zk_broker=getattr(body, "is_migrating_zk_broker", False),
    )


def encode_registration_response(module: Any, response: r.RegisterBrokerResponse) -> Any:
    return s.answer(
        module,
        **s.outcome(response),
        broker_epoch=response.broker_epoch,
    )


def decode_heartbeat(request: r.BrokerHeartbeat) -> r.BrokerHeartbeat:
    """`schemas` decodes this request to the value."""
    return request


def encode_heartbeat_response(module: Any, response: r.BrokerHeartbeatResponse) -> s.Encoded:
    return s.Encoded(
        module.BrokerHeartbeatResponse, write_heartbeat_answer(response), int(response.error)
    )


def decode_isr_change(request: r.AlterPartition) -> r.AlterPartition:
    """`schemas` decodes this request to the value."""
    return request


def encode_isr_change_response(module: Any, response: r.AlterPartitionResponse) -> s.Encoded:
    return s.Encoded(module.AlterPartitionResponse, write_isr_changed(response))


def decode_allocate_producer_ids(body: Any) -> r.AllocateProducerIds:
    return r.AllocateProducerIds(body.broker_id, body.broker_epoch)


def encode_allocate_producer_ids_response(
    module: Any, response: r.AllocateProducerIdsResponse
) -> Any:
    return s.answer(
        module,
        **s.outcome(response),
        producer_id_start=0 if response.error else response.start,
        producer_id_len=response.count,
    )


def decode_assign_replicas(body: Any) -> r.AssignReplicasToDirs:
    return r.AssignReplicasToDirs(
        body.broker_id,
        body.broker_epoch,
        tuple(
            r.ReplicaAssignment(
                s.uuid_text(directory.id_), s.uuid_text(topic.topic_id), p.partition_index
            )
            for directory in body.directories
            for topic in directory.topics
            for p in topic.partitions
        ),
    )


def encode_assign_replicas_response(module: Any, response: r.AssignReplicasToDirsResponse) -> Any:
    found: dict[str, dict[str, list[r.AssignedReplica]]] = {}
    for each in response.replicas:
        found.setdefault(each.directory_id, {}).setdefault(each.topic_id, []).append(each)
    return s.answer(
        module,
        **s.outcome(response),
        directories=tuple(
            module.DirectoryData(
                id_=s.uuid_field(directory_id),
                topics=tuple(
                    module.TopicData(
                        topic_id=s.uuid_field(topic_id),
                        partitions=tuple(
                            module.PartitionData(
                                partition_index=each.partition,
                                error_code=s.error_field(each.error),
                            )
                            for each in replicas
                        ),
                    )
                    for topic_id, replicas in topics.items()
                ),
            )
            for directory_id, topics in found.items()
        ),
    )


def decode_controller_registration(body: Any) -> r.RegisterController:
    return r.RegisterController(
        controller_id=body.controller_id,
        incarnation_id=s.uuid_text(body.incarnation_id),
        endpoints=tuple(Endpoint(e.name, e.host, e.port) for e in body.listeners),
        features=tuple(
            r.ControllerFeature(
                f.name, VersionRange(f.min_supported_version, f.max_supported_version)
            )
            for f in body.features
        ),
        security_protocols=tuple(e.security_protocol for e in body.listeners),
        zk_migration_ready=body.zk_migration_ready,
    )


def encode_controller_registration_response(
    module: Any, response: r.RegisterControllerResponse
) -> Any:
    return s.answer(module, **s.spoken(response))


LIFECYCLE: Final[dict[int, Exchange]] = {
    s.BROKER_REGISTRATION: Exchange(
        decode_registration, encode_registration_response, in_one(r.RegisterBrokerResponse)
    ),
    s.BROKER_HEARTBEAT: Exchange(
        decode_heartbeat, encode_heartbeat_response, in_one(r.BrokerHeartbeatResponse)
    ),
    s.ALTER_PARTITION: Exchange(
        decode_isr_change, encode_isr_change_response, in_one(r.AlterPartitionResponse)
    ),
    s.ALLOCATE_PRODUCER_IDS: Exchange(
        decode_allocate_producer_ids,
        encode_allocate_producer_ids_response,
        in_one(r.AllocateProducerIdsResponse),
    ),
    s.CONTROLLER_REGISTRATION: Exchange(
        decode_controller_registration,
        encode_controller_registration_response,
        in_one(r.RegisterControllerResponse),
    ),
    s.ASSIGN_REPLICAS_TO_DIRS: Exchange(
        decode_assign_replicas,
        encode_assign_replicas_response,
        in_one(r.AssignReplicasToDirsResponse),
    ),
}
