"""A node's committed image: replayed from a real log, loaded from its snapshots, or refused."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from quorate.common.endpoints import Endpoint
from quorate.log.config import LogConfig
from quorate.log.metadata_log import MetadataLog
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import MetadataImage, ReplayError
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from quorate.records import metadata as rec
from quorate.records.batch import (
    build_data_batch,
    iter_batches,
    iter_records,
    read_header,
    stamp,
    verify_crc,
)
from quorate.records.metadata import in_batches
from quorate.records.metadata.in_batches import plain_records
from quorate.runtime import metadata_loader
from quorate.runtime.gc_tuning import _PAUSES, allow_freezing, collection_paused
from quorate.runtime.metadata_batches import (
    application_batches,
    apply_batch,
    build_metadata_batch,
    decode_values,
    holds_metadata,
    metadata_records,
    metadata_values,
    snapshot_batches,
)
from quorate.runtime.metadata_files import read_directory, read_snapshot
from quorate.runtime.metadata_loader import MetadataLoader

EPOCH = 3
TOPIC_ID = "q4-87cwrTP20I1r4Xtfj7g"
VOTERS = VoterSet.of(
    [Voter(ReplicaKey(1, "Rigw3vfNRMmcl9pdbu4hDQ"), (Endpoint("C", "127.0.0.1", 9093),))]
)


def topic(name: str = "orders", topic_id: str = TOPIC_ID) -> list[rec.MetadataRecord]:
    return [
        rec.TopicRecord(name, topic_id),
        rec.PartitionRecord(0, topic_id, (1, 2), (1,), leader=1, leader_epoch=0, partition_epoch=0),
    ]


def config(value: str | None, name: str = "orders") -> rec.ConfigRecord:
    return rec.ConfigRecord(2, name, "retention.ms", value)


class Log:
    """A log on disk to which batches are appended, each durable on return."""

    def __init__(self, directory: Path) -> None:
        self.reached = threading.Condition()
        self.durable = 0
        self.ticket = 0
        self.log = MetadataLog.open(
            directory, LogConfig(), on_durable=self._durable, on_failure=lambda _error: None
        )

    def _durable(self, ticket: int) -> None:
        with self.reached:
            self.durable = ticket
            self.reached.notify_all()

    def append(self, batch: bytearray) -> int:
        stamp(batch, self.log.end_offset, EPOCH)
        self.ticket += 1
        self.log.append(self.ticket, [batch])
        with self.reached:
            assert self.reached.wait_for(lambda: self.durable >= self.ticket, 20)
        return self.log.end_offset

    def metadata(self, *records: rec.MetadataRecord | rec.UnknownRecord) -> int:
        return self.append(build_metadata_batch(records, 1_000))

    def application(self, *values: bytes) -> int:
        return self.append(build_data_batch([(b"", value) for value in values], 1_000))

    def snapshot(self, batches: Sequence[bytearray]) -> OffsetAndEpoch:
        snapshot = OffsetAndEpoch(self.log.end_offset, EPOCH)
        self.log.write_snapshot(snapshot, 1, VOTERS, 1_000, batches)
        return snapshot


class Followed:
    """A loader and what it told."""

    def __init__(self, log: MetadataLog) -> None:
        self.failures: list[BaseException] = []
        self.told: list[MetadataDelta] = []
        self.failed = asyncio.Event()
        self.loader = MetadataLoader(log, on_fatal=self.fail)
        self.loader.add_listener(lambda _image, changes: self.told.append(changes))

    def fail(self, error: BaseException) -> None:
        self.failures.append(error)
        self.failed.set()

    async def reach(self, offset: int) -> MetadataImage:
        self.loader.committed(offset)
        await asyncio.wait_for(self.loader.reached(offset), 20)
        return self.loader.image


@asynccontextmanager
async def following(log: Log) -> AsyncIterator[Followed]:
    followed = Followed(log.log)
    followed.loader.start()
    try:
        yield followed
    finally:
        await followed.loader.stop()
        log.log.close()


async def test_what_is_committed_is_replayed_and_told_and_nothing_beyond(tmp_path: Path) -> None:
    log = Log(tmp_path)
    end = log.metadata(*topic())
    log.metadata(config("1"))
    async with following(log) as followed:
        image = await followed.reach(end)
        assert dict(image.topics.ids) == {"orders": TOPIC_ID}
        assert image.configs.resources == {}
        assert followed.told[-1].topics_created == {TOPIC_ID}
        image = await followed.reach(log.log.end_offset)
        assert image.configs.of(2, "orders") == {"retention.ms": "1"}
        assert followed.told[-1].configs == {(2, "orders")}
        assert followed.failures == []


async def test_a_busy_log_does_not_take_back_that_the_image_has_caught_up(tmp_path: Path) -> None:
    """Else an authorizer that was not asked before refuses everybody while others append."""
    log = Log(tmp_path)
    first, second = log.metadata(*topic()), log.metadata(config("1"))
    async with following(log) as followed:
        assert not followed.loader.has_caught_up, "no high watermark is known"
        followed.loader.committed(first)
        assert not followed.loader.has_caught_up
        await followed.reach(first)
        assert followed.loader.has_caught_up
        followed.loader.committed(second)
        assert followed.loader.offset == first
        assert followed.loader.has_caught_up


async def test_batches_of_applications_are_passed_over(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.application(b"one", b"two")
    log.metadata(*topic())
    end = log.application(b"three")
    async with following(log) as followed:
        image = await followed.reach(end)
        assert len(image.topics) == 1
        assert followed.loader.offset == end


async def test_a_transaction_counts_from_its_end(tmp_path: Path) -> None:
    log = Log(tmp_path)
    begun = log.metadata(rec.BeginTransactionRecord("copy"), *topic())
    ended = log.metadata(rec.EndTransactionRecord())
    async with following(log) as followed:
        image = await followed.reach(begun)
        assert image.in_transaction
        assert len(image.topics) == 0
        image = await followed.reach(ended)
        assert not image.in_transaction
        assert len(image.topics) == 1


async def test_the_image_begins_with_the_latest_snapshot(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.metadata(*topic())
    image = MetadataImage()
    image.apply_batch(topic(), 0, EPOCH, 1_000)
    snapshot = log.snapshot(list(snapshot_batches(image.records(), 1_000)))
    log.log.close()
    again = Log(tmp_path)
    end = again.metadata(config("2"))
    async with following(again) as followed:
        loaded = await followed.reach(snapshot.offset)
        assert loaded == image
        assert (loaded.offset, loaded.epoch) == (snapshot.offset - 1, EPOCH)
        assert followed.told[0].topics_created == {TOPIC_ID}
        assert (await followed.reach(end)).configs.of(2, "orders") == {"retention.ms": "2"}


async def test_much_at_once_is_replayed_on_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_loader, "LOOP_RECORDS_MAX", 3)
    log = Log(tmp_path)
    log.metadata(*topic())
    end = log.metadata(*[config(str(number)) for number in range(50)])
    async with following(log) as followed:
        before = followed.loader.image
        after = await followed.reach(end)
        assert after is not before
        assert after.configs.of(2, "orders") == {"retention.ms": "49"}


async def test_a_record_that_cannot_be_replayed_stops_the_node_with_its_offset(
    tmp_path: Path,
) -> None:
    log = Log(tmp_path)
    log.metadata(*topic())
    log.metadata(rec.PartitionChangeRecord(7, TOPIC_ID, isr=(1,)))
    async with following(log) as followed:
        followed.loader.committed(log.log.end_offset)
        await asyncio.wait_for(followed.failed.wait(), 20)
        (failure,) = followed.failures
        assert isinstance(failure, ReplayError)
        assert "offset 2" in str(failure)
        assert "partition 7" in str(failure)


async def test_a_later_listener_hears_of_all_there_is(tmp_path: Path) -> None:
    log = Log(tmp_path)
    end = log.metadata(*topic())
    async with following(log) as followed:
        await followed.reach(end)
        heard: list[MetadataDelta] = []
        followed.loader.add_listener(lambda _image, changes: heard.append(changes))
        assert [each.topics_created for each in heard] == [{TOPIC_ID}]


def header_of(batch: bytearray) -> tuple[bytearray, bool]:
    return batch, holds_metadata(batch, read_header(batch))


def test_the_first_records_key_tells_whose_a_batch_is() -> None:
    many = [(b"k" * 200, b"v" * 300)] * 200
    assert header_of(build_metadata_batch(topic(), 1))[1]
    assert not header_of(build_data_batch(many, 1))[1]
    assert not header_of(build_data_batch([(b"", b"")], 1))[1]
    assert header_of(build_data_batch([(None, b"x" * 9_000)], 1))[1]


def partition(number: int, replicas: tuple[int, ...], **fields: Any) -> rec.PartitionRecord:
    """Led by the first replica, each on a directory of its own."""
    return rec.PartitionRecord(
        number, TOPIC_ID, replicas, fields.pop("isr", replicas), leader=replicas[0],
        leader_epoch=number, partition_epoch=number * 2,
        directories=tuple(f"{'A' * 20}{broker % 10}g" for broker in replicas),
        **fields,
    )  # fmt: skip


NO_DIRECTORIES = [
    replace(partition(number, (1, 2)), directories=(), version=0) for number in range(5)
]
LONG = tuple(range(1, 41))
BATCHES: dict[str, list[rec.MetadataRecord]] = {
    "alike": [partition(number, (1, 2, 3)) for number in range(200)],
    "lists of several lengths": [
        partition(number, (1, 2, 3, 4)[: 1 + number % 4], isr=(1,)) for number in range(150)
    ],
    "as long, and other lists": [
        each
        for number in range(40)
        for each in (
            partition(number, (1, 2), adding_replicas=(7,)),
            partition(number, (1, 2), removing_replicas=(7,)),
            partition(number, (1, 2), isr=(2, 1), adding_replicas=(8,)),
        )
    ],
    "tagged fields": [
        partition(number, (1, 2), eligible_leader_replicas=(2,) if number % 3 else None)
        for number in range(100)
    ],
    "versions": [*NO_DIRECTORIES, *(replace(partition(n, (1, 2)), version=1) for n in range(5))]
    * 8,
    "topics between": [
        each for number in range(90) for each in (config("1"), partition(number, (5, 6)), *topic())
    ],
    "long lists": [partition(number, LONG) for number in range(3)],
    "many": [partition(number, (1, 2)) for number in range(2_500)],
}


def thoroughly(batch: bytes | bytearray) -> list[Any]:
    """The records, one after the other. ReplayError."""
    return decode_values(metadata_values(memoryview(batch), read_header(batch)))


@pytest.mark.parametrize("name", BATCHES)
def test_the_quick_way_through_a_batch_finds_what_the_thorough_one_does(name: str) -> None:
    records = BATCHES[name]
    batch = build_metadata_batch(records, 5)
    stamp(batch, 1_000_000, EPOCH)
    header = read_header(batch)
    for _ in range(2):  # what is remembered is there the second time
        found = plain_records(bytes(batch), header)
        assert found == records
        assert [r.version for r in found] == [r.version for r in thoroughly(batch)]
    assert metadata_records(memoryview(batch), header) == (1_000_000, records)


def outcome(read: Callable[[], Any]) -> Any:
    """What `read` returns, or why it does not."""
    try:
        return read()
    except ReplayError as error:
        return str(error)


@pytest.mark.parametrize("mask", [0x81, 0x01, 0x10, 0xFF])
def test_a_broken_batch_is_read_as_the_thorough_way_reads_it(mask: int) -> None:
    records = [*topic(), *[partition(number, (1, 2, 3)) for number in range(4)], config("1")]
    batch = build_metadata_batch(records, 5)
    stamp(batch, 1_000_000, EPOCH)
    header = read_header(batch)
    for position in range(61, len(batch)):
        broken = bytearray(batch)
        broken[position] ^= mask
        expected = outcome(lambda: thoroughly(broken))  # noqa: B023
        found = outcome(lambda: metadata_records(memoryview(broken), header)[1])  # noqa: B023
        assert found == expected, position


def test_no_byte_may_be_missing() -> None:
    batch = build_metadata_batch([partition(number, (1, 2, 3)) for number in range(9)], 5)
    for size in range(61, len(batch)):
        header = read_header(batch)._replace(length=size - 12)
        assert plain_records(bytes(batch[:size]), header) is None
        with pytest.raises(ReplayError):
            metadata_records(memoryview(batch)[:size], header)


def test_equal_lists_are_one_object() -> None:
    """A million partitions have few different lists."""
    batch = build_metadata_batch([partition(number, (1001, 1002)) for number in range(50)], 5)
    # The first partition of a shape is decoded alone, and the others are read like it.
    plain_records(bytes(batch), read_header(batch))
    (*records,) = plain_records(bytes(batch), read_header(batch)) or []
    assert len(records) == 50
    for name in ("topic_id", "replicas", "isr", "leader", "directories"):
        assert len({id(getattr(record, name)) for record in records}) == 1, name
    assert all(record.isr is record.replicas for record in records)


def test_what_is_remembered_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_batches, "REMEMBERED_MAX", 7)
    monkeypatch.setattr(in_batches, "SHAPES_MAX", 3)
    in_batches._LISTS.clear()
    in_batches._SHAPES.clear()
    records = [partition(n, tuple(range(n, n + 1 + n % 9)), isr=(n,)) for n in range(100)]
    batch = build_metadata_batch(records, 5)
    assert plain_records(bytes(batch), read_header(batch)) == records
    assert len(in_batches._LISTS) <= 7
    assert len(in_batches._SHAPES) <= 3


def test_a_snapshot_with_a_record_that_cannot_be_replayed_stops_the_node(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.metadata(*topic())
    stranger = rec.PartitionRecord(1, "A" * 21 + "Q", (1,), (1,))
    log.snapshot([build_metadata_batch([*topic(), stranger], 1_000)])
    log.log.close()

    async def follow() -> BaseException:
        async with following(Log(tmp_path)) as followed:
            await asyncio.wait_for(followed.failed.wait(), 20)
            return followed.failures[0]

    failure = asyncio.run(follow())
    assert isinstance(failure, ReplayError)
    assert failure.offset == 5  # behind the three control records that begin a snapshot
    assert "no topic" in failure.reason


def test_collection_is_paused_once_for_all_and_then_runs_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert gc.isenabled()
    with collection_paused():
        assert not gc.isenabled()
        with collection_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    # Tests that run a node in this process have allowed it.
    monkeypatch.setattr(_PAUSES, "may_freeze", False)
    frozen = gc.get_freeze_count()
    with collection_paused(freeze=True):
        pass
    assert gc.get_freeze_count() == frozen, "this is not a process of a node"
    allow_freezing()
    with pytest.raises(KeyError), collection_paused(freeze=True):
        raise KeyError
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen
    gc.disable()
    try:
        with collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
    with collection_paused(freeze=True):
        made = [[number] for number in range(1_000)]
    assert gc.get_freeze_count() >= frozen + len(made)
    gc.unfreeze()


def test_what_a_batch_holds_for_applications() -> None:
    whole = build_data_batch([(b"", b"1"), (b"k", b"2")], 5)
    stamp(whole, 7, 2)
    (kept,) = application_batches(whole, read_header(whole))
    assert kept is not whole, "the log's bytes stay as they are"
    assert read_header(whole).log_base_offset is None
    assert verify_crc(kept, 0, read_header(kept))
    assert read_header(kept).log_base_offset == 7
    assert pairs(kept) == [(7, b"", b"1"), (8, b"k", b"2")]
    metadata = build_metadata_batch(topic(), 5)
    assert list(application_batches(metadata, read_header(metadata))) == []
    value = rec.encode(config("1"))
    keys = (None, b"1", b"2", None, None, b"5")
    both = build_data_batch([(key, value if key is None else key) for key in keys], 5)
    stamp(both, 40, 2)
    runs = list(application_batches(both, read_header(both)))
    assert [read_header(run).log_base_offset for run in runs] == [41, 45]
    assert [read_header(run).max_timestamp for run in runs] == [5, 5]
    assert all(verify_crc(run, 0, read_header(run)) for run in runs)
    assert [pair for run in runs for pair in pairs(run)] == [
        (41, b"1", b"1"),
        (42, b"2", b"2"),
        (45, b"5", b"5"),
    ]


def pairs(batch: bytearray) -> list[tuple[int, bytes | None, bytes | None]]:
    """The records of a batch for a checkpoint: offset in the log, key, value."""
    header = read_header(batch)
    base = header.log_base_offset
    assert base is not None
    return [
        (base + record.offset - header.base_offset, record.key, record.value)
        for record in iter_records(memoryview(batch), header)
    ]


def test_files_hold_the_same_image_as_the_log(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.metadata(*topic())
    image = MetadataImage()
    image.apply_batch(topic(), 0, EPOCH, 1_000)
    snapshot = log.snapshot(list(snapshot_batches(image.records(), 1_000)))
    log.application(b"one")
    log.metadata(config("3"))
    log.log.close()
    (path,) = tmp_path.rglob("*.checkpoint")
    assert read_snapshot(path) == image
    assert read_snapshot(path).offset == snapshot.offset - 1
    found = read_directory(tmp_path)
    assert found.configs.of(2, "orders") == {"retention.ms": "3"}
    assert found.topics == image.topics
    assert read_directory(tmp_path / "__cluster_metadata-0") == found


def test_snapshots_are_batches_that_make_an_equal_image() -> None:
    image = MetadataImage()
    image.apply_batch([rec.FeatureLevelRecord("metadata.version", 30)], 0, 1, 1)
    for number in range(700):
        name = f"topic-{number}"
        topic_id = TOPIC_ID[:-4] + f"{number:03d}A"
        image.apply_batch([*topic(name, topic_id), config("1", name)], 1, 1, 1)
    again = MetadataImage()
    batches = list(snapshot_batches(image.records(), 9))
    assert len(batches) == 3
    for batch in batches:
        ((header, view),) = iter_batches(batch)
        apply_batch(again, header, view)
    assert again == image
