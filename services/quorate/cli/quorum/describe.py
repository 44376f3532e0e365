"""A description of the quorum as text, exactly as Kafka's `kafka-metadata-quorum` prints it.

`describe --status` and `describe --replication` use the names, order and spacing of Kafka 4.
Additions: CommittedVoters while they differ from the current voters (KIP-853, "describe --status"),
one node's view while there is no leader, which Kafka's tool cannot show, and two more columns of
`describe --replication`: the software of each replica, while not all run the same, and its state,
while a voter is offline. `describe --status` then has OfflineVoters.

Rules: a lag is the distance from the leader's log end offset; -1 means "unknown". A leader that is
removing itself, before that change is committed, is among the observers. Ages are those of the
leader's clock, which made the timestamps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from quorate.cli.output import kafka_table, printable
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import NO_NODE, ZERO_UUID
from quorate.raft.messages import DescribeQuorumResponse, ReplicaStatus
from quorate.raft.types import ReplicaKey, VoterSet
from quorate.rpc.software import UNKNOWN, Software

HEADER = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)
SOFTWARE = "Implementation"
STATE = "State"
ONLINE, OFFLINE = "Online", "Offline"
NONE_KNOWN: Final[Mapping[int, Software]] = MappingProxyType({})

SILENT_AFTER_MS = 2_000
"""Kafka's default of controller.quorum.fetch.timeout.ms; a running voter fetches more often."""


@dataclass(frozen=True, slots=True)
class Row:
    """One replica in `describe --replication`."""

    status: ReplicaStatus
    lag: int
    """The number of records behind the leader, -1 if unknown."""
    role: str
    state: str = ""
    """ONLINE or OFFLINE; "" if unknown."""


def endpoint_text(endpoint: Endpoint) -> str:
    """NAME://host:port, with brackets around an IPv6 address."""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.name}://{host}:{endpoint.port}"


def from_leader(description: DescribeQuorumResponse) -> bool:
    """Whether this description is the leader's, and not the view of another node."""
    return description.error is ErrorCode.NONE and description.leader.id is not None


def leader_now_ms(description: DescribeQuorumResponse) -> int:
    """Return the time of the leader's clock when it answered.

    It is the latest fetch time of any replica, because the leader reports itself as up to date.
    """
    statuses = (*description.voters, *description.observers)
    return max((status.last_fetch_ms for status in statuses), default=0)


def is_silent(status: ReplicaStatus, now_ms: int) -> bool:
    """Whether a replica does not fetch. now_ms: see `leader_now_ms`."""
    return now_ms - status.last_fetch_ms > SILENT_AFTER_MS


def silent_voters(description: DescribeQuorumResponse) -> list[ReplicaKey]:
    """Return the voters that do not fetch."""
    now_ms = leader_now_ms(description)
    return [voter.replica for voter in description.voters if is_silent(voter, now_ms)]


def leader_id(description: DescribeQuorumResponse) -> int:
    """Return the leader's id; -1 in another node's view, because that may be out of date."""
    known = description.leader.id
    return known if known is not None and from_leader(description) else NO_NODE


def status_text(cluster_id: str, description: DescribeQuorumResponse) -> str:
    """Format the output of `describe --status`."""
    lag, lag_ms = max_follower_lag(description)
    lines = [
        ("ClusterId", cluster_id),
        ("LeaderId", str(leader_id(description))),
        ("LeaderEpoch", str(description.leader.epoch)),
        ("HighWatermark", str(description.high_watermark)),
        ("MaxFollowerLag", str(lag)),
        ("MaxFollowerLagTimeMs", str(lag_ms)),
        ("CurrentVoters", _voters_text(_voters(description))),
        ("CurrentObservers", _voters_text((o.replica, o.endpoints) for o in description.observers)),
    ]
    if offline := _offline_text(description):
        lines.append(("OfflineVoters", offline))
    if _uncommitted(description):
        lines.append(("CommittedVoters", _voters_text(_members(description.committed_voters))))
    return "\n".join(f"{name + ':':<24}{printable(value)}" for name, value in lines)


def status_json(cluster_id: str, description: DescribeQuorumResponse) -> dict[str, object]:
    """Return the JSON form of `describe --status`."""
    lag, lag_ms = max_follower_lag(description)
    return {
        "clusterId": cluster_id,
        "leaderId": leader_id(description),
        "lastKnownLeaderId": NO_NODE if description.leader.id is None else description.leader.id,
        "leaderEpoch": description.leader.epoch,
        "highWatermark": description.high_watermark,
        "maxFollowerLag": lag,
        "maxFollowerLagTimeMs": lag_ms,
        "kraftVersion": description.kraft_version,
        "currentVoters": [_member_json(*voter) for voter in _voters(description)],
        "currentObservers": [_member_json(o.replica, o.endpoints) for o in description.observers],
        "offlineVoters": [
            {"id": key.id, "directoryId": key.directory_id} for key in _offline(description)
        ],
        "committedVoters": [
            _member_json(*voter) for voter in _members(description.committed_voters)
        ],
    }


def replication_text(
    description: DescribeQuorumResponse,
    software: Mapping[int, Software] = NONE_KNOWN,
    *,
    ages: bool = False,
) -> str:
    """Format the output of `describe --replication`.

    software: of each replica, by its id. ages: print ages instead of timestamps. If all voters
    fetch, and all that are known run the same, the columns are those of Kafka's tool.
    """
    now_ms = leader_now_ms(description) if ages else None
    has_offline = bool(_offline(description))
    is_mixed = len({each for each in software.values() if each != UNKNOWN}) > 1

    def more(name: str, state: str) -> tuple[str, ...]:
        return ((name,) if is_mixed else ()) + ((state,) if has_offline else ())

    return kafka_table(
        (*HEADER, *more(SOFTWARE, STATE)),
        [
            (
                str(row.status.replica.id),
                row.status.replica.directory_id or ZERO_UUID,
                str(row.status.log_end_offset),
                str(row.lag),
                _time(row.status.last_fetch_ms, now_ms),
                _time(row.status.last_caught_up_ms, now_ms),
                row.role,
                *more(str(software.get(row.status.replica.id, UNKNOWN)), row.state),
            )
            for row in replication_rows(description)
        ],
    )


