"""Offsets, epochs and durability of a log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorate.raft.batches import Batch
from quorate.raft.errors import CorruptionError, FatalError
from quorate.raft.logstate import BehindSnapshot, Diverging, LogState, Valid
from quorate.raft.types import OffsetAndEpoch


def log_of(*epochs: int, start: OffsetAndEpoch | None = None) -> LogState:
    """A log with one record for each epoch given."""
    log = LogState(start, start.offset, (), start) if start is not None else LogState()
    log.append(batches(log.end_offset, *epochs))
    log.durable(log.last_ticket)
    return log


def batches(base: int, *epochs: int) -> list[Batch]:
    return [Batch(base + i, base + i, epoch) for i, epoch in enumerate(epochs)]


def test_an_empty_log() -> None:
    log = LogState()
    assert (log.end_offset, log.last_epoch, log.is_durable) == (0, 0, True)
    assert log.end_offset_for_epoch(5) == OffsetAndEpoch(0, 0)
    assert log.validate(0, 0) == Valid()
    assert log.validate(3, 1) == Diverging(OffsetAndEpoch(0, 0))


def test_append_must_fit() -> None:
    log = log_of(1, 1, 2)
    with pytest.raises(FatalError, match="append of offset 7"):
        log.append(batches(7, 2))
    with pytest.raises(CorruptionError, match="epoch goes back"):
        log.append(batches(3, 1))
    with pytest.raises(CorruptionError, match="before its start"):
        LogState(OffsetAndEpoch(9, 1), 5)


def test_epochs() -> None:
    log = log_of(1, 1, 3, 3, 3, 6)
    assert log.epochs == ((1, 0), (3, 2), (6, 5))
    assert log.end_offset_for_epoch(0) == OffsetAndEpoch(0, 0)
    assert log.end_offset_for_epoch(1) == OffsetAndEpoch(2, 1)
    assert log.end_offset_for_epoch(2) == OffsetAndEpoch(2, 1)
    assert log.end_offset_for_epoch(5) == OffsetAndEpoch(5, 3)
    assert log.end_offset_for_epoch(9) == OffsetAndEpoch(6, 6)
    assert [log.epoch_before(offset) for offset in range(7)] == [0, 1, 1, 3, 3, 3, 6]


def test_truncate() -> None:
    log = log_of(1, 1, 3, 3, 6)
    log.truncate(3)
    assert (log.end_offset, log.last_epoch, log.epochs) == (3, 3, ((1, 0), (3, 2)))
    log.truncate(2)
    assert log.last_epoch == 1
    for outside in (-1, 3):
        with pytest.raises(FatalError, match="truncation"):
            log.truncate(outside)


def test_durability_follows_the_tickets() -> None:
    log = LogState()
    first = log.append(batches(0, 1, 1))
    second = log.append(batches(2, 1))
    assert (log.durable_end, log.is_durable) == (0, False)
    log.durable(first)
    assert (log.durable_end, log.is_durable) == (2, False)
    log.durable(second)
    log.durable(first)
    assert (log.durable_end, log.is_durable) == (3, True)


def test_what_is_truncated_before_it_is_synced_is_never_durable() -> None:
    log = log_of(1, 1)
    appended = log.append(batches(2, 1, 1, 1))
    truncated = log.truncate(3)
    again = log.append(batches(3, 2))
    log.durable(appended)
    assert (log.durable_end, log.is_durable) == (3, False)
    log.durable(truncated)
    assert log.durable_end == 3
    log.durable(again)
    assert (log.durable_end, log.is_durable) == (4, True)


def test_truncating_what_is_durable_lowers_the_durable_end_at_once() -> None:
    log = log_of(1, 1, 1, 1)
    log.truncate(1)
    assert (log.durable_end, log.is_durable) == (1, False)


def test_a_snapshot_replaces_the_log() -> None:
    log = log_of(1, 1, 2)
    unsynced = log.append(batches(3, 2))
    ticket = log.reset_to(OffsetAndEpoch(50, 7))
    assert (log.start, log.end_offset, log.last_epoch) == (OffsetAndEpoch(50, 7), 50, 7)
    log.durable(unsynced)
    assert log.durable_end <= 50
    log.durable(ticket)
    assert (log.durable_end, log.is_durable) == (50, True)
    log.append(batches(50, 7, 8))
    assert log.end_offset_for_epoch(7) == OffsetAndEpoch(51, 7)
    log.truncate(50)
    assert log.last_epoch == 7
    assert log.end_offset_for_epoch(7) == OffsetAndEpoch(50, 7)


def test_advance_start() -> None:
    log = log_of(1, 1, 2, 2, 2, 4)
    log.advance_start(OffsetAndEpoch(3, 2))
    assert (log.start.offset, log.end_offset) == (3, 6)
    assert log.epochs == ((2, 3), (4, 5))
    assert log.epoch_before(3) == 2
    log.advance_start(OffsetAndEpoch(2, 1))
    assert log.start.offset == 3
    log.advance_start(OffsetAndEpoch(6, 4))
    assert list(log.epochs) == [(4, 6)]
    assert log.end_offset_for_epoch(4) == OffsetAndEpoch(6, 4)
    assert log.last_epoch == 4


def test_advance_start_to_where_an_epoch_begins() -> None:
    log = log_of(1, 1, 2, 2)
    log.advance_start(OffsetAndEpoch(2, 1))
    assert log.epoch_before(2) == 1
    assert log.validate(2, 1) == Valid()
    assert log.validate(3, 2) == Valid()
    assert log.last_epoch == 2


def test_validate_within_the_log() -> None:
    log = log_of(1, 1, 3, 3)
    assert log.validate(2, 1) == Valid()
    assert log.validate(4, 3) == Valid()
    assert log.validate(3, 1) == Diverging(OffsetAndEpoch(2, 1))
    assert log.validate(5, 3) == Diverging(OffsetAndEpoch(4, 3))
    assert log.validate(3, 2) == Diverging(OffsetAndEpoch(2, 1))
    assert log.validate(9, 9) == Diverging(OffsetAndEpoch(4, 3))


def test_validate_before_the_start_gives_the_latest_snapshot() -> None:
    log = log_of(1, 1, 2, 2, 2, 4)
    log.snapshot = OffsetAndEpoch(5, 2)
    assert log.validate(0, 0) == BehindSnapshot(OffsetAndEpoch(5, 2))
    assert log.validate(2, 1) == Valid()
    log.advance_start(OffsetAndEpoch(3, 2))
    behind = BehindSnapshot(OffsetAndEpoch(5, 2))
    assert log.validate(2, 1) == behind
    assert log.validate(4, 1) == behind
    assert log.validate(3, 1) == behind
    assert log.validate(3, 3) == behind
    assert log.validate(3, 2) == Valid()
    assert log.validate(6, 4) == Valid()
    assert log.validate(7, 4) == Diverging(OffsetAndEpoch(6, 4))


def test_truncation_point() -> None:
    log = log_of(1, 1, 2, 2, 5)
    assert log.truncation_point(OffsetAndEpoch(3, 2)) == 3
    assert log.truncation_point(OffsetAndEpoch(9, 2)) == 4
    assert log.truncation_point(OffsetAndEpoch(9, 3)) == 4
    assert log.truncation_point(OffsetAndEpoch(0, 0)) == 0


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Two logs as Raft can make them: a common prefix, then epochs that only one of them has."""
    common = sorted(draw(st.lists(st.integers(1, 3), max_size=5)))
    mine = sorted(draw(st.lists(st.sampled_from([4, 6, 8]), max_size=5)))
    theirs = sorted(draw(st.lists(st.sampled_from([5, 7, 9]), max_size=5)))
    return common + mine, common + theirs


