"""Many idle connections and greedy clients against a controller, beside a client that behaves.

    python -m tests.flood --idle 1000 --greedy 200

One real controller. A normal client commits one record after the other, first alone, then while
the idle connections are open and the greedy clients ask in tight loops, park Fetches and send
messages that are too large. In between the same attack goes to another controller on this machine:
what it costs the normal client then is the machine's, whatever a controller does. Each round has
all three phases, and the medians of the rounds count. Reported: its p99 in each, how the greedy
ones ended, and the controller's memory. The exit status is 0 if p99 stayed within the factor and
the controller lived.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import grpc
import grpc.aio
import typer
from quorate.cli.bench.workloads import resident_mib
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.fields import directory_to_wire
from quorate.rpc.wire.limits import MESSAGE_BYTES_MAX
from quorate.v1 import common_pb2, quorum_pb2, raft_pb2

from tests.integration.support import CLUSTER, Node, free_ports
from tests.processes import running_module

CALLS_AT_ONCE = 4
PAUSE_S = 0.005
WARM_UP = 200


@dataclass
class Report:
    """Milliseconds and MiB; medians of the rounds. ended: how the greedy clients' calls ended, by
    status. elsewhere: while the attack goes to another controller; 0 where it did not.
    """

    quiet_p50_ms: float = 0.0
    quiet_p99_ms: float = 0.0
    elsewhere_p50_ms: float = 0.0
    elsewhere_p99_ms: float = 0.0
    flooded_p50_ms: float = 0.0
    flooded_p99_ms: float = 0.0
    idle: int = 0
    greedy: int = 0
    writes: int = 0
    memory_quiet_mib: float = 0.0
    memory_flooded_mib: float = 0.0
    ended: dict[str, int] = field(default_factory=dict)
    p99s_ms: dict[str, list[float]] = field(default_factory=dict)

    @property
    def factor(self) -> float:
        return self.flooded_p99_ms / self.quiet_p99_ms

    @property
    def factor_elsewhere(self) -> float:
        return self.elsewhere_p99_ms / self.quiet_p99_ms


def percentile(latencies: list[float], part: float) -> float:
    return sorted(latencies)[min(len(latencies) - 1, int(len(latencies) * part))] * 1000


async def write(client: QuorumClient, seconds: float) -> list[float]:
    """Commit one record after the other; how long each took, seconds."""
    latencies: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        await client.append_value(b"value".ljust(100, b"."))
        latencies.append(time.monotonic() - began)
        await asyncio.sleep(PAUSE_S)
    return latencies


def open_channel(address: str) -> grpc.aio.Channel:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
    return grpc.aio.insecure_channel(address, options=options)


async def be_greedy(address: str, number: int, ended: Counter[str]) -> None:
    """Ask without a pause, several calls at once; what is asked depends on the number."""
    async with open_channel(address) as channel:
        describe = channel.unary_unary(
            "/quorate.v1.Quorum/DescribeQuorum",
            request_serializer=quorum_pb2.DescribeQuorumRequest.SerializeToString,
        )
        fetch = channel.unary_unary(
            "/quorate.v1.Raft/Fetch", request_serializer=raft_pb2.FetchRequest.SerializeToString
        )
        key = common_pb2.ReplicaKey(
            id=1000 + number, directory_id=directory_to_wire("A" * 21 + "Q")
        )
        parked = raft_pb2.FetchRequest(
            cluster_id=CLUSTER, replica=key, epoch=1, offset=1, last_epoch=1, max_wait_ms=60_000
        )

        async def loop(call: int) -> None:
            while True:
                try:
                    if call == 1 and number % 3 == 1:
                        await fetch(parked, timeout=5)
                    elif call == 2 and number % 50 == 2:
                        text = "x" * (MESSAGE_BYTES_MAX + 1)
                        await describe(quorum_pb2.DescribeQuorumRequest(cluster_id=text))
                    else:
                        await describe(quorum_pb2.DescribeQuorumRequest(), timeout=5)
                    ended["OK"] += 1
                except grpc.aio.AioRpcError as error:
                    ended[error.code().name] += 1
                    if error.code() is grpc.StatusCode.UNAVAILABLE:
                        await asyncio.sleep(0.5)

        await asyncio.gather(*(loop(call) for call in range(CALLS_AT_ONCE)))


@dataclass(frozen=True, slots=True)
class Attack:
    """Idle connections, greedy clients, and for how long the block below is attacked, seconds."""

    idle: int
    greedy: int
    seconds: float

    @asynccontextmanager
    async def on(self, address: str) -> AsyncIterator[Counter[str]]:
        """While it goes on; how the greedy ones' calls ended is there after the block."""
        ended: Counter[str] = Counter()
        channels = [open_channel(address) for _ in range(self.idle)]
        for channel in channels:
            await asyncio.wait_for(channel.channel_ready(), 30)
        # The greedy ones are processes of their own: they shall not slow this one's clock.
        load = ("--greedy", self.greedy, "--seconds", self.seconds + 2)
        async with running_module("tests.flood", "--attack", address, *load) as process:
            await asyncio.sleep(2 + self.greedy / 100)
            yield ended
            output, _ = await process.communicate()
        ended.update(json.loads(output))
        for channel in channels:
            await channel.close()


