"""Epochs that are used up: lower the epoch of all voters together.

An epoch has 31 bits, and a voter never goes back from one that it has seen. Where quorum-state
holds the last one, or one so high that ordinary elections cannot have led to it, the quorum is near
its end or cannot elect any more, and nothing that runs may lower it. Offline it is safe if, and
only if, all voters do it together: whatever an epoch committed is in the logs of a majority, so the
epochs above all logs committed nothing, and once no quorum-state names them nobody remembers a vote
or a leader of theirs.

Steps of `reset_epochs`, under the locks of all directories:

1. Look: the directories of every voter of every log are there, sound, and of one cluster.
2. Choose one epoch above every epoch in the logs and checkpoints, and above those in quorum-state
   files that elections can have led to: an observer may have read a record of such an epoch that
   no voter's disk holds.
3. Copy each quorum-state to a backup, then write each anew: that epoch, no vote, no leader.

Cut short, it is repeated: what is written already is one of the epochs to go above. No controller
may be started before all are written: it would take the high epoch from the others again.

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
from quorate.raft.types import ElectionState, ReplicaKey
from quorate.recovery.change import back_up_files, timestamp, write_report
from quorate.recovery.choice import check_one_quorum
from quorate.recovery.errors import RecoveryError
from quorate.recovery.examine import Examination, as_json, examine

EPOCH_SANE_MAX = 2**30
"""No elections led to a higher epoch: one a second would take 34 years."""


@dataclass(frozen=True, slots=True)
class EpochReset:
    """What is to be done, or was. backups: of each directory, empty while nothing was done."""

    found: tuple[Examination, ...]
    voters: tuple[ReplicaKey, ...]
    epoch: int
    backups: tuple[Path, ...] = ()
    reports: tuple[Path, ...] = ()

    @property
    def highest(self) -> int:
        """The epoch that is given up."""
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
    """Steps 1 and 2, pure. voter_ids: controller.quorum.voters at kraft.version 0, where the log
    names no voters. RecoveryError when the remedy is refused.
    """
    if not found:
        raise RecoveryError("no directory is named: all voters' are needed together")
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
            f"epoch {highest} is the highest, and elections can go on to {EPOCH_MAX}: there is "
            "nothing to repair"
        )
    if epoch >= EPOCH_MAX:
        where = max(found, key=lambda each: each.end.epoch)
        raise RecoveryError(
            f"the log in {where.directory} itself holds epoch {in_logs}: records that may be "
            "committed cannot go back. Restore all voters from a backup, or import the data into a "
            "new cluster"
        )
    return EpochReset(tuple(found), voters, epoch)


def _present_voters(
    found: Sequence[Examination], voter_ids: Collection[int]
) -> tuple[ReplicaKey, ...]:
    """Every voter of any of the logs; RecoveryError if the directory of one is not there."""
    sets = [voters for each in found for voters in (each.voters, each.known_committed_voters)]
    keys = dict.fromkeys(voter.key for voters in sets for voter in voters)
    at_hand = [each.key for each in found]
    missing = [str(key) for key in keys if not any(_is(key, own) for own in at_hand)]
    ids = {own.id for own in at_hand}
    missing += [str(number) for number in sorted(set(voter_ids) - ids)]
    if missing:
        raise RecoveryError(
            f"the directories of the voters {', '.join(missing)} are not among these: a voter that "
            "keeps its epoch brings it back. Where a majority is lost for good, use lost-majority"
        )
    if not keys and not voter_ids:
        raise RecoveryError(
            "the logs name no voters (kraft.version 0): name the ids of controller.quorum.voters "
            "with --voters"
        )
    if not keys:
        return tuple(own for own in at_hand if own.id in voter_ids)
    return tuple(keys)


def _is(voter: ReplicaKey, replica: ReplicaKey) -> bool:
    """Whether the replica is the voter; one without a directory id is known by its id."""
    if voter.directory_id is None or replica.directory_id is None:
        return voter.id == replica.id
    return voter == replica


def reset_epochs(directories: Sequence[Path], voter_ids: Collection[int] = ()) -> EpochReset:
    """All steps. The caller holds the locks of all directories."""
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
