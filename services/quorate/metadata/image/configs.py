"""Configurations of topics, brokers, client metrics and groups, as part of the image.

Deleting a topic removes its configs. Only values that were set are stored, no defaults.

Source: KIP-631 (ConfigRecord), KIP-226, KIP-339 (incremental changes).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from quorate.metadata.image.delta import MetadataDelta
from quorate.records.metadata import ConfigRecord, MetadataRecord

ResourceKey = tuple[int, str]
"""(resource type, name); a broker with an empty name is the cluster-wide default."""

_EMPTY: Mapping[str, str] = {}


class ConfigResourceType(IntEnum):
    """Kafka's ConfigResource.Type."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


DEFAULT_BROKER: Final[ResourceKey] = (ConfigResourceType.BROKER, "")


@dataclass(slots=True, repr=False)
class ConfigsImage:
    """The configs."""

    resources: dict[ResourceKey, Mapping[str, str]] = field(default_factory=dict)
    """Config names and values by resource, never empty. Inner mappings are frozen."""

    def copy(self) -> ConfigsImage:
        return ConfigsImage(self.resources.copy())

    def of(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self.resources.get((resource_type, name), _EMPTY)

    def records(self) -> Iterator[MetadataRecord]:
        for (resource_type, resource_name), configs in self.resources.items():
            for name, value in configs.items():
                yield ConfigRecord(resource_type, resource_name, name, value, version=0)

    def apply(self, record: ConfigRecord, delta: MetadataDelta) -> None:
        key = (record.resource_type, record.resource_name)
        configs = dict(self.resources.get(key, _EMPTY))
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value
        if configs:
            self.resources[key] = configs
        else:
            self.resources.pop(key, None)
        delta.configs.add(key)

    def forget_topic(self, name: str, delta: MetadataDelta) -> None:
        """Remove the configs of a deleted topic."""
        key = (int(ConfigResourceType.TOPIC), name)
        if self.resources.pop(key, None) is not None:
            delta.configs.add(key)
