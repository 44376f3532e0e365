"""`quorate quickstart` as a user runs it: start, look, Ctrl-C, start again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from quorate.cli.local.local_cluster import LocalCluster
from quorate.log.meta_properties import MetaProperties
from quorate.rpc.client.quorum_client import QuorumClient

from tests.integration.support import (
    PARTITION,
    assert_clean,
    assert_error,
    files,
    here,
    quorate,
    succeed,
    voters,
)
from tests.processes import QUORATE, WAIT_S, Process, free_ports, listens, until

RECORDS = [f"record-{number}" for number in range(30)]


class Quickstart(Process):
    """A quickstart of `folder`, and what it has printed so far."""

    def __init__(self, folder: Path, *options: str) -> None:
        places = folder.with_name(f"{folder.name}.out"), folder.with_name(f"{folder.name}.err")
        for place in places:
            place.unlink(missing_ok=True)
        command = (sys.executable, *QUORATE, "quickstart", "--dir", folder, *options)
        super().__init__("quickstart", places[0], *command)
        self.error_file = places[1]

    @property
    def out(self) -> list[str]:
        return self.said().splitlines(keepends=True)

    @property
    def err(self) -> list[str]:
        return self.error_file.read_text().splitlines(keepends=True)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until it has printed a line that matches."""
        match: re.Match[str] = self.wait_until(
            f"prints {pattern}",
            lambda: re.search(pattern, "".join([*self.out, *self.err]), re.MULTILINE),
        )
        return match

    def interrupt(self) -> int:
        """Ctrl-C; the exit status."""
        self.send(signal.SIGINT)
        return self.wait(WAIT_S)

    def kill(self) -> None:
        """SIGTERM, which ends its controllers too; kill -9 if that takes too long."""
        if self.is_alive:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.stop(WAIT_S)
        super().kill()


@contextlib.contextmanager
def running(folder: Path, *options: str) -> Iterator[Quickstart]:
    with Quickstart(folder, *options) as quickstart:
        quickstart.start()
        yield quickstart


def controllers(folder: Path) -> list[int]:
    """The processes that run a controller of this folder."""
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            line = (process / "cmdline").read_bytes() if process.name.isdigit() else b""
            if str(folder).encode() in line and b"\0controller\0" in line:
                found.append(int(process.name))
    return found


def identity(folder: Path) -> list[tuple[str, str | None]]:
    """Cluster id and directory id of each controller."""
    metas = [MetaProperties.read(path) for path in sorted(folder.glob("controller-*/data"))]
    return [(meta.cluster_id, meta.directory_id) for meta in metas]


@pytest.mark.timeout(180)
def test_start_look_stop_and_start_again(tmp_path: Path) -> None:
    folder = tmp_path / "quick"
    with running(folder) as quickstart:
        quickstart.wait_for(r"^leader \d, epoch \d+, 3 voters: ")
        ask = _look(folder, quickstart)
        asyncio.run(_append(ask[2]))
        assert len(controllers(folder)) == 3
        assert quickstart.interrupt() == 0
    assert controllers(folder) == []
    assert quickstart.err == []
    assert quickstart.out[-1] == "Stopped; all data is kept.\n"
    for node_id in (1, 2, 3):
        log = (folder / f"controller-{node_id}" / "controller.log").read_text()
        assert_clean(log)
        assert log.rstrip().endswith("stopped"), log
    before = identity(folder)

    with running(folder, "--json") as again:
        again.wait_for(r'^\{"leader": \d, .*"voters": 3, ')
        assert asyncio.run(_read(ask[2])) == RECORDS
        assert again.interrupt() == 0
    assert identity(folder) == before
    assert before[0][0] in again.err[0]
    assert "Restarting quorum" in again.err[0]
    states = [json.loads(line) for line in again.out]
    assert states[-1]["leader"] in (1, 2, 3)
    assert [c["id"] for c in states[-1]["controllers"]] == [1, 2, 3]
    assert controllers(folder) == []
    for node_id in (1, 2, 3):
        assert_clean((folder / f"controller-{node_id}" / "controller.log").read_text())


@pytest.mark.timeout(180)
@pytest.mark.parametrize("is_new", [True, False])
def test_without_a_kafka_listener(tmp_path: Path, *, is_new: bool) -> None:
    """By an option for a new folder; a folder of a version without the listener stays as it is."""
    folder = tmp_path / "quick"
    if not is_new:
        earlier = LocalCluster(folder)
        earlier.create([1])
    before = files(folder)
    with running(folder, *(("-n", "1", "--no-kafka-listener") if is_new else ())) as quickstart:
        quickstart.wait_for(r"^leader 1, ")
        assert quickstart.interrupt() == 0
    assert "Kafka" not in "".join(quickstart.out)
    index = json.loads((folder / "cluster.json").read_text())
    assert [entry.keys() for entry in index["controllers"]] == [{"id", "port"}]
    settings = "controller-1/controller.properties"
    assert "quorate.kafka" not in (folder / settings).read_text()
    assert is_new or files(folder)[settings] == before[settings]


