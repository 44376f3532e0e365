"""What a replica does that does not lead: fetch, append, truncate, receive snapshots, keep its
voter entry true, join.

Fetch at the follower (KIP-595, KIP-630):
1. One Fetch at a time, and only when everything appended so far is durable: its offset is the
   acknowledgement.
2. With a known leader it goes there; else, or when the leader is silent, to a bootstrap server or a
   voter, at random.
3. The answer is one of: truncate to the divergence (never below the high watermark: fatal), fetch a
   snapshot, append.
4. Batches are appended up to the first whose epoch is above the request's: the leader of that epoch
   must confirm it.

A replica whose voter entry differs from its configuration sends UpdateVoter until the leader has it
(KIP-853). A controller with auto join removes its id's old directory, then adds itself, unless a
record removed it on purpose.
"""

from __future__ import annotations

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.raft import required_end
from quorate.raft.batches import Batch
from quorate.raft.core import NOT_LOOKED_FOR, Core, Inflight
from quorate.raft.epochs import Origin
from quorate.raft.messages import (
    AddVoterRequest,
    AdminResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    UpdateVoterRequest,
)
from quorate.raft.outputs import InstallSnapshot, SendAdmin, StartSnapshotFetch, WriteSnapshotChunk
from quorate.raft.roles import NEVER, Follower, Unattached
from quorate.raft.types import OffsetAndEpoch, VoterSet

AUTO_JOIN_TIMEOUT_MS = 30_000
"""KIP-853 "Controller auto joining": TimeoutMs of the AddVoter request."""

_NONE = ErrorCode.NONE
"""Looked up once: members of an enumeration are found slowly, and every answer is compared."""

# --- fetching -------------------------------------------------------------------------------------


def maybe_fetch(core: Core) -> None:
    """Send the next Fetch if one is due and none is under way."""
    if core.fetch_id is not None or core.now_ms < core.fetch_at_ms:
        return
    if core.shutting_down or core.installing is not None:
        return
    role = core.role
    if isinstance(role, Follower):
        if role.snapshot is not None:
            _fetch_snapshot(core, role)
        elif core.log.is_durable:
            # Who may elect does so when the leader is silent; anyone else looks for a leader.
            if core.may_elect or core.now_ms < role.fetch_deadline_ms:
                _fetch_from_leader(core, role)
            else:
                _fetch_from_anyone(core, role.read_round)
    elif isinstance(role, Unattached) and core.log.is_durable:
        _fetch_from_anyone(core, 0)


def _fetch_from_leader(core: Core, role: Follower) -> None:
    wait_ms = core.config.fetch_max_wait_ms
    endpoint = core.config.peer_endpoint(role.leader_endpoints)
    request = _fetch_request(core, wait_ms, role.read_round)
    core.fetch_id = core.send(endpoint, request, role.leader_id, extra_ms=wait_ms, to_leader=True)


def _fetch_from_anyone(core: Core, read_round: int) -> None:
    """Ask who leads: what a bootstrap server cannot answer at once it shall not park."""
    endpoint = _any_endpoint(core)
    if endpoint is None:
        core.back_off_fetch()
        return
    core.fetch_id = core.send(endpoint, _fetch_request(core, 0, read_round), None)


def _fetch_request(core: Core, max_wait_ms: int, read_round: int) -> FetchRequest:
    config, log = core.config, core.log
    return FetchRequest(
        config.cluster_id,
        core.local,
        core.epoch,
        log.end_offset,
        log.last_epoch,
        core.high_watermark,
        max_wait_ms,
        config.fetch_bytes_max,
        read_round,
        config.endpoints,
        config.incarnation,
    )


def _any_endpoint(core: Core) -> Endpoint | None:
    """Where to ask for the leader: bootstrap servers, and the voters that this replica knows. Who
    that is changes with the voters only.
    """
    if core.known_endpoints is None:
        own = set(core.config.endpoints)
        known = [endpoint for endpoint in core.config.bootstrap if not _is_own(endpoint, own)]
        others = (voter for voter in core.voters if voter.endpoints and voter.id != core.local.id)
        endpoints = [core.config.peer_endpoint(voter.endpoints) for voter in others]
        known += [endpoint for endpoint in endpoints if endpoint not in known]
        core.known_endpoints = known
    return core.random.choice(core.known_endpoints) if core.known_endpoints else None


def _is_own(endpoint: Endpoint, own: set[Endpoint]) -> bool:
    return any((endpoint.host, endpoint.port) == (mine.host, mine.port) for mine in own)


