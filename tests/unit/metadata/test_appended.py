"""Metadata records that clients append: what no request could make is refused, with the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest
from quorate.metadata.image.metadata_image import AnyRecord, MetadataImage
from quorate.metadata.managers.appended import Appended
from quorate.records import metadata as rec

ID = "q4-87cwrTP20I1r4Xtfj7g"
OTHER_ID = "Rigw3vfNRMmcl9pdbu4hDQ"
KEY = b"k" * 32
TOO_LONG = "x" * 40_000


def image_of(*records: AnyRecord) -> MetadataImage:
    image = MetadataImage()
    for offset, record in enumerate(records):
        image.apply(record, offset)
    return image


def fault(record: AnyRecord, *before: AnyRecord) -> str | None:
    image = image_of(*before)
    return Appended(image).fault(record, image)


def partition(**changed: object) -> rec.PartitionRecord:
    fields: dict[str, object] = {
        "partition_id": 0, "topic_id": ID, "replicas": (1, 2), "isr": (1,), "leader": 1,
        "leader_epoch": 0, "partition_epoch": 0,
    }  # fmt: skip
    return rec.PartitionRecord(**(fields | changed))  # type: ignore[arg-type]


def acl(**changed: object) -> rec.AccessControlEntryRecord:
    fields: dict[str, object] = {
        "id": ID, "resource_type": 2, "resource_name": "t", "pattern_type": 3,
        "principal": "User:a", "host": "*", "operation": 3, "permission_type": 3,
    }  # fmt: skip
    return rec.AccessControlEntryRecord(**(fields | changed))  # type: ignore[arg-type]


def quota(kind: str = "user", key: str = "producer_byte_rate", value: float = 1.0) -> AnyRecord:
    return rec.ClientQuotaRecord((rec.QuotaEntity(kind, "a"),), key, value)


def scram(
    iterations: int = 4096, mechanism: int = 1, key: bytes = KEY
) -> rec.UserScramCredentialRecord:
    return rec.UserScramCredentialRecord("a", mechanism, b"salt", key, KEY, iterations)


TOPIC = rec.TopicRecord("t", ID)
LEVEL = rec.FeatureLevelRecord("metadata.version", 21)
FINISHED = rec.ZkMigrationStateRecord(rec.ZkMigrationState.POST_MIGRATION)


def session(content: bytes) -> AnyRecord:
    return rec.application_record(rec.ApplicationTag.PRODUCER_SESSION, content)


def migrating(state: rec.ZkMigrationState) -> AnyRecord:
    return rec.ZkMigrationStateRecord(state)


@pytest.mark.parametrize(
    ("record", "before"),
    [
        (TOPIC, ()),
        (partition(), (TOPIC,)),
        (partition(leader=-1, isr=()), (TOPIC,)),
        (partition(directories=(ID, OTHER_ID)), (TOPIC,)),
        (rec.RemoveTopicRecord(ID), (TOPIC,)),
        (rec.ConfigRecord(2, "t", "retention.ms", "1"), (TOPIC,)),
        (rec.ConfigRecord(4, "", "background.threads", "11"), ()),
        (rec.ConfigRecord(4, "101", "background.threads", None), ()),
        (LEVEL, ()),
        (rec.FeatureLevelRecord("transaction.version", 2), ()),
        (rec.ProducerIdsRecord(1, 1, 2000), (rec.ProducerIdsRecord(1, 1, 1000),)),
        (acl(), ()),
        (quota(), ()),
        (scram(), ()),
        (rec.NoOpRecord(), ()),
        (FINISHED, ()),
        (FINISHED, (migrating(rec.ZkMigrationState.MIGRATION),)),
    ],
)
def test_what_a_request_could_make_is_taken(record: AnyRecord, before: tuple[AnyRecord]) -> None:
    assert fault(record, *before) is None


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (rec.TopicRecord("../../etc/passwd", ID), "the name is invalid"),
        (rec.TopicRecord("<script>alert(1)</script>", ID), "the name is invalid"),
        (rec.TopicRecord("t", "AAAAAAAAAAAAAAAAAAAAAQ"), "the topic id is reserved"),
        (rec.FeatureLevelRecord("metadata.version", 9999), "is not in 7-30"),
        (rec.FeatureLevelRecord("metadata.version", -5), "is not in 7-30"),
        (rec.FeatureLevelRecord("kraft.version", 7), "is not a feature"),
        (rec.ProducerIdsRecord(-1, -1, 2**63 - 1), "is above"),
        (rec.ConfigRecord(2, "nope", "x", "y"), "there is no topic 'nope'"),
        (rec.ConfigRecord(4, "one", "x", "y"), "'one' is not a broker id"),
        (rec.ConfigRecord(99, "1", "x", "y"), "unknown resource type 99"),
        (rec.ConfigRecord(4, "1", "", "y"), "the name of the setting is empty"),
        (rec.ConfigRecord(4, "1", TOO_LONG, "y"), "longer than a record can hold"),
        (rec.ConfigRecord(4, "1", "x", TOO_LONG), "longer than a record can hold"),
        (rec.ConfigRecord(32, TOO_LONG, "x", "y"), "longer than a record can hold"),
        (migrating(99), "can only finish a migration"),  # type: ignore[arg-type]
        (migrating(rec.ZkMigrationState.MIGRATION), "can only finish a migration"),
        (partition(isr=(3,)), "is not a replica"),
        (partition(leader=2), "the leader is not in the ISR"),
        (partition(replicas=(1, 1)), "names a broker twice"),
        (partition(replicas=(1, -2)), "must be broker ids"),
        (partition(leader_epoch=-1), "must be 0 or more"),
        (partition(directories=(ID,)), "one directory for each replica"),
        (partition(directories=(ID, OTHER_ID, ID)), "one directory for each replica"),
        (acl(operation=99), "Invalid operation 99"),
        (acl(principal="a"), "Could not parse principal"),
        (quota(kind="group"), "Unhandled client quota entity type: group"),
        (quota(key="x"), "Invalid configuration key x"),
        (quota(value=-1.0), "must be greater than 0"),
        (scram(iterations=1), "iterations"),
        (scram(mechanism=7), "Unknown SCRAM mechanism"),
        (scram(key=b"short"), "does not have 32 bytes"),
        (replace(scram(), name=""), "Username must not be empty"),
        (replace(scram(), name=TOO_LONG), "Username is longer than a record can hold"),
        (rec.KAFKA_NODES, "only the controller"),
        (session(b"\0" * 9), "only the controller opens producer sessions"),
        (session(b"not a session"), "only the controller opens producer sessions"),
        (rec.BeginTransactionRecord("mine"), "clients cannot append records of this type"),
        # Kafka's nodes fail to load a change whose directories do not match its replicas.
        (
            rec.PartitionChangeRecord(0, ID, replicas=(1,), directories=(ID, OTHER_ID)),
            "clients cannot append records of this type",
        ),
        (rec.FenceBrokerRecord(1, 1), "clients cannot append records of this type"),
        (rec.UnknownRecord(9_999, 0, b""), "clients cannot append records of this type"),
    ],
)
def test_what_no_request_could_make_is_refused(record: AnyRecord, said: str) -> None:
    assert said in (fault(record, rec.NoOpRecord()) or "")


def test_levels_are_finalized_by_requests_once_there_are_some() -> None:
    assert "use `quorate features`" in (fault(LEVEL, LEVEL) or "")
    image = image_of()
    appended = Appended(image)
    image.apply(LEVEL, 0)
    assert appended.fault(rec.FeatureLevelRecord("group.version", 1), image) is None


def test_topics_that_metric_names_cannot_tell_apart_are_refused() -> None:
    image = image_of(rec.TopicRecord("a.b", ID))
    assert "collides with topic 'a.b'" in (
        Appended(image).fault(rec.TopicRecord("a_b", OTHER_ID), image) or ""
    )


def test_a_topic_that_the_append_removed_does_not_collide() -> None:
    image = image_of(rec.TopicRecord("a.b", ID))
    appended = Appended(image)
    records = (
        rec.TopicRecord("other", "AbCdEfGhIjKlMnOpQrStUg"),
        rec.RemoveTopicRecord(ID),
        rec.TopicRecord("a_b", OTHER_ID),
    )
    for offset, record in enumerate(records, 1):
        assert appended.fault(record, image) is None
        image.apply(record, offset)
    collision = appended.fault(rec.TopicRecord("a.b", ID), image)
    assert "collides with topic 'a_b'" in (collision or "")


def test_a_migration_that_copies_cannot_be_finished() -> None:
    before = migrating(rec.ZkMigrationState.PRE_MIGRATION)
    assert "not been copied" in (fault(FINISHED, before) or "")


def registration(**changed: object) -> rec.RegisterBrokerRecord:
    fields: dict[str, object] = {
        "broker_id": 1, "incarnation_id": ID, "broker_epoch": 7, "is_migrating_zk_broker": True,
    }  # fmt: skip
    return rec.RegisterBrokerRecord(**(fields | changed))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "record", "reason"),
    [
        ("PRE_MIGRATION", registration(), None),
        ("MIGRATION", registration(is_migrating_zk_broker=False), None),
        ("MIGRATION", registration(features=(rec.RegisteredFeature("f", 0, 3),)), None),
        ("NONE", registration(), "while a migration from ZooKeeper is under way"),
        ("POST_MIGRATION", registration(), "while a migration from ZooKeeper is under way"),
        (
            "PRE_MIGRATION",
            registration(is_migrating_zk_broker=False),
            "before the metadata has been copied",
        ),
        ("MIGRATION", registration(broker_id=-1), "its id and epoch"),
        ("MIGRATION", registration(broker_epoch=-1), "its id and epoch"),
        ("MIGRATION", registration(incarnation_id="x"), "is not a UUID"),
        ("MIGRATION", registration(features=(rec.RegisteredFeature("f", 3, 2),)), "levels"),
    ],
)
def test_registrations_only_during_a_migration(
    state: str, record: AnyRecord, reason: str | None
) -> None:
    found = fault(record, migrating(rec.ZkMigrationState[state]))
    assert found is None if reason is None else found is not None and reason in found, found
