"""Planting faults into copies of healthy directories: one function a fault.

Each changes files of one replica and says what the audit has to name: its rule, the replica, an
offset, and bytes of the file that lie there.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from crc32c import crc32c
from quorate.log.meta_properties import MetaProperties
from quorate.log.snapshots import parse_snapshot_name
from quorate.raft.batches import LeaderChange, SnapshotFooter, VotersRecord
from quorate.raft.types import ReplicaKey, VoterSet
from quorate.records.batch import (
    BatchHeader,
    build_control_batch,
    build_data_batch,
    iter_batches,
    iter_records,
    parse_batches,
    read_header,
    stamp,
)
from quorate.records.compaction import with_survivors
from quorate.records.metadata import (
    BeginTransactionRecord,
    NoOpRecord,
    TopicRecord,
    decode,
    encode,
)
from quorate.spark.auditing.rules import AuditRule

PARTITION = "__cluster_metadata-0"
OTHER_CLUSTER = "h3JvRzZ1Tn6b5kq0m2xY8w"


@dataclass(frozen=True, slots=True)
class Planted:
    """What must be found: one of the rules, at the replica, at the offset (None: any).

    findings: their number, one per cause.
    """

    rules: tuple[AuditRule, ...]
    replica: str
    offset: int | None
    findings: int = 1


class Victim:
    """One replica's directory and its first segment, whose batches can be replaced.

    place: chooses the batches that faults change; the first that fits without it.
    """

    def __init__(self, directory: Path, place: random.Random | None = None) -> None:
        self._place = place
        self.directory = directory
        self.partition = directory / PARTITION
        self.segment = min(self.partition.glob("*.log"))
        properties = MetaProperties.read(directory)
        self.name = f"{properties.node_id}-{properties.directory_id}"
        data = self.segment.read_bytes()
        self.batches: list[tuple[BatchHeader, bytearray]] = [
            (header, bytearray(batch)) for header, batch in iter_batches(data)
        ]

    def write(self) -> None:
        self.segment.write_bytes(b"".join(bytes(batch) for _, batch in self.batches))

    def index_where(self, fits: Callable[[int], bool], first: int = 20, behind: int = 0) -> int:
        """The index of a batch that fits and has `behind` batches after it."""
        found = [i for i in range(first, len(self.batches) - behind) if fits(i)]
        return found[0] if self._place is None else self._place.choice(found)

    def is_data(self, index: int) -> bool:
        return not self.batches[index][0].is_control

    def is_single(self, index: int) -> bool:
        """Whether it is a data batch of one record."""
        return self.is_data(index) and self.batches[index][0].count == 1

    def values(self, index: int) -> set[bytes | None]:
        """The values of the records of a batch."""
        header, batch = self.batches[index]
        return {record.value for record in iter_records(memoryview(batch), header)}

    def data_batch(self, fits: Callable[[int], bool] = lambda _: True) -> int:
        """The index of a data batch that fits, with a data batch after it."""
        return self.index_where(
            lambda i: self.is_data(i) and self.is_data(i + 1) and fits(i), behind=1
        )

    def control(self, kind: type) -> tuple[int, int]:
        """The last control batch that holds a kind of record: its index and the record's."""
        for index in reversed(range(len(self.batches))):
            header, batch = self.batches[index]
            if header.is_control:
                (parsed,) = parse_batches(bytes(batch))
                for at, record in enumerate(parsed.control):
                    if isinstance(record, kind):
                        return index, at
        raise AssertionError(f"no {kind.__name__}")

    def planted(self, *rules: AuditRule, offset: int | None) -> Planted:
        return Planted(rules, self.name, offset)


def restamped(batch: bytearray, offset: int, epoch: int) -> bytearray:
    stamp(batch, offset, epoch)
    return batch


def sealed(batch: bytearray) -> bytearray:
    """With a checksum that is right for what it holds now."""
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return batch


def flipped_bit(victim: Victim) -> Planted:
    index = victim.data_batch()
    header, batch = victim.batches[index]
    batch[70] ^= 0x10
    victim.write()
    return victim.planted(AuditRule.CHECKSUM, offset=header.base_offset)


def swapped_batches(victim: Victim) -> Planted:
    index = victim.data_batch()
    batches = victim.batches
    batches[index], batches[index + 1] = batches[index + 1], batches[index]
    victim.write()
    return victim.planted(AuditRule.GAP, AuditRule.ORDER, offset=None)


def forged_epoch(victim: Victim) -> Planted:
    """The epoch lies outside of what the checksum covers."""
    index = victim.data_batch()
    header, batch = victim.batches[index]
    stamp(batch, header.base_offset, header.epoch + 1)
    victim.write()
    return victim.planted(AuditRule.EPOCH, AuditRule.DIVERGENCE, offset=header.base_offset)


