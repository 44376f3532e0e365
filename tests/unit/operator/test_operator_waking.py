"""What the operator notices at once: changed Secrets, and pods that the API server rejects."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import Configuration
from quorate_operator import main, naming
from quorate_operator.control import loop, watcher
from quorate_operator.control.loop import Operator
from quorate_operator.control.watcher import WATCHED_SECRETS, KindWatcher
from quorate_operator.kube.api import Kube, path
from quorate_operator.kube.lease import LeaderLease
from quorate_operator.metrics import OperatorMetrics
from quorate_operator.observation.pod_creation import creation_errors
from quorate_operator.planning import plan as p

from tests.unit.operator.fake_api import Object, RefusedError, Store, created
from tests.unit.operator.fake_nodes import FakeNodes
from tests.unit.operator.stepping import KEY, Lab
from tests.unit.operator.test_kubectl_plugin import kubeconfig
from tests.unit.operator.test_operator_plan import HEALTHY, node, quorum

SECRETS = path("Secret", "lab")

# --- Secrets --------------------------------------------------------------------------------------


class Running:
    """An operator whose loop runs, with one Quorum."""

    def __init__(self, store: Store, kube: Kube, **how: Any) -> None:
        self.store, self.kube = store, kube
        lease = LeaderLease(kube, "lab", "operator", "one")
        lease.step()
        self.task = asyncio.create_task(Operator(kube, lease, **how).run())

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not is_so():  # noqa: ASYNC110 - threads change the store
                await asyncio.sleep(0.02)

    def has(self, name: str) -> bool:
        return f"{SECRETS}/{name}" in self.store.objects

    async def settle(self) -> None:
        """Until its objects exist and it reads nothing any more."""
        await self.until(lambda: path("StatefulSet", "lab", "q") in self.store.objects)
        reads = -1
        while reads != len(self.store.log):
            reads = len(self.store.log)
            await asyncio.sleep(1.0)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest.mark.parametrize("namespace", ["lab", ""])
async def test_a_secret_that_is_lost_or_damaged_is_issued_again_at_once(
    api: tuple[Store, Kube], namespace: str
) -> None:
    """Also by an operator of all namespaces, which may not list the Secrets of all."""
    store, kube = api

    def reject(method: str, asked: str, _: Object) -> None:
        if method == "GET" and asked == "/api/v1/secrets":
            raise RefusedError(403, "no Secrets of all namespaces")

    store.reject = reject
    await asyncio.to_thread(created, kube)
    running = Running(store, kube, namespaces=(namespace,) if namespace else ())
    try:
        await running.settle()
        store.remove(f"{SECRETS}/q-client-tls")
        await running.until(lambda: running.has("q-client-tls"))
        broken = {"data": {"node-1.crt": ""}}
        await asyncio.to_thread(kube.merge, "Secret", "lab", "q-node-tls", broken)
        node_tls = f"{SECRETS}/q-node-tls"
        await running.until(lambda: bool(store.objects[node_tls]["data"].get("node-1.crt")))
        assert ("GET", "/api/v1/secrets") not in store.log
    finally:
        await running.stop()


async def test_many_namespaces_are_listed_in_turn(
    api: tuple[Store, Kube], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The requests of an idle operator do not grow with the number of its namespaces."""
    store, kube = api
    monkeypatch.setattr(loop, "RESYNC_S", 0.2)
    names = [f"team-{number}" for number in range(12)]
    lists = [("GET", path("Quorum", name)) for name in names]
    running = Running(store, kube, namespaces=names)
    try:
        # Each was listed by its watch and by the operator, and is watched.
        await running.until(lambda: all(store.log.count(each) >= 3 for each in lists))
        before = len([each for each in store.log if each in lists])
        await asyncio.sleep(1.1)
        rounds = [each for each in store.log if each in lists][before:]
        assert 1 <= len(rounds) <= 6, "one list for each pause, whichever namespace"
        assert len(set(rounds)) == len(rounds)
    finally:
        await running.stop()


