"""The audit's rules, without Spark: what is committed, who is to blame, and small files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from quorate.common.identifiers import uuid_from_bytes
from quorate.log.meta_properties import MetaProperties
from quorate.log.offset_files import LEADER_EPOCH_FILE, format_epochs
from quorate.log.quorum_state import QUORUM_STATE_FILE, format_quorum_state
from quorate.raft.types import ElectionState, OffsetAndEpoch, ReplicaKey
from quorate.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from quorate.spark.auditing.file_audit import file_findings, read_small_files, tail_findings
from quorate.spark.auditing.rules import (
    KRAFT_VERSION,
    KRAFT_VOTERS,
    LEADER_CHANGE,
    AuditRule,
    ControlBatch,
    Facts,
    Finding,
    committed_offset,
    control_findings,
)
from quorate.spark.files import LogReplica, SnapshotFile

from tests.spark.make_log import CLUSTER

IDS = (1, 2, 3)
DIRECTORIES = {node: uuid_from_bytes(bytes([node]) * 16) for node in IDS}
VOTERS = [{"voterId": node, "voterDirectoryId": DIRECTORIES[node]} for node in IDS]
END = 208


class Quorum:
    """Three replicas with logs of [0, END) in epochs 1 and 4, and what the audit collects."""

    def __init__(self, root: Path) -> None:
        self.facts: dict[str, Facts] = {}
        self.controls: list[ControlBatch] = []
        for node in IDS:
            directory = root / str(node)
            partition = directory / "__cluster_metadata-0"
            partition.mkdir(parents=True)
            properties = MetaProperties(CLUSTER, node, DIRECTORIES[node])
            replica = LogReplica(self.name(node), directory, partition, properties, (), ())
            self.facts[replica.name] = Facts(replica, 0, END, 4, {1: 0, 4: 115})
            self.elect(node, 1, 1, 0, (KRAFT_VOTERS, {"voters": VOTERS}))
            self.elect(node, 2, 4, 115)
            self.state(node, leader=2)

    @staticmethod
    def name(node: int) -> str:
        return f"{node}-{DIRECTORIES[node]}"

    def of(self, node: int) -> Facts:
        return self.facts[self.name(node)]

    def elect(
        self, node: int, leader: int, epoch: int, offset: int, *more: tuple[str, dict[str, Any]]
    ) -> None:
        """Put a LeaderChange, and more control records, into the log of a node."""
        change = {"leaderId": leader, "voters": VOTERS, "grantingVoters": VOTERS[:2]}
        controls = ((LEADER_CHANGE, change), *more)
        name = self.name(node)
        batch = ControlBatch(name, f"{node}.log", offset, 99, offset, epoch, None, controls)
        others = [b for b in self.controls if (b.replica, b.base_offset) != (name, offset)]
        self.controls = [*others, batch]

    def state(
        self, node: int, *, leader: int | None, epoch: int = 4, vote: ReplicaKey | None = None
    ) -> None:
        path = self.of(node).replica.partition / QUORUM_STATE_FILE
        path.write_bytes(
            format_quorum_state(ElectionState(epoch=epoch, leader_id=leader, voted=vote), 1)
        )

    def epoch_file(self, node: int, *entries: tuple[int, int]) -> None:
        """Write the file. entries: epochs and their first offsets."""
        one = self.of(node)
        path = one.replica.partition / LEADER_EPOCH_FILE
        path.write_bytes(format_epochs([OffsetAndEpoch(at, epoch) for epoch, at in entries]))
        one.small_files = read_small_files(one.replica)

    def findings(self) -> list[Finding]:
        committed = committed_offset(self.controls, self.facts, None)
        return [
            *control_findings(self.controls, self.facts),
            *file_findings(self.controls, self.facts),
            *tail_findings(self.controls, self.facts, committed),
        ]


@pytest.fixture
def quorum(tmp_path: Path) -> Quorum:
    return Quorum(tmp_path)


def test_a_healthy_quorum_has_no_findings(quorum: Quorum) -> None:
    assert quorum.findings() == []
    assert committed_offset(quorum.controls, quorum.facts, None) == END


@pytest.mark.parametrize(
    ("logs", "committed"),
    [
        # (last epoch, end) of each log.
        (((14, END), (4, END), (4, END)), END),
        (((4, 190), (4, END), (4, 199)), 199),
        # An old leader has a tail of its own, and the new one's first record is its own.
        (((2, 110), (2, 100), (3, 101)), 100),
        (((5, 120), (4, 110), (3, 100)), 0),
        (((1, 0), (1, 0), (4, END)), 0),
    ],
)
def test_what_a_majority_in_one_epoch_holds_is_committed(
    quorum: Quorum, logs: Sequence[tuple[int, int]], committed: int
) -> None:
    for node, (epoch, end) in zip(IDS, logs, strict=True):
        quorum.of(node).epoch, quorum.of(node).end = epoch, end
    assert committed_offset(quorum.controls, quorum.facts, None) == committed
    assert committed_offset(quorum.controls, quorum.facts, 150) == max(150, committed)


@pytest.mark.parametrize("liar", IDS)
def test_the_minority_is_to_blame_for_two_leaders(quorum: Quorum, liar: int) -> None:
    quorum.elect(liar, 3, 4, 115)
    (found,) = quorum.findings()
    assert (found.rule, found.replica, found.offset) == (
        AuditRule.ONE_LEADER,
        quorum.name(liar),
        115,
    )
    assert found.text.startswith("epoch 4 is led by 3 here and by 2 on")
    assert found.other_file


@pytest.mark.parametrize("liars", [(1,), (3,), IDS])
def test_quorum_states_are_compared_with_the_leader_change(
    quorum: Quorum, liars: Sequence[int]
) -> None:
    for node in liars:
        quorum.state(node, leader=3)
    found = quorum.findings()
    assert [f.replica for f in found] == [quorum.name(node) for node in liars]
    for one in found:
        assert one.rule is AuditRule.ONE_LEADER
        assert "names 3 as leader of epoch 4, but the epoch's LeaderChange names 2" in one.text
        assert (Path(one.file).name, one.other_file[1:]) == (QUORUM_STATE_FILE, ".log")


def test_quorum_states_of_an_epoch_without_records_are_compared(quorum: Quorum) -> None:
    for node, leader in zip(IDS, (3, 1, 1), strict=True):
        quorum.state(node, leader=leader, epoch=9)
    (found,) = quorum.findings()
    assert (found.rule, found.replica, found.other) == (
        AuditRule.ONE_LEADER,
        quorum.name(1),
        quorum.name(2),
    )
    assert Path(found.other_file).name == QUORUM_STATE_FILE


def test_a_vote_for_nobody_is_found(quorum: Quorum) -> None:
    quorum.state(1, leader=None, vote=ReplicaKey(2, DIRECTORIES[2]))
    # A voter with a replaced disk has another directory id.
    quorum.state(2, leader=None, vote=ReplicaKey(3, DIRECTORIES[1]))
    assert quorum.findings() == []
    quorum.state(3, leader=None, vote=ReplicaKey(77, DIRECTORIES[1]))
    (found,) = quorum.findings()
    assert (found.rule, found.replica) == (AuditRule.STATE, quorum.name(3))
    assert "a vote for 77" in found.text


def with_moved_start(quorum: Quorum, start: int, checkpoint: int) -> None:
    one = quorum.of(1)
    path = one.replica.partition / f"{checkpoint:020}-{4:010}.checkpoint"
    snapshot = SnapshotFile(path, OffsetAndEpoch(checkpoint, 4))
    replica = one.replica
    one.replica = LogReplica(
        replica.name, replica.directory, replica.partition, replica.properties, (), (snapshot,)
    )
    one.start = start
    one.epochs = {1: start, 4: 115} if start < 115 else {4: start}


@pytest.mark.parametrize(
    ("start", "checkpoint", "entries"),
    [
        (0, 0, [(1, 0), (4, 115)]),
        (0, 0, [(1, 0)]),
        (100, 200, [(1, 0), (4, 115)]),
        # Kafka moved the log start to an older checkpoint's end, within a segment.
        (100, 200, [(4, 150)]),
        (100, 200, [(1, 110), (4, 115)]),
        (115, 200, [(4, 150)]),
        # A leader was elected, and its first record is not written yet.
        (0, 0, [(1, 0), (4, 115), (9, END)]),
    ],
)
def test_epoch_files_that_are_right(
    quorum: Quorum, start: int, checkpoint: int, entries: list[tuple[int, int]]
) -> None:
    if checkpoint:
        with_moved_start(quorum, start, checkpoint)
    quorum.epoch_file(1, *entries)
    assert quorum.findings() == []


@pytest.mark.parametrize(
    ("start", "checkpoint", "entries", "text"),
    [
        (0, 0, [(1, 0), (4, 116)], "epoch 4 begins at 116, in the log at 115"),
        (0, 0, [(1, 7), (4, 115)], "epoch 1 begins at 7, in the log at 0"),
        (0, 0, [(4, 120)], "epoch 4 begins at 120, in the log at 115"),
        (100, 200, [(4, 201)], "epoch 4 begins at 201, in the log at 115"),
        (100, 200, [(1, 120)], "epoch 1 begins at 120, in the log at 100"),
        (0, 0, [(1, 0), (3, 70), (4, 115)], "the log has no epoch 3"),
    ],
)
def test_epoch_files_that_are_wrong(
    quorum: Quorum, start: int, checkpoint: int, entries: list[tuple[int, int]], text: str
) -> None:
    if checkpoint:
        with_moved_start(quorum, start, checkpoint)
    quorum.epoch_file(1, *entries)
    (found,) = quorum.findings()
    assert (found.replica, found.text) == (quorum.name(1), f"{LEADER_EPOCH_FILE}: {text}")
    assert Path(found.file).name == LEADER_EPOCH_FILE


def test_an_epoch_file_without_an_inner_epoch_is_wrong(quorum: Quorum) -> None:
    quorum.of(1).epochs = {1: 0, 3: 70, 4: 115}
    quorum.epoch_file(1, (1, 0), (4, 115))
    (found,) = quorum.findings()
    assert "epoch 3 is missing, which begins at 70 in the log" in found.text


def test_a_log_that_ends_before_what_its_files_name_lost_its_tail(quorum: Quorum) -> None:
    quorum.epoch_file(3, (1, 0), (4, 115), (6, END + 1))
    (found,) = quorum.findings()
    assert (found.rule, found.replica, found.offset) == (
        AuditRule.LOST_TAIL,
        quorum.name(3),
        END,
    )


def test_a_missing_quorum_state_is_found(quorum: Quorum) -> None:
    (quorum.of(2).replica.partition / QUORUM_STATE_FILE).unlink()
    (found,) = quorum.findings()
    assert (found.rule, found.replica) == (AuditRule.STATE, Quorum.name(2))
    assert "quorum-state is missing, but the log is at epoch 4" in found.text


def test_missing_meta_properties_are_found_if_others_have_them(quorum: Quorum) -> None:
    one = quorum.of(3)
    one.replica = replace(one.replica, properties=None)
    (found,) = quorum.findings()
    assert (found.rule, found.replica) == (AuditRule.IDENTITY, Quorum.name(3))
    for node in IDS:
        each = quorum.of(node)
        each.replica = replace(each.replica, properties=None)
    assert quorum.findings() == []


def test_a_kraft_version_without_voters_after_voters_is_found(quorum: Quorum) -> None:
    for node in IDS:
        quorum.elect(node, 2, 4, 115, (KRAFT_VERSION, {"kRaftVersion": 0}))
    found = quorum.findings()
    assert {(one.rule, one.offset, one.replica) for one in found} == {
        (AuditRule.VOTERS, 116, Quorum.name(node)) for node in IDS
    }


def test_static_voters_are_those_of_the_leader_change(quorum: Quorum) -> None:
    for node, end in zip(IDS, (190, END, 199), strict=True):
        quorum.elect(node, 1, 1, 0)
        quorum.of(node).end = end
    assert committed_offset(quorum.controls, quorum.facts, None) == 199


def test_of_two_directories_of_a_voter_the_log_that_ends_first_counts(quorum: Quorum) -> None:
    for node, end in zip(IDS, (190, END, 150), strict=True):
        quorum.of(node).end = end
    copy = quorum.of(2).replica
    quorum.facts["copy"] = Facts(replace(copy, name="copy"), 0, 170, 4, {1: 0, 4: 115})
    assert committed_offset(quorum.controls, quorum.facts, None) == 170


def test_a_forged_voter_set_makes_no_majority(quorum: Quorum) -> None:
    """A log that makes its replica the only voter, and is longer than the others."""
    alone = (KRAFT_VOTERS, {"voters": VOTERS[:1]})
    quorum.elect(1, 2, 4, 115, alone)
    quorum.of(1).end = END + 100
    assert committed_offset(quorum.controls, quorum.facts, None) == END


@pytest.mark.parametrize(("checkpoint", "committed"), [(200, 200), (END + 100, 190)])
def test_a_checkpoint_behind_its_log_proves_nothing(
    quorum: Quorum, checkpoint: int, committed: int
) -> None:
    with_moved_start(quorum, 0, checkpoint)
    for node in (2, 3):
        quorum.of(node).end = 190
    assert committed_offset(quorum.controls, quorum.facts, None) == committed


def test_a_directory_id_that_no_voter_set_has_is_found(quorum: Quorum) -> None:
    one = quorum.of(3)
    unknown = MetaProperties(CLUSTER, 3, uuid_from_bytes(bytes([9]) * 16))
    one.replica = replace(one.replica, properties=unknown)
    (found,) = quorum.findings()
    assert (found.rule, found.replica) == (AuditRule.IDENTITY, quorum.name(3))
    assert Path(found.file).name == "meta.properties"
    assert f"in which node 3 is 3-{DIRECTORIES[3]}" in found.text
    # An observer has no place in voter sets.
    one.replica = replace(one.replica, properties=replace(unknown, node_id=7))
    assert quorum.findings() == []


BEGIN, DONE, ABORT = (
    cls.TYPE for cls in (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)
)


@pytest.mark.parametrize(
    ("kinds", "start", "wrong"),
    [
        ([BEGIN, DONE, BEGIN, ABORT, BEGIN], 0, []),
        ([BEGIN, BEGIN, DONE], 0, [121]),
        ([BEGIN, DONE, DONE], 0, [122]),
        ([ABORT], 0, [120]),
        # It began before the log start.
        ([DONE, BEGIN, DONE], 100, []),
        ([DONE, DONE], 100, [121]),
    ],
)
def test_transactions_that_overlap_or_end_twice_are_found(
    quorum: Quorum, kinds: list[str], start: int, wrong: list[int]
) -> None:
    name = quorum.name(1)
    markers = tuple((kind, {"offset": 120 + at}) for at, kind in enumerate(kinds))
    quorum.controls.append(ControlBatch(name, "1.log", 999, 99, 120, 4, None, markers))
    quorum.of(1).start = start
    found = list(control_findings(quorum.controls, quorum.facts))
    assert [(one.rule, one.replica, one.offset) for one in found] == [
        (AuditRule.TRANSACTION, name, offset) for offset in wrong
    ]
