"""`quorate takeover`: before Quorate's controllers take the place of Kafka's KRaft controllers.

`check` reads a stopped controller's directory and properties, or asks a running quorum, and says
what would prevent the takeover. `config` prints the properties of Quorate's controller. Neither
writes anything. docs/takeover.md has the steps of a takeover, and of the way back.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quorate.cli.connection import ConnectionOptions, asking, connected, resolve
from quorate.cli.options import AsJson
from quorate.cli.output import CommandError, UsageError, bar, print_json, print_line

if TYPE_CHECKING:
    from quorate.controller.takeover.finding import TakeoverCheck
    from quorate.controller.takeover.kafka_settings import KafkaSettings
    from quorate.controller.takeover.running import RunningQuorum
    from quorate.metadata.image.metadata_image import MetadataImage
    from quorate.raft.types import VoterSet
    from quorate.recovery.examine import Examination

app = typer.Typer(rich_markup_mode=None, add_completion=False)

TIMEOUT_S = 10.0
FREE_BYTES_MIN = 256 * 1024 * 1024
CHECK_WIDTH = 33

Directory = Annotated[
    Path | None,
    typer.Option(
        "--directory",
        "-d",
        metavar="DIR",
        help="A Kafka controller's metadata.log.dir; default: that of --config.",
    ),
]
KafkaConfig = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="The properties of Kafka's controller."),
]
PortOffset = Annotated[
    int,
    typer.Option(
        "--port-offset",
        metavar="N",
        help="By how much the port on which Quorate's controllers reach each other is above the "
        "one that brokers dial, on all controllers.",
    ),
]


@app.callback()
@connected
def takeover(context: typer.Context) -> None:
    """Prepare to replace a cluster's KRaft controllers of Kafka by Quorate's, on their directories.

    \b
    quorate takeover check --config /etc/kafka/controller.properties
    quorate takeover check --bootstrap-controller c1:9093,c2:9093,c3:9093
    quorate takeover config --config /etc/kafka/controller.properties

    Brokers need no change: they find Quorate's controllers where Kafka's were.
    """


@dataclass(slots=True)
class Seen:
    """What was read of one controller, or of a running quorum. None: not asked for, or not found.

    voters: with the endpoints that brokers dial.
    """

    kafka: KafkaSettings | None = None
    directory: Path | None = None
    running: RunningQuorum | None = None
    examination: Examination | None = None
    image: MetadataImage | None = None
    is_in_use: bool = False
    findings: list[TakeoverCheck] = field(default_factory=list)

    @property
    def voters(self) -> VoterSet:
        from quorate.raft.types import VoterSet

        static = VoterSet() if self.kafka is None else self.kafka.static_voters
        for known in (self.running, self.examination):
            if known is not None and any(voter.endpoints for voter in known.voters):
                return known.voters
        return static

    @property
    def cluster_id(self) -> str | None:
        known = self.running or self.examination
        return None if known is None else known.cluster_id


# --- the commands ---------------------------------------------------------------------------------


@app.command("check")
@asking
def check(
    context: typer.Context,
    *,
    directory: Directory = None,
    config: KafkaConfig = None,
    quorate_config: Annotated[
        Path | None,
        typer.Option(
            "--quorate-config",
            metavar="FILE",
            help="The properties of Quorate's controller; default: those that `takeover config` "
            "prints.",
        ),
    ] = None,
    port_offset: PortOffset = 100,
    as_json: AsJson = False,
) -> None:
    """Report what would prevent the takeover, and what to do about it. Read-only.

    With a directory or properties: of one controller, which must be stopped. With
    --bootstrap-controller or --bootstrap-server: of the running quorum, which does not tell
    everything. The exit status is 0 only if nothing failed.
    """
    seen = _look(context, directory, config, with_metadata=True)
    findings = [*seen.findings, *_checks(seen, quorate_config, port_offset)]
    wrong = [each for each in findings if each.state == "failed"]
    if as_json:
        print_json(
            {
                "clusterId": seen.cluster_id,
                "supported": not wrong,
                "checks": [each.as_json() for each in findings],
            }
        )
    else:
        for each in findings:
            todo = f": {each.todo}" if each.todo else ""
            print_line(f"{each.state:<8}{each.check:<{CHECK_WIDTH}}{each.text}{todo}")
    if wrong:
        raise CommandError(f"{len(wrong)} of {len(findings)} checks failed")


@app.command("config")
@asking
def config(
    context: typer.Context,
    *,
    config: Annotated[
        Path,
        typer.Option(
            "--config", "-c", metavar="FILE", help="The properties of Kafka's controller."
        ),
    ],
    directory: Directory = None,
    port_offset: PortOffset = 100,
) -> None:
    """Print the properties of Quorate's controller in the place of Kafka's.

    It keeps the name and the address of the listener that brokers dial. The voters come from the
    running quorum, the directory or the properties, in this order.
    """
    seen = _look(context, directory, config, with_metadata=False)
    failures = [each for each in seen.findings if each.state == "failed" and not seen.is_in_use]
    if failures:
        raise CommandError(f"{failures[0].text}: {failures[0].todo}")
    for name, value in _quorates_settings(seen, port_offset).items():
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
        print_line(f"{name}={escaped}")


def _quorates_settings(seen: Seen, port_offset: int) -> dict[str, str]:
    from quorate.controller.takeover.settings import quorates_settings

    if not 1 <= port_offset <= 60_000:
        raise UsageError(f"--port-offset {port_offset}: expected 1 to 60000")
    if seen.kafka is None or seen.directory is None:
        raise CommandError("neither --directory nor --config names the directory of the log")
    if not len(seen.voters):
        raise CommandError(
            "the voters' addresses are not known: name the running quorum with "
            "--bootstrap-controller"
        )
    return quorates_settings(seen.kafka, seen.voters, seen.directory, port_offset)


# --- what there is --------------------------------------------------------------------------------


def _look(
    context: typer.Context, directory: Path | None, config: Path | None, *, with_metadata: bool
) -> Seen:
    """Read everything that the options name. Raises UsageError, CommandError, ConfigError.

    with_metadata: whether to read the records of the log, too.
    """
    from quorate.controller.takeover.kafka_settings import KafkaSettings

    seen = Seen()
    if config is not None:
        seen.kafka = KafkaSettings.read(config)
        seen.directory = seen.kafka.directory
    seen.directory = directory or seen.directory
    options = ConnectionOptions.of(context)
    is_asked = bool(options.bootstrap_controller or options.bootstrap_server)
    if not is_asked and seen.directory is None:
        raise UsageError(
            "--config FILE, --directory DIR or --bootstrap-controller HOST:PORT is missing"
        )
    if is_asked:
        _refuse_sasl(seen.kafka, options)
        seen.running = _ask(options)
    if seen.directory is not None:
        _read_directory(seen, seen.directory)
        examined = seen.examination
        if with_metadata and examined is not None and (not examined.damage or seen.is_in_use):
            seen.image = _image(seen, seen.directory)
    return seen


def _refuse_sasl(kafka: KafkaSettings | None, options: ConnectionOptions) -> None:
    """This command cannot ask controllers that require SASL. Raises UsageError."""
    asks_controllers = options.bootstrap_controller is not None
    if kafka is not None and asks_controllers and kafka.uses_sasl:
        raise UsageError(
            f"{kafka.listener} is {kafka.protocol}, and this command does not use SASL: leave out "
            "--bootstrap-controller; the voters are read from the directory"
        )


def _ask(options: ConnectionOptions) -> RunningQuorum:
    from quorate.controller.takeover.running import KafkaClientError, describe

    connection = resolve(options)
    try:
        return asyncio.run(
            describe(
                connection.addresses,
                connection.tls,
                controllers=options.bootstrap_controller is not None,
                timeout_s=options.timeout or connection.timeout_s or TIMEOUT_S,
            )
        )
    except KafkaClientError as error:
        raise CommandError(f"no leader of Kafka's controllers is known: {error}") from error


def _read_directory(seen: Seen, directory: Path) -> None:
    from quorate.controller.takeover.finding import failed, note, ok
    from quorate.log.errors import LogError
    from quorate.log.lock import lock_holder
    from quorate.recovery.examine import examine

    try:
        holder = lock_holder(directory)
        seen.is_in_use = holder is not None
        seen.examination = examine(directory)
    except (LogError, OSError) as error:
        todo = "run this as the user of Kafka's controller, with its metadata.log.dir"
        seen.findings.append(failed("directory", str(error), todo))
        return
    found = seen.examination
    seen.findings.append(ok("directory", f"{directory}, node {found.key}, {found.cluster_id}"))
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        text = f"this user may not write to {directory}"
        seen.findings.append(failed("directory", text, "run Quorate as the user that owns it"))
    if holder is None:
        seen.findings.append(ok("process", "no process uses the directory"))
    elif seen.running is not None:
        seen.findings.append(note("process", f"process {holder} still uses {directory}"))
    else:
        text = f"process {holder} uses {directory}"
        todo = "stop Kafka's controller, or name the running quorum with --bootstrap-controller"
        seen.findings.append(failed("process", text, todo))
    if found.damage and not seen.is_in_use:
        todo = "let Kafka's controllers repair it, or see `quorate recover replica --help`"
        seen.findings.append(failed("log", found.damage, todo))


def _image(seen: Seen, directory: Path) -> MetadataImage | None:
    """The metadata in the directory; None if it cannot be read, with a finding."""
    from quorate.controller.takeover.finding import failed, ok
    from quorate.log.errors import LogError
    from quorate.metadata.image.metadata_image import ReplayError
    from quorate.records.errors import RecordsError
    from quorate.runtime.metadata_files import read_directory

    try:
        with bar("reading the log", None) as update:
            image = read_directory(
                directory, lambda done, total: update(completed=done, total=total)
            )
    except ReplayError as error:
        seen.findings.append(failed("records", str(error), "use a later release of Quorate"))
        return None
    except (LogError, RecordsError) as error:
        seen.findings.append(failed("log", str(error), "let Kafka's controllers repair it"))
        return None
    assert seen.examination is not None
    start, end = seen.examination.start, seen.examination.end
    seen.findings.append(ok("log", f"offsets {start} to {end.offset}, epoch {end.epoch}"))
    return image


# --- the checks -----------------------------------------------------------------------------------


def _checks(seen: Seen, quorate_config: Path | None, port_offset: int) -> Iterator[TakeoverCheck]:
    from quorate.controller.takeover import configuration, metadata, settings
    from quorate.controller.takeover.finding import failed, ok
    from quorate.metadata.metadata_version import LATEST_LEVEL

    config = None
    if seen.running is not None:
        text = f"cluster {seen.running.cluster_id}, leader {seen.running.leader_id}"
        yield ok("quorum", text)
    mine = seen.examination
    if mine is not None and seen.running is not None and mine.cluster_id != seen.running.cluster_id:
        todo = "correct --bootstrap-controller or --directory"
        yield failed("quorum", f"{mine.directory} is of cluster {mine.cluster_id}", todo)
    if seen.kafka is not None:
        yield from settings.check_settings(seen.kafka, quorate_config)
        yield from settings.check_listener(seen.kafka, seen.voters)
    if seen.kafka is not None or quorate_config is not None:
        made = {} if quorate_config is not None else _quorates_settings(seen, port_offset)
        config, found = configuration.check_configuration(made, quorate_config)
        yield from found
    if config is not None and mine is not None:
        yield from configuration.check_match(config, seen.voters, mine.key.id)
    listener = None if seen.kafka is None else seen.kafka.listener
    if config is not None:
        listener = config.kafka.name
    yield from metadata.check_voters(seen.voters, listener)
    if seen.image is not None and mine is not None:
        levels, kraft_version = seen.image.features.levels, mine.kraft_version
        yield from metadata.check_features(levels, LATEST_LEVEL, kraft_version)
        yield from metadata.check_image(seen.image)
    elif seen.running is not None:
        levels, kraft_version = dict(seen.running.levels), seen.running.kraft_version
        yield from metadata.check_features(levels, LATEST_LEVEL, kraft_version)
    if seen.directory is not None and mine is not None:
        yield _check_space(seen.directory)


def _check_space(directory: Path) -> TakeoverCheck:
    """Snapshots and segments are written before earlier ones are deleted."""
    from quorate.controller.takeover.finding import failed, ok

    used = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    free = shutil.disk_usage(directory).free
    needed = used + FREE_BYTES_MIN
    text = f"{free >> 20} MiB free, {used >> 20} MiB used by the log"
    if free >= needed:
        return ok("disk", text)
    return failed("disk", text, f"free {(needed >> 20) + 1} MiB")
