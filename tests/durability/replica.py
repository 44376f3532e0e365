"""One replica's use of its log, at random, and what it may never lose.

It writes quorum-state before anything of an epoch, appends, truncates to what a leader says, takes
and cleans up snapshots, installs received ones, and opens its log again after each failure. What
the log reported durable, and all that it held when it was opened, counts as acknowledged; what was
acknowledged a second ago lies below the recovery point on the disk.
"""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from quorate.common.batch_layout import HEADER_SIZE
from quorate.common.endpoints import Endpoint
from quorate.log.config import LogConfig
from quorate.log.disk import Disk
from quorate.log.errors import DamagedSnapshotError, LogError
from quorate.log.install import SnapshotInstall
from quorate.log.metadata_log import MetadataLog, partition_directory, write_bootstrap_checkpoint
from quorate.log.offset_files import read_recovery_point
from quorate.log.quorum_state import QUORUM_STATE_FILE, QuorumStateFile
from quorate.log.required_end import RequiredEndFile
from quorate.log.snapshots import SnapshotStore
from quorate.log.writer import RECOVERY_POINT_PERIOD_S
from quorate.raft.batches import KRaftVersion, VotersRecord
from quorate.raft.types import (
    BOOTSTRAP_SNAPSHOT,
    ElectionState,
    OffsetAndEpoch,
    ReplicaKey,
    RequiredEnd,
    Voter,
    VoterSet,
)
from quorate.records.batch import (
    build_control_batch,
    build_data_batch,
    iter_batches,
    read_header,
    stamp,
)

from tests.durability.disk import SECTOR_BYTES, TARGETS, FaultyDisk
from tests.durability.stepping import Clock, use, writer_of
from tests.logs.cleaning import clean

DIRECTORY = "AAAAAAAAAAAAAAAAAAAAAQ"
VOTERS = VoterSet((Voter(ReplicaKey(1, DIRECTORY), (Endpoint("CONTROLLER", "127.0.0.1", 9093),)),))
STEPS_MAX = 150
FIRST_BYTES = (8, 9, 10, 11, 11, 11)
"""A piece of a batch that holds its offset and the first bytes of its length: no checksum covers
it. Eleven bytes, and only they, hold a part of the length that is not zero here.
"""
WORK = 60
"""What a life does at most before it ends without a fault."""


class ViolationError(Exception):
    """Something that may never happen did."""


@dataclass(slots=True)
class Model:
    """What the disk should hold. batches: of the log, in order, each with its base offset.

    lineages: what `batches` was before each truncation that was not reported yet, by its ticket.
    acknowledged: every batch before this offset must stay. voted: quorum-state as written; voting:
    as it is being written. installing: the checkpoint that may have replaced the log.
    """

    batches: list[tuple[int, bytes]] = field(default_factory=list)
    lineages: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    acknowledged: int = 0
    pending: list[tuple[int, int]] = field(default_factory=list)
    voted: ElectionState | None = None
    voting: ElectionState | None = None
    required: RequiredEnd | None = None
    reaching: bool = False
    snapshot: OffsetAndEpoch = BOOTSTRAP_SNAPSHOT
    installing: OffsetAndEpoch | None = None
    start: int = 0
    epoch: int = 0


@dataclass(slots=True)
class Reception:
    """A checkpoint that is being received. is_sure: no power failure since it began."""

    snapshot: OffsetAndEpoch
    data: bytes
    is_sure: bool = True


class Point:
    """What the recovery point on the disk must cover, by what the writer promises: what was
    acknowledged first after the log was opened, and everything a second after.
    """

    def __init__(self) -> None:
        self.floor = 0
        self._later: list[tuple[float, int]] = []
        self._is_first = False

    def open(self, end_offset: int) -> None:
        self.floor = end_offset
        self._later.clear()
        self._is_first = True

    def reset(self, offset: int) -> None:
        self.open(offset)
        self._is_first = False

    def lower(self, offset: int) -> None:
        self.floor = min(self.floor, offset)
        self._later = [(at_s, min(end, offset)) for at_s, end in self._later]

    def acknowledge(self, end_offset: int) -> None:
        if self._is_first:
            self.floor = max(self.floor, end_offset)
        self._is_first = False
        self._later.append((Clock.now_s, end_offset))

    def worked(self) -> None:
        """The writer had its turn."""
        while self._later and self._later[0][0] <= Clock.now_s - RECOVERY_POINT_PERIOD_S:
            self.floor = max(self.floor, self._later.pop(0)[1])


