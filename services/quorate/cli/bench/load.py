"""Load on a quorum: callers append records and measure the time until the commit.

A record has `VALUE_BYTES` bytes, as in the benchmarks of the peers. As a program (`python -m
quorate.cli.bench.load`), this module is one of several client processes: it connects, prints
"ready", waits for a line on stdin, runs, and prints its result as one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import uvloop

from quorate.cli.bench.report import percentile
from quorate.common.error_codes import ErrorCode
from quorate.rpc.cancellation import cancel_tasks
from quorate.rpc.client.quorum_client import TRANSPORTS, ClientError, QuorumClient, Transport
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.methods import RPC_METHODS
from quorate.rpc.wire.values import OpaqueRecord
from quorate.v1 import quorum_pb2

VALUE_BYTES = 256
VALUE = b"v" * VALUE_BYTES
RECORD: OpaqueRecord = (b"", VALUE)
PROBE_PERIOD_S = 0.02


@dataclass(slots=True)
class LoadResult:
    """The callers' results."""

    latencies: list[float]
    """The latencies in seconds, sorted."""
    seconds: float
    failed: int = 0
    """The number of appends without a commit."""

    @property
    def commits(self) -> int:
        return len(self.latencies)

    @property
    def per_second(self) -> float:
        return self.commits / self.seconds

    def percentile_ms(self, share: float) -> float:
        return percentile(self.latencies, share) * 1000


async def one_after_the_other(client: QuorumClient, count: int) -> LoadResult:
    """Run one caller, which makes `count` durable commits."""
    latencies = []
    begin = time.perf_counter()
    for _ in range(count):
        started = time.perf_counter()
        await client.append_value(VALUE)
        latencies.append(time.perf_counter() - started)
    return LoadResult(sorted(latencies), time.perf_counter() - begin)


async def for_some_time(
    callers: int, seconds: float, append: Callable[[], Awaitable[object]]
) -> LoadResult:
    """Run `callers` that repeatedly append and wait for the commit, for `seconds`."""
    latencies: list[float] = []
    failed = 0
    begin = time.perf_counter()
    end = begin + seconds

    async def call() -> None:
        nonlocal failed
        while (started := time.perf_counter()) < end:
            try:
                await append()
            except (ClientError, grpc.RpcError):
                failed += 1
            else:
                latencies.append(time.perf_counter() - started)

    await asyncio.gather(*(call() for _ in range(callers)))
    latencies.sort()
    return LoadResult(latencies, time.perf_counter() - begin, failed)


async def concurrently(client: QuorumClient, callers: int, seconds: float) -> LoadResult:
    """Append single records through the client library, which batches them."""
    return await for_some_time(callers, seconds, lambda: client.append_value(VALUE))


async def in_batches(
    client: QuorumClient, callers: int, seconds: float, records: int
) -> LoadResult:
    """Append batches of `records` records each; a latency is that of one batch."""
    batch = [RECORD] * records
    return await for_some_time(callers, seconds, lambda: client.append(batch))


async def fill(client: QuorumClient, count: int, on_records: Callable[[int], None]) -> None:
    """Commit `count` records in concurrent batches; call on_records with the size of each batch."""
    left = count
    batch_records, callers = 1000, 8

    async def call() -> None:
        nonlocal left
        while left > 0:
            size = min(batch_records, left)
            left -= size
            await client.append([RECORD] * size)
            on_records(size)

    await asyncio.gather(*(call() for _ in range(callers)))


async def one_call_a_commit(
    address: str, tls: TlsConfig | None, callers: int, seconds: float
) -> LoadResult:
    """Make one gRPC call for each commit, like a client without the library."""
    if tls is None:
        opened = grpc.aio.insecure_channel(address)
    else:
        opened = grpc.aio.secure_channel(address, tls.channel_credentials())
    async with opened as channel:
        append_once = RPC_METHODS["Append"].stub(channel)
        request = quorum_pb2.AppendRequest(
            records=[quorum_pb2.Record(key=b"", value=VALUE)], timeout_ms=30_000
        )

        async def append() -> None:
            answer = await append_once(request)
            if answer.error_code != ErrorCode.NONE:
                raise ClientError(f"the append failed with error code {answer.error_code}")

        await append()
        return await for_some_time(callers, seconds, append)


