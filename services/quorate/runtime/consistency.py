"""The online consistency check: the leader compares the voters' committed logs by checksum.

1. At every interval the leader reads the next range of its log, up to the offset that was committed
   one interval ago, and requests the checksum of the same range from every other voter. At the end
   of the log it starts over.
2. A voter that cannot answer is skipped in this round: it is down, busy or behind, its log starts
   later, or its version lacks the method.
3. If checksums differ, those of the minority are wrong. Without a majority this cannot be decided.

A difference is logged as an error and counted in the metric log-checksum-mismatches. Nothing is
repaired: an administrator replaces the replica.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.log.checksums import DamagedBatchError, RangeChecksum, checksum_range
from quorate.log.errors import LogError, OffsetOutOfRangeError
from quorate.raft.errors import ViolationError
from quorate.raft.types import ReplicaKey, Voter
from quorate.rpc.cancellation import cancel_tasks
from quorate.rpc.errors import TransportError, TransportKind
from quorate.rpc.wire.values import ChecksumLogRequest, ChecksumLogResponse
from quorate.runtime.driver import RaftDriver
from quorate.runtime.tasks import supervise

LOGGER = logging.getLogger(__name__)

RANGE_BYTES = 4 << 20
"""Bytes of the log that the leader compares at a time; a larger batch is compared alone."""

ANSWER_BYTES_MAX = 16 << 20
"""Bytes that a voter reads per request: a full range and the batch that completes it."""

TIMEOUT_MS = 10_000

REMEDY = (
    "Remove it from the quorum (metadata-quorum remove-controller), format an empty directory "
    "and add it again"
)


class ChecksumSource(Protocol):
    """The interface to other voters; `rpc.PeerTransport` implements it."""

    async def checksum_log(
        self, endpoint: Endpoint, request: ChecksumLogRequest, timeout_ms: int
    ) -> ChecksumLogResponse: ...


@dataclass(frozen=True, slots=True)
class _FoundChecksum:
    """The content of one replica's range: (crc, size) of its batches, or "damaged"."""

    replica: ReplicaKey
    content: tuple[int, int] | str


class LogChecksums:
    """Answers the ChecksumLog requests of a leader, one at a time."""

    def __init__(self, driver: RaftDriver) -> None:
        self._driver = driver
        self._is_busy = False

    async def answer(self, request: ChecksumLogRequest) -> ChecksumLogResponse:
        """The checksum of a range, or an error; raft.proto documents the errors."""
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        log = self._driver.log
        self._is_busy = True
        try:
            found = await asyncio.to_thread(
                checksum_range, log, request.start_offset, request.end_offset, ANSWER_BYTES_MAX
            )
        except OffsetOutOfRangeError as error:
            return ChecksumLogResponse(ErrorCode.OFFSET_OUT_OF_RANGE, message=str(error))
        except (DamagedBatchError, OSError) as error:
            LOGGER.error("consistency check: %s", error)
            return ChecksumLogResponse(ErrorCode.CORRUPT_MESSAGE, message=str(error))
        finally:
            self._is_busy = False
        if found.end_offset < request.end_offset and found.size >= ANSWER_BYTES_MAX:
            text = f"the range holds more than {ANSWER_BYTES_MAX} bytes"
            return ChecksumLogResponse(ErrorCode.INVALID_REQUEST, message=text)
        return ChecksumLogResponse(ErrorCode.NONE, found.crc, found.size)

    def _refusal(self, request: ChecksumLogRequest) -> ChecksumLogResponse | None:
        core = self._driver.node.core
        code, text = ErrorCode.NONE, ""
        if request.cluster_id != core.config.cluster_id:
            code, text = (
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"this cluster is {core.config.cluster_id}",
            )
        elif request.voter != core.local:
            code, text = ErrorCode.INVALID_VOTER_KEY, f"this replica is {core.local}"
        elif request.start_offset >= request.end_offset:
            code, text = ErrorCode.INVALID_REQUEST, "the range is empty"
        elif request.start_offset < self._driver.log.start_offset:
            code, text = ErrorCode.OFFSET_OUT_OF_RANGE, ""
        elif request.end_offset > min(core.high_watermark, self._driver.log.durable_end):
            code, text = ErrorCode.OFFSET_NOT_AVAILABLE, ""
        elif self._is_busy:
            code, text = ErrorCode.THROTTLING_QUOTA_EXCEEDED, "another range is being read"
        return None if code is ErrorCode.NONE else ChecksumLogResponse(code, message=text)


