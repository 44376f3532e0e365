"""Requests of administrators that connect to a controller: the quorum's own, and descriptions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
from quorate.bridge.bridge import BARE
from quorate.bridge.framing.frames import Decoder
from quorate.bridge.messages import schemas as s
from quorate.bridge.requests.exchange import answer_bare
from quorate.bridge.requests.forwarding import FORWARDED, answer_envelope
from quorate.bridge.requests.quorum_requests import QuorumRequests
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.metadata import describe
from quorate.metadata import requests as r
from quorate.metadata.acls import CLUSTER_NAME, LITERAL
from quorate.metadata.authorizer import AclAuthorizer, Operation, ResourceType
from quorate.raft.types import ReplicaKey
from quorate.rpc.errors import BadMessageError
from quorate.rpc.principals import Caller
from quorate.rpc.wire.convert_metadata import MetadataAnswer
from quorate.runtime.authorizer import NodeAuthorizer

from tests.unit.bridge.bridge_support import LEADER, NO_QUOTAS, call, envelope, uuid_of
from tests.unit.metadata.metadata_support import Cluster
from tests.unit.runtime.replicas import CLUSTER, Replica, alone

ADMIN = "User:admin"
MISMATCHED, UNSUPPORTED = 114, 115
"""Kafka's MISMATCHED_ENDPOINT_TYPE and UNSUPPORTED_ENDPOINT_TYPE."""


class Controller:
    """The requests of one controller. is_active: whether it is the active controller."""

    def __init__(
        self, replica: Replica, level: int = 29, authorizer: NodeAuthorizer | None = None
    ) -> None:
        self.cluster = Cluster(level=level)
        self.is_active = True
        self.kafka_replicas: Iterable[ReplicaKey] = ()
        self.requests = QuorumRequests(
            replica.driver,
            self._handle,
            lambda read: describe.answer(self.cluster.committed, read),
            authorizer,
            node_id=1,
            cluster_id=CLUSTER,
            listener="KAFKA",
            serves_voters=False,
            kafka_replicas=lambda: set(self.kafka_replicas),
            image=lambda: self.cluster.committed,
        )

    async def _handle(self, request: Any, _timeout_ms: int) -> MetadataAnswer:
        if not self.is_active:
            return MetadataAnswer(ErrorCode.NOT_CONTROLLER, LEADER)
        if isinstance(request, r.Read):
            found: Any = describe.answer(self.cluster.committed, request)
        else:
            found = self.cluster.ask(request)
        return MetadataAnswer(ErrorCode.NONE, LEADER, found)

    async def ask(self, request: Any, timeout_ms: int, caller: Caller) -> MetadataAnswer:
        if self.requests.answers(request):
            return await self.requests.ask(request, timeout_ms, caller)
        return await self._handle(request, timeout_ms)

    async def answer(
        self, key: int, body: Any, version: int | None = None, caller: str = ADMIN
    ) -> Any:
        """The response to a request, as the client reads it."""
        version = s.SERVED[key][1] if version is None else version
        made = await answer_bare(
            BARE[key], call(key, version, body), self.ask, Caller(caller, "10.0.0.7"), NO_QUOTAS
        )
        return s.read_response(key, version, s.write_response(1, made))[1]

    def register(self, node_id: int) -> None:
        answer = self.cluster.ask(
            r.RegisterController(
                node_id,
                uuid_of(node_id),
                (Endpoint("CONTROLLER", "grpc", 1), Endpoint("KAFKA", f"host-{node_id}", 9093)),
                (r.ControllerFeature("metadata.version", VersionRange(7, 30)),),
                (0, 0),
            )
        )
        assert answer.error is ErrorCode.NONE, answer


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Replica]:
    async with alone(tmp_path) as made:
        yield made


@pytest.fixture
def controller(replica: Replica) -> Controller:
    made = Controller(replica)
    made.cluster.ask(r.UpdateFeatures((r.FeatureUpdate("group.version", 1),)))
    return made


# --- DescribeCluster ------------------------------------------------------------------------------


def description(version: int, **fields: Any) -> Any:
    return s.make(
        s.request_type(s.DESCRIBE_CLUSTER, version),
        include_cluster_authorized_operations=True,
        include_fenced_brokers=False,
        **fields,
    )


