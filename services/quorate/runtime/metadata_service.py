"""Runs the active controller on a node while it is the quorum's leader.

Owns a `MetadataController`, the pure state machine that turns requests into records. Steps:

1. If this node gains leadership, it waits until everything up to and including the epoch's first
   record is committed and in the committed image, then activates the controller on a copy of that
   image. Requests wait until then.
2. For a request, the controller returns records and a response. The records are appended as one
   batch in the same step of the loop (`RaftDriver.append_now`), so the log has the order of the
   requests. The response is sent once the batch is committed and replayed on this node. A response
   without records may depend on records that are not committed yet, so it waits for those.
3. The controller's deadlines (sessions, controlled shutdowns, idle time) are ticks, which append
   records in the same way.
4. If this node loses leadership, waiting requests fail with NOT_CONTROLLER, with a message if the
   change may still be committed; or with REQUEST_TIMED_OUT if they timed out first, as in Kafka.
5. Applications and Kafka's nodes exclude each other, because Kafka fails on records with a key. The
   first of either decides for good, by a record in the log: an application's own, or KAFKA_NODES.
   Whoever comes first is checked in the step that appends that record (`append_application`,
   `admit_kafka_node`), by the active controller, so everything in the log counts, committed or not.
   If a log of an earlier version has both, applications are served and Kafka's nodes are rejected.
6. A controller that fails drops its working state and starts again with step 1 in the same epoch,
   after everything that is in the log by then.

Reads are answered from the committed image once a majority has confirmed this node's leadership.

Source: Kafka's QuorumController; KIP-631, KIP-835 (no-op records).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from quorate.common.error_codes import ErrorCode
from quorate.metadata import describe
from quorate.metadata.controller import ControllerResult, CurrentControllers, MetadataController
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import AnyRecord, MetadataImage, ReplayError
from quorate.metadata.managers.controller_context import RefusedError
from quorate.metadata.managers.feature_manager import kraft_versions
from quorate.metadata.requests import Read, Request, Response, UpdateFeatures
from quorate.raft import outputs as out
from quorate.raft.messages import ReadIndexRequest, ReadIndexResponse
from quorate.rpc.wire.convert_metadata import MetadataAnswer
from quorate.runtime.driver import RaftDriver
from quorate.runtime.metadata_batches import build_metadata_batch, decode_values
from quorate.runtime.metadata_loader import MetadataLoader
from quorate.runtime.pending_appends import Commit, CommitOutcome
from quorate.runtime.tasks import supervise

if TYPE_CHECKING:
    from opentelemetry.trace import Span

LOGGER = logging.getLogger(__name__)

TICK_TIMEOUT_MS = 60_000
"""How long to wait for the commit of a tick's records; they may still be committed later."""

TICK_INTERVAL_MS_MAX = 3_600_000

REFUSED_PAUSE_MS = 100
"""The delay before the next attempt if the leader accepts no appends at present."""

TOO_MUCH = "{} bytes are not committed yet; slow down"
UNKNOWN = "the controller lost leadership before this was committed; it may still be committed"

NO_APPLICATIONS = (
    "Kafka's nodes use this quorum, and they cannot read the records of applications (records with "
    "a key): append them to a quorum without Kafka's nodes"
)
NO_KAFKA_NODES = (
    "the log has records of applications (records with a key), which Kafka's nodes cannot read: "
    "connect Kafka's nodes to a quorum without applications"
)


NO_KAFKA_NODES_AT_LEVEL = (
    "application.version is finalized, and Kafka's nodes do not support it: disable it, or connect "
    "Kafka's nodes to a quorum without applications"
)


class _LeadershipLostError(Exception):
    """This node lost leadership while a request waited for a commit."""


