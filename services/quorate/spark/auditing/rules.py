"""The audit rules for control records, and the offset before which everything is committed.

They are plain Python over data that Spark has collected. See `audit` for the whole procedure, and
`audit_files` for the rules for small files.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from quorate.log.snapshots import parse_snapshot_name
from quorate.raft.types import OffsetAndEpoch
from quorate.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from quorate.spark.files import LogReplica

LEADER_CHANGE, KRAFT_VOTERS = "LEADER_CHANGE", "KRAFT_VOTERS"
KRAFT_VERSION = "KRAFT_VERSION"


_TRANSACTION_MARKERS = (
    BeginTransactionRecord.TYPE,
    EndTransactionRecord.TYPE,
    AbortTransactionRecord.TYPE,
)


class AuditRule(StrEnum):
    """The rules that a cluster can violate."""

    CHECKSUM = "checksum"
    BYTES = "bytes"
    GAP = "gap"
    DUPLICATE = "duplicate"
    ORDER = "order"
    EPOCH = "epoch"
    LOG_MATCHING = "log_matching"
    DIVERGENCE = "divergence"
    ONE_LEADER = "one_leader"
    VOTERS = "voters"
    CONTROL = "control"
    LOST_TAIL = "lost_tail"
    SNAPSHOT = "snapshot"
    CLUSTER = "cluster"
    IDENTITY = "identity"
    STATE = "state"
    TRANSACTION = "transaction"
    TIMESTAMP = "timestamp"
    PRODUCER = "producer"
    INDEX = "index"

    @property
    def text(self) -> str:
        """The rule, as the result of an audit names it."""
        return _RULE_TEXTS[self]


_RULE_TEXTS = {
    AuditRule.CHECKSUM: "checksum",
    AuditRule.BYTES: "bytes that are no batch",
    AuditRule.GAP: "missing offsets",
    AuditRule.DUPLICATE: "an offset twice",
    AuditRule.ORDER: "offsets out of order",
    AuditRule.EPOCH: "epochs out of order",
    AuditRule.LOG_MATCHING: "log matching",
    AuditRule.DIVERGENCE: "divergence below the high watermark",
    AuditRule.ONE_LEADER: "one leader an epoch",
    AuditRule.VOTERS: "voter sets differ by at most one",
    AuditRule.CONTROL: "a control record out of place",
    AuditRule.LOST_TAIL: "a lost tail",
    AuditRule.SNAPSHOT: "a snapshot that disagrees",
    AuditRule.CLUSTER: "one cluster",
    AuditRule.IDENTITY: "one directory a replica",
    AuditRule.STATE: "quorum-state",
    AuditRule.TRANSACTION: "a transaction out of place",
    AuditRule.TIMESTAMP: "timestamps out of order",
    AuditRule.PRODUCER: "a producer id out of place",
    AuditRule.INDEX: "an index that disagrees",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation. size, other_size: the length of the relevant bytes at the positions.

    end: the offset after those that it concerns, 0 if it concerns a single one.
    """

    rule: AuditRule
    offset: int
    replica: str
    other: str = ""
    text: str = ""
    file: str = ""
    position: int = 0
    size: int = 0
    other_file: str = ""
    other_position: int = 0
    other_size: int = 0
    end: int = 0

    @property
    def after(self) -> int:
        """The offset after those that it concerns."""
        return max(self.end, self.offset + 1)


@dataclass(frozen=True, slots=True)
class ControlBatch:
    """A control batch of a log (snapshot None) or of a checkpoint."""

    replica: str
    file: str
    position: int
    size: int
    base_offset: int
    epoch: int
    snapshot: int | None
    controls: tuple[tuple[str, dict[str, Any]], ...]

    @classmethod
    def of(cls, row: Any) -> ControlBatch:
        controls = tuple((one["type"], json.loads(one["data"])) for one in row.controls)
        return cls(
            row.replica,
            row.file,
            row.position,
            row.size,
            row.base_offset,
            row.epoch,
            row.snapshot,
            controls,
        )

    def finding(
        self, rule: AuditRule, text: str, other: ControlBatch | None = None, at: int = 0
    ) -> Finding:
        return Finding(
            rule,
            self.base_offset + at,
            self.replica,
            "" if other is None else other.replica,
            text,
            self.file,
            self.position,
            self.size,
            "" if other is None else other.file,
            0 if other is None else other.position,
            0 if other is None else other.size,
        )


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """What files beside the log say about it.

    epochs: the entries of leader-epoch-checkpoint. fault: why that file cannot be read. reached:
    names of files, and the offsets that the log must have reached when they were written.
    """

    epochs: tuple[OffsetAndEpoch, ...] = ()
    fault: str = ""
    reached: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True)
