"""Writes whole Parquet tables in the Python workers that decode the rows.

Rows that only move from the log to a file need not pass through Spark's JVM, which would cost
several times as much as writing the file. The data source's reader cuts the log into parts. Spark
schedules the tasks and retries those that fail. Each task decodes its parts, as the data source
does, and writes them with Arrow.

1. The driver removes what a killed run left, and creates a hidden directory next to each table.
2. Each task writes a file per layer with a unique name, so that attempts that fail or run twice do
   not conflict. It returns the file's name and row count.
3. The table consists of the returned files; all other files are deleted. Then the directory
   replaces the table. Until then, readers see the old table, and a run that fails leaves it intact.

Files have the types and the compression that Spark would give them
(spark.sql.parquet.compression.codec). The path must be on a file system that all workers share, as
for Spark's own Parquet writer. For other file systems, and for Delta, use `sinks.save`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition

from quorate.spark.decoding.columns import TIME, layer_schema
from quorate.spark.errors import PipelineError
from quorate.spark.options import SourceOptions
from quorate.spark.sinks import Files, begin
from quorate.spark.sinks import replace as take_place
from quorate.spark.source.data_source import QuorateReader, is_of_snapshot, read_layers

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
    layer: str
    name: str
    rows: int


def write_layers(
    spark: SparkSession, given: Mapping[str, str], root: str, layers: Mapping[str, bool]
) -> dict[str, int]:
    """Read what the data source's options select, and replace a table `root`/layer for each layer.

    The log is read once. layers: whether each has the rows of the selected snapshots. Returns row
    counts. Raises the PipelineErrors of the data source, and PipelineError if the workers do not
    share the file system. The old tables are then unchanged.
    """
    options = SourceOptions.of(given)
    options = replace(options, piece_bytes=min(options.piece_bytes, PIECE_BYTES))
    parts = QuorateReader(options).partitions()
    files = Files(spark, root)
    directories = {layer: files.local(begin(files, layer)) for layer in layers}
    for directory in directories.values():
        directory.mkdir(parents=True)
    codec = (spark.conf.get("spark.sql.parquet.compression.codec") or "snappy").lower()
    output = _Output(options, directories, dict(layers), _CODECS.get(codec, codec))
    written = _written(spark, parts, output)
    for layer, directory in directories.items():
        found = [file for file in written if file.layer == layer]
        _complete(directory, found or output.write([], [layer]))
    for layer in layers:
        take_place(files, layer)
    return {layer: sum(file.rows for file in written if file.layer == layer) for layer in layers}


def _complete(directory: Path, written: Sequence[_File]) -> None:
    """Delete all other files of a table."""
    kept = {file.name for file in written}
    if lost := [each for each in sorted(kept) if not (directory / each).exists()]:
        raise PipelineError(
            f"{directory / lost[0]} is not on this machine: the workers do not share this disk"
        )
    for path in directory.iterdir():
        if path.name not in kept:
            path.unlink()
    (directory / "_SUCCESS").touch()


def _written(spark: SparkSession, parts: Sequence[InputPartition], output: _Output) -> list[_File]:
    def write(mine: Iterable[InputPartition]) -> Iterable[_File]:
        return [file for file in output.write(mine, list(output.directories)) if file.rows]

    if not parts:
        return []
    context = spark.sparkContext
    size = output.options.piece_bytes
    rounds = -(-len(parts) * size // (context.defaultParallelism * FILE_BYTES))
    tasks = min(len(parts), rounds * context.defaultParallelism)
    return context.parallelize(parts, tasks).mapPartitions(write).collect()


@dataclass(frozen=True, slots=True)
class _Output:
    """Where and how the layers are written. has_snapshots: see `write_layers`."""

    options: SourceOptions
    directories: dict[str, Path]
    has_snapshots: dict[str, bool]
    codec: str

    def write(self, parts: Iterable[InputPartition], layers: Sequence[str]) -> list[_File]:
        """Write one file per layer with the rows of some parts.

        Runs in a worker, unless a table is empty.
        """
        with ExitStack() as stack:
            tables = {
                layer: stack.enter_context(_Table(self.directories[layer], layer, self.codec))
                for layer in layers
            }
            for part in parts:
                wanted = [
                    layer
                    for layer in layers
                    if self.has_snapshots[layer] or not is_of_snapshot(part)
                ]
                for found in read_layers(self.options, part, wanted) if wanted else ():
                    for layer, batch in zip(wanted, found, strict=True):
                        tables[layer].add(batch)
        return [table.file for table in tables.values()]


class _Table:
    """A file of a table. Rows are written in groups of about GROUP_BYTES."""

    def __init__(self, directory: Path, layer: str, codec: str) -> None:
        self.file = _File(layer, f"part-{uuid.uuid4()}.parquet", 0)
        schema = layer_schema(layer)
        narrow = [field for field in schema if field.name not in _WIDE]
        self._held: list[pa.RecordBatch] = []
        self._size = 0
        self._writer = pq.ParquetWriter(
            directory / self.file.name,
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
        )

    def __enter__(self) -> _Table:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is None:
            self._flush()
        self._writer.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        if batch.num_rows:
            self._held.append(batch)
            self._size += batch.nbytes
        if self._size >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            group = pa.Table.from_batches(self._held)
            self._writer.write_table(group)
            self.file = replace(self.file, rows=self.file.rows + group.num_rows)
            self._held, self._size = [], 0
