"""`RaftNode`: the door of the protocol. Inputs and a time go in, outputs come out; nothing else
happens here.

Contract with the driver:
- one caller at a time; every input carries `now_ms`, which never decreases (milliseconds;
  wall-clock based, for the timestamps in DescribeQuorum);
- after each input, `take_outputs()` is called and its outputs are executed in order;
- `tick` is called no later than `next_deadline_ms()`;
- every inbound request is answered exactly once, by a `Respond` with its request id, now or later,
  unless `cancel_request` withdraws it first;
- every `Send` and `SendAdmin` is answered by `handle_response` or `handle_failure`, once; a lost
  answer times out here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.raft import (
    election,
    follower,
    leader,
    membership,
    reads,
    replication,
    required_end,
)
from quorate.raft.batches import Batch
from quorate.raft.config import InitialState, RaftConfig, Randomness
from quorate.raft.core import NOT_LOOKED_FOR, Core, Inflight
from quorate.raft.errors import MisuseError
from quorate.raft.messages import (
    AddVoterRequest,
    AdminResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    CurrentLeader,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    ReadIndexRequest,
    RemoveVoterRequest,
    Request,
    Response,
    TransferLeadershipRequest,
    UpdateKRaftVersionRequest,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from quorate.raft.outputs import Output, RoleName
from quorate.raft.roles import (
    Follower,
    Leader,
    Resigned,
    Unattached,
)
from quorate.raft.types import OffsetAndEpoch, VoterSet

_OF_ANOTHER_CLUSTER = ErrorCode.INCONSISTENT_CLUSTER_ID
"""Looked up once: members of an enumeration are found slowly, and every answer is compared."""


class RaftNode:
    """One replica of the quorum."""

    def __init__(
        self,
        config: RaftConfig,
        initial: InitialState,
        random: Randomness,
        now_ms: int,
    ) -> None:
        self._core = Core(config, initial, random, now_ms)
        required_end.warn_of_required_end(self._core)
        self._settle()

    # --- looking ----------------------------------------------------------------------------------

    @property
    def role(self) -> RoleName:
        return self._core.role.name

    @property
    def epoch(self) -> int:
        return self._core.epoch

    @property
    def is_leader(self) -> bool:
        return isinstance(self._core.role, Leader)

    @property
    def takes_appends(self) -> bool:
        """Whether `append` accepts records: a leader that neither transfers nor shuts down."""
        core = self._core
        return (
            isinstance(core.role, Leader)
            and not core.role.refuses_appends
            and not core.shutting_down
        )

    @property
    def is_voter(self) -> bool:
        return self._core.is_voter

    @property
    def is_attached(self) -> bool:
        """Whether this replica leads, or follows a leader that answered it within the fetch
        timeout: what readiness means. An observer follows a silent leader for ever.
        """
        role = self._core.role
        if isinstance(role, Follower):
            return role.has_fetched and self._core.now_ms < role.fetch_deadline_ms
        return isinstance(role, Leader)

    @property
    def current_leader(self) -> CurrentLeader:
        return self._core.current_leader

    @property
    def high_watermark(self) -> int:
        return self._core.high_watermark

    @property
    def voters(self) -> VoterSet:
        return self._core.voters

    @property
    def fetching(self) -> frozenset[int]:
        """The ids of the replicas, observers too, that this leader answers or has answered within
        `observer_expiry_ms`; none elsewhere.
        """
        role = self._core.role
        if not isinstance(role, Leader):
            return frozenset()
        return frozenset(progress.key.id for progress in role.replicas.values())

    @property
    def kraft_version(self) -> int:
        return self._core.history.kraft_version

    @property
    def core(self) -> Core:
        """The state for drivers, tests, invariants and metrics; callers must not change it."""
        return self._core

    def membership_at(self, end_offset: int) -> tuple[int, VoterSet]:
        """The kraft.version and the voter set of a snapshot that ends at `end_offset`."""
        history = self._core.history
        return history.kraft_version_at(end_offset), history.voters_at(end_offset)

    def epoch_before(self, offset: int) -> int:
        """The epoch of the record before `offset`: names a snapshot that ends there."""
        return self._core.log.epoch_before(offset)

    def take_outputs(self) -> list[Output]:
        outputs, self._core.outputs = self._core.outputs, []
        return outputs

    # --- time -------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int:
        """The latest time for the next `tick`. A timer that expires no later than `core.due_ms`
        need not be set anew.
        """
        core, role = self._core, self._core.role
        if isinstance(role, Leader):
            earliest = leader.next_deadline_ms(core, role)
        elif isinstance(role, (Follower, Unattached)):
            earliest = follower.next_deadline_ms(core, role)
        else:
            earliest = election.next_deadline_ms(core, role)
        for entry in core.inflight.values():
            if entry.deadline_ms < earliest:  # noqa: PLR1730 - once a message: a call costs more
                earliest = entry.deadline_ms
        if core.transfer is not None:
            earliest = min(earliest, core.transfer.deadline_ms)
        core.due_ms = earliest
        return earliest

    def tick(self, now_ms: int) -> None:
        """Act on the timeouts that have passed by now."""
        core = self._begin(now_ms)
        core.due_ms = NOT_LOOKED_FOR
        if core.inflight:
            expired = [i for i, entry in core.inflight.items() if entry.deadline_ms <= now_ms]
            for request_id in expired:
                self._fail(request_id, "no answer in time", refused=False)
        if core.transfer is not None:
            reads.tick_transferred(core)
        role = core.role
        if isinstance(role, Leader):
            leader.tick(core)
        elif isinstance(role, Follower) and self._fetch_timed_out(role):
            election.start_pre_vote(core, "the fetch timeout passed or the leader was lost")
        election.tick(core)
        follower.tick(core)

    def _fetch_timed_out(self, role: Follower) -> bool:
        return self._core.may_elect and self._core.now_ms >= role.fetch_deadline_ms

    def _begin(self, now_ms: int) -> Core:
        core = self._core
        if now_ms < core.now_ms:
            raise MisuseError(f"time goes back from {core.now_ms} to {now_ms}")
        core.now_ms = now_ms
        return core

    # --- requests ---------------------------------------------------------------------------------

    def handle_request(self, request_id: int, request: Request, now_ms: int) -> None:
        """Take an inbound request; it is answered by a `Respond` with this id, now or later."""
        core = self._begin(now_ms)
        if isinstance(request, FetchRequest):
            leader.handle_fetch(core, request_id, request)
            if not isinstance(core.role, Leader):
                self._settle()
            return  # what the Fetch moved is settled already, before its answer
        match request:
            case FetchSnapshotRequest():
                leader.handle_fetch_snapshot(core, request_id, request)
            case VoteRequest():
                core.respond(request_id, election.handle_vote(core, request))
            case BeginQuorumEpochRequest():
                core.respond(request_id, election.handle_begin(core, request))
            case EndQuorumEpochRequest():
                core.respond(request_id, election.handle_end(core, request))
            case ApiVersionsRequest():
                core.respond(request_id, self._api_versions(request))
            case DescribeQuorumRequest():
                core.respond(request_id, leader.handle_describe(core, request))
            case ReadIndexRequest():
                reads.handle_read_index(core, request_id, request)
            case TransferLeadershipRequest():
                reads.handle_transfer(core, request_id, request)
            case (
                AddVoterRequest()
                | RemoveVoterRequest()
                | UpdateVoterRequest()
                | UpdateKRaftVersionRequest()
            ):
                membership.handle(core, request_id, request)
        self._settle()

    def cancel_request(self, request_id: int, now_ms: int) -> None:
        """Cancel a request: it gets no response, and it has no effect unless its record is in the
        log already.
        """
        core = self._begin(now_ms)
        if isinstance(core.role, Leader):
            core.role.parked.pop(request_id, None)
            membership.cancel(core.role, request_id)
            reads.cancel(core.role, request_id)
        if core.transfer is not None and core.transfer.request_id == request_id:
            core.transfer = None
        self._settle()

    def _settle(self) -> None:
        """Follow what the input set in motion to its end."""
        core = self._core
        if isinstance(core.role, Leader):
            leader.settle(core)
            if isinstance(core.role, Leader):
                return
        if not isinstance(core.role, Follower):
            core.due_ms = NOT_LOOKED_FOR
            election.tick(core)
        follower.maybe_fetch(core)

    def _api_versions(self, request: ApiVersionsRequest) -> ApiVersionsResponse:
        config = self._core.config
        same_cluster = not request.cluster_id or request.cluster_id == config.cluster_id
        error = ErrorCode.NONE if same_cluster else ErrorCode.INCONSISTENT_CLUSTER_ID
        text = "" if same_cluster else f"this is cluster {config.cluster_id}"
        return ApiVersionsResponse(error, config.local, config.kraft_version, text)

    # --- answers ----------------------------------------------------------------------------------

    def handle_response(self, request_id: int, response: Response, now_ms: int) -> None:
        """Take the answer to a `Send` or `SendAdmin`."""
        core = self._begin(now_ms)
        if response.error is _OF_ANOTHER_CLUSTER:
            # What another cluster's node says of epochs and leaders is nothing to us.
            self._fail(request_id, "it belongs to another cluster", refused=False)
            self._settle()
            return
        sent = core.inflight.pop(request_id, None)
        if sent is None:
            return
        if isinstance(response, FetchResponse) and request_id == core.fetch_id:
            follower.handle_fetch_response(core, sent, response)
            if not isinstance(core.role, Follower):
                self._settle()
            return  # it has asked for more already, if it may
        match response:
            case FetchSnapshotResponse() if request_id == core.fetch_id:
                follower.handle_snapshot_response(core, sent, response)
            case VoteResponse() if isinstance(sent.request, VoteRequest):
                election.handle_vote_response(core, sent.request, response)
            case BeginQuorumEpochResponse():
                election.handle_begin_response(core, sent.replica_id, response)
                membership.handle_begin_response(core, request_id, response)
            case EndQuorumEpochResponse() if sent.replica_id is not None:
                election.handle_end_response(core, sent.replica_id, response)
            case ApiVersionsResponse():
                membership.handle_probe_response(core, request_id, response)
            case AdminResponse() if isinstance(sent.request, UpdateVoterRequest):
                follower.handle_update_voter_response(core, sent, response)
            case AdminResponse():
                follower.handle_join_response(core, sent, response)
            case _:
                pass  # an answer to a fetch that was given up: the next one is under way
        self._settle()

    def handle_failure(self, request_id: int, reason: str, now_ms: int, *, refused: bool) -> None:
        """A `Send` failed. refused: the connection was refused or reset; otherwise a timeout."""
        self._begin(now_ms)
        self._fail(request_id, reason, refused=refused)
        self._settle()

    def _fail(self, request_id: int, reason: str, *, refused: bool) -> None:
        core = self._core
        sent: Inflight | None = core.inflight.pop(request_id, None)
        if sent is None:
            return
        request = sent.request
        if isinstance(request, FetchRequest | FetchSnapshotRequest):
            if request_id == core.fetch_id:
                # Only the leader's own silence says something about the leader.
                to_leader = sent.replica_id is not None
                follower.handle_fetch_failure(core, refused=refused and to_leader)
        elif isinstance(request, VoteRequest):
            election.handle_vote_failure(core, request, refused=refused)
        elif isinstance(request, EndQuorumEpochRequest) and sent.replica_id is not None:
            election.handle_end_failure(core, sent.replica_id, refused=refused)
        elif isinstance(request, ApiVersionsRequest | BeginQuorumEpochRequest):
            membership.handle_probe_failure(core, request_id, reason)

    def connection_lost(self, leader_id: int, now_ms: int) -> None:
        """The stream to this leader broke: a hint that it died (see `follower.suspect_leader`)."""
        core = self._begin(now_ms)
        if isinstance(core.role, Follower) and core.role.leader_id == leader_id:
            follower.suspect_leader(core)

    # --- the log ----------------------------------------------------------------------------------

    def append(self, payloads: Sequence[tuple[int, object]], now_ms: int) -> int | ErrorCode:
        """Append data batches, each (number of records, opaque bytes), if this replica leads.

        Returns the offset of the first record, or NOT_LEADER_OR_FOLLOWER, and then nothing was
        appended. It is committed when `HighWatermarkAdvanced` passes it and unknown when
        `LeadershipLost` comes first.
        """
        core = self._begin(now_ms)
        role = core.role
        if not isinstance(role, Leader) or role.refuses_appends or core.shutting_down:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        first = base = core.log.end_offset
        batches = []
        for count, data in payloads:
            assert count > 0, "a batch has at least one record"
            batches.append(Batch(base, base + count - 1, role.epoch, (), data))
            base += count
        core.append(tuple(batches))
        replication.answer_parked(core)
        return first

    def log_durable(self, ticket: int, now_ms: int) -> None:
        """The log's changes up to this ticket are on disk."""
        core = self._begin(now_ms)
        core.log.durable(ticket)
        if core.required_end is not None:
            required_end.clear_if_reached(core)
        if core.log_is_stalled:
            core.log_is_stalled = False
            core.due_ms = NOT_LOOKED_FOR
        self._settle()

    def snapshot_created(self, snapshot: OffsetAndEpoch, now_ms: int) -> None:
        """The state machine's snapshot of committed records is on disk."""
        core = self._begin(now_ms)
        if snapshot.offset > core.high_watermark:
            raise MisuseError(f"snapshot {snapshot} is ahead of what is committed")
        if core.log.snapshot is None or snapshot.offset > core.log.snapshot.offset:
            core.log.snapshot = snapshot
        core.history.trim(snapshot.offset)

    def log_start_advanced(self, start: OffsetAndEpoch, now_ms: int) -> None:
        """Segments below a snapshot were deleted."""
        core = self._begin(now_ms)
        core.log.advance_start(start)

    def snapshot_position(self, snapshot: OffsetAndEpoch, position: int, now_ms: int) -> None:
        """Answer to `StartSnapshotFetch`: this many bytes are here already."""
        follower.snapshot_position(self._begin(now_ms), snapshot, position)

    def snapshot_installed(
        self,
        snapshot: OffsetAndEpoch,
        voters: tuple[tuple[int, VoterSet], ...],
        kraft_versions: tuple[tuple[int, int], ...],
        now_ms: int,
    ) -> None:
        """Answer to `InstallSnapshot`: it replaced the log."""
        follower.snapshot_installed(self._begin(now_ms), snapshot, voters, kraft_versions)

    def snapshot_failed(self, snapshot: OffsetAndEpoch, reason: str, now_ms: int) -> None:
        """Answer to `StartSnapshotFetch` or `InstallSnapshot`: it cannot be used."""
        follower.snapshot_failed(self._begin(now_ms), snapshot, reason)

    def observers_support(self, versions: Mapping[int, VersionRange]) -> None:
        """The controller tells which kraft.versions the registered brokers support, all of them,
        by id, whenever that changes: they send no UpdateVoter (KIP-853, "UpdateFeatures").
        """
        self._core.observer_versions = versions

    # --- the end ----------------------------------------------------------------------------------

    def resign(self, reason: str, now_ms: int) -> None:
        """Stop leading (a full disk, say); the voters are asked to elect another."""
        core = self._begin(now_ms)
        if isinstance(core.role, Leader):
            replication.resign(core, reason)
            election.tick(core)

    def loop_stalled(self, reason: str, now_ms: int) -> None:
        """The process did nothing for longer than the fetch timeout: a leader resigns, unless it is
        the only voter. This comes before any other input, which may be as old as the pause.
        """
        core = self._begin(now_ms)
        if isinstance(core.role, Leader) and not replication.is_alone(core):
            replication.resign(core, reason)
            election.tick(core)

    def log_stalled(self, reason: str, now_ms: int) -> None:
        """The disk syncs nothing for longer than the fetch timeout: a leader resigns, unless it is
        the only voter, and this replica starts no election until `log_durable`.
        """
        core = self._begin(now_ms)
        if replication.is_alone(core):
            return
        core.log_is_stalled = True
        core.due_ms = NOT_LOOKED_FOR
        if isinstance(core.role, Leader):
            replication.resign(core, reason)
        election.tick(core)

    def shut_down(self, now_ms: int) -> None:
        """Begin a graceful shutdown: a leader resigns, and this replica starts no election. The
        process may exit once `is_quiet` is true.
        """
        core = self._begin(now_ms)
        core.shutting_down = True
        if isinstance(core.role, Leader):
            replication.resign(core, "shutting down")
            election.tick(core)

    @property
    def is_quiet(self) -> bool:
        """Whether no voter has to acknowledge a resignation any more."""
        role = self._core.role
        return not isinstance(role, Resigned) or not role.unacknowledged
