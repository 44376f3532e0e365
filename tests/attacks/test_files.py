"""Damaged, missing, rolled back and cloned files of real controllers.

What was acknowledged stays, whatever happens to the files of a majority: a replica that may have
lost records refuses to start, or takes part in no majority without them.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from quorate.rpc.client.quorum_client import ClientError

from tests.attacks.conftest import MakeQuorum
from tests.attacks.ledger import Ledger, elects, followers
from tests.integration.support import PARTITION, free_ports
from tests.soak import damage
from tests.soak.file_kinds import FALSE_CLAIM, assert_refused
from tests.soak.nodes import FaultyNode, FaultyQuorum
from tests.soak.process_kinds import replace_node

pytestmark = pytest.mark.timeout(180)

SOME = 200
PAGE_BYTES = 4096
ALONE_S = 4.0
"""Longer than an election takes."""

QUIET = {"metadata.max.idle.interval.ms": 0}
"""The last batch is a client's."""
FETCH_TIMEOUT = "controller.quorum.fetch.timeout.ms"

Damage = Callable[[Path, random.Random], object]


def restart_with(node: FaultyNode, data: Path) -> None:
    """Start a controller that is down with another directory."""
    shutil.rmtree(node.data, ignore_errors=True)
    shutil.copytree(data, node.data)
    node.start()


def zero_middle_page(data: Path, choices: random.Random) -> object:
    """Zero a page that sound batches follow, where no recovery point tells that it was synced."""
    places = damage.last_places(data)
    page = places[-1].end // PAGE_BYTES // 2
    damage.overwrite(places[-1].path, page * PAGE_BYTES, bytes(PAGE_BYTES))
    return damage.remove_recovery_point(data, choices)


@pytest.mark.parametrize(
    ("harm", "refuses", "named"),
    [
        (damage.flip_last_bit, True, ".log"),
        (damage.flip_old_bit, True, ".log"),
        (damage.zero_sector, False, ".log"),
        (zero_middle_page, False, ".log"),
        (damage.remove_segments, False, PARTITION),
        (damage.remove_quorum_state, True, "quorum-state"),
        (damage.remove_partition, False, ""),
    ],
    ids=[
        "bit-flipped-in-last-batch",
        "bit-flipped-before",
        "sector-zeroed",
        "page-zeroed-no-recovery-point",
        "segments-removed",
        "quorum-state-removed",
        "partition-removed",
    ],
)
async def test_a_majority_with_damaged_files_forgets_nothing(
    make_quorum: MakeQuorum, tmp_path: Path, harm: Damage, refuses: bool, named: str
) -> None:
    quorum = await make_quorum(**QUIET)
    leader, others = await followers(quorum)
    ledger = Ledger(quorum)
    await ledger.write(SOME)
    await quorum.whole()
    for node in quorum.nodes.values():
        node.kill()
    sound = tmp_path / "sound"
    shutil.copytree(others[0].data, sound)
    directory_id = others[1].directory_id
    for node in others:
        harm(node.data, random.Random(node.id))
        node.start()
    refused = [node for node in others if await quorum.responds(node) is not None]
    # The two are a majority, and the only one that has everything is down.
    if len(refused) < len(others) and await elects(quorum, ALONE_S):
        await ledger.verify()
    for node in refused:
        assert_refused(node, named)
    for node in others:
        assert FALSE_CLAIM not in node.recently(), node.recently()
    assert len(refused) == len(others) or not refuses, "it has started"
    leader.start()
    if len(refused) == len(others):
        restart_with(others[0], sound)
    await ledger.verify()
    if others[1] in refused:
        await replace_node(quorum, others[1], directory_id)
    await quorum.whole()
    await ledger.verify()


