"""Changes of partitions against Kafka 4.3's own PartitionChangeBuilder, on random states.

Quorate must write the record that Kafka writes, but for the table of deliberate differences, each
of which must occur and says what Quorate writes instead.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from quorate.common.error_codes import ErrorCode
from quorate.common.features import METADATA_VERSION
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.image.partition_index import PartitionIndex
from quorate.metadata.managers.controller_context import ControllerContext
from quorate.metadata.managers.partition_change import Change
from quorate.metadata.managers.reassignments import alter_reassignments
from quorate.metadata.managers.sessions import BrokerSessions
from quorate.metadata.metadata_version import DIRECTORIES, ELR_VERSION, LATEST_LEVEL, MINIMUM_LEVEL
from quorate.metadata.requests import AlterPartitionReassignments, Reassignment
from quorate.metadata.settings import ControllerSettings
from quorate.records import metadata as rec
from quorate.records.metadata import PartitionChangeRecord

from tests.kafka import KAFKA_4_3
from tests.wire.partition_differences import DELIBERATE, REJECTED, Deliberate, Written
from tests.wire.partition_states import (
    BROKERS,
    DIRECTORIES_OF,
    NEW_DIRECTORIES,
    TOPIC_ID,
    State,
    StateGenerator,
    uuid_of,
)

SOURCE: Final = Path(__file__).with_name("PartitionChanges.java")
CLASS: Final = "org.apache.kafka.controller.PartitionChanges"
SEED: Final = 1
STATES: Final = 10_000
TOPIC: Final = "t"


# --- both controllers -----------------------------------------------------------------------------


class KafkaBuilder:
    """Kafka's PartitionChangeBuilder, in one process of Java for each call."""

    def __init__(self, folder: Path, run_tool: Callable[..., str]) -> None:
        self._folder = folder
        self._run_tool = run_tool
        self._known: dict[str, Written] = {}
        jars = f"{KAFKA_4_3}/*"
        subprocess.run(["javac", "-d", folder, "-cp", jars, SOURCE], check=True)

    def written(self, states: Sequence[State]) -> list[Written]:
        """What Kafka writes for each state."""
        lines = [_json(each) for each in states]
        new = [each for each in dict.fromkeys(lines) if each not in self._known]
        if new:
            self._known |= zip(new, self._run(new), strict=True)
        return [self._known[each] for each in lines]

    def _run(self, lines: Sequence[str]) -> list[Written]:
        given, written = self._folder / "states", self._folder / "records"
        given.write_text("".join(f"{each}\n" for each in lines))
        self._run_tool("-cp", f"{self._folder}:{KAFKA_4_3}/*", CLASS, given, written)
        return [_decoded(line) for line in written.read_text().splitlines()]


