"""Kafka 4.3's tools with `--bootstrap-controller`: on three controllers of Quorate they print what
they print on three of Kafka's own, except for the differences that `controller_commands.txt` lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.integration.bridge_support import KafkaQuorum, listens
from tests.integration.support import CLUSTER, HOST, free_ports, until
from tests.kafka import KAFKA_4_3, KafkaNode
from tests.wire.tool_commands import CLASSES, CONTROLLER_COMMANDS, Command
from tests.wire.tool_runner import ToolRunner, normal

IDS: Final = (1, 2, 3)
RELEASE: Final = "4.1-IV1"
START_S = 120.0


@contextmanager
def kafkas_controllers(folder: Path) -> Iterator[list[int]]:
    """Three controllers of Kafka; the ports on which they listen."""
    ports = free_ports(len(IDS))
    voters = ",".join(
        f"{node}@{HOST}:{port}:{'A' * 20}{node}A" for node, port in zip(IDS, ports, strict=True)
    )
    with ExitStack() as stack:
        for node, port in zip(IDS, ports, strict=True):
            settings = {
                "process.roles": "controller",
                "node.id": node,
                "controller.listener.names": "KAFKA",
                "listeners": f"KAFKA://{HOST}:{port}",
                "listener.security.protocol.map": "KAFKA:PLAINTEXT",
                "controller.quorum.bootstrap.servers": ",".join(f"{HOST}:{p}" for p in ports),
                "log.dirs": folder / f"kafka-{node}",
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
            }
            made = stack.enter_context(KafkaNode(folder / f"node-{node}", KAFKA_4_3, settings))
            options = ("--initial-controllers", voters, "--release-version", RELEASE)
            made.format(CLUSTER, *options)
            made.start()
        until("Kafka's controllers listen", lambda: all(map(listens, ports)), START_S)
        yield ports


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[KafkaQuorum]:
    made = KafkaQuorum(tmp_path, IDS)
    made.format_and_start(RELEASE)
    yield made
    made.kill()


def run(runner: ToolRunner, command: Command, address: str) -> str:
    where = ("--bootstrap-controller", address)
    arguments = command.arguments
    # Options of kafka-cluster follow its subcommand.
    ordered = (*arguments, *where) if command.tool == "kafka-cluster" else (*where, *arguments)
    return runner.run(CLASSES[command.tool], *ordered)


def outputs(ports: Sequence[int], folder: Path) -> list[str]:
    """What each of the commands prints."""
    address = ",".join(f"{HOST}:{port}" for port in ports)
    names = {str(port): "PORT" for port in ports}
    runner = ToolRunner(folder)
    try:
        # Until all controllers have registered, some are not listed.
        listed = Command("kafka-cluster", "list-endpoints", ("list-endpoints",))
        until(
            "all controllers are registered",
            lambda: run(runner, listed, address).count("controller") >= len(IDS),
            START_S,
        )
        return [normal(run(runner, each, address), names) for each in CONTROLLER_COMMANDS]
    finally:
        runner.close()


@pytest.mark.timeout(400)
def test_tools_print_what_they_print_on_kafkas_controllers(
    quorum: KafkaQuorum, kafka_tool: Callable[..., str], tmp_path: Path
) -> None:
    assert kafka_tool is not None, "the jars are there"
    until("all listen", lambda: all(map(listens, quorum.ports.values())))
    with kafkas_controllers(tmp_path) as ports, ThreadPoolExecutor(2) as pool:
        ours = pool.submit(outputs, [*quorum.ports.values()], tmp_path)
        kafkas = pool.submit(outputs, ports, tmp_path)
        pairs = zip(CONTROLLER_COMMANDS, kafkas.result(), ours.result(), strict=True)
        wrong = [
            f"{command.text}\n  Kafka: {theirs}\n  Quorate: {own}"
            for command, theirs, own in pairs
            if (theirs == own) is bool(command.difference)
        ]
    assert not wrong, "\n".join(wrong)
