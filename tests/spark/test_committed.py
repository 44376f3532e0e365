"""What is committed by the directories alone, and where reads end. No Spark session."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from quorate.common.endpoints import Endpoint
from quorate.common.identifiers import uuid_from_bytes
from quorate.log.disk import Disk
from quorate.log.meta_properties import MetaProperties
from quorate.log.metadata_log import create_partition_directory
from quorate.log.snapshots import SnapshotStore
from quorate.raft.batches import ControlRecord, KRaftVersion, LeaderChange, VotersRecord
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from quorate.records.batch import build_control_batch, build_data_batch, stamp
from quorate.records.metadata import ConfigRecord, encode
from quorate.spark.decoding.columns import BATCHES, LEDGER, RAW
from quorate.spark.errors import OptionError, UnknownCommitError
from quorate.spark.jobs import Source
from quorate.spark.options import SourceOptions
from quorate.spark.source.data_source import QuorateReader, QuorateStreamReader

from tests.spark.make_log import CLUSTER

TIME_MS = 1_795_231_990_458
OTHER_CLUSTER = "h3JvRzZ1Tn6b5kq0m2xY8w"


def directory_id(node: int) -> str:
    return uuid_from_bytes(bytes([node]) * 16)


def voters(*nodes: int) -> VoterSet:
    return VoterSet.of(
        Voter(ReplicaKey(node, directory_id(node)), (Endpoint("C", "127.0.0.1", 9090 + node),))
        for node in nodes
    )


def config(base: int, epoch: int, records: int = 1) -> bytearray:
    values = [encode(ConfigRecord(2, "orders", f"n{base + n}", str(epoch))) for n in range(records)]
    found = build_data_batch([(None, value) for value in values], TIME_MS)
    stamp(found, base, epoch)
    return found


def control(base: int, epoch: int, *records: ControlRecord) -> bytearray:
    found = build_control_batch(list(records), TIME_MS)
    stamp(found, base, epoch)
    return found


@dataclass
class Log:
    """A node's directory. Each epoch begins with a LeaderChange; the first one, of epoch 1, brings
    the voters, in offsets 1 and 2, unless they are static."""

    directory: Path
    node: int
    of: VoterSet
    is_static: bool = False
    cluster: str = CLUSTER

    def write(self, end: int, epochs: dict[int, int] | None = None) -> Path:
        """Write the log [0, end). epochs: the first offset of each epoch after the first."""
        partition = create_partition_directory(self.directory)
        MetaProperties(self.cluster, self.node, directory_id(self.node)).write(self.directory)
        batches = list(self.batches(end, epochs or {}))
        (partition / f"{0:020}.log").write_bytes(b"".join(batches))
        return self.directory

    def batches(self, end: int, epochs: dict[int, int]) -> Iterator[bytearray]:
        keys = tuple(voter.key for voter in self.of.voters)
        starts = {start: epoch for epoch, start in epochs.items()}
        first: list[ControlRecord] = [LeaderChange(1, keys, keys)]
        if not self.is_static:
            first += [KRaftVersion(1), VotersRecord(self.of)]
        yield control(0, 1, *first)
        epoch = 1
        for offset in range(len(first), end):
            epoch = starts.get(offset, epoch)
            if offset in starts:
                yield control(offset, epoch, LeaderChange(2, keys, keys))
            else:
                yield config(offset, epoch)

    def checkpoint(self, offset: int, epoch: int) -> None:
        partition = self.directory / "__cluster_metadata-0"
        id_ = OffsetAndEpoch(offset, epoch)
        SnapshotStore(partition, Disk()).write(id_, 0, None, 5, [config(0, epoch)])


class Group:
    """The directories of three voters."""

    def __init__(self, root: Path, *, is_static: bool = False) -> None:
        self.root = root
        self.logs = {
            node: Log(root / str(node), node, voters(1, 2, 3), is_static) for node in (1, 2, 3)
        }

    def write(self, *ends: int) -> None:
        for log, end in zip(self.logs.values(), ends, strict=True):
            log.write(end)


@pytest.fixture
def group(tmp_path: Path) -> Group:
    return Group(tmp_path / "cluster")


Row = tuple[int, bool | None]


def read(*paths: Path, layer: str = LEDGER, **options: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of each replica, by node id."""
    given = {"paths": ",".join(map(str, paths)), "layer": layer, **options}
    reader = QuorateReader(SourceOptions.of(given))
    found: dict[str, list[dict[str, Any]]] = {}
    for part in reader.partitions():
        for batch in reader.read(part):
            for row in batch.to_pylist():
                found.setdefault(row["replica"].split("-")[0], []).append(row)
    return found


