"""The loop: whatever changes wakes the task of its Quorum, which observes, plans and acts.

Rules:
1. Level-triggered. Watches only wake; decisions rest on live reads. A lost event costs at most
   RESYNC_S.
2. One task owns a Quorum: its actions come one after the other, each planned from what is seen
   anew.
3. A watch that fails is begun again after a growing pause (the client itself would retry at once);
   it has a read timeout, so that a dead connection ends it.
4. Without the lease nothing is observed or changed; who loses it ends (`LeaseLostError`).
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
from quorate_operator.kube import Kube, KubeError, Object
from quorate_operator.lease import Lease
from quorate_operator.observe import Observer, Snapshot
from quorate_operator.plan import Plan, Reason, plan
from quorate_operator.resource import QuorumResource

LOGGER = logging.getLogger(__name__)

RESYNC_S = 15.0
WAITING_S = 1.0
WAITING_GROWTH = 1.2
"""How soon to look again while something is under way, and how that grows while all stays as it is,
up to RESYNC_S.
"""
ACTED_S = 0.1
BUNCH_S = 0.3
"""Events come in bunches."""
FAILED_S = 2.0
WATCH_PAUSE_MAX_S = 30.0
FAILED = "ActionFailed"

Key = tuple[str, str]

CALM = (Reason.DELETED, Reason.PAUSED, Reason.INVALID_SPEC, Reason.CLUSTER_ID_MISMATCH)
"""Refusals that only somebody else can end: what they do wakes us."""


@dataclass(slots=True)
class _Worker:
    """The task of one Quorum. said: the refusals and failures that Events were written for. waits:
    how often `waiting_for` was planned in a row.
    """

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    said: set[tuple[str, str]] = field(default_factory=set)
    waiting_for: Plan = field(default_factory=Plan)
    waits: int = 0
    identity: Identity | GivenIdentity | None = None


class Operator:
    """All Quorums of a namespace, or of the cluster (""). images: the repositories that their pods
    may be made from.
    """

    def __init__(
        self,
        kube: Kube,
        lease: Lease,
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
        """Until cancelled. Raises LeaseLostError."""
        loop = self._loop = asyncio.get_running_loop()
        self._lost = loop.create_future()
        while not self._lease.acquired.is_set():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.1)
        for kind, name in (
            ("Quorum", _own_name),
            ("Pod", _quorum_of),
            ("StatefulSet", _quorum_of),
            ("PersistentVolumeClaim", _quorum_of),
        ):
            arguments = (kind, name)
            threading.Thread(target=self._watch, args=arguments, daemon=True).start()
        watch_lease = asyncio.create_task(self._watch_lease())
        try:
            while True:
                await self._list()
                done, _ = await asyncio.wait([self._lost], timeout=RESYNC_S)
                if done:
                    raise LeaseLostError("the lease is not ours any more")
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

    # --- what wakes -------------------------------------------------------------------------------

    async def _list(self) -> None:
        try:
            found = await asyncio.to_thread(self._kube.list, "Quorum", self._namespace)
        except KubeError as error:
            LOGGER.warning("the Quorums cannot be listed: %s", error)
            return
        for each in found:
            self._wake((each["metadata"]["namespace"], each["metadata"]["name"]))

    def _wake(self, key: Key) -> None:
        worker = self._workers.setdefault(key, _Worker())
        worker.wake.set()
        if worker.task is None or worker.task.done():
            worker.task = asyncio.create_task(self._work(key, worker))

    def _watch(self, kind: str, name_of: Callable[[Object], str]) -> None:
        """Wake Quorums as their objects change; on a thread of its own, for ever."""
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
            except Exception:  # one Quorum's trouble is not the others'
                LOGGER.exception("%s/%s: this is a bug", *key)
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
        """Observe, plan, act; how long to rest then, or None if the Quorum is gone."""
        found = await asyncio.to_thread(self._kube.get, "Quorum", *key)
        if found is None:
            return None
        quorum = QuorumResource.parse(found)
        seen = await self._observe(quorum, worker)
        if _identify(quorum, worker, seen):
            seen = await self._observe(quorum, worker)
        planned = plan(quorum.desired, seen.observed)
        failure = ""
        if planned.action is not None:
            LOGGER.info("%s/%s: %s", *key, planned.text)
            await self._report(quorum, seen, planned, worker, "")
            try:
                await self._actor.act(planned.action, quorum, seen, _tls(quorum, worker))
            except ActionFailedError as error:
                failure = str(error)
                LOGGER.warning("%s/%s: %s", *key, failure)
        if planned.action is None or failure:
            await self._report(quorum, seen, planned, worker, failure)
        worker.waits = worker.waits + 1 if planned == worker.waiting_for else 0
        worker.waiting_for = planned
        return _pause_s(planned, failure, worker.waits)

    async def _observe(self, quorum: QuorumResource, worker: _Worker) -> Snapshot:
        tls = _tls(quorum, worker)
        probe = worker.identity.probe if tls is not None and worker.identity is not None else None
        return await self._observer.observe(quorum, tls, probe)

    # --- telling ----------------------------------------------------------------------------------

    async def _report(
        self, quorum: QuorumResource, seen: Snapshot, planned: Plan, worker: _Worker, failure: str
    ) -> None:
        """Status and Events; that they fail stops nothing."""
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
            LOGGER.warning("%s/%s: its status: %s", quorum.namespace, quorum.name, error)

    async def _tell(
        self, quorum: QuorumResource, planned: Plan, worker: _Worker, failure: str
    ) -> None:
        """An Event for each action, and for each refusal and failure that is new."""
        said: set[tuple[str, str]] = set()
        for refusal in planned.refusals:
            said.add((refusal.reason.value, refusal.text))
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
    """Have the identity that belongs to what was seen; whether it is a new one."""
    known = worker.identity
    if quorum.has_own_authority:
        if seen.authority is None:
            return False
        if isinstance(known, Identity) and known.authority.material == seen.authority.material:
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


def _pause_s(planned: Plan, failure: str, waits: int) -> float:
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
    labels = found["metadata"].get("labels") or {}
    return str(labels.get(naming.INSTANCE_LABEL, ""))
