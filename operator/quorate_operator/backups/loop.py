"""The reconcile loop of QuorumBackups: it reads, plans, acts and reports, one task for all of them.

Rules:
1. Level-triggered. A watch says which QuorumBackups there are, and a list every LIST_S what it has
   missed. The objects of one are read when it has changed, every READ_S, and more often, with a
   growing pause, while it is not as wanted. In between, a continuous backup is only asked for its
   state. All pauses between requests to the API server have jitter.
2. Every action is planned from objects that were read just before. The lease is confirmed before
   each change (`writer`).
3. A failure of one QuorumBackup does not affect the others.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import math
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial

from quorate_operator.backups import status
from quorate_operator.backups.observe import (
    BackupObserver,
    BackupSnapshot,
    LocatePod,
    place_of,
)
from quorate_operator.backups.plan import (
    BackupPlan,
    DeleteWorkload,
    PutWorkload,
    plan_backup,
)
from quorate_operator.backups.resource import KIND, BackupResource
from quorate_operator.control.claims import NamespaceClaims
from quorate_operator.control.watcher import LONG_WATCH_S, KindWatcher, WatchedKind
from quorate_operator.kube.api import Kube, KubeError
from quorate_operator.kube.events import EventRecorder
from quorate_operator.kube.writer import ActionFailedError, LeaseLostError, ObjectWriter
from quorate_operator.metrics import ReportedBackup
from quorate_operator.naming import Object
from quorate_operator.objects.manifests import stamp_of

LOGGER = logging.getLogger(__name__)

ROUND_S = 5.0
"""The pause between two rounds. A round asks the API server only what is due."""
LIST_S = 300.0
UNAVAILABLE_S = 60.0
"""The pause when the API server has no such resource, or the operator may not list it."""
READ_S = 120.0
RESTLESS_S = 4.0
RESTLESS_GROWTH = 1.5
"""The first pause between two reads while something is pending, and how it grows, up to READ_S."""
ASK_S = 15.0
ACTIONS_MAX = 4
"""How many actions one QuorumBackup may take in one round."""
CONCURRENT_MAX = 8

Key = tuple[str, str]
WATCHED = WatchedKind(KIND, lambda found: str(found["metadata"]["name"]), seconds=LONG_WATCH_S)


def _jittered(pause_s: float) -> float:
    """Less up to a quarter: after an outage, not everything is repeated at once."""
    return pause_s * random.uniform(0.75, 1.0)  # noqa: S311


def _key(found: Object) -> Key:
    return found["metadata"]["namespace"], found["metadata"]["name"]


@dataclass(slots=True)
class _BackupWorker:
    """The observed state of one QuorumBackup."""

    version: tuple[object, ...] = ()
    """The UID, generation and deletion of the resource when it was last read."""
    seen: BackupSnapshot | None = None
    """The objects of the resource when they were last read."""
    read_at: float = 0.0
    """When the objects were last read, on the monotonic clock."""
    asked_at: float = 0.0
    """When the pod was last asked for its state, on the monotonic clock."""
    unrest: int = 0
    """How many reads in a row found something pending."""
    pause_s: float = 0.0
    """The time from the last read to the next one."""
    recorder: EventRecorder = field(default_factory=EventRecorder)

    def must_read(self, version: tuple[object, ...], now: float) -> bool:
        return version != self.version or now - self.read_at >= self.pause_s

    def rest(self, *, is_done: bool) -> None:
        """Choose the next pause. is_done: nothing is pending."""
        self.unrest = 0 if is_done else self.unrest + 1
        pause_s = READ_S
        if self.unrest:
            pause_s = min(READ_S, RESTLESS_S * RESTLESS_GROWTH ** min(self.unrest - 1, 32))
        self.pause_s = _jittered(pause_s)


class BackupActor(ObjectWriter):
    """Executes the plan's action."""

    async def act(self, action: PutWorkload | DeleteWorkload, backup: BackupResource) -> None:
        """Raises ActionFailedError, KubeError and LeaseLostError."""
        match action:
            case PutWorkload(made):
                await self.put(backup, made, stamp_of(made))
            case DeleteWorkload(kind, name):
                await self.delete(backup, kind, name)


