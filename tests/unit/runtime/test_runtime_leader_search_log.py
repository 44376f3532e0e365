"""Log lines of a replica that only fetches, and finds no leader."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from quorate.raft.types import VoterSet
from quorate.runtime.leader_search_log import PATIENCE_S, REPEAT_S, LeaderSearchLog

from tests.unit.runtime.replicas import Network, Replica, address, leader_of, until, voters

TIMES = {"election_timeout_ms": 200, "fetch_timeout_ms": 500, "retry_backoff_ms": 10}


class Looks:
    """A search whose clock a test moves. lines: what was logged."""

    def __init__(self, replica: Replica, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "quorate.runtime.leader_search_log")
        self._caplog = caplog
        self._replica = replica
        self._search = LeaderSearchLog(replica.driver, replica.failures.append)
        self._later_ms = 0

    def look(self, after_s: float = 0) -> list[str]:
        """Look after this time; the new lines, each with its level."""
        self._later_ms += int(after_s * 1000)
        known = len(self._caplog.records)
        self._search.look(self._replica.driver.now_ms() + self._later_ms)
        found = self._caplog.records[known:]
        return [f"{record.levelname}: {record.getMessage()}" for record in found]

    async def asks(self, count: int) -> None:
        """Wait until that many different nodes have responded, or are known not to."""
        contacts = self._replica.driver.contacts
        await until("it asks", lambda: len(contacts.since(0)) == count)


def observer(folder: Path, network: Network, members: VoterSet) -> Replica:
    return Replica(folder / "3", network, 3, members=members, **TIMES)


async def test_nobody_responds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    replica = observer(tmp_path, Network(), voters(1, 2))
    looks = Looks(replica, caplog)
    replica.start()
    assert looks.look() == []
    await looks.asks(2)
    assert looks.look() == [], "others may be starting"
    (line,) = looks.look(PATIENCE_S)
    assert line == (
        "WARNING: no leader found for 10 s: "
        "no response from 127.0.0.1:9001 and 127.0.0.1:9002: nobody listens there"
    )
    assert looks.look(REPEAT_S / 2) == [], "it has said so"
    assert len(looks.look(REPEAT_S / 2)) == 1
    await replica.close()


async def test_voters_without_a_leader_respond(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The reason changes when a voter starts, and the search ends when they elect a leader."""
    network = Network()
    replica = observer(tmp_path, network, voters(1, 2))
    looks = Looks(replica, caplog)
    replica.start()
    looks.look()
    await looks.asks(2)
    assert len(looks.look(PATIENCE_S)) == 1
    members = [Replica(tmp_path / "1", network, 1, members=voters(1, 2), **TIMES)]
    members[0].start()
    contacts = replica.driver.contacts
    await until("voter 1 responds", lambda: not contacts.since(0)[address(1)].failure)
    (line,) = looks.look(PATIENCE_S)
    assert line.endswith(
        "127.0.0.1:9001 did not name a leader that responds; "
        "no response from 127.0.0.1:9002: nobody listens there"
    )
    members.append(Replica(tmp_path / "2", network, 2, members=voters(1, 2), **TIMES))
    members[1].start()
    leader = await leader_of({each.id: each for each in members})
    await until("it is attached", lambda: replica.node.is_attached)
    (line,) = looks.look()
    assert line.startswith(f"INFO: leader {leader.id} found after ")
    assert looks.look(PATIENCE_S) == []
    for each in (replica, *members):
        await each.close()


async def test_nobody_is_known(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    replica = observer(tmp_path, Network(), VoterSet.of([]))
    looks = Looks(replica, caplog)
    replica.start()
    looks.look()
    (line,) = looks.look(PATIENCE_S)
    assert line.endswith(
        ": no other node has been asked. Check controller.quorum.bootstrap.servers"
    )
    await replica.close()


async def test_a_voter_that_can_be_elected_logs_elections_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replica = Replica(tmp_path / "1", Network(), 1, members=voters(1, 2), **TIMES)
    looks = Looks(replica, caplog)
    replica.start()
    looks.look()
    assert looks.look(PATIENCE_S) == []
    await replica.close()
