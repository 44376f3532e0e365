"""The types of settings: the syntax, the accepted values, and the parsed type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from quorate.common.endpoints import Endpoint

T = TypeVar("T")
Member = TypeVar("Member", bound=StrEnum)

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

KIB = 1024
MIB = 1024 * KIB
HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * HOUR_MS

WILDCARD_HOSTS = ("", "0.0.0.0", "::")  # noqa: S104 - recognised here, bound only on request

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Kafka's security protocols. Only the listener for Kafka's brokers speaks SASL."""

_LISTENER_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_NODE_ID = re.compile(r"[0-9]{1,10}")
_HOST = re.compile(r"[A-Za-z0-9_.%:-]*")


class Address(NamedTuple):
    """A host and a TCP port. `host` has no brackets, even if it is an IPv6 address."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class StaticVoter(NamedTuple):
    """One entry of `controller.quorum.voters`: at kraft.version 0 the id alone names a voter."""

    id: int
    address: Address


@dataclass(frozen=True, slots=True)
class ConfigType(Generic[T]):
    """The type of a setting's value."""

    name: str
    accepts: str
    """The accepted values, for people."""
    parse: Callable[[str], T]
    """Raises ValueError with the reason alone; the caller adds the setting, its value and place."""
    is_secret: bool = False
    """Whether the value appears nowhere: not in errors, nor in the representation of a config."""


# --- the types ------------------------------------------------------------------------------------


