"""Recovers from exhausted epochs: lowers the epoch of all voters together.

An epoch has 31 bits, and a voter never returns to an earlier epoch. If quorum-state holds the last
epoch, or one so high that ordinary elections cannot have reached it, the quorum can hold few more
elections or none, and no running replica may lower the epoch. Offline, lowering it is safe if, and
only if, all voters do so together. Records that were committed in an epoch are in the logs of a
majority, so nothing was committed in epochs above all logs. Once no quorum-state contains such an
epoch, no replica remembers a vote or a leader of it.

Steps of `reset_epochs`, under the locks of all directories:

1. Check that the directories of every voter of every log are present, sound, and of one cluster.
2. Choose one epoch above every epoch in the logs and checkpoints, and above those epochs in
   quorum-state files that elections can have reached: an observer may have read a record of such an
   epoch that no voter's disk holds.
3. Copy each quorum-state to a backup, then rewrite it with that epoch, no vote, and no leader.

If the reset is interrupted, the operator repeats it: the new epoch is then above those already
written. No controller may be started before all files are written, because it would adopt the high
epoch from the others again.

Source: KIP-595 (quorum-state, epochs); KIP-853, "Leader election". Neither has such a remedy.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quorate.log.metadata_log import partition_directory
from quorate.log.quorum_state import QUORUM_STATE_FILE, QuorumStateFile
from quorate.raft.epochs import EPOCH_MAX
from quorate.raft.types import ElectionState, ReplicaKey, same_replica
from quorate.recovery.change import back_up_files, timestamp, write_report
from quorate.recovery.choice import check_one_quorum
from quorate.recovery.errors import RecoveryError
from quorate.recovery.examine import Examination, as_json, examine

EPOCH_SANE_MAX = 2**30
"""Ordinary elections do not reach a higher epoch: at one per second this takes 34 years."""


@dataclass(frozen=True, slots=True)
class EpochReset:
    """The planned or completed reset."""

    found: tuple[Examination, ...]
    voters: tuple[ReplicaKey, ...]
    epoch: int
    backups: tuple[Path, ...] = ()
    """One backup per directory, empty if the reset is only planned."""
    reports: tuple[Path, ...] = ()

    @property
    def highest(self) -> int:
        """The highest epoch in a quorum-state, which the reset abandons."""
        return max(each.epoch for each in self.found)

    def as_json(self) -> dict[str, Any]:
        return {
            "version": 1,
            "kind": "epochs",
            "time": timestamp(),
            "done": bool(self.backups),
            "clusterId": self.found[0].cluster_id,
            "highestEpoch": self.highest,
            "epoch": self.epoch,
            "voters": [{"id": key.id, "directoryId": key.directory_id} for key in self.voters],
            "backups": list(map(str, self.backups)),
            "before": [as_json(each) for each in self.found],
        }


def plan_epochs(found: Sequence[Examination], voter_ids: Collection[int] = ()) -> EpochReset:
    """Run steps 1 and 2, without side effects. RecoveryError if the remedy is refused.

    voter_ids: controller.quorum.voters at kraft.version 0, where the log names no voters.
    """
    if not found:
        raise RecoveryError("no directory is given: the directories of all voters are needed")
    check_one_quorum(found)
    for each in found:
        if not each.is_sound:
            raise RecoveryError(
                f"the log in {each.directory} is damaged, so its epochs are not known: "
                f"{each.damage}"
            )
    voters = _present_voters(found, voter_ids)
    in_logs = max(each.end.epoch for each in found)
    sane = [each.epoch for each in found if each.epoch < EPOCH_SANE_MAX]
    epoch = max([in_logs, *sane]) + 1
    highest = max(each.epoch for each in found)
    if highest <= max(epoch, EPOCH_SANE_MAX):
        raise RecoveryError(
            f"the highest epoch is {highest}, and elections can continue up to {EPOCH_MAX}: there "
            "is nothing to repair"
        )
    if epoch >= EPOCH_MAX:
        where = max(found, key=lambda each: each.end.epoch)
        raise RecoveryError(
            f"the log in {where.directory} itself contains epoch {in_logs}: the epoch of records "
            "that may be committed cannot be lowered. Restore all voters from a backup, or "
            "import the data into a new cluster"
        )
    return EpochReset(tuple(found), voters, epoch)


def _present_voters(
    found: Sequence[Examination], voter_ids: Collection[int]
) -> tuple[ReplicaKey, ...]:
    """Return the voters of all logs. RecoveryError if a voter's directory is missing."""
    sets = [voters for each in found for voters in (each.voters, each.known_committed_voters)]
    keys = dict.fromkeys(voter.key for voters in sets for voter in voters)
    at_hand = [each.key for each in found]
    missing = [str(key) for key in keys if not any(_is(key, own) for own in at_hand)]
    ids = {own.id for own in at_hand}
    missing += [str(number) for number in sorted(set(voter_ids) - ids)]
    if missing:
        raise RecoveryError(
            f"the directories of voters {', '.join(missing)} are missing: a voter that keeps its "
            "epoch would bring it back. If a majority is permanently lost, use lost-majority"
        )
    if not keys and not voter_ids:
        raise RecoveryError(
            "the logs contain no voters (kraft.version 0): give the ids in "
            "controller.quorum.voters with --voters"
        )
    if not keys:
        return tuple(own for own in at_hand if own.id in voter_ids)
    return tuple(keys)


def _is(voter: ReplicaKey, replica: ReplicaKey) -> bool:
    """Whether the replica is the voter. Compares only the ids if either has no directory id."""
    return same_replica(voter, replica) or same_replica(replica, voter)


def reset_epochs(directories: Sequence[Path], voter_ids: Collection[int] = ()) -> EpochReset:
    """Run all steps. The caller holds the locks of all directories."""
    plan = plan_epochs([examine(directory) for directory in directories], voter_ids)
    backups = tuple(
        back_up_files(directory, [partition_directory(directory) / QUORUM_STATE_FILE])
        for directory in directories
    )
    for directory, each in zip(directories, plan.found, strict=True):
        state = ElectionState(plan.epoch, None, None)
        QuorumStateFile(partition_directory(directory)).write(state, each.kraft_version)
    done = replace(plan, backups=backups)
    reports = tuple(write_report(directory, done.as_json()) for directory in directories)
    return replace(done, reports=reports)
