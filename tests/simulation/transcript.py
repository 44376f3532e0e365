"""A run as a readable transcript: one line for each thing that happens, with its time and node.

Requests, answers and batches are written short, without the fields that are always the same.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TextIO

from tests.simulation.scheduler import SECOND

if TYPE_CHECKING:
    from tests.simulation.node import SimNode

_SHORTER = (
    (re.compile(r"cluster_id='sim', "), ""),
    (re.compile(r"ReplicaKey\(id=(\d+), directory_id=None\)"), r"\1"),
    (re.compile(r"ReplicaKey\(id=(\d+), directory_id='disk(\d+)of\d+_*'\)"), r"\1-disk\2"),
    (re.compile(r"ReplicaKey\(id=(\d+), directory_id='(\w+?)_*'\)"), r"\1-\2"),
    (re.compile(r"disk(\d+)of\d+_+"), r"disk\1"),
    (re.compile(r"Endpoint\(name='CONTROLLER', host='(\w+)', port=(\d+)\)"), r"\1:\2"),
    (re.compile(r"CurrentLeader\(epoch=(\d+), id=(\w+), endpoints=\([^)]*\)\)"), r"\2@\1"),
    (re.compile(r"OffsetAndEpoch\(offset=(\d+), epoch=(\d+)\)"), r"\1@\2"),
    (re.compile(r"<ErrorCode\.(\w+): -?\d+>"), r"\1"),
    (re.compile(r", kraft_version=VersionRange\(min=0, max=1\)"), ""),
    (re.compile(r"Voter\(key=([\w-]+), endpoints=\(([\w:]+),\)\)"), r"\1 at \2"),
    (re.compile(r"Batch\(base_offset=(\d+), last_offset=(\d+), epoch=(\d+), "), r"[\1..\2 @\3 "),
    (re.compile(r"control=\(\), data=\(([\d, ]+)\)\)"), r"\1]"),
    (re.compile(r", data=None\)"), "]"),
    (re.compile(r"error=NONE, "), ""),
    (re.compile(r", message=''"), ""),
    (re.compile(r", (diverging|snapshot|records_from)=None"), ""),
    (re.compile(r", max_(wait_ms|bytes)=\d+"), ""),
    (re.compile(r", log_start_offset=0"), ""),
    (re.compile(r", endpoints=\([\w:]+,\)"), ""),
    (re.compile(r", read_round=0"), ""),
    (re.compile(r", batches=\(\)"), ""),
    (re.compile(r", pre_vote=False"), ""),
)


class Transcript:
    """Writes lines; `Cluster` gives it the time."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last = ""

    def __call__(self, time_us: int, node: SimNode | None, text: str) -> None:
        for pattern, short in _SHORTER:
            text = pattern.sub(short, text)
        who = f"n{node.id}" if node is not None else ""
        now = f"{time_us / SECOND:.6f}"
        shown = now if now != self._last else ""
        self._last = now
        self._out.write(f"{shown:>11} {who:3} {text}\n")
