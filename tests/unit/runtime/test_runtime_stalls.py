"""Leaders whose disk or event loop stands still for longer than the fetch timeout."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import pytest
from quorate.common.error_codes import ErrorCode
from quorate.raft.outputs import RoleName

from tests.unit.runtime.replicas import alone, leader_of, trio, until

TIMERS = {"fetch_timeout_ms": 600, "election_timeout_ms": 400}
BLOCKED = re.compile(r"the event loop was blocked for (\d+\.\d) s")
LEADING = (RoleName.LEADER, RoleName.CANDIDATE, RoleName.PROSPECTIVE)


async def test_a_leader_whose_disk_is_silent_resigns_and_stands_again_only_when_it_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # The other two commit without it: a busy machine must not cost their leader its leadership.
    fetch_timeout_ms = 1_500
    timers = {"fetch_timeout_ms": fetch_timeout_ms, "election_timeout_ms": 700}
    async with trio(tmp_path, **timers) as replicas:
        leader = await leader_of(replicas)
        leader.disk.go.clear()
        appending = asyncio.create_task(leader.append())
        await until("it resigns", lambda: not leader.node.is_leader)
        reasons = [change.reason for change in leader.roles]
        assert any("the disk has completed no sync for" in reason for reason in reasons), reasons
        assert await appending is not None
        roles = len(leader.roles)
        other = await leader_of(replicas, but=leader.id)
        await other.commit()
        other.network.cut.update(each.id for each in replicas.values() if each is not leader)
        # Nobody else can be heard for longer than two fetch timeouts, and still it does not stand.
        await asyncio.sleep(2.2 * fetch_timeout_ms / 1000)
        assert not [c for c in leader.roles[roles:] if c.role in LEADING]
        other.network.cut.clear()
        leader.disk.go.set()
        current = await leader_of(replicas)
        final = await current.commit()
        await until("it follows", lambda: leader.node.high_watermark > final)
        assert caplog.text.count("this replica does not lead until the disk responds") >= 1
        assert "the disk completed a sync after" in caplog.text
        assert not any(each.failures for each in replicas.values())


async def test_a_disk_that_is_slow_but_answers_in_time_costs_no_leadership(tmp_path: Path) -> None:
    async with trio(tmp_path, fetch_timeout_ms=5_000) as replicas:
        leader = await leader_of(replicas)
        for _ in range(3):
            leader.disk.go.clear()
            appending = asyncio.create_task(leader.append())
            await asyncio.sleep(0.4)
            leader.disk.go.set()
            await appending
        assert leader.node.is_leader


async def test_an_only_voter_keeps_leading_on_a_silent_disk(tmp_path: Path) -> None:
    async with alone(tmp_path, **TIMERS) as replica:
        replica.disk.go.clear()
        appending = asyncio.create_task(replica.append())
        await asyncio.sleep(1.5)
        assert replica.node.is_leader
        assert not appending.done()
        replica.disk.go.set()
        await appending


async def test_a_leader_whose_loop_stood_still_resigns_before_it_takes_any_input(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with trio(tmp_path, fetch_timeout_ms=1_000) as replicas:
        leader = await leader_of(replicas)
        epoch, end = leader.node.epoch, leader.node.core.log.end_offset
        appending = asyncio.create_task(leader.append())
        await asyncio.sleep(0)
        time.sleep(1.6)  # noqa: ASYNC251 - the loop stands still
        # What was handed over before the pause is taken after it, by a replica that has resigned.
        assert await appending is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert leader.node.core.log.end_offset == end
        reasons = [change.reason for change in leader.roles]
        blocked = [float(each) for reason in reasons for each in BLOCKED.findall(reason)]
        # A sleep takes longer on a busy machine, never shorter.
        assert any(seconds >= 1.6 for seconds in blocked), reasons
        assert "the event loop was blocked for" in caplog.text
        current = await leader_of(replicas)
        assert current.node.epoch > epoch
        await current.commit()


async def test_append_now_notices_a_pause_before_it_builds_anything(tmp_path: Path) -> None:
    async with trio(tmp_path, fetch_timeout_ms=1_000) as replicas:
        leader = await leader_of(replicas)
        built: list[int] = []

        def build(offset: int) -> tuple[int, bytearray] | None:
            built.append(offset)
            return None

        time.sleep(1.6)  # noqa: ASYNC251 - the loop stands still
        future = leader.driver.append_now(build, 1_000)
        assert future is not None
        assert await future is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert built == []


async def test_a_short_pause_is_none(tmp_path: Path) -> None:
    async with trio(tmp_path, fetch_timeout_ms=5_000) as replicas:
        leader = await leader_of(replicas)
        time.sleep(1.0)  # noqa: ASYNC251 - the loop stands still
        await leader.commit()
        assert leader.node.is_leader


async def test_an_only_voter_keeps_leading_after_a_pause(tmp_path: Path) -> None:
    async with alone(tmp_path, **TIMERS) as replica:
        time.sleep(1.5)  # noqa: ASYNC251 - the loop stands still
        await replica.commit()
        assert replica.node.is_leader


async def test_a_disk_with_nothing_to_sync_is_not_silent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with trio(tmp_path, fetch_timeout_ms=1_500) as replicas:
        leader = await leader_of(replicas)
        await leader.commit()
        await asyncio.sleep(2.5)
        assert "the disk has completed no sync" not in caplog.text