@pytest.mark.parametrize("version", [1, 2])
async def test_the_controllers_are_listed_with_the_endpoints_of_this_listener(
    controller: Controller, version: int
) -> None:
    controller.register(2)
    controller.register(7)
    found = await controller.answer(
        s.DESCRIBE_CLUSTER, description(version, endpoint_type=2), version
    )
    assert (int(found.error_code), found.endpoint_type) == (0, 2)
    assert (found.cluster_id, found.controller_id) == (CLUSTER, 1)
    assert [(b.broker_id, b.host, b.port) for b in found.brokers] == [
        (2, "host-2", 9093),
        (7, "host-7", 9093),
    ]
    assert found.cluster_authorized_operations == sum(
        1 << each for each in (5, 7, 8, 9, 10, 11, 12)
    )


@pytest.mark.parametrize(
    ("version", "fields", "error"),
    [
        (0, {}, int(ErrorCode.INVALID_REQUEST)),
        (1, {"endpoint_type": 1}, MISMATCHED),
        (2, {"endpoint_type": 1}, MISMATCHED),
        (2, {"endpoint_type": 3}, UNSUPPORTED),
    ],
)
async def test_brokers_are_not_described(
    controller: Controller, version: int, fields: dict[str, Any], error: int
) -> None:
    found = await controller.answer(s.DESCRIBE_CLUSTER, description(version, **fields), version)
    assert (int(found.error_code), found.brokers) == (error, ())
    assert "endpoint" in found.error_message


async def test_below_the_registration_of_controllers_nothing_is_described(
    replica: Replica,
) -> None:
    controller = Controller(replica, level=14)
    controller.cluster.ask(r.UpdateFeatures((r.FeatureUpdate("metadata.version", 14),)))
    controller.cluster.ask(r.CreateTopics((r.NewTopic("refused"),)))
    assert controller.cluster.committed.features.metadata_version == 14
    found = await controller.answer(s.DESCRIBE_CLUSTER, description(2, endpoint_type=2))
    assert int(found.error_code) == ErrorCode.UNSUPPORTED_VERSION


async def test_without_rights_nothing_is_described_and_no_voter_is_changed(
    replica: Replica,
) -> None:
    acls = AclAuthorizer(("User:super",))
    authorizer = NodeAuthorizer(authorizer=acls)
    controller = Controller(replica, authorizer=authorizer)
    cluster = controller.cluster

    class Loaded:
        """The loader of a node that has caught up."""

        image = cluster.committed
        has_caught_up = True

        def add_listener(self, _listener: Any) -> None:
            pass

    right = r.Acl(ResourceType.CLUSTER, CLUSTER_NAME, LITERAL, ADMIN, "*", Operation.ALTER, 3)
    cluster.ask(r.CreateAcls((right,)))
    authorizer.follow(Loaded())  # type: ignore[arg-type]
    body = description(2, endpoint_type=2)
    found = await controller.answer(s.DESCRIBE_CLUSTER, body)
    assert int(found.error_code) == 0
    assert found.cluster_authorized_operations == 1 << Operation.ALTER | 1 << Operation.DESCRIBE
    for key, request in (
        (s.DESCRIBE_CLUSTER, body),
        (s.ADD_RAFT_VOTER, addition()),
        (s.REMOVE_RAFT_VOTER, removal(1, uuid_of(1))),
        (s.UPDATE_FEATURES, update(("kraft.version", 1))),
    ):
        found = await controller.answer(key, request, caller="User:mallory")
        assert int(found.error_code) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED, key
    described = await controller.answer(s.DESCRIBE_CONFIGS, configs((4, "1")), caller=ADMIN)
    assert [int(e.error_code) for e in described.results] == [
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    ]
    assert described.results[0].configs == ()


# --- voters ---------------------------------------------------------------------------------------


def addition(node_id: int = 9, **fields: Any) -> Any:
    module = s.request_module(s.ADD_RAFT_VOTER, 1)
    return module.AddRaftVoterRequest(
        **{
            "cluster_id": CLUSTER,
            "timeout": s.milliseconds(200),
            "voter_id": node_id,
            "voter_directory_id": s.uuid_field(uuid_of(node_id)),
            "listeners": (module.Listener(name="CONTROLLER", host="127.0.0.1", port=9),),
            "ack_when_committed": True,
            **fields,
        }
    )


