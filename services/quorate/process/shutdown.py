"""How a process ends: at a signal, or at its first failure, which becomes its one line."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class NodeError(Exception):
    """Why the process cannot run; one line for the person who started it."""


class Shutdown:
    """Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.failure: BaseException | None = None
        self._listeners: list[Callable[[BaseException], None]] = []

    def handle_signals(self) -> None:
        """Let SIGTERM and SIGINT request the end."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.requested.set)

    def add_listener(self, failed: Callable[[BaseException], None]) -> None:
        """Call `failed` at the first failure, before anything is stopped."""
        self._listeners.append(failed)

    def fail(self, error: BaseException) -> None:
        """The disk failed, an invariant broke, or the node has no place in the cluster: end."""
        if self.failure is None:
            self.failure = error
            for failed in self._listeners:
                failed(error)
        self.requested.set()

    def raise_failure(self) -> None:
        """Raise NodeError if the process ends because of a failure."""
        if self.failure is not None:
            raise NodeError(str(self.failure))
