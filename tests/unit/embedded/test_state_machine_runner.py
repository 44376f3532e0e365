"""The order of what a state machine gets: batches, snapshots and leaderships of a real replica."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from quorate.common.error_codes import ErrorCode
from quorate.embedded.runner import StateMachineRunner
from quorate.embedded.state_machine import (
    StateMachine,
    StateMachineError,
    StateSnapshot,
    check_machine,
)
from quorate.process.shutdown import NodeError
from quorate.raft.errors import MisuseError
from quorate.raft.outputs import LeadershipAcquired, LeadershipLost
from quorate.records.batch import Record, build_data_batch

from tests.logs.cleaning import clean
from tests.unit.runtime.replicas import Network, Replica, until


class Components:
    """What the runner uses of a node's components."""

    def __init__(self, replica: Replica) -> None:
        self.driver = replica.driver
        self.snapshotter = replica.snapshotter
        self.on_fatal = replica.failures.append


class Machine(StateMachine):
    """Notes what it gets, in order. `hold` keeps it within the next call until it is set."""

    runner: StateMachineRunner

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.hold: asyncio.Event | None = None
        self.fail: Callable[[Record], None] = lambda _record: None

    @property
    def values(self) -> list[bytes | None]:
        return [got.value for kind, got in self.seen if kind == "record"]

    @property
    def leaderships(self) -> list[tuple[str, int]]:
        return [(kind, got) for kind, got in self.seen if kind in ("acquired", "lost")]

    async def apply(self, batch: Sequence[Record]) -> None:
        for record in batch:
            self.fail(record)
            self.seen.append(("record", record))
        await self._held()

    def restore(self, snapshot: StateSnapshot) -> None:
        records = [record for batch in snapshot for record in batch]
        self.seen.append(("restored", (snapshot.offset, [r.offset for r in records])))
        self.seen += [("record", record) for record in records]

    async def leadership_acquired(self, epoch: int) -> None:
        self.seen.append(("acquired", epoch))
        await self._held()

    async def leadership_lost(self, epoch: int) -> None:
        self.seen.append(("lost", epoch))
        await self._held()

    async def _held(self) -> None:
        if self.hold is not None:
            await self.hold.wait()


@asynccontextmanager
async def running(
    directory: Path, machine: Machine
) -> AsyncIterator[tuple[Replica, StateMachineRunner]]:
    """A quorum of one, with a state machine."""
    replica = Replica(directory, Network(), election_timeout_ms=50)
    runner = StateMachineRunner(cast(Any, Components(replica)), machine)
    replica.start()
    runner.start()
    try:
        await until("it leads", lambda: replica.node.is_leader and replica.node.high_watermark > 0)
        yield replica, runner
    finally:
        await runner.stop()
        await replica.close()


async def commit(replica: Replica, *values: bytes) -> int:
    """Append one batch, and return its base offset."""
    batch = build_data_batch([(b"k", value) for value in values], 1)
    ended = await replica.driver.append(len(values), batch, 20_000)
    assert not isinstance(ended, ErrorCode), ended
    return ended[0]


async def lead_again(replica: Replica) -> int:
    """Resign and be elected again; returns the new epoch."""
    epoch = replica.node.epoch
    replica.driver.resign("a test wants another epoch")
    await until("it leads again", lambda: replica.node.is_leader and replica.node.epoch > epoch)
    return replica.node.epoch


async def test_records_are_passed_once_and_in_order(tmp_path: Path) -> None:
    machine = Machine()
    async with running(tmp_path, machine) as (replica, runner):
        first = await commit(replica, b"a", b"b")
        last = await commit(replica, b"c")
        await runner.reached(last + 1)
        assert machine.values == [b"a", b"b", b"c"]
        records = [got for kind, got in machine.seen if kind == "record"]
        assert [record.offset for record in records] == [first, first + 1, last]
        assert runner.offset == last + 1


async def test_a_leader_is_told_after_what_precedes_its_epoch_and_before_its_records(
    tmp_path: Path,
) -> None:
    machine = Machine()
    async with running(tmp_path, machine) as (replica, runner):
        await runner.reached(await commit(replica, b"first epoch") + 1)
        epoch = await lead_again(replica)
        last = await commit(replica, b"second epoch")
        await runner.reached(last + 1)
    kinds = [got.value if kind == "record" else (kind, got) for kind, got in machine.seen]
    first = machine.leaderships[0][1]
    assert kinds == [
        ("acquired", first),
        b"first epoch",
        ("lost", first),
        ("acquired", epoch),
        b"second epoch",
        ("lost", epoch),
    ]


