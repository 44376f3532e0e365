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

from collections.abc import Sequence
from dataclasses import dataclass

from quorate.metadata.managers.controller_context import RefusedError
from quorate.raft.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class UsableBroker:
    """A broker that may host replicas. Brokers without a rack form one rack."""

    id: int
    rack: str | None
    is_active: bool


def place(
    candidates: Sequence[UsableBroker], partitions: int, replication_factor: int, cursor: int = 0
) -> list[tuple[int, ...]]:
    """The replicas of each partition, the preferred leader first.

    INVALID_REPLICATION_FACTOR if there are too few brokers, or none is active.
    """
    if replication_factor <= 0:
        raise RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Invalid replication factor: it must be greater than zero.",
        )
    if replication_factor > len(candidates):
        raise RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(candidates)} broker(s) are registered or some brokers have all their log "
            "directories cordoned.",
        )
    if not any(candidate.is_active for candidate in candidates):
        raise RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "All brokers are currently fenced, or have all their log directories cordoned.",
        )
    racks = _racks(candidates)
    leaders = _interleaved([[c.id for c in rack if c.is_active] for rack in racks])
    return [
        _replicas(racks, leaders, cursor + number, replication_factor)
        for number in range(partitions)
    ]


def _racks(candidates: Sequence[UsableBroker]) -> list[list[UsableBroker]]:
    by_rack: dict[str, list[UsableBroker]] = {}
    for candidate in sorted(candidates, key=lambda c: c.id):
        by_rack.setdefault(candidate.rack or "", []).append(candidate)
    return [by_rack[name] for name in sorted(by_rack)]


def _interleaved(racks: list[list[int]]) -> list[int]:
    """One broker of each rack in turn, until all are used."""
    found: list[int] = []
    for step in range(max(len(rack) for rack in racks)):
        found.extend(rack[step] for rack in racks if step < len(rack))
    return found


def _replicas(
    racks: list[list[UsableBroker]], leaders: list[int], number: int, count: int
) -> tuple[int, ...]:
    leader = leaders[number % len(leaders)]
    round_number = number // len(leaders)
    home = next(i for i, rack in enumerate(racks) if any(c.id == leader for c in rack))
    # After the leader: the other racks in turn, its own last. Each round starts at another rack.
    others = [racks[(home + 1 + step) % len(racks)] for step in range(len(racks) - 1)]
    if others:
        shift = round_number % len(others)
        others = others[shift:] + others[:shift]
    queues = [_queue(rack, leader, number, round_number) for rack in [*others, racks[home]]]
    chosen = [leader]
    while len(chosen) < count:
        for queue in queues:
            if queue and len(chosen) < count:
                chosen.append(queue.pop(0))
    return tuple(chosen)


def _queue(rack: list[UsableBroker], leader: int, number: int, round_number: int) -> list[int]:
    """The rack's brokers in the order in which they are used, without the leader."""
    ids = [candidate.id for candidate in rack]
    begin = ids.index(leader) + 1 + round_number if leader in ids else number + round_number
    active = [c.id for c in rack if c.is_active and c.id != leader]
    fenced = [c.id for c in rack if not c.is_active and c.id != leader]
    return _rotated(active, begin) + _rotated(fenced, begin)


def _rotated(ids: list[int], begin: int) -> list[int]:
    if not ids:
        return []
    shift = begin % len(ids)
    return ids[shift:] + ids[:shift]
