"""Appends that the client repeats: each is in the log once, in the order of the calls."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest
from quorate.applications.sessions import ProducerSessions
from quorate.common.error_codes import ErrorCode
from quorate.raft.messages import CurrentLeader
from quorate.records.batch import BatchProducer
from quorate.rpc.client.client_session import ClientSession
from quorate.rpc.client.quorum_client import (
    AdminError,
    NoLeaderError,
    OutcomeUnknownError,
    QuorumClient,
    UnreachableError,
)
from quorate.rpc.errors import ConditionFailedError
from quorate.rpc.wire.values import NO_CONDITIONS, AppendOutcome, LogOffsets, OpaqueRecord

from tests.unit.rpc.rpc_support import Node, Pair, serving

REJECTED = b"rejected"

Fault = Callable[["Replica"], AppendOutcome | None]
"""What a node does in place of answering an append that it may have executed."""


@dataclass
class SharedLog:
    """The log of all nodes, without its replication."""

    values: list[bytes] = field(default_factory=list)
    sessions: ProducerSessions = field(default_factory=lambda: ProducerSessions(0))
    end_offset: int = 1


@dataclass
class Replica(Node):
    """A node of a quorum with sessions. `before` and `after` the append, faults are executed."""

    log: SharedLog = field(default_factory=SharedLog)
    before: list[Fault] = field(default_factory=list)
    after: list[Fault] = field(default_factory=list)

    def store(self, records: Sequence[OpaqueRecord]) -> int:
        base = self.log.end_offset
        self.log.end_offset += len(records)
        self.log.values += [value for key, value in records if key is not None]
        return base

    async def append(
        self,
        records: Sequence[OpaqueRecord],
        timeout_ms: int,
        conditions: LogOffsets = NO_CONDITIONS,
        producer: BatchProducer | None = None,
    ) -> AppendOutcome:
        if self.before and (answer := self.before.pop(0)(self)) is not None:
            return answer
        if records[0][1] == REJECTED and self.leads:
            return AppendOutcome(ErrorCode.INVALID_RECORD, self.leader, message="as told")
        outcome = await super().append(records, timeout_ms, conditions, producer)
        if outcome.error is ErrorCode.NONE and self.after:
            return self.after.pop(0)(self) or outcome
        return outcome


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    log = SharedLog()
    async with AsyncExitStack() as stack:
        nodes: list[Node] = [Replica(id=each, log=log, sessions=log.sessions) for each in (1, 2)]
        servers = [await stack.enter_async_context(serving(node)) for node in nodes]
        pair = Pair(nodes, servers)
        pair.lead(0, 3)
        yield pair


def replica(pair: Pair, index: int = 0) -> Replica:
    node = pair.nodes[index]
    assert isinstance(node, Replica)
    return node


def answers(error: ErrorCode) -> Fault:
    return lambda node: AppendOutcome(error, node.leader)


def nothing(_: Replica) -> None:
    return None


async def append(client: QuorumClient, *values: bytes, timeout_ms: int | None = None) -> int:
    result = await client.append([(b"", value) for value in values], timeout_ms=timeout_ms)
    return result.base_offset


async def test_concurrent_appends_are_in_the_order_of_the_calls(pair: Pair) -> None:
    values = [b"%d" % number for number in range(60)]
    async with QuorumClient(pair.addresses) as client:
        offsets = await asyncio.gather(*(append(client, value) for value in values))
    assert replica(pair).log.values == values
    assert offsets == sorted(offsets)
    assert pair.nodes[0].asked_sessions == 1


async def test_values_that_share_a_batch_are_in_order(pair: Pair) -> None:
    values = [b"%d" % number for number in range(300)]
    async with QuorumClient(pair.addresses) as client:
        await asyncio.gather(*(client.append_value(value) for value in values))
    assert replica(pair).log.values == values


async def test_metadata_belongs_to_no_session(pair: Pair) -> None:
    async with QuorumClient(pair.addresses) as client:
        await client.append([(None, b"\x01\x14\x00\x00")])
    assert pair.nodes[0].asked_sessions == 0


async def test_at_level_0_appends_are_sent_without_a_session(pair: Pair) -> None:
    node = replica(pair)
    sessions, node.sessions = node.sessions, None
    async with QuorumClient(pair.addresses) as client:
        await asyncio.gather(*(append(client, b"a") for _ in range(20)))
        await append(client, b"a")
        assert node.asked_sessions == 1
        assert len(node.log.values) == 21
        node.append_error = ErrorCode.UNKNOWN_SERVER_ERROR
        with pytest.raises(OutcomeUnknownError):
            await append(client, b"a")
        node.append_error = None
        node.sessions = sessions
        client._producer.level_changed()
        await append(client, b"b")
    assert node.asked_sessions == 2


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ],
)
@pytest.mark.parametrize("number", [0, 1, 7])
async def test_a_failed_append_is_repeated(pair: Pair, error: ErrorCode, number: int) -> None:
    node = replica(pair)
    node.before = [nothing] * number + [answers(error)]
    values = [b"%d" % each for each in range(20)]
    async with QuorumClient(pair.addresses) as client:
        await asyncio.gather(*(append(client, value) for value in values))
    assert node.log.values == values


async def test_a_lost_response_is_got_from_the_next_leader(pair: Pair) -> None:
    """The old leader appends the batches, but loses leadership before it answers."""

    def lose(node: Replica) -> AppendOutcome:
        pair.lead(1, 4)
        return AppendOutcome(ErrorCode.REQUEST_TIMED_OUT, node.leader, message="lost leadership")

    values = [b"%d" % each for each in range(20)]
    replica(pair).after = [nothing, nothing, lose]
    async with QuorumClient(pair.addresses) as client:
        offsets = await asyncio.gather(*(append(client, value) for value in values))
    assert replica(pair).log.values == values
    assert offsets == [offsets[0] + each for each in range(20)]


@pytest.mark.parametrize("is_appended", [True, False])
async def test_a_broken_connection_is_replaced(pair: Pair, is_appended: bool) -> None:
    """The node dies before or after it has appended a batch."""
    node = replica(pair)
    stopping: list[asyncio.Task[None]] = []

    def die(_: Replica) -> None:
        pair.lead(1, 4)
        stopping.append(asyncio.create_task(pair.servers[0].stop(0)))

    (node.after if is_appended else node.before).extend([nothing, die])
    node.delay_s = 0.02
    values = [b"%d" % each for each in range(10)]
    async with QuorumClient(pair.addresses) as client:
        await asyncio.gather(*(append(client, value) for value in values))
    assert stopping
    assert node.log.values == values


async def test_a_rejected_batch_affects_no_other(pair: Pair) -> None:
    values = [b"%d" % each for each in range(10)]
    async with QuorumClient(pair.addresses) as client:
        calls = [append(client, value) for value in (*values[:5], REJECTED, *values[5:])]
        results = await asyncio.gather(*calls, return_exceptions=True)
    failed = [result for result in results if isinstance(result, BaseException)]
    assert [type(error) for error in failed] == [AdminError]
    assert results.index(failed[0]) == 5
    assert replica(pair).log.values == values


async def test_records_that_cannot_be_sent_affect_no_other(pair: Pair) -> None:
    values = [b"%d" % each for each in range(6)]
    async with QuorumClient(pair.addresses) as client:
        calls = [append(client, value) for value in values]
        calls.insert(3, append(client, "a text"))  # type: ignore[arg-type]
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(results[3], TypeError)
    assert replica(pair).log.values == values


@pytest.mark.parametrize("error", [None, ErrorCode.REQUEST_TIMED_OUT])
async def test_a_condition_that_fails(pair: Pair, error: ErrorCode | None) -> None:
    """Nothing was appended, unless an earlier copy of the batch may still be under way."""
    node = replica(pair)
    node.before = [nothing, *([] if error is None else [answers(error)])]
    node.before.append(answers(ErrorCode.CONDITION_FAILED))
    async with QuorumClient(pair.addresses) as client:
        await append(client, b"a")
        expected = ConditionFailedError if error is None else OutcomeUnknownError
        with pytest.raises(expected):
            await client.append([(b"k", b"b")], if_last_offset=5)
        await client.append([(b"k", b"c")], if_last_offset=5)
    assert node.log.values == [b"a", b"c"]
    # A number that a copy may still use is not used again.
    assert node.asked_sessions == (2 if error is None else 3)


async def test_appends_with_conditions_are_under_way_together(pair: Pair) -> None:
    """Each in its own session, and the sessions are used again."""
    node = replica(pair)
    node.delay_s = 0.05
    async with QuorumClient(pair.addresses) as client:
        for _ in range(3):
            calls = [client.append([(b"k", b"v")], if_last_offset=5) for _ in range(5)]
            await asyncio.gather(*calls)
    assert len(node.log.values) == 15
    assert node.most_under_way == node.asked_sessions == 5


async def test_a_session_that_was_idle_for_too_long_is_replaced(pair: Pair) -> None:
    node = replica(pair)
    async with QuorumClient(pair.addresses) as client:
        await append(client, b"a")
        node.log.sessions.advance(1 << 50)
        await append(client, b"b")
    assert node.log.values == [b"a", b"b"]
    assert node.asked_sessions == 2


async def test_a_batch_in_doubt_has_an_unknown_outcome_once_its_session_ends(pair: Pair) -> None:
    node = replica(pair)

    def expire(_: Replica) -> AppendOutcome:
        node.log.sessions.advance(1 << 50)
        return AppendOutcome(ErrorCode.REQUEST_TIMED_OUT, node.leader)

    async with QuorumClient(pair.addresses) as client:
        await append(client, b"a")
        node.after = [expire]
        calls = [append(client, b"%d" % each) for each in range(5)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        await append(client, b"z")
    assert isinstance(results[0], OutcomeUnknownError)
    assert "the producer session ended (UNKNOWN_PRODUCER_ID)" in str(results[0])
    assert not any(isinstance(result, BaseException) for result in results[1:])
    assert node.log.values == [b"a", b"0", b"1", b"2", b"3", b"4", b"z"]
    assert node.asked_sessions == 2


@pytest.mark.parametrize(
    "error", [ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.NOT_LEADER_OR_FOLLOWER]
)
async def test_batches_after_one_that_is_not_in_the_log_move_to_the_next_session(
    pair: Pair, error: ErrorCode
) -> None:
    """The session ends while the first batch is certainly not in the log and the second in doubt,
    which the first one decides.
    """
    node = replica(pair)

    def expire(_: Replica) -> AppendOutcome:
        node.log.sessions.advance(1 << 50)
        return AppendOutcome(ErrorCode.UNKNOWN_SERVER_ERROR, node.leader)

    async with QuorumClient(pair.addresses) as client:
        await append(client, b"a")
        node.before = [answers(error), expire]
        await asyncio.gather(*(append(client, each, timeout_ms=5_000) for each in (b"b", b"c")))
        await append(client, b"d", timeout_ms=5_000)
    assert node.log.values == [b"a", b"b", b"c", b"d"]
    assert node.asked_sessions == 2


async def test_the_way_back_to_level_0(pair: Pair) -> None:
    node = replica(pair)
    async with QuorumClient(pair.addresses) as client:
        await append(client, b"a")
        node.sessions = None
        await asyncio.gather(*(append(client, b"b") for _ in range(5)))
    assert node.log.values == [b"a"] + [b"b"] * 5


async def test_a_timeout_ends_the_wait_and_nothing_else(pair: Pair) -> None:
    """What was sent may be committed, and later appends still come after it."""
    node = replica(pair)
    async with QuorumClient(pair.addresses) as client:
        await append(client, b"a")
        node.delay_s = 0.5
        with pytest.raises(OutcomeUnknownError, match="no answer within 100 ms"):
            await append(client, b"b", timeout_ms=100)
        node.delay_s = 0.0
        await append(client, b"c")
    assert node.log.values == [b"a", b"b", b"c"]


async def test_nothing_is_appended_without_a_leader(pair: Pair) -> None:
    async with QuorumClient(pair.addresses) as client:
        await append(client, b"a")
        pair.lead(None, 4)
        with pytest.raises(NoLeaderError):
            await append(client, b"b", timeout_ms=2_000)
        pair.lead(1, 5)
        await append(client, b"c")
    assert replica(pair).log.values == [b"a", b"c"]


async def test_nobody_answers() -> None:
    async with QuorumClient(["127.0.0.1:1"]) as client:
        with pytest.raises(UnreachableError):
            await append(client, b"a", timeout_ms=200)


async def test_close_leaves_nothing_waiting(pair: Pair) -> None:
    node = replica(pair)
    client = QuorumClient(pair.addresses)
    await append(client, b"a")
    node.delay_s = 5.0
    calls = [asyncio.create_task(append(client, b"b")) for _ in range(20)]
    await asyncio.sleep(0.1)
    await client.close()
    done, pending = await asyncio.wait(calls, timeout=5)
    assert not pending
    assert all(task.exception() is not None for task in done)


async def test_two_clients_with_one_session_lose_and_double_nothing_silently(pair: Pair) -> None:
    """A second client that uses a session's id finds that its numbers are taken."""
    node = replica(pair)
    async with QuorumClient(pair.addresses) as first, QuorumClient(pair.addresses) as second:
        await append(first, b"a", b"b")
        session = first._producer._all._session
        assert session is not None
        second._producer._all._session = ClientSession(session.producer_id, 0)
        await append(second, b"x")  # it finds another batch in its place
        await append(first, b"c")
    assert node.log.values == [b"a", b"b", b"x", b"c"]
    assert node.asked_sessions == 2


