"""What brokers ask, for themselves and for their clients, against the real metadata controller."""

from __future__ import annotations

from typing import Any

import pytest
from quorate.bridge.framing.frames import Decoder
from quorate.bridge.messages import schemas as s
from quorate.bridge.requests.exchange import Ask, answer_bare
from quorate.bridge.requests.forwarding import FORWARDED, answer_envelope
from quorate.bridge.requests.lifecycle import LIFECYCLE
from quorate.bridge.requests.topics import describe_creation, encode_create_topics_response
from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r
from quorate.records.metadata import ZkMigrationState
from quorate.rpc.principals import Caller
from quorate.rpc.wire.convert_metadata import MetadataAnswer

from tests.unit.bridge.bridge_support import LEADER, NO_QUOTAS, Migrating, call, envelope, uuid_of


async def forwarded(request: s.Call, ask: Ask) -> Any:
    decoder = Decoder()
    try:
        return await answer_envelope(request, ask, decoder.call, NO_QUOTAS)
    finally:
        decoder.close()


def creation(version: int = 7, name: str = "made", **fields: Any) -> Any:
    module = s.request_module(s.CREATE_TOPICS, version)
    assignments = fields.pop("assignments", ())
    topic = module.CreatableTopic(
        name=name,
        num_partitions=fields.get("partitions", -1 if assignments else 2),
        replication_factor=-1 if assignments else 1,
        assignments=tuple(
            module.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in assignments
        ),
        configs=(module.CreatableTopicConfig(name="retention.ms", value="5"),),
    )
    return module.CreateTopicsRequest(topics=(topic,), timeout=s.milliseconds(500))


def opened(response: Any, api_key: int, version: int) -> Any:
    """What was in an envelope's response."""
    assert int(response.error_code) == 0, response
    frame = s.write_response(1, response)
    again = s.read_response(s.ENVELOPE, 0, frame)[1]
    correlation_id, body = s.read_response(api_key, version, bytes(again.response_data))
    assert correlation_id == 77
    return body


@pytest.mark.parametrize("version", range(2, 8))
async def test_a_topic_is_created_in_every_version(version: int) -> None:
    cluster = Migrating(1)
    response = await forwarded(
        envelope(s.CREATE_TOPICS, version, creation(version)), cluster.answer
    )
    (topic,) = opened(response, s.CREATE_TOPICS, version).topics
    assert (topic.name, int(topic.error_code)) == ("made", 0)
    assert cluster.caller == Caller("User:alice", "10.0.0.7")
    assert len(cluster.committed.topics.partitions(cluster.committed.topics.ids["made"])) == 2
    if version >= 5:
        assert (topic.num_partitions, topic.replication_factor) == (2, 1)
    if version == 7:
        assert s.uuid_text(topic.topic_id) == cluster.committed.topics.ids["made"]


async def test_replicas_may_be_given_but_must_be_all() -> None:
    cluster = Migrating(2)
    body = creation(assignments=((1, (2,)), (0, (1,))))
    await forwarded(envelope(s.CREATE_TOPICS, 7, body), cluster.answer)
    partitions = cluster.committed.topics.partitions(cluster.committed.topics.ids["made"])
    assert {index: p.replicas for index, p in partitions.items()} == {0: (1,), 1: (2,)}
    body = creation(name="gap", assignments=((0, (1,)), (2, (1,))))
    response = await forwarded(envelope(s.CREATE_TOPICS, 7, body), cluster.answer)
    (topic,) = opened(response, s.CREATE_TOPICS, 7).topics
    assert int(topic.error_code) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "consecutive" in topic.error_message


