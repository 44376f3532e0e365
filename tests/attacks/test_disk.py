"""Disks that fail while real controllers read old records and write checkpoints."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from pathlib import Path

import pytest

from tests.attacks.conftest import MakeQuorum
from tests.integration.support import PARTITION
from tests.soak import damage
from tests.soak.load import Load
from tests.soak.nodes import DISK_FULL, READ_FAILS, FaultyNode

pytestmark = pytest.mark.timeout(180)

SOME = 100
BULK_BYTES_PER_S = 400_000
CLOCK_JUMPS_S = (3600, -7200, 86_400)
KEPT = {"metadata.max.retention.bytes": -1, "metadata.max.retention.ms": -1}


def assert_ended_with_one_line(node: FaultyNode, status: int, said: str) -> None:
    """The process ended with one line that says what failed."""
    log = node.recently()
    assert status == 1, log
    assert "Traceback" not in log, log
    assert re.search(rf"^quorate: error: .*{said}", log, re.MULTILINE), log


async def verify(load: Load) -> None:
    violations = await load.verify()
    assert not violations, [str(violation) for violation in violations[:5]]


async def test_a_leader_that_cannot_read_its_log_ends_and_loses_nothing(
    make_quorum: MakeQuorum, library: Path
) -> None:
    quorum = await make_quorum(library=library, **KEPT)
    load = Load(quorum.addresses)
    await load.start()
    await load.progress(SOME)
    # Old records leave the caches.
    for node in quorum.nodes.values():
        node.kill()
        node.start()
    await quorum.whole()
    await load.progress(SOME)
    leader, epoch = await quorum.leader()
    fresh = next(node for node in quorum.nodes.values() if node is not leader)
    leader.faults.begin(READ_FAILS)
    await load.progress(SOME)
    # A replica without any records has the leader read the oldest.
    fresh.kill()
    shutil.rmtree(fresh.data)
    quorum.format(fresh, "--no-initial-controllers")
    fresh.start()
    assert_ended_with_one_line(leader, await leader.ended(), "Input/output error")
    assert leader.faults.count("read") > 0
    leader.start()
    assert_ended_with_one_line(leader, await leader.ended(), "Input/output error")
    leader.faults.end(READ_FAILS)
    leader.start()
    await quorum.leader(epoch)
    await load.progress(SOME)
    await verify(load)


async def test_a_disk_fills_up_while_checkpoints_are_written_and_the_clock_jumps(
    make_quorum: MakeQuorum, library: Path
) -> None:
    between = {"metadata.log.max.record.bytes.between.snapshots": 1 << 18}
    quorum = await make_quorum(library=library, **KEPT, **between)
    load = Load(quorum.addresses, bulk_bytes_per_s=BULK_BYTES_PER_S)
    await load.start()
    await load.progress(SOME)
    await checkpoints_everywhere(list(quorum.nodes.values()))
    for number, seconds in enumerate(CLOCK_JUMPS_S):
        victim, _ = await quorum.leader()
        if number == 1:
            victim = next(node for node in quorum.nodes.values() if node is not victim)
        victim.faults.shift_clock(seconds)
        await asyncio.sleep(0.3)
        victim.faults.begin(DISK_FULL)
        assert_ended_with_one_line(victim, await victim.ended(), "no space is left to write")
        victim.faults.end(DISK_FULL)
        victim.start()
        await quorum.whole()
        victim.faults.shift_clock(0)
        await load.progress(SOME // 2)
    await verify(load)
    for node in quorum.nodes.values():
        assert "Traceback" not in node.said(), node.said()
        await no_unfinished_checkpoint(node)


async def no_unfinished_checkpoint(node: FaultyNode) -> None:
    """A checkpoint may be written right now, but none that was begun earlier is left."""
    deadline = time.monotonic() + 30
    earlier = set((node.data / PARTITION).glob("*.part"))
    while left := earlier & set((node.data / PARTITION).glob("*.part")):
        assert time.monotonic() < deadline, f"unfinished checkpoints are left: {left}"
        await asyncio.sleep(0.1)


async def checkpoints_everywhere(nodes: list[FaultyNode]) -> None:
    deadline = time.monotonic() + 30
    while not all(damage.checkpoints(node.data) for node in nodes):
        assert time.monotonic() < deadline, "no checkpoints within 30 s"
        await asyncio.sleep(0.1)
