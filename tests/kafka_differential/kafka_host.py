"""A process of Java that runs controllers of Kafka one after the other (`ControllerHost.java`).

Java compiles what runs often. A new process would spend more time on that than on the few thousand
requests for which a pair of controllers lasts when Kafka's fails.
"""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import Final

from tests.integration.support import CLUSTER
from tests.kafka import KAFKA_4_3, java
from tests.processes import environment
from tests.wire.kafka_nodes import ClusterNode

SOURCE: Final = Path(__file__).with_name("ControllerHost.java")
OPTIONS: Final = (
    "-Xmx1g",
    # Threads that collect garbage would compete with the controllers for the processors.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=4",
    # Each request writes several lines otherwise, and each invalid one a stack trace.
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.ControllerApis=off",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.controller.ReplicationControlManager=off",
)
DONE: Final = "done\n"
LIMIT_S: Final = 180.0
"""For a start or a stop; then the process is killed."""


class HostEndedError(OSError):
    """The process has ended, or a controller did not start."""


class KafkaHost:
    """Starts Java with the first controller, and again if it has ended. log_file: of its errors."""

    def __init__(self, log_file: Path) -> None:
        self._log_file = log_file
        self._process: subprocess.Popen[str] | None = None

    def start(self, node: ClusterNode, release: str, voters: str) -> None:
        """Format and start a controller, after it has stopped the one before. Raises
        HostEndedError.
        """
        node.configure()
        options = ("-t", CLUSTER, "--release-version", release, "--initial-controllers", voters)
        self._ask("start", str(node.properties), *options)

    def stop(self) -> None:
        """Stop the controller, or the whole process if the controller does not stop."""
        if self._process is None or self._process.poll() is not None:
            return
        try:
            self._ask("stop")
        except HostEndedError:
            self.close()

    def _ask(self, *words: str) -> None:
        process = self._running()
        given, printed = process.stdin, process.stdout
        assert given is not None
        assert printed is not None
        limit = threading.Timer(LIMIT_S, process.kill)
        limit.start()
        try:
            given.write("\t".join(words) + "\n")
            given.flush()
            is_done = any(line == DONE for line in printed)
        except BrokenPipeError:
            is_done = False
        finally:
            limit.cancel()
        if not is_done:
            status = process.wait()
            raise HostEndedError(f"Java ended with status {status}; see {self._log_file}")

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            with self._log_file.open("ab") as errors:
                self._process = subprocess.Popen(
                    java(KAFKA_4_3, *OPTIONS, SOURCE),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=environment(),
                    text=True,
                )
        return self._process

    def close(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