class Facts:
    """A replica's log: its offsets [start, end), its last epoch, and the start of each epoch.

    small_files: read before the log, which may grow meanwhile. skipped_end: the offset before which
    the log was not read again (`audit_memory`).
    """

    replica: LogReplica
    start: int
    end: int
    epoch: int
    epochs: dict[int, int] = field(default_factory=dict)
    small_files: SmallFiles = field(default_factory=SmallFiles)
    skipped_end: int = 0

    @property
    def read_from(self) -> int:
        """The first offset that was read."""
        return max(self.start, self.skipped_end)

    @property
    def name(self) -> str:
        return self.replica.name

    @property
    def node_id(self) -> int | None:
        properties = self.replica.properties
        return None if properties is None else properties.node_id

    @property
    def key(self) -> str | None:
        """The replica's voter key: its id and directory id."""
        properties = self.replica.properties
        return None if properties is None else f"{properties.node_id}-{properties.directory_id}"

    def voter_in(self, voters: frozenset[str]) -> str | None:
        """The voter that the replica is, if any. Static voters have ids only."""
        keys = (self.key, str(self.node_id))
        return next((key for key in keys if key is not None and key in voters), None)


# --- control records ------------------------------------------------------------------------------


def control_findings(batches: Sequence[ControlBatch], facts: dict[str, Facts]) -> Iterator[Finding]:
    """Check leaders, voter sets, and the placement of control records."""
    log = sorted(
        (b for b in batches if b.snapshot is None), key=lambda b: (b.replica, b.base_offset)
    )
    yield from _placed(log, facts)
    yield from _one_leader(log)
    for name, one in facts.items():
        of_replica = [b for b in log if b.replica == name]
        yield from _voter_sets(of_replica)
        yield from _transactions(of_replica, one)
    yield from _checkpoints([b for b in batches if b.snapshot is not None])


def _placed(log: Sequence[ControlBatch], facts: dict[str, Facts]) -> Iterator[Finding]:
    """Check that LeaderChange occurs only at the start of an epoch.

    A log must have no snapshot header or footer, and no control records of unknown types.
    """
    led: dict[tuple[str, int], ControlBatch] = {}
    for batch in log:
        for index, (kind, _) in enumerate(batch.controls):
            if kind in ("SNAPSHOT_HEADER", "SNAPSHOT_FOOTER"):
                text = f"{kind} occurs in the log"
                yield batch.finding(AuditRule.CONTROL, text, at=index)
            elif kind == LEADER_CHANGE:
                first = led.setdefault((batch.replica, batch.epoch), batch)
                begins = facts[batch.replica].epochs.get(batch.epoch, batch.base_offset)
                if index or first is not batch:
                    text = f"a second LeaderChange in epoch {batch.epoch}"
                    yield batch.finding(AuditRule.CONTROL, text, first, at=index)
                elif begins < batch.base_offset and begins > facts[batch.replica].start:
                    text = (
                        f"LeaderChange occurs within epoch {batch.epoch}, which began at {begins}"
                    )
                    yield batch.finding(AuditRule.CONTROL, text)
            elif kind.startswith("UNKNOWN") or kind in ("ABORT", "COMMIT"):
                text = f"{kind} is not a control record of a metadata log"
                yield batch.finding(AuditRule.CONTROL, text, at=index)


Led = dict[int, list[tuple[int, list[ControlBatch]]]]
"""By epoch: its leaders with the LeaderChanges that name them, that of most replicas first."""


def leaders_of(log: Iterable[ControlBatch]) -> Led:
    """The leaders of each epoch, according to the LeaderChanges in the logs of all replicas."""
    found: dict[int, dict[int, list[ControlBatch]]] = {}
    for batch in log:
        for kind, data in batch.controls:
            if kind == LEADER_CHANGE and batch.snapshot is None:
                of_epoch = found.setdefault(batch.epoch, {})
                of_epoch.setdefault(data["leaderId"], []).append(batch)
    return {
        epoch: sorted(
            leaders.items(), key=lambda item: (-len({b.replica for b in item[1]}), item[0])
        )
        for epoch, leaders in found.items()
    }


def _one_leader(log: Sequence[ControlBatch]) -> Iterator[Finding]:
    for epoch, ((right, believed), *others) in leaders_of(log).items():
        for leader, batches in others:
            for batch in batches:
                by = believed[0]
                text = f"epoch {epoch} is led by {leader} here and by {right} on {by.replica}"
                yield batch.finding(AuditRule.ONE_LEADER, text, by)
    for batch in log:
        for kind, data in batch.controls:
            if kind == LEADER_CHANGE:
                yield from _elected(batch, data)


