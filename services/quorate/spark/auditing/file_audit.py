"""The audit rules for the files beside the log, and for the ends of logs.

leader-epoch-checkpoint, quorum-state and meta.properties must agree with the logs and with those of
the other replicas. A file may prove that the log reached further than it does now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from quorate.log.errors import LogError
from quorate.log.meta_properties import META_PROPERTIES_FILE
from quorate.log.metadata_log import PARTITION_DIRECTORY
from quorate.log.offset_files import LEADER_EPOCH_FILE, read_epochs
from quorate.log.quorum_state import QUORUM_STATE_FILE, QuorumStateFile
from quorate.raft.types import ElectionState, OffsetAndEpoch
from quorate.spark.auditing.rules import (
    KRAFT_VOTERS,
    LEADER_CHANGE,
    AuditRule,
    ControlBatch,
    Facts,
    Finding,
    Led,
    SmallFiles,
    current_voters,
    leaders_of,
    shown_keys,
    voter_keys,
)
from quorate.spark.files import LogReplica, size_of

PRODUCER_SNAPSHOT = ".snapshot"
_FILE_BYTES = 256
"""How much of a small file a finding quotes."""


def read_small_files(replica: LogReplica) -> SmallFiles:
    """Read what the files beside a log say about it."""
    epochs: tuple[OffsetAndEpoch, ...] = ()
    fault = ""
    try:
        epochs = read_epochs(replica.partition)
    except (LogError, ValueError, OSError) as error:
        fault = f"{LEADER_EPOCH_FILE}: {error}"
    reached = [
        (path.name, int(path.stem))
        for path in sorted(replica.partition.glob(f"*{PRODUCER_SNAPSHOT}"))
        if path.stem.isdecimal()
    ]
    reached += [(snapshot.path.name, snapshot.id.offset) for snapshot in replica.snapshots]
    reached += [(LEADER_EPOCH_FILE, entry.offset) for entry in epochs]
    if replica.archive is not None:
        reached.append(("the archive's manifest", replica.archive.end))
    return SmallFiles(epochs, fault, tuple(reached))


def tail_findings(
    batches: Sequence[ControlBatch], facts: dict[str, Facts], committed: int
) -> Iterator[Finding]:
    """Find logs that end before an offset that, by their disk or the quorum, they once held."""
    for one in facts.values():
        for reason, offset in one.small_files.reached:
            if offset > one.end:
                text = f"the log ends at {one.end}, but {reason} refers to offset {offset}"
                file = str(one.replica.segments[-1].path) if one.replica.segments else ""
                size = size_of(one.replica.segments[-1].path) if file else 0
                begin = max(0, size - _FILE_BYTES)
                yield Finding(
                    AuditRule.LOST_TAIL, one.end, one.name, "", text, file, begin, size - begin
                )
                break
    voters = current_voters(batches, facts)
    present = {one.key: one for one in facts.values() if one.key is not None}
    if voters and voters <= set(present):
        holding = sorted(key for key in voters if present[key].end >= committed)
        if 2 * len(holding) <= len(voters):
            for key in sorted(voters - set(holding)):
                text = (
                    f"the log ends at {present[key].end}; offset {committed} is committed, but "
                    f"only {shown_keys(holding)} of {shown_keys(voters)} hold it"
                )
                yield Finding(AuditRule.LOST_TAIL, present[key].end, present[key].name, text=text)


# --- small files ----------------------------------------------------------------------------------


def file_findings(controls: Sequence[ControlBatch], facts: dict[str, Facts]) -> Iterator[Finding]:
    """Check meta.properties, quorum-state and leader-epoch-checkpoint."""
    yield from _properties(facts)
    yield from _directory_ids(controls, facts)
    yield from _clusters(facts)
    yield from _quorum_states(controls, facts)
    for one in facts.values():
        yield from _epoch_file(one)
        yield from _beginning(one)


def _quorum_states(controls: Sequence[ControlBatch], facts: dict[str, Facts]) -> Iterator[Finding]:
    """Check the epoch, the leader and the vote in each quorum-state."""
    states: dict[str, ElectionState] = {}
    for name, one in facts.items():
        try:
            state = QuorumStateFile(one.replica.partition).read()
        except LogError as error:
            yield Finding(AuditRule.STATE, one.end, one.name, text=str(error))
            continue
        if state is None:
            if one.epoch >= 0 and one.replica.properties is not None:
                text = f"quorum-state is missing, but the log is at epoch {one.epoch}"
                yield Finding(AuditRule.STATE, one.end, one.name, text=text)
            continue
        states[name] = state
        if state.epoch < one.epoch:
            text = f"quorum-state is at epoch {state.epoch}, but the log at {one.epoch}"
            yield _of_state(AuditRule.STATE, one, text)
    led = leaders_of(controls)
    voters = _voter_ids(controls)
    ids = voters | {one.node_id for one in facts.values()}
    for name, state in states.items():
        yield from _named_leader(facts[name], state, led, states, facts)
        if voters and state.voted is not None and state.voted.id not in ids:
            text = f"quorum-state has a vote for {state.voted.id}, which never was a voter"
            yield _of_state(AuditRule.STATE, facts[name], text)


def _of_state(rule: AuditRule, one: Facts, text: str, other: Facts | None = None) -> Finding:
    """A finding about a replica's quorum-state, which differs from that of another replica."""
    return Finding(
        rule,
        one.end,
        one.name,
        "" if other is None else other.name,
        text,
        _state_path(one),
        0,
        _FILE_BYTES,
        "" if other is None else _state_path(other),
        0,
        _FILE_BYTES,
    )


