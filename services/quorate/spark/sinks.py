"""Writes tables, as Parquet or (with the extra `delta`) as Delta, with each offset exactly once.

A micro-batch of a stream is a range of offsets. It is written as a whole, under its range:

- Parquet: a directory `range=FIRST-END`, written under a hidden name and then renamed. Writing the
  range again replaces the directory. Offsets that another range holds are omitted.
- Delta: one transaction that replaces the range's offsets.

So a query that is killed at any point and restarted from its checkpoint, or from the beginning
without one, neither loses nor duplicates a record. Files are accessed through Hadoop's file
systems: a path may be local or have a scheme. A table must have only one writer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from quorate.spark.errors import PipelineError, innermost_cause

_RANGE = re.compile(r"^range=(\d{20})-(\d{20})$", re.ASCII)
_HIDDEN = "_writing-"
_REPLACED = "_replaced-"


class Sink(StrEnum):
    """The formats of tables."""

    PARQUET = "parquet"
    DELTA = "delta"


Range = tuple[int, int]


def range_name(offsets: Range) -> str:
    return f"range={offsets[0]:020d}-{offsets[1]:020d}"


class Files:
    """A directory, accessed through Hadoop's file system.

    Raises PipelineError if Spark has no file system for the URL's scheme.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark._jvm
        java: Any = spark._jsc
        self._path = jvm.org.apache.hadoop.fs.Path
        self.root = root
        try:
            self._fs = self._path(root).getFileSystem(java.hadoopConfiguration())
        except Exception as error:
            raise PipelineError(
                f"Spark cannot access {root}: {innermost_cause(error)}. Most file systems need a "
                "Hadoop module on Spark's class path, such as hadoop-aws for s3a"
            ) from None

    def _at(self, name: str) -> Any:
        return self._path(self.root, name)

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def names(self) -> list[str]:
        root = self._path(self.root)
        if not self._fs.exists(root):
            return []
        return [status.getPath().getName() for status in self._fs.listStatus(root)]

    def exists(self, name: str) -> bool:
        return bool(self._fs.exists(self._at(name)))

    def delete(self, name: str) -> None:
        self._fs.delete(self._at(name), True)

    def rename(self, name: str, to: str) -> None:
        if not self._fs.rename(self._at(name), self._at(to)):
            raise PipelineError(f"cannot rename {self.path(name)} to {to}")

    @property
    def are_local(self) -> bool:
        """Whether the files are on a local file system, so that Python can open them."""
        return bool(self._fs.getScheme() == "file")

    def local(self, name: str) -> Path:
        """The local path of an entry."""
        return Path(self._fs.makeQualified(self._at(name)).toUri().getPath())


def hidden(name: str) -> str:
    """The name under which the replacement of `name` is written."""
    return _HIDDEN + name


def replace(files: Files, name: str) -> None:
    """Replace `name` by what was written under its hidden name."""
    if files.exists(name):
        files.rename(name, _REPLACED + name)
    files.rename(hidden(name), name)
    files.delete(_REPLACED + name)


def repair(files: Files, names: Iterable[str]) -> None:
    """Clean up after a killed writer: delete partial writes, restore what was being replaced."""
    for name in names:
        if name.startswith(_HIDDEN):
            files.delete(name)
        elif name.startswith(_REPLACED):
            whole = name.removeprefix(_REPLACED)
            if files.exists(whole):
                files.delete(name)
            else:
                files.rename(name, whole)


def begin(files: Files, name: str) -> str:
    """Clean up after a killed writer of `name`; return the name to write its replacement under."""
    repair(files, [each for each in files.names() if each in (hidden(name), _REPLACED + name)])
    return hidden(name)


@dataclass(frozen=True, slots=True)
class OffsetTable:
    """A table with a column `offset`, written range by range."""

    spark: SparkSession
    path: str
    sink: Sink = Sink.PARQUET

    def write(self, rows: DataFrame) -> Range | None:
        """Write the rows of one range of offsets; return the range, None if there are no rows."""
        rows = rows.persist()
        try:
            found = rows.agg(F.min("offset"), F.max("offset")).first()
            if found is None or found[0] is None:
                return None
            offsets = (int(found[0]), int(found[1]) + 1)
            if self.sink is Sink.DELTA:
                self._write_delta(rows, offsets)
            else:
                self._write_parquet(rows, offsets)
            return offsets
        finally:
            rows.unpersist()

    def _write_delta(self, rows: DataFrame, offsets: Range) -> None:
        inside = f"offset >= {offsets[0]} AND offset < {offsets[1]}"
        # A table of an earlier release lacks newer columns.
        writer = rows.write.format("delta").mode("overwrite").option("mergeSchema", "true")
        if Files(self.spark, self.path).exists("_delta_log"):
            writer = writer.option("replaceWhere", inside)
        writer.save(self.path)

    def _write_parquet(self, rows: DataFrame, offsets: Range) -> None:
        files = Files(self.spark, self.path)
        repair(files, files.names())
        others = [each for each in self._ranges(files) if each != offsets]
        rows = without(rows, others, offsets)
        name = range_name(offsets)
        rows.write.mode("overwrite").parquet(files.path(hidden(name)))
        replace(files, name)

    def _ranges(self, files: Files) -> list[Range]:
        found = (_RANGE.match(name) for name in files.names())
        return sorted((int(m[1]), int(m[2])) for m in found if m)

    def ranges(self) -> list[Range]:
        """The ranges that a Parquet table holds."""
        return self._ranges(Files(self.spark, self.path))

    def check(self) -> None:
        """Raise PipelineError if there is a Parquet table that was not written by ranges."""
        names = [] if self.sink is Sink.DELTA else Files(self.spark, self.path).names()
        if any(name.endswith(".parquet") for name in names):
            raise PipelineError(
                f"{self.path} was written as a whole, so it cannot be continued: use another path"
            )

    def read(self) -> DataFrame:
        """Read the whole table. Raises PipelineError if there is no Parquet table."""
        files = Files(self.spark, self.path)
        if self.sink is Sink.DELTA:
            return self.spark.read.format("delta").load(self.path)
        if not self._ranges(files):
            raise PipelineError(f"{self.path} does not contain a table")
        # Ranges that an earlier release wrote lack newer columns.
        whole = self.spark.read.option("mergeSchema", "true").parquet(self.path)
        return whole.drop("range")


def without(rows: DataFrame, held: Sequence[Range], offsets: Range) -> DataFrame:
    """The rows whose offsets no range in `held` contains."""
    for begin, end in _merged(held):
        if begin < offsets[1] and end > offsets[0]:
            rows = rows.where((F.col("offset") < begin) | (F.col("offset") >= end))
    return rows


def _merged(ranges: Sequence[Range]) -> list[Range]:
    merged: list[Range] = []
    for begin, end in sorted(ranges):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def save(rows: DataFrame, path: str, sink: Sink = Sink.PARQUET) -> None:
    """Write a whole table, replacing any existing one."""
    rows.write.format(sink.value).mode("overwrite").save(path)