def test_a_controller_that_cannot_start_ends_it(tmp_path: Path) -> None:
    """Its last words are the error."""
    cluster = LocalCluster(tmp_path / "quick")
    cluster.create([1])
    (cluster.nodes[1].data / PARTITION / "quorum-state").write_text("{")
    ran = here("quickstart", "--dir", cluster.folder)
    assert_error(ran, "controller 1 exited with status 1: ", "quorum-state is broken")
    assert controllers(cluster.folder) == []


def _look(folder: Path, quickstart: Quickstart) -> tuple[str, ...]:
    """The command that it suggests works, and shows what it printed."""
    suggested = quickstart.wait_for(r"^Try: quorate (metadata-quorum .*) describe --status$")
    ask = tuple(suggested[1].split())
    kafka = quickstart.wait_for(r"^Kafka's tools: --bootstrap-controller (\S+)$")[1].split(",")
    assert f"controller.quorum.bootstrap.servers={','.join(kafka)} " in "".join(quickstart.out)
    for address in kafka:
        until(f"{address} listens", partial(listens, int(address.rpartition(":")[2])))

    def has_all_endpoints() -> Any:
        found = succeed(*ask, "describe", "--status", "--json").json()
        endpoints = [voter["endpoints"][1:] for voter in found["currentVoters"]]
        return found if endpoints == [[f"KAFKA://{address}"] for address in kafka] else None

    status = until("the log names the listeners", has_all_endpoints)
    printed = "".join(quickstart.out)
    assert f"Starting new quorum {status['clusterId']} in {folder}" in printed
    assert sorted(voters(status)) == [1, 2, 3]
    for voter in status["currentVoters"]:
        address = voter["endpoints"][0].removeprefix("CONTROLLER://")
        assert re.search(rf"^ +controller {voter['id']} +{address} ", printed, re.MULTILINE)
    return ask


async def _append(addresses: str) -> None:
    async with QuorumClient(addresses.split(",")) as client:
        await asyncio.gather(*(client.append_value(text.encode()) for text in RECORDS))


async def _read(addresses: str) -> list[str]:
    async with QuorumClient(addresses.split(",")) as client:
        records = [record async for record in client.read(0)]
    return [bytes(r.value or b"").decode() for r in records if r.key is not None]


def test_a_folder_that_is_not_its_own_is_refused(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "thesis.txt").write_text("the only copy")
    before = files(tmp_path)
    assert_error(quorate("quickstart", "--dir", theirs), f"{theirs} is not empty", "--dir")
    assert_error(here("quickstart", "--demo", "--dir", theirs), str(theirs), status=2)
    assert_error(here("quickstart", "--dir", theirs / "thesis.txt"), "thesis.txt", "--dir")
    (theirs / "cluster.json").write_text("{}")
    assert_error(here("quickstart", "--dir", theirs), f"{theirs}/cluster.json", "--dir")
    (theirs / "cluster.json").unlink()
    assert files(tmp_path) == before


def test_ports_are_consecutive_from_the_first_on(tmp_path: Path) -> None:
    first = until(
        "consecutive free ports",
        lambda: next((p for p in free_ports(1) if not any(map(listens, range(p, p + 8)))), None),
    )
    cluster = LocalCluster(tmp_path / "quorum", kafka_listener=True, first_port=first)
    cluster.create([1, 2, 3], [101, 102])
    controllers, brokers = cluster.nodes.values(), cluster.brokers.values()
    assert [node.port for node in controllers] == [first, first + 1, first + 2]
    assert [node.kafka_port for node in controllers] == [first + 3, first + 4, first + 5]
    assert [node.port for node in brokers] == [first + 6, first + 7]
    other = here("quickstart", "--dir", cluster.folder, "--port", first + 1)
    assert_error(other, f"--port {first + 1}", f"127.0.0.1:{first}", status=2)


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = here("quickstart", "--dir", tmp_path / "quorum", "--port", port - 2)
        assert_error(ran, f"--port {port - 2}: cannot listen on port", "must be free")
    assert_error(here("quickstart", "--demo", "--port", 9093), "--demo", status=2)
