"""What became of the store: the histories of the clients against the traces of the nodes."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.key_value.clients import Histories
from tests.key_value.registers import check_registers
from tests.key_value.stores import NODES, Stores, trace_lines

START, RESTORED = "start", "restored"
TEXT_MAX = 1_000


Applied = tuple[str, str]
"""The key and the value of an applied record."""


@dataclass
class Segment:
    """What a node applied, offset by offset, after a start or after it restored a snapshot."""

    node: int
    is_restored: bool
    is_first: bool
    applied: list[tuple[int, str, str]] = field(default_factory=list)


def segments(node: int, lines: Iterable[Sequence[str]]) -> list[Segment]:
    """The segments of a trace. is_first: since the process started, nothing was applied before."""
    found: list[Segment] = []
    for line in lines:
        match line:
            case ["start"]:
                found.append(Segment(node, is_restored=False, is_first=True))
            case ["restored"]:
                is_first = found[-1].is_first and not found[-1].applied
                found.append(Segment(node, is_restored=True, is_first=is_first))
            case [offset, key, value]:
                found[-1].applied.append((int(offset), key, value))
            case _:
                raise ValueError(f"not a line of a trace: {line}")
    return found


def merge(found: Sequence[Segment]) -> tuple[dict[int, Applied], list[str]]:
    """The log that the nodes applied, by offset, and in what they differ.

    Where they differ, the log is what most nodes applied, of those that passed the offset.
    """
    nodes: dict[int, dict[Applied | None, set[int]]] = defaultdict(lambda: defaultdict(set))
    for segment in found:
        for offset, key, value in segment.applied:
            nodes[offset][key, value].add(segment.node)
    offsets = sorted(nodes)
    for segment in found:
        applied = {offset for offset, _, _ in segment.applied}
        for offset in _passed(offsets, segment):
            if offset not in applied:
                nodes[offset][None].add(segment.node)
    log: dict[int, Applied] = {}
    differing = [f"NODES_DIFFER: {text}" for text in filter(None, map(_out_of_order, found))]
    for offset in offsets:
        chosen = max(nodes[offset], key=lambda each: len(nodes[offset][each]))
        if chosen is not None:
            log[offset] = chosen
        if len(nodes[offset]) > 1:
            texts = [f"{value} at nodes {sorted(at)}" for value, at in nodes[offset].items()]
            differing.append(f"NODES_DIFFER: offset {offset} is {'; '.join(texts)}")
    return log, differing


def _passed(offsets: Sequence[int], segment: Segment) -> Sequence[int]:
    """The offsets of the log between the first and the last that the segment has."""
    own = [offset for offset, _, _ in segment.applied]
    if not own:
        return ()
    return offsets[bisect_left(offsets, own[0]) : bisect_right(offsets, own[-1])]


def _out_of_order(segment: Segment) -> str:
    """What is wrong with the order of the offsets, empty if nothing is."""
    for (before, *_), (after, *_) in itertools.pairwise(segment.applied):
        if after <= before:
            return f"node {segment.node} applied offset {after} after {before}"
    return ""


@dataclass
class Report:
    """The figures of a run.

    errors: of puts, by text; in_the_log: how many of those values are in the log all the same.
    restored: restored snapshots, restored_running: of nodes that ran. alarms: lines
    of the nodes' logs of the level CRITICAL. failures: of the run itself.
    """

    store: str
    version: str
    seed: int
    seconds: float
    partitions: bool
    reads: str
    faults: dict[str, int]
    puts: int
    acknowledged: int
    refused: int
    unknown: int
    unknown_in_log: int
    errors: dict[str, dict[str, int]]
    gets: int
    failed_gets: dict[str, int]
    longest_gap_s: float
    longest_gap_fault: str
    restored: int
    restored_running: int
    alarms: int
    violations: list[str]
    failures: list[str]

    @property
    def is_good(self) -> bool:
        return not self.violations and not self.failures

    def json(self) -> dict[str, Any]:
        return asdict(self)


def longest_gap(
    acknowledged_s: Sequence[float], faults: Sequence[tuple[float, str]]
) -> tuple[float, str]:
    """The longest time without an acknowledged put, and the last fault that began before its end.

    It ends with the first acknowledged put, or with the last entry of `acknowledged_s`.
    """
    ordered = sorted(acknowledged_s)
    gaps = [(after - before, after) for before, after in itertools.pairwise(ordered)]
    gap, end = max(gaps, default=(0.0, 0.0))
    names = [name for begun, name in faults if begun < end]
    return gap, names[-1] if names else ""


def judge(stores: Stores, histories: Histories) -> tuple[list[str], set[str], list[Segment]]:
    """All violations, the values in the log, and the segments of all nodes."""
    every = [each for node in NODES for each in segments(node, trace_lines(stores, node))]
    log, violations = merge(every)
    violations += [
        str(each)
        for each in histories.log.verify((offset, log[offset][1]) for offset in sorted(log))
    ]
    violations += [f"NOT_LINEARIZABLE: {text}" for text in check_registers(histories.operations)]
    return [text[:TEXT_MAX] for text in violations], {value for _, value in log.values()}, every


def errors_of(histories: Histories, in_log: set[str]) -> dict[str, dict[str, int]]:
    """Each error of puts: how many there were, and how many of the values are in the log."""
    both = histories.unknown | histories.refused
    counts = Counter(both.values())
    logged = Counter(error for value, error in both.items() if value in in_log)
    return {error: {"puts": n, "in the log": logged[error]} for error, n in counts.most_common()}