@pytest.mark.parametrize("version", range(5, 8))
def test_a_new_topics_effective_configs_are_in_the_response(version: int) -> None:
    created = r.CreateTopicsResponse(
        (
            r.CreatedTopic(
                "made", partitions=2, replication_factor=1, configs=(("retention.ms", "5"),)
            ),
            r.CreatedTopic("hidden", partitions=2, replication_factor=1),
            r.CreatedTopic("wrong", ErrorCode.INVALID_CONFIG, "why"),
        )
    )
    response = describe_creation(created, {"log.segment.bytes": "2097152"}, lambda n: n == "made")
    body = encode_create_topics_response(s.response_module(s.CREATE_TOPICS, version), response)
    written = s.read_response(s.CREATE_TOPICS, version, s.write_response(7, body))[1]
    made, hidden, wrong = written.topics
    configs = {each.name: (each.value, each.config_source) for each in made.configs}
    assert configs["retention.ms"] == ("5", 1)
    assert configs["segment.bytes"] == ("2097152", 3)
    assert configs["cleanup.policy"] == ("delete", 5)
    assert list(configs) == sorted(configs)
    assert "internal.segment.bytes" not in configs, "it has no value"
    assert (made.num_partitions, int(made.topic_config_error_code)) == (2, 0)
    assert (hidden.num_partitions, hidden.replication_factor, hidden.configs) == (-1, -1, ())
    assert int(hidden.topic_config_error_code) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (int(hidden.error_code), int(wrong.topic_config_error_code)) == (0, 0)
    assert wrong.configs == ()


def test_the_configs_of_many_new_topics_are_described_once() -> None:
    own = (("retention.ms", "5"),)
    topics = [r.CreatedTopic(f"t{i}", configs=own if i % 2 else ()) for i in range(1_000)]
    described = describe_creation(r.CreateTopicsResponse(tuple(topics)), {}, lambda _name: True)
    assert described.by_own.keys() == {own, ()}
    body = encode_create_topics_response(s.response_module(s.CREATE_TOPICS, 7), described)
    assert len({id(each.configs) for each in body.topics}) == 2
    values = [{c.name: c.value for c in each.configs}["retention.ms"] for each in body.topics]
    assert values == ["604800000", "5"] * 500


@pytest.mark.parametrize("version", range(1, 7))
async def test_a_topic_is_deleted_in_every_version(version: int) -> None:
    cluster = Migrating(1)
    cluster.ask(r.CreateTopics((r.NewTopic("made", 1, 1),)))
    module = s.request_module(s.DELETE_TOPICS, version)
    if version >= 6:
        body = module.DeleteTopicsRequest(
            topics=(module.DeleteTopicState(name="made", topic_id=None),),
            timeout=s.milliseconds(9),
        )
    else:
        body = module.DeleteTopicsRequest(topic_names=("made",), timeout=s.milliseconds(9))
    request = call(s.DELETE_TOPICS, version, body)
    bare = FORWARDED[s.DELETE_TOPICS]
    response = await answer_bare(bare, request, cluster.answer, Caller(host="here"), NO_QUOTAS)
    assert [int(each.error_code) for each in response.responses] == [0]
    assert not cluster.committed.topics.ids


async def elsewhere(_request: Any, _timeout_ms: int, _caller: Caller) -> MetadataAnswer:
    """As a node asks that is not the active controller."""
    return MetadataAnswer(ErrorCode.NOT_CONTROLLER, LEADER)


async def test_the_envelope_says_that_another_node_is_the_controller() -> None:
    response = await forwarded(envelope(s.CREATE_TOPICS, 7, creation()), elsewhere)
    assert int(response.error_code) == ErrorCode.NOT_CONTROLLER
    assert response.response_data is None
    request = call(s.CREATE_TOPICS, 7, creation())
    response = await answer_bare(
        FORWARDED[s.CREATE_TOPICS], request, elsewhere, Caller(), NO_QUOTAS
    )
    assert [int(t.error_code) for t in response.topics] == [ErrorCode.NOT_CONTROLLER]


async def test_what_is_refused_as_a_whole_is_said_of_each_part() -> None:
    async def busy(_request: Any, _timeout_ms: int, _caller: Caller) -> MetadataAnswer:
        return MetadataAnswer(ErrorCode.THROTTLING_QUOTA_EXCEEDED, LEADER, None, "slow down")

    response = await forwarded(envelope(s.CREATE_TOPICS, 7, creation()), busy)
    (topic,) = opened(response, s.CREATE_TOPICS, 7).topics
    assert int(topic.error_code) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert topic.error_message == "slow down"


