"""Requests about configurations, quotas, credentials and ACLs: conversion from Kafka's messages.

The responses are converted back.

Source: KIP-339, KIP-546, KIP-554, KIP-290 (ACLs).
"""

from __future__ import annotations

from typing import Any

from quorate.bridge.messages import schemas as s
from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r

LITERAL = 3

# --- configurations -------------------------------------------------------------------------------


def decode_alter_configs(body: Any) -> r.IncrementalAlterConfigs:
    return r.IncrementalAlterConfigs(
        tuple(
            r.ConfigChange(
                r.ConfigResource(resource.resource_type, resource.resource_name),
                tuple(r.ConfigOp(c.name, c.value, c.config_operation) for c in resource.configs),
            )
            for resource in body.resources
        ),
        body.validate_only,
    )


def decode_replace_configs(body: Any) -> r.AlterConfigs:
    return r.AlterConfigs(
        tuple(
            r.ConfigChange(
                r.ConfigResource(resource.resource_type, resource.resource_name),
                tuple(r.ConfigOp(config.name, config.value) for config in resource.configs),
            )
            for resource in body.resources
        ),
        body.validate_only,
    )


def encode_alter_configs_response(module: Any, response: r.AlterConfigsResponse) -> Any:
    return s.answer(
        module,
        responses=tuple(
            module.AlterConfigsResourceResponse(
                **s.outcome(each),
                resource_type=each.resource.type,
                resource_name=each.resource.name,
            )
            for each in response.resources
        ),
    )


def alter_configs_error_response(
    request: r.IncrementalAlterConfigs | r.AlterConfigs, error: ErrorCode, text: str
) -> r.AlterConfigsResponse:
    return r.AlterConfigsResponse(
        tuple(r.ConfigOutcome(change.resource, error, text) for change in request.changes)
    )


# --- quotas ---------------------------------------------------------------------------------------


def decode_alter_quotas(body: Any) -> r.AlterClientQuotas:
    return r.AlterClientQuotas(
        tuple(
            r.QuotaChange(
                tuple(sorted((e.entity_type, e.entity_name) for e in entry.entity)),
                tuple(r.QuotaOp(op.key, None if op.remove else op.value) for op in entry.ops),
            )
            for entry in body.entries
        ),
        body.validate_only,
    )


def encode_alter_quotas_response(module: Any, response: r.AlterClientQuotasResponse) -> Any:
    return s.answer(
        module,
        entries=tuple(
            module.EntryData(
                **s.outcome(entry),
                entity=tuple(
                    module.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in entry.entity
                ),
            )
            for entry in response.entries
        ),
    )


def alter_quotas_error_response(
    request: r.AlterClientQuotas, error: ErrorCode, text: str
) -> r.AlterClientQuotasResponse:
    return r.AlterClientQuotasResponse(
        tuple(
            r.QuotaOutcome(change.entity, error=error, message=text) for change in request.changes
        )
    )


# --- credentials ----------------------------------------------------------------------------------


def decode_alter_scram(body: Any) -> r.AlterUserScramCredentials:
    return r.AlterUserScramCredentials(
        tuple(
            r.ScramUpsertion(
                each.name,
                each.mechanism,
                each.iterations,
                bytes(each.salt),
                bytes(each.salted_password),
            )
            for each in body.upsertions
        ),
        tuple(r.ScramDeletion(each.name, each.mechanism) for each in body.deletions),
    )


def encode_alter_scram_response(module: Any, response: r.AlterUserScramCredentialsResponse) -> Any:
    return s.answer(
        module,
        results=tuple(
            module.AlterUserScramCredentialsResult(user=user.name, **s.outcome(user))
            for user in response.users
        ),
    )


def alter_scram_error_response(
    request: r.AlterUserScramCredentials, error: ErrorCode, text: str
) -> r.AlterUserScramCredentialsResponse:
    named = dict.fromkeys(
        [each.name for each in request.deletions] + [each.name for each in request.upsertions]
    )
    return r.AlterUserScramCredentialsResponse(tuple(r.PartResult(n, error, text) for n in named))


# --- ACLs -----------------------------------------------------------------------------------------


def decode_create_acls(body: Any) -> r.CreateAcls:
    return r.CreateAcls(
        tuple(
            r.Acl(
                each.resource_type,
                each.resource_name,
                getattr(each, "resource_pattern_type", LITERAL),
                each.principal,
                each.host,
                each.operation,
                each.permission_type,
            )
            for each in body.creations
        )
    )


def encode_create_acls_response(module: Any, response: r.CreateAclsResponse) -> Any:
    return s.answer(
        module,
        results=tuple(module.AclCreationResult(**s.spoken(each)) for each in response.results),
    )


def create_acls_error_response(
    request: r.CreateAcls, error: ErrorCode, text: str
) -> r.CreateAclsResponse:
    return r.CreateAclsResponse(tuple(r.PartResult("", error, text) for _ in request.acls))


def decode_delete_acls(body: Any) -> r.DeleteAcls:
    return r.DeleteAcls(
        tuple(
            r.AclFilter(
                each.resource_type_filter,
                each.resource_name_filter,
                getattr(each, "pattern_type_filter", LITERAL),
                each.principal_filter,
                each.host_filter,
                each.operation,
                each.permission_type,
            )
            for each in body.filters
        )
    )


def encode_delete_acls_response(module: Any, response: r.DeleteAclsResponse) -> Any:
    return s.answer(
        module,
        filter_results=tuple(
            module.DeleteAclsFilterResult(
                **s.outcome(found),
                matching_acls=tuple(_deleted(module, acl) for acl in found.acls),
            )
            for found in response.results
        ),
    )


def _deleted(module: Any, acl: r.Acl) -> Any:
    return s.make(
        module.DeleteAclsMatchingAcl,
        **s.error_fields(ErrorCode.NONE),
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def delete_acls_error_response(
    request: r.DeleteAcls, error: ErrorCode, text: str
) -> r.DeleteAclsResponse:
    return r.DeleteAclsResponse(
        tuple(r.DeletedAcls(error=error, message=text) for _ in request.filters)
    )
