"""The image: replay, copies, snapshots as records, transactions, and what cannot be replayed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quorate.common.features import VersionRange
from quorate.metadata import requests as r
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import MetadataImage, ReplayError
from quorate.metadata.metadata_version import at_level
from quorate.records import metadata as rec
from quorate.records.batch import iter_batches, iter_records
from quorate.records.metadata import UnknownRecord, decode, encode

from tests.unit.metadata.metadata_support import Cluster, uuid_of

T1, T2 = uuid_of("topic 1"), uuid_of("topic 2")


def image_of(*records: Any) -> MetadataImage:
    image = MetadataImage()
    image.apply_batch(records, 0, 1, 1)
    return image


def replayed(image: MetadataImage) -> MetadataImage:
    """What the image's records make of an empty one, by way of their bytes."""
    copies = [decode(encode(record, record.version)) for record in image.records()]
    return image_of(*copies)


# --- what Kafka wrote -----------------------------------------------------------------------------


def batches(path: Path) -> Iterator[tuple[int, int, int, list[Any]]]:
    """(base offset, epoch, timestamp, records) of a segment or snapshot."""
    for header, batch in iter_batches(memoryview(path.read_bytes())):
        if not header.is_control:
            found = [decode(record.value or b"") for record in iter_records(batch, header)]
            yield header.base_offset, header.epoch, header.max_timestamp, found


def loaded(paths: list[Path]) -> MetadataImage:
    image = MetadataImage()
    for path in paths:
        for base_offset, epoch, timestamp_ms, records in batches(path):
            image.apply_batch(records, base_offset, epoch, timestamp_ms)
    return image


@pytest.mark.parametrize("stage", ["full-history", "compacted"])
def test_kafkas_logs_and_snapshots_are_replayed(golden: Path, stage: str) -> None:
    """Every record is understood; a snapshot's records are as many as the image writes again."""
    seen = 0
    for folder in sorted((golden / stage).glob("*/__cluster_metadata-0")):
        snapshots = sorted(folder.glob("*.checkpoint"))
        for path in snapshots:
            image = loaded([path])
            assert replayed(image) == image
            assert not image.unknown
            assert len(list(image.records())) == sum(len(found) for *_, found in batches(path))
            seen += 1
        segments = sorted(folder.glob("*.log"))
        if segments[0].name.startswith("0" * 20):
            image = loaded(segments)
            assert replayed(image) == image
            assert not image.in_transaction
            assert image.level == 30 or stage == "full-history"
            seen += 1
    assert seen >= 3


def test_a_log_leads_to_what_kafkas_snapshot_of_it_holds(golden: Path) -> None:
    folder = golden / "compacted/broker-101/__cluster_metadata-0"
    log = [found for path in sorted(folder.glob("*.log")) for found in batches(path)]
    compared = 0
    for snapshot in folder.glob("*.checkpoint"):
        end_offset = int(snapshot.name.split("-")[0])
        image = MetadataImage()
        for base_offset, epoch, timestamp_ms, records in log:
            if base_offset < end_offset:  # its snapshots end with a batch
                image.apply_batch(records, base_offset, epoch, timestamp_ms)
        # Kafka 4.3 forgets a SCRAM user when another of the mechanism was added and removed while
        # its log was loaded in one go (ScramDelta.apply); the log says that alice is there.
        forgotten = image.scram.credentials.pop(("alice", 1))
        assert forgotten.iterations == 4096
        assert image == loaded([snapshot])
        compared += 1
    assert compared == 3


def test_the_registration_at_offset_28_has_epoch_28(golden: Path) -> None:
    paths = sorted((golden / "full-history/controller-1/__cluster_metadata-0").glob("*.log"))
    image = MetadataImage()
    for base_offset, epoch, timestamp_ms, records in batches(paths[0]):
        if base_offset <= 28:
            image.apply_batch(records, base_offset, epoch, timestamp_ms)
    assert image.cluster.brokers[101].broker_epoch == image.offset == 28


# --- snapshots ------------------------------------------------------------------------------------


def full_cluster() -> Cluster:
    cluster = Cluster(3, racks=("a", None, "b"))
    cluster.create("t", (1, 2, 3), (2, 3, 1), min_insync_replicas="2")
    cluster.ask(r.CreateTopics((r.NewTopic("u", 4, 2),)))
    cluster.ask(r.DeleteTopics((r.TopicRef("u"),)))
    cluster.ask(
        r.AlterClientQuotas(
            (r.QuotaChange((("user", None),), (r.QuotaOp("producer_byte_rate", 5.0),)),)
        )
    )
    cluster.ask(r.CreateAcls((r.Acl(2, "t", 3, "User:x", "*", 3, 3),)))
    cluster.ask(r.AlterUserScramCredentials((r.ScramUpsertion("x", 1, 4096, b"salt", b"p" * 32),)))
    cluster.ask(r.AllocateProducerIds(1, cluster.epochs[1]))
    cluster.expire(3)
    return cluster