async def test_callbacks_of_two_leaderships_do_not_interleave_in_a_slow_machine(
    tmp_path: Path,
) -> None:
    machine = Machine()
    async with running(tmp_path, machine) as (replica, runner):
        await until("the first leadership", lambda: machine.leaderships)
        first = replica.node.epoch
        machine.hold = asyncio.Event()
        await commit(replica, b"held")
        await until("the machine is within apply", lambda: b"held" in machine.values)
        unnoticed = await lead_again(replica)
        await commit(replica, b"of an epoch that ends unnoticed")
        last_epoch = await lead_again(replica)
        last = await commit(replica, b"last")
        assert machine.leaderships == [("acquired", first)], "one call at a time"
        machine.hold.set()
        await runner.reached(last + 1)
        assert machine.leaderships == [
            ("acquired", first),
            ("lost", first),
            ("acquired", last_epoch),
        ]
        at = machine.seen.index(("acquired", last_epoch))
        assert machine.seen[at - 1][1].value == b"of an epoch that ends unnoticed"
        assert machine.seen[at + 1][1].value == b"last"
        assert unnoticed < last_epoch


async def test_an_old_leadership_ends_although_the_epoch_is_not_applied_yet(tmp_path: Path) -> None:
    machine = Machine()
    async with running(tmp_path, machine) as (replica, runner):
        await until("the first leadership", lambda: machine.leaderships)
        epoch = replica.node.epoch
        runner.leadership(LeadershipLost(epoch))
        start = runner.offset
        runner.leadership(LeadershipAcquired(epoch + 1, start))
        await until("it is lost", lambda: ("lost", epoch) in machine.seen)
        assert ("acquired", epoch + 1) not in machine.seen, "its first record is not committed"
        await commit(replica, b"what the test calls the first record")
        await until("it is acquired", lambda: ("acquired", epoch + 1) in machine.seen)


async def test_a_restart_restores_the_snapshot_and_then_the_log(tmp_path: Path) -> None:
    async with running(tmp_path, Machine()) as (replica, runner):
        offsets = [await commit(replica, f"{number}".encode()) for number in range(3)]
        snapshot = await replica.snapshotter.write()
        assert snapshot is not None
        after = await commit(replica, b"after")
    machine = Machine()
    async with running(tmp_path, machine) as (replica, runner):
        await runner.reached(after + 1)
        assert machine.seen[0] == ("restored", (snapshot.offset, offsets))
        assert machine.values == [b"0", b"1", b"2", b"after"]
        last = await commit(replica, b"last")
        await runner.reached(last + 1)
        assert machine.values[-1] == b"last"


async def test_a_machine_that_lags_behind_the_log_gets_a_snapshot(tmp_path: Path) -> None:
    machine = Machine()
    async with running(tmp_path, machine) as (replica, runner):
        await until("the first leadership", lambda: machine.leaderships)
        machine.hold = asyncio.Event()
        first = await commit(replica, b"held")
        await until("the machine is within apply", lambda: b"held" in machine.values)
        missed = await commit(replica, b"missed")
        snapshot = await replica.snapshotter.write()
        assert snapshot is not None
        object.__setattr__(replica.log.config, "retention_ms", 0)
        clean(replica.log, 1 << 50)
        assert replica.log.start_offset == snapshot.offset
        last = await commit(replica, b"last")
        machine.hold.set()
        await runner.reached(last + 1)
        at = machine.seen.index(("restored", (snapshot.offset, [first, missed])))
        assert [got.value for _, got in machine.seen[at + 1 :]] == [b"held", b"missed", b"last"]


async def test_a_machine_that_raises_stops_the_node_and_gets_nothing_more(tmp_path: Path) -> None:
    machine = Machine()

    def fail(record: Record) -> None:
        if record.value == b"bad":
            raise ValueError("no such account")

    machine.fail = fail
    async with running(tmp_path, machine) as (replica, runner):
        bad = await commit(replica, b"bad")
        with pytest.raises(StateMachineError) as caught:
            await runner.reached(bad + 1)
        assert str(caught.value) == (
            f"the state machine failed while it applied the batch at offset {bad}: "
            "ValueError: no such account"
        )
        assert isinstance(caught.value.__cause__, ValueError)
        assert replica.failures == [caught.value]
        await commit(replica, b"after")
        frames = []
        for _ in range(3):
            with pytest.raises(NodeError) as caught_later:
                await runner.reached(bad + 2)
            frames.append(len(traceback.extract_tb(caught_later.value.__traceback__)))
        assert frames[0] == frames[-1], "the traceback does not grow"
    assert machine.values == []
    assert ("lost", replica.node.epoch) not in machine.seen, "its state is unknown"


