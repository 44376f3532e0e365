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
from tests.wire.comparison import compare_all
from tests.wire.tool_commands import CLASSES, CONTROLLER_COMMANDS, FILES, Command
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


def format_new_controller(folder: Path) -> None:
    """Format a controller that does not run, for `add-controller`, in FOLDER/node-4."""
    settings = {
        "process.roles": "controller",
        "node.id": 4,
        "controller.listener.names": "KAFKA",
        "listeners": f"KAFKA://{HOST}:{free_ports(1)[0]}",
        "listener.security.protocol.map": "KAFKA:PLAINTEXT",
        "controller.quorum.bootstrap.servers": f"{HOST}:1",
        "log.dirs": folder / "kafka-4",
    }
    made = KafkaNode(folder / "node-4", KAFKA_4_3, settings)
    made.format(CLUSTER, "--no-initial-controllers", "--release-version", RELEASE)


class Side:
    """Controllers, and the process that runs the tools on them."""

    def __init__(self, folder: Path, ports: Sequence[int]) -> None:
        self.folder = folder
        self.address = ",".join(f"{HOST}:{port}" for port in ports)
        # Which controller leads differs.
        self.names = {f"Local controller {each} ": "The leader " for each in IDS}
        self.names |= {str(port): "PORT" for port in ports}
        self.runner = ToolRunner(folder)

    def run(self, command: Command) -> str:
        """What the command prints, in comparable form."""
        where = ("--bootstrap-controller", self.address)
        arguments = tuple(each.replace("{folder}", str(self.folder)) for each in command.arguments)
        if command.action == "add-controller":
            where += ("--command-config", str(self.folder / "node-4/server.properties"))
        # Options of kafka-cluster follow its subcommand.
        ordered = (*arguments, *where) if command.tool == "kafka-cluster" else (*where, *arguments)
        said = self.runner.run(CLASSES[command.tool], *ordered)
        return normal(said, self.names, is_set=command.is_set)

    def until_registered(self) -> None:
        """Until all controllers have registered, some are not listed."""
        listed = Command("kafka-cluster", "list-endpoints", ("list-endpoints",))
        until(
            "all controllers are registered",
            lambda: self.run(listed).count("controller") >= len(IDS),
            START_S,
        )


@pytest.mark.timeout(400)
def test_tools_print_what_they_print_on_kafkas_controllers(
    quorum: KafkaQuorum, kafka_tool: Callable[..., str], tmp_path: Path
) -> None:
    assert kafka_tool is not None, "the jars are there"
    until("all listen", lambda: all(map(listens, quorum.ports.values())))
    format_new_controller(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    with ExitStack() as stack:
        ports = stack.enter_context(kafkas_controllers(tmp_path))
        pool = stack.enter_context(ThreadPoolExecutor(2))
        sides = [Side(tmp_path, each) for each in (ports, [*quorum.ports.values()])]
        for side in sides:
            stack.callback(side.runner.kill)
        list(pool.map(Side.until_registered, sides))
        compare_all(Side.run, sides, pool, CONTROLLER_COMMANDS)
