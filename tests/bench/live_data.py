"""Disk usage, start-up time and memory while the same keys are written again and again.

    python -m tests.bench.live_data --minutes 60 --out live-data/
    python -m tests.bench.live_data --minutes 2 --forms compact

Three nodes of one quorum on this machine. One writer sets random keys of `--keys`, at `--rate` a
second. Forms of snapshots: `keep` has all records, `compact` the last of each key, and `state` the
state of a state machine (the nodes are then `quorate.Node` in a program, else `quorate
controller`). At each of 30 points in time, a follower is killed with SIGKILL and started again. Its
start-up time ends when it has caught up with the high watermark at its death; its processor time
until then depends less on what else the machine does. Prints a line of JSON for each point, and a
summary; the folder `--out` gets the lines and a plot. Ends with status 1 if a form other than
`keep` grew: the median of the last third of the points is more than one and a half times that of
the second third. Until the retention is reached, disk usage grows in any form.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import quorate
import typer
from quorate.log.meta_properties import random_uuid
from quorate.rpc.errors import ClientError
from quorate.rpc.wire.values import NodeStatus

from tests.bench.__main__ import ROOT
from tests.processes import (
    HOST,
    QUORATE,
    Process,
    environment,
    free_ports,
    until,
    write_properties,
)

CLUSTER = "yFPgY5iXQYqr5sMxfdxu0Q"
POINTS = 30
GROWTH_MAX = 1.5
IN_FLIGHT = 64
POLL_S = 0.02
START_TIMEOUT_S = 300.0
NODES = (1, 2, 3)
MIB = 1 << 20

Point = dict[str, Any]


class Values(quorate.StateMachine):
    """The last value of each key."""

    def __init__(self) -> None:
        self.values: dict[bytes | None, bytes | None] = {}

    def apply(self, batch: Sequence[quorate.Record]) -> None:
        self.values.update((record.key, record.value) for record in batch)

    def snapshot(self) -> list[bytes]:
        return [pickle.dumps(self.values)]

    def restore(self, snapshot: quorate.StateSnapshot) -> None:
        values = pickle.loads(b"".join(snapshot.state) or pickle.dumps({}))
        values.update((record.key, record.value) for batch in snapshot for record in batch)
        self.values = values


async def serve(properties: str) -> None:
    """One node in this process, with a state machine."""
    async with quorate.Node(properties, Values()) as node:
        await node.stopped()


class Cluster:
    """Three nodes, formatted as the voters of a new quorum."""

    def __init__(self, folder: Path, form: str, settings: Mapping[str, object]) -> None:
        ports = free_ports(len(NODES))
        self.addresses = [f"{HOST}:{port}" for port in ports]
        self.folder = folder
        self.processes: dict[int, Process] = {}
        names = [f"{i}-{random_uuid()}@{address}" for i, address in enumerate(self.addresses, 1)]
        for node_id, address in zip(NODES, self.addresses, strict=True):
            own = {
                "process.roles": "controller",
                "node.id": node_id,
                "controller.listener.names": "CONTROLLER",
                "listeners": f"CONTROLLER://{address}",
                "controller.quorum.bootstrap.servers": ",".join(self.addresses),
                "metadata.log.dir": self.data(node_id),
                **settings,
            }
            quorate.format_storage(
                own,
                CLUSTER,
                initial_controllers=",".join(names),
                features={"application.version": 1},
            )
            path = folder / f"{node_id}.properties"
            write_properties(path, own)
            command: tuple[object, ...] = (sys.executable, *QUORATE, "controller", path)
            if form == "state":
                command = (sys.executable, "-m", "tests.bench.live_data", "--node", path)
            log_file = folder / f"{node_id}.log"
            self.processes[node_id] = Process(f"node {node_id}", log_file, *command)

    def data(self, node_id: int) -> Path:
        return self.folder / f"data-{node_id}"

    def disk_mib(self) -> list[float]:
        """What each node's directory takes on the disk."""
        return [sum(map(_blocks, self.data(node_id).rglob("*"))) / MIB for node_id in NODES]

    def resident_mib(self) -> list[float]:
        page = os.sysconf("SC_PAGE_SIZE") / MIB
        paths = [Path(f"/proc/{process.pid}/statm") for process in self.processes.values()]
        return [int(path.read_text().split()[1]) * page for path in paths]

    def set_policy(self, policy: str) -> None:
        """Set it as soon as the new quorum has finalized application.version."""
        arguments = ("configs", "--bootstrap-controller", ",".join(self.addresses), "alter")
        change = ("--broker-defaults", "--add-config", f"application.cleanup.policy={policy}")
        command = [sys.executable, *QUORATE, *arguments, *change]
        until(f"the policy is {policy}", lambda: _succeeds(command), START_TIMEOUT_S)

    def kill(self) -> None:
        for process in self.processes.values():
            process.kill()


