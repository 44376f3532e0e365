"""Hostile requests against real controllers: `python -m tests.hostile.live --count 100000`.

Two controllers, one after the other, each a process of its own. `closed` has TLS and an authorizer;
the attacker has a certificate and no rights: not a byte of its directory may change. `open` takes
requests from everybody, as in the quickstart: what a client was promised before must be there
afterwards, and the next write must commit. Both must live, answer every request with a status of
their own, log no traceback, and keep their memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Annotated

import grpc
import grpc.aio
import typer
from quorate.cli.bench.workloads import resident_mib
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.fields import directory_to_wire
from quorate.rpc.tls import TlsConfig
from rich.console import Console
from rich.progress import Progress

from tests.certificates import make_authority, make_certificate
from tests.hostile.messages import Known, Method, methods, requests
from tests.integration.support import CLUSTER, Node, assert_clean, files, free_ports, until

ATTACKERS = 16
CALL_S = 5.0
STREAMED_MAX = 8
GROWTH_MIB = 200.0
"""Of which gRPC's buffers for messages that are too large are the most."""

UNHANDLED = "UNKNOWN"
"""The status of a call that raised in the controller."""


@dataclass
class Attack:
    """What became of one controller. ended: the requests by status."""

    controller: str
    inputs: int = 0
    seconds: float = 0.0
    memory_before_mib: float = 0.0
    memory_after_mib: float = 0.0
    ended: dict[str, int] = field(default_factory=dict)
    unhandled: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """Which requests, how many; on_input hears of each that is over."""

    seed: str
    count: int
    on_input: Callable[[int], None] = lambda _: None


async def call(channel: grpc.aio.Channel, method: Method, bodies: list[bytes]) -> str:
    """One call with encoded requests; its status."""

    async def stream() -> AsyncIterator[bytes]:
        for body in bodies:
            yield body

    asked = (method.path, None, None)  # bytes go out as they are
    answers: grpc.aio.StreamStreamCall[bytes, bytes] | grpc.aio.UnaryStreamCall[bytes, bytes]
    try:
        if not method.gives_stream:
            await channel.unary_unary(*asked)(bodies[0], timeout=CALL_S)
            return "OK"
        if method.takes_stream:
            answers = channel.stream_stream(*asked)(stream(), timeout=CALL_S)
        else:
            answers = channel.unary_stream(*asked)(bodies[0], timeout=CALL_S)
        try:
            async for _ in answers:
                pass
        finally:
            answers.cancel()  # what is not sent yet has no reader any more
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


async def attack(
    open_channel: Callable[[], grpc.aio.Channel], report: Attack, known: Known, plan: Plan
) -> None:
    """Send the plan's requests, several at once, over every method in turn."""
    turns = itertools.cycle(methods())
    numbers = iter(range(plan.count))
    ended: Counter[str] = Counter()
    unhandled: Counter[str] = Counter()

    async def attacker(channel: grpc.aio.Channel) -> None:
        for number in numbers:
            method = next(turns)
            random = Random(f"{plan.seed} {number}")
            many = random.randrange(1, STREAMED_MAX) if method.takes_stream else 1
            bodies = list(itertools.islice(requests(random, method, known), many))
            status = await call(channel, method, bodies)
            ended[status] += 1
            if status == UNHANDLED:
                unhandled[f"{method.path} (input {number})"] += 1
            plan.on_input(1)

    async with contextlib.AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(open_channel()) for _ in range(ATTACKERS)]
        await asyncio.gather(*map(attacker, channels))
    report.inputs = plan.count
    report.ended = dict(ended.most_common())
    report.unhandled = dict(unhandled)


@contextlib.contextmanager
def running(node: Node) -> Iterator[int]:
    """The controller's process id while it runs as the leader of its quorum."""
    node.format("--standalone")
    node.start()
    try:
        node.wait_said("leads epoch 1")
        yield node.pid
        assert node.is_alive, f"the controller is dead:\n{node.said()[-5000:]}"
        assert node.stop() == 0, node.said()[-5000:]
    finally:
        node.kill()
    assert_clean(node.said())


def _kept(node: Node) -> dict[str, str]:
    """The directory's files; how far the log is flushed is written down by the clock."""
    return {name: it for name, it in files(node.data).items() if "recovery-point" not in name}