def offsets(*paths: Path, **options: str) -> dict[str, list[Row]]:
    return {
        node: [(row["offset"], row["committed"]) for row in rows]
        for node, rows in read(*paths, **options).items()
    }


def known(end: int) -> list[Row]:
    return [(offset, True) for offset in range(end)]


def unknown(start: int, end: int) -> list[Row]:
    return [(offset, None) for offset in range(start, end)]


def test_one_directory_is_read_to_its_end(group: Group) -> None:
    path = group.logs[1].write(20)
    assert offsets(path) == {"1": unknown(0, 20)}


def test_a_checkpoint_proves_what_it_contains_committed(group: Group) -> None:
    path = group.logs[1].write(20)
    group.logs[1].checkpoint(12, 1)
    assert offsets(path) == {"1": known(12) + unknown(12, 20)}
    rows = read(path, snapshots="all")["1"]
    stored = [row["committed"] for row in rows if row["snapshot"] is not None]
    assert len(stored) == 3
    assert all(stored)


def test_the_only_voter_is_a_majority(tmp_path: Path) -> None:
    assert offsets(Log(tmp_path / "1", 1, voters(1)).write(20)) == {"1": known(20)}
    assert offsets(Log(tmp_path / "2", 2, voters(1)).write(20)) == {"2": unknown(0, 20)}


def test_a_batch_is_committed_only_as_a_whole(tmp_path: Path) -> None:
    log = Log(tmp_path / "1", 1, voters(1, 2, 3))
    log.write(10)
    segment = log.directory / "__cluster_metadata-0" / f"{0:020}.log"
    segment.write_bytes(segment.read_bytes() + config(10, 1, records=4) + config(14, 1))
    log.checkpoint(12, 1)
    found = read(log.directory, layer=BATCHES)["1"]
    assert [row["committed"] for row in found] == [True] * 8 + [None] * 2
    (raw,) = read(log.directory, layer=RAW)["1"]
    assert raw["committed_end"] == 12
    typed = read(log.directory, layer="CONFIG_RECORD")["1"]
    assert [row["committed"] for row in typed] == [True] * 9 + [None] * 3


@pytest.mark.parametrize("is_static", [False, True])
def test_several_directories_are_read_to_what_a_majority_holds(
    tmp_path: Path, is_static: bool
) -> None:
    group = Group(tmp_path, is_static=is_static)
    group.write(20, 30, 25)
    assert offsets(tmp_path) == {"1": known(20), "2": known(25), "3": known(25)}


def test_the_tail_of_an_old_leader_is_not_read(group: Group) -> None:
    group.logs[1].write(30)
    group.logs[2].write(28, {2: 20})
    group.logs[3].write(26, {2: 20})
    assert offsets(group.root) == {"1": known(20), "2": known(26), "3": known(26)}


def test_records_that_a_later_leader_may_replace_are_not_read(group: Group) -> None:
    """A majority holds offset 24, but in an epoch whose records a later one need not keep."""
    group.logs[1].write(25)
    group.logs[2].write(26)
    group.logs[3].write(23, {2: 22})
    assert offsets(group.root)["2"] == known(25)
    group.logs[2].write(27, {3: 26})
    with pytest.raises(UnknownCommitError, match="the committed offset is unknown: of the voters"):
        offsets(group.root)
    assert offsets(group.root, highWatermark="22") == {str(n): known(22) for n in (1, 2, 3)}


def test_a_minority_of_the_voters_proves_nothing(group: Group) -> None:
    group.write(20, 20, 20)
    with pytest.raises(UnknownCommitError, match=r"1-.* in epoch 1"):
        offsets(group.logs[1].directory, Log(group.root / "101", 101, voters(1, 2, 3)).write(20))


def test_two_copies_of_a_voter_are_one_voter(group: Group, tmp_path: Path) -> None:
    copy = Log(tmp_path / "copy", 1, voters(1, 2, 3)).write(20)
    with pytest.raises(UnknownCommitError, match="the committed offset is unknown"):
        offsets(group.logs[1].write(20), copy)


