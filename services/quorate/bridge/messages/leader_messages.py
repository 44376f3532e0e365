"""Requests to a leader that speaks Kafka's protocol only, as Kafka's messages; and its responses.

The reverse of `topics`, `settings` and `cluster`. Pure.

Rules:
1. The parts of a response are in the order of the request, whatever Kafka's order is: the
   authorizer merges them by position. A part that the leader left out has UNKNOWN_SERVER_ERROR.
2. A request is written in the highest version that both sides know. `Conversion.since` is the
   lowest version that has every field of the request.
3. What Kafka's messages lack is not sent: the timeout of some requests, and `force` of RemoveVoter,
   because Kafka's leader never checks whether the remaining voters fetch.

Source: KIP-4, KIP-195, KIP-339, KIP-455, KIP-460, KIP-525, KIP-546, KIP-554, KIP-584, KIP-836,
KIP-853.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

from quorate.bridge.messages import schemas as s
from quorate.bridge.messages.peer_messages import (
    add_fields,
    decode_voter_change_response,
    error_of,
    remove_fields,
)
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import NO_NODE
from quorate.log.offset_files import METADATA_PARTITION, METADATA_TOPIC
from quorate.metadata import requests as r
from quorate.metadata.describe import TOPIC_SOURCE
from quorate.raft import messages as m
from quorate.raft.types import ReplicaKey, Voter, VoterSet

UNANSWERED: Final = "the leader's response does not mention it"


class UnwritableError(Exception):
    """A request has a value that Kafka's message cannot have, such as a number beyond its range."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """The conversions of one kind of request."""

    api_key: int
    since: int
    """The lowest version that has every field of the request (rule 2)."""
    fields: Callable[[Any, Any], dict[str, Any]]
    """Builds the fields of the message, from its module and the request."""
    read: Callable[[Any, Any], Any]
    """Builds the response, from the request and the message."""

    def write(self, request: Any, version: int, timeout_ms: int) -> bytes:
        """Encode the body of a request. Raises UnwritableError."""
        module = s.request_module(self.api_key, version)
        kind = s.request_type(self.api_key, version)
        try:
            fields = {"timeout": s.milliseconds(timeout_ms), **self.fields(module, request)}
            return s.write(s.make(kind, **fields))
        except (ValueError, struct.error) as error:
            raise UnwritableError(
                f"the leader speaks Kafka's protocol, which cannot express this request: {error}"
            ) from None


def _outcome(part: Any) -> tuple[ErrorCode, str]:
    """The error of a message or a part of one, and its text if its version has one."""
    return error_of(part.error_code), getattr(part, "error_message", None) or ""


def _in_order(
    wanted: Iterable[Hashable],
    found: Iterable[tuple[Hashable, Any]],
    missing: Callable[[Any], Any],
) -> tuple[Any, ...]:
    """The result for each wanted key (rule 1). missing: builds one that was left out."""
    results = dict(found)
    return tuple(results[key] if key in results else missing(key) for key in wanted)


def _part_results(
    wanted: Iterable[str], found: Iterable[tuple[str, Any]]
) -> tuple[r.PartResult, ...]:
    return _in_order(
        wanted,
        ((name, r.PartResult(name, *_outcome(part))) for name, part in found),
        lambda name: r.PartResult(name, ErrorCode.UNKNOWN_SERVER_ERROR, UNANSWERED),
    )


# --- topics ---------------------------------------------------------------------------------------


def _encode_create_topics(module: Any, request: r.CreateTopics) -> dict[str, Any]:
    def assignments(topic: r.NewTopic) -> tuple[Any, ...]:
        return tuple(
            module.CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
            for index, replicas in enumerate(topic.assignments)
        )

    topics = tuple(
        module.CreatableTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            assignments=assignments(topic),
            configs=tuple(
                module.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs
            ),
        )
        for topic in request.topics
    )
    return {"topics": topics, "validate_only": request.validate_only}


def _decode_create_topics(request: r.CreateTopics, body: Any) -> r.CreateTopicsResponse:
    def created(topic: Any) -> r.CreatedTopic:
        own = (each for each in topic.configs or () if each.config_source == TOPIC_SOURCE)
        return r.CreatedTopic(
            topic.name,
            *_outcome(topic),
            s.uuid_text(topic.topic_id),
            topic.num_partitions,
            topic.replication_factor,
            tuple((config.name, config.value) for config in own),
        )

    return r.CreateTopicsResponse(
        _in_order(
            (topic.name for topic in request.topics),
            ((topic.name, created(topic)) for topic in body.topics),
            lambda name: r.CreatedTopic(name, ErrorCode.UNKNOWN_SERVER_ERROR, UNANSWERED),
        )
    )


