"""Which operator tends the Quorums of a namespace: the one that holds the Lease there.

Operators of several releases may watch one namespace: one in the namespace itself, one of several
namespaces, one of the whole cluster. Each Quorum must have one of them, or two versions would write
its objects in turns.

Rules:
1. An operator acts in a namespace only while it holds the Lease `quorate-operator` of that
   namespace. In its own namespace, that is the lease with which the replicas of the release elect
   one. In another, all replicas of the release have the same name as holders, because that election
   excludes them from each other.
2. Who comes first stays. A lease is free once it is released, or has not been renewed for its
   duration.
3. The leases of other namespaces are renewed rarely, because there may be many. A release that ends
   without releasing them is replaced later for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from quorate.telemetry.limited_log import LimitedLog

from quorate_operator.kube.api import Kube, KubeError
from quorate_operator.kube.lease import LeaderLease, LeaseTimes

LOGGER = logging.getLogger(__name__)

TIMES = LeaseTimes(duration_s=90.0, renew_deadline_s=60.0, retry_s=25.0)
"""Of the leases of other namespaces."""
ELECTION_S = 1.0
"""The pause before the next look whether the election is won."""
LOG_INTERVAL_S = 300.0


class NamespaceClaims:
    """The namespaces in which this release may act.

    lease: that of the election, in the release's own namespace. clock: monotonic, seconds.
    """

    def __init__(
        self,
        kube: Kube,
        lease: LeaderLease,
        *,
        times: LeaseTimes = TIMES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube = kube
        self._lease = lease
        self.holder = f"{lease.namespace}/{lease.name}"
        """The name of this release: the same for all of its replicas, and after a restart."""
        self._times = times
        self._clock = clock
        self._lock = threading.Lock()
        self._claims: dict[str, LeaderLease] = {}
        self._wanted = threading.Event()
        self._is_stopped = False
        self._waits = LimitedLog(LOGGER, interval_s=LOG_INTERVAL_S)

    def is_claimed(self, namespace: str) -> bool:
        """Whether this release may act there, by its own clock. From now on, it wants to."""
        if namespace == self._lease.namespace:
            return self._lease.is_held
        with self._lock:
            claim = self._claims.get(namespace)
            if claim is None:
                self._claims[namespace] = self._claim(namespace)
                self._wanted.set()
                return False
        return claim.is_held and self._lease.is_held

    def states(self) -> dict[str, bool]:
        """The namespaces in which this release wants to act, and whether it may, by its clock."""
        with self._lock:
            claims = dict(self._claims)
        is_elected = self._lease.is_held
        found = {name: claim.is_held and is_elected for name, claim in claims.items()}
        return found | {self._lease.namespace: is_elected}

    def confirm(self, namespace: str) -> bool:
        """Whether this process may act there, by its own clock and by the API server. Blocks.

        Raises KubeError if the API server does not answer.
        """
        if not self._lease.confirm():
            return False
        if namespace == self._lease.namespace:
            return True
        with self._lock:
            claim = self._claims.get(namespace)
        if claim is None:
            return False
        if claim.confirm():
            return True
        self._replace(namespace, claim)
        return False

    def run(self) -> None:
        """Claim and renew until `release`. Call it on a thread."""
        while not self._is_stopped:
            try:
                self.step()
            except Exception:  # the other namespaces must not be lost for it
                LOGGER.exception("renewing the leases of namespaces failed: this is a bug")
            self._wanted.wait(self._times.retry_s if self._lease.is_held else ELECTION_S)
            self._wanted.clear()

    def step(self) -> None:
        """Try once to claim or renew each wanted namespace, while the election is won."""
        if not self._lease.is_held:
            return
        with self._lock:
            claims = dict(self._claims)
        for namespace, claim in claims.items():
            if self._is_stopped:
                return
            try:
                claim.step()
            except KubeError as error:
                if error.status == 404:  # the namespace is gone
                    with self._lock:
                        self._claims.pop(namespace, None)
                else:
                    text = "the lease in the namespace %s: %s"
                    self._waits.warning(namespace, text, namespace, error)
                continue
            if claim.lost.is_set():
                self._replace(namespace, claim)

    def release(self) -> None:
        """Let other operators have the namespaces at once."""
        self._is_stopped = True
        self._wanted.set()
        with self._lock:
            claims = list(self._claims.values())
        for claim in claims:
            claim.release()

    def _replace(self, namespace: str, claim: LeaderLease) -> None:
        """Try again to get a lease that is not held any more."""
        with self._lock:
            if self._claims.get(namespace) is claim:
                self._claims[namespace] = self._claim(namespace)

    def _claim(self, namespace: str) -> LeaderLease:
        return LeaderLease(
            self._kube,
            namespace,
            self._lease.name,
            self.holder,
            times=self._times,
            clock=self._clock,
        )
