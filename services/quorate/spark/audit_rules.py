"""The audit rules for small inputs: control records, small files, and the ends of logs.

They are plain Python over data that Spark has collected. See `audit` for the whole procedure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from quorate.log.errors import LogError
from quorate.log.offset_files import read_epochs
from quorate.log.quorum_state import QUORUM_STATE_FILE, QuorumStateFile
from quorate.log.snapshots import parse_snapshot_name
from quorate.spark.files import LogReplica

PRODUCER_SNAPSHOT = ".snapshot"


class AuditRule(StrEnum):
    """The rules that a cluster can violate."""

    CHECKSUM = "checksum"
    BYTES = "bytes that are no batch"
    GAP = "missing offsets"
    DUPLICATE = "an offset twice"
    ORDER = "offsets out of order"
    EPOCH = "epochs out of order"
    LOG_MATCHING = "log matching"
    DIVERGENCE = "divergence below the high watermark"
    ONE_LEADER = "one leader an epoch"
    VOTERS = "voter sets differ by at most one"
    CONTROL = "a control record out of place"
    LOST_TAIL = "a lost tail"
    SNAPSHOT = "a snapshot that disagrees"
    CLUSTER = "one cluster"
    IDENTITY = "one directory a replica"
    STATE = "quorum-state"


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation. size, other_size: the length of the relevant bytes at the positions."""

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


@dataclass(slots=True)
class Facts:
    """A replica's log: its offsets [start, end), its last epoch, and the start of each epoch."""

    replica: LogReplica
    start: int
    end: int
    epoch: int
    epochs: dict[int, int] = field(default_factory=dict)

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


# --- control records ------------------------------------------------------------------------------


def control_findings(batches: Sequence[ControlBatch], facts: dict[str, Facts]) -> Iterator[Finding]:
    """Check leaders, voter sets, and the placement of control records."""
    log = sorted(
        (b for b in batches if b.snapshot is None), key=lambda b: (b.replica, b.base_offset)
    )
    yield from _placed(log, facts)
    yield from _one_leader(log)
    for name in facts:
        yield from _voter_sets([b for b in log if b.replica == name])
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
            elif kind == "LEADER_CHANGE":
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
            elif kind.startswith(("UNKNOWN", "ABORT", "COMMIT")):
                text = f"{kind} is not a control record of a metadata log"
                yield batch.finding(AuditRule.CONTROL, text, at=index)


def _one_leader(log: Sequence[ControlBatch]) -> Iterator[Finding]:
    leaders: dict[int, tuple[int, ControlBatch]] = {}
    for batch in log:
        for kind, data in batch.controls:
            if kind != "LEADER_CHANGE":
                continue
            leader = data["leaderId"]
            known, by = leaders.setdefault(batch.epoch, (leader, batch))
            if known != leader:
                text = f"epoch {batch.epoch} is led by {leader} here and by {known} on {by.replica}"
                yield batch.finding(AuditRule.ONE_LEADER, text, by)
            voters = {one["voterId"] for one in data["voters"]}
            granting = {one["voterId"] for one in data["grantingVoters"]}
            if voters and 2 * len(granting & voters) <= len(voters):
                text = (
                    f"{leader} was elected in epoch {batch.epoch} by {sorted(granting)}, not a "
                    f"majority of {sorted(voters)}"
                )
                yield batch.finding(AuditRule.ONE_LEADER, text)


def voter_keys(data: dict[str, Any]) -> frozenset[str]:
    return frozenset(f"{v['voterId']}-{v['voterDirectoryId']}" for v in data["voters"])


def _voter_sets(log: Sequence[ControlBatch]) -> Iterator[Finding]:
    """Check that successive voter sets differ by at most one voter (KIP-853)."""
    before: tuple[frozenset[str], ControlBatch] | None = None
    for batch in log:
        for index, (kind, data) in enumerate(batch.controls):
            if kind != "KRAFT_VOTERS":
                continue
            keys = voter_keys(data)
            if before is not None and len(keys ^ before[0]) > 1:
                text = f"the voters change from {_shown(before[0])} to {_shown(keys)} in one step"
                yield batch.finding(AuditRule.VOTERS, text, before[1], at=index)
            before = (keys, batch)


