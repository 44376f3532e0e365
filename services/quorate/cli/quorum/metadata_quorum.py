"""`quorate metadata-quorum`: Kafka's `kafka-metadata-quorum`, and transfer-leadership.

Source: KIP-853, "kafka-metadata-quorum"; KIP-595 and KIP-836 for describe. Messages are Kafka's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from quorate.cli.connection import (
    CHANGE_TIMEOUT_S,
    READ_TIMEOUT_S,
    ConnectionOptions,
    asking,
    connected,
    reach,
    run,
)
from quorate.cli.controller_settings import load
from quorate.cli.options import AsJson
from quorate.cli.output import (
    CommandError,
    UsageError,
    print_json,
    print_result,
    print_warning,
    progress,
)
from quorate.cli.settings_file import ConfigFile

if TYPE_CHECKING:
    from quorate.common.endpoints import Endpoint
    from quorate.raft.messages import DescribeQuorumResponse
    from quorate.raft.types import ReplicaKey
    from quorate.rpc.client.quorum_client import QuorumClient
    from quorate.rpc.software import Software
    from quorate.rpc.wire.values import QuorumDescription

app = typer.Typer(rich_markup_mode=None, add_completion=False)

ControllerId = Annotated[
    int,
    typer.Option("--controller-id", "-i", metavar="ID", min=0, help="The controller's node.id."),
]
DirectoryIdOption = Annotated[
    str | None,
    typer.Option(
        "--controller-directory-id",
        "-d",
        metavar="UUID",
        help="Its directory id; default: that of the current voter with this node.id.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done, without doing it.")
]


@app.callback()
@connected
def metadata_quorum(context: typer.Context) -> None:
    """Describe a quorum; add and remove controllers; move leadership.

    Any controller will do: the command finds the leader through it.

    \b
    quorate metadata-quorum --bootstrap-controller HOST:PORT describe --status
    quorate metadata-quorum --bootstrap-controller HOST:PORT describe --replication
    quorate metadata-quorum add-controller --config controller.properties
    quorate metadata-quorum --bootstrap-controller HOST:PORT remove-controller -i 3
    """


# --- describe -------------------------------------------------------------------------------------


@app.command("describe")
@asking
def describe(
    context: typer.Context,
    *,
    status: Annotated[
        bool, typer.Option("--status", help="Print a summary of the quorum.")
    ] = False,
    replication: Annotated[
        bool, typer.Option("--replication", help="Print the replication state of each replica.")
    ] = False,
    human_readable: Annotated[
        bool,
        typer.Option(
            "--human-readable", help="With --replication: print ages instead of timestamps."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the quorum's state. The exit status is 1 if there is no leader."""
    if status == replication:
        raise UsageError("describe takes either --status or --replication")
    if human_readable and not replication:
        raise UsageError("The option --human-readable is only supported along with --replication")
    from quorate.cli.quorum import describe as text

    description, software = _describe_with_software(context, ask=replication)
    cluster_id, response = description.cluster_id, description.response
    if as_json and status:
        print_json(text.status_json(cluster_id, response) | {"answeredBy": description.answered_by})
    elif as_json:
        print_json(text.replication_json(response, software))
    elif status:
        print(text.status_text(cluster_id, response))
    else:
        print(text.replication_text(response, software, ages=human_readable))
    if not description.is_leaders_view:
        raise CommandError(
            f"{no_leader(description)} (the output above is the view of {description.answered_by})"
        )


def _describe(context: typer.Context) -> QuorumDescription:
    return run(context, lambda client: client.describe_quorum(), READ_TIMEOUT_S, reach_first=False)


def _describe_with_software(
    context: typer.Context, *, ask: bool
) -> tuple[QuorumDescription, dict[int, Software]]:
    """Describe the quorum and, if `ask`, the software of each replica by its id."""
    from quorate.cli.quorum.software import find_software

    async def both(client: QuorumClient) -> tuple[QuorumDescription, dict[int, Software]]:
        description = await client.describe_quorum()
        return description, await find_software(client, description) if ask else {}

    return run(context, both, READ_TIMEOUT_S, reach_first=False)


