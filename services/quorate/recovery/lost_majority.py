"""A majority of the voters is gone for good: let one log that is left be the quorum.

Steps of `recover_lost_majority`, under the directory's lock:

1. Look: the log is sound, kraft.version is 1, the survivor is not alone in the voter set already.
2. Refuse where data would be lost needlessly: a better log is among the others; a majority of the
   voters in force is at hand, so that nothing is lost and they need only be started.
3. Choose an epoch that no voter can have reached (`choice.forced_epoch`).
4. Back up; write quorum-state; append LeaderChange and the Voters records that lead, one voter at a
   time, to the survivor alone; write the report.

This replica cannot tell whether the missing voters are lost: the operator confirms it. If they come
back:

- One of them, or any number less than a majority of the old set: it cannot elect itself. It asks
  the survivor, whose log ends in the forced epoch and so is never behind, gets no vote but the
  survivor's epoch, follows, truncates what the survivor does not have, reads the new voter set, and
  is an observer.
- A majority of the old set, while it cannot reach the survivor: it knows nothing of the new set,
  elects, and commits. These are two quorums with one cluster id, and nothing on the survivor's
  side can prevent it. When one of them reaches the survivor it is fenced by the forced epoch and
  follows; what the old quorum had committed meanwhile is truncated, or the replica stops rather
  than truncate what it had seen committed. So: format the old directories before they start again.

kraft.version 0 has its voters in every controller's properties and not in the log; there the remedy
is controller.quorum.voters.

Source: KIP-853, "Voter changes" (one voter at a time, on the way to the survivor too), "Leader
election" (nobody checks membership, so the epochs must do it). The KIP has no such remedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quorate.raft.types import Voter, VoterSet
from quorate.recovery.change import back_up, force_epoch, timestamp, write_report
from quorate.recovery.choice import (
    Verdict,
    check_one_quorum,
    forced_epoch,
    judge,
    single_changes,
)
from quorate.recovery.errors import RecoveryError
from quorate.recovery.examine import Examination, as_json, examine, voters_json

WARNING = (
    "the cluster id stays: if a majority of the old voters starts again where it cannot reach this "
    "replica, there are two quorums. Erase their directories first"
)


@dataclass(frozen=True, slots=True)
class LostMajority:
    """What is to be done, or was. backup, report: None while nothing was done."""

    survivor: Examination
    old_voters: VoterSet
    new_voters: VoterSet
    voter_sets: tuple[VoterSet, ...]
    epoch: int
    verdict: Verdict
    end_offset: int
    backup: Path | None = None
    report: Path | None = None

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
    """Steps 1 to 3, pure. epochs: more epochs that were seen somewhere. RecoveryError when the
    remedy is refused.
    """
    found = [survivor, *others]
    _check_survivor(survivor)
    check_one_quorum(found)
    verdict = judge(found)
    assert verdict.best is not None, "the survivor is sound"
    if verdict.best.position > survivor.position:
        raise RecoveryError(
            f"{verdict.best.directory} is the better survivor: it ends at {verdict.best.end}, "
            f"{survivor.directory} at {survivor.end}; recover that one"
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
    # LeaderChange goes before the Voters records.
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
                f"{survivor.directory} holds no records and knows no voters: nothing can be "
                "recovered from it"
            )
        raise RecoveryError(
            "kraft.version is 0: the voters are not in the log but in controller.quorum.voters of "
            f"every controller's properties. Set it to {survivor.key.id}@HOST:PORT alone in the "
            "survivor's, start it, and erase the other controllers' directories before they start "
            "again"
        )
    if not len(survivor.voters):
        raise RecoveryError(f"{survivor.directory} knows no voters: nothing can be recovered")
    if survivor.voters.is_only(survivor.key):
        raise RecoveryError(f"{survivor.key} is the only voter already: start its controller")


def recover_lost_majority(
    directory: Path, others: Sequence[Examination] = (), epochs: Sequence[int] = ()
) -> LostMajority:
    """All steps. The caller holds the lock of `directory`."""
    plan = plan_lost_majority(examine(directory), others, epochs)
    backup = back_up(directory)
    end_offset = force_epoch(
        directory, plan.survivor, plan.epoch, plan.voter_sets, (plan.survivor.key,)
    )
    done = replace(plan, end_offset=end_offset, backup=backup)
    return replace(done, report=write_report(directory, done.as_json()))
