"""What snapshots keep of the records of applications, against a model: a quorum of one.

Steps append records, change the policy and application.version, write snapshots with and without a
state machine, and start the node again, from its snapshot alone or with its log.
"""

from __future__ import annotations

import asyncio
import pickle
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from quorate.applications import NO_OFFSET, digest_of
from quorate.common.error_codes import ErrorCode
from quorate.common.features import METADATA_VERSION
from quorate.log.config import LogConfig
from quorate.metadata.config.config_defs import CLEANUP_POLICY
from quorate.metadata.metadata_version import APPLICATION_VERSION
from quorate.records.batch import build_data_batch, has_keys, read_header, snapshot_records
from quorate.records.metadata import ApplicationTag, ConfigRecord, FeatureLevelRecord
from quorate.rpc.client.reading import records_of
from quorate.rpc.wire.values import ReadRequest
from quorate.runtime.application_snapshots import MachineState
from quorate.runtime.metadata_batches import build_metadata_batch, field_of
from quorate.runtime.service import NodeService

from tests.unit.runtime.replicas import Network, Replica, until

Pair = tuple[bytes, bytes | None]
KEEP_LOG, DROP_LOG = -1, 1
"""Retention in bytes."""


@dataclass(frozen=True, slots=True)
class Append:
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class Metadata:
    """Set the policy, or the level."""

    policy: str | None = None
    level: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """with_machine: whether the node has a state machine, which is `lag` batches behind."""

    with_machine: bool = False
    lag: int = 0


@dataclass(frozen=True, slots=True)
class Restart:
    retention: int = DROP_LOG


Step = Append | Metadata | Snapshot | Restart

PAIRS = st.tuples(
    st.sampled_from([b"", b"a", b"b", b"c", b"d"]), st.none() | st.binary(min_size=1, max_size=6)
)
STEPS = st.one_of(
    st.builds(Append, st.lists(PAIRS, min_size=1, max_size=4).map(tuple)),
    st.builds(Append, st.lists(PAIRS, min_size=1, max_size=4).map(tuple)),
    st.builds(Snapshot, st.booleans(), st.integers(0, 2)),
    st.builds(Metadata, st.sampled_from(["keep", "compact"])),
    st.builds(Metadata, st.none(), st.sampled_from([0, 1])),
    st.builds(Restart, st.sampled_from([KEEP_LOG, DROP_LOG])),
)


@dataclass(slots=True)
class Model:
    """records: all that were appended, with their offsets; bases: of their batches.

    present: the offsets of those that the newest snapshot, or the log after it, still has.
    state_end: the end of the state in the newest snapshot, 0 without one.
    """

    records: list[tuple[int, bytes, bytes | None]] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)
    present: set[int] = field(default_factory=set)
    policy: str = "keep"
    level: int = 0
    state_end: int = 0

    def index(self, end: int) -> dict[bytes, int]:
        found: dict[bytes, int] = {}
        for offset, key, value in self.records:
            if offset < end and key:
                found[key] = NO_OFFSET if value is None else offset
        return {key: offset for key, offset in found.items() if offset != NO_OFFSET}

    def values(self, end: int) -> dict[bytes, bytes | None]:
        """The state of a machine that keeps the last value of each key."""
        values: dict[bytes, bytes | None] = {}
        for offset, key, value in self.records:
            if offset < end:
                put(values, key, value)
        return values

    def last_offset(self, end: int) -> int:
        return max((offset for offset, _, _ in self.records if offset < end), default=NO_OFFSET)

    def written(self, end: int, state_end: int | None) -> None:
        """Note a snapshot. state_end: the end of the state of this node's machine, if any."""
        if state_end is not None:
            self.state_end = state_end
            # The log has what an earlier snapshot may have left out.
            self.present = {offset for offset, _, _ in self.records if offset >= state_end}
        if self.level and self.policy == "compact":
            index, last = self.index(end), self.last_offset(end)
            for offset, key, value in self.records:
                if offset >= end or not key or offset in (last, index.get(key)):
                    continue
                if value is None and self.state_end and key not in index:
                    continue
                self.present.discard(offset)


