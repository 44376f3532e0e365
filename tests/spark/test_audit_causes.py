"""One finding per cause: what follows from a fault is not reported besides it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from quorate.spark.auditing.causes import by_cause
from quorate.spark.auditing.rules import AuditRule, Finding

ONE, TWO = "1-a", "2-b"
LOG, CHECKPOINT = "/1/0.log", "/1/9.checkpoint"
LOST = Finding(AuditRule.GAP, 100, ONE, text="offsets 100 to 149 are missing", file=LOG, end=150)
ABSENT = Finding(AuditRule.DIVERGENCE, 100, ONE, TWO, "no batch begins here", end=150)


def found(*findings: Finding) -> list[tuple[AuditRule, int]]:
    return [(one.rule, one.offset) for one in by_cause(findings)]


def test_a_missing_segment_is_one_finding() -> None:
    headless = Finding(AuditRule.EPOCH, 150, ONE, text="no LeaderChange", file=LOG)
    assert by_cause([ABSENT, headless, LOST, LOST]) == [LOST]


def test_missing_offsets_are_a_consequence_of_bytes_that_are_no_batch() -> None:
    zeroed = Finding(AuditRule.BYTES, 100, ONE, text="zeros", file=LOG, position=4096)
    (one,) = by_cause([LOST, ABSENT, zeroed])
    assert (one.rule, one.position, one.end) == (AuditRule.BYTES, 4096, 150)
    assert one.text == "zeros; offsets 100 to 149 are missing"


@pytest.mark.parametrize(
    "other",
    [
        replace(ABSENT, replica=TWO, other=ONE),
        replace(ABSENT, offset=152, end=153),
        replace(ABSENT, offset=120, end=160),
        Finding(AuditRule.STATE, 120, ONE),
        Finding(AuditRule.SNAPSHOT, 120, ONE, file=CHECKPOINT),
    ],
)
def test_what_a_cause_does_not_explain_remains(other: Finding) -> None:
    assert set(by_cause([LOST, other])) == {LOST, other}


def test_swapped_batches_are_one_finding() -> None:
    """Of the batches A, B and C, B precedes A."""
    back = Finding(AuditRule.ORDER, 100, ONE, text="it is late", file=LOG, position=900, end=110)
    jump = Finding(AuditRule.GAP, 100, ONE, file=LOG, position=800, end=110)
    return_ = Finding(
        AuditRule.GAP,
        110,
        ONE,
        file=LOG,
        position=1000,
        end=120,
        other_file=LOG,
        other_position=900,
    )
    assert by_cause([jump, back, return_]) == [back]


def test_a_forged_epoch_is_reported_with_both_sides() -> None:
    forged = Finding(AuditRule.DIVERGENCE, 60, ONE, TWO, "in epoch 5 instead of 4", LOG, end=61)
    begins = Finding(AuditRule.EPOCH, 60, ONE, text="begins without LeaderChange", file=LOG)
    returns = Finding(AuditRule.EPOCH, 61, ONE, text="epoch 4 follows epoch 5", file=LOG)
    assert by_cause([begins, returns, forged]) == [forged]
    assert by_cause([begins, returns]) == [begins]


def test_damage_explains_what_a_checkpoint_lacks_but_not_the_log() -> None:
    torn = Finding(AuditRule.BYTES, 40, ONE, text="no batch", file=CHECKPOINT)
    footless = Finding(AuditRule.SNAPSHOT, 30, ONE, text="no footer", file=CHECKPOINT)
    assert by_cause([footless, torn]) == [torn]
    assert found(torn, replace(LOST, offset=40)) == [(AuditRule.BYTES, 40), (AuditRule.GAP, 40)]


def test_causes_are_sorted_by_offset() -> None:
    late = Finding(AuditRule.CHECKSUM, 500, ONE, file=LOG)
    assert found(late, LOST) == [(AuditRule.GAP, 100), (AuditRule.CHECKSUM, 500)]
