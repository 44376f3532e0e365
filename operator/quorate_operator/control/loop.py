"""The reconcile loop: a change wakes the task of its Quorum, which observes, plans and acts.

Rules:
1. Level-triggered. Watches only wake tasks. Every action is planned from objects and nodes that
   were read after the last change: nothing is changed because of an earlier read.
2. One task owns a Quorum. It executes one action at a time, each planned from a new observation.
   While nothing is to be done and no watch reports a change, it only asks the nodes, with the
   objects of the last read; if that leads to another plan, it reads everything again. A lost event
   delays the reaction by at most READ_S.
3. A failed watch restarts after a growing pause (the client itself would retry at once). It has a
   read timeout, so that a dead connection ends it.
4. What fails is repeated with a growing delay (`backoff`), and reported once (`events`). So is what
   succeeds and does not last. The operator's own changes of the status wake nothing.
5. Without the lease, the operator neither observes nor changes anything. When it loses the lease,
   it stops (`LeaseLostError`). The same holds for a namespace that another operator tends
   (`claims`).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from quorate.rpc.errors import RpcError
from quorate.rpc.tls import TlsConfig
from quorate.telemetry.limited_log import LimitedLog

from quorate_operator import naming
from quorate_operator.control.act import ActionFailedError, Actor, LeaseLostError
from quorate_operator.control.backoff import LONGEST_S, Backoff, delay_s
from quorate_operator.control.claims import NamespaceClaims
from quorate_operator.control.identity import GivenIdentity, Identity
from quorate_operator.control.lasting import stamps, stamps_of_objects, why_undone
from quorate_operator.control.watcher import WATCHED, WATCHED_SECRETS, KindWatcher, WatchedKind
from quorate_operator.kube.api import Kube, KubeError
from quorate_operator.kube.events import EventRecorder
from quorate_operator.kube.lease import LeaderLease
from quorate_operator.metrics import OperatorMetrics, ReportedQuorum
from quorate_operator.naming import Object
from quorate_operator.objects import certificates
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.observation import status
from quorate_operator.observation.observe import Locate, Observer, Snapshot
from quorate_operator.planning.plan import (
    ApplyObjects,
    CreateStatefulSet,
    ExpandVolume,
    OperatorPlan,
    Reason,
    RecreateStatefulSet,
    plan,
)
from quorate_operator.planning.values import Action, targets

LOGGER = logging.getLogger(__name__)

RESYNC_S = 8.0
"""The longest pause before the nodes are asked again. With the timeouts of the questions, the
status shows a loss of the quorum within 15 s, even if no event of Kubernetes announces it.
"""
READ_S = 180.0
"""The longest time between two reads of a Quorum's objects, less up to a quarter at random."""
WAITING_S = 1.0
WAITING_GROWTH = 1.2
"""The pause before the next observation while something is pending, and the factor by which it
grows while the plan stays the same, up to RESYNC_S.
"""
UNCLAIMED_S = 5.0
"""The pause before the next look whether the namespace is this operator's."""
LOG_INTERVAL_S = 60.0
ACTED_S = 0.1
BUNCH_S = 0.3
"""How long to collect further events after the first, because they come in bursts."""
QUORUM_RETRY_MAX_S = 15.0
"""The longest delay before an action of the quorum is repeated: a new leader may permit it."""
READ_RETRY_MAX_S = 60.0
UNKNOWN_AFTER_S = 5.0
"""How long observing may fail, for a reason that may pass, before the conditions are Unknown."""

Key = tuple[str, str]

CALM = (
    Reason.DELETED,
    Reason.PAUSED,
    Reason.HIBERNATED,
    Reason.INVALID_SPEC,
    Reason.CLUSTER_ID_MISMATCH,
)
"""Refusals that only a change from outside can end; the event of that change wakes the task."""


@dataclass(slots=True)
class _Unread:
    """Observations that failed in a row, since `since` on the monotonic clock."""

    count: int = 0
    since: float = 0.0


