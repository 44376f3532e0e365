"""What the logs of the controllers show: that they are the same, and how often a leader changed."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from quorate.raft.batches import LeaderChange, Voters
from quorate.records.batch import parse_batches

PARTITION = "__cluster_metadata-0"
HEAD = struct.Struct(">qi")


@dataclass(frozen=True, slots=True)
class Comparison:
    """batches: distinct ones. compared: those that at least two directories have. different: base
    offsets at which they are not byte-identical. leaders: (epoch, id) of each elected leader.
    removed: the leaders that were removed from the voters while they led.
    """

    batches: int
    compared: int
    different: tuple[int, ...]
    leaders: tuple[tuple[int, int], ...]
    removed: tuple[int, ...]


def raw_batches(directory: Path) -> Iterator[tuple[int, bytes]]:
    """The base offset and the bytes of every batch of a log."""
    for path in sorted((directory / PARTITION).glob("*.log")):
        data = path.read_bytes()
        position = 0
        while position + HEAD.size <= len(data):
            base, size = HEAD.unpack_from(data, position)
            end = position + HEAD.size + size
            if size <= 0 or end > len(data):  # preallocated, or not written in full
                break
            yield base, data[position:end]
            position = end


def compare(directories: Iterable[Path]) -> Comparison:
    """Compare the logs of stopped controllers, batch by batch, where they overlap."""
    found: dict[int, set[bytes]] = {}
    copies: dict[int, int] = {}
    for directory in directories:
        for base, data in raw_batches(directory):
            found.setdefault(base, set()).add(data)
            copies[base] = copies.get(base, 0) + 1
    leaders: dict[int, int] = {}
    removed = []
    for base in sorted(found):
        for batch in (each for data in found[base] for each in parse_batches(data)):
            for record in batch.control:
                if isinstance(record, LeaderChange):
                    leaders[batch.epoch] = record.leader_id
                elif isinstance(record, Voters) and batch.epoch in leaders:
                    leader = leaders[batch.epoch]
                    if record.voters.get(leader) is None:
                        removed.append(leader)
    return Comparison(
        len(found),
        sum(1 for count in copies.values() if count > 1),
        tuple(sorted(base for base, contents in found.items() if len(contents) > 1)),
        tuple(sorted(leaders.items())),
        tuple(removed),
    )
