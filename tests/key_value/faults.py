"""The faults: each hits nodes, holds for a while, and ends."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable

from tests.key_value.stores import NODES, Stores

DOWN_S = (0.5, 3.0)
PAUSE_S = (2.0, 8.0)
PARTITION_S = (3.0, 10.0)
LEADER_S = 30.0

Fault = Callable[[Stores, random.Random], None]


def leader(stores: Stores) -> int:
    """The leader. TimeoutError if there is none for long."""
    deadline = time.monotonic() + LEADER_S
    while not (found := stores.leader()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no leader for {LEADER_S:g} s")
        time.sleep(0.1)
    return found


def follower(stores: Stores, chance: random.Random) -> int:
    one = leader(stores)
    return chance.choice([node for node in NODES if node != one])


def kill(stores: Stores, chance: random.Random, *nodes: int) -> None:
    for node in nodes:
        stores.processes[node].kill()
    time.sleep(chance.uniform(*DOWN_S))


def pause(stores: Stores, chance: random.Random, node: int) -> None:
    stores.processes[node].pause()
    time.sleep(chance.uniform(*PAUSE_S))


def cut(stores: Stores, chance: random.Random, node: int, *, out: bool, into: bool) -> None:
    """Lose what the node sends to the others (out), what they send to it (into), or both."""
    assert stores.namespaces is not None
    others = [each for each in NODES if each != node]
    stores.namespaces.lose([(node, each) for each in others if out])
    stores.namespaces.lose([(each, node) for each in others if into])
    time.sleep(chance.uniform(*PARTITION_S))


PROCESS_FAULTS: dict[str, Fault] = {
    "kill -9 of the leader": lambda s, c: kill(s, c, leader(s)),
    "kill -9 of a follower": lambda s, c: kill(s, c, follower(s, c)),
    "kill -9 of all": lambda s, c: kill(s, c, *NODES),
    "SIGSTOP of the leader": lambda s, c: pause(s, c, leader(s)),
    "SIGSTOP of a follower": lambda s, c: pause(s, c, follower(s, c)),
}
PARTITIONS: dict[str, Fault] = {
    "leader isolated": lambda s, c: cut(s, c, leader(s), out=True, into=True),
    "follower isolated": lambda s, c: cut(s, c, follower(s, c), out=True, into=True),
    "leader sends in vain": lambda s, c: cut(s, c, leader(s), out=True, into=False),
    "leader receives nothing": lambda s, c: cut(s, c, leader(s), out=False, into=True),
    "follower receives nothing": lambda s, c: cut(s, c, follower(s, c), out=False, into=True),
}


class Faults:
    """Faults in the order that the seed gives: all kinds once, then all again in another order.

    counts: by name. begun: when each began, seconds of the monotonic clock, and its name.
    """

    def __init__(self, stores: Stores, seed: int) -> None:
        self._stores = stores
        self._chance = random.Random(seed)
        self._kinds = dict(PROCESS_FAULTS)
        if stores.namespaces is not None:
            self._kinds |= PARTITIONS
        self._left: list[str] = []
        self.counts: Counter[str] = Counter()
        self.begun: list[tuple[float, str]] = []

    def next(self) -> str:
        """Inject the next fault and end it; its name."""
        if not self._left:
            self._left = self._chance.sample(sorted(self._kinds), len(self._kinds))
        name = self._left.pop()
        self.begun.append((time.monotonic(), name))
        self.counts[name] += 1
        try:
            self._kinds[name](self._stores, self._chance)
        finally:
            self._stores.recover()
        return name
