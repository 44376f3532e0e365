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

from quorate.bridge.authentication import tokens
from quorate.bridge.messages import schemas as s
from quorate.bridge.requests import cluster, settings, topics
from quorate.bridge.requests.exchange import Ask, Exchange, NotControllerError, answer, in_one
from quorate.bridge.requests.quotas import MutationQuotas
from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r
from quorate.rpc.errors import BadMessageError
from quorate.rpc.principals import Caller

FORWARDED: Final[dict[int, Exchange]] = {
    s.CREATE_TOPICS: Exchange(
        topics.decode_create_topics,
        topics.encode_create_topics_response,
        topics.create_topics_error_response,
    ),
    s.DELETE_TOPICS: Exchange(
        topics.decode_delete_topics,
        topics.encode_delete_topics_response,
        topics.delete_topics_error_response,
    ),
    s.CREATE_PARTITIONS: Exchange(
        topics.decode_create_partitions,
        topics.encode_create_partitions_response,
        topics.create_partitions_error_response,
    ),
    s.ELECT_LEADERS: Exchange(
        topics.decode_elect_leaders,
        topics.encode_elect_leaders_response,
        topics.elect_leaders_error_response,
    ),
    s.ALTER_PARTITION_REASSIGNMENTS: Exchange(
        topics.decode_alter_reassignments,
        topics.encode_alter_reassignments_response,
        topics.alter_reassignments_error_response,
    ),
    s.LIST_PARTITION_REASSIGNMENTS: Exchange(
        topics.decode_list_reassignments,
        topics.encode_list_reassignments_response,
        in_one(r.Refused),
    ),
    s.DESCRIBE_QUORUM: Exchange(
        cluster.decode_describe_quorum,
        cluster.encode_describe_quorum_response,
        cluster.describe_quorum_error_response,
    ),
    s.UPDATE_FEATURES: Exchange(
        cluster.decode_update_features,
        cluster.encode_update_features_response,
        cluster.update_features_error_response,
    ),
    s.UNREGISTER_BROKER: Exchange(
        cluster.decode_unregister_broker,
        cluster.encode_unregister_broker_response,
        in_one(r.UnregisterBrokerResponse),
    ),
    s.INCREMENTAL_ALTER_CONFIGS: Exchange(
        settings.decode_alter_configs,
        settings.encode_alter_configs_response,
        settings.alter_configs_error_response,
    ),
    s.ALTER_CONFIGS: Exchange(
        settings.decode_replace_configs,
        settings.encode_alter_configs_response,
        settings.alter_configs_error_response,
    ),
    s.ALTER_CLIENT_QUOTAS: Exchange(
        settings.decode_alter_quotas,
        settings.encode_alter_quotas_response,
        settings.alter_quotas_error_response,
    ),
    s.ALTER_USER_SCRAM_CREDENTIALS: Exchange(
        settings.decode_alter_scram,
        settings.encode_alter_scram_response,
        settings.alter_scram_error_response,
    ),
    s.CREATE_DELEGATION_TOKEN: Exchange(
        tokens.decode_create_token,
        tokens.encode_create_token_response,
        in_one(r.CreateDelegationTokenResponse),
    ),
    s.RENEW_DELEGATION_TOKEN: Exchange(
        tokens.decode_renew_token,
        tokens.encode_token_expiry_response,
        in_one(r.DelegationTokenExpiry),
    ),
    s.EXPIRE_DELEGATION_TOKEN: Exchange(
        tokens.decode_expire_token,
        tokens.encode_token_expiry_response,
        in_one(r.DelegationTokenExpiry),
    ),
    s.CREATE_ACLS: Exchange(
        settings.decode_create_acls,
        settings.encode_create_acls_response,
        settings.create_acls_error_response,
    ),
    s.DELETE_ACLS: Exchange(
        settings.decode_delete_acls,
        settings.encode_delete_acls_response,
        settings.delete_acls_error_response,
    ),
    s.ADD_RAFT_VOTER: Exchange(
        cluster.decode_add_voter,
        cluster.encode_voter_change_response,
        cluster.voter_change_error_response,
    ),
    s.REMOVE_RAFT_VOTER: Exchange(
        cluster.decode_remove_voter,
        cluster.encode_voter_change_response,
        cluster.voter_change_error_response,
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
            raise BadMessageError(f"API {inner.api_key} is not forwarded")
        caller = _caller(call.body)
    except (BadMessageError, ValueError):
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
