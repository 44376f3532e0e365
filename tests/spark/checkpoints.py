"""Judging checkpoints without Spark."""

from __future__ import annotations

from collections.abc import Sequence

from quorate.spark.auditing.rules import Finding
from quorate.spark.auditing.snapshot_audit import findings_at, snapshot_ends
from quorate.spark.files import LogReplica


def snapshot_findings(replicas: Sequence[LogReplica]) -> list[Finding]:
    """What the audit finds wrong with the checkpoints of some replicas."""
    ends = snapshot_ends(replicas)
    return [found for end in ends for found in findings_at(end, replicas, set())]
