"""Metadata records as bytes, both ways: every declared type and version, and hostile input."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from quorate.common.identifiers import ZERO_UUID, uuid_from_bytes, uuid_to_bytes
from quorate.records.errors import CorruptBatchError, RecordsError, UnsupportedBatchError
from quorate.records.metadata import (
    API_KEYS,
    RECORD_TYPES,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RegisteredEndpoint,
    TopicRecord,
    UnfenceBrokerRecord,
    UnknownRecord,
    UnsupportedVersionError,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
    decode,
    encode,
    peek,
    type_name,
)
from quorate.records.primitives import Reader, Writer, encode_unsigned_varint

from tests.unit.records_metadata.strategies import VERSIONS, records, structures

SOME_UUID = uuid_from_bytes(bytes(range(16)))


@pytest.mark.parametrize(
    ("cls", "version"), VERSIONS, ids=[f"{cls.__name__}-{version}" for cls, version in VERSIONS]
)
@settings(max_examples=30)
@given(data=st.data())
def test_round_trip(cls: type[MetadataRecord], version: int, data: st.DataObject) -> None:
    record = data.draw(structures(cls, version))
    value = encode(record, version)
    decoded = decode(value)
    assert type(decoded) is cls
    assert decoded == record
    assert hash(decoded) == hash(record)
    assert decoded.version == version
    assert encode(decoded, decoded.version) == value
    assert decode(memoryview(b"x" + value)[1:]) == record
    assert decode(bytearray(value)) == record
    assert peek(value) == peek(memoryview(value)) == (cls.API_KEY, version)


@pytest.mark.slow
@settings(max_examples=300)
@given(records(), st.data())
def test_every_beginning_is_too_short(
    chosen: tuple[MetadataRecord, int], data: st.DataObject
) -> None:
    value = encode(*chosen)
    size = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(CorruptBatchError):
        decode(value[:size])


@settings(max_examples=100)
@given(records(), st.binary(min_size=1, max_size=8))
def test_nothing_may_follow(chosen: tuple[MetadataRecord, int], garbage: bytes) -> None:
    with pytest.raises(CorruptBatchError, match="too many"):
        decode(encode(*chosen) + garbage)


@pytest.mark.slow
@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(records(), st.data())
def test_damage_gives_a_typed_error_or_a_record(
    chosen: tuple[MetadataRecord, int], data: st.DataObject
) -> None:
    value = bytearray(encode(*chosen))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(value) - 1))
        value[at] = data.draw(st.integers(0, 255))
    _decodes_or_raises(bytes(value))


@settings(max_examples=2000)
@given(st.sampled_from(VERSIONS), st.binary(max_size=80))
@example((PartitionRecord, 2), bytes(40) + b"\xff" * 5)
def test_any_bytes_give_a_typed_error_or_a_record(
    chosen: tuple[type[MetadataRecord], int], message: bytes
) -> None:
    _decodes_or_raises(bytes([1, chosen[0].API_KEY, chosen[1]]) + message)
    _decodes_or_raises(message)


def _decodes_or_raises(value: bytes) -> None:
    peeked = peek(value)
    try:
        record = decode(value)
    except RecordsError:
        return
    if isinstance(record, UnknownRecord):
        assert peeked == (record.api_key, record.version)
        assert decode(encode(record)) == record
        return
    assert record.version is not None
    # Compared as bytes, for NaN is not equal to itself.
    again = encode(record, record.version)
    assert encode(decode(again), record.version) == again


def test_lengths_are_checked_before_anything_is_allocated() -> None:
    huge = encode_unsigned_varint(0x7FFF_FFFF)
    partition = b"\x01\x03\x02" + bytes(4) + bytes(16)
    for message in (
        partition + huge,
        b"\x01\x02\x00" + huge,
        b"\x01\x0b\x00\x01\x00" + huge,
        b"\x01\x0a\x00\x01\x01" + huge,
        b"\x01\x0e\x00" + huge,
        b"\x01\x17\x00\x01\x00" + huge,
        b"\x01\x14\x00" + huge,
    ):
        with pytest.raises(CorruptBatchError):
            decode(message + bytes(8))


def test_lists_longer_than_the_prepared_ones() -> None:
    ids = tuple(range(1000))
    record = PartitionRecord(
        topic_id=SOME_UUID, replicas=ids, isr=(), last_known_elr=ids, directories=(SOME_UUID,) * 500
    )
    value = encode(record)
    assert decode(value) == record
    with pytest.raises(CorruptBatchError):
        decode(value[: 3 + 4 + 16 + 2 + 999])


@pytest.mark.parametrize("length", [0, 1, 30, 31, 32, 33, 126, 127, 128, 4094, 4095, 16383, 16384])
def test_lengths_at_the_borders_of_the_encodings(length: int) -> None:
    for record in (
        PartitionRecord(replicas=tuple(range(length)), directories=(SOME_UUID,) * length),
        ConfigRecord(name="n" * length, value="é" * (length // 2)),
        UserScramCredentialRecord(salt=bytes(length)),
        DelegationTokenRecord(renewers=("r",) * length),
        NoOpRecord(unknown_tags=((length, bytes(length)),)),
    ):
        assert decode(encode(record)) == record


def test_a_string_has_at_most_32767_bytes() -> None:
    longest = ConfigRecord(value="é" * 16383 + "e")
    value = encode(longest)
    assert decode(value) == longest
    with pytest.raises(ValueError, match="32768 bytes"):
        encode(ConfigRecord(value="é" * 16384))
    raw = bytearray(b"\x01\x02\x00") + encode_unsigned_varint(32769) + b"t" * 32768 + bytes(17)
    with pytest.raises(CorruptBatchError, match="32768 bytes"):
        decode(raw)


def test_the_bytes_of_a_record_that_has_everything() -> None:
    record = PartitionChangeRecord(
        partition_id=7,
        topic_id=SOME_UUID,
        leader=3,
        isr=(3, 4),
        directories=(ZERO_UUID,),
        eligible_leader_replicas=(),
    )
    out = Writer()
    for number in (1, 5, 2):
        out.unsigned_varint(number)
    out.int32(7)
    out.uuid(SOME_UUID)
    out.tagged_fields(
        {
            0: b"\x03\x00\x00\x00\x03\x00\x00\x00\x04",
            1: b"\x00\x00\x00\x03",
            6: b"\x01",
            8: b"\x02" + bytes(16),
        }
    )
    assert encode(record) == out.to_bytes()


def test_strings_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(CorruptBatchError, match="UTF-8"):
        decode(b"\x01\x02\x00\x02\xff" + bytes(17))
    with pytest.raises(ValueError, match="surrogates"):
        encode(TopicRecord(name="\ud800"))


def test_null_where_it_must_not_be() -> None:
    for value in (
        b"\x01\x02\x00\x00" + bytes(17),
        b"\x01\x0b\x00\x01\x00\x00\x01\x01" + bytes(5),
        b"\x01\x0e\x00\x00\x01" + bytes(10),
        b"\x01\x03\x00" + bytes(4) + bytes(16) + b"\x00",
        b"\x01\x11\x02" + bytes(12) + b"\x01\x02\x01\x00",
    ):
        with pytest.raises(CorruptBatchError, match="null where"):
            decode(value)
    for record in (
        TopicRecord(name=None),  # type: ignore[arg-type]
        PartitionRecord(replicas=None),  # type: ignore[arg-type]
        UserScramCredentialRecord(salt=None),  # type: ignore[arg-type]
        FenceBrokerRecord(id=None),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match="cannot be written"):
            encode(record)


def test_values_that_do_not_fit_are_refused() -> None:
    for record in (
        FenceBrokerRecord(id=1 << 31),
        PartitionRecord(isr=(1 << 31,)),
        ZkMigrationStateRecord(zk_migration_state=128),
        RegisterBrokerRecord(end_points=(RegisteredEndpoint(port=65536),)),
        TopicRecord(topic_id="too short"),
        TopicRecord(topic_id="A" * 21 + "B"),
        TopicRecord(topic_id="A" * 20 + "+A"),
        TopicRecord(topic_id="A" * 20 + "=A"),
        TopicRecord(topic_id="é" * 21 + "A"),
        PartitionRecord(directories=("A" * 23,)),
    ):
        with pytest.raises(ValueError, match=r"cannot be written|not a UUID"):
            encode(record)


@given(st.binary(min_size=16, max_size=16))
def test_uuids_are_those_of_the_primitives(raw: bytes) -> None:
    text = uuid_from_bytes(raw)
    value = encode(TopicRecord(topic_id=text))
    assert value[4:20] == raw == uuid_to_bytes(text)
    decoded = decode(value)
    assert isinstance(decoded, TopicRecord)
    assert decoded.topic_id == text


def test_lists_are_as_good_as_tuples_when_encoding() -> None:
    made = BrokerRegistrationChangeRecord(log_dirs=[])  # type: ignore[arg-type]
    assert encode(made) == encode(BrokerRegistrationChangeRecord())
    assert encode(made, 0) == encode(BrokerRegistrationChangeRecord(), 0)
    ids = PartitionRecord(isr=[1, 2])  # type: ignore[arg-type]
    assert encode(ids) == encode(PartitionRecord(isr=(1, 2)))


class TestVersions:
    def test_the_latest_is_the_default(self) -> None:
        assert peek(encode(PartitionRecord())) == (3, 2)
        assert peek(encode(RegisterBrokerRecord())) == (0, 4)

    def test_a_new_record_has_none(self) -> None:
        assert PartitionRecord().version is None

    def test_a_field_that_the_version_lacks_must_have_its_default(self) -> None:
        partition = PartitionRecord(directories=(SOME_UUID,))
        assert peek(encode(partition, 1)) == (3, 1)
        with pytest.raises(UnsupportedVersionError, match="no directories in version 0"):
            encode(partition, 0)
        for record, version in (
            (PartitionRecord(eligible_leader_replicas=()), 1),
            (RegisterBrokerRecord(is_migrating_zk_broker=True), 1),
            (RegisterBrokerRecord(in_controlled_shutdown=True), 0),
            (RegisterBrokerRecord(log_dirs=(SOME_UUID,)), 2),
            (RegisterBrokerRecord(cordoned_log_dirs=()), 3),
        ):
            with pytest.raises(UnsupportedVersionError):
                encode(record, version)
            encode(record, version + 1)

    @pytest.mark.parametrize("version", [-1, 3, 1 << 40])
    def test_an_undeclared_version_cannot_be_written(self, version: int) -> None:
        with pytest.raises(UnsupportedVersionError, match="0-2"):
            encode(PartitionRecord(), version)

    def test_it_does_not_count_for_equality(self) -> None:
        assert decode(encode(PartitionRecord(), 0)) == PartitionRecord()
        assert decode(encode(PartitionRecord(), 0)) == decode(encode(PartitionRecord(), 2))

    def test_records_of_different_types_differ(self) -> None:
        fenced: MetadataRecord = FenceBrokerRecord(id=1, epoch=2)
        assert fenced != UnfenceBrokerRecord(id=1, epoch=2)


class TestTaggedFields:
    def test_unknown_ones_survive(self) -> None:
        record = ClientQuotaRecord(
            entity=(QuotaEntity(entity_type="user", unknown_tags=((9, b"nine"),)),),
            key="k",
            unknown_tags=((0, b""), (4, b"four")),
        )
        decoded = decode(encode(record))
        assert decoded == record
        assert decoded.unknown_tags == ((0, b""), (4, b"four"))

    def test_unknown_and_known_ones_are_merged_by_tag(self) -> None:
        record = BeginTransactionRecord(name="n", unknown_tags=((7, b"x"),))
        assert encode(record) == b"\x01\x17\x00\x02\x00\x02\x02n\x07\x01x"

    @pytest.mark.parametrize("tags", [((0, b"x"),), ((5, b"x"), (5, b"y"))])
    def test_a_known_or_repeated_tag_is_not_an_unknown_one(
        self, tags: tuple[tuple[int, bytes], ...]
    ) -> None:
        with pytest.raises(ValueError, match="unknown tags"):
            encode(BeginTransactionRecord(unknown_tags=tags))

    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            (b"\x02\x05\x00\x05\x00", "tag 5 follows tag 5"),
            (b"\x02\x05\x00\x04\x00", "tag 4 follows tag 5"),
            (b"\x01\x00\x03\x02n", "passes the end"),
            (b"\x01\x00\x03\x02nx", "does not fill"),
            (b"\x01\x00\x01\x03no", "does not fill"),
            (b"\x02\x05\x00", "too early"),
        ],
    )
    def test_broken_ones_are_refused(self, fields: bytes, reason: str) -> None:
        with pytest.raises(CorruptBatchError, match=reason):
            decode(b"\x01\x17\x00" + fields)

    def test_a_tag_of_a_later_version_is_refused(self) -> None:
        value = bytearray(encode(PartitionChangeRecord(directories=(SOME_UUID,)), 1))
        value[2] = 0
        with pytest.raises(CorruptBatchError, match="tag 8 is not valid in version 0"):
            decode(value)

    def test_one_at_its_default_is_read_and_not_written_again(self) -> None:
        decoded = decode(b"\x01\x17\x00\x01\x00\x01\x00")
        assert decoded == BeginTransactionRecord()
        assert encode(decoded) == b"\x01\x17\x00\x00"


class TestFrame:
    def test_other_frame_versions_are_not_ours(self) -> None:
        for value in (b"\x00\x14\x00\x00", b"\x02\x14\x00\x00"):
            with pytest.raises(UnsupportedBatchError, match="frame version"):
                decode(value)
            assert peek(value) is None

    @pytest.mark.parametrize("value", [b"", b"\x01", b"\x01\x02", b"\x81", b"\x01\xff\xff\xff"])
    def test_a_partial_one_is_corrupt(self, value: bytes) -> None:
        with pytest.raises(CorruptBatchError):
            decode(value)
        assert peek(value) is None

    def test_numbers_are_those_of_a_short(self) -> None:
        for number in (0x8000, 0xFFFF_FFFF):
            for value in (
                b"\x01" + encode_unsigned_varint(number) + b"\x00",
                b"\x01\x02" + encode_unsigned_varint(number),
            ):
                assert peek(value) is None
                with pytest.raises(CorruptBatchError):
                    decode(value)

    def test_varints_need_not_be_minimal(self) -> None:
        value = b"\x81\x00\x94\x00\x80\x00\x00"
        assert decode(value) == NoOpRecord()
        assert peek(value) == (20, 0)

    def test_varints_have_at_most_32_bits(self) -> None:
        for number in (b"\x80\x80\x80\x80\x10", b"\x80\x80\x80\x80\x80\x00"):
            assert peek(b"\x01" + number + b"\x00") is None
            with pytest.raises(CorruptBatchError, match="32 bits"):
                decode(b"\x01\x14\x00" + number)


class TestUnknownRecords:
    @pytest.mark.parametrize(
        "record",
        [
            UnknownRecord(6, 0, b"anything"),
            UnknownRecord(3, 3, b""),
            UnknownRecord(200, 1, b"\x00"),
            UnknownRecord(0x7FFF, 0x7FFF, b"x" * 1000),
        ],
    )
    def test_they_are_kept_as_they_are(self, record: UnknownRecord) -> None:
        value = encode(record)
        reader = Reader(value)
        assert [reader.unsigned_varint() for _ in range(3)] == [1, record.api_key, record.version]
        assert reader.raw(reader.remaining) == record.data
        assert decode(value) == record
        assert encode(record, record.version) == value
        assert peek(value) == (record.api_key, record.version)

    def test_they_have_one_version(self) -> None:
        with pytest.raises(UnsupportedVersionError):
            encode(UnknownRecord(6, 0, b""), 1)


def test_registry() -> None:
    assert len(RECORD_TYPES) == len(API_KEYS)
    for name, api_key in API_KEYS.items():
        cls = RECORD_TYPES[api_key]
        assert cls.TYPE == name == type_name(api_key)
        assert api_key == cls.API_KEY
        assert cls() == cls()
    assert type_name(21) == "ZK_MIGRATION_STATE_RECORD"
    assert type_name(20) == "NO_OP_RECORD"
    assert type_name(6) == "UNKNOWN_RECORD_6"


def test_records_are_dataclasses() -> None:
    record = TopicRecord(name="orders", topic_id=SOME_UUID)
    assert dataclasses.replace(record, name="bills") == TopicRecord("bills", SOME_UUID)
    assert repr(record) == f"TopicRecord(name='orders', topic_id='{SOME_UUID}')"
    with pytest.raises(AttributeError):
        record.other = 1  # type: ignore[attr-defined]
