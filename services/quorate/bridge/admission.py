"""Kafka's nodes are admitted to a quorum, or rejected because it has records of applications.

Kafka's nodes fail on records with a key, so a quorum has either applications or Kafka's nodes. A
node's first Fetch, FetchSnapshot or registration is served once the log says, durably, that Kafka's
nodes use the quorum (`runtime.metadata_service`). A request must be authorized, and meant for this
cluster, before it is admitted: it decides for good what the quorum is used for.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from quorate.raft.errors import ErrorCode
from quorate.telemetry.limited_log import LimitedLog

LOGGER = logging.getLogger(__name__)

LOG_INTERVAL_S = 60.0
ADMISSION_MS = 1_000
"""How long a request waits for the commit; Kafka's raft client waits for an answer for 2 s."""

Admit = Callable[[int], Awaitable[tuple[ErrorCode, str]]]
"""`MetadataService.admit_kafka_node`: gets a timeout in ms, returns (error, message)."""


class Admission:
    """Asks `admit`, and logs rejections, at most one line per node and minute."""

    def __init__(self, admit: Admit) -> None:
        self._admit = admit
        self._rejected = LimitedLog(LOGGER, interval_s=LOG_INTERVAL_S)

    async def check(self, name: str, node_id: int, host: str) -> tuple[ErrorCode, str]:
        """(error, message); NONE if the node's request may be served.

        POLICY_VIOLATION: the quorum has applications. Any other error: unknown at present. name: of
        the request. host: the node's address.
        """
        error, text = await self._admit(ADMISSION_MS)
        if error is ErrorCode.POLICY_VIOLATION:
            self._rejected.warning(
                (host, node_id),
                "bridge: %s of Kafka node %d at %s is rejected: %s",
                name,
                node_id,
                host,
                text,
            )
        return error, text