async def test_a_secret_that_becomes_usable_is_noticed_at_once(api: tuple[Store, Kube]) -> None:
    store, kube = api
    migration = {"zookeeperConnect": "zk:2181", "tls": {"secretName": "zk"}}
    spec = {"clusterId": "-osK_z-yS4WP9LBCencUOA", "firstNodeId": 3000, "migration": migration}
    body: Object = {"kind": "Secret", "metadata": {"name": "zk"}}
    await asyncio.to_thread(kube.create, "Secret", "lab", body, "test")
    await asyncio.to_thread(created, kube, **spec)
    running = Running(store, kube, namespaces=("lab",))

    def said() -> str:
        status = store.objects[path("Quorum", "lab", "q")].get("status") or {}
        return str(status.get("currentAction"))

    try:
        await running.until(lambda: "needs the label" in said())
        labels = {"metadata": {"labels": {naming.USABLE_LABEL: "q"}}}
        await asyncio.to_thread(kube.merge, "Secret", "lab", "zk", labels)
        await running.until(lambda: path("StatefulSet", "lab", "q") in store.objects)
    finally:
        await running.stop()


def test_secrets_are_watched_without_their_content(api: tuple[Store, Kube]) -> None:
    _, kube = api
    body: Object = {"kind": "Secret", "metadata": {"name": "s"}, "data": {"tls.key": "a2V5"}}
    kube.create("Secret", "lab", body, "test")
    (listed,) = kube.list("Secret", "lab")
    _, watched = next(iter(kube.watch("Secret", "lab")))
    for found in (listed, watched):
        assert found["metadata"]["name"] == "s"
        assert "data" not in found
    assert (kube.get("Secret", "lab", "s") or {})["data"] == {"tls.key": "a2V5"}


