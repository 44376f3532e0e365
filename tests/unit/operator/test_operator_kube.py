"""The API's client, the lease, and what the operator does before the first pod answers."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import replace

import pytest
from cryptography.x509 import load_pem_x509_certificate
from quorate_operator import naming
from quorate_operator.control.act import ActionFailedError, Actor, LeaseLostError
from quorate_operator.control.loop import Operator
from quorate_operator.kube.api import Kube, KubeError
from quorate_operator.kube.lease import LeaderLease, LeaseTimes
from quorate_operator.objects import manifests
from quorate_operator.objects.authority import secret_files
from quorate_operator.objects.certificates import Pair, is_due
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.observation.observe import Observer
from quorate_operator.planning import plan as p

from tests.unit.operator.fake_api import Object, Store, api_server, created


def actor(kube: Kube, *, is_leading: bool = True) -> Actor:
    async def confirm() -> bool:
        return is_leading

    return Actor(kube, confirm)


# --- the client -----------------------------------------------------------------------------------


def test_errors_say_what_the_server_said(api: tuple[Store, Kube]) -> None:
    store, kube = api
    assert kube.get("ConfigMap", "lab", "x") is None
    body: Object = {"kind": "ConfigMap", "metadata": {"name": "x"}}
    made = kube.create("ConfigMap", "lab", body, "test")
    with pytest.raises(KubeError, match="exists already") as conflict:
        kube.create("ConfigMap", "lab", body, "test")
    assert conflict.value.is_conflict
    with pytest.raises(KubeError, match="UID") as other:
        kube.delete("ConfigMap", "lab", "x", "another")
    assert other.value.is_conflict
    kube.delete("ConfigMap", "lab", "x", made["metadata"]["uid"])
    assert kube.list("ConfigMap", "lab") == []
    store.fail = 1
    with pytest.raises(KubeError, match="not now") as busy:
        kube.list("ConfigMap")
    assert busy.value.may_pass


def test_a_server_that_is_not_there_may_come_back() -> None:
    with api_server() as (_, kube):
        pass
    with pytest.raises(KubeError) as gone:
        kube.list("Pod")
    assert gone.value.status == 0
    assert gone.value.may_pass


@pytest.mark.parametrize("text", ["<html>a page of a proxy</html>", "[]"])
@pytest.mark.parametrize("fail", [0, 1])
def test_a_response_that_is_not_a_json_object_is_an_error(
    api: tuple[Store, Kube], text: str, fail: int
) -> None:
    """An error has its own status; a success without an object counts as no answer."""
    store, kube = api
    store.text, store.fail = text, fail
    with pytest.raises(KubeError) as unreadable:
        kube.list("Pod")
    assert unreadable.value.status == (503 if fail else 0)


def test_a_watch_event_that_is_not_a_json_object_is_an_error(api: tuple[Store, Kube]) -> None:
    store, kube = api
    ended: list[BaseException] = []

    def watch() -> None:
        try:
            list(kube.watch("ConfigMap", "lab"))
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    for _ in range(500):
        if store.watchers:
            break
        threading.Event().wait(0.01)
    body: Object = {"kind": "ConfigMap", "metadata": {"name": "x"}}
    store.text = "<html>a page of a proxy</html>"
    with suppress(KubeError):
        kube.create("ConfigMap", "lab", body, "test")
    thread.join(5)
    assert [type(error) for error in ended] == [KubeError]


def test_a_watch_yields_what_changes(api: tuple[Store, Kube]) -> None:
    store, kube = api
    seen: list[str] = []
    first = threading.Event()

    def watch() -> None:
        with suppress(KubeError):
            for _, found in kube.watch("ConfigMap", "lab"):
                seen.append(found["metadata"]["name"])
                first.set()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    for _ in range(500):
        if store.watchers:
            break
        threading.Event().wait(0.01)
    kube.create("ConfigMap", "lab", {"kind": "ConfigMap", "metadata": {"name": "x"}}, "test")
    assert first.wait(5)
    assert seen == ["x"]


# --- the lease ------------------------------------------------------------------------------------


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def lease(kube: Kube, identity: str, time: Time) -> LeaderLease:
    return LeaderLease(kube, "lab", "operator", identity, times=LeaseTimes(15, 10, 2), clock=time)


def test_one_holds_the_lease_and_another_takes_it_when_it_runs_out(
    api: tuple[Store, Kube],
) -> None:
    _, kube = api
    time = Time()
    one, two = lease(kube, "one", time), lease(kube, "two", time)
    one.step()
    two.step()
    assert one.confirm()
    assert not two.confirm()
    time.now += 9
    one.step()
    time.now += 9
    two.step()  # it was renewed: the wait begins again
    assert one.confirm()
    time.now += 14
    two.step()
    assert not two.is_held
    assert not one.is_held  # by its own clock, before anybody else can have it
    time.now += 2
    two.step()
    assert two.confirm()
    one.step()
    assert one.lost.is_set()
    assert not one.confirm()


def test_a_released_lease_is_taken_at_once(api: tuple[Store, Kube]) -> None:
    _, kube = api
    time = Time()
    one, two = lease(kube, "one", time), lease(kube, "two", time)
    one.step()
    one.release()
    two.step()
    assert two.confirm()
    assert one.lost.is_set()
    assert not one.is_held


LEASE = "/apis/coordination.k8s.io/v1/namespaces/lab/leases/operator"


@pytest.mark.parametrize("is_holder", [True, False])
def test_a_renewal_that_fails_unexpectedly_loses_the_lease(
    api: tuple[Store, Kube], caplog: pytest.LogCaptureFixture, is_holder: bool
) -> None:
    """The thread must not end silently while the process goes on acting."""
    store, kube = api
    time = Time()
    one = lease(kube, "one", time)
    one.step()
    if not is_holder:
        one.release()
        one = lease(kube, "two", time)
    store.objects[LEASE]["spec"]["leaseTransitions"] = "not a number"
    caplog.clear()
    one.run()
    assert one.lost.is_set()
    assert not one.confirm()
    assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_an_operator_whose_lease_is_lost_before_it_is_acquired_ends(
    api: tuple[Store, Kube],
) -> None:
    """Its supervisor restarts it; otherwise it would wait forever."""
    _, kube = api
    never = LeaderLease(kube, "lab", "operator", "one")
    never.lost.set()
    with pytest.raises(LeaseLostError):
        async with asyncio.timeout(10):
            await Operator(kube, never, ("lab",)).run()


def test_the_acquire_time_is_that_of_the_holders_first_write(api: tuple[Store, Kube]) -> None:
    """As Kubernetes defines it: only renewTime changes with each renewal."""
    store, kube = api
    time = Time()
    one, two = lease(kube, "one", time), lease(kube, "two", time)
    one.step()
    acquired = "2026-01-01T00:00:00.000000Z"
    store.objects[LEASE]["spec"] |= {"acquireTime": acquired, "renewTime": acquired}
    one.step()
    spec = store.objects[LEASE]["spec"]
    assert spec["acquireTime"] == acquired
    assert spec["renewTime"] != acquired
    assert spec["leaseTransitions"] == 0
    one.release()
    two.step()
    spec = store.objects[LEASE]["spec"]
    assert spec["acquireTime"] == spec["renewTime"] != acquired
    assert spec["leaseTransitions"] == 1


def test_the_lease_is_asked_for_before_each_mutation(api: tuple[Store, Kube]) -> None:
    store, kube = api
    quorum = created(kube)
    before = dict(store.objects)

    async def act() -> None:
        seen = await Observer(kube).observe(quorum, None)
        await actor(kube, is_leading=False).act(p.CreateStatefulSet(3), quorum, seen, None)

    with pytest.raises(LeaseLostError):
        asyncio.run(act())
    assert store.objects == before


# --- acting ---------------------------------------------------------------------------------------


async def step(kube: Kube, quorum: QuorumResource) -> p.OperatorPlan:
    seen = await Observer(kube).observe(quorum, None)
    planned = p.plan(quorum.desired, seen.observed)
    if planned.action is not None:
        await actor(kube).act(planned.action, quorum, seen, None)
    return planned


async def test_the_objects_come_first_and_each_once(api: tuple[Store, Kube]) -> None:
    store, kube = api
    quorum = created(kube)
    first = await step(kube, quorum)
    assert isinstance(first.action, p.ApplyObjects)
    assert set(first.action.names) == {
        "Secret/q-node-tls",
        "Secret/q-client-tls",
        "Service/q-controllers",
        *(f"Service/q-{ordinal}" for ordinal in range(naming.NODES_MAX)),
        "PodDisruptionBudget/q",
        "NetworkPolicy/q",
    }
    for name in ("q-node-tls", "q-client-tls", "q-ca"):
        found = store.objects[f"/api/v1/namespaces/lab/secrets/{name}"]
        assert "q" in found["metadata"]["ownerReferences"][0]["name"]
    authority = secret_files(store.objects["/api/v1/namespaces/lab/secrets/q-ca"])
    pair = Pair(authority["tls.crt"], authority["tls.key"])
    nodes = secret_files(store.objects["/api/v1/namespaces/lab/secrets/q-node-tls"])
    assert not is_due(pair, nodes["node-8.crt"])
    second = await step(kube, quorum)
    assert second.action == p.CreateStatefulSet(3)
    third = await step(kube, quorum)
    assert third.action is None
    stateful_set = kube.get("StatefulSet", "lab", "q")
    assert stateful_set is not None
    assert stateful_set["spec"]["replicas"] == 3


async def test_a_named_client_has_a_certificate_of_its_own(api: tuple[Store, Kube]) -> None:
    store, kube = api
    quorum = created(kube, clients=[{"name": "app"}])
    await step(kube, quorum)
    for name, called in (("q-client-app-tls", "client-app"), ("q-client-tls", "client")):
        files = secret_files(store.objects[f"/api/v1/namespaces/lab/secrets/{name}"])
        found = load_pem_x509_certificate(files["tls.crt"].encode())
        assert found.subject.rfc4514_string() == f"CN={called}"


async def test_a_change_of_the_template_keeps_the_size(api: tuple[Store, Kube]) -> None:
    _, kube = api
    quorum = created(kube, tls={"enabled": False})
    while (await step(kube, quorum)).action is not None:
        pass
    kube.merge("StatefulSet", "lab", "q", {"spec": {"replicas": 5}})
    newer = replace(quorum, spec={**quorum.spec, "image": "quorate:2"})
    planned = await step(kube, newer)
    assert planned.action == p.ApplyObjects(("StatefulSet/q",))
    found = kube.get("StatefulSet", "lab", "q")
    assert found is not None
    assert found["spec"]["replicas"] == 5
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "quorate:2"


async def test_what_is_no_longer_wanted_goes(api: tuple[Store, Kube]) -> None:
    _, kube = api
    quorum = created(kube, tls={"enabled": False})
    while (await step(kube, quorum)).action is not None:
        pass
    open_to_all = replace(quorum, spec={**quorum.spec, "networkPolicy": {"enabled": False}})
    planned = await step(kube, open_to_all)
    assert planned.action == p.ApplyObjects(("NetworkPolicy/q",))
    assert kube.get("NetworkPolicy", "lab", "q") is None


async def test_records_are_never_overwritten(api: tuple[Store, Kube]) -> None:
    _, kube = api
    quorum = created(kube)
    kube.create("ConfigMap", "lab", manifests.record(quorum, "first", adopted=False), "test")
    seen = await Observer(kube).observe(quorum, None)
    await actor(kube).act(p.CreateRecord(), quorum, seen, None)
    found = kube.get("ConfigMap", "lab", naming.record("q"))
    assert found is not None
    assert found["data"]["clusterId"] == "first"
    assert found["immutable"] is True


async def test_a_resize_rests_on_what_was_seen(api: tuple[Store, Kube]) -> None:
    _, kube = api
    quorum = created(kube, tls={"enabled": False})
    while (await step(kube, quorum)).action is not None:
        pass
    seen = await Observer(kube).observe(quorum, None)
    kube.merge("StatefulSet", "lab", "q", {"spec": {"replicas": 4}})
    with pytest.raises(ActionFailedError, match="modified"):
        await actor(kube).act(p.Resize(5, 3), quorum, seen, None)


async def test_a_busy_server_is_asked_again(api: tuple[Store, Kube]) -> None:
    store, kube = api
    quorum = created(kube, tls={"enabled": False})
    seen = await Observer(kube).observe(quorum, None)
    store.fail = 2
    await actor(kube).act(p.CreateStatefulSet(3), quorum, seen, None)
    assert kube.get("StatefulSet", "lab", "q") is not None


# --- the loop -------------------------------------------------------------------------------------


async def test_the_loop_makes_the_objects_and_says_what_it_waits_for(
    api: tuple[Store, Kube],
) -> None:
    """Found by listing, woken by its own changes, ended by the loss of its lease."""
    _, kube = api
    created(kube, tls={"enabled": False})
    held = LeaderLease(kube, "lab", "operator", "one")
    held.step()
    operator = asyncio.create_task(Operator(kube, held, ("lab",)).run())

    def reason() -> str:
        found = kube.get("Quorum", "lab", "q") or {}
        conditions = (found.get("status") or {}).get("conditions") or ()
        return next((c["reason"] for c in conditions if c["type"] == "Progressing"), "")

    async with asyncio.timeout(30):
        while await asyncio.to_thread(reason) != p.Reason.WAITING_FOR_PODS:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    events = await asyncio.to_thread(kube.list, "Event", "lab")
    assert events
    held.lost.set()
    with pytest.raises(LeaseLostError):
        async with asyncio.timeout(10):
            await operator
