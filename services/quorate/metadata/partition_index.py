"""The index of partitions by what brokers have to do with them, kept by the active controller.

So what becomes of one broker costs what that broker has, not what the cluster has. Every change of
leader makes an index of all partitions, at once; so they are kept by the page, sixty-four numbers
of a topic as one integer.

Source: Kafka's BrokersToIsrs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from quorate.metadata.partitions import NO_LEADER, Partition, PartitionKey

_PAGE_BITS = 6
_IN_PAGE = (1 << _PAGE_BITS) - 1
_BITS = tuple(1 << number for number in range(1 << _PAGE_BITS))
_Page = tuple[str, int]
"""(topic id, number of the page)"""


class PartitionSet:
    """Partitions, in an order that depends on nothing but what was added and removed: by the page,
    and by number within one.
    """

    __slots__ = ("_pages",)

    def __init__(self) -> None:
        self._pages: dict[_Page, int] = {}

    def __bool__(self) -> bool:
        return bool(self._pages)

    def __len__(self) -> int:
        return sum(bits.bit_count() for bits in self._pages.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionSet) and self._pages == other._pages

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, key: PartitionKey) -> bool:
        topic_id, number = key
        bits = self._pages.get((topic_id, number >> _PAGE_BITS), 0)
        return bool(bits >> (number & _IN_PAGE) & 1)

    def __iter__(self) -> Iterator[PartitionKey]:
        """Not while the set changes."""
        for (topic_id, page), bits in self._pages.items():
            first = page << _PAGE_BITS
            left = bits
            while left:
                yield topic_id, first + (left & -left).bit_length() - 1
                left &= left - 1

    def add(self, key: PartitionKey) -> None:
        topic_id, number = key
        self.add_page((topic_id, number >> _PAGE_BITS), _BITS[number & _IN_PAGE])

    def add_page(self, page: _Page, bits: int) -> None:
        self._pages[page] = self._pages.get(page, 0) | bits

    def discard(self, key: PartitionKey) -> None:
        if key in self:
            self.remove(key)

    def remove(self, key: PartitionKey) -> None:
        """It must be there."""
        assert key in self, f"{key} is not in the index"
        topic_id, number = key
        page = (topic_id, number >> _PAGE_BITS)
        bits = self._pages[page] ^ _BITS[number & _IN_PAGE]
        if bits:
            self._pages[page] = bits
        else:
            del self._pages[page]


_Sets = dict[int, PartitionSet]


class PartitionIndex:
    """in_isr, in_elr, led_by: by broker, none of them empty; NO_LEADER leads what nobody leads.
    off_preferred: what another broker than the preferred one leads, or nobody.
    """

    def __init__(self, topics: Iterable[tuple[str, Mapping[int, Partition]]] = ()) -> None:
        """topics: ids, and partitions by number."""
        self.in_isr: _Sets = {}
        self.in_elr: _Sets = {}
        self.led_by: _Sets = {}
        self.off_preferred = PartitionSet()
        for topic_id, partitions in topics:
            self._add_topic(topic_id, partitions)

    def _add_topic(self, topic_id: str, partitions: Mapping[int, Partition]) -> None:
        """Page by page: equal ISRs within one are added at once."""
        page = 0
        isrs: defaultdict[tuple[int, ...], int] = defaultdict(int)
        leaders: defaultdict[int, int] = defaultdict(int)
        off_preferred = 0
        for number, partition in partitions.items():
            if number >> _PAGE_BITS != page:
                self._add_page((topic_id, page), isrs, leaders, off_preferred)
                page, off_preferred = number >> _PAGE_BITS, 0
            bit = _BITS[number & _IN_PAGE]
            leader = partition.leader
            isrs[partition.isr] |= bit
            leaders[leader] |= bit
            if leader != partition.replicas[0]:
                off_preferred |= bit
            if partition.eligible_leader_replicas:
                _add(self.in_elr, partition.eligible_leader_replicas, (topic_id, number))
        self._add_page((topic_id, page), isrs, leaders, off_preferred)

    def _add_page(
        self,
        page: _Page,
        isrs: dict[tuple[int, ...], int],
        leaders: dict[int, int],
        off_preferred: int,
    ) -> None:
        """What was gathered of a page, which is then forgotten."""
        for isr, bits in isrs.items():
            for broker in isr:
                _set_of(self.in_isr, broker).add_page(page, bits)
        for leader, bits in leaders.items():
            _set_of(self.led_by, leader).add_page(page, bits)
        if off_preferred:
            self.off_preferred.add_page(page, off_preferred)
        isrs.clear()
        leaders.clear()

    def replace(self, old: Partition | None, new: Partition | None) -> None:
        """A partition changed from `old` (None: it is new) to `new` (None: it is gone)."""
        if old is not None:
            key = (old.topic_id, old.partition_id)
            if new is None or new.isr != old.isr:
                _remove(self.in_isr, old.isr, key)
            if new is None or new.leader != old.leader:
                _remove(self.led_by, (old.leader,), key)
            _remove(self.in_elr, old.eligible_leader_replicas or (), key)
            self.off_preferred.discard(key)
        if new is not None:
            key = (new.topic_id, new.partition_id)
            if old is None or new.isr != old.isr:
                _add(self.in_isr, new.isr, key)
            if old is None or new.leader != old.leader:
                _add(self.led_by, (new.leader,), key)
            if new.eligible_leader_replicas:
                _add(self.in_elr, new.eligible_leader_replicas, key)
            if new.leader != new.replicas[0]:
                self.off_preferred.add(key)

    def leaderless(self) -> Iterator[PartitionKey]:
        return iter(self.led_by.get(NO_LEADER, ()))

    def leads_any(self, broker_id: int) -> bool:
        return broker_id in self.led_by


def _set_of(sets: _Sets, broker: int) -> PartitionSet:
    found = sets.get(broker)
    if found is None:
        found = sets[broker] = PartitionSet()
    return found


def _add(sets: _Sets, brokers: Iterable[int], key: PartitionKey) -> None:
    for broker in brokers:
        _set_of(sets, broker).add(key)


def _remove(sets: _Sets, brokers: Iterable[int], key: PartitionKey) -> None:
    for broker in brokers:
        found = sets[broker]
        found.remove(key)
        if not found:
            del sets[broker]
