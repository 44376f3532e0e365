"""A process of Java that runs controllers of Kafka one after the other (`ControllerHost.java`).

Java compiles what runs often. A new process would spend more time on that than on the few thousand
requests for which a pair of controllers lasts when Kafka's fails.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.integration.support import CLUSTER
from tests.kafka import KAFKA_4_3, java
from tests.processes import Dialog
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
"""For each line of a start or a stop; then the process is killed."""


class HostEndedError(OSError):
    """The process has ended, or a controller did not start."""


class KafkaHost:
    """Starts Java with the first controller, and again if it has ended. log_file: of its errors."""

    def __init__(self, log_file: Path) -> None:
        self._java = Dialog("Kafka's host", log_file, *java(KAFKA_4_3, *OPTIONS, SOURCE))

    def start(self, node: ClusterNode, release: str, voters: str) -> None:
        """Format and start a controller, after it has stopped the one before. Raises
        HostEndedError.
        """
        node.configure()
        options = ("-t", CLUSTER, "--release-version", release, "--initial-controllers", voters)
        self._ask("start", str(node.properties), *options)

    def stop(self) -> None:
        """Stop the controller, or the whole process if the controller does not stop."""
        if not self._java.is_alive:
            return
        try:
            self._ask("stop")
        except HostEndedError:
            self.close()

    def _ask(self, *words: str) -> None:
        if not self._java.is_alive:
            self.close()
            self._java.start()
        self._java.tell("\t".join(words))
        while (line := self._java.line(LIMIT_S)) != DONE:
            if not line:
                status = self._java.wait()
                raise HostEndedError(f"Java ended with status {status}; see {self._java.log_file}")

    def close(self) -> None:
        """kill -9."""
        self._java.kill()
