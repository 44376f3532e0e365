"""Voter sets, replica keys and offsets as values."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorate.common.endpoints import Endpoint
from quorate.common.features import VersionRange
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, Voter, VoterSet, same_replica

from tests.replica.voters import without_directories


def voters(*names: str) -> VoterSet:
    """`voters("1A", "2")`: 1 on directory A, 2 with its directory unknown."""
    return VoterSet.of(Voter(ReplicaKey(int(name[0]), name[1:] or None)) for name in names)


def majorities(voter_set: VoterSet) -> list[set[ReplicaKey]]:
    keys = [voter.key for voter in voter_set]
    sizes = range(voter_set.majority, len(keys) + 1)
    return [set(c) for c in chain.from_iterable(combinations(keys, n) for n in sizes)]


keys = st.builds(ReplicaKey, st.integers(1, 5), st.sampled_from(["A", "B"]))
sets = st.lists(keys, min_size=1, max_size=5, unique_by=lambda key: key.id).map(
    lambda chosen: VoterSet.of(Voter(key) for key in chosen)
)


@given(sets, sets)
def test_overlapping_majority_means_what_it_says(one: VoterSet, other: VoterSet) -> None:
    if one.has_overlapping_majority(other):
        assert all(mine & theirs for mine in majorities(one) for theirs in majorities(other))


@given(sets, sets)
def test_overlapping_majority_is_symmetric_and_reflexive(one: VoterSet, other: VoterSet) -> None:
    assert one.has_overlapping_majority(one)
    assert one.has_overlapping_majority(other) == other.has_overlapping_majority(one)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (voters("1A", "2A"), voters("1A", "2A", "3A"), True),
        (voters("1A", "2A", "3A"), voters("2A", "3A"), True),
        (voters("1A", "2A", "3A"), voters("1A", "2A", "4A"), False),
        (voters("1A", "2A"), voters("1A", "2A", "3A", "4A"), False),
        # A replaced disk is a removal and an addition: two changes.
        (voters("1A", "2A", "3A"), voters("1A", "2A", "3B"), False),
        (voters("1A"), voters("1B"), False),
        # At the upgrade to kraft.version 1 the directories become known; the replicas stay.
        (voters("1", "2", "3"), voters("1A", "2A", "3A"), True),
        (voters("1A", "2A", "3A"), voters("1", "2", "3"), True),
        (voters("1", "2A"), voters("1A", "2A"), True),
        (voters("1", "2A"), voters("1A", "2B"), False),
        (voters("1", "2", "3"), voters("1A", "2A", "4A"), False),
    ],
)
def test_overlapping_majority(one: VoterSet, other: VoterSet, expected: bool) -> None:
    assert one.has_overlapping_majority(other) is expected


def test_an_update_of_endpoints_is_no_change_of_members() -> None:
    old = voters("1A", "2A")
    new = old.updating(Voter(ReplicaKey(2, "A"), (Endpoint("C", "h", 1),), VersionRange(0, 2)))
    assert old != new
    assert old.has_overlapping_majority(new)


@pytest.mark.parametrize(
    ("known", "claimed", "expected"),
    [
        (ReplicaKey(1, "A"), ReplicaKey(1, "A"), True),
        (ReplicaKey(1, "A"), ReplicaKey(1, "B"), False),
        (ReplicaKey(1, "A"), ReplicaKey(1), False),
        (ReplicaKey(1), ReplicaKey(1, "B"), True),
        (ReplicaKey(1), ReplicaKey(1), True),
        (ReplicaKey(1), ReplicaKey(2), False),
    ],
)
def test_same_replica(known: ReplicaKey, claimed: ReplicaKey, expected: bool) -> None:
    assert same_replica(known, claimed) is expected
    assert (claimed in VoterSet((Voter(known),))) is expected


def test_a_voter_set_is_ordered_and_ids_are_unique() -> None:
    assert [voter.id for voter in voters("3A", "1A", "2A")] == [1, 2, 3]
    assert voters("3A", "1A") == voters("1A", "3A")
    assert str(voters("2B", "1A")) == "{1-A, 2-B}"
    with pytest.raises(ValueError, match="appears twice"):
        voters("1A", "1B")


def test_changes_of_a_voter_set() -> None:
    two = voters("1A", "2A")
    three = two.adding(Voter(ReplicaKey(3, "A")))
    assert three == voters("1A", "2A", "3A")
    assert three.removing(ReplicaKey(1, "A")) == voters("2A", "3A")
    with pytest.raises(ValueError, match="appears twice"):
        two.adding(Voter(ReplicaKey(2, "B")))
    with pytest.raises(AssertionError):
        two.removing(ReplicaKey(2, "B"))
    with pytest.raises(AssertionError):
        two.updating(Voter(ReplicaKey(3, "A")))
    assert without_directories(three) == voters("1", "2", "3")


@pytest.mark.parametrize(("size", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_majority(size: int, majority: int) -> None:
    assert voters(*(f"{i}A" for i in range(1, size + 1))).majority == majority


def test_is_only() -> None:
    assert voters("1A").is_only(ReplicaKey(1, "A"))
    assert not voters("1A").is_only(ReplicaKey(1, "B"))
    assert not voters("1A", "2A").is_only(ReplicaKey(1, "A"))


def test_find_and_get() -> None:
    known = voters("1A", "2")
    assert known.get(1) == Voter(ReplicaKey(1, "A"))
    assert known.find(ReplicaKey(1, "B")) is None
    assert known.find(ReplicaKey(2, "Z")) == Voter(ReplicaKey(2))
    assert known.find(ReplicaKey(9, "A")) is None
    assert "1A" not in known


def test_version_range_and_texts() -> None:
    assert 1 in VersionRange(0, 1)
    assert 2 not in VersionRange(0, 1)
    assert "1" not in VersionRange(0, 1)
    assert str(VersionRange(0, 1)) == "0-1"
    assert str(ReplicaKey(4)) == "4"
    assert str(OffsetAndEpoch(7, 2)) == "7@2"
    assert str(Endpoint("C", "host", 9)) == "C://host:9"