async def flood(node: Node, other: Node | None, attack: Attack, rounds: int) -> Report:
    report = Report(idle=attack.idle, greedy=attack.greedy)
    ended: Counter[str] = Counter()
    phases: dict[str, list[list[float]]] = {"quiet": [], "elsewhere": [], "flooded": []}
    async with QuorumClient([node.address]) as client:
        await write(client, WARM_UP * PAUSE_S)
        for _ in range(rounds):
            phases["quiet"].append(await write(client, attack.seconds))
            report.memory_quiet_mib = report.memory_quiet_mib or resident_mib(node.pid)
            if other is not None:
                async with attack.on(other.address):
                    phases["elsewhere"].append(await write(client, attack.seconds))
            async with attack.on(node.address) as how:
                phases["flooded"].append(await write(client, attack.seconds))
                report.memory_flooded_mib = max(report.memory_flooded_mib, resident_mib(node.pid))
            ended.update(how)
    for name, runs in phases.items():
        if runs:
            p99s = [percentile(run, 0.99) for run in runs]
            report.p99s_ms[name] = p99s
            setattr(report, f"{name}_p99_ms", statistics.median(p99s))
            p50 = statistics.median(percentile(run, 0.5) for run in runs)
            setattr(report, f"{name}_p50_ms", p50)
            report.writes += sum(len(run) for run in runs)
    report.ended = dict(ended)
    return report


async def be_attackers(address: str, greedy: int, seconds: float) -> Counter[str]:
    ended: Counter[str] = Counter()
    tasks = [asyncio.create_task(be_greedy(address, n, ended)) for n in range(greedy)]
    await asyncio.sleep(seconds + greedy / 100)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return ended


def run(
    folder: Path,
    idle: int,
    greedy: int,
    seconds: float,
    rounds: int = 1,
    *,
    elsewhere: bool = False,
) -> Report:
    """A controller in `folder`, flooded; and where `elsewhere` is wanted, another one beside it."""
    ports = free_ports(1 + elsewhere)
    nodes = [Node(folder / name, 1, port) for name, port in zip("ab", ports, strict=False)]
    try:
        for node in nodes:
            node.format("--standalone")
            node.start()
            node.wait_said("leads epoch 1")
        other = nodes[1] if elsewhere else None
        report = asyncio.run(flood(nodes[0], other, Attack(idle, greedy, seconds), rounds))
        for node in nodes:
            assert node.stop() == 0, node.said()
    finally:
        for node in nodes:
            node.kill()
    return report


def main(
    *,
    idle: Annotated[int, typer.Option()] = 1_000,
    greedy: Annotated[int, typer.Option()] = 200,
    seconds: Annotated[float, typer.Option(help="How long each phase lasts.")] = 20.0,
    rounds: Annotated[int, typer.Option(help="How often each phase is repeated.")] = 3,
    factor: Annotated[float, typer.Option(help="How many times the quiet p99 is allowed.")] = 3.0,
    attack_address: Annotated[str | None, typer.Option("--attack", hidden=True)] = None,
) -> None:
    """Flood a controller of its own."""
    if attack_address is not None:
        os.nice(19)  # elsewhere they would have processors of their own
        print(json.dumps(asyncio.run(be_attackers(attack_address, greedy, seconds))))
        return
    with tempfile.TemporaryDirectory() as folder:
        report = run(Path(folder), idle, greedy, seconds, rounds, elsewhere=True)
    factors = {
        "factor_elsewhere": round(report.factor_elsewhere, 2),
        "factor": round(report.factor, 2),
    }
    print(json.dumps(asdict(report) | factors, indent=2))
    raise typer.Exit(0 if report.factor <= factor else 1)


if __name__ == "__main__":
    typer.run(main)
