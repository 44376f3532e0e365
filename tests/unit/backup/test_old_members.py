"""Which voters an archive names, and what their answers mean."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from quorate.backup.archive import require_manifest
from quorate.backup.errors import BackupError
from quorate.backup.old_members import archived_voters, check_gone
from quorate.backup.stores import LocalStore
from quorate.common.endpoints import Endpoint
from quorate.log.meta_properties import MetaProperties, random_uuid
from quorate.raft.batches import KRaftVersion, LeaderChange, VotersRecord
from quorate.raft.types import ReplicaKey, Voter, VoterSet

from tests.integration.support import Node
from tests.processes import HOST, free_ports
from tests.unit.backup.backup_support import VOTERS, WrittenLog, back_up


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WrittenLog]:
    log = WrittenLog(tmp_path / "log")
    yield log
    log.close()


def named(log: WrittenLog, target: Path) -> list[str]:
    archiver = back_up(log, target, segment_bytes=1)
    assert archiver.manifest is not None
    voters = archived_voters(archiver._archive.store, archiver.manifest.last_run)
    return [str(voter.key) for voter in voters]


def test_the_last_voter_set_counts(log: WrittenLog, tmp_path: Path) -> None:
    other = Voter(ReplicaKey(2, random_uuid()), (Endpoint("CONTROLLER", "localhost", 9094),))
    log.control(1, LeaderChange(1, (), ()), KRaftVersion(1), VotersRecord(VOTERS))
    log.application(1)
    log.control(1, VotersRecord(VoterSet.of([*VOTERS, other])))
    log.application(1)
    log.control(2, LeaderChange(1, (ReplicaKey(1),), ()))
    assert named(log, tmp_path / "archive") == [*(str(v.key) for v in VOTERS), str(other.key)]


def test_a_checkpoint_has_the_voter_set(log: WrittenLog, tmp_path: Path) -> None:
    log.control(1, LeaderChange(1, (), ()), KRaftVersion(1), VotersRecord(VOTERS))
    log.compact()
    log.application(1)
    assert named(log, tmp_path / "archive") == [str(voter.key) for voter in VOTERS]
    manifest = require_manifest(LocalStore(tmp_path / "archive"))
    assert manifest.last_run.snapshot is not None


def test_static_voters_are_those_of_the_last_leader(log: WrittenLog, tmp_path: Path) -> None:
    log.control(1, LeaderChange(1, (ReplicaKey(1),), ()))
    log.control(2, LeaderChange(1, (ReplicaKey(1), ReplicaKey(3)), ()))
    log.application(1)
    assert named(log, tmp_path / "archive") == ["1", "3"]


def test_without_voters_the_id_cannot_stay(log: WrittenLog, tmp_path: Path) -> None:
    log.application(1, epoch=1)
    with pytest.raises(BackupError, match="names no old voters"):
        named(log, tmp_path / "archive")


def test_a_node_of_another_cluster_and_silence_need_a_confirmation(tmp_path: Path) -> None:
    node = Node(tmp_path, 1, free_ports(1)[0])
    node.format("--standalone")
    key = ReplicaKey(1, random_uuid())
    places = (("localhost", node.port), (HOST, free_ports(1)[0]), ("none.invalid", 1))
    voter = Voter(key, tuple(Endpoint(f"L{n}", *place) for n, place in enumerate(places)))
    node.start()
    try:
        node.wait_said("leads epoch")
        own = MetaProperties.read(node.data).cluster_id
        with pytest.raises(BackupError, match=rf"the old voter {key} is running: localhost:\d+"):
            check_gone([voter], [str(key)], own, None)
        with pytest.raises(BackupError, match=f"--erased {key}"):
            check_gone([voter], [], "other", None)
        check_gone([voter], [str(key)], "other", None)
    finally:
        node.kill()
