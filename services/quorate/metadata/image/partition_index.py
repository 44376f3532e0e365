"""The active controller's index of partitions by ISR member, eligible replica and leader.

With it, the cost of a broker's state change depends on that broker's partitions, not on the
cluster's. A new active controller must index all partitions at once. To make that fast, the sets
are stored in pages: one integer is the bitmap of sixty-four partition numbers of a topic.

Source: Kafka's BrokersToIsrs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from quorate.metadata.image.partitions import NO_LEADER, Partition, PartitionKey, is_reassigning

_PAGE_BITS = 6
_IN_PAGE = (1 << _PAGE_BITS) - 1
_BITS = tuple(1 << number for number in range(1 << _PAGE_BITS))
_Page = tuple[str, int]
"""(topic id, page number)"""


@dataclass(slots=True, repr=False)
class PartitionSet:
    """A set of partitions whose order depends only on past additions and removals.

    Pages are in insertion order; partitions within a page are sorted by number.
    """

    pages: dict[_Page, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.pages)

    def __len__(self) -> int:
        return sum(bits.bit_count() for bits in self.pages.values())

    def __contains__(self, key: PartitionKey) -> bool:
        topic_id, number = key
        bits = self.pages.get((topic_id, number >> _PAGE_BITS), 0)
        return bool(bits >> (number & _IN_PAGE) & 1)

    def __iter__(self) -> Iterator[PartitionKey]:
        """Iterate over the keys. The set must not change meanwhile."""
        for (topic_id, page), bits in self.pages.items():
            first = page << _PAGE_BITS
            left = bits
            while left:
                yield topic_id, first + (left & -left).bit_length() - 1
                left &= left - 1

    def add(self, key: PartitionKey) -> None:
        topic_id, number = key
        page = (topic_id, number >> _PAGE_BITS)
        self.pages[page] = self.pages.get(page, 0) | _BITS[number & _IN_PAGE]

    def discard(self, key: PartitionKey) -> None:
        if key in self:
            self.remove(key)

    def remove(self, key: PartitionKey) -> None:
        """Remove a key, which must be in the set."""
        assert key in self, f"{key} is not in the index"
        topic_id, number = key
        page = (topic_id, number >> _PAGE_BITS)
        bits = self.pages[page] ^ _BITS[number & _IN_PAGE]
        if bits:
            self.pages[page] = bits
        else:
            del self.pages[page]


_Sets = dict[int, PartitionSet]


class PartitionIndex:
    """The partitions of each broker, and those without a leader or without their preferred one.

    in_isr, in_elr: sets by broker id, never empty. led: the number of partitions that each broker
    leads, never 0. leaderless: the partitions without a leader; waiting_for: the same by broker id
    of their replicas. reassigning: the partitions that are being reassigned. off_preferred: those
    that the preferred leader does not lead, leaderless ones included.
    """

    def __init__(self, topics: Iterable[tuple[str, Mapping[int, Partition]]] = ()) -> None:
        """Index `topics`: pairs of a topic id and the topic's partitions by number."""
        self.in_isr: _Sets = {}
        self.in_elr: _Sets = {}
        self.led: Counter[int] = Counter()
        self.leaderless = PartitionSet()
        self.waiting_for: _Sets = {}
        self.reassigning = PartitionSet()
        self.off_preferred = PartitionSet()
        for topic_id, partitions in topics:
            self._add_topic(topic_id, partitions)

    def _add_topic(self, topic_id: str, partitions: Mapping[int, Partition]) -> None:
        """Add a topic page by page. Partitions of a page with equal ISRs are added at once."""
        led = self.led
        page = 0
        isrs: defaultdict[tuple[int, ...], int] = defaultdict(int)
        off_preferred = 0
        for number, partition in partitions.items():
            if number >> _PAGE_BITS != page:
                self._add_page((topic_id, page), isrs, off_preferred)
                page, off_preferred = number >> _PAGE_BITS, 0
            bit = _BITS[number & _IN_PAGE]
            isrs[partition.isr] |= bit
            leader = partition.leader
            if leader != partition.replicas[0]:
                off_preferred |= bit
            if leader == NO_LEADER:
                self.leaderless.add((topic_id, number))
                _add(self.waiting_for, partition.replicas, (topic_id, number))
            else:
                led[leader] += 1
            if is_reassigning(partition):
                self.reassigning.add((topic_id, number))
            if partition.eligible_leader_replicas:
                _add(self.in_elr, partition.eligible_leader_replicas, (topic_id, number))
        self._add_page((topic_id, page), isrs, off_preferred)

    def _add_page(self, page: _Page, isrs: dict[tuple[int, ...], int], off_preferred: int) -> None:
        """Add the bits gathered for a page, and clear `isrs`."""
        in_isr = self.in_isr
        for isr, bits in isrs.items():
            for broker in isr:
                found = in_isr.get(broker)
                pages = _set_of(in_isr, broker).pages if found is None else found.pages
                pages[page] = pages.get(page, 0) | bits
        isrs.clear()
        if off_preferred:
            pages = self.off_preferred.pages
            pages[page] = pages.get(page, 0) | off_preferred

    def replace(self, old: Partition | None, new: Partition | None) -> None:
        """Update the index: `old` is None for a new partition, `new` for a removed one."""
        before = () if old is None else old.isr
        after = () if new is None else new.isr
        if old is not None:
            key = (old.topic_id, old.partition_id)
            if after != before:
                _remove(self.in_isr, [each for each in before if each not in after], key)
            if new is None or new.leader != old.leader or new.replicas != old.replicas:
                self._leads(old, key, -1)
            _remove(self.in_elr, old.eligible_leader_replicas or (), key)
            self.off_preferred.discard(key)
            self.reassigning.discard(key)
        if new is not None:
            key = (new.topic_id, new.partition_id)
            if after != before:
                _add(self.in_isr, [each for each in after if each not in before], key)
            if old is None or new.leader != old.leader or new.replicas != old.replicas:
                self._leads(new, key, 1)
            if new.eligible_leader_replicas:
                _add(self.in_elr, new.eligible_leader_replicas, key)
            if new.leader != new.replicas[0]:
                self.off_preferred.add(key)
            if is_reassigning(new):
                self.reassigning.add(key)

    def _leads(self, partition: Partition, key: PartitionKey, change: int) -> None:
        """Count one partition more or less for its leader, or update the leaderless ones."""
        leader = partition.leader
        if leader != NO_LEADER:
            self.led[leader] += change
            assert self.led[leader] >= 0, f"broker {leader} led more than the index says"
            if not self.led[leader]:
                del self.led[leader]
        elif change > 0:
            self.leaderless.add(key)
            _add(self.waiting_for, partition.replicas, key)
        else:
            self.leaderless.remove(key)
            _remove(self.waiting_for, partition.replicas, key)

    def leads_any(self, broker_id: int) -> bool:
        return broker_id in self.led


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
