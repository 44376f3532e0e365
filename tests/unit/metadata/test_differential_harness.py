"""The parts of `tests.kafka_differential` that need no controllers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from quorate.common.identifiers import uuid_from_bytes, uuid_to_bytes
from quorate.metadata.image.metadata_image import AnyRecord
from quorate.records import metadata as rec

from tests.kafka_differential.comparing import OTHER_FACTOR, Difference, compare_images
from tests.kafka_differential.reasons import reason_of
from tests.kafka_differential.repairing import repairs
from tests.kafka_differential.report import Report
from tests.kafka_differential.results import Results
from tests.kafka_differential.side import Aliases, Batch, Side
from tests.kafka_differential.translating import same_batches, same_response


def topic_id(number: int) -> str:
    return uuid_from_bytes(bytes([number]) * 16)


class Made:
    """What one of the controllers wrote. base: its ids and epochs begin here."""

    def __init__(self, base: int) -> None:
        self.ids = [topic_id(base + number) for number in range(2)]
        self.epoch = 1_000 * base
        self.aliases = Aliases()
        for name, each in zip("ab", self.ids, strict=True):
            self.aliases.note(rec.TopicRecord(name, each))
        self.aliases.note(rec.RegisterBrokerRecord(10, broker_epoch=self.epoch))

    def partition(self, topic: int = 0, leader: int = 1) -> rec.PartitionRecord:
        return rec.PartitionRecord(
            0, self.ids[topic], (1, 2), (1, 2), (), (), leader, version=1,
            directories=(topic_id(91), topic_id(92)),
        )  # fmt: skip

    def fence(self) -> rec.FenceBrokerRecord:
        return rec.FenceBrokerRecord(10, self.epoch, version=0)


KAFKAS, QUORATES = Made(1), Made(11)
ALIASES = (KAFKAS.aliases, QUORATES.aliases)


def batch(*records: AnyRecord) -> Batch:
    return [(rec.encode(each, each.version), each) for each in records]


def same(kafkas: Sequence[Batch], quorates: Sequence[Batch]) -> bool:
    return same_batches(kafkas, quorates, ALIASES)


def test_records_that_differ_in_ids_alone_are_the_same() -> None:
    mine = [batch(KAFKAS.partition(), KAFKAS.fence()), batch(KAFKAS.partition(1))]
    yours = [batch(QUORATES.partition(), QUORATES.fence()), batch(QUORATES.partition(1))]
    assert same(mine, yours)
    assert same([], [])


@pytest.mark.parametrize(
    "yours",
    [
        QUORATES.partition(topic=1),
        QUORATES.partition(leader=2),
        replace(QUORATES.partition(), topic_id=topic_id(99)),
        replace(QUORATES.partition(), topic_id=KAFKAS.ids[1]),
        replace(QUORATES.partition(), isr=(2, 1)),
        replace(QUORATES.partition(), directories=(topic_id(91), topic_id(93))),
        replace(QUORATES.partition(), version=2),
        QUORATES.fence(),
    ],
    ids=str,
)
def test_records_that_differ_in_more_are_not(yours: AnyRecord) -> None:
    assert not same([batch(KAFKAS.partition())], [batch(yours)])


def test_an_epoch_of_no_broker_is_not_that_of_one() -> None:
    stale = replace(QUORATES.fence(), epoch=QUORATES.epoch - 1)
    assert not same([batch(KAFKAS.fence())], [batch(stale)])


def test_batches_are_compared_as_such() -> None:
    mine = [batch(KAFKAS.fence(), KAFKAS.partition())]
    first, second = QUORATES.fence(), QUORATES.partition()
    assert same(mine, [batch(first, second)])
    assert not same(mine, [batch(second, first)])
    assert not same(mine, [batch(first), batch(second)])
    assert not same(mine, [batch(first)])
    assert not same(mine, [])


def response(number: int, *parts: bytes) -> bytes:
    return number.to_bytes(4, "big") + b"".join(parts)


def test_responses_that_differ_in_ids_alone_are_the_same() -> None:
    mine, yours = ([uuid_to_bytes(each) for each in made.ids] for made in (KAFKAS, QUORATES))
    kafkas = response(5, b"x", mine[0], b"y", mine[1])
    assert same_response((kafkas, response(6, b"x", yours[0], b"y", yours[1])), ALIASES)
    assert not same_response((kafkas, response(6, b"x", yours[0], b"z", yours[1])), ALIASES)
    assert not same_response((kafkas, response(6, b"x", yours[1], b"y", yours[0])), ALIASES)
    assert not same_response((kafkas, response(6, b"x", yours[0], b"y", bytes(16))), ALIASES)
    assert not same_response((kafkas, b""), ALIASES)


# --- repairs --------------------------------------------------------------------------------------


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[Side, Side]]:
    """With a topic and a broker each."""
    made = []
    for name, ids in (("Kafka", KAFKAS), ("Quorate", QUORATES)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"{0:020}.log").touch()
        side = Side(name, 0, folder)
        write(side, rec.RegisterBrokerRecord(10, broker_epoch=ids.epoch))
        write(side, rec.TopicRecord("a", ids.ids[0]), ids.partition())
        made.append(side)
    yield made[0], made[1]
    for side in made:
        side.close()


def write(side: Side, *records: AnyRecord) -> None:
    side.image.apply_batch(records, side.last_offset + 1, 1, 0)
    for each in records:
        side.aliases.note(each)


def asked_for(sides: Sequence[Side]) -> list[str]:
    found = repairs(sides)
    return [repr(each.build(sides[0])) for each in found]


def test_nothing_is_repaired_if_the_images_are_the_same(sides: tuple[Side, Side]) -> None:
    assert compare_images(sides) is None
    assert asked_for(sides) == []


def test_topics_and_brokers_that_differ_go(sides: tuple[Side, Side]) -> None:
    change = rec.PartitionChangeRecord(0, QUORATES.ids[0], leader=2)
    write(sides[1], change)
    (deletion,) = asked_for(sides)
    assert "DeleteTopicsRequest" in deletion
    assert "name='a'" in deletion
    write(sides[1], rec.RegisterBrokerRecord(11, broker_epoch=5))
    deletion, unregistration = asked_for(sides)
    assert "UnregisterBrokerRequest(broker_id=11)" in unregistration
    write(sides[0], rec.RemoveTopicRecord(KAFKAS.ids[0]))
    write(sides[1], rec.RemoveTopicRecord(QUORATES.ids[0]), rec.UnregisterBrokerRecord(11, 5))
    assert compare_images(sides) is None
    # Both number the next process of the broker alike again.
    sides[0].aliases.level(sides[1].aliases)
    write(sides[0], rec.RegisterBrokerRecord(11, broker_epoch=70))
    write(sides[1], rec.RegisterBrokerRecord(11, broker_epoch=80))
    assert compare_images(sides) is None


def test_what_cannot_be_repaired(sides: tuple[Side, Side]) -> None:
    write(sides[0], rec.ConfigRecord(2, "a", "retention.ms", "1"))
    assert compare_images(sides) is not None
    assert asked_for(sides) == []
    write(sides[1], rec.ConfigRecord(2, "a", "retention.ms", "1"))
    eligible = rec.PartitionChangeRecord(0, KAFKAS.ids[0], eligible_leader_replicas=(2,))
    write(sides[0], eligible)
    assert compare_images(sides) is not None
    assert asked_for(sides) == [], "Kafka's controller would fail later"


# --- the file -------------------------------------------------------------------------------------


def report_of(seed: int, requests: int, *differences: str) -> Report:
    report = Report(seed, pairs=1, seconds=2.0)
    report.requests["CreateTopics"] = requests
    report.records["TopicRecord"] = requests
    for number, each in enumerate(differences, 1):
        report.add(number, "a body", Difference("CreateTopics", "response", each, "1", "2"))
    return report


def test_a_run_goes_on_after_the_pairs_that_are_done(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    shown: list[str] = []
    results = Results(path, 7, lambda name, _kind: shown.append(name))
    for report in (report_of(7, 10, "a"), report_of(8, 20, "a", "b"), report_of(9, 5)):
        report.failure = "killed" if report.seed == 9 else ""
        for name, kind in report.kinds.items():
            results.difference(name, kind)
        results.pair(report)
    with path.open("a") as file:
        file.write('{"pair": {"seed": 10, "requ')
    again = Results(path, 7).done
    assert shown == ["CreateTopics: response: a", "CreateTopics: response: b"]
    assert (again.total, again.pairs, again.seconds) == (30, 2, 4.0)
    assert not again.failure, "the pair that failed is repeated"
    assert {name: (kind.count, kind.seed) for name, kind in again.kinds.items()} == {
        "CreateTopics: response: a": (2, 7),
        "CreateTopics: response: b": (1, 8),
    }
    assert again.kinds["CreateTopics: response: b"].command.endswith("--seed 8 --requests 2")
    assert len(again.unlisted) == 2
    assert not again.is_clean
    results = Results(path, 7)
    results.pair(report_of(9, 1))
    assert Results(path, 7).done.total == 31


def test_a_file_of_another_run_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    Results(path, 7)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="not of a run with seed 8"):
        Results(path, 8)
    assert path.read_bytes() == before
    path.write_text("something else")
    with pytest.raises(ValueError, match="not of a run with seed 7"):
        Results(path, 7)
    assert path.read_text() == "something else"


LEADER = "PARTITION_CHANGE_RECORD.leader 14/-2,  45/39"
LAST_KNOWN = "PARTITION_CHANGE_RECORD.last_known_elr of no leader,  41/48"
ELIGIBLE = (
    f"PARTITION_CHANGE_RECORD {OTHER_FACTOR}.eligible_leader_replicas, last_known_elr,  40/47"
)


@pytest.mark.parametrize(
    ("details", "is_deliberate"),
    [
        ((LEADER,), False),
        ((LAST_KNOWN,), True),
        ((LAST_KNOWN, ELIGIBLE), True),
        ((LAST_KNOWN, LEADER), False),
    ],
)
def test_each_change_of_a_partition_needs_a_reason(
    details: Sequence[str], is_deliberate: bool
) -> None:
    found = reason_of(Difference("UnregisterBroker", "records", ", ".join(details), "", ""))
    assert (found is not None) is is_deliberate
