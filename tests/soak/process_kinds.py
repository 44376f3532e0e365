"""Faults of processes, their disks and their clocks: one victim, or several at once."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import Sequence

from tests.integration.support import CLUSTER, assert_clean, quorate
from tests.soak.kinds import Kind, Scene, Victims
from tests.soak.nodes import DISK_FULL, FSYNC_FAILS, FaultyNode, FaultyQuorum

PAUSE_S = (1.0, 10.0)
SEVERAL_PAUSE_S = (1.0, 6.0)
DOWN_S = (0.1, 2.0)
JUMP_S = (60, 600)

PROCESS = "process"
SEVERAL = "several"

KILL = "kill -9"
STOP = "SIGTERM"
PAUSE = "SIGSTOP"
SYNC = "failing fsync"
FULL = "disk full"
JUMP = "clock jump"
REPLACE = "voter replaced"
KILL_SEVERAL = "kill -9 of several"
PAUSE_SEVERAL = "SIGSTOP of several"
PAUSE_AND_KILL = "SIGSTOP and kill -9"
POWER_OFF = "kill -9 of all"


async def kill(scene: Scene) -> None:
    """kill -9 of all victims, at the same time; they come back one by one in any order."""
    for node in scene.victims:
        node.kill()
    await scene.rest(*DOWN_S)
    for node in scene.choices.sample(scene.victims, len(scene.victims)):
        node.start()
        await scene.rest(0.0, 0.5)


async def stop(scene: Scene) -> None:
    for node in scene.victims:
        node.send(signal.SIGTERM)
        assert await node.ended() == 0, node.recently()
        assert_clean(node.recently())
        node.start()


async def pause(scene: Scene) -> None:
    shortest_s, longest_s = PAUSE_S if len(scene.victims) == 1 else SEVERAL_PAUSE_S
    for node in scene.victims:
        node.pause()
    try:
        await scene.rest(shortest_s, longest_s)
    finally:
        for node in scene.victims:
            node.resume()


async def pause_and_kill(scene: Scene) -> None:
    """The first victim sleeps while the others are killed and come back."""
    sleeper, *others = scene.victims
    sleeper.pause()
    try:
        for node in others:
            node.kill()
        await scene.rest(*SEVERAL_PAUSE_S)
        _start(others)
        await scene.rest(0.0, 2.0)
    finally:
        sleeper.resume()


def _start(nodes: Sequence[FaultyNode]) -> None:
    for node in nodes:
        node.start()


async def fail_sync(scene: Scene) -> None:
    [node] = scene.victims
    node.faults.begin(FSYNC_FAILS)
    assert await node.ended() == 1, node.recently()
    node.faults.end(FSYNC_FAILS)
    node.start()


async def fill_disk(scene: Scene) -> None:
    [node] = scene.victims
    node.faults.begin(DISK_FULL)
    assert await node.ended() == 1, node.recently()
    if scene.choices.random() < 0.5:
        node.start()
        assert await node.ended() == 1, node.recently()
    node.faults.end(DISK_FULL)
    node.start()


async def jump(scene: Scene) -> None:
    [node] = scene.victims
    for _ in range(2):
        node.faults.shift_clock(scene.choices.choice((-1, 1)) * scene.choices.randint(*JUMP_S))
        await scene.rest(1.0, 3.0)
    node.faults.shift_clock(0)


async def replace(scene: Scene) -> None:
    for node in scene.victims:
        await replace_node(scene.quorum, node, node.directory_id)


async def replace_node(quorum: FaultyQuorum, node: FaultyNode, directory_id: str) -> None:
    """Remove a voter, give it an empty directory, add it again: with the commands."""
    ask = ("metadata-quorum", "--bootstrap-controller", ",".join(quorum.addresses))
    await command(*ask, "remove-controller", "-i", node.id, "-d", directory_id)
    node.kill()
    shutil.rmtree(node.data, ignore_errors=True)
    config = ("-c", node.properties)
    await command("storage", "format", "-t", CLUSTER, *config, "--no-initial-controllers")
    node.start()
    await command(*ask, "add-controller", *config)


async def command(*arguments: object) -> None:
    """Run a command line that must succeed."""
    ran = await asyncio.to_thread(quorate, *arguments)
    assert ran.status == 0, ran


KINDS = (
    Kind(KILL, PROCESS, kill),
    Kind(STOP, PROCESS, stop),
    Kind(PAUSE, PROCESS, pause, ends_process=False),
    Kind(SYNC, PROCESS, fail_sync),
    Kind(FULL, PROCESS, fill_disk),
    Kind(JUMP, PROCESS, jump, ends_process=False),
    Kind(REPLACE, PROCESS, replace),
    Kind(KILL_SEVERAL, SEVERAL, kill, Victims.ANY),
    Kind(PAUSE_SEVERAL, SEVERAL, pause, Victims.ANY, ends_process=False),
    Kind(PAUSE_AND_KILL, SEVERAL, pause_and_kill, Victims.ANY),
    Kind(POWER_OFF, SEVERAL, kill, Victims.ALL),
)