def removal(node_id: int, directory: str) -> Any:
    return s.request_type(s.REMOVE_RAFT_VOTER, 0)(
        cluster_id=CLUSTER, voter_id=node_id, voter_directory_id=s.uuid_field(directory)
    )


async def test_a_controller_of_kafka_is_refused_as_a_voter_at_once(controller: Controller) -> None:
    controller.kafka_replicas = (ReplicaKey(9, uuid_of(9)),)
    found = await controller.answer(s.ADD_RAFT_VOTER, addition(timeout=s.milliseconds(60_000)))
    assert int(found.error_code) == ErrorCode.INVALID_REQUEST
    assert "runs Kafka" in found.error_message
    assert "CONTROLLER://127.0.0.1:9" in found.error_message


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"voter_id": -1}, ErrorCode.INVALID_REQUEST),
        ({"listeners": ()}, ErrorCode.INVALID_REQUEST),
        ({"voter_directory_id": None}, ErrorCode.INVALID_REQUEST),
        ({}, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
async def test_the_quorum_checks_an_addition(
    controller: Controller, fields: dict[str, Any], error: ErrorCode
) -> None:
    found = await controller.answer(s.ADD_RAFT_VOTER, addition(**fields))
    assert int(found.error_code) == error, found


async def test_endpoints_of_a_voter_are_limited(controller: Controller) -> None:
    module = s.request_module(s.ADD_RAFT_VOTER, 1)
    for count, host in ((9, "h"), (1, "h" * 256), (1, "")):
        listeners = (module.Listener(name="A", host=host, port=1),) * count
        found = await controller.answer(s.ADD_RAFT_VOTER, addition(listeners=listeners))
        assert int(found.error_code) == ErrorCode.INVALID_REQUEST, (count, host)


async def test_a_removal_reaches_the_quorum_also_in_an_envelope(controller: Controller) -> None:
    body = removal(5, uuid_of(5))
    found = await controller.answer(s.REMOVE_RAFT_VOTER, body)
    assert int(found.error_code) == ErrorCode.VOTER_NOT_FOUND
    decoder = Decoder()
    outer = await answer_envelope(
        envelope(s.REMOVE_RAFT_VOTER, 0, body), controller.ask, decoder.call, NO_QUOTAS
    )
    decoder.close()
    assert int(outer.error_code) == 0
    _, inner = s.read_response(s.REMOVE_RAFT_VOTER, 0, bytes(outer.response_data))
    assert int(inner.error_code) == ErrorCode.VOTER_NOT_FOUND
    assert s.REMOVE_RAFT_VOTER in FORWARDED


# --- features -------------------------------------------------------------------------------------


def update(*levels: tuple[str, int], version: int = 2, kind: int = 1, **fields: Any) -> Any:
    module = s.request_module(s.UPDATE_FEATURES, version)
    return s.make(
        module.UpdateFeaturesRequest,
        timeout=s.milliseconds(500),
        feature_updates=tuple(
            s.make(
                module.FeatureUpdateKey,
                feature=name,
                max_version_level=level,
                upgrade_type=kind,
                allow_downgrade=kind > 1,
            )
            for name, level in levels
        ),
        **fields,
    )


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_finalized_level_of_kraft_version_changes_nothing(
    controller: Controller, version: int
) -> None:
    body = update(
        ("kraft.version", 1), ("transaction.version", 2), version=version, validate_only=False
    )
    found = await controller.answer(s.UPDATE_FEATURES, body, version)
    assert int(found.error_code) == 0, found
    if version < 2:
        assert {(e.feature, int(e.error_code)) for e in found.results} == {
            ("kraft.version", 0),
            ("transaction.version", 0),
        }
    assert controller.cluster.committed.features.levels["transaction.version"] == 2


async def test_one_refused_feature_refuses_all_of_them(controller: Controller) -> None:
    for refused, text in (
        ((("kraft.version", 0),), "Can't downgrade the version"),
        ((("kraft.version", 2),), "only supports versions"),
        ((("share.version", 9),), "only supports versions"),
    ):
        body = update(("transaction.version", 2), *refused, kind=1)
        found = await controller.answer(s.UPDATE_FEATURES, body)
        assert int(found.error_code) != 0, refused
        assert found.error_message.startswith("The update failed for all features since")
        assert text in found.error_message
        assert "transaction.version" not in controller.cluster.committed.features.levels


async def test_the_last_update_of_a_feature_that_is_named_twice_counts(
    controller: Controller,
) -> None:
    levels = (("transaction.version", 9), ("transaction.version", 2))
    body = update(*levels, version=1, validate_only=False)
    found = await controller.answer(s.UPDATE_FEATURES, body, 1)
    assert int(found.error_code) == 0
    assert [each.feature for each in found.results] == ["transaction.version"] * 2
    assert controller.cluster.committed.features.levels["transaction.version"] == 2


async def test_a_validation_changes_nothing(controller: Controller) -> None:
    body = update(("transaction.version", 2), ("kraft.version", 1), validate_only=True)
    assert int((await controller.answer(s.UPDATE_FEATURES, body)).error_code) == 0
    assert "transaction.version" not in controller.cluster.committed.features.levels


async def test_a_controller_that_is_not_active_updates_no_feature(controller: Controller) -> None:
    controller.is_active = False
    body = update(("transaction.version", 2), ("kraft.version", 1))
    found = await controller.answer(s.UPDATE_FEATURES, body)
    assert int(found.error_code) == ErrorCode.NOT_CONTROLLER


async def test_features_are_listed_with_their_levels(controller: Controller) -> None:
    features, epoch = controller.requests.features()
    levels = {feature.name: feature.finalized_level for feature in features}
    assert (levels["kraft.version"], levels["metadata.version"]) == (1, 29)
    assert levels["group.version"] == 1
    assert epoch == controller.cluster.committed.offset
    controller.cluster.ask(r.UpdateFeatures((r.FeatureUpdate("application.version", 1),)))
    assert controller.cluster.committed.features.application_version == 1
    later, _ = controller.requests.features()
    assert [f.name for f in later] == [f.name for f in features], "Kafka does not know it"
    assert "application.version" not in levels


# --- configurations -------------------------------------------------------------------------------


def configs(*resources: tuple[int, str], names: tuple[str, ...] | None = None) -> Any:
    module = s.request_module(s.DESCRIBE_CONFIGS, 4)
    return module.DescribeConfigsRequest(
        resources=tuple(
            module.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=names
            )
            for kind, name in resources
        ),
        include_synonyms=True,
        include_documentation=True,
    )


