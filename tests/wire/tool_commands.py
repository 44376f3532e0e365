"""Kafka's command-line tools, the commands that are compared, and the differences.

`broker_commands.txt` has those that connect to brokers (`--bootstrap-server`) and
`controller_commands.txt` those that connect to controllers (`--bootstrap-controller`). The tests
run them on Quorate's controllers and on Kafka's, in this order: a command finds what those before
it have left. docs/compatibility.md is generated from the same files. A line of them is

    TOOL ACTION | FURTHER ARGUMENTS => EXPECTED

ACTION is what the page calls the command. EXPECTED is in the output once earlier changes have taken
effect. A difference follows its command on a line `differs: REASON`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
DIFFERS: Final = "differs:"
_TOOLS: Final = "org.apache.kafka.tools."

CLASSES: Final[Mapping[str, str]] = {
    "kafka-acls": f"{_TOOLS}AclCommand",
    "kafka-broker-api-versions": f"{_TOOLS}BrokerApiVersionsCommand",
    "kafka-client-metrics": f"{_TOOLS}ClientMetricsCommand",
    "kafka-cluster": f"{_TOOLS}ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups": f"{_TOOLS}consumer.group.ConsumerGroupCommand",
    "kafka-delegation-tokens": f"{_TOOLS}DelegationTokenCommand",
    "kafka-delete-records": f"{_TOOLS}DeleteRecordsCommand",
    "kafka-features": f"{_TOOLS}FeatureCommand",
    "kafka-get-offsets": f"{_TOOLS}GetOffsetShell",
    "kafka-groups": f"{_TOOLS}GroupsCommand",
    "kafka-leader-election": f"{_TOOLS}LeaderElectionCommand",
    "kafka-log-dirs": f"{_TOOLS}LogDirsCommand",
    "kafka-metadata-quorum": f"{_TOOLS}MetadataQuorumCommand",
    "kafka-reassign-partitions": f"{_TOOLS}reassign.ReassignPartitionsCommand",
    "kafka-share-groups": f"{_TOOLS}consumer.group.ShareGroupCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": f"{_TOOLS}TopicCommand",
    "kafka-transactions": f"{_TOOLS}TransactionsCommand",
}
"""The classes of the tools, without `.sh`."""

_READS: Final = {
    *("describe", "--describe", "list", "--list", "list-endpoints", "--verify"),
    *("describe-producers", "cluster-id"),
    # It may be repeated as well: a new token is not known everywhere at once.
    "--renew",
}


@dataclass(frozen=True, slots=True)
class Command:
    """A command line without the tool's addresses. `{NAME}` in an argument stands for a value of
    the cluster. difference: the reason why the outputs differ, empty if they do not.
    """

    tool: str
    action: str
    arguments: tuple[str, ...]
    expected: str = ""
    difference: str = ""

    @property
    def text(self) -> str:
        return shlex.join((self.tool, *self.arguments))

    @property
    def is_set(self) -> bool:
        """Whether the tool prints lines in any order."""
        return self.tool in ("kafka-acls", "kafka-broker-api-versions")

    @property
    def is_read(self) -> bool:
        """Whether it can be repeated until a change is known."""
        return not _READS.isdisjoint(self.arguments)


def read_commands(name: str) -> tuple[Command, ...]:
    """The commands of a file beside this module."""
    found: list[Command] = []
    for line in (FOLDER / name).read_text().splitlines():
        if line.strip().startswith(DIFFERS):
            reason = line.strip().removeprefix(DIFFERS).strip()
            found[-1] = replace(found[-1], difference=reason)
            continue
        given, _, expected = line.partition("=>")
        head, _, rest = given.partition("|")
        tool, *action = shlex.split(head)
        arguments = (*action, *shlex.split(rest))
        found.append(Command(tool, " ".join(action), arguments, expected.strip()))
    return tuple(found)


BROKER_COMMANDS: Final = read_commands("broker_commands.txt")
CONTROLLER_COMMANDS: Final = read_commands("controller_commands.txt")

FILES: Final[Mapping[str, str]] = {
    "topics.json": '{"version": 1, "topics": [{"topic": "orders"}]}',
    "swap.json": """{"version": 1, "partitions": [
        {"topic": "orders", "partition": 0, "replicas": [102, 101]}]}""",
    "move.json": """{"version": 1, "partitions": [
        {"topic": "moving", "partition": 0, "replicas": [102]}]}""",
    "grow.json": """{"version": 1, "partitions": [
        {"topic": "plain", "partition": 0, "replicas": [101, 102]}]}""",
    "unknown-broker.json": """{"version": 1, "partitions": [
        {"topic": "orders", "partition": 0, "replicas": [101, 999]}]}""",
    "unknown-topic.json": """{"version": 1, "partitions": [
        {"topic": "nope", "partition": 0, "replicas": [101]}]}""",
    "twice.json": """{"version": 1, "partitions": [
        {"topic": "orders", "partition": 0, "replicas": [101, 101]}]}""",
    "elect.json": '{"partitions": [{"topic": "orders", "partition": 1}]}',
    "delete.json": """{"version": 1, "partitions": [
        {"topic": "moving", "partition": 0, "offset": 5}]}""",
}
"""Files in `{folder}`."""
