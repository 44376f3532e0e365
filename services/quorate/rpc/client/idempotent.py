"""Appends that the client repeats until they are answered: each is in the log at most once.

The client opens a producer session with its first append. The batches of a session are numbered, so
the leader recognizes a batch that the log already contains (`quorate.applications.sessions`).

Rules:
1. Batches are sent in the order in which callers submitted them, at most `WINDOW` at a time, and
   none more than `WINDOW` batches after one that is not answered: the leader forgets the offsets of
   older ones. Those that were sent form the window. If the connection breaks or the leader changes,
   the client sends the window again, in order: first one batch, which shows whether the node leads,
   then the rest.
2. A batch gets its number when it is sent for the first time. If every response to it shows that
   nothing was appended, and the same holds for all later batches, it leaves the window, and its
   number is used again. No copy of it is then under way. It is *doubtful* once a response is
   missing or does not tell; it then keeps its number, and the same records.
3. A batch that the leader rejects leaves a gap, so the leader rejects all later ones: these are
   certainly not in the log. If copies of them may still be under way, they are sent in a new
   session, because their numbers in the old one must stay unused.
4. A session ends once it was idle for too long. Doubtful batches then have an unknown outcome; the
   others are sent in a new session.
5. A caller's timeout ends its wait. The batch stays in the window until it is answered, because
   later ones depend on it. A batch that was not sent leaves the queue: nothing was appended.
6. Without sessions (application.version 0, or a leader of an earlier version), batches are sent as
   `appending` does. The client asks again after `PLAIN_MS`.
7. Appends with conditions are sent in other sessions, each alone in its own: a batch whose
   conditions do not hold leaves no gap then.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from quorate.common.error_codes import ErrorCode
from quorate.rpc.cancellation import cancel_tasks
from quorate.rpc.client.appending import (
    ANSWER_SLACK_MS,
    AppendConnection,
    Appender,
    rejection,
)
from quorate.rpc.client.client_session import ClientSession, SessionBatch
from quorate.rpc.client.routing import (
    BACKOFF_MAX_S,
    BACKOFF_MIN_S,
    NOT_LEADER,
    Address,
    LeaderSearch,
    now_ms,
)
from quorate.rpc.errors import (
    AdminError,
    ClientError,
    NoLeaderError,
    TransportError,
    TransportKind,
    UnreachableError,
)
from quorate.rpc.wire.values import (
    NO_CONDITIONS,
    NOT_APPENDED,
    AppendOutcome,
    AppendResult,
    LogOffsets,
    OpaqueRecord,
    OpenProducerResponse,
)
from quorate.telemetry.context import TRACE_PARENT

LOGGER = logging.getLogger(__name__)

WINDOW = 16
"""The most batches that are sent and not yet answered; a leader remembers twice as many."""
PLAIN_MS = 60_000
"""How long the client appends without a session before it asks for one again."""
RESIGNED_WAIT_S = 1.0
"""How long a node that no longer leads may take to answer what it got before."""
SEARCH_SLACK_S = 1.0
"""How much longer than a caller's timeout the search for a leader may take."""
CONDITIONAL_MAX = 16
"""The most sessions of a client for appends with conditions."""

_SESSION_ENDED = (
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNSUPPORTED_VERSION,
)
_RETRIED = (*NOT_LEADER, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
_UNKNOWN = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR)


class _NothingToSendError(Exception):
    """No caller waits any more."""


OpenSession = Callable[[float], Awaitable[OpenProducerResponse]]
"""Asks the leader for a session, within a timeout in ms. Raises ClientError."""


class IdempotentAppender:
    """Appends batches in producer sessions, or through `appender` without one."""

    def __init__(self, appender: Appender, search: LeaderSearch, open_session: OpenSession) -> None:
        self._make = partial(SessionAppender, appender, search, open_session)
        self._all = self._make()
        self._conditional: list[SessionAppender] = []

    async def append(
        self,
        records: Sequence[OpaqueRecord],
        timeout_ms: float,
        conditions: LogOffsets = NO_CONDITIONS,
    ) -> AppendResult:
        """Append one batch in the caller's task, which must not be cancelled.

        Raises as `QuorumClient.append`.
        """
        session = self._free() if conditions else self._all
        return await session.append(records, timeout_ms, conditions)

    def _free(self) -> SessionAppender:
        """A session for an append with conditions (rule 7)."""
        for session in self._conditional:
            if session.is_idle:
                return session
        is_room = len(self._conditional) < CONDITIONAL_MAX
        # Sessions that are busy take turns.
        self._conditional.append(self._make(window=1) if is_room else self._conditional.pop(0))
        return self._conditional[-1]

    def level_changed(self) -> None:
        """Ask for sessions again, although there were none (rule 6)."""
        for session in (self._all, *self._conditional):
            session.plain_until_ms = 0.0

    async def close(self) -> None:
        """Send nothing more. Batches that were sent may be committed."""
        for session in (self._all, *self._conditional):
            await session.close()


