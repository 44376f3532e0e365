"""The commands that talk to a quorum, with two real controllers on loopback."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from quorate.common.endpoints import Endpoint
from quorate.raft.types import ReplicaKey
from quorate.rpc.client.quorum_client import AdminError, QuorumClient

from tests.integration.support import (
    CLUSTER,
    HOST,
    OTHER_CLUSTER,
    Node,
    Quorum,
    Ran,
    assert_error,
    free_ports,
    here,
)

SLOW_MS = 8_000
"""A fetch timeout that lets a leader without followers lead for twelve seconds."""
SILENT_S = 2.5
"""After that a voter that does not fetch is named."""
ATTEMPTS = 5


@pytest.fixture
def quorum(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Quorum]:
    """Controllers 1, the only voter, and 2. Its parameter is the fetch timeout in milliseconds."""
    quorum = Quorum(
        tmp_path,
        (1, 2),
        **{
            "controller.quorum.election.timeout.ms": 300,
            "controller.quorum.fetch.timeout.ms": getattr(request, "param", 600),
        },
    )
    for node_id, how in ((1, "--standalone"), (2, "--no-initial-controllers")):
        quorum.nodes[node_id].format(how)
    try:
        for node in quorum.nodes.values():
            node.start()
        yield quorum
    finally:
        quorum.kill()


def until(quorum: Quorum, *, observers: int) -> dict[str, Any]:
    """Wait for a leader that knows this many observers; its status."""
    return quorum.until(
        f"{observers} observers", lambda status: len(status["currentObservers"]) == observers
    )


@pytest.mark.timeout(240)
@pytest.mark.parametrize("quorum", [SLOW_MS], indirect=True)
def test_a_voter_comes_and_goes(quorum: Quorum, tmp_path: Path) -> None:
    ask = quorum.ask
    status = until(quorum, observers=1)
    assert status["leaderId"] == 1
    assert status["clusterId"] == CLUSTER

    # The text has Kafka's lines, and the address may come after the subcommand too.
    ran = here("metadata-quorum", "describe", "--status", *ask[1:])
    assert [line.split(":")[0] for line in ran.out.splitlines()] == [
        "ClusterId",
        "LeaderId",
        "LeaderEpoch",
        "HighWatermark",
        "MaxFollowerLag",
        "MaxFollowerLagTimeMs",
        "CurrentVoters",
        "CurrentObservers",
    ]
    assert f'"endpoints": ["{quorum.nodes[2].endpoint}"]' in ran.out

    second = quorum.nodes[2].directory_id
    rest = f"controller 2 with directory id {second} and endpoints: {quorum.nodes[2].endpoint}\n"
    add = (*ask, "add-controller", "-c", quorum.nodes[2].properties)
    assert here(*add, "--dry-run") == Ran(0, f"DRY RUN of adding {rest}", "")
    foreign = Node(tmp_path, 17, free_ports(1)[0])
    foreign.format("--no-initial-controllers", OTHER_CLUSTER)
    ran = here(*ask, "add-controller", "-c", foreign.properties, "--dry-run")
    assert_error(ran, f"was formatted for cluster {OTHER_CLUSTER}")
    assert here(*add) == Ran(0, f"Added {rest}", "")
    assert_error(here(*add, "--dry-run"), "would be rejected", "is a voter already")
    again = here(*add)
    assert (again.status, again.out) == (1, "")
    assert "DUPLICATE_VOTER" in again.err

    ran = here(*ask, "describe", "--replication")
    assert re.search(rf"^2 +\t{second}\t.*\tFollower\t$", ran.out, re.MULTILINE)
    assert re.search(r"\d+ ms ago", here(*ask, "describe", "--replication", "--human-readable").out)
    rows = json.loads(here(*ask, "describe", "--replication", "--json").out)
    assert [row["nodeId"] for row in rows] == [1, 2]

    ran = here(*ask, "transfer-leadership", "-i", "2")
    said = f"Leadership moved to controller 2 with directory id {second}\n"
    assert ran == Ran(0, said, "")
    assert until(quorum, observers=0)["leaderId"] == 2

    features = quorum.features
    assert "\nFeature: kraft.version   " in here(*features, "describe").out
    described = json.loads(here(*features, "describe", "--json").out)
    levels = {each["feature"]: each["finalizedVersionLevel"] for each in described}
    assert (levels["kraft.version"], levels["metadata.version"]) == (1, 0)
    upgraded = Ran(0, "kraft.version was upgraded to 1.\n", "")
    assert here(*features, "upgrade", "--feature", "kraft.version=1") == upgraded
    ran = here(*features, "downgrade", "--feature", "kraft.version=0")
    assert ran.status == 1
    assert ran.out.startswith("Could not downgrade kraft.version to 0. ")
    assert ran.err == "quorate: error: 1 out of 1 operation(s) failed.\n"

    ran = here(*ask, "remove-controller", "-i", "7")
    assert ran.status == 1
    assert "controller 7 is not a voter; the voters are 1-" in ran.err
    first = quorum.nodes[1].directory_id
    remove = (*ask, "remove-controller", "-i", "1")
    rest = f"KRaft controller 1 with directory id {first}\n"
    assert here(*remove, "--dry-run") == Ran(0, f"DRY RUN of removing {rest}", "")
    assert here(*remove, "-d", first) == Ran(0, f"Removed {rest}", "")
    for options in ((), ("--dry-run",)):
        ran = here(*ask, "remove-controller", "-i", "2", *options)
        assert_error(ran, "the last voter")
    assert quorum.nodes[1].stop() == 0
    assert quorum.nodes[2].stop() == 0


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_without_a_leader(quorum: Quorum) -> None:
    ask = quorum.ask
    until(quorum, observers=1)
    assert here(*ask, "add-controller", "-c", quorum.nodes[2].properties).status == 0
    quorum.nodes[1].kill()
    ran = here(*ask, "describe", "--status")
    assert ran.status == 1
    assert "LeaderId:               -1\n" in ran.out
    assert '"id": 2' in ran.out
    assert re.fullmatch(r"quorate: error: [^\n]+\n", ran.err)
    assert "A leader can be elected once 2 of the 2 voters are running and connected" in ran.err
    assert f"(the output above is the view of {quorum.nodes[2].address})" in ran.err
    ran = here(*ask, "remove-controller", "-i", "1")
    assert (ran.status, ran.out) == (1, "")
    ran = here(*ask, "describe", "--status", "--json")
    assert json.loads(ran.out)["leaderId"] == -1


@pytest.mark.timeout(240)
@pytest.mark.parametrize("quorum", [SLOW_MS], indirect=True)
def test_a_change_that_is_not_done_in_time_may_still_be(quorum: Quorum) -> None:
    """The other voter hangs: the leader keeps its leadership, and its removal cannot commit."""
    ask = quorum.ask
    until(quorum, observers=1)
    assert here(*ask, "add-controller", "-c", quorum.nodes[2].properties).status == 0
    quorum.nodes[2].pause()
    # Only the leader is asked: looking for it at the voter that hangs would take the whole second.
    leader = ("metadata-quorum", "--bootstrap-controller", quorum.nodes[1].address)
    first, second = (node.directory_id for node in quorum.nodes.values())
    ran = here(*leader, "transfer-leadership", "-i", "2", "-d", second, "--timeout", 1)
    assert (ran.status, ran.out) == (1, "")
    assert "1 still leads" in ran.err
    assert "may still" not in ran.err
    ran = here(*leader, "remove-controller", "-i", "1", "-d", first, "--timeout", 1)
    assert (ran.status, ran.out) == (1, "")
    assert "The change may still take effect: check with" in ran.err
    quorum.nodes[2].resume()


async def why_not_added(
    client: QuorumClient, voter: ReplicaKey, where: list[Endpoint], timeout_ms: int
) -> str:
    """Why the leader does not add a voter. Its response may be too late for the client."""
    text = ""
    for _ in range(ATTEMPTS):
        with pytest.raises(AdminError) as refused:
            await client.add_voter(voter, where, timeout_ms=timeout_ms)
        text = str(refused.value)
        if "no answer within" not in text:
            break
    return text


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_change_is_dropped_when_its_client_disconnects(quorum: Quorum) -> None:
    """Eight AddVoters fill the leader's queue; when their clients are gone there is room."""
    until(quorum, observers=1)
    nowhere = [Endpoint("CONTROLLER", HOST, free_ports(1)[0])]

    def key(node: int) -> ReplicaKey:
        return ReplicaKey(node, CLUSTER)

    async def asked() -> tuple[str, str]:
        servers = [quorum.nodes[1].address]
        async with QuorumClient(servers) as one, QuorumClient(servers) as other:
            tasks = [
                asyncio.create_task(one.add_voter(key(node), nowhere, timeout_ms=60_000))
                for node in range(10, 18)
            ]
            await other.describe_features()  # the next call needs no time to connect
            await asyncio.sleep(2)
            full = await why_not_added(other, key(18), nowhere, 1_500)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return full, await why_not_added(other, key(18), nowhere, 3_000)

    full, free = asyncio.run(asked())
    assert "THROTTLING_QUOTA_EXCEEDED: 8 AddVoter requests are pending already" in full
    assert "timed out while waiting for the voter to answer on its endpoint" in free


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("quorum", [SLOW_MS], indirect=True)
def test_a_forced_removal_names_the_voters_that_must_come_back(quorum: Quorum) -> None:
    ask = quorum.ask
    until(quorum, observers=1)
    assert here(*ask, "add-controller", "-c", quorum.nodes[2].properties).status == 0
    remove = (*ask, "remove-controller", "-i", "1", "-d", quorum.nodes[1].directory_id)
    ran = here(*remove, "--yes")
    assert (ran.status, ran.out) == (2, "")
    assert "--yes is only supported along with --force" in ran.err
    # Nothing is asked while the voters that remain fetch.
    ran = here(*remove, "--force", "--dry-run")
    assert (ran.status, ran.err) == (0, "")

    quorum.nodes[2].pause()
    time.sleep(SILENT_S)
    # Standard input has no answer to the question.
    ran = here(*remove, "--force")
    assert (ran.status, ran.out.strip()) == (1, "")
    assert "1 of the 1 remaining voters do not fetch: 2 (" in ran.err
    assert quorum.nodes[2].directory_id in ran.err
    assert "until 1 of them comes back" in ran.err
    quorum.nodes[2].resume()
    assert until(quorum, observers=0)["leaderId"] in (1, 2)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("quorum", [SLOW_MS], indirect=True)
