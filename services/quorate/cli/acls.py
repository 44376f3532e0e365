"""`quorate acls`: Kafka's `kafka-acls`: list, add and remove access control entries.

The entries are stored in the metadata log. Controllers enforce them once an authorizer is set
(`authorizer.class.name`), and so do the brokers of the cluster, including Kafka's brokers.

Source: Kafka's AclCommand; messages are Kafka's. KIP-290 (prefixed patterns).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quorate.cli.connection import (
    CHANGE_TIMEOUT_S,
    READ_TIMEOUT_S,
    asking,
    connected,
)
from quorate.cli.metadata_run import check, failure, run_metadata, tell_failures
from quorate.cli.option_groups import with_groups
from quorate.cli.options import AsJson
from quorate.cli.output import CommandError, UsageError, print_json, print_line, print_result

if TYPE_CHECKING:
    from quorate.metadata.requests import Acl, AclFilter, PartResult
    from quorate.rpc.metadata_client import MetadataClient

app = typer.Typer(rich_markup_mode=None, add_completion=False)

RESOURCES = {
    "ANY": 1,
    "TOPIC": 2,
    "GROUP": 3,
    "CLUSTER": 4,
    "TRANSACTIONAL_ID": 5,
    "DELEGATION_TOKEN": 6,
    "USER": 7,
}
RESOURCE_NAMES = {number: name for name, number in RESOURCES.items()}
PATTERNS = {"ANY": 1, "MATCH": 2, "LITERAL": 3, "PREFIXED": 4}
PATTERN_NAMES = {number: name for name, number in PATTERNS.items()}
DENY, ALLOW = 2, 3
ANYBODY = (None, None, 1, 1)
"""Any principal, any host, any operation, any permission."""
CLUSTER_NAME = "kafka-cluster"
WILDCARD = "*"


@dataclass(frozen=True, slots=True)
class Pattern:
    """One or more resources: type, name (None for any), pattern type. Types are Kafka's codes."""

    resource_type: int
    name: str | None
    pattern_type: int

    def shown(self) -> str:
        resource = RESOURCE_NAMES[self.resource_type]
        pattern = PATTERN_NAMES[self.pattern_type]
        return f"ResourcePattern(resourceType={resource}, name={self.name}, patternType={pattern})"


Names = list[str] | None


@dataclass(frozen=True, slots=True)
class Resources:
    """The options that name resources."""

    topic: Annotated[Names, typer.Option("--topic", metavar="NAME", help="A topic.")] = None
    group: Annotated[Names, typer.Option("--group", metavar="NAME", help="A group.")] = None
    cluster: Annotated[bool, typer.Option("--cluster", help="The cluster.")] = False
    transactional_id: Annotated[
        Names, typer.Option("--transactional-id", metavar="ID", help="A transactional id.")
    ] = None
    delegation_token: Annotated[
        Names, typer.Option("--delegation-token", metavar="ID", help="A delegation token.")
    ] = None
    user_principal: Annotated[
        Names,
        typer.Option("--user-principal", metavar="NAME", help="A user principal, as the resource."),
    ] = None
    resource_pattern_type: Annotated[
        str,
        typer.Option(
            "--resource-pattern-type",
            metavar="TYPE",
            help="literal or prefixed; list and remove also accept any and match.",
        ),
    ] = "literal"

    def patterns(self, *, is_filter: bool, needs_one: bool = True) -> list[Pattern]:
        """Return the resources that the options name. Raises UsageError."""
        kind = self.resource_pattern_type.strip().upper()
        number = PATTERNS.get(kind)
        if number is None or (not is_filter and kind in ("ANY", "MATCH")):
            accepted = "any, match, literal, prefixed" if is_filter else "literal, prefixed"
            raise UsageError(
                f"--resource-pattern-type {self.resource_pattern_type}: accepted: {accepted}"
            )
        named = {
            "TOPIC": self.topic,
            "GROUP": self.group,
            "TRANSACTIONAL_ID": self.transactional_id,
            "DELEGATION_TOKEN": self.delegation_token,
            "USER": self.user_principal,
        }
        found = [
            Pattern(RESOURCES[kind], name.strip(), number)
            for kind, names in named.items()
            for name in names or ()
        ]
        if self.cluster:
            found.append(Pattern(RESOURCES["CLUSTER"], CLUSTER_NAME, PATTERNS["LITERAL"]))
        if any(not each.name for each in found):
            raise UsageError("a resource name is empty")
        if needs_one and not found:
            raise UsageError("a resource is missing: --topic, --group, --cluster, …")
        return found


