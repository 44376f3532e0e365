"""Checks of what a Kafka quorum's log contains: its feature levels, voters and records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from quorate.common.features import KRAFT_VERSION, METADATA_VERSION
from quorate.controller.takeover.finding import TakeoverCheck, failed, note, ok
from quorate.metadata.image.metadata_image import MetadataImage, type_of
from quorate.metadata.metadata_version import MINIMUM_LEVEL, SUPPORTED, release_of
from quorate.raft.types import SUPPORTED_KRAFT_VERSION, VoterSet


def check_features(
    levels: Mapping[str, int], metadata_version_max: int, kraft_version: int
) -> Iterator[TakeoverCheck]:
    """Check the finalized feature levels.

    levels: the finalized ones, without kraft.version. metadata_version_max: the highest that a
    controller with these settings can serve.
    """
    level = levels.get(METADATA_VERSION, 0)
    if MINIMUM_LEVEL <= level <= metadata_version_max:
        yield ok(METADATA_VERSION, f"{level} ({release_of(level)})")
    elif level < MINIMUM_LEVEL:
        yield failed(
            METADATA_VERSION,
            f"{level} is below {MINIMUM_LEVEL} ({release_of(MINIMUM_LEVEL)})",
            "start Kafka's controllers and upgrade it with kafka-features",
        )
    else:
        yield failed(
            METADATA_VERSION,
            f"{level} is above {metadata_version_max} ({release_of(metadata_version_max)}), the "
            "highest that this release serves to Kafka's brokers",
            "use a later release of Quorate",
        )
    for name, found in sorted(levels.items()):
        if name == METADATA_VERSION:
            continue
        if name in SUPPORTED and found in SUPPORTED[name]:
            yield ok(name, str(found))
        else:
            yield failed(
                name,
                f"level {found} is not supported",
                "downgrade it with kafka-features while Kafka's controllers run, or use a later "
                "release of Quorate",
            )
    if kraft_version in SUPPORTED_KRAFT_VERSION:
        how = "dynamic voters, in the log" if kraft_version else "controller.quorum.voters"
        yield ok(KRAFT_VERSION, f"{kraft_version} ({how})")
    else:
        yield failed(
            KRAFT_VERSION, f"{kraft_version} is not supported", "use a later release of Quorate"
        )


def check_image(image: MetadataImage) -> Iterator[TakeoverCheck]:
    """The records that the image results from; features apart."""
    if image.unknown:
        kinds = ", ".join(sorted({type_of(record) for record in image.unknown}))
        yield failed(
            "records",
            f"{len(image.unknown)} records of types that this release does not know: {kinds}",
            "use a later release of Quorate",
        )
    else:
        counts = f"{len(image.topics.ids)} topics, {image.topics.partition_count} partitions"
        yield ok("records", f"all types are known, to offset {image.offset}; {counts}")
    if image.in_transaction:
        yield note(
            "transactions",
            "a metadata transaction is open: the first leader aborts it, as Kafka's would",
        )
    else:
        yield ok("transactions", "no metadata transaction is open")
    if image.features.migration_is_under_way:
        yield failed(
            "migration",
            "a migration from ZooKeeper is under way",
            "end it with Kafka's controllers first",
        )
    if tokens := len(image.tokens.tokens):
        yield note("delegation tokens", f"{tokens}, which are kept")
    else:
        yield ok("delegation tokens", "none")


def check_voters(voters: VoterSet, listener: str | None) -> Iterator[TakeoverCheck]:
    """Check the voters in the log.

    listener: the name of the listener that brokers dial, None if it is not known.
    """
    if not len(voters):
        yield failed("voters", "none are known", "name the controller's properties with --config")
        return
    shown = "; ".join(
        f"{voter.id} at {', '.join(map(str, voter.endpoints)) or 'an unknown address'}"
        for voter in voters
    )
    lacking = [
        str(voter.id)
        for voter in voters
        if listener is not None and listener not in {each.name for each in voter.endpoints}
    ]
    if lacking:
        yield failed(
            "voters",
            f"{shown}: voters {', '.join(lacking)} have no endpoint of {listener}, the listener "
            "that brokers dial",
            f"make {listener} the first of controller.listener.names of Kafka's controllers, and "
            "restart them",
        )
    else:
        yield ok("voters", shown)
