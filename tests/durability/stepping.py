"""The log's writer without its thread: it works when the test says so, by a clock of the test."""

from __future__ import annotations

from quorate.log import metadata_log
from quorate.log.metadata_log import MetadataLog
from quorate.log.writer import LogWriter, Operation, Reset


class Clock:
    now_s = 1000.0


class SteppedWriter(LogWriter):
    """Executes what is queued when `step` is called; a received checkpoint at once."""

    def _start(self) -> None:
        """No thread."""

    def _join(self) -> None:
        self.step()

    def _now_s(self) -> float:
        return Clock.now_s

    def submit(self, operation: Operation) -> None:
        super().submit(operation)
        if isinstance(operation, Reset):
            self.step()

    def step(self) -> None:
        """Execute all that is queued, in groups as the thread does, and what time demands."""
        while self._queue and self.failure is None and self._turn(self._take_group):
            pass
        if self.failure is None and self._point_wait_s() == 0:
            self._turn(self._take_idle)

    def _take_idle(self) -> list[Operation]:
        self._sync_recovery_point()
        return []


def use() -> None:
    """Let every log that is opened from now on have a stepped writer."""
    metadata_log.LogWriter = SteppedWriter


def writer_of(log: MetadataLog) -> SteppedWriter:
    writer = log._writer
    assert isinstance(writer, SteppedWriter)
    return writer