def _encode_delete_topics(module: Any, request: r.DeleteTopics) -> dict[str, Any]:
    topics = tuple(
        module.DeleteTopicState(
            name=topic.name or None, topic_id=None if topic.name else s.uuid_field(topic.topic_id)
        )
        for topic in request.topics
    )
    return {"topics": topics}


def _decode_delete_topics(request: r.DeleteTopics, body: Any) -> r.DeleteTopicsResponse:
    """A topic that was named by its id is answered with its id, and perhaps with its name."""
    by_name = {each.name: each for each in body.responses if each.name}
    by_id = {s.uuid_text(each.topic_id): each for each in body.responses}

    def deleted(topic: r.TopicRef) -> r.DeletedTopic:
        found = by_name.get(topic.name) if topic.name else by_id.get(topic.topic_id)
        if found is None:
            error = ErrorCode.UNKNOWN_SERVER_ERROR
            return r.DeletedTopic(topic.name, topic.topic_id, error, UNANSWERED)
        return r.DeletedTopic(found.name or "", s.uuid_text(found.topic_id), *_outcome(found))

    return r.DeleteTopicsResponse(tuple(map(deleted, request.topics)))


def _encode_create_partitions(module: Any, request: r.CreatePartitions) -> dict[str, Any]:
    def assignments(topic: r.NewPartitions) -> tuple[Any, ...] | None:
        if topic.assignments is None:
            return None
        return tuple(
            module.CreatePartitionsAssignment(broker_ids=replicas) for replicas in topic.assignments
        )

    topics = tuple(
        module.CreatePartitionsTopic(
            name=topic.name, count=topic.count, assignments=assignments(topic)
        )
        for topic in request.topics
    )
    return {"topics": topics, "validate_only": request.validate_only}


def _decode_create_partitions(request: r.CreatePartitions, body: Any) -> r.CreatePartitionsResponse:
    names = (topic.name for topic in request.topics)
    return r.CreatePartitionsResponse(
        _part_results(names, ((each.name, each) for each in body.results))
    )


# --- partitions -----------------------------------------------------------------------------------


def _by_topic(parts: Iterable[tuple[str, Any]]) -> list[tuple[str, tuple[Any, ...]]]:
    ordered = sorted(parts, key=lambda part: part[0])
    return [
        (topic, tuple(part for _, part in found))
        for topic, found in groupby(ordered, lambda part: part[0])
    ]


def _encode_elect_leaders(module: Any, request: r.ElectLeaders) -> dict[str, Any]:
    partitions = request.partitions
    topics = (
        None
        if partitions is None
        else tuple(
            module.TopicPartitions(topic=topic, partitions=indexes)
            for topic, indexes in _by_topic(partitions)
        )
    )
    return {"election_type": request.election_type, "topic_partitions": topics}


def _decode_elect_leaders(_request: r.ElectLeaders, body: Any) -> r.ElectLeadersResponse:
    error, text = _outcome(body)
    outcomes = [
        _partition_outcome(topic.topic, part.partition_id, part)
        for topic in body.replica_election_results
        for part in topic.partition_result
    ]
    return r.ElectLeadersResponse(tuple(outcomes), error=error, message=text)


def _partition_outcome(topic: str, index: int, part: Any) -> r.PartitionOutcome:
    error, text = _outcome(part)
    return r.PartitionOutcome(topic, index, error=error, message=text)


def _encode_reassignments(module: Any, request: r.AlterPartitionReassignments) -> dict[str, Any]:
    parts = [
        (
            each.topic,
            module.ReassignablePartition(partition_index=each.partition, replicas=each.replicas),
        )
        for each in request.reassignments
    ]
    return {
        "allow_replication_factor_change": request.allow_replication_factor_change,
        "topics": tuple(
            module.ReassignableTopic(name=topic, partitions=found)
            for topic, found in _by_topic(parts)
        ),
    }