def test_records_of_an_image_make_an_equal_image() -> None:
    image = full_cluster().committed
    assert replayed(image) == image
    assert [type(record).__name__ for record in image.records()][:2] == [
        "FeatureLevelRecord",
        "RegisterBrokerRecord",
    ]


@pytest.mark.parametrize(
    ("level", "versions"),
    [(7, (1, 0, 0)), (8, (2, 0, 0)), (17, (3, 1, 1)), (23, (3, 2, 2)), (30, (4, 2, 2))],
)
def test_records_have_the_versions_that_the_level_allows(
    level: int, versions: tuple[int, ...]
) -> None:
    features = tuple(r.BrokerFeature(name, VersionRange(0, 30)) for name in ("metadata.version",))
    cluster = Cluster(level=level)
    cluster.register(1, features=features)
    cluster.heartbeat(1)
    cluster.create("t", (1,))
    found = {type(record): record.version for record in cluster.committed.records()}
    assert (
        found[rec.RegisterBrokerRecord],
        found[rec.PartitionRecord],
        at_level(rec.PartitionChangeRecord(), level).version,
    ) == versions
    assert replayed(cluster.committed).topics.partition_count == 1


@settings(max_examples=60)
@given(level=st.integers(7, 30), elr=st.booleans(), directories=st.booleans())
def test_what_a_level_cannot_hold_is_left_out(level: int, elr: bool, directories: bool) -> None:
    record = rec.PartitionRecord(
        0,
        T1,
        (1,),
        (1,),
        directories=(uuid_of(1),) if directories else (),
        eligible_leader_replicas=(1,) if elr else None,
    )
    again = decode(encode(at_level(record, level), at_level(record, level).version))
    assert isinstance(again, rec.PartitionRecord)
    assert bool(again.directories) == (directories and level >= 17)
    assert bool(again.eligible_leader_replicas) == (elr and level >= 23)


# --- copies ---------------------------------------------------------------------------------------


def test_a_copy_and_its_original_change_on_their_own() -> None:
    original = full_cluster().committed
    before = replayed(original)
    copied = original.copy()
    assert copied == original
    topic_id = original.topics.ids["t"]
    change = rec.PartitionChangeRecord(0, topic_id, isr=(1,))
    copied.apply(change, 900)
    copied.apply(rec.ConfigRecord(2, "t", "retention.ms", "1"), 901)
    copied.apply(rec.RemoveUserScramCredentialRecord("x", 1), 902)
    assert original == before != copied
    original.apply(rec.RemoveTopicRecord(topic_id), 903)
    assert copied.topics.partition(topic_id, 0) is not None
    third = copied.copy()
    copied.apply(rec.PartitionChangeRecord(1, topic_id, isr=(2,)), 904)
    assert third != copied


# --- replay ---------------------------------------------------------------------------------------


def test_a_change_of_a_partition() -> None:
    image = image_of(
        rec.TopicRecord("t", T1), rec.PartitionRecord(0, T1, (1, 2), (1, 2), (), (), 1, 0, 5, 9)
    )
    changes = image.apply(rec.PartitionChangeRecord(0, T1, isr=(1,)), 7)
    found = image.topics.partition(T1, 0)
    assert found is not None
    assert (found.isr, found.leader_epoch, found.partition_epoch) == ((1,), 5, 10)
    assert changes == MetadataDelta(partitions={(T1, 0)})
    image.apply(rec.PartitionChangeRecord(0, T1, leader=1), 8)
    found = image.topics.partition(T1, 0)
    assert found is not None
    assert (found.leader_epoch, found.partition_epoch) == (6, 11)


def test_a_topic_takes_its_configuration_with_it() -> None:
    image = image_of(rec.TopicRecord("t", T1), rec.ConfigRecord(2, "t", "retention.ms", "5"))
    assert image.configs.of(2, "t") == {"retention.ms": "5"}
    changes = image.apply(rec.RemoveTopicRecord(T1), 2)
    assert changes.topics_deleted == {T1: "t"}
    assert changes.configs == {(2, "t")}
    assert image == image_of()


def test_fences_of_old_logs() -> None:
    image = image_of(rec.RegisterBrokerRecord(1, broker_epoch=4), rec.UnfenceBrokerRecord(1, 4))
    assert image.cluster.is_active(1)
    image.apply(rec.FenceBrokerRecord(1, 4), 2)
    assert not image.cluster.is_active(1)


