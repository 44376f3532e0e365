"""Sessions: those that exist stay as they are, and the data source registers itself."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.serializers import read_int
from pyspark.sql.worker import lookup_data_sources
from quorate.cli.output import UsageError
from quorate.cli.pipeline import SparkOptions
from quorate.spark.session import SHORT_JVM, _defaults, build_session, choose_python
from quorate.spark.source.data_source import QuorateSource

from tests.processes import QUORATE

SETTINGS = ("spark.sql.session.timeZone", "spark.sql.shuffle.partitions")


def test_a_session_that_exists_keeps_its_settings(spark: Any) -> None:
    before = {name: spark.conf.get(name) for name in SETTINGS}
    spark.conf.set(SETTINGS[0], "Asia/Tokyo")
    try:
        found = build_session("local[1]", settings={SETTINGS[1]: "77"})
        assert found is spark
        assert spark.conf.get(SETTINGS[0]) == "Asia/Tokyo"
        assert spark.conf.get(SETTINGS[1]) == before[SETTINGS[1]]
    finally:
        spark.conf.set(SETTINGS[0], before[SETTINGS[0]])


def test_pyspark_python_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, given in (
        ("PYSPARK_PYTHON", "./environment/bin/python"),
        ("PYSPARK_DRIVER_PYTHON", ""),
    ):
        monkeypatch.setenv(name, given)
        if not given:
            monkeypatch.delenv(name)
    choose_python()
    assert os.environ["PYSPARK_PYTHON"] == "./environment/bin/python"
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_spark_finds_the_data_source_by_itself() -> None:
    found = io.BytesIO()
    lookup_data_sources._main(io.BytesIO(), found)
    found.seek(0)
    assert read_int(found) >= 1
    assert QuorateSource.name().encode() in found.read()


def test_the_second_compiler_is_left_out_for_jobs_of_seconds() -> None:
    name = "spark.driver.extraJavaOptions"
    assert SHORT_JVM in _defaults(is_local=True, is_short=True)[name]
    assert SHORT_JVM not in _defaults(is_local=True, is_short=False)[name]


def test_settings_of_the_command_line() -> None:
    given = SparkOptions(conf=["spark.a=1", "spark.b=x=y"], packages="g:a:1")
    packages = {"spark.jars.packages": "g:a:1"}
    assert given.settings() == {**packages, "spark.a": "1", "spark.b": "x=y"}
    for wrong in ("spark.a", "=1"):
        with pytest.raises(UsageError, match="expected NAME=VALUE"):
            SparkOptions(conf=[wrong]).settings()


def test_a_missing_package_of_spark_connect_is_named(golden: Path, tmp_path: Path) -> None:
    (tmp_path / "grpc_status.py").write_text("raise ImportError('not here')")
    paths = os.pathsep.join((str(tmp_path), *sys.path))
    done = subprocess.run(
        [sys.executable, *QUORATE, "pipeline", "state", golden / "full-history/controller-1"],
        env={**os.environ, "SPARK_REMOTE": "sc://127.0.0.1:1", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("quorate: error: Spark Connect lacks a package: ")
    assert done.stderr.endswith("pip install 'pyspark[connect]'\n")
    assert done.stderr.count("\n") == 1
