"""Logs the role changes of a controller, and why it cannot elect a leader.

1. A role change is one line at INFO. A failed election adds which voters did not answer, and why.
2. After a failed election, role changes are logged at DEBUG until a leader answers: peers that have
   not noticed its death name the dead leader again and again. From the second failure on, a WARNING
   says why there is no leader: soon if that has changed, otherwise every `REPEAT_S`.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable

from quorate.raft import outputs as out
from quorate.raft.outputs import RoleName
from quorate.raft.roles import Candidate, Follower, Prospective, Role, Unattached
from quorate.runtime.driver import RaftDriver
from quorate.runtime.peer_contacts import plain_reason, voter_address

LOGGER = logging.getLogger("quorate.controller")

REPEAT_S = 60.0
CHANGED_S = 5.0
"""The shortest interval between warnings with different reasons, seconds."""


class ElectionLog:
    """Its method `role_changed` is the driver's `on_role`. Call `bind` before the driver starts,
    and `look` from time to time.

    clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._driver: RaftDriver | None = None
        self._role: Role | None = None
        """As of the last change; None if others followed in the same step."""
        self._began_ms = 0
        self._failures = 0
        self._warned = ""
        self._warned_s = 0.0

    def bind(self, driver: RaftDriver) -> None:
        self._driver = driver

    def role_changed(self, change: out.RoleChanged) -> None:
        assert self._driver is not None, "bind() comes first"
        now_ms, role = self._driver.now_ms(), self._driver.node.core.role
        before, began_ms = self._role, self._began_ms
        self._role = role if role.name is change.role else None
        self._began_ms = now_ms
        if change.role is RoleName.LEADER or _is_answered(before):
            self._failures, self._warned = 0, ""
        level, why = (logging.DEBUG if self._failures else logging.INFO), ""
        election = before if isinstance(before, Prospective | Candidate) else None
        if election is not None and has_failed(election, change, role):
            why = self._explained(election, began_ms)
            self._failures += 1
        leader = "unknown" if change.leader_id is None else change.leader_id
        LOGGER.log(
            level,
            "%s in epoch %d, leader %s: %s%s",
            change.role.value,
            change.epoch,
            leader,
            change.reason,
            f" ({why})" if why else "",
            extra={"epoch": change.epoch},
        )
        if election is not None and why and self._failures > 1:
            self._warn(election, why)

    def look(self) -> None:
        """Log that a leader answers after elections that failed."""
        assert self._driver is not None, "bind() comes first"
        role = self._driver.node.core.role
        if self._failures and isinstance(role, Follower) and _is_answered(role):
            LOGGER.info(
                "leader %d of epoch %d answers, after %d failed election%s",
                role.leader_id,
                role.epoch,
                self._failures,
                "" if self._failures == 1 else "s",
            )
            self._failures, self._warned = 0, ""

    def _warn(self, election: Prospective | Candidate, why: str) -> None:
        now_s = self._clock()
        if self._warned:
            pause_s = REPEAT_S if why == self._warned else CHANGED_S
            if now_s - self._warned_s < pause_s:
                return
        self._warned, self._warned_s = why, now_s
        ballot = election.ballot
        LOGGER.warning(
            "cannot elect a leader for epoch %d: %s; %d of the %d votes needed",
            election.epoch,
            why,
            len(ballot.granted),
            ballot.needed,
        )

    def _explained(self, election: Prospective | Candidate, began_ms: int) -> str:
        """Which voters did not answer or denied their vote, and why; "" if none did."""
        assert self._driver is not None, "bind() comes first"
        core, contacts = self._driver.node.core, self._driver.contacts
        ballot = election.ballot
        silent: dict[str, list[str]] = defaultdict(list)
        denied = []
        for voter in ballot.voters:
            if voter.id == core.local.id or voter.id in ballot.granted | ballot.granted_if_all:
                continue
            address = voter_address(core.config, voter)
            shown = f"{voter.id} at {address}" if address else f"{voter.id}"
            contact = contacts.with_voter(core.config, voter, began_ms)
            if voter.id in ballot.rejected or (contact is not None and not contact.failure):
                denied.append(shown)
            else:
                reason = "" if contact is None else plain_reason(contact.failure, address)
                silent[reason].append(shown)
        texts = [
            f"no response from {_voters(who)}" + (f": {reason}" if reason else "")
            for reason, who in silent.items()
        ]
        if denied:
            texts.append(f"{_voters(denied)} denied the vote")
        return "; ".join(texts)


def _is_answered(role: Role | None) -> bool:
    """Whether the leader has answered a fetch of this follower."""
    return isinstance(role, Follower) and role.leader_answered


def has_failed(election: Prospective | Candidate, change: out.RoleChanged, role: Role) -> bool:
    """Whether this change ends `election` without a leader and without a vote for another.

    role: the current one.
    """
    if change.epoch != election.epoch:
        return False
    if isinstance(election, Candidate):
        return change.role is RoleName.PROSPECTIVE
    voted = role.voted if isinstance(role, Unattached) else election.voted
    return change.role is RoleName.UNATTACHED and voted == election.voted


def _voters(shown: Iterable[str]) -> str:
    *others, last = shown
    return f"voters {', '.join(others)}, {last}" if others else f"voter {last}"
