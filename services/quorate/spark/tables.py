"""Writes whole Parquet tables in the Python workers that decode the rows.

Rows that only move from the log to a file need not pass through Spark's JVM, which would cost
several times as much as writing the file. The data source's reader cuts the log into parts. Spark
schedules the tasks and retries those that fail. Each task decodes its parts, as the data source
does, and writes them with Arrow.

1. The driver removes what a killed run left, and creates a hidden directory next to the table.
2. Each task writes a file with a unique name, so that attempts that fail or run twice do not
   conflict. It returns the file's name and row count.
3. The table consists of the returned files; all other files are deleted. Then the directory
   replaces the table. Until then, readers see the old table, and a run that fails leaves it intact.

Files have the types and the compression that Spark would give them
(spark.sql.parquet.compression.codec). The path must be on a file system that all workers share, as
for Spark's own Parquet writer. For other file systems, and for Delta, use `sinks.save`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition

from quorate.spark.columns import TIME, layer_schema
from quorate.spark.errors import PipelineError
from quorate.spark.options import SourceOptions
from quorate.spark.sinks import Files, begin
from quorate.spark.sinks import replace as take_place
from quorate.spark.source import QuorateReader, read_part

PIECE_BYTES = 8 << 20
"""Bytes of the log per part. A task reads many parts, so that the load of tasks is balanced."""
FILE_BYTES = 256 << 20
"""The maximum number of bytes of the log that go into one file."""
GROUP_BYTES = 64 << 20
"""Bytes of Arrow rows per row group, the smallest unit that a reader loads at once."""
_CODECS = {"uncompressed": "none", "lz4_raw": "lz4", "lz4raw": "lz4"}
"""Arrow's names of codecs that Spark names differently."""
_WIDE = frozenset({"data", "error", "key", "value"})
"""Columns whose values rarely repeat: neither dictionaries nor min/max statistics help."""
_RISING = frozenset({"offset", "timestamp", "base_offset", "last_offset", "position"})
"""Columns of numbers that increase with the log: their deltas are small."""


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    rows: int


def write_layer(spark: SparkSession, given: Mapping[str, str], root: str, name: str) -> int:
    """Write the rows that the data source's options select to `root`/`name`, replacing the table.

    Returns the row count. Raises the PipelineErrors of the data source, and PipelineError if the
    workers do not share the file system. The old table is then unchanged.
    """
    options = SourceOptions.of(given)
    options = replace(options, piece_bytes=min(options.piece_bytes, PIECE_BYTES))
    parts = QuorateReader(options).partitions()
    files = Files(spark, root)
    directory = files.local(begin(files, name))
    directory.mkdir(parents=True)
    codec = (spark.conf.get("spark.sql.parquet.compression.codec") or "snappy").lower()
    written = _written(spark, options, parts, directory, _CODECS.get(codec, codec))
    if not written:
        written = [_write(options, [], directory, _CODECS.get(codec, codec))]
    kept = {file.name for file in written}
    if lost := [each for each in sorted(kept) if not (directory / each).exists()]:
        raise PipelineError(
            f"{directory / lost[0]} is not on this machine: the workers do not share this disk"
        )
    for path in directory.iterdir():
        if path.name not in kept:
            path.unlink()
    (directory / "_SUCCESS").touch()
    take_place(files, name)
    return sum(file.rows for file in written)


def _written(
    spark: SparkSession,
    options: SourceOptions,
    parts: Sequence[InputPartition],
    directory: Path,
    codec: str,
) -> list[_File]:
    def write(mine: Iterable[InputPartition]) -> Iterable[_File]:
        found = _write(options, mine, directory, codec)
        return [found] if found.rows else []

    if not parts:
        return []
    context = spark.sparkContext
    rounds = -(-len(parts) * options.piece_bytes // (context.defaultParallelism * FILE_BYTES))
    tasks = min(len(parts), rounds * context.defaultParallelism)
    return context.parallelize(parts, tasks).mapPartitions(write).collect()


def _write(
    options: SourceOptions, parts: Iterable[InputPartition], directory: Path, codec: str
) -> _File:
    """Write one file with the rows of some parts. Runs in a worker, unless the table is empty."""
    schema = layer_schema(options.layer)
    narrow = [field for field in schema if field.name not in _WIDE]
    name = f"part-{uuid.uuid4()}.parquet"
    rows = 0
    with pq.ParquetWriter(
        directory / name,
        schema,
        compression=codec,
        use_dictionary=[field.name for field in narrow if field.type == pa.string()],
        column_encoding={
            field.name: "DELTA_BINARY_PACKED"
            for field in schema
            if field.name in _RISING and field.type in (pa.int64(), TIME)
        },
        write_statistics=[field.name for field in narrow if field.type != pa.string()],
        store_schema=False,
    ) as writer:
        for group in row_groups(batch for part in parts for batch in read_part(options, part)):
            writer.write_table(group)
            rows += group.num_rows
    return _File(name, rows)


def row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Combine batches into tables of about GROUP_BYTES each."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
        if size >= GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)
