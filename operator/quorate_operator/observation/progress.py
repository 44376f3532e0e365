"""The progress of a migration from ZooKeeper, from two metrics of the leader.

The operator reads them over plain HTTP from the page that Prometheus scrapes. No decision depends
on them. If the leader does not answer, the status keeps the last values.

Source: KIP-866, "Metrics".
"""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading
from dataclasses import dataclass

from quorate.records.metadata import ZkMigrationState

TIMEOUT_S = 2.0
"""For the connection, and then for the whole response."""
PAGE_BYTES_MAX = 4 * 1024 * 1024
STATE = "zkmigrationstate"
BROKERS = "migratingzkbrokercount"
_SAMPLE = re.compile(
    rf"^quorate_({STATE}|{BROKERS})(?:{{[^}}\n]*}})? ([0-9]{{1,9}})(?:[.][0-9]+)?$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class MigrationProgress:
    """The progress of a migration."""

    state: ZkMigrationState
    brokers: int
    """How many registered brokers run in ZooKeeper mode."""


def read_progress(host: str, port: int) -> MigrationProgress | None:
    """Read the progress from a node; None if it does not answer or is not the leader."""
    page = read_page(host, port, "/metrics")
    return None if page is None else parse_progress(page)


def read_page(host: str, port: int, path: str) -> str | None:
    """Read a page over plain HTTP; None without a whole answer within about 2 * TIMEOUT_S."""
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.connect()
        # The socket's own timeout starts again with every byte.
        deadline = threading.Timer(TIMEOUT_S, _shut_down, (connection.sock,))
        deadline.daemon = True
        deadline.start()
        try:
            connection.request("GET", path)
            page = connection.getresponse().read(PAGE_BYTES_MAX)
        finally:
            deadline.cancel()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return page.decode(errors="replace")


def _shut_down(connected: socket.socket) -> None:
    """End all reads of a connection."""
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


def parse_progress(page: str) -> MigrationProgress | None:
    """Parse Prometheus' text format; None if a metric is missing or the state is unknown."""
    found = {name: int(value) for name, value in _SAMPLE.findall(page)}
    if len(found) < 2 or found[STATE] not in {state.value for state in ZkMigrationState}:
        return None
    return MigrationProgress(ZkMigrationState(found[STATE]), found[BROKERS])
