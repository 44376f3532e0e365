"""`quorate migrate`: migration from ZooKeeper (KIP-866): plan, status, finalize, rollback.

The quorum's controllers perform the migration. They run with
`zookeeper.metadata.migration.enable=true` and `zookeeper.connect` (`quorate controller FILE`).
`plan` and `status` only read. `finalize` ends a migration permanently, once every controller runs
without `zookeeper.metadata.migration.enable`. `rollback` returns ZooKeeper to its brokers; the
controllers must be stopped first.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quorate.cli.connection import (
    CHANGE_TIMEOUT_S,
    ConnectionOptions,
    asking,
    connected,
    resolve,
    run,
)
from quorate.cli.options import AsJson
from quorate.cli.output import (
    CommandError,
    bar,
    kafka_table,
    print_json,
    print_line,
    print_result,
    print_warning,
)

if TYPE_CHECKING:
    from quorate.metadata.image.metadata_image import MetadataImage
    from quorate.migration.verification import Difference
    from quorate.migration.znodes import Tree
    from quorate.migration.zookeeper import ZooKeeper
    from quorate.rpc.client.quorum_client import QuorumClient

app = typer.Typer(rich_markup_mode=None, add_completion=False)

DIFFERENCES_SHOWN = 20

Ensemble = Annotated[
    str,
    typer.Option(
        "--zookeeper",
        metavar="HOST:PORT,…[/CHROOT]",
        envvar="QUORATE_ZOOKEEPER_CONNECT",
        help="The ZooKeeper ensemble, as in zookeeper.connect.",
    ),
]
TlsFile = Annotated[
    Path | None,
    typer.Option(
        "--zk-tls-config-file",
        metavar="FILE",
        help="A properties file with zookeeper.ssl.client.enable=true and the other TLS settings "
        "of ZooKeeper; a controller's properties file works.",
    ),
]


@app.callback()
@connected
def migrate(context: typer.Context) -> None:
    """Migrate a cluster from ZooKeeper: plan it, monitor it, finalize it, or roll it back.

    The controllers do the migration: format a new quorum with the cluster's id (`plan` prints it),
    add zookeeper.metadata.migration.enable=true and zookeeper.connect to every controller's
    properties, and start them with `quorate controller FILE`. Kafka's brokers connect to a separate
    listener, which quorate.kafka.listener.name selects. `quorate controller --help-settings`
    explains these settings and those for TLS to ZooKeeper.
    """


# --- plan -----------------------------------------------------------------------------------------


@app.command("plan")
def plan(
    *, zookeeper: Ensemble, zk_tls_config_file: TlsFile = None, as_json: AsJson = False
) -> None:
    """Print what would be copied, which brokers must take part, and all problems. Read-only.

    The exit status is 0 only if there are no problems.
    """
    from quorate.migration.planning import plan as make_plan

    with _ensemble(zookeeper, zk_tls_config_file) as client:
        tree = _read(client)
    with _bar("checking topics") as update:
        found = make_plan(tree, update)
    if as_json:
        print_json(
            {
                "clusterId": found.cluster_id,
                "znodes": found.znodes,
                "records": dict(sorted(found.counts.items())),
                "knownBrokers": sorted(found.known),
                "runningBrokers": sorted(found.registered),
                "pendingDeletions": list(found.deletions),
                "controller": found.controller and found.controller[0],
                "controllerIsOfAQuorum": bool(found.controller and found.controller[1] >= 0),
                "problems": found.problems,
                "warnings": found.warnings,
            }
        )
    else:
        print_line(f"Cluster {found.cluster_id or '-'}: {found.znodes} znodes")
        rows = [(kind, str(count)) for kind, count in sorted(found.counts.items())]
        print(kafka_table(("RECORDS", "COUNT"), rows))
        print_line(
            f"Brokers that must take part: {_ids(found.known)}; running: {_ids(found.registered)}"
        )
        if found.controller is not None:
            led_by = "a controller of a quorum" if found.controller[1] >= 0 else "a broker"
            print_line(f"ZooKeeper's controller: {found.controller[0]}, {led_by}")
        for warning in found.warnings:
            print_warning(warning)
        for problem in found.problems:
            print_line(f"problem: {problem}")
    if found.problems:
        raise CommandError(f"{len(found.problems)} problems must be fixed before the migration")


def _ids(brokers: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(brokers))) or "none"


# --- status ---------------------------------------------------------------------------------------


@app.command("status")
@asking
def status(
    context: typer.Context,
    *,
    zookeeper: Ensemble,
    zk_tls_config_file: TlsFile = None,
    as_json: AsJson = False,
) -> None:
    """Print the migration's state, the missing brokers, the lag, and every difference."""
    from quorate.records.metadata import ZkMigrationState

    image = _image(context)
    state = ZkMigrationState(image.features.zk_migration)
    with _ensemble(zookeeper, zk_tls_config_file) as client:
        tree = _read(client)
        found = {"state": state.name, **_waits(image, tree), **_position(image, tree)}
        differences = _differences(image, tree) if state is ZkMigrationState.MIGRATION else []
    if as_json:
        print_json({**found, "differences": [asdict(each) for each in differences]})
        return
    for name, value in found.items():
        shown = ", ".join(map(str, value)) or "none" if isinstance(value, list) else value
        print_line(f"{name:<24}{shown}")
    print_line(f"{'differences':<24}{len(differences)}")
    for each in differences[:DIFFERENCES_SHOWN]:
        field = f" {each.field}" if each.field else ""
        print_line(
            f"  {each.kind} {each.identity}{field}: ZooKeeper {each.in_zookeeper}, "
            f"the log {each.in_the_log}"
        )
    if len(differences) > DIFFERENCES_SHOWN:
        print_line(f"  … {len(differences) - DIFFERENCES_SHOWN} more (--json shows all)")


