"""`quorate recover`: repairs that a quorum cannot make by itself (see `quorate.recovery`).

Every subcommand works on directories of stopped controllers and takes their locks. Only
`lost-majority --at-restart` defers the work to the controller's next start.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quorate.cli.options import AsJson
from quorate.cli.output import (
    CommandError,
    UsageError,
    kafka_table,
    print_json,
    print_line,
    print_warning,
)

if TYPE_CHECKING:
    from quorate.recovery.examine import Examination
    from quorate.recovery.lost_majority import LostMajority

app = typer.Typer(rich_markup_mode=None, add_completion=False)

LOG_DIR_VARIABLE = "QUORATE_METADATA_LOG_DIR"

LogDir = Annotated[
    Path | None,
    typer.Option(
        "--log-dir",
        "-l",
        metavar="DIR",
        help=f"The replica's metadata.log.dir; default: {LOG_DIR_VARIABLE}.",
    ),
]
Others = Annotated[
    list[str] | None,
    typer.Option(
        "--others",
        metavar="D2,D3,…",
        help="The remaining other replicas: their directories, or files with the output of "
        "`recover inspect --json` on their hosts.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done, without changing anything.")
]


@app.callback()
def recover() -> None:
    """Repair what a quorum cannot repair itself. The affected controllers must be stopped.

    \b
    quorate recover inspect --dirs D1,D2,D3
    quorate recover lost-majority --log-dir D1 --i-accept-data-loss
    quorate recover endpoints --log-dir D1 --others D2,D3 --voter 1@NEW:9093 --voter 2@NEW:9093
    quorate recover replica --log-dir D1
    quorate recover epochs D1 D2 D3 --yes

    Each backs up the files that it changes to recover-backup-TIME in the directory.
    """


# --- inspect --------------------------------------------------------------------------------------


@app.command("inspect")
def inspect(
    *,
    dirs: Annotated[
        list[str],
        typer.Option("--dirs", "-d", metavar="D1,D2,…", help="Metadata log directories."),
    ],
    as_json: AsJson = False,
) -> None:
    """Print the state of each directory, which log is best, and what it may lack.

    It changes nothing, so controllers may use the directories meanwhile. A directory may also be
    the file with the output of `recover inspect --json` on another host.
    """
    from quorate.recovery.choice import check_one_quorum, judge
    from quorate.recovery.examine import as_json as examination_json

    places = _split(dirs)
    if not places:
        raise UsageError("--dirs contains no directory")
    with ExitStack() as locks:
        found = [each for place in places for each in _inspect(locks, place)]
    check_one_quorum(found)
    verdict = judge(found)
    if as_json:
        best = None if verdict.best is None else verdict.best.directory
        print_json(
            {
                "version": 1,
                "kind": "inspect",
                "directories": [examination_json(each) for each in found],
                "best": best,
                "isComplete": verdict.is_complete,
                "mayBeLost": list(verdict.lines),
            }
        )
        return
    print(_table(found))
    _print_details(found)
    _print_lines("", verdict.lines)


def _inspect(locks: ExitStack, place: Path) -> list[Examination]:
    from quorate.log.errors import DirectoryLockedError
    from quorate.recovery.examine import examine, examine_in_use

    if place.is_file():
        return _read_report(place)
    try:
        _lock(locks, _directory(place))
    except DirectoryLockedError:
        return [examine_in_use(place)]
    return [examine(place)]


def _table(found: Iterable[Examination]) -> str:
    header = ("Directory", "Replica", "LastEpoch", "LogEndOffset", "KnownCommitted", "State")
    rows = []
    for each in found:
        state = "sound" if each.is_sound else "damaged"
        if each.torn_bytes:
            state += f", {each.torn_bytes} bytes torn"
        if each.is_in_use:
            state += ", in use"
        numbers = (str(each.end.epoch), str(each.end.offset), str(each.known_committed))
        rows.append((each.directory, str(each.key), *numbers, state))
    return kafka_table(header, rows)


def _print_details(found: Iterable[Examination]) -> None:
    for each in found:
        committed = ""
        if each.known_committed_voters != each.voters:
            committed = f"; known to be committed: {each.known_committed_voters}"
        voted = "" if each.voted is None else f", voted for {each.voted}"
        leader = "unknown" if each.leader_id is None else each.leader_id
        print(
            f"{each.directory}: cluster {each.cluster_id}, kraft.version {each.kraft_version}, "
            f"voters in force {each.voters}{committed}; epoch {each.epoch}, leader {leader}{voted}"
        )
        if not each.is_sound:
            print(f"{each.directory}: {each.damage}")


# --- lost-majority --------------------------------------------------------------------------------


@app.command("lost-majority")
def lost_majority(
    *,
    log_dir: LogDir = None,
    others: Others = None,
    accept: Annotated[
        bool,
        typer.Option(
            "--i-accept-data-loss",
            help="Confirm that records held only by the lost voters are lost. Required, because "
            "this cannot be undone once the controller runs.",
        ),
    ] = False,
    at_restart: Annotated[
        bool,
        typer.Option(
            "--at-restart",
            help="Write a plan, which the running controller executes at its next start.",
        ),
    ] = False,
    restart: Annotated[
        bool,
        typer.Option("--restart", help="With --at-restart: also stop the controller (SIGTERM)."),
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make one replica the quorum's only voter, because most voters are lost permanently.

    This command cannot verify that they are lost. Erase their directories: if a majority of them
    starts again without a connection to this replica, there are two quorums with one cluster id.
    """
    if restart and not at_restart:
        raise UsageError("--restart requires --at-restart")
    directory = _log_dir(log_dir)
    with ExitStack() as locks:
        if not at_restart:
            _lock(locks, directory)
        other_dirs, reports = _gather(locks, _split(others or []))
        found = _examine_all(other_dirs) + reports
        plan = None
        if at_restart:
            done = _stage(directory, found, accept, dry_run)
            plan = not dry_run
        else:
            done = _recover(directory, found, accept, dry_run)
    pid = _stop_controller(directory) if restart and not dry_run else None
    if as_json:
        print_json(done.as_json() | {"staged": bool(plan), "stopped": pid})
        return
    _print_lost_majority(done, bool(plan), dry_run)
    if plan and pid is not None:
        print(f"Stopped the controller, process {pid}: it executes the plan when it starts again")
    elif plan:
        print("Restart the controller (in a pod: delete the pod): it then executes the plan")


