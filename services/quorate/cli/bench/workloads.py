"""W1 to W9 and others: each is a function that takes a `Bench` and returns measurements.

W1   one caller, sequential durable 256-byte commits
W2   64 callers in one process, each awaiting its own commit, through the client library
W2p  the same 64 callers as 4 processes of 16
W2u  64 callers, one gRPC call per commit, like a client without the library
W3   batches of 1000 records, formed by the callers
W4   kill -9 of the leader until an append that began later is committed
W4g  SIGTERM to the leader: the longest time without a commit
W5   kill -9 and restart of a follower whose log holds N records, until it has caught up
W6   a voter with an empty log is added while the leader holds a gigabyte
W7   resident memory of an idle controller
W8   W1 and W4 as the log grows
W9   W1 and W2 with 1 to 9 voters
metadata  100,000 partitions (see `many_partitions`)

W1 to W3 can also load a quorum that runs already. The others stop or inspect processes, or need a
certain log, so they need a new quorum.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from quorate.cli.bench import floors, load
from quorate.cli.bench.quorum import BenchQuorum, end_all, quorum_of_its_own, running_quorum
from quorate.cli.bench.report import Measurement, percentile
from quorate.cli.output import CommandError
from quorate.controller.kafka.settings import GRPC

CALLERS = 64
PROCESSES = 4
BATCH_RECORDS = 1000
BATCH_CALLERS = 16
WARM_UP = 200
KILLS = 10
SETTLE_S = 3.0
IDLE_S = 10.0
REST_S = 2.0
REST_TIMEOUT_S = 120.0
GIB = 1024**3


@dataclass(slots=True)
class Bench:
    """The parameters of the benchmark."""

    voters: int = 3
    seconds: float = 10.0
    """The duration of each throughput measurement."""
    commits: int = 2000
    """The number of appends in W1."""
    kills: int = KILLS
    """The number of rounds of W4 and W4g."""
    records: int = 1_000_000
    """The number of records in the log of W5 and in the checkpoint of `metadata`."""
    grown: tuple[int, ...] = (0, 1_000_000, 10_000_000)
    """The log sizes of W8, in records."""
    bytes_held: int = GIB
    """The size of the leader's log in W6."""
    partitions: int = 100_000
    """The number of partitions that `metadata` creates."""
    folder: Path | None = None
    bootstrap: tuple[str, ...] = ()
    peer_protocol: str = GRPC
    """The protocol of new quorums, see `LocalCluster`."""
    access: load.ClientAccess = field(default_factory=load.ClientAccess)
    """How clients reach a quorum; controllers of a new one use its TLS files as well."""
    run: int = 0
    note: Callable[[str], None] = field(default=lambda _text: None)
    """Called with progress texts for the user."""

    def quorum(self, voters: int | None = None) -> AbstractAsyncContextManager[BenchQuorum]:
        """Return the quorum to load: that of `bootstrap`, or a new one."""
        if self.bootstrap:
            return running_quorum(self.bootstrap, self.access)
        return quorum_of_its_own(
            voters or self.voters, self.folder, self.peer_protocol, self.access
        )

    def took(
        self, workload: str, metric: str, value: float, unit: str, n: int, **more: object
    ) -> Measurement:
        about: dict[str, object] = {
            "voters": self.voters,
            "durability": "fsync before each acknowledgement",
            "transport": self.access.transport,
            "tls": self.access.tls is not None,
        }
        if not self.bootstrap:
            about["peer_protocol"] = self.peer_protocol
        return Measurement(
            workload, metric, value, unit, n, more=about | {"run": self.run} | dict(more)
        )

    def latencies(
        self, workload: str, result: load.LoadResult, **more: object
    ) -> list[Measurement]:
        return [
            self.took(workload, name, result.percentile_ms(share), "ms", result.commits, **more)
            for name, share in (("p50", 0.5), ("p99", 0.99))
        ]

    def throughput(
        self, workload: str, result: load.LoadResult, callers: int, **more: object
    ) -> list[Measurement]:
        about = {"callers": callers, "failed": result.failed} | more
        rate = self.took(
            workload, "throughput", result.per_second, "commits/s", result.commits, **about
        )
        return [rate, *self.latencies(workload, result, **about)]


Workload = Callable[[Bench], Awaitable[list[Measurement]]]


