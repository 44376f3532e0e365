"""ZooKeeper's tree as values, and the paths of Kafka's metadata.

Source: KIP-866; the layout is that of Kafka 3.9 in ZooKeeper mode.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from quorate.migration.errors import ZNodeError

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
MIGRATION = "/migration"
CLUSTER_ID = "/cluster/id"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
DELETE_TOPICS = "/admin/delete_topics"
PRODUCER_IDS = "/latest_producer_id_block"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
LITERAL_ACLS = "/kafka-acl"
EXTENDED_ACLS = "/kafka-acl-extended"
DELEGATION_TOKENS = "/delegation_token/tokens"

METADATA_ROOTS = (
    TOPICS,
    CONFIG,
    LITERAL_ACLS,
    EXTENDED_ACLS,
    DELETE_TOPICS,
    BROKER_IDS,
    "/cluster",
    "/delegation_token",
)
"""The subtrees to read for a migration, besides the single znodes in `METADATA_NODES`."""
NOTICES = (
    CONFIG_CHANGES,
    "/kafka-acl-changes",
    "/kafka-acl-extended-changes",
    "/delegation_token/token_changes",
)
"""Folders of change notifications, which brokers watch."""
METADATA_NODES = (CONTROLLER, CONTROLLER_EPOCH, MIGRATION, PRODUCER_IDS)

_NUMBER = re.compile(r"\s*[-+]?[0-9]{1,100}\s*")


@dataclass(frozen=True, slots=True)
class ZNode:
    """One znode."""

    path: str
    data: bytes | None = None
    version: int = 0
    """How often the data has been set."""
    owner: int = 0
    """The session that owns an ephemeral znode, or 0."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def text(self) -> str:
        """Decode the data as text. Raises ZNodeError."""
        try:
            return (self.data or b"").decode()
        except UnicodeDecodeError as error:
            raise ZNodeError(self.path, f"not UTF-8 at byte {error.start}") from None

    def object(self) -> dict[str, Any]:
        """Decode the data as a JSON object. Raises ZNodeError."""
        try:
            value = json.loads(self.text())
        except (ValueError, RecursionError) as error:
            raise ZNodeError(self.path, f"not JSON ({error})") from None
        if not isinstance(value, dict):
            raise ZNodeError(self.path, "not a JSON object")
        return value

    def number(self, name: str, default: int | None = None, *, bits: int = 32) -> int:
        """A number in the JSON object. default: if it is missing. Raises ZNodeError."""
        value = self.object().get(name, default)
        if value is None:
            raise ZNodeError(self.path, f"{name} is missing or null")
        return self.integer(value, f"{name} ", bits=bits)

    def integer(self, value: Any, name: str = "", *, bits: int = 32) -> int:
        """A signed number of that many bits, or one as text.

        Raises ZNodeError, whose reason starts with `name`.
        """
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not is_number and not (isinstance(value, str) and _NUMBER.fullmatch(value)):
            raise ZNodeError(self.path, f"{name}{reprlib.repr(value)} is not a number")
        number = int(value)
        if not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise ZNodeError(self.path, f"{name}{reprlib.repr(value)} has more than {bits} bits")
        return number


class Tree(Mapping[str, ZNode]):
    """Znodes by path, with their children."""

    def __init__(self, nodes: Iterable[ZNode]) -> None:
        self._nodes = {node.path: node for node in nodes}
        self._children: dict[str, list[str]] = {}
        for path in sorted(self._nodes):
            if path != "/":
                parent, _, name = path.rpartition("/")
                self._children.setdefault(parent or "/", []).append(name)

    def __getitem__(self, path: str) -> ZNode:
        return self._nodes[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def children(self, path: str) -> Iterator[ZNode]:
        """The children of a path, sorted by name; none if it does not exist."""
        for name in self._children.get(path, ()):
            yield self._nodes[f"{path}/{name}" if path != "/" else f"/{name}"]