def changed(kind: int, name: str, config: str, value: str) -> r.IncrementalAlterConfigs:
    change = r.ConfigChange(r.ConfigResource(kind, name), (r.ConfigOp(config, value),))
    return r.IncrementalAlterConfigs((change,))


@pytest.mark.parametrize("is_active", [True, False])
async def test_a_controller_describes_itself_and_the_defaults(
    controller: Controller, is_active: bool
) -> None:
    controller.register(1)
    controller.cluster.ask(changed(4, "", "max.connections", "7"))
    controller.cluster.ask(changed(4, "1", "max.connections", "5"))
    controller.cluster.ask(changed(4, "1", "ssl.keystore.password", "secret"))
    controller.is_active = is_active
    found = await controller.answer(s.DESCRIBE_CONFIGS, configs((4, "1"), (4, ""), (4, "2")))
    own, default, other = found.results
    values = {each.name: each for each in own.configs}
    limit = values["max.connections"]
    assert (limit.value, limit.config_source, limit.config_type) == ("5", 2, 3)
    assert [(e.name, e.value, e.source) for e in limit.synonyms] == [
        ("max.connections", "5", 2),
        ("max.connections", "7", 3),
        ("max.connections", "2147483647", 5),
    ]
    assert values["background.threads"].config_source == 5
    password = values["ssl.keystore.password"]
    assert (password.value, password.is_sensitive) == (None, True)
    assert [(e.name, e.value, e.config_source) for e in default.configs] == [
        ("max.connections", "7", 3)
    ]
    assert int(other.error_code) == ErrorCode.INVALID_REQUEST
    assert "expected 1 or empty string" in other.error_message


