"""Whole tables of rows that Python decodes: written as Parquet where they are decoded.

Rows that only go from the log into a file need not become Spark's: that costs its JVM several times
what the file does. Spark cuts the log, plans the tasks and repeats those that fail; each task
decodes a part of the log, as the data source does, and writes it with Arrow.

1. A hidden directory beside the table is made, and what a killed run left there is removed.
2. Each task writes a file under a name of its own: one that fails, or runs twice, is in nobody's
   way. It answers with the file's name and number of rows.
3. The answers decide what the table consists of: other files go. Then the directory takes the
   place of the table. Until then readers find the old one, and a run that fails leaves it.

Files have the types and the compression that Spark's own would have (spark.sql.parquet.
compression.codec). For paths on a file system that all workers see as Spark's own Parquet writer
needs it too; other file systems, and Delta, are for `sinks.save`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition

from quorate.spark.columns import TIME, layer_schema
from quorate.spark.errors import PipelineError
from quorate.spark.options import Options
from quorate.spark.sinks import Files, begin
from quorate.spark.sinks import replace as take_place
from quorate.spark.source import QuorateReader, read_part

PIECE_BYTES = 8 << 20
"""Of the log: a task reads many, so that no task has much more to do than another."""
FILE_BYTES = 256 << 20
"""What of the log becomes a file, at most."""
GROUP_BYTES = 64 << 20
"""Of rows in Arrow's form: what becomes a row group, the least that a reader takes at once."""
_CODECS = {"uncompressed": "none", "lz4_raw": "lz4", "lz4raw": "lz4"}
"""Spark's names that are not Arrow's."""
_WIDE = frozenset({"data", "error", "key", "value"})
"""Columns whose values hardly repeat: neither dictionaries nor least and greatest values help."""
_RISING = frozenset({"offset", "timestamp", "base_offset", "last_offset", "position"})
"""Columns of numbers that rise with the log: their differences are small."""


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    rows: int


def write_layer(spark: SparkSession, given: Mapping[str, str], root: str, name: str) -> int:
    """Write what the data source's options ask for as `root`/`name`, in place of what was there.

    How many rows it has. PipelineError and its kin, as the data source has them; then the table is
    as it was.
    """
    options = Options.of(given)
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
            f"{directory / lost[0]} is not on this machine: the workers' disks differ"
        )
    for path in directory.iterdir():
        if path.name not in kept:
            path.unlink()
    (directory / "_SUCCESS").touch()
    take_place(files, name)
    return sum(file.rows for file in written)


def _written(
    spark: SparkSession,
    options: Options,
    parts: Iterable[InputPartition],
    directory: Path,
    codec: str,
) -> list[_File]:
    def write(mine: Iterable[InputPartition]) -> Iterable[_File]:
        found = _write(options, mine, directory, codec)
        return [found] if found.rows else []

    each = list(parts)
    if not each:
        return []
    context = spark.sparkContext
    rounds = -(-len(each) * options.piece_bytes // (context.defaultParallelism * FILE_BYTES))
    tasks = min(len(each), rounds * context.defaultParallelism)
    return context.parallelize(each, tasks).mapPartitions(write).collect()


def _write(options: Options, parts: Iterable[InputPartition], directory: Path, codec: str) -> _File:
    """One file with the rows of some parts; runs in a worker."""
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
    """As many rows together as GROUP_BYTES says."""
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
