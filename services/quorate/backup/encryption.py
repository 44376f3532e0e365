"""Encrypts the objects of an archive before they reach the store, which then sees names and sizes.

An object is `HEADER`, followed by a ciphertext of Tink's streaming AEAD (AES-256-GCM, a key per
object by HKDF-SHA256, segments of 1 MiB). The object's name is the associated data, so an object
under another name cannot be decrypted, and a truncated one is noticed. Manifests are encrypted too.
They contain sizes and SHA-256 of plaintext.

With a key, objects without the header are rejected: a store cannot hand out its own. It can hand
out what was written earlier under the same name. Only the newest manifest tells which objects
belong to the archive, and nothing tells that a manifest is the newest.

The key file is a keyset in Tink's JSON. New objects use its primary key. All of its keys decrypt.

Source: Tink's AES-GCM-HKDF streaming AEAD; Hoang, Reyhanitabar, Rogaway and Vizár, "Online
Authenticated-Encryption and its Nonce-Reuse Misuse-Resistance" (2015), for STREAM.
"""

from __future__ import annotations

import io
import json
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from quorate.backup.errors import BackupError, UnencryptedError
from quorate.backup.stores import CHUNK_BYTES, ObjectStore
from quorate.log.disk import FILE_MODE, Disk

HEADER = b"quorate-encrypted-1\n"
WRITTEN_BYTES = 1 << 20
"""How much Tink is given at once. It copies what it has not encrypted yet with each segment."""
KEY_FILE_BYTES_MAX = 1 << 20


class EncryptedStore:
    """The objects of another store, encrypted. Raises what that store raises, and BackupError."""

    def __init__(self, store: ObjectStore, key_file: Path) -> None:
        self._store = store
        self._key_file = key_file
        self._aead = _primitive(_read(key_file), key_file)

    @property
    def url(self) -> str:
        return self._store.url

    def names(self, folder: str) -> list[str]:
        return self._store.names(folder)

    def chunks(self, name: str) -> Iterator[bytes]:
        """The object's plaintext in order. UnencryptedError if the object is not encrypted.

        BackupError if it was changed. What is yielded before is authentic, but may not be all.
        """
        from tink import TinkError  # noqa: PLC0415

        source = _Source(self._store.chunks(name))
        if source.read(len(HEADER)) != HEADER:
            raise UnencryptedError(name)
        stream = self._aead.new_decrypting_stream(source, name.encode())
        begun = False
        try:
            while data := stream.read(CHUNK_BYTES):
                begun = True
                yield data
        except TinkError:
            source.check()
            if begun:
                raise BackupError(f"{name} was changed, or a part of it is missing") from None
            raise BackupError(
                f"{name} cannot be decrypted with {self._key_file}: it has another key, or the "
                "object was changed or renamed"
            ) from None

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        self._store.put(name, self._encrypted(name, chunks))

    def _encrypted(self, name: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
        from tink import TinkError  # noqa: PLC0415

        sink = _Sink()
        stream = self._aead.new_encrypting_stream(sink, name.encode())
        yield HEADER
        for chunk in chunks:
            view = memoryview(chunk)
            for begin in range(0, len(view), WRITTEN_BYTES):
                try:
                    stream.write(view[begin : begin + WRITTEN_BYTES])
                except TinkError as error:
                    # A signal is often handled as Tink calls the sink. It hides what that raises.
                    if "KeyboardInterrupt" in str(error):
                        raise KeyboardInterrupt from None
                    raise
                yield sink.taken()
        stream.close()
        yield sink.taken()

    def delete(self, names: Iterable[str]) -> None:
        self._store.delete(names)

    def writing(self) -> AbstractContextManager[None]:
        return self._store.writing()


class _Source(io.RawIOBase):
    """The chunks of an object as a file. Tink hides an exception, so `check` raises it again."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")
        self._failure: BaseException | None = None

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes, fewer only at the end."""
        found = bytearray()
        try:
            while len(found) < size:
                if not self._rest:
                    self._rest = memoryview(next(self._chunks, b""))
                    if not self._rest:
                        break
                wanted = size - len(found)
                found += self._rest[:wanted]
                self._rest = self._rest[wanted:]
        except BaseException as error:  # Ctrl-C, too, is no fault of the object
            self._failure = error
            raise
        return bytes(found)

    def check(self) -> None:
        """Raise what ended the last read."""
        if self._failure is not None:
            raise self._failure


class _Sink(io.RawIOBase):
    """Collects what Tink writes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def taken(self) -> bytes:
        """What was written since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


# --- the key file ---------------------------------------------------------------------------------


def write_new_key(path: Path) -> None:
    """Write a key file with one key, which only its user may read. OSError if the file exists."""
    text = json.dumps(_new_keyset(path), indent=2) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        Disk().write_all(descriptor, [text.encode()], 0)
        Disk().sync(descriptor)
    finally:
        os.close(descriptor)
    Disk().sync_directory(path.parent)


def add_key(path: Path) -> None:
    """Add a key to a key file, and make it the primary one. BackupError, OSError.

    The file is replaced whole. It keeps its owner and mode.
    """
    path = path.resolve()
    text = _read(path)
    _primitive(text, path)
    keyset, added = json.loads(text), _new_keyset(path)
    known = {each["keyId"] for each in keyset["key"]}
    while added["primaryKeyId"] in known:
        added = _new_keyset(path)
    keyset["key"] += added["key"]
    keyset["primaryKeyId"] = added["primaryKeyId"]
    before = path.stat()
    Disk().replace_file(path, (json.dumps(keyset, indent=2) + "\n").encode())
    if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(path, before.st_uid, before.st_gid)
    path.chmod(stat.S_IMODE(before.st_mode))


def _read(path: Path) -> str:
    """The text of a key file. BackupError if others may read it; OSError."""
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        # The group may read it: that is how the files of a pod's Secret are given to its user.
        if mode & stat.S_IRWXO:
            raise BackupError(f"{path} has the mode {mode:04o}, so others may use it: chmod 600")
        return file.read(KEY_FILE_BYTES_MAX).decode(errors="replace")


def _primitive(text: str, path: Path) -> Any:
    """What encrypts and decrypts with a keyset. BackupError."""
    tink = _tink(path)
    try:
        handle = tink.json_proto_keyset_format.parse(text, tink.secret_key_access.TOKEN)
        return handle.primitive(tink.streaming_aead.StreamingAead)
    except tink.TinkError:
        raise BackupError(f"{path} is not a key file of `quorate backup new-key`") from None


def _new_keyset(path: Path) -> dict[str, Any]:
    """A keyset of one key, in Tink's JSON."""
    tink = _tink(path)
    template = tink.streaming_aead.streaming_aead_key_templates.AES256_GCM_HKDF_1MB
    handle = tink.new_keyset_handle(template)
    text = tink.json_proto_keyset_format.serialize(handle, tink.secret_key_access.TOKEN)
    found: dict[str, Any] = json.loads(text)
    return found


def _tink(path: Path) -> Any:
    """The library, loaded when a key is used. BackupError if it is not installed."""
    try:
        import tink  # noqa: PLC0415
        from tink import secret_key_access, streaming_aead  # noqa: F401, PLC0415
    except ImportError:
        raise BackupError(f"{path}: encryption needs tink: pip install 'quorate[backup]'") from None
    tink.streaming_aead.register()
    return tink
