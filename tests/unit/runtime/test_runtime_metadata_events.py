"""Log lines about brokers and topics: which changes, when, and how many."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import uuid_from_bytes
from quorate.metadata.image.metadata_image import AnyRecord, MetadataImage
from quorate.records import metadata as rec
from quorate.records.metadata.nodes import FENCE, IN_CONTROLLED_SHUTDOWN, UNFENCE
from quorate.runtime.metadata_events import BURST, INTERVAL_S, NAMES_MAX, MetadataEvents

from tests.unit.runtime.test_runtime_metadata_service import running, wait_for_leadership

BROKER, EPOCH = 101, 7


class Lab:
    """An image whose changes are logged. silent: the brokers whose session expired."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "quorate.controller")
        self.is_active = True
        self.silent: set[int] = set()
        self.image = MetadataImage()
        self.now_s = 0.0
        self.events = MetadataEvents(
            lambda: self.is_active, self.silent.__contains__, 9_000, lambda: self.now_s
        )
        self._caplog = caplog
        self._offset = 0

    def commit(self, *records: AnyRecord) -> list[tuple[str, str]]:
        """Replay one batch: the lines that it causes, with their levels."""
        self._caplog.clear()
        delta = self.image.apply_batch(records, self._offset, 1, 0)
        self._offset += len(records)
        self.events.changed(self.image, delta)
        return [(each.levelname, each.getMessage()) for each in self._caplog.records]


@pytest.fixture
def lab(caplog: pytest.LogCaptureFixture) -> Lab:
    return Lab(caplog)


def registered(broker_id: int = BROKER, epoch: int = EPOCH, host: str = "b") -> AnyRecord:
    return rec.RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=uuid_from_bytes(epoch.to_bytes(16)),
        broker_epoch=epoch,
        end_points=(rec.RegisteredEndpoint("PLAINTEXT", host, 9092, 0),),
        fenced=True,
    )


def change(epoch: int = EPOCH, *, fenced: int = 0, shutdown: int = 0) -> AnyRecord:
    return rec.BrokerRegistrationChangeRecord(
        BROKER, epoch, fenced=fenced, in_controlled_shutdown=shutdown, version=1
    )


def test_the_life_of_a_broker(lab: Lab) -> None:
    assert lab.commit(registered()) == [("INFO", "broker 101 at b:9092 registered, with epoch 7")]
    assert lab.commit(change(fenced=UNFENCE)) == [("INFO", "broker 101 at b:9092 unfenced")]
    assert lab.commit(change(shutdown=IN_CONTROLLED_SHUTDOWN)) == [
        ("INFO", "broker 101 at b:9092 began its controlled shutdown")
    ]
    assert lab.commit(change(fenced=FENCE)) == [
        ("INFO", "broker 101 at b:9092 fenced: its controlled shutdown is over")
    ]
    assert lab.commit(registered(epoch=8, host="c")) == [
        ("INFO", "broker 101 at c:9092 registered again, with epoch 8")
    ]
    assert lab.commit(rec.UnregisterBrokerRecord(BROKER, 8)) == [
        ("INFO", "broker 101 at c:9092 unregistered")
    ]


def test_why_a_broker_is_fenced(lab: Lab) -> None:
    lab.commit(registered())
    lab.commit(change(fenced=UNFENCE))
    assert lab.commit(change(fenced=FENCE)) == [
        ("INFO", "broker 101 at b:9092 fenced, as it requested")
    ]
    lab.commit(change(fenced=UNFENCE))
    lab.silent.add(BROKER)
    assert lab.commit(change(fenced=FENCE)) == [
        ("WARNING", "broker 101 at b:9092 fenced: no heartbeat for 9 s")
    ]


def test_a_change_that_is_none_of_these_is_not_logged(lab: Lab) -> None:
    lab.commit(registered())
    assert lab.commit(change()) == []
    assert lab.commit(registered()) == []


