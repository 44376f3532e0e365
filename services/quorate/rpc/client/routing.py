"""Finds the leader for a client, and retries requests.

To reach the leader (until the deadline):
1. Try the last known leader, then the bootstrap nodes, then those that others named. Nodes that did
   not answer last time come last.
2. A node that answers NOT_LEADER_OR_FOLLOWER has done nothing: learn the leader that it names,
   unless its epoch is older than the known one, and try that next. No address is tried twice in one
   round. Outside of a cluster, the leader's own address may be unreachable: it is tried once in an
   epoch, and an address at which the leader answered is not given up for it.
3. No connection, or a node that does not serve the request: nothing was done, so try the next one.
   The same if the node belongs to another cluster; if all do, the search ends.
4. A broken connection, a timeout, or a silent node: the request may have been executed. Retry it
   only if it may be executed twice.
5. After a round without a leader, or if the leader is overloaded, wait 20 to 500 ms, growing and
   random, and start again with 1.

Source: KIP-853 (CurrentLeader in every response); tenacity for 5.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol, TypeVar, cast

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.raft.messages import CurrentLeader
from quorate.rpc.client.cluster import check_not_foreign
from quorate.rpc.errors import NoLeaderError, TransportError, TransportKind, UnreachableError
from quorate.rpc.wire.limits import format_address

BACKOFF_MIN_S = 0.02
BACKOFF_MAX_S = 0.5
ADDRESSES_MAX = 64
"""Addresses that a client remembers, and tries in one round."""

Address = tuple[str, int]


class NodeResponse(Protocol):
    """What the responses of all nodes have in common."""

    @property
    def error(self) -> ErrorCode: ...
    @property
    def leader(self) -> CurrentLeader: ...


R = TypeVar("R", bound=NodeResponse)
Call = Callable[[Address, float], Awaitable[R]]
"""Calls one node and waits at most this many milliseconds. Raises TransportError."""

NOT_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER)


def now_ms() -> float:
    """The running loop's clock in milliseconds: deadlines are points on it."""
    return asyncio.get_running_loop().time() * 1000


class Route:
    """The addresses of nodes and of the leader, as a client knows them."""

    def __init__(self, bootstrap: Sequence[Address]) -> None:
        self._bootstrap = tuple(bootstrap)
        self._others: deque[Address] = deque(maxlen=ADDRESSES_MAX)
        self._leader: tuple[Address, ...] = ()
        self._lost: set[Address] = set()
        self._epoch = -1

    def order(self) -> list[Address]:
        """All addresses, the likeliest first; those that did not answer last time come last."""
        known = dict.fromkeys((*self._leader, *self._bootstrap, *self._others))
        return sorted(known, key=self._lost.__contains__)

    def shuffled(self) -> list[Address]:
        """All addresses in random order; those that did not answer last time come last."""
        known = self.order()
        random.shuffle(known)
        return sorted(known, key=self._lost.__contains__)

    def learn(self, leader: CurrentLeader) -> tuple[Address, ...]:
        """Learn a node's view of the leader; returns the leader's addresses that are worth a try.

        That is none if the view is outdated, or if no node answered there in this epoch.
        """
        if leader.epoch < self._epoch:
            return ()
        # Only the first listener is certain to speak gRPC, as with voters.
        addresses = self.learn_nodes(leader.endpoints[:1])
        if leader.epoch > self._epoch:
            self._lost.difference_update(addresses)
        addresses = tuple(each for each in addresses if each not in self._lost)
        if leader.epoch > self._epoch or not self._leader:
            self._leader = addresses
        self._epoch = leader.epoch
        return addresses

    def learn_nodes(self, endpoints: Iterable[Endpoint]) -> tuple[Address, ...]:
        """Remember the addresses of other nodes, and return them."""
        addresses = tuple((endpoint.host, endpoint.port) for endpoint in endpoints)
        for address in addresses:
            if address not in self._others and address not in self._bootstrap:
                self._others.append(address)
        return addresses

    def confirm(self, address: Address, epoch: int) -> None:
        """Note that the leader answered at `address`."""
        if epoch >= self._epoch:
            self._leader, self._epoch = (address,), epoch

    def responded(self, address: Address) -> None:
        """Note that a node answers at `address`."""
        self._lost.discard(address)

    def lost(self, address: Address) -> None:
        """Note that no node answers at `address`."""
        self._lost = {*self._lost.intersection(self.order()), address}
        self._leader = tuple(known for known in self._leader if known != address)


