"""Config changes and their validation.

Topics accept only known configs, with values of the right type. Brokers accept dynamic configs, and
unknown names, which belong to plugins. A per-broker config cannot be set as a cluster-wide default.
A change of min.insync.replicas clears the eligible leader replicas that it affects.

Source: KIP-339, KIP-226, KIP-714, KIP-966, KIP-1066; Kafka's ConfigurationControlManager and
LogConfig.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import NODE_ID_MAX
from quorate.metadata.config import config_defs
from quorate.metadata.config.config_types import VALUE_BYTES_MAX, ConfigKey, split_list
from quorate.metadata.describe import CONFIG_DEFINITIONS, config_definition
from quorate.metadata.image.configs import ConfigResourceType
from quorate.metadata.limits import fits, topic_name_fault
from quorate.metadata.managers.controller_context import ControllerContext, RefusedError
from quorate.metadata.metadata_version import (
    APPLICATION_VERSION,
    CORDONED_LOG_DIRS,
    ELR,
    release_of,
)
from quorate.metadata.requests import (
    AlterConfigs,
    AlterConfigsResponse,
    ConfigChange,
    ConfigOp,
    ConfigOutcome,
    ConfigResource,
    IncrementalAlterConfigs,
)
from quorate.records.metadata import ClearElrRecord, ConfigRecord, MetadataRecord

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
MIN_ISR = "min.insync.replicas"
CORDONED = "cordoned.log.dirs"

_LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]+\.(?:[^.]+\.)??(?=ssl|sasl|principal|max)")


def alter_configs(
    context: ControllerContext, request: IncrementalAlterConfigs | AlterConfigs
) -> tuple[list[MetadataRecord], AlterConfigsResponse]:
    """Alter configs, each resource atomically and independently of the others."""
    times = Counter(change.resource for change in request.changes)
    batch = context.batch()
    outcomes = []
    for change in {each.resource: each for each in request.changes}.values():
        try:
            if times[change.resource] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "Duplicate resource.")
            is_whole = isinstance(request, AlterConfigs)
            batch.add(_altered(context, _replacing(context, change) if is_whole else change))
            outcomes.append(ConfigOutcome(change.resource))
        except RefusedError as refused:
            outcomes.append(ConfigOutcome(change.resource, refused.error, refused.message))
    records = [] if request.validate_only else batch.records
    return records, AlterConfigsResponse(tuple(outcomes))


def _replacing(context: ControllerContext, change: ConfigChange) -> ConfigChange:
    """The change with an operation that deletes each config that it does not set."""
    resource = change.resource
    named = {op.name for op in change.ops}
    before = context.image.configs.of(resource.type, resource.name)
    deleted = (ConfigOp(name, None, DELETE) for name in before if name not in named)
    return ConfigChange(resource, (*change.ops, *deleted))


def _altered(context: ControllerContext, change: ConfigChange) -> list[MetadataRecord]:
    resource = change.resource
    if resource.type not in CONFIG_DEFINITIONS:
        raise RefusedError(ErrorCode.UNSUPPORTED_VERSION, f"Unknown resource type {resource.type}.")
    names = [op.name for op in change.ops]
    if len(set(names)) < len(names):
        raise RefusedError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    before = context.image.configs.of(resource.type, resource.name)
    after = dict(before)
    for op in change.ops:
        value = _value(resource, op, before.get(op.name))
        if value is None:
            after.pop(op.name, None)
        else:
            after[op.name] = value
    if context.elr_enabled and MIN_ISR in names and resource.type == ConfigResourceType.BROKER:
        _check_min_isr(resource, after)
    _check_resource_name(resource)
    # A broker loads a file again when a config that names it is written, so brokers' configs are
    # written although they do not change.
    is_forced = resource.type == ConfigResourceType.BROKER
    changed = [name for name in names if is_forced or before.get(name) != after.get(name)]
    check_configs(resource, after, changed)
    if (
        resource.type == ConfigResourceType.BROKER
        and CORDONED in names
        and context.image.level < CORDONED_LOG_DIRS
    ):
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            f"The {CORDONED} configuration value cannot be set because it requires "
            f"metadata.version >= {release_of(CORDONED_LOG_DIRS)}",
        )
    if resource.type == ConfigResourceType.BROKER:
        _check_application_version(context, after, changed)
    _check_existence(context, resource)
    return _records(context, resource, {name: after.get(name) for name in changed})


def _check_application_version(
    context: ControllerContext, after: Mapping[str, str], changed: Iterable[str]
) -> None:
    """Configs of applications can be set once all nodes act on them. They can always be deleted."""
    level = context.image.features.application_version
    for name in changed:
        if name in config_defs.APPLICATION and name in after and level < 1:
            raise RefusedError(
                ErrorCode.INVALID_CONFIG,
                f"The {name} configuration value cannot be set because it requires "
                f"{APPLICATION_VERSION} >= 1",
            )


def _records(
    context: ControllerContext, resource: ConfigResource, values: Mapping[str, str | None]
) -> list[MetadataRecord]:
    records: list[MetadataRecord] = [
        ConfigRecord(resource.type, resource.name, name, value, version=0)
        for name, value in values.items()
    ]
    if MIN_ISR in values and context.image.level >= ELR and context.elr_enabled:
        # The eligible leader replicas were determined with the old value.
        topic = resource.name if resource.type == ConfigResourceType.TOPIC else ""
        records.append(ClearElrRecord(topic, version=0))
    return records


def topic_config_records(
    context: ControllerContext, topic: str, configs: Iterable[tuple[str, str | None]]
) -> list[MetadataRecord]:
    """The config records of a new topic. RefusedError if a config is invalid."""
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    values: dict[str, str] = {}
    for name, value in configs:
        if value is None:
            raise RefusedError(
                ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}"
            )
        if name in values:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
        values[name] = value
    check_configs(resource, values, list(values))
    return _records(context, resource, values)


def _check_resource_name(resource: ConfigResource) -> None:
    match resource.type:
        case ConfigResourceType.TOPIC:
            if not resource.name:
                raise RefusedError(
                    ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."
                )
            fault = topic_name_fault(resource.name)
            if fault is not None:
                raise RefusedError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}"
                )
        case ConfigResourceType.BROKER:
            fault = _broker_name_fault(resource.name)
            if fault:
                raise RefusedError(ErrorCode.INVALID_REQUEST, fault)
        case ConfigResourceType.CLIENT_METRICS | ConfigResourceType.GROUP:
            if not resource.name:
                is_group = resource.type == ConfigResourceType.GROUP
                raise RefusedError(
                    ErrorCode.INVALID_REQUEST,
                    "Default group resources are not allowed."
                    if is_group
                    else "Subscription name can't be empty",
                )
            if not fits(resource.name):
                raise RefusedError(
                    ErrorCode.INVALID_REQUEST,
                    "The resource name is longer than a record can hold.",
                )


def _broker_name_fault(name: str) -> str:
    """Why no broker has that name, empty if one may have it."""
    if not name:
        return ""
    if not re.fullmatch(r"-?[0-9]{1,10}", name, re.ASCII) or abs(int(name)) > NODE_ID_MAX:
        return "Unable to parse broker name as a base 10 number."
    return "Invalid negative broker ID." if int(name) < 0 else ""


def _check_existence(context: ControllerContext, resource: ConfigResource) -> None:
    if resource.type == ConfigResourceType.TOPIC:
        if resource.name not in context.image.topics.ids:
            raise RefusedError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist."
            )
    elif resource.type == ConfigResourceType.BROKER and resource.name:
        cluster = context.image.cluster
        if int(resource.name) not in cluster.brokers | cluster.controllers:
            raise RefusedError(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {resource.name} found."
            )


def _value(resource: ConfigResource, op: ConfigOp, old: str | None) -> str | None:
    if not op.name or not fits(op.name):
        raise RefusedError(ErrorCode.INVALID_REQUEST, "Invalid config name.")
    if op.operation not in (SET, DELETE, APPEND, SUBTRACT):
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"Unsupported operation type {op.operation}")
    if op.operation == DELETE:
        return None
    if op.value is None:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {op.name}")
    if op.operation == SET:
        return op.value
    definition = config_definition(resource.type, op.name)
    has_lists = resource.type in (ConfigResourceType.TOPIC, ConfigResourceType.BROKER)
    if definition is None or not definition.is_list or not has_lists:
        verb = "APPEND" if op.operation == APPEND else "SUBTRACT"
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {verb} to key {op.name} because its type is not LIST.",
        )
    items = split_list(definition.default or "" if old is None else old)
    named = split_list(op.value)
    if op.operation == APPEND:
        named = named or [""]  # as Kafka's controllers do
        items += [item for item in dict.fromkeys(named) if item not in items]
    else:
        items = [item for item in items if item not in named]
    return ",".join(items)


# --- validation -----------------------------------------------------------------------------------


def check_configs(
    resource: ConfigResource, configs: Mapping[str, str], changed: Iterable[str]
) -> None:
    """Raise INVALID_CONFIG if a changed value, or the combination of values, is invalid."""
    for name in changed:
        value = configs.get(name)
        _check_name(resource, name)
        if value is None:
            continue
        if not fits(value):
            raise RefusedError(
                ErrorCode.INVALID_CONFIG,
                "The configuration value cannot be added because it exceeds the maximum value size "
                f"of {VALUE_BYTES_MAX} bytes.",
            )
        definition = _definition(resource, name)
        fault = None if definition is None else definition.fault(value)
        if fault is not None and resource.type == ConfigResourceType.CLIENT_METRICS:
            raise _client_metrics_fault(name, value, fault)
        if fault is not None:
            raise RefusedError(ErrorCode.INVALID_CONFIG, fault)
    if resource.type == ConfigResourceType.TOPIC:
        _check_topic(configs)
    if resource.type == ConfigResourceType.CLIENT_METRICS:
        _check_client_metrics(configs)


def _definition(resource: ConfigResource, name: str) -> ConfigKey | None:
    if resource.type == ConfigResourceType.BROKER:
        name = _LISTENER_PREFIX.sub("", name)
    return config_definition(resource.type, name)


def _check_name(resource: ConfigResource, name: str) -> None:
    if resource.type != ConfigResourceType.BROKER:
        if name not in CONFIG_DEFINITIONS[resource.type]:
            if resource.type == ConfigResourceType.CLIENT_METRICS:
                text = f"Unknown client metrics configuration: {name}"
                raise RefusedError(ErrorCode.INVALID_REQUEST, text)
            kind = ConfigResourceType(resource.type).name.lower().replace("_", " ")
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"Unknown {kind} config name: {name}")
        return
    if name in config_defs.STATIC_BROKER:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG, f"Cannot update these configs dynamically: {name}"
        )
    if name in config_defs.APPLICATION and resource.name:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot update cluster-wide configs at broker level: {name}",
        )
    is_of_one = name in config_defs.PER_BROKER or name.startswith("listener.name.")
    if is_of_one and not resource.name:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot update per-broker configs at default cluster level: {name}",
        )


def _check_topic(configs: Mapping[str, str]) -> None:
    """Check constraints between values, and that tiered storage stays disabled."""

    def number(name: str) -> int:
        definition = config_defs.TOPIC[name]
        value = configs.get(name)
        # A replayed value may never have been validated.
        if value is None or definition.fault(value) is not None:
            value = definition.default
        return int(value or "0")

    if number("min.compaction.lag.ms") > number("max.compaction.lag.ms"):
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            "conflict topic config setting min.compaction.lag.ms "
            f"({number('min.compaction.lag.ms')}) > max.compaction.lag.ms "
            f"({number('max.compaction.lag.ms')})",
        )
    if configs.get("remote.storage.enable", "false").strip().lower() == "true":
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured "
            "with remote log storage.",
        )


def _client_metrics_fault(name: str, value: str, fault: str) -> RefusedError:
    """The error for an invalid value. Kafka rejects a number out of range as INVALID_REQUEST."""
    if "Not a number" in fault:
        return RefusedError(ErrorCode.INVALID_CONFIG, fault)
    found = config_defs.CLIENT_METRICS[name]
    return RefusedError(
        ErrorCode.INVALID_REQUEST,
        f"Invalid value {value} for {name}, interval must be between {found.low} and {found.high} "
        "(1 hour)",
    )


def _check_client_metrics(configs: Mapping[str, str]) -> None:
    for pattern in split_list(configs.get("match", "")):
        key, _, expression = pattern.partition("=")
        if key.strip() not in config_defs.CLIENT_MATCH_KEYS or not expression:
            raise RefusedError(
                ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}"
            )


def _check_min_isr(resource: ConfigResource, after: Mapping[str, str]) -> None:
    """Allow only a cluster-wide value while ELR is enabled: controllers must agree (KIP-966)."""
    if resource.name:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.",
        )
    if MIN_ISR not in after:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.",
        )
