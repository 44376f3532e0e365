"""Metadata records against Kafka 4.3: its schemas, what it wrote, and what its tools read.

The oracle is Kafka's own: the schemas in its jar, the dumps of its logs, and its dump tool on a
log of ours.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from quorate.common.features import VersionRange
from quorate.common.identifiers import ZERO_UUID
from quorate.records.batch import build_data_batch, iter_batches, iter_records, stamp
from quorate.records.metadata import (
    API_KEYS,
    RECORD_TYPES,
    ClientQuotaRecord,
    ConfigRecord,
    MetadataRecord,
    NoOpRecord,
    Structure,
    decode,
    decode_json,
    encode,
    json_text,
    peek,
    to_json,
)
from quorate.records.metadata.schema import FieldSpec, Kind

from tests.kafka import KAFKA_4_3
from tests.unit.records_metadata.strategies import VERSIONS, structures

SCHEMA = re.compile(r"common/metadata/\w+\.json")
RECORD_LINE = re.compile(r"\| offset: (\d+) .*? valueSize: (-?\d+) .*? payload: (.*)")
TAKEN_UP = {"name", "type", "versions", "nullableVersions", "taggedVersions", "tag", "default"}
WITHOUT_EFFECT_ON_BYTES = {"about", "entityType", "mapKey", "fields"}


@pytest.fixture(scope="session")
def schemas(kafka_tool: Callable[..., str]) -> dict[int, dict[str, Any]]:
    """Kafka's schemas of metadata records by api key; the tool's fixture has got the jars."""
    found: dict[int, dict[str, Any]] = {}
    with zipfile.ZipFile(KAFKA_4_3 / "kafka-metadata-4.3.0.jar") as jar:
        for name in jar.namelist():
            if SCHEMA.fullmatch(name):
                text = re.sub(r"^\s*//.*$", "", jar.read(name).decode(), flags=re.MULTILINE)
                schema = json.loads(text)
                found[schema["apiKey"]] = schema
    return found


def _range(text: str, last: int) -> range:
    """The versions that a schema's "2+", "0-3" or "0" stands for."""
    if text in ("", "none"):
        return range(0)
    first, _, end = text.partition("-")
    if text.endswith("+"):
        return range(int(text[:-1]), last + 1)
    return range(int(first), int(end or first) + 1)


class TestSchemas:
    """The declarations say what Kafka's schemas say, no more and no less."""

    def test_no_record_is_missing(self, schemas: dict[int, dict[str, Any]]) -> None:
        assert len(schemas) == 26
        assert set(RECORD_TYPES) == set(schemas)

    @pytest.mark.parametrize("api_key", sorted(RECORD_TYPES))
    def test_record(self, schemas: dict[int, dict[str, Any]], api_key: int) -> None:
        schema = schemas[api_key]
        cls = RECORD_TYPES[api_key]
        assert schema["type"] == "metadata"
        assert schema["flexibleVersions"] == "0+"
        assert cls.__name__ == schema["name"]
        versions = _range(schema["validVersions"], 99)
        assert VersionRange(versions[0], versions[-1]) == cls.VERSIONS
        self._compare(cls, schema["fields"], cls.VERSIONS.max)

    def _compare(self, cls: type[Structure], fields: list[dict[str, Any]], last: int) -> None:
        assert [spec.json_name for spec in cls.FIELDS] == [
            field["name"][0].lower() + field["name"][1:] for field in fields
        ]
        for spec, field in zip(cls.FIELDS, fields, strict=True):
            assert set(field) <= TAKEN_UP | WITHOUT_EFFECT_ON_BYTES, field
            self._compare_field(spec, field, last)

    def _compare_field(self, spec: FieldSpec, field: dict[str, Any], last: int) -> None:
        kind = field["type"]
        assert spec.is_array == kind.startswith("[]")
        kind = kind.removeprefix("[]")
        if isinstance(spec.kind, Kind):
            assert spec.kind.value == kind
            assert "fields" not in field
        else:
            self._compare(spec.kind, field["fields"], last)
        present = _range(field["versions"], last)
        assert present == range(spec.since, last + 1)
        assert _range(field.get("nullableVersions", ""), last) == (
            present if spec.nullable else range(0)
        )
        assert _range(field.get("taggedVersions", ""), last) == (
            range(0) if spec.tag is None else present
        )
        assert spec.tag == field.get("tag")
        assert spec.default == _default(spec, field.get("default"))
        assert type(spec.default) is type(_default(spec, field.get("default")))


