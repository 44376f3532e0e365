"""How the operator learns of QuorumBackups, and what an idle namespace costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from quorate_operator.backups import loop as backup_loop
from quorate_operator.backups.loop import LIST_S, ROUND_S, _BackupWorker
from quorate_operator.kube.api import Kube, path

from tests.unit.operator.fake_api import Store
from tests.unit.operator.test_quorum_backup import BUCKET, Lab

SOON_S = 10.0


@pytest.fixture
def lab(api: tuple[Store, Kube], monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setattr(backup_loop, "ROUND_S", 0.01)
    return Lab(*api)


@asynccontextmanager
async def running(lab: Lab) -> AsyncIterator[None]:
    task = asyncio.create_task(lab.loop.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(SOON_S):
        while not condition():  # noqa: ASYNC110 - threads and the server change it
            await asyncio.sleep(0.01)


async def test_an_idle_namespace_costs_no_requests(lab: Lab) -> None:
    await lab.loop.round()
    lab.store.log.clear()
    for _ in range(int(4 * LIST_S / ROUND_S)):
        lab.now += ROUND_S
        await lab.loop.round()
    assert 4 <= len(lab.store.log) <= 6, "in 20 minutes, only the lists"


async def test_a_watch_reports_what_is_new_changed_and_gone(lab: Lab) -> None:
    where = path("QuorumBackup", "lab", "b")
    async with running(lab):
        await until(lambda: lab.store.watchers)
        body = {
            "metadata": {"name": "b", "generation": 1},
            "spec": {"quorumName": "q", "destination": BUCKET},
        }
        lab.store.handle("POST", path("QuorumBackup", "lab"), body)
        await until(lambda: lab.found("Deployment"))
        await until(lambda: (lab.found("QuorumBackup", "b") or {}).get("status"))
        found = lab.store.objects[where]
        metadata = {**found["metadata"], "generation": 2}
        spec = {**found["spec"], "schedule": "@daily"}
        lab.store.handle("PUT", where, {**found, "metadata": metadata, "spec": spec})
        await until(lambda: lab.found("CronJob"))
        lab.store.remove(where)
        await until(lambda: not lab.loop._workers)
    lists = [each for each in lab.store.log if each == ("GET", path("QuorumBackup", "lab"))]
    assert len(lists) == 2, "the loop and its watch, at the start"


async def test_a_list_finds_what_the_watch_missed(lab: Lab) -> None:
    lab.want()
    await lab.loop.round()
    assert lab.found("Deployment") is not None
    lab.store.remove(path("QuorumBackup", "lab", "b"))
    lab.now += LIST_S
    await lab.loop.round()
    assert not lab.loop._workers


async def test_what_changes_during_a_list_is_not_lost(lab: Lab) -> None:
    lab.want()
    await lab.loop.round()
    old = lab.kube.list("QuorumBackup", "lab")

    def listed(*_: object) -> list[dict[str, object]]:
        lab.want(schedule="@daily")
        return old

    lab.now += LIST_S
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lab.kube, "list", listed)
        await lab.loop._list("lab")
    await lab.loop.round()
    assert lab.found("CronJob") is not None


def test_pauses_after_failures_grow_and_differ() -> None:
    workers = [_BackupWorker() for _ in range(20)]
    for expected_s in (4.0, 6.0, 9.0):
        for worker in workers:
            worker.rest(is_done=False)
        pauses = [worker.pause_s for worker in workers]
        assert all(0.75 * expected_s <= each <= expected_s for each in pauses)
        assert len(set(pauses)) > 1
    for _ in range(2000):
        workers[0].rest(is_done=False)
    assert workers[0].pause_s <= 120
