"""Requests about configurations, quotas, credentials and ACLs, from Kafka's form into Quorate's,
and the answers back.

Source: KIP-339, KIP-546, KIP-554, KIP-290 (ACLs).
"""

from __future__ import annotations

from typing import Any

from quorate.bridge import schemas as s
from quorate.metadata import requests as r
from quorate.raft.errors import ErrorCode

LITERAL = 3

# --- configurations -------------------------------------------------------------------------------


def alter_configs(body: Any) -> r.IncrementalAlterConfigs:
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


def configs_altered(version: int, response: r.AlterConfigsResponse) -> Any:
    module = s.response_module(s.INCREMENTAL_ALTER_CONFIGS, version)
    return s.make(
        module.IncrementalAlterConfigsResponse,
        throttle_time=s.milliseconds(),
        responses=tuple(
            module.AlterConfigsResourceResponse(
                error_code=s.error_field(each.error),
                error_message=each.message or None,
                resource_type=each.resource.type,
                resource_name=each.resource.name,
            )
            for each in response.resources
        ),
    )


def no_configs_altered(
    request: r.IncrementalAlterConfigs, error: ErrorCode, text: str
) -> r.AlterConfigsResponse:
    return r.AlterConfigsResponse(
        tuple(r.ConfigOutcome(change.resource, error, text) for change in request.changes)
    )


# --- quotas ---------------------------------------------------------------------------------------


def alter_quotas(body: Any) -> r.AlterClientQuotas:
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


def quotas_altered(version: int, response: r.AlterClientQuotasResponse) -> Any:
    module = s.response_module(s.ALTER_CLIENT_QUOTAS, version)
    return s.make(
        module.AlterClientQuotasResponse,
        throttle_time=s.milliseconds(),
        entries=tuple(
            module.EntryData(
                error_code=s.error_field(entry.error),
                error_message=entry.message or None,
                entity=tuple(
                    module.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in entry.entity
                ),
            )
            for entry in response.entries
        ),
    )


def no_quotas_altered(
    request: r.AlterClientQuotas, error: ErrorCode, text: str
) -> r.AlterClientQuotasResponse:
    return r.AlterClientQuotasResponse(
        tuple(r.QuotaOutcome(change.entity, error, text) for change in request.changes)
    )


# --- credentials ----------------------------------------------------------------------------------


def alter_scram(body: Any) -> r.AlterUserScramCredentials:
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


def scram_altered(version: int, response: r.AlterUserScramCredentialsResponse) -> Any:
    module = s.response_module(s.ALTER_USER_SCRAM_CREDENTIALS, version)
    return s.make(
        module.AlterUserScramCredentialsResponse,
        throttle_time=s.milliseconds(),
        results=tuple(
            module.AlterUserScramCredentialsResult(
                user=user.name,
                error_code=s.error_field(user.error),
                error_message=user.message or None,
            )
            for user in response.users
        ),
    )


def no_scram_altered(
    request: r.AlterUserScramCredentials, error: ErrorCode, text: str
) -> r.AlterUserScramCredentialsResponse:
    named = dict.fromkeys(
        [each.name for each in request.deletions] + [each.name for each in request.upsertions]
    )
    return r.AlterUserScramCredentialsResponse(tuple(r.Outcome(n, error, text) for n in named))


# --- ACLs -----------------------------------------------------------------------------------------


def create_acls(body: Any) -> r.CreateAcls:
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


def acls_created(version: int, response: r.CreateAclsResponse) -> Any:
    module = s.response_module(s.CREATE_ACLS, version)
    return s.make(
        module.CreateAclsResponse,
        throttle_time=s.milliseconds(),
        results=tuple(
            module.AclCreationResult(
                error_code=s.error_field(each.error), error_message=each.message or None
            )
            for each in response.results
        ),
    )


def no_acls_created(request: r.CreateAcls, error: ErrorCode, text: str) -> r.CreateAclsResponse:
    return r.CreateAclsResponse(tuple(r.Outcome("", error, text) for _ in request.acls))


def delete_acls(body: Any) -> r.DeleteAcls:
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


def acls_deleted(version: int, response: r.DeleteAclsResponse) -> Any:
    module = s.response_module(s.DELETE_ACLS, version)
    return s.make(
        module.DeleteAclsResponse,
        throttle_time=s.milliseconds(),
        filter_results=tuple(
            module.DeleteAclsFilterResult(
                error_code=s.error_field(found.error),
                error_message=found.message or None,
                matching_acls=tuple(_deleted(module, acl) for acl in found.acls),
            )
            for found in response.results
        ),
    )


def _deleted(module: Any, acl: r.Acl) -> Any:
    return s.make(
        module.DeleteAclsMatchingAcl,
        error_code=s.error_field(ErrorCode.NONE),
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def no_acls_deleted(request: r.DeleteAcls, error: ErrorCode, text: str) -> r.DeleteAclsResponse:
    return r.DeleteAclsResponse(tuple(r.DeletedAcls((), error, text) for _ in request.filters))