def _bodies() -> dict[int, Any]:
    """A small request of each kind, in its highest version."""

    def module(key: int) -> Any:
        return s.request_module(key, s.SERVED[key][1])

    soon = s.milliseconds(500)
    m = {key: module(key) for key in FORWARDED}
    return {
        s.CREATE_TOPICS: creation(),
        s.DELETE_TOPICS: m[s.DELETE_TOPICS].DeleteTopicsRequest(
            topics=(m[s.DELETE_TOPICS].DeleteTopicState(name="no", topic_id=None),), timeout=soon
        ),
        s.CREATE_PARTITIONS: m[s.CREATE_PARTITIONS].CreatePartitionsRequest(
            topics=(
                m[s.CREATE_PARTITIONS].CreatePartitionsTopic(name="a", count=3, assignments=None),
            ),
            timeout=soon,
            validate_only=False,
        ),
        s.ELECT_LEADERS: m[s.ELECT_LEADERS].ElectLeadersRequest(
            election_type=0,
            topic_partitions=(m[s.ELECT_LEADERS].TopicPartitions(topic="a", partitions=(0,)),),
            timeout=soon,
        ),
        s.ALTER_PARTITION_REASSIGNMENTS: m[
            s.ALTER_PARTITION_REASSIGNMENTS
        ].AlterPartitionReassignmentsRequest(
            topics=(
                m[s.ALTER_PARTITION_REASSIGNMENTS].ReassignableTopic(
                    name="a",
                    partitions=(
                        m[s.ALTER_PARTITION_REASSIGNMENTS].ReassignablePartition(
                            partition_index=0, replicas=(2,)
                        ),
                    ),
                ),
            ),
        ),
        s.ALTER_CONFIGS: m[s.ALTER_CONFIGS].AlterConfigsRequest(
            resources=(
                m[s.ALTER_CONFIGS].AlterConfigsResource(
                    resource_type=4,
                    resource_name="",
                    configs=(
                        m[s.ALTER_CONFIGS].AlterableConfig(name="background.threads", value="3"),
                    ),
                ),
            ),
            validate_only=False,
        ),
        s.UNREGISTER_BROKER: m[s.UNREGISTER_BROKER].UnregisterBrokerRequest(broker_id=9),
        s.INCREMENTAL_ALTER_CONFIGS: m[s.INCREMENTAL_ALTER_CONFIGS].IncrementalAlterConfigsRequest(
            resources=(
                m[s.INCREMENTAL_ALTER_CONFIGS].AlterConfigsResource(
                    resource_type=2,
                    resource_name="a",
                    configs=(
                        m[s.INCREMENTAL_ALTER_CONFIGS].AlterableConfig(
                            name="retention.ms", config_operation=0, value="7"
                        ),
                    ),
                ),
            ),
            validate_only=False,
        ),
        s.ALTER_CLIENT_QUOTAS: m[s.ALTER_CLIENT_QUOTAS].AlterClientQuotasRequest(
            entries=(
                m[s.ALTER_CLIENT_QUOTAS].EntryData(
                    entity=(
                        m[s.ALTER_CLIENT_QUOTAS].EntityData(entity_type="user", entity_name="u"),
                    ),
                    ops=(
                        m[s.ALTER_CLIENT_QUOTAS].OpData(
                            key="producer_byte_rate", value=5.0, remove=False
                        ),
                    ),
                ),
            ),
            validate_only=False,
        ),
        s.ALTER_USER_SCRAM_CREDENTIALS: m[
            s.ALTER_USER_SCRAM_CREDENTIALS
        ].AlterUserScramCredentialsRequest(
            deletions=(),
            upsertions=(
                m[s.ALTER_USER_SCRAM_CREDENTIALS].ScramCredentialUpsertion(
                    name="u",
                    mechanism=1,
                    iterations=4096,
                    salt=b"s" * 16,
                    salted_password=b"p" * 32,
                ),
            ),
        ),
        s.CREATE_DELEGATION_TOKEN: m[s.CREATE_DELEGATION_TOKEN].CreateDelegationTokenRequest(
            owner_principal_type="User",
            owner_principal_name="bob",
            renewers=(),
            max_lifetime=s.milliseconds(-1),
        ),
        s.RENEW_DELEGATION_TOKEN: m[s.RENEW_DELEGATION_TOKEN].RenewDelegationTokenRequest(
            hmac=b"x", renew_period=s.milliseconds(-1)
        ),
        s.EXPIRE_DELEGATION_TOKEN: m[s.EXPIRE_DELEGATION_TOKEN].ExpireDelegationTokenRequest(
            hmac=b"x", expiry_time_period=s.milliseconds(-1)
        ),
        s.CREATE_ACLS: m[s.CREATE_ACLS].CreateAclsRequest(
            creations=(
                m[s.CREATE_ACLS].AclCreation(
                    resource_type=2,
                    resource_name="a",
                    resource_pattern_type=3,
                    principal="User:u",
                    host="*",
                    operation=3,
                    permission_type=3,
                ),
            )
        ),
        s.DELETE_ACLS: m[s.DELETE_ACLS].DeleteAclsRequest(
            filters=(
                m[s.DELETE_ACLS].DeleteAclsFilter(
                    resource_type_filter=1,
                    resource_name_filter=None,
                    pattern_type_filter=1,
                    principal_filter=None,
                    host_filter=None,
                    operation=1,
                    permission_type=1,
                ),
            )
        ),
    }


