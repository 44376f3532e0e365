"""Log lines about voters that are lost and return, and about elections that fail."""

from __future__ import annotations

import itertools
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from quorate.runtime.election_log import CHANGED_S, REPEAT_S, ElectionLog
from quorate.runtime.peer_contacts import PEERS_MAX, PeerContacts, plain_reason
from quorate.runtime.voter_watch import PERIOD_S, VoterWatch

from tests.unit.runtime.replicas import Replica, address, leader_of, trio, until, voters

TIMES: dict[str, Any] = {"election_timeout_ms": 200, "fetch_timeout_ms": 2_500}
"""A process that stands still for a second loses neither a leader nor a voter."""


class Said:
    """The lines of the quorum's log that contain a text."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG, "quorate.controller")
        self._caplog = caplog

    def __call__(self, text: str, level: int = logging.NOTSET) -> list[str]:
        return [
            record.getMessage()
            for record in self._caplog.records
            if text in record.getMessage() and level in (logging.NOTSET, record.levelno)
        ]


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Said:
    return Said(caplog)


def watch_of(replica: Replica) -> VoterWatch:
    elections = ElectionLog()
    elections.bind(replica.driver)
    return VoterWatch(replica.driver, elections)


def again(folder: Path, before: Replica) -> Replica:
    """The replica of a stopped one's directory."""
    members = voters(1, 2, 3)
    return Replica(folder / str(before.id), before.network, before.id, members=members, **TIMES)


async def test_a_voter_is_lost_once_and_returns_once(tmp_path: Path, said: Said) -> None:
    async with trio(tmp_path, **TIMES) as replicas:
        leader = await leader_of(replicas)
        watches = [watch_of(replica) for replica in replicas.values()]
        for watch in watches:
            watch.start()
        lost_id = next(each for each in replicas if each != leader.id)
        where = f"{lost_id} at 127.0.0.1:{9000 + lost_id}"
        before = replicas.pop(lost_id)
        await before.close()
        await until("the loss is logged", lambda: said("lost voter", logging.WARNING))
        (line,) = said("lost voter")
        assert re.fullmatch(
            rf"lost voter {where}: last fetch \d+\.\d s ago, nobody listens there; "
            r"2 of 3 voters remain, a commit needs 2",
            line,
        ), line
        replicas[lost_id] = again(tmp_path, before)
        replicas[lost_id].start()
        await until("the return is logged", lambda: said("fetches again", logging.INFO))
        (line,) = said("fetches again")
        assert re.fullmatch(rf"voter {where} fetches again, after \d+\.\d s", line), line
        for watch in watches:
            await watch.stop()
    assert len(said("lost voter")) == 1, "the followers have no say, and the leader says it once"


async def test_a_new_leader_misses_the_voter_that_never_fetched(tmp_path: Path, said: Said) -> None:
    async with trio(tmp_path, **TIMES) as replicas:
        leader = await leader_of(replicas)
        lost_id, next_id = (each for each in replicas if each != leader.id)
        leader.network.cut.add(lost_id)
        watch = watch_of(replicas[next_id])
        watch.start()
        while (await leader_of(replicas)).id != next_id:
            (await leader_of(replicas)).driver.resign("the test wants another leader")
            await until("it resigned", lambda: not leader.node.is_leader)
        await until("the loss is logged", lambda: said("lost voter"))
        (line,) = said("lost voter")
        assert f"lost voter {lost_id} at " in line
        assert "no fetch since this controller became the leader" in line
        await watch.stop()


async def test_a_pause_of_the_leader_is_no_loss_of_voters(tmp_path: Path, said: Said) -> None:
    """The fetches that came meanwhile are read only after the timer of the watch."""
    async with trio(tmp_path, **TIMES) as replicas:
        leader = await leader_of(replicas)
        watch = watch_of(leader)
        watch.look()
        now_ms = leader.driver.now_ms() + 10 * TIMES["fetch_timeout_ms"]
        leader.driver.now_ms = lambda: now_ms  # type: ignore[method-assign]
        watch.look()
        assert said("lost voter") == []
        watch.look()
        assert len(said("lost voter")) == 2
        assert said("lost voter")[1].endswith("; 1 of 3 voters remains, a commit needs 2")


