"""Archives of logs: what they contain, how they continue, and which logs they reject."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from quorate.backup.archive import (
    KEPT_MANIFESTS,
    Archive,
    read_manifest,
    require_manifest,
    verified_chunks,
)
from quorate.backup.archiver import MERGED_COUNT, Archiver
from quorate.backup.errors import BackupError, ContradictionError
from quorate.backup.manifest import (
    LOG_FOLDER,
    MANIFEST_FOLDER,
    RetiredObject,
    decode_manifest,
    encode_manifest,
)
from quorate.backup.stores import LocalStore
from quorate.backup.urls import open_store
from quorate.backup.verify import verify_backup
from quorate.log.snapshots import SnapshotReader
from quorate.rpc.errors import ReadBrokenError

from tests.unit.backup.backup_support import OTHER, WrittenLog, back_up, served


def archived(target: Path) -> bytes:
    """The bytes of the last run's batches, after a verification."""
    store = LocalStore(target)
    report = verify_backup(store)
    assert report.problems == ()
    run = require_manifest(store).last_run
    return b"".join(chunk for each in run.segments for chunk in store.chunks(each.name))


def test_a_backup_is_the_log_byte_for_byte_and_continues(tmp_path: Path) -> None:
    log = WrittenLog.begun(tmp_path / "log")
    target = tmp_path / "archive"
    log.application(3)
    log.metadata(2, epoch=2)
    assert back_up(log, target).manifest is not None
    assert archived(target) == log.read()
    log.application(5, epoch=4, time_ms=2000)
    manifest = back_up(log, target).manifest
    assert manifest is not None
    assert archived(target) == log.read()
    assert [(s.base, s.end, s.first_epoch, s.last_epoch) for s in manifest.last_run.segments] == [
        (0, 8, 1, 2),
        (8, 13, 4, 4),
    ]
    assert manifest.last_run.last_timestamp == 2000
    assert (manifest.generation, manifest.cluster_id) == (1, "yFPgY5iXQYqr5sMxfdxu0Q")
    again = back_up(log, target).manifest
    assert again == manifest, "nothing new, so no new manifest"
    log.close()


def test_objects_end_at_the_wanted_size(tmp_path: Path) -> None:
    log = WrittenLog.begun(tmp_path / "log")
    for _ in range(20):
        log.application(10)
    manifest = back_up(log, tmp_path / "archive", segment_bytes=1000).manifest
    assert manifest is not None
    assert archived(tmp_path / "archive") == log.read()
    *full, _last = manifest.last_run.segments
    assert all(1000 <= each.size < 1500 for each in full)
    log.close()


def test_only_the_user_may_read_the_objects(tmp_path: Path) -> None:
    log = WrittenLog.begun(tmp_path / "log")
    back_up(log, tmp_path / "a" / "archive")
    paths = list((tmp_path / "a").rglob("*"))
    assert len([path for path in paths if path.is_file()]) == 3
    for path in paths:
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path
    log.close()


def test_small_segments_are_merged_and_old_manifests_deleted(tmp_path: Path) -> None:
    log = WrittenLog.begun(tmp_path / "log")
    store = LocalStore(tmp_path / "archive")
    with served(log) as reader, store.writing():
        archiver = Archiver(Archive(store, retired_ms=0), reader)
        for _ in range(MERGED_COUNT * 3 + 10):
            log.application(1)
            assert archiver.advance()
        assert not archiver.advance()
    assert archived(tmp_path / "archive") == log.read()
    run = require_manifest(store).last_run
    assert [each.merges for each in run.segments] == [1, 1, 1, *[0] * 10]
    assert len(store.names(MANIFEST_FOLDER)) == KEPT_MANIFESTS
    listed = {
        each.name
        for name in store.names(MANIFEST_FOLDER)
        for each in read_manifest(store, name).last_run.segments
    }
    assert set(store.names(LOG_FOLDER)) == listed
    log.close()


