"""Delta and Iceberg through their connectors: a killed run, its retry, readers of whole runs.

The connectors lag behind Spark. $QUORATE_LAKE_PYSPARK names a directory with a PySpark that they
fit, made by `pip install --target DIRECTORY pyspark==4.1.1`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from quorate.spark.errors import PipelineError
from quorate.spark.formats import TableFormat, with_connector
from quorate.spark.state import COLUMNS

from tests.spark.conftest import ROOT, writable_copy
from tests.spark.lake_driver import NO_CONNECTOR
from tests.spark.many_clusters import cluster_id, join_cluster, make_cluster

FORMATS = ("delta", "iceberg")
PACKAGES = "spark.jars.packages"


def driver(*arguments: object) -> subprocess.CompletedProcess[str]:
    paths = [os.environ.get(name) for name in ("QUORATE_LAKE_PYSPARK", "PYTHONPATH")]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark.lake_driver", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    if ran.returncode == NO_CONNECTOR:
        pytest.skip(f"{ran.stdout.strip()} (or set QUORATE_LAKE_PYSPARK)")
    return ran


@pytest.fixture(scope="module")
def seen(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What `lake_driver.check` prints, after a driver of each format was killed in its run."""
    root = tmp_path_factory.mktemp("lake")
    log = golden / "full-history/controller-1"
    for each in FORMATS:
        ran = driver("die", each, log, root)
        assert ran.returncode == -signal.SIGKILL, ran.stderr[-5000:]
    ran = driver("check", log, root)
    assert ran.returncode == 0, ran.stderr[-5000:]
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("table_format", FORMATS)
def test_each_offset_once_and_only_whole_runs(seen: Any, table_format: str) -> None:
    found = seen[table_format]
    every = found["in the log"]
    assert every == list(range(len(every)))
    assert len(every) > 200
    # The run was killed between tables: its ledger is complete, but readers do not see it.
    assert found["left by the killed run"] == every
    assert "runs" in found["no run"]
    assert found["retried"] == found["merged"] == every
    tables = {"batches", "ledger", "state", "history", *(f"state_{kind}" for kind in COLUMNS)}
    assert set(found["versions"]) == set(found["counts"]) == tables
    assert min(found["counts"][name] for name in ("batches", "state", "history")) > 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("table_format", FORMATS)
def test_readers_of_a_run_do_not_see_the_next_one(seen: Any, table_format: str) -> None:
    found = seen[table_format]
    every = found["in the log"]
    assert found["head"] == [0, 1, 2, 3, 4]
    assert (found["run"], found["of the newest run"]) == (1, every)
    assert found["of another cluster"] == [0]
    assert (found["next run"], found["of the next run"]) == (2, [0, 1, 2, 3, 4])
    assert found["new columns"] == "colour"
    assert found["of the stale reader"] == every
    assert found["no table"] == "run 2 wrote no table 'batches', only ledger"
    assert found["followed"] == every


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_table_of_an_earlier_release_is_continued(seen: Any) -> None:
    assert seen[TableFormat.DELTA]["continued"] == list(range(40))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_delta_compares_no_json(seen: Any) -> None:
    columns = seen[TableFormat.DELTA]["statistics"]
    assert {"offset", "timestamp", "snapshot", "type"} <= set(columns)
    assert not {"data", "key", "value"} & set(columns)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_clusters_are_written_together(golden: Path, tmp_path: Path) -> None:
    """Two clusters, of which the first is also written alone, and a third with a damaged log."""
    kafkas = join_cluster(writable_copy(golden / "full-history/controller-1", tmp_path / "1"), 1)
    ours, damaged = (make_cluster(tmp_path, number, 400) for number in (2, 3))
    (segment,) = damaged.glob("*/*.log")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    ran = driver("many", tmp_path / "lake", kafkas, ours, damaged)
    assert ran.returncode == 0, ran.stderr[-5000:]
    for found in json.loads(ran.stdout.splitlines()[-1]).values():
        assert list(found["faults"]) == [cluster_id(3)]
        assert "the checksum is wrong" in found["faults"][cluster_id(3)]
        first, second = (found["clusters"][cluster_id(number)] for number in (1, 2))
        assert (first["run"], second["run"]) == (3, 2)
        for each in (first, second):
            assert each["ledger"] == list(range(len(each["ledger"])))
            assert min(each["rows"][name] for name in ("batches", "state", "history")) > 0
        for name, count in found["counts"].items():
            assert count == first["rows"][name] + second["rows"][name]
        assert found["of several"] == "expected one cluster, not 2"


def test_the_connector_fits_spark() -> None:
    delta = with_connector(TableFormat.DELTA, {}, "4.1.2")
    assert delta[PACKAGES] == "io.delta:delta-spark_4.1_2.13:4.4.0"
    both = with_connector(TableFormat.ICEBERG, delta, "4.0.1")
    iceberg = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0"
    assert both[PACKAGES] == f"{delta[PACKAGES]},{iceberg}"
    assert both["spark.sql.extensions"] == delta["spark.sql.extensions"]
    assert with_connector(TableFormat.PARQUET, {"spark.a": "1"}, "4.9.0") == {"spark.a": "1"}


def test_no_connector_fits_spark() -> None:
    with pytest.raises(PipelineError) as raised:
        with_connector(TableFormat.ICEBERG, {}, "4.9.0")
    assert "Iceberg 1.11 has no connector for Spark 4.9, only for 4.0, 4.1" in raised.value.reason
    newer = {PACKAGES: "org.apache.iceberg:iceberg-spark-runtime-4.9_2.13:1.20.0"}
    assert with_connector(TableFormat.ICEBERG, newer, "4.9.0") == newer


def test_a_given_connector_replaces_ours() -> None:
    for package in ("io.delta:delta-spark_2.13:4.0.0", "io.delta:delta-spark_4.9_2.13:5.0.0"):
        given = {PACKAGES: f"org.apache.hadoop:hadoop-aws:3.4.2,{package}"}
        assert with_connector(TableFormat.DELTA, given, "4.1.0")[PACKAGES] == given[PACKAGES]
    given = {PACKAGES: "org.apache.iceberg:iceberg-aws-bundle:1.11.0"}
    packages = with_connector(TableFormat.ICEBERG, given, "4.1.0")[PACKAGES].split(",")
    assert packages[0] == given[PACKAGES]
    assert len(packages) == 2