def _state_path(one: Facts) -> str:
    return str(one.replica.partition / QUORUM_STATE_FILE)


def _named_leader(
    one: Facts,
    state: ElectionState,
    led: Led,
    states: dict[str, ElectionState],
    facts: dict[str, Facts],
) -> Iterator[Finding]:
    """Check the leader in a quorum-state against the LeaderChange of its epoch.

    Without one, against what most other quorum-states of the epoch say.
    """
    if state.leader_id is None:
        return
    says = f"quorum-state names {state.leader_id} as leader of epoch {state.epoch}"
    if state.epoch in led:
        right, batches = led[state.epoch][0]
        if right != state.leader_id:
            by = batches[0]
            text = f"{says}, but the epoch's LeaderChange names {right}"
            yield Finding(
                AuditRule.ONE_LEADER,
                by.base_offset,
                one.name,
                by.replica,
                text,
                _state_path(one),
                0,
                _FILE_BYTES,
                by.file,
                by.position,
                by.size,
            )
        return
    named = Counter(
        other.leader_id
        for other in states.values()
        if other.epoch == state.epoch and other.leader_id is not None
    )
    right = min(named, key=lambda leader: (-named[leader], leader))
    if right != state.leader_id:
        by_name = next(
            name
            for name, other in states.items()
            if (other.epoch, other.leader_id) == (state.epoch, right)
        )
        text = f"{says}, but {right} on {by_name}"
        yield _of_state(AuditRule.ONE_LEADER, one, text, facts[by_name])


def _voter_ids(controls: Sequence[ControlBatch]) -> set[int | None]:
    """The ids of all voters that any control record names."""
    return {
        voter["voterId"]
        for batch in controls
        for kind, data in batch.controls
        if kind in (LEADER_CHANGE, KRAFT_VOTERS)
        for voter in data["voters"]
    }


def _properties(facts: dict[str, Facts]) -> Iterator[Finding]:
    """Find nodes' directories without meta.properties, if others have it."""
    if all(one.replica.properties is None for one in facts.values()):
        return
    for one in facts.values():
        replica = one.replica
        if replica.properties is None and replica.partition.name == PARTITION_DIRECTORY:
            text = f"{replica.directory} has no meta.properties"
            yield Finding(AuditRule.IDENTITY, one.start, one.name, text=text)