def _waits(image: MetadataImage, tree: Tree) -> dict[str, Any]:
    """Return the brokers and controllers that are ready, and those the migration waits for."""
    from quorate.migration.reading import known_brokers

    known = known_brokers(tree)
    migrating = {b.broker_id for b in image.cluster.brokers.values() if b.is_migrating_zk_broker}
    controllers = image.cluster.controllers.values()
    return {
        "brokersKnown": sorted(known),
        "brokersMissing": sorted(known - set(image.cluster.brokers)),
        "brokersInZooKeeperMode": sorted(migrating),
        "controllersReady": sorted(c.controller_id for c in controllers if c.zk_migration_ready),
        "controllersWithout": sorted(
            c.controller_id for c in controllers if not c.zk_migration_ready
        ),
    }


def _position(image: MetadataImage, tree: Tree) -> dict[str, Any]:
    """Return ZooKeeper's active controller, the log offset written to ZooKeeper, and the lag."""
    from quorate.migration import znodes
    from quorate.migration.zookeeper import Position

    holder, node = tree.get(znodes.CONTROLLER), tree.get(znodes.MIGRATION)
    found: dict[str, Any] = {"zookeeperController": None, "zookeeperOffset": None, "lag": None}
    if holder is not None:
        found["zookeeperController"] = holder.object().get("brokerid")
    if node is not None:
        position = Position.decode(node)
        found["zookeeperOffset"] = position.offset
        found["lag"] = max(0, image.offset - position.offset)
    return found


def _differences(image: MetadataImage, tree: Tree) -> list[Difference]:
    """Compare ZooKeeper with the log, except for partition epochs.

    ZooKeeper's partition epoch is the version of the partition's znode, which counts writes. It
    does not stay equal to the log's epoch once the controllers write to both.
    """
    from quorate.migration.verification import compare

    return [each for each in compare(tree, image.records()) if each.field != "partition_epoch"]


# --- finalize and rollback ------------------------------------------------------------------------


@app.command("finalize")
@asking
def finalize(
    context: typer.Context,
    *,
    as_json: AsJson = False,
) -> None:
    """End the migration permanently: the brokers cannot return to ZooKeeper afterwards.

    Every controller must run without zookeeper.metadata.migration.enable, and no broker may be in
    ZooKeeper mode.
    """
    from quorate.metadata.managers.appended import unfinished_migration
    from quorate.records.metadata import ZkMigrationState, ZkMigrationStateRecord, encode

    image = _image(context)
    state = ZkMigrationState(image.features.zk_migration)
    if state is not ZkMigrationState.POST_MIGRATION:
        if state is not ZkMigrationState.MIGRATION:
            raise CommandError(f"there is no migration to finalize: its state is {state.name}")
        if reason := unfinished_migration(image):
            raise CommandError(reason)
        value = encode(ZkMigrationStateRecord(ZkMigrationState.POST_MIGRATION), 0)
        run(
            context,
            lambda client: client.append([(None, value)]),
            CHANGE_TIMEOUT_S,
            changes=True,
        )
    print_result(
        as_json,
        {"state": ZkMigrationState.POST_MIGRATION.name},
        "The migration is finished: ZooKeeper is no longer needed.",
    )


