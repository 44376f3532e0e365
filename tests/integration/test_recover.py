"""`quorate recover` on directories that real controllers left, and real controllers on the result.

Three voters run under a writer; what happens to their disks and addresses then is the test's.
"""

from __future__ import annotations

import asyncio
import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from quorate.cli.local.workload import Workload
from quorate.linearizability import HistoryChecker
from quorate.rpc.client.quorum_client import QuorumClient

from tests.integration.support import (
    FIRST_SEGMENT,
    HOST,
    PARTITION,
    Node,
    Quorum,
    assert_clean,
    assert_error,
    files,
    here,
    quorate,
    succeed,
    until,
    voters,
)

pytestmark = pytest.mark.slow

LOAD_S = 0.6
ACCEPT = "--i-accept-data-loss"


def three_voters(folder: Path, ids: tuple[int, ...] = (1, 2, 3)) -> Quorum:
    """A running quorum whose voters joined by themselves."""
    quorum = Quorum(folder, ids)
    for node in quorum.nodes.values():
        node.format("--standalone" if node.id == ids[0] else "--no-initial-controllers")
        if node.id != ids[0]:
            node.configure({"controller.quorum.auto.join.enable": "true"})
        node.start()
    quorum.until_voters(*ids)
    return quorum


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[Quorum]:
    quorum = three_voters(tmp_path)
    try:
        yield quorum
    finally:
        quorum.kill()


async def write(
    quorum: Quorum,
    seconds: float = LOAD_S,
    *,
    after: HistoryChecker[str] | None = None,
    name: str = "early",
) -> HistoryChecker[str]:
    """Append for a while; the history of what the writers were told, that of `after` included."""
    load = Workload(quorum.addresses.split(","), name=name)
    if after is not None:
        load.history = copy.deepcopy(after)
    await load.start()
    await asyncio.sleep(seconds)
    assert await load.verify() == []
    await load.stop()
    return load.history


async def read_all(address: str) -> list[tuple[int, str]]:
    async with QuorumClient([address]) as client:
        return [
            (record.offset, bytes(record.value).decode())
            async for record in client.read(0)
            if record.value is not None
        ]


def recovered(node: Node, *more: object) -> Any:
    """Run lost-majority; what it reports."""
    ran = here("recover", "lost-majority", "--log-dir", node.data, ACCEPT, "--json", *more)
    assert ran.status == 0, ran
    return ran.json()


def alone(status: dict[str, Any], node: Node) -> bool:
    return status["leaderId"] == node.id and list(voters(status)) == [node.id]


# --- a lost majority ------------------------------------------------------------------------------


def test_two_of_three_disks_are_lost_under_a_writer(tmp_path: Path) -> None:
    quorum = three_voters(tmp_path)
    try:
        asyncio.run(_two_disks_lost(quorum))
    finally:
        quorum.kill()


async def _two_disks_lost(quorum: Quorum) -> None:
    load = Workload(quorum.addresses.split(","))
    await load.start()
    await asyncio.sleep(LOAD_S)
    survivor, *lost = quorum.nodes.values()
    await asyncio.to_thread(lost[0].kill)
    # From now on every commit needs the survivor, so it holds whatever was acknowledged before.
    before = load.acknowledged_count
    await asyncio.to_thread(until, "more commits", lambda: load.acknowledged_count > before)
    for node in (lost[1], survivor):
        await asyncio.to_thread(node.kill)
    for node in lost:
        shutil.rmtree(node.data)
    before = load.acknowledged_count

    refused = await asyncio.to_thread(here, "recover", "lost-majority", "-l", survivor.data)
    assert_error(refused, ACCEPT, "cannot be known")
    report = await asyncio.to_thread(recovered, survivor)
    assert (Path(report["backup"]) / FIRST_SEGMENT).exists()
    survivor.start()
    await asyncio.to_thread(quorum.until, "it leads alone", lambda s: alone(s, survivor))
    for node in lost:
        node.format("--no-initial-controllers")
        node.start()
    await asyncio.to_thread(quorum.until_voters, 1, 2, 3)
    await asyncio.sleep(LOAD_S)
    assert await load.verify() == []
    assert load.acknowledged_count > before
    await load.stop()


