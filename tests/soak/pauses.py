"""The longest time without a committed write around faults of three real controllers.

    python -m tests.soak.pauses --runs 10 --case kill --case restart
    PYTHONPATH=/path/to/another/checkout/services python -m tests.soak.pauses --json

The second form measures another version with the same program. Figures are milliseconds between
two acknowledgements that eight clients get (see `Workload.longest_gap_s`). A note says how the
request of a case ended, and after how long.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import quorate
import typer
from quorate.cli.local.workload import Workload
from quorate.common.endpoints import Endpoint
from quorate.controller.formatting import random_uuid
from quorate.raft.types import ReplicaKey
from quorate.rpc.client.quorum_client import ClientError, QuorumClient
from rich.console import Console
from rich.table import Table

from tests.integration.support import HOST, free_ports
from tests.processes import Dialog
from tests.soak.network import Network
from tests.soak.nodes import FaultyNode, FaultyQuorum

IDS = (1, 2, 3)
CALLERS = 8
PAUSE_S = 0.004
BEFORE_S = 0.3
AFTER_S = 1.0
ASLEEP_S = 8.0
CLIENT_TIMEOUT_MS = 30_000
STUCK_MS = 600_000

PREPARED = """
import sys
import quorate.cli.node.controller, quorate.controller.main
from quorate.cli.main import main
print("prepared", flush=True)
sys.stdin.readline()
sys.exit(main(sys.argv[1:]))
"""


@dataclass(slots=True)
class Figures:
    """Of one case: a gap for each run, and what there is to say about it."""

    gaps_ms: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def json(self) -> dict[str, object]:
        return {
            "runs": len(self.gaps_ms),
            "median_ms": round(statistics.median(self.gaps_ms), 1),
            "max_ms": round(max(self.gaps_ms), 1),
            "gaps_ms": [round(gap, 1) for gap in self.gaps_ms],
            "notes": self.notes,
        }


class Successor(Dialog):
    """A process that has imported everything and becomes a controller at a word."""

    def __init__(self, node: FaultyNode) -> None:
        command = (sys.executable, "-c", PREPARED, "controller", node.properties)
        super().__init__(f"successor of {node.name}", node.log_file, *command)
        self._node = node

    async def prepare(self) -> None:
        self.start()
        await asyncio.to_thread(self.line)

    def take_over(self) -> None:
        self._node.said_before = self._node.log_file.stat().st_size
        self.tell("")
        self._node.process = self.process


class Bench:
    """Three voters, behind proxies where a case needs them, and eight writers."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.network = Network() if case in BEHIND_PROXIES else None
        self.quorum = FaultyQuorum(folder, None, IDS, network=self.network)
        self.load = Workload(self.quorum.addresses, callers=CALLERS, pause_s=PAUSE_S)

    async def measure(self, case: Case) -> tuple[float, str]:
        """One run: the longest gap in ms, and the note."""
        await self.quorum.whole()
        leader, _ = await self.quorum.leader()
        await asyncio.sleep(AFTER_S)
        note = await CASES[case](self, leader)
        gap_ms = self.load.longest_gap_s * 1000
        if case in ALTERS_VOTERS:
            return gap_ms, note
        for node in self.quorum.nodes.values():
            if node.status is not None:
                node.start()
        await self.quorum.whole()
        return gap_ms, note

    def follower(self, leader: FaultyNode) -> FaultyNode:
        return next(node for node in self.quorum.nodes.values() if node is not leader)

    @property
    def admin(self) -> QuorumClient:
        assert self.quorum.admin is not None
        return self.quorum.admin


def key(node: FaultyNode) -> ReplicaKey:
    return ReplicaKey(node.id, node.directory_id)


async def ended(request: Awaitable[None]) -> str:
    """How a request ended."""
    began_s = time.monotonic()
    try:
        await request
    except ClientError as error:
        how = f"{type(error).__name__}: {error}"
    else:
        how = "done"
    return f"{how} (after {time.monotonic() - began_s:.1f} s)"


async def kill_leader(bench: Bench, leader: FaultyNode) -> str:
    """kill -9; it starts again a second later."""
    bench.load.measure()
    await asyncio.sleep(BEFORE_S)
    leader.kill()
    await asyncio.sleep(AFTER_S)
    leader.start()
    await bench.quorum.whole()
    return ""


async def transfer_to_dead(bench: Bench, leader: FaultyNode) -> str:
    """transfer-leadership to a voter that was killed a second ago."""
    dead = bench.follower(leader)
    dead.kill()
    await asyncio.sleep(AFTER_S)
    bench.load.measure()
    note = await ended(bench.admin.transfer_leadership(key(dead), timeout_ms=CLIENT_TIMEOUT_MS))
    await asyncio.sleep(AFTER_S)
    return note


