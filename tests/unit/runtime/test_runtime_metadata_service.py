"""The active controller of a real node, its quorum's only voter, on a disk that can be held."""

from __future__ import annotations

import asyncio
import random
import threading
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.log.config import LogConfig
from quorate.log.disk import Disk
from quorate.log.metadata_log import MetadataLog, write_bootstrap_checkpoint
from quorate.log.quorum_state import QuorumStateFile
from quorate.metadata import requests as r
from quorate.metadata.controller import MetadataController
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.metadata_version import SUPPORTED
from quorate.metadata.settings import ControllerSettings
from quorate.raft import InitialState, LogState, RaftConfig, RaftNode
from quorate.raft.roles import Leader, Transfer
from quorate.raft.types import ReplicaKey, Voter, VoterSet
from quorate.records import metadata as rec
from quorate.rpc.client.transport import PeerTransport
from quorate.rpc.wire.convert_metadata import MetadataAnswer
from quorate.runtime import metadata_service
from quorate.runtime.clock import Clock
from quorate.runtime.driver import RaftDriver
from quorate.runtime.metadata_batches import build_metadata_batch
from quorate.runtime.metadata_loader import MetadataLoader
from quorate.runtime.metadata_service import MetadataService
from quorate.runtime.outbound import Outbound

KEY = ReplicaKey(1, "Rigw3vfNRMmcl9pdbu4hDQ")
ENDPOINTS = (Endpoint("CONTROLLER", "127.0.0.1", 9),)
BATCH_BYTES_MAX = 1 << 20
SOON_S = 20


class HeldDisk(Disk):
    """A disk whose syncs wait while `go` is not set."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()

    def sync_data(self, descriptor: int) -> None:
        assert self.go.wait(SOON_S)
        super().sync_data(descriptor)


class Replica:
    """What a controller's process puts together, without its server."""

    def __init__(self, directory: Path, batch_bytes_max: int) -> None:
        loop = asyncio.get_running_loop()
        self.disk = HeldDisk()
        self.failures: list[BaseException] = []
        write_bootstrap_checkpoint(directory, VoterSet.of([Voter(KEY, ENDPOINTS)]))
        self.log = MetadataLog.open(
            directory,
            LogConfig(),
            on_durable=lambda ticket: loop.call_soon_threadsafe(self.durable, ticket),
            on_failure=lambda error: loop.call_soon_threadsafe(self.failures.append, error),
            disk=self.disk,
        )
        quorum_state = QuorumStateFile(self.log.partition)
        recovered = self.log.recovered
        epochs = tuple((entry.epoch, entry.offset) for entry in recovered.epochs)
        state = LogState(recovered.start, recovered.end_offset, epochs, recovered.latest_snapshot)
        initial = InitialState(
            quorum_state.read(), state, recovered.voters, recovered.kraft_versions
        )
        clock = Clock()
        config = RaftConfig("yFPgY5iXQYqr5sMxfdxu0Q", KEY, ENDPOINTS)
        self.loader = MetadataLoader(self.log, on_fatal=self.failures.append)
        self.controller = MetadataController(
            lambda: uuid.uuid4().bytes, ControllerSettings(idle_interval_ms=0)
        )
        self.service = MetadataService(
            self.loader, self.controller, batch_bytes_max=batch_bytes_max, pending_bytes_max=5_000
        )
        self.driver = RaftDriver(
            RaftNode(config, initial, random.Random(1), clock.now_ms()),
            self.log,
            quorum_state,
            Outbound(PeerTransport(config.cluster_id)),
            clock,
            on_fatal=self.failures.append,
            on_committed=self.loader.committed,
            on_leadership=self.service.leadership,
        )
        self.service.bind(self.driver)

    def durable(self, ticket: int) -> None:
        self.driver.durable(ticket)

    async def until_active(self) -> None:
        async with asyncio.timeout(SOON_S):
            await self.ask(quota(1))

    async def ask(self, request: Any, timeout_ms: int = 20_000) -> MetadataAnswer:
        return await self.service.handle(request, timeout_ms)

    async def done(self, request: Any) -> Any:
        answer = await self.ask(request)
        assert answer.error is ErrorCode.NONE, answer
        return answer.response


@asynccontextmanager
async def leading(
    directory: Path, batch_bytes_max: int = BATCH_BYTES_MAX
) -> AsyncIterator[Replica]:
    async with running(directory, batch_bytes_max) as replica:
        await wait_for_leadership(replica)
        yield replica


@asynccontextmanager
async def running(
    directory: Path, batch_bytes_max: int = BATCH_BYTES_MAX
) -> AsyncIterator[Replica]:
    replica = Replica(directory, batch_bytes_max)
    replica.loader.start()
    replica.driver.start()
    try:
        yield replica
    finally:
        replica.disk.go.set()
        await replica.service.close()
        await replica.loader.stop()
        await replica.driver.close()
        await asyncio.to_thread(replica.log.close)
    assert replica.failures == []