def put(values: dict[bytes, bytes | None], key: bytes, value: bytes | None) -> None:
    if value is None and key:
        values.pop(key, None)
    else:
        values[key] = value


@asynccontextmanager
async def running(directory: Path, retention: int) -> AsyncIterator[Replica]:
    config = LogConfig(segment_bytes_max=300, tail_cache_bytes=0, retention_bytes=retention)
    replica = Replica(directory, Network(), log_config=config, election_timeout_ms=20)
    replica.start()
    try:
        node = replica.node
        await until(
            "it leads", lambda: node.is_leader and node.high_watermark == replica.log.end_offset
        )
        await replica.loader.reached(node.high_watermark)
        yield replica
    finally:
        await replica.close()
    assert replica.failures == []


async def append(replica: Replica, batch: bytearray) -> int:
    ended = await replica.driver.append(read_header(batch).count, batch, 20_000)
    assert not isinstance(ended, ErrorCode), ended
    return ended[0]


def metadata(policy: str | None, level: int | None) -> bytearray:
    records: list[ConfigRecord | FeatureLevelRecord] = []
    if policy is not None:
        records.append(ConfigRecord(4, "", CLEANUP_POLICY, policy, version=0))
    if level is not None:
        records.append(FeatureLevelRecord(APPLICATION_VERSION, level, version=0))
    return build_metadata_batch(records, 1_000)


