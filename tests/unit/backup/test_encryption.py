"""Encrypted archives: what the store sees, and what is rejected."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from quorate.backup import encryption
from quorate.backup.archive import require_manifest
from quorate.backup.archiver import MERGED_COUNT
from quorate.backup.encryption import HEADER, EncryptedStore, add_key, write_new_key
from quorate.backup.errors import BackupError
from quorate.backup.manifest import encode_manifest
from quorate.backup.retention import DAY_MS
from quorate.backup.stores import LocalStore
from quorate.backup.verify import verify_backup

from tests.integration.support import Ran, assert_error, files, here
from tests.unit.backup.backup_support import WrittenLog, back_up

PLACE = ("--node-id", 7, "--endpoint", "CONTROLLER://new:9093")
NAME = "log/0-1.segment"
SEGMENT = 1 << 20
"""How much Tink encrypts at once."""


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "backup.keys"
    write_new_key(path)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WrittenLog]:
    log = WrittenLog.begun(tmp_path / "log")
    log.application(5)
    yield log
    log.close()


def store(tmp_path: Path, key_file: Path) -> EncryptedStore:
    return EncryptedStore(LocalStore(tmp_path / "archive"), key_file)


def stored(tmp_path: Path) -> dict[str, bytes]:
    """Every object's bytes as they are in the store."""
    root = tmp_path / "archive"
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*/*")
        if path.is_file()
    }


@pytest.mark.parametrize("size", [0, 1, SEGMENT, 2 * SEGMENT + 1, (4 << 20) + 1])
@pytest.mark.parametrize("chunk", [100_000, 1 << 30])
def test_an_object_of_any_size_is_read_back(
    tmp_path: Path, key_file: Path, size: int, chunk: int
) -> None:
    data = (bytes(range(256)) * (size // 256 + 1))[:size]
    parts = (data[begin : begin + chunk] for begin in range(0, size, chunk))
    store(tmp_path, key_file).put(NAME, parts)
    assert b"".join(store(tmp_path, key_file).chunks(NAME)) == data
    held = stored(tmp_path)[NAME]
    assert held.startswith(HEADER)
    assert size < 16 or data[:16] not in held


def test_little_of_an_object_is_in_memory(tmp_path: Path, key_file: Path) -> None:
    """As much is written as was read, apart from some segments, and the other way around."""
    taken = 0

    def produced() -> Iterator[bytes]:
        nonlocal taken
        for _ in range(32):
            taken += SEGMENT
            yield bytes(SEGMENT)

    class Observed(LocalStore):
        ahead = 0

        def put(self, name: str, chunks: Iterable[bytes]) -> None:
            def observed() -> Iterator[bytes]:
                written = 0
                for chunk in chunks:
                    written += len(chunk)
                    self.ahead = max(self.ahead, taken - written)
                    yield chunk

            super().put(name, observed())

        def chunks(self, name: str) -> Iterator[bytes]:
            nonlocal taken
            for chunk in super().chunks(name):
                taken += len(chunk)
                yield chunk

    inner = Observed(tmp_path / "archive")
    encrypted = EncryptedStore(inner, key_file)
    encrypted.put(NAME, produced())
    assert 0 < inner.ahead <= 4 * SEGMENT
    taken = read = 0
    for chunk in encrypted.chunks(NAME):
        read += len(chunk)
        assert taken - read <= 12 * SEGMENT
    assert read == 32 * SEGMENT


def test_an_archive_is_continued_merged_pruned_and_verified(
    tmp_path: Path, key_file: Path, log: WrittenLog
) -> None:
    encrypted = store(tmp_path, key_file)
    for number in range(MERGED_COUNT):
        log.application(1, time_ms=2 * DAY_MS + number)
        back_up(log, encrypted)
    log.checkpoint(2 * DAY_MS)
    log.clean()
    log.application(3, time_ms=3 * DAY_MS)
    back_up(log, encrypted, keep_ms=1, retired_ms=0)
    back_up(log, encrypted, keep_ms=1, retired_ms=0)
    manifest = require_manifest(encrypted)
    assert [run.snapshot is None for run in manifest.runs] == [False]
    assert verify_backup(encrypted).problems == ()
    names = manifest.names | set(encrypted.names("manifests"))
    held = stored(tmp_path)
    assert names <= held.keys()
    for data in held.values():
        assert data.startswith(HEADER)
        for secret in (b"value-", b"clusterId", b"sha256", b"state"):
            assert secret not in data


def test_each_key_of_the_file_decrypts_and_the_primary_one_encrypts(
    tmp_path: Path, key_file: Path, log: WrittenLog
) -> None:
    back_up(log, store(tmp_path, key_file))
    first = tmp_path / "first.keys"
    shutil.copy(key_file, first)
    assert here("backup", "new-key", key_file, "--add").status == 0
    log.application(2)
    back_up(log, store(tmp_path, key_file))
    assert verify_backup(store(tmp_path, key_file)).problems == ()
    old, new = json.loads(first.read_text()), json.loads(key_file.read_text())
    assert new["key"][0] == old["key"][0]
    assert new["primaryKeyId"] == new["key"][1]["keyId"] != old["primaryKeyId"]
    (problem,) = verify_backup(store(tmp_path, first)).problems
    assert "it has another key" in problem.text


# --- what a store may do --------------------------------------------------------------------------


def flip(data: bytes, position: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1
    return bytes(changed)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: flip(data, len(HEADER)), "cannot be decrypted"),
        (lambda data: flip(data, len(HEADER) + 20), "cannot be decrypted"),
        (lambda data: flip(data, len(data) * 3 // 4), "was changed"),
        (lambda data: flip(data, -1), "was changed"),
        (lambda data: data + b"x", "was changed"),
        (lambda data: data[:-1], "was changed"),
        (lambda data: data[: len(HEADER) + SEGMENT], ""),
        (lambda data: data[: len(HEADER) + 6 * SEGMENT], "was changed"),
        (lambda data: data[: len(HEADER) + 40], "cannot be decrypted"),
        (lambda data: data[: len(HEADER)], "cannot be decrypted"),
        (lambda data: data[:3], "is not encrypted"),
        (lambda _: b"", "is not encrypted"),
        (lambda _: bytes(100), "is not encrypted"),
    ],
)
def test_a_changed_object_is_an_error(
    tmp_path: Path, key_file: Path, change: Callable[[bytes], bytes], said: str
) -> None:
    encrypted = store(tmp_path, key_file)
    encrypted.put(NAME, [bytes(9 * SEGMENT)])
    path = tmp_path / "archive" / NAME
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(BackupError, match=f"{NAME} .*{said}"):
        list(encrypted.chunks(NAME))


def test_objects_are_bound_to_their_names(tmp_path: Path, key_file: Path, log: WrittenLog) -> None:
    back_up(log, store(tmp_path, key_file))
    log.application(1)
    back_up(log, store(tmp_path, key_file))
    manifests = tmp_path / "archive/manifests"
    older, newest = sorted(manifests.iterdir())[-2:]
    shutil.copy(older, newest)
    ran = command(tmp_path, "verify", key_file)
    assert ran.status == 1
    assert f"manifests/{newest.name} cannot be decrypted" in ran.out


@pytest.mark.parametrize("failure", [OSError("the network is down"), KeyboardInterrupt()])
def test_the_failure_of_the_store_is_not_one_of_the_key(
    tmp_path: Path, key_file: Path, failure: BaseException
) -> None:
    class Broken(LocalStore):
        def chunks(self, name: str) -> Iterator[bytes]:
            yield from (data[: 3 * SEGMENT] for data in super().chunks(name))
            raise failure

    inner = Broken(tmp_path / "archive")
    encrypted = EncryptedStore(inner, key_file)
    encrypted.put(NAME, [bytes(3 * SEGMENT)])
    with pytest.raises(type(failure)) as raised:
        b"".join(encrypted.chunks(NAME))
    assert raised.value is failure


def test_ctrl_c_while_an_object_is_encrypted_is_no_error_of_tink(
    tmp_path: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(encryption._Sink, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store(tmp_path, key_file).put(NAME, [bytes(3 * SEGMENT)])


# --- the command line -----------------------------------------------------------------------------


def command(tmp_path: Path, name: str, key_file: Path | None) -> Ran:
    archive = tmp_path / "archive"
    options: list[object] = [] if key_file is None else ["--key-file", key_file]
    if name == "restore":
        return here("restore", archive, *options, "--directory", tmp_path / "new", *PLACE)
    if name == "prune":
        options += ["--keep-days", 1]
    return here("backup", name, archive, *options)


COMMANDS = ("list", "verify", "prune", "restore")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_key_is_needed_and_must_be_the_right_one(
    tmp_path: Path, key_file: Path, log: WrittenLog, name: str
) -> None:
    back_up(log, store(tmp_path, key_file))
    before = files(tmp_path / "archive")
    assert_error(command(tmp_path, name, None), "archive is encrypted: --key-file is needed")
    other = tmp_path / "other.keys"
    assert here("backup", "new-key", other).status == 0
    ran = command(tmp_path, name, other)
    assert ran.status == 1
    assert f"cannot be decrypted with {other}: it has another key" in ran.out + ran.err
    assert files(tmp_path / "archive") == before
    assert command(tmp_path, name, key_file).status == 0


@pytest.mark.parametrize("name", COMMANDS)
def test_a_plaintext_archive_is_rejected_with_a_key(
    tmp_path: Path, key_file: Path, log: WrittenLog, name: str
) -> None:
    back_up(log, tmp_path / "archive")
    assert_error(command(tmp_path, name, key_file), "archive is not encrypted")
    with pytest.raises(Exception, match="is not encrypted"):
        back_up(log, store(tmp_path, key_file))
    assert command(tmp_path, name, None).status == 0


def test_an_older_plaintext_manifest_does_not_stop_a_backup(
    tmp_path: Path, key_file: Path, log: WrittenLog
) -> None:
    encrypted = store(tmp_path, key_file)
    back_up(log, encrypted)
    plain = LocalStore(tmp_path / "archive")
    newest = require_manifest(encrypted)
    log.application(1)
    back_up(log, encrypted)
    plain.put(newest.name, [encode_manifest(newest)])
    log.application(1)
    back_up(log, encrypted)
    assert require_manifest(encrypted).last_run.end == newest.last_run.end + 2
    assert verify_backup(encrypted).problems == ()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_newest_plaintext_manifest_is_not_to_be_trusted(
    tmp_path: Path, key_file: Path, log: WrittenLog, name: str
) -> None:
    encrypted = store(tmp_path, key_file)
    back_up(log, encrypted)
    newest = require_manifest(encrypted)
    forged = replace(newest, generation=newest.generation + 1)
    LocalStore(tmp_path / "archive").put(forged.name, [encode_manifest(forged)])
    ran = command(tmp_path, name, key_file)
    assert ran.status == 1
    said = ran.out + ran.err
    assert f"{forged.name} is not encrypted, although other manifests are" in said
    assert "somebody without the key may have written it" in said
    assert "omit --key-file" not in said
    with pytest.raises(BackupError, match="somebody without the key"):
        back_up(log, encrypted)


def test_a_plaintext_archive_is_never_continued_with_a_key_and_the_other_way_around(
    tmp_path: Path, key_file: Path, log: WrittenLog
) -> None:
    back_up(log, store(tmp_path, key_file))
    before = files(tmp_path / "archive")
    log.application(1)
    with pytest.raises(Exception, match="--key-file is needed"):
        back_up(log, tmp_path / "archive")
    assert files(tmp_path / "archive") == before


def test_the_list_tells_that_an_archive_is_encrypted(
    tmp_path: Path, key_file: Path, log: WrittenLog
) -> None:
    back_up(log, store(tmp_path, key_file))
    ran = here("backup", "list", tmp_path / "archive", "--key-file", key_file, "--json")
    assert ran.json()["encrypted"] is True


# --- the key file ---------------------------------------------------------------------------------


def test_a_new_key_is_private_and_overwrites_nothing(tmp_path: Path) -> None:
    path = tmp_path / "backup.keys"
    ran = here("backup", "new-key", path)
    assert (ran.status, ran.err) == (0, "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    assert_error(here("backup", "new-key", path), "exists")
    assert_error(here("backup", "new-key", tmp_path / "none/keys"), "No such file")
    assert path.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == [path]


def test_an_added_key_keeps_the_mode_and_the_link(tmp_path: Path, key_file: Path) -> None:
    key_file.chmod(0o640)
    link = tmp_path / "link.keys"
    link.symlink_to(key_file)
    for count in (2, 3):
        add_key(link)
        keyset = json.loads(key_file.read_text())
        assert len(keyset["key"]) == count
    assert link.is_symlink()
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o640
    assert_error(here("backup", "new-key", tmp_path / "none", "--add"), "No such file")


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o440, 0o640])
def test_the_group_may_read_the_key_file(tmp_path: Path, key_file: Path, mode: int) -> None:
    key_file.chmod(mode)
    store(tmp_path, key_file)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602])
def test_others_may_not(tmp_path: Path, key_file: Path, mode: int) -> None:
    key_file.chmod(mode)
    ran = here("backup", "list", tmp_path / "archive", "--key-file", key_file)
    assert_error(ran, f"{key_file} has the mode {mode:04o}", "chmod 600")


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", "-----BEGIN PRIVATE KEY-----", '{"key": 1}', "\xff"]
)
def test_a_file_of_another_kind_is_rejected(tmp_path: Path, key_file: Path, text: str) -> None:
    whole = key_file.read_text()
    disabled = whole.replace("ENABLED", "DISABLED")
    for content in (text, whole[:-20], disabled, whole.replace("AesGcmHkdfStreamingKey", "AesGcm")):
        key_file.write_text(content, "latin-1")
        ran = here("backup", "list", tmp_path / "archive", "--key-file", key_file)
        assert_error(ran, f"{key_file} is not a key file of `quorate backup new-key`")
        with pytest.raises(BackupError):
            add_key(key_file)
        assert key_file.read_text("latin-1") == content
    assert_error(
        here("backup", "list", tmp_path / "archive", "--key-file", tmp_path), "Is a directory"
    )


def test_two_encryptions_of_one_object_differ(tmp_path: Path, key_file: Path) -> None:
    encrypted = store(tmp_path, key_file)
    held = []
    for _ in range(3):
        encrypted.put(NAME, [bytes(64)])
        held.append(stored(tmp_path)[NAME])
    assert all(one != other for one, other in pairwise(held))


def test_damaged_objects_are_problems_and_stop_only_restores_that_need_them(
    log: WrittenLog, tmp_path: Path, key_file: Path
) -> None:
    encrypted = store(tmp_path, key_file)
    log.application(2, time_ms=3 * DAY_MS)
    back_up(log, encrypted)
    log.compact()
    back_up(log, encrypted, keep_ms=1 << 50)
    log.application(1)
    back_up(log, encrypted)
    objects = sorted((tmp_path / "archive" / "log").iterdir())
    (checkpoint,) = (tmp_path / "archive" / "snapshots").iterdir()
    last = require_manifest(encrypted).last_run.segments[-1].name

    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)

    before = {path: path.read_bytes() for path in (checkpoint, *objects)}
    for path in before:
        flip(path)
    problems = verify_backup(encrypted).problems
    assert {problem.object for problem in problems} == require_manifest(encrypted).names
    for path, data in before.items():
        path.write_bytes(data)
    flip(checkpoint)
    given = ("restore", tmp_path / "archive", *PLACE, "--key-file", key_file)
    ran = here(*given, "--directory", tmp_path / "new")
    assert ran.status == 0
    assert "the restore uses the log before this checkpoint" in ran.err
    flip(tmp_path / "archive" / last)
    ran = here(*given, "--directory", tmp_path / "refused")
    assert_error(ran, "nothing was created", last)
