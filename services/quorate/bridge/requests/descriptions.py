"""Requests that describe configurations, credentials and ACLs: conversion from Kafka's messages.

The responses are converted back. Every controller answers these requests, as Kafka's do: the leader
after a majority has confirmed its leadership, any other controller from its own committed image.

Rules of DescribeConfigs, as in Kafka's ConfigHelper:
1. A controller describes its own effective configuration, the cluster-wide defaults of brokers
   (an empty name), topics, groups and client metrics. The id of any other node is rejected.
2. Every config is listed with its effective value. Its synonyms are the values that apply or would
   apply without it, by precedence.

Kafka's texts that document configs are not part of this release; `documentation` is null.

Source: Kafka's ConfigHelper, AclApis; KIP-226 (synonyms), KIP-554, KIP-569.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from quorate.bridge.messages import schemas as s
from quorate.bridge.requests.settings import LITERAL
from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r
from quorate.metadata.config.config_types import ConfigKey, ConfigKeyType
from quorate.metadata.describe import (
    CONFIG_DEFINITIONS,
    DEFAULT_BROKER_SOURCE,
    DEFAULT_SOURCE,
    TOPIC_SOURCE,
)
from quorate.metadata.image.configs import ConfigResourceType

_TYPES: Final = {
    ConfigKeyType.BOOLEAN: 1,
    ConfigKeyType.STRING: 2,
    ConfigKeyType.INT: 3,
    ConfigKeyType.SHORT: 4,
    ConfigKeyType.LONG: 5,
    ConfigKeyType.DOUBLE: 6,
    ConfigKeyType.LIST: 7,
    ConfigKeyType.CLASS: 8,
    ConfigKeyType.PASSWORD: 9,
}
"""Kafka's DescribeConfigs types."""

CLUSTER_DEFAULT: Final = r.ConfigResource(ConfigResourceType.BROKER, "")

# --- configurations -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DescribeResources:
    """A DescribeConfigs request."""

    resources: tuple[r.ConfigResource, ...]
    names: tuple[tuple[str, ...] | None, ...]
    """The configs to describe of each resource, None for all."""
    with_synonyms: bool

    def refusal(self, resource: r.ConfigResource, node_id: int) -> str:
        """Why the controller `node_id` does not describe this resource, or "" (rule 1)."""
        if resource.type == ConfigResourceType.BROKER:
            if resource.name in ("", str(node_id)):
                return ""
            return (
                f"Unexpected broker id, expected {node_id} or empty string, but received "
                f"{resource.name}"
            )
        if resource.type == ConfigResourceType.GROUP and not resource.name:
            return "Group name must not be empty"
        if resource.type == ConfigResourceType.CLIENT_METRICS and not resource.name:
            return "Client metrics subscription name must not be empty"
        return ""

    def read(self, node_id: int) -> r.DescribeConfigs:
        """The read with what is needed to answer this request.

        The last resource is the cluster-wide default, which applies to topics and brokers.
        """
        wanted = (each for each in self.resources if not self.refusal(each, node_id))
        return r.DescribeConfigs(
            (*(each for each in wanted if each != CLUSTER_DEFAULT), CLUSTER_DEFAULT)
        )


@dataclass(frozen=True, slots=True)
class ConfigDescription:
    """One config."""

    name: str
    synonyms: tuple[tuple[str, str | None, int], ...]
    """(name, value, source) by precedence, the effective one first. The values of sensitive configs
    are None.
    """
    is_sensitive: bool
    type: int


@dataclass(frozen=True, slots=True)
class ResourceDescription:
    """The response for one resource."""

    resource: r.ConfigResource
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    configs: tuple[ConfigDescription, ...] = ()


@dataclass(frozen=True, slots=True)
class ResourcesDescription:
    """The response to DescribeResources, in its order."""

    resources: tuple[ResourceDescription, ...]
    with_synonyms: bool


def decode_describe_configs(body: Any) -> DescribeResources:
    return DescribeResources(
        tuple(r.ConfigResource(each.resource_type, each.resource_name) for each in body.resources),
        tuple(
            None if each.configuration_keys is None else tuple(each.configuration_keys)
            for each in body.resources
        ),
        body.include_synonyms,
    )


def description_of(
    request: DescribeResources,
    node_id: int,
    found: Mapping[r.ConfigResource, r.ResourceConfigs],
    defaults: Iterable[r.ConfigValue],
) -> ResourcesDescription:
    """The response to a request. found: the resources that the caller may see. defaults: the
    cluster-wide values of brokers' configs.
    """
    known = {value.name: value for value in defaults}
    described = []
    for resource, names in zip(request.resources, request.names, strict=True):
        if refused := request.refusal(resource, node_id):
            described.append(ResourceDescription(resource, ErrorCode.INVALID_REQUEST, refused))
            continue
        configs = found[resource]
        if configs.error is not ErrorCode.NONE:
            described.append(ResourceDescription(resource, configs.error, configs.message))
            continue
        every = _configs(configs, known)
        chosen = every if names is None else {n: every[n] for n in names if n in every}
        described.append(ResourceDescription(resource, configs=tuple(chosen.values())))
    return ResourcesDescription(tuple(described), request.with_synonyms)


