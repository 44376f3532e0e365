"""The commands of docs/pipeline.md for a cluster: Spark's standalone one, Spark Connect, and S3."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark
import pytest

pytest.importorskip("grpc_status", reason="needs pyspark[connect]")

from tests.processes import HOST, QUORATE, ROOT, Process, free_ports
from tests.s3 import CLIENT, S3Server, gateway_or_skip
from tests.spark.conftest import golden  # noqa: F401 (a fixture)
from tests.spark_cluster.standalone import START_S, SparkCluster
from tests.tools.documents import block, command_lines

HOME = Path(pyspark.__file__).parent
BUCKET = "bucket"
LOCAL = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": HOST}
PROGRAM = """
import sys
from quorate.spark.session import build_session

spark = build_session()
ledger = spark.read.format("quorate").load(sys.argv[1])
print(spark.sparkContext.master, ledger.count())
spark.stop()
"""
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"

pytestmark = pytest.mark.timeout(1800)


class ConnectServer(Process):
    """A server of Spark Connect."""

    def __init__(self, folder: Path, port: int) -> None:
        settings = ("--conf", f"spark.connect.grpc.binding.port={port}", "--master", "local[2]")
        command = (*settings, "--class", CONNECT, "spark-internal")
        super().__init__("connect", folder / "connect.log", HOME / "bin" / "spark-submit", *command)

    @property
    def variables(self) -> Mapping[str, str]:
        return {**LOCAL, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with SparkCluster(HOME, tmp_path) as made:
        yield made


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    with S3Server(gateway_or_skip(tmp_path), tmp_path / "s3", BUCKET) as made:
        made.start()
        made.wait_listening(made.port)
        yield made


def run_line(line: str, names: Mapping[str, str], more: str = "", home: Path = HOME) -> str:
    """Run a line of the page as a shell does, with the Spark in `home`; what it printed."""
    for name, value in names.items():
        line = line.replace(name, value)
    words = shlex.split(f"{line} {more}")
    own = dict(word.split("=", 1) for word in words if word.startswith("SPARK_REMOTE="))
    program, *arguments = [word for word in words if not word.startswith("SPARK_REMOTE=")]
    programs = {
        "quorate": [sys.executable, *QUORATE],
        "spark-submit": [str(home / "bin" / "spark-submit")],
    }
    own["PYTHONPATH"] = os.pathsep.join((str(home.parent), str(ROOT), *sys.path))
    done = subprocess.run(
        [*programs[program], *arguments],
        env={**os.environ, **CLIENT, **LOCAL, **own},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, (line, done.stderr[-3000:])
    return done.stdout


def of_s3(server: S3Server) -> str:
    """The options of a command that writes into S3."""
    return " ".join(f"--conf {name}={value}" for name, value in server.of_hadoop.items())


def test_the_commands_for_a_cluster(
    golden: Path,  # noqa: F811
    cluster: SparkCluster,
    server: S3Server,
    tmp_path: Path,
) -> None:
    (connect,) = free_ports(1)
    log = golden / "full-history/controller-1"
    (tmp_path / "program.py").write_text(PROGRAM)
    names = {
        "spark://host:7077": cluster.url,
        "spark.executor.memory=4g": "spark.executor.memory=1g",
        "PROGRAM": f"{tmp_path}/program.py {log}",
        "DIRECTORY": str(log),
        "/shared/tables": f"{tmp_path}/tables",
        "sc://host:15002": f"sc://{HOST}:{connect}",
    }
    submit, shared, into_s3, over_connect = command_lines(
        block("docs/pipeline.md", "spark://host:7077")
    )
    assert run_line(submit, names).split() == [cluster.url, "206"]
    rows = json.loads(run_line(shared, names, "--json"))["rows"]
    assert rows["ledger"] == 210
    assert json.loads(run_line(into_s3, names, f"{of_s3(server)} --json"))["rows"] == rows
    assert list((server.folder / BUCKET / "tables/ledger").glob("*.parquet"))
    with ConnectServer(tmp_path, connect) as spark_connect:
        spark_connect.start()
        spark_connect.wait_listening(connect, timeout_s=START_S)
        assert "orders" in run_line(over_connect, names)


def test_the_commands_for_delta_and_iceberg(
    golden: Path,  # noqa: F811
    server: S3Server,
    tmp_path: Path,
) -> None:
    """With the PySpark that QUORATE_LAKE_PYSPARK names: see tests/spark/test_lake.py."""
    given = os.environ.get("QUORATE_LAKE_PYSPARK")
    if given is None:
        pytest.skip("QUORATE_LAKE_PYSPARK names no PySpark that a connector fits")
    home = Path(given).resolve() / "pyspark"
    names = {
        "DIRECTORY": str(golden / "full-history/controller-1"),
        "delta-tables": f"{tmp_path}/delta-tables",
        "warehouse": f"{tmp_path}/warehouse",
    }
    delta, iceberg, into_s3 = command_lines(block("docs/pipeline.md", "--namespace metadata"))
    rows = json.loads(run_line(delta, names, "--json", home))["rows"]
    assert rows["ledger"] == 210
    assert json.loads(run_line(iceberg, names, "--json", home))["rows"] == rows
    more = f"{of_s3(server)} --json"
    assert json.loads(run_line(into_s3, names, more, home))["rows"] == rows
    assert (server.folder / BUCKET / "tables/runs/_delta_log").is_dir()
