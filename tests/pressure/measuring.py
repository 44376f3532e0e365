"""One attack, measured: rounds of a client alone, beside the attack on another controller, and
beside the attack on its own; and probes all the time.

Rules:
1. The client commits one record after the other. Its p99 of each phase counts, and of the rounds
   their medians: what the machine does besides is in both.
2. Where the same attack goes to another controller, what it costs the client is the machine's.
3. A probe is a connection of its own. It fails if it does not say 200 within `PROBE_TIMEOUT_S`,
   which is what the operator gives the kubelet. Probes go on from before the first attack until
   after the last.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from quorate.cli.bench.workloads import processor_seconds
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.errors import ClientError

from tests.integration.support import HOST
from tests.pressure.attacks import ATTACKS, Attack
from tests.pressure.share import Share, make_share
from tests.pressure.target import Aim, Target
from tests.processes import running_module

CORES = 0.3
ROUNDS = 3
PHASE_S = 4.0
SETTLE_S = 1.0
PAUSE_S = 0.005
PROBE_INTERVAL_S = 0.2
PROBE_TIMEOUT_S = 3.0
PROBED = ("/healthz", "/readyz")
FACTOR_MAX = 3.0
PEAK_MIB_MAX = 256.0


@dataclass
class Result:
    """Times are ms, and medians of the rounds; peak of the controller's memory in MiB. cores: how
    many processors the attackers really had.
    """

    attack: str
    idle_p50: float = 0.0
    idle_p99: float = 0.0
    elsewhere_p99: float = 0.0
    attacked_p50: float = 0.0
    attacked_p99: float = 0.0
    peak_mib: float = 0.0
    probes: int = 0
    failed_probes: int = 0
    slowest_probe: float = 0.0
    commits: int = 0
    failed_commits: int = 0
    is_alive: bool = True
    cores: float = 0.0
    ended: dict[str, int] = field(default_factory=dict)
    p99s: dict[str, list[float]] = field(default_factory=dict)

    @property
    def factor(self) -> float:
        return self.attacked_p99 / self.idle_p99

    @property
    def faults(self) -> list[str]:
        """What was not kept."""
        return [
            text
            for text, is_kept in (
                (f"factor above {FACTOR_MAX:g}", self.factor <= FACTOR_MAX),
                (f"memory above {PEAK_MIB_MAX:g} MiB", self.peak_mib <= PEAK_MIB_MAX),
                ("failed probes", self.failed_probes == 0),
                ("failed commits", self.failed_commits == 0),
                ("the controller died", self.is_alive),
            )
            if not is_kept
        ]


def percentile(latencies: list[float], part: float) -> float:
    return sorted(latencies)[min(len(latencies) - 1, int(len(latencies) * part))] * 1000


@dataclass
class Attackers:
    """One process of theirs, and afterwards how its calls ended and what it used, in seconds."""

    ended: Counter[str] = field(default_factory=Counter)
    processor_s: float = 0.0
    attacked_s: float = 0.0


@asynccontextmanager
async def attackers(name: str, aim: Aim, share: Share) -> AsyncIterator[Attackers]:
    """While an attack goes on, from a process that is limited to a share."""
    found = Attackers()
    arguments = (name, json.dumps(aim.as_dict()))
    async with running_module("tests.pressure.attacker", *arguments) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        share.add(process.pid)
        used_s, began_s = processor_seconds(process.pid), time.monotonic()
        process.stdin.write(b"begin\n")
        await asyncio.sleep(ATTACKS[name].seconds)
        yield found
        found.processor_s = processor_seconds(process.pid) - used_s
        found.attacked_s = time.monotonic() - began_s
        process.stdin.write(b"end\n")
        async with asyncio.timeout(30):
            line = await process.stdout.readline()
        found.ended.update(json.loads(line))


class Measurement:
    """Of one attack. share: limits the attackers."""

    def __init__(self, name: str, share: Share, seconds: float = PHASE_S) -> None:
        self._name = name
        self._attack: Attack = ATTACKS[name]
        self._share = share
        self._seconds = seconds
        self.result = Result(name)
        self._ended: Counter[str] = Counter()
        self._attacked_s = 0.0
        self._processor_s = 0.0

    async def run(self, folder: Path, rounds: int) -> Result:
        settings = dict(self._attack.settings)
        own = Target(folder / "own", tls=self._attack.tls, **settings)
        other = Target(folder / "other", tls=self._attack.tls, **settings)
        try:
            for target in (own, other):
                target.start()
            probing = asyncio.create_task(self._probe(own.aim.http))
            try:
                await self._measure(own, other, rounds)
            finally:
                probing.cancel()
                await asyncio.wait([probing])
            self.result.is_alive = own.is_alive
            if own.is_alive:
                self.result.peak_mib = own.peak_mib
        finally:
            for target in (own, other):
                target.node.kill()
        return self.result

    async def _measure(self, own: Target, other: Target, rounds: int) -> None:
        phases: dict[str, list[list[float]]] = {"idle": [], "elsewhere": [], "attacked": []}
        async with QuorumClient([own.aim.address], tls=own.aim.tls) as client:
            await self._write(client, 1.0)
            for _ in range(rounds):
                phases["idle"].append(await self._write(client, self._seconds))
                async with self._attacked(other.aim):
                    phases["elsewhere"].append(await self._write(client, self._seconds))
                async with self._attacked(own.aim) as ended:
                    phases["attacked"].append(await self._write(client, self._seconds))
                self._ended += ended
                if own.is_alive:
                    self.result.peak_mib = own.peak_mib
        self._sum_up(phases)

    def _sum_up(self, phases: dict[str, list[list[float]]]) -> None:
        found = self.result
        found.cores = round(self._processor_s / self._attacked_s, 2)
        found.ended = dict(self._ended.most_common())
        found.p99s = {
            name: [round(percentile(run, 0.99), 1) for run in runs] for name, runs in phases.items()
        }
        for name in phases:
            setattr(found, f"{name}_p99", statistics.median(found.p99s[name]))
        for name in ("idle", "attacked"):
            p50 = statistics.median(percentile(run, 0.5) for run in phases[name])
            setattr(found, f"{name}_p50", p50)

    async def _write(self, client: QuorumClient, seconds: float) -> list[float]:
        latencies: list[float] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            try:
                await client.append_value(b"value".ljust(100, b"."))
                self.result.commits += 1
            except ClientError:
                self.result.failed_commits += 1
            latencies.append(time.monotonic() - began)
            await asyncio.sleep(PAUSE_S)
        return latencies

    @asynccontextmanager
    async def _attacked(self, aim: Aim) -> AsyncIterator[Counter[str]]:
        async with attackers(self._name, aim, self._share) as found:
            yield found.ended
        self._processor_s += found.processor_s
        self._attacked_s += found.attacked_s
        await asyncio.sleep(SETTLE_S)

    # --- probes -----------------------------------------------------------------------------------

    async def _probe(self, port: int) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                for path in PROBED:
                    group.create_task(self._probe_once(port, path))
                await asyncio.sleep(PROBE_INTERVAL_S)

    async def _probe_once(self, port: int, path: str) -> None:
        self.result.probes += 1
        began = time.monotonic()
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(HOST, port)
                try:
                    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                    is_well = (await reader.read()).startswith(b"HTTP/1.1 200 ")
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            is_well = False
        self.result.failed_probes += not is_well
        took = (time.monotonic() - began) * 1000
        self.result.slowest_probe = max(self.result.slowest_probe, took)


def measure(names: list[str], folder: Path, rounds: int, seconds: float) -> list[Result]:
    """One attack after the other."""
    share = make_share(CORES)
    print(f"attackers: {share.name}", file=sys.stderr, flush=True)
    found = []
    try:
        for name in names:
            result = asyncio.run(Measurement(name, share, seconds).run(folder / name, rounds))
            print(line_of(result), file=sys.stderr, flush=True)
            found.append(result)
    finally:
        share.close()
    return found


HEAD = (
    f"{'attack':22}{'idle p50':>9}{'p99':>7}{'elsewhere':>10}{'attacked':>9}{'factor':>7}"
    f"{'peak MiB':>9}{'probes failed':>14}{'cores':>6}  ended"
)


def line_of(result: Result) -> str:
    ended = ", ".join(f"{name} {count}" for name, count in list(result.ended.items())[:5])
    probes = f"{result.failed_probes}/{result.probes}"
    fault = f"  FAILED: {', '.join(result.faults)}" if result.faults else ""
    return (
        f"{result.attack:22}{result.idle_p50:9.1f}{result.idle_p99:7.1f}"
        f"{result.elsewhere_p99:10.1f}{result.attacked_p99:9.1f}{result.factor:7.2f}"
        f"{result.peak_mib:9.0f}{probes:>14}{result.cores:6.2f}  {ended}{fault}"
    )
