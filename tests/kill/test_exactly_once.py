"""kill -9 of the leader while appends are under way, again and again: the client repeats them, and
each is in the log exactly once, whether the appends go in frames or over gRPC.

Callers append unique values one after the other through one client. In every round, the leader is
killed while their appends are under way, and restarted. No append may fail. In the end, the whole
log is read, linearizably, and checked against what the callers were told.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

import pytest
from quorate.cli.local.demo import SNAPSHOTS, until
from quorate.cli.local.local_cluster import LocalCluster
from quorate.linearizability import HistoryChecker
from quorate.rpc.client.framed_call import FramedCall
from quorate.rpc.client.quorum_client import QuorumClient, Transport

from tests.kill.leaders import caught_up, leader_of

KILLS = int(os.environ.get("QUORATE_LEADER_KILLS", "25"))
UNDER_WAY_MIN = 4
"""How many appends each kill must interrupt: 100 of 25 kills."""
CALLERS = 12
TIMEOUT_MS = 120_000


class Callers:
    """Appends under way, and those that a kill of the leader has interrupted."""

    def __init__(self, client: QuorumClient, seed: int) -> None:
        self.history: HistoryChecker[str] = HistoryChecker()
        self.interrupted = 0
        self._client = client
        self._chance = random.Random(seed)
        self._killed_s = 0.0
        self._number = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Callers:
        self._tasks = [asyncio.create_task(self._call(each)) for each in range(CALLERS)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._number = -1
        await asyncio.gather(*self._tasks)

    def killed(self) -> None:
        self._killed_s = time.monotonic()

    async def _call(self, caller: int) -> None:
        while self._number >= 0:
            self._number += 1
            value = f"{self._number}"
            began_s = time.monotonic()
            self.history.begin(value)
            if caller % 3:
                offset = await self._client.append_value(value.encode())
            else:
                result = await self._client.append([(b"key", value.encode())])
                offset = result.base_offset
            self.history.acknowledged(value, offset)
            self.interrupted += began_s < self._killed_s
            await asyncio.sleep(self._chance.uniform(0, 0.01))


def appends_in_frames(client: QuorumClient) -> bool:
    """Whether the client's open stream has changed over from gRPC."""
    streams = [each for each in client._appender._connections.values() if each.is_open]
    return any(isinstance(each._call, FramedCall) for each in streams)


@pytest.mark.timeout(60 + 30 * KILLS)
@pytest.mark.parametrize("transport", ["auto", "grpc"])
async def test_each_append_is_in_the_log_once(tmp_path: Path, transport: Transport) -> None:
    cluster = LocalCluster(
        tmp_path / "cluster", controller_settings=SNAPSHOTS, kafka_listener=transport == "auto"
    )
    cluster.create([1, 2, 3])
    admin = QuorumClient(cluster.addresses)
    client = QuorumClient(cluster.addresses, request_timeout_ms=TIMEOUT_MS, transport=transport)
    chance = random.Random(KILLS)
    interrupted: list[int] = []
    try:
        cluster.start()
        await until(cluster, admin, lambda d: len(d.voters) == 3)
        await admin.finalize_application_version()
        async with Callers(client, KILLS) as callers:
            while len(interrupted) < KILLS:
                leader = await leader_of(cluster, admin)
                await cluster.poll(chance.uniform(0.2, 0.5))
                before = callers.interrupted
                cluster.kill(leader)
                callers.killed()
                await cluster.poll(1.0)
                cluster.start([leader])
                await caught_up(cluster, admin)
                interrupted.append(callers.interrupted - before)
                print(
                    f"kill {len(interrupted):2}: node {leader} led, {interrupted[-1]} appends "
                    f"under way, {callers.history.acknowledged_count} acknowledged"
                )
        if transport == "auto":
            await until(cluster, admin, lambda _: appends_in_frames(client))
        token = callers.history.begin_read()
        records = [record async for record in client.read(0, metadata=False)]
        committed = [(r.offset, (r.value or b"").decode()) for r in records if r.offset is not None]
        assert len(committed) == len(records), "every record has its offset"
        callers.history.read(token, committed[-1][0] + 1, committed)
        violations = callers.history.verify(committed)
        assert not violations, [str(violation) for violation in violations[:5]]
        assert len(committed) == callers.history.acknowledged_count == callers.history.begun_count
    finally:
        await client.close()
        await admin.close()
        await asyncio.to_thread(cluster.stop)
    print(f"{sum(interrupted)} appends over {KILLS} kills of the leader, each once in the log")
    assert sum(interrupted) >= UNDER_WAY_MIN * KILLS
