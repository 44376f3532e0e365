"""Reduces findings to one per cause, the cause first.

A fault violates several rules: where a segment is missing, so are its offsets, each of its batches
is missing in the comparison with other replicas, and the next epoch lacks its LeaderChange.
A finding is a consequence if another one of the same log, of a rule that can cause it (`_CAUSES`),
covers its offsets. Findings about a checkpoint concern only that file. An index is judged only if
its segment is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from quorate.log.segments import LOG_SUFFIX
from quorate.log.snapshots import CHECKPOINT_SUFFIX
from quorate.spark.auditing.rules import AuditRule, Finding

R = AuditRule
_OF_COMPARISON = frozenset({R.LOG_MATCHING, R.DIVERGENCE})
_CAUSES: dict[AuditRule, frozenset[AuditRule]] = {
    R.BYTES: _OF_COMPARISON | {R.GAP, R.EPOCH, R.LOST_TAIL, R.SNAPSHOT},
    R.CHECKSUM: _OF_COMPARISON | {R.EPOCH, R.SNAPSHOT},
    R.DUPLICATE: _OF_COMPARISON | {R.GAP, R.EPOCH},
    R.ORDER: _OF_COMPARISON | {R.GAP, R.EPOCH},
    R.GAP: _OF_COMPARISON | {R.EPOCH},
    R.ONE_LEADER: frozenset({R.LOG_MATCHING}),
    R.VOTERS: frozenset({R.LOG_MATCHING, R.VOTERS}),
    R.CONTROL: frozenset({R.LOG_MATCHING}),
    R.TRANSACTION: frozenset({R.LOG_MATCHING}),
    R.TIMESTAMP: frozenset({R.LOG_MATCHING}),
    R.PRODUCER: frozenset({R.LOG_MATCHING}),
    R.DIVERGENCE: frozenset({R.EPOCH, R.STATE}),
    R.LOG_MATCHING: frozenset({R.EPOCH}),
    R.EPOCH: frozenset({R.EPOCH}),
    R.LOST_TAIL: frozenset({R.LOST_TAIL}),
}
"""What a violation of a rule can cause, by the rule. Causes come before their consequences."""
_RANKS = {rule: rank for rank, rule in enumerate([*_CAUSES, *(r for r in R if r not in _CAUSES)])}


def by_cause(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings without consequences of others, sorted by offset."""
    kept: dict[str, list[Finding]] = {}
    for finding in _joined(sorted(set(findings), key=_rank)):
        of_replica = kept.setdefault(finding.replica, [])
        if not any(_explains(cause, finding) for cause in of_replica):
            of_replica.append(finding)
    return sorted((f for found in kept.values() for f in found), key=lambda f: (f.offset, _rank(f)))


def _rank(finding: Finding) -> tuple[int, int, str, bool, str, int, str]:
    return (
        _RANKS[finding.rule],
        finding.offset,
        finding.replica,
        not finding.file,
        finding.file,
        finding.position,
        finding.text,
    )


def _joined(ordered: Sequence[Finding]) -> Iterator[Finding]:
    """Extend bytes that are no batch to the offsets that are missing there."""
    gaps = {(f.replica, f.offset): f for f in ordered if f.rule is R.GAP}
    for finding in ordered:
        gap = gaps.get((finding.replica, finding.offset))
        if finding.rule is R.BYTES and gap is not None and not _of_checkpoint(finding):
            yield replace(finding, text=f"{finding.text}; {gap.text}", end=gap.end)
        else:
            yield finding


def _of_checkpoint(finding: Finding) -> bool:
    return finding.file.endswith(CHECKPOINT_SUFFIX)


def _explains(cause: Finding, finding: Finding) -> bool:
    """Whether a finding is a consequence of another one, or repeats it."""
    if finding.rule is R.INDEX:
        return Path(cause.file) == Path(finding.file).with_suffix(LOG_SUFFIX)
    if cause.replica != finding.replica or finding.rule not in _CAUSES.get(cause.rule, ()):
        return False
    if _of_checkpoint(cause) or _of_checkpoint(finding):
        return cause.file == finding.file and cause.rule is not finding.rule
    return any(test(cause, finding) for test in _TESTS)


def _covers(cause: Finding, finding: Finding) -> bool:
    end = cause.after
    return cause.offset <= finding.offset <= end and finding.after <= max(end, finding.offset + 1)


def _is_place_before(cause: Finding, finding: Finding) -> bool:
    """Whether a finding compares with the batch that the cause is about, as with a wrong one."""
    is_of_same_log = finding.other in ("", finding.replica)
    if not finding.other_file or finding.other_file != cause.file or not is_of_same_log:
        return False
    # A whole segment that is out of place begins with the batch that was noticed.
    return cause.position in (0, finding.other_position)


_TESTS: tuple[Callable[[Finding, Finding], bool], ...] = (_covers, _is_place_before)
