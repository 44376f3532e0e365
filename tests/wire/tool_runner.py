"""Runs Kafka's tools in one process of Java, and makes their outputs comparable."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.kafka import KAFKA_4_3, java
from tests.processes import Dialog
from tests.wire.tool_commands import CLASSES

RUNNER: Final = Path(__file__).with_name("RunTools.java")
END: Final = "====\n"
TOOL_S: Final = 200.0
"""How long a tool may take."""
PATTERNS: Final = (
    (r"^\s+at .*$|^\s+\.\.\. \d+ more$", ""),
    # Quorate's voters have an endpoint for gRPC, too.
    (r'"CONTROLLER://[^"]*", "KAFKA://', '"KAFKA://'),
    (r"^(\d+)(\s+\S+)\s+\d+\s+\d+\s.*Observer", r"\1\2 Observer"),
    (r"^(\d+)(\s+\S+)\s+\d+\s+\d+\s.*(Leader|Follower)", r"\1\2 Voter"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
    (r"(?<![\w+/.])[A-Za-z0-9_-]{22}(?![\w+/=-])", "UUID"),
    (r'"topic_id": "[^"]{22}"', '"topic_id": "UUID"'),
    # The tools choose these at random.
    (r'"replicas":\[[\d,]+\],"log_dirs":\["any","any"\]', '"replicas":ANY'),
    (r"BROKER-\d+\s+\(\d+\)", "COORDINATOR"),
    (r"(LeaderId|LeaderEpoch|HighWatermark|MaxFollower\w+):\s+-?\d+", r"\1"),
    (r"Epoch: \d+", "Epoch"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d", "TIME"),
    (r'"size":[1-9]\d*', '"size":SIZE'),
    (r"[ \t]+", " "),
)
"""What differs between any two clusters."""
OBSERVERS: Final = re.compile(r"(?<=CurrentObservers: \[\{).*(?=\}\])")


def run_tool(tool: str, *arguments: object) -> str:
    """What one tool prints in a process of its own, whatever its exit status."""
    log = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    command = java(KAFKA_4_3, log, CLASSES[tool], *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_S, check=False)
    return done.stdout + done.stderr


class ToolRunner(Dialog):
    """A process of Java that runs tools one after the other. folder: its working directory."""

    def __init__(self, folder: Path) -> None:
        command = java(KAFKA_4_3, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", RUNNER)
        super().__init__("Kafka's tools", folder / "tools.log", *command)
        self.working_directory = folder
        self.start()

    def run(self, class_name: str, *arguments: str) -> str:
        """What a tool prints, and its exit status if it is not 0."""
        self.tell("\t".join((class_name, *arguments)))
        lines = []
        while line := self.line(TOOL_S):
            if line.endswith(END):
                # A tool may print its last line without a newline.
                return "".join((*lines, line.removesuffix(END)))
            lines.append(line)
        raise AssertionError(f"Java ended after {''.join(lines)}; it said: {self.said()}")


def normal(text: str, names: Mapping[str, str], *, is_set: bool = False) -> str:
    """The output without what differs between any two clusters: ids, times, offsets, spaces and
    stack traces. names: further texts, and what replaces them. is_set: the order of lines does not
    matter.
    """
    for found in sorted(names, key=len, reverse=True):
        text = text.replace(found, names[found])
    for pattern, replacement in PATTERNS:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    text = OBSERVERS.sub(lambda found: "}, {".join(sorted(found[0].split("}, {"))), text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith("NodeId"):
        # Replicas in the order of their ids, since the leader is listed first.
        is_set = True
    return "\n".join(sorted(lines) if is_set else lines)
