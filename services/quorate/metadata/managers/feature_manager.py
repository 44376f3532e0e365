"""Feature levels: which levels can be finalized, and the levels of new metadata.

This release, every registered broker and every controller that currently votes or fetches must
support a level. Registrations of other controllers are stale and do not count. metadata.version can
be downgraded only if no metadata can be lost; the downgrade cannot be forced. Enabling eligible
leader replicas fixes min.insync.replicas for the whole cluster (KIP-966).

Source: KIP-584, KIP-778, KIP-966, KIP-1022 (dependencies); Kafka's FeatureControlManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from quorate.common.error_codes import ErrorCode
from quorate.common.features import KRAFT_VERSION, LEVEL_MAX, METADATA_VERSION, VersionRange
from quorate.metadata.image.cluster import ClusterImage
from quorate.metadata.image.configs import ConfigResourceType
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.managers.config_manager import MIN_ISR
from quorate.metadata.managers.controller_context import ControllerContext, RefusedError
from quorate.metadata.managers.controller_manager import current_controllers
from quorate.metadata.metadata_version import (
    APPLICATION_VERSION,
    CONTROLLER_REGISTRATION,
    ELR,
    ELR_VERSION,
    LATEST_LEVEL,
    SUPPORTED,
    loses_metadata,
)
from quorate.metadata.requests import FeatureUpdate, UpdateFeatures, UpdateFeaturesResponse
from quorate.records.metadata import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3

DEPENDENCIES: Final[Mapping[tuple[str, int], tuple[str, int]]] = {
    (ELR_VERSION, 1): (METADATA_VERSION, ELR),
    # Then every voter has registered whether it supports the level.
    (APPLICATION_VERSION, 1): (METADATA_VERSION, CONTROLLER_REGISTRATION),
}
"""Maps (feature, level) to the (feature, minimum level) that it requires."""


def bootstrap_records(levels: Mapping[str, int]) -> list[MetadataRecord]:
    """The records of the levels, metadata.version first: readers need it for the other records."""
    assert levels.get(METADATA_VERSION, 0) > 0, "metadata begins with a metadata.version"
    names = sorted(levels, key=lambda name: (name != METADATA_VERSION, name))
    return [FeatureLevelRecord(name, levels[name], version=0) for name in names if levels[name]]


def update_features(
    context: ControllerContext, request: UpdateFeatures
) -> tuple[list[MetadataRecord], UpdateFeaturesResponse]:
    """Update features, all of them or none."""
    times = Counter(update.name for update in request.updates)
    levels = dict(context.image.features.levels)
    records: list[MetadataRecord] = []
    for update in request.updates:
        if times[update.name] > 1:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"{update.name} is named twice.")
        _check(context, update)
        records.append(FeatureLevelRecord(update.name, update.level, version=0))
        levels[update.name] = update.level
    _check_dependencies(levels)
    # metadata.version comes first: the other records may need it.
    records.sort(key=lambda r: isinstance(r, FeatureLevelRecord) and r.name != METADATA_VERSION)
    records += _elr_records(context, levels)
    return [] if request.validate_only else records, UpdateFeaturesResponse()


def _refuse(update: FeatureUpdate, reason: str) -> RefusedError:
    return RefusedError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {update.level} for feature {update.name}. {reason}",
    )


def _check(context: ControllerContext, update: FeatureUpdate) -> None:
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _refuse(update, "The controller does not support the given upgrade type.")
    if update.name == KRAFT_VERSION:
        raise _refuse(
            update, "The quorum manages this feature: use UpdateFeatures of the quorum service."
        )
    if update.level < 0:
        raise _refuse(update, "A feature version cannot be less than 0.")
    supported = SUPPORTED.get(update.name)
    who = f"Local controller {context.node_id}"
    if supported is None and update.level == 0:
        raise _refuse(update, f"Feature {update.name} not found.")
    if supported is None:
        raise _refuse(update, f"{who} does not support this feature.")
    if update.level not in supported:
        raise _refuse(update, f"{who} only supports versions {_kafkas_text(supported)}")
    current = context.image.features.levels.get(update.name, 0)
    _check_nodes(context, update)
    if update.level == current:
        return
    if update.name == METADATA_VERSION and context.image.features.migration_is_under_way:
        raise _refuse(
            update, "Unable to modify metadata.version while a ZK migration is in progress."
        )
    if update.name == APPLICATION_VERSION and context.image.features.kafka_nodes:
        raise _refuse(
            update, "Kafka's nodes use this quorum, which therefore has no records of applications."
        )
    if update.level > current and update.upgrade_type != UPGRADE:
        raise _refuse(update, "Can't downgrade to a newer version.")
    if update.level < current:
        _check_downgrade(update, current)


def _check_downgrade(update: FeatureUpdate, current: int) -> None:
    if update.upgrade_type == UPGRADE:
        raise _refuse(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade.",
        )
    if update.name == METADATA_VERSION and loses_metadata(current, update.level):
        reason = (
            "Refusing to perform the requested downgrade because it might delete metadata "
            "information."
            if update.upgrade_type == SAFE_DOWNGRADE
            else "Unsafe metadata downgrade is not supported in this version."
        )
        raise RefusedError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Unsupported {METADATA_VERSION} downgrade from {current} to {update.level}. {reason}",
        )


def kraft_versions(cluster: ClusterImage) -> dict[int, VersionRange]:
    """The kraft.version range of each registered broker, 0 to 0 if it registered none."""
    return {
        broker_id: _range(broker, KRAFT_VERSION) or VersionRange(0, 0)
        for broker_id, broker in cluster.brokers.items()
    }


def _check_nodes(context: ControllerContext, update: FeatureUpdate) -> None:
    for broker_id, broker in sorted(context.image.cluster.brokers.items()):
        _check_node(update, f"Broker {broker_id}", _range(broker, update.name), "")
    for controller_id, controller in current_controllers(context):
        who = f"Controller {controller_id}"
        if controller is None:
            raise _refuse(
                update,
                f"{who} is a voter but has not registered the versions that it supports: start "
                "it with a release that registers, or remove it from the voters",
            )
        found = _range(controller, update.name)
        _check_node(update, who, found, _why_limited(found))


def _check_node(update: FeatureUpdate, who: str, found: VersionRange | None, why: str) -> None:
    """Check that a node supports the level. found: what it registered."""
    if update.level in (found or VersionRange(0, 0)):
        return
    if found is None or found.max == 0:
        raise _refuse(update, f"{who} does not support this feature.")
    raise _refuse(update, f"{who} only supports versions {_kafkas_text(found)}{why}")


def _kafkas_text(versions: VersionRange) -> str:
    """A range as Kafka's messages show it."""
    if versions.min == versions.max:
        return str(versions.min)
    return f"{versions.min}+" if versions.max == LEVEL_MAX else str(versions)