def test_merged_segments_stay_for_readers_of_earlier_manifests(tmp_path: Path) -> None:
    log = WrittenLog.begun(tmp_path / "log")
    store = LocalStore(tmp_path / "archive")
    with served(log) as reader, store.writing():
        for _ in range(MERGED_COUNT * 2):
            log.application(1)
            # A new process each time: what is to be deleted is in the manifest.
            Archiver(Archive(store), reader).advance()
        manifest = require_manifest(store)
        assert len(manifest.last_run.segments) == 2
        assert len(manifest.retired) == MERGED_COUNT * 2
        assert {each.name for each in manifest.retired} < set(store.names(LOG_FOLDER))
        archive = Archive(store, retired_ms=0)
        for _ in range(KEPT_MANIFESTS + 1):
            assert archive.newest is not None
            archive.publish(archive.newest)
    assert set(store.names(LOG_FOLDER)) == require_manifest(store).names
    assert require_manifest(store).retired == ()
    log.close()


def test_a_log_that_begins_with_a_checkpoint(tmp_path: Path) -> None:
    log = WrittenLog.begun(tmp_path / "log")
    log.application(4)
    name = log.compact()
    log.application(3)
    manifest = back_up(log, tmp_path / "archive").manifest
    assert manifest is not None
    run = manifest.last_run
    assert run.snapshot is not None
    assert (run.snapshot.id, run.snapshot.last_timestamp, run.end) == (name, 900, log.end)
    assert archived(tmp_path / "archive") == log.read()
    with SnapshotReader(log.log.partition / run.snapshot.name.rpartition("/")[2]) as reader:
        stored = b"".join(LocalStore(tmp_path / "archive").chunks(run.snapshot.name))
        assert stored == reader.read(0, 1 << 30)
    log.close()


def test_a_checkpoint_whose_stream_breaks_leaves_no_object(tmp_path: Path) -> None:
    log = WrittenLog.begun(tmp_path / "log")
    log.compact()
    store = LocalStore(tmp_path / "archive")
    with served(log, cut_checkpoints=[1]) as reader, store.writing():
        archiver = Archiver(Archive(store), reader)
        with pytest.raises(ReadBrokenError):
            archiver.advance()
        assert store.names("snapshots") == []
        archiver.advance()
    assert verify_backup(store).problems == ()
    log.close()


def test_records_that_were_compacted_before_they_were_archived_begin_a_run(tmp_path: Path) -> None:
    log = WrittenLog.begun(tmp_path / "log")
    back_up(log, tmp_path / "archive")
    log.application(4)
    log.compact()
    log.application(2)
    manifest = back_up(log, tmp_path / "archive").manifest
    assert manifest is not None
    assert [(run.start, run.end) for run in manifest.runs] == [(0, 3), (7, 9)]
    assert archived(tmp_path / "archive") == log.read()
    log.close()


def test_another_cluster_is_rejected(tmp_path: Path) -> None:
    log = WrittenLog.begun(tmp_path / "log")
    back_up(log, tmp_path / "archive")
    log.application(1)
    with pytest.raises(ContradictionError, match=f"the quorum is cluster {OTHER}"):
        back_up(log, tmp_path / "archive", OTHER)
    log.close()


def test_another_history_is_rejected(tmp_path: Path) -> None:
    """A shorter log, another last batch, a batch across the archive's end, an older epoch."""
    target = tmp_path / "archive"
    log = WrittenLog.begun(tmp_path / "log")
    log.application(2, epoch=3)
    log.application(2, epoch=5)
    back_up(log, target)
    before = {path: path.read_bytes() for path in target.rglob("*") if path.is_file()}

    def other(name: str, *batches: tuple[int, int]) -> WrittenLog:
        written = WrittenLog.begun(tmp_path / name)
        for count, epoch in batches:
            written.application(count, epoch=epoch)
        return written

    for written, text in (
        (other("shorter", (2, 3)), "ends at offset 5, and the archive at 7"),
        (other("other", (2, 3), (2, 6), (2, 6)), "batch at offset 5, epoch 6, is not the one"),
        (other("across", (2, 3), (3, 5)), "batch at offset 5, epoch 5, is not the one"),
        (other("straddles", (1, 3), (4, 5)), "batch at offset 4, epoch 5, is not the one"),
    ):
        with pytest.raises(ContradictionError, match=text):
            back_up(written, target)
        written.close()
    older = WrittenLog.begun(tmp_path / "older")
    older.application(9, epoch=1)
    older.compact()
    older.application(1, epoch=1)
    with pytest.raises(ContradictionError, match="is older than the archive"):
        back_up(older, target)
    older.close()
    assert {path: path.read_bytes() for path in target.rglob("*") if path.is_file()} == before
    log.close()