def test_what_the_survivor_does_not_have_is_said_to_be_open(quorum: Quorum) -> None:
    """The survivor missed what the other two committed: it is lost, the rest is there."""
    early = asyncio.run(write(quorum))
    survivor = next(node for node in quorum.nodes.values() if node.id != leader_of(quorum))
    survivor.stop()
    late = asyncio.run(write(quorum, after=early, name="late"))
    assert late.acknowledged_count > early.acknowledged_count
    quorum.kill()
    lost = [node for node in quorum.nodes.values() if node is not survivor]

    better = lost[0]
    ran = here("recover", "lost-majority", "-l", survivor.data, "--others", better.data, ACCEPT)
    assert_error(ran, "is the better survivor", str(better.data))
    ran = here("recover", "lost-majority", "-l", better.data, "--others", survivor.data, ACCEPT)
    assert_error(ran, "the majority is not lost")

    report = recovered(survivor)
    assert any("cannot be known" in line for line in report["mayBeLost"])
    kept_reports = list(survivor.data.glob("recover-report-*.json"))
    assert [json.loads(path.read_text())["forcedEpoch"] for path in kept_reports] == [
        report["forcedEpoch"]
    ]
    survivor.start()
    quorum.until("it leads alone", lambda s: alone(s, survivor))
    log = asyncio.run(read_all(survivor.address))
    values = {value for _, value in log}
    assert early.verify(log) == []
    assert not any(value.startswith("late") for value in values)

    # An old voter returns with the longer log: it gets no vote, follows, and has the same log.
    old = lost[0]
    old.start()
    old.wait_said(f"leader {survivor.id}")
    status = quorum.until(
        "the old voter is an observer",
        lambda s: alone(s, survivor) and [o["id"] for o in s["currentObservers"]] == [old.id],
    )
    assert status["leaderEpoch"] > report["forcedEpoch"]
    assert_clean(survivor.said())
    # Both old voters, a majority of the old set, while the survivor can be reached.
    lost[1].start()
    lost[1].wait_said(f"leader {survivor.id}")
    quorum.until("two observers", lambda s: alone(s, survivor) and len(s["currentObservers"]) == 2)
    assert asyncio.run(read_all(survivor.address)) == log


def leader_of(quorum: Quorum) -> int:
    return int(quorum.until("a leader", lambda _: True)["leaderId"])


def test_an_old_voter_cannot_elect_itself_while_the_survivor_starts(quorum: Quorum) -> None:
    """It is there first and asks for votes all the time: the survivor is a voter of its set."""
    asyncio.run(write(quorum, 0.3))
    survivor, old, gone = quorum.nodes.values()
    quorum.kill()
    shutil.rmtree(gone.data)
    refused = here("recover", "lost-majority", "-l", survivor.data, "--others", old.data, ACCEPT)
    assert refused.status == 1
    recovered(survivor)
    old.start()
    old.wait_said("prospective")
    for _ in range(2):
        survivor.start()
        quorum.until("the survivor leads alone", lambda s: alone(s, survivor))
        survivor.kill()
    assert "leader in epoch" not in old.said(old.said_before)
    survivor.start()
    quorum.until("the survivor leads alone", lambda s: alone(s, survivor))


def test_a_running_controller_and_wrong_directories_are_refused(
    quorum: Quorum, tmp_path: Path
) -> None:
    node = quorum.nodes[1]
    for command in (
        ("lost-majority", "-l", node.data, ACCEPT),
        ("endpoints", "-l", node.data, "--voter", f"1@{HOST}:1"),
        ("replica", "-l", node.data),
    ):
        assert_error(quorate("recover", *command), "is in use", str(node.pid))
    assert_error(here("recover", "inspect", "--dirs", tmp_path / "none"), "not a directory")
    assert_error(here("recover", "inspect", "--dirs", tmp_path), "not formatted")
    assert_error(here("recover", "replica"), "QUORATE_METADATA_LOG_DIR", status=2)
    assert list(tmp_path.glob(".lock")) == []


def test_the_directory_of_a_running_controller_can_be_inspected(quorum: Quorum) -> None:
    """In a pod there is no other time to do so."""
    node = quorum.nodes[1]
    found = succeed("recover", "inspect", "--dirs", node.data, "--json").json()
    (one,) = found["directories"]
    assert (one["nodeId"], one["isInUse"], one["damage"]) == (1, True, "")
    assert len(one["voters"]) == 3
    assert any("may have grown since" in line for line in found["mayBeLost"])
    assert "sound, in use" in succeed("recover", "inspect", "--dirs", node.data).out
    assert quorum.until_voters(1, 2, 3)


