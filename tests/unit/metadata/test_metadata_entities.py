"""Replaying records on an image, without Spark: what counts, what is shown, and at which offset."""

from __future__ import annotations

from typing import Any

from quorate.metadata.entities import StateReplay
from quorate.records import metadata as rec
from quorate.records.metadata import MetadataRecord

T1, T2 = "yol04JnHF9DBqmN178EntA", "rCEzNRdZMqf-jpZJ255y8w"


def replayed(*records: MetadataRecord) -> dict[tuple[str, str], tuple[dict[str, Any], int]]:
    replay = StateReplay()
    replay.apply((each, (offset,), True) for offset, each in enumerate(records))
    return {(kind, key): (fields, offset) for kind, key, fields, offset in replay.rows()}


def test_what_the_image_refuses_is_passed_over() -> None:
    found = replayed(
        rec.PartitionChangeRecord(0, T1, isr=(1,)),
        rec.TopicRecord("t", T1),
        rec.TopicRecord("t", T2),
        rec.PartitionRecord(0, T1, (1, 2), (1, 2)),
        rec.PartitionChangeRecord(7, T1, isr=(1,)),
    )
    assert set(found) == {("topics", "t"), ("partitions", "t/0")}
    assert found["topics", "t"] == ({"name": "t", "topicId": T1}, 1)
    fields, offset = found["partitions", "t/0"]
    assert (fields["isr"], offset) == ([1, 2], 3)


def test_offsets_are_those_of_changes_that_count() -> None:
    found = replayed(
        rec.ConfigRecord(2, "t", "a", "1"),
        rec.ConfigRecord(2, "t", "b", "1"),
        rec.BeginTransactionRecord(),
        rec.ConfigRecord(2, "t", "a", "2"),
        rec.EndTransactionRecord(),
        rec.BeginTransactionRecord(),
        rec.ConfigRecord(2, "t", "b", "2"),
        rec.AbortTransactionRecord(),
        rec.BeginTransactionRecord(),
        rec.ConfigRecord(2, "t", "c", "2"),
    )
    values = {key: (fields["value"], offset) for (_, key), (fields, offset) in found.items()}
    assert values == {"2/t/a": ("2", 3), "2/t/b": ("1", 1)}


def test_copies_are_not_shown() -> None:
    replay = StateReplay()
    replay.apply(
        [
            (rec.TopicRecord("t", T1), (0,), False),
            (rec.ConfigRecord(2, "t", "a", "1"), (1,), True),
            (rec.ConfigRecord(2, "other", "a", "1"), (2,), True),
            (rec.RemoveTopicRecord(T1), (3,), False),
        ]
    )
    assert [(kind, key) for kind, key, _, _ in replay.rows()] == [("configs", "2/other/a")]