class FailingStore(LocalStore):
    """Loses its disk after some writes."""

    def __init__(self, root: Path, writes: int) -> None:
        super().__init__(root)
        self.left = writes

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        if self.left == 0:
            raise OSError(28, "No space left on device")
        self.left -= 1
        super().put(name, chunks)


@pytest.mark.parametrize("writes", range(6))
def test_an_interrupted_backup_continues_and_the_earlier_one_stays(
    tmp_path: Path, writes: int
) -> None:
    log = WrittenLog.begun(tmp_path / "log")
    target = tmp_path / "archive"
    back_up(log, target)
    for _ in range(3):
        log.application(30)
    with pytest.raises(OSError, match="No space left"):
        back_up(log, FailingStore(target, writes), segment_bytes=300)
    assert verify_backup(LocalStore(target)).problems == ()
    back_up(log, target, segment_bytes=300)
    assert archived(target) == log.read()
    log.close()


def test_only_one_backup_writes(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "archive")
    with (
        store.writing(),
        pytest.raises(BackupError, match="is in use: process"),
        LocalStore(tmp_path / "archive").writing(),
    ):
        pass
    log = WrittenLog.begun(tmp_path / "log")
    back_up(log, tmp_path / "archive")
    slow = Archive(store)
    assert slow.newest is not None
    log.application(1)
    back_up(log, tmp_path / "archive")
    with pytest.raises(BackupError, match=r"another process wrote manifests/0+1\.json"):
        slow.publish(slow.newest)
    log.close()


def test_what_a_killed_run_left_is_deleted(tmp_path: Path) -> None:
    log = WrittenLog.begun(tmp_path / "log")
    back_up(log, tmp_path / "archive")
    left = tmp_path / "archive" / "log" / f"{3:020}-{9:020}.segment.tmp"
    left.write_bytes(b"half")
    others = [left.with_name("mine.tmp"), tmp_path / "archive" / "more" / left.name]
    for other in others:
        other.parent.mkdir(exist_ok=True)
        other.write_text("kept")
    assert verify_backup(LocalStore(tmp_path / "archive")).problems == ()
    back_up(log, tmp_path / "archive")
    assert not left.exists()
    assert all(other.exists() for other in others)
    log.close()


@pytest.mark.parametrize("url", ["ftp://host/path", "file://host/path", "http://host/a"])
def test_urls_of_other_kinds_are_rejected(url: str) -> None:
    with pytest.raises(BackupError, match="expected a directory, or s3://BUCKET/PREFIX"):
        open_store(url)


def test_a_file_url_is_a_directory(tmp_path: Path) -> None:
    assert open_store(f"file://{tmp_path}/a%20b").url == f"{tmp_path}/a b"


FOREIGN_NAMES = [
    "../outside",
    "log/../../outside",
    "log/..",
    "log/sub/00000000000000000000-00000000000000000003.segment",
    "/etc/outside",
    "outside",
    ".lock",
    "log/outside",
    "manifests/00000000000000000000.json",
    "snapshots/00000000000000000000-00000000000000000003.segment",
    "log/00000000000000000000-00000000000000000003.segment\n",
    "",
]


@pytest.mark.parametrize("name", FOREIGN_NAMES)
def test_a_forged_manifest_deletes_nothing_but_objects(tmp_path: Path, name: str) -> None:
    log = WrittenLog.begun(tmp_path / "log")
    target = tmp_path / "archive"
    manifest = back_up(log, target).manifest
    assert manifest is not None
    for path in (tmp_path / "outside", target / "outside", target / "log" / "outside"):
        path.write_text("kept")
    forged = replace(manifest, retired=(RetiredObject(name, 0),))
    (target / forged.name).write_bytes(encode_manifest(forged))
    before = {path for path in tmp_path.rglob("*") if path.is_relative_to(target)}
    log.application(1)
    with pytest.raises(BackupError, match="is not the manifest that a backup wrote") as raised:
        back_up(log, target)
    assert "\n" not in str(raised.value)
    assert before <= set(tmp_path.rglob("*"))
    assert (tmp_path / "outside").exists()
    log.close()


