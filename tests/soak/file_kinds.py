"""Faults of files: damaged, missing, rolled back and cloned directories, and their remedy.

What must come of it: the controller refuses to start with one line that names the file and the
remedy, or it starts, has caught up, and the loss was reported. A replica that starts must not call
acknowledged records unacknowledged. The remedy is that of the line: remove, format, add.

At most a minority is hit at once, and no other voter is down meanwhile: nobody can bring back
what a majority lost.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from tests.integration.support import PARTITION, free_ports
from tests.soak import damage
from tests.soak.kinds import Kind, Scene, Victims, always
from tests.soak.nodes import FaultyNode
from tests.soak.process_kinds import replace_node

FILES = "files"
PROGRESS = 50
CLONE_S = (3.0, 8.0)
FALSE_CLAIM = "that was never acknowledged"
REMEDY = re.compile(r"remove-controller|remove \w+( replica)? from the quorum|storage format")

OLDER_COPY = "directory restored from an older copy"
CLONE = "directory cloned"


@dataclass(frozen=True, slots=True)
class FileFault:
    """refuses: whether the controller must refuse to start; otherwise it may. named: the part of
    a path that the refusal names, below the log directory. reported: whether somebody must log a
    warning where it starts. stays: whether it must be replaced although it has started.
    """

    name: str
    damage: Callable[[damage.Path, random.Random], str]
    named: str
    refuses: bool = False
    reported: bool = False
    stays: bool = False


FAULTS = (
    FileFault("bit flip, old part", damage.flip_old_bit, ".log", refuses=True),
    FileFault("bit flip, last batch", damage.flip_last_bit, ".log", refuses=True),
    FileFault("zeroed sector", damage.zero_sector, ".log", reported=True),
    FileFault("segment removed", damage.remove_segment, PARTITION),
    FileFault("quorum-state removed", damage.remove_quorum_state, "quorum-state", True, stays=True),
    FileFault("recovery point removed", damage.remove_recovery_point, damage.RECOVERY_POINT),
    FileFault("partition removed", damage.remove_partition, "", reported=True),
    FileFault("directory removed", damage.remove_directory, "", refuses=True),
    FileFault("checkpoint truncated", damage.truncate_checkpoint, ".checkpoint", refuses=True),
    FileFault("checkpoint overwritten", damage.overwrite_checkpoint, ".checkpoint", refuses=True),
)


def assert_refused(node: FaultyNode, named: str) -> None:
    """The process ended with one line that names the file and says what to do."""
    said = node.recently()
    lines = said.splitlines()
    assert node.status == 1, (node.status, said)
    assert "Traceback" not in said, said
    assert lines, "the process ended without a word"
    last = lines[-1]
    assert last.startswith("quorate: error: "), said
    assert len([line for line in lines if line.startswith("quorate: ")]) == 1, said
    assert str(node.data) in last, (node.data, last)
    assert named in last, (named, last)
    assert REMEDY.search(last), last


def warnings(nodes: Iterable[FaultyNode], sizes: dict[int, int]) -> list[str]:
    """The warnings and errors that nodes have logged since their log files had these sizes."""
    return [
        line
        for node in nodes
        for line in node.said(sizes.get(node.id, 0)).splitlines()
        if re.search(r"\b(WARNING|ERROR)\b", line)
    ]


def log_sizes(scene: Scene) -> dict[int, int]:
    return {node.id: node.log_file.stat().st_size for node in scene.quorum.nodes.values()}


async def damaged(fault: FileFault, scene: Scene) -> None:
    """Kill the victims, damage their files, start them, check what they do, and repair."""
    sizes = log_sizes(scene)
    directory_ids = {node.id: node.directory_id for node in scene.victims}
    done: dict[int, str] = {}
    for node in scene.victims:
        node.kill()
    for node in scene.victims:
        done[node.id] = fault.damage(node.data, scene.choices)
        node.start()
    for node in scene.victims:
        try:
            ended = await scene.quorum.settled(node)
            if ended is not None:
                assert_refused(node, fault.named)
            else:
                assert not fault.refuses, f"it has started: {node.recently()[-1500:]}"
                assert FALSE_CLAIM not in node.recently(), node.recently()
                if fault.reported:
                    assert warnings(scene.quorum.nodes.values(), sizes), "no warning"
        except AssertionError as error:
            raise AssertionError(f"{done[node.id]}: {error}") from error
        if ended is not None or fault.stays:
            await replace_node(scene.quorum, node, directory_ids[node.id])
    await scene.load.progress(PROGRESS)


async def restore_older_copy(scene: Scene) -> None:
    """The victims come back with the directories that they had some records ago."""
    copies = {node.id: scene.folder / f"older-{node.id}" for node in scene.victims}
    for node in scene.victims:
        node.kill()
        shutil.rmtree(copies[node.id], ignore_errors=True)
        shutil.copytree(node.data, copies[node.id])
        node.start()
    await scene.quorum.whole()
    await scene.load.progress(PROGRESS)
    await scene.quorum.whole()
    sizes = log_sizes(scene)
    for node in scene.victims:
        node.kill()
        shutil.rmtree(node.data)
        shutil.move(copies[node.id], node.data)
        node.start()
    for node in scene.victims:
        ended = await scene.quorum.settled(node)
        if ended is not None:
            assert_refused(node, "")
            await replace_node(scene.quorum, node, node.directory_id)
    assert warnings(scene.quorum.nodes.values(), sizes), "no warning of the older directory"


async def run_clone(scene: Scene) -> None:
    """A copy of the victim's directory runs beside it: one id and directory id, two processes."""
    [node] = scene.victims
    sizes = log_sizes(scene)
    folder = scene.folder / "clone"
    shutil.rmtree(folder, ignore_errors=True)
    settings = {
        k: v for k, v in node.settings.items() if k not in ("listeners", "metadata.log.dir")
    }
    port, kafka_port = free_ports(2)
    speaks_kafka = node.kafka_port is not None
    clone = FaultyNode(
        folder, node.id, port, None, kafka_port if speaks_kafka else None, **settings
    )
    node.kill()
    shutil.copytree(node.data, clone.data)
    node.start()
    clone.start()
    try:
        await clone.listens()
        await scene.rest(*CLONE_S)
        await scene.load.progress(PROGRESS)
        said = clone.said()
        assert "Traceback" not in said, said
    finally:
        clone.kill()
    # Neither process counts. Only one that starts later does.
    if node.status is None:
        node.kill()
    else:
        assert_refused(node, "")
    node.start()
    await scene.quorum.whole()
    found = warnings(scene.quorum.nodes.values(), sizes)
    assert any(node.directory_id in line for line in found), f"nobody reported the clone: {found}"


def have_checkpoints(nodes: Iterable[FaultyNode]) -> bool:
    return all(damage.checkpoints(node.data) for node in nodes)


KINDS = (
    *(
        Kind(
            fault.name,
            FILES,
            partial(damaged, fault),
            Victims.MINORITY,
            applies=have_checkpoints if fault.named == ".checkpoint" else always,
        )
        for fault in FAULTS
    ),
    Kind(OLDER_COPY, FILES, restore_older_copy, Victims.MINORITY),
    Kind(CLONE, FILES, run_clone),
)
