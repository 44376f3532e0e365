"""What the console makes of pages of topics, and of configs."""

from __future__ import annotations

import pytest
from quorate.console import topics
from quorate.console.topics import (
    HIDDEN,
    NAMED_MAX,
    ConfigRow,
    TopicTable,
    broker_configs,
    shown_value,
    topic_configs,
)
from quorate.metadata.requests import (
    ConfigResource,
    ConfigValue,
    PartitionDescription,
    ResourceConfigs,
    TopicDescription,
)


def partition(index: int, leader: int = 1, isr: tuple[int, ...] = (1, 2)) -> PartitionDescription:
    return PartitionDescription(index, leader, 0, 0, (1, 2), isr)


def test_a_topic_that_comes_in_parts_is_one_row() -> None:
    table = TopicTable()
    configs = (("retention.ms", "1"),)
    first = TopicDescription("b", configs=configs, partitions=(partition(0, -1, (1,)),))
    second = TopicDescription("b", configs=configs, partitions=(partition(1, 1, (1,)),))
    table.add([TopicDescription("a", partitions=(partition(0),)), first])
    table.add([second, TopicDescription("c")])
    assert [row.name for row in table.rows] == ["a", "b", "c"]
    found = table.find("b")
    assert found is not None
    assert (found.partitions, found.replication_factor) == (2, 2)
    assert (found.under_replicated, found.leaderless, found.unhealthy) == (2, 1, 2)
    assert found.named == (0, 1)
    assert table.configs == [ConfigRow("b", "retention.ms", "1")], "once"
    assert (table.partitions, table.version) == (3, 2)
    assert table.find("d") is None


def test_replicas_that_are_being_added_do_not_count() -> None:
    table = TopicTable()
    adding = PartitionDescription(0, 1, 0, 0, (1, 2, 3), (1, 2), adding_replicas=(3,))
    table.add([TopicDescription("a", partitions=(adding,))])
    (row,) = table.rows
    assert (row.replication_factor, row.unhealthy) == (2, 0)


def test_many_unhealthy_partitions_are_counted_and_few_are_kept() -> None:
    table = TopicTable()
    page = tuple(partition(index, -1, ()) for index in range(2_000))
    for number in range(20):
        table.add([TopicDescription(f"topic-{number:05}", partitions=page)])
    assert (table.partitions, len(table.rows), table.left_out) == (40_000, 20, 0)
    assert all(row.leaderless == 2_000 and len(row.named) == NAMED_MAX for row in table.rows)


def test_what_does_not_fit_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "TOPICS_MAX", 3)
    monkeypatch.setattr(topics, "CONFIGS_MAX", 5)
    table = TopicTable()
    configs = (("cleanup.policy", "compact"), ("retention.ms", "1"))
    for name in ("a", "b", "c", "d", "d", "e"):
        table.add([TopicDescription(name, configs=configs, partitions=(partition(0),))])
    assert [row.name for row in table.rows] == ["a", "b", "c"]
    assert (table.left_out, table.partitions) == (2, 6)
    assert (len(table.configs), table.configs_left_out) == (5, 5)


def test_configs_that_are_sensitive_or_unknown_are_hidden() -> None:
    """DescribeTopics returns configs as they are in the log, also ones of a plugin or of later
    releases, whose sensitivity nobody here knows."""
    topic = TopicDescription("a", configs=(("plugin.password", "secret"), ("retention.ms", "1")))
    assert topic_configs(topic) == [
        ConfigRow("a", "plugin.password", HIDDEN), ConfigRow("a", "retention.ms", "1"),
    ]  # fmt: skip


def test_brokers_show_only_their_own_configs_and_no_secrets() -> None:
    default = ConfigValue("log.retention.ms", "5", 3)
    found = broker_configs(
        [
            ResourceConfigs(
                ConfigResource(4, "10"),
                (
                    default,
                    ConfigValue("ssl.key.password", "leaked", 2),
                    ConfigValue("ssl.keystore.type", "JKS", 2, is_sensitive=True),
                    ConfigValue("log.cleaner.threads", "3", 2),
                ),
            ),
            ResourceConfigs(ConfigResource(4, "9"), (ConfigValue("log.cleaner.threads", "2", 2),)),
            ResourceConfigs(ConfigResource(4, ""), (default,)),
        ]
    )
    assert found == [
        ConfigRow("all brokers", "log.retention.ms", "5"),
        ConfigRow("broker 9", "log.cleaner.threads", "2"),
        ConfigRow("broker 10", "ssl.key.password", HIDDEN),
        ConfigRow("broker 10", "ssl.keystore.type", HIDDEN),
        ConfigRow("broker 10", "log.cleaner.threads", "3"),
    ]


def test_long_values_are_shortened() -> None:
    assert shown_value("x" * 300, is_secret=False) == "x" * 300
    assert shown_value("x" * 1_000_000, is_secret=False) == f"{'x' * 300} … (1,000,000 characters)"
    assert shown_value(None, is_secret=False) == "null"
