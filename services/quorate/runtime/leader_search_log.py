"""Logs that a replica finds no leader, and how the nodes that it asks respond.

It is for replicas that only fetch: observers, and voters that cannot be elected. What keeps the
others from electing a leader is in `election_log`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict

from quorate.rpc.cancellation import cancel_tasks
from quorate.rpc.wire.limits import format_address
from quorate.runtime.driver import RaftDriver
from quorate.runtime.peer_contacts import plain_reason
from quorate.runtime.tasks import OnFailure, supervise

LOGGER = logging.getLogger(__name__)

PERIOD_S = 1.0
PATIENCE_S = 10.0
"""How long a replica searches before it says so, and how often other reasons are logged."""
REPEAT_S = 60.0
"""How often the same reasons are logged."""


class LeaderSearchLog:
    """Start it after the driver."""

    def __init__(self, driver: RaftDriver, on_fatal: OnFailure) -> None:
        self._driver = driver
        self._on_fatal = on_fatal
        self._task: asyncio.Task[None] | None = None
        self._since_ms: int | None = None
        """When the search began, by the driver's clock; None while there is none."""
        self._warned = ""
        self._warned_ms = 0

    def start(self) -> None:
        self._task = supervise(self._run(), "leader-search", self._on_fatal)

    async def stop(self) -> None:
        await cancel_tasks(self._task)

    async def _run(self) -> None:
        while True:
            self.look(self._driver.now_ms())
            await asyncio.sleep(PERIOD_S)

    def look(self, now_ms: int) -> None:
        """Log what has changed since the last look."""
        node = self._driver.node
        if node.is_attached or node.core.is_electable:
            if self._warned and node.is_attached:
                seconds = (now_ms - (self._since_ms or now_ms)) / 1000
                LOGGER.info("leader %s found after %.0f s", node.core.leader_id, seconds)
            self._since_ms, self._warned = None, ""
            return
        if self._since_ms is None:
            self._since_ms = now_ms
        if now_ms - self._since_ms < PATIENCE_S * 1000:
            return
        why = self._explained(self._since_ms)
        pause_s = REPEAT_S if why == self._warned else PATIENCE_S
        if self._warned and now_ms - self._warned_ms < pause_s * 1000:
            return
        self._warned, self._warned_ms = why, now_ms
        LOGGER.warning("no leader found for %.0f s: %s", (now_ms - self._since_ms) / 1000, why)

    def _explained(self, since_ms: int) -> str:
        """How each node responded last since the search began."""
        responses: dict[str, list[str]] = defaultdict(list)
        for peer, contact in self._driver.contacts.since(since_ms).items():
            address = format_address(peer.host, peer.port)
            reason = plain_reason(contact.failure, address)
            responses[reason].append(address)
        if not responses:
            return "no other node has been asked. Check controller.quorum.bootstrap.servers"
        return "; ".join(
            f"no response from {_joined(who)}: {reason}"
            if reason
            else f"{_joined(who)} did not name a leader that responds"
            for reason, who in sorted(responses.items())
        )


def _joined(addresses: list[str]) -> str:
    *others, last = sorted(addresses)
    return f"{', '.join(others)} and {last}" if others else last
