"""Where the tables of a log go: the interface of all formats, and Parquet (others: `lake`).

A sink replaces whole tables, and writes a table with a column `offset` range by range, as the
micro-batches of a stream, with each offset exactly once. A query that is killed at any point and
restarted from its checkpoint, or from the beginning without one, neither loses nor duplicates a
record.

A range of a Parquet table is a directory `range=FIRST-END`, written under a hidden name and then
renamed. Writing the range again replaces the directory. Offsets that another range holds are
omitted. Files are accessed through Hadoop's file systems: a path may be local or have a scheme. A
table must have only one writer.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from quorate.spark.decoding import columns
from quorate.spark.errors import PipelineError, innermost_cause

_RANGE = re.compile(r"^range=(\d{20})-(\d{20})$", re.ASCII)
_HIDDEN = "_writing-"
_REPLACED = "_replaced-"


Range = tuple[int, int]


def range_name(offsets: Range) -> str:
    return f"range={offsets[0]:020d}-{offsets[1]:020d}"


def has_jvm(spark: SparkSession) -> bool:
    """Whether the session's JVM can be called, which is not so over Spark Connect."""
    return hasattr(spark, "_jvm")


class Files:
    """A directory, accessed through Hadoop's file system.

    Raises PipelineError if Spark has no file system for the URL's scheme, or over Spark Connect.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        if not has_jvm(spark):
            raise PipelineError("tables cannot be continued over Spark Connect: write new ones")
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


class Sink(ABC):
    """The tables of one log below a folder or URL, the root."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.spark = spark
        self.root = root

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def checkpoint(self, name: str) -> str:
        """Where a stream that writes a table keeps its position."""
        return self.path(f"_checkpoints/{name}")

    @property
    def takes_files(self) -> bool:
        """Whether workers may write the Parquet files of whole tables themselves (`tables`)."""
        return False

    @abstractmethod
    def replace(self, name: str, rows: DataFrame) -> int:
        """Write a whole table, replacing any existing one; return its number of rows."""

    def write(self, name: str, rows: DataFrame) -> Range | None:
        """Write the rows of one range of offsets; return the range, None if there are no rows."""
        rows = rows.persist()
        try:
            found = rows.agg(F.min("offset"), F.max("offset")).first()
            if found is None or found[0] is None:
                return None
            offsets = (int(found[0]), int(found[1]) + 1)
            self.write_range(name, rows, offsets)
            return offsets
        finally:
            rows.unpersist()

    @abstractmethod
    def write_range(self, name: str, rows: DataFrame, offsets: Range) -> None:
        """Write the rows with offsets in a range. Offsets that the table holds stay single."""

    @abstractmethod
    def read(self, name: str) -> DataFrame:
        """Read a whole table. Raises PipelineError if there is none."""

    def check(self, name: str) -> None:  # noqa: B027 (most formats accept all that they wrote)
        """Raise PipelineError if there is a table that cannot be continued by ranges."""

    def finish(self, names: Iterable[str]) -> None:  # noqa: B027 (Parquet has no versions)
        """Commit a run that has written all of these tables."""


class ParquetSink(Sink):
    """Plain directories of Parquet files."""

    @property
    def takes_files(self) -> bool:
        return has_jvm(self.spark) and self._files().are_local

    def _files(self, name: str = "") -> Files:
        return Files(self.spark, self.path(name) if name else self.root)

    def replace(self, name: str, rows: DataFrame) -> int:
        counted = Observation()
        rows = rows.observe(counted, F.count(F.lit(1)).alias("rows"))
        rows.write.mode("overwrite").parquet(self.path(name))
        return int(counted.get["rows"])

    def write_range(self, name: str, rows: DataFrame, offsets: Range) -> None:
        files = self._files(name)
        repair(files, files.names())
        others = [each for each in _ranges(files) if each != offsets]
        rows = without(rows, others, offsets)
        final = range_name(offsets)
        rows.write.mode("overwrite").parquet(files.path(hidden(final)))
        replace(files, final)

    def ranges(self, name: str) -> list[Range]:
        """The ranges of a table that was written by ranges."""
        return _ranges(self._files(name))

    def check(self, name: str) -> None:
        files = self._files(name)
        if any(each.endswith(".parquet") for each in files.names()):
            raise PipelineError(
                f"{files.root} was written as a whole, so it cannot be continued: use another path"
            )

    def read(self, name: str) -> DataFrame:
        reader = self.spark.read
        if has_jvm(self.spark) and not self._files(name).names():
            raise PipelineError(f"{self.path(name)} does not contain a table")
        if name in columns.LAYERS:
            # Else Spark reads the schema from the files, in a job of its own. Ranges that an
            # earlier release wrote lack newer columns, which are then null.
            reader = reader.schema(from_arrow_schema(columns.layer_schema(name)))
        return reader.parquet(self.path(name)).drop("range")


def _ranges(files: Files) -> list[Range]:
    found = (_RANGE.match(name) for name in files.names())
    return sorted((int(m[1]), int(m[2])) for m in found if m)


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
