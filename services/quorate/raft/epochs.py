"""How far messages may raise a replica's epoch.

Epochs are 31 bits on disk and on the wire. A replica adopts a higher epoch from any message, and
membership is not checked (KIP-853 "Vote": the receiver's voter set may be out of date). Without
limits one message could therefore use up all epochs, and no election could ever be held again.

1. No epoch above `EPOCH_MAX` is adopted, begun or persisted.
2. Every sender has a budget: each voter by its id, all other senders together. It holds
   `BUDGET_EPOCHS` and regains `REFILL_EPOCHS_PER_S`. A raise by up to `SMALL_RAISE` only needs a
   budget that is not empty, so elections never wait; a larger one is taken once per second and
   sender.
3. Answers to Fetch and BeginQuorumEpoch come from a server that this replica dialled. When the
   sender's own budget is too small, they use a further budget of `CATCH_UP_EPOCHS`, one for all
   servers. It covers `quorate recover lost-majority`, which skips 1,000,000 epochs.
4. An answer to Fetch may raise by any amount where nothing is at stake: the replica is not a voter
   in its own view, or its log has no record of epoch >= 1 (a new disk).

The arithmetic: a replica among n voters rises by at most n * 65,536 + 2,097,152 epochs at once and
then by (n + 1) * 4 per second (the other voters, all others together, and answers), whoever sends
whatever. A quorum of three needs 2**31 / 16 s = 4.2 years of that to use up its epochs, one of
seven 2.1 years. A restart fills the budgets. An honest voter raises the epoch by one per election.
"""

from __future__ import annotations

from collections.abc import Container
from enum import Enum

from quorate.common.value import value

EPOCH_MAX = 2**31 - 3
"""The last epoch. Kafka's epochs are int32, and 2**31 - 1 and the one below it are left unused."""

BUDGET_EPOCHS = 65_536
CATCH_UP_EPOCHS = 2_097_152
REFILL_EPOCHS_PER_S = 4
SMALL_RAISE = 64
LARGE_RAISE_PERIOD_MS = 1_000
NOTICE_PERIOD_MS = 60_000

LONG_AGO_MS = -(1 << 62)


class Origin(Enum):
    """What kind of message names an epoch."""

    MESSAGE = "message"
    """A request, or a response to Vote or EndQuorumEpoch."""
    BEGIN_ANSWER = "begin_answer"
    """A response to BeginQuorumEpoch."""
    FETCH_ANSWER = "fetch_answer"
    """A response to Fetch or FetchSnapshot."""


@value
class Verdict:
    """Whether a replica adopts an epoch."""

    reason: str = ""
    """Why the epoch is refused, empty if it is adopted."""
    is_news: bool = False
    """Whether no notice about this sender was emitted for `NOTICE_PERIOD_MS`."""


ADOPTED = Verdict()


class _Budget:
    """A token bucket. `_level` counts thousandths of an epoch: what 1 ms adds is a whole number."""

    __slots__ = ("_at_ms", "_capacity", "_level", "large_at_ms", "noted_at_ms")

    def __init__(self, capacity: int, now_ms: int) -> None:
        self._capacity = self._level = capacity * 1_000
        self._at_ms = now_ms
        self.large_at_ms = self.noted_at_ms = LONG_AGO_MS

    def room(self, now_ms: int) -> int:
        """How many epochs it holds now."""
        gained = (now_ms - self._at_ms) * REFILL_EPOCHS_PER_S
        self._level, self._at_ms = min(self._capacity, self._level + gained), now_ms
        return self._level // 1_000

    def take(self, epochs: int) -> None:
        self._level -= epochs * 1_000


class EpochBudgets:
    """The budgets of all senders (see the module). Its size is that of the voter set."""

    def __init__(self, now_ms: int) -> None:
        self._voters: dict[int, _Budget] = {}
        self._strangers = _Budget(BUDGET_EPOCHS, now_ms)
        self._catch_up = _Budget(CATCH_UP_EPOCHS, now_ms)

    def judge(
        self,
        own: int,
        epoch: int,
        sender: int | None,
        voter_ids: Container[int],
        *,
        origin: Origin,
        now_ms: int,
        has_nothing: bool,
    ) -> Verdict:
        """Whether a replica in epoch `own` adopts the higher `epoch`; if so, the budget pays.

        sender: the id that the sender claims, None if unknown. has_nothing: see rule 4.
        """
        budget = self._budget(sender, voter_ids, now_ms)
        if epoch <= EPOCH_MAX and origin is Origin.FETCH_ANSWER and has_nothing:
            return ADOPTED
        reason = self._refusal(budget, own, epoch, origin, now_ms)
        if not reason:
            return ADOPTED
        is_news = now_ms - budget.noted_at_ms >= NOTICE_PERIOD_MS
        if is_news:
            budget.noted_at_ms = now_ms
        return Verdict(reason, is_news)

    def _budget(self, sender: int | None, voter_ids: Container[int], now_ms: int) -> _Budget:
        if sender is None or sender not in voter_ids:
            return self._strangers
        budget = self._voters.get(sender)
        if budget is None:
            # Those who left the voters are forgotten when somebody new is met.
            self._voters = {i: b for i, b in self._voters.items() if i in voter_ids}
            budget = self._voters[sender] = _Budget(BUDGET_EPOCHS, now_ms)
        return budget

    def _refusal(self, budget: _Budget, own: int, epoch: int, origin: Origin, now_ms: int) -> str:
        if epoch > EPOCH_MAX:
            return f"no epoch above {EPOCH_MAX} is used"
        raised_by, room = epoch - own, budget.room(now_ms)
        is_large = raised_by > SMALL_RAISE
        if is_large and now_ms - budget.large_at_ms < LARGE_RAISE_PERIOD_MS:
            return f"this sender raised the epoch by more than {SMALL_RAISE} less than 1 s ago"
        if raised_by > room:
            if origin is Origin.MESSAGE:
                return f"this sender may raise the epoch by {room} now, not by {raised_by}"
            room = self._catch_up.room(now_ms)
            if raised_by > room:
                return f"answers may raise the epoch by {room} now, not by {raised_by}"
            self._catch_up.take(raised_by)
        else:
            budget.take(raised_by)
        if is_large:
            budget.large_at_ms = now_ms
        return ""
