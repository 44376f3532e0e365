"""All mutants: each removes or weakens one guard of the protocol, or one with its second line."""

from __future__ import annotations

from tests.simulation.mutants.elections import ELECTIONS, LOST_RECORDS
from tests.simulation.mutants.epochs import EPOCHS
from tests.simulation.mutants.membership import MEMBERSHIP, SNAPSHOTS
from tests.simulation.mutants.mutant import Redundant
from tests.simulation.mutants.replication import READS, REPLICATION, TRANSFERS

REDUNDANT = (
    Redundant(
        "a transfer to a voter that did not fetch lately is refused",
        "the leader waits for another Fetch of the voter",
        "transfer_to_the_silent",
    ),
    Redundant(
        "who is out by a record that is not committed elects when it hears no leader",
        "it stands as well when a voter with an older log asks for its vote",
        "removed_replica_never_elects",
    ),
    Redundant(
        "a vote is for a replica, not for its id",
        "two directories of an id are no candidates of one epoch: a change of the voters, and so a "
        "commit in a later epoch than the first one's, lies between",
        "vote_twice",
    ),
    Redundant(
        "a grant counts in the epoch it was asked in",
        "a change of the epoch forgets what was asked in the old one",
        "answers_outlive_their_epoch",
    ),
    Redundant(
        "an answer to a Fetch is of the epoch in which it was asked for",
        "a change of the epoch forgets the Fetch under way, and its answer is nobody's",
        "answers_of_older_epochs_are_taken",
    ),
    Redundant(
        "no snapshot that ends before the high watermark is loaded",
        "a leader offers a snapshot only to who is behind its log's start",
        "snapshot_with_an_old_end_is_loaded",
    ),
)
"""Guards without a row of their own: one alone changes nothing that anybody could see."""

MUTANTS = (
    ELECTIONS + EPOCHS + LOST_RECORDS + REPLICATION + READS + TRANSFERS + MEMBERSHIP + SNAPSHOTS
)
