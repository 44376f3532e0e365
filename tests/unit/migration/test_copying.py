"""The copy as one transaction in batches of a bounded size, and the plan that foretells it."""

from __future__ import annotations

import json

from quorate.metadata.image.metadata_image import MetadataImage
from quorate.migration.copying import copy
from quorate.migration.planning import plan
from quorate.migration.verification import compare
from quorate.migration.znodes import Tree, ZNode
from quorate.records.metadata import (
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
    ZkMigrationState,
    decode,
    encode,
)

from tests.migration.generated import generated


def batches(tree: Tree, size: int = 100) -> list[list[MetadataRecord]]:
    numbers = iter(range(10**6))
    return list(copy(tree, lambda: f"{next(numbers):021d}A", 21, size))


def test_it_begins_and_ends_a_transaction_and_no_batch_is_larger_than_wanted() -> None:
    found = batches(Tree(generated(12, 20)))
    assert isinstance(found[0][0], BeginTransactionRecord)
    assert isinstance(found[-1][-1], EndTransactionRecord)
    assert max(map(len, found)) == 100
    kinds = [type(record) for batch in found for record in batch]
    assert kinds.count(BeginTransactionRecord) == kinds.count(EndTransactionRecord) == 1


def test_nothing_of_it_counts_before_its_end() -> None:
    tree = Tree(generated(3, 5))
    image, offset = MetadataImage(), 0
    for batch in batches(tree, 7):
        assert not image.topics.names
        assert image.features.zk_migration == ZkMigrationState.NONE
        records = [decode(encode(record, record.version)) for record in batch]
        image.apply_batch(records, offset, 1, 0)
        offset += len(batch)
    assert image.features.zk_migration == ZkMigrationState.MIGRATION
    assert list(compare(tree, image.records())) == []


def test_the_plan_counts_what_the_copy_writes() -> None:
    tree = Tree(generated(3, 5))
    found = plan(tree)
    assert (found.counts["Topic"], found.counts["Partition"]) == (3, 15)
    assert found.known == {1, 2, 3}
    assert found.problems == []
    assert found.cluster_id == "generated"


def test_the_plan_finds_every_problem_and_not_only_the_first() -> None:
    nodes = [*generated(2, 1)]
    for path in ("/brokers/topics/a", "/brokers/topics/b", "/kafka-acl/Moon"):
        nodes += [ZNode(path, b'{"partitions":{"0":[1]}}')]
    nodes.append(ZNode("/kafka-acl/Moon/m", json.dumps({"acls": [{}]}).encode()))
    problems = plan(Tree(nodes)).problems
    assert len(problems) == 3
    for said in ("/brokers/topics/a", "/brokers/topics/b", "Moon"):
        assert any(said in problem for problem in problems)