async def test_every_request_goes_through_and_its_answer_can_be_read() -> None:
    cluster = Migrating(2)
    cluster.ask(r.CreateTopics((r.NewTopic("a", assignments=((1, 2),)),)))
    bodies = _bodies()
    assert set(FORWARDED) - set(bodies) == {
        s.LIST_PARTITION_REASSIGNMENTS,
        s.DESCRIBE_QUORUM,
        s.UPDATE_FEATURES,
        s.ADD_RAFT_VOTER,
        s.REMOVE_RAFT_VOTER,
    }
    errors: dict[int, list[int]] = {}
    for key, body in bodies.items():
        version = s.SERVED[key][1]
        answer = opened(await forwarded(envelope(key, version, body), cluster.answer), key, version)
        errors[key] = [int(error) for error in _errors(answer)]
    refused = {key: found for key, found in errors.items() if any(found)}
    assert refused == {
        s.DELETE_TOPICS: [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        s.ELECT_LEADERS: [0, ErrorCode.ELECTION_NOT_NEEDED],
        s.UNREGISTER_BROKER: [ErrorCode.BROKER_ID_NOT_REGISTERED],
        s.CREATE_DELEGATION_TOKEN: [ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED],
        s.RENEW_DELEGATION_TOKEN: [ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED],
        s.EXPIRE_DELEGATION_TOKEN: [ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED],
    }
    image = cluster.committed
    assert image.features.metadata_version == 21
    assert image.configs.of(2, "a") == {"retention.ms": "7"}
    assert image.configs.of(4, "") == {"background.threads": "3"}
    assert len(image.topics.partitions(image.topics.ids["a"])) == 3
    assert ("u", 1) in image.scram.credentials
    assert not image.acls.acls, "what was created was deleted again"


def _errors(part: Any) -> list[Any]:
    """Every error code in a message, in order."""
    found = []
    for name in part.__dataclass_fields__:
        value = getattr(part, name)
        if name == "error_code":
            found.append(value)
        elif isinstance(value, tuple):
            for each in value:
                if hasattr(each, "__dataclass_fields__"):
                    found += _errors(each)
    return found


async def test_an_envelope_with_nonsense_in_it_is_an_invalid_request() -> None:
    cluster = Migrating(1)
    kind = s.request_type(s.ENVELOPE, 0)
    whole = envelope(s.CREATE_TOPICS, 7, creation()).body
    for broken in (
        kind(request_data=b"", request_principal=None, client_host_address=bytes(4)),
        kind(
            request_data=bytes(whole.request_data),
            request_principal=b"\0\1x",
            client_host_address=bytes(4),
        ),
        kind(
            request_data=bytes(whole.request_data),
            request_principal=None,
            client_host_address=b"abc",
        ),
        kind(
            request_data=bytes(whole.request_data)[:-3],
            request_principal=None,
            client_host_address=bytes(4),
        ),
    ):
        response = await forwarded(call(s.ENVELOPE, 0, broken), cluster.answer)
        assert int(response.error_code) == ErrorCode.INVALID_REQUEST
    assert not cluster.committed.topics.ids


async def test_a_broker_says_where_its_replicas_lie() -> None:
    cluster = Migrating(2)
    cluster.ask(r.CreateTopics((r.NewTopic("a", assignments=((1, 2), (2, 1))),)))
    topic_id = cluster.committed.topics.ids["a"]
    exchange = LIFECYCLE[s.ASSIGN_REPLICAS_TO_DIRS]
    m = s.request_module(s.ASSIGN_REPLICAS_TO_DIRS, 0)
    parts = tuple(m.PartitionData(partition_index=index) for index in (0, 1, 5))
    topic = m.TopicData(topic_id=s.uuid_field(topic_id), partitions=parts)
    good = uuid_of(("directory", 1))
    body = m.AssignReplicasToDirsRequest(
        broker_id=1,
        broker_epoch=cluster.epochs[1],
        directories=(m.DirectoryData(id_=s.uuid_field(good), topics=(topic,)),),
    )
    request = call(s.ASSIGN_REPLICAS_TO_DIRS, 0, body)
    response = await answer_bare(exchange, request, cluster.answer, Caller(), NO_QUOTAS)
    s.write(response)
    (directory,) = response.directories
    assert s.uuid_text(directory.id_) == good
    errors = [int(p.error_code) for p in directory.topics[0].partitions]
    assert errors == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert cluster.last == (), "it was known, since each broker has only one"
    other = uuid_of("another")
    moved = r.ReplicaAssignment(other, topic_id, 1)
    cluster.ask(r.AssignReplicasToDirs(1, cluster.epochs[1], (moved,)))
    partition = cluster.committed.topics.partition(topic_id, 1)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch, partition.isr) == (2, 1, (2,))
    refused = await answer_bare(exchange, request, elsewhere, Caller(), NO_QUOTAS)
    assert (int(refused.error_code), refused.directories) == (ErrorCode.NOT_CONTROLLER, ())