def _directory_ids(controls: Sequence[ControlBatch], facts: dict[str, Facts]) -> Iterator[Finding]:
    """Find directories of voters with a directory id that no voter set has.

    A directory that replaces a lost one is such a directory until it is added to the voters.
    """
    known = {
        key
        for batch in controls
        for kind, data in batch.controls
        if kind == KRAFT_VOTERS
        for key in voter_keys(data)
    }
    voters = current_voters(controls, facts)
    present = {one.key for one in facts.values()}
    for one in facts.values():
        if one.key is None or one.key in known:
            continue
        mine = [key for key in voters if key.startswith(f"{one.node_id}-")]
        if mine and not present.intersection(mine):
            text = (
                f"the directory id is in no voter set, in which node {one.node_id} is {mine[0]}: "
                "meta.properties is wrong, or a new directory was not added to the voters"
            )
            file = str(one.replica.directory / META_PROPERTIES_FILE)
            yield Finding(AuditRule.IDENTITY, one.start, one.name, "", text, file, 0, _FILE_BYTES)


def _clusters(facts: dict[str, Facts]) -> Iterator[Finding]:
    by_cluster: dict[str, list[Facts]] = {}
    for one in facts.values():
        if one.replica.cluster_id is not None:
            by_cluster.setdefault(one.replica.cluster_id, []).append(one)
    if len(by_cluster) < 2:
        return
    ranked = sorted(by_cluster.items(), key=lambda item: (-len(item[1]), item[0]))
    right, among = ranked[0]
    for cluster, wrong in ranked[1:]:
        for one in wrong:
            yield Finding(
                AuditRule.CLUSTER,
                one.start,
                one.name,
                among[0].name,
                f"it belongs to cluster {cluster}, but {among[0].name} to {right}",
                str(one.replica.directory / META_PROPERTIES_FILE),
                0,
                256,
                str(among[0].replica.directory / META_PROPERTIES_FILE),
                0,
                256,
            )


def _epoch_file(one: Facts) -> Iterator[Finding]:
    """Check the epoch starts in leader-epoch-checkpoint.

    The file may lack the newest epochs, and those before the log start. Kafka moves the start of
    the oldest epoch to the log start, which lies anywhere up to the end of the newest checkpoint.
    """
    path = one.replica.partition / LEADER_EPOCH_FILE
    if one.small_files.fault:
        text = one.small_files.fault
        yield Finding(AuditRule.STATE, one.start, one.name, text=text, file=str(path))
        return
    for offset, fault in _epoch_faults(one.small_files.epochs, one):
        text = f"{path.name}: {fault}"
        yield Finding(
            AuditRule.EPOCH, offset, one.name, text=text, file=str(path), size=_FILE_BYTES
        )


def _epoch_faults(entries: Sequence[OffsetAndEpoch], one: Facts) -> Iterator[tuple[int, str]]:
    """Find entries that contradict the log, and epochs of the log between two entries."""
    following = sorted(one.epochs.items())
    ends = {epoch: start for (epoch, _), (_, start) in pairwise(following)}
    moved_to = max((snapshot.id.offset for snapshot in one.replica.snapshots), default=0)
    for index, entry in enumerate(entries):
        begins = one.epochs.get(entry.epoch)
        if begins is None:
            if following and one.start <= entry.offset < one.end:
                yield entry.offset, f"the log has no epoch {entry.epoch}"
            continue
        # The segments may begin within the epoch.
        earliest = begins if begins > one.start else 0
        latest = begins if index else max(begins, moved_to)
        is_within = entry.offset < ends.get(entry.epoch, one.end + 1)
        if not (is_within and earliest <= entry.offset <= latest):
            yield (
                begins,
                f"epoch {entry.epoch} begins at {entry.offset}, in the log at {begins}",
            )
    known = {entry.epoch for entry in entries}
    for epoch, begins in following:
        if entries and entries[0].epoch < epoch < entries[-1].epoch and epoch not in known:
            yield begins, f"epoch {epoch} is missing, which begins at {begins} in the log"


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
