"""Cycles of a directed graph."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping


def strongly_connected(edges: Mapping[str, Collection[str]]) -> Iterator[tuple[int, set[str]]]:
    """The strongly connected components, each with a number (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in edges[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            first = stack.index(node)
            found.append(set(stack[first:]))
            del stack[first:]

    for node in edges:
        if node not in index:
            visit(node)
    return iter(enumerate(found))


def cycle_through(component: Collection[str], edges: Mapping[str, Collection[str]]) -> list[str]:
    """A shortest cycle through the first node of a component, which it ends with too."""
    start = min(component)
    came_from: dict[str, str] = {}
    queue = [start]
    for node in queue:
        for other in sorted(edges[node]):
            if other == start:
                path = [start, node]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            if other in component and other not in came_from:
                came_from[other] = node
                queue.append(other)
    raise ValueError(f"no cycle through {start}")
