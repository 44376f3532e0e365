"""Brokers as processes: rolling restarts in short, and what a person sees who starts one wrongly.

The long form, 20 rounds each way, is `poe test-rolling`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from quorate.broker.formatting import format_broker

from tests.integration.support import CLUSTER, assert_error, environment, free_ports, quorate
from tests.rolling.rolling import BROKERS, Rolling

pytestmark = pytest.mark.slow


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
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
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
    with subprocess.Popen(
        [sys.executable, "-m", "quorate.cli.main", "broker", str(path)],
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    ) as process:
        assert process.stderr is not None
        while "not registered yet" not in (line := process.stderr.readline()):
            assert line, "it ended"
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0


@pytest.mark.timeout(90)
def test_quickstart_runs_brokers(tmp_path: Path) -> None:
    command = ["quickstart", "-n", "1", "--brokers", "2", "--dir", str(tmp_path / "q"), "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "quorate.cli.main", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
        text=True,
    ) as process:
        assert process.stdout is not None
        deadline = time.monotonic() + 60
        states: list[str] = []
        while states != ["active", "active"]:
            assert time.monotonic() < deadline, states
            line = process.stdout.readline()
            assert line, "it ended"
            states = [broker["state"] for broker in json.loads(line)["brokers"]]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
