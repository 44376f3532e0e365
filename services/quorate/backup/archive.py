"""The manifests of an archive, and the objects that they list."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import replace

from quorate.backup.errors import BackupError
from quorate.backup.manifest import (
    MANIFEST_FOLDER,
    ArchivedSegment,
    ArchivedSnapshot,
    BackupManifest,
    RetiredObject,
    decode_manifest,
    encode_manifest,
)
from quorate.backup.stores import ObjectStore

KEPT_MANIFESTS = 8
"""How many manifests stay, and with them the objects that they list."""
RETIRED_MS = 60 * 60 * 1000
"""How long objects stay that no new manifest lists: a restore or a verification may read them."""


def read_manifest(store: ObjectStore, name: str) -> BackupManifest:
    """Read one manifest. BackupError if it is missing or was changed."""
    return decode_manifest(b"".join(store.chunks(name)), name)


def newest_manifest(store: ObjectStore) -> BackupManifest | None:
    """The newest manifest, None if there is none. BackupError if it cannot be used."""
    names = store.names(MANIFEST_FOLDER)
    return read_manifest(store, names[-1]) if names else None


def require_manifest(store: ObjectStore) -> BackupManifest:
    """The newest manifest. BackupError if there is none, or it cannot be used."""
    manifest = newest_manifest(store)
    if manifest is None:
        raise BackupError(f"{store.url} contains no backup")
    return manifest


def verified_chunks(
    store: ObjectStore, found: ArchivedSegment | ArchivedSnapshot
) -> Iterator[bytes]:
    """An object's bytes. BackupError at their end if they are not those of the manifest."""
    digest = hashlib.sha256()
    size = 0
    for chunk in store.chunks(found.name):
        digest.update(chunk)
        size += len(chunk)
        yield chunk
    if size != found.size or digest.hexdigest() != found.sha256:
        raise BackupError(f"{found.name} is not the object that the manifest lists")


class Archive:
    """An archive that this process writes. newest: the last manifest, None before the first.

    retired_ms: how long objects stay that no new manifest lists.
    """

    def __init__(self, store: ObjectStore, *, retired_ms: int = RETIRED_MS) -> None:
        self.store = store
        self._retired_ms = retired_ms
        names = store.names(MANIFEST_FOLDER)
        self._kept = {name: self._read(name).names for name in names[:-1]}
        self.newest = read_manifest(store, names[-1]) if names else None
        if self.newest is not None:
            self._kept[self.newest.name] = self.newest.names

    def _read(self, name: str) -> BackupManifest:
        """An older manifest; an empty one if it cannot be used, as then nothing restores it."""
        try:
            return read_manifest(self.store, name)
        except BackupError:
            return BackupManifest("")

    def publish(self, manifest: BackupManifest) -> None:
        """Write the next manifest; delete manifests before the kept ones, and retired objects.

        BackupError if another process has written one since.
        """
        known = -1 if self.newest is None else self.newest.generation
        names = self.store.names(MANIFEST_FOLDER)
        if (names[-1] if names else None) != (None if self.newest is None else self.newest.name):
            raise BackupError(
                f"another process wrote {names[-1] if names else 'nothing'} to {self.store.url}: "
                "only one backup may run"
            )
        now_ms = time.time_ns() // 1_000_000
        following = replace(
            manifest,
            generation=known + 1,
            created_ms=now_ms,
            retired=self._without_due(self._retired(manifest, now_ms), now_ms),
        )
        self.store.put(following.name, [encode_manifest(following)])
        self.newest = following
        self._kept[following.name] = following.names
        old = sorted(self._kept)[:-KEPT_MANIFESTS]
        if old:
            self.store.delete(old)
            for name in old:
                del self._kept[name]

    def _retired(self, manifest: BackupManifest, now_ms: int) -> list[RetiredObject]:
        """What is retired with the next manifest, in addition to what was before."""
        if self.newest is None:
            return []
        unlisted = sorted(self.newest.names - manifest.names)
        return [*self.newest.retired, *(RetiredObject(name, now_ms) for name in unlisted)]

    def _without_due(self, retired: list[RetiredObject], now_ms: int) -> tuple[RetiredObject, ...]:
        """Delete the objects that were retired long ago; return the others.

        The next manifest no longer names them, so an interrupted deletion is repeated.
        """
        listed = set[str]().union(*self._kept.values())
        due = {
            each.name
            for each in retired
            if now_ms - each.retired_ms >= self._retired_ms and each.name not in listed
        }
        if due:
            self.store.delete(sorted(due))
        return tuple(each for each in retired if each.name not in due)
