"""Control records: the bytes that Kafka 4.3 wrote, every value both ways, hostile bytes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorate.common.endpoints import Endpoint
from quorate.common.features import VersionRange
from quorate.common.identifiers import uuid_from_bytes, uuid_to_bytes
from quorate.raft.batches import (
    ControlRecord,
    KRaftVersion,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    UnknownControl,
    VotersRecord,
)
from quorate.raft.types import ReplicaKey, Voter, VoterSet
from quorate.records.control import control_json, decode_control, encode_control
from quorate.records.errors import CorruptBatchError, RecordsError, UnsupportedBatchError

DIRECTORY = "Rigw3vfNRMmcl9pdbu4hDQ"
ONE_VOTER = VotersRecord(
    VoterSet.of([Voter(ReplicaKey(1, DIRECTORY), (Endpoint("CONTROLLER", "127.0.0.1", 43899),))])
)

# Taken from a log that Kafka 4.3 wrote: the first batch of a quorum formatted with --standalone.
GOLDEN: list[tuple[ControlRecord, str, str]] = [
    (
        LeaderChange(1, (ReplicaKey(1),), (ReplicaKey(1),)),
        "00000002",
        "00000000000102000000010002000000010000",
    ),
    (KRaftVersion(1), "00000005", "0000000100"),
    (
        ONE_VOTER,
        "00000006",
        "000002000000014628" + "30def7cd44c99c97da5d6eee210d"
        "020b434f4e54524f4c4c45520a3132372e302e302e31ab7b00000000010000" + "00",
    ),
    (SnapshotHeader(1795232332904), "00000003", "0000000001a1fc2f7c6800"),
    (SnapshotFooter(), "00000004", "000000"),
]

DIRECTORIES = st.none() | st.binary(min_size=16, max_size=16).filter(any).map(uuid_from_bytes)
KEYS = st.builds(ReplicaKey, st.integers(0, 2**31 - 1), DIRECTORIES)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VERSIONS = st.builds(VersionRange, st.integers(0, 2**15 - 1), st.integers(0, 2**15 - 1))
ENDPOINTS = st.builds(Endpoint, TEXTS, TEXTS, st.integers(0, 65535))
VOTERS = st.builds(Voter, KEYS, st.lists(ENDPOINTS, max_size=3).map(tuple), VERSIONS)
RECORDS: st.SearchStrategy[ControlRecord] = st.one_of(
    st.lists(VOTERS, max_size=4, unique_by=lambda voter: voter.id).map(
        lambda voters: VotersRecord(VoterSet.of(voters))
    ),
    st.integers(0, 2**15 - 1).map(KRaftVersion),
    st.integers(-(2**63), 2**63 - 1).map(SnapshotHeader),
    st.just(SnapshotFooter()),
    st.builds(
        LeaderChange,
        st.integers(0, 2**31 - 1),
        st.lists(KEYS, max_size=3).map(tuple),
        st.lists(KEYS, max_size=3).map(tuple),
        st.just(1),
    ),
    st.builds(UnknownControl, st.sampled_from([0, 1, 7, 999]), st.binary(max_size=20)),
)


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_bytes_are_kafkas(record: ControlRecord, key: str, value: str) -> None:
    assert tuple(part.hex() for part in encode_control(record)) == (key, value)
    assert decode_control(bytes.fromhex(key), bytes.fromhex(value)) == record


def test_leader_change_version_1_holds_directory_ids() -> None:
    record = LeaderChange(1, (ReplicaKey(1, DIRECTORY), ReplicaKey(2)), (), version=1)
    voter = "00000001" + uuid_to_bytes(DIRECTORY).hex() + "00"
    unknown = "00000002" + "00" * 16 + "00"
    _, value = encode_control(record)
    assert value.hex() == "0001" + "00000001" + "03" + voter + unknown + "01" + "00"
    assert decode_control(b"\0\0\0\2", value) == record
    assert control_json(record)["voters"] == [
        {"voterId": 1, "voterDirectoryId": DIRECTORY},
        {"voterId": 2, "voterDirectoryId": "A" * 22},
    ]


@given(RECORDS)
def test_what_is_encoded_is_decoded(record: ControlRecord) -> None:
    assert decode_control(*encode_control(record)) == record


@given(RECORDS, st.data())
def test_damaged_values_give_a_typed_error_or_a_value(
    record: ControlRecord, data: st.DataObject
) -> None:
    key, value = encode_control(record)
    damaged = bytearray(value)
    for _ in range(data.draw(st.integers(0, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = damaged[: data.draw(st.integers(0, len(damaged)))]
    with contextlib.suppress(RecordsError):
        decode_control(key, cut)


@given(st.integers(0, 6), st.binary(max_size=60))
def test_random_values_give_a_typed_error_or_a_value(kind: int, value: bytes) -> None:
    with contextlib.suppress(RecordsError):
        decode_control(bytes([0, 0, 0, kind]), value)


def test_what_this_version_does_not_know_is_told_apart() -> None:
    assert decode_control(b"\0\0\0\x63", b"abc") == UnknownControl(99, b"abc")
    assert decode_control(b"\0\0\0\x63", None) == UnknownControl(99, b"")
    with pytest.raises(UnsupportedBatchError, match="KRAFT_VOTERS has version 1, newer than 0"):
        decode_control(b"\0\0\0\x06", b"\0\1")
    for key in (None, b"", b"\0\0\0", b"\xff\xff\0\2"):
        with pytest.raises(CorruptBatchError, match="key"):
            decode_control(key, b"")
    with pytest.raises(CorruptBatchError, match="no value"):
        decode_control(b"\0\0\0\2", None)


def test_a_voter_that_appears_twice_is_refused() -> None:
    _, value = encode_control(ONE_VOTER)
    voter = value[3:-1]
    with pytest.raises(CorruptBatchError, match="twice"):
        decode_control(b"\0\0\0\6", value[:2] + b"\x03" + voter + voter + b"\0")