def parse_address(text: str, *, wildcard: bool = False) -> Address:
    """Parse `host:port` or `[ipv6]:port`. With `wildcard` the host may be empty.

    Raises ValueError.
    """
    host, colon, port = text.strip().rpartition(":")
    if not colon:
        raise ValueError(f"{text!r} is not host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"an IPv6 address needs brackets: [{host}]:{port}")
    if not host and not wildcard:
        raise ValueError(f"{text!r} has no host")
    if not _HOST.fullmatch(host):
        raise ValueError(f"{host!r} is not a host name")
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise ValueError(f"{port!r} is not a port from 1 to 65535")
    return Address(host, int(port))


def split_list(text: str, separator: str = ",") -> list[str]:
    """The non-empty entries of a list, without surrounding whitespace."""
    return [entry.strip() for entry in text.split(separator) if entry.strip()]


def integer(minimum: int, maximum: int = INT_MAX) -> ConfigType[int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text):
            raise ValueError("not an integer")
        value = int(text)
        if not minimum <= value <= maximum:
            raise ValueError(f"too {'small' if value < minimum else 'large'}")
        return value

    return ConfigType("int", f"{minimum} to {maximum}", parse)


def milliseconds(minimum: int, maximum: int = INT_MAX) -> ConfigType[int]:
    return replace(integer(minimum, maximum), name="int (ms)")


def seconds(minimum: int) -> ConfigType[int]:
    """A number of seconds. The parsed value is in milliseconds."""
    number = integer(minimum)
    return replace(number, parse=lambda text: 1000 * number.parse(text))


def size(minimum: int, maximum: int = LONG_MAX) -> ConfigType[int]:
    return replace(integer(minimum, maximum), name="int (bytes)")


def boolean() -> ConfigType[bool]:
    def parse(text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError("not a boolean")
        return text.lower() == "true"

    return ConfigType("boolean", "true, false", parse)


def choice(*values: str) -> ConfigType[str]:
    def parse(text: str) -> str:
        found = next((value for value in values if value.lower() == text.lower()), None)
        if found is None:
            raise ValueError("unknown value")
        return found

    return ConfigType("string", ", ".join(values), parse)


def member(values: type[Member]) -> ConfigType[Member]:
    """A member of an enumeration, case-insensitive."""
    written = choice(*values)
    return ConfigType(written.name, written.accepts, lambda text: values(written.parse(text)))


def text() -> ConfigType[str]:
    """Any text."""
    return ConfigType("string", "text", str)


def password() -> ConfigType[str]:
    """Any text that must not be shown. `parse` may raise ValueError only without the text."""
    return ConfigType("password", "text", str, is_secret=True)


def texts() -> ConfigType[tuple[str, ...]]:
    """A list of any texts."""
    return ConfigType("list", "TEXT,…", lambda text: tuple(split_list(text)))


def names() -> ConfigType[tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        names = [name.upper() for name in split_list(text)]
        _check_entries(names, _LISTENER_NAME, "a listener name")
        _refuse_duplicates(names)
        return tuple(names)

    return ConfigType("list", "NAME,…", parse)


def listeners() -> ConfigType[tuple[Endpoint, ...]]:
    def parse(text: str) -> tuple[Endpoint, ...]:
        endpoints = [
            Endpoint(name.upper(), *parse_address(address, wildcard=True))
            for name, address in _pairs(text, "://", _LISTENER_NAME, "NAME://host:port")
        ]
        _refuse_duplicates([endpoint.name for endpoint in endpoints])
        return tuple(endpoints)

    return ConfigType("list", "NAME://host:port,…", parse)


def addresses() -> ConfigType[tuple[Address, ...]]:
    return ConfigType(
        "list", "host:port,…", lambda text: tuple(parse_address(e) for e in split_list(text))
    )


def static_voters() -> ConfigType[tuple[StaticVoter, ...]]:
    def parse(text: str) -> tuple[StaticVoter, ...]:
        voters = [
            StaticVoter(int(voter_id), parse_address(address))
            for voter_id, address in _pairs(text, "@", _NODE_ID, "id@host:port")
        ]
        _refuse_duplicates([str(voter.id) for voter in voters])
        return tuple(voters)

    return ConfigType("list", "id@host:port,…", parse)


def protocols() -> ConfigType[dict[str, str]]:
    def parse(text: str) -> dict[str, str]:
        result: dict[str, str] = {}
        for entry in split_list(text):
            name, separator, protocol = (part.strip().upper() for part in entry.partition(":"))
            if not separator or not _LISTENER_NAME.fullmatch(name):
                raise ValueError(f"{entry!r} is not NAME:PROTOCOL")
            if protocol not in PROTOCOLS:
                raise ValueError(f"{protocol!r} is not a security protocol")
            if name in result:
                raise ValueError(f"{name} appears twice")
            result[name] = protocol
        return result

    return ConfigType("list", "NAME:PLAINTEXT, NAME:SSL,…", parse)


def path() -> ConfigType[Path]:
    def parse(text: str) -> Path:
        if "\0" in text:
            raise ValueError("not a path")
        return Path(text)

    return ConfigType("path", "a path", parse)


def directories() -> ConfigType[tuple[Path, ...]]:
    def parse(text: str) -> tuple[Path, ...]:
        entries = split_list(text)
        if not entries:
            raise ValueError("empty")
        _refuse_duplicates(entries)
        return tuple(Path(entry) for entry in entries)

    return ConfigType("list", "DIR,…", parse)


def http_address() -> ConfigType[Address]:
    return ConfigType("string", "host:port, :port", lambda text: parse_address(text, wildcard=True))


def url() -> ConfigType[str]:
    def parse(text: str) -> str:
        scheme, separator, address = text.partition("://")
        if scheme not in ("http", "https") or not separator:
            raise ValueError("not an http or https URL")
        parse_address(address.rstrip("/"))
        return text

    return ConfigType("string", "http://host:port, https://host:port", parse)


def ratio() -> ConfigType[float]:
    def parse(text: str) -> float:
        if not re.fullmatch(r"[0-9]*\.?[0-9]+", text):
            raise ValueError("not a number")
        value = float(text)
        if value > 1:
            raise ValueError("too large")
        return value

    return ConfigType("float", "0 to 1", parse)


def roles() -> ConfigType[tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        roles = split_list(text)
        _check_entries(roles, re.compile("broker|controller"), "a role")
        _refuse_duplicates(roles)
        if roles != ["controller"]:
            raise ValueError(
                "a controller cannot be a broker as well: run brokers with `quorate broker`"
            )
        return tuple(roles)

    return ConfigType("list", "controller", parse)


def identifier() -> ConfigType[str]:
    def parse(text: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", text):
            raise ValueError("not an identifier")
        return text

    return ConfigType("string", "1 to 64 of A-Z a-z 0-9 . _ -", parse)


def principals() -> ConfigType[tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        principals = split_list(text, ";")
        _check_entries(principals, re.compile("User:.+"), "User:NAME")
        return tuple(principals)

    return ConfigType("list", "User:NAME;User:NAME;…", parse)


def controller_principals() -> ConfigType[tuple[tuple[str, int | None], ...]]:
    """(principal, node id) for each entry; the id is None if the entry names no node."""

    def parse(text: str) -> tuple[tuple[str, int | None], ...]:
        found: list[tuple[str, int | None]] = []
        for entry in split_list(text, ";"):
            parts = re.fullmatch(r"(?:(0|[1-9][0-9]{0,9})@)?(User:.+)", entry)
            if parts is None:
                raise ValueError(f"{entry!r} is neither User:NAME nor ID@User:NAME")
            found.append((parts[2], None if parts[1] is None else int(parts[1])))
        return tuple(found)

    return ConfigType("list", "User:NAME;ID@User:NAME;…", parse)


def _check_entries(entries: list[str], pattern: re.Pattern[str], what: str) -> None:
    for entry in entries:
        if not pattern.fullmatch(entry):
            raise ValueError(f"{entry!r} is not {what}")


def _pairs(
    text: str, separator: str, left: re.Pattern[str], form: str
) -> Iterator[tuple[str, str]]:
    """Yield the two parts of each entry of a list. Raises ValueError if one is not of the form."""
    for entry in split_list(text):
        name, found, rest = entry.partition(separator)
        if not found or not left.fullmatch(name):
            raise ValueError(f"{entry!r} is not {form}")
        yield name, rest


def _refuse_duplicates(entries: list[str]) -> None:
    for entry in entries:
        if entries.count(entry) > 1:
            raise ValueError(f"{entry} appears twice")
