"""Finds the store of an archive by its URL."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from quorate.backup.encryption import EncryptedStore
from quorate.backup.errors import BackupError
from quorate.backup.s3 import S3Store
from quorate.backup.stores import LocalStore, ObjectStore


def open_store(url: str, key_file: Path | None = None) -> ObjectStore:
    """The store at a URL: a path, file:///PATH, or s3://BUCKET/PREFIX. BackupError, OSError.

    key_file: with it, all objects are encrypted.
    """
    store = _plain_store(url)
    return store if key_file is None else EncryptedStore(store, key_file)


def _plain_store(url: str) -> ObjectStore:
    if "://" not in url:
        return LocalStore(Path(url))
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return LocalStore(Path(unquote(parts.path)))
    if parts.scheme == "s3":
        return S3Store(url)
    raise BackupError(f"{url}: expected a directory, or s3://BUCKET/PREFIX")