class SessionAppender:
    """Appends batches in one producer session after the other, at most `window` at a time."""

    def __init__(
        self,
        appender: Appender,
        search: LeaderSearch,
        open_session: OpenSession,
        *,
        window: int = WINDOW,
    ) -> None:
        self._limit = window
        self._appender = appender
        self._search = search
        self._open_session = open_session
        self._session: ClientSession | None = None
        self._waiting: deque[SessionBatch] = deque()
        self._window: deque[SessionBatch] = deque()
        self.plain_until_ms = 0.0
        self._changed = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None
        self._plain: set[asyncio.Task[None]] = set()
        self._error: ClientError | None = None
        self._is_serving = False
        self._is_closed = False

    @property
    def is_idle(self) -> bool:
        """Whether a batch would be sent at once."""
        return not self._waiting and not self._window

    async def append(
        self, records: Sequence[OpaqueRecord], timeout_ms: float, conditions: LogOffsets
    ) -> AppendResult:
        """See `IdempotentAppender.append`."""
        # Records without a key are metadata: the controller appends those, without a session.
        if self.plain_until_ms > now_ms() or records[0][0] is None or self._is_closed:
            return await self._appender.append(records, timeout_ms, conditions)
        return await self._appender.traced(self._submit, records, timeout_ms, conditions)

    async def _submit(
        self, records: Sequence[OpaqueRecord], timeout_ms: float, conditions: LogOffsets
    ) -> AppendResult:
        loop = asyncio.get_running_loop()
        deadline_ms = now_ms() + timeout_ms
        result: asyncio.Future[AppendResult] = loop.create_future()
        batch = SessionBatch(records, conditions, deadline_ms, result, TRACE_PARENT.get())
        self._waiting.append(batch)
        self._changed.set()
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._run())
        patience_s = (timeout_ms + ANSWER_SLACK_MS) / 1000
        timer = loop.call_later(patience_s, self._expire, batch, timeout_ms)
        try:
            return await batch.result
        finally:
            timer.cancel()

    def _expire(self, batch: SessionBatch, timeout_ms: float, *, is_late: bool = False) -> None:
        """Apply rule 5."""
        text = f"no answer within {timeout_ms:.0f} ms"
        if batch not in self._waiting:
            batch.fail_in_doubt(text if self._error is None else f"{text} ({self._error})")
            return
        if not self._is_serving and not is_late:
            # The search for a leader ends at the same time, and its error says more.
            late = partial(self._expire, batch, timeout_ms, is_late=True)
            asyncio.get_running_loop().call_later(SEARCH_SLACK_S, late)
            return
        self._waiting.remove(batch)
        waits = "earlier appends of this client are not answered yet; nothing was appended"
        batch.fail(self._error or AdminError(ErrorCode.REQUEST_TIMED_OUT, waits))

    async def close(self) -> None:
        """Send nothing more. Batches that were sent may be committed."""
        self._is_closed = True
        for batch in self._waiting:
            batch.fail(ClientError("the client was closed before this was sent"))
        for batch in self._window:
            batch.fail_in_doubt("the client was closed")
        self._waiting.clear()
        await cancel_tasks(self._sender, *self._plain)

    # --- the task that sends ----------------------------------------------------------------------

    @property
    def _wanted(self) -> list[SessionBatch]:
        """The batches whose callers wait."""
        return [each for each in (*self._window, *self._waiting) if not each.result.done()]

    async def _run(self) -> None:
        """Send batches until no caller waits."""
        pause_s = BACKOFF_MIN_S
        while wanted := self._wanted:
            deadline_ms = min(batch.deadline_ms for batch in wanted)
            try:
                await self._proceed(max(1.0, deadline_ms - now_ms()))
            except (NoLeaderError, UnreachableError) as error:
                self._fail_due(error, deadline_ms)
            except AdminError as error:
                is_final = error.code not in (*_RETRIED, *_UNKNOWN)
                self._fail_due(error, math.inf if is_final else min(deadline_ms, now_ms()))
            except TransportError as error:
                LOGGER.debug("appending was interrupted: %s", error)
            except Exception as error:
                LOGGER.exception("appending failed")
                self._fail_all(error)
                raise
            if len(self._wanted) < len(wanted):
                pause_s = BACKOFF_MIN_S
            else:
                await asyncio.sleep(random.uniform(BACKOFF_MIN_S, pause_s))  # noqa: S311
                pause_s = min(2 * pause_s, BACKOFF_MAX_S)

    async def _proceed(self, left_ms: float) -> None:
        """Open a session if there is none, then send until something prevents it.

        left_ms: how long to search for a leader.
        """
        if self._session is not None and self._session.is_ending and not self._window:
            self._session = None
        if self._session is None and not await self._open(left_ms):
            return
        try:
            outcome = await self._search.ask(self._serve, left_ms, may_repeat=True)
        except _NothingToSendError:
            return
        if outcome.error is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            raise AdminError(outcome.error, outcome.message)

    async def _open(self, left_ms: float) -> bool:
        """Open a session. False if there are none now, or none for this client."""
        response = await self._open_session(left_ms)
        match code := response.error:
            case ErrorCode.NONE:
                self._session = ClientSession(response.producer_id, response.producer_epoch)
                return True
            case ErrorCode.UNSUPPORTED_VERSION:
                self.plain_until_ms = now_ms() + PLAIN_MS
                while self._waiting:
                    self._append_plainly(self._waiting.popleft())
            case _ if code in (*_RETRIED, *_UNKNOWN):
                raise AdminError(code, response.message)
            case _:
                while self._waiting:
                    self._waiting.popleft().fail(AdminError(code, response.message))
        return False

    def _append_plainly(self, batch: SessionBatch) -> None:
        async def append() -> None:
            TRACE_PARENT.set(batch.trace_parent)
            try:
                result = await self._appender.append_once(
                    batch.records, batch.left_ms, batch.conditions
                )
            except ClientError as error:
                batch.fail(error)
            except asyncio.CancelledError:
                batch.fail_in_doubt("the client was closed")
                raise
            else:
                if not batch.result.done():
                    batch.result.set_result(result)

        task = asyncio.create_task(append())
        self._plain.add(task)
        task.add_done_callback(self._plain.discard)

    def _fail_due(self, error: ClientError, deadline_ms: float) -> None:
        """Fail what was not sent and has no time for another search. deadline_ms: of the last."""
        self._error = error
        for batch in [each for each in self._waiting if each.deadline_ms <= deadline_ms]:
            self._waiting.remove(batch)
            batch.fail(error)

    def _fail_all(self, error: Exception) -> None:
        for batch in self._wanted:
            batch.fail_in_doubt(f"appending failed: {error!r}")
        self._waiting.clear()
        self._window.clear()
        self._session = None

    async def _serve(self, address: Address, left_ms: float) -> AppendOutcome:
        """Send to one node until it has answered everything, or something prevents it.

        Returns the response that ended it. Raises TransportError, _NothingToSendError.
        """
        assert self._session is not None, "`_proceed` has opened one"
        connection = await self._appender.connection(address, left_ms)
        self._error = None
        exchange = _Exchange(
            connection, self._session, self._window, self._waiting, self._changed, limit=self._limit
        )
        self._is_serving = True
        try:
            return await exchange.run()
        finally:
            self._is_serving = False
            if exchange.is_broken and connection.is_idle:
                await connection.close()


