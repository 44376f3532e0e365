"""Responses to metadata reads, as functions over a committed image.

`answer` handles any `Read`; the other functions serve callers that have their own image. No
function changes the image. All results are in a fixed order: by name, id or number.

Source: KIP-4, KIP-966 (paged topics), KIP-546, KIP-554, KIP-919; Kafka's image and admin client.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.common.identifiers import INTERNAL_TOPICS, ZERO_UUID
from quorate.metadata import requests as r
from quorate.metadata.acls import OPERATIONS, PATTERN_TYPES, RESOURCE_TYPES, acl_of
from quorate.metadata.config import config_defs
from quorate.metadata.config.config_types import ConfigKey
from quorate.metadata.image.cluster import Broker, Controller
from quorate.metadata.image.configs import ConfigResourceType
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.image.partitions import Partition, is_reassigning
from quorate.metadata.metadata_version import SUPPORTED

TOPIC_SOURCE, BROKER_SOURCE, DEFAULT_BROKER_SOURCE, DEFAULT_SOURCE = 1, 2, 3, 5
GROUP_SOURCE, CLIENT_METRICS_SOURCE = 8, 7

CONFIG_DEFINITIONS: Final[Mapping[int, Mapping[str, ConfigKey]]] = {
    ConfigResourceType.TOPIC: config_defs.TOPIC,
    ConfigResourceType.BROKER: config_defs.BROKER,
    ConfigResourceType.CLIENT_METRICS: config_defs.CLIENT_METRICS,
    ConfigResourceType.GROUP: config_defs.GROUP,
}
"""The definitions of Kafka's configs by resource type."""


def config_definition(resource_type: int, name: str) -> ConfigKey | None:
    """The definition of a config, None if it is unknown."""
    found = CONFIG_DEFINITIONS.get(resource_type, {}).get(name)
    if found is None and resource_type == ConfigResourceType.BROKER:
        return config_defs.APPLICATION.get(name)
    return found


def answer(
    image: MetadataImage, read: r.Read, supported: Mapping[str, VersionRange] = SUPPORTED
) -> r.Response:
    """The response to a Read. supported: the features and levels that the node can serve."""
    if isinstance(read, r.DescribeCluster):
        return describe_cluster(image, read, supported)
    return _ANSWERS[type(read)](image, read)


# --- topics ---------------------------------------------------------------------------------------


def describe_topics(image: MetadataImage, read: r.DescribeTopics) -> r.DescribeTopicsResponse:
    """Describe topics, one page at a time if the request has a limit.

    A missing topic gets UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID, a name that has another id
    INCONSISTENT_TOPIC_ID. A topic that is named twice is described once: each of its descriptions
    may have thousands of partitions.
    """
    if read.topics is None:
        refs = [r.TopicRef(name) for name in sorted(image.topics.ids)]
    else:
        refs = sorted(
            dict.fromkeys(read.topics),
            key=lambda ref: image.topics.names.get(ref.topic_id, ref.name),
        )
    if read.cursor is not None:
        refs = [ref for ref in refs if _name(image, ref) >= read.cursor[0]]
    described: list[r.TopicDescription] = []
    room = read.limit or (1 << 62)
    for ref in refs:
        name = _name(image, ref)
        first = read.cursor[1] if read.cursor is not None and name == read.cursor[0] else 0
        if room <= 0:
            return r.DescribeTopicsResponse(tuple(described), (name, first))
        found = _topic(image, ref, first, room)
        described.append(found)
        room -= max(1, len(found.partitions))
        if found.partitions:
            last = found.partitions[-1].index
            topic = image.topics.partitions(found.topic_id)
            if room <= 0 and last < max(topic):
                return r.DescribeTopicsResponse(tuple(described), (name, last + 1))
    return r.DescribeTopicsResponse(tuple(described))


def _name(image: MetadataImage, ref: r.TopicRef) -> str:
    return ref.name or image.topics.names.get(ref.topic_id, "")