class Replica:
    """The log of one directory through its failures."""

    def __init__(self, base: Path, random: Random) -> None:
        self.base = base
        self.random = random
        self.root = base / "0"
        self.root.mkdir(parents=True)
        self.model = Model()
        self.disk: FaultyDisk | None = None
        self.log: MetadataLog | None = None
        self.lives = 0
        self.after_power = False
        self.unsynced = False
        self.may_drop = False
        self.was_cut_off = False
        self.tickets: list[int] = []
        self.ticket = 0
        self.pace = 1.0
        self.point = Point()
        self.reception: Reception | None = None
        use()
        write_bootstrap_checkpoint(self.root, VOTERS)

    @property
    def partition(self) -> Path:
        return partition_directory(self.root)

    def quorum_state(self) -> bytes | None:
        path = self.partition / QUORUM_STATE_FILE
        return path.read_bytes() if path.exists() else None

    def close(self) -> None:
        if self.disk is not None:
            self.disk.close()
            self.disk = None

    def _has_two_names(self) -> bool:
        """Whether a crash left quorum-state its old name, that of its reserve, too."""
        path = self.partition / QUORUM_STATE_FILE
        reserve = path.with_name(path.name + ".tmp")
        return path.exists() and reserve.exists() and reserve.samefile(path)

    # --- a life -----------------------------------------------------------------------------------

    def live(self, ending: str, pace: float | None = None) -> None:
        """Open the log, check it, work until `ending` comes at some step or at the end. pace: how
        much time passes, by chance if None.
        """
        random = self.random
        if self.disk is None:
            self.disk = FaultyDisk([self.root, self.partition])
        self.disk.is_down = False
        self.may_drop |= self.after_power and self.unsynced
        if ending in ("power", "kill") and self._has_two_names() and random.random() < 0.7:
            self.disk.fail_at(1, ending, random, "write quorum-state.tmp")
        elif ending in ("power", "kill") and random.random() < 0.7:
            steps = random.choice((1, random.randint(1, 8)))
            target = "write .log" if random.random() < 0.5 else random.choice(TARGETS)
            self.disk.fail_at(steps, ending, random, target, random.choice((1, 1, 3, 10)))
        elif ending == "eio" and random.random() < 0.7:
            target = random.choice(("write .log", "write .part"))
            self.disk.fail_at(1, ending, random, target)
        elif ending in ("power", "kill", "eio"):
            steps = random.choice((12, 40, STEPS_MAX))
            self.disk.fail_at(random.randint(1, steps), ending, random)
        else:
            self.disk.fail_at(1 << 40, "none", random)
        self.lives += 1
        # Fast work leaves the recovery point behind.
        self.pace = random.choice((0.0, 0.1, 1.0)) if pace is None else pace
        self.tickets, self.ticket = [], 0
        self.model.pending.clear()
        failures: list[BaseException] = []
        config = LogConfig(
            segment_bytes_max=random.choice((3000, 12_000, 60_000)),
            preallocate_bytes=random.choice((0, 4096, 16_384)),
            tail_cache_bytes=random.choice((0, 1 << 20)),
            retention_bytes=0,
        )
        try:
            self._check_point()
            self.was_cut_off, was_cut_off = True, self.was_cut_off
            self.log = MetadataLog.open(
                self.root,
                config,
                on_durable=self.tickets.append,
                on_failure=failures.append,
                disk=self.disk,
            )
            self.was_cut_off = was_cut_off
            self.check()
            self.was_cut_off = self.may_drop = False
            self.point.open(self.log.end_offset)
            if ending != "idle" and random.random() < 0.3:
                self._vote(self.model.epoch + 1)
            for _ in range(0 if ending == "idle" else random.randint(1, WORK)):
                self.work()
                self._collect()
                if failures:
                    raise failures[0]
            if ending == "close":
                writer_of(self.log).step()
                self._collect()
                if failures:
                    raise failures[0]
                self.log.close()
        except (OSError, LogError) as error:
            is_expected = self.disk.is_down or "of this test" in str(error)
            if not is_expected:
                raise ViolationError(f"life {self.lives}: {error}") from error
        self._end(ending)

    def _end(self, ending: str) -> None:
        assert self.disk is not None
        self._collect()
        self.disk.is_down = True
        if self.log is not None:
            with contextlib.suppress(OSError, LogError):
                self.log.close()
            self.log = None
        self.after_power = ending in ("power", "close", "quiet", "idle")
        self.unsynced = self.disk.has_unsynced_writes(".log")

    def crash(self) -> None:
        """The power fails now: from here on the disk holds what is left."""
        assert self.disk is not None
        self.after_power = True
        if self.reception is not None:
            self.reception.is_sure = False
        self.unsynced = self.disk.has_unsynced_writes(".log")
        target = self.base / str(self.lives)
        self.disk.crash(self.random, target)
        self.close()
        shutil.rmtree(self.root)
        self.root = target

    def _collect(self) -> None:
        model = self.model
        while model.pending and self.tickets and self.tickets[-1] >= model.pending[0][0]:
            ticket, end = model.pending.pop(0)
            model.lineages.pop(ticket, None)
            model.acknowledged = max(model.acknowledged, end)
            self.point.acknowledge(model.acknowledged)

    # --- what is found ----------------------------------------------------------------------------

    def check(self) -> None:
        """Nothing acknowledged is lost, no vote is forgotten, nothing is there that was not
        written, and a required end is set only after a power failure in an unsynced write.
        """
        assert self.log is not None
        model, log = self.model, self.log
        found = read_all(log)
        if model.installing is not None:
            if log.start == model.installing:
                self._installed(model.installing)
            model.installing = None
        model.start = log.start_offset
        have = dict(found)
        for offset, batch in model.batches:
            if not model.start <= offset < model.acknowledged:
                continue
            if have.get(offset) != batch:
                what = "another" if offset in have else "gone"
                raise ViolationError(
                    f"life {self.lives}: the acknowledged batch at {offset} is {what}; the log is "
                    f"{log.start_offset} to {log.end_offset}, acknowledged {model.acknowledged}, "
                    f"dropped {log.recovered.truncated_bytes} bytes"
                )
        if log.end_offset < model.acknowledged:
            raise ViolationError(f"life {self.lives}: the log ends before {model.acknowledged}")
        self._check_lineage(found)
        self._check_vote()
        self._check_required_end()
        if (read_recovery_point(self.root) or 0) > log.end_offset:
            raise ViolationError(f"life {self.lives}: the recovery point is ahead of the log")
        model.batches = found
        model.lineages.clear()
        model.acknowledged = log.end_offset

    def _check_point(self) -> None:
        """The recovery point covers what it promises, unless a received checkpoint may be in."""
        point = read_recovery_point(self.root) or 0
        if self.model.installing is None and point < self.point.floor:
            raise ViolationError(
                f"life {self.lives}: the recovery point is {point}, durable was {self.point.floor}"
            )

    def _check_lineage(self, found: list[tuple[int, bytes]]) -> None:
        """The log is the beginning of what it was after the last truncation that was reported."""
        for lineage in [self.model.batches, *self.model.lineages.values()]:
            expected = [entry for entry in lineage if entry[0] >= self.model.start]
            if found == expected[: len(found)]:
                return
        raise ViolationError(f"life {self.lives}: the log holds what nobody wrote like that")

    def _check_vote(self) -> None:
        assert self.log is not None
        model = self.model
        file = QuorumStateFile(self.partition, self.disk)
        state = file.read()
        if state not in (model.voted, model.voting or model.voted):
            raise ViolationError(
                f"life {self.lives}: quorum-state is {state}, written was {model.voted}, being "
                f"written {model.voting}"
            )
        file.check(state, self.log.recovered.last_epoch)
        model.voted, model.voting = state, None

    def _check_required_end(self) -> None:
        assert self.log is not None
        model, recovered = self.model, self.log.recovered
        required = recovered.required_end
        if required != RequiredEndFile(self.partition, self.disk).read():
            raise ViolationError(f"life {self.lives}: required-end is not what was recovered")
        if recovered.dropped_end is not None:
            if not self.may_drop:
                raise ViolationError(f"life {self.lives}: a required end without a reason")
            if required is None or _key(required.end) < _key(recovered.dropped_end):
                raise ViolationError(f"life {self.lives}: the required end is too low")
        elif required not in (model.required, None if model.reaching else model.required) and not (
            self.was_cut_off and self.may_drop
        ):
            raise ViolationError(
                f"life {self.lives}: the required end is {required}, written was {model.required}"
            )
        known = None if model.reaching else model.required
        if required is not None and known is not None and _key(required.end) < _key(known.end):
            raise ViolationError(f"life {self.lives}: the required end was lowered")
        model.required, model.reaching = required, False

    # --- what it does -----------------------------------------------------------------------------

    def work(self) -> None:
        """One random operation."""
        assert self.log is not None
        random = self.random
        Clock.now_s += self.pace * random.choice((0.0, 0.01, 0.3, 0.8))
        chosen = random.random()
        if chosen < 0.45:
            self._append()
        elif chosen < 0.53:
            self._truncate()
        elif chosen < 0.58:
            self._vote(self.model.epoch + random.randint(0, 1))
        elif chosen < 0.63:
            self._snapshot()
        elif chosen < (0.65 if self.reception is None else 0.8):
            self._install()
        elif chosen < 0.68:
            self._require()
        else:
            writer_of(self.log).step()
            self._collect()
            if writer_of(self.log).failure is None:
                self.point.worked()

    def _append(self) -> None:
        assert self.log is not None
        model, random = self.model, self.random
        if model.epoch == 0 or random.random() < 0.1:
            self._vote(model.epoch + 1)
        batches: list[bytes] = []
        offset = self.log.end_offset
        # In the file, unless it is full before.
        position = self.log._segments.active.size + self.log.queued_bytes
        for _ in range(random.randint(1, 4)):
            batch = self._batch(offset, position)
            position += len(batch)
            batches.append(batch)
            model.batches.append((offset, batch))
            offset = read_header(batch).end_offset
        self.ticket += 1
        self.log.append(self.ticket, batches)
        model.pending.append((self.ticket, offset))

    def _batch(self, offset: int, position: int) -> bytes:
        """One batch; the one behind it often begins shortly before the end of a sector."""
        random = self.random
        if random.random() < 0.05:
            records = random.choice(
                ([VotersRecord(VOTERS)], [KRaftVersion(1), VotersRecord(VOTERS)])
            )
            built = build_control_batch(records, 1000)
        else:
            size = random.choice((5, 60, 350, 900, 2500, random.randint(1, 1200)))
            count = random.choice((1, 1, 1, 3))
            values = [(b"k", random.randbytes(size)) for _ in range(count)]
            built = build_data_batch(values, 1000)
            if random.random() < 0.6:
                room = random.choice((*FIRST_BYTES, random.randint(1, HEADER_SIZE)))
                more = -(position + len(built) + room) % SECTOR_BYTES
                values[0] = (b"k", random.randbytes(len(values[0][1]) + more))
                built = build_data_batch(values, 1000)
        stamp(built, offset, self.model.epoch)
        return bytes(built)

    def _vote(self, epoch: int) -> None:
        assert self.disk is not None
        model, random = self.model, self.random
        voted = None if random.random() < 0.3 else ReplicaKey(random.randint(1, 3), DIRECTORY)
        state = ElectionState(max(epoch, 1), None, voted)
        model.voting = state
        QuorumStateFile(self.partition, self.disk).write(state)
        model.voted, model.voting = state, None
        model.epoch = state.epoch

    def _truncate(self) -> None:
        """To the end of a batch at or after the newest snapshot."""
        assert self.log is not None
        model, random = self.model, self.random
        least = max(self.log.start_offset, model.snapshot.offset)
        places = [offset for offset, _ in model.batches if offset >= least]
        if not places:
            return
        to = random.choice(places[-12:])
        self._vote(model.epoch + 1)
        self.point.lower(to)
        self.ticket += 1
        model.lineages[self.ticket] = list(model.batches)
        model.batches = [entry for entry in model.batches if entry[0] < to]
        model.acknowledged = min(model.acknowledged, to)
        model.pending = [(ticket, min(end, to)) for ticket, end in model.pending]
        self.log.truncate(self.ticket, to)
        model.pending.append((self.ticket, to))

    def _snapshot(self) -> None:
        assert self.log is not None
        assert self.disk is not None
        model, log, random = self.model, self.log, self.random
        end = min(model.acknowledged, log.durable_end)
        if end <= max(model.snapshot.offset, log.start_offset):
            return
        snapshot = OffsetAndEpoch(end, log._epochs.epoch_before(end))
        # Its records are committed: nothing before its end is truncated, written or not.
        model.snapshot = snapshot
        log.write_snapshot(snapshot, 1, VOTERS, 1, ())
        if random.random() < 0.6:
            if random.random() < 0.5:
                # What the writer does meanwhile: a truncation to what is being cleaned up to.
                self.disk.on_segment_unlink = self._between
            try:
                clean(log, 1)
            finally:
                self.disk.on_segment_unlink = lambda: None

    def _between(self) -> None:
        assert self.log is not None
        assert self.disk is not None
        if self.random.random() < 0.7:
            self.disk.on_segment_unlink = lambda: None
            if self.random.random() < 0.5:
                self._truncate()
            writer_of(self.log).step()

    def _install(self) -> None:
        """Receive a checkpoint, perhaps a part of it now and the rest later."""
        assert self.log is not None
        assert self.disk is not None
        model, log, random = self.model, self.log, self.random
        received = self.reception
        if received is None or not self._may_replace(received.snapshot):
            offset = log.end_offset + random.randint(1, 40)
            least = max(log.start_offset, model.snapshot.offset) + 1
            if least <= log.end_offset and random.random() < 0.4:
                # Not committed here, and the leader has other records there.
                offset = random.randint(least, log.end_offset)
            self._vote(model.epoch + 1)
            snapshot = OffsetAndEpoch(offset, model.epoch)
            received = self.reception = Reception(snapshot, checkpoint(self.base, snapshot))
        # Who fetches has made durable all that it appended.
        writer_of(log).step()
        self._collect()
        if writer_of(log).failure is not None:
            return
        if not self._receive(log.begin_install(received.snapshot), received):
            return
        if writer_of(log).failure is None:
            model.installing = None
            self._installed(received.snapshot)

    def _may_replace(self, snapshot: OffsetAndEpoch) -> bool:
        """Whether the log ends before a checkpoint, or holds another epoch before it."""
        assert self.log is not None
        if snapshot.offset > self.log.end_offset:
            return True
        is_committed = snapshot.offset <= max(self.log.start_offset, self.model.snapshot.offset)
        return not is_committed and self.log._epochs.epoch_before(snapshot.offset) < snapshot.epoch

    def _receive(self, install: SnapshotInstall, received: Reception) -> bool:
        """Whether the checkpoint replaced the log."""
        assert self.disk is not None
        random, position, data = self.random, install.position, received.data
        while position < len(data):
            if random.random() < 0.05:
                install.close()
                return False
            end = min(position + random.randint(50, 400), len(data))
            install.write(position, data[position:end])
            position = end
        self.ticket += 1
        self.model.installing = received.snapshot
        try:
            install.finish(self.ticket)
        except DamagedSnapshotError:
            # The power failed while it was received, and what was not synced is lost.
            if received.is_sure:
                raise
        except LogError:
            # After a failed sync it is received again from its beginning.
            if self.disk.is_down or not self.disk.failed_sync.endswith(".part"):
                raise
        else:
            self.reception = None
            return True
        self.model.installing = None
        received.is_sure = True
        return False

    def _installed(self, snapshot: OffsetAndEpoch) -> None:
        model = self.model
        model.batches = []
        model.lineages.clear()
        model.pending.clear()
        model.start = model.acknowledged = snapshot.offset
        self.point.reset(snapshot.offset)
        model.snapshot = snapshot

    def _require(self) -> None:
        """What the protocol does with `required-end`: remove it when the log has reached it."""
        assert self.log is not None
        model, log = self.model, self.log
        file = RequiredEndFile(self.partition, self.disk)
        if model.required is None:
            return
        end = OffsetAndEpoch(log.durable_end, log.last_epoch)
        if _key(end) >= _key(model.required.end):
            model.reaching = True
            file.write(None)
            model.required, model.reaching = None, False


def _key(end: OffsetAndEpoch) -> tuple[int, int]:
    return end.epoch, end.offset


def read_all(log: MetadataLog) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    position = log.start_offset
    while position < log.end_offset:
        for view in log.read(position, 1 << 20):
            for header, batch in iter_batches(view):
                found.append((header.base_offset, bytes(batch)))
                position = header.end_offset
    return found


def checkpoint(base: Path, snapshot: OffsetAndEpoch) -> bytes:
    """A checkpoint as a leader sends it."""
    folder = base / "leader"
    folder.mkdir(exist_ok=True)
    store = SnapshotStore(folder, QuietDisk())
    store.write(snapshot, 1, VOTERS, 1, ())
    data = store.path(snapshot).read_bytes()
    store.path(snapshot).unlink()
    return data


class QuietDisk(Disk):
    """The real files, never synced."""

    def sync(self, descriptor: int) -> None:
        """Not needed."""

    def sync_data(self, descriptor: int) -> None:
        """Not needed."""

    def sync_directory(self, directory: Path) -> None:
        """Not needed."""
