"""Recovers from the permanent loss of a majority: one remaining replica becomes the only voter.

Steps of `recover_lost_majority`, under the directory's lock:

1. Check that the log is sound, kraft.version is 1, and the survivor is not already the only voter.
2. Refuse if data would be lost needlessly: another directory has a better log, or a majority of
   the voters in force is available, so that the operator only needs to start them.
3. Choose an epoch that no voter can have reached (`choice.forced_epoch`).
4. Back up; write quorum-state; append LeaderChange and the VotersRecords that change the voter
   set, one voter at a time, to the survivor alone; write the report.

This replica cannot determine whether the missing voters are lost: the operator confirms it. If
they come back:

- A minority of the old set cannot elect a leader. Such a voter requests a vote from the survivor,
  whose log ends in the forced epoch and is therefore never behind. The survivor rejects the request
  with its epoch. The voter follows the survivor, truncates what the survivor does not have, reads
  the new voter set, and becomes an observer.
- A majority of the old set that cannot reach the survivor does not know the new set. It elects a
  leader and commits records. There are then two quorums with one cluster id, and the survivor
  cannot prevent it. When one of these voters reaches the survivor, the forced epoch fences it and
  it follows. It truncates the records that the old quorum committed meanwhile, or it stops rather
  than truncate records that it knows to be committed. Therefore, format the old directories before
  they start again.

With kraft.version 0, the voters are in every controller's properties and not in the log. The remedy
is then to change controller.quorum.voters.

Source: KIP-853, "Voter changes" (one voter at a time, also on the way to the survivor), "Leader
election" (no replica checks membership, so the epochs must protect). The KIP has no such remedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quorate.raft.types import Voter, VoterSet
from quorate.recovery.change import back_up, force_epoch, timestamp, write_report
from quorate.recovery.choice import (
    RecoveryVerdict,
    check_one_quorum,
    forced_epoch,
    judge,
    single_changes,
)
from quorate.recovery.errors import RecoveryError
from quorate.recovery.examine import Examination, as_json, examine, voters_json

WARNING = (
    "the cluster id does not change: if a majority of the old voters starts again without a "
    "connection to this replica, there are two quorums. Erase their directories first"
)


@dataclass(frozen=True, slots=True)
class LostMajority:
    """The planned or completed recovery."""

    survivor: Examination
    old_voters: VoterSet
    new_voters: VoterSet
    voter_sets: tuple[VoterSet, ...]
    epoch: int
    verdict: RecoveryVerdict
    end_offset: int
    backup: Path | None = None
    """The backup of the directory, None if the recovery is only planned."""
    report: Path | None = None
    """The file with the report, None if the recovery is only planned."""

    def as_json(self) -> dict[str, Any]:
        survivor = self.survivor
        return {
            "version": 1,
            "kind": "lost-majority",
            "time": timestamp(),
            "done": self.backup is not None,
            "directory": survivor.directory,
            "clusterId": survivor.cluster_id,
            "survivor": {"id": survivor.key.id, "directoryId": survivor.key.directory_id},
            "oldVoters": voters_json(self.old_voters),
            "newVoters": voters_json(self.new_voters),
            "forcedEpoch": self.epoch,
            "forcedOffset": survivor.end.offset,
            "logEndOffset": self.end_offset,
            "kept": {"from": survivor.start, "to": survivor.end.offset},
            "knownCommittedOffset": survivor.known_committed,
            "mayBeLost": list(self.verdict.lines),
            "warning": WARNING,
            "backup": None if self.backup is None else str(self.backup),
            "before": as_json(survivor),
        }


def plan_lost_majority(
    survivor: Examination, others: Sequence[Examination] = (), epochs: Sequence[int] = ()
) -> LostMajority:
    """Run steps 1 to 3, without side effects. RecoveryError if the remedy is refused.

    epochs: epochs that were seen elsewhere, which the forced epoch must exceed.
    """
    found = [survivor, *others]
    _check_survivor(survivor)
    check_one_quorum(found)
    verdict = judge(found)
    assert verdict.best is not None, "the survivor is sound"
    if verdict.best.position > survivor.position:
        raise RecoveryError(
            f"{verdict.best.directory} is the better survivor: its log ends at "
            f"{verdict.best.end}, that of {survivor.directory} at {survivor.end}; recover "
            f"{verdict.best.directory} instead"
        )
    if verdict.is_complete:
        names = ", ".join(map(str, verdict.present))
        raise RecoveryError(
            f"the majority is not lost: {names} are {len(verdict.present)} of the "
            f"{len(survivor.voters)} voters, and their directories are sound: start them"
        )
    epoch = forced_epoch([each.highest_epoch for each in found] + list(epochs))
    mine = survivor.voters.find(survivor.key) or Voter(survivor.key)
    sets = tuple(single_changes(survivor.voters, mine))
    # One LeaderChange record precedes the VotersRecords.
    end_offset = survivor.end.offset + 1 + len(sets)
    return LostMajority(survivor, survivor.voters, sets[-1], sets, epoch, verdict, end_offset)


def _check_survivor(survivor: Examination) -> None:
    if not survivor.is_sound:
        raise RecoveryError(f"{survivor.directory} cannot be the survivor: {survivor.damage}")
    if survivor.key.directory_id is None:
        raise RecoveryError(f"{survivor.directory} has no directory.id: start it once with Kafka")
    if survivor.kraft_version < 1:
        if survivor.end.offset == 0 and not len(survivor.voters):
            raise RecoveryError(
                f"{survivor.directory} contains no records and no voters: nothing can be "
                "recovered from it"
            )
        raise RecoveryError(
            "kraft.version is 0: the voters are not in the log but in controller.quorum.voters "
            f"of every controller's properties. Set it to {survivor.key.id}@HOST:PORT alone in "
            "the survivor's properties, start the survivor, and erase the other controllers' "
            "directories before they start again"
        )
    if not len(survivor.voters):
        raise RecoveryError(f"{survivor.directory} contains no voters: nothing can be recovered")
    if survivor.voters.is_only(survivor.key):
        raise RecoveryError(f"{survivor.key} is already the only voter: start its controller")


def recover_lost_majority(
    directory: Path, others: Sequence[Examination] = (), epochs: Sequence[int] = ()
) -> LostMajority:
    """Run all steps. The caller holds the lock of `directory`."""
    plan = plan_lost_majority(examine(directory), others, epochs)
    backup = back_up(directory)
    end_offset = force_epoch(
        directory, plan.survivor, plan.epoch, plan.voter_sets, (plan.survivor.key,)
    )
    done = replace(plan, end_offset=end_offset, backup=backup)
    return replace(done, report=write_report(directory, done.as_json()))
