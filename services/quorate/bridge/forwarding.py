"""What brokers forward for their clients, in envelopes and bare: who may ask, and the way back.

A broker in ZooKeeper mode wraps its clients' requests in envelopes once it migrates, with the
principal and the address that it has authenticated; what it wants for itself (a topic that does not
exist yet) it sends bare. An entry of `FORWARDED` says how a request is read and how what became of
it is written, also where it was refused as a whole.

Rules:
1. What is in an envelope is checked as its client's; sending envelopes at all is like registering,
   for brokers.
2. NOT_CONTROLLER is said of the envelope, so that the broker, not its client, looks for another.

Source: KIP-590 "Envelope"; KIP-866 "Forwarding".
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from quorate.bridge import cluster, settings, topics
from quorate.bridge import schemas as s
from quorate.bridge.topics import RefusedCallError
from quorate.metadata import requests as r
from quorate.raft.errors import ErrorCode
from quorate.rpc.convert_metadata import TIMEOUT_MS, TIMEOUT_MS_MAX, MetadataAnswer
from quorate.rpc.principals import Caller

Ask = Callable[[Any, int, Caller], Awaitable[MetadataAnswer]]
"""Gives a request to the metadata controller: within so many ms, for whom."""


@dataclass(frozen=True, slots=True)
class Forwarded:
    """read: the body as a request. write: a response in a version. fail: the response where the
    request was refused as a whole.
    """

    read: Callable[[Any], Any]
    write: Callable[[int, Any], Any]
    fail: Callable[[Any, ErrorCode, str], Any]


FORWARDED: Final[dict[int, Forwarded]] = {
    s.CREATE_TOPICS: Forwarded(
        topics.create_topics, topics.topics_created, topics.no_topics_created
    ),
    s.DELETE_TOPICS: Forwarded(
        topics.delete_topics, topics.topics_deleted, topics.no_topics_deleted
    ),
    s.CREATE_PARTITIONS: Forwarded(
        topics.create_partitions, topics.partitions_created, topics.no_partitions_created
    ),
    s.ELECT_LEADERS: Forwarded(
        topics.elect_leaders, topics.leaders_elected, topics.no_leaders_elected
    ),
    s.ALTER_PARTITION_REASSIGNMENTS: Forwarded(
        topics.reassign, topics.reassigned, topics.not_reassigned
    ),
    s.LIST_PARTITION_REASSIGNMENTS: Forwarded(
        topics.list_reassignments, topics.reassignments_listed, topics.no_list
    ),
    s.DESCRIBE_QUORUM: Forwarded(
        cluster.describe_quorum, cluster.quorum_described, cluster.no_quorum
    ),
    s.UPDATE_FEATURES: Forwarded(
        cluster.update_features, cluster.features_updated, cluster.no_features_updated
    ),
    s.UNREGISTER_BROKER: Forwarded(
        cluster.unregister_broker, cluster.broker_unregistered, cluster.no_broker_unregistered
    ),
    s.INCREMENTAL_ALTER_CONFIGS: Forwarded(
        settings.alter_configs, settings.configs_altered, settings.no_configs_altered
    ),
    s.ALTER_CLIENT_QUOTAS: Forwarded(
        settings.alter_quotas, settings.quotas_altered, settings.no_quotas_altered
    ),
    s.ALTER_USER_SCRAM_CREDENTIALS: Forwarded(
        settings.alter_scram, settings.scram_altered, settings.no_scram_altered
    ),
    s.CREATE_ACLS: Forwarded(settings.create_acls, settings.acls_created, settings.no_acls_created),
    s.DELETE_ACLS: Forwarded(settings.delete_acls, settings.acls_deleted, settings.no_acls_deleted),
}


class _NotControllerError(Exception):
    """Another node is to be asked for this."""

    def __init__(self, request: Any) -> None:
        super().__init__()
        self.request = request


async def answer_bare(call: s.Call, ask: Ask, caller: Caller) -> Any:
    """The response to a request that came without an envelope."""
    try:
        return await _answer(call, ask, caller)
    except _NotControllerError as error:
        forwarded = FORWARDED[call.api_key]
        failed = forwarded.fail(error.request, ErrorCode.NOT_CONTROLLER, "")
        return forwarded.write(call.version, failed)


async def answer_envelope(call: s.Call, ask: Ask) -> Any:
    """The response to an envelope, with the one to what was in it."""
    try:
        inner = s.read_call(bytes(call.body.request_data))
        if inner.api_key not in FORWARDED:
            raise s.BadMessageError(f"API {inner.api_key} is not forwarded")
        caller = _caller(call.body)
    except (s.BadMessageError, ValueError):
        return _envelope(call.version, ErrorCode.INVALID_REQUEST)
    try:
        response = await _answer(inner, ask, caller)
    except _NotControllerError:
        return _envelope(call.version, ErrorCode.NOT_CONTROLLER)
    return _envelope(call.version, ErrorCode.NONE, s.write_response(inner.correlation_id, response))


def _caller(envelope: Any) -> Caller:
    """The client that the broker has authenticated."""
    host = str(ipaddress.ip_address(bytes(envelope.client_host_address)))
    if envelope.request_principal is None:
        return Caller(host=host)
    return Caller(s.read_principal(bytes(envelope.request_principal)), host)


def _envelope(version: int, error: ErrorCode, data: bytes | None = None) -> Any:
    return s.response_type(s.ENVELOPE, version)(response_data=data, error_code=s.error_field(error))


async def _answer(call: s.Call, ask: Ask, caller: Caller) -> Any:
    forwarded = FORWARDED[call.api_key]
    try:
        request = forwarded.read(call.body)
    except RefusedCallError as error:
        return forwarded.write(call.version, forwarded.fail(error.request, error.error, str(error)))
    answer = await ask(request, _timeout_ms(call.body), caller)
    if answer.error is ErrorCode.NOT_CONTROLLER:
        raise _NotControllerError(request)
    if answer.error is not ErrorCode.NONE:
        response = forwarded.fail(request, answer.error, answer.message)
    elif isinstance(answer.response, r.Refused):
        response = forwarded.fail(request, answer.response.error, answer.response.message)
    else:
        response = answer.response
    return forwarded.write(call.version, response)


def _timeout_ms(body: Any) -> int:
    """How long the client waits; the default where the request does not say."""
    wanted = getattr(body, "timeout", None)
    count = TIMEOUT_MS if wanted is None else wanted // s.milliseconds(1)
    return min(max(1, count), TIMEOUT_MS_MAX)
