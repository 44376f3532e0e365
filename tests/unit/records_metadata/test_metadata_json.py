"""Metadata records as Kafka's dump prints them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quorate.records.metadata import (
    AbortTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    QuotaEntity,
    UnknownRecord,
    UnsupportedVersionError,
    UserScramCredentialRecord,
    decode_json,
    encode,
    from_json,
    json_text,
    to_json,
)
from quorate.records.metadata.schema import Kind

from tests.unit.records_metadata.strategies import records

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=200)
@given(records())
def test_every_record_becomes_json(chosen: tuple[MetadataRecord, int]) -> None:
    record, version = chosen
    document = decode_json(encode(record, version))
    assert document == to_json(record, version)
    assert list(document) == ["type", "version", "data"]
    assert document["type"] == record.TYPE
    assert document["version"] == version
    for spec in record.FIELDS:
        value = getattr(record, spec.name)
        omitted = spec.tag is not None and value == spec.default
        assert (spec.json_name in document["data"]) == (spec.exists_in(version) and not omitted)
    json.loads(json_text(document))


@settings(max_examples=200)
@given(records())
def test_a_record_is_read_back_from_its_json(chosen: tuple[MetadataRecord, int]) -> None:
    record, version = chosen
    document = to_json(record, version)
    found = from_json(record.TYPE, json.loads(json_text(document))["data"])
    assert found.version == record.VERSIONS.max
    assert to_json(found, version) == document
    for spec in record.FIELDS:
        if isinstance(spec.kind, Kind):
            assert getattr(found, spec.name) == getattr(record, spec.name)


def test_fields_stand_in_the_order_of_the_declaration_not_of_the_tags() -> None:
    record = PartitionChangeRecord(
        last_known_elr=(), eligible_leader_replicas=(), directories=(), leader=-1
    )
    assert list(to_json(record)["data"]) == [
        "partitionId",
        "topicId",
        "leader",
        "directories",
        "eligibleLeaderReplicas",
        "lastKnownElr",
    ]


def test_the_text_of_a_record() -> None:
    record = UserScramCredentialRecord(
        name="alice", mechanism=1, salt=b"\xff\xfe\xfd\xfc", iterations=4096
    )
    assert json_text(decode_json(encode(record))) == (
        '{"type":"USER_SCRAM_CREDENTIAL_RECORD","version":0,"data":{"name":"alice","mechanism":1,'
        '"salt":"//79/A==","storedKey":"","serverKey":"","iterations":4096}}'
    )


def test_nulls_and_lists() -> None:
    quota = ClientQuotaRecord(entity=(QuotaEntity("user", None),), key="k", value=25.5)
    assert to_json(quota)["data"] == {
        "entity": [{"entityType": "user", "entityName": None}],
        "key": "k",
        "value": 25.5,
        "remove": False,
    }
    assert to_json(ConfigRecord(value=None))["data"]["value"] is None
    assert to_json(AbortTransactionRecord())["data"] == {}
    lists = BrokerRegistrationChangeRecord(log_dirs=[])  # type: ignore[arg-type]
    assert to_json(lists)["data"] == {"brokerId": 0, "brokerEpoch": 0}


def test_versions() -> None:
    old = decode_json(encode(PartitionRecord(), 0))
    assert old["version"] == 0
    assert "directories" not in old["data"]
    assert to_json(PartitionRecord())["version"] == 2
    with pytest.raises(UnsupportedVersionError):
        to_json(PartitionRecord(), 9)


def test_unknown_tags_are_not_printed() -> None:
    assert to_json(NoOpRecord(unknown_tags=((3, b"x"),)))["data"] == {}


def test_an_unknown_record() -> None:
    assert decode_json(encode(UnknownRecord(6, 2, b"\x01\x02"))) == {
        "type": "UNKNOWN_RECORD_6",
        "version": 2,
        "data": {"bytes": "AQI="},
    }


@given(DOCUMENTS)
def test_the_text_means_what_the_document_says(document: object) -> None:
    assert json.loads(json_text(document)) == document


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_keep_their_value(value: float) -> None:
    assert json.loads(json_text(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (25.5, "25.5"),
        (0.001, "0.001"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.0, "1.2345678E7"),
        (-1.5e300, "-1.5E300"),
        (0.00099, "9.9E-4"),
        (1e-5, "1.0E-5"),
        (float("nan"), '"NaN"'),
        (float("inf"), '"Infinity"'),
        (float("-inf"), '"-Infinity"'),
    ],
)
def test_numbers_as_java_prints_them(value: float, text: str) -> None:
    assert json_text(value) == text


def test_strings_as_jackson_prints_them() -> None:
    assert json_text('a"\\/\b\f\n\r\t') == r'"a\"\\/\b\f\n\r\t"'
    assert json_text("\x00\x1f\x7f") == '"\\u0000\\u001F\x7f"'
    assert json_text("\\u001f") == r'"\\u001f"'
    assert json_text("é漢😀\u2028") == '"é漢😀\u2028"'
