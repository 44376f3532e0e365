"""The watchers of one node: open reads that follow the log (`Read` with `follow`).

Rules:
1. A watcher gets committed records only, in order, each batch once: its position advances with what
   was sent to it. A follower knows a high watermark too, so any node serves watchers. A position
   that the node does not know yet is waited for.
2. A watcher gets its next chunk once gRPC has taken the previous one. A slow one thus holds one
   chunk, and a stalled one loses its connection after `STALLED_S`. One that waits for records, or
   for the room of a large chunk, holds none.
3. An advance of the high watermark sets an event, and one task then serves the watchers that wait,
   `SLICE` in an iteration of the event loop: whatever else happens on the loop, such as a commit,
   waits for one slice at most. Watchers at the same position share a chunk, which is built and
   encoded once. Those that become ready meanwhile are served in the next round.
4. Records that have left the tail cache are read in worker threads, a few reads at a time. While
   others are ready, those who read history get every fourth turn.
5. The watchers are limited in total, per address and per connection.
6. A stream ends with NOT_LEADER_OR_FOLLOWER, and the client continues at another node, when this
   node stops, or has neither led nor reached a leader for `DETACHED_S`; a linearizable one also
   when this node stops leading.
7. A position before the log start ends the stream with OFFSET_OUT_OF_RANGE, which names the newest
   snapshot.
8. A watcher without records gets an empty chunk every `FOLLOW_KEEPALIVE_MS`, so that both ends find
   out when the other is gone, and the client knows up to where there was nothing to send.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from quorate.common.error_codes import ErrorCode
from quorate.log.errors import LogError, LogFailedError
from quorate.raft import outputs as out
from quorate.raft.messages import CurrentLeader
from quorate.records.batch import iter_batches
from quorate.records.errors import RecordsError
from quorate.rpc.cancellation import cancel_tasks
from quorate.rpc.server.handler import SharedChunk, WatchStream
from quorate.rpc.server.response_memory import SMALL_BYTES
from quorate.rpc.wire.limits import FOLLOW_KEEPALIVE_MS, ServerLimits
from quorate.rpc.wire.values import ReadChunk, ReadRequest
from quorate.runtime.driver import Bytes, RaftDriver
from quorate.runtime.tasks import supervise
from quorate.telemetry.limited_log import LimitedLog
from quorate.telemetry.samples import Sample

LOGGER = logging.getLogger(__name__)

CHUNK_BYTES = 32 * 1024
"""Bytes of records in one chunk; a larger batch is sent alone. A slow watcher holds one chunk."""
SLICE = 8
"""Watchers that are served in one iteration of the event loop; each takes about 0.1 ms."""
HISTORY_READS_MAX = 2
HISTORY_TURNS = 4
"""One in this many turns goes to a watcher that reads history, if others wait too."""
MEMO_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of the chunks that are kept for further watchers at their positions."""
TICK_S = 1.0
STALLED_S = 30.0
"""How long a client may take for one response, seconds."""
DETACHED_S = 5.0
"""How long watchers stay while no leader is known or it does not answer: elections are shorter."""
STOP_TIMEOUT_S = 1.0
LOG_INTERVAL_S = 60.0
"""How often a failed read of the same records is logged: many watchers may repeat it."""


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """How many watchers a node serves: in total, to one address, and over one connection."""

    total: int = 4_096
    per_address: int = 2_048
    per_connection: int = 512

    @classmethod
    def of(cls, total: int, server: ServerLimits) -> WatchLimits:
        """The limits of a node that serves `total`, if its server's limits leave room for others.

        No address gets more than half of them, and no connection more than an eighth. Half of all
        calls, and half of the streams of a connection, are left to other calls.
        """
        total = min(total, server.concurrent_rpcs_max // 2)
        streams = server.streams_per_connection_max // 2
        return cls(total, max(1, total // 2), max(1, min(total // 8, streams)))


class _Watcher:
    """One open read.

    turn: while it waits for the dispatcher, the future of its next chunk; None as the result: look
    again. prepared: the next chunk, if it was read from a file. is_due: whether it gets an empty
    chunk if there are no records. is_ending: whether its stream ends with the next chunk.
    """

    __slots__ = (
        "include_control",
        "is_due",
        "is_ending",
        "is_linearizable",
        "position",
        "prepared",
        "sent_at_s",
        "stream",
        "turn",
    )

    def __init__(self, request: ReadRequest, stream: WatchStream) -> None:
        self.position = request.from_offset
        self.is_linearizable = request.linearizable
        self.include_control = request.include_control
        self.stream = stream
        self.turn: asyncio.Future[SharedChunk | None] | None = None
        self.prepared: SharedChunk | None = None
        self.is_due = False
        self.is_ending = False
        self.sent_at_s = 0.0


class WatchHub:
    """The watchers of one node. Call `advanced` after each advance of the high watermark.

    current_leader: the leader that responses name. keepalive_s, stalled_s, detached_s: see rules 8,
    2 and 6. sent_bytes: of all responses.
    """

    def __init__(
        self,
        driver: RaftDriver,
        current_leader: Callable[[], CurrentLeader],
        limits: WatchLimits | None = None,
        *,
        keepalive_s: float = FOLLOW_KEEPALIVE_MS / 1000,
        stalled_s: float = STALLED_S,
        detached_s: float = DETACHED_S,
        tick_s: float = TICK_S,
    ) -> None:
        self._driver = driver
        self._current_leader = current_leader
        self._limits = limits or WatchLimits()
        self._keepalive_s = keepalive_s
        self._stalled_s = stalled_s
        self._detached_s = detached_s
        self._tick_s = tick_s
        self.sent_bytes = 0
        self._watchers: set[_Watcher] = set()
        self._of_address: Counter[str] = Counter()
        self._of_connection: Counter[str] = Counter()
        self._tail: dict[_Watcher, None] = {}
        """Those that wait for records that are not committed yet, in the order of arrival."""
        self._ready: deque[_Watcher] = deque()
        """Those for which there is something to send."""
        self._prepared: deque[_Watcher] = deque()
        """Those whose next chunk was read from a file."""
        self._turns = 0
        self._left_in_round = 0
        self._target = 0
        """The high watermark when this round began: chunks end there."""
        self._memo: dict[tuple[int, bool], SharedChunk] = {}
        """The chunks of this round."""
        self._memo_bytes = 0
        self._wake = asyncio.Event()
        self._history_slots = asyncio.Semaphore(HISTORY_READS_MAX)
        self._threads: ThreadPoolExecutor | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._attached_at_s: float | None = None
        self._is_closed = False
        self._failures = LimitedLog(LOGGER, interval_s=LOG_INTERVAL_S)

    # --- life -------------------------------------------------------------------------------------

    def start(self, on_fatal: Callable[[BaseException], None]) -> None:
        self._tasks = [
            supervise(self._dispatch(), "watch-dispatcher", on_fatal),
            supervise(self._look_after(), "watch-keepalive", on_fatal),
        ]

    async def stop(self) -> None:
        """End all streams (rule 6), and wait a short while until clients have been notified."""
        self._is_closed = True
        self._serve_all()
        deadline_s = _now_s() + STOP_TIMEOUT_S
        while self._watchers and self._tasks and _now_s() < deadline_s:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await cancel_tasks(*self._tasks)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def advanced(self, _high_watermark: int) -> None:
        """Note that the high watermark has advanced."""
        if self._tail:
            self._wake.set()

    def leadership(self, change: out.LeadershipAcquired | out.LeadershipLost) -> None:
        """End linearizable streams when this node loses leadership (rule 6)."""
        if isinstance(change, out.LeadershipLost):
            for watcher in self._watchers:
                if watcher.is_linearizable:
                    watcher.is_ending = True
                    self._serve(watcher)

    @property
    def count(self) -> int:
        """The number of watchers."""
        return len(self._watchers)

    def samples(self) -> Iterator[Sample]:
        yield Sample("watchers", self.count)
        yield Sample("watch-sent-bytes", self.sent_bytes)

    # --- one watcher ------------------------------------------------------------------------------

    async def serve(self, request: ReadRequest, stream: WatchStream) -> None:
        """Send the log from `from_offset` on, until the stream ends or its caller is cancelled."""
        refused = self._refusal(stream)
        if refused is not None:
            await stream.send(self._last(*refused))
            return
        watcher = _Watcher(request, stream)
        self._watchers.add(watcher)
        self._of_address[stream.address] += 1
        self._of_connection[stream.peer] += 1
        try:
            await self._follow(watcher, request.max_records)
        finally:
            self._watchers.discard(watcher)
            _release(self._of_address, stream.address)
            _release(self._of_connection, stream.peer)

    def _refusal(self, stream: WatchStream) -> tuple[ErrorCode, str] | None:
        if self._is_closed or not self._is_serving(_now_s()):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, self._why_not_serving()
        limits = self._limits
        counts = (
            (len(self._watchers), limits.total, "this node"),
            (self._of_address[stream.address], limits.per_address, "this address"),
            (self._of_connection[stream.peer], limits.per_connection, "this connection"),
        )
        for count, most, whose in counts:
            if count >= most:
                text = f"{whose} has {count} watchers, the maximum"
                return ErrorCode.THROTTLING_QUOTA_EXCEEDED, text
        return None

    async def _follow(self, watcher: _Watcher, left: int | None) -> None:
        # The first chunk has no records: it tells the client at once whether the node serves it.
        is_gone = watcher.position < self._driver.log.start_offset
        chunk: SharedChunk | None = (self._gone if is_gone else self._empty)(watcher.position)
        while chunk is not None:
            self.sent_bytes += await watcher.stream.send(chunk)
            watcher.sent_at_s = _now_s()
            if chunk.chunk.last:
                return
            watcher.position = max(watcher.position, chunk.chunk.next_offset)
            if left is not None:
                left -= chunk.count
            chunk = None  # not kept while the watcher waits (rule 2)
            if left is not None and left <= 0:
                chunk = self._last(ErrorCode.NONE)
            else:
                chunk = await self._next_in_room(watcher)

    async def _next_in_room(self, watcher: _Watcher) -> SharedChunk:
        """The next chunk of a watcher, which holds the room for it.

        A watcher that waits for room keeps no chunk meanwhile: it may be the only one to hold it.
        """
        while True:
            chunk = await self._next(watcher)
            size = len(chunk.chunk.records)
            if size <= SMALL_BYTES or watcher.stream.try_reserve(size):
                return chunk
            del chunk
            await watcher.stream.reserve(size)

    async def _next(self, watcher: _Watcher) -> SharedChunk:
        """The next chunk of a watcher, once there is one and it is the watcher's turn."""
        log = self._driver.log
        while True:
            position = watcher.position
            if watcher.is_ending or self._is_closed:
                return self._last(ErrorCode.NOT_LEADER_OR_FOLLOWER, self._why_not_serving())
            if position < log.start_offset:
                return self._gone(position)
            try:
                if position < self._committed and not log.is_cached(position):
                    watcher.prepared = await self._read_history(watcher)
                chunk = await self._turn(watcher)
            except (LogError, RecordsError, OSError) as error:
                return self._failed(position, error)
            finally:
                watcher.prepared = None
            if chunk is not None:
                return chunk

    async def _turn(self, watcher: _Watcher) -> SharedChunk | None:
        """Wait until the dispatcher serves the watcher; None if it must look again."""
        watcher.turn = asyncio.get_running_loop().create_future()
        if watcher.prepared is not None:
            self._prepared.append(watcher)
            self._wake.set()
        elif watcher.position < self._committed:
            self._ready.append(watcher)
            self._wake.set()
        else:
            self._tail[watcher] = None
        try:
            return await watcher.turn
        finally:
            self._tail.pop(watcher, None)
            watcher.turn = None
            watcher.is_due = False

    # --- records ----------------------------------------------------------------------------------

    @property
    def _committed(self) -> int:
        return min(self._driver.node.high_watermark, self._driver.log.end_offset)

    async def _read_history(self, watcher: _Watcher) -> SharedChunk | None:
        """The next chunk from the files; None if the log was replaced or cleaned meanwhile.

        Only a few watchers hold a large batch without a reservation, and only for a moment.
        """
        log, position = self._driver.log, watcher.position
        is_reserved = False
        while True:
            async with self._history_slots:
                end = min(self._committed, log.durable_end)
                if position < end:
                    data = await asyncio.get_running_loop().run_in_executor(
                        self._executor(), log.read_durable, position, CHUNK_BYTES, end
                    )
                else:  # written, and not synced yet
                    data = log.read(position, CHUNK_BYTES, self._committed)
                size = sum(map(len, data))
                if size <= SMALL_BYTES or is_reserved:
                    break
            del data
            await watcher.stream.reserve(size)
            is_reserved = True
        if position < log.start_offset:
            return None
        chunk = self._built(position, data, include_control=watcher.include_control)
        if chunk is None:
            raise LogError(f"no batch holds offset {position}")
        return chunk

    def _executor(self) -> ThreadPoolExecutor:
        # Not the loop's default executor, whose threads may all wait for other work.
        if self._threads is None:
            self._threads = ThreadPoolExecutor(HISTORY_READS_MAX, thread_name_prefix="watch")
        return self._threads

    def _built(
        self, position: int, data: Sequence[Bytes], *, include_control: bool
    ) -> SharedChunk | None:
        """A chunk of whole batches, of which the first holds `position`; None if there are none.

        Raises LogError if records are missing before them.
        """
        wanted: list[Bytes] = []
        next_offset, count = position, 0
        for view in data:
            for header, batch in iter_batches(view):
                if header.base_offset > next_offset:
                    text = f"offset {header.base_offset} follows where {next_offset} is expected"
                    raise LogError(text)
                next_offset = header.end_offset
                if include_control or not header.is_control:
                    wanted.append(batch)
                    count += min(header.count, next_offset - position)
        if next_offset <= position:
            return None
        records = wanted[0] if len(wanted) == 1 else b"".join(wanted)
        return SharedChunk(self._chunk(next_offset, records), count)

    def _chunk(self, next_offset: int, records: Bytes = b"") -> ReadChunk:
        return ReadChunk(
            ErrorCode.NONE,
            self._current_leader(),
            self._driver.node.high_watermark,
            log_start_offset=self._driver.log.start_offset,
            records=records,
            next_offset=next_offset,
        )

    def _empty(self, position: int) -> SharedChunk:
        return SharedChunk(self._chunk(position))

    def _last(self, error: ErrorCode, message: str = "") -> SharedChunk:
        chunk = ReadChunk(
            error,
            self._current_leader(),
            self._driver.node.high_watermark,
            log_start_offset=self._driver.log.start_offset,
            last=True,
            message=message,
        )
        return SharedChunk(chunk)

    def _gone(self, position: int) -> SharedChunk:
        """The end of a stream whose position is before the log start (rule 7)."""
        log = self._driver.log
        snapshot, start = log.latest_snapshot(), log.start_offset
        text = f"offset {position} is before the log start {start}; load snapshot {snapshot}"
        chunk = ReadChunk(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            self._current_leader(),
            self._driver.node.high_watermark,
            log_start_offset=start,
            snapshot=snapshot,
            last=True,
            message=text,
        )
        return SharedChunk(chunk)

    def _failed(self, position: int, error: Exception) -> SharedChunk:
        """The end of a stream whose records cannot be read; the client tries another node."""
        is_damage = not isinstance(error, LogFailedError | OSError)
        text = f"records from offset {position} on cannot be read: {error}"
        self._failures.warning(position, "%s: %s", self._driver.log.partition, text)
        return self._last(
            ErrorCode.CORRUPT_MESSAGE if is_damage else ErrorCode.KAFKA_STORAGE_ERROR, text
        )

    # --- the dispatcher ---------------------------------------------------------------------------

    async def _dispatch(self) -> None:
        served = 0
        while True:
            watcher = self._take()
            if watcher is None:
                self._forget_chunks()
                self._wake.clear()
                await self._wake.wait()
                continue
            turn = watcher.turn
            if turn is None or turn.done():
                continue  # its call has ended
            if self._give(watcher, turn):
                served += 1
                if served % SLICE == 0:
                    await asyncio.sleep(0)

    def _take(self) -> _Watcher | None:
        """The next watcher to serve. A round serves those that were ready when it began."""
        if self._left_in_round == 0:
            committed = self._committed
            if committed > self._target:
                self._target = committed
                self._forget_chunks()
                self._ready.extend(self._tail)
                self._tail.clear()
            self._left_in_round = len(self._ready)
        self._turns += 1
        if self._prepared and (not self._ready or self._turns % HISTORY_TURNS == 0):
            return self._prepared.popleft()
        if not self._ready:
            return None
        self._left_in_round -= 1
        return self._ready.popleft()

    def _give(self, watcher: _Watcher, turn: asyncio.Future[SharedChunk | None]) -> bool:
        """Give the watcher its next chunk; False if there is none and it continues to wait."""
        log = self._driver.log
        position = watcher.position
        if watcher.is_ending or self._is_closed or position < log.start_offset:
            turn.set_result(None)
            return True
        if watcher.prepared is not None or (
            position < self._target and not log.is_cached(position)
        ):
            turn.set_result(watcher.prepared)
            return True
        chunk = None
        try:
            if position < self._target:
                chunk = self._shared(position, include_control=watcher.include_control)
        except (LogError, RecordsError, OSError) as error:
            turn.set_result(self._failed(position, error))
            return True
        if chunk is not None and not chunk.chunk.records:
            # Only control batches: nothing is sent, but the watcher is beyond them.
            watcher.position = max(position, chunk.chunk.next_offset)
            chunk = None
            if watcher.position < self._committed:
                self._ready.append(watcher)
                return False
        if chunk is None and watcher.is_due:
            chunk = self._empty(watcher.position)
        if chunk is None:
            self._tail[watcher] = None
            return False
        turn.set_result(chunk)
        return True

    def _shared(self, position: int, *, include_control: bool) -> SharedChunk | None:
        """The chunk from a position up to this round's target, the same for all who ask."""
        key = position, include_control
        chunk = self._memo.get(key)
        if chunk is None:
            data = self._driver.log.read(position, CHUNK_BYTES, self._target)
            chunk = self._built(position, data, include_control=include_control)
            if chunk is not None:
                if self._memo_bytes > MEMO_BYTES_MAX:
                    self._forget_chunks()
                self._memo[key] = chunk
                self._memo_bytes += len(chunk.chunk.records)
        return chunk

    def _forget_chunks(self) -> None:
        self._memo.clear()
        self._memo_bytes = 0

    def _serve(self, watcher: _Watcher) -> None:
        """Let the dispatcher look at a watcher that waits at the tail."""
        if watcher in self._tail:
            del self._tail[watcher]
            self._ready.append(watcher)
            self._wake.set()

    def _serve_all(self) -> None:
        self._ready.extend(self._tail)
        self._tail.clear()
        self._wake.set()

    # --- keepalive and limits of time -------------------------------------------------------------

    async def _look_after(self) -> None:
        while True:
            self._tick(_now_s())
            await asyncio.sleep(self._tick_s)

    def _tick(self, now_s: float) -> None:
        is_serving = self._is_serving(now_s)
        stalled: dict[str, WatchStream] = {}
        for watcher in list(self._watchers):
            if not is_serving:
                watcher.is_ending = True
            since_s = watcher.stream.writing_since_s
            if since_s is not None and now_s - since_s > self._stalled_s:
                stalled[watcher.stream.peer] = watcher.stream
            elif watcher.is_ending or now_s - watcher.sent_at_s >= self._keepalive_s:
                watcher.is_due = True
                self._serve(watcher)
        # Once per connection, which ends with its first stream.
        for stream in stalled.values():
            stream.abort(f"it has not taken a response to Read for {self._stalled_s:.0f} s")

    def _is_serving(self, now_s: float) -> bool:
        """Whether this node leads or hears from a leader, or did so a short while ago (rule 6)."""
        if self._driver.node.is_attached:
            self._attached_at_s = now_s
        return self._attached_at_s is not None and now_s - self._attached_at_s <= self._detached_s

    def _why_not_serving(self) -> str:
        if self._is_closed:
            return "this node is stopping"
        if not self._is_serving(_now_s()):
            return "this node has no contact with a leader"
        return "this node no longer leads"


def _release(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def _now_s() -> float:
    return asyncio.get_running_loop().time()
