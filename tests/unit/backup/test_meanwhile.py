"""What is committed while a checkpoint is compared with the archived log is archived meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from quorate.backup import archive as archive_module
from quorate.backup import archiver as archiver_module
from quorate.backup.archive import require_manifest
from quorate.backup.errors import BackupError, ContradictionError
from quorate.backup.manifest import LOG_FOLDER, BackupManifest
from quorate.backup.retention import DAY_MS
from quorate.backup.stores import LocalStore
from quorate.backup.verify import verify_backup

from tests.unit.backup.backup_support import WrittenLog, back_up

OLD_MS = 10_000_000
LATER_MS = OLD_MS + 2 * DAY_MS
KEEP_ALL_MS = 1 << 42


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WrittenLog]:
    """An archive of offsets 0-8 in several objects; the log begins at a checkpoint at 7."""
    monkeypatch.setattr(archiver_module, "MEANWHILE_S", 0.0)
    log = WrittenLog.begun(tmp_path / "log")
    back_up(log, tmp_path / "archive")
    for _ in range(4):
        log.application(1, time_ms=OLD_MS)
        back_up(log, tmp_path / "archive")
    log.checkpoint(OLD_MS)
    log.application(2, epoch=2, time_ms=LATER_MS)
    back_up(log, tmp_path / "archive")
    log.clean()
    yield log
    log.close()


def runs(target: Path) -> list[tuple[int, int]]:
    store = LocalStore(target)
    assert verify_backup(store).problems == ()
    return [(run.start, run.end) for run in require_manifest(store).runs]


def test_archiving_goes_on(log: WrittenLog, tmp_path: Path) -> None:
    target = tmp_path / "archive"
    ends: list[tuple[int, int]] = []

    def archived(manifest: BackupManifest | None) -> None:
        assert manifest is not None
        assert manifest == require_manifest(LocalStore(target))
        ends.append((len(manifest.runs), manifest.last_run.end))
        if len(ends) <= 3:
            log.application(1, time_ms=LATER_MS)

    back_up(log, target, keep_ms=KEEP_ALL_MS, archived=archived)
    assert ends[:4] == [(1, 9), (1, 10), (1, 11), (1, 12)]
    assert runs(target) == [(0, 7), (7, 12)]


def test_a_run_that_begins_meanwhile_stays_the_last(log: WrittenLog, tmp_path: Path) -> None:
    target = tmp_path / "archive"
    compacted: list[int] = []

    def archived(_: BackupManifest | None) -> None:
        if not compacted:
            log.application(1, time_ms=LATER_MS)
            compacted.append(log.compact().offset)
            log.application(1, time_ms=LATER_MS)

    back_up(log, target, keep_ms=KEEP_ALL_MS, archived=archived)
    assert runs(target) == [(0, 7), (7, 9), (10, 11)]


def test_what_is_compared_is_not_deleted(
    log: WrittenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiver_module, "MERGED_COUNT", 7)
    monkeypatch.setattr(archive_module, "KEPT_MANIFESTS", 1)
    target = tmp_path / "archive"
    before = require_manifest(LocalStore(target)).names
    called: list[BackupManifest | None] = []
    warnings: list[str] = []

    def archived(manifest: BackupManifest | None) -> None:
        called.append(manifest)
        if len(called) <= 3:
            log.application(1, time_ms=LATER_MS)

    options = {"keep_ms": KEEP_ALL_MS, "retired_ms": 0}
    back_up(log, target, **options, warn=warnings.append, archived=archived)
    assert warnings == []
    assert runs(target) == [(0, 7), (7, 12)]
    last = called[-1]
    assert last is not None
    assert before - last.names, "they were merged"
    log.application(1, time_ms=LATER_MS)
    back_up(log, target, **options)
    assert {*LocalStore(target).names(LOG_FOLDER)} <= require_manifest(LocalStore(target)).names


@pytest.mark.parametrize("error", [BackupError("gone"), ContradictionError("another")])
def test_a_failure_meanwhile_is_not_one_of_the_comparison(
    log: WrittenLog, tmp_path: Path, error: BackupError
) -> None:
    target = tmp_path / "archive"
    warnings: list[str] = []

    def archived(_: BackupManifest | None) -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        back_up(log, target, keep_ms=KEEP_ALL_MS, warn=warnings.append, archived=archived)
    assert warnings == []
    assert runs(target) == [(0, 9)]
    back_up(log, target, keep_ms=KEEP_ALL_MS)
    assert runs(target) == [(0, 7), (7, 9)], "a later call compares again"
