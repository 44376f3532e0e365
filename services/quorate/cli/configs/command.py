"""`quorate configs`: Kafka's `kafka-configs`: configurations, quotas and SCRAM credentials.

It describes and alters configurations of topics, brokers, client metrics and groups, quotas of
users, clients and addresses, and SCRAM credentials of users.

Several entity types name one entity with several parts: `--entity-type users --entity-name alice
--entity-type clients --entity-default` is alice with any client that has no quota of its own. The
n-th name belongs to the n-th type.

Source: Kafka's ConfigCommand; messages are Kafka's. KIP-226, KIP-546 (quotas), KIP-554 (SCRAM).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from quorate.cli.configs.entities import (
    DEFAULT_MARK,
    Entity,
    parse_additions,
    parse_entity,
    parse_file,
)
from quorate.cli.connection import (
    CHANGE_TIMEOUT_S,
    READ_TIMEOUT_S,
    asking,
    connected,
)
from quorate.cli.metadata_run import check, run_metadata
from quorate.cli.option_groups import with_groups
from quorate.cli.options import AsJson, DryRun
from quorate.cli.output import UsageError, print_line, print_result

if TYPE_CHECKING:
    from quorate.rpc.metadata_client import MetadataClient

app = typer.Typer(rich_markup_mode=None, add_completion=False)


ONE_KIND = "quotas and SCRAM credentials cannot be altered in one command"


class EntityCommand(typer.core.TyperCommand):
    """Replaces each --entity-default by an --entity-name, which keeps names and types in order."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        taken: list[str] = []
        for argument in args:
            is_default = argument == "--entity-default"
            taken += ["--entity-name", DEFAULT_MARK] if is_default else [argument]
        return super().parse_args(ctx, taken)


@dataclass(frozen=True, slots=True)
class EntityOptions:
    """The options that name an entity."""

    entity_type: Annotated[
        list[str] | None,
        typer.Option(
            "--entity-type",
            metavar="TYPE",
            help="topics, brokers, client-metrics, groups, users, clients or ips; users and "
            "clients may be given together.",
        ),
    ] = None
    entity_name: Annotated[
        list[str] | None,
        typer.Option(
            "--entity-name", metavar="NAME", help="The entity's name, in the order of the types."
        ),
    ] = None
    entity_default: Annotated[
        bool,
        typer.Option("--entity-default", help="The default for all entities of the type."),
    ] = False
    topic: Annotated[str | None, typer.Option("--topic", metavar="NAME", help="A topic.")] = None
    broker: Annotated[str | None, typer.Option("--broker", metavar="ID", help="A broker.")] = None
    user: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="A user principal.")
    ] = None
    client: Annotated[str | None, typer.Option("--client", metavar="ID", help="A client id.")] = (
        None
    )
    ip: Annotated[
        str | None, typer.Option("--ip", metavar="ADDRESS", help="A client's IP address.")
    ] = None
    group: Annotated[str | None, typer.Option("--group", metavar="NAME", help="A group.")] = None
    client_metrics: Annotated[
        str | None,
        typer.Option("--client-metrics", metavar="NAME", help="A client metrics resource."),
    ] = None
    broker_defaults: Annotated[
        bool, typer.Option("--broker-defaults", help="The default for all brokers.")
    ] = False
    user_defaults: Annotated[
        bool, typer.Option("--user-defaults", help="The default for all users.")
    ] = False
    client_defaults: Annotated[
        bool, typer.Option("--client-defaults", help="The default for all clients.")
    ] = False
    ip_defaults: Annotated[
        bool, typer.Option("--ip-defaults", help="The default for all addresses.")
    ] = False

    def parse(self, *, is_alter: bool) -> Entity:
        """Return the entity. Raises UsageError."""
        assert not self.entity_default, "EntityCommand replaces it by a name"
        named = {
            "topics": self.topic,
            "brokers": self.broker,
            "users": self.user,
            "clients": self.client,
            "ips": self.ip,
            "groups": self.group,
            "client-metrics": self.client_metrics,
        }
        defaults = {
            "brokers": self.broker_defaults,
            "users": self.user_defaults,
            "clients": self.client_defaults,
            "ips": self.ip_defaults,
        }
        return parse_entity(self.entity_type, self.entity_name, named, defaults, is_alter=is_alter)


@app.callback()
@connected
def configs(context: typer.Context) -> None:
    """Describe and alter configurations, quotas and SCRAM credentials.

    \b
    quorate configs --bootstrap-controller H:P describe --entity-type topics
    quorate configs … alter --topic orders --add-config retention.ms=3600000
    quorate configs … alter --user alice --add-config 'SCRAM-SHA-256=[password=secret]'
    quorate configs … alter --client-defaults --add-config producer_byte_rate=1048576
    """


@app.command("describe", cls=EntityCommand)
@asking
@with_groups
def describe(
    context: typer.Context,
    *,
    options: EntityOptions,
    all_configs: Annotated[
        bool,
        typer.Option(
            "--all", help="Also show configurations that are not set, with their defaults."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the configuration of one entity, or of all entities of a type."""
    from quorate.cli.configs import text

    entity = options.parse(is_alter=False)
    found = run_metadata(
        context,
        lambda client: text.describe(client, entity, with_defaults=all_configs),
        READ_TIMEOUT_S,
    )
    print_result(as_json, found.as_json(), *found.lines())


@app.command("alter", cls=EntityCommand)
@asking
@with_groups
def alter(
    context: typer.Context,
    *,
    options: EntityOptions,
    add_config: Annotated[
        list[str] | None,
        typer.Option(
            "--add-config",
            metavar="NAME=VALUE,…",
            help="Configurations to set; put a value with commas in brackets: k=[v1,v2]. For users "
            "also SCRAM-SHA-256=[iterations=8192,password=…].",
        ),
    ] = None,
    add_config_file: Annotated[
        Path | None,
        typer.Option(
            "--add-config-file",
            metavar="FILE",
            help="A properties file with the configurations to set.",
        ),
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="NAME,…", help="Configurations to remove."),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Set and remove configurations of one entity: either all changes are made, or none."""
    entity = options.parse(is_alter=True)
    if add_config and add_config_file is not None:
        raise UsageError("--add-config and --add-config-file cannot be used together")
    added = parse_file(add_config_file) if add_config_file else parse_additions(add_config or ())
    deleted = [name.strip() for text in delete_config or () for name in text.split(",")]
    if not added and not deleted:
        raise UsageError(
            "At least one of --add-config, --add-config-file, or --delete-config must be "
            "specified with alter"
        )
    _alter(context, entity, added, deleted, dry_run=dry_run)
    print_line(f"{'Can update' if dry_run else 'Completed updating'} {entity.shown}.")


def _alter(
    context: typer.Context,
    entity: Entity,
    added: dict[str, str],
    deleted: list[str],
    *,
    dry_run: bool,
) -> None:
    from quorate.cli.configs import changes

    async def ask(client: MetadataClient) -> Any:
        if entity.resource_type is not None:
            change = changes.configs(entity, added, deleted, dry_run)
            return (await client.ask(change)).resources
        scram = changes.scram(entity, added, deleted)
        quotas = changes.quotas(entity, added, deleted, dry_run)
        if scram is not None and quotas is not None:
            raise UsageError(ONE_KIND)
        if scram is not None:
            if dry_run:
                raise UsageError("--dry-run is not supported for SCRAM credentials")
            return (await client.ask(scram)).users
        return (await client.ask(quotas)).entries

    for part in run_metadata(context, ask, CHANGE_TIMEOUT_S, changes=True):
        check(part)
