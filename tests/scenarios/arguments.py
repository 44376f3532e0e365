"""Words of a command, and how transcripts spell the values in them (see `rendering.py`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from quorate.common.endpoints import Endpoint
from quorate.common.features import VersionRange
from quorate.raft.types import OffsetAndEpoch, ReplicaKey

CLUSTER_ID = "c"
LISTENER = "CONTROLLER"


@dataclass(slots=True)
class Arguments:
    """A command's words: values in order, and options by name."""

    values: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, words: list[str]) -> Arguments:
        arguments = cls()
        for word in words:
            name, equals, value = word.partition("=")
            if equals:
                arguments.options[name] = value
            else:
                arguments.values.append(word)
        return arguments

    def flag(self, name: str) -> bool:
        return name in self.values


def parse_key(text: str) -> ReplicaKey:
    """`4A`: id 4, directory A; `4`: directory unknown; `-1`: nobody."""
    digits = len(text) - len(text.lstrip("-0123456789"))
    return ReplicaKey(int(text[:digits]), text[digits:] or None)


def parse_keys(text: str) -> list[ReplicaKey]:
    return [parse_key(part) for part in text.split(",")] if text else []


def parse_position(text: str) -> OffsetAndEpoch:
    offset, epoch = text.split("@")
    return OffsetAndEpoch(int(offset), int(epoch))


def parse_endpoint(text: str) -> Endpoint:
    """`host:port` of the listener CONTROLLER, `NAME:host:port` of another."""
    *name, host, port = text.split(":")
    return Endpoint(name[0] if name else LISTENER, host, int(port))


def parse_range(text: str) -> VersionRange:
    low, high = text.split("-")
    return VersionRange(int(low), int(high))


def usual_endpoint(node_id: int) -> Endpoint:
    return Endpoint(LISTENER, f"n{node_id}", 9093)


def parse_link(text: str) -> tuple[int | None, int | None]:
    source, target = text.split("->")
    return (int(source) if source else None, int(target) if target else None)