# --- steady load ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Effort:
    """The resources that a process has used since its start."""

    processor_s: float
    """The user and system time in seconds."""
    switches: int
    """The number of voluntary context switches of the threads."""

    @classmethod
    def of(cls, pid: int) -> Effort:
        processor_s = processor_seconds(pid)
        switches = 0
        for status in Path(f"/proc/{pid}/task").glob("*/status"):
            with suppress(FileNotFoundError):  # a thread that ends meanwhile
                found = status.read_text().partition("\nvoluntary_ctxt_switches:")[2]
                switches += int(found.split()[0])
        return cls(processor_s, switches)


@asynccontextmanager
async def _efforts(quorum: BenchQuorum) -> AsyncIterator[dict[str, Effort]]:
    """Measure leader, a follower and client inside the block; empty for an existing quorum."""
    used: dict[str, Effort] = {}
    pids = {}
    if quorum.cluster is not None:
        leader = await quorum.leader()
        processes = quorum.cluster.processes
        pids = {"client": os.getpid(), "leader": processes[leader].pid}
        for node_id, process in processes.items():
            if node_id != leader:
                pids.setdefault("a follower", process.pid)
    before = {who: Effort.of(pid) for who, pid in pids.items()}
    yield used
    for who, pid in pids.items():
        now, then = Effort.of(pid), before[who]
        used[who] = Effort(now.processor_s - then.processor_s, now.switches - then.switches)


def _costs(
    bench: Bench, workload: str, efforts: dict[str, Effort], commits: int, **more: object
) -> list[Measurement]:
    """Return what bounds a latency: processor time and waits of each process per commit."""
    found = []
    for who, effort in efforts.items():
        for name, value, unit in (
            ("processor", effort.processor_s * 1e6, "µs a commit"),
            ("switches", effort.switches, "a commit"),
        ):
            found.append(
                bench.took(workload, f"{who}, {name}", value / commits, unit, commits, **more)
            )
    return found


async def one_caller(bench: Bench) -> list[Measurement]:
    async with bench.quorum() as quorum:
        return await _one_caller(bench, quorum, "W1")


async def _one_caller(
    bench: Bench, quorum: BenchQuorum, workload: str, **more: object
) -> list[Measurement]:
    await load.one_after_the_other(quorum.client, WARM_UP)
    async with _efforts(quorum) as efforts:
        result = await load.one_after_the_other(quorum.client, bench.commits)
    found = bench.latencies(workload, result, **more)
    return found + _costs(bench, workload, efforts, result.commits, **more)


async def many_callers(bench: Bench) -> list[Measurement]:
    async with bench.quorum() as quorum:
        return await _many_callers(bench, quorum, "W2")


async def _many_callers(
    bench: Bench, quorum: BenchQuorum, workload: str, **more: object
) -> list[Measurement]:
    await load.concurrently(quorum.client, CALLERS, 0.5)
    async with _efforts(quorum) as efforts:
        result = await load.concurrently(quorum.client, CALLERS, bench.seconds)
    found = bench.throughput(workload, result, CALLERS, **more)
    return found + _costs(bench, workload, efforts, result.commits, callers=CALLERS, **more)


async def many_processes(bench: Bench) -> list[Measurement]:
    async with bench.quorum() as quorum:
        callers = CALLERS // PROCESSES
        async with _client_processes(quorum, callers, bench.seconds) as processes:
            for process in processes:
                await _line(process)
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(b"go\n")
            answers = [json.loads(await _line(process)) for process in processes]
    latencies = sorted(us / 1e6 for answer in answers for us in answer["latencies_us"])
    seconds = max(answer["seconds"] for answer in answers)
    result = load.LoadResult(latencies, seconds, sum(answer["failed"] for answer in answers))
    return bench.throughput("W2p", result, CALLERS, processes=PROCESSES)


