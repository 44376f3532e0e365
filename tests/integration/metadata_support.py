"""A broker for tests of the commands: it registers and heartbeats, and does nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import uuid_from_bytes
from quorate.metadata import requests as r
from quorate.metadata.metadata_version import SUPPORTED
from quorate.rpc.metadata_client import MetadataClient

BEAT_S = 0.3
WAIT_S = 60


async def _beat(address: str, broker_id: int, unfenced: Event, stop: Event) -> None:
    async with MetadataClient(address.split(",")) as client:
        registered = await client.ask(
            r.RegisterBroker(
                broker_id,
                uuid_from_bytes(bytes([broker_id] * 16)),
                (Endpoint("PLAINTEXT", "127.0.0.1", 9000 + broker_id),),
                log_dirs=(uuid_from_bytes(bytes([200, *[broker_id] * 15])),),
                features=tuple(r.BrokerFeature(name, levels) for name, levels in SUPPORTED.items()),
            )
        )
        assert registered.error is ErrorCode.NONE, registered
        epoch = registered.broker_epoch
        while not stop.is_set():
            beat = await client.ask(r.BrokerHeartbeat(broker_id, epoch, epoch))
            assert beat.error is ErrorCode.NONE, beat
            if not beat.is_fenced:
                unfenced.set()
            await asyncio.sleep(BEAT_S)


@contextmanager
def brokers(address: str, *ids: int) -> Iterator[None]:
    """These brokers, registered and unfenced, until the block ends; then they fall silent."""
    stop = Event()
    with ThreadPoolExecutor(len(ids)) as pool:
        running = []
        try:
            for broker_id in ids:
                unfenced = Event()
                beats = pool.submit(asyncio.run, _beat(address, broker_id, unfenced, stop))
                running.append(beats)
                assert unfenced.wait(WAIT_S) or beats.result(1), f"broker {broker_id} stays fenced"
            yield
        finally:
            stop.set()
            for beats in running:
                beats.result(WAIT_S)
