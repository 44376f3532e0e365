"""Clients of a store: each puts values that nobody put before, gets, and records what came back."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from quorate.linearizability import HistoryChecker

from tests.key_value.registers import OPEN, Operation
from tests.key_value.traced import UNKNOWN

KEYS = [f"key{number}" for number in range(5)]
NOTHING = "(none)"
TIMEOUT_S = 8.0
"""Of an answer: longer than the stores' own timeouts of 5 s."""
THINK_S = (0.005, 0.03)
STAY = 30
"""After so many operations a client goes to another node."""
BACKOFF_S = 0.2

PERHAPS = {"LEADER_CHANGED", "UNKNOWN_OUTCOME", "Timeout"}
"""PySyncObj's errors after which a command may take effect.

The documentation of LEADER_CHANGED says that it does not, but the new leader may have the command.
"""
ERROR = "error: "


def is_unknown(error: str) -> bool:
    """Whether a put that failed like that may take effect. error: what follows `error: `.

    After every other error it certainly does not: both libraries document that.
    """
    return error in PERHAPS or error.startswith(UNKNOWN)


def kind(error: str) -> str:
    """The error without what differs from one to the next."""
    return error.partition(":")[0].partition(" (")[0]


@dataclass
class Histories:
    """What all clients saw: operations for the register check, appends for that of the log.

    acknowledged_s: when puts were acknowledged, in order. unknown, refused: values by error.
    """

    operations: list[Operation] = field(default_factory=list)
    log: HistoryChecker[str] = field(default_factory=HistoryChecker)
    acknowledged_s: list[float] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    failed_gets: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, value: str) -> None:
        with self.lock:
            self.log.begin(value)

    def put(self, operation: Operation, reply: str | None) -> None:
        """Record the end of a put. reply: None if the connection ended without one.

        ValueError for a reply that is none of the protocol's.
        """
        value = operation.value
        assert value is not None
        with self.lock:
            if reply is not None and reply.startswith("ok "):
                self.operations.append(operation)
                self.log.acknowledged(value, int(reply.removeprefix("ok ")))
                self.acknowledged_s.append(operation.end)
            elif reply is None or is_unknown(error := _error(reply)):
                self.unknown[value] = "no reply" if reply is None else kind(error)
                begin, node = operation.begin, operation.node
                self.operations.append(Operation(operation.key, value, True, begin, OPEN, node))
                self.log.unknown(value)
            else:
                self.refused[value] = kind(error)
                self.log.refused(value)

    def get(self, operation: Operation, reply: str | None) -> None:
        with self.lock:
            if reply is None or reply.startswith(ERROR):
                self.failed_gets["no reply" if reply is None else kind(_error(reply))] += 1
            else:
                self.operations.append(operation)


def _error(reply: str) -> str:
    if not reply.startswith(ERROR):
        raise ValueError(f"not a reply of the protocol: {reply!r}")
    return reply.removeprefix(ERROR)


class Connection:
    """A connection to the store's server in one node, whose replies are lines."""

    def __init__(self, opened: socket.socket) -> None:
        opened.settimeout(TIMEOUT_S)
        self._socket = opened
        self._lines = opened.makefile("rb")

    def ask(self, line: str) -> str | None:
        """The reply, None if there is none."""
        try:
            self._socket.sendall(line.encode() + b"\n")
            reply = self._lines.readline()
        except OSError:
            return None
        return reply.decode().strip() if reply.endswith(b"\n") else None

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


Connect = Callable[[int], Connection]
"""Connects to the store of a node. Raises OSError."""


class Client(threading.Thread):
    """Puts and gets, one at a time, until `stopped` is set.

    get_command: `get`, or `peek` for reads that are not linearizable.
    """

    def __init__(
        self,
        number: int,
        nodes: Sequence[int],
        connect: Connect,
        histories: Histories,
        *,
        seed: int,
        stopped: threading.Event,
        get_command: str = "get",
    ) -> None:
        super().__init__(name=f"client-{number}", daemon=True)
        self._number = number
        self._nodes = nodes
        self._connect = connect
        self._histories = histories
        self._chance = random.Random(f"{seed} {number}")
        self._stopped = stopped
        self._get = get_command
        self._count = 0

    def run(self) -> None:
        while not self._stopped.is_set():
            node = self._chance.choice(self._nodes)
            try:
                connection = self._connect(node)
            except OSError:
                self._stopped.wait(BACKOFF_S)
                continue
            try:
                for _ in range(STAY):
                    if self._stopped.is_set() or not self.operate(node, connection):
                        break
                    self._stopped.wait(self._chance.uniform(*THINK_S))
            finally:
                connection.close()

    def operate(self, node: int, connection: Connection) -> bool:
        """One put or get; whether it succeeded."""
        key = self._chance.choice(KEYS)
        if self._chance.random() < 0.5:
            return self.put(node, connection, key)
        return self.get(node, connection, key)

    def put(self, node: int, connection: Connection, key: str) -> bool:
        self._count += 1
        value = f"{self._number}-{self._count}"
        self._histories.begin(value)
        begin = time.monotonic()
        reply = connection.ask(f"put {key} {value}")
        operation = Operation(key, value, True, begin, time.monotonic(), node)
        self._histories.put(operation, reply)
        return reply is not None and not reply.startswith(ERROR)

    def get(self, node: int, connection: Connection, key: str) -> bool:
        begin = time.monotonic()
        reply = connection.ask(f"{self._get} {key}")
        value = None if reply == NOTHING else reply
        operation = Operation(key, value, False, begin, time.monotonic(), node)
        self._histories.get(operation, reply)
        return reply is not None and not reply.startswith(ERROR)
