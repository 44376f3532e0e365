"""Filters limit what is read, and never leave out a row that fulfils them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from quorate.spark.options import SourceOptions
from quorate.spark.source.data_source import FilteringReader, QuorateReader, QuorateSource

END = 206
OFFSETS = (0, 1, 57, END - 1)
TESTS: dict[type[Filter], Any] = {
    EqualTo: lambda value, limit: value == limit,
    GreaterThan: lambda value, limit: value > limit,
    GreaterThanOrEqual: lambda value, limit: value >= limit,
    LessThan: lambda value, limit: value < limit,
    LessThanOrEqual: lambda value, limit: value <= limit,
}


@pytest.fixture
def options(golden: Path) -> dict[str, str]:
    return {"path": str(golden / "full-history/controller-1"), "pushFilters": "true"}


def rows(given: dict[str, str], *filters: Filter) -> list[dict[str, Any]]:
    reader = FilteringReader(SourceOptions.of(given))
    assert list(reader.pushFilters(list(filters))) == list(filters)
    batches = (batch for part in reader.partitions() for batch in reader.read(part))
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("column", ["offset", "base_offset", "last_offset"])
def test_a_filter_leaves_out_only_rows_that_do_not_fulfil_it(
    options: dict[str, str], column: str
) -> None:
    given = {**options, "layer": "ledger" if column == "offset" else "batches"}
    whole = rows(given)
    for kind, test in TESTS.items():
        for limit in OFFSETS:
            found = rows(given, kind((column,), limit))  # type: ignore[call-arg]
            right = [row for row in whole if test(row[column], limit)]
            assert [row for row in found if test(row[column], limit)] == right
            assert len(found) <= len(right) + 1


def test_filters_are_joined_and_others_are_ignored(options: dict[str, str]) -> None:
    found = rows(
        options,
        GreaterThanOrEqual(("offset",), 50),
        LessThan(("offset",), 60),
        StringStartsWith(("type",), "NO_OP"),
        Not(EqualTo(("offset",), 55)),
        EqualTo(("offset", "inner"), 3),
        EqualTo(("epoch",), 3),
    )
    assert [row["offset"] for row in found] == list(range(50, 60))


def test_offsets_of_snapshots_are_their_own(golden: Path) -> None:
    given = {"path": str(golden / "compacted/controller-1"), "snapshots": "newest"}
    late = GreaterThanOrEqual(("offset",), 400)
    found = rows(given, late)
    assert min(row["offset"] for row in found if row["snapshot"] is not None) == 0
    assert min(row["offset"] for row in found if row["snapshot"] is None) == 400
    assert {row["snapshot"] for row in rows(given, late, IsNull(("snapshot",)))} == {None}


def test_only_the_option_makes_a_reader_that_spark_may_reject(options: dict[str, str]) -> None:
    """Spark fails reads with such a reader if its own setting is false, as it is by default."""
    schema: Any = None
    assert type(QuorateSource(options).reader(schema)) is FilteringReader
    del options["pushFilters"]
    assert type(QuorateSource(options).reader(schema)) is QuorateReader