async def remove_behind_add(bench: Bench, leader: FaultyNode) -> str:
    """Remove a dead voter while an AddVoter waits for a node that nobody reaches."""
    dead = bench.follower(leader)
    dead.kill()
    await asyncio.sleep(AFTER_S)
    bench.load.measure()
    nowhere = Endpoint("CONTROLLER", HOST, free_ports(1)[0])
    async with QuorumClient(bench.quorum.addresses) as other:
        stranger = ReplicaKey(9, random_uuid())
        add = asyncio.create_task(ended(other.add_voter(stranger, [nowhere], timeout_ms=STUCK_MS)))
        await asyncio.sleep(BEFORE_S)
        remove = bench.admin.remove_voter(key(dead), timeout_ms=CLIENT_TIMEOUT_MS)
        note = f"remove: {await ended(remove)}; add: {'waits' if not add.done() else add.result()}"
        await asyncio.sleep(AFTER_S)
        gap_ends = bench.load.longest_gap_s
        add.cancel()
        await asyncio.gather(add, return_exceptions=True)
    assert bench.load.longest_gap_s >= gap_ends
    return note


async def restart(bench: Bench, leader: FaultyNode) -> str:
    """kill -9 of the leader, and its successor at once; the followers see their connections end."""
    return await _restart(bench, leader, is_noticed=True)


async def restart_unnoticed(bench: Bench, leader: FaultyNode) -> str:
    """The same, but the followers' connections end without a word."""
    return await _restart(bench, leader, is_noticed=False)


async def _restart(bench: Bench, leader: FaultyNode, *, is_noticed: bool) -> str:
    successor = Successor(leader)
    await successor.prepare()
    _, epoch = await bench.quorum.leader()
    bench.load.measure()
    await asyncio.sleep(BEFORE_S)
    if not is_noticed:
        assert bench.network is not None
        bench.network.lose(bench.network.around(leader.id))
    began_s = time.monotonic()
    leader.kill()
    successor.take_over()
    while "listens on" not in leader.recently():
        await asyncio.sleep(0.005)
        assert leader.status is None, leader.recently()
    started_s = time.monotonic() - began_s
    described = await bench.quorum.leader(epoch)
    led_s = time.monotonic() - began_s
    await asyncio.sleep(AFTER_S)
    return (
        f"listens again after {started_s * 1000:.0f} ms, {described[0].id} leads after "
        f"{led_s * 1000:.0f} ms"
    )


async def pause_leader(bench: Bench, leader: FaultyNode) -> str:
    """SIGSTOP of the leader, for eight seconds."""
    bench.load.measure()
    leader.pause()
    try:
        await asyncio.sleep(ASLEEP_S)
    finally:
        leader.resume()
    return ""


Case = str
CASES: dict[Case, Callable[[Bench, FaultyNode], Awaitable[str]]] = {
    "kill": kill_leader,
    "transfer-to-dead": transfer_to_dead,
    "remove-behind-add": remove_behind_add,
    "restart": restart,
    "restart-unnoticed": restart_unnoticed,
    "pause": pause_leader,
}
BEHIND_PROXIES = ("restart-unnoticed",)
ALTERS_VOTERS = ("remove-behind-add",)
"""These get a quorum of their own for each run."""


async def run(cases: list[Case], runs: int, folder: Path, console: Console) -> dict[Case, Figures]:
    """Measure each case so many times."""
    found: dict[Case, Figures] = {}
    for case in cases:
        found[case] = Figures()
        each = 1 if case in ALTERS_VOTERS else runs
        for number in range(runs // each):
            place = folder / f"{case}-{number}"
            place.mkdir()
            bench = Bench(place, case)
            try:
                await bench.quorum.start()
                await bench.load.start()
                for _ in range(each):
                    gap_ms, note = await bench.measure(case)
                    found[case].gaps_ms.append(gap_ms)
                    found[case].notes.append(note)
                    console.print(f"{case}: {gap_ms:.0f} ms {note}", markup=False)
                violations = await bench.load.verify()
                assert not violations, [str(violation) for violation in violations[:5]]
            finally:
                await bench.load.stop()
                await bench.quorum.close()
            shutil.rmtree(place)
    return found


def main(
    runs: Annotated[int, typer.Option(min=1)] = 5,
    case: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(CASES)}; all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The figures as JSON on stdout.")] = False,
) -> None:
    """Measure write pauses."""
    for name in case or ():
        if name not in CASES:
            sys.exit(f"no case is called {name!r}; there are {', '.join(CASES)}")
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    version = Path(quorate.__file__).parent
    console.print(f"measuring {version}", markup=False)
    with tempfile.TemporaryDirectory(prefix="quorate-pauses-") as folder:
        found = asyncio.run(run(list(case or CASES), runs, Path(folder), console))
    if as_json:
        figures = {name: each.json() for name, each in found.items()}
        print(json.dumps({"version": str(version), "cases": figures}, indent=2))
        return
    shown = Table("case", "runs", "median", "max", title="longest time without a committed write")
    for name, each in found.items():
        median_ms, max_ms = statistics.median(each.gaps_ms), max(each.gaps_ms)
        shown.add_row(name, str(len(each.gaps_ms)), f"{median_ms:.0f} ms", f"{max_ms:.0f} ms")
    Console().print(shown)


if __name__ == "__main__":
    typer.run(main)
