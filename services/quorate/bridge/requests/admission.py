"""Kafka's nodes are admitted to a quorum, or rejected because it has records of applications.

Kafka's nodes fail on records with a key, so a quorum has either applications or Kafka's nodes. A
node's first Fetch, FetchSnapshot or registration is served once the log says, durably, that Kafka's
nodes use the quorum (`runtime.metadata_service`). A request must be authorized, and meant for this
cluster, before it is admitted: it decides for good what the quorum is used for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from quorate.common.error_codes import ErrorCode
from quorate.telemetry.limited_log import LimitedLog

LOGGER = logging.getLogger(__name__)

LOG_INTERVAL_S = 60.0
ADMISSION_MS = 1_000
"""How long a request waits for the commit; Kafka's raft client waits for an answer for 2 s."""
VOTER_ADMISSION_S = 0.02
"""How long a voter's Fetch waits for it before it is served."""

Admit = Callable[[int], Awaitable[tuple[ErrorCode, str]]]
"""`MetadataService.admit_kafka_node`: gets a timeout in ms, returns (error, message)."""


class Admission:
    """Asks `admit`, and logs rejections, at most one line per node and minute."""

    def __init__(self, admit: Admit) -> None:
        self._admit = admit
        self._voters_check: asyncio.Task[tuple[ErrorCode, str]] | None = None
        self._rejected = LimitedLog(LOGGER, interval_s=LOG_INTERVAL_S)

    async def check(self, name: str, node_id: int, host: str) -> tuple[ErrorCode, str]:
        """(error, message); NONE if the node's request may be served.

        POLICY_VIOLATION: the quorum has applications. Any other error: unknown at present. name: of
        the request. host: the node's address.
        """
        return self._noted(name, node_id, host, *await self._admit(ADMISSION_MS))

    async def check_voter(self, name: str, node_id: int, host: str) -> tuple[ErrorCode, str]:
        """The same for a voter, without waiting for the commit.

        The quorum may be unable to commit before this voter is served. An error other than
        POLICY_VIOLATION therefore permits to serve what the log holds now, unless it `is_rejected`,
        but not to wait for further records, which might be those of the first application.
        """
        if self._voters_check is None or self._voters_check.done():
            self._voters_check = asyncio.create_task(self._checked(), name="bridge-admission")
        await asyncio.wait((self._voters_check,), timeout=VOTER_ADMISSION_S)
        if not self._voters_check.done():
            return ErrorCode.REQUEST_TIMED_OUT, ""
        return self._noted(name, node_id, host, *self._voters_check.result())

    async def is_rejected(self) -> bool:
        """Whether the log has records of applications by now; does not wait."""
        error, _ = await self._admit(0)
        return error is ErrorCode.POLICY_VIOLATION

    async def _checked(self) -> tuple[ErrorCode, str]:
        return await self._admit(ADMISSION_MS)

    def close(self) -> None:
        """End the check for voters that is under way."""
        if self._voters_check is not None:
            self._voters_check.cancel()

    def _noted(
        self, name: str, node_id: int, host: str, error: ErrorCode, text: str
    ) -> tuple[ErrorCode, str]:
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