class _Exchange:
    """The batches that are sent over one connection, and the responses to them.

    is_broken: whether the connection is of no use any more.
    """

    def __init__(
        self,
        connection: AppendConnection,
        session: ClientSession,
        window: deque[SessionBatch],
        waiting: deque[SessionBatch],
        changed: asyncio.Event,
        *,
        limit: int,
    ) -> None:
        self.is_broken = False
        self._error: TransportError | None = None
        self._refusal: AppendOutcome | None = None
        self._connection = connection
        self._session = session
        self._window = window
        self._waiting = waiting
        self._changed = changed
        self._limit = limit
        self._unsent = deque(window)
        self._in_flight: dict[asyncio.Task[AppendOutcome], SessionBatch] = {}
        self._answered: deque[asyncio.Task[AppendOutcome]] = deque()
        self._last: AppendOutcome | None = None
        self._is_interrupted = False

    async def run(self) -> AppendOutcome:
        try:
            while self._send() or self._in_flight:
                self._changed.clear()
                if not self._answered and not await self._wait():
                    await self._connection.close()  # what is under way fails
                while self._answered:
                    task = self._answered.popleft()
                    self._settle(self._in_flight.pop(task), task)
        finally:
            for batch in self._in_flight.values():
                batch.is_doubtful = True
            self._release()
        if self._error is not None:
            raise self._error
        answer = self._refusal or self._last
        if answer is None:
            raise _NothingToSendError
        return answer

    async def _wait(self) -> bool:
        """Wait for a change. False if the remaining responses of a broken connection are late."""
        try:
            async with asyncio.timeout(RESIGNED_WAIT_S if self.is_broken else None):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    # --- sending ----------------------------------------------------------------------------------

    def _send(self) -> bool:
        """Send what may be sent now; returns whether that was anything."""
        limit = self._limit if self._connection.has_led else 1
        is_any = False
        while len(self._in_flight) < limit and (batch := self._next()) is not None:
            task = asyncio.create_task(
                self._connection.send(
                    batch.records,
                    batch.left_ms,
                    batch.conditions,
                    batch.trace_parent,
                    batch.producer,
                )
            )
            self._in_flight[task] = batch
            task.add_done_callback(self._done)
            is_any = True
        return is_any

    def _next(self) -> SessionBatch | None:
        if self._is_interrupted:
            return None
        if self._unsent:
            return self._unsent.popleft()
        if self._session.is_ending or not self._waiting:
            return None
        if self._window and self._session.next_ordinal - self._window[0].ordinal >= self._limit:
            return None
        batch = self._waiting.popleft()
        self._session.number(batch)
        self._window.append(batch)
        return batch

    def _done(self, task: asyncio.Task[AppendOutcome]) -> None:
        if not task.cancelled():
            task.exception()  # marks it retrieved: the exchange may be over
        self._answered.append(task)
        self._changed.set()

    # --- responses --------------------------------------------------------------------------------

    def _settle(self, batch: SessionBatch, task: asyncio.Task[AppendOutcome]) -> None:
        try:
            outcome = task.result()
        except TransportError as error:
            self._unanswered(batch, error)
            return
        except Exception as error:
            self._reject(batch, error)  # it cannot be encoded
            return
        self._last = outcome
        is_first = batch is self._window[0]
        match code := outcome.error:
            case ErrorCode.NONE:
                self._connection.has_led = True
                self._window.remove(batch)
                if not batch.result.done():
                    batch.result.set_result(AppendResult(outcome.base_offset, outcome.epoch))
            case ErrorCode.REQUEST_TIMED_OUT:
                # The log has it, unless the node has lost leadership, which the next response says.
                batch.is_doubtful = True
                self._unsent.appendleft(batch)
            case _ if code in _RETRIED:
                self._is_interrupted = True
                self._refusal = outcome
                self.is_broken = self.is_broken or code in NOT_LEADER
                self._connection.has_led = not self.is_broken
            case ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if not is_first or self._is_interrupted:
                self._is_interrupted = True
            case ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                self._end_session(batch, outcome)
            case _ if code in _SESSION_ENDED:
                self._end_session(batch, outcome)
            case ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self._window.remove(batch)
                batch.fail_in_doubt(f"{code.name} {outcome.message}".rstrip())
            case _ if code in NOT_APPENDED:
                self._reject(batch, rejection(outcome))
            case _:
                batch.is_doubtful = True
                self._is_interrupted = True

    def _unanswered(self, batch: SessionBatch, error: TransportError) -> None:
        self._is_interrupted = True
        if error.kind is TransportKind.TOO_LARGE:
            self._reject(batch, AdminError(ErrorCode.MESSAGE_TOO_LARGE, error.text))
            return
        batch.is_doubtful = batch.is_doubtful or not error.nothing_done
        self.is_broken = True
        self._error = error

    def _end_session(self, batch: SessionBatch, outcome: AppendOutcome) -> None:
        """Apply rule 4; if the batch is certainly not in the log, rule 3 to those after it."""
        self._is_interrupted = True
        self._session.is_ending = True
        if batch.is_absent:
            self._bar_from(batch)
        else:
            self._window.remove(batch)
            why = f"{outcome.error.name} {outcome.message}".rstrip()
            batch.fail_in_doubt(f"the producer session ended ({why})")

    def _reject(self, batch: SessionBatch, error: Exception) -> None:
        """Apply rule 3."""
        if batch.is_absent:
            self._is_interrupted = True
            batch.fail(error)
            self._bar_from(batch)
        else:
            self._window.remove(batch)
            batch.fail_in_doubt(error)

    def _bar_from(self, batch: SessionBatch) -> None:
        """Note that a batch and all later ones are certainly not in the log."""
        for later in list(self._window)[self._window.index(batch) :]:
            later.is_barred = True

    def _release(self) -> None:
        """Take the batches out of the window that are certainly not in the log, as are all later
        ones (rules 2 and 3); those whose callers wait no longer are dropped.
        """
        while self._window and self._window[-1].is_absent:
            batch = self._window.pop()
            if batch.is_doubtful:
                self._session.is_ending = True
            self._session.take_back(batch)
            batch.is_doubtful, batch.is_barred = False, False
            if not batch.result.done():
                self._waiting.appendleft(batch)
