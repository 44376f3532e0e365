"""`quorate pipeline` as people meet it: what goes wrong is one line, before a JVM is started."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from quorate.cli.main import main
from quorate.spark.errors import explain
from quorate.spark.java import check_java
from quorate.spark.session import _chosen_master

from tests.spark.conftest import ROOT, missing


def here(*arguments: object) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([str(argument) for argument in arguments])
    return status, out.getvalue(), err.getvalue()


def assert_line(ran: tuple[int, str, str], *said: str, status: int = 1) -> None:
    assert (ran[0], ran[1]) == (status, ""), ran
    assert re.fullmatch(r"quorate: error: [^\n]+\n", ran[2]), ran
    assert "bug" not in ran[2]
    for text in said:
        assert text in ran[2], ran


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a `java` of some version on the path, or none."""

    def use(version: str | None) -> None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        if version is not None:
            path = tmp_path / "java"
            path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
            path.chmod(0o755)

    return use


def test_without_java(java: Any, tmp_path: Path) -> None:
    java(None)
    assert_line(here("pipeline", "audit", tmp_path), "Java is not installed", "Java 17")


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.21"])
def test_with_an_old_java(java: Any, tmp_path: Path, version: str) -> None:
    java(version)
    number = "8" if version.startswith("1.") else "11"
    assert_line(here("pipeline", "run", tmp_path), f"is Java {number}", "Java 17 or later")


def test_java_that_does_not_start(java: Any, tmp_path: Path) -> None:
    java("17.0.1")
    (tmp_path / "java").write_text("#!/bin/sh\nexit 1\n")
    assert_line(here("pipeline", "run", tmp_path), "cannot be run as Java")


@pytest.fixture
def _java_is_here() -> None:
    try:
        check_java()
    except Exception as error:
        missing(str(error))


@pytest.mark.usefixtures("_java_is_here")
def test_what_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no log")
    assert_line(here("pipeline", "run", tmp_path), f"{tmp_path} is not a metadata log")
    assert_line(here("pipeline", "history", tmp_path / "notes.txt"), "not a file of a metadata log")
    assert_line(here("pipeline", "state", tmp_path / "nowhere"), "does not exist")


@pytest.mark.usefixtures("_java_is_here")
def test_an_unreachable_quorum() -> None:
    ran = here("pipeline", "state", "--bootstrap-controller", "127.0.0.1:1")
    assert_line(ran, "no leader within", "127.0.0.1:1", "refused")


@pytest.mark.usefixtures("_java_is_here")
def test_wrong_command_lines(tmp_path: Path) -> None:
    assert_line(here("pipeline", "run"), "expected either directories or", status=2)
    assert_line(
        here("pipeline", "run", tmp_path, "--sink", "csv"),
        "--sink 'csv': accepted: parquet, delta, iceberg",
        status=2,
    )
    assert_line(
        here("pipeline", "state", tmp_path, "--kind", "cats"), "--kind 'cats': accepted: ", status=2
    )
    assert_line(
        here("pipeline", "state", tmp_path, "--offset", 1, "--time", "2026-01-01"),
        "cannot be used together",
        status=2,
    )
    ran = here("pipeline", "run", "--bootstrap-controller", "a:1", "--high-watermark", 4)
    assert_line(ran, "--high-watermark applies to directories only", status=2)
    ran = here("pipeline", "state", "--bootstrap-controller", "no-port")
    assert_line(ran, "is not host:port")


@pytest.mark.timeout(600)
def test_errors_within_spark_are_one_line(spark: Any, golden: Path, tmp_path: Path) -> None:
    path = golden / "compacted/controller-2"
    for options, said in (
        ({"startOffset": "3"}, "offset 3 was compacted away: the log begins at 320"),
        ({"layer": "nonsense"}, "unknown layer 'nonsense'"),
        ({"startoffset": "x"}, "startOffset 'x': expected earliest, latest or an offset"),
        ({"colour": "red"}, "unknown option colour"),
    ):
        with pytest.raises(Exception) as raised:  # noqa: PT011 (Spark wraps what it is told)
            spark.read.format("quorate").options(**options).load(str(path)).count()
        assert said in (explain(raised.value) or str(raised.value))
    rows = spark.read.format("quorate").option("startOffset", "3").option("failOnDataLoss", "false")
    assert rows.load(str(path)).agg({"offset": "min"}).first()[0] == 320
    damaged = tmp_path / f"{0:020}.log"
    data = bytearray(
        (golden / "full-history/controller-1/__cluster_metadata-0" / damaged.name).read_bytes()
    )
    data[300] ^= 1
    damaged.write_bytes(data)
    with pytest.raises(Exception) as raised:  # noqa: PT011
        spark.read.format("quorate").load(str(damaged)).count()
    assert "byte 174, offset 3: the checksum is wrong" in (explain(raised.value) or "")


@pytest.mark.parametrize(
    ("submit_args", "variable", "chosen"),
    [
        (None, None, "local[*]"),
        (None, "spark://s:7077", "spark://s:7077"),
        ("--master yarn pyspark-shell", None, "yarn"),
        ("--master=yarn --name x pyspark-shell", "spark://s:7077", "yarn"),
        ("--name x --conf spark.master=k8s://h -c a=b pyspark-shell", None, "k8s://h"),
        ("--conf spark.ui.enabled=false pyspark-shell", None, "local[*]"),
        ("--master local[*] pyspark-shell", "spark://s:7077", "spark://s:7077"),
        ("--master 'yarn", None, "local[*]"),
    ],
)
def test_the_master_of_a_session(
    monkeypatch: pytest.MonkeyPatch, submit_args: str | None, variable: str | None, chosen: str
) -> None:
    for name, value in (
        ("PYSPARK_GATEWAY_PORT", None),
        ("PYSPARK_SUBMIT_ARGS", submit_args),
        ("SPARK_MASTER", variable),
    ):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert _chosen_master(None) == chosen
    assert _chosen_master("local[2]") == "local[2]"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("_java_is_here")
def test_the_master_of_spark_submit_is_that_of_the_session(tmp_path: Path) -> None:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        missing("pyspark is not installed")
        return
    app = tmp_path / "app.py"
    app.write_text(
        "from quorate.spark.session import build_session\n"
        "print('master is', build_session().sparkContext.master)\n"
    )
    ran = subprocess.run(
        [Path(spec.origin).parent / "bin/spark-submit", "--master", "local[3]", app],
        env={**os.environ, "PYTHONPATH": str(ROOT / "services")},
        capture_output=True,
        text=True,
    )
    assert "master is local[3]" in ran.stdout.splitlines(), ran
