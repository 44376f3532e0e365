"""A lock with fencing tokens while leaders are killed and holders are suspended.

Processes contend for one lock and use a resource, which this test is: it sees each use with its
token, and accepts it unless it has seen a larger one. In every round the leader is killed and
restarted, and every few rounds the holder is suspended for longer than the lock's time to live.
In the end, the log says who acquired the lock with which token.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from quorate.cli.local.demo import until
from quorate.cli.local.local_cluster import LocalCluster
from quorate.rpc.client.quorum_client import QuorumClient

from tests.kill.contender import KEY
from tests.kill.leaders import caught_up, leader_of
from tests.processes import start_module

KILLS = int(os.environ.get("QUORATE_LEADER_KILLS", "8"))
CONTENDERS = ("ann", "ben", "cleo", "dan")
TTL_S = 2.0
SUSPEND_EVERY = 3
SUSPEND_S = 4 * TTL_S
SUSPENDED_MIN = 4
"""From so many suspended holders on, one must have used the resource after its time was over."""
SLACK_S = 0.05
"""Between a line's time and the write of it."""


class Resource:
    """What the contenders did. holds: token to (name, first time, last time) of the uses that were
    accepted.
    """

    def __init__(self) -> None:
        self.largest = -1
        self.accepted = 0
        self.rejected: Counter[str] = Counter()
        self.holds: dict[int, tuple[str, float, float]] = {}
        self.violations: list[str] = []

    def take(self, name: str, event: str, token: int, time_s: float) -> None:
        if event == "use" and token < self.largest:
            self.rejected[name] += 1
            return
        if event == "use":
            self.accepted += 1
        self.largest = max(self.largest, token)
        owner, first_s, last_s = self.holds.get(token, (name, time_s, time_s))
        if owner != name:
            self.violations.append(f"token {token} belongs to {owner} and {name}")
        if event == "use" or last_s == first_s:
            self.holds[token] = owner, first_s, max(last_s, time_s)

    async def next_holder(self) -> str:
        """Wait until somebody acquires the lock; returns the name."""
        before = self.largest
        while self.largest == before:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        return self.holds[self.largest][0]

    def overlaps(self) -> list[str]:
        """Uses that the resource accepted while another contender had a larger token already."""
        ordered = sorted(self.holds.items())
        return [
            f"{name} used token {token} until {last_s:.3f}, {other} had {later} at {begin_s:.3f}"
            for (token, (name, _, last_s)), (later, (other, begin_s, _)) in pairwise(ordered)
            if last_s > begin_s + SLACK_S
        ]


class Contender:
    """One process, and the task that passes its lines to the resource."""

    def __init__(self, name: str, addresses: list[str], resource: Resource) -> None:
        self.name = name
        self._addresses = addresses
        self._resource = resource
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self, errors: Path) -> None:
        self._process = await start_module(
            "tests.kill.contender", self.name, TTL_S, *self._addresses, log_file=errors
        )
        self._reading = asyncio.create_task(self._read(self._process))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            event, token, time_s = json.loads(line)
            self._resource.take(self.name, event, token, time_s)

    async def suspend(self, seconds: float) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._process.send_signal(signal.SIGCONT)

    async def stop(self) -> None:
        if self._process is None or self._reading is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(15):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._reading


async def acquisitions(client: QuorumClient) -> dict[int, str]:
    """Tokens and owners, from the log: the records of the lock that do not renew it."""
    found: dict[int, str] = {}
    async for record in client.read(0, metadata=False):
        if record.key == KEY and record.value is not None:
            holder = json.loads(record.value)
            if holder["token"] is None:
                assert record.offset is not None
                found[record.offset] = holder["owner"]
    return found


@pytest.mark.timeout(120 + 30 * KILLS)
async def test_the_lock_has_one_holder_at_a_time(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "cluster")
    cluster.create([1, 2, 3])
    admin = QuorumClient(cluster.addresses)
    resource = Resource()
    contenders = [Contender(name, cluster.addresses, resource) for name in CONTENDERS]
    chance = random.Random(KILLS)
    suspended = 0
    try:
        cluster.start()
        await until(cluster, admin, lambda d: len(d.voters) == 3)
        await admin.finalize_application_version()
        for contender in contenders:
            await contender.start(tmp_path / f"{contender.name}.log")
        for kill in range(1, KILLS + 1):
            leader = await leader_of(cluster, admin)
            suspending = None
            if kill % SUSPEND_EVERY == 0:
                name = await resource.next_holder()
                holder = next(each for each in contenders if each.name == name)
                suspending = asyncio.create_task(holder.suspend(SUSPEND_S))
                suspended += 1
            await cluster.poll(chance.uniform(0.2, 1.0))
            cluster.kill(leader)
            await cluster.poll(1.0)
            cluster.start([leader])
            await caught_up(cluster, admin)
            if suspending is not None:
                await suspending
            print(
                f"kill {kill:2}: node {leader} led, {len(resource.holds)} tokens, "
                f"{resource.accepted} uses accepted, {resource.rejected.total()} rejected"
            )
    finally:
        for contender in contenders:
            await contender.stop()
        tokens = await acquisitions(admin)
        await admin.close()
        await asyncio.to_thread(cluster.stop)
    owners = {token: name for token, (name, _, _) in resource.holds.items()}
    assert resource.violations == []
    assert {token: tokens.get(token) for token in owners} == owners
    assert resource.overlaps() == []
    assert len(owners) > KILLS
    assert set(owners.values()) == set(CONTENDERS)
    assert suspended < SUSPENDED_MIN or resource.rejected, "no suspended holder used it too late"
    print(
        f"{len(owners)} tokens used by {len(CONTENDERS)} contenders, {len(tokens)} in the log, "
        f"{KILLS} leaders killed, {suspended} contenders suspended"
    )
