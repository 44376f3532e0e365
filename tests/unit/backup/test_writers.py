"""Two processes that write to one archive, in a store without a lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from quorate.backup.archive import Archive, read_manifest
from quorate.backup.archiver import MERGED_COUNT, Archiver
from quorate.backup.encryption import EncryptedStore, write_new_key
from quorate.backup.errors import BackupError
from quorate.backup.manifest import BackupManifest
from quorate.backup.stores import LocalStore, ObjectStore
from quorate.backup.verify import verify_backup

from tests.unit.backup.backup_support import WrittenLog, back_up, served

CONFLICT = r"another process wrote manifests/0+\d\.json"


class HookedStore(LocalStore):
    """Calls `before` once before, and `after` once after a manifest is put."""

    before: Callable[[], object] | None = None
    after: Callable[[], object] | None = None

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        is_manifest = name.startswith("manifests/")
        if is_manifest and self.before is not None:
            call, self.before = self.before, None
            call()
        super().put(name, chunks)
        if is_manifest and self.after is not None:
            call, self.after = self.after, None
            call()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WrittenLog]:
    log = WrittenLog.begun(tmp_path / "log")
    back_up(log, tmp_path / "archive")
    yield log
    log.close()


def sealed(store: ObjectStore, tmp_path: Path, is_encrypted: bool) -> ObjectStore:
    path = tmp_path / "keys"
    if is_encrypted and not path.exists():
        write_new_key(path)
    return EncryptedStore(store, path) if is_encrypted else store


def newest(archive: Archive) -> BackupManifest:
    assert archive.newest is not None
    return archive.newest


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_the_replaced_manifest_is_noticed_at_once(
    log: WrittenLog, tmp_path: Path, is_encrypted: bool
) -> None:
    """Both have checked. The other one writes the same generation before this one reads it back."""
    hooked = HookedStore(tmp_path / f"archive-{is_encrypted}")
    store = sealed(hooked, tmp_path, is_encrypted)
    back_up(log, store)
    first, second = Archive(store), Archive(store)
    hooked.before = lambda: first.publish(replace(newest(first), software="other"))
    second.publish(newest(second))
    assert newest(first).name == newest(second).name
    assert read_manifest(store, newest(second).name) == newest(second)
    with pytest.raises(BackupError, match=CONFLICT):
        first.publish(newest(first))
    second.publish(newest(second))


def test_the_other_writer_was_later(log: WrittenLog, tmp_path: Path) -> None:
    hooked = HookedStore(tmp_path / "archive")
    first, second = Archive(hooked), Archive(LocalStore(tmp_path / "archive"))

    def overtaken() -> None:
        """The other one had checked before, and puts its manifest under the same name."""
        (name, *_) = reversed(hooked.names("manifests"))
        path = tmp_path / "archive" / name
        kept = path.read_bytes()
        path.unlink()
        second.publish(replace(newest(second), software="other"))
        assert path.read_bytes() != kept

    hooked.after = overtaken
    with pytest.raises(BackupError, match=CONFLICT):
        first.publish(newest(first))
    second.publish(newest(second))
    assert verify_backup(hooked).problems == ()


def test_a_store_that_fails_after_a_manifest_is_used_again(log: WrittenLog, tmp_path: Path) -> None:
    """That is its own manifest. What it had merged is listed again, and not deleted."""
    hooked = HookedStore(tmp_path / "archive")

    def failed() -> None:
        raise OSError("the response is lost")

    for _ in range(MERGED_COUNT - 2):
        log.application(1)
        back_up(log, hooked)
    with served(log) as reader:
        archiver = Archiver(Archive(hooked, retired_ms=0), reader)
        for _ in range(3):
            log.application(1)
            hooked.after = failed
            with pytest.raises(OSError, match="the response is lost"):
                archiver.advance()
            archiver.advance()
            assert verify_backup(hooked).problems == ()
    manifest = newest(Archive(hooked))
    assert not manifest.names & {each.name for each in manifest.retired}
    assert manifest.last_run.end == log.end
