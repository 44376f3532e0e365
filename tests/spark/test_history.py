"""The history of deleted topics, of transactions, and of brokers that register again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from quorate.common.identifiers import uuid_from_bytes
from quorate.records.batch import build_data_batch
from quorate.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    encode,
)
from quorate.spark.history import history, undone
from quorate.spark.options import OFFSET_MAX

from tests.spark.make_log import FIRST_MS, LogWriter

FIRST, SECOND, ABORTED, DONE, OPEN = (uuid_from_bytes(bytes([n]) * 16) for n in range(1, 6))
BEGIN, END, ABORT = (
    cls.TYPE for cls in (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)
)


def partition(topic_id: str, *isr: int) -> PartitionRecord:
    return PartitionRecord(0, topic_id, isr, isr, leader=isr[0])


RECORDS: list[MetadataRecord] = [
    TopicRecord("short-lived", FIRST),
    partition(FIRST, 101, 102),
    PartitionChangeRecord(0, FIRST, isr=(101,)),
    RemoveTopicRecord(FIRST),
    TopicRecord("short-lived", SECOND),
    partition(SECOND, 101),
    BeginTransactionRecord("create"),
    TopicRecord("never-was", ABORTED),
    partition(ABORTED, 101, 102),
    RemoveTopicRecord(SECOND),
    AbortTransactionRecord(),
    BeginTransactionRecord("create"),
    TopicRecord("kept", DONE),
    partition(DONE, 102),
    EndTransactionRecord(),
    RegisterBrokerRecord(103, broker_epoch=1, fenced=True),
    BrokerRegistrationChangeRecord(103, 1, fenced=-1),
    BrokerRegistrationChangeRecord(103, 1, fenced=1),
    RegisterBrokerRecord(103, broker_epoch=2, fenced=True),
    BrokerRegistrationChangeRecord(103, 2, fenced=-1),
    BeginTransactionRecord("create"),
    TopicRecord("not-yet", OPEN),
    partition(OPEN, 102),
]
"""One batch each. The first is at offset 3, after the control records."""


def test_a_transaction_that_did_not_end_changes_nothing() -> None:
    assert undone([]) == []
    assert undone([(3, BEGIN), (9, END), (12, BEGIN), (15, ABORT)]) == [(12, 15)]
    assert undone([(15, ABORT), (12, BEGIN), (20, BEGIN)]) == [(12, 15), (20, OFFSET_MAX)]
    # Marks that do not match are no transactions, as in the replay.
    assert undone([(1, ABORT), (2, BEGIN), (3, BEGIN), (4, ABORT), (5, ABORT)]) == [(2, 4)]


@pytest.mark.timeout(600)
def test_deletions_transactions_and_registrations(spark: Any, tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "node")
    writer.elect(1, FIRST_MS)
    for number, record in enumerate(RECORDS):
        writer.append(build_data_batch([(None, encode(record))], FIRST_MS + number))
    writer.close()
    rows = history(spark.read.format("quorate").load(str(tmp_path / "node"))).collect()
    found = [
        (r.subject, r.value, r.previous, r.change, r.start_offset, r.end_offset)
        for r in rows
        if r.kind in ("isr", "broker")
    ]
    assert found == [
        ("short-lived-0", "101, 102", None, "created", 4, 5),
        ("short-lived-0", "101", "101, 102", "shrunk", 5, 6),
        ("short-lived-0", "101", None, "created", 8, None),
        ("kept-0", "102", None, "created", 16, None),
        ("103", "fenced", None, "created", 18, 19),
        ("103", "active", "fenced", "active", 19, 20),
        ("103", "fenced", "active", "fenced", 20, 21),
        ("103", "fenced", "fenced", "registered", 21, 22),
        ("103", "active", "fenced", "active", 22, None),
    ]
    assert all((r.ended is None) == (r.end_offset is None) for r in rows)