BROKEN: list[Any] = [
    rec.PartitionRecord(0, T2, (1,)),
    rec.PartitionRecord(0, T1, ()),
    rec.PartitionChangeRecord(5, T1),
    rec.PartitionChangeRecord(0, T2),
    rec.RemoveTopicRecord(T2),
    rec.TopicRecord("t", T2),
    rec.TopicRecord("other", T1),
    rec.ClearElrRecord("nobody"),
    rec.UnregisterBrokerRecord(9, 1),
    rec.UnregisterBrokerRecord(1, 3),
    rec.BrokerRegistrationChangeRecord(1, 3, fenced=1),
    rec.BrokerRegistrationChangeRecord(1, 4, fenced=5),
    rec.FenceBrokerRecord(9, 4),
    rec.RemoveAccessControlEntryRecord(T1),
    rec.FeatureLevelRecord("metadata.version", 31),
    rec.FeatureLevelRecord("x", -1),
    rec.EndTransactionRecord(),
    rec.AbortTransactionRecord(),
    UnknownRecord(3, 99, b"x"),
]


@pytest.mark.parametrize("record", BROKEN, ids=lambda record: type(record).__name__)
def test_what_cannot_be_replayed_is_told_with_its_offset(record: Any) -> None:
    image = image_of(
        rec.TopicRecord("t", T1),
        rec.PartitionRecord(0, T1, (1,), (1,)),
        rec.RegisterBrokerRecord(1, broker_epoch=4),
    )
    with pytest.raises(ReplayError, match="offset 42") as caught:
        image.apply_batch((rec.NoOpRecord(), record), 41, 1, 1)
    assert caught.value.offset == 42


def test_unknown_kinds_are_kept_in_order() -> None:
    unknown = (UnknownRecord(99, 3, b"abc"), UnknownRecord(98, 0, b""))
    image = image_of(rec.TopicRecord("t", T1), *unknown)
    assert tuple(image.unknown) == unknown
    assert tuple(image.records())[-2:] == unknown
    assert replayed(image) == image


# --- transactions ---------------------------------------------------------------------------------


def test_a_transaction_takes_effect_when_it_ends() -> None:
    image = image_of(rec.BeginTransactionRecord("copy"), rec.TopicRecord("t", T1))
    assert image.in_transaction
    assert not image.topics
    copied = image.copy()
    changes = image.apply(rec.EndTransactionRecord(), 2)
    assert changes.topics_created == {T1}
    assert not image.in_transaction
    copied.apply(rec.AbortTransactionRecord("no"), 2)
    assert copied == image_of()
    copied.apply(rec.BeginTransactionRecord(), 3)
    with pytest.raises(ReplayError):
        copied.apply(rec.BeginTransactionRecord(), 4)


def test_a_broken_record_of_a_transaction_is_told_with_its_own_offset() -> None:
    image = image_of(rec.BeginTransactionRecord(), rec.RemoveTopicRecord(T1), rec.NoOpRecord())
    with pytest.raises(ReplayError, match="offset 1 "):
        image.apply(rec.EndTransactionRecord(), 3)


def test_kafkas_nodes_are_remembered_whatever_becomes_of_a_transaction() -> None:
    image = image_of(rec.NoOpRecord(unknown_tags=((3, b"later"),)))
    assert not image.features.kafka_nodes
    image.apply(rec.BeginTransactionRecord("copy"), 1)
    image.apply(rec.decode(rec.encode(rec.KAFKA_NODES, 0)), 2)
    assert image.features.kafka_nodes
    assert image != image_of()
    image.apply(rec.AbortTransactionRecord("no"), 3)
    image.apply(rec.NoOpRecord(), 4)
    assert image.features.kafka_nodes
    assert list(image.records()) == [rec.KAFKA_NODES]
    assert image_of(*image.records()) == image.copy() == image


# --- changes --------------------------------------------------------------------------------------


def test_changes_add_up() -> None:
    image = image_of(rec.TopicRecord("t", T1), rec.PartitionRecord(0, T1, (1,), (1,)))
    first = image.as_delta()
    assert first.topics_created == {T1}
    assert first.partitions == {(T1, 0)}
    first.add(image.apply(rec.RemoveTopicRecord(T1), 2))
    assert first.topics_created == set()
    assert first.topics_deleted == {T1: "t"}
    assert bool(first)
    assert not MetadataDelta()


# --- speed ----------------------------------------------------------------------------------------


def test_replay_and_copies_are_fast_enough_for_large_clusters() -> None:
    """200,000 partitions; processor time, with room for a slow machine."""
    topics = [uuid_of(n) for n in range(2_000)]
    directories = (uuid_of("d"),) * 3
    records = [
        rec.PartitionRecord(
            n % 100,
            topics[n // 100],
            (1, 2, 3),
            (1, 2, 3),
            (),
            (),
            1,
            0,
            0,
            0,
            directories,
            version=2,
        )
        for n in range(200_000)
    ]
    image = image_of(*(rec.TopicRecord(f"t{n}", topic) for n, topic in enumerate(topics)))
    began = time.process_time()
    for first in range(0, len(records), 1_000):
        image.apply_batch(records[first : first + 1_000], first, 1, 1)
    replay_s = time.process_time() - began
    began = time.process_time()
    image.copy()
    copy_s = time.process_time() - began
    assert image.topics.partition_count == 200_000
    assert replay_s < 4
    assert copy_s < 0.05