def _leaders_view(context: typer.Context) -> DescribeQuorumResponse:
    return _of_leader(_describe(context))


def _of_leader(description: QuorumDescription) -> DescribeQuorumResponse:
    if not description.is_leaders_view:
        raise CommandError(no_leader(description))
    return description.response


def _reject(problem: str | None) -> None:
    """Fail a dry run for what the leader would reject."""
    if problem is not None:
        raise CommandError(f"it would be rejected: {problem}")


def no_leader(description: QuorumDescription) -> str:
    """Explain why only one node's view is available, and what to do about it."""
    response = description.response
    voters = response.voter_set
    if not len(voters):
        return (
            f"there is no leader, and {description.answered_by} has no voters: format and start "
            "a controller with --standalone, or check controller.quorum.bootstrap.servers"
        )
    what = "there is no leader"
    if response.leader.id is not None:
        what = f"controller {response.leader.id}, the last known leader, does not answer"
    need = f"{voters.majority} of the {len(voters)} voters are running and connected"
    return f"{what}. A leader can be elected once {need}: start those that are down"


# --- changes --------------------------------------------------------------------------------------


@app.command("add-controller")
@asking
def add_controller(
    context: typer.Context,
    *,
    config_file: ConfigFile = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make a running controller a voter. Run this on its host, to read its directory.

    The controller must be formatted (--no-initial-controllers) and running. The leader waits until
    it has caught up, then commits the new voter set.
    """
    options = ConnectionOptions.of(context)
    path = config_file or options.command_config
    options.command_config = options.command_config or path
    config = load(path, "--config, the properties of the controller to add,")
    from quorate.cli.quorum.describe import endpoint_text
    from quorate.cli.quorum.voter_changes import addition_problem
    from quorate.log.meta_properties import MetaProperties
    from quorate.raft.types import ReplicaKey

    meta = MetaProperties.read(config.metadata_log_dir)
    if meta.directory_id is None:
        raise CommandError(f"No directory id found in {config.metadata_log_dir}")
    if meta.node_id != config.node_id:
        raise CommandError(
            f"{config.metadata_log_dir} belongs to node {meta.node_id}, but node.id in "
            f"{config.source} is {config.node_id}"
        )
    key = ReplicaKey(meta.node_id, meta.directory_id)

    async def reach_own(client: QuorumClient) -> QuorumDescription:
        found = await reach(client)
        if found.cluster_id != meta.cluster_id:
            raise CommandError(
                f"{config.metadata_log_dir} was formatted for cluster {meta.cluster_id}, but the "
                f"quorum belongs to cluster {found.cluster_id}"
            )
        return found

    async def ask(client: QuorumClient) -> None:
        await reach_own(client)
        await client.add_voter(key, config.endpoints)

    if dry_run:
        found = _of_leader(run(context, reach_own, READ_TIMEOUT_S, reach_first=False))
        _reject(addition_problem(found, key))
    else:
        with progress(f"Waiting for controller {key.id} to catch up and become a voter"):
            run(context, ask, CHANGE_TIMEOUT_S, changes=True, reach_first=False)
    print_result(
        as_json,
        _change_json(key, dry_run, config.endpoints),
        f"{'DRY RUN of adding' if dry_run else 'Added'} controller {key.id} with directory id "
        f"{key.directory_id} and endpoints: {', '.join(map(endpoint_text, config.endpoints))}",
    )


@app.command("remove-controller")
@asking
def remove_controller(
    context: typer.Context,
    *,
    controller_id: ControllerId,
    directory_id: DirectoryIdOption = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Remove it even if too few of the remaining voters are running. Nothing can be "
            "committed until they come back. The last voter is never removed.",
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="With --force: do not ask for confirmation.")
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Remove a controller from the voters. It may be down; a running one becomes an observer.

    Stop a controller with controller.quorum.auto.join.enable first, or it will join again.
    """
    from quorate.cli.quorum.voter_changes import removal_problem

    if yes and not force:
        raise UsageError("--yes is only supported along with --force")
    key = _voter(context, controller_id, directory_id)
    if force:
        _confirm_forced(context, key, ask=not (yes or dry_run))
    if dry_run:
        _reject(removal_problem(_leaders_view(context), key, is_forced=force))
    else:
        with progress(f"Waiting for the voters to commit the removal of controller {key.id}"):
            run(
                context,
                lambda client: client.remove_voter(key, force=force),
                CHANGE_TIMEOUT_S,
                changes=True,
            )
    print_result(
        as_json,
        _change_json(key, dry_run),
        f"{'DRY RUN of removing' if dry_run else 'Removed'} KRaft controller {key.id} with "
        f"directory id {key.directory_id}",
    )


@app.command("transfer-leadership")
@asking
def transfer_leadership(
    context: typer.Context,
    *,
    controller_id: ControllerId,
    directory_id: DirectoryIdOption = None,
    as_json: AsJson = False,
) -> None:
    """Make a voter the leader, for example before the current leader's machine is stopped."""
    key = _voter(context, controller_id, directory_id)

    async def ask(client: QuorumClient) -> bool:
        """Transfer the leadership; returns whether this controller was the leader already."""
        leader_id = (await reach(client)).response.leader.id
        await client.transfer_leadership(key)
        return leader_id == key.id

    with progress(f"Waiting for controller {key.id} to catch up and take over"):
        led = run(context, ask, CHANGE_TIMEOUT_S, changes=True, reach_first=False)
    who = f"controller {key.id} with directory id {key.directory_id}"
    text = f"Leadership is already held by {who}" if led else f"Leadership moved to {who}"
    print_result(as_json, _change_json(key, False), text)


def _confirm_forced(context: typer.Context, key: ReplicaKey, *, ask: bool) -> None:
    """Warn which voters must return before the removal of `key` commits; confirm if `ask`."""
    from quorate.cli.quorum.describe import silent_voters
    from quorate.cli.quorum.voter_changes import missing_after_removal

    response = _leaders_view(context)
    missing = missing_after_removal(response, key)
    if missing <= 0:
        return
    silent = [voter for voter in silent_voters(response) if voter != key]
    remaining = [voter for voter in response.voter_set if voter.key != key]
    who = ", ".join(f"{voter.id} ({voter.directory_id})" for voter in silent)
    print_warning(
        f"{len(silent)} of the {len(remaining)} remaining voters do not fetch: {who}. After the "
        f"removal of controller {key.id}, no record can be committed and no leader elected until "
        f"{missing} of them {'comes' if missing == 1 else 'come'} back. It cannot be undone until "
        "then"
    )
    if ask and not typer.confirm(f"Remove controller {key.id} anyway?", err=True):
        raise CommandError(f"not confirmed: controller {key.id} was not removed")


def _voter(context: typer.Context, controller_id: int, directory_id: str | None) -> ReplicaKey:
    """Return the replica with the given directory id, else the current voter with this id."""
    from quorate.controller.formatting import parse_uuid
    from quorate.raft.types import ReplicaKey

    if directory_id is not None:
        try:
            return ReplicaKey(controller_id, parse_uuid(directory_id))
        except ValueError as error:
            raise UsageError(f"--controller-directory-id: {error}") from None
    voters = _leaders_view(context).voter_set
    voter = voters.get(controller_id)
    if voter is None:
        raise CommandError(
            f"controller {controller_id} is not a voter; the voters are "
            f"{', '.join(str(voter.key) for voter in voters)}"
        )
    return voter.key


def _change_json(
    key: ReplicaKey, dry_run: bool, endpoints: tuple[Endpoint, ...] | None = None
) -> dict[str, object]:
    from quorate.cli.quorum.describe import endpoint_text

    places = {} if endpoints is None else {"endpoints": [endpoint_text(e) for e in endpoints]}
    return {
        "controllerId": key.id,
        "directoryId": key.directory_id,
        "dryRun": dry_run,
        **places,
    }