class _NoLeaderYetError(Exception):
    """A round found no leader, or only an overloaded one, which sent `answer`.

    none_asked: the deadline passed before the round.
    """

    def __init__(self, answer: NodeResponse | None = None, *, none_asked: bool = False) -> None:
        super().__init__()
        self.answer = answer
        self.none_asked = none_asked


class LeaderSearch:
    """Sends requests to the current leader; see the steps above."""

    def __init__(self, route: Route) -> None:
        self.route = route

    async def ask(self, call: Call[R], timeout_ms: float, *, may_repeat: bool) -> R:
        """The leader's response, or any other node's that is not NOT_LEADER_OR_FOLLOWER.

        may_repeat: whether the request may be executed twice. Raises NoLeaderError,
        UnreachableError, AdminError if all nodes belong to another cluster, and the TransportError
        of step 4 if the request must not be retried or the deadline has passed.
        """
        deadline = now_ms() + timeout_ms
        attempts: dict[str, str] = {}
        responded: set[str] = set()
        answer: NodeResponse | None = None

        async def one_round() -> R:
            nonlocal answer
            try:
                return await self._round(call, deadline, attempts, responded, may_repeat)
            except _NoLeaderYetError as error:
                if not error.none_asked:
                    answer = error.answer
                raise

        try:
            try:
                # The first round nearly always succeeds, so it bypasses the retry machinery.
                return await one_round()
            except _NoLeaderYetError:
                await asyncio.sleep(min(BACKOFF_MIN_S, max(0.0, deadline - now_ms()) / 1000))
                return await self._rounds(deadline)(one_round)
        except _NoLeaderYetError:
            if answer is not None:
                return cast(R, answer)
            if responded:
                raise NoLeaderError(round(timeout_ms), attempts) from None
            raise UnreachableError(attempts) from None

    @staticmethod
    def _rounds(deadline: float) -> AsyncRetrying:
        """The retries of step 5."""

        def is_over(state: RetryCallState) -> bool:
            return now_ms() + state.upcoming_sleep * 1000 >= deadline

        return AsyncRetrying(
            retry=retry_if_exception_type(_NoLeaderYetError),
            wait=wait_random_exponential(
                multiplier=2 * BACKOFF_MIN_S, min=BACKOFF_MIN_S, max=BACKOFF_MAX_S
            ),
            stop=is_over,
            reraise=True,
        )

    async def _round(
        self,
        call: Call[R],
        deadline: float,
        attempts: dict[str, str],
        responded: set[str],
        may_repeat: bool,
    ) -> R:
        waiting = deque(self.route.order())
        asked: set[Address] = set()
        while waiting and len(asked) < ADDRESSES_MAX:
            address = waiting.popleft()
            remaining_ms = deadline - now_ms()
            if address in asked or remaining_ms <= 0:
                continue
            asked.add(address)
            shown = format_address(*address)
            try:
                answer = await call(address, remaining_ms)
            except TransportError as error:
                self.route.lost(address)
                attempts[shown] = error.text
                if error.kind is TransportKind.CLOSED:
                    raise UnreachableError(attempts) from None
                if error.kind is TransportKind.NOT_SERVED:
                    responded.add(shown)
                if error.nothing_done or (may_repeat and deadline > now_ms()):
                    continue
                raise
            responded.add(shown)
            self.route.responded(address)
            if answer.error is ErrorCode.INCONSISTENT_CLUSTER_ID:
                attempts[shown] = answer.error.name  # an earlier version, by the request itself
                continue
            if answer.error is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                raise _NoLeaderYetError(answer)
            if answer.error not in NOT_LEADER:
                self.route.confirm(address, answer.leader.epoch)
                return answer
            attempts[shown] = _describe(answer.leader)
            waiting.extendleft(reversed(self.route.learn(answer.leader)))
        check_not_foreign(attempts)
        raise _NoLeaderYetError(none_asked=not asked)


def _describe(leader: CurrentLeader) -> str:
    if leader.id is None:
        return f"reports no leader for epoch {leader.epoch}"
    return f"names node {leader.id} as the leader of epoch {leader.epoch}"
