"""The manifests of an archive, and the objects that they list."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from quorate.backup.encryption import HEADER
from quorate.backup.errors import (
    BackupError,
    KeyChoiceError,
    MissingObjectError,
    UnencryptedError,
)
from quorate.backup.manifest import (
    MANIFEST_FOLDER,
    ArchivedRun,
    ArchivedSegment,
    ArchivedSnapshot,
    BackupManifest,
    RetiredObject,
    check_manifest_name,
    decode_manifest,
    encode_manifest,
)
from quorate.backup.stores import ObjectStore

KEPT_MANIFESTS = 8
"""How many manifests stay, and with them the objects that they list."""
RETIRED_MS = 60 * 60 * 1000
"""How long objects stay that no new manifest lists: a restore or a verification may read them."""


def manifest_names(store: ObjectStore) -> list[str]:
    """The names of all manifests, the newest last. BackupError if anything else is among them."""
    names = store.names(MANIFEST_FOLDER)
    for name in names:
        check_manifest_name(name)
    return names


def read_manifest(store: ObjectStore, name: str) -> BackupManifest:
    """Read one manifest. BackupError if it is missing or was changed, and KeyChoiceError."""
    try:
        return _decoded(store, name)
    except UnencryptedError:
        if any(_is_encrypted(store, other) for other in manifest_names(store)):
            raise BackupError(
                f"{store.url}: {name} is not encrypted, although other manifests are: somebody "
                "without the key may have written it. Find out who did before you delete it"
            ) from None
        raise KeyChoiceError(
            f"{store.url} is not encrypted: if you expect an encrypted backup there, somebody "
            "without the key may have replaced it. If not, omit --key-file, or use an empty target"
        ) from None


def _decoded(store: ObjectStore, name: str) -> BackupManifest:
    data = b"".join(store.chunks(name))
    if data.startswith(HEADER):
        raise KeyChoiceError(f"{store.url} is encrypted: --key-file is needed")
    return decode_manifest(data, name)


def _is_encrypted(store: ObjectStore, name: str) -> bool:
    """Whether an object of an encrypted store is, with any key."""
    try:
        next(store.chunks(name), None)
    except (UnencryptedError, MissingObjectError):
        return False
    except BackupError:
        pass  # the key is another one, or the object was changed
    return True


def newest_manifest(store: ObjectStore) -> BackupManifest | None:
    """The newest manifest, None if there is none. BackupError if it cannot be used."""
    names = manifest_names(store)
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
        if size > found.size:  # a store may hand out any length
            break
        yield chunk
    if size != found.size or digest.hexdigest() != found.sha256:
        raise BackupError(f"{found.name} is not the object that the manifest lists")


def needed_runs(runs: Sequence[ArchivedRun], since_ms: int) -> tuple[ArchivedRun, ...]:
    """The runs that a restore to `since_ms` or a later time needs; always the newest one.

    A restore to a time uses the last run whose checkpoint is not later.
    """
    first = 0
    for index, run in enumerate(runs):
        if run.snapshot is not None and run.snapshot.last_timestamp <= since_ms:
            first = index
    return tuple(runs[first:])


class Archive:
    """An archive that this process writes. newest: the last manifest, None before the first.

    retired_ms: how long objects stay that no new manifest lists.
    """

    def __init__(self, store: ObjectStore, *, retired_ms: int = RETIRED_MS) -> None:
        self.store = store
        self._retired_ms = retired_ms
        names = manifest_names(store)
        self._kept = {name: self._read(name) for name in names[:-1]}
        self.newest = read_manifest(store, names[-1]) if names else None
        if self.newest is not None:
            self._published(self.newest)
        self._written: BackupManifest | None = None
        """What this process gave the store last."""
        self._held: frozenset[str] = frozenset()
        """Objects that this process reads, so that they are not deleted."""

    def _read(self, name: str) -> BackupManifest:
        """An older manifest; an empty one if it cannot be used, as then nothing restores it."""
        try:
            return _decoded(self.store, name)
        except BackupError:
            return BackupManifest("")

    def publish(self, manifest: BackupManifest) -> None:
        """Write the next manifest; delete manifests before the kept ones, and retired objects.

        BackupError if another process has written one since. Two processes may write the same
        generation at once. The later one replaces the manifest of the other, which finds that out
        when it reads it again, at once or before its next one.
        """
        found = self._stored()
        if found is not None and found == self._written:
            # The store kept the manifest and failed afterwards.
            self._published(found)
        elif found != self.newest:
            raise self._conflict()
        known = -1 if self.newest is None else self.newest.generation
        now_ms = time.time_ns() // 1_000_000
        following = replace(
            manifest,
            generation=known + 1,
            created_ms=now_ms,
            retired=self._without_due(self._retired(manifest, now_ms), now_ms),
        )
        self._written = following
        self.store.put(following.name, [encode_manifest(following)])
        if self._stored() != following:
            raise self._conflict()
        self._published(following)
        old = sorted(self._kept)[:-KEPT_MANIFESTS]
        if old:
            self.store.delete(old)
            for name in old:
                del self._kept[name]

    @contextmanager
    def holding(self, names: Iterable[str]) -> Iterator[None]:
        """Delete none of these objects meanwhile. They are deleted later if they are due."""
        self._held = frozenset(names)
        try:
            yield
        finally:
            self._held = frozenset()

    def confirm(self) -> None:
        """Ask the store whether it still has the newest manifest. BackupError if not; OSError."""
        if self._stored() != self.newest:
            raise self._conflict()

    def _stored(self) -> BackupManifest | None:
        """What the store's newest manifest contains."""
        names = manifest_names(self.store)
        return self._read(names[-1]) if names else None

    def _published(self, manifest: BackupManifest) -> None:
        self.newest = manifest
        self._kept[manifest.name] = manifest

    def _conflict(self) -> BackupError:
        names = manifest_names(self.store)
        if not names:
            return BackupError(f"{self.store.url} lost its manifests: start a new backup")
        return BackupError(
            f"another process wrote {names[-1]} to {self.store.url}: only one backup may run"
        )

    def prune(self, since_ms: int) -> tuple[ArchivedRun, ...]:
        """Drop the runs that no restore to `since_ms` or a later time needs; returns them.

        Their objects are deleted by the first call after `retired_ms`, as restores may read them.
        Before that, the older manifests that list them are deleted.
        """
        if self.newest is None:
            return ()
        runs = self.newest.runs
        needed = needed_runs(runs, since_ms)
        if len(needed) < len(runs):
            self.publish(replace(self.newest, runs=needed))
        self._delete_dropped(self.newest)
        return runs[: len(runs) - len(needed)]

    def _delete_dropped(self, newest: BackupManifest) -> None:
        due = self._due(newest.retired, time.time_ns() // 1_000_000)
        if not due:
            return
        start = newest.runs[0].start
        older = [
            name
            for name, manifest in sorted(self._kept.items())
            if name != newest.name and manifest.runs and manifest.runs[0].start < start
        ]
        if older:
            self.store.delete(older)
            for name in older:
                del self._kept[name]
        if due - self._listed():
            self.publish(newest)

    def _retired(self, manifest: BackupManifest, now_ms: int) -> list[RetiredObject]:
        """What is retired with the next manifest, in addition to what was before."""
        if self.newest is None:
            return []
        listed = manifest.names
        before = (each for each in self.newest.retired if each.name not in listed)
        unlisted = sorted(self.newest.names - listed)
        return [*before, *(RetiredObject(name, now_ms) for name in unlisted)]

    def _without_due(self, retired: list[RetiredObject], now_ms: int) -> tuple[RetiredObject, ...]:
        """Delete the objects that were retired long ago; return the others.

        The next manifest no longer names them, so an interrupted deletion is repeated.
        """
        due = self._due(retired, now_ms) - self._listed()
        if due:
            self.store.delete(sorted(due))
        return tuple(each for each in retired if each.name not in due)

    def _due(self, retired: Sequence[RetiredObject], now_ms: int) -> set[str]:
        return {each.name for each in retired if now_ms - each.retired_ms >= self._retired_ms}

    def _listed(self) -> set[str]:
        """The objects that a kept manifest lists, or that are held."""
        return set(self._held).union(*(manifest.names for manifest in self._kept.values()))