def divergent_record(victim: Victim) -> Planted:
    """Another record of the same size with a right checksum, where all others agree."""
    index = victim.data_batch()
    header, batch = victim.batches[index]
    batch[-2] ^= 0x01
    sealed(batch)
    victim.write()
    return victim.planted(AuditRule.LOG_MATCHING, offset=header.base_offset)


def two_leaders(victim: Victim) -> Planted:
    index, at = victim.control(LeaderChange)
    header, batch = victim.batches[index]
    (parsed,) = parse_batches(bytes(batch))
    records = list(parsed.control)
    change = records[at]
    assert isinstance(change, LeaderChange)
    other = next(key for key in change.voters if key.id != change.leader_id)
    records[at] = LeaderChange(other.id, change.voters, change.granting)
    made = build_control_batch(records, header.base_timestamp)
    victim.batches[index] = header, restamped(made, header.base_offset, header.epoch)
    victim.write()
    return victim.planted(AuditRule.ONE_LEADER, offset=header.base_offset)


def voters_jump(victim: Victim) -> Planted:
    """A voter set that has two replicas more than the one before it."""
    index, at = victim.control(VotersRecord)
    header, batch = victim.batches[index]
    (parsed,) = parse_batches(bytes(batch))
    records = list(parsed.control)
    voters = records[at]
    assert isinstance(voters, VotersRecord)
    some = voters.voters.voters[0]
    more = [
        type(some)(ReplicaKey(i, "rCEzNRdZMqf-jpZJ255y8w"), some.endpoints, some.kraft_version)
        for i in (8, 9)
    ]
    records[at] = VotersRecord(VoterSet.of([*voters.voters.voters, *more]))
    made = build_control_batch(records, header.base_timestamp)
    victim.batches[index] = header, restamped(made, header.base_offset, header.epoch)
    victim.write()
    return victim.planted(AuditRule.VOTERS, offset=header.base_offset + at)


def truncated_tail(victim: Victim) -> Planted:
    del victim.batches[-3:]
    end = victim.batches[-1][0].end_offset
    victim.write()
    return victim.planted(AuditRule.LOST_TAIL, offset=end)


def missing_segment(victim: Victim) -> Planted:
    """The log in three files, of which the second is gone."""
    first, second = len(victim.batches) // 3, 2 * len(victim.batches) // 3
    begin, end = victim.batches[first][0].base_offset, victim.batches[second][0].base_offset
    tail = victim.partition / f"{end:020d}.log"
    tail.write_bytes(b"".join(bytes(batch) for _, batch in victim.batches[second:]))
    del victim.batches[first:]
    victim.write()
    return victim.planted(AuditRule.GAP, offset=begin)


def misnamed_segment(victim: Victim) -> Planted:
    """A second segment whose name is not its first offset; no offset is missing."""
    index = victim.data_batch()
    begin = victim.batches[index][0].base_offset
    tail = victim.partition / f"{begin + 1:020d}.log"
    tail.write_bytes(b"".join(bytes(batch) for _, batch in victim.batches[index:]))
    del victim.batches[index:]
    victim.write()
    return victim.planted(AuditRule.ORDER, offset=begin)


def misnamed_checkpoint(victim: Victim) -> Planted:
    """A checkpoint whose name says an epoch that its batches do not have."""
    path = max(victim.partition.glob("*.checkpoint"))
    snapshot = parse_snapshot_name(path.stem)
    assert snapshot is not None
    path.rename(path.with_stem(f"{snapshot.offset:020d}-{snapshot.epoch + 1:010d}"))
    return victim.planted(AuditRule.SNAPSHOT, offset=0)


def snapshot_disagrees(victim: Victim) -> Planted:
    """A checkpoint with one topic named otherwise, every checksum right."""
    path = max(victim.partition.glob("*.checkpoint"))
    data = bytearray()
    changed = False
    for header, batch in iter_batches(path.read_bytes()):
        copy = bytearray(batch)
        if not header.is_control and not changed:
            pairs = []
            for record in iter_records(batch, header):
                value = decode(record.value or b"")
                if isinstance(value, TopicRecord) and not changed:
                    changed = True
                    value = TopicRecord(value.name[::-1], value.topic_id)
                    pairs.append((record.key, encode(value)))
                else:
                    pairs.append((record.key, record.value))
            made = build_data_batch(pairs, header.base_timestamp)
            copy = restamped(made, header.base_offset, header.epoch)
        data += copy
    assert changed
    path.write_bytes(data)
    return victim.planted(AuditRule.SNAPSHOT, offset=int(path.stem.split("-")[0]))