def test_dry_runs_change_nothing_and_inspect_says_what_is_where(quorum: Quorum) -> None:
    asyncio.run(write(quorum, 0.3))
    for node in quorum.nodes.values():
        node.stop()
    dirs = [node.data for node in quorum.nodes.values()]
    before = [files(each) for each in dirs]
    found = succeed("recover", "inspect", "--dirs", ",".join(map(str, dirs)), "--json").json()
    assert found["isComplete"] is True
    assert {each["nodeId"] for each in found["directories"]} == {1, 2, 3}
    ends = [each["logEndOffset"] for each in found["directories"]]
    best = next(e for e in found["directories"] if e["directory"] == found["best"])
    assert best["logEndOffset"] == max(ends)
    text = succeed("recover", "inspect", "--dirs", ",".join(map(str, dirs))).out
    assert "no committed record is missing" in text
    ran = here("recover", "lost-majority", "-l", dirs[0], "--dry-run")
    assert ran.status == 0
    assert "DRY RUN" in ran.out
    assert "there are two quorums" in ran.err
    assert [files(each) for each in dirs] == before


def test_an_old_majority_that_elected_without_the_survivor_gives_way(quorum: Quorum) -> None:
    """The danger that the command warns of: two quorums, until they can reach each other."""
    history = asyncio.run(write(quorum, 0.3))
    survivor, *old = quorum.nodes.values()
    quorum.kill()
    recovered(survivor)
    kept = len(asyncio.run(started(survivor, quorum)))
    survivor.kill()
    for node in old:
        node.start()
    quorum.until("the old majority elects", lambda s: s["leaderId"] in (2, 3))
    astray = asyncio.run(write(quorum, 0.3, after=history, name="astray"))
    assert astray.acknowledged_count > history.acknowledged_count

    survivor.start()
    for node in old:
        # It had seen records committed that the survivor does not have, and does not undo that.
        assert node.wait(30) == 1
        assert "committed records would be lost" in node.said(node.said_before)
    quorum.until("the survivor leads alone", lambda s: alone(s, survivor))
    for node in old:
        node.start()
    quorum.until("both observe", lambda s: alone(s, survivor) and len(s["currentObservers"]) == 2)
    log = asyncio.run(read_all(survivor.address))
    assert len(log) == kept
    assert history.verify(log) == []
    assert not any(value.startswith("astray") for _, value in log)


async def started(node: Node, quorum: Quorum) -> list[tuple[int, str]]:
    """Start a controller that leads alone; its log."""
    node.start()
    await asyncio.to_thread(quorum.until, "it leads alone", lambda s: alone(s, node))
    return await read_all(node.address)


# --- staged for the next start --------------------------------------------------------------------


def test_a_staged_recovery_is_applied_at_the_next_start(quorum: Quorum) -> None:
    history = asyncio.run(write(quorum))
    survivor, *lost = quorum.nodes.values()
    for node in lost:
        node.kill()
        shutil.rmtree(node.data)
    if leads(survivor):
        survivor.wait_said("resigned")
    plan = survivor.data / "recover.plan"
    stage = ("recover", "lost-majority", "--at-restart", "-l", survivor.data)
    assert_error(quorate(*stage), ACCEPT)
    assert not plan.exists()
    ran = quorate(*stage, ACCEPT, "--restart")
    assert ran.status == 0, ran
    assert "Stopped the controller" in ran.out
    assert survivor.wait() == 0
    assert plan.exists()

    survivor.start()
    survivor.wait_said("applied the staged recovery")
    quorum.until("it leads alone", lambda s: alone(s, survivor))
    assert not plan.exists()
    assert len(list(survivor.data.glob("recover-report-*.json"))) == 1
    assert history.verify(asyncio.run(read_all(survivor.address))) == []
    assert survivor.stop() == 0
    survivor.start()
    quorum.until("it leads alone again", lambda s: alone(s, survivor))
    assert "staged recovery" not in survivor.said(survivor.said_before)


def leads(node: Node) -> bool:
    """Whether this controller led last, by its own words."""
    roles = [line for line in node.said().splitlines() if " in epoch " in line]
    return "leader in epoch" in roles[-1]