async def test_a_snapshot_cannot_be_read_twice(tmp_path: Path) -> None:
    class Twice(Machine):
        def restore(self, snapshot: StateSnapshot) -> None:
            assert sum(len(batch) for batch in snapshot) == 1
            super().restore(snapshot)

    async with running(tmp_path, Machine()) as (replica, _runner):
        await commit(replica, b"a")
        assert await replica.snapshotter.write() is not None
    async with running(tmp_path, Twice()) as (replica, _runner):
        await until("the node fails", lambda: replica.failures)
        assert "MisuseError: a snapshot can be read once" in str(replica.failures[0])


async def test_restore_must_not_return_a_coroutine(tmp_path: Path) -> None:
    class Deferring(Machine):
        def restore(self, snapshot: StateSnapshot) -> None:
            return self._restored(snapshot)  # type: ignore[return-value]

        async def _restored(self, snapshot: StateSnapshot) -> None:
            raise AssertionError

    async with running(tmp_path, Machine()) as (replica, _runner):
        await commit(replica, b"a")
        assert await replica.snapshotter.write() is not None
    async with running(tmp_path, Deferring()) as (replica, _runner):
        await until("the node fails", lambda: replica.failures)
        assert "MisuseError: it returned a coroutine" in str(replica.failures[0])


async def test_a_method_must_not_wait_for_itself(tmp_path: Path) -> None:
    class Waiting(Machine):
        async def apply(self, batch: Sequence[Record]) -> None:
            assert batch[-1].offset is not None
            await self.runner.reached(batch[-1].offset + 1)

    machine = Waiting()
    async with running(tmp_path, machine) as (replica, runner):
        machine.runner = runner
        await commit(replica, b"a")
        await until("the node fails", lambda: replica.failures)
        assert "a method of the state machine would wait for itself" in str(replica.failures[0])


@pytest.mark.parametrize("wrong", [object(), Machine])
def test_something_else_is_no_state_machine(wrong: Any) -> None:
    with pytest.raises(MisuseError, match="is not a StateMachine: pass an instance"):
        check_machine(wrong)


def test_restore_must_not_be_a_coroutine_function() -> None:
    class Asynchronous(Machine):
        async def restore(self, snapshot: StateSnapshot) -> None:  # type: ignore[override]
            raise AssertionError

    with pytest.raises(MisuseError, match="restore is a coroutine function"):
        check_machine(Asynchronous())


async def test_other_tasks_run_while_much_is_applied(tmp_path: Path) -> None:
    class Slow(Machine):
        def apply(self, batch: Sequence[Record]) -> None:  # type: ignore[override]
            time.sleep(0.002)
            self.seen += [("record", record) for record in batch]

    machine = Slow()
    async with running(tmp_path, machine) as (replica, runner):
        await runner.reached(await commit(replica, b"first"))
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1

        offsets = await asyncio.gather(*(commit(replica, b"%d" % number) for number in range(100)))
        ticking = asyncio.create_task(tick())
        await runner.reached(max(offsets) + 1)
        ticking.cancel()
        assert len(machine.values) == 101
        assert ticks >= 10


async def test_a_large_batch_is_one_call(tmp_path: Path) -> None:
    class Counting(Machine):
        async def apply(self, batch: Sequence[Record]) -> None:
            self.seen.append(("batch", [record.offset for record in batch]))

    machine = Counting()
    async with running(tmp_path, machine) as (replica, runner):
        base = await commit(replica, *(b"%d" % number for number in range(5_000)))
        await runner.reached(base + 5_000)
        assert machine.seen[-1] == ("batch", list(range(base, base + 5_000)))


async def test_a_wait_that_is_given_up_is_forgotten(tmp_path: Path) -> None:
    async with running(tmp_path, Machine()) as (replica, runner):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(runner.reached(1_000), 0.01)
        assert runner._waiting == []
        await runner.reached(await commit(replica, b"a") + 1)


async def test_waits_end_with_the_node(tmp_path: Path) -> None:
    async with running(tmp_path, Machine()) as (_replica, runner):
        waiting = asyncio.create_task(runner.reached(1_000))
        await asyncio.sleep(0)
    with pytest.raises(NodeError, match="has stopped"):
        await waiting
