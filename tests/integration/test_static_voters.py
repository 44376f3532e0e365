"""KIP-853 "Upgrade KRaft protocol": three static voters become a quorum whose voters can change.

At kraft.version 0 the voters are those of controller.quorum.voters: ids and addresses, and nothing
of them in the log. The upgrade writes KRaftVersion and VotersRecord with everyone's directory id,
once everyone has reported it; from then on the setting is ignored, and can go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from quorate.rpc.client.quorum_client import QuorumClient

from tests.integration.conftest import Start, append
from tests.integration.metadata_support import brokers
from tests.integration.support import (
    CLUSTER,
    FIRST_SEGMENT,
    Node,
    Quorum,
    answered,
    assert_clean,
    assert_error,
    here,
    quorate,
    succeed,
    until,
    voters,
)

IDS = (1, 2, 3)
FETCH_TIMEOUT_MS = 5_000
"""So long that a stalled machine causes no election: what a stopped leader does not hand over is
noticed by refused connections.
"""
TIMEOUT_S = 2
SLACK_S = 4
"""What a command may take beyond its timeout on a busy machine."""


@pytest.fixture
def static(tmp_path: Path) -> Iterator[Quorum]:
    """Three controllers with controller.quorum.voters alone, formatted without any mode."""
    quorum = Quorum(
        tmp_path,
        IDS,
        **{
            "controller.quorum.election.timeout.ms": 300,
            "controller.quorum.fetch.timeout.ms": FETCH_TIMEOUT_MS,
        },
    )
    listed = ",".join(f"{node.id}@{node.address}" for node in quorum.nodes.values())
    for node in quorum.nodes.values():
        node.configure(
            {"controller.quorum.voters": listed, "controller.quorum.bootstrap.servers": None}
        )
        succeed("storage", "format", "-t", CLUSTER, "-c", node.properties)
        node.start()
    yield quorum
    quorum.kill()


def in_the_log(node: Node, kind: str) -> list[dict[str, Any]]:
    """The control records of a kind in a controller's log, as `dump-log` shows them."""
    files = ("--files", node.data / FIRST_SEGMENT)
    dumped = succeed("dump-log", *files, "--deep-iteration", "--json").json()
    records = (record for batch in dumped[0]["batches"] for record in batch["records"])
    controls = (record["control"] for record in records if "control" in record)
    return [control["data"] for control in controls if control["type"] == kind]


def directories(record: dict[str, Any]) -> dict[int, str]:
    return {voter["voterId"]: voter["voterDirectoryId"] for voter in record["voters"]}


async def _count(addresses: list[str]) -> int:
    async with QuorumClient(addresses) as client:
        return len([record async for record in client.read(0)])


def write_five(quorum: Quorum, already: int) -> int:
    """Append five records; return how many there are, all of which can be read."""
    addresses = quorum.addresses.split(",")
    asyncio.run(append(addresses[0], 5))
    assert asyncio.run(_count(addresses)) == already + 5
    return already + 5


def finalized(quorum: Quorum) -> int:
    described = succeed(*quorum.features, "describe", "--json").json()
    levels = {each["feature"]: each["finalizedVersionLevel"] for each in described}
    return int(levels["kraft.version"])


@pytest.mark.slow
def test_static_voters_become_dynamic(static: Quorum, make_node: Start) -> None:
    known = {node.id: node.directory_id for node in static.nodes.values()}
    everyone = static.until("three voters", lambda s: all(voters(s).values()))
    assert voters(everyone) == known, "the leader knows who fetches"
    assert everyone["kraftVersion"] == 0
    assert "CommittedVoters" not in succeed(*static.ask, "describe", "--status").out
    assert finalized(static) == 0
    written = write_five(static, 0)

    _one_restarts(static, static.nodes[everyone["leaderId"] % 3 + 1])
    written = write_five(static, written)
    _changes_are_refused(static, make_node(4))
    for node in static.nodes.values():
        assert in_the_log(node, "KRaftVoters") == []

    absent = _lead_where_one_was_never_heard_of(static)
    _upgrade_names_who_has_not_reported(static, absent)
    _upgrade_waits_for_it(static, absent)
    written = write_five(static, written)
    after = static.until("directory ids", lambda s: s["kraftVersion"] == 1)
    assert voters(after) == known
    assert finalized(static) == 1
    for node in static.nodes.values():
        until("the upgrade", partial(in_the_log, node, "KRaftVersion"))
        assert in_the_log(node, "KRaftVersion") == [{"version": 0, "kRaftVersion": 1}]
        assert [directories(record) for record in in_the_log(node, "KRaftVoters")] == [known]

    _a_voter_goes_and_comes(static, absent)
    ran = here(*static.features, "downgrade", "-f", "kraft.version=0")
    assert_error(ran, "1 out of 1 operation(s) failed.")
    assert ran.out.startswith("Could not downgrade kraft.version to 0. INVALID_UPDATE_VERSION: ")
    assert finalized(static) == 1
    write_five(static, written)
    for node in static.nodes.values():
        assert_clean(node.said())


