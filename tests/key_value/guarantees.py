"""The page that compares what Quorate and PySyncObj guarantee, from rows and from measured runs.

Each row says how it was determined: by runs of this harness, by other tests of this repository, or
from the source of PySyncObj 0.3.17 (the file and the line in its wheel).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).resolve().parents[2] / "examples/GUARANTEES.md"
MEASURED = Path(__file__).with_name("measured")
RUNS = ("quorate", "pysyncobj", "pysyncobj-local")
"""Files of MEASURED, each what `--out` wrote, in the order of the columns."""


class Row(NamedTuple):
    """One guarantee, what each of the two does, and how that was determined."""

    guarantee: str
    quorate: str
    pysyncobj: str
    determined: str


ROWS = (
    Row(
        "Linearizable reads",
        "`read_index`, which adds nothing to the log",
        "No call for it. A read of the object is local and may be stale; a read that is itself a "
        "replicated command is linearizable, and adds an entry to the log",
        "Measured, both kinds of PySyncObj's reads. PySyncObj: `_isLeader` and `_getLeader` warn "
        "that there may be several leaders (syncobj.py:1166, 1177)",
    ),
    Row(
        "Durability against `kill -9`, of all nodes at once too",
        "Yes",
        "Yes with `journalFile`, no without it (the default)",
        "Measured, with `journalFile`. Default: config.py:119",
    ),
    Row(
        "Durability against power failure",
        "`fdatasync` before a node acknowledges a record or votes",
        "No: the journal is a memory map that is never synced while the node runs; term, vote and "
        "dumps are not synced either, and there is no setting for it",
        "Quorate: `python -m tests.durability power`. PySyncObj: journal.py:139-145 and 159-164, "
        "serializer.py:62-101; no `fsync` in the package",
    ),
    Row(
        "The same log on every node",
        "Yes",
        "No: while a node receives a dump, its commit index advances over entries of its own log "
        "that were not compared with the leader's. A leader that was cut off applies its own "
        "commands that way, and then replaces its state by the dump",
        "Measured: what each node applied. PySyncObj: the cause, as we read it, "
        "is syncobj.py:1021-1033",
    ),
    Row(
        "Retries that take effect once",
        "The client repeats an append within its producer session until it is answered, and the "
        "log has it once (application.version 1, as here); without, it repeats only what was "
        "certainly not appended",
        "None: a command has no identity, so a repeated one is applied twice",
        "Measured: the values in the log; and tests/kill/test_exactly_once.py. PySyncObj: the "
        "arguments of `_applyCommand` (syncobj.py:492)",
    ),
    Row(
        "Outcome of a write under faults",
        "An error says whether the write may have been executed (`OutcomeUnknownError`) or "
        "certainly was not",
        "`NOT_LEADER`, `DISCARDED` and others: certainly not. `LEADER_CHANGED`: documented as "
        "without commit, but the new leader may commit it. Some commands "
        "get no error at all before the caller's timeout",
        "Measured: which values are in the log. PySyncObj: config.py:3-11, syncobj.py:1246",
    ),
    Row(
        "Membership changes",
        "One at a time, each a record in the log; a directory that was lost counts as another "
        "replica (KIP-853)",
        "`dynamicMembershipChange`, off by default. Meant to be one at a time, but the index of "
        "the pending change is never set, so a second change is accepted before the first commits",
        "Quorate: tests/simulation, tests/scenarios. PySyncObj: syncobj.py:186, 1356-1370; not "
        "measured",
    ),
    Row(
        "Snapshots",
        "Written while the node serves, fetched by nodes that lag, restored at a start. With a "
        "damaged one, a node refuses to start",
        "Written by a forked child, sent to nodes that lag, restored at a start. A damaged one is "
        "logged, and the node continues without it",
        "Measured: restored snapshots. Damage: tests/attacks/test_files.py. PySyncObj: "
        "serializer.py:62-101, syncobj.py:1472-1512",
    ),
    Row(
        "Watch",
        "`client.read(offset, follow=True)`: history, then each commit, resumable, from any node",
        "None for clients. A process can join as a read-only node and gets all commands",
        "Quorate: tests/integration/test_watch.py. PySyncObj: the public methods of `SyncObj`; "
        "transport.py, `_readonlyNodes`",
    ),
    Row(
        "A leader without a majority",
        "Resigns after 1.5 times the fetch timeout (3 s), and serves no linearizable read before",
        "Remains one for `leaderFallbackTimeout` (30 s; 3 s here), and serves local reads",
        "Measured: partitions. PySyncObj: config.py:57, syncobj.py:679",
    ),
    Row(
        "A node that returns from a partition",
        "Pre-vote: it does not depose the leader (KIP-996)",
        "No pre-vote: its higher term deposes the leader",
        "Quorate: tests/scenarios. PySyncObj: syncobj.py:918-923",
    ),
)


INTRODUCTION = """\
# Guarantees: a key-value store on Quorate and on PySyncObj

[key_value_store.py](key_value_store.py), and the same program on PySyncObj 0.3.17,
[pysyncobj_store.py](../tests/key_value/pysyncobj_store.py), which has a journal, dumps, and shorter
timeouts than its defaults. `python -m tests.key_value --guarantees` prints this page.
"""

MEASUREMENT = """
## Measured

`python -m tests.key_value --store NAME --minutes 3 --seed 22`: three processes on one machine and
six clients. Processes are killed, paused and partitioned, one fault at a time. A violation is a
read that is not linearizable, an acknowledged value that is not in the log exactly once, a rejected
value in the log, or an offset at which nodes applied different records. The machine was busy: most
of Quorate's longest time passed before the three killed processes had imported their modules.
"""


def page() -> str:
    """The page, in Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION
    yield from _table(("guarantee", "Quorate", "PySyncObj", "determined by"), ROWS)
    yield MEASUREMENT
    reports = [_report(name) for name in RUNS]
    names = [f"{each['store']}, {each['reads']} reads" for each in reports]
    yield from _table(["", *names], _figures(reports))


def _report(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MEASURED / f"{name}.json").read_text())
    return found


def _figures(reports: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    def row(name: str, *keys: str) -> list[str]:
        return [name, *(" / ".join(str(each[key]) for key in keys) for each in reports)]

    yield row("seconds / seed", "seconds", "seed")
    yield ["faults, of them partitions", *map(_faults, reports)]
    yield row("puts / acknowledged", "puts", "acknowledged")
    yield row("puts rejected", "refused")
    yield row("puts with an unknown outcome / of them in the log", "unknown", "unknown_in_log")
    yield row("gets", "gets")
    gaps = [f"{each['longest_gap_s']} s, {each['longest_gap_fault']}" for each in reports]
    yield ["longest time without an acknowledged put", *gaps]
    yield row("snapshots restored / of them while running", "restored", "restored_running")
    yield row("critical lines in the nodes' logs", "alarms")
    yield ["violations", *(str(len(each["violations"])) for each in reports)]


def _faults(report: dict[str, Any]) -> str:
    counts: dict[str, int] = report["faults"]
    words = ("isolated", "in vain", "receives nothing")
    cuts = sum(count for name, count in counts.items() if name.endswith(words))
    return f"{sum(counts.values())}, {cuts}"


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    names = list(header)
    yield f"| {' | '.join(names)} |"
    yield "|---" * len(names) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
