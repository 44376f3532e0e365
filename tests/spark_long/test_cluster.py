"""The commands of docs/pipeline.md for a cluster: Spark's standalone one, Spark Connect, S3, and a
REST catalog of Iceberg.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark
import pytest
import quorate.cli.pipeline

pytest.importorskip("grpc_status", reason="needs pyspark[connect]")

from tests.kafka import PEERS
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
CATALOG_JAR = "iceberg-open-api-1.10.0.jar"
"""Iceberg's own test server of REST catalogs; Maven Central has no later version."""
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


class RestCatalog(Process):
    """Iceberg's REST catalog for tests: its tables are below `folder`."""

    def __init__(self, folder: Path, jar: Path) -> None:
        (self.port,) = free_ports(1)
        self._warehouse = folder / "warehouse"
        super().__init__("catalog", folder / "catalog.log", "java", "-jar", jar)

    @property
    def variables(self) -> Mapping[str, str]:
        return {
            "CATALOG_REST_PORT": str(self.port),
            "CATALOG_WAREHOUSE": self._warehouse.as_uri(),
            "CATALOG_IO__IMPL": "org.apache.iceberg.hadoop.HadoopFileIO",
        }

    def tables(self, *namespace: str) -> set[str]:
        """The names of a namespace's tables."""
        url = f"http://{HOST}:{self.port}/v1/namespaces/{'%1F'.join(namespace)}/tables"
        with urllib.request.urlopen(url) as answer:
            return {each["name"] for each in json.load(answer)["identifiers"]}


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[RestCatalog]:
    jar = PEERS / CATALOG_JAR
    if not jar.exists():
        name, version = CATALOG_JAR.removesuffix(".jar").rsplit("-", 1)
        artifact = f"-Dartifact=org.apache.iceberg:{name}:{version}"
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
        copy = ("mvn", "-q", "-B", goal, artifact, f"-DoutputDirectory={jar.parent}")
        subprocess.run(copy, check=True)
    with RestCatalog(tmp_path, jar) as made:
        made.start()
        made.wait_listening(made.port, timeout_s=START_S)
        yield made


@pytest.fixture
def lake_home() -> Path:
    """The PySpark that QUORATE_LAKE_PYSPARK names: see tests/spark/test_lake.py."""
    given = os.environ.get("QUORATE_LAKE_PYSPARK")
    if given is None:
        pytest.skip("QUORATE_LAKE_PYSPARK names no PySpark that a connector fits")
    return Path(given).resolve() / "pyspark"


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


def run_line(
    line: str, names: Mapping[str, str], more: str = "", home: Path = HOME, *, status: int = 0
) -> str:
    """Run a line of the page as a shell does, with the Spark in `home`; what it printed.

    status: the expected exit status. If it is not 0, the result includes stderr; spark-submit
    prints a program's stderr to stdout.
    """
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
    assert done.returncode == status, (line, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout + done.stderr if status else done.stdout


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
    lake_home: Path,
    tmp_path: Path,
) -> None:
    names = {
        "DIRECTORY": str(golden / "full-history/controller-1"),
        "delta-tables": f"{tmp_path}/delta-tables",
        "warehouse": f"{tmp_path}/warehouse",
    }
    delta, iceberg, into_s3 = command_lines(block("docs/pipeline.md", "--namespace metadata"))
    rows = json.loads(run_line(delta, names, "--json", lake_home))["rows"]
    assert rows["ledger"] == 210
    assert json.loads(run_line(iceberg, names, "--json", lake_home))["rows"] == rows
    more = f"{of_s3(server)} --json"
    assert json.loads(run_line(into_s3, names, more, lake_home))["rows"] == rows
    assert (server.folder / BUCKET / "tables/runs/_delta_log").is_dir()


def test_the_commands_of_spark_submit(
    golden: Path,  # noqa: F811
    catalog: RestCatalog,
    lake_home: Path,
    tmp_path: Path,
) -> None:
    names = {
        "PIPELINE": quorate.cli.pipeline.__file__,
        "DIRECTORY": str(golden / "full-history/controller-1"),
        "delta-tables": f"{tmp_path}/delta-tables",
        "http://catalog:8181": f"http://{HOST}:{catalog.port}",
        "s3a://bucket/work": f"{tmp_path}/work",
    }
    delta, iceberg = command_lines(block("docs/pipeline.md", "io.delta:delta-spark"))
    rows = json.loads(run_line(delta, names, "--json", lake_home))["rows"]
    assert rows["ledger"] == 210
    assert json.loads(run_line(iceberg, names, "--json", lake_home))["rows"] == rows
    assert catalog.tables("quorate", "metadata") == {*rows, "runs"}
    one_level = iceberg.replace("quorate.metadata", "one")
    said = run_line(one_level, names, "", lake_home, status=1)
    assert "namespace `lake`.`one`. Give the namespace two levels" in said
    catalog.kill()
    said = run_line(iceberg, names, "", lake_home, status=1)
    assert "quorate: error: Spark failed: org.apache.iceberg" in said
    assert "Connection refused" in said
