"""`quorate topics`: Kafka's `kafka-topics`, and the import of a Kafka cluster's metadata.

Kafka's actions are subcommands here, and its options keep their names. As in Kafka's tool,
describe, list, alter and delete take a topic name or a regular expression.

Source: Kafka's TopicCommand; messages are Kafka's.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quorate.cli.connection import (
    CHANGE_TIMEOUT_S,
    READ_TIMEOUT_S,
    asking,
    connected,
)
from quorate.cli.metadata_run import (
    chunks,
    failure,
    names_of,
    progress_bar,
    run_metadata,
    tell_failures,
    topic_expression,
)
from quorate.cli.options import AsJson, DryRun
from quorate.cli.output import (
    CommandError,
    UsageError,
    print_json,
    print_line,
    print_result,
    print_warning,
)
from quorate.common.identifiers import INTERNAL_TOPICS

if TYPE_CHECKING:
    from quorate.metadata.requests import CreatedTopic, TopicDescription
    from quorate.rpc.metadata_client import MetadataClient

app = typer.Typer(rich_markup_mode=None, add_completion=False)

TOPICS_PER_REQUEST = 200
PARTITIONS_PER_REQUEST = 5_000
"""New partitions per request, which is one batch: Kafka rejects more than 10,000 records."""
DESCRIBED_PER_REQUEST = 20_000

TopicName = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="NAME", help="The topic; may be repeated."),
]
TopicPattern = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", metavar="NAME", help="A name or a regular expression; may be repeated."
    ),
]
TopicsFile = Annotated[
    Path | None,
    typer.Option(
        "--topics-file", metavar="FILE", help="A file with more names, one per line; - is stdin."
    ),
]
Partitions = Annotated[
    int | None, typer.Option("--partitions", metavar="N", min=1, help="Number of partitions.")
]
Assignment = Annotated[
    str | None,
    typer.Option(
        "--replica-assignment",
        metavar="1:2,2:3,…",
        help="The brokers of each partition, instead of letting the controller choose.",
    ),
]
UnderReplicated = Annotated[
    bool,
    typer.Option("--under-replicated-partitions", help="Only under-replicated partitions."),
]
Unavailable = Annotated[
    bool, typer.Option("--unavailable-partitions", help="Only partitions without a leader.")
]
UnderMinIsr = Annotated[
    bool,
    typer.Option(
        "--under-min-isr-partitions",
        help="Only partitions whose ISR is smaller than min.insync.replicas.",
    ),
]
AtMinIsr = Annotated[
    bool,
    typer.Option(
        "--at-min-isr-partitions", help="Only partitions whose ISR equals min.insync.replicas."
    ),
]
WithOverrides = Annotated[
    bool,
    typer.Option(
        "--topics-with-overrides", help="Only topics with configurations, without partitions."
    ),
]
IfExists = Annotated[bool, typer.Option("--if-exists", help="No error if no topic matches.")]
ExcludeInternal = Annotated[
    bool, typer.Option("--exclude-internal", help="Exclude internal topics.")
]


@app.callback()
@connected
def topics(context: typer.Context) -> None:
    """Create, describe, list, alter and delete topics; import those of a Kafka cluster.

    \b
    quorate topics --bootstrap-controller H:P create --topic orders --partitions 6
    quorate topics … describe --topic orders
    quorate topics … alter --topic orders --partitions 12
    quorate topics … import --from /var/lib/kafka/metadata
    """


# --- create, alter, delete ------------------------------------------------------------------------


@app.command("create")
@asking
def create(
    context: typer.Context,
    *,
    topic: TopicName = None,
    topics_file: TopicsFile = None,
    partitions: Partitions = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor", metavar="N", min=1, help="Number of replicas per partition."
        ),
    ] = None,
    replica_assignment: Assignment = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=VALUE", help="A configuration; may be repeated."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="No error if the topic already exists.")
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Create topics. Omitted options have the cluster's defaults."""
    from quorate.common.error_codes import ErrorCode
    from quorate.metadata.requests import CreateTopics, NewTopic

    names = _given(topic, topics_file)
    assignments = _assignments(replica_assignment)
    if assignments and (partitions is not None or replication_factor is not None):
        raise UsageError(
            "--replica-assignment determines --partitions and --replication-factor: omit both"
        )
    configs = tuple(_config_pair(text) for text in config or ())
    wanted = [
        NewTopic(name, partitions or -1, replication_factor or -1, assignments, configs)
        for name in names
    ]
    size = max(1, min(TOPICS_PER_REQUEST, PARTITIONS_PER_REQUEST // (partitions or 1)))

    async def ask(client: MetadataClient) -> list[Any]:
        created: list[Any] = []
        with progress_bar("creating topics", len(wanted)) as advance:
            for some in chunks(wanted, size):
                answer = await client.ask(CreateTopics(tuple(some), dry_run))
                created += answer.topics
                advance(len(some))
        return created

    created = run_metadata(context, ask, CHANGE_TIMEOUT_S, changes=True)
    if if_not_exists:
        created = [each for each in created if each.error is not ErrorCode.TOPIC_ALREADY_EXISTS]
    print_result(
        as_json,
        [_created_json(each) for each in created],
        *(
            f"{each.name} can be created." if dry_run else f"Created topic {each.name}."
            for each in created
            if failure(each) is None
        ),
    )
    if any("." in name or "_" in name for name in names):
        print_warning(
            "due to limitations in metric names, topics with a period ('.') or underscore ('_') "
            "could collide: use either, but not both"
        )
    tell_failures(((each.name, each) for each in created), len(wanted))


def _created_json(created: CreatedTopic) -> dict[str, Any]:
    return {
        "name": created.name,
        "topicId": created.topic_id,
        "partitions": created.partitions,
        "replicationFactor": created.replication_factor,
        "error": failure(created),
    }


@app.command("alter")
@asking
def alter(
    context: typer.Context,
    *,
    topic: TopicPattern = None,
    partitions: Annotated[
        int, typer.Option("--partitions", metavar="N", min=1, help="The new number of partitions.")
    ],
    replica_assignment: Assignment = None,
    if_exists: IfExists = False,
    as_json: AsJson = False,
) -> None:
    """Add partitions to topics. Partitions cannot be removed."""
    from quorate.metadata.requests import CreatePartitions, NewPartitions

    assignments = _assignments(replica_assignment)

    async def ask(client: MetadataClient) -> Any:
        found = _matching(await _described(client), topic, if_exists)
        wanted = []
        for each in found:
            new = assignments[len(each.partitions) :] if assignments else None
            wanted.append(NewPartitions(each.name, partitions, new))
        return (await client.ask(CreatePartitions(tuple(wanted)))).topics if wanted else ()

    if not topic:
        raise UsageError("--topic is missing")
    outcomes = run_metadata(context, ask, CHANGE_TIMEOUT_S, changes=True)
    _tell(outcomes, as_json, "Altered")


@app.command("delete")
@asking
def delete(
    context: typer.Context,
    *,
    topic: TopicPattern = None,
    topic_id: Annotated[
        list[str] | None, typer.Option("--topic-id", metavar="UUID", help="A topic by its id.")
    ] = None,
    if_exists: IfExists = False,
    as_json: AsJson = False,
) -> None:
    """Delete topics and their data."""
    from quorate.metadata.requests import DeleteTopics, TopicRef

    async def ask(client: MetadataClient) -> list[Any]:
        wanted = [TopicRef(topic_id=each) for each in topic_id or ()]
        if topic:
            found = _matching(await _described(client), topic, if_exists)
            wanted += [TopicRef(each.name) for each in found]
        outcomes: list[Any] = []
        with progress_bar("deleting topics", len(wanted)) as advance:
            for some in chunks(wanted, TOPICS_PER_REQUEST):
                outcomes += (await client.ask(DeleteTopics(tuple(some)))).topics
                advance(len(some))
        return outcomes

    if not topic and not topic_id:
        raise UsageError("--topic or --topic-id is missing")
    _tell(run_metadata(context, ask, CHANGE_TIMEOUT_S, changes=True), as_json, "Deleted")


def _tell(outcomes: Any, as_json: bool, done: str) -> None:
    """Print what became of each topic. done: what was done to those without an error."""
    if as_json:
        print_json([{"name": each.name, "error": failure(each)} for each in outcomes])
    else:
        for each in outcomes:
            if failure(each) is None:
                print_line(f"{done} topic {each.name}.")
    tell_failures(((each.name, each) for each in outcomes), len(outcomes))


# --- describe, list -------------------------------------------------------------------------------


@app.command("list")
@asking
def list_topics(
    context: typer.Context,
    *,
    topic: TopicPattern = None,
    exclude_internal: ExcludeInternal = False,
    as_json: AsJson = False,
) -> None:
    """Print the names of topics."""
    found = run_metadata(context, _described, READ_TIMEOUT_S)
    names = sorted(
        each.name
        for each in _matching(found, topic, missing_is_fine=True)
        if not (exclude_internal and _is_internal(each))
    )
    print_result(as_json, names, *names)


@app.command("describe")
@asking
def describe(
    context: typer.Context,
    *,
    topic: TopicPattern = None,
    topic_id: Annotated[
        str | None, typer.Option("--topic-id", metavar="UUID", help="The topic with this id.")
    ] = None,
    exclude_internal: ExcludeInternal = False,
    if_exists: IfExists = False,
    under_replicated_partitions: UnderReplicated = False,
    unavailable_partitions: Unavailable = False,
    under_min_isr_partitions: UnderMinIsr = False,
    at_min_isr_partitions: AtMinIsr = False,
    topics_with_overrides: WithOverrides = False,
    as_json: AsJson = False,
) -> None:
    """Print topics, their partitions and their configurations."""
    from quorate.cli.topics import text

    only = [
        name
        for name, wanted in (
            (text.UNDER_REPLICATED, under_replicated_partitions),
            (text.UNAVAILABLE, unavailable_partitions),
            (text.UNDER_MIN_ISR, under_min_isr_partitions),
            (text.AT_MIN_ISR, at_min_isr_partitions),
        )
        if wanted
    ]
    if len(only) + topics_with_overrides > 1:
        raise UsageError("the options that select partitions or topics cannot be used together")

    async def ask(client: MetadataClient) -> tuple[list[TopicDescription], text.Configs]:
        found = await _described(client)
        if topic_id is not None:
            found = [each for each in found if each.topic_id == topic_id]
            if not found and not if_exists:
                raise CommandError(f"TopicId '{topic_id}' does not exist as expected")
        found = [
            each
            for each in _matching(found, topic, if_exists)
            if not (exclude_internal and _is_internal(each))
        ]
        return found, await text.effective_configs(client, [each.name for each in found])

    found, configs = run_metadata(context, ask, READ_TIMEOUT_S)
    if as_json:
        print_json([text.topic_json(each, configs[each.name]) for each in found])
        return
    for each in found:
        for line in text.topic_lines(
            each, configs[each.name], only[0] if only else None, topics_with_overrides
        ):
            print_line(line)


async def _described(client: MetadataClient) -> list[TopicDescription]:
    """Fetch all topics, page by page."""
    from quorate.metadata.requests import DescribeTopics

    found: dict[str, TopicDescription] = {}
    cursor = None
    while True:
        answer = await client.ask(DescribeTopics(None, cursor, DESCRIBED_PER_REQUEST))
        for each in answer.topics:
            known = found.setdefault(each.name, each)
            if known is not each:
                found[each.name] = replace(each, partitions=known.partitions + each.partitions)
        cursor = answer.next_cursor
        if cursor is None:
            return list(found.values())


def _matching(
    found: list[TopicDescription], patterns: list[str] | None, missing_is_fine: bool
) -> list[TopicDescription]:
    """Return the topics that match one of the names or regular expressions."""
    if not patterns:
        return found
    chosen: dict[str, TopicDescription] = {}
    for pattern in patterns:
        expression = topic_expression(pattern)
        matched = [each for each in found if expression.fullmatch(each.name)]
        if not matched and not missing_is_fine:
            raise CommandError(f"Topic '{pattern}' does not exist as expected")
        chosen |= {each.name: each for each in matched}
    return [each for each in found if each.name in chosen]


def _is_internal(topic: TopicDescription) -> bool:
    return topic.is_internal or topic.name in INTERNAL_TOPICS


# --- import ---------------------------------------------------------------------------------------


@app.command("import")
@asking
def import_topics(
    context: typer.Context,
    *,
    source: Annotated[
        Path,
        typer.Option(
            "--from",
            metavar="DIR|FILE",
            help="A stopped controller's metadata.log.dir, or a checkpoint.",
        ),
    ],
    topic: TopicPattern = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Import a Kafka cluster's metadata into a running quorum.

    Topics keep their ids, partitions, replicas and epochs. Configurations, quotas, SCRAM users,
    ACLs, delegation tokens and the next producer id are imported too, and so are feature levels if
    the quorum has none yet. Brokers and controllers are not: they register themselves. With
    --topic, only these topics and their configurations are imported. If a topic has the name of an
    existing topic but another id, the import is rejected before anything is written. An interrupted
    import can be run again: existing topics stay unchanged.
    """
    from quorate.cli.topics.metadata_import import import_metadata

    import_metadata(context, source, topic, dry_run=dry_run, as_json=as_json)


# --- reading options ------------------------------------------------------------------------------


def _given(topic: list[str] | None, topics_file: Path | None) -> tuple[str, ...]:
    names = list(topic or ())
    if topics_file is not None:
        text = sys.stdin.read() if str(topics_file) == "-" else topics_file.read_text("utf-8")
        names += [line.strip() for line in text.splitlines() if line.strip()]
    if not names:
        raise UsageError("--topic is missing")
    return names_of(names)


def _assignments(text: str | None) -> tuple[tuple[int, ...], ...]:
    if text is None:
        return ()
    try:
        found = tuple(tuple(int(b) for b in part.split(":")) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--replica-assignment {text}: expected the form 1:2,2:3") from None
    if len({len(replicas) for replicas in found}) > 1:
        raise UsageError(
            f"--replica-assignment {text}: all partitions need the same number of replicas"
        )
    return found


def _config_pair(text: str) -> tuple[str, str | None]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise UsageError(f"--config {text}: expected name=value")
    return name.strip(), value.strip()
