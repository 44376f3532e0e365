"""Retention: which runs are dropped, where a run is divided, and what a crash in between leaves."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from quorate.backup.archive import Archive, needed_runs, require_manifest
from quorate.backup.batches import RestorePoint, point_at_offset, point_at_time
from quorate.backup.errors import BackupError
from quorate.backup.manifest import (
    LOG_FOLDER,
    MANIFEST_FOLDER,
    SNAPSHOT_FOLDER,
    ArchivedRun,
    ArchivedSnapshot,
)
from quorate.backup.restore import RestoreTarget, restore_backup
from quorate.backup.retention import DAY_MS
from quorate.backup.stores import LocalStore
from quorate.backup.verify import verify_backup
from quorate.recovery.examine import examine

from tests.integration.support import assert_error, here
from tests.unit.backup.backup_support import OTHER, VOTERS, WrittenLog, back_up

OLD_MS = 10_000_000
EARLIER_MS = OLD_MS - 5_000_000
LATER_MS = OLD_MS + 2 * DAY_MS


def run_at(offset: int, time_ms: int | None) -> ArchivedRun:
    """A run that begins with a checkpoint whose records end at a time; None: at offset 0."""
    if time_ms is None:
        return ArchivedRun()
    return ArchivedRun(ArchivedSnapshot(offset, 1, time_ms, 0, ""))


@pytest.mark.parametrize(
    ("times", "since_ms", "kept"),
    [
        ((None,), 9000, 1),
        ((None, 100), 99, 2),
        ((None, 100), 100, 1),
        ((50, 100, 200), 150, 2),
        ((50, 100, 200), 9000, 1),
        # A clock that went back: a restore to 60 uses the last run.
        ((50, 100, 55), 60, 1),
        ((50, 100, 55, 300), 60, 2),
    ],
)
def test_runs_that_a_restore_needs_stay(
    times: tuple[int | None, ...], since_ms: int, kept: int
) -> None:
    runs = tuple(run_at(number, time_ms) for number, time_ms in enumerate(times))
    needed = needed_runs(runs, since_ms)
    assert needed == runs[len(runs) - kept :]
    store = LocalStore(Path("/nowhere"))
    for moment in (since_ms, since_ms + 45, since_ms + 1000):
        assert point_at_time(store, needed, moment) == point_at_time(store, runs, moment)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WrittenLog]:
    """Offsets 0-2 control records, 3-6, a checkpoint at 7, then 7-9 two days later."""
    log = WrittenLog.begun(tmp_path / "log")
    log.application(4, time_ms=OLD_MS)
    log.checkpoint(OLD_MS)
    log.application(3, epoch=2, time_ms=LATER_MS)
    yield log
    log.close()


def since(time_ms: int) -> int:
    """How long ago a time was."""
    return time.time_ns() // 1_000_000 - time_ms


def sound_runs(target: Path) -> list[tuple[int, int]]:
    store = LocalStore(target)
    assert verify_backup(store).problems == ()
    return [(run.start, run.end) for run in require_manifest(store).runs]


def restored(target: Path, directory: Path, end: int) -> None:
    store = LocalStore(target)
    manifest = require_manifest(store)
    point = point_at_offset(store, manifest.runs, end)
    place = RestoreTarget(directory, 7, VOTERS.voters[0].endpoints, OTHER)
    assert restore_backup(store, manifest, point, place).end == end
    assert examine(directory).is_sound


def test_a_long_run_is_divided_at_a_checkpoint_and_the_first_part_dropped(
    log: WrittenLog, tmp_path: Path
) -> None:
    target = tmp_path / "archive"
    keep_all = since(0)
    back_up(log, target, keep_ms=keep_all)
    assert sound_runs(target) == [(0, 10)], "the quorum has not compacted yet"
    log.clean()
    back_up(log, target, keep_ms=keep_all)
    assert sound_runs(target) == [(0, 7), (7, 10)]
    generation = require_manifest(LocalStore(target)).generation
    back_up(log, target, keep_ms=keep_all)
    assert require_manifest(LocalStore(target)).generation == generation
    for end in (5, 7, 8, 10):
        restored(target, tmp_path / f"new-{end}", end)

    back_up(log, target, keep_ms=since(EARLIER_MS))
    assert sound_runs(target) == [(0, 7), (7, 10)], "a restore to that time needs the first run"
    back_up(log, target, keep_ms=since(OLD_MS))
    assert sound_runs(target) == [(7, 10)]
    restored(target, tmp_path / "pruned", 9)
    names = require_manifest(LocalStore(target)).names
    store = LocalStore(target)
    assert names < {*store.names(LOG_FOLDER), *store.names(SNAPSHOT_FOLDER)}, "readers may be there"
    back_up(log, target, keep_ms=since(OLD_MS), retired_ms=0)
    assert names == {*store.names(LOG_FOLDER), *store.names(SNAPSHOT_FOLDER)}
    assert sound_runs(target) == [(7, 10)]


def test_the_log_replaces_a_damaged_checkpoint(log: WrittenLog, tmp_path: Path) -> None:
    target = tmp_path / "archive"
    back_up(log, target)
    log.clean()
    back_up(log, target, keep_ms=since(0))
    assert sound_runs(target) == [(0, 7), (7, 10)]
    place = ("--node-id", 7, "--endpoint", "CONTROLLER://new:9093")
    right = here("restore", target, "--directory", tmp_path / "right", *place, "--json").json()
    (checkpoint,) = (target / SNAPSHOT_FOLDER).iterdir()
    checkpoint.unlink()
    for end in (7, 9, 10):
        directory = tmp_path / f"new-{end}"
        ran = here(
            *("restore", target, "--directory", directory, *place, "--to-offset", end, "--json")
        )
        assert ran.status == 0, ran.err
        assert "the object is missing; the restore uses the log before" in ran.err
        assert ran.json()["endOffset"] == end
        assert ran.json()["startOffset"] == 0
        assert examine(directory).is_sound
    assert ran.json()["logEndOffset"] == right["logEndOffset"]
    (target / require_manifest(LocalStore(target)).runs[0].segments[0].name).unlink()
    ran = here("restore", target, "--directory", tmp_path / "refused", *place)
    assert_error(ran, "nothing was created", "the object is missing")


def test_what_follows_a_divided_run_is_archived_and_divided_again(
    log: WrittenLog, tmp_path: Path
) -> None:
    target = tmp_path / "archive"
    log.clean()
    back_up(log, target, keep_ms=since(0))
    assert sound_runs(target) == [(7, 10)]
    log.application(2, time_ms=LATER_MS + 1)
    log.checkpoint(LATER_MS + 1)
    back_up(log, target)
    log.clean()
    back_up(log, target, keep_ms=since(0))
    assert sound_runs(target) == [(7, 12), (12, 12)]
    log.application(1, time_ms=LATER_MS + 2)
    back_up(log, target)
    log.checkpoint(LATER_MS + 2)
    log.clean()
    back_up(log, target, keep_ms=since(0))
    assert sound_runs(target) == [(7, 12), (12, 13)], "not a day after the last one"
    back_up(log, target, keep_ms=1)
    assert sound_runs(target) == [(12, 13)], "never the newest"


def test_a_run_is_not_divided_at_a_wrong_checkpoint(tmp_path: Path) -> None:
    log = WrittenLog.begun(tmp_path / "log")
    target = tmp_path / "archive"
    log.application(2, time_ms=OLD_MS)
    log.metadata(2, time_ms=LATER_MS)
    wrong = log.checkpoint(LATER_MS, changed=lambda batches: batches[1:])
    back_up(log, target)
    log.clean()
    warnings: list[str] = []
    back_up(log, target, keep_ms=since(LATER_MS), warn=warnings.append)
    assert sound_runs(target) == [(0, 7)], "the only right state"
    (warning,) = warnings
    assert f"checkpoint {wrong} is not the state after the archived log" in warning
    assert "setting.0 is missing" in warning
    log.application(1, time_ms=LATER_MS)
    back_up(log, target)
    log.compact()
    back_up(log, target, keep_ms=since(0), warn=warnings.append)
    # It was written from the wrong one.
    assert sound_runs(target) == [(0, 8)]
    assert len(warnings) == 2
    log.close()


def test_without_retention_nothing_is_divided_or_dropped(log: WrittenLog, tmp_path: Path) -> None:
    target = tmp_path / "archive"
    back_up(log, target)
    log.clean()
    log.application(1)
    back_up(log, target, retired_ms=0)
    assert sound_runs(target) == [(0, 11)]


class DyingStore(LocalStore):
    """Its process dies before one of its changes. Objects are deleted one by one."""

    def __init__(self, root: Path, changes: int) -> None:
        super().__init__(root)
        self.left = changes

    def _change(self) -> None:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        self._change()
        super().put(name, chunks)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._change()
            super().delete([name])


@pytest.mark.parametrize("changes", range(11))
def test_a_crash_leaves_a_backup_that_can_be_restored(
    log: WrittenLog, tmp_path: Path, changes: int
) -> None:
    target = tmp_path / "archive"
    back_up(log, target)
    log.clean()
    died = False
    try:
        back_up(log, DyingStore(target, changes), keep_ms=since(OLD_MS), retired_ms=0)
    except KeyboardInterrupt:
        died = True
    assert died == (changes < 10)
    assert sound_runs(target) in ([(0, 10)], [(0, 7), (7, 10)], [(7, 10)])
    for name in LocalStore(target).names(MANIFEST_FOLDER):
        only = DyingStore(target, 0)
        manifest = Archive(only)._read(name)
        assert all(b"".join(only.chunks(each)) for each in manifest.names), name
    back_up(log, target, keep_ms=since(OLD_MS), retired_ms=0)
    assert sound_runs(target) == [(7, 10)]
    found = {*LocalStore(target).names(LOG_FOLDER), *LocalStore(target).names(SNAPSHOT_FOLDER)}
    assert found == require_manifest(LocalStore(target)).names


def test_the_command_prunes(log: WrittenLog, tmp_path: Path) -> None:
    target = tmp_path / "archive"
    back_up(log, target)
    log.clean()
    ran = here("backup", "prune", target, "--keep-days", 30)
    assert (ran.status, ran.out) == (0, "every run is needed\n")
    back_up(log, target, keep_ms=since(0))
    planned = here("backup", "prune", target, "--keep-days", 30, "--dry-run", "--json").json()
    assert planned["done"] is False
    assert [(run["startOffset"], run["endOffset"]) for run in planned["dropped"]] == [(0, 7)]
    assert sound_runs(target) == [(0, 7), (7, 10)]
    ran = here("backup", "prune", target, "--keep-days", 30)
    assert ran.out.startswith("dropped offsets 0 to 7, ")
    assert sound_runs(target) == [(7, 10)]
    store = LocalStore(target)
    with pytest.raises(BackupError, match="it can restore to offsets 7 to 10"):
        point_at_offset(store, require_manifest(store).runs, 5)
    assert point_at_time(store, require_manifest(store).runs, LATER_MS) == RestorePoint(
        require_manifest(store).runs[0], 10
    )
    assert_error(here("backup", "prune", target), "--keep-days", status=2)
    assert_error(here("backup", "prune", target, "--keep-days", 0), "--keep-days", status=2)
    assert_error(here("backup", "prune", tmp_path / "none", "--keep-days", 1), "no backup")
    with store.writing():
        ran = here("backup", "prune", target, "--keep-days", 30)
        assert_error(ran, "is in use")
