"""Requests about configurations, quotas, credentials and ACLs (see `requests`)."""

from __future__ import annotations

from dataclasses import dataclass

from quorate.common.error_codes import ErrorCode
from quorate.metadata.requests.common import (
    PartResult,
    Read,
    Request,
    RequestOutcome,
    Response,
)

# --- configuration --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A resource that has configs. A broker with an empty name is the cluster-wide default."""

    type: int
    """The type of the resource: 2 topic, 4 broker, 16 client metrics, 32 group
    (`configs.ConfigResourceType`).
    """
    name: str


@dataclass(frozen=True, slots=True)
class ConfigOp:
    """One operation on a config."""

    name: str
    value: str | None
    operation: int = 0
    """The operation: 0 set, 1 delete, 2 append to a list, 3 subtract from a list."""


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """The config changes of one resource."""

    resource: ConfigResource
    ops: tuple[ConfigOp, ...]


@dataclass(frozen=True, slots=True)
class IncrementalAlterConfigs(Request):
    """Change configs of resources."""

    changes: tuple[ConfigChange, ...]
    validate_only: bool = False
    """Whether to validate the request without changing anything."""


@dataclass(frozen=True, slots=True)
class AlterConfigs(Request):
    """Replace the configs of each resource by those that the operations set (KIP-133).

    Only Kafka's clients send this; the response is that of IncrementalAlterConfigs.
    """

    changes: tuple[ConfigChange, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class ConfigOutcome:
    """The result of the changes of one resource."""

    resource: ConfigResource
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class AlterConfigsResponse(Response):
    """One entry for each resource."""

    resources: tuple[ConfigOutcome, ...]


@dataclass(frozen=True, slots=True)
class DescribeConfigs(Read):
    """Describe the configs of these resources.

    If `resources` is empty: of every resource of type `all_of_type` (0 for all types) that has
    configs.
    """

    resources: tuple[ConfigResource, ...] = ()
    all_of_type: int = 0
    names: tuple[str, ...] | None = None
    """Only these configs, or all if None."""
    with_defaults: bool = False
    """Whether to describe configs that are not set, too."""


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """The value of a config, None if it is sensitive."""

    name: str
    value: str | None
    source: int
    """The source, as Kafka's DescribeConfigs has it (1 topic, 2 broker, 3 default broker, 5
    default, 7 client metrics, 8 group).
    """
    is_sensitive: bool = False
    is_read_only: bool = False


@dataclass(frozen=True, slots=True)
class ResourceConfigs(RequestOutcome):
    """The configs of a resource, sorted by name."""

    resource: ConfigResource
    configs: tuple[ConfigValue, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeConfigsResponse(Response):
    """One entry for each resource."""

    resources: tuple[ResourceConfigs, ...]


# --- quotas and credentials -----------------------------------------------------------------------


QuotaEntityKey = tuple[tuple[str, str | None], ...]
"""(type, name) sorted by type; a name of None is the type's default. Types: user, client-id, ip."""


@dataclass(frozen=True, slots=True)
class QuotaOp:
    """The new value of a quota; None removes it."""

    key: str
    value: float | None


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """The quota changes of one entity."""

    entity: QuotaEntityKey
    ops: tuple[QuotaOp, ...]


@dataclass(frozen=True, slots=True)
class AlterClientQuotas(Request):
    """Change client quotas."""

    changes: tuple[QuotaChange, ...]
    validate_only: bool = False
    """Whether to validate the request without changing anything."""


@dataclass(frozen=True, slots=True)
class QuotaOutcome(RequestOutcome):
    """The result of the changes of one entity."""

    entity: QuotaEntityKey


@dataclass(frozen=True, slots=True)
class AlterClientQuotasResponse(Response):
    """One entry for each entity."""

    entries: tuple[QuotaOutcome, ...]


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """Selects quota entities."""

    entity_type: str
    match: int
    """What the filter selects: 0 exactly `name`, 1 the type's default, 2 any name."""
    name: str | None = None


@dataclass(frozen=True, slots=True)
class DescribeClientQuotas(Read):
    """Describe the quotas of entities that match every filter.

    Without filters, all entities match unless `strict` is set.
    """

    filters: tuple[QuotaFilter, ...] = ()
    strict: bool = False
    """Whether the entity must not have other parts."""


@dataclass(frozen=True, slots=True)
class DescribeClientQuotasResponse(Response, RequestOutcome):
    """(entity, ((key, value), …)), sorted by entity."""

    entries: tuple[tuple[QuotaEntityKey, tuple[tuple[str, float], ...]], ...]


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A SCRAM credential to add or replace."""

    name: str
    mechanism: int
    """The mechanism: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""
    iterations: int
    salt: bytes
    salted_password: bytes
    """The password, salted by the client."""


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
    """One entry for each user."""

    users: tuple[PartResult, ...]


@dataclass(frozen=True, slots=True)
class DescribeUserScramCredentials(Read):
    """Describe the credentials of these users, or of all users if None."""

    users: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class UserScramCredentials(RequestOutcome):
    """The SCRAM credentials of one user."""

    name: str
    credentials: tuple[tuple[int, int], ...] = ()
    """The (mechanism, iterations) of each credential."""


@dataclass(frozen=True, slots=True)
class DescribeUserScramCredentialsResponse(Response):
    """Sorted by user."""

    users: tuple[UserScramCredentials, ...]


# --- access control -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """An access control entry. Numbers are Kafka's codes (`acls` names them)."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    """The host that the entry applies to, "*" for any."""
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter for ACLs. The number 1 (ANY) and the text None match everything.

    pattern_type 2 (MATCH) selects the ACLs that apply to a resource of that name.
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
    """Create ACLs. An ACL that exists already is not an error and changes nothing."""

    acls: tuple[Acl, ...]


@dataclass(frozen=True, slots=True)
class CreateAclsResponse(Response):
    """One entry for each ACL."""

    results: tuple[PartResult, ...]


@dataclass(frozen=True, slots=True)
class DeleteAcls(Request):
    """Delete every ACL that matches one of the filters."""

    filters: tuple[AclFilter, ...]


@dataclass(frozen=True, slots=True)
class DeletedAcls(RequestOutcome):
    """The ACLs that one filter removed."""

    acls: tuple[Acl, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteAclsResponse(Response):
    """One entry for each filter."""

    results: tuple[DeletedAcls, ...]


@dataclass(frozen=True, slots=True)
class DescribeAcls(Read):
    """Describe the ACLs that match the filter."""

    filter: AclFilter = AclFilter()


@dataclass(frozen=True, slots=True)
class DescribeAclsResponse(Response, RequestOutcome):
    """Sorted by resource, then by principal."""

    acls: tuple[Acl, ...]
