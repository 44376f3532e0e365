"""Follows the runbooks of docs/takeover.md on a cluster of Kafka, with clients of its broker."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.integration.support import Ran, quorate
from tests.migration.client import KafkaClient
from tests.processes import HOST, quorate_process, until
from tests.tools.documents import block
from tests.wire.kafka_nodes import STOP_S, KafkaCluster

PORT_OFFSET = 100
NOT_READY = "not supported with the current MetadataVersion"
WAIT_S = 60.0
OUTSIDE = "org.apache.kafka.tools.MetadataQuorumCommand"


@dataclass(frozen=True)
class Step:
    """everywhere: whether to run the commands on every controller."""

    everywhere: bool
    commands: tuple[str, ...]


RUNBOOKS = (
    block("docs/takeover.md", "quorate takeover check"),
    block("docs/takeover.md", "systemctl start kafka-controller"),
)


def runbook(number: int) -> list[Step]:
    """The steps of one of the page's blocks: 0 is the takeover, 1 the way back."""
    steps = []
    for part in re.split(r"^# \d\. ", RUNBOOKS[number], flags=re.MULTILINE)[1:]:
        title, *commands = part.strip().splitlines()
        assert title.startswith(("on every controller", "once")), title
        steps.append(Step(title.startswith("on every controller"), tuple(commands)))
    return steps


class Operator:
    """Runs the commands of a runbook. answers: what each printed last."""

    def __init__(self, cluster: KafkaCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.quorates = {
            node_id: quorate_process(
                f"controller {node_id}",
                folder / f"quorate-{node_id}.log",
                "controller",
                self.quorate_properties(node_id),
            )
            for node_id in cluster.controllers
        }
        self.answers: dict[str, str] = {}

    def quorate_properties(self, node_id: int) -> Path:
        return self.folder / f"quorate-{node_id}.properties"

    def follow(self, steps: list[Step]) -> None:
        for step in steps:
            for node_id in self.cluster.controllers if step.everywhere else (1,):
                for command in step.commands:
                    self.run(command, node_id)
            self.wait_started()

    def run(self, command: str, node_id: int) -> None:
        line = self.localized(command, node_id)
        program, *arguments = line.split()
        print(f"{node_id}: {line}")
        if program == "systemctl":
            self.serve(*arguments, node_id)
        elif program == "kafka-metadata-quorum.sh":
            # A controller of Kafka that has just started rejects the tool until it knows its level.
            self.answers[program] = until(
                "Kafka's controllers answer", lambda: self.asked_kafka(*arguments), WAIT_S
            )
        else:
            assert program == "quorate", line
            target = None
            if ">" in arguments:
                *arguments, _, target = arguments
            ran = self.quorate(*arguments)
            assert ran.status == 0, ran
            print(ran.out)
            if target is not None:
                Path(target).write_text(ran.out)
            self.answers[" ".join(arguments[:2])] = ran.out

    def asked_kafka(self, *arguments: str) -> str:
        """What Kafka's tool prints; empty if it fails because a controller is not ready yet."""
        try:
            return self.cluster.kafka_tool(OUTSIDE, *arguments)
        except AssertionError as error:
            if NOT_READY in str(error):
                return ""
            raise

    def quorate(self, *arguments: object) -> Ran:
        """A command that asks the quorum is repeated until it has a leader, and the broker."""
        if "describe" not in arguments and "list-endpoints" not in arguments:
            return quorate(*arguments)
        said = "LeaderId" if "describe" in arguments else "unfenced"
        ran: Ran = until(said, lambda: _succeeded(quorate(*arguments), said))
        return ran

    def localized(self, command: str, node_id: int) -> str:
        for index in (1, 2, 3):
            port = self.cluster.ports.get(index)
            for printed, offset in ((9093, 0), (9193, PORT_OFFSET)):
                own = "" if port is None else f"{HOST}:{port + offset}"
                name = f"c{index}:{printed}"
                # Of a quorum with two controllers, the third is the last of the list.
                command = command.replace(f",{name}", f",{own}" if own else "").replace(name, own)
        kafka = self.cluster.controllers[node_id].properties
        command = command.replace("/etc/kafka/controller.properties", str(kafka))
        own = self.quorate_properties(node_id)
        return command.replace("/etc/quorate/controller.properties", str(own))

    def serve(self, action: str, unit: str, node_id: int) -> None:
        is_kafkas = unit == "kafka-controller"
        process = (self.cluster.controllers if is_kafkas else self.quorates)[node_id]
        if action == "start":
            process.start()
            return
        status = process.stop(STOP_S)
        assert is_kafkas or status == 0, process.recently()[-3000:]

    def wait_started(self) -> None:
        for node in self.cluster.controllers.values():
            if node.is_alive:
                node.wait_started()

    def kill(self) -> None:
        for process in self.quorates.values():
            process.kill()


def _succeeded(ran: Ran, said: str) -> Ran | None:
    return ran if ran.status == 0 and said in ran.out else None


class Clients:
    """A client that creates topics through the broker, writes to them and reads everything."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.address = cluster.broker_address
        self.kafka = KafkaClient([self.address])
        self.written: dict[str, list[bytes]] = {}

    def create(self, topic: str) -> None:
        def is_created() -> bool:
            # A request that a broker forwards times out while it looks for the new leader.
            return self.kafka.create_topic(self.address, topic) in (0, 36)

        until(f"{topic} is created", is_created, 60)
        until("it has a leader", lambda: self._leads(topic), 60)
        self.written[topic] = []

    def _leads(self, topic: str) -> bool:
        found = self.kafka.topics(self.address).get(topic, {})
        if not found:
            return False
        try:
            self.kafka.fetch(topic, 0)
        except AssertionError:
            return False
        return True

    def write(self) -> None:
        """One more record to each topic."""
        for topic, values in self.written.items():
            value = f"{topic} {len(values)}".encode()
            assert self.kafka.produce(topic, [value]) == len(values)
            values.append(value)

    def check(self) -> None:
        for topic, values in self.written.items():
            assert [value for _, value in self.kafka.fetch(topic, 0)] == values
