"""meta.properties, quorum-state, the lock, and Kafka's small checkpoints."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from quorate.common.identifiers import uuid_to_bytes
from quorate.log.disk import Disk
from quorate.log.errors import (
    DirectoryLockedError,
    DiskFullError,
    LogError,
    LostVotesError,
    MetaPropertiesError,
    QuorumStateError,
)
from quorate.log.lock import DirectoryLock
from quorate.log.meta_properties import MetaProperties, ensure_directory_id, random_uuid
from quorate.log.offset_files import (
    format_epochs,
    read_epochs,
    read_recovery_point,
    write_epochs,
    write_recovery_point,
)
from quorate.log.quorum_state import QuorumStateFile
from quorate.log.recovery_point import RecoveryPoint
from quorate.raft.types import ElectionState, OffsetAndEpoch, ReplicaKey
from quorate.records.primitives import Buffer

from tests.durability.disk import FaultyDisk
from tests.processes import Dialog
from tests.unit.log.log_support import DIRECTORY_1

KAFKAS_QUORUM_STATE = (
    b'{"leaderId":2,"leaderEpoch":5,"votedId":2,'
    b'"votedDirectoryId":"Rigw3vfNRMmcl9pdbu4hDQ","data_version":1}'
)
NOBODY = (
    b'{"leaderId":-1,"leaderEpoch":7,"votedId":-1,'
    b'"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
)
VERSION_0 = (
    b'{"clusterId":"","leaderId":-1,"leaderEpoch":3,"votedId":4,'
    b'"appliedOffset":0,"currentVoters":[],"data_version":0}'
)
HOLDER = """
import sys
from pathlib import Path
from quorate.log.lock import DirectoryLock

