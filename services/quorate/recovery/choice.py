"""Draws conclusions from the examinations of several directories, without side effects.

The best log has the highest last epoch, and among those the highest end offset: the voters would
elect its replica. A record is committed when a majority of the voters holds it, and any two
majorities overlap. Therefore:

- If the available directories include a majority of the voters in force, the best of their logs
  holds every committed record.
- If they do not, records that other voters committed may be missing in all of them. The number of
  such records cannot be known from the remaining directories.

Epochs of forced records (`forced_epoch`): a log's last epoch decides elections and log divergence,
so no other replica may have used a forced epoch, or be able to reach it in ordinary elections. The
lost voters may have held elections that are not in this log, perhaps one per second for days.
`FORCED_EPOCH_MARGIN` covers eleven days at this rate; epochs have 31 bits, which leaves room for
two thousand recoveries. The log of an old voter that comes back then always compares as older: the
survivor never grants it a vote and answers with its own higher epoch, and the old voter follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from quorate.raft.epochs import EPOCH_MAX
from quorate.raft.types import ReplicaKey, Voter, VoterSet, same_replica
from quorate.recovery.errors import RecoveryError
from quorate.recovery.examine import Examination

FORCED_EPOCH_MARGIN = 1_000_000


@dataclass(frozen=True, slots=True)
class RecoveryVerdict:
    """The conclusions from several examinations."""

    best: Examination | None
    """The log that the others should follow, None if none of the logs is sound."""
    present: tuple[ReplicaKey, ...] = ()
    """The voters in force in the best log that have an available, sound directory."""
    missing: tuple[ReplicaKey, ...] = ()
    """The other voters in force in the best log."""
    is_complete: bool = False
    """Whether `present` is a majority."""
    lines: tuple[str, ...] = ()
    """The conclusions as sentences."""


def best_log(found: Iterable[Examination]) -> Examination | None:
    """Return the best sound log, the first one among equals; None if no log is sound."""
    sound = [each for each in found if each.is_sound]
    return max(sound, key=lambda each: each.position, default=None)


def check_one_quorum(found: Sequence[Examination]) -> None:
    """Raise RecoveryError unless all directories are distinct replicas of one cluster."""
    first = found[0]
    for index, each in enumerate(found):
        if each.cluster_id != first.cluster_id:
            raise RecoveryError(
                f"{each.directory} belongs to cluster {each.cluster_id}, {first.directory} to "
                f"{first.cluster_id}"
            )
        for earlier in found[:index]:
            if earlier.key == each.key:
                raise RecoveryError(
                    f"{earlier.directory} and {each.directory} are the same replica, {each.key}"
                )


def judge(found: Sequence[Examination]) -> RecoveryVerdict:
    """Find the best log, and determine what it may lack."""
    best = best_log(found)
    if best is None:
        return RecoveryVerdict(None, lines=("none of these directories has a sound log",))
    at_hand = [each.key for each in found if each.is_sound]
    present = tuple(v.key for v in best.voters if any(same_replica(v.key, key) for key in at_hand))
    missing = tuple(v.key for v in best.voters if v.key not in present)
    is_complete = len(present) >= best.voters.majority if len(best.voters) else False
    lines = (*_sentences(best, present, missing, is_complete), *_in_use(found))
    return RecoveryVerdict(best, present, missing, is_complete, lines)


def _sentences(
    best: Examination,
    present: Sequence[ReplicaKey],
    missing: Sequence[ReplicaKey],
    is_complete: bool,
) -> tuple[str, ...]:
    end, known = best.end.offset, best.known_committed
    lines = [
        f"the best log is that of {best.key}: it ends at offset {end} in epoch {best.end.epoch}",
        f"known to be committed: everything before offset {known} "
        + ("(a checkpoint covers it)" if known else "(there is no checkpoint)"),
    ]
    if known < end:
        lines.append(
            f"offsets {known} to {end - 1} are in the log; no disk shows which of them were "
            "committed"
        )
    if is_complete:
        lines.append(
            f"no committed record is missing: {_names(present)} are a majority of the "
            f"{len(best.voters)} voters in force, so every committed record is on one of them"
        )
    elif len(best.voters):
        lines.append(
            f"{_names(missing)} may have committed records at offset {end} and after without the "
            f"available voters ({_names(present)}); how many cannot be known from the available "
            "directories"
        )
    else:
        lines.append("the log contains no voters, so it is unknown which replicas form a majority")
    return tuple(lines)


def _in_use(found: Iterable[Examination]) -> Iterator[str]:
    keys = [each.key for each in found if each.is_in_use]
    if keys:
        yield f"a process uses the directory of {_names(keys)}: the log may have grown since"


def _names(keys: Iterable[ReplicaKey]) -> str:
    return ", ".join(map(str, keys)) or "none"


def forced_epoch(seen: Iterable[int], margin: int = FORCED_EPOCH_MARGIN) -> int:
    """Return the highest seen epoch plus `margin`. RecoveryError if it is out of range."""
    epoch = max(seen) + margin
    if epoch >= EPOCH_MAX:
        raise RecoveryError(f"epoch {epoch - margin} leaves no room for another forced epoch")
    return epoch


def single_changes(old: VoterSet, survivor: Voter) -> list[VoterSet]:
    """Return the voter sets that lead from `old` to the survivor alone in single changes.

    Kafka refuses a log in which consecutive sets differ by more than one voter, and so do our own
    invariants. RecoveryError if no such sequence exists.
    """
    sets: list[VoterSet] = []
    current = old
    known = current.get(survivor.id)
    if known is not None and known.key != survivor.key:
        if len(current) == 1:
            raise RecoveryError(
                f"the only voter is {known.key}, another directory of the same node: no chain of "
                f"single changes leads from it to {survivor.key}"
            )
        current = current.removing(known.key)
        sets.append(current)
    if survivor.key not in current:
        current = current.adding(survivor)
        sets.append(current)
    for voter in current:
        if voter.id != survivor.id:
            current = current.removing(voter.key)
            sets.append(current)
    return sets
