"""The spans of sampled appends on one replica, from the append to the commit.

1. The leader serves an append in `quorate.leader.append`, a child of the client's span. Once the
   append has its offsets, `quorate.leader.fsync` lasts until they are durable on the leader, and
   `quorate.commit` until the high watermark passes them.
2. A Fetch response with records of such an append contains its (offset, traceparent).
3. A follower that appends those records starts `quorate.follower.append`, which lasts until they
   are durable on the follower. Its next Fetch acknowledges them.

At most `SPANS_MAX` appends are traced at a time; others are dropped. Appends that are not sampled
create no spans.
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
class _TracedAppend:
    """One traced append on the leader."""

    base_offset: int
    end_offset: int
    carried: str
    """The traceparent of the append."""
    parent: Span | None = None
    """The span of the request, None once the fsync span has started."""
    commit: Span | None = None
    """The span that ends at the commit, None after it."""


class WriteTraces:
    """The spans of one node. The driver owns it, and reports each step of an append."""

    def __init__(self, tracing: Tracing, node_id: int) -> None:
        self._tracing = tracing
        self._node_id = node_id
        self._appends: deque[_TracedAppend] = deque(maxlen=SPANS_MAX)
        self._syncs: deque[tuple[int, Span]] = deque()
        self._fetched: dict[int, str] = {}

    # --- the leader -------------------------------------------------------------------------------

    @contextmanager
    def serving(self, name: str, **attributes: str | int) -> Iterator[Span]:
        """A span around a request that this node serves."""
        with self._tracing.serving(name, {"quorate.node_id": self._node_id, **attributes}) as span:
            yield span

    def appended(self, parent: Span, base_offset: int, end_offset: int, epoch: int) -> None:
        """Start the commit span of an append that has its offsets."""
        if not parent.is_recording():
            return
        attributes = {"quorate.base_offset": base_offset, "quorate.epoch": epoch}
        parent.set_attributes(attributes)
        commit = self._tracing.within("quorate.commit", parent, self._about(base_offset))
        self._appends.append(
            _TracedAppend(base_offset, end_offset, trace_parent(parent), parent, commit)
        )

    def carried(self, from_offset: int) -> tuple[CarriedTrace, ...]:
        """The traces to send with the records from an offset on."""
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
        """Fail the remaining commit spans: the next leader decides whether the appends commit."""
        for append in self._appends:
            if append.commit is not None:
                fail(append.commit, "the leader lost leadership before it was committed")
                append.commit.end()
        self._appends.clear()

    # --- the follower -----------------------------------------------------------------------------

    def fetched(self, traces: Sequence[CarriedTrace]) -> None:
        """Note the traces of a Fetch response; `logged` follows for the records that it appends."""
        for offset, parent in traces:
            if len(self._fetched) < SPANS_MAX:
                self._fetched[offset] = parent

    # --- both -------------------------------------------------------------------------------------

    def logged(self, ticket: int, base_offset: int, end_offset: int) -> None:
        """Start the spans of the records [base_offset, end_offset), which wait for their sync."""
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
