"""Replica placement for new partitions: striped over racks and brokers.

1. Fenced brokers can host replicas, so that a topic can be created while one is down, but unfenced
   brokers of the same rack come first. The first replica of a partition, its preferred leader, is
   on an unfenced broker. Brokers in controlled shutdown get none.
2. Placement rotates over racks, and over the brokers of each rack. Each partition starts one
   position later in both rotations, which spreads leaders and replicas. A partition uses every rack
   once before it uses a rack again.
3. Each new round over the leaders shifts the followers relative to them, so that partitions are not
   always shared by the same brokers.

Source: KIP-36 (racks), KIP-631; Kafka's StripedReplicaPlacer for the properties.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from quorate.common.error_codes import ErrorCode
from quorate.metadata.managers.controller_context import RefusedError


@dataclass(frozen=True, slots=True)
class UsableBroker:
    """A broker that may host replicas. Brokers without a rack form one rack."""

    id: int
    rack: str | None
    is_active: bool


class Placement:
    """Places partitions on these candidates, which are prepared once for all topics of a request.

    That takes time for each broker, and places many partitions.
    """

    def __init__(self, candidates: Sequence[UsableBroker]) -> None:
        self._count = len(candidates)
        self._racks = _racks(candidates)
        self._leaders = _interleaved([rack.active for rack in self._racks])

    def place(
        self, partitions: int, replication_factor: int, cursor: int = 0
    ) -> list[tuple[int, ...]]:
        """The replicas of each partition, the preferred leader first.

        INVALID_REPLICATION_FACTOR if there are too few brokers, or none is active.
        """
        self._check(replication_factor)
        return [
            _replicas(self._racks, self._leaders, cursor + number, replication_factor)
            for number in range(partitions)
        ]

    def _check(self, replication_factor: int) -> None:
        if replication_factor <= 0:
            raise RefusedError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Invalid replication factor: it must be greater than zero.",
            )
        if not self._leaders:
            raise RefusedError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "All brokers are currently fenced, or have all their log directories cordoned.",
            )
        if replication_factor > self._count:
            raise RefusedError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The target replication factor of {replication_factor} cannot be reached because "
                f"only {self._count} broker(s) are registered or some brokers have all their log "
                "directories cordoned.",
            )


class _Rack:
    """The brokers of one rack by id. at, active_at: their positions in `ids` and `active`."""

    def __init__(self, candidates: Sequence[UsableBroker]) -> None:
        self.ids = [candidate.id for candidate in candidates]
        self.active = [candidate.id for candidate in candidates if candidate.is_active]
        self.fenced = [candidate.id for candidate in candidates if not candidate.is_active]
        self.at = {broker_id: position for position, broker_id in enumerate(self.ids)}
        self.active_at = {broker_id: position for position, broker_id in enumerate(self.active)}

    def queue(self, leader: int, number: int, round_number: int) -> Iterator[int]:
        """The brokers in the order in which they are used, without the leader.

        Only the first few are needed, so nothing here takes time for each broker of the rack.
        """
        begin = self.at[leader] + 1 if leader in self.at else number
        begin += round_number
        leader_at = self.active_at.get(leader, len(self.active))
        count = len(self.active) - (leader in self.active_at)
        for step in range(count):
            position = (begin + step) % count
            yield self.active[position + (position >= leader_at)]
        for step in range(len(self.fenced)):
            yield self.fenced[(begin + step) % len(self.fenced)]


def _racks(candidates: Sequence[UsableBroker]) -> list[_Rack]:
    by_rack: dict[str, list[UsableBroker]] = {}
    for candidate in sorted(candidates, key=lambda c: c.id):
        by_rack.setdefault(candidate.rack or "", []).append(candidate)
    return [_Rack(by_rack[name]) for name in sorted(by_rack)]


def _interleaved(racks: list[list[int]]) -> list[int]:
    """One broker of each rack in turn, until all are used."""
    found: list[int] = []
    for step in range(max(map(len, racks), default=0)):
        found.extend(rack[step] for rack in racks if step < len(rack))
    return found


def _replicas(racks: list[_Rack], leaders: list[int], number: int, count: int) -> tuple[int, ...]:
    leader = leaders[number % len(leaders)]
    round_number = number // len(leaders)
    home = next(i for i, rack in enumerate(racks) if leader in rack.at)
    # After the leader: the other racks in turn, its own last. Each round starts at another rack.
    others = [racks[(home + 1 + step) % len(racks)] for step in range(len(racks) - 1)]
    if others:
        shift = round_number % len(others)
        others = others[shift:] + others[:shift]
    queues = [rack.queue(leader, number, round_number) for rack in [*others, racks[home]]]
    chosen = [leader]
    while len(chosen) < count:
        for queue in queues:
            broker_id = next(queue, None) if len(chosen) < count else None
            if broker_id is not None:
                chosen.append(broker_id)
    return tuple(chosen)
