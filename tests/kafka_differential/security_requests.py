"""Random requests about quotas, SCRAM credentials, ACLs and delegation tokens."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, Final

from quorate.bridge.messages import schemas as s

from tests.kafka_differential.requests import Request, Script, State, common, part, whole
from tests.kafka_differential.side import Side

USERS: Final = ("u1", "u2", "u3", "u4")
QUOTAS: Final = ("producer_byte_rate", "consumer_byte_rate")
NAMED_QUOTAS: Final = ("request_percentage", "controller_mutation_rate")
ADDRESS_QUOTAS: Final = ("connection_creation_rate",)
USUAL_VALUES: Final = (1_000_000, 2_000_000)
SCRAM_BYTES: Final = {1: 32, 2: 64}
HOUR: Final = datetime.timedelta(hours=1)
TOKENS_MAX: Final = 20


# --- quotas ---------------------------------------------------------------------------------------


def alter_client_quotas(state: State) -> Script:
    key, version = s.ALTER_CLIENT_QUOTAS, state.chance.choice((1, 0))
    entries = []
    for _ in range(1 + state.skewed(3)):
        entity = _entity(state)
        ops = [_quota(state, entity) for _ in range(1 + state.skewed(3))]
        # Of what is named twice, Kafka's controllers take the last.
        ops = list({name: (name, *rest) for name, *rest in ops}.values())
        entries.append((entity, ops))
    entries = list({frozenset(each[0]): each for each in entries}.values())
    name = "AlterClientQuotas"
    if any(sum(_may_be_wrong(entity, each) for each in ops) > 1 for entity, ops in entries):
        name += " with several errors"
    body = whole(
        key,
        version,
        entries=tuple(
            part(
                key,
                version,
                "EntryData",
                entity=tuple(
                    part(key, version, "EntityData", entity_type=kind, entity_name=name)
                    for kind, name in entity
                ),
                ops=tuple(
                    part(key, version, "OpData", key=name, value=value, remove=remove)
                    for name, value, remove in ops
                ),
            )
            for entity, ops in entries
        ),
        validate_only=state.odds(0.08),
    )
    return [common(name, key, version, body)]


def _may_be_wrong(entity: Sequence[tuple[str, str | None]], quota: tuple[str, float, bool]) -> bool:
    name, value, removes = quota
    of_addresses = any(kind == "ip" for kind, _ in entity)
    known = ADDRESS_QUOTAS if of_addresses else (*QUOTAS, *NAMED_QUOTAS)
    return not removes and (name not in known or value not in USUAL_VALUES)


def _entity(state: State) -> tuple[tuple[str, str | None], ...]:
    user = ("user", state.chance.choice((*USERS, None)))
    client = ("client-id", state.chance.choice(("c1", "c2", None)))
    address = ("ip", state.chance.choice(("10.1.2.3", "10.1.2.4", None)))
    if state.odds(0.05):
        return state.chance.choice(
            (
                (),
                (("user", ""),),
                (user, address),
                (("group", "g"),),
                (("ip", "not an address"),),
            )
        )
    return state.chance.choice(((user,), (client,), (user, client), (address,)))


def _quota(state: State, entity: tuple[tuple[str, str | None], ...]) -> tuple[str, float, bool]:
    is_address = any(kind == "ip" for kind, _ in entity)
    is_named = all(name is not None for _, name in entity)
    names = list(QUOTAS)
    if is_address:
        names = list(ADDRESS_QUOTAS)
    elif is_named:
        # Of a default entity these would throttle the test itself.
        names += NAMED_QUOTAS
    if state.odds(0.05):
        names = ["unknown", "producer_byte_rate", "connection_creation_rate"]
    value = float(state.chance.choice(USUAL_VALUES))
    if state.odds(0.05):
        value = state.chance.choice((0.0, -1.0, 1_000_000.5, 1e30, 2.0**40))
    return state.chance.choice(names), value, state.odds(0.4)


# --- SCRAM ----------------------------------------------------------------------------------------


def alter_scram(state: State) -> Script:
    key = s.ALTER_USER_SCRAM_CREDENTIALS
    chance = state.chance
    deletions = [
        part(
            key,
            0,
            "ScramCredentialDeletion",
            name=_user(state),
            mechanism=_mechanism(state),
        )
        for _ in range(state.skewed(3))
    ]
    upsertions = []
    for _ in range(state.skewed(4)):
        mechanism = _mechanism(state)
        size = SCRAM_BYTES.get(mechanism, 32)
        upsertions.append(
            part(
                key,
                0,
                "ScramCredentialUpsertion",
                name=_user(state),
                mechanism=mechanism,
                iterations=chance.choice((4095, 16_385) if state.odds(0.05) else (4096, 8192)),
                salt=chance.randbytes(16),
                salted_password=chance.randbytes(size),
            )
        )
    name = "AlterUserScramCredentials"
    users = [each.name for each in (*deletions, *upsertions)]
    if len(set(users)) < len(users):
        if state.odds(0.9):
            return []
        name += " of one user twice"
    body = whole(key, 0, deletions=tuple(deletions), upsertions=tuple(upsertions))
    return [common(name, key, 0, body)]


def _user(state: State) -> str:
    return "" if state.odds(0.02) else state.chance.choice(USERS)


def _mechanism(state: State) -> int:
    return state.chance.choice((0, 3)) if state.odds(0.03) else state.chance.choice((1, 2))


# --- ACLs -----------------------------------------------------------------------------------------


def create_acls(state: State) -> Script:
    key, version = s.CREATE_ACLS, state.chance.choice((3, 2, 1))
    creations = [_acl(state, key, version) for _ in range(1 + state.skewed(3))]
    if state.odds(0.1):
        creations.append(creations[0])
    name = "CreateAcls"
    if state.odds(0.05):
        name, creations = "CreateAcls of an invalid one", [_invalid_acl(state, key, version)]
    body = whole(key, version, creations=tuple(creations))
    return [common(name, key, version, body)]


def _acl(state: State, key: int, version: int) -> Any:
    return part(key, version, "AclCreation", **_acl_fields(state))


def _acl_fields(state: State) -> dict[str, Any]:
    chance = state.chance
    kind = chance.choice((2, 2, 3, 4, 5, 6))
    return {
        "resource_type": kind,
        "resource_name": "kafka-cluster" if kind == 4 else chance.choice(("a", "b", "ab", "*")),
        "resource_pattern_type": 3 if kind == 4 else chance.choice((3, 3, 4)),
        "principal": f"User:{chance.choice(USERS)}",
        "host": chance.choice(("*", "10.1.2.3")),
        "operation": chance.choice({4: (5, 8, 12), 6: (8,), 3: (3, 8)}.get(kind, (2, 3, 4, 8))),
        "permission_type": chance.choice((2, 3)),
    }


def _invalid_acl(state: State, key: int, version: int) -> Any:
    """One that is not valid. Kafka's controllers close the connection if a code is unknown."""
    wrong = state.chance.choice(
        (
            {"resource_type": 1},
            {"resource_name": ""},
            {"resource_pattern_type": 2},
            {"principal": "nobody"},
            {"principal": ""},
            {"operation": 1},
            {"permission_type": 1},
            {"resource_type": 4, "resource_name": "another"},
            {"operation": 12},
        )
    )
    return part(key, version, "AclCreation", **_acl_fields(state) | wrong)


