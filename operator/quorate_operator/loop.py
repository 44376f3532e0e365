"""The reconcile loop: a change wakes the task of its Quorum, which observes, plans and acts.

Rules:
1. Level-triggered. Watches only wake tasks; decisions rest on live reads. A lost event delays the
   reaction by at most RESYNC_S.
2. One task owns a Quorum. It executes one action at a time, each planned from a new observation.
3. A failed watch restarts after a growing pause (the client itself would retry at once). It has a
   read timeout, so that a dead connection ends it.
4. Without the lease, the operator neither observes nor changes anything. When it loses the lease,
   it stops (`LeaseLostError`).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from quorate.rpc.errors import RpcError
from quorate.rpc.tls import TlsConfig
from tenacity import Retrying, retry_if_exception_type, wait_random_exponential

from quorate_operator import certificates, naming, status
from quorate_operator.act import ActionFailedError, Actor, LeaseLostError
from quorate_operator.identity import GivenIdentity, Identity
from quorate_operator.kube import Kube, KubeError
from quorate_operator.lease import LeaderLease
from quorate_operator.naming import Object
from quorate_operator.observe import Observer, Snapshot, labels_of
from quorate_operator.plan import OperatorPlan, Reason, plan
from quorate_operator.resource import QuorumResource

LOGGER = logging.getLogger(__name__)

RESYNC_S = 15.0
WAITING_S = 1.0
WAITING_GROWTH = 1.2
"""The pause before the next observation while something is pending, and the factor by which it
grows while the plan stays the same, up to RESYNC_S.
"""
ACTED_S = 0.1
BUNCH_S = 0.3
"""How long to collect further events after the first, because they come in bursts."""
FAILED_S = 2.0
WATCH_PAUSE_MAX_S = 30.0
FAILED = "ActionFailed"

Key = tuple[str, str]

CALM = (Reason.DELETED, Reason.PAUSED, Reason.INVALID_SPEC, Reason.CLUSTER_ID_MISMATCH)
"""Refusals that only a change from outside can end; the event of that change wakes the task."""


@dataclass(slots=True)
class _Worker:
    """The task of one Quorum.

    said: the reason and text of the refusals and failures that were last reported. waits: how often
    in a row `waiting_for` was planned again. failure: why its action failed, "" if it did not.
    """

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    said: set[tuple[str, str]] = field(default_factory=set)
    waiting_for: OperatorPlan = field(default_factory=OperatorPlan)
    waits: int = 0
    failure: str = ""
    identity: Identity | GivenIdentity | None = None


class Operator:
    """Reconciles all Quorums of a namespace, or of the cluster ("").

    images: the allowed image repositories of their pods, or () for any. mutated: see `Actor`.
    """

    def __init__(
        self,
        kube: Kube,
        lease: LeaderLease,
        namespace: str = "",
        mutated: Callable[[str], None] = lambda _what: None,
        images: Collection[str] = (),
    ) -> None:
        self._kube = kube
        self._lease = lease
        self._namespace = namespace
        self._observer = Observer(kube, images=images)
        self._actor = Actor(kube, self._is_leading, mutated=mutated)
        self._workers: dict[Key, _Worker] = {}
        self._lost: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def _is_leading(self) -> bool:
        return await asyncio.to_thread(self._lease.confirm)

    async def run(self) -> None:
        """Run until cancelled. Raises LeaseLostError."""
        loop = self._loop = asyncio.get_running_loop()
        self._lost = loop.create_future()
        while not self._lease.acquired.is_set():  # a thread sets it
            if self._lease.lost.is_set():
                raise LeaseLostError("the lease cannot be acquired")
            await asyncio.sleep(0.1)
        for kind, name in (
            ("Quorum", _own_name),
            ("Pod", _quorum_of),
            ("StatefulSet", _quorum_of),
            ("PersistentVolumeClaim", _quorum_of),
        ):
            threading.Thread(target=self._watch, args=(kind, name), daemon=True).start()
        watch_lease = asyncio.create_task(self._watch_lease())
        try:
            while True:
                await self._list()
                done, _ = await asyncio.wait([self._lost], timeout=RESYNC_S)
                if done:
                    raise LeaseLostError("this process no longer holds the lease")
        finally:
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

    async def _list(self) -> None:
        try:
            found = await asyncio.to_thread(self._kube.list, "Quorum", self._namespace)
        except KubeError as error:
            LOGGER.warning("cannot list the Quorums: %s", error)
            return
        for each in found:
            self._wake((each["metadata"]["namespace"], each["metadata"]["name"]))

    def _wake(self, key: Key) -> None:
        worker = self._workers.setdefault(key, _Worker())
        worker.wake.set()
        if worker.task is None or worker.task.done():
            worker.task = asyncio.create_task(self._work(key, worker))

    def _watch(self, kind: str, name_of: Callable[[Object], str]) -> None:
        """Wake Quorums when their objects change. Runs on its own thread until the loop closes."""
        selector = "" if kind == "Quorum" else f"{naming.MANAGED_LABEL}=quorate-operator"
        loop = self._loop
        assert loop is not None

        def once() -> None:
            began = time.monotonic()
            try:
                for found in self._kube.watch(kind, self._namespace, selector):
                    name = name_of(found)
                    if name:
                        key = (found["metadata"]["namespace"], name)
                        loop.call_soon_threadsafe(self._wake, key)
            except KubeError as error:
                LOGGER.warning("%s (after %.0f s)", error, time.monotonic() - began)
                if time.monotonic() - began < WATCH_PAUSE_MAX_S:
                    raise

        while not loop.is_closed():
            try:
                Retrying(
                    retry=retry_if_exception_type(KubeError),
                    wait=wait_random_exponential(multiplier=0.5, max=WATCH_PAUSE_MAX_S),
                )(once)
            except RuntimeError:  # the loop was closed meanwhile
                return

    # --- one Quorum -------------------------------------------------------------------------------

    async def _work(self, key: Key, worker: _Worker) -> None:
        while True:
            worker.wake.clear()
            try:
                pause_s = await self._reconcile(key, worker)
            except LeaseLostError:
                self._lose()
                return
            except (KubeError, RpcError, certificates.CertificateError) as error:
                LOGGER.warning("%s/%s: %s", *key, error)
                pause_s = FAILED_S
            except Exception:  # a failure of one Quorum must not affect the others
                LOGGER.exception("%s/%s: unexpected error, this is a bug", *key)
                pause_s = RESYNC_S
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
        found = await asyncio.to_thread(self._kube.get, "Quorum", *key)
        if found is None:
            return None
        quorum = QuorumResource.parse(found)
        seen = await self._observe(quorum, worker)
        if _identify(quorum, worker, seen):
            seen = await self._observe(quorum, worker)
        planned = plan(quorum.desired, seen.observed)
        is_retry = planned.action == worker.waiting_for.action
        earlier = worker.failure if is_retry else ""
        worker.waits = worker.waits + 1 if planned == worker.waiting_for else 0
        worker.waiting_for, worker.failure = planned, ""
        if planned.action is not None:
            LOGGER.info("%s/%s: %s", *key, planned.text)
            # The status keeps the failure during a retry, because each change of it wakes the task.
            await self._report(quorum, seen, planned, worker, earlier)
            try:
                await self._actor.act(planned.action, quorum, seen, _tls(quorum, worker))
            except ActionFailedError as error:
                worker.failure = str(error)
                LOGGER.warning("%s/%s: %s", *key, worker.failure)
        if planned.action is None or worker.failure:
            await self._report(quorum, seen, planned, worker, worker.failure)
        return _pause_s(planned, worker.failure, worker.waits)

    async def _observe(self, quorum: QuorumResource, worker: _Worker) -> Snapshot:
        tls = _tls(quorum, worker)
        probe = worker.identity.probe if tls is not None and worker.identity is not None else None
        return await self._observer.observe(quorum, tls, probe)

    # --- reporting --------------------------------------------------------------------------------

    async def _report(
        self,
        quorum: QuorumResource,
        seen: Snapshot,
        planned: OperatorPlan,
        worker: _Worker,
        failure: str,
    ) -> None:
        """Write the status and the Events. An error is logged and stops nothing."""
        made = status.build(quorum, seen, planned, failure)
        try:
            if not status.is_same(made, quorum.status):
                await asyncio.to_thread(
                    self._kube.merge,
                    "Quorum",
                    quorum.namespace,
                    quorum.name,
                    {"status": made},
                    "status",
                )
            await self._tell(quorum, planned, worker, failure)
        except KubeError as error:
            LOGGER.warning(
                "%s/%s: cannot report its status: %s", quorum.namespace, quorum.name, error
            )

    async def _tell(
        self, quorum: QuorumResource, planned: OperatorPlan, worker: _Worker, failure: str
    ) -> None:
        """Create an Event for each action, and for each refusal and failure with a new reason.

        A retry of a failed action creates none: `failure` is then that of the last attempt.
        """
        said = {(refusal.reason.value, refusal.text) for refusal in planned.refusals}
        if failure:
            said.add((FAILED, failure))
        known = {reason for reason, _ in worker.said}
        for reason, text in sorted(said):
            if reason not in known:
                kind = "Warning" if reason in _WARNINGS else "Normal"
                await self._event(quorum, kind, reason, text)
        worker.said = said
        if planned.action is not None and not failure:
            await self._event(quorum, "Normal", type(planned.action).__name__, planned.text)

    async def _event(self, quorum: QuorumResource, kind: str, reason: str, text: str) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        body = {
            "metadata": {"generateName": f"{quorum.name}-", "namespace": quorum.namespace},
            "involvedObject": {
                "apiVersion": naming.API_VERSION,
                "kind": naming.KIND,
                "name": quorum.name,
                "namespace": quorum.namespace,
                "uid": quorum.uid,
            },
            "type": kind,
            "reason": reason,
            "message": text[:1024],
            "source": {"component": "quorate-operator"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        await asyncio.to_thread(
            self._kube.create, "Event", quorum.namespace, body, "quorate-operator"
        )


def _identify(quorum: QuorumResource, worker: _Worker, seen: Snapshot) -> bool:
    """Update the worker's identity from the observed certificates. Return whether it changed."""
    known = worker.identity
    if quorum.has_own_authority:
        if seen.authority is None or (
            isinstance(known, Identity) and known.authority.material == seen.authority.material
        ):
            return False
        worker.identity = Identity(seen.authority)
        return True
    if not quorum.is_tls or not {"tls.crt", "tls.key", certificates.CA_FILE} <= set(seen.given):
        return False
    if isinstance(known, GivenIdentity) and known.files == seen.given:
        return False
    worker.identity = GivenIdentity(seen.given)
    return True


def _tls(quorum: QuorumResource, worker: _Worker) -> TlsConfig | None:
    identity = worker.identity
    if not quorum.is_tls or identity is None:
        return None
    if isinstance(identity, Identity) and identity.is_due:
        worker.identity = identity = Identity(identity.authority)
    return identity.tls


_WARNINGS = frozenset({FAILED, *(reason.value for reason in status.URGENT)})


def _pause_s(planned: OperatorPlan, failure: str, waits: int) -> float:
    if failure:
        return FAILED_S * min(waits + 1, 5)
    if planned.action is not None:
        return ACTED_S
    if all(refusal.reason in CALM for refusal in planned.refusals):
        return RESYNC_S
    return float(min(RESYNC_S, WAITING_S * WAITING_GROWTH**waits))


def _own_name(found: Object) -> str:
    return str(found["metadata"]["name"])


def _quorum_of(found: Object) -> str:
    return str(labels_of(found).get(naming.INSTANCE_LABEL, ""))
