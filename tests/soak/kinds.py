"""The kinds of faults of the soak: what each does, to whom, and when it may come.

A kind belongs to a group; `--kinds` takes names of both. Its function injects the fault, ends it,
and returns when the victims run again; the soak then waits until every voter has caught up.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.soak.load import Load
from tests.soak.network import Network
from tests.soak.nodes import FaultyNode, FaultyQuorum


class Victims(Enum):
    """How many nodes a fault hits at once."""

    ONE = "one"
    MINORITY = "a minority at most"
    ANY = "any number"
    ALL = "all"


@dataclass(slots=True)
class Scene:
    """One fault. choices: its own random numbers, so that they do not depend on earlier faults.

    library: what makes the victims' disks fail. folder: for files of the fault.
    """

    quorum: FaultyQuorum
    network: Network
    load: Load
    library: Path | None
    folder: Path
    choices: random.Random
    victims: list[FaultyNode]

    @property
    def ids(self) -> list[int]:
        return [node.id for node in self.victims]

    async def rest(self, shortest_s: float, longest_s: float) -> None:
        """Let some time pass."""
        await asyncio.sleep(self.choices.uniform(shortest_s, longest_s))


Act = Callable[[Scene], Awaitable[None]]


def always(nodes: Iterable[FaultyNode]) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Kind:
    """ends_process: whether the victims' processes end. applies: whether the fault is possible
    with the files that the nodes have now.
    """

    name: str
    group: str
    act: Act
    victims: Victims = Victims.ONE
    ends_process: bool = True
    applies: Callable[[Iterable[FaultyNode]], bool] = always

    def count(self, nodes: int, candidates: int, choices: random.Random) -> int:
        """How many of the candidates to hit, of a quorum of so many nodes."""
        if self.victims is Victims.ALL:
            return nodes
        most = {
            Victims.ONE: 1,
            Victims.MINORITY: (nodes - 1) // 2,
            Victims.ANY: candidates,
        }[self.victims]
        return choices.randint(1, most)


def select(kinds: Mapping[str, Kind], names: Sequence[str]) -> list[Kind]:
    """The kinds of these names and groups; all without any. ValueError for an unknown name."""
    known = {kind.group for kind in kinds.values()} | set(kinds)
    for name in names:
        if name not in known:
            raise ValueError(f"no kind or group of faults is called {name!r}")
    return [
        kind for kind in kinds.values() if not names or kind.name in names or kind.group in names
    ]