def _recover(
    directory: Path, found: list[Examination], accept: bool, dry_run: bool
) -> LostMajority:
    from quorate.recovery.examine import examine
    from quorate.recovery.lost_majority import plan_lost_majority, recover_lost_majority

    todo = plan_lost_majority(examine(directory), found)
    if dry_run:
        return todo
    _require_acceptance(todo, accept)
    epochs = [each.highest_epoch for each in found]
    return recover_lost_majority(directory, found, epochs)


def _stage(directory: Path, found: list[Examination], accept: bool, dry_run: bool) -> LostMajority:
    from quorate.recovery.staged import stage_lost_majority

    todo, _ = stage_lost_majority(directory, found, dry_run=True)
    if dry_run:
        return todo
    _require_acceptance(todo, accept)
    return stage_lost_majority(directory, found)[0]


def _require_acceptance(todo: LostMajority, accept: bool) -> None:
    if not accept:
        raise CommandError(
            f"this requires --i-accept-data-loss: {'; '.join(todo.verdict.lines)}; "
            f"{todo.new_voters} would replace {todo.old_voters}"
        )


def _print_lost_majority(done: LostMajority, staged: bool, dry_run: bool) -> None:
    from quorate.recovery.lost_majority import WARNING

    will = "DRY RUN: would make" if dry_run else "Will make" if staged else "Made"
    print(
        f"{will} {done.new_voters} the voters, with epoch {done.epoch} from offset "
        f"{done.survivor.end.offset} on; they were {done.old_voters}"
    )
    _print_lines("  ", done.verdict.lines)
    if done.backup is not None:
        print(f"Backup: {done.backup}\nReport: {done.report}")
    print_warning(WARNING)


