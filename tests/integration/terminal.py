"""A terminal for the documents' commands: it takes them as they are printed."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.integration.support import here
from tests.processes import QUORATE, WAIT_S, Process
from tests.tools.documents import command_lines

BACKGROUND = frozenset({"broker", "console", "controller", "quickstart", "--follow"})
"""Words of commands that run until they are stopped."""
START_S = 4 * WAIT_S
"""For several processes that start at once beside other tests."""


class Terminal:
    """Runs lines as a shell does, with other names in place of those in `replaced`.

    A command runs in this process, which is faster, or in the background until `close`.
    """

    def __init__(self, folder: Path, replaced: Mapping[str, object]) -> None:
        self.folder = folder
        self.replaced = {name: str(value) for name, value in replaced.items()}
        self.variables: dict[str, str] = {}
        self.running: list[Process] = []

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def paste(self, lines: str) -> str:
        """Run all lines; what the last one printed."""
        out = ""
        for line in command_lines(lines):
            assigned = re.fullmatch(r"(\w+)=\$\((.*)\)", line)
            out = self.run(assigned[2] if assigned else line)
            if assigned:
                self.variables[assigned[1]] = out.strip()
        return out

    def run(self, line: str) -> str:
        """Run a line; what it printed."""
        words = shlex.split(self.localized(line), comments=True)
        if words[:2] == ["pip", "install"]:
            return ""  # the tests run with everything installed
        if words[0] == "export":
            assert all(word.partition("=")[0] in os.environ for word in words[1:]), line
            return ""  # the test has set them
        program, *arguments = words
        assert program == "quorate", line
        if not BACKGROUND.isdisjoint(arguments):
            self._start(line, arguments)
            return ""
        with contextlib.chdir(self.folder):
            ran = here(*arguments)
        assert ran.status == 0, (line, ran)
        return ran.out

    def localized(self, text: str) -> str:
        """The text with the names and variables replaced, each once, the longest names first."""
        names = self.replaced | {f"${name}": value for name, value in self.variables.items()}
        if not names:
            return text
        pattern = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        return re.sub(pattern, lambda found: names[found[0]], text)

    def _start(self, line: str, arguments: list[str]) -> None:
        log_file = self.folder / f"{len(self.running)}.log"
        started = Process(line, log_file, sys.executable, *QUORATE, *arguments)
        started.working_directory = self.folder
        started.start()
        self.running.append(started)

    def said(self, number: int) -> str:
        """What a command in the background has printed; they count from 0."""
        return self.running[number].said()

    def close(self) -> None:
        """End the commands in the background, as Ctrl-C does."""
        for process in self.running:
            process.send(signal.SIGINT)
        for process in self.running:
            try:
                process.wait(START_S)
            finally:
                process.kill()