def test_a_plan_is_set_aside_when_somebody_led_meanwhile(quorum: Quorum) -> None:
    node = quorum.nodes[1]
    ran = here("recover", "lost-majority", "--at-restart", "-l", node.data, ACCEPT)
    assert ran.status == 0, ran
    asyncio.run(write(quorum))
    assert node.stop() == 0
    node.start()
    node.wait_said("there was a leader meanwhile")
    quorum.until_voters(1, 2, 3)
    assert not (node.data / "recover.plan").exists()
    assert len(list(node.data.glob("recover.plan.refused-*"))) == 1


# --- renamed voters -------------------------------------------------------------------------------


@pytest.mark.parametrize("elsewhere", [False, True], ids=["directories", "reports"])
def test_all_voters_move_to_other_addresses(
    quorum: Quorum, tmp_path: Path, elsewhere: bool
) -> None:
    history = asyncio.run(write(quorum))
    nodes = list(quorum.nodes.values())
    for node in nodes:
        node.stop()
    quorum.move()
    for node in nodes:
        node.start()
        node.wait_said("listens on")
    assert quorum.status() is None
    for node in nodes:
        node.stop()

    directories = ",".join(str(node.data) for node in nodes)
    best = succeed("recover", "inspect", "--dirs", directories, "--json").json()["best"]
    chosen = next(node for node in nodes if str(node.data) == best)
    others = [node for node in nodes if node is not chosen]
    named = ",".join(str(node.data) for node in others)
    if elsewhere:
        written = succeed("recover", "inspect", "--dirs", named, "--json")
        report = tmp_path / "elsewhere.json"
        report.write_text(written.out)
        named = str(report)
    moved = [x for node in nodes for x in ("--voter", f"{node.id}@{node.address}")]
    base = ("recover", "endpoints", "-l", chosen.data)
    assert_error(here(*base, *moved), "but 2 are needed")
    assert_error(here(*base, "--others", named, "--voter", "9@h:1"), "9 is not a voter")
    ran = here(*base, "--others", named, *moved)
    assert ran.status == 0, ran
    assert ("must stay stopped" in ran.err) is elsewhere
    for node in (chosen, *others):
        node.start()
    status = quorum.until_voters(1, 2, 3)
    found = {v["id"]: v["endpoints"] for v in status["currentVoters"]}
    assert found == {node.id: [node.endpoint] for node in nodes}
    assert history.verify(asyncio.run(read_all(chosen.address))) == []
    more = asyncio.run(write(quorum, after=history, name="more"))
    assert more.acknowledged_count > history.acknowledged_count


# --- a damaged replica ----------------------------------------------------------------------------


def test_a_damaged_replica_begins_again_as_another(quorum: Quorum) -> None:
    history = asyncio.run(write(quorum))
    node = next(node for node in quorum.nodes.values() if node.id != leader_of(quorum))
    node.configure({"controller.quorum.auto.join.enable": None})
    node.stop()
    assert_error(here("recover", "replica", "-l", node.data), "is sound")
    segment = node.data / FIRST_SEGMENT
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    segment.write_bytes(content)
    old = node.directory_id
    assert_error(
        here("recover", "lost-majority", "-l", node.data, ACCEPT), "cannot be the survivor"
    )
    before = files(node.data)
    assert succeed("recover", "replica", "-l", node.data, "--dry-run").out.startswith("Damage: ")
    assert files(node.data) == before

    done = succeed("recover", "replica", "-l", node.data, "--json").json()
    assert done["oldDirectoryId"] == old != node.directory_id == done["newDirectoryId"]
    kept = Path(done["backup"]) / PARTITION / segment.name
    assert kept.read_bytes() == bytes(content)
    node.start()
    quorum.until("an observer", lambda s: len(s["currentObservers"]) == 1)
    remove = done["commands"][0].replace("HOST:PORT", quorum.addresses).split()[1:]
    add = done["commands"][2].replace("HOST:PORT", quorum.addresses).split()[1:]
    succeed(*remove)
    succeed(*(node.properties if word == "FILE" else word for word in add))
    status = quorum.until_voters(1, 2, 3)
    assert voters(status)[node.id] == node.directory_id
    until(
        "it has the log",
        lambda: (node.data / FIRST_SEGMENT).stat().st_size >= len(content) // 2,
    )
    assert history.verify(asyncio.run(read_all(quorum.addresses.split(",")[0]))) == []
