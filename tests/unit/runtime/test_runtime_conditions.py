"""Conditional appends on real replicas: what counts, and when a failure is answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from quorate.common.error_codes import ErrorCode
from quorate.common.features import METADATA_VERSION
from quorate.linearizability import HistoryChecker
from quorate.metadata.metadata_version import APPLICATION_VERSION, LATEST_LEVEL
from quorate.records import metadata as rec
from quorate.records.batch import iter_batches, iter_records
from quorate.rpc.wire.values import NOT_APPENDED, AppendOutcome, LogOffsets, OpaqueRecord
from quorate.runtime.application_service import NOT_FINALIZED, ApplicationService
from quorate.runtime.metadata_service import MetadataService
from quorate.runtime.service import NodeService

from tests.unit.runtime import replicas
from tests.unit.runtime.replicas import Replica, alone, leader_of, trio, until
from tests.unit.runtime.test_runtime_exclusion import with_controller

LEVELS = (
    rec.FeatureLevelRecord(METADATA_VERSION, LATEST_LEVEL),
    rec.FeatureLevelRecord(APPLICATION_VERSION, 1),
)
OFF = (rec.FeatureLevelRecord(APPLICATION_VERSION, 0),)
TIMEOUT_MS = 20_000
RETRIED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.THROTTLING_QUOTA_EXCEEDED)


class Voter:
    """A replica with the services of a controller's process."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.metadata: MetadataService = with_controller(replica)
        self.applications = ApplicationService(replica.driver, replica.loader, self.metadata)
        self.service = NodeService(
            replica.driver,
            batch_bytes_max=1 << 20,
            is_ready=lambda: True,
            metadata=self.metadata,
            applications=self.applications,
        )

    async def append(
        self,
        *records: OpaqueRecord,
        last: int | None = None,
        timeout_ms: int = TIMEOUT_MS,
        keys: Mapping[bytes, int] | None = None,
    ) -> AppendOutcome:
        conditions = LogOffsets(last, tuple((keys or {}).items()))
        return await self.service.append(records, timeout_ms, conditions)

    async def committed(self, *records: OpaqueRecord, **conditions: Any) -> int:
        outcome = await self.append(*records, **conditions)
        assert outcome.error is ErrorCode.NONE, outcome
        return outcome.base_offset

    async def fails(self, **conditions: Any) -> LogOffsets:
        """The offsets that are answered instead of an append."""
        end = self.replica.log.end_offset
        outcome = await self.append((b"no", b"no"), **conditions)
        assert outcome.error is ErrorCode.CONDITION_FAILED, outcome
        assert self.replica.log.end_offset == end
        return outcome.actual

    async def finalize(self, *records: rec.MetadataRecord) -> None:
        await until("it is active", lambda: self.metadata.is_active)
        values = [rec.encode(record) for record in records]
        error, _, text = await self.metadata.append_records(values, TIMEOUT_MS)
        assert error is ErrorCode.NONE, text

    async def ready(self) -> None:
        """Wait until this leader compares."""

        def is_ready() -> bool:
            working = self.applications.working
            return working is not None and self.replica.loader.offset >= working.usable_from

        await until("it is ready", lambda: self.metadata.is_active and is_ready())


@asynccontextmanager
async def one(folder: Path) -> AsyncIterator[Voter]:
    """A quorum of one, with level 1."""
    async with alone(folder) as replica:
        voter = Voter(replica)
        replica.driver.resign("so that the services acquire the leadership")
        await voter.finalize(*LEVELS)
        await voter.ready()
        yield voter
        await voter.metadata.close()


@asynccontextmanager
async def three(folder: Path) -> AsyncIterator[dict[int, Voter]]:
    async with trio(folder) as nodes:
        voters = {each: Voter(replica) for each, replica in nodes.items()}
        leader = await leader_of(nodes)
        await voters[leader.id].finalize(*LEVELS)
        yield voters
        for voter in voters.values():
            await voter.metadata.close()


async def leading(voters: dict[int, Voter], *, but: int = 0) -> Voter:
    leader = await leader_of({each: voter.replica for each, voter in voters.items()}, but=but)
    await voters[leader.id].ready()
    return voters[leader.id]


