"""Brokers' own requests in every version, against the real metadata controller."""

from __future__ import annotations

from typing import Any

import pytest
from quorate.bridge.messages import schemas as s
from quorate.bridge.requests.exchange import answer_bare
from quorate.bridge.requests.forwarding import FORWARDED
from quorate.bridge.requests.lifecycle import LIFECYCLE
from quorate.common.error_codes import ErrorCode
from quorate.metadata.metadata_version import SUPPORTED
from quorate.raft.messages import CurrentLeader
from quorate.rpc.principals import Caller
from quorate.rpc.wire.convert_metadata import MetadataAnswer

from tests.unit.bridge.bridge_support import NO_QUOTAS, call
from tests.unit.metadata.metadata_support import Cluster, uuid_of

FIRST, SECOND = uuid_of("first"), uuid_of("second")


async def asked(cluster: Cluster, body: Any) -> Any:
    """The response, after both were bytes."""
    key, version = body.__api_key__, body.__version__

    async def ask(request: Any, _timeout_ms: int, _caller: Caller) -> MetadataAnswer:
        return MetadataAnswer(ErrorCode.NONE, CurrentLeader(1, 1), cluster.ask(request))

    exchange = (LIFECYCLE | FORWARDED)[key]
    response = await answer_bare(exchange, call(key, version, body), ask, Caller(), NO_QUOTAS)
    return s.read_response(key, version, s.write_response(1, response))[1]


def registration(version: int, incarnation: object = 0, **fields: Any) -> Any:
    module = s.request_module(s.BROKER_REGISTRATION, version)
    all_fields = {
        "broker_id": 1,
        "cluster_id": "",
        "incarnation_id": s.uuid_field(uuid_of(("life", incarnation))),
        "listeners": (module.Listener(name="L", host="h", port=9, security_protocol=0),),
        "features": tuple(
            module.Feature(
                name=name, min_supported_version=found.min, max_supported_version=found.max
            )
            for name, found in SUPPORTED.items()
        ),
        "rack": None,
        "is_migrating_zk_broker": False,
        "log_dirs": (s.uuid_field(FIRST), s.uuid_field(SECOND)),
        "previous_broker_epoch": -1,
    }
    return s.make(module.BrokerRegistrationRequest, **(all_fields | fields))


def heartbeat(version: int, epoch: int, offset: int, **fields: Any) -> Any:
    module = s.request_module(s.BROKER_HEARTBEAT, version)
    return s.make(
        module.BrokerHeartbeatRequest,
        broker_id=1,
        broker_epoch=epoch,
        current_metadata_offset=offset,
        want_fence=False,
        want_shut_down=False,
        **fields,
    )


@pytest.mark.parametrize("version", range(5))
async def test_registrations_of_every_version(version: int) -> None:
    cluster = Cluster(1, level=16)
    response = await asked(cluster, registration(version, broker_id=2))
    assert int(response.error_code) == 0
    broker = cluster.committed.cluster.brokers[2]
    assert (response.broker_epoch, broker.log_dirs) == (broker.broker_epoch, ())
    # Directories have to be named where they are recorded: from version 2 on.
    cluster = Cluster(1, level=17)
    response = await asked(cluster, registration(version, broker_id=2))
    if version < 2:
        assert int(response.error_code) == ErrorCode.INVALID_REGISTRATION
        assert response.broker_epoch == -1
    else:
        assert int(response.error_code) == 0
        assert cluster.committed.cluster.brokers[2].log_dirs == (FIRST, SECOND)
    refused = await asked(cluster, registration(version, broker_id=2, features=()))
    assert int(refused.error_code) == ErrorCode.INVALID_REGISTRATION


@pytest.mark.parametrize("version", range(3))
async def test_heartbeats_of_every_version(version: int) -> None:
    cluster = Cluster()
    epoch = (await asked(cluster, registration(4))).broker_epoch
    failed = {"offline_log_dirs": (s.uuid_field(FIRST),)}
    cordoned = {"cordoned_log_dirs": (s.uuid_field(SECOND),)}
    response = await asked(cluster, heartbeat(version, epoch, cluster.offset))
    assert (int(response.error_code), response.is_caught_up) == (0, True)
    assert (response.is_fenced, response.should_shut_down) == (False, False)
    assert cluster.committed.cluster.brokers[1].cordoned_log_dirs is None, "absent is null"
    await asked(cluster, heartbeat(version, epoch, cluster.offset, **failed, **cordoned))
    broker = cluster.committed.cluster.brokers[1]
    assert broker.log_dirs == ((SECOND,) if version >= 1 else (FIRST, SECOND))
    assert broker.cordoned_log_dirs == ((SECOND,) if version >= 2 else None)
    stale = await asked(cluster, heartbeat(version, epoch - 1, 0, **cordoned))
    assert int(stale.error_code) == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize("version", [2, 3])
async def test_isr_changes_of_every_version(version: int) -> None:
    cluster = Cluster(3)
    topic_id = cluster.create("t", (1, 2, 3))
    module = s.request_module(s.ALTER_PARTITION, version)

    def proposal(*isr: int) -> Any:
        members: dict[str, Any] = {"new_isr": isr}
        if version == 3:
            members = {
                "new_isr_with_epochs": tuple(
                    module.BrokerState(broker_id=b, broker_epoch=cluster.epochs[b]) for b in isr
                )
            }
        found = cluster.partition("t")
        partition = module.PartitionData(
            partition_index=0,
            leader_epoch=found.leader_epoch,
            leader_recovery_state=0,
            partition_epoch=found.partition_epoch,
            **members,
        )
        return module.AlterPartitionRequest(
            broker_id=1,
            broker_epoch=cluster.epochs[1],
            topics=(module.TopicData(topic_id=s.uuid_field(topic_id), partitions=(partition,)),),
        )

    for isr in ((1, 3), (1, 2, 3)):
        response = await asked(cluster, proposal(*isr))
        (partition,) = response.topics[0].partitions
        assert (int(partition.error_code), partition.isr) == (0, isr)
        assert cluster.partition("t").isr == isr
    cluster.expire(3)
    response = await asked(cluster, proposal(1, 2, 3))
    (partition,) = response.topics[0].partitions
    assert int(partition.error_code) == ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_a_reassignment_may_be_forbidden_to_change_the_factor(is_allowed: bool) -> None:
    cluster = Cluster(3)
    cluster.create("t", (1, 2))
    module = s.request_module(s.ALTER_PARTITION_REASSIGNMENTS, 1)

    async def reassign(*replicas: int) -> Any:
        partition = module.ReassignablePartition(partition_index=0, replicas=replicas)
        topic = module.ReassignableTopic(name="t", partitions=(partition,))
        body = module.AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=is_allowed, topics=(topic,)
        )
        response = await asked(cluster, body)
        assert response.allow_replication_factor_change is is_allowed
        return int(response.responses[0].partitions[0].error_code)

    assert await reassign(3, 2) == 0
    expected = 0 if is_allowed else ErrorCode.INVALID_REPLICATION_FACTOR
    assert await reassign(1, 2, 3) == expected
    listed = cluster.partition("t").replicas
    assert set(listed) == {1, 2, 3}