def replication_json(
    description: DescribeQuorumResponse, software: Mapping[int, Software] = NONE_KNOWN
) -> list[dict[str, object]]:
    """Return the JSON form of `describe --replication`. Unknown software is null."""
    return [
        {
            "nodeId": row.status.replica.id,
            "directoryId": row.status.replica.directory_id,
            "logEndOffset": row.status.log_end_offset,
            "lag": row.lag,
            "lastFetchTimestamp": row.status.last_fetch_ms,
            "lastCaughtUpTimestamp": row.status.last_caught_up_ms,
            "status": row.role,
            "state": row.state.lower() or None,
            "implementation": known.implementation or None,
            "version": known.version or None,
        }
        for row in replication_rows(description)
        for known in (software.get(row.status.replica.id, UNKNOWN),)
    ]


def replication_rows(description: DescribeQuorumResponse) -> list[Row]:
    """Return the leader, then the other voters, then the observers, in the response's order."""
    leader = leader_status(description)
    now_ms = leader_now_ms(description)

    def row(status: ReplicaStatus, role: str) -> Row:
        if leader is None:
            return Row(status, -1, role)
        state = OFFLINE if is_silent(status, now_ms) else ONLINE
        return Row(status, leader.log_end_offset - status.log_end_offset, role, state)

    rows = [] if leader is None else [row(leader, "Leader")]
    rows += [row(voter, "Follower") for voter in description.voters if voter is not leader]
    rows += [row(observer, "Observer") for observer in description.observers if observer != leader]
    return rows


def max_follower_lag(description: DescribeQuorumResponse) -> tuple[int, int]:
    """Return the lag of the slowest voter, in records and in milliseconds; -1 if unknown.

    Of voters with the same log end offset, as in an idle quorum, it is the one that has not been
    caught up for longest: a voter that is offline, if there is one.
    """
    leader = leader_status(description)
    if leader is None:
        return -1, -1
    last = min(
        description.voters,
        key=lambda voter: (voter.log_end_offset, voter.last_caught_up_ms),
        default=leader,
    )
    lag = leader.log_end_offset - last.log_end_offset
    if last is leader:
        return lag, 0
    if leader.last_caught_up_ms < 0 or last.last_caught_up_ms < 0:
        return lag, -1
    return lag, leader.last_caught_up_ms - last.last_caught_up_ms


def leader_status(description: DescribeQuorumResponse) -> ReplicaStatus | None:
    """Return the leader's status, the reference for lags; None in another node's view."""
    if not from_leader(description):
        return None
    for replica in (*description.voters, *description.observers):
        if replica.replica.id == description.leader.id:
            return replica
    return None


def _offline(description: DescribeQuorumResponse) -> list[ReplicaKey]:
    """The voters that are offline; empty in another node's view, which does not know them."""
    return silent_voters(description) if leader_status(description) is not None else []


def _offline_text(description: DescribeQuorumResponse) -> str:
    """The voters that are offline, each with the age of its last fetch."""
    now_ms = leader_now_ms(description)
    return ", ".join(
        f"{voter.replica.id} (last fetch {_time(voter.last_fetch_ms, now_ms)})"
        if voter.last_fetch_ms >= 0
        else f"{voter.replica.id} (no fetch in this epoch)"
        for voter in description.voters
        if voter.replica in _offline(description)
    )


def _voters(
    description: DescribeQuorumResponse,
) -> list[tuple[ReplicaKey, tuple[Endpoint, ...]]]:
    if not description.voters:
        return _members(description.voter_set)
    return [(voter.replica, voter.endpoints) for voter in description.voters]


def _members(voters: VoterSet) -> list[tuple[ReplicaKey, tuple[Endpoint, ...]]]:
    return [(voter.key, voter.endpoints) for voter in voters]


def _uncommitted(description: DescribeQuorumResponse) -> bool:
    # The set has precedence: statuses have directory ids even at kraft.version 0, sets do not.
    current = {v.key for v in description.voter_set} or {key for key, _ in _voters(description)}
    committed = {voter.key for voter in description.committed_voters}
    return bool(committed) and committed != current


def _voters_text(members: Iterable[tuple[ReplicaKey, tuple[Endpoint, ...]]]) -> str:
    texts = []
    for key, endpoints in members:
        parts = [f'"id": {key.id}']
        if key.directory_id not in (None, ZERO_UUID):
            parts.append(f'"directoryId": "{key.directory_id}"')
        if endpoints:
            quoted = ", ".join(f'"{endpoint_text(endpoint)}"' for endpoint in endpoints)
            parts.append(f'"endpoints": [{quoted}]')
        texts.append("{" + ", ".join(parts) + "}")
    return "[" + ", ".join(texts) + "]"


def _member_json(key: ReplicaKey, endpoints: tuple[Endpoint, ...]) -> dict[str, object]:
    return {
        "id": key.id,
        "directoryId": key.directory_id,
        "endpoints": [endpoint_text(endpoint) for endpoint in endpoints],
    }


def _time(moment_ms: int, now_ms: int | None) -> str:
    if moment_ms < 0 or now_ms is None:
        return str(moment_ms)
    return f"{now_ms - moment_ms} ms ago"