def handle_fetch_response(core: Core, sent: Inflight, response: FetchResponse) -> None:
    request = sent.request
    assert isinstance(request, FetchRequest)
    leader = response.leader
    core.fetch_id = None
    changed = core.maybe_adopt(
        leader.epoch, leader.id, leader.endpoints, sent.replica_id, Origin.FETCH_ANSWER
    )
    role = core.role
    if response.error is not _NONE:
        _leader_resigned(core, sent, response)
        _back_off_fetch(core, response.error, changed)
    elif leader.epoch > core.epoch:
        core.back_off_fetch()  # an epoch that is refused: the answer means nothing here
    elif not changed and isinstance(role, Follower) and role.epoch == request.epoch == leader.epoch:
        _take(core, role, request, response)
    tick(core)


def _leader_resigned(core: Core, sent: Inflight, response: FetchResponse) -> None:
    """The leader of this epoch reports that it resigned: an election need not wait for it."""
    role = core.role
    if (
        isinstance(role, Follower)
        and response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        and sent.replica_id == role.leader_id
        and response.leader.epoch == role.epoch
    ):
        role.has_fetched = False


def _back_off_fetch(core: Core, error: ErrorCode, changed: bool) -> None:
    if changed:
        return  # the answer named another leader or epoch: ask there at once
    core.back_off_fetch()
    expected = (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    )
    if error not in expected:
        core.notice(f"fetch failed: {error.name}", warning=True)


def _take(core: Core, role: Follower, request: FetchRequest, response: FetchResponse) -> None:
    """A good answer of the leader of this epoch."""
    role.fetch_deadline_ms = core.now_ms + core.config.fetch_timeout_ms
    role.has_fetched = role.leader_answered = True
    if response.read_round > role.read_round:  # noqa: PLR1730 - once an answer: a call costs more
        role.read_round = response.read_round
    if response.acknowledged is not None:
        required_end.adopt(core, response.acknowledged)
    if response.diverging is not None:
        _diverged(core, response.diverging)
    elif response.snapshot is not None:
        _begin_snapshot(core, role, response.snapshot)
    else:
        if response.batches:
            _append(core, request, response.batches)
        offset, end_offset = response.high_watermark, core.log.end_offset
        if offset > end_offset:  # noqa: PLR1730 - as above
            offset = end_offset
        core.advance_high_watermark(offset)


def _diverged(core: Core, diverging: OffsetAndEpoch) -> None:
    to = core.log.truncation_point(diverging)
    if to >= core.log.end_offset:
        core.notice(
            f"the leader asked to truncate to {diverging}, which is not shorter", warning=True
        )
        core.back_off_fetch()
        return
    core.notice(
        f"truncating from {core.log.end_offset} to {to}: the leader's log ends at {diverging}"
    )
    core.truncate(to)


def _append(core: Core, request: FetchRequest, batches: tuple[Batch, ...]) -> None:
    expected, epoch, good = core.log.end_offset, core.log.last_epoch, 0
    for batch in batches:
        last = batch.last_offset
        sound = batch.base_offset == expected <= last
        if not sound or not epoch <= batch.epoch <= request.epoch:
            core.notice(
                f"dropped a batch at {batch.base_offset} of epoch {batch.epoch}: "
                f"expected offset {expected}, epoch {epoch} to {request.epoch}",
                warning=True,
            )
            core.back_off_fetch()
            break
        expected, epoch, good = last + 1, batch.epoch, good + 1
    if good:
        core.append(batches if good == len(batches) else batches[:good])


def handle_fetch_failure(core: Core, *, refused: bool) -> None:
    """The Fetch got no answer. refused: the peer is not there at all, so waiting for the timeout
    gains nothing.
    """
    core.fetch_id = None
    core.back_off_fetch()
    role = core.role
    if isinstance(role, Follower):
        role.snapshot_position = -1
        role.snapshot = None
        if refused:
            suspect_leader(core)


def suspect_leader(core: Core) -> None:
    """A hint, perhaps a false one, that the leader died: start a pre-vote after a short wait.

    Pre-votes of others are granted from now on; if the leader lives, the next answered Fetch clears
    the suspicion, and a majority that still fetches from it keeps it leader.
    """
    role = core.role
    if not isinstance(role, Follower):
        return
    role.has_fetched = False
    wait_ms = _wait_for_turn_ms(core, role.leader_id)
    role.fetch_deadline_ms = min(role.fetch_deadline_ms, core.now_ms + wait_ms)
    core.due(role.fetch_deadline_ms)


