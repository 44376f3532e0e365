"""Which of several logs is wrong where they differ, and which differences are healthy."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from quorate.raft.types import OffsetAndEpoch
from quorate.spark.auditing.comparison import differences_at
from quorate.spark.auditing.rules import AuditRule, Facts
from quorate.spark.files import LogReplica, SnapshotFile

COMMITTED = 200


def log(name: str, *epochs: tuple[int, int], end: int, checkpoint: int = 0) -> Facts:
    """A log from offset 0. epochs: each with its first offset."""
    path = Path(name)
    stored = (SnapshotFile(path, OffsetAndEpoch(checkpoint, 1)),) if checkpoint else ()
    replica = LogReplica(name, path, path, None, (), stored)
    return Facts(replica, 0, end, max(epoch for epoch, _ in epochs), dict(epochs))


def batch(replica: str, epoch: int, crc: int = 1, offset: int = 150) -> Any:
    return SimpleNamespace(
        replica=replica,
        epoch=epoch,
        crc=crc,
        size=90,
        base_offset=offset,
        last_offset=offset,
        file=f"{replica}.log",
        position=700,
    )


def found(logs: list[Facts], *sides: Any) -> list[tuple[AuditRule, str, str]]:
    row = SimpleNamespace(base_offset=150, sides=list(sides))
    facts = {one.name: one for one in logs}
    told = [finding for finding, _ in differences_at(row, facts, COMMITTED)]
    return [(one.rule, one.replica, one.other) for one in told]


A, B = log("a", (1, 0), (4, 150), end=300), log("b", (1, 0), (4, 150), end=300)
RIGHT = batch("a", 4), batch("b", 4)
LIAR = [(AuditRule.DIVERGENCE, "c", "a")]


def test_a_stopped_leader_may_keep_its_tail() -> None:
    """Also below what the others have committed since: it truncates the tail when it returns."""
    for stopped in (log("c", (1, 0), end=160), log("c", (1, 0), (3, 150), end=160)):
        assert found([A, B, stopped], *RIGHT, batch("c", stopped.epoch, 2)) == []
    # Its batches need not begin where those of the next leader do.
    assert found([A, B, log("c", (1, 0), end=160)], *RIGHT) == []
    assert found([A, B, log("c", (1, 0), end=160)], batch("c", 1, 2)) == []


@pytest.mark.parametrize(
    "liar",
    [
        pytest.param(log("c", (1, 0), (14, 150), end=300), id="a later epoch"),
        pytest.param(log("c", (1, 0), (3, 150), (4, 151), end=300), id="it has the last epoch"),
        pytest.param(log("c", (1, 0), (3, 150), end=160, checkpoint=160), id="in a checkpoint"),
    ],
)
def test_other_differences_below_the_high_watermark_are_found(liar: Facts) -> None:
    assert found([A, B, liar], *RIGHT, batch("c", 3, 2)) == LIAR


def test_a_copy_under_an_older_epoch_is_no_tail() -> None:
    lowered = log("c", (1, 0), (3, 150), end=300)
    assert found([A, B, lowered], *RIGHT, batch("c", 3, 1)) == LIAR


def test_the_few_are_wrong() -> None:
    other = log("c", (1, 0), (4, 150), end=300)
    assert found([A, B, other], *RIGHT) == LIAR
    assert found([A, B, other], batch("c", 4)) == LIAR
    matching = [(AuditRule.LOG_MATCHING, "c", "a")]
    assert found([A, B, other], *RIGHT, batch("c", 4, 2)) == matching
