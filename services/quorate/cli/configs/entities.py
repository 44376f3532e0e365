"""Parses the options of `configs`: the entity that they name, and the values that they set.

Source: Kafka's ConfigCommand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quorate.cli.output import UsageError

DEFAULT_MARK: Final = "\0default"
"""The name that replaces --entity-default on the command line."""

RESOURCE_TYPES: Final = {"topics": 2, "brokers": 4, "client-metrics": 16, "groups": 32}
SINGULAR: Final = {
    "topics": "topic",
    "brokers": "broker",
    "client-metrics": "client-metric",
    "groups": "group",
    "users": "user",
    "clients": "client",
    "ips": "ip",
}


@dataclass(frozen=True, slots=True)
class EntityPart:
    """An entity type with a name."""

    type: str
    name: str | None = None
    """The name, None if not given."""
    is_default: bool = False
    """Whether the entity is the type's default."""


@dataclass(frozen=True, slots=True)
class Entity:
    """The entity that the options name: one part, or a user and a client together."""

    parts: tuple[EntityPart, ...]

    @property
    def resource_type(self) -> int | None:
        """Kafka's code of the resource type; None for an entity with quotas."""
        return RESOURCE_TYPES.get(self.parts[0].type)

    @property
    def shown(self) -> str:
        """The entity as Kafka's message "Completed updating …" names it."""
        part = self.parts[0]
        if part.is_default and part.type == "brokers":
            return "default config for brokers in the cluster"
        if part.is_default:
            return f"default config for {part.type} in the cluster"
        return f"config for {SINGULAR[part.type]} {part.name}"


def parse_entity(
    types: Sequence[str] | None,
    names: Sequence[str] | None,
    named: Mapping[str, str | None],
    defaults: Mapping[str, bool],
    *,
    is_alter: bool,
) -> Entity:
    """Parse the entity. named, defaults: short options by type (--topic, --broker-defaults, …)."""
    short = [EntityPart(kind, name) for kind, name in named.items() if name is not None]
    short += [EntityPart(kind, is_default=True) for kind, wanted in defaults.items() if wanted]
    if short and types:
        raise UsageError("--entity-type cannot be combined with --topic, --broker and the like")
    parts = short or _long(types or (), names or ())
    if not parts:
        raise UsageError("--entity-type is missing")
    _check(parts, is_alter)
    # Kafka's order: user before client.
    parts.sort(key=lambda part: part.type, reverse=True)
    return Entity(tuple(parts))


def _long(types: Sequence[str], names: Sequence[str]) -> list[EntityPart]:
    if len(names) > len(types):
        raise UsageError("there are more --entity-name than --entity-type options")
    parts = []
    for index, kind in enumerate(types):
        if kind not in SINGULAR:
            raise UsageError(f"--entity-type {kind}: accepted: {', '.join(SINGULAR)}")
        name = names[index] if index < len(names) else None
        is_default = name == DEFAULT_MARK
        parts.append(EntityPart(kind, None if is_default else name, is_default))
    return parts


def _check(parts: Sequence[EntityPart], is_alter: bool) -> None:
    kinds = [part.type for part in parts]
    if len(parts) > 1 and sorted(kinds) != ["clients", "users"]:
        raise UsageError("Only users and clients can be given together")
    for part in parts:
        if part.name is None and not part.is_default and is_alter:
            raise UsageError(f"--entity-name or --entity-default for {part.type} is missing")
        if part.is_default and part.type not in ("brokers", "users", "clients", "ips"):
            raise UsageError(f"there is no default for {part.type}")
        if part.name == "":
            raise UsageError(f"the name for the entity type {part.type} is empty")
        if part.type == "brokers" and part.name is not None and not part.name.isdecimal():
            raise UsageError(
                f"The entity name for brokers must be a valid integer broker id, found {part.name}"
            )


# --- values ---------------------------------------------------------------------------------------


def parse_additions(texts: Iterable[str]) -> dict[str, str]:
    """Parse `a=1,b=[x,y]` to values by name. Raises UsageError."""
    found: dict[str, str] = {}
    for text in texts:
        for pair in split_outside_brackets(text):
            name, separator, value = pair.partition("=")
            if not separator or not name.strip():
                raise UsageError(
                    f"--add-config {pair}: all configs to be added must be in the format "
                    '"key=val" or "key=[val1,val2]"'
                )
            value = value.strip()
            if value.startswith("[") and value.endswith("]"):
                value = value[1:-1]
            found[name.strip()] = value
    return found


def split_outside_brackets(text: str) -> list[str]:
    """Split at commas outside brackets, and drop empty pieces. Raises UsageError."""
    pieces, depth, start = [], 0, 0
    for index, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif character == "," and depth == 0:
            pieces.append(text[start:index])
            start = index + 1
    if depth != 0:
        raise UsageError(f"--add-config {text}: unbalanced brackets")
    pieces.append(text[start:])
    return [piece for piece in pieces if piece.strip()]


def parse_file(path: Path) -> dict[str, str]:
    """Read the properties in a file."""
    from quorate.process.properties import read_properties

    return {name: value for name, (value, _) in read_properties(path).items()}