def test_clusters_are_separate(group: Group, tmp_path: Path) -> None:
    group.write(20, 30, 25)
    other = Log(tmp_path / "other", 9, voters(9, 10), cluster=OTHER_CLUSTER).write(40)
    found = offsets(*(log.directory for log in group.logs.values()), other)
    assert found == {"1": known(20), "2": known(25), "3": known(25), "9": unknown(0, 40)}


def test_a_checkpoint_proves_more_than_a_majority_holds(group: Group) -> None:
    group.write(20, 30, 18)
    group.logs[2].checkpoint(28, 1)
    assert offsets(group.root) == {"1": known(20), "2": known(28), "3": known(18)}


def test_the_high_watermark_ends_a_read(group: Group) -> None:
    path = group.logs[1].write(20)
    group.logs[1].checkpoint(15, 1)
    assert offsets(path, highWatermark="12", snapshots="newest") == {"1": known(12)}
    assert offsets(path, highWatermark="12", startOffset="10", endOffset="30") == {
        "1": [(10, True), (11, True)]
    }
    assert offsets(path, highWatermark="90") == {"1": known(20)}
    for wrong in ("-1", "newest"):
        with pytest.raises(OptionError, match="highWatermark"):
            offsets(path, highWatermark=wrong)
    with pytest.raises(OptionError, match="its own high watermark"):
        SourceOptions.of({"bootstrap": "localhost:1", "highWatermark": "4"})


def test_a_stream_of_several_directories_ends_at_the_committed_offset(group: Group) -> None:
    group.write(30, 20, 25)
    given = {"paths": ",".join(str(log.directory) for log in group.logs.values())}
    stream = QuorateStreamReader(SourceOptions.of(given))
    assert stream.initialOffset() == {"offset": 0}
    assert stream.latestOffset({"offset": 0}) == {"offset": 25}
    group.logs[2].write(28)
    assert stream.latestOffset({"offset": 25}) == {"offset": 28}
    rows = [
        (row["offset"], row["committed"])
        for part in stream.partitions({"offset": 25}, {"offset": 28})
        for batch in stream.read(part)
        for row in batch.to_pylist()
    ]
    assert rows == known(28)[25:]
    bounded = QuorateStreamReader(SourceOptions.of({**given, "highWatermark": "9"}))
    assert bounded.latestOffset({"offset": 0}) == {"offset": 9}


def test_a_stream_waits_until_the_committed_offset_is_known(group: Group) -> None:
    group.write(20, 20, 20)
    given = {"paths": ",".join(str(log.directory) for log in group.logs.values())}
    stream = QuorateStreamReader(SourceOptions.of(given))
    end = stream.latestOffset({"offset": 0})
    group.logs[1].write(26, {4: 25})
    group.logs[2].write(24, {2: 23})
    assert stream.latestOffset(end) == end == {"offset": 20}
    assert len(stream.partitions({"offset": 0}, end)) == 1
    with pytest.raises(UnknownCommitError):
        QuorateStreamReader(SourceOptions.of(given)).initialOffset()
    with pytest.raises(UnknownCommitError):
        stream.prepareForTriggerAvailableNow()
    group.logs[3].write(24, {2: 23})
    # The first log has a tail of another epoch behind offset 22.
    assert stream.latestOffset(end) == {"offset": 23}


def test_a_stream_of_several_clusters_is_an_error(group: Group, tmp_path: Path) -> None:
    other = Log(tmp_path / "other", 9, voters(9), cluster=OTHER_CLUSTER).write(40)
    given = {"paths": f"{group.logs[1].write(20)},{other}"}
    with pytest.raises(OptionError, match="directories of one cluster"):
        QuorateStreamReader(SourceOptions.of(given))


def test_a_job_reads_one_log_up_to_the_committed_offset(group: Group) -> None:
    group.logs[1].write(30)
    group.logs[2].write(28, {2: 20})
    group.logs[3].write(26, {2: 20})
    paths = tuple(log.directory for log in group.logs.values())
    chosen = Source(paths).log()
    assert (chosen.paths, chosen.options) == ((paths[1],), {"highWatermark": "26"})
    named = Source(paths, replica="1").log()
    assert (named.paths, named.options) == ((paths[0],), {"highWatermark": "20"})
    single = Source(paths[:1]).log()
    assert (single.paths, single.options) == (paths[:1], {})