class Run:
    """Steps on a node and on the model."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.model = Model()

    async def play(self, steps: list[Step]) -> None:
        retention, rest = DROP_LOG, iter(steps)
        is_first, last = True, False
        while not last:
            last = True
            async with running(self.directory, retention) as replica:
                if is_first:
                    level = FeatureLevelRecord(METADATA_VERSION, 20, version=0)
                    await append(replica, build_metadata_batch([level], 1_000))
                    is_first = False
                await self.check(replica)
                for step in rest:
                    if isinstance(step, Restart):
                        retention, last = step.retention, False
                        break
                    await self.take(replica, step)
                await self.check(replica)

    async def take(self, replica: Replica, step: Append | Metadata | Snapshot) -> None:
        model = self.model
        if isinstance(step, Append):
            batch = build_data_batch(step.pairs, 1_000)
            base = await append(replica, batch)
            model.bases.append(base)
            for offset, (key, value) in enumerate(step.pairs, base):
                model.records.append((offset, key, value))
                model.present.add(offset)
        elif isinstance(step, Metadata):
            await append(replica, metadata(step.policy, step.level))
            model.policy = step.policy or model.policy
            model.level = model.level if step.level is None else step.level
        else:
            await self.snapshot(replica, step)

    async def snapshot(self, replica: Replica, step: Snapshot) -> None:
        taken: list[int] = []

        async def machine_state() -> MachineState:
            end = replica.loader.offset
            if step.lag and self.model.bases:
                end = self.model.bases[-step.lag :][0]
            end = max(end, replica.log.start_offset, self.model.state_end)
            taken.append(end)
            return MachineState(end, [pickle.dumps(self.model.values(end))])

        replica.snapshotter.machine_state = machine_state if step.with_machine else None
        written = await replica.snapshotter.write()
        if written is not None:
            assert len(taken) == (step.with_machine and self.model.level), "not at level 0"
            self.model.written(written.offset, taken[0] if taken else None)
            self.check_snapshot(replica)

    def check_snapshot(self, replica: Replica) -> None:
        """The newest snapshot has the records that the model expects, and their state."""
        name = replica.log.latest_snapshot()
        assert name is not None
        values: dict[bytes, bytes | None] = {}
        offsets = []
        for batch in replica.log.iter_snapshot_batches(name):
            data = memoryview(batch.data)  # type: ignore[arg-type]
            header = read_header(data)
            chunk = field_of(data)
            if chunk is not None and chunk[0] is ApplicationTag.STATE_CHUNK:
                values = pickle.loads(chunk[1][1:])
            if has_keys(data, header):
                for record in snapshot_records(data, header):
                    put(values, record.key or b"", record.value)
                    offsets.append(record.offset)
        assert offsets == sorted(each for each in self.model.present if each < name.offset)
        assert values == self.model.values(name.offset)

    async def check(self, replica: Replica) -> None:
        """The state of applications is that of the records, and reads return what is there."""
        await replica.loader.reached(replica.node.high_watermark)
        model, end = self.model, replica.loader.offset
        state = replica.loader.applications
        assert (state is None) == (model.level == 0)
        if state is not None:
            index = {digest_of(key): offset for key, offset in model.index(end).items()}
            assert dict(state.index.items()) == index
            assert state.last_offset == model.last_offset(end)
        start = replica.log.start_offset
        in_log = {offset for offset, _, _ in model.records if offset >= start}
        for begin in range(end + 1):
            there = in_log if begin >= start else model.present | in_log
            if begin < start:
                name = replica.log.latest_snapshot()
                assert name is not None
                there = {o for o in model.present if o < name.offset}
                there |= {offset for offset, _, _ in model.records if offset >= name.offset}
            expected = sorted(offset for offset in there if offset >= begin)
            assert await read(replica, begin) == expected
            assert len(await read(replica, begin, 2)) >= min(2, len(expected))


async def read(replica: Replica, begin: int, most: int | None = None) -> list[int | None]:
    """The offsets of the records of applications, as a client takes them from the chunks."""
    service = NodeService(replica.driver, batch_bytes_max=1 << 20, is_ready=lambda: True)
    found = []
    request = ReadRequest(begin, linearizable=False, max_records=most)
    async for chunk in service.read(request):
        assert chunk.error is ErrorCode.NONE, chunk
        for record, _ in records_of(chunk, begin):
            if record is not None and (record.key is not None or most is not None):
                found.append(record.offset)
    return found


def play(*steps: Step) -> None:
    directory = Path(tempfile.mkdtemp(prefix="quorate-compaction-"))
    try:
        asyncio.run(Run(directory).play(list(steps)))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


LEVEL, COMPACT = Metadata(level=1), Metadata("compact")
DOWN, MACHINE = Metadata(level=0), Snapshot(with_machine=True)
FIRST = Append(((b"a", b"1"), (b"b", b"2"), (b"", b"3")))
SECOND = Append(((b"a", b"4"), (b"b", None)))
THIRD = Append(((b"b", None), (b"c", None), (b"a", b"5")))


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(st.lists(STEPS, max_size=16))
@example([LEVEL, COMPACT, FIRST, SECOND, Snapshot(), Restart(), FIRST, Snapshot(), Restart()])
@example([FIRST, LEVEL, SECOND, Snapshot(with_machine=True), Restart(), SECOND, Snapshot()])
@example([LEVEL, FIRST, SECOND, Snapshot(with_machine=True, lag=2), COMPACT, Snapshot(), Restart()])
@example([LEVEL, FIRST, Snapshot(with_machine=True), COMPACT, SECOND, Snapshot(), Restart()])
@example(
    [LEVEL, FIRST, SECOND, MACHINE, Restart(), DOWN, FIRST, MACHINE, Restart(), LEVEL, Restart()]
)
@example([LEVEL, FIRST, MACHINE, COMPACT, THIRD, Snapshot(), Restart(), THIRD, Snapshot()])
@example([LEVEL, FIRST, SECOND, Snapshot(with_machine=True), DOWN, Snapshot(), Restart(), LEVEL])
@example([LEVEL, COMPACT, FIRST, SECOND, Snapshot(), DOWN, Snapshot(), Restart(), SECOND, LEVEL])
def test_snapshots_keep_what_the_policy_says(steps: list[Step]) -> None:
    play(*steps)