@pytest.mark.parametrize("name", ["notes", f"{0:020}.json~", f"{0:021}.json"])
def test_files_that_are_no_manifests_are_not_taken_for_ones(tmp_path: Path, name: str) -> None:
    """They would be deleted as old manifests."""
    log = WrittenLog.begun(tmp_path / "log")
    target = tmp_path / "archive"
    back_up(log, target)
    (target / MANIFEST_FOLDER / name).write_text("kept")
    log.application(1)
    with pytest.raises(BackupError, match=f"manifests/{name} is not a manifest"):
        back_up(log, target)
    with pytest.raises(BackupError, match=f"manifests/{name} is not a manifest"):
        verify_backup(LocalStore(target))
    assert (target / MANIFEST_FOLDER / name).exists()
    log.close()


@pytest.mark.parametrize("name", ["../outside", "log/../../outside", "log/..", "..", ".", ""])
def test_a_directory_has_no_objects_outside_it(tmp_path: Path, name: str) -> None:
    store = LocalStore(tmp_path / "archive")
    (tmp_path / "archive" / "log").mkdir(parents=True)
    (tmp_path / "outside").write_text("kept")
    for act in (
        lambda: store.delete([name]),
        lambda: store.put(name, [b"changed"]),
        lambda: list(store.chunks(name)),
    ):
        with pytest.raises(BackupError, match="is not the name of an object"):
            act()
    assert (tmp_path / "outside").read_text() == "kept"


def test_a_link_does_not_lead_out_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "elsewhere").mkdir()
    outside = tmp_path / "elsewhere" / "kept"
    outside.write_text("kept")
    (tmp_path / "archive" / "log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BackupError, match="is not the name of an object"):
        LocalStore(tmp_path / "archive").delete(["log/kept"])
    assert outside.exists()


def test_a_deeply_nested_manifest_is_none() -> None:
    with pytest.raises(BackupError, match="is not the manifest that a backup wrote"):
        decode_manifest(b"[" * 200_000, f"{MANIFEST_FOLDER}/{0:020}.json")


class EndlessStore(LocalStore):
    """Hands out endless segments."""

    taken = 0

    def chunks(self, name: str) -> Iterator[bytes]:
        data = b"".join(super().chunks(name))
        while True:
            yield data
            if not name.startswith("log/"):
                return
            self.taken += 1
            assert self.taken < 10, "more is read than the manifest says"


def test_no_more_of_an_object_is_read_than_the_manifest_says(tmp_path: Path) -> None:
    log = WrittenLog.begun(tmp_path / "log")
    back_up(log, tmp_path / "archive")
    store = EndlessStore(tmp_path / "archive")
    texts = {problem.text for problem in verify_backup(store).problems}
    assert any("the object has more than the" in text for text in texts)
    (segment,) = require_manifest(store).last_run.segments
    with pytest.raises(BackupError, match="is not the object that the manifest lists"):
        b"".join(verified_chunks(store, segment))
    log.close()


class TurnedOffStore(LocalStore):
    """Does not answer while it is off."""

    is_off = False

    def names(self, folder: str) -> list[str]:
        if self.is_off:
            raise OSError(111, "Connection refused")
        return super().names(folder)


def test_a_backup_without_new_records_notices_that_the_archive_is_gone(tmp_path: Path) -> None:
    log = WrittenLog.begun(tmp_path / "log")
    store = TurnedOffStore(tmp_path / "archive")
    with served(log) as reader:
        archiver = Archiver(Archive(store), reader)
        assert archiver.advance()
        store.is_off = True
        with pytest.raises(OSError, match="Connection refused"):
            archiver.advance()
        store.is_off = False
        assert not archiver.advance()
        shutil.rmtree(tmp_path / "archive")
        archiver = Archiver(archiver._archive, reader)
        with pytest.raises(BackupError, match="lost its manifests"):
            archiver.advance()
    log.close()


@pytest.mark.parametrize("more", ["?region=us-east-1", "?bogus=1", " ?region=us-east-1"])
def test_keys_in_a_url_are_not_shown(more: str) -> None:
    url = f"s3://AKIAKEY:sEcReT@bucket/prefix{more}"
    if more.startswith("?region"):
        assert open_store(url).url == "s3://bucket/prefix"
        return
    with pytest.raises(BackupError, match="is not the URL of a bucket") as raised:
        open_store(url)
    assert "sEcReT" not in str(raised.value)
