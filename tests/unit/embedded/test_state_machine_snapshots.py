"""State machines that write their own snapshots, on a real replica: a quorum of one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from quorate.common.features import METADATA_VERSION
from quorate.embedded.state_machine import StateMachine, StateSnapshot, check_machine
from quorate.metadata.metadata_version import APPLICATION_VERSION
from quorate.raft.errors import MisuseError
from quorate.records.batch import Record, iter_records, read_header
from quorate.records.metadata import (
    HAS_STATE,
    FeatureLevelRecord,
    UnknownRecord,
    decode,
)
from quorate.runtime.metadata_batches import build_metadata_batch

from tests.unit.embedded.test_state_machine_runner import commit, running
from tests.unit.runtime.replicas import Replica, until


class Values(StateMachine):
    """A list of values, as its own chunks. It notes what `restore` got."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.restored: tuple[list[bytes], list[bytes]] | None = None
        self.taken = 0

    def apply(self, batch: Sequence[Record]) -> None:
        self.values += [record.value or b"" for record in batch]

    def snapshot(self) -> Any:
        self.taken += 1
        return self.values.copy()

    def restore(self, snapshot: StateSnapshot) -> None:
        state = list(snapshot.state)
        after = [record.value or b"" for batch in snapshot for record in batch]
        self.restored = (state, after)
        self.values = state + after


async def finalize(replica: Replica, level: int = 1) -> None:
    """Finalize application.version."""
    records = [
        FeatureLevelRecord(METADATA_VERSION, 20, version=0),
        FeatureLevelRecord(APPLICATION_VERSION, level, version=0),
    ]
    await replica.driver.append(2, build_metadata_batch(records, 1), 20_000)


def unknown(replica: Replica) -> Iterator[UnknownRecord]:
    """The records of unknown versions in the newest snapshot."""
    name = replica.log.latest_snapshot()
    assert name is not None
    for batch in replica.log.iter_snapshot_batches(name):
        data = memoryview(batch.data)  # type: ignore[arg-type]
        for record in iter_records(data, read_header(data)):
            found = decode(record.value or b"") if record.key is None else None
            if isinstance(found, UnknownRecord):
                yield found


async def restarted(folder: Path, machine: StateMachine) -> BaseException | None:
    """Start a node, and wait until its state machine has everything. Returns the node's failure."""
    async with running(folder, machine) as (replica, runner):
        end = replica.log.end_offset
        await until("it is applied", lambda: runner.offset >= end or replica.failures)
        return replica.failures[0] if replica.failures else None


async def test_a_snapshot_has_the_state_in_place_of_the_records(tmp_path: Path) -> None:
    async with running(tmp_path, Values()) as (replica, runner):
        await finalize(replica)
        await commit(replica, b"a", b"b" * 3_000_000)
        await runner.reached(await commit(replica, b"") + 1)
        assert await replica.snapshotter.write() is not None
        await commit(replica, b"later")
    machine = Values()
    assert await restarted(tmp_path, machine) is None
    state = [b"a", b"b" * 3_000_000, b""]
    assert machine.restored == (state, []), "chunks keep their boundaries"
    assert machine.values == [*state, b"later"]


async def test_it_is_not_asked_at_level_0(tmp_path: Path) -> None:
    machine = Values()
    async with running(tmp_path, machine) as (replica, runner):
        await runner.reached(await commit(replica, b"a") + 1)
        assert await replica.snapshotter.write() is not None
        assert machine.taken == 0
        await finalize(replica)
        assert await replica.snapshotter.write() is not None
        assert machine.taken == 1
        assert list(unknown(replica)) == [HAS_STATE], "earlier releases reject it"
        await finalize(replica, 0)
        await commit(replica, b"b")
        assert await replica.snapshotter.write() is not None
        assert machine.taken == 1
        assert list(unknown(replica)) == [HAS_STATE], "earlier releases reject it"
        await finalize(replica)
        await commit(replica, b"c")
        replica.snapshotter.machine_state = None
        assert await replica.snapshotter.write() is not None
        assert list(unknown(replica)) == [HAS_STATE]
        await finalize(replica, 0)
        assert await replica.snapshotter.write() is not None
    machine = Values()
    assert await restarted(tmp_path, machine) is None
    assert machine.restored == ([b"a"], [b"b", b"c"]), "the state and what follows are copied"


async def test_records_beyond_the_state_follow_it(tmp_path: Path) -> None:
    """Batches are applied while the state is written, and the loader may be ahead."""

    class Held(Values):
        go = threading.Event()

        def snapshot(self) -> Iterable[bytes]:
            values = self.values.copy()

            def chunks() -> Iterator[bytes]:
                assert self.go.wait(20)
                yield from values

            return chunks()

    machine = Held()
    async with running(tmp_path, machine) as (replica, runner):
        await finalize(replica)
        await runner.reached(await commit(replica, b"a") + 1)
        writing = asyncio.create_task(replica.snapshotter.write())
        await asyncio.sleep(0.1)
        await runner.reached(await commit(replica, b"b") + 1)
        assert machine.values == [b"a", b"b"], "it is not held up"
        machine.go.set()
        snapshot = await writing
        assert snapshot is not None
    restored = Values()
    assert await restarted(tmp_path, restored) is None
    assert restored.restored == ([b"a"], [])
    assert restored.values == [b"a", b"b"]


