"""Commands and controllers as processes of their own, for tests that see what a user sees.

`quorate` runs one command line in a process of its own, `here` in this one, which is faster. `Node`
is a controller with its folder, `Quorum` several of them. `files` is what a directory holds, to be
compared. Whoever starts a process ends it: `stop`, `kill`, a `with` block, or the fixtures.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quorate.cli.main import main
from quorate.log.meta_properties import MetaProperties

from tests.processes import (
    HOST,
    QUORATE,
    STOP_S,
    WAIT_S,
    Process,
    environment,
    free_ports,
    until,
    write_properties,
)

CLUSTER = "yFPgY5iXQYqr5sMxfdxu0Q"
OTHER_CLUSTER = "h3JvRzZ1Tn6b5kq0m2xY8w"
COMMAND_TIMEOUT_S = 40.0

PARTITION = "__cluster_metadata-0"
FIRST_SEGMENT = f"{PARTITION}/{0:020}.log"


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended. seconds: how long it took."""

    status: int
    out: str
    err: str
    seconds: float = field(default=0.0, compare=False)

    def json(self) -> Any:
        return json.loads(self.out)


def quorate(*arguments: object, timeout_s: float = COMMAND_TIMEOUT_S) -> Ran:
    """Run one command line in a process of its own, to its end."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, *QUORATE, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=environment(),
    )
    return Ran(done.returncode, done.stdout, done.stderr, time.monotonic() - started)


def here(*arguments: object) -> Ran:
    """Run one command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    started = time.monotonic()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([str(argument) for argument in arguments])
    return Ran(status, out.getvalue(), err.getvalue(), time.monotonic() - started)


def answered(*arguments: object) -> Ran:
    """Run a command here that a controller answers, in time.

    It is repeated: a client gives up half a second after the timeout that it tells the controller,
    which may stall for as long.
    """

    def found() -> Ran | None:
        ran = here(*arguments)
        return None if "no answer within" in ran.out + ran.err else ran

    ran: Ran = until("a controller answers in time", found)
    return ran


def assert_error(ran: Ran, *said: str, status: int = 1) -> None:
    """One line on stderr that says all of `said`, and the status; no traceback, no noise."""
    assert ran.status == status, ran
    assert re.fullmatch(r"quorate: error: [^\n]+\n", ran.err), ran.err
    assert "this is a bug" not in ran.err
    for text in said:
        assert text in ran.err, (text, ran.err)


def succeed(*arguments: object) -> Ran:
    """Run a command here that must do what it was asked, without a word on stderr."""
    ran = here(*arguments)
    assert ran.status == 0, ran
    assert ran.err == "", ran
    return ran


def files(directory: Path) -> dict[str, str]:
    """Every file below a directory with a digest of its bytes."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


class Node(Process):
    """A controller: its properties, its directory, its log file, its process."""

    def __init__(self, folder: Path, node_id: int, port: int, **settings: object) -> None:
        self.id = node_id
        self.port = port
        self.folder = folder / f"node-{node_id}"
        self.folder.mkdir(parents=True)
        super().__init__(f"controller {node_id}", self.folder / "controller.log")
        self.settings: dict[str, object] = {
            "process.roles": "controller",
            "node.id": node_id,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{HOST}:{port}",
            "controller.quorum.bootstrap.servers": self.address,
            "metadata.log.dir": self.data,
        }
        self.configure(settings)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def endpoint(self) -> str:
        return f"CONTROLLER://{self.address}"

    @property
    def properties(self) -> Path:
        return self.folder / "controller.properties"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def directory_id(self) -> str:
        directory_id = MetaProperties.read(self.data).directory_id
        assert directory_id is not None
        return directory_id

    @property
    def key(self) -> str:
        return f"{self.id}-{self.directory_id}"

    def configure(self, settings: Mapping[str, object]) -> None:
        """Add settings to the properties file; those that are None leave it."""
        self.settings.update(settings)
        write_properties(self.properties, self.settings)

    def format(self, how: str, cluster_id: str = CLUSTER) -> None:
        succeed("storage", "format", "-t", cluster_id, "-c", self.properties, how)

    @property
    def launcher(self) -> Sequence[str]:
        """The arguments of Python that precede `quorate`'s."""
        return QUORATE

    @property
    def command(self) -> Sequence[object]:
        return (sys.executable, *self.launcher, "controller", self.properties)

    @property
    def handles_sigterm(self) -> bool:
        """Whether SIGTERM asks it to stop; while Python starts, SIGTERM ends it. Linux only."""
        status = Path(f"/proc/{self.pid}/status")
        if not status.exists():
            return True
        (caught,) = re.findall(r"^SigCgt:\s*(\w+)", status.read_text(), re.MULTILINE)
        return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)

    def request_stop(self) -> None:
        """SIGTERM, once it is handled."""
        until(f"{self.name} handles SIGTERM", lambda: not self.is_alive or self.handles_sigterm)
        self.send(signal.SIGTERM)

    def stop(self, timeout_s: float = STOP_S) -> int:
        self.request_stop()
        return self.wait(timeout_s)

    def lose_disk(self) -> None:
        """Empty its directory: it is to be formatted again."""
        shutil.rmtree(self.data)


