"""The driver stores which log end the replica must reach again, and that it has reached it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from quorate.common.endpoints import Endpoint
from quorate.log.config import LogConfig
from quorate.log.metadata_log import MetadataLog, write_bootstrap_checkpoint
from quorate.log.quorum_state import QuorumStateFile
from quorate.log.required_end import RequiredEndFile
from quorate.raft import InitialState, LogState, RaftConfig, RaftNode
from quorate.raft.required_end import adopt
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, RequiredEnd, Voter, VoterSet
from quorate.rpc.client.transport import PeerTransport
from quorate.runtime.clock import Clock
from quorate.runtime.driver import RaftDriver
from quorate.runtime.outbound import Outbound

KEY = ReplicaKey(1, "Rigw3vfNRMmcl9pdbu4hDQ")
ENDPOINTS = (Endpoint("CONTROLLER", "127.0.0.1", 9),)
SOON_S = 20


class Replica:
    """The only voter of its quorum."""

    def __init__(self, directory: Path) -> None:
        loop = asyncio.get_running_loop()
        self.failures: list[BaseException] = []
        write_bootstrap_checkpoint(directory, VoterSet.of([Voter(KEY, ENDPOINTS)]))
        self.log = MetadataLog.open(
            directory,
            LogConfig(),
            on_durable=lambda ticket: loop.call_soon_threadsafe(self.driver.durable, ticket),
            on_failure=lambda error: loop.call_soon_threadsafe(self.failures.append, error),
        )
        self.file = RequiredEndFile(self.log.partition)
        recovered, quorum_state = self.log.recovered, QuorumStateFile(self.log.partition)
        epochs = tuple((entry.epoch, entry.offset) for entry in recovered.epochs)
        initial = InitialState(
            quorum_state.read(),
            LogState(recovered.start, recovered.end_offset, epochs, recovered.latest_snapshot),
            recovered.voters,
            recovered.kraft_versions,
            required_end=self.file.read(),
        )
        config = RaftConfig("yFPgY5iXQYqr5sMxfdxu0Q", KEY, ENDPOINTS)
        clock = Clock()
        self.driver = RaftDriver(
            RaftNode(config, initial, random.Random(1), clock.now_ms()),
            self.log,
            quorum_state,
            Outbound(PeerTransport(config.cluster_id)),
            clock,
            on_fatal=self.failures.append,
        )

    async def close(self) -> None:
        await self.driver.close()
        await asyncio.to_thread(self.log.close)
        assert self.failures == []


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not condition():  # noqa: ASYNC110 - nothing tells when
            await asyncio.sleep(0.01)


async def test_it_is_lifted_on_disk_when_the_log_has_reached_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    required = RequiredEnd(OffsetAndEpoch(9, 0))
    write_bootstrap_checkpoint(tmp_path, VoterSet.of([Voter(KEY, ENDPOINTS)]))
    file = RequiredEndFile(tmp_path / "__cluster_metadata-0")
    file.write(required)
    replica = Replica(tmp_path)
    with caplog.at_level("INFO"):
        replica.driver.start()
        await until(lambda: file.read() is None)
    assert replica.driver.node.is_leader
    assert replica.log.durable_end > 0
    text = caplog.text
    assert text.index("until its log reaches 9@0") < text.index("reached the required end 9@0")
    await replica.close()


async def test_it_is_stored_when_the_leader_tells_it(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    replica.driver.start()
    await until(lambda: replica.driver.node.high_watermark > 0)
    end = OffsetAndEpoch(1_000, replica.driver.node.epoch)
    adopt(replica.driver.node.core, end)
    replica.driver.snapshot_created(OffsetAndEpoch(0, 0))  # any input executes what is wanted
    assert replica.file.read() == RequiredEnd(end, may_stand=False)
    await replica.close()