async def wait_for_leadership(replica: Replica) -> None:
    """A request that comes before there is a leader is refused, so they are repeated."""
    async with asyncio.timeout(SOON_S):
        while (await replica.ask(quota(1))).error is ErrorCode.NOT_CONTROLLER:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def quota(value: float, user: str = "u") -> r.AlterClientQuotas:
    op = r.QuotaOp("request_percentage", value)
    return r.AlterClientQuotas((r.QuotaChange((("user", user),), (op,)),))


def quotas(image: MetadataImage) -> dict[str, float]:
    return {
        key[0][1] or "": values["request_percentage"]
        for key, values in image.quotas.entities.items()
    }


async def test_who_was_answered_reads_what_was_done(tmp_path: Path) -> None:
    async with leading(tmp_path) as replica:
        await replica.done(quota(5))
        assert quotas(replica.loader.image) == {"u": 5}
        described = await replica.done(r.DescribeClientQuotas())
        assert described.entries == (((("user", "u"),), (("request_percentage", 5.0),)),)


async def test_the_log_has_requests_in_their_order(tmp_path: Path) -> None:
    async with leading(tmp_path) as replica:
        asked = [replica.done(quota(n, f"user-{n % 7}")) for n in range(1, 36)]
        await asyncio.gather(*asked)
        assert quotas(replica.loader.image) == {
            "u": 1,
            **{f"user-{n % 7}": n for n in range(29, 36)},
        }
        assert replica.controller.image == replica.loader.image


async def test_nothing_is_answered_before_it_is_durable(tmp_path: Path) -> None:
    async with leading(tmp_path) as replica:
        replica.disk.go.clear()
        changing = asyncio.create_task(replica.done(quota(9)))
        await asyncio.sleep(0.1)
        # This one writes nothing, and rests on what is not committed.
        resting = asyncio.create_task(replica.done(r.DeleteTopics((r.TopicRef("none"),))))
        await asyncio.sleep(0.2)
        assert not changing.done()
        assert not resting.done()
        assert quotas(replica.loader.image) == {"u": 1}
        replica.disk.go.set()
        await asyncio.wait_for(asyncio.gather(changing, resting), SOON_S)
        assert quotas(replica.loader.image) == {"u": 9}


async def test_time_runs_out_and_the_change_may_still_be_made(tmp_path: Path) -> None:
    async with leading(tmp_path) as replica:
        replica.disk.go.clear()
        answer = await replica.ask(quota(9), timeout_ms=200)
        assert answer.error is ErrorCode.REQUEST_TIMED_OUT
        replica.disk.go.set()
        await replica.done(quota(3, "v"))
        assert quotas(replica.loader.image) == {"u": 9, "v": 3}


async def test_requests_waiting_at_a_loss_of_leadership_may_still_be_committed(
    tmp_path: Path,
) -> None:
    async with leading(tmp_path) as replica:
        replica.disk.go.clear()
        changing = asyncio.create_task(replica.ask(quota(9)))
        resting = asyncio.create_task(replica.ask(r.DeleteTopics((r.TopicRef("none"),))))
        await asyncio.sleep(0.1)
        replica.driver.resign("a test")
        for answer in await asyncio.wait_for(asyncio.gather(changing, resting), SOON_S):
            assert answer.error is ErrorCode.NOT_CONTROLLER
            assert "it may still be" in answer.message
        refused = await replica.ask(quota(4))
        assert (refused.error, refused.message) == (ErrorCode.NOT_CONTROLLER, "")
        replica.disk.go.set()
        await wait_for_leadership(replica)
        assert "u" in quotas(replica.loader.image)


async def test_too_much_at_once_is_slowed_down(tmp_path: Path) -> None:
    async with leading(tmp_path) as replica:
        replica.disk.go.clear()
        under_way = [asyncio.create_task(replica.ask(quota(n, f"{n:099}"))) for n in range(1, 90)]
        await asyncio.sleep(0.3)
        answer = await replica.ask(quota(2))
        assert answer.error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        replica.disk.go.set()
        answers = await asyncio.wait_for(asyncio.gather(*under_way), SOON_S)
        assert {a.error for a in answers} == {
            ErrorCode.NONE,
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        }


async def test_a_batch_that_is_too_large_leaves_no_trace(tmp_path: Path) -> None:
    async with leading(tmp_path, batch_bytes_max=2_000) as replica:
        many = tuple(
            r.QuotaChange((("user", f"{n:0500}"),), (r.QuotaOp("request_percentage", 1.0),))
            for n in range(9)
        )
        answer = await replica.ask(r.AlterClientQuotas(many))
        assert answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert "one batch holds at most 2000" in answer.message
        await replica.done(quota(8))
        assert quotas(replica.controller.image) == quotas(replica.loader.image) == {"u": 8}