def assert_clean(log: str) -> None:
    """A controller.log without anything that asks for an explanation."""
    assert "Traceback" not in log, log
    for line in log.splitlines():
        assert not re.search(r"\b(ERROR|CRITICAL)\b|^[EF]\d{4} ", line), line


class Quorum:
    """Controllers that know each other's addresses, and commands to all of them."""

    def __init__(
        self, folder: Path, ids: Sequence[int], ports: Sequence[int] = (), **settings: object
    ) -> None:
        ports = ports or free_ports(len(ids))
        self.addresses = ",".join(f"{HOST}:{port}" for port in ports)
        settings = {"controller.quorum.bootstrap.servers": self.addresses} | settings
        self.nodes = {
            node_id: Node(folder, node_id, port, **settings)
            for node_id, port in zip(ids, ports, strict=True)
        }

    def form(self) -> None:
        """Format and start the first controller, then add the others as voters."""
        first, *others = self.nodes.values()
        first.format("--standalone")
        for node in others:
            node.format("--no-initial-controllers")
        for node in self.nodes.values():
            node.start()
        first.wait_said("leads epoch 1")
        for node in others:
            succeed(*self.ask, "add-controller", "-c", node.properties)
        self.until_voters(*self.nodes)

    @property
    def ask(self) -> tuple[str, ...]:
        return ("metadata-quorum", "--bootstrap-controller", self.addresses)

    @property
    def features(self) -> tuple[str, ...]:
        return ("features", "--bootstrap-controller", self.addresses)

    def status(self) -> dict[str, Any] | None:
        """What `describe --status --json` prints where there is a leader, else None."""
        ran = here(*self.ask, "describe", "--status", "--json")
        return ran.json() if ran.status == 0 else None

    def until(self, what: str, condition: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Wait for a status that is as wanted."""

        def found() -> dict[str, Any] | None:
            status = self.status()
            return status if status is not None and condition(status) else None

        try:
            result: dict[str, Any] = until(what, found)
        except AssertionError as error:
            raise AssertionError(f"{error}; the controllers said:\n{self.said()}") from None
        return result

    def until_voters(self, *ids: int) -> dict[str, Any]:
        """Wait until these are the voters, and committed as such."""
        wanted = sorted(ids)
        return self.until(
            f"voters {wanted}",
            lambda s: sorted(voters(s)) == wanted and s["committedVoters"] == s["currentVoters"],
        )

    def transfer(self, node_id: int, *options: object) -> Ran:
        """Make a voter the leader; how the command that did it ended.

        It is repeated: a stalled machine delays the voter's next Fetch, or lets another one win.
        """
        attempts: list[Ran] = []

        def succeeds() -> Ran | None:
            attempts.append(here(*self.ask, "transfer-leadership", "-i", node_id, *options))
            return attempts[-1] if attempts[-1].status == 0 else None

        try:
            ran: Ran = until(f"leadership is transferred to {node_id}", succeeds)
        except AssertionError as error:
            raise AssertionError(f"{error}: {attempts[-1]}") from None
        assert ran.err == "", ran
        self.until(f"{node_id} leads", lambda status: status["leaderId"] == node_id)
        return ran

    def said(self) -> str:
        return "\n".join(f"--- {node.id}\n{node.said()}" for node in self.nodes.values())

    def move(self) -> None:
        """Give every controller another port. They must be stopped."""
        ports = free_ports(len(self.nodes))
        self.addresses = ",".join(f"{HOST}:{port}" for port in ports)
        for node, port in zip(self.nodes.values(), ports, strict=True):
            node.port = port
            node.configure(
                {
                    "listeners": node.endpoint,
                    "controller.quorum.bootstrap.servers": self.addresses,
                }
            )

    def stop(self) -> None:
        """SIGTERM to all at once; each must end with status 0."""
        for node in self.nodes.values():
            node.request_stop()
        for node in self.nodes.values():
            assert node.wait(WAIT_S) == 0, self.said()

    def kill(self) -> None:
        for node in self.nodes.values():
            node.kill()


def voters(status: dict[str, Any]) -> dict[int, str]:
    """The voters of a status: directory id by id."""
    return {voter["id"]: voter["directoryId"] for voter in status["currentVoters"]}