def _why_limited(found: VersionRange | None) -> str:
    """The likely reason why a controller supports less than this release, empty if unknown."""
    if found is None or found.max >= LATEST_LEVEL:
        return ""
    return ": start it with this release, which registers what it supports"


def _range(node: RegisterBrokerRecord | RegisterControllerRecord, name: str) -> VersionRange | None:
    ranges = (
        VersionRange(feature.min_supported_version, feature.max_supported_version)
        for feature in node.features
        if feature.name == name
    )
    return next(ranges, None)


def _check_dependencies(levels: Mapping[str, int]) -> None:
    for (name, level), (needed, least) in DEPENDENCIES.items():
        if levels.get(name, 0) >= level and levels.get(needed, 0) < least:
            raise RefusedError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"{name} could not be set to {levels[name]} because it depends on {needed} level "
                f"{least}",
            )


def _elr_records(context: ControllerContext, levels: Mapping[str, int]) -> list[MetadataRecord]:
    is_on = levels.get(ELR_VERSION, 0) > 0
    if is_on == context.elr_enabled:
        return []
    if not is_on:
        return []  # each partition loses its eligible replicas with its next change
    return elr_safety_records(context.image)


def elr_safety_records(image: MetadataImage) -> list[MetadataRecord]:
    """The records that fix min.insync.replicas for the whole cluster (KIP-966)."""
    broker = int(ConfigResourceType.BROKER)
    records: list[MetadataRecord] = []
    if MIN_ISR not in image.configs.of(broker, ""):
        records.append(ConfigRecord(broker, "", MIN_ISR, "1", version=0))
    records += [
        ConfigRecord(broker, name, MIN_ISR, None, version=0)
        for (kind, name), configs in image.configs.resources.items()
        if kind == broker and name and MIN_ISR in configs
    ]
    return records
