"""The image as znodes: written, read back and compared; whole images, and changes of them."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.migration import writing
from quorate.migration.operations import Delete, SetData, ZNodeOperation
from quorate.migration.verification import compare
from quorate.migration.znodes import ZNode
from quorate.records.metadata import (
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

from tests.unit.migration.ensemble import Ensemble
from tests.unit.migration.images import later, uuid, worlds

ZK_EPOCH = 7


def image_of(records: list[MetadataRecord]) -> MetadataImage:
    image = MetadataImage()
    image.apply_batch(records, 0, 1, 0)
    return image


def whole(ensemble: Ensemble, image: MetadataImage) -> list[ZNodeOperation]:
    return list(writing.operations(ensemble.tree, writing.wanted(image, ZK_EPOCH)))


def partial(
    ensemble: Ensemble, image: MetadataImage, changes: MetadataDelta
) -> list[ZNodeOperation]:
    tree = ensemble.read(writing.scope(image, changes))
    return list(writing.operations(tree, writing.wanted(image, ZK_EPOCH, changes)))


def differences(ensemble: Ensemble, image: MetadataImage) -> list[object]:
    return [
        each for each in compare(ensemble.tree, image.records()) if each.field != "partition_epoch"
    ]


@settings(max_examples=60)
@given(worlds())
def test_what_is_written_to_an_empty_zookeeper_is_the_image(records: list[MetadataRecord]) -> None:
    image, ensemble = image_of(records), Ensemble()
    ensemble.write(whole(ensemble, image))
    assert differences(ensemble, image) == []
    assert whole(ensemble, image) == [], "a second time nothing is to be done"


@settings(max_examples=80)
@given(st.data())
def test_changes_are_written_where_they_are_and_nowhere_else(data: st.DataObject) -> None:
    before = data.draw(worlds())
    image, ensemble = image_of(before), Ensemble()
    ensemble.write(whole(ensemble, image))
    changes = image.apply_batch(data.draw(later(before)), len(before), 1, 0)
    ensemble.write(partial(ensemble, image, changes))
    assert differences(ensemble, image) == []
    assert whole(ensemble, image) == [], "the comparison of all finds nothing that was missed"


@settings(max_examples=40)
@given(worlds(), worlds())
def test_one_image_takes_the_place_of_another(
    first: list[MetadataRecord], second: list[MetadataRecord]
) -> None:
    ensemble = Ensemble()
    ensemble.write(whole(ensemble, image_of(first)))
    image = image_of(second)
    ensemble.write(whole(ensemble, image))
    kept = [each for each in differences(ensemble, image) if not is_kept(each)]
    assert kept == []
    assert whole(ensemble, image) == []


def is_kept(difference: object) -> bool:
    """Producer ids never go back, so ZooKeeper keeps its block where the log has none yet."""
    return getattr(difference, "kind", "") == "ProducerIds"


@settings(max_examples=40)
@given(worlds(), st.integers(0, 100))
def test_what_was_written_halfway_is_completed(records: list[MetadataRecord], part: int) -> None:
    image, ensemble = image_of(records), Ensemble()
    operations = whole(ensemble, image)
    ensemble.write(operations[: len(operations) * part // 100])
    ensemble.write(whole(ensemble, image))
    assert differences(ensemble, image) == []


# --- what it looks like ---------------------------------------------------------------------------

TOPIC: list[MetadataRecord] = [
    TopicRecord("t", uuid(1)),
    PartitionRecord(
        partition_id=0, topic_id=uuid(1), replicas=(1, 2), isr=(1,), leader=1, leader_epoch=3,
        partition_epoch=4,
    ),
    ConfigRecord(2, "t", "retention.ms", "5"),
]  # fmt: skip


def text(ensemble: Ensemble, path: str) -> str:
    return (ensemble.nodes[path].data or b"").decode()


def test_a_topic_looks_as_kafka_writes_it() -> None:
    ensemble = Ensemble()
    ensemble.write(whole(ensemble, image_of(TOPIC)))
    assert text(ensemble, "/brokers/topics/t") == (
        '{"partitions":{"0":[1,2]},"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","adding_replicas":{},'
        '"removing_replicas":{},"version":3}'
    )
    assert text(ensemble, "/brokers/topics/t/partitions/0/state") == (
        '{"controller_epoch":7,"leader":1,"version":1,"leader_epoch":3,"isr":[1]}'
    )
    assert text(ensemble, "/config/topics/t") == '{"version":1,"config":{"retention.ms":"5"}}'
    assert ensemble.notices == [
        ("/config/changes/config_change_", b'{"version":2,"entity_path":"topics/t"}')
    ]


def test_another_controller_epoch_is_no_reason_to_write() -> None:
    image, ensemble = image_of(TOPIC), Ensemble()
    ensemble.write(whole(ensemble, image))
    assert list(writing.operations(ensemble.tree, writing.wanted(image, ZK_EPOCH + 1))) == []


def test_a_new_leader_is_one_write() -> None:
    image, ensemble = image_of(TOPIC), Ensemble()
    ensemble.write(whole(ensemble, image))
    change = PartitionChangeRecord(partition_id=0, topic_id=uuid(1), leader=2, isr=(1, 2))
    changes = image.apply_batch([change], 9, 1, 0)
    (operation,) = partial(ensemble, image, changes)
    assert isinstance(operation, SetData)
    assert operation.path == "/brokers/topics/t/partitions/0/state"
    assert json.loads(operation.data or b"")["leader"] == 2


def test_brokers_are_notified_when_a_topic_loses_its_last_override() -> None:
    notice = ("/config/changes/config_change_", b'{"version":2,"entity_path":"topics/t"}')
    image, ensemble = image_of(TOPIC), Ensemble()
    ensemble.write(whole(ensemble, image))
    behind = Ensemble(ensemble.nodes.values())
    changes = image.apply_batch([ConfigRecord(2, "t", "retention.ms", None)], 9, 1, 0)

    ensemble.write(partial(ensemble, image, changes))
    assert text(ensemble, "/config/topics/t") == '{"version":1,"config":{}}'
    assert ensemble.notices == [notice, notice], "one for the override, one for its removal"

    behind.write(whole(behind, image))
    assert text(behind, "/config/topics/t") == '{"version":1,"config":{}}'
    assert behind.notices == [notice], "a synchronization notifies too"


def test_a_new_topic_without_overrides_needs_no_notification() -> None:
    ensemble = Ensemble()
    ensemble.write(whole(ensemble, image_of(TOPIC[:2])))
    assert text(ensemble, "/config/topics/t") == '{"version":1,"config":{}}'
    assert ensemble.notices == []


def test_a_pending_deletion_is_completed() -> None:
    image, ensemble = image_of(TOPIC), Ensemble()
    ensemble.write(whole(ensemble, image))
    for path in ("/admin", "/admin/delete_topics", "/admin/delete_topics/t"):
        ensemble.nodes[path] = ZNode(path)
    changes = image.apply_batch([RemoveTopicRecord(uuid(1))], 9, 1, 0)
    operations = partial(ensemble, image, changes)
    assert all(isinstance(each, Delete) for each in operations)
    ensemble.write(operations)
    left = {path for path in ensemble.nodes if "config_change_" not in path}
    assert left == {
        "/admin", "/admin/delete_topics", "/brokers", "/brokers/topics", "/config",
        "/config/changes", "/config/topics",
    }  # fmt: skip