async def test_records_of_others_are_replayed_before_they_are_appended(tmp_path: Path) -> None:
    async with leading(tmp_path) as replica:
        good = rec.encode(rec.ConfigRecord(4, "", "background.threads", "11"))
        bad = rec.encode(rec.RemoveTopicRecord("q4-87cwrTP20I1r4Xtfj7g"))
        end = replica.log.end_offset
        error, base, text = await replica.service.append_records([good, bad], 5_000)
        assert (error, base) == (ErrorCode.INVALID_RECORD, -1)
        assert "there is no topic" in text
        error, _, text = await replica.service.append_records([b"\x01\x02"], 5_000)
        assert error is ErrorCode.INVALID_RECORD
        assert replica.log.end_offset == end
        assert replica.loader.image.configs.resources == {}
        error, base, _ = await replica.service.append_records([good], 5_000)
        assert (error, base) == (ErrorCode.NONE, end)
        assert replica.loader.image.configs.of(4, "") == {"background.threads": "11"}
        assert replica.controller.image == replica.loader.image


async def broker_registered(replica: Replica, session_timeout_ms: int) -> int:
    """The epoch of broker 7, which is unfenced."""
    replica.controller.settings = ControllerSettings(session_timeout_ms=session_timeout_ms)
    replica.driver.resign("so that the setting counts")
    await wait_for_leadership(replica)
    registered = await replica.done(
        r.RegisterBroker(
            7,
            "b9c1L2YyQwqGrBcZ56ewKg",
            (Endpoint("P", "h", 1),),
            log_dirs=("b9c1L2YyQwqGrBcZ56ewKw",),
            features=tuple(r.BrokerFeature(name, all_of) for name, all_of in SUPPORTED.items()),
        )
    )
    assert registered.error is ErrorCode.NONE, registered
    epoch: int = registered.broker_epoch
    beat = await replica.done(r.BrokerHeartbeat(7, epoch, epoch))
    assert not beat.is_fenced, beat
    return epoch


async def fenced(replica: Replica) -> None:
    async with asyncio.timeout(SOON_S):
        while not replica.loader.image.cluster.brokers[7].fenced:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_silent_broker_is_fenced_in_time(tmp_path: Path) -> None:
    async with leading(tmp_path) as replica:
        await broker_registered(replica, 300)
        await fenced(replica)


async def test_the_controller_ticks_at_its_deadlines_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each heartbeat moves one. A tick that comes early restarts the intervals of other tasks."""
    ticks: list[bool] = []
    async with leading(tmp_path) as replica:
        epoch = await broker_registered(replica, 300)
        tick = replica.controller.tick

        def noted(now_ms: int, next_offset: int) -> Any:
            deadline_ms = replica.controller.next_deadline_ms()
            ticks.append(deadline_ms is not None and deadline_ms <= now_ms)
            return tick(now_ms, next_offset)

        monkeypatch.setattr(replica.controller, "tick", noted)
        for _ in range(40):
            await replica.done(r.BrokerHeartbeat(7, epoch, epoch))
            await asyncio.sleep(0.02)
        await fenced(replica)
    assert ticks
    assert all(ticks)


async def test_the_controller_begins_again_after_a_failure_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with leading(tmp_path) as replica:
        await replica.done(quota(2))

        def broken(*_: Any) -> bytearray:
            raise RuntimeError("broken")

        monkeypatch.setattr(metadata_service, "build_metadata_batch", broken)
        answer = await replica.ask(quota(3))
        assert answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
        monkeypatch.setattr(metadata_service, "build_metadata_batch", build_metadata_batch)
        await replica.done(quota(4, "v"))
        assert quotas(replica.loader.image) == {"u": 2, "v": 4}
        assert replica.controller.image == replica.loader.image


async def test_a_transfer_that_fails_during_activation_only_delays_it(tmp_path: Path) -> None:
    async with running(tmp_path) as replica:
        core = replica.driver.node.core
        replica.disk.go.clear()
        async with asyncio.timeout(SOON_S):
            while not replica.driver.node.is_leader:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        resume_ms = core.now_ms + 60_000
        transfer = Transfer(99, KEY, resume_ms, resume_ms, round=1, is_confirmed=True)
        core.role_as(Leader).transfer = transfer
        replica.disk.go.set()
        async with asyncio.timeout(SOON_S):
            await replica.loader.reached(core.log.end_offset)
        assert not replica.driver.node.takes_appends, "the transfer is pending"
        await asyncio.sleep(0.1)
        assert not replica.service.is_active
        due_ms = core.now_ms
        transfer = Transfer(99, KEY, due_ms, due_ms, round=1, is_confirmed=True)
        core.role_as(Leader).transfer = transfer
        core.due(due_ms)
        answer = await replica.ask(quota(5), timeout_ms=15_000)
        assert answer.error is ErrorCode.NONE, answer
        assert replica.service.is_active
        assert quotas(replica.loader.image) == {"u": 5}
