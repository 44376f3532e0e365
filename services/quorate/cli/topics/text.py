"""Topics as Kafka's `kafka-topics --describe` prints them, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from quorate.cli.metadata_run import chunks

if TYPE_CHECKING:
    from quorate.metadata.requests import PartitionDescription, TopicDescription
    from quorate.rpc.metadata_client import MetadataClient

UNDER_REPLICATED = "under-replicated"
UNAVAILABLE = "unavailable"
UNDER_MIN_ISR = "under-min-isr"
AT_MIN_ISR = "at-min-isr"

MIN_ISR = "min.insync.replicas"
RESOURCES_PER_REQUEST = 1_000

Configs = dict[str, dict[str, str]]
"""By topic: its own settings, and settings of all brokers that also apply to topics."""


async def effective_configs(client: MetadataClient, topics: list[str]) -> Configs:
    """Return the topics' non-default configurations, as Kafka describes a topic."""
    from quorate.metadata.image.configs import ConfigResourceType
    from quorate.metadata.requests import ConfigResource, DescribeConfigs

    found: Configs = {}
    for some in chunks(topics, RESOURCES_PER_REQUEST):
        resources = tuple(ConfigResource(int(ConfigResourceType.TOPIC), name) for name in some)
        answer = await client.ask(DescribeConfigs(resources))
        for each in answer.resources:
            found[each.resource.name] = {value.name: value.value or "" for value in each.configs}
    default = await client.ask(
        DescribeConfigs((ConfigResource(int(ConfigResourceType.BROKER), ""),), names=(MIN_ISR,))
    )
    for each in default.resources:
        for value in each.configs:
            for configs in found.values():
                configs.setdefault(value.name, value.value or "")
    return {name: found.get(name, {}) for name in topics}


def topic_lines(
    topic: TopicDescription, configs: Mapping[str, str], only: str | None, overrides: bool
) -> Iterator[str]:
    """Yield the lines of a topic and its partitions, or of the partitions that `only` selects."""
    if overrides and not topic.configs:
        return
    if only is None:
        shown = ",".join(f"{name}={value}" for name, value in sorted(configs.items()))
        factor = len(topic.partitions[0].replicas) if topic.partitions else 0
        yield (
            f"Topic: {topic.name}\tTopicId: {topic.topic_id}\t"
            f"PartitionCount: {len(topic.partitions)}\tReplicationFactor: {factor}\t"
            f"Configs: {shown}"
        )
    if overrides:
        return
    for partition in topic.partitions:
        if only is None or _is_chosen(partition, configs, only):
            yield _partition_line(topic.name, partition)


def _is_chosen(partition: PartitionDescription, configs: Mapping[str, str], only: str) -> bool:
    replicas = len(partition.replicas) - len(partition.adding_replicas)
    isr = len(partition.isr)
    least = int(configs.get(MIN_ISR, "1"))
    match only:
        case "under-replicated":
            return isr < replicas
        case "unavailable":
            return partition.leader < 0
        case "under-min-isr":
            return isr < least
        case _:
            return isr == least


def _partition_line(topic: str, partition: PartitionDescription) -> str:
    leader = "none" if partition.leader < 0 else str(partition.leader)
    text = (
        f"\tTopic: {topic}\tPartition: {partition.index}\tLeader: {leader}"
        f"\tReplicas: {_list(partition.replicas)}\tIsr: {_list(partition.isr)}"
    )
    if partition.adding_replicas or partition.removing_replicas:
        text += f"\tAdding Replicas: {_list(partition.adding_replicas)}"
        text += f"\tRemoving Replicas: {_list(partition.removing_replicas)}"
    elr, last = partition.eligible_leader_replicas, partition.last_known_elr
    return f"{text}\tElr: {_list(elr)}\tLastKnownElr: {_list(last)}"


def _list(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids))


def topic_json(topic: TopicDescription, configs: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topicId": topic.topic_id,
        "isInternal": topic.is_internal,
        "configs": dict(sorted(configs.items())),
        "partitions": [
            {
                "partition": each.index,
                "leader": None if each.leader < 0 else each.leader,
                "leaderEpoch": each.leader_epoch,
                "partitionEpoch": each.partition_epoch,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "offlineReplicas": list(each.offline_replicas),
                "addingReplicas": list(each.adding_replicas),
                "removingReplicas": list(each.removing_replicas),
                "elr": list(each.eligible_leader_replicas),
                "lastKnownElr": list(each.last_known_elr),
            }
            for each in topic.partitions
        ],
    }
