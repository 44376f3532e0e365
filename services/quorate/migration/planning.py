"""A report for operators: what a migration would copy, and what prevents it. Claims nothing.

Source: KIP-866, "ZK Broker Presence", "Topic Deletions".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from quorate.migration import reading, znodes
from quorate.migration.errors import ZNodeError
from quorate.migration.znodes import Tree
from quorate.records.metadata import MetadataRecord


@dataclass(slots=True)
class MigrationPlan:
    """What a migration would copy, and what prevents it."""

    znodes: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """The number of records by kind."""
    known: frozenset[int] = frozenset()
    """The brokers that must take part."""
    registered: frozenset[int] = frozenset()
    """The brokers that are registered in ZooKeeper."""
    deletions: tuple[str, ...] = ()
    controller: tuple[int, int] | None = None
    """The controller in ZooKeeper, as (id, epoch in the quorum or -1); None if there is none."""
    cluster_id: str = ""
    problems: list[str] = field(default_factory=list)
    """What must be fixed first, one line each, with the znode."""
    warnings: list[str] = field(default_factory=list)


def plan(
    tree: Tree, on_topic: Callable[[int, int], None] = lambda _done, _all: None
) -> MigrationPlan:
    """Read everything as the copy would, and report each malformed znode as a problem."""
    found = MigrationPlan(
        znodes=len(tree), deletions=tuple(sorted(reading.pending_deletions(tree)))
    )
    topics = reading.topic_names(tree)
    for done, topic in enumerate(topics, 1):
        _count(found, lambda topic=topic: [reading.read_topic(tree, topic)])  # type: ignore[misc]
        if done % 100 == 0 or done == len(topics):
            on_topic(done, len(topics))
    for read in (
        reading.read_broker_configs,
        reading.read_client_configs,
        reading.read_producer_ids,
        lambda tree: reading.read_acls(tree, lambda: ""),
        reading.read_delegation_tokens,
    ):
        _count(found, lambda read=read: read(tree))  # type: ignore[misc]
    _check_brokers(found, tree)
    _check_cluster(found, tree)
    return found


def _count(found: MigrationPlan, read: Callable[[], Iterable[list[MetadataRecord]]]) -> None:
    try:
        for batch in read():
            found.counts.update(type(each).__name__.removesuffix("Record") for each in batch)
    except ZNodeError as error:
        found.problems.append(str(error))


def _check_brokers(found: MigrationPlan, tree: Tree) -> None:
    try:
        found.known = reading.known_brokers(tree)
    except ZNodeError as error:
        found.problems.append(str(error))
    found.registered = frozenset(
        int(node.name) for node in tree.children(znodes.BROKER_IDS) if node.name.isdigit()
    )
    missing = sorted(found.known - found.registered)
    if missing:
        found.warnings.append(
            f"brokers {', '.join(map(str, missing))} are not running: the migration waits for them "
            "(they have partitions or a configuration)"
        )


def _check_cluster(found: MigrationPlan, tree: Tree) -> None:
    cluster, controller = tree.get(znodes.CLUSTER_ID), tree.get(znodes.CONTROLLER)
    try:
        found.cluster_id = "" if cluster is None else str(cluster.object().get("id", ""))
        if controller is not None:
            epoch = controller.number("kraftControllerEpoch", -1)
            found.controller = (controller.number("brokerid"), epoch)
    except ZNodeError as error:
        found.problems.append(str(error))
    if not found.cluster_id:
        found.problems.append(f"{znodes.CLUSTER_ID}: there is no cluster here")
    for topic in found.deletions:
        found.warnings.append(f"topic {topic}: its deletion is pending; the migration completes it")
