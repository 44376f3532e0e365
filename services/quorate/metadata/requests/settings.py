"""Requests about configurations, quotas, credentials and ACLs (see `requests`)."""

from __future__ import annotations

from dataclasses import dataclass

from quorate.metadata.requests.common import Outcome, Read, Request, Response
from quorate.raft.errors import ErrorCode

# --- configuration --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """type: 2 topic, 4 broker, 16 client metrics, 32 group (`configs.ResourceType`). An empty name
    of a broker is the default of all brokers.
    """

    type: int
    name: str


@dataclass(frozen=True, slots=True)
class ConfigOp:
    """operation: 0 set, 1 delete, 2 append, 3 subtract (to a list)."""

    name: str
    value: str | None
    operation: int = 0


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """What to change of one resource."""

    resource: ConfigResource
    ops: tuple[ConfigOp, ...]


@dataclass(frozen=True, slots=True)
class IncrementalAlterConfigs(Request):
    """validate_only: check, and change nothing."""

    changes: tuple[ConfigChange, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class ConfigOutcome:
    """How the change of a resource ended."""

    resource: ConfigResource
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class AlterConfigsResponse(Response):
    """One part for each resource."""

    resources: tuple[ConfigOutcome, ...]


@dataclass(frozen=True, slots=True)
class DescribeConfigs(Read):
    """Of these resources; of every resource of `all_of_type` that has any if `resources` is empty.

    names: only these configs, all if None. with_defaults: also what is not set.
    """

    resources: tuple[ConfigResource, ...] = ()
    all_of_type: int = 0
    names: tuple[str, ...] | None = None
    with_defaults: bool = False


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """source: Kafka's DescribeConfigs source (1 topic, 2 broker, 3 default broker, 5 default).

    A sensitive value is told as None.
    """

    name: str
    value: str | None
    source: int
    is_sensitive: bool = False
    is_read_only: bool = False


@dataclass(frozen=True, slots=True)
class ResourceConfigs:
    """The configs of a resource by rising name."""

    resource: ConfigResource
    configs: tuple[ConfigValue, ...] = ()
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class DescribeConfigsResponse(Response):
    """One part for each resource."""

    resources: tuple[ResourceConfigs, ...]


# --- quotas and credentials -----------------------------------------------------------------------


QuotaEntityKey = tuple[tuple[str, str | None], ...]
"""(type, name) by rising type; a name of None is the type's default. Types: user, client-id, ip."""


@dataclass(frozen=True, slots=True)
class QuotaOp:
    """value None removes it."""

    key: str
    value: float | None


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """What to change for one entity."""

    entity: QuotaEntityKey
    ops: tuple[QuotaOp, ...]


@dataclass(frozen=True, slots=True)
class AlterClientQuotas(Request):
    """validate_only: check, and change nothing."""

    changes: tuple[QuotaChange, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class QuotaOutcome:
    """How the change for one entity ended."""

    entity: QuotaEntityKey
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class AlterClientQuotasResponse(Response):
    """One part for each entity."""

    entries: tuple[QuotaOutcome, ...]


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """match: 0 exactly `name`, 1 the type's default, 2 any name."""

    entity_type: str
    match: int
    name: str | None = None


@dataclass(frozen=True, slots=True)
class DescribeClientQuotas(Read):
    """Entities that have each of these parts, and no other part if `strict`; all without any."""

    filters: tuple[QuotaFilter, ...] = ()
    strict: bool = False


@dataclass(frozen=True, slots=True)
class DescribeClientQuotasResponse(Response):
    """(entity, ((key, value), …)) by rising entity."""

    entries: tuple[tuple[QuotaEntityKey, tuple[tuple[str, float], ...]], ...]
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """mechanism: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512. salted_password: the client salted it."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """A user's credential to remove."""

    name: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class AlterUserScramCredentials(Request):
    """A user may appear once for each mechanism."""

    upsertions: tuple[ScramUpsertion, ...] = ()
    deletions: tuple[ScramDeletion, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterUserScramCredentialsResponse(Response):
    """One part for each user."""

    users: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class DescribeUserScramCredentials(Read):
    """Of these users, of all if None."""

    users: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class UserScramCredentials:
    """credentials: (mechanism, iterations)."""

    name: str
    credentials: tuple[tuple[int, int], ...] = ()
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class DescribeUserScramCredentialsResponse(Response):
    """By rising user."""

    users: tuple[UserScramCredentials, ...]


# --- access control -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Acl:
    """Who may do what. The numbers are Kafka's codes (`acls` names them). host "*" is any host."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which ACLs: 1 of a number is ANY, None of a text is any; pattern_type 2 is MATCH: what would
    apply to a resource of that name.
    """

    resource_type: int = 1
    resource_name: str | None = None
    pattern_type: int = 1
    principal: str | None = None
    host: str | None = None
    operation: int = 1
    permission_type: int = 1


@dataclass(frozen=True, slots=True)
class CreateAcls(Request):
    """One that exists already is no error and changes nothing."""

    acls: tuple[Acl, ...]


@dataclass(frozen=True, slots=True)
class CreateAclsResponse(Response):
    """One part for each ACL."""

    results: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class DeleteAcls(Request):
    """Whatever matches one of the filters."""

    filters: tuple[AclFilter, ...]


@dataclass(frozen=True, slots=True)
class DeletedAcls:
    """What one filter removed."""

    acls: tuple[Acl, ...] = ()
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class DeleteAclsResponse(Response):
    """One part for each filter."""

    results: tuple[DeletedAcls, ...]


@dataclass(frozen=True, slots=True)
class DescribeAcls(Read):
    """What matches."""

    filter: AclFilter = AclFilter()


@dataclass(frozen=True, slots=True)
class DescribeAclsResponse(Response):
    """By resource, then by principal."""

    acls: tuple[Acl, ...]
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