@asynccontextmanager
async def _client_processes(
    quorum: BenchQuorum, callers: int, seconds: float
) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    command = [sys.executable, "-m", "quorate.cli.bench.load"]
    command += ["--bootstrap", ",".join(quorum.bootstrap), *quorum.access.arguments()]
    command += ["--callers", str(callers), "--seconds", str(seconds)]
    pipe = asyncio.subprocess.PIPE
    processes = [
        # A process prints its latencies in one line, which exceeds a stream reader's default limit.
        await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=1 << 28)
        for _ in range(PROCESSES)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def _line(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise CommandError(f"a client process exited with status {await process.wait()}")
    return line


async def one_call_a_commit(bench: Bench) -> list[Measurement]:
    async with bench.quorum() as quorum:
        address = await quorum.leader_address()
        result = await load.one_call_a_commit(address, bench.access.tls, CALLERS, bench.seconds)
    return bench.throughput("W2u", result, CALLERS)


async def batches(bench: Bench) -> list[Measurement]:
    async with bench.quorum() as quorum:
        await load.in_batches(quorum.client, BATCH_CALLERS, 0.5, BATCH_RECORDS)
        result = await load.in_batches(quorum.client, BATCH_CALLERS, bench.seconds, BATCH_RECORDS)
    records = result.commits * BATCH_RECORDS
    about = {"callers": BATCH_CALLERS, "batch": BATCH_RECORDS, "failed": result.failed}
    rate = records / result.seconds
    return [bench.took("W3", "throughput", rate, "records/s", records, **about)]


# --- failures -------------------------------------------------------------------------------------


def _spread(
    bench: Bench, workload: str, values: list[float], unit: str, **more: object
) -> list[Measurement]:
    return [
        bench.took(workload, name, of(values), unit, len(values), **more)
        for name, of in (("min", min), ("median", statistics.median), ("max", max))
    ]


async def leader_killed(bench: Bench) -> list[Measurement]:
    async with bench.quorum() as quorum:
        return _spread(bench, "W4", await _kill_leaders(bench, quorum), "s")


async def _kill_leaders(bench: Bench, quorum: BenchQuorum) -> list[float]:
    """Return the seconds from each kill of the leader to the first commit of a later append."""
    gaps = []
    for number in range(1, bench.kills + 1):
        what = f"kill -9 of the leader, {number} of {bench.kills}"
        async with _outage(bench, quorum, what) as (leader, probe):
            moment = time.monotonic()
            await asyncio.to_thread(quorum.own.kill, leader)
            gaps.append(await probe.first_after(moment) - moment)
    return gaps


@asynccontextmanager
async def _outage(
    bench: Bench, quorum: BenchQuorum, what: str
) -> AsyncIterator[tuple[int, load.Probe]]:
    """Yield the leader, which the block ends, and a probe; start the leader again afterwards."""
    bench.note(what)
    await quorum.until_all_caught_up()
    leader = await quorum.leader()
    async with load.Probe(quorum.bootstrap, quorum.access) as probe:
        await asyncio.sleep(1.0)
        yield leader, probe
    quorum.own.start([leader])
    await asyncio.sleep(SETTLE_S)


async def leader_stopped(bench: Bench) -> list[Measurement]:
    gaps = []
    async with bench.quorum() as quorum:
        for number in range(1, bench.kills + 1):
            what = f"SIGTERM to the leader, {number} of {bench.kills}"
            async with _outage(bench, quorum, what) as (leader, probe):
                moment = time.monotonic()
                await asyncio.to_thread(quorum.own.stop, [leader])
                await probe.first_after(time.monotonic())
                await asyncio.sleep(1.0)
                gaps.append(probe.longest_gap_s(moment) * 1000)
    return _spread(bench, "W4g", gaps, "ms")


async def follower_restarted(bench: Bench) -> list[Measurement]:
    async with bench.quorum() as quorum:
        await _fill(bench, quorum, bench.records)
        follower = await quorum.a_follower()
        await asyncio.to_thread(quorum.own.kill, follower)
        end = (await quorum.until(lambda _: True, "a leader", 10.0)).high_watermark
        assert end is not None, "the leader knows what is committed"
        started = time.monotonic()
        quorum.own.start([follower])
        await quorum.until_holds(follower, end)
        seconds = time.monotonic() - started
    return [bench.took("W5", "restart", seconds, "s", bench.records)]


async def _fill(bench: Bench, quorum: BenchQuorum, count: int) -> None:
    """Append `count` records, and wait until the controllers have replicated them and written their
    snapshots.
    """
    done = 0

    def on_records(records: int) -> None:
        nonlocal done
        done += records
        bench.note(f"filling the log: {done:,} of {count:,} records")

    await load.fill(quorum.client, count, on_records)
    await quorum.until_all_caught_up()
    bench.note("waiting until the controllers have written their snapshots")
    await _until_at_rest(quorum)


async def voter_added(bench: Bench) -> list[Measurement]:
    count = bench.bytes_held // load.VALUE_BYTES
    async with bench.quorum() as quorum:
        await _fill(bench, quorum, count)
        bench.note("adding a controller with an empty disk")
        cluster = quorum.own
        node = cluster.add(max(cluster.nodes) + 1)
        started = time.monotonic()
        cluster.start([node.id])
        await quorum.until(
            lambda view: any(each.replica.id == node.id for each in view.voters),
            f"controller {node.id} to become a voter",
            600.0,
        )
        seconds = time.monotonic() - started
        received = sum(
            file.stat().st_size
            for pattern in ("*.log", "*.checkpoint")
            for file in node.data.rglob(pattern)
        )
        # While the quorum's files exist: where a virtual machine gives back free memory to its
        # host, a file is written several times as fast right after others were deleted.
        bench.note("measuring the floor: one stream to one disk")
        await asyncio.to_thread(end_all, quorum.own)
        folder = bench.folder or Path.cwd()
        floor = await asyncio.to_thread(floors.one_stream_to_one_disk, folder, received)
    rate = received / seconds
    about = {"bytes": received}
    return [
        bench.took("W6", "until it votes", seconds, "s", count, **about),
        bench.took("W6", "received", rate / 1e6, "MB/s", count, **about),
        bench.took("W6", "one stream to one disk", floor / 1e6, "MB/s", count, **about),
        bench.took("W6", "share of the floor", 100 * rate / floor, "%", count, **about),
    ]


async def _until_at_rest(quorum: BenchQuorum) -> None:
    """Wait until no controller takes more than a twentieth of a processor for two seconds.

    Raises CommandError on timeout.
    """
    deadline = time.monotonic() + REST_TIMEOUT_S
    pids = [process.pid for process in quorum.own.processes.values()]
    while time.monotonic() < deadline:
        before = [processor_seconds(pid) for pid in pids]
        await asyncio.sleep(REST_S)
        spent = [processor_seconds(pid) - at for pid, at in zip(pids, before, strict=True)]
        if max(spent) < REST_S / 20:
            return
    raise CommandError(f"the controllers are still busy after {REST_TIMEOUT_S:.0f} s")


# --- sizes ----------------------------------------------------------------------------------------


def resident_mib(pid: int) -> float:
    """VmRSS of a process, MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise CommandError(f"/proc/{pid}/status has no VmRSS")


def processor_seconds(pid: int) -> float:
    """Return the user and system time of a process since its start, seconds.

    Raises OSError if there is no such process. /proc counts in ticks of 10 ms, which is more than
    a process needs for a few commits; its clock counts nanoseconds.
    """
    # The clock's id, as clock_getcpuclockid(3) computes it: ~pid, and CPUCLOCK_SCHED (2).
    return time.clock_gettime(~pid << 3 | 2)


async def idle_memory(bench: Bench) -> list[Measurement]:
    async with bench.quorum() as quorum:
        bench.note(f"idle for {IDLE_S:.0f} s")
        await asyncio.sleep(IDLE_S)
        sizes = [resident_mib(process.pid) for process in quorum.own.processes.values()]
    return _spread(bench, "W7", sizes, "MiB")


async def growing_log(bench: Bench) -> list[Measurement]:
    found: list[Measurement] = []
    for count in bench.grown:
        async with bench.quorum() as quorum:
            if count:
                await _fill(bench, quorum, count)
            bench.note(f"one caller on {count:,} records")
            found += await _one_caller(bench, quorum, "W8", records=count)
            found += _spread(bench, "W8", await _kill_leaders(bench, quorum), "s", records=count)
    return [_named(each, f"{each.more['records']:,} records") for each in found]


async def more_voters(bench: Bench) -> list[Measurement]:
    found: list[Measurement] = []
    for voters in (1, 3, 5, 7, 9):
        bench.note(f"{voters} voters")
        async with bench.quorum(voters) as quorum:
            found += await _one_caller(bench, quorum, "W9", voters=voters)
            found += await _many_callers(bench, quorum, "W9", voters=voters)
    return [_named(each, f"{each.more['voters']} voters") for each in found]


def _named(measurement: Measurement, subject: str) -> Measurement:
    """Put the subject into the metric's name, so that each has its own row in the table."""
    callers = f", {measurement.more['callers']} callers" if "callers" in measurement.more else ""
    name = f"{subject}{callers}: {measurement.metric}"
    return replace(measurement, metric=name)


async def machine(bench: Bench) -> list[Measurement]:
    """Measure the latency of a disk sync and of a message round trip on this machine."""
    folder = bench.folder or Path.cwd()
    measured = {
        "fdatasync 256 B append": await asyncio.to_thread(floors.sync_latencies, folder),
        "grpc.aio stream 256 B": await asyncio.to_thread(floors.stream_echoes),
    }
    return [
        Measurement(
            what, name, percentile(latencies, share) * 1000, "ms", len(latencies), "machine"
        )
        for what, latencies in measured.items()
        for name, share in (("p50", 0.5), ("p99", 0.99))
    ]
