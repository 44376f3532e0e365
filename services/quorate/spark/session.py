"""Builds the pipeline's Spark sessions.

Rules: workers run the same Python as this process unless $PYSPARK_PYTHON names another one; a local
session listens only on loopback; there is no web UI; only errors are logged. With a master other
than `local[…]`, the network settings of spark-submit apply. A session that exists, such as that of
a notebook, is used with the settings that it has, and so is a server of Spark Connect.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quorate.spark.errors import PipelineError, innermost_cause
from quorate.spark.formats import TableFormat, with_connector
from quorate.spark.java import archive_options, check_java, forget_archives, is_remote

STDOUT, STDERR = 1, 2
LOOPBACK = "127.0.0.1"
ALL_CORES = "local[*]"
JVM = (
    "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false "
    "-XX:+UseParallelGC"
)
"""Spark reads each value by its row index and after checking its null bit, so Arrow need not check
either again. Rows become garbage at once, which suits the parallel collector."""
SHORT_JVM = "-XX:TieredStopAtLevel=1"
"""For jobs of seconds: the JVM's second compiler takes longer than what its code saves."""
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def check_pyspark() -> None:
    """Raise PipelineError if the extra `spark` is not installed or PySpark is older than 4.0."""
    try:
        import pyarrow  # noqa: F401
        import pyspark
    except ImportError as error:
        raise PipelineError(
            f"{error.name} is not installed: pip install 'quorate[spark]'"
        ) from None
    if int(pyspark.__version__.split(".")[0]) < 4:
        raise PipelineError(f"PySpark {pyspark.__version__} is too old: the data source needs 4.0")


def build_session(
    master: str | None = None,
    *,
    app_name: str = "quorate",
    tables: TableFormat = TableFormat.PARQUET,
    is_short: bool = False,
    settings: Mapping[str, str] | None = None,
) -> Any:
    """Return a SparkSession with the data source: the active one, else a new one.

    A new one looks for data sources when it needs one (`pyspark_quorate`), which takes a Python
    process. Others may have looked before this package was installed.

    The arguments are for a new one. master: such as "local[2]"; None for that of spark-submit, else
    $SPARK_MASTER, else all local cores. tables: the format to write, whose connector comes from
    Maven Central on first use. is_short: for a job of seconds. settings: additional Spark settings.
    Raises JavaError if Java is missing or too old, and PipelineError if a package is missing or
    Spark does not start.
    """
    check_pyspark()
    import pyspark
    from pyspark.sql import SparkSession

    from quorate.spark.source.data_source import QuorateSource

    active: Any = SparkSession.getActiveSession()
    if active is None and is_remote():
        active = _remote(SparkSession.builder.appName(app_name))
    if active is not None:
        active.dataSource.register(QuorateSource)
        return active
    check_java()
    choose_python()
    master = _chosen_master(master)
    builder = SparkSession.builder.appName(app_name).master(master)
    is_local = master.startswith("local")
    given = with_connector(tables, settings or {}, pyspark.__version__)
    for name, value in {**_defaults(is_local, is_short), **given}.items():
        builder = builder.config(name, value)
    # The JVM of a short job outlives this process while it writes its archive of classes. With this
    # process's stdout, it would keep a pipe open that long.
    with _aside((STDOUT, STDERR) if is_short else (STDERR,)):
        try:
            session = builder.getOrCreate()
        except Exception as error:
            if is_short:
                forget_archives()
            raise PipelineError(f"Spark did not start: {innermost_cause(error)}") from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def ends_alone(spark: Any) -> bool:
    """Whether only this process and its JVM belong to the session, so that both just end."""
    return hasattr(spark, "_jvm") and bool(spark.sparkContext.master.startswith("local"))


def _remote(builder: Any) -> Any:
    """Connect to the server that $SPARK_REMOTE names. Raises PipelineError."""
    try:
        return builder.getOrCreate()
    except ImportError as error:
        cause = innermost_cause(error).rstrip(".")
        raise PipelineError(
            f"Spark Connect lacks a package: {cause}: pip install 'pyspark[connect]'"
        ) from error
    except Exception as error:
        where = os.environ["SPARK_REMOTE"]
        raise PipelineError(f"no connection to {where}: {innermost_cause(error)}") from error


def choose_python() -> None:
    """Let workers run this Python, unless the environment names another one."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(name, sys.executable)


@contextmanager
def _aside(descriptors: Sequence[int]) -> Iterator[None]:
    """Redirect what the JVM inherits to a temporary file.

    Errors that matter are raised as exceptions. QUORATE_DEBUG=1 redirects nothing.
    """
    if os.environ.get("QUORATE_DEBUG", "") not in ("", "0"):
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(each) for each in descriptors]
    with tempfile.TemporaryFile(prefix="quorate-spark-") as aside:
        for each in descriptors:
            os.dup2(aside.fileno(), each)
        try:
            yield
        finally:
            for each, before in zip(descriptors, kept, strict=True):
                os.dup2(before, each)
                os.close(before)


def _chosen_master(master: str | None) -> str:
    """An explicit master, else that of spark-submit, else $SPARK_MASTER, else all local cores."""
    if master:
        return master
    submitted = _submitted_master()
    # Without a master, spark-submit reports all local cores.
    if submitted and submitted != ALL_CORES:
        return submitted
    return os.environ.get("SPARK_MASTER") or ALL_CORES


def _submitted_master() -> str | None:
    """The master of the spark-submit that started this process, or of PYSPARK_SUBMIT_ARGS."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # The JVM of spark-submit already runs. Only it knows the arguments and configuration files.
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()
        return SparkConf().get("spark.master")
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--master", nargs="?")
    parser.add_argument("--conf", "-c", nargs="?", action="append", default=[])
    try:
        given, _ = parser.parse_known_args(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "")))
    except ValueError:
        return None  # an open quote: Spark reports it when it starts
    if given.master:
        return str(given.master)
    settings = dict(text.partition("=")[::2] for text in given.conf if text)
    return settings.get("spark.master")


def _defaults(is_local: bool, is_short: bool) -> dict[str, str]:
    jvm = f"{JVM} {SHORT_JVM} {archive_options(_jars())}".rstrip() if is_short else JVM
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "quorate-spark-warehouse"),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet_log4j()} {jvm}",
        PUSHDOWN: "true",
        # Python and the JVM exchange rows over a Unix socket: no port, and less work than TCP.
        "spark.python.unix.domain.socket.enabled": "true",
    }
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        settings |= {
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
        }
    return settings


def _jars() -> Path:
    """The folder of Spark's jars."""
    import pyspark

    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    return Path(home) / "jars"


def quiet_log4j() -> Path:
    """Log4j's configuration: errors only, so that logs do not mix with a command's output."""
    return Path(__file__).with_name("log4j2.properties")
