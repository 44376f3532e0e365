"""The commands that talk to a quorum, with two real controllers on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from quorate.cli.main import main
from quorate.log.meta_properties import MetaProperties
from quorate.raft.types import Endpoint, ReplicaKey
from quorate.rpc.client.quorum_client import AdminError, QuorumClient

ROOT = Path(__file__).resolve().parents[3]
CLUSTER = "yFPgY5iXQYqr5sMxfdxu0Q"
START_TIMEOUT_S = 30.0
SLOW_MS = 8_000
"""A fetch timeout that lets a leader without followers lead for twelve seconds."""
SILENT_S = 2.5
"""After that a voter that does not fetch is named."""


class Ran(NamedTuple):
    status: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: object) -> Ran:
        status = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return run


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Quorum:
    """Controllers 1 and 2: processes of their own, one directory each."""

    def __init__(self, directory: Path, fetch_timeout_ms: int) -> None:
        self.ports = dict(zip((1, 2), free_ports(2), strict=True))
        self.servers = ",".join(f"127.0.0.1:{port}" for port in self.ports.values())
        self.directory = directory
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        for node, port in self.ports.items():
            self.properties(node).write_text(
                f"process.roles=controller\nnode.id={node}\n"
                f"controller.quorum.bootstrap.servers={self.servers}\n"
                "controller.listener.names=CONTROLLER\n"
                f"listeners=CONTROLLER://127.0.0.1:{port}\nlog.dirs={directory}/{node}\n"
                "controller.quorum.election.timeout.ms=300\n"
                f"controller.quorum.fetch.timeout.ms={fetch_timeout_ms}\n"
            )

    def properties(self, node: int) -> Path:
        return self.directory / f"{node}.properties"

    def directory_id(self, node: int) -> str:
        directory_id = MetaProperties.read(self.directory / str(node)).directory_id
        assert directory_id is not None
        return directory_id

    def endpoint(self, node: int) -> str:
        return f"CONTROLLER://127.0.0.1:{self.ports[node]}"

    def start(self, node: int) -> None:
        python_path = os.pathsep.join([str(ROOT / "services"), os.environ.get("PYTHONPATH", "")])
        with (self.directory / f"{node}.log").open("ab") as log:
            self.processes[node] = subprocess.Popen(
                [sys.executable, "-m", "quorate.cli.main", "controller", self.properties(node)],
                env=dict(os.environ, PYTHONPATH=python_path),
                stdout=log,
                stderr=log,
            )

    def stop(self, node: int) -> int:
        process = self.processes.pop(node)
        process.send_signal(signal.SIGTERM)
        return process.wait(20)


@pytest.fixture
def quorum(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Quorum]:
    """Its parameter is the fetch timeout in milliseconds."""
    quorum = Quorum(tmp_path, getattr(request, "param", 600))
    for node, how in ((1, "--standalone"), (2, "--no-initial-controllers")):
        line = ["storage", "format", "-t", CLUSTER, "-c", str(quorum.properties(node)), how]
        assert main(line) == 0
    try:
        for node in (1, 2):
            quorum.start(node)
        yield quorum
    finally:
        for process in quorum.processes.values():
            process.kill()
            process.wait()


def until(quorum: Quorum, run: Run, *, observers: int) -> dict[str, object]:
    """Wait for a leader that knows this many observers; its status."""
    line = ("metadata-quorum", "--bootstrap-controller", quorum.servers, "describe", "--status")
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        ran = run(*line, "--json")
        if ran.status == 0:
            status: dict[str, object] = json.loads(ran.out)
            found = status["currentObservers"]
            assert isinstance(found, list)
            if len(found) == observers:
                return status
        time.sleep(0.2)
    logs = "\n".join(path.read_text() for path in sorted(quorum.directory.glob("*.log")))
    pytest.fail(f"no such state within {START_TIMEOUT_S} s; the controllers said:\n{logs}")


@pytest.mark.timeout(240)
def test_a_voter_comes_and_goes(quorum: Quorum, run: Run) -> None:
    ask = ("metadata-quorum", "--bootstrap-controller", quorum.servers)
    status = until(quorum, run, observers=1)
    assert status["leaderId"] == 1
    assert status["clusterId"] == CLUSTER

    # The text has Kafka's lines, and the address may come after the subcommand too.
    ran = run("metadata-quorum", "describe", "--status", *ask[1:])
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
    assert f'"endpoints": ["{quorum.endpoint(2)}"]' in ran.out

    second = quorum.directory_id(2)
    rest = f"controller 2 with directory id {second} and endpoints: {quorum.endpoint(2)}\n"
    add = (*ask, "add-controller", "-c", quorum.properties(2))
    assert run(*add, "--dry-run") == Ran(0, f"DRY RUN of adding {rest}", "")
    assert run(*add) == Ran(0, f"Added {rest}", "")
    again = run(*add)
    assert (again.status, again.out) == (1, "")
    assert "DUPLICATE_VOTER" in again.err

    ran = run(*ask, "describe", "--replication")
    assert re.search(rf"^2 +\t{second}\t.*\tFollower\t$", ran.out, re.MULTILINE)
    assert re.search(r"\d+ ms ago", run(*ask, "describe", "--replication", "--human-readable").out)
    rows = json.loads(run(*ask, "describe", "--replication", "--json").out)
    assert [row["nodeId"] for row in rows] == [1, 2]

    ran = run(*ask, "transfer-leadership", "-i", "2")
    said = f"Leadership moved to controller 2 with directory id {second}\n"
    assert ran == Ran(0, said, "")
    assert until(quorum, run, observers=0)["leaderId"] == 2

    features = ("features", "--bootstrap-controller", quorum.servers)
    assert "\nFeature: kraft.version   " in run(*features, "describe").out
    described = json.loads(run(*features, "describe", "--json").out)
    levels = {each["feature"]: each["finalizedVersionLevel"] for each in described}
    assert (levels["kraft.version"], levels["metadata.version"]) == (1, 0)
    upgraded = Ran(0, "kraft.version was upgraded to 1.\n", "")
    assert run(*features, "upgrade", "--feature", "kraft.version=1") == upgraded
    ran = run(*features, "downgrade", "--feature", "kraft.version=0")
    assert ran.status == 1
    assert ran.out.startswith("Could not downgrade kraft.version to 0. ")
    assert ran.err == "quorate: error: 1 out of 1 operation(s) failed.\n"

    ran = run(*ask, "remove-controller", "-i", "7")
    assert ran.status == 1
    assert "controller 7 is not a voter; the voters are 1-" in ran.err
    first = quorum.directory_id(1)
    remove = (*ask, "remove-controller", "-i", "1")
    rest = f"KRaft controller 1 with directory id {first}\n"
    assert run(*remove, "--dry-run") == Ran(0, f"DRY RUN of removing {rest}", "")
    assert run(*remove, "-d", first) == Ran(0, f"Removed {rest}", "")
    ran = run(*ask, "remove-controller", "-i", "2")
    assert ran.status == 1, "the last voter cannot go"
    assert quorum.stop(1) == 0
    assert quorum.stop(2) == 0


@pytest.mark.timeout(240)
def test_without_a_leader(quorum: Quorum, run: Run) -> None:
    ask = ("metadata-quorum", "--bootstrap-controller", quorum.servers)
    until(quorum, run, observers=1)
    assert run(*ask, "add-controller", "-c", quorum.properties(2)).status == 0
    quorum.processes[1].kill()
    ran = run(*ask, "describe", "--status")
    assert ran.status == 1
    assert "LeaderId:               -1\n" in ran.out
    assert '"id": 2' in ran.out
    assert re.fullmatch(r"quorate: error: [^\n]+\n", ran.err)
    assert "A leader can be elected once 2 of the 2 voters are running and connected" in ran.err
    assert f"(the output above is the view of 127.0.0.1:{quorum.ports[2]})" in ran.err
    ran = run(*ask, "remove-controller", "-i", "1")
    assert (ran.status, ran.out) == (1, "")
    ran = run(*ask, "describe", "--status", "--json")
    assert json.loads(ran.out)["leaderId"] == -1


@pytest.mark.timeout(240)
@pytest.mark.parametrize("quorum", [SLOW_MS], indirect=True)
def test_a_change_that_is_not_done_in_time_may_still_be(quorum: Quorum, run: Run) -> None:
    """The other voter hangs: the leader keeps its leadership, and its removal cannot commit."""
    ask = ("metadata-quorum", "--bootstrap-controller", quorum.servers)
    until(quorum, run, observers=1)
    assert run(*ask, "add-controller", "-c", quorum.properties(2)).status == 0
    quorum.processes[2].send_signal(signal.SIGSTOP)
    # Only the leader is asked: looking for it at the voter that hangs would take the whole second.
    leader = ("metadata-quorum", "--bootstrap-controller", f"127.0.0.1:{quorum.ports[1]}")
    ran = run(
        *leader, "transfer-leadership", "-i", "2", "-d", quorum.directory_id(2), "--timeout", 1
    )
    assert (ran.status, ran.out) == (1, "")
    assert "1 still leads" in ran.err
    assert "may still" not in ran.err
    ran = run(*leader, "remove-controller", "-i", "1", "-d", quorum.directory_id(1), "--timeout", 1)
    assert (ran.status, ran.out) == (1, "")
    assert "The change may still take effect: check with" in ran.err
    quorum.processes[2].send_signal(signal.SIGCONT)


@pytest.mark.timeout(240)
def test_a_change_is_dropped_when_its_client_disconnects(quorum: Quorum, run: Run) -> None:
    """Eight AddVoters fill the leader's queue; when their clients are gone there is room."""
    until(quorum, run, observers=1)
    nowhere = [Endpoint("CONTROLLER", "127.0.0.1", free_ports(1)[0])]

    def key(node: int) -> ReplicaKey:
        return ReplicaKey(node, CLUSTER)

    async def asked() -> tuple[str, str]:
        servers = [f"127.0.0.1:{quorum.ports[1]}"]
        async with QuorumClient(servers) as one, QuorumClient(servers) as other:
            tasks = [
                asyncio.create_task(one.add_voter(key(node), nowhere, timeout_ms=60_000))
                for node in range(10, 18)
            ]
            await asyncio.sleep(2)
            with pytest.raises(AdminError) as full:
                await other.add_voter(key(18), nowhere, timeout_ms=500)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with pytest.raises(AdminError) as free:
                await other.add_voter(key(18), nowhere, timeout_ms=3_000)
            return str(full.value), str(free.value)

    full, free = asyncio.run(asked())
    assert "THROTTLING_QUOTA_EXCEEDED: 8 AddVoter requests are pending already" in full
    assert "timed out while waiting for the voter to answer on its endpoint" in free


