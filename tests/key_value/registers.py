"""Whether operations on registers whose written values are unique are linearizable.

Each key is a register. All operations on one value, its put and the gets that returned it, are a
cluster, which a linearization must not interleave with another one. Cluster A must precede B if an
operation of A ended before one of B began. A history is linearizable if no get ended before the put
of its value began, and no two clusters must precede each other; no search is needed.

Source: Gibbons and Korach, Testing Shared Memories, SIAM Journal on Computing 26 (1997), section 4.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

OPEN = math.inf
"""The end of an operation whose outcome is unknown: it may take effect at any later time."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A put that was not refused, or a get that returned.

    value: None if a get found nothing. begin, end: seconds of one monotonic clock; OPEN.
    """

    key: str
    value: str | None
    is_put: bool
    begin: float
    end: float
    node: int = 0

    def __str__(self) -> str:
        name = "put" if self.is_put else "get"
        return f"{name} {self.value} at node {self.node} [{self.begin:.4f}, {self.end:.4f}]"


@dataclass(frozen=True, slots=True)
class _Cluster:
    """first: the operation that ended first. last: the one that began last."""

    first: Operation
    last: Operation

    @property
    def is_forward(self) -> bool:
        return self.first.end < self.last.begin

    def must_precede(self, other: _Cluster) -> bool:
        return self.first.end < other.last.begin


def check_registers(operations: Iterable[Operation]) -> list[str]:
    """What is not linearizable, one text for each finding. ValueError if a value was put twice."""
    by_key: dict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        by_key[operation.key].append(operation)
    return [text for key, found in sorted(by_key.items()) for text in _check_register(key, found)]


def _check_register(key: str, operations: list[Operation]) -> Iterator[str]:
    puts: dict[str | None, Operation] = {
        None: Operation(key, None, is_put=True, begin=-math.inf, end=-math.inf)
    }
    gets: dict[str | None, list[Operation]] = defaultdict(list)
    for operation in operations:
        if not operation.is_put:
            gets[operation.value].append(operation)
        elif operation.value in puts:
            raise ValueError(f"{operation.value!r} was put twice: values are unique")
        else:
            puts[operation.value] = operation
    for value, found in gets.items():
        if value not in puts:
            yield f"{key}: {found[0]} returned what nobody put, or what was refused"
    clusters = []
    for value, put in puts.items():
        every = [put, *gets[value]]
        if put.end == OPEN and len(every) == 1:
            continue  # it may never have taken effect
        first = min(every, key=lambda each: each.end)
        if first.end < put.begin:
            yield f"{key}: {first} returned before {put} began"
        clusters.append(_Cluster(first, max(every, key=lambda each: each.begin)))
    yield from _check_order(key, clusters)


def _check_order(key: str, clusters: list[_Cluster]) -> Iterator[str]:
    """Find clusters that must precede each other; one of them is always a forward one."""
    forward = sorted((each for each in clusters if each.is_forward), key=lambda c: c.first.end)
    begins = [each.first.end for each in forward]
    for before, after in itertools.pairwise(forward):
        if after.must_precede(before):
            yield _interleaved(key, before, after)
    for cluster in clusters:
        if not cluster.is_forward:
            index = bisect_left(begins, cluster.last.begin)
            if index and cluster.must_precede(forward[index - 1]):
                yield _interleaved(key, forward[index - 1], cluster)


def _interleaved(key: str, one: _Cluster, other: _Cluster) -> str:
    return (
        f"{key}: {one.first} ended before {other.last} began, "
        f"but {other.first} ended before {one.last} began"
    )
