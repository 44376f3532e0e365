"""Processes that tests start: controllers, brokers, consoles, and Kafka's own.

A `Process` is started, waited for, stopped, killed and started again; its output is in a file. In a
`with` block it is killed at the end, whatever happened; at the latest when the tests end. One that
takes and prints lines is a `Dialog`; `start_module` starts such a one for asyncio.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from subprocess import PIPE
from typing import IO, Any

from quorate.cli.local import local_cluster

HOST = "127.0.0.1"
WAIT_S = 30.0
STOP_S = 20.0
POLL_S = 0.1
TAIL_CHARACTERS = 8000
LINE_BYTES_MAX = 1 << 30
"""Of a line that a module prints."""

ROOT = Path(__file__).resolve().parents[1]

# Each of pytest-xdist's workers chooses from ports of its own.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
local_cluster.PORTS = local_cluster.PORTS[_WORKER::_WORKERS]
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

    name: for messages. error_file: where stderr goes; to `log_file` by default. working_directory:
    this process's by default.
    """

    has_pipes = False
    """Whether stdin and stdout are pipes; else stdin is empty."""

    def __init__(self, name: str, log_file: Path, *command: object) -> None:
        self.name = name
        self.log_file = log_file
        self.error_file = log_file
        self.working_directory: Path | None = None
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
                stdin=PIPE if self.has_pipes else subprocess.DEVNULL,
                stdout=PIPE if self.has_pipes else output,
                stderr=errors,
                cwd=self.working_directory,
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


class Dialog(Process):
    """A process that takes lines and prints lines. What it prints on stderr is in the log file."""

    has_pipes = True

    @property
    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self.process is not None, f"{self.name} was never started"
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        return self.process.stdin, self.process.stdout

    def tell(self, line: str) -> None:
        """Give it a line. `line` shows whether it has ended."""
        with suppress(BrokenPipeError):
            self._pipes[0].write(f"{line}\n".encode())
            self._pipes[0].flush()

    def line(self, timeout_s: float = WAIT_S) -> str:
        """The next line that it prints, "" if it has ended; after the timeout it is killed."""
        printed = self._pipes[1]
        limit = threading.Timer(timeout_s, self.send, (signal.SIGKILL,))
        limit.start()
        try:
            return printed.readline().decode()
        finally:
            limit.cancel()

    def finish(self, timeout_s: float) -> str:
        """Close its input; what it prints until it ends. TimeoutExpired."""
        assert self.process is not None, f"{self.name} was never started"
        printed, _ = self.process.communicate(timeout=timeout_s)
        return printed.decode()

    def kill(self) -> None:
        super().kill()
        if self.process is not None:
            for pipe in self._pipes:
                with suppress(BrokenPipeError):
                    pipe.close()


def quorate_process(name: str, log_file: Path, *arguments: object) -> Process:
    """A process of `quorate` with this command line."""
    return Process(name, log_file, sys.executable, *QUORATE, *arguments)


async def start_module(
    name: str, *arguments: object, log_file: Path | None = None
) -> asyncio.subprocess.Process:
    """Run a module of the tests in a process of its own, with pipes as stdin and stdout.

    log_file: where stderr goes; to this process's by default.
    """
    errors = None if log_file is None else log_file.open("wb")
    try:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", name, *map(str, arguments)),
            stdin=PIPE,
            stdout=PIPE,
            stderr=errors,
            cwd=ROOT,
            env=environment(),
            limit=LINE_BYTES_MAX,
        )
    finally:
        if errors is not None:
            errors.close()


@asynccontextmanager
async def running_module(
    name: str, *arguments: object
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The same; it is killed in the end."""
    process = await start_module(name, *arguments)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
