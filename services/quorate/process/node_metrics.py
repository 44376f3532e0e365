"""The current metrics of a running replica, read from its state (`telemetry.catalogue`).

This module only reads. Like the driver, `quorum_samples` belongs to the event loop's thread;
`file_samples` may run on any thread.

Source: KIP-595 and KIP-853, their tables of metrics.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from quorate.common.identifiers import ZERO_UUID
from quorate.log.errors import LogError
from quorate.log.metadata_log import MetadataLog
from quorate.raft.core import Core
from quorate.raft.leader import handle_describe
from quorate.raft.messages import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ReplicaStatus,
)
from quorate.raft.outputs import RoleName
from quorate.raft.roles import Leader
from quorate.runtime.driver import RaftDriver
from quorate.telemetry.samples import Sample

UNKNOWN = -1


def quorum_samples(driver: RaftDriver) -> Iterator[Sample]:
    """The metrics of the Raft state, the driver and the log, all read from memory."""
    core, recorder = driver.node.core, driver.recorder
    for role in RoleName:
        yield Sample("current-state", float(role is core.role.name), {"state": role.value})
    leader_id = core.leader_id
    yield Sample("current-leader", UNKNOWN if leader_id is None else leader_id)
    yield from _vote(core)
    yield Sample("current-epoch", core.epoch)
    yield Sample("high-watermark", core.high_watermark)
    yield Sample("log-end-offset", core.log.end_offset)
    yield Sample("log-end-epoch", core.log.last_epoch)
    yield from _voters(core)
    yield Sample("fetched-records", recorder.fetched_records)
    yield Sample("appended-records", recorder.appended_records)
    yield Sample("role-changes", recorder.role_changes)
    yield Sample("log-checksum-mismatches", recorder.checksum_mismatches)
    yield Sample("pending-bytes", driver.pending_appends.pending_bytes)
    yield Sample("pending-appends", len(driver.pending_appends))
    role_now = core.role
    yield Sample("parked-fetches", len(role_now.parked) if isinstance(role_now, Leader) else 0)
    yield Sample("log-start-offset", driver.log.start_offset)
    yield Sample("log-size", driver.log.size_bytes)
    yield Sample("queued-bytes", driver.log.queued_bytes)
    if isinstance(role_now, Leader):
        yield from _replicas(core, handle_describe(core, DescribeQuorumRequest("")), driver)


def _vote(core: Core) -> Iterator[Sample]:
    voted = core.election_state().voted
    yield Sample("current-vote", UNKNOWN if voted is None else voted.id)
    directory = voted.directory_id if voted is not None else None
    yield Sample("current-vote-directory-id", 1, {"directory-id": str(directory or ZERO_UUID)})


def _voters(core: Core) -> Iterator[Sample]:
    history = core.history
    yield Sample("number-of-voters", len(core.voters))
    uncommitted = history.voters_offset >= core.high_watermark
    yield Sample("uncommitted-voter-change", float(uncommitted))
    yield Sample("IsObserver", float(not core.is_voter))
    unknown = [v for v in core.voters if not v.endpoints and v.id != core.local.id]
    yield Sample("number-unknown-voter-connections", len(unknown))
    ignored = len(core.config.static_voters) > 0 and history.kraft_version > 0
    yield Sample("ignored-static-voters", float(ignored))


def _replicas(core: Core, view: DescribeQuorumResponse, driver: RaftDriver) -> Iterator[Sample]:
    """What only the leader knows: which replicas fetch, and how far each lags behind."""
    now_ms = driver.now_ms()
    others = [status for status in view.voters if status.replica.id != core.local.id]
    silent = [s for s in others if now_ms - s.last_fetch_ms > core.config.fetch_timeout_ms]
    yield Sample("number-of-offline-voters", len(silent))
    observers = [status for status in view.observers if status.replica.id != core.local.id]
    yield Sample("number-of-observers", len(observers))
    for voter, statuses in (("true", others), ("false", observers)):
        for status in statuses:
            yield from _lag(core, status, voter, now_ms)


def _lag(core: Core, status: ReplicaStatus, voter: str, now_ms: int) -> Iterator[Sample]:
    attributes = {
        "replica": str(status.replica.id),
        "directory-id": str(status.replica.directory_id or ""),
        "voter": voter,
    }
    missing = core.log.end_offset - max(status.log_end_offset, 0)
    yield Sample("follower-lag", missing, attributes)
    if status.last_caught_up_ms >= 0:
        seconds = max(0, now_ms - status.last_caught_up_ms) / 1000
        yield Sample("follower-lag-time", seconds, attributes)


def file_samples(log: MetadataLog) -> Iterator[Sample]:
    """The metrics that require access to the disk."""
    newest = log.latest_snapshot()
    yield Sample("snapshot-offset", UNKNOWN if newest is None else newest.offset)
    if newest is None:
        return
    try:
        size, written_s = log.snapshot_file(newest)
    except LogError:
        return  # a newer snapshot has replaced it in the meantime
    yield Sample("snapshot-size", size)
    yield Sample("snapshot-age", max(0.0, time.time() - written_s))
