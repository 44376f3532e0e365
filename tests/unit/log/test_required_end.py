"""`required-end`: read back as written, removed when reached, refused when broken."""

from __future__ import annotations

from pathlib import Path

import pytest
from quorate.log.disk import Disk
from quorate.log.errors import LogFailedError, RequiredEndError
from quorate.log.required_end import RequiredEndFile, later_required_end
from quorate.raft.types import OffsetAndEpoch, RequiredEnd


class NamingDisk(Disk):
    """The real disk; remembers what was synced and named, in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def sync(self, descriptor: int) -> None:
        self.calls.append("sync")
        super().sync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        self.calls.append(f"rename {target.name}")
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self.calls.append(f"unlink {path.name}")
        super().unlink(path)

    def sync_directory(self, directory: Path) -> None:
        self.calls.append("sync directory")
        super().sync_directory(directory)


@pytest.mark.parametrize("may_stand", [True, False])
def test_what_is_written_is_read(tmp_path: Path, may_stand: bool) -> None:
    required = RequiredEnd(OffsetAndEpoch(120, 3), may_stand)
    file = RequiredEndFile(tmp_path)
    assert file.read() is None
    file.write(required)
    assert RequiredEndFile(tmp_path).read() == required
    file.write(None)
    assert file.read() is None
    assert not list(tmp_path.iterdir())


def test_it_is_durable_on_return(tmp_path: Path) -> None:
    disk = NamingDisk()
    file = RequiredEndFile(tmp_path, disk)
    file.write(RequiredEnd(OffsetAndEpoch(1, 1)))
    assert disk.calls == ["sync", "rename required-end", "sync directory"]
    disk.calls.clear()
    file.write(None)
    assert disk.calls == ["unlink required-end", "sync directory"]
    disk.calls.clear()
    file.write(None)
    assert disk.calls == []


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\0\0",
        b"[]",
        b"{}",
        b'{"version":2,"epoch":1,"endOffset":1,"mayStand":true}',
        b'{"version":1,"epoch":-1,"endOffset":1,"mayStand":true}',
        b'{"version":1,"epoch":1,"endOffset":true,"mayStand":true}',
        b'{"version":1,"epoch":1,"endOffset":1,"mayStand":1}',
        b'{"version":1,"epoch":1,"mayStand":true}',
    ],
)
def test_what_is_broken_is_refused_with_the_remedy(tmp_path: Path, text: bytes) -> None:
    file = RequiredEndFile(tmp_path)
    file.path.write_bytes(text)
    with pytest.raises(RequiredEndError, match="Do not delete the file: remove the replica") as e:
        file.read()
    assert str(file.path) in str(e.value)
    assert "\n" not in str(e.value)


def test_a_write_that_fails_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(LogFailedError, match="required-end"):
        RequiredEndFile(tmp_path / "missing").write(RequiredEnd(OffsetAndEpoch(1, 1)))


def test_two_requirements_become_the_stricter_one() -> None:
    earlier = RequiredEnd(OffsetAndEpoch(90, 2), may_stand=False)
    later = RequiredEnd(OffsetAndEpoch(10, 3))
    assert later_required_end(None, None) is None
    assert later_required_end(earlier, None) == earlier
    assert later_required_end(None, later) == later
    both = RequiredEnd(OffsetAndEpoch(10, 3), may_stand=False)
    assert later_required_end(earlier, later) == both
    assert later_required_end(later, earlier) == both
