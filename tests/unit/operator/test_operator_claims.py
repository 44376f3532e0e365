"""Which of several operators tends a namespace, with the fake API server."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from quorate_operator.control import loop
from quorate_operator.control.claims import TIMES, NamespaceClaims
from quorate_operator.control.loop import UNCLAIMED_S, Operator, _Worker
from quorate_operator.kube.api import Kube
from quorate_operator.kube.lease import LeaderLease
from quorate_operator.main import LEASE_NAME

from tests.unit.operator.fake_api import Object, RefusedError, Store, created
from tests.unit.operator.stepping import Lab

TEAM = "lab"
"""The namespace of the Quorum."""


class Release:
    """An operator in a namespace of its own. It has won its election."""

    def __init__(self, kube: Kube, namespace: str, now: list[float]) -> None:
        clock = lambda: now[0]  # noqa: E731
        self.lease = LeaderLease(kube, namespace, LEASE_NAME, f"{namespace}-pod", clock=clock)
        self.lease.step()
        self.claims = NamespaceClaims(kube, self.lease, clock=clock)

    def tends(self, namespace: str) -> bool:
        """Whether it may act there, after a step."""
        self.claims.is_claimed(namespace)
        self.lease.step()
        self.claims.step()
        return self.claims.is_claimed(namespace) and self.claims.confirm(namespace)


@pytest.fixture
def now() -> list[float]:
    return [1_000.0]


def test_the_own_namespace_needs_no_other_lease(api: tuple[Store, Kube], now: list[float]) -> None:
    store, kube = api
    release = Release(kube, TEAM, now)
    before = len(store.log)
    assert release.claims.is_claimed(TEAM)
    assert len(store.log) == before
    assert release.claims.confirm(TEAM)


def test_who_comes_first_stays(api: tuple[Store, Kube], now: list[float]) -> None:
    _, kube = api
    one, two = Release(kube, "one", now), Release(kube, "two", now)
    assert one.tends(TEAM)
    assert not two.tends(TEAM)
    for _ in range(10):
        now[0] += TIMES.retry_s
        assert one.tends(TEAM)
        assert not two.tends(TEAM)
    assert two.tends("elsewhere")


@pytest.mark.parametrize("is_wide_first", [False, True])
def test_an_operator_of_the_namespace_and_one_of_the_cluster(
    api: tuple[Store, Kube], now: list[float], is_wide_first: bool
) -> None:
    _, kube = api
    if is_wide_first:
        wide = Release(kube, "ops", now)
        assert wide.tends(TEAM)
        own = Release(kube, TEAM, now)
        assert not own.lease.is_held
        wide.claims.release()
        own.lease.step()
        assert own.lease.is_held
    else:
        own = Release(kube, TEAM, now)
        wide = Release(kube, "ops", now)
    assert own.tends(TEAM)
    assert not wide.tends(TEAM)


def test_a_namespace_is_free_once_its_lease_has_run_out(
    api: tuple[Store, Kube], now: list[float]
) -> None:
    _, kube = api
    one, two = Release(kube, "one", now), Release(kube, "two", now)
    assert one.tends(TEAM)
    assert not two.tends(TEAM)
    now[0] += TIMES.renew_deadline_s
    assert not one.claims.is_claimed(TEAM), "it stops before another one may begin"
    assert not two.tends(TEAM)
    now[0] += TIMES.duration_s - TIMES.renew_deadline_s
    assert two.tends(TEAM)
    assert not one.tends(TEAM)
    two.claims.release()
    assert one.tends(TEAM), "and back, after it was lost"


def test_another_replica_of_the_release_goes_on_at_once(
    api: tuple[Store, Kube], now: list[float]
) -> None:
    _, kube = api
    first = Release(kube, "ops", now)
    assert first.tends(TEAM)
    first.lease.release()
    assert not first.claims.is_claimed(TEAM)
    assert Release(kube, "ops", now).tends(TEAM)


def test_nothing_is_claimed_without_the_election(api: tuple[Store, Kube], now: list[float]) -> None:
    _, kube = api
    release = Release(kube, "ops", now)
    release.lease.release()
    release.claims.is_claimed(TEAM)
    release.claims.step()
    assert kube.get("Lease", TEAM, LEASE_NAME) is None


def test_a_lease_that_may_not_be_read_is_logged(
    api: tuple[Store, Kube], now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    store, kube = api
    release = Release(kube, "ops", now)

    def reject(_method: str, where: str, _body: Object) -> None:
        if f"namespaces/{TEAM}" in where:
            raise RefusedError(403, "leases is forbidden")

    store.reject = reject
    caplog.set_level(logging.WARNING)
    release.claims.is_claimed(TEAM)
    release.claims.step()
    assert not release.claims.is_claimed(TEAM)
    assert f"the lease in the namespace {TEAM}: " in caplog.text
    assert "leases is forbidden" in caplog.text


def test_the_pod_of_an_earlier_holder_does_not_take_the_lease_with_it(
    api: tuple[Store, Kube], now: list[float]
) -> None:
    _, kube = api
    pod = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    clock = lambda: now[0]  # noqa: E731
    own = LeaderLease(kube, TEAM, LEASE_NAME, "p", clock=clock, owner=pod)
    own.step()
    wide = Release(kube, "ops", now)
    assert not wide.tends(TEAM)
    now[0] += 15
    assert wide.tends(TEAM)
    lease = kube.get("Lease", TEAM, LEASE_NAME)
    assert lease is not None
    assert not lease["metadata"].get("ownerReferences")


async def test_a_lost_namespace_ends_nothing_else(
    api: tuple[Store, Kube], now: list[float]
) -> None:
    _, kube = api
    wide = Release(kube, "ops", now)
    assert wide.tends(TEAM)
    lease = kube.get("Lease", TEAM, LEASE_NAME)
    assert lease is not None
    lease["spec"]["holderIdentity"] = "a tenant"
    kube.replace("Lease", TEAM, lease)
    assert wide.claims.is_claimed(TEAM), "by its own clock"
    assert not wide.claims.confirm(TEAM)
    assert not wide.claims.is_claimed(TEAM), "from then on"
    assert wide.lease.is_held
    now[0] += 15
    assert not wide.tends(TEAM), "a lease of 90 s"
    now[0] += TIMES.duration_s
    assert wide.tends(TEAM)


def test_a_namespace_that_is_gone_is_forgotten(
    api: tuple[Store, Kube], now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    store, kube = api
    release = Release(kube, "ops", now)

    def reject(method: str, where: str, _body: Object) -> None:
        if f"namespaces/{TEAM}" in where and method == "POST":
            raise RefusedError(404, f'namespaces "{TEAM}" not found')

    store.reject = reject
    release.claims.is_claimed(TEAM)
    release.claims.step()
    before = len(store.log)
    release.claims.step()
    assert len(store.log) == before
    assert TEAM not in caplog.text


async def test_a_quorum_of_another_operator_is_left_alone(
    api: tuple[Store, Kube], now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    store, kube = api
    created(kube)
    assert Release(kube, TEAM, now).lease.is_held
    wide = Release(kube, "ops", now)
    operator, worker = Operator(kube, wide.lease, claims=wide.claims), _Worker()

    async def step() -> tuple[Any, list[str]]:
        before = len(store.log)
        pause_s = await operator._reconcile((TEAM, "q"), worker)
        return pause_s, [method for method, _ in store.log[before:] if method != "GET"]

    assert await step() == (UNCLAIMED_S, [])
    wide.claims.step()
    before = len(store.log)
    assert await step() == (UNCLAIMED_S, [])
    assert len(store.log) == before, "it costs no requests"
    assert f"waiting for the lease {LEASE_NAME} in {TEAM}, which {TEAM}-pod holds" in caplog.text
    store.objects.clear()
    worker.is_changed = True  # a watch reports it
    assert (await step())[0] is None, "a Quorum that is gone is forgotten"


async def test_the_status_names_the_operator_that_acts(lab: Lab) -> None:
    """Another replica of the release, or a new process of it, does not write it again."""
    created(lab.kube, tls={"enabled": False})
    await lab.settle()
    assert lab.quorum["status"]["operator"] == "lab/operator"
    lab.lease.release()
    successor = LeaderLease(lab.kube, "lab", "operator", "two", clock=lambda: 0.0)
    successor.step()
    lab.operator, lab.worker = Operator(lab.kube, successor, ("lab",)), _Worker()
    assert "PATCH status" not in await lab.step()


async def test_what_the_operator_may_not_read_is_logged_once(
    lab: Lab, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    created(lab.kube, tls={"enabled": False})
    await lab.settle()
    text = 'pods is forbidden: User "operator" cannot list resource "pods"'

    def reject(method: str, where: str, _: Any) -> None:
        if where.endswith(("/pods", "/events", "/status")):
            raise RefusedError(403, text)

    lab.store.reject = reject
    lab.worker.is_changed = True
    monkeypatch.setattr(loop, "delay_s", lambda *_: loop.ACTED_S / 4)
    task = asyncio.create_task(lab.operator._work(("lab", "q"), lab.worker))
    async with asyncio.timeout(30):
        while lab.worker.unread.count < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    task.cancel()
    said = [record.getMessage() for record in caplog.records if text in record.getMessage()]
    assert f"lab/q: {text}" in said
    assert len(said) == len(set(said)), said