async def test_none_keeps_the_records(tmp_path: Path) -> None:
    class Without(Values):
        def snapshot(self) -> None:
            return None

    async with running(tmp_path, Without()) as (replica, runner):
        await finalize(replica)
        await runner.reached(await commit(replica, b"a") + 1)
        assert await replica.snapshotter.write() is not None
    machine = Values()
    assert await restarted(tmp_path, machine) is None
    assert machine.restored == ([], [b"a"])


async def test_a_node_whose_machine_writes_none_copies_the_state(tmp_path: Path) -> None:
    class Without(Values):
        def snapshot(self) -> None:
            return None

    async with running(tmp_path, Values()) as (replica, runner):
        await finalize(replica)
        await runner.reached(await commit(replica, b"a") + 1)
        assert await replica.snapshotter.write() is not None
    for value in (b"b", b"c"):
        async with running(tmp_path, Without()) as (replica, runner):
            await runner.reached(await commit(replica, value) + 1)
            assert await replica.snapshotter.write() is not None
    machine = Values()
    assert await restarted(tmp_path, machine) is None
    assert machine.restored == ([b"a"], [b"b", b"c"])


async def test_an_empty_state_is_a_state(tmp_path: Path) -> None:
    class Forgetful(Values):
        def snapshot(self) -> list[bytes]:
            return []

    async with running(tmp_path, Forgetful()) as (replica, runner):
        await finalize(replica)
        await runner.reached(await commit(replica, b"a") + 1)
        assert await replica.snapshotter.write() is not None
    machine = Values()
    assert await restarted(tmp_path, machine) is None
    assert machine.restored == ([], [])


async def test_snapshot_may_be_a_coroutine_function(tmp_path: Path) -> None:
    class Awaiting(Values):
        async def snapshot(self) -> list[bytes]:
            await asyncio.sleep(0.01)
            return [b"awaited"]

    async with running(tmp_path, Awaiting()) as (replica, runner):
        await finalize(replica)
        await runner.reached(await commit(replica, b"a") + 1)
        assert await replica.snapshotter.write() is not None
    machine = Values()
    assert await restarted(tmp_path, machine) is None
    assert machine.restored == ([b"awaited"], [])


def snapshots(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*/*.checkpoint*")]


# --- errors ---------------------------------------------------------------------------------------


def failing(values: list[bytes]) -> Iterator[bytes]:
    yield from values
    raise OSError("no such table")


@pytest.mark.parametrize(
    ("taken", "text"),
    [
        (b"all of it", "MisuseError: snapshot returned bytes, not an iterable of bytes"),
        (7, "MisuseError: snapshot returned int, not an iterable of bytes"),
        (["text"], "MisuseError: a chunk of the state is str, not bytes"),
        (failing([b"a"]), "OSError: no such table"),
    ],
)
async def test_an_error_stops_the_node_and_leaves_no_snapshot(
    tmp_path: Path, taken: Any, text: str
) -> None:
    class Wrong(Values):
        def snapshot(self) -> Any:
            return taken

    async with running(tmp_path, Wrong()) as (replica, runner):
        await finalize(replica)
        await runner.reached(await commit(replica, b"a") + 1)
        replica.driver.fail = replica.failures.append  # type: ignore[method-assign]
        writing = asyncio.create_task(replica.snapshotter.write())
        await until("the node fails", lambda: replica.failures)
        assert str(replica.failures[0]) == (
            f"the state machine failed while it took the state for a snapshot at offset "
            f"{runner.offset}: {text}"
        )
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    assert snapshots(tmp_path) == [f"{0:020}-{0:010}.checkpoint"], "the bootstrap checkpoint"


async def test_a_generator_function_is_refused() -> None:
    class Lazy(Values):
        def snapshot(self) -> Iterator[bytes]:
            yield from self.values

    with pytest.raises(MisuseError, match="generator function"):
        check_machine(Lazy())


@pytest.mark.parametrize("reads", ["records", "state", "a part of the state"])
async def test_a_restore_that_leaves_something_stops_the_node(tmp_path: Path, reads: str) -> None:
    class Partial(Values):
        def restore(self, snapshot: StateSnapshot) -> None:
            if reads == "records":
                self.values = [record.value or b"" for batch in snapshot for record in batch]
            elif reads == "state":
                self.values = list(snapshot.state)
            else:
                next(snapshot.state)

    class Without(Values):
        def snapshot(self) -> None:
            return None

    async with running(tmp_path, Values()) as (replica, runner):
        await finalize(replica)
        await runner.reached(await commit(replica, b"a", b"b") + 1)
        assert await replica.snapshotter.write() is not None
    async with running(tmp_path, Without()) as (replica, runner):
        await runner.reached(await commit(replica, b"c") + 1)
        assert await replica.snapshotter.write() is not None
    failure = await restarted(tmp_path, Partial())
    assert "MisuseError: " in str(failure), failure
