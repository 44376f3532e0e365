"""ZooKeeper's tree as a table, and its comparison with a log that holds the initial copy."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from quorate.common.identifiers import uuid_from_bytes
from quorate.migration.reading import read_all
from quorate.migration.znodes import Tree, ZNode
from quorate.records.batch import build_data_batch
from quorate.records.metadata import ConfigRecord, MetadataRecord, RemoveTopicRecord, encode
from quorate.spark.state import as_of
from quorate.spark.zookeeper import compare, znodes

from tests.spark.conftest import SHARED, missing
from tests.spark.make_log import FIRST_MS, LogWriter

pytestmark = pytest.mark.timeout(600)
DUMP = SHARED / "data/kafka-3.9-zookeeper/znodes.jsonl"


@pytest.fixture
def tree(spark: Any) -> Any:
    if not DUMP.exists():
        missing(f"ZooKeeper's golden tree is not in {DUMP} (set QUORATE_SHARED)")
    return znodes(spark, DUMP)


def copied() -> list[MetadataRecord]:
    """The initial copy, as the migration makes it."""
    ids = (uuid_from_bytes(number.to_bytes(16, "big")) for number in count(1 << 64))
    found = []
    for line in DUMP.read_text().splitlines():
        node = json.loads(line)
        data = None if node["data"] is None else node["data"].encode()
        found.append(ZNode(node["path"], data, node["version"], node["ephemeral_owner"]))
    return [r for batch in read_all(Tree(found), lambda: next(ids)) for r in batch]


def log_with(directory: Path, records: list[MetadataRecord]) -> Path:
    writer = LogWriter(directory)
    writer.elect(1, FIRST_MS)
    writer.append(build_data_batch([(None, encode(record)) for record in records], FIRST_MS))
    writer.close()
    return directory


def test_the_table_is_the_tree(tree: Any) -> None:
    rows = {row.path: row for row in tree.collect()}
    lines = [json.loads(line) for line in DUMP.read_text().splitlines()]
    assert set(rows) == {line["path"] for line in lines}
    for line in lines:
        row = rows[line["path"]]
        if line["data"] is not None:
            assert row.data == line["data"].encode()
        assert (row.version, row.mzxid) == (line["version"], line["mzxid"])


def test_the_copy_agrees_and_what_was_changed_is_told(
    spark: Any, tree: Any, tmp_path: Path
) -> None:
    records = copied()
    whole = spark.read.format("quorate").load(str(log_with(tmp_path / "a", records)))
    assert compare(tree, as_of(whole)).collect() == []
    topic = next(r for r in records if type(r).__name__ == "TopicRecord")
    changed = [
        *records,
        ConfigRecord(4, "1", "num.io.threads", "99"),
        RemoveTopicRecord(topic.topic_id),  # type: ignore[attr-defined]
    ]
    other = spark.read.format("quorate").load(str(log_with(tmp_path / "b", changed)))
    told = {(r.kind, r.key): r.difference for r in compare(tree, as_of(other)).collect()}
    assert told["configs", "4/1/num.io.threads"] in ("different", "missing in ZooKeeper")
    assert told["topics", topic.name] == "missing in the log"  # type: ignore[attr-defined]
    assert ("partitions", f"{topic.name}/0") in told  # type: ignore[attr-defined]