def test_only_the_active_controller_logs_and_it_knows_what_came_before(lab: Lab) -> None:
    lab.is_active = False
    assert lab.commit(registered(), *topic("before")) == []
    assert lab.commit(rec.RemoveTopicRecord(topic_id("before"))) == []
    lab.is_active = True
    assert lab.commit(change(fenced=UNFENCE)) == [("INFO", "broker 101 at b:9092 unfenced")]


def topic_id(name: str) -> str:
    return uuid_from_bytes(name.encode().ljust(16, b"."))


def topic(name: str, partitions: int = 2) -> Sequence[AnyRecord]:
    return (
        rec.TopicRecord(name, topic_id(name)),
        *(
            rec.PartitionRecord(
                partition_id=number,
                topic_id=topic_id(name),
                replicas=(BROKER,),
                isr=(BROKER,),
                leader=BROKER,
            )
            for number in range(partitions)
        ),
    )


def test_few_topics_have_a_line_each(lab: Lab) -> None:
    assert lab.commit(*topic("b", 3), *topic("a")) == [
        ("INFO", f"topic a created: id {topic_id('a')}, 2 partitions"),
        ("INFO", f"topic b created: id {topic_id('b')}, 3 partitions"),
    ]
    assert lab.commit(rec.RemoveTopicRecord(topic_id("a"))) == [
        ("INFO", f"topic a deleted: id {topic_id('a')}")
    ]


def test_many_topics_share_a_line(lab: Lab) -> None:
    names = [f"t{number:03}" for number in range(120)]
    records = [record for name in names for record in topic(name)]
    assert lab.commit(*records) == [
        (
            "INFO",
            "120 topics with 240 partitions created: t000, t001, t002, t003, t004 and 115 more",
        )
    ]
    removals = [rec.RemoveTopicRecord(topic_id(name)) for name in names[:NAMES_MAX]]
    assert lab.commit(*removals) == [("INFO", "5 topics deleted: t000, t001, t002, t003, t004")]


def test_a_topic_that_is_created_and_deleted_at_once_is_only_deleted(lab: Lab) -> None:
    assert lab.commit(*topic("a"), rec.RemoveTopicRecord(topic_id("a"))) == [
        ("INFO", f"topic a deleted: id {topic_id('a')}")
    ]


def test_a_broker_cannot_fill_the_log(lab: Lab) -> None:
    lines = [lab.commit(registered(epoch=epoch, host="h" * 9_999)) for epoch in range(1, 3 * BURST)]
    written = [line for each in lines for line in each]
    assert len(written) == BURST
    assert all(len(text) < 400 for _, text in written)
    assert lab.commit(registered(broker_id=102)) != [], "others have their own limit"
    lab.now_s = INTERVAL_S
    ((_, text),) = lab.commit(registered(epoch=3 * BURST))
    assert text.endswith(f"({2 * BURST - 1} earlier messages suppressed)")


async def test_nothing_is_logged_when_a_log_is_replayed_at_a_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A restarted only voter leads soon, and may replay the end of its log as the leader."""
    caplog.set_level(logging.INFO, "quorate.controller")
    for number in range(3):
        async with running(tmp_path) as replica:
            service = replica.service
            events = MetadataEvents(
                lambda: service.is_active,  # noqa: B023 - it is called within this round
                replica.controller.is_silent,
                9_000,
            )
            replica.loader.add_listener(events.changed)
            await wait_for_leadership(replica)
            await replica.until_active()
            name = f"t{number}"
            value = rec.encode(rec.TopicRecord(name, topic_id(name)))
            error, _, text = await service.append_records([value], 20_000)
            assert error is ErrorCode.NONE, text
        said = [each.getMessage() for each in caplog.records]
        created = [text for text in said if text.startswith("topic ")]
        assert len(created) == number + 1, created
        assert created[-1].startswith(f"topic {name} created")