def log_of(replica: Replica) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Its application records, uncommitted ones included."""
    position = 0
    while position < replica.log.end_offset:
        for chunk in replica.log.read(position, 1 << 20):
            for header, batch in iter_batches(chunk):
                position = header.end_offset
                for record in iter_records(batch, header) if not header.is_control else ():
                    if record.key is not None:
                        yield record.offset, record.key, record.value


# --- what is compared -----------------------------------------------------------------------------


async def test_offsets_of_keys_and_of_the_log(tmp_path: Path) -> None:
    async with one(tmp_path) as voter:
        assert await voter.fails(last=5) == LogOffsets(-1)
        first = await voter.committed((b"a", b"1"), last=-1, keys={b"a": -1})
        second = await voter.committed((b"a", b"2"), (b"b", b"1"), keys={b"a": first, b"c": -1})
        assert await voter.fails(keys={b"a": first}) == LogOffsets(None, ((b"a", second),))
        wrong = {b"a": second, b"b": 0, b"c": 3}
        assert await voter.fails(last=second, keys=wrong) == LogOffsets(
            second + 1, ((b"b", second + 1), (b"c", -1))
        )
        plain = await voter.committed((b"", b"without a key of its own"))
        assert await voter.fails(last=second + 1) == LogOffsets(plain)
        await voter.committed((b"d", b"1"), last=plain, keys={b"b": second + 1})


async def test_a_null_value_deletes_a_key(tmp_path: Path) -> None:
    async with one(tmp_path) as voter:
        first = await voter.committed((b"a", b"1"))
        second = await voter.committed((b"a", None), keys={b"a": first})
        assert await voter.fails(keys={b"a": first}) == LogOffsets(None, ((b"a", -1),))
        third = await voter.committed((b"a", b""), keys={b"a": -1}, last=second)
        assert await voter.fails(keys={b"a": -1}) == LogOffsets(None, ((b"a", third),))
        await voter.committed((b"b", None), keys={b"b": -1})
        assert list(log_of(voter.replica))[:3] == [
            (first, b"a", b"1"),
            (second, b"a", None),
            (third, b"a", b""),
        ]


async def test_of_appends_at_once_one_succeeds(tmp_path: Path) -> None:
    async with one(tmp_path) as voter:
        asked = [voter.append((b"a", str(n).encode()), keys={b"a": -1}) for n in range(20)]
        plain = [voter.append((b"b", b"1")) for _ in range(5)]
        outcomes = await asyncio.gather(*asked, *plain)
        won = [each.base_offset for each in outcomes[:20] if each.error is ErrorCode.NONE]
        assert len(won) == 1
        lost = [each for each in outcomes[:20] if each.error is not ErrorCode.NONE]
        assert {each.actual for each in lost} == {LogOffsets(None, ((b"a", won[0]),))}
        assert [key for _, key, _ in log_of(voter.replica)].count(b"a") == 1


async def test_level_0_rejects_conditions_and_null_values(tmp_path: Path) -> None:
    async with alone(tmp_path) as replica:
        voter = Voter(replica)
        replica.driver.resign("so that the services acquire the leadership")
        await voter.finalize(LEVELS[0])
        rejected = (ErrorCode.UNSUPPORTED_VERSION, NOT_FINALIZED)
        for asked in (
            voter.append((b"a", b"1"), last=-1),
            voter.append((b"a", b"1"), keys={b"a": -1}),
            voter.append((b"a", None)),
        ):
            outcome = await asked
            assert (outcome.error, outcome.message) == rejected
        assert list(log_of(replica)) == []
        await voter.finalize(*LEVELS)
        first = await voter.committed((b"a", b"1"), keys={b"a": -1})
        # A level that is not committed yet counts, too.
        replica.disk.go.clear()
        ending = asyncio.create_task(voter.finalize(*OFF))
        await until("it is appended", lambda: voter.metadata.application_version == 0)
        outcome = await voter.append((b"a", None), keys={b"a": first})
        assert (outcome.error, outcome.message) == rejected
        replica.disk.go.set()
        await ending
        assert (await voter.append((b"a", None))).error is ErrorCode.UNSUPPORTED_VERSION
        assert len(list(log_of(replica))) == 1
        await voter.committed((b"a", b"2"))
        await voter.metadata.close()


async def test_metadata_has_no_conditions(tmp_path: Path) -> None:
    async with one(tmp_path) as voter:
        record = (None, rec.encode(rec.NoOpRecord()))
        assert (await voter.append(record, last=-1)).error is ErrorCode.INVALID_REQUEST
        assert (await voter.append((None, None))).error is ErrorCode.INVALID_RECORD


# --- when it is answered --------------------------------------------------------------------------


async def test_records_that_are_not_committed_count_and_are_awaited(tmp_path: Path) -> None:
    async with one(tmp_path) as voter:
        disk = voter.replica.disk
        disk.go.clear()
        writing = asyncio.create_task(voter.append((b"a", b"1")))
        await until("it is appended", lambda: len(list(log_of(voter.replica))) == 1)
        ((offset, _, _),) = log_of(voter.replica)
        failing = asyncio.create_task(voter.append((b"b", b"1"), keys={b"a": -1}))
        succeeding = asyncio.create_task(voter.append((b"b", b"2"), keys={b"a": offset}))
        await asyncio.sleep(0.2)
        assert not writing.done()
        assert not failing.done(), "the record that it was compared with may be lost"
        assert not succeeding.done()
        disk.go.set()
        assert (await failing).actual == LogOffsets(None, ((b"a", offset),))
        assert (await writing).base_offset == offset
        assert (await succeeding).base_offset == offset + 1


async def test_a_record_that_is_truncated_is_not_answered(tmp_path: Path) -> None:
    async with three(tmp_path) as voters:
        old = await leading(voters)
        first = await old.committed((b"a", b"1"))
        network = old.replica.network
        network.cut.add(old.replica.id)
        lost = asyncio.create_task(old.append((b"a", b"lost"), keys={b"a": first}))
        await until("it is appended", lambda: len(list(log_of(old.replica))) == 2)
        failing = asyncio.create_task(old.append((b"b", b"1"), keys={b"a": first}))
        new = await leading(voters, but=old.replica.id)
        second = await new.committed((b"a", b"2"), keys={b"a": first})
        network.cut.clear()
        outcome = await failing
        assert outcome.error is ErrorCode.NOT_LEADER_OR_FOLLOWER, outcome
        assert (await lost).error not in (ErrorCode.NONE, *NOT_APPENDED)
        await until("it follows", lambda: old.replica.loader.offset >= new.replica.loader.offset)
        state = old.replica.loader.applications
        assert state is not None
        assert state == new.replica.loader.applications
        assert state.last_offset == second
        assert [value for _, _, value in log_of(old.replica)] == [b"1", b"2"]


async def test_a_deposed_leader_answers_no_failure(tmp_path: Path) -> None:
    """All that it compares with is committed, but a newer leader has committed more."""
    async with three(tmp_path) as voters:
        old = await leading(voters)
        first = await old.committed((b"a", b"1"))
        await old.replica.loader.reached(first + 1)
        network = old.replica.network
        network.cut.add(old.replica.id)
        failing = asyncio.create_task(old.append((b"a", b"2"), keys={b"a": -1}))
        new = await leading(voters, but=old.replica.id)
        await new.committed((b"a", None), keys={b"a": first})
        outcome = await failing
        assert outcome.error is ErrorCode.NOT_LEADER_OR_FOLLOWER, outcome
        network.cut.clear()
        await new.committed((b"a", b"2"), keys={b"a": -1})


async def test_a_failure_that_cannot_be_confirmed_in_time_is_not_answered(tmp_path: Path) -> None:
    async with three(tmp_path) as voters:
        voter = await leading(voters)
        await voter.committed((b"a", b"1"))
        voter.replica.network.cut.add(voter.replica.id)
        outcome = await voter.append((b"a", b"2"), keys={b"a": -1}, timeout_ms=300)
        assert outcome.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- random histories -----------------------------------------------------------------------------

KEYS = (b"a", b"b", b"c")


@dataclass
class History:
    """What clients saw. floors: of each key, the largest offset that was acknowledged."""

    checker: HistoryChecker[bytes] = field(default_factory=HistoryChecker)
    expected: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    failures: list[tuple[bytes, int, int]] = field(default_factory=list)
    """Key, actual offset, the key's floor when it was asked."""
    floors: dict[bytes, int] = field(default_factory=dict)
    acknowledged: int = 0


