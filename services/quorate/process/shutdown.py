"""The shutdown of a node: on a signal, on request, or on the first failure."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable

LOGGER = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class NodeError(Exception):
    """The node cannot run, or has failed. The text is one line for the user.

    Example:
        unformatted = settings | {"metadata.log.dir": "/var/lib/unformatted"}
        try:
            async with quorate.Node(unformatted, KeyValues()) as second:
                await second.stopped()
        except quorate.NodeError as error:
            print("the node has stopped:", error)
    """


class Shutdown:
    """The pending shutdown of a node. It belongs to the event loop's thread."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.failure: BaseException | None = None
        self._listeners: list[Callable[[BaseException], None]] = []

    def handle_signals(self) -> None:
        """Request a shutdown on SIGTERM and SIGINT."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.requested.set)

    def add_listener(self, failed: Callable[[BaseException], None]) -> None:
        """Call `failed` on the first failure, before any component stops."""
        self._listeners.append(failed)

    def fail(self, error: BaseException) -> None:
        """Shut down: the disk failed, an invariant broke, or the cluster does not admit the node.

        The first error is kept, and logged as critical.
        """
        if self.failure is None:
            self.failure = error
            LOGGER.critical("stopping after a failure: %s", error)
            for failed in self._listeners:
                failed(error)
        self.requested.set()

    def raise_failure(self) -> None:
        """Raise NodeError, caused by the failure, if the node ends because of one."""
        if isinstance(self.failure, NodeError):
            # Callers may ask often, and each raise would add to the traceback of the one before.
            raise self.failure.with_traceback(None)
        if self.failure is not None:
            raise NodeError(str(self.failure)) from self.failure