async def test_a_follower_with_unusable_files_refuses_to_start(make_quorum: MakeQuorum) -> None:
    between = {"metadata.log.max.record.bytes.between.snapshots": 20_000}
    quorum = await make_quorum(**QUIET, **between)
    ledger = Ledger(quorum)
    await ledger.write(5 * SOME)
    _, [node, _] = await followers(quorum)
    deadline = time.monotonic() + 20
    while not damage.checkpoints(node.data):
        assert time.monotonic() < deadline, "no checkpoint within 20 s"
        await asyncio.sleep(0.2)
    await quorum.whole()
    node.kill()
    sound = node.folder / "sound"
    shutil.copytree(node.data, sound)
    state = node.data / PARTITION / "quorum-state"
    fields = json.loads(state.read_text())
    contents = {
        "garbage": b"\0\0{]",
        "empty": b"",
        "negative epoch": json.dumps(fields | {"leaderEpoch": -7}).encode(),
        "older epoch": json.dumps(fields | {"leaderEpoch": 0, "leaderId": -1}).encode(),
        "removed": None,
    }
    choices = random.Random(1)
    accepted = []
    for name, content in contents.items():
        restore_files(node, sound)
        if content is None:
            state.unlink()
        else:
            state.write_bytes(content)
        accepted += await tried(quorum, node, f"quorum-state {name}", "quorum-state")
    for harm in (damage.truncate_checkpoint, damage.overwrite_checkpoint):
        restore_files(node, sound)
        done = harm(node.data, choices)
        accepted += await tried(quorum, node, done, ".checkpoint")
    assert not accepted, f"it has started with: {accepted}"
    restore_files(node, sound)
    node.start()
    await quorum.whole()
    await ledger.verify()


def restore_files(node: FaultyNode, sound: Path) -> None:
    shutil.rmtree(node.data)
    shutil.copytree(sound, node.data)


async def tried(quorum: FaultyQuorum, node: FaultyNode, what: str, named: str) -> list[str]:
    """Start a controller that must refuse; [what] if it does not."""
    node.start()
    if await quorum.settled(node) is None:
        node.kill()
        return [what]
    assert_refused(node, named)
    return []


def recovery_point(data: Path) -> int:
    """What the recovery point says, -1 without one."""
    path = data / damage.RECOVERY_POINT
    if not path.exists():
        return -1
    return int(path.read_text().split()[-1])


async def test_the_recovery_point_follows_appends_that_never_pause(
    make_quorum: MakeQuorum,
) -> None:
    quorum = await make_quorum((1,))
    node = quorum.nodes[1]
    ledger = Ledger(quorum)
    marks: list[tuple[float, int]] = []
    while not marks or time.monotonic() - marks[0][0] < 5.0:
        await ledger.write(10)
        marks.append((time.monotonic(), max(ledger.acknowledged.values()) + 1))
        await asyncio.sleep(0.4)
    older = max(offset for at_s, offset in marks if at_s < time.monotonic() - 2.0)
    node.kill()
    found = recovery_point(node.data)
    assert found >= older, f"the recovery point is {found}, and {older} was acknowledged 2 s ago"
    sound = node.folder / "sound"
    shutil.copytree(node.data, sound)
    harms: dict[str, Damage] = {
        "bit flipped": damage.flip_old_bit,
        "last bit flipped": damage.flip_last_bit,
        "segments removed": damage.remove_segments,
        "segments and epochs removed": remove_segments_and_epochs,
    }
    accepted = []
    for name, harm in harms.items():
        restore_files(node, sound)
        harm(node.data, random.Random(7))
        node.start()
        if await quorum.responds(node) is not None:
            assert_refused(node, PARTITION)
            continue
        if await elects(quorum, ALONE_S):
            accepted.append(name)
        node.kill()
    assert not accepted, f"the only voter led without its records: {accepted}"
    restore_files(node, sound)
    node.start()
    await ledger.verify()


def remove_segments_and_epochs(data: Path, choices: random.Random) -> object:
    (data / PARTITION / "leader-epoch-checkpoint").unlink()
    return damage.remove_segments(data, choices)


async def test_a_follower_from_an_older_copy_cannot_outvote_the_rest(
    make_quorum: MakeQuorum, tmp_path: Path
) -> None:
    # The leader must not resign before the copy has started and fetched, alone with it.
    quorum = await make_quorum(**QUIET, **{FETCH_TIMEOUT: 10_000})
    ledger = Ledger(quorum)
    await ledger.write(SOME)
    await quorum.whole()
    leader, [rolled, late] = await followers(quorum)
    rolled.kill()
    shutil.copytree(rolled.data, tmp_path / "older")
    rolled.start()
    await quorum.whole()
    late.kill()
    await ledger.write(SOME)
    rolled.kill()
    before = {node.id: node.log_file.stat().st_size for node in (leader, rolled)}
    for node in (rolled, late):
        node.configure({FETCH_TIMEOUT: None})  # they elect within ALONE_S
    restart_with(rolled, tmp_path / "older")
    # Its first fetch is enough: the leader knows what it acknowledged.
    await quorum.settled(rolled)
    leader.kill()
    late.start()
    if await elects(quorum, ALONE_S):
        await ledger.verify()
    leader.start()
    await quorum.whole()
    await ledger.verify()
    said = leader.said(before[leader.id]) + rolled.said(before[rolled.id])
    reports = [line for line in said.splitlines() if re.search(r"\b(WARNING|ERROR)\b", line)]
    assert any(rolled.directory_id in line for line in reports), f"nothing reported: {reports}"


