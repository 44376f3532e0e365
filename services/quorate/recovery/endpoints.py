"""Corrects voter endpoints after all voters were renamed and cannot reach each other (KIP-1347).

The endpoints are in the log. A leader would correct them with UpdateVoter, but an election sends
its vote requests to the old endpoints. Only one voter's log needs the correction: that voter
connects to the others at their new endpoints and is elected, and they replicate the correction from
its log as from any leader's.

An election makes this safe. The correction is a record of an epoch, and a replica may write records
of an epoch only if a majority of the voters voted for it, which also proves that its log holds all
committed records. The command performs that election on the disks:

1. Examine the directories of a majority of the voters in force: this one (`--log-dir`) and others
   (`--others`). Without a majority, refuse: committed records might be in none of these logs.
2. Check that this log is the best of them; if not, refuse and name the best one.
3. Choose the next epoch. Write it durably to the quorum-state of each other directory, with a vote
   for this replica, as if that voter had answered a vote request. From then on, none of them takes
   part in an earlier epoch.
4. Write the epoch to this directory, and one batch in that epoch: LeaderChange and the corrected
   VotersRecord.

The voters remain the same replicas, so their majorities remain the same and nothing is lost.

If the directories are on different machines, run `recover inspect --json` on each of the others
with its controller stopped. `--others` accepts the resulting file instead of a directory. The
command cannot write a vote into such a voter's directory. Two conditions replace the vote: none of
these voters can have reached the epoch (`choice.forced_epoch`), and none of them may run between
the inspection and the start of this replica. Records that such a voter commits meanwhile would be
lost. Therefore, all controllers are stopped first:

    on every voter:   stop the controller, correct its listeners, bootstrap servers, advertised
                      listeners; quorate recover inspect --dirs D --json > voter-N.json
    on the best one:  quorate recover endpoints --log-dir D --others voter-2.json,voter-3.json
                      --voter 1@new-1:9093 --voter 2@new-2:9093 --voter 3@new-3:9093
    on every voter:   start the controller, the corrected one first

The alternative, to write the same record at the same offset on every voter without an election, is
unsafe: the logs of the voters differ in length, and no replica would ever detect a divergence of
two different records with the same offset and epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quorate.common.endpoints import Endpoint
from quorate.log.metadata_log import partition_directory
from quorate.log.quorum_state import QuorumStateFile
from quorate.raft.types import ElectionState, ReplicaKey, Voter, VoterSet
from quorate.recovery.change import back_up, force_epoch, timestamp, write_report
from quorate.recovery.choice import RecoveryVerdict, check_one_quorum, forced_epoch, judge
from quorate.recovery.errors import RecoveryError
from quorate.recovery.examine import Examination, as_json, examine, voters_json


@dataclass(frozen=True, slots=True)
class CorrectedEndpoints:
    """The planned or completed correction."""

    chosen: Examination
    new_voters: VoterSet
    epoch: int
    voted: tuple[ReplicaKey, ...]
    """The voters whose directories get a vote."""
    promised: tuple[ReplicaKey, ...]
    """The voters whose directories get no vote, and which must not run before this replica
    starts.
    """
    verdict: RecoveryVerdict
    backups: tuple[Path, ...] = ()
    report: Path | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "version": 1,
            "kind": "endpoints",
            "time": timestamp(),
            "done": bool(self.backups),
            "directory": self.chosen.directory,
            "clusterId": self.chosen.cluster_id,
            "oldVoters": voters_json(self.chosen.voters),
            "newVoters": voters_json(self.new_voters),
            "forcedEpoch": self.epoch,
            "forcedOffset": self.chosen.end.offset,
            "voted": [str(key) for key in self.voted],
            "mustNotRunBefore": [str(key) for key in self.promised],
            "mayBeLost": [],
            "backups": [str(path) for path in self.backups],
            "before": as_json(self.chosen),
        }


def with_endpoints(
    voters: VoterSet, wanted: Mapping[int, Sequence[tuple[str | None, str, int]]]
) -> VoterSet:
    """Return the same voters with other endpoints. RecoveryError for an unknown voter or listener.

    wanted: (listener or None for the first, host, port) by voter id. Listeners that are not named
    keep their endpoint.
    """
    for voter_id, places in wanted.items():
        voter = voters.get(voter_id)
        if voter is None:
            raise RecoveryError(f"{voter_id} is not a voter: the voters are {voters}")
        voters = voters.updating(_moved(voter, places))
    return voters


def _moved(voter: Voter, places: Sequence[tuple[str | None, str, int]]) -> Voter:
    endpoints = list(voter.endpoints)
    for name, host, port in places:
        listener = name or (endpoints[0].name if endpoints else "CONTROLLER")
        moved = Endpoint(listener, host, port)
        at = next((i for i, e in enumerate(endpoints) if e.name == listener), None)
        if at is None:
            raise RecoveryError(
                f"{voter.key} has no listener {listener}: it has "
                f"{', '.join(e.name for e in endpoints) or 'none'}"
            )
        endpoints[at] = moved
    return replace(voter, endpoints=tuple(endpoints))


def plan_endpoints(
    chosen: Examination,
    others: Sequence[Examination],
    reports: Sequence[Examination],
    wanted: Mapping[int, Sequence[tuple[str | None, str, int]]],
) -> CorrectedEndpoints:
    """Check steps 1 and 2 and choose the epoch, without side effects. RecoveryError if refused.

    others: examinations of available directories. reports: examinations from other machines, made
    while no process used the directory.
    """
    found = [chosen, *others, *reports]
    in_use = [str(each.key) for each in reports if each.is_in_use]
    if in_use:
        raise RecoveryError(
            f"the controller of {', '.join(in_use)} ran when its directory was inspected, and may "
            "have written more since: stop it, and run `recover inspect` again"
        )
    if not chosen.is_sound:
        raise RecoveryError(f"{chosen.directory} cannot be used: {chosen.damage}")
    if chosen.kraft_version < 1:
        raise RecoveryError(
            "kraft.version is 0: the voters' addresses are not in the log but in "
            "controller.quorum.voters of every controller's properties: correct them there"
        )
    check_one_quorum(found)
    verdict = judge(found)
    best = verdict.best
    assert best is not None, "the chosen log is sound"
    if best.position > chosen.position:
        raise RecoveryError(
            f"{best.directory} has the best log, up to {best.end}; {chosen.directory} ends at "
            f"{chosen.end}: run this on the former"
        )
    if not verdict.is_complete:
        raise RecoveryError(
            f"{len(verdict.present)} of the {len(chosen.voters)} voters are available, but "
            f"{chosen.voters.majority} are needed: name the directories (or the JSON of `recover "
            f"inspect`) of {', '.join(map(str, verdict.missing))} with --others"
        )
    if chosen.key not in chosen.voters:
        raise RecoveryError(f"{chosen.key} is not a voter: run this on one of {chosen.voters}")
    new_voters = with_endpoints(chosen.voters, wanted)
    if new_voters == chosen.voters:
        raise RecoveryError("the voters already have these addresses: there is nothing to change")
    voted = tuple(e.key for e in others if e.is_sound and e.key in chosen.voters)
    promised = tuple(v.key for v in chosen.voters if v.key not in (chosen.key, *voted))
    elected = len(voted) + 1 >= chosen.voters.majority
    epochs = [each.highest_epoch for each in found]
    epoch = forced_epoch(epochs, 1) if elected else forced_epoch(epochs)
    return CorrectedEndpoints(chosen, new_voters, epoch, voted, promised, verdict)


def correct_endpoints(
    directory: Path,
    others: Sequence[Path],
    reports: Sequence[Examination],
    wanted: Mapping[int, Sequence[tuple[str | None, str, int]]],
) -> CorrectedEndpoints:
    """Run all steps. The caller holds the locks of `directory` and of `others`."""
    plan = plan_endpoints(examine(directory), [examine(each) for each in others], reports, wanted)
    backups = []
    for other in others:
        found = examine(other)
        if found.key in plan.voted:
            backups.append(back_up(other))
            state = ElectionState(plan.epoch, None, plan.chosen.key)
            QuorumStateFile(partition_directory(other)).write(state, found.kraft_version)
    backups.insert(0, back_up(directory))
    granting = (plan.chosen.key, *plan.voted)
    force_epoch(directory, plan.chosen, plan.epoch, [plan.new_voters], granting)
    done = replace(plan, backups=tuple(backups))
    return replace(done, report=write_report(directory, done.as_json()))