@dataclass(slots=True)
class _Worker:
    """The task of one Quorum."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    version: tuple[object, ...] = ()
    """The last seen UID, generation and deletion of the resource, and what annotations request."""
    quorum: QuorumResource | None = None
    """The resource as last read, at `read_at`."""
    read: Snapshot | None = None
    """The objects of the resource as last read, at `read_at`."""
    read_at: float = 0.0
    observed_s: float = 0.0
    """When the state was last observed, in seconds since 1970."""
    is_changed: bool = True
    """Whether the resource or its objects have changed since the last read."""
    planned: OperatorPlan = field(default_factory=OperatorPlan)
    """The last plan."""
    waits: int = 0
    """How often in a row the plan was the same."""
    said: set[tuple[str, str]] = field(default_factory=set)
    """The reasons and texts of the refusals that were last reported."""
    backoff: Backoff = field(default_factory=Backoff)
    recorder: EventRecorder = field(default_factory=EventRecorder)
    unread: _Unread = field(default_factory=_Unread)
    identity: Identity | GivenIdentity | None = None

    def must_read(self) -> bool:
        """Whether the objects of the last read may not be used again."""
        if self.is_changed or self.quorum is None or self.read is None:
            return True
        if self.planned.action is not None:
            return True
        age_s = time.monotonic() - self.read_at
        return age_s >= READ_S * random.uniform(0.75, 1.0)  # noqa: S311


class Operator:
    """Reconciles all Quorums of some namespaces, or of the cluster.

    namespaces: none for all. claims: in which of them this release may act. images: the allowed
    image repositories of their pods, or () for any. watches_secrets: whether the operator may list
    and watch Secrets in the namespaces of Quorums. mutated, locate: see `Actor`.
    """

    def __init__(
        self,
        kube: Kube,
        lease: LeaderLease,
        namespaces: Collection[str] = (),
        *,
        claims: NamespaceClaims | None = None,
        mutated: Callable[[str], None] = lambda _what: None,
        images: Collection[str] = (),
        watches_secrets: bool = True,
        metrics: OperatorMetrics | None = None,
        locate: Locate = naming.place,
    ) -> None:
        self._kube = kube
        self._claims = NamespaceClaims(kube, lease) if claims is None else claims
        self._watches_secrets = watches_secrets
        self._metrics = metrics or OperatorMetrics()
        self._secret_namespaces: set[str] = set()
        self._lease = lease
        self._namespaces = tuple(namespaces)
        self._limited = LimitedLog(LOGGER, interval_s=LOG_INTERVAL_S)
        self._observer = Observer(kube, locate, images)
        self._locate = locate
        self._mutated = mutated
        self._workers: dict[Key, _Worker] = {}
        self._lost: asyncio.Future[None] | None = None
        self._has_ended = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def reported(self) -> Iterator[ReportedQuorum]:
        """The Quorums with their last status. Call it on the event loop."""
        for (namespace, name), worker in self._workers.items():
            if worker.quorum is not None:
                yield ReportedQuorum(namespace, name, worker.quorum.status, worker.observed_s)

    def actor(self, namespace: str) -> Actor:
        """What changes the objects of a namespace while this process may act there."""

        async def is_leading() -> bool:
            return await asyncio.to_thread(self._claims.confirm, namespace)

        return Actor(self._kube, is_leading, self._locate, self._mutated)

    async def run(self) -> None:
        """Run until cancelled. Raises LeaseLostError."""
        loop = self._loop = asyncio.get_running_loop()
        self._lost = loop.create_future()
        while not self._lease.acquired.is_set():  # a thread sets it
            if self._lease.lost.is_set():
                raise LeaseLostError("the lease cannot be acquired")
            await asyncio.sleep(0.1)
        namespaces = tuple(self._namespaces) or ("",)
        for namespace in namespaces:
            for watched in WATCHED:
                self._watch(watched, namespace)
        for namespace in self._namespaces:
            self._watch_secrets(namespace)
        watch_lease = asyncio.create_task(self._watch_lease())
        try:
            await self._list(*namespaces)
            # The watches list what they have missed. This is for one that is forbidden or hangs,
            # at a cost that does not grow with the number of namespaces.
            for namespace in itertools.cycle(namespaces):
                done, _ = await asyncio.wait([self._lost], timeout=RESYNC_S)
                if done:
                    raise LeaseLostError("this process no longer holds the lease")
                await self._list(namespace)
        finally:
            self._has_ended = True
            watch_lease.cancel()
            for worker in self._workers.values():
                if worker.task is not None:
                    worker.task.cancel()

    async def _watch_lease(self) -> None:
        while not self._lease.lost.is_set():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.2)
        self._lose()

    def _lose(self) -> None:
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)

    # --- waking the tasks -------------------------------------------------------------------------

    async def _list(self, *namespaces: str) -> None:
        for namespace in namespaces:
            try:
                found = await asyncio.to_thread(self._kube.list, "Quorum", namespace)
            except KubeError as error:
                where = namespace or "all namespaces"
                self._limited.warning(where, "cannot list the Quorums of %s: %s", where, error)
                continue
            for each in found:
                self._changed("Quorum", str(each["metadata"]["name"]), each)

    def _changed(self, kind: str, name: str, found: Object, *, is_deleted: bool = False) -> None:
        """Wake a Quorum's task, unless only the status of the Quorum itself has changed."""
        if self._has_ended:
            return  # a watch's thread outlives `run`
        key = (found["metadata"]["namespace"], name)
        if kind == "Event" and (is_deleted or key not in self._workers):
            return  # it expired, or another StatefulSet is concerned
        if kind == "Quorum" and not is_deleted:
            self._watch_secrets(key[0])
            metadata = found["metadata"]
            names = ("uid", "generation", "deletionTimestamp")
            given = metadata.get("annotations") or {}
            requests = (naming.APPROVED_ANNOTATION, naming.FENCED_ANNOTATION)
            version = (*map(metadata.get, names), *map(given.get, requests))
            known = self._workers.get(key)
            is_running = known is not None and known.task is not None and not known.task.done()
            if known is not None and is_running and known.version == version:
                return
            self._wake(key)
            self._workers[key].version = version
        else:
            self._wake(key)

    def _wake(self, key: Key) -> None:
        worker = self._workers.setdefault(key, _Worker())
        worker.is_changed = True
        worker.wake.set()
        if worker.task is None or worker.task.done():
            worker.task = asyncio.create_task(self._work(key, worker))

    def _watch(self, watched: WatchedKind, namespace: str) -> None:
        """Wake Quorums when their objects change, on a thread that ends with the loop."""
        loop = self._loop
        assert loop is not None

        def changed(found: Object, is_deleted: bool) -> None:
            name = watched.quorum_of(found)
            if name:
                loop.call_soon_threadsafe(
                    partial(self._changed, watched.kind, name, found, is_deleted=is_deleted)
                )

        watcher = KindWatcher(self._kube, watched, namespace, changed)
        is_open: Callable[[], bool] = lambda: not loop.is_closed()  # noqa: E731
        threading.Thread(target=watcher.follow_while, args=(is_open,), daemon=True).start()

    def _watch_secrets(self, namespace: str) -> None:
        """Watch the Secrets of a namespace, once it is known to have a Quorum."""
        if not self._watches_secrets or namespace in self._secret_namespaces or self._loop is None:
            return
        self._secret_namespaces.add(namespace)
        for watched in WATCHED_SECRETS:
            self._watch(watched, namespace)

    # --- one Quorum -------------------------------------------------------------------------------

    async def _work(self, key: Key, worker: _Worker) -> None:
        while True:
            worker.wake.clear()
            try:
                pause_s = await self._reconcile(key, worker)
                self._metrics.passed(is_done=True)
            except LeaseLostError:
                if not self._lease.is_held:
                    self._lose()
                    return
                LOGGER.warning("%s/%s: another operator tends this namespace now", *key)
                worker.is_changed, pause_s = True, UNCLAIMED_S
            except (KubeError, RpcError, certificates.CertificateError) as error:
                self._warn(key, str(error))
                pause_s = await self._not_observed(worker, error)
            except Exception as error:  # a failure of one Quorum must not affect the others
                LOGGER.exception("%s/%s: unexpected error, this is a bug", *key)
                pause_s = await self._not_observed(worker, error)
            if pause_s is None:
                del self._workers[key]
                return
            if pause_s <= ACTED_S:
                await asyncio.sleep(pause_s)
                continue
            try:
                async with asyncio.timeout(pause_s):
                    await worker.wake.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(BUNCH_S)

    async def _reconcile(self, key: Key, worker: _Worker) -> float | None:
        """Observe, plan and act. Return the pause in seconds, or None if the Quorum is gone."""
        if not self._claims.is_claimed(key[0]):
            return await self._leave_alone(key, worker)
        if not worker.must_read():
            if await self._is_unchanged(worker):
                return _pause_s(worker)
            worker.is_changed = True
        if not await self._read(key, worker):
            return None
        quorum, seen = await self._observe(worker)
        planned, seen = await self._plan(quorum, worker, seen)
        worker.unread = _Unread()
        worker.waits = worker.waits + 1 if planned == worker.planned else 0
        worker.planned = planned
        if planned.action is None:
            await self._report(worker, seen)
            return _pause_s(worker)
        LOGGER.info("%s/%s: %s", *key, planned.text)
        # During a retry, the status keeps the failure.
        if not worker.backoff.has_failed(targets(planned.action)):
            await self._report(worker, seen)
        if not await self._act(planned.action, worker, seen):
            worker.planned = await self._failed(worker, seen)
        return _pause_s(worker)

    async def _leave_alone(self, key: Key, worker: _Worker) -> float | None:
        """Do nothing for a Quorum of another operator, but notice that it is gone."""
        is_changed, worker.is_changed = worker.is_changed, False
        worker.quorum = worker.read = None
        if is_changed and await asyncio.to_thread(self._kube.get, "Quorum", *key) is None:
            return None
        return UNCLAIMED_S

    async def _read(self, key: Key, worker: _Worker) -> bool:
        """Read the Quorum and its objects. Return False if it is gone."""
        found = await asyncio.to_thread(self._kube.get, "Quorum", *key)
        if found is None:
            return False
        quorum = QuorumResource.parse(found)
        earlier, worker.quorum = worker.quorum, quorum
        if earlier is not None and earlier.uid != quorum.uid:
            worker.said, worker.recorder, worker.identity = set(), EventRecorder(), None
        if earlier is None or (earlier.uid, earlier.generation) != (quorum.uid, quorum.generation):
            worker.backoff.forget()
        worker.is_changed, worker.read_at = False, time.monotonic()
        worker.read = await self._observer.read(quorum)
        return True

    async def _observe(self, worker: _Worker) -> tuple[QuorumResource, Snapshot]:
        """Ask the nodes, with the objects that were read."""
        quorum, read = worker.quorum, worker.read
        assert quorum is not None
        assert read is not None
        _identify(quorum, worker, read)
        tls = _tls(quorum, worker)
        probe = worker.identity.probe if tls is not None and worker.identity is not None else None
        seen = await self._observer.poll(quorum, read, tls, probe)
        stale = seen.observed.stale
        if worker.backoff.have_been_undone(stale):
            for name, stamp in stamps_of_objects(stale, quorum, seen).items():
                worker.backoff.supersede(name, stamp)
        worker.observed_s = time.time()
        return quorum, _with_failures(seen, worker)

    async def _plan(
        self, quorum: QuorumResource, worker: _Worker, seen: Snapshot
    ) -> tuple[OperatorPlan, Snapshot]:
        """Plan. What was done a moment ago, and is to be done again and again, has failed."""
        while True:
            planned = plan(quorum.desired, seen.observed)
            if (action := planned.action) is None:
                return planned, seen
            known = stamps(action, quorum, seen)
            undone = [
                name for name, stamp in known.items() if worker.backoff.is_undone(name, stamp)
            ]
            if not undone:
                return planned, seen
            for name in undone:
                text = await asyncio.to_thread(why_undone, self._kube, quorum, action, name)
                LOGGER.warning("%s/%s: %s: %s", quorum.namespace, quorum.name, name, text)
                worker.backoff.undone(name, text, _longest_s(action))
            seen = _with_failures(seen, worker)

    async def _is_unchanged(self, worker: _Worker) -> bool:
        """Ask the nodes, and report their state. Return False if something is to be done now."""
        quorum, seen = await self._observe(worker)
        planned = plan(quorum.desired, seen.observed)
        if planned != worker.planned:
            return False
        worker.unread = _Unread()
        worker.waits += 1
        await self._report(worker, seen)
        return True

    async def _act(self, action: Action, worker: _Worker, seen: Snapshot) -> bool:
        """Execute an action, and note what failed. Return whether nothing did."""
        quorum = worker.quorum
        assert quorum is not None
        failures: dict[str, str] = {}
        untried: Collection[str] = ()
        try:
            actor = self.actor(quorum.namespace)
            await actor.act(action, quorum, seen, _tls(quorum, worker))
        except ActionFailedError as error:
            LOGGER.warning("%s/%s: %s", quorum.namespace, quorum.name, error)
            failures |= error.failures or dict.fromkeys(targets(action), str(error))
            untried = error.untried
        self._metrics.acted(type(action).__name__, is_done=not failures)
        for target, text in failures.items():
            worker.backoff.failed(target, text, _longest_s(action))
        for target, stamp in stamps(action, quorum, seen).items():
            if target not in failures and target not in untried:
                worker.backoff.succeeded(target, stamp)
        worker.is_changed = True
        return not failures

    async def _failed(self, worker: _Worker, seen: Snapshot) -> OperatorPlan:
        """Report a failure. Return the plan that remains; its action needs another observation."""
        quorum = worker.quorum
        assert quorum is not None
        seen = _with_failures(seen, worker)
        remaining = plan(quorum.desired, seen.observed)
        worker.planned = remaining
        await self._report(worker, seen, has_acted=True)
        return remaining

    async def _not_observed(self, worker: _Worker, error: Exception) -> float:
        """Report that the state is unknown, once that has lasted. Return the pause in seconds."""
        self._metrics.passed(is_done=False)
        now = time.monotonic()
        if not worker.unread.count:
            worker.unread.since = now
        worker.unread.count += 1
        worker.is_changed = True
        pause_s = delay_s(worker.unread.count, READ_RETRY_MAX_S)
        may_pass = isinstance(error, KubeError) and error.may_pass
        if worker.quorum is None or (may_pass and now - worker.unread.since < UNKNOWN_AFTER_S):
            return pause_s
        text = str(error) or type(error).__name__
        await self._write(worker, status.unknown(worker.quorum, text))
        await self._tell(worker, {(status.NOT_OBSERVED, text)})
        return pause_s

    # --- reporting --------------------------------------------------------------------------------

    async def _report(self, worker: _Worker, seen: Snapshot, *, has_acted: bool = False) -> None:
        """Write the status and the Events. has_acted: the plan's action is not taken now."""
        quorum, planned = worker.quorum, worker.planned
        assert quorum is not None
        await self._write(worker, status.build(quorum, seen, planned))
        said = {(refusal.reason.value, refusal.text) for refusal in planned.refusals}
        said |= set(status.warnings(quorum, seen))
        await self._tell(worker, said)
        if planned.action is not None and not has_acted:
            await self._event(quorum, worker, type(planned.action).__name__, planned.text)

    async def _write(self, worker: _Worker, made: Object) -> None:
        """Write the status if it differs. An error is logged and stops nothing."""
        quorum = worker.quorum
        assert quorum is not None
        made = {**made, "operator": self._claims.holder}
        if status.is_same(made, quorum.status):
            return
        name = (quorum.namespace, quorum.name)
        try:
            patch = {"metadata": {"uid": quorum.uid}, "status": made}
            await asyncio.to_thread(self._kube.merge, "Quorum", *name, patch, "status")
        except KubeError as error:
            self._warn(name, f"cannot report its status: {error}")
            return
        kept = {key: value for key, value in made.items() if value is not None}
        worker.quorum = replace(quorum, status=kept)

    async def _tell(self, worker: _Worker, said: set[tuple[str, str]]) -> None:
        """Create an Event for each warning, and for each other reason, that is new."""
        quorum, known = worker.quorum, worker.said
        assert quorum is not None
        reasons = {reason for reason, _ in known}
        worker.said = said
        for reason, text in sorted(said):
            if (reason, text) not in known and (reason in _WARNINGS or reason not in reasons):
                await self._event(quorum, worker, reason, text)

    async def _event(self, quorum: QuorumResource, worker: _Worker, reason: str, text: str) -> None:
        """Record an Event. An error is logged and stops nothing."""
        kind = "Warning" if reason in _WARNINGS else "Normal"
        record = partial(worker.recorder.record, self._kube, quorum, kind, reason, text)
        try:
            await asyncio.to_thread(record)
        except KubeError as error:
            self._warn((quorum.namespace, quorum.name), f"cannot write an Event: {error}")

    def _warn(self, key: Key, text: str) -> None:
        """Log what may be repeated without end, such as a permission that is missing."""
        self._limited.warning((*key, text), "%s/%s: %s", *key, text)