lock = DirectoryLock(Path(sys.argv[1]))
print("held", flush=True)
input()
"""
KAFKAS_PROPERTIES = b"""#
#Sat Nov 21 03:33:10 UTC 2026
node.id=1
directory.id=Rigw3vfNRMmcl9pdbu4hDQ
version=1
cluster.id=yFPgY5iXQYqr5sMxfdxu0Q
"""


def test_meta_properties_of_kafka_are_read(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_bytes(KAFKAS_PROPERTIES)
    properties = MetaProperties.read(tmp_path)
    assert properties == MetaProperties("yFPgY5iXQYqr5sMxfdxu0Q", 1, DIRECTORY_1)


def test_meta_properties_are_written_in_kafkas_form(tmp_path: Path) -> None:
    properties = MetaProperties("yFPgY5iXQYqr5sMxfdxu0Q", 1, DIRECTORY_1)
    properties.write(tmp_path)
    assert MetaProperties.read(tmp_path) == properties
    lines = (tmp_path / "meta.properties").read_bytes().splitlines()
    ours = [line for line in lines if not line.startswith(b"#")]
    assert ours == [line for line in KAFKAS_PROPERTIES.splitlines() if not line.startswith(b"#")]
    assert [path.name for path in tmp_path.iterdir()] == ["meta.properties"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "is not formatted"),
        (b"", "has no version"),
        (b"version=0\nbroker.id=1\n", "has version 0"),
        (b"version=1\ncluster.id=x\n", "has no node.id"),
        (b"version=1\nnode.id=one\ncluster.id=x\n", "invalid node.id: 'one'"),
        (b"version=1\nnode.id=1\n", "has no cluster.id"),
        (b"version=1\nnode.id=1\ncluster.id=x\ndirectory.id=short\n", "directory.id"),
        (b"version=1\nnode.id=\\uZZZZ\n", "cannot be read"),
    ],
)
def test_bad_meta_properties_are_explained(
    tmp_path: Path, content: bytes | None, complaint: str
) -> None:
    if content is not None:
        (tmp_path / "meta.properties").write_bytes(content)
    with pytest.raises(MetaPropertiesError, match=complaint) as caught:
        MetaProperties.read(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_missing_directory_id_is_made_up_once(tmp_path: Path) -> None:
    MetaProperties("c", 3, None).write(tmp_path)
    assert MetaProperties.read(tmp_path).directory_id is None
    first = ensure_directory_id(tmp_path)
    assert first.directory_id is not None
    assert ensure_directory_id(tmp_path) == first


def test_random_uuids_are_version_4_and_no_flags() -> None:
    made = {random_uuid() for _ in range(500)}
    assert len(made) == 500
    assert not [text for text in made if text.startswith("-")]
    assert {uuid_to_bytes(text)[6] >> 4 for text in made} == {4}


@pytest.mark.parametrize(
    ("state", "version", "text"),
    [
        (ElectionState(5, 2, ReplicaKey(2, DIRECTORY_1)), 1, KAFKAS_QUORUM_STATE),
        (
            ElectionState(7, None, None),
            1,
            NOBODY,
        ),
        (
            ElectionState(3, None, ReplicaKey(4)),
            0,
            VERSION_0,
        ),
    ],
)
def test_quorum_state_has_kafkas_bytes(
    tmp_path: Path, state: ElectionState, version: int, text: bytes
) -> None:
    file = QuorumStateFile(tmp_path)
    assert file.read() is None
    file.write(state, version)
    assert file.path.read_bytes() == text
    assert QuorumStateFile(tmp_path).read() == state


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        KAFKAS_QUORUM_STATE[:-1],
        KAFKAS_QUORUM_STATE.replace(b'"leaderEpoch":5', b'"leaderEpoch":-2'),
        KAFKAS_QUORUM_STATE.replace(b'"leaderEpoch":5', b'"leaderEpoch":true'),
        KAFKAS_QUORUM_STATE.replace(b'"data_version":1', b'"data_version":2'),
        KAFKAS_QUORUM_STATE.replace(b"Rigw3vfNRMmcl9pdbu4hDQ", b"x"),
        KAFKAS_QUORUM_STATE.replace(b'"Rigw3vfNRMmcl9pdbu4hDQ"', b"7"),
        b"\xff\xfe",
    ],
)
def test_a_broken_quorum_state_is_never_guessed_at(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "quorum-state").write_bytes(text)
    with pytest.raises(QuorumStateError, match="does not know how it voted"):
        QuorumStateFile(tmp_path).read()


class FullDisk(Disk):
    """Takes no byte that is not allocated yet."""

    def write_all(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        if os.fstat(descriptor).st_blocks == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write_all(descriptor, buffers, position)


def test_a_full_disk_does_not_keep_a_replica_from_voting(tmp_path: Path) -> None:
    QuorumStateFile(tmp_path).write(ElectionState(1))
    file = QuorumStateFile(tmp_path, FullDisk())
    for epoch in range(2, 30):
        state = ElectionState(epoch, None, ReplicaKey(1, DIRECTORY_1))
        file.write(state)
        assert file.read() == state
    (tmp_path / "quorum-state.tmp").unlink()
    with pytest.raises(DiskFullError, match="no space is left"):
        file.write(ElectionState(99))
    assert file.read() == state


@pytest.mark.parametrize("leftover", ["spare", "tmp", "link"])
def test_quorum_state_survives_a_crash_between_its_steps(tmp_path: Path, leftover: str) -> None:
    file = QuorumStateFile(tmp_path)
    file.write(ElectionState(1))
    file.write(ElectionState(2))
    if leftover == "spare":
        (tmp_path / "quorum-state.spare").hardlink_to(tmp_path / "quorum-state")
    elif leftover == "tmp":
        (tmp_path / "quorum-state.tmp").write_bytes(b'{"half')
    else:
        (tmp_path / "quorum-state.tmp").unlink()
        (tmp_path / "quorum-state.tmp").hardlink_to(tmp_path / "quorum-state")
    again = QuorumStateFile(tmp_path)
    assert again.read() == ElectionState(2)
    again.write(ElectionState(3, 1))
    assert again.read() == ElectionState(3, 1)
    assert not (tmp_path / "quorum-state.spare").exists()


@pytest.mark.parametrize("kind", ["symlink", "dangling symlink", "hard link"])
def test_a_link_in_place_of_the_reserve_changes_no_other_file(tmp_path: Path, kind: str) -> None:
    directory, other = tmp_path / "partition", tmp_path / "other"
    directory.mkdir()
    other.write_bytes(b"of another program")
    reserve = directory / "quorum-state.tmp"
    file = QuorumStateFile(directory)
    file.write(ElectionState(1))
    reserve.unlink()
    if kind == "hard link":
        reserve.hardlink_to(other)
    else:
        reserve.symlink_to(other if kind == "symlink" else tmp_path / "missing")
    for epoch in (2, 3):
        file.write(ElectionState(epoch))
        assert file.read() == ElectionState(epoch)
    assert other.read_bytes() == b"of another program"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "partition"]
    assert not file.path.is_symlink()


def test_a_file_is_not_replaced_through_a_symlink(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"of another program")
    (tmp_path / "required-end.tmp").symlink_to(other)
    with pytest.raises(OSError, match="symbolic link"):
        Disk().replace_file(tmp_path / "required-end", b"new")
    assert other.read_bytes() == b"of another program"


def test_a_second_process_is_refused_with_the_first_ones_number(tmp_path: Path) -> None:
    with Dialog("holder", tmp_path / "log", sys.executable, "-c", HOLDER, tmp_path) as holder:
        holder.start()
        assert holder.line() == "held\n"
        with pytest.raises(DirectoryLockedError, match=f"process {holder.pid} holds"):
            DirectoryLock(tmp_path)
        holder.tell("")
        assert holder.wait() == 0
    with DirectoryLock(tmp_path) as lock:
        assert lock.path == tmp_path / ".lock"
        with pytest.raises(DirectoryLockedError, match="this process holds"):
            DirectoryLock(tmp_path)
    with DirectoryLock(tmp_path):
        pass


def test_leader_epoch_checkpoint_has_kafkas_bytes(tmp_path: Path) -> None:
    epochs = (OffsetAndEpoch(0, 1), OffsetAndEpoch(107, 3))
    assert format_epochs(epochs) == b"0\n2\n1 0\n3 107\n"
    assert read_epochs(tmp_path) == ()
    write_epochs(Disk(), tmp_path, epochs)
    assert read_epochs(tmp_path) == epochs
    (tmp_path / "leader-epoch-checkpoint").write_bytes(b"0\n3\n1 0\n")
    with pytest.raises(LogError, match="not a checkpoint of version 0; delete it"):
        read_epochs(tmp_path)


def test_other_partitions_keep_their_recovery_points(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    assert read_recovery_point(tmp_path) is None
    path.write_bytes(b"0\n2\norders 3 17\n__cluster_metadata 0 5\n")
    assert read_recovery_point(tmp_path) == 5
    write_recovery_point(Disk(), tmp_path, 9)
    text = b"0\n2\n__cluster_metadata 0 00000000000000000009\norders 3 17\n"
    assert path.read_bytes() == text
    assert read_recovery_point(tmp_path) == 9


def test_the_recovery_point_is_written_in_place(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_bytes(b"0\n2\norders 3 17\n__cluster_metadata 0 5\n")
    point = RecoveryPoint(tmp_path, Disk(), 7)
    inode = path.stat().st_ino
    for offset in (8, 123456789, 99):
        point.advance(offset)
        assert not point.is_synced
        assert read_recovery_point(tmp_path) == offset
    point.lower(100)
    assert read_recovery_point(tmp_path) == 99
    point.lower(12)
    assert point.is_synced
    point.close()
    text = b"0\n2\n__cluster_metadata 0 00000000000000000012\norders 3 17\n"
    assert path.read_bytes() == text
    assert path.stat().st_ino == inode
    RecoveryPoint(tmp_path, Disk(), 12).close()
    assert path.stat().st_ino == inode


def test_a_recovery_point_whose_sync_failed_is_written_again(tmp_path: Path) -> None:
    disk = FaultyDisk([tmp_path])
    point = RecoveryPoint(tmp_path, disk, 7)
    point.advance(9)
    disk.fail_at(1, "eio", Random(0))
    with pytest.raises(OSError, match="the failed sync"):
        point.sync()
    point.close()
    durable = disk.file(tmp_path / "recovery-point-offset-checkpoint").durable
    assert b" 00000000000000000007\n" in durable
    RecoveryPoint(tmp_path, disk, 9).close()
    assert b" 00000000000000000009\n" in durable
    disk.close()


@pytest.mark.parametrize(
    "text", [b"\0" * 50, b"", b"0\n1\n", b"0\n1\n__cluster_metadata 0 1x\n", b"0\n1\na b c\n"]
)
def test_a_broken_recovery_point_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(text)
    with pytest.raises(LogError, match="how far its log was synced: remove it from the quorum"):
        read_recovery_point(tmp_path)


@pytest.mark.parametrize("state", [None, ElectionState(2)])
def test_a_log_that_is_newer_than_quorum_state_has_lost_votes(
    tmp_path: Path, state: ElectionState | None
) -> None:
    file = QuorumStateFile(tmp_path)
    with pytest.raises(LostVotesError, match="lost its votes, and must not vote again") as caught:
        file.check(state, 3)
    for part in (str(file.path), "remove-controller", "storage format --no-initial-controllers"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("state", "last_epoch"),
    [(None, 0), (ElectionState(0), 0), (ElectionState(3), 3), (ElectionState(4), 3)],
)
def test_quorum_state_that_is_as_new_as_the_log_is_sound(
    tmp_path: Path, state: ElectionState | None, last_epoch: int
) -> None:
    QuorumStateFile(tmp_path).check(state, last_epoch)