@pytest.mark.timeout(240)
@pytest.mark.parametrize("quorum", [SLOW_MS], indirect=True)
def test_a_forced_removal_names_the_voters_that_must_come_back(quorum: Quorum, run: Run) -> None:
    ask = ("metadata-quorum", "--bootstrap-controller", quorum.servers)
    until(quorum, run, observers=1)
    assert run(*ask, "add-controller", "-c", quorum.properties(2)).status == 0
    remove = (*ask, "remove-controller", "-i", "1", "-d", quorum.directory_id(1))
    ran = run(*remove, "--yes")
    assert (ran.status, ran.out) == (2, "")
    assert "--yes is only supported along with --force" in ran.err
    # Nothing is asked while the voters that remain fetch.
    ran = run(*remove, "--force", "--dry-run")
    assert (ran.status, ran.err) == (0, "")

    quorum.processes[2].send_signal(signal.SIGSTOP)
    time.sleep(SILENT_S)
    # Standard input has no answer to the question.
    ran = run(*remove, "--force")
    assert (ran.status, ran.out.strip()) == (1, "")
    assert "1 of the 1 remaining voters do not fetch: 2 (" in ran.err
    assert quorum.directory_id(2) in ran.err
    assert "until 1 of them comes back" in ran.err
    quorum.processes[2].send_signal(signal.SIGCONT)
    assert until(quorum, run, observers=0)["leaderId"] in (1, 2)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("quorum", [SLOW_MS], indirect=True)