def _succeeds(command: Sequence[str]) -> bool:
    return subprocess.run(command, env=environment(), capture_output=True).returncode == 0


def _blocks(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:  # a file that the node has deleted meanwhile
        return 0


class Load:
    """A writer that sets random keys at a rate, whatever happens to the nodes."""

    def __init__(self, client: quorate.Client, keys: int, value_bytes: int, rate: float) -> None:
        self.written = 0
        self._client = client
        self._keys = keys
        self._bytes = value_bytes
        self._interval_s = IN_FLIGHT / rate

    async def run(self) -> None:
        rng = random.Random(1)
        while True:
            began = time.monotonic()
            appends = (
                self._client.append_value(rng.randbytes(self._bytes), b"key-%d" % key)
                for key in rng.choices(range(self._keys), k=IN_FLIGHT)
            )
            done = await asyncio.gather(*appends, return_exceptions=True)
            self.written += sum(isinstance(each, int) for each in done)
            for each in done:
                if isinstance(each, BaseException) and not isinstance(each, ClientError):
                    raise each
            await asyncio.sleep(max(0.0, self._interval_s - (time.monotonic() - began)))


async def status_of(client: quorate.Client, address: str) -> NodeStatus | None:
    try:
        return await client.node_status(address)
    except ClientError:
        return None


async def formed(client: quorate.Client) -> None:
    """Wait until a leader has committed a record."""
    async with asyncio.timeout(START_TIMEOUT_S):
        while True:
            with contextlib.suppress(ClientError):
                await client.append_value(b"", b"key-0")
                return
            await asyncio.sleep(POLL_S)


def processor_s(pid: int) -> float:
    """The processor time of a process so far, in all of its threads, seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def restarted(cluster: Cluster, client: quorate.Client, turn: int) -> dict[str, float]:
    """Kill a follower and start it again; the time and the processor time until it caught up."""
    view = await client.describe_quorum()
    followers = [node_id for node_id in NODES if node_id != view.response.leader.id]
    node_id = followers[turn % len(followers)]
    address = cluster.addresses[node_id - 1]
    wanted = view.response.high_watermark
    process = cluster.processes[node_id]
    await asyncio.to_thread(process.kill)
    began = time.monotonic()
    process.start()
    while True:
        found = await status_of(client, address)
        if found is not None and found.high_watermark >= wanted:
            elapsed = time.monotonic() - began
            used = processor_s(process.pid)
            return {"start_s": round(elapsed, 2), "start_cpu_s": round(used, 2)}
        if not process.is_alive or time.monotonic() - began > START_TIMEOUT_S:
            raise RuntimeError(f"node {node_id} did not start: {process.recently()[-2000:]}")
        await asyncio.sleep(POLL_S)


async def measure(form: str, minutes: float, load: Mapping[str, Any], out: Path) -> list[Point]:
    """One form of snapshots: its points in time."""
    settings = {
        "metadata.log.max.record.bytes.between.snapshots": load["interval_mib"] * MIB,
        "metadata.max.retention.bytes": load["retention_mib"] * MIB,
        "internal.metadata.log.segment.bytes": max(MIB, load["retention_mib"] * MIB // 4),
    }
    points: list[Point] = []
    with tempfile.TemporaryDirectory(prefix="quorate-live-data-") as folder:
        cluster = Cluster(Path(folder), form, settings)
        try:
            for process in cluster.processes.values():
                process.start()
            async with quorate.Client(cluster.addresses, request_timeout_ms=60_000) as client:
                await formed(client)
                if form == "compact":
                    await asyncio.to_thread(cluster.set_policy, form)
                writer = Load(client, load["keys"], load["value_bytes"], load["rate"])
                writing = asyncio.create_task(writer.run())
                began = time.monotonic()
                for turn in range(POINTS):
                    due = began + minutes * 60 * (turn + 1) / POINTS
                    await asyncio.wait((writing,), timeout=max(0.0, due - time.monotonic()))
                    if writing.done():
                        writing.result()
                    resident, disk = cluster.resident_mib(), cluster.disk_mib()
                    points.append(
                        {
                            "form": form,
                            "seconds": round(time.monotonic() - began, 1),
                            "records": writer.written,
                            "disk_mib": [round(each, 1) for each in disk],
                            "resident_mib": [round(each, 1) for each in resident],
                            **await restarted(cluster, client, turn),
                        }
                    )
                    line = json.dumps(points[-1])
                    print(line, flush=True)
                    with (out / "live-data.jsonl").open("a") as file:
                        file.write(line + "\n")
                writing.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await writing
        finally:
            cluster.kill()
    return points


FIGURES = {
    "disk usage": ("MiB", lambda point: max(point["disk_mib"])),
    "start-up time": ("s", lambda point: point["start_s"]),
    "start-up processor time": ("s", lambda point: point["start_cpu_s"]),
    "memory": ("MiB", lambda point: max(point["resident_mib"])),
}


def summary(points: Sequence[Point]) -> tuple[str, bool]:
    """The medians of the second and the last third of one form's points; whether any grew."""
    third = len(points) // 3
    lines, has_grown = [], False
    for name, (unit, value) in FIGURES.items():
        first = statistics.median(map(value, points[third : 2 * third]))
        last = statistics.median(map(value, points[-third:]))
        has_grown = has_grown or last > GROWTH_MAX * first
        lines.append(f"{points[0]['form']}: {name} {first:.1f} {unit}, then {last:.1f}")
    return "\n".join(lines), has_grown


def plot(points: Sequence[Point], path: Path) -> None:
    """A panel for each figure, a line for each form."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(FIGURES), figsize=(16, 3.4), layout="constrained")
    for axis, (name, (unit, value)) in zip(axes, FIGURES.items(), strict=True):
        for form in dict.fromkeys(point["form"] for point in points):
            found = [point for point in points if point["form"] == form]
            minutes = [point["seconds"] / 60 for point in found]
            axis.plot(minutes, list(map(value, found)), ".-", label=form)
        axis.set_title(f"{name} of a node", fontsize=10)
        axis.set_xlabel("minutes", fontsize=8)
        axis.set_ylabel(unit, fontsize=8)
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=140)
    plt.close(figure)


def main(
    *,
    minutes: Annotated[float, typer.Option(min=0.1, help="How long to write, per form.")] = 60,
    forms: Annotated[str, typer.Option(help="keep, compact and state, with commas.")] = (
        "compact,state"
    ),
    keys: Annotated[int, typer.Option(min=1, help="How many different ones.")] = 10_000,
    value_bytes: Annotated[int, typer.Option(min=1, help="The size of each value.")] = 100,
    rate: Annotated[float, typer.Option(min=1, help="Records a second.")] = 1_000,
    interval_mib: Annotated[int, typer.Option(min=1, help="Between two snapshots.")] = 4,
    retention_mib: Annotated[int, typer.Option(min=1, help="metadata.max.retention.bytes.")] = 16,
    out: Annotated[Path, typer.Option(help="The folder of the lines and the plot.")] = Path(
        "live-data"
    ),
    node: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Write the same keys again and again; print disk usage, start-up time and memory over time."""
    if node:
        asyncio.run(serve(node))
        return
    out = out.resolve()
    os.chdir(ROOT)
    out.mkdir(parents=True, exist_ok=True)
    load = {
        "keys": keys,
        "value_bytes": value_bytes,
        "rate": rate,
        "interval_mib": interval_mib,
        "retention_mib": retention_mib,
    }
    points: list[Point] = []
    grown = []
    for form in forms.split(","):
        found = asyncio.run(measure(form, minutes, load, out))
        points += found
        plot(points, out / "live-data.png")
        text, has_grown = summary(found)
        print(text, flush=True)
        if has_grown and form != "keep":
            grown.append(form)
    if grown:
        print(f"grew: {', '.join(grown)}", file=sys.stderr)
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
