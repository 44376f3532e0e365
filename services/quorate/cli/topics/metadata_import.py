"""`quorate topics import`: imports a Kafka cluster's metadata from files into a running quorum.

1. Read the source's state from a checkpoint or a directory (`runtime.metadata_files`).
2. Compare it with the quorum. An existing topic with the same name and id stays unchanged. One with
   the same name and another id fails the whole import.
3. Append the rest as records: features first, then the topics, then everything else. A topic, its
   partitions and its configurations are never split across batches. The controller replays each
   batch before it appends it, and rejects an invalid batch.

Brokers and controllers are not imported, because they register themselves. A partition whose leader
is not active in the quorum has no leader until one of its replicas registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import typer

from quorate.cli.connection import CHANGE_TIMEOUT_S
from quorate.cli.log.metadata_shell import load_image
from quorate.cli.metadata_run import check, progress_bar, run_metadata, topic_expression
from quorate.cli.output import CommandError, print_result
from quorate.common.error_codes import ErrorCode
from quorate.common.features import METADATA_VERSION
from quorate.metadata import requests as r
from quorate.metadata.acls import acl_of
from quorate.metadata.image.configs import ConfigResourceType
from quorate.metadata.image.metadata_image import AnyRecord, MetadataImage
from quorate.metadata.metadata_version import LATEST_LEVEL, at_level
from quorate.records import metadata as rec
from quorate.records.metadata.partitions import NO_LEADER
from quorate.rpc.client.quorum_client import AdminError, QuorumClient
from quorate.rpc.metadata_client import MetadataClient

BATCH_RECORDS_MAX = 5_000
BATCH_BYTES_MAX = 4 * 1024 * 1024

REGISTERED = (rec.RegisterBrokerRecord, rec.RegisterControllerRecord)
LEFT_OUT = (*REGISTERED, rec.FeatureLevelRecord, rec.ZkMigrationStateRecord, rec.NoOpRecord)
OF_TOPICS = (rec.TopicRecord, rec.PartitionRecord)


@dataclass(slots=True)
class ImportPlan:
    """What the import appends."""

    groups: list[list[AnyRecord]] = field(default_factory=list)
    """The records; each group is appended within one batch."""
    topics: list[str] = field(default_factory=list)
    there_already: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    producer_ids: rec.ProducerIdsRecord | None = None
    """The record of producer ids. It is appended in a separate batch, because the controller
    rejects it, harmlessly, if the quorum has already allocated as many ids.
    """

    def add(self, records: list[AnyRecord]) -> None:
        self.groups.append(records)
        for record in records:
            api_key = record.api_key if isinstance(record, rec.UnknownRecord) else record.API_KEY
            name = rec.type_name(api_key)
            self.counts[name] = self.counts.get(name, 0) + 1

    @property
    def records(self) -> int:
        return sum(map(len, self.groups))


def import_metadata(
    context: typer.Context,
    source: Path,
    patterns: list[str] | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Run the steps above. Raises CommandError; records appended before the error remain."""
    image = load_image(source)
    wanted = chosen_topics(image, patterns)

    async def ask(client: MetadataClient) -> ImportPlan:
        plan = await _plan(client, image, wanted, only_topics=bool(patterns))
        if dry_run or not (plan.groups or plan.producer_ids):
            return plan
        async with client.quorum_client() as quorum:
            with progress_bar("importing records", plan.records) as advance:
                await _append(quorum, plan, advance)
        return plan

    plan = run_metadata(context, ask, CHANGE_TIMEOUT_S, changes=True)
    did = "Would import" if dry_run else "Imported"
    print_result(
        as_json,
        {
            "topics": plan.topics,
            "thereAlready": plan.there_already,
            "records": plan.counts,
            "dryRun": dry_run,
        },
        f"{did} {len(plan.topics)} topics with {plan.records} records from {source}.",
        *(f"Topic {name} already exists." for name in plan.there_already),
    )


def chosen_topics(image: MetadataImage, patterns: list[str] | None) -> dict[str, str]:
    """Return the ids of the topics to import, by name. Raises CommandError, UsageError."""
    if not patterns:
        return dict(image.topics.ids)
    chosen: dict[str, str] = {}
    for pattern in patterns:
        expression = topic_expression(pattern)
        found = {n: i for n, i in image.topics.ids.items() if expression.fullmatch(n)}
        if not found:
            raise CommandError(f"Topic '{pattern}' does not exist in the source")
        chosen |= found
    return chosen