def _shown(keys: Iterable[str]) -> str:
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
            if any(kind == "LEADER_CHANGE" for kind, _ in batch.controls):
                text = "the checkpoint contains a LeaderChange"
                yield batch.finding(AuditRule.CONTROL, text)


# --- committed offsets ----------------------------------------------------------------------------


def last_voters(batches: Sequence[ControlBatch], replica: str) -> frozenset[str] | None:
    """The voter set at the end of a replica's log.

    If the log has none, it comes from the newest checkpoint that has one; else it is None.
    """
    mine = [b for b in batches if b.replica == replica]
    in_log = sorted((b for b in mine if b.snapshot is None), key=lambda b: b.base_offset)
    stored = sorted((b for b in mine if b.snapshot is not None), key=lambda b: b.snapshot or 0)
    for batch in [*reversed(in_log), *reversed(stored)]:
        for kind, data in reversed(batch.controls):
            if kind == "KRAFT_VOTERS":
                return voter_keys(data)
    return None


def _ahead(facts: dict[str, Facts]) -> Facts:
    return max(facts.values(), key=lambda one: (one.epoch, one.end))


def committed_offset(
    batches: Sequence[ControlBatch], facts: dict[str, Facts], known: int | None
) -> int:
    """An offset before which everything is certainly committed.

    In the highest epoch, what a majority of the voters holds is committed (Raft, 3.6.2). Only
    voters whose directories are audited can be counted.
    """
    sure = [snapshot.id.offset for one in facts.values() for snapshot in one.replica.snapshots]
    if known is not None:
        sure.append(known)
    ahead = _ahead(facts)
    voters = last_voters(batches, ahead.name)
    if voters:
        ends = sorted(
            (one.end for one in facts.values() if one.key in voters and one.epoch == ahead.epoch),
            reverse=True,
        )
        majority = len(voters) // 2 + 1
        if len(ends) >= majority:
            sure.append(ends[majority - 1])
    return max(sure, default=0)


def tail_findings(
    batches: Sequence[ControlBatch], facts: dict[str, Facts], committed: int
) -> Iterator[Finding]:
    """Find logs that end before an offset that, by their disk or the quorum, they once held."""
    for one in facts.values():
        for reason, offset in _evidence(one.replica):
            if offset > one.end:
                text = f"the log ends at {one.end}, but {reason} refers to offset {offset}"
                file = str(one.replica.segments[-1].path) if one.replica.segments else ""
                size = one.replica.segments[-1].path.stat().st_size if file else 0
                begin = max(0, size - 256)
                yield Finding(
                    AuditRule.LOST_TAIL, one.end, one.name, "", text, file, begin, size - begin
                )
                break
    voters = last_voters(batches, _ahead(facts).name)
    present = {one.key: one for one in facts.values() if one.key is not None}
    if voters and voters <= set(present):
        holding = sorted(key for key in voters if present[key].end >= committed)
        if 2 * len(holding) <= len(voters):
            for key in sorted(voters - set(holding)):
                text = (
                    f"the log ends at {present[key].end}; offset {committed} is committed, but "
                    f"only {_shown(holding)} of {_shown(voters)} hold it"
                )
                yield Finding(AuditRule.LOST_TAIL, present[key].end, present[key].name, text=text)


def _evidence(replica: LogReplica) -> Iterable[tuple[str, int]]:
    """Other evidence on the disk of how far the log reached: (file name, offset)."""
    for path in sorted(replica.partition.glob(f"*{PRODUCER_SNAPSHOT}")):
        if path.stem.isdecimal():
            yield path.name, int(path.stem)
    for snapshot in replica.snapshots:
        yield snapshot.path.name, snapshot.id.offset
    try:
        for entry in read_epochs(replica.partition):
            yield "leader-epoch-checkpoint", entry.offset
    except (LogError, ValueError, OSError):
        return


