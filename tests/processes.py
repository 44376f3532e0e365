"""Processes that tests start: controllers, brokers, consoles, and Kafka's own.

A `Process` is started, waited for, stopped, killed and started again; its output is in a file. In a
`with` block it is killed at the end, whatever happened; at the latest when the tests end.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from quorate.cli import local_cluster

HOST = "127.0.0.1"
WAIT_S = 30.0
STOP_S = 20.0
POLL_S = 0.1
TAIL_CHARACTERS = 8000

free_ports = local_cluster.free_ports

QUORATE = ("-m", "quorate.cli.main")
"""The arguments of Python that precede a command line of `quorate`."""


def environment() -> dict[str, str]:
    """This process's, without the settings of a controller.

    Nor are there pytest's variables: with them NiceGUI takes a process for one of its own tests.
    """
    return {k: v for k, v in os.environ.items() if not k.startswith(("QUORATE_", "PYTEST_"))}


def listens(port: int, host: str = HOST) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def until(what: str, condition: Callable[[], Any], timeout_s: float = WAIT_S) -> Any:
    """Wait for something true and return it."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(POLL_S)
    return found


def write_properties(path: Path, settings: Mapping[str, object]) -> None:
    """Write a properties file; settings that are None are left out."""
    text = "".join(f"{k}={v}\n" for k, v in settings.items() if v is not None)
    path.write_text(text)


def end(process: subprocess.Popen[bytes]) -> None:
    """kill -9, if it still runs."""
    if process.poll() is None:
        process.kill()
        process.wait()


class Process:
    """A command, the file that its output is appended to, and the process that runs it, if any.

    name: for messages. error_file: where stderr goes; to `log_file` by default.
    """

    def __init__(self, name: str, log_file: Path, *command: object) -> None:
        self.name = name
        self.log_file = log_file
        self.error_file = log_file
        self._command = command
        self.process: subprocess.Popen[bytes] | None = None
        self.said_before = 0

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def command(self) -> Sequence[object]:
        return self._command

    @property
    def variables(self) -> Mapping[str, str]:
        """What the process gets in the environment besides."""
        return {}

    def start(self) -> None:
        with self.log_file.open("ab") as output, self.error_file.open("ab") as errors:
            self.said_before = output.tell()
            self.process = subprocess.Popen(
                [str(argument) for argument in self.command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env={"PYTHONFAULTHANDLER": "1", **environment(), **self.variables},
            )
        atexit.register(end, self.process)  # for a fixture that fails before its test begins

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.name} was never started"
        return self.process.pid

    @property
    def status(self) -> int | None:
        """The exit status, None while it runs."""
        assert self.process is not None, f"{self.name} was never started"
        return self.process.poll()

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.status is None

    def said(self, since: int = 0) -> str:
        """What is in the log file, from a byte on."""
        return self.log_file.read_bytes()[since:].decode(errors="replace")

    def recently(self) -> str:
        """What the process has said since its start."""
        return self.said(self.said_before)

    def wait_until(self, what: str, condition: Callable[[], Any], timeout_s: float = WAIT_S) -> Any:
        """Wait for something true and return it; the process must live meanwhile."""

        def found() -> Any:
            assert self.status is None, f"it ended with status {self.status}"
            return condition()

        try:
            return until(what, found, timeout_s)
        except AssertionError as error:
            said = self.recently()[-TAIL_CHARACTERS:]
            raise AssertionError(f"{self.name}: {error}; it said:\n{said}") from error

    def wait_said(self, text: str, timeout_s: float = WAIT_S) -> None:
        """Wait until the process has logged a text since its start."""
        self.wait_until(f"says {text!r}", lambda: text in self.recently(), timeout_s)

    def wait_listening(self, port: int, host: str = HOST, timeout_s: float = WAIT_S) -> None:
        self.wait_until(f"listens on {host}:{port}", lambda: listens(port, host), timeout_s)

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None, f"{self.name} was never started"
        self.process.send_signal(number)

    def pause(self) -> None:
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.send(signal.SIGCONT)

    def wait(self, timeout_s: float = STOP_S) -> int:
        """Wait until it has ended; the exit status.

        AssertionError with the stacks of a Python process that still runs, else TimeoutExpired.
        """
        assert self.process is not None, f"{self.name} was never started"
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            if self.command[0] != sys.executable:
                raise
            self.send(signal.SIGABRT)  # Python prints the stacks: see PYTHONFAULTHANDLER
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_S)
            said = self.error_file.read_text(errors="replace")[-TAIL_CHARACTERS:]
            raise AssertionError(f"{self.name}: {error}; it said:\n{said}") from error

    def stop(self, timeout_s: float = STOP_S) -> int:
        """SIGTERM; the exit status. Raises as `wait`."""
        self.send(signal.SIGTERM)
        return self.wait(timeout_s)

    def kill(self) -> None:
        """kill -9, if it still runs."""
        if self.process is not None:
            end(self.process)


def quorate_process(name: str, log_file: Path, *arguments: object) -> Process:
    """A process of `quorate` with this command line."""
    return Process(name, log_file, sys.executable, *QUORATE, *arguments)
