"""The admin operations of confluent-kafka and kafka-python that are compared, and the differences.

The test runs them on brokers of Quorate's controllers and of Kafka's, in this order: an operation
finds what those before it have left. docs/compatibility.md is generated from the same tables, which
therefore import the libraries only when an operation runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.wire.compared_clusters import BROKERS

FIRST, SECOND = BROKERS
UNKNOWN: Final = 999
TIMEOUT_S: Final = 30
ERRORS: Final = "errors"
READS: Final = ("describe_", "list_")


@dataclass(frozen=True, slots=True)
class Operation:
    """A call of a method. call: takes the client. subject: what it is about, if the method has
    several; those about ERRORS fail. difference: the reason why the results differ, empty if they
    do not.
    """

    method: str
    subject: str
    call: Callable[[Any], Any]
    difference: str = ""

    @property
    def is_read(self) -> bool:
        """Whether it changes nothing, so that it can be repeated until a change is known."""
        return self.method.startswith(READS)


# --- confluent-kafka ------------------------------------------------------------------------------


def _confluent() -> Any:
    import confluent_kafka.admin

    return confluent_kafka.admin


def _structures() -> Any:
    import confluent_kafka

    return confluent_kafka


def _create(*topics: tuple[Any, ...], **options: Any) -> Callable[[Any], Any]:
    """Each topic: its name, and the arguments of NewTopic besides."""
    return lambda client: client.create_topics(
        [_confluent().NewTopic(name, **more) for name, more in topics], **options
    )


def _more(name: str, count: int, **more: Any) -> Callable[[Any], Any]:
    return lambda client: client.create_partitions(
        [_confluent().NewPartitions(name, count, **more)]
    )


def _resource(kind: str, name: str, **more: Any) -> Any:
    admin = _confluent()
    return admin.ConfigResource(admin.ConfigResource.Type[kind], name, **more)


def _describe_configs(kind: str, name: str) -> Callable[[Any], Any]:
    return lambda client: client.describe_configs([_resource(kind, name)])


def _replace_configs(kind: str, name: str, **configs: str) -> Callable[[Any], Any]:
    named = {each.replace("_", "."): value for each, value in configs.items()}
    return lambda client: client.alter_configs([_resource(kind, name, set_config=named)])


def _alter_configs(kind: str, name: str, *changes: tuple[str, str, str | None]) -> Any:
    """Each change: an operation, a config and its value."""

    def call(client: Any) -> Any:
        admin = _confluent()
        entries = [
            admin.ConfigEntry(
                config, value, incremental_operation=admin.AlterConfigOpType[operation]
            )
            for operation, config, value in changes
        ]
        return client.incremental_alter_configs(
            [_resource(kind, name, incremental_configs=entries)]
        )

    return call


def _acl(principal: str | None, operation: str, name: str | None, *, matches: bool = False) -> Any:
    """A binding that allows an operation on a topic, or a filter for such bindings."""
    admin = _confluent()
    kind = admin.AclBindingFilter if matches else admin.AclBinding
    return kind(
        admin.ResourceType.TOPIC,
        name,
        admin.ResourcePatternType.LITERAL,
        principal,
        None if matches else "*",
        admin.AclOperation[operation],
        admin.AclPermissionType.ALLOW,
    )


def _scram(user: str, iterations: int) -> Callable[[Any], Any]:
    def call(client: Any) -> Any:
        admin = _confluent()
        info = admin.ScramCredentialInfo(admin.ScramMechanism.SCRAM_SHA_256, iterations)
        change = admin.UserScramCredentialUpsertion(user, info, b"secret", b"salt")
        return client.alter_user_scram_credentials([change])

    return call


def _drop_scram(user: str) -> Callable[[Any], Any]:
    def call(client: Any) -> Any:
        admin = _confluent()
        change = admin.UserScramCredentialDeletion(user, admin.ScramMechanism.SCRAM_SHA_256)
        return client.alter_user_scram_credentials([change])

    return call


def _partition(topic: str, number: int, offset: int = -1001) -> Any:
    return _structures().TopicPartition(topic, number, offset)


def _elect(kind: str, *partitions: tuple[str, int]) -> Callable[[Any], Any]:
    return lambda client: client.elect_leaders(
        _structures().ElectionType[kind], [_partition(*each) for each in partitions]
    )


def _offsets(spec: str, topic: str) -> Callable[[Any], Any]:
    return lambda client: client.list_offsets(
        {_partition(topic, 0): getattr(_confluent().OffsetSpec, spec)()}
    )


ASSIGNED: Final = {"num_partitions": 2, "replica_assignment": [[FIRST, SECOND], [SECOND, FIRST]]}

CONFLUENT_KAFKA: Final[Sequence[Operation]] = (
    Operation("create_topics", "", _create(("c-made", {**ASSIGNED, "config": {"flush.ms": "5"}}))),
    Operation("create_topics", ERRORS, _create(("c-made", {"num_partitions": 1}))),
    Operation("create_topics", ERRORS, _create(("c/bad", {"num_partitions": 1}))),
    Operation(
        "create_topics",
        ERRORS,
        _create(("c-three", {"num_partitions": 1, "replication_factor": 3})),
    ),
    Operation(
        "create_topics",
        ERRORS,
        _create(
            ("c-wrong", {"num_partitions": 1, "config": {"nope": "1"}}),
            ("c-other", {"num_partitions": 1, "config": {"flush.ms": "x"}}),
        ),
    ),
    Operation(
        "create_topics",
        ERRORS,
        _create(("c-away", {"replica_assignment": [[FIRST, UNKNOWN]]})),
    ),
    Operation(
        "create_topics",
        "validate_only",
        _create(("c-never", {"num_partitions": 3}), validate_only=True),
    ),
    Operation("create_partitions", "", _more("c-made", 3, replica_assignment=[[FIRST, SECOND]])),
    Operation("create_partitions", ERRORS, _more("c-made", 2)),
    Operation("create_partitions", ERRORS, _more("c-nope", 2)),
    Operation(
        "create_partitions", ERRORS, _more("c-made", 4, replica_assignment=[[UNKNOWN, FIRST]])
    ),
    Operation("list_topics", "", lambda client: list(client.list_topics(timeout=TIMEOUT_S).topics)),
    Operation(
        "describe_topics",
        "",
        lambda client: client.describe_topics(_structures().TopicCollection(["c-made"])),
    ),
    Operation(
        "describe_topics",
        ERRORS,
        lambda client: client.describe_topics(_structures().TopicCollection(["c-nope"])),
    ),
    Operation(
        "describe_cluster",
        "",
        lambda client: [
            (each.id, each.port, each.rack) for each in client.describe_cluster().result().nodes
        ],
    ),
    Operation("describe_configs", "topic", _describe_configs("TOPIC", "c-made")),
    Operation("describe_configs", "broker", _describe_configs("BROKER", str(FIRST))),
    Operation("describe_configs", ERRORS, _describe_configs("TOPIC", "c-nope")),
    Operation("describe_configs", "group", _describe_configs("GROUP", "c-team")),
    Operation("alter_configs", "topic", _replace_configs("TOPIC", "c-made", retention_ms="9000")),
    Operation("alter_configs", ERRORS, _replace_configs("TOPIC", "c-made", retention_ms="x")),
    Operation("alter_configs", ERRORS, _replace_configs("TOPIC", "c-nope", retention_ms="9")),
    Operation("alter_configs", ERRORS, _replace_configs("TOPIC", "c-made", nope="1")),
    Operation(
        "alter_configs", "broker", _replace_configs("BROKER", str(SECOND), max_connections="700")
    ),
    Operation("describe_configs", "topic", _describe_configs("TOPIC", "c-made")),
    Operation("describe_configs", "broker", _describe_configs("BROKER", str(SECOND))),
    Operation("alter_configs", "broker", _replace_configs("BROKER", str(SECOND))),
    Operation(
        "incremental_alter_configs",
        "topic",
        _alter_configs(
            "TOPIC",
            "c-made",
            ("SET", "segment.ms", "86400000"),
            ("APPEND", "cleanup.policy", "compact"),
            ("DELETE", "retention.ms", None),
        ),
    ),
    Operation("describe_configs", "topic", _describe_configs("TOPIC", "c-made")),
    Operation(
        "incremental_alter_configs",
        "topic",
        _alter_configs("TOPIC", "c-made", ("SUBTRACT", "cleanup.policy", "delete")),
    ),
    Operation(
        "incremental_alter_configs",
        ERRORS,
        _alter_configs("TOPIC", "c-made", ("APPEND", "segment.ms", "1")),
    ),
    Operation(
        "incremental_alter_configs",
        ERRORS,
        _alter_configs("TOPIC", "c-nope", ("SET", "segment.ms", "1")),
    ),
    Operation(
        "incremental_alter_configs",
        ERRORS,
        _alter_configs("TOPIC", "c-made", ("SET", "segment.ms", "-1"), ("SET", "flush.ms", "1")),
    ),
    Operation(
        "incremental_alter_configs",
        "group",
        _alter_configs("GROUP", "c-team", ("SET", "consumer.session.timeout.ms", "46000")),
    ),
    Operation("describe_configs", "group", _describe_configs("GROUP", "c-team")),
    Operation(
        "create_acls",
        "",
        lambda client: client.create_acls(
            [_acl("User:c", "READ", "c-made"), _acl("User:c", "WRITE", "c-made")]
        ),
    ),
    Operation("create_acls", ERRORS, lambda client: client.create_acls([_acl("c", "READ", "t")])),
    Operation(
        "describe_acls",
        "",
        lambda client: client.describe_acls(_acl("User:c", "ANY", None, matches=True)),
    ),
    Operation(
        "delete_acls",
        "",
        lambda client: client.delete_acls([_acl("User:c", "READ", None, matches=True)]),
    ),
    Operation(
        "describe_acls",
        "",
        lambda client: client.describe_acls(_acl("User:c", "ANY", None, matches=True)),
    ),
    Operation("alter_user_scram_credentials", "", _scram("c-user", 4096)),
    Operation("alter_user_scram_credentials", ERRORS, _scram("c-user", 4095)),
    Operation("alter_user_scram_credentials", ERRORS, _scram("c-user", 16385)),
    Operation("alter_user_scram_credentials", ERRORS, _drop_scram("c-nobody")),
    Operation(
        "describe_user_scram_credentials",
        "",
        lambda client: client.describe_user_scram_credentials(["c-user"]),
    ),
    Operation(
        "describe_user_scram_credentials",
        ERRORS,
        lambda client: client.describe_user_scram_credentials(["c-nobody"]),
    ),
    Operation("alter_user_scram_credentials", "", _drop_scram("c-user")),
    Operation("elect_leaders", ERRORS, _elect("PREFERRED", ("c-made", 0))),
    Operation("elect_leaders", ERRORS, _elect("UNCLEAN", ("c-made", 0))),
    Operation("elect_leaders", ERRORS, _elect("PREFERRED", ("c-made", 9), ("c-nope", 0))),
    Operation("list_offsets", "", _offsets("latest", "c-made")),
    Operation("list_offsets", ERRORS, _offsets("latest", "c-nope")),
    Operation(
        "delete_records",
        ERRORS,
        lambda client: client.delete_records([_partition("c-made", 0, 5)]),
    ),
    Operation("delete_topics", "", lambda client: client.delete_topics(["c-made"])),
    Operation("delete_topics", ERRORS, lambda client: client.delete_topics(["c-nope"])),
)

# --- kafka-python ---------------------------------------------------------------------------------


def _python() -> Any:
    import kafka.admin

    return kafka.admin


def _p_create(name: str, **options: Any) -> Callable[[Any], Any]:
    validate_only = options.pop("validate_only", False)
    return lambda client: client.create_topics({name: options}, validate_only=validate_only)


def _p_configs(kind: str, name: str, which: str = "all") -> Callable[[Any], Any]:
    return lambda client: client.describe_configs(
        [_python().ConfigResource(kind, name)], include_synonyms=True, config_filter=which
    )


def _p_alter(kind: str, name: str, configs: Any, **options: Any) -> Callable[[Any], Any]:
    return lambda client: client.alter_configs(
        [_python().ConfigResource(kind, name, configs)], raise_on_unknown=False, **options
    )


def _p_acl(principal: str | None, operation: str, *, matches: bool = False) -> Any:
    admin = _python()
    kind = admin.ACLFilter if matches else admin.ACL
    return kind(
        principal,
        None if matches else "*",
        admin.ACLOperation[operation],
        admin.ACLPermissionType.ALLOW,
        admin.ResourcePattern(admin.ResourceType.GROUP, "p-team"),
    )


def _p_scram(user: str, iterations: int) -> Callable[[Any], Any]:
    return lambda client: client.alter_user_scram_credentials(
        [
            _python().UserScramCredentialUpsertion(
                user, _python().ScramMechanism.SCRAM_SHA_512, b"secret", iterations, b"salt"
            )
        ]
    )


def _p_part(topic: str, number: int) -> Any:
    import kafka

    return kafka.TopicPartition(topic, number)


def _p_reassign(topic: str, *replicas: int) -> Callable[[Any], Any]:
    return lambda client: client.alter_partition_reassignments(
        {_p_part(topic, 0): list(replicas) or None}
    )


def _p_feature(name: str, level: int) -> Callable[[Any], Any]:
    return lambda client: client.update_features({name: level}, validate_only=True)


KAFKA_PYTHON: Final[Sequence[Operation]] = (
    Operation(
        "create_topics",
        "",
        _p_create(
            "p-made",
            assignments={0: [FIRST, SECOND], 1: [SECOND, FIRST]},
            configs={"retention.ms": "7000"},
        ),
    ),
    Operation("create_topics", ERRORS, _p_create("p-made", num_partitions=1)),
    Operation("create_topics", ERRORS, _p_create("p-three", replication_factor=3)),
    Operation("create_topics", ERRORS, _p_create("p-wrong", configs={"flush.ms": "x"})),
    Operation(
        "create_topics", "validate_only", _p_create("p-never", num_partitions=2, validate_only=True)
    ),
    Operation(
        "create_partitions",
        "",
        lambda client: client.create_partitions(
            {"p-made": {"count": 3, "assignments": [[FIRST, SECOND]]}}
        ),
    ),
    Operation("create_partitions", ERRORS, lambda client: client.create_partitions({"p-no": 3})),
    Operation("create_partitions", ERRORS, lambda client: client.create_partitions({"p-made": 1})),
    Operation("list_topics", "", lambda client: client.list_topics()),
    Operation("describe_topics", "", lambda client: client.describe_topics(["p-made"])),
    Operation(
        "describe_topic_partitions", "", lambda client: client.describe_topic_partitions(["p-made"])
    ),
    Operation("describe_cluster", "", lambda client: client.describe_cluster()["brokers"]),
    Operation("describe_configs", "topic", _p_configs("TOPIC", "p-made")),
    Operation("describe_configs", "broker", _p_configs("BROKER", str(FIRST), "dynamic")),
    Operation("describe_configs", ERRORS, _p_configs("TOPIC", "p-nope")),
    Operation("alter_configs", "incremental", _p_alter("TOPIC", "p-made", {"flush.ms": "8"})),
    Operation(
        "alter_configs",
        "incremental",
        _p_alter("TOPIC", "p-made", {"cleanup.policy": ("APPEND", "compact")}),
    ),
    Operation(
        "alter_configs",
        "replacing",
        _p_alter(
            "TOPIC",
            "p-made",
            # With all that are set: the client adds the others from any broker, which may not know
            # the changes above yet.
            {
                "cleanup.policy": "delete,compact",
                "flush.ms": "8",
                "retention.ms": "7000",
                "segment.ms": "90000000",
            },
            incremental=False,
        ),
    ),
    Operation("alter_configs", ERRORS, _p_alter("TOPIC", "p-made", {"nope": "8"})),
    Operation(
        "alter_configs", ERRORS, _p_alter("TOPIC", "p-nope", {"flush.ms": "8"}, incremental=True)
    ),
    Operation(
        "alter_configs",
        ERRORS,
        _p_alter("TOPIC", "p-made", {"flush.ms": "x"}, incremental=False),
    ),
    Operation("describe_configs", "topic", _p_configs("TOPIC", "p-made", "modified")),
    Operation(
        "reset_configs",
        "",
        lambda client: client.reset_configs(
            [_python().ConfigResource("TOPIC", "p-made", ["flush.ms"])]
        ),
    ),
    Operation("list_config_resources", "", lambda client: client.list_config_resources()),
    Operation(
        "create_acls",
        "",
        lambda client: client.create_acls(
            [_p_acl("User:p", "READ"), _p_acl("User:p", "DESCRIBE"), _p_acl("p", "READ")]
        ),
    ),
    Operation(
        "describe_acls",
        "",
        lambda client: client.describe_acls(_p_acl("User:p", "ANY", matches=True)),
    ),
    Operation(
        "delete_acls",
        "",
        lambda client: client.delete_acls([_p_acl("User:p", "ANY", matches=True)]),
    ),
    Operation("alter_user_scram_credentials", "", _p_scram("p-user", 8192)),
    Operation("alter_user_scram_credentials", ERRORS, _p_scram("p-user", 1)),
    Operation(
        "describe_user_scram_credentials",
        "",
        lambda client: client.describe_user_scram_credentials(["p-user", "p-nobody"]),
    ),
    Operation(
        "alter_user_scram_credentials",
        "",
        lambda client: client.alter_user_scram_credentials(
            [
                _python().UserScramCredentialDeletion(name, _python().ScramMechanism.SCRAM_SHA_512)
                for name in ("p-user", "p-nobody")
            ]
        ),
    ),
    Operation("elect_leaders", "", lambda client: client.elect_leaders(0, {"p-made": [0, 1]})),
    Operation("elect_leaders", ERRORS, lambda client: client.elect_leaders(0, {"p-nope": [0]})),
    Operation("alter_partition_reassignments", "", _p_reassign("p-made", SECOND, FIRST)),
    Operation("alter_partition_reassignments", ERRORS, _p_reassign("p-made", UNKNOWN)),
    Operation("alter_partition_reassignments", ERRORS, _p_reassign("p-made", FIRST, FIRST)),
    Operation("alter_partition_reassignments", ERRORS, _p_reassign("p-nope", FIRST)),
    Operation("alter_partition_reassignments", ERRORS, _p_reassign("p-nope")),
    Operation(
        "list_partition_reassignments",
        "",
        lambda client: client.list_partition_reassignments({"p-made": [0]}),
    ),
    Operation(
        "list_partition_offsets",
        "",
        lambda client: client.list_partition_offsets(
            {_p_part("p-made", 1): _python().OffsetSpec.LATEST}
        ),
    ),
    Operation(
        "delete_records",
        ERRORS,
        lambda client: client.delete_records({_p_part("p-made", 1): 5}),
    ),
    Operation(
        "describe_features",
        "",
        lambda client: {
            name: value
            for name, value in client.describe_features().items()
            if name != "finalized_features_epoch"
        },
    ),
    Operation("update_features", "validate_only", _p_feature("share.version", 1)),
    Operation("update_features", ERRORS, _p_feature("share.version", 9)),
    Operation("update_features", ERRORS, _p_feature("nope", 1)),
    Operation(
        "describe_metadata_quorum",
        "",
        lambda client: sorted(
            (voter["replica_id"], voter["replica_directory_id"])
            for topic in client.describe_metadata_quorum()["topics"]
            for partition in topic["partitions"]
            for voter in partition["current_voters"]
        ),
    ),
    Operation("delete_topics", "", lambda client: client.delete_topics(["p-made"])),
    Operation("delete_topics", ERRORS, lambda client: client.delete_topics(["p-nope"])),
)