@pytest.mark.slow
def test_an_upgrade_asks_the_brokers(static: Quorum) -> None:
    """One that registered without naming kraft.version knows version 0 alone."""
    static.until("three voters", lambda s: all(voters(s).values()))
    upgrade = (*static.features, "upgrade", "--feature", "kraft.version=1")
    with brokers(static.addresses, 101):
        ran = here(*upgrade)
        assert_error(ran, "1 out of 1 operation(s) failed.")
        assert ran.out == (
            "Could not upgrade kraft.version to 1. INVALID_UPDATE_VERSION: "
            "brokers [101] do not support kraft.version 1\n"
        )
    assert finalized(static) == 0
    succeed("cluster", "unregister", "--bootstrap-controller", static.addresses, "--id", 101)
    assert here(*upgrade).out == "kraft.version was upgraded to 1.\n"


def _one_restarts(quorum: Quorum, node: Node) -> None:
    """A follower comes back, as the same replica."""
    assert node.stop() == 0
    node.start()
    # The leader still knows its offset from before: only its own word says that it is back.
    node.wait_said("listens on")
    quorum.until(
        "it follows",
        lambda s: voters(s)[node.id] == node.directory_id and s["maxFollowerLag"] == 0,
    )


def _changes_are_refused(quorum: Quorum, another: Node) -> None:
    another.configure({"controller.quorum.bootstrap.servers": quorum.addresses})
    another.format("--no-initial-controllers")
    for change in (("add-controller", "-c", another.properties), ("remove-controller", "-i", 3)):
        assert_error(here(*quorum.ask, *change), "UNSUPPORTED_VERSION", "kraft.version 1")


def _lead_where_one_was_never_heard_of(quorum: Quorum) -> Node:
    """Stop a follower, then let an epoch begin whose leader it has told nothing."""
    before = quorum.until("a leader", lambda s: s["leaderId"] in IDS)
    absent, target = (quorum.nodes[i] for i in IDS if i != before["leaderId"])
    assert absent.stop() == 0
    # On a busy machine the old leader may be the faster one, which is as good here.
    here(*quorum.ask, "transfer-leadership", "-i", target.id)
    quorum.until(
        "a new epoch",
        lambda s: s["leaderEpoch"] > before["leaderEpoch"] and s["leaderId"] in IDS,
    )
    return absent


def _upgrade_names_who_has_not_reported(quorum: Quorum, absent: Node) -> None:
    upgrade = (*quorum.features, "upgrade", "--feature", "kraft.version=1")
    ran = answered(*upgrade, "--timeout", TIMEOUT_S)
    assert_error(ran, "1 out of 1 operation(s) failed.")
    assert ran.out == (
        "Could not upgrade kraft.version to 1. REQUEST_TIMED_OUT: timed out: "
        f"voters [{absent.id}] have not reported their directory ids and versions\n"
    )
    assert TIMEOUT_S <= ran.seconds < TIMEOUT_S + SLACK_S
    assert finalized(quorum) == 0


def _upgrade_waits_for_it(quorum: Quorum, absent: Node) -> None:
    """Asked while it is down: done as soon as it has come back and told."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(quorate, *quorum.features, "upgrade", "-f", "kraft.version=1")
        absent.start()
        ran = asked.result()
    assert (ran.status, ran.out, ran.err) == (0, "kraft.version was upgraded to 1.\n", "")


def _a_voter_goes_and_comes(quorum: Quorum, node: Node) -> None:
    """Removed, restarted without controller.quorum.voters ("When to remove
    controller.quorum.voters"), and added again.
    """
    succeed(*quorum.ask, "remove-controller", "-i", node.id, "-d", node.directory_id)
    quorum.until_voters(*(i for i in IDS if i != node.id))
    assert node.stop() == 0
    node.configure(
        {
            "controller.quorum.voters": None,
            "controller.quorum.bootstrap.servers": quorum.addresses,
        }
    )
    node.start()
    succeed(*quorum.ask, "add-controller", "-c", node.properties)
    quorum.until_voters(*IDS)