def _decode_reassignments(
    request: r.AlterPartitionReassignments, body: Any
) -> r.AlterPartitionReassignmentsResponse:
    error, text = _outcome(body)
    outcomes = [
        _partition_outcome(topic.name, part.partition_index, part)
        for topic in body.responses
        for part in topic.partitions
    ]
    may_change = request.allow_replication_factor_change
    return r.AlterPartitionReassignmentsResponse(
        tuple(outcomes), may_change, error=error, message=text
    )


# --- configurations, quotas, credentials ----------------------------------------------------------


def _encode_alter_configs(module: Any, request: r.IncrementalAlterConfigs) -> dict[str, Any]:
    resources = tuple(
        module.AlterConfigsResource(
            resource_type=change.resource.type,
            resource_name=change.resource.name,
            configs=tuple(
                module.AlterableConfig(name=op.name, config_operation=op.operation, value=op.value)
                for op in change.ops
            ),
        )
        for change in request.changes
    )
    return {"resources": resources, "validate_only": request.validate_only}


def _decode_alter_configs(request: r.IncrementalAlterConfigs, body: Any) -> r.AlterConfigsResponse:
    found = (
        (r.ConfigResource(each.resource_type, each.resource_name), each) for each in body.responses
    )
    return r.AlterConfigsResponse(
        _in_order(
            (change.resource for change in request.changes),
            ((resource, r.ConfigOutcome(resource, *_outcome(each))) for resource, each in found),
            lambda key: r.ConfigOutcome(key, ErrorCode.UNKNOWN_SERVER_ERROR, UNANSWERED),
        )
    )


def _encode_alter_quotas(module: Any, request: r.AlterClientQuotas) -> dict[str, Any]:
    entries = tuple(
        module.EntryData(
            entity=tuple(
                module.EntityData(entity_type=kind, entity_name=name)
                for kind, name in change.entity
            ),
            ops=tuple(
                module.OpData(
                    key=op.key,
                    value=0.0 if op.value is None else op.value,
                    remove=op.value is None,
                )
                for op in change.ops
            ),
        )
        for change in request.changes
    )
    return {"entries": entries, "validate_only": request.validate_only}


def _decode_alter_quotas(request: r.AlterClientQuotas, body: Any) -> r.AlterClientQuotasResponse:
    def altered(entity: r.QuotaEntityKey, error: ErrorCode, text: str) -> r.QuotaOutcome:
        return r.QuotaOutcome(entity, error=error, message=text)

    found = (
        (tuple(sorted((each.entity_type, each.entity_name) for each in entry.entity)), entry)
        for entry in body.entries
    )
    return r.AlterClientQuotasResponse(
        _in_order(
            (change.entity for change in request.changes),
            ((entity, altered(entity, *_outcome(entry))) for entity, entry in found),
            lambda entity: altered(entity, ErrorCode.UNKNOWN_SERVER_ERROR, UNANSWERED),
        )
    )


def _encode_alter_scram(module: Any, request: r.AlterUserScramCredentials) -> dict[str, Any]:
    return {
        "deletions": tuple(
            module.ScramCredentialDeletion(name=each.name, mechanism=each.mechanism)
            for each in request.deletions
        ),
        "upsertions": tuple(
            module.ScramCredentialUpsertion(
                name=each.name,
                mechanism=each.mechanism,
                iterations=each.iterations,
                salt=each.salt,
                salted_password=each.salted_password,
            )
            for each in request.upsertions
        ),
    }


def _decode_alter_scram(
    _request: r.AlterUserScramCredentials, body: Any
) -> r.AlterUserScramCredentialsResponse:
    users = tuple(r.PartResult(each.user, *_outcome(each)) for each in body.results)
    return r.AlterUserScramCredentialsResponse(users)


# --- ACLs -----------------------------------------------------------------------------------------


def _encode_create_acls(module: Any, request: r.CreateAcls) -> dict[str, Any]:
    creations = tuple(
        s.make(
            module.AclCreation,
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            resource_pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission_type,
        )
        for acl in request.acls
    )
    return {"creations": creations}


def _decode_create_acls(request: r.CreateAcls, body: Any) -> r.CreateAclsResponse:
    """Kafka's results name no ACL; they are in the order of the request."""
    found = enumerate(body.results)
    named = [acl.resource_name for acl in request.acls]
    return r.CreateAclsResponse(
        _in_order(
            range(len(named)),
            ((index, r.PartResult(named[index], *_outcome(each))) for index, each in found),
            lambda index: r.PartResult(named[index], ErrorCode.UNKNOWN_SERVER_ERROR, UNANSWERED),
        )
    )