def _default(spec: FieldSpec, text: str | None) -> Any:
    """The value of a schema's default, or the one that Kafka implies for the type."""
    if text == "null":
        return None
    if spec.is_array:
        assert text is None
        return ()
    if spec.kind is Kind.BOOL:
        return text == "true"
    if spec.kind is Kind.FLOAT64:
        return float(text or 0)
    if spec.kind in (Kind.STRING, Kind.BYTES, Kind.UUID):
        assert text is None
        return {Kind.STRING: "", Kind.BYTES: b"", Kind.UUID: ZERO_UUID}[spec.kind]
    return int(text or 0)


def _golden_files(golden: Path) -> Iterator[tuple[Path, Path]]:
    """Each log and checkpoint of the golden directories with Kafka's dump of it."""
    for dump in sorted(golden.glob("*/dump/*/*.txt")):
        node = dump.parents[2] / dump.parent.name
        found = [
            path
            for path in (node / dump.stem, node / "__cluster_metadata-0" / dump.stem)
            if path.exists()
        ]
        assert len(found) == 1, dump
        yield found[0], dump


def _values(data: bytes) -> dict[int, bytes]:
    """The values of a log's data records by offset."""
    return {
        record.offset: record.value
        for header, batch in iter_batches(data)
        if not header.is_control
        for record in iter_records(batch, header)
        if record.value is not None
    }


def _dumped(text: str) -> dict[int, str]:
    """The payload lines of a dump by offset."""
    return {
        int(match[1]): match[3] for line in text.splitlines() if (match := RECORD_LINE.match(line))
    }


def test_every_record_that_kafka_wrote(golden: Path) -> None:
    """Our JSON is the dump's, as a value and as text, and encoding gives Kafka's bytes again."""
    seen: set[tuple[int, int]] = set()
    count = 0
    for path, dump in _golden_files(golden):
        values = _values(path.read_bytes())
        payloads = _dumped(dump.read_text())
        assert set(values) == set(payloads), path
        for offset, value in values.items():
            ours = decode_json(value)
            assert ours == json.loads(payloads[offset]), f"{path} at {offset}"
            assert json_text(ours) == payloads[offset]
            record = decode(value)
            assert isinstance(record, MetadataRecord)
            assert peek(value) == (record.API_KEY, record.version)
            assert API_KEYS[ours["type"]] == record.API_KEY
            assert encode(record, record.version) == value
            seen.add((record.API_KEY, ours["version"]))
            count += 1
    assert count > 2000
    assert len(seen) >= 22


def _examples(cls: type[MetadataRecord], version: int, count: int) -> list[MetadataRecord]:
    """The same records of that class and version, run after run."""
    found: list[MetadataRecord] = []

    @seed(cls.API_KEY)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(structures(cls, version))
    def collect(record: MetadataRecord) -> None:
        found.append(record)

    collect()
    return found


def _printable(record: MetadataRecord) -> bool:
    """Whether Java 17 prints it as the specification says: its floating-point numbers may have a
    digit too many, and a dump has one line for each record.
    """
    return not isinstance(record, ClientQuotaRecord) or (
        abs(record.value) < 1 << 50 and record.value * 8 == int(record.value * 8)
    )


def test_kafka_reads_what_we_write(kafka_tool: Callable[..., str], tmp_path: Path) -> None:
    """Every declared class and version in one log, dumped by Kafka's tool."""
    chosen = [
        (record, version)
        for cls, version in VERSIONS
        for record in _examples(cls, version, 12)
        if _printable(record)
    ]
    texts = ["é漢😀", "\x00\x01\x1f\x7f\t\n\r\b\f", "\"'\\/<>&", "\u0085\u00a0\u2028\ufeff"]
    chosen += [(ConfigRecord(name=text, value=text), 0) for text in texts]
    numbers = [1e7, 9999999.0, 12345678.5, 1e21, -2.5e-7, 0.001, 0.00099, -0.0, 1.5e300]
    numbers += [float("nan"), float("inf"), float("-inf")]
    chosen += [(ClientQuotaRecord(key="k", value=number), 0) for number in numbers]
    chosen.append((NoOpRecord(unknown_tags=((9, b"later"),)), 0))
    values = [encode(record, version) for record, version in chosen]
    batch = build_data_batch([(None, value) for value in values], 1_700_000_000_000)
    stamp(batch, 0, 1)
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(batch)
    printed = kafka_tool(
        "-Dfile.encoding=UTF-8",
        "-Dsun.stdout.encoding=UTF-8",
        "-Dstdout.encoding=UTF-8",
        "org.apache.kafka.tools.DumpLogSegments",
        "--cluster-metadata-decoder",
        "--files",
        log,
    )
    # Line by line as Kafka ends lines; the records hold other characters that Python splits at.
    payloads = {
        int(match[1]): match[3]
        for line in printed.split("\n")
        if (match := RECORD_LINE.match(line))
    }
    assert len(payloads) == len(values)
    for offset, (record, version) in enumerate(chosen):
        assert payloads[offset] == json_text(to_json(record, version)), (record, version)
