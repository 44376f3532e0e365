"""Configurations, quotas, SCRAM users, ACLs and features: what is done and what is refused."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest
from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.metadata import requests as r
from quorate.metadata.config import config_defs
from quorate.metadata.config.config_types import ConfigKey, ConfigKeyType
from quorate.metadata.metadata_version import LATEST_LEVEL, SUPPORTED
from quorate.metadata.settings import ControllerSettings
from quorate.records import metadata as rec

from tests.unit.metadata.metadata_support import FEATURES, Cluster

E = ErrorCode
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
ELR = "eligible.leader.replicas.version"


def alter(
    cluster: Cluster, kind: int, name: str, *ops: tuple[Any, ...], **fields: Any
) -> ErrorCode:
    change = r.ConfigChange(r.ConfigResource(kind, name), tuple(r.ConfigOp(*op) for op in ops))
    answer = cluster.ask(r.IncrementalAlterConfigs((change,), **fields))
    error: ErrorCode = answer.resources[0].error
    assert bool(answer.resources[0].message) == (error is not E.NONE)
    return error


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster(2)
    made.create("t", (1, 2))
    return made


# --- configurations -------------------------------------------------------------------------------


def test_setting_and_deleting(cluster: Cluster) -> None:
    assert alter(cluster, TOPIC, "t", ("retention.ms", "5"), ("segment.ms", "6")) is E.NONE
    assert cluster.committed.configs.of(TOPIC, "t") == {"retention.ms": "5", "segment.ms": "6"}
    assert alter(cluster, TOPIC, "t", ("retention.ms", "5"), ("segment.ms", None, 1)) is E.NONE
    assert len(cluster.last) == 1, "what stays as it is needs no record"
    assert cluster.committed.configs.of(TOPIC, "t") == {"retention.ms": "5"}
    assert alter(cluster, TOPIC, "t", ("retention.ms", "7"), validate_only=True) is E.NONE
    assert cluster.last == ()


def test_lists_grow_and_shrink(cluster: Cluster) -> None:
    def value() -> str | None:
        return cluster.committed.configs.of(TOPIC, "t").get("cleanup.policy")

    assert alter(cluster, TOPIC, "t", ("cleanup.policy", "compact", 2)) is E.NONE
    assert value() == "delete,compact"
    assert alter(cluster, TOPIC, "t", ("cleanup.policy", "delete", 3)) is E.NONE
    assert value() == "compact"
    assert alter(cluster, TOPIC, "t", ("cleanup.policy", "compact", 2)) is E.NONE
    assert cluster.last == ()
    assert alter(cluster, TOPIC, "t", ("retention.ms", "5", 2)) is E.INVALID_CONFIG


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.thing", "1"),
        ("retention.ms", "x"),
        ("retention.ms", "-2"),
        ("retention.ms", ""),
        ("retention.ms", "1.5"),
        ("retention.ms", str(2**63)),
        ("max.message.bytes", str(2**31)),
        ("max.message.bytes", "-1"),
        ("min.insync.replicas", "0"),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", "compact,"),
        ("cleanup.policy", ","),
        ("compression.type", "rar"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "-0.1"),
        ("preallocate", "maybe"),
        ("message.timestamp.type", "Now"),
        ("segment.bytes", "1000"),
        ("leader.replication.throttled.replicas", "1-2"),
        ("max.compaction.lag.ms", "0"),
        ("remote.storage.enable", "true"),
        ("flush.ms", "9" * 40_000),
        ("flush.ms", "9" * 5_000),
    ],
)
def test_topics_take_only_known_configs_with_good_values(
    cluster: Cluster, name: str, value: str
) -> None:
    assert alter(cluster, TOPIC, "t", (name, value)) is E.INVALID_CONFIG
    assert cluster.last == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"),
        ("retention.ms", " 5 "),
        ("cleanup.policy", "compact, delete"),
        ("cleanup.policy", "compact,compact"),
        ("compression.gzip.level", "-1"),
        ("compression.gzip.level", "9"),
        ("min.cleanable.dirty.ratio", "0.25"),
        ("preallocate", "TRUE"),
        ("leader.replication.throttled.replicas", "0:1,1:2"),
        ("leader.replication.throttled.replicas", "*"),
    ],
)
def test_good_values(cluster: Cluster, name: str, value: str) -> None:
    assert alter(cluster, TOPIC, "t", (name, value)) is E.NONE


def test_values_that_contradict_each_other(cluster: Cluster) -> None:
    lags = (("min.compaction.lag.ms", "9"), ("max.compaction.lag.ms", "8"))
    assert alter(cluster, TOPIC, "t", *lags) is E.INVALID_CONFIG
    assert alter(cluster, TOPIC, "t", lags[0]) is E.NONE
    assert alter(cluster, TOPIC, "t", lags[1]) is E.INVALID_CONFIG


def test_every_default_is_a_good_value() -> None:
    for table in (
        config_defs.TOPIC,
        config_defs.BROKER,
        config_defs.GROUP,
        config_defs.APPLICATION,
    ):
        for definition in table.values():
            assert definition.default is None or definition.fault(definition.default) is None


def test_secrets_are_not_told_in_messages() -> None:
    fault = ConfigKey("p", ConfigKeyType.PASSWORD, None, choices=("a",)).fault("secret")
    assert fault is not None
    assert "secret" not in fault


@pytest.mark.parametrize(
    ("kind", "name", "ops", "error"),
    [
        (TOPIC, "nobody", (("retention.ms", "1"),), E.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", (("retention.ms", "1"),), E.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "t", (("retention.ms", "1"), ("retention.ms", "2")), E.INVALID_REQUEST),
        (TOPIC, "t", (("retention.ms", None),), E.INVALID_REQUEST),
        (TOPIC, "t", (("retention.ms", "1", 9),), E.INVALID_REQUEST),
        (TOPIC, "t", (("", "1"),), E.INVALID_REQUEST),
        (BROKER, "x", (("num.io.threads", "1"),), E.INVALID_REQUEST),
        (BROKER, "9", (("num.io.threads", "1"),), E.BROKER_ID_NOT_REGISTERED),
        (BROKER, "1", (("num.io.threads", "0"),), E.INVALID_CONFIG),
        (BROKER, "1", (("node.id", "5"),), E.INVALID_CONFIG),
        (BROKER, "", (("listeners", "PLAINTEXT://:9092"),), E.INVALID_CONFIG),
        (BROKER, "", (("listener.name.x.ssl.keystore.type", "PEM"),), E.INVALID_CONFIG),
        (BROKER, "1", (("listener.name.x.ssl.client.auth", "never"),), E.INVALID_CONFIG),
        (CLIENT_METRICS, "", (("interval.ms", "1000"),), E.INVALID_REQUEST),
        (CLIENT_METRICS, "s", (("interval.ms", "1"),), E.INVALID_REQUEST),
        (CLIENT_METRICS, "s", (("interval.ms", "x"),), E.INVALID_CONFIG),
        (CLIENT_METRICS, "s", (("nope", "1"),), E.INVALID_REQUEST),
        (CLIENT_METRICS, "s", (("match", "color=red"),), E.INVALID_CONFIG),
        (GROUP, "", (("consumer.session.timeout.ms", "1"),), E.INVALID_REQUEST),
        (GROUP, "g", (("nothing", "1"),), E.INVALID_CONFIG),
        (8, "1", (("kafka", "INFO"),), E.UNSUPPORTED_VERSION),
        (77, "x", (), E.UNSUPPORTED_VERSION),
        (77, "x", (("retention.ms", "1", 2),), E.UNSUPPORTED_VERSION),
        (CLIENT_METRICS, "s", (("metrics", "a", 2),), E.INVALID_CONFIG),
        (TOPIC, "nobody", (("retention.ms", "x"),), E.INVALID_CONFIG),
        (TOPIC, "x y", (("retention.ms", "1", 2),), E.INVALID_CONFIG),
        (TOPIC, "x y", (("retention.ms", "1"),), E.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_changes_that_are_refused(
    cluster: Cluster, kind: int, name: str, ops: Any, error: ErrorCode
) -> None:
    assert alter(cluster, kind, name, *ops) is error
    assert cluster.last == ()


@pytest.mark.parametrize(
    ("kind", "name", "ops"),
    [
        (BROKER, "1", (("num.io.threads", "4"),)),
        (BROKER, "", (("log.cleaner.threads", "2"), ("follower.replication.throttled.rate", "9"))),
        (BROKER, "1", (("listener.name.x.ssl.keystore.type", "PEM"),)),
        (BROKER, "1", (("my.plugin.setting", "anything"),)),
        (CLIENT_METRICS, "s", (("interval.ms", "1000"), ("match", "client_id=x.*"))),
        (GROUP, "g", (("consumer.session.timeout.ms", "50000"),)),
    ],
)
def test_changes_that_are_done(cluster: Cluster, kind: int, name: str, ops: Any) -> None:
    assert alter(cluster, kind, name, *ops) is E.NONE
    assert len(cluster.committed.configs.of(kind, name)) == len(ops)


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (CLIENT_METRICS, "", "Subscription name can't be empty"),
        (GROUP, "", "Default group resources are not allowed."),
        (CLIENT_METRICS, "x" * 40_000, "The resource name is longer than a record can hold."),
        (GROUP, "x" * 40_000, "The resource name is longer than a record can hold."),
        (TOPIC, "", "Default topic resources are not allowed."),
        (BROKER, "x y", "Unable to parse broker name as a base 10 number."),
        (BROKER, "2147483648", "Unable to parse broker name as a base 10 number."),
        (BROKER, "-1", "Invalid negative broker ID."),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else str(value),
)
def test_the_error_says_what_is_wrong_with_a_resource_name(
    cluster: Cluster, kind: int, name: str, message: str
) -> None:
    change = r.ConfigChange(r.ConfigResource(kind, name), ())
    (part,) = cluster.ask(r.IncrementalAlterConfigs((change,))).resources
    assert (part.error, part.message) == (E.INVALID_REQUEST, message)


@pytest.mark.parametrize("level", [29, 30])
def test_directories_can_be_cordoned_from_4_3_on(level: int) -> None:
    cluster = Cluster(1, level=level)
    change = r.ConfigChange(
        r.ConfigResource(BROKER, "1"), (r.ConfigOp("cordoned.log.dirs", "/disk"),)
    )
    (outcome,) = cluster.ask(r.IncrementalAlterConfigs((change,))).resources
    if level == 30:
        assert outcome.error is ErrorCode.NONE, outcome
    else:
        assert outcome.error is ErrorCode.INVALID_CONFIG
        assert "requires metadata.version >= 4.3-IV0" in outcome.message


def test_one_resource_twice(cluster: Cluster) -> None:
    change = r.ConfigChange(r.ConfigResource(TOPIC, "t"), (r.ConfigOp("retention.ms", "5"),))
    answer = cluster.ask(r.IncrementalAlterConfigs((change, change)))
    assert [part.error for part in answer.resources] == [E.INVALID_REQUEST]


# --- quotas ---------------------------------------------------------------------------------------


def quota(cluster: Cluster, entity: Any, *ops: tuple[str, float | None]) -> ErrorCode:
    change = r.QuotaChange(entity, tuple(r.QuotaOp(*op) for op in ops))
    answer = cluster.ask(r.AlterClientQuotas((change,)))
    error: ErrorCode = answer.entries[0].error
    return error


def test_quotas(cluster: Cluster) -> None:
    entity = (("user", "u"), ("client-id", None))
    assert (
        quota(cluster, entity, ("producer_byte_rate", 5.0), ("request_percentage", 2.5)) is E.NONE
    )
    key = (("client-id", None), ("user", "u"))
    assert cluster.committed.quotas.entities[key] == {
        "producer_byte_rate": 5.0,
        "request_percentage": 2.5,
    }
    assert quota(cluster, entity, ("producer_byte_rate", 5.0)) is E.NONE
    assert cluster.last == ()
    assert quota(cluster, entity, ("producer_byte_rate", None)) is E.NONE
    assert quota(cluster, entity, ("consumer_byte_rate", None)) is E.NONE
    assert cluster.last == (), "there is none to remove"
    assert quota(cluster, entity, ("request_percentage", None)) is E.NONE
    assert cluster.committed.quotas.entities == {}


@pytest.mark.parametrize(
    ("entity", "op"),
    [
        ((), ("producer_byte_rate", 1.0)),
        ((("planet", "x"),), ("producer_byte_rate", 1.0)),
        ((("user", ""),), ("producer_byte_rate", 1.0)),
        ((("user", "x"), ("user", "y")), ("producer_byte_rate", 1.0)),
        ((("ip", "1.2.3.4"), ("user", "y")), ("connection_creation_rate", 1.0)),
        ((("user", "x"),), ("connection_creation_rate", 1.0)),
        ((("ip", "1.2.3.4"),), ("producer_byte_rate", 1.0)),
        ((("user", "x"),), ("colour", 1.0)),
        ((("user", "x"),), ("producer_byte_rate", 1.5)),
        ((("user", "x"),), ("producer_byte_rate", -1.0)),
        ((("user", "x"),), ("request_percentage", float("nan"))),
        ((("user", "x"),), ("producer_byte_rate", float("inf"))),
        ((("user", "x" * 40_000),), ("producer_byte_rate", 1.0)),
    ],
    ids=lambda value: str(value)[:40],
)
def test_quotas_that_are_refused(cluster: Cluster, entity: Any, op: Any) -> None:
    assert quota(cluster, entity, op) is E.INVALID_REQUEST
    assert cluster.last == ()


# --- SCRAM ----------------------------------------------------------------------------------------


def test_a_scram_credential_holds_what_rfc_5802_derives(cluster: Cluster) -> None:
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 4096)
    upsertion = r.ScramUpsertion("u", 1, 4096, b"salt", salted)
    answer = cluster.ask(r.AlterUserScramCredentials((upsertion,)))
    assert answer.users == (r.PartResult("u"),)
    found = cluster.committed.scram.credentials["u", 1]
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    assert found.stored_key == hashlib.sha256(client_key).digest()
    assert found.server_key == hmac.digest(salted, b"Server Key", "sha256")
    gone = cluster.ask(r.AlterUserScramCredentials((), (r.ScramDeletion("u", 1),)))
    assert gone.users == (r.PartResult("u"),)
    assert cluster.committed.scram.credentials == {}


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"iterations": 4095}, E.UNACCEPTABLE_CREDENTIAL),
        ({"iterations": 16385}, E.UNACCEPTABLE_CREDENTIAL),
        ({"name": ""}, E.UNACCEPTABLE_CREDENTIAL),
        ({"mechanism": 3}, E.UNSUPPORTED_SASL_MECHANISM),
        ({"salted_password": b"short"}, E.UNACCEPTABLE_CREDENTIAL),
        ({"salt": b""}, E.UNACCEPTABLE_CREDENTIAL),
    ],
    ids=str,
)
def test_scram_credentials_that_are_refused(
    cluster: Cluster, fields: dict[str, Any], error: ErrorCode
) -> None:
    values: dict[str, Any] = {
        "name": "u",
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"s",
        "salted_password": b"p" * 32,
    }
    answer = cluster.ask(r.AlterUserScramCredentials((r.ScramUpsertion(**(values | fields)),)))
    assert answer.users[0].error is error
    assert cluster.last == ()


@pytest.mark.parametrize(
    ("name", "mechanism", "message"),
    [
        ("", 1, "Username must not be empty"),
        ("", 0, "Username must not be empty"),
        ("u" * 40_000, 1, "Username is longer than a record can hold"),
    ],
    ids=["empty", "empty and an unknown mechanism", "too long"],
)
def test_the_error_says_what_is_wrong_with_a_username(
    cluster: Cluster, name: str, mechanism: int, message: str
) -> None:
    upsertion = r.ScramUpsertion(name, mechanism, 4096, b"s", b"p" * 32)
    answer = cluster.ask(r.AlterUserScramCredentials((upsertion,)))
    assert answer.users == (r.PartResult(name, E.UNACCEPTABLE_CREDENTIAL, message),)


def test_what_is_wrong_with_one_credential_keeps_the_users_others_as_they_are(
    cluster: Cluster,
) -> None:
    good, bad = r.ScramUpsertion("u", 1, 4096, b"s", b"p" * 32), r.ScramDeletion("u", 2)
    other = r.ScramUpsertion("v", 2, 8192, b"s", b"p" * 64)
    answer = cluster.ask(r.AlterUserScramCredentials((good, other), (bad,)))
    assert {user.name: user.error for user in answer.users} == {
        "u": E.RESOURCE_NOT_FOUND,
        "v": E.NONE,
    }
    assert list(cluster.committed.scram.credentials) == [("v", 2)]
    twice = cluster.ask(r.AlterUserScramCredentials((good, good)))
    assert twice.users == (r.PartResult("u", E.DUPLICATE_RESOURCE, twice.users[0].message),)


def test_scram_needs_a_metadata_version() -> None:
    cluster = Cluster(level=10)
    upsertion = r.ScramUpsertion("u", 1, 4096, b"s", b"p" * 32)
    cluster.register(1, features=(r.BrokerFeature("metadata.version", VersionRange(1, 30)),))
    answer = cluster.ask(r.AlterUserScramCredentials((upsertion,)))
    assert answer.users[0].error is E.UNSUPPORTED_VERSION


# --- ACLs -----------------------------------------------------------------------------------------

READ, WRITE, ALLOW, DENY = 3, 4, 3, 2
LITERAL, PREFIXED, MATCH, ANY = 3, 4, 2, 1
ACLS = (
    r.Acl(2, "orders", LITERAL, "User:a", "*", READ, ALLOW),
    r.Acl(2, "ord", PREFIXED, "User:b", "*", READ, ALLOW),
    r.Acl(2, "*", LITERAL, "User:c", "*", WRITE, DENY),
    r.Acl(3, "orders", LITERAL, "User:a", "1.2.3.4", READ, ALLOW),
    r.Acl(2, "orders", PREFIXED, "User:a", "*", WRITE, ALLOW),
)


def test_acls_are_created_once(cluster: Cluster) -> None:
    answer = cluster.ask(r.CreateAcls((*ACLS, ACLS[0])))
    assert {result.error for result in answer.results} == {E.NONE}
    assert len(cluster.committed.acls.acls) == len(ACLS) == len(cluster.last)
    cluster.ask(r.CreateAcls(ACLS))
    assert cluster.last == ()


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        (r.AclFilter(), {0, 1, 2, 3, 4}),
        (r.AclFilter(resource_type=2), {0, 1, 2, 4}),
        (r.AclFilter(2, "orders"), {0, 4}),
        (r.AclFilter(2, "orders", LITERAL), {0}),
        (r.AclFilter(2, "orders", PREFIXED), {4}),
        (r.AclFilter(2, "orders", MATCH), {0, 1, 2, 4}),
        (r.AclFilter(2, "orders-1", MATCH), {1, 2, 4}),
        (r.AclFilter(2, "*", MATCH), {2}),
        (r.AclFilter(2, "*"), {2}),
        (r.AclFilter(2, None, PREFIXED), {1, 4}),
        (r.AclFilter(2, None, MATCH), {0, 1, 2, 4}),
        (r.AclFilter(principal="User:a"), {0, 3, 4}),
        (r.AclFilter(host="1.2.3.4"), {3}),
        (r.AclFilter(host="*"), {0, 1, 2, 4}),
        (r.AclFilter(operation=READ), {0, 1, 3}),
        (r.AclFilter(operation=2), set()),
        (r.AclFilter(permission_type=DENY), {2}),
    ],
    ids=str,
)
def test_what_filters_match(cluster: Cluster, chosen: r.AclFilter, found: set[int]) -> None:
    cluster.ask(r.CreateAcls(ACLS))
    answer = cluster.ask(r.DeleteAcls((chosen, chosen)))
    assert set(answer.results[0].acls) == {ACLS[n] for n in found}
    assert answer.results[1].acls == answer.results[0].acls, "as in Kafka, of each filter"
    assert len(cluster.committed.acls.acls) == len(ACLS) - len(found)
    assert len(cluster.last) == len(found), "each is removed once"


def test_filters_that_match_the_same_acls_list_a_bounded_number() -> None:
    own = ControllerSettings(
        idle_interval_ms=0, leader_imbalance_check_interval_ms=0, records_per_batch_max=len(ACLS)
    )
    cluster = Cluster(1, settings=own)
    cluster.ask(r.CreateAcls(ACLS))
    answer = cluster.ask(r.DeleteAcls((r.AclFilter(), r.AclFilter())))
    assert [result.error for result in answer.results] == [
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
    ]
    assert len(answer.results[0].acls) == len(ACLS)
    assert not cluster.committed.acls.acls


@pytest.mark.parametrize(
    "acl",
    [
        r.Acl(1, "x", LITERAL, "User:a", "*", READ, ALLOW),
        r.Acl(99, "x", LITERAL, "User:a", "*", READ, ALLOW),
        r.Acl(2, "x", MATCH, "User:a", "*", READ, ALLOW),
        r.Acl(2, "x", LITERAL, "User:a", "*", 1, ALLOW),
        r.Acl(2, "x", LITERAL, "User:a", "*", READ, 1),
        r.Acl(2, "", LITERAL, "User:a", "*", READ, ALLOW),
        r.Acl(4, "x", LITERAL, "User:a", "*", READ, ALLOW),
        r.Acl(2, "x", LITERAL, "nobody", "*", READ, ALLOW),
        r.Acl(2, "x", LITERAL, ":a", "*", READ, ALLOW),
        r.Acl(2, "x", LITERAL, "User:a", "", READ, ALLOW),
        r.Acl(2, "x" * 40_000, LITERAL, "User:a", "*", READ, ALLOW),
    ],
    ids=lambda acl: str(acl)[:60],
)
def test_acls_that_are_refused(cluster: Cluster, acl: r.Acl) -> None:
    answer = cluster.ask(r.CreateAcls((acl,)))
    assert answer.results[0].error is E.INVALID_REQUEST
    assert cluster.last == ()


def test_filters_that_mean_nothing(cluster: Cluster) -> None:
    bad = (
        r.AclFilter(resource_type=0),
        r.AclFilter(pattern_type=0),
        r.AclFilter(operation=0),
        r.AclFilter(permission_type=0),
    )
    answer = cluster.ask(r.DeleteAcls(bad))
    assert {result.error for result in answer.results} == {E.INVALID_REQUEST}


# --- features -------------------------------------------------------------------------------------


def update(cluster: Cluster, *updates: tuple[Any, ...], **fields: Any) -> ErrorCode:
    request = r.UpdateFeatures(tuple(r.FeatureUpdate(*u) for u in updates), **fields)
    answer = cluster.ask(request)
    assert bool(answer.message) == (answer.error is not E.NONE)
    error: ErrorCode = answer.error
    return error


def test_features_go_up_and_down() -> None:
    cluster = Cluster(1, level=26)
    assert update(cluster, ("metadata.version", 27), ("group.version", 1)) is E.NONE
    assert cluster.committed.features.levels == {"metadata.version": 27, "group.version": 1}
    assert update(cluster, ("group.version", 0, 2)) is E.NONE
    assert update(cluster, ("metadata.version", 23, 2)) is E.NONE, "nothing changed since 23"
    assert update(cluster, ("metadata.version", 23)) is E.NONE
    assert cluster.last == (rec.FeatureLevelRecord("metadata.version", 23),), "as Kafka writes it"
    assert update(cluster, ("metadata.version", 30), validate_only=True) is E.NONE
    assert cluster.last == ()


@pytest.mark.parametrize(
    ("updates", "error"),
    [
        ((("metadata.version", 22),), E.INVALID_UPDATE_VERSION),
        ((("metadata.version", 22, 2),), E.INVALID_UPDATE_VERSION),
        ((("metadata.version", 22, 3),), E.INVALID_UPDATE_VERSION),
        ((("metadata.version", 27, 2),), E.INVALID_UPDATE_VERSION),
        ((("metadata.version", LATEST_LEVEL + 1),), E.INVALID_UPDATE_VERSION),
        ((("metadata.version", 0, 3),), E.INVALID_UPDATE_VERSION),
        ((("group.version", 2),), E.INVALID_UPDATE_VERSION),
        ((("no.such.feature", 1),), E.INVALID_UPDATE_VERSION),
        ((("kraft.version", 1),), E.INVALID_UPDATE_VERSION),
        ((("group.version", 1, 0),), E.INVALID_UPDATE_VERSION),
        ((("group.version", 1), ("group.version", 1)), E.INVALID_REQUEST),
        ((("group.version", 1), ("no.such.feature", 1)), E.INVALID_UPDATE_VERSION),
    ],
    ids=str,
)
def test_updates_that_are_refused_are_refused_whole(updates: Any, error: ErrorCode) -> None:
    cluster = Cluster(1, level=26)
    assert update(cluster, *updates) is error
    assert cluster.last == ()


def test_every_node_must_support_a_level() -> None:
    cluster = Cluster(1, level=26)
    old = (r.BrokerFeature("metadata.version", VersionRange(7, 27)),)
    cluster.register(2, features=old)
    assert update(cluster, ("metadata.version", 28)) is E.INVALID_UPDATE_VERSION
    assert update(cluster, ("group.version", 1)) is E.INVALID_UPDATE_VERSION
    assert update(cluster, ("metadata.version", 27)) is E.NONE


def test_eligible_replicas_need_a_metadata_version_and_one_min_isr() -> None:
    cluster = Cluster(1, level=22)
    assert update(cluster, (ELR, 1)) is E.INVALID_UPDATE_VERSION
    alter(cluster, BROKER, "1", ("min.insync.replicas", "3"))
    assert update(cluster, (ELR, 1), ("metadata.version", 30)) is E.NONE
    assert [type(record) for record in cluster.last] == [
        rec.FeatureLevelRecord,
        rec.FeatureLevelRecord,
        rec.ConfigRecord,
        rec.ConfigRecord,
    ]
    assert cluster.committed.configs.of(BROKER, "") == {"min.insync.replicas": "1"}
    assert cluster.committed.configs.of(BROKER, "1") == {}
    assert alter(cluster, BROKER, "1", ("min.insync.replicas", "2")) is E.INVALID_CONFIG
    assert alter(cluster, BROKER, "x y", ("min.insync.replicas", "2")) is E.INVALID_CONFIG
    assert alter(cluster, BROKER, "", ("min.insync.replicas", None, 1)) is E.INVALID_CONFIG
    assert alter(cluster, BROKER, "", ("min.insync.replicas", "2")) is E.NONE
    assert isinstance(cluster.last[-1], rec.ClearElrRecord)
    assert update(cluster, (ELR, 0, 2)) is E.NONE
    assert cluster.last == (rec.FeatureLevelRecord(ELR, 0),), "changes of partitions clear them"


def test_what_is_supported_is_what_kafka_4_3_supports_and_application_version() -> None:
    assert {
        "metadata.version": VersionRange(7, 30),
        ELR: VersionRange(0, 1),
        "application.version": VersionRange(0, 1),
        "group.version": VersionRange(0, 1),
        "share.version": VersionRange(0, 1),
        "streams.version": VersionRange(0, 1),
        "transaction.version": VersionRange(0, 2),
    } == SUPPORTED


# --- texts of errors ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "level", "kind", "text"),
    [
        ("nope", 1, 1, "Invalid update version 1 for feature nope. Local controller 3 does not "),
        ("nope", 0, 2, "Invalid update version 0 for feature nope. Feature nope not found."),
        ("share.version", 9, 1, "share.version. Local controller 3 only supports versions 0-1"),
        ("metadata.version", 29, 2, "Unsupported metadata.version downgrade from 30 to 29. Refus"),
        ("metadata.version", 29, 3, "Unsupported metadata.version downgrade from 30 to 29. Unsaf"),
    ],
)
def test_feature_errors_have_kafkas_texts(name: str, level: int, kind: int, text: str) -> None:
    cluster = Cluster(1, level=30, node_id=3)
    answer = cluster.ask(r.UpdateFeatures((r.FeatureUpdate(name, level, kind),)))
    assert text in answer.message


@pytest.mark.parametrize(
    ("supported", "level", "kind", "text"),
    [
        (VersionRange(0, 0), 2, 1, "Broker 1 does not support this feature."),
        (VersionRange(1, 1), 2, 1, "Broker 1 only supports versions 1"),
        (VersionRange(1, 32_767), 0, 2, "Broker 1 only supports versions 1+"),
    ],
    ids=str,
)
def test_a_broker_that_limits_a_feature_is_named(
    supported: VersionRange, level: int, kind: int, text: str
) -> None:
    cluster = Cluster(level=30)
    features = [each for each in FEATURES if each.name != "transaction.version"]
    if 0 not in supported:
        cluster.start_broker(2)
        cluster.ask(r.UpdateFeatures((r.FeatureUpdate("transaction.version", 1, 1),)))
    cluster.register(1, features=(*features, r.BrokerFeature("transaction.version", supported)))
    answer = cluster.ask(r.UpdateFeatures((r.FeatureUpdate("transaction.version", level, kind),)))
    assert answer.message.endswith(text)


def test_topic_and_quota_errors_have_kafkas_texts(cluster: Cluster) -> None:
    (topic,) = cluster.ask(r.CreateTopics((r.NewTopic("four", 1, 4),))).topics
    assert topic.message.startswith("Unable to replicate the partition 4 time(s): The target repl")
    cluster.ask(r.CreateTopics((r.NewTopic("one", 1, 1),)))
    (grown,) = cluster.ask(r.CreatePartitions((r.NewPartitions("one", 3, ((1,),)),))).topics
    assert "2 additional partition(s), but only 1 assignment(s)" in grown.message
    for key, value, text in (
        ("producer_byte_rate", 0.0, "Quota producer_byte_rate must be greater than 0"),
        ("producer_byte_rate", 1e30, "Proposed value for producer_byte_rate is too large for a LO"),
        ("producer_byte_rate", float("nan"), "producer_byte_rate cannot be NaN."),
    ):
        change = r.QuotaChange((("user", "alice"),), (r.QuotaOp(key, value),))
        (entry,) = cluster.ask(r.AlterClientQuotas((change,))).entries
        assert entry.message.startswith(text)


def test_configs_of_brokers_are_written_although_they_do_not_change(cluster: Cluster) -> None:
    """A broker loads its key store again when the config that names it is written."""
    for _ in range(2):
        assert alter(cluster, BROKER, "1", ("num.io.threads", "4", 0)) is E.NONE
        assert cluster.last == (rec.ConfigRecord(BROKER, "1", "num.io.threads", "4"),)
