"""An operator that tests step by hand, with the fake API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quorate_operator.control.loop import Operator, _Worker
from quorate_operator.kube.api import Kube, KubeError
from quorate_operator.kube.lease import LeaderLease
from quorate_operator.objects import certificates

from tests.unit.operator.fake_api import Object, RefusedError, Store
from tests.unit.operator.fake_nodes import FakeNodes

KEY = ("lab", "q")


class Lab:
    """An operator that is stepped by hand, with an API server."""

    def __init__(self, store: Store, kube: Kube) -> None:
        self.store, self.kube = store, kube
        self.lease = LeaderLease(kube, "lab", "operator", "one", clock=lambda: 0.0)
        self.lease.step()
        self.operator, self.worker = Operator(kube, self.lease, ("lab",)), _Worker()
        self.now = 100.0
        self.worker.backoff.clock = lambda: self.now

    def use(self, nodes: FakeNodes) -> None:
        self.operator = Operator(self.kube, self.lease, ("lab",), locate=nodes.locate)

    async def step(self) -> list[str]:
        """Reconcile once, as the loop does. Return the requests that change something."""
        before = len(self.store.log)
        try:
            await self.operator._reconcile(KEY, self.worker)
        except (KubeError, certificates.CertificateError) as error:
            await self.operator._not_observed(self.worker, error)
        return [
            f"{method} {path.rpartition('/')[2]}"
            for method, path in self.store.log[before:]
            if method != "GET"
        ]

    async def settle(self) -> None:
        for _ in range(12):
            await self.step()
            if self.worker.planned.action is None:
                return
        raise AssertionError(self.worker.planned)

    def patch(self, **spec: Any) -> None:
        """Change the spec, as the API server does: with another generation."""
        found = self.quorum
        generation = int(found["metadata"]["generation"]) + 1
        patch = {"metadata": {"generation": generation}, "spec": spec}
        self.kube.merge("Quorum", "lab", "q", patch)
        self.worker.is_changed = True

    @property
    def quorum(self) -> Object:
        found = self.kube.get("Quorum", "lab", "q")
        assert found is not None
        return found

    def condition(self, name: str) -> tuple[str, str, str]:
        conditions = self.quorum["status"]["conditions"]
        found = next(each for each in conditions if each["type"] == name)
        return found["status"], found["reason"], found["message"]

    def events(self, reason: str = "") -> list[Object]:
        found = self.kube.list("Event", "lab")
        return [event for event in found if reason in ("", event["reason"])]

    def requests(self, began: int) -> int:
        return len(self.store.log) - began


def rejecting(*rules: tuple[str, int, str]) -> Callable[[str, str, Object], None]:
    """Reject changes of objects. rules: the end of the path, the status and the message."""

    def reject(method: str, path: str, body: Object) -> None:
        name = str((body.get("metadata") or {}).get("name", ""))
        for end, code, text in rules:
            if method in ("POST", "PATCH", "DELETE") and f"{path}/{name}".find(end) >= 0:
                raise RefusedError(code, text)

    return reject
