"""Faults that the simulation only plays, on real processes: disks, clocks, and a leader asleep.

Each test injects one into a quorum of three under load, sees that it was injected, and ends with
the checker's verdict over everything that the clients were told.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from quorate.controller.kafka.settings import GRPC, KAFKA, PEER_PROTOCOLS
from quorate.rpc.wire.limits import ChannelLimits

from tests.soak.load import NAME, Load
from tests.soak.nodes import DISK_FULL, FSYNC_FAILS, SYNC_HANGS, FaultyNode, FaultyQuorum
from tests.soak.soak import Soak
from tests.soak.stale import DirectReads

pytestmark = pytest.mark.timeout(240)

SOME = 200
ASLEEP_S = 10.0
READS_ASLEEP = 20
READS_AWAKE = 40
LIMITS = ChannelLimits()
NOTICED_S = (LIMITS.keepalive_ms + LIMITS.keepalive_timeout_ms) / 1000
"""How long a client waits at most for a process that sleeps: its connection stays open."""

JUMPS_S = (300, -300, 0, 3600, -1800, 0)
GAP_MAX_S = 5.0
"""Far above what is measured: others use the machine."""

over_both = pytest.mark.parametrize("trio", PEER_PROTOCOLS, indirect=True)
"""Of tests whose outcome depends on what carries the messages between the controllers."""

SYNCS = ("fsync", "fdatasync")
WRITES = ("write", "pwrite", "posix_fallocate")


@asynccontextmanager
async def under_load(quorum: FaultyQuorum) -> AsyncIterator[Load]:
    """Clients while the block runs; then the verdict."""
    load = Load(quorum.addresses)
    await load.start()
    try:
        await load.progress(SOME)
        load.writes.measure()
        yield load
        gap_ms = load.writes.longest_gap_s * 1000
        await load.progress(SOME)
    finally:
        violations = await load.verify()
    assert not violations, [str(violation) for violation in violations[:5]]
    assert load.read_count > 0
    print(
        f"\n{load.acknowledged} acknowledged, all there; {load.writes.unknown_count} unknown; "
        f"{load.read_count} linearizable reads; longest gap {gap_ms:.0f} ms",
        end=" ",
    )


async def pick(quorum: FaultyQuorum, role: str) -> FaultyNode:
    """The leader, or one that does not lead."""
    leader, _ = await quorum.leader()
    if role == "leader":
        return leader
    return next(node for node in quorum.nodes.values() if node is not leader)


def assert_ended_with_one_line(node: FaultyNode, status: int, said: str) -> None:
    """The process gave up in order, and said why."""
    assert status == 1
    log = node.recently()
    assert "Traceback" not in log, log
    assert re.search(rf"^quorate: error: .*{said}", log, re.MULTILINE), log


@pytest.mark.parametrize("role", ["follower", "leader"])
async def test_a_sync_that_fails_ends_the_replica_and_nothing_else(
    trio: FaultyQuorum, role: str
) -> None:
    async with under_load(trio) as load:
        victim = await pick(trio, role)
        victim.faults.begin(FSYNC_FAILS)
        status = await victim.ended()
        assert_ended_with_one_line(victim, status, "Input/output error")
        assert victim.faults.count(*SYNCS) > 0
        await load.progress(SOME)
        leader, _ = await trio.leader()
        assert leader is not victim
        victim.faults.end(FSYNC_FAILS)
        victim.start()
        await trio.whole()


@pytest.mark.parametrize("role", ["follower", "leader"])
async def test_a_full_disk_loses_nothing(trio: FaultyQuorum, role: str) -> None:
    async with under_load(trio) as load:
        victim = await pick(trio, role)
        victim.faults.begin(DISK_FULL)
        status = await victim.ended()
        assert_ended_with_one_line(victim, status, "no space is left to write")
        refused = victim.faults.count(*WRITES)
        assert refused > 0
        await load.progress(SOME)
        # As a supervisor does it: no space yet, so it ends again, and harms nobody.
        victim.start()
        assert await victim.ended() == 1
        assert "Traceback" not in victim.recently(), victim.recently()
        assert victim.faults.count(*WRITES) > refused
        await load.progress(SOME)
        victim.faults.end(DISK_FULL)
        victim.start()
        await trio.whole()


@over_both
async def test_a_leader_whose_disk_hangs_resigns_and_stands_again_when_it_answers(
    trio: FaultyQuorum,
) -> None:
    async with under_load(trio) as load:
        victim, epoch = await trio.leader()
        begun = victim.log_file.stat().st_size
        victim.faults.begin(SYNC_HANGS)
        try:
            leader, _ = await trio.leader(epoch)
            assert leader is not victim
            assert victim.faults.count("hangs") > 0
            await load.progress(SOME)
            await asyncio.sleep(2 * ASLEEP_S / 5)
            # The other two may elect again on a busy machine: its own log tells what it did.
            stood = re.search(r"\b(prospective|candidate|leader) in epoch .*", victim.said(begun))
            assert stood is None, f"it stands meanwhile: {stood[0]}"
            assert (await trio.leader())[0] is not victim
        finally:
            victim.faults.end(SYNC_HANGS)
        await trio.whole()
    said = victim.said()
    assert re.search(
        r"resigned in epoch \d+, leader unknown: the disk has completed no sync for", said
    )
    assert re.search(r"WARNING .*the disk completed a sync after \d+\.\d s", said)


@over_both
async def test_a_leader_that_slept_answers_no_stale_read(trio: FaultyQuorum) -> None:
    async with under_load(trio) as load:
        sleeper, epoch = await trio.leader()
        reads = DirectReads(sleeper.address, load.history, NAME)
        reads.begin()
        await until(lambda: reads.answered == 1)
        sleeper.pause()
        try:
            leader, _ = await trio.leader(epoch)
            assert leader is not sleeper
            await load.progress(SOME)
            assert load.writes.longest_gap_s < NOTICED_S + 5
            # They lie in the sleeper's socket: it was the leader of epoch `epoch` when they came.
            for _ in range(READS_ASLEEP):
                reads.begin()
                await asyncio.sleep(ASLEEP_S / READS_ASLEEP)
        finally:
            sleeper.resume()
        for _ in range(READS_AWAKE):
            reads.begin()
            await asyncio.sleep(0.02)
        await reads.end()
        await trio.whole()
    assert reads.refused >= READS_ASLEEP, vars(reads)
    slept = re.search(r"the event loop was blocked for (\d+\.\d) s, longer than", sleeper.said())
    assert slept is not None
    assert float(slept[1]) >= ASLEEP_S - 1
    print(f"{reads.refused} of {1 + READS_ASLEEP + READS_AWAKE} reads of the sleeper refused")


def _has_jumped(node: FaultyNode, times: int) -> bool:
    return node.faults.count("clock") == times


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "not within 30 s"
        await asyncio.sleep(0.02)


async def test_clocks_that_jump_cause_no_elections(trio: FaultyQuorum) -> None:
    async with under_load(trio) as load:
        leader, epoch = await trio.leader()
        for number, shift in enumerate(JUMPS_S):
            leader.faults.shift_clock(shift)
            await until(partial(_has_jumped, leader, number + 1))
            await load.progress(SOME)
            await asyncio.sleep(1.5)
        # A busy machine may cause one by itself; a storm is one a jump.
        _, epoch_after = await trio.leader()
        assert epoch_after - epoch <= 1
        assert load.writes.longest_gap_s < GAP_MAX_S
        await trio.whole()
    for node in trio.nodes.values():
        assert "Traceback" not in node.said()
        assert node.said().count(" in epoch ") < 10, node.said()


BROKEN_KAFKA = "(Kafka's protocol at "
"""What a follower says of its connection to a leader that broke."""


def said(folder: Path) -> str:
    """The logs of all controllers below a folder."""
    return "".join(log.read_text() for log in folder.glob("node-*/controller.log"))


MIXED_S = 25.0
SHORT = {"metadata.log.max.record.bytes.between.snapshots": 1 << 20}
MIXED = {
    "network": (
        "leader isolated",
        "one-way partition",
        "connections reset",
        "half-open connections",
        "flapping partition",
    ),
    "several": (
        "kill -9 of several",
        "SIGSTOP of several",
        "SIGSTOP and kill -9",
        "kill -9 of all",
    ),
    "files": ("bit flip, old part", "directory removed", "checkpoint truncated"),
}


@pytest.mark.parametrize(
    ("group", "protocol"),
    [*((group, GRPC) for group in MIXED), ("network", KAFKA), ("several", KAFKA)],
)
async def test_a_short_soak(tmp_path: Path, library: Path, group: str, protocol: str) -> None:
    """Faults of one group, in the order that a seed gives; each must be recovered from."""
    soak = Soak(
        tmp_path,
        library,
        nodes=3,
        seconds=MIXED_S,
        seed=1,
        say=print,
        kinds=MIXED[group],
        settings=SHORT,
        judges_lives=False,
        peer_protocol=protocol,
        faults_min=2,
    )
    report = await soak.run()
    assert report.is_good, (report.steps, report.violations, report.failures)
    assert (BROKEN_KAFKA in said(tmp_path)) is (protocol == KAFKA)
    print(f"\n{report.acknowledged} acknowledged; " + "; ".join(report.steps), end=" ")
