"""How far a migration from ZooKeeper is: two of the metrics of the node that leads.

Read over plain HTTP from the page that Prometheus reads too; nothing is decided by it. Where
nobody answers, what was said last stays in the status.

Source: KIP-866, "Metrics".
"""

from __future__ import annotations

import http.client
import re
from dataclasses import dataclass

from quorate.records.metadata import ZkMigrationState

TIMEOUT_S = 2.0
PAGE_BYTES_MAX = 4 * 1024 * 1024
STATE = "zkmigrationstate"
BROKERS = "migratingzkbrokercount"
_SAMPLE = re.compile(rf"^quorate_({STATE}|{BROKERS})(?:{{[^}}]*}})? ([0-9.]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Progress:
    """brokers: how many of those that are registered run in ZooKeeper mode."""

    state: ZkMigrationState
    brokers: int


def read_progress(host: str, port: int) -> Progress | None:
    """What a node says; None if it does not answer, or does not lead."""
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        page = connection.getresponse().read(PAGE_BYTES_MAX)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return parse_progress(page.decode(errors="replace"))


def parse_progress(page: str) -> Progress | None:
    """From the text of Prometheus."""
    found = {name: int(float(value)) for name, value in _SAMPLE.findall(page)}
    if len(found) < 2 or found[STATE] not in {state.value for state in ZkMigrationState}:
        return None
    return Progress(ZkMigrationState(found[STATE]), found[BROKERS])
