"""A linearizability checker for a replicated log: all client observations must fit one history.

`HistoryChecker` records client operations and their responses in real-time order. Call `begin`
before a request is sent, and `acknowledged` after its response has arrived. The checker owns these
rules, named in `Rule`:

- one offset holds one value, and one value is at one offset, in every response (one history);
- an acknowledged append is in the final log, at its offset; no value is in the log twice; every
  value in the log was appended by a client, and its append was not refused;
- an append that began after another was acknowledged has the larger offset (real-time order);
- a read returns every record of its range and no other (a prefix of the history);
- a linearizable read ends beyond everything that was acknowledged or read before it began.

An append with an unknown outcome may or may not be in the log. Values are unique and hashable.
Offsets count records; offsets without a client's record (control records) are never reported.

The rules are those of linearizability (Herlihy and Wing) for a log: every acknowledgement carries
its offset, so the order of the operations is known and needs no search.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

ValueT = TypeVar("ValueT", bound=Hashable)

_NONE_YET = -1


class Rule(StrEnum):
    """The rules that a history can violate."""

    ONE_HISTORY = "one_history"
    """One offset holds one value."""
    NOTHING_LOST = "nothing_lost"
    """What was acknowledged stays."""
    NOTHING_DOUBLED = "nothing_doubled"
    """A value is in the log once."""
    NOTHING_INVENTED = "nothing_invented"
    """Only what a client appended is in the log."""
    REFUSED_IS_ABSENT = "refused_is_absent"
    """A refused append is not in the log."""
    REAL_TIME_ORDER = "real_time_order"
    """An append that begins after an acknowledgement gets a larger offset."""
    ASCENDING_OFFSETS = "ascending_offsets"
    """The offsets of the log ascend."""
    READ_IS_PREFIX = "read_is_prefix"
    """A read shows every record of its range and no other."""
    READ_IS_LINEARIZABLE = "read_is_linearizable"
    """A read ends beyond what was acknowledged or read before it began."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that the history violates, and the details."""

    rule: Rule
    text: str

    def __str__(self) -> str:
        return f"{self.rule.name}: {self.text}"


@dataclass(frozen=True, slots=True)
class ReadToken:
    """A read in progress. `floor`: the smallest end offset allowed for a linearizable read."""

    number: int
    floor: int
    linearizable: bool


@dataclass(slots=True)
class _Append:
    """One append. `floor`: the largest offset acknowledged before it began."""

    floor: int
    offset: int = _NONE_YET
    refused: bool = False


@dataclass(frozen=True, slots=True)
class _Read:
    number: int
    from_offset: int
    end_offset: int
    count: int