async def test_a_broker_in_zookeeper_mode_registers_while_a_migration_is_under_way() -> None:
    cluster = Migrating()
    exchange = LIFECYCLE[s.BROKER_REGISTRATION]
    module = s.request_module(s.BROKER_REGISTRATION, 4)
    body = module.BrokerRegistrationRequest(
        broker_id=1,
        cluster_id="",
        incarnation_id=s.uuid_field(uuid_of("life")),
        listeners=(module.Listener(name="PLAINTEXT", host="h", port=9, security_protocol=0),),
        features=(
            module.Feature(
                name="metadata.version", min_supported_version=21, max_supported_version=21
            ),
        ),
        rack=None,
        is_migrating_zk_broker=True,
        log_dirs=(s.uuid_field(uuid_of("disk")),),
    )
    request = call(s.BROKER_REGISTRATION, 4, body)
    response = await answer_bare(exchange, request, cluster.answer, Caller(), NO_QUOTAS)
    assert int(response.error_code) == 0
    broker = cluster.committed.cluster.brokers[1]
    assert broker.is_migrating_zk_broker
    assert response.broker_epoch == broker.broker_epoch
    cluster.state(ZkMigrationState.POST_MIGRATION)
    response = await answer_bare(exchange, request, cluster.answer, Caller(), NO_QUOTAS)
    assert int(response.error_code) == ErrorCode.BROKER_ID_NOT_REGISTERED
    cluster.state(ZkMigrationState.PRE_MIGRATION)
    answer = cluster.register(2, is_migrating_zk_broker=False)
    assert answer.error is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert "pre-migration" in answer.message
    refused = await answer_bare(exchange, request, elsewhere, Caller(), NO_QUOTAS)
    assert int(refused.error_code) == ErrorCode.NOT_CONTROLLER