_Entry = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True)
class Grants:
    """The options that name principals, hosts and operations."""

    allow_principal: Annotated[
        Names,
        typer.Option(
            "--allow-principal",
            metavar="TYPE:NAME",
            help="The principal to allow, such as User:alice.",
        ),
    ] = None
    deny_principal: Annotated[
        Names,
        typer.Option("--deny-principal", metavar="TYPE:NAME", help="The principal to deny."),
    ] = None
    allow_host: Annotated[
        Names,
        typer.Option(
            "--allow-host",
            metavar="HOST",
            help="A host that the allowed principal may connect from; default: any.",
        ),
    ] = None
    deny_host: Annotated[
        Names,
        typer.Option(
            "--deny-host",
            metavar="HOST",
            help="A host that the denied principal may not connect from; default: any.",
        ),
    ] = None
    operation: Annotated[
        Names,
        typer.Option("--operation", metavar="NAME", help="Read, Write, Describe, …; default: All."),
    ] = None

    def entries(self) -> list[_Entry]:
        """Return (principal, host, operation, permission) of all combinations.

        Raises UsageError.
        """
        if self.allow_host and not self.allow_principal:
            raise UsageError("--allow-host requires --allow-principal")
        if self.deny_host and not self.deny_principal:
            raise UsageError("--deny-host requires --deny-principal")
        numbers = [_operation(name) for name in self.operation or ("All",)]
        found: list[_Entry] = []
        for principals, hosts, permission in (
            (self.allow_principal, self.allow_host, ALLOW),
            (self.deny_principal, self.deny_host, DENY),
        ):
            for principal in principals or ():
                if ":" not in principal:
                    raise UsageError(
                        f"principal {principal}: expected TYPE:NAME, such as User:alice"
                    )
                for host, number in itertools.product(hosts or (WILDCARD,), numbers):
                    found.append((principal, host, number, permission))
        return found


def _operation(name: str) -> int:
    from quorate.metadata.acls import OPERATIONS

    # Ignore case and underscores: Kafka accepts DescribeConfigs, describe_configs and similar.
    wanted = name.strip().replace("_", "").upper()
    for number, text in OPERATIONS.items():
        if text.replace("_", "") == wanted:
            return number
    raise UsageError(f"--operation {name}: accepted: {', '.join(OPERATIONS.values())}")


@app.callback()
@connected
def acls(context: typer.Context) -> None:
    """List, add and remove access control entries.

    \b
    quorate acls --bootstrap-controller H:P list --topic orders
    quorate acls … add --allow-principal User:alice --operation Read --topic orders
    quorate acls … remove --force --topic orders
    """


@app.command("list")
@asking
@with_groups
def list_acls(
    context: typer.Context,
    *,
    principal: Annotated[
        list[str] | None,
        typer.Option("--principal", metavar="TYPE:NAME", help="Only entries of this principal."),
    ] = None,
    resources: Resources,
    as_json: AsJson = False,
) -> None:
    """Print the entries of the given resources, or of all resources."""
    patterns = resources.patterns(is_filter=True, needs_one=False) or [
        Pattern(RESOURCES["ANY"], None, PATTERNS["ANY"])
    ]

    async def ask(client: MetadataClient) -> list[Acl]:
        found: dict[Acl, None] = {}
        for pattern in patterns:
            for who in principal or (None,):
                found |= dict.fromkeys(await _find(client, pattern, who))
        return list(found)

    found = run_metadata(context, ask, READ_TIMEOUT_S)
    print_result(as_json, [_json(each) for each in found], *acl_lines(found))


async def _find(client: MetadataClient, pattern: Pattern, principal: str | None) -> Sequence[Acl]:
    from quorate.metadata.requests import AclFilter, DescribeAcls

    chosen = AclFilter(
        pattern.resource_type, pattern.name, pattern.pattern_type, principal=principal
    )
    answer = await client.ask(DescribeAcls(chosen))
    check(answer)
    found: Sequence[Acl] = answer.acls
    return found