async def _plan(
    client: MetadataClient, image: MetadataImage, wanted: dict[str, str], *, only_topics: bool
) -> ImportPlan:
    cluster = await client.ask(r.DescribeCluster())
    described = await client.ask(r.DescribeTopics())
    existing = {topic.name: topic.topic_id for topic in described.topics}
    clashes = [n for n, i in wanted.items() if existing.get(n, i) != i]
    if clashes:
        raise CommandError(
            f"{', '.join(sorted(clashes)[:5])}: the quorum has a topic with this name and another "
            "id; nothing was imported"
        )
    levels = {feature.name: feature.finalized_level for feature in cluster.features}
    plan = ImportPlan(there_already=sorted(set(wanted) & set(existing)))
    plan.topics = sorted(set(wanted) - set(existing))
    level = levels.get(METADATA_VERSION, 0)
    if not level:
        plan.add(
            [each for each in image.features.records() if isinstance(each, rec.FeatureLevelRecord)]
        )
        level = image.level
    active = {each.id for each in cluster.brokers if not each.is_fenced}
    for group in _topic_groups(image, plan.topics, active):
        plan.add(_at(group, level))
    if not only_topics:
        there = await client.ask(r.DescribeAcls())
        check(there)
        others = list(_others(image, set(there.acls)))
        for record in _at(others, level):
            if isinstance(record, rec.ProducerIdsRecord):
                plan.producer_ids = record
            else:
                plan.add([record])
    return plan


def _at(records: Iterable[AnyRecord], level: int) -> list[AnyRecord]:
    """Convert records to the versions that the quorum's metadata.version allows."""
    return [
        record if isinstance(record, rec.UnknownRecord) else at_level(record, level or LATEST_LEVEL)
        for record in records
    ]


def _topic_groups(
    image: MetadataImage, names: Iterable[str], active: set[int]
) -> Iterator[list[AnyRecord]]:
    """Yield one group per topic: the records of the topic, its partitions and configurations."""
    for name in names:
        topic_id = image.topics.ids[name]
        group: list[AnyRecord] = [rec.TopicRecord(name, topic_id)]
        partitions = image.topics.partitions(topic_id)
        group += [_led(partitions[index], active) for index in sorted(partitions)]
        group += [
            rec.ConfigRecord(int(ConfigResourceType.TOPIC), name, key, value)
            for key, value in image.configs.of(ConfigResourceType.TOPIC, name).items()
        ]
        yield group


def _led(partition: rec.PartitionRecord, active: set[int]) -> rec.PartitionRecord:
    if partition.leader == NO_LEADER or partition.leader in active:
        return partition
    return replace(
        partition,
        leader=NO_LEADER,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
    )


def _others(image: MetadataImage, acls: set[r.Acl]) -> Iterator[AnyRecord]:
    for record in image.records():
        if isinstance(record, (*LEFT_OUT, *OF_TOPICS)):
            continue
        if (
            isinstance(record, rec.ConfigRecord)
            and record.resource_type == ConfigResourceType.TOPIC
        ):
            continue
        if isinstance(record, rec.AccessControlEntryRecord) and acl_of(record) in acls:
            continue
        yield record


async def _append(quorum: QuorumClient, plan: ImportPlan, advance: Callable[[int], None]) -> None:
    """Append the groups in consecutive batches, without splitting a group."""
    batch: list[tuple[bytes | None, bytes]] = []
    size = 0
    for group in plan.groups:
        values = [rec.encode(record, record.version) for record in group]
        group_size = sum(map(len, values))
        full = len(batch) + len(values) > BATCH_RECORDS_MAX or size + group_size > BATCH_BYTES_MAX
        if batch and full:
            await quorum.append(batch)
            advance(len(batch))
            batch, size = [], 0
        batch += [(None, value) for value in values]
        size += group_size
    if batch:
        await quorum.append(batch)
        advance(len(batch))
    if plan.producer_ids is not None:
        try:
            await quorum.append([(None, rec.encode(plan.producer_ids, plan.producer_ids.version))])
        except AdminError as error:
            if error.code is not ErrorCode.INVALID_RECORD:
                raise
