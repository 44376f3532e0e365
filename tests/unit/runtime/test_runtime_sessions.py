"""Producer sessions on real replicas: each batch is in the log once, whoever leads."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from quorate.applications import ProducerSessions
from quorate.common.error_codes import ErrorCode
from quorate.records import metadata as rec
from quorate.records.batch import BatchProducer, iter_records, read_header
from quorate.rpc.wire.values import AppendOutcome, LogOffsets, OpenProducerRequest
from quorate.runtime.metadata_batches import field_of

from tests.unit.runtime.replicas import alone, until
from tests.unit.runtime.test_runtime_conditions import (
    LEVELS,
    OFF,
    TIMEOUT_MS,
    Voter,
    leading,
    log_of,
    one,
    three,
)

HOUR_MS = 3_600_000
LEVEL_AGAIN = LEVELS[1:]


class Session:
    """A client's session, which any voter may be asked to continue. sent: records so far."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.sent = 0

    async def send(
        self,
        voter: Voter,
        *values: bytes,
        at: int | None = None,
        timeout_ms: int = TIMEOUT_MS,
        keys: Mapping[bytes, int] | None = None,
    ) -> AppendOutcome:
        """Append one batch, the next one unless `at` is the number of its first record."""
        first = self.sent if at is None else at
        self.sent = max(self.sent, first + len(values))
        producer = BatchProducer(self.producer_id, 0, first)
        records = [(b"k", value) for value in values]
        conditions = LogOffsets(None, tuple((keys or {}).items()))
        return await voter.service.append(records, timeout_ms, conditions, producer)

    async def committed(self, voter: Voter, *values: bytes, at: int | None = None) -> int:
        outcome = await self.send(voter, *values, at=at)
        assert outcome.error is ErrorCode.NONE, outcome
        return outcome.base_offset


async def opened(voter: Voter, expiration_ms: int = HOUR_MS) -> Session:
    response = await voter.service.handle(OpenProducerRequest("", expiration_ms))
    assert response.error is ErrorCode.NONE, response
    return Session(response.producer_id)


def values_of(voter: Voter) -> list[bytes | None]:
    return [value for _, _, value in log_of(voter.replica)]


def sessions_of(voter: Voter) -> ProducerSessions:
    state = voter.replica.loader.applications
    assert state is not None
    return state.sessions


async def test_a_repeated_batch_has_its_first_offset(tmp_path: Path) -> None:
    async with one(tmp_path) as voter:
        session = await opened(voter)
        first = await session.committed(voter, b"a", b"b")
        second = await session.committed(voter, b"c")
        assert await session.committed(voter, b"a", b"b", at=0) == first
        assert await session.committed(voter, b"c", at=2) == second
        assert values_of(voter) == [b"a", b"b", b"c"]


async def test_a_repeated_batch_is_answered_when_it_is_committed(tmp_path: Path) -> None:
    async with one(tmp_path) as voter:
        session = await opened(voter)
        voter.replica.disk.go.clear()
        original = asyncio.create_task(session.send(voter, b"a"))
        await asyncio.sleep(0.05)
        again = asyncio.create_task(session.send(voter, b"a", at=0))
        late = await session.send(voter, b"a", at=0, timeout_ms=50)
        assert late.error is ErrorCode.REQUEST_TIMED_OUT, "the log has it: the outcome is open"
        assert not again.done()
        voter.replica.disk.go.set()
        assert (await again).base_offset == (await original).base_offset
        assert values_of(voter) == [b"a"]


async def test_batches_under_way_are_checked_against_each_other(tmp_path: Path) -> None:
    async with one(tmp_path) as voter:
        session = await opened(voter)
        calls = [session.send(voter, b"%d" % each) for each in range(20)]
        outcomes = await asyncio.gather(*calls)
        assert {outcome.error for outcome in outcomes} == {ErrorCode.NONE}
        assert values_of(voter) == [b"%d" % each for each in range(20)]