def _encode_delete_acls(module: Any, request: r.DeleteAcls) -> dict[str, Any]:
    filters = tuple(
        s.make(
            module.DeleteAclsFilter,
            resource_type_filter=each.resource_type,
            resource_name_filter=each.resource_name,
            pattern_type_filter=each.pattern_type,
            principal_filter=each.principal,
            host_filter=each.host,
            operation=each.operation,
            permission_type=each.permission_type,
        )
        for each in request.filters
    )
    return {"filters": filters}


def _decode_delete_acls(_request: r.DeleteAcls, body: Any) -> r.DeleteAclsResponse:
    def deleted(found: Any) -> r.DeletedAcls:
        error, text = _outcome(found)
        acls = (each for each in found.matching_acls if _outcome(each)[0] is ErrorCode.NONE)
        return r.DeletedAcls(tuple(map(_acl, acls)), error=error, message=text)

    return r.DeleteAclsResponse(tuple(map(deleted, body.filter_results)))


def _acl(each: Any) -> r.Acl:
    return r.Acl(
        each.resource_type,
        each.resource_name,
        each.pattern_type,
        each.principal,
        each.host,
        each.operation,
        each.permission_type,
    )


# --- the cluster ----------------------------------------------------------------------------------


def _encode_update_features(module: Any, request: r.UpdateFeatures) -> dict[str, Any]:
    updates = tuple(
        module.FeatureUpdateKey(
            feature=each.name, max_version_level=each.level, upgrade_type=each.upgrade_type
        )
        for each in request.updates
    )
    return {"feature_updates": updates, "validate_only": request.validate_only}


def _decode_update_features(_request: r.UpdateFeatures, body: Any) -> r.UpdateFeaturesResponse:
    error, text = _outcome(body)
    return r.UpdateFeaturesResponse(error=error, message=text)


def _encode_unregister(_module: Any, request: r.UnregisterBroker) -> dict[str, Any]:
    return {"broker_id": request.broker_id}


def _decode_unregister(_request: r.UnregisterBroker, body: Any) -> r.UnregisterBrokerResponse:
    error, text = _outcome(body)
    return r.UnregisterBrokerResponse(error=error, message=text)


# --- the quorum -----------------------------------------------------------------------------------


def _encode_describe_quorum(module: Any, _request: m.DescribeQuorumRequest) -> dict[str, Any]:
    partition = module.PartitionData(partition_index=METADATA_PARTITION)
    return {"topics": (module.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),)}


def _decode_describe_quorum(
    _request: m.DescribeQuorumRequest, body: Any
) -> m.DescribeQuorumResponse:
    """The leader's view. The committed voters and the levels of kraft.version are not in it."""
    no_leader = m.CurrentLeader(0)
    error, text = _outcome(body)
    parts = [part for topic in body.topics for part in topic.partitions]
    if error is ErrorCode.NONE and len(parts) == 1:
        error, text = _outcome(parts[0])
    elif error is ErrorCode.NONE:
        error, text = ErrorCode.UNKNOWN_SERVER_ERROR, UNANSWERED
    if error is not ErrorCode.NONE:
        return m.DescribeQuorumResponse(error, no_leader, message=text)
    part = parts[0]
    endpoints = {
        node.node_id: tuple(Endpoint(e.name, e.host, e.port) for e in node.listeners)
        for node in body.nodes
    }
    voters = _statuses(part.current_voters, endpoints)
    return m.DescribeQuorumResponse(
        ErrorCode.NONE,
        m.CurrentLeader(max(0, part.leader_epoch), _leader_id(part.leader_id)),
        part.high_watermark,
        voters=voters,
        observers=_statuses(part.observers, {}),
        voter_set=VoterSet.of(Voter(each.replica, each.endpoints) for each in voters),
    )


def _leader_id(found: int) -> int | None:
    return None if found == NO_NODE else found


def _directory(found: uuid.UUID | None) -> str | None:
    return None if found is None else s.uuid_text(found)