def _longest_s(action: Action) -> float:
    """The longest delay before an action is repeated."""
    is_object = isinstance(
        action, ApplyObjects | CreateStatefulSet | RecreateStatefulSet | ExpandVolume
    )
    return LONGEST_S if is_object else QUORUM_RETRY_MAX_S


def _with_failures(seen: Snapshot, worker: _Worker) -> Snapshot:
    """The snapshot with the failures whose next attempt is not due now."""
    return replace(seen, observed=replace(seen.observed, failures=worker.backoff.failures))


def _identify(quorum: QuorumResource, worker: _Worker, read: Snapshot) -> None:
    """Update the worker's identity from the certificates that were read.

    It is kept while the authority cannot be used, because nodes may still accept it.
    """
    known = worker.identity
    if quorum.has_own_authority:
        authority = read.authority
        if authority is None:
            return
        if isinstance(known, Identity) and known.authority.material == authority.material:
            return
        worker.identity = None if authority.is_expired() else Identity(authority)
        return
    if not quorum.is_tls or not {"tls.crt", "tls.key", certificates.CA_FILE} <= set(read.given):
        return
    if not isinstance(known, GivenIdentity) or known.files != read.given:
        worker.identity = GivenIdentity(read.given)


def _tls(quorum: QuorumResource, worker: _Worker) -> TlsConfig | None:
    identity = worker.identity
    if not quorum.is_tls or identity is None:
        return None
    if isinstance(identity, Identity) and identity.is_due:
        if identity.authority.is_expired():
            worker.identity = None
            return None
        worker.identity = identity = Identity(identity.authority)
    return identity.tls


_WARNINGS = frozenset(
    {status.NOT_OBSERVED, status.TWO_VOTERS, *(reason.value for reason in status.URGENT)}
)


def _pause_s(worker: _Worker) -> float:
    planned = worker.planned
    if planned.action is not None:
        return ACTED_S
    pause_s = float(min(RESYNC_S, WAITING_S * WAITING_GROWTH**worker.waits))
    if all(refusal.reason in CALM for refusal in planned.refusals):
        pause_s = RESYNC_S
    due_s = worker.backoff.due_in_s
    return pause_s if due_s is None else max(ACTED_S, min(pause_s, due_s))