def test_a_forced_removal_commits_when_the_voters_are_back(quorum: Quorum) -> None:
    ask = quorum.ask
    until(quorum, observers=1)
    assert here(*ask, "add-controller", "-c", quorum.nodes[2].properties).status == 0
    quorum.nodes[2].pause()
    time.sleep(SILENT_S)
    leader = ("metadata-quorum", "--bootstrap-controller", quorum.nodes[1].address)
    remove = (*leader, "remove-controller", "-i", "1", "-d", quorum.nodes[1].directory_id)
    ran = here(*remove, "--force", "--yes", "--timeout", 1)
    quorum.nodes[2].resume()
    assert ran.status == 1, "it cannot commit yet"
    status = until(quorum, observers=1)
    assert [voter["id"] for voter in status["currentVoters"]] == [2]


@pytest.mark.timeout(240)
def test_a_controller_of_another_cluster_is_not_added(quorum: Quorum, tmp_path: Path) -> None:
    until(quorum, observers=1)
    settings = {"controller.quorum.bootstrap.servers": quorum.addresses}
    other = Node(tmp_path, 3, free_ports(1)[0], **settings)
    other.format("--no-initial-controllers", OTHER_CLUSTER)
    ran = here("metadata-quorum", "add-controller", "-c", other.properties)
    assert (ran.status, ran.out) == (1, "")
    assert f"formatted for cluster {OTHER_CLUSTER}" in ran.err