class MetadataService:
    """Handles metadata requests. Call `bind` first: the driver's constructor needs `leadership`."""

    def __init__(
        self,
        loader: MetadataLoader,
        controller: MetadataController,
        *,
        batch_bytes_max: int,
        pending_bytes_max: int = 256 * 1024 * 1024,
    ) -> None:
        self._loader = loader
        self._controller = controller
        self._batch_bytes_max = batch_bytes_max
        self._pending_bytes_max = pending_bytes_max
        self._driver: RaftDriver | None = None
        self._epoch: int | None = None
        self._active = asyncio.Event()
        self._lost: asyncio.Future[None] | None = None
        self._activation: asyncio.Task[None] | None = None
        self._appended_end = 0
        self._appended_application = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0

    def bind(self, driver: RaftDriver) -> None:
        self._driver = driver
        self._loader.add_listener(self._tell_of_brokers)

    def _tell_of_brokers(self, image: MetadataImage, changes: MetadataDelta) -> None:
        """Pass the brokers' registered levels of kraft.version to the node, which checks upgrades.

        Source: KIP-853.
        """
        if changes.brokers:
            self.driver.node.observers_support(kraft_versions(image.cluster))

    @property
    def driver(self) -> RaftDriver:
        assert self._driver is not None, "bind() comes first"
        return self._driver

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller and accepts requests."""
        return self._active.is_set()

    async def close(self) -> None:
        self._end()

    # --- leadership -------------------------------------------------------------------------------

    def leadership(self, change: out.LeadershipAcquired | out.LeadershipLost) -> None:
        """The driver's `on_leadership`."""
        self._end()
        if isinstance(change, out.LeadershipAcquired):
            self._epoch = change.epoch
            self._lost = asyncio.get_running_loop().create_future()
            self._begin(change.epoch, change.start_offset + 1)

    def _begin(self, epoch: int, end_offset: int) -> None:
        self._activation = supervise(
            self._activate(epoch, end_offset),
            "metadata-activation",
            self.driver.fail,
            endless=False,
        )

    async def _activate(self, epoch: int, end_offset: int) -> None:
        """Perform step 1. end_offset: everything before it must be in the image first."""
        await self._loader.reached(end_offset)
        started = time.monotonic()

        def build(next_offset: int) -> tuple[int, bytearray] | None:
            now_ms = self.driver.now_ms()
            return self._batch(
                self._controller.activate(self._loader.image, epoch, now_ms, next_offset),
                next_offset,
            )

        self._appended_end = end_offset
        try:
            future = self.driver.append_now(build, TICK_TIMEOUT_MS)
            while future is not None and future.done():
                # This node hands over already, but may go on leading if that fails.
                await asyncio.sleep(REFUSED_PAUSE_MS / 1000)
                future = self.driver.append_now(build, TICK_TIMEOUT_MS)
        except Exception:
            LOGGER.exception("the metadata controller could not be activated in epoch %d", epoch)
            self.driver.resign("the metadata controller could not be activated")
            return
        self._active.set()
        LOGGER.info("active controller in epoch %d after %.3f s", epoch, time.monotonic() - started)
        self._arm()

    def _end(self) -> None:
        self._epoch = None
        self._appended_application = False
        self._active.clear()
        if self._activation is not None:
            self._activation.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)
        self._controller.deactivate()

    def _restart(self, reason: str) -> None:
        """Perform step 6."""
        if self._epoch is None:
            return
        LOGGER.error("restarting the metadata controller: %s", reason)
        self._active.clear()
        self._controller.deactivate()
        self._begin(self._epoch, self.driver.node.core.log.end_offset)

    # --- requests ---------------------------------------------------------------------------------

    async def handle(self, request: Request | Read, timeout_ms: int) -> MetadataAnswer:
        """Execute a request, and return its response once it is committed."""
        try:
            if isinstance(request, Read):
                async with asyncio.timeout(timeout_ms / 1000):
                    return await self._read(request, timeout_ms)
            return await self._change(request, timeout_ms)
        except TimeoutError:
            return self._answer(ErrorCode.REQUEST_TIMED_OUT, f"no answer within {timeout_ms} ms")

    async def _change(self, request: Request, timeout_ms: int) -> MetadataAnswer:
        result: ControllerResult | None = None

        def build(next_offset: int) -> tuple[int, bytearray] | None:
            nonlocal result
            if isinstance(request, UpdateFeatures):
                self._controller.controllers_are(self._current_controllers())
            result = self._controller.handle(request, self.driver.now_ms(), next_offset)
            return self._batch(result, next_offset)

        refusal = await self._append(build, timeout_ms, type(request).__name__)
        if refusal is not None:
            return refusal
        assert result is not None, "what was appended was made"
        return self._answer(ErrorCode.NONE, response=result.response)

    def _current_controllers(self) -> CurrentControllers:
        node = self.driver.node
        own = {node.core.local.id}
        voters = frozenset(voter.id for voter in node.voters)
        return CurrentControllers(voters - own, node.fetching - voters - own)

    async def append_records(
        self, values: Sequence[bytes], timeout_ms: int, *, from_client: bool = False
    ) -> tuple[ErrorCode, int, str]:
        """Append encoded metadata records as one batch: (error, base offset, message).

        The controller first replays them on a copy of its image. If a record cannot be replayed, or
        a client may not append it (`metadata.managers.appended`), the error is INVALID_RECORD and
        nothing is appended.
        """
        base = -1
        refused: str | None = None
        try:
            records = decode_values(enumerate(values))
        except ReplayError as error:
            return ErrorCode.INVALID_RECORD, -1, str(error)

        def build(next_offset: int) -> tuple[int, bytearray] | None:
            nonlocal base, refused
            base = next_offset
            refused = self._controller.replay(
                tuple(records), self.driver.now_ms(), next_offset, from_client=from_client
            )
            if refused is not None:
                return None
            return self._batch(ControllerResult(tuple(records), None), next_offset)

        try:
            refusal = await self._append(build, timeout_ms, "records")
        except TimeoutError:
            return ErrorCode.REQUEST_TIMED_OUT, base, f"no answer within {timeout_ms} ms"
        if refused is not None:
            return ErrorCode.INVALID_RECORD, -1, refused
        if refusal is not None:
            return refusal.error, base, refusal.message
        return ErrorCode.NONE, base, ""

    # --- applications and Kafka's nodes -----------------------------------------------------------

    @property
    def has_applications(self) -> bool:
        """Whether the log has application records; a leader's own, uncommitted ones count."""
        return self._appended_application or self._loader.has_applications

    @property
    def application_version(self) -> int:
        """The level at the end of the log, uncommitted records included; 0 unless active."""
        return self._controller.application_version if self.is_active else 0

    async def append_application(
        self,
        count: int,
        batch: bytearray,
        timeout_ms: int,
        span: Span | None = None,
        check: Callable[[int], bool] | None = None,
    ) -> Commit | ErrorCode | None:
        """`RaftDriver.append`, checked in the step that appends: needed for the first records of
        applications (step 5), and for those with conditions.

        check: gets the offset of the first record, and returns whether to append; if it does not,
        this method returns None. Raises RefusedError if Kafka's nodes use this quorum.
        """
        deadline_ms = self.driver.now_ms() + timeout_ms
        if not await self.until_active(timeout_ms):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        refused = False

        def build(next_offset: int) -> tuple[int, bytearray] | None:
            nonlocal refused
            refused = self._controller.has_kafka_nodes and not self.has_applications
            if refused or (check is not None and not check(next_offset)):
                return None
            self._appended_application = True
            return count, batch

        left_ms = max(1, deadline_ms - self.driver.now_ms())
        future = self.driver.append_now(build, left_ms, span)
        if refused:
            raise RefusedError(ErrorCode.INVALID_REQUEST, NO_APPLICATIONS)
        return None if future is None else await future

    async def append_record(
        self, record: AnyRecord, timeout_ms: int, fault: Callable[[], str]
    ) -> tuple[MetadataAnswer, int]:
        """Append a record that changes no image: the response once it is committed, its offset.

        fault: why it may not be appended, checked in the step that appends it; the error is then
        UNSUPPORTED_VERSION.
        """
        base = -1
        text = ""

        def build(next_offset: int) -> tuple[int, bytearray] | None:
            nonlocal base, text
            base, text = next_offset, fault()
            return None if text else self._batch(ControllerResult((record,), None), next_offset)

        try:
            refusal = await self._append(build, timeout_ms, type(record).__name__)
        except TimeoutError:
            refusal = self._answer(ErrorCode.REQUEST_TIMED_OUT, f"no answer within {timeout_ms} ms")
        if text:
            return self._answer(ErrorCode.UNSUPPORTED_VERSION, text), -1
        return (self._answer(ErrorCode.NONE), base) if refusal is None else (refusal, -1)

    async def until_active(self, timeout_ms: int) -> bool:
        """Wait until requests are accepted; False if this node does not lead, or after a timeout.

        It returns at once, without a pause, if they are accepted already.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._until_active() is None
        except TimeoutError:
            return False

    async def admit_kafka_node(self, timeout_ms: int) -> tuple[ErrorCode, str]:
        """Let the log say that Kafka's nodes use this quorum (step 5): (error, message).

        NONE: it says so, and that is committed. POLICY_VIOLATION: the log has records of
        applications, or application.version is finalized. Any other error: unknown at present, for
        instance because this node does not lead.
        """
        if self.has_applications:
            return ErrorCode.POLICY_VIOLATION, NO_KAFKA_NODES
        if self._loader.image.features.kafka_nodes:
            return ErrorCode.NONE, ""
        rejection = ""

        def build(next_offset: int) -> tuple[int, bytearray] | None:
            nonlocal rejection
            if self.has_applications:
                rejection = NO_KAFKA_NODES
            elif self._controller.application_version:
                rejection = NO_KAFKA_NODES_AT_LEVEL
            if rejection:
                return None
            admitted = self._controller.admit_kafka_nodes(self.driver.now_ms(), next_offset)
            return self._batch(admitted, next_offset)

        try:
            refusal = await self._append(build, timeout_ms, "admitting a Kafka node")
        except TimeoutError:
            refusal = self._answer(ErrorCode.REQUEST_TIMED_OUT, f"no commit in {timeout_ms} ms")
        if rejection:
            return ErrorCode.POLICY_VIOLATION, rejection
        return (ErrorCode.NONE, "") if refusal is None else (refusal.error, refusal.message)

    # --- appending --------------------------------------------------------------------------------

    async def _append(self, build: Any, timeout_ms: int, what: str) -> MetadataAnswer | None:
        """Append the batch of `build` and wait for its commit; returns a response on failure.

        Raises TimeoutError. Nothing is timed that does not wait, such as most heartbeats.
        """
        deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        if not self._active.is_set():
            async with asyncio.timeout_at(deadline_s):
                refusal = await self._until_active()
            if refusal is not None:
                return refusal
        pending = self.driver.pending_appends.pending_bytes
        if pending > self._pending_bytes_max:
            return self._answer(ErrorCode.THROTTLING_QUOTA_EXCEEDED, TOO_MUCH.format(pending))
        try:
            future = self.driver.append_now(build, timeout_ms)
        except Exception as error:
            LOGGER.exception("%s failed", what)
            self._restart(f"{what} failed: {error}")
            text = f"internal error: {type(error).__name__}: {error}"
            return self._answer(ErrorCode.UNKNOWN_SERVER_ERROR, text)
        self._arm()
        if future is None and self._loader.offset >= self._appended_end:
            return None
        try:
            async with asyncio.timeout_at(deadline_s):
                return await self._released(future)
        except _LeadershipLostError:
            return self._answer(ErrorCode.NOT_CONTROLLER, UNKNOWN)

    async def _until_active(self) -> MetadataAnswer | None:
        """Wait until requests are accepted; returns NOT_CONTROLLER if this node does not lead."""
        if self._active.is_set():
            return None
        if self._lost is None or self._lost.done():
            return self._answer(ErrorCode.NOT_CONTROLLER)
        waiting = asyncio.create_task(self._active.wait())
        try:
            await asyncio.wait((waiting, self._lost), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        return None if self._active.is_set() else self._answer(ErrorCode.NOT_CONTROLLER)

    async def _released(
        self, future: asyncio.Future[Commit | ErrorCode] | None
    ) -> MetadataAnswer | None:
        """Wait for the commit of the batch, or without one of all earlier batches (step 2).

        Returns None after the commit, else a response with the error.
        """
        if future is None:
            await self._committed(self._appended_end)
            return None
        end_offset = self._appended_end
        ended = await future
        if isinstance(ended, ErrorCode):
            return self._answer(ErrorCode.NOT_CONTROLLER)
        _, outcome = ended
        if outcome is CommitOutcome.TIMED_OUT:
            return self._answer(ErrorCode.REQUEST_TIMED_OUT, outcome.text)
        if outcome is CommitOutcome.LEADERSHIP_LOST:
            return self._answer(ErrorCode.NOT_CONTROLLER, UNKNOWN)
        await self._loader.reached(end_offset)
        return None

    async def _committed(self, end_offset: int) -> None:
        """Wait until everything before `end_offset` is replayed. Raises _LeadershipLostError."""
        if self._loader.offset >= end_offset:
            return
        lost = self._lost
        if lost is None or lost.done():
            raise _LeadershipLostError
        reached = asyncio.create_task(self._loader.reached(end_offset))
        try:
            await asyncio.wait((reached, lost), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not reached.done():
                reached.cancel()
        if self._loader.offset < end_offset:
            raise _LeadershipLostError

    def describe(self, request: Read) -> Any:
        """The response from this node's own committed image, which may lag behind."""
        return describe.answer(self._loader.image, request, self._controller.supported)

    async def _read(self, request: Read, timeout_ms: int) -> MetadataAnswer:
        """The response from the committed image; linearizable (ReadIndex)."""
        index, _ = await self.driver.ask(ReadIndexRequest("", timeout_ms))
        assert isinstance(index, ReadIndexResponse), type(index)
        if index.error is not ErrorCode.NONE:
            error = index.error
            if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                error = ErrorCode.NOT_CONTROLLER
            return self._answer(error, index.message)
        await self._loader.reached(index.offset)
        response: Response = self.describe(request)
        return self._answer(ErrorCode.NONE, response=response)

    def _answer(self, error: ErrorCode, message: str = "", response: Any = None) -> MetadataAnswer:
        return MetadataAnswer(error, self.driver.node.current_leader, response, message)

    # --- records ----------------------------------------------------------------------------------

    def _batch(self, result: ControllerResult, next_offset: int) -> tuple[int, bytearray] | None:
        """(number of records, batch) of a result; None without records. ValueError if too large."""
        records: tuple[AnyRecord, ...] = result.records
        if not records:
            return None
        batch = build_metadata_batch(records, time.time_ns() // 1_000_000)
        if len(batch) > self._batch_bytes_max:
            raise ValueError(
                f"{len(records)} records take {len(batch)} bytes; one batch holds at most "
                f"{self._batch_bytes_max}"
            )
        self._appended_end = next_offset + len(records)
        return len(records), batch

    # --- time -------------------------------------------------------------------------------------

    def _arm(self, delay_min_ms: int = 1) -> None:
        """Set the timer to the controller's next deadline, unless it is due earlier anyway.

        Each heartbeat moves a deadline; `_tick` sets the timer again if it is not due yet.
        """
        deadline_ms = self._controller.next_deadline_ms() if self._active.is_set() else None
        if self._timer is not None:
            if deadline_ms is not None and self._timer_at_ms <= deadline_ms:
                return
            self._timer.cancel()
            self._timer = None
        if deadline_ms is not None:
            now_ms = self.driver.now_ms()
            delay_ms = min(max(delay_min_ms, deadline_ms - now_ms), TICK_INTERVAL_MS_MAX)
            self._timer_at_ms = now_ms + delay_ms
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self._active.is_set():
            return
        deadline_ms = self._controller.next_deadline_ms()
        if deadline_ms is None or deadline_ms > self.driver.now_ms():
            self._arm()
            return

        def build(next_offset: int) -> tuple[int, bytearray] | None:
            result = self._controller.tick(self.driver.now_ms(), next_offset)
            return None if result is None else self._batch(result, next_offset)

        try:
            future = self.driver.append_now(build, TICK_TIMEOUT_MS)
        except Exception as error:
            LOGGER.exception("a tick of the metadata controller failed")
            self._restart(f"a tick failed: {error}")
            return
        # A leader that transfers leadership accepts no ticks, but continues if the transfer fails.
        refused = future is not None and future.done()
        self._arm(REFUSED_PAUSE_MS if refused else 1)
