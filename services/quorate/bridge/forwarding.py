"""Requests that brokers forward for their clients, in envelopes.

Once a broker in ZooKeeper mode migrates, it wraps its clients' requests in envelopes, with the
principal and the address that it has authenticated. It sends its own requests (such as creating a
topic automatically) without an envelope.

Rules:
1. The request in an envelope is authorized for its client. Envelopes are trusted: with an
   authorizer only an authenticated broker with CLUSTER_ACTION may send them (`bridge.Bridge`).
2. NOT_CONTROLLER is an error of the envelope, so that the broker, and not its client, looks for
   another controller.

Source: KIP-590 "Envelope"; KIP-866 "Forwarding".
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any, Final

from quorate.bridge import cluster, settings, tokens, topics
from quorate.bridge import schemas as s
from quorate.bridge.exchange import Ask, Exchange, NotControllerError, answer, in_one
from quorate.bridge.quotas import MutationQuotas
from quorate.metadata import requests as r
from quorate.raft.errors import ErrorCode
from quorate.rpc.principals import Caller

FORWARDED: Final[dict[int, Exchange]] = {
    s.CREATE_TOPICS: Exchange(
        topics.create_topics, topics.topics_created, topics.no_topics_created
    ),
    s.DELETE_TOPICS: Exchange(
        topics.delete_topics, topics.topics_deleted, topics.no_topics_deleted
    ),
    s.CREATE_PARTITIONS: Exchange(
        topics.create_partitions, topics.partitions_created, topics.no_partitions_created
    ),
    s.ELECT_LEADERS: Exchange(
        topics.elect_leaders, topics.leaders_elected, topics.no_leaders_elected
    ),
    s.ALTER_PARTITION_REASSIGNMENTS: Exchange(
        topics.reassign, topics.reassigned, topics.not_reassigned
    ),
    s.LIST_PARTITION_REASSIGNMENTS: Exchange(
        topics.list_reassignments, topics.reassignments_listed, in_one(r.Refused)
    ),
    s.DESCRIBE_QUORUM: Exchange(
        cluster.describe_quorum, cluster.quorum_described, cluster.no_quorum
    ),
    s.UPDATE_FEATURES: Exchange(
        cluster.update_features, cluster.features_updated, cluster.no_features_updated
    ),
    s.UNREGISTER_BROKER: Exchange(
        cluster.unregister_broker, cluster.broker_unregistered, in_one(r.UnregisterBrokerResponse)
    ),
    s.INCREMENTAL_ALTER_CONFIGS: Exchange(
        settings.alter_configs, settings.configs_altered, settings.no_configs_altered
    ),
    s.ALTER_CONFIGS: Exchange(
        settings.replace_configs, settings.configs_altered, settings.no_configs_altered
    ),
    s.ALTER_CLIENT_QUOTAS: Exchange(
        settings.alter_quotas, settings.quotas_altered, settings.no_quotas_altered
    ),
    s.ALTER_USER_SCRAM_CREDENTIALS: Exchange(
        settings.alter_scram, settings.scram_altered, settings.no_scram_altered
    ),
    s.CREATE_DELEGATION_TOKEN: Exchange(
        tokens.create_token, tokens.token_created, in_one(r.CreateDelegationTokenResponse)
    ),
    s.RENEW_DELEGATION_TOKEN: Exchange(
        tokens.renew_token, tokens.expiry_set, in_one(r.DelegationTokenExpiry)
    ),
    s.EXPIRE_DELEGATION_TOKEN: Exchange(
        tokens.expire_token, tokens.expiry_set, in_one(r.DelegationTokenExpiry)
    ),
    s.CREATE_ACLS: Exchange(settings.create_acls, settings.acls_created, settings.no_acls_created),
    s.DELETE_ACLS: Exchange(settings.delete_acls, settings.acls_deleted, settings.no_acls_deleted),
    s.ADD_RAFT_VOTER: Exchange(
        cluster.add_voter, cluster.voters_changed, cluster.no_voters_changed
    ),
    s.REMOVE_RAFT_VOTER: Exchange(
        cluster.remove_voter, cluster.voters_changed, cluster.no_voters_changed
    ),
}


Decode = Callable[[bytes], Awaitable[s.Call]]
"""Decodes the request in a frame. Raises BadMessageError."""


async def answer_envelope(call: s.Call, ask: Ask, decode: Decode, quotas: MutationQuotas) -> Any:
    """The response to an envelope, which contains the response to the request in it."""
    try:
        inner = await decode(bytes(call.body.request_data))
        exchange = FORWARDED.get(inner.api_key)
        if exchange is None:
            raise s.BadMessageError(f"API {inner.api_key} is not forwarded")
        caller = _caller(call.body)
    except (s.BadMessageError, ValueError):
        return envelope_response(call.version, ErrorCode.INVALID_REQUEST)
    try:
        response = await answer(exchange, inner, ask, caller, quotas)
    except NotControllerError:
        return envelope_response(call.version, ErrorCode.NOT_CONTROLLER)
    return envelope_response(
        call.version, ErrorCode.NONE, s.write_response(inner.correlation_id, response)
    )


def _caller(body: Any) -> Caller:
    """The client that the broker has authenticated. Raises BadMessageError, ValueError."""
    host = str(ipaddress.ip_address(bytes(body.client_host_address)))
    if body.request_principal is None:
        return Caller(host=host)
    principal, used_token = s.read_principal(bytes(body.request_principal))
    return Caller(principal, host, used_token=used_token)


def envelope_response(version: int, error: ErrorCode, data: bytes | None = None) -> Any:
    """Build an envelope's response. data: the inner response with its header."""
    return s.response_type(s.ENVELOPE, version)(response_data=data, error_code=s.error_field(error))