def _stop_controller(directory: Path) -> int:
    from quorate.log.lock import lock_holder

    pid = lock_holder(directory)
    if pid is None:
        raise CommandError(f"no process holds the lock on {directory}: start its controller")
    os.kill(pid, signal.SIGTERM)
    return pid


# --- endpoints ------------------------------------------------------------------------------------


@app.command("endpoints")
def endpoints(
    *,
    log_dir: LogDir = None,
    others: Others = None,
    voters: Annotated[
        list[str],
        typer.Option(
            "--voter",
            metavar="ID@[LISTENER://]HOST:PORT",
            help="A voter's new address; repeat it for each voter and listener that moved.",
        ),
    ],
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Correct the addresses of voters that were all renamed, so that they find each other again.

    First stop all controllers and correct their properties. Run this on the voter with the best
    log, with enough other voters in --others for a majority. Then start all of them: the other
    voters read the correction from this voter's log.
    """
    from quorate.recovery.endpoints import correct_endpoints, plan_endpoints
    from quorate.recovery.examine import examine

    wanted = _places(voters)
    directory = _log_dir(log_dir)
    with ExitStack() as locks:
        _lock(locks, directory)
        other_dirs, reports = _gather(locks, _split(others or []))
        if dry_run:
            found = [examine(other) for other in other_dirs]
            done = plan_endpoints(examine(directory), found, reports, wanted)
        else:
            done = correct_endpoints(directory, other_dirs, reports, wanted)
    if as_json:
        print_json(done.as_json())
        return
    will = "DRY RUN: would write" if dry_run else "Wrote"
    print(f"{will} the voters of epoch {done.epoch}, offset {done.chosen.end.offset}:")
    for voter in done.new_voters:
        print_line(f"  {voter.key} at {', '.join(map(str, voter.endpoints))}")
    _print_lines("Backup: ", map(str, done.backups))
    if done.report is not None:
        print(f"Report: {done.report}")
    print(f"Start controller {done.chosen.key.id} first, then the others")
    if len(done.voted) + 1 < done.new_voters.majority:
        names = ", ".join(map(str, done.promised))
        print_warning(f"{names} must stay stopped until controller {done.chosen.key.id} runs")


def _places(voters: Iterable[str]) -> dict[int, list[tuple[str | None, str, int]]]:
    from quorate.common.config_types import parse_address

    wanted: dict[int, list[tuple[str | None, str, int]]] = {}
    for text in voters:
        number, at, place = text.partition("@")
        if not at or not (number.isascii() and number.isdigit()):
            raise UsageError(f"--voter {text!r}: expected ID@HOST:PORT")
        name, separator, address = place.rpartition("://")
        try:
            parsed = parse_address(address)
        except ValueError as error:
            raise UsageError(f"--voter {text!r}: {error}") from None
        listener = name if separator else None
        wanted.setdefault(int(number), []).append((listener, parsed.host, parsed.port))
    return wanted


# --- replica --------------------------------------------------------------------------------------


@app.command("replica")
def replica(*, log_dir: LogDir = None, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Reset a replica with a damaged log: it becomes a new replica with a new directory id.

    The log is moved to the backup, as evidence. The quorum must have a majority without this
    replica.
    """
    from quorate.recovery.examine import examine
    from quorate.recovery.replica import become_new_replica, plan_new_replica

    directory = _log_dir(log_dir)
    with ExitStack() as locks:
        _lock(locks, directory)
        done = plan_new_replica(examine(directory)) if dry_run else become_new_replica(directory)
    if as_json:
        print_json(done.as_json())
        return
    print(f"Damage: {done.old.damage}")
    if done.backup is None:
        print(
            f"DRY RUN: would move the log of {done.old.key} aside and give the directory a new id"
        )
    else:
        print(f"{done.old.key} is now {done.new_key}, with an empty log")
        print(f"Backup: {done.backup}\nReport: {done.report}")
    print("Next (with controller.quorum.auto.join.enable, just start the controller):")
    _print_lines("  ", done.commands())


# --- epochs ---------------------------------------------------------------------------------------


@app.command("epochs")
def epochs(
    *,
    directories: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="The metadata log directories of all voters."),
    ],
    voters: Annotated[
        str,
        typer.Option(
            metavar="1,2,3",
            help="The ids in controller.quorum.voters: required at kraft.version 0, because the "
            "log has no voters then.",
        ),
    ] = "",
    yes: Annotated[
        bool, typer.Option("--yes", help="Apply the changes. Without this option, only print them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Lower an exhausted or absurdly high epoch on all voters together.

    Also list the directories of observers and brokers whose quorum-state has such an epoch. Do not
    start a controller before this is complete: it would adopt the high epoch from the others.
    """
    from quorate.recovery.epochs import plan_epochs, reset_epochs

    ids = {int(part) for part in voters.split(",") if part.strip().isdecimal()}
    if voters and len(ids) != len(voters.split(",")):
        raise UsageError(f"--voters {voters!r}: expected a list of ids such as 1,2,3")
    with ExitStack() as locks:
        for directory in directories:
            _lock(locks, _directory(directory))
        if yes:
            done = reset_epochs(directories, ids)
        else:
            done = plan_epochs(_examine_all(directories), ids)
    if as_json:
        print_json(done.as_json())
        return
    will = "Set" if yes else "DRY RUN: would set"
    print(f"{will} the epoch to {done.epoch} (was up to {done.highest}), without vote or leader:")
    for each in done.found:
        print(
            f"  {each.directory}: {each.key}, epoch {each.epoch}, "
            f"last epoch in its log {each.end.epoch}"
        )
    _print_lines("Backup: ", map(str, done.backups))
    print("Start the controllers" if yes else "Repeat the command with --yes")


# --- shared helpers -------------------------------------------------------------------------------


def _print_lines(indent: str, lines: Iterable[str]) -> None:
    for line in lines:
        print(indent + line)


def _split(values: Iterable[str]) -> list[Path]:
    return [Path(part.strip()) for value in values for part in value.split(",") if part.strip()]


def _log_dir(given: Path | None) -> Path:
    if given is None and LOG_DIR_VARIABLE not in os.environ:
        raise UsageError(f"--log-dir is missing, and {LOG_DIR_VARIABLE} is not set")
    return _directory(given or Path(os.environ[LOG_DIR_VARIABLE]))


def _directory(path: Path) -> Path:
    if not path.is_dir():
        raise CommandError(f"{path} is not a directory")
    return path


def _lock(locks: ExitStack, directory: Path) -> None:
    from quorate.log.lock import DirectoryLock
    from quorate.log.meta_properties import MetaProperties

    # Read this before creating the lock file, to leave a directory without a replica unchanged.
    MetaProperties.read(directory)
    locks.enter_context(DirectoryLock(directory))


def _gather(locks: ExitStack, places: Iterable[Path]) -> tuple[list[Path], list[Examination]]:
    """Lock the directories among `places`; return them, and the examinations in its files."""
    directories: list[Path] = []
    reports: list[Examination] = []
    for place in places:
        if place.is_file():
            reports += _read_report(place)
        else:
            _lock(locks, _directory(place))
            directories.append(place)
    return directories, reports


def _read_report(path: Path) -> list[Examination]:
    import json

    from quorate.recovery.examine import from_json

    try:
        value: Any = json.loads(path.read_bytes())
        return [from_json(entry) for entry in value["directories"]]
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(
            f"{path} is not an output of `recover inspect --json`: {error}"
        ) from None


def _examine_all(directories: Iterable[Path]) -> list[Examination]:
    from quorate.recovery.examine import examine

    look: Callable[[Path], Examination] = examine
    return [look(directory) for directory in directories]