class HistoryChecker(Generic[ValueT]):
    """Records a history and checks it, both while it grows and at its end.

    Appends: `begin(value)`, then at most one of `acknowledged(value, offset)`, `refused(value)`
    (certainly not appended) and `unknown(value)`. Reads: `token = begin_read()`, then
    `read(token, end_offset, records)` unless the read failed. `violations` holds the violations
    found so far; `verify(committed)` returns them together with those found in the final log.
    """

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._appends: dict[ValueT, _Append] = {}
        self._canonical: dict[int, ValueT] = {}
        self._reads: list[_Read] = []
        self._reads_begun = 0
        self._acknowledged_max = _NONE_YET
        self.acknowledged_count = 0
        self._read_end_max = 0

    @property
    def begun_count(self) -> int:
        return len(self._appends)

    @property
    def reads_count(self) -> int:
        return len(self._reads)

    # --- appends ----------------------------------------------------------------------------------

    def begin(self, value: ValueT) -> None:
        """Record that a client is about to append `value`. ValueError if it was appended before."""
        if value in self._appends:
            raise ValueError(f"the append of {value!r} has already begun: values are unique")
        self._appends[value] = _Append(self._acknowledged_max)

    def acknowledged(self, value: ValueT, offset: int) -> None:
        """Record the response that `value` is committed at `offset`."""
        append = self._known(value)
        append.offset = offset
        self.acknowledged_count += 1
        self._acknowledged_max = max(self._acknowledged_max, offset)
        if offset <= append.floor:
            self.violations.append(_out_of_order(value, append, offset))
        self._see(offset, value, "an acknowledgement")

    def refused(self, value: ValueT) -> None:
        """Record the response that `value` was certainly not appended."""
        self._known(value).refused = True

    def unknown(self, value: ValueT) -> None:
        """Record that the outcome will never be known: both outcomes are allowed."""
        self._known(value)

    def _known(self, value: ValueT) -> _Append:
        append = self._appends.get(value)
        if append is None:
            raise ValueError(f"the append of {value!r} has not begun")
        if append.offset != _NONE_YET or append.refused:
            raise ValueError(f"the append of {value!r} has already ended")
        return append

    # --- reads ------------------------------------------------------------------------------------

    def begin_read(self, *, linearizable: bool = True) -> ReadToken:
        """Record that a client is about to read."""
        self._reads_begun += 1
        floor = max(self._acknowledged_max + 1, self._read_end_max)
        return ReadToken(self._reads_begun, floor, linearizable)

    def read(
        self,
        token: ReadToken,
        end_offset: int,
        records: Sequence[tuple[int, ValueT]],
        *,
        from_offset: int = 0,
    ) -> None:
        """Record the response of a read of the range [from_offset, end_offset).

        records: exactly the records that the read returned, as (offset, value).
        """
        if token.linearizable:
            if end_offset < token.floor:
                self._violated(
                    Rule.READ_IS_LINEARIZABLE,
                    f"read {token.number} ends at {end_offset}, but {token.floor} was reached "
                    "before it began",
                )
            self._read_end_max = max(self._read_end_max, end_offset)
        for offset, value in records:
            if not from_offset <= offset < end_offset:
                self._violated(
                    Rule.READ_IS_PREFIX,
                    f"read {token.number} of [{from_offset}, {end_offset}) shows {value!r} at "
                    f"{offset}",
                )
            self._see(offset, value, f"read {token.number}")
        self._reads.append(_Read(token.number, from_offset, end_offset, len(records)))

    # --- verification -----------------------------------------------------------------------------

    def verify(
        self, committed: Iterable[tuple[int, ValueT]], *, from_offset: int = 0
    ) -> list[Violation]:
        """Check the history against the final log and return every violation.

        committed: the clients' committed records as (offset, value), in log order, from
        `from_offset` on.
        """
        found: list[Violation] = list(self.violations)
        log = list(committed)
        at: dict[ValueT, int] = {}
        last = _NONE_YET
        for offset, value in log:
            if offset <= last:
                text = f"{value!r} at {offset} follows a record at {last}"
                found.append(Violation(Rule.ASCENDING_OFFSETS, text))
            last = offset
            if value in at:
                text = f"{value!r} is at {at[value]} and at {offset}"
                found.append(Violation(Rule.NOTHING_DOUBLED, text))
            at[value] = offset
            found += self._check_committed(offset, value)
        for value, append in self._appends.items():
            if append.offset >= from_offset and append.offset != at.get(value):
                where = f"is at {at[value]}" if value in at else "is missing"
                text = f"{value!r}, acknowledged at {append.offset}, {where}"
                found.append(Violation(Rule.NOTHING_LOST, text))
        found += self._check_reads([offset for offset, _ in log], from_offset)
        return found

    def _check_committed(self, offset: int, value: ValueT) -> Iterable[Violation]:
        append = self._appends.get(value)
        if append is None:
            yield Violation(
                Rule.NOTHING_INVENTED, f"no client appended {value!r}, found at {offset}"
            )
        elif append.refused:
            yield Violation(
                Rule.REFUSED_IS_ABSENT, f"{value!r}, whose append was refused, is at {offset}"
            )
        elif offset <= append.floor:
            yield _out_of_order(value, append, offset)
        other = self._canonical.get(offset, value)
        if other != value:
            yield Violation(
                Rule.ONE_HISTORY,
                f"offset {offset} holds {value!r}, but {other!r} was reported earlier",
            )

    def _check_reads(self, offsets: list[int], from_offset: int) -> Iterable[Violation]:
        """Check that each read returned all records; `read` already checked their values."""
        for read in self._reads:
            if read.from_offset < from_offset:
                continue
            first = bisect_left(offsets, read.from_offset)
            count = bisect_left(offsets, read.end_offset) - first
            if count != read.count:
                yield Violation(
                    Rule.READ_IS_PREFIX,
                    f"read {read.number} shows {read.count} records of [{read.from_offset}, "
                    f"{read.end_offset}), the log has {count}",
                )

    # --- shared checks ----------------------------------------------------------------------------

    def _see(self, offset: int, value: ValueT, source: str) -> None:
        known = self._canonical.setdefault(offset, value)
        if known != value:
            self._violated(
                Rule.ONE_HISTORY,
                f"{source} shows {value!r} at {offset}, but {known!r} was reported earlier",
            )

    def _violated(self, rule: Rule, text: str) -> None:
        self.violations.append(Violation(rule, text))


def _out_of_order(value: object, append: _Append, offset: int) -> Violation:
    return Violation(
        Rule.REAL_TIME_ORDER,
        f"the append of {value!r} at {offset} began after {append.floor} was acknowledged",
    )
