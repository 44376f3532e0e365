"""Spark's standalone cluster on this machine: a master and workers, each with one executor."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from tests.processes import HOST, ROOT, Process, environment, free_ports, until

EXECUTOR = b"CoarseGrainedExecutorBackend"
START_S = 120.0


def environment_of(spark: Path) -> dict[str, str]:
    """For programs that use the PySpark in which Spark's directory is."""
    paths = (str(spark.parent), str(ROOT), os.environ.get("PYTHONPATH", ""))
    return {
        **environment(),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "SPARK_HOME": str(spark),
        "SPARK_LOCAL_IP": HOST,
    }


class SparkCluster:
    """home: Spark's directory, such as that of the package pyspark. memory: of each executor."""

    def __init__(self, home: Path, folder: Path, workers: int = 2, memory: str = "1g") -> None:
        port, *pages = free_ports(workers + 2)
        self.port = port
        self.url = f"spark://{HOST}:{port}"
        program = home / "bin" / "spark-class"
        variables = {
            "SPARK_HOME": str(home),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": HOST,
        }
        where = ("--host", HOST, "--webui-port")
        master = ("org.apache.spark.deploy.master.Master", *where, pages[0], "--port", port)
        self.master = _Daemon("master", folder, variables, program, *master)
        self.workers = [
            _Daemon(
                f"worker-{number}",
                folder,
                variables,
                program,
                "org.apache.spark.deploy.worker.Worker",
                *(*where, page, "--cores", 1, "--memory", memory),
                *("--work-dir", folder / f"work-{number}", self.url),
            )
            for number, page in enumerate(pages[1:], 1)
        ]

    def __enter__(self) -> SparkCluster:
        self.master.start()
        self.master.wait_listening(self.port, timeout_s=START_S)
        for worker in self.workers:
            worker.start()
        for worker in self.workers:
            worker.wait_said("Successfully registered with master", START_S)
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.executors():
            _kill(pid)
        for process in (*self.workers, self.master):
            process.kill()

    def executors(self) -> list[int]:
        """The processes of the executors that run now."""
        workers = {worker.pid for worker in self.workers}
        return sorted(
            pid for pid, parent, line in _processes() if parent in workers and EXECUTOR in line
        )

    def kill_executor(self, pid: int) -> None:
        """SIGKILL; the worker then starts another one."""
        _kill(pid)
        until(f"executor {pid} is gone", lambda: pid not in self.executors())


class _Daemon(Process):
    def __init__(
        self, name: str, folder: Path, variables: Mapping[str, str], *command: object
    ) -> None:
        super().__init__(name, folder / f"{name}.log", *command)
        self._variables = variables

    @property
    def variables(self) -> Mapping[str, str]:
        return self._variables


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _processes() -> Iterator[tuple[int, int, bytes]]:
    """The id, the parent's id and the command line of each process."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            yield int(path.name), int(fields[1]), (path / "cmdline").read_bytes()
