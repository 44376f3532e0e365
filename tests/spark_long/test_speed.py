"""Rows a second of `batches` and `ledger` on a long log, beside Kafka's own dump tool.

    LOG_RECORDS=5000000 poe test-spark

One log, made by `tests.spark.make_log`: Kafka's DumpLogSegments with the metadata decoder, which
writes text into a file, and the ledger as `quorate pipeline run` writes it, as Parquet by the
workers that decode it (`quorate.spark.tables`), in turns and as often. Their medians are compared;
the first run of each, which is cold, is shown beside. Further, the rows through Spark's JVM, into
nothing and into its own Parquet; headers alone, and Arrow reading the same file's bytes.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pytest
from quorate.spark.files import find_replica
from quorate.spark.jobs import Source
from quorate.spark.options import SourceOptions
from quorate.spark.source.data_source import QuorateReader, read_part
from quorate.spark.tables import write_layers

from tests.spark.conftest import spark  # noqa: F401 (a fixture)
from tests.spark.make_log import make_log

RECORDS = int(os.environ.get("LOG_RECORDS", "5000000"))
JARS = Path(os.environ.get("PEERS", Path.home() / ".cache/peers")) / "kafka-4.3.0"
RUNS = 3
LEDGER_GOAL = 20.0
BATCHES_GOAL = 2.0


def timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


@pytest.mark.timeout(7200)
def test_faster_than_kafkas_dump(spark: Any, tmp_path: Path) -> None:  # noqa: F811
    if not shutil.which("java") or not (JARS / ".complete").exists():
        pytest.skip(f"Kafka's jars are not in {JARS} (shared/peers/kafka/fetch)")
    directory = tmp_path / "log"
    count = make_log(directory, RECORDS)
    segments = [segment.path for segment in find_replica(directory).segments]
    size = sum(path.stat().st_size for path in segments)

    def kafka() -> None:
        with (tmp_path / "dump.txt").open("wb") as out:
            subprocess.run(
                [
                    *("java", "-Xmx1g", "-cp", f"{JARS}/*"),
                    "org.apache.kafka.tools.DumpLogSegments",
                    *("--cluster-metadata-decoder", "--files", ",".join(map(str, segments))),
                ],
                stdout=out,
                check=True,
            )

    def layer(name: str) -> Callable[[], None]:
        def read() -> None:
            found = spark.read.format("quorate").option("layer", name).load(str(directory))
            found.write.format("noop").mode("overwrite").save()

        return read

    def spark_parquet() -> None:
        found = spark.read.format("quorate").load(str(directory))
        found.write.mode("overwrite").parquet(str(tmp_path / "spark"))

    def own_parquet() -> None:
        given = Source((directory,)).given("ledger")
        written = write_layers(spark, given, str(tmp_path / "own"), {"ledger": True})
        assert written == {"ledger": count}

    def arrow() -> None:
        for path in segments:
            with pa.OSFile(str(path)) as file:
                while file.read_buffer(4 << 20).size:
                    pass

    def decoded() -> float:
        """Processor time of one core, a record, in microseconds."""
        options = SourceOptions.of(Source((directory,)).given("ledger"))
        began, found = time.process_time(), 0
        for part in QuorateReader(options).partitions():
            found += sum(batch.num_rows for batch in read_part(options, part))
        assert found == count
        return (time.process_time() - began) / count * 1e6

    turns = [(timed(own_parquet), timed(kafka)) for _ in range(RUNS)]
    cold = turns[0]
    ours, theirs = (median(each) for each in zip(*turns, strict=True))
    rows = min(timed(layer("ledger")) for _ in range(2))
    headers = min(timed(layer("batches")) for _ in range(2))
    by_spark = min(timed(spark_parquet) for _ in range(2))
    bytes_through_spark = min(timed(layer("raw")) for _ in range(2))
    plain_arrow = timed(arrow)
    alone = min(decoded() for _ in range(2))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(
        f"\n{count:,} records, {size / 1e6:.0f} MB, load {os.getloadavg()[0]:.1f}"
        f"\nKafka's dump tool   {theirs:8.2f} s  {count / theirs:12,.0f} records/s"
        f"\nledger, as Parquet  {ours:8.2f} s  {count / ours:12,.0f} records/s"
        f"  {theirs / ours:.1f} times Kafka's"
        f"\n  both, cold          {cold[0]:8.2f} s and {cold[1]:.2f} s"
        f"\n  rows through Spark {rows:8.2f} s  {count / rows:12,.0f} records/s"
        f"  {theirs / rows:.1f} times Kafka's"
        f"\n  to Spark's Parquet {by_spark:8.2f} s  {count / by_spark:12,.0f} records/s"
        f"  {theirs / by_spark:.1f} times Kafka's"
        f"\n  decoding alone     {alone:8.2f} us of one core a record"
        f"\nbatches             {headers:8.2f} s  {size / headers / 1e6:12,.0f} MB/s"
        f"\nArrow, through Spark{bytes_through_spark:8.2f} s  "
        f"{size / bytes_through_spark / 1e6:12,.0f} MB/s"
        f"\nArrow, bare         {plain_arrow:8.2f} s  {size / plain_arrow / 1e6:12,.0f} MB/s"
        f"\nlargest process     {peak:8.0f} MB"
    )
    assert theirs / ours >= LEDGER_GOAL
    assert headers <= BATCHES_GOAL * bytes_through_spark
