"""Authorizes the parts of a metadata request; `rpc.wire.methods` defines what each method requires.

Rules:
1. A method that is not in the table is rejected.
2. A request about the cluster is authorized as a whole, and fails with
   CLUSTER_AUTHORIZATION_FAILED. A request about topics or resources fails with
   TOPIC_AUTHORIZATION_FAILED before it is read if no ACL allows its sender the operation on any.
3. Topics are authorized one by one: those that are not allowed fail with
   TOPIC_AUTHORIZATION_FAILED, and the request continues with the others. The same applies to the
   configurations of resources. A description omits what the caller may not see, unless the caller
   requested it by name.
4. CREATE and DELETE on the cluster apply to every topic.

Source: Kafka's ControllerApis and KafkaApis; the tables of KIP-11, KIP-853, KIP-919.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r
from quorate.metadata.authorizer import CLUSTER, Operation, Resource, ResourceType
from quorate.metadata.image.configs import ConfigResourceType as ConfigType
from quorate.rpc.server.authorizer import AuthorizationResult
from quorate.rpc.wire.methods import RPC_METHODS

KAFKA_OPERATIONS: Final[dict[str, Operation]] = {
    "Envelope": Operation.CLUSTER_ACTION,
    "DescribeControllers": Operation.ALTER,
}
"""The operation on the cluster by request name, for requests that only Kafka's nodes and tools
send."""

PART_OPERATIONS: Final[dict[str, Operation]] = {
    rpc.name: rpc.operation for rpc in RPC_METHODS.values() if not rpc.is_about_cluster
}
"""The operation on each topic or configured resource of a request, by method name."""

_OF_CLUSTER: Final = frozenset({"CreateTopics", "DeleteTopics"})
"""Rule 4."""

Allows = Callable[[Operation, Resource], bool]
"""Whether the caller may perform an operation on a resource."""
TopicNames = Mapping[str, str]
"""The names of all topics by topic id."""

_FAILED: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


def _topic(name: str) -> Resource:
    return Resource(ResourceType.TOPIC, name)


def _configured(resource: r.ConfigResource) -> Resource:
    """The resource that a configuration belongs to: for a broker's, the cluster."""
    if resource.type == ConfigType.TOPIC:
        return _topic(resource.name)
    if resource.type == ConfigType.GROUP:
        return Resource(ResourceType.GROUP, resource.name)
    return CLUSTER


@dataclass(frozen=True, slots=True)
class _RequestParts:
    """The parts of a request that changes several resources, and the parts of its response."""

    field: str
    """The name of the request's field with the parts."""
    response: Callable[[tuple[Any, ...]], Any]
    """Builds a response from its parts."""
    response_field: str
    """The name of the response's field with the parts."""
    refusal: Callable[[Any, Operation, Allows, TopicNames], Any]
    """Returns the response part of a rejected part; None if the part is allowed."""


def _refuse_new_topic(part: r.NewTopic, op: Operation, allows: Allows, _: TopicNames) -> Any:
    if allows(op, _topic(part.name)):
        return None
    return r.CreatedTopic(part.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _refuse_topic(part: r.TopicRef, op: Operation, allows: Allows, names: TopicNames) -> Any:
    name = part.name or names.get(part.topic_id)
    if name is None:
        return r.DeletedTopic("", part.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    if allows(op, _topic(name)):
        return None
    return r.DeletedTopic(part.name, part.topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _refuse_partitions(part: r.NewPartitions, op: Operation, allows: Allows, _: TopicNames) -> Any:
    if allows(op, _topic(part.name)):
        return None
    return r.PartResult(part.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _refuse_change(part: r.ConfigChange, op: Operation, allows: Allows, _: TopicNames) -> Any:
    resource = _configured(part.resource)
    if allows(op, resource):
        return None
    return r.ConfigOutcome(part.resource, _FAILED[ResourceType(resource.type)])


_PARTS: Final[dict[str, _RequestParts]] = {
    "CreateTopics": _RequestParts("topics", r.CreateTopicsResponse, "topics", _refuse_new_topic),
    "DeleteTopics": _RequestParts("topics", r.DeleteTopicsResponse, "topics", _refuse_topic),
    "CreatePartitions": _RequestParts(
        "topics", r.CreatePartitionsResponse, "topics", _refuse_partitions
    ),
    "IncrementalAlterConfigs": _RequestParts(
        "changes", r.AlterConfigsResponse, "resources", _refuse_change
    ),
}


def authorize_parts(
    name: str, request: Any, allows: Allows, names: TopicNames
) -> AuthorizationResult:
    """Authorize a request of a method in PART_OPERATIONS, part by part (rules 3 and 4)."""
    operation = PART_OPERATIONS[name]
    if name == "DescribeTopics":
        return _admit_topics(request, allows, names)
    if name == "DescribeConfigs":
        return AuthorizationResult(
            request, finish=lambda found: _visible_configs(request, found, allows)
        )
    if name in _OF_CLUSTER and allows(operation, CLUSTER):
        return AuthorizationResult(request)
    parts = _PARTS[name]
    asked: tuple[Any, ...] = getattr(request, parts.field)
    said = [parts.refusal(part, operation, allows, names) for part in asked]
    if all(each is None for each in said):
        return AuthorizationResult(request)
    left = tuple(part for part, refused in zip(asked, said, strict=True) if refused is None)
    if not left:
        return AuthorizationResult(request, parts.response(tuple(said)))

    def finish(response: Any) -> Any:
        answered = iter(getattr(response, parts.response_field))
        merged = tuple(next(answered) if refused is None else refused for refused in said)
        return replace(response, **{parts.response_field: merged})

    return AuthorizationResult(replace(request, **{parts.field: left}), finish=finish)


def _admit_topics(
    request: r.DescribeTopics, allows: Allows, names: TopicNames
) -> AuthorizationResult:
    """Apply rule 3 before pages are built, so that no cursor reveals a hidden name.

    A caller that requested a topic by id does not learn its name.
    """
    asked = request.topics
    if asked is None:
        asked = tuple(r.TopicRef(name) for name in names.values())

    def is_visible(name: str) -> bool:
        return not name or allows(Operation.DESCRIBE, _topic(name))

    chosen: list[r.TopicRef] = []
    hidden: list[r.TopicRef] = []
    for ref in asked:
        is_chosen = is_visible(ref.name or names.get(ref.topic_id, ""))
        (chosen if is_chosen else hidden).append(ref)
    if request.topics is None:
        hidden.clear()
    failed = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    refused = tuple(r.TopicDescription(ref.name, ref.topic_id, error=failed) for ref in hidden)

    def finish(response: r.DescribeTopicsResponse) -> r.DescribeTopicsResponse:
        seen = [topic for topic in response.topics if is_visible(topic.name)]
        if request.topics is None:
            # A topic that was deleted meanwhile was not requested by name.
            seen = [topic for topic in seen if topic.error is ErrorCode.NONE]
        return replace(response, topics=(*(refused if request.cursor is None else ()), *seen))

    return AuthorizationResult(replace(request, topics=tuple(chosen)), finish=finish)


def _visible_configs(
    request: r.DescribeConfigs, response: r.DescribeConfigsResponse, allows: Allows
) -> r.DescribeConfigsResponse:
    seen: list[r.ResourceConfigs] = []
    for configs in response.resources:
        resource = _configured(configs.resource)
        if allows(Operation.DESCRIBE_CONFIGS, resource):
            seen.append(configs)
        elif request.resources:
            failed = _FAILED[ResourceType(resource.type)]
            seen.append(r.ResourceConfigs(configs.resource, error=failed))
    return replace(response, resources=tuple(seen))