def sibling(node: FaultyNode, folder: Path) -> FaultyNode:
    """Another controller with a node's settings, at a port of its own."""
    own = ("listeners", "metadata.log.dir", "advertised.listeners")
    settings = {name: value for name, value in node.settings.items() if name not in own}
    return FaultyNode(folder, node.id, free_ports(1)[0], None, **settings)


async def test_a_cloned_directory_is_reported_and_does_not_count(
    make_quorum: MakeQuorum, tmp_path: Path
) -> None:
    quorum = await make_quorum(**QUIET)
    ledger = Ledger(quorum)
    await ledger.write(SOME)
    await quorum.whole()
    leader, [other, cloned] = await followers(quorum)
    cloned.kill()
    clone = sibling(cloned, tmp_path / "clone")
    shutil.copytree(cloned.data, clone.data)
    cloned.start()
    clone.start()
    try:
        await asyncio.sleep(ALONE_S)
        await ledger.write(SOME)
        description = await quorum.until(
            "the leader reports both processes", lambda d: "two processes" in d.message
        )
        assert cloned.directory_id in description.message
        assert f"two processes run as replica {cloned.key}" in leader.recently()
        # What the clone alone acknowledges is lost once it is replaced by the original.
        other.kill()
        cloned.kill()
        with pytest.raises(ClientError):
            await ledger.write(10, timeout_ms=5_000)
    finally:
        clone.kill()
    leader.kill()
    other.start()
    cloned.start()
    await ledger.verify()
    leader.start()
    await quorum.whole()
    await ledger.verify()


async def test_a_second_directory_of_one_node_is_no_voter(
    make_quorum: MakeQuorum, tmp_path: Path
) -> None:
    quorum = await make_quorum(**QUIET)
    ledger = Ledger(quorum)
    await ledger.write(SOME)
    _, [_, node] = await followers(quorum)
    twin = sibling(node, tmp_path / "twin")
    twin.format("--no-initial-controllers")
    twin.start()
    try:
        observed = await quorum.until(
            "the twin observes",
            lambda d: twin.directory_id in {str(o.replica.directory_id) for o in d.observers},
        )
        await ledger.write(SOME)
        voters = {str(voter.replica.directory_id) for voter in observed.voters}
        assert voters == {each.directory_id for each in quorum.nodes.values()}
    finally:
        twin.kill()
    await quorum.whole()
    await ledger.verify()


async def test_the_leaders_segments_are_removed_while_it_runs(make_quorum: MakeQuorum) -> None:
    quorum = await make_quorum(**QUIET)
    ledger = Ledger(quorum)
    await ledger.write(SOME)
    leader, _ = await followers(quorum)
    damage.remove_segments(leader.data, random.Random(1))
    try:
        await ledger.write(SOME // 2)
    except ClientError:
        assert leader.status is not None, leader.recently()
    await ledger.verify()
    leader.kill()
    leader.start()
    if await quorum.settled(leader) is not None:
        assert_refused(leader, PARTITION)
    else:
        assert re.search(r"\b(WARNING|ERROR)\b", leader.recently()), "it lost its log silently"
    await ledger.verify()


async def test_a_minority_acknowledges_nothing(make_quorum: MakeQuorum) -> None:
    quorum = await make_quorum(**QUIET)
    ledger = Ledger(quorum)
    await ledger.write(SOME)
    _, [asleep, dead] = await followers(quorum)
    asleep.pause()
    dead.kill()
    try:
        with pytest.raises(ClientError):
            await ledger.write(10, timeout_ms=5_000)
    finally:
        asleep.resume()
    await ledger.write(SOME // 2)
    dead.start()
    await quorum.whole()
    await ledger.verify()