def _known(node: Node) -> Known:
    wire = directory_to_wire(node.directory_id)
    return Known((CLUSTER, "CONTROLLER", "127.0.0.1"), (wire,))


async def written(client: QuorumClient, count: int) -> list[tuple[int, bytes]]:
    """Commit some records; their offsets and values."""
    found = []
    for number in range(count):
        value = f"promised {number}".encode()
        found.append((await client.append_value(value), value))
    return found


def _measured(report: Attack, pid: int, work: Callable[[], None]) -> None:
    report.memory_before_mib = resident_mib(pid)
    began = time.monotonic()
    work()
    report.seconds = time.monotonic() - began
    # What only waits to be collected or answered is gone soon.
    with contextlib.suppress(AssertionError):
        until(
            "the memory is back",
            lambda: resident_mib(pid) < report.memory_before_mib + GROWTH_MIB,
            timeout_s=CALL_S,
        )
    report.memory_after_mib = resident_mib(pid)
    assert report.memory_after_mib < report.memory_before_mib + GROWTH_MIB, report
    assert not report.unhandled, report


def attack_closed(folder: Path, plan: Plan) -> Attack:
    """TLS, an authorizer, an attacker without rights: nothing on the disk changes."""
    folder.mkdir(parents=True)
    authority = make_authority(folder, "authority")
    mine = make_certificate(folder, "node-1", authority, names=("node-1",))
    theirs = make_certificate(folder, "mallory", authority)
    node = Node(
        folder,
        1,
        free_ports(1)[0],
        **{
            "listener.security.protocol.map": "CONTROLLER:SSL",
            "ssl.certificate.location": mine[0],
            "ssl.key.location": mine[1],
            "ssl.ca.location": authority[0],
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:CN=node-1",
            "metadata.max.idle.interval.ms": 0,
            "quorate.calls.per.second.max": 0,
        },
    )
    credentials = grpc.ssl_channel_credentials(
        authority[0].read_bytes(), theirs[1].read_bytes(), theirs[0].read_bytes()
    )

    def open_channel() -> grpc.aio.Channel:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        return grpc.aio.secure_channel(node.address, credentials, options=options)

    async def promise() -> None:
        async with QuorumClient([node.address], tls=TlsConfig(*mine, authority[0])) as client:
            await written(client, 20)

    report = Attack("closed")
    with running(node) as pid:
        asyncio.run(promise())
        before = _kept(node)
        work = attack(open_channel, report, _known(node), plan)
        _measured(report, pid, lambda: asyncio.run(work))
        after = _kept(node)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert not changed, f"the attacker changed {sorted(changed)}"
    return report


def attack_open(folder: Path, plan: Plan) -> Attack:
    """Everybody may ask: what was promised is kept, and the quorum goes on."""
    node = Node(folder, 1, free_ports(1)[0], **{"quorate.calls.per.second.max": 0})

    def open_channel() -> grpc.aio.Channel:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        return grpc.aio.insecure_channel(node.address, options=options)

    async def promise() -> list[tuple[int, bytes]]:
        async with QuorumClient([node.address]) as client:
            return await written(client, 20)

    async def kept(promised: list[tuple[int, bytes]]) -> None:
        async with QuorumClient([node.address]) as client:
            await written(client, 1)
            there = {record.offset: record.value async for record in client.read(0)}
        assert dict(promised).items() <= there.items()

    report = Attack("open")
    with running(node) as pid:
        promised = asyncio.run(promise())
        work = attack(open_channel, report, _known(node), plan)
        _measured(report, pid, lambda: asyncio.run(work))
        asyncio.run(kept(promised))
    return report


def main(
    count: Annotated[int, typer.Option(min=1, help="Requests to each controller.")] = 50_000,
    seed: Annotated[str, typer.Option(help="Of all requests.")] = "0",
) -> None:
    """Attack a closed and an open controller; print what became of each as JSON."""
    console = Console(stderr=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        Progress(console=console, transient=True) as progress,
    ):
        task = progress.add_task("requests", total=2 * count)
        for name, attacked in (("closed", attack_closed), ("open", attack_open)):
            plan = Plan(seed, count, lambda n: progress.advance(task, n))
            print(json.dumps(asdict(attacked(Path(folder) / name, plan))))


if __name__ == "__main__":
    typer.run(main)
