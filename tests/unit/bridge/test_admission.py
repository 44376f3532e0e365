"""Kafka's voters are served before the log admits them; its other nodes wait for that."""

from __future__ import annotations

import asyncio

import pytest
from quorate.bridge.listener.connections import KafkaConnection
from quorate.bridge.requests.admission import ADMISSION_MS, Admission
from quorate.common.error_codes import ErrorCode
from quorate.raft.messages import FetchRequest
from quorate.raft.types import ReplicaKey

ONE, TWO = ReplicaKey(1, "A" * 21 + "A"), ReplicaKey(2, "B" * 21 + "A")


class Log:
    """What the metadata service says. timeouts: those that it was given."""

    def __init__(self) -> None:
        self.error = ErrorCode.NONE
        self.commits = asyncio.Event()
        self.timeouts: list[int] = []

    async def admit(self, timeout_ms: int) -> tuple[ErrorCode, str]:
        self.timeouts.append(timeout_ms)
        if self.error is not ErrorCode.POLICY_VIOLATION:
            await self.commits.wait()
        return self.error, ""


async def test_a_voter_does_not_wait_for_the_commit_and_others_do() -> None:
    log = Log()
    admission = Admission(log.admit)
    other = asyncio.create_task(admission.check("Fetch", 9, "host"))
    for _ in range(3):
        error, _ = await admission.check_voter("Fetch", 1, "host")
        assert error is ErrorCode.REQUEST_TIMED_OUT
    assert log.timeouts == [ADMISSION_MS, ADMISSION_MS], "one for all voters"
    assert not other.done()
    log.commits.set()
    assert (await other)[0] is ErrorCode.NONE
    assert (await admission.check_voter("Fetch", 1, "host"))[0] is ErrorCode.NONE
    admission.close()


async def test_a_voter_of_a_quorum_with_applications_is_rejected() -> None:
    log = Log()
    log.error = ErrorCode.POLICY_VIOLATION
    admission = Admission(log.admit)
    assert (await admission.check_voter("Fetch", 1, "host"))[0] is ErrorCode.POLICY_VIOLATION
    assert await admission.is_rejected()
    assert log.timeouts[-1] == 0


@pytest.mark.parametrize(("replica", "epoch", "seen"), [(ONE, 7, 5), (ONE, 8, 0), (TWO, 7, 0)])
def test_the_next_fetch_of_a_replica_has_seen_the_round(
    replica: ReplicaKey, epoch: int, seen: int
) -> None:
    connection = KafkaConnection("host")
    request = FetchRequest("c", replica, epoch, 0, 0)
    assert connection.seen_round(request) == 0
    connection.last_round = ONE, 7, 5
    assert connection.seen_round(request) == seen