def test_a_watch_that_is_forbidden_is_reported_once_and_seldom_repeated(
    api: tuple[Store, Kube], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, kube = api
    pauses: list[float] = []
    monkeypatch.setattr(watcher.time, "sleep", pauses.append)

    def reject(*_: object) -> None:
        raise RefusedError(403, "secrets is forbidden")

    store.reject = reject
    follower = KindWatcher(kube, WATCHED_SECRETS[0], "lab", lambda *_: None)
    follower.follow_while(lambda: len(pauses) < watcher.FORBIDDEN_MAX + 2)
    *first, second, third, fourth = pauses
    assert len(first) == watcher.FORBIDDEN_MAX - 1, "a starting API server may forbid everything"
    assert max(first) <= watcher.PAUSE_MAX_S
    assert {second, third, fourth} == {watcher.FORBIDDEN_PAUSE_S}
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_an_operator_without_the_permission_watches_no_secrets(api: tuple[Store, Kube]) -> None:
    lease = LeaderLease(api[1], "lab", "operator", "one")
    operator = Operator(api[1], lease, ("lab",), watches_secrets=False)
    operator._watch_secrets("lab")
    assert not operator._secret_namespaces


# --- rejected pods --------------------------------------------------------------------------------

QUOTA = (
    'pods "q-2" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2'
)
WEBHOOK = 'admission webhook "policy.example" denied the request: no'


def event(name: str, error: str, at: int = 0, uid: str = "set", claim: str = "") -> Object:
    """What the StatefulSet controller records. error: "" for a pod that was created."""
    what = f"create {f'Claim {claim} for ' if claim else ''}Pod {name} in StatefulSet q "
    return {
        "metadata": {"name": f"{name}.{at}"},
        "involvedObject": {"kind": "StatefulSet", "name": "q", "uid": uid},
        "reason": "FailedCreate" if error else "SuccessfulCreate",
        "message": what + (f"failed error: {error}" if error else "successful"),
        "lastTimestamp": f"2026-01-01T00:00:{at:02}Z",
    }


def test_the_last_attempt_to_create_a_pod_counts() -> None:
    events = [
        event("q-0", QUOTA, 1),
        event("q-0", "", 2),
        event("q-1", "", 1),
        event("q-1", "earlier", 2),
        event("q-1", WEBHOOK, 3),
        event("q-2", QUOTA, 3, uid="another set of this name"),
        event("q-3", "no claims here", 3, claim="data-q-3"),
        {"involvedObject": {"uid": "set"}, "message": "delete Pod q-4 in StatefulSet q failed"},
        {"involvedObject": {"uid": "set"}},
    ]
    expected = {"q-1": WEBHOOK, "q-3": "no claims here"}
    assert creation_errors(events, "set") == expected
    assert creation_errors(reversed(events), "set") == expected


def test_a_rejected_pod_is_reported_in_every_phase() -> None:
    rejected = (p.RejectedPod(2, QUOTA),)
    two = replace(quorum(node(0), node(1), size=3), rejected_pods=rejected)
    silent = replace(two, view=None)
    fresh = p.Observed(ids=HEALTHY.ids, size=3, rejected_pods=(p.RejectedPod(0, WEBHOOK),))
    for observed, text in ((two, QUOTA), (silent, QUOTA), (fresh, WEBHOOK)):
        planned = p.plan(p.Desired(3), observed)
        said = [each.text for each in planned.refusals if each.reason is p.Reason.POD_FAILING]
        assert len(said) == 1
        assert said[0].endswith(f"its pod cannot be created: {text}")
    assert not any("it has no pod" in each.text for each in p.plan(p.Desired(3), two).refusals)


async def test_the_message_about_a_rejected_pod_is_in_the_conditions_and_one_event(
    lab: Lab, nodes: FakeNodes
) -> None:
    lab.store.remove(path("Pod", "lab", "q-2"))
    nodes.silent.add(2)
    uid = lab.store.objects[path("StatefulSet", "lab", "q")]["metadata"]["uid"]
    lab.store.handle("POST", path("Event", "lab"), event("q-2", QUOTA, 1, uid))
    lab.worker.is_changed = True
    for _ in range(4):
        await lab.step()
    for name in ("Ready", "Progressing", "Degraded"):
        assert lab.condition(name)[1] == "PodFailing"
        assert f"node 2: its pod cannot be created: {QUOTA}" in lab.condition(name)[2]
    (said,) = lab.events("PodFailing")
    assert (said["type"], said["count"]) == ("Warning", 1)
    assert QUOTA in said["message"]
    # While it lasts, the API server is not asked again.
    began = len(lab.store.log)
    for _ in range(3):
        await lab.step()
    assert lab.requests(began) == 0
    lab.store.handle("POST", path("Event", "lab"), event("q-2", WEBHOOK, 2, uid))
    found = lab.store.objects[f"{path('Event', 'lab')}/q-2.2"]
    lab.operator._workers[KEY] = lab.worker
    lab.worker.task = asyncio.create_task(asyncio.sleep(60))
    lab.operator._changed("Event", "q", found)
    assert lab.worker.is_changed
    lab.worker.task.cancel()
    await lab.step()
    assert WEBHOOK in lab.condition("Degraded")[2]


async def test_events_about_other_stateful_sets_wake_nobody(lab: Lab) -> None:
    lab.operator._changed("Event", "web", {"metadata": {"namespace": "lab"}})
    assert not lab.operator._workers
    of = next(each for each in watcher.WATCHED if each.kind == "Event").quorum_of
    assert of(event("q-2", QUOTA)) == "q"
    assert of({"metadata": {}}) == ""
    assert of({**event("q-2", QUOTA), "involvedObject": {"kind": "Job", "name": "q"}}) == ""


async def test_an_operator_that_may_not_list_events_goes_on(lab: Lab, nodes: FakeNodes) -> None:
    def reject(method: str, asked: str, _: Object) -> None:
        if method == "GET" and asked.endswith("/events"):
            raise RefusedError(403, "events is forbidden")

    lab.store.reject = reject
    lab.store.remove(path("Pod", "lab", "q-2"))
    nodes.silent.add(2)
    lab.worker.is_changed = True
    await lab.step()
    assert "it has no pod" in lab.condition("Degraded")[2]


def test_connections_of_many_watches_are_kept(
    api: tuple[Store, Kube],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """More requests at once than the client keeps connections by default."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(Configuration, "_default", None)  # restored afterwards
    monkeypatch.setattr(
        "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION",
        kubeconfig(tmp_path, api[1]._api.configuration.host),
    )
    kube = main.connect(OperatorMetrics())
    count = 4 * Configuration().connection_pool_maxsize
    together = threading.Barrier(count)

    def listed(_: int) -> None:
        together.wait(20)
        kube.list("Quorum", "lab")

    with ThreadPoolExecutor(count) as threads:
        list(threads.map(listed, range(count)))
    assert "pool is full" not in caplog.text
