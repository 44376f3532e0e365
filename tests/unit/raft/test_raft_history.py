"""Voter sets and kraft.versions along the log."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from quorate.raft.batches import Batch, KRaftVersion, LeaderChange, VotersRecord
from quorate.raft.history import NOT_IN_LOG, MembershipHistory
from quorate.raft.types import ReplicaKey, Voter, VoterSet


def voters(*ids: int) -> VoterSet:
    return VoterSet.of(Voter(ReplicaKey(i, "A")) for i in ids)


STATIC = voters(7, 8, 9)


def control(base: int, *records: VotersRecord | KRaftVersion | LeaderChange) -> Batch:
    return Batch(base, base + len(records) - 1, 1, records)


def test_without_records_the_static_set_is_in_force() -> None:
    history = MembershipHistory(STATIC)
    assert history.voters == STATIC
    assert history.kraft_version == 0
    assert history.voters_offset == history.last_change_offset == NOT_IN_LOG
    assert history.voters_at(100) == STATIC
    assert history.kraft_version_at(100) == 0


def test_a_record_is_in_force_when_appended_and_not_before_its_offset() -> None:
    history = MembershipHistory(STATIC)
    records = (LeaderChange(1, (), ()), KRaftVersion(1), VotersRecord(voters(1, 2)))
    assert history.append(control(10, *records))
    assert history.voters == voters(1, 2)
    assert history.kraft_version == 1
    assert history.voters_offset == history.last_change_offset == 12
    assert history.voters_at(12) == STATIC
    assert history.voters_at(13) == voters(1, 2)
    assert history.kraft_version_at(11) == 0
    assert history.kraft_version_at(12) == 1


def test_other_records_change_nothing() -> None:
    history = MembershipHistory(STATIC)
    assert not history.append(control(0, LeaderChange(1, (), ())))
    assert not history.append(Batch(1, 5, 1))
    assert history.voters == STATIC


def test_truncation_rolls_back() -> None:
    history = MembershipHistory(STATIC, [(-1, voters(1))], [(-1, 1)])
    history.append(control(5, VotersRecord(voters(1, 2))))
    history.append(control(9, VotersRecord(voters(1, 2, 3))))
    assert not history.truncate(10)
    assert history.voters == voters(1, 2, 3)
    assert history.truncate(9)
    assert history.voters == voters(1, 2)
    assert history.truncate(0)
    assert history.voters == voters(1)
    assert history.voters_offset == -1
    assert not history.truncate(0)


def test_trim_keeps_what_a_snapshot_at_that_offset_says() -> None:
    history = MembershipHistory(STATIC, [(-1, voters(1))], [(-1, 1)])
    for offset, ids in ((3, (1, 2)), (5, (1, 2, 3)), (8, (1, 3))):
        history.append(control(offset, VotersRecord(voters(*ids))))
    history.trim(6)
    assert history.since(5) == [STATIC, voters(1, 2, 3), voters(1, 3)]
    assert history.since(8) == [voters(1, 2, 3), voters(1, 3)]
    assert history.since(9) == [voters(1, 3)]
    assert history.voters_at(6) == voters(1, 2, 3)
    history.trim(6)
    history.trim(100)
    assert history.since(8) == [STATIC, voters(1, 3)]
    assert history.since(9) == [voters(1, 3)]
    assert history.kraft_version_at(0) == 1


def test_a_snapshot_replaces_everything() -> None:
    history = MembershipHistory(STATIC, [(-1, voters(1))], [(-1, 1)])
    history.append(control(3, VotersRecord(voters(1, 2))))
    history.reset([(19, voters(4, 5))], [(19, 1)])
    assert history.since(19) == [STATIC, voters(4, 5)]
    assert history.voters_at(20) == voters(4, 5)


@given(
    changes=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), max_size=12),
    cut=st.integers(0, 60),
    snapshot=st.integers(0, 60),
)
def test_truncation_and_trim_agree_with_a_history_that_never_had_more(
    changes: list[tuple[int, int]], cut: int, snapshot: int
) -> None:
    """Truncating is like never having appended; trimming changes no answer from there on."""
    full, short = MembershipHistory(STATIC), MembershipHistory(STATIC)
    offset = 0
    for gap, voter_id in changes:
        offset += gap
        batch = control(offset, VotersRecord(voters(voter_id)))
        full.append(batch)
        if offset < cut:
            short.append(batch)
    full.truncate(cut)
    assert all(full.since(end) == short.since(end) for end in range(62))
    assert full.voters == short.voters
    full.trim(snapshot)
    for end in range(snapshot, 61):
        assert full.voters_at(end) == short.voters_at(end)