def _topic(image: MetadataImage, ref: r.TopicRef, first: int, limit: int) -> r.TopicDescription:
    name = _name(image, ref)
    topic_id = image.topics.ids.get(name)
    if topic_id is None:
        by_id = not ref.name
        error = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return r.TopicDescription(name, ref.topic_id, error=error)
    if ref.topic_id not in (ZERO_UUID, topic_id):
        return r.TopicDescription(name, topic_id, error=ErrorCode.INCONSISTENT_TOPIC_ID)
    partitions = image.topics.partitions(topic_id)
    chosen = itertools.islice((i for i in sorted(partitions) if i >= first), limit)
    return r.TopicDescription(
        name,
        topic_id,
        tuple(_partition(image, partitions[index]) for index in chosen),
        tuple(sorted(image.configs.of(ConfigResourceType.TOPIC, name).items())),
        name in INTERNAL_TOPICS,
    )


def _partition(image: MetadataImage, partition: Partition) -> r.PartitionDescription:
    brokers = image.cluster.brokers
    offline = tuple(
        replica
        for replica in partition.replicas
        if (broker := brokers.get(replica)) is None or broker.fenced
    )
    return r.PartitionDescription(
        partition.partition_id,
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.replicas,
        partition.isr,
        offline,
        partition.adding_replicas,
        partition.removing_replicas,
        partition.eligible_leader_replicas or (),
        partition.last_known_elr or (),
        partition.leader_recovery_state,
    )


def list_reassignments(
    image: MetadataImage, read: r.ListPartitionReassignments
) -> r.ListPartitionReassignmentsResponse:
    """List ongoing reassignments. An unknown partition has none."""
    if read.partitions is None:
        partitions: Iterable[Partition | None] = image.topics.all_partitions()
    else:
        partitions = (
            image.topics.partition(image.topics.ids.get(name, ""), index)
            for name, index in read.partitions
        )
    found = [
        r.OngoingReassignment(
            image.topics.names[partition.topic_id],
            partition.partition_id,
            partition.replicas,
            partition.adding_replicas,
            partition.removing_replicas,
        )
        for partition in partitions
        if partition is not None and is_reassigning(partition)
    ]
    found.sort(key=lambda item: (item.topic, item.partition))
    return r.ListPartitionReassignmentsResponse(tuple(found))


# --- configs --------------------------------------------------------------------------------------


def describe_configs(image: MetadataImage, read: r.DescribeConfigs) -> r.DescribeConfigsResponse:
    """Describe configs.

    An unknown topic gets UNKNOWN_TOPIC_OR_PARTITION, an unknown resource type INVALID_REQUEST. A
    resource that is named twice is described once.
    """
    resources: Iterable[r.ConfigResource] = dict.fromkeys(read.resources)
    names = None if read.names is None else frozenset(read.names)
    if not read.resources:
        resources = (
            r.ConfigResource(kind, name)
            for kind, name in sorted(image.configs.resources)
            if read.all_of_type in (0, kind)
        )
    return r.DescribeConfigsResponse(
        tuple(_resource_configs(image, resource, read, names) for resource in resources)
    )


def _resource_configs(
    image: MetadataImage,
    resource: r.ConfigResource,
    read: r.DescribeConfigs,
    names: frozenset[str] | None,
) -> r.ResourceConfigs:
    definitions = CONFIG_DEFINITIONS.get(resource.type)
    if definitions is None:
        return r.ResourceConfigs(
            resource,
            error=ErrorCode.INVALID_REQUEST,
            message=f"Unsupported resource type {resource.type}",
        )
    if resource.type == ConfigResourceType.TOPIC and resource.name not in image.topics.ids:
        return r.ResourceConfigs(
            resource,
            error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            message=f"The topic '{resource.name}' does not exist.",
        )
    values: dict[str, r.ConfigValue] = {}
    for configs, source in _layers(image, resource):
        for name, value in configs.items():
            if name not in values:
                definition = config_definition(resource.type, name)
                values[name] = _value(definition, name, value, source)
    if read.with_defaults:
        for name, definition in (*definitions.items(), *_of_applications(image, resource)):
            if name not in values:
                values[name] = _value(definition, name, definition.default, DEFAULT_SOURCE)
    chosen = sorted(values if names is None else names & values.keys())
    return r.ResourceConfigs(resource, tuple(values[name] for name in chosen))


def _of_applications(
    image: MetadataImage, resource: r.ConfigResource
) -> Iterable[tuple[str, ConfigKey]]:
    is_default = resource == r.ConfigResource(ConfigResourceType.BROKER, "")
    is_used = is_default and image.features.application_version > 0
    return config_defs.APPLICATION.items() if is_used else ()