def _elected(batch: ControlBatch, data: dict[str, Any]) -> Iterator[Finding]:
    voters = {one["voterId"] for one in data["voters"]}
    granting = {one["voterId"] for one in data["grantingVoters"]}
    if voters and 2 * len(granting & voters) <= len(voters):
        text = (
            f"{data['leaderId']} was elected in epoch {batch.epoch} by {sorted(granting)}, not a "
            f"majority of {sorted(voters)}"
        )
        yield batch.finding(AuditRule.ONE_LEADER, text)


def voter_keys(data: dict[str, Any]) -> frozenset[str]:
    return frozenset(f"{v['voterId']}-{v['voterDirectoryId']}" for v in data["voters"])


def _voter_sets(log: Sequence[ControlBatch]) -> Iterator[Finding]:
    """Check that successive voter sets differ by at most one voter (KIP-853).

    A log with voters has kraft.version 1, which is final.
    """
    before: tuple[frozenset[str], ControlBatch] | None = None
    for batch in log:
        for index, (kind, data) in enumerate(batch.controls):
            if kind == KRAFT_VERSION and data["kRaftVersion"] == 0 and before is not None:
                text = "kraft.version becomes 0, which has no voters in the log"
                yield batch.finding(AuditRule.VOTERS, text, before[1], at=index)
            if kind != KRAFT_VOTERS:
                continue
            keys = voter_keys(data)
            if before is not None and len(keys ^ before[0]) > 1:
                text = (
                    f"the voters change from {shown_keys(before[0])} to {shown_keys(keys)} in one "
                    "step"
                )
                yield batch.finding(AuditRule.VOTERS, text, before[1], at=index)
            before = (keys, batch)


def _transactions(log: Sequence[ControlBatch], facts: Facts) -> Iterator[Finding]:
    """Check that transactions neither overlap nor end without a beginning (KIP-868).

    The records of a transaction that begins before the log start may be gone.
    """
    begun: ControlBatch | None = None
    is_known = facts.start == 0
    for batch in log:
        for kind, data in batch.controls:
            if kind not in _TRANSACTION_MARKERS:
                continue
            is_begin = kind == BeginTransactionRecord.TYPE
            if is_begin and begun is not None:
                text = "a transaction begins within another one"
                found = batch.finding(AuditRule.TRANSACTION, text, begun)
                yield replace(found, offset=data["offset"])
            elif not is_begin and begun is None and is_known:
                found = batch.finding(AuditRule.TRANSACTION, f"{kind} ends no transaction")
                yield replace(found, offset=data["offset"])
            begun = batch if is_begin else None
            is_known = True


def shown_keys(keys: Iterable[str]) -> str:
    """Voter keys as text, sorted."""
    return "{" + ", ".join(sorted(keys)) + "}"


def _checkpoints(batches: Sequence[ControlBatch]) -> Iterator[Finding]:
    """Check that each checkpoint has a header first, a footer last, and no LeaderChange.

    Its control batches must have the epoch in the file name.
    """
    by_file: dict[str, list[ControlBatch]] = {}
    for batch in batches:
        by_file.setdefault(batch.file, []).append(batch)
    for found in by_file.values():
        found.sort(key=lambda b: b.position)
        first, last = found[0], found[-1]
        assert first.snapshot is not None
        if (
            first.position != 0
            or first.controls[:1] == ()
            or first.controls[0][0] != "SNAPSHOT_HEADER"
        ):
            yield first.finding(AuditRule.SNAPSHOT, "it does not begin with SnapshotHeader")
        if last.controls[-1:] == () or last.controls[-1][0] != "SNAPSHOT_FOOTER":
            yield last.finding(AuditRule.SNAPSHOT, "it does not end with SnapshotFooter")
        named = parse_snapshot_name(Path(first.file).stem)
        other = next((b for b in found if named is not None and b.epoch != named.epoch), None)
        if named is not None and other is not None:
            text = f"a checkpoint of epoch {named.epoch} contains a batch of epoch {other.epoch}"
            yield other.finding(AuditRule.SNAPSHOT, text)
        for batch in found:
            if any(kind == LEADER_CHANGE for kind, _ in batch.controls):
                text = "the checkpoint contains a LeaderChange"
                yield batch.finding(AuditRule.CONTROL, text)


# --- committed offsets ----------------------------------------------------------------------------


