"""Make a metadata log of any length from real records: `python -m tests.spark.make_log`.

    python -m tests.spark.make_log DIRECTORY --records 5000000

The records are what a busy cluster's controller writes, in about its proportions: ISR shrinks and
expansions, new topics with their partitions (one batch a request, up to 500 partitions), configs,
fencings, producer ids and no-ops, with a leader change now and then. Values differ throughout: only
the mix repeats. The directory is a controller's, with meta.properties and one segment for each
256 MiB; Kafka's own tools read it.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from quorate.common.endpoints import Endpoint
from quorate.common.identifiers import uuid_from_bytes
from quorate.log.meta_properties import MetaProperties
from quorate.log.offset_files import format_epochs
from quorate.raft.batches import KRaftVersion, LeaderChange, VotersRecord
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from quorate.records.batch import build_control_batch, build_data_batch, read_header, stamp
from quorate.records.metadata import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
    encode,
)

CLUSTER = "yFPgY5iXQYqr5sMxfdxu0Q"
SEGMENT_BYTES = 256 << 20
BROKERS = tuple(range(101, 113))
FIRST_MS = 1_795_231_990_000
VOTERS = VoterSet.of(
    Voter(ReplicaKey(i, uuid_from_bytes(bytes([i]) * 16)), (Endpoint("C", "127.0.0.1", 9090 + i),))
    for i in (1, 2, 3)
)


def requests(seed: int) -> Iterator[list[MetadataRecord]]:
    """Batch after batch, for ever."""
    rng = random.Random(seed)
    topics: list[tuple[str, int]] = []
    made = 0
    while True:
        kind = rng.random()
        if kind < 0.15 or len(topics) < 20:
            batch, topic = _new_topic(rng, made)
            made += 1
            topics = [*topics[-500:], topic]
            yield batch
        elif kind < 0.75:
            yield _isr_changes(rng, topics)
        elif kind < 0.85:
            topic = f"topic-{rng.randrange(made)}"
            names = ("retention.ms", "segment.bytes", "cleanup.policy", "max.message.bytes")
            yield [
                ConfigRecord(2, topic, name, str(rng.randrange(1 << 30)))
                for name in rng.sample(names, rng.randint(1, 4))
            ]
        elif kind < 0.88:
            fenced = rng.choice((1, -1))
            yield [BrokerRegistrationChangeRecord(rng.choice(BROKERS), made, fenced=fenced)]
        elif kind < 0.90:
            yield [ProducerIdsRecord(rng.choice(BROKERS), made, made * 1000)]
        else:
            yield [NoOpRecord()]


def _new_topic(rng: random.Random, number: int) -> tuple[list[MetadataRecord], tuple[str, int]]:
    topic_id = uuid_from_bytes(rng.randbytes(16))
    count = rng.choice((1, 6, 12, 24, 64, 500))
    batch: list[MetadataRecord] = [TopicRecord(f"topic-{number}", topic_id)]
    for partition in range(count):
        replicas = tuple(rng.sample(BROKERS, 3))
        directories = tuple(uuid_from_bytes(bytes([broker]) * 16) for broker in replicas)
        batch.append(
            PartitionRecord(
                partition,
                topic_id,
                replicas,
                replicas,
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=directories,
            )
        )
    return batch, (topic_id, count)


def _isr_changes(rng: random.Random, topics: list[tuple[str, int]]) -> list[MetadataRecord]:
    """What a broker that leaves or comes back does to some partitions."""
    gone = rng.choice(BROKERS)
    batch: list[MetadataRecord] = []
    for _ in range(rng.choice((1, 2, 8, 40, 200))):
        topic_id, count = rng.choice(topics)
        isr = tuple(broker for broker in rng.sample(BROKERS, 3) if broker != gone)
        leader = isr[0] if rng.random() < 0.4 else -2
        batch.append(PartitionChangeRecord(rng.randrange(count), topic_id, isr, leader))
    return batch


class LogWriter:
    """Segments, one after the other. Batches are stamped with offset and epoch."""

    def __init__(self, directory: Path) -> None:
        self.partition = directory / "__cluster_metadata-0"
        self.partition.mkdir(parents=True)
        MetaProperties(CLUSTER, 1, uuid_from_bytes(b"\1" * 16)).write(directory)
        self.offset = 0
        self.epoch = 0
        self.epochs: list[OffsetAndEpoch] = []
        self._size = 0
        self._open()

    def _open(self) -> None:
        path = self.partition / f"{self.offset:020d}.log"
        self._file = path.open("wb", buffering=1 << 20)
        self._size = 0

    def append(self, batch: bytearray) -> None:
        if self._size + len(batch) > SEGMENT_BYTES:
            self._file.close()
            self._open()
        stamp(batch, self.offset, self.epoch)
        self._file.write(batch)
        self._size += len(batch)
        self.offset += read_header(batch).count

    def elect(self, leader: int, now_ms: int) -> None:
        self.epoch += 1
        self.epochs.append(OffsetAndEpoch(self.offset, self.epoch))
        keys = tuple(voter.key for voter in VOTERS)
        records = [LeaderChange(leader, keys, keys[:2])]
        if self.offset == 0:
            self.append(
                build_control_batch([*records, KRaftVersion(1), VotersRecord(VOTERS)], now_ms)
            )
        else:
            self.append(build_control_batch(records, now_ms))

    def close(self) -> None:
        self._file.close()
        (self.partition / "leader-epoch-checkpoint").write_bytes(format_epochs(self.epochs))


def make_log(directory: Path, count: int, seed: int = 1) -> int:
    """Write a log of at least `count` records; how many there are."""
    rng = random.Random(seed)
    writer = LogWriter(directory)
    now_ms = FIRST_MS
    writer.elect(1, now_ms)
    shown = time.monotonic()
    for records in requests(seed):
        now_ms += rng.randint(1, 400)
        if rng.random() < 0.0005:
            writer.elect(rng.choice((1, 2, 3)), now_ms)
        writer.append(build_data_batch([(None, encode(record)) for record in records], now_ms))
        if writer.offset >= count:
            break
        if sys.stderr.isatty() and time.monotonic() - shown > 1:
            shown = time.monotonic()
            print(f"\r{writer.offset:,} of {count:,} records", end="", file=sys.stderr)
    writer.close()
    return writer.offset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    written = make_log(arguments.directory, arguments.records, arguments.seed)
    print(f"{written} records in {arguments.directory}", file=sys.stderr)


if __name__ == "__main__":
    main()
