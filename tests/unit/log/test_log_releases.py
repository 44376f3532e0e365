"""Directories that release 0.1.0 wrote can be opened, and have what it acknowledged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from quorate.log.config import LogConfig
from quorate.log.meta_properties import MetaProperties
from quorate.log.offset_files import read_epochs, read_recovery_point
from quorate.log.quorum_state import QuorumStateFile
from quorate.log.snapshots import SnapshotReader, inspect_snapshot
from quorate.raft.types import BOOTSTRAP_SNAPSHOT
from quorate.records.batch import iter_records, read_header
from quorate.records.primitives import Buffer

from tests.integration.support import PARTITION, here
from tests.releases.contents import PORTS, STATIC, Directory, unpack
from tests.unit.log.log_support import OpenLog, contents, data


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Directory]:
    return unpack(tmp_path_factory.mktemp("released"))


@pytest.fixture(params=[*PORTS, STATIC], scope="module")
def directory(request: pytest.FixtureRequest, unpacked: dict[int, Directory]) -> Directory:
    return unpacked[request.param]


@pytest.fixture(scope="module")
def metadata(directory: Directory) -> Any:
    """What `metadata-shell` prints of the directory before the log is opened, and changed."""
    return here("metadata-shell", "--log-dir", directory.path, "--json", "find").json()


@pytest.fixture(scope="module")
def opened(directory: Directory, metadata: Any) -> Iterator[OpenLog]:
    opened = OpenLog(directory.path, LogConfig())
    yield opened
    opened.close()


def records(batches: Iterable[Buffer]) -> Iterator[tuple[int, bytes]]:
    """The records of applications in batches: their offset in the file, and their value."""
    for batch in map(memoryview, batches):
        header = read_header(batch)
        for record in iter_records(batch, header) if not header.is_control else ():
            if record.key is not None:
                yield record.offset, bytes(record.value or b"")


def of_snapshot(path: Path) -> list[bytes]:
    """The values of applications in a checkpoint."""
    batches: list[Any] = [batch.data for batch in SnapshotReader(path).batches()]
    return [value for _, value in records(batches)]


def test_every_acknowledged_record_is_there(directory: Directory, opened: OpenLog) -> None:
    log = opened.log
    assert log.recovered.truncated_bytes == 0
    latest = log.latest_snapshot() or BOOTSTRAP_SNAPSHOT
    before: list[bytes] = []
    if latest != BOOTSTRAP_SNAPSHOT:
        before = [value for offset, value in directory.appended if offset < latest.offset]
        (path,) = (directory.path / PARTITION).glob(f"{latest.offset:020}-*.checkpoint")
        assert of_snapshot(path) == before
    after = [each for each in directory.appended if each[0] >= log.start_offset]
    assert list(records(contents(log))) == after
    assert len(before) + len(after) >= len(directory.appended)


def test_the_voters_are_known(directory: Directory, opened: OpenLog) -> None:
    recovered = opened.log.recovered
    if directory.kraft_version == 0:
        assert (recovered.kraft_versions, recovered.voters) == ((), ())
        return
    assert recovered.kraft_versions[-1][1] == directory.kraft_version
    _, last = recovered.voters[-1]
    assert sorted(voter.key.id for voter in last.voters) == sorted(directory.voters)
    ports = {voter.key.id: voter.endpoints[0].port for voter in last.voters}
    assert ports == PORTS


def test_the_epochs_are_those_of_the_checkpoint_file(directory: Directory, opened: OpenLog) -> None:
    assert opened.log.recovered.epochs == read_epochs(directory.path / PARTITION)
    assert opened.log.last_epoch >= (4 if directory.kraft_version else 1)
    assert read_recovery_point(directory.path) == opened.log.end_offset


def test_the_vote_is_known(directory: Directory, opened: OpenLog) -> None:
    file = QuorumStateFile(directory.path / PARTITION)
    state = file.read()
    assert state is not None
    file.check(state, opened.log.last_epoch)
    assert state.epoch == opened.log.last_epoch
    assert state.leader_id in directory.voters


def test_the_identity_is_known(directory: Directory) -> None:
    properties = MetaProperties.read(directory.path)
    wanted = (directory.cluster_id, directory.node_id, directory.directory_id)
    assert (properties.cluster_id, properties.node_id, properties.directory_id) == wanted


def test_checkpoints_are_whole(directory: Directory) -> None:
    for path in (directory.path / PARTITION).glob("*.checkpoint"):
        info = inspect_snapshot(path)
        assert (info.kraft_version or 0) == directory.kraft_version, path


def test_the_metadata_is_the_same(directory: Directory, metadata: Any) -> None:
    assert metadata["/"]["image"] == directory.metadata["/"]["image"]


def test_the_log_goes_on(directory: Directory, tmp_path: Path) -> None:
    copy = unpack(tmp_path)[directory.node_id].path
    first = OpenLog(copy, LogConfig())
    end, epoch = first.log.end_offset, first.log.last_epoch
    first.append(data(end, epoch + 1))
    first.close()
    again = OpenLog(copy, LogConfig())
    try:
        assert again.log.end_offset == end + 1
        assert again.log.recovered.epochs[-1].offset == end
    finally:
        again.close()


def test_the_directories_are_of_all_kinds(unpacked: dict[int, Directory]) -> None:
    """So that the tests above mean something."""
    begins = {
        node_id: min((each.path / PARTITION).glob("*.log")).name.startswith("0" * 20)
        for node_id, each in unpacked.items()
    }
    assert begins == {1: True, 2: False, 3: False, STATIC: True}
    assert all(len(each.appended) >= 60 for each in unpacked.values())
