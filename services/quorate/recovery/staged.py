"""Staged recovery: a controller applies the plan in `recover.plan` when it starts.

In a pod, the directory is not accessible while no controller runs, because the volume belongs to
the pod. The command therefore writes a plan while the controller runs, without the lock. The next
start applies it exactly once, under the lock and before it opens the log.

The plan identifies its directory and log: the directory id, the log end offset and the last epoch.
If the log end differs when the controller starts, there was a leader meanwhile, so the quorum was
not lost: the controller renames the plan to `recover.plan.refused-<time>` and starts without it. A
plan that was applied already (the process crashed before it deleted the file) is deleted: the
survivor is then the only voter in its log.

A plan never prevents a controller from starting: in a pod that keeps restarting, an operator could
not find out why. If the recovery fails, such as on a full disk, the controller renames the plan in
the same way and starts with the log as it is; the operator can stage the recovery again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quorate.log.disk import Disk
from quorate.log.errors import LogError
from quorate.raft.types import OffsetAndEpoch
from quorate.recovery.change import timestamp
from quorate.recovery.errors import RecoveryError
from quorate.recovery.examine import Examination, examine, examine_in_use
from quorate.recovery.lost_majority import LostMajority, plan_lost_majority, recover_lost_majority

PLAN_FILE = "recover.plan"
PLAN_VERSION = 1
KIND = "lost-majority"


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """The recovery to run at the next start."""

    directory_id: str
    end: OffsetAndEpoch
    epochs: tuple[int, ...] = ()
    """The highest epochs of other directories."""

    def as_json(self) -> dict[str, Any]:
        return {
            "version": PLAN_VERSION,
            "kind": KIND,
            "staged": timestamp(),
            "directoryId": self.directory_id,
            "logEndOffset": self.end.offset,
            "lastEpoch": self.end.epoch,
            "otherEpochs": list(self.epochs),
            "acceptDataLoss": True,
        }


def parse_plan(text: bytes) -> RecoveryPlan:
    """Parse a plan. RecoveryError if `stage_lost_majority` did not write it."""
    try:
        value = json.loads(text)
        if value["version"] != PLAN_VERSION or value["kind"] != KIND:
            raise RecoveryError(
                f"it is {value['kind']!r} of version {value['version']!r}, not {KIND!r} of "
                f"{PLAN_VERSION}"
            )
        if value["acceptDataLoss"] is not True:
            raise RecoveryError("it does not accept data loss")
        end = OffsetAndEpoch(int(value["logEndOffset"]), int(value["lastEpoch"]))
        epochs = tuple(int(epoch) for epoch in value["otherEpochs"])
        return RecoveryPlan(str(value["directoryId"]), end, epochs)
    except (KeyError, TypeError, ValueError) as error:
        raise RecoveryError(f"it is not a plan ({error!r})") from error


def stage_lost_majority(
    directory: Path, others: Sequence[Examination] = (), *, dry_run: bool = False
) -> tuple[LostMajority, Path]:
    """Write the plan; return the recovery that it describes, as of now, and the plan's path.

    The caller does not hold the lock, because a controller is running. RecoveryError if the remedy
    is refused.
    """
    found = examine_in_use(directory)
    todo = plan_lost_majority(found, others)
    path = directory / PLAN_FILE
    if dry_run:
        return todo, path
    assert found.key.directory_id is not None, "the plan's survivor has a directory id"
    plan = RecoveryPlan(found.key.directory_id, found.end, tuple(e.highest_epoch for e in others))
    if path.exists():
        Disk().replace_file(directory / _aside("replaced"), path.read_bytes())
    Disk().replace_file(path, (json.dumps(plan.as_json(), indent=2) + "\n").encode())
    return todo, path


def apply_staged(directory: Path) -> str:
    """Apply the plan in `directory`; return one line about the result, "" if there is no plan.

    The caller holds the lock and has not opened the log. OSError only if the plan cannot be
    renamed, because the directory is not writable.
    """
    path = directory / PLAN_FILE
    if not path.exists():
        return ""
    try:
        return _apply(directory, path, parse_plan(path.read_bytes()))
    except LogError as error:
        name = _refuse(path)
        return f"the staged recovery was not applied, and is kept in {name}: {error}"
    except OSError as error:
        # The log may have been changed already: the report is written last.
        name = _refuse(path)
        return f"the staged recovery did not complete, and its plan is kept in {name}: {error}"


def _apply(directory: Path, path: Path, plan: RecoveryPlan) -> str:
    found = examine(directory)
    if found.key.directory_id != plan.directory_id:
        raise RecoveryError(
            f"it is for directory {plan.directory_id}, but this is {found.key.directory_id}"
        )
    if found.voters.is_only(found.key) and found.end.epoch > plan.end.epoch:
        _delete(path)
        return f"the staged recovery was already applied: {found.key} is the only voter"
    if found.end != plan.end:
        raise RecoveryError(
            f"the log ended at {plan.end} when it was staged, but ends at {found.end} now: there "
            "was a leader meanwhile"
        )
    done = recover_lost_majority(directory, epochs=plan.epochs)
    _delete(path)
    return (
        f"applied the staged recovery: {done.new_voters} is the voter set from epoch {done.epoch}, "
        f"offset {done.survivor.end.offset}; it was {done.old_voters}; report {done.report}"
    )


def _refuse(path: Path) -> str:
    name = _aside("refused")
    Disk().rename(path, path.with_name(name))
    Disk().sync_directory(path.parent)
    return name


def _delete(path: Path) -> None:
    Disk().unlink(path)
    Disk().sync_directory(path.parent)


def _aside(why: str) -> str:
    return f"{PLAN_FILE}.{why}-{timestamp()}"