class ConsistencyChecker:
    """Compares the log range by range while this replica leads.

    interval_ms: the time between two ranges; 0 disables the check.
    """

    def __init__(self, driver: RaftDriver, peers: ChecksumSource, interval_ms: int) -> None:
        self._driver = driver
        self._peers = peers
        self._interval_s = interval_ms / 1000
        self._position = 0
        self._committed = 0
        self._task: asyncio.Task[None] | None = None
        self._unsupported: set[ReplicaKey] = set()
        self._reported: set[ReplicaKey] = set()

    def start(self) -> None:
        if self._interval_s:
            self._task = supervise(self._run(), "consistency check", self._driver.fail)

    async def stop(self) -> None:
        await cancel_tasks(self._task)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            committed = self._driver.node.high_watermark
            if self._driver.node.is_leader:
                # Every voter that keeps up has committed this offset as well by now.
                await self.check_range(self._committed)
            self._committed = committed

    async def check_range(self, committed: int) -> None:
        """Compare the next range; it ends at or before the offset `committed`."""
        log = self._driver.log
        end_offset = min(committed, log.durable_end)
        start_offset = self._position
        if not log.start_offset <= start_offset < end_offset:
            start_offset = log.start_offset
            self._unsupported.clear()  # they may have been upgraded
        if start_offset >= end_offset:
            return
        own_key = self._driver.node.core.local
        try:
            own = await asyncio.to_thread(
                checksum_range, log, start_offset, end_offset, RANGE_BYTES
            )
        except OffsetOutOfRangeError:
            return  # old segments were deleted meanwhile
        except DamagedBatchError as error:
            self._driver.recorder.checksum_mismatches += 1
            LOGGER.error("consistency check: %s", error)
            self._position = error.next_offset
            return
        except (LogError, OSError) as error:
            LOGGER.error("consistency check: offset %d cannot be read: %s", start_offset, error)
            return
        self._position = own.end_offset
        others = [voter for voter in self._driver.node.voters if voter.id != own_key.id]
        answers = await asyncio.gather(*(self._ask(v, start_offset, own) for v in others))
        found = [_FoundChecksum(own_key, (own.crc, own.size))]
        found += [answer for answer in answers if answer is not None]
        self._compare(found, start_offset, own.end_offset)

    async def _ask(
        self, voter: Voter, start_offset: int, own: RangeChecksum
    ) -> _FoundChecksum | None:
        """A voter's content of the range; None if the voter cannot answer now."""
        config = self._driver.node.core.config
        if not voter.endpoints or voter.key in self._unsupported:
            return None
        request = ChecksumLogRequest(
            config.cluster_id, config.local, voter.key, start_offset, own.end_offset
        )
        try:
            response = await self._peers.checksum_log(
                config.peer_endpoint(voter.endpoints), request, TIMEOUT_MS
            )
        except TransportError as error:
            if error.kind is TransportKind.NOT_SERVED:
                self._unsupported.add(voter.key)
                if voter.key not in self._reported:
                    self._reported.add(voter.key)
                    LOGGER.info(
                        "consistency check: replica %s is left out, because its version does not "
                        "support the check",
                        voter.key,
                    )
            return None
        except ViolationError as error:
            LOGGER.warning("consistency check: %s sent an invalid answer: %s", voter.key, error)
            return None
        if response.error is ErrorCode.CORRUPT_MESSAGE:
            return _FoundChecksum(voter.key, "damaged")
        if response.error is not ErrorCode.NONE:
            return None
        return _FoundChecksum(voter.key, (response.crc, response.size))

    def _compare(self, found: list[_FoundChecksum], start_offset: int, end_offset: int) -> None:
        contents = Counter(f.content for f in found if f.content != "damaged")
        common, count = contents.most_common(1)[0]
        if count == len(found):
            return
        self._driver.recorder.checksum_mismatches += 1
        where = f"offsets {start_offset} to {end_offset - 1}"
        if count <= len(self._driver.node.voters) // 2:
            names = ", ".join(str(f.replica) for f in found)
            LOGGER.error(
                "consistency check: the committed logs of %s differ in %s, and no majority of the "
                "voters agrees. Stop writing, and compare them with `quorate pipeline audit`",
                names,
                where,
            )
            return
        for differing in (f.replica for f in found if f.content != common):
            LOGGER.error(
                "consistency check: the committed log of replica %s differs from that of the "
                "majority in %s. %s",
                differing,
                where,
                REMEDY,
            )