_SOURCES: Final[Mapping[int, int]] = {
    ConfigResourceType.TOPIC: TOPIC_SOURCE,
    ConfigResourceType.BROKER: BROKER_SOURCE,
    ConfigResourceType.CLIENT_METRICS: CLIENT_METRICS_SOURCE,
    ConfigResourceType.GROUP: GROUP_SOURCE,
}


def _layers(
    image: MetadataImage, resource: r.ConfigResource
) -> list[tuple[Mapping[str, str], int]]:
    """The values that are set, and their source, by precedence."""
    layers = []
    if resource.type != ConfigResourceType.BROKER or resource.name:
        own = image.configs.of(resource.type, resource.name)
        layers.append((own, _SOURCES[resource.type]))
    if resource.type == ConfigResourceType.BROKER:
        layers.append((image.configs.of(resource.type, ""), DEFAULT_BROKER_SOURCE))
    return layers


def _value(
    definition: ConfigKey | None, name: str, value: str | None, source: int
) -> r.ConfigValue:
    """Hide sensitive values, and those of unknown configs, which may be a plugin's passwords."""
    secret = definition is None or definition.is_sensitive
    return r.ConfigValue(name, None if secret else value, source, secret)


def is_sensitive(resource_type: int, name: str) -> bool:
    """Whether the value of a config must be hidden, as in `_value`."""
    definition = config_definition(resource_type, name)
    return definition is None or definition.is_sensitive


def effective_topic_config(image: MetadataImage, topic: str, name: str) -> str | None:
    """A topic's effective value: its own, else the cluster-wide default, else Kafka's default."""
    own = image.configs.of(ConfigResourceType.TOPIC, topic).get(name)
    if own is not None:
        return own
    definition = config_defs.TOPIC[name]
    default = image.configs.of(ConfigResourceType.BROKER, "").get(definition.synonym or name)
    return definition.default if default is None else default


# --- quotas and credentials -----------------------------------------------------------------------


def describe_quotas(
    image: MetadataImage, read: r.DescribeClientQuotas
) -> r.DescribeClientQuotasResponse:
    """Describe client quotas.

    INVALID_REQUEST for an empty or duplicate entity type, or for an invalid match.
    """
    types = Counter(chosen.entity_type for chosen in read.filters)
    for chosen in read.filters:
        fault = ""
        if not chosen.entity_type:
            fault = "Invalid empty entity type."
        elif types[chosen.entity_type] > 1:
            fault = f"Entity type {chosen.entity_type} cannot appear more than once."
        elif chosen.match not in (0, 1, 2):
            fault = f"Unknown match type {chosen.match}."
        elif (chosen.match == 0) != (chosen.name is not None):
            fault = "An exact match requires a name, and other matches do not allow one."
        if fault:
            return r.DescribeClientQuotasResponse(
                (), error=ErrorCode.INVALID_REQUEST, message=fault
            )
    entries = [
        (entity, tuple(sorted(quotas.items())))
        for entity, quotas in image.quotas.entities.items()
        if _quota_matches(read, dict(entity))
    ]
    # None, the default entity, sorts before all names.
    entries.sort(key=lambda entry: [(k, n is not None, n or "") for k, n in entry[0]])
    return r.DescribeClientQuotasResponse(tuple(entries))


def _quota_matches(read: r.DescribeClientQuotas, entity: Mapping[str, str | None]) -> bool:
    if read.strict and len(entity) != len(read.filters):
        return False
    for chosen in read.filters:
        if chosen.entity_type not in entity:
            return False
        name = entity[chosen.entity_type]
        if (chosen.match == 0 and name != chosen.name) or (chosen.match == 1 and name is not None):
            return False
    return True


def describe_scram(
    image: MetadataImage, read: r.DescribeUserScramCredentials
) -> r.DescribeUserScramCredentialsResponse:
    """Describe SCRAM credentials.

    A user without credentials gets RESOURCE_NOT_FOUND, a user named twice DUPLICATE_RESOURCE.
    """
    by_user: dict[str, list[tuple[int, int]]] = {}
    for (name, mechanism), credential in sorted(image.scram.credentials.items()):
        by_user.setdefault(name, []).append((mechanism, credential.iterations))
    asked = None if read.users is None else Counter(read.users)
    names = list(by_user) if asked is None else sorted(asked)
    described = []
    for name in names:
        if asked is not None and asked[name] > 1:
            fault = f"Cannot describe SCRAM credentials for the same user twice: {name}"
            found = r.UserScramCredentials(name, error=ErrorCode.DUPLICATE_RESOURCE, message=fault)
        elif name not in by_user:
            fault = f"Attempt to describe a user credential that does not exist: {name}"
            found = r.UserScramCredentials(name, error=ErrorCode.RESOURCE_NOT_FOUND, message=fault)
        else:
            found = r.UserScramCredentials(name, tuple(by_user[name]))
        described.append(found)
    return r.DescribeUserScramCredentialsResponse(tuple(described))