async def test_why_no_leader_can_be_elected(tmp_path: Path, said: Said) -> None:
    now_s = [0.0]
    log = ElectionLog(lambda: now_s[0])
    async with trio(tmp_path, **TIMES) as replicas:
        await leader_of(replicas)
        survivor = replicas[3]
        log.bind(survivor.driver)
        survivor.on_role = log.role_changed
        closed = [replicas.pop(each) for each in (1, 2)]
        for each in closed:
            await each.close()
        await until("it says why", lambda: said("cannot elect", logging.WARNING))
        why = (
            "no response from voters 1 at 127.0.0.1:9001, 2 at 127.0.0.1:9002: nobody listens there"
        )
        (line,) = said("cannot elect")
        assert re.fullmatch(
            rf"cannot elect a leader for epoch \d+: {why}; 1 of the 2 votes needed", line
        ), line
        assert said(f"({why})", logging.INFO), "the first failure is part of its role change"
        known = len(survivor.roles)
        quiet = len(said(" epoch ", logging.INFO))
        await until("further elections fail", lambda: len(survivor.roles) > known + 4)
        assert len(said("cannot elect")) == 1
        assert len(said(" epoch ", logging.INFO)) == quiet
        now_s[0] += REPEAT_S
        await until("it says so again", lambda: len(said("cannot elect")) == 2)
        replicas[1] = again(tmp_path, closed[0])
        replicas[1].start()
        await leader_of(replicas)
        watch = VoterWatch(survivor.driver, log)
        watch.start()
        await until("the leader is logged", lambda: len(said(" epoch ", logging.INFO)) > quiet)
        await watch.stop()


async def test_a_denied_vote_is_no_missing_response(tmp_path: Path, said: Said) -> None:
    """Voter 2 has a record that 3 lacks, and its disk keeps it from standing."""
    async with trio(tmp_path, **TIMES, request_timeout_ms=300) as replicas:
        leader = await leader_of(replicas)
        denying_id, denied_id = (each for each in replicas if each != leader.id)
        network, survivor = leader.network, replicas[denied_id]
        ticks = itertools.count(step=CHANGED_S)
        log = ElectionLog(lambda: next(ticks))
        log.bind(survivor.driver)
        survivor.on_role = log.role_changed
        network.cut.add(denied_id)
        await leader.commit()
        replicas[denying_id].node.core.log_is_stalled = True
        await replicas.pop(leader.id).close()
        network.cut.clear()
        why = f"voter {denying_id} at 127.0.0.1:{9000 + denying_id} denied the vote"
        await until("it says why", lambda: said(f"; {why}; 1 of the 2", logging.WARNING))
        missing = f"no response from voter {leader.id} at "
        assert all(missing in line for line in said(f"; {why}; 1 of the 2"))


def test_contacts_are_bounded_and_forget_the_oldest() -> None:
    contacts = PeerContacts()
    peers = [address(node_id) for node_id in range(PEERS_MAX + 1)]
    for at_ms, peer in enumerate(peers):
        contacts.note(peer, at_ms, "refused")
    assert contacts.since(0).keys() == set(peers[1:])
    assert peers[5] not in contacts.since(6), "that was before"
    contacts.note(peers[5], 100)
    assert contacts.since(6)[peers[5]].failure == ""


@pytest.mark.parametrize(
    ("failure", "shown"),
    [
        ("a:1: Connection refused", "connection refused"),
        ("b:1: Connection refused", "b:1: Connection refused"),
        ("a:1: SSL_ERROR_SSL: x", "SSL_ERROR_SSL: x"),
        ("", ""),
    ],
)
def test_a_reason_does_not_repeat_the_address(failure: str, shown: str) -> None:
    assert plain_reason(failure, "a:1") == shown


def test_the_watch_looks_often_enough() -> None:
    assert TIMES["fetch_timeout_ms"] > 2 * 1000 * PERIOD_S