def acl_lines(found: Iterable[Acl]) -> Iterable[str]:
    """Format entries as Kafka lists them, with an empty line after each resource."""
    by_resource: dict[Pattern, list[Acl]] = {}
    for acl in found:
        key = Pattern(acl.resource_type, acl.resource_name, acl.pattern_type)
        by_resource.setdefault(key, []).append(acl)
    for pattern, entries in by_resource.items():
        yield f"Current ACLs for resource `{pattern.shown()}`:"
        for acl in entries:
            yield f"\t{_entry(acl)}"
        yield ""


def _what(acl: Acl) -> tuple[str, str]:
    """Return the names of the operation and the permission type; codes if unknown."""
    from quorate.metadata.acls import OPERATIONS, PERMISSIONS

    operation = OPERATIONS.get(acl.operation, str(acl.operation))
    return operation, PERMISSIONS.get(acl.permission_type, str(acl.permission_type))


def _entry(acl: Acl) -> str:
    operation, permission = _what(acl)
    return (
        f"(principal={acl.principal}, host={acl.host}, operation={operation}, "
        f"permissionType={permission})"
    )


def _json(acl: Acl) -> dict[str, Any]:
    operation, permission = _what(acl)
    return {
        "resourceType": RESOURCE_NAMES[acl.resource_type],
        "resourceName": acl.resource_name,
        "patternType": PATTERN_NAMES[acl.pattern_type],
        "principal": acl.principal,
        "host": acl.host,
        "operation": operation,
        "permissionType": permission,
    }


@app.command("add")
@asking
@with_groups
def add(
    context: typer.Context,
    *,
    grants: Grants,
    resources: Resources,
    as_json: AsJson = False,
) -> None:
    """Add an entry for each combination of operation, principal, host and resource."""
    from quorate.metadata.requests import Acl, CreateAcls

    patterns = resources.patterns(is_filter=False)
    entries = grants.entries()
    if not entries:
        raise UsageError("--allow-principal or --deny-principal is missing")
    wanted = tuple(
        Acl(p.resource_type, p.name or "", p.pattern_type, *entry)
        for p, entry in itertools.product(patterns, entries)
    )

    request = CreateAcls(wanted)
    results = run_metadata(
        context, lambda client: client.ask(request), CHANGE_TIMEOUT_S, changes=True
    ).results
    if as_json:
        print_json(added_json(wanted, results))
    else:
        for pattern in patterns:
            print_line(f"Adding ACLs for resource `{pattern.shown()}`: ")
            for acl in wanted:
                if (acl.resource_type, acl.resource_name) == (pattern.resource_type, pattern.name):
                    print_line(f"\t{_entry(acl)}")
            print_line()
    tell_failures(zip(map(_entry, wanted), results, strict=True), len(wanted))


def added_json(acls: Iterable[Acl], results: Iterable[PartResult]) -> list[dict[str, Any]]:
    """Return the ACLs of a request, each with its error or None."""
    return [
        _json(acl) | {"error": failure(result)} for acl, result in zip(acls, results, strict=True)
    ]


@app.command("remove")
@asking
@with_groups
def remove(
    context: typer.Context,
    *,
    grants: Grants,
    resources: Resources,
    force: Annotated[bool, typer.Option("--force", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove the given entries; without a principal, all entries of the given resources."""
    from quorate.metadata.requests import AclFilter, DeleteAcls

    patterns = resources.patterns(is_filter=True)
    entries = grants.entries()
    chosen: Sequence[tuple[str | None, str | None, int, int]] = entries or [ANYBODY]
    filters: list[AclFilter] = [
        AclFilter(p.resource_type, p.name, p.pattern_type, *entry)
        for p, entry in itertools.product(patterns, chosen)
    ]
    what = ", ".join(pattern.shown() for pattern in patterns)
    if not force and not typer.confirm(f"Remove these ACLs from {what}?", err=True):
        raise CommandError("not confirmed: no ACL was removed")

    request = DeleteAcls(tuple(filters))
    results = run_metadata(
        context, lambda client: client.ask(request), CHANGE_TIMEOUT_S, changes=True
    ).results
    for result in results:
        check(result)
    removed = [acl for result in results for acl in result.acls]
    print_result(
        as_json,
        [_json(acl) for acl in removed],
        *(f"Removed {_entry(acl)}" for acl in removed),
    )
