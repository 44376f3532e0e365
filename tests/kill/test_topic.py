"""kill -9 of the leader while a producer of librdkafka appends, again and again: each record is in
the log exactly once, in the order in which it was sent.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import confluent_kafka as rdkafka
import pytest
from quorate.cli.local.demo import SNAPSHOTS, until
from quorate.cli.local.local_cluster import LocalCluster
from quorate.rpc.client.quorum_client import QuorumClient

from tests.kill.leaders import caught_up, leader_of
from tests.topic_listeners import TOPIC, add_topic_listeners

KILLS = int(os.environ.get("QUORATE_TOPIC_KILLS", "5"))


class Producing:
    """One idempotent producer, which sends numbers. acknowledged: (offset, key) in order."""

    def __init__(self, servers: str) -> None:
        self.acknowledged: list[tuple[int, bytes]] = []
        self.errors: list[str] = []
        self.sent = 0
        self._stop = asyncio.Event()
        settings = {"enable.idempotence": True, "linger.ms": 2, "retry.backoff.ms": 20}
        self._producer = rdkafka.Producer(
            settings | {"bootstrap.servers": servers, "log_level": 0, "message.timeout.ms": 120_000}
        )
        self._task = asyncio.create_task(self._send())

    async def stop(self) -> None:
        """Wait until every record has an outcome."""
        self._stop.set()
        await self._task
        left = await asyncio.to_thread(self._producer.flush, 120)
        assert left == 0, f"{left} records have no outcome"

    async def _send(self) -> None:
        while not self._stop.is_set():
            for _ in range(20):
                self._producer.produce(
                    TOPIC, key=b"%d" % self.sent, value=b"v", callback=self._done
                )
                self.sent += 1
            self._producer.poll(0)
            await asyncio.sleep(0.01)

    def _done(self, error: rdkafka.KafkaError | None, message: rdkafka.Message) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acknowledged.append((message.offset(), message.key()))


@pytest.mark.timeout(60 + 30 * KILLS)
async def test_each_record_of_a_kafka_producer_is_in_the_log_once(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "cluster", controller_settings=SNAPSHOTS)
    cluster.create([1, 2, 3])
    servers = add_topic_listeners(cluster)
    client = QuorumClient(cluster.addresses, request_timeout_ms=60_000)
    chance = random.Random(KILLS)
    waited: list[int] = []
    try:
        cluster.start()
        await until(cluster, client, lambda d: len(d.voters) == 3)
        await client.finalize_application_version()
        producing = Producing(servers)
        while len(waited) < KILLS:
            leader = await leader_of(cluster, client)
            before = len(producing.acknowledged)
            async with asyncio.timeout(60):
                while len(producing.acknowledged) == before:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await cluster.poll(chance.uniform(0.2, 0.5))
            cluster.kill(leader)
            waited.append(producing.sent - len(producing.acknowledged))
            await cluster.poll(1.0)
            cluster.start([leader])
            await caught_up(cluster, client)
        await producing.stop()
        assert not producing.errors, producing.errors[:5]
        records = [record async for record in client.read(0, metadata=False)]
    finally:
        await client.close()
        await asyncio.to_thread(cluster.stop)
    print(f"{producing.sent} records over {KILLS} kills; {sum(waited)} of them were under way")
    assert [key for _, key in producing.acknowledged] == [b"%d" % n for n in range(producing.sent)]
    assert [(record.offset, record.key) for record in records] == producing.acknowledged
    assert sum(waited) > KILLS, "the kills interrupted appends"
