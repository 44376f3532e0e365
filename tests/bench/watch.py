"""Many watchers and one writer: from the commit to each watcher's callback, beside etcd's watch.

    python -m tests.bench.watch --watchers 2000
    python -m tests.bench.watch --watchers 2000 --records 1000 --interval-ms 20 --peers quorate

Each peer is a new cluster of three nodes on this machine, and its watchers are spread over them.
The writer appends a 256-byte record every `--interval-ms` and notes when each append was
acknowledged. A watcher's latency for a record is the time from then to its callback, which may come
first. Prints a line of JSON for each figure: the writer's own latency without and with watchers,
the watchers' p50, p99 and maximum, and the resident memory of all nodes before and with watchers.

Quorate's watchers run in processes of `PER_PROCESS`, because one Python process would measure
itself; etcd's in one process of Go (`etcd_watch`, built on first use). Both have 50 watchers to a
client, which multiplexes them over one stream. etcd's harness is that of `tests.bench`
(QUORATE_PEERS, or ../shared/peers beside the repository); without it only Quorate is measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from quorate.cli.bench.quorum import quorum_of_its_own
from quorate.cli.bench.report import Measurement, percentile
from quorate.controller.kafka.settings import GRPC
from quorate.rpc.client.quorum_client import QuorumClient

from tests.bench.__main__ import PEERS, console
from tests.processes import running_module

HERE = Path(__file__).resolve().parent
PER_PROCESS = 500
PER_CLIENT = 50
VALUE = bytes(256)
WORKLOAD = "watch"
WAIT_S = 120.0


def resident_mib(pids: Sequence[int]) -> float:
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def report(peer: str, values: dict[str, tuple[float, str, int]], **more: object) -> None:
    """Print a line for each figure: its value, unit, and the number of operations."""
    for metric, (value, unit, count) in values.items():
        measured = Measurement(WORKLOAD, metric, value, unit, count, peer=peer, more=more)
        print(measured.line(), flush=True)


def latencies(name: str, found_ms: Sequence[float]) -> dict[str, tuple[float, str, int]]:
    ordered = sorted(found_ms)
    return {
        f"{name} {label}": (percentile(ordered, share), "ms", len(ordered))
        for label, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    }


# --- watchers, in processes of their own ----------------------------------------------------------


async def watch(bootstrap: list[str], begin: int, watchers: int, records: int) -> None:
    """Follow the log; print a line when all are open, and at the end each callback's time, ns."""
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(QuorumClient(bootstrap))
            for _ in range(-(-watchers // PER_CLIENT))
        ]
        times: list[list[int]] = [[] for _ in range(watchers)]

        async def follow(number: int) -> None:
            client = clients[number // PER_CLIENT]
            async for _ in client.read(begin, follow=True, max_records=records + 1):
                times[number].append(time.monotonic_ns())

        tasks = [asyncio.create_task(follow(number)) for number in range(watchers)]
        while not all(times):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        print("open", flush=True)
        await asyncio.gather(*tasks)
    print(json.dumps([each[1:] for each in times]), flush=True)


@asynccontextmanager
async def watcher_processes(
    bootstrap: list[str], begin: int, watchers: int, records: int
) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """Processes whose watchers are all open."""
    processes = []
    async with AsyncExitStack() as stack:
        for first in range(0, watchers, PER_PROCESS):
            count = min(PER_PROCESS, watchers - first)
            followed = ("--follow", f"{begin},{count},{records}")
            started = running_module(
                "tests.bench.watch", *followed, "--bootstrap", ",".join(bootstrap)
            )
            processes.append(await stack.enter_async_context(started))
        for process in processes:
            assert process.stdout is not None
            async with asyncio.timeout(WAIT_S):
                assert await process.stdout.readline() == b"open\n"
        yield processes


# --- one run --------------------------------------------------------------------------------------


async def write(client: QuorumClient, records: int, interval_s: float) -> tuple[list[int], Any]:
    """Append records; when each was acknowledged, ns, and how long it took, ms."""
    acknowledged: list[int] = []
    took_ms: list[float] = []
    for _ in range(records):
        began = time.monotonic_ns()
        await client.append_value(VALUE)
        acknowledged.append(time.monotonic_ns())
        took_ms.append((acknowledged[-1] - began) / 1e6)
        await asyncio.sleep(max(0.0, interval_s - took_ms[-1] / 1000))
    return acknowledged, took_ms


async def measure_quorate(watchers: int, records: int, interval_s: float) -> None:
    async with quorum_of_its_own(3, None, GRPC) as quorum:
        client, pids = quorum.client, [p.pid for p in quorum.own.processes.values()]
        await write(client, 20, 0.0)
        _, alone_ms = await write(client, records, interval_s)
        before = resident_mib(pids)
        begin = await client.append_value(VALUE)
        addresses = quorum.own.addresses
        async with watcher_processes(addresses, begin, watchers, records) as processes:
            opened = resident_mib(pids)
            acknowledged, took_ms = await write(client, records, interval_s)
            callbacks: list[list[int]] = []
            for process in processes:
                assert process.stdout is not None
                async with asyncio.timeout(WAIT_S):
                    callbacks += json.loads(await process.stdout.readline())
            after = resident_mib(pids)
    found = [
        (at - acked) / 1e6
        for times in callbacks
        for at, acked in zip(times, acknowledged, strict=True)
    ]
    report(
        "quorate",
        latencies("append without watchers", alone_ms)
        | latencies("append", took_ms)
        | latencies("callback", found)
        | {
            "memory without watchers": (before, "MiB", 3),
            "memory with watchers": (opened, "MiB", 3),
            "memory at the end": (after, "MiB", 3),
        },
        watchers=watchers,
    )


def measure_etcd(watchers: int, records: int, interval_s: float) -> None:
    """The same with three nodes of etcd; a program in Go watches and writes."""
    sys.path[:0] = [str(PEERS), str(PEERS / "etcd")]
    from etcd_cluster import Cluster  # type: ignore[import-not-found]
    from packages import PEERS as CACHE  # type: ignore[import-not-found]

    program = CACHE / "bin" / "etcdwatch"
    subprocess.run(["go", "build", "-o", program, "."], cwd=HERE / "etcd_watch", check=True)
    with Cluster() as cluster:
        pids = [process.pid for process in cluster.processes.values()]
        before = resident_mib(pids)
        command = [program, "-endpoints", ",".join(cluster.clients), "-watchers", watchers]
        command += ["-n", records, "-interval", f"{interval_s}s"]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            opened = resident_mib(pids)
            found = json.loads(process.stdout.readline())
            after = resident_mib(pids)
        finally:
            process.kill()
            process.wait()
    values = {
        f"{name} {label}": (found[f"{name}_{label}_ms"], "ms", found[f"{name}_n"])
        for name in ("append", "callback")
        for label in ("p50", "p99", "max")
    }
    values |= {
        "memory without watchers": (before, "MiB", 3),
        "memory with watchers": (opened, "MiB", 3),
        "memory at the end": (after, "MiB", 3),
    }
    report("etcd", values, watchers=watchers)


def main(
    *,
    watchers: Annotated[int, typer.Option(min=1, help="How many follow the log.")] = 2000,
    records: Annotated[int, typer.Option(min=1, help="How many are written.")] = 200,
    interval_ms: Annotated[float, typer.Option(min=0, help="From one write to the next.")] = 100,
    peers: Annotated[str, typer.Option(help="Who, with commas: etcd, quorate.")] = "etcd,quorate",
    follow: Annotated[str, typer.Option(hidden=True)] = "",
    bootstrap: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Measure the latency of watchers and the memory that they take."""
    if follow:
        begin, count, written = map(int, follow.split(","))
        asyncio.run(watch(bootstrap.split(","), begin, count, written))
        return
    for peer in peers.split(","):
        if peer == "quorate":
            asyncio.run(measure_quorate(watchers, records, interval_ms / 1000))
        elif (PEERS / "etcd").exists():
            measure_etcd(watchers, records, interval_ms / 1000)
        else:
            console.print(f"{PEERS} has no etcd: it is left out")


if __name__ == "__main__":
    typer.run(main)