def _statuses(
    replicas: Sequence[Any], endpoints: dict[int, tuple[Endpoint, ...]]
) -> tuple[m.ReplicaStatus, ...]:
    return tuple(
        m.ReplicaStatus(
            ReplicaKey(each.replica_id, _directory(each.replica_directory_id)),
            each.log_end_offset,
            each.last_fetch_timestamp,
            each.last_caught_up_timestamp,
            endpoints.get(each.replica_id, ()),
        )
        for each in replicas
    )


def completed(
    view: m.DescribeQuorumResponse, own: m.DescribeQuorumResponse
) -> m.DescribeQuorumResponse:
    """The leader's view with what only the log tells: own is this replica's view.

    A voter that both know keeps what its entry in the log says.
    """

    def entry(voter: Voter) -> Voter:
        known = own.voter_set.find(voter.key)
        if known is None:
            return voter
        return replace(known, endpoints=voter.endpoints or known.endpoints)

    voters = VoterSet.of(map(entry, view.voter_set))
    endpoints = {voter.id: voter.endpoints for voter in voters}
    return replace(
        view,
        kraft_version=own.kraft_version,
        voters=tuple(replace(v, endpoints=endpoints[v.replica.id]) for v in view.voters),
        voter_set=voters,
        committed_voters=own.committed_voters,
    )


def _encode_add_voter(module: Any, request: m.AddVoterRequest) -> dict[str, Any]:
    return {"cluster_id": request.cluster_id, **add_fields(module, request)}


def _encode_remove_voter(module: Any, request: m.RemoveVoterRequest) -> dict[str, Any]:
    return {"cluster_id": request.cluster_id, **remove_fields(module, request)}


def _decode_voter_change(_request: Any, body: Any) -> m.AdminResponse:
    return decode_voter_change_response(body)


CONVERSIONS: Final[dict[type, Conversion]] = {
    r.CreateTopics: Conversion(s.CREATE_TOPICS, 7, _encode_create_topics, _decode_create_topics),
    r.DeleteTopics: Conversion(s.DELETE_TOPICS, 6, _encode_delete_topics, _decode_delete_topics),
    r.CreatePartitions: Conversion(
        s.CREATE_PARTITIONS, 0, _encode_create_partitions, _decode_create_partitions
    ),
    r.ElectLeaders: Conversion(s.ELECT_LEADERS, 1, _encode_elect_leaders, _decode_elect_leaders),
    r.AlterPartitionReassignments: Conversion(
        s.ALTER_PARTITION_REASSIGNMENTS, 0, _encode_reassignments, _decode_reassignments
    ),
    r.IncrementalAlterConfigs: Conversion(
        s.INCREMENTAL_ALTER_CONFIGS, 0, _encode_alter_configs, _decode_alter_configs
    ),
    r.AlterClientQuotas: Conversion(
        s.ALTER_CLIENT_QUOTAS, 0, _encode_alter_quotas, _decode_alter_quotas
    ),
    r.AlterUserScramCredentials: Conversion(
        s.ALTER_USER_SCRAM_CREDENTIALS, 0, _encode_alter_scram, _decode_alter_scram
    ),
    r.CreateAcls: Conversion(s.CREATE_ACLS, 1, _encode_create_acls, _decode_create_acls),
    r.DeleteAcls: Conversion(s.DELETE_ACLS, 1, _encode_delete_acls, _decode_delete_acls),
    r.UpdateFeatures: Conversion(
        s.UPDATE_FEATURES, 2, _encode_update_features, _decode_update_features
    ),
    r.UnregisterBroker: Conversion(s.UNREGISTER_BROKER, 0, _encode_unregister, _decode_unregister),
    m.DescribeQuorumRequest: Conversion(
        s.DESCRIBE_QUORUM, 2, _encode_describe_quorum, _decode_describe_quorum
    ),
    m.AddVoterRequest: Conversion(s.ADD_RAFT_VOTER, 0, _encode_add_voter, _decode_voter_change),
    m.RemoveVoterRequest: Conversion(
        s.REMOVE_RAFT_VOTER, 0, _encode_remove_voter, _decode_voter_change
    ),
}
"""The requests that are forwarded, by their class."""


def since(request: Any) -> int:
    """The lowest version that can express a request (rule 2)."""
    if isinstance(request, r.AlterPartitionReassignments):
        return int(not request.allow_replication_factor_change)
    if isinstance(request, m.AddVoterRequest):
        return int(not request.ack_when_committed)
    return CONVERSIONS[type(request)].since