@app.command("rollback")
@connected
def rollback(
    context: typer.Context,
    *,
    zookeeper: Ensemble,
    zk_tls_config_file: TlsFile = None,
    as_json: AsJson = False,
) -> None:
    """Return ZooKeeper to its brokers: delete /controller and /migration; a broker takes over.

    The quorum's controllers must be stopped. A rollback is impossible after `finalize`.
    """
    from quorate.migration import znodes

    connection = resolve(ConnectionOptions.of(context))
    for host, port in connection.addresses:
        if _listens(host, port):
            raise CommandError(
                f"a controller is running at {host}:{port}: stop all controllers of the quorum "
                "first, or they claim ZooKeeper again"
            )
    with _ensemble(zookeeper, zk_tls_config_file) as client:
        holder = client.read(znodes.CONTROLLER)
        epoch = -1 if holder is None else int(holder.object().get("kraftControllerEpoch", -1))
        migration = client.read(znodes.MIGRATION)
        if epoch < 0 and migration is None:
            raise CommandError("nothing to roll back: no quorum has claimed this ZooKeeper")
        client.release()
    print_result(
        as_json,
        {"released": True, "epoch": epoch},
        "ZooKeeper belongs to its brokers again: restart them without the migration.",
    )


def _listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False


# --- shared helpers -------------------------------------------------------------------------------


@contextmanager
def _extra() -> Iterator[None]:
    """Turn a failed import of a package of the `migration` extra into a CommandError."""
    try:
        yield
    except ImportError as error:
        text = f"{error.name} is not installed: pip install 'quorate[migration]'"
        raise CommandError(text) from None


def read_cluster_id(zookeeper: str) -> str:
    """Read the cluster id from an ensemble. Raises CommandError if there is none."""
    with _extra():
        from quorate.migration import znodes

    with _ensemble(zookeeper, None) as client:
        node = client.read(znodes.CLUSTER_ID)
        found = None if node is None else node.object().get("id")
    if not isinstance(found, str):
        raise CommandError(f"{zookeeper}: {znodes.CLUSTER_ID} does not exist: check the chroot")
    return found


@contextmanager
def _ensemble(connect: str, tls_file: Path | None) -> Iterator[ZooKeeper]:
    """Yield a connection to ZooKeeper, and turn its errors into CommandError."""
    with _extra():
        from quorate.migration.zookeeper import ZooKeeper
    from quorate.controller.config import CONTROLLER
    from quorate.controller.migration.settings import read_zookeeper_tls
    from quorate.migration.errors import MigrationError
    from quorate.process.properties import parse_properties

    tls = (
        None if tls_file is None else read_zookeeper_tls(parse_properties(tls_file, {}, CONTROLLER))
    )
    # Suppress kazoo's message for each attempt: the raised error has the same information.
    logging.getLogger("kazoo").addHandler(logging.NullHandler())
    try:
        client = ZooKeeper(connect, tls=tls)
        client.start()
        try:
            yield client
        finally:
            client.close()
    except MigrationError as error:
        raise CommandError(str(error)) from error


def _read(client: ZooKeeper) -> Tree:
    with _bar("reading znodes") as update:
        return client.read_tree(update)


@contextmanager
def _bar(text: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function (done, total) that updates a progress bar, if stderr is a terminal."""
    with bar(text, None) as update:
        yield lambda done, all_: update(completed=done, total=all_)


def _image(context: typer.Context) -> MetadataImage:
    """Read the committed metadata from the quorum."""
    from quorate.metadata.image.metadata_image import MetadataImage
    from quorate.records.metadata import decode

    async def load(client: QuorumClient) -> MetadataImage:
        image = MetadataImage()
        async for record in client.read():
            if record.key is None:
                # A metadata record of a snapshot has no offset.
                image.apply(decode(record.value or b""), record.offset or 0)
        return image

    return run(context, load, CHANGE_TIMEOUT_S)