# --- small files ----------------------------------------------------------------------------------


def file_findings(facts: dict[str, Facts]) -> Iterator[Finding]:
    """Check meta.properties, quorum-state and leader-epoch-checkpoint.

    They must agree with those of the other replicas and with the logs.
    """
    yield from _clusters(facts)
    leaders: dict[int, tuple[int, str]] = {}
    for one in facts.values():
        yield from _quorum_state(one, leaders)
        yield from _epoch_file(one)
        yield from _beginning(one)


def _quorum_state(one: Facts, leaders: dict[int, tuple[int, str]]) -> Iterator[Finding]:
    """Check quorum-state. leaders: the leader of each epoch, and the replica that names it."""
    path = one.replica.partition / QUORUM_STATE_FILE
    try:
        state = QuorumStateFile(one.replica.partition).read()
    except LogError as error:
        yield Finding(AuditRule.STATE, one.end, one.name, text=str(error))
        return
    if state is None:
        return
    if state.epoch < one.epoch:
        text = f"quorum-state is at epoch {state.epoch}, but the log at {one.epoch}"
        yield Finding(AuditRule.STATE, one.end, one.name, text=text, file=str(path), size=256)
    if state.leader_id is not None and state.leader_id >= 0:
        known, by = leaders.setdefault(state.epoch, (state.leader_id, one.name))
        if known != state.leader_id:
            text = (
                f"quorum-state names {state.leader_id} as leader of epoch {state.epoch}, "
                f"but {known} on {by}"
            )
            rule = AuditRule.ONE_LEADER
            yield Finding(rule, one.end, one.name, by, text, str(path), size=256)


def _clusters(facts: dict[str, Facts]) -> Iterator[Finding]:
    by_cluster: dict[str, list[Facts]] = {}
    for one in facts.values():
        if one.replica.properties is not None:
            by_cluster.setdefault(one.replica.properties.cluster_id, []).append(one)
    if len(by_cluster) < 2:
        return
    ranked = sorted(by_cluster.items(), key=lambda item: (-len(item[1]), item[0]))
    right, among = ranked[0]
    file = "meta.properties"
    for cluster, wrong in ranked[1:]:
        for one in wrong:
            yield Finding(
                AuditRule.CLUSTER,
                one.start,
                one.name,
                among[0].name,
                f"it belongs to cluster {cluster}, but {among[0].name} to {right}",
                str(one.replica.directory / file),
                0,
                256,
                str(among[0].replica.directory / file),
                0,
                256,
            )


def _epoch_file(one: Facts) -> Iterator[Finding]:
    """Check the epoch starts in leader-epoch-checkpoint.

    The file may lack the newest and the oldest epochs.
    """
    path = one.replica.partition / "leader-epoch-checkpoint"
    try:
        entries = read_epochs(one.replica.partition)
    except (LogError, ValueError, OSError) as error:
        text = f"{path.name}: {error}"
        yield Finding(AuditRule.STATE, one.start, one.name, text=text, file=str(path))
        return
    for entry in entries:
        begins = one.epochs.get(entry.epoch)
        if begins is None or begins <= one.start or entry.offset == begins:
            continue
        text = f"{path.name}: epoch {entry.epoch} begins at {entry.offset}, in the log at {begins}"
        yield Finding(AuditRule.EPOCH, begins, one.name, text=text, file=str(path), size=256)


def _beginning(one: Facts) -> Iterator[Finding]:
    """Check that a checkpoint covers everything before the start of the log."""
    if one.start == 0 or not one.replica.segments:
        return
    ends = [snapshot.id.offset for snapshot in one.replica.snapshots]
    if any(one.start <= end for end in ends):
        return
    text = f"the log begins at {one.start}, but no checkpoint covers the records before it"
    file = str(one.replica.segments[0].path)
    yield Finding(AuditRule.GAP, max(ends, default=0), one.name, text=text, file=file, size=61)