@given(histories())
def test_reconciliation_ends_at_the_common_prefix(logs: tuple[list[int], list[int]]) -> None:
    """The follower asks, truncates and asks again until it is valid: it then holds a prefix of the
    leader's log, it never cut into what both have, and each step made progress (KIP-595).
    """
    mine, theirs = logs
    follower, leader = log_of(*mine), log_of(*theirs)
    shared = next(
        (i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b),
        min(len(mine), len(theirs)),
    )
    for _ in range(len(mine) + 1):
        position = leader.validate(follower.end_offset, follower.last_epoch)
        if isinstance(position, Valid):
            break
        assert isinstance(position, Diverging)
        to = follower.truncation_point(position.end)
        assert shared <= to < follower.end_offset
        follower.truncate(to)
    assert leader.validate(follower.end_offset, follower.last_epoch) == Valid()
    assert mine[: follower.end_offset] == theirs[: follower.end_offset]
    assert follower.end_offset == shared


@given(st.lists(st.integers(1, 3), min_size=1, max_size=8).map(sorted), st.data())
def test_durable_end_is_never_beyond_what_was_synced(
    epochs: list[int], data: st.DataObject
) -> None:
    """Appends, truncations and syncs in any order: never more is durable than was synced."""
    log = LogState()
    disk = 0
    pending: list[tuple[int, str, int]] = []
    for epoch in epochs:
        choice = data.draw(st.sampled_from(["append", "truncate", "sync"]))
        if choice == "append":
            ticket = log.append(batches(log.end_offset, max(epoch, log.last_epoch)))
            pending.append((ticket, "append", log.end_offset))
        elif choice == "truncate":
            to = data.draw(st.integers(0, log.end_offset))
            pending.append((log.truncate(to), "truncate", to))
        elif pending:
            ticket, kind, end = pending.pop(0)
            disk = end if kind == "append" else min(disk, end)
            log.durable(ticket)
        assert log.durable_end <= disk
        assert log.durable_end <= log.end_offset
    for ticket, _, _ in pending:
        log.durable(ticket)
    assert log.is_durable
