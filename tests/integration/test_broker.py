"""Brokers as processes: rolling restarts in short, and what a person sees who starts one wrongly.

The long form, 20 rounds each way, is `poe test-rolling`.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path

import pytest
from quorate.broker.formatting import format_broker
from quorate.cli.local.local_cluster import LocalNode
from quorate.records.batch import read_header

from tests.integration.support import CLUSTER, assert_error, free_ports, quorate
from tests.integration.test_quickstart import running
from tests.processes import quorate_process, write_properties
from tests.rolling.rolling import BROKERS, TOPIC, Rolling

pytestmark = pytest.mark.slow

SEGMENT_BYTES = 4096


@pytest.mark.timeout(180)
async def test_two_rounds_of_restarts_lose_nothing(tmp_path: Path) -> None:
    rolling = Rolling(tmp_path / "cluster", controllers=1)
    try:
        await rolling.start()
        await rolling.round("controlled")
        await rolling.restart(BROKERS[0], "kill")
        for broker in BROKERS[1:]:
            await rolling.restart(broker, "wiped")
        rolling.figures.rounds += 1
        figures = await rolling.finish()
    finally:
        await rolling.close()
    print(f"\n{figures}")
    assert (figures.lost, figures.doubled, figures.moved) == (0, 0, 0), figures
    assert figures.odd_isrs == []
    assert figures.wiped_records > 0
    assert figures.acknowledged > 100


@pytest.mark.timeout(180)
async def test_a_broker_refuses_logs_that_lost_records_until_their_directories_are_deleted(
    tmp_path: Path,
) -> None:
    rolling = Rolling(
        tmp_path / "cluster", controllers=1, settings={"log.segment.bytes": SEGMENT_BYTES}
    )
    node = rolling.cluster.brokers[BROKERS[0]]
    directories = [node.data / f"{TOPIC}-{index}" for index in range(rolling.partitions)]
    try:
        await rolling.start()
        await rolling.until(
            "two segments of each partition",
            lambda _: all(len(list(each.glob("*.log"))) > 1 for each in directories),
        )
        await asyncio.to_thread(rolling.cluster.stop, [node.id])
        cut_last_batch(directories[0])
        min(directories[1].glob("*.log")).unlink()
        for path in directories[2].glob("*.log"):
            path.unlink()
        damaged = {f"quorate: error: {each} has lost records": each for each in directories}
        while damaged:
            line = await refused_start(rolling, node)
            said = re.match("quorate: error: .* has lost records", line)
            assert said is not None, line
            shutil.rmtree(damaged.pop(said[0]))
        await rolling.restart(node.id, "controlled")
        figures = await rolling.finish()
    finally:
        await rolling.close()
    assert (figures.lost, figures.doubled, figures.moved) == (0, 0, 0), figures
    assert figures.odd_isrs == []


def cut_last_batch(directory: Path) -> None:
    path = max(path for path in directory.glob("*.log") if path.stat().st_size)
    content = path.read_bytes()
    ends = [0]
    while ends[-1] < len(content):
        ends.append(ends[-1] + read_header(content, ends[-1]).size_bytes)
    path.write_bytes(content[: ends[-2]])


async def refused_start(rolling: Rolling, node: LocalNode) -> str:
    """Start a broker that ends with status 1; return the only line of its error."""
    written = node.log_file.stat().st_size
    rolling.cluster.start([node.id])
    assert await asyncio.to_thread(rolling.cluster.processes[node.id].wait, 60) == 1
    said = node.log_file.read_bytes()[written:].decode()
    assert "Traceback" not in said, said
    lines = said.splitlines()
    assert [line for line in lines if line.startswith("quorate: ")] == lines[-1:], said
    return lines[-1]


def properties(folder: Path, **changed: object) -> Path:
    settings: dict[str, object] = {
        "process.roles": "broker",
        "node.id": 101,
        "listeners": f"PLAINTEXT://127.0.0.1:{free_ports(1)[0]}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}",
        "log.dirs": folder / "data",
    }
    path = folder / "broker.properties"
    settings |= {name.replace("_", "."): value for name, value in changed.items()}
    write_properties(path, settings)
    return path


def test_a_broker_whose_directory_is_not_formatted_says_so(tmp_path: Path) -> None:
    assert_error(quorate("broker", properties(tmp_path)), "is not formatted")


def test_a_broker_without_controllers_gives_up_in_time(tmp_path: Path) -> None:
    path = properties(tmp_path, initial_broker_registration_timeout_ms=500)
    ran = quorate("broker", path, "--format", CLUSTER)
    assert ran.status == 1
    assert "quorate: error: broker 101 cannot register" in ran.err
    assert "Traceback" not in ran.err


def test_a_broker_that_cannot_register_ends_on_sigterm(tmp_path: Path) -> None:
    path = properties(tmp_path)
    format_broker(101, CLUSTER, tmp_path / "data", (tmp_path / "data",))
    with quorate_process("broker", tmp_path / "broker.log", "broker", path) as broker:
        broker.start()
        broker.wait_said("not registered yet")
        assert broker.stop(15) == 0


@pytest.mark.timeout(90)
def test_quickstart_runs_brokers(tmp_path: Path) -> None:
    options = ("-n", "1", "--brokers", "2", "--json")
    with running(tmp_path / "q", *options) as quickstart:

        def are_active() -> bool:
            *_, state = quickstart.out or ["{}"]
            brokers = json.loads(state).get("brokers", ()) if state.endswith("\n") else ()
            return [broker["state"] for broker in brokers] == ["active", "active"]

        quickstart.wait_until("has two active brokers", are_active, 60)
        assert quickstart.interrupt() == 0
