"""The end of the log in memory: what followers fetch, and what is not in a file yet.

A batch is in the cache from its append on, and leaves it, oldest first, once it is written and the
cache is over its limit. So whatever is before the cache's first offset can be read from the files.
Owned by the thread that appends.
"""

from __future__ import annotations

from bisect import bisect_right


class TailCache:
    """Consecutive batches. Each carries the number of the operation that writes it."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.size = 0
        self._bases: list[int] = []
        self._ends: list[int] = []
        self._streams: list[int] = []
        self._operations: list[int] = []
        self._batches: list[memoryview] = []

    @property
    def first_offset(self) -> int | None:
        """The first cached offset; earlier batches are in files only. None if nothing is cached."""
        return self._bases[0] if self._bases else None

    def covers(self, offset: int) -> bool:
        return bool(self._bases) and offset >= self._bases[0]

    def add(
        self, base_offset: int, end_offset: int, stream: int, operation: int, batch: memoryview
    ) -> None:
        self._bases.append(base_offset)
        self._ends.append(end_offset)
        self._streams.append(stream)
        self._operations.append(operation)
        self._batches.append(batch)
        self.size += len(batch)

    def evict(self, written: int) -> None:
        """Shrink to the limit, as far as operations up to `written` are in the files."""
        count = 0
        size = self.size
        while (
            size > self.bytes_max
            and count < len(self._operations)
            and self._operations[count] <= written
        ):
            size -= len(self._batches[count])
            count += 1
        if count:
            self._drop(0, count)

    def truncate(self, end_offset: int) -> None:
        self._drop(self._at_or_after(end_offset), len(self._bases))

    def clear(self) -> None:
        self._drop(0, len(self._bases))

    def _at_or_after(self, offset: int) -> int:
        return bisect_right(self._bases, offset - 1)

    def _drop(self, first: int, last: int) -> None:
        self.size -= sum(map(len, self._batches[first:last]))
        columns: tuple[list[int] | list[memoryview], ...] = (
            self._bases,
            self._ends,
            self._streams,
            self._operations,
            self._batches,
        )
        for column in columns:
            del column[first:last]

    def read(self, offset: int, max_bytes: int, end_offset: int) -> list[memoryview]:
        """Whole batches from the one that holds `offset`: at least one, none beyond end_offset."""
        first = bisect_right(self._bases, offset) - 1
        assert first >= 0, f"offset {offset} is before the cache"
        # Positions and ends rise with the batches: what fits is found without a walk.
        limit = self._streams[first] + max_bytes
        if self._streams[-1] + len(self._batches[-1]) <= limit:
            last = len(self._batches)
        else:
            last = max(bisect_right(self._streams, limit, first) - 1, first + 1)
        last = min(last, bisect_right(self._ends, end_offset, first))
        return self._batches[first:last]

    def stream_position(self, offset: int) -> int:
        """The stream position of the batch that contains `offset`."""
        return self._streams[bisect_right(self._bases, offset) - 1]