@dataclass(frozen=True, slots=True)
class ClientAccess:
    """How to reach a quorum. transport: see `QuorumClient`. tls: None without TLS."""

    transport: Transport = "auto"
    tls: TlsConfig | None = None

    def client(self, bootstrap: Sequence[str], request_timeout_ms: int = 30_000) -> QuorumClient:
        return QuorumClient(
            bootstrap,
            tls=self.tls,
            request_timeout_ms=request_timeout_ms,
            transport=self.transport,
        )

    def arguments(self) -> list[str]:
        """For a client process; `parsed` reads them."""
        files = () if self.tls is None else (self.tls.certificate, self.tls.key, self.tls.ca)
        return ["--transport", self.transport, "--tls", *(str(file or "") for file in files)]

    @classmethod
    def parsed(cls, transport: Transport, files: list[str]) -> ClientAccess:
        if not files:
            return cls(transport)
        certificate, key, ca = (Path(file) if file else None for file in files)
        return cls(transport, TlsConfig(certificate, key, ca))


class Probe:
    """Starts an append every 20 ms, whether or not earlier ones are pending, to time outages.

    `commits` has (begin, end) of each committed append, by `time.monotonic`.
    """

    def __init__(self, bootstrap: Sequence[str], access: ClientAccess) -> None:
        self._client = access.client(bootstrap, request_timeout_ms=10_000)
        self._task: asyncio.Task[None] | None = None
        self._appends: set[asyncio.Task[None]] = set()
        self.commits: list[tuple[float, float]] = []

    async def __aenter__(self) -> Probe:
        await self._client.append_value(VALUE)
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancel_tasks(self._task, *self._appends)
        await self._client.close()

    async def _run(self) -> None:
        while True:
            task = asyncio.create_task(self._append())
            self._appends.add(task)
            task.add_done_callback(self._appends.discard)
            await asyncio.sleep(PROBE_PERIOD_S)

    async def _append(self) -> None:
        began = time.monotonic()
        try:
            await self._client.append_value(VALUE)
        except ClientError:
            return
        self.commits.append((began, time.monotonic()))

    async def first_after(self, moment: float, timeout_s: float = 60.0) -> float:
        """Return the first commit time of an append begun after `moment`. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while True:
                ends = [end for began, end in reversed(self.commits) if began >= moment]
                if ends:
                    return min(ends)
                await asyncio.sleep(0.005)

    def longest_gap_s(self, since: float) -> float:
        """Return the longest time between two commits since `since`, seconds."""
        ends = sorted(end for _, end in self.commits if end >= since)
        return max((b - a for a, b in zip([since, *ends], ends, strict=False)), default=0.0)


async def _client_process(
    bootstrap: list[str], callers: int, seconds: float, access: ClientAccess
) -> None:
    client = access.client(bootstrap)
    try:
        await client.append_value(VALUE)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        result = await concurrently(client, callers, seconds)
    finally:
        await client.close()
    fields = {
        "latencies_us": [round(each * 1e6) for each in result.latencies],
        "seconds": result.seconds,
        "failed": result.failed,
    }
    print(json.dumps(fields), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="One client process of a benchmark.")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--callers", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--transport", choices=TRANSPORTS, required=True)
    parser.add_argument("--tls", nargs="*", default=[], metavar="CERTIFICATE KEY CA")
    options = parser.parse_args()
    bootstrap = options.bootstrap.split(",")
    access = ClientAccess.parsed(options.transport, options.tls)
    uvloop.run(_client_process(bootstrap, options.callers, options.seconds, access))


if __name__ == "__main__":
    main()
