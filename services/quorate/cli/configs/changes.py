"""Builds the requests of `quorate configs alter` from an entity and its added and deleted values.

SCRAM passwords are salted here, so they are never sent over the network (KIP-554).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence

from quorate.cli.configs.entities import Entity
from quorate.cli.output import UsageError
from quorate.common.scram import MECHANISM_NUMBERS
from quorate.metadata.requests import (
    AlterClientQuotas,
    AlterUserScramCredentials,
    ConfigChange,
    ConfigOp,
    ConfigResource,
    IncrementalAlterConfigs,
    QuotaChange,
    QuotaOp,
    ScramDeletion,
    ScramUpsertion,
)
from quorate.migration.entities import QUOTA_TYPES

SET, DELETE = 0, 1
SCRAM_ITERATIONS = 4096
SALT_BYTES = 24
_HASHES = {1: "sha256", 2: "sha512"}


def configs(
    entity: Entity, added: Mapping[str, str], deleted: Sequence[str], dry_run: bool
) -> IncrementalAlterConfigs:
    assert entity.resource_type is not None, "this entity has quotas, not configurations"
    resource = ConfigResource(entity.resource_type, entity.parts[0].name or "")
    ops = [ConfigOp(name, value, SET) for name, value in added.items()]
    ops += [ConfigOp(name, None, DELETE) for name in deleted]
    return IncrementalAlterConfigs((ConfigChange(resource, tuple(ops)),), dry_run)


def quotas(
    entity: Entity, added: Mapping[str, str], deleted: Sequence[str], dry_run: bool
) -> AlterClientQuotas | None:
    """Return the request for quotas; None if all names are SCRAM mechanisms. Raises UsageError."""
    ops = [QuotaOp(k, _number(k, v)) for k, v in added.items() if k not in MECHANISM_NUMBERS]
    ops += [QuotaOp(name, None) for name in deleted if name not in MECHANISM_NUMBERS]
    if not ops:
        return None
    key = sorted((QUOTA_TYPES[part.type], part.name) for part in entity.parts)
    return AlterClientQuotas((QuotaChange(tuple(key), tuple(ops)),), dry_run)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"Cannot parse quota configuration value for {name}: {text}") from None


def scram(
    entity: Entity, added: Mapping[str, str], deleted: Sequence[str]
) -> AlterUserScramCredentials | None:
    """Return the request for SCRAM credentials; None if there are none. Raises UsageError."""
    set_here = {name: text for name, text in added.items() if name in MECHANISM_NUMBERS}
    gone = [name for name in deleted if name in MECHANISM_NUMBERS]
    if not set_here and not gone:
        return None
    (user, *others) = entity.parts
    if others or user.type != "users" or user.name is None:
        raise UsageError("SCRAM credentials belong to one user: --user NAME")
    return AlterUserScramCredentials(
        tuple(_upsertion(user.name, name, text) for name, text in set_here.items()),
        tuple(ScramDeletion(user.name, MECHANISM_NUMBERS[name]) for name in gone),
    )


def _upsertion(user: str, name: str, text: str) -> ScramUpsertion:
    """Convert `iterations=8192,password=secret` to a credential. Raises UsageError."""
    found: dict[str, str] = {}
    for pair in text.split(","):
        key, separator, value = pair.partition("=")
        if not separator or key.strip() not in ("iterations", "password"):
            raise UsageError(f"{name}: expected [iterations=N,password=SECRET]")
        found[key.strip()] = value.strip()
    if not found.get("password"):
        raise UsageError(f"{name}: password is missing; expected [iterations=N,password=SECRET]")
    iterations = found.get("iterations", str(SCRAM_ITERATIONS))
    if not (iterations.isascii() and iterations.isdigit() and int(iterations) > 0):
        raise UsageError(f"{name}: iterations={iterations} must be a positive number")
    mechanism = MECHANISM_NUMBERS[name]
    salt = secrets.token_bytes(SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(
        _HASHES[mechanism], found["password"].encode(), salt, int(iterations)
    )
    return ScramUpsertion(user, mechanism, int(iterations), salt, salted)
