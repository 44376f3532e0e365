"""What an on-call engineer sees of a quorum that loses voters: its log, `health`, `describe`.

The tests run in order, on one quorum. Each leaves it to the next as it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.integration.metadata_support import brokers
from tests.integration.support import HOST, Node, Quorum, here, quorate, succeed, until

BROKER = 11
SESSION_S = 6

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quorum]:
    """Three voters."""
    settings = {"broker.session.timeout.ms": SESSION_S * 1000}
    made = Quorum(tmp_path_factory.mktemp("on-call"), (1, 2, 3), **settings)
    try:
        made.form()
        yield made
    finally:
        made.kill()


def leader_of(quorum: Quorum) -> Node:
    status = quorum.until("a leader", lambda found: found["leaderId"] > 0)
    return quorum.nodes[status["leaderId"]]


def lines(node: Node, text: str) -> list[str]:
    """The lines of a node's log that contain `text`, without time and context."""
    found = re.findall(r"^[\d-]+ [\d:,]+ ([A-Z]+) \[[^]]*\] (.*)$", node.said(), re.MULTILINE)
    return [f"{level} {message}" for level, message in found if text in message]


def test_the_leader_logs_brokers_and_topics(trio: Quorum) -> None:
    ask = ("--bootstrap-controller", trio.addresses)
    where = f"broker {BROKER} at {HOST}:{9000 + BROKER}"
    with brokers(trio.addresses, BROKER):
        succeed("topics", *ask, "create", "--topic", "orders", "--partitions", 2)
        succeed("topics", *ask, "delete", "--topic", "orders")
    leader = leader_of(trio)
    leader.wait_said(f"{where} fenced")
    succeed("cluster", *ask, "unregister", "--id", BROKER)
    leader.wait_said(f"{where} unregistered")
    found = lines(leader, where)
    assert re.fullmatch(rf"INFO {where} registered, with epoch \d+", found[0])
    assert f"INFO {where} unfenced" in found
    assert f"WARNING {where} fenced: no heartbeat for {SESSION_S} s" in found
    created, deleted = lines(leader, "topic orders")
    assert re.fullmatch(r"INFO topic orders created: id \S{22}, 2 partitions", created)
    assert re.fullmatch(r"INFO topic orders deleted: id \S{22}", deleted)
    for node in trio.nodes.values():
        assert node is leader or not lines(node, where) + lines(node, "topic orders")


def test_the_log_level_changes_while_a_controller_runs(trio: Quorum) -> None:
    leader = leader_of(trio)
    others = [node for node in trio.nodes.values() if node is not leader]
    alter = ("configs", "--bootstrap-controller", trio.addresses, "alter", "--broker", leader.id)
    succeed(*alter, "--add-config", "quorate.log.level=debug")
    leader.wait_said("quorate.log.level is debug from now on")
    succeed(*alter, "--delete-config", "quorate.log.level")
    leader.wait_said("quorate.log.level is info from now on")
    assert not any(lines(node, "quorate.log.level") for node in others)


def test_a_voter_is_lost_and_returns(trio: Quorum) -> None:
    leader = leader_of(trio)
    victim = next(node for node in trio.nodes.values() if node is not leader)
    health = ("health", "--bootstrap-controller", trio.addresses)
    found = succeed(*health, "--json").json()
    assert (found["status"], found["caughtUp"]) == ("healthy", 3)
    known = len(lines(leader, "lost voter"))

    victim.kill()
    lost = f"lost voter {victim.id} at {victim.address}: last fetch "
    until("the loss is logged", lambda: len(lines(leader, lost)) > known)
    line = lines(leader, lost)[-1]
    assert line.startswith("WARNING ")
    assert "refused" in line, "why it cannot be reached"
    assert line.endswith("; 2 of 3 voters remain, a commit needs 2")

    ran = here(*health)
    assert ran.status == 0
    assert re.fullmatch(
        rf"degraded: leader {leader.id} in epoch \d+, 2 of 3 voters caught up; "
        rf"voter {victim.id} at {victim.address} is offline, last fetch \d+\.\d s ago\n",
        ran.out,
    ), ran.out
    assert here(*health, "--strict").status == 1
    text = succeed(*trio.ask, "describe", "--status").out
    assert re.search(
        rf"^OfflineVoters: +{victim.id} \(last fetch \d+ ms ago\)$", text, re.MULTILINE
    )
    rows = succeed(*trio.ask, "describe", "--replication").out.splitlines()
    assert {row.split()[0]: row.split()[-1] for row in rows}[str(victim.id)] == "Offline"

    victim.start()
    leader.wait_said(f"voter {victim.id} at {victim.address} fetches again, after ")
    until("all is well", lambda: here(*health).out.startswith("healthy: "))
    assert "State" not in succeed(*trio.ask, "describe", "--replication").out


def test_without_a_majority_the_survivor_says_why(trio: Quorum) -> None:
    """It ends the quorum."""
    leader = leader_of(trio)
    follower, survivor = (node for node in trio.nodes.values() if node is not leader)
    for node in (leader, follower):
        node.kill()
    survivor.wait_said("cannot elect a leader for epoch ")
    line = lines(survivor, "cannot elect a leader")[-1]
    first, second = sorted((leader, follower), key=lambda node: node.id)
    missing = f"no response from voters {first.id} at {first.address}, {second.id} at "
    assert line.startswith("WARNING ")
    assert missing in line
    assert "refused" in line
    assert line.endswith("; 1 of the 2 votes needed")

    health = ("health", "--bootstrap-controller", trio.addresses, "--timeout", 3)
    ran = quorate(*health)
    assert (ran.status, ran.err) == (1, "")
    assert ran.out.startswith("unavailable: ")
    assert "2 of the 3 voters are running" in ran.out
    assert here(*health, "--json").json()["status"] == "unavailable"
    survivor.kill()
    ran = here(*health)
    assert ran.status == 1
    assert re.match(r"unavailable: cannot reach any node|unavailable: no ", ran.out), ran