def wrong_cluster(victim: Victim) -> Planted:
    properties = MetaProperties.read(victim.directory)
    MetaProperties(OTHER_CLUSTER, properties.node_id, properties.directory_id).write(
        victim.directory
    )
    return victim.planted(AuditRule.CLUSTER, offset=None)


def duplicated_offset(victim: Victim) -> Planted:
    index = victim.data_batch()
    header, batch = victim.batches[index]
    victim.batches.insert(index, (header, bytearray(batch)))
    victim.write()
    return victim.planted(AuditRule.DUPLICATE, offset=header.base_offset)


def control_out_of_place(victim: Victim) -> Planted:
    """A snapshot's footer where a no-op stood."""
    index = victim.index_where(victim.is_single)
    header, _ = victim.batches[index]
    made = build_control_batch([SnapshotFooter()], header.base_timestamp)
    victim.batches[index] = header, restamped(made, header.base_offset, header.epoch)
    victim.write()
    return victim.planted(AuditRule.CONTROL, offset=header.base_offset)


def second_leader_change(victim: Victim) -> Planted:
    """A leader that begins its epoch twice."""
    index, at = victim.control(LeaderChange)
    (parsed,) = parse_batches(bytes(victim.batches[index][1]))
    change = parsed.control[at]
    after = victim.index_where(victim.is_single, index + 1)
    place = victim.batches[after][0]
    made = build_control_batch([change], place.base_timestamp)
    victim.batches[after] = place, restamped(made, place.base_offset, place.epoch)
    victim.write()
    return victim.planted(AuditRule.CONTROL, offset=place.base_offset)


def garbage(victim: Victim) -> Planted:
    """Bytes that are no batch, with whole batches behind them."""
    index = victim.data_batch()
    header, batch = victim.batches[index]
    victim.batches[index] = header, bytearray(b"\xff" * len(batch))
    victim.write()
    return victim.planted(AuditRule.BYTES, offset=header.base_offset)