async def client(voters: dict[int, Voter], history: History, number: int) -> None:
    """Changes keys on the condition that they are as it saw them last."""
    source = random.Random(number)
    known = dict.fromkeys(KEYS, -1)
    for attempt in range(40):
        key = source.choice(KEYS)
        value = b"%d-%d" % (number, attempt)
        history.expected[value] = key, known[key]
        history.checker.begin(value)
        floor = history.floors.get(key, -1)
        outcome = await asked(voters, source, (key, value), known[key])
        if outcome.error is ErrorCode.NONE:
            history.checker.acknowledged(value, outcome.base_offset)
            history.acknowledged += 1
            known[key] = outcome.base_offset
            history.floors[key] = max(outcome.base_offset, history.floors.get(key, -1))
        elif outcome.error in NOT_APPENDED:
            history.checker.refused(value)
            if outcome.error is ErrorCode.CONDITION_FAILED:
                ((_, actual),) = outcome.actual.keys
                history.failures.append((key, actual, floor))
                known[key] = actual
                history.floors[key] = max(actual, history.floors.get(key, -1))
        else:
            history.checker.unknown(value)
        await asyncio.sleep(source.random() / 100)


async def asked(
    voters: dict[int, Voter], source: random.Random, record: OpaqueRecord, expected: int
) -> AppendOutcome:
    key, _ = record
    assert key is not None
    for _ in range(500):
        voter = source.choice(list(voters.values()))
        outcome = await voter.append(record, keys={key: expected}, timeout_ms=3_000)
        if outcome.error not in RETRIED:
            break
        await asyncio.sleep(0.02)
    return outcome


