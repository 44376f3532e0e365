"""The output of `quorate configs describe`, as Kafka's `kafka-configs` prints it and as JSON.

The synonyms of a value are its possible sources in order of precedence: the value set for the
entity, the value set for all brokers, and the default of the corresponding broker config, if it
has one. The properties files of brokers are not available here.

Source: Kafka's ConfigCommand, ConfigHelper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from quorate.cli.configs.entities import RESOURCE_TYPES, Entity, EntityPart
from quorate.cli.metadata_run import check, chunks
from quorate.common.scram import MECHANISM_NAMES
from quorate.metadata import requests as r
from quorate.metadata.config import config_defs
from quorate.migration.entities import QUOTA_TYPES
from quorate.rpc.metadata_client import MetadataClient

RESOURCES_PER_REQUEST = 1_000
TOPIC, BROKER = RESOURCE_TYPES["topics"], RESOURCE_TYPES["brokers"]

SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
OWN_SOURCE = {TOPIC: 1, BROKER: 2, 16: 7, 32: 8}
DEFAULT_BROKER, DEFAULT = 3, 5
ENTITY_TEXTS = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
EXACT, IS_DEFAULT, ANY = 0, 1, 2


@dataclass(slots=True)
class Described:
    """Configurations by resource, quotas by entity, credentials by user."""

    with_defaults: bool = False
    resources: list[r.ResourceConfigs] = field(default_factory=list)
    broker_defaults: dict[str, str] = field(default_factory=dict)
    quotas: list[tuple[r.QuotaEntityKey, tuple[tuple[str, float], ...]]] = field(
        default_factory=list
    )
    users: list[r.UserScramCredentials] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        for resource in self.resources:
            yield _head(resource.resource, self.with_defaults)
            for value in resource.configs:
                if self.with_defaults or value.source in _own_sources(resource.resource):
                    yield self._value_line(resource.resource, value)
        for entity, values in self.quotas:
            who = ", ".join(_quota_part(kind, name) for kind, name in _in_kafkas_order(entity))
            what = ", ".join(f"{key}={value!r}" for key, value in values)
            yield f"Quota configs for {who} are {what}"
        for user in self.users:
            what = ", ".join(
                f"{MECHANISM_NAMES.get(mechanism, mechanism)}=iterations={iterations}"
                for mechanism, iterations in user.credentials
            )
            yield f"SCRAM credential configs for user-principal '{user.name}' are {what}"

    def _value_line(self, resource: r.ConfigResource, value: r.ConfigValue) -> str:
        synonyms = ", ".join(
            f"{SOURCES[source]}:{name}={text}"
            for source, name, text in self._synonyms(resource, value)
        )
        shown = "null" if value.value is None else value.value
        sensitive = "true" if value.is_sensitive else "false"
        return f"  {value.name}={shown} sensitive={sensitive} synonyms={{{synonyms}}}"

    def _synonyms(
        self, resource: r.ConfigResource, value: r.ConfigValue
    ) -> Iterator[tuple[int, str, str]]:
        name = value.name
        if value.source in _own_sources(resource):
            yield value.source, name, "null" if value.value is None else value.value
        if resource.type == TOPIC:
            definition = config_defs.TOPIC.get(name)
            name = (definition.synonym if definition is not None else "") or name
        elif resource.type != BROKER or not resource.name:
            return
        if name in self.broker_defaults:
            yield DEFAULT_BROKER, name, self.broker_defaults[name]
        broker = config_defs.BROKER.get(name)
        if broker is not None and broker.default is not None:
            yield DEFAULT, name, broker.default

    def as_json(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = [
            {
                "entityType": next(k for k, v in RESOURCE_TYPES.items() if v == each.resource.type),
                "entityName": each.resource.name or None,
                "configs": [
                    {
                        "name": value.name,
                        "value": value.value,
                        "source": SOURCES.get(value.source, str(value.source)),
                        "isSensitive": value.is_sensitive,
                    }
                    for value in each.configs
                ],
            }
            for each in self.resources
        ]
        found += [{"entity": dict(e), "quotas": dict(values)} for e, values in self.quotas]
        found += [
            {
                "user": each.name,
                "credentials": [
                    {"mechanism": MECHANISM_NAMES.get(m, str(m)), "iterations": i}
                    for m, i in each.credentials
                ],
            }
            for each in self.users
        ]
        return found


def _own_sources(resource: r.ConfigResource) -> tuple[int, ...]:
    if resource.type == BROKER and not resource.name:
        return (DEFAULT_BROKER,)
    return (OWN_SOURCE[resource.type],)


def _head(resource: r.ConfigResource, with_defaults: bool) -> str:
    if resource.type == BROKER and not resource.name:
        return "Default configs for brokers in the cluster are:"
    kind = {2: "topic", 4: "broker", 16: "client-metric", 32: "group"}[resource.type]
    return f"{'All' if with_defaults else 'Dynamic'} configs for {kind} {resource.name} are:"


def _in_kafkas_order(entity: r.QuotaEntityKey) -> list[tuple[str, str | None]]:
    order = list(ENTITY_TEXTS)
    return sorted(entity, key=lambda part: order.index(part[0]) if part[0] in order else 9)


def _quota_part(kind: str, name: str | None) -> str:
    text = ENTITY_TEXTS.get(kind, kind)
    return f"the default {text}" if name is None else f"{text} '{name}'"


# --- requests -------------------------------------------------------------------------------------


async def describe(client: MetadataClient, entity: Entity, *, with_defaults: bool) -> Described:
    """Describe the configuration of the entity, or of all entities of its type."""
    found = Described(with_defaults)
    if entity.resource_type is not None:
        await _describe_resources(client, entity.parts[0], entity.resource_type, found)
        return found
    answer = await client.ask(
        r.DescribeClientQuotas(tuple(_filter(part) for part in entity.parts), strict=True)
    )
    check(answer)
    found.quotas = list(answer.entries)
    (first, *others) = entity.parts
    if first.type == "users" and not others and not first.is_default:
        users = None if first.name is None else (first.name,)
        credentials = await client.ask(r.DescribeUserScramCredentials(users))
        found.users = [each for each in credentials.users if each.credentials]
    return found


def _filter(part: EntityPart) -> r.QuotaFilter:
    kind = QUOTA_TYPES[part.type]
    if part.is_default:
        return r.QuotaFilter(kind, IS_DEFAULT)
    return r.QuotaFilter(kind, ANY if part.name is None else EXACT, part.name)


async def _describe_resources(
    client: MetadataClient, part: EntityPart, resource_type: int, found: Described
) -> None:
    default = await client.ask(r.DescribeConfigs((r.ConfigResource(BROKER, ""),)))
    for each in default.resources:
        found.broker_defaults = {value.name: value.value or "" for value in each.configs}
    if part.is_default:
        names = [""]
    elif part.name is not None:
        names = [part.name]
    else:
        names = await _all_names(client, resource_type)
    for some in chunks(names, RESOURCES_PER_REQUEST):
        resources = tuple(r.ConfigResource(resource_type, name) for name in some)
        answer = await client.ask(r.DescribeConfigs(resources, with_defaults=found.with_defaults))
        for each in answer.resources:
            check(each)
        found.resources += answer.resources


async def _all_names(client: MetadataClient, resource_type: int) -> list[str]:
    """Return all topics; or all brokers and their default (""); or the configured names."""
    if resource_type == TOPIC:
        topics = await client.ask(r.DescribeTopics())
        return [each.name for each in topics.topics]
    configured = await client.ask(r.DescribeConfigs(all_of_type=resource_type))
    names = {each.resource.name for each in configured.resources}
    if resource_type == BROKER:
        cluster = await client.ask(r.DescribeCluster())
        names |= {str(broker.id) for broker in cluster.brokers} | {""}
        return sorted(names, key=lambda name: (not name, int(name or 0)))
    return sorted(names)
