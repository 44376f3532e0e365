"""The spans of sampled appends on one replica, from the append to the commit.

1. The leader serves an append (`quorate.leader.append`, a child of the client's span). Once it has
   its offsets: `quorate.leader.fsync`, until they are durable here, and `quorate.commit`, until the
   high watermark passes them.
2. A Fetch that is answered with records of such an append carries (offset, traceparent) of it.
3. A follower that appends those records spans `quorate.follower.append`, until they are durable
   there: its next Fetch acknowledges them.

All is bounded by `SPANS_MAX`; what does not fit is not traced further. Appends that are not sampled
leave no trace here either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quorate.telemetry.tracing import Tracing, fail, trace_parent

if TYPE_CHECKING:
    from opentelemetry.trace import Span

SPANS_MAX = 1024

CarriedTrace = tuple[int, str]
"""The offset of an append's first record, and its traceparent."""


@dataclass(slots=True)
class _Append:
    """One append that is traced. The leader's: `parent` is set, `commit` until it is committed."""

    base_offset: int
    end_offset: int
    carried: str
    parent: Span | None = None
    commit: Span | None = None


class WriteTraces:
    """Owned by the driver, which calls it where the life of an append goes on."""

    def __init__(self, tracing: Tracing, node_id: int) -> None:
        self._tracing = tracing
        self._node_id = node_id
        self._appends: deque[_Append] = deque(maxlen=SPANS_MAX)
        self._syncs: deque[tuple[int, Span]] = deque()
        self._fetched: dict[int, str] = {}

    # --- the leader -------------------------------------------------------------------------------

    @contextmanager
    def serving(self, name: str, **attributes: str | int) -> Iterator[Span]:
        """A request that this node answers."""
        with self._tracing.serving(name, {"quorate.node_id": self._node_id, **attributes}) as span:
            yield span

    def appended(self, parent: Span, base_offset: int, end_offset: int, epoch: int) -> None:
        """A served append has its offsets."""
        if not parent.is_recording():
            return
        attributes = {"quorate.base_offset": base_offset, "quorate.epoch": epoch}
        parent.set_attributes(attributes)
        commit = self._tracing.within("quorate.commit", parent, self._about(base_offset))
        self._appends.append(_Append(base_offset, end_offset, trace_parent(parent), parent, commit))

    def carried(self, from_offset: int) -> tuple[CarriedTrace, ...]:
        """What goes with the records from an offset on."""
        if not self._appends or self._appends[-1].base_offset < from_offset:
            return ()
        return tuple(
            (each.base_offset, each.carried)
            for each in self._appends
            if each.base_offset >= from_offset
        )

    def committed(self, high_watermark: int) -> None:
        for append in self._appends:
            if append.commit is not None and append.end_offset <= high_watermark:
                append.commit.end()
                append.commit = None

    def leadership_lost(self) -> None:
        """Whether what is left will commit is for the next leader to decide."""
        for append in self._appends:
            if append.commit is not None:
                fail(append.commit, "the leader lost leadership before it was committed")
                append.commit.end()
        self._appends.clear()

    # --- the follower -----------------------------------------------------------------------------

    def fetched(self, traces: Sequence[CarriedTrace]) -> None:
        """A leader's answer brought these; `logged` follows for what it appends."""
        for offset, parent in traces:
            if len(self._fetched) < SPANS_MAX:
                self._fetched[offset] = parent

    # --- both -------------------------------------------------------------------------------------

    def logged(self, ticket: int, base_offset: int, end_offset: int) -> None:
        """Records [base_offset, end_offset) wait in the log's queue for their sync."""
        for append in reversed(self._appends):
            if append.base_offset < base_offset:
                break
            if append.parent is not None and append.end_offset <= end_offset:
                about = self._about(append.base_offset)
                span = self._tracing.within("quorate.leader.fsync", append.parent, about)
                self._syncing(ticket, span)
                append.parent = None
        if not self._fetched:
            return
        for offset in [each for each in self._fetched if each < end_offset]:
            parent = self._fetched.pop(offset)
            if offset >= base_offset:
                name = "quorate.follower.append"
                self._syncing(ticket, self._tracing.following(name, parent, self._about(offset)))

    def durable(self, ticket: int) -> None:
        syncs = self._syncs
        while syncs and syncs[0][0] <= ticket:
            syncs.popleft()[1].end()

    def _syncing(self, ticket: int, span: Span) -> None:
        if len(self._syncs) < SPANS_MAX:
            self._syncs.append((ticket, span))

    def _about(self, base_offset: int) -> dict[str, str | int]:
        return {"quorate.node_id": self._node_id, "quorate.base_offset": base_offset}