async def test_no_batch_is_overtaken_by_more_than_the_leader_remembers(pair: Pair) -> None:
    """The first one is answered late, again and again, while all others are answered at once."""
    node = replica(pair)
    answered = 0
    append_as_told = node.append

    async def late(
        records: Sequence[OpaqueRecord],
        timeout_ms: int,
        conditions: LogOffsets = NO_CONDITIONS,
        producer: BatchProducer | None = None,
    ) -> AppendOutcome:
        nonlocal answered
        outcome = await append_as_told(records, timeout_ms, conditions, producer)
        if records[0][1] == b"0" and answered < 4:
            answered += 1
            await asyncio.sleep(0.05)
            return AppendOutcome(ErrorCode.REQUEST_TIMED_OUT, node.leader)
        return outcome

    node.append = late  # type: ignore[method-assign]
    async with QuorumClient(pair.addresses) as client:
        await append(client, b"first")
        offsets = await asyncio.gather(*(append(client, b"%d" % each) for each in range(120)))
    assert answered == 4
    assert offsets == sorted(offsets)
    assert node.log.values == [b"first", *(b"%d" % each for each in range(120))]


@pytest.mark.parametrize("seed", range(12))
async def test_random_faults(pair: Pair, seed: int) -> None:
    """Each message may be lost before or after its execution; leaders change, requests wait."""
    chance = random.Random(seed)

    def change_leader(node: Replica) -> AppendOutcome | None:
        pair.lead(chance.choice((0, 1, None)), node.leader.epoch + 1)
        if not any(each.leads for each in pair.nodes):
            asyncio.get_running_loop().call_later(0.05, pair.lead, 0, node.leader.epoch + 1)
        return AppendOutcome(ErrorCode.REQUEST_TIMED_OUT, CurrentLeader(node.leader.epoch))

    def wait(node: Replica) -> None:
        node.delay_s = chance.choice((0.0, 0.0, 0.01))

    faults: list[Fault] = [
        *[nothing] * 12,
        wait,
        answers(ErrorCode.REQUEST_TIMED_OUT),
        answers(ErrorCode.UNKNOWN_SERVER_ERROR),
        change_leader,
    ]
    refusals = [answers(ErrorCode.THROTTLING_QUOTA_EXCEEDED)]
    for index in (0, 1):
        node = replica(pair, index)
        node.before = [chance.choice(faults + refusals) for _ in range(80)]
        node.after = [chance.choice(faults) for _ in range(80)]
    values = [b"%d" % each for each in range(120)]
    async with QuorumClient(pair.addresses) as client:
        calls = [append(client, value) for value in values]
        offsets = await asyncio.gather(*calls)
        log = replica(pair).log
        assert Counter(log.values) == Counter(values)
        assert log.values == values
        assert offsets == sorted(offsets)
