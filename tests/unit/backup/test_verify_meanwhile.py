"""A verification of an archive that a backup changes meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from quorate.backup import archive as archive_module
from quorate.backup import archiver as archiver_module
from quorate.backup.archive import require_manifest
from quorate.backup.manifest import MANIFEST_FOLDER
from quorate.backup.stores import LocalStore
from quorate.backup.verify import verify_backup

from tests.unit.backup.backup_support import WrittenLog, back_up
from tests.unit.backup.test_retention import LATER_MS, OLD_MS, since

Change = Callable[[], object]


class ChangedStore(LocalStore):
    """Changes once an object other than a manifest is read for the n-th time."""

    def __init__(self, root: Path, change: Change, reads: int = 1) -> None:
        super().__init__(root)
        self._change = change
        self._reads = reads

    def chunks(self, name: str) -> Iterator[bytes]:
        if not name.startswith(MANIFEST_FOLDER):
            self._reads -= 1
            if self._reads == 0:
                self._change()
        return super().chunks(name)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WrittenLog]:
    monkeypatch.setattr(archive_module, "KEPT_MANIFESTS", 1)
    log = WrittenLog.begun(tmp_path / "log")
    yield log
    log.close()


@pytest.fixture
def merge(log: WrittenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Change:
    """Merges the four segments of the archive with a fifth one, and deletes them."""
    target = tmp_path / "archive"
    for _ in range(4):
        back_up(log, target)
        log.application(1)
    monkeypatch.setattr(archiver_module, "MERGED_COUNT", 5)

    def change() -> None:
        before = require_manifest(LocalStore(target)).names
        for _ in range(3):
            back_up(log, target, retired_ms=0)
            log.application(1)
        assert not any((target / name).exists() for name in before)

    return change


@pytest.mark.parametrize("reads", [1, 3])
def test_merged_objects_are_not_missing(merge: Change, tmp_path: Path, reads: int) -> None:
    report = verify_backup(ChangedStore(tmp_path / "archive", merge, reads))
    assert report.problems == ()


def test_what_replaces_them_is_verified(merge: Change, tmp_path: Path) -> None:
    target = tmp_path / "archive"

    def change() -> None:
        merge()
        segment = target / require_manifest(LocalStore(target)).last_run.segments[0].name
        data = segment.read_bytes()
        segment.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))

    (problem,) = verify_backup(ChangedStore(target, change)).problems
    assert "checksum" in problem.text


def test_a_missing_object_that_is_listed_stays_a_problem(merge: Change, tmp_path: Path) -> None:
    target = tmp_path / "archive"

    def change() -> None:
        merge()
        (target / require_manifest(LocalStore(target)).last_run.segments[0].name).unlink()

    (problem,) = verify_backup(ChangedStore(target, change)).problems
    assert problem.text == "the object is missing"


@pytest.mark.parametrize("reads", [1, 2, 3, 4, 5])
def test_a_dropped_run_is_not_missing(log: WrittenLog, tmp_path: Path, reads: int) -> None:
    target = tmp_path / "archive"
    log.application(4, time_ms=OLD_MS)
    log.checkpoint(OLD_MS)
    log.application(3, epoch=2, time_ms=LATER_MS)
    back_up(log, target)
    log.clean()
    back_up(log, target, keep_ms=since(0))

    def drop() -> None:
        for _ in range(3):
            back_up(log, target, keep_ms=since(OLD_MS), retired_ms=0)
            log.application(1)

    before = require_manifest(LocalStore(target))
    report = verify_backup(ChangedStore(target, drop, reads))
    assert report.manifest == before
    assert report.problems == ()
    if reads <= 4:
        assert len(require_manifest(LocalStore(target)).runs) == 1, "it was dropped meanwhile"
