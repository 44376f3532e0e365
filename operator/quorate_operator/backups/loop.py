"""The reconcile loop of QuorumBackups: it reads, plans, acts and reports, one task for all of them.

Rules:
1. Level-triggered, without watches: a round begins every ROUND_S with a list of all QuorumBackups.
   The objects of one are read when it has changed, every READ_S, and more often, with a growing
   pause, while it is not as wanted. In between, a continuous backup is only asked for its state.
2. Every action is planned from objects that were read just before. The lease is confirmed before
   each change (`writer`).
3. A failure of one QuorumBackup does not affect the others.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

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
from quorate_operator.claims import NamespaceClaims
from quorate_operator.kube import Kube, KubeError
from quorate_operator.manifests import stamp_of
from quorate_operator.naming import Object
from quorate_operator.writer import ActionFailedError, LeaseLostError, ObjectWriter

LOGGER = logging.getLogger(__name__)

ROUND_S = 5.0
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

    def must_read(self, version: tuple[object, ...], now: float) -> bool:
        pause_s = READ_S
        if self.unrest:
            pause_s = min(READ_S, RESTLESS_S * RESTLESS_GROWTH ** (self.unrest - 1))
        return version != self.version or now - self.read_at >= pause_s


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
        self._workers: dict[tuple[str, str], _BackupWorker] = {}
        self._limit = asyncio.Semaphore(CONCURRENT_MAX)
        self._unavailable: set[str] = set()

    def _actor(self, namespace: str) -> BackupActor:
        async def is_leading() -> bool:
            return await asyncio.to_thread(self._claims.confirm, namespace)

        return BackupActor(self._kube, is_leading, self._mutated)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            pause_s = ROUND_S
            try:
                if self._is_held():
                    pause_s = await self.round()
            except LeaseLostError as error:
                LOGGER.warning("backups: %s", error)
            except Exception:  # a failure here must not end the Quorums' loop
                LOGGER.exception("backups: unexpected error, this is a bug")
            await asyncio.sleep(pause_s)

    async def round(self) -> float:
        """Reconcile every QuorumBackup for which it is due. Return the pause in seconds."""
        found: list[Object] = []
        unlisted: set[str] = set()
        namespaces = self._namespaces or ("",)
        for namespace in namespaces:
            try:
                found += await asyncio.to_thread(self._kube.list, KIND, namespace)
                self._unavailable.discard(namespace)
            except KubeError as error:
                unlisted.add(namespace)
                self._note_unlisted(namespace, error)
        present = {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in found}
        for gone in self._workers.keys() - present:
            if unlisted.isdisjoint({gone[0], ""}):
                del self._workers[gone]
        results = await asyncio.gather(*map(self._guarded, found), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        is_unavailable = self._unavailable.issuperset(namespaces)
        return UNAVAILABLE_S if is_unavailable else ROUND_S

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
        worker.unrest = 0 if is_done and not is_running else worker.unrest + 1
        await self._write(backup, made)

    async def _not_observed(
        self, backup: BackupResource, worker: _BackupWorker, error: Exception
    ) -> None:
        LOGGER.warning("backup %s/%s: %s", backup.namespace, backup.name, error)
        worker.read_at = self._clock()
        worker.unrest += 1
        worker.seen = None
        await self._write(backup, status.unknown(backup, str(error) or type(error).__name__))

    async def _write(self, backup: BackupResource, made: Object) -> None:
        """Write the status if it differs. An error is logged and stops nothing."""
        if status.is_same(made, backup.status):
            return
        patch = {"metadata": {"uid": backup.uid}, "status": made}
        where = (backup.namespace, backup.name)
        try:
            await asyncio.to_thread(self._kube.merge, KIND, *where, patch, "status")
        except KubeError as error:
            LOGGER.warning("backup %s/%s: cannot report its status: %s", *where, error)