def last_voters(batches: Sequence[ControlBatch], replica: str) -> frozenset[str] | None:
    """The voter set at the end of a replica's log.

    If the log has none, it comes from the newest checkpoint that has one. If that has none either,
    the voters are static (kraft.version 0), and their ids come from the newest LeaderChange.
    """
    mine = [b for b in batches if b.replica == replica]
    in_log = sorted((b for b in mine if b.snapshot is None), key=lambda b: b.base_offset)
    stored = sorted((b for b in mine if b.snapshot is not None), key=lambda b: b.snapshot or 0)
    for batch in [*reversed(in_log), *reversed(stored)]:
        for kind, data in reversed(batch.controls):
            if kind == KRAFT_VOTERS:
                return voter_keys(data)
    for batch in reversed(in_log):
        for kind, data in reversed(batch.controls):
            if kind == LEADER_CHANGE:
                return frozenset(str(voter["voterId"]) for voter in data["voters"])
    return None


def end_of_agreement(one: Facts, other: Facts) -> int:
    """The offset before which two logs hold the same records (log matching).

    0 if they share no epoch.
    """
    shared = max(one.epochs.keys() & other.epochs.keys(), default=None)
    return 0 if shared is None else min(_end_of(one, shared), _end_of(other, shared))


def _end_of(one: Facts, epoch: int) -> int:
    return min((start for later, start in one.epochs.items() if later > epoch), default=one.end)


def current_voters(batches: Sequence[ControlBatch], facts: dict[str, Facts]) -> frozenset[str]:
    """The voter set at the end of most logs, of two equally frequent ones that of the longer log.

    Empty if no log and no checkpoint has one.
    """
    counts: Counter[frozenset[str]] = Counter()
    for one in sorted(facts.values(), key=lambda one: (one.epoch, one.end), reverse=True):
        voters = last_voters(batches, one.name)
        if voters:
            counts[voters] += 1
    return max(counts, key=lambda voters: counts[voters], default=frozenset())


class MajorityEnd(NamedTuple):
    """What a majority holds. epoch: the last one of the logs of the majority."""

    offset: int
    epoch: int


def majority_end(batches: Sequence[ControlBatch], facts: Iterable[Facts]) -> MajorityEnd | None:
    """The offset before which a majority of the voters holds everything, None if it is unknown.

    If the logs of a majority end in the same epoch, what all of these logs hold is committed,
    because a record of that epoch is at or behind it (Raft, 3.6.2 and 5.4.2 of the paper). A log
    that ends in another epoch, even a later one, has no say. Only voters whose directories are
    given can be counted. Of several directories of a voter, the log that ends first counts.
    """
    facts = list(facts)
    found: list[MajorityEnd] = []
    for ahead in facts:
        voters = last_voters(batches, ahead.name)
        if not voters:
            continue
        ends: dict[str, int] = {}
        for one in facts:
            voter = one.voter_in(voters)
            if voter is not None and one.epoch == ahead.epoch:
                ends[voter] = min(one.end, ends.get(voter, one.end))
        majority = len(voters) // 2 + 1
        if len(ends) >= majority:
            offset = sorted(ends.values(), reverse=True)[majority - 1]
            found.append(MajorityEnd(offset, ahead.epoch))
    return max(found, default=None)


def committed_offset(
    batches: Sequence[ControlBatch], facts: dict[str, Facts], known: int | None
) -> int:
    """An offset before which everything is certainly committed.

    It is the end of a checkpoint that the replica's own log reaches, that of an archive, that of
    what a majority holds, or `known`. A log that alone has another voter set than most others has
    no say: its set may be forged, so that it is a majority by itself.
    """
    sure = [
        snapshot.id.offset
        for one in facts.values()
        for snapshot in one.replica.snapshots
        if snapshot.id.offset <= one.end
    ]
    sure += [one.end for one in facts.values() if one.replica.archive is not None]
    if known is not None:
        sure.append(known)
    held = majority_end(batches, _with_common_voters(batches, facts))
    if held is not None:
        sure.append(held.offset)
    return max(sure, default=0)


def _with_common_voters(batches: Sequence[ControlBatch], facts: dict[str, Facts]) -> list[Facts]:
    """The replicas without those whose voter set no other log has, if most have another one."""
    voters = {name: last_voters(batches, name) for name in facts}
    counts = Counter(found for found in voters.values() if found)
    if not counts or 2 * max(counts.values()) <= sum(counts.values()):
        return list(facts.values())
    alone = {name for name, found in voters.items() if found and counts[found] == 1}
    return [one for name, one in facts.items() if name not in alone]