async def test_a_topic_is_described_with_the_defaults_of_the_cluster(
    controller: Controller,
) -> None:
    controller.cluster.start_broker(1)
    controller.cluster.ask(r.CreateTopics((r.NewTopic("a", 1, 1),)))
    controller.cluster.ask(changed(2, "a", "cleanup.policy", "compact"))
    controller.cluster.ask(changed(4, "", "log.retention.ms", "5"))
    names = ("cleanup.policy", "retention.ms", "no.such.config")
    found = await controller.answer(
        s.DESCRIBE_CONFIGS, configs((2, "a"), (2, "b"), (32, ""), (99, "x"), names=names)
    )
    topic, missing, group, unknown = found.results
    assert [(e.name, e.value, e.config_source) for e in topic.configs] == [
        ("cleanup.policy", "compact", 1),
        ("retention.ms", "5", 3),
    ]
    assert int(missing.error_code) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert int(group.error_code) == int(unknown.error_code) == ErrorCode.INVALID_REQUEST


async def test_a_request_for_nothing_describes_nothing(controller: Controller) -> None:
    controller.cluster.ask(changed(4, "", "max.connections", "7"))
    found = await controller.answer(s.DESCRIBE_CONFIGS, configs())
    assert found.results == ()


def test_a_description_of_too_many_resources_is_not_decoded() -> None:
    with pytest.raises(BadMessageError, match="more than 1000 items"):
        call(s.DESCRIBE_CONFIGS, 4, configs(*[(32, str(index)) for index in range(1_001)]))


# --- ACLs and credentials -------------------------------------------------------------------------


async def test_acls_and_credentials_are_described(controller: Controller) -> None:
    controller.is_active = False
    kind = s.request_type(s.DESCRIBE_ACLS, 3)
    chosen = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    cluster = controller.cluster
    cluster.ask(
        r.CreateAcls(tuple(r.Acl(2, "orders", 3, f"User:{name}", "*", 3, 3) for name in ("a", "b")))
    )
    found = await controller.answer(s.DESCRIBE_ACLS, kind(**chosen))
    (resource,) = found.resources
    assert (resource.resource_name, [a.principal for a in resource.acls]) == (
        "orders",
        ["User:a", "User:b"],
    )
    found = await controller.answer(s.DESCRIBE_ACLS, kind(**{**chosen, "operation": 99}))
    assert int(found.error_code) == ErrorCode.INVALID_REQUEST

    cluster.ask(
        r.AlterUserScramCredentials((r.ScramUpsertion("u", 1, 4096, b"s" * 16, b"p" * 32),))
    )
    scram = s.request_type(s.DESCRIBE_USER_SCRAM_CREDENTIALS, 0)
    for users in (None, ()):
        found = await controller.answer(s.DESCRIBE_USER_SCRAM_CREDENTIALS, scram(users=users))
        (user,) = found.results
        assert (user.user, user.credential_infos[0].iterations) == ("u", 4096)


# --- AlterConfigs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_alter_configs_replaces_what_was_set(controller: Controller, version: int) -> None:
    module = s.request_module(s.ALTER_CONFIGS, version)
    controller.cluster.ask(changed(4, "", "max.connections", "7"))

    def body(name: str, value: str | None, *, validate_only: bool = False) -> Any:
        return module.AlterConfigsRequest(
            resources=(
                module.AlterConfigsResource(
                    resource_type=4,
                    resource_name="",
                    configs=(module.AlterableConfig(name=name, value=value),),
                ),
            ),
            validate_only=validate_only,
        )

    def current() -> dict[str, str]:
        return dict(controller.cluster.committed.configs.of(4, ""))

    for request, error in (
        (body("background.threads", "5", validate_only=True), 0),
        (body("background.threads", None), ErrorCode.INVALID_REQUEST),
        (body("background.threads", "x"), ErrorCode.INVALID_CONFIG),
    ):
        found = await controller.answer(s.ALTER_CONFIGS, request, version)
        assert [int(each.error_code) for each in found.responses] == [error]
        assert current() == {"max.connections": "7"}
    await controller.answer(s.ALTER_CONFIGS, body("background.threads", "5"), version)
    assert current() == {"background.threads": "5"}