@pytest.fixture(scope="module")
def kafka(kafka_tool: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> KafkaBuilder:
    """The tool's fixture has got the jars."""
    return KafkaBuilder(tmp_path_factory.mktemp("partition-changes"), kafka_tool)


def _json(state: State) -> str:
    fields = {each.name: getattr(state, each.name) for each in dataclasses.fields(state)}
    del fields["step"]
    partition = state.partition
    return json.dumps(
        fields
        | {
            "partition": rec.encode(partition, partition.version).hex(),
            "election": state.election.name,
            "new_directories": NEW_DIRECTORIES,
        }
    )


def _decoded(line: str) -> PartitionChangeRecord | None:
    if not line:
        return None
    found = rec.decode(bytes.fromhex(line))
    assert isinstance(found, PartitionChangeRecord)
    return found


def quorate(state: State) -> Written:
    """What Quorate writes for a state."""
    context = _context(state)
    if state.reassigned is not None or state.cancelled:
        wanted = Reassignment(TOPIC, state.partition.partition_id, state.reassigned)
        records, response = alter_reassignments(context, AlterPartitionReassignments((wanted,)))
        if response.partitions[0].error is not ErrorCode.NONE:
            return REJECTED
        assert len(records) <= 1
        found = records[0] if records else None
        assert found is None or isinstance(found, PartitionChangeRecord)
        return found
    change = Change.of(context, state.partition, election=state.election)
    if state.isr is not None:
        change.isr = state.isr
    change.unclean_shutdown = state.unclean_shutdown
    change.assigned = state.assigned
    change.recovery = state.recovery
    return change.build()


def _context(state: State) -> ControllerContext:
    image = _image(state.level, state.min_isr, state.elr).copy()
    registrations = (
        rec.RegisterBrokerRecord(
            broker,
            incarnation_id=uuid_of(broker),
            broker_epoch=1,
            fenced=broker not in state.active,
            log_dirs=DIRECTORIES_OF[broker],
        )
        for broker in BROKERS
    )
    image.apply_batch((*registrations, state.partition), 10, 0, 0)
    index = PartitionIndex(image.topics.by_topic())
    settings = ControllerSettings()
    sessions = BrokerSessions(settings.session_timeout_ms)
    return ControllerContext(image, index, sessions, settings, lambda: bytes(16))


@cache
def _image(level: int, min_isr: int, elr: bool) -> MetadataImage:
    image = MetadataImage()
    records = (
        rec.FeatureLevelRecord(METADATA_VERSION, level),
        rec.FeatureLevelRecord(ELR_VERSION, int(elr)),
        rec.TopicRecord(TOPIC, TOPIC_ID),
        rec.ConfigRecord(2, TOPIC, "min.insync.replicas", str(min_isr)),
        rec.ConfigRecord(2, TOPIC, "unclean.leader.election.enable", "true"),
    )
    image.apply_batch(records, 0, 0, 0)
    return image


# --- the comparison -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def states() -> list[State]:
    return list(StateGenerator(SEED).states(STATES))


def expected(
    states: Sequence[State], kafka: KafkaBuilder, reasons: Sequence[Deliberate]
) -> list[Written]:
    """What Kafka writes for each state, but for the differences of these reasons."""
    starts = []
    for state in states:
        start = state
        for reason in reasons:
            start = reason.start(start)
        starts.append(start)
    found = []
    for state, written in zip(states, kafka.written(starts), strict=True):
        right = written
        for reason in reasons:
            right = reason.correct(state, right)
        found.append(right)
    return found


def differing(
    states: Sequence[State], kafka: KafkaBuilder, reasons: Sequence[Deliberate]
) -> list[tuple[State, Written, Written]]:
    """The states for which Quorate writes something else: state, expected, written."""
    return [
        (state, right, mine)
        for state, right in zip(states, expected(states, kafka, reasons), strict=True)
        if _versioned(mine := quorate(state)) != _versioned(right)
    ]


def _versioned(written: Written) -> tuple[Written, int | None]:
    """With the version of the record, which equal records may differ in."""
    return written, written.version if isinstance(written, PartitionChangeRecord) else None


def test_every_step_is_taken_at_every_level(states: list[State]) -> None:
    levels = range(MINIMUM_LEVEL, LATEST_LEVEL + 1)
    steps = {each.step for each in states}
    taken = Counter((each.step, each.level) for each in states)
    missing = {(step, level) for step in steps for level in levels} - taken.keys()
    assert len(steps) == 8
    assert missing == {("assign", level) for level in levels if level < DIRECTORIES}


def test_quorate_changes_partitions_as_kafka_does(states: list[State], kafka: KafkaBuilder) -> None:
    found = differing(states, kafka, DELIBERATE)
    shown = (f"{state}\n  expected {right}\n  wrote {mine}" for state, right, mine in found[:5])
    assert not found, "\n".join((f"{len(found)} of {len(states)} states:", *shown))


def test_every_deliberate_difference_is_needed(states: list[State], kafka: KafkaBuilder) -> None:
    suspects = [state for state, *_ in differing(states, kafka, ())]
    unneeded = [
        reason.text
        for reason in DELIBERATE
        if not differing(suspects, kafka, [each for each in DELIBERATE if each is not reason])
    ]
    assert unneeded == []