def _wait_for_turn_ms(core: Core, leader_id: int) -> int:
    """How long to leave the election to the other voters, which lost the leader at the same time.

    They take turns, so that one is elected before the next one stands. The first turn moves with
    the epoch. Within its turn each waits at random, for the others must have lost the leader, too,
    to grant a pre-vote.
    """
    longest = max(1, core.config.lost_connection_wait_max_ms)
    turns = [voter.id for voter in core.voters if voter.id != leader_id]
    if not core.is_voter or core.local.id not in turns:
        return core.random.randint(1, longest)
    turn_ms = longest // len(turns)
    turn = (turns.index(core.local.id) + core.epoch) % len(turns)
    return turn * turn_ms + core.random.randint(1, max(1, turn_ms // 4))


# --- snapshots ------------------------------------------------------------------------------------


def _begin_snapshot(core: Core, role: Follower, snapshot: OffsetAndEpoch) -> None:
    # A leader never replicates a bootstrap checkpoint, which ends at 0.
    oldest = max(1, core.high_watermark)
    if snapshot.offset < oldest or snapshot.epoch > core.epoch:
        core.notice(
            f"refused snapshot {snapshot}: it ends before the high watermark {core.high_watermark} "
            f"or is of a later epoch than {core.epoch}",
            warning=True,
        )
        core.back_off_fetch()
        return
    core.notice(f"receiving snapshot {snapshot} from leader {role.leader_id}")
    role.snapshot = snapshot
    role.snapshot_position = -1
    core.emit(StartSnapshotFetch(snapshot))


def snapshot_position(core: Core, snapshot: OffsetAndEpoch, position: int) -> None:
    """Note how many bytes of the snapshot have been received."""
    role = core.role
    if isinstance(role, Follower) and role.snapshot == snapshot and core.installing is None:
        role.snapshot_position = position
        maybe_fetch(core)


def _fetch_snapshot(core: Core, role: Follower) -> None:
    if role.snapshot is None or role.snapshot_position < 0:
        return
    request = FetchSnapshotRequest(
        core.config.cluster_id,
        core.local,
        core.epoch,
        role.snapshot,
        role.snapshot_position,
        core.config.snapshot_chunk_bytes_max,
    )
    core.fetch_id = core.send(
        core.config.peer_endpoint(role.leader_endpoints), request, role.leader_id
    )


def handle_snapshot_response(core: Core, sent: Inflight, response: FetchSnapshotResponse) -> None:
    request = sent.request
    assert isinstance(request, FetchSnapshotRequest)
    core.fetch_id = None
    leader = response.leader
    changed = core.maybe_adopt(
        leader.epoch, leader.id, leader.endpoints, sent.replica_id, Origin.FETCH_ANSWER
    )
    role = core.role
    if leader.epoch > core.epoch:
        core.back_off_fetch()
    elif not changed and isinstance(role, Follower) and role.snapshot == request.snapshot:
        if response.error is ErrorCode.NONE:
            _take_chunk(core, role, request, response)
        elif response.error is ErrorCode.POSITION_OUT_OF_RANGE:
            # More is here than this leader's snapshot has: another replica's copy, written
            # differently. It is verified as if complete: installed if sound, else thrown away.
            core.installing = request.snapshot
            core.emit(InstallSnapshot(request.snapshot))
        else:
            core.notice(
                f"snapshot {request.snapshot} at {request.position}: {response.error.name}; "
                "asking the leader again what to fetch",
                warning=True,
            )
            role.snapshot = None
            core.back_off_fetch()
    maybe_fetch(core)


def _take_chunk(
    core: Core, role: Follower, request: FetchSnapshotRequest, response: FetchSnapshotResponse
) -> None:
    role.fetch_deadline_ms = core.now_ms + core.config.fetch_timeout_ms
    role.has_fetched = role.leader_answered = True
    end = response.position + len(response.data)
    if response.position != role.snapshot_position or end > response.size:
        core.notice("a snapshot chunk does not fit what was asked for", warning=True)
        core.back_off_fetch()
        return
    if response.data:
        core.emit(WriteSnapshotChunk(request.snapshot, response.position, response.data))
        role.snapshot_position = end
    if end == response.size:
        core.installing = request.snapshot
        core.emit(InstallSnapshot(request.snapshot))
    elif not response.data:
        core.back_off_fetch()


def snapshot_installed(
    core: Core,
    snapshot: OffsetAndEpoch,
    voters: tuple[tuple[int, VoterSet], ...],
    kraft_versions: tuple[tuple[int, int], ...],
) -> None:
    """The snapshot is on disk and has replaced the log."""
    core.installing = None
    ticket = core.log.reset_to(snapshot)
    core.log.durable(ticket)
    core.advance_high_watermark(snapshot.offset)
    core.reset_membership(voters, kraft_versions)
    required_end.clear_if_reached(core)
    role = core.role
    if isinstance(role, Follower):
        role.snapshot = None
        role.fetch_deadline_ms = core.now_ms + core.config.fetch_timeout_ms
    maybe_fetch(core)


def snapshot_failed(core: Core, snapshot: OffsetAndEpoch, reason: str) -> None:
    """Drop an invalid response and ask the leader again."""
    core.notice(f"snapshot {snapshot} was not installed: {reason}", warning=True)
    core.installing = None
    core.due_ms = NOT_LOOKED_FOR
    role = core.role
    if isinstance(role, Follower):
        role.snapshot = None
        core.back_off_fetch()


# --- the own voter entry --------------------------------------------------------------------------


def _maybe_update_voter(core: Core, role: Follower) -> None:
    """Tell the leader what has changed: at kraft.version 1 what differs from the log, at 0
    everything, once.
    """
    if core.now_ms < role.update_voter_at_ms or not core.is_voter or not role.has_fetched:
        return
    role.update_voter_at_ms = core.now_ms + core.config.update_voter_period_ms
    core.due(role.update_voter_at_ms)
    mine = core.config.voter
    if core.history.kraft_version >= 1:
        entry = core.voters.get(core.local.id)
        needed = entry != mine
    else:
        needed = role.update_voter_acked != mine
    if needed and mine.endpoints:
        request = UpdateVoterRequest(core.config.cluster_id, core.epoch, mine)
        core.send(core.config.peer_endpoint(role.leader_endpoints), request, role.leader_id)


def handle_update_voter_response(core: Core, sent: Inflight, response: AdminResponse) -> None:
    request = sent.request
    assert isinstance(request, UpdateVoterRequest)
    leader = response.leader
    if core.maybe_adopt(leader.epoch, leader.id, leader.endpoints, sent.replica_id):
        return
    role = core.role
    if isinstance(role, Follower) and request.epoch == role.epoch:
        if response.error is ErrorCode.NONE:
            role.update_voter_acked = request.voter
        else:
            text = f"UpdateVoter was refused: {response.error.name} {response.message}".rstrip()
            core.notice(text, warning=True)


def _maybe_join(core: Core, role: Follower) -> None:
    """Auto join (KIP-853 "Controller auto joining"): one step, then wait for the log to show its
    outcome.
    """
    wants = (
        core.config.auto_join and core.config.can_vote and not core.is_voter and not core.removed
    )
    if not wants or core.now_ms < role.join_at_ms or not role.has_fetched:
        return
    if core.history.kraft_version < 1 or not core.local.directory_id:
        return
    role.join_at_ms = core.now_ms + core.config.update_voter_period_ms
    core.due(role.join_at_ms)
    old = core.voters.get(core.local.id)
    request: AddVoterRequest | RemoveVoterRequest
    if old is not None:
        request = RemoveVoterRequest(core.config.cluster_id, old.key, AUTO_JOIN_TIMEOUT_MS)
    else:
        request = AddVoterRequest(
            core.config.cluster_id,
            core.local,
            core.config.endpoints,
            AUTO_JOIN_TIMEOUT_MS,
            ack_when_committed=False,
        )
    timeout_ms = AUTO_JOIN_TIMEOUT_MS + core.config.request_timeout_ms
    if not any(
        isinstance(entry.request, AddVoterRequest | RemoveVoterRequest)
        for entry in core.inflight.values()
    ):
        endpoint = core.config.peer_endpoint(role.leader_endpoints)
        request_id = core.new_request(endpoint, request, role.leader_id, timeout_ms)
        core.emit(SendAdmin(request_id, endpoint, request, timeout_ms))


def handle_join_response(core: Core, sent: Inflight, response: AdminResponse) -> None:
    leader = response.leader
    if core.maybe_adopt(leader.epoch, leader.id, leader.endpoints, sent.replica_id):
        return
    if response.error is not ErrorCode.NONE:
        text = f"joining the voters: {response.error.name} {response.message}".rstrip()
        core.notice(text, warning=True)


# --- time -----------------------------------------------------------------------------------------


def tick(core: Core) -> None:
    role = core.role
    if isinstance(role, Follower):
        if core.now_ms >= role.update_voter_at_ms:
            _maybe_update_voter(core, role)
        if core.now_ms >= role.join_at_ms:
            _maybe_join(core, role)
    maybe_fetch(core)


def next_deadline_ms(core: Core, role: Follower | Unattached) -> int:
    """The next moment that only the clock brings; what is due already waits for an event, not for
    time.
    """
    now = core.now_ms
    earliest = NEVER
    if now < core.fetch_at_ms:
        earliest = core.fetch_at_ms
    if core.stand_at_ms < earliest:  # noqa: PLR1730 - a call costs more
        earliest = core.stand_at_ms
    if isinstance(role, Follower):
        if now < role.update_voter_at_ms < earliest:
            earliest = role.update_voter_at_ms
        if now < role.join_at_ms < earliest:
            earliest = role.join_at_ms
        if role.fetch_deadline_ms < earliest and core.may_elect:
            earliest = role.fetch_deadline_ms
    elif role.election_deadline_ms < earliest and core.may_elect:
        earliest = role.election_deadline_ms
    latest = now + core.config.fetch_timeout_ms
    return earliest if earliest < latest else latest  # noqa: FURB136 - a call costs more
