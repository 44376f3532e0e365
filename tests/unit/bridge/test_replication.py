"""Fetches of Kafka's replicas from a leader that has not committed anything in its epoch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from quorate.bridge.listener.connections import KafkaConnection
from quorate.bridge.messages import schemas as s
from quorate.bridge.messages.peer_messages import write_request
from quorate.bridge.requests.admission import Admission
from quorate.bridge.requests.replication import UNKNOWN_HIGH_WATERMARK, Replication
from quorate.common.error_codes import ErrorCode
from quorate.raft import messages as m
from quorate.raft.types import ReplicaKey

from tests.unit.bridge.bridge_support import call
from tests.unit.runtime.replicas import CLUSTER, Replica, leader_of, trio, until

WAIT_MS = 100
OBSERVER = ReplicaKey(9, "B" * 21 + "A")


async def admitted(_timeout_ms: int) -> tuple[ErrorCode, str]:
    return ErrorCode.NONE, ""


async def fetch(
    replica: Replica,
    offset: int,
    last_epoch: int,
    version: int = 18,
    *,
    known: int | None = None,
    wait_ms: int = 0,
) -> Any:
    """The partition in the response to an observer that runs Kafka. known: the high watermark that
    it knows, by default the offset.
    """
    known = offset if known is None else known
    served = Replication(
        replica.driver, CLUSTER, "KAFKA", lambda _c, _r: ErrorCode.NONE, Admission(admitted)
    )
    epoch = replica.node.epoch
    request = m.FetchRequest(CLUSTER, OBSERVER, epoch, offset, last_epoch, known, wait_ms, 1 << 20)
    sent = call(s.FETCH, version, write_request(request, version))
    encoded = await served.fetch(sent, KafkaConnection("127.0.0.1"))
    _, body = s.read_response(s.FETCH, version, s.write_response(1, encoded))
    (topic,) = body.responses
    (partition,) = topic.partitions
    assert not int(partition.error_code)
    return partition


async def test_the_high_watermark_is_unknown_until_the_leader_commits_in_its_epoch(
    tmp_path: Path,
) -> None:
    async with trio(tmp_path, fetch_timeout_ms=5_000) as replicas:
        first = await leader_of(replicas)
        committed = await first.commit() + 1
        others = [each for each in replicas.values() if each is not first]
        for each in others:
            await until("it has the record", lambda e=each: e.log.end_offset == committed)
        assert first.node.high_watermark == committed
        others[1].disk.go.clear()  # it votes, but acknowledges no further record
        await first.close()
        second = await until(
            "another leads", lambda: next((e for e in others if e.node.is_leader), None)
        )
        for version in (17, 18):
            partition = await fetch(second, committed, 1, version)
            assert partition.high_watermark == UNKNOWN_HIGH_WATERMARK
        assert second.node.high_watermark > 0
        begun_s, end = time.monotonic(), second.log.end_offset
        await fetch(second, end, second.node.epoch, known=0, wait_ms=WAIT_MS)
        waited_ms = (time.monotonic() - begun_s) * 1000
        assert waited_ms >= WAIT_MS, "what the replica is not told does not end its wait"
        others[1].disk.go.set()
        await until("it commits", lambda: second.node.high_watermark > committed)
        partition = await fetch(second, committed, 1)
        assert partition.high_watermark > committed