def old_quorum_state(victim: Victim) -> Planted:
    path = victim.partition / "quorum-state"
    path.write_text(
        '{"leaderId":1,"leaderEpoch":1,"votedId":-1,'
        '"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )
    return victim.planted(AuditRule.STATE, offset=None)


def other_leader(victim: Victim) -> Planted:
    """A quorum-state that names another leader of its epoch than the log."""
    path = victim.partition / "quorum-state"
    state = json.loads(path.read_bytes())
    state["leaderId"] = state["leaderId"] % 3 + 1
    path.write_text(json.dumps(state))
    return victim.planted(AuditRule.ONE_LEADER, offset=None)


def later_epochs(victim: Victim) -> Planted:
    """The last two epochs, of committed records, under forged numbers."""
    first = next(
        i
        for i, (header, _) in enumerate(victim.batches)
        if header.epoch >= victim.batches[-1][0].epoch - 1
    )
    for header, batch in victim.batches[first:]:
        stamp(batch, header.base_offset, header.epoch + 10)
    victim.write()
    return victim.planted(AuditRule.DIVERGENCE, offset=victim.batches[first][0].base_offset)


def lost_record(victim: Victim) -> Planted:
    """A record taken out of a batch, the checksum right."""
    index = victim.index_where(lambda i: victim.is_data(i) and not victim.is_single(i))
    header, batch = victim.batches[index]
    kept = with_survivors(batch, header, lambda record: record.offset != header.last_offset)
    assert kept is not None
    victim.batches[index] = header, kept
    victim.write()
    return victim.planted(AuditRule.GAP, offset=header.base_offset)


def damaged_bootstrap(victim: Victim) -> Planted:
    """A flipped bit in bootstrap.checkpoint, which lies beside the log's directory."""
    path = victim.directory / "bootstrap.checkpoint"
    data = bytearray(path.read_bytes())
    header = read_header(data)
    data[header.size_bytes + 70] ^= 0x10
    path.write_bytes(data)
    return victim.planted(AuditRule.CHECKSUM, offset=None)


def no_op_instead(victim: Victim) -> Planted:
    """A committed batch replaced by no-ops."""
    no_op = encode(NoOpRecord())
    index = victim.data_batch(lambda i: victim.values(i) != {no_op})
    header, _ = victim.batches[index]
    made = build_data_batch([(None, no_op)] * header.count, header.base_timestamp)
    victim.batches[index] = header, restamped(made, header.base_offset, header.epoch)
    victim.write()
    return victim.planted(AuditRule.LOG_MATCHING, offset=header.base_offset)


def foreign_producer(victim: Victim) -> Planted:
    """A batch of metadata with a producer id, the checksum right."""
    index = victim.data_batch()
    header, batch = victim.batches[index]
    batch[43:57] = (4_000).to_bytes(8, "big") + bytes(2) + (7).to_bytes(4, "big")
    sealed(batch)
    victim.write()
    return victim.planted(AuditRule.PRODUCER, offset=header.base_offset)


def leaping_timestamp(victim: Victim) -> Planted:
    """A batch that was written a year before its neighbours, the checksum right."""
    index = victim.index_where(
        lambda i: len({header.epoch for header, _ in victim.batches[i - 1 : i + 2]}) == 1, behind=1
    )
    header, batch = victim.batches[index]
    for at, value in ((27, header.base_timestamp), (35, header.max_timestamp)):
        batch[at : at + 8] = (value - 365 * 24 * 3600 * 1000).to_bytes(8, "big")
    sealed(batch)
    victim.write()
    return victim.planted(AuditRule.TIMESTAMP, offset=header.base_offset)


def nested_transaction(victim: Victim) -> Planted:
    """Two no-ops replaced by beginnings of transactions, of which the second is one too many."""
    first = victim.index_where(victim.is_single, behind=20)
    places = [i for i in range(first, len(victim.batches)) if victim.is_single(i)]
    for index in places[:2]:
        header, _ = victim.batches[index]
        value = encode(BeginTransactionRecord("forged"))
        made = build_data_batch([(None, value)], header.base_timestamp)
        victim.batches[index] = header, restamped(made, header.base_offset, header.epoch)
    victim.write()
    second = victim.batches[places[1]][0]
    return replace(victim.planted(AuditRule.TRANSACTION, offset=second.base_offset), findings=2)


def wrong_index(victim: Victim) -> Planted:
    """The last entry of the first segment's index names a byte within a batch."""
    path = victim.segment.with_suffix(".index")
    data = bytearray(path.read_bytes())
    at = max(i for i in range(0, len(data), 8) if any(data[i : i + 8]))
    position = int.from_bytes(data[at + 4 : at + 8], "big")
    data[at + 4 : at + 8] = (position + 5).to_bytes(4, "big")
    path.write_bytes(data)
    offset = int(victim.segment.stem) + int.from_bytes(data[at : at + 4], "big")
    return victim.planted(AuditRule.INDEX, offset=offset)


def unknown_directory(victim: Victim) -> Planted:
    """A voter's meta.properties with a directory id that no voter ever had."""
    properties = MetaProperties.read(victim.directory)
    MetaProperties(properties.cluster_id, properties.node_id, OTHER_CLUSTER).write(victim.directory)
    return Planted((AuditRule.IDENTITY,), f"{properties.node_id}-{OTHER_CLUSTER}", None)


FAULTS: dict[str, tuple[str, Callable[[Victim], Planted]]] = {
    "flipped bit": ("full-history", flipped_bit),
    "swapped batches": ("full-history", swapped_batches),
    "forged epoch": ("full-history", forged_epoch),
    "divergent committed record": ("full-history", divergent_record),
    "two leaders in an epoch": ("full-history", two_leaders),
    "voter set that jumps by two": ("full-history", voters_jump),
    "truncated committed tail": ("full-history", truncated_tail),
    "missing segment": ("full-history", missing_segment),
    "misnamed segment": ("full-history", misnamed_segment),
    "checkpoint of another epoch than its name": ("compacted", misnamed_checkpoint),
    "snapshot that disagrees": ("compacted", snapshot_disagrees),
    "wrong cluster id": ("full-history", wrong_cluster),
    "duplicated offset": ("full-history", duplicated_offset),
    "control record out of place": ("full-history", control_out_of_place),
    "second LeaderChange": ("full-history", second_leader_change),
    "bytes that are no batch": ("full-history", garbage),
    "old quorum-state": ("full-history", old_quorum_state),
    "record replaced by a no-op": ("full-history", no_op_instead),
    "another leader in quorum-state": ("full-history", other_leader),
    "forged later epochs": ("full-history", later_epochs),
    "record taken out of a batch": ("full-history", lost_record),
    "damaged bootstrap.checkpoint": ("full-history", damaged_bootstrap),
    "producer id of nobody": ("full-history", foreign_producer),
    "timestamp a year back": ("full-history", leaping_timestamp),
    "transaction within another one": ("full-history", nested_transaction),
    "index entry within a batch": ("full-history", wrong_index),
    "directory id in no voter set": ("full-history", unknown_directory),
}
