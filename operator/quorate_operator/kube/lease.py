"""Leader election: at most one operator holds a Lease of coordination.k8s.io.

A thread renews the lease every `retry_s`. An operator has lost leadership for good, and its process
must exit, if it could not renew the lease for `renew_deadline_s`, by its own clock, or if the
thread ended for another reason. Others take the lease after it has not changed for `duration_s`, by
their own clocks. That time is longer, so no two clocks are compared.

The lease is owned by the pod of its holder, so Kubernetes deletes it with the pod: an operator that
is uninstalled has no permission left to release it.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from quorate_operator.kube.api import Kube, KubeError
from quorate_operator.naming import Object

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The times of a lease, in seconds."""

    duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0


class LeaderLease:
    """The lease `name` in a namespace, which `identity` acquires and renews."""

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        identity: str,
        *,
        times: LeaseTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
        owner: Object | None = None,
        is_alive: Callable[[], bool] = lambda: True,
    ) -> None:
        """owner: the owner reference of this process's pod, if it runs in one. is_alive: whether
        the process can act; the lease is not renewed while it cannot.
        """
        self._kube = kube
        self.namespace = namespace
        self.name = name
        self.holder = ""
        """Who held it when it was last read."""
        self._awaited = ""
        self._identity = identity
        self._times = times or LeaseTimes()
        self._clock = clock
        self._owner = owner
        self._is_alive = is_alive
        self._answered_at: float | None = None
        self._renewed_at: float | None = None
        self._seen: tuple[str, float] = ("", 0.0)
        self._stop = threading.Event()
        self.lost = threading.Event()
        self.acquired = threading.Event()

    # --- state ------------------------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        """Whether it was renewed recently enough that no other operator can hold it."""
        renewed = self._renewed_at
        return (
            renewed is not None
            and not self.lost.is_set()
            and self._clock() - renewed < self._times.renew_deadline_s
        )

    @property
    def is_answered(self) -> bool:
        """Whether the API server answered the last attempt to acquire or renew it, lately."""
        answered = self._answered_at
        return answered is not None and self._clock() - answered < self._times.renew_deadline_s

    def confirm(self) -> bool:
        """Whether this process holds it, by its own clock and by the API server. Blocks.

        Raises KubeError if the API server does not answer: the lease may still be held.
        """
        if not self.is_held:
            return False
        found = self._kube.get("Lease", self.namespace, self.name)
        return (
            found is not None and (found.get("spec") or {}).get("holderIdentity") == self._identity
        )

    # --- renewal ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Acquire and renew until `release`, or until the lease is lost. Sets `lost` at the end."""
        try:
            self._renew()
        except Exception:  # without renewal, this process must stop acting
            LOGGER.exception("renewing the lease %s failed unexpectedly: this is a bug", self.name)
        finally:
            self.lost.set()

    def _renew(self) -> None:
        while not self._stop.is_set():
            try:
                if self._is_alive():
                    self.step()
                else:
                    LOGGER.error("the event loop hangs: the lease %s is not renewed", self.name)
            except KubeError as error:
                LOGGER.warning("the lease %s: %s", self.name, error)
            is_late = self._renewed_at is not None and not self.is_held
            if self._stop.is_set():
                return  # released, or taken by another operator: not late
            if is_late:
                LOGGER.error("the lease %s was not renewed in time", self.name)
                return
            self._stop.wait(self._times.retry_s)

    def step(self) -> None:
        """Try once to acquire or renew the lease, unless it was released. Raises KubeError."""
        if self._stop.is_set():
            return
        asked = self._clock()
        found = self._kube.get("Lease", self.namespace, self.name)
        self._answered_at = self._clock()
        if found is None:
            metadata = {"name": self.name, **self._owners()}
            body = {"metadata": metadata, "spec": self._spec({})}
            self._put(asked, body, is_new=True)
            return
        spec = found.get("spec") or {}
        holder = self.holder = spec.get("holderIdentity") or ""
        if holder != self._identity:
            if self._renewed_at is not None:
                LOGGER.error("the lease %s was taken by %s", self.name, holder)
                self.lost.set()
                self._stop.set()
                return
            if holder and not self._has_run_out(found):
                if holder != self._awaited:
                    LOGGER.info(
                        "waiting for the lease %s in %s, which %s holds",
                        self.name,
                        self.namespace,
                        holder,
                    )
                self._awaited = holder
                return
        found["spec"] = self._spec(spec)
        # The pod of an earlier holder must not take the lease with it.
        found["metadata"]["ownerReferences"] = [] if self._owner is None else [self._owner]
        self._put(asked, found, is_new=False)

    def _put(self, asked: float, body: Object, *, is_new: bool) -> None:
        try:
            if is_new:
                self._kube.create("Lease", self.namespace, body, "quorate-operator")
            else:
                self._kube.replace("Lease", self.namespace, body)
        except KubeError as error:
            if error.is_conflict:
                return  # another writer was first; the next attempt reads the holder
            raise
        self._renewed_at = asked
        if not self.acquired.is_set():
            LOGGER.info("acquired the lease %s as %s", self.name, self._identity)
            self.acquired.set()

    def _owners(self) -> Object:
        return {} if self._owner is None else {"ownerReferences": [self._owner]}

    def _has_run_out(self, found: Object) -> bool:
        """Whether the lease has not changed for its whole duration, by this process's clock."""
        version = found["metadata"]["resourceVersion"]
        if self._seen[0] != version:
            self._seen = (version, self._clock())
            return False
        duration_s = float(found["spec"].get("leaseDurationSeconds") or self._times.duration_s)
        return self._clock() - self._seen[1] >= duration_s

    def _spec(self, earlier: Object) -> Object:
        """The spec to write over `earlier`, {} if there is no lease yet."""
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        acquired, transitions = now, int(earlier.get("leaseTransitions") or 0)
        if earlier.get("holderIdentity") == self._identity:
            acquired = earlier.get("acquireTime") or now
        elif earlier:
            transitions += 1
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(self._times.duration_s),
            "renewTime": now,
            "acquireTime": acquired,
            "leaseTransitions": transitions,
        }

    def release(self) -> None:
        """Stop renewing, and clear the holder so that another operator can acquire it at once.

        `lost` is set first: this process must not act any more once another one can.
        """
        was_held = self.is_held
        self._stop.set()
        self.lost.set()
        if not was_held:
            return
        try:
            found = self._kube.get("Lease", self.namespace, self.name)
            if (
                found is not None
                and (found.get("spec") or {}).get("holderIdentity") == self._identity
            ):
                found["spec"]["holderIdentity"] = ""
                self._kube.replace("Lease", self.namespace, found)
                LOGGER.info("released the lease %s", self.name)
        except KubeError as error:
            LOGGER.warning("cannot release the lease %s: %s", self.name, error)
