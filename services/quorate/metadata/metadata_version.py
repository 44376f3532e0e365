"""The record types and record versions that each level of metadata.version allows.

Levels are Kafka's feature levels: 7 is 3.3-IV3, 30 is 4.3-IV0. An image without a finalized level
(0) is written at the latest level. Levels below 7 can be read, and are written in the oldest record
versions.

Source: KIP-778 (metadata.version), KIP-584; the levels are those of Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Final

from quorate.common.features import METADATA_VERSION, VersionRange
from quorate.records.metadata import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)

ELR_VERSION = "eligible.leader.replicas.version"
APPLICATION_VERSION = "application.version"

MINIMUM_LEVEL = 7
LATEST_LEVEL = 30

RELEASES: Final = {
    7: "3.3-IV3", 8: "3.4-IV0", 9: "3.5-IV0", 10: "3.5-IV1", 11: "3.5-IV2", 12: "3.6-IV0",
    13: "3.6-IV1", 14: "3.6-IV2", 15: "3.7-IV0", 16: "3.7-IV1", 17: "3.7-IV2", 18: "3.7-IV3",
    19: "3.7-IV4", 20: "3.8-IV0", 21: "3.9-IV0", 22: "4.0-IV0", 23: "4.0-IV1", 24: "4.0-IV2",
    25: "4.0-IV3", 26: "4.1-IV0", 27: "4.1-IV1", 28: "4.2-IV0", 29: "4.2-IV1", 30: "4.3-IV0",
}  # fmt: skip
"""The Kafka release name of each level."""

SUPPORTED: Final[dict[str, VersionRange]] = {
    METADATA_VERSION: VersionRange(MINIMUM_LEVEL, LATEST_LEVEL),
    ELR_VERSION: VersionRange(0, 1),
    APPLICATION_VERSION: VersionRange(0, 1),
    "group.version": VersionRange(0, 1),
    "share.version": VersionRange(0, 1),
    "streams.version": VersionRange(0, 1),
    "transaction.version": VersionRange(0, 2),
}
"""The features that this release can finalize (kraft.version belongs to the quorum). Brokers
implement groups, shares, streams and transactions; the controller only stores their levels.
application.version belongs to the records of applications (`quorate.applications`)."""

FEATURE_SINCE: Final = {
    "group.version": 22,
    "transaction.version": 24,
    ELR_VERSION: 26,
    "share.version": 28,
    "streams.version": 28,
}
"""The level of metadata.version from which Kafka finalizes a feature by default."""

CHANGED_METADATA: Final = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30})
"""Levels that introduced records or fields: a downgrade below one of them would lose these."""

IN_CONTROLLED_SHUTDOWN = 7
SCRAM = 11
NO_EPOCH_BUMP_ON_SHRINK = 12
DELEGATION_TOKENS = 14
CONTROLLER_REGISTRATION = 15
DIRECTORIES = 17
ELR = 23
CORDONED_LOG_DIRS = 30
LEADER_RECOVERY = 4
REGISTRATION_CHANGES = 5
NO_OP = 4

_PARTITION_SINCE = ((ELR, 2), (DIRECTORIES, 1), (0, 0))
_REGISTER_SINCE = ((CORDONED_LOG_DIRS, 4), (DIRECTORIES, 3), (8, 2), (IN_CONTROLLED_SHUTDOWN, 1))


def release_of(level: int) -> str:
    """The release name of a level: 4.3-IV0 for 30."""
    return RELEASES.get(level, f"level {level}")


def level_of_release(name: str) -> int | None:
    """The level of "4.3-IV0", the highest level of "4.3", None for an unknown release."""
    found = [
        level for level, text in RELEASES.items() if text == name or text.split("-")[0] == name
    ]
    return max(found, default=None)


def levels_of(level: int) -> dict[str, int]:
    """The metadata.version at `level`, and Kafka's default levels of the other features with it."""
    return {METADATA_VERSION: level} | {
        name: SUPPORTED[name].max if level >= since else 0 for name, since in FEATURE_SINCE.items()
    }


def loses_metadata(current: int, level: int) -> bool:
    """Whether a downgrade from `current` to `level` may lose metadata."""
    return any(level < changed <= current for changed in CHANGED_METADATA)


@cache
def partition_version(level: int) -> int:
    """The version of PartitionRecord and PartitionChangeRecord at a level."""
    return next(version for since, version in _PARTITION_SINCE if level >= since)


def register_broker_version(level: int) -> int:
    return next((version for since, version in _REGISTER_SINCE if level >= since), 0)


def at_level(record: MetadataRecord, level: int) -> MetadataRecord:
    """The record at the version that the level allows, without fields which that version lacks."""
    match record:
        case PartitionRecord() | PartitionChangeRecord():
            return _partition_at(record, partition_version(level))
        case RegisterBrokerRecord():
            return _registration_at(record, register_broker_version(level))
        case BrokerRegistrationChangeRecord():
            return replace(record, version=_change_version(record), unknown_tags=())
    return record if record.version == 0 else replace(record, version=0)


def _partition_at(
    record: PartitionRecord | PartitionChangeRecord, version: int
) -> PartitionRecord | PartitionChangeRecord:
    if record.version == version:
        return record
    if version < 2 and (record.eligible_leader_replicas or record.last_known_elr):
        record = replace(record, eligible_leader_replicas=None, last_known_elr=None)
    if version < 1 and record.directories:
        if isinstance(record, PartitionRecord):
            record = replace(record, directories=())
        else:
            record = replace(record, directories=None)
    return replace(record, version=version)


def _registration_at(record: RegisterBrokerRecord, version: int) -> RegisterBrokerRecord:
    if record.version == version:
        return record
    return replace(
        record,
        version=version,
        in_controlled_shutdown=record.in_controlled_shutdown and version >= 1,
        is_migrating_zk_broker=record.is_migrating_zk_broker and version >= 2,
        log_dirs=record.log_dirs if version >= 3 else (),
        cordoned_log_dirs=record.cordoned_log_dirs if version >= 4 else None,
    )


def _change_version(record: BrokerRegistrationChangeRecord) -> int:
    if record.cordoned_log_dirs is not None:
        return 3
    if record.log_dirs:
        return 2
    return 1 if record.in_controlled_shutdown else 0