def describe_acls(image: MetadataImage, read: r.DescribeAcls) -> r.DescribeAclsResponse:
    """Describe the ACLs that match a filter. INVALID_REQUEST for unknown codes in the filter."""
    fault = acl_filter_fault(read.filter)
    if fault:
        return r.DescribeAclsResponse((), error=ErrorCode.INVALID_REQUEST, message=fault)
    found = sorted(map(acl_of, image.acls.matching(read.filter)))
    return r.DescribeAclsResponse(tuple(found))


def acl_filter_fault(chosen: r.AclFilter) -> str:
    """Why a filter is invalid, empty if it is valid."""
    if chosen.resource_type != 1 and chosen.resource_type not in RESOURCE_TYPES:
        return f"Unknown resource type {chosen.resource_type} in the filter."
    if chosen.pattern_type not in (1, 2, *PATTERN_TYPES):
        return f"Unknown pattern type {chosen.pattern_type} in the filter."
    if chosen.operation != 1 and chosen.operation not in OPERATIONS:
        return f"Unknown operation {chosen.operation} in the filter."
    if chosen.permission_type not in (1, 2, 3):
        return f"Unknown permission type {chosen.permission_type} in the filter."
    return ""


# --- the cluster ----------------------------------------------------------------------------------


def describe_cluster(
    image: MetadataImage, read: r.DescribeCluster, supported: Mapping[str, VersionRange]
) -> r.DescribeClusterResponse:
    """Describe brokers, controllers and features, and count topics and partitions."""
    return r.DescribeClusterResponse(
        tuple(
            describe_broker(broker)
            for _, broker in sorted(image.cluster.brokers.items())
            if read.include_fenced or not broker.fenced
        ),
        tuple(
            _describe_controller(controller)
            for _, controller in sorted(image.cluster.controllers.items())
        ),
        describe_features(image, supported),
        image.offset,
        len(image.topics),
        image.topics.partition_count,
    )


def describe_features(
    image: MetadataImage, supported: Mapping[str, VersionRange]
) -> tuple[r.FeatureDescription, ...]:
    """Describe the supported and the finalized features, sorted by name."""
    levels = image.features.levels
    return tuple(
        r.FeatureDescription(name, supported.get(name, VersionRange(0, 0)), levels.get(name, 0))
        for name in sorted({*supported, *levels})
    )


def describe_broker(broker: Broker) -> r.BrokerDescription:
    return r.BrokerDescription(
        broker.broker_id,
        broker.broker_epoch,
        _endpoints(broker),
        broker.rack,
        broker.fenced,
        broker.in_controlled_shutdown,
        broker.incarnation_id,
        broker.log_dirs,
        _features(broker),
        broker.cordoned_log_dirs or (),
    )


def _describe_controller(controller: Controller) -> r.ControllerDescription:
    return r.ControllerDescription(
        controller.controller_id,
        controller.incarnation_id,
        _endpoints(controller),
        _features(controller),
    )


def _endpoints(node: Broker | Controller) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(end.name, end.host, end.port) for end in node.end_points)


def _features(node: Broker | Controller) -> tuple[tuple[str, VersionRange], ...]:
    return tuple(
        (f.name, VersionRange(f.min_supported_version, f.max_supported_version))
        for f in sorted(node.features, key=lambda feature: feature.name)
    )


_ANSWERS: Final[Mapping[type[r.Read], Callable[[MetadataImage, Any], r.Response]]] = {
    r.DescribeTopics: describe_topics,
    r.DescribeConfigs: describe_configs,
    r.DescribeClientQuotas: describe_quotas,
    r.DescribeUserScramCredentials: describe_scram,
    r.DescribeAcls: describe_acls,
    r.ListPartitionReassignments: list_reassignments,
}
"""The functions that answer reads from the image alone."""
