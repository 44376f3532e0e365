"""Administration through brokers of Kafka 4.3: Quorate's controllers and Kafka's give the same.

Kafka's tools with `--bootstrap-server` print the same, and the admin clients of confluent-kafka and
kafka-python return the same or fail with the same error, except for the differences that
`broker_commands.txt` and `client_operations` list.

Both clusters get the same command at the same time. Brokers learn of a change a moment after the
controllers have committed it, so a command that only reads is repeated while the results differ.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final

import pytest

from tests.kafka import missing
from tests.wire.client_operations import CONFLUENT_KAFKA, ERRORS, KAFKA_PYTHON, Operation
from tests.wire.client_results import FAILED, plain
from tests.wire.compared_clusters import ComparedCluster, compared_clusters
from tests.wire.comparison import compare, compare_all
from tests.wire.tool_commands import BROKER_COMMANDS, CLASSES, FILES, Command
from tests.wire.tool_runner import ToolRunner, normal

HMAC: Final = re.compile(r"^\S+\s+(\S+=)\s+User:", re.MULTILINE)
RECORDS: Final = "3000"
"""So many kilobytes need more than one Fetch, so throttled replicas do not catch up."""


class Side:
    """A cluster, and the process that runs the tools on it."""

    def __init__(self, cluster: ComparedCluster) -> None:
        self.cluster = cluster
        self.hmac = ""
        for name, text in FILES.items():
            (cluster.folder / name).write_text(text)
        self.runner = ToolRunner(cluster.folder)

    def run(self, command: Command) -> str:
        """What the command prints, in comparable form."""
        values = {
            "{folder}": str(self.cluster.folder),
            "{new_controller}": str(self.cluster.new_controller),
            "{hmac}": self.hmac,
        }
        arguments = list(command.arguments)
        for name, value in values.items():
            arguments = [each.replace(name, value) for each in arguments]
        said = self.runner.run(CLASSES[command.tool], *self._addressed(command, arguments))
        if found := HMAC.search(said):
            self.hmac = found[1]
        return normal(said, self.names, is_set=command.is_set)

    def _addressed(self, command: Command, arguments: list[str]) -> list[str]:
        where = ["--bootstrap-server", self.cluster.address]
        match command.tool, command.action:
            case "kafka-storage", _:
                return arguments
            case "kafka-cluster", _:  # its options follow its subcommand
                return [*arguments, *where]
            case "kafka-delegation-tokens", _:
                clients = ",".join(self.cluster.clients.values())
                properties = str(self.cluster.client_properties)
                return ["--bootstrap-server", clients, "--command-config", properties, *arguments]
            case "kafka-metadata-quorum", "add-controller":
                return [*where, "--command-config", str(self.cluster.new_controller), *arguments]
        return [*where, *arguments]

    @property
    def names(self) -> dict[str, str]:
        """What differs between the clusters, and its name."""
        cluster = self.cluster
        names = {
            str(cluster.folder): "FOLDER",
            cluster.controller: "CONTROLLER",
            cluster.new_address: "NEW-CONTROLLER",
        }
        for kind, addresses in (("BROKER", cluster.brokers), ("CLIENT", cluster.clients)):
            names |= {address: f"{kind}-{node}" for node, address in addresses.items()}
            names |= {a.rpartition(":")[2]: f"PORT-{node}" for node, a in addresses.items()}
        if self.hmac:
            names[self.hmac] = "HMAC"
        return names

    def prepare(self) -> None:
        """Write what the commands move, and let the topics exist that tools read."""
        for line in (
            "kafka-topics --create --topic moving --replica-assignment 101",
            "kafka-consumer-groups --describe --group warm",
            "kafka-transactions describe --transactional-id warm",
        ):
            tool, *arguments = line.split()
            self.run(Command(tool, "", tuple(arguments)))
        where = ("--bootstrap-server", self.cluster.address)
        load = ("--num-records", RECORDS, "--record-size", "1000", "--throughput", "-1")
        said = self.runner.run(
            "org.apache.kafka.tools.ProducerPerformance", "--topic", "moving", *load, *where
        )
        assert f"{RECORDS} records sent" in said, said


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Kafka's cluster and Quorate's."""
    with compared_clusters(tmp_path_factory.mktemp("clusters")) as clusters:
        made = Side(clusters[0]), Side(clusters[1])
        try:
            yield made
        finally:
            for side in made:
                side.runner.kill()


@pytest.mark.timeout(600)
def test_tools_print_what_they_print_on_kafkas_controllers(sides: tuple[Side, Side]) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(Side.prepare, sides))
        compare_all(Side.run, sides, pool, BROKER_COMMANDS)


def library(name: str) -> Any:
    """A module of a client library, which the extra `test` has."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing(f"{error}: pip install '.[test]'")


@contextmanager
def confluent_kafka(addresses: str) -> Iterator[Any]:
    admin = library("confluent_kafka.admin")
    yield admin.AdminClient({"bootstrap.servers": addresses})


@contextmanager
def kafka_python(addresses: str) -> Iterator[Any]:
    admin = library("kafka.admin")
    client = admin.KafkaAdminClient(bootstrap_servers=addresses.split(","))
    yield client
    client.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("connect", "operations"), [(confluent_kafka, CONFLUENT_KAFKA), (kafka_python, KAFKA_PYTHON)]
)
def test_admin_clients_get_what_they_get_on_kafkas_controllers(
    sides: tuple[Side, Side],
    connect: Callable[[str], AbstractContextManager[Any]],
    operations: Sequence[Operation],
) -> None:
    def ask(operation: Operation) -> Callable[[Side], str]:
        return lambda side: normal(
            plain(lambda: operation.call(clients[side.cluster.name])), side.names
        )

    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(2))
        clients = {
            side.cluster.name: stack.enter_context(connect(side.cluster.address)) for side in sides
        }
        wrong = [
            compare(
                ask(each),
                sides,
                pool,
                each,
                unexpected=None if each.subject == ERRORS else f'"{FAILED}"',
            )
            for each in operations
        ]
    assert not any(wrong), "".join(wrong)