def delete_acls(state: State) -> Script:
    key, version = s.DELETE_ACLS, state.chance.choice((3, 2, 1))
    filters = [_filter(state, key, version) for _ in range(1 + state.skewed(2))]
    return [common("DeleteAcls", key, version, whole(key, version, filters=tuple(filters)))]


def _filter(state: State, key: int, version: int) -> Any:
    chance = state.chance
    fields: dict[str, Any] = {
        "resource_type_filter": chance.choice((1, 2, 2, 3, 4)),
        "resource_name_filter": chance.choice((None, "a", "ab", "*")),
        "pattern_type_filter": chance.choice((1, 2, 3, 4)),
        "principal_filter": chance.choice((None, *(f"User:{each}" for each in USERS))),
        "host_filter": chance.choice((None, None, "*")),
        "operation": chance.choice((1, 1, 3, 8)),
        "permission_type": chance.choice((1, 1, 2, 3)),
    }
    if state.odds(0.05):
        fields |= chance.choice(
            (
                {"resource_name_filter": ""},
                {"principal_filter": "nobody"},
            )
        )
    return part(key, version, "DeleteAclsFilter", **fields)


# --- delegation tokens ----------------------------------------------------------------------------


def create_token(state: State) -> Script:
    if len(state.image.tokens.tokens) >= TOKENS_MAX:
        return expire_token(state)
    key, version = s.CREATE_DELEGATION_TOKEN, state.chance.choice((3, 2))
    chance = state.chance
    renewers = [("User", chance.choice(USERS)) for _ in range(state.skewed(3))]
    if state.odds(0.05):
        renewers.append(("Group", "g"))
    owner: tuple[str | None, str | None] = (None, None)
    if state.odds(0.3):
        owner = ("User", chance.choice(USERS))
        # Only owners and renewers may remove a token again.
        renewers.append(("User", "broker"))
    lifetime = HOUR * chance.choice((-1, 0, 1, 2, 24, 400))
    body = whole(
        key,
        version,
        owner_principal_type=owner[0],
        owner_principal_name=owner[1],
        renewers=tuple(
            part(key, version, "CreatableRenewers", principal_type=kind, principal_name=name)
            for kind, name in renewers
        ),
        max_lifetime=lifetime,
    )
    return [common("CreateDelegationToken", key, version, body)]


def _secret(state: State) -> int | None:
    """Which token, counted from the newest; None for one that is gone."""
    return None if state.odds(0.05) else state.skewed(TOKENS_MAX)


def _hmac(side: Side, back: int | None) -> bytes:
    secrets = list(side.secrets.values())
    return side.gone if back is None or not secrets else secrets[-1 - back % len(secrets)]


def renew_token(state: State) -> Script:
    key, back = s.RENEW_DELEGATION_TOKEN, _secret(state)
    period = HOUR * state.chance.choice((-1, 0, 1, 5, 1000))
    return [
        Request(
            "RenewDelegationToken",
            key,
            2,
            lambda side: whole(key, 2, hmac=_hmac(side, back), renew_period=period),
        )
    ]


def expire_token(state: State) -> Script:
    key, back = s.EXPIRE_DELEGATION_TOKEN, _secret(state)
    period = HOUR * state.chance.choice((-1, -1, 1, 1000))
    return [
        Request(
            "ExpireDelegationToken",
            key,
            2,
            lambda side: whole(key, 2, hmac=_hmac(side, back), expiry_time_period=period),
        )
    ]
