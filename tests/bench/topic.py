"""Appends by librdkafka and by the Python client to one log, measured in turns, as a table.

    python -m tests.bench.topic --runs 5

Each run is a new quorum of three controllers on this machine. Both clients append the same records:
a key of 8 bytes and a value of 256. librdkafka forms batches by itself; the Python client appends
batches of 1,000, eight at a time, and single values, 256 callers at a time. Every other run begins
with the other client.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import confluent_kafka as rdkafka
import typer
import uvloop
from quorate.cli.local.demo import until
from quorate.cli.local.local_cluster import LocalCluster
from quorate.rpc.client.quorum_client import QuorumClient
from rich.progress import track

from tests.bench.__main__ import console
from tests.bench.comparison import spread
from tests.topic_listeners import TOPIC, add_topic_listeners

VALUE = b"v" * 256
BATCH_RECORDS = 1_000
BATCHES_UNDER_WAY = 8
CALLERS = 256
LIBRDKAFKA = "librdkafka, one idempotent producer"
BATCHES = "Python client, batches of 1,000"
SINGLE = "Python client, single values"

Rates = dict[str, list[float]]


def by_librdkafka(servers: str, count: int) -> float:
    """Records per second."""
    errors: list[Any] = []

    def done(error: Any, _message: Any) -> None:
        if error is not None:
            errors.append(error)

    producer = rdkafka.Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5}
    )
    # Its session is opened, and the leader found, before the time is taken.
    producer.produce(TOPIC, key=b"begin", value=VALUE)
    producer.flush(30)
    began_s = time.monotonic()
    for number in range(count):
        while True:
            try:
                producer.produce(TOPIC, key=b"%08d" % number, value=VALUE, callback=done)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    left = producer.flush(120)
    took_s = time.monotonic() - began_s
    if left or errors:
        raise RuntimeError(f"{left} records without an outcome, {len(errors)} errors: {errors[:1]}")
    return count / took_s


async def for_all(callers: int, count: int, append: Callable[[int], Awaitable[object]]) -> float:
    """Calls per second of `count` calls, by so many callers at a time."""
    numbers = iter(range(count))

    async def call() -> None:
        for number in numbers:
            await append(number)

    began_s = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(callers):
            tasks.create_task(call())
    return count / (time.monotonic() - began_s)


async def by_batches(client: QuorumClient, count: int) -> float:
    """Records per second."""

    async def append(number: int) -> None:
        first = number * BATCH_RECORDS
        keys = range(first, first + BATCH_RECORDS)
        await client.append([(b"%08d" % key, VALUE) for key in keys])

    rate = await for_all(BATCHES_UNDER_WAY, count // BATCH_RECORDS, append)
    return rate * BATCH_RECORDS


async def by_values(client: QuorumClient, count: int) -> float:
    """Records per second."""
    return await for_all(CALLERS, count, lambda _number: client.append_value(VALUE))


async def measured(folder: Path, count: int, *, is_reversed: bool) -> dict[str, float]:
    """The rates of one run."""
    cluster = LocalCluster(folder)
    cluster.create([1, 2, 3])
    servers = add_topic_listeners(cluster)
    client = QuorumClient(cluster.addresses, request_timeout_ms=60_000)
    cluster.start()
    try:
        await until(cluster, client, lambda d: len(d.voters) == 3)
        await client.finalize_application_version()
        await client.append_value(VALUE)
        turns: list[tuple[str, Callable[[], Awaitable[float]]]] = [
            (LIBRDKAFKA, lambda: asyncio.to_thread(by_librdkafka, servers, count)),
            (BATCHES, lambda: by_batches(client, count)),
            (SINGLE, lambda: by_values(client, count // 4)),
        ]
        return {name: await turn() for name, turn in (turns[::-1] if is_reversed else turns)}
    finally:
        await client.close()
        await asyncio.to_thread(cluster.stop)


def main(
    *,
    runs: Annotated[int, typer.Option(min=1, help="How often each is measured.")] = 5,
    records: Annotated[int, typer.Option(min=4_000, help="Records of each client.")] = 200_000,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure the clients in turns, and print records per second."""
    rates: Rates = {}
    for turn in track(range(runs), "runs", console=console, disable=json_):
        with tempfile.TemporaryDirectory() as folder:
            reverse = bool(turn % 2)
            found = uvloop.run(measured(Path(folder) / "cluster", records, is_reversed=reverse))
        for name, rate in found.items():
            rates.setdefault(name, []).append(rate)
    if json_:
        print(json.dumps(rates))
        return
    print("| records/s, min / median / max | |\n|---|---|")
    for name, values in rates.items():
        print(f"| {name} | {spread(values)} |")


if __name__ == "__main__":
    typer.run(main)
