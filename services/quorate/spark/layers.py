"""The first two layers as functions, and helpers that the layers above them share.

`batches` and `ledger` turn the source's layer `raw` (bytes) into rows. The source uses the same
code to serve these layers directly, which saves one round trip between Spark and Python. `typed`
extracts the records of one type as typed columns from any ledger: read, stored or streamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import RecordBatch
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (the conventional alias)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from quorate.records.metadata import API_KEYS, RECORD_TYPES
from quorate.records.metadata.schema import FieldSpec, MetadataRecord
from quorate.spark.decoding import framing
from quorate.spark.decoding.columns import (
    BATCHES,
    LEDGER,
    ChunkOrigin,
    column_name,
    layer_schema,
    rows,
)
from quorate.spark.decoding.fields import arrow_type
from quorate.spark.errors import OptionError
from quorate.spark.options import OFFSET_MAX

HEAD = ("replica", "snapshot", "offset", "epoch", "timestamp", "version")
COMMITTED = "committed"
_SNAPSHOT_SHIFT = 1 << 48


def batches(raw: DataFrame) -> DataFrame:
    """One row per batch, from the source's layer `raw`."""
    return _decoded(raw, BATCHES)


def ledger(raw: DataFrame) -> DataFrame:
    """One row per record, from the source's layer `raw`."""
    return _decoded(raw, LEDGER)


def _decoded(raw: DataFrame, layer: str) -> DataFrame:
    def decode(found: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in found:
            for row in batch.to_pylist():
                chunk = framing.whole(row["data"])
                chunk.file_position = row["position"]
                # Tables of earlier releases lack the column.
                committed_end = row.get("committed_end") or 0
                origin = ChunkOrigin(row["replica"], row["file"], row["snapshot"], committed_end)
                yield rows(layer, chunk, origin, 0, OFFSET_MAX)

    return raw.mapInArrow(decode, from_arrow_schema(layer_schema(layer)))


def typed(found: DataFrame, type_name: str) -> DataFrame:
    """The records of one type in a ledger, with their fields as typed columns under Kafka's names.

    Raises OptionError for an unknown type.
    """
    api_key = API_KEYS.get(type_name)
    if api_key is None:
        raise OptionError(f"unknown record type {type_name!r}")
    cls = RECORD_TYPES[api_key]
    wanted = field_types(cls)
    if COMMITTED not in found.columns:  # a table of an earlier release
        found = found.withColumn(COMMITTED, F.lit(None).cast("boolean"))
    mine = found.where((F.col("type") == type_name) & F.col("data").isNotNull())
    if not len(wanted):
        return mine.select(*HEAD, COMMITTED)
    parsed = mine.select(*HEAD, COMMITTED, F.from_json("data", wanted).alias("_"))
    fields = [_with_default(cls, spec) for spec in cls.FIELDS]
    return parsed.select(*HEAD, *fields, COMMITTED)


def field_types(cls: type[MetadataRecord]) -> StructType:
    """A record type's own fields, under Kafka's names."""
    fields = [pa.field(spec.json_name, arrow_type(spec)) for spec in cls.FIELDS]
    return from_arrow_schema(pa.schema(fields))


def _with_default(cls: type[MetadataRecord], spec: FieldSpec) -> Column:
    """A field's column, with its default in place of missing values.

    Kafka's JSON omits fields that the version lacks, and tagged fields that have their default.
    """
    column = F.col(f"_.{spec.json_name}")
    if spec.default is None or (spec.tag is None and spec.nullable):
        return column.alias(column_name(spec))
    kind = field_types(cls)[spec.json_name].dataType
    default: Any = F.array() if spec.default == () else F.lit(spec.default)
    return F.coalesce(column, default.cast(kind)).alias(column_name(spec))


def batch_of(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> RecordBatch:
    """Rows with a value for each column of a schema, as one RecordBatch."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, schema.types, strict=True)]
    return RecordBatch.from_arrays(arrays, schema=schema)


def with_order(found: DataFrame) -> DataFrame:
    """Add a column `seq` that sorts a snapshot's rows before the log's."""
    before = F.col("offset") - F.lit(_SNAPSHOT_SHIFT)
    return found.withColumn(
        "seq", F.when(F.col("snapshot").isNotNull(), before).otherwise(F.col("offset"))
    )