async def test_what_a_session_does_not_admit(tmp_path: Path) -> None:
    async with one(tmp_path) as voter:
        session = await opened(voter)
        unknown = Session(session.producer_id + 1)
        assert (await unknown.send(voter, b"no")).error is ErrorCode.UNKNOWN_PRODUCER_ID
        gap = await session.send(voter, b"no", at=1)
        assert gap.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        large = await session.send(voter, b"x" * (1 << 20), at=0)
        assert large.error is ErrorCode.MESSAGE_TOO_LARGE
        record = rec.encode(rec.NoOpRecord(version=0))
        producer = BatchProducer(session.producer_id, 0, 0)
        metadata = await voter.service.append([(None, record)], TIMEOUT_MS, producer=producer)
        assert metadata.error is ErrorCode.INVALID_REQUEST
        assert values_of(voter) == []
        await session.committed(voter, b"a", at=0)
        other = await session.send(voter, b"a", b"b", at=0)
        assert other.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "another client's batch"
        similar = await session.send(voter, b"x", at=0)
        assert similar.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "of the same size"
        for each in range(40):
            await session.committed(voter, b"b", at=1 + each)
        old = await session.send(voter, b"a", at=0)
        assert old.error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        producer = BatchProducer(session.producer_id, 1, 0)
        later = await voter.service.append([(b"k", b"yes")], TIMEOUT_MS, producer=producer)
        assert later.error is ErrorCode.NONE, "a new epoch begins"
        assert (await session.send(voter, b"no")).error is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_a_condition_that_fails_uses_no_sequence_number(tmp_path: Path) -> None:
    async with one(tmp_path) as voter:
        session = await opened(voter)
        failed = await session.send(voter, b"no", at=0, keys={b"k": 5})
        assert failed.error is ErrorCode.CONDITION_FAILED
        outcome = await session.send(voter, b"a", at=0, keys={b"k": -1})
        again = await session.send(voter, b"a", at=0, keys={b"k": -1})
        assert again.base_offset == outcome.base_offset, "it held when the batch was appended"
        assert again.error is ErrorCode.NONE


async def test_an_idle_session_ends(tmp_path: Path) -> None:
    async with one(tmp_path) as voter:
        other = await opened(voter)
        session = await opened(voter, 2_500)
        await session.committed(voter, b"a")
        await asyncio.sleep(2.6)
        late = await session.send(voter, b"no", at=1)
        assert late.error is ErrorCode.UNKNOWN_PRODUCER_ID, "by its own timestamp"
        await other.committed(voter, b"b")
        repeated = await session.send(voter, b"a", at=0)
        assert repeated.error is ErrorCode.UNKNOWN_PRODUCER_ID
        await voter.replica.loader.reached(voter.replica.node.high_watermark)
        assert len(sessions_of(voter)) == 1
        assert values_of(voter) == [b"a", b"b"]


async def test_level_0_ends_all_sessions(tmp_path: Path) -> None:
    async with one(tmp_path) as voter:
        session = await opened(voter)
        await session.committed(voter, b"a")
        await voter.finalize(*OFF)
        response = await voter.service.handle(OpenProducerRequest())
        assert response.error is ErrorCode.UNSUPPORTED_VERSION
        assert (await session.send(voter, b"no", at=1)).error is ErrorCode.UNSUPPORTED_VERSION
        await voter.finalize(*LEVEL_AGAIN)
        await voter.ready()
        assert (await session.send(voter, b"a", at=0)).error is ErrorCode.UNKNOWN_PRODUCER_ID
        assert values_of(voter) == [b"a"]


async def test_another_cluster_is_told(tmp_path: Path) -> None:
    async with one(tmp_path) as voter:
        end = voter.replica.log.end_offset
        response = await voter.service.handle(OpenProducerRequest("h3JvRzZ1Tn6b5kq0m2xY8w"))
        assert response.error is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert voter.replica.log.end_offset == end


@pytest.mark.parametrize("has_snapshot", [True, False])
async def test_sessions_outlive_restarts(tmp_path: Path, has_snapshot: bool) -> None:
    async with one(tmp_path) as voter:
        session = await opened(voter)
        base = await session.committed(voter, b"a", b"b")
        if has_snapshot:
            assert await voter.replica.snapshotter.write() is not None
        last = await session.committed(voter, b"c")
        await voter.replica.loader.reached(voter.replica.node.high_watermark)
        before = sessions_of(voter).copy()
    async with alone(tmp_path) as replica:
        voter = Voter(replica)
        replica.driver.resign("so that the services acquire the leadership")
        await until("it is active", lambda: voter.metadata.is_active)
        await voter.ready()
        assert sessions_of(voter)._sessions == before._sessions
        assert await session.committed(voter, b"a", b"b", at=0) == base
        assert await session.committed(voter, b"c", at=2) == last
        await session.committed(voter, b"d")
        assert values_of(voter)[-2:] == [b"c", b"d"]
        await voter.metadata.close()