def effective_topic_configs(
    own: Iterable[tuple[str, str | None]], defaults: Mapping[str, str]
) -> tuple[ConfigDescription, ...]:
    """Every config of a topic that has a value, by name. own: those of the topic itself. defaults:
    the cluster-wide values of brokers' configs.
    """
    resource = r.ConfigResource(ConfigResourceType.TOPIC, "")
    values = (r.ConfigValue(name, value, TOPIC_SOURCE, False) for name, value in own)
    known = {
        name: r.ConfigValue(name, value, DEFAULT_BROKER_SOURCE, False)
        for name, value in defaults.items()
    }
    found = _configs(r.ResourceConfigs(resource, tuple(values)), known)
    return tuple(config for config in found.values() if config.synonyms)


def _configs(
    configs: r.ResourceConfigs, defaults: Mapping[str, r.ConfigValue]
) -> dict[str, ConfigDescription]:
    """Every config of a resource, by name (rule 2)."""
    resource = configs.resource
    definitions = CONFIG_DEFINITIONS[resource.type]
    own = {value.name: value for value in configs.configs}
    names = sorted(own) if resource == CLUSTER_DEFAULT else sorted({*own, *definitions})
    found = {}
    for name in names:
        definition, value = definitions.get(name), own.get(name)
        is_sensitive = definition is None or definition.is_sensitive
        synonyms = [] if value is None else [(name, value.value, value.source)]
        if resource != CLUSTER_DEFAULT:
            synonyms += _fallbacks(resource.type, name, definition, defaults)
        found[name] = ConfigDescription(
            name,
            tuple(dict.fromkeys(synonyms)),
            is_sensitive,
            0 if definition is None else _TYPES[definition.kind],
        )
    return found


def _fallbacks(
    kind: int,
    name: str,
    definition: ConfigKey | None,
    defaults: Mapping[str, r.ConfigValue],
) -> list[tuple[str, str | None, int]]:
    """The values that apply where a resource has none of its own."""
    synonym = name
    found: list[tuple[str, str | None, int]] = []
    if kind in (ConfigResourceType.TOPIC, ConfigResourceType.BROKER):
        synonym = (definition.synonym if definition is not None else "") or name
        if synonym in defaults:
            found.append((synonym, defaults[synonym].value, DEFAULT_BROKER_SOURCE))
    if definition is not None and definition.default is not None:
        found.append((synonym, definition.default, DEFAULT_SOURCE))
    return found


def encode_describe_configs_response(module: Any, response: ResourcesDescription) -> Any:
    return s.answer(
        module,
        results=tuple(
            module.DescribeConfigsResult(
                **s.outcome(each),
                resource_type=each.resource.type,
                resource_name=each.resource.name,
                configs=tuple(
                    _described(module, config, response.with_synonyms) for config in each.configs
                ),
            )
            for each in response.resources
        ),
    )


def _described(module: Any, config: ConfigDescription, with_synonyms: bool) -> Any:
    _, value, source = config.synonyms[0] if config.synonyms else ("", None, DEFAULT_SOURCE)
    shown = config.synonyms if with_synonyms else ()
    return s.make(
        module.DescribeConfigsResourceResult,
        name=config.name,
        value=value,
        read_only=False,
        config_source=source,
        is_sensitive=config.is_sensitive,
        synonyms=tuple(
            module.DescribeConfigsSynonym(name=name, value=each, source=origin)
            for name, each, origin in shown
        ),
        config_type=config.type,
        documentation=None,
    )


def describe_configs_error_response(
    request: DescribeResources, error: ErrorCode, text: str
) -> ResourcesDescription:
    return ResourcesDescription(
        tuple(ResourceDescription(each, error, text) for each in request.resources), False
    )


# --- credentials ----------------------------------------------------------------------------------


def decode_describe_scram(body: Any) -> r.DescribeUserScramCredentials:
    """Without users, all of them are described."""
    users = tuple(user.name for user in body.users or ())
    return r.DescribeUserScramCredentials(users or None)


def encode_describe_scram_response(module: Any, response: Any) -> Any:
    """Convert the response. `Refused` has an error and no users."""
    is_list = isinstance(response, r.DescribeUserScramCredentialsResponse)
    return s.answer(
        module,
        **(s.error_fields(ErrorCode.NONE) if is_list else s.outcome(response)),
        results=tuple(
            module.DescribeUserScramCredentialsResult(
                **s.outcome(user),
                user=user.name,
                credential_infos=tuple(
                    module.CredentialInfo(mechanism=mechanism, iterations=iterations)
                    for mechanism, iterations in user.credentials
                ),
            )
            for user in (response.users if is_list else ())
        ),
    )


# --- ACLs -----------------------------------------------------------------------------------------


def decode_describe_acls(body: Any) -> r.DescribeAcls:
    return r.DescribeAcls(
        r.AclFilter(
            body.resource_type_filter,
            body.resource_name_filter,
            getattr(body, "pattern_type_filter", LITERAL),
            body.principal_filter,
            body.host_filter,
            body.operation,
            body.permission_type,
        )
    )


def encode_describe_acls_response(module: Any, response: r.DescribeAclsResponse) -> Any:
    found: dict[tuple[int, str, int], list[r.Acl]] = {}
    for acl in response.acls:
        found.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(acl)
    return s.answer(
        module,
        **s.outcome(response),
        resources=tuple(
            s.make(
                module.DescribeAclsResource,
                resource_type=kind,
                resource_name=name,
                pattern_type=pattern,
                acls=tuple(
                    module.AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission_type,
                    )
                    for acl in acls
                ),
            )
            for (kind, name, pattern), acls in found.items()
        ),
    )


def describe_acls_error_response(
    _request: object, error: ErrorCode, text: str
) -> r.DescribeAclsResponse:
    return r.DescribeAclsResponse((), error=error, message=text)
