"""Logs on the leader which voters stop fetching, and which return.

A voter is lost once it has not fetched for the fetch timeout, at two looks in a row: after a pause
of the leader's own event loop, the fetches of all voters wait to be read.
"""

from __future__ import annotations

import asyncio
import logging

from quorate.raft.replication import progress_of
from quorate.raft.roles import Leader
from quorate.raft.types import ReplicaKey, Voter
from quorate.rpc.cancellation import cancel_tasks
from quorate.runtime.driver import RaftDriver
from quorate.runtime.election_log import ElectionLog
from quorate.runtime.peer_contacts import plain_reason, voter_address
from quorate.runtime.tasks import supervise

LOGGER = logging.getLogger("quorate.controller")

PERIOD_S = 0.25


class VoterWatch:
    """Start it after the driver. elections: checked at the same times."""

    def __init__(self, driver: RaftDriver, elections: ElectionLog) -> None:
        self._driver = driver
        self._elections = elections
        self._task: asyncio.Task[None] | None = None
        self._epoch = -1
        self._suspected: set[ReplicaKey] = set()
        self._lost: dict[ReplicaKey, int] = {}
        """The time of the last fetch of each lost voter, of the driver's clock."""

    def start(self) -> None:
        self._task = supervise(self._run(), "voter-watch", _failed)

    async def stop(self) -> None:
        await cancel_tasks(self._task)

    async def _run(self) -> None:
        while True:
            self.look()
            self._elections.look()
            await asyncio.sleep(PERIOD_S)

    def look(self) -> None:
        """Compare what the voters fetched with the last look."""
        core = self._driver.node.core
        leader = core.role
        if not isinstance(leader, Leader) or leader.epoch != self._epoch:
            self._epoch = leader.epoch if isinstance(leader, Leader) else -1
            self._suspected.clear()
            self._lost.clear()
        if not isinstance(leader, Leader):
            return
        now_ms = self._driver.now_ms()
        others = {voter.key: voter for voter in core.voters if voter.id != core.local.id}
        fetched_ms = {key: _last_fetch_ms(leader, voter) for key, voter in others.items()}
        silent = {
            key
            for key, at_ms in fetched_ms.items()
            if now_ms - at_ms > core.config.fetch_timeout_ms
        }
        for key in [key for key in self._lost if key not in silent]:
            lost_ms = self._lost.pop(key)
            if key in others:
                self._log_return(others[key], now_ms - lost_ms)
        for key in sorted(silent & self._suspected - self._lost.keys()):
            self._lost[key] = fetched_ms[key]
            self._log_loss(leader, others[key], now_ms)
        self._suspected = silent

    def _log_loss(self, leader: Leader, voter: Voter, now_ms: int) -> None:
        core = self._driver.node.core
        address = voter_address(core.config, voter)
        last_ms = self._lost[voter.key]
        progress = progress_of(leader, voter)
        seconds = (now_ms - last_ms) / 1000
        since = f"last fetch {seconds:.1f} s ago"
        if progress is None or progress.last_fetch_ms < 0:
            since = f"no fetch since this controller became the leader {seconds:.1f} s ago"
        contact = self._driver.contacts.with_voter(core.config, voter, last_ms)
        if contact is not None and contact.failure:
            since = f"{since}, {plain_reason(contact.failure, address)}"
        count, majority = len(core.voters), core.voters.majority
        remaining = count - len(self._lost)
        LOGGER.warning(
            "lost voter %s: %s; %d of %d voters %s, a commit needs %d",
            _shown(voter, address),
            since,
            remaining,
            count,
            "remains" if remaining == 1 else "remain",
            majority,
        )

    def _log_return(self, voter: Voter, absent_ms: int) -> None:
        shown = _shown(voter, voter_address(self._driver.node.core.config, voter))
        LOGGER.info("voter %s fetches again, after %.1f s", shown, absent_ms / 1000)


def _last_fetch_ms(leader: Leader, voter: Voter) -> int:
    """When a voter last fetched from this leader, or when it was elected if it never did."""
    progress = progress_of(leader, voter)
    return leader.since_ms if progress is None else max(progress.last_fetch_ms, leader.since_ms)


def _shown(voter: Voter, address: str) -> str:
    return f"{voter.id} at {address}" if address else f"{voter.id}"


def _failed(error: BaseException) -> None:
    LOGGER.error("%s: lost voters are no longer logged", error)
