"""Over Spark Connect, whose sessions have neither a JVM nor a SparkContext."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import golden  # noqa: F401 (a fixture)

pytest.importorskip("zstandard")
pytest.importorskip("grpc_status")

PROGRAM = """
import sys
from pathlib import Path
from quorate.spark import jobs
from quorate.spark.errors import PipelineError
from quorate.spark.session import build_session
from quorate.spark.sinks import ParquetSink

golden, out = Path(sys.argv[1]), sys.argv[2]
spark = build_session()
print("class", type(spark).__module__)
source = jobs.Source((golden / "full-history/controller-1",))
topics = jobs.state_rows(spark, source, kind="topics", offset=None, time=None)
print("topics", *(row["name"] for row in topics))
violations, replicas = jobs.audit_rows(spark, jobs.Source((golden / "full-history",)), None)
print("audit", len(replicas), len(violations))
sink = ParquetSink(spark, out)
counts = jobs.run(source, sink, lambda _: None)
print("run", counts["ledger"], counts["state_topics"], spark.read.parquet(out + "/batches").count())
try:
    jobs.update(source, sink, lambda _: None)
except PipelineError as error:
    print("update", error.reason)
"""


@pytest.mark.timeout(900)
def test_tables_state_and_audit(golden: Path, tmp_path: Path) -> None:  # noqa: F811
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, golden, tmp_path / "tables"],
        env={**os.environ, "SPARK_REMOTE": "local[2]"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.splitlines() == [
        "class pyspark.sql.connect.session",
        "topics audit-log orders payments",
        "audit 4 0",
        "run 210 3 110",
        "update tables cannot be continued over Spark Connect: write new ones",
    ]
