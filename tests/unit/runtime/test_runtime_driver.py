"""The driver: one uninterrupted step an input, outputs in order, what happens when one fails."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest
from quorate.common.error_codes import ErrorCode
from quorate.raft import RaftNode
from quorate.raft import outputs as out
from quorate.raft.messages import (
    CurrentLeader,
    EndQuorumEpochRequest,
    FetchRequest,
    ReadIndexRequest,
    VoteRequest,
    VoteResponse,
)
from quorate.raft.outputs import RoleName
from quorate.records.batch import build_data_batch, iter_batches, read_header
from quorate.runtime.driver import RaftDriver
from quorate.runtime.pending_appends import CommitOutcome

from tests.unit.runtime.replicas import (
    CLUSTER,
    SOON_S,
    Network,
    Replica,
    address,
    alone,
    key,
    leader_of,
    trio,
    until,
    voters,
)


def batch() -> bytearray:
    return build_data_batch([(b"k", b"v")], 1)


# --- the life of an append ------------------------------------------------------------------------


async def test_appends_of_one_turn_are_one_append_and_keep_their_order(tmp_path: Path) -> None:
    async with alone(tmp_path) as replica:
        before = replica.node.core.log.last_ticket
        offsets = await asyncio.gather(*(replica.commit() for _ in range(5)))
        assert offsets == list(range(offsets[0], offsets[0] + 5))
        assert replica.node.core.log.last_ticket == before + 1
        chunks = replica.log.read(offsets[0], 1 << 20)
        found = [header for chunk in chunks for header, _ in iter_batches(chunk)]
        assert [header.base_offset for header in found] == offsets
        assert {header.epoch for header in found} == {replica.node.epoch}


async def test_nothing_is_acknowledged_before_it_is_durable(tmp_path: Path) -> None:
    async with alone(tmp_path) as replica:
        replica.disk.go.clear()
        appending = asyncio.create_task(replica.append())
        await asyncio.sleep(0.3)
        assert not appending.done()
        replica.disk.go.set()
        assert (await appending)[1] is CommitOutcome.COMMITTED


async def test_an_append_ends_when_its_time_is_up(tmp_path: Path) -> None:
    async with alone(tmp_path) as replica:
        replica.disk.go.clear()
        async with asyncio.timeout(SOON_S):
            base, outcome = await replica.append(timeout_ms=50)
        assert (base, outcome) == (replica.log.end_offset - 1, CommitOutcome.TIMED_OUT)
        assert replica.driver.pending_appends.pending_bytes > 0, "its bytes still wait"
        replica.disk.go.set()
        await until("it is committed", lambda: replica.driver.pending_appends.pending_bytes == 0)


async def test_append_now_comes_after_what_was_handed_over_before(tmp_path: Path) -> None:
    async with alone(tmp_path) as replica:
        earlier = asyncio.create_task(replica.append())
        await asyncio.sleep(0)
        offered: list[int] = []

        def build(offset: int) -> tuple[int, bytearray]:
            offered.append(offset)
            return 1, batch()

        future = replica.driver.append_now(build, 20_000)
        assert future is not None
        base, outcome = await future  # type: ignore[misc]
        assert outcome is CommitOutcome.COMMITTED
        assert offered == [base]
        assert (await earlier)[0] == base - 1


async def test_append_now_of_nothing_and_of_a_failing_builder_leaves_the_log_alone(
    tmp_path: Path,
) -> None:
    async with alone(tmp_path) as replica:
        end = replica.log.end_offset
        assert replica.driver.append_now(lambda _offset: None, 1_000) is None

        def build(_offset: int) -> tuple[int, bytearray]:
            raise KeyError("no such topic")

        with pytest.raises(KeyError):
            replica.driver.append_now(build, 1_000)
        assert replica.log.end_offset == end
        assert not replica.failures, "that was the caller's mistake"
        await replica.commit()


async def test_who_does_not_lead_appends_nothing(tmp_path: Path) -> None:
    replica = Replica(tmp_path / "1", Network(), members=voters(1, 2, 3))
    replica.start()
    try:
        end = replica.log.end_offset
        assert await replica.append() is ErrorCode.NOT_LEADER_OR_FOLLOWER
        called: list[int] = []

        def build(offset: int) -> tuple[int, bytearray]:
            called.append(offset)
            return 1, batch()

        future = replica.driver.append_now(build, 1_000)
        assert future is not None
        assert await future is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (called, replica.log.end_offset) == ([], end)
    finally:
        await replica.close()


async def test_three_replicas_agree_and_survive_the_loss_of_their_leader(tmp_path: Path) -> None:
    async with trio(tmp_path) as replicas:
        leader = await leader_of(replicas)
        offsets = [await leader.commit() for _ in range(10)]
        leader.network.cut.add(leader.id)
        other = await leader_of(replicas, but=leader.id)
        later = await other.commit()
        assert later > offsets[-1]
        appending = asyncio.create_task(leader.append())
        leader.network.cut.discard(leader.id)
        await until("the old leader follows", lambda: leader.node.role is RoleName.FOLLOWER)
        ended = await appending
        assert (
            ended is ErrorCode.NOT_LEADER_OR_FOLLOWER or ended[1] is CommitOutcome.LEADERSHIP_LOST
        )
        final = await other.commit()
        for replica in replicas.values():
            await until("it has all", lambda r=replica: r.node.high_watermark > final)  # type: ignore[misc]
        logs = [
            b"".join(bytes(chunk) for chunk in replica.log.read(0, 1 << 20, final + 1))
            for replica in replicas.values()
        ]
        assert logs[0] == logs[1] == logs[2]


async def test_a_leader_of_another_epoch_truncates_what_was_not_committed(tmp_path: Path) -> None:
    async with trio(tmp_path) as replicas:
        leader = await leader_of(replicas)
        await leader.commit()
        leader.network.cut.add(leader.id)
        lost = asyncio.create_task(leader.append())
        await until(
            "it is in the leader's log", lambda: leader.driver.pending_appends.pending_bytes > 0
        )
        other = await leader_of(replicas, but=leader.id)
        await other.commit()
        leader.network.cut.discard(leader.id)
        assert (await lost)[1] is CommitOutcome.LEADERSHIP_LOST
        final = await other.commit()
        await until("it has all", lambda: leader.node.high_watermark > final)
        mine, others = leader.log.read(0, 1 << 20), other.log.read(0, 1 << 20)
        assert b"".join(map(bytes, mine)) == b"".join(map(bytes, others))


# --- durable before it is promised ----------------------------------------------------------------


def vote_request(epoch: int, candidate: int = 2, voter: int = 1) -> VoteRequest:
    return VoteRequest(CLUSTER, epoch, key(candidate), key(voter), epoch - 1, 1_000)


async def test_a_vote_is_durable_before_its_answer_leaves(tmp_path: Path) -> None:
    replica = Replica(tmp_path / "1", Network(), members=voters(1, 2, 3))
    replica.start()
    try:
        granted = await replica.driver.ask(vote_request(7))
        assert isinstance(granted[0], VoteResponse)
        assert granted[0].granted
        state = replica.quorum_state.read()
        assert state is not None
        assert (state.epoch, state.voted) == (7, key(2))
        assert ("rename", "quorum-state") in replica.state_disk.done
    finally:
        await replica.close()


async def test_a_vote_that_cannot_be_written_is_not_given(tmp_path: Path) -> None:
    replica = Replica(tmp_path / "1", Network(), members=voters(1, 2, 3))
    replica.start()

    def fail(operation: str, name: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    try:
        replica.state_disk.fail = fail
        with pytest.raises(asyncio.CancelledError):
            await replica.driver.ask(vote_request(7))
        assert len(replica.failures) == 1
        assert "Input/output error" in str(replica.failures[0])
    finally:
        await replica.close()


async def test_the_own_vote_is_durable_before_others_are_asked(tmp_path: Path) -> None:
    """Of a candidate, not of a pre-vote."""
    network = Network()
    persisted: list[tuple[int, Any]] = []

    async def grant(request: Any) -> Any:
        if not isinstance(request, VoteRequest):
            await asyncio.sleep(SOON_S)
        if not request.pre_vote:
            persisted.append((request.epoch, replica.quorum_state.read()))
        return VoteResponse(ErrorCode.NONE, CurrentLeader(request.epoch, None), True)

    network.handlers[address(2)] = grant
    replica = Replica(
        tmp_path / "1",
        network,
        members=voters(1, 2),
        election_timeout_ms=100,
        fetch_timeout_ms=60_000,
    )
    replica.start()
    try:
        await until("it leads", lambda: replica.node.is_leader)
        epoch, state = persisted[0]
        assert (state.epoch, state.voted) == (epoch, key(1))
        kept = replica.quorum_state.read()
        assert kept is not None
        assert (kept.epoch, kept.leader_id) == (epoch, 1)
    finally:
        await replica.close()


# --- what nobody expects --------------------------------------------------------------------------


class Faulty(RaftNode):
    """A node that raises in the method that `fails` names, from when it is set."""

    fails = ""
    error: type[Exception] = KeyError

    def _maybe(self, name: str) -> None:
        if self.fails == name:
            raise self.error("a field that is not there")

    def append(self, *arguments: Any, **options: Any) -> Any:
        self._maybe("append")
        base = super().append(*arguments, **options)
        self._maybe("after append")
        return base

    def take_outputs(self) -> list[Any]:
        self._maybe("take_outputs")
        return super().take_outputs()

    def tick(self, now_ms: int) -> None:
        self._maybe("tick")
        super().tick(now_ms)

    def log_durable(self, ticket: int, now_ms: int) -> None:
        self._maybe("log_durable")
        super().log_durable(ticket, now_ms)

    def handle_request(self, request_id: int, request: Any, now_ms: int) -> None:
        self._maybe("handle_request")
        super().handle_request(request_id, request, now_ms)

    def next_deadline_ms(self) -> int:
        self._maybe("next_deadline_ms")
        return super().next_deadline_ms()


def failing(replica: Replica, name: str, error: type[Exception] = KeyError) -> None:
    assert isinstance(replica.node, Faulty)
    replica.node.fails = name
    replica.node.error = error


@pytest.mark.parametrize("error", [KeyError, ValueError, AssertionError, TypeError])
@pytest.mark.parametrize(
    "name", ["append", "after append", "take_outputs", "log_durable", "next_deadline_ms"]
)
async def test_an_unexpected_error_stops_the_replica_and_ends_every_wait(
    tmp_path: Path, name: str, error: type[Exception]
) -> None:
    # The fetch timeout sets how soon the timer asks for the next deadline.
    async with alone(tmp_path, node_type=Faulty, fetch_timeout_ms=200) as replica:
        replica.disk.go.clear()
        waiting = [asyncio.create_task(replica.append()) for _ in range(2)]
        await until("they are appended", lambda: replica.driver.pending_appends.pending_bytes > 0)
        failing(replica, name, error)
        later = asyncio.create_task(replica.append())
        await asyncio.sleep(0)
        replica.disk.go.set()
        async with asyncio.timeout(SOON_S):
            for each in (*waiting, later):
                ended = await each
                assert ended is ErrorCode.NOT_LEADER_OR_FOLLOWER or ended[1] in (
                    CommitOutcome.LEADERSHIP_LOST,
                    CommitOutcome.COMMITTED,
                )
        await until("it stopped", lambda: replica.failures)
        (failure,) = replica.failures
        line = str(failure)
        assert line.startswith(f"{error.__name__}: ")
        assert "a field that is not there" in line
        assert ".py:" in line, "it says where"
        assert "\n" not in line


async def test_a_request_under_way_ends_when_the_replica_stops(tmp_path: Path) -> None:
    async with trio(tmp_path, node_type=Faulty) as replicas:
        leader = await leader_of(replicas)
        leader.network.cut.update((1, 2, 3))
        reading = asyncio.create_task(leader.driver.ask(ReadIndexRequest("", 60_000)))
        await asyncio.sleep(0.05)
        assert not reading.done()
        failing(leader, "handle_request")
        with pytest.raises(asyncio.CancelledError):
            await leader.driver.ask(ReadIndexRequest("", 60_000))
        await asyncio.wait([reading], timeout=SOON_S)
        assert reading.cancelled()
        assert len(leader.failures) == 1


async def test_an_error_in_the_timer_stops_the_replica(tmp_path: Path) -> None:
    async with trio(tmp_path, node_type=Faulty) as replicas:
        leader = await leader_of(replicas)
        failing(leader, "tick")
        await until("it stopped", lambda: leader.failures)
        assert "KeyError" in str(leader.failures[0])


@pytest.mark.parametrize("callback", ["_on_committed", "_on_role", "_on_leadership"])
async def test_a_callback_that_raises_stops_the_replica_and_the_step(
    tmp_path: Path, callback: str
) -> None:
    async with alone(tmp_path) as replica:

        def broken(_value: object) -> None:
            raise ValueError("a listener's mistake")

        setattr(replica.driver, callback, broken)
        if callback == "_on_committed":
            ended = await replica.append()
            # The record was committed before the callback was called.
            assert ended[1] is CommitOutcome.COMMITTED
        else:
            replica.driver.resign("to see what happens")
        await until("it stopped", lambda: replica.failures)
        assert "ValueError: a listener's mistake" in str(replica.failures[0])
        end = replica.log.end_offset
        assert await replica.append() is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert replica.log.end_offset == end


async def test_outputs_after_a_failed_one_are_not_executed(tmp_path: Path) -> None:
    """A vote that was not persisted leaves no trace in what follows."""
    replica = Replica(tmp_path / "1", Network(), members=voters(1, 2, 3))
    executed: list[str] = []
    original = RaftDriver._execute

    class Watching(RaftDriver):
        def _execute(self, output: out.Output) -> None:
            executed.append(type(output).__name__)
            original(self, output)

    replica.driver.__class__ = Watching
    replica.start()
    try:
        executed.clear()

        def fail(operation: str, name: str) -> None:
            raise OSError(errno.EIO, "Input/output error")

        replica.state_disk.fail = fail
        with pytest.raises(asyncio.CancelledError):
            await replica.driver.ask(vote_request(9))
        assert executed[-1] == "PersistElection"
        assert "Respond" not in executed
    finally:
        await replica.close()


async def test_an_input_of_a_callback_that_fails_ends_the_step_at_once(tmp_path: Path) -> None:
    async with alone(tmp_path, node_type=Faulty) as replica:

        def fail_in_an_input(_change: object) -> None:
            failing(replica, "tick")
            replica.driver._tick()

        replica.driver._on_leadership = fail_in_an_input
        roles = list(replica.roles)
        replica.driver.resign("to see what happens")
        assert len(replica.failures) == 1
        assert replica.roles == roles, "RoleChanged comes after LeadershipLost"


async def test_after_a_failure_nothing_is_taken_and_it_is_reported_once(tmp_path: Path) -> None:
    async with alone(tmp_path) as replica:
        replica.driver.fail(ValueError("first"))
        replica.driver.fail(ValueError("second"))
        epoch = replica.node.epoch
        replica.driver.resign("nobody listens")
        assert (replica.node.epoch, replica.node.is_leader) == (epoch, True)
        with pytest.raises(asyncio.CancelledError):
            await replica.driver.ask(vote_request(9))
        assert await replica.append() is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [str(each) for each in replica.failures] == ["ValueError: first"]
        await asyncio.wait_for(replica.driver.hand_over(60), SOON_S)


async def test_a_failing_log_sync_never_acknowledges(tmp_path: Path) -> None:
    async with alone(tmp_path) as replica:

        def fail(operation: str, name: str) -> None:
            if operation == "sync_data":
                raise OSError(errno.EIO, "Input/output error")

        replica.disk.fail = fail
        appending = asyncio.create_task(replica.append(timeout_ms=500))
        await until("the log failed", lambda: replica.failures)
        ended = await appending
        assert ended[1] is not CommitOutcome.COMMITTED
        # The process resigns then; a driver that goes on appends nothing either.
        ended = await replica.append()
        assert (
            ended is ErrorCode.NOT_LEADER_OR_FOLLOWER or ended[1] is CommitOutcome.LEADERSHIP_LOST
        )


# --- the end --------------------------------------------------------------------------------------


async def test_a_leader_that_hands_over_tells_the_voters(tmp_path: Path) -> None:
    async with trio(tmp_path) as replicas:
        leader = await leader_of(replicas)
        await leader.driver.hand_over(SOON_S)
        assert not leader.node.is_leader
        told = [
            request
            for sender, request in leader.network.sent
            if sender == leader.id and isinstance(request, EndQuorumEpochRequest)
        ]
        assert len(told) == 2
        other = await leader_of(replicas, but=leader.id)
        assert other is not leader


async def test_handing_over_waits_no_longer_than_told(tmp_path: Path) -> None:
    async with trio(tmp_path) as replicas:
        leader = await leader_of(replicas)
        leader.network.cut.update((1, 2, 3))
        started = asyncio.get_running_loop().time()
        await leader.driver.hand_over(0.2)
        assert asyncio.get_running_loop().time() - started >= 0.2
        assert not leader.node.is_leader


async def test_a_replica_that_fails_while_it_hands_over_does_not_wait(tmp_path: Path) -> None:
    async with trio(tmp_path) as replicas:
        leader = await leader_of(replicas)
        leader.network.cut.update((1, 2, 3))
        handing_over = asyncio.create_task(leader.driver.hand_over(60))
        await asyncio.sleep(0.1)
        assert not handing_over.done()
        leader.driver.fail(OSError(errno.EIO, "the vote was not written"))
        await asyncio.wait_for(handing_over, SOON_S)


async def test_close_ends_every_wait(tmp_path: Path) -> None:
    async with alone(tmp_path) as replica:
        replica.disk.go.clear()
        appending = asyncio.create_task(replica.append())
        await until("it is appended", lambda: replica.driver.pending_appends.pending_bytes > 0)
        later = asyncio.create_task(replica.append())
        await asyncio.sleep(0)
        await replica.driver.close()
        async with asyncio.timeout(SOON_S):
            assert (await appending)[1] is CommitOutcome.LEADERSHIP_LOST
            assert await later is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert replica.driver.pending_appends.pending_bytes == 0


async def test_a_fetch_is_answered_with_the_bytes_of_the_log(tmp_path: Path) -> None:
    async with trio(tmp_path, fetch_timeout_ms=8_000) as replicas:
        leader = await leader_of(replicas)
        offset = await leader.commit(500)
        follower = next(each for each in replicas.values() if each is not leader)
        request = FetchRequest(
            CLUSTER, key(follower.id), leader.node.epoch, offset, leader.node.epoch, max_wait_ms=0
        )
        response, data = await leader.driver.ask(request)
        assert response.error is ErrorCode.NONE
        joined = b"".join(bytes(chunk) for chunk in data)
        assert read_header(memoryview(joined)).base_offset == offset
        assert joined == b"".join(bytes(c) for c in leader.log.read(offset, 1 << 20))