def tags_of(voter: Voter) -> list[rec.ApplicationTag | None]:
    """What the batches of the latest snapshot say of applications."""
    log = voter.replica.log
    latest = log.latest_snapshot()
    assert latest is not None
    batches = [bytes(batch.data) for batch in log.iter_snapshot_batches(latest)]
    found = [field_of(batch) for batch in batches]
    return [None if field is None else field[0] for field in found]


async def test_sessions_are_no_state_that_replaces_records(tmp_path: Path) -> None:
    """A snapshot has those of its own offset, none of its previous one, and at level 0 none."""
    async with one(tmp_path) as voter:
        session = await opened(voter)
        for value in (b"a", b"b"):
            await session.committed(voter, value)
            assert await voter.replica.snapshotter.write() is not None
            tags = [tag for tag in tags_of(voter) if tag is not None]
            assert tags == [
                rec.ApplicationTag.APPLICATION_STATE,
                rec.ApplicationTag.SESSIONS_CHUNK,
            ]
        await voter.finalize(*OFF)
        assert await voter.replica.snapshotter.write() is not None
        assert set(tags_of(voter)) == {None}
        latest = voter.replica.log.latest_snapshot()
        assert latest is not None
        for batch in voter.replica.log.iter_snapshot_batches(latest):
            values = [
                each.value for each in iter_records(memoryview(batch.data), read_header(batch.data))
            ]
            assert rec.encode(rec.HAS_STATE, 1) not in values


async def test_a_leader_that_dies_before_it_answers(tmp_path: Path) -> None:
    """The next leader has the batch, and answers the repeated one with its offset."""
    async with three(tmp_path) as voters:
        leader = await leading(voters)
        session = await opened(leader)
        await session.committed(leader, b"a")
        end = leader.replica.log.end_offset
        lost = asyncio.create_task(session.send(leader, b"b"))
        others = [each for each in voters.values() if each is not leader]
        await until(
            "the followers have it",
            lambda: all(each.replica.log.end_offset > end for each in others),
        )
        leader.replica.network.cut.add(leader.replica.id)
        following = await leading(voters, but=leader.replica.id)
        repeated = await session.send(following, b"b", at=1)
        assert (repeated.error, repeated.base_offset) == (ErrorCode.NONE, end)
        await session.committed(following, b"c")
        assert values_of(following) == [b"a", b"b", b"c"]
        leader.replica.network.cut.clear()
        await lost


async def test_a_batch_that_is_truncated_is_appended_again(tmp_path: Path) -> None:
    """The old leader has accepted its numbers, but nobody else knows of it."""
    async with three(tmp_path) as voters:
        leader = await leading(voters)
        session = await opened(leader)
        await session.committed(leader, b"a")
        leader.replica.network.cut.add(leader.replica.id)
        lost = asyncio.create_task(session.send(leader, b"b"))
        again = asyncio.create_task(session.send(leader, b"b", at=1))
        following = await leading(voters, but=leader.replica.id)
        offset = await session.committed(following, b"b", at=1)
        assert await session.committed(following, b"b", at=1) == offset
        await session.committed(following, b"c")
        leader.replica.network.cut.clear()
        for outcome in (await lost, await again):
            assert outcome.error is ErrorCode.REQUEST_TIMED_OUT, "it may or may not be committed"
        node = following.replica.node
        await until(
            "the old leader follows",
            lambda: leader.replica.loader.offset >= node.high_watermark > offset + 1,
        )
        assert values_of(leader) == values_of(following) == [b"a", b"b", b"c"]
        await following.replica.loader.reached(node.high_watermark)
        assert sessions_of(leader) == sessions_of(following)


async def test_sessions_are_the_same_everywhere(tmp_path: Path) -> None:
    async with three(tmp_path) as voters:
        leader = await leading(voters)
        sessions = [await opened(leader, 1_000 + each * 200) for each in range(6)]
        for number in range(40):
            await sessions[number % 6].send(leader, b"%d" % number)
            await asyncio.sleep(0.02)
        end = leader.replica.node.high_watermark
        for voter in voters.values():
            await until("it follows", lambda voter=voter: voter.replica.loader.offset >= end)
        states = [sessions_of(voter) for voter in voters.values()]
        assert states[0] == states[1] == states[2]