async def disturb(voters: dict[int, Voter], network: replicas.Network) -> None:
    source = random.Random(5)
    while True:
        await asyncio.sleep(0.3)
        leaders = [each for each, voter in voters.items() if voter.replica.node.is_leader]
        if not leaders:
            continue
        leader = source.choice(leaders)
        if source.random() < 0.5:
            voters[leader].replica.driver.resign("a test")
        else:
            network.cut.add(leader)
            await asyncio.sleep(3)
            network.cut.clear()


@pytest.mark.slow
async def test_every_conditional_change_replaces_what_it_expected(tmp_path: Path) -> None:
    """Over leader changes, resignations and partitions, in one history."""
    history = History()
    async with three(tmp_path) as voters:
        await leading(voters)
        network = voters[1].replica.network
        disturbing = asyncio.create_task(disturb(voters, network))
        await asyncio.gather(*(client(voters, history, number) for number in range(6)))
        disturbing.cancel()
        await asyncio.gather(disturbing, return_exceptions=True)
        network.cut.clear()
        leader = await leading(voters)
        await leader.committed((b"end", b"end"))
        log = [entry for entry in log_of(leader.replica) if entry[1] != b"end"]
        assert all(not voter.replica.failures for voter in voters.values())
    assert history.checker.verify((offset, value or b"") for offset, _, value in log) == []
    last = dict.fromkeys(KEYS, -1)
    offsets: dict[bytes, list[int]] = {key: [-1] for key in KEYS}
    for offset, key, value in log:
        assert value is not None
        assert history.expected[value] == (key, last[key]), "it replaced another record"
        last[key] = offset
        offsets[key].append(offset)
    for key, actual, floor in history.failures:
        assert actual in offsets[key], "the record that was answered is in the log"
        assert actual >= floor, "a newer record had been acknowledged before"
    assert history.acknowledged > 20
    assert len(history.failures) > 20