class BackupLoop:
    """Reconciles all QuorumBackups of some namespaces, or of the cluster.

    is_held: whether this process holds the lease, by its own clock. claims: in which namespaces
    this release may act. namespaces: none for all. images: the allowed image repositories.
    mutated: see `ObjectWriter`.
    """

    def __init__(
        self,
        kube: Kube,
        is_held: Callable[[], bool],
        claims: NamespaceClaims,
        namespaces: Collection[str] = (),
        *,
        mutated: Callable[[str], None] = lambda _what: None,
        images: Collection[str] = (),
        locate: LocatePod = place_of,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube = kube
        self._is_held = is_held
        self._claims = claims
        self._namespaces = tuple(namespaces)
        self._mutated = mutated
        self._observer = BackupObserver(kube, images, locate)
        self._clock = clock
        self._workers: dict[Key, _BackupWorker] = {}
        self._limit = asyncio.Semaphore(CONCURRENT_MAX)
        self._unavailable: set[str] = set()
        self._known: dict[Key, Object] = {}
        self._changed: set[Key] = set()
        self._list_at: dict[str, float] = {}
        self._watched: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def _actor(self, namespace: str) -> BackupActor:
        async def is_leading() -> bool:
            return await asyncio.to_thread(self._claims.confirm, namespace)

        return BackupActor(self._kube, is_leading, self._mutated)

    def reported(self) -> Iterator[ReportedBackup]:
        """The QuorumBackups with their last status. Call it on the event loop."""
        for namespace, name in self._workers:
            found = self._known.get((namespace, name)) or {}
            created = (found.get("metadata") or {}).get("creationTimestamp")
            yield ReportedBackup(namespace, name, found.get("status") or {}, created)

    async def run(self) -> None:
        """Run until cancelled."""
        self._loop = asyncio.get_running_loop()
        while True:
            try:
                if self._is_held():
                    await self.round()
            except LeaseLostError as error:
                LOGGER.warning("backups: %s", error)
            except Exception:  # a failure here must not end the Quorums' loop
                LOGGER.exception("backups: unexpected error, this is a bug")
            await asyncio.sleep(ROUND_S)

    async def round(self) -> None:
        """Reconcile every QuorumBackup for which it is due."""
        for namespace in self._namespaces or ("",):
            if self._clock() >= self._list_at.get(namespace, -math.inf):
                await self._list(namespace)
        for gone in self._workers.keys() - self._known.keys():
            del self._workers[gone]
        found = list(self._known.values())
        results = await asyncio.gather(*map(self._guarded, found), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    # --- which there are --------------------------------------------------------------------------

    async def _list(self, namespace: str) -> None:
        """List the QuorumBackups of a namespace, "" for all, and watch them from then on."""
        self._changed.clear()
        try:
            found = await asyncio.to_thread(self._kube.list, KIND, namespace)
        except KubeError as error:
            self._note_unlisted(namespace, error)
            if namespace in self._unavailable:
                self._list_at[namespace] = self._clock() + _jittered(UNAVAILABLE_S)
            return
        self._unavailable.discard(namespace)
        self._list_at[namespace] = self._clock() + _jittered(LIST_S)
        listed = {_key(each): each for each in found}
        for key in [key for key in self._known if namespace in ("", key[0])]:
            if key not in listed and key not in self._changed:
                del self._known[key]
        # What a watch has reported meanwhile is newer.
        self._known |= {key: each for key, each in listed.items() if key not in self._changed}
        self._watch(namespace)

    def changed(self, found: Object, is_deleted: bool) -> None:
        """Note what a watch has reported. Call it on the event loop."""
        key = _key(found)
        self._changed.add(key)
        if is_deleted:
            self._known.pop(key, None)
        else:
            self._known[key] = found

    def _watch(self, namespace: str) -> None:
        """Watch the QuorumBackups of a namespace on a thread that ends with the event loop."""
        loop = self._loop
        if loop is None or namespace in self._watched:
            return
        self._watched.add(namespace)

        def changed(found: Object, is_deleted: bool) -> None:
            loop.call_soon_threadsafe(partial(self.changed, found, is_deleted))

        watcher = KindWatcher(self._kube, WATCHED, namespace, changed)
        is_open: Callable[[], bool] = lambda: not loop.is_closed()  # noqa: E731
        threading.Thread(target=watcher.follow_while, args=(is_open,), daemon=True).start()

    def _note_unlisted(self, namespace: str, error: KubeError) -> None:
        """Log it, but only once while there is no such resource or no permission."""
        is_known = namespace in self._unavailable
        if error.status in (403, 404):
            self._unavailable.add(namespace)
            if is_known:
                return
        else:
            self._unavailable.discard(namespace)
        where = namespace or "all namespaces"
        LOGGER.warning("cannot list the QuorumBackups of %s: %s", where, error)

    # --- one QuorumBackup -------------------------------------------------------------------------

    async def _guarded(self, found: Object) -> None:
        """Reconcile one QuorumBackup; report what fails. Raises LeaseLostError."""
        backup = BackupResource.parse(found)
        if not self._claims.is_claimed(backup.namespace):
            self._workers.pop((backup.namespace, backup.name), None)
            return
        worker = self._workers.setdefault((backup.namespace, backup.name), _BackupWorker())
        version = tuple(
            found["metadata"].get(name) for name in ("uid", "generation", "deletionTimestamp")
        )
        async with self._limit:
            try:
                if worker.must_read(version, self._clock()):
                    worker.version = version
                    await self._reconcile(backup, worker)
                elif not (backup.schedule or backup.is_suspended):
                    await self._ask(backup, worker)
            except LeaseLostError:
                raise
            except Exception as error:  # a failure of one must not affect the others
                if not isinstance(error, KubeError):
                    LOGGER.exception("backup %s/%s", backup.namespace, backup.name)
                await self._not_observed(backup, worker, error)

    async def _reconcile(self, backup: BackupResource, worker: _BackupWorker) -> None:
        failure = ""
        for _ in range(ACTIONS_MAX):
            seen = await asyncio.to_thread(self._read, backup)
            planned = plan_backup(backup, seen.observed)
            worker.seen = seen
            worker.read_at = worker.asked_at = self._clock()
            if planned.action is None:
                break
            try:
                await self._actor(backup.namespace).act(planned.action, backup)
            except (ActionFailedError, KubeError) as error:
                LOGGER.warning("backup %s/%s: %s", backup.namespace, backup.name, error)
                failure = str(error)
                break
        await self._report(backup, worker, planned, failure)

    def _read(self, backup: BackupResource) -> BackupSnapshot:
        seen = self._observer.read(backup)
        return seen if backup.schedule else self._observer.poll(seen)

    async def _ask(self, backup: BackupResource, worker: _BackupWorker) -> None:
        """Ask the pod for its state, if that is due. Nothing is changed because of the answer."""
        now = self._clock()
        if worker.seen is None or now - worker.asked_at < ASK_S:
            return
        worker.asked_at = now
        worker.seen = await asyncio.to_thread(self._observer.poll, worker.seen)
        await self._report(backup, worker, plan_backup(backup, worker.seen.observed), "")

    async def _report(
        self, backup: BackupResource, worker: _BackupWorker, planned: BackupPlan, failure: str
    ) -> None:
        assert worker.seen is not None, "nothing was read yet"
        now = dt.datetime.now(dt.UTC)
        made = status.build(backup, worker.seen.observed, planned, now, failure)
        conditions = {each["type"]: each["status"] for each in made["conditions"]}
        is_done = conditions["Ready"] == conditions["SpecApplied"] == "True"
        runs = (*worker.seen.observed.runs, *worker.seen.observed.drills)
        is_running = any(run.succeeded is None for run in runs)
        worker.rest(is_done=is_done and not is_running)
        await self._write(backup, worker, made)

    async def _not_observed(
        self, backup: BackupResource, worker: _BackupWorker, error: Exception
    ) -> None:
        LOGGER.warning("backup %s/%s: %s", backup.namespace, backup.name, error)
        worker.read_at = self._clock()
        worker.rest(is_done=False)
        worker.seen = None
        await self._write(
            backup, worker, status.unknown(backup, str(error) or type(error).__name__)
        )

    async def _write(self, backup: BackupResource, worker: _BackupWorker, made: Object) -> None:
        """Write the status and Events if it differs. An error is logged and stops nothing."""
        if status.is_same(backup, made):
            return
        patch = {"metadata": {"uid": backup.uid}, "status": made}
        where = (backup.namespace, backup.name)
        try:
            await asyncio.to_thread(self._kube.merge, KIND, *where, patch, "status")
        except KubeError as error:
            LOGGER.warning("backup %s/%s: cannot report its status: %s", *where, error)
            return
        known = self._known.get(where)
        if known is not None and known["metadata"].get("uid") == backup.uid:
            kept = {name: value for name, value in made.items() if value is not None}
            self._known[where] = {**known, "status": kept}
        for event in status.news(backup.status, made):
            try:
                await asyncio.to_thread(worker.recorder.record, self._kube, backup, *event)
            except KubeError as error:
                LOGGER.warning("backup %s/%s: cannot write an Event: %s", *where, error)
