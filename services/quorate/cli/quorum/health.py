"""`quorate health`: one line about the quorum, and an exit status for scripts and probes.

The quorum works if a leader answers and a majority of the voters has caught up. It is degraded if
it works while some voters are offline or lag behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from quorate.cli.connection import READ_TIMEOUT_S, asking, run
from quorate.cli.options import AsJson
from quorate.cli.output import FAILED, CommandError, print_json, print_line

if TYPE_CHECKING:
    from quorate.raft.messages import DescribeQuorumResponse, ReplicaStatus
    from quorate.rpc.wire.values import QuorumDescription

LAGGING_AFTER_MS = 5_000
"""A voter that fetches, but has not been caught up for longer than this, lags behind."""


class HealthStatus(StrEnum):
    """HEALTHY: all voters have caught up. DEGRADED: a majority has. UNAVAILABLE: too few have, or
    there is no leader, or no controller answers.
    """

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class VoterHealth:
    """A voter that is offline or lags behind."""

    id: int
    endpoint: str
    is_offline: bool
    lag: int
    """The lag in records."""
    since_ms: int | None
    """The time since the last fetch if the voter is offline, else since it was caught up; None if
    never in this epoch.
    """

    def __str__(self) -> str:
        where = f"{self.id} at {self.endpoint}" if self.endpoint else f"{self.id}"
        if not self.is_offline:
            return f"voter {where} lags {self.lag} records behind"
        if self.since_ms is None:
            return f"voter {where} is offline, it has not fetched in this epoch"
        return f"voter {where} is offline, last fetch {self.since_ms / 1000:.1f} s ago"


@dataclass(frozen=True, slots=True)
class QuorumHealth:
    """The verdict on a quorum."""

    status: HealthStatus
    reason: str
    leader: int | None = None
    """The id of the leader, None if it does not answer."""
    epoch: int = -1
    voters: int = 0
    majority: int = 0
    caught_up: int = 0
    """The number of voters that have caught up."""
    impaired: tuple[VoterHealth, ...] = ()


@asking
def health(
    context: typer.Context,
    *,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also fail if the quorum is degraded.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check whether the quorum has a leader, and a majority of voters that have caught up.

    Prints one line and exits with 0 if the quorum works, else with 1. A voter that is offline or
    lags behind is named; with --strict, one is enough to fail.

    Example: quorate health --bootstrap-controller HOST:PORT
    """
    found = _ask(context)
    if as_json:
        print_json(health_json(found))
    else:
        print_line(f"{found.status}: {found.reason}")
    passes = (HealthStatus.HEALTHY,) if strict else (HealthStatus.HEALTHY, HealthStatus.DEGRADED)
    if found.status not in passes:
        raise typer.Exit(FAILED)


def _ask(context: typer.Context) -> QuorumHealth:
    """The health of the quorum; UNAVAILABLE if no controller answers."""
    try:
        description = run(
            context, lambda client: client.describe_quorum(), READ_TIMEOUT_S, reach_first=False
        )
    except CommandError as error:
        from quorate.rpc.errors import UnreachableError

        if not isinstance(error.__cause__, UnreachableError):
            raise
        return QuorumHealth(HealthStatus.UNAVAILABLE, str(error))
    return health_of(description)


def health_of(description: QuorumDescription) -> QuorumHealth:
    """Judge a description of the quorum."""
    from quorate.cli.quorum.metadata_quorum import no_leader

    response = description.response
    voters, majority = len(response.voter_set), response.voter_set.majority
    epoch = response.leader.epoch
    if not description.is_leaders_view:
        reason = no_leader(description)
        return QuorumHealth(HealthStatus.UNAVAILABLE, reason, None, epoch, voters, majority)
    impaired = impaired_voters(response)
    caught_up = len(response.voters) - len(impaired)
    text = f"leader {response.leader.id} in epoch {epoch}, {caught_up} of {voters} voters caught up"
    status = HealthStatus.DEGRADED if impaired else HealthStatus.HEALTHY
    if caught_up < majority:
        status = HealthStatus.UNAVAILABLE
        text += f", a commit needs {majority}"
    text = "; ".join([text, *map(str, impaired)])
    return QuorumHealth(
        status, text, response.leader.id, epoch, voters, majority, caught_up, impaired
    )


def impaired_voters(response: DescribeQuorumResponse) -> tuple[VoterHealth, ...]:
    """The voters that are offline or lag behind, in the leader's view."""
    from quorate.cli.quorum.describe import leader_now_ms, leader_status, silent_voters
    from quorate.rpc.wire.limits import format_address

    now_ms, leader = leader_now_ms(response), leader_status(response)
    silent = set(silent_voters(response))
    end = -1 if leader is None else leader.log_end_offset

    def judged(status: ReplicaStatus) -> VoterHealth | None:
        is_offline = status.replica in silent
        if not is_offline and now_ms - status.last_caught_up_ms <= LAGGING_AFTER_MS:
            return None
        first = status.endpoints[0] if status.endpoints else None
        at_ms = status.last_fetch_ms if is_offline else status.last_caught_up_ms
        return VoterHealth(
            status.replica.id,
            format_address(first.host, first.port) if first else "",
            is_offline,
            end - max(0, status.log_end_offset),
            None if at_ms < 0 else now_ms - at_ms,
        )

    return tuple(found for status in response.voters if (found := judged(status)) is not None)


def health_json(found: QuorumHealth) -> dict[str, object]:
    """The JSON form of `quorate health`."""
    return {
        "status": found.status.value,
        "reason": found.reason,
        "leaderId": found.leader,
        "leaderEpoch": found.epoch,
        "voters": found.voters,
        "majority": found.majority,
        "caughtUp": found.caught_up,
        "impairedVoters": [
            {
                "id": voter.id,
                "endpoint": voter.endpoint,
                "state": "offline" if voter.is_offline else "lagging",
                "lag": voter.lag,
                "sinceMs": voter.since_ms,
            }
            for voter in found.impaired
        ],
    }