def test_a_forced_removal_commits_when_the_voters_are_back(quorum: Quorum, run: Run) -> None:
    ask = ("metadata-quorum", "--bootstrap-controller", quorum.servers)
    until(quorum, run, observers=1)
    assert run(*ask, "add-controller", "-c", quorum.properties(2)).status == 0
    quorum.processes[2].send_signal(signal.SIGSTOP)
    time.sleep(SILENT_S)
    leader = ("metadata-quorum", "--bootstrap-controller", f"127.0.0.1:{quorum.ports[1]}")
    remove = (*leader, "remove-controller", "-i", "1", "-d", quorum.directory_id(1))
    ran = run(*remove, "--force", "--yes", "--timeout", 1)
    quorum.processes[2].send_signal(signal.SIGCONT)
    assert ran.status == 1, "it cannot commit yet"
    status = until(quorum, run, observers=1)
    found = status["currentVoters"]
    assert isinstance(found, list)
    assert [voter["id"] for voter in found] == [2]


@pytest.mark.timeout(240)
def test_a_controller_of_another_cluster_is_not_added(
    quorum: Quorum, run: Run, tmp_path: Path
) -> None:
    until(quorum, run, observers=1)
    other = tmp_path / "other.properties"
    other.write_text(
        quorum.properties(2).read_text().replace("node.id=2", "node.id=3") + "log.dirs=o\n"
    )
    text = other.read_text().replace("log.dirs=o\n", f"log.dirs={tmp_path}/o\n")
    other.write_text(text)
    assert run("storage", "format", "-t", "B" * 22, "-c", other, "-N").status == 0
    ran = run("metadata-quorum", "add-controller", "-c", other)
    assert (ran.status, ran.out) == (1, "")
    assert f"formatted for cluster {'B' * 22}" in ran.err
