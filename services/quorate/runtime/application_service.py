"""The state of applications on the leader, and the appends that depend on it.

1. It begins when this node gains leadership while application.version is finalized, or when a level
   is finalized while it leads. From then on the driver passes it every batch that it appends.
2. It is usable once the loader has passed the end that the log had at that time: the committed
   state and what this leader appended are then everything that the log contains, and the records
   of earlier leaders in it are committed.
3. It ends with the leadership, or with the level.
4. Conditions are compared in the step that appends. Records that are not committed yet count. So
   are the sequence numbers of producer sessions, before the conditions.
5. That a condition does not hold is answered once everything that the log contained is committed,
   and a majority has confirmed this node's leadership since: otherwise the answer could depend on
   records that never take effect, or miss those of a newer leader. If leadership is lost first,
   nothing was appended, and the client asks the next leader.
6. A batch of a session that the log contains already is answered as soon as the original is
   committed, with the original's offset. If leadership is lost first, the outcome is unknown, and
   the client asks the next leader.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from quorate.applications import (
    ApplicationState,
    Duplicate,
    WorkingState,
    changes_of,
    digest_of,
)
from quorate.common.batch_layout import HEADER_SIZE, NO_PRODUCER_ID
from quorate.common.error_codes import ErrorCode
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.managers.controller_context import RefusedError
from quorate.raft import outputs as out
from quorate.raft.messages import ReadIndexRequest
from quorate.records.batch import read_header
from quorate.records.metadata import ApplicationTag, OpenedSession, application_record
from quorate.rpc.wire.values import (
    NO_CONDITIONS,
    LogOffsets,
    OpenProducerRequest,
    OpenProducerResponse,
)
from quorate.runtime.driver import RaftDriver
from quorate.runtime.metadata_loader import MetadataLoader
from quorate.runtime.metadata_service import MetadataService
from quorate.runtime.pending_appends import Commit, CommitOutcome

if TYPE_CHECKING:
    from opentelemetry.trace import Span

NOT_FINALIZED = (
    "conditions, null values and producer sessions need application.version 1: `quorate features "
    "upgrade --feature application.version=1` finalizes it"
)
_FAULTS = {
    ErrorCode.UNKNOWN_PRODUCER_ID: "the session does not exist, or it has ended",
    ErrorCode.INVALID_PRODUCER_EPOCH: "the session has a later epoch",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: (
        "the session's batch before this one is missing, or another one has its sequence numbers"
    ),
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "the log contains the batch, but its offset is forgotten",
}


class ApplicationService:
    """Owns the working state. Create it before the driver starts: it listens to the leadership.

    working: None while this node does not lead or application.version is 0.
    """

    def __init__(
        self, driver: RaftDriver, loader: MetadataLoader, metadata: MetadataService
    ) -> None:
        self.working: WorkingState | None = None
        self._driver = driver
        self._loader = loader
        self._metadata = metadata
        self._lost: asyncio.Future[None] | None = None
        driver.add_listener(self)
        loader.add_listener(self._image_changed)

    def committed(self, _offset: int) -> None:
        """Nothing depends on a commit before the loader has passed it."""

    def leadership(self, change: out.LeadershipAcquired | out.LeadershipLost) -> None:
        self._end()
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)
        self._lost = None
        if isinstance(change, out.LeadershipAcquired):
            self._lost = asyncio.get_running_loop().create_future()
            self._begin()

    def _image_changed(self, _image: MetadataImage, changes: MetadataDelta) -> None:
        if changes.features:
            if self._loader.applications is None:
                self._end()
            self._begin()

    def _begin(self) -> None:
        is_on = self._lost is not None and self._loader.applications is not None
        if is_on and self.working is None:
            self.working = WorkingState(self._driver.node.core.log.end_offset)
            self._driver.on_append = self._appended

    def _end(self) -> None:
        self.working = None
        self._driver.on_append = None

    def _appended(self, base_offset: int, batch: bytearray) -> None:
        working = self.working
        assert working is not None, "the driver calls this only while there is a working state"
        working.passed(self._loader.offset)
        working.appended(changes_of(batch, read_header(batch), base_offset))

    # --- appends ----------------------------------------------------------------------------------

    async def append(
        self,
        count: int,
        batch: bytearray,
        timeout_ms: int,
        conditions: LogOffsets,
        span: Span | None = None,
    ) -> Commit | ErrorCode | LogOffsets:
        """Append a batch of application records if the conditions hold, and wait for its commit.

        A batch of a producer session that the log contains already is not appended again. Returns
        the offsets that are not the expected ones if a condition does not hold. Raises RefusedError
        if application.version is 0 at the end of the log, or if the session does not admit the
        batch. An ErrorCode or a RefusedError: nothing was appended.
        """
        deadline_ms = self._driver.now_ms() + timeout_ms
        header = read_header(batch)
        working = await self._usable(timeout_ms)
        if working is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        checked_end = 0
        is_level_off = False
        actual = NO_CONDITIONS
        in_session: Duplicate | ErrorCode = ErrorCode.NONE

        def check(next_offset: int) -> bool:
            nonlocal checked_end, is_level_off, actual, in_session
            checked_end = next_offset
            state = self._loader.applications
            is_level_off = state is None or not self._metadata.application_version
            if state is None or is_level_off or self.working is not working:
                return False
            if header.producer_id != NO_PRODUCER_ID:
                in_session = self._check_session(batch, working, state)
            if in_session is not ErrorCode.NONE:
                return False
            actual = _compare(conditions, working, state)
            return not actual

        left_ms = self._left_ms(deadline_ms)
        ended = await self._metadata.append_application(count, batch, left_ms, span, check)
        if ended is not None:
            return ended
        if is_level_off:
            raise RefusedError(ErrorCode.UNSUPPORTED_VERSION, NOT_FINALIZED)
        if isinstance(in_session, Duplicate):
            return await self._original(in_session.base_offset, count, self._left_ms(deadline_ms))
        if in_session is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # The client takes it for an acknowledgement, so the original must be committed.
            left_ms = self._left_ms(deadline_ms)
            if not await self._reached(checked_end, left_ms):
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if in_session is not ErrorCode.NONE:
            raise RefusedError(in_session, _FAULTS[in_session])
        if actual and await self._confirmed(checked_end, self._left_ms(deadline_ms)):
            return actual
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _check_session(
        self, batch: bytearray, working: WorkingState, committed: ApplicationState
    ) -> Duplicate | ErrorCode:
        """What the batch is for its session, at the end of the log."""
        working.passed(self._loader.offset)
        header = read_header(batch)
        found = working.sessions(committed).check(
            header.producer, header.count, header.max_timestamp
        )
        if isinstance(found, Duplicate) and not self._has_records(found.base_offset, batch):
            # Another client uses the session: it must not take the other's batch for its own.
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return found

    def _has_records(self, base_offset: int, batch: bytearray) -> bool:
        """Whether the log's batch there has the same records; True if it is in a snapshot only."""
        log = self._driver.log
        if base_offset < log.start_offset:
            return True
        (original, *_) = log.read(base_offset, 1, log.end_offset)
        header = read_header(original)
        return original[HEADER_SIZE : header.size_bytes] == memoryview(batch)[HEADER_SIZE:]

    async def _original(self, base_offset: int, count: int, timeout_ms: int) -> Commit:
        """Apply step 6."""
        if await self._reached(base_offset + count, timeout_ms):
            return base_offset, CommitOutcome.COMMITTED
        is_lost = self._lost is None
        return base_offset, CommitOutcome.LEADERSHIP_LOST if is_lost else CommitOutcome.TIMED_OUT

    async def open_session(self, request: OpenProducerRequest) -> OpenProducerResponse:
        """Append the record that opens a producer session, and wait for its commit."""
        node = self._driver.node
        if request.cluster_id not in ("", node.core.config.cluster_id):
            error = ErrorCode.INCONSISTENT_CLUSTER_ID
            return OpenProducerResponse(error, node.current_leader)
        opened = OpenedSession(request.expiration_ms).to_bytes()
        answer, offset = await self._metadata.append_record(
            application_record(ApplicationTag.PRODUCER_SESSION, opened),
            request.timeout_ms,
            lambda: "" if self._metadata.application_version else NOT_FINALIZED,
        )
        error = answer.error
        if error is ErrorCode.NOT_CONTROLLER:
            # With a message, the record may be committed: a session that nobody uses.
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return OpenProducerResponse(error, answer.leader, answer.message, offset)

    def _left_ms(self, deadline_ms: int) -> int:
        return max(1, deadline_ms - self._driver.now_ms())

    async def _usable(self, timeout_ms: int) -> WorkingState | None:
        """The working state once it is usable (step 2). None if this node does not lead, or if it
        takes too long. Raises RefusedError at level 0.
        """
        deadline_ms = self._driver.now_ms() + timeout_ms
        if not await self._metadata.until_active(timeout_ms):
            return None
        working = self.working
        if working is None:
            raise RefusedError(ErrorCode.UNSUPPORTED_VERSION, NOT_FINALIZED)
        left_ms = self._left_ms(deadline_ms)
        return working if await self._reached(working.usable_from, left_ms) else None

    async def _confirmed(self, end_offset: int, timeout_ms: int) -> bool:
        """Apply step 5: whether the comparison of a log that ended at `end_offset` counts."""
        deadline_ms = self._driver.now_ms() + timeout_ms
        index, _ = await self._driver.ask(ReadIndexRequest("", timeout_ms))
        if index.error is not ErrorCode.NONE:
            return False
        return await self._reached(end_offset, self._left_ms(deadline_ms))

    async def _reached(self, offset: int, timeout_ms: int) -> bool:
        """Wait until everything before `offset` is committed; False if leadership is lost first."""
        if self._loader.offset >= offset:
            return True
        if self._lost is None:
            return False
        reaching = asyncio.create_task(self._loader.reached(offset))
        try:
            await asyncio.wait(
                (reaching, self._lost),
                timeout=timeout_ms / 1000,
                return_when=asyncio.FIRST_COMPLETED,
            )
            return reaching.done()
        finally:
            reaching.cancel()


def _compare(
    conditions: LogOffsets, working: WorkingState, committed: ApplicationState
) -> LogOffsets:
    """The actual offsets of the conditions that do not hold."""
    last = working.last_offset(committed)
    keys = []
    for key, expected in conditions.keys:
        found = working.offset_of(digest_of(key), committed)
        if found != expected:
            keys.append((key, found))
    is_last_wrong = conditions.last is not None and conditions.last != last
    return LogOffsets(last if is_last_wrong else None, tuple(keys))
