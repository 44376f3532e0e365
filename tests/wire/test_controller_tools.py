"""Kafka 4.3's tools with `--bootstrap-controller`: on three controllers of Quorate they print what
they print on three of Kafka's own, except for the differences that are listed here.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.integration.bridge_support import KafkaQuorum, listens
from tests.integration.support import CLUSTER, HOST, free_ports, until
from tests.kafka import KAFKA_4_3, KafkaNode, java

IDS: Final = (1, 2, 3)
RELEASE: Final = "4.1-IV1"
START_S = 120.0
RUNNER: Final = Path(__file__).with_name("RunTools.java")
TOOLS: Final = "org.apache.kafka.tools."
QUORUM, FEATURES, CLUSTERS, ACLS, CONFIGS = (
    f"{TOOLS}MetadataQuorumCommand",
    f"{TOOLS}FeatureCommand",
    f"{TOOLS}ClusterTool",
    f"{TOOLS}AclCommand",
    "kafka.admin.ConfigCommand",
)
ONE = ("--entity-type", "brokers", "--entity-name", "1")
ALL = ("--entity-type", "brokers", "--entity-default")
NOBODY = f"{'A' * 20}9A"
ALICE = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")

COMMANDS: Final[Sequence[tuple[str, ...]]] = (
    (QUORUM, "describe", "--status"),
    (QUORUM, "describe", "--replication"),
    (QUORUM, "remove-controller", "--controller-id", "9", "--controller-directory-id", NOBODY),
    (FEATURES, "describe"),
    (FEATURES, "upgrade", "--release-version", "4.2-IV1"),
    (FEATURES, "upgrade", "--release-version", "4.2-IV1"),
    (FEATURES, "describe"),
    (FEATURES, "downgrade", "--feature", "share.version=0"),
    (FEATURES, "downgrade", "--feature", "share.version=1"),
    (FEATURES, "downgrade", "--feature", "kraft.version=0"),
    (CLUSTERS, "list-endpoints"),
    (CLUSTERS, "unregister", "--id", "9"),
    (CONFIGS, *ALL, "--alter", "--add-config", "log.cleaner.threads=2"),
    (CONFIGS, *ONE, "--alter", "--add-config", "max.connections=500"),
    (CONFIGS, *ALL, "--describe"),
    (CONFIGS, *ONE, "--describe"),
    (CONFIGS, *ONE, "--alter", "--delete-config", "max.connections"),
    (CONFIGS, *ONE, "--alter", "--add-config", "max.connections=x"),
    (ACLS, "--add", *ALICE),
    (ACLS, "--list"),
    (ACLS, "--remove", "--force", *ALICE),
)

DIFFERENT: Final[dict[tuple[str, ...], str]] = {
    COMMANDS[2]: "the text of VOTER_NOT_FOUND names the voters",
    (CONFIGS, *ONE, "--alter", "--add-config", "max.connections=x"): (
        "Kafka's controllers store invalid values of brokers' configs, Quorate rejects them"
    ),
}
"""Commands whose output differs, each with the reason."""


def run(*arguments: str | Path, given: str = "") -> str:
    """What one of Kafka's tools prints. given: its standard input."""
    done = subprocess.run(
        java(KAFKA_4_3, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", *arguments),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        input=given,
    )
    return done.stdout + done.stderr


def normal(text: str, ports: Sequence[int]) -> list[str]:
    """The lines without ports, ids, times, offsets and stack traces."""
    for port in ports:
        text = text.replace(str(port), "PORT")
    for pattern, replacement in (
        # Quorate's voters have an endpoint for gRPC, too.
        (r'"CONTROLLER://[^"]*", "KAFKA://', '"'),
        (r'"CONTROLLER://', '"'),
        (r"^(\d)(\s+\S+)\s+\d+\s+\d+\s+\d+\s+\d+\s+(Leader|Follower)", r"\1\2 \3"),
        (r"ClusterId: .*|Cluster ID: .*", "cluster id"),
        (r"[A-Za-z0-9_-]{22}\b", "UUID"),
        (r"(LeaderId|LeaderEpoch|HighWatermark|MaxFollower\w+):\s+-?\d+", r"\1"),
        (r"Epoch: \d+", "Epoch"),
        (r"[ \t]+", " "),
    ):
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(" at ")]
    return [re.sub(r"^(\d UUID) .*", r"\1", line) for line in _sorted(lines)]


def _sorted(lines: list[str]) -> list[str]:
    """The lines; replicas in the order of their ids, since the leader is listed first."""
    return sorted(lines) if lines and lines[0].startswith("NodeId") else lines


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
                "controller.listener.names": "CONTROLLER",
                "listeners": f"CONTROLLER://{HOST}:{port}",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
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


def registered(address: str) -> None:
    """Wait until all controllers are registered: until then some are not listed."""
    until(
        "all controllers are registered",
        lambda: (
            run(CLUSTERS, "list-endpoints", "--bootstrap-controller", address).count("controller")
            >= len(IDS)
        ),
        START_S,
    )


def outputs(ports: Sequence[int]) -> list[list[str]]:
    """What each of the commands prints."""
    address = ",".join(f"{HOST}:{port}" for port in ports)
    registered(address)
    lines = []
    for tool, *arguments in COMMANDS:
        where = ("--bootstrap-controller", address)
        # ClusterTool's options follow its command.
        ordered = (*arguments, *where) if tool == CLUSTERS else (*where, *arguments)
        lines.append("\t".join((tool, *ordered)) + "\n")
    said = run(RUNNER, given="".join(lines)).split("====\n")
    assert len(said) == len(COMMANDS) + 1, said
    return [normal(text, ports) for text in said[:-1]]


@pytest.mark.timeout(400)
def test_tools_print_what_they_print_on_kafkas_controllers(
    quorum: KafkaQuorum, kafka_tool: Callable[..., str], tmp_path: Path
) -> None:
    assert kafka_tool is not None, "the jars are there"
    until("all listen", lambda: all(map(listens, quorum.ports.values())))
    with kafkas_controllers(tmp_path) as ports, ThreadPoolExecutor(2) as pool:
        ours = pool.submit(outputs, [*quorum.ports.values()])
        kafkas = pool.submit(outputs, ports)
        pairs = zip(COMMANDS, kafkas.result(), ours.result(), strict=True)
        different = {command: (a, b) for command, a, b in pairs if a != b}
    assert different.keys() == DIFFERENT.keys(), "\n".join(
        f"{command}\n  Kafka: {a}\n  Quorate: {b}" for command, (a, b) in different.items()
    )
